/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/evaluation.h"
#include "outer/run/tasks.h"

enum { BATCH_TOKENS = 4096 };

struct evaluation {
    struct load *l;
    const struct evaluation_options *o;
    const struct evaluation_told *told;
    struct batch b;
    struct evaluate_sums sums;
    struct loader_options text;
};

/* ---- sets ---- */

static struct evaluation_set set_of(const struct evaluation *e, const char *name,
                                    const struct loader *text)
{
    bool labels = e->l->run.s.data_objective == DATA_OBJECTIVE_LABELS;
    int64_t tokens = e->o->tokens < 0 ? e->l->run.s.train_eval_tokens : e->o->tokens;
    return (struct evaluation_set){.name = name,
                                   .windows = tokens ? evaluate_count(text, tokens) : text->windows,
                                   .text = text,
                                   .sums = &e->sums,
                                   .tokens = text->token_targets,
                                   .pairs = text->sequence_targets && !labels,
                                   .labels = text->sequence_targets && labels};
}

static enum err set_evaluate(struct evaluation *e, const struct shard_group *g)
{
    struct loader text;
    TRY(loader_open(&text, e->l->perm, &g->paths, &e->text));
    const struct evaluation_set set = set_of(e, g->name, &text);
    e->told->begins(e->told->self, &set);
    enum err failed = evaluate_windows(e->l->model, &text, &e->b, 0, set.windows, &e->sums);
    if (!failed)
        e->told->set(e->told->self, &set);
    loader_close(&text);
    return failed;
}

static enum err sets_evaluate(struct evaluation *e)
{
    struct shard_group *groups;
    size_t count;
    TRY(shard_groups(&e->l->run.s.data_eval, e->l->perm, &groups, &count));
    for (size_t i = 0; i < count; i++)
        TRY(set_evaluate(e, &groups[i]));
    return ERR_OK;
}

/* ---- tasks ---- */

static enum err questions_evaluate(struct evaluation *e, struct choose *x, const struct choices *c)
{
    double scores[CHOICES_MAX];
    bool ended;
    for (size_t i = 0; i < c->count; i++) {
        TRY(choose_scores(x, c, i, i + 1, scores, &ended));
        e->told->question(e->told->self, c, i, scores);
    }
    return ERR_OK;
}

static enum err task_evaluate(struct evaluation *e, struct choose *x, const struct choices *c)
{
    struct choose_counts n;
    TRY(choose_check(x, c));
    if (e->o->details)
        return questions_evaluate(e, x, c);
    TRY(choose_count(x, c, 0, c->count, &n));
    e->told->task(e->told->self, c, &n);
    return ERR_OK;
}

static enum err tasks_evaluate(struct evaluation *e)
{
    struct load *l = e->l;
    struct tasks tasks;
    struct choose x;
    enum err failed = tasks_open(&tasks, &l->run.s, &l->run.o, l->perm);
    if (!failed && tasks.count)
        failed = choose_open(&x, l->model, &l->run.s, l->perm);
    for (size_t i = 0; i < tasks.count && !failed; i++)
        failed = task_evaluate(e, &x, &tasks.task[i]);
    tasks_close(&tasks);
    return failed;
}

enum err evaluation_run(struct load *l, const struct evaluation_options *o,
                        const struct evaluation_told *told)
{
    const struct settings *s = &l->run.s;
    size_t S = (size_t)s->train_seq_len, sequences = S < BATCH_TOKENS ? BATCH_TOKENS / S : 1;
    struct evaluation e = {.l = l,
                           .o = o,
                           .told = told,
                           .text = {.seed = (uint64_t)s->run_seed,
                                    .ranks = 1,
                                    .sequence = S,
                                    .batch_tokens = S,
                                    .vocab = s->model_vocab_size,
                                    .objective = objective_of(s),
                                    .settings = s}};
    if (!s->data_eval.count && !l->run.o.eval_tasks.count)
        return err_set(ERR_CONFIG,
                       "data.eval and eval.tasks are empty: name held-out shards, or tasks");
    TRY(objective_batch_open(e.text.objective, &e.b, l->perm, sequences, S));
    TRY(evaluate_open(&e.sums, s, (struct evaluate_rank){0, 1}, l->perm));
    e.sums.told = told->progress;
    e.sums.self = told->self;
    TRY(load_model(l, e.b.room.tokens));
    if (s->data_eval.count && !o->details)
        TRY(sets_evaluate(&e));
    return tasks_evaluate(&e);
}
