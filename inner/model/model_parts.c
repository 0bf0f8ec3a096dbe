/* SPDX-License-Identifier: Apache-2.0 */
/* Passes over parts of the model, from the steps of a whole pass. */
#include "inner/model/model_parts.h"
#include "inner/model/model_own.h"

size_t model_sets(const struct settings *s)
{
    bool stale = s->train_modules > 1 && s->train_pipeline == TRAIN_PIPELINE_STALE;
    return stale ? (size_t)s->train_modules + 1 : 1;
}

size_t model_boundary_bytes(const struct model *m)
{
    return m->form.tokens_max * m->form.C * dtype_size(m->dev->model_type);
}

static size_t bytes_of(const struct model *m, const struct batch *b)
{
    return b->tokens_count * m->form.C * dtype_size(m->dev->model_type);
}

/* Set and batch in this order: the heads read the last layer of the set in use. loss NULL: of a
 * backward. */
static enum err part_begin(struct model *m, const struct batch *b, const struct model_part *p,
                           const struct model_grad_hook *hook, double *loss)
{
    ASSERT(m->form.train && p->first < p->end && p->end <= m->form.L);
    pass_begin(m, p->first, hook);
    model_use_set(m, p->set);
    TRY(batch_to_device(m, b, 1));
    additions_begin(m, loss);
    return ERR_OK;
}

static void part_end(struct model *m, struct weights_used own)
{
    weights_use(m, own);
    additions_end(m);
    pass_end(m);
    model_use_set(m, 0);
}

/* What layer i > 0 reads: of pre norms the residual stream, with the output of the layer before. */
static void *layer_input(const struct model *m, size_t i)
{
    return m->form.post ? m->live.set.saved[i - 1].norm2_out : m->live.set.saved[i].norm1.residual;
}

/* The input of the next part. The norm that will read it is that part's. */
static void write_boundary(struct model *m, const struct batch *b, size_t end, void *out)
{
    const struct norm_run sum = {
        {NONE, NONE}, {.residual = out}, b->tokens_count, m->form.C, dropout_mlp(end - 1)};
    if (m->form.post)
        m->dev->ops->copy(m->dev, out, m->live.set.saved[end - 1].norm2_out, bytes_of(m, b));
    else
        block_norm_fwd(m, &sum, NULL, m->live.sublayer_out,
                       m->live.set.saved[end - 1].norm2.residual);
}

enum err model_part_fwd(struct model *m, const struct batch *b, const struct model_part *p,
                        const void *in, void *out, double *loss)
{
    ASSERT(!in == !p->first && !out == (p->end == m->form.L));
    TRY(part_begin(m, b, p, NULL, loss));
    const struct weights_used own = weights_use(m, (struct weights_used){p->params, p->copy, true});
    if (in)
        m->dev->ops->copy(m->dev, layer_input(m, p->first), in, bytes_of(m, b));
    else
        embed_fwd(m, b);
    for (size_t i = p->first; i < p->end; i++)
        block_fwd(m, b, i);
    if (out)
        write_boundary(m, b, p->end, out);
    else
        heads_fwd_from(m, &(struct head_pass){b, 1, loss, true});
    part_end(m, own);
    return ERR_OK;
}

/* The gradient of a part's output, where block_bwd reads it. */
static void read_gradient(struct model *m, const struct batch *b, size_t end, const void *dout)
{
    m->dev->ops->copy(m->dev, m->form.post ? m->live.dx : m->live.dresidual, dout, bytes_of(m, b));
    if (!m->form.post)
        dropout_apply(m, m->live.dbranch, m->live.dresidual, dropout_mlp(end - 1), b->tokens_count,
                      m->form.C);
}

enum err model_part_bwd(struct model *m, const struct batch *b, const struct model_part *p,
                        const void *dout, void *din, const struct model_grad_hook *hook)
{
    void *dx = m->form.post ? m->live.dx : m->live.dresidual;
    ASSERT(!din == !p->first && !dout == (p->end == m->form.L));
    TRY(part_begin(m, b, p, hook, NULL));
    const struct weights_used own = weights_use(m, (struct weights_used){p->params, p->copy, true});
    if (dout)
        read_gradient(m, b, p->end, dout);
    else
        heads_bwd_to(m, b);
    for (size_t i = p->end; i-- > p->first;)
        block_bwd(m, b, i);
    if (din)
        m->dev->ops->copy(m->dev, din, dx, bytes_of(m, b));
    else
        embed_bwd(m, b, dx);
    part_end(m, own);
    return ERR_OK;
}
