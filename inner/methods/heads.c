/* The heads of multiverse learning (model.heads_n; Malkiel & Wolf 2021, 1911.06182): a moving
 * average of each head's loss, and at each evaluation the heads that leave. A head that leaves gets
 * weights and moments of 0, by which every reader of the parameters knows it. All ranks have the
 * same averages, so they decide alike.
 */
#include <stdio.h>
#include <stdlib.h>
#include "inner/train/train_tune.h"
#include "kernels/base/log.h"

static const double decay = 0.99;
enum { STRIKES = 2 }; /* evaluations in a row above the limit */

void heads_step(struct train *t, double sequences)
{
    struct train_heads *h = &t->heads;
    for (size_t i = 0; i < h->n; i++) {
        double now = t->stats[STEP_HEAD_LOSSES + i] / sequences;
        if (sequences > 0)
            h->loss[i] = h->begun != 0 ? decay * h->loss[i] + (1 - decay) * now : now;
    }
    h->begun = h->begun != 0 || sequences > 0;
}

double heads_cosine(const struct train *t, double sequences)
{
    double left = (double)t->heads.left, classes = (double)keys_classes(t->settings, 0),
           weight = t->settings->train_heads_orthogonal,
           all = weight * sequences * classes * left * (left - 1) / 2;
    return all > 0 ? t->stats[STEP_ORTHOGONAL_LOSS] / all : 0;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(const struct train *t)
{
    double kept[KEYS_HEADS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < t->heads.n; i++)
        if (model_has_head(t->model, i))
            kept[n++] = t->heads.loss[i];
    qsort(kept, n, sizeof *kept, compare_doubles);
    return n % 2 ? kept[n / 2] : (kept[n / 2 - 1] + kept[n / 2]) / 2;
}

/* The worst head that is above the limit for long enough; n: none. */
static size_t worst_of(const struct train *t)
{
    size_t worst = t->heads.n;
    for (size_t i = 0; i < t->heads.n; i++)
        if (model_has_head(t->model, i) && t->heads.strikes[i] >= STRIKES &&
            (worst == t->heads.n || t->heads.loss[i] > t->heads.loss[worst]))
            worst = i;
    return worst;
}

static void clear_tensor(struct train *t, const char *name)
{
    const struct tensor *x = table_find(&t->table, name);
    t->dev->ops->zero(t->dev, model_params(t->model) + x->offset, x->count * sizeof(float));
    optim_forget(&t->optim, x->offset, x->count);
}

static enum err drop_head(struct train *t, size_t head)
{
    char weight[TABLE_NAME_MAX] = "classes.0.weight", bias[TABLE_NAME_MAX] = "classes.0.bias";
    if (head) {
        snprintf(weight, sizeof weight, "classes.0.%zu.weight", head);
        snprintf(bias, sizeof bias, "classes.0.%zu.bias", head);
    }
    clear_tensor(t, weight);
    clear_tensor(t, bias);
    model_params_changed(t->model);
    if (t->coll->rank == 0)
        log_event(LOG_INFO, "head_dropped", "step=%lld head=%zu loss=%.4f median=%.4f left=%zu",
                  (long long)t->step, head, t->heads.loss[head], median_of(t), t->heads.left - 1);
    return model_find_heads(t->model, &t->heads.left);
}

enum err heads_review(struct train *t)
{
    struct train_heads *h = &t->heads;
    double limit = t->settings->train_heads_drop;
    if (!h->n || h->begun == 0 || limit <= 0)
        return ERR_OK;
    limit *= median_of(t);
    for (size_t i = 0; i < h->n; i++)
        h->strikes[i] = h->loss[i] > limit ? h->strikes[i] + 1 : 0;
    for (size_t i; h->left > (size_t)t->settings->train_heads_least && (i = worst_of(t)) < h->n;)
        TRY(drop_head(t, i));
    return ERR_OK;
}
