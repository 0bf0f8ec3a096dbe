/* In front of the blocks: x = wte[token] (+ wpe[position]) (+ wtt[type]); with model.embed_norm
 * x = norm(x) (BERT, Devlin et al. 2019, 1810.04805); with embeddings of a width of their own
 * x = x P^T + b (ALBERT, Lan et al. 2020, 1909.11942, section 3.1).
 */
#include "inner/model/model_own.h"

void embed_reserve(struct layout *l, struct model *m, size_t T)
{
    if (m->embed.norm.gain != NONE)
        m->embed_norm = layout_norm(l, m, T, m->E);
    m->embed_out = m->embed.proj.weight == NONE ? NULL : layout_reserve(l, T * m->E * l->value);
    m->embedded = m->post ? layout_reserve(l, T * m->C * l->value) : NULL;
}

static struct norm_run embed_norm_of(const struct model *m, size_t T)
{
    return (struct norm_run){m->embed.norm, m->embed_norm, T, m->E, DROPOUT_NONE};
}

static struct dev_embed embed_args(const struct model *m, size_t T)
{
    return (struct dev_embed){.wte = block_weight(m, m->embed.wte),
                              .wpe = block_weight(m, m->embed.wpe),
                              .tokens = m->tokens,
                              .positions = m->positions,
                              .T = T,
                              .C = m->E,
                              .VP = m->VP,
                              .wtt = block_weight(m, m->embed.wtt),
                              .types = m->token_types,
                              .types_count = m->types};
}

void embed_fwd(struct model *m, const struct batch *b)
{
    struct dev *d = m->dev;
    size_t T = b->tokens_count;
    bool norm = m->embed.norm.gain != NONE;
    void *last = m->embed_out ? m->embed_out : m->embedded;
    void *sum = norm ? m->embed_norm.residual : last;
    struct dev_embed tables = embed_args(m, T);
    d->ops->embed_fwd(d, sum, &tables);
    block_profile(m, PROFILE_EMBED);
    struct norm_run n = embed_norm_of(m, T);
    if (norm)
        block_norm_fwd(m, &n, last, sum, NULL);
    dropout_apply(m, last, last, DROPOUT_EMBED, T, m->E);
    if (m->embed_out) {
        struct dev_linear proj = linear_args(m, m->embed.proj, m->embed_out, T, m->E, m->C);
        d->ops->linear_fwd(d, m->embedded, &proj);
        block_profile(m, PROFILE_EMBED);
    }
}

void embed_bwd(struct model *m, const struct batch *b, void *dx)
{
    struct dev *d = m->dev;
    size_t T = b->tokens_count;
    if (m->embed_out) {
        struct dev_linear proj = linear_args(m, m->embed.proj, m->embed_out, T, m->E, m->C);
        linear_bwd(
            m, &proj,
            &(struct linear_gradient){m->embed.proj, other_gradient(m, dx), dx, PROFILE_EMBED_BWD});
        dx = other_gradient(m, dx);
    }
    dropout_apply(m, dx, dx, DROPOUT_EMBED, T, m->E);
    if (m->embed.norm.gain != NONE) {
        struct norm_run n = embed_norm_of(m, T);
        block_norm_bwd(m, &n, other_gradient(m, dx), dx, NULL);
        dx = other_gradient(m, dx);
    }
    struct dev_embed tables = embed_args(m, T);
    const struct dev_embed_grad g = {.dx = dx,
                                     .dwte = block_grad(m, m->embed.wte),
                                     .dwpe = block_grad(m, m->embed.wpe),
                                     .dwtt = block_grad(m, m->embed.wtt)};
    d->ops->embed_bwd(d, &tables, &g);
    block_profile(m, PROFILE_EMBED_BWD);
    grad_ready(m, 0);
}
