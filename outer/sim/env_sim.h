#ifndef ENV_SIM_H
#define ENV_SIM_H
/* Simulated storage and clock: the real file functions (outer/store/env_files.h) on a simulated
 * disk (disk_sim.h) that outlives its process, and virtual time. A crash can strike at any
 * operation of the disk. From that moment the process is dead: nothing it still does has an effect,
 * every call fails, and it unwinds; then tests/sim/env_faults.h. A thread is one more task of the
 * clock; mutexes work in a dead process too, so that its threads can end.
 */
#include <stdatomic.h>
#include "outer/sim/clock_sim.h"
#include "outer/sim/disk_sim.h"
#include "outer/store/env.h"

struct env_sim {
    struct env env;       /* first */
    struct disk_sim disk; /* gives_way: of a site; never where code holds the link's lock */
    struct clock_sim *clock;
    const char *name;
    atomic_int stop;      /* raised at the crash, so that waits end */
    bool ends_in_start;   /* soon after the next journal is made */
    struct arena threads; /* and mutexes, of all its processes */
    uint64_t random_seed, random_drawn;
    /* After every whole file that has got its name, also in the last moment of a process. */
    void (*wrote)(void *self, struct env_sim *w, const char *path, const uint8_t *data, size_t n);
    void (*mapping)(void *self, const char *path); /* before a file is mapped; NULL: not needed */
    void *watch_self;
};

void env_sim_open(struct env_sim *w, struct clock_sim *c, const char *name, uint64_t seed);
void env_sim_close(struct env_sim *w); /* the disk goes */

#endif
