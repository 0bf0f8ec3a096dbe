/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENV_H
#define ENV_H
/* Storage and clock of the outer loop: the real ones (env_posix.c) and simulated ones with crash
 * at any operation and virtual time (env_sim.c). Everything the site and the aggregator keep on
 * disk goes through here. Paths are relative to the environment's root directory. "Durable" means
 * after return: survives kill -9 and power loss.
 */
#include "kernels/base/file.h"

struct env;
struct env_mutex; /* a lock and its condition variable */
struct env_thread;
struct env_ops {
    uint64_t (*now_ms)(struct env *w);  /* monotonic */
    uint64_t (*unix_ms)(struct env *w); /* wall clock: texts, metrics, the envelope of manifests */
    void (*sleep_ms)(struct env *w, uint64_t ms);
    void (*random)(struct env *w, void *out, size_t n);
    /* Whole files: durable and atomic; parents are made. */
    enum err (*write)(struct env *w, const char *path, const struct file_part *parts, size_t n);
    enum err (*read)(struct env *w, const char *path, size_t max_bytes, struct arena *a,
                     uint8_t **data, size_t *size);
    /* A whole file to look at, without a copy where that is possible. It must not change until
     * unmap. ERR_CORRUPT: a part of it cannot be read. */
    enum err (*map)(struct env *w, const char *path, struct file_map *m);
    void (*unmap)(struct env *w, struct file_map *m);
    bool (*exists)(struct env *w, const char *path);
    /* File or tree; missing is no error. A removed file may come back with a power loss; a
     * forgotten one does not. */
    enum err (*remove)(struct env *w, const char *path);
    enum err (*forget)(struct env *w, const char *path);
    enum err (*list)(struct env *w, const char *path, struct arena *a, char ***names,
                     size_t *count);
    /* To a file that is there: durable on return. After an error, ERR_FULL too, the file is not
     * appended to again: another one is written in its place. */
    enum err (*append)(struct env *w, const char *path, const void *data, size_t n);
    /* A file that arrives in pieces: part_open reserves `total` bytes (ERR_FULL) and says how many
     * are there from before, part_write is not durable, part_close(final) fsyncs and renames to
     * `final` (durable; after an error the file is gone); final NULL: just closes. */
    enum err (*part_open)(struct env *w, const char *path, uint64_t total, int *handle,
                          uint64_t *have);
    enum err (*part_write)(struct env *w, int handle, uint64_t offset, const void *data, size_t n);
    enum err (*part_close)(struct env *w, int handle, const char *path, const char *final);
    /* Is the root still the directory that this process has locked? Asked right before each commit:
     * ERR_BUSY. */
    enum err (*owned)(struct env *w);
    /* Threads of one process, with all signals blocked, and the locks between them. A lock is not
     * recursive. */
    enum err (*thread_start)(struct env *w, struct env_thread **t, void (*run)(void *self),
                             void *self);
    void (*thread_join)(struct env *w, struct env_thread *t); /* until it has ended; frees it */
    enum err (*mutex_open)(struct env *w, struct env_mutex **g);
    /* No thread holds it or waits. NULL is fine. */
    void (*mutex_close)(struct env *w, struct env_mutex *g);
    void (*lock)(struct env *w, struct env_mutex *g);
    void (*unlock)(struct env *w, struct env_mutex *g);
    /* With the lock held: unlocks, waits for a signal or `ms` (it may end earlier), locks again. */
    void (*wait)(struct env *w, struct env_mutex *g, uint64_t ms);
    void (*signal)(struct env *w, struct env_mutex *g); /* wakes all that wait */
};
struct env { /* implementations embed it first */
    const struct env_ops *ops;
    const char *root; /* lives as long */
    struct disk *disk;
};

/* root is made, locked until close, and its directories are durable: ERR_BUSY when another process
 * owns the directory. */
enum err env_posix_open(struct env **w, const char *root) MUST;
/* The same directory in another process of the job that owns it: not locked. */
enum err env_posix_join(struct env **w, const char *root) MUST;
void env_posix_close(struct env *w);

#endif
