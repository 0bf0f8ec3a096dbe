/* Several heads on one pooled row (model.heads_n; Malkiel & Wolf 2021, 1911.06182): the mean of
 * their losses, the orthogonality of their weights, and which are left. inner/methods/heads.c
 * decides which one leaves.
 */
#include "inner/model/model_own.h"
#include <math.h>
#include <string.h>

enum err heads_open(struct model *m, struct arena *perm)
{
    struct sequence_head *h = &m->sequence;
    if (h->heads < 2)
        return ERR_OK;
    TRY_ALLOC(h->logits = arena_array(perm, h->heads * h->classes[0], sizeof *h->logits));
    TRY_ALLOC(h->softmax = arena_array(perm, h->classes[0], sizeof *h->softmax));
    return ERR_OK;
}

/* Gradients are sums over targets, divided by their number later: so is this one. */
void heads_stage(const struct model *m, const struct batch *b, const struct upload *u,
                 float grad_scale)
{
    const float *scale = m->sequence.scale;
    if (scale)
        *(float *)(void *)(u->host + ((const char *)scale - (const char *)m->tokens)) =
            (float)m->settings->train_heads_orthogonal * grad_scale * b->sequence_weight *
            (float)batch_labels(b);
}

/* The mean of the losses of the heads that are left; h->dx becomes the sum of their gradients. */
void heads_fwd(struct model *m, const struct head_pass *p)
{
    const struct dev_ops *ops = m->dev->ops;
    struct sequence_head *h = &m->sequence;
    float share = 1.0f / (float)h->heads_left;
    bool more = false;
    for (size_t i = 0; i < h->heads; i++) {
        struct dev_classifier c = head_task_args(m, p, 0, m->head.heads[i]);
        if (h->dropped[i])
            continue;
        c.grad_scale *= share;
        c.dx = p->gradients && more ? h->dhead : c.dx;
        ops->classifier(m->dev, &c);
        ops->sum_add(m->dev, p->loss + MODEL_LOSS_HEADS + i, h->losses, c.T);
        ops->scale(m->dev, h->losses, share, c.T);
        ops->sum_add(m->dev, p->loss + MODEL_LOSS_SEQUENCE, h->losses, c.T);
        if (p->gradients && more)
            ops->add(m->dev, h->dx, h->dx, h->dhead, c.T * m->C);
        more = true;
    }
    const struct dev_orthogonal o = {
        .heads = h->heads,
        .classes = h->classes[0],
        .C = m->C,
        .stride = (size_t)(m->head.heads[1].weight - m->head.heads[0].weight),
        .weight = h->scale};
    ptrdiff_t at = m->head.heads[0].weight;
    if (p->gradients)
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
    const struct sequence_head *h = &m->sequence;
    size_t classes = h->classes[0];
    memset(h->softmax, 0, classes * sizeof *h->softmax);
    for (size_t i = 0; i < h->heads; i++)
        if (!h->dropped[i])
            add_softmax(h->softmax, h->logits + i * classes, classes);
    for (size_t i = 0; i < classes; i++)
        logits[i] = (float)log(h->softmax[i] / (double)h->heads_left);
}

/* The weights of each head through the host. */
enum err model_find_heads(struct model *m, size_t *left)
{
    struct sequence_head *h = &m->sequence;
    size_t count = h->classes[0] * m->C;
    struct arena scratch = arena_make(0);
    float *w = h->heads > 1 ? arena_array(&scratch, count, sizeof *w) : NULL;
    enum err e = h->heads > 1 && !w ? ERR_MEMORY : ERR_OK;
    h->heads_left = h->heads;
    for (size_t i = 0; i < h->heads && h->heads > 1 && !e; i++) {
        m->dev->ops->copy(m->dev, w, block_param(m, m->head.heads[i].weight), count * sizeof *w);
        e = dev_sync(m->dev);
        size_t k = 0;
        while (k < count && w[k] == 0)
            k++;
        h->dropped[i] = k == count;
        h->heads_left -= h->dropped[i];
    }
    arena_free(&scratch);
    *left = h->heads_left;
    return e;
}

bool model_has_head(const struct model *m, size_t head)
{
    return head < m->sequence.heads && !m->sequence.dropped[head];
}
