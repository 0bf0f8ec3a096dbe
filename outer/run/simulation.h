/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMULATION_H
#define SIMULATION_H
/* A run of a configuration in virtual time (outer/sim/simulate.h): its sites from outer.sites, the
 * probe, a topology and operands NAME:key=value,..., and the record of its rounds. SIGINT and
 * SIGTERM end it with what it has so far, and only errors are logged meanwhile. One a process; one
 * thread.
 */
#include "kernels/base/args.h"
#include "outer/config/run.h"
#include "outer/sim/simulate.h"

struct simulation_options {
    const struct args *args; /* operands: NAME:step_s=0.8,up_mbit=20, probe=FILE */
    const char *topology;    /* file or preset of atoll wan; NULL: the links of plan.* */
    const char *record;      /* a new file, a line for each round of each site; NULL: none */
    bool force;              /* replace that file */
    int64_t rounds, seed;    /* rounds 0: all */
    double days;             /* 0: train.steps */
    void (*progress)(void *self, int64_t step, int64_t steps);
    void *self;
};
struct simulation_result { /* in the run's arena */
    const struct simulate_site *site;
    unsigned count;
    struct simulate_result r;
};

/* With days it sets the steps of p's schedule. ERR_CONFIG: an operand, the topology or a link that
 * cannot be; its text names the site. */
enum err simulation_run(struct run *p, const struct simulation_options *o,
                        struct simulation_result *out) MUST;

#endif
