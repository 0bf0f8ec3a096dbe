/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCRATCH_PLACE_H
#define SCRATCH_PLACE_H
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Where tests write: what is durable a thousand times need not be so (tests/scratch.sh). */
static inline const char *scratch_place(void)
{
    struct stat s;
    bool memory = stat("/dev/shm", &s) == 0 && s.st_mode & S_IWOTH;
    return memory && !getenv("ATOLL_TEST_DISK") ? "/dev/shm" : "/tmp";
}

#endif
