#ifndef MODEL_OWN_H
#define MODEL_OWN_H
/* One block of the transformer, forward and backward, and what it shares with model.c: the model
 * itself. Nothing outside inner/model includes it.
 */
#include "inner/model/model.h"

enum { NONE = -1 }; /* offset of a tensor that this model lacks */

struct norm_at { /* offsets into the slabs */
    ptrdiff_t gain, bias;
};
struct linear_at {
    ptrdiff_t weight, bias;
};
struct block_at {
    struct norm_at norm1, norm2;
    struct linear_at qkv, proj, up, down;
};

struct norm_kept {
    void *sum;          /* (T, C) the stream in front of the norm */
    float *mean, *rstd; /* (T) */
};
struct kept { /* of one layer, for its backward */
    struct norm_kept norm1, norm2;
    void *h1, *h2; /* (T, C) normalised */
    void *qkv;     /* (T, Q); rope: q and k turned */
    void *att;     /* (T, C) */
    float *lse;    /* (NH, T) */
    void *pre;     /* (T, U) before the activation; gated: its gradient takes its place */
    void *act;     /* (T, F) */
};

struct upload { /* a batch on its way to the device */
    char *host; /* pinned, laid out as on the device */
    unsigned mark;
};

struct model {
    struct dev *dev;
    const struct table *table;
    size_t C, F, L, NH, KVH, V, VP, tokens_max;
    size_t Q, U; /* rows of qkv and of up: C + 2 KVH HD; F, gated 2 F */
    enum dev_norm norm;
    float norm_eps;
    enum dev_act act; /* NONE when gated */
    bool gated;       /* swiglu */
    bool causal, train;
    bool stochastic; /* rounding of the copy */
    uint64_t seed, step;
    bool recompute; /* activations of a block are made again in its backward */

    struct block_at *at; /* [L] */
    struct norm_at norm_at;
    ptrdiff_t wte, wpe, head; /* head: wte when tied */
    float *params, *grads;
    void *copy;

    size_t angles_count; /* of the next; 0: positions do not turn queries and keys */
    float *angles;       /* (context, HD), see dev_rope */

    void *slab;        /* all of the following */
    struct kept *kept; /* [L]; all the same when opened without train, but for norm1 when recomputed
                        */
    struct norm_kept last;
    void *h;         /* (T, C) what the head reads */
    void *branch;    /* (T, C) proj's or down's output on its way into the stream */
    void *dres, *dh; /* (T, C) */
    void *dwide;     /* (T, max(Q, F)) */
    float *losses;   /* (T) */
    float *logits;   /* (V) */
    int32_t *tokens, *targets, *positions, *cu_seqlens; /* the batch on the device */
    size_t batch_bytes;                                 /* of these four */
    struct upload upload[2]; /* by turns: while the device reads one, the host fills the other */
    size_t uploads;
    double *loss;                    /* of model_step and model_eval */
    const struct model_ready *ready; /* of the backward that runs, or NULL */
    struct profile *profile;         /* or NULL */
};

/* Where a tensor's parameters, gradients, and weights as the products read them lie; NULL: none. */
float *block_param(const struct model *m, ptrdiff_t at);
float *block_grad(const struct model *m, ptrdiff_t at);
const void *block_weight(const struct model *m, ptrdiff_t at);
/* Backward runs through the slab from its end, so what lies behind `at` is final, too. */
void block_tell(const struct model *m, ptrdiff_t at);
/* What the device was given since the last call is of this class. */
void block_stage(const struct model *m, enum profile_class c);

/* y = norm(x + residual); the sum stays in k for backward. */
void block_norm_fwd(struct model *m, void *y, struct norm_kept k, struct norm_at at, const void *x,
                    const void *residual, size_t T);
/* m->dres = dsum + norm'(dy); dsum NULL: 0. */
void block_norm_bwd(struct model *m, const void *dy, const void *dsum, struct norm_kept k,
                    struct norm_at at, size_t T);

/* Layer i. Leaves the branch that the layer adds to its r2 in m->branch. */
void block_fwd(struct model *m, const struct batch *b, size_t i);
/* The activations of a layer once more from the stream in front of it: the same ops on the same
 * bits. The last layer's are still there. */
void block_again(struct model *m, const struct batch *b, size_t i);
/* m->dres: the stream's gradient behind layer i on entry, in front of it on return. */
void block_bwd(struct model *m, const struct batch *b, size_t i);

#endif
