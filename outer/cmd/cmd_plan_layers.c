/* SPDX-License-Identifier: Apache-2.0 */
/* atoll plan layers: layers in slices, each exchanged at a step of its own, that hide under
 * training.
 */
#include "outer/cmd/cmd_plan.h"
#include "outer/plan/plan_layers.h"

/* DreamDDP's schedule for the configured H and codec. */
static enum err layers(struct run *p, void *self)
{
    struct plan_task t;
    struct plan_layers l;
    bool json;
    TRY(cmd_format(*(const char **)self, &json));
    TRY(plan_settings_own(&t, p));
    TRY(plan_layers_make(&l, p, &t.link));
    return plan_layers_print(p, &l, &t.link, json);
}

enum err cmd_plan_layers(int argc, char **argv, struct arena *arena)
{
    struct run_source source = {.role = RUN_PLAN};
    const char *format = "text";
    const struct args_option options[] = {
        PLAN_ROWS(&source),
        FORMAT_ROW(&format, ": slices, wait_s of a period of sync_every steps")};
    struct args args = {.command = "plan layers",
                        .summary = "Layers in slices that hide under training (DreamDDP), for the "
                                   "configured H and codec and plan.layers_ms. Merge what it "
                                   "prints into the configuration.",
                        .example = "atoll plan layers --config run.yaml --probe link.yaml",
                        .settings = run_nearest_of_plan,
                        ARGS_OPTIONS(options)};
    TRY(args_parse(&args, argc, argv, arena));
    return cmd_run(&args, &source, layers, &format);
}
