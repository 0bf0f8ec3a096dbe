/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DISK_H
#define DISK_H
/* The calls of the operating system that make files durable (durable.h): the real ones
 * (disk_posix.c), and simulated ones that keep page cache and medium apart (tests/sim/disk_sim.h).
 * Results are those of the calls: 0, a descriptor or a count, or -1 with errno; nothing is retried
 * and nothing is added here.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Why a file or a directory is synced: one value for each place in durable.c that does so. A test
 * leaves one of them out. */
enum disk_why {
    DISK_CONTENTS, /* a whole file, before it is renamed to its name */
    DISK_RENAMED,  /* the directory, after that */
    DISK_APPENDED, /* a file that has grown */
    DISK_PART,     /* a file that arrived in pieces, before it is renamed */
    DISK_ARRIVED,  /* the directory, after that */
    DISK_MADE,     /* the directory that a new directory was made in */
    DISK_FOUND,    /* a directory that was found at the start */
    DISK_FORGOTTEN /* the directory that a file or a tree was removed from, for good */
};
enum disk_kind { DISK_MISSING, DISK_FILE, DISK_DIRECTORY, DISK_OTHER };

struct disk;
typedef int disk_see(void *self, const char *name); /* not 0: no more */
struct disk_ops {
    int (*open)(struct disk *d, const char *path, int flags,
                unsigned mode); /* O_CLOEXEC is added */
    int (*close)(struct disk *d, int fd);
    int (*length)(struct disk *d, int fd, uint64_t *bytes);
    /* Drops what the page cache holds of the file and has written, so that the next read comes from
     * the medium. Best effort: a page that is mapped, or a file system without this, stays. */
    void (*uncache)(struct disk *d, int fd);
    ssize_t (*read)(struct disk *d, int fd, void *to, size_t n, uint64_t at);
    ssize_t (*write)(struct disk *d, int fd, const void *from, size_t n, uint64_t at);
    int (*reserve)(struct disk *d, int fd, uint64_t bytes); /* blocks, without the length */
    int (*truncate)(struct disk *d, int fd, uint64_t bytes);
    int (*sync)(struct disk *d, int fd, enum disk_why why);
    bool (*regular)(struct disk *d, int fd);                  /* a regular file? */
    enum disk_kind (*kind)(struct disk *d, const char *path); /* a link is OTHER */
    bool (*is_directory)(struct disk *d, const char *path);   /* a link to one is one */
    int (*rename)(struct disk *d, const char *from, const char *to);
    int (*unlink)(struct disk *d, const char *path);
    int (*mkdir)(struct disk *d, const char *path);
    int (*rmdir)(struct disk *d, const char *path);
    int (*list)(struct disk *d, const char *path, disk_see *see, void *self); /* no . and .. */
    int (*room)(struct disk *d, const char *path, uint64_t *free_bytes);
};
struct disk { /* implementations embed it first */
    const struct disk_ops *ops;
};

struct disk *disk_posix(void); /* the machine's; any thread */

#endif
