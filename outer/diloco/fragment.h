/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FRAGMENT_H
#define FRAGMENT_H
/* A fragment is synchronised as a whole. It is a list of ranges over one slab, of the parameters or
 * of an optimizer moment. How the model is cut into P parts:
 * - strided: block i goes to part i mod P (Streaming DiLoCo, 2501.18512); embeddings and the final
 *   norm are balanced onto the smallest part, largest tensor first;
 * - sequential: consecutive blocks, as evenly as they go; the rest balanced, as in the first kind;
 * - balanced: every tensor balanced (greedy, as Decoupled DiLoCo 2604.21428);
 * - random: every 256 values drawn for one of P parts of equal size. A step that exchanges one part
 *   exchanges a random 1/P of the parameters (SPARTA), each once before any comes again;
 * - slices: as listed, consecutive layers each (DreamDDP 2502.11058).
 * Where moments are synchronised too (DES-LOC 2505.22549, MT-DAO 2510.05361), the same P parts of
 * each follow as fragments of their own. Pure.
 */
#include "inner/model/table.h"
#include "outer/codec/codec.h"
#include "outer/diloco/period.h"
#include "outer/protocol/round.h"

enum fragment_kind {
    FRAGMENT_STRIDED,
    FRAGMENT_SEQUENTIAL,
    FRAGMENT_BALANCED,
    FRAGMENT_RANDOM,
    FRAGMENT_SLICES
};
enum fragment_state { FRAGMENT_PARAMETERS, FRAGMENT_FIRST, FRAGMENT_SECOND, FRAGMENT_STATES };

struct fragment_slice { /* layers first..last; -1: embeddings, model.layers: the final norm */
    int first, last;
    int64_t at; /* step of each period after which it is sent, 1..outer.every */
    unsigned more_count;
    int64_t more[PERIOD_MORE_MAX]; /* and again after these, ascending, up to outer.sync_every */
};
struct fragment_plan {
    enum fragment_kind kind;
    unsigned count;                      /* P */
    const struct fragment_slice *slices; /* [count]; SLICES only */
    uint64_t seed;                       /* RANDOM only */
    bool synchronised[FRAGMENT_STATES];  /* PARAMETERS always */
};
struct fragment {
    enum fragment_state state;
    struct dev_range *ranges; /* ascending, touching ones are one */
    size_t range_count;
    size_t elements;         /* multiple of 256: sum over ranges */
    size_t parameters;       /* without gaps; RANDOM: with them */
    struct tensor_view view; /* its tensors, for codecs that look at shapes; RANDOM: none */
};
struct fragments {
    struct fragment f[ROUND_FRAGMENTS_MAX];
    unsigned count; /* P for each synchronised state, parameters first */
    unsigned parts; /* P */
};

/* ERR_CONFIG: more parts than the model can fill, a layer in no slice or in two. */
enum err fragment_make(struct fragments *out, const struct table *t, const struct fragment_plan *p,
                       struct arena *perm) MUST;
/* "embed-3@5" or "7@2+10": first, last or the only layer (embed, 0.., final), and the steps, at
 * most 1 + PERIOD_MORE_MAX. False: not of this form, or out of the range of `layers` and `every`.
 */
bool fragment_slice_parse(struct fragment_slice *s, const char *text, int layers, int64_t every);
size_t fragment_largest(const struct fragments *f); /* elements of the largest one */
/* Elements of each. */
void fragment_sizes(size_t elements[ROUND_FRAGMENTS_MAX], const struct fragments *f);
/* slab (of the fragment's state) <-> contiguous copy of one fragment, through the device's copy. */
void fragment_gather(struct dev *d, float *out, const float *slab, const struct fragment *f);
void fragment_scatter(struct dev *d, float *slab, const float *in, const struct fragment *f);

#endif
