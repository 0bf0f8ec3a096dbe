/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAST_H
#define CAST_H
/* The sites of a run in memory, for the tests of this folder: identity keys of the simulator, pair
 * keys between all of them, and one round of secure aggregation over them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/rng.h"
#include "outer/masks/seal_aggregator.h"
#include "outer/masks/seal_site.h"
#include "tests/sim/signer_sim.h"

enum { CAST_MAX = 64 };
struct cast {
    unsigned n, fragments;
    uint64_t seed;
    struct signer_sim signer[CAST_MAX], aggregator;
    struct signer_key identity[CAST_MAX];
    struct keys *keys[CAST_MAX];
    struct seal_site *site[CAST_MAX];
    struct seal_context context;
};

/* Secrets of a test: SHA-256 of what they are for. */
static inline struct cipher_key cast_secret(uint64_t seed, const char *what, uint64_t i)
{
    char text[96];
    struct cipher_key k;
    int n = snprintf(text, sizeof text, "%llu %s %llu", (unsigned long long)seed, what,
                     (unsigned long long)i);
    struct digest d = digest_of(text, (size_t)n);
    memcpy(k.bytes, d.bytes, sizeof k.bytes);
    return k;
}

static inline struct set cast_all(unsigned n)
{
    struct set s = {0};
    for (unsigned i = 0; i < n; i++)
        set_put(&s, i, true);
    return s;
}

static inline void cast_sites_open(struct cast *c)
{
    for (unsigned i = 0; i < c->n; i++)
        ASSERT(seal_site_open(&c->site[i], i, c->fragments) == ERR_OK);
}

static inline void cast_sites_close(struct cast *c)
{
    for (unsigned i = 0; i < c->n; i++) {
        seal_site_close(c->site[i]);
        c->site[i] = NULL;
    }
}

static inline void cast_open(struct cast *c, unsigned n, unsigned colluding, unsigned fragments,
                             uint64_t seed)
{
    static const uint64_t first[KEYS_FRAGMENTS_MAX];
    struct keys_statement said[CAST_MAX];
    *c = (struct cast){.n = n, .fragments = fragments, .seed = seed};
    for (unsigned i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "s%u", i);
        signer_sim_open(&c->signer[i], "cast", "site", name);
        c->signer[i].signer.ops->key(&c->signer[i].signer, &c->identity[i]);
    }
    signer_sim_open(&c->aggregator, "cast", "aggregator", "a");
    c->context = (struct seal_context){.run = "cast",
                                       .config = digest_of("configuration", 13),
                                       .roster_version = 1,
                                       .sites = n,
                                       .members = cast_all(n),
                                       .colluding = colluding,
                                       .two_sites = n == 2,
                                       .identity = c->identity};
    c->aggregator.signer.ops->key(&c->aggregator.signer, &c->context.aggregator);
    for (unsigned i = 0; i < n; i++) {
        struct cipher_key own = cast_secret(seed, "x25519", i);
        struct set peers = cast_all(n);
        set_put(&peers, i, false);
        ASSERT(keys_open(&c->keys[i], &(struct keys_options){"cast", i, n, fragments,
                                                             c->context.config}) == ERR_OK);
        ASSERT(keys_setup(c->keys[i], 1, &peers, &own, first) == ERR_OK);
        ASSERT(keys_statement_own(c->keys[i], &c->signer[i].signer, &said[i]) == ERR_OK);
    }
    for (unsigned i = 0; i < n; i++)
        for (unsigned j = 0; j < n; j++)
            if (i != j)
                ASSERT(keys_pair(c->keys[i], &c->signer[i].signer, &c->identity[j], &said[j]) ==
                       KEYS_ok);
    cast_sites_open(c);
}

static inline void cast_close(struct cast *c)
{
    cast_sites_close(c);
    for (unsigned i = 0; i < c->n; i++)
        keys_close(c->keys[i]);
}

/* y of a site: its integers (packed, of layout l) and all masks, in place. */
static inline void cast_mask(const struct cast *c, unsigned site, const struct seal_announce *a,
                             const struct cipher_key *b, uint8_t *words,
                             const struct mask_layout *l)
{
    struct cipher_key seeds[CAST_MAX];
    struct mask_term terms[CAST_MAX];
    ASSERT(seal_site_terms(c->site[site], c->keys[site], a, b, seeds, terms) == SEAL_ok);
    ASSERT(mask_apply(words, l, terms, set_count(&a->u), 1) == ERR_OK);
}

static inline struct seal_signed cast_seal(const struct seal_aggregator *r)
{
    return (struct seal_signed){r->bytes, r->size_bytes, r->signature};
}

#endif
