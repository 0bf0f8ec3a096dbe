/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DISK_SIM_H
#define DISK_SIM_H
/* A simulated disk below the file functions (kernels/base/disk.h): what processes see, the page
 * cache, and what lies on the medium are kept apart, for the contents of files, sector by sector,
 * and for the entries of directories. fsync brings one to the other. From there on:
 *
 *   kill        the page cache stays, open files are closed
 *   power loss  what was not synced is lost in part: any subset of the sectors and of the lengths,
 *               any subset of the changes of directories (a rename is one change)
 *   EIO, ENOSPC at fsync: the sectors that were dirty are marked clean, some of them without having
 *               reached the medium; some of those vanish from the cache at once, others stay there
 *               until power is lost. The next fsync succeeds. Directories stay dirty: metadata is
 *               in the file system's journal
 *
 * A file's fsync does not cover its name. Faults strike by chance, or at the n-th operation of the
 * process. One thread.
 */
#include "kernels/base/disk.h"
#include "outer/sim/clock_sim.h"

/* At one operation. */
#define DISK_FAULTS(X)                                                                             \
    X(CRASH, "kill")                                                                               \
    X(POWER, "power loss")                                                                         \
    X(EIO, "EIO once")                                                                             \
    X(BROKEN, "EIO for ever")                                                                      \
    X(ENOSPC, "ENOSPC once")                                                                       \
    X(FULL, "ENOSPC for ever")                                                                     \
    X(SHORT, "short count")
enum disk_fault {
    DISK_NO_FAULT,
#define X(name, text) DISK_FAULT_##name,
    DISK_FAULTS(X)
#undef X
        DISK_FAULT_COUNT
};

struct disk_faults { /* chances per changing operation */
    double crash, eio, slow;
    double rot; /* at a restart: of a file that can be had again a bit flips, or it is gone or
                   cannot be read */
    uint64_t full_from_ms, full_until_ms; /* no space */
    double keys_full, power;              /* sim_leaning.full, .power */
};
struct disk_plan { /* the fault of one operation, counted from 1 over all processes of the disk */
    uint64_t at;   /* 0: none */
    enum disk_fault fault;
    bool applied;     /* it struck an operation that it can strike */
    uint64_t then_at; /* of the operations after the restart that follows, from 1 on; 0: none */
    enum disk_fault then;
};
struct disk_inode;
struct disk_sim {
    struct disk disk; /* first */
    struct clock_sim *clock;
    const char *name;
    const struct disk_faults *faults; /* NULL: none */
    struct disk_plan plan;
    bool gives_way;   /* operations may take time */
    bool dead;        /* the process: nothing has an effect any more */
    bool power;       /* it died with the power */
    bool broken;      /* every operation fails */
    bool full;        /* every operation that takes space fails */
    uint64_t ends_at; /* at this operation, or the next one that is no read, the power goes; 0 */
    uint64_t operations, failed; /* failed: with an error, the process living on */
    void (*died)(void *self);    /* right after `dead` is set */
    void *died_self;
    struct disk_inode *root;
    struct disk_inode **files; /* [opened]; NULL: closed */
    size_t opened;
};

/* Empty, but for the directory `root`. */
void disk_sim_open(struct disk_sim *d, struct clock_sim *c, const char *name, const char *root);
void disk_sim_close(struct disk_sim *d); /* the disk goes */
void disk_sim_copy(struct disk_sim *to,
                   const struct disk_sim *from); /* all files; no process has `to` */
/* The process has ended. power: what was not synced is lost in part. */
void disk_sim_restart(struct disk_sim *d, bool power);
/* Paths as in the operations. A file's bytes as processes see them, or as the medium has them;
 * NULL: no such file. Borrowed until it changes. */
const uint8_t *disk_sim_look(const struct disk_sim *d, const char *path, size_t *size_bytes);
const uint8_t *disk_sim_medium(const struct disk_sim *d, const char *path, size_t *size_bytes);
/* Which file has this name? Never used twice; 0: none. */
uint64_t disk_sim_inode(const struct disk_sim *d, const char *path);
/* All files, in no order. */
typedef void disk_sim_see(void *self, const char *path);
void disk_sim_each(const struct disk_sim *d, disk_sim_see *see, void *self);

/* What rots, on the medium and in the cache. */
void disk_sim_flip(struct disk_sim *d, const char *path, uint64_t bit);
void disk_sim_lose(struct disk_sim *d, const char *path);
void disk_sim_spoil(struct disk_sim *d, const char *path); /* cannot be read until it is replaced */

#endif
