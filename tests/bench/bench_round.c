/* SPDX-License-Identifier: Apache-2.0 */
/* What a round costs a site and the aggregator in processor time and wall time, with the state
 * digest of the whole and that of leaves (outer.state_digest), in turns in one process: the
 * production site and aggregator without a network (outer/sim/round_bench.h), one fragment, int4,
 * Nesterov.
 *
 *     build/tests/bench_round [--csv PATH]
 *
 * PARAMETERS=124000000 REPEATS=3 DIRECTORY=/tmp THREADS=2 in the environment. The floor: a state of
 * n parameters has 8 n bytes of theta and momentum and 4 n of the residual; each is hashed once at
 * the site (12 n), 8 n at the aggregator, at the speed of SHA-256 on one core, over the threads.
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
    struct bench_times site, aggregator, cpu;
};

static enum err measure(struct round_bench *r, struct sync_config *x, enum state_digest rule,
                        struct measured *m)
{
    struct exchange_cost t = {0};
    double n = (double)r->table->elements, cpu = bench_cpu();
    x->digest = rule;
    TRY(round_bench_measure(r, &t));
    bench_add(&m->cpu, bench_cpu() - cpu);
    bench_add(&m->site, n * (t.encode_s + t.apply_s));
    bench_add(&m->aggregator, n * (t.accept_s + t.commit_s));
    return ERR_OK;
}

static void row(const char *csv, const char *what, const struct bench_times *leaves,
                const struct bench_times *whole, const char *flags)
{
    bench_write(csv, &(struct bench_row){.bench = "round",
                                         .what = what,
                                         .unit = "s",
                                         .flags = flags,
                                         .value = bench_median(leaves),
                                         .baseline = bench_median(whole)});
}

static enum err run(const char *csv)
{
    static struct tensor tensors[TENSORS];
    struct table table = table_of(tensors, number("PARAMETERS", 124000000));
    struct arena arena = arena_make(0);
    struct sync_config x = {.schedule = schedule_streaming(100, 4, 1, 1, CODEC_INT4)};
    struct measured of[2] = {0};
    char directory[256], flags[128];
    int threads = (int)number("THREADS", 2);
    const char *where = getenv("DIRECTORY") ? getenv("DIRECTORY") : "/tmp";
    struct round_bench r = {.exchange = &x,
                            .table = &table,
                            .directory = directory,
                            .sites = 2,
                            .error_feedback_decay = 1,
                            .seed = 1};
    TRY(fragment_make(&x.fragments, &table, &(struct fragment_plan){.count = 1}, &arena));
    TRY(outer_opt_make(&x.outer, OUTER_OPT_MOMENTUM, 0.7f, 0.9f));
    TRY(dev_open(&r.dev,
                 &(struct dev_options){.kind = "cpu", .model_type = "f32", .threads = threads}));
    for (size_t i = 0; i < 2 * number("REPEATS", 3); i++) {
        snprintf(directory, sizeof directory, "%.200s/bench-round-XXXXXX", where);
        if (!mkdtemp(directory))
            return err_set(ERR_IO, "%s: no directory can be made there", where);
        TRY(measure(&r, &x, (enum state_digest)(i % 2), &of[i % 2]));
        TRY(file_remove_tree(directory));
    }
    snprintf(flags, sizeof flags, "threads=%d parameters=%zu sha256=%.0fMB/s baseline=whole %s",
             threads, table.elements, hash_bytes_s() / 1e6, BENCH_COMPILER);
    row(csv, "site; wall; leaves", &of[1].site, &of[0].site, flags);
    row(csv, "aggregator; wall; leaves", &of[1].aggregator, &of[0].aggregator, flags);
    row(csv, "both; processor; all rounds; leaves", &of[1].cpu, &of[0].cpu, flags);
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
