/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCRATCH_PLACE_H
#define SCRATCH_PLACE_H
#include <stdbool.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Where tests write: what is durable a thousand times need not be so (tests/scratch.sh). */
static inline const char *scratch_place(void)
{
    enum { LEAST_MIB = 512 }; /* a container may give 64 */
    struct statvfs s;
    bool memory = access("/dev/shm", W_OK) == 0 && statvfs("/dev/shm", &s) == 0 &&
                  s.f_bavail * s.f_frsize >> 20 >= LEAST_MIB;
    return memory && !getenv("ATOLL_TEST_DISK") ? "/dev/shm" : "/tmp";
}

#endif
