/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/mixture.h"
#include <math.h>
#include <string.h>

__extension__ typedef unsigned __int128 wide;

/* Of n places those of a source with this share, of `left` that the sources from it on have. It
 * grows by 0 or 1 with n, and so does the rest: share <= left. */
static uint64_t part_of(uint64_t n, uint64_t share, uint64_t left)
{
    return left ? (uint64_t)(((wide)n * share + left / 2) / left) : 0;
}

static uint64_t shares_of(const struct mixture_phase *p)
{
    uint64_t all = 0;
    for (size_t i = 0; i < p->count; i++)
        all += p->shares[i];
    return all;
}

static void phase_counts(const struct mixture_phase *p, uint64_t place, uint64_t *counts)
{
    uint64_t n = place - p->from, left = shares_of(p);
    for (size_t i = 0; i < p->count; i++) {
        uint64_t c = part_of(n, p->shares[i], left);
        counts[i] = p->before[i] + c;
        n -= c;
        left -= p->shares[i];
    }
}

/* Weights are of tokens, shares of examples. */
static void phase_make(struct mixture_phase *p, const struct mixture *m, const double *weights,
                       uint64_t from)
{
    double all = 0;
    *p = (struct mixture_phase){.from = from, .count = m->count};
    for (size_t i = 0; i < m->count; i++)
        all += weights[i] / m->sources[i].tokens;
    for (size_t i = 0; i < m->count; i++) {
        double share = weights[i] / m->sources[i].tokens / all;
        p->windows[i] = m->sources[i].windows;
        p->shares[i] = (uint64_t)llround(share * (double)MIXTURE_WHOLE);
        p->shares[i] += weights[i] > 0 && !p->shares[i];
    }
}

void mixture_weights_add(struct mixture_weights *w, uint64_t from, const double *weights)
{
    size_t i = w->count++;
    ASSERT(i < MIXTURE_PHASES_MAX);
    for (; i && w->list[i - 1].from > from; i--)
        w->list[i] = w->list[i - 1];
    w->list[i] = (struct mixture_from){from, weights};
}

static const double *weights_at(const struct mixture_weights *w, uint64_t place)
{
    size_t i = w->count - 1;
    ASSERT(w->count && !w->list[0].from);
    while (w->list[i].from > place)
        i--;
    return w->list[i].weights;
}

/* The phases that begin after this place. Weights that stay the same begin none, so that a
 * restart, which cannot tell, continues alike. */
static void phases_behind(struct mixture *m, const struct mixture_weights *w, uint64_t place)
{
    m->phase_count = 1;
    for (size_t i = 0; i < w->count; i++) {
        const struct mixture_phase *last = &m->phases[m->phase_count - 1];
        struct mixture_phase *next = &m->phases[m->phase_count];
        uint64_t from = w->list[i].from;
        if (from <= place || from <= last->from)
            continue;
        phase_make(next, m, weights_at(w, from), from);
        if (!memcmp(next->shares, last->shares, sizeof next->shares))
            continue;
        phase_counts(last, from, next->before);
        m->phase_count++;
    }
}

void mixture_begin(struct mixture *m, const struct mixture_weights *w)
{
    phase_make(&m->phases[0], m, weights_at(w, 0), 0);
    phases_behind(m, w, 0);
}

static enum err check_sources(const struct mixture *m, const struct mixture_phase *stored)
{
    if (stored->count > m->count || stored->count > MIXTURE_SOURCES_MAX)
        return err_set(ERR_MISMATCH,
                       "data.train has %zu sources, the checkpoint counts %llu: a source may be "
                       "added at the end of the list, and none removed; give one that is no longer "
                       "wanted a small weight",
                       m->count, (unsigned long long)stored->count);
    for (size_t i = 0; i < stored->count; i++)
        if (stored->windows[i] != m->sources[i].windows)
            return err_set(ERR_MISMATCH,
                           "data.train: %s holds %llu examples, and %llu when the checkpoint was "
                           "written: its order would be another; bring the same files back, or add "
                           "the new ones as a source of their own",
                           m->sources[i].name, (unsigned long long)m->sources[i].windows,
                           (unsigned long long)stored->windows[i]);
    return ERR_OK;
}

enum err mixture_resume(struct mixture *m, const struct mixture_weights *w, uint64_t place,
                        const struct mixture_phase *stored, bool *changed)
{
    struct mixture_phase now;
    TRY(check_sources(m, stored));
    if (stored->from > place)
        return err_set(ERR_MISMATCH, "its mixture of sources begins after its step");
    phase_make(&now, m, weights_at(w, place), place);
    *changed = stored->count != m->count || memcmp(stored->shares, now.shares, sizeof now.shares);
    if (*changed)
        phase_counts(stored, place, now.before);
    m->phases[0] = *changed ? now : *stored;
    phases_behind(m, w, place);
    return ERR_OK;
}

const struct mixture_phase *mixture_phase(const struct mixture *m, uint64_t place)
{
    size_t i = m->phase_count - 1;
    while (i && m->phases[i].from > place)
        i--;
    return &m->phases[i];
}

struct mixture_draw mixture_draw(const struct mixture *m, uint64_t place)
{
    const struct mixture_phase *p = mixture_phase(m, place);
    uint64_t n = place - p->from, left = shares_of(p);
    ASSERT(place >= p->from && left > 0);
    for (size_t i = 0;; i++) {
        uint64_t c = part_of(n, p->shares[i], left);
        ASSERT(i < p->count);
        if (part_of(n + 1, p->shares[i], left) > c)
            return (struct mixture_draw){i, p->before[i] + c};
        n -= c;
        left -= p->shares[i];
    }
}

void mixture_counts(const struct mixture *m, uint64_t place, uint64_t counts[MIXTURE_SOURCES_MAX])
{
    const struct mixture_phase *p = mixture_phase(m, place);
    memset(counts, 0, MIXTURE_SOURCES_MAX * sizeof *counts);
    phase_counts(p, place, counts);
}

double mixture_weight(const struct mixture *m, uint64_t place, size_t source)
{
    const struct mixture_phase *p = mixture_phase(m, place);
    double all = 0;
    for (size_t i = 0; i < p->count; i++)
        all += (double)p->shares[i] * m->sources[i].tokens;
    return (double)p->shares[source] * m->sources[source].tokens / all;
}
