/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over the ranks of a site, as one training step asks for them. Start it once for each rank,
 * with torchrun's variables or under mpirun; `bench_ranks cpu` measures MPI. Rank 0 writes the
 * rows. tests/gpu.sh runs it on machines with several GPUs.
 *
 * Bus bandwidth as nccl-tests defines it, so that machines and numbers of ranks compare: S/t x
 * 2(n-1)/n for an all-reduce of S bytes, S/t x (n-1)/n for a reduce-scatter and an all-gather of
 * equal parts, as train.zero_stage asks for them. Limit inside an H200 machine: NVLink, 450 GB/s
 * each way; an all-reduce whose switch adds may exceed it by that measure.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "inner/coll/coll.h"
#include "tests/bench/bench.h"

enum { REPEATS = 21, BYTES_MAX = 256 << 20, RANKS_MAX = 4096 };

static struct coll *coll;
static float *x; /* device, BYTES_MAX */
static const char *csv;

enum kind { ALL, HALF, SCATTER, GATHER, KINDS };
static const char *const names[KINDS] = {"all-reduce f32", "all-reduce bf16", "reduce-scatter f32",
                                         "all-gather f32"};

static enum err once(enum kind k, size_t bytes)
{
    static size_t first[RANKS_MAX + 1];
    const struct coll_ops *o = coll->ops;
    size_t count = bytes / sizeof *x, n = (size_t)coll->size;
    for (size_t r = 0; r <= n; r++)
        first[r] = count * r / n;
    const struct coll_parts parts = {x, x + first[coll->rank], DTYPE_F32, first};
    uint64_t ticket = 0;
    if (k == GATHER)
        TRY(o->all_gather_begin(coll, &parts, &ticket));
    else if (k == SCATTER)
        TRY(o->reduce_scatter_begin(coll, &parts, &ticket));
    else
        TRY(o->reduce_begin(coll, x, k == HALF ? DTYPE_BF16 : DTYPE_F32,
                            k == HALF ? 2 * count : count));
    TRY(ticket ? o->ticket_wait(coll, ticket) : o->reduce_wait(coll));
    TRY(o->event_record(coll));
    return o->event_wait(coll);
}

static double bus_share(enum kind k)
{
    double n = coll->size;
    return k == GATHER || k == SCATTER ? (n - 1) / n : 2 * (n - 1) / n;
}

static enum err measure(enum kind k, size_t bytes)
{
    struct bench_times t = {0};
    char what[80], flags[80];
    for (int i = 0; i <= REPEATS; i++) { /* the first connects the ranks */
        TRY(coll->ops->barrier(coll));
        double start = bench_now();
        TRY(once(k, bytes));
        if (i > 0)
            bench_add(&t, bench_now() - start);
    }
    snprintf(what, sizeof what, "%s %zu KiB", names[k], bytes >> 10);
    snprintf(flags, sizeof flags, "ranks=%d us=%.0f " BENCH_COMPILER, coll->size,
             1e6 * bench_median(&t));
    double gb_s = 1e-9 * (double)bytes / bench_median(&t) * bus_share(k);
    if (coll->rank == 0)
        bench_write(csv, &(struct bench_row){coll->kind, what, "GB/s bus", flags, gb_s, 0});
    return ERR_OK;
}

static enum err host_values(void)
{
    struct bench_times t = {0};
    double one[3] = {0};
    char flags[60];
    for (int i = 0; i < REPEATS; i++) {
        double start = bench_now();
        TRY(coll->ops->all_reduce_host(coll, one, 3));
        bench_add(&t, bench_now() - start);
    }
    snprintf(flags, sizeof flags, "ranks=%d " BENCH_COMPILER, coll->size);
    if (coll->rank == 0)
        bench_write(csv, &(struct bench_row){coll->kind, "sum of 3 host values", "us", flags,
                                             1e6 * bench_median(&t), 0});
    return ERR_OK;
}

static enum err run(const char *kind, int argc, char **argv)
{
    char gpu[32];
    struct dev *d;
    TRY(coll_open(&coll, kind));
    if (coll->size < 2 || coll->size > RANKS_MAX)
        return err_set(ERR_CONFIG, "start 2 to %d ranks", RANKS_MAX);
    if (coll->rank == 0 && !(csv = bench_arguments(argc, argv)))
        return err_set(ERR_CONFIG, "wrong arguments");
    snprintf(gpu, sizeof gpu, "cuda:%d", coll->local_rank);
    TRY(dev_open(&d, &(struct dev_options){.kind = strcmp(kind, "cpu") ? gpu : "cpu",
                                           .model_type = "f32",
                                           .threads = 1}));
    TRY(dev_alloc(d, (void **)&x, BYTES_MAX));
    TRY(dev_sync(d));
    TRY(host_values());
    for (enum kind k = 0; k < KINDS; k++)
        for (size_t bytes = 256 << 10; bytes <= BYTES_MAX; bytes *= 4)
            TRY(measure(k, bytes));
    dev_free(d, x);
    dev_close(d);
    return ERR_OK;
}

int main(int argc, char **argv)
{
    bool cpu = argc > 1 && !strcmp(argv[1], "cpu");
    enum err e = run(cpu ? "cpu" : "cuda", argc - cpu, argv + cpu);
    if (e) {
        fprintf(stderr, "bench_ranks: %s\n", err_message());
        coll_abort(coll, err_exit_code(e));
    }
    coll_close(coll);
    return err_exit_code(e);
}
