/* SPDX-License-Identifier: Apache-2.0 */
/* Every fast op of the CUDA backend against the same op of the CPU backend, which is the
 * specification, on the same random inputs; bounds at each. Each op runs twice and must give the
 * same bytes. Linked twice: with a GPU (skips without one), and with its kernels emulated on this
 * host, where shapes are small. If these are wrong, a GPU trains another model than a CPU.
 */
#include "tests/kernels/check.h"
#include "tests/cuda/cuda_test.h"

enum { KEPT_MAX = 12 };
struct kept { /* one output of one run */
    const char *what;
    double *x;
    size_t n;
    double bound; /* of the largest value */
};
static struct kept kept[3][KEPT_MAX]; /* CPU, GPU, GPU again */
static size_t kept_count[3];
static int run_index;
static struct dev *devices[2];
static bool bits_vary; /* of two runs of what is compared */

static void keep(struct dev *d, const char *what, const void *p, size_t n, enum dtype type,
                 double limit)
{
    struct kept *k = &kept[run_index][kept_count[run_index]++];
    assert_true(kept_count[run_index] <= KEPT_MAX);
    *k = (struct kept){what, malloc((n + 1) * sizeof(double)), n, limit};
    memcpy(k->x, download(d, p, n, type), n * sizeof(double));
}

static void compare(void (*run)(struct dev *d, const void *c), const void *c)
{
    for (run_index = 0; run_index < 3; run_index++) {
        struct dev *d = devices[run_index > 0];
        check_index = 0;
        kept_count[run_index] = 0;
        run(d, c);
        assert_int_equal(dev_sync(d), ERR_OK);
        check_done(d);
    }
    for (size_t i = 0; i < kept_count[0]; i++) {
        const struct kept *want = &kept[0][i], *got = &kept[1][i];
        near_doubles(want->what, got->x, want->x, want->n, want->bound, 1e-30);
        if (!bits_vary && memcmp(got->x, kept[2][i].x, want->n * sizeof(double)))
            fail_msg("%s, %s: two runs differ", check_place, want->what);
        for (int k = 0; k < 3; k++)
            free(kept[k][i].x);
    }
}

/* Large shapes too: on a GPU, unless a sanitizer slows it down (CUDA_TEST_SMALL=1). */
static bool on_gpu(void)
{
    return strcmp(devices[1]->kind, "cuda") == 0 && !getenv("CUDA_TEST_SMALL");
}

static void on_both_types(void (*check)(void))
{
    static const char *types[] = {"f32", "bf16"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            dev_open(&devices[0], &(struct dev_options){.kind = "cpu", .model_type = types[i]}),
            ERR_OK);
        assert_int_equal(cuda_test_open(&devices[1], types[i]), ERR_OK);
        snprintf(check_place, sizeof check_place, "%s %s ", devices[1]->kind, types[i]);
        check();
        dev_close(devices[0]);
        dev_close(devices[1]);
    }
}

static float *halves(struct dev *d, size_t n) /* gradients are added to */
{
    double *x = doubles(n);
    for (size_t i = 0; i < n; i++)
        x[i] = 0.5;
    return upload(d, x, n, DTYPE_F32);
}

/* ---- norms ---- */
struct norm_case {
    size_t T, C;
    enum dev_norm kind;
    bool residual, dsum, branch;
};

static void run_norm(struct dev *d, const void *context)
{
    const struct norm_case *n = context;
    enum dtype type = d->model_type;
    size_t T = n->T, C = n->C, TC = T * C, bytes = TC * dtype_size(type);
    bool layer = n->kind == DEV_NORM_LAYER;
    struct dev_norm_args a = {.kind = n->kind, .eps = 1e-5f, .T = T, .C = C};
    a.gain = upload(d, numbers(C, 1, DTYPE_F32), C, DTYPE_F32);
    a.bias = layer ? upload(d, numbers(C, 1, DTYPE_F32), C, DTYPE_F32) : NULL;
    void *x = upload(d, numbers(TC, 1, type), TC, type), *y = room(d, bytes);
    void *residual = upload(d, numbers(TC, 1, type), TC, type), *sum = n->residual ? residual : x;
    float *mean = room(d, T * 4), *rstd = room(d, T * 4);
    a.sum = sum;
    a.mean = mean;
    a.rstd = rstd;
    uint64_t *keys = arena_array(&check_host, T, sizeof *keys), *there = room(d, T * sizeof *keys);
    for (size_t t = 0; t < T; t++)
        keys[t] = (uint64_t)1 << 40 | t * 13;
    d->ops->copy(d, there, keys, T * sizeof *keys);
    const struct dev_dropout branch = {.rate = 0.1f, .seed = 77, .place = 3, .keys = there};
    void *dbranch = room(d, bytes);
    a.branch = n->branch ? &branch : NULL;
    if (n->kind == DEV_NORM_NONE)
        y = sum;
    d->ops->norm_fwd(d, y, x, n->residual ? residual : NULL, &a); /* sum aliases */
    keep(d, "y", y, TC, type, bound(d, 2e-6, 0.008));
    keep(d, "sum", sum, TC, type, n->branch ? bound(d, 2e-7, 0.008) : 0);
    if (n->kind != DEV_NORM_NONE)
        keep(d, "rstd", rstd, T, DTYPE_F32, n->branch ? bound(d, 2e-6, 0.008) : 2e-6);
    float *dgain = halves(d, C), *dbias = halves(d, C);
    void *dx = n->dsum ? upload(d, numbers(TC, 1, type), TC, type) : room(d, bytes);
    void *dy = upload(d, numbers(TC, 1, type), TC, type);
    d->ops->norm_bwd(d, &a,
                     &(struct dev_norm_grad){.dy = dy,
                                             .dsum = n->dsum ? dx : NULL,
                                             .dx = dx,
                                             .dgain = dgain,
                                             .dbias = layer ? dbias : NULL,
                                             .dbranch = n->branch ? dbranch : NULL});
    keep(d, "dbranch", dbranch, TC, type, bound(d, 1e-5, 0.016));
    keep(d, "dx", dx, TC, type, bound(d, 1e-5, 0.008));
    keep(d, "dgain", dgain, C, DTYPE_F32, n->branch ? bound(d, 1e-5, 0.01) : 1e-5);
    keep(d, "dbias", dbias, C, DTYPE_F32, 1e-5);
}

static void check_norms(void)
{
    static const struct norm_case cases[] = {
        {1, 3, DEV_NORM_LAYER, false, false, false},
        {5, 8, DEV_NORM_LAYER, true, true, false},
        {37, 70, DEV_NORM_LAYER, true, false, false},
        {37, 72, DEV_NORM_RMS, true, true, false},
        {97, 768, DEV_NORM_LAYER, true, true, false},
        {41, 264, DEV_NORM_RMS, false, true, false},
        {1, 1, DEV_NORM_RMS, true, true, false},
        {23, 641, DEV_NORM_LAYER, true, true, false},
        {19, 5128, DEV_NORM_LAYER, false, true, false},
        {3, 5123, DEV_NORM_RMS, true, false, false},
        {37, 72, DEV_NORM_LAYER, true, true, true},
        {23, 70, DEV_NORM_RMS, false, false, true},
        {5, 5128, DEV_NORM_LAYER, true, true, true},
        {3, 5123, DEV_NORM_LAYER, false, true, true},
        {17, 72, DEV_NORM_NONE, true, true, true},
        {5, 33, DEV_NORM_NONE, true, false, false},
        {9, 40, DEV_NORM_NONE, false, true, true},
        /* two and four pieces a thread (bf16; f32), not filled; then longer than registers hold */
        {11, 2568, DEV_NORM_LAYER, true, true, false},
        {9, 4096, DEV_NORM_RMS, true, true, true},
        {9, 1288, DEV_NORM_LAYER, true, true, true},
        {7, 8192, DEV_NORM_LAYER, true, true, true},
        {7, 16384, DEV_NORM_LAYER, true, true, false},
        {3, 16384, DEV_NORM_RMS, false, false, true},
        {3, 16392, DEV_NORM_LAYER, true, true, true},
        {4096, 1600, DEV_NORM_LAYER, true, true, false},
        {8192, 2048, DEV_NORM_RMS, true, true, false},
    };
    for (size_t i = 0; i < (on_gpu() ? 26 : 24); i++)
        compare(run_norm, &cases[i]);
}

/* ---- embedding ---- */
struct embed_case {
    size_t T, C, V, P;
    bool positions;
    size_t types; /* 0: none */
};

static void run_embed(struct dev *d, const void *context)
{
    const struct embed_case *e = context;
    enum dtype type = d->model_type;
    size_t T = e->T, C = e->C;
    int32_t *tokens = arena_array(&check_host, T, sizeof *tokens),
            *positions = arena_array(&check_host, T, sizeof *positions);
    for (size_t t = 0; t < T; t++) {
        tokens[t] = (int32_t)(rng_below(4, RNG_TEST, t, 3) ? rng_below(5, RNG_TEST, t, e->V)
                                                           : 0); /* 0 is common */
        positions[t] = (int32_t)(t % e->P);
    }
    void *wte = upload(d, numbers(e->V * C, 1, type), e->V * C, type),
         *out = room(d, T * C * dtype_size(type));
    void *wpe = upload(d, numbers(e->P * C, 1, type), e->P * C, type),
         *dx = upload(d, numbers(T * C, 1, type), T * C, type);
    const int32_t *tok = upload_ints(d, tokens, T), *pos = upload_ints(d, positions, T);
    int32_t *types = arena_array(&check_host, T, sizeof *types);
    for (size_t t = 0; t < T; t++)
        types[t] = (int32_t)(t * 5 / 3 % (e->types + !e->types));
    struct dev_embed a = {.wte = wte,
                          .wpe = e->positions ? wpe : NULL,
                          .tokens = tok,
                          .positions = pos,
                          .T = T,
                          .C = C,
                          .VP = e->V,
                          .types = upload_ints(d, types, T),
                          .types_count = e->types};
    if (e->types)
        a.wtt = upload(d, numbers(e->types * C, 1, type), e->types * C, type);
    d->ops->embed_fwd(d, out, &a);
    keep(d, "x", out, T * C, type, 0); /* one addition, one rounding */
    float *dwte = halves(d, e->V * C), *dwpe = halves(d, e->P * C);
    float *dwtt = halves(d, e->types * C + 1);
    d->ops->embed_bwd(d, &a,
                      &(struct dev_embed_grad){.dx = dx,
                                               .dwte = dwte,
                                               .dwpe = e->positions ? dwpe : NULL,
                                               .dwtt = e->types ? dwtt : NULL});
    keep(d, "dwtt", dwtt, e->types * C, DTYPE_F32, 4e-6);
    /* The CPU adds the rows of the common token one by one: of 32768 tokens some 11,000. */
    keep(d, "dwte", dwte, e->V * C, DTYPE_F32, T > 10000 ? 1e-5 : 2e-6);
    keep(d, "dwpe", dwpe, e->P * C, DTYPE_F32, 2e-6);
}

static void check_embed(void)
{
    static const struct embed_case cases[] = {
        {1, 8, 2, 1, true, 0},         {29, 70, 11, 8, true, 2},
        {2500, 16, 700, 300, true, 2}, {130, 24, 1, 130, false, 8},
        {1, 1, 1, 1, true, 1},         {1025, 3, 65537, 1025, true, 0},
        {97, 2053, 257, 7, true, 3},   {32768, 768, 50304, 1024, true, 2},
    };
    for (size_t i = 0; i < (on_gpu() ? 8 : 7); i++)
        compare(run_embed, &cases[i]);
}

/* ---- products ---- */
struct linear_case {
    size_t T, K, N;
    enum dev_act act;
    bool bias;
};

static void run_linear(struct dev *d, const void *context)
{
    const struct linear_case *l = context;
    enum dtype type = d->model_type;
    size_t TN = l->T * l->N, TK = l->T * l->K, NK = l->N * l->K, size = dtype_size(type);
    struct dev_linear a = {.x = upload(d, numbers(TK, 1, type), TK, type),
                           .w = upload(d, numbers(NK, 1 / sqrt((double)l->K), type), NK, type),
                           .bias = l->bias ? upload(d, numbers(l->N, 1, DTYPE_F32), l->N, DTYPE_F32)
                                           : NULL,
                           .T = l->T,
                           .K = l->K,
                           .N = l->N,
                           .act = l->act,
                           .pre = l->act ? room(d, TN * size) : NULL};
    void *y = room(d, TN * size), *dx = room(d, TK * size);
    d->ops->linear_fwd(d, y, &a);
    keep(d, "y", y, TN, type, bound(d, 4e-6, 0.012)); /* bf16: bias, sum and activation round */
    if (l->act)
        keep(d, "pre", a.pre, TN, type, bound(d, 4e-6, 0.008));
    float *dw = halves(d, NK), *dbias = halves(d, l->N);
    struct dev_linear_grad g = {.dy = upload(d, numbers(TN, 1, type), TN, type),
                                .dx = dx,
                                .dw = dw,
                                .dbias = l->bias ? dbias : NULL,
                                .act = l->act, /* of the layer before */
                                .pre = l->act ? upload(d, numbers(TK, 1, type), TK, type) : NULL};
    float *pre_dbias = halves(d, l->K);
    g.pre_dbias = l->act && l->bias ? pre_dbias : NULL;
    d->ops->linear_bwd(d, &a, &g);
    keep(d, "dx", dx, TK, type, bound(d, 1e-5, 0.012));
    keep(d, "pre_dbias", pre_dbias, l->K, DTYPE_F32, bound(d, 1e-5, 0.01));
    keep(d, "dw", dw, NK, DTYPE_F32, bound(d, 1e-5, 0.008));
    keep(d, "dbias", dbias, l->N, DTYPE_F32, bound(d, 1e-5, 0.008));
}

static void check_linear(void)
{
    static const struct linear_case cases[] = {
        {1, 5, 7, DEV_ACT_NONE, true},
        {13, 17, 31, DEV_ACT_NONE, false},
        {13, 18, 32, DEV_ACT_NONE, true},
        {37, 96, 50, DEV_ACT_GELU_TANH, true},
        {37, 24, 49, DEV_ACT_GELU_TANH, true},
        {61, 24, 64, DEV_ACT_GELU_ERF, true},
        {9, 16, 40, DEV_ACT_GELU_TANH, false},
        {1, 1, 1, DEV_ACT_GELU_ERF, true},
        {131, 257, 3, DEV_ACT_GELU_TANH, true},
        {2, 7, 521, DEV_ACT_GELU_ERF, true},
        {6, 24, 24, DEV_ACT_TANH, true},
        {7, 5, 9, DEV_ACT_TANH, true},
        {1024, 768, 3072, DEV_ACT_GELU_TANH, true},
        {1000, 3072, 768, DEV_ACT_NONE, true},
    };
    for (size_t i = 0; i < (on_gpu() ? 14 : 12); i++)
        compare(run_linear, &cases[i]);
}

struct classifier_case {
    size_t T, C, V, VP;
    bool bias;
};

static void run_classifier(struct dev *d, const void *context)
{
    const struct classifier_case *k = context;
    enum dtype type = d->model_type;
    size_t T = k->T, C = k->C, VP = k->VP;
    int32_t *targets = arena_array(&check_host, T, sizeof *targets);
    for (size_t t = 0; t < T; t++)
        targets[t] = t % 5 == 3 ? -1 : (int32_t)rng_below(3, RNG_TEST, t, k->V);
    struct dev_classifier a = {.x = upload(d, numbers(T * C, 1, type), T * C, type),
                               .w = upload(d, numbers(VP * C, 1, type), VP * C, type),
                               .targets = upload_ints(d, targets, T),
                               .T = T,
                               .C = C,
                               .V = k->V,
                               .VP = VP,
                               .grad_scale = 0.25f,
                               .losses = room(d, T * 4),
                               .dx = room(d, T * C * dtype_size(type)),
                               .dw = halves(d, VP * C),
                               .bias = k->bias ? upload(d, numbers(VP, 2, DTYPE_F32), VP, DTYPE_F32)
                                               : NULL,
                               .dbias = k->bias ? halves(d, VP) : NULL};
    d->ops->classifier(d, &a);
    keep(d, "losses", a.losses, T, DTYPE_F32, bound(d, 5e-6, 0.008)); /* 2^-8 of the logits */
    if (k->bias)
        keep(d, "dbias", a.dbias, VP, DTYPE_F32, bound(d, 1e-5, 0.03)); /* bf16: see dx */
    /* f32: VP terms. bf16: a probability has an error of 2^-9 of its logit, here up to 10. */
    keep(d, "dx", a.dx, T * C, type, bound(d, VP > 10000 ? 4e-5 : 1e-5, 0.03));
    keep(d, "dw", a.dw, VP * C, DTYPE_F32, bound(d, 1e-5, 0.03));
    float *alone = room(d, T * 4), *logits = room(d, T * VP * 4);
    a.losses = alone;
    a.dx = NULL;
    a.dw = NULL;
    d->ops->classifier(d, &a);
    keep(d, "losses alone", alone, T, DTYPE_F32, 5e-6);
    d->ops->logits(
        d, logits,
        &(struct dev_linear){.x = a.x, .w = a.w, .bias = a.bias, .T = T, .K = C, .N = k->V});
    keep(d, "logits", logits, T * k->V, DTYPE_F32, 4e-6);
}

static void check_classifier(void)
{
    static const struct classifier_case cases[] = {
        {1, 3, 2, 2, false},         {17, 19, 37, 48, false},       {20, 32, 257, 384, true},
        {7, 9, 2100, 2101, false},   {3, 8, 5000, 6016, true}, /* bf16 gradients in place */
        {1, 1, 1, 64, true},         {5, 13, 2047, 2049, true},     {2, 3, 4099, 4160, false},
        {1, 3, 2, 2, true},          {5, 24, 2, 64, true},          {6, 16, 3, 3, true},
        {3, 3, 16389, 16448, true}, /* two blocks a multiprocessor */
        {2, 3, 40003, 40064, true}, /* f32: more than shared memory holds; bf16: one block */
        {2, 3, 60001, 60032, true}, /* more than it holds in both types */
        {2, 3, 30001, 30003, false}, {700, 768, 50257, 50304, true}};
    for (size_t i = 0; i < (on_gpu() ? 16 : 15); i++)
        compare(run_classifier, &cases[i]);
}

/* ---- attention ---- */
struct attention_case {
    const int32_t *cu;
    size_t sequences, NH, HD;
    bool causal;
    size_t share; /* heads that share keys and values; 0: none do */
    size_t window;
};

static bool by_cudnn, record_says; /* by cuDNN; its repeatable backward, by dev->chosen */

/* As kernels/cuda/choice.h writes it: forward and backward are cuDNN's. */
static void record(struct dev *d, const struct attention_case *k, size_t KVH)
{
    size_t longest = 0, S = 128;
    bool ragged = false;
    for (size_t i = 0; i < k->sequences; i++) {
        size_t length = (size_t)(k->cu[i + 1] - k->cu[i]);
        longest = length > longest ? length : longest;
        ragged |= length != (size_t)k->cu[1] || length % 128;
    }
    while (S < longest)
        S *= 2;
    snprintf(d->chosen, sizeof d->chosen, "%zux%zu/%zux%zu%s%s:cc;", k->HD, k->NH, KVH,
             ragged ? S : longest, k->causal ? "c" : "", ragged ? "r" : "");
}

static void run_attention(struct dev *d, const void *context)
{
    const struct attention_case *k = context;
    enum dtype type = d->model_type;
    size_t T = (size_t)k->cu[k->sequences], C = k->NH * k->HD, size = dtype_size(type);
    size_t KVH = k->share ? k->NH / k->share : k->NH, all = T * (k->NH + 2 * KVH) * k->HD;
    struct dev_attention a = {.qkv = upload(d, numbers(all, 1, type), all, type),
                              .cu_seqlens = upload_ints(d, k->cu, k->sequences + 1),
                              .cu_seqlens_host = k->cu,
                              .sequences = k->sequences,
                              .T = T,
                              .NH = k->NH,
                              .KVH = KVH,
                              .HD = k->HD,
                              .causal = k->causal,
                              .window = k->window,
                              .scale = (float)(1 / sqrt((double)k->HD)),
                              .lse = room(d, k->NH * T * 4)};
    void *out = room(d, T * C * size), *dqkv = room(d, all * size);
    snprintf(check_place + strcspn(check_place, "T"), 60,
             "T=%zu NH=%zu/%zu HD=%zu causal=%d window=%zu", T, k->NH, KVH, k->HD, k->causal,
             k->window);
    if (record_says)
        record(d, k, KVH);
    d->ops->attention_fwd(d, out, &a);
    d->ops->attention_bwd(d, dqkv, upload(d, numbers(T * C, 1, type), T * C, type), out, &a);
    keep(d, "out", out, T * C, type, bound(d, 4e-6, by_cudnn ? 0.016 : 0.008));
    keep(d, "lse", a.lse, k->NH * T, DTYPE_F32, by_cudnn ? 1e-4 : 4e-6);
    keep(d, "dqkv", dqkv, all, type, bound(d, 2e-5, by_cudnn ? 0.03 : 0.016));
    float *largest = upload(d, &(double){-INFINITY}, 1, DTYPE_F32);
    d->ops->attention_largest(d, largest, &a);
    keep(d, "largest", largest, 1, DTYPE_F32, 2e-6);
}

/* Dense and ragged, grouped and not, one tile and many. */
static void check_cudnn(void)
{
    static const int32_t dense[] = {0, 128, 256}, few[] = {0, 5, 5, 22, 137};
    static const int32_t long_dense[] = {0, 1024, 2048, 3072},
                         long_ragged[] = {0, 1024, 1500, 2524, 4572};
    for (int causal = 0; causal < 2; causal++) {
        compare(run_attention, &(struct attention_case){dense, 2, 2, 64, causal, 0, 0});
        compare(run_attention, &(struct attention_case){dense, 2, 4, 32, causal, 2, 0});
        compare(run_attention, &(struct attention_case){few, 4, 2, 64, causal, 0, 0});
        compare(run_attention, &(struct attention_case){few, 4, 4, 16, causal, 4, 0});
        for (size_t HD = 64; on_gpu() && HD <= 128; HD *= 2) {
            compare(run_attention, &(struct attention_case){long_dense, 3, 4, HD, causal, 0, 0});
            compare(run_attention, &(struct attention_case){long_dense, 3, 8, HD, causal, 4, 0});
            compare(run_attention, &(struct attention_case){long_ragged, 4, 4, HD, causal, 0, 0});
            compare(run_attention, &(struct attention_case){long_ragged, 4, 8, HD, causal, 4, 0});
        }
    }
}

/* cuDNN's quick kernels, then the repeatable ones. */
static void cudnn_agrees(void **state)
{
    (void)state;
    for (int quick = 1; quick >= 0; quick--) {
        if (cuda_test_open_attention(&devices[1], "bf16", "cudnn")) {
            print_message("SKIPPED: %s\n", err_message());
            skip();
        }
        if (!quick) {
            dev_close(devices[1]);
            assert_int_equal(cuda_test_open_attention(&devices[1], "bf16", "auto"), ERR_OK);
        }
        assert_int_equal(
            dev_open(&devices[0], &(struct dev_options){.kind = "cpu", .model_type = "bf16"}),
            ERR_OK);
        snprintf(check_place, sizeof check_place, "%s cuDNN %s ", devices[1]->kind,
                 quick ? "quick" : "repeatable");
        by_cudnn = true, bits_vary = quick, record_says = !quick;
        check_cudnn();
        by_cudnn = bits_vary = record_says = false;
        dev_close(devices[0]);
        dev_close(devices[1]);
    }
}

/* Lengths of one token, of whole tiles, one more and one less; an empty sequence. */
static bool
    brief; /* the shape of attention that barriers need most: all else is a minute of emulation */

static void check_attention(void)
{
    static const int32_t many[] = {0, 1, 2, 9, 40, 41, 72, 72, 137}, two[] = {0, 64, 129};
    static const int32_t large[] = {0, 1024, 1500, 2524, 4572}, one[] = {0, 1},
                         few[] = {0, 5, 5, 22};
    static const int32_t three[] = {0, 193}; /* tiles of 64 and one more: each stage comes twice */
    static const size_t dimensions[] = {64, 128, 32, 40, 7}, odd[] = {1, 8, 24, 72, 120, 136, 256};
    for (int causal = 0; causal < 2; causal++) {
        compare(run_attention, &(struct attention_case){three, 1, 1, 32, causal, 0, 0});
        compare(run_attention, &(struct attention_case){three, 1, 1, 32, causal, 0, 70});
        if (brief)
            continue;
        for (size_t window = 1; window < 200; window = window * 3 + 1) {
            compare(run_attention, &(struct attention_case){many, 8, 2, 64, causal, 0, window});
            compare(run_attention, &(struct attention_case){three, 1, 2, 128, causal, 2, window});
            compare(run_attention, &(struct attention_case){two, 2, 1, 7, causal, 0, window});
        }
        if (on_gpu())
            compare(run_attention, &(struct attention_case){large, 4, 4, 64, causal, 0, 128});
        for (size_t i = 0; i < sizeof dimensions / sizeof *dimensions; i++) {
            compare(run_attention,
                    &(struct attention_case){many, 8, 2, dimensions[i], causal, 0, 0});
            compare(run_attention,
                    &(struct attention_case){two, 2, 1, dimensions[i], causal, 0, 0});
        }
        for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
            compare(run_attention, &(struct attention_case){one, 1, 1, odd[i], causal, 0, 0});
            compare(run_attention, &(struct attention_case){few, 3, 3, odd[i], causal, 0, 0});
        }
        compare(run_attention, &(struct attention_case){two, 2, 4, 64, causal, 4, 0});
        compare(run_attention, &(struct attention_case){many, 8, 4, 32, causal, 2, 0});
        compare(run_attention, &(struct attention_case){many, 8, 6, 7, causal, 3, 0});
        compare(run_attention, &(struct attention_case){few, 3, 2, 128, causal, 2, 0});
        for (size_t i = 0; i < (on_gpu() ? 3 : 0); i++) {
            compare(run_attention,
                    &(struct attention_case){large, 4, 4, dimensions[i], causal, 0, 0});
            compare(run_attention,
                    &(struct attention_case){large, 4, 8, dimensions[i], causal, 4, 0});
        }
    }
}

/* ---- rotary positions, gated units ---- */
struct rope_case {
    size_t T, heads, still, HD;
};

static void run_rope(struct dev *d, const void *context)
{
    enum { P = 50 };
    const struct rope_case *k = context;
    enum dtype type = d->model_type;
    size_t stride = (k->heads + k->still) * k->HD, all = k->T * stride;
    int32_t *positions = arena_array(&check_host, k->T, sizeof *positions);
    for (size_t t = 0; t < k->T; t++)
        positions[t] = (int32_t)(t * 7 % P);
    struct dev_rope r = {.table = upload(d, numbers(P * k->HD, 1, DTYPE_F32), P * k->HD, DTYPE_F32),
                         .positions = upload_ints(d, positions, k->T),
                         .T = k->T,
                         .heads = k->heads,
                         .HD = k->HD,
                         .stride = stride};
    void *x = upload(d, numbers(all, 1, type), all, type),
         *back = upload(d, numbers(all, 1, type), all, type);
    d->ops->rope(d, x, &r);
    r.inverse = true;
    d->ops->rope(d, back, &r);
    keep(d, "turned", x, all, type, bound(d, 2e-7, 0.008));
    keep(d, "turned back", back, all, type, bound(d, 2e-7, 0.008));
}

static void run_gated(struct dev *d, const void *context)
{
    const struct dev_gated *k = context;
    enum dtype type = d->model_type;
    size_t TF = k->T * k->F;
    void *x = upload(d, numbers(2 * TF, 2, type), 2 * TF, type),
         *y = room(d, TF * dtype_size(type));
    d->ops->gated_fwd(d, y, x, k);
    keep(d, "gated", y, TF, type, bound(d, 1e-6, 0.008));
    d->ops->gated_bwd(d, x, upload(d, numbers(TF, 1, type), TF, type), x, k);
    keep(d, "dx", x, 2 * TF, type, bound(d, 1e-6, 0.008));
}

static void check_llama(void)
{
    static const struct rope_case ropes[] = {{1, 1, 0, 2},      {13, 3, 1, 6}, {47, 5, 2, 32},
                                             {9, 40, 8, 64},    {3, 2, 1, 24}, {5, 3, 3, 128},
                                             {16384, 40, 8, 64}};
    static const struct dev_gated gates[] = {
        {DEV_GATE_SILU, 1, 1},        {DEV_GATE_SILU, 7, 33},         {DEV_GATE_SILU, 5, 64},
        {DEV_GATE_SILU, 3, 2056},     {DEV_GATE_SILU, 2, 1030},       {DEV_GATE_GELU_ERF, 7, 33},
        {DEV_GATE_GELU_ERF, 3, 2056}, {DEV_GATE_GELU_TANH, 7, 33},    {DEV_GATE_GELU_TANH, 5, 64},
        {DEV_GATE_SILU, 4096, 8192},  {DEV_GATE_GELU_ERF, 4096, 1152}};
    for (size_t i = 0; i < (on_gpu() ? 7 : 6); i++)
        compare(run_rope, &ropes[i]);
    for (size_t i = 0; i < (on_gpu() ? 11 : 9); i++)
        compare(run_gated, &gates[i]);
}

/* ---- ops of encoders ---- */
struct encoder_case {
    size_t T, C, R;
    float rate;
};

static void run_encoder(struct dev *d, const void *context)
{
    const struct encoder_case *k = context;
    enum dtype type = d->model_type;
    size_t T = k->T, C = k->C, size = dtype_size(type), TC = T * C, RC = (k->R + 1) * C;
    int32_t *rows = arena_array(&check_host, k->R + 1, sizeof *rows);
    uint64_t *numbers_of = arena_array(&check_host, T, sizeof *numbers_of);
    for (size_t r = 0; r < k->R; r++)
        rows[r] = r % 5 == 4 ? -1 : (int32_t)(T - 1 - r);
    for (size_t t = 0; t < T; t++)
        numbers_of[t] = (uint64_t)t % 3 << 32 | t * 77;
    uint64_t *keys = room(d, T * sizeof *keys);
    d->ops->copy(d, keys, numbers_of, T * sizeof *keys);
    struct dev_rows a = {.rows = upload_ints(d, rows, k->R + 1), .R = k->R, .T = T, .C = C};
    void *x = upload(d, numbers(TC, 1, type), TC, type), *y = room(d, RC * size);
    void *dx = upload(d, numbers(TC, 1, type), TC, type), *out = room(d, TC * size);
    d->ops->rows_gather(d, y, x, &a);
    keep(d, "gathered", y, k->R * C, type, 0);
    d->ops->rows_scatter(d, out, y, &a);
    keep(d, "scattered", out, TC, type, 0);
    a.add = true;
    d->ops->rows_scatter(d, out, y, &a);
    keep(d, "added", out, TC, type, 0);
    int32_t *lengths = arena_array(&check_host, k->R + 1, sizeof *lengths), next = 0;
    for (size_t r = 0; r < k->R; r++) {
        lengths[r] = next + (int32_t)(k->R - r) < (int32_t)T ? (int32_t)(1 + r % 3) : 1;
        rows[r] = r % 5 == 4 ? -1 : next;
        next += lengths[r];
    }
    a.rows = upload_ints(d, rows, k->R + 1);
    a.lengths = upload_ints(d, lengths, k->R + 1);
    for (int add = 0; add < 2 && (size_t)next <= T; add++) {
        a.add = add;
        d->ops->rows_gather(d, y, x, &a);
        keep(d, "means", y, k->R * C, type, bound(d, 1e-6, 0.008));
        d->ops->rows_scatter(d, out, y, &a);
        keep(d, "shares", out, TC, type, bound(d, 1e-6, 0.008));
    }
    double scale = 1.5, weight = 0.25, *loss = room(d, sizeof *loss);
    struct dev_dropout drop = {k->rate, 99, 65535, keys, upload(d, &scale, 1, DTYPE_F32)};
    d->ops->dropout(d, out, x, &drop, T, C);
    keep(d, "dropped", out, TC, type, 0);
    struct dev_standard s = {T, C, 1e-5f, upload(d, &weight, 1, DTYPE_F32)};
    d->ops->standard(d, dx, loss, x, &s);
    keep(d, "standard", dx, TC, type, bound(d, 2e-6, 0.008));
    float *loss_f32 = room(d, 4);
    double got;
    assert_int_equal(dev_sync(d), ERR_OK);
    d->ops->copy(d, &got, loss, sizeof got);
    d->ops->copy(d, loss_f32, &(float){(float)got}, sizeof(float));
    keep(d, "loss", loss_f32, 1, DTYPE_F32, 2e-6);
    struct dev_orthogonal o = {5, 3, C, 3 * C + 11, s.weight};
    size_t n = 5 * o.stride;
    float *w = upload(d, numbers(n, 1, DTYPE_F32), n, DTYPE_F32), *dw = room(d, n * sizeof *dw);
    d->ops->zero(d, loss, sizeof *loss);
    d->ops->orthogonal(d, dw, loss, w, &o);
    keep(d, "orthogonal", dw, n, DTYPE_F32, 2e-6);
    assert_int_equal(dev_sync(d), ERR_OK);
    d->ops->copy(d, &got, loss, sizeof got);
    d->ops->copy(d, loss_f32, &(float){(float)got}, sizeof(float));
    keep(d, "cosines", loss_f32, 1, DTYPE_F32, 2e-6);
}

static void check_encoder(void)
{
    static const struct encoder_case cases[] = {{1, 1, 1, 0.5f},     {37, 33, 20, 0.1f},
                                                {70, 64, 70, 0.25f}, {600, 40, 0, 0},
                                                {259, 72, 9, 0.1f},  {8192, 768, 1200, 0.1f}};
    for (size_t i = 0; i < (on_gpu() ? 6 : 5); i++)
        compare(run_encoder, &cases[i]);
}

/* ---- elements, sums ---- */
struct elements_case {
    size_t n, shift; /* shift: of every address, in elements */
};

static void run_elements(struct dev *d, const void *context)
{
    const struct elements_case *k = context;
    size_t n = k->n, all = n + k->shift, size = dtype_size(d->model_type);
    enum dtype type = d->model_type;
    void *a = (char *)upload(d, numbers(all, 1, type), all, type) + k->shift * size;
    void *b = (char *)upload(d, numbers(all, 1, type), all, type) + k->shift * size;
    void *copy = (char *)room(d, all * size) + k->shift * size;
    float *x = (float *)upload(d, numbers(all, 3, DTYPE_F32), all, DTYPE_F32) + k->shift;
    float *out = room(d, 4 * 4);
    double *norm = room(d, 8);
    d->ops->add(d, a, a, b, n);
    keep(d, "a + b", a, n, type, 0);
    d->ops->cast(d, copy, x, n);
    keep(d, "cast", copy, n, type, 0);
    d->ops->sumsq(d, norm, x, n);
    static const float most[] = {0.5f, 1e9f, 0}; /* the first clips: the norm itself shows */
    double *targets = room(d, 8), three = 3;
    d->ops->copy(d, targets, &three, sizeof three);
    for (int i = 0; i < 3; i++) {
        const struct dev_clip clip = {norm, norm, targets, most[i]};
        d->ops->clip_scale(d, out + i, &clip);
    }
    keep(d, "clip", out, 3, DTYPE_F32, 2e-7);
    d->ops->scale(d, x, 0.3f, n);
    keep(d, "scaled", x, n, DTYPE_F32, 0);
}

static void check_elements(void)
{
    static const struct elements_case cases[] = {{1, 0},     {77, 0},    {4096, 0},
                                                 {66001, 0}, {1, 1},     {2048, 1},
                                                 {2056, 3},  {65537, 2}, {3000001, 0}};
    for (size_t i = 0; i < (on_gpu() ? 9 : 8); i++)
        compare(run_elements, &cases[i]);
}

/* ---- optimizers ---- */
enum { SLAB = 60000 };
enum { RANGES = 4 };
static const struct dev_range ranges[RANGES] = {{0, 1}, {1, 3}, {8, 40000}, {40011, 12345}};
static const struct opt_group groups[RANGES] = {{1, 1, 1 / 0.19f, 1 / 0.001999f, true, true, 0},
                                                {1, 0, 1 / 0.19f, 1 / 0.001999f, false, true, 0},
                                                {1, 1, 1 / 0.19f, 1 / 0.001999f, true, true, 0},
                                                {0.25f, 0.5f, 1 / 0.1f, 1 / 0.001f, true, true, 0}};

enum how { ADAMW, LAMB };
struct optimizer_case {
    enum how how;
    double size;
    float trust_max;
    bool idle; /* the third range takes no part */
};

static void run_optimizer(struct dev *d, const void *context)
{
    const struct optimizer_case *o = context;
    double *v = numbers(SLAB, 0.1, DTYPE_F32), half = 0.5;
    for (size_t i = 0; i < SLAB; i++)
        v[i] = fabs(v[i]);
    void *model = d->model_type == DTYPE_BF16 ? room(d, SLAB * 2) : NULL;
    struct opt_group *on_device = room(d, sizeof groups), chosen[RANGES];
    memcpy(chosen, groups, sizeof chosen);
    chosen[2].active = !o->idle;
    d->ops->copy(d, on_device, chosen, sizeof chosen);
    struct dev_optim a = {.p = upload(d, numbers(SLAB, o->size, DTYPE_F32), SLAB, DTYPE_F32),
                          .m = upload(d, numbers(SLAB, 0.1, DTYPE_F32), SLAB, DTYPE_F32),
                          .v = upload(d, v, SLAB, DTYPE_F32),
                          .g = upload(d, numbers(SLAB, 1, DTYPE_F32), SLAB, DTYPE_F32),
                          .model = model,
                          .gscale = upload(d, &half, 1, DTYPE_F32),
                          .k = {.lr = 0.01f,
                                .beta1 = 0.9f,
                                .beta2 = 0.999f,
                                .eps = 1e-6f,
                                .weight_decay = 0.1f,
                                .trust_min = 0.01f,
                                .trust_max = o->trust_max},
                          .ranges = ranges,
                          .groups = on_device,
                          .n = RANGES,
                          .sums = room(d, OPT_SUMS * 5 * sizeof(double)),
                          .sums_stride = 5};
    for (int i = 0; i < 2; i++) { /* the second call finds the table of the first */
        if (o->how == LAMB)
            d->ops->range_reduce(d, OPT_REDUCE_LAMB, &a);
        d->ops->range_update(d, o->how == LAMB ? OPT_UPDATE_LAMB : OPT_UPDATE_ADAMW, &a);
    }
    keep(d, "p", a.p, SLAB, DTYPE_F32, 4e-6);
    keep(d, "m", a.m, SLAB, DTYPE_F32, 1e-6);
    keep(d, "v", a.v, SLAB, DTYPE_F32, 1e-6);
    if (model)
        keep(d, "model", model, SLAB, DTYPE_BF16, 0.004);
}

static void check_optimizers(void)
{
    static const struct optimizer_case cases[] = {{ADAMW, 1, 10, false},   {LAMB, 1, 10, false},
                                                  {LAMB, 1, 0.05f, false}, {LAMB, 0, 10, false},
                                                  {ADAMW, 1, 10, true},    {LAMB, 1, 10, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        compare(run_optimizer, &cases[i]);
}

#define TEST(name)                                                                                 \
    static void name##_agree(void **state)                                                         \
    {                                                                                              \
        (void)state;                                                                               \
        on_both_types(check_##name);                                                               \
    }
TEST(norms)
TEST(embed)
TEST(linear)
TEST(classifier)
TEST(attention)
TEST(llama)
TEST(encoder)
TEST(elements)
TEST(optimizers)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_agree),      cmocka_unit_test(embed_agree),
        cmocka_unit_test(linear_agree),     cmocka_unit_test(classifier_agree),
        cmocka_unit_test(attention_agree),  cmocka_unit_test(cudnn_agrees),
        cmocka_unit_test(llama_agree),      cmocka_unit_test(elements_agree),
        cmocka_unit_test(optimizers_agree), cmocka_unit_test(encoder_agree),
    };
    brief = argc > 1 && !strcmp(argv[1], "brief");
    if (cuda_test_missing("bf16"))
        return CUDA_TEST_SKIP;
    if (brief)
        cmocka_set_test_filter("attention_agree");
    if (argc > 2 && !strcmp(argv[1], "only")) /* one test, by name */
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
