/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDA_H
#define CUDA_H
/* Shared by the files of kernels/cuda: the device, its scratch memory, its first failure, matrix
 * products. C and CUDA C include it; it has no CUDA type, so that only dev_cuda.c and the .cu files
 * include CUDA headers. No other folder includes it.
 *
 * A process may open several devices, also on one GPU, and use each from any thread, one at a time:
 * the outer arithmetic of a site runs concurrently with training. Each device has one stream: the
 * kernels of an op run in the order of the calls, so scratch memory and outputs need no events.
 * Launches return at once; dev_sync returns a failure.
 */
#include "kernels/cuda/module.h"

struct matmul;
struct attention;

/* Scratch memory by user: two slots only where both are in use at once. */
enum cuda_slot { CUDA_SLOT_OP, CUDA_SLOT_LOGITS, CUDA_SLOT_TABLE, CUDA_SLOT_FP8, CUDA_SLOTS };

/* A sequence of ops that has run at least once. */
struct cuda_graph {
    const void *owner;
    uint64_t key;
    uint64_t memory; /* of struct cuda_graphs when it was recorded */
    void *run;       /* cudaGraphExec_t; NULL: not recorded yet */
    bool refused;    /* cannot be recorded: it runs op by op */
};
enum { CUDA_GRAPHS_MAX = 32 };

struct cuda_graphs { /* dev_cuda.c */
    struct cuda_graph list[CUDA_GRAPHS_MAX];
    size_t count;
    uint64_t memory; /* incremented when memory that a graph may use is freed */
    bool capturing;  /* calls are being captured in a graph: no op may wait for the GPU */
};
struct cuda_slab {
    void *at;
    size_t bytes;
};
struct cuda_memory { /* dev_cuda.c */
    void *scratch[CUDA_SLOTS];
    size_t scratch_bytes[CUDA_SLOTS];
    struct cuda_slab *slabs; /* what the callers of alloc have not freed */
    size_t count, room;
};
struct cuda_events {                    /* dev_cuda.c */
    void *event[DEV_EVENTS_MAX];        /* cudaEvent_t, made when a mark is first set */
    uint64_t submitted[DEV_EVENTS_MAX]; /* `submitted` of the device when it was set */
};
struct cuda_gpu {        /* dev_cuda.c: what the GPU is, and how it is used */
    int processors;      /* multiprocessors */
    size_t shared_bytes; /* shared memory of one multiprocessor */
    int clearing;        /* host threads that clear pinned memory */
    bool fp8;            /* products of the model have operands in fp8 */
};
struct cuda_table { /* optim.cu: the ranges whose chunk table lies in CUDA_SLOT_TABLE */
    void *host;
    size_t bytes;
};

struct cuda {
    struct dev dev; /* first */
    int index;      /* which GPU; open.c */
    struct cuda_gpu gpu;
    struct cuda_graphs graphs;
    struct cuda_memory memory;
    struct cuda_events events;
    struct cuda_table table;
    struct matmul *matmul;       /* open.c */
    struct attention *attention; /* attention_cudnn.c */
    uint64_t submitted;          /* launches, copies, products so far; each file that submits */
    char message[512];           /* sentence of the first failure; dev_cuda.c */
};

static inline struct cuda *cuda_of(struct dev *d)
{
    return (struct cuda *)d;
}

/* ---- one GPU (dev_cuda.c), for open.c ----------------------------------------------------------
 */
/* Finds the GPU c->index, makes the stream, and writes what the GPU is into the device's note. */
enum err cuda_gpu_open(struct cuda *c, const struct dev_options *o) MUST;
void cuda_gpu_drain(struct cuda *c); /* waits; graphs and events end. Then the libraries close */
void cuda_gpu_close(
    struct cuda *c); /* scratch memory and stream; both accept a partly opened one */
/* What `atoll doctor` prints of toolkit, libraries, driver and GPUs. */
void cuda_describe(cuda_fact *fact, void *self);
/* The members of struct dev_ops that are no op. */
enum err cuda_dev_alloc(struct dev *d, void **p, size_t bytes) MUST;
void cuda_dev_free(struct dev *d, void *p);
enum err cuda_dev_host_alloc(struct dev *d, void **p, size_t bytes) MUST;
void cuda_dev_host_free(struct dev *d, void *p);
void cuda_dev_copy(struct dev *d, void *to, const void *from, size_t bytes);
void cuda_dev_copy_async(struct dev *d, void *to, const void *from, size_t bytes);
void cuda_dev_zero(struct dev *d, void *p, size_t bytes);
enum err cuda_dev_sync(struct dev *d) MUST;
void cuda_dev_event_record(struct dev *d, unsigned event);
enum err cuda_dev_event_wait(struct dev *d, unsigned event) MUST;
double cuda_dev_event_seconds(struct dev *d, unsigned from, unsigned to);
size_t cuda_dev_memory_free(struct dev *d);
void cuda_dev_graph_run(struct dev *d, const struct dev_graph *r);

/* ---- for all files of the folder
 * -----------------------------------------------------------------
 */
/* Makes this device the current GPU of the calling thread: call before launches and allocations. */
void cuda_set_device(const struct cuda *c);
/* Records the first failure of this device, with the message of err_set. */
void cuda_fail(struct cuda *c, enum err e);
/* Call after every launch: records a refused launch as a failure of this device. */
void cuda_check_launch(struct cuda *c, const char *kernel);
/* Uninitialised device memory, 256-byte aligned, valid until the next call with the same slot. The
 * slot grows to the largest request and keeps that size. NULL: no memory; the device has recorded
 * the failure, and the op returns. */
void *cuda_scratch(struct cuda *c, enum cuda_slot slot, size_t bytes);
/* Frees the scratch memory of the device; accepts a partly opened device. */
void cuda_scratch_free(struct cuda *c);

/* ---- products: c (M,N) = or += op(a) (M,K) op(b) (K,N), row-major ------------------------------
 */
enum epilogue {
    EPILOGUE_NONE,
    EPILOGUE_BIAS,        /* + bias (N) */
    EPILOGUE_BIAS_GELU,   /* pre = a b + bias, c = gelu_tanh(pre) */
    EPILOGUE_DGELU,       /* c = (a b) gelu_tanh'(pre) */
    EPILOGUE_COLUMN_SUMS, /* column sums of b (K,N) with b_t, or of a (K,M) with a_t, go to sums */
};
struct product {
    const void *a, *b;
    void *c;
    size_t M, N, K;
    size_t lda, ldb, ldc; /* row strides as stored: a is (M,K), or (K,M) when a_t */
    bool a_t, b_t;
    bool accumulate; /* c is f32 and added to */
    bool gradient;   /* a is one: fp8.cu has another form for it */
    enum dtype in, out;
    int a_form, b_form;             /* of scalar/fp8.h, in place of `in`; then with: */
    const float *a_scale, *b_scale; /* device: factors of the operands */
    enum epilogue epilogue;
    const void *bias; /* EPILOGUE_BIAS*: (N), type of c */
    void *pre;        /* EPILOGUE_BIAS_GELU, written; _DGELU, read: (M,N), type and stride of c */
    void *sums;       /* EPILOGUE_COLUMN_SUMS: (M) f32, overwritten: row sums of op(a) */
};

enum { CUDA_PLANS_MAX = 512 }; /* kept; a GPT-2 has some 40 */
enum err cuda_matmul_open(struct matmul **m) MUST;
void cuda_matmul_close(struct matmul *m);         /* NULL is fine; before it, cuda_matmul_free */
void cuda_matmul_free(struct cuda *c);            /* workspace and library of this device */
void cuda_matmul_version(char *out, size_t size); /* "cuBLASLt 13.1.0" */
/* False: the library has no product with this epilogue at this shape; nothing was done, and the
 * caller computes the parts. Without an epilogue the library always has a product, or the device
 * fails. With M, N or K 0 it adds nothing and returns true. */
bool cuda_matmul_run(struct cuda *c, const struct product *p);
/* Hash of all that the choice of an algorithm for this product depends on. */
uint32_t cuda_matmul_shape(const struct product *p);

/* A product without epilogue whose operands, of type `in`, are rounded to fp8 first. False: the
 * device failed. */
bool cuda_fp8_run(struct cuda *c, const struct product *p);

/* to (N) += the partial sums (parts,N), in the order of the parts. */
void cuda_add_partials(struct cuda *c, float *to, const float *partial, size_t parts, size_t N);

/* ---- parts of the linear layers and the classifier (linear.cu) ---------------------------------
 */
/* x (count) += bias of its column; then y = act(x) unless act is NONE. */
struct cuda_bias_act { /* y, x (rows,N) model type */
    void *y, *x;
    const float *bias; /* (N); NULL: none */
    enum dev_act act;
    size_t rows, N;
};
void cuda_bias_act(struct cuda *c, const struct cuda_bias_act *a);
/* dy (rows,N) *= act'(pre), unless act is NONE; dbias (N) += column sums, unless NULL. */
struct cuda_act_bwd {
    void *dy;        /* (rows,N) model type; read only with act NONE */
    float *dbias;    /* (N) f32 */
    const void *pre; /* (rows,N) model type; NULL with act NONE */
    enum dev_act act;
    size_t rows, N;
};
void cuda_act_bwd(struct cuda *c, const struct cuda_act_bwd *a);
/* Cross-entropy of rows of logits (rows,width), of which V columns are valid. gradient: it replaces
 * the logits, in their type. */
struct cuda_xent {
    float *losses;
    void *logits;
    enum dtype type;
    bool gradient; /* false: losses only */
    const int32_t *targets;
    float grad_scale;
    size_t rows, V, width;
    const float *bias; /* (V), added to the logits; NULL: none */
};
void cuda_xent(struct cuda *c, const struct cuda_xent *a);
/* ---- attention ----------------------------------------------------------------------------------
 * The ops choose between our kernels and cuDNN's (attention_cudnn.c). */
enum err cuda_attention_open(struct cuda *c, const char *mode) MUST; /* of dev_options.attention */
void cuda_attention_close(struct cuda *c);                           /* not opened is fine */
void cuda_attention_version(const struct cuda *c, char *out, size_t size); /* "auto:cuDNN-9.19.0" */
void cuda_attention_own_fwd(struct cuda *c, void *out, const struct dev_attention *a);
void cuda_attention_own_bwd(struct cuda *c, void *dqkv, const void *dout, const void *out,
                            const struct dev_attention *a);
/* attention_tables.cu: cuDNN's lengths (batch) and offsets (3, batch + 1) of the sequences; ours
 * and its order of the log-sum-exp, S 0 where ragged; partial (blocks, 2) of the largest difference
 * and the largest value, their number returned. */
void cuda_attention_tables(struct cuda *c, int32_t *lengths, int32_t *offsets,
                           const struct dev_attention *a, size_t batch);
void cuda_attention_statistics(struct cuda *c, float *to, const float *from,
                               const struct dev_attention *a, size_t S, bool ours_to);
struct cuda_compare { /* columns first .. first + columns of x, y (rows, stride) */
    const void *x, *y;
    enum dtype type;
    size_t rows, stride, first, columns;
};
int cuda_attention_difference(struct cuda *c, float *partial, const struct cuda_compare *a);
/* Milliseconds of `run` on the GPU: the best of three, after one warm-up. Waits. */
double cuda_ms(struct cuda *c, void (*run)(void *), void *self);
/* Writes one event to the log of the program. */
void cuda_log(bool warning, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Attention for shapes that attention.cu does not support, and sum(dout out) of each head (NH, T),
 * which both implementations need. */
void cuda_attention_plain_fwd(struct cuda *c, void *out, const struct dev_attention *a);
void cuda_attention_plain_bwd(struct cuda *c, void *dqkv, const void *dout, const void *out,
                              const float *dots, const struct dev_attention *a);
void cuda_attention_dots(struct cuda *c, float *dots, const void *dout, const void *out,
                         const struct dev_attention *a);
/* encoder.cu: the norm ops of kind NONE; x (rows, N) += bias, f32; g->dwtt += rows of each type. */
void cuda_norm_none_fwd(struct cuda *c, const void *x, const void *residual,
                        const struct dev_norm_args *n);
void cuda_norm_none_bwd(struct cuda *c, const struct dev_norm_args *n,
                        const struct dev_norm_grad *g);
void cuda_bias_f32(struct cuda *c, float *x, const float *bias, size_t rows, size_t N);
void cuda_types_bwd(struct cuda *c, const struct dev_embed *a, const struct dev_embed_grad *g);
/* to (count) += from, f32. */
void cuda_add_f32(struct cuda *c, float *to, const float *from, size_t count);

#endif
