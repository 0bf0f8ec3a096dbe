/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MIXTURE_H
#define MIXTURE_H
/* A mixture of sources (data.weights): which source each place of a site's endless order draws
 * from, and which of the source's examples. An item of data.train is a source, with its own order
 * and its own epochs.
 *
 * No random number decides. Of the first n places of a phase source i has c(i, n) places: n is
 * divided at each source into its share, rounded to nearest, and what is left for the sources
 * after it. So the counts follow the weights at every step, not on average: source 0 by half an
 * example at most, each further source by at most half an example more than the one before
 * it. They are closed formulas, which any step may ask for.
 *
 * A phase has fixed weights; it begins at a place with the counts so far. data.anneal_from begins
 * one, a change of the weights in mid-run does, and so does a restart with other weights. The phase
 * of a step is part of the checkpoint, so that a source continues where it was.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "inner/config/keys.h"
#include "kernels/base/arena.h"

enum {
    MIXTURE_SOURCES_MAX = KEYS_SOURCES_MAX,
    MIXTURE_CHANGES_MAX = 64,
    MIXTURE_PHASES_MAX = MIXTURE_CHANGES_MAX + 2 /* the first, and the one of data.anneal_from */
};

struct mixture_phase {                     /* also its form in checkpoints: no pointers, no gaps */
    uint64_t from;                         /* first place */
    uint64_t count;                        /* sources; 0: not set */
    uint64_t windows[MIXTURE_SOURCES_MAX]; /* examples of each source */
    uint64_t before[MIXTURE_SOURCES_MAX];  /* examples of it before `from` */
    uint64_t shares[MIXTURE_SOURCES_MAX];  /* of MIXTURE_WHOLE; 0: none from here on */
};
#define MIXTURE_WHOLE (UINT64_C(1) << 32)

struct mixture_source { /* of the shards that are open */
    const char *name;   /* the item of data.train */
    uint64_t first;     /* window; its windows follow each other */
    uint64_t windows;   /* > 0 */
    double tokens;      /* of an example: exact if all have one length, else a mean */
};
struct mixture {
    struct mixture_source *sources;
    size_t count;
    size_t phase_count;
    struct mixture_phase phases[MIXTURE_PHASES_MAX]; /* by `from`, ascending */
};

/* Weights of tokens, which have been checked, from a place on until the next ones. By `from`, in
 * ascending order; the first one is of place 0. Of two of one place the later one counts. */
struct mixture_weights {
    size_t count;
    struct mixture_from {
        uint64_t from;
        const double *weights; /* [sources] */
    } list[MIXTURE_PHASES_MAX];
};
/* One more, after those that begin at its place. */
void mixture_weights_add(struct mixture_weights *w, uint64_t from, const double *weights);
void mixture_begin(struct mixture *m, const struct mixture_weights *w);
/* Continues at `place` after a stored phase, whose counts stay; count 0: there is none, and every
 * source begins. Other weights than the stored ones begin a phase there: *changed. ERR_MISMATCH: a
 * source has gone, or holds other examples. */
enum err mixture_resume(struct mixture *m, const struct mixture_weights *w, uint64_t place,
                        const struct mixture_phase *stored, bool *changed) MUST;
/* The phase of this place, for a checkpoint. */
const struct mixture_phase *mixture_phase(const struct mixture *m, uint64_t place);

struct mixture_draw {
    size_t source;
    uint64_t example; /* of the source's endless order */
};
struct mixture_draw mixture_draw(const struct mixture *m, uint64_t place);
/* The share of the tokens that a source gets at this place. */
double mixture_weight(const struct mixture *m, uint64_t place, size_t source);
/* Examples of each source before a place. */
void mixture_counts(const struct mixture *m, uint64_t place, uint64_t counts[MIXTURE_SOURCES_MAX]);

#endif
