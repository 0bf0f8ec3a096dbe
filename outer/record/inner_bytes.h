/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INNER_BYTES_H
#define INNER_BYTES_H
/* Bytes that the ranks of a site sent each other, of metrics.jsonl of its run directory, by bytes
 * of a step: a phase of a compressed run has its own. Reads only, also while the site trains.
 */
#include <stdint.h>
#include "kernels/base/arena.h"

enum { INNER_BYTES_SIZES_MAX = 64 }; /* of a step that are told apart */
struct inner_bytes {
    int64_t ranks, last;      /* last: the step that came last */
    struct inner_bytes_size { /* steps that sent as many bytes; the last entry: all further sizes */
        double each, bytes;
        int64_t first, last;
        uint64_t steps, sums;
    } sizes[INNER_BYTES_SIZES_MAX + 1];
    size_t count;
    uint64_t steps, again; /* again: repeated after a restart */
    double bytes, bytes_again;
};
/* ERR_INPUT: no metrics.jsonl, or no step of several ranks in it; the sentence names the file. */
enum err inner_bytes_read(struct inner_bytes *b, const char *directory, struct arena *a) MUST;

#endif
