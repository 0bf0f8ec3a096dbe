/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SQUEEZE_H
#define SQUEEZE_H
/* The mean of a slab over the ranks of a site in one bit for each value, with error feedback on
 * both sides (ef_sign_allreduce of 1-bit Adam, Tang et al. 2021, 2102.02888). With W ranks, x_i on
 * rank i, the worker error e_i of rank i and the server error E of the elements that a rank serves:
 *
 *     z   = x_i + e_i;  s_i = rms(z) of each range;  e_i = z - s_i sign(z)
 *     all_to_all of the signs, all_gather of s_i
 *     c   = 1/W sum_i s_i sign_i + E;  S = rms(c) of each piece;  E = c - S sign(c)
 *     all_gather of the signs and of S;  x = S sign(c), on every rank the same bits
 *
 * sign(0) = 1. The slab is cut into W shares at multiples of 256 elements, rank r serves share r; a
 * piece is the part of a range in one share. Sums run in rank order, so the result repeats bit for
 * bit. Elements whose mask is 0 are left out: not in the rms, no error, x = 0. One rank: the same
 * arithmetic, and nothing is sent.
 *
 * Payload of rank r, d elements in the slab, d_r in its share, n ranges, n_r pieces in its share:
 *     (d - d_r) / 8 + 4 n (W - 1) + (W - 1) (d_r / 8 + 4 n_r) bytes, about 2 (W - 1) / W d / 8.
 */
#include "inner/coll/coll.h"

struct squeeze_options {
    struct dev *dev;
    struct coll *coll;
    const struct dev_range *ranges; /* host, (count), rising, at multiples of DEV_BLOCK */
    size_t count, elements;         /* elements: of the slab, a multiple of DEV_BLOCK */
    bool feedback;                  /* false: errors are forgotten */
};
struct squeeze_ranges {       /* with one scale each */
    struct dev_range *ranges; /* device */
    size_t count, longest;
    float *scales; /* device, (count) of each rank that sends */
};
struct squeeze { /* of one rank; zeroed: not open */
    struct dev *dev;
    struct coll *coll;
    size_t elements;
    size_t *shares;               /* (ranks + 1) elements of the slab */
    size_t *bytes;                /* (ranks + 1) of bits, where the shares begin */
    size_t *scale_firsts;         /* (ranks + 1) of the scales of the ranks' ranges */
    size_t *piece_firsts;         /* (ranks + 1) pieces of the shares */
    size_t first_range;           /* of the first piece of this rank's share */
    struct squeeze_ranges ranges; /* of the slab; scales: (ranks, count) */
    struct squeeze_ranges pieces; /* of all shares */
    struct squeeze_ranges served; /* pieces of this rank's share, counted from its begin */
    float *worker, *server;       /* device: errors, (elements) and (of the share); NULL: none */
    uint8_t *mine, *theirs;       /* device: bits of the slab; of the share, from all ranks */
    struct dev_sign_sum *sums;    /* device: scratch */
};
struct squeeze_args {
    float *x;          /* device, (elements): this rank's values, then the mean */
    const float *mask; /* device, (elements); NULL: none */
    const float *stop; /* device scalar; NaN: neither x nor an error changes; NULL: none */
};

size_t squeeze_plan(size_t elements, size_t ranges, int ranks, bool feedback); /* device memory */
enum err squeeze_open(struct squeeze *q, const struct squeeze_options *o, struct arena *perm) MUST;
void squeeze_close(struct squeeze *q); /* a zeroed or partly opened one is fine */
enum err squeeze_mean(struct squeeze *q, const struct squeeze_args *a) MUST; /* all ranks call */
void squeeze_forget(struct squeeze *q);                /* both errors become 0 */
void squeeze_rescale(struct squeeze *q, float factor); /* multiplies both errors */
size_t squeeze_up(const struct squeeze *q); /* payload bytes of one squeeze_mean of this rank */

#endif
