/* SPDX-License-Identifier: Apache-2.0 */
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
    k.mean = m->form.norm == DEV_NORM_LAYER ? layout_reserve(l, rows * sizeof *k.mean) : NULL;
    k.rstd = layout_reserve(l, rows * sizeof *k.rstd);
    return k;
}

static struct block_saved reserve_block(struct layout *l, const struct model *m, size_t T)
{
    struct block_saved k = {.norm1 = layout_norm(l, m, T, m->form.C),
                            .norm2 = layout_norm(l, m, T, m->form.C)};
    k.norm1_out = layout_reserve(l, T * m->form.C * l->value);
    k.norm2_out = layout_reserve(l, T * m->form.C * l->value);
    k.qkv = layout_reserve(l, T * m->form.Q * l->value);
    k.att = layout_reserve(l, T * m->form.C * l->value);
    k.lse = layout_reserve(l, m->form.NH * T * sizeof *k.lse);
    k.pre = layout_reserve(l, T * m->form.U * l->value);
    k.act = layout_reserve(l, T * m->form.F * l->value);
    return k;
}

/* Of each layer its own, or what its activations are recomputed from. */
static void reserve_blocks(struct layout *l, const struct model *m, struct block_saved *saved,
                           size_t T)
{
    struct block_saved k = {0};
    for (size_t i = 0; i < m->form.L; i++) {
        if (i == 0 || (m->form.train && !m->form.recompute))
            k = reserve_block(l, m, T);
        else if (m->form.train && m->form.post)
            k.norm2_out = layout_reserve(l, T * m->form.C * l->value);
        else if (m->form.train)
            k.norm1 = layout_norm(l, m, T, m->form.C);
        if (saved)
            saved[i] = k;
    }
}

/* The gradients of the mlm head's rows, a multiple of BATCH_UNIT, take the same buffers. */
static void reserve_gradients(struct layout *l, struct model *m, size_t T)
{
    size_t rows = T > m->token.max ? T : m->token.max,
           width = m->form.C > m->form.E ? m->form.C : m->form.E;
    m->live.dresidual = layout_reserve(l, rows * width * l->value);
    m->live.dx = layout_reserve(l, rows * width * l->value);
    m->live.dbranch = branch_apart(m) ? layout_reserve(l, T * m->form.C * l->value) : NULL;
    m->live.dhidden =
        layout_reserve(l, T * (m->form.F > m->form.Q ? m->form.F : m->form.Q) * l->value);
}

static void reserve_batch(struct layout *l, struct model *m, size_t T)
{
    size_t batch = l->used;
    m->batch.tokens = layout_reserve(l, T * sizeof *m->batch.tokens);
    m->batch.targets = layout_reserve(l, T * sizeof *m->batch.targets);
    m->batch.positions = layout_reserve(l, T * sizeof *m->batch.positions);
    m->batch.cu_seqlens = layout_reserve(l, (T + 1) * sizeof *m->batch.cu_seqlens);
    m->batch.token_types =
        m->form.types ? layout_reserve(l, T * sizeof *m->batch.token_types) : NULL;
    head_reserve_batch(l, m);
    additions_reserve_batch(l, m, T);
    m->batch.batch_bytes = l->used - batch;
}

/* What the heads read: the output of the last norm, or the last state of the residual stream; with
 * post norms the output of the last layer of a pass (stage_depth). */
static void assign_head_in(struct layout *l, struct model *m, size_t T)
{
    m->live.final_norm_saved = layout_norm(l, m, T, m->form.C);
    if (m->at.final_norm.gain != NONE)
        m->live.head_in = layout_reserve(l, T * m->form.C * l->value);
    else
        m->live.head_in = m->live.final_norm_saved.residual;
}

void model_use_set(struct model *m, size_t i)
{
    ASSERT(i < m->form.set_count);
    m->live.set = m->live.sets[i];
}

/* set NULL: bytes alone are asked for. */
static void reserve_set(struct layout *l, const struct model *m, struct activation_set *set,
                        size_t T)
{
    struct activation_set x = {.saved = set ? set->saved : NULL};
    reserve_blocks(l, m, x.saved, T);
    embed_reserve(l, m, &x, T);
    if (!m->form.post)
        x.embedded = x.saved ? x.saved[0].norm1.residual : NULL;
    if (set)
        *set = x;
}

static void lay_out(struct layout *l, struct model *m)
{
    size_t T = m->form.tokens_max, rows = T > m->token.max ? T : m->token.max;
    size_t width = m->form.C > m->form.E ? m->form.C : m->form.E;
    m->live.rope_table =
        m->form.rope_count ? layout_reserve(l, m->form.rope_count * sizeof(float)) : NULL;
    m->live.rope_local = m->form.rope_count && m->form.window
                             ? layout_reserve(l, m->form.rope_count * sizeof(float))
                             : NULL;
    for (size_t i = 0; i < m->form.set_count; i++)
        reserve_set(l, m, m->live.sets ? &m->live.sets[i] : NULL, T);
    assign_head_in(l, m, T);
    m->live.sublayer_out = layout_reserve(l, T * width * l->value);
    if (m->form.train)
        reserve_gradients(l, m, T);
    m->live.losses = layout_reserve(l, rows * sizeof *m->live.losses);
    head_reserve(l, m);
    m->live.loss = layout_reserve(l, MODEL_LOSSES * sizeof *m->live.loss);
    if (m->settings->train_eval_attention)
        m->live.largest = layout_reserve(l, m->form.L * sizeof *m->live.largest);
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
    m->form.gated = table_gated(s);
    m->form.gate =
        s->model_activation == MODEL_ACTIVATION_GEGLU ? DEV_GATE_GELU_ERF : DEV_GATE_SILU;
    m->form.act = m->form.gated                                      ? DEV_ACT_NONE
                  : s->model_activation == MODEL_ACTIVATION_GELU_ERF ? DEV_ACT_GELU_ERF
                                                                     : DEV_ACT_GELU_TANH;
    m->form.norm = s->model_norm == MODEL_NORM_RMS ? DEV_NORM_RMS : DEV_NORM_LAYER;
    m->form.norm_eps = (float)s->model_norm_eps;
    m->form.post = s->model_norm_place == MODEL_NORM_POST;
    m->form.shared = s->model_share_layers;
    m->form.causal = s->model_causal;
    m->form.window = (size_t)s->model_sliding_window;
    m->form.global_attn_every = (size_t)s->model_global_attn_every;
}

static void find_embed_offsets(struct model *m)
{
    const struct table *t = m->table;
    m->at.final_norm = norm_offsets_of(t, -1, "norm");
    m->at.embed = (struct embed_offsets){.unit = slab_range(t, -1),
                                         .wte = table_offset(t, -1, "wte.weight"),
                                         .wpe = table_offset(t, -1, "wpe.weight"),
                                         .wtt = table_offset(t, -1, "wtt.weight"),
                                         .norm = norm_offsets_of(t, -1, "embed.norm"),
                                         .proj = linear_offsets_of(t, -1, "embed.proj")};
}

static void configure(struct model *m, const struct model_options *o)
{
    const struct settings *s = o->settings;
    *m = (struct model){
        .settings = s, .table = o->table, .form = {.tokens_max = o->tokens_max, .train = o->train}};
    m->form.C = (size_t)s->model_d_model;
    m->form.E = table_embed(s);
    m->form.F = table_mlp(s);
    m->form.L = (size_t)s->model_layers;
    m->form.set_count = o->train ? model_sets(s) : 1;
    m->form.NH = (size_t)s->model_heads;
    m->form.KVH = table_kv_heads(s);
    m->form.Q = m->form.C + 2 * m->form.KVH * (m->form.C / m->form.NH);
    configure_block(m, s);
    m->form.U = m->form.gated ? 2 * m->form.F : m->form.F;
    m->form.types = (size_t)s->model_token_types;
    if (s->model_positions == MODEL_POSITIONS_ROPE)
        m->form.rope_count = (size_t)s->model_max_seq_len * (m->form.C / m->form.NH);
    m->form.V = (size_t)s->model_vocab_size;
    m->form.VP = table_vocab_padded(s);
    m->form.stochastic = s->train_rounding == TRAIN_ROUNDING_STOCHASTIC;
    m->form.seed = (uint64_t)s->run_seed;
    m->pass.finished = s->train_steps;
    m->pass.layers = m->form.L;
    m->form.recompute = o->train && s->train_activation_checkpointing == TRAIN_CHECKPOINTING_BLOCK;
    additions_configure(m, o);
    find_embed_offsets(m);
    head_configure(m, o);
    head_find_offsets(m, &m->at.head);
}

struct dev_emulation model_emulation(const struct settings *s)
{
    return (struct dev_emulation){
        .fp8 = s->device_matmul_precision == DEVICE_MATMUL_FP8          ? DEV_FP8_E5M2
               : s->device_matmul_precision == DEVICE_MATMUL_FP8_HYBRID ? DEV_FP8_HYBRID
                                                                        : DEV_FP8_NONE,
        .accumulator = (int)s->device_accumulator,
        .chunk = (size_t)s->device_accumulator_chunk};
}

static struct dev_shape shape(const struct model *m, const struct settings *s, enum dtype type)
{
    return (struct dev_shape){.type = type,
                              .train = m->form.train,
                              .T = m->form.tokens_max,
                              .C = m->form.C,
                              .N = m->form.U > m->form.Q ? m->form.U : m->form.Q,
                              .NH = m->form.NH,
                              .V = m->form.V,
                              .VP = m->form.VP,
                              .S = (size_t)s->train_seq_len,
                              .emulation = model_emulation(s),
                              .attention =
                                  config_choice_name(device_attention_choices, s->device_attention),
                              .elements = m->table->elements};
}

struct model_memory model_plan_shared(const struct model_options *o, const struct model_sharing *by,
                                      enum dtype model_type)
{
    const struct settings *s = o->settings;
    const struct weights_memory weights = weights_plan(o->table, by, o->train, model_type);
    struct model m;
    struct layout l = {.value = dtype_size(model_type)};
    configure(&m, o);
    lay_out(&l, &m);
    struct dev_shape size = shape(&m, s, model_type);
    return (struct model_memory){
        .parameters = weights.parameters,
        .params_bf16 = weights.params_bf16,
        .gradients = weights.gradients,
        .activations = l.used,
        .workspace = dev_workspace(config_choice_name(device_kind_choices, s->device_kind), &size),
    };
}

struct model_memory model_plan(const struct model_options *o, enum dtype model_type)
{
    return model_plan_shared(o, &(struct model_sharing){.map = NULL}, model_type);
}

/* ---- open ---- */
static void find_block_offsets(struct model *m)
{
    const struct table *t = m->table;
    for (size_t i = 0; i < m->form.L; i++) {
        int layer = m->form.shared ? 0 : (int)i;
        m->at.blocks[i] = (struct block_offsets){
            .unit = slab_range(t, layer),
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
    TRY(dev_alloc(d, &m->live.slab, plan.activations));
    struct layout l = {.base = m->live.slab, .value = dtype_size(d->model_type)};
    lay_out(&l, m);
    ASSERT(l.used == plan.activations);
    model_use_set(m, 0);
    for (int i = 0; i < 2; i++) {
        TRY(d->ops->host_alloc(d, (void **)&m->batch.upload[i].host, m->batch.batch_bytes));
        m->batch.upload[i].event = dev_events(d, 1);
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
    size_t HD = m->form.C / m->form.NH, half = HD / 2;
    float *table = arena_array(&scratch, m->form.rope_count, sizeof *table);
    if (!table)
        return err_set(ERR_MEMORY, "no memory for the %zu values of the rope table",
                       m->form.rope_count);
    for (size_t k = 0; k < half; k++) {
        double step = pow(theta, -2.0 * (double)k / (double)HD);
        step = scaled && scaled->model_rope_factor > 1 ? rope_scaled(scaled, step) : step;
        for (size_t p = 0; p < m->form.rope_count / HD; p++) {
            table[p * HD + k] = (float)cos((double)p * step);
            table[p * HD + half + k] = (float)sin((double)p * step);
        }
    }
    m->dev->ops->copy(m->dev, to, table, m->form.rope_count * sizeof *table);
    arena_free(&scratch);
    return ERR_OK;
}

enum err model_open_shared(struct model **out, struct dev *d, const struct model_options *o,
                           const struct model_sharing *by, struct arena *perm)
{
    struct model *m;
    *out = NULL;
    TRY(table_own(o->settings));
    TRY_ALLOC(m = arena_alloc(perm, sizeof *m));
    configure(m, o);
    m->dev = d;
    TRY_ALLOC(m->at.blocks = arena_array(perm, m->form.L, sizeof *m->at.blocks));
    TRY_ALLOC(m->live.sets = arena_array(perm, m->form.set_count, sizeof *m->live.sets));
    for (size_t i = 0; i < m->form.set_count; i++)
        TRY_ALLOC(m->live.sets[i].saved =
                      arena_array(perm, m->form.L, sizeof *m->live.sets[i].saved));
    find_block_offsets(m);
    TRY(heads_open(m, perm));
    const struct weights_options w = {d, o->table, o->train, m->form.stochastic,
                                      (uint64_t)o->settings->run_seed};
    TRY_ALLOC(m->weights = arena_alloc(perm, sizeof *m->weights));
    enum err e = weights_open(m->weights, &w, by, perm);
    if (!e)
        e = alloc_slabs(m, o);
    if (!e && m->live.rope_table)
        e = make_rope_table(m, m->live.rope_table, o->settings->model_rope_theta, o->settings);
    if (!e && m->live.rope_local)
        e = make_rope_table(m, m->live.rope_local, o->settings->model_rope_theta_local, NULL);
    if (e) {
        model_close(m);
        return e;
    }
    *out = m;
    return ERR_OK;
}

enum err model_open(struct model **m, struct dev *d, const struct model_options *o,
                    struct arena *perm)
{
    return model_open_shared(m, d, o, &(struct model_sharing){.map = NULL}, perm);
}

void model_close(struct model *m)
{
    if (!m)
        return;
    weights_close(m->weights);
    dev_free(m->dev, m->live.slab);
    for (int i = 0; i < 2; i++)
        if (m->batch.upload[i].host)
            m->dev->ops->host_free(m->dev, m->batch.upload[i].host);
    m->batch.upload[0].host = m->batch.upload[1].host = NULL;
    m->live.slab = NULL;
}

float *model_gather(struct model *m, struct dev_range r)
{
    return weights_gather(m->weights, r);
}

void model_scatter(struct model *m, struct dev_range r, bool written)
{
    weights_scatter(m->weights, r, written);
}

void model_hold(struct model *m, const struct slab_holder *h)
{
    weights_hold(m->weights, h);
}

struct weights *model_weights(struct model *m)
{
    return m->weights;
}

void unit_gather(struct model *m, struct dev_range unit)
{
    weights_need(m->weights, unit);
}

void unit_scatter(struct model *m, struct dev_range unit)
{
    weights_done(m->weights, unit);
}

float *model_grads(struct model *m)
{
    return m->weights->grads;
}

void *model_params_bf16(struct model *m)
{
    return m->weights->params_bf16;
}

size_t model_tokens_max(const struct model *m)
{
    return m->form.tokens_max;
}

bool model_rounds_stochastically(const struct model *m)
{
    return m->dev->model_type != DTYPE_F32 && m->form.stochastic;
}

void model_set_step(struct model *m, int64_t step)
{
    weights_step(m->weights, (uint64_t)step);
    m->pass.finished = step;
}

void model_set_finished(struct model *m, int64_t steps)
{
    m->pass.finished = steps;
}

void model_params_changed(struct model *m)
{
    weights_changed(m->weights);
}

void model_grads_zero(struct model *m)
{
    weights_grads_begin(m->weights);
}

/* ---- the running pass ---- */
void pass_begin(struct model *m, size_t begin, const struct model_grad_hook *hook)
{
    m->pass.training = true;
    m->pass.begin = begin;
    m->pass.grad_hook = hook;
}

struct weights_used weights_use(struct model *m, struct weights_used x)
{
    return weights_borrow(m->weights, x);
}

void pass_end(struct model *m)
{
    m->pass.grad_hook = NULL;
    m->pass.training = false;
    m->pass.begin = 0;
}

/* ---- forward ---- */
static void stage(const struct model *m, const struct upload *u, const int32_t *to,
                  const int32_t *from, size_t count)
{
    memcpy(staged(m, u, to), from, count * sizeof *from);
}

/* A step trains the layers of its stage; an evaluation has those that training has reached. */
static void stage_depth(struct model *m, const struct batch *b)
{
    struct depth_stage x = depth_stage_of(m->settings, b->step);
    m->pass.layers =
        (size_t)(m->pass.training ? x.layers : depth_layers_after(m->settings, m->pass.finished));
    m->pass.first = m->pass.training ? (size_t)x.first : 0;
    if (m->form.post)
        m->live.head_in = m->live.set.saved[m->pass.layers - 1].norm2_out;
}

/* Waits only while the device still reads the batch before the last: two host buffers. */
enum err batch_to_device(struct model *m, const struct batch *b, float grad_scale)
{
    struct dev *d = m->dev;
    const struct upload *u = &m->batch.upload[m->batch.uploads++ % 2];
    size_t T = b->tokens_count;
    ASSERT(T > 0 && T <= m->form.tokens_max && b->sequences > 0 && b->sequences <= T);
    ASSERT(b->cu_seqlens[0] == 0 && (size_t)b->cu_seqlens[b->sequences] == T);
    TRY(d->ops->event_wait(d, u->event));
    stage(m, u, m->batch.tokens, b->tokens, T);
    stage(m, u, m->batch.targets, b->targets, T);
    stage(m, u, m->batch.positions, b->positions, T);
    stage(m, u, m->batch.cu_seqlens, b->cu_seqlens, b->sequences + 1);
    if (m->form.types)
        stage(m, u, m->batch.token_types, b->types, T);
    head_stage(m, b, u, grad_scale);
    additions_stage(m, b, u, grad_scale);
    stage_depth(m, b);
    d->ops->copy_async(d, m->batch.tokens, u->host, m->batch.batch_bytes);
    d->ops->event_record(d, u->event);
    block_profile(m, PROFILE_UPLOAD);
    return ERR_OK;
}

static struct norm_run final_norm(const struct model *m, size_t T)
{
    return (struct norm_run){m->at.final_norm, m->live.final_norm_saved, T, m->form.C,
                             dropout_mlp(layer_before(m, m->form.L))};
}

static void final_norm_fwd(struct model *m, size_t T)
{
    struct norm_run last = final_norm(m, T);
    unit_gather(m, m->at.head.unit);
    if (!m->form.post)
        block_norm_fwd(m, &last, m->live.head_in, m->live.sublayer_out,
                       m->live.set.saved[layer_before(m, m->form.L)].norm2.residual);
    unit_scatter(m, m->at.head.unit);
}

static void forward(struct model *m, const struct batch *b)
{
    weights_go(m->weights, true);
    embed_fwd(m, b);
    for (size_t i = 0; i < m->form.L; i++)
        if (layer_runs(m, i))
            block_fwd(m, b, i);
    final_norm_fwd(m, b->tokens_count);
}

/* The heads read the last unit, and the embeddings where both share one table. */
static void heads_gather(struct model *m)
{
    unit_gather(m, m->at.head.unit);
    if (m->at.head.weight == m->at.embed.wte)
        unit_gather(m, m->at.embed.unit);
}

static void heads_scatter(struct model *m)
{
    if (m->at.head.weight == m->at.embed.wte)
        unit_scatter(m, m->at.embed.unit);
    unit_scatter(m, m->at.head.unit);
}

static void run_heads(struct model *m, const struct head_pass *p)
{
    weights_go(m->weights, !p->gradients);
    heads_gather(m);
    head_fwd(m, p);
    heads_scatter(m);
}

void heads_fwd_from(struct model *m, const struct head_pass *p)
{
    final_norm_fwd(m, p->batch->tokens_count);
    run_heads(m, p);
}

/* ---- backward ---- */
void heads_bwd_to(struct model *m, const struct batch *b)
{
    struct norm_run last = final_norm(m, b->tokens_count);
    unit_gather(m, m->at.head.unit);
    head_bwd(m, b);
    if (last.offsets.gain != NONE)
        block_norm_bwd(m, &last, m->live.dresidual, m->live.dx, NULL);
    else if (!m->form.post)
        dropout_apply(m, m->live.dbranch, m->live.dresidual, last.place, last.T, last.C);
    unit_scatter(m, m->at.head.unit);
}

static void backward(struct model *m, const struct batch *b)
{
    const struct model_grad_hook *hook = m->pass.grad_hook;
    heads_bwd_to(m, b);
    weights_grads_final(m->weights, m->at.head.unit);
    for (size_t i = m->form.L; i-- > m->pass.first;) {
        if (!layer_runs(m, i))
            continue;
        m->pass.grad_hook =
            m->form.shared && i ? NULL : hook; /* its gradient is final after its last use */
        block_recompute(m, b, i);
        block_bwd(m, b, i);
        if (!m->form.shared) /* else its gradient is final after its last use */
            weights_grads_final(m->weights, m->at.blocks[i].unit);
    }
    if (m->form.shared)
        weights_grads_final(m->weights, m->at.blocks[0].unit);
    if (!embed_learns(m))
        return;
    embed_bwd(m, b, m->form.post ? m->live.dx : m->live.dresidual);
    weights_grads_final(m->weights, m->at.embed.unit);
}

/* ---- losses ---- */
/* Waits for the device and reads *m->live.loss. */
static enum err read_loss(struct model *m, const struct batch *b, struct model_loss *loss)
{
    m->dev->ops->copy(m->dev, loss->sum, m->live.loss, sizeof loss->sum);
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
    p->m->pass.evaluating = p->kind == PASS_EVAL;
    forward(p->m, p->b);
    p->m->pass.evaluating = false;
    run_heads(p->m, &(struct head_pass){p->b, p->grad_scale, p->loss, p->kind == PASS_FORWARD});
}

/* FNV-1a hash of everything that determines the ops of a pass, except the contents of memory.
 * Attention divides its work by the lengths of the sequences. */
static uint64_t pass_key(const struct pass *p)
{
    uint64_t hash = 0xcbf29ce484222325u;
    uint32_t scale;
    memcpy(&scale, &p->grad_scale, sizeof scale);
    const uint64_t words[] = {(uint64_t)p->kind, scale,
                              p->b->sequences,   p->b->tokens_count,
                              p->m->pass.first,  (uintptr_t)p->loss};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        hash = (hash ^ words[i]) * 0x100000001b3u;
    for (size_t i = 0; i < p->m->form.L; i++)
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
    /* Profiling times single ops, and the host moves units between ops: not as a graph. */
    if (profile_on(p.m->profile) || weights_move(p.m->weights))
        pass_ops(&p);
    else
        p.m->dev->ops->graph_run(p.m->dev, &r);
}

enum err model_accumulate(struct model *m, const struct batch *b, float grad_scale,
                          const struct model_grad_hook *hook, double *loss)
{
    struct pass p = {.m = m, .b = b, .grad_scale = grad_scale, .loss = loss};
    ASSERT(m->form.train);
    pass_begin(m, 0, NULL);
    TRY(batch_to_device(m, b, grad_scale));
    additions_begin(m, loss);
    pass_run(p, PASS_FORWARD);
    m->pass.grad_hook = hook;
    if (hook) /* the host calls the hook between ops: not as a graph */
        backward(m, b);
    else
        pass_run(p, PASS_BACKWARD);
    additions_end(m);
    pass_end(m);
    return weights_error(m->weights);
}

enum err model_step(struct model *m, const struct batch *b, float grad_scale,
                    const struct model_grad_hook *hook, struct model_loss *loss)
{
    m->dev->ops->zero(m->dev, m->live.loss, MODEL_LOSSES * sizeof *m->live.loss);
    TRY(model_accumulate(m, b, grad_scale, hook, m->live.loss));
    return read_loss(m, b, loss);
}

enum err model_eval(struct model *m, const struct batch *b, struct model_loss *loss)
{
    m->dev->ops->zero(m->dev, m->live.loss, MODEL_LOSSES * sizeof *m->live.loss);
    TRY(batch_to_device(m, b, 0));
    pass_run((struct pass){.m = m, .b = b, .loss = m->live.loss}, PASS_EVAL);
    TRY(weights_error(m->weights));
    return read_loss(m, b, loss);
}

enum err model_eval_losses(struct model *m, const struct batch *b, float *losses)
{
    struct dev *d = m->dev;
    ASSERT(!m->token.mlm);
    d->ops->zero(d, m->live.loss, MODEL_LOSSES * sizeof *m->live.loss);
    TRY(batch_to_device(m, b, 0));
    forward(m, b);
    run_heads(m, &(struct head_pass){b, 0, m->live.loss, false});
    d->ops->copy(d, losses, m->live.losses, b->tokens_count * sizeof *losses);
    return dev_sync(d);
}

enum err model_attention_begin(struct model *m)
{
    const float none = -INFINITY;
    if (!m->live.largest)
        return ERR_OK;
    for (size_t i = 0; i < m->form.L; i++)
        m->dev->ops->copy(m->dev, m->live.largest + i, &none, sizeof none);
    return dev_sync(m->dev);
}

enum err model_attention_largest(struct model *m, float *largest)
{
    ASSERT(m->live.largest);
    m->dev->ops->copy(m->dev, largest, m->live.largest, m->form.L * sizeof *largest);
    return dev_sync(m->dev);
}

void model_profile(struct model *m, struct profile *p)
{
    m->profile = p;
}

static enum err read_logits(struct model *m, float *logits, size_t count)
{
    m->dev->ops->copy(m->dev, logits, m->token.logits, count * sizeof *logits);
    return dev_sync(m->dev);
}

enum err model_eval_logits(struct model *m, const struct batch *b, const size_t *positions,
                           size_t count, float *logits)
{
    for (size_t i = 0; i < count; i++)
        ASSERT(positions[i] < b->tokens_count);
    for (size_t at = 0, done; at < count; at += done) {
        heads_gather(m);
        done = head_token_logits(m, positions + at, count - at, b->tokens_count);
        heads_scatter(m);
        TRY(read_logits(m, logits + at * m->form.V, done * m->form.V));
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
    heads_gather(m);
    head_class_logits(m, b, sequence, task);
    heads_scatter(m);
    if (m->several.count == 1)
        return read_logits(m, logits, m->sequence.classes[task]);
    TRY(read_logits(m, m->several.logits, m->several.count * m->sequence.classes[0]));
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
