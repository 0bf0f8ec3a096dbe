/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/library/site_record.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "outer/record/counted.h"
#include "outer/record/version.h"

enum err site_record_ledger(struct ledger_book *ledger, struct run *run)
{
    return ledger_book_open(
        ledger,
        &(struct ledger_book_options){.directory = run->s.run_dir,
                                      .run = run->s.run_name,
                                      .replica = run->o.site_name,
                                      .rounds = (uint64_t)run->o.outer_history_rounds},
        &run->perm);
}

/* What the exchanges of the whole run will be. */
static void predicted(struct jsonl *r, const struct run *run, const struct site_facts *f)
{
    const struct schedule *s = &run->sync.schedule;
    size_t elements[ROUND_FRAGMENTS_MAX];
    fragment_sizes(elements, &run->sync.fragments);
    jsonl_int(r, "rounds", (int64_t)exchange_rounds(s, f->s->train_steps));
    jsonl_int(r, "up_predicted", (int64_t)schedule_upload_bytes(s, elements));
    jsonl_int(r, "down_predicted",
              (int64_t)schedule_download_bytes(s, elements, (unsigned)run->o.outer_sites.count));
}

void site_record_start(struct jsonl *r, const struct run *run, const struct site_facts *f)
{
    jsonl_begin(r, "start");
    jsonl_text(r, "run", run->s.run_name);
    jsonl_text(r, "site", run->o.site_name);
    jsonl_int(r, "index", run->index);
    jsonl_int(r, "sites", f->outer ? (int64_t)run->o.outer_sites.count : 1);
    jsonl_text(r, "aggregator", run->o.site_aggregator);
    jsonl_text(r, "version", version_number());
    jsonl_text(r, "commit", version_commit());
    jsonl_text(r, "compiler", version_compiler());
    jsonl_text(r, "device", f->device);
    jsonl_int(r, "threads", f->threads);
    jsonl_int(r, "ranks", f->ranks);
    jsonl_int(r, "parameters", (int64_t)f->parameters);
    jsonl_int(r, "step", f->step);
    jsonl_int(r, "steps", f->s->train_steps);
    jsonl_int(r, "tokens_per_step", f->s->train_batch_tokens);
    if (f->outer)
        predicted(r, run, f);
}

static void times(struct jsonl *r, const struct exchange_round *x, double compute_ms)
{
    const struct {
        const char *key;
        double ms;
    } parts[] = {
        {"compute_ms", compute_ms},      {"encode_ms", x->times.encode_ms},
        {"store_ms", x->times.store_ms}, {"send_ms", x->times.send_ms},
        {"wait_ms", x->times.wait_ms},   {"fetch_ms", x->times.fetch_ms},
        {"apply_ms", x->times.apply_ms}, {"gather_ms", x->gather_ms},
        {"mix_ms", x->mix_ms},           {"flight_ms", x->flight_ms},
        {"exposed_ms", x->exposed_ms},   {"hidden_ms", fmax(0, x->flight_ms - x->exposed_ms)}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        jsonl_real(r, parts[i].key, parts[i].ms);
}

static void metrics(struct jsonl *r, const struct outer_metrics *g)
{
    const struct {
        const char *key;
        double value;
    } values[] = {
        {"gain", g->gain}, {"aligned", g->aligned},     {"transverse", g->transverse},
        {"rho", g->rho},   {"agreement", g->agreement}, {"residual_ratio", g->residual_ratio}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        jsonl_real(r, values[i].key, values[i].value);
}

struct ledger_round site_record_round(struct jsonl *r, struct ledger_book *ledger,
                                      const struct exchange_round *x, const struct site_progress *p)
{
    struct ledger_round moved = ledger_book_round(ledger, x->fragment, x->round);
    ledger_book_predict(ledger, "", x->fragment, x->round, x->up_predicted, x->down_predicted);
    jsonl_begin(r, "round");
    jsonl_int(r, "step", x->step);
    jsonl_int(r, "fragment", x->fragment);
    jsonl_int(r, "round", (int64_t)x->round);
    jsonl_int(r, "included", x->included);
    jsonl_int(r, "sites", x->sites);
    jsonl_int(r, "rounds", (int64_t)p->rounds);
    jsonl_int(r, "steps", p->steps);
    jsonl_int(r, "replayed", x->replayed);
    jsonl_int(r, "trained", x->trained);
    jsonl_real(r, "weight", x->weight);
    times(r, x, 1e3 * p->compute_s);
    jsonl_int(r, "up", x->replayed ? 0 : (int64_t)moved.up);
    jsonl_int(r, "up_predicted", (int64_t)x->up_predicted);
    jsonl_int(r, "down", x->replayed ? 0 : (int64_t)moved.down);
    jsonl_int(r, "down_predicted", (int64_t)x->down_predicted);
    jsonl_int(r, "wire_up", (int64_t)x->counted.wire_up);
    jsonl_int(r, "wire_down", (int64_t)x->counted.wire_down);
    metrics(r, &x->metrics);
    return moved;
}

void site_record_step(struct jsonl *r, const struct exchange_now *n, int64_t next_sync)
{
    jsonl_begin(r, "step");
    jsonl_int(r, "step", n->step);
    jsonl_real(r, "loss", n->loss);
    jsonl_int(r, "tokens", (int64_t)n->tokens);
    jsonl_real(r, "tokens_per_second", n->tokens_per_second);
    jsonl_int(r, "next_sync", next_sync);
    jsonl_end(r);
}

void site_record_notice(struct jsonl *r, const char *text)
{
    jsonl_begin(r, "notice");
    jsonl_text(r, "text", text);
    jsonl_end(r);
}

bool site_notice_new(struct site_notice *n, const char *text)
{
    enum { REPEAT_S = 30 };
    size_t words = strcspn(text, "0123456789");
    bool same = words < sizeof n->text && strncmp(text, n->text, words) == 0 && !n->text[words];
    if (same && clock_mono_s() - n->said < REPEAT_S)
        return false;
    snprintf(n->text, sizeof n->text, "%.*s", (int)words, text);
    n->said = clock_mono_s();
    return true;
}

void site_record_stop(struct jsonl *r, int64_t step, const char *reason)
{
    jsonl_begin(r, "stop");
    jsonl_int(r, "step", step);
    jsonl_text(r, "reason", reason);
    jsonl_end(r);
}

enum err site_record_final(struct jsonl *r, const struct run *run, const struct site_final *f)
{
    enum err e = ERR_OK;
    if (f->last)
        e = counted_short(f->last, (const char *const *)run->o.outer_sites.items);
    jsonl_begin(r, "final");
    jsonl_int(r, "step", f->step);
    for (size_t i = 0; i < f->own_count; i++)
        jsonl_text(r, f->own[i][0], f->own[i][1]);
    if (f->last) {
        jsonl_text(r, "outer", f->outer);
        jsonl_text(r, "short", e == ERR_SHORT ? err_message() : "");
    }
    jsonl_end(r);
    return e;
}
