#ifndef DEV_H
#define DEV_H
/* The device seam: memory, one stream of work, and ONE list of ops that the CPU and the GPU both
 * implement. A backend's missing op is a link error. What an op does (shapes, dtypes, in place or
 * not, exact or with an error bound) stands at its entry in DEV_OPS; the CPU op is the
 * specification.
 *
 * "model type" is the dtype of activations and of the weights the products read (dev->model_type:
 * f32 or bf16). Gradients, moments, master weights, statistics and losses are always f32. Ops
 * return nothing and may be asynchronous; the first failure sticks and comes out of dev_sync().
 * Pointers are device memory unless a comment says host. One thread at a time uses a dev, any
 * thread of the process; several devs may share a GPU.
 *
 * Letters: T tokens, C channels, V vocabulary, VP padded vocabulary (rows of the table), NH heads,
 * HD head dimension, N out-features, K in-features. All matrices row-major; linear weights are (N,
 * K).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "kernels/base/arena.h"
#include "kernels/scalar/opt.h"
#include "kernels/scalar/types.h"

enum dtype { DTYPE_F32, DTYPE_BF16 };
static inline size_t dtype_size(enum dtype t)
{
    return t == DTYPE_F32 ? 4 : 2;
}

enum dev_norm { DEV_NORM_LAYER, DEV_NORM_RMS };
enum dev_act { DEV_ACT_NONE, DEV_ACT_GELU_TANH, DEV_ACT_GELU_ERF };

struct dev;

struct dev_linear {    /* y = act(x w^T + bias);  backward of the same */
    const void *x;     /* (T, K) model type */
    const void *w;     /* (N, K) model type */
    const float *bias; /* (N) f32 or NULL */
    size_t T, K, N;
    enum dev_act act; /* applied to y; then pre must be given */
    void *pre; /* (T, N) model type: x w^T + bias before act, kept for backward; NULL if act NONE */
};
struct dev_linear_grad {
    const void *dy; /* (T, N) model type, read: gradient of x w^T + bias. Where the layer ends in
                       an act, the layer behind has been given it, below */
    void *dx;       /* (T, K) model type, overwritten; NULL: not wanted */
    float *dw;      /* (N, K) f32, += */
    float *dbias;   /* (N) f32, +=, NULL if no bias, or the layer behind made it */
    /* The layer in front ends in an act, x = act(pre): dx becomes the gradient of pre, and its
     * column sums that layer's bias gradient. One pass behind the product, or in it (cuBLASLt's
     * DGELU_BGRAD). */
    enum dev_act act;
    const void *pre;  /* (T, K) model type; NULL with act NONE */
    float *pre_dbias; /* (K) f32, +=; NULL: not wanted, or act NONE */
};
struct dev_norm_args {
    enum dev_norm kind;
    float eps;
    size_t T, C;
    const float *gain; /* (C) */
    const float *bias; /* (C), NULL for RMS */
};
struct dev_attention {
    const void *qkv;           /* (T, (NH + 2 KVH) HD): q | k | v, heads contiguous in each */
    const int32_t *cu_seqlens; /* host AND device copies: (sequences + 1), 0 .. T */
    const int32_t *cu_seqlens_host;
    size_t sequences, T, NH, HD;
    size_t KVH; /* heads of k and v, divides NH: query head h reads number h / (NH / KVH) of them
                   (grouped queries, Ainslie et al. 2023, 2305.13245); NH: each has its own */
    bool causal;
    float scale; /* usually 1/sqrt(HD) */
    float *lse;  /* (NH, T) f32 log-sum-exp, written by fwd, read by bwd */
};
/* Rotary positions (Su et al. 2021, 2104.09864): of each head, elements i and i + HD/2 turn by the
 * angle position * theta^(-2i/HD). The pairs are those of Llama's weights as Hugging Face stores
 * them. */
struct dev_rope {
    const float *table;       /* (positions, HD) f32: HD/2 cosines, then HD/2 sines */
    const int32_t *positions; /* (T) */
    size_t T, heads, HD;      /* HD even; the first `heads` heads of each row turn */
    size_t stride;            /* elements of a row */
    bool back;                /* by the opposite angles: the gradient */
};
struct dev_classifier {
    const void *x;          /* (T, C) model type */
    const void *w;          /* (VP, C) model type */
    const int32_t *targets; /* (T); negative: no loss at this position */
    size_t T, C, V, VP;
    float grad_scale; /* multiplies every gradient, usually 1 / tokens in the batch */
    float *losses;    /* (T) f32: -log p(target), 0 where ignored */
    void *dx;         /* (T, C) model type, overwritten; NULL: loss only */
    float *dw;        /* (VP, C) f32, +=; NULL with dx NULL */
};
/* Rows of f32 logits that the classifier holds at a time, in even chunks: whole, GPT-2's would be
 * 200 KiB for each token. Each chunk reads and writes dw once more, so there is a floor: 256 rows
 * of 50304 at C = 512 are 30 ms of products against 6 ms for dw on two CPU cores. On a GPU with 4.3
 * TB/s, 512 MiB move dw of GPT-2 25 times for 65,536 tokens, 1.8 ms beside 25 ms of products; 1.5
 * GiB would save 1 ms of a step of 110 ms (arithmetic). */
enum {
    DEV_LOGITS_CPU = 64 << 20,
    DEV_LOGITS_CUDA = 512 << 20,
    DEV_LOGIT_ROWS_MIN = 256
}; /* bytes */
static inline size_t dev_logit_rows(size_t most_bytes, size_t T, size_t width)
{
    size_t most = most_bytes / (width * sizeof(float));
    if (most < DEV_LOGIT_ROWS_MIN)
        most = DEV_LOGIT_ROWS_MIN;
    size_t chunks = (T + most - 1) / most;
    return chunks > 1 ? (T + chunks - 1) / chunks : T;
}
/* Most that cuDNN's attention may take on a GPU where it was not asked for by name: its repeatable
 * backward stores a bf16 of each score, 768 MiB for 32,768 tokens of GPT-2 in sequences of 1024. */
enum { DEV_ATTENTION_CUDA = 1 << 30 }; /* bytes */
/* Columns that the CPU computes: up to V in whole cache lines; the GPU computes all VP. */
static inline size_t dev_logit_width(size_t V, size_t VP)
{
    size_t width = (V + 31) / 32 * 32;
    return width < VP ? width : VP;
}
/* What the ops take of the device's memory for themselves when a model of this size trains (or
 * not). T: tokens at a time; N: out-features of the widest linear layer. */
struct dev_shape {
    enum dtype type;
    bool train;
    size_t T, C, N, NH, V, VP, elements;
    size_t S;              /* tokens of a sequence */
    const char *attention; /* of dev_options */
};
struct dev_workspace { /* bytes */
    size_t logits;     /* of the classifier's chunk */
    size_t products;   /* the library's workspace */
    size_t ops;        /* partial sums, sorted tokens, tables */
    size_t code;       /* GPU: kernels, ours and the library's, loaded when they are first used. An
                          estimate */
};
struct dev_workspace dev_workspace(const char *kind, const struct dev_shape *s);
struct dev_range { /* a run of elements of every slab */
    size_t offset, count;
};
struct dev_param_range { /* a tensor, or a rank's part of it, as an optimizer sees it */
    size_t offset, count;
    struct opt_group group;
};
struct dev_clip { /* device scalars, but for max_norm */
    const double *sumsq, *loss, *targets;
    float max_norm;
};
struct dev_optim {    /* one pass of an inner optimizer over ranges. All slabs f32, same offsets */
    float *p, *m, *v; /* parameters, moments; m, v NULL where the optimizer keeps no such slab */
    const float *g;
    void *model;         /* bf16 copy of p, rewritten by an update; NULL when the type is f32 */
    const float *gscale; /* device scalar, multiplies g (clip_scale op); NULL: 1. NaN: nothing is
                            changed */
    struct opt_scalars k;
    const struct dev_param_range *ranges; /* host, (n) */
    size_t n;
    double *sums; /* (OPT_SUMS, sums_stride) device: sum j of range r is sums[j * sums_stride +
                     r]; NULL where the rule has none */
    size_t sums_stride; /* >= n */
};
struct dev_encode { /* a run of blocks */
    enum dev_form form;
    size_t count;          /* values, a multiple of DEV_BLOCK */
    const uint8_t *grid;   /* (count/256) codes of the grid: DEV_INT*, DEV_SIGN */
    uint64_t seed, stream; /* DEV_E5M2_RANDOM: which random bits, */
    size_t first;          /* and the first block's number */
};
struct dev_decode {
    enum dev_form form;
    size_t count;
    const uint32_t *slot; /* (count/256) which block of the input; DEV_ABSENT: none, all 0 */
    const uint8_t *code;  /* (count/256) of the grid: DEV_INT*, DEV_SIGN; the payload's own:
                             DEV_E4M3, DEV_E5M2 */
    /* DEV_INT*, DEV_SIGN: sums of m payloads, u in `bits` bits each. DEV_INT*: q = u - bias;
     * DEV_SIGN: q = 2u - m. *over (device) becomes 1 where q is above bias, m. */
    unsigned bits;
    int32_t bias;
    const uint16_t *signs; /* DEV_SIGN: m (count/256) */
    uint32_t *over;
    bool add; /* to z; not DEV_INT*, DEV_SIGN */
    float divisor;
};
struct dev_delayed { /* one round of delayed Nesterov's cycle */
    float *theta, *momentum, *gathered;
    const float *mean;
    float lr, mu, share; /* share: 1/N */
    bool first, last;    /* of the cycle; both when N is 1 */
    size_t count;
};
struct dev_blend {
    const struct dev_range *ranges; /* host */
    size_t n;
    float alpha;
    bool positive;
};
struct dev_random { /* which random bits: f(seed, RNG_ROUND, step, element) */
    uint64_t seed, step;
    size_t first; /* element number of x[0], a multiple of 8 */
};
#define DEV_ABSENT UINT32_MAX
enum {
    DEV_RUN = 16384
}; /* sums (range_reduce, squares) go over runs of so many values, then over runs */

/* ---- the list. X(name, (arguments)) ---- */
#define DEV_OPS(X) DEV_OPS_FAST(X) DEV_OPS_EXACT(X)
#define DEV_OPS_FAST(X)                                                                            \
    /* ---- fast set: error bounds in kernels/cpu at each op                                       \
     * -------------------------------------- */                                                   \
    /* x (T,C) = wte[tokens] + wpe[positions]; wte (VP,C), wpe (P,C) model type or NULL. */        \
    X(embed_fwd, (struct dev * d, void *x, const void *wte, const void *wpe,                       \
                  const int32_t *tokens, const int32_t *positions, size_t T, size_t C))            \
    /* dwte, dwpe += rows of dx; the order of additions is by position, whatever the thread count. \
     */                                                                                            \
    X(embed_bwd, (struct dev * d, float *dwte, float *dwpe, const void *dx, const int32_t *tokens, \
                  const int32_t *positions, size_t T, size_t C, size_t VP))                        \
    /* sum = x + residual (residual NULL: sum = x, and sum may be x or NULL); y = norm(sum);       \
     * mean (T) (LAYER only), rstd (T) kept. sum may alias x. */                                   \
    X(norm_fwd, (struct dev * d, void *y, void *sum, float *mean, float *rstd, const void *x,      \
                 const void *residual, const struct dev_norm_args *a))                             \
    /* dx = dsum (NULL: 0) + norm'(dy); dx may alias dsum; dgain, dbias += . sum as norm_fwd wrote \
     * it. */                                                                                      \
    X(norm_bwd,                                                                                    \
      (struct dev * d, void *dx, float *dgain, float *dbias, const void *dy, const void *dsum,     \
       const void *sum, const float *mean, const float *rstd, const struct dev_norm_args *a))      \
    X(linear_fwd, (struct dev * d, void *y, const struct dev_linear *a))                           \
    X(linear_bwd, (struct dev * d, const struct dev_linear *a, const struct dev_linear_grad *g))   \
    /* out (T,C) = softmax(scale q k^T) v per head within each sequence. */                        \
    X(attention_fwd, (struct dev * d, void *out, const struct dev_attention *a))                   \
    X(attention_bwd, (struct dev * d, void *dqkv, const void *dout, const void *out,               \
                      const struct dev_attention *a))                                              \
    /* The heads of x turn, in place. */                                                           \
    X(rope, (struct dev * d, void *x, const struct dev_rope *r))                                   \
    /* y (T,F) = silu(gate) up, x (T,2F) = gate | up; dx (T,2F) may be x. */                       \
    X(swiglu_fwd, (struct dev * d, void *y, const void *x, size_t T, size_t F))                    \
    X(swiglu_bwd, (struct dev * d, void *dx, const void *dy, const void *x, size_t T, size_t F))   \
    /* Fused softmax cross-entropy over x w^T, in chunks of rows: (T,V) logits never exist whole.  \
     */                                                                                            \
    X(classifier, (struct dev * d, const struct dev_classifier *a))                                \
    /* logits (T,V) f32 = x w^T, for sampling: few rows. */                                        \
    X(logits,                                                                                      \
      (struct dev * d, float *logits, const void *x, const void *w, size_t T, size_t C, size_t V)) \
    /* y = a + b, model type; y may alias a or b. */                                               \
    X(add, (struct dev * d, void *y, const void *a, const void *b, size_t count))                  \
    /* *out (device) = sum of x^2; the same bits at every thread count. */                         \
    X(sumsq, (struct dev * d, double *out, const float *x, size_t count))                          \
    /* *out: what makes a gradient that is a sum over targets its mean, clipped: with              \
     * norm = sqrt(*sumsq) / *targets, (norm > max_norm > 0 ? max_norm / norm : 1) / *targets; 0   \
     * without targets. NaN, which stops the update, where *sumsq or *loss is not finite. */       \
    X(clip_scale, (struct dev * d, float *out, const struct dev_clip *a))                          \
    /* *sum (device) += sum of x, in doubles; the same bits at every thread count. */              \
    X(sum_add, (struct dev * d, double *sum, const float *x, size_t count))                        \
    /* x *= s (host scalar), f32. */                                                               \
    X(scale, (struct dev * d, float *x, float s, size_t count))                                    \
    /* model type copy of f32 values, round to nearest even. */                                    \
    X(cast, (struct dev * d, void *out, const float *x, size_t count))                             \
    /* One pass of an optimizer that makes sums over each range (scalar/opt.h): reads the sums     \
     * that earlier passes made and writes those of this rule. The moments change where the rule   \
     * says so. Sums run over runs of DEV_RUN values of a range, then over runs: a tensor cut at   \
     * multiples of DEV_RUN has the same sum up to 1e-15. */                                       \
    X(range_reduce, (struct dev * d, enum opt_reduce rule, const struct dev_optim *a))             \
    /* The pass that updates p, and model, by the sums as range_reduce and the ranks left them. */ \
    X(range_update, (struct dev * d, enum opt_update rule, const struct dev_optim *a))
#define DEV_OPS_EXACT(X)                                                                           \
    /* ---- exact set: same bits on every device, compiler, thread count                           \
     * -------------------------- */                                                               \
    /* z = weight * (outer - local) + residual, each operation rounded once, f32. z may be any of  \
     * them. */                                                                                    \
    X(delta, (struct dev * d, float *z, const float *outer, const float *local,                    \
              const float *residual, float weight, size_t count))                                  \
    /* code (count/256): 0 for an all-zero block, else clamp(ilogb(mean of z^2) + 128, 1, 254);    \
     * 255 when the block holds a value that is not finite. Mean in double, fixed order: see       \
     * scalar/grid.h. */                                                                           \
    X(block_code, (struct dev * d, uint8_t * code, const float *z, size_t count))                  \
    /* out (blocks in a->form, one after the other, 16-byte aligned), code: as block_code; present \
     * (count/256): 1 where the block says anything; residual = z - what out says: exact for every \
     * finite z but DEV_SIGN's (scalar/forms.h); residual may be z. A block that is not finite:    \
     * code 255, the rest of it is anything. Moves 8 bytes a value and out. */                     \
    X(block_encode, (struct dev * d, uint8_t * out, uint8_t * code, uint8_t * present,             \
                     float *residual, const float *z, const struct dev_encode *a))                 \
    /* z = (v, or z + v) / divisor; v: what the block in its slot of `in` (16-byte aligned) says,  \
     * DEV_INT* and DEV_SIGN q * step, exact. Two roundings at most. Moves `in` and 4 bytes a      \
     * value, 8 to add. */                                                                         \
    X(block_decode, (struct dev * d, float *z, const uint8_t *in, const struct dev_decode *a))     \
    /* Block i of out = block index[i] of in; size_bytes of a block a multiple of 4, at most 1024. \
     */                                                                                            \
    X(block_gather, (struct dev * d, uint8_t * out, const uint8_t *in, const uint32_t *index,      \
                     size_t size_bytes, size_t blocks))                                            \
    /* h = bf16(z) nearest even, the largest finite one instead of infinity; residual = z - h,     \
     * exact. residual may alias z. */                                                             \
    X(round_bf16, (struct dev * d, uint16_t * h, float *residual, const float *z, size_t count))   \
    /* h = one of z's two neighbours in bf16, with the mean z (bf16_stochastic): 16 bits for each  \
     * element out of Philox(seed, RNG_ROUND | step << 32, element / 8), two to a word, low half   \
     * first. */                                                                                   \
    X(round_stochastic,                                                                            \
      (struct dev * d, uint16_t * h, const float *z, const struct dev_random *r, size_t count))    \
    X(widen_bf16, (struct dev * d, float *z, const uint16_t *h, size_t count))                     \
    /* Bits, little-endian within the stream: value i occupies bits [i*bits, (i+1)*bits) of out;   \
     * value = q + bias, 0 <= value < 2^bits, 1 <= bits <= 18 (the sum of 1024 int8). count a      \
     * multiple of 256, so runs end on bytes. */                                                   \
    X(pack, (struct dev * d, uint8_t * out, const int32_t *q, int32_t bias, unsigned bits,         \
             size_t count))                                                                        \
    /* q = value - bias, or q += value - bias, of the blocks in their slots (as dev_decode);       \
     * absent: 0. in: 4-byte aligned. */                                                           \
    X(unpack, (struct dev * d, int32_t * q, const uint8_t *in, const uint32_t *slot, int32_t bias, \
               unsigned bits, bool add, size_t count))                                             \
    /* Outer step on the mean delta, in place; momentum NULL: plain theta -= lr * mean.            \
     * buf = mu*buf + mean; theta = theta - lr*(mean + mu*buf)   (DiLoCo, 2311.08105; Nesterov).   \
     */                                                                                            \
    X(outer_step, (struct dev * d, float *theta, float *momentum, const float *mean, float lr,     \
                   float mu, size_t count))                                                        \
    /* Delayed Nesterov (2401.09135), in place. x = share*mean; gathered = first ? x : gathered +  \
     * x; last: momentum = mu*momentum + gathered; theta -= lr*(x + mu*momentum); else theta -=    \
     * lr*x. */                                                                                    \
    X(outer_delayed, (struct dev * d, const struct dev_delayed *o))                                \
    /* acc = acc + scale * x, two roundings: sums of relayed contributions in site order. */       \
    X(accumulate, (struct dev * d, float *acc, const float *x, float scale, size_t count))         \
    /* x = x / divisor, one rounding. */                                                           \
    X(divide, (struct dev * d, float *x, float divisor, size_t count))                             \
    /* sums (count / DEV_RUN, rounded up) of (a - b)^2 over runs of DEV_RUN values, b NULL: of     \
     * a^2; the difference rounds once, the rest is in double: blocks as block_code has them, one  \
     * after the other. count a multiple of 256. */                                                \
    X(squares, (struct dev * d, double *sums, const float *a, const float *b, size_t count))       \
    /* *apart (device) becomes 1 unless |sent + kept - z| <= slack * |sent| everywhere, else it    \
     * stays. */                                                                                   \
    X(apart, (struct dev * d, uint32_t * apart, const float *sent, const float *kept,              \
              const float *z, float slack, size_t count))                                          \
    /* out[i] = x[i * stride]. */                                                                  \
    X(sample, (struct dev * d, float *out, const float *x, size_t stride, size_t count))           \
    /* out = the ranges of slab, one behind the other; ranges is host memory. */                   \
    X(collect,                                                                                     \
      (struct dev * d, float *out, const float *slab, const struct dev_range *ranges, size_t n))   \
    /* And back: slab = alpha * slab + (1 - alpha) * in, three roundings; alpha 0: in, whatever    \
     * slab held. positive: what is not above 0 in `in` counts as 0. */                            \
    X(blend, (struct dev * d, float *slab, const float *in, const struct dev_blend *b))            \
    /* norms (count/4096, rounded up) = sums of magnitudes in double: of lane j those of z[j],     \
     * z[16 + j],                                                                                  \
     * ... in order, then lane after lane. count a multiple of 256. Moves 4 bytes a value. */      \
    X(chunk_norms, (struct dev * d, double *norms, const float *z, size_t count))                  \
    /* made (count/4096, rounded up): of each chunk the 1/64 with the largest magnitudes, equal    \
     * ones by lowest index; residual = z less what is sent, exact; may be z. Moves 4 bytes a      \
     * value, and a 32nd of 64 bytes; 8 where residual is not z. */                                \
    X(chunk_largest,                                                                               \
      (struct dev * d, struct dev_chunk * made, float *residual, const float *z, size_t count))    \
    /* z += what the chunks say, one rounding. Indices within each chunk differ, and lie in it. */ \
    X(chunk_add, (struct dev * d, float *z, const struct dev_chunk *chunks, size_t count))

/* A fixed sequence of ops on fixed memory: what `ops` calls depends on (owner, key) alone, but for
 * the values in the memory. It calls ops of this device only, no copy, no sync, no alloc. */
struct dev_repeat {
    const void *owner; /* the module that names the keys */
    uint64_t key;
    void (*ops)(void *self);
    void *self;
};

struct dev_ops {
#define X(name, arguments) void(*name) arguments;
    DEV_OPS(X)
#undef X
    void (*close)(struct dev *d);
    enum err (*alloc)(struct dev *d, void **p, size_t bytes);
    void (*free)(struct dev *d, void *p);
    /* Host memory, zeroed, between which and the device copy() is fastest (CUDA: pinned). */
    enum err (*host_alloc)(struct dev *d, void **p, size_t bytes);
    void (*host_free)(struct dev *d, void *p);
    /* Host or device, any direction. Back when the host's bytes are there, or may be changed. */
    void (*copy)(struct dev *d, void *to, const void *from, size_t bytes);
    /* The same without waiting: the host's side is host_alloc()'s memory, which the host leaves
     * alone until it has waited for a mark behind this copy. */
    void (*copy_async)(struct dev *d, void *to, const void *from, size_t bytes);
    void (*zero)(struct dev *d, void *p, size_t bytes);
    enum err (*sync)(struct dev *d);
    /* Marks, from dev_marks(): one lies behind all that the device was given when it was set last.
     * wait: until the device is there; fails like sync. seconds: between two marks that were waited
     * for. */
    void (*mark)(struct dev *d, unsigned mark);
    enum err (*wait)(struct dev *d, unsigned mark);
    double (*seconds)(struct dev *d, unsigned from, unsigned to);
    size_t (*memory_left)(struct dev *d); /* of the device's, for the first caller; 0 on the CPU */
    /* Runs the sequence. The CPU calls it; CUDA with dev->graphs calls it the first time, records
     * it in a graph the second time, and from then on launches the graph. */
    void (*repeat)(struct dev *d, const struct dev_repeat *r);
};

struct dev { /* backends embed it first */
    const struct dev_ops *ops;
    const char *kind; /* "cpu", "cuda" */
    enum dtype model_type;
    int threads;         /* host threads: of the CPU's ops, and of what is left to the host */
    enum err failed;     /* sticky */
    bool host_memory;    /* the program may read and write device memory itself, after dev_sync */
    size_t memory_bytes; /* free at open; 0: the machine's own memory, whose system knows */
    size_t taken_bytes;  /* of the device's memory so far, by alloc and by the ops themselves; 0 on
                            the CPU */
    bool graphs;     /* CUDA: repeated sequences become graphs; may change between two of them */
    uint64_t drains; /* how often the host waited until the device had nothing left to do */
    unsigned marks;  /* handed out */
    char note[256];  /* for the log: processor, ISA, library and its version */
    /* CUDA with attention "auto": which kernel each shape got, by measurement at its first use
     * (kernels/cuda/choice.h). What it says already is done and not measured, so ranks and resumed
     * runs that shall compute alike are given it before their first op. */
    char attention[256];
    bool rehearse; /* it measures: a run whose bits shall repeat settles that before its first step
                    */
};

struct dev_options {
    const char
        *kind; /* "cpu", "cuda", or "cuda:N" for the Nth GPU of this machine (N = local rank) */
    const char
        *model_type; /* "f32", "bf16", "auto": bf16 where the processor multiplies it faster */
    int threads;     /* 0: all the affinity mask allows (CUDA: 1) */
    bool beside;     /* CUDA: the GPU is another dev's of this process; this one gives way */
    bool graphs;     /* CUDA: repeated sequences become graphs */
    const char
        *attention; /* CUDA: "own", "cudnn", or NULL and "auto": the faster that repeats its bits */
    const char *isa; /* CPU inner loops: "v2", "v3", "v4" of x86-64; NULL: the processor's best */
};

/* Opens a device. ERR_UNSUPPORTED names what is missing (no CUDA module, no driver). */
enum err dev_open(struct dev **d, const struct dev_options *o) MUST;
void dev_close(struct dev *d); /* NULL is fine */
enum err dev_alloc(struct dev *d, void **p,
                   size_t bytes) MUST; /* zeroed, 64-byte aligned; bytes 0 gives NULL */
void dev_free(struct dev *d, void *p);
struct arena
dev_arena(struct dev *d); /* of host_alloc()'s memory; freed before the device closes */
int dev_threads(void);    /* host threads that the affinity mask allows */
enum { DEV_MARKS_MAX = 8192 };
unsigned dev_marks(struct dev *d,
                   unsigned count);    /* `count` new marks, for good: the first's number */
enum err dev_sync(struct dev *d) MUST; /* waits; the first failure since open, with its sentence */

/* The backends' prototypes, from the same list: cpu_embed_fwd, ... and cuda_embed_fwd, ... */
#define X(name, arguments) void cpu_##name arguments;
DEV_OPS(X)
#undef X
#define X(name, arguments) void cuda_##name arguments;
DEV_OPS(X)
#undef X
enum err cpu_open(struct dev **d, const struct dev_options *o) MUST;

#endif
