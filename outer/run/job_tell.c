/* SPDX-License-Identifier: Apache-2.0 */
/* What a training process says: log lines, metrics.jsonl, the live line, the final digests. */
#include <math.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/run/job.h"
#include "outer/run/notify.h"
#include "outer/plan/plan_settings.h"

static const char starting[] = "starting"; /* before the first step */

void job_tell_resume(struct job *j, const struct jsonl_row *row)
{
    double fragment = jsonl_number(row, "fragment"), round = jsonl_number(row, "round");
    if (!jsonl_is(row, "round") || !(fragment >= 0 && fragment < ROUND_FRAGMENTS_MAX))
        return;
    uint64_t *committed = &j->told.committed[(unsigned)fragment];
    *committed = (uint64_t)jsonl_whole(fmax((double)*committed, round + 1));
    if (jsonl_number(row, "replayed") != 0)
        return;
    j->told.moved.up += (uint64_t)jsonl_whole(fmax(0, jsonl_number(row, "up")));
    j->told.moved.down += (uint64_t)jsonl_whole(fmax(0, jsonl_number(row, "down")));
    j->told.predicted.up += (uint64_t)jsonl_whole(fmax(0, jsonl_number(row, "up_predicted")));
    j->told.predicted.down += (uint64_t)jsonl_whole(fmax(0, jsonl_number(row, "down_predicted")));
}

/* Steps after `step` are trained again; the rounds that followed them are not. */
static enum err events_begin(struct job *j, int64_t step)
{
    struct jsonl_reader reader;
    struct jsonl_row row;
    char *path;
    if (!j->out->events.file)
        return ERR_OK;
    tfevents_begin(&j->out->events, step);
    TRY_ALLOC(path = arena_printf(&j->run->perm, "%s/%s", j->s->run_dir, RECORD_FILE));
    if (!jsonl_reader_open(&reader, path))
        return ERR_OK;
    while (jsonl_next(&reader, &row))
        tfevents_kept(&j->out->events, step, &row);
    jsonl_reader_close(&reader);
    return ERR_OK;
}

enum err job_tell_start(struct job *j, int64_t step)
{
    const struct config_table tables[] = {keys_inner(j->s), keys_outer(&j->run->o)};
    struct jsonl *r = &j->out->record;
    char *config;
    TRY(config_print(tables, 2, CONFIG_RECORDED, &j->run->perm, &config));
    TRY(events_begin(j, step));
    j->told.planned_step = step;
    j->told.eval_loss = NAN;
    j->told.began = clock_mono_s();
    site_record_start(r, j->run,
                      &(struct site_facts){.s = j->s,
                                           .outer = j->outer,
                                           .device = j->dev->note,
                                           .threads = j->dev->threads,
                                           .ranks = j->coll->size,
                                           .parameters = j->train.table.parameters,
                                           .step = step});
    if (j->train.data.loader->dealt.files)
        jsonl_text(r, "shards", j->train.data.loader->dealt.files);
    jsonl_text(r, "command", j->out->command);
    jsonl_text(r, "config", config);
    jsonl_end(r);
    job_privacy_record(j);
    job_line(j);
    j->told.line.step = step;
    snprintf(j->told.line.state, sizeof j->told.line.state, "%s", starting);
    progress_update(&j->out->progress, 0, &j->told.line);
    return ERR_OK;
}

static void record_figures(struct job *j, const struct figures *f)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->list[i].whole)
            jsonl_int(&j->out->record, f->list[i].name, (int64_t)f->list[i].value);
        else
            jsonl_real(&j->out->record, f->list[i].name, f->list[i].value);
}

static void record_step(struct job *j, const struct train_report *r)
{
    jsonl_begin(&j->out->record, "step");
    jsonl_int(&j->out->record, "step", r->step);
    jsonl_real(&j->out->record, "loss", r->loss);
    record_figures(j, &r->figures);
    jsonl_real(&j->out->record, "norm", (double)r->norm);
    jsonl_real(&j->out->record, "lr", (double)r->lr);
    jsonl_int(&j->out->record, "tokens", (int64_t)r->tokens);
    jsonl_real(&j->out->record, "tokens_per_second", r->tokens_per_second);
    jsonl_real(&j->out->record, "step_ms", 1e3 * r->step_seconds);
    jsonl_real(&j->out->record, "compute_ms", 1e3 * r->compute_seconds);
    if (j->outer)
        jsonl_int(&j->out->record, "next_sync", schedule_next(&j->run->sync.schedule, r->step));
    if (j->coll->size > 1) /* waited for sums of gradients after the backward */
        jsonl_real(&j->out->record, "exposed_ms", 1e3 * r->exposed_seconds);
    if (j->coll->size > 1)
        jsonl_real(&j->out->record, "inner_up", r->inner_up);
    if (j->coll->size > 1 && r->compressed)
        jsonl_int(&j->out->record, "inner_rounds", r->summed);
    jsonl_end(&j->out->record);
}

/* The scores as words of the log. */
static void tell_scores(const struct figures *f, char *text, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < f->count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, " %s=%.4f", f->list[i].name,
                                 f->list[i].value);
}

/* With train.eval_attention. */
static void record_attention(struct job *j, const struct train_eval *e)
{
    double largest = -INFINITY;
    for (size_t i = 0; i < e->layers; i++)
        largest = fmax(largest, e->attention[i]);
    if (e->layers)
        jsonl_real(&j->out->record, "attention_logit", largest);
    for (size_t i = 0; i < e->layers; i++) {
        char key[40];
        snprintf(key, sizeof key, "attention_logit_%zu", i);
        jsonl_real(&j->out->record, key, e->attention[i]);
    }
}

void job_tell_eval(struct job *j, const struct train_eval *e, const char *of)
{
    char scores[160] = "";
    jsonl_begin(&j->out->record, "eval");
    jsonl_int(&j->out->record, "step", e->step);
    jsonl_real(&j->out->record, "loss", e->loss);
    jsonl_int(&j->out->record, "tokens", (int64_t)e->tokens);
    record_figures(j, &e->scores);
    tell_scores(&e->scores, scores, sizeof scores);
    record_attention(j, e);
    jsonl_text(&j->out->record, "of", of);
    jsonl_end(&j->out->record);
    j->told.eval_loss = e->loss;
    j->told.eval_step = e->step;
    log_event(LOG_INFO, "eval", "step=%lld loss=%.6f perplexity=%.4f tokens=%zu%s of=%s",
              (long long)e->step, e->loss, exp(e->loss), e->tokens, scores, of);
}

/* Once a warning when what is measured says that the outer step goes too far: rounds whose deltas
 * are more alike than the published ones. */
static void warn_of_step(struct job *j, const struct exchange_round *r)
{
    enum { ROUNDS_MIN = 4 }; /* before the average says anything */
    const struct outer_metrics *g = &r->metrics;
    const struct tuning *t = &j->run->tuning;
    double *rho = &j->told.rho[r->fragment];
    if (isfinite(g->rho))
        *rho = r->round == 1 ? g->rho : 0.75 * *rho + 0.25 * g->rho;
    double effective = tuning_effective(t->share * t->lr, t->mu, *rho);
    bool steps =
        j->run->sync.fragments.f[r->fragment].state == FRAGMENT_PARAMETERS; /* others: means */
    if (!steps || t->own || r->round < ROUNDS_MIN || j->told.warned ||
        effective <= TUNING_GUARD * t->reference)
        return;
    j->told.warned = true;
    log_event(
        LOG_WARN, "outer_step",
        "rho=%.3f effective=%.3g published=%.3g right_lr=%.2g why=\"successive deltas are so much "
        "alike that the momentum steps too far; take a lower outer.lr or a larger "
        "outer.sync_every\"",
        *rho, effective, t->reference, t->lr * t->reference / effective);
}

/* Predicted and measured, where a probe file says what to predict from. A full-precision round,
 * and one that was on record, is not what the plan is about. */
static void tell_plan(struct job *j, const struct exchange_round *r, double compute_s)
{
    struct plan_task t;
    struct plan_result p;
    size_t elements[ROUND_FRAGMENTS_MAX];
    const struct schedule *s = &j->run->sync.schedule;
    int64_t steps = r->step - j->told.planned_step;
    bool whole = r->round < s->full_precision_rounds || schedule_last(s, r->fragment, r->round);
    if (!plan_settings_given(&j->run->measured))
        return;
    j->told.planned_step = r->step;
    if (whole || r->replayed || steps <= 0)
        return;
    plan_settings_task(&t, j->run, &j->run->measured);
    fragment_sizes(elements, &j->run->sync.fragments);
    plan_predict(&t, s, elements, &p);
    double step_s = compute_s / (double)steps, waited_s = 1e-3 * r->exposed_ms;
    double share = compute_s / (compute_s + r->seconds), flight_s = 1e-3 * r->flight_ms;
    jsonl_real(&j->out->record, "flight_ms_planned", 1e3 * p.exchange_s);
    jsonl_real(&j->out->record, "utilisation", share);
    jsonl_real(&j->out->record, "utilisation_planned", p.steady);
    log_event(LOG_INFO, "planned",
              "round=%llu exchange_s=%.3f planned=%.3f waited_s=%.3f step_s=%.4f planned=%.4f "
              "trains=%.4f planned=%.4f",
              (unsigned long long)r->round, flight_s, p.exchange_s, waited_s, step_s, t.step_s,
              share, p.steady);
    if (!plan_left(&j->told.watch, flight_s, p.exchange_s, step_s, t.step_s))
        return;
    log_event(LOG_WARN, "plan_left",
              "exchange_s=%.3f planned=%.3f step_s=%.4f planned=%.4f why=\"%d rounds in a row more "
              "than 25 %% off: the plan no "
              "longer holds\" do=\"atoll probe, then atoll plan%s%s --plan.step_s %.4g\"",
              flight_s, p.exchange_s, step_s, t.step_s, PLAN_DEVIANT_MAX,
              j->out->config_path ? " --config " : "",
              j->out->config_path ? j->out->config_path : "", step_s);
}

/* ---- what a person sees ---- */
static void line_name(struct job *j)
{
    struct progress_line *l = &j->told.line;
    if (l->site[0])
        return;
    *l = (struct progress_line){
        .loss = NAN, .tokens_per_second = NAN, .sync_seconds = -1, .eta_seconds = -1};
    snprintf(l->site, sizeof l->site, "%s",
             *j->run->o.site_name ? j->run->o.site_name : j->s->run_name);
}

/* Rounds and bytes of the run so far, and how long it is, as amended so far. */
static void line_totals(struct job *j)
{
    struct progress_line *l = &j->told.line;
    l->steps = j->outer ? j->run->sync.schedule.steps : j->s->train_steps;
    l->rounds = j->outer ? exchange_rounds(&j->run->sync.schedule, l->steps) : 0;
    l->round = 0;
    for (unsigned f = 0; j->outer && f < j->run->sync.fragments.count; f++)
        l->round += j->told.committed[f];
    l->bytes_up = j->told.moved.up;
    l->bytes_down = j->told.moved.down;
    l->predicted_up = j->told.predicted.up;
    l->predicted_down = j->told.predicted.down;
}

void job_line(struct job *j)
{
    line_name(j);
    line_totals(j);
}

static void show_round(struct job *j, const struct exchange_round *r)
{
    j->told.unreachable = false;
    if (j->told.committed[r->fragment] < r->round + 1)
        j->told.committed[r->fragment] = r->round + 1;
    job_line(j);
    j->told.line.state[0] = 0;
    progress_update(&j->out->progress, 0, &j->told.line);
}

static void show_step(struct job *j, const struct train_report *r)
{
    struct progress_line *l = &j->told.line;
    int64_t next = j->outer ? schedule_next(&j->run->sync.schedule, r->step) : 0;
    double now = clock_mono_s();
    line_name(j);
    if (!j->told.pace.last) /* the first step: evaluation and start-up are no pace */
        progress_pace_step(&j->told.pace, r->step - 1, j->run->o.outer_sync_every,
                           now - r->step_seconds);
    progress_pace_step(&j->told.pace, r->step, j->run->o.outer_sync_every, now);
    line_totals(j);
    if (strcmp(l->state, starting) == 0)
        l->state[0] = 0;
    l->step = r->step;
    l->steps = r->steps;
    l->loss = r->loss;
    l->tokens_per_second = progress_smooth(l->tokens_per_second, r->tokens_per_second);
    l->sync_seconds = next > r->step ? (double)(next - r->step) * r->step_seconds : -1;
    l->eta_seconds = r->step < r->steps ? progress_pace_eta(&j->told.pace, r->steps) : -1;
    progress_update(&j->out->progress, 0, l);
}

/* The exchange calls it after each round, on the lead. */
enum err job_tell_round(void *self, const struct exchange_round *r)
{
    struct job *j = self;
    double now = clock_mono_s();
    if (r->rank)
        TRY(job_ledger_relay(j, r->rank));
    if (j->coll->rank != 0)
        return ERR_OK;
    job_line(j);
    const struct site_progress p = {.rounds = j->told.line.rounds,
                                    .steps = j->told.line.steps,
                                    .compute_s = now - j->out->last_round - r->seconds};
    struct ledger_round moved = site_record_round(&j->out->record, &j->out->ledger, r, &p);
    if (!r->replayed) {
        j->told.moved.up += moved.up;
        j->told.moved.down += moved.down;
        j->told.predicted.up += r->up_predicted;
        j->told.predicted.down += r->down_predicted;
    }
    j->out->last_round = now;
    show_round(j, r);
    warn_of_step(j, r);
    tell_plan(j, r, p.compute_s);
    jsonl_end(&j->out->record);
    log_event(LOG_INFO, "round",
              "step=%lld fragment=%u round=%llu included=%u of=%u replayed=%d seconds=%.3f "
              "hidden=%.3f up=%llu "
              "down=%llu gain=%.3g rho=%.3g agreement=%.3g residual_ratio=%.3g",
              (long long)r->step, r->fragment, (unsigned long long)r->round, r->included, r->sites,
              r->replayed, r->seconds, 1e-3 * fmax(0, r->flight_ms - r->exposed_ms),
              (unsigned long long)moved.up, (unsigned long long)moved.down, r->metrics.gain,
              r->metrics.rho, r->metrics.agreement, r->metrics.residual_ratio);
    return ERR_OK;
}

void job_tell_event(struct job *j, const char *text)
{
    site_record_notice(&j->out->record, text);
}

void job_tell_notice(void *self, const char *text)
{
    struct job *j = self;
    char quoted[256];
    bool reached = strcmp(text, "aggregator reached again") == 0; /* the end of a state */
    line_name(j);
    j->told.unreachable =
        strncmp(text, "aggregator unreachable", 22) == 0 || (j->told.unreachable && !reached);
    if (j->told.unreachable)
        atomic_store(&j->out->bound, false);
    else if (reached)
        atomic_store(&j->out->bound, true);
    snprintf(j->told.line.state, sizeof j->told.line.state, "%s", reached ? "" : text);
    progress_update(&j->out->progress, 0, &j->told.line);
    notify_alive();
    if (!site_notice_new(&j->told.notice, text))
        return;
    log_event(LOG_INFO, "wait", "text=%s", log_quote(quoted, sizeof quoted, text));
    job_tell_event(j, text);
}

void job_tell_step(struct job *j, const struct train_report *r)
{
    record_step(j, r);
    show_step(j, r);
}

void job_tell_sources(struct job *j)
{
    const struct loader *l = j->train.data.loader;
    const struct mixture *m = l->mixture;
    uint64_t counts[MIXTURE_SOURCES_MAX], place = loader_place(l, (uint64_t)j->train.step);
    if (m)
        mixture_counts(m, place, counts);
    for (size_t i = 0; m && i < m->count; i++) {
        const struct mixture_source *s = &m->sources[i];
        char name[512];
        double tokens = (double)counts[i] * s->tokens,
               epochs = (double)counts[i] / (double)s->windows;
        jsonl_begin(&j->out->record, "source");
        jsonl_int(&j->out->record, "step", j->train.step);
        jsonl_text(&j->out->record, "source", s->name);
        jsonl_real(&j->out->record, "weight", mixture_weight(m, place, i));
        jsonl_int(&j->out->record, "examples", (int64_t)counts[i]);
        jsonl_real(&j->out->record, "tokens", tokens);
        jsonl_real(&j->out->record, "epochs", epochs);
        jsonl_end(&j->out->record);
        log_event(LOG_INFO, "source", "step=%lld source=%s examples=%llu tokens=%.0f epochs=%.3f",
                  (long long)j->train.step, log_quote(name, sizeof name, s->name),
                  (unsigned long long)counts[i], tokens, epochs);
    }
}

void job_tell_stop(struct job *j, const char *reason)
{
    site_record_stop(&j->out->record, j->train.step, reason);
}

void job_tell_done(struct job *j)
{
    struct progress_line *l = &j->told.line;
    bool before = j->told.pace.last == 0;
    l->step = j->train.step;
    l->sync_seconds = l->eta_seconds = -1;
    snprintf(l->state, sizeof l->state, before ? "done before this start" : "done");
    progress_update(&j->out->progress, 0, l);
}
