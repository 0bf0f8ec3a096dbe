#include "outer/plan/plan_settings.h"
#include <stdio.h>
#include <string.h>
#include "kernels/base/file.h"
#include "outer/plan/tuning.h"

bool plan_settings_given(const struct outer_settings *o)
{
    return o->plan_step_s > 0 && o->plan_up_mbit > 0 && o->plan_down_mbit > 0;
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
                                     .streams = (unsigned)o->site_streams},
                            .outer_s = o->plan_outer_ns / 1e9,
                            .aggregator_bps = o->plan_aggregator_mbit * 1e6,
                            .price_gb = o->plan_price_gb};
}

/* plan.* of the other file, or of the arguments, key by key: what neither gives stays as it was. */
static enum err take_probe(struct plan_settings *p, const char *path, const struct args *args)
{
    struct settings s;
    struct outer_settings o;
    const struct config_table tables[] = {keys_inner(&s), keys_outer(&o)};
    TRY(config_load(tables, 2, path, args->setting_count, args->setting, &p->perm));
    double *const to[] = {&p->o.plan_step_s, &p->o.plan_up_mbit,      &p->o.plan_down_mbit,      &p->o.plan_rtt_ms,
                          &p->o.plan_loss_percent, &p->o.plan_outer_ns, &p->o.plan_aggregator_mbit, &p->o.plan_price_gb};
    const double from[] = {o.plan_step_s, o.plan_up_mbit, o.plan_down_mbit, o.plan_rtt_ms,
                           o.plan_loss_percent, o.plan_outer_ns, o.plan_aggregator_mbit, o.plan_price_gb};
    for (size_t i = 0; i < sizeof to / sizeof *to; i++)
        if (from[i] != 0)
            *to[i] = from[i];
    if (o.plan_layers_ms.count)
        p->o.plan_layers_ms = o.plan_layers_ms;
    return ERR_OK;
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

enum err plan_settings_load(struct plan_settings *p, const char *config, const char *probe, int64_t sites,
                            const struct args *args)
{
    const struct config_table tables[] = {keys_inner(&p->s), keys_outer(&p->o)};
    TRY(config_load(tables, 2, config, args->setting_count, args->setting, &p->perm));
    if (probe)
        TRY(take_probe(p, probe, args));
    if (sites)
        TRY(roster(p, sites));
    TRY(check(p));
    if (!p->o.outer_sites.count)
        return err_set(ERR_CONFIG, "outer.sites is empty; list the names of all sites, or say how many: --sites N");
    tuning_settle(&p->o);
    TRY(table_make(&p->table, &p->s, &p->perm));
    return exchange_make(&p->exchange, &p->s, &p->o, &p->table, &p->perm);
}

enum err plan_settings_may_write(const char *path, bool force)
{
    if (!path || force || !file_exists(path))
        return ERR_OK;
    return err_set(ERR_CONFIG, "%s exists and is left as it is; --write another file, or add --force to replace it", path);
}

void plan_settings_close(struct plan_settings *p)
{
    arena_free(&p->perm);
}
