/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/eval/choose.h"
#include <string.h>

enum { TOKENS_OF_SEQUENCE_MIN = 2 };

enum err choose_open(struct choose *x, struct model *m, const struct settings *s,
                     struct arena *perm)
{
    size_t tokens = model_tokens_max(m), sequences = tokens / TOKENS_OF_SEQUENCE_MIN + 1;
    *x = (struct choose){.model = m, .longest = (size_t)s->train_seq_len};
    if (!s->model_causal || s->model_head != MODEL_HEAD_PLAIN)
        return err_set(ERR_UNSUPPORTED,
                       "eval.tasks with model.causal = %s: the choices of a task are scored by the "
                       "likelihood of each next id, and an encoder has none; use eval loss and "
                       "scores (data.eval), or model.causal = true",
                       s->model_causal ? "true and model.head = mlm" : "false");
    ASSERT(tokens >= x->longest);
    TRY(batch_open(&x->batch, perm, tokens, sequences));
    TRY_ALLOC(x->losses = arena_array(perm, tokens, sizeof *x->losses));
    TRY_ALLOC(x->places = arena_array(perm, sequences, sizeof *x->places));
    return ERR_OK;
}

enum err choose_check(const struct choose *x, const struct choices *c)
{
    for (size_t i = 0; i < c->count; i++)
        for (size_t k = 0; k < c->question[i].count; k++)
            if (c->choice[c->question[i].first + k].count > x->longest)
                return err_set(ERR_INPUT,
                               "%s: choice %zu of question %zu has %zu tokens, train.seq_len = "
                               "%zu; leave the task out, or train with longer sequences",
                               c->path, k, i, c->choice[c->question[i].first + k].count,
                               x->longest);
    return ERR_OK;
}

/* ---- a batch ---- */

/* Ids that the model reads: of context and choice all but the last, and at most `longest`. */
static size_t input_length(const struct choose *x, const struct choices_question *q,
                           const struct choices_choice *c)
{
    size_t all = q->context_count + c->count - 1;
    return all < x->longest ? all : x->longest;
}

/* Id `at` of context and choice together. */
static int32_t id_at(const struct choices *c, const struct choices_question *q,
                     const struct choices_choice *choice, size_t at)
{
    return at < q->context_count ? c->ids.ids[q->context + at]
                                 : c->ids.ids[choice->at + at - q->context_count];
}

static void add(struct choose *x, const struct choices *c, const struct choices_question *q,
                size_t number)
{
    const struct choices_choice *choice = &c->choice[number];
    size_t n = input_length(x, q, choice), skip = q->context_count + choice->count - 1 - n,
           at = batch_append(&x->batch, n);
    for (size_t i = 0; i < n; i++) {
        bool scored = skip + i + 1 >= q->context_count;
        x->batch.tokens[at + i] = id_at(c, q, choice, skip + i);
        x->batch.targets[at + i] = scored ? id_at(c, q, choice, skip + i + 1) : -1;
    }
    x->places[x->places_count++] =
        (struct choose_place){number, at + n - choice->count, choice->count};
}

/* Before a pass that all ranks make. batch: this rank has one; *any: some rank has; *ended: some
 * rank ends. */
static enum err agree(struct choose *x, bool batch, bool *any, bool *ended)
{
    double said[] = {batch, x->go_on && !x->go_on(x->self)};
    TRY(x->together->ops->all_reduce_host(x->together, said, sizeof said / sizeof *said));
    *any = said[0] > 0;
    *ended = said[1] > 0;
    return ERR_OK;
}

/* Passes that count nothing, while another rank has a batch. */
static enum err read_along(struct choose *x, bool *ended)
{
    struct batch *b = &x->batch;
    for (bool any;;) {
        TRY(agree(x, false, &any, ended));
        if (!any || *ended)
            return ERR_OK;
        batch_clear(b);
        size_t at = batch_append(b, TOKENS_OF_SEQUENCE_MIN);
        for (size_t i = at; i < b->tokens_count; i++) {
            b->tokens[i] = 0;
            b->targets[i] = -1;
        }
        TRY(model_eval_losses(x->model, b, x->losses));
        batch_clear(b);
    }
}

static enum err run(struct choose *x, double *scores, size_t first, bool *ended)
{
    struct batch *b = &x->batch;
    bool any;
    if (x->together)
        TRY(agree(x, true, &any, ended));
    if (*ended)
        return ERR_OK;
    if (b->room.tokens - b->tokens_count >= BATCH_UNIT && b->sequences < b->room.sequences)
        batch_fill_up(b, 0);
    TRY(model_eval_losses(x->model, b, x->losses));
    for (size_t i = 0; i < x->places_count; i++) {
        const struct choose_place *p = &x->places[i];
        double sum = 0;
        for (size_t k = 0; k < p->count; k++)
            sum -= (double)x->losses[p->first + k];
        scores[p->choice - first] = sum;
    }
    x->places_count = 0;
    batch_clear(b);
    return ERR_OK;
}

/* The choice before this one of the question that has the same ids; else the choice itself. */
static size_t same_before(const struct choices *c, const struct choices_question *q, size_t number)
{
    const struct choices_choice *x = &c->choice[number];
    for (size_t i = q->first; i < number; i++)
        if (c->choice[i].count == x->count &&
            memcmp(c->ids.ids + c->choice[i].at, c->ids.ids + x->at, x->count * sizeof(int32_t)) ==
                0)
            return i;
    return number;
}

static bool has_room(const struct choose *x, size_t tokens)
{
    const struct batch *b = &x->batch;
    return b->room.tokens - b->tokens_count >= tokens && b->sequences < b->room.sequences;
}

enum err choose_scores(struct choose *x, const struct choices *c, size_t first, size_t end,
                       double *scores, bool *ended)
{
    size_t begin = first < end ? c->question[first].first : 0;
    batch_clear(&x->batch);
    x->places_count = 0;
    *ended = false;
    for (size_t i = first; i < end; i++) {
        const struct choices_question *q = &c->question[i];
        for (size_t k = q->first; k < q->first + q->count; k++) {
            if (same_before(c, q, k) != k)
                continue;
            if (!has_room(x, input_length(x, q, &c->choice[k])))
                TRY(run(x, scores, begin, ended));
            if (!x->together)
                *ended = !x->places_count && x->go_on && !x->go_on(x->self);
            if (*ended)
                return ERR_OK;
            add(x, c, q, k);
        }
    }
    if (x->places_count)
        TRY(run(x, scores, begin, ended));
    if (x->together && !*ended)
        TRY(read_along(x, ended));
    if (*ended)
        return ERR_OK;
    for (size_t i = first; i < end; i++)
        for (size_t k = 0; k < c->question[i].count; k++) {
            size_t number = c->question[i].first + k;
            scores[number - begin] = scores[same_before(c, &c->question[i], number) - begin];
        }
    return ERR_OK;
}

/* ---- picks ---- */

size_t choose_pick(const struct choices *c, size_t question, const double *scores, bool by_length)
{
    const struct choices_question *q = &c->question[question];
    size_t best = 0;
    double most = 0;
    for (size_t i = 0; i < q->count; i++) {
        double score = by_length ? scores[i] / c->choice[q->first + i].length : scores[i];
        if (i && !(score > most))
            continue;
        best = i;
        most = score;
    }
    return best;
}

enum err choose_count(struct choose *x, const struct choices *c, size_t first, size_t end,
                      struct choose_counts *out)
{
    struct arena scratch = arena_make(0);
    double *scores = arena_array(&scratch, c->choice_count, sizeof *scores);
    bool ended = false;
    enum err e = scores ? choose_scores(x, c, first, end, scores, &ended) : ERR_MEMORY;
    *out = (struct choose_counts){.ended = ended};
    for (size_t i = first; i < end && !e && !ended; i++) {
        const double *own = scores + c->question[i].first - c->question[first].first;
        out->right += choose_pick(c, i, own, false) == c->question[i].label;
        out->right_norm += choose_pick(c, i, own, true) == c->question[i].label;
        out->questions++;
    }
    arena_free(&scratch);
    return e;
}

enum err choose_ranks(struct choose *x, struct coll *coll, const struct choices *c,
                      struct choose_counts *out)
{
    size_t rank = (size_t)coll->rank, ranks = (size_t)coll->size;
    TRY(choose_count(x, c, c->count * rank / ranks, c->count * (rank + 1) / ranks, out));
    double sums[] = {out->right, out->right_norm, out->questions, out->ended};
    TRY(coll->ops->all_reduce_host(coll, sums, sizeof sums / sizeof *sums));
    *out = (struct choose_counts){sums[0], sums[1], sums[2], sums[3]};
    return ERR_OK;
}
