/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Every byte once, by a call that can fail. */
static enum err read_through(int fd, const char *path, size_t size)
{
    uint8_t buffer[1 << 16];
    for (size_t at = 0; at < size; at += sizeof buffer) {
        size_t n = size - at < sizeof buffer ? size - at : sizeof buffer;
        TRY(durable_read_at(disk_posix(), fd, path, buffer, n, at));
    }
    return ERR_OK;
}

static enum err map_fd(struct file_map *m, int fd, const char *path, size_t size)
{
    void *p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return durable_failed("map", path, ERR_IO);
    *m = (struct file_map){p, size};
    return ERR_OK;
}

static enum err map_path(struct file_map *m, const char *path, bool checked)
{
    int fd;
    size_t size;
    *m = (struct file_map){0};
    TRY(durable_open(disk_posix(), path, &fd, &size));
    enum err e = checked ? read_through(fd, path, size) : ERR_OK;
    if (e == ERR_OK && size)
        e = map_fd(m, fd, path, size);
    close(fd);
    return e;
}

enum err file_map(struct file_map *m, const char *path)
{
    return map_path(m, path, false);
}

enum err file_map_checked(struct file_map *m, const char *path)
{
    return map_path(m, path, true);
}

void file_unmap(struct file_map *m)
{
    if (m->data)
        munmap((void *)(uintptr_t)m->data, m->size_bytes);
    *m = (struct file_map){0};
}

enum err file_read(const char *path, size_t max_bytes, struct arena *a, uint8_t **data,
                   size_t *size_bytes)
{
    return durable_read(disk_posix(), path, max_bytes, a, data, size_bytes);
}

enum err file_read_input(const char *path, size_t max_bytes, struct arena *a, uint8_t **data,
                         size_t *size_bytes)
{
    static const char name[] = "standard input";
    size_t n = 0;
    ssize_t got;
    if (strcmp(path, "-") != 0)
        return file_read(path, max_bytes, a, data, size_bytes);
    TRY_ALLOC(*data = arena_alloc(a, max_bytes + 1));
    while (n <= max_bytes && (got = read(STDIN_FILENO, *data + n, max_bytes + 1 - n)) != 0) {
        if (got < 0 && errno != EINTR)
            return durable_failed("read", name, ERR_IO);
        n += got > 0 ? (size_t)got : 0;
    }
    if (n == 0 || n > max_bytes)
        return err_set(ERR_INPUT, n ? "%s: longer than %zu bytes" : "%s: it is empty", name,
                       max_bytes);
    (*data)[n] = 0;
    *size_bytes = n;
    return ERR_OK;
}

enum err file_write(const char *path, const struct file_part *parts, size_t part_count,
                    unsigned mode)
{
    return durable_write(disk_posix(), path, parts, part_count, mode);
}

enum err file_secret(const char *path, const struct stat *st, const char *what)
{
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return err_set(ERR_DENIED,
                       "%s: %s belongs to another user (%u): chown it to the user that runs atoll",
                       path, what, st->st_uid);
    if (st->st_mode & 077)
        return err_set(ERR_DENIED, "%s: others can read %s (mode %03o): chmod 600 it", path, what,
                       st->st_mode & 0777);
    return ERR_OK;
}

/* ---- streams ---- */
enum { STREAM_BYTES = 1 << 20 };

static enum err stream_create(struct file_stream *f)
{
    struct stat st;
    if (lstat(f->path, &st) == 0 && !S_ISREG(st.st_mode))
        return err_set(ERR_INPUT, "%s: exists and is not a regular file", f->path);
    if (unlink(f->temporary) != 0 && errno != ENOENT)
        return durable_failed("remove", f->temporary, ERR_IO);
    int fd = open(f->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return durable_failed("create", f->temporary, ERR_IO);
    f->fd = fd;
    return ERR_OK;
}

enum err file_stream_open(struct file_stream *f, const char *path, struct arena *a)
{
    *f = (struct file_stream){0};
    TRY_ALLOC(f->path = arena_string(a, path, strlen(path)));
    TRY_ALLOC(f->temporary = arena_printf(a, "%s%s", path, DURABLE_TEMPORARY));
    TRY_ALLOC(f->buffer = arena_alloc(a, STREAM_BYTES));
    if (strlen(f->temporary) >= PATH_MAX)
        return err_set(ERR_IO, "%s: path too long", path);
    return stream_create(f);
}

static enum err stream_put(struct file_stream *f, const void *data, size_t n)
{
    TRY(durable_write_at(disk_posix(), f->fd, f->temporary, data, n, f->at));
    f->at += n;
    return ERR_OK;
}

static enum err stream_flush(struct file_stream *f)
{
    size_t used = f->used;
    f->used = 0;
    return stream_put(f, f->buffer, used);
}

enum err file_stream_append(struct file_stream *f, const void *data, size_t size_bytes)
{
    if (size_bytes > STREAM_BYTES - f->used)
        TRY(stream_flush(f));
    if (size_bytes > STREAM_BYTES)
        return stream_put(f, data, size_bytes);
    memcpy(f->buffer + f->used, data, size_bytes);
    f->used += size_bytes;
    return ERR_OK;
}

enum err file_stream_replace(struct file_stream *f, const void *data, size_t size_bytes,
                             uint64_t at)
{
    TRY(stream_flush(f));
    ASSERT(at + size_bytes <= f->at);
    return durable_write_at(disk_posix(), f->fd, f->temporary, data, size_bytes, at);
}

static enum err stream_close(struct file_stream *f)
{
    enum err e = stream_flush(f);
    if (e == ERR_OK && fsync(f->fd) != 0)
        e = durable_failed("sync", f->temporary, ERR_IO);
    if (close(f->fd) != 0 && e == ERR_OK)
        e = durable_failed("close", f->temporary, ERR_IO);
    f->fd = 0;
    if (e == ERR_OK && rename(f->temporary, f->path) != 0)
        e = durable_failed("rename", f->temporary, ERR_IO);
    TRY(e);
    return durable_sync_parent(disk_posix(), f->path, DISK_RENAMED);
}

enum err file_stream_commit(struct file_stream *f)
{
    enum err e = stream_close(f);
    if (e)
        unlink(f->temporary);
    return e;
}

void file_stream_abandon(struct file_stream *f)
{
    if (!f->fd)
        return;
    close(f->fd);
    unlink(f->temporary);
    f->fd = 0;
}

enum err file_mkdirs(const char *path)
{
    return durable_mkdirs(disk_posix(), path);
}

bool file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

enum err file_remove(const char *path)
{
    if (unlink(path) == 0 || errno == ENOENT)
        return ERR_OK;
    return durable_failed("remove", path, ERR_IO);
}

enum err file_remove_tree(const char *path)
{
    return durable_remove_tree(disk_posix(), path);
}

enum err file_free_bytes(const char *path, uint64_t *free_bytes)
{
    struct statvfs st;
    if (statvfs(path, &st) != 0)
        return durable_failed("stat the file system of", path, ERR_INPUT);
    *free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
    return ERR_OK;
}

/* flock: an OFD lock needs a descriptor that may write, which no directory gives. */
enum err file_lock_join(struct file_lock *l, const char *directory)
{
    *l = (struct file_lock){-1, -1, false};
    l->directory = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return l->directory < 0 ? durable_failed("open", directory, ERR_IO) : ERR_OK;
}

static enum err lock_inode(struct file_lock *l, const char *directory)
{
    TRY(file_lock_join(l, directory));
    if (flock(l->directory, LOCK_EX | LOCK_NB) == 0)
        return ERR_OK;
    if (errno == EWOULDBLOCK)
        return err_set(ERR_BUSY, "%s: in use by another process", directory);
    l->by_file = errno == EBADF || errno == EOPNOTSUPP || errno == ENOLCK || errno == EINVAL;
    return l->by_file ? ERR_OK : durable_failed("lock", directory, ERR_IO);
}

static enum err lock_file(struct file_lock *l, const char *directory)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/LOCK", directory) >= PATH_MAX)
        return err_set(ERR_IO, "%s: path too long", directory);
    l->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (l->file < 0)
        return durable_failed("open", path, ERR_IO);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(l->file, F_OFD_SETLK, &whole) == 0)
        return ERR_OK;
    bool busy = errno == EAGAIN || errno == EACCES;
    if (errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS)
        return err_set(
            ERR_UNSUPPORTED,
            "%s: its file system gives no locks (%s), and two processes in one directory "
            "would destroy it: mount NFS with its lock service (version 4, or rpc.statd, "
            "and without nolock), or take a local disk",
            path, strerror(errno));
    return busy ? err_set(ERR_BUSY, "%s: in use by another process", directory)
                : durable_failed("lock", path, ERR_IO);
}

enum err file_lock(struct file_lock *l, const char *directory)
{
    *l = (struct file_lock){-1, -1, false};
    enum err e = lock_inode(l, directory);
    if (e == ERR_OK)
        e = lock_file(l, directory);
    if (e != ERR_OK)
        file_unlock(l);
    return e;
}

enum file_held file_held(const char *directory)
{
    char path[PATH_MAX];
    struct flock read = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    if (snprintf(path, sizeof path, "%s/LOCK", directory) >= PATH_MAX)
        return FILE_HELD_UNKNOWN;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return FILE_HELD_UNKNOWN;
    bool known = fcntl(fd, F_OFD_GETLK, &read) == 0;
    close(fd);
    return !known ? FILE_HELD_UNKNOWN : read.l_type == F_UNLCK ? FILE_HELD_NO : FILE_HELD_YES;
}

static bool same_inode(int fd, const char *path)
{
    struct stat held, there;
    return fstat(fd, &held) == 0 && stat(path, &there) == 0 && held.st_dev == there.st_dev &&
           held.st_ino == there.st_ino;
}

enum err file_lock_check(const struct file_lock *l, const char *directory)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/LOCK", directory);
    if (!same_inode(l->directory, directory))
        return err_set(ERR_BUSY,
                       "%s: not the directory any more that this process has locked: it was moved, "
                       "and another one is in its place",
                       directory);
    if (l->by_file && !same_inode(l->file, path))
        return err_set(ERR_BUSY, "%s: removed while this process holds it as its lock", path);
    return ERR_OK;
}

void file_unlock(struct file_lock *l)
{
    if (l->file >= 0)
        close(l->file);
    if (l->directory >= 0)
        close(l->directory);
    l->file = l->directory = -1;
}

enum err file_list(const char *path, struct arena *a, char ***names, size_t *count)
{
    return durable_list(disk_posix(), path, a, names, count);
}
