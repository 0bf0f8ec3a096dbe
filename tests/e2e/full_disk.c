/* SPDX-License-Identifier: Apache-2.0 */
/* A disk that is full for some files alone, for end-to-end scripts: LD_PRELOAD of a process. While
 * the file that FULL_FILES names holds a line, a path that has this line in it cannot be opened for
 * writing: "No space left on device". */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* By system calls: libc's own open() is replaced here. */
static bool full_for(const char *path)
{
    char lines[4096], *at = lines;
    const char *list = getenv("FULL_FILES");
    long file = list ? syscall(SYS_openat, AT_FDCWD, list, O_RDONLY) : -1;
    if (file < 0)
        return false;
    long n = syscall(SYS_read, file, lines, sizeof lines - 1);
    syscall(SYS_close, file);
    lines[n > 0 ? n : 0] = 0;
    for (char *line; (line = strsep(&at, "\n"));)
        if (*line && strstr(path, line))
            return true;
    return false;
}

static int opened(const char *path, int flags, unsigned mode)
{
    int kept = errno;
    if ((flags & O_ACCMODE) != O_RDONLY && full_for(path)) {
        errno = ENOSPC;
        return -1;
    }
    errno = kept;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        unsigned mode = flags & O_CREAT ? va_arg(rest, unsigned) : 0;                              \
        va_end(rest);                                                                              \
        return opened(path, flags, mode);                                                          \
    }
int open(const char *path, int flags, ...);
int open64(const char *path, int flags, ...);
OPEN(open)
OPEN(open64)
