/* SPDX-License-Identifier: Apache-2.0 */
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

/* What a run takes with a row of the plan: its settings, the optimizer that suits the codec, its
 * published rate. */
struct outer_settings plan_settings_chosen(const struct run *r, const struct plan_option *o);
/* These as a configuration, in the run's arena; probe: site.probe, "" leaves it out. */
enum err plan_settings_text(char **text, struct run *r, const struct plan_option *o,
                            const char *probe) MUST;
enum err plan_settings_write(const char *path, const char *text) MUST; /* ERR_IO */
/* ERR_CONFIG: no settings train `percent` of the time; the most is that of `most`. Names the
 * nearest link that can. */
enum err plan_settings_refuse(const struct plan_task *t, const struct run *r, double percent,
                              const struct plan_option *most) MUST;
/* Bytes of one rank in bf16, and of the outer loop at the lead of a site, both on a CPU. */
enum err plan_settings_memory(struct run *r, const struct plan_option *o, unsigned sites,
                              size_t *training, size_t *outer) MUST;

/* Before anything is calculated: is there a file already where something is to be written? It may
 * be the run's configuration: ERR_CONFIG unless `force`. path NULL: nothing is written; "-":
 * standard output. */
enum err plan_settings_may_write(const char *path, bool force) MUST;

#endif
