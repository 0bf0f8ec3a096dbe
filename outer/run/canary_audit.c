/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/canary_audit.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include "inner/data/canaries.h"
#include "inner/eval/evaluate.h"
#include "outer/budget/audit.h"
#include "outer/record/jsonl.h"
#include "outer/view/spent.h"

enum { MASKS = 8 }; /* of masked text: a canary's score is the mean over as many masks */

_Static_assert(CANARY_AUDIT_MAX == AUDIT_CANARIES_MAX, "the bound's own limit");

struct scored {
    double score; /* loss of the trained model less that of the initial one */
    uint64_t tie; /* random: the order among equals says nothing of the coins */
    bool in;
};
struct scoring {
    struct load *l;
    struct canaries *c;
    struct batch b;
    struct evaluate_sums sums;
    struct scored *scored; /* [count]: those in the training text, then the others */
    size_t count;
};

static int by_score(const void *x, const void *y)
{
    const struct scored *a = x, *b = y;
    if (a->score != b->score)
        return a->score > b->score ? 1 : -1;
    return (a->tie > b->tie) - (a->tie < b->tie);
}

/* Adds sign x the loss of each canary of a set to its score. */
static enum err losses_add(struct scoring *x, struct loader *set, double sign,
                           struct scored *scored)
{
    uint64_t seed = set->options.seed;
    int masks = set->token_targets && !set->sequence_targets && x->sums.logits ? MASKS : 1;
    for (int k = 0; k < masks; k++) {
        loader_seed(set, seed + (uint64_t)k);
        for (uint64_t i = 0; i < set->windows; i++) {
            TRY(evaluate_windows(x->l->model, set, &x->b, i, i + 1, &x->sums));
            scored[i].score += sign * evaluate_loss(&x->sums) / masks;
        }
    }
    loader_seed(set, seed);
    return ERR_OK;
}

static enum err all_add(struct scoring *x, double sign)
{
    TRY(losses_add(x, &x->c->in, sign, x->scored));
    return losses_add(x, &x->c->out, sign, x->scored + x->c->in.windows);
}

static enum err initial_put(struct load *l)
{
    TRY(run_initial(&l->run, l->params));
    model_set_finished(l->model, 0);
    load_put(l);
    return dev_sync(l->dev);
}

static enum err score_all(struct scoring *x)
{
    struct load *l = x->l;
    size_t S = (size_t)l->run.s.train_seq_len;
    const struct objective *objective = x->c->in.options.objective;
    TRY_ALLOC(x->scored = arena_array(l->perm, x->count, sizeof *x->scored));
    TRY(load_model(l, objective_tokens_max(objective, S)));
    TRY(objective_batch_open(objective, &x->b, l->perm, 1, S));
    TRY(evaluate_open(&x->sums, &l->run.s, (struct evaluate_rank){0, 1}, l->perm));
    TRY(all_add(x, 1));
    TRY(initial_put(l));
    TRY(all_add(x, -1));
    for (size_t i = 0; i < x->count; i++) {
        struct scored *one = &x->scored[i];
        one->in = i < x->c->in.windows;
        one->score = isfinite(one->score) ? one->score : 0;
        digest_random(&one->tie, sizeof one->tie);
    }
    return ERR_OK;
}

/* The lowest scores are guessed to be in, the highest to be out, half of the guesses each. */
static void guess(const struct scoring *x, struct canary_audit *a)
{
    size_t half = (size_t)a->guesses / 2;
    qsort(x->scored, x->count, sizeof *x->scored, by_score);
    for (size_t i = 0; i < half; i++) {
        a->correct += x->scored[i].in;
        a->correct += !x->scored[x->count - 1 - i].in;
    }
}

static enum err claim_find(struct canary_audit *w, const char *dir, struct arena *a)
{
    struct spent s;
    TRY(spent_read(&s, dir, &(struct spent_options){.delta = w->delta, .cap = 0}, a));
    w->delta = s.delta;
    if (w->claim == 0 && !s.unclaimed)
        w->claim = s.account.epsilon[s.account.holds];
    return ERR_OK;
}

static enum err guesses_choose(struct canary_audit *a)
{
    if (a->guesses == 0)
        a->guesses = a->canaries / 4;
    a->guesses -= a->guesses % 2;
    if (a->guesses >= 2 && a->guesses <= a->canaries)
        return ERR_OK;
    return err_set(ERR_CONFIG,
                   "privacy audit: %" PRId64 " guesses for %" PRId64 " canaries; give --guesses "
                   "from 2 to that number",
                   a->guesses, a->canaries);
}

void canary_audit_bound(struct canary_audit *w)
{
    const struct audit a = {w->canaries, w->guesses, w->correct};
    w->bound = audit_epsilon(&a, w->delta, w->confidence);
}

static enum err audit_set(struct load *l, struct canary_audit *w, struct canaries *c)
{
    struct scoring x = {.l = l, .c = c, .count = (size_t)(c->in.windows + c->out.windows)};
    w->included = c->in.windows;
    w->canaries = (int64_t)x.count;
    TRY(guesses_choose(w));
    TRY(claim_find(w, l->run.s.run_dir, l->perm));
    TRY(score_all(&x));
    guess(&x, w);
    canary_audit_bound(w);
    return ERR_OK;
}

enum err canary_audit_run(struct load *l, struct canary_audit *w)
{
    struct canaries c;
    enum err e = canaries_open(&c, &l->run.s, w->set, l->perm);
    if (e == ERR_OK)
        e = audit_set(l, w, &c);
    canaries_close(&c);
    return e;
}

enum err canary_audit_record(struct load *l, const struct canary_audit *w)
{
    struct jsonl r = {.fd = 0};
    char *path;
    TRY_ALLOC(path = arena_printf(l->perm, "%s/%s", l->run.s.run_dir, AUDIT_FILE));
    TRY(jsonl_open(&r, path, l->perm));
    jsonl_begin(&r, "audit");
    jsonl_int(&r, "canaries", w->canaries);
    jsonl_int(&r, "included", (int64_t)w->included);
    jsonl_int(&r, "guesses", w->guesses);
    jsonl_int(&r, "correct", w->correct);
    jsonl_real(&r, "delta", w->delta);
    jsonl_real(&r, "confidence", w->confidence);
    jsonl_real(&r, "epsilon_at_least", w->bound);
    if (w->claim > 0)
        jsonl_real(&r, "claim", w->claim);
    jsonl_end(&r);
    jsonl_close(&r);
    return ERR_OK;
}
