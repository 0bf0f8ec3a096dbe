/* The transformer: which op reads what, in which order, forward and backward. All arithmetic is in
 * the device's ops. GPT-2 (Radford et al. 2019): x = wte[token] + wpe[position]; per layer x +=
 * proj(attention(qkv(norm1(x)))), x += down(gelu(up(norm2(x)))); logits = norm(x) wte^T.
 *
 * The residual stream is added inside norm_fwd, so each of its states is written once (r1 in front
 * of norm1, r2 in front of norm2) and kept for backward. Backward carries one gradient of the
 * stream, `dres`, and adds to it in place.
 */
#include "inner/model/model.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const float norm_eps = 1e-5f; /* GPT-2's layer_norm_epsilon, torch's default */

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
    void *h1, *h2;   /* (T, C) normalised */
    void *qkv;       /* (T, 3C) */
    void *att;       /* (T, C) */
    float *lse;      /* (NH, T) */
    void *pre, *act; /* (T, F) before and after the activation */
};

struct upload { /* a batch on its way to the device */
    char *host; /* pinned, laid out as on the device */
    unsigned mark;
};

struct model {
    struct dev *dev;
    const struct table *table;
    size_t C, F, L, NH, V, VP, tokens_max;
    enum dev_norm norm;
    enum dev_act act;
    bool causal, train;
    bool stochastic; /* rounding of the copy */
    uint64_t seed, step;
    bool recompute; /* activations of a block are made again in its backward */

    struct block_at *at; /* [L] */
    struct norm_at norm_at;
    ptrdiff_t wte, wpe;
    float *params, *grads;
    void *copy;

    void *slab;        /* all of the following */
    struct kept *kept; /* [L]; all the same when opened without train, but for norm1 when recomputed
                        */
    struct norm_kept last;
    void *h;         /* (T, C) what the head reads */
    void *branch;    /* (T, C) proj's or down's output on its way into the stream */
    void *dres, *dh; /* (T, C) */
    void *dwide;     /* (T, max(3C, F)) */
    float *losses;   /* (T) */
    float *logits;   /* (V) */
    int32_t *tokens, *targets, *positions, *cu_seqlens; /* the batch on the device */
    size_t batch_bytes;      /* of these four */
    struct upload upload[2]; /* by turns: while the device reads one, the host fills the other */
    size_t uploads;
    double *loss;                    /* of model_step and model_eval */
    const struct model_ready *ready; /* of the backward that runs, or NULL */
    struct profile *profile;         /* or NULL */
};

/* ---- memory: one walk both plans (base NULL) and lays out ---------------------------------- */
struct layout {
    char *base;
    size_t used;
};

static void *take(struct layout *l, size_t bytes)
{
    void *p = l->base ? l->base + l->used : NULL;
    l->used += (bytes + 63) / 64 * 64;
    return p;
}

static struct norm_kept take_norm(struct layout *l, const struct model *m, size_t T, size_t size)
{
    struct norm_kept k;
    k.sum = take(l, T * m->C * size);
    k.mean = m->norm == DEV_NORM_LAYER ? take(l, T * sizeof *k.mean) : NULL;
    k.rstd = take(l, T * sizeof *k.rstd);
    return k;
}

static struct kept take_layer(struct layout *l, const struct model *m, size_t T, size_t size)
{
    struct kept k = {.norm1 = take_norm(l, m, T, size), .norm2 = take_norm(l, m, T, size)};
    k.h1 = take(l, T * m->C * size);
    k.h2 = take(l, T * m->C * size);
    k.qkv = take(l, T * 3 * m->C * size);
    k.att = take(l, T * m->C * size);
    k.lse = take(l, m->NH * T * sizeof *k.lse);
    k.pre = take(l, T * m->F * size);
    k.act = take(l, T * m->F * size);
    return k;
}

static void take_gradients(struct layout *l, struct model *m, size_t T, size_t size)
{
    m->dres = take(l, T * m->C * size);
    m->dh = take(l, T * m->C * size);
    m->dwide = take(l, T * (m->F > 3 * m->C ? m->F : 3 * m->C) * size);
}

static void lay_out(struct layout *l, struct model *m, enum dtype type)
{
    size_t T = m->tokens_max, size = dtype_size(type);
    struct kept k = {0};
    for (size_t i = 0; i < m->L; i++) {
        if (i == 0 || (m->train && !m->recompute))
            k = take_layer(l, m, T, size);
        else if (m->train)
            k.norm1 = take_norm(l, m, T, size);
        if (m->kept)
            m->kept[i] = k;
    }
    m->last = take_norm(l, m, T, size);
    m->h = take(l, T * m->C * size);
    m->branch = take(l, T * m->C * size);
    if (m->train)
        take_gradients(l, m, T, size);
    m->losses = take(l, T * sizeof *m->losses);
    m->logits = take(l, m->V * sizeof *m->logits);
    m->loss = take(l, sizeof *m->loss);
    size_t batch = l->used;
    m->tokens = take(l, T * sizeof *m->tokens);
    m->targets = take(l, T * sizeof *m->targets);
    m->positions = take(l, T * sizeof *m->positions);
    m->cu_seqlens = take(l, (T + 1) * sizeof *m->cu_seqlens);
    m->batch_bytes = l->used - batch;
}

static void configure(struct model *m, const struct settings *s, const struct table *t,
                      size_t tokens_max, bool train)
{
    *m = (struct model){
        .table = t, .tokens_max = tokens_max, .train = train, .causal = s->model_causal};
    m->C = (size_t)s->model_width;
    m->F = table_mlp(s);
    m->L = (size_t)s->model_layers;
    m->NH = (size_t)s->model_heads;
    m->V = (size_t)s->model_vocab;
    m->VP = table_vocab_padded(s);
    m->stochastic = !strcmp(s->train_rounding, "stochastic");
    m->seed = (uint64_t)s->run_seed;
    m->recompute = train && !strcmp(s->train_recompute, "block");
    m->norm = strcmp(s->model_norm, "rms") ? DEV_NORM_LAYER : DEV_NORM_RMS;
    m->act = strcmp(s->model_activation, "gelu_erf") ? DEV_ACT_GELU_TANH : DEV_ACT_GELU_ERF;
}

/* What the ops take for themselves. CPU: a chunk of logits and its gradient; partial sums and tiles
 * of attention, a few MiB. GPU: a chunk of logits, cuBLASLt's 32 MiB, sums of attention for each
 * head and token, the optimizer's table and partial sums, a few MiB. */
static size_t workspace_bytes(const struct model *m, const struct settings *s, enum dtype type)
{
    size_t T = m->tokens_max, width = dev_logit_width(m->V, m->VP);
    if (!strcmp(s->device_kind, "cuda"))
        return dev_logit_rows(DEV_LOGITS_CUDA, T, m->VP) * m->VP * sizeof(float) +
               m->NH * T * sizeof(float) + ((size_t)48 << 20);
    size_t of_logit = sizeof(float) + (m->train && type == DTYPE_BF16 ? dtype_size(type) : 0);
    return dev_logit_rows(DEV_LOGITS_CPU, T, width) * width * of_logit + ((size_t)4 << 20);
}

struct model_memory model_plan(const struct settings *s, const struct table *t,
                               enum dtype model_type, size_t tokens_max, bool train)
{
    struct model m;
    struct layout l = {0};
    configure(&m, s, t, tokens_max, train);
    lay_out(&l, &m, model_type);
    return (struct model_memory){
        .parameters = t->elements * sizeof(float),
        .model_copy = model_type == DTYPE_F32 ? 0 : t->elements * dtype_size(model_type),
        .gradients = train ? t->elements * sizeof(float) : 0,
        .activations = l.used,
        .workspace = workspace_bytes(&m, s, model_type),
    };
}

/* ---- open ---------------------------------------------------------------------------------- */
static ptrdiff_t offset_of(const struct table *t, int layer, const char *name)
{
    char full[TABLE_NAME_MAX];
    if (layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "layers.%d.%s", layer, name);
    const struct tensor *x = table_find(t, full);
    return x ? (ptrdiff_t)x->offset : NONE;
}

static void find_offsets(struct model *m)
{
    const struct table *t = m->table;
    for (int i = 0; i < (int)m->L; i++)
        m->at[i] = (struct block_at){
            .norm1 = {offset_of(t, i, "norm1.weight"), offset_of(t, i, "norm1.bias")},
            .norm2 = {offset_of(t, i, "norm2.weight"), offset_of(t, i, "norm2.bias")},
            .qkv = {offset_of(t, i, "attn.qkv.weight"), offset_of(t, i, "attn.qkv.bias")},
            .proj = {offset_of(t, i, "attn.proj.weight"), offset_of(t, i, "attn.proj.bias")},
            .up = {offset_of(t, i, "mlp.up.weight"), offset_of(t, i, "mlp.up.bias")},
            .down = {offset_of(t, i, "mlp.down.weight"), offset_of(t, i, "mlp.down.bias")},
        };
    m->norm_at = (struct norm_at){offset_of(t, -1, "norm.weight"), offset_of(t, -1, "norm.bias")};
    m->wte = offset_of(t, -1, "wte.weight");
    m->wpe = offset_of(t, -1, "wpe.weight");
}

static enum err take_slabs(struct model *m, const struct settings *s)
{
    struct dev *d = m->dev;
    struct model_memory plan = model_plan(s, m->table, d->model_type, m->tokens_max, m->train);
    TRY(dev_alloc(d, (void **)&m->params, plan.parameters));
    TRY(dev_alloc(d, &m->copy, plan.model_copy));
    TRY(dev_alloc(d, (void **)&m->grads, plan.gradients));
    TRY(dev_alloc(d, &m->slab, plan.activations));
    struct layout l = {.base = m->slab};
    lay_out(&l, m, d->model_type);
    ASSERT(l.used == plan.activations);
    for (int i = 0; i < 2; i++) {
        TRY(d->ops->host_alloc(d, (void **)&m->upload[i].host, m->batch_bytes));
        m->upload[i].mark = dev_marks(d, 1);
    }
    return ERR_OK;
}

enum err model_open(struct model **out, struct dev *d, const struct settings *s,
                    const struct table *t, size_t tokens_max, bool train, struct arena *perm)
{
    struct model *m;
    *out = NULL;
    TRY_ALLOC(m = arena_alloc(perm, sizeof *m));
    configure(m, s, t, tokens_max, train);
    m->dev = d;
    TRY_ALLOC(m->at = arena_array(perm, m->L, sizeof *m->at));
    TRY_ALLOC(m->kept = arena_array(perm, m->L, sizeof *m->kept));
    find_offsets(m);
    enum err e = take_slabs(m, s);
    if (e) {
        model_close(m);
        return e;
    }
    *out = m;
    return ERR_OK;
}

void model_close(struct model *m)
{
    if (!m)
        return;
    dev_free(m->dev, m->params);
    dev_free(m->dev, m->copy);
    dev_free(m->dev, m->grads);
    dev_free(m->dev, m->slab);
    for (int i = 0; i < 2; i++)
        if (m->upload[i].host)
            m->dev->ops->host_free(m->dev, m->upload[i].host);
    m->upload[0].host = m->upload[1].host = NULL;
    m->params = m->grads = NULL;
    m->copy = m->slab = NULL;
}

float *model_params(struct model *m)
{
    return m->params;
}

float *model_grads(struct model *m)
{
    return m->grads;
}

void *model_copy(struct model *m)
{
    return m->copy;
}

size_t model_tokens_max(const struct model *m)
{
    return m->tokens_max;
}

bool model_rounds_by_step(const struct model *m)
{
    return m->copy && m->stochastic;
}

void model_name_step(struct model *m, int64_t step)
{
    m->step = (uint64_t)step;
}

void model_params_changed(struct model *m)
{
    const struct dev_random r = {.seed = m->seed, .step = m->step};
    if (model_rounds_by_step(m))
        m->dev->ops->round_stochastic(m->dev, m->copy, m->params, &r, m->table->elements);
    else if (m->copy)
        m->dev->ops->cast(m->dev, m->copy, m->params, m->table->elements);
}

void model_grads_zero(struct model *m)
{
    m->dev->ops->zero(m->dev, m->grads, m->table->elements * sizeof *m->grads);
}

/* ---- one op each, arguments from offsets --------------------------------------------------- */
static float *param(const struct model *m, ptrdiff_t at)
{
    return at == NONE ? NULL : m->params + at;
}

static float *grad(const struct model *m, ptrdiff_t at)
{
    return at == NONE ? NULL : m->grads + at;
}

/* Weights as the products read them. */
static const void *weight(const struct model *m, ptrdiff_t at)
{
    return m->copy ? (const char *)m->copy + (size_t)at * dtype_size(m->dev->model_type)
                   : (const void *)(m->params + at);
}

static struct dev_norm_args norm_args(const struct model *m, struct norm_at at, size_t T)
{
    return (struct dev_norm_args){.kind = m->norm,
                                  .eps = norm_eps,
                                  .T = T,
                                  .C = m->C,
                                  .gain = param(m, at.gain),
                                  .bias = param(m, at.bias)};
}

/* What the device was given since the last call is of this class. */
static void stage(const struct model *m, enum profile_class c)
{
    profile_mark(m->profile, c);
}

/* y = norm(x + residual); the sum stays in k for backward. */
static void norm_fwd(struct model *m, void *y, struct norm_kept k, struct norm_at at, const void *x,
                     const void *residual, size_t T)
{
    struct dev_norm_args a = norm_args(m, at, T);
    m->dev->ops->norm_fwd(m->dev, y, k.sum, k.mean, k.rstd, x, residual, &a);
    stage(m, PROFILE_NORM);
}

/* Backward runs through the slab from its end, so what lies behind `at` is final, too. */
static void tell(const struct model *m, ptrdiff_t at)
{
    if (m->ready)
        m->ready->final(m->ready->self, (size_t)at);
}

/* dres += norm'(dy); dsum NULL: dres = norm'(dy). */
static void norm_bwd(struct model *m, const void *dy, const void *dsum, struct norm_kept k,
                     struct norm_at at, size_t T)
{
    struct dev_norm_args a = norm_args(m, at, T);
    m->dev->ops->norm_bwd(m->dev, m->dres, grad(m, at.gain), grad(m, at.bias), dy, dsum, k.sum,
                          k.mean, k.rstd, &a);
    stage(m, PROFILE_NORM_BWD);
    tell(m, at.gain);
}

static struct dev_linear linear_args(const struct model *m, struct linear_at at, const void *x,
                                     size_t T, size_t K, size_t N)
{
    return (struct dev_linear){.x = x,
                               .w = weight(m, at.weight),
                               .bias = param(m, at.bias),
                               .T = T,
                               .K = K,
                               .N = N,
                               .act = DEV_ACT_NONE};
}

static void linear_bwd(struct model *m, const struct dev_linear *fwd, struct linear_at at, void *dx,
                       const void *dy, enum profile_class c)
{
    struct dev_linear_grad g = {
        .dy = dy, .dx = dx, .dw = grad(m, at.weight), .dbias = grad(m, at.bias)};
    m->dev->ops->linear_bwd(m->dev, fwd, &g);
    stage(m, c);
    tell(m, at.weight);
}

static struct dev_attention attention_args(const struct model *m, const struct batch *b,
                                           const struct kept *k)
{
    size_t HD = m->C / m->NH;
    return (struct dev_attention){.qkv = k->qkv,
                                  .cu_seqlens = m->cu_seqlens,
                                  .cu_seqlens_host = b->cu_seqlens,
                                  .sequences = b->sequences,
                                  .T = b->tokens_count,
                                  .NH = m->NH,
                                  .KVH = m->NH,
                                  .HD = HD,
                                  .causal = m->causal,
                                  .scale = (float)(1.0 / sqrt((double)HD)),
                                  .lse = k->lse};
}

static struct dev_linear up_args(const struct model *m, size_t i, size_t T)
{
    struct dev_linear a = linear_args(m, m->at[i].up, m->kept[i].h2, T, m->C, m->F);
    a.act = m->act;
    a.pre = m->kept[i].pre;
    return a;
}

/* ---- forward ------------------------------------------------------------------------------- */
static void put(const struct model *m, const struct upload *u, const int32_t *at, const int32_t *from,
                size_t count)
{
    memcpy(u->host + ((const char *)at - (const char *)m->tokens), from, count * sizeof *from);
}

/* Waits only while the device still reads the batch before the last. */
static enum err batch_to_device(struct model *m, const struct batch *b)
{
    struct dev *d = m->dev;
    const struct upload *u = &m->upload[m->uploads++ % 2];
    size_t T = b->tokens_count;
    ASSERT(T > 0 && T <= m->tokens_max && b->sequences > 0 && b->sequences <= T);
    ASSERT(b->cu_seqlens[0] == 0 && (size_t)b->cu_seqlens[b->sequences] == T);
    TRY(d->ops->wait(d, u->mark));
    put(m, u, m->tokens, b->tokens, T);
    put(m, u, m->targets, b->targets, T);
    put(m, u, m->positions, b->positions, T);
    put(m, u, m->cu_seqlens, b->cu_seqlens, b->sequences + 1);
    d->ops->copy_async(d, m->tokens, u->host, m->batch_bytes);
    d->ops->mark(d, u->mark);
    stage(m, PROFILE_UPLOAD);
    return ERR_OK;
}

/* From h1 to what the layer's last product reads; all that backward needs of it. */
static void layer_inside(struct model *m, const struct batch *b, size_t i)
{
    struct dev *d = m->dev;
    const struct kept *k = &m->kept[i];
    const struct block_at *at = &m->at[i];
    size_t T = b->tokens_count, C = m->C;
    struct dev_linear qkv = linear_args(m, at->qkv, k->h1, T, C, 3 * C);
    d->ops->linear_fwd(d, k->qkv, &qkv);
    stage(m, PROFILE_QKV);
    struct dev_attention attention = attention_args(m, b, k);
    d->ops->attention_fwd(d, k->att, &attention);
    stage(m, PROFILE_ATTENTION);
    struct dev_linear proj = linear_args(m, at->proj, k->att, T, C, C);
    d->ops->linear_fwd(d, m->branch, &proj);
    stage(m, PROFILE_PROJ);
    norm_fwd(m, k->h2, k->norm2, at->norm2, m->branch, k->norm1.sum, T);
    struct dev_linear up = up_args(m, i, T);
    d->ops->linear_fwd(d, k->act, &up);
    stage(m, PROFILE_MLP);
}

/* Leaves the branch that the layer adds to its r2 in m->branch. */
static void layer_fwd(struct model *m, const struct batch *b, size_t i)
{
    const struct kept *k = &m->kept[i];
    const struct block_at *at = &m->at[i];
    size_t T = b->tokens_count;
    if (i == 0)
        norm_fwd(m, k->h1, k->norm1, at->norm1, k->norm1.sum, NULL, T);
    else
        norm_fwd(m, k->h1, k->norm1, at->norm1, m->branch, m->kept[i - 1].norm2.sum, T);
    layer_inside(m, b, i);
    struct dev_linear down = linear_args(m, at->down, k->act, T, m->F, m->C);
    m->dev->ops->linear_fwd(m->dev, m->branch, &down);
    stage(m, PROFILE_MLP);
}

/* The activations of a layer once more from the stream in front of it: the same ops on the same
 * bits. The last layer's are still there. */
static void layer_again(struct model *m, const struct batch *b, size_t i)
{
    const struct kept *k = &m->kept[i];
    if (!m->recompute || i == m->L - 1)
        return;
    norm_fwd(m, k->h1, k->norm1, m->at[i].norm1, k->norm1.sum, NULL, b->tokens_count);
    layer_inside(m, b, i);
}

static void forward(struct model *m, const struct batch *b)
{
    struct dev *d = m->dev;
    size_t T = b->tokens_count;
    d->ops->embed_fwd(d, m->kept[0].norm1.sum, weight(m, m->wte), weight(m, m->wpe), m->tokens,
                      m->positions, T, m->C);
    stage(m, PROFILE_EMBED);
    for (size_t i = 0; i < m->L; i++)
        layer_fwd(m, b, i);
    norm_fwd(m, m->h, m->last, m->norm_at, m->branch, m->kept[m->L - 1].norm2.sum, T);
}

/* ---- backward ------------------------------------------------------------------------------ */
/* In: dres, the gradient of down's output. Out: dh, that of h2. down's input gradient goes through
 * the activation on its way and brings up's bias gradient. */
static void mlp_bwd(struct model *m, size_t i, size_t T)
{
    struct dev *d = m->dev;
    const struct kept *k = &m->kept[i];
    const struct block_at *at = &m->at[i];
    struct dev_linear down = linear_args(m, at->down, k->act, T, m->F, m->C), up = up_args(m, i, T);
    struct dev_linear_grad of_down = {.dy = m->dres,
                                      .dx = m->dwide,
                                      .dw = grad(m, at->down.weight),
                                      .dbias = grad(m, at->down.bias),
                                      .act = m->act,
                                      .pre = k->pre,
                                      .pre_dbias = grad(m, at->up.bias)};
    struct dev_linear_grad of_up = {
        .dy = m->dwide, .dx = m->dh, .dw = grad(m, at->up.weight)}; /* its bias has been seen to */
    d->ops->linear_bwd(d, &down, &of_down);
    stage(m, PROFILE_MLP_BWD);
    tell(m, at->down.weight);
    d->ops->linear_bwd(d, &up, &of_up);
    stage(m, PROFILE_MLP_BWD);
    tell(m, at->up.weight);
}

/* dres: the stream's gradient behind layer i on entry, in front of it on return. */
static void layer_bwd(struct model *m, const struct batch *b, size_t i)
{
    struct dev *d = m->dev;
    const struct kept *k = &m->kept[i];
    const struct block_at *at = &m->at[i];
    size_t T = b->tokens_count, C = m->C;
    mlp_bwd(m, i, T);
    norm_bwd(m, m->dh, m->dres, k->norm2, at->norm2, T);
    struct dev_linear proj = linear_args(m, at->proj, k->att, T, C, C);
    linear_bwd(m, &proj, at->proj, m->dh, m->dres, PROFILE_PROJ_BWD);
    struct dev_attention attention = attention_args(m, b, k);
    d->ops->attention_bwd(d, m->dwide, m->dh, k->att, &attention);
    stage(m, PROFILE_ATTENTION_BWD);
    struct dev_linear qkv = linear_args(m, at->qkv, k->h1, T, C, 3 * C);
    linear_bwd(m, &qkv, at->qkv, m->dh, m->dwide, PROFILE_QKV_BWD);
    norm_bwd(m, m->dh, m->dres, k->norm1, at->norm1, T);
}

/* The head's gradient of h is in m->dh. */
static void backward(struct model *m, const struct batch *b)
{
    struct dev *d = m->dev;
    size_t T = b->tokens_count;
    norm_bwd(m, m->dh, NULL, m->last, m->norm_at, T);
    for (size_t i = m->L; i-- > 0;) {
        layer_again(m, b, i);
        layer_bwd(m, b, i);
    }
    d->ops->embed_bwd(d, grad(m, m->wte), grad(m, m->wpe), m->dres, m->tokens, m->positions, T,
                      m->C, m->VP);
    stage(m, PROFILE_EMBED_BWD);
    tell(m, 0);
}

/* ---- losses -------------------------------------------------------------------------------- */
static void classify(struct model *m, const struct batch *b, float grad_scale, bool gradients, double *loss)
{
    struct dev_classifier c = {.x = m->h,
                               .w = weight(m, m->wte),
                               .targets = m->targets,
                               .T = b->tokens_count,
                               .C = m->C,
                               .V = m->V,
                               .VP = m->VP,
                               .grad_scale = grad_scale,
                               .losses = m->losses,
                               .dx = gradients ? m->dh : NULL,
                               .dw = gradients ? grad(m, m->wte) : NULL};
    m->dev->ops->classifier(m->dev, &c);
    m->dev->ops->sum_add(m->dev, loss, m->losses, c.T);
    stage(m, PROFILE_CLASSIFIER);
}

/* The losses are in *m->loss: waits. */
static enum err read_loss(struct model *m, const struct batch *b, double *sum, size_t *count)
{
    m->dev->ops->copy(m->dev, sum, m->loss, sizeof *sum);
    *count = batch_losses(b);
    return dev_sync(m->dev);
}

/* ---- passes: sequences of ops that repeat while the batch's layout does --------------------------- */
enum pass_kind { PASS_FORWARD, PASS_BACKWARD, PASS_EVAL };
struct pass {
    struct model *m;
    const struct batch *b;
    float grad_scale;
    double *loss; /* += the sum of the losses */
    enum pass_kind kind;
};

static void pass_ops(void *self)
{
    const struct pass *p = self;
    if (p->kind == PASS_BACKWARD) {
        backward(p->m, p->b);
        return;
    }
    forward(p->m, p->b);
    classify(p->m, p->b, p->grad_scale, p->kind == PASS_FORWARD, p->loss);
}

/* What the ops of a pass depend on beside the contents of memory: FNV-1a over it. Attention cuts its
 * work by the sequences' lengths. */
static uint64_t pass_key(const struct pass *p)
{
    uint64_t hash = 0xcbf29ce484222325u;
    uint32_t scale;
    memcpy(&scale, &p->grad_scale, sizeof scale);
    const uint64_t words[] = {(uint64_t)p->kind, scale, p->b->sequences, p->b->tokens_count, (uintptr_t)p->loss};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        hash = (hash ^ words[i]) * 0x100000001b3u;
    for (size_t i = 0; i <= p->b->sequences; i++)
        hash = (hash ^ (uint32_t)p->b->cu_seqlens[i]) * 0x100000001b3u;
    return hash;
}

static void pass_run(struct pass p, enum pass_kind kind)
{
    p.kind = kind;
    const struct dev_repeat r = {p.m, pass_key(&p), pass_ops, &p};
    if (profile_on(p.m->profile)) /* somebody wants to see inside: op by op */
        pass_ops(&p);
    else
        p.m->dev->ops->repeat(p.m->dev, &r);
}

enum err model_accumulate(struct model *m, const struct batch *b, float grad_scale,
                          const struct model_ready *ready, double *loss)
{
    struct pass p = {.m = m, .b = b, .grad_scale = grad_scale, .loss = loss};
    ASSERT(m->train);
    TRY(batch_to_device(m, b));
    pass_run(p, PASS_FORWARD);
    m->ready = ready;
    if (ready) /* somebody must be told on the way: op by op */
        backward(m, b);
    else
        pass_run(p, PASS_BACKWARD);
    m->ready = NULL;
    return ERR_OK;
}

enum err model_step(struct model *m, const struct batch *b, float grad_scale,
                    const struct model_ready *ready, double *loss_sum, size_t *loss_count)
{
    m->dev->ops->zero(m->dev, m->loss, sizeof *m->loss);
    TRY(model_accumulate(m, b, grad_scale, ready, m->loss));
    return read_loss(m, b, loss_sum, loss_count);
}

enum err model_eval(struct model *m, const struct batch *b, double *loss_sum, size_t *loss_count)
{
    m->dev->ops->zero(m->dev, m->loss, sizeof *m->loss);
    TRY(batch_to_device(m, b));
    pass_run((struct pass){.m = m, .b = b, .loss = m->loss}, PASS_EVAL);
    return read_loss(m, b, loss_sum, loss_count);
}

void model_profile(struct model *m, struct profile *p)
{
    m->profile = p;
}

enum err model_logits(struct model *m, const struct batch *b, size_t sequence, float *logits)
{
    struct dev *d = m->dev;
    ASSERT(sequence < b->sequences && b->cu_seqlens[sequence + 1] > b->cu_seqlens[sequence]);
    TRY(batch_to_device(m, b));
    forward(m, b);
    size_t row = (size_t)b->cu_seqlens[sequence + 1] - 1;
    const char *x = (const char *)m->h + row * m->C * dtype_size(d->model_type);
    d->ops->logits(d, m->logits, x, weight(m, m->wte), 1, m->C, m->V);
    d->ops->copy(d, logits, m->logits, m->V * sizeof *logits);
    return dev_sync(d);
}
