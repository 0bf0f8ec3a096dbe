#ifndef ENV_SIM_H
#define ENV_SIM_H
/* Simulated storage and clock: files in memory that outlive their process, virtual time, and the
 * faults of a disk. A crash can strike inside any changing operation: whole files are then old or
 * new, an append is torn, a file that arrives in pieces keeps any mixture of what was not synced, a
 * tree is half removed. From that moment the process is dead: nothing it still does has an effect,
 * every call fails, and it unwinds; then env_sim_restart. A thread is one more task of the clock;
 * mutexes work in a dead process too, so that its threads can end.
 */
#include "outer/sim/clock_sim.h"
#include "outer/store/env.h"

struct env_sim_faults { /* chances per changing operation */
    double crash, eio, slow;
    double rot; /* at a restart: a bit of a file that can be had again flips, or the file is gone */
    uint64_t full_from_ms, full_until_ms; /* no space */
};
struct env_sim_file;
struct env_sim {
    struct env env; /* first */
    struct clock_sim *clock;
    const char *name;
    const struct env_sim_faults *faults; /* NULL: none */
    bool dead;
    volatile int stop; /* raised at the crash, so that waits end */
    bool
        gives_way; /* its operations may take time: a site; never code that holds the link's lock */
    struct env_sim_file *files;
    struct arena threads; /* and mutexes, of all its processes */
    uint64_t random_seed, random_drawn;
    /* After every whole file written, durable, also in the last moment of a process. */
    void (*wrote)(void *self, struct env_sim *w, const char *path, const uint8_t *data, size_t n);
    void (*mapping)(void *self, const char *path); /* before a file is mapped; NULL: not needed */
    void *watch_self;
};

void env_sim_open(struct env_sim *w, struct clock_sim *c, const char *name, uint64_t seed);
void env_sim_close(struct env_sim *w); /* the disk goes */
void env_sim_crash(struct env_sim *w);
void env_sim_restart(struct env_sim *w); /* what was not durable is lost, in part */
/* The file's bytes, or NULL; borrowed until it changes. */
const uint8_t *env_sim_look(const struct env_sim *w, const char *path, size_t *size_bytes);

#endif
