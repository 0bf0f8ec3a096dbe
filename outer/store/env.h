#ifndef ENV_H
#define ENV_H
/* Storage and clock of the outer loop: the real ones (world_real.c) and simulated ones with crash
 * at any operation and virtual time (world_sim.c). Everything the site and the aggregator keep on
 * disk goes through here. Paths are relative to the world's root directory. "Durable" means after
 * return: survives kill -9 and power loss.
 */
#include "kernels/base/file.h"

struct world;
struct world_gate; /* one thread at a time is inside */
struct world_thread;
struct world_ops {
    uint64_t (*now_ms)(struct world *w);  /* monotonic */
    uint64_t (*unix_ms)(struct world *w); /* wall clock: log text and manifests' envelope only */
    void (*sleep_ms)(struct world *w, uint64_t ms);
    void (*random)(struct world *w, void *out, size_t n);
    /* Whole files: durable and atomic; parents are made. */
    enum err (*write)(struct world *w, const char *path, const struct file_part *parts, size_t n);
    enum err (*read)(struct world *w, const char *path, size_t max_bytes, struct arena *a,
                     uint8_t **data, size_t *size);
    /* A whole file to look at, without a copy where that is possible. It must not change until
     * unmap. */
    enum err (*map)(struct world *w, const char *path, struct file_map *m);
    void (*unmap)(struct world *w, struct file_map *m);
    bool (*exists)(struct world *w, const char *path);
    enum err (*remove)(struct world *w, const char *path); /* file or tree; missing is no error */
    enum err (*list)(struct world *w, const char *path, struct arena *a, char ***names,
                     size_t *count);
    /* Append-only file: durable on return. */
    enum err (*append)(struct world *w, const char *path, const void *data, size_t n);
    enum err (*truncate)(struct world *w, const char *path, uint64_t size_bytes); /* durable */
    /* A file that arrives in pieces: part_open reserves `total` bytes (ERR_FULL) and says how many
     * are there from before, part_write is not durable, part_close(final) fsyncs and renames to
     * `final` (durable); final NULL: just closes. */
    enum err (*part_open)(struct world *w, const char *path, uint64_t total, int *handle,
                          uint64_t *have);
    enum err (*part_write)(struct world *w, int handle, uint64_t offset, const void *data,
                           size_t n);
    enum err (*part_close)(struct world *w, int handle, const char *path, const char *final);
    /* Threads of one process, each blocked from signals, and gates between them. A gate is not
     * entered twice. */
    enum err (*thread_start)(struct world *w, struct world_thread **t, void (*run)(void *self),
                             void *self);
    void (*thread_join)(struct world *w, struct world_thread *t); /* until it has ended; frees it */
    enum err (*gate_open)(struct world *w, struct world_gate **g);
    void (*gate_close)(struct world *w,
                       struct world_gate *g); /* nobody is inside or waits; NULL is fine */
    void (*enter)(struct world *w, struct world_gate *g);
    void (*leave)(struct world *w, struct world_gate *g);
    /* Inside: lets others in until one of them calls wake, or ms have passed, perhaps earlier; then
     * is inside again. */
    void (*wait)(struct world *w, struct world_gate *g, uint64_t ms);
    void (*wake)(struct world *w, struct world_gate *g); /* inside; all that wait */
};
struct world { /* implementations embed it first */
    const struct world_ops *ops;
    const char *root; /* for messages; lives as long */
};

/* root is made; its LOCK is held until close: ERR_BUSY when another process owns the directory. */
enum err world_open_real(struct world **w, const char *root) MUST;
void world_close_real(struct world *w);

#endif
