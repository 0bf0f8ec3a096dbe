/* SPDX-License-Identifier: Apache-2.0 */
/* One block: which op reads what, in which order. Pre norms, GPT-2 (Radford et al. 2019): x +=
 * proj(attention(qkv(norm1(x)))), x += down(gelu(up(norm2(x)))). Llama (Touvron et al. 2023,
 * 2302.13971): rope on q and k, grouped queries that share keys and values, silu(gate) up in place
 * of the activation. Post norms, BERT (Devlin et al. 2019, 1810.04805): x = norm1(x +
 * proj(attention(qkv(x)))), x = norm2(x + down(gelu(up(x)))). ModernBERT (Warner et al. 2024,
 * 2412.13663): pre norms, a GELU in the gate, attention within a window in most layers.
 *
 * norm_fwd adds the residual, so each state of the residual stream is written once (before
 * norm1, before norm2) and saved for the backward. The backward carries one gradient of the
 * stream, `dresidual`, and adds to it in place.
 */
#include "inner/model/model_own.h"
#include <math.h>

/* ---- one op each, arguments from offsets ---- */
const float *block_param(const struct model *m, ptrdiff_t at)
{
    return weights_param(m->weights, at);
}

float *block_grad(const struct model *m, ptrdiff_t at)
{
    return weights_grad(m->weights, at);
}

const void *block_weight(const struct model *m, ptrdiff_t at)
{
    return weights_matrix(m->weights, at);
}

static struct dev_norm_args norm_args(const struct model *m, const struct norm_run *n)
{
    return (struct dev_norm_args){.kind = n->offsets.gain == NONE ? DEV_NORM_NONE : m->form.norm,
                                  .eps = m->form.norm_eps,
                                  .T = n->T,
                                  .C = n->C,
                                  .gain = block_param(m, n->offsets.gain),
                                  .bias = block_param(m, n->offsets.bias),
                                  .sum = n->saved.residual,
                                  .mean = n->saved.mean,
                                  .rstd = n->saved.rstd};
}

void block_profile(const struct model *m, enum profile_class c)
{
    profile_record(m->profile, c);
}

void block_norm_fwd(struct model *m, const struct norm_run *n, void *y, const void *x,
                    const void *residual)
{
    struct dev_norm_args a = norm_args(m, n);
    struct dev_dropout branch;
    a.branch = residual && dropout_branch(m, n->place, &branch) ? &branch : NULL;
    if (n->offsets.gain != NONE)
        m->dev->ops->norm_fwd(m->dev, y, x, residual, &a);
    else if (a.branch)
        m->dev->ops->norm_fwd(m->dev, NULL, x, residual, &a);
    else if (residual)
        m->dev->ops->add(m->dev, n->saved.residual, x, residual, n->T * n->C);
    block_profile(m, PROFILE_NORM);
}

void grad_ready(const struct model *m, ptrdiff_t at)
{
    if (m->pass.grad_hook)
        m->pass.grad_hook->ready(m->pass.grad_hook->self, (size_t)at);
}

void block_norm_bwd(struct model *m, const struct norm_run *n, void *dx, const void *dy,
                    const void *dsum)
{
    struct dev_norm_args a = norm_args(m, n);
    struct dev_dropout branch;
    a.branch = dropout_branch(m, n->place, &branch) ? &branch : NULL;
    ASSERT(n->offsets.gain != NONE || dsum);
    if (n->offsets.gain == NONE && !a.branch) {
        m->dev->ops->add(m->dev, dx, dsum, dy, n->T * n->C);
        block_profile(m, PROFILE_NORM_BWD);
        return;
    }
    m->dev->ops->norm_bwd(m->dev, &a,
                          &(struct dev_norm_grad){.dy = dy,
                                                  .dsum = dsum,
                                                  .dx = dx,
                                                  .dgain = block_grad(m, n->offsets.gain),
                                                  .dbias = block_grad(m, n->offsets.bias),
                                                  .dbranch = a.branch ? m->live.dbranch : NULL});
    block_profile(m, PROFILE_NORM_BWD);
    if (n->offsets.gain != NONE)
        grad_ready(m, n->offsets.gain);
}

static struct norm_run norm1_of(const struct model *m, size_t i, size_t T)
{
    unsigned mlp_before = i ? dropout_mlp(layer_before(m, i)) : DROPOUT_NONE;
    return (struct norm_run){m->at.blocks[i].norm1, m->live.set.saved[i].norm1, T, m->form.C,
                             m->form.post ? dropout_attention(i) : mlp_before};
}

static struct norm_run norm2_of(const struct model *m, size_t i, size_t T)
{
    return (struct norm_run){m->at.blocks[i].norm2, m->live.set.saved[i].norm2, T, m->form.C,
                             m->form.post ? dropout_mlp(i) : dropout_attention(i)};
}

/* What the attention and the MLP of layer i read. Without a norm it is the residual stream. */
static void *attention_input(const struct model *m, size_t i)
{
    if (m->form.post)
        return i ? m->live.set.saved[i - 1].norm2_out : m->live.set.embedded;
    return m->at.blocks[i].norm1.gain == NONE ? m->live.set.saved[i].norm1.residual
                                              : m->live.set.saved[i].norm1_out;
}

static void *mlp_input(const struct model *m, size_t i)
{
    if (m->form.post)
        return m->live.set.saved[i].norm1_out;
    return m->at.blocks[i].norm2.gain == NONE ? m->live.set.saved[i].norm2.residual
                                              : m->live.set.saved[i].norm2_out;
}

struct dev_linear linear_args(const struct model *m, struct linear_offsets at, const void *x,
                              size_t T, size_t K, size_t N)
{
    return (struct dev_linear){.x = x,
                               .w = block_weight(m, at.weight),
                               .bias = block_param(m, at.bias),
                               .T = T,
                               .K = K,
                               .N = N,
                               .act = DEV_ACT_NONE};
}

void linear_bwd(struct model *m, const struct dev_linear *fwd, const struct linear_gradient *g)
{
    struct dev_linear_grad a = {.dy = g->dy,
                                .dx = g->dx,
                                .dw = block_grad(m, g->at.weight),
                                .dbias = block_grad(m, g->at.bias)};
    m->dev->ops->linear_bwd(m->dev, fwd, &a);
    block_profile(m, g->profile);
    grad_ready(m, g->at.weight);
}

/* ModernBERT: every model.global_attn_every-th layer, the first included. */
static bool sees_all(const struct model *m, size_t i)
{
    return !m->form.window || (m->form.global_attn_every && i % m->form.global_attn_every == 0);
}

static struct dev_attention attention_args(const struct model *m, const struct batch *b, size_t i)
{
    const struct block_saved *k = &m->live.set.saved[i];
    size_t HD = m->form.C / m->form.NH;
    return (struct dev_attention){.qkv = k->qkv,
                                  .cu_seqlens = m->batch.cu_seqlens,
                                  .cu_seqlens_host = b->cu_seqlens,
                                  .sequences = b->sequences,
                                  .T = b->tokens_count,
                                  .NH = m->form.NH,
                                  .KVH = m->form.KVH,
                                  .HD = HD,
                                  .causal = m->form.causal,
                                  .window = sees_all(m, i) ? 0 : m->form.window,
                                  .scale = (float)(1.0 / sqrt((double)HD)),
                                  .lse = k->lse};
}

/* Rotates the queries and keys in the rows of qkv; back: their gradients in the rows of its
 * gradient.
 */
static void apply_rope(struct model *m, void *qkv, size_t i, size_t T, bool back)
{
    size_t HD = m->form.C / m->form.NH;
    const struct dev_rope r = {.table = sees_all(m, i) ? m->live.rope_table : m->live.rope_local,
                               .positions = m->batch.positions,
                               .T = T,
                               .heads = m->form.NH + m->form.KVH,
                               .HD = HD,
                               .stride = m->form.Q,
                               .inverse = back};
    if (m->live.rope_table)
        m->dev->ops->rope(m->dev, qkv, &r);
}

static struct dev_gated gate_args(const struct model *m, size_t T)
{
    return (struct dev_gated){.gate = m->form.gate, .T = T, .F = m->form.F};
}

static struct dev_linear up_args(const struct model *m, size_t i, size_t T)
{
    struct dev_linear a =
        linear_args(m, m->at.blocks[i].up, mlp_input(m, i), T, m->form.C, m->form.U);
    a.act = m->form.act;
    a.pre = m->form.gated ? NULL : m->live.set.saved[i].pre;
    return a;
}

static void attention_sublayer_fwd(struct model *m, const struct batch *b, size_t i)
{
    struct dev *d = m->dev;
    const struct block_saved *k = &m->live.set.saved[i];
    const struct block_offsets *at = &m->at.blocks[i];
    size_t T = b->tokens_count, C = m->form.C;
    struct dev_linear qkv = linear_args(m, at->qkv, attention_input(m, i), T, C, m->form.Q);
    d->ops->linear_fwd(d, k->qkv, &qkv);
    apply_rope(m, k->qkv, i, T, false);
    block_profile(m, PROFILE_QKV);
    struct dev_attention attention = attention_args(m, b, i);
    d->ops->attention_fwd(d, k->att, &attention);
    if (m->live.largest && m->pass.evaluating)
        d->ops->attention_largest(d, m->live.largest + i, &attention);
    block_profile(m, PROFILE_ATTENTION);
    struct dev_linear proj = linear_args(m, at->proj, k->att, T, C, C);
    d->ops->linear_fwd(d, m->live.sublayer_out, &proj);
    block_profile(m, PROFILE_PROJ);
}

/* To the input of down. */
static void mlp_inner_fwd(struct model *m, size_t i, size_t T)
{
    struct dev *d = m->dev;
    const struct block_saved *k = &m->live.set.saved[i];
    struct dev_linear up = up_args(m, i, T);
    const struct dev_gated gate = gate_args(m, T);
    d->ops->linear_fwd(d, m->form.gated ? k->pre : k->act, &up);
    if (m->form.gated)
        d->ops->gated_fwd(d, k->act, k->pre, &gate);
    block_profile(m, PROFILE_MLP);
}

static void mlp_down_fwd(struct model *m, size_t i, size_t T)
{
    struct dev_linear down =
        linear_args(m, m->at.blocks[i].down, m->live.set.saved[i].act, T, m->form.F, m->form.C);
    m->dev->ops->linear_fwd(m->dev, m->live.sublayer_out, &down);
    block_profile(m, PROFILE_MLP);
}

/* Every saved activation that comes after norm1, which has run. */
static void block_inner_fwd(struct model *m, const struct batch *b, size_t i)
{
    struct norm_run norm2 = norm2_of(m, i, b->tokens_count);
    attention_sublayer_fwd(m, b, i);
    block_norm_fwd(m, &norm2, m->live.set.saved[i].norm2_out, m->live.sublayer_out,
                   m->live.set.saved[i].norm1.residual);
    mlp_inner_fwd(m, i, norm2.T);
}

static void block_post_fwd(struct model *m, const struct batch *b, size_t i)
{
    const struct block_saved *k = &m->live.set.saved[i];
    size_t T = b->tokens_count;
    struct norm_run norm1 = norm1_of(m, i, T), norm2 = norm2_of(m, i, T);
    attention_sublayer_fwd(m, b, i);
    block_norm_fwd(m, &norm1, k->norm1_out, m->live.sublayer_out, attention_input(m, i));
    mlp_inner_fwd(m, i, T);
    mlp_down_fwd(m, i, T);
    block_norm_fwd(m, &norm2, k->norm2_out, m->live.sublayer_out, k->norm1_out);
}

static void block_pre_fwd(struct model *m, const struct batch *b, size_t i)
{
    const struct block_saved *k = &m->live.set.saved[i];
    struct norm_run norm1 = norm1_of(m, i, b->tokens_count);
    if (i == m->pass.begin)
        block_norm_fwd(m, &norm1, k->norm1_out, k->norm1.residual, NULL);
    else
        block_norm_fwd(m, &norm1, k->norm1_out, m->live.sublayer_out,
                       m->live.set.saved[layer_before(m, i)].norm2.residual);
    block_inner_fwd(m, b, i);
    mlp_down_fwd(m, i, b->tokens_count);
}

void block_fwd(struct model *m, const struct batch *b, size_t i)
{
    unit_gather(m, m->at.blocks[i].unit);
    if (m->form.post)
        block_post_fwd(m, b, i);
    else
        block_pre_fwd(m, b, i);
    unit_scatter(m, m->at.blocks[i].unit);
}

static void block_pre_recompute(struct model *m, const struct batch *b, size_t i)
{
    const struct block_saved *k = &m->live.set.saved[i];
    struct norm_run norm1 = norm1_of(m, i, b->tokens_count);
    block_norm_fwd(m, &norm1, k->norm1_out, k->norm1.residual, NULL);
    block_inner_fwd(m, b, i);
}

void block_recompute(struct model *m, const struct batch *b, size_t i)
{
    if (!m->form.recompute || i == layer_before(m, m->form.L))
        return;
    unit_gather(m, m->at.blocks[i].unit);
    if (m->form.post)
        block_post_fwd(m, b, i);
    else
        block_pre_recompute(m, b, i);
    unit_scatter(m, m->at.blocks[i].unit);
}

/* ---- backward ---- */
/* In: branch_gradient(), the gradient of down's output. Out: dx, the gradient of up's input.
 * Without a gate down's linear_bwd applies the activation's derivative and computes up's bias
 * gradient; with one swiglu_bwd does it afterwards. */
static void mlp_bwd(struct model *m, size_t i, size_t T)
{
    struct dev *d = m->dev;
    const struct block_saved *k = &m->live.set.saved[i];
    const struct block_offsets *at = &m->at.blocks[i];
    struct dev_linear down = linear_args(m, at->down, k->act, T, m->form.F, m->form.C),
                      up = up_args(m, i, T);
    const struct dev_gated gate = gate_args(m, T);
    struct dev_linear_grad of_down = {.dy = branch_gradient(m),
                                      .dx = m->live.dhidden,
                                      .dw = block_grad(m, at->down.weight),
                                      .dbias = block_grad(m, at->down.bias),
                                      .act = m->form.act,
                                      .pre = m->form.gated ? NULL : k->pre,
                                      .pre_dbias =
                                          m->form.gated ? NULL : block_grad(m, at->up.bias)};
    struct dev_linear_grad of_up = {.dy = m->form.gated ? k->pre : m->live.dhidden,
                                    .dx = m->live.dx,
                                    .dw = block_grad(m, at->up.weight),
                                    .dbias = m->form.gated ? block_grad(m, at->up.bias) : NULL};
    d->ops->linear_bwd(d, &down, &of_down);
    block_profile(m, PROFILE_MLP_BWD);
    grad_ready(m, at->down.weight);
    if (m->form.gated)
        d->ops->gated_bwd(d, k->pre, m->live.dhidden, k->pre, &gate);
    d->ops->linear_bwd(d, &up, &of_up);
    block_profile(m, PROFILE_MLP_BWD);
    grad_ready(m, at->up.weight);
}

/* In: branch_gradient(), the gradient of proj's output. Out: dx, that of qkv's input. */
static void attention_sublayer_bwd(struct model *m, const struct batch *b, size_t i)
{
    struct dev *d = m->dev;
    const struct block_saved *k = &m->live.set.saved[i];
    const struct block_offsets *at = &m->at.blocks[i];
    size_t T = b->tokens_count, C = m->form.C;
    struct dev_linear proj = linear_args(m, at->proj, k->att, T, C, C);
    linear_bwd(
        m, &proj,
        &(struct linear_gradient){at->proj, m->live.dx, branch_gradient(m), PROFILE_PROJ_BWD});
    struct dev_attention attention = attention_args(m, b, i);
    d->ops->attention_bwd(d, m->live.dhidden, m->live.dx, k->att, &attention);
    block_profile(m, PROFILE_ATTENTION_BWD);
    apply_rope(m, m->live.dhidden, i, T, true);
    struct dev_linear qkv = linear_args(m, at->qkv, attention_input(m, i), T, C, m->form.Q);
    linear_bwd(m, &qkv,
               &(struct linear_gradient){at->qkv, m->live.dx, m->live.dhidden, PROFILE_QKV_BWD});
}

/* Each norm's input is the sum of a sublayer's output and of its input: both have the gradient of
 * the sum, and the input has the sublayer's besides. */
static void block_post_bwd(struct model *m, const struct batch *b, size_t i)
{
    size_t T = b->tokens_count;
    struct norm_run norm1 = norm1_of(m, i, T), norm2 = norm2_of(m, i, T);
    block_norm_bwd(m, &norm2, m->live.dresidual, m->live.dx, NULL);
    mlp_bwd(m, i, T);
    m->dev->ops->add(m->dev, m->live.dx, m->live.dx, m->live.dresidual, T * m->form.C);
    block_norm_bwd(m, &norm1, m->live.dresidual, m->live.dx, NULL);
    attention_sublayer_bwd(m, b, i);
    m->dev->ops->add(m->dev, m->live.dx, m->live.dx, m->live.dresidual, T * m->form.C);
    block_profile(m, PROFILE_NORM_BWD);
}

static void block_pre_bwd(struct model *m, const struct batch *b, size_t i)
{
    size_t T = b->tokens_count;
    struct norm_run norm1 = norm1_of(m, i, T), norm2 = norm2_of(m, i, T);
    mlp_bwd(m, i, T);
    additions_branch_bwd(m, m->live.dx, mlp_input(m, i), T);
    block_norm_bwd(m, &norm2, m->live.dresidual, m->live.dx, m->live.dresidual);
    attention_sublayer_bwd(m, b, i);
    additions_branch_bwd(m, m->live.dx, attention_input(m, i), T);
    block_norm_bwd(m, &norm1, m->live.dresidual, m->live.dx, m->live.dresidual);
}

void block_bwd(struct model *m, const struct batch *b, size_t i)
{
    unit_gather(m, m->at.blocks[i].unit);
    if (m->form.post)
        block_post_bwd(m, b, i);
    else
        block_pre_bwd(m, b, i);
    unit_scatter(m, m->at.blocks[i].unit);
}
