/* SPDX-License-Identifier: Apache-2.0 */
/* The disk that the operating system has. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "kernels/base/disk.h"

static int posix_open(struct disk *d, const char *path, int flags, unsigned mode)
{
    (void)d;
    return open(path, flags | O_CLOEXEC, mode);
}

static int posix_close(struct disk *d, int fd)
{
    (void)d;
    return close(fd);
}

static int posix_length(struct disk *d, int fd, uint64_t *bytes)
{
    struct stat st;
    (void)d;
    if (fstat(fd, &st) != 0)
        return -1;
    *bytes = (uint64_t)st.st_size;
    return 0;
}

static void posix_uncache(struct disk *d, int fd)
{
    (void)d;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

static ssize_t posix_read(struct disk *d, int fd, void *to, size_t n, uint64_t at)
{
    (void)d;
    return pread(fd, to, n, (off_t)at);
}

static ssize_t posix_write(struct disk *d, int fd, const void *from, size_t n, uint64_t at)
{
    (void)d;
    return pwrite(fd, from, n, (off_t)at);
}

static int posix_reserve(struct disk *d, int fd, uint64_t bytes)
{
    (void)d;
    return fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes);
}

static int posix_truncate(struct disk *d, int fd, uint64_t bytes)
{
    (void)d;
    return ftruncate(fd, (off_t)bytes);
}

/* fdatasync covers a new length too; times of files do not matter. */
static int posix_sync(struct disk *d, int fd, enum disk_why why)
{
    (void)d;
    return why == DISK_APPENDED ? fdatasync(fd) : fsync(fd);
}

static bool posix_regular(struct disk *d, int fd)
{
    struct stat st;
    (void)d;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

static bool posix_is_directory(struct disk *d, const char *path)
{
    struct stat st;
    (void)d;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static enum disk_kind posix_kind(struct disk *d, const char *path)
{
    struct stat st;
    (void)d;
    if (lstat(path, &st) != 0)
        return DISK_MISSING;
    return S_ISREG(st.st_mode) ? DISK_FILE : S_ISDIR(st.st_mode) ? DISK_DIRECTORY : DISK_OTHER;
}

static int posix_rename(struct disk *d, const char *from, const char *to)
{
    (void)d;
    return rename(from, to);
}

static int posix_unlink(struct disk *d, const char *path)
{
    (void)d;
    return unlink(path);
}

static int posix_mkdir(struct disk *d, const char *path)
{
    (void)d;
    return mkdir(path, 0777);
}

static int posix_rmdir(struct disk *d, const char *path)
{
    (void)d;
    return rmdir(path);
}

static int posix_list(struct disk *d, const char *path, disk_see *see, void *self)
{
    (void)d;
    DIR *dir = opendir(path);
    if (!dir)
        return -1;
    errno = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (see(self, entry->d_name) != 0)
            break;
        errno = 0;
    }
    int failed = errno;
    closedir(dir);
    errno = failed;
    return failed ? -1 : 0;
}

static int posix_room(struct disk *d, const char *path, uint64_t *free_bytes)
{
    struct statvfs st;
    (void)d;
    if (statvfs(path, &st) != 0)
        return -1;
    *free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
    return 0;
}

struct disk *disk_posix(void)
{
    static const struct disk_ops ops = {
        .open = posix_open,
        .close = posix_close,
        .length = posix_length,
        .uncache = posix_uncache,
        .read = posix_read,
        .write = posix_write,
        .reserve = posix_reserve,
        .truncate = posix_truncate,
        .sync = posix_sync,
        .regular = posix_regular,
        .kind = posix_kind,
        .is_directory = posix_is_directory,
        .rename = posix_rename,
        .unlink = posix_unlink,
        .mkdir = posix_mkdir,
        .rmdir = posix_rmdir,
        .list = posix_list,
        .room = posix_room,
    };
    static struct disk disk = {&ops};
    return &disk;
}
