/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of one head over one sequence: softmax(scale q k^T) v and its gradient, in blocks of
 * query rows against all the keys they attend to. All values are f32 in this thread's buffer, which
 * fits in L2 for usual training lengths. Scores exist for one block at a time; backward recomputes
 * them from the log-sum-exp (Dao et al. 2022). Compiled several times; see rows.h.
 *
 * The products are loops of this file and not library calls: the causal mask cuts them, they run
 * inside one thread and they are too small for a library call each. Vector types of the compiler,
 * no intrinsics; a vector is LANES floats. All operands are padded with zeros, keys and HD to whole
 * vectors, so there is no edge code.
 */
#include "kernels/cpu/rows.h"
#include "kernels/scalar/gelu.h"

/* LANES floats per vector; tiles of TALL rows by WIDE vectors, as many accumulators as the
 * registers hold; BLOCK query rows at a time: small, because a causal block computes half its own
 * width for nothing. One core of Zen 4, length 256, HD 64, causal, forward + backward: 8x3x16 350
 * us, 4x4x16 359, 8x2x16 363, 8x3x32 364, 4x4x64 397. */
#if defined(__AVX512F__)
enum { LANES = 16, TALL = 8, WIDE = 3, BLOCK = 16 };
#elif defined(__AVX__)
enum { LANES = 8, TALL = 4, WIDE = 3, BLOCK = 32 };
#else
enum { LANES = 4, TALL = 4, WIDE = 2, BLOCK = 16 };
#endif

/* Scores are kept in units of log 2: q carries scale / ln 2, exp becomes 2^x, dk gets ln 2 back. */
static const float LN2 = 0.693147181f;

typedef float vec __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

static inline size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* A product c (M,N) = or += a (M,K) b (K,N); element (i,k) of a is a[i*ai + k*ak]. M is a multiple
 * of TALL, N of LANES. */
struct small {
    float *c;
    size_t ldc;
    const float *a;
    size_t ai, ak;
    const float *b;
    size_t ldb, M, N, K;
    bool add;
};

/* The tile of c at row m, column n: TALL rows of `wide` vectors. The accumulators stay in
 * registers.
 */
static inline __attribute__((always_inline)) void tile(const struct small *p, size_t m, size_t n,
                                                       const int wide)
{
    float *c = p->c + m * p->ldc + n;
    const float *a = p->a + m * p->ai, *b = p->b + n;
    const size_t ldc = p->ldc, ai = p->ai, ak = p->ak, ldb = p->ldb, K = p->K;
    vec sum[TALL][WIDE];
    for (int i = 0; i < TALL; i++)
        for (int j = 0; j < wide; j++)
            sum[i][j] = p->add ? *(const vec *)(c + (size_t)i * ldc + j * LANES) : (vec){0};
    for (size_t k = 0; k < K; k++) {
        vec right[WIDE];
        for (int j = 0; j < wide; j++)
            right[j] = *(const vec *)(b + k * ldb + j * LANES);
        for (int i = 0; i < TALL; i++) {
            vec left = a[(size_t)i * ai + k * ak] - (vec){0};
            for (int j = 0; j < wide; j++)
                sum[i][j] += left * right[j];
        }
    }
    for (int i = 0; i < TALL; i++)
        for (int j = 0; j < wide; j++)
            *(vec *)(c + (size_t)i * ldc + j * LANES) = sum[i][j];
}

static inline __attribute__((always_inline)) void tiles(const struct small *p, size_t n,
                                                        const int wide)
{
    for (size_t m = 0; m < p->M; m += TALL)
        tile(p, m, n, wide);
}

/* Four vectors left are two pairs: one accumulator a row waits for its own latency. */
static void product(const struct small p)
{
    size_t n = 0;
    for (size_t left; (left = (p.N - n) / LANES) > 0;) {
        if (left >= WIDE && (WIDE < 3 || left != 4)) {
            tiles(&p, n, WIDE);
            n += WIDE * LANES;
        } else if (left >= 2) {
            tiles(&p, n, 2);
            n += 2 * LANES;
        } else {
            tiles(&p, n, 1);
            n += LANES;
        }
    }
}

struct head {                          /* one head of one sequence, and this thread's buffers */
    size_t first, length, HD, C;       /* tokens of the batch: first .. first + length; C: of out */
    size_t stride, group;              /* of qkv's rows; query heads that share keys and values */
    size_t Lp, Dp, lds;                /* padded length and head dimension; row stride of scores */
    float *q, *k, *v, *kt, *vt, *dout; /* (Lp,Dp), transposes (Dp,Lp) */
    float *dk, *dv;                    /* (Lp,Dp) */
    float *s, *ds, *o;                 /* (BLOCK,lds) twice, (BLOCK,Dp) */
};

/* The row stride of scores is not a power of two: else the rows of a column would share cache sets.
 */
static struct head head_make(const struct rows_attention *r, size_t sequence, float *buf)
{
    const struct dev_attention *a = r->a;
    struct head h = {
        .first = (size_t)a->cu_seqlens_host[sequence], .HD = a->HD, .C = a->NH * a->HD};
    h.stride = (a->NH + 2 * a->KVH) * a->HD;
    h.group = a->NH / a->KVH;
    h.length = (size_t)a->cu_seqlens_host[sequence + 1] - h.first;
    h.Lp = round_up(h.length, LANES);
    h.Dp = round_up(h.HD, LANES);
    h.lds = h.Lp + 16;
    float **field[] = {&h.q, &h.k, &h.v, &h.kt, &h.vt, &h.dout, &h.dk, &h.dv};
    for (size_t i = 0; i < sizeof field / sizeof *field; i++, buf += h.Lp * h.Dp)
        *field[i] = buf;
    h.s = buf;
    h.ds = h.s + BLOCK * h.lds;
    h.o = h.ds + BLOCK * h.lds;
    return h;
}

size_t ROWS_NAME(attention_floats)(size_t length, size_t HD)
{
    size_t Lp = round_up(length, LANES), Dp = round_up(HD, LANES);
    return 8 * Lp * Dp + 2 * BLOCK * (Lp + 16) + BLOCK * Dp;
}

/* One head's columns of a tensor of the batch: element c of token t is x[t * stride + column + c].
 */
struct columns {
    void *x; /* read by gather, written by scatter */
    enum dtype type;
    size_t stride, column;
};

/* to (Lp,Dp) = s * x of the head's tokens. Padding is zero. */
static void gather(float *to, const struct head *h, const struct columns x, float s)
{
    for (size_t i = 0; i < h->length; i++) {
        float *row = to + i * h->Dp;
        const char *ahead =
            (const char *)x.x + ((h->first + i + 8) * x.stride + x.column) * dtype_size(x.type);
        for (size_t j = 0; j < h->HD * dtype_size(x.type); j += 64)
            __builtin_prefetch(ahead + j);
        const float *v = row_view(row, x.x, x.type, (h->first + i) * x.stride + x.column, h->HD);
        for (size_t j = 0; j < h->HD; j++)
            row[j] = s * v[j];
        for (size_t j = h->HD; j < h->Dp; j++)
            row[j] = 0;
    }
    memset(to + h->length * h->Dp, 0, (h->Lp - h->length) * h->Dp * sizeof *to);
}

/* to (Dp,Lp) = transpose of x (Lp,Dp), in blocks that fit the registers. */
static void transpose(float *to, const float *x, const struct head *h)
{
    for (size_t i = 0; i < h->Lp; i += LANES)
        for (size_t d = 0; d < h->Dp; d++) {
            float *row = to + d * h->Lp + i;
            const float *column = x + i * h->Dp + d;
            for (size_t j = 0; j < LANES; j++)
                row[j] = column[j * h->Dp];
        }
}

/* Tokens i0 .. i0 + n of the head = from (n,Dp). */
static void scatter(const struct columns to, const struct head *h, size_t i0, size_t n,
                    const float *from)
{
    for (size_t i = 0; i < n && i0 + i < h->length; i++)
        row_store(to.x, to.type, (h->first + i0 + i) * to.stride + to.column, from + i * h->Dp,
                  h->HD);
}

/* Columns of qkv; the functions that gather only read it. */
static struct columns qkv_columns(const struct head *h, const struct rows_attention *r,
                                  size_t column)
{
    return (struct columns){(void *)(uintptr_t)r->a->qkv, r->type, h->stride, column};
}

struct span { /* first .. end */
    size_t first, end;
};

/* Keys that query i attends to. A padded row has those of the last query. */
static struct span keys_seen(const struct head *h, const struct dev_attention *a, size_t i)
{
    size_t query = i < h->length ? i : h->length - 1, reach = dev_attention_reach(a);
    size_t end = a->causal ? query + 1 : h->length;
    return (struct span){query > reach ? query - reach : 0,
                         end < query + reach + 1 ? end : query + reach + 1};
}

/* Columns of scores that the block of rows from i0 computes: whole vectors. */
static struct span block_columns(const struct head *h, const struct dev_attention *a, size_t i0)
{
    size_t first = keys_seen(h, a, i0).first, end = keys_seen(h, a, i0 + BLOCK - 1).end;
    return (struct span){first / LANES * LANES, round_up(end, LANES)};
}

/* Replaces entries first .. n of row (columns) by unnormalised probabilities and the rest by 0.
 * Returns the log-sum-exp and writes 1/sum to *inverse. */
static float softmax_row(float *row, size_t first, size_t n, size_t columns, float *inverse)
{
    memset(row, 0, first * sizeof *row);
    row += first;
    n -= first;
    columns -= first;
    float top = row_max(row, n), sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t j = 0; j < n; j++) {
        row[j] = exp2_fast(row[j] - top);
        sum += row[j];
    }
    for (size_t j = n; j < columns; j++)
        row[j] = 0;
    *inverse = 1.0f / sum;
    return (top + __builtin_log2f(sum)) * LN2;
}

/* Loads keys and values of kv head `shared` of this sequence. */
static void gather_keys(const struct head *h, const struct rows_attention *r, size_t shared)
{
    gather(h->k, h, qkv_columns(h, r, h->C + shared * h->HD), 1.0f);
    gather(h->v, h, qkv_columns(h, r, h->C + (r->a->KVH + shared) * h->HD), 1.0f);
    transpose(h->kt, h->k, h);
}

static void gather_queries(const struct head *h, const struct rows_attention *r, size_t head)
{
    gather(h->q, h, qkv_columns(h, r, head * h->HD), r->a->scale * (1.0f / LN2));
}

/* h->s = the scores of the rows from i0, in units of log 2. */
static void scores(const struct head *h, size_t i0, size_t rows, struct span block)
{
    product((struct small){.c = h->s,
                           .ldc = h->lds,
                           .a = h->q + i0 * h->Dp,
                           .ai = h->Dp,
                           .ak = 1,
                           .b = h->kt + block.first,
                           .ldb = h->Lp,
                           .M = rows,
                           .N = block.end - block.first,
                           .K = h->HD});
}

void ROWS_NAME(attention_fwd)(const struct rows_attention *r, size_t sequence, size_t head,
                              float *buf)
{
    const struct dev_attention *a = r->a;
    struct head h = head_make(r, sequence, buf);
    gather_queries(&h, r, head);
    gather_keys(&h, r, head / h.group);
    for (size_t i0 = 0; i0 < h.length; i0 += BLOCK) {
        size_t rows = i0 + BLOCK < h.Lp ? BLOCK : h.Lp - i0;
        struct span block = block_columns(&h, a, i0);
        size_t from = block.first, columns = block.end - from;
        scores(&h, i0, rows, block);
        float inverse[BLOCK];
        for (size_t i = 0; i < rows; i++) {
            struct span seen = keys_seen(&h, a, i0 + i);
            float lse = softmax_row(h.s + i * h.lds, seen.first - from, seen.end - from, columns,
                                    &inverse[i]);
            if (i0 + i < h.length)
                a->lse[head * a->T + h.first + i0 + i] = lse;
        }
        product((struct small){.c = h.o,
                               .ldc = h.Dp,
                               .a = h.s,
                               .ai = h.lds,
                               .ak = 1,
                               .b = h.v + from * h.Dp,
                               .ldb = h.Dp,
                               .M = rows,
                               .N = h.Dp,
                               .K = columns});
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < h.Dp; j++)
                h.o[i * h.Dp + j] *= inverse[i];
        scatter((struct columns){r->out, r->type, h.C, head * h.HD}, &h, i0, rows, h.o);
    }
}

float ROWS_NAME(attention_largest)(const struct rows_attention *r, size_t sequence, size_t head,
                                   float *buf)
{
    struct head h = head_make(r, sequence, buf);
    float largest = -__builtin_inff();
    gather_queries(&h, r, head);
    gather(h.k, &h, qkv_columns(&h, r, h.C + head / h.group * h.HD), 1.0f);
    transpose(h.kt, h.k, &h);
    for (size_t i0 = 0; i0 < h.length; i0 += BLOCK) {
        size_t rows = i0 + BLOCK < h.Lp ? BLOCK : h.Lp - i0;
        struct span block = block_columns(&h, r->a, i0);
        scores(&h, i0, rows, block);
        for (size_t i = 0; i < rows && i0 + i < h.length; i++) {
            struct span seen = keys_seen(&h, r->a, i0 + i);
            float top = row_max(h.s + i * h.lds + seen.first - block.first, seen.end - seen.first);
            largest = top > largest ? top : largest;
        }
    }
    return largest * LN2;
}

/* ds (rows, the block's columns) holds dp on entry; on return s = p and
 * ds = p (dp - sum(dout out)). */
static void softmax_bwd(const struct rows_attention *r, const struct head *h, size_t head,
                        size_t i0, size_t rows, struct span block)
{
    const struct dev_attention *a = r->a;
    size_t columns = block.end - block.first;
    for (size_t i = 0; i < rows; i++) {
        float *s = h->s + i * h->lds, *ds = h->ds + i * h->lds, *o = h->o;
        bool real = i0 + i < h->length;
        struct span seen = keys_seen(h, a, i0 + i);
        size_t t = h->first + i0 + i, first = seen.first - block.first;
        size_t n = real ? seen.end - block.first : first;
        float lse = 0, dot = 0;
        if (real) {
            const float *dout = h->dout + (i0 + i) * h->Dp;
            lse = a->lse[head * a->T + t] * (1.0f / LN2);
            row_load(o, r->out_in, r->type, t * h->C + head * h->HD, h->HD);
#pragma omp simd reduction(+ : dot)
            for (size_t j = 0; j < h->HD; j++)
                dot += dout[j] * o[j];
        }
        memset(s, 0, first * sizeof *s);
        memset(ds, 0, first * sizeof *ds);
        for (size_t j = first; j < n; j++) {
            s[j] = exp2_fast(s[j] - lse);
            ds[j] = s[j] * (ds[j] - dot);
        }
        for (size_t j = n; j < columns; j++)
            s[j] = ds[j] = 0;
    }
}

/* Writes dq of one head; adds its part of dk (in units of ln 2) and dv. */
static void head_bwd(const struct rows_attention *r, const struct head *h, size_t head)
{
    const struct dev_attention *a = r->a;
    gather_queries(h, r, head);
    const struct columns dout_columns = {(void *)(uintptr_t)r->dout, r->type, h->C, head * h->HD},
                         dq_columns = {r->dqkv, r->type, h->stride, head * h->HD};
    gather(h->dout, h, dout_columns, 1.0f);
    for (size_t i0 = 0; i0 < h->length; i0 += BLOCK) {
        size_t rows = i0 + BLOCK < h->Lp ? BLOCK : h->Lp - i0;
        struct span block = block_columns(h, a, i0);
        size_t from = block.first, columns = block.end - from, at = from * h->Dp;
        const float *q = h->q + i0 * h->Dp, *dout = h->dout + i0 * h->Dp;
        scores(h, i0, rows, block);
        product((struct small){.c = h->ds,
                               .ldc = h->lds,
                               .a = dout,
                               .ai = h->Dp,
                               .ak = 1,
                               .b = h->vt + from,
                               .ldb = h->Lp,
                               .M = rows,
                               .N = columns,
                               .K = h->HD});
        softmax_bwd(r, h, head, i0, rows, block);
        product((struct small){.c = h->dv + at,
                               .ldc = h->Dp,
                               .a = h->s,
                               .ai = 1,
                               .ak = h->lds,
                               .b = dout,
                               .ldb = h->Dp,
                               .M = columns,
                               .N = h->Dp,
                               .K = rows,
                               .add = true});
        product((struct small){.c = h->dk + at,
                               .ldc = h->Dp,
                               .a = h->ds,
                               .ai = 1,
                               .ak = h->lds,
                               .b = q,
                               .ldb = h->Dp,
                               .M = columns,
                               .N = h->Dp,
                               .K = rows,
                               .add = true});
        product((struct small){.c = h->o,
                               .ldc = h->Dp,
                               .a = h->ds,
                               .ai = h->lds,
                               .ak = 1,
                               .b = h->k + at,
                               .ldb = h->Dp,
                               .M = rows,
                               .N = h->Dp,
                               .K = columns});
        for (size_t i = 0; i < rows * h->Dp; i++)
            h->o[i] *= a->scale;
        scatter(dq_columns, h, i0, rows, h->o);
    }
}

/* dk, dv of kv head `head`: the gradients of the query heads that share it are added in order. */
void ROWS_NAME(attention_bwd)(const struct rows_attention *r, size_t sequence, size_t head,
                              float *buf)
{
    struct head h = head_make(r, sequence, buf);
    size_t column = h.C + head * h.HD;
    gather_keys(&h, r, head);
    transpose(h.vt, h.v, &h);
    memset(h.dk, 0, h.Lp * h.Dp * sizeof *h.dk);
    memset(h.dv, 0, h.Lp * h.Dp * sizeof *h.dv);
    for (size_t i = 0; i < h.group; i++)
        head_bwd(r, &h, head * h.group + i);
    for (size_t i = 0; i < h.Lp * h.Dp; i++)
        h.dk[i] *= LN2;
    scatter((struct columns){r->dqkv, r->type, h.stride, column}, &h, 0, h.length, h.dk);
    scatter((struct columns){r->dqkv, r->type, h.stride, column + r->a->KVH * h.HD}, &h, 0,
            h.length, h.dv);
}

/* ---- between a library's products ---- */

/* The column of key x in the block, limited to 0 .. columns. */
static size_t column_of(const struct rows_scores *r, size_t x, size_t columns)
{
    size_t column = x > r->column0 ? x - r->column0 : 0;
    return column < columns ? column : columns;
}

/* Columns of the block that query i attends to. */
static struct span columns_seen(const struct rows_scores *r, size_t i, size_t columns)
{
    size_t query = r->row0 + i, end = r->causal ? query + 1 : r->length;
    size_t first = query > r->reach ? query - r->reach : 0;
    if (query >= r->length)
        return (struct span){0, 0};
    end = end < query + r->reach + 1 ? end : query + r->reach + 1;
    return (struct span){column_of(r, first, columns), column_of(r, end, columns)};
}

/* Probabilities over the keys of the block; the sum of a row is 1. A padded query, and a query that
 * attends to no key of the block, gets probabilities 0 and keeps its lse. */
void ROWS_NAME(scores_fwd)(const struct rows_scores *r, size_t rows, size_t columns)
{
    float scale = r->scale * (1.0f / LN2);
    for (size_t i = 0; i < rows; i++) {
        float *s = r->s + i * columns, inverse = 0;
        struct span seen = columns_seen(r, i, columns);
        for (size_t j = seen.first; j < seen.end; j++)
            s[j] *= scale;
        if (seen.end > seen.first)
            r->lse[i] = softmax_row(s, seen.first, seen.end, columns, &inverse);
        else
            memset(s, 0, columns * sizeof *s);
        for (size_t j = 0; j < columns; j++)
            r->p[i * columns + j] = bf16_round(s[j] * inverse);
    }
}

/* p = exp(scale s - lse), ds = scale p (dp - dot). */
void ROWS_NAME(scores_bwd)(const struct rows_scores *r, size_t rows, size_t columns)
{
    float scale2 = r->scale * (1.0f / LN2), scale = r->scale;
    for (size_t i = 0; i < rows; i++) {
        const float *s = r->s + i * columns, *dp = r->dp + i * columns;
        uint16_t *p = r->p + i * columns, *ds = r->ds + i * columns;
        struct span seen = columns_seen(r, i, columns);
        size_t first = seen.first, n = seen.end;
        float lse = n > first ? r->lse[i] * (1.0f / LN2) : 0.0f, dot = n > first ? r->dot[i] : 0.0f;
        memset(p, 0, first * sizeof *p);
        memset(ds, 0, first * sizeof *ds);
#pragma omp simd
        for (size_t j = first; j < n; j++) {
            float probability = exp2_fast(s[j] * scale2 - lse);
            p[j] = bf16_round(probability);
            ds[j] = bf16_round(probability * (dp[j] - dot) * scale);
        }
        memset(p + n, 0, (columns - n) * sizeof *p);
        memset(ds + n, 0, (columns - n) * sizeof *ds);
    }
}

float ROWS_NAME(dot)(const void *a, const void *b, enum dtype type, size_t n)
{
    float sum = 0, x[256], y[256];
    for (size_t i = 0; i < n; i += 256) {
        size_t count = n - i < 256 ? n - i : 256;
        const float *xv = row_view(x, a, type, i, count), *yv = row_view(y, b, type, i, count);
#pragma omp simd reduction(+ : sum)
        for (size_t j = 0; j < count; j++)
            sum += xv[j] * yv[j];
    }
    return sum;
}
