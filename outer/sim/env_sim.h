/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENV_SIM_H
#define ENV_SIM_H
/* An environment in virtual time: the real file functions (outer/store/env_files.h) on a given
 * disk, a clock, threads and mutexes that are the clock's tasks. One process for the life of the
 * disk; the chaos harness has processes that crash (tests/sim/env_faulty.h).
 */
#include <stdatomic.h>
#include "outer/sim/clock_sim.h"
#include "outer/store/env.h"

struct env_sim {
    struct env env; /* first; its disk is the caller's */
    struct clock_sim *clock;
    atomic_int stop;
    struct arena threads; /* and mutexes */
    uint64_t random_seed, random_drawn;
    void (*wrote)(void *self, const char *path); /* after every whole file; NULL: not needed */
    void *watch_self;
};

extern const struct env_ops env_sim_ops;
extern const char env_sim_root[]; /* the directory on its disk */
void env_sim_open(struct env_sim *w, struct clock_sim *c, struct disk *d, uint64_t seed);
void env_sim_close(struct env_sim *w);

#endif
