/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STAGING_H
#define STAGING_H
/* The one fragment whose outer arithmetic is under way, on a device that has memory of its own. The
 * outer state lives in the host's memory (dev_arena: pinned); what an op reads is copied into a
 * slot, what it wrote is copied back. On a device that works in the host's memory a slot is the
 * host's array itself: nothing is copied and no memory taken, by the same calls.
 *
 * What crosses the bus in a round, for each parameter of the fragment (tests/cuda/test_cuda_outer.c
 * counts it):
 *   in    theta 4 and residual 4, for the delta; 4 for each slab of the outer
 *         optimizer, for its step; the site's own payload, to check that nothing was lost; the
 * aggregate out   residual' 4, for the outbox; theta 4 and each slab 4, for the digest and the
 * state file; the payload and its block codes That is 24 bytes with one slab, and the compressed
 * bytes; never the local parameters, delta, z, the mean or a decoded payload. Theta stays in its
 * slot from the delta to the outer step, and from there the local parameters take it
 * (staging_keep), so it goes in once, with one fragment not at all after the first round; a slot
 * that was in a call may have to bring it once more. In addition: a round that left this site out,
 * 4 in and 4 out (the sent values return to the residual); outer.eager, 8 in and 8 out (the others'
 * part and the start, which is durable first). Outside rounds: a look at the outer parameters
 * (train.eval_every) parks the local ones in the host's memory, 4 out and 8 in.
 *
 * At 55 GB/s (PCIe 5.0 x16) 24 bytes for each of 124 M parameters are 54 ms in a round of a hundred
 * steps of 0.4 s, and SHA-256 of what goes out takes twenty times that on one core: the copies of a
 * slot overlap training's kernels, on a stream of their own, but not their own arithmetic; a second
 * set of slots would hide some 25 ms of a round for 12 bytes per parameter of GPU memory.
 * outer.merge = radial brings the aggregate in twice.
 *
 * The slots belong to the thread that holds the site's mutex.
 * What they hold is good until then; over a call to the aggregator nothing is counted on but
 * staging_in's looking.
 */
#include "kernels/dev.h"

enum staging_slot {                 /* while a contribution is made; while a round is applied */
                    STAGING_THETA,  /* theta; theta */
                    STAGING_DELTA,  /* residual, then residual'; mean */
                    STAGING_BESIDE, /* what the payload decodes to; slab 0 of the optimizer */
                    STAGING_SLOTS = STAGING_BESIDE + OUTER_SLABS /* -; its further slabs */
};
struct staging {
    struct dev *d;
    float *slot[STAGING_SLOTS]; /* device, largest fragment; NULL: not needed */
    const float
        *holds[STAGING_SLOTS]; /* the host's array with the slot's values; NULL: not known */
};

/* What a part of the outer loop takes: of a device that has memory of its own, and of the host's,
 * pinned for such a device. */
struct outer_memory {
    size_t device, host;
};

size_t staging_bytes(size_t elements, unsigned slabs); /* on a device of its own memory */
/* Zeroed before; after a failure staging_close. */
enum err staging_open(struct staging *s, struct dev *d, size_t elements, unsigned slabs) MUST;
void staging_close(struct staging *s);
/* Where the device works on the host's array: the slot, or the array itself; for writing. host
 * NULL: NULL. */
float *staging_at(struct staging *s, enum staging_slot slot, float *host);
/* The array's values, for reading: not copied when the slot holds them. */
const float *staging_in(struct staging *s, enum staging_slot slot, const float *host, size_t count);
/* The same, to be changed there; in the host's memory they are copied to `to`. to NULL: NULL. */
float *staging_take(struct staging *s, enum staging_slot slot, float *to, const float *host,
                    size_t count);
/* Copies the values at `from` to the array that staging_at was asked for; waits for the copy. */
void staging_out(struct staging *s, float *host, const float *from, size_t count);
/* The slot holds the values of this array: until the slot is asked for otherwise, or
 * staging_forget, which the code that changes the array calls. */
void staging_keep(struct staging *s, enum staging_slot slot, const float *host);
const float *staging_kept(const struct staging *s, enum staging_slot slot,
                          const float *host); /* NULL: no */
void staging_forget(struct staging *s, const float *host);

#endif
