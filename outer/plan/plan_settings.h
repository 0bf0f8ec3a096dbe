#ifndef PLAN_SETTINGS_H
#define PLAN_SETTINGS_H
/* From the settings of a run to what the planner calculates with: `atoll plan`, `atoll sim`, and
 * `atoll train` where plan.* is given.
 */
#include <stdio.h>
#include "outer/config/keys.h"
#include "outer/plan/plan.h"

/* Are step time, both rates known? Without them nothing is predicted. */
bool plan_settings_given(const struct outer_settings *o);
void plan_settings_task(struct plan_task *t, const struct outer_settings *o,
                        const struct settings *s, size_t parameters);

/* A line of YAML; nothing when the list is empty. */
void plan_settings_list(FILE *f, const char *key, const struct config_list *list);

/* Before anything is calculated: is there a file already where something is to be written? It may
 * be the run's configuration: ERR_CONFIG unless `force`. path NULL: nothing is written. */
enum err plan_settings_may_write(const char *path, bool force) MUST;

#endif
