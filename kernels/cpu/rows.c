/* Inner loops over rows and runs of elements; see rows.h. Compiled several times with different
 * -march. Loops are written so that gcc and clang vectorise them at -O3: no calls, no early exit,
 * reductions marked `omp simd` (their order is then the vector's, fixed by the instruction set).
 */
#include "kernels/cpu/rows.h"
#include "kernels/scalar/swiglu.h"

enum { TILE = 512 }; /* elements that a bf16 pass holds as floats: 2 KiB, well inside L1 */

static inline size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

void ROWS_NAME(convert)(void *to, enum dtype to_type, const void *from, enum dtype from_type,
                        size_t n)
{
    float buf[TILE];
    for (size_t i = 0; i < n; i += TILE) {
        size_t count = min_size(TILE, n - i);
        const float *x = row_view(buf, from, from_type, i, count);
        row_store(to, to_type, i, x, count);
    }
}

void ROWS_NAME(add)(void *y, const void *a, const void *b, enum dtype type, size_t n)
{
    float abuf[TILE], bbuf[TILE];
    for (size_t i = 0; i < n; i += TILE) {
        size_t count = min_size(TILE, n - i);
        const float *av = row_view(abuf, a, type, i, count);
        const float *bv = row_view(bbuf, b, type, i, count);
        for (size_t j = 0; j < count; j++)
            abuf[j] = av[j] + bv[j];
        row_store(y, type, i, abuf, count);
    }
}

void ROWS_NAME(accumulate)(float *sum, const void *x, enum dtype type, size_t n)
{
    float buf[TILE];
    for (size_t i = 0; i < n; i += TILE) {
        size_t count = min_size(TILE, n - i);
        const float *v = row_view(buf, x, type, i, count);
#pragma omp simd
        for (size_t j = 0; j < count; j++)
            sum[i + j] += v[j];
    }
}

void ROWS_NAME(scale)(float *x, float s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= s;
}

/* Doubles: the norm of 1e9 gradients keeps 1e-12. */
double ROWS_NAME(sumsq)(const float *x, size_t n)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

void ROWS_NAME(act_fwd)(void *y, const void *pre, enum dev_act act, enum dtype type, size_t n)
{
    float buf[TILE];
    for (size_t i = 0; i < n; i += TILE) {
        size_t count = min_size(TILE, n - i);
        row_load(buf, pre, type, i, count);
        if (act == DEV_ACT_GELU_TANH)
            for (size_t j = 0; j < count; j++)
                buf[j] = gelu_tanh(buf[j]);
        else if (act == DEV_ACT_GELU_ERF)
            for (size_t j = 0; j < count; j++)
                buf[j] = gelu_erf(buf[j]);
        row_store(y, type, i, buf, count);
    }
}

/* `count` values of dy within a row, from element `offset`; NONE leaves dy unchanged. */
static void act_bwd_run(const struct rows_act *r, float *dbias, size_t offset, size_t count)
{
    float d[TILE], x[TILE];
    row_load(d, r->dy, r->type, offset, count);
    if (r->act != DEV_ACT_NONE) {
        row_load(x, r->pre, r->type, offset, count);
        if (r->act == DEV_ACT_GELU_TANH)
            for (size_t j = 0; j < count; j++)
                d[j] *= gelu_tanh_slope(x[j]);
        else
            for (size_t j = 0; j < count; j++)
                d[j] *= gelu_erf_slope(x[j]);
        row_store(r->dy, r->type, offset, d, count);
    }
    if (dbias)
        for (size_t j = 0; j < count; j++)
            dbias[j] += d[j];
}

void ROWS_NAME(act_bwd)(const struct rows_act *r)
{
    for (size_t row = 0; row < r->rows; row++)
        for (size_t i = 0; i < r->N; i += TILE)
            act_bwd_run(r, r->dbias ? r->dbias + i : NULL, row * r->N + i,
                        min_size(TILE, r->N - i));
}

/* ---- rotary positions, gated units ---- */

void ROWS_NAME(rope)(void *row, const float *table, enum dtype type, size_t heads, size_t HD,
                     bool inverse)
{
    float abuf[TILE], bbuf[TILE];
    size_t half = HD / 2;
    float sign = inverse ? -1.0f : 1.0f;
    for (size_t h = 0; h < heads; h++)
        for (size_t i = 0; i < half; i += TILE) {
            size_t count = min_size(TILE, half - i), at = h * HD + i;
            const float *cosine = table + i, *sine = table + half + i;
            row_load(abuf, row, type, at, count);
            row_load(bbuf, row, type, at + half, count);
            for (size_t j = 0; j < count; j++) {
                float a = abuf[j], b = bbuf[j], s = sign * sine[j];
                abuf[j] = a * cosine[j] - b * s;
                bbuf[j] = b * cosine[j] + a * s;
            }
            row_store(row, type, at, abuf, count);
            row_store(row, type, at + half, bbuf, count);
        }
}

void ROWS_NAME(swiglu_fwd)(void *y, const void *x, enum dtype type, size_t F)
{
    float gbuf[TILE], ubuf[TILE];
    for (size_t i = 0; i < F; i += TILE) {
        size_t count = min_size(TILE, F - i);
        const float *up = row_view(ubuf, x, type, F + i, count);
        row_load(gbuf, x, type, i, count);
        for (size_t j = 0; j < count; j++)
            gbuf[j] = swiglu(gbuf[j], up[j]);
        row_store(y, type, i, gbuf, count);
    }
}

void ROWS_NAME(swiglu_bwd)(void *dx, const void *dy, const void *x, enum dtype type, size_t F)
{
    float gate[TILE], up[TILE], d[TILE];
    for (size_t i = 0; i < F; i += TILE) {
        size_t count = min_size(TILE, F - i);
        row_load(gate, x, type, i, count);
        row_load(up, x, type, F + i, count);
        row_load(d, dy, type, i, count);
        for (size_t j = 0; j < count; j++) {
            float dgate, dup;
            swiglu_slopes(&dgate, &dup, d[j], gate[j], up[j]);
            gate[j] = dgate;
            up[j] = dup;
        }
        row_store(dx, type, i, gate, count);
        row_store(dx, type, F + i, up, count);
    }
}

/* ---- norms ---- */

/* v (C) = x + residual as the model type holds it; written to sum when there is one. */
static const float *norm_sum(const struct rows_norm *n, size_t offset, float *buf, float *other)
{
    size_t C = n->a->C;
    if (!n->residual) {
        const float *v = row_view(buf, n->x, n->type, offset, C);
        if (n->a->sum && n->a->sum != n->x)
            row_store(n->a->sum, n->type, offset, v, C);
        return v;
    }
    const float *x = row_view(buf, n->x, n->type, offset, C);
    const float *r = row_view(other, n->residual, n->type, offset, C);
    for (size_t i = 0; i < C; i++)
        buf[i] = x[i] + r[i];
    row_store(n->a->sum, n->type, offset, buf, C);
    return row_view(buf, n->a->sum, n->type, offset, C); /* rounded, as backward will read it */
}

/* Reads x, residual; writes sum, y, mean, rstd. LayerNorm: Ba et al. 2016; RMSNorm: Zhang &
 * Sennrich 2019. */
void ROWS_NAME(norm_fwd)(const struct rows_norm *n, size_t begin, size_t end, float *buf)
{
    const struct dev_norm_args *a = n->a;
    size_t C = a->C;
    const float *gain = a->gain, *bias = a->bias;
    float *other = buf + C;
    for (size_t t = begin; t < end; t++) {
        const float *v = norm_sum(n, t * C, buf, other);
        float mean = 0, square = 0;
        if (a->kind == DEV_NORM_LAYER) {
#pragma omp simd reduction(+ : mean)
            for (size_t i = 0; i < C; i++)
                mean += v[i];
            mean /= (float)C;
            n->a->mean[t] = mean;
        }
#pragma omp simd reduction(+ : square)
        for (size_t i = 0; i < C; i++)
            square += (v[i] - mean) * (v[i] - mean);
        float rstd = 1.0f / __builtin_sqrtf(square / (float)C + a->eps);
        n->a->rstd[t] = rstd;
        if (bias)
            for (size_t i = 0; i < C; i++)
                other[i] = (v[i] - mean) * rstd * gain[i] + bias[i];
        else
            for (size_t i = 0; i < C; i++)
                other[i] = (v[i] - mean) * rstd * gain[i];
        row_store(n->y, n->type, t * C, other, C);
    }
}

/* Reads dy, dsum, a->sum, a->mean, a->rstd; writes dx. With h = (v - mean) rstd and e = dy gain:
 * dx = dsum + rstd (e - mean(e) - h mean(e h)); RMS has neither mean. */
void ROWS_NAME(norm_bwd)(const struct rows_norm *n, float *dgain, float *dbias, size_t begin,
                         size_t end, float *buf)
{
    const struct dev_norm_args *a = n->a;
    size_t C = a->C;
    const float *gain = a->gain;
    float *h = buf, *dybuf = buf + C, *out = buf + 2 * C;
    for (size_t t = begin; t < end; t++) {
        bool layer = a->kind == DEV_NORM_LAYER;
        float mean = layer ? n->a->mean[t] : 0.0f, rstd = n->a->rstd[t], e_sum = 0, eh_sum = 0;
        const float *v = row_view(h, n->a->sum, n->type, t * C, C);
        const float *dy = row_view(dybuf, n->dy, n->type, t * C, C);
#pragma omp simd reduction(+ : e_sum, eh_sum)
        for (size_t i = 0; i < C; i++) {
            float hat = (v[i] - mean) * rstd, e = dy[i] * gain[i];
            h[i] = hat;
            e_sum += e;
            eh_sum += e * hat;
            dgain[i] += dy[i] * hat;
        }
        if (a->bias)
#pragma omp simd
            for (size_t i = 0; i < C; i++)
                dbias[i] += dy[i];
        float e_mean = layer ? e_sum / (float)C : 0.0f, eh_mean = eh_sum / (float)C;
        if (n->dsum)
            row_load(out, n->dsum, n->type, t * C, C);
        else
            memset(out, 0, C * sizeof *out);
#pragma omp simd
        for (size_t i = 0; i < C; i++)
            out[i] += rstd * (dy[i] * gain[i] - e_mean - h[i] * eh_mean);
        row_store(n->dx, n->type, t * C, out, C);
    }
}

/* ---- cross-entropy ---- */

float ROWS_NAME(xent)(const struct rows_xent *r)
{
    float *logits = r->logits, grad_scale = r->grad_scale;
    size_t V = r->V;
    int32_t target = r->target;
    float top = row_max(logits, V), sum = 0;
    float at_target = target < 0 ? 0.0f : logits[target] - top;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < V; i++) {
        logits[i] = exp_fast(logits[i] - top);
        sum += logits[i];
    }
    if (r->grad) {
        float factor = target < 0 ? 0.0f : grad_scale / sum;
        for (size_t i = 0; i < V; i++)
            logits[i] *= factor;
        if (target >= 0)
            logits[target] -= grad_scale;
        memset(logits + V, 0, (r->width - V) * sizeof *logits);
        if (r->grad != logits) /* f32: in place */
            row_store(r->grad, r->type, 0, logits, r->width);
    }
    return target < 0 ? 0.0f : __builtin_logf(sum) - at_target;
}

/* ---- optimizers: one loop for each row of scalar/opt.h ---- */

typedef struct opt_terms reduce_element(float p, float *m, float *v, float g,
                                        const struct opt_scalars *k);
typedef void update_element(float *p, float *m, float *v, float g, const struct opt_scalars *k);

/* Floats inside a tile, doubles across: 1e-5 relative. */
static inline __attribute__((always_inline)) struct opt_sums
reduce_loop(const struct rows_optim *r, const struct opt_scalars *scalars, size_t n,
            reduce_element *element)
{
    const struct opt_scalars k = *scalars;
    const float *p = r->p, *g = r->g;
    float *m = r->m, *v = r->v;
    struct opt_sums sums = {{0}};
    for (size_t i = 0; i < n; i += TILE) {
        size_t end = min_size(n, i + TILE);
        float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
        for (size_t j = i; j < end; j++) {
            struct opt_terms t = element(p[j], &m[j], &v[j], g[j], &k);
            s0 += t.x[0], s1 += t.x[1], s2 += t.x[2], s3 += t.x[3];
        }
        sums.x[0] += (double)s0, sums.x[1] += (double)s1;
        sums.x[2] += (double)s2, sums.x[3] += (double)s3;
    }
    return sums;
}

static inline __attribute__((always_inline)) void update_loop(const struct rows_optim *r,
                                                              const struct opt_scalars *scalars,
                                                              size_t n, update_element *element)
{
    const struct opt_scalars k = *scalars;
    const float *g = r->g;
    float *p = r->p, *m = r->m, *v = r->v;
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        element(&p[i], &m[i], &v[i], g[i], &k);
    if (r->model)
        row_store(r->model, DTYPE_BF16, 0, p, n);
}

struct opt_sums ROWS_NAME(range_reduce)(enum opt_reduce rule, const struct rows_optim *r,
                                        const struct opt_scalars *k, size_t n)
{
    switch (rule) {
#define X(NAME, name, prepare, first, count, writes)                                               \
    case OPT_REDUCE_##NAME:                                                                        \
        return reduce_loop(r, k, n, opt_##name##_reduce);
        OPT_REDUCE_LIST(X)
#undef X
    case OPT_REDUCES:
        break;
    }
    return (struct opt_sums){{0}};
}

void ROWS_NAME(range_update)(enum opt_update rule, const struct rows_optim *r,
                             const struct opt_scalars *k, size_t n)
{
    switch (rule) {
#define X(NAME, name, prepare, writes)                                                             \
    case OPT_UPDATE_##NAME:                                                                        \
        update_loop(r, k, n, opt_##name##_update);                                                 \
        return;
        OPT_UPDATE_LIST(X)
#undef X
    case OPT_UPDATES:
        return;
    }
}

const struct rows ROWS_NAME(rows) = {.isa = ROWS_TEXT2(ISA),
#define X(result, name, arguments) .name = ROWS_NAME(name),
                                     ROWS(X)
#undef X
};
