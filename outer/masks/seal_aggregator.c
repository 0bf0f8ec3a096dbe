/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/masks/seal_aggregator.h"
#include <stdlib.h>
#include <string.h>

enum seal_answer seal_aggregator_announce(struct seal_aggregator *r, const struct seal_context *c,
                                          const struct seal_announce *a)
{
    unsigned n = set_count(&c->members);
    *r = (struct seal_aggregator){.of = *a, .stage = SEAL_ANNOUNCED};
    if (!set_within(&a->u, &c->members))
        return SEAL_announce_stranger;
    if (set_count(&a->u) < round_threshold(n, c->colluding))
        return SEAL_announce_too_small;
    return n <= 2 && !c->two_sites ? SEAL_announce_two_sites : SEAL_ok;
}

static void seeds_free(struct seal_aggregator *r)
{
    if (r->seeds)
        cipher_secret_free(r->seeds, set_count(&r->seal.s) * r->seeds_each * sizeof *r->seeds);
    r->seeds = NULL;
}

void seal_aggregator_close(struct seal_aggregator *r)
{
    seeds_free(r);
    free(r->signatures);
    free(r->bytes);
    *r = (struct seal_aggregator){.stage = SEAL_ANNOUNCED};
}

void seal_aggregator_abort(struct seal_aggregator *r)
{
    seeds_free(r);
    r->stage = SEAL_ABORTED;
}

enum seal_answer seal_aggregator_accept(struct seal_aggregator *r, unsigned site,
                                        const struct digest *payload)
{
    if (site >= SET_MAX || !set_has(&r->of.u, site))
        return SEAL_contribute_not_announced;
    if (set_has(&r->accepted, site))
        return digest_equal(payload, &r->seal.payload[site]) ? SEAL_again : SEAL_contribute_twice;
    if (r->stage == SEAL_ABORTED)
        return SEAL_contribute_after_abort;
    if (r->stage != SEAL_ANNOUNCED)
        return SEAL_contribute_after_seal;
    set_put(&r->accepted, site, true);
    r->seal.payload[site] = *payload;
    return SEAL_ok;
}

/* ---- the seal ---- */

/* Room for the answers of S. */
static enum seal_answer answers_open(struct seal_aggregator *r)
{
    struct set absent = set_without(&r->of.u, &r->seal.s);
    unsigned n = set_count(&r->seal.s);
    r->seeds_each = 1 + (size_t)set_count(&absent);
    r->signatures = calloc(n, sizeof *r->signatures);
    r->seeds = cipher_secret_alloc(n * r->seeds_each * sizeof *r->seeds);
    return r->signatures && r->seeds ? SEAL_ok : SEAL_no_memory;
}

enum seal_answer seal_aggregator_seal(struct seal_aggregator *r, const struct seal_context *c,
                                      struct signer *signer, uint64_t term)
{
    if (r->stage != SEAL_ANNOUNCED)
        return r->stage == SEAL_ABORTED ? SEAL_seal_after_abort : SEAL_seal_second;
    if (set_count(&r->accepted) < round_threshold(set_count(&c->members), c->colluding))
        return SEAL_seal_set_too_small;
    r->seal.of = r->of;
    r->seal.term = term;
    r->seal.s = r->accepted;
    free(r->bytes);
    r->bytes = malloc(SEAL_BYTES_MAX);
    if (!r->bytes)
        return SEAL_no_memory;
    r->size_bytes = seal_write(c, &r->seal, r->bytes);
    r->digest = digest_of(r->bytes, r->size_bytes);
    if (signer->ops->sign(signer, r->bytes, r->size_bytes, r->signature) != ERR_OK)
        return SEAL_no_memory;
    enum seal_answer answer = answers_open(r);
    if (answer == SEAL_ok)
        r->stage = SEAL_SEALED;
    return answer;
}

enum seal_answer seal_aggregator_restore(struct seal_aggregator *r, const struct seal_context *c,
                                         const uint8_t *bytes, size_t n,
                                         const uint8_t signature[SIGNER_BYTES])
{
    *r = (struct seal_aggregator){.stage = SEAL_ANNOUNCED};
    enum seal_answer answer = seal_read(c, &r->seal, bytes, n);
    if (answer != SEAL_ok)
        return answer;
    if (!set_within(&r->seal.s, &r->seal.of.u) || !set_within(&r->seal.of.u, &c->members))
        return SEAL_seal_not_subset;
    if (set_count(&r->seal.s) < round_threshold(set_count(&c->members), c->colluding))
        return SEAL_seal_set_too_small;
    r->of = r->seal.of;
    r->accepted = r->seal.s;
    r->bytes = malloc(n);
    if (!r->bytes)
        return SEAL_no_memory;
    memcpy(r->bytes, bytes, n);
    r->size_bytes = n;
    r->digest = digest_of(bytes, n);
    memcpy(r->signature, signature, SIGNER_BYTES);
    answer = answers_open(r);
    if (answer == SEAL_ok)
        r->stage = SEAL_SEALED;
    return answer;
}

/* ---- answers of the sites ---- */

/* The how manieth of S a site is. */
static size_t place_of(const struct set *s, unsigned site)
{
    size_t at = 0;
    for (unsigned i = 0; i < site; i++)
        at += set_has(s, i);
    return at;
}

/* Is this an answer to the round's seal, by a site of it? */
static enum seal_answer answer_check(const struct seal_aggregator *r, uint32_t site,
                                     const struct digest *seal)
{
    if (r->stage != SEAL_SEALED)
        return r->stage == SEAL_ABORTED ? SEAL_reveal_after_abort : SEAL_not_ready;
    if (site >= SET_MAX || !set_has(&r->seal.s, site))
        return SEAL_round_unknown;
    return digest_equal(seal, &r->digest) ? SEAL_ok : SEAL_seal_second;
}

enum seal_answer seal_aggregator_signature(struct seal_aggregator *r, const struct seal_context *c,
                                           struct signer *signer, const struct seal_signature *s)
{
    enum seal_answer answer = answer_check(r, s->site, &s->seal);
    if (answer != SEAL_ok)
        return answer;
    if (!seal_signature_holds(s, signer, &c->identity[s->site]))
        return SEAL_seal_signature_missing;
    if (set_has(&r->have_signature, s->site))
        return SEAL_again;
    r->signatures[place_of(&r->seal.s, s->site)] = *s;
    set_put(&r->have_signature, s->site, true);
    return SEAL_ok;
}

bool seal_aggregator_signed(const struct seal_aggregator *r)
{
    return r->stage == SEAL_SEALED && set_count(&r->have_signature) == set_count(&r->seal.s);
}

enum seal_answer seal_aggregator_reveal(struct seal_aggregator *r, const struct seal_reveal *v)
{
    enum seal_answer answer = answer_check(r, v->site, &v->seal);
    if (answer != SEAL_ok)
        return answer;
    if (!seal_aggregator_signed(r))
        return SEAL_not_ready;
    if (set_has(&r->have_reveal, v->site))
        return SEAL_again;
    struct set absent = set_without(&r->of.u, &r->seal.s);
    bool exact = v->count + 1 == r->seeds_each;
    for (uint32_t i = 0; exact && i < v->count; i++) /* their numbers rise: seal_reveal_read */
        exact =
            set_has(&absent, v->seeds[i].site) && (!i || v->seeds[i - 1].site < v->seeds[i].site);
    if (!exact)
        return SEAL_reveal_other_sites;
    struct cipher_key *to = &r->seeds[place_of(&r->seal.s, v->site) * r->seeds_each];
    to[0] = v->b;
    for (uint32_t i = 0; i < v->count; i++)
        to[1 + i] = v->seeds[i].seed;
    set_put(&r->have_reveal, v->site, true);
    return SEAL_ok;
}

bool seal_aggregator_revealed(const struct seal_aggregator *r)
{
    return r->stage == SEAL_SEALED && set_count(&r->have_reveal) == set_count(&r->seal.s);
}

size_t seal_aggregator_term_count(const struct seal_aggregator *r)
{
    return set_count(&r->seal.s) * r->seeds_each;
}

/* Site i of S added PRG(b_i), and PRG(s_ij) for each site j of U that is not in S: with a minus
 * where j < i. All of it is taken off with the other sign. */
void seal_aggregator_terms(const struct seal_aggregator *r, struct mask_term *terms)
{
    struct set absent = set_without(&r->of.u, &r->seal.s);
    const struct cipher_key *seed = r->seeds;
    size_t n = 0;
    ASSERT(seal_aggregator_revealed(r));
    for (unsigned i = 0; i < SET_MAX; i++) {
        if (!set_has(&r->seal.s, i))
            continue;
        terms[n++] = (struct mask_term){.seed = seed++, .minus = true};
        for (unsigned j = 0; j < SET_MAX; j++)
            if (set_has(&absent, j))
                terms[n++] = (struct mask_term){.seed = seed++, .minus = j > i};
    }
    ASSERT(n == seal_aggregator_term_count(r));
}
