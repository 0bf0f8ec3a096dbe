#include "outer/plan/plan_settings.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/file.h"
#include "outer/config/tuning.h"
#include "outer/link/path.h"

bool plan_settings_given(const struct outer_settings *o)
{
    return o->plan_step_s > 0 && o->plan_up_mbit > 0 && o->plan_down_mbit > 0;
}

/* Of site.streams: auto, what the link will choose once it has measured this line. */
static unsigned streams_of(const struct outer_settings *o)
{
    bool bbr = o->plan_congestion == PLAN_CONGESTION_BBR;
    struct path_facts f = {.rtt_s = o->plan_rtt_ms / 1e3,
                           .loss = o->plan_loss_percent / 100,
                           .rate = o->plan_up_mbit * 1e6 / 8,
                           .streams = PATH_STREAMS_MAX};
    snprintf(f.congestion, sizeof f.congestion, "%s", bbr ? "bbr" : "cubic");
    return o->site_streams != SITE_STREAMS_AUTO ? (unsigned)o->site_streams
                                                : path_choose(&f).streams;
}

static struct line_times times_of(const struct config_list *list)
{
    struct line_times t = {.count = (unsigned)list->count};
    for (unsigned i = 0; i < t.count; i++) /* keys_outer_check has refused what is no number */
        t.seconds[i] = strtod(list->items[i], NULL);
    return t;
}

void plan_settings_task(struct plan_task *t, const struct outer_settings *o,
                        const struct settings *s, size_t parameters)
{
    *t = (struct plan_task){.sites = o->outer_sites.count ? (unsigned)o->outer_sites.count : 1,
                            .step_s = o->plan_step_s,
                            .parameters = (double)parameters,
                            .lamb = s->train_optimizer == OPTIM_LAMB,
                            .rank = o->plan_rank,
                            .link = {.up_bps = o->plan_up_mbit * 1e6,
                                     .down_bps = o->plan_down_mbit * 1e6,
                                     .rtt_s = o->plan_rtt_ms / 1e3,
                                     .loss = o->plan_loss_percent / 100,
                                     .streams = streams_of(o),
                                     .bbr = o->plan_congestion == PLAN_CONGESTION_BBR,
                                     .up = times_of(&o->plan_up_s),
                                     .down = times_of(&o->plan_down_s)},
                            .outer = {.encode_s = o->plan_encode_ns / 1e9,
                                      .apply_s = o->plan_apply_ns / 1e9,
                                      .accept_s = o->plan_accept_ns / 1e9,
                                      .commit_s = o->plan_commit_ns / 1e9,
                                      .sum_s = o->plan_sum_ns / 1e9},
                            .aggregator_bps = o->plan_aggregator_mbit * 1e6,
                            .price_gb = o->plan_price_gb};
    t->tokens = (double)s->train_steps * (double)s->train_batch_tokens * t->sites;
}

void plan_settings_list(FILE *f, const char *key, const struct config_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        fprintf(f, "%s%s%s%s", i ? "" : "  ", i ? "" : key, i ? ", " : ": [", list->items[i]);
    if (list->count)
        fprintf(f, "]\n");
}

enum err plan_settings_may_write(const char *path, bool force)
{
    if (!path || force || !file_exists(path))
        return ERR_OK;
    return err_set(
        ERR_CONFIG,
        "%s exists and is left as it is; --write another file, or add --force to replace it", path);
}
