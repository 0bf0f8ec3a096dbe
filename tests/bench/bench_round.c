/* SPDX-License-Identifier: Apache-2.0 */
/* What a round costs a site and the aggregator in processor time and wall time, by the production
 * site and aggregator without a network (outer/sim/round_bench.h), int4, Nesterov.
 *
 *     build/tests/bench_round [--csv PATH]
 *
 * In the environment: PARAMETERS=124000000 REPEATS=3 DIRECTORY=/tmp THREADS=2 FRAGMENTS=1 (the
 * largest is exchanged; times are for all, by its share).
 *
 * SITES not given: two sites, with the state digest of the whole and that of leaves
 * (outer.state_digest) in turns. The floor: a state of n parameters has 8 n bytes of theta and
 * momentum and 4 n of the residual; each is hashed once at the site (12 n), 8 n at the aggregator,
 * at the speed of SHA-256 on one core, over the threads.
 *
 * SITES=64: two sites and that many in turns, leaves: the aggregator's parts, and the serial time
 * of its round next to what `atoll plan` predicts from the figures of two sites,
 * (commit + sites x sum) x values. Bytes are payload in and out, and what a commit stores.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/digest.h"
#include "kernels/base/file.h"
#include "kernels/base/log.h"
#include "outer/sim/round_bench.h"
#include "tests/bench/bench.h"

enum { TENSORS = 64 };

static size_t number(const char *name, size_t fallback)
{
    const char *text = getenv(name);
    return text ? (size_t)strtoull(text, NULL, 10) : fallback;
}

static struct table table_of(struct tensor *tensors, size_t parameters)
{
    struct table t = {.tensors = tensors};
    size_t each = parameters / TENSORS / DEV_BLOCK * DEV_BLOCK;
    for (int i = 0; i < TENSORS; i++) {
        tensors[t.count++] = (struct tensor){
            .shape = {(int64_t)each, 1}, .offset = t.elements, .count = each, .layer = i};
        t.elements += each;
        t.parameters += each;
    }
    return t;
}

static double hash_bytes_s(void)
{
    enum { BYTES = 64 << 20 };
    char *data = calloc(1, BYTES);
    if (!data)
        return 0;
    double begin = bench_now();
    digest_of(data, BYTES);
    double took = bench_now() - begin;
    free(data);
    return BYTES / took;
}

struct measured {
    struct bench_times site, aggregator, cpu, accept, sum, commit, serial;
};

struct bench_case { /* of two in turns */
    enum state_digest digest;
    unsigned sites;
};

static enum err measure(struct round_bench *r, struct sync_config *x, const struct bench_case *c,
                        struct measured *m)
{
    struct exchange_cost t = {0};
    double n = (double)r->table->elements, cpu = bench_cpu();
    x->digest = c->digest;
    r->sites = c->sites;
    TRY(round_bench_measure(r, &t));
    bench_add(&m->cpu, bench_cpu() - cpu);
    bench_add(&m->site, n * (t.encode_s + t.apply_s));
    bench_add(&m->aggregator, n * (t.accept_s + t.commit_s));
    bench_add(&m->accept, n * t.accept_s);
    bench_add(&m->sum, n * t.sum_s);
    bench_add(&m->commit, n * t.commit_s);
    bench_add(&m->serial, n * (t.commit_s + c->sites * t.sum_s));
    return ERR_OK;
}

/* In turns, each in a directory of its own. */
static enum err measure_turns(struct round_bench *r, struct sync_config *x,
                              const struct bench_case cases[2], struct measured of[2])
{
    char directory[256];
    const char *where = getenv("DIRECTORY") ? getenv("DIRECTORY") : "/tmp";
    r->directory = directory;
    for (size_t i = 0; i < 2 * number("REPEATS", 3); i++) {
        snprintf(directory, sizeof directory, "%.200s/bench-round-XXXXXX", where);
        if (!mkdtemp(directory))
            return err_set(ERR_IO, "%s: no directory can be made there", where);
        TRY(measure(r, x, &cases[i % 2], &of[i % 2]));
        TRY(file_remove_tree(directory));
    }
    return ERR_OK;
}

struct out {
    const char *csv, *flags;
};

static void row(const struct out *o, const char *what, const char *unit, double value,
                double baseline)
{
    bench_write(o->csv, &(struct bench_row){.bench = "round",
                                            .what = what,
                                            .unit = unit,
                                            .flags = o->flags,
                                            .value = value,
                                            .baseline = baseline});
}

static void digests_say(const struct out *o, const struct measured of[2])
{
    row(o, "site; wall; leaves", "s", bench_median(&of[1].site), bench_median(&of[0].site));
    row(o, "aggregator; wall; leaves", "s", bench_median(&of[1].aggregator),
        bench_median(&of[0].aggregator));
    row(o, "both; processor; all rounds; leaves", "s", bench_median(&of[1].cpu),
        bench_median(&of[0].cpu));
}

static void sites_say(const struct out *o, const struct measured of[2], unsigned sites, size_t n)
{
    const struct codec *c = codec_get(CODEC_INT4);
    double out = (double)c->aggregate_max(c, n, sites), in = (double)c->payload_max(c, n);
    double told = bench_median(&of[0].commit) + sites * bench_median(&of[0].sum);
    char what[96];
    const struct {
        const char *what, *unit;
        double value, baseline;
    } rows[] = {
        {"accept of a contribution", "s", bench_median(&of[1].accept), bench_median(&of[0].accept)},
        {"sum of a contribution", "s", bench_median(&of[1].sum), bench_median(&of[0].sum)},
        {"commit without sums", "s", bench_median(&of[1].commit), bench_median(&of[0].commit)},
        {"commit with sums; baseline predicted", "s", bench_median(&of[1].serial), told},
        {"payload in", "MB", sites * in / 1e6, 2 * in / 1e6},
        {"payload out", "MB", sites * out / 1e6, 2 * (double)c->aggregate_max(c, n, 2) / 1e6},
        {"stored by a commit", "MB", (8 * (double)n + out) / 1e6,
         (8 * (double)n + (double)c->aggregate_max(c, n, 2)) / 1e6}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(what, sizeof what, "aggregator at %u sites; %s", sites, rows[i].what);
        row(o, what, rows[i].unit, rows[i].value, rows[i].baseline);
    }
}

static enum err run(const char *csv)
{
    static struct tensor tensors[TENSORS];
    struct table table = table_of(tensors, number("PARAMETERS", 124000000));
    struct arena arena = arena_make(0);
    unsigned fragments = (unsigned)number("FRAGMENTS", 1), sites = (unsigned)number("SITES", 0);
    struct sync_config x = {.schedule =
                                schedule_streaming(100 * (int64_t)fragments, 4 * (int64_t)fragments,
                                                   fragments, 1, CODEC_INT4)};
    const struct bench_case cases[2] = {{sites ? STATE_DIGEST_LEAVES : STATE_DIGEST_WHOLE, 2},
                                        {STATE_DIGEST_LEAVES, sites ? sites : 2}};
    struct measured of[2] = {0};
    char flags[160];
    struct out out = {csv, flags};
    int threads = (int)number("THREADS", 2);
    struct round_bench r = {.exchange = &x, .table = &table, .error_feedback_decay = 1, .seed = 1};
    if (sites > ROUND_BENCH_SITES)
        return err_set(ERR_CONFIG, "SITES: at most %d", ROUND_BENCH_SITES);
    TRY(fragment_make(&x.fragments, &table, &(struct fragment_plan){.count = fragments}, &arena));
    TRY(outer_opt_make(&x.outer, OUTER_OPT_MOMENTUM, 0.7f, 0.9f));
    TRY(dev_open(&r.dev,
                 &(struct dev_options){.kind = "cpu", .model_type = "f32", .threads = threads}));
    TRY(measure_turns(&r, &x, cases, of));
    snprintf(flags, sizeof flags,
             "threads=%d parameters=%zu fragments=%u sha256=%.0fMB/s baseline=%s %s", threads,
             table.elements, fragments, hash_bytes_s() / 1e6, sites ? "2 sites" : "whole",
             BENCH_COMPILER);
    if (sites)
        sites_say(&out, of, sites, table.elements);
    else
        digests_say(&out, of);
    dev_close(r.dev);
    arena_free(&arena);
    return ERR_OK;
}

int main(int argc, char **argv)
{
    const char *csv = bench_arguments(argc, argv);
    log_min(LOG_ERROR);
    if (csv && run(csv) != ERR_OK)
        fprintf(stderr, "bench_round: %s\n", err_message());
    return csv ? 0 : 2;
}
