/* SPDX-License-Identifier: Apache-2.0 */
/* Amended settings (docs/protocol.md 3.17): an operator changes outer.lr, outer.sync_every,
 * outer.codec, outer.overlap_steps and train.steps. What and for which round follows from the seed
 * alone, and the act is repeated until a manifest carries it, so that the run without faults has
 * the same amendments (I1), though it may have them sooner. An aggregator that was down for long
 * may have passed the round: it refuses, and the run is not compared.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/rng.h"
#include "tests/sim/sim_own.h"

/* Rounds between the act and the border, with overlap one more. Up to two fewer for
 * outer.sync_every: the aggregator says whether all sites know in time. */
enum { AHEAD = 2 };
static const char operator_name[] = "atoll://sim/operator/op";

static uint64_t draw(const struct sim *s, unsigned what, uint64_t n)
{
    return rng_below(s->o.seed, RNG_TEST, 30000 + what, n);
}

/* Below the period, so that nothing is blocking or delayed that was not. */
static int64_t overlap_of(const struct sim *s, unsigned k, int64_t every)
{
    return 1 + (int64_t)draw(s, 300 + k, (uint64_t)every - 1);
}

/* Longer or shorter periods, so that no fragment gets more rounds than the books hold. */
static int64_t every_of(const struct sim *s, unsigned k, int64_t now, int64_t overlap)
{
    int64_t parts = s->o.fragments, shorter = now / 2 / parts * parts;
    bool fits = shorter > overlap && shorter >= parts &&
                (uint64_t)(s->o.steps / shorter) + 3 < SIM_ROUNDS_MAX;
    return fits && draw(s, 100 + k, 2) ? shorter : now + parts * (1 + (int64_t)draw(s, 110 + k, 3));
}

/* One that the rules take; the present one where 16 draws have none. */
static enum codec_kind codec_next(const struct sim *s, unsigned k, enum codec_kind now)
{
    enum { TRIES = 16 };
    for (unsigned i = 0; i < TRIES; i++) {
        enum codec_kind kind = (enum codec_kind)draw(s, 200 + k * TRIES + i, CODEC_COUNT);
        const struct codec *c = codec_get(kind), *before = codec_get(now);
        bool mean = s->o.merge == MERGE_MEAN && s->o.clip == 0;
        bool fits = (mean || !c->summable) &&
                    (!s->o.masked || codec_words_bytes(c, DEV_BLOCK, 1)) &&
                    (!before->momentum_in_residual || c->momentum_in_residual);
        if (fits && kind != now)
            return kind;
    }
    return now;
}

static void acts_draw(struct sim *s)
{
    struct sim_amend *x = &s->amend;
    bool periods = !s->o.growth.rounds && s->o.overlap < s->o.every && !s->o.every_ms;
    uint64_t at = 0, rounds = schedule_rounds(&s->schedule, 0);
    int64_t every = s->o.every, overlap = s->o.overlap, steps = s->o.steps;
    enum codec_kind codec = s->o.codec;
    unsigned wanted = 1 + (unsigned)draw(s, 0, SIM_ACTS_MAX);
    for (unsigned k = 0; k < wanted; k++) {
        struct sim_act *c = &x->act[x->count];
        uint64_t kind = draw(s, 10 + k, 3);
        at += draw(s, 20 + k, 2 + rounds / 6);
        c->at = at;
        c->round = at + AHEAD + (s->o.overlap > 0) + draw(s, 30 + k, 2);
        c->round -= kind == 1 && periods ? draw(s, 120 + k, 3) : 0;
        if (kind == 2 && s->o.max_local_steps_offline)
            kind = 0; /* the last steps of a site that is offline are those it knows of */
        if (draw(s, 50 + k, 3) == 0)
            snprintf(c->text, sizeof c->text, "outer.codec=%s",
                     codec_get(codec = codec_next(s, k, codec))->name);
        else if (draw(s, 60 + k, 3) == 0 && periods && overlap)
            snprintf(c->text, sizeof c->text, "outer.overlap_steps=%" PRId64,
                     overlap = overlap_of(s, k, every));
        else if (kind == 1 && periods)
            snprintf(c->text, sizeof c->text, "outer.every=%" PRId64,
                     every = every_of(s, k, every, overlap));
        else if (kind == 2)
            snprintf(c->text, sizeof c->text, "train.steps=%" PRId64,
                     steps += (int64_t)draw(s, 40 + k, 3) - 1);
        else
            snprintf(c->text, sizeof c->text, "outer.lr=0.%u", 2 + k);
        x->count++;
    }
}

enum err sim_amend_open(struct sim *s)
{
    struct sim_amend *x = &s->amend;
    const struct config_table tables[] = {keys_inner(&x->s), keys_outer(&x->o)};
    x->first = s->schedule;
    x->base = (struct keys_base){&x->s, &x->o};
    TRY(config_load(tables, 2, NULL, 0, NULL, &s->arena));
    x->s.train_steps = s->o.steps;
    x->s.train_warmup_steps = 0;
    x->o.outer_sync_every = s->o.every;
    x->o.outer_fragments = s->o.fragments;
    x->o.outer_overlap_steps = s->o.overlap;
    x->o.outer_optimizer = s->o.optimizer;
    x->o.outer_nesterov_period = s->o.delay;
    x->o.outer_lr = (double)s->outer.lr;
    x->o.outer_codec = s->o.codec;
    x->o.outer_mode = s->o.strict ? OUTER_MODE_STRICT : OUTER_MODE_QUORUM;
    x->o.outer_max_local_steps_offline = s->o.max_local_steps_offline;
    x->o.outer_full_precision = s->schedule.full_precision;
    x->o.outer_merge = s->o.merge;
    x->o.outer_clip = (double)s->o.clip;
    x->o.outer_downlink_compression_from = s->o.downlink_compression_from;
    if (s->o.amends && s->o.optimizer != OUTER_OPT_AVERAGE)
        acts_draw(s);
    return ERR_OK;
}

static bool carried(const struct sim_amend *x, const struct sim_act *c)
{
    for (uint32_t i = 0; i < x->seen.count; i++)
        if (strcmp(x->seen.list[i].text, c->text) == 0 && x->seen.list[i].round == c->round)
            return true;
    return false;
}

static void act(struct sim_aggregator *a, struct sim_act *c)
{
    struct sim *s = a->sim;
    struct wire_operate m = {.act = WIRE_SET_LIST};
    static struct wire_answer answer;
    answer = (struct wire_answer){.outcome = ROUND_NONE};
    s->acting = true;
    a->server.service.operate(a->server.service.self, operator_name, &m, &answer);
    m.act = WIRE_SET;
    m.round = c->round;
    m.version = answer.round + 1;
    snprintf(m.setting, sizeof m.setting, "%s", c->text);
    a->server.service.operate(a->server.service.self, operator_name, &m, &answer);
    link_sim_work(&a->server);
    s->acting = false;
    c->made |= answer.outcome == ROUND_CURRENT;
    if (answer.outcome != ROUND_INVALID)
        return;
    /* The border has passed, or the run is too short for it; a run with faults alone may be late.
     */
    c->given_up = true;
    s->r->refused_amendments++;
    if (c->made && !s->amend.lost)
        sim_violate(s, "%s was acknowledged, and is refused now: %s", c->text, answer.text);
}

/* One after the other: their rounds are in order. */
void sim_amend_acts(struct sim_aggregator *a)
{
    struct sim *s = a->sim;
    for (unsigned k = 0; !s->acting && k < s->amend.count; k++) {
        struct sim_act *c = &s->amend.act[k];
        if (c->given_up || carried(&s->amend, c) || (c->made && !s->amend.lost))
            continue;
        if (a->committed[0] < c->at || a->server.stopped || !a->server.up || a->env.disk.dead)
            return;
        act(a, c);
        if (!c->made && !c->given_up)
            return;
    }
}

/* The last value that was asked for of a setting, up to a border; "": none. */
static const char *last_of(const struct amendments *list, uint64_t round, const char *key)
{
    size_t n = strlen(key);
    const char *value = "";
    for (uint32_t i = 0; i < list->count && list->list[i].round <= round; i++)
        if (strncmp(list->list[i].text, key, n) == 0 && list->list[i].text[n] == '=')
            value = list->list[i].text + n + 1;
    return value;
}

/* Each border's change again, from the texts alone. */
static void changes_check(struct sim *s, const struct schedule *made, const struct amendments *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        uint64_t round = list->list[i].round;
        if (round >= schedule_rounds(made, 0)) /* train.steps has become less since */
            continue;
        const struct schedule_change *c = schedule_changed(made, 0, round);
        const char *lr = last_of(list, round, "outer.lr"),
                   *steps = last_of(list, round, "train.steps");
        if (!c || (*lr && c->lr != strtof(lr, NULL)) ||
            (*steps && c->steps != strtoll(steps, NULL, 10)))
            sim_violate(s, "round %" PRIu64 ": not the settings of the last amendments before it",
                        round);
    }
}

void sim_amend_saw(struct sim *s, const struct manifest *m)
{
    struct sim_amend *x = &s->amend;
    const struct amendments *list = &m->amendments;
    struct schedule made = x->first;
    if (!amendments_agree(list, &x->seen))
        sim_violate(s, "fragment %u round %" PRIu64 ": other amendments than before", m->fragment,
                    m->round);
    for (uint32_t i = x->seen.count; i < list->count; i++) {
        bool asked = false;
        for (unsigned k = 0; k < x->count; k++)
            asked |= strcmp(x->act[k].text, list->list[i].text) == 0 &&
                     x->act[k].round == list->list[i].round;
        if (!asked || (m->fragment == 0 && list->list[i].round <= m->round))
            sim_violate(
                s, "fragment %u round %" PRIu64 ": no operator asked for %s from round %" PRIu64,
                m->fragment, m->round, list->list[i].text, list->list[i].round);
    }
    if (list->count <= x->seen.count || s->clock.halted)
        return;
    s->r->amendments += list->count - x->seen.count;
    x->seen = *list;
    if (amend_schedule(&x->base, &made, list) != ERR_OK)
        sim_violate(s, "the amendments of round %" PRIu64 ": %s", m->round, err_message());
    else
        s->schedule = made;
    changes_check(s, &made, list);
}

enum codec_kind sim_amend_codec(const struct sim *s, int64_t step)
{
    const struct amendments *list = &s->amend.seen;
    const char *name = codec_get(s->o.codec)->name;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct amendment *one = &list->list[i];
        bool behind = !one->round || schedule_step(&s->schedule, 0, one->round - 1) < step;
        if (behind && strncmp(one->text, "outer.codec=", 12) == 0)
            name = one->text + 12;
    }
    for (unsigned k = 0; k < CODEC_COUNT; k++)
        if (strcmp(codec_get((enum codec_kind)k)->name, name) == 0)
            return (enum codec_kind)k;
    return CODEC_COUNT;
}

void sim_amend_end(struct sim *s)
{
    for (unsigned k = 0; k < s->amend.count; k++) {
        struct sim_act *c = &s->amend.act[k];
        if (c->made && !s->amend.lost && !carried(&s->amend, c))
            sim_violate(s, "%s was acknowledged, and no manifest carries it", c->text);
    }
    uint8_t bytes[AMENDMENTS_BYTES_MAX];
    struct bytes_writer w = bytes_writer(bytes, sizeof bytes);
    amendments_put(&w, &s->amend.seen);
    s->r->amended = digest_of(bytes, bytes_size(&w));
}
