/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCRATCH_PLACE_H
#define SCRATCH_PLACE_H
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

/* Where tests write: what is durable a thousand times need not be so (tests/scratch.sh). */
static inline const char *scratch_place(void)
{
    enum { LEAST_MIB = 512 }; /* a container may give 64 */
    struct stat s;
    struct statvfs room;
    bool memory = stat("/dev/shm", &s) == 0 && s.st_mode & S_IWOTH &&
                  statvfs("/dev/shm", &room) == 0 &&
                  room.f_bavail * room.f_frsize >> 20 >= LEAST_MIB;
    return memory && !getenv("ATOLL_TEST_DISK") ? "/dev/shm" : "/tmp";
}

#endif
