#ifndef LOT_H
#define LOT_H
/* The lot of a step of a private site (Abadi et al. 2016): which units (units.h) it holds, and
 * which of their windows. One row for each privacy.sampling. The units come one by one: no list of
 * them is kept.
 */
#include "inner/config/keys.h"
#include "inner/data/poisson.h"
#include "inner/data/units.h"

struct lot_options {
    enum privacy_sampling how;
    const struct units *units;
    const struct loader *loader;
    uint64_t expected;  /* units of a step on average, below their number */
    uint64_t index;     /* of the step among those of the site */
    const uint8_t *key; /* (CHACHA_KEY_BYTES) of the step; secret */
};
struct lot {
    struct lot_options o;
    struct poisson poisson;
    uint64_t next, end; /* fixed: places in the order of a run without privacy */
};
void lot_begin(struct lot *d, const struct lot_options *o);
bool lot_next(struct lot *d, uint64_t *unit); /* false: no more */
/* The windows of a unit that the step holds, in ascending order: all of them, or `most` > 0, each
 * choice of that size as likely. Returns their number. Pure: a function of the key and the unit. */
size_t lot_windows(const struct lot *d, uint64_t unit, size_t most, uint64_t *windows);
/* Whether a claim may count on amplification by this sampling. */
bool lot_amplifies(enum privacy_sampling how);

#endif
