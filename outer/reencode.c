/* Error feedback at the aggregator. */
#include "outer/reencode.h"
#include <math.h>
#include <string.h>
#include "outer/mutant.h"

void reencode_keep(struct member *m, unsigned fragment)
{
    const struct member_state *s = &m->state[fragment];
    size_t n = m->fragments->f[fragment].elements;
    if (!m->o.reencodes)
        return;
    memcpy(m->spare.residual, s->residual, n * sizeof *s->residual);
    if (s->forgotten)
        memcpy(m->spare.forgotten, s->forgotten, n * sizeof *s->forgotten);
}

/* What is sent and what is kept are together exactly what there was. */
static enum err identity_check(struct member *m, unsigned fragment, const struct codec *c,
                               const struct codec_payload *p)
{
    float *sent = m->spare.theta; /* free until the step */
    size_t n = m->fragments->f[fragment].elements;
    TRY(c->decode(c, m->work, sent, p->data, p->size_bytes, m->state[fragment].codes, n));
    for (size_t i = 0; i < n; i++)
        ASSERT(fabsf(sent[i] + m->spare.residual[i] - m->mean[i]) <= c->slack * fabsf(sent[i]));
    return ERR_OK;
}

/* Random bits of codecs that round so: as the state has them, the same when it is done again. */
static void seed(struct member *m, unsigned fragment)
{
    uint64_t bits;
    memcpy(&bits, m->state[fragment].digest.bytes, sizeof bits);
    codec_seed(m->work, bits, 0, fragment, m->state[fragment].round);
}

enum err reencode_sum(struct member *m, unsigned fragment, uint8_t *aggregate, size_t *size_bytes,
                      const struct codec_payload *payloads, unsigned n, struct arena *scratch)
{
    const struct member_state *s = &m->state[fragment];
    const struct codec *c = codec_get(member_codec(m, fragment));
    size_t count = m->fragments->f[fragment].elements;
    float *z = m->mean, *residual = m->spare.residual;
    uint8_t *made = arena_alloc(scratch, c->payload_max(c, count));
    struct codec_payload p = {.data = made};
    ASSERT(m->o.reencodes);
    TRY_ALLOC(made);
    if (schedule_backs_off(&m->schedule, s->backlog))
        codec_leak(residual, m->spare.forgotten, 0, count);
    TRY(codec_sum(c, m->work, z, m->spare.theta, payloads, n, s->codes, count));
    for (size_t i = 0; i < count; i++)
        z[i] += residual[i];
    seed(m, fragment);
    TRY(c->encode(c, m->work, made, &p.size_bytes, residual, z, s->codes, count));
    TRY(identity_check(m, fragment, c, &p));
    codec_sum_codes(c, made, payloads, n, count);
    if (MUTANT(REENCODED_UNKEPT))
        memset(residual, 0, count * sizeof *residual);
    return c->aggregate(c, m->work, aggregate, size_bytes, &p, 1, count);
}

uint8_t reencode_backlog(const struct member *m, unsigned fragment, const struct manifest *manifest)
{
    size_t n = m->fragments->f[fragment].elements;
    double weight = (double)manifest_weight(manifest);
    if (!m->o.reencodes)
        return 0;
    return codec_backlog(codec_squares(m->spare.residual, NULL, n),
                         codec_squares(m->mean, NULL, n) * weight * weight);
}
