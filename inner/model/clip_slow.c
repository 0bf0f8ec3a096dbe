/* SPDX-License-Identifier: Apache-2.0 */
/* The specification of clipping: a forward and a backward pass for each sequence by itself, added
 * up for each record, the norm of the whole slab in double, and the scaled slab added to the sum.
 */
#include "inner/model/clip_own.h"
#include <math.h>

size_t clip_slow_plan(const struct settings *s, const struct table *t, const struct clip_options *o)
{
    (void)s;
    (void)o;
    return t->elements * sizeof(float);
}

enum err clip_slow_open(struct clip *c, struct arena *perm)
{
    (void)perm;
    return dev_alloc(c->dev, (void **)&c->sum, c->o.table->elements * sizeof *c->sum);
}

void clip_slow_close(struct clip *c)
{
    dev_free(c->dev, c->sum);
    c->sum = NULL;
}

/* The gradient of one record in the model's slab, sequence by sequence. */
static enum err slow_gradient(struct clip *c, const struct batch *b, size_t record)
{
    float token = clip_token_weight(c, record), scale = token > 0 ? token : 1;
    model_grads_zero(c->m);
    for (size_t i = c->cut.first[record]; i < c->cut.first[record + 1]; i++) {
        batch_clear(&c->own);
        batch_take(&c->own, b, i);
        batch_weigh(&c->own, clip_label_weight(c, record) / scale);
        TRY(model_accumulate(c->m, &c->own, scale, NULL, c->loss));
    }
    return ERR_OK;
}

enum err clip_slow(struct clip *c, const struct batch *b)
{
    const struct dev_ops *ops = c->dev->ops;
    float *grads = model_grads(c->m);
    size_t elements = c->o.table->elements;
    ops->copy(c->dev, c->sum, grads, elements * sizeof *grads);
    for (size_t i = 0; i < c->cut.records; i++) {
        double square;
        TRY(slow_gradient(c, b, i));
        ops->sumsq(c->dev, &square, grads, elements);
        c->norms[i] = sqrt(square);
        double factor = clip_factor(c, c->norms[i]);
        if (factor > 0)
            ops->axpy(c->dev, c->sum, grads, (float)factor, elements);
    }
    ops->copy(c->dev, grads, c->sum, elements * sizeof *grads);
    return dev_sync(c->dev);
}
