/* SPDX-License-Identifier: Apache-2.0 */
/* Inner loops over rows and runs of elements; see rows.h. Compiled several times with different
 * -march. Loops are written so that gcc and clang vectorise them at -O3: no calls, no early exit,
 * reductions marked `omp simd` (their order is then the vector's, fixed by the instruction set).
 */
#include "kernels/cpu/rows.h"
#include "kernels/scalar/dropout.h"
#include "kernels/scalar/gated.h"

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

/* Where n elements from `offset` are computed: in place where the type is f32, else in buf, which
 * row_flush rounds into place. */
static inline float *row_floats(float *buf, void *base, enum dtype type, size_t offset)
{
    return type == DTYPE_F32 ? (float *)base + offset : buf;
}

static inline void row_flush(void *base, enum dtype type, size_t offset, const float *buf, size_t n)
{
    if (type != DTYPE_F32)
        row_store(base, type, offset, buf, n);
}

/* y may be pre. */
void ROWS_NAME(act_fwd)(void *y, const void *pre, enum dev_act act, enum dtype type, size_t n)
{
    float buf[TILE];
    for (size_t i = 0; i < n; i += TILE) {
        size_t count = min_size(TILE, n - i);
        const float *x = row_view(buf, pre, type, i, count);
        float *to = row_floats(buf, y, type, i);
        if (act == DEV_ACT_GELU_TANH)
#pragma omp simd
            for (size_t j = 0; j < count; j++)
                to[j] = gelu_tanh(x[j]);
        else if (act == DEV_ACT_GELU_ERF)
#pragma omp simd
            for (size_t j = 0; j < count; j++)
                to[j] = gelu_erf(x[j]);
        else if (act == DEV_ACT_TANH)
#pragma omp simd
            for (size_t j = 0; j < count; j++)
                to[j] = tanh_fast(x[j]);
        row_flush(y, type, i, to, count);
    }
}

/* `count` values of dy within a row, from element `offset`; NONE leaves dy unchanged. */
static void act_bwd_run(const struct rows_act *r, float *dbias, size_t offset, size_t count)
{
    float dbuf[TILE], xbuf[TILE];
    float *d = row_floats(dbuf, r->dy, r->type, offset);
    if (r->type != DTYPE_F32)
        row_load(d, r->dy, r->type, offset, count);
    if (r->act != DEV_ACT_NONE) {
        const float *x = row_view(xbuf, r->pre, r->type, offset, count);
        if (r->act == DEV_ACT_GELU_TANH)
#pragma omp simd
            for (size_t j = 0; j < count; j++)
                d[j] *= gelu_tanh_slope(x[j]);
        else if (r->act == DEV_ACT_TANH)
#pragma omp simd
            for (size_t j = 0; j < count; j++)
                d[j] *= tanh_slope(x[j]);
        else
#pragma omp simd
            for (size_t j = 0; j < count; j++)
                d[j] *= gelu_erf_slope(x[j]);
        row_flush(r->dy, r->type, offset, d, count);
    }
    if (dbias)
#pragma omp simd
        for (size_t j = 0; j < count; j++)
            dbias[j] += d[j];
}

void ROWS_NAME(act_bwd)(const struct rows_act *r)
{
    size_t stride = r->stride ? r->stride : r->N;
    for (size_t row = 0; row < r->rows; row++)
        for (size_t i = 0; i < r->N; i += TILE)
            act_bwd_run(r, r->dbias ? r->dbias + i : NULL, row * stride + i,
                        min_size(TILE, r->N - i));
}

/* ---- dropout ---- */

/* Random words of the groups first .. first + DROP_GROUPS of a row. All groups pass each Philox
 * round together, so that the loop vectorises. */
enum { DROP_GROUPS = 16 };
static void dropout_words(uint32_t words[4][DROP_GROUPS], const struct dev_dropout *a, uint64_t key,
                          uint32_t first)
{
    philox_word c[4][DROP_GROUPS];
    uint64_t stream = dropout_stream(key);
    for (uint32_t i = 0; i < DROP_GROUPS; i++) {
        uint64_t index = dropout_index(key, a->place, first + i);
        c[0][i] = (uint32_t)index;
        c[1][i] = (uint32_t)(index >> 32);
        c[2][i] = (uint32_t)stream;
        c[3][i] = (uint32_t)(stream >> 32);
    }
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        struct philox_key k = philox_key(a->seed, round);
        for (size_t i = 0; i < DROP_GROUPS; i++)
            philox_round(&c[0][i], &c[1][i], &c[2][i], &c[3][i], k);
    }
    for (size_t k = 0; k < 4; k++)
        for (size_t i = 0; i < DROP_GROUPS; i++)
            words[k][i] = (uint32_t)c[k][i];
}

void ROWS_NAME(dropout)(float *x, const struct dev_dropout *a, size_t row, size_t C)
{
    enum { EACH = DROP_GROUPS * DROPOUT_EACH };
    uint32_t words[4][DROP_GROUPS], below = dropout_below(a->rate);
    float kept = dropout_scale(below) * (a->scale ? *a->scale : 1.0f), factor[EACH];
    for (size_t i = 0; i < EACH; i++)
        factor[i] = kept;
    for (size_t i = 0; i < C; i += EACH) {
        size_t count = min_size(EACH, C - i);
        if (below) {
            dropout_words(words, a, a->keys[row], (uint32_t)(i / DROPOUT_EACH));
            for (size_t g = 0; g < DROP_GROUPS; g++)
                for (size_t k = 0; k < DROPOUT_EACH; k++)
                    factor[g * DROPOUT_EACH + k] =
                        (words[k / 2][g] >> (k % 2 * 16) & 0xffff) < below ? 0.0f : kept;
        }
        for (size_t j = 0; j < count; j++)
            x[i + j] *= factor[j];
    }
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

static inline __attribute__((always_inline)) void
gated_fwd_loop(void *y, const void *x, const enum dev_gate kind, enum dtype type, size_t F)
{
    float gbuf[TILE], ubuf[TILE];
    for (size_t i = 0; i < F; i += TILE) {
        size_t count = min_size(TILE, F - i);
        const float *up = row_view(ubuf, x, type, F + i, count);
        row_load(gbuf, x, type, i, count);
        for (size_t j = 0; j < count; j++)
            gbuf[j] = gated(kind, gbuf[j], up[j]);
        row_store(y, type, i, gbuf, count);
    }
}

static inline __attribute__((always_inline)) void gated_bwd_loop(void *dx, const void *dy,
                                                                 const void *x,
                                                                 const enum dev_gate kind,
                                                                 enum dtype type, size_t F)
{
    float gate[TILE], up[TILE], d[TILE];
    for (size_t i = 0; i < F; i += TILE) {
        size_t count = min_size(TILE, F - i);
        row_load(gate, x, type, i, count);
        row_load(up, x, type, F + i, count);
        row_load(d, dy, type, i, count);
        for (size_t j = 0; j < count; j++) {
            float dgate, dup;
            gated_slopes(kind, &dgate, &dup, d[j], gate[j], up[j]);
            gate[j] = dgate;
            up[j] = dup;
        }
        row_store(dx, type, i, gate, count);
        row_store(dx, type, F + i, up, count);
    }
}

/* Each kind has a loop of its own, in which the kind is a constant. */
#define GATES(X) X(DEV_GATE_SILU) X(DEV_GATE_GELU_ERF) X(DEV_GATE_GELU_TANH)

void ROWS_NAME(gated_fwd)(void *y, const void *x, enum dev_gate gate, enum dtype type, size_t F)
{
    switch (gate) {
#define X(kind)                                                                                    \
    case kind:                                                                                     \
        gated_fwd_loop(y, x, kind, type, F);                                                       \
        return;
        GATES(X)
#undef X
    }
}

void ROWS_NAME(gated_bwd)(void *dx, const void *dy, const void *x, enum dev_gate gate,
                          enum dtype type, size_t F)
{
    switch (gate) {
#define X(kind)                                                                                    \
    case kind:                                                                                     \
        gated_bwd_loop(dx, dy, x, kind, type, F);                                                  \
        return;
        GATES(X)
#undef X
    }
}

/* ---- norms ---- */

/* As norm_sum, with a->branch applied to x. */
static const float *branch_sum(const struct rows_norm *n, size_t offset, float *buf, float *other)
{
    size_t C = n->a->C;
    row_load(buf, n->x, n->type, offset, C);
    ROWS_NAME(dropout)(buf, n->a->branch, offset / C, C);
    if (n->residual) {
        const float *r = row_view(other, n->residual, n->type, offset, C);
        for (size_t i = 0; i < C; i++)
            buf[i] += r[i];
    }
    row_store(n->a->sum, n->type, offset, buf, C);
    return row_view(buf, n->a->sum, n->type, offset, C);
}

/* v (C) = x + residual as the model type holds it; written to sum when there is one. */
static const float *norm_sum(const struct rows_norm *n, size_t offset, float *buf, float *other)
{
    size_t C = n->a->C;
    if (n->a->branch)
        return branch_sum(n, offset, buf, other);
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
        if (a->kind == DEV_NORM_NONE)
            continue;
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

/* Writes row t of dx from out (C), and of dbranch. Overwrites out. */
static void dx_store(const struct rows_norm *n, size_t t, float *out)
{
    size_t C = n->a->C;
    row_store(n->dx, n->type, t * C, out, C);
    if (n->a->branch) {
        ROWS_NAME(dropout)(out, n->a->branch, t, C);
        row_store(n->dbranch, n->type, t * C, out, C);
    }
}

/* One row of norm_bwd for DEV_NORM_NONE. */
static void none_bwd(const struct rows_norm *n, size_t t, float *out, float *dybuf)
{
    size_t C = n->a->C;
    if (n->dsum)
        row_load(out, n->dsum, n->type, t * C, C);
    else
        memset(out, 0, C * sizeof *out);
    if (n->dy) {
        const float *dy = row_view(dybuf, n->dy, n->type, t * C, C);
        for (size_t i = 0; i < C; i++)
            out[i] += dy[i];
    }
    dx_store(n, t, out);
}

/* Reads dy, dsum, a->sum, a->mean, a->rstd; writes dx, dbranch. With h = (v - mean) rstd and e = dy
 * gain: dx = dsum + rstd (e - mean(e) - h mean(e h)); RMS has neither mean. */
void ROWS_NAME(norm_bwd)(const struct rows_norm *n, float *dgain, float *dbias, size_t begin,
                         size_t end, float *buf)
{
    const struct dev_norm_args *a = n->a;
    size_t C = a->C;
    const float *gain = a->gain;
    float *h = buf, *dybuf = buf + C, *out = buf + 2 * C;
    for (size_t t = begin; t < end; t++) {
        bool layer = a->kind == DEV_NORM_LAYER;
        if (a->kind == DEV_NORM_NONE) {
            none_bwd(n, t, out, dybuf);
            continue;
        }
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
        dx_store(n, t, out);
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

/* ---- optimizers over matrices: a row at a time ---- */

typedef struct opt_terms matrix_terms(float p, float *m, float *v, float g,
                                      const struct opt_cross *c, const struct opt_scalars *k);
typedef float matrix_move(float p, float m, float v, const struct opt_cross *c,
                          const struct opt_scalars *k);

static inline __attribute__((always_inline)) struct opt_cross cross_at(const struct rows_matrix *r,
                                                                       size_t j)
{
    struct opt_cross c = {{r->row[0], r->row[1]}, {r->column[0][j], r->column[1][j]}};
    return c;
}

static inline __attribute__((always_inline)) float matrix_term(const struct rows_matrix *r,
                                                               const struct opt_scalars *k,
                                                               size_t j, matrix_terms *terms,
                                                               bool lines)
{
    struct opt_cross c = cross_at(r, j);
    struct opt_terms t = terms(r->at.p[j], &r->at.m[j], &r->at.v[j], r->at.g[j], &c, k);
    if (lines)
        r->into[0][j] += t.x[0];
    return t.x[0];
}

/* One term. Sixteen running sums: the order of a compiler's own depends on the addresses, which
 * differ where ranks share matrices out. */
static inline __attribute__((always_inline)) struct opt_sums
matrix_sum_loop(const struct rows_matrix *row, const struct opt_scalars *scalars, size_t n,
                matrix_terms *terms, bool lines)
{
    enum { LANES = 16 };
    const struct opt_scalars k = *scalars;
    const struct rows_matrix r = *row;
    struct opt_sums sums = {{0}};
    for (size_t i = 0; i < n; i += TILE) {
        size_t end = min_size(n, i + TILE), j = i;
        float lane[LANES] = {0};
        for (; j + LANES <= end; j += LANES)
#pragma omp simd
            for (size_t l = 0; l < LANES; l++)
                lane[l] += matrix_term(&r, &k, j + l, terms, lines);
        for (size_t l = 0; j < end; l++, j++)
            lane[l] += matrix_term(&r, &k, j, terms, lines);
        for (size_t l = 0; l < LANES; l++)
            sums.x[0] += (double)lane[l];
    }
    return sums;
}

static inline __attribute__((always_inline)) struct opt_sums
matrix_max_loop(const struct rows_matrix *r, const struct opt_scalars *scalars, size_t n,
                matrix_terms *terms)
{
    const struct opt_scalars k = *scalars;
    const float *p = r->at.p, *g = r->at.g;
    float *m = r->at.m, *v = r->at.v, *into0 = r->into[0], *into1 = r->into[1], s0 = 0, s1 = 0;
#pragma omp simd reduction(max : s0, s1)
    for (size_t j = 0; j < n; j++) {
        struct opt_cross c = {{0, 0}, {0, 0}};
        struct opt_terms t = terms(p[j], &m[j], &v[j], g[j], &c, &k);
        s0 = t.x[0] > s0 ? t.x[0] : s0;
        s1 = t.x[1] > s1 ? t.x[1] : s1;
        into0[j] = t.x[0] > into0[j] ? t.x[0] : into0[j];
        into1[j] = t.x[1] > into1[j] ? t.x[1] : into1[j];
    }
    return (struct opt_sums){{(double)s0, (double)s1, 0, 0}};
}

/* A function of its own, as matrix_term: a struct inside a simd loop would be an array in memory.
 */
static inline __attribute__((always_inline)) float
matrix_moved(const struct rows_matrix *r, const struct opt_scalars *k, size_t j, matrix_move *move)
{
    struct opt_cross c = cross_at(r, j);
    return move(r->at.p[j], r->at.m[j], r->at.v[j], &c, k);
}

static inline __attribute__((always_inline)) void
matrix_move_loop(const struct rows_matrix *row, const struct opt_scalars *scalars, size_t n,
                 matrix_move *move)
{
    const struct opt_scalars k = *scalars;
    const struct rows_matrix r = *row; /* p could be one of its values */
    float *p = r.at.p;
#pragma omp simd
    for (size_t j = 0; j < n; j++)
        p[j] = matrix_moved(&r, &k, j, move);
    if (r.at.model)
        row_store(r.at.model, DTYPE_BF16, 0, p, n);
}

struct opt_sums ROWS_NAME(matrix_reduce)(enum opt_matrix_reduce rule, const struct rows_matrix *r,
                                         const struct opt_scalars *k, size_t n)
{
    switch (rule) {
#define X(NAME, name, prepare, how, line, sum, count, writes)                                      \
    case OPT_MATRIX_REDUCE_##NAME:                                                                 \
        return how == OPT_MAX ? matrix_max_loop(r, k, n, opt_##name##_terms)                       \
                              : matrix_sum_loop(r, k, n, opt_##name##_terms, how == OPT_MEAN);
        OPT_MATRIX_REDUCE_LIST(X)
#undef X
    case OPT_MATRIX_REDUCES:
        break;
    }
    return (struct opt_sums){{0}};
}

void ROWS_NAME(matrix_update)(enum opt_matrix_update rule, const struct rows_matrix *r,
                              const struct opt_scalars *k, size_t n)
{
    switch (rule) {
#define X(NAME, name, prepare)                                                                     \
    case OPT_MATRIX_UPDATE_##NAME:                                                                 \
        matrix_move_loop(r, k, n, opt_##name##_move);                                              \
        return;
        OPT_MATRIX_UPDATE_LIST(X)
#undef X
    case OPT_MATRIX_UPDATES:
        return;
    }
}

const struct rows ROWS_NAME(rows) = {.isa = ROWS_TEXT2(ISA),
#define X(result, name, arguments) .name = ROWS_NAME(name),
                                     ROWS(X)
#undef X
};
