/* SPDX-License-Identifier: Apache-2.0 */
/* The heads of multiverse learning (model.classifier_heads; Malkiel & Wolf 2021, 1911.06182): a
 * moving average of each head's loss, and at each evaluation the heads that leave. A head that
 * leaves gets weights and moments of 0, by which every reader of the parameters knows it. All ranks
 * have the same averages, so they decide alike.
 */
#include "inner/methods/heads.h"
#include <stdio.h>
#include <stdlib.h>
#include "kernels/base/log.h"

static const double decay = 0.99;
enum { STRIKES = 2 }; /* evaluations in a row above the limit */

struct heads {
    struct method_parts parts;
    size_t n, left;     /* of model.classifier_heads */
    struct heads_kept { /* in checkpoints */
        double begun;   /* 1: the averages have begun */
        double loss[KEYS_HEADS_MAX],
            strikes[KEYS_HEADS_MAX]; /* moving averages; evaluations above the limit */
    } kept;
};

static bool heads_asked(const struct settings *s)
{
    return s->model_classifier_heads > 1;
}

static enum err heads_open(void **state, const struct method_parts *p, struct arena *perm)
{
    struct heads *h;
    TRY_ALLOC(*state = h = arena_alloc(perm, sizeof *h));
    h->parts = *p;
    h->n = (size_t)p->settings->model_classifier_heads;
    return ERR_OK;
}

static void *heads_kept(void *state)
{
    return &((struct heads *)state)->kept;
}

static enum err heads_resumed(void *state)
{
    struct heads *h = state;
    return model_find_heads(h->parts.model, &h->left);
}

/* ---- a step ---- */
static void average_losses(struct heads *h, const double *stats, double sequences)
{
    struct heads_kept *k = &h->kept;
    const double *losses = stats + STEP_LOSS; /* by enum model_loss_kind */
    for (size_t i = 0; i < h->n; i++) {
        double now = losses[MODEL_LOSS_HEADS + i] / sequences;
        if (sequences > 0)
            k->loss[i] = k->begun != 0 ? decay * k->loss[i] + (1 - decay) * now : now;
    }
    k->begun = k->begun != 0 || sequences > 0;
}

/* The mean |cosine| of two heads' weights of a class. */
static double mean_cosine(const struct heads *h, const double *stats, double sequences)
{
    const struct settings *s = h->parts.settings;
    double left = (double)h->left, classes = (double)keys_classes(s, 0),
           weight = s->train_heads_orthogonal,
           all = weight * sequences * classes * left * (left - 1) / 2;
    const double *losses = stats + STEP_LOSS;
    return all > 0 ? losses[MODEL_LOSS_ORTHOGONAL] / all : 0;
}

static void heads_read(void *state, int64_t steps, const double *stats, struct figures *f)
{
    struct heads *h = state;
    (void)steps;
    figures_count(f, "heads", h->left);
    figures_add(f, "cosine", mean_cosine(h, stats, stats[STEP_TARGETS]));
    average_losses(h, stats, stats[STEP_TARGETS]);
}

/* ---- an evaluation ---- */
static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(const struct heads *h)
{
    double kept[KEYS_HEADS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < h->n; i++)
        if (model_has_head(h->parts.model, i))
            kept[n++] = h->kept.loss[i];
    qsort(kept, n, sizeof *kept, compare_doubles);
    return n % 2 ? kept[n / 2] : (kept[n / 2 - 1] + kept[n / 2]) / 2;
}

/* The worst head that is above the limit for long enough; n: none. */
static size_t worst_of(const struct heads *h)
{
    size_t worst = h->n;
    for (size_t i = 0; i < h->n; i++)
        if (model_has_head(h->parts.model, i) && h->kept.strikes[i] >= STRIKES &&
            (worst == h->n || h->kept.loss[i] > h->kept.loss[worst]))
            worst = i;
    return worst;
}

static void clear_tensor(struct heads *h, const char *name)
{
    const struct tensor *x = table_find(h->parts.table, name);
    const struct dev_range r = {x->offset, x->count};
    h->parts.dev->ops->zero(h->parts.dev, model_gather(h->parts.model, r),
                            x->count * sizeof(float));
    model_scatter(h->parts.model, r, true);
    optim_forget(h->parts.optim, x->offset, x->count);
}

static enum err drop_head(struct heads *h, int64_t steps, size_t head)
{
    char weight[TABLE_NAME_MAX] = "classes.0.weight", bias[TABLE_NAME_MAX] = "classes.0.bias";
    if (head) {
        snprintf(weight, sizeof weight, "classes.0.%zu.weight", head);
        snprintf(bias, sizeof bias, "classes.0.%zu.bias", head);
    }
    clear_tensor(h, weight);
    clear_tensor(h, bias);
    model_params_changed(h->parts.model);
    if (h->parts.coll->rank == 0)
        log_event(LOG_INFO, "head_dropped", "step=%lld head=%zu loss=%.4f median=%.4f left=%zu",
                  (long long)steps, head, h->kept.loss[head], median_of(h), h->left - 1);
    return model_find_heads(h->parts.model, &h->left);
}

static enum err heads_review(void *state, int64_t steps)
{
    struct heads *h = state;
    const struct settings *s = h->parts.settings;
    double limit = s->train_heads_drop;
    if (h->kept.begun == 0 || limit <= 0)
        return ERR_OK;
    limit *= median_of(h);
    for (size_t i = 0; i < h->n; i++)
        h->kept.strikes[i] = h->kept.loss[i] > limit ? h->kept.strikes[i] + 1 : 0;
    for (size_t i; h->left > (size_t)s->train_heads_least && (i = worst_of(h)) < h->n;)
        TRY(drop_head(h, steps, i));
    return ERR_OK;
}

const struct method method_heads = {.name = "heads",
                                    .asked = heads_asked,
                                    .open = heads_open,
                                    .bytes = sizeof(struct heads_kept),
                                    .kept = heads_kept,
                                    .resumed = heads_resumed,
                                    .changes = method_changes_nothing,
                                    .begin = method_begins_nothing,
                                    .read = heads_read,
                                    .review = heads_review,
                                    .lengthened = method_keeps_past};
