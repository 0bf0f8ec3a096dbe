/* The transformer around its embedding (embed.c), blocks (model_block.c) and heads (head.c): memory
 * and passes. All arithmetic is in the device's ops.
 */
#include "inner/model/model_own.h"
#include "inner/model/model_parts.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- memory ---- */
void *layout_reserve(struct layout *l, size_t bytes)
{
    void *p = l->base ? l->base + l->used : NULL;
    l->used += (bytes + 63) / 64 * 64;
    return p;
}

struct norm_saved layout_norm(struct layout *l, const struct model *m, size_t rows, size_t width)
{
    struct norm_saved k;
    k.residual = layout_reserve(l, rows * width * l->value);
    k.mean = m->norm == DEV_NORM_LAYER ? layout_reserve(l, rows * sizeof *k.mean) : NULL;
    k.rstd = layout_reserve(l, rows * sizeof *k.rstd);
    return k;
}

static struct block_saved reserve_block(struct layout *l, const struct model *m, size_t T)
{
    struct block_saved k = {.norm1 = layout_norm(l, m, T, m->C),
                            .norm2 = layout_norm(l, m, T, m->C)};
    k.norm1_out = layout_reserve(l, T * m->C * l->value);
    k.norm2_out = layout_reserve(l, T * m->C * l->value);
    k.qkv = layout_reserve(l, T * m->Q * l->value);
    k.att = layout_reserve(l, T * m->C * l->value);
    k.lse = layout_reserve(l, m->NH * T * sizeof *k.lse);
    k.pre = layout_reserve(l, T * m->U * l->value);
    k.act = layout_reserve(l, T * m->F * l->value);
    return k;
}

/* Of each layer its own, or what its activations are recomputed from. */
static void reserve_blocks(struct layout *l, struct model *m, size_t T)
{
    struct block_saved k = {0};
    for (size_t i = 0; i < m->L; i++) {
        if (i == 0 || (m->train && !m->recompute))
            k = reserve_block(l, m, T);
        else if (m->train && m->post)
            k.norm2_out = layout_reserve(l, T * m->C * l->value);
        else if (m->train)
            k.norm1 = layout_norm(l, m, T, m->C);
        if (m->saved)
            m->saved[i] = k;
    }
}

/* The gradients of the mlm head's rows, a multiple of BATCH_UNIT, take the same buffers. */
static void reserve_gradients(struct layout *l, struct model *m, size_t T)
{
    size_t rows = T > m->token.max ? T : m->token.max, width = m->C > m->E ? m->C : m->E;
    m->dresidual = layout_reserve(l, rows * width * l->value);
    m->dx = layout_reserve(l, rows * width * l->value);
    m->dbranch = branch_apart(m) ? layout_reserve(l, T * m->C * l->value) : NULL;
    m->dhidden = layout_reserve(l, T * (m->F > m->Q ? m->F : m->Q) * l->value);
}

static void reserve_batch(struct layout *l, struct model *m, size_t T)
{
    size_t batch = l->used;
    m->tokens = layout_reserve(l, T * sizeof *m->tokens);
    m->targets = layout_reserve(l, T * sizeof *m->targets);
    m->positions = layout_reserve(l, T * sizeof *m->positions);
    m->cu_seqlens = layout_reserve(l, (T + 1) * sizeof *m->cu_seqlens);
    m->token_types = m->types ? layout_reserve(l, T * sizeof *m->token_types) : NULL;
    head_reserve_batch(l, m);
    additions_reserve_batch(l, m, T);
    m->batch_bytes = l->used - batch;
}

/* What the heads read: the output of the last norm, or the last state of the residual stream; with
 * post norms the output of the last layer of a pass (stage_depth). */
static void assign_head_in(struct layout *l, struct model *m, size_t T)
{
    m->final_norm_saved = layout_norm(l, m, T, m->C);
    if (m->final_norm.gain != NONE)
        m->head_in = layout_reserve(l, T * m->C * l->value);
    else
        m->head_in = m->final_norm_saved.residual;
}

void model_use_set(struct model *m, size_t i)
{
    const struct activation_set *set = &m->sets[i];
    ASSERT(i < m->set_count);
    m->saved = set->saved;
    m->embed_norm = set->embed_norm;
    m->embed_out = set->embed_out;
    m->embedded = set->embedded;
}

/* sets NULL: bytes alone are asked for. */
static void reserve_set(struct layout *l, struct model *m, struct activation_set *set, size_t T)
{
    m->saved = set ? set->saved : NULL;
    reserve_blocks(l, m, T);
    embed_reserve(l, m, T);
    if (!m->post)
        m->embedded = m->saved ? m->saved[0].norm1.residual : NULL;
    if (set)
        *set = (struct activation_set){m->saved, m->embed_norm, m->embed_out, m->embedded};
}

static void lay_out(struct layout *l, struct model *m)
{
    size_t T = m->tokens_max, rows = T > m->token.max ? T : m->token.max;
    size_t width = m->C > m->E ? m->C : m->E;
    m->rope_table = m->rope_count ? layout_reserve(l, m->rope_count * sizeof(float)) : NULL;
    m->rope_local =
        m->rope_count && m->window ? layout_reserve(l, m->rope_count * sizeof(float)) : NULL;
    for (size_t i = 0; i < m->set_count; i++)
        reserve_set(l, m, m->sets ? &m->sets[i] : NULL, T);
    assign_head_in(l, m, T);
    m->sublayer_out = layout_reserve(l, T * width * l->value);
    if (m->train)
        reserve_gradients(l, m, T);
    m->losses = layout_reserve(l, rows * sizeof *m->losses);
    head_reserve(l, m);
    m->loss = layout_reserve(l, MODEL_LOSSES * sizeof *m->loss);
    if (m->settings->train_eval_attention)
        m->largest = layout_reserve(l, m->L * sizeof *m->largest);
    reserve_batch(l, m, T);
}

/* ---- configuration ---- */
ptrdiff_t table_offset(const struct table *t, int layer, const char *name)
{
    char full[TABLE_NAME_MAX];
    if (layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "layers.%d.%s", layer, name);
    const struct tensor *x = table_find(t, full);
    return x ? (ptrdiff_t)x->offset : NONE;
}

struct linear_offsets linear_offsets_of(const struct table *t, int layer, const char *module)
{
    char weight[TABLE_NAME_MAX], bias[TABLE_NAME_MAX];
    snprintf(weight, sizeof weight, "%s.weight", module);
    snprintf(bias, sizeof bias, "%s.bias", module);
    return (struct linear_offsets){table_offset(t, layer, weight), table_offset(t, layer, bias)};
}

struct norm_offsets norm_offsets_of(const struct table *t, int layer, const char *module)
{
    struct linear_offsets at = linear_offsets_of(t, layer, module);
    return (struct norm_offsets){at.weight, at.bias};
}

static void configure_block(struct model *m, const struct settings *s)
{
    m->gated = table_gated(s);
    m->gate = s->model_activation == MODEL_ACTIVATION_GEGLU ? DEV_GATE_GELU_ERF : DEV_GATE_SILU;
    m->act = m->gated                                           ? DEV_ACT_NONE
             : s->model_activation == MODEL_ACTIVATION_GELU_ERF ? DEV_ACT_GELU_ERF
                                                                : DEV_ACT_GELU_TANH;
    m->norm = s->model_norm == MODEL_NORM_RMS ? DEV_NORM_RMS : DEV_NORM_LAYER;
    m->norm_eps = (float)s->model_norm_eps;
    m->post = s->model_norm_place == MODEL_NORM_POST;
    m->shared = s->model_shared;
    m->causal = s->model_causal;
    m->window = (size_t)s->model_window;
    m->global_every = (size_t)s->model_global_every;
}

static void find_embed_offsets(struct model *m)
{
    const struct table *t = m->table;
    m->final_norm = norm_offsets_of(t, -1, "norm");
    m->embed = (struct embed_offsets){.wte = table_offset(t, -1, "wte.weight"),
                                      .wpe = table_offset(t, -1, "wpe.weight"),
                                      .wtt = table_offset(t, -1, "wtt.weight"),
                                      .norm = norm_offsets_of(t, -1, "embed.norm"),
                                      .proj = linear_offsets_of(t, -1, "embed.proj")};
}

static void configure(struct model *m, const struct model_options *o)
{
    const struct settings *s = o->settings;
    *m = (struct model){
        .settings = s, .table = o->table, .tokens_max = o->tokens_max, .train = o->train};
    m->C = (size_t)s->model_width;
    m->E = table_embed(s);
    m->F = table_mlp(s);
    m->L = (size_t)s->model_layers;
    m->set_count = o->train ? model_sets(s) : 1;
    m->NH = (size_t)s->model_heads;
    m->KVH = table_kv_heads(s);
    m->Q = m->C + 2 * m->KVH * (m->C / m->NH);
    configure_block(m, s);
    m->U = m->gated ? 2 * m->F : m->F;
    m->types = (size_t)s->model_types;
    if (s->model_positions == MODEL_POSITIONS_ROPE)
        m->rope_count = (size_t)s->model_context * (m->C / m->NH);
    m->V = (size_t)s->model_vocab;
    m->VP = table_vocab_padded(s);
    m->stochastic = s->train_rounding == TRAIN_ROUNDING_STOCHASTIC;
    m->seed = (uint64_t)s->run_seed;
    m->finished = s->train_steps;
    m->layers = m->L;
    m->recompute = o->train && s->train_activation_checkpointing == TRAIN_CHECKPOINTING_BLOCK;
    additions_configure(m, o);
    find_embed_offsets(m);
    head_configure(m, o);
    head_find_offsets(m);
}

struct dev_emulation model_emulation(const struct settings *s)
{
    return (struct dev_emulation){.fp8 = s->device_products == DEVICE_PRODUCTS_FP8 ? DEV_FP8_E5M2
                                         : s->device_products == DEVICE_PRODUCTS_FP8_HYBRID
                                             ? DEV_FP8_HYBRID
                                             : DEV_FP8_NONE,
                                  .accumulator = (int)s->device_accumulator,
                                  .chunk = (size_t)s->device_accumulator_chunk};
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
                              .emulation = model_emulation(s),
                              .attention =
                                  config_choice_name(device_attention_choices, s->device_attention),
                              .elements = m->table->elements};
}

struct model_memory model_plan(const struct model_options *o, enum dtype model_type)
{
    const struct settings *s = o->settings;
    size_t elements = o->table->elements;
    struct model m;
    struct layout l = {.value = dtype_size(model_type)};
    configure(&m, o);
    lay_out(&l, &m);
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
static void find_block_offsets(struct model *m)
{
    const struct table *t = m->table;
    for (size_t i = 0; i < m->L; i++) {
        int layer = m->shared ? 0 : (int)i;
        m->offsets[i] = (struct block_offsets){
            .norm1 = norm_offsets_of(t, layer, "norm1"),
            .norm2 = norm_offsets_of(t, layer, "norm2"),
            .qkv = linear_offsets_of(t, layer, "attn.qkv"),
            .proj = linear_offsets_of(t, layer, "attn.proj"),
            .up = linear_offsets_of(t, layer, "mlp.up"),
            .down = linear_offsets_of(t, layer, "mlp.down"),
        };
    }
}

static enum err alloc_slabs(struct model *m, const struct model_options *o)
{
    struct dev *d = m->dev;
    struct model_memory plan = model_plan(o, d->model_type);
    TRY(dev_alloc(d, (void **)&m->params, plan.parameters));
    TRY(dev_alloc(d, &m->params_bf16, plan.params_bf16));
    TRY(dev_alloc(d, (void **)&m->grads, plan.gradients));
    TRY(dev_alloc(d, &m->slab, plan.activations));
    struct layout l = {.base = m->slab, .value = dtype_size(d->model_type)};
    lay_out(&l, m);
    ASSERT(l.used == plan.activations);
    model_use_set(m, 0);
    for (int i = 0; i < 2; i++) {
        TRY(d->ops->host_alloc(d, (void **)&m->upload[i].host, m->batch_bytes));
        m->upload[i].event = dev_events(d, 1);
    }
    return ERR_OK;
}

/* The angle of a step from one position to the next, as Llama 3.1 scales it (transformers'
 * rope_type "llama3"). */
static double rope_scaled(const struct settings *s, double step)
{
    double turns = step * (double)s->model_rope_original / (2 * 3.14159265358979323846);
    if (turns >= s->model_rope_high)
        return step;
    if (turns <= s->model_rope_low)
        return step / s->model_rope_factor;
    double part = (turns - s->model_rope_low) / (s->model_rope_high - s->model_rope_low);
    return (1 - part) * step / s->model_rope_factor + part * step;
}

/* Cosines and sines of position * theta^(-2i/HD) for i < HD/2, computed in double and rounded once:
 * the same bits on every device. scaled NULL: the angles are not scaled. */
static enum err make_rope_table(struct model *m, float *to, double theta,
                                const struct settings *scaled)
{
    struct arena scratch = arena_make(0);
    size_t HD = m->C / m->NH, half = HD / 2;
    float *table = arena_array(&scratch, m->rope_count, sizeof *table);
    if (!table)
        return err_set(ERR_MEMORY, "no memory for the %zu values of the rope table", m->rope_count);
    for (size_t k = 0; k < half; k++) {
        double step = pow(theta, -2.0 * (double)k / (double)HD);
        step = scaled && scaled->model_rope_factor > 1 ? rope_scaled(scaled, step) : step;
        for (size_t p = 0; p < m->rope_count / HD; p++) {
            table[p * HD + k] = (float)cos((double)p * step);
            table[p * HD + half + k] = (float)sin((double)p * step);
        }
    }
    m->dev->ops->copy(m->dev, to, table, m->rope_count * sizeof *table);
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
    TRY_ALLOC(m->sets = arena_array(perm, m->set_count, sizeof *m->sets));
    for (size_t i = 0; i < m->set_count; i++)
        TRY_ALLOC(m->sets[i].saved = arena_array(perm, m->L, sizeof *m->saved));
    find_block_offsets(m);
    TRY(heads_open(m, perm));
    enum err e = alloc_slabs(m, o);
    if (!e && m->rope_table)
        e = make_rope_table(m, m->rope_table, o->settings->model_rope_theta, o->settings);
    if (!e && m->rope_local)
        e = make_rope_table(m, m->rope_local, o->settings->model_rope_theta_local, NULL);
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
    m->finished = step;
}

void model_set_finished(struct model *m, int64_t steps)
{
    m->finished = steps;
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

/* A step trains the layers of its stage; an evaluation has those that training has reached. */
static void stage_depth(struct model *m, const struct batch *b)
{
    struct depth_stage x = depth_stage_of(m->settings, b->step);
    m->layers = (size_t)(m->training ? x.layers : depth_layers_after(m->settings, m->finished));
    m->first = m->training ? (size_t)x.first : 0;
    if (m->post)
        m->head_in = m->saved[m->layers - 1].norm2_out;
}

/* Waits only while the device still reads the batch before the last: two host buffers. */
enum err batch_to_device(struct model *m, const struct batch *b, float grad_scale)
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
    if (m->types)
        stage(m, u, m->token_types, b->types, T);
    head_stage(m, b, u, grad_scale);
    additions_stage(m, b, u, grad_scale);
    stage_depth(m, b);
    d->ops->copy_async(d, m->tokens, u->host, m->batch_bytes);
    d->ops->event_record(d, u->event);
    block_profile(m, PROFILE_UPLOAD);
    return ERR_OK;
}

static struct norm_run final_norm(const struct model *m, size_t T)
{
    return (struct norm_run){m->final_norm, m->final_norm_saved, T, m->C,
                             dropout_mlp(layer_before(m, m->L))};
}

static void final_norm_fwd(struct model *m, size_t T)
{
    struct norm_run last = final_norm(m, T);
    if (!m->post)
        block_norm_fwd(m, &last, m->head_in, m->sublayer_out,
                       m->saved[layer_before(m, m->L)].norm2.residual);
}

static void forward(struct model *m, const struct batch *b)
{
    embed_fwd(m, b);
    for (size_t i = 0; i < m->L; i++)
        if (layer_runs(m, i))
            block_fwd(m, b, i);
    final_norm_fwd(m, b->tokens_count);
}

void heads_fwd_from(struct model *m, const struct head_pass *p)
{
    final_norm_fwd(m, p->batch->tokens_count);
    head_fwd(m, p);
}

/* ---- backward ---- */
void heads_bwd_to(struct model *m, const struct batch *b)
{
    struct norm_run last = final_norm(m, b->tokens_count);
    head_bwd(m, b);
    if (last.offsets.gain != NONE)
        block_norm_bwd(m, &last, m->dresidual, m->dx, NULL);
    else if (!m->post)
        dropout_apply(m, m->dbranch, m->dresidual, last.place, last.T, last.C);
}

static void backward(struct model *m, const struct batch *b)
{
    const struct model_grad_hook *hook = m->grad_hook;
    heads_bwd_to(m, b);
    for (size_t i = m->L; i-- > m->first;) {
        if (!layer_runs(m, i))
            continue;
        m->grad_hook = m->shared && i ? NULL : hook; /* its gradient is final after its last use */
        block_recompute(m, b, i);
        block_bwd(m, b, i);
    }
    if (embed_learns(m))
        embed_bwd(m, b, m->post ? m->dx : m->dresidual);
}

/* ---- losses ---- */
/* Waits for the device and reads *m->loss. */
static enum err read_loss(struct model *m, const struct batch *b, struct model_loss *loss)
{
    m->dev->ops->copy(m->dev, loss->sum, m->loss, sizeof loss->sum);
    memset(loss->count, 0, sizeof loss->count);
    for (size_t i = 0; i < MODEL_LOSS_ROWS; i++)
        if (loss_rows[i].learned)
            loss->count[i] = loss_rows[i].unit == LOSS_OF_TARGETS ? batch_targets(b)
                             : m->sequence.tasks                  ? batch_labels(b)
                                                                  : 0;
    return dev_sync(m->dev);
}

/* ---- passes: op sequences that the device may record once for each layout of a batch ---- */
enum pass_kind { PASS_FORWARD, PASS_BACKWARD, PASS_EVAL };
struct pass {
    struct model *m;
    const struct batch *b;
    float grad_scale;
    double *loss; /* (MODEL_LOSSES) += the sums of the losses */
    enum pass_kind kind;
};

static void pass_ops(void *self)
{
    const struct pass *p = self;
    if (p->kind == PASS_BACKWARD) {
        backward(p->m, p->b);
        return;
    }
    p->m->evaluating = p->kind == PASS_EVAL;
    forward(p->m, p->b);
    p->m->evaluating = false;
    head_fwd(p->m, &(struct head_pass){p->b, p->grad_scale, p->loss, p->kind == PASS_FORWARD});
}

/* FNV-1a hash of everything that determines the ops of a pass, except the contents of memory.
 * Attention divides its work by the lengths of the sequences. */
static uint64_t pass_key(const struct pass *p)
{
    uint64_t hash = 0xcbf29ce484222325u;
    uint32_t scale;
    memcpy(&scale, &p->grad_scale, sizeof scale);
    const uint64_t words[] = {(uint64_t)p->kind,  scale,       p->b->sequences,
                              p->b->tokens_count, p->m->first, (uintptr_t)p->loss};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        hash = (hash ^ words[i]) * 0x100000001b3u;
    for (size_t i = 0; i < p->m->L; i++)
        hash = (hash ^ layer_runs(p->m, i)) * 0x100000001b3u;
    for (size_t i = 0; i < HEAD_KEYS; i++)
        hash = (hash ^ head_key(p->m, p->b, i)) * 0x100000001b3u;
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
    m->training = true;
    TRY(batch_to_device(m, b, grad_scale));
    additions_begin(m, loss);
    pass_run(p, PASS_FORWARD);
    m->grad_hook = hook;
    if (hook) /* the host calls the hook between ops: not as a graph */
        backward(m, b);
    else
        pass_run(p, PASS_BACKWARD);
    m->grad_hook = NULL;
    additions_end(m);
    m->training = false;
    return ERR_OK;
}

enum err model_step(struct model *m, const struct batch *b, float grad_scale,
                    const struct model_grad_hook *hook, struct model_loss *loss)
{
    m->dev->ops->zero(m->dev, m->loss, MODEL_LOSSES * sizeof *m->loss);
    TRY(model_accumulate(m, b, grad_scale, hook, m->loss));
    return read_loss(m, b, loss);
}

enum err model_eval(struct model *m, const struct batch *b, struct model_loss *loss)
{
    m->dev->ops->zero(m->dev, m->loss, MODEL_LOSSES * sizeof *m->loss);
    TRY(batch_to_device(m, b, 0));
    pass_run((struct pass){.m = m, .b = b, .loss = m->loss}, PASS_EVAL);
    return read_loss(m, b, loss);
}

enum err model_eval_losses(struct model *m, const struct batch *b, float *losses)
{
    struct dev *d = m->dev;
    ASSERT(!m->mlm);
    d->ops->zero(d, m->loss, MODEL_LOSSES * sizeof *m->loss);
    TRY(batch_to_device(m, b, 0));
    forward(m, b);
    head_fwd(m, &(struct head_pass){b, 0, m->loss, false});
    d->ops->copy(d, losses, m->losses, b->tokens_count * sizeof *losses);
    return dev_sync(d);
}

enum err model_attention_begin(struct model *m)
{
    const float none = -INFINITY;
    if (!m->largest)
        return ERR_OK;
    for (size_t i = 0; i < m->L; i++)
        m->dev->ops->copy(m->dev, m->largest + i, &none, sizeof none);
    return dev_sync(m->dev);
}

enum err model_attention_largest(struct model *m, float *largest)
{
    ASSERT(m->largest);
    m->dev->ops->copy(m->dev, largest, m->largest, m->L * sizeof *largest);
    return dev_sync(m->dev);
}

void model_profile(struct model *m, struct profile *p)
{
    m->profile = p;
}

static enum err read_logits(struct model *m, float *logits, size_t count)
{
    m->dev->ops->copy(m->dev, logits, m->logits, count * sizeof *logits);
    return dev_sync(m->dev);
}

enum err model_eval_logits(struct model *m, const struct batch *b, const size_t *positions,
                           size_t count, float *logits)
{
    for (size_t i = 0; i < count; i++)
        ASSERT(positions[i] < b->tokens_count);
    for (size_t at = 0, done; at < count; at += done) {
        done = head_token_logits(m, positions + at, count - at, b->tokens_count);
        TRY(read_logits(m, logits + at * m->V, done * m->V));
    }
    return ERR_OK;
}

enum err model_logits_at(struct model *m, const struct batch *b, size_t position, float *logits)
{
    TRY(batch_to_device(m, b, 0));
    forward(m, b);
    return model_eval_logits(m, b, &position, 1, logits);
}

enum err model_logits(struct model *m, const struct batch *b, size_t sequence, float *logits)
{
    ASSERT(sequence < b->sequences && b->cu_seqlens[sequence + 1] > b->cu_seqlens[sequence]);
    return model_logits_at(m, b, (size_t)b->cu_seqlens[sequence + 1] - 1, logits);
}

enum err model_eval_class_logits(struct model *m, const struct batch *b, size_t sequence,
                                 size_t task, float *logits)
{
    ASSERT(sequence < b->sequences && task < m->sequence.tasks);
    head_class_logits(m, b, sequence, task);
    if (m->sequence.heads == 1)
        return read_logits(m, logits, m->sequence.classes[task]);
    TRY(read_logits(m, m->sequence.logits, m->sequence.heads * m->sequence.classes[0]));
    head_mean(m, logits);
    return ERR_OK;
}

enum err model_class_logits(struct model *m, const struct batch *b, size_t sequence, size_t task,
                            float *logits)
{
    TRY(batch_to_device(m, b, 0));
    forward(m, b);
    return model_eval_class_logits(m, b, sequence, task, logits);
}
