/* SPDX-License-Identifier: Apache-2.0 */
/* What a site has trained for each round, as its contributions say: one for each parent, since a
 * round that is given up (docs/protocol.md 3.4) brings the round after it another one. Which of
 * them count is known at the end, from the history that the site stands on.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "tests/sim/sim_own.h"

enum { FIXED_BITS = 100 };

static struct sim_made *made_find(const struct sim_node *n, unsigned f, uint64_t round,
                                  const struct digest *parent, bool carried)
{
    for (struct sim_made *m = n->made; m; m = m->next)
        if (m->fragment == f && m->round == round && m->carried == carried && !m->lost &&
            (!parent || digest_equal(&m->parent, parent)))
            return m;
    return NULL;
}

struct sim_made *sim_made_newest(const struct sim_node *n, unsigned f, uint64_t round)
{
    return made_find(n, f, round, NULL, false);
}

struct sim_made *sim_made(const struct sim_node *n, unsigned f, uint64_t round,
                          const struct digest *parent)
{
    return made_find(n, f, round, parent, false);
}

struct sim_made *sim_made_add(struct sim_node *n, unsigned f, uint64_t round,
                              const struct digest *parent, bool carried)
{
    struct sim *s = n->sim;
    struct sim_made *m = carried ? made_find(n, f, round, parent, true) : NULL;
    if (m) /* of a commit that a crash has kept from its end */
        return m;
    m = arena_alloc(&s->arena, sizeof *m);
    ASSERT(m);
    *m = (struct sim_made){.next = n->made, .fragment = f, .round = round, .parent = *parent};
    m->carried = carried;
    m->trained = arena_array(&s->arena, s->fragments.f[f].elements, sizeof *m->trained);
    ASSERT(m->trained);
    n->made = m;
    return m;
}

/* The same work for another parent: as much, up to the rounding of one sum in f32. */
void sim_made_compare(struct sim_node *n, const struct sim_made *before,
                      const struct sim_made *after)
{
    struct sim *s = n->sim;
    for (size_t i = 0; i < s->fragments.f[after->fragment].elements && !s->clock.halted; i++) {
        double was = ldexp((double)before->trained[i], -FIXED_BITS);
        double is = ldexp((double)after->trained[i], -FIXED_BITS);
        if (fabs(was - is) > 1e-5)
            sim_violate(
                s, "site %s round %" PRIu64 " element %zu: trained %g, and on another parent %g",
                n->name, after->round, i, was, is);
    }
}

/* A state is written: without a contribution to its round, what was withdrawn of it is in the
 * residual. */
void sim_made_carried(struct sim_node *n, unsigned f, uint64_t round, const uint8_t *state,
                      size_t size)
{
    struct sim *s = n->sim;
    const struct outer_state_fragment *at = &n->replica.state[f];
    size_t elements = s->fragments.f[f].elements, left;
    char path[64];
    snprintf(path, sizeof path, "withdrawn/%u/%" PRIu64, f, round);
    const struct sim_made *before = sim_made_newest(n, f, round);
    if (at->round != round || !before || sim_made(n, f, round, &at->manifest) ||
        !env_faulty_look(&n->env, path, &left))
        return;
    const uint8_t *residual = state + size - elements * sizeof(float);
    residual -= at->discarded ? elements * sizeof(double) : 0;
    struct sim_made *m = sim_made_add(n, f, round, &at->manifest, true);
    for (size_t i = 0; i < elements; i++) {
        float value;
        memcpy(&value, residual + i * sizeof value, sizeof value);
        m->trained[i] = sim_fixed_of(s, value) - sim_fixed_of(s, at->residual[i]);
    }
    sim_made_compare(n, before, m);
}

/* Of the rounds up to `rounds` of this history, into n->trained. */
void sim_made_count(struct sim_node *n, const struct sim_aggregator *a, unsigned f, uint64_t rounds)
{
    struct sim *s = n->sim;
    size_t elements = s->fragments.f[f].elements;
    sim_fixed *trained = n->trained + s->first[f];
    memset(trained, 0, elements * sizeof *trained);
    for (uint64_t t = 0; t < rounds; t++) {
        struct digest parent =
            t ? manifest_digest(&a->commits[f][t - 1]->manifest) : (struct digest){0};
        const struct sim_made *m = made_find(n, f, t, &parent, false);
        m = m ? m : made_find(n, f, t, &parent, true);
        if (!manifest_site(&a->commits[f][t]->manifest, n->index)) /* removed: given up */
            continue;
        if (!m && sim_made_newest(n, f, t) && !n->void_books)
            sim_violate(s, "site %s fragment %u: its work of round %" PRIu64 " is in no book",
                        n->name, f, t);
        for (size_t i = 0; m && i < elements; i++)
            trained[i] += m->trained[i];
    }
}

/* What this directory has sent, of any parent. */
static struct codec_payload sent_as(const struct sim_node *n, unsigned f, uint64_t round,
                                    const struct digest *payload)
{
    const struct codec_payload *first = &n->payload[f][round];
    struct digest d = first->data ? digest_of(first->data, first->size_bytes) : (struct digest){0};
    if (first->data && digest_equal(&d, payload))
        return n->sim->o.masked ? n->plain[f][round] : *first;
    for (const struct sim_offer *o = n->offers; o; o = o->next)
        if (digest_equal(&o->digest, payload))
            return o->payload;
    return (struct codec_payload){NULL, 0};
}

bool sim_made_included(struct sim_node *n, struct sim_aggregator *a, unsigned f, uint64_t rounds,
                       sim_fixed *included)
{
    struct sim *s = n->sim;
    for (uint64_t t = 0; t < rounds; t++) {
        const struct manifest *m = &a->commits[f][t]->manifest;
        const struct manifest_entry *e = manifest_site(m, n->index);
        if (!e || !e->included)
            continue;
        struct codec_payload sent = sent_as(n, f, t, &e->payload);
        if (!sent.data)
            return false;
        struct arena scratch = arena_make(0);
        float *values = sim_decoded(s, a, f, t, sent, a->commits[f][t]->grid, &scratch);
        for (size_t i = 0; i < s->fragments.f[f].elements; i++)
            included[s->first[f] + i] += sim_fixed_of(s, (m->scaled ? e->factor : 1) * values[i]);
        arena_free(&scratch);
    }
    return true;
}
