/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MODEL_OWN_H
#define MODEL_OWN_H
/* The model's state; one block of the transformer, the embedding before the blocks and the
 * heads after them, each forward and backward. Private to inner/model.
 *
 * Sizes: T tokens of a batch, C width, E width of the embeddings, L layers, NH query heads, KVH
 * key-value heads, HD = C / NH, F hidden width of the MLP, V vocabulary, VP vocabulary padded to a
 * multiple of 64, R rows of the token head, S rows of the pooler.
 */
#include "inner/model/depth.h"
#include "inner/model/model.h"

enum { NONE = WEIGHTS_NONE }; /* offset of a tensor that this model does not have */

/* Offsets of tensors into the slabs. */
struct norm_offsets {
    ptrdiff_t gain, bias;
};
struct linear_offsets {
    ptrdiff_t weight, bias;
};
struct block_offsets {
    struct dev_range unit; /* slab.h */
    struct norm_offsets norm1, norm2;
    struct linear_offsets qkv, proj, up, down;
};
struct embed_offsets {
    struct dev_range unit;
    ptrdiff_t wte, wpe, wtt;
    struct norm_offsets norm;
    struct linear_offsets proj;
};
struct head_offsets {
    struct dev_range unit;  /* with the last norm */
    ptrdiff_t weight, bias; /* of the logits: head.weight or wte.weight; mlm.bias */
    struct linear_offsets dense, pooler;
    struct norm_offsets norm, pooler_norm;
    struct linear_offsets classes[KEYS_TASKS_MAX]; /* of each task; [0] without tasks: pair */
    struct linear_offsets heads[DEV_HEADS_MAX];    /* of the one task; [0] is classes[0] */
};

/* Saved activations: what the backward of a block reads. */
struct norm_saved {
    void *residual;     /* (T, C) residual stream before the norm */
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
struct token_head {   /* head.c */
    bool mlm;         /* model.head = mlm: on the rows that have a target; else at every position */
    enum dev_act act; /* of the mlm head */
    void *in;         /* (R, C) */
    void *pre;        /* (R, E) dense's output */
    struct norm_saved norm;  /* residual (R, E): after the activation */
    void *out;               /* (R, E) what the classifier reads */
    int32_t *rows, *targets; /* (R) of the batch, on the device; filled up with -1 */
    size_t count, max;       /* R of this batch, a multiple of BATCH_UNIT; at most */
    float *logits;           /* (rows, V), or of the classes of a task */
};
struct sequence_head { /* head.c. model.pooler: on the first row, or the mean, of each labelled
                          sequence */
    void *in, *pre, *out, *dx; /* (S, C); pre: before the activation; dx: gradient of out */
    struct norm_saved norm;    /* model.pooler_norm: after the activation */
    enum dev_act act;          /* tanh; with the norm that of the model */
    float *losses;             /* (S) */
    int32_t *rows, *targets;   /* (S) task by task, on the device; filled up with -1 */
    int32_t *lengths; /* (S) rows of each mean, on the device; NULL: model.pooling = first */
    bool mean;        /* model.pooling */
    size_t first[KEYS_TASKS_MAX + 1]; /* rows of a task, each a multiple of BATCH_UNIT */
    size_t classes[KEYS_TASKS_MAX];
    size_t tasks, max; /* 0: no pooler; S at most */
};
struct several_heads {  /* heads.c. model.classifier_heads */
    size_t count, left; /* 1: one head */
    bool dropped[DEV_HEADS_MAX];
    void *dhead;     /* (S, C) gradient of the pooler's output by one of them */
    float *scale;    /* of the orthogonality of this batch, on the device; NULL: one head */
    float *logits;   /* host (heads, classes) */
    double *softmax; /* host (classes) */
};

struct dropout {
    float rate;  /* 0: none */
    bool layers; /* train.layer_drop: scaled branches */
    bool on;     /* in this pass: it trains, and has one of the two */
    uint64_t seed, sequence;
    uint64_t *keys; /* (T) of the batch, on the device: dev_dropout */
    float *scales;  /* (L) of the step, on the device: depth_scale */
    uint64_t step;
};
/* Places of dropout in the model: after the embeddings, and in each layer after attention and after
 * MLP. */
enum { DROPOUT_NONE, DROPOUT_EMBED, DROPOUT_LAYERS };
static inline unsigned dropout_attention(size_t layer)
{
    return DROPOUT_LAYERS + 2 * (unsigned)layer;
}
static inline unsigned dropout_mlp(size_t layer)
{
    return dropout_attention(layer) + 1;
}

struct standard { /* train.standardization_weight: the standardization loss of the branches' inputs
                   */
    float weight; /* 0: none */
    float *scale; /* of this batch, on the device */
    double *loss; /* of the running pass, on the device */
};

struct activation_set {           /* what the backward of a batch reads, but for the heads */
    struct block_saved *saved;    /* [L] */
    struct norm_saved embed_norm; /* (T, E) */
    void *embed_out;              /* (T, E) input of embed.proj; NULL without it */
    void *embedded; /* (T, C) input of the first block; pre norms: saved[0].norm1.residual */
};

struct upload {     /* pinned host buffer of a batch */
    char *host;     /* the layout of the batch on the device */
    unsigned event; /* the device has read it */
};

/* The parts of struct model. One file writes each: the one that its comment names, else model.c. */
struct model_form { /* what the settings say; the same after open */
    size_t C, E, F, L, NH, KVH, V, VP, tokens_max;
    size_t Q, U; /* rows of qkv and of up: C + 2 KVH HD; F, gated 2 F */
    enum dev_norm norm;
    float norm_eps;
    enum dev_act act; /* of an MLP without a gate */
    bool gated;       /* swiglu, geglu */
    enum dev_gate gate;
    bool causal, train;
    bool post;    /* norms after the additions to the residual stream */
    bool shared;  /* all layers use the tensors of layer 0 */
    size_t types; /* 0: one token type, without an embedding */
    size_t window, global_attn_every;
    bool stochastic; /* rounding of params_bf16 */
    uint64_t seed;
    bool recompute; /* the backward recomputes the activations of a block */
    size_t set_count;
    size_t rope_count; /* elements of a rope table; 0: no rope */
};
struct model_offsets {            /* where tensors are in the slabs; the same after open */
    struct block_offsets *blocks; /* [L] */
    struct norm_offsets final_norm;
    struct embed_offsets embed;
    struct head_offsets head;
};
struct model_live { /* activations and gradients of a pass */
    void *slab;     /* one allocation: all buffers of the model, and the rope tables */
    /* (context, HD), see dev_rope; of layers with a window: NULL without. */
    float *rope_table, *rope_local;
    /* [set_count], the one in use is `set`. [L] of saved: without train all L share one set of
     * buffers; with recompute all is shared but what a block is recomputed from: norm1, or with
     * post norms norm2_out, the next block's input. */
    struct activation_set *sets, set;
    struct norm_saved final_norm_saved;
    void *head_in;        /* (T, C) what the heads read */
    void *sublayer_out;   /* (T, C) output of proj or down, the next norm adds it to the residual */
    void *dresidual, *dx; /* (T, max(C, E)) gradients: of the residual stream; of an op's input */
    void *dbranch;        /* (T, C) with dropout: gradient of sublayer_out; else dresidual is */
    void *dhidden;        /* (T, max(Q, F)) gradient of qkv, or of the MLP's hidden activations */
    float *losses;        /* (T) of the tokens */
    double *loss;         /* (MODEL_LOSSES) of model_step and model_eval */
    float *largest;       /* (L) of model_eval_attention; NULL: without train.eval_attention */
};
struct model_batch { /* on the device */
    int32_t *tokens, *targets, *positions, *cu_seqlens;
    int32_t *token_types;    /* (T); NULL without types */
    size_t batch_bytes;      /* of these, and of the rows and targets of both heads */
    struct upload upload[2]; /* double buffer: the device reads one, the host fills the other */
    size_t uploads;
};
struct model_pass { /* the running pass */
    bool training, evaluating;
    /* depth.h: layers 0 .. layers - 1 are there, layers first .. learn, and the embeddings, with
     * the head that is tied to them, where first is 0. */
    size_t layers, first;
    size_t begin; /* the layer whose input is in memory: of a pass over a part its first, else 0 */
    int64_t finished;                        /* steps that have updated the parameters */
    const struct model_grad_hook *grad_hook; /* of the running backward, or NULL */
};

struct model {
    struct dev *dev;
    const struct table *table;
    const struct settings *settings;
    struct model_form form;
    struct model_offsets at;
    struct weights *weights;
    struct model_live live;
    struct token_head token;
    struct sequence_head sequence;
    struct several_heads several;
    struct model_batch batch;
    struct model_pass pass;
    struct dropout dropout;   /* dropout.c */
    struct standard standard; /* standard.c */
    struct profile *profile;  /* or NULL */
};

/* The place in the upload buffer of what becomes `device`, an array of the batch. */
static inline void *staged(const struct model *m, const struct upload *u, const void *device)
{
    return u->host + ((const char *)device - (const char *)m->batch.tokens);
}

/* Memory: the same walk adds up the bytes (base NULL) and assigns the buffers. */
struct layout {
    char *base;
    size_t used;
    size_t value; /* bytes of a value of the model type */
};
void *layout_reserve(struct layout *l, size_t bytes);
struct norm_saved layout_norm(struct layout *l, const struct model *m, size_t rows, size_t width);

/* The offset of a tensor; NONE. */
ptrdiff_t table_offset(const struct table *t, int layer, const char *name);
struct norm_offsets norm_offsets_of(const struct table *t, int layer, const char *module);
struct linear_offsets linear_offsets_of(const struct table *t, int layer, const char *module);

/* Passes call these before and after the ops of a unit (weights.h). */
void unit_gather(struct model *m, struct dev_range unit);
void unit_scatter(struct model *m, struct dev_range unit);
/* A tensor's parameters, its gradients, and its weights in the model type; NULL for NONE. */
const float *block_param(const struct model *m, ptrdiff_t at);
float *block_grad(const struct model *m, ptrdiff_t at);
const void *block_weight(const struct model *m, ptrdiff_t at);
/* Calls the gradient hook: the gradients from offset `at` on are final. The backward runs through
 * the slab from its end to its beginning. Not while a shared layer will be used again. */
void grad_ready(const struct model *m, ptrdiff_t at);
/* Accounts the ops since the last call to class c. */
void block_profile(const struct model *m, enum profile_class c);

struct norm_run { /* one norm on T rows of C values; gain NONE: there is none, y is the sum */
    struct norm_offsets offsets;
    struct norm_saved saved;
    size_t T, C;
    unsigned place; /* of the dropout of x; DROPOUT_NONE */
};
/* y = norm(dropout(x) + residual); saves the sum. residual NULL: 0. Without a norm the sum is all.
 */
void block_norm_fwd(struct model *m, const struct norm_run *n, void *y, const void *x,
                    const void *residual);
/* dx = dsum + norm'(dy); dsum NULL: 0, and then there is a norm. dx is not dy. The gradient of x,
 * where it is not dx, goes to m->live.dbranch. */
void block_norm_bwd(struct model *m, const struct norm_run *n, void *dx, const void *dy,
                    const void *dsum);
struct dev_linear linear_args(const struct model *m, struct linear_offsets at, const void *x,
                              size_t T, size_t K, size_t N);
struct linear_gradient { /* of one linear layer without an activation before it */
    struct linear_offsets at;
    void *dx;
    const void *dy;
    enum profile_class profile;
};
void linear_bwd(struct model *m, const struct dev_linear *fwd, const struct linear_gradient *g);
/* The other of the two (T, C) gradients. */
static inline void *other_gradient(const struct model *m, const void *dx)
{
    return dx == m->live.dx ? m->live.dresidual : m->live.dx;
}

/* What a method of training adds to a pass, next to the ops of the block. Rows of
 * model_additions.c; no member is NULL. */
struct model_addition {
    void (*configure)(struct model *m, const struct model_options *o);
    /* Its part of the batch on the device, and of the upload buffer. */
    void (*reserve_batch)(struct layout *l, struct model *m, size_t T);
    void (*stage)(struct model *m, const struct batch *b, const struct upload *u, float grad_scale);
    /* At the begin of a training pass, after batch_to_device. loss (MODEL_LOSSES): on the device;
     * NULL: the backward of a part. */
    void (*begin)(struct model *m, double *loss);
    /* Adds to dx, the gradient of x (T, C), the input of attention or MLP. */
    void (*branch_bwd)(struct model *m, void *dx, const void *x, size_t T);
    void (*end)(struct model *m);
};
extern const struct model_addition addition_dropout, addition_standard;
/* All rows, in order. */
void additions_configure(struct model *m, const struct model_options *o);
void additions_reserve_batch(struct layout *l, struct model *m, size_t T);
void additions_stage(struct model *m, const struct batch *b, const struct upload *u,
                     float grad_scale);
void additions_begin(struct model *m, double *loss);
void additions_branch_bwd(struct model *m, void *dx, const void *x, size_t T);
void additions_end(struct model *m);
/* Whether the gradient of a branch's output may differ from that of the residual stream. */
bool branch_apart(const struct model *m);
/* Whether this pass has a dropout at a place, and its arguments. */
bool dropout_branch(const struct model *m, unsigned place, struct dev_dropout *a);
/* y = dropout(x), or nothing. */
void dropout_apply(struct model *m, void *y, const void *x, unsigned place, size_t T, size_t C);
/* Layers that this pass leaves out cost nothing. */
bool layer_runs(const struct model *m, size_t i);
/* Whether the backward continues to the embeddings. */
static inline bool embed_learns(const struct model *m)
{
    return m->pass.first == 0;
}
size_t layer_before(const struct model *m, size_t i); /* the last that runs before i > 0 */
/* The gradient of sublayer_out. */
static inline void *branch_gradient(const struct model *m)
{
    return m->dropout.on ? m->live.dbranch : m->live.dresidual;
}

/* model.c. A training pass begins; the input of layer `begin` is in memory. */
void pass_begin(struct model *m, size_t begin, const struct model_grad_hook *hook);
void pass_end(struct model *m);
/* The model uses the parameters `x` from now on. Returns those that it used before. */
struct weights_used weights_use(struct model *m, struct weights_used x);
/* model.c, of a whole pass and of its parts: the batch to the device, after the choice of the set;
 * between the last layer and the heads, the heads included, forward and backward. */
enum err batch_to_device(struct model *m, const struct batch *b, float grad_scale) MUST;
struct head_pass;
void heads_fwd_from(struct model *m, const struct head_pass *p);
void heads_bwd_to(struct model *m, const struct batch *b);

/* The input of the blocks, from the tokens; and back from its gradient in `dx`. */
void embed_reserve(struct layout *l, const struct model *m, struct activation_set *set, size_t T);
void embed_fwd(struct model *m, const struct batch *b);
void embed_bwd(struct model *m, const struct batch *b, void *dx);

/* Layer i. Pre norms: the output of its MLP is left in m->live.sublayer_out. */
void block_fwd(struct model *m, const struct batch *b, size_t i);
/* With recompute: the saved activations of layer i from its input, by the same ops and with the
 * same bits. The last layer's are still in memory. */
void block_recompute(struct model *m, const struct batch *b, size_t i);
/* On entry the gradient of the block's output, on return that of its input: pre norms in
 * m->live.dresidual, the residual stream's; post norms in m->live.dx. */
void block_bwd(struct model *m, const struct batch *b, size_t i);

/* The heads. Rows and targets of a batch into its upload buffer; logits, losses and, with
 * gradients, those of the classifiers' inputs and parameters; the rest of the backward, to the
 * gradient of head_in in head_dx(). */
void head_configure(struct model *m, const struct model_options *o);
void head_find_offsets(const struct model *m, struct head_offsets *h);
void head_reserve(struct layout *l, struct model *m);
void head_reserve_batch(struct layout *l, struct model *m);
void head_stage(struct model *m, const struct batch *b, const struct upload *u, float grad_scale);
struct head_pass {
    const struct batch *batch;
    float grad_scale;
    double *loss; /* (MODEL_LOSSES) += */
    bool gradients;
};
void head_fwd(struct model *m, const struct head_pass *p);
void head_bwd(struct model *m, const struct batch *b);
void *head_dx(const struct model *m);
/* Into token.logits: of rows of head_in by the token head, of the first ones: returns how many; of
 * a sequence by a task's head. */
size_t head_token_logits(struct model *m, const size_t *rows, size_t count, size_t T);
void head_class_logits(struct model *m, const struct batch *b, size_t sequence, size_t task);
/* The classifier's arguments for the rows of a task. */
struct dev_classifier head_task_args(const struct model *m, const struct head_pass *p, size_t task,
                                     struct linear_offsets at);

/* heads.c, several heads of one task: their memory. */
void heads_configure(struct model *m, const struct model_options *o);
void heads_reserve(struct layout *l, struct model *m);
void heads_reserve_batch(struct layout *l, struct model *m);
enum err heads_open(struct model *m, struct arena *perm) MUST;
/* The weight of their orthogonality, into the upload buffer. */
void heads_stage(const struct model *m, const struct batch *b, const struct upload *u,
                 float grad_scale);
/* The mean of their losses, and with gradients that of the pooler's output. */
void heads_fwd(struct model *m, const struct head_pass *p);
/* The logarithm of the mean of their probabilities, from several.logits, on the host. */
void head_mean(const struct model *m, float *logits);
/* Words that determine the ops of a pass, besides the batch's shape. */
size_t head_key(const struct model *m, const struct batch *b, size_t i);
enum { HEAD_KEYS = KEYS_TASKS_MAX + 3 };

#endif
