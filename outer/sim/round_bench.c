/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/sim/round_bench.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "outer/aggregator/aggregator.h"
#include "outer/site/site.h"

enum { TIMED = 8, PEER_MAX = 64, NAME_MAX_BYTES = 8 };
static const char run_name[] = "probe";

struct bench {
    struct link link; /* the site's; first */
    const struct round_bench *r;
    struct env *site_env, *aggregator_env;
    struct outer_state site_state, aggregator_state;
    struct site *site;
    struct aggregator *aggregator;
    struct link_service service;
    struct schedule schedule;
    struct arena perm;
    unsigned sites; /* the first of them is there */
    char name[ROUND_BENCH_SITES][NAME_MAX_BYTES], peer[ROUND_BENCH_SITES][PEER_MAX];
    const char *roster[ROUND_BENCH_SITES]; /* these names */
    uint8_t *sum;                          /* room for an aggregate of all */
    double since_s;                        /* when the site's work of the moment began */
    double encode_s, apply_s, accept_s, commit_s, sum_s; /* of the round */
};

static void work(struct bench *p)
{
    bool stop;
    (void)link_service_work(&p->service, &stop);
}

/* ---- the link: every call is the aggregator's own function ---- */

static enum err bench_hello(struct link *l, const struct wire_hello *m,
                            struct wire_hello_answer *answer)
{
    struct bench *p = (struct bench *)l;
    for (unsigned i = p->sites; i-- > 0;) { /* the one that is there last: the answer is its own */
        struct wire_hello as = *m;
        snprintf(as.head.site, sizeof as.head.site, "%s", p->name[i]);
        p->service.hello(p->service.self, p->peer[i], &as, answer);
        work(p);
    }
    return ERR_OK;
}

/* Verifies and sums the payload as `sites` contributions, as a commit does. */
static enum err sum_timed(struct bench *p, const struct wire_contribution *m,
                          const uint8_t *payload, unsigned sites, double *seconds)
{
    const struct codec *c = codec_get((enum codec_kind)m->codec);
    struct codec_payload all[ROUND_BENCH_SITES];
    size_t size, elements = p->r->exchange->fragments.f[m->fragment].elements;
    double begin = clock_mono_s();
    for (unsigned i = 0; i < sites; i++) {
        all[i] = (struct codec_payload){payload, m->payload_bytes};
        struct digest d = digest_of(payload, m->payload_bytes);
        if (!digest_equal(&d, &m->payload))
            return err_set(ERR_INTERNAL, "a contribution is not the bytes of its digest");
    }
    TRY(c->aggregate(c, &(struct codec_call){.work = p->site_state.work, .count = elements}, p->sum,
                     &size, all, sites));
    *seconds = clock_mono_s() - begin;
    return ERR_OK;
}

/* What a contribution adds to the time of a commit. A run may have more sites than contribute
 * here, so what a sum takes however many there are belongs to the commit. */
static enum err sum_alone(struct bench *p, const struct wire_contribution *m,
                          const uint8_t *payload)
{
    double one, all;
    TRY(sum_timed(p, m, payload, 1, &one));
    TRY(sum_timed(p, m, payload, p->sites, &all));
    p->sum_s = line_sum_s(one, all, p->sites);
    return ERR_OK;
}

/* A run waits until there is room; nothing makes room for a benchmark. */
static enum err room_for(const struct wire_answer *answer)
{
    return answer->outcome == ROUND_FULL ? err_set(ERR_FULL, "%s", answer->text) : ERR_OK;
}

static enum err contribute_as(struct bench *p, unsigned i, const struct wire_contribution *m,
                              const uint8_t *payload, struct wire_answer *answer)
{
    struct wire_contribution as = *m;
    struct wire_answer ignored;
    void *upload;
    enum err e = ERR_OK;
    snprintf(as.head.site, sizeof as.head.site, "%s", p->name[i]);
    p->service.offer(p->service.self, p->peer[i], &as, answer, &upload);
    if (answer->outcome != ROUND_RESUME)
        return room_for(answer);
    for (uint64_t at = 0; e == ERR_OK && at < m->payload_bytes; at += WIRE_CHUNK_BYTES) {
        uint64_t left = m->payload_bytes - at;
        link_service_chunk(&p->service, upload, at, payload + at,
                           left < WIRE_CHUNK_BYTES ? left : WIRE_CHUNK_BYTES, answer);
        e = room_for(answer);
    }
    double begin = clock_mono_s();
    link_service_finish(&p->service, upload, e == ERR_OK, e == ERR_OK ? answer : &ignored);
    p->accept_s = clock_mono_s() - begin;
    return e == ERR_OK ? room_for(answer) : e;
}

static enum err bench_contribute(struct link *l, const struct wire_contribution *m,
                                 const uint8_t *payload, struct wire_answer *answer)
{
    struct bench *p = (struct bench *)l;
    p->encode_s = clock_mono_s() - p->since_s;
    for (unsigned i = p->sites; i-- > 0;)
        TRY(contribute_as(p, i, m, payload, answer));
    double begin = clock_mono_s();
    work(p);
    p->commit_s = clock_mono_s() - begin;
    TRY(sum_alone(p, m, payload));
    p->commit_s = fmax(0, p->commit_s - p->sites * p->sum_s);
    return ERR_OK;
}

static enum err bench_poll(struct link *l, const struct wire_poll *m, uint32_t hold_ms,
                           struct wire_poll_answer *answer)
{
    struct bench *p = (struct bench *)l;
    (void)hold_ms;
    p->service.poll(p->service.self, p->peer[0], m, answer);
    if (answer->answer.outcome ==
        ROUND_PENDING) /* all have contributed: it would have been committed */
        return err_set(ERR_FULL, "%s/aggregator: no room for the commit of a round",
                       p->r->directory);
    return ERR_OK;
}

static enum err bench_fetch(struct link *l, const struct wire_fetch *m, uint8_t *out,
                            size_t size_bytes, struct wire_answer *answer)
{
    struct bench *p = (struct bench *)l;
    struct link_content c;
    p->service.fetch(p->service.self, p->peer[0], m, &c, answer);
    if (answer->outcome != ROUND_NONE)
        return ERR_OK;
    if (c.size_bytes == size_bytes)
        memcpy(out, c.data, c.size_bytes);
    p->service.fetched(p->service.self, c.source);
    p->since_s = clock_mono_s();
    return c.size_bytes == size_bytes
               ? ERR_OK
               : err_set(ERR_PROTO, "%zu bytes, %zu expected", c.size_bytes, size_bytes);
}

static enum err bench_report(struct link *l, const struct wire_report *m,
                             struct wire_answer *answer)
{
    struct bench *p = (struct bench *)l;
    p->service.report(p->service.self, p->peer[0], m, answer);
    work(p);
    return ERR_OK;
}

static enum err bench_leave(struct link *l, const struct wire_leave *m, struct wire_answer *answer)
{
    struct bench *p = (struct bench *)l;
    p->service.leave(p->service.self, p->peer[0], m, answer);
    return ERR_OK;
}

static enum err bench_mask(struct link *l, const struct wire_mask *m,
                           struct wire_mask_answer *answer)
{
    struct bench *p = (struct bench *)l;
    link_service_mask(&p->service, p->peer[0], m, answer);
    work(p);
    return ERR_OK;
}

static void bench_counters(struct link *l, struct link_counters *out)
{
    (void)l;
    *out = (struct link_counters){0};
}

static void bench_close(struct link *l)
{
    (void)l; /* the caller's */
}

static const struct link_ops ops = {
    .hello = bench_hello,
    .contribute = bench_contribute,
    .poll = bench_poll,
    .fetch = bench_fetch,
    .report = bench_report,
    .leave = bench_leave,
    .mask = bench_mask,
    .counters = bench_counters,
    .close = bench_close,
};

/* ---- the benchmark ---- */

static unsigned largest(const struct fragments *f)
{
    unsigned most = 0;
    for (unsigned i = 1; i < f->parts; i++)
        most = f->f[i].elements > f->f[most].elements ? i : most;
    return most;
}

static enum err open_env(struct bench *p, struct env **w, const char *name)
{
    char *path = arena_printf(&p->perm, "%s/%s", p->r->directory, name);
    TRY_ALLOC(path);
    return env_posix_open(w, path);
}

static enum err open_all(struct bench *p)
{
    const struct round_bench *r = p->r;
    const struct sync_config *x = r->exchange;
    const struct sync_config_replica aggregator = {.sites = p->sites,
                                                   .digest = x->digest,
                                                   .keep = OUTER_STATES_MIN},
                                     site = {.site = true,
                                             .digest = x->digest,
                                             .error_feedback_decay = r->error_feedback_decay,
                                             .keep = OUTER_STATES_MIN};
    struct outer_state_options ao_state = sync_config_state(&x->fragments, &p->schedule, &x->outer,
                                                            &aggregator),
                               so_state =
                                   sync_config_state(&x->fragments, &p->schedule, &x->outer, &site);
    struct aggregator_options ao = {.run = run_name,
                                    .sites = {.names = p->roster, .count = p->sites},
                                    .canonical = run_name,
                                    .strict = true,
                                    .straggler_ms = 60000};
    struct site_options so = {.run = run_name,
                              .name = p->name[0],
                              .site_count = p->sites,
                              .canonical = run_name,
                              .strict = true,
                              .error_feedback_decay = r->error_feedback_decay,
                              .straggler_ms = 60000,
                              .seed = r->seed};
    float *initial = arena_array(&p->perm, r->table->elements, sizeof *initial);
    TRY_ALLOC(initial);
    table_init(r->table, r->seed, initial);
    TRY(open_env(p, &p->aggregator_env, "aggregator"));
    TRY(outer_state_open(&p->aggregator_state, p->aggregator_env, r->dev, &ao_state, &p->perm));
    TRY(outer_state_begin(&p->aggregator_state, initial));
    TRY(aggregator_open(&p->aggregator, p->aggregator_env, &p->aggregator_state, &ao, &p->perm));
    p->service = aggregator_service(p->aggregator);
    TRY(open_env(p, &p->site_env, "site"));
    TRY(outer_state_open(&p->site_state, p->site_env, r->dev, &so_state, &p->perm));
    TRY(site_open(&p->site, p->site_env, &p->link, &p->site_state, &so, &p->perm));
    return site_start(p->site, initial);
}

static void close_all(struct bench *p)
{
    site_close(p->site);
    if (p->aggregator)
        aggregator_close(p->aggregator);
    outer_state_close(&p->site_state);
    outer_state_close(&p->aggregator_state);
    if (p->site_env)
        env_posix_close(p->site_env);
    if (p->aggregator_env)
        env_posix_close(p->aggregator_env);
    arena_free(&p->perm);
}

static enum err one_round(struct bench *p, unsigned f, uint64_t round)
{
    size_t n = p->r->exchange->fragments.f[f].elements;
    const float *theta = p->site_state.state[f].theta;
    struct site_completion done;
    float *local;
    TRY(site_acquire(p->site, f, &local));
    for (size_t i = 0; i < n; i++)
        local[i] = theta[i] + (float)((i * 37 + round) % 101) / 65536 - 50.0f / 65536;
    p->since_s = clock_mono_s();
    site_submit(p->site, &(struct site_submission){
                             .fragment = f, .round = round, .base = round, .weight = 1});
    TRY(site_reap(p->site, f, &theta, &done));
    p->apply_s = clock_mono_s() - p->since_s;
    TRY(aggregator_failed(p->aggregator));
    return site_prune(p->site, f, round + 1);
}

static enum err bench_rounds(struct bench *p, struct exchange_cost *out)
{
    struct exchange_cost all = {0};
    unsigned f = largest(&p->r->exchange->fragments);
    size_t n = p->r->exchange->fragments.f[f].elements;
    const struct codec *c = codec_get(p->schedule.period[f].codec);
    const struct codec *whole = codec_get(schedule_codec(&p->schedule, f, 0, 0));
    size_t size = c->aggregate_max(c, n, p->sites),
           whole_size = whole->aggregate_max(whole, n, p->sites);
    TRY_ALLOC(p->sum = arena_alloc(&p->perm, size > whole_size ? size : whole_size));
    for (uint64_t round = 0; round < p->schedule.full_precision_rounds; round++)
        TRY(one_round(p, f, round));
    for (int i = 0; i < TIMED; i++) {
        TRY(one_round(p, f, p->schedule.full_precision_rounds + (uint64_t)i));
        all.encode_s += p->encode_s;
        all.apply_s += p->apply_s;
        all.accept_s += p->accept_s;
        all.commit_s += p->commit_s;
        all.sum_s += p->sum_s;
    }
    double values = TIMED * (double)n;
    *out = (struct exchange_cost){all.encode_s / values, all.apply_s / values,
                                  all.accept_s / values, all.commit_s / values, all.sum_s / values};
    return ERR_OK;
}

enum err round_bench_measure(const struct round_bench *r, struct exchange_cost *out)
{
    struct bench p = {
        .link = {&ops}, .r = r, .schedule = r->exchange->schedule, .perm = dev_arena(r->dev)};
    p.sites = r->sites < ROUND_BENCH_SITES ? r->sites : ROUND_BENCH_SITES;
    for (unsigned i = 0; i < p.sites; i++) {
        snprintf(p.name[i], NAME_MAX_BYTES, "s%02u", i);
        snprintf(p.peer[i], PEER_MAX, "atoll://%s/site/%s", run_name, p.name[i]);
        p.roster[i] = p.name[i];
    }
    if (p.schedule.full_precision_rounds > 3) /* those are not timed */
        p.schedule.full_precision_rounds = 3;
    p.schedule.overlap = 0;
    p.schedule.eager = false;
    p.schedule.residual_reset = 0;
    p.schedule.steps =
        p.schedule.period[0].p.every * ((int64_t)p.schedule.full_precision_rounds + TIMED + 2);
    enum err e = open_all(&p);
    if (e == ERR_OK)
        e = bench_rounds(&p, out);
    close_all(&p);
    return e;
}
