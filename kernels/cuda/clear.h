/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLEAR_H
#define CLEAR_H
/* Clears host memory with several threads. A site's outer state is tens of gigabytes of pinned
 * memory, and one thread writes a few gigabytes a second. It needs no part of CUDA and none of the
 * program. Any thread; returns when all is clear.
 */
#include <stddef.h>

struct clear_part {
    size_t begin, bytes;
};
/* Part `i` of `parts`: whole pages, but for the last one's end. The parts follow each other. */
struct clear_part clear_part(size_t bytes, int i, int parts);
/* Zeros. The caller is one of the threads; less than 2 MiB are cleared by it alone. */
void clear_bytes(void *p, size_t bytes, int threads);
/* `asked`; 0: all that the affinity mask allows. */
int clear_threads(int asked);

#endif
