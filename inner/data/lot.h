/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOT_H
#define LOT_H
/* The lot of a step of a private site (Abadi et al. 2016): which units (units.h) it holds, and
 * which of their windows; and what may be claimed for that. One row for each privacy.sampling. The
 * units come one by one: no list of them is kept.
 *
 *   poisson  each unit by a coin of its own, with probability expected / units
 *   balls    each unit has a bin, drawn once; step n holds the units of bin n mod bins (Chua et al.
 *            2024, 2412.16802). A unit returns after exactly `bins` steps
 *   cyclic   each unit has a part, drawn once; step n holds units of part n mod bands, each by a
 *            coin (2306.08153). A unit returns after `bands` steps or more
 *   fixed    the order of a run without privacy
 *
 * A step is counted among those that the site has charged: a step that is done again, from other
 * parameters, is a further one, so that a unit does not return earlier than it may.
 */
#include "inner/config/keys.h"
#include "inner/data/poisson.h"
#include "inner/data/units.h"

struct lot_sizes {
    uint64_t records, expected; /* units; those of a step on average, fewer */
    uint64_t bands;             /* of the noise; 1: independent */
    uint64_t bins;              /* lot_bins */
};
/* Bins of `balls`, parts of `cyclic`; 0 where there are none. Of the first three sizes. */
uint64_t lot_bins(enum privacy_sampling how, const struct lot_sizes *s);
/* ERR_CONFIG: such lots cannot be drawn, or a unit returns while its noise is still correlated. */
enum err lot_check(enum privacy_sampling how, const struct lot_sizes *s) MUST;

/* Steps of DP-SGD with Poisson sampling that account for `steps` successive ones: each unit is in a
 * step with probability `rate`, by a coin of its own; 1: in every one. Noise multiplier: that of
 * the steps. */
struct lot_account {
    bool claimed; /* false: nothing can be claimed */
    double rate;
    int64_t steps;
};
struct lot_account lot_account(enum privacy_sampling how, const struct lot_sizes *s, int64_t steps);

struct lot_options {
    enum privacy_sampling how;
    struct lot_sizes sizes;
    const struct units *units;
    const struct loader *loader;
    uint64_t index;         /* of the step among those of the site */
    const uint8_t *key;     /* (CHACHA_KEY_BYTES) of the step; secret */
    const uint8_t *bin_key; /* the same for all steps; secret */
};
struct lot {
    struct lot_options o;
    struct poisson poisson;
    struct chacha bins;
    uint64_t next, end; /* unit; fixed: places in the order of a run without privacy */
};
void lot_begin(struct lot *l, const struct lot_options *o);
bool lot_next(struct lot *l, uint64_t *unit); /* false: no more */
/* The windows of a unit that the step holds, in ascending order: all of them, or `most` > 0, each
 * choice of that size as likely. Returns their number. Pure: a function of the key and the unit. */
size_t lot_windows(const struct lot *l, uint64_t unit, size_t most, uint64_t *windows);

#endif
