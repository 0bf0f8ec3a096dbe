/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEV_H
#define DEV_H
/* The device interface: memory, one stream of work, and one list of ops that the CPU and the GPU
 * both implement. A missing op of a backend is a link error. DEV_OPS states what each op does:
 * shapes, dtypes, in place or not, exact or with an error bound. The CPU op is the specification.
 *
 * "model type" is the dtype of activations and of the weights that matrix products read
 * (dev->model_type: f32 or bf16). Gradients, moments, master weights, statistics and losses are
 * always f32. Ops return nothing and may be asynchronous; dev_sync() returns the first failure.
 * Pointers are device memory unless a comment says host; the caller owns them and keeps them valid
 * until the op is done. One thread at a time uses a dev; it may be any thread of the process.
 * Several devs may share a GPU.
 *
 * Letters: T tokens, C channels, V vocabulary, VP padded vocabulary (rows of the table), NH heads,
 * HD head dimension, N out-features, K in-features. All matrices are row-major; linear weights are
 * (N, K).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "kernels/base/arena.h"
#include "kernels/scalar/opt.h"
#include "kernels/scalar/outer_opt.h"
#include "kernels/scalar/types.h"

enum dtype { DTYPE_F32, DTYPE_BF16 };
static inline size_t dtype_size(enum dtype t)
{
    return t == DTYPE_F32 ? 4 : 2;
}

enum dev_norm { DEV_NORM_LAYER, DEV_NORM_RMS, DEV_NORM_NONE };
enum dev_act { DEV_ACT_NONE, DEV_ACT_GELU_TANH, DEV_ACT_GELU_ERF, DEV_ACT_TANH };

struct dev;

struct dev_linear {    /* y = act(x w^T + bias);  backward of the same */
    const void *x;     /* (T, K) model type */
    const void *w;     /* (N, K) model type */
    const float *bias; /* (N) f32 or NULL */
    size_t T, K, N;
    enum dev_act act; /* applied to y; then pre must be given */
    void
        *pre; /* (T, N) model type: x w^T + bias before act, saved for backward; NULL if act NONE */
};
struct dev_linear_grad {
    const void *dy; /* (T, N) model type, read: gradient of x w^T + bias. A layer with an act: its
                       dy comes from the following layer, which applied act' (fields below) */
    void *dx;       /* (T, K) model type, overwritten; NULL: not computed */
    float *dw;      /* (N, K) f32, +=; NULL: not computed, the layer is frozen */
    float *dbias;   /* (N) f32, +=; NULL: no bias, or the following layer computed it (pre_dbias) */
    /* The preceding layer ends in an activation, x = act(pre): dx becomes the gradient of pre, and
     * the column sums of dx are the bias gradient of that layer. */
    enum dev_act act;
    const void *pre;  /* (T, K) model type; NULL with act NONE */
    float *pre_dbias; /* (K) f32, +=; NULL: not computed, or act NONE */
};
struct dev_matmul {    /* c = op(a) op(b), rows dense */
    const void *a, *b; /* model type: a (M, K), or (K, M) with a_t; b (K, N), or (N, K) with b_t */
    void *c;           /* (M, N), overwritten; neither a nor b */
    enum dtype out;    /* of c: the model type, or f32 */
    size_t M, N, K;
    bool a_t, b_t;
};
struct dev_embed {
    const void *wte, *wpe; /* (VP, C), (positions, C) model type; wpe NULL: no position embedding */
    const int32_t *tokens; /* (T) */
    const int32_t *positions; /* (T) */
    size_t T, C, VP;
    const void *wtt;      /* (types_count, C) model type; NULL: no token types */
    const int32_t *types; /* (T) */
    size_t types_count;   /* at most DEV_TYPES_MAX */
};
enum { DEV_TYPES_MAX = 8 };
struct dev_embed_grad {
    const void *dx;            /* (T, C) model type */
    float *dwte, *dwpe, *dwtt; /* tables, +=; NULL: not computed */
};
struct dev_activation { /* y = act(pre) of a layer whose output no linear layer reads */
    enum dev_act act;
    const void *pre; /* (T, N) model type */
    size_t T, N;
};
struct dev_gated {
    enum dev_gate gate; /* act: silu (Llama), GELU by erf (ModernBERT) or tanh */
    size_t T, F;
};
/* Dropout and scale of x (T, C): an element becomes 0 with probability `rate`, otherwise it is
 * divided by 1 - rate; then it is multiplied by *scale. The mask depends on seed, place, keys and
 * the column alone (scalar/dropout.h): it is the same on every device, and backward computes it
 * again. C is below 2^19. */
struct dev_dropout {
    float rate;           /* 0 <= rate < 1, in steps of 2^-16 */
    uint64_t seed;        /* of the run */
    uint32_t place;       /* number of the dropout in the model, below 2^16 */
    const uint64_t *keys; /* (T) step << 32 | the row's number in the step of the site, the
                             same in any rank and micro-batch; NULL with rate 0 */
    const float *scale;   /* device scalar; NULL: 1. A layer that runs with probability p has 1/p */
};
/* Selection of R rows of a matrix (T, C), or of R runs of rows, of which the mean is taken. */
struct dev_rows {
    const int32_t
        *rows; /* (R) below T, each at most once; negative: no row, rows_gather writes zeros */
    const int32_t *lengths; /* (R) rows of a run, 1 or more, that begins at rows[r], apart from all
                               others; NULL: 1 */
    size_t R, T, C;
    bool add; /* rows_scatter adds to dx and does not overwrite it */
};
/* The standardization loss of the rows x (T, C) (Collins, Balle, Shlens 2019, 1903.00925): with
 * mean mu and biased variance v of each channel over the rows, the loss is the sum over channels
 * of (mu^2 + v - log v - 1) / 2. Below `floor` the tangent replaces log v, so 1/v in the gradient
 * is at most 1 / floor. */
struct dev_standard {
    size_t T, C;
    float floor;
    const float *weight; /* device scalar, multiplies loss and gradient */
};
/* Orthogonality of classifiers of the same classes (Malkiel & Wolf 2021, 1911.06182): the sum, over
 * the classes and over the pairs of heads, of |cos| of the two heads' weights of the class. A row
 * of norm 0 is orthogonal to every other. */
enum { DEV_HEADS_MAX = 16 };
struct dev_orthogonal {
    size_t heads, classes, C; /* heads at most DEV_HEADS_MAX */
    size_t stride;            /* elements between the weights (classes, C) of two heads */
    const float *weight;      /* device scalar, multiplies loss and gradient */
};
struct dev_norm_args {
    enum dev_norm kind;
    float eps;
    size_t T, C;
    const float *gain; /* (C) */
    const float *bias; /* (C), NULL for RMS */
    void *sum;         /* (T, C) model type: input of the norm; written by fwd, read by bwd */
    float *mean;       /* (T), LAYER only; written by fwd, read by bwd */
    float *rstd;       /* (T); written by fwd, read by bwd */
    /* Dropout and scale of x before the residual is added; NULL: none. Needs sum. */
    const struct dev_dropout *branch;
};
struct dev_norm_grad {
    const void *dy;   /* (T, C) model type */
    const void *dsum; /* (T, C) model type: gradient of sum by its other uses; NULL: 0 */
    void *dx;         /* (T, C) model type, overwritten; may alias dsum */
    float *dgain;     /* (C), +=; NULL: not computed, nor dbias */
    float *dbias;     /* (C), +=; not read for RMS */
    void *dbranch;    /* (T, C) model type, overwritten: gradient of x if there is a branch (dx is
                         then that of the residual alone); not dx, dsum or dy */
};
struct dev_attention {
    const void *qkv;           /* (T, (NH + 2 KVH) HD): q | k | v, heads contiguous in each */
    const int32_t *cu_seqlens; /* host AND device copies: (sequences + 1), 0 .. T */
    const int32_t *cu_seqlens_host;
    size_t sequences, T, NH, HD;
    size_t KVH; /* heads of k and v, divides NH: query head h reads kv head h / (NH / KVH)
                   (grouped queries, Ainslie et al. 2023, 2305.13245); KVH = NH: multi-head */
    bool causal;
    size_t window; /* query i attends to key j if |i - j| <= window / 2, as in ModernBERT; 0:
                      the whole sequence. Time is proportional to it */
    float scale;   /* usually 1/sqrt(HD) */
    float *lse;    /* (NH, T) f32 log-sum-exp, written by fwd, read by bwd */
};
/* Largest distance between a query and a key it attends to; larger than any length if there is no
 * window. */
enum { DEV_REACH_ALL = 1 << 29 };
static inline size_t dev_attention_reach(const struct dev_attention *a)
{
    size_t all = DEV_REACH_ALL;
    return a->window && a->window / 2 < all ? a->window / 2 : all;
}
/* Rotary position embedding (Su et al. 2021, 2104.09864): rotates elements i and i + HD/2 of each
 * head by the angle position * theta^(-2i/HD). Llama's weights on Hugging Face pair elements so. */
struct dev_rope {
    const float *table;       /* (positions, HD) f32: HD/2 cosines, then HD/2 sines */
    const int32_t *positions; /* (T) */
    size_t T, heads, HD;      /* HD even; the op rotates the first `heads` heads of each row */
    size_t stride;            /* elements of a row */
    bool inverse;             /* rotates by the negative angles: the backward pass */
};
/* On a GPU in bf16 the logits of a pass with gradients are rounded to bf16, as PyTorch's autocast
 * does: a loss then has an error of up to 2^-8 of the largest logit. Losses alone (dx NULL) are of
 * f32 logits on every device. */
struct dev_classifier {
    const void *x;          /* (T, C) model type */
    const void *w;          /* (VP, C) model type */
    const int32_t *targets; /* (T); negative: no loss at this position */
    size_t T, C, V, VP;
    float grad_scale;  /* multiplies every gradient, usually 1 / tokens in the batch */
    float *losses;     /* (T) f32: -log p(target), 0 where ignored */
    void *dx;          /* (T, C) model type, overwritten; NULL: loss only */
    float *dw;         /* (VP, C) f32, +=; NULL: not computed, or dx NULL */
    const float *bias; /* (VP) f32, added to the logits; NULL: none */
    float *dbias;      /* (VP) f32, +=; NULL: not computed, or dx NULL */
};
/* Memory for logits. The classifier computes them in even chunks of rows, because all logits of
 * GPT-2 take 200 KiB for each token in f32. Each chunk reads and writes dw once more, so a chunk
 * has a least number of rows: for 256 rows of 50304 logits at C = 512, two CPU cores take 30 ms for
 * the matrix products and 6 ms for dw. On a GPU with 4.3 TB/s and 65,536 tokens of GPT-2, 512 MiB
 * of bf16 mean 13 passes over dw: 0.9 ms, and 25 ms for the matrix products (computed). */
enum {
    DEV_LOGITS_CPU = 64 << 20,
    DEV_LOGITS_CUDA = 512 << 20,
    DEV_LOGIT_ROWS_MIN = 256
}; /* bytes */
static inline size_t dev_logit_rows(size_t most_bytes, size_t T, size_t row_bytes)
{
    size_t most = most_bytes / row_bytes;
    if (most < DEV_LOGIT_ROWS_MIN)
        most = DEV_LOGIT_ROWS_MIN;
    size_t chunks = (T + most - 1) / most;
    return chunks > 1 ? (T + chunks - 1) / chunks : T;
}
/* Limit of the memory of cuDNN's attention on a GPU where the configuration does not name cuDNN:
 * its deterministic backward stores a bf16 of each score, 768 MiB for 32,768 tokens of GPT-2 in
 * sequences of 1024. */
enum { DEV_ATTENTION_CUDA = 1 << 30 }; /* bytes */
/* Columns of logits that the CPU computes: V rounded up to whole cache lines. The GPU computes all
 * VP. */
static inline size_t dev_logit_width(size_t V, size_t VP)
{
    size_t width = (V + 31) / 32 * 32;
    return width < VP ? width : VP;
}
/* On the CPU: elements from row to row where rows are read a few columns at a time. Rows that lie a
 * multiple of 2 KiB apart share cache sets: the f32 product dy^T x of 512 and 128 columns runs at
 * two thirds of its rate, that of 4,096 and 128 at a third. Such rows lie 64 bytes further apart.
 */
static inline size_t dev_rows_apart(enum dtype type, size_t columns)
{
    enum { SHARED_SETS = 512, LINE = 16 };
    return type == DTYPE_F32 && columns % SHARED_SETS == 0 ? columns + LINE : columns;
}
/* Narrow arithmetic in the products of linear layers, classifier and logits; all 0: none. On the
 * CPU emulated in f32, slow: see scalar/narrow.h; a GPU has DEV_FP8_HYBRID alone. */
enum dev_fp8 {
    DEV_FP8_NONE,
    DEV_FP8_E5M2,  /* operands are rounded to E5M2, to nearest, saturated */
    DEV_FP8_HYBRID /* to E4M3, gradients to E5M2, a scale for each operand: scalar/fp8.h */
};
struct dev_emulation {
    enum dev_fp8 fp8;
    int accumulator; /* bits of mantissa of a sum, rounded after every addition; 0: as the library
                      */
    size_t chunk;    /* with accumulator: terms that are summed apart first; 0: one level */
};

/* Size of a model, from which dev_workspace() computes the device memory that the ops allocate for
 * themselves. T: tokens of a micro-batch; N: out-features of the widest linear layer. */
struct dev_shape {
    enum dtype type;
    bool train;
    size_t T, C, N, NH, V, VP, elements;
    size_t S; /* tokens of a sequence */
    struct dev_emulation emulation;
    const char *attention; /* of dev_options */
};
struct dev_workspace { /* bytes */
    size_t logits;     /* of the classifier's chunk */
    size_t gemm;       /* workspace of the GEMM library, and operands in narrow arithmetic */
    size_t ops;        /* partial sums, sorted tokens, tables */
    size_t code; /* GPU: kernels of the program and of the libraries, which the driver loads at
                    their first use; an estimate */
};
struct dev_workspace dev_workspace(const char *kind, const struct dev_shape *s);
struct dev_range { /* contiguous elements of every slab */
    size_t offset, count;
};
struct dev_clip { /* device scalars; max_norm is a host value */
    const double *sumsq, *loss, *targets;
    float max_norm;
};
struct dev_matrix_pass {           /* the memory is on the device */
    const struct dev_matrix *list; /* (n): range r as a matrix; made by dev_matrices */
    size_t tiles;                  /* of all matrices */
    size_t longest;                /* most lines of a matrix */
    float *lines;                  /* values of rows and columns */
    float *partial;                /* of tiles, (partial floats of dev_matrices) */
};
struct dev_optim {    /* one pass of an inner optimizer over ranges. All slabs f32, same offsets */
    float *p, *m, *v; /* parameters, moments; m, v NULL where the optimizer has no such slab */
    float *g;         /* gradient; only Muon writes it */
    void *model;      /* bf16 copy of p, rewritten by an update; NULL when the type is f32 */
    const float *gscale; /* device scalar, multiplies g (clip_scale op); NULL: 1. NaN: the op
                            changes no slab */
    struct opt_scalars k;
    const struct dev_range *ranges; /* host, (n): tensors, or a rank's parts of them */
    const struct opt_group *groups; /* device, (n): of each range at this step */
    size_t n;
    unsigned kind;        /* of the ranges that the pass runs on (opt_group) */
    const size_t *second; /* host, (n): where v has the elements of each range, a multiple of 4;
                             NULL: at the range's offset */
    double *sums; /* (OPT_SUMS, sums_stride) device: sum j of range r is sums[j * sums_stride +
                     r]; NULL where the rule has none */
    size_t sums_stride;            /* >= n */
    struct dev_matrix_pass matrix; /* of passes over matrices alone */
};
/* A range as a matrix, one row after the other; a vector is one row. Value j of row i is
 * lines[at + j * (rows + columns) + i] with at = matrix.lines, that of column i lies `rows` values
 * after it. */
struct dev_matrix {
    size_t offset, rows, columns; /* elements of every slab; what lies after them is left alone */
    size_t lines;
    size_t partial, tile; /* where its own begin */
};
enum { DEV_TILE_ROWS = 64, DEV_TILE_COLUMNS = 256 };
struct dev_matrices { /* totals of a list */
    size_t lines, partial, tiles, longest;
};
/* Appends a matrix whose offset, rows and columns are given: sets the rest of *x from the totals,
 * and adds it to them. */
void dev_matrices_add(struct dev_matrices *all, struct dev_matrix *x);
static inline size_t dev_row_tiles(const struct dev_matrix *x)
{
    return (x->rows + DEV_TILE_ROWS - 1) / DEV_TILE_ROWS;
}
static inline size_t dev_column_tiles(const struct dev_matrix *x)
{
    return (x->columns + DEV_TILE_COLUMNS - 1) / DEV_TILE_COLUMNS;
}
struct dev_moments {
    const float *v, *fresh;
    float eps;
    const struct dev_range *ranges; /* device, (n) */
    size_t n;
};
struct dev_encode { /* consecutive blocks */
    enum dev_form form;
    size_t count;          /* values, a multiple of DEV_BLOCK */
    const uint8_t *grid;   /* (count/256) codes of the grid: DEV_INT*, DEV_SIGN */
    uint64_t seed, stream; /* DEV_E5M2_RANDOM: seed and stream of the random bits */
    size_t first;          /* DEV_E5M2_RANDOM: number of the first block in the fragment */
    uint8_t *code;         /* (count/256), written */
    uint8_t *present;      /* (count/256), written */
};
struct dev_decode {
    enum dev_form form;
    size_t count; /* values, a multiple of DEV_BLOCK */
    const uint32_t
        *slot;           /* (count/256) index of the block in the input; DEV_ABSENT: values are 0 */
    const uint8_t *code; /* (count/256) codes of the grid: DEV_INT*, DEV_SIGN; codes of the payload:
                            DEV_E4M3, DEV_E5M2 */
    /* DEV_INT*, DEV_SIGN: sums of m payloads, u in `bits` bits each. DEV_INT*: q = u - bias;
     * DEV_SIGN: q = 2u - m. *overflow (device) becomes 1 where q is above bias or m. */
    unsigned bits;
    int32_t bias;
    const uint16_t *signs; /* DEV_SIGN: m (count/256) */
    uint32_t *overflow;
    bool add; /* adds to z; not with DEV_INT*, DEV_SIGN */
    float divisor;
};
struct dev_unpack {
    const uint32_t *slot; /* (count/256), as in dev_decode */
    int32_t bias;
    unsigned bits; /* of a value */
    bool add;
    size_t count; /* values, a multiple of DEV_BLOCK */
};
struct dev_delta {
    const float *outer, *local, *residual;
    float weight;
    size_t count;
};
struct dev_residual_check {
    const float *sent, *residual, *z;
    float tolerance; /* share of |sent| */
    size_t count;
};
struct dev_outer_step {
    float *theta, *slab[OUTER_SLABS]; /* NULL: the optimizer keeps fewer */
    const float *mean;
    struct outer_scalars k;
    size_t count;
};
/* One bit for each value of some ranges, and one scale for each range: with z = x + error the bit
 * says z >= 0, and the scale is the root mean square of z. Bit i % 8 of byte i / 8 belongs to
 * element i, which x, error, mask and ranges count alike. */
struct dev_sign_sum {
    double squares, count;
};
struct dev_sign_encode {
    const float *x;
    float *error; /* becomes what the signs lose, z - (+-scale); NULL: z = x, nothing is kept */
    const float *mask; /* elements where it is 0 are left out: error 0, bit 1; NULL: none */
    const float *stop; /* device scalar; NaN: the op writes nothing; NULL: it always does */
    const struct dev_range *ranges; /* device, (n); offsets are multiples of DEV_BLOCK */
    size_t n, longest;              /* longest: the most elements of a range */
    float *scales;                  /* (n), written */
    struct dev_sign_sum *sums;      /* scratch: (n x runs of DEV_RUN in the longest range) */
};
struct dev_sign_decode {            /* the mean of `parts` encodings, added in order */
    const float *mask, *stop;       /* as above; x becomes 0 where mask is 0 */
    const struct dev_range *ranges; /* device, (n) */
    size_t n, longest, parts;
    const uint8_t *bits;
    size_t bits_stride; /* bytes from part to part */
    const float *scales;
    size_t scales_stride; /* values from part to part */
};
struct dev_lerp {
    const struct dev_range *ranges; /* host */
    size_t n;
    float alpha;
    bool positive;
};
struct dev_random { /* random bits are f(seed, RNG_ROUND, step, element) */
    uint64_t seed, step;
    size_t first; /* element number of x[0], a multiple of 8 */
};
struct dev_narrow {         /* random bits are f(seed, RNG_MASTER, step, element) */
    int exponent, mantissa; /* bits: scalar/narrow.h */
    bool stochastic;        /* else to nearest, ties to even */
    uint64_t seed, step;
    size_t first;        /* element number of x[0] */
    const float *gscale; /* device: NaN: x stays; NULL: 1 */
};
#define DEV_ABSENT UINT32_MAX
enum {
    DEV_RUN = 16384
}; /* values of a partial sum of range_reduce and sumsq_diff; then the partial sums are added */

/* ---- the list of ops: X(name, (arguments)) ---- */
#define DEV_OPS(X) DEV_OPS_FAST(X) DEV_OPS_EXACT(X)
#define DEV_OPS_FAST(X)                                                                            \
    /* ---- fast set: error bounds in kernels/cpu at each op ---- */                               \
    /* x (T,C) = wte[tokens] + wpe[positions] + wtt[types]: see struct dev_embed. */               \
    X(embed_fwd, (struct dev * d, void *x, const struct dev_embed *a))                             \
    /* dwte, dwpe, dwtt += rows of dx. Rows of a token are added in order of position at every     \
     * thread count. Does not read the tables of a. */                                             \
    X(embed_bwd, (struct dev * d, const struct dev_embed *a, const struct dev_embed_grad *g))      \
    /* a->sum = x + residual (residual NULL: sum = x, and sum may be x or NULL), x after           \
     * a->branch; y = norm(sum). Writes a->mean and a->rstd for backward. sum may alias x.         \
     * DEV_NORM_NONE: y = sum, and y is NULL or sum. */                                            \
    X(norm_fwd, (struct dev * d, void *y, const void *x, const void *residual,                     \
                 const struct dev_norm_args *a))                                                   \
    /* g->dx = g->dsum (NULL: 0) + norm'(g->dy); dgain, dbias += their gradients; g->dbranch =     \
     * g->dx after a->branch. Reads sum, mean and rstd of norm_fwd. DEV_NORM_NONE: dy NULL is 0,   \
     * and nothing of norm_fwd is read. */                                                         \
    X(norm_bwd, (struct dev * d, const struct dev_norm_args *a, const struct dev_norm_grad *g))    \
    /* y = act(x w^T + bias): see struct dev_linear. */                                            \
    X(linear_fwd, (struct dev * d, void *y, const struct dev_linear *a))                           \
    /* dx, dw, dbias: see struct dev_linear_grad. */                                               \
    X(linear_bwd, (struct dev * d, const struct dev_linear *a, const struct dev_linear_grad *g))   \
    /* out (T, NH HD) model type = softmax(scale q k^T) v per head within each sequence. */        \
    X(attention_fwd, (struct dev * d, void *out, const struct dev_attention *a))                   \
    /* dqkv (layout of qkv), overwritten, from dout (T, NH HD), out and lse of attention_fwd. */   \
    X(attention_bwd, (struct dev * d, void *dqkv, const void *dout, const void *out,               \
                      const struct dev_attention *a))                                              \
    /* *largest (1) f32 = the larger of itself and the largest score scale q k^T of any head,      \
     * query and key that it attends to. Does not write a->lse. */                                 \
    X(attention_largest, (struct dev * d, float *largest, const struct dev_attention *a))          \
    /* Rotates the heads of x in place: see struct dev_rope. */                                    \
    X(rope, (struct dev * d, void *x, const struct dev_rope *r))                                   \
    /* dy (T,N) *= act'(pre), in place; dbias (N) f32 += its column sums. */                       \
    X(activation_bwd, (struct dev * d, void *dy, float *dbias, const struct dev_activation *a))    \
    /* y (T,F) = act(gate) up, x (T,2F) = gate | up. */                                            \
    X(gated_fwd, (struct dev * d, void *y, const void *x, const struct dev_gated *a))              \
    /* dx (T,2F) from dy (T,F) and x of gated_fwd; dx may be x. */                                 \
    X(gated_bwd,                                                                                   \
      (struct dev * d, void *dx, const void *dy, const void *x, const struct dev_gated *a))        \
    /* y = dropout and scale of x; y may be x. Backward is the same op on the gradient. */         \
    X(dropout,                                                                                     \
      (struct dev * d, void *y, const void *x, const struct dev_dropout *a, size_t T, size_t C))   \
    /* y (R,C) = rows a->rows of x (T,C), or the means of the runs there. */                       \
    X(rows_gather, (struct dev * d, void *y, const void *x, const struct dev_rows *a))             \
    /* Rows a->rows of dx (T,C) = dy (R,C), the others = 0; with a->add: += dy. Each row of a run: \
     * dy / its length. */                                                                         \
    X(rows_scatter, (struct dev * d, void *dx, const void *dy, const struct dev_rows *a))          \
    /* dx (T,C; NULL: not computed) += the gradient; *loss (device) += the loss. */                \
    X(standard,                                                                                    \
      (struct dev * d, void *dx, double *loss, const void *x, const struct dev_standard *a))       \
    /* w, dw: f32, the first head's weights. dw += the gradient; *loss (device) += the loss. */    \
    X(orthogonal,                                                                                  \
      (struct dev * d, float *dw, double *loss, const float *w, const struct dev_orthogonal *a))   \
    /* Fused softmax cross-entropy over x w^T, in chunks of rows: (T,V) logits never exist         \
     * whole. See struct dev_classifier. */                                                        \
    X(classifier, (struct dev * d, const struct dev_classifier *a))                                \
    /* logits (T,N) f32 = x w^T + bias, without act, for few rows: text generation, evaluation. */ \
    X(logits, (struct dev * d, float *logits, const struct dev_linear *a))                         \
    /* y = a + b, model type; y may alias a or b. */                                               \
    X(add, (struct dev * d, void *y, const void *a, const void *b, size_t count))                  \
    /* *out (device) = sum of x^2; the same bits at every thread count. */                         \
    X(sumsq, (struct dev * d, double *out, const float *x, size_t count))                          \
    /* *out (device): factor that turns a gradient summed over targets into the clipped mean.      \
     * With norm = sqrt(*sumsq) / *targets it is (norm > max_norm > 0 ? max_norm / norm : 1) /     \
     * *targets; 0 without targets. NaN, which stops the update, where *sumsq or *loss is not      \
     * finite. */                                                                                  \
    X(clip_scale, (struct dev * d, float *out, const struct dev_clip *a))                          \
    /* *sum (device) += sum of x, in double; the same bits at every thread count. */               \
    X(sum_add, (struct dev * d, double *sum, const float *x, size_t count))                        \
    /* x *= s (host scalar), f32. */                                                               \
    X(scale, (struct dev * d, float *x, float s, size_t count))                                    \
    /* x *= *s (device scalar), f32; nothing is written where *s is 1. */                          \
    X(scale_by, (struct dev * d, float *x, const float *s, size_t count))                          \
    /* out = x in the model type, rounded to nearest even. */                                      \
    X(cast, (struct dev * d, void *out, const float *x, size_t count))                             \
    /* One pass of an optimizer that computes sums over each range (scalar/opt.h): reads the       \
     * sums of earlier passes, writes the sums of this rule, and changes the moments that the      \
     * rule names. Sums are taken over DEV_RUN values of a range, then added: a tensor cut at      \
     * multiples of DEV_RUN has the same sum up to 1e-15. A range whose group is not active keeps  \
     * its moments and its sums. */                                                                \
    X(range_reduce, (struct dev * d, enum opt_reduce rule, const struct dev_optim *a))             \
    /* The pass that updates p, and model, with the sums of range_reduce, which the ranks may      \
     * have reduced; not of a range whose group is not active. */                                  \
    X(range_update, (struct dev * d, enum opt_update rule, const struct dev_optim *a))             \
    /* largest (n): of each range the largest (sqrt(v) + eps) / (sqrt(fresh) + eps); 0 for an      \
     * empty one. */                                                                               \
    X(range_moments, (struct dev * d, float *largest, const struct dev_moments *a))                \
    /* c = op(a) op(b): see struct dev_matmul. Sums in f32. */                                     \
    X(matmul, (struct dev * d, const struct dev_matmul *a))                                        \
    /* Muon: x, as many elements as range r of a, in the model type, = u / (||u|| + 1e-7), with    \
     * the sum that range_reduce has made. Where that one changes no slab, x is undefined. */      \
    X(muon_input, (struct dev * d, void *x, const struct dev_optim *a, size_t r))                  \
    /* Muon: s (n,n) = a I + b x + c s for x (n,n), model type; a, b, c: p. */                     \
    X(muon_polynomial,                                                                             \
      (struct dev * d, void *s, const void *x, const struct opt_polynomial *p, size_t n))          \
    /* One pass over matrices that sums terms of the elements, or takes their maxima, over rows    \
     * and over columns: sets the lines that the rule names from what they were and from the mean  \
     * or maximum, and sums[] to the sum or maximum over the lines of the rows; changes the        \
     * moments that the rule names. Added tile by tile, then tiles in order. A matrix whose group  \
     * takes no part keeps all. */                                                                 \
    X(matrix_reduce, (struct dev * d, enum opt_matrix_reduce rule, const struct dev_optim *a))     \
    /* The pass that updates p, and model, with the lines and sums of matrix_reduce. */            \
    X(matrix_update, (struct dev * d, enum opt_matrix_update rule, const struct dev_optim *a))
#define DEV_OPS_EXACT(X)                                                                           \
    /* ---- exact set: same bits on every device, compiler, thread count ---- */                   \
    /* z = weight * (outer - local) + residual, each operation rounded once, f32. z may be any     \
     * of the inputs. */                                                                           \
    X(outer_delta, (struct dev * d, float *z, const struct dev_delta *a))                          \
    /* code (count/256): 0 for an all-zero block, else clamp(ilogb(mean of z^2) + 128, 1, 254);    \
     * 255 when the block has a value that is not finite. The mean is in double, in a fixed        \
     * order: scalar/grid.h. */                                                                    \
    X(block_code, (struct dev * d, uint8_t * code, const float *z, size_t count))                  \
    /* out (blocks in a->form, consecutive, 16-byte aligned); a->code: as block_code;              \
     * a->present: 0 where all codes of the block stand for 0; residual = z - decoded values,      \
     * exact for every finite z except with DEV_SIGN (scalar/forms.h); residual may be z. A        \
     * block that is not finite has code 255; its other outputs are undefined. Reads and writes    \
     * 8 bytes a value, and out. */                                                                \
    X(block_encode, (struct dev * d, uint8_t * out, float *residual, const float *z,               \
                     const struct dev_encode *a))                                                  \
    /* z = v / divisor, or (z + v) / divisor with a->add. v: values of the block at `slot` of      \
     * `in` (16-byte aligned); DEV_INT* and DEV_SIGN: q * step, exact. At most two roundings.      \
     * Reads `in`, and reads and writes 4 bytes a value, 8 with a->add. */                         \
    X(block_decode, (struct dev * d, float *z, const uint8_t *in, const struct dev_decode *a))     \
    /* Block i of out = block index[i] of in; size_bytes of a block is a multiple of 4, at most    \
     * 1024. */                                                                                    \
    X(block_gather, (struct dev * d, uint8_t * out, const uint8_t *in, const uint32_t *index,      \
                     size_t size_bytes, size_t blocks))                                            \
    /* h = bf16(z), nearest even, saturated to the largest finite value; residual = z - h,         \
     * exact. residual may alias z. */                                                             \
    X(round_bf16, (struct dev * d, uint16_t * h, float *residual, const float *z, size_t count))   \
    /* h = z rounded stochastically to bf16, with mean z (bf16_stochastic): 16 bits for each       \
     * element from Philox(seed, RNG_ROUND | step << 32, element / 8), two to a word, low half     \
     * first. */                                                                                   \
    X(round_stochastic,                                                                            \
      (struct dev * d, uint16_t * h, const float *z, const struct dev_random *r, size_t count))    \
    /* x rounded to few bits, in place, and model (NULL: none) = bf16 of that, nearest even. 32    \
     * bits for each element from Philox(seed, RNG_MASTER | step << 32, element / 4), a word       \
     * each. A number of this form stays as it is. */                                              \
    X(round_narrow,                                                                                \
      (struct dev * d, float *x, uint16_t *model, const struct dev_narrow *a, size_t count))       \
    /* z = h in f32, exact. */                                                                     \
    X(bf16_to_f32, (struct dev * d, float *z, const uint16_t *h, size_t count))                    \
    /* Bit packing, little-endian: value i has bits [i*bits, (i+1)*bits) of out; value = q +       \
     * bias, 0 <= value < 2^bits, 1 <= bits <= 18 (the sum of 1024 int8). count is a multiple      \
     * of 256, so a block ends on a byte. */                                                       \
    X(pack, (struct dev * d, uint8_t * out, const int32_t *q, int32_t bias, unsigned bits,         \
             size_t count))                                                                        \
    /* q = value - bias, or q += value - bias with add, of the blocks at `slot`; absent blocks     \
     * count as 0. in: 4-byte aligned. */                                                          \
    X(unpack, (struct dev * d, int32_t * q, const uint8_t *in, const struct dev_unpack *a))        \
    /* Outer step on the mean delta, in place: theta and slabs by the formula of outer_opt.h. */   \
    X(outer_step, (struct dev * d, enum outer_opt_kind kind, const struct dev_outer_step *a))      \
    /* acc = acc + scale * x, two roundings: sums of gathered contributions in site order. */      \
    X(axpy, (struct dev * d, float *acc, const float *x, float scale, size_t count))               \
    /* x = x / divisor (host scalar), one rounding. */                                             \
    X(div_scalar, (struct dev * d, float *x, float divisor, size_t count))                         \
    /* sums (count / DEV_RUN, rounded up): sum of (a - b)^2 over each DEV_RUN values; b NULL:      \
     * of a^2. The difference is rounded once to f32; the rest is in double: blocks of 256 as      \
     * in block_code, added in order. count is a multiple of 256. */                               \
    X(sumsq_diff, (struct dev * d, double *sums, const float *a, const float *b, size_t count))    \
    /* *mismatch (device) becomes 1 unless |sent + residual - z| <= tolerance * |sent| for         \
     * every element; else it keeps its value. */                                                  \
    X(check_residual, (struct dev * d, uint32_t * mismatch, const struct dev_residual_check *a))   \
    /* Signs and scales of z: see struct dev_sign_encode. A square is exact in double; sums are    \
     * over blocks of 256 as in block_code, blocks of a run of DEV_RUN, runs of a range, in order. \
     * Reads x, error and mask twice. */                                                           \
    X(sign_encode, (struct dev * d, uint8_t * bits, const struct dev_sign_encode *a))              \
    /* x = (sum of +-scale over the parts) / parts; parts + 1 roundings. */                        \
    X(sign_decode, (struct dev * d, float *x, const struct dev_sign_decode *a))                    \
    /* out[i] = x[i * stride]. */                                                                  \
    X(copy_strided, (struct dev * d, float *out, const float *x, size_t stride, size_t count))     \
    /* out = the ranges of slab, concatenated; ranges (n) is host memory. */                       \
    X(gather_ranges,                                                                               \
      (struct dev * d, float *out, const float *slab, const struct dev_range *ranges, size_t n))   \
    /* The ranges of slab = alpha * slab + (1 - alpha) * in, three roundings; in: concatenated     \
     * ranges. alpha 0: slab = in, even where slab is not finite. positive: values of `in` that    \
     * are not above 0 count as 0. */                                                              \
    X(lerp_ranges, (struct dev * d, float *slab, const float *in, const struct dev_lerp *b))       \
    /* norms (count/4096, rounded up): L1 norm of each chunk in double: lane j adds |z[j]|,        \
     * |z[16 + j]|, ... in order, then the lanes are added in order. count is a multiple of        \
     * 256. Reads 4 bytes a value. */                                                              \
    X(chunk_l1, (struct dev * d, double *norms, const float *z, size_t count))                     \
    /* out (count/4096, rounded up): of each chunk the 1/64 of largest magnitude, ties by lowest   \
     * index; residual = z - decoded values, exact; may be z. Reads 4 bytes a value; writes 4      \
     * bytes a value, or in place only the 32-byte sectors of the chosen values. */                \
    X(chunk_topk,                                                                                  \
      (struct dev * d, struct dev_chunk * out, float *residual, const float *z, size_t count))     \
    /* z += decoded values of the chunks, one rounding. Indices within a chunk are distinct and    \
     * below its size. */                                                                          \
    X(chunk_add, (struct dev * d, float *z, const struct dev_chunk *chunks, size_t count))

/* A fixed sequence of ops on fixed memory, which a device may record and replay (CUDA graph). The
 * ops that `run` calls depend on (owner, key) and on the contents of memory alone. `run` calls ops
 * of this device only: no copy, sync or alloc. */
struct dev_graph {
    const void *owner; /* the module that assigns the keys */
    uint64_t key;
    void (*run)(void *self);
    void *self;
};

struct dev_ops {
#define X(name, arguments) void(*name) arguments;
    DEV_OPS(X)
#undef X
    void (*close)(struct dev *d);
    enum err (*alloc)(struct dev *d, void **p, size_t bytes);
    void (*free)(struct dev *d, void *p);
    /* Zeroed host memory with the fastest copies to and from the device (CUDA: pinned). */
    enum err (*host_alloc)(struct dev *d, void **p, size_t bytes);
    void (*host_free)(struct dev *d, void *p);
    /* Host or device, any direction. Returns when the bytes are in host memory, or when the host
     * may change the source. */
    void (*copy)(struct dev *d, void *to, const void *from, size_t bytes);
    /* Returns at once. The host side is memory of host_alloc(); the host neither reads nor changes
     * it before event_wait() of an event recorded after this copy. */
    void (*copy_async)(struct dev *d, void *to, const void *from, size_t bytes);
    void (*zero)(struct dev *d, void *p, size_t bytes);
    enum err (*sync)(struct dev *d);
    /* Events, numbered by dev_events(). Recording puts the event after all work submitted so far.
     * event_wait blocks until the device has reached the event and fails as sync does.
     * event_seconds: time between two events that were waited for. */
    void (*event_record)(struct dev *d, unsigned event);
    enum err (*event_wait)(struct dev *d, unsigned event);
    double (*event_seconds)(struct dev *d, unsigned from, unsigned to);
    size_t (*memory_free)(struct dev *d); /* bytes of device memory that are free; 0 on the CPU */
    /* Runs the sequence. The CPU calls it. CUDA with dev->graphs calls it the first time, captures
     * it in a graph the second time, and launches the graph from then on. */
    void (*graph_run)(struct dev *d, const struct dev_graph *g);
};

/* Whether the device chooses kernels by measurement: a run whose bits must repeat fixes the choice
 * before its first step. */
enum dev_tuning {
    DEV_TUNING_NONE,
    DEV_TUNING_KEPT, /* it follows `chosen`; attention also measures what that does not name */
    DEV_TUNING_NOW   /* results of ops are discarded: products may be run many times */
};
struct dev { /* backends embed it first */
    const struct dev_ops *ops;
    const char *kind; /* "cpu", "cuda" */
    enum dtype model_type;
    int threads;         /* host threads: of the CPU ops, and of work that stays on the host */
    enum err failed;     /* first failure since open */
    bool host_memory;    /* the program may read and write device memory itself, after dev_sync */
    size_t memory_bytes; /* free at open; 0: system memory, whose free size the system reports */
    size_t used_bytes;   /* device memory that alloc and the ops have allocated; 0 on the CPU */
    bool graphs;         /* CUDA: graph_run uses graphs; may change between two calls */
    uint64_t sync_count; /* times that the host waited until the device was idle */
    unsigned events;     /* numbers given out by dev_events() */
    void *stream;        /* CUDA: cudaStream_t of its work, for the collectives; else NULL */
    char note[256];      /* for the log: processor, ISA, library and its version */
    /* CUDA with attention "auto": the kernels chosen by measurement, attention's and the algorithms
     * of products, each with its shape (kernels/cuda/choice.h). What the text names already is not
     * measured: ranks and resumed runs that must compute the same bits receive the text before
     * their first op. */
    char chosen[1280];
    enum dev_tuning autotune;
};

struct dev_options {
    const char
        *kind; /* "cpu", "cuda", or "cuda:N" for the Nth GPU of this machine (N = local rank) */
    const char
        *model_type;   /* "f32", "bf16", "auto": bf16 where the processor multiplies it faster */
    int threads;       /* 0: all of the affinity mask (CUDA: 1) */
    bool low_priority; /* CUDA: another dev of this process uses the GPU and has priority */
    bool graphs;       /* CUDA: graph_run uses graphs */
    const char
        *attention; /* CUDA: "own", "cudnn", or NULL and "auto": the faster deterministic kernel */
    struct dev_emulation emulation; /* on the CPU with model_type f32 */
    const char *isa; /* CPU inner loops: "v2", "v3", "v4" of x86-64; NULL: the processor's best */
};

/* Opens a device. ERR_UNSUPPORTED: the message names the missing part (CUDA module, driver). */
enum err dev_open(struct dev **d, const struct dev_options *o) MUST;
void dev_close(struct dev *d); /* NULL is fine */
enum err dev_alloc(struct dev *d, void **p,
                   size_t bytes) MUST; /* zeroed, 64-byte aligned; bytes 0 gives NULL */
void dev_free(struct dev *d, void *p);
/* An arena in memory of host_alloc(); the caller frees it before the device closes. */
struct arena dev_arena(struct dev *d);
int dev_threads(void); /* host threads that the affinity mask allows */
enum { DEV_EVENTS_MAX = 8192 };
/* The first of `count` new event numbers, which stay valid until the device closes. */
unsigned dev_events(struct dev *d, unsigned count);
enum err dev_sync(struct dev *d) MUST; /* waits; the first failure since open, with its message */

/* The backends' prototypes, from the same list: cpu_embed_fwd, ... and cuda_embed_fwd, ... */
#define X(name, arguments) void cpu_##name arguments;
DEV_OPS(X)
#undef X
#define X(name, arguments) void cuda_##name arguments;
DEV_OPS(X)
#undef X
enum err cpu_open(struct dev **d, const struct dev_options *o) MUST;

#endif
