/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MEMORY_LEFT_H
#define MEMORY_LEFT_H
/* How much memory this process may still take, and which file says so: the least of what the
 * machine has left (/proc/meminfo), of each limit of the process's control groups and of the groups
 * above them (cgroup v1, v2, both at once, with or without a cgroup namespace), and of the address
 * space (ulimit -v). Page cache that the kernel takes back is not counted as used.
 *
 * A function of the texts of these files alone; a file that is missing bounds nothing. Not bounded:
 * memory.high, above which the kernel slows a process down and kills nothing; swap.
 */
#include <stddef.h>
#include "kernels/base/err.h"

struct memory_files {
    char *(*read)(void *self, const char *path); /* its text, for free(); NULL: there is none */
    void *self;
};
struct memory_left {
    size_t bytes;    /* SIZE_MAX: no file says anything */
    size_t limit;    /* of a control group or of the process; 0: it is the machine's memory */
    char path[4096]; /* of the file with the limit */
};
/* files NULL: this machine's. */
void memory_left(struct memory_left *m, const struct memory_files *files);
size_t memory_peak(void); /* the largest resident set of this process; 0: not known */
/* "machine has 900 MiB left", "limit of 2000 MiB in /sys/fs/cgroup/../memory.max leaves 900 MiB" */
void memory_left_text(const struct memory_left *m, char *out, size_t size);

#endif
