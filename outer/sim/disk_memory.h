/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DISK_MEMORY_H
#define DISK_MEMORY_H
/* A disk in memory without faults (kernels/base/disk.h), for `atoll sim`: what is written is
 * durable at once. The chaos harness has one that loses, fails and rots (tests/sim/disk_sim.h).
 * One thread. */
#include "kernels/base/disk.h"

struct disk_memory {
    struct disk disk;                     /* first */
    struct memory_file **files, **opened; /* by no order; [descriptor], NULL: closed */
    size_t count, descriptors;
};

/* Empty, but for the directory `root`. */
void disk_memory_open(struct disk_memory *d, const char *root);
void disk_memory_close(struct disk_memory *d);

#endif
