/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/sim/disk_memory.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/err.h"

struct memory_file { /* or a directory */
    char *path;      /* NULL: removed */
    size_t length;   /* of the path */
    bool directory;
    unsigned descriptors;
    uint8_t *data;
    size_t size, room;
};

static void *sure(void *p)
{
    ASSERT(p);
    return p;
}

static int with(int error)
{
    errno = error;
    return -1;
}

static struct disk_memory *memory(struct disk *d)
{
    return (struct disk_memory *)d;
}

static struct memory_file *file_find(const struct disk_memory *d, const char *path, size_t length)
{
    for (size_t i = 0; i < d->count; i++)
        if (d->files[i]->length == length && !memcmp(d->files[i]->path, path, length))
            return d->files[i];
    return NULL;
}

static struct memory_file *file_at(struct disk *d, const char *path)
{
    return file_find(memory(d), path, strlen(path));
}

/* The path without its last name. */
static size_t parent_length(const char *path)
{
    const char *last = strrchr(path, '/');
    return last ? (size_t)(last - path) : 0;
}

static bool parent_there(struct disk *d, const char *path)
{
    size_t length = parent_length(path);
    const struct memory_file *f = file_find(memory(d), path, length);
    return !length || (f && f->directory);
}

static void file_name(struct memory_file *f, const char *path)
{
    free(f->path);
    f->path = path ? sure(strdup(path)) : NULL;
    f->length = path ? strlen(path) : 0;
}

static struct memory_file *file_make(struct disk_memory *d, const char *path, bool directory)
{
    struct memory_file *f = sure(calloc(1, sizeof *f));
    file_name(f, path);
    f->directory = directory;
    d->files = sure(realloc(d->files, (d->count + 1) * sizeof *d->files));
    return d->files[d->count++] = f;
}

static void file_free(struct memory_file *f)
{
    free(f->path);
    free(f->data);
    free(f);
}

/* Its name goes; its bytes with its last descriptor. */
static void file_remove(struct disk_memory *d, struct memory_file *f)
{
    size_t i = 0;
    while (d->files[i] != f)
        i++;
    d->files[i] = d->files[--d->count];
    file_name(f, NULL);
    if (!f->descriptors)
        file_free(f);
}

static void file_length(struct memory_file *f, size_t size)
{
    if (size > f->room) {
        f->room = size < 2 * f->room ? 2 * f->room : size;
        f->data = sure(realloc(f->data, f->room));
    }
    if (size > f->size)
        memset(f->data + f->size, 0, size - f->size);
    f->size = size;
}

/* ---- the operations ---- */

static struct memory_file *opened(struct disk *d, int fd)
{
    return memory(d)->opened[fd];
}

static int memory_open(struct disk *disk, const char *path, int flags, unsigned mode)
{
    struct disk_memory *d = memory(disk);
    struct memory_file *f = file_at(disk, path);
    size_t fd = 0;
    (void)mode;
    if (f && flags & O_EXCL)
        return with(EEXIST);
    if (!f && (!(flags & O_CREAT) || !parent_there(disk, path)))
        return with(ENOENT);
    f = f ? f : file_make(d, path, false);
    while (fd < d->descriptors && d->opened[fd])
        fd++;
    if (fd == d->descriptors)
        d->opened = sure(realloc(d->opened, ++d->descriptors * sizeof *d->opened));
    d->opened[fd] = f;
    f->descriptors++;
    return (int)fd;
}

static int memory_close(struct disk *d, int fd)
{
    struct memory_file *f = opened(d, fd);
    memory(d)->opened[fd] = NULL;
    if (!--f->descriptors && !f->path)
        file_free(f);
    return 0;
}

static int memory_length(struct disk *d, int fd, uint64_t *bytes)
{
    *bytes = opened(d, fd)->size;
    return 0;
}

static void memory_uncache(struct disk *d, int fd)
{
    (void)d, (void)fd;
}

static ssize_t memory_read(struct disk *d, int fd, void *to, size_t n, uint64_t at)
{
    const struct memory_file *f = opened(d, fd);
    size_t left = at < f->size ? f->size - (size_t)at : 0;
    n = n < left ? n : left;
    if (n)
        memcpy(to, f->data + at, n);
    return (ssize_t)n;
}

static ssize_t memory_write(struct disk *d, int fd, const void *from, size_t n, uint64_t at)
{
    struct memory_file *f = opened(d, fd);
    if (at + n > f->size)
        file_length(f, at + n);
    if (n)
        memcpy(f->data + at, from, n);
    return (ssize_t)n;
}

static int memory_reserve(struct disk *d, int fd, uint64_t bytes)
{
    (void)d, (void)fd, (void)bytes;
    return 0;
}

static int memory_truncate(struct disk *d, int fd, uint64_t bytes)
{
    file_length(opened(d, fd), (size_t)bytes);
    return 0;
}

static int memory_sync(struct disk *d, int fd, enum disk_why why)
{
    (void)d, (void)fd, (void)why;
    return 0;
}

static bool memory_regular(struct disk *d, int fd)
{
    return !opened(d, fd)->directory;
}

static enum disk_kind memory_kind(struct disk *d, const char *path)
{
    const struct memory_file *f = file_at(d, path);
    return !f ? DISK_MISSING : f->directory ? DISK_DIRECTORY : DISK_FILE;
}

static bool memory_is_directory(struct disk *d, const char *path)
{
    return memory_kind(d, path) == DISK_DIRECTORY;
}

/* Of files: nothing here renames a directory. */
static int memory_rename(struct disk *d, const char *from, const char *to)
{
    struct memory_file *f = file_at(d, from), *old = file_at(d, to);
    if (!f || !parent_there(d, to))
        return with(ENOENT);
    if (old && old->directory)
        return with(EISDIR);
    if (old && old != f)
        file_remove(memory(d), old);
    file_name(f, to);
    return 0;
}

static int entry_remove(struct disk *d, const char *path, bool directory)
{
    struct memory_file *f = file_at(d, path);
    if (!f)
        return with(ENOENT);
    if (f->directory != directory)
        return with(directory ? ENOTDIR : EISDIR);
    for (size_t i = 0; directory && i < memory(d)->count; i++)
        if (parent_length(memory(d)->files[i]->path) == f->length &&
            !memcmp(memory(d)->files[i]->path, path, f->length))
            return with(ENOTEMPTY);
    file_remove(memory(d), f);
    return 0;
}

static int memory_unlink(struct disk *d, const char *path)
{
    return entry_remove(d, path, false);
}

static int memory_rmdir(struct disk *d, const char *path)
{
    return entry_remove(d, path, true);
}

static int memory_mkdir(struct disk *d, const char *path)
{
    if (!parent_there(d, path))
        return with(ENOENT);
    if (file_at(d, path))
        return with(EEXIST);
    file_make(memory(d), path, true);
    return 0;
}

static int memory_list(struct disk *d, const char *path, disk_see *see, void *self)
{
    const struct memory_file *dir = file_at(d, path);
    if (!dir || !dir->directory)
        return with(ENOENT);
    for (size_t i = 0; i < memory(d)->count; i++) {
        const struct memory_file *f = memory(d)->files[i];
        if (f != dir && parent_length(f->path) == dir->length &&
            !memcmp(f->path, path, dir->length) && see(self, f->path + dir->length + 1) != 0)
            break;
    }
    return 0;
}

static int memory_room(struct disk *d, const char *path, uint64_t *free_bytes)
{
    (void)d, (void)path;
    *free_bytes = UINT64_MAX;
    return 0;
}

static const struct disk_ops ops = {
    .open = memory_open,
    .close = memory_close,
    .length = memory_length,
    .uncache = memory_uncache,
    .read = memory_read,
    .write = memory_write,
    .reserve = memory_reserve,
    .truncate = memory_truncate,
    .sync = memory_sync,
    .regular = memory_regular,
    .kind = memory_kind,
    .is_directory = memory_is_directory,
    .rename = memory_rename,
    .unlink = memory_unlink,
    .mkdir = memory_mkdir,
    .rmdir = memory_rmdir,
    .list = memory_list,
    .room = memory_room,
};

void disk_memory_open(struct disk_memory *d, const char *root)
{
    *d = (struct disk_memory){.disk = {&ops}};
    file_make(d, root, true);
}

void disk_memory_close(struct disk_memory *d)
{
    for (size_t fd = 0; fd < d->descriptors; fd++)
        if (d->opened[fd])
            memory_close(&d->disk, (int)fd);
    while (d->count)
        file_remove(d, d->files[d->count - 1]);
    free(d->files);
    free(d->opened);
    *d = (struct disk_memory){0};
}
