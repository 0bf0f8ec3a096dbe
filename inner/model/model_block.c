/* One block: which op reads what, in which order. GPT-2 (Radford et al. 2019): x +=
 * proj(attention(qkv(norm1(x)))), x += down(gelu(up(norm2(x)))). Llama (Touvron et al. 2023,
 * 2302.13971): q and k turned by their positions, groups of queries that share keys and values,
 * silu(gate) up in place of the activation.
 *
 * The residual stream is added inside norm_fwd, so each of its states is written once (r1 in front
 * of norm1, r2 in front of norm2) and kept for backward. Backward carries one gradient of the
 * stream, `dres`, and adds to it in place.
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
    return m->copy ? (const char *)m->copy + (size_t)at * dtype_size(m->dev->model_type)
                   : (const void *)(m->params + at);
}

static struct dev_norm_args norm_args(const struct model *m, struct norm_at at, size_t T)
{
    return (struct dev_norm_args){.kind = m->norm,
                                  .eps = m->norm_eps,
                                  .T = T,
                                  .C = m->C,
                                  .gain = block_param(m, at.gain),
                                  .bias = block_param(m, at.bias)};
}

void block_stage(const struct model *m, enum profile_class c)
{
    profile_mark(m->profile, c);
}

void block_norm_fwd(struct model *m, void *y, struct norm_kept k, struct norm_at at, const void *x,
                    const void *residual, size_t T)
{
    struct dev_norm_args a = norm_args(m, at, T);
    m->dev->ops->norm_fwd(m->dev, y, k.sum, k.mean, k.rstd, x, residual, &a);
    block_stage(m, PROFILE_NORM);
}

void block_tell(const struct model *m, ptrdiff_t at)
{
    if (m->ready)
        m->ready->final(m->ready->self, (size_t)at);
}

void block_norm_bwd(struct model *m, const void *dy, const void *dsum, struct norm_kept k,
                    struct norm_at at, size_t T)
{
    struct dev_norm_args a = norm_args(m, at, T);
    m->dev->ops->norm_bwd(m->dev, m->dres, block_grad(m, at.gain), block_grad(m, at.bias), dy, dsum,
                          k.sum, k.mean, k.rstd, &a);
    block_stage(m, PROFILE_NORM_BWD);
    block_tell(m, at.gain);
}

static struct dev_linear linear_args(const struct model *m, struct linear_at at, const void *x,
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

static void linear_bwd(struct model *m, const struct dev_linear *fwd, struct linear_at at, void *dx,
                       const void *dy, enum profile_class c)
{
    struct dev_linear_grad g = {
        .dy = dy, .dx = dx, .dw = block_grad(m, at.weight), .dbias = block_grad(m, at.bias)};
    m->dev->ops->linear_bwd(m->dev, fwd, &g);
    block_stage(m, c);
    block_tell(m, at.weight);
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
                                  .KVH = m->KVH,
                                  .HD = HD,
                                  .causal = m->causal,
                                  .scale = (float)(1.0 / sqrt((double)HD)),
                                  .lse = k->lse};
}

/* Of queries and keys, in the rows of qkv or of its gradient. */
static void turn(struct model *m, void *qkv, size_t T, bool back)
{
    size_t HD = m->C / m->NH;
    const struct dev_rope r = {.table = m->angles,
                               .positions = m->positions,
                               .T = T,
                               .heads = m->NH + m->KVH,
                               .HD = HD,
                               .stride = m->Q,
                               .back = back};
    if (m->angles)
        m->dev->ops->rope(m->dev, qkv, &r);
}

static struct dev_linear up_args(const struct model *m, size_t i, size_t T)
{
    struct dev_linear a = linear_args(m, m->at[i].up, m->kept[i].h2, T, m->C, m->U);
    a.act = m->act;
    a.pre = m->gated ? NULL : m->kept[i].pre;
    return a;
}

/* From h1 to what the layer's last product reads; all that backward needs of it. */
static void layer_inside(struct model *m, const struct batch *b, size_t i)
{
    struct dev *d = m->dev;
    const struct kept *k = &m->kept[i];
    const struct block_at *at = &m->at[i];
    size_t T = b->tokens_count, C = m->C;
    struct dev_linear qkv = linear_args(m, at->qkv, k->h1, T, C, m->Q);
    d->ops->linear_fwd(d, k->qkv, &qkv);
    turn(m, k->qkv, T, false);
    block_stage(m, PROFILE_QKV);
    struct dev_attention attention = attention_args(m, b, k);
    d->ops->attention_fwd(d, k->att, &attention);
    block_stage(m, PROFILE_ATTENTION);
    struct dev_linear proj = linear_args(m, at->proj, k->att, T, C, C);
    d->ops->linear_fwd(d, m->branch, &proj);
    block_stage(m, PROFILE_PROJ);
    block_norm_fwd(m, k->h2, k->norm2, at->norm2, m->branch, k->norm1.sum, T);
    struct dev_linear up = up_args(m, i, T);
    d->ops->linear_fwd(d, m->gated ? k->pre : k->act, &up);
    if (m->gated)
        d->ops->swiglu_fwd(d, k->act, k->pre, T, m->F);
    block_stage(m, PROFILE_MLP);
}

void block_fwd(struct model *m, const struct batch *b, size_t i)
{
    const struct kept *k = &m->kept[i];
    const struct block_at *at = &m->at[i];
    size_t T = b->tokens_count;
    if (i == 0)
        block_norm_fwd(m, k->h1, k->norm1, at->norm1, k->norm1.sum, NULL, T);
    else
        block_norm_fwd(m, k->h1, k->norm1, at->norm1, m->branch, m->kept[i - 1].norm2.sum, T);
    layer_inside(m, b, i);
    struct dev_linear down = linear_args(m, at->down, k->act, T, m->F, m->C);
    m->dev->ops->linear_fwd(m->dev, m->branch, &down);
    block_stage(m, PROFILE_MLP);
}

void block_again(struct model *m, const struct batch *b, size_t i)
{
    const struct kept *k = &m->kept[i];
    if (!m->recompute || i == m->L - 1)
        return;
    block_norm_fwd(m, k->h1, k->norm1, m->at[i].norm1, k->norm1.sum, NULL, b->tokens_count);
    layer_inside(m, b, i);
}

/* ---- backward ---- */
/* In: dres, the gradient of down's output. Out: dh, that of h2. down's input gradient goes through
 * the activation on its way and brings up's bias gradient; through a gate it goes behind it. */
static void mlp_bwd(struct model *m, size_t i, size_t T)
{
    struct dev *d = m->dev;
    const struct kept *k = &m->kept[i];
    const struct block_at *at = &m->at[i];
    struct dev_linear down = linear_args(m, at->down, k->act, T, m->F, m->C), up = up_args(m, i, T);
    struct dev_linear_grad of_down = {.dy = m->dres,
                                      .dx = m->dwide,
                                      .dw = block_grad(m, at->down.weight),
                                      .dbias = block_grad(m, at->down.bias),
                                      .act = m->act,
                                      .pre = m->gated ? NULL : k->pre,
                                      .pre_dbias = m->gated ? NULL : block_grad(m, at->up.bias)};
    struct dev_linear_grad of_up = {.dy = m->gated ? k->pre : m->dwide,
                                    .dx = m->dh,
                                    .dw = block_grad(m, at->up.weight),
                                    .dbias = m->gated ? block_grad(m, at->up.bias) : NULL};
    d->ops->linear_bwd(d, &down, &of_down);
    block_stage(m, PROFILE_MLP_BWD);
    block_tell(m, at->down.weight);
    if (m->gated)
        d->ops->swiglu_bwd(d, k->pre, m->dwide, k->pre, T, m->F);
    d->ops->linear_bwd(d, &up, &of_up);
    block_stage(m, PROFILE_MLP_BWD);
    block_tell(m, at->up.weight);
}

void block_bwd(struct model *m, const struct batch *b, size_t i)
{
    struct dev *d = m->dev;
    const struct kept *k = &m->kept[i];
    const struct block_at *at = &m->at[i];
    size_t T = b->tokens_count, C = m->C;
    mlp_bwd(m, i, T);
    block_norm_bwd(m, m->dh, m->dres, k->norm2, at->norm2, T);
    struct dev_linear proj = linear_args(m, at->proj, k->att, T, C, C);
    linear_bwd(m, &proj, at->proj, m->dh, m->dres, PROFILE_PROJ_BWD);
    struct dev_attention attention = attention_args(m, b, k);
    d->ops->attention_bwd(d, m->dwide, m->dh, k->att, &attention);
    block_stage(m, PROFILE_ATTENTION_BWD);
    turn(m, m->dwide, T, true);
    struct dev_linear qkv = linear_args(m, at->qkv, k->h1, T, C, m->Q);
    linear_bwd(m, &qkv, at->qkv, m->dh, m->dwide, PROFILE_QKV_BWD);
    block_norm_bwd(m, m->dh, m->dres, k->norm1, at->norm1, T);
}
