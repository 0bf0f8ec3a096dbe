/* SPDX-License-Identifier: Apache-2.0 */
/* What a site does with each answer (docs/protocol.md 3.2), against the real aggregator
 * called directly, with one answer at a time bent. Three sites, quorum 2; the test plays the other
 * two. Virtual clock, real files. What breaks here: bytes sent that are not stored, work lost or
 * counted twice, a site that stops where it should wait.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_state.h"
#include "outer/identity/signed.h"
#include "tests/sim/signer_sim.h"
#include "outer/organ/roster/roster_organ.h"
#include "outer/site/site_identity.h"
#include "outer/site/site_own.h"
#include "tests/outer/site/exchange.h"
#include "tests/outer/toy.h"
#include "tests/sim/mutants.h"
#include "tests/scratch_place.h"

enum { SITES = 3, ELEMENTS_MAX = 4096, HELLOS_MAX = 1000, ROUNDS = 100 };
static const char *const names[SITES] = {"s0", "s1", "s2"};
static const char canonical[] = "run.name=t\n";

static struct dev *cpu;
static uint64_t now;
static struct env_ops clocked; /* the real world's, with a clock that jumps */
static uint64_t (*real_wall)(struct env *w);

static uint64_t wall_ms; /* stands still but for slow reports; 0: the real one */

static uint64_t clock_wall(struct env *w)
{
    return wall_ms ? wall_ms : real_wall(w);
}

static uint64_t clock_now(struct env *w)
{
    (void)w;
    return now;
}

static void clock_sleep(struct env *w, uint64_t ms)
{
    (void)w;
    now += ms;
}

/* ---- a link that calls the service, and bends ---- */

struct bench;
struct direct {
    struct link link; /* first */
    struct link_service *service;
    struct bench *bench;
    unsigned hellos, offers, polls, fetches, reports;
    /* Bends: a count of calls it holds for, then the truth again. */
    unsigned down, refuse, spoil_aggregate, spoil_manifest, mute; /* mute: reports alone */
    uint64_t slow_ms;                     /* of a report, on the wall clock */
    int64_t ahead_ms;                     /* of the aggregator's clock */
    enum round_outcome outcome;           /* of `refuse`: of contribute */
    void (*manifest)(struct manifest *m); /* of `spoil_manifest` */
    void (*pending)(struct bench *b);     /* a poll was answered pending */
    void (*announced)(struct bench *b, struct wire_hello_answer *a); /* of each hello's answer */
    bool unsigned_;                    /* what is spoiled is not signed again */
    void (*fetched)(struct bench *b);  /* once, before an aggregate's bytes come back */
    void (*accepted)(struct bench *b); /* once, before the answer to a contribution comes back */
    struct digest sent;                /* digest of the last bytes that left */
};
struct bench {
    char root[64];
    struct arena arena;
    struct tensor tensors[TOY_TENSORS_MAX];
    struct table table;
    struct fragments fragments;
    float initial[ELEMENTS_MAX], local[ELEMENTS_MAX];
    struct env *site_env, *aggregator_env;
    struct outer_state site_state, aggregator_state;
    struct aggregator *aggregator;
    struct link_service service;
    struct site *site;
    struct signer_sim signer, signers[SITES]; /* the aggregator's, the sites' */
    struct direct link;
    atomic_int stop;
    bool strict, huge_weights;
    uint64_t keep;
    uint8_t residual_reset;
    unsigned ranks; /* that hold fragments; 0: one */
};

static bool once(unsigned *n)
{
    return *n && (*n)--;
}

static enum err work(struct direct *l)
{
    bool stop;
    link_service_work(l->service, &stop);
    return ERR_OK;
}

static enum err direct_down(struct direct *l)
{
    return once(&l->down) ? err_set(ERR_LINK, "bent") : ERR_OK;
}

static const char peer[] = "atoll://t/site/s0";

static enum err direct_hello(struct link *link, const struct wire_hello *m,
                             struct wire_hello_answer *a)
{
    struct direct *l = (struct direct *)link;
    l->hellos++;
    assert_in_range(l->hellos, 0, HELLOS_MAX);
    TRY(direct_down(l));
    l->service->hello(l->service->self, peer, m, a);
    if (l->announced)
        l->announced(l->bench, a);
    return work(l);
}

static void deliver(struct link_service *s, const char *from, const struct wire_contribution *m,
                    const uint8_t *payload, struct wire_answer *a)
{
    void *upload;
    s->offer(s->self, from, m, a, &upload);
    if (a->outcome != ROUND_RESUME)
        return;
    uint64_t at = a->offset;
    link_service_chunk(s, upload, at, payload + at, m->payload_bytes - at, a);
    link_service_finish(s, upload, true, a);
}

static enum err direct_contribute(struct link *link, const struct wire_contribution *m,
                                  const uint8_t *payload, struct wire_answer *a)
{
    struct direct *l = (struct direct *)link;
    l->offers++;
    l->sent = digest_of(payload, m->payload_bytes);
    assert_true(digest_equal(&l->sent, &m->payload));
    TRY(direct_down(l));
    if (once(&l->refuse)) {
        *a = (struct wire_answer){.outcome = l->outcome, .retry_ms = 700};
        return ERR_OK;
    }
    deliver(l->service, peer, m, payload, a);
    TRY(work(l));
    void (*accepted)(struct bench * b) = l->accepted;
    l->accepted = NULL;
    if (accepted)
        accepted(l->bench);
    return ERR_OK;
}

static enum err direct_poll(struct link *link, const struct wire_poll *m, uint32_t hold_ms,
                            struct wire_poll_answer *a)
{
    struct direct *l = (struct direct *)link;
    l->polls++;
    TRY(direct_down(l));
    l->service->poll(l->service->self, peer, m, a);
    if (a->answer.outcome == ROUND_PENDING) {
        now += hold_ms;
        work(l);
        if (l->pending)
            l->pending(l->bench);
    }
    if (a->answer.outcome == ROUND_COMMIT && once(&l->spoil_manifest)) {
        l->manifest(&a->manifest);
        if (!l->unsigned_)
            TRY(signed_manifest_sign(&l->bench->signer.signer, &a->manifest));
    }
    return ERR_OK;
}

static enum err direct_fetch(struct link *link, const struct wire_fetch *m, uint8_t *out,
                             size_t size_bytes, struct wire_answer *a)
{
    struct direct *l = (struct direct *)link;
    struct link_content c;
    l->fetches++;
    TRY(direct_down(l));
    l->service->fetch(l->service->self, peer, m, &c, a);
    if (a->outcome != ROUND_NONE)
        return ERR_OK;
    assert_int_equal(c.size_bytes, size_bytes);
    memcpy(out, c.data, c.size_bytes);
    l->service->fetched(l->service->self, c.source);
    void (*fetched)(struct bench *) = l->fetched;
    l->fetched = NULL;
    if (fetched)
        fetched(l->bench);
    if (once(&l->spoil_aggregate))
        out[c.size_bytes / 2] ^= 1;
    return ERR_OK;
}

static enum err direct_report(struct link *link, const struct wire_report *m, struct wire_answer *a)
{
    struct direct *l = (struct direct *)link;
    l->reports++;
    if (once(&l->mute))
        return err_set(ERR_LINK, "bent");
    TRY(direct_down(l));
    l->service->report(l->service->self, peer, m, a);
    if (a->clock_ms)
        a->clock_ms += (uint64_t)l->ahead_ms;
    wall_ms += l->slow_ms;
    return work(l);
}

static enum err direct_leave(struct link *link, const struct wire_leave *m, struct wire_answer *a)
{
    struct direct *l = (struct direct *)link;
    TRY(direct_down(l));
    l->service->leave(l->service->self, peer, m, a);
    return work(l);
}

static void direct_counters(struct link *link, struct link_counters *out)
{
    (void)link;
    *out = (struct link_counters){0};
}

static void direct_close(struct link *link)
{
    (void)link;
}

static const struct link_ops direct_ops = {
    .hello = direct_hello,
    .contribute = direct_contribute,
    .poll = direct_poll,
    .fetch = direct_fetch,
    .report = direct_report,
    .leave = direct_leave,
    .counters = direct_counters,
    .close = direct_close,
};

/* ---- the bench ---- */

static struct outer_state_options outer_state_of(const struct bench *b, bool site)
{
    struct outer_state_options o = {.fragments = &b->fragments, .residuals = site, .keep = b->keep};
    o.schedule = schedule_streaming(10 * ROUNDS, 10, 1, 1, CODEC_INT8);
    o.schedule.residual_reset = b->residual_reset;
    o.shards = shards_of(0, site ? b->ranks : 0);
    o.discards = site && schedule_discards(&o.schedule, 1);
    assert_int_equal(outer_opt_make(&o.outer, OUTER_OPT_MOMENTUM, 0.7f, 0.9f), ERR_OK);
    return o;
}

static struct env *env_of(struct bench *b, const char *name)
{
    struct env *w;
    char path[128];
    snprintf(path, sizeof path, "%s/%s", b->root, name);
    assert_int_equal(env_posix_open(&w, path), ERR_OK);
    clocked = *w->ops;
    real_wall = w->ops->unix_ms;
    clocked.now_ms = clock_now;
    clocked.unix_ms = clock_wall;
    clocked.sleep_ms = clock_sleep;
    w->ops = &clocked;
    return w;
}

static void aggregator_begin(struct bench *b)
{
    struct outer_state_options o = outer_state_of(b, false);
    struct aggregator_options a = {.run = "t",
                                   .sites = {.names = names, .count = SITES},
                                   .canonical = canonical,
                                   .strict = b->strict,
                                   .straggler_ms = 10000,
                                   .signer = &b->signer.signer};
    b->aggregator_env = env_of(b, "aggregator");
    assert_int_equal(outer_state_open(&b->aggregator_state, b->aggregator_env, cpu, &o, &b->arena),
                     ERR_OK);
    if (outer_state_begun(&b->aggregator_state))
        assert_int_equal(outer_state_load(&b->aggregator_state), ERR_OK);
    else
        assert_int_equal(outer_state_begin(&b->aggregator_state, b->initial), ERR_OK);
    assert_int_equal(
        aggregator_open(&b->aggregator, b->aggregator_env, &b->aggregator_state, &a, &b->arena),
        ERR_OK);
    b->service = aggregator_service(b->aggregator);
}

static void aggregator_end(struct bench *b)
{
    aggregator_close(b->aggregator);
    outer_state_close(&b->aggregator_state);
    env_posix_close(b->aggregator_env);
}

static enum err site_open_as(struct bench *b, const char *name, const char *directory)
{
    struct outer_state_options o = outer_state_of(b, true);
    struct site_options s = {.run = "t",
                             .name = name,
                             .index = 0,
                             .site_count = SITES,
                             .canonical = canonical,
                             .strict = b->strict,
                             .error_feedback_decay = 1,
                             .straggler_ms = 10000,
                             .seed = 1,
                             .stop = &b->stop,
                             .organs = {.count = 1, .at = {roster_at_site()}},
                             .signer = &b->signers[0].signer};
    b->site_env = env_of(b, directory);
    assert_int_equal(outer_state_open(&b->site_state, b->site_env, cpu, &o, &b->arena), ERR_OK);
    return site_open(&b->site, b->site_env, &b->link.link, &b->site_state, &s, &b->arena);
}

static void site_begin(struct bench *b)
{
    assert_int_equal(site_open_as(b, "s0", "site"), ERR_OK);
}

static void site_end(struct bench *b)
{
    site_close(b->site);
    outer_state_close(&b->site_state);
    env_posix_close(b->site_env);
}

static void site_again(struct bench *b) /* kill -9 and a start */
{
    site_end(b);
    site_begin(b);
}

static struct bench *bench_open(bool strict)
{
    struct bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->strict = strict;
    b->keep = 3;
    snprintf(b->root, sizeof b->root, "%s/test_site.XXXXXX", scratch_place());
    assert_non_null(mkdtemp(b->root));
    b->arena = arena_make(0);
    b->table = toy_table(b->tensors, 1);
    assert_true(b->table.elements <= ELEMENTS_MAX);
    assert_int_equal(
        fragment_make(&b->fragments, &b->table, &(struct fragment_plan){.count = 1}, &b->arena),
        ERR_OK);
    for (size_t i = 0; i < b->table.elements; i++)
        b->initial[i] = toy_used(&b->table, i) ? (float)(i % 64) / 64 : 0;
    b->link = (struct direct){.link = {&direct_ops}, .service = &b->service, .bench = b};
    signer_sim_open(&b->signer, "t", "aggregator", "aggregator");
    for (unsigned i = 0; i < SITES; i++)
        signer_sim_open(&b->signers[i], "t", "site", names[i]);
    aggregator_begin(b);
    site_begin(b);
    return b;
}

static void bench_close(struct bench *b)
{
    site_end(b);
    aggregator_end(b);
    arena_free(&b->arena);
    assert_int_equal(file_remove_tree(b->root), ERR_OK);
    free(b);
}

/* ---- the other sites ---- */

static struct wire_head head_of(const struct bench *b, unsigned site)
{
    struct aggregator_status *status = calloc(1, sizeof *status);
    struct wire_head h = {
        .config = digest_of(canonical, strlen(canonical)), .incarnation = 1, .instance = 7 + site};
    assert_non_null(status);
    aggregator_status(b->aggregator, status);
    h.term = status->term;
    free(status);
    snprintf(h.run, sizeof h.run, "t");
    snprintf(h.site, sizeof h.site, "%s", names[site]);
    return h;
}

/* Hello and a contribution of z = 1/64 everywhere, by site 1 or 2, to the round in flight. */
static void other(struct bench *b, unsigned site)
{
    const struct outer_state_fragment *s = &b->aggregator_state.state[0];
    const struct codec *c = codec_get(outer_state_codec(&b->aggregator_state, 0));
    size_t n = b->fragments.f[0].elements;
    float z[ELEMENTS_MAX], residual[ELEMENTS_MAX];
    uint8_t *payload = arena_alloc(&b->arena, c->payload_max(c, n));
    size_t bytes;
    char from[64];
    snprintf(from, sizeof from, "atoll://t/site/%s", names[site]);
    for (size_t i = 0; i < n; i++)
        z[i] = 1.0f / 64;
    assert_int_equal(
        c->encode(
            c, &(struct codec_call){.work = b->aggregator_state.work, .grid = s->codes, .count = n},
            payload, &bytes, residual, z),
        ERR_OK);
    struct wire_hello *hello = calloc(1, sizeof *hello);
    struct wire_hello_answer *ha = calloc(1, sizeof *ha);
    *hello = (struct wire_hello){
        .head = head_of(b, site), .major = WIRE_MAJOR, .config = canonical, .has_state = false};
    struct signer *signer = &b->signers[site].signer;
    assert_int_equal(signer->ops->certificate(signer, hello->identity, &hello->identity_bytes),
                     ERR_OK);
    b->service.hello(b->service.self, from, hello, ha);
    assert_int_equal(ha->outcome, ROUND_JOIN);
    free(hello);
    free(ha);
    struct wire_contribution m = {.head = head_of(b, site),
                                  .codec = c->kind,
                                  .round = s->round,
                                  .parent = s->manifest,
                                  .payload_bytes = bytes,
                                  .grid = outer_state_grid(&b->aggregator_state, 0),
                                  .payload = digest_of(payload, bytes),
                                  .weight = b->huge_weights ? FLT_MAX : 1};
    struct wire_answer a;
    assert_int_equal(signed_header_sign(signer, &m), ERR_OK);
    deliver(&b->service, from, &m, payload, &a);
    assert_int_equal(a.outcome, ROUND_RECEIPT);
    work(&b->link);
}

static void others(struct bench *b)
{
    other(b, 1);
    other(b, 2);
}

/* The site trained: 1/32 down, everywhere. */
static void train(struct bench *b)
{
    for (size_t i = 0; i < b->fragments.f[0].elements; i++)
        b->local[i] = b->site_state.state[0].theta[i] - 1.0f / 32 - (float)(i % 7) / 1024;
}

static enum err exchange_of(struct bench *b, uint64_t round)
{
    return exchange(b->site, &b->site_state,
                    &(struct site_submission){
                        .round = round, .base = round, .weight = 1, .data_cursor = 100, .step = 10},
                    b->local);
}

static enum err round_of(struct bench *b, uint64_t round)
{
    train(b);
    return exchange_of(b, round);
}

static void start(struct bench *b)
{
    assert_int_equal(site_start(b->site, b->initial), ERR_OK);
}

static bool equal_states(const struct bench *b)
{
    return b->site_state.state[0].round == b->aggregator_state.state[0].round &&
           digest_equal(&b->site_state.state[0].digest, &b->aggregator_state.state[0].digest);
}

/* ---- tests ---- */

static void test_round_and_report(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    start(b);
    others(b);
    assert_int_equal(round_of(b, 0), ERR_OK);
    assert_true(equal_states(b));
    assert_memory_equal(b->local, b->site_state.state[0].theta,
                        b->fragments.f[0].elements * sizeof *b->local);
    assert_int_equal(b->link.offers, 1);
    assert_int_equal(site_leave(b->site, "test"), ERR_OK);
    bench_close(b);
}

static void last_round(struct bench *b)
{
    start(b);
    for (uint64_t r = 0; r + 1 < ROUNDS; r++) {
        others(b);
        assert_int_equal(round_of(b, r), ERR_OK);
    }
    others(b);
}

/* Ten minutes without an aggregator right after the last commit are a pause, as at any other time:
 * the site tells its end, for which the aggregator waits. */
static void test_the_end_is_told_after_an_outage(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    uint64_t before = now;
    last_round(b);
    b->link.mute = 200;
    assert_int_equal(round_of(b, ROUNDS - 1), ERR_OK);
    assert_int_equal(b->link.mute, 0);
    assert_true(now - before > 600000);
    assert_int_equal(site_leave(b->site, "test"), ERR_OK);
    assert_true(b->aggregator->site[0].finished);
    bench_close(b);
}

/* An aggregator that recorded the end and was gone before the answer came: no site tries for ever.
 */
static void test_the_end_is_told_for_an_hour(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    last_round(b);
    uint64_t before = now;
    b->link.mute = 1000000;
    assert_int_equal(round_of(b, ROUNDS - 1), ERR_OK);
    assert_true(equal_states(b));
    assert_in_range(now - before, 3600000, 3700000);
    bench_close(b);
}

/* The answer to a report tells the aggregator's time. A call that took long tells nothing. */
static void test_clocks_are_compared(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    wall_ms = 1700000000000;
    start(b);
    assert_true(isnan(site_clock_s(b->site)));
    b->link.ahead_ms = 90000;
    b->link.slow_ms = 1000;
    others(b);
    assert_int_equal(round_of(b, 0), ERR_OK);
    assert_true(site_clock_s(b->site) == -89.5); /* the answer is of the call's begin */
    b->link.slow_ms = 3000;
    b->link.ahead_ms = 0;
    others(b);
    assert_int_equal(round_of(b, 1), ERR_OK);
    assert_true(site_clock_s(b->site) == -89.5);
    b->link.slow_ms = 0;
    others(b);
    assert_int_equal(round_of(b, 2), ERR_OK);
    assert_true(site_clock_s(b->site) == 0);
    wall_ms = 0;
    bench_close(b);
}

/* DiLoCo with a mean of three deltas, first step: theta - lr*(1+mu)*mean, in float64
 * (full-precision rounds: exact to bf16). */
static void test_one_round_by_hand(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    start(b);
    others(b);
    assert_int_equal(round_of(b, 0), ERR_OK);
    for (size_t i = 0; i < b->table.elements; i++) {
        double mean = (2.0 / 64 + 1.0 / 32 + (double)(i % 7) / 1024) / 3;
        assert_true(fabs(b->local[i] - ((double)b->initial[i] - 0.7 * 1.9 * mean)) < 1e-4);
    }
    bench_close(b);
}

/* Full, resume, down, rebind: the same bytes again, until received. */
static void test_same_bytes_until_received(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    static const enum round_outcome soft[] = {ROUND_FULL,  ROUND_RESUME,     ROUND_REBIND,
                                              ROUND_EARLY, ROUND_LOST_STATE, ROUND_SUPERSEDED};
    start(b);
    for (size_t i = 0; i < sizeof soft / sizeof soft[0]; i++) {
        uint64_t before = now;
        unsigned offers = b->link.offers;
        others(b);
        b->link.refuse = 2;
        b->link.outcome = soft[i];
        assert_int_equal(round_of(b, i), ERR_OK);
        assert_int_equal(b->link.offers, offers + 3);
        assert_true(soft[i] == ROUND_REBIND || now - before >= 200); /* no hammering */
        assert_true(soft[i] != ROUND_FULL || now - before >= 1400);  /* as told */
        assert_true(equal_states(b));
    }
    bench_close(b);
}

static void test_hard_refusals(void **state)
{
    (void)state;
    static const struct {
        enum round_outcome outcome;
        enum err e;
    } hard[] = {{ROUND_DENIED, ERR_DENIED},     {ROUND_EXCLUDED, ERR_DENIED},
                {ROUND_INVALID, ERR_PROTO},     {ROUND_MISMATCH, ERR_MISMATCH},
                {ROUND_CONFLICT, ERR_DISAGREE}, {ROUND_GONE, ERR_PROTO}};
    struct bench *b = bench_open(true);
    start(b);
    for (size_t i = 0; i < sizeof hard / sizeof hard[0]; i++) {
        b->link.refuse = 1;
        b->link.outcome = hard[i].outcome;
        assert_int_equal(round_of(b, 0), hard[i].e);
        assert_non_null(strstr(err_message(), round_outcome_name(hard[i].outcome)));
    }
    others(b);
    assert_int_equal(round_of(b, 0), ERR_OK); /* nothing was lost by any of them */
    bench_close(b);
}

static bool outbox(const struct bench *b, unsigned round)
{
    char path[128];
    snprintf(path, sizeof path, "%s/site/outbox/0/%u", b->root, round);
    return file_exists(path);
}

static void test_not_finite_is_neither_stored_nor_sent(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    start(b);
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 3; i++) {
        train(b);
        b->local[37] = bad[i];
        assert_int_equal(exchange_of(b, 0), ERR_DIVERGED);
        assert_int_equal(b->link.offers, 0);
        assert_false(outbox(b, 0));
    }
    bench_close(b);
}

/* The round after one that left too much over is whole and of fresh work alone; what had waited
 * is booked as discarded. */
static void test_residual_reset(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    site_end(b);
    aggregator_end(b);
    b->residual_reset = 90; /* well below what int8 leaves */
    aggregator_begin(b);
    site_begin(b);
    start(b);
    size_t n = b->fragments.f[0].elements;
    float *waited = arena_array(&b->arena, n, sizeof *waited);
    const struct outer_state_fragment *s = &b->site_state.state[0];
    const enum codec_kind want[] = {CODEC_BF16, CODEC_INT8, CODEC_BF16, CODEC_INT8};
    double some = 0;
    for (uint64_t round = 0; round < 4; round++) {
        struct manifest m;
        memcpy(waited, s->residual, n * sizeof *waited);
        double *before = arena_array(&b->arena, n, sizeof *before);
        memcpy(before, s->discarded, n * sizeof *before);
        assert_int_equal(outer_state_codec(&b->site_state, 0), want[round]);
        others(b);
        assert_int_equal(round_of(b, round), ERR_OK);
        assert_true(equal_states(b));
        assert_int_equal(outer_state_manifest(&b->site_state, 0, round, &m), ERR_OK);
        assert_int_equal(m.codec, want[round]);
        assert_int_equal(m.sites[0].residual_ratio >= 90, want[round] == CODEC_INT8);
        for (size_t i = 0; i < n; i++) {
            double forgot = s->discarded[i] - before[i];
            assert_true(forgot == (round == 2 ? (double)waited[i] : 0));
            some += fabs(forgot);
        }
    }
    assert_true(some > 0);
    site_again(b); /* the decision survives restarts of both */
    aggregator_end(b);
    aggregator_begin(b);
    start(b);
    assert_int_equal(outer_state_codec(&b->site_state, 0), CODEC_BF16);
    assert_int_equal(outer_state_codec(&b->aggregator_state, 0), CODEC_BF16);
    bench_close(b);
}

/* A damaged parameter ends a strict site, and nothing of it leaves. */
static void test_spike_is_neither_stored_nor_sent(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    start(b);
    train(b);
    b->local[37] = ldexpf(b->local[37], 30);
    assert_int_equal(exchange_of(b, 0), ERR_DIVERGED);
    assert_non_null(strstr(err_message(), "value 37 of the delta"));
    assert_int_equal(b->link.offers, 0);
    assert_false(outbox(b, 0));
    others(b);
    assert_int_equal(round_of(b, 0), ERR_OK); /* after a restart: the same steps, undamaged */
    assert_true(equal_states(b));
    bench_close(b);
}

/* In quorum mode the others commit without it; it takes their result and is back in the next. */
static void test_damaged_site_is_skipped(void **state)
{
    (void)state;
    static const float bad[] = {NAN, 1e9f, -1e30f};
    struct bench *b = bench_open(false);
    size_t n = b->fragments.f[0].elements;
    start(b);
    for (uint64_t i = 0; i < 3; i++) {
        struct manifest m;
        unsigned offers = b->link.offers;
        others(b);
        train(b);
        b->local[37] = bad[i];
        float *kept = arena_array(&b->arena, n, sizeof *kept);
        memcpy(kept, b->site_state.state[0].residual, n * sizeof *kept);
        assert_int_equal(exchange_of(b, 2 * i), ERR_OK);
        assert_int_equal(b->link.offers, offers);
        assert_false(outbox(b, (unsigned)(2 * i)));
        assert_true(equal_states(b));
        assert_memory_equal(b->local, b->site_state.state[0].theta, n * sizeof *b->local);
        assert_memory_equal(kept, b->site_state.state[0].residual, n * sizeof *kept);
        assert_int_equal(outer_state_manifest(&b->site_state, 0, 2 * i, &m), ERR_OK);
        assert_int_equal(manifest_included(&m), 2);
        assert_false(m.sites[0].included);
        others(b);
        assert_int_equal(round_of(b, 2 * i + 1), ERR_OK);
        assert_int_equal(outer_state_manifest(&b->site_state, 0, 2 * i + 1, &m), ERR_OK);
        assert_int_equal(manifest_included(&m), 3);
    }
    bench_close(b);
}

/* A round that is aborted: the state stays, z is in the residual to the last bit, also in strict
 * mode, and goes with the next round. */
static void test_aborted_round_goes_back(void **state)
{
    (void)state;
    for (int strict = 0; strict < 2; strict++) {
        struct bench *b = bench_open(strict);
        size_t n = b->fragments.f[0].elements;
        struct manifest m;
        start(b);
        struct digest before = b->site_state.state[0].digest;
        b->huge_weights = true; /* their sum is infinite, and nothing bounds them here */
        for (uint64_t round = 0; round < 2; round++) {
            others(b);
            assert_int_equal(round_of(b, round), ERR_OK);
            assert_true(equal_states(b));
            assert_true(digest_equal(&before, &b->site_state.state[0].digest));
            assert_int_equal(outer_state_manifest(&b->site_state, 0, round, &m), ERR_OK);
            assert_true(manifest_aborted(&m));
            assert_memory_equal(b->local, b->site_state.state[0].theta, n * sizeof *b->local);
            for (size_t i = 0; i < n; i++) /* as train() moves, once for each round */
                assert_true(b->site_state.state[0].residual[i] ==
                            (float)(round + 1) * (1.0f / 32 + (float)(i % 7) / 1024));
            site_again(b);
            start(b);
        }
        b->huge_weights = false;
        others(b);
        assert_int_equal(round_of(b, 2), ERR_OK);
        assert_true(equal_states(b));
        assert_false(digest_equal(&before, &b->site_state.state[0].digest));
        bench_close(b);
    }
}

/* An operator closes the round in flight before this site has trained for it. */
static void round_close(struct bench *b)
{
    struct wire_operate m = {.act = WIRE_ABORT, .round = b->aggregator_state.state[0].round};
    struct wire_answer answer = {.outcome = ROUND_NONE};
    others(b);
    b->service.operate(b->service.self, "atoll://t/operator/op", &m, &answer);
    assert_int_equal(answer.outcome, ROUND_CURRENT);
    work(&b->link);
    assert_int_equal(b->aggregator_state.state[0].round, m.round + 1);
}

/* A strict site that hears of it at its start adopts the round at its own step: its steps are in
 * the residual, as those of a site that had contributed, and nothing is sent. Damaged values are
 * not. */
static void test_closed_before_it_was_trained_for(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    size_t n = b->fragments.f[0].elements;
    start(b);
    for (uint64_t round = 0; round < 2; round++) {
        round_close(b);
        site_again(b);
        start(b);
        const struct outer_state_fragment *s = &b->site_state.state[0];
        assert_int_equal(s->round, round);
        train(b);
        if (round == 1)
            b->local[37] = ldexpf(b->local[37], 30);
        assert_int_equal(exchange_of(b, round), ERR_OK);
        assert_int_equal(b->link.offers, 0);
        assert_true(equal_states(b));
        assert_memory_equal(b->local, s->theta, n * sizeof *b->local);
        for (size_t i = 0; i < n; i++)
            assert_true(s->residual[i] == 1.0f / 32 + (float)(i % 7) / 1024);
    }
    others(b);
    assert_int_equal(round_of(b, 2), ERR_OK);
    assert_true(equal_states(b));
    assert_int_equal(b->link.offers, 1);
    bench_close(b);
}

/* Killed after the bytes were stored, in every wait: the stored ones go, not those that the trainer
 * would make now. */
static void test_killed_and_sent_again(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    start(b);
    b->link.refuse = 1;
    b->link.outcome = ROUND_INVALID; /* ends the call after S3 */
    assert_int_equal(round_of(b, 0), ERR_PROTO);
    struct digest first = b->link.sent;
    assert_true(outbox(b, 0));
    site_again(b);
    start(b); /* sends at once: the others wait for it */
    assert_true(digest_equal(&first, &b->link.sent));
    assert_int_equal(b->link.offers, 2);
    others(b);
    for (size_t i = 0; i < b->table.elements; i++)
        b->local[i] = 99; /* another trainer; its bytes must not matter */
    assert_int_equal(exchange_of(b, 0), ERR_OK);
    assert_int_equal(b->link.offers, 2);
    assert_true(equal_states(b));
    bench_close(b);
}

static void test_damaged_outbox(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    char path[128];
    start(b);
    b->link.refuse = 1;
    b->link.outcome = ROUND_INVALID;
    assert_int_equal(round_of(b, 0), ERR_PROTO);
    snprintf(path, sizeof path, "%s/site/outbox/0/0", b->root);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    for (long at = 0; at < size; at += at < 256 ? 13 : 977) {
        fseek(f, at, SEEK_SET);
        int c = fgetc(f);
        fseek(f, at, SEEK_SET);
        fputc(c ^ 2, f);
        fflush(f);
        site_again(b);
        assert_int_equal(site_start(b->site, b->initial), ERR_CORRUPT);
        fseek(f, at, SEEK_SET);
        fputc(c, f);
        fflush(f);
    }
    fclose(f);
    site_again(b);
    start(b);
    bench_close(b);
}

static void test_stop_while_waiting(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    start(b);
    b->link.down = 3;
    b->stop = 1;
    assert_int_equal(round_of(b, 0), ERR_STOPPED);
    b->stop = 0;
    others(b);
    assert_int_equal(round_of(b, 0), ERR_OK);
    bench_close(b);
}

/* Rounds whose state is recorded: nothing is sent, the recorded theta comes back, also over the
 * newest. */
static void test_replay_sends_nothing(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    float theta[3][ELEMENTS_MAX];
    size_t bytes = b->table.elements * sizeof(float);
    start(b);
    for (uint64_t t = 0; t < 3; t++) {
        others(b);
        assert_int_equal(round_of(b, t), ERR_OK);
        memcpy(theta[t], b->local, bytes);
    }
    site_again(b);
    start(b);
    unsigned offers = b->link.offers, polls = b->link.polls;
    for (uint64_t t = 0; t < 3; t++) {
        b->local[0] = -1;
        assert_int_equal(exchange_of(b, t), ERR_OK);
        assert_memory_equal(theta[t], b->local, bytes);
    }
    assert_int_equal(b->link.offers, offers);
    assert_int_equal(b->link.polls, polls);
    assert_int_equal(exchange_of(b, 5), ERR_INTERNAL); /* a round left out */
    bench_close(b);
}

/* Quorum: sealed without us. What was encoded comes back whole: residual = z. */
static void test_late_work_stays(void **state)
{
    (void)state;
    struct bench *b = bench_open(false);
    start(b);
    b->link.down = 1; /* stored, not sent; meanwhile the others' deadline passes */
    b->stop = 1;
    assert_int_equal(round_of(b, 0), ERR_STOPPED);
    b->stop = 0;
    others(b);
    now += 20000;
    work(&b->link);
    assert_int_equal(b->aggregator_state.state[0].round, 1);
    assert_int_equal(round_of(b, 0), ERR_OK);
    assert_true(equal_states(b));
    for (size_t i = 0; i < b->fragments.f[0].elements; i++) {
        float local = b->initial[i] - 1.0f / 32 - (float)(i % 7) / 1024;
        assert_true(b->site_state.state[0].residual[i] == b->initial[i] - local);
    }
    bench_close(b);
}

/* Away for two rounds, kept: by aggregates, residual untouched. Away for more: a snapshot, residual
 * zero. */
static void test_catch_up_and_leap(void **state)
{
    (void)state;
    struct bench *b = bench_open(false);
    size_t bytes = b->table.elements * sizeof(float);
    float residual[ELEMENTS_MAX];
    start(b);
    for (uint64_t t = 0; t < 2; t++) {
        others(b);
        assert_int_equal(round_of(b, t), ERR_OK);
    }
    memcpy(residual, b->site_state.state[0].residual, bytes);
    for (int t = 0; t < 2; t++) {
        others(b);
        now += 20000;
        work(&b->link);
    }
    site_again(b);
    start(b);
    assert_true(equal_states(b));
    assert_int_equal(b->site_state.state[0].round, 4);
    assert_memory_equal(residual, b->site_state.state[0].residual, bytes);
    for (int t = 0; t < 5; t++) {
        others(b);
        now += 20000;
        work(&b->link);
    }
    site_again(b);
    start(b);
    assert_true(equal_states(b));
    assert_int_equal(b->site_state.state[0].round, 9);
    for (size_t i = 0; i < b->table.elements; i++)
        assert_true(b->site_state.state[0].residual[i] == 0);
    others(b); /* and it takes part again */
    assert_int_equal(round_of(b, 9), ERR_OK);
    assert_true(equal_states(b));
    bench_close(b);
}

static void test_joins_late(void **state)
{
    (void)state;
    struct bench *b = bench_open(false);
    for (int t = 0; t < 6; t++) {
        others(b);
        now += 20000;
        work(&b->link);
    }
    start(b);
    assert_int_equal(b->site_state.state[0].round, 6);
    assert_true(equal_states(b));
    others(b);
    assert_int_equal(round_of(b, 6), ERR_OK);
    assert_true(equal_states(b));
    bench_close(b);
}

static void test_other_initial_parameters(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    b->initial[3] += 1;
    assert_int_equal(site_start(b->site, b->initial), ERR_MISMATCH);
    assert_non_null(strstr(err_message(), "initial parameters"));
    b->initial[3] -= 1;
    bench_close(b);
}

static void spoil_parent(struct manifest *m)
{
    m->parent.bytes[0] ^= 1;
}
static void spoil_instance(struct manifest *m)
{
    m->instance ^= 1;
}
static void spoil_run(struct manifest *m)
{
    m->run[0] = 'x';
}
static void spoil_own(struct manifest *m)
{
    m->sites[0].payload.bytes[5] ^= 1;
}
static void spoil_omit(struct manifest *m)
{
    m->sites[0] = (struct manifest_entry){.site = 0, .reason = ROUND_LATE};
}
static void spoil_size(struct manifest *m)
{
    m->aggregate_bytes += 1;
}
static void spoil_codec(struct manifest *m)
{
    m->codec = CODEC_F32;
}

/* This site's entry is not there at all. */
static void entry_drop(struct manifest *m)
{
    memmove(&m->sites[0], &m->sites[1], (m->site_count - 1) * sizeof m->sites[0]);
    m->site_count--;
}
static void roster_made(struct manifest *m, uint32_t version, enum manifest_act act, uint32_t site)
{
    m->initial = m->site_count;
    m->roster_version = version;
    m->change = (struct manifest_change){(uint8_t)act, site, digest_of("boss", 4)};
}
static void
spoil_left_out(struct manifest *m) /* and the manifest does not say that it was removed */
{
    entry_drop(m);
}
static void spoil_other_removed(struct manifest *m) /* the act is about another site */
{
    roster_made(m, 2, MANIFEST_REMOVE, 1);
    entry_drop(m);
}
static void spoil_version_skipped(struct manifest *m)
{
    roster_made(m, 3, MANIFEST_REMOVE, 0);
    entry_drop(m);
}
static void spoil_nobody_joined(struct manifest *m) /* a version without its act */
{
    roster_made(m, 2, MANIFEST_ADD, m->site_count);
}

static void spoil_charges(struct manifest *m) /* of the bytes that this site has sent */
{
    m->sites[0].charged += 7;
}

/* A manifest that is not what it must be is never adopted; the true one still is. */
static void test_spoiled_manifests(void **state)
{
    (void)state;
    static const struct {
        void (*spoil)(struct manifest *m);
        enum err e;
    } cases[] = {{spoil_parent, ERR_DISAGREE},
                 {spoil_instance, ERR_DISAGREE},
                 {spoil_run, ERR_PROTO},
                 {spoil_own, ERR_DISAGREE},
                 {spoil_omit, ERR_DISAGREE},
                 {spoil_size, ERR_PROTO},
                 {spoil_codec, ERR_PROTO},
                 {spoil_left_out, ERR_PROTO},
                 {spoil_other_removed, ERR_DISAGREE},
                 {spoil_version_skipped, ERR_DISAGREE},
                 {spoil_nobody_joined, ERR_DISAGREE},
                 {spoil_charges, ERR_DISAGREE}};
    struct bench *b = bench_open(true);
    start(b);
    others(b);
    assert_int_equal(round_of(b, 0), ERR_OK);
    others(b);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        b->link.spoil_manifest = 1;
        b->link.manifest = cases[i].spoil;
        assert_int_equal(round_of(b, 1), cases[i].e);
        assert_int_equal(b->site_state.state[0].round, 1);
    }
    b->link.spoil_manifest = 0;
    assert_int_equal(round_of(b, 1), ERR_OK);
    assert_true(equal_states(b));
    bench_close(b);
}

static void spoil_other_site(struct manifest *m) /* version 1, and another site in one's place */
{
    m->sites[m->site_count - 1].site++;
}

static void byte_flip(const char *path)
{
    struct arena scratch = arena_make(0);
    uint8_t *data;
    size_t n;
    assert_int_equal(file_read(path, 1 << 20, &scratch, &data, &n), ERR_OK);
    data[n / 2] ^= 1;
    assert_int_equal(file_write(path, &(struct file_part){data, n}, 1, 0644), ERR_OK);
    arena_free(&scratch);
}

/* Which sites a round may have is in the manifest before. Where that cannot be read, another set of
 * sites is not adopted since nothing is known: version 1 is the configuration's, and for a later
 * one the aggregator is asked for the manifest. */
static void test_roster_unknown(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    char path[256];
    start(b);
    others(b);
    assert_int_equal(round_of(b, 0), ERR_OK);
    others(b);
    snprintf(path, sizeof path, "%s/site/frag/0/1/MANIFEST", b->root);
    byte_flip(path);
    b->link.spoil_manifest = 1; /* it is asked for at the start, and is not the right one */
    b->link.manifest = spoil_parent;
    site_again(b);
    start(b);
    assert_int_equal(b->link.spoil_manifest, 0);
    b->link.spoil_manifest = 1;
    b->link.manifest = spoil_other_site;
    assert_int_equal(round_of(b, 1), ERR_DISAGREE);
    assert_int_equal(b->site_state.state[0].round, 1);
    unsigned polls = b->link.polls;
    b->link.spoil_manifest = 1;
    b->link.manifest = spoil_other_removed;
    assert_int_equal(round_of(b, 1), ERR_DISAGREE);
    assert_true(b->link.polls >= polls + 2); /* the second one is for the manifest */
    assert_int_equal(b->site_state.state[0].round, 1);
    assert_int_equal(round_of(b, 1), ERR_OK);
    assert_true(equal_states(b));
    bench_close(b);
}

/* Of two sites that are left one is half of them, and no majority. */
static void spoil_half(struct manifest *m)
{
    m->initial = m->site_count;
    m->roster_version = 2;
    m->change = (struct manifest_change){MANIFEST_REMOVE, 2, digest_of("boss", 4)};
    m->site_count = 2;
    m->sites[1] = (struct manifest_entry){.site = 1, .reason = ROUND_LATE};
}

static void test_half_is_no_majority(void **state)
{
    (void)state;
    struct bench *b = bench_open(false);
    start(b);
    others(b);
    assert_int_equal(round_of(b, 0), ERR_OK);
    others(b);
    b->link.spoil_manifest = 1;
    b->link.manifest = spoil_half;
    assert_int_equal(round_of(b, 1), ERR_DISAGREE);
    assert_non_null(strstr(err_message(), "1 of 2 sites included, at least 2 must be"));
    assert_int_equal(b->site_state.state[0].round, 1);
    assert_int_equal(round_of(b, 1), ERR_OK);
    assert_true(equal_states(b));
    bench_close(b);
}

static unsigned long long spoiled_rounds;
static void spoil_after(struct manifest *m)
{
    m->state_after.bytes[9] ^= 1;
    spoiled_rounds++;
}

static void copied(const struct bench *b, const char *from, const char *to)
{
    char command[256];
    snprintf(command, sizeof command, "rm -rf %s/%s && cp -a %s/%s %s/%s", b->root, to, b->root,
             from, b->root, to);
    assert_int_equal(system(command), 0);
}

static void spoil_signature(struct manifest *m)
{
    m->signature[5] ^= 1;
}

static void spoil_term(struct manifest *m)
{
    m->term++;
}

static void spoil_time(struct manifest *m)
{
    m->unix_ms++;
}

/* Each part of body and envelope is signed; and a signed term must be one that the site knows. */
static void test_what_is_not_signed_is_not_adopted(void **state)
{
    (void)state;
    static void (*const cases[])(struct manifest * m) = {spoil_signature, spoil_term, spoil_time,
                                                         spoil_own, spoil_after};
    struct bench *b = bench_open(true);
    start(b);
    others(b);
    assert_int_equal(round_of(b, 0), ERR_OK);
    others(b);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        b->link.spoil_manifest = 2; /* it asks a second time, after a hello */
        b->link.manifest = cases[i];
        b->link.unsigned_ = true;
        assert_int_equal(round_of(b, 1), ERR_DENIED);
        assert_int_equal(b->site_state.state[0].round, 1);
    }
    b->link.spoil_manifest = 1;
    b->link.manifest = spoil_term;
    b->link.unsigned_ = false; /* by another process of the aggregator, unknown to the site */
    assert_int_equal(round_of(b, 1), ERR_DISAGREE);
    assert_int_equal(b->site_state.state[0].round, 1);
    assert_int_equal(round_of(b, 1), ERR_OK);
    assert_true(equal_states(b));
    bench_close(b);
}

/* The aggregator signs with another key from now on: a site that meets a signature that it does not
 * know says hello, and continues. */
static void test_another_key_of_the_aggregator(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    start(b);
    others(b);
    assert_int_equal(round_of(b, 0), ERR_OK);
    unsigned hellos = b->link.hellos;
    strcat(b->signer.uri, "#2");
    others(b);
    assert_int_equal(round_of(b, 1), ERR_OK);
    assert_int_equal(b->link.hellos, hellos + 1);
    others(b);
    assert_int_equal(round_of(b, 2), ERR_OK);
    assert_int_equal(b->link.hellos, hellos + 1);
    assert_true(equal_states(b));
    site_again(b); /* what it adopted before was signed with the former key */
    start(b);
    assert_int_equal(aggregator_failed(b->aggregator), ERR_OK);
    bench_close(b);
}

static void aggregator_again(struct bench *b) /* the next term */
{
    aggregator_end(b);
    aggregator_begin(b);
}

static void seen_one(struct bench *b, uint64_t first, uint64_t last)
{
    struct site_seen_key seen[SITE_KEYS_MAX];
    assert_int_equal(site_seen_keys(b->site_env, 0, "t", &b->signer.signer, seen), 1);
    assert_int_equal(seen[0].first, first);
    assert_int_equal(seen[0].last, last);
}

/* Terms that the site has heard of one after the other have the key in common. After one that it
 * has not heard of they begin again: there may have been another key in it. */
static void test_terms_of_a_key(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    start(b);
    seen_one(b, 1, 1);
    for (uint64_t term = 2; term <= 3; term++) {
        aggregator_again(b);
        others(b);
        assert_int_equal(round_of(b, term - 2), ERR_OK);
        seen_one(b, 1, term);
    }
    aggregator_again(b);
    aggregator_again(b);
    others(b);
    assert_int_equal(round_of(b, 2), ERR_OK);
    seen_one(b, 5, 5);
    bench_close(b);
}

/* The site's directory keeps each key that the aggregator has had, with the terms that it had it
 * in: atoll replay checks the manifests of all of them. The oldest key goes after SITE_KEYS_MAX.
 */
static void test_all_keys_of_the_aggregator(void **state)
{
    (void)state;
    struct site_seen_key seen[SITE_KEYS_MAX];
    struct manifest first;
    struct bench *b = bench_open(true);
    start(b);
    others(b);
    assert_int_equal(round_of(b, 0), ERR_OK);
    assert_int_equal(outer_state_manifest(&b->site_state, 0, 0, &first), ERR_OK);
    uint64_t term = first.term;
    for (unsigned k = 1; k <= SITE_KEYS_MAX; k++) {
        unsigned keys = site_seen_keys(b->site_env, 0, "t", &b->signer.signer, seen);
        assert_int_equal(keys, k);
        assert_true(signed_manifest_holds(&b->signer.signer, &seen[k - 1].key, &first));
        assert_int_equal(seen[k - 1].first, term);
        assert_int_equal(seen[k - 1].last, term);
        for (unsigned i = 0; i + 1 < k; i++)
            assert_false(signed_manifest_holds(&b->signer.signer, &seen[i].key, &first));
        if (k == 1)
            strcat(b->signer.uri, "#2");
        else
            b->signer.uri[strlen(b->signer.uri) - 1]++;
        others(b);
        assert_int_equal(round_of(b, k), ERR_OK);
    }
    assert_int_equal(site_seen_keys(b->site_env, 0, "t", &b->signer.signer, seen), SITE_KEYS_MAX);
    for (unsigned i = 0; i < SITE_KEYS_MAX; i++)
        assert_false(signed_manifest_holds(&b->signer.signer, &seen[i].key, &first));
    bench_close(b);
}

static void announce_nothing(struct bench *b, struct wire_hello_answer *a)
{
    (void)b;
    a->announcement.size_bytes = 0;
}

static void announce_other_term(struct bench *b, struct wire_hello_answer *a)
{
    (void)b;
    a->term++;
}

static void announce_damaged(struct bench *b, struct wire_hello_answer *a)
{
    (void)b;
    a->announcement.bytes[a->announcement.size_bytes - 1] ^= 1;
}

static void announce_by_site(struct bench *b, struct wire_hello_answer *a)
{
    struct signed_announcement s = {.run = "t", .term = a->term, .instance = a->instance};
    assert_int_equal(signed_announcement_make(&b->signers[1].signer, &s, &a->announcement), ERR_OK);
}

static void announce_of_other(struct bench *b, struct wire_hello_answer *a)
{
    struct signed_announcement s = {
        .run = "t", .aggregator = 1, .term = a->term, .instance = a->instance};
    assert_int_equal(signed_announcement_make(&b->signer.signer, &s, &a->announcement), ERR_OK);
}

/* The site binds to none of them, and nothing of them is on record. */
static void test_an_term_that_is_not_signed(void **state)
{
    (void)state;
    static void (*const cases[])(struct bench * b, struct wire_hello_answer * a) = {
        announce_nothing, announce_other_term, announce_damaged, announce_by_site,
        announce_of_other};
    struct bench *b = bench_open(true);
    struct site_seen seen;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        b->link.announced = cases[i];
        assert_int_equal(site_start(b->site, b->initial), ERR_DENIED);
        assert_int_equal(site_seen(b->site_env, 0, &seen), ERR_OK);
        assert_int_equal(seen.term, 0);
    }
    b->link.announced = NULL;
    start(b);
    others(b);
    assert_int_equal(round_of(b, 0), ERR_OK);
    assert_int_equal(site_seen(b->site_env, 0, &seen), ERR_OK);
    assert_int_equal(seen.term, 1);
    bench_close(b);
}

static void answer_older(struct bench *b, struct wire_hello_answer *a)
{
    (void)b;
    a->minor = 2;
    if (a->outcome == ROUND_CURRENT) /* of a site that has begun */
        a->outcome = ROUND_CONFLICT;
}

static void answer_supply(struct bench *b, struct wire_hello_answer *a)
{
    (void)b;
    a->outcome = ROUND_SUPPLY;
}

static void sharded_refused(struct bench *b, enum err e)
{
    assert_int_equal(e, ERR_UNSUPPORTED);
    assert_non_null(strstr(err_message(), b->link.announced == answer_older
                                              ? "the aggregator's program is older"
                                              : "the aggregator has lost its directory"));
    assert_non_null(strstr(err_message(), "site.outer_state = lead"));
}

/* Older than minor 3 an aggregator reads a fragment that is elsewhere as one at round 0, of another
 * history. One that lost its directory needs the states of all fragments from one process. */
static void test_what_needs_all_fragments_of_one_process(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    site_end(b);
    b->ranks = 2;
    site_begin(b);
    b->link.announced = answer_older;
    sharded_refused(b, site_start(b->site, b->initial));
    b->link.announced = NULL;
    start(b);
    others(b);
    assert_int_equal(round_of(b, 0), ERR_OK);
    b->link.announced = answer_supply;
    site_lock(b->site);
    sharded_refused(b, site_hello(b->site->own.main, true));
    b->link.announced = answer_older;
    sharded_refused(b, site_hello(b->site->own.main, true));
    site_unlock(b->site);
    bench_close(b);
}

static void announce_other_instance(struct bench *b, struct wire_hello_answer *a)
{
    a->instance ^= 1;
    struct signed_announcement s = {.run = "t", .term = a->term, .instance = a->instance};
    assert_int_equal(signed_announcement_make(&b->signer.signer, &s, &a->announcement), ERR_OK);
}

/* Two aggregators of one term, both signed by the aggregator's key: the site refuses the second
 * one, and shows what it signed to the first one, which halts: which of them is older is not known.
 */
static void test_another_instance_of_an_term(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    start(b);
    others(b);
    assert_int_equal(round_of(b, 0), ERR_OK);
    b->link.announced = announce_other_instance;
    site_lock(b->site);
    assert_int_equal(site_hello(b->site->own.main, true), ERR_DISAGREE);
    site_unlock(b->site);
    assert_non_null(strstr(err_message(), "a second aggregator"));
    b->link.announced = NULL;
    site_lock(b->site);
    assert_int_equal(site_hello_once(b->site->own.main, true), ERR_LINK);
    site_unlock(b->site);
    assert_int_equal(aggregator_failed(b->aggregator), ERR_STALE);
    assert_int_equal(b->site_state.state[0].round, 1);
    bench_close(b);
}

/* What the header next to an accepted contribution says counts at a restart: intact, damaged (asked
 * for again), signed by another site, missing. */
static void test_a_kept_header_is_checked(void **state)
{
    (void)state;
    static const char *const ways[] = {
        "true", "printf x | dd of=$h bs=1 seek=60 conv=notrunc 2>/dev/null",
        "tail -c 64 $o | dd of=$h bs=1 seek=$(($(wc -c <$h) - 64)) conv=notrunc 2>/dev/null",
        "rm $h"};
    struct bench *b = bench_open(true);
    start(b);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        char command[512];
        others(b);
        snprintf(command, sizeof command,
                 "cd %s/aggregator/spool/0/0 && h=$(ls s1.*.header) && o=$(ls s2.*.header) && %s",
                 b->root, ways[i]);
        assert_int_equal(system(command), 0);
        aggregator_end(b);
        aggregator_begin(b);
        assert_int_equal(b->aggregator->core.f[0].entries[1].accepted, i == 0);
        assert_true(b->aggregator->core.f[0].entries[2].accepted);
    }
    others(b); /* sent again */
    assert_int_equal(round_of(b, 0), ERR_OK);
    assert_true(equal_states(b));
    bench_close(b);
}

/* A backup from before a commit takes the aggregator's place, and its term comes out below the one
 * that the site has seen: the site's signatures show what it is. It halts, and is not served again.
 */
static void test_an_older_copy_halts(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    start(b);
    others(b);
    assert_int_equal(round_of(b, 0), ERR_OK);
    copied(b, "aggregator", "copy"); /* term 1 */
    aggregator_end(b);
    aggregator_begin(b); /* term 2 */
    site_again(b);
    start(b);
    others(b);
    assert_int_equal(round_of(b, 1), ERR_OK);
    aggregator_end(b);
    aggregator_begin(b); /* term 3 */
    site_again(b);
    start(b);
    aggregator_end(b);
    copied(b, "copy", "aggregator");
    aggregator_begin(b); /* term 2, and the site has seen 3 */
    site_lock(b->site);
    assert_int_equal(site_hello_once(b->site->own.main, true), ERR_LINK); /* it tries again later */
    site_unlock(b->site);
    assert_non_null(strstr(err_message(), "lost_state"));
    assert_int_equal(aggregator_failed(b->aggregator), ERR_STALE);
    assert_int_equal(b->site_state.state[0].round, 2);
    aggregator_end(b);
    struct outer_state_options o = outer_state_of(b, false);
    struct aggregator_options a = {.run = "t",
                                   .sites = {.names = names, .count = SITES},
                                   .canonical = canonical,
                                   .strict = true,
                                   .signer = &b->signer.signer};
    b->aggregator_env = env_of(b, "aggregator");
    assert_int_equal(outer_state_open(&b->aggregator_state, b->aggregator_env, cpu, &o, &b->arena),
                     ERR_OK);
    assert_int_equal(outer_state_load(&b->aggregator_state), ERR_OK);
    assert_int_equal(
        aggregator_open(&b->aggregator, b->aggregator_env, &b->aggregator_state, &a, &b->arena),
        ERR_STALE);
    b->aggregator = NULL;
    bench_close(b);
}

static void test_spoiled_aggregate_is_fetched_again(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    start(b);
    others(b);
    b->link.spoil_aggregate = 2;
    assert_int_equal(round_of(b, 0), ERR_OK);
    assert_int_equal(b->link.fetches, 3);
    assert_true(equal_states(b));
    others(b);
    b->link.spoil_aggregate = 3;
    assert_int_equal(round_of(b, 1), ERR_PROTO);
    assert_int_equal(b->site_state.state[0].round, 1);
    bench_close(b);
}

/* A flipped bit in memory: the step is repeated from the disk and then right; nothing is fetched
 * for it. */
static void test_flipped_bit_is_repaired(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    start(b);
    others(b);
    assert_int_equal(round_of(b, 0), ERR_OK);
    others(b);
    train(b);
    b->link.refuse = 1;
    b->link.outcome = ROUND_INVALID;
    assert_int_equal(exchange_of(b, 1), ERR_PROTO); /* stored from the good state */
    b->site_state.state[0].slab[0][11] += 1;
    assert_int_equal(exchange_of(b, 1), ERR_OK);
    assert_int_equal(b->link.fetches, 2);
    assert_true(equal_states(b));
    bench_close(b);
}

/* The digest differs twice: replaced by a snapshot, and the residual is the site's own still. */
static void test_heals(void **state)
{
    (void)state;
    struct bench *b = bench_open(false);
    start(b);
    others(b);
    assert_int_equal(round_of(b, 0), ERR_OK);
    others(b);
    spoiled_rounds = 0;
    b->link.spoil_manifest = 1;
    b->link.manifest = spoil_after;
    assert_int_equal(round_of(b, 1), ERR_OK);
    assert_int_equal(spoiled_rounds, 1);
    assert_true(equal_states(b));
    double sum = 0;
    for (size_t i = 0; i < b->table.elements; i++)
        sum += fabs((double)b->site_state.state[0].residual[i]);
    assert_true(sum > 0);
    others(b);
    assert_int_equal(round_of(b, 2), ERR_OK);
    bench_close(b);
}

/* The aggregator is killed after the receipt; a stored contribution counts again after hello,
 * without bytes. */
static void restart_aggregator(struct bench *b)
{
    b->link.pending = NULL;
    aggregator_end(b);
    aggregator_begin(b);
    others(b);
}

static void test_aggregator_restarts(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    start(b);
    b->link.pending = restart_aggregator;
    assert_int_equal(round_of(b, 0), ERR_OK);
    assert_int_equal(b->link.offers, 1);
    assert_int_equal(b->link.hellos, 2);
    assert_true(equal_states(b));
    bench_close(b);
}

static void copy_aggregator(struct bench *b)
{
    b->link.pending = NULL;
    copied(b, "aggregator", "copy");
    others(b);
}

/* As another slot's thread does, while this one waits for its bytes. */
static void restore_copy(struct bench *b)
{
    aggregator_end(b);
    copied(b, "copy", "aggregator");
    aggregator_begin(b);
    site_lock(b->site);
    assert_int_equal(site_hello(b->site->own.main, true), ERR_OK);
    site_unlock(b->site);
    b->link.pending = others;
}

/* A backup from before the commit takes the place of the aggregator while the aggregate is fetched:
 * what the former one committed is not adopted any more, and the round is committed once more. */
static void test_a_commit_of_an_older_term_is_not_adopted(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    start(b);
    b->link.pending = copy_aggregator;
    b->link.fetched = restore_copy;
    assert_int_equal(round_of(b, 0), ERR_OK);
    assert_int_equal(b->link.fetches, 2); /* of either one's commit */
    struct manifest m;
    assert_int_equal(outer_state_manifest(&b->site_state, 0, 0, &m), ERR_OK);
    assert_int_equal(m.term, b->site->peer[0].term);
    assert_true(equal_states(b));
    b->link.pending = NULL;
    others(b);
    assert_int_equal(round_of(b, 1), ERR_OK);
    assert_true(equal_states(b));
    bench_close(b);
}

static void others_soon(struct bench *b)
{
    assert_in_range(b->link.polls, 0, 1000);
    others(b);
}

static void restore_before_receipt(struct bench *b)
{
    restore_copy(b);
    b->link.pending = others_soon;
}

/* The receipt is on its way while a backup without the contribution takes the aggregator's place,
 * and another slot says hello to it: the receipt is the former one's, and the bytes are sent again.
 */
static void test_a_receipt_of_an_older_term_does_not_count(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    start(b);
    copied(b, "aggregator", "copy");
    b->link.accepted = restore_before_receipt;
    assert_int_equal(round_of(b, 0), ERR_OK);
    assert_int_equal(b->link.offers, 2);
    assert_true(equal_states(b));
    bench_close(b);
}

static void lose_spool(struct bench *b)
{
    b->link.pending = NULL;
    assert_int_equal(b->aggregator_env->ops->remove(b->aggregator_env, "spool/0/0"), ERR_OK);
    others(b);
}

/* The aggregator finds at the commit that a site's accepted bytes are gone: the site, which waits,
 * sends them again. */
static void test_a_lost_payload_is_sent_again(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    start(b);
    b->link.pending = lose_spool;
    assert_int_equal(round_of(b, 0), ERR_OK);
    assert_int_equal(b->link.offers, 2);
    assert_int_equal(b->link.hellos, 2);
    assert_true(equal_states(b));
    bench_close(b);
}

/* outer.max_local_steps_offline: only in quorum mode, only before something is stored, only while
 * the aggregator does not answer. */
static void test_unreachable(void **state)
{
    (void)state;
    bool away;
    struct bench *b = bench_open(false);
    start(b);
    b->link.down = 1;
    assert_int_equal(site_unreachable(b->site, 0, &away), ERR_OK);
    assert_true(away);
    assert_int_equal(site_unreachable(b->site, 0, &away), ERR_OK);
    assert_false(away);
    bench_close(b);
    b = bench_open(true);
    start(b);
    b->link.down = 1;
    assert_int_equal(site_unreachable(b->site, 0, &away), ERR_OK);
    assert_false(away);
    bench_close(b);
}

/* An aggregator that is away for an hour: back-off grows to its cap and no further, and the round
 * is made then. */
static void test_back_off(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    start(b);
    others(b);
    b->link.down = 40;
    uint64_t before = now;
    assert_int_equal(round_of(b, 0), ERR_OK);
    assert_true(now - before >
                40 * 2500 - 30000); /* half of straggler_ms / 2 and more, past the first few */
    assert_true(now - before < 40 * 5000);
    bench_close(b);
}

/* Taken up by another site, its residual and its stored contribution would count twice. */
static void test_directory_is_one_owners(void **state)
{
    (void)state;
    struct bench *b = bench_open(false);
    assert_int_equal(aggregator_claim(b->site_env, canonical, NULL), ERR_CONFIG);
    site_end(b);
    assert_int_equal(site_open_as(b, "s1", "site"), ERR_CONFIG);
    site_end(b);
    aggregator_end(b);
    struct env *w = env_of(b, "taken");
    assert_int_equal(aggregator_claim(w, canonical, NULL), ERR_OK);
    env_posix_close(w);
    assert_int_equal(site_open_as(b, "s0", "taken"), ERR_CONFIG);
    site_end(b);
    site_begin(b);
    aggregator_begin(b);
    bench_close(b);
}

static enum err claim_of(struct env *w, const char *file, const char *settings, struct schedule *s)
{
    const struct file_part part = {file, strlen(file)};
    assert_int_equal(w->ops->write(w, "run.cfg", &part, 1), ERR_OK);
    return aggregator_claim(w, settings, s);
}

/* What was sent before train.steps grew keeps its meaning only with every former value, each above
 * the one before. */
static void test_former_steps_ascend(void **state)
{
    (void)state;
    struct bench *b = bench_open(false);
    struct env *w = env_of(b, "grown");
    struct schedule s = {0};
    assert_int_equal(aggregator_claim(w, "train.steps=40\n", &s), ERR_OK);
    assert_int_equal(aggregator_claim(w, "train.steps=60\n", &s), ERR_OK);
    assert_int_equal(aggregator_claim(w, "train.steps=90\n", &s), ERR_OK);
    assert_int_equal(s.ends.count, 2);
    assert_true(s.ends.steps[0] == 40 && s.ends.steps[1] == 60);
    static const char *const damaged[] = {"train.steps=90\ntrain.steps.former=60,40\n",
                                          "train.steps=90\ntrain.steps.former=60,60\n",
                                          "train.steps=50\ntrain.steps.former=40,60\n"};
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++)
        assert_int_equal(claim_of(w, damaged[i], "train.steps=120\n", &s), ERR_CORRUPT);
    env_posix_close(w);
    bench_close(b);
}

/* The disk of a site that had started often is lost: the first start of the new directory is
 * refused with words that fit, the second one is taken, with any number of the former process. */
static void test_a_lost_disk_joins_at_the_second_start(void **state)
{
    (void)state;
    for (int starts = 0; starts < 4; starts += 3) {
        struct bench *b = bench_open(true);
        for (int i = 0; i < starts; i++)
            site_again(b);
        start(b);
        site_end(b);
        assert_int_equal(site_open_as(b, "s0", "anew"), ERR_OK);
        assert_int_equal(site_start(b->site, b->initial), starts ? ERR_BUSY : ERR_TAKEN);
        assert_non_null(strstr(err_message(), "start again"));
        assert_int_equal(err_exit_code(ERR_TAKEN),
                         1); /* service managers start it again; not after 4 */
        site_end(b);
        assert_int_equal(site_open_as(b, "s0", "anew"), ERR_OK);
        start(b);
        others(b);
        assert_int_equal(round_of(b, 0), ERR_OK);
        assert_true(equal_states(b));
        bench_close(b);
    }
}

/* What a site has spent of its privacy budget is known outside of its directory: from any manifest,
 * also of rounds without it, and after the aggregator was killed. */
static void test_charges_outlive_the_directory(void **state)
{
    (void)state;
    struct bench *b = bench_open(false);
    struct manifest m;
    start(b);
    assert_int_equal(site_charged(b->site), 0);
    b->link.pending = restart_aggregator; /* its journal has the charges */
    train(b);
    assert_int_equal(
        exchange(b->site, &b->site_state,
                 &(struct site_submission){.weight = 1, .data_cursor = 100, .charged = 12},
                 b->local),
        ERR_OK);
    assert_int_equal(outer_state_manifest(&b->site_state, 0, 0, &m), ERR_OK);
    assert_int_equal(manifest_site(&m, 0)->charged, 12);
    assert_int_equal(manifest_site(&m, 1)->charged, 0);
    site_again(b);
    start(b);
    assert_int_equal(site_charged(b->site), 12);
    for (int t = 0; t < 5; t++) { /* rounds without it, more than are kept */
        others(b);
        now += 20000;
        work(&b->link);
    }
    site_end(b);
    for (int starts = 0; starts < 2; starts++) {
        assert_int_equal(site_open_as(b, "s0", "anew"), ERR_OK);
        if (starts == 0) { /* the name is bound to the directory that is lost */
            assert_int_equal(site_start(b->site, b->initial), ERR_BUSY);
            site_end(b);
        }
    }
    start(b);
    assert_int_equal(b->site_state.state[0].round, 6);
    assert_int_equal(site_charged(b->site), 12);
    others(b);
    assert_int_equal(round_of(b, 6), ERR_OK); /* a submission that knows of none */
    assert_int_equal(outer_state_manifest(&b->site_state, 0, 6, &m), ERR_OK);
    assert_int_equal(manifest_site(&m, 0)->charged, 12);
    bench_close(b);
}

/* A strict site whose CURRENT is lost continues with its residual; without its identity it does not
 * continue at all. */
static void test_what_is_lost_begins_nothing_anew(void **state)
{
    (void)state;
    struct bench *b = bench_open(true);
    start(b);
    for (uint64_t round = 0; round < 2; round++) {
        others(b);
        assert_int_equal(round_of(b, round), ERR_OK);
    }
    struct digest before = outer_state_digest(&b->site_state, true);
    float most = 0;
    for (size_t i = 0; i < b->fragments.f[0].elements; i++)
        most = fmaxf(most, fabsf(b->site_state.state[0].residual[i]));
    assert_true(most > 0);
    assert_int_equal(b->site_env->ops->remove(b->site_env, "frag/0/CURRENT"), ERR_OK);
    site_again(b);
    start(b);
    struct digest after = outer_state_digest(&b->site_state, true);
    assert_memory_equal(&before, &after, sizeof before);
    others(b);
    assert_int_equal(round_of(b, 2), ERR_OK);
    assert_true(equal_states(b));
    assert_int_equal(b->site_env->ops->remove(b->site_env, "id/site"), ERR_OK);
    site_end(b);
    assert_int_equal(site_open_as(b, "s0", "site"), ERR_CORRUPT);
    assert_non_null(strstr(err_message(), "/id/site: missing, and this directory has begun"));
    bench_close(b);
}

/* TEST: this one alone. --mutant NAME: over the outer loop with that bug in it (mutants.sh). */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_and_report),
        cmocka_unit_test(test_the_end_is_told_after_an_outage),
        cmocka_unit_test(test_the_end_is_told_for_an_hour),
        cmocka_unit_test(test_one_round_by_hand),
        cmocka_unit_test(test_clocks_are_compared),
        cmocka_unit_test(test_same_bytes_until_received),
        cmocka_unit_test(test_hard_refusals),
        cmocka_unit_test(test_not_finite_is_neither_stored_nor_sent),
        cmocka_unit_test(test_residual_reset),
        cmocka_unit_test(test_spike_is_neither_stored_nor_sent),
        cmocka_unit_test(test_damaged_site_is_skipped),
        cmocka_unit_test(test_aborted_round_goes_back),
        cmocka_unit_test(test_closed_before_it_was_trained_for),
        cmocka_unit_test(test_killed_and_sent_again),
        cmocka_unit_test(test_damaged_outbox),
        cmocka_unit_test(test_stop_while_waiting),
        cmocka_unit_test(test_replay_sends_nothing),
        cmocka_unit_test(test_late_work_stays),
        cmocka_unit_test(test_catch_up_and_leap),
        cmocka_unit_test(test_joins_late),
        cmocka_unit_test(test_other_initial_parameters),
        cmocka_unit_test(test_spoiled_manifests),
        cmocka_unit_test(test_roster_unknown),
        cmocka_unit_test(test_half_is_no_majority),
        cmocka_unit_test(test_what_is_not_signed_is_not_adopted),
        cmocka_unit_test(test_another_key_of_the_aggregator),
        cmocka_unit_test(test_terms_of_a_key),
        cmocka_unit_test(test_all_keys_of_the_aggregator),
        cmocka_unit_test(test_an_term_that_is_not_signed),
        cmocka_unit_test(test_what_needs_all_fragments_of_one_process),
        cmocka_unit_test(test_another_instance_of_an_term),
        cmocka_unit_test(test_a_kept_header_is_checked),
        cmocka_unit_test(test_an_older_copy_halts),
        cmocka_unit_test(test_spoiled_aggregate_is_fetched_again),
        cmocka_unit_test(test_flipped_bit_is_repaired),
        cmocka_unit_test(test_heals),
        cmocka_unit_test(test_aggregator_restarts),
        cmocka_unit_test(test_a_commit_of_an_older_term_is_not_adopted),
        cmocka_unit_test(test_a_receipt_of_an_older_term_does_not_count),
        cmocka_unit_test(test_a_lost_payload_is_sent_again),
        cmocka_unit_test(test_unreachable),
        cmocka_unit_test(test_back_off),
        cmocka_unit_test(test_directory_is_one_owners),
        cmocka_unit_test(test_former_steps_ascend),
        cmocka_unit_test(test_a_lost_disk_joins_at_the_second_start),
        cmocka_unit_test(test_charges_outlive_the_directory),
        cmocka_unit_test(test_what_is_lost_begins_nothing_anew),
    };
    if (!mutant_arguments(argc, argv, cmocka_set_test_filter))
        return 2;
    log_min(LOG_ERROR + 1);
    if (dev_open(&cpu, &(struct dev_options){.kind = "cpu", .model_type = "f32", .threads = 1}) !=
        ERR_OK)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    dev_close(cpu);
    return failed;
}
