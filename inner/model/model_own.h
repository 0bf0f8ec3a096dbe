#ifndef MODEL_OWN_H
#define MODEL_OWN_H
/* The model's state and one block of the transformer, forward and backward. Private to inner/model.
 *
 * Sizes: T tokens of a batch, C width, L layers, NH query heads, KVH key-value heads, HD = C / NH,
 * F hidden width of the MLP, V vocabulary, VP vocabulary padded to a multiple of 64.
 */
#include "inner/model/model.h"

enum { NONE = -1 }; /* offset of a tensor that this model lacks */

/* Offsets of tensors into the slabs. */
struct norm_offsets {
    ptrdiff_t gain, bias;
};
struct linear_offsets {
    ptrdiff_t weight, bias;
};
struct block_offsets {
    struct norm_offsets norm1, norm2;
    struct linear_offsets qkv, proj, up, down;
};

/* Saved activations: what the backward of a block reads. */
struct norm_saved {
    void *residual;     /* (T, C) residual stream in front of the norm */
    float *mean, *rstd; /* (T); mean NULL: an RMS norm */
};
struct block_saved {
    struct norm_saved norm1, norm2;
    void *norm1_out, *norm2_out; /* (T, C) */
    void *qkv;                   /* (T, Q); with rope: q and k rotated */
    void *att;                   /* (T, C) output of the attention */
    float *lse;                  /* (NH, T) log-sum-exp of the attention's scores */
    void *pre; /* (T, U) up's output; gated: the backward overwrites it with its gradient */
    void *act; /* (T, F) input of down */
};

struct upload {     /* pinned host buffer of a batch */
    char *host;     /* the layout of the batch on the device */
    unsigned event; /* the device has read it */
};

struct model {
    struct dev *dev;
    const struct table *table;
    size_t C, F, L, NH, KVH, V, VP, tokens_max;
    size_t Q, U; /* rows of qkv and of up: C + 2 KVH HD; F, gated 2 F */
    enum dev_norm norm;
    float norm_eps;
    enum dev_act act; /* NONE when gated */
    bool gated;       /* swiglu, geglu */
    enum dev_gate gate;
    bool causal, train;
    bool stochastic; /* rounding of params_bf16 */
    uint64_t seed, step;
    bool recompute; /* the backward recomputes the activations of a block */

    struct block_offsets *offsets; /* [L] */
    struct norm_offsets final_norm;
    ptrdiff_t wte, wpe, head; /* head: wte when tied */
    float *params, *grads;
    void *params_bf16; /* NULL: the model type is f32 */

    size_t rope_count; /* elements of rope_table; 0: no rope */
    float *rope_table; /* (context, HD), see dev_rope */

    void *slab; /* one allocation: all buffers from here on, and rope_table */
    /* [L] without train all L share one set of buffers; with recompute all but norm1 is shared. */
    struct block_saved *saved;
    struct norm_saved final_norm_saved;
    void *head_in;        /* (T, C) output of the final norm */
    void *sublayer_out;   /* (T, C) output of proj or down, the next norm adds it to the residual */
    void *dresidual, *dx; /* (T, C) gradients: of the residual stream; of an op's input */
    void *dhidden;        /* (T, max(Q, F)) gradient of qkv, or of the MLP's hidden activations */
    float *losses;        /* (T) */
    float *logits;        /* (V) */
    int32_t *tokens, *targets, *positions, *cu_seqlens; /* the batch on the device */
    size_t batch_bytes;                                 /* of these four */
    struct upload upload[2]; /* double buffer: the device reads one, the host fills the other */
    size_t uploads;
    double *loss;                            /* of model_step and model_eval */
    const struct model_grad_hook *grad_hook; /* of the running backward, or NULL */
    struct profile *profile;                 /* or NULL */
};

/* A tensor's parameters, its gradients, and its weights in the model type; NULL for NONE. */
float *block_param(const struct model *m, ptrdiff_t at);
float *block_grad(const struct model *m, ptrdiff_t at);
const void *block_weight(const struct model *m, ptrdiff_t at);
/* Calls the gradient hook: the gradients from offset `at` on are final. The backward runs through
 * the slab from its end to its beginning. */
void grad_ready(const struct model *m, ptrdiff_t at);
/* Accounts the ops since the last call to class c. */
void block_profile(const struct model *m, enum profile_class c);

struct norm_run { /* one norm on T tokens */
    struct norm_offsets offsets;
    struct norm_saved saved;
    size_t T;
};
/* y = norm(x + residual); saves the sum. residual NULL: 0. */
void block_norm_fwd(struct model *m, const struct norm_run *n, void *y, const void *x,
                    const void *residual);
/* m->dresidual = dsum + norm'(dy); dsum NULL: 0. */
void block_norm_bwd(struct model *m, const struct norm_run *n, const void *dy, const void *dsum);

/* Layer i. The output of its MLP is left in m->sublayer_out. */
void block_fwd(struct model *m, const struct batch *b, size_t i);
/* With recompute: the saved activations of layer i from its norm1.residual, by the same ops and
 * with the same bits. The last layer's are still in memory. */
void block_recompute(struct model *m, const struct batch *b, size_t i);
/* m->dresidual: the residual stream's gradient behind layer i on entry, in front of it on return.
 */
void block_bwd(struct model *m, const struct batch *b, size_t i);

#endif
