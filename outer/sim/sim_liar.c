/* An authorised site that lies: well-formed contributions of values, scales and weights that no
 * training makes, one after the other, at every round it finds. None may get a receipt, none may
 * stop the others (docs/protocol.md 3.10), and the third one ends in quarantine (3.12).
 */
#include <inttypes.h>
#include <float.h>
#include <stdio.h>
#include <string.h>
#include "outer/sim/sim_own.h"

enum { PAUSE_MAX_MS = 4000, LIES_MAX = 40 }; /* a restart forgets fewer than three of them */
enum lie { LIE_WEIGHT, LIE_VALUES, LIE_BITS, LIE_CODE, LIES };

static struct wire_head liar_head(const struct sim_node *n, const struct sim_liar *l)
{
    const struct sim *s = n->sim;
    struct wire_head h = {.config = digest_of(s->canonical, strlen(s->canonical)),
                          .epoch = l->epoch,
                          .incarnation = l->incarnation,
                          .instance = 1 + n->index};
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
    m = (struct wire_hello){.head = liar_head(n, l),
                            .major = WIRE_MAJOR,
                            .config = s->canonical,
                            .fragment_count = s->o.fragments};
    a = (struct wire_hello_answer){.outcome = ROUND_NONE};
    l->excluded =
        n->link.link.ops->hello(&n->link.link, &m, &a) == ERR_OK && a.outcome == ROUND_EXCLUDED;
    if (!a.epoch)
        return false;
    l->epoch = a.epoch;
    return true;
}

/* Is there something to lie about in this codec's payload? */
static bool lie_fits(enum lie lie, enum codec_kind kind)
{
    return !(lie == LIE_BITS && (kind == CODEC_SIGN || kind == CODEC_E3M0)) && /* any bits */
           !(lie == LIE_CODE && kind == CODEC_TOPK);                           /* no block codes */
}

/* The payload of this lie, on the aggregator's own grid. */
static uint8_t *lie_make(struct sim *s, unsigned f, enum lie lie, struct wire_contribution *m,
                         struct arena *a)
{
    const struct codec *c = codec_get((enum codec_kind)m->codec);
    size_t n = s->fragments.f[f].elements, bytes;
    float *z = arena_array(a, n, sizeof *z);
    uint8_t *payload = arena_alloc(a, c->payload_max(c, n));
    ASSERT(z && payload);
    for (size_t i = 0; i < n; i++)
        z[i] = lie != LIE_VALUES ? 0.25f : c->kind == CODEC_TOPK ? 1e6f : 3.3e38f;
    if (c->encode(
            c, &(struct codec_call){.work = s->work, .grid = s->replica.state[f].codes, .count = n},
            payload, &bytes, z, z) != ERR_OK)
        return NULL;
    if (lie == LIE_BITS)
        memset(payload + bytes - 8, 0xff, 8);
    else if (lie == LIE_CODE)
        payload[0] = 254;
    m->payload_bytes = bytes;
    m->payload = digest_of(payload, bytes);
    m->weight = lie == LIE_WEIGHT ? FLT_MAX : 1;
    return payload;
}

static void liar_contribute(struct sim_node *n, struct sim_liar *l, unsigned f, enum lie lie)
{
    struct sim *s = n->sim;
    const struct outer_state_fragment *state = &s->replica.state[f];
    struct arena a = arena_make(0);
    struct wire_answer answer = {.outcome = ROUND_NONE};
    struct wire_contribution m = {.head = liar_head(n, l),
                                  .fragment = f,
                                  .round = state->round,
                                  .codec = (uint32_t)outer_state_codec(&s->replica, f),
                                  .parent = state->manifest,
                                  .grid = outer_state_grid(&s->replica, f)};
    bool over = state->round >= schedule_rounds(&s->schedule, f);
    uint8_t *payload =
        !over && lie_fits(lie, (enum codec_kind)m.codec) ? lie_make(s, f, lie, &m, &a) : NULL;
    if (payload && n->link.link.ops->contribute(&n->link.link, &m, payload, &answer) == ERR_OK) {
        s->r->lies_refused += answer.outcome == ROUND_INVALID;
        if (s->r->lies_refused > LIES_MAX && !s->o.clip)
            sim_violate(s, "site %s still lies, and is not in quarantine", n->name);
        if (answer.outcome == ROUND_RECEIPT)
            sim_violate(s, "lie %d of site %s has a receipt for fragment %u round %" PRIu64,
                        (int)lie, n->name, f, m.round);
    }
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
    link_sim_open(&n->link, &s->server, &n->env, &n->net, "sim", n->name);
    while (!s->clock.halted) {
        sim_sleep(&s->clock, s->clock.now_ms + 1 + sim_below(&s->clock, PAUSE_MAX_MS), &n->env);
        if (n->env.disk.dead)
            env_sim_restart(&n->env);
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
        if (s->server.up)
            liar_contribute(n, &l, (unsigned)sim_below(&s->clock, s->o.fragments),
                            (enum lie)sim_below(&s->clock, LIES));
    }
}
