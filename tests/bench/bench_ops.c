/* SPDX-License-Identifier: Apache-2.0 */
/* The device's ops at the shapes of a 30M GPT (C 512, 8 heads, 16 sequences of 256), in f32 and
 * bf16. Products in GFLOP/s against the library's own 2048 x 2048 x 2048 in the same type, which
 * stands for the peak; attention (multiplications under the causal mask only, backward counted
 * as 2.5 forwards) against the same figure; memory-bound ops in GB/s of what they must read and
 * write, against a copy by the same threads. A ratio above 1 means that operands came from the
 * cache.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/rng.h"
#include "kernels/dev.h"
#include "tests/bench/bench.h"

enum { T = 4096, C = 512, F = 4 * C, NH = 8, V = 257, VP = 384, WIDE = 50257, WIDE_P = 50304 };
enum { WIDE_T = 1024, CUBE = 2048, PARAMETERS = 30 << 20, RANGES = 15, REPEATS = 9 };

struct work {
    struct dev *d;
    void *x, *y, *pre, *w, *dx, *residual, *qkv, *dqkv, *table;
    float *dw, *bias, *dbias, *mean, *rstd, *lse, *dtable, *square, *one;
    float *p, *m, *v, *g;
    void *model;
    int32_t *tokens, *positions, cu[T / 256 + 1];
    struct dev_range ranges[RANGES];
    struct opt_group groups[RANGES];
    double *sums;
    uint8_t *bits;
    float *scales;
    struct dev_sign_sum *sign_sums;
};

static enum err model(struct dev *d, void **p, size_t n)
{
    float *x = malloc(n * sizeof *x);
    if (!x)
        return err_set(ERR_MEMORY, "no memory for %zu values", n);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(rng_u32(1, RNG_TEST, i) >> 8) * 0x1p-24f - 0.5f;
    enum err e = dev_alloc(d, p, n * dtype_size(d->model_type));
    if (!e)
        d->ops->cast(d, *p, x, n);
    free(x);
    return e;
}

static enum err floats(struct dev *d, float **out, size_t n)
{
    void *p;
    TRY(dev_alloc(d, &p, n * sizeof(float)));
    *out = p;
    for (size_t i = 0; i < n; i++)
        (*out)[i] = (float)(rng_u32(2, RNG_TEST, i) >> 8) * 0x1p-24f;
    return ERR_OK;
}

static enum err fill(struct work *k)
{
    struct dev *d = k->d;
    void **models[] = {&k->x,        &k->y,   &k->pre,  &k->w,    &k->dx,
                       &k->residual, &k->qkv, &k->dqkv, &k->table};
    size_t sizes[] = {
        T * C, T * F, T * F, F * C, T * C, T * C, T * 3 * C, T * F, (size_t)WIDE_P * C};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        TRY(model(d, models[i], sizes[i]));
    float **rows[] = {&k->dw,  &k->bias,   &k->dbias,  &k->mean, &k->rstd,
                      &k->lse, &k->dtable, &k->square, &k->one};
    size_t counts[] = {(size_t)CUBE * CUBE, F, F, T, T, NH * T, (size_t)WIDE_P * C, 2, 1};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        TRY(floats(d, rows[i], counts[i]));
    float **slabs[] = {&k->p, &k->m, &k->v, &k->g};
    for (size_t i = 0; i < sizeof slabs / sizeof *slabs; i++)
        TRY(floats(d, slabs[i], PARAMETERS));
    if (d->model_type == DTYPE_BF16)
        TRY(model(d, &k->model, PARAMETERS));
    TRY(dev_alloc(d, (void **)&k->bits, PARAMETERS / 8));
    TRY(dev_alloc(d, (void **)&k->scales, RANGES * sizeof *k->scales));
    TRY(dev_alloc(d, (void **)&k->sign_sums,
                  (PARAMETERS / DEV_RUN + RANGES) * sizeof *k->sign_sums));
    TRY(dev_alloc(d, (void **)&k->sums, OPT_SUMS * RANGES * sizeof *k->sums));
    void *ints;
    TRY(dev_alloc(d, &ints, 2 * T * sizeof(int32_t)));
    k->tokens = ints;
    k->positions = k->tokens + T;
    for (size_t i = 0; i < T; i++) {
        k->tokens[i] = (int32_t)rng_below(3, RNG_TEST, i, V);
        k->positions[i] = (int32_t)(i % 256);
    }
    for (int32_t i = 0; i <= T / 256; i++)
        k->cu[i] = i * 256;
    for (size_t i = 0; i < RANGES; i++) {
        k->ranges[i] = (struct dev_range){i * (PARAMETERS / RANGES), PARAMETERS / RANGES};
        k->groups[i] = (struct opt_group){1, 1, 2, 2, true, true, 0};
    }
    *k->one = 1;
    return ERR_OK;
}

static void run_copy(struct work *k)
{
    k->d->ops->copy(k->d, k->p, k->m, PARAMETERS * sizeof(float));
}

static void run_cube(struct work *k)
{
    k->d->ops->logits(
        k->d, k->dw,
        &(struct dev_linear){.x = k->table, .w = k->y, .T = CUBE, .K = CUBE, .N = CUBE});
}

static struct dev_linear linear(struct work *k, enum dev_act act)
{
    return (struct dev_linear){k->x, k->w, k->bias, T, C, F, act, act ? k->pre : NULL};
}

static void run_linear_fwd(struct work *k)
{
    struct dev_linear a = linear(k, DEV_ACT_NONE);
    k->d->ops->linear_fwd(k->d, k->y, &a);
}

static void run_gelu_fwd(struct work *k)
{
    struct dev_linear a = linear(k, DEV_ACT_GELU_TANH);
    k->d->ops->linear_fwd(k->d, k->y, &a);
}

static void run_linear_bwd(struct work *k)
{
    struct dev_linear a = linear(k, DEV_ACT_NONE);
    k->d->ops->linear_bwd(
        k->d, &a,
        &(struct dev_linear_grad){.dy = k->y, .dx = k->dx, .dw = k->dw, .dbias = k->dbias});
}

static void run_gelu_bwd(struct work *k)
{
    struct dev_linear a = {k->y, k->w, NULL, T, F, C, DEV_ACT_NONE, NULL};
    k->d->ops->linear_bwd(k->d, &a,
                          &(struct dev_linear_grad){.dy = k->x,
                                                    .dx = k->dqkv,
                                                    .dw = k->dw,
                                                    .act = DEV_ACT_GELU_TANH,
                                                    .pre = k->pre,
                                                    .pre_dbias = k->dbias});
}

static void run_norm_fwd(struct work *k)
{
    struct dev_norm_args a = {
        .kind = DEV_NORM_LAYER, .eps = 1e-5f, .T = T, .C = C, .gain = k->bias, .bias = k->bias};
    a.sum = k->y;
    a.mean = k->mean;
    a.rstd = k->rstd;
    k->d->ops->norm_fwd(k->d, k->dx, k->x, k->residual, &a);
}

static void run_norm_bwd(struct work *k)
{
    struct dev_norm_args a = {
        .kind = DEV_NORM_LAYER, .eps = 1e-5f, .T = T, .C = C, .gain = k->bias, .bias = k->bias};
    a.sum = k->residual;
    a.mean = k->mean;
    a.rstd = k->rstd;
    k->d->ops->norm_bwd(
        k->d, &a,
        &(struct dev_norm_grad){
            .dy = k->x, .dsum = k->dx, .dx = k->dx, .dgain = k->dw, .dbias = k->dbias});
}

static void run_attention(struct work *k, size_t heads, bool backward)
{
    struct dev_attention a = {.qkv = k->qkv,
                              .cu_seqlens = k->cu,
                              .cu_seqlens_host = k->cu,
                              .sequences = T / 256,
                              .T = T,
                              .NH = heads,
                              .KVH = heads,
                              .HD = C / heads,
                              .causal = true,
                              .scale = 0.125f,
                              .lse = k->lse};
    if (backward)
        k->d->ops->attention_bwd(k->d, k->dqkv, k->x, k->dx, &a);
    else
        k->d->ops->attention_fwd(k->d, k->dx, &a);
}

static void run_attention_fwd(struct work *k)
{
    run_attention(k, NH, false);
}

static void run_attention_bwd(struct work *k)
{
    run_attention(k, NH, true);
}

static void run_classifier(struct work *k)
{
    struct dev_classifier a = {.x = k->x,
                               .w = k->w,
                               .targets = k->tokens,
                               .T = T,
                               .C = C,
                               .V = V,
                               .VP = VP,
                               .grad_scale = 1e-4f,
                               .losses = k->mean,
                               .dx = k->dx,
                               .dw = k->dw};
    k->d->ops->classifier(k->d, &a);
}

static void run_classifier_wide(struct work *k)
{
    struct dev_classifier a = {.x = k->x,
                               .w = k->table,
                               .targets = k->tokens,
                               .T = WIDE_T,
                               .C = C,
                               .V = WIDE,
                               .VP = WIDE_P,
                               .grad_scale = 1e-4f,
                               .losses = k->mean,
                               .dx = k->dx,
                               .dw = k->dtable};
    k->d->ops->classifier(k->d, &a);
}

static void run_embed_fwd(struct work *k)
{
    k->d->ops->embed_fwd(k->d, k->dx,
                         &(struct dev_embed){.wte = k->w,
                                             .wpe = k->w,
                                             .tokens = k->tokens,
                                             .positions = k->positions,
                                             .T = T,
                                             .C = C});
}

static void run_embed_bwd(struct work *k)
{
    k->d->ops->embed_bwd(
        k->d,
        &(struct dev_embed){
            .tokens = k->tokens, .positions = k->positions, .T = T, .C = C, .VP = V},
        &(struct dev_embed_grad){.dx = k->x, .dwte = k->dw, .dwpe = k->dw});
}

static struct dev_optim optimizer(struct work *k)
{
    return (struct dev_optim){.p = k->p,
                              .m = k->m,
                              .v = k->v,
                              .g = k->g,
                              .model = k->model,
                              .gscale = k->one,
                              .k = {.lr = 1e-4f,
                                    .beta1 = 0.9f,
                                    .beta2 = 0.99f,
                                    .eps = 1e-6f,
                                    .weight_decay = 0.1f,
                                    .trust_min = 0.01f,
                                    .trust_max = 10},
                              .ranges = k->ranges,
                              .groups = k->groups,
                              .n = RANGES,
                              .sums = k->sums,
                              .sums_stride = RANGES};
}

static void run_adamw(struct work *k)
{
    struct dev_optim a = optimizer(k);
    k->d->ops->range_update(k->d, OPT_UPDATE_ADAMW, &a);
}

static void run_lamb(struct work *k)
{
    struct dev_optim a = optimizer(k);
    k->d->ops->range_reduce(k->d, OPT_REDUCE_LAMB, &a);
    k->d->ops->range_update(k->d, OPT_UPDATE_LAMB, &a);
}

static void run_sumsq(struct work *k)
{
    k->d->ops->sumsq(k->d, (double *)(void *)k->square, k->g, PARAMETERS);
}

/* With error feedback: reads two slabs, writes one. */
static void run_sign_encode(struct work *k)
{
    const struct dev_sign_encode a = {.x = k->g,
                                      .error = k->m,
                                      .ranges = k->ranges,
                                      .n = RANGES,
                                      .longest = PARAMETERS / RANGES,
                                      .scales = k->scales,
                                      .sums = k->sign_sums};
    k->d->ops->sign_encode(k->d, k->bits, &a);
}

static void run_sign_decode(struct work *k)
{
    const struct dev_sign_decode a = {.ranges = k->ranges,
                                      .n = RANGES,
                                      .longest = PARAMETERS / RANGES,
                                      .parts = 1,
                                      .bits = k->bits,
                                      .scales = k->scales};
    k->d->ops->sign_decode(k->d, k->v, &a);
}

/* Floating-point operations, or bytes: f of f32 and e of model type per element. */
static const struct {
    const char *name;
    void (*run)(struct work *k);
    double operations, elements, f, e;
} cases[] = {
    {"copy 120 MiB", run_copy, 0, PARAMETERS, 8, 0},
    {"product 2048 cubed", run_cube, 2.0 * CUBE *CUBE *CUBE, 0, 0, 0},
    {"linear fwd 512->2048", run_linear_fwd, 2.0 * T *C *F, 0, 0, 0},
    {"linear+gelu fwd 512->2048", run_gelu_fwd, 2.0 * T *C *F, 0, 0, 0},
    {"linear bwd 512->2048", run_linear_bwd, 4.0 * T *C *F, 0, 0, 0},
    {"linear+gelu bwd 2048->512", run_gelu_bwd, 4.0 * T *C *F, 0, 0, 0},
    {"attention fwd 256 HD 64 causal", run_attention_fwd, 2.0 * T *C * 257, 0, 0, 0},
    {"attention bwd 256 HD 64 causal", run_attention_bwd, 5.0 * T *C * 257, 0, 0, 0},
    {"classifier V 257", run_classifier, 6.0 * T *C *V, 0, 0, 0},
    {"classifier V 50257", run_classifier_wide, 6.0 * WIDE_T *C *WIDE, 0, 0, 0},
    {"residual+layernorm fwd", run_norm_fwd, 0, T *C, 0, 4},
    {"residual+layernorm bwd", run_norm_bwd, 0, T *C, 0, 4},
    {"embed fwd", run_embed_fwd, 0, T *C, 0, 3},
    {"embed bwd", run_embed_bwd, 0, T *C, 0, 1},
    {"adamw 30M", run_adamw, 0, PARAMETERS, 28, 0},
    {"lamb 30M", run_lamb, 0, PARAMETERS, 28, 0},
    {"sumsq 30M", run_sumsq, 0, PARAMETERS, 4, 0},
    {"sign encode 30M", run_sign_encode, 0, PARAMETERS, 12, 0},
    {"sign decode 30M", run_sign_decode, 0, PARAMETERS, 4, 0},
};
enum { CASES = sizeof cases / sizeof *cases };

static double rate(const struct bench_times *t, size_t i, enum dtype type)
{
    double bytes = cases[i].elements * (cases[i].f + cases[i].e * (double)dtype_size(type));
    return (cases[i].operations + bytes) / bench_median(&t[i]) / 1e9;
}

static enum err measure(struct work *k, const char *csv)
{
    static struct bench_times times[CASES];
    memset(times, 0, sizeof times);
    for (int r = 0; r <= REPEATS; r++)
        for (size_t i = 0; i < CASES; i++) {
            double start = bench_now();
            cases[i].run(k);
            if (r > 0) /* the first makes the library's products and touches the scratch memory */
                bench_add(&times[i], bench_now() - start);
        }
    TRY(dev_sync(k->d));
    const char *type = k->d->model_type == DTYPE_F32 ? "f32" : "bf16";
    for (size_t i = 0; i < CASES; i++) {
        bool product = cases[i].operations > 0;
        char what[80], flags[128];
        snprintf(what, sizeof what, "%s %s", cases[i].name, type);
        snprintf(flags, sizeof flags, "threads=%d %s", k->d->threads, __VERSION__);
        bench_write(
            csv, &(struct bench_row){.bench = "ops",
                                     .what = what,
                                     .flags = flags,
                                     .unit = product ? "GFLOP/s" : "GB/s",
                                     .value = rate(times, i, k->d->model_type),
                                     .baseline = rate(times, product ? 1 : 0, k->d->model_type)});
    }
    return ERR_OK;
}

static enum err bench(const char *type, const char *csv)
{
    struct work k = {0};
    TRY(dev_open(&k.d, &(struct dev_options){.kind = "cpu", .model_type = type}));
    fprintf(stderr, "%s\n", k.d->note);
    enum err e = fill(&k);
    if (!e)
        e = measure(&k, csv);
    void *all[] = {k.x,      k.y,   k.pre,  k.w,     k.dx,   k.residual, k.qkv,   k.dqkv,
                   k.table,  k.dw,  k.bias, k.dbias, k.mean, k.rstd,     k.lse,   k.dtable,
                   k.square, k.one, k.p,    k.m,     k.v,    k.g,        k.model, k.tokens};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        dev_free(k.d, all[i]);
    dev_close(k.d);
    return e;
}

int main(int argc, char **argv)
{
    const char *csv = bench_arguments(argc, argv);
    enum err e = csv ? bench("bf16", csv) : ERR_CONFIG;
    if (!e)
        e = bench("f32", csv);
    if (e && csv)
        fprintf(stderr, "%s\n", err_message());
    return err_exit_code(e);
}
