/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/diloco/period.h"

/* Intervals of one length: rounds first.., which end at `begin` + length, `begin` + 2 length, ...
 */
struct stretch {
    uint64_t first, rounds; /* rounds: UINT64_MAX for the last stretch */
    int64_t begin, length;
};

static struct stretch period_stretch_first(const struct period *p)
{
    bool grows = p->growth.rounds > 0 && p->every < p->growth.most;
    return (struct stretch){.rounds = grows ? (uint64_t)p->growth.rounds : UINT64_MAX,
                            .begin = p->offset,
                            .length = p->every};
}

static void period_stretch_next(const struct period *p, struct stretch *s)
{
    s->begin += (int64_t)s->rounds * s->length;
    s->first += s->rounds;
    s->length = s->length <= p->growth.most / p->growth.factor ? s->length * p->growth.factor
                                                               : p->growth.most;
    if (s->length >= p->growth.most)
        s->rounds = UINT64_MAX;
}

static struct stretch stretch_of_round(const struct period *p, uint64_t round)
{
    struct stretch s = period_stretch_first(p);
    while (round - s.first >= s.rounds)
        period_stretch_next(p, &s);
    return s;
}

/* Rounds at the offset and its multiples, by this step. */
static uint64_t bases_by(const struct period *p, int64_t step)
{
    struct stretch s = period_stretch_first(p);
    while (step > s.begin && (uint64_t)((step - s.begin) / s.length) >= s.rounds)
        period_stretch_next(p, &s);
    return s.first + (step > s.begin ? (uint64_t)((step - s.begin) / s.length) : 0);
}

static int64_t base_step(const struct period *p, uint64_t base)
{
    struct stretch s = stretch_of_round(p, base);
    return s.begin + (int64_t)(base - s.first + 1) * s.length;
}

int64_t period_step(const struct period *p, uint64_t round)
{
    uint64_t each = 1 + p->more_count, in = round % each;
    return base_step(p, round / each) + (in ? p->more[in - 1] : 0);
}

uint64_t period_rounds(const struct period *p, int64_t step)
{
    uint64_t bases = bases_by(p, step), more = 0;
    if (!bases || !p->more_count)
        return bases;
    while (more < p->more_count && base_step(p, bases - 1) + p->more[more] <= step)
        more++;
    return (bases - 1) * (1 + p->more_count) + 1 + more;
}

bool period_ends(const struct period *p, int64_t step)
{
    uint64_t rounds = period_rounds(p, step);
    return rounds && period_step(p, rounds - 1) == step;
}

int64_t period_length(const struct period *p, uint64_t round)
{
    uint64_t in = round % (1 + p->more_count);
    if (in)
        return p->more[in - 1] - (in > 1 ? p->more[in - 2] : 0);
    return stretch_of_round(p, round / (1 + p->more_count)).length -
           (p->more_count ? p->more[p->more_count - 1] : 0);
}

int64_t period_shortest(const struct period *p)
{
    int64_t least = period_length(p, 0);
    for (unsigned i = 1; i <= p->more_count; i++) {
        int64_t length = period_length(p, i);
        least = length < least ? length : least;
    }
    return least;
}
