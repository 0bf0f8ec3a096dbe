/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/disk_sim.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/err.h"
#include "outer/protocol/mutant.h"

enum { SECTOR_BYTES = 512, SLOW_MS = 500, REMOVAL_OPERATIONS = 40 };

/* Looking up paths was a tenth of a run: most other names differ in length or tag. */
struct entry {
    char *name;
    size_t length;
    uint64_t tag; /* of the name */
    struct disk_inode *inode;
};
struct entries {
    struct entry *e;
    size_t count, room;
};
struct change { /* of a directory, not yet synced. from: a rename's; inode NULL: removed */
    char *from, *to;
    struct disk_inode *inode;
};
struct disk_inode {
    uint64_t number;
    unsigned refs; /* entries, changes, open files */
    bool directory;
    /* file: what processes see; and the medium's, where it is another: NULL while it is zeros,
     * as that of a file which was never synced */
    uint8_t *cache, *medium;
    size_t size, room, medium_size;
    uint8_t *dirty; /* [sectors of room]; not 0: written since the last sync */
    bool apart;     /* medium and medium_size count */
    bool unreadable;
    /* directory */
    struct entries now, durable;
    struct change *changes;
    size_t change_count, change_room;
};

static void *sure(void *p)
{
    ASSERT(p);
    return p;
}

static char *copy_of(const char *s, size_t n)
{
    char *to = sure(malloc(n + 1));
    memcpy(to, s, n);
    to[n] = 0;
    return to;
}

/* ---- inodes ---- */

static struct disk_inode *inode_make(bool directory)
{
    static uint64_t made;
    struct disk_inode *i = sure(calloc(1, sizeof *i));
    i->number = ++made;
    i->directory = directory;
    i->apart = !directory;
    return i;
}

static struct disk_inode *inode_ref(struct disk_inode *i)
{
    i->refs++;
    return i;
}

static void entries_clear(struct entries *s);
static void changes_clear(struct disk_inode *i);

static void inode_unref(struct disk_inode *i)
{
    if (!i || --i->refs)
        return;
    entries_clear(&i->now);
    entries_clear(&i->durable);
    changes_clear(i);
    free(i->changes);
    free(i->cache);
    free(i->medium);
    free(i->dirty);
    free(i);
}

/* ---- directories ---- */

/* A name's first four bytes and its last four: all of one that is no longer than eight. */
static uint64_t tag_of(const char *name, size_t n)
{
    uint32_t first = 0, last = 0;
    if (n >= sizeof first) {
        memcpy(&first, name, sizeof first);
        memcpy(&last, name + n - sizeof last, sizeof last);
    } else {
        for (size_t k = 0; k < n; k++)
            first = first << 8 | (uint8_t)name[k];
    }
    return (uint64_t)first << 32 | last;
}

static struct entry *entry_find(const struct entries *s, const char *name, size_t n)
{
    uint64_t tag = tag_of(name, n);
    for (size_t k = 0; k < s->count; k++)
        if (s->e[k].tag == tag && s->e[k].length == n &&
            (n <= sizeof tag || !memcmp(s->e[k].name, name, n)))
            return &s->e[k];
    return NULL;
}

static void entry_drop(struct entries *s, struct entry *e)
{
    struct disk_inode *i = e->inode;
    free(e->name);
    *e = s->e[--s->count];
    inode_unref(i);
}

static void entries_clear(struct entries *s)
{
    while (s->count)
        entry_drop(s, &s->e[s->count - 1]);
    free(s->e);
    *s = (struct entries){0};
}

static void entry_put(struct entries *s, const char *name, struct disk_inode *i)
{
    size_t length = strlen(name);
    struct entry *e = entry_find(s, name, length);
    inode_ref(i);
    if (e) {
        inode_unref(e->inode);
        e->inode = i;
        return;
    }
    if (s->count == s->room) {
        s->room = s->room ? 2 * s->room : 4;
        s->e = sure(realloc(s->e, s->room * sizeof *s->e));
    }
    s->e[s->count++] = (struct entry){copy_of(name, length), length, tag_of(name, length), i};
}

static void change_apply(struct entries *s, const struct change *c)
{
    struct entry *from = c->from ? entry_find(s, c->from, strlen(c->from)) : NULL;
    struct entry *to = c->inode ? NULL : entry_find(s, c->to, strlen(c->to));
    if (from && from->inode == c->inode)
        entry_drop(s, from);
    if (c->inode)
        entry_put(s, c->to, c->inode);
    else if (to)
        entry_drop(s, to);
}

static void changes_clear(struct disk_inode *i)
{
    for (size_t k = 0; k < i->change_count; k++) {
        free(i->changes[k].from);
        free(i->changes[k].to);
        inode_unref(i->changes[k].inode);
    }
    i->change_count = 0;
}

/* In what processes see at once; on the medium with the directory's next sync. */
static void change_make(struct disk_inode *dir, const char *from, const char *to,
                        struct disk_inode *i)
{
    if (dir->change_count == dir->change_room) {
        dir->change_room = dir->change_room ? 2 * dir->change_room : 4;
        dir->changes = sure(realloc(dir->changes, dir->change_room * sizeof *dir->changes));
    }
    struct change *c = &dir->changes[dir->change_count++];
    *c = (struct change){from ? copy_of(from, strlen(from)) : NULL, copy_of(to, strlen(to)),
                         i ? inode_ref(i) : NULL};
    change_apply(&dir->now, c);
}

static void directory_sync(struct disk_inode *dir)
{
    for (size_t k = 0; k < dir->change_count; k++)
        change_apply(&dir->durable, &dir->changes[k]);
    changes_clear(dir);
}

/* ---- files ---- */

static size_t sectors(size_t bytes)
{
    return (bytes + SECTOR_BYTES - 1) / SECTOR_BYTES;
}

static void file_room(struct disk_inode *f, size_t size)
{
    if (size <= f->room)
        return;
    size_t room = size < 2 * f->room ? 2 * f->room : sectors(size) * SECTOR_BYTES;
    f->cache = sure(realloc(f->cache, room));
    f->medium = f->medium ? sure(realloc(f->medium, room)) : NULL;
    f->dirty = sure(realloc(f->dirty, sectors(room)));
    memset(f->cache + f->room, 0, room - f->room);
    if (f->medium)
        memset(f->medium + f->room, 0, room - f->room);
    memset(f->dirty + sectors(f->room), 0, sectors(room) - sectors(f->room));
    f->room = room;
}

/* Before a change: the medium keeps what it has. */
static void file_part(struct disk_inode *f)
{
    if (f->apart)
        return;
    f->medium = sure(malloc(f->room + 1));
    if (f->room) { /* an empty file has no cache yet */
        memcpy(f->medium, f->cache, f->room);
        memset(f->dirty, 0, sectors(f->room));
    }
    f->medium_size = f->size;
    f->apart = true;
}

/* Before the medium is read or written. */
static void medium_make(struct disk_inode *f)
{
    if (f->apart && !f->medium)
        f->medium = sure(calloc(1, f->room + 1));
}

static void file_join(struct disk_inode *f)
{
    free(f->medium);
    f->medium = NULL;
    f->apart = false;
}

static void file_put(struct disk_inode *f, const void *data, size_t n, uint64_t at)
{
    if (!n)
        return;
    file_part(f);
    file_room(f, at + n);
    memcpy(f->cache + at, data, n);
    for (size_t k = at / SECTOR_BYTES; k < sectors(at + n); k++)
        f->dirty[k] = 1;
    f->size = at + n > f->size ? at + n : f->size;
}

static void file_cut(struct disk_inode *f, size_t size)
{
    file_part(f);
    if (size < f->size)
        memset(f->cache + size, 0, f->size - size);
    file_room(f, size);
    f->size = size;
}

static void sector_copy(uint8_t *to, const uint8_t *from, size_t k)
{
    memcpy(to + k * SECTOR_BYTES, from + k * SECTOR_BYTES, SECTOR_BYTES);
}

static void file_sync(struct disk_inode *f)
{
    if (!f->apart)
        return;
    if (!f->medium) { /* what is not dirty is zeros here, too */
        if (f->room)
            memset(f->dirty, 0, sectors(f->room));
        f->medium_size = f->size;
        file_join(f);
        return;
    }
    for (size_t k = 0; k < sectors(f->room); k++)
        if (f->dirty[k]) {
            sector_copy(f->medium, f->cache, k);
            f->dirty[k] = 0;
        }
    f->medium_size = f->size;
    if (!f->size || !memcmp(f->medium, f->cache, f->size)) /* else an earlier sync has failed */
        file_join(f);
}

/* All is marked clean, what has reached the medium and what has not. */
static void file_sync_fails(struct disk_sim *d, struct disk_inode *f)
{
    bool vanishes = sim_chance(d->clock, 0.5);
    if (!f->apart)
        return;
    medium_make(f);
    if (sim_chance(d->clock, 0.5))
        f->medium_size = f->size;
    for (size_t k = 0; k < sectors(f->room); k++) {
        if (!f->dirty[k])
            continue;
        f->dirty[k] = 0;
        if (sim_chance(d->clock, 0.5))
            sector_copy(f->medium, f->cache, k);
        else if (vanishes)
            sector_copy(f->cache, f->medium, k);
    }
}

static void file_power(struct disk_sim *d, struct disk_inode *f)
{
    if (!f->apart)
        return;
    medium_make(f);
    double part = (double)sim_below(d->clock, 3) / 2;
    for (size_t k = 0; k < sectors(f->room); k++)
        if (f->dirty[k] && sim_chance(d->clock, part))
            sector_copy(f->medium, f->cache, k);
    if (sim_chance(d->clock, part))
        f->medium_size = f->size;
    else if (f->size > f->medium_size)
        f->medium_size += sim_below(d->clock, f->size - f->medium_size + 1);
    if (f->medium_size < f->room)
        memset(f->medium + f->medium_size, 0, f->room - f->medium_size);
    f->size = f->medium_size;
    if (f->room)
        memcpy(f->cache, f->medium, f->room);
    file_join(f);
}

static void directory_power(struct disk_sim *d, struct disk_inode *dir)
{
    double part = (double)sim_below(d->clock, 3) / 2;
    for (size_t k = 0; k < dir->change_count; k++)
        if (sim_chance(d->clock, part))
            change_apply(&dir->durable, &dir->changes[k]);
    changes_clear(dir);
    struct entries kept = {0};
    for (size_t k = 0; k < dir->durable.count; k++)
        entry_put(&kept, dir->durable.e[k].name, dir->durable.e[k].inode);
    entries_clear(&dir->now);
    dir->now = kept;
    for (size_t k = 0; k < dir->now.count; k++) {
        struct disk_inode *i = dir->now.e[k].inode;
        if (i->directory)
            directory_power(d, i);
        else
            file_power(d, i);
    }
}

/* ---- paths ---- */

struct place {
    struct disk_inode *dir; /* NULL: no such directory */
    const char *name;
    struct disk_inode *inode; /* NULL: no such entry */
};

static struct place place_of(const struct disk_sim *d, const char *path, bool medium)
{
    struct place p = {.dir = d->root, .inode = d->root};
    for (;;) {
        size_t n = 0;
        while (path[n] && path[n] != '/')
            n++;
        p.dir = p.inode && p.inode->directory ? p.inode : NULL;
        p.name = path;
        if (!p.dir)
            return (struct place){0};
        const struct entry *e = entry_find(medium ? &p.dir->durable : &p.dir->now, path, n);
        p.inode = e ? e->inode : NULL;
        if (!path[n])
            return p;
        path += n + 1;
    }
}

/* ---- faults ---- */

/* Operations that a fault can meet in one way or another. */
enum kind { KIND_READ, KIND_WRITE, KIND_SYNC, KIND_ENTRY, KIND_REMOVE, KIND_RESERVE };

static bool fault_fits(enum disk_fault fault, enum kind kind)
{
    bool space = kind != KIND_READ && kind != KIND_REMOVE;
    switch (fault) {
    case DISK_NO_FAULT:
    case DISK_FAULT_COUNT:
        return false;
    case DISK_FAULT_ENOSPC:
    case DISK_FAULT_FULL:
        return space;
    case DISK_FAULT_SHORT:
        return kind == KIND_READ || kind == KIND_WRITE;
    case DISK_FAULT_CRASH:
    case DISK_FAULT_POWER:
    case DISK_FAULT_EIO:
    case DISK_FAULT_BROKEN:
        return true;
    }
    return false;
}

static enum disk_fault fault_planned(struct disk_sim *d, enum kind kind)
{
    if (d->operations != d->plan.at || !fault_fits(d->plan.fault, kind))
        return DISK_NO_FAULT;
    d->plan.applied = true;
    return d->plan.fault;
}

static enum disk_fault fault_drawn(struct disk_sim *d, enum kind kind)
{
    const struct disk_faults *f = d->faults;
    if (!f || kind == KIND_READ)
        return DISK_NO_FAULT;
    if (d->ends_at && d->operations >= d->ends_at) {
        d->ends_at = 0;
        return DISK_FAULT_POWER;
    }
    if (sim_strikes(d->clock, f->crash, "the process ends at a storage operation", d->name))
        return sim_chance(d->clock, 0.5) ? DISK_FAULT_CRASH : DISK_FAULT_POWER;
    if (sim_strikes(d->clock, f->eio, "EIO", d->name))
        return DISK_FAULT_EIO;
    uint64_t now = d->clock->now_ms;
    if (now >= f->full_from_ms && now < f->full_until_ms &&
        (kind == KIND_SYNC ? sim_chance(d->clock, 0.3) : fault_fits(DISK_FAULT_ENOSPC, kind)))
        return DISK_FAULT_ENOSPC;
    return DISK_NO_FAULT;
}

/* What an operation meets. half: of its effect some part takes place, as the fault allows. */
struct fate {
    int failed; /* errno; 0: it succeeds */
    bool cut;   /* short count */
    bool half;
};

static struct fate meet(struct disk_sim *d, enum kind kind)
{
    if (!d->dead && d->gives_way && d->faults && kind != KIND_READ &&
        sim_strikes(d->clock, d->faults->slow, "a slow storage operation", d->name))
        sim_sleep(d->clock, d->clock->now_ms + sim_below(d->clock, SLOW_MS), NULL);
    if (d->dead)
        return (struct fate){.failed = ESHUTDOWN};
    d->operations++;
    enum disk_fault fault = d->broken ? DISK_FAULT_BROKEN : fault_planned(d, kind);
    if (fault == DISK_NO_FAULT && d->full && fault_fits(DISK_FAULT_FULL, kind))
        fault = DISK_FAULT_FULL;
    if (fault == DISK_NO_FAULT)
        fault = fault_drawn(d, kind);
    d->failed += fault == DISK_FAULT_BROKEN || fault == DISK_FAULT_EIO ||
                 fault == DISK_FAULT_FULL || fault == DISK_FAULT_ENOSPC;
    switch (fault) {
    case DISK_FAULT_CRASH:
    case DISK_FAULT_POWER:
        d->dead = true;
        d->power = fault == DISK_FAULT_POWER;
        d->died(d->died_self);
        return (struct fate){.failed = ESHUTDOWN, .half = sim_chance(d->clock, 0.5)};
    case DISK_FAULT_BROKEN:
        d->broken = true;
        return (struct fate){.failed = EIO};
    case DISK_FAULT_EIO:
        return (struct fate){.failed = EIO, .half = kind == KIND_WRITE};
    case DISK_FAULT_FULL:
        d->full = true;
        return (struct fate){.failed = ENOSPC, .half = kind == KIND_WRITE};
    case DISK_FAULT_ENOSPC:
        return (struct fate){.failed = ENOSPC, .half = kind == KIND_WRITE};
    case DISK_FAULT_SHORT:
        return (struct fate){.cut = true};
    case DISK_NO_FAULT:
    case DISK_FAULT_COUNT:
        break;
    }
    return (struct fate){0};
}

static int ends(const struct fate *f)
{
    errno = f->failed;
    return f->failed ? -1 : 0;
}

static int with(int error)
{
    errno = error;
    return -1;
}

/* ---- the operations ---- */

static struct disk_sim *sim(struct disk *d)
{
    return (struct disk_sim *)d;
}

static struct disk_inode *opened(struct disk_sim *d, int fd)
{
    return fd >= 0 && (size_t)fd < d->opened ? d->files[fd] : NULL;
}

static int descriptor(struct disk_sim *d, struct disk_inode *i)
{
    size_t fd = 0;
    while (fd < d->opened && d->files[fd])
        fd++;
    if (fd == d->opened)
        d->files = sure(realloc(d->files, ++d->opened * sizeof(struct disk_inode *)));
    d->files[fd] = inode_ref(i);
    return (int)fd;
}

static int sim_open(struct disk *disk, const char *path, int flags, unsigned mode)
{
    struct disk_sim *d = sim(disk);
    (void)mode;
    struct place p = place_of(d, path, false);
    bool makes = !p.inode && flags & O_CREAT;
    if (d->dead)
        return with(ESHUTDOWN);
    if (!p.dir || (!p.inode && !makes))
        return with(ENOENT);
    if (p.inode && flags & O_EXCL)
        return with(EEXIST);
    struct fate fate = {0};
    if (makes) {
        fate = meet(d, KIND_ENTRY);
        p = place_of(d, path, false); /* it may have taken time */
        if (p.dir && !p.inode && (!fate.failed || fate.half))
            change_make(p.dir, NULL, p.name, inode_make(false));
        p = place_of(d, path, false);
        if (!fate.failed && !p.inode)
            return with(ENOENT);
    }
    return fate.failed ? ends(&fate) : descriptor(d, p.inode);
}

static int sim_close(struct disk *disk, int fd)
{
    struct disk_sim *d = sim(disk);
    struct disk_inode *i = opened(d, fd);
    if (!i)
        return with(EBADF);
    d->files[fd] = NULL;
    inode_unref(i);
    return 0;
}

static int sim_length(struct disk *disk, int fd, uint64_t *bytes)
{
    const struct disk_inode *i = opened(sim(disk), fd);
    if (!i || sim(disk)->dead)
        return with(EBADF);
    *bytes = i->size;
    return 0;
}

/* Clean sectors come from the medium again: also those whose fsync failed before they reached it.
 */
static void sim_uncache(struct disk *disk, int fd)
{
    struct disk_inode *f = opened(sim(disk), fd);
    if (f)
        medium_make(f);
    for (size_t k = 0; f && f->apart && k < sectors(f->room); k++)
        if (!f->dirty[k])
            sector_copy(f->cache, f->medium, k);
}

static ssize_t sim_read(struct disk *disk, int fd, void *to, size_t n, uint64_t at)
{
    struct disk_sim *d = sim(disk);
    struct fate fate = meet(d, KIND_READ);
    const struct disk_inode *f = opened(d, fd);
    if (fate.failed)
        return ends(&fate);
    if (!f)
        return with(EBADF);
    if (f->unreadable)
        return with(EIO);
    size_t left = at < f->size ? f->size - (size_t)at : 0;
    n = n < left ? n : left;
    n = fate.cut && n > 1 ? 1 + sim_below(d->clock, n - 1) : n;
    if (n)
        memcpy(to, f->cache + at, n);
    return (ssize_t)n;
}

static ssize_t sim_write(struct disk *disk, int fd, const void *from, size_t n, uint64_t at)
{
    struct disk_sim *d = sim(disk);
    struct fate fate = meet(d, KIND_WRITE);
    struct disk_inode *f = opened(d, fd);
    if (!f)
        return with(fate.failed ? fate.failed : EBADF);
    if (fate.cut && n > 1)
        n = 1 + sim_below(d->clock, n - 1);
    if (fate.half)
        file_put(f, from, sim_below(d->clock, n + 1), at);
    if (fate.failed)
        return ends(&fate);
    file_put(f, from, n, at);
    return (ssize_t)n;
}

static int sim_reserve(struct disk *disk, int fd, uint64_t bytes)
{
    struct fate fate = meet(sim(disk), KIND_RESERVE);
    (void)fd, (void)bytes;
    return ends(&fate);
}

static int sim_truncate(struct disk *disk, int fd, uint64_t bytes)
{
    struct fate fate = meet(sim(disk), KIND_REMOVE);
    struct disk_inode *f = opened(sim(disk), fd);
    if (f && (!fate.failed || fate.half))
        file_cut(f, (size_t)bytes);
    return ends(&fate);
}

/* A mutant: the call that would sync for this reason is not there. */
static bool left_out(enum disk_why why)
{
    return (MUTANT(UNSYNCED_CONTENTS) && why == DISK_CONTENTS) ||
           (MUTANT(UNSYNCED_RENAMED) && why == DISK_RENAMED) ||
           (MUTANT(UNSYNCED_APPENDED) && why == DISK_APPENDED) ||
           (MUTANT(UNSYNCED_PART) && why == DISK_PART) ||
           (MUTANT(UNSYNCED_ARRIVED) && why == DISK_ARRIVED) ||
           (MUTANT(UNSYNCED_MADE) && why == DISK_MADE) ||
           (MUTANT(UNSYNCED_FOUND) && why == DISK_FOUND) ||
           (MUTANT(UNSYNCED_FORGOTTEN) && why == DISK_FORGOTTEN);
}

static int sync_meet(struct disk_sim *d, int fd, enum disk_why why)
{
    if (left_out(why))
        return 0;
    struct fate fate = meet(d, KIND_SYNC);
    struct disk_inode *i = opened(d, fd);
    if (!i)
        return with(fate.failed ? fate.failed : EBADF);
    bool reaches = !fate.failed || fate.half;
    if (i->directory && reaches)
        directory_sync(i);
    else if (reaches)
        file_sync(i);
    else if (!i->directory && fate.failed != ESHUTDOWN)
        file_sync_fails(d, i);
    return ends(&fate);
}

static int sim_sync(struct disk *disk, int fd, enum disk_why why)
{
    struct disk_sim *d = sim(disk);
    int result = sync_meet(d, fd, why);
    bool leans = why == DISK_FORGOTTEN && d->faults && d->faults->power > 0;
    if (leans && !d->dead &&
        sim_strikes(d->clock, d->faults->power, "the power goes after a removal", d->name))
        d->ends_at = d->operations + 1 + sim_below(d->clock, REMOVAL_OPERATIONS);
    return result;
}

static bool sim_regular(struct disk *disk, int fd)
{
    const struct disk_inode *i = opened(sim(disk), fd);
    return i && !i->directory;
}

static enum disk_kind sim_kind(struct disk *disk, const char *path)
{
    const struct disk_inode *i = sim(disk)->dead ? NULL : place_of(sim(disk), path, false).inode;
    return !i ? DISK_MISSING : i->directory ? DISK_DIRECTORY : DISK_FILE;
}

static bool sim_is_directory(struct disk *disk, const char *path)
{
    return sim_kind(disk, path) == DISK_DIRECTORY;
}

static int sim_rename(struct disk *disk, const char *from, const char *to)
{
    struct disk_sim *d = sim(disk);
    struct fate fate = meet(d, KIND_ENTRY);
    struct place a = place_of(d, from, false), b = place_of(d, to, false);
    if (fate.failed && !fate.half)
        return ends(&fate);
    if (!a.inode || !b.dir)
        return with(ENOENT);
    const char *name = a.name; /* the end of `from`, which change_make copies */
    if (a.dir == b.dir) {
        change_make(a.dir, name, b.name, a.inode);
        return ends(&fate);
    }
    /* One transaction of a file system with a journal: a power loss may leave both names, and never
     * neither. So the new name is durable before the old one is gone. */
    change_make(b.dir, NULL, b.name, a.inode);
    directory_sync(b.dir);
    change_make(a.dir, NULL, name, NULL);
    return ends(&fate);
}

static int entry_remove(struct disk *disk, const char *path, bool directory)
{
    struct disk_sim *d = sim(disk);
    struct place p = place_of(d, path, false);
    if (d->dead)
        return with(ESHUTDOWN);
    if (!p.inode)
        return with(ENOENT);
    if (p.inode->directory != directory)
        return with(directory ? ENOTDIR : EISDIR);
    if (directory && p.inode->now.count)
        return with(ENOTEMPTY);
    struct fate fate = meet(d, KIND_REMOVE);
    p = place_of(d, path, false);
    if (p.inode && (!fate.failed || fate.half))
        change_make(p.dir, NULL, p.name, NULL);
    return ends(&fate);
}

static int sim_unlink(struct disk *disk, const char *path)
{
    return entry_remove(disk, path, false);
}

static int sim_rmdir(struct disk *disk, const char *path)
{
    return entry_remove(disk, path, true);
}

static int sim_mkdir(struct disk *disk, const char *path)
{
    struct disk_sim *d = sim(disk);
    struct place p = place_of(d, path, false);
    if (d->dead)
        return with(ESHUTDOWN);
    if (!p.dir)
        return with(ENOENT);
    if (p.inode)
        return with(EEXIST);
    struct fate fate = meet(d, KIND_ENTRY);
    p = place_of(d, path, false);
    if (p.dir && !p.inode && (!fate.failed || fate.half))
        change_make(p.dir, NULL, p.name, inode_make(true));
    return ends(&fate);
}

static int sim_list(struct disk *disk, const char *path, disk_see *see, void *self)
{
    struct disk_sim *d = sim(disk);
    const struct disk_inode *i = place_of(d, path, false).inode;
    if (d->dead)
        return with(ESHUTDOWN);
    if (!i || !i->directory)
        return with(ENOENT);
    for (size_t k = 0; k < i->now.count; k++)
        if (see(self, i->now.e[k].name) != 0)
            break;
    return 0;
}

static int sim_room(struct disk *disk, const char *path, uint64_t *free_bytes)
{
    (void)disk, (void)path;
    *free_bytes = UINT64_MAX;
    return 0;
}

static const struct disk_ops ops = {
    .open = sim_open,
    .close = sim_close,
    .length = sim_length,
    .uncache = sim_uncache,
    .read = sim_read,
    .write = sim_write,
    .reserve = sim_reserve,
    .truncate = sim_truncate,
    .sync = sim_sync,
    .regular = sim_regular,
    .kind = sim_kind,
    .is_directory = sim_is_directory,
    .rename = sim_rename,
    .unlink = sim_unlink,
    .mkdir = sim_mkdir,
    .rmdir = sim_rmdir,
    .list = sim_list,
    .room = sim_room,
};

/* ---- copies ---- */

/* As `cp -a` finds it, while no process writes: what processes see, all of it on the new medium. */
static struct disk_inode *inode_copy(const struct disk_inode *from)
{
    struct disk_inode *i = inode_make(from->directory);
    for (size_t k = 0; k < from->now.count; k++) {
        struct disk_inode *child = inode_copy(from->now.e[k].inode);
        entry_put(&i->now, from->now.e[k].name, child);
        entry_put(&i->durable, from->now.e[k].name, child);
    }
    if (from->directory)
        return i;
    file_put(i, from->cache, from->size, 0);
    file_sync(i);
    i->unreadable = from->unreadable;
    return i;
}

void disk_sim_copy(struct disk_sim *to, const struct disk_sim *from)
{
    ASSERT(!to->opened);
    inode_unref(to->root);
    to->root = inode_ref(inode_copy(from->root));
}

/* ---- from outside ---- */

static void nobody(void *self)
{
    (void)self;
}

void disk_sim_open(struct disk_sim *d, struct clock_sim *c, const char *name, const char *root)
{
    *d = (struct disk_sim){.disk = {&ops}, .clock = c, .name = name, .died = nobody};
    d->root = inode_ref(inode_make(true));
    change_make(d->root, NULL, root, inode_make(true));
    directory_sync(d->root);
}

static void files_close(struct disk_sim *d)
{
    for (size_t fd = 0; fd < d->opened; fd++)
        inode_unref(d->files[fd]);
    free(d->files);
    d->files = NULL;
    d->opened = 0;
}

void disk_sim_close(struct disk_sim *d)
{
    files_close(d);
    inode_unref(d->root);
    d->root = NULL;
}

void disk_sim_restart(struct disk_sim *d, bool power)
{
    files_close(d);
    if (power)
        directory_power(d, d->root);
    d->dead = d->power = false;
    if (d->plan.applied && d->plan.then_at)
        d->plan = (struct disk_plan){.at = d->operations + d->plan.then_at, .fault = d->plan.then};
}

const uint8_t *disk_sim_look(const struct disk_sim *d, const char *path, size_t *size_bytes)
{
    static const uint8_t empty;
    const struct disk_inode *f = place_of(d, path, false).inode;
    *size_bytes = f ? f->size : 0;
    return !f ? NULL : f->cache ? f->cache : &empty;
}

const uint8_t *disk_sim_medium(const struct disk_sim *d, const char *path, size_t *size_bytes)
{
    static const uint8_t empty;
    struct disk_inode *f = place_of(d, path, true).inode;
    if (f)
        medium_make(f);
    const uint8_t *data = !f ? NULL : f->apart ? f->medium : f->cache;
    *size_bytes = !f ? 0 : f->apart ? f->medium_size : f->size;
    return !f ? NULL : data ? data : &empty;
}

uint64_t disk_sim_inode(const struct disk_sim *d, const char *path)
{
    const struct disk_inode *i = place_of(d, path, false).inode;
    return i ? i->number : 0;
}

static void each(const struct disk_inode *dir, char *path, size_t at, disk_sim_see *see, void *self)
{
    for (size_t k = 0; k < dir->now.count; k++) {
        const struct entry *e = &dir->now.e[k];
        size_t n = at + (size_t)snprintf(path + at, PATH_MAX - at, "%s%s", at ? "/" : "", e->name);
        ASSERT(n < PATH_MAX);
        if (e->inode->directory)
            each(e->inode, path, n, see, self);
        else
            see(self, path);
        path[at] = 0;
    }
}

void disk_sim_each(const struct disk_sim *d, disk_sim_see *see, void *self)
{
    char path[PATH_MAX] = "";
    each(d->root, path, 0, see, self);
}

void disk_sim_flip(struct disk_sim *d, const char *path, uint64_t bit)
{
    struct disk_inode *f = place_of(d, path, false).inode;
    ASSERT(f && bit / 8 < f->size);
    f->cache[bit / 8] ^= (uint8_t)(1u << bit % 8);
    medium_make(f);
    if (f->apart && bit / 8 < f->medium_size)
        f->medium[bit / 8] ^= (uint8_t)(1u << bit % 8);
}

void disk_sim_lose(struct disk_sim *d, const char *path)
{
    struct place p = place_of(d, path, false);
    ASSERT(p.inode);
    change_make(p.dir, NULL, p.name, NULL);
    directory_sync(p.dir);
}

void disk_sim_spoil(struct disk_sim *d, const char *path)
{
    struct disk_inode *f = place_of(d, path, false).inode;
    ASSERT(f);
    f->unreadable = true;
}
