/* The transformer around its blocks: memory, embedding, head, passes. All arithmetic is in the
 * device's ops. x = wte[token] (+ wpe[position]); the blocks (model_block.c); logits = norm(x)
 * head^T.
 */
#include "inner/model/model_own.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- memory: the same walk adds up the bytes (base NULL) and assigns the buffers ---- */
struct layout {
    char *base;
    size_t used;
};

static void *reserve(struct layout *l, size_t bytes)
{
    void *p = l->base ? l->base + l->used : NULL;
    l->used += (bytes + 63) / 64 * 64;
    return p;
}

static struct norm_saved reserve_norm(struct layout *l, const struct model *m, size_t T,
                                      size_t size)
{
    struct norm_saved k;
    k.residual = reserve(l, T * m->C * size);
    k.mean = m->norm == DEV_NORM_LAYER ? reserve(l, T * sizeof *k.mean) : NULL;
    k.rstd = reserve(l, T * sizeof *k.rstd);
    return k;
}

static struct block_saved reserve_block(struct layout *l, const struct model *m, size_t T,
                                        size_t size)
{
    struct block_saved k = {.norm1 = reserve_norm(l, m, T, size),
                            .norm2 = reserve_norm(l, m, T, size)};
    k.norm1_out = reserve(l, T * m->C * size);
    k.norm2_out = reserve(l, T * m->C * size);
    k.qkv = reserve(l, T * m->Q * size);
    k.att = reserve(l, T * m->C * size);
    k.lse = reserve(l, m->NH * T * sizeof *k.lse);
    k.pre = reserve(l, T * m->U * size);
    k.act = reserve(l, T * m->F * size);
    return k;
}

static void reserve_gradients(struct layout *l, struct model *m, size_t T, size_t size)
{
    m->dresidual = reserve(l, T * m->C * size);
    m->dx = reserve(l, T * m->C * size);
    m->dhidden = reserve(l, T * (m->F > m->Q ? m->F : m->Q) * size);
}

static void lay_out(struct layout *l, struct model *m, enum dtype type)
{
    size_t T = m->tokens_max, size = dtype_size(type);
    struct block_saved k = {0};
    m->rope_table = m->rope_count ? reserve(l, m->rope_count * sizeof *m->rope_table) : NULL;
    for (size_t i = 0; i < m->L; i++) {
        if (i == 0 || (m->train && !m->recompute))
            k = reserve_block(l, m, T, size);
        else if (m->train)
            k.norm1 = reserve_norm(l, m, T, size);
        if (m->saved)
            m->saved[i] = k;
    }
    m->final_norm_saved = reserve_norm(l, m, T, size);
    m->head_in = reserve(l, T * m->C * size);
    m->sublayer_out = reserve(l, T * m->C * size);
    if (m->train)
        reserve_gradients(l, m, T, size);
    m->losses = reserve(l, T * sizeof *m->losses);
    m->logits = reserve(l, m->V * sizeof *m->logits);
    m->loss = reserve(l, sizeof *m->loss);
    size_t batch = l->used;
    m->tokens = reserve(l, T * sizeof *m->tokens);
    m->targets = reserve(l, T * sizeof *m->targets);
    m->positions = reserve(l, T * sizeof *m->positions);
    m->cu_seqlens = reserve(l, (T + 1) * sizeof *m->cu_seqlens);
    m->batch_bytes = l->used - batch;
}

static void configure(struct model *m, const struct model_options *o)
{
    const struct settings *s = o->settings;
    *m = (struct model){.table = o->table,
                        .tokens_max = o->tokens_max,
                        .train = o->train,
                        .causal = s->model_causal};
    m->C = (size_t)s->model_width;
    m->F = table_mlp(s);
    m->L = (size_t)s->model_layers;
    m->NH = (size_t)s->model_heads;
    m->KVH = table_kv_heads(s);
    m->Q = m->C + 2 * m->KVH * (m->C / m->NH);
    m->gated = table_gated(s);
    m->U = m->gated ? 2 * m->F : m->F;
    if (s->model_positions == MODEL_POSITIONS_ROPE)
        m->rope_count = (size_t)s->model_context * (m->C / m->NH);
    m->V = (size_t)s->model_vocab;
    m->VP = table_vocab_padded(s);
    m->stochastic = s->train_rounding == TRAIN_ROUNDING_STOCHASTIC;
    m->seed = (uint64_t)s->run_seed;
    m->recompute = o->train && s->train_activation_checkpointing == TRAIN_CHECKPOINTING_BLOCK;
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

struct model_memory model_plan(const struct model_options *o, enum dtype model_type)
{
    const struct settings *s = o->settings;
    size_t elements = o->table->elements;
    struct model m;
    struct layout l = {0};
    configure(&m, o);
    lay_out(&l, &m, model_type);
    struct dev_shape size = shape(&m, s, model_type);
    return (struct model_memory){
        .parameters = elements * sizeof(float),
        .params_bf16 = model_type == DTYPE_F32 ? 0 : elements * dtype_size(model_type),
        .gradients = o->train ? elements * sizeof(float) : 0,
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
        m->offsets[i] = (struct block_offsets){
            .norm1 = {offset_of(t, i, "norm1.weight"), offset_of(t, i, "norm1.bias")},
            .norm2 = {offset_of(t, i, "norm2.weight"), offset_of(t, i, "norm2.bias")},
            .qkv = {offset_of(t, i, "attn.qkv.weight"), offset_of(t, i, "attn.qkv.bias")},
            .proj = {offset_of(t, i, "attn.proj.weight"), offset_of(t, i, "attn.proj.bias")},
            .up = {offset_of(t, i, "mlp.up.weight"), offset_of(t, i, "mlp.up.bias")},
            .down = {offset_of(t, i, "mlp.down.weight"), offset_of(t, i, "mlp.down.bias")},
        };
    m->final_norm =
        (struct norm_offsets){offset_of(t, -1, "norm.weight"), offset_of(t, -1, "norm.bias")};
    m->wte = offset_of(t, -1, "wte.weight");
    m->wpe = offset_of(t, -1, "wpe.weight");
    m->head = offset_of(t, -1, "head.weight");
    m->head = m->head == NONE ? m->wte : m->head;
}

static enum err alloc_slabs(struct model *m, const struct model_options *o)
{
    struct dev *d = m->dev;
    struct model_memory plan = model_plan(o, d->model_type);
    TRY(dev_alloc(d, (void **)&m->params, plan.parameters));
    TRY(dev_alloc(d, &m->params_bf16, plan.params_bf16));
    TRY(dev_alloc(d, (void **)&m->grads, plan.gradients));
    TRY(dev_alloc(d, &m->slab, plan.activations));
    struct layout l = {.base = m->slab};
    lay_out(&l, m, d->model_type);
    ASSERT(l.used == plan.activations);
    for (int i = 0; i < 2; i++) {
        TRY(d->ops->host_alloc(d, (void **)&m->upload[i].host, m->batch_bytes));
        m->upload[i].event = dev_events(d, 1);
    }
    return ERR_OK;
}

/* Cosines and sines of position * theta^(-2i/HD) for i < HD/2, computed in double and rounded once:
 * the same bits on every device. */
static enum err make_rope_table(struct model *m, const struct settings *s)
{
    struct arena scratch = arena_make(0);
    size_t HD = m->C / m->NH, half = HD / 2;
    float *table = arena_array(&scratch, m->rope_count, sizeof *table);
    if (!table)
        return err_set(ERR_MEMORY, "no memory for the %zu values of the rope table", m->rope_count);
    for (size_t k = 0; k < half; k++) {
        double step = pow(s->model_rope_theta, -2.0 * (double)k / (double)HD);
        for (size_t p = 0; p < m->rope_count / HD; p++) {
            table[p * HD + k] = (float)cos((double)p * step);
            table[p * HD + half + k] = (float)sin((double)p * step);
        }
    }
    m->dev->ops->copy(m->dev, m->rope_table, table, m->rope_count * sizeof *table);
    arena_free(&scratch);
    return ERR_OK;
}

enum err model_open(struct model **out, struct dev *d, const struct model_options *o,
                    struct arena *perm)
{
    struct model *m;
    *out = NULL;
    TRY_ALLOC(m = arena_alloc(perm, sizeof *m));
    configure(m, o);
    m->dev = d;
    TRY_ALLOC(m->offsets = arena_array(perm, m->L, sizeof *m->offsets));
    TRY_ALLOC(m->saved = arena_array(perm, m->L, sizeof *m->saved));
    find_offsets(m);
    enum err e = alloc_slabs(m, o);
    if (!e && m->rope_table)
        e = make_rope_table(m, o->settings);
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
    dev_free(m->dev, m->params_bf16);
    dev_free(m->dev, m->grads);
    dev_free(m->dev, m->slab);
    for (int i = 0; i < 2; i++)
        if (m->upload[i].host)
            m->dev->ops->host_free(m->dev, m->upload[i].host);
    m->upload[0].host = m->upload[1].host = NULL;
    m->params = m->grads = NULL;
    m->params_bf16 = m->slab = NULL;
}

float *model_params(struct model *m)
{
    return m->params;
}

float *model_grads(struct model *m)
{
    return m->grads;
}

void *model_params_bf16(struct model *m)
{
    return m->params_bf16;
}

size_t model_tokens_max(const struct model *m)
{
    return m->tokens_max;
}

bool model_rounds_stochastically(const struct model *m)
{
    return m->params_bf16 && m->stochastic;
}

void model_set_step(struct model *m, int64_t step)
{
    m->step = (uint64_t)step;
}

void model_params_changed(struct model *m)
{
    const struct dev_random r = {.seed = m->seed, .step = m->step};
    if (model_rounds_stochastically(m))
        m->dev->ops->round_stochastic(m->dev, m->params_bf16, m->params, &r, m->table->elements);
    else if (m->params_bf16)
        m->dev->ops->cast(m->dev, m->params_bf16, m->params, m->table->elements);
}

void model_grads_zero(struct model *m)
{
    m->dev->ops->zero(m->dev, m->grads, m->table->elements * sizeof *m->grads);
}

/* ---- forward ---- */
static void stage(const struct model *m, const struct upload *u, const int32_t *to,
                  const int32_t *from, size_t count)
{
    memcpy(u->host + ((const char *)to - (const char *)m->tokens), from, count * sizeof *from);
}

/* Waits only while the device still reads the batch before the last: two host buffers. */
static enum err batch_to_device(struct model *m, const struct batch *b)
{
    struct dev *d = m->dev;
    const struct upload *u = &m->upload[m->uploads++ % 2];
    size_t T = b->tokens_count;
    ASSERT(T > 0 && T <= m->tokens_max && b->sequences > 0 && b->sequences <= T);
    ASSERT(b->cu_seqlens[0] == 0 && (size_t)b->cu_seqlens[b->sequences] == T);
    TRY(d->ops->event_wait(d, u->event));
    stage(m, u, m->tokens, b->tokens, T);
    stage(m, u, m->targets, b->targets, T);
    stage(m, u, m->positions, b->positions, T);
    stage(m, u, m->cu_seqlens, b->cu_seqlens, b->sequences + 1);
    d->ops->copy_async(d, m->tokens, u->host, m->batch_bytes);
    d->ops->event_record(d, u->event);
    block_profile(m, PROFILE_UPLOAD);
    return ERR_OK;
}

static void forward(struct model *m, const struct batch *b)
{
    struct dev *d = m->dev;
    size_t T = b->tokens_count;
    d->ops->embed_fwd(d, m->saved[0].norm1.residual,
                      &(struct dev_embed){.wte = block_weight(m, m->wte),
                                          .wpe = block_weight(m, m->wpe),
                                          .tokens = m->tokens,
                                          .positions = m->positions,
                                          .T = T,
                                          .C = m->C});
    block_profile(m, PROFILE_EMBED);
    for (size_t i = 0; i < m->L; i++)
        block_fwd(m, b, i);
    struct norm_run final_norm = {m->final_norm, m->final_norm_saved, T};
    block_norm_fwd(m, &final_norm, m->head_in, m->sublayer_out, m->saved[m->L - 1].norm2.residual);
}

/* ---- backward ---- */
/* On entry m->dx holds the gradient of head_in. */
static void backward(struct model *m, const struct batch *b)
{
    struct dev *d = m->dev;
    size_t T = b->tokens_count;
    struct norm_run final_norm = {m->final_norm, m->final_norm_saved, T};
    block_norm_bwd(m, &final_norm, m->dx, NULL);
    for (size_t i = m->L; i-- > 0;) {
        block_recompute(m, b, i);
        block_bwd(m, b, i);
    }
    d->ops->embed_bwd(
        d,
        &(struct dev_embed){
            .tokens = m->tokens, .positions = m->positions, .T = T, .C = m->C, .VP = m->VP},
        &(struct dev_embed_grad){
            .dx = m->dresidual, .dwte = block_grad(m, m->wte), .dwpe = block_grad(m, m->wpe)});
    block_profile(m, PROFILE_EMBED_BWD);
    grad_ready(m, 0);
}

/* ---- losses ---- */
static void classify(struct model *m, const struct batch *b, float grad_scale, bool gradients,
                     double *loss)
{
    struct dev_classifier c = {.x = m->head_in,
                               .w = block_weight(m, m->head),
                               .targets = m->targets,
                               .T = b->tokens_count,
                               .C = m->C,
                               .V = m->V,
                               .VP = m->VP,
                               .grad_scale = grad_scale,
                               .losses = m->losses,
                               .dx = gradients ? m->dx : NULL,
                               .dw = gradients ? block_grad(m, m->head) : NULL};
    m->dev->ops->classifier(m->dev, &c);
    m->dev->ops->sum_add(m->dev, loss, m->losses, c.T);
    block_profile(m, PROFILE_CLASSIFIER);
}

/* Waits for the device and reads *m->loss. */
static enum err read_loss(struct model *m, const struct batch *b, double *sum, size_t *count)
{
    m->dev->ops->copy(m->dev, sum, m->loss, sizeof *sum);
    *count = batch_targets(b);
    return dev_sync(m->dev);
}

/* ---- passes: op sequences that the device may record once for each layout of a batch ---- */
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

/* FNV-1a hash of everything that determines the ops of a pass, except the contents of memory.
 * Attention divides its work by the lengths of the sequences. */
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
    const struct dev_graph r = {p.m, pass_key(&p), pass_ops, &p};
    if (profile_on(p.m->profile)) /* profiling times single ops: not as a graph */
        pass_ops(&p);
    else
        p.m->dev->ops->graph_run(p.m->dev, &r);
}

enum err model_accumulate(struct model *m, const struct batch *b, float grad_scale,
                          const struct model_grad_hook *hook, double *loss)
{
    struct pass p = {.m = m, .b = b, .grad_scale = grad_scale, .loss = loss};
    ASSERT(m->train);
    TRY(batch_to_device(m, b));
    pass_run(p, PASS_FORWARD);
    m->grad_hook = hook;
    if (hook) /* the host calls the hook between ops: not as a graph */
        backward(m, b);
    else
        pass_run(p, PASS_BACKWARD);
    m->grad_hook = NULL;
    return ERR_OK;
}

enum err model_step(struct model *m, const struct batch *b, float grad_scale,
                    const struct model_grad_hook *hook, double *loss_sum, size_t *loss_count)
{
    m->dev->ops->zero(m->dev, m->loss, sizeof *m->loss);
    TRY(model_accumulate(m, b, grad_scale, hook, m->loss));
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
    const char *x = (const char *)m->head_in + row * m->C * dtype_size(d->model_type);
    d->ops->logits(
        d, m->logits,
        &(struct dev_linear){.x = x, .w = block_weight(m, m->head), .T = 1, .K = m->C, .N = m->V});
    d->ops->copy(d, logits, m->logits, m->V * sizeof *logits);
    return dev_sync(d);
}
