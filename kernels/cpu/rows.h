/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ROWS_H
#define ROWS_H
/* The inner loops of the CPU's fast set: plain C that the compiler vectorises, one thread, no
 * library. rows.c and attend.c are compiled once per level of x86-64 (v2 SSE4, v3 AVX2 + FMA, v4
 * AVX-512) and once plainly on other processors; cpu_open chooses a table by CPUID. The callers
 * choose threads, check shapes and provide scratch. Error bounds are at the ops in ops.c, linear.c
 * and attention.c. */
#include "kernels/base/level.h"
#include "kernels/dev.h"

struct rows_norm { /* forward and backward; the kernels say which members they read */
    const struct dev_norm_args *a;
    enum dtype type;
    void *y, *dx, *dbranch;
    const void *x, *residual, *dy, *dsum;
};

struct rows_attention {
    const struct dev_attention *a;
    enum dtype type;
    void *out, *dqkv;          /* forward writes out, backward dqkv */
    const void *dout, *out_in; /* backward reads both */
};

/* A block (rows,columns) of one sequence's scores; row i is query row0 + i, column j key column0 +
 * j. Queries or keys from length on are padding. */
struct rows_scores {
    float *s;         /* q k^T, not yet scaled; destroyed */
    float *dp;        /* backward: dout v^T */
    uint16_t *p, *ds; /* bf16: probabilities (both), gradient of q k^T (backward) */
    float *lse;       /* of query row0 on; forward writes, backward reads */
    float *dot;       /* backward: sum(dout out) of query row0 on */
    size_t row0, column0, length, reach; /* reach: of dev_attention_reach */
    bool causal;
    float scale;
};

struct rows_act { /* dy (rows, N) *= act'(pre) in place; dbias (N) += column sums of the result */
    void *dy;     /* read only with act NONE */
    float *dbias; /* NULL: not computed */
    const void *pre; /* (rows, N); NULL with act NONE */
    enum dev_act act;
    enum dtype type;
    size_t rows, N;
    size_t stride; /* elements from row to row of dy; 0: N. Only with act NONE */
};

struct rows_xent { /* one row of V logits; `width` >= V are stored, the rest gets gradient 0 */
    void *grad;    /* (width), in place of the logits or not; NULL: loss only */
    enum dtype type;
    float *logits;
    size_t V, width;
    int32_t target; /* negative: no loss */
    float grad_scale;
};

struct rows_optim { /* a chunk of one range, at its first element; model NULL: no copy */
    float *p, *m, *v;
    const float *g;
    uint16_t *model;
};

struct rows_matrix { /* columns of one row of a matrix, at its first element */
    struct rows_optim at;
    float row[OPT_LINES];           /* values of the row */
    const float *column[OPT_LINES]; /* values of the columns */
    float *into[OPT_LINES]; /* sums or maxima of the columns, which grow by this row; NULL with
                               OPT_TOTAL */
};

#define ROWS(X)                                                                                    \
    X(void, convert,                                                                               \
      (void *to, enum dtype to_type, const void *from, enum dtype from_type, size_t n))            \
    X(void, add, (void *y, const void *a, const void *b, enum dtype type, size_t n))               \
    X(void, accumulate, (float *sum, const void *x, enum dtype type, size_t n)) /* sum += x */     \
    X(void, scale, (float *x, float s, size_t n))                                                  \
    X(double, sumsq, (const float *x, size_t n))                                                   \
    X(void, act_fwd, (void *y, const void *pre, enum dev_act act, enum dtype type, size_t n))      \
    X(void, act_bwd, (const struct rows_act *r))                                                   \
    /* Row number `row` (C) as floats, in place: see dev_dropout. */                               \
    X(void, dropout, (float *x, const struct dev_dropout *a, size_t row, size_t C))                \
    /* One token: the first heads of its row turn by the angles of table (HD); see dev_rope. */    \
    X(void, rope,                                                                                  \
      (void *row, const float *table, enum dtype type, size_t heads, size_t HD, bool inverse))     \
    /* One row: y, dy (F); x, dx (2F), dx may be x. */                                             \
    X(void, gated_fwd, (void *y, const void *x, enum dev_gate gate, enum dtype type, size_t F))    \
    X(void, gated_bwd,                                                                             \
      (void *dx, const void *dy, const void *x, enum dev_gate gate, enum dtype type, size_t F))    \
    /* buf: 2 C floats (forward), 3 C (backward). dgain, dbias += over rows begin .. end. */       \
    X(void, norm_fwd, (const struct rows_norm *n, size_t begin, size_t end, float *buf))           \
    X(void, norm_bwd,                                                                              \
      (const struct rows_norm *n, float *dgain, float *dbias, size_t begin, size_t end,            \
       float *buf))                                                                                \
    X(float, xent, (const struct rows_xent *r)) /* returns the loss */                             \
    /* Sums of the chunk: x[0 .. count of the rule). */                                            \
    X(struct opt_sums, range_reduce,                                                               \
      (enum opt_reduce rule, const struct rows_optim *r, const struct opt_scalars *k, size_t n))   \
    X(void, range_update,                                                                          \
      (enum opt_update rule, const struct rows_optim *r, const struct opt_scalars *k, size_t n))   \
    /* Sums, or maxima, of the row. */                                                             \
    X(struct opt_sums, matrix_reduce,                                                              \
      (enum opt_matrix_reduce rule, const struct rows_matrix *r, const struct opt_scalars *k,      \
       size_t n))                                                                                  \
    X(void, matrix_update,                                                                         \
      (enum opt_matrix_update rule, const struct rows_matrix *r, const struct opt_scalars *k,      \
       size_t n))                                                                                  \
    /* One sequence; forward: one head, backward: all heads that share keys and values `head`.     \
     * buf: attention_floats(longest sequence, HD) floats, 64-byte aligned. */                     \
    X(size_t, attention_floats, (size_t length, size_t HD))                                        \
    X(void, attention_fwd,                                                                         \
      (const struct rows_attention *r, size_t sequence, size_t head, float *buf))                  \
    X(void, attention_bwd,                                                                         \
      (const struct rows_attention *r, size_t sequence, size_t head, float *buf))                  \
    /* The largest scaled score of one head; of r only a and type are read. */                     \
    X(float, attention_largest,                                                                    \
      (const struct rows_attention *r, size_t sequence, size_t head, float *buf))                  \
    /* Softmax and its gradient between the matrix products of a library; see rows_scores. */      \
    X(void, scores_fwd, (const struct rows_scores *r, size_t rows, size_t columns))                \
    X(void, scores_bwd, (const struct rows_scores *r, size_t rows, size_t columns))                \
    X(float, dot, (const void *a, const void *b, enum dtype type, size_t n))

struct rows {
    const char *isa;
#define X(result, name, arguments) result(*name) arguments;
    ROWS(X)
#undef X
};

#if defined(__x86_64__)
extern const struct rows rows_v2, rows_v3, rows_v4;
#else
extern const struct rows rows_plain;
#endif

/* Inside rows.c and attend.c: ROWS_NAME(add) is add_v3 when compiled with -DISA=v3. */
#ifdef ISA
#define ROWS_NAME(name)            LEVEL_NAME(name)
#define ROWS_TEXT(x)               #x
#define ROWS_TEXT2(x)              ROWS_TEXT(x)
#define X(result, name, arguments) result ROWS_NAME(name) arguments;
ROWS(X)
#undef X

/* A row as floats: the row itself where it is f32, a converted copy in buf where it is bf16. */
static inline void row_load(float *to, const void *base, enum dtype type, size_t offset, size_t n)
{
    if (type == DTYPE_F32) {
        memcpy(to, (const float *)base + offset, n * sizeof *to);
        return;
    }
    const uint16_t *from = (const uint16_t *)base + offset;
    for (size_t i = 0; i < n; i++)
        to[i] = bf16_float(from[i]);
}

static inline void row_store(void *base, enum dtype type, size_t offset, const float *from,
                             size_t n)
{
    if (type == DTYPE_F32) {
        memcpy((float *)base + offset, from, n * sizeof *from);
        return;
    }
    uint16_t *to = (uint16_t *)base + offset;
    for (size_t i = 0; i < n; i++)
        to[i] = bf16_round(from[i]);
}

static inline const float *row_view(float *buf, const void *base, enum dtype type, size_t offset,
                                    size_t n)
{
    if (type == DTYPE_F32)
        return (const float *)base + offset;
    row_load(buf, base, type, offset, n);
    return buf;
}

/* Largest of n >= 1 floats, in sixteen running maxima: clang 14 does not vectorise a maximum that
 * might meet a NaN. A NaN is skipped here and appears in the sums that follow. */
static inline float row_max(const float *x, size_t n)
{
    float lane[16], top = x[0];
    size_t i = 0;
    for (size_t j = 0; j < 16; j++)
        lane[j] = top;
    for (; i + 16 <= n; i += 16)
        for (size_t j = 0; j < 16; j++)
            lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    for (; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (size_t j = 0; j < 16; j++)
        top = lane[j] > top ? lane[j] : top;
    return top;
}
#endif

#endif
