/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DURABLE_H
#define DURABLE_H
/* Files that survive a crash, on a disk (disk.h). A durable write: temporary file (O_EXCL), write,
 * fsync, rename, fsync of the directory. On any error before the rename the old file stays. ENOSPC
 * becomes ERR_FULL; other errors become ERR_IO or ERR_INPUT (missing, unreadable), with path and
 * errno text in the message. Bytes that the disk cannot give back (EIO) are ERR_CORRUPT, as bytes
 * with another digest are.
 *
 * A file whose fsync failed is never used again, for any reason: the kernel may have dropped
 * its pages and marked them clean, so that a second fsync succeeds without the data
 * (docs/protocol.md 5, row 22).
 */
#include "kernels/base/arena.h"
#include "kernels/base/disk.h"

struct file_part { /* one piece of a gathered write */
    const void *data;
    size_t size_bytes;
};

#define DURABLE_TEMPORARY ".tmp"

/* errno as an error with its message. missing_is: the error for ENOENT and EACCES. */
enum err durable_failed(const char *what, const char *path, enum err missing_is);
/* A zero byte follows the data, so text is a C string. ERR_INPUT: longer than max_bytes. */
enum err durable_read(struct disk *d, const char *path, size_t max_bytes, struct arena *a,
                      uint8_t **data, size_t *size_bytes) MUST;
/* An open file's bytes, all of them. */
enum err durable_read_at(struct disk *d, int fd, const char *path, uint8_t *to, size_t n,
                         uint64_t at) MUST;
enum err durable_write_at(struct disk *d, int fd, const char *path, const void *from, size_t n,
                          uint64_t at) MUST; /* not durable */
enum err durable_open(struct disk *d, const char *path, int *fd, size_t *size_bytes) MUST;
/* Durable, atomic, gathered. The temporary file is path.tmp: one writer per path. ERR_INPUT: `path`
 * exists and is no regular file. ERR_FULL: nothing has changed. */
enum err durable_write(struct disk *d, const char *path, const struct file_part *parts,
                       size_t part_count, unsigned mode) MUST;
/* To a file that is there; durable on return. After an error it may hold any part of it, and must
 * not be appended to again. */
enum err durable_append(struct disk *d, const char *path, const void *data, size_t n) MUST;
/* Like mkdir -p. What is there already was synced at the start (durable_found) or when it was
 * made. */
enum err durable_mkdirs(struct disk *d, const char *path) MUST;
enum err durable_make_parent(struct disk *d, const char *path) MUST; /* the directory of a file */
/* Of a file that has been renamed: the directory. Any error is final. */
enum err durable_sync_parent(struct disk *d, const char *path, enum disk_why why) MUST;
/* Every directory from `path` down: what a process made and was killed before it had synced. */
enum err durable_found(struct disk *d, const char *path) MUST;
/* Not durable: what is removed is needed no more. A missing tree is no error; a link is removed,
 * not followed. */
enum err durable_remove_tree(struct disk *d, const char *path) MUST;
/* The same, durable: it does not come back with a power loss. */
enum err durable_forget_tree(struct disk *d, const char *path) MUST;
/* Names in a directory, sorted, without temporaries. */
enum err durable_list(struct disk *d, const char *path, struct arena *a, char ***names,
                      size_t *count) MUST;
/* A file that arrives in pieces: open reserves `total` bytes (ERR_FULL) and says how many are there
 * from before; what is longer is none of it. close: fsyncs and renames to `final`, durable; final
 * NULL: just closes. After an error of a final close the file is gone. */
enum err durable_part_open(struct disk *d, const char *path, uint64_t total, int *fd,
                           uint64_t *have) MUST;
enum err durable_part_close(struct disk *d, int fd, const char *path, const char *final) MUST;

#endif
