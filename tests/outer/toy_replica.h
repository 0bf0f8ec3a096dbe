/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOY_REPLICA_H
#define TOY_REPLICA_H
/* What tests of the aggregator set up alike: the device, the initial slab of a toy table, a replica
 * of the outer state that begins or is loaded, and a site's payload of exact numbers.
 */
#include <stdlib.h>
#include "kernels/base/log.h"
#include "outer/store/outer_state.h"
#include "tests/outer/toy.h"

static inline enum err toy_device(struct dev **cpu, struct codec_work **work)
{
    struct dev_options o = {.kind = "cpu", .model_type = "f32", .threads = 1};
    TRY(dev_open(cpu, &o));
    return codec_open(work, *cpu);
}

/* Numbers k/64 in all parameters, zeros in the gaps. NULL: out of memory. */
static inline float *toy_slab(const struct table *t, struct arena *a)
{
    float *slab = arena_array(a, t->elements, sizeof *slab);
    for (size_t i = 0; slab && i < t->elements; i++)
        slab[i] = toy_used(t, i) ? (float)(i % 129) / 64 - 1 : 0;
    return slab;
}

/* Tests that provoke refusals need not print them. */
static inline void toy_log_drop(void *self, enum log_level level, const char *line)
{
    (void)self, (void)level, (void)line;
}

static inline void toy_quiet(void)
{
    log_to(toy_log_drop, NULL);
}

/* A table of one layer as one fragment, its slab and its device. */
static inline void toy_whole(struct table *t, struct fragments *f, float **slab, struct dev **cpu,
                             struct codec_work **work, struct arena *a)
{
    static struct tensor tensors[TOY_TENSORS_MAX];
    *t = toy_table(tensors, 1);
    *slab = toy_slab(t, a);
    ASSERT(*slab && toy_device(cpu, work) == ERR_OK);
    ASSERT(fragment_make(f, t, &(struct fragment_plan){.count = 1}, a) == ERR_OK);
}

/* o: all but `outer`, which is momentum with 0.7 and 0.9. */
static inline enum err toy_replica(struct outer_state *m, struct env *w, struct dev *cpu,
                                   struct outer_state_options o, const float *slab,
                                   struct arena *perm)
{
    TRY(outer_opt_make(&o.outer, OUTER_OPT_MOMENTUM, 0.7f, 0.9f));
    TRY(outer_state_open(m, w, cpu, &o, perm));
    return outer_state_begun(m) ? outer_state_load(m) : outer_state_begin(m, slab);
}

/* A site's encoded delta for the replica's present round: numbers k/64 that differ by site,
 * fragment and round. The caller frees it. */
static inline uint8_t *toy_payload(const struct outer_state *m, struct codec_work *work,
                                   unsigned fragment, unsigned site, size_t *n)
{
    const struct outer_state_fragment *state = &m->state[fragment];
    size_t count = m->fragments->f[fragment].elements;
    const struct codec *c = codec_get(outer_state_codec(m, fragment));
    float *z = malloc(count * sizeof *z), *residual = malloc(count * sizeof *z);
    uint8_t *payload = malloc(c->payload_max(c, count));
    ASSERT(z && residual && payload);
    for (size_t k = 0; k < count; k++)
        z[k] = (float)((int)((k * 7 + site * 13 + fragment * 3 + state->round * 5) % 97) - 48) / 64;
    struct codec_call call = {.work = work,
                              .grid = state->codes,
                              .count = count,
                              .view = &m->fragments->f[fragment].view};
    ASSERT(c->encode(c, &call, payload, n, residual, z) == ERR_OK);
    free(z);
    free(residual);
    return payload;
}

#endif
