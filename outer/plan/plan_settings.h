#ifndef PLAN_SETTINGS_H
#define PLAN_SETTINGS_H
/* From the settings of a run to what the planner calculates with: `atoll plan`, `atoll sim`, and
 * `atoll train` where plan.* is given.
 */
#include <stdio.h>
#include "inner/model/table.h"
#include "kernels/base/args.h"
#include "outer/config/sync_config.h"
#include "outer/plan/plan.h"

/* Are step time, both rates known? Without them nothing is predicted. */
bool plan_settings_given(const struct outer_settings *o);
void plan_settings_task(struct plan_task *t, const struct outer_settings *o, size_t parameters);

/* plan.* of a file that atoll probe wrote, or of the arguments, key by key: what neither gives
 * stays as it is. */
enum err plan_settings_probe(struct outer_settings *to, const char *path, const struct args *args,
                             struct arena *perm) MUST;

/* A line of YAML; nothing when the list is empty. */
void plan_settings_list(FILE *f, const char *key, const struct config_list *list);

struct plan_settings { /* a configuration, read for a plan */
    struct settings s;
    struct outer_settings o;
    struct table table;
    struct sync_config exchange;
    struct arena perm;
};
/* The configuration (NULL: defaults), then plan.* from another file (what atoll probe wrote; NULL:
 * none), then the arguments. All rules are checked; site.name and certificates are not asked for.
 * sites > 0: so many in place of outer.sites. */
enum err plan_settings_load(struct plan_settings *p, const char *config, const char *probe,
                            int64_t sites, const struct args *args) MUST;
/* Before anything is calculated: is there a file already where something is to be written? It may
 * be the run's configuration: ERR_CONFIG unless `force`. path NULL: nothing is written. */
enum err plan_settings_may_write(const char *path, bool force) MUST;
void plan_settings_close(struct plan_settings *p);

#endif
