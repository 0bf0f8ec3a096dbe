/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/base/durable.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum err durable_failed(const char *what, const char *path, enum err missing_is)
{
    int e = errno;
    enum err kind = ERR_IO;
    if (e == EFBIG)
        return err_set(ERR_FULL,
                       "%s: cannot %s: the file would be larger than this process may make it "
                       "(ulimit -f), or than its file system can hold",
                       path, what);
    if (e == ENOSPC || e == EDQUOT)
        kind = ERR_FULL;
    else if (e == ENOENT || e == EACCES || e == EPERM || e == ENOTDIR || e == EISDIR ||
             e == ENAMETOOLONG)
        kind = missing_is;
    return err_set(kind, "%s: cannot %s: %s", path, what, strerror(e));
}

/* The directory part of path; "." or "/" when path has none. out has PATH_MAX bytes; path is
 * shorter. */
static void parent_of(char *out, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        strcpy(out, ".");
    else if (slash == path)
        strcpy(out, "/");
    else {
        memcpy(out, path, (size_t)(slash - path));
        out[slash - path] = 0;
    }
}

/* ---- read ---- */

enum err durable_open(struct disk *d, const char *path, int *fd, size_t *size_bytes)
{
    uint64_t bytes;
    *fd = d->ops->open(d, path, O_RDONLY | O_NONBLOCK, 0); /* a pipe without a writer would wait */
    if (*fd < 0)
        return durable_failed("open", path, ERR_INPUT);
    enum err e = ERR_OK;
    if (!d->ops->regular(d, *fd))
        e = err_set(ERR_INPUT, "%s: not a regular file", path);
    else if (d->ops->length(d, *fd, &bytes) != 0)
        e = durable_failed("stat", path, ERR_IO);
    if (e != ERR_OK)
        d->ops->close(d, *fd);
    else
        *size_bytes = (size_t)bytes;
    return e;
}

/* What the disk cannot give back is as damaged as what has another digest; anything else that goes
 * wrong says nothing about the bytes. */
static enum err read_failed(const char *path, uint64_t at)
{
    int e = errno;
    return err_set(e == EIO ? ERR_CORRUPT : ERR_IO, "%s: cannot read from byte %llu on: %s", path,
                   (unsigned long long)at, strerror(e));
}

enum err durable_read_at(struct disk *d, int fd, const char *path, uint8_t *to, size_t n,
                         uint64_t at)
{
    while (n) {
        ssize_t got = d->ops->read(d, fd, to, n, at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return read_failed(path, at);
        if (got == 0)
            return err_set(ERR_IO, "%s: became shorter while it was read", path);
        to += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return ERR_OK;
}

enum err durable_read(struct disk *d, const char *path, size_t max_bytes, struct arena *a,
                      uint8_t **data, size_t *size_bytes)
{
    int fd;
    size_t size;
    TRY(durable_open(d, path, &fd, &size));
    enum err e = ERR_OK;
    uint8_t *to = NULL;
    if (size > max_bytes)
        e = err_set(ERR_INPUT, "%s: %zu bytes, at most %zu expected", path, size, max_bytes);
    else if (!(to = arena_alloc(a, size + 1)))
        e = ERR_MEMORY;
    else
        e = durable_read_at(d, fd, path, to, size, 0);
    d->ops->close(d, fd);
    if (e == ERR_OK) {
        *data = to;
        *size_bytes = size;
    }
    return e;
}

/* ---- write ---- */

enum err durable_write_at(struct disk *d, int fd, const char *path, const void *data, size_t n,
                          uint64_t at)
{
    const uint8_t *from = data;
    while (n) {
        ssize_t put = d->ops->write(d, fd, from, n, at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return durable_failed("write", path, ERR_IO);
        from += put;
        at += (uint64_t)put;
        n -= (size_t)put;
    }
    return ERR_OK;
}

static enum err write_temporary(struct disk *d, const char *temporary,
                                const struct file_part *parts, size_t part_count, unsigned mode)
{
    uint64_t at = 0;
    int fd = d->ops->open(d, temporary, O_WRONLY | O_CREAT | O_EXCL, mode);
    if (fd < 0)
        return durable_failed("create", temporary, ERR_IO);
    enum err e = ERR_OK;
    for (size_t i = 0; e == ERR_OK && i < part_count; at += parts[i++].size_bytes)
        e = durable_write_at(d, fd, temporary, parts[i].data, parts[i].size_bytes, at);
    if (e == ERR_OK && d->ops->sync(d, fd, DISK_CONTENTS) != 0)
        e = durable_failed("sync", temporary, ERR_IO);
    if (d->ops->close(d, fd) != 0 && e == ERR_OK)
        e = durable_failed("close", temporary, ERR_IO);
    return e;
}

static enum err sync_dir(struct disk *d, const char *path, enum disk_why why)
{
    int fd = d->ops->open(d, path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return durable_failed("open", path, ERR_IO);
    enum err e = d->ops->sync(d, fd, why) == 0 ? ERR_OK : durable_failed("sync", path, ERR_IO);
    d->ops->close(d, fd);
    return e;
}

/* The name is already another file's: a disk that is full now is no reason to try again. */
enum err durable_sync_parent(struct disk *d, const char *path, enum disk_why why)
{
    char directory[PATH_MAX];
    parent_of(directory, path);
    enum err e = sync_dir(d, directory, why);
    return e == ERR_FULL ? err_set(ERR_IO, "%s", err_message()) : e;
}

enum err durable_write(struct disk *d, const char *path, const struct file_part *parts,
                       size_t part_count, unsigned mode)
{
    char temporary[PATH_MAX];
    enum disk_kind there = d->ops->kind(d, path);
    if (there != DISK_MISSING && there != DISK_FILE) /* a rename would replace /dev/stdout */
        return err_set(ERR_INPUT, "%s: exists and is not a regular file", path);
    int length = snprintf(temporary, sizeof temporary, "%s%s", path, DURABLE_TEMPORARY);
    if (length >= PATH_MAX)
        return err_set(ERR_IO, "%s: path too long", path);
    if (d->ops->unlink(d, temporary) != 0 && errno != ENOENT)
        return durable_failed("remove", temporary, ERR_IO);
    enum err e = write_temporary(d, temporary, parts, part_count, mode);
    if (e == ERR_OK && d->ops->rename(d, temporary, path) != 0)
        e = durable_failed("rename", temporary, ERR_IO);
    if (e != ERR_OK) {
        d->ops->unlink(d, temporary);
        return e;
    }
    return durable_sync_parent(d, path, DISK_RENAMED);
}

enum err durable_append(struct disk *d, const char *path, const void *data, size_t n)
{
    uint64_t size;
    int fd = d->ops->open(d, path, O_WRONLY, 0);
    if (fd < 0)
        return durable_failed("open", path, ERR_IO);
    enum err e = ERR_OK;
    if (d->ops->length(d, fd, &size) != 0)
        e = durable_failed("stat", path, ERR_IO);
    if (e == ERR_OK)
        e = durable_write_at(d, fd, path, data, n, size);
    if (e == ERR_OK && d->ops->sync(d, fd, DISK_APPENDED) != 0)
        e = durable_failed("sync", path, ERR_IO);
    d->ops->close(d, fd);
    return e;
}

/* ---- directories ---- */

/* Creates one directory unless it exists, and makes its entry durable. One whose entry is not goes
 * again: a later start would take it for durable. */
static enum err make_one(struct disk *d, const char *path)
{
    char parent[PATH_MAX];
    if (d->ops->mkdir(d, path) == 0) {
        parent_of(parent, path);
        enum err e = sync_dir(d, parent, DISK_MADE);
        if (e != ERR_OK && d->ops->rmdir(d, path) != 0)
            e = err_set(ERR_IO, "%s", err_message());
        return e;
    }
    if (errno != EEXIST)
        return durable_failed("create directory", path, ERR_IO);
    if (d->ops->is_directory(d, path))
        return ERR_OK;
    return err_set(ERR_INPUT, "%s: exists and is not a directory", path);
}

enum err durable_mkdirs(struct disk *d, const char *path)
{
    char part[PATH_MAX];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof part)
        return err_set(ERR_IO, "\"%s\": not a usable path", path);
    if (d->ops->kind(d, path) == DISK_DIRECTORY)
        return ERR_OK;
    memcpy(part, path, length + 1);
    while (length > 1 && part[length - 1] == '/')
        part[--length] = 0;
    for (size_t i = 1; i < length; i++)
        if (part[i] == '/' && part[i - 1] != '/') {
            part[i] = 0;
            TRY(make_one(d, part));
            part[i] = '/';
        }
    return strcmp(part, "/") == 0 ? ERR_OK : make_one(d, part);
}

enum err durable_make_parent(struct disk *d, const char *path)
{
    char parent[PATH_MAX];
    if (strlen(path) >= sizeof parent)
        return err_set(ERR_IO, "%s: path too long", path);
    parent_of(parent, path);
    return durable_mkdirs(d, parent);
}

struct names { /* of a directory, in an arena */
    struct arena *arena;
    char **name;
    size_t count, room;
    bool temporaries;
    enum err e;
};

static bool is_temporary(const char *name)
{
    size_t n = strlen(name), suffix = sizeof DURABLE_TEMPORARY - 1;
    return n >= suffix && strcmp(name + n - suffix, DURABLE_TEMPORARY) == 0;
}

static int names_see(void *self, const char *name)
{
    struct names *n = self;
    if (!n->temporaries && is_temporary(name))
        return 0;
    if (n->count == n->room) {
        size_t room = n->room ? 2 * n->room : 32;
        char **more = arena_array(n->arena, room, sizeof *more);
        if (more && n->count)
            memcpy(more, n->name, n->count * sizeof *more);
        n->name = more;
        n->room = more ? room : 0;
    }
    if (!n->name || !(n->name[n->count] = arena_string(n->arena, name, strlen(name)))) {
        n->e = ERR_MEMORY;
        return 1;
    }
    n->count++;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum err names_of(struct disk *d, const char *path, struct names *n, enum err missing_is)
{
    int listed = d->ops->list(d, path, names_see, n);
    TRY(n->e);
    if (listed != 0)
        return durable_failed("list", path, missing_is);
    if (n->count)
        qsort(n->name, n->count, sizeof *n->name, by_name);
    return ERR_OK;
}

enum err durable_list(struct disk *d, const char *path, struct arena *a, char ***names,
                      size_t *count)
{
    struct names n = {.arena = a};
    TRY(names_of(d, path, &n, ERR_INPUT));
    *names = n.name;
    *count = n.count;
    return ERR_OK;
}

/* Does one thing to each entry of a directory. */
static enum err for_each(struct disk *d, const char *path,
                         enum err (*each)(struct disk *d, const char *path))
{
    struct arena scratch = arena_make(0);
    struct names n = {.arena = &scratch, .temporaries = true};
    enum err e = names_of(d, path, &n, ERR_IO);
    for (size_t i = 0; e == ERR_OK && i < n.count; i++) {
        char inside[PATH_MAX];
        if (snprintf(inside, sizeof inside, "%s/%s", path, n.name[i]) >= PATH_MAX)
            e = err_set(ERR_IO, "%s/%s: path too long", path, n.name[i]);
        else
            e = each(d, inside);
    }
    arena_free(&scratch);
    return e;
}

enum err durable_found(struct disk *d, const char *path)
{
    if (d->ops->kind(d, path) != DISK_DIRECTORY)
        return ERR_OK;
    TRY(sync_dir(d, path, DISK_FOUND));
    return for_each(d, path, durable_found);
}

enum err durable_remove_tree(struct disk *d, const char *path)
{
    enum disk_kind kind = d->ops->kind(d, path);
    if (kind == DISK_MISSING)
        return ERR_OK;
    if (kind != DISK_DIRECTORY)
        return d->ops->unlink(d, path) == 0 || errno == ENOENT
                   ? ERR_OK
                   : durable_failed("remove", path, ERR_IO);
    TRY(for_each(d, path, durable_remove_tree));
    return d->ops->rmdir(d, path) == 0 || errno == ENOENT ? ERR_OK
                                                          : durable_failed("remove", path, ERR_IO);
}

enum err durable_forget_tree(struct disk *d, const char *path)
{
    if (d->ops->kind(d, path) == DISK_MISSING) /* the directories were synced at the start */
        return ERR_OK;
    TRY(durable_remove_tree(d, path));
    return durable_sync_parent(d, path, DISK_FORGOTTEN);
}

/* ---- files that arrive in pieces ---- */

/* Reserves the blocks without changing the length, so that the length says how much has arrived. A
 * file system without fallocate is asked for its free space instead. */
static enum err part_reserve(struct disk *d, int fd, const char *path, uint64_t total,
                             uint64_t have)
{
    if (total == have || d->ops->reserve(d, fd, total) == 0)
        return ERR_OK;
    if (errno != EOPNOTSUPP)
        return durable_failed("reserve space for", path, ERR_IO);
    char parent[PATH_MAX];
    uint64_t free_bytes;
    parent_of(parent, path);
    if (d->ops->room(d, parent, &free_bytes) != 0)
        return durable_failed("stat the file system of", path, ERR_IO);
    if (free_bytes < total - have)
        return err_set(ERR_FULL, "%s: %llu bytes wanted, %llu free", path,
                       (unsigned long long)(total - have), (unsigned long long)free_bytes);
    return ERR_OK;
}

enum err durable_part_open(struct disk *d, const char *path, uint64_t total, int *out,
                           uint64_t *have)
{
    uint64_t size = 0;
    TRY(durable_make_parent(d, path));
    int fd = d->ops->open(d, path, O_RDWR | O_CREAT, 0644);
    if (fd < 0)
        return durable_failed("open", path, ERR_IO);
    enum err e = ERR_OK;
    if (d->ops->length(d, fd, &size) != 0)
        e = durable_failed("stat", path, ERR_IO);
    else if (size > total && d->ops->truncate(d, fd, 0) != 0) /* of another payload */
        e = durable_failed("truncate", path, ERR_IO);
    if (e == ERR_OK) {
        *have = size > total ? 0 : size;
        e = part_reserve(d, fd, path, total, *have);
    }
    if (e != ERR_OK)
        d->ops->close(d, fd);
    else
        *out = fd;
    return e;
}

enum err durable_part_close(struct disk *d, int fd, const char *path, const char *final)
{
    enum err e = ERR_OK;
    if (final && d->ops->sync(d, fd, DISK_PART) != 0)
        e = durable_failed("sync", path, ERR_IO);
    d->ops->close(d, fd);
    if (!final)
        return ERR_OK;
    if (e == ERR_OK)
        e = durable_make_parent(d, final);
    if (e == ERR_OK && d->ops->rename(d, path, final) != 0)
        e = durable_failed("rename", path, ERR_IO);
    if (e == ERR_OK)
        return durable_sync_parent(d, final, DISK_ARRIVED);
    d->ops->unlink(d, path); /* its pages may be marked clean without being on the disk */
    return e;
}
