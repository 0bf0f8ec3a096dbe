/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if the simulated run is wrong: plans that no link keeps. Bytes are the schedule's to
 * the byte, time is the planner's within 3 %, and a thousand sites go through the same code as two.
 */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>
#include "inner/config/keys.h"
#include "kernels/base/log.h"
#include "kernels/base/rng.h"
#include "outer/plan/plan.h"
#include "outer/sim/simulate.h"

enum { SITES_MAX = 1000 };
static struct simulate_site sites[SITES_MAX];
static char names[SITES_MAX][12];
static struct arena arena;
static struct dev_range range = {.count = DEV_BLOCK};

static void quiet(void *self, enum log_level level, const char *line)
{
    (void)self, (void)level, (void)line;
}

static struct sync_config exchange(int64_t steps, int64_t every, unsigned fragments,
                                   size_t elements, enum codec_kind codec)
{
    struct sync_config x = {.schedule = schedule_streaming(steps, every, fragments, 1, codec)};
    x.fragments.count = x.fragments.parts = fragments;
    for (unsigned f = 0; f < fragments; f++)
        x.fragments.f[f] = (struct fragment){
            .ranges = &range, .range_count = 1, .elements = elements, .parameters = elements};
    assert_int_equal(outer_opt_make(&x.outer, OUTER_OPT_MOMENTUM, 0.7f, 0.9f), ERR_OK);
    return x;
}

static struct simulate_options options(const struct sync_config *x, unsigned count, double step_s,
                                       double mbit, double rtt_s)
{
    for (unsigned i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "s%u", i);
        sites[i] = (struct simulate_site){
            .name = names[i],
            .step_s = step_s,
            .link = {.up_bps = mbit * 1e6, .down_bps = mbit * 1e6, .rtt_s = rtt_s, .streams = 1}};
    }
    return (struct simulate_options){.exchange = x,
                                     .sites = sites,
                                     .site_count = count,
                                     .strict = true,
                                     .straggler_timeout_s = 60,
                                     .error_feedback_decay = 1,
                                     .seed = 1};
}

static struct simulate_result run(const struct simulate_options *o)
{
    struct simulate_result r;
    if (simulate(o, &r, &arena) != ERR_OK)
        fail_msg("%s", err_message());
    return r;
}

struct rounds {
    unsigned count;
    double flight_s[64], compute_s[64];
};

static void seen_round(void *self, const struct simulate_round *r)
{
    struct rounds *s = self;
    assert_in_range(s->count, 0, 63);
    s->flight_s[s->count] = r->flight_s;
    s->compute_s[s->count++] = r->compute_s;
}

static struct plan_result predicted(const struct simulate_options *o)
{
    size_t elements[ROUND_FRAGMENTS_MAX];
    struct plan_result p;
    struct plan_task t = {.sites = o->site_count,
                          .step_s = o->sites[0].step_s,
                          .parameters = 1e9,
                          .link = o->sites[0].link,
                          .outer = {o->sites[0].encode_s, o->sites[0].apply_s, o->outer.accept_s,
                                    o->outer.commit_s, o->outer.sum_s},
                          .aggregator_bps = o->aggregator_bps};
    for (unsigned f = 0; f < o->exchange->fragments.count; f++)
        elements[f] = o->exchange->fragments.f[f].elements;
    plan_predict(&t, &o->exchange->schedule, elements, &p);
    return p;
}

static void near(const char *what, double got, double want, double share)
{
    if (fabs(got / want - 1) > share)
        fail_msg("%s: %g, expected %g", what, got, want);
}

/* Blocking and overlapped, one fragment and several, every codec, slow and fast links. */
static void agrees_with_the_plan(void **state)
{
    (void)state;
    for (int c = 0; c < CODEC_COUNT; c++)
        for (int overlap = 0; overlap < 2; overlap++)
            for (unsigned parts = 1; parts <= 4; parts += 3) {
                struct sync_config x = exchange(400, 40, parts, 64 << 16, (enum codec_kind)c);
                x.schedule.overlap = overlap ? 5 : 0;
                struct simulate_options o =
                    options(&x, 3, 0.25, c & 1 ? 1000 : 50, c & 2 ? 0.2 : 0.02);
                for (unsigned i = 0; i < 3 && c & 4; i++) {
                    sites[i].encode_s = 2e-9;
                    sites[i].apply_s = 4e-9;
                }
                if (c & 4)
                    o.outer =
                        (struct exchange_cost){.accept_s = 1e-9, .commit_s = 3e-9, .sum_s = 1e-9};
                struct simulate_result r = run(&o);
                struct plan_result p = predicted(&o);
                near("total", r.total_s, p.total_s, 0.03);
                near("utilisation", r.utilisation, p.utilisation, 0.03);
                for (unsigned i = 0; i < 3; i++) {
                    assert_int_equal(r.site[i].up_bytes, p.up_bytes);
                    assert_int_equal(r.site[i].down_bytes, p.down_bytes);
                    assert_int_equal(r.site[i].merged, r.rounds);
                    assert_int_equal(r.site[i].missed, 0);
                    assert_int_equal(r.site[i].stale_max, x.schedule.overlap);
                }
            }
}

/* By hand: offer, answer, then the bytes in the first round; from then on the bytes follow the
 * offer at once. */
static void rounds_by_hand(void **state)
{
    (void)state;
    struct sync_config x = exchange(100, 10, 1, 64 << 10, CODEC_INT8);
    struct simulate_options o = options(&x, 2, 0.1, 1000, 0.2);
    struct rounds seen = {0};
    for (unsigned i = 0; i < 2; i++) {
        sites[i].link.up = sites[i].link.down =
            (struct line_times){2, {0.5, 2}}; /* a line of 128 KiB in a second */
        sites[i].encode_s = 1e-6;
        sites[i].apply_s = 2e-6;
    }
    o.outer = (struct exchange_cost){.accept_s = 3e-6, .commit_s = 3e-6, .sum_s = 5e-7};
    o.rounded = seen_round;
    o.rounded_self = &seen;
    run(&o);
    size_t elements = x.fragments.f[0].elements;
    struct schedule_bytes b = schedule_bytes(&x.schedule, CODEC_INT8, elements, 2),
                          whole = schedule_bytes(&x.schedule, CODEC_BF16, elements, 2);
    /* The commit takes longer than receipt and poll, which pass meanwhile. */
    double outer = (1 + 2 + 3 + 4) * 1e-6 * (double)elements - 0.2, per_byte = 1.0 / (1 << 17);
    assert_int_equal(seen.count, 20);
    near("first", seen.flight_s[0], 4 * 0.2 + outer + (double)(whole.up + whole.down) * per_byte,
         0.002);
    near("second", seen.flight_s[2], 3 * 0.2 + outer + (double)(b.up + b.down) * per_byte, 0.002);
    near("compute", seen.compute_s[2], 10 * 0.1, 0.005); /* the report is exposed */
}

/* Two aggregators share the fragments, and each has a line of its own. */
static void aggregators_share_the_fragments(void **state)
{
    (void)state;
    struct sync_config x = exchange(400, 20, 4, 64 << 12, CODEC_INT8);
    x.schedule.overlap = 5;
    struct simulate_options o = options(&x, 3, 0.02, 1000, 0.01);
    size_t elements[ROUND_FRAGMENTS_MAX];
    for (unsigned f = 0; f < 4; f++) {
        elements[f] = x.fragments.f[f].elements;
        x.schedule.period[f].p.offset = 0; /* all at once */
    }
    o.aggregator_bps = 40e6; /* 0.17 s for three contributions of a fragment */
    struct simulate_result one = run(&o);
    o.aggregators = 2;
    struct simulate_result two = run(&o);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(two.site[i].merged, two.rounds);
        assert_int_equal(two.site[i].up_bytes, schedule_upload_bytes(&x.schedule, elements));
        assert_int_equal(two.site[i].down_bytes, schedule_download_bytes(&x.schedule, elements, 3));
    }
    if (two.total_s > 0.65 * one.total_s)
        fail_msg("%g s with two, %g with one", two.total_s, one.total_s);
}

/* Eager starts with the one-round delay: nothing waits for the link, but for the contribution to be
 * stored. */
static void eager_waits_for_its_storage(void **state)
{
    (void)state;
    struct sync_config x = exchange(200, 20, 1, 64 << 10, CODEC_INT8);
    x.schedule.overlap = 20;
    x.schedule.eager = true;
    struct simulate_options o = options(&x, 2, 0.1, 1000, 0.01);
    for (unsigned i = 0; i < 2; i++)
        sites[i].encode_s = 0.1 / (64 << 10);
    struct simulate_result r = run(&o);
    assert_int_equal(r.site[0].merged, r.rounds);
    near("total", r.total_s, 20 + 10 * 0.1, 0.02);
}

/* A round is applied once, before the update of the planned step, at the last step too. An update
 * takes no time in the model, so the figures are those of a commit applied after it. */
static void before_update_costs_nothing(void **state)
{
    (void)state;
    struct sync_config x = exchange(203, 20, 2, 64 << 10, CODEC_INT8);
    x.schedule.overlap = 5;
    struct simulate_options o = options(&x, 3, 0.1, 100, 0.05);
    struct simulate_result after = run(&o);
    o.before_update = true;
    struct simulate_result before = run(&o);
    assert_int_equal(before.rounds, after.rounds);
    assert_int_equal(before.calls, after.calls);
    assert_true(before.total_s == after.total_s && before.exchange_s == after.exchange_s);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(before.site[i].merged, before.rounds);
        assert_int_equal(before.site[i].stale_max, 5);
    }
}

/* The slowest site sets the pace; the others wait for it, and all of them for the aggregator's line
 * when that is shared. */
static void the_slowest_decides(void **state)
{
    (void)state;
    struct sync_config x = exchange(200, 20, 1, 64 << 12, CODEC_INT8);
    struct simulate_options o = options(&x, 4, 0.1, 1000, 0.01);
    struct simulate_result even = run(&o);
    sites[2].step_s = 0.3;
    struct simulate_result uneven = run(&o);
    assert_true(uneven.total_s > 3 * 20 && uneven.total_s < even.total_s + 2.05 * 20);
    assert_true(uneven.site[0].train_s < 20.1 && uneven.site[2].train_s > 59.9);
    sites[2].step_s = 0.1;
    o.aggregator_bps = 10e6; /* a megabyte from each of four: 3.4 s a round */
    struct simulate_result shared = run(&o);
    near("shared line", shared.total_s, predicted(&o).total_s, 0.03);
    assert_true(shared.total_s > even.total_s + 5);
}

static void quorum_goes_on_without_the_late(void **state)
{
    (void)state;
    struct sync_config x = exchange(200, 20, 1, 64 << 10, CODEC_INT4);
    struct simulate_options o = options(&x, 3, 0.1, 100, 0.01);
    o.strict = false;
    o.straggler_timeout_s = 1;
    sites[2].step_s = 1;
    struct simulate_result r = run(&o); /* 20 s for a round that ends after 3 */
    assert_int_equal(r.site[0].merged, r.rounds);
    assert_int_equal(r.site[2].merged, 0);
    assert_int_equal(r.site[2].missed, r.rounds);
    near("rounds", r.site[0].total_s, 10 * 3, 0.05); /* strict: 200 s */
    sites[2].step_s = 0.12;                          /* late, but within the second */
    r = run(&o);
    assert_int_equal(r.site[2].merged, r.rounds);
    near("rounds", r.site[0].total_s, 10 * 2.4, 0.05);
    x.schedule.overlap =
        5; /* during training: 3 s of 3 are hidden, and the late one skips what it missed */
    sites[2].step_s = 1;
    r = run(&o);
    assert_int_equal(r.site[0].merged, r.rounds);
    assert_true(r.site[2].missed >= r.rounds - 2);
    assert_true(r.site[0].total_s < 10 * 2.7);
}

/* Site 2 is ten times as slow: without the grace each round waits for the timeout; with it, for a
 * share of what overlap hides, and the run is as fast as the two others. A site that is a little
 * late is waited for. */
static void grace_follows_the_slack(void **state)
{
    (void)state;
    struct sync_config x = exchange(400, 20, 1, 64 << 10, CODEC_INT4);
    struct simulate_options o = options(&x, 3, 0.1, 100, 0.01);
    x.schedule.overlap = 10;
    o.strict = false;
    o.straggler_timeout_s = 10;
    sites[2].step_s = 1;
    assert_true(run(&o).site[0].total_s > 20 * 10);
    o.grace = 0.5;
    struct simulate_result r = run(&o);
    assert_int_equal(r.site[0].merged, r.rounds);
    assert_true(r.site[2].missed >= r.rounds - 4);
    /* 40 s of steps; the timeout for the first round and, until the measured time of a round has
     * come down from it, a part of it; and for the last round's grace. */
    assert_true(r.site[0].total_s < 40 + 2 * 10);
    sites[2].step_s = 0.101; /* 0.4 s late at the end */
    r = run(&o);
    assert_int_equal(r.site[2].merged, r.rounds);
}

/* A thousand sites through the real round: quorum of all, manifests of 51 KB, sums of 14 bits. */
static void a_thousand_sites(void **state)
{
    (void)state;
    struct sync_config x = exchange(1000, 500, 1, 64 << 16, CODEC_INT4);
    struct simulate_options o = options(&x, SITES_MAX, 1, 1000, 0.05);
    clock_t begin = clock();
    struct simulate_result r = run(&o);
    double cpu_s = (double)(clock() - begin) / CLOCKS_PER_SEC;
    size_t elements = x.fragments.f[0].elements;
    for (unsigned i = 0; i < SITES_MAX; i++)
        assert_int_equal(r.site[i].down_bytes,
                         schedule_download_bytes(&x.schedule, &elements, SITES_MAX));
    near("total", r.total_s, predicted(&o).total_s, 0.03);
    if (cpu_s > 40) /* 4 s; an effort that grows with the square of the sites would be minutes */
        fail_msg("%.1f s of CPU for %" PRIu64 " rounds", cpu_s, r.rounds);
}

static void repeats(void **state)
{
    (void)state;
    struct sync_config x = exchange(200, 20, 2, 64 << 10, CODEC_TOPK);
    x.schedule.overlap = 3;
    struct simulate_options o = options(&x, 5, 0.11, 30, 0.07);
    struct simulate_result a = run(&o), b = run(&o);
    assert_true(a.total_s == b.total_s && a.calls == b.calls && a.exchange_s == b.exchange_s);
    o.rounds_max = 3;
    struct simulate_result c = run(&o);
    assert_int_equal(
        c.rounds,
        2 * 3 +
            1); /* the second fragment is half a period later: fragment 0 once more, at the end */
}

static atomic_int enough;

static void stop_at_half(void *self, int64_t step, int64_t steps)
{
    *(int64_t *)self = step;
    enough = 2 * step >= steps;
}

/* Asked to end: what was simulated so far is the beginning of the whole run. */
static void stops(void **state)
{
    (void)state;
    int64_t told = 0;
    struct sync_config x = exchange(200, 20, 1, 64 << 10, CODEC_INT4);
    struct simulate_options o = options(&x, 3, 0.1, 100, 0.01);
    struct simulate_result whole = run(&o);
    assert_true(!whole.stopped && whole.rounds == 10);
    o.stop = &enough;
    o.progress = stop_at_half;
    o.progress_self = &told;
    struct simulate_result r = run(&o);
    assert_true(r.stopped && told == 100);
    assert_in_range(r.steps, 80, 100);
    assert_int_equal(r.rounds, 4); /* no site has the commit of the fifth */
    assert_true(r.site[0].train_s <= 10.001 && r.total_s < whole.total_s / 2);
    near("utilisation", r.utilisation, whole.utilisation, 0.1);
}

static int close_all(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

/* ---- outer.replan ---- */

enum { ROUNDS_SEEN = 256 };
struct shares { /* of site 0, between two rounds of fragment 0 */
    unsigned count;
    double share[ROUNDS_SEEN], t_s[ROUNDS_SEEN], exposed_s;
    int64_t step[ROUNDS_SEEN];
};

static void seen_share(void *self, const struct simulate_round *r)
{
    struct shares *s = self;
    s->exposed_s += r->site ? 0 : r->exposed_s;
    if (r->site || r->fragment)
        return;
    assert_in_range(s->count, 0, ROUNDS_SEEN - 1);
    double before_s = s->count ? s->t_s[s->count - 1] : 0;
    s->share[s->count] = 1 - s->exposed_s / (r->t_s - before_s);
    s->exposed_s = 0;
    s->step[s->count] = r->step;
    s->t_s[s->count++] = r->t_s;
}

/* A preset (atoll wan) between two continents, as long a round as leaves training 96 %. */
struct replan_case {
    double mbit, rtt_s, step_s;
    int64_t every, overlap;
    unsigned fragments;
};
static const struct replan_case presets[] = {{200, 0.09, 1.0, 200, 0, 1},
                                             {1000, 0.15, 1.0, 300, 0, 1},
                                             {50, 0.03, 1.0, 100, 0, 1},
                                             {50, 0.09, 0.5, 300, 4, 1},
                                             {200, 0.09, 1.0, 200, 2, 4}};
struct replan_run {
    struct settings s;
    struct outer_settings o;
    struct keys_base base;
    struct sync_config x;
    struct simulate_options t;
    struct shares seen;
    struct line line;
    double from_s, until_s, times; /* the line has `times` its rate, between the two times */
    double jitter;                 /* and this much more or less, drawn again for each round */
};

static void relined(void *self, unsigned site, double t_s, struct line *line)
{
    struct replan_run *c = self;
    double times = t_s >= c->from_s && t_s < c->until_s ? c->times : 1;
    times *= 1 + c->jitter * (2 * rng_unit(site, RNG_TEST, (uint64_t)(1e3 * t_s)) - 1);
    *line = c->line;
    line->up_bps *= times;
    line->down_bps *= times;
}

static void replan_open(struct replan_run *c, const struct replan_case *p, int64_t rounds)
{
    const struct config_table tables[] = {keys_inner(&c->s), keys_outer(&c->o)};
    assert_int_equal(config_load(tables, 2, NULL, 0, NULL, &arena), ERR_OK);
    c->base = (struct keys_base){&c->s, &c->o};
    c->s.train_steps = p->every * rounds;
    c->o.outer_sync_every = p->every;
    c->o.outer_lr = 0.7;
    c->o.outer_overlap_steps = p->overlap;
    c->x = exchange(c->s.train_steps, p->every, p->fragments, 0, CODEC_INT8);
    c->x.schedule.overlap = p->overlap;
    size_t elements = 1 << 30;
    do { /* as many values as the planner says */
        elements = elements * 7 / 8 / DEV_BLOCK * DEV_BLOCK;
        for (unsigned f = 0; f < p->fragments; f++)
            c->x.fragments.f[f].elements = c->x.fragments.f[f].parameters = elements;
        c->t = options(&c->x, 2, p->step_s, p->mbit, p->rtt_s);
    } while (predicted(&c->t).steady < 0.96);
    c->line = sites[0].link;
    c->seen = (struct shares){0};
    c->from_s = c->until_s = INFINITY;
    c->jitter = 0;
    c->t.settings = &c->base;
    c->o.outer_replan = true;
    c->t.rounded = seen_share;
    c->t.rounded_self = &c->seen;
    c->t.relined = relined;
    c->t.relined_self = c;
}

static struct simulate_result replan_run(struct replan_run *c, const char *what)
{
    struct simulate_result r = run(&c->t);
    printf("%s:", what);
    for (unsigned k = 10; k < c->seen.count && k < 22; k++)
        printf(" %.3f", c->seen.share[k]);
    for (uint32_t k = 0; k < r.last.amendments.count; k++)
        printf(" %s from round %d;", r.last.amendments.list[k].text,
               (int)r.last.amendments.list[k].round);
    printf("\n");
    return r;
}

/* As an operator, of each that is recorded. */
static enum err amendments_ask(void *self, const struct link_service *service)
{
    const struct amendments *list = self;
    struct wire_answer answer;
    for (uint32_t i = 0; i < list->count; i++) {
        struct wire_operate m = {.act = WIRE_SET, .round = list->list[i].round, .version = i + 1};
        snprintf(m.setting, sizeof m.setting, "%s", list->list[i].text);
        service->operate(service->self, "atoll://sim/operator/op", &m, &answer);
        assert_int_equal(answer.outcome, ROUND_CURRENT);
    }
    return ERR_OK;
}

/* Its rate halves in mid-run, at several places of a round; the aggregator amends outer.sync_every,
 * and training has 95 % again in the third round with the slower link, with overlap too. The same
 * run with the amendments that were recorded, given before the first step and without outer.replan,
 * ends with the same bits. */
static void a_line_that_halves(void **state)
{
    (void)state;
    static struct replan_run c;
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        for (unsigned at = 0; at < 3; at++) {
            char what[64];
            replan_open(&c, &presets[i], 30);
            c.from_s = (12 + 0.4 * at) * (double)presets[i].every * presets[i].step_s / 0.96;
            c.until_s = INFINITY;
            c.times = 0.5;
            snprintf(what, sizeof what, "preset %zu, %.1f", i, 0.4 * at);
            struct simulate_result r = replan_run(&c, what);
            unsigned changed = 0; /* the round that is under way then */
            while (c.seen.t_s[changed] < c.from_s)
                changed++;
            unsigned first = changed; /* less than 95 % are left */
            while (first < c.seen.count && c.seen.share[first] >= 0.95)
                first++;
            assert_in_range(first, changed, changed + 1);
            for (unsigned k = first + 2; k + 1 < c.seen.count; k++) /* the last: full precision */
                assert_true(c.seen.share[k] >= 0.95);
            assert_int_equal(r.last.amendments.count, 1);
            struct shares seen = c.seen;
            c.o.outer_replan = false;
            c.t.operate = amendments_ask;
            c.t.operate_self = &r.last.amendments;
            c.seen = (struct shares){0};
            struct simulate_result again = run(&c.t);
            assert_memory_equal(&again.state, &r.state, sizeof r.state);
            assert_int_equal(seen.count, c.seen.count);
            assert_memory_equal(seen.step, c.seen.step, sizeof seen.step);
            c.t.operate = NULL; /* and without any it ends elsewhere */
            c.seen = (struct shares){0};
            again = run(&c.t);
            assert_memory_not_equal(&again.state, &r.state, sizeof r.state);
        }
}

/* Rates that vary from round to round, around the one that the plan is for, and a round of a
 * hundredth of it now and then: 50 rounds without an amendment. */
static void noise_amends_nothing(void **state)
{
    (void)state;
    static struct replan_run c;
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        replan_open(&c, &presets[i], 52);
        c.jitter = 0.25;
        assert_int_equal(replan_run(&c, "noise").last.amendments.count, 0);
        replan_open(&c, &presets[i], 52);
        double round_s = (double)presets[i].every * presets[i].step_s / 0.96;
        c.from_s = 20.5 * round_s;
        c.until_s = c.from_s + round_s;
        c.times = 0.1;
        assert_int_equal(replan_run(&c, "outage").last.amendments.count, 0);
    }
}

/* Three rounds with a tenth of the rate: longer ones, and then the configured ones again. */
static void back_to_the_configured(void **state)
{
    (void)state;
    static struct replan_run c;
    replan_open(&c, &presets[0], 60);
    c.from_s = 12.4 * 200 / 0.96;
    c.until_s = c.from_s + 600;
    c.times = 0.1;
    struct simulate_result r = replan_run(&c, "back");
    assert_in_range(r.last.amendments.count, 2, 3);
    assert_string_equal(r.last.amendments.list[r.last.amendments.count - 1].text,
                        "outer.every=200");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_that_halves),
        cmocka_unit_test(noise_amends_nothing),
        cmocka_unit_test(back_to_the_configured),
        cmocka_unit_test(agrees_with_the_plan),
        cmocka_unit_test(rounds_by_hand),
        cmocka_unit_test(aggregators_share_the_fragments),
        cmocka_unit_test(eager_waits_for_its_storage),
        cmocka_unit_test(before_update_costs_nothing),
        cmocka_unit_test(the_slowest_decides),
        cmocka_unit_test(quorum_goes_on_without_the_late),
        cmocka_unit_test(grace_follows_the_slack),
        cmocka_unit_test(repeats),
        cmocka_unit_test(stops),
        cmocka_unit_test(a_thousand_sites),
    };
    log_to(quiet, NULL);
    return cmocka_run_group_tests(tests, NULL, close_all);
}
