/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout (Srivastava et al. 2014) where BERT has it: after the embeddings, and on the output of
 * attention and MLP before it is added to the residual stream (Devlin et al. 2019, 1810.04805,
 * appendix A.2); not on the attention's probabilities. The mask depends on seed, site, step, place
 * in the model, and the example and position of a row: not on its rank or micro-batch, and backward
 * and recomputation draw it again.
 */
#include "inner/model/model_own.h"

enum { SITE_BIT = 53 }; /* run.seed is below 2^53 */

static void dropout_configure(struct model *m, const struct model_options *o)
{
    const struct settings *s = o->settings;
    m->dropout.rate = o->train ? (float)s->train_dropout : 0;
    m->dropout.layers = o->train && depth_drops(s);
    m->dropout.sequence = (uint64_t)s->train_seq_len;
}

static void dropout_reserve_batch(struct layout *l, struct model *m, size_t T)
{
    m->dropout.keys = m->dropout.rate > 0 ? layout_reserve(l, T * sizeof *m->dropout.keys) : NULL;
    m->dropout.scales =
        m->dropout.layers ? layout_reserve(l, m->form.L * sizeof *m->dropout.scales) : NULL;
}

static void dropout_stage(struct model *m, const struct batch *b, const struct upload *u,
                          float grad_scale)
{
    (void)grad_scale;
    m->dropout.step = b->step;
    for (size_t i = 0; m->dropout.scales && i < m->form.L; i++)
        ((float *)staged(m, u, m->dropout.scales))[i] = depth_scale(m->settings, b->step, i);
    if (!m->dropout.keys)
        return;
    m->dropout.seed = m->form.seed ^ (uint64_t)b->site << SITE_BIT;
    uint64_t *keys = staged(m, u, m->dropout.keys);
    for (size_t i = 0; i < b->sequences; i++)
        for (size_t t = (size_t)b->cu_seqlens[i], p = 0; t < (size_t)b->cu_seqlens[i + 1]; t++, p++)
            keys[t] = b->step << 32 | (uint32_t)(b->numbers[i] * m->dropout.sequence + p);
}

bool branch_apart(const struct model *m)
{
    return m->dropout.rate > 0 || m->dropout.layers;
}

static void dropout_begin(struct model *m, double *loss)
{
    (void)loss;
    m->dropout.on = branch_apart(m);
}

static void dropout_branch_bwd(struct model *m, void *dx, const void *x, size_t T)
{
    (void)m, (void)dx, (void)x, (void)T;
}

static void dropout_end(struct model *m)
{
    m->dropout.on = false;
}

const struct model_addition addition_dropout = {dropout_configure,  dropout_reserve_batch,
                                                dropout_stage,      dropout_begin,
                                                dropout_branch_bwd, dropout_end};

bool dropout_branch(const struct model *m, unsigned place, struct dev_dropout *a)
{
    *a = (struct dev_dropout){
        .rate = m->dropout.rate, .seed = m->dropout.seed, .place = place, .keys = m->dropout.keys};
    if (place >= DROPOUT_LAYERS && m->dropout.scales)
        a->scale = m->dropout.scales + (place - DROPOUT_LAYERS) / 2;
    return m->dropout.on && place != DROPOUT_NONE && (a->rate > 0 || a->scale);
}

bool layer_runs(const struct model *m, size_t i)
{
    if (i >= m->pass.layers)
        return false;
    return !m->dropout.on || !m->dropout.layers || depth_runs(m->settings, m->dropout.step, i);
}

size_t layer_before(const struct model *m, size_t i)
{
    while (i-- > 0 && !layer_runs(m, i))
        ;
    return i;
}

void dropout_apply(struct model *m, void *y, const void *x, unsigned place, size_t T, size_t C)
{
    struct dev_dropout a;
    if (dropout_branch(m, place, &a))
        m->dev->ops->dropout(m->dev, y, x, &a, T, C);
}
