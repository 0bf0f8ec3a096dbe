/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/lot.h"

static double lot_rate(const struct lot_sizes *s)
{
    return (double)s->expected / (double)s->records;
}

static int64_t rounds_of(int64_t steps, uint64_t each)
{
    return (steps + (int64_t)each - 1) / (int64_t)each;
}

/* The bin of each unit in turn, from a stream that is the same in every step. */
static bool next_of_bin(struct lot *l, uint64_t *unit)
{
    __extension__ typedef unsigned __int128 wide;
    uint64_t bins = l->o.sizes.bins, bin = l->o.index % bins;
    while (l->next < l->o.sizes.records) {
        *unit = l->next++;
        if ((uint64_t)((wide)chacha_bits(&l->bins, 64) * bins >> 64) == bin)
            return true;
    }
    return false;
}

/* ---- poisson ---- */
static void poisson_first(struct lot *l)
{
    l->poisson = poisson_begin(l->o.key, l->o.sizes.records, l->o.sizes.expected);
}

static bool poisson_following(struct lot *l, uint64_t *unit)
{
    return poisson_next(&l->poisson, unit);
}

static struct lot_account poisson_account(const struct lot_sizes *s, int64_t steps)
{
    return (struct lot_account){true, lot_rate(s), steps};
}

static uint64_t no_bins(const struct lot_sizes *s)
{
    (void)s;
    return 0;
}

static enum err poisson_check(const struct lot_sizes *s)
{
    if (s->expected < s->records)
        return ERR_OK;
    return err_set(ERR_CONFIG,
                   "%llu records a step, and data.train holds %llu in all: a step may not hold "
                   "all; take a smaller train.batch_tokens or more text",
                   (unsigned long long)s->expected, (unsigned long long)s->records);
}

/* ---- balls in bins ---- */
static uint64_t balls_bins(const struct lot_sizes *s)
{
    return s->records / s->expected;
}

static enum err balls_check(const struct lot_sizes *s)
{
    unsigned long long bins = s->records / s->expected;
    TRY(poisson_check(s));
    if (bins < 2)
        return err_set(ERR_CONFIG,
                       "privacy.sampling = balls with %llu records a step of %llu: there is one "
                       "bin; take a smaller train.batch_tokens or more text",
                       (unsigned long long)s->expected, (unsigned long long)s->records);
    if (bins >= s->bands)
        return ERR_OK;
    return err_set(ERR_CONFIG,
                   "privacy.bands = %llu: with %llu records a step of %llu a record returns after "
                   "%llu steps, while its noise is still correlated; use privacy.bands = %llu or "
                   "less, or a smaller train.batch_tokens",
                   (unsigned long long)s->bands, (unsigned long long)s->expected,
                   (unsigned long long)s->records, bins, bins);
}

static void balls_first(struct lot *l)
{
    l->bins = chacha_stream(l->o.bin_key, 0);
}

/* A unit is in one of `bins` successive steps, and no amplification is claimed for not knowing in
 * which. Its columns of the noise's matrix do not overlap, so that n of them are n releases. */
static struct lot_account balls_account(const struct lot_sizes *s, int64_t steps)
{
    return (struct lot_account){true, 1, rounds_of(steps, s->bins)};
}

/* ---- cyclic ---- */
static uint64_t cyclic_bins(const struct lot_sizes *s)
{
    return s->bands;
}

static enum err cyclic_check(const struct lot_sizes *s)
{
    TRY(poisson_check(s));
    if (s->bands < s->records / s->expected)
        return ERR_OK;
    return err_set(ERR_CONFIG,
                   "privacy.bands = %llu: with %llu records a step of %llu a part has too few of "
                   "them; use privacy.bands = %llu or less, or a smaller train.batch_tokens",
                   (unsigned long long)s->bands, (unsigned long long)s->expected,
                   (unsigned long long)s->records,
                   (unsigned long long)(s->records / s->expected - 1));
}

static void cyclic_first(struct lot *l)
{
    l->bins = chacha_stream(l->o.bin_key, 0);
    l->poisson =
        poisson_begin(l->o.key, l->o.sizes.records, l->o.sizes.expected * l->o.sizes.bands);
}

static bool cyclic_following(struct lot *l, uint64_t *unit)
{
    while (next_of_bin(l, unit))
        if (poisson_coin(&l->poisson))
            return true;
    return false;
}

static struct lot_account cyclic_account(const struct lot_sizes *s, int64_t steps)
{
    return (struct lot_account){true, (double)s->bands * lot_rate(s), rounds_of(steps, s->bands)};
}

/* ---- fixed ---- */
static void fixed_first(struct lot *l)
{
    l->next = l->o.index * l->o.sizes.expected;
    l->end = l->next + l->o.sizes.expected;
}

static bool fixed_following(struct lot *l, uint64_t *unit)
{
    if (l->next == l->end)
        return false;
    *unit = loader_order_of(l->o.loader, l->o.sizes.records, l->next++);
    return true;
}

/* One unit more or less changes the order of all. */
static struct lot_account fixed_account(const struct lot_sizes *s, int64_t steps)
{
    (void)s;
    (void)steps;
    return (struct lot_account){false, 0, 0};
}

static const struct {
    uint64_t (*bins)(const struct lot_sizes *s);
    enum err (*check)(const struct lot_sizes *s);
    void (*first)(struct lot *l);
    bool (*next)(struct lot *l, uint64_t *unit);
    struct lot_account (*account)(const struct lot_sizes *s, int64_t steps);
} ways[] = {
    [PRIVACY_SAMPLING_POISSON] = {no_bins, poisson_check, poisson_first, poisson_following,
                                  poisson_account},
    [PRIVACY_SAMPLING_BALLS] = {balls_bins, balls_check, balls_first, next_of_bin, balls_account},
    [PRIVACY_SAMPLING_CYCLIC] = {cyclic_bins, cyclic_check, cyclic_first, cyclic_following,
                                 cyclic_account},
    [PRIVACY_SAMPLING_FIXED] = {no_bins, poisson_check, fixed_first, fixed_following,
                                fixed_account}};

uint64_t lot_bins(enum privacy_sampling how, const struct lot_sizes *s)
{
    return ways[how].bins(s);
}

enum err lot_check(enum privacy_sampling how, const struct lot_sizes *s)
{
    return ways[how].check(s);
}

struct lot_account lot_account(enum privacy_sampling how, const struct lot_sizes *s, int64_t steps)
{
    return ways[how].account(s, steps);
}

void lot_begin(struct lot *l, const struct lot_options *o)
{
    ASSERT(o->sizes.records == o->units->count);
    ASSERT(o->sizes.expected > 0 && o->sizes.expected < o->sizes.records);
    *l = (struct lot){.o = *o};
    ways[o->how].first(l);
}

bool lot_next(struct lot *l, uint64_t *unit)
{
    return ways[l->o.how].next(l, unit);
}

/* Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S. Stream 0 is that of the units. */
size_t lot_windows(const struct lot *l, uint64_t unit, size_t most, uint64_t *windows)
{
    uint64_t left = units_windows(l->o.units, unit), i = 0;
    size_t wanted = left < most ? (size_t)left : most, count = 0;
    struct chacha c = chacha_stream(l->o.key, unit + 1);
    for (; count < wanted; i++, left--)
        if (left == wanted - count || chacha_below(&c, left) < wanted - count)
            windows[count++] = units_window(l->o.units, unit, i);
    return count;
}
