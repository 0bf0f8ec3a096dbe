/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/plan/plan_settings.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/file.h"
#include "outer/config/tuning.h"
#include "outer/link/path.h"
#include "outer/site/site.h"
#include "inner/train/train.h"

bool plan_settings_given(const struct measured *m)
{
    return m->times.plan_step_s > 0 && m->plan_up_mbit > 0 && m->plan_down_mbit > 0;
}

/* Of site.streams: auto, what the link will choose once it has measured this link. */
static unsigned streams_of(const struct outer_settings *o, const struct measured *m)
{
    bool bbr = m->plan_congestion == PLAN_CONGESTION_BBR;
    struct path_facts f = {.rtt_s = m->plan_rtt_ms / 1e3,
                           .loss = m->plan_loss_percent / 100,
                           .rate = m->plan_up_mbit * 1e6 / 8,
                           .streams = PATH_STREAMS_MAX};
    snprintf(f.congestion, sizeof f.congestion, "%s", bbr ? "bbr" : "cubic");
    return o->site_streams != SITE_STREAMS_AUTO ? (unsigned)o->site_streams
                                                : path_choose(&f).streams;
}

static struct line_times times_of(const struct config_list *list)
{
    struct line_times t = {.count = (unsigned)list->count};
    for (unsigned i = 0; i < t.count; i++) /* measured_read has refused what is no number */
        t.seconds[i] = strtod(list->items[i], NULL);
    return t;
}

void plan_settings_task(struct plan_task *t, const struct run *r, const struct measured *m)
{
    const struct settings *s = &r->s;
    const struct outer_settings *o = &r->o;
    *t = (struct plan_task){.sites = o->outer_sites.count ? (unsigned)o->outer_sites.count : 1,
                            .step_s = m->times.plan_step_s,
                            .parameters = (double)r->table.parameters,
                            .lamb = s->train_optimizer == OPTIM_LAMB,
                            .rank = m->plan_rank,
                            .link = {.up_bps = m->plan_up_mbit * 1e6,
                                     .down_bps = m->plan_down_mbit * 1e6,
                                     .rtt_s = m->plan_rtt_ms / 1e3,
                                     .loss = m->plan_loss_percent / 100,
                                     .streams = streams_of(o, m),
                                     .bbr = m->plan_congestion == PLAN_CONGESTION_BBR,
                                     .up = times_of(&m->plan_up_s),
                                     .down = times_of(&m->plan_down_s)},
                            .outer = {.encode_s = m->times.plan_encode_ns / 1e9,
                                      .apply_s = m->times.plan_apply_ns / 1e9,
                                      .accept_s = m->times.plan_accept_ns / 1e9,
                                      .commit_s = m->times.plan_commit_ns / 1e9,
                                      .sum_s = m->times.plan_sum_ns / 1e9},
                            .aggregator_bps = m->plan_aggregator_mbit * 1e6,
                            .price_gb = m->plan_price_gb};
    t->tokens = (double)s->train_steps * (double)s->train_batch_tokens * t->sites;
}

enum err plan_settings_own(struct plan_task *t, const struct run *r)
{
    const struct measured *o = &r->measured;
    plan_settings_task(t, r, o);
    if (plan_settings_given(o))
        return ERR_OK;
    return err_set(
        ERR_CONFIG, "%s%s%sgive what is missing, or measure it: atoll probe",
        o->times.plan_step_s > 0 ? "" : "plan.step_s is 0: no run has steps without a time\n",
        o->plan_up_mbit > 0 ? "" : "plan.up_mbit is 0: nothing would ever arrive\n",
        o->plan_down_mbit > 0 ? "" : "plan.down_mbit is 0: nothing would ever come back\n");
}

enum err plan_settings_may_write(const char *path, bool force)
{
    if (!path || strcmp(path, "-") == 0 || force || !file_exists(path))
        return ERR_OK;
    return err_set(
        ERR_CONFIG,
        "%s exists and is left as it is; --write another file, or add --force to replace it", path);
}

struct outer_settings plan_settings_chosen(const struct run *r, const struct plan_option *o)
{
    static const double SPARSE_DECAY = 0.95;
    struct outer_settings s = r->o;
    s.outer_sync_every = o->schedule.period[0].p.every;
    s.outer_overlap_steps = o->schedule.overlap;
    s.outer_codec = o->schedule.period[0].codec;
    s.outer_optimizer = tuning_optimizer(&s);
    struct tuning_momentum best =
        tuning_momentum(&r->s, &s, (int64_t)schedule_rounds(&o->schedule, 0));
    s.outer_momentum = best.mu;
    s.outer_momentum_start = best.start;
    s.outer_momentum_warmup = best.warmup;
    s.outer_lr = best.lr; /* 0: of the table */
    if (best.measured) {
        s.outer_lr_schedule = best.falls ? ANNEAL_LINEAR : ANNEAL_CONSTANT;
        s.outer_min_lr_ratio = ANNEAL_END;
    }
    tuning_resolve(&s);
    /* A full residual of a codec that sends a few values grows without bound: docs/results.md 5.3.
     */
    if ((s.outer_codec == CODEC_TOPK || s.outer_codec == CODEC_CSC) &&
        s.outer_error_feedback_decay == 1)
        s.outer_error_feedback_decay = SPARSE_DECAY;
    return s;
}

enum err plan_settings_text(char **text, struct run *r, const struct plan_option *o,
                            const char *probe)
{
    const struct outer_settings run = plan_settings_chosen(r, o);
    const int64_t rounds = (int64_t)schedule_rounds(&o->schedule, 0);
    const struct tuning_momentum best = tuning_momentum(&r->s, &run, rounds);
    const char *alpha = tuning_unmixed(&run, rounds) ? "  update_alpha: 0\n" : "";
    const char *inner = tuning_trust_hidden(&r->s)
                            ? "train:  # decoders: docs/choosing.md 1\n  optimizer: lamb\n"
                              "  trust_layers: hidden\n"
                              "  adamw_lr: 0.4\n"
                            : "";
    char rate[64], growth[96] = "", average[48] = "", fall[64] = "";
    const char *form = best.lr > 0           ? "%.6g"
                       : tuning_of(&run).own ? "0  # the default of outer.optimizer: %.6g"
                                             : "0  # of the table: %.6g";
    snprintf(rate, sizeof rate, form, run.outer_lr);
    /* The text is merged into the configuration r->o: it takes back a growth or a fall that stands
     * there. */
    if (run.outer_momentum_warmup || r->o.outer_momentum_warmup)
        snprintf(growth, sizeof growth,
                 "  momentum_start: %.6g  # docs/choosing.md 2\n  momentum_warmup: %lld\n",
                 run.outer_momentum_start, (long long)run.outer_momentum_warmup);
    if (run.outer_lr_schedule != ANNEAL_CONSTANT || r->o.outer_lr_schedule != ANNEAL_CONSTANT)
        snprintf(fall, sizeof fall, "  lr_schedule: %s\n  min_lr_ratio: %.6g\n",
                 config_choice_name(anneal_kind_choices, run.outer_lr_schedule),
                 run.outer_min_lr_ratio);
    if (r->o.outer_interpolation != OUTER_INTERPOLATION)
        snprintf(average, sizeof average, "  interpolation: %.6g\n",
                 outer_opt_row(run.outer_optimizer)->interpolates ? run.outer_interpolation
                                                                  : OUTER_INTERPOLATION);
    TRY_ALLOC(
            *text = arena_printf(
                &r->perm,
                "%souter:\n  sync_every: %lld\n  fragments: %u\n  overlap_steps: %lld\n%s  codec: "
                "%s\n  optimizer: %s\n  momentum: %.6g\n%s%s  lr: %s\n%s"
                "  error_feedback_decay: %.4g\n%s%s%s",
                inner, (long long)o->schedule.period[0].p.every, o->schedule.fragments,
                (long long)o->schedule.overlap, alpha,
                config_choice_name(outer_codec_choices, run.outer_codec),
                config_choice_name(outer_opt_kind_choices, run.outer_optimizer), run.outer_momentum,
                growth, average, rate, fall, run.outer_error_feedback_decay,
                *probe ? "site:\n  probe: " : "", probe, *probe ? "\n" : ""));
    return ERR_OK;
}

enum err plan_settings_write(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return err_set(ERR_IO, "%s: cannot write", path);
    bool good = fputs(text, f) >= 0;
    good = fclose(f) == 0 && good;
    return good ? ERR_OK : err_set(ERR_IO, "%s: cannot write", path);
}

enum err plan_settings_refuse(const struct plan_task *t, const struct run *r, double percent,
                              const struct plan_option *most)
{
    struct line link;
    enum plan_nearest by;
    char possible[256], less[48] = "";
    double shown = floor(1000 * most->result.utilisation) / 10;
    if (shown >= PLAN_UTILISATION_MIN)
        snprintf(less, sizeof less, "; or --utilisation %.1f", shown);
    TRY(plan_nearest_link(t, &r->sync.schedule, &r->table, percent / 100, &link, &by));
    if (by == PLAN_BY_RATE || by == PLAN_BY_BOTH)
        snprintf(possible, sizeof possible, "%.3g up and %.3g down Mbit/s at %.4g ms",
                 link.up_bps / 1e6, link.down_bps / 1e6, 1e3 * link.rtt_s);
    else if (by == PLAN_BY_DELAY)
        snprintf(possible, sizeof possible, "a round trip of %.3g ms", 1e3 * link.rtt_s);
    else
        snprintf(possible, sizeof possible,
                 "no link at all: sites and aggregator themselves take too long for a round "
                 "(plan.encode_ns and the like); faster "
                 "disks, or longer steps");
    return err_set(ERR_CONFIG,
                   "no settings train %.4g %% of the time on this link; the most is %.1f %%, with "
                   "%s, H %lld, %u fragments, %lld "
                   "steps of overlap, where one round takes %.3g s\nthe nearest possible: %s%s",
                   percent, 100 * most->result.utilisation,
                   codec_get(most->schedule.period[0].codec)->name,
                   (long long)most->schedule.period[0].p.every, most->schedule.fragments,
                   (long long)most->schedule.overlap, most->result.exchange_s, possible, less);
}

enum err plan_settings_memory(struct run *r, const struct plan_option *o, unsigned sites,
                              size_t *training, size_t *outer)
{
    const struct sync_config_replica site = {.site = true,
                                             .sites = sites,
                                             .error_feedback_decay =
                                                 (float)r->o.outer_error_feedback_decay,
                                             .digest = r->sync.digest};
    struct fragments f;
    TRY(sync_config_cut(&f, &r->s, &r->o, &r->table, o->schedule.fragments, &r->perm));
    struct outer_state_options m = sync_config_state(&f, &o->schedule, &r->sync.outer, &site);
    const struct train_memory inner = train_plan(&r->s, &r->table, DTYPE_BF16, 1);
    TRY(inner.failed);
    *training = inner.total;
    *outer = outer_state_memory(&m, true).host +
             site_memory(&m, sites, r->o.outer_max_local_steps_offline, true).host;
    return ERR_OK;
}
