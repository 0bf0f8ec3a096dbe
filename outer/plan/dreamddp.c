/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/plan/dreamddp.h"
#include <stdbool.h>

/* Where the search stands: layers from `first` on are unplaced, `left` iterations are. */
struct place {
    double wait;
    unsigned end; /* layers first..end-1 belong to this iteration */
    bool known;
};
struct search {
    const struct dreamddp_layer *layer;
    unsigned layers, iterations;
    const double *ready; /* backward until this layer's gradient is there, seconds */
    struct place *place; /* [first][left - 1] */
};

static double later_of(double a, double b)
{
    return a > b ? a : b;
}

/* The last iteration takes all that is left. */
static struct place take_all(const struct search *s, unsigned first)
{
    double queue = 0;
    for (unsigned l = first; l < s->layers; l++)
        queue = later_of(queue, s->ready[l]) + s->layer[l].exchange_s;
    double wait = later_of(0, queue - s->ready[s->layers - 1]);
    return (struct place){wait, s->layers, true};
}

static double best_from(struct search *s, unsigned first, unsigned left);

static struct place search_from(struct search *s, unsigned first, unsigned left)
{
    double total = s->ready[s->layers - 1], queue = 0;
    if (left == 1)
        return take_all(s, first);
    for (unsigned l = first; l < s->layers; l++) {
        double end = later_of(queue, s->ready[l]) + s->layer[l].exchange_s;
        if (end <= total) {
            queue = end;
            continue;
        }
        double now = (end - total) + best_from(s, l + 1, left - 1);
        if (l == first) /* at least one layer each */
            return (struct place){now, l + 1, true};
        double later = best_from(s, l, left - 1);
        return now <= later ? (struct place){now, l + 1, true} : (struct place){later, l, true};
    }
    return (struct place){0, s->layers, true};
}

static double best_from(struct search *s, unsigned first, unsigned left)
{
    if (first == s->layers)
        return 0;
    struct place *p = &s->place[(size_t)first * s->iterations + left - 1];
    if (!p->known)
        *p = search_from(s, first, left);
    return p->wait;
}

enum err dreamddp_place(const struct dreamddp_layer *l, unsigned layers, unsigned iterations,
                        unsigned *at, double *wait_s)
{
    struct arena scratch = arena_make(0);
    struct search s = {.layer = l, .layers = layers, .iterations = iterations};
    double *ready = arena_array(&scratch, layers, sizeof *ready);
    ASSERT(layers >= 1 && iterations >= 1);
    s.ready = ready;
    s.place = arena_array(&scratch, (size_t)layers * iterations, sizeof *s.place);
    if (!ready || !s.place) {
        arena_free(&scratch);
        return ERR_MEMORY;
    }
    for (unsigned i = 0; i < layers; i++)
        ready[i] = (i ? ready[i - 1] : 0) + l[i].backward_s;
    *wait_s = best_from(&s, 0, iterations);
    unsigned iteration = 0;
    for (unsigned first = 0; first < layers; iteration++) {
        unsigned end = s.place[(size_t)first * iterations + iterations - iteration - 1].end;
        for (; first < end; first++)
            at[first] = iteration;
    }
    arena_free(&scratch);
    return ERR_OK;
}

void dreamddp_fill(const struct dreamddp_layer *l, unsigned layers, const unsigned *at,
                   unsigned iterations, unsigned *again)
{
    for (unsigned i = 0; i < iterations; i++)
        again[i] = 0;
    for (unsigned first = 0; first < layers; first++) {
        double queue = 0, ready = 0, until = 0;
        if (first && at[first] == at[first - 1])
            continue;
        for (unsigned i = 0; i <= first; i++)
            until += l[i].backward_s;
        for (unsigned i = 0; i < first; i++) {
            ready += l[i].backward_s;
            queue = later_of(queue, ready) + l[i].exchange_s;
            if (queue > until)
                break;
            again[at[first]] = i + 1;
        }
    }
}
