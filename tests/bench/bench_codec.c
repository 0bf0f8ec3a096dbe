/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs on the CPU, in GB/s of f32, against a memory copy by the same number of threads in the
 * same run.
 *
 * Floor: bytes of memory per value. What is written is read first to own its cache lines; a copy of
 * this size writes past the cache, so it costs 4 + 4.
 * - encode int8: z 4, residual 4 + 4, payload 1 + 1: 14, at most 0.57 of a copy.
 * - mean of 4 int8: sums 1.25, mean 4 + 4: 9.3, at most 0.87.
 * - aggregate of 4 int8: payloads 4, sums 1.25 + 1.25, so 1.6 per contribution: instructions are
 *   the limit, not memory.
 * All other passes find their piece of 2^18 values in the caches. GB/s of f32 count what is
 * decoded: the aggregate of 4 and the relayed mean of 4 decode four contributions.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/rng.h"
#include "outer/codec/codec.h"
#include "tests/bench/bench.h"

enum { COUNT = 1 << 24, BLOCKS = COUNT / DEV_BLOCK, SITES = 4, REPEATS = 9 };
enum { ENCODE, AGGREGATE, MEAN, DECODE, STEPS };
static const char *const steps[STEPS] = {"encode+residual", "aggregate of 4", "mean of 4",
                                         "decode"};

struct buffers {
    float *z, *residual, *out;
    uint8_t *payload[SITES], *aggregate, *grid, *next;
    size_t size[SITES], aggregate_size;
};

static double copy_seconds(struct dev *d, const struct buffers *b)
{
    double start = bench_now();
    size_t part = (size_t)COUNT / (size_t)d->threads;
#pragma omp parallel for num_threads(d->threads)
    for (int t = 0; t < d->threads; t++)
        memcpy(b->out + (size_t)t * part, b->z + (size_t)t * part, part * sizeof(float));
    return bench_now() - start;
}

static enum err step(const struct codec *c, struct codec_work *w, struct buffers *b, int which)
{
    struct codec_payload payloads[SITES];
    for (int i = 0; i < SITES; i++)
        payloads[i] = (struct codec_payload){b->payload[i], b->size[i]};
    switch (which) {
    case ENCODE:
        return c->encode(c, &(struct codec_call){.work = w, .grid = b->grid, .count = COUNT},
                         b->payload[0], &b->size[0], b->residual, b->z);
    case AGGREGATE:
        return c->aggregate(c, &(struct codec_call){.work = w, .count = COUNT}, b->aggregate,
                            &b->aggregate_size, payloads, SITES);
    case MEAN:
        return c->mean(c, &(struct codec_call){.work = w, .grid = b->grid, .count = COUNT}, b->out,
                       b->next,
                       &(struct codec_aggregate){b->aggregate, b->aggregate_size, SITES, SITES});
    default:
        return c->decode(c, &(struct codec_call){.work = w, .grid = b->grid, .count = COUNT},
                         b->out, b->payload[0], b->size[0]);
    }
}

static enum err measure(struct dev *d, const struct codec *c, struct codec_work *w,
                        struct buffers *b, const char *csv)
{
    struct bench_times copy = {0}, times[STEPS] = {0};
    for (int i = 0; i < SITES; i++)
        TRY(c->encode(c, &(struct codec_call){.work = w, .grid = b->grid, .count = COUNT},
                      b->payload[i], &b->size[i], b->residual, b->z));
    for (int r = 0; r < REPEATS; r++) {
        bench_add(&copy, copy_seconds(d, b));
        for (int s = 0; s < STEPS; s++) {
            double start = bench_now();
            TRY(step(c, w, b, s));
            bench_add(&times[s], bench_now() - start);
        }
    }
    double bytes = 4.0 * COUNT;
    for (int s = 0; s < STEPS; s++) {
        char what[64], flags[128];
        int decoded = s == AGGREGATE || (s == MEAN && !c->summable) ? SITES : 1;
        snprintf(what, sizeof what, "%s %s", c->name, steps[s]);
        snprintf(flags, sizeof flags, "threads=%d values=%d %s", d->threads, COUNT, BENCH_COMPILER);
        bench_write(csv,
                    &(struct bench_row){.bench = "codec",
                                        .what = what,
                                        .unit = "GB/s f32",
                                        .flags = flags,
                                        .value = decoded * bytes / bench_median(&times[s]) / 1e9,
                                        .baseline = bytes / bench_median(&copy) / 1e9});
    }
    return ERR_OK;
}

static enum err fill(struct dev *d, struct buffers *b, struct arena *a)
{
    TRY_ALLOC(b->z = arena_array(a, COUNT, sizeof *b->z));
    TRY_ALLOC(b->residual = arena_array(a, COUNT, sizeof *b->residual));
    TRY_ALLOC(b->out = arena_array(a, COUNT, sizeof *b->out));
    TRY_ALLOC(b->grid = arena_alloc(a, BLOCKS));
    TRY_ALLOC(b->next = arena_alloc(a, BLOCKS));
    const struct codec *largest = codec_get(CODEC_F32);
    for (int i = 0; i < SITES; i++)
        TRY_ALLOC(b->payload[i] = arena_alloc(a, largest->payload_max(largest, COUNT)));
    TRY_ALLOC(b->aggregate = arena_alloc(a, largest->aggregate_max(largest, COUNT, SITES)));
    for (size_t i = 0; i < COUNT; i++)
        b->z[i] = 0.01f * (float)((int32_t)rng_u32(1, RNG_TEST, i) >> 8) * 0x1p-23f;
    d->ops->block_code(d, b->grid, b->z, COUNT);
    return dev_sync(d);
}

static enum err bench(struct dev *d, struct codec_work *w, struct arena *a, const char *csv)
{
    struct buffers b = {0};
    TRY(fill(d, &b, a));
    for (int k = 0; k < CODEC_COUNT; k++)
        TRY(measure(d, codec_get((enum codec_kind)k), w, &b, csv));
    return ERR_OK;
}

int main(int argc, char **argv)
{
    const char *csv = bench_arguments(argc, argv);
    struct dev_options o = {.kind = "cpu", .model_type = "f32"};
    struct dev *d = NULL;
    struct codec_work *w = NULL;
    struct arena a = arena_make(0);
    enum err e = csv ? dev_open(&d, &o) : ERR_CONFIG;
    if (e == ERR_OK)
        e = codec_open(&w, d);
    if (e == ERR_OK)
        e = bench(d, w, &a, csv);
    if (e != ERR_OK)
        fprintf(stderr, "%s\n", err_message());
    codec_close(w);
    dev_close(d);
    arena_free(&a);
    return err_exit_code(e);
}
