/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/eval/evaluate.h"
#include <math.h>
#include <string.h>

enum { VALUES = 2 * MODEL_LOSSES + 1 };

static size_t classes_of(const struct settings *s, size_t task)
{
    return s->model_classes.count ? (size_t)keys_classes(s, task) : 2;
}

enum err evaluate_open(struct evaluate_sums *x, const struct settings *s, struct evaluate_rank r,
                       struct arena *perm)
{
    size_t most = (size_t)s->model_vocab_size * MODEL_LOGIT_ROWS, at = VALUES;
    *x = (struct evaluate_sums){.values_count = VALUES};
    if (s->model_pooler)
        x->tasks_count = s->model_classes.count ? s->model_classes.count : 1;
    for (size_t i = 0; i < x->tasks_count; i++)
        x->values_count += 3 * classes_of(s, i);
    size_t sums_count = x->values_count;
    x->layers = s->train_eval_attention ? (size_t)s->model_layers : 0;
    x->rank = r.rank;
    x->ranks = r.ranks;
    x->values_count += r.ranks * x->layers;
    TRY_ALLOC(x->values = arena_array(perm, x->values_count, sizeof *x->values));
    x->attention = x->layers ? x->values + sums_count : NULL;
    x->loss = x->values;
    x->count = x->loss + MODEL_LOSSES;
    x->right = x->count + MODEL_LOSSES;
    for (size_t i = 0; i < x->tasks_count; i++) {
        size_t n = classes_of(s, i);
        most = n > most ? n : most;
        x->tasks[i] =
            (struct class_counts){n, x->values + at, x->values + at + n, x->values + at + 2 * n};
        at += 3 * n;
    }
    if (x->layers)
        TRY_ALLOC(x->largest = arena_array(perm, x->layers, sizeof *x->largest));
    if (s->data_objective != DATA_OBJECTIVE_CAUSAL)
        TRY_ALLOC(x->logits = arena_array(perm, most, sizeof *x->logits));
    return ERR_OK;
}

uint64_t evaluate_count(const struct loader *l, int64_t tokens)
{
    uint64_t wanted = (uint64_t)tokens / l->options.sequence;
    return wanted < 1 ? 1 : wanted < l->windows ? wanted : l->windows;
}

double evaluate_mean(const struct evaluate_sums *sums, enum model_loss_kind kind)
{
    return sums->count[kind] > 0 ? sums->loss[kind] / sums->count[kind] : 0;
}

double evaluate_loss(const struct evaluate_sums *sums)
{
    double sum = 0;
    for (size_t i = 0; i < MODEL_LOSS_ROWS; i++)
        sum += loss_rows[i].learned ? evaluate_mean(sums, (enum model_loss_kind)i) : 0;
    return sum;
}

double evaluate_token_accuracy(const struct evaluate_sums *sums)
{
    double count = sums->count[MODEL_LOSS_TOKEN];
    return count > 0 ? *sums->right / count : 0;
}

/* Of all tasks: each counts as many times as it has examples. */
static struct scores mean_scores(const struct evaluate_sums *sums)
{
    struct scores mean = {0};
    for (size_t i = 0; i < sums->tasks_count; i++) {
        struct scores one = scores_of(&sums->tasks[i]);
        mean.examples += one.examples;
        if (one.examples <= 0)
            continue;
        double share = one.examples / mean.examples;
        mean.accuracy += share * (one.accuracy - mean.accuracy);
        mean.f1_macro += share * (one.f1_macro - mean.f1_macro);
        mean.mcc += share * (one.mcc - mean.mcc);
    }
    return mean;
}

void evaluate_scores(const struct evaluate_sums *sums, const struct settings *s,
                     const struct loader *l, struct figures *f)
{
    const struct scores mean = mean_scores(sums);
    if (sums->logits && l->token_targets)
        figures_add(f, "masked_accuracy", evaluate_token_accuracy(sums));
    if (!l->sequence_targets)
        return;
    if (s->data_objective != DATA_OBJECTIVE_LABELS) {
        figures_add(f, "pair_accuracy", mean.accuracy);
        return;
    }
    figures_add(f, "accuracy", mean.accuracy);
    figures_add(f, "f1_macro", mean.f1_macro);
    figures_add(f, "mcc", mean.mcc);
}

double evaluate_attention(const struct evaluate_sums *sums, size_t layer)
{
    double largest = -INFINITY;
    for (size_t at = layer; at < sums->ranks * sums->layers; at += sums->layers)
        largest = fmax(largest, sums->attention[at]);
    return largest;
}

/* The lower one among equals. */
static size_t largest(const float *x, size_t count)
{
    size_t best = 0;
    for (size_t i = 1; i < count; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

static enum err count_tokens(struct model *m, size_t vocab, const struct batch *b,
                             struct evaluate_sums *x)
{
    size_t positions[MODEL_LOGIT_ROWS], n = 0;
    for (size_t i = 0; i < b->tokens_count; i++) {
        if (b->targets[i] >= 0)
            positions[n++] = i;
        if (!n || (n < MODEL_LOGIT_ROWS && i + 1 < b->tokens_count))
            continue;
        TRY(model_eval_logits(m, b, positions, n, x->logits));
        for (size_t k = 0; k < n; k++)
            *x->right += largest(x->logits + k * vocab, vocab) == (size_t)b->targets[positions[k]];
        n = 0;
    }
    return ERR_OK;
}

/* Of the batch that model_eval has just read. */
static enum err count_predictions(struct model *m, const struct loader *l, const struct batch *b,
                                  struct evaluate_sums *x)
{
    TRY(count_tokens(m, (size_t)l->options.vocab, b, x));
    for (size_t i = 0; x->tasks_count && i < b->sequences; i++) {
        const struct class_counts *c = &x->tasks[b->tasks[i]];
        if (b->labels[i] < 0)
            continue;
        TRY(model_eval_class_logits(m, b, i, (size_t)b->tasks[i], x->logits));
        size_t predicted = largest(x->logits, c->classes), truth = (size_t)b->labels[i];
        c->truth[truth]++;
        c->predicted[predicted]++;
        c->right[truth] += predicted == truth;
    }
    return ERR_OK;
}

/* Windows of a pass. */
static uint64_t pass_windows(const struct loader *l, const struct batch *b)
{
    uint64_t most = b->room.tokens / l->options.sequence,
             room = b->room.sequences - l->options.objective->varies;
    return most < room ? most : room;
}

enum err evaluate_along(struct model *m, const struct loader *l, struct batch *b, uint64_t windows,
                        uint64_t most)
{
    struct model_loss loss;
    uint64_t each = pass_windows(l, b), passes = (windows + each - 1) / each;
    for (; passes * each < most; passes++) {
        objective_windows(l, 0, 1, b);
        TRY(model_eval(m, b, &loss));
    }
    return ERR_OK;
}

enum err evaluate_windows(struct model *m, const struct loader *l, struct batch *b, uint64_t first,
                          uint64_t end, struct evaluate_sums *sums)
{
    uint64_t most = pass_windows(l, b);
    memset(sums->values, 0, sums->values_count * sizeof *sums->values);
    TRY(model_attention_begin(m));
    for (uint64_t at = first; at < end; at += most) {
        size_t count = (size_t)(end - at < most ? end - at : most);
        struct model_loss loss;
        objective_windows(l, at, count, b);
        TRY(model_eval(m, b, &loss));
        for (size_t k = 0; k < MODEL_LOSSES; k++) {
            sums->loss[k] += loss.sum[k];
            sums->count[k] += (double)loss.count[k];
        }
        if (sums->logits)
            TRY(count_predictions(m, l, b, sums));
        if (sums->told)
            sums->told(sums->self, at + count - first);
    }
    if (sums->layers)
        TRY(model_attention_largest(m, sums->largest));
    for (size_t i = 0; i < sums->layers; i++)
        sums->attention[sums->rank * sums->layers + i] = (double)sums->largest[i];
    return ERR_OK;
}
