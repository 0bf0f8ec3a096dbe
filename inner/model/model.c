/* The transformer around its blocks: memory, embedding, head, passes. All arithmetic is in the
 * device's ops. x = wte[token] (+ wpe[position]); the blocks (block.c); logits = norm(x) head^T.
 */
#include "inner/model/model_own.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- memory: one walk both plans (base NULL) and lays out ---- */
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
    k.qkv = take(l, T * m->Q * size);
    k.att = take(l, T * m->C * size);
    k.lse = take(l, m->NH * T * sizeof *k.lse);
    k.pre = take(l, T * m->U * size);
    k.act = take(l, T * m->F * size);
    return k;
}

static void take_gradients(struct layout *l, struct model *m, size_t T, size_t size)
{
    m->dres = take(l, T * m->C * size);
    m->dh = take(l, T * m->C * size);
    m->dwide = take(l, T * (m->F > m->Q ? m->F : m->Q) * size);
}

static void lay_out(struct layout *l, struct model *m, enum dtype type)
{
    size_t T = m->tokens_max, size = dtype_size(type);
    struct kept k = {0};
    m->angles = m->angles_count ? take(l, m->angles_count * sizeof *m->angles) : NULL;
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
    m->KVH = table_kv_heads(s);
    m->Q = m->C + 2 * m->KVH * (m->C / m->NH);
    m->gated = table_gated(s);
    m->U = m->gated ? 2 * m->F : m->F;
    if (s->model_positions == MODEL_POSITIONS_ROPE)
        m->angles_count = (size_t)s->model_context * (m->C / m->NH);
    m->V = (size_t)s->model_vocab;
    m->VP = table_vocab_padded(s);
    m->stochastic = s->train_rounding == TRAIN_ROUNDING_STOCHASTIC;
    m->seed = (uint64_t)s->run_seed;
    m->recompute = train && s->train_activation_checkpointing == TRAIN_CHECKPOINTING_BLOCK;
    m->norm = s->model_norm == MODEL_NORM_RMS ? DEV_NORM_RMS : DEV_NORM_LAYER;
    m->norm_eps = (float)s->model_norm_eps;
    m->act = m->gated                                           ? DEV_ACT_NONE
             : s->model_activation == MODEL_ACTIVATION_GELU_ERF ? DEV_ACT_GELU_ERF
                                                                : DEV_ACT_GELU_TANH;
}

static struct dev_shape shape(const struct model *m, const struct settings *s, enum dtype type)
{
    return (struct dev_shape){.type = type,
                              .train = m->train,
                              .T = m->tokens_max,
                              .C = m->C,
                              .N = m->U > m->Q ? m->U : m->Q,
                              .NH = m->NH,
                              .V = m->V,
                              .VP = m->VP,
                              .S = (size_t)s->train_sequence,
                              .attention =
                                  config_choice_name(device_attention_choices, s->device_attention),
                              .elements = m->table->elements};
}

struct model_memory model_plan(const struct settings *s, const struct table *t,
                               enum dtype model_type, size_t tokens_max, bool train)
{
    struct model m;
    struct layout l = {0};
    configure(&m, s, t, tokens_max, train);
    lay_out(&l, &m, model_type);
    struct dev_shape size = shape(&m, s, model_type);
    return (struct model_memory){
        .parameters = t->elements * sizeof(float),
        .model_copy = model_type == DTYPE_F32 ? 0 : t->elements * dtype_size(model_type),
        .gradients = train ? t->elements * sizeof(float) : 0,
        .activations = l.used,
        .workspace = dev_workspace(config_choice_name(device_kind_choices, s->device_kind), &size),
    };
}

/* ---- open ---- */
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
    m->head = offset_of(t, -1, "head.weight");
    m->head = m->head == NONE ? m->wte : m->head;
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

/* Angles of rope in double, rounded once, so that every device turns by the same bits: position
 * times theta^(-2i/HD) for i < HD/2. */
static enum err make_angles(struct model *m, const struct settings *s)
{
    struct arena scratch = arena_make(0);
    size_t HD = m->C / m->NH, half = HD / 2;
    float *table = arena_array(&scratch, m->angles_count, sizeof *table);
    if (!table)
        return err_set(ERR_MEMORY, "no memory for the %zu angles of rope", m->angles_count);
    for (size_t k = 0; k < half; k++) {
        double step = pow(s->model_rope_theta, -2.0 * (double)k / (double)HD);
        for (size_t p = 0; p < m->angles_count / HD; p++) {
            table[p * HD + k] = (float)cos((double)p * step);
            table[p * HD + half + k] = (float)sin((double)p * step);
        }
    }
    m->dev->ops->copy(m->dev, m->angles, table, m->angles_count * sizeof *table);
    arena_free(&scratch);
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
    if (!e && m->angles)
        e = make_angles(m, s);
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

/* ---- forward ---- */
static void put(const struct model *m, const struct upload *u, const int32_t *at,
                const int32_t *from, size_t count)
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
    block_stage(m, PROFILE_UPLOAD);
    return ERR_OK;
}

static void forward(struct model *m, const struct batch *b)
{
    struct dev *d = m->dev;
    size_t T = b->tokens_count;
    d->ops->embed_fwd(d, m->kept[0].norm1.sum, block_weight(m, m->wte), block_weight(m, m->wpe),
                      m->tokens, m->positions, T, m->C);
    block_stage(m, PROFILE_EMBED);
    for (size_t i = 0; i < m->L; i++)
        block_fwd(m, b, i);
    block_norm_fwd(m, m->h, m->last, m->norm_at, m->branch, m->kept[m->L - 1].norm2.sum, T);
}

/* ---- backward ---- */
/* The head's gradient of h is in m->dh. */
static void backward(struct model *m, const struct batch *b)
{
    struct dev *d = m->dev;
    size_t T = b->tokens_count;
    block_norm_bwd(m, m->dh, NULL, m->last, m->norm_at, T);
    for (size_t i = m->L; i-- > 0;) {
        block_again(m, b, i);
        block_bwd(m, b, i);
    }
    d->ops->embed_bwd(d, block_grad(m, m->wte), block_grad(m, m->wpe), m->dres, m->tokens,
                      m->positions, T, m->C, m->VP);
    block_stage(m, PROFILE_EMBED_BWD);
    block_tell(m, 0);
}

/* ---- losses ---- */
static void classify(struct model *m, const struct batch *b, float grad_scale, bool gradients,
                     double *loss)
{
    struct dev_classifier c = {.x = m->h,
                               .w = block_weight(m, m->head),
                               .targets = m->targets,
                               .T = b->tokens_count,
                               .C = m->C,
                               .V = m->V,
                               .VP = m->VP,
                               .grad_scale = grad_scale,
                               .losses = m->losses,
                               .dx = gradients ? m->dh : NULL,
                               .dw = gradients ? block_grad(m, m->head) : NULL};
    m->dev->ops->classifier(m->dev, &c);
    m->dev->ops->sum_add(m->dev, loss, m->losses, c.T);
    block_stage(m, PROFILE_CLASSIFIER);
}

/* The losses are in *m->loss: waits. */
static enum err read_loss(struct model *m, const struct batch *b, double *sum, size_t *count)
{
    m->dev->ops->copy(m->dev, sum, m->loss, sizeof *sum);
    *count = batch_targets(b);
    return dev_sync(m->dev);
}

/* ---- passes: sequences of ops that repeat while the batch's layout does ---- */
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

/* What the ops of a pass depend on beside the contents of memory: FNV-1a over it. Attention cuts
 * its work by the sequences' lengths. */
static uint64_t pass_key(const struct pass *p)
{
    uint64_t hash = 0xcbf29ce484222325u;
    uint32_t scale;
    memcpy(&scale, &p->grad_scale, sizeof scale);
    const uint64_t words[] = {(uint64_t)p->kind, scale, p->b->sequences, p->b->tokens_count,
                              (uintptr_t)p->loss};
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
    d->ops->logits(d, m->logits, x, block_weight(m, m->head), 1, m->C, m->V);
    d->ops->copy(d, logits, m->logits, m->V * sizeof *logits);
    return dev_sync(d);
}
