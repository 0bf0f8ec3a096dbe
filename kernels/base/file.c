#include "kernels/base/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* One writer per directory, so a left-over temporary file has no owner. */
static const char TEMPORARY[] = ".tmp";

/* Turns errno into an error with its message. missing_is: the error for ENOENT and EACCES. */
static enum err file_failed(const char *what, const char *path, enum err missing_is)
{
    int e = errno;
    enum err kind = ERR_IO;
    if (e == ENOSPC || e == EDQUOT)
        kind = ERR_FULL;
    else if (e == ENOENT || e == EACCES || e == EPERM || e == ENOTDIR || e == EISDIR ||
             e == ENAMETOOLONG)
        kind = missing_is;
    return err_set(kind, "%s: cannot %s: %s", path, what, strerror(e));
}

/* What the disk cannot give back is as damaged as what has another digest; anything else that goes
 * wrong says nothing about the bytes. */
static enum err read_failed(const char *path, size_t at)
{
    int e = errno;
    return err_set(e == EIO ? ERR_CORRUPT : ERR_IO, "%s: cannot read from byte %zu on: %s", path,
                   at, strerror(e));
}

static enum err open_input(const char *path, int *fd, size_t *size_bytes)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0)
        return file_failed("open", path, ERR_INPUT);
    struct stat st;
    enum err e = ERR_OK;
    if (fstat(*fd, &st) != 0)
        e = file_failed("stat", path, ERR_IO);
    else if (!S_ISREG(st.st_mode))
        e = err_set(ERR_INPUT, "%s: not a regular file", path);
    if (e != ERR_OK)
        close(*fd);
    else
        *size_bytes = (size_t)st.st_size;
    return e;
}

/* Every byte once, by a call that can fail. */
static enum err read_through(int fd, const char *path, size_t size)
{
    uint8_t buffer[1 << 16];
    for (size_t at = 0; at < size;) {
        ssize_t got = pread(fd, buffer, sizeof buffer, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return read_failed(path, at);
        if (got == 0)
            return err_set(ERR_IO, "%s: became shorter while it was read", path);
        at += (size_t)got;
    }
    return ERR_OK;
}

static enum err map_fd(struct file_map *m, int fd, const char *path, size_t size)
{
    void *p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return file_failed("map", path, ERR_IO);
    *m = (struct file_map){p, size};
    return ERR_OK;
}

static enum err map_path(struct file_map *m, const char *path, bool checked)
{
    int fd;
    size_t size;
    *m = (struct file_map){0};
    TRY(open_input(path, &fd, &size));
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

static enum err read_all(int fd, const char *path, uint8_t *to, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t got = pread(fd, to + at, n - at, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return read_failed(path, at);
        if (got == 0)
            return err_set(ERR_IO, "%s: became shorter while it was read", path);
        at += (size_t)got;
    }
    return ERR_OK;
}

enum err file_read(const char *path, size_t max_bytes, struct arena *a, uint8_t **data,
                   size_t *size_bytes)
{
    int fd;
    size_t size;
    TRY(open_input(path, &fd, &size));
    enum err e = ERR_OK;
    uint8_t *to = NULL;
    if (size > max_bytes)
        e = err_set(ERR_INPUT, "%s: %zu bytes, at most %zu expected", path, size, max_bytes);
    else if (!(to = arena_alloc(a, size + 1)))
        e = ERR_MEMORY;
    else
        e = read_all(fd, path, to, size);
    close(fd);
    if (e == ERR_OK) {
        *data = to;
        *size_bytes = size;
    }
    return e;
}

static enum err write_all(int fd, const char *path, const uint8_t *from, size_t n)
{
    while (n) {
        ssize_t put = write(fd, from, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return file_failed("write", path, ERR_IO);
        from += put;
        n -= (size_t)put;
    }
    return ERR_OK;
}

/* Writes the temporary file and makes its bytes durable. A failed fsync is final: the kernel may
 * have dropped the pages and marked them clean, so a second fsync could succeed without the data
 * (docs/protocol.md 5, row 22). */
static enum err write_temporary(const char *temporary, const struct file_part *parts,
                                size_t part_count, unsigned mode)
{
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0)
        return file_failed("create", temporary, ERR_IO);
    enum err e = ERR_OK;
    for (size_t i = 0; e == ERR_OK && i < part_count; i++)
        e = write_all(fd, temporary, parts[i].data, parts[i].size_bytes);
    if (e == ERR_OK && fsync(fd) != 0)
        e = file_failed("sync", temporary, ERR_IO);
    if (close(fd) != 0 && e == ERR_OK)
        e = file_failed("close", temporary, ERR_IO);
    return e;
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

enum err file_write(const char *path, const struct file_part *parts, size_t part_count,
                    unsigned mode)
{
    char temporary[PATH_MAX], directory[PATH_MAX];
    struct stat st;
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode)) /* a rename would replace /dev/stdout */
        return err_set(ERR_INPUT, "%s: exists and is not a regular file", path);
    int length = snprintf(temporary, sizeof temporary, "%s%s", path, TEMPORARY);
    if (length >= PATH_MAX)
        return err_set(ERR_IO, "%s: path too long", path);
    if (unlink(temporary) != 0 && errno != ENOENT)
        return file_failed("remove", temporary, ERR_IO);
    enum err e = write_temporary(temporary, parts, part_count, mode);
    if (e == ERR_OK && rename(temporary, path) != 0)
        e = file_failed("rename", temporary, ERR_IO);
    if (e != ERR_OK) {
        unlink(temporary);
        return e;
    }
    parent_of(directory, path);
    return file_sync_dir(directory);
}

/* ---- streams ---- */
enum { STREAM_BYTES = 1 << 20 };

static enum err stream_create(struct file_stream *f)
{
    struct stat st;
    if (lstat(f->path, &st) == 0 && !S_ISREG(st.st_mode))
        return err_set(ERR_INPUT, "%s: exists and is not a regular file", f->path);
    if (unlink(f->temporary) != 0 && errno != ENOENT)
        return file_failed("remove", f->temporary, ERR_IO);
    int fd = open(f->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return file_failed("create", f->temporary, ERR_IO);
    f->fd = fd;
    return ERR_OK;
}

enum err file_stream_open(struct file_stream *f, const char *path, struct arena *a)
{
    *f = (struct file_stream){0};
    TRY_ALLOC(f->path = arena_string(a, path, strlen(path)));
    TRY_ALLOC(f->temporary = arena_printf(a, "%s%s", path, TEMPORARY));
    TRY_ALLOC(f->buffer = arena_alloc(a, STREAM_BYTES));
    if (strlen(f->temporary) >= PATH_MAX)
        return err_set(ERR_IO, "%s: path too long", path);
    return stream_create(f);
}

static enum err stream_flush(struct file_stream *f)
{
    size_t used = f->used;
    f->used = 0;
    return write_all(f->fd, f->temporary, f->buffer, used);
}

enum err file_stream_append(struct file_stream *f, const void *data, size_t size_bytes)
{
    if (size_bytes > STREAM_BYTES - f->used)
        TRY(stream_flush(f));
    if (size_bytes > STREAM_BYTES)
        return write_all(f->fd, f->temporary, data, size_bytes);
    memcpy(f->buffer + f->used, data, size_bytes);
    f->used += size_bytes;
    return ERR_OK;
}

static enum err stream_close(struct file_stream *f)
{
    char directory[PATH_MAX];
    enum err e = stream_flush(f);
    if (e == ERR_OK && fsync(f->fd) != 0)
        e = file_failed("sync", f->temporary, ERR_IO);
    if (close(f->fd) != 0 && e == ERR_OK)
        e = file_failed("close", f->temporary, ERR_IO);
    f->fd = 0;
    if (e == ERR_OK && rename(f->temporary, f->path) != 0)
        e = file_failed("rename", f->temporary, ERR_IO);
    TRY(e);
    parent_of(directory, f->path);
    return file_sync_dir(directory);
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

enum err file_sync_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return file_failed("open", path, ERR_IO);
    enum err e = fsync(fd) == 0 ? ERR_OK : file_failed("sync", path, ERR_IO);
    close(fd);
    return e;
}

/* Creates one directory unless it exists, and makes its entry durable. */
static enum err make_one(const char *path)
{
    char parent[PATH_MAX];
    struct stat st;
    if (mkdir(path, 0777) == 0) {
        parent_of(parent, path);
        return file_sync_dir(parent);
    }
    if (errno != EEXIST)
        return file_failed("create directory", path, ERR_IO);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return ERR_OK;
    return err_set(ERR_IO, "%s: exists and is not a directory", path);
}

enum err file_mkdirs(const char *path)
{
    char part[PATH_MAX];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof part)
        return err_set(ERR_IO, "\"%s\": not a usable path", path);
    memcpy(part, path, length + 1);
    while (length > 1 && part[length - 1] == '/')
        part[--length] = 0;
    for (size_t i = 1; i < length; i++)
        if (part[i] == '/' && part[i - 1] != '/') {
            part[i] = 0;
            TRY(make_one(part));
            part[i] = '/';
        }
    return strcmp(part, "/") == 0 ? ERR_OK : make_one(part);
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
    return file_failed("remove", path, ERR_IO);
}

/* True: "." or "..". */
static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

enum err file_remove_tree(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? ERR_OK : file_failed("stat", path, ERR_IO);
    if (!S_ISDIR(st.st_mode)) /* removes a link, never follows it */
        return file_remove(path);
    DIR *dir = opendir(path);
    if (!dir)
        return file_failed("open", path, ERR_IO);
    enum err e = ERR_OK;
    for (struct dirent *entry; e == ERR_OK && (entry = readdir(dir));) {
        char inside[PATH_MAX];
        if (is_dots(entry->d_name))
            continue;
        if (snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name) >= PATH_MAX)
            e = err_set(ERR_IO, "%s/%s: path too long", path, entry->d_name);
        else
            e = file_remove_tree(inside);
    }
    closedir(dir);
    if (e == ERR_OK && rmdir(path) != 0 && errno != ENOENT)
        e = file_failed("remove", path, ERR_IO);
    return e;
}

enum err file_free_bytes(const char *path, uint64_t *free_bytes)
{
    struct statvfs st;
    if (statvfs(path, &st) != 0)
        return file_failed("stat the file system of", path, ERR_INPUT);
    *free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
    return ERR_OK;
}

/* flock: an OFD lock needs a descriptor that may write, which no directory gives. */
static enum err lock_inode(struct file_lock *l, const char *directory)
{
    l->directory = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (l->directory < 0)
        return file_failed("open", directory, ERR_IO);
    if (flock(l->directory, LOCK_EX | LOCK_NB) == 0)
        return ERR_OK;
    if (errno == EWOULDBLOCK)
        return err_set(ERR_BUSY, "%s: in use by another process", directory);
    l->by_file = errno == EBADF || errno == EOPNOTSUPP || errno == ENOLCK || errno == EINVAL;
    return l->by_file ? ERR_OK : file_failed("lock", directory, ERR_IO);
}

static enum err lock_file(struct file_lock *l, const char *directory)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/LOCK", directory) >= PATH_MAX)
        return err_set(ERR_IO, "%s: path too long", directory);
    l->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (l->file < 0)
        return file_failed("open", path, ERR_IO);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(l->file, F_OFD_SETLK, &whole) == 0)
        return ERR_OK;
    bool busy = errno == EAGAIN || errno == EACCES;
    return busy ? err_set(ERR_BUSY, "%s: in use by another process", directory)
                : file_failed("lock", path, ERR_IO);
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

static bool is_temporary(const char *name)
{
    size_t n = strlen(name), suffix = sizeof TEMPORARY - 1;
    return n >= suffix && strcmp(name + n - suffix, TEMPORARY) == 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* First pass (names NULL) counts, second one fills at most *count. */
static enum err list_pass(const char *path, struct arena *a, char **names, size_t *count)
{
    DIR *dir = opendir(path);
    if (!dir)
        return file_failed("list", path, ERR_INPUT);
    size_t n = 0, room = *count;
    enum err e = ERR_OK;
    for (struct dirent *entry; e == ERR_OK && (entry = readdir(dir));) {
        if (is_dots(entry->d_name) || is_temporary(entry->d_name) || (names && n == room))
            continue;
        if (names && !(names[n] = arena_string(a, entry->d_name, strlen(entry->d_name))))
            e = ERR_MEMORY;
        n++;
    }
    closedir(dir);
    *count = n;
    return e;
}

enum err file_list(const char *path, struct arena *a, char ***names, size_t *count)
{
    TRY(list_pass(path, a, NULL, count));
    TRY_ALLOC(*names = arena_array(a, *count + 1, sizeof **names));
    TRY(list_pass(path, a, *names, count));
    qsort(*names, *count, sizeof **names, by_name);
    return ERR_OK;
}
