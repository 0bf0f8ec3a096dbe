/* Speed of the device's ops at the shapes of a 30M GPT (C 512, 8 heads, sequence 256), beside the
 * ceilings of this machine measured in the same run: fused multiply-adds from registers, memcpy.
 * bench_ops [f32|bf16] [threads]
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernels/base/rng.h"
#include "kernels/dev.h"

static struct dev *d;
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
#define BEST(call)                                                                                 \
    ({                                                                                             \
        double best_ = 1e9;                                                                        \
        for (int i_ = 0; i_ < 7; i_++) {                                                           \
            double t_ = now();                                                                     \
            call;                                                                                  \
            t_ = now() - t_;                                                                       \
            best_ = t_ < best_ ? t_ : best_;                                                       \
        }                                                                                          \
        best_;                                                                                     \
    })
static void row(const char *what, double seconds, double gflop, double gb)
{
    printf("%-34s %8.3f ms", what, seconds * 1e3);
    if (gflop > 0)
        printf(" %7.1f GFLOP/s", gflop / seconds);
    if (gb > 0)
        printf(" %7.1f GB/s", gb / seconds);
    printf("\n");
}
static void *model(size_t n)
{
    float *x = malloc(n * 4);
    void *p;
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(rng_unit(1, RNG_TEST, i) - 0.5);
    if (dev_alloc(d, &p, n * dtype_size(d->model_type)))
        exit(1);
    d->ops->cast(d, p, x, n);
    free(x);
    return p;
}
static float *f32(size_t n)
{
    void *p;
    if (dev_alloc(d, &p, n * 4))
        exit(1);
    for (size_t i = 0; i < n; i++)
        ((float *)p)[i] = (float)rng_unit(2, RNG_TEST, i);
    return p;
}
static void attention(size_t L, size_t HD)
{
    size_t T = 4096, C = 512, S = T / L;
    int32_t *cu = malloc((S + 1) * 4);
    for (size_t i = 0; i <= S; i++)
        cu[i] = (int32_t)(i * L);
    struct dev_attention a = {model(T * 3 * C), cu, cu, S, T, C / HD, HD, true, 0.125f, f32(T * C)};
    void *out = model(T * C), *dqkv = model(3 * T * C), *dout = model(T * C);
    double g = 2.0 * 2 * (double)T * (double)(L + 1) / 2 * (double)C * 1e-9;
    char name[64];
    for (int c = 1; c >= 0; c--) {
        a.causal = c;
        snprintf(name, 64, "attention fwd L=%zu HD=%zu causal=%d", L, HD, c);
        row(name, BEST(d->ops->attention_fwd(d, out, &a)), c ? g : 2 * g, 0);
        snprintf(name, 64, "attention bwd L=%zu HD=%zu causal=%d", L, HD, c);
        row(name, BEST(d->ops->attention_bwd(d, dqkv, dout, out, &a)), 2.5 * (c ? g : 2 * g), 0);
    }
}
int main(int argc, char **argv)
{
    struct dev_options o = {.model_type = argc > 1 ? argv[1] : "auto", .threads = argc > 2 ? atoi(argv[2]) : 0, .isa = argc>3?argv[3]:NULL};
    if (dev_open(&d, &o))
        return 1;
    puts(d->note);
    double e = (double)dtype_size(d->model_type);
    size_t T = 4096, C = 512;
    double TC = 4096 * 512 * 1e-9;
    void *big = f32(64 << 20), *big2 = f32(64 << 20);
    row("copy 256 MB", BEST(d->ops->copy(d, big, big2, 256 << 20)), 0, 2 * .268435456);
    row("zero 256 MB", BEST(d->ops->zero(d, big, 256 << 20)), 0, .268435456);
    void *x = model(T * C), *y = model(T * C * 4), *pre = model(T * C * 4), *w = model(4 * C * C), *dx = model(T * C),*r=model(T*C);
    float *dw = f32(4 * C * C), *bias = f32(4 * C), *db = f32(4 * C), *mean = f32(T), *rstd = f32(T);
    double flop = 2 * 4096. * 512 * 2048 * 1e-9;
    struct dev_linear l = {x, w, bias, T, C, 4 * C, DEV_ACT_NONE, NULL};
    struct dev_linear_grad g = {y, dx, dw, db};
    row("linear fwd 512->2048", BEST(d->ops->linear_fwd(d, y, &l)), flop, 0);
    row("linear bwd 512->2048", BEST(d->ops->linear_bwd(d, &l, &g)), 2 * flop, 0);
    l.act = DEV_ACT_GELU_TANH;
    l.pre = pre;
    row("linear fwd 512->2048 gelu", BEST(d->ops->linear_fwd(d, y, &l)), flop, 0);
    row("linear bwd 512->2048 gelu", BEST(d->ops->linear_bwd(d, &l, &g)), 2 * flop, 0);
    struct dev_norm_args n = {DEV_NORM_LAYER, 1e-5f, T, C, bias, db};
    row("layernorm fwd residual", BEST(d->ops->norm_fwd(d, dx, r, mean, rstd, x, r, &n)), 0, 4 * e * TC);
    row("layernorm bwd residual", BEST(d->ops->norm_bwd(d, dx, dw, dw + C, x, dx, r, mean, rstd, &n)), 0, 4 * e * TC);
    row("add", BEST(d->ops->add(d, dx, x, r, T * C)), 0, 3 * e * TC);
    int32_t *tok = malloc(T * 4), *pos = malloc(T * 4);
    for (size_t i = 0; i < T; i++) {
        tok[i] = (int32_t)rng_below(1, 1, i, 256);
        pos[i] = (int32_t)(i % 256);
    }
    row("embed fwd", BEST(d->ops->embed_fwd(d, dx, w, w, tok, pos, T, C)), 0, 3 * e * TC);
    row("embed bwd", BEST(d->ops->embed_bwd(d, dw, dw, x, tok, pos, T, C, 256)), 0, e * TC);
    struct dev_classifier c = {x, w, tok, T, C, 257, 384, 1e-3f, mean, dx, dw};
    row("classifier V=257", BEST(d->ops->classifier(d, &c)), 3 * 2 * TC * 257, 0);
    void *table = model((size_t)50304 * C);
    float *dtable = f32((size_t)50304 * C);
    c = (struct dev_classifier){x, table, tok, 1024, C, 50257, 50304, 1e-3f, mean, dx, dtable};
    row("classifier V=50257 T=1024", BEST(d->ops->classifier(d, &c)), 3 * 2 * TC / 4 * 50257, 0);
    attention(256, 64);
    attention(128, 32);
    attention(512, 128);
    attention(1024, 64);
    size_t P = 30u << 20;
    float one = 1;
    struct dev_adam a = {f32(P), f32(P), f32(P), f32(P), d->model_type ? model(P) : NULL, &one, 1e-3f, .9f, .99f, 1e-8f, .1f, .5f, .5f, .01f, 10};
    double pg = (double)P * 1e-9;
    struct dev_range rg[15];
    for (size_t i = 0; i < 15; i++)
        rg[i] = (struct dev_range){i * (2 << 20), 2 << 20, true};
    row("adamw 30M", BEST(d->ops->adamw(d, &a, rg, 15)), 0, pg * (28 + (d->model_type ? 2 : 0)));
    row("lamb 30M", BEST(d->ops->lamb(d, &a, rg, 15)), 0, pg * (28 + (d->model_type ? 2 : 0)));
    row("sumsq 30M", BEST(d->ops->sumsq(d, mean, a.p, P)), 0, pg * 4);
    row("scale 30M", BEST(d->ops->scale(d, a.p, 1.0f, P)), 0, pg * 8);
    return dev_sync(d) ? 1 : 0;
}
