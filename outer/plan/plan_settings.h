#ifndef PLAN_SETTINGS_H
#define PLAN_SETTINGS_H
/* From the settings of a run and its probe file to what the planner calculates with: `atoll plan`,
 * `atoll sim`, and `atoll train` where site.probe is given.
 */
#include "outer/config/run.h"
#include "outer/plan/plan.h"

/* Are step time, both rates known? Without them nothing is predicted. */
bool plan_settings_given(const struct measured *m);
void plan_settings_task(struct plan_task *t, const struct run *r, const struct measured *m);
/* The same of the run's own probe file. ERR_CONFIG: they are not known. */
enum err plan_settings_own(struct plan_task *t, const struct run *r) MUST;

/* Before anything is calculated: is there a file already where something is to be written? It may
 * be the run's configuration: ERR_CONFIG unless `force`. path NULL: nothing is written. */
enum err plan_settings_may_write(const char *path, bool force) MUST;

#endif
