/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of secure aggregation at the aggregator: setup, announce, sign, reveal; and what a poll
 * asks a site for (docs/privacy-methods.md). */
#include "outer/aggregator/aggregator_masks_own.h"
#include <stdio.h>
#include <string.h>
#include "kernels/base/bytes.h"
#include "outer/protocol/mutant.h"

static enum wire_mask_step step_wanted(const struct aggregator *a, unsigned fragment, unsigned site)
{
    const struct seal_aggregator *s = &masks_of(a)->seal[fragment];
    if (!MUTANT(PAIR_UNASKED) && aggregator_masks_setup_wants(a, site))
        return WIRE_MASK_SETUP;
    if (!aggregator_masks_sealed(a, fragment) || !set_has(&s->seal.s, site))
        return WIRE_MASK_NONE;
    if (!set_has(&s->have_signature, site))
        return WIRE_MASK_SIGN;
    return seal_aggregator_signed(s) && !set_has(&s->have_reveal, site) ? WIRE_MASK_REVEAL
                                                                        : WIRE_MASK_NONE;
}

static const char *masks_missing(const struct aggregator *a, unsigned fragment, struct set *missing)
{
    const struct seal_aggregator *s = &masks_of(a)->seal[fragment];
    if (!aggregator_masks_sealed(a, fragment))
        return aggregator_masks_unstated(a, fragment, missing) ? "public key" : NULL;
    bool all = seal_aggregator_signed(s);
    *missing = set_without(&s->seal.s, all ? &s->have_reveal : &s->have_signature);
    return all ? "mask" : "signature";
}

/* ---- the calls ---- */

static void masks_refuse(struct wire_mask_answer *answer, const char *text)
{
    aggregator_say(&answer->answer, ROUND_INVALID, "%s", text);
}

static void step_announce(struct aggregator *a, const struct wire_mask *m,
                          struct wire_mask_answer *answer)
{
    struct bytes_writer w = bytes_writer(answer->body, sizeof answer->body);
    if (m->round != a->core.f[m->fragment].round) {
        aggregator_say(&answer->answer, ROUND_BEHIND, "not the round in flight");
        return;
    }
    uint32_t sites = aggregator_roster(a, m->fragment)->count;
    a->fragment[m->fragment].asked = m->round + 1;
    bytes_put_u32(&w, aggregator_roster(a, m->fragment)->version);
    bytes_put_u32(&w, sites);
    const struct set u = aggregator_masks_announced(a, m->fragment);
    seal_set_write(&w, &a->core.f[m->fragment].members, sites);
    seal_set_write(&w, &u, sites);
    answer->answer.outcome = ROUND_NONE;
    answer->body_bytes = bytes_size(&w);
}

/* The seal of this round, or why there is none to answer. */
static struct seal_aggregator *step_seal(struct aggregator *a, const struct wire_mask *m,
                                         struct wire_mask_answer *answer)
{
    bool now = m->round == a->core.f[m->fragment].round;
    if (now && aggregator_masks_sealed(a, m->fragment))
        return &masks_of(a)->seal[m->fragment];
    aggregator_say(&answer->answer, now ? ROUND_PENDING : ROUND_BEHIND,
                   now ? "not sealed yet" : "not the round in flight");
    return NULL;
}

static void answer_seal(struct wire_mask_answer *answer, enum seal_answer said)
{
    answer->answer.outcome = said == SEAL_ok || said == SEAL_again ? ROUND_NONE
                             : said == SEAL_not_ready              ? ROUND_PENDING
                             : said == SEAL_no_memory              ? ROUND_FULL
                                                                   : ROUND_INVALID;
    snprintf(answer->answer.text, sizeof answer->answer.text, "%s: %s", seal_answer_name(said),
             seal_answer_text(said));
}

/* What a site needs for a step: the seal; or seal and signatures, once all are there. Bytes
 * written; 0: not yet. */
static size_t step_body(const struct seal_aggregator *s, enum wire_mask_step step, uint8_t *out,
                        size_t size)
{
    struct bytes_writer w = bytes_writer(out, size);
    uint8_t one[SEAL_SIGNATURE_BYTES];
    if (step == WIRE_MASK_REVEAL && !seal_aggregator_signed(s))
        return 0;
    if (step == WIRE_MASK_REVEAL)
        bytes_put_u32(&w, (uint32_t)s->size_bytes);
    bytes_put(&w, s->bytes, s->size_bytes);
    bytes_put(&w, s->signature, SIGNER_BYTES);
    for (unsigned i = 0; step == WIRE_MASK_REVEAL && i < set_count(&s->seal.s); i++) {
        seal_signature_write(&s->signatures[i], one);
        bytes_put(&w, one, sizeof one);
    }
    ASSERT(!w.bad);
    return bytes_size(&w);
}

static void masks_poll(const struct aggregator *a, unsigned fragment, unsigned site,
                       struct wire_poll_answer *out)
{
    out->wants = step_wanted(a, fragment, site);
    if (out->wants != WIRE_MASK_NONE)
        out->body_bytes =
            step_body(&masks_of(a)->seal[fragment], out->wants, out->body, sizeof out->body);
}

static void answer_body(const struct seal_aggregator *s, enum wire_mask_step step,
                        struct wire_mask_answer *answer)
{
    answer->body_bytes = step_body(s, step, answer->body, sizeof answer->body);
    answer->answer.outcome = ROUND_NONE;
    if (!answer->body_bytes)
        aggregator_say(&answer->answer, ROUND_PENDING, "not signed by all sites yet");
}

static void step_sign(struct aggregator *a, const struct wire_mask *m,
                      struct wire_mask_answer *answer, unsigned site)
{
    struct seal_aggregator *s = step_seal(a, m, answer);
    struct seal_context c = aggregator_masks_context(a, m->fragment);
    struct seal_signature x;
    if (!s)
        return;
    if (!m->body_bytes) {
        answer_body(s, WIRE_MASK_SIGN, answer);
        return;
    }
    enum seal_answer said = seal_signature_read(&x, m->body, m->body_bytes);
    if (said == SEAL_ok)
        said = x.site == site ? seal_aggregator_signature(s, &c, a->o->signer, &x) : SEAL_malformed;
    answer_seal(answer, said);
}

static void step_reveal(struct aggregator *a, const struct wire_mask *m,
                        struct wire_mask_answer *answer, unsigned site)
{
    struct seal_aggregator *s = step_seal(a, m, answer);
    struct seal_seed seeds[SET_MAX];
    struct seal_reveal v = {.seeds = seeds};
    if (s && !m->body_bytes) {
        answer_body(s, WIRE_MASK_REVEAL, answer);
    } else if (s) {
        enum seal_answer said = seal_reveal_read(&v, m->body, m->body_bytes);
        if (said == SEAL_ok)
            said = v.site == site ? seal_aggregator_reveal(s, &v) : SEAL_malformed;
        answer_seal(answer, said);
    }
    cipher_wipe(seeds, sizeof seeds);
    cipher_wipe(&v, sizeof v);
}

static void masks_call(struct aggregator *a, unsigned site, const struct wire_mask *m,
                       struct wire_mask_answer *answer)
{
    if (m->step == WIRE_MASK_SETUP)
        aggregator_masks_setup(a, site, m, answer);
    else if (m->step == WIRE_MASK_ANNOUNCE)
        step_announce(a, m, answer);
    else if (m->step == WIRE_MASK_SIGN)
        step_sign(a, m, answer, site);
    else if (m->step == WIRE_MASK_REVEAL)
        step_reveal(a, m, answer, site);
    else
        masks_refuse(answer, "no step of secure aggregation");
}

const struct aggregator_sums aggregator_sums_masked = {
    .open = aggregator_masks_open,
    .close = aggregator_masks_close,
    .read = aggregator_masks_read,
    .restore = aggregator_masks_restore,
    .again = aggregator_masks_again,
    .recovered = aggregator_masks_recovered,
    .records = aggregator_masks_records,
    .hello = aggregator_masks_hello,
    .poll = masks_poll,
    .mask = masks_call,
    .payload_max = aggregator_masks_payload_bytes,
    .masked_bytes = aggregator_masks_payload_bytes,
    .header = aggregator_masks_header,
    .missing = masks_missing,
    .ready = aggregator_masks_ready,
    .sum = aggregator_masks_sum,
    .over = aggregator_masks_over,
    .committed = aggregator_masks_committed,
    .added = aggregator_masks_added,
    .apart = aggregator_masks_apart,
    .unpaired = aggregator_masks_unpaired};
