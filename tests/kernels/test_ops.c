/* SPDX-License-Identifier: Apache-2.0 */
/* The memory-bound ops against plain loops in double: embedding, norms, rotary positions, gated
 * units, sums, casts, optimizers. Odd sizes, every instruction set, both types, 1 to 3 threads. */
#include "tests/kernels/check.h"

struct norm {
    struct dev_norm_args a;
    double *x, *residual, *gain, *bias; /* residual, bias NULL: none */
    double *factor;                     /* of the branch; NULL: 1 */
    double *y, *dy, *dsum;              /* loss = sum y dy + sum (x + residual) dsum */
};

static double norm_loss(const void *ctx)
{
    const struct norm *n = ctx;
    size_t C = n->a.C;
    double loss = 0, *v = malloc(C * sizeof *v);
    for (size_t t = 0; t < n->a.T; t++) {
        double mean = 0, square = 0;
        for (size_t i = 0; i < C; i++) {
            double factor = n->factor ? n->factor[t * C + i] : 1;
            v[i] = factor * n->x[t * C + i] + (n->residual ? n->residual[t * C + i] : 0);
            loss += n->dsum ? v[i] * n->dsum[t * C + i] : 0;
            mean += n->a.kind == DEV_NORM_LAYER ? v[i] / (double)C : 0;
        }
        for (size_t i = 0; i < C; i++)
            square += (v[i] - mean) * (v[i] - mean);
        double rstd = 1 / sqrt(square / (double)C + (double)n->a.eps);
        for (size_t i = 0; i < C; i++) {
            n->y[t * C + i] = (v[i] - mean) * rstd * n->gain[i] + (n->bias ? n->bias[i] : 0);
            if (n->a.kind == DEV_NORM_NONE)
                n->y[t * C + i] = v[i];
            loss += n->y[t * C + i] * n->dy[t * C + i];
        }
    }
    free(v);
    return loss;
}

static void norm_case(struct dev *d, size_t T, size_t C, enum dev_norm kind, bool residual,
                      bool dsum)
{
    enum dtype type = d->model_type;
    size_t TC = T * C, bytes = TC * dtype_size(type);
    struct norm n = {.a = {.kind = kind, .eps = 1e-5f, .T = T, .C = C},
                     .x = numbers(TC, 1, type),
                     .residual = residual ? numbers(TC, 1, type) : NULL,
                     .gain = numbers(C, 1, DTYPE_F32),
                     .bias = kind == DEV_NORM_LAYER ? numbers(C, 1, DTYPE_F32) : NULL,
                     .y = doubles(TC),
                     .dy = numbers(TC, 1, type),
                     .dsum = dsum ? numbers(TC, 1, type) : NULL};
    for (size_t i = 0; residual && i < TC;
         i++) /* a sum that the type holds, so the reference sees the same */
        n.residual[i] = held_by(type, n.x[i] + n.residual[i]) - n.x[i];
    for (size_t i = 0; residual && i < TC; i++)
        if (held_by(type, n.residual[i]) != n.residual[i])
            n.x[i] = n.residual[i] = 0.5 * (double)(i % 7);
    n.a.gain = upload(d, n.gain, C, DTYPE_F32);
    n.a.bias = n.bias ? upload(d, n.bias, C, DTYPE_F32) : NULL;
    double *half = doubles(2 * C);
    for (size_t i = 0; i < 2 * C; i++)
        half[i] = 0.5;
    float *mean = room(d, T * 4), *rstd = room(d, T * 4), *dgain = upload(d, half, C, DTYPE_F32);
    float *dbias = upload(d, half, C, DTYPE_F32);
    void *x = upload(d, n.x, TC, type), *y = room(d, bytes),
         *sum = residual ? room(d, bytes) : NULL;
    n.a.sum = sum;
    n.a.mean = mean;
    n.a.rstd = rstd;
    d->ops->norm_fwd(d, y, x, residual ? upload(d, n.residual, TC, type) : NULL, &n.a);
    void *dx = dsum ? upload(d, n.dsum, TC, type) : room(d, bytes); /* dx aliases dsum */
    n.a.sum = sum ? sum : x;
    n.a.mean = mean;
    n.a.rstd = rstd;
    d->ops->norm_bwd(d, &n.a,
                     &(struct dev_norm_grad){.dy = upload(d, n.dy, TC, type),
                                             .dsum = dsum ? dx : NULL,
                                             .dx = dx,
                                             .dgain = dgain,
                                             .dbias = n.bias ? dbias : NULL});
    norm_loss(&n);
    near("y", d, y, type, n.y, TC, bound(d, 4e-6, 0.004));
    if (C > 2) { /* two channels: the gradient nearly cancels */
        near_slope("dx", d, dx, type, 0, norm_loss, &n, n.x, TC, bound(d, 2e-5, 0.005));
        near_slope("dgain", d, dgain, DTYPE_F32, 0.5, norm_loss, &n, n.gain, C, 1e-5);
    }
    if (n.bias)
        near_slope("dbias", d, dbias, DTYPE_F32, 0.5, norm_loss, &n, n.bias, C, 1e-5);
}

/* Dropout and a scale of the branch before the sum: the residual's gradient is dx, the
 * branch's dbranch, by the same mask. */
static void branch_case(struct dev *d, size_t T, size_t C, enum dev_norm kind, bool residual)
{
    enum dtype type = d->model_type;
    size_t TC = T * C, bytes = TC * dtype_size(type);
    double two = 2;
    struct norm n = {.a = {.kind = kind, .eps = 1e-5f, .T = T, .C = C},
                     .x = numbers(TC, 1, type),
                     .residual = residual ? numbers(TC, 1, type) : NULL,
                     .gain = numbers(C, 1, DTYPE_F32),
                     .bias = kind == DEV_NORM_LAYER ? numbers(C, 1, DTYPE_F32) : NULL,
                     .factor = doubles(TC),
                     .y = doubles(TC),
                     .dy = numbers(TC, 1, type),
                     .dsum = numbers(TC, 1, type)};
    uint64_t *keys = arena_array(&check_host, T, sizeof *keys), *there = room(d, T * sizeof *keys);
    for (size_t t = 0; t < T; t++)
        keys[t] = (uint64_t)9 << 32 | t * 3;
    d->ops->copy(d, there, keys, T * sizeof *keys);
    struct dev_dropout branch = {.rate = 0.5f, /* all factors are 0 or 4 */
                                 .seed = 5,
                                 .place = 17,
                                 .keys = there,
                                 .scale = upload(d, &two, 1, DTYPE_F32)};
    for (size_t i = 0; i < TC; i++) {
        n.factor[i] = dropout_reference(&branch, keys[i / C], i % C, 2);
        assert_true(n.factor[i] == 0 || n.factor[i] == 4);
        double of_branch = n.factor[i] * n.x[i];
        if (!residual) /* no rounding of the sum then */
            continue;
        n.residual[i] = held_by(type, of_branch + n.residual[i]) - of_branch;
        if (held_by(type, n.residual[i]) != n.residual[i])
            n.x[i] = n.residual[i] = 0.5 * (double)(i % 7);
    }
    n.a.gain = upload(d, n.gain, C, DTYPE_F32);
    n.a.bias = n.bias ? upload(d, n.bias, C, DTYPE_F32) : NULL;
    n.a.sum = room(d, bytes);
    n.a.mean = room(d, T * 4);
    n.a.rstd = room(d, T * 4);
    n.a.branch = &branch;
    void *y = kind == DEV_NORM_NONE ? n.a.sum : room(d, bytes);
    d->ops->norm_fwd(d, y, upload(d, n.x, TC, type),
                     residual ? upload(d, n.residual, TC, type) : NULL, &n.a);
    struct dev_norm_grad g = {.dy = upload(d, n.dy, TC, type),
                              .dsum = upload(d, n.dsum, TC, type),
                              .dx = room(d, bytes),
                              .dgain = room(d, C * 4),
                              .dbias = room(d, C * 4),
                              .dbranch = room(d, bytes)};
    d->ops->norm_bwd(d, &n.a, &g);
    norm_loss(&n);
    near("y", d, y, type, n.y, TC, bound(d, 4e-6, 0.004));
    near_slope("dbranch", d, g.dbranch, type, 0, norm_loss, &n, n.x, TC, bound(d, 2e-5, 0.006));
    if (residual)
        near_slope("dx", d, g.dx, type, 0, norm_loss, &n, n.residual, TC, bound(d, 2e-5, 0.005));
    if (kind != DEV_NORM_NONE)
        near_slope("dgain", d, g.dgain, DTYPE_F32, 0, norm_loss, &n, n.gain, C, 1e-5);
    double *dx = download(d, g.dx, TC, type);
    g.dgain = g.dbias = NULL; /* frozen */
    g.dx = (void *)(uintptr_t)g.dsum;
    d->ops->norm_bwd(d, &n.a, &g); /* dx aliases dsum */
    near("dx of a frozen layer", d, g.dx, type, dx, TC, 0);
}

static void check_branches(struct dev *d)
{
    for (int kind = 0; kind <= DEV_NORM_NONE; kind++) {
        branch_case(d, 7, 17, (enum dev_norm)kind, true);
        branch_case(d, 13, 64, (enum dev_norm)kind, false);
        branch_case(d, 5, 131, (enum dev_norm)kind, true);
        check_done(d);
    }
}

static void check_norms(struct dev *d)
{
    for (int kind = 0; kind < 2; kind++) {
        norm_case(d, 1, 2, (enum dev_norm)kind, false, false);
        norm_case(d, 7, 17, (enum dev_norm)kind, true, false);
        norm_case(d, 13, 64, (enum dev_norm)kind, false, true);
        norm_case(d, 5, 131, (enum dev_norm)kind, true, true);
        check_done(d);
    }
}

static void check_embed(struct dev *d)
{
    enum dtype type = d->model_type;
    enum { T = 29, C = 70, V = 11, P = 8, N = 3 };
    int32_t tokens[T], positions[T], types[T];
    double *wte = numbers(V * C, 1, type), *wpe = numbers(P * C, 1, type),
           *wtt = numbers(N * C, 1, type), *dx = numbers(T * C, 1, type);
    double *x = doubles(T * C), *token_rows = doubles(T * C), *dwte = doubles(V * C),
           *dwpe = doubles(P * C), *dwtt = doubles(N * C), *typed = doubles(T * C);
    for (size_t t = 0; t < T; t++) {
        tokens[t] = (int32_t)(t * t % V);
        positions[t] = (int32_t)(t % P);
        types[t] = (int32_t)(t * 7 % N);
        for (size_t c = 0; c < C; c++) {
            token_rows[t * C + c] = wte[(size_t)tokens[t] * C + c];
            x[t * C + c] = wte[(size_t)tokens[t] * C + c] + wpe[(size_t)positions[t] * C + c];
            typed[t * C + c] = x[t * C + c] + wtt[(size_t)types[t] * C + c];
            dwte[(size_t)tokens[t] * C + c] += dx[t * C + c];
            dwpe[(size_t)positions[t] * C + c] += dx[t * C + c];
            dwtt[(size_t)types[t] * C + c] += dx[t * C + c];
        }
    }
    void *out = room(d, T * C * dtype_size(type));
    struct dev_embed a = {.wte = upload(d, wte, V * C, type),
                          .tokens = upload_ints(d, tokens, T),
                          .positions = upload_ints(d, positions, T),
                          .T = T,
                          .C = C,
                          .VP = V,
                          .types = upload_ints(d, types, T),
                          .types_count = N};
    d->ops->embed_fwd(d, out, &a);
    near("x without positions", d, out, type, token_rows, T * C, 0);
    a.wpe = upload(d, wpe, P * C, type);
    d->ops->embed_fwd(d, out, &a);
    near("x", d, out, type, x, T * C, bound(d, 1e-7, 0.004));
    a.wtt = upload(d, wtt, N * C, type);
    d->ops->embed_fwd(d, out, &a);
    near("x with types", d, out, type, typed, T * C, bound(d, 2e-7, 0.004));
    struct dev_embed_grad g = {.dx = upload(d, dx, T * C, type),
                               .dwte = room(d, V * C * 4),
                               .dwpe = room(d, P * C * 4),
                               .dwtt = room(d, N * C * 4)};
    d->ops->embed_bwd(d, &a, &g);
    near("dwte", d, g.dwte, DTYPE_F32, dwte, V * C, 1e-6);
    near("dwpe", d, g.dwpe, DTYPE_F32, dwpe, P * C, 1e-6);
    near("dwtt", d, g.dwtt, DTYPE_F32, dwtt, N * C, 1e-6);
    d->ops->embed_bwd(d, &a, &(struct dev_embed_grad){.dx = g.dx}); /* frozen tables */
}

static float scale_of(struct dev *d, const double *sumsq, const double *loss, double targets,
                      float max_norm)
{
    float *out = room(d, 4), got;
    double *count = room(d, 8);
    const struct dev_clip a = {sumsq, loss, count, max_norm};
    d->ops->copy(d, count, &targets, sizeof targets);
    d->ops->clip_scale(d, out, &a);
    d->ops->copy(d, &got, out, sizeof got);
    return got;
}

/* What is not finite, in the gradient or in the loss, becomes NaN with any clip. */
static void check_not_finite(struct dev *d, const double *finite)
{
    const double bad[] = {NAN, INFINITY};
    double *x = room(d, 8);
    for (int i = 0; i < 8; i++) {
        d->ops->copy(d, x, &bad[i & 1], sizeof *x);
        assert_true(
            isnan(scale_of(d, i & 2 ? x : finite, i & 2 ? finite : x, 3, i & 4 ? 1.0f : 0.0f)));
    }
}

/* Pairs as complex numbers, turned by e^(i position theta^(-2k/HD)); what lies after the turned
 * heads stays; turned back, everything is as it was. */
static void rope_case(struct dev *d, size_t T, size_t heads, size_t still, size_t HD)
{
    enum dtype type = d->model_type;
    size_t half = HD / 2, stride = (heads + still) * HD, P = 40;
    int32_t *positions = arena_array(&check_host, T, sizeof *positions);
    double *x = numbers(T * stride, 1, type), *want = doubles(T * stride), *table = doubles(P * HD);
    for (size_t p = 0; p < P; p++)
        for (size_t k = 0; k < half; k++) {
            double angle = (double)p * pow(500, -2.0 * (double)k / (double)HD);
            table[p * HD + k] = cos(angle);
            table[p * HD + half + k] = sin(angle);
        }
    memcpy(want, x, T * stride * sizeof *x);
    for (size_t t = 0; t < T; t++) {
        positions[t] = (int32_t)(t * 7 % P);
        for (size_t h = 0; h < heads; h++)
            for (size_t k = 0; k < half; k++) {
                double *pair = want + t * stride + h * HD + k, length = hypot(pair[0], pair[half]);
                double angle = (double)positions[t] * pow(500, -2.0 * (double)k / (double)HD) +
                               atan2(pair[half], pair[0]);
                pair[0] = length * cos(angle);
                pair[half] = length * sin(angle);
            }
    }
    struct dev_rope r = {.table = upload(d, table, P * HD, DTYPE_F32),
                         .positions = upload_ints(d, positions, T),
                         .T = T,
                         .heads = heads,
                         .HD = HD,
                         .stride = stride};
    void *turned = upload(d, x, T * stride, type);
    d->ops->rope(d, turned, &r);
    near("turned", d, turned, type, want, T * stride, bound(d, 5e-7, 0.004));
    r.inverse = true;
    d->ops->rope(d, turned, &r);
    near("turned back", d, turned, type, x, T * stride, bound(d, 5e-7, 0.008));
}

static void check_rope(struct dev *d)
{
    rope_case(d, 1, 1, 0, 2);
    rope_case(d, 13, 3, 1, 6);
    rope_case(d, 47, 5, 2, 32);
    rope_case(d, 3, 1, 1, 1030);
}

struct gated {
    struct dev_gated a;
    double *x, *y, *dy;
};

static double gate_of(enum dev_gate kind, double x)
{
    if (kind == DEV_GATE_SILU)
        return x / (1 + exp(-x));
    return kind == DEV_GATE_GELU_ERF
               ? 0.5 * x * (1 + erf(x * 0.70710678118654752))
               : 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
}

static double gated_loss(const void *ctx)
{
    const struct gated *g = ctx;
    size_t F = g->a.F;
    double loss = 0;
    for (size_t t = 0; t < g->a.T; t++)
        for (size_t i = 0; i < F; i++) {
            double gate = g->x[t * 2 * F + i], up = g->x[t * 2 * F + F + i];
            g->y[t * F + i] = gate_of(g->a.gate, gate) * up;
            loss += g->y[t * F + i] * g->dy[t * F + i];
        }
    return loss;
}

static void gated_case(struct dev *d, enum dev_gate kind, size_t T, size_t F)
{
    enum dtype type = d->model_type;
    size_t TF = T * F, size = dtype_size(type);
    struct gated g = {{kind, T, F}, numbers(2 * TF, 2, type), doubles(TF), numbers(TF, 1, type)};
    void *x = upload(d, g.x, 2 * TF, type), *y = room(d, TF * size), *dx = room(d, 2 * TF * size);
    void *dy = upload(d, g.dy, TF, type);
    d->ops->gated_fwd(d, y, x, &g.a);
    d->ops->gated_bwd(d, dx, dy, x, &g.a);
    d->ops->gated_bwd(d, x, dy, x, &g.a); /* in place */
    gated_loss(&g);
    near("y", d, y, type, g.y, TF, bound(d, 1e-6, 0.004));
    near_slope("dx", d, dx, type, 0, gated_loss, &g, g.x, 2 * TF, bound(d, 4e-6, 0.004));
    near("dx in place", d, x, type, download(d, dx, 2 * TF, type), 2 * TF, 0);
}

static void check_gated(struct dev *d)
{
    for (int kind = DEV_GATE_SILU; kind <= DEV_GATE_GELU_TANH; kind++) {
        gated_case(d, (enum dev_gate)kind, 1, 1);
        gated_case(d, (enum dev_gate)kind, 7, 33);
        gated_case(d, (enum dev_gate)kind, 5, 64);
        gated_case(d, (enum dev_gate)kind, 2, 1030);
    }
}

static void check_elements(struct dev *d)
{
    enum dtype type = d->model_type;
    size_t n = 16384 * 2 + 77;
    double *a = numbers(n, 1, type), *b = numbers(n, 1, type), *x = numbers(n, 3, DTYPE_F32);
    double *sum = doubles(n), *scaled = doubles(n), *rounded = doubles(n), square = 0;
    for (size_t i = 0; i < n; i++) {
        sum[i] = held_by(type, a[i] + b[i]);
        scaled[i] = (double)((float)x[i] * 0.3f);
        rounded[i] = held_by(type, x[i]);
        square += x[i] * x[i];
    }
    void *da = upload(d, a, n, type), *copy = room(d, n * dtype_size(type));
    float *dx = upload(d, x, n, DTYPE_F32);
    double *norm = room(d, 8), got;
    d->ops->add(d, da, da, upload(d, b, n, type), n);
    near("a + b", d, da, type, sum, n, 0);
    d->ops->cast(d, copy, dx, n);
    near("cast", d, copy, type, rounded, n, 0);
    d->ops->sumsq(d, norm, dx, n);
    d->ops->copy(d, &got, norm, sizeof got);
    assert_true(fabs(got - square) <= 1e-12 * square);
    /* A sum over 48 targets: the norm of the mean is clipped, and the sum divided. */
    for (int i = 0; i < 3; i++) {
        double max = i == 0 ? sqrt(square) / 48 / 2 : i == 1 ? 1e9 : 0, want = i == 0 ? 0.5 : 1;
        double got_scale = (double)scale_of(d, norm, norm, 48, (float)max);
        assert_true(fabs(48 * got_scale - want) <= 1e-6);
        assert_true(scale_of(d, norm, norm, 64, 0) == 1.0f / 64);
        assert_true(scale_of(d, norm, norm, 0, (float)max) == 0); /* no target: no gradient */
    }
    check_not_finite(d, norm);
    double sums = 0, *total = room(d, 8);
    for (size_t i = 0; i < n; i++)
        sums += x[i];
    d->ops->sum_add(d, total, dx, n);
    d->ops->sum_add(d, total, dx, n);
    d->ops->copy(d, &got, total, sizeof got);
    assert_true(fabs(got - 2 * sums) <= 1e-13 * (double)n);
    d->ops->scale(d, dx, 0.3f, n);
    near("scaled", d, dx, DTYPE_F32, scaled, n, 0);
    d->ops->sumsq(d, norm, dx, 0);
    d->ops->copy(d, &got, norm, sizeof got);
    assert_true(got == 0);
}

/* The same bits at 1, 2, 3 threads, as the op promises. */
static void sumsq_ignores_threads(void **state)
{
    (void)state;
    double first = 0;
    for (int threads = 1; threads <= CHECK_THREADS; threads++) {
        struct dev_options o = {.kind = "cpu", .model_type = "f32", .threads = threads};
        struct dev *d;
        assert_int_equal(dev_open(&d, &o), ERR_OK);
        check_index = 0;
        size_t n = 1 << 18;
        double *out = room(d, 8);
        d->ops->sumsq(d, out, upload(d, numbers(n, 1, DTYPE_F32), n, DTYPE_F32), n);
        first = threads == 1 ? *out : first;
        assert_memory_equal(out, &first, sizeof first);
        check_done(d);
        dev_close(d);
    }
}

/* ---- optimizers ---- */

enum { RANGES = 4, SLAB = 33000 };

static const struct dev_range ranges[RANGES] = {
    {0, 1}, {1, 3}, {7, 20000}, {20011, 12345}}; /* gaps stay untouched */
/* The last has a rate, a decay and a number of updates of its own. */
static const struct opt_group groups[RANGES] = {{1, 1, 1 / 0.19f, 1 / 0.001999f, true, true, 0},
                                                {1, 0, 1 / 0.19f, 1 / 0.001999f, false, true, 0},
                                                {1, 1, 1 / 0.19f, 1 / 0.001999f, true, true, 0},
                                                {0.25f, 0.5f, 1 / 0.1f, 1 / 0.001f, true, true, 0}};

struct slabs {
    double *p, *m, *v, *g;
};

static void adam_reference(struct slabs s, const struct dev_optim *a, double gscale, bool lamb)
{
    const struct opt_scalars *k = &a->k;
    for (size_t r = 0; r < RANGES; r++) {
        const struct opt_group *group = &a->groups[r];
        if (!group->active)
            continue;
        double decay = (double)(group->decay * k->weight_decay), p2 = 0, u2 = 0, ratio = 1;
        double *u = doubles(ranges[r].count);
        for (size_t j = 0; j < ranges[r].count; j++) {
            size_t i = ranges[r].offset + j;
            double g = s.g[i] * gscale, b1 = (double)k->beta1, b2 = (double)k->beta2;
            s.m[i] = b1 * s.m[i] + (1 - b1) * g;
            s.v[i] = b2 * s.v[i] + (1 - b2) * g * g;
            u[j] = s.m[i] * (double)group->inverse1 /
                       (sqrt(s.v[i] * (double)group->inverse2) + (double)k->eps) +
                   decay * s.p[i];
            p2 += s.p[i] * s.p[i];
            u2 += u[j] * u[j];
        }
        if (lamb && group->trust && p2 > 0 && u2 > 0)
            ratio = fmin(fmax(sqrt(p2 / u2), (double)k->trust_min), (double)k->trust_max);
        for (size_t j = 0; j < ranges[r].count; j++)
            s.p[ranges[r].offset + j] -= (double)group->lr * (double)k->lr * ratio * u[j];
    }
}

enum how { ADAMW, LAMB, LAMB_SHARDED };

/* Two ranks share the tensors: the third range is cut after its first run, each half lies in a
 * slab of its own and has only its part of the sums. */
static void lamb_sharded(struct dev *d, struct dev_optim a)
{
    const struct dev_range part[2][3] = {{{0, 1}, {1, 3}, {7, DEV_RUN}},
                                         {{0, 20000 - DEV_RUN}, {20011 - 7 - DEV_RUN, 12345}}};
    static const size_t count[2] = {3, 2}, begin[2] = {0, 7 + DEV_RUN}, first[2] = {0, 2};
    double all[OPT_SUMS][RANGES] = {{0}}, mine[OPT_SUMS][RANGES];
    struct dev_optim half[2] = {a, a};
    for (int i = 0; i < 2; i++) {
        half[i].p += begin[i], half[i].m += begin[i], half[i].v += begin[i], half[i].g += begin[i];
        half[i].model = a.model ? (uint16_t *)a.model + begin[i] : NULL;
        half[i].ranges = part[i];
        half[i].groups = a.groups + first[i];
        half[i].n = count[i];
        half[i].sums = a.sums + first[i];
        d->ops->zero(d, a.sums, sizeof mine);
        d->ops->range_reduce(d, OPT_REDUCE_LAMB, &half[i]);
        d->ops->copy(d, mine, a.sums, sizeof mine);
        assert_int_equal(dev_sync(d), ERR_OK);
        for (int j = 0; j < OPT_SUMS; j++)
            for (size_t r = 0; r < RANGES; r++)
                all[j][r] += mine[j][r];
    }
    d->ops->copy(d, a.sums, all, sizeof all);
    for (int i = 0; i < 2; i++)
        d->ops->range_update(d, OPT_UPDATE_LAMB, &half[i]);
}

static void run_optimizer(struct dev *d, const struct dev_optim *a, enum how how)
{
    if (how == LAMB_SHARDED) {
        lamb_sharded(d, *a);
        return;
    }
    if (how == LAMB)
        d->ops->range_reduce(d, OPT_REDUCE_LAMB, a);
    d->ops->range_update(d, how == LAMB ? OPT_UPDATE_LAMB : OPT_UPDATE_ADAMW, a);
}

static const struct opt_group *groups_on(struct dev *d, const struct opt_group *from)
{
    struct opt_group *to = room(d, RANGES * sizeof *to);
    d->ops->copy(d, to, from, RANGES * sizeof *to);
    return to;
}

static struct dev_optim optimizer(struct dev *d, struct slabs s)
{
    return (struct dev_optim){.p = upload(d, s.p, SLAB, DTYPE_F32),
                              .m = upload(d, s.m, SLAB, DTYPE_F32),
                              .v = upload(d, s.v, SLAB, DTYPE_F32),
                              .g = upload(d, s.g, SLAB, DTYPE_F32),
                              .k = {.lr = 0.01f,
                                    .beta1 = 0.9f,
                                    .beta2 = 0.999f,
                                    .eps = 1e-6f,
                                    .weight_decay = 0.1f,
                                    .trust_min = 0.01f,
                                    .trust_max = 10},
                              .ranges = ranges,
                              .groups = groups_on(d, groups),
                              .n = RANGES,
                              .sums = room(d, OPT_SUMS * RANGES * sizeof(double)),
                              .sums_stride = RANGES};
}

/* A scale that is not a number: the slabs stay as they are. */
static void stopped_case(struct dev *d, enum how how)
{
    double *before = numbers(SLAB, 1, DTYPE_F32), none = NAN;
    struct dev_optim a = optimizer(d, (struct slabs){before, before, before, before});
    float *slab[4] = {a.p, a.m, a.v, (float *)(uintptr_t)a.g};
    a.gscale = upload(d, &none, 1, DTYPE_F32);
    run_optimizer(d, &a, how);
    for (int i = 0; i < 4; i++)
        near("stopped", d, slab[i], DTYPE_F32, before, SLAB, 0);
}

enum { ALL_ACTIVE = -1 };

/* idle: this range takes no part. */
static void optimizer_with(struct dev *d, enum how how, double size, float trust_max, int idle)
{
    bool lamb = how != ADAMW;
    struct slabs s = {numbers(SLAB, size, DTYPE_F32), numbers(SLAB, 0.1, DTYPE_F32),
                      numbers(SLAB, 0.1, DTYPE_F32), numbers(SLAB, 1, DTYPE_F32)};
    double half = 0.5;
    for (size_t i = 0; i < SLAB; i++)
        s.v[i] = fabs(s.v[i]);
    void *model = d->model_type == DTYPE_BF16 ? room(d, SLAB * 2) : NULL;
    struct dev_optim a = optimizer(d, s);
    a.model = model;
    a.gscale = upload(d, &half, 1, DTYPE_F32);
    a.k.trust_max = trust_max;
    struct opt_group chosen[RANGES];
    memcpy(chosen, groups, sizeof chosen);
    if (idle != ALL_ACTIVE)
        chosen[idle].active = false;
    a.groups = groups_on(d, chosen);
    run_optimizer(d, &a, how);
    a.groups = chosen;
    adam_reference(s, &a, 0.5, lamb);
    near("p", d, a.p, DTYPE_F32, s.p, SLAB, lamb ? 2e-6 : 1e-6);
    near("m", d, a.m, DTYPE_F32, s.m, SLAB, 1e-6);
    near("v", d, a.v, DTYPE_F32, s.v, SLAB, 1e-6);
    if (!model || idle != ALL_ACTIVE)
        return;
    double *p = download(d, a.p, SLAB, DTYPE_F32);
    for (size_t r = 0; r < RANGES; r++) {
        size_t n = ranges[r].count, at = ranges[r].offset;
        for (size_t i = at; i < at + n; i++)
            p[i] = held_by(DTYPE_BF16, p[i]);
        near("model", d, (uint16_t *)model + at, DTYPE_BF16, p + at, n, 0);
    }
}

static void optimizer_case(struct dev *d, enum how how, double size, float trust_max)
{
    optimizer_with(d, how, size, trust_max, ALL_ACTIVE);
}

/* A range that is not active keeps every bit of p, m and v; the others are as before. */
static void idle_range_case(struct dev *d, enum how how)
{
    for (int idle = 0; idle < RANGES; idle++)
        optimizer_with(d, how, 1, 10, idle);
}

static void check_optimizers(struct dev *d)
{
    idle_range_case(d, ADAMW);
    idle_range_case(d, LAMB);
    idle_range_case(d, LAMB_SHARDED);
    optimizer_case(d, ADAMW, 1, 10);
    optimizer_case(d, LAMB, 1, 10);
    optimizer_case(d, LAMB, 1, 0.05f); /* the upper bound holds */
    optimizer_case(d, LAMB, 0, 10);    /* ||p|| = 0: ratio 1 */
    optimizer_case(d, LAMB_SHARDED, 1, 10);
    optimizer_case(d, LAMB_SHARDED, 1, 0.05f);
    for (int how = ADAMW; how <= LAMB_SHARDED; how++)
        stopped_case(d, (enum how)how);
}

static void norms_agree(void **state)
{
    (void)state;
    on_every_device(check_norms);
}

static void branches_agree(void **state)
{
    (void)state;
    on_every_device(check_branches);
}

static void embedding_agrees(void **state)
{
    (void)state;
    on_every_device(check_embed);
}

static void rope_agrees(void **state)
{
    (void)state;
    on_every_device(check_rope);
}

static void gated_units_agree(void **state)
{
    (void)state;
    on_every_device(check_gated);
}

static void elements_agree(void **state)
{
    (void)state;
    on_every_device(check_elements);
}

static void optimizers_agree(void **state)
{
    (void)state;
    on_every_device(check_optimizers);
}

static void open_says_what_is_missing(void **state)
{
    (void)state;
    struct dev *d;
    enum err cuda =
        dev_open(&d, &(struct dev_options){.kind = "cuda:1023"}); /* no machine has 1,024 */
    assert_int_equal(cuda, ERR_UNSUPPORTED);
    assert_null(d);
    assert_int_equal(dev_open(&d, &(struct dev_options){.kind = "cuda:x"}), ERR_CONFIG);
    assert_int_equal(dev_open(&d, &(struct dev_options){.kind = "tpu"}), ERR_CONFIG);
    assert_int_equal(dev_open(&d, &(struct dev_options){.model_type = "f16"}), ERR_CONFIG);
    assert_int_equal(dev_open(&d, &(struct dev_options){.isa = "v9"}), ERR_UNSUPPORTED);
    void *p = d;
    assert_int_equal(dev_open(&d, &(struct dev_options){.kind = "cpu", .threads = 1}), ERR_OK);
    assert_int_equal(dev_alloc(d, &p, 0), ERR_OK);
    assert_null(p);
    assert_int_equal(dev_alloc(d, &p, SIZE_MAX), ERR_MEMORY);
    dev_free(d, p);
    dev_close(d);
    dev_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_agree),
        cmocka_unit_test(branches_agree),
        cmocka_unit_test(embedding_agrees),
        cmocka_unit_test(rope_agrees),
        cmocka_unit_test(gated_units_agree),
        cmocka_unit_test(elements_agree),
        cmocka_unit_test(sumsq_ignores_threads),
        cmocka_unit_test(optimizers_agree),
        cmocka_unit_test(open_says_what_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
