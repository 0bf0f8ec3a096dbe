/* SPDX-License-Identifier: Apache-2.0 */
/* Several heads on one pooled row (model.classifier_heads; Malkiel & Wolf 2021, 1911.06182): the
 * mean of their losses, the orthogonality of their weights, and which are left.
 * inner/methods/heads.c decides which one leaves.
 */
#include "inner/model/model_own.h"
#include <math.h>
#include <string.h>
#include "kernels/base/mutant.h"

void heads_configure(struct model *m, const struct model_options *o)
{
    bool any = o->settings->model_pooler;
    m->several.count = m->several.left = any ? (size_t)o->settings->model_classifier_heads : 1;
}

void heads_reserve(struct layout *l, struct model *m)
{
    bool any = m->form.train && m->several.count > 1;
    m->several.dhead = any ? layout_reserve(l, m->sequence.max * m->form.C * l->value) : NULL;
}

void heads_reserve_batch(struct layout *l, struct model *m)
{
    m->several.scale = m->several.count > 1 ? layout_reserve(l, sizeof *m->several.scale) : NULL;
}

enum err heads_open(struct model *m, struct arena *perm)
{
    struct several_heads *h = &m->several;
    size_t classes = m->sequence.classes[0];
    if (h->count < 2)
        return ERR_OK;
    TRY_ALLOC(h->logits = arena_array(perm, h->count * classes, sizeof *h->logits));
    TRY_ALLOC(h->softmax = arena_array(perm, classes, sizeof *h->softmax));
    return ERR_OK;
}

/* Gradients are sums over targets, divided by their number later: so is this one. */
void heads_stage(const struct model *m, const struct batch *b, const struct upload *u,
                 float grad_scale)
{
    const float *scale = m->several.scale;
    if (scale)
        *(float *)staged(m, u, scale) = (float)m->settings->train_heads_orthogonal * grad_scale *
                                        b->sequence_weight * (float)batch_labels(b);
}

/* The mean of the losses of the heads that are left; h->dx becomes the sum of their gradients. */
void heads_fwd(struct model *m, const struct head_pass *p)
{
    const struct dev_ops *ops = m->dev->ops;
    const struct sequence_head *h = &m->sequence;
    const struct several_heads *x = &m->several;
    float share = 1.0f / (float)x->left;
    bool more = false;
    for (size_t i = 0; i < x->count; i++) {
        struct dev_classifier c = head_task_args(m, p, 0, m->at.head.heads[i]);
        if (x->dropped[i])
            continue;
        c.grad_scale *= share;
        c.dx = p->gradients && more ? x->dhead : c.dx;
        ops->classifier(m->dev, &c);
        ops->sum_add(m->dev, p->loss + MODEL_LOSS_HEADS + i, h->losses, c.T);
        ops->scale(m->dev, h->losses, share, c.T);
        ops->sum_add(m->dev, p->loss + MODEL_LOSS_SEQUENCE, h->losses, c.T);
        if (p->gradients && more)
            ops->add(m->dev, h->dx, h->dx, x->dhead, c.T * m->form.C);
        more = true;
    }
    const struct dev_orthogonal o = {
        .heads = x->count,
        .classes = h->classes[0],
        .C = m->form.C,
        .stride = (size_t)(m->at.head.heads[1].weight - m->at.head.heads[0].weight),
        .weight = x->scale};
    ptrdiff_t at = m->at.head.heads[0].weight;
    if (p->gradients && !WITHOUT(HEADS_APART))
        ops->orthogonal(m->dev, block_grad(m, at), p->loss + MODEL_LOSS_ORTHOGONAL,
                        block_param(m, at), &o);
}

/* The probabilities of one head are added to `sum`. */
static void add_softmax(double *sum, const float *logits, size_t count)
{
    double most = (double)logits[0], all = 0;
    for (size_t i = 1; i < count; i++)
        most = (double)logits[i] > most ? (double)logits[i] : most;
    for (size_t i = 0; i < count; i++)
        all += exp((double)logits[i] - most);
    for (size_t i = 0; i < count; i++)
        sum[i] += exp((double)logits[i] - most) / all;
}

void head_mean(const struct model *m, float *logits)
{
    const struct several_heads *x = &m->several;
    size_t classes = m->sequence.classes[0];
    memset(x->softmax, 0, classes * sizeof *x->softmax);
    for (size_t i = 0; i < x->count; i++)
        if (!x->dropped[i])
            add_softmax(x->softmax, x->logits + i * classes, classes);
    for (size_t i = 0; i < classes; i++)
        logits[i] = (float)log(x->softmax[i] / (double)x->left);
}

/* The weights of each head through the host. */
enum err model_find_heads(struct model *m, size_t *left)
{
    struct several_heads *h = &m->several;
    size_t count = m->sequence.classes[0] * m->form.C;
    struct arena scratch = arena_make(0);
    *left = h->left = h->count;
    if (h->count < 2)
        return ERR_OK;
    float *w = arena_array(&scratch, count, sizeof *w);
    enum err e = w ? ERR_OK : ERR_MEMORY;
    for (size_t i = 0; i < h->count && !e; i++) {
        const struct dev_range r = {(size_t)m->at.head.heads[i].weight, count};
        m->dev->ops->copy(m->dev, w, model_gather(m, r), count * sizeof *w);
        e = dev_sync(m->dev);
        model_scatter(m, r, false);
        size_t k = 0;
        while (k < count && w[k] == 0)
            k++;
        h->dropped[i] = k == count;
        h->left -= h->dropped[i];
    }
    arena_free(&scratch);
    *left = h->left;
    return e;
}

bool model_has_head(const struct model *m, size_t head)
{
    return head < m->several.count && !m->several.dropped[head];
}
