/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_PLAN_H
#define CMD_PLAN_H
/* atoll plan ACT: one file each, but times, which is in cmd_plan_inside.c. atoll plan --ACT is
 * another spelling. The files share no struct:
 *   cmd_plan.c: none
 *   cmd_plan_accumulator.c: none
 *   cmd_plan_inside.c: none
 *   cmd_plan_layers.c: none
 *   cmd_plan_private.c: none
 * X(act, summary) */
#include "outer/cmd/acts.h"
#include "outer/protocol/round.h"

#define PLAN_ACTS(X)                                                                               \
    X(inside, "the ranks of one site: step time, efficiency, energy, price, memory, and the "      \
              "number beyond which more stop paying")                                              \
    X(layers, "layers in slices that hide under training (DreamDDP), for the configured H")        \
    X(private, "the privacy budget of a site: epsilon, noise, how much of a step is signal")       \
    X(accumulator, "whether accumulators of BITS of mantissa hold the sums of the model's "        \
                   "products")                                                                     \
    X(times, "speed-up, efficiency, GPU-hours and knee of measured times, GPUS:MINUTES,...")
#define X(act, summary) enum err cmd_plan_##act(int argc, char **argv, struct arena *arena) MUST;
PLAN_ACTS(X)
#undef X

/* Rows of the option table of commands that plan a run; o: a struct run_source. */
#define PLAN_ROWS(o)                                                                               \
    {"config", ARGS_TEXT, &(o)->config, .value = "FILE",                                           \
     .help = "Configuration (YAML), the one of atoll train: the model, the steps, the sites; - "   \
             "is standard input."},                                                                \
        {"probe", ARGS_TEXT, &(o)->probe, .value = "FILE",                                         \
         .help = "Probe file: the link and the step time, as atoll probe measured them, in place " \
                 "of site.probe. Arguments --plan.* go first."},                                   \
    {                                                                                              \
        "sites", ARGS_INT, &(o)->sites,                                                            \
            .max = ROUND_SITES_MAX, .value = "N",                                                  \
            .help = "N sites s0, s1, ... instead of outer.sites; 0: outer.sites."                  \
    }

#endif
