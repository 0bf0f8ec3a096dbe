/* SPDX-License-Identifier: Apache-2.0 */
/* Error feedback at the aggregator. */
#include "outer/store/downlink.h"
#include <string.h>
#include "outer/protocol/mutant.h"

/* The sent values plus the residual are exactly the sum before. */
static enum err downlink_identity_check(struct outer_state *m, unsigned fragment,
                                        const struct codec *c, const struct codec_payload *p)
{
    float *sent = m->next.theta; /* free until the step */
    struct codec_call call = outer_state_call(m, fragment, m->state[fragment].codes);
    bool whole;
    TRY(c->decode(c, &call, sent, p->data, p->size_bytes));
    TRY(codec_adds_up(c, &call, &whole, sent, m->next.residual, m->mean));
    ASSERT(whole);
    return ERR_OK;
}

/* Random bits of codecs that round so: as the state has them, the same when it is done again. */
static void downlink_seed(struct outer_state *m, unsigned fragment)
{
    uint64_t bits;
    memcpy(&bits, m->state[fragment].digest.bytes, sizeof bits);
    codec_seed(m->work, bits, 0, fragment, m->state[fragment].round);
}

enum err downlink_sum(struct outer_state *m, unsigned fragment, uint8_t *aggregate,
                      size_t *size_bytes, const struct downlink_input *in, struct arena *scratch)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    const struct codec *c = codec_get(outer_state_codec(m, fragment));
    size_t count = m->fragments->f[fragment].elements;
    float *z = m->mean, *residual = m->next.residual;
    uint8_t *made = arena_alloc(scratch, c->payload_max(c, count));
    struct codec_payload p = {.data = made};
    struct codec_call call = outer_state_call(m, fragment, s->codes);
    ASSERT(m->o.compresses_downlink);
    TRY_ALLOC(made);
    if (schedule_resets_residual(&m->schedule, s->residual_ratio))
        codec_residual_decay(residual, m->next.discarded, 0, count);
    TRY(codec_sum(c, &call, z, m->next.theta, in->payloads, in->n));
    for (size_t i = 0; i < count; i++)
        z[i] += residual[i];
    downlink_seed(m, fragment);
    TRY(c->encode(c, &call, made, &p.size_bytes, residual, z));
    TRY(downlink_identity_check(m, fragment, c, &p));
    codec_sum_codes(c, made, in->payloads, in->n, count);
    if (MUTANT(REENCODED_UNKEPT))
        memset(residual, 0, count * sizeof *residual);
    return c->aggregate(c, &call, aggregate, size_bytes, &p, 1);
}

enum err downlink_residual_ratio(struct outer_state *m, unsigned fragment,
                                 const struct manifest *manifest, uint8_t *residual_ratio)
{
    size_t n = m->fragments->f[fragment].elements;
    double weight = (double)manifest_weight(manifest), kept, applied;
    *residual_ratio = 0;
    if (!m->o.compresses_downlink)
        return ERR_OK;
    TRY(codec_squares(m->work, &kept, m->next.residual, NULL, n));
    TRY(codec_squares(m->work, &applied, m->mean, NULL, n));
    *residual_ratio = codec_residual_ratio(kept, applied * weight * weight);
    return ERR_OK;
}
