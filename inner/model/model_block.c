/* One block: which op reads what, in which order. GPT-2 (Radford et al. 2019): x +=
 * proj(attention(qkv(norm1(x)))), x += down(gelu(up(norm2(x)))). Llama (Touvron et al. 2023,
 * 2302.13971): rope on q and k, grouped queries that share keys and values, silu(gate) up in place
 * of the activation.
 *
 * norm_fwd adds the residual, so each state of the residual stream is written once (in front of
 * norm1, in front of norm2) and saved for the backward. The backward carries one gradient of the
 * stream, `dresidual`, and adds to it in place.
 */
#include "inner/model/model_own.h"
#include <math.h>

/* ---- one op each, arguments from offsets ---- */
float *block_param(const struct model *m, ptrdiff_t at)
{
    return at == NONE ? NULL : m->params + at;
}

float *block_grad(const struct model *m, ptrdiff_t at)
{
    return at == NONE ? NULL : m->grads + at;
}

const void *block_weight(const struct model *m, ptrdiff_t at)
{
    if (at == NONE)
        return NULL;
    return m->params_bf16
               ? (const char *)m->params_bf16 + (size_t)at * dtype_size(m->dev->model_type)
               : (const void *)(m->params + at);
}

static struct dev_norm_args norm_args(const struct model *m, const struct norm_run *n)
{
    return (struct dev_norm_args){.kind = m->norm,
                                  .eps = m->norm_eps,
                                  .T = n->T,
                                  .C = m->C,
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
    m->dev->ops->norm_fwd(m->dev, y, x, residual, &a);
    block_profile(m, PROFILE_NORM);
}

void grad_ready(const struct model *m, ptrdiff_t at)
{
    if (m->grad_hook)
        m->grad_hook->ready(m->grad_hook->self, (size_t)at);
}

void block_norm_bwd(struct model *m, const struct norm_run *n, const void *dy, const void *dsum)
{
    struct dev_norm_args a = norm_args(m, n);
    m->dev->ops->norm_bwd(m->dev, &a,
                          &(struct dev_norm_grad){.dy = dy,
                                                  .dsum = dsum,
                                                  .dx = m->dresidual,
                                                  .dgain = block_grad(m, n->offsets.gain),
                                                  .dbias = block_grad(m, n->offsets.bias)});
    block_profile(m, PROFILE_NORM_BWD);
    grad_ready(m, n->offsets.gain);
}

static struct norm_run norm1_of(const struct model *m, size_t i, size_t T)
{
    return (struct norm_run){m->offsets[i].norm1, m->saved[i].norm1, T};
}

static struct norm_run norm2_of(const struct model *m, size_t i, size_t T)
{
    return (struct norm_run){m->offsets[i].norm2, m->saved[i].norm2, T};
}

static struct dev_linear linear_args(const struct model *m, struct linear_offsets at, const void *x,
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

static void linear_bwd(struct model *m, const struct dev_linear *fwd, struct linear_offsets at,
                       void *dx, const void *dy, enum profile_class c)
{
    struct dev_linear_grad g = {
        .dy = dy, .dx = dx, .dw = block_grad(m, at.weight), .dbias = block_grad(m, at.bias)};
    m->dev->ops->linear_bwd(m->dev, fwd, &g);
    block_profile(m, c);
    grad_ready(m, at.weight);
}

static struct dev_attention attention_args(const struct model *m, const struct batch *b,
                                           const struct block_saved *k)
{
    size_t HD = m->C / m->NH;
    return (struct dev_attention){.qkv = k->qkv,
                                  .cu_seqlens = m->cu_seqlens,
                                  .cu_seqlens_host = b->cu_seqlens,
                                  .sequences = b->sequences,
                                  .T = b->tokens_count,
                                  .NH = m->NH,
                                  .KVH = m->KVH,
                                  .HD = HD,
                                  .causal = m->causal,
                                  .scale = (float)(1.0 / sqrt((double)HD)),
                                  .lse = k->lse};
}

/* Rotates the queries and keys in the rows of qkv; back: their gradients in the rows of its
 * gradient.
 */
static void apply_rope(struct model *m, void *qkv, size_t T, bool back)
{
    size_t HD = m->C / m->NH;
    const struct dev_rope r = {.table = m->rope_table,
                               .positions = m->positions,
                               .T = T,
                               .heads = m->NH + m->KVH,
                               .HD = HD,
                               .stride = m->Q,
                               .inverse = back};
    if (m->rope_table)
        m->dev->ops->rope(m->dev, qkv, &r);
}

static struct dev_linear up_args(const struct model *m, size_t i, size_t T)
{
    struct dev_linear a = linear_args(m, m->offsets[i].up, m->saved[i].norm2_out, T, m->C, m->U);
    a.act = m->act;
    a.pre = m->gated ? NULL : m->saved[i].pre;
    return a;
}

/* From norm1_out to the input of down: every saved activation behind norm1. */
static void block_inner_fwd(struct model *m, const struct batch *b, size_t i)
{
    struct dev *d = m->dev;
    const struct block_saved *k = &m->saved[i];
    const struct block_offsets *at = &m->offsets[i];
    size_t T = b->tokens_count, C = m->C;
    struct dev_linear qkv = linear_args(m, at->qkv, k->norm1_out, T, C, m->Q);
    d->ops->linear_fwd(d, k->qkv, &qkv);
    apply_rope(m, k->qkv, T, false);
    block_profile(m, PROFILE_QKV);
    struct dev_attention attention = attention_args(m, b, k);
    d->ops->attention_fwd(d, k->att, &attention);
    block_profile(m, PROFILE_ATTENTION);
    struct dev_linear proj = linear_args(m, at->proj, k->att, T, C, C);
    d->ops->linear_fwd(d, m->sublayer_out, &proj);
    block_profile(m, PROFILE_PROJ);
    struct norm_run norm2 = norm2_of(m, i, T);
    block_norm_fwd(m, &norm2, k->norm2_out, m->sublayer_out, k->norm1.residual);
    struct dev_linear up = up_args(m, i, T);
    d->ops->linear_fwd(d, m->gated ? k->pre : k->act, &up);
    if (m->gated)
        d->ops->gated_fwd(d, k->act, k->pre, &(struct dev_gated){m->gate, T, m->F});
    block_profile(m, PROFILE_MLP);
}

void block_fwd(struct model *m, const struct batch *b, size_t i)
{
    const struct block_saved *k = &m->saved[i];
    const struct block_offsets *at = &m->offsets[i];
    size_t T = b->tokens_count;
    struct norm_run norm1 = norm1_of(m, i, T);
    if (i == 0)
        block_norm_fwd(m, &norm1, k->norm1_out, k->norm1.residual, NULL);
    else
        block_norm_fwd(m, &norm1, k->norm1_out, m->sublayer_out, m->saved[i - 1].norm2.residual);
    block_inner_fwd(m, b, i);
    struct dev_linear down = linear_args(m, at->down, k->act, T, m->F, m->C);
    m->dev->ops->linear_fwd(m->dev, m->sublayer_out, &down);
    block_profile(m, PROFILE_MLP);
}

void block_recompute(struct model *m, const struct batch *b, size_t i)
{
    const struct block_saved *k = &m->saved[i];
    if (!m->recompute || i == m->L - 1)
        return;
    struct norm_run norm1 = norm1_of(m, i, b->tokens_count);
    block_norm_fwd(m, &norm1, k->norm1_out, k->norm1.residual, NULL);
    block_inner_fwd(m, b, i);
}

/* ---- backward ---- */
/* In: dresidual, the gradient of down's output. Out: dx, the gradient of norm2_out. Without a gate
 * down's linear_bwd applies the activation's derivative and computes up's bias gradient; with one
 * swiglu_bwd does it afterwards. */
static void mlp_bwd(struct model *m, size_t i, size_t T)
{
    struct dev *d = m->dev;
    const struct block_saved *k = &m->saved[i];
    const struct block_offsets *at = &m->offsets[i];
    struct dev_linear down = linear_args(m, at->down, k->act, T, m->F, m->C), up = up_args(m, i, T);
    struct dev_linear_grad of_down = {.dy = m->dresidual,
                                      .dx = m->dhidden,
                                      .dw = block_grad(m, at->down.weight),
                                      .dbias = block_grad(m, at->down.bias),
                                      .act = m->act,
                                      .pre = m->gated ? NULL : k->pre,
                                      .pre_dbias = m->gated ? NULL : block_grad(m, at->up.bias)};
    struct dev_linear_grad of_up = {.dy = m->gated ? k->pre : m->dhidden,
                                    .dx = m->dx,
                                    .dw = block_grad(m, at->up.weight),
                                    .dbias = m->gated ? block_grad(m, at->up.bias) : NULL};
    d->ops->linear_bwd(d, &down, &of_down);
    block_profile(m, PROFILE_MLP_BWD);
    grad_ready(m, at->down.weight);
    if (m->gated)
        d->ops->gated_bwd(d, k->pre, m->dhidden, k->pre, &(struct dev_gated){m->gate, T, m->F});
    d->ops->linear_bwd(d, &up, &of_up);
    block_profile(m, PROFILE_MLP_BWD);
    grad_ready(m, at->up.weight);
}

void block_bwd(struct model *m, const struct batch *b, size_t i)
{
    struct dev *d = m->dev;
    const struct block_saved *k = &m->saved[i];
    const struct block_offsets *at = &m->offsets[i];
    size_t T = b->tokens_count, C = m->C;
    mlp_bwd(m, i, T);
    struct norm_run norm1 = norm1_of(m, i, T), norm2 = norm2_of(m, i, T);
    block_norm_bwd(m, &norm2, m->dx, m->dresidual);
    struct dev_linear proj = linear_args(m, at->proj, k->att, T, C, C);
    linear_bwd(m, &proj, at->proj, m->dx, m->dresidual, PROFILE_PROJ_BWD);
    struct dev_attention attention = attention_args(m, b, k);
    d->ops->attention_bwd(d, m->dhidden, m->dx, k->att, &attention);
    block_profile(m, PROFILE_ATTENTION_BWD);
    apply_rope(m, m->dhidden, T, true);
    struct dev_linear qkv = linear_args(m, at->qkv, k->norm1_out, T, C, m->Q);
    linear_bwd(m, &qkv, at->qkv, m->dx, m->dhidden, PROFILE_QKV_BWD);
    block_norm_bwd(m, &norm1, m->dx, m->dresidual);
}
