#include "inner/data/lot.h"

/* ---- Poisson: each unit by a coin of its own ---- */
static void poisson_first(struct lot *d)
{
    d->poisson = poisson_begin(d->o.key, d->o.units->count, d->o.expected);
}

static bool poisson_following(struct lot *d, uint64_t *unit)
{
    return poisson_next(&d->poisson, unit);
}

/* ---- fixed: the order of a run without privacy ---- */
static void fixed_first(struct lot *d)
{
    d->next = d->o.index * d->o.expected;
    d->end = d->next + d->o.expected;
}

static bool fixed_following(struct lot *d, uint64_t *unit)
{
    if (d->next == d->end)
        return false;
    *unit = loader_order_of(d->o.loader, d->o.units->count, d->next++);
    return true;
}

static const struct {
    void (*first)(struct lot *d);
    bool (*next)(struct lot *d, uint64_t *unit);
    bool amplifies;
} ways[] = {[PRIVACY_SAMPLING_POISSON] = {poisson_first, poisson_following, true},
            [PRIVACY_SAMPLING_FIXED] = {fixed_first, fixed_following, false}};

void lot_begin(struct lot *d, const struct lot_options *o)
{
    ASSERT(o->expected > 0 && o->expected < o->units->count);
    *d = (struct lot){.o = *o};
    ways[o->how].first(d);
}

bool lot_next(struct lot *d, uint64_t *unit)
{
    return ways[d->o.how].next(d, unit);
}

/* Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S. Stream 0 is that of the units. */
size_t lot_windows(const struct lot *d, uint64_t unit, size_t most, uint64_t *windows)
{
    uint64_t left = units_windows(d->o.units, unit), i = 0;
    size_t wanted = left < most ? (size_t)left : most, count = 0;
    struct chacha c = chacha_stream(d->o.key, unit + 1);
    for (; count < wanted; i++, left--)
        if (left == wanted - count || chacha_below(&c, left) < wanted - count)
            windows[count++] = units_window(d->o.units, unit, i);
    return count;
}

bool lot_amplifies(enum privacy_sampling how)
{
    return ways[how].amplifies;
}
