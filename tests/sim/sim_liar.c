/* SPDX-License-Identifier: Apache-2.0 */
/* An authorised site that lies: values, scales, weights and sizes that no training makes, other
 * bytes for a round, wrong digests, parents, rounds and terms, states of no replica, two
 * processes at once; one after the other, at every round it finds. None may get a receipt, none may
 * stop the others (docs/protocol.md 3.2, 3.10), and the third refused contribution ends in
 * quarantine (3.12). Now and then it contributes what is in order, so that it has something to
 * contradict.
 */
#include <inttypes.h>
#include <float.h>
#include <stdio.h>
#include <string.h>
#include "outer/identity/signed.h"
#include "tests/sim/sim_own.h"

enum { PAUSE_MAX_MS = 4000, LIES_MAX = 40 }; /* a restart forgets fewer than three of them */
/* X(LIE, the answer; NONE: any but a receipt) */
#define LIE_LIST(X)                                                                                \
    X(LIE_WEIGHT, ROUND_NONE)                                                                      \
    X(LIE_VALUES, ROUND_NONE)                                                                      \
    X(LIE_BITS, ROUND_NONE)                                                                        \
    X(LIE_CODE, ROUND_NONE)                                                                        \
    X(LIE_NAN, ROUND_NONE)                                                                         \
    X(LIE_SIZE, ROUND_NONE)                                                                        \
    X(LIE_DIGEST, ROUND_NONE)                                                                      \
    X(LIE_PARENT, ROUND_CONFLICT)                                                                  \
    X(LIE_LATER, ROUND_CONFLICT)                                                                   \
    X(LIE_TERM, ROUND_CONFLICT)                                                                    \
    X(LIE_OTHER, ROUND_CONFLICT)                                                                   \
    X(LIE_TWIN, ROUND_CONFLICT)                                                                    \
    X(LIE_NAME, ROUND_DENIED)                                                                      \
    X(LIE_STATE, ROUND_NONE)                                                                       \
    X(LIE_NOT, ROUND_RECEIPT)
enum lie {
#define X(lie, outcome) lie,
    LIE_LIST(X)
#undef X
        LIES
};

static struct wire_head liar_head(const struct sim_node *n, const struct sim_liar *l)
{
    const struct sim *s = n->sim;
    struct wire_head h = {.config = digest_of(s->canonical, strlen(s->canonical)),
                          .term = l->term,
                          .incarnation = l->incarnation,
                          .instance = l->instance};
    snprintf(h.run, sizeof h.run, "sim");
    snprintf(h.site, sizeof h.site, "%s", n->name);
    return h;
}

/* As a process that was started anew: it may offer other bytes. False: no answer, or `excluded`. */
static bool liar_hello(struct sim_node *n, struct sim_liar *l)
{
    struct sim *s = n->sim;
    static struct wire_hello m;
    static struct wire_hello_answer a;
    l->incarnation++;
    l->instance = 1 + n->index;
    m = (struct wire_hello){.head = liar_head(n, l),
                            .major = WIRE_MAJOR,
                            .config = s->canonical,
                            .fragment_count = s->o.fragments};
    a = (struct wire_hello_answer){.outcome = ROUND_NONE};
    if (n->signer.signer.ops->certificate(&n->signer.signer, m.identity, &m.identity_bytes) !=
        ERR_OK)
        return false;
    l->excluded =
        n->link.link.ops->hello(&n->link.link, &m, &a) == ERR_OK && a.outcome == ROUND_EXCLUDED;
    if (!a.term)
        return false;
    l->term = a.term;
    return true;
}

/* Is there something to lie about in this codec's payload? */
static bool lie_fits(enum lie lie, enum codec_kind kind)
{
    return !(lie == LIE_BITS && (kind == CODEC_SIGN || kind == CODEC_E3M0)) && /* any bits */
           !(lie == LIE_CODE && kind == CODEC_TOPK) &&                         /* no block codes */
           !(lie == LIE_NAN && kind != CODEC_F32 && kind != CODEC_BF16);       /* integers */
}

/* The payload of this lie, on the aggregator's own grid. */
static uint8_t *lie_make(struct sim *s, unsigned f, enum lie lie, struct wire_contribution *m,
                         struct arena *a)
{
    const struct outer_state *replica = &s->aggregator[0].replica;
    const struct codec *c = codec_get((enum codec_kind)m->codec);
    size_t n = s->fragments.f[f].elements, bytes;
    float *z = arena_array(a, n, sizeof *z);
    uint8_t *payload = arena_alloc(a, c->payload_max(c, n));
    ASSERT(z && payload);
    for (size_t i = 0; i < n; i++)
        z[i] = lie == LIE_OTHER        ? -0.25f
               : lie != LIE_VALUES     ? 0.25f
               : c->kind == CODEC_TOPK ? 1e6f
                                       : 3.3e38f;
    if (c->encode(
            c, &(struct codec_call){.work = s->work, .grid = replica->state[f].codes, .count = n},
            payload, &bytes, z, z) != ERR_OK)
        return NULL;
    if (lie == LIE_BITS)
        memset(payload + bytes - 8, 0xff, 8);
    else if (lie == LIE_CODE)
        payload[0] = 254;
    else if (lie == LIE_NAN)
        memset(payload + bytes - 8, 0x7f, 8), memset(payload + bytes - 2, 0xff, 2);
    m->payload_bytes = bytes;
    m->payload = digest_of(payload, bytes);
    m->weight = lie == LIE_WEIGHT ? FLT_MAX : 1;
    return payload;
}

/* What is wrong with the header alone. */
static void lie_head(struct wire_contribution *m, enum lie lie)
{
    if (lie == LIE_SIZE)
        m->payload_bytes = UINT64_MAX / 2;
    if (lie == LIE_SIZE || lie == LIE_DIGEST)
        m->payload.bytes[0] ^= 1;
    else if (lie == LIE_PARENT)
        m->parent.bytes[0] ^= 1;
    else if (lie == LIE_LATER)
        m->round += 1000000;
    else if (lie == LIE_TERM)
        m->head.term += 1000000;
    else if (lie == LIE_TWIN)
        m->head.instance += 1000;
    else if (lie == LIE_NAME)
        snprintf(m->head.site, sizeof m->head.site, "s0");
}

/* A state of no replica: one site's word ends no process. */
static void liar_report(struct sim_node *n, struct sim_liar *l, unsigned f)
{
    const struct outer_state_fragment *state = &n->sim->aggregator[0].replica.state[f];
    struct wire_report m = {.head = liar_head(n, l),
                            .fragment = f,
                            .round = state->round + sim_below(&n->sim->clock, 3)};
    struct wire_answer a = {.outcome = ROUND_NONE};
    memset(m.state.bytes, 7, sizeof m.state.bytes);
    if (n->link.link.ops->report(&n->link.link, &m, &a) == ERR_OK && a.outcome == ROUND_CURRENT)
        sim_violate(n->sim, "site %s reports a state of no replica, and is believed", n->name);
}

/* The same bytes again have a receipt, other ones a conflict. What came of another round, of an
 * aggregator that has started since or of one whose disk is full proves nothing. */
static void liar_answered(struct sim_node *n, struct sim_liar *l, enum lie lie,
                          const struct wire_contribution *m, enum round_outcome outcome)
{
    static const enum round_outcome expected[] = {
#define X(lie, outcome) outcome,
        LIE_LIST(X)
#undef X
    };
    struct sim *s = n->sim;
    bool honest = lie == LIE_NOT || lie == LIE_OTHER; /* the first bytes of a round are in order */
    bool other = expected[lie] != ROUND_NONE && outcome != expected[lie];
    s->r->lies_refused += outcome == ROUND_INVALID;
    l->in_a_row = outcome == ROUND_RECEIPT ? 0 : l->in_a_row + (outcome == ROUND_INVALID);
    s->r->lies_accepted += outcome == ROUND_RECEIPT;
    if (l->in_a_row > LIES_MAX && s->o.clip == 0)
        sim_violate(s, "site %s still lies, and is not in quarantine", n->name);
    if (outcome == ROUND_RECEIPT && !honest)
        sim_violate(s, "lie %d of site %s has a receipt for fragment %u round %" PRIu64, (int)lie,
                    n->name, m->fragment, m->round);
    if (other && !honest && outcome == ROUND_RESUME)
        sim_violate(s, "lie %d of site %s: asked for its bytes", (int)lie, n->name);
}

static void liar_contribute(struct sim_node *n, struct sim_liar *l, unsigned f, enum lie lie)
{
    struct sim *s = n->sim;
    const struct outer_state *replica = &s->aggregator[0].replica;
    const struct outer_state_fragment *state = &replica->state[f];
    struct arena a = arena_make(0);
    struct wire_answer answer = {.outcome = ROUND_NONE};
    struct wire_contribution m = {.head = liar_head(n, l),
                                  .fragment = f,
                                  .round = state->round,
                                  .codec = (uint32_t)outer_state_codec(replica, f),
                                  .parent = state->manifest,
                                  .grid = outer_state_grid(replica, f)};
    bool over = state->round >= schedule_rounds(&s->schedule, f);
    uint8_t *payload =
        !over && lie_fits(lie, (enum codec_kind)m.codec) ? lie_make(s, f, lie, &m, &a) : NULL;
    bool made = payload != NULL;
    if (made) {
        lie_head(&m, lie);
        made = signed_header_sign(&n->signer.signer, &m) == ERR_OK;
    }
    if (made && n->link.link.ops->contribute(&n->link.link, &m, payload, &answer) == ERR_OK)
        liar_answered(n, l, lie, &m, answer.outcome);
    arena_free(&a);
}

static bool others_done(const struct sim *s)
{
    bool done = true;
    for (unsigned i = 0; i < s->o.sites; i++)
        done = done && (s->node[i].liar || s->node[i].done);
    return done;
}

static bool liar_leave(struct sim_node *n, struct sim_liar *l)
{
    struct wire_leave m = {.head = liar_head(n, l)};
    struct wire_answer a = {.outcome = ROUND_NONE};
    return n->link.link.ops->leave(&n->link.link, &m, &a) == ERR_OK && a.outcome == ROUND_CURRENT;
}

void sim_liar_run(struct sim_node *n)
{
    struct sim *s = n->sim;
    struct sim_liar l = {.incarnation = 0};
    link_sim_open(&n->link, &n->route, &n->env, &n->net, "sim", n->name);
    while (!s->clock.halted && !n->over) {
        sim_sleep(&s->clock, s->clock.now_ms + 1 + sim_below(&s->clock, PAUSE_MAX_MS), &n->env);
        if (n->env.disk.dead)
            env_faulty_restart(&n->env);
        if (!liar_hello(n, &l)) {
            if (l.excluded && others_done(s))
                return;
            continue;
        }
        if (others_done(s)) { /* a second delivery of its hello would undo the leave */
            sim_sleep(&s->clock, s->clock.now_ms + LINK_SIM_TWICE_MS, &n->env);
            if (liar_leave(n, &l))
                return;
        }
        unsigned f = (unsigned)sim_below(&s->clock, s->o.fragments);
        enum lie lie = (enum lie)sim_below(&s->clock, LIES);
        if (lie == LIE_STATE && s->aggregator[0].server.up)
            liar_report(n, &l, f);
        else if (s->aggregator[0].server.up)
            liar_contribute(n, &l, f, lie);
    }
}
