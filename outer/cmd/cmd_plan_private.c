/* SPDX-License-Identifier: Apache-2.0 */
/* atoll plan private: what a claim costs before a run: noise, epsilon with and without
 * amplification, and how much of a step is signal. For the site that the configuration describes.
 */
#include "outer/cmd/cmd_plan.h"
#include "outer/plan/private_costs.h"

struct private_options {
    int64_t records; /* of the site; 0: counted in data.train */
    bool site_level; /* instead: a site's whole participation */
    int64_t sites;   /* of that; 0: those of outer.sites */
    bool force;      /* prints it where the noise is more than the signal */
    const char *format;
};

static enum err private_plan(struct run *p, void *self)
{
    const struct private_options *o = self;
    bool json;
    TRY(cmd_format(o->format, &json));
    struct settings s = run_site_settings(p);
    struct private_costs x;
    if (o->site_level)
        return private_costs_print_sites(p, (size_t)o->sites, o->force, json);
    TRY(private_costs_open(&x, &s, (uint32_t)p->index, o->records, p->table.parameters));
    return private_costs_print(&x, p, json);
}

enum err cmd_plan_private(int argc, char **argv, struct arena *arena)
{
    struct private_options o = {.format = "text"};
    struct run_source source = {.role = RUN_MODEL};
    const struct args_option options[] = {
        {"config", ARGS_TEXT, &source.config, .value = "FILE",
         .help = "Configuration (YAML), the one of atoll train."},
        {"sites", ARGS_INT, &o.sites, .max = ROUND_SITES_MAX, .value = "N",
         .help = "With --site-level: this many sites; 0: those of outer.sites."},
        {"records", ARGS_INT, &o.records, .min = 0, .max = 1e15, .value = "N",
         .help = "Records of the site, instead of counting them in data.train."},
        {"site-level", ARGS_FLAG, &o.site_level,
         .help = "Instead, what protecting a site's whole participation would cost."},
        {"force", ARGS_FLAG, &o.force, .help = "With --site-level: print what is refused."},
        FORMAT_ROW(&o.format, ": the site's records, noise, claim, targets, batches, verdict"),
    };
    struct args args = {.command = "plan private",
                        .summary = "The privacy budget of a site. Epsilon of the configured noise, "
                                   "the noise for an epsilon, with and without amplification, and "
                                   "how much of a step is signal.",
                        .example = "atoll plan private --config run.yaml --privacy.epsilon 3",
                        .settings = run_nearest_setting,
                        ARGS_OPTIONS(options)};
    TRY(args_parse(&args, argc, argv, arena));
    return cmd_run(&args, &source, private_plan, &o);
}
