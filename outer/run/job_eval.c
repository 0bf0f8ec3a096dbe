/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation in a run: every eval.every_rounds the outer parameters on eval.tasks and eval.prompts.
 * They are public files and prompts, and the outer parameters are the same at all sites: what comes
 * out says nothing of a site beyond what its rounds have released. Nothing of the training changes;
 * metrics.jsonl says of each round once what it scored, also when a restart makes its steps again.
 */
#include <string.h>
#include "inner/data/tokenizer/unicode.h"
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/run/job.h"
#include "outer/run/notify.h"

enum { QUIET_S = 10 }; /* an evaluation that takes longer is told of */

static bool is_lead(const struct job *j)
{
    return j->coll->rank == 0;
}

/* Every rank makes each pass. */
static bool together(const struct job *j)
{
    return weights_together(model_weights(j->train.model));
}

static bool probes_here(const struct job *j)
{
    return is_lead(j) || together(j);
}

/* Before each batch, and each token of a probe. */
static bool go_on(void *self)
{
    struct job *j = self;
    struct job_eval *e = &j->eval;
    char text[96];
    if (!is_lead(j))
        return !atomic_load(&j->stopping->stop);
    notify_alive();
    if (!e->said && clock_mono_s() - e->begun > QUIET_S) {
        e->said = true;
        snprintf(text, sizeof text, "evaluates %s", e->now);
        job_tell_notice(j, text);
    }
    return !atomic_load(&j->stopping->stop);
}

/* ---- open ---- */

/* Which entry of `recorded` a record is of; -1: none. */
static int entry_of(const struct job *j, const struct jsonl_row *row)
{
    double number = jsonl_number(row, "number");
    if (jsonl_is(row, "probe") && number >= 0 && number < KEYS_EVALS_MAX)
        return KEYS_EVALS_MAX + (int)number;
    for (size_t i = 0; jsonl_is(row, "task") && i < j->eval.tasks.count; i++)
        if (strcmp(jsonl_string(row, "of"), j->eval.tasks.task[i].name) == 0)
            return (int)i;
    return -1;
}

void job_eval_record(struct job *j, const struct jsonl_row *row)
{
    int i = j->run->o.eval_every_rounds ? entry_of(j, row) : -1;
    double rounds = jsonl_number(row, "round") + 1;
    if (i >= 0 && rounds > (double)j->eval.recorded[i])
        j->eval.recorded[i] = (int64_t)rounds;
}

static void seen_set(struct job *j)
{
    struct job_eval *e = &j->eval;
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < e->tasks.count; i++)
        least = e->recorded[i] < least ? e->recorded[i] : least;
    for (size_t i = 0; i < j->run->o.eval_prompts.count; i++)
        least = e->recorded[KEYS_EVALS_MAX + i] < least ? e->recorded[KEYS_EVALS_MAX + i] : least;
    e->seen = (uint64_t)least;
}

static enum err prompt_encode(struct job *j, const char *prompt, struct buffer_ids *ids)
{
    struct tokenizer_scratch *x;
    if (j->s->data_tokenizer == DATA_TOKENIZER_BYTES) {
        for (const char *p = prompt; *p; p++)
            TRY(buffer_ids_add(ids, (uint8_t)*p));
        return ERR_OK;
    }
    if (!j->eval.tasks.tokenizer)
        return err_set(ERR_CONFIG,
                       "eval.prompts: data.tokenizer = external, and there is no tokenizer.json in "
                       "the run's directory or that of its shards");
    TRY(tokenizer_scratch_open(&x));
    enum err e = tokenizer_encode(j->eval.tasks.tokenizer, x, prompt, strlen(prompt), ids);
    tokenizer_scratch_close(x);
    return e;
}

static enum err probe_open(struct job *j, const char *prompt, struct job_probe *p)
{
    struct buffer_ids ids = {0};
    enum err e = prompt_encode(j, prompt, &ids);
    size_t most = ids.count + (size_t)j->run->o.eval_prompt_tokens;
    if (!e && !ids.count)
        e = err_set(ERR_CONFIG, "eval.prompts: a prompt is empty");
    if (!e && !(p->ids = arena_array(&j->run->perm, most, sizeof *p->ids)))
        e = ERR_MEMORY;
    if (!e)
        memcpy(p->ids, ids.ids, ids.count * sizeof *ids.ids);
    p->count = ids.count;
    unicode_clean(p->prompt, sizeof p->prompt, (const uint8_t *)prompt, strlen(prompt));
    buffer_ids_free(&ids);
    return e;
}

static enum err probes_open(struct job *j)
{
    struct job_eval *e = &j->eval;
    const struct config_list *prompts = &j->run->o.eval_prompts;
    size_t room = model_tokens_max(j->train.model) / BATCH_UNIT * BATCH_UNIT,
           context = (size_t)j->s->model_max_seq_len;
    struct sample_options o = sample_usual;
    if (!prompts->count)
        return ERR_OK;
    if (!room)
        return err_set(ERR_CONFIG,
                       "eval.prompts: a micro-batch has %zu tokens, and a continuation reads %d; "
                       "raise train.micro_batch_tokens, or leave eval.prompts out",
                       model_tokens_max(j->train.model), BATCH_UNIT);
    o.seed = (uint64_t)j->s->run_seed;
    o.context = room < context ? room : context;
    TRY(sample_open(&e->sample, j->train.model, j->s, &o, &j->run->perm));
    TRY_ALLOC(e->probes = arena_array(&j->run->perm, prompts->count, sizeof *e->probes));
    for (size_t i = 0; i < prompts->count; i++)
        TRY(probe_open(j, prompts->items[i], &e->probes[i]));
    return ERR_OK;
}

enum err job_eval_open(struct job *j)
{
    struct job_eval *e = &j->eval;
    if (!j->run->o.eval_every_rounds)
        return ERR_OK;
    TRY(tasks_open(&e->tasks, j->s, &j->run->o, &j->run->perm));
    if (e->tasks.count)
        TRY(choose_open(&e->choose, j->train.model, j->s, &j->run->perm));
    e->choose.go_on = go_on;
    e->choose.self = j;
    e->choose.together = together(j) ? j->coll : NULL;
    for (size_t i = 0; i < e->tasks.count; i++)
        TRY(choose_check(&e->choose, &e->tasks.task[i]));
    return probes_here(j) ? probes_open(j) : ERR_OK;
}

enum err job_eval_begin(struct job *j)
{
    struct job_eval *e = &j->eval;
    if (!j->run->o.eval_every_rounds)
        return ERR_OK;
    TRY(j->coll->ops->broadcast_host(j->coll, e->recorded, sizeof e->recorded, 0));
    seen_set(j);
    return ERR_OK;
}

void job_eval_close(struct job *j)
{
    tasks_close(&j->eval.tasks);
}

/* ---- evaluate ---- */

static void record_begin(struct job *j, const char *kind, const struct train *t, uint64_t rounds,
                         double begin)
{
    jsonl_begin(&j->out->record, kind);
    jsonl_int(&j->out->record, "step", t->step);
    jsonl_int(&j->out->record, "round", (int64_t)rounds - 1);
    jsonl_real(&j->out->record, "ms", 1e3 * (clock_mono_s() - begin));
}

static void tell_task(struct job *j, const struct choices *c, const struct choose_counts *n,
                      uint64_t rounds, double begin)
{
    double accuracy = n->right / n->questions, by_length = n->right_norm / n->questions;
    record_begin(j, "task", &j->train, rounds, begin);
    jsonl_text(&j->out->record, "of", c->name);
    jsonl_int(&j->out->record, "questions", (int64_t)n->questions);
    jsonl_real(&j->out->record, "accuracy", accuracy);
    jsonl_real(&j->out->record, "accuracy_norm", by_length);
    jsonl_real(&j->out->record, "chance", c->chance);
    jsonl_end(&j->out->record);
    log_event(LOG_INFO, "task",
              "name=%s step=%lld round=%llu questions=%.0f accuracy=%.4f accuracy_norm=%.4f "
              "chance=%.4f ms=%.0f",
              c->name, (long long)j->train.step, (unsigned long long)rounds - 1, n->questions,
              accuracy, by_length, c->chance, 1e3 * (clock_mono_s() - begin));
}

static enum err task_evaluate(struct job *j, size_t i, uint64_t rounds, bool *ended)
{
    struct job_eval *e = &j->eval;
    struct choose_counts n;
    double begin = clock_mono_s();
    if (e->recorded[i] >= (int64_t)rounds)
        return ERR_OK;
    e->now = e->tasks.task[i].name;
    TRY(choose_ranks(&e->choose, j->coll, &e->tasks.task[i], &n));
    *ended = n.ended > 0;
    if (*ended)
        return ERR_OK;
    if (is_lead(j))
        tell_task(j, &e->tasks.task[i], &n, rounds, begin);
    e->recorded[i] = (int64_t)rounds;
    return ERR_OK;
}

/* What the ids add to the prompt, as text that may be shown. */
static enum err continuation(struct job *j, const int32_t *ids, size_t count)
{
    struct buffer text = {0};
    enum err e = ERR_OK;
    if (j->eval.tasks.tokenizer)
        e = tokenizer_decode(j->eval.tasks.tokenizer, ids, count, true, &text);
    for (size_t i = 0; i < count && !j->eval.tasks.tokenizer && !e; i++)
        e = buffer_add(&text, &(uint8_t){(uint8_t)ids[i]}, ids[i] < 256);
    if (!e)
        unicode_clean(j->eval.text, sizeof j->eval.text, text.data, text.count);
    buffer_free(&text);
    return e;
}

/* go_on of all ranks that make the pass. */
static enum err go_on_agreed(struct job *j, bool *yes)
{
    double ends = !go_on(j);
    if (together(j))
        TRY(j->coll->ops->all_reduce_host(j->coll, &ends, 1));
    *yes = ends == 0;
    return ERR_OK;
}

static enum err tell_probe(struct job *j, size_t i, uint64_t rounds, double begin)
{
    struct job_eval *e = &j->eval;
    struct job_probe *p = &e->probes[i];
    TRY(continuation(j, p->ids + p->count, (size_t)j->run->o.eval_prompt_tokens));
    record_begin(j, "probe", &j->train, rounds, begin);
    jsonl_int(&j->out->record, "number", (int64_t)i);
    jsonl_text(&j->out->record, "prompt", p->prompt);
    jsonl_text(&j->out->record, "text", e->text);
    jsonl_end(&j->out->record);
    return ERR_OK;
}

static enum err probe_continue(struct job *j, size_t i, uint64_t rounds)
{
    struct job_eval *e = &j->eval;
    struct job_probe *p = &e->probes[i];
    double begin = clock_mono_s();
    e->now = "a probe";
    for (int64_t n = 0; n < j->run->o.eval_prompt_tokens; n++) {
        size_t count = p->count + (size_t)n;
        bool yes;
        TRY(go_on_agreed(j, &yes));
        if (!yes)
            return ERR_OK;
        TRY(sample_next(&e->sample, p->ids, count, (uint64_t)n, &p->ids[count]));
    }
    if (is_lead(j))
        TRY(tell_probe(j, i, rounds, begin));
    e->recorded[KEYS_EVALS_MAX + i] = (int64_t)rounds;
    return ERR_OK;
}

static enum err evaluate(void *self, struct train *t)
{
    struct job *j = self;
    uint64_t rounds = exchange_outer_rounds(&j->o->exchange, t->step);
    bool ended = false;
    TRY(train_gather(t));
    for (size_t i = 0; i < j->eval.tasks.count && !ended; i++)
        TRY(task_evaluate(j, i, rounds, &ended));
    for (size_t i = 0; i < j->run->o.eval_prompts.count && probes_here(j); i++)
        if (j->eval.recorded[KEYS_EVALS_MAX + i] < (int64_t)rounds)
            TRY(probe_continue(j, i, rounds));
    return ERR_OK;
}

/* Every N rounds, and the last one. */
static bool is_due(const struct job *j, uint64_t rounds)
{
    uint64_t every = (uint64_t)j->run->o.eval_every_rounds, seen = j->eval.seen;
    return every && rounds > seen &&
           (rounds / every > seen / every ||
            rounds == schedule_rounds(&j->o->exchange.o.rules.schedule, 0));
}

enum err job_eval_look(struct job *j, struct train *t)
{
    if (!j->run->o.eval_every_rounds)
        return ERR_OK;
    uint64_t rounds = exchange_outer_rounds(&j->o->exchange, t->step);
    if (!is_due(j, rounds))
        return ERR_OK;
    j->eval.begun = clock_mono_s();
    j->eval.said = false;
    TRY(job_outer_work(j, evaluate, j));
    j->eval.seen = rounds;
    j->out->last_round += clock_mono_s() - j->eval.begun; /* no time of the next round */
    return ERR_OK;
}
