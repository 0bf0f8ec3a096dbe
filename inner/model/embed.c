/* SPDX-License-Identifier: Apache-2.0 */
/* Before the blocks: x = wte[token] (+ wpe[position]) (+ wtt[type]); with model.embed_norm
 * x = norm(x) (BERT, Devlin et al. 2019, 1810.04805); with embeddings of a width of their own
 * x = x P^T + b (ALBERT, Lan et al. 2020, 1909.11942, section 3.1).
 */
#include "inner/model/model_own.h"

void embed_reserve(struct layout *l, const struct model *m, struct activation_set *set, size_t T)
{
    if (m->at.embed.norm.gain != NONE)
        set->embed_norm = layout_norm(l, m, T, m->form.E);
    set->embed_out =
        m->at.embed.proj.weight == NONE ? NULL : layout_reserve(l, T * m->form.E * l->value);
    set->embedded = m->form.post ? layout_reserve(l, T * m->form.C * l->value) : NULL;
}

static struct norm_run embed_norm_of(const struct model *m, size_t T)
{
    return (struct norm_run){m->at.embed.norm, m->live.set.embed_norm, T, m->form.E, DROPOUT_NONE};
}

static struct dev_embed embed_args(const struct model *m, size_t T)
{
    return (struct dev_embed){.wte = block_weight(m, m->at.embed.wte),
                              .wpe = block_weight(m, m->at.embed.wpe),
                              .tokens = m->batch.tokens,
                              .positions = m->batch.positions,
                              .T = T,
                              .C = m->form.E,
                              .VP = m->form.VP,
                              .wtt = block_weight(m, m->at.embed.wtt),
                              .types = m->batch.token_types,
                              .types_count = m->form.types};
}

void embed_fwd(struct model *m, const struct batch *b)
{
    struct dev *d = m->dev;
    size_t T = b->tokens_count;
    bool norm = m->at.embed.norm.gain != NONE;
    void *last = m->live.set.embed_out ? m->live.set.embed_out : m->live.set.embedded;
    void *sum = norm ? m->live.set.embed_norm.residual : last;
    unit_gather(m, m->at.embed.unit);
    struct dev_embed tables = embed_args(m, T);
    d->ops->embed_fwd(d, sum, &tables);
    block_profile(m, PROFILE_EMBED);
    struct norm_run n = embed_norm_of(m, T);
    if (norm)
        block_norm_fwd(m, &n, last, sum, NULL);
    dropout_apply(m, last, last, DROPOUT_EMBED, T, m->form.E);
    if (m->live.set.embed_out) {
        struct dev_linear proj =
            linear_args(m, m->at.embed.proj, m->live.set.embed_out, T, m->form.E, m->form.C);
        d->ops->linear_fwd(d, m->live.set.embedded, &proj);
        block_profile(m, PROFILE_EMBED);
    }
    unit_scatter(m, m->at.embed.unit);
}

void embed_bwd(struct model *m, const struct batch *b, void *dx)
{
    struct dev *d = m->dev;
    size_t T = b->tokens_count;
    unit_gather(m, m->at.embed.unit);
    if (m->live.set.embed_out) {
        struct dev_linear proj =
            linear_args(m, m->at.embed.proj, m->live.set.embed_out, T, m->form.E, m->form.C);
        linear_bwd(m, &proj,
                   &(struct linear_gradient){m->at.embed.proj, other_gradient(m, dx), dx,
                                             PROFILE_EMBED_BWD});
        dx = other_gradient(m, dx);
    }
    dropout_apply(m, dx, dx, DROPOUT_EMBED, T, m->form.E);
    if (m->at.embed.norm.gain != NONE) {
        struct norm_run n = embed_norm_of(m, T);
        block_norm_bwd(m, &n, other_gradient(m, dx), dx, NULL);
        dx = other_gradient(m, dx);
    }
    struct dev_embed tables = embed_args(m, T);
    const struct dev_embed_grad g = {.dx = dx,
                                     .dwte = block_grad(m, m->at.embed.wte),
                                     .dwpe = block_grad(m, m->at.embed.wpe),
                                     .dwtt = block_grad(m, m->at.embed.wtt)};
    d->ops->embed_bwd(d, &tables, &g);
    block_profile(m, PROFILE_EMBED_BWD);
    unit_scatter(m, m->at.embed.unit);
    grad_ready(m, 0);
}
