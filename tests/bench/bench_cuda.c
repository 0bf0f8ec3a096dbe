/* SPDX-License-Identifier: Apache-2.0 */
/* Speed of the GPU's ops at the shapes of GPT-2 124M compared with this GPU's own ceilings,
 * measured in the same run: a device-to-device copy, a large bf16 product. Random data: zeros run
 * faster than anything real. Exit code 77 without a GPU. Rows as bench.h says; baseline is the
 * ceiling in the same unit. bench_cuda [--csv PATH]
 */
#include "tests/bench/bench.h"
#include "kernels/base/rng.h"
#include "kernels/dev.h"
#include <stdio.h>
#include <stdlib.h>

enum { REPEATS = 11, T = 65536, C = 768, SKIP = 77 };
static struct dev *d;
static const char *csv;
static char flags[80];
static double copy_rate, product_rate; /* GB/s, TFLOP/s */

static void die(enum err e)
{
    if (e == ERR_OK)
        return;
    fprintf(stderr, "bench_cuda: %s\n", err_message());
    exit(err_exit_code(e));
}

static void *room(size_t bytes)
{
    void *p;
    die(dev_alloc(d, &p, bytes));
    return p;
}

/* A million random values, repeated: 4 MB of host time instead of gigabytes. */
static float *random_f32(size_t n, double scale)
{
    enum { UNIT = 1 << 20 };
    static float host[UNIT];
    float *p = room(n * sizeof *p);
    for (size_t i = 0; i < UNIT; i++)
        host[i] = (float)(scale * (double)rng_normal(1, RNG_TEST, i));
    for (size_t i = 0; i < n; i += UNIT)
        d->ops->copy(d, p + i, host, (n - i < UNIT ? n - i : UNIT) * sizeof *host);
    return p;
}

static void *random_bf16(size_t n, double scale)
{
    float *x = random_f32(n, scale);
    void *p = room(n * 2);
    d->ops->cast(d, p, x, n);
    die(dev_sync(d));
    dev_free(d, x);
    return p;
}

typedef void work(const void *context);

/* Median seconds of one run: enough of them between two clock readings to fill 5 ms. */
static double seconds_of(work *run, const void *context)
{
    struct bench_times t = {.count = 0};
    int count = 1;
    run(context);
    die(dev_sync(d));
    double start = bench_now();
    run(context);
    die(dev_sync(d));
    double once = bench_now() - start;
    if (once < 5e-3)
        count = (int)(5e-3 / once) + 1;
    for (int r = 0; r < REPEATS; r++) {
        start = bench_now();
        for (int i = 0; i < count; i++)
            run(context);
        die(dev_sync(d));
        bench_add(&t, (bench_now() - start) / count);
    }
    return bench_median(&t);
}

static void row(const char *what, const char *unit, double value, double baseline)
{
    bench_write(csv, &(struct bench_row){"cuda", what, unit, flags, value, baseline});
}

static void gigabytes(const char *what, work *run, const void *context, double bytes)
{
    row(what, "GB/s", bytes * 1e-9 / seconds_of(run, context), copy_rate);
}

static void teraflops(const char *what, work *run, const void *context, double flop)
{
    row(what, "TFLOP/s", flop * 1e-12 / seconds_of(run, context), product_rate);
}

/* ---- ceilings ---- */
struct copy {
    void *to, *from;
    size_t bytes;
};

static void run_copy(const void *context)
{
    const struct copy *k = context;
    d->ops->copy(d, k->to, k->from, k->bytes);
}

static void run_linear(const void *context)
{
    const struct dev_linear *a = context;
    d->ops->linear_fwd(d, a->pre, a);
}

static void ceilings(void)
{
    struct copy k = {room((size_t)4 << 30), room((size_t)4 << 30), (size_t)4 << 30};
    copy_rate = 2e-9 * (double)k.bytes / seconds_of(run_copy, &k);
    dev_free(d, k.to);
    dev_free(d, k.from);
    struct dev_linear a = {.x = random_bf16(8192 * 8192, 1),
                           .w = random_bf16(8192 * 8192, 1),
                           .T = 8192,
                           .K = 8192,
                           .N = 8192,
                           .pre = room((size_t)8192 * 8192 * 2)};
    product_rate = 2e-12 * 8192 * 8192 * 8192 / seconds_of(run_linear, &a);
    row("copy 4 GiB", "GB/s", copy_rate, 0);
    row("product 8192^3", "TFLOP/s", product_rate, 0);
}

/* ---- memory-bound ---- */
struct norm {
    struct dev_norm_args a;
    void *x, *y;
    float *dgain, *dbias;
};

static void run_norm_fwd(const void *context)
{
    const struct norm *n = context;
    d->ops->norm_fwd(d, n->y, n->x, n->a.sum, &n->a);
}

static void run_norm_bwd(const void *context)
{
    const struct norm *n = context;
    d->ops->norm_bwd(
        d, &n->a,
        &(struct dev_norm_grad){
            .dy = n->y, .dsum = n->x, .dx = n->x, .dgain = n->dgain, .dbias = n->dbias});
}

static void norms(void)
{
    double bytes = 4.0 * 2 * T * C; /* x, residual in; sum, y out; the same number backward */
    struct norm n = {.a = {.kind = DEV_NORM_LAYER,
                           .eps = 1e-5f,
                           .T = T,
                           .C = C,
                           .gain = random_f32(C, 1),
                           .bias = random_f32(C, 1),
                           .sum = random_bf16((size_t)T * C, 1),
                           .mean = room(T * 4),
                           .rstd = room(T * 4)},
                     .x = random_bf16((size_t)T * C, 1),
                     .y = random_bf16((size_t)T * C, 1),
                     .dgain = room(C * 4),
                     .dbias = room(C * 4)};
    gigabytes("norm_fwd + residual 65536x768", run_norm_fwd, &n, bytes);
    gigabytes("norm_bwd + residual 65536x768", run_norm_bwd, &n, bytes);
}

struct llama {
    struct dev_rope r;
    void *qkv, *wide, *narrow;
    size_t F;
};

static void run_rope(const void *context)
{
    const struct llama *k = context;
    d->ops->rope(d, k->qkv, &k->r);
}

static void run_swiglu_fwd(const void *context)
{
    const struct llama *k = context;
    d->ops->gated_fwd(d, k->narrow, k->wide, &(struct dev_gated){DEV_GATE_SILU, k->r.T, k->F});
}

static void run_swiglu_bwd(const void *context)
{
    const struct llama *k = context;
    d->ops->gated_bwd(d, k->wide, k->narrow, k->wide,
                      &(struct dev_gated){DEV_GATE_SILU, k->r.T, k->F});
}

/* Llama 3.2 1B's, 16 sequences of 2048. */
static void llama(void)
{
    enum { TOKENS = 32768, LENGTH = 2048, HEADS = 40, STRIDE = 48 * 64, MLP = 8192 };
    static int32_t positions[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        positions[i] = i % LENGTH;
    int32_t *on_device = room(sizeof positions);
    d->ops->copy(d, on_device, positions, sizeof positions);
    struct llama k = {{random_f32(LENGTH * 64, 1), on_device, TOKENS, HEADS, 64, STRIDE, false},
                      random_bf16((size_t)TOKENS * STRIDE, 1),
                      random_bf16((size_t)TOKENS * 2 * MLP, 1),
                      random_bf16((size_t)TOKENS * MLP, 1),
                      MLP};
    gigabytes("rope 32768x40x64", run_rope, &k, 2.0 * TOKENS * HEADS * 64 * 2);
    gigabytes("swiglu_fwd 32768x8192", run_swiglu_fwd, &k, 2.0 * TOKENS * 3 * MLP);
    gigabytes("swiglu_bwd 32768x8192", run_swiglu_bwd, &k, 2.0 * TOKENS * 5 * MLP);
    void *all[] = {(void *)(uintptr_t)k.r.table, on_device, k.qkv, k.wide, k.narrow};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        dev_free(d, all[i]);
}

struct adam {
    struct dev_optim a;
    struct dev_range ranges[64];
    struct opt_group groups[64];
};

static void run_adamw(const void *context)
{
    const struct adam *k = context;
    d->ops->range_update(d, OPT_UPDATE_ADAMW, &k->a);
}

static void run_lamb(const void *context)
{
    const struct adam *k = context;
    d->ops->range_reduce(d, OPT_REDUCE_LAMB, &k->a);
    d->ops->range_update(d, OPT_UPDATE_LAMB, &k->a);
}

static void optimizers(void)
{
    size_t n = (size_t)1 << 30;
    static struct adam k;
    k.a = (struct dev_optim){.p = random_f32(n, 1),
                             .m = random_f32(n, 0.01),
                             .v = random_f32(n, 0),
                             .g = random_f32(n, 0.01),
                             .model = room(n * 2),
                             .k = {.lr = 1e-4f,
                                   .beta1 = 0.9f,
                                   .beta2 = 0.95f,
                                   .eps = 1e-8f,
                                   .weight_decay = 0.1f,
                                   .trust_min = 0.01f,
                                   .trust_max = 10},
                             .ranges = k.ranges,
                             .n = 64,
                             .sums = room(OPT_SUMS * 64 * sizeof(double)),
                             .sums_stride = 64};
    for (size_t i = 0; i < 64; i++) {
        k.ranges[i] = (struct dev_range){i * (n / 64), n / 64};
        k.groups[i] = (struct opt_group){1, 1, 2, 2, true, true, 0};
    }
    struct opt_group *groups = room(sizeof k.groups);
    d->ops->copy(d, groups, k.groups, sizeof k.groups);
    k.a.groups = groups;
    double adamw = seconds_of(run_adamw, &k), lamb = seconds_of(run_lamb, &k);
    row("AdamW 2^30 parameters", "ms", adamw * 1e3,
        30.0 * (double)n / copy_rate * 1e-6); /* baseline: bytes / copy */
    row("LAMB 2^30 parameters", "ms", lamb * 1e3, 42.0 * (double)n / copy_rate * 1e-6);
    dev_free(d, k.a.p);
    dev_free(d, k.a.m);
    dev_free(d, k.a.v);
    dev_free(d, (void *)(uintptr_t)k.a.g);
    dev_free(d, k.a.model);
    dev_free(d, groups);
}

/* ---- codec ---- */
struct codec {
    size_t n;
    float *z;
    uint8_t *stream;
    struct dev_chunk *chunks;
    double *norms;
    struct dev_encode encode;
    struct dev_decode decode;
};

static void run_encode(const void *context)
{
    const struct codec *k = context;
    d->ops->block_encode(d, k->stream, k->z, k->z, &k->encode);
}

static void run_decode(const void *context)
{
    const struct codec *k = context;
    d->ops->block_decode(d, k->z, k->stream, &k->decode);
}

static void run_norms(const void *context)
{
    const struct codec *k = context;
    d->ops->chunk_l1(d, k->norms, k->z, k->n);
}

static void run_largest(const void *context)
{
    const struct codec *k = context;
    d->ops->chunk_topk(d, k->chunks, k->z, k->z, k->n);
}

static void run_chunk_add(const void *context)
{
    const struct codec *k = context;
    d->ops->chunk_add(d, k->z, k->chunks, k->n);
}

/* bits: of a value on the wire; bits4: in the aggregate of 4, 0: relayed, decoded and added one by
 * one. */
static void form(struct codec *k, enum dev_form form, const char *name, double bits, unsigned bits4)
{
    char what[64];
    k->encode.form = k->decode.form = form;
    k->decode.bits = bits4;
    k->decode.bias = bits4 == 10 ? 4 * 127 : bits4 == 6 ? 4 * 7 : 4;
    k->decode.add = !bits4;
    snprintf(what, sizeof what, "%s encode + residual", name);
    gigabytes(what, run_encode, k, (double)k->n * (8 + bits / 8));
    snprintf(what, sizeof what, bits4 ? "%s decode of a sum of 4" : "%s decode + sum", name);
    gigabytes(what, run_decode, k, (double)k->n * (bits4 ? 4 + bits4 / 8.0 : 8 + bits / 8));
}

static void codec(void)
{
    size_t n = (size_t)1 << 27, blocks = n / DEV_BLOCK;
    uint32_t *slots = room(blocks * sizeof *slots), *host = malloc(blocks * sizeof *host);
    uint8_t *grid = room(blocks), *codes = malloc(blocks);
    uint16_t *signs = room(blocks * sizeof *signs), *four = malloc(blocks * sizeof *four);
    if (!host || !codes || !four)
        die(err_set(ERR_MEMORY, "%zu bytes wanted", blocks * 7));
    for (size_t b = 0; b < blocks; b++) {
        host[b] = (uint32_t)b;
        four[b] = 4;
        codes[b] = 128; /* RMS 1 */
    }
    d->ops->copy(d, slots, host, blocks * sizeof *host);
    d->ops->copy(d, grid, codes, blocks);
    d->ops->copy(d, signs, four, blocks * sizeof *four);
    struct codec k = {n,
                      random_f32(n, 1),
                      room(n * 4),
                      room(n / DEV_CHUNK * sizeof *k.chunks),
                      room(n / DEV_CHUNK * sizeof *k.norms),
                      {.count = n, .grid = grid, .code = room(blocks), .present = room(blocks)},
                      {.count = n,
                       .slot = slots,
                       .code = grid,
                       .signs = signs,
                       .overflow = room(4),
                       .divisor = 1}};
    form(&k, DEV_INT8, "int8", 8, 10);
    form(&k, DEV_INT4, "int4", 4, 6);
    form(&k, DEV_INT2, "int2", 2, 4);
    form(&k, DEV_SIGN, "sign", 1, 3);
    form(&k, DEV_BF16, "bf16", 16, 0);
    form(&k, DEV_E3M0, "e3m0", 4.125, 0);
    form(&k, DEV_E4M3, "fp8_e4m3", 8, 0);
    form(&k, DEV_E5M2_RANDOM, "fp8_sr", 8, 0);
    gigabytes("csc norms of chunks", run_norms, &k, 4.0 * (double)n);
    gigabytes("topk encode + residual", run_largest, &k, (double)n * (4 + 64.0 / DEV_CHUNK_SHARE));
    gigabytes("topk decode + sum", run_chunk_add, &k,
              (double)n * 64.0 / DEV_CHUNK_SHARE); /* sectors there and back */
    free(host);
    free(codes);
    free(four);
}

/* ---- attention, classifier, layer ---- */
struct attention {
    struct dev_attention a;
    void *out, *dout, *dqkv;
};

static void run_attention_fwd(const void *context)
{
    const struct attention *k = context;
    d->ops->attention_fwd(d, k->out, &k->a);
}

static void run_attention_bwd(const void *context)
{
    const struct attention *k = context;
    d->ops->attention_bwd(d, k->dqkv, k->dout, k->out, &k->a);
}

/* Ours, cuDNN's, and cuDNN with the backward that repeats bit for bit: that `auto` takes when its
 * record says so. */
static struct dev *whose[3];
static const char *const names[3] = {"own", "cudnn", "cudnn repeatable"};

static void attention_open(void)
{
    static const char *const modes[3] = {"own", "cudnn", "auto"};
    for (int i = 0; i < 3; i++) {
        enum err e = dev_open(
            &whose[i],
            &(struct dev_options){.kind = "cuda", .model_type = "bf16", .attention = modes[i]});
        if (e && i == 1) {
            printf("SKIPPED: cuDNN's attention: %s\n", err_message());
            return;
        }
        die(e);
    }
}

/* Of one kind of attention, forward or backward; d is it while it is measured. */
static void attention_row(int kind, const struct attention *k, bool backward, size_t L, double flop)
{
    struct dev *before = d;
    char what[96];
    const char *c = k->a.causal ? "c" : "";
    if (!whose[kind])
        return;
    d = whose[kind];
    if (kind == 2)
        snprintf(d->chosen, sizeof d->chosen, "%zux%zu/%zux%zu%s:cc;", k->a.HD, k->a.NH, k->a.KVH,
                 L, c);
    snprintf(what, sizeof what, "attention %s L=%zu HD=%zu%s causal=%d %s",
             backward ? "bwd" : "fwd", L, k->a.HD, k->a.KVH < k->a.NH ? " grouped" : "",
             k->a.causal, names[kind]);
    teraflops(what, backward ? run_attention_bwd : run_attention_fwd, k, flop);
    d = before;
}

static void attention(size_t L, size_t HD, size_t share)
{
    enum { TOKENS = 32768, WIDTH = 1024 };
    static int32_t cu[TOKENS + 1];
    size_t S = TOKENS / L, NH = WIDTH / HD;
    for (size_t i = 0; i <= S; i++)
        cu[i] = (int32_t)(i * L);
    int32_t *device_cu = room((S + 1) * 4);
    d->ops->copy(d, device_cu, cu, (S + 1) * 4);
    struct attention k = {{.qkv = random_bf16((size_t)TOKENS * 3 * WIDTH, 1),
                           .cu_seqlens = device_cu,
                           .cu_seqlens_host = cu,
                           .sequences = S,
                           .T = TOKENS,
                           .NH = NH,
                           .HD = HD,
                           .KVH = NH / share,
                           .causal = true,
                           .scale = 0.125f,
                           .lse = room((size_t)TOKENS * NH * 4)},
                          room((size_t)TOKENS * WIDTH * 2),
                          random_bf16((size_t)TOKENS * WIDTH, 1),
                          room((size_t)TOKENS * 3 * WIDTH * 2)};
    for (int causal = 1; causal >= 0; causal--) {
        double flop = 4.0 * TOKENS * (double)L * WIDTH /
                      (causal ? 2 : 1); /* as FlashAttention's papers count */
        k.a.causal = causal;
        for (int kind = 0; kind < 3; kind++) {
            if (kind < 2)
                attention_row(kind, &k, false, L, flop);
            attention_row(kind, &k, true, L, 2.5 * flop);
        }
    }
    void *all[] = {(void *)(uintptr_t)k.a.qkv, device_cu, k.a.lse, k.out, k.dout, k.dqkv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        dev_free(d, all[i]);
}

static void run_classifier(const void *context)
{
    d->ops->classifier(d, context);
}

static void classifier(void)
{
    enum { V = 50257, VP = 50304, ROWS = 16384 };
    int32_t *targets = calloc(ROWS, sizeof *targets), *on_device = room(ROWS * 4);
    d->ops->copy(d, on_device, targets, ROWS * sizeof *targets);
    free(targets);
    struct dev_classifier a = {.x = random_bf16((size_t)ROWS * C, 1),
                               .w = random_bf16((size_t)VP * C, 0.05),
                               .targets = on_device,
                               .T = ROWS,
                               .C = C,
                               .V = V,
                               .VP = VP,
                               .grad_scale = 1e-4f,
                               .losses = room(ROWS * 4),
                               .dx = room((size_t)ROWS * C * 2),
                               .dw = room((size_t)VP * C * 4)};
    teraflops("classifier fwd + bwd 16384x50304x768", run_classifier, &a, 3 * 2.0 * ROWS * C * V);
}

struct layer {
    struct dev_linear a;
    struct dev_linear_grad g;
    void *y;
};

static void run_layer_fwd(const void *context)
{
    const struct layer *l = context;
    d->ops->linear_fwd(d, l->y, &l->a);
}

static void run_layer_bwd(const void *context)
{
    const struct layer *l = context;
    d->ops->linear_bwd(d, &l->a, &l->g);
}

/* act: after it in forward; front: before it in backward. */
static void linear(const char *name, size_t K, size_t N, enum dev_act act, enum dev_act front)
{
    char what[80];
    struct layer l = {{random_bf16((size_t)T * K, 1), random_bf16(N * K, 0.02), random_f32(N, 1), T,
                       K, N, act, room((size_t)T * N * 2)},
                      {random_bf16((size_t)T * N, 1e-3), room((size_t)T * K * 2), room(N * K * 4),
                       room(N * 4), front, front ? random_bf16((size_t)T * K, 1) : NULL,
                       front ? room(K * 4) : NULL},
                      room((size_t)T * N * 2)};
    double flop = 2.0 * T * (double)K * (double)N;
    snprintf(what, sizeof what, "%s fwd", name);
    teraflops(what, run_layer_fwd, &l, flop);
    snprintf(what, sizeof what, "%s bwd", name);
    teraflops(what, run_layer_bwd, &l, 2 * flop);
}

int main(int argc, char **argv)
{
    csv = bench_arguments(argc, argv);
    if (!csv)
        return 4;
    if (dev_open(&d, &(struct dev_options){.kind = "cuda", .model_type = "bf16"})) {
        printf("SKIPPED: %s\n", err_message());
        return SKIP;
    }
    puts(d->note);
    bench_gpu(flags, sizeof flags, d->note);
    ceilings();
    norms();
    llama();
    linear("qkv 768->2304", C, 3 * C, DEV_ACT_NONE, DEV_ACT_NONE);
    linear("up + GELU 768->3072", C, 4 * C, DEV_ACT_GELU_TANH, DEV_ACT_NONE);
    linear("down 3072->768", 4 * C, C, DEV_ACT_NONE, DEV_ACT_GELU_TANH);
    attention_open();
    for (size_t L = 512; L <= 4096; L *= 2) {
        attention(L, 64, 1);
        attention(L, 128, 1);
    }
    attention(2048, 64, 4);
    for (int i = 0; i < 3; i++)
        dev_close(whose[i]);
    classifier();
    codec();
    optimizers();
    dev_close(d);
    return 0;
}
