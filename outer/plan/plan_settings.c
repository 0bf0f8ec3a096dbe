#include "outer/plan/plan_settings.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/file.h"
#include "outer/config/tuning.h"

bool plan_settings_given(const struct outer_settings *o)
{
    return o->plan_step_s > 0 && o->plan_up_mbit > 0 && o->plan_down_mbit > 0;
}

static struct line_times times_of(const struct config_list *list)
{
    struct line_times t = {.count = (unsigned)list->count};
    for (unsigned i = 0; i < t.count; i++) /* keys_outer_check has refused what is no number */
        t.seconds[i] = strtod(list->items[i], NULL);
    return t;
}

void plan_settings_task(struct plan_task *t, const struct outer_settings *o, size_t parameters)
{
    *t = (struct plan_task){.sites = o->outer_sites.count ? (unsigned)o->outer_sites.count : 1,
                            .step_s = o->plan_step_s,
                            .parameters = (double)parameters,
                            .link = {.up_bps = o->plan_up_mbit * 1e6,
                                     .down_bps = o->plan_down_mbit * 1e6,
                                     .rtt_s = o->plan_rtt_ms / 1e3,
                                     .loss = o->plan_loss_percent / 100,
                                     .streams = (unsigned)o->site_streams,
                                     .bbr = strcmp(o->plan_congestion, "bbr") == 0,
                                     .up = times_of(&o->plan_up_s),
                                     .down = times_of(&o->plan_down_s)},
                            .outer = {.encode_s = o->plan_encode_ns / 1e9,
                                      .apply_s = o->plan_apply_ns / 1e9,
                                      .accept_s = o->plan_accept_ns / 1e9,
                                      .commit_s = o->plan_commit_ns / 1e9,
                                      .sum_s = o->plan_sum_ns / 1e9},
                            .aggregator_bps = o->plan_aggregator_mbit * 1e6,
                            .price_gb = o->plan_price_gb};
}

static void take_times(struct config_list *to, const struct config_list *from, double rate,
                       double measured_rate)
{
    if (rate != measured_rate) /* an argument says another rate than the one the times are of */
        *to = (struct config_list){0};
    else if (from->count)
        *to = *from;
}

enum err plan_settings_probe(struct outer_settings *to, const char *path, const struct args *args,
                             struct arena *perm)
{
    struct settings s;
    struct outer_settings o, measured;
    const struct config_table tables[] = {keys_inner(&s), keys_outer(&o)},
                              file[] = {keys_inner(&s), keys_outer(&measured)};
    TRY(config_load(file, 2, path, 0, NULL, perm));
    TRY(config_load(tables, 2, path, args->setting_count, args->setting, perm));
    double *const values[][2] = {{&to->plan_step_s, &o.plan_step_s},
                                 {&to->plan_up_mbit, &o.plan_up_mbit},
                                 {&to->plan_down_mbit, &o.plan_down_mbit},
                                 {&to->plan_rtt_ms, &o.plan_rtt_ms},
                                 {&to->plan_encode_ns, &o.plan_encode_ns},
                                 {&to->plan_apply_ns, &o.plan_apply_ns},
                                 {&to->plan_accept_ns, &o.plan_accept_ns},
                                 {&to->plan_commit_ns, &o.plan_commit_ns},
                                 {&to->plan_sum_ns, &o.plan_sum_ns},
                                 {&to->plan_price_gb, &o.plan_price_gb},
                                 {&to->plan_loss_percent, &o.plan_loss_percent},
                                 {&to->plan_aggregator_mbit, &o.plan_aggregator_mbit}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (*values[i][1] != 0)
            *values[i][0] = *values[i][1];
    if (o.plan_layers_ms.count)
        to->plan_layers_ms = o.plan_layers_ms;
    take_times(&to->plan_up_s, &o.plan_up_s, o.plan_up_mbit, measured.plan_up_mbit);
    take_times(&to->plan_down_s, &o.plan_down_s, o.plan_down_mbit, measured.plan_down_mbit);
    return ERR_OK;
}

void plan_settings_list(FILE *f, const char *key, const struct config_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        fprintf(f, "%s%s%s%s", i ? "" : "  ", i ? "" : key, i ? ", " : ": [", list->items[i]);
    if (list->count)
        fprintf(f, "]\n");
}

/* s0, s1, ...: the names do not matter before a run. */
static enum err roster(struct plan_settings *p, int64_t sites)
{
    struct config_list *list = &p->o.outer_sites;
    TRY_ALLOC(list->items = arena_array(&p->perm, (size_t)sites, sizeof *list->items));
    list->count = (size_t)sites;
    for (int64_t i = 0; i < sites; i++)
        TRY_ALLOC(list->items[i] = arena_printf(&p->perm, "s%lld", (long long)i));
    return ERR_OK;
}

static enum err check(const struct plan_settings *p)
{
    enum err inner = keys_check(&p->s);
    char text[1024];
    snprintf(text, sizeof text, "%s", inner != ERR_OK ? err_message() : "");
    enum err outer = keys_outer_check(&p->o, &p->s);
    if (inner != ERR_OK && outer != ERR_OK)
        return err_add(outer, "%s\n", text);
    return outer != ERR_OK ? outer : inner != ERR_OK ? err_set(inner, "%s", text) : ERR_OK;
}

enum err plan_settings_load(struct plan_settings *p, const char *config, const char *probe,
                            int64_t sites, const struct args *args)
{
    const struct config_table tables[] = {keys_inner(&p->s), keys_outer(&p->o)};
    TRY(config_load(tables, 2, config, args->setting_count, args->setting, &p->perm));
    if (probe)
        TRY(plan_settings_probe(&p->o, probe, args, &p->perm));
    if (sites)
        TRY(roster(p, sites));
    TRY(check(p));
    if (!p->o.outer_sites.count)
        return err_set(
            ERR_CONFIG,
            "outer.sites is empty; list the names of all sites, or say how many: --sites N");
    tuning_settle(&p->o);
    TRY(table_make(&p->table, &p->s, &p->perm));
    return sync_config_make(&p->exchange, &p->s, &p->o, &p->table, &p->perm);
}

enum err plan_settings_may_write(const char *path, bool force)
{
    if (!path || force || !file_exists(path))
        return ERR_OK;
    return err_set(
        ERR_CONFIG,
        "%s exists and is left as it is; --write another file, or add --force to replace it", path);
}

void plan_settings_close(struct plan_settings *p)
{
    arena_free(&p->perm);
}
