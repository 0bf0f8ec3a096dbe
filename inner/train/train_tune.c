/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements during the first steps: whether graphs are faster, and device time by class of op.
 * Neither changes a bit of the run.
 */
#include "inner/train/train_tune.h"
#include <string.h>
#include "kernels/base/log.h"

/* ---- graphs ---- */
/* Graphs are off for TRIAL_HALF steps, then on. The fastest of the last COUNTED steps of each half
 * counts: the first steps make plans, and the first two with graphs record them. */
enum { TRIAL_HALF = 8, TRIAL_END = 16, COUNTED = 5 };

void tune_graphs(struct train *t, const struct train_report *r)
{
    struct train_tune *u = t->running.tune;
    if (t->dev->host_memory || t->settings->device_graphs != DEVICE_GRAPHS_AUTO ||
        u->steps == TRIAL_END)
        return;
    int64_t n = ++u->steps, half = n > TRIAL_HALF, within = half ? n - TRIAL_HALF : n;
    if (within > TRIAL_HALF - COUNTED &&
        (u->fastest[half] == 0 || r->step_seconds < u->fastest[half]))
        u->fastest[half] = r->step_seconds;
    t->dev->graphs = n >= TRIAL_HALF;
    if (n < TRIAL_END)
        return;
    t->dev->graphs = u->fastest[1] < u->fastest[0];
    log_event(LOG_INFO, "graphs", "off_ms=%.3f on_ms=%.3f chosen=%s", 1e3 * u->fastest[0],
              1e3 * u->fastest[1], t->dev->graphs ? "on" : "off");
}

/* ---- profile ---- */
enum { PROFILE_AFTER = 5 };

enum err tune_open(struct train_tune **out, struct train *t, struct arena *perm)
{
    struct train_tune *u;
    TRY_ALLOC(*out = u = arena_alloc(perm, sizeof *u));
    if (!t->settings->train_profile)
        return ERR_OK;
    TRY_ALLOC(u->profile = arena_alloc(perm, sizeof *u->profile));
    profile_open(u->profile, t->dev);
    model_profile(t->model, u->profile);
    return ERR_OK;
}

void tune_profile_batch(struct train *t)
{
    const struct batch *b = t->data.batch;
    if (!profile_on(t->running.tune->profile))
        return;
    t->running.tune->profiled.tokens += (double)b->tokens_count;
    t->running.tune->profiled.targets += (double)batch_targets(b);
    t->running.tune->profiled.batches++;
    for (size_t i = 0; i < b->sequences; i++) {
        double length = b->cu_seqlens[i + 1] - b->cu_seqlens[i];
        t->running.tune->profiled.pairs += length * length;
    }
}

/* The mean of the profiled steps, of this rank. */
static struct work_step work_step(const struct train *t, unsigned steps)
{
    double tokens = t->running.tune->profiled.tokens;
    return (struct work_step){.tokens = (size_t)(tokens / steps),
                              .micro = (size_t)(tokens / t->running.tune->profiled.batches),
                              .targets = (size_t)(t->running.tune->profiled.targets / steps),
                              .sequence = t->running.tune->profiled.pairs / tokens,
                              .type = t->dev->model_type,
                              .update_share =
                                  t->optim->shard.map ? 1.0 / (double)t->coll->size : 1.0};
}

unsigned train_profiled(const struct train *t, struct train_class out[PROFILE_COUNT])
{
    const struct profile *p = t->running.tune->profile;
    if (!p || !p->steps)
        return 0;
    const struct work_step w = work_step(t, p->steps);
    for (enum profile_class c = 0; c < PROFILE_COUNT; c++)
        out[c] = (struct train_class){p->seconds[c], work_of(t->settings, &t->table, &w, c)};
    return p->steps;
}

static void log_profile(const struct train *t, const struct profile *p)
{
    const struct work_step w = work_step(t, p->steps);
    const struct work_peak peak = t->dev->host_memory ? (struct work_peak){0, 0} : work_peak_h200();
    double all = 0;
    for (int c = 0; c < PROFILE_COUNT; c++)
        all += p->seconds[c];
    for (int c = 0; c < PROFILE_COUNT && all > 0; c++) {
        struct work work = work_of(t->settings, &t->table, &w, (enum profile_class)c);
        double seconds = p->seconds[c] / p->steps;
        if (p->calls[c])
            log_event(LOG_INFO, "profile",
                      "class=%s ms=%.3f share=%.3f calls=%u tflops=%.2f gbs=%.1f least_ms=%.3f",
                      profile_name((enum profile_class)c), 1e3 * seconds, p->seconds[c] / all,
                      p->calls[c] / p->steps, seconds > 0 ? 1e-12 * work.flop / seconds : 0,
                      seconds > 0 ? 1e-9 * work.bytes / seconds : 0,
                      1e3 * work_seconds(&work, &peak));
    }
    log_event(LOG_INFO, "profile", "class=all ms=%.3f steps=%u truncated=%s", 1e3 * all / p->steps,
              p->steps, p->full ? "yes" : "no");
}

enum err tune_profile_step(struct train *t, bool ended)
{
    struct train_tune *u = t->running.tune;
    struct profile *p = u->profile;
    if (!p || u->reported)
        return ERR_OK;
    bool warm = u->seen++ >= PROFILE_AFTER;
    if (p->on)
        TRY(profile_collect(p));
    u->reported = p->steps && (ended || p->steps == (unsigned)t->settings->train_profile);
    bool graphs = t->settings->device_graphs == DEVICE_GRAPHS_AUTO && u->steps < TRIAL_END &&
                  !t->dev->host_memory;
    profile_begin(p, !ended && !u->reported && !graphs && warm);
    if (u->reported)
        log_profile(t, p);
    return ERR_OK;
}
