#ifndef ENV_SIM_H
#define ENV_SIM_H
/* Simulated storage and clock: the real file functions (outer/store/env_files.h) on a simulated
 * disk (disk_sim.h) that outlives its process, and virtual time. A crash can strike at any
 * operation of the disk. From that moment the process is dead: nothing it still does has an effect,
 * every call fails, and it unwinds; then env_sim_restart. A thread is one more task of the clock;
 * mutexes work in a dead process too, so that its threads can end.
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
    atomic_int stop;       /* raised at the crash, so that waits end */
    unsigned broken_lives; /* processes that have met the broken disk */
    unsigned rots;         /* files that have rotted */
    uint64_t rotten;       /* the newest round whose state has rotted; 0: none */
    bool seals;            /* those of masked rounds may rot, and no journal: nobody knows of a seal
                              that both have lost */
    unsigned seals_rotten; /* of them, so far */
    double loses_journal;  /* sim_leaning.journal */
    bool ends_in_start;    /* soon after the next journal is made */
    struct arena threads;  /* and mutexes, of all its processes */
    uint64_t random_seed, random_drawn;
    /* After every whole file that has got its name, also in the last moment of a process. */
    void (*wrote)(void *self, struct env_sim *w, const char *path, const uint8_t *data, size_t n);
    void (*mapping)(void *self, const char *path); /* before a file is mapped; NULL: not needed */
    void *watch_self;
};

void env_sim_open(struct env_sim *w, struct clock_sim *c, const char *name, uint64_t seed);
void env_sim_close(struct env_sim *w); /* the disk goes */
void env_sim_crash(struct env_sim *w);
/* The process has ended. After a power loss, and by chance after any other end too, what was not
 * durable is lost, in part. */
void env_sim_restart(struct env_sim *w);
/* First of all in a process: env_files_found. */
enum err env_sim_begin(struct env_sim *w) MUST;
/* The file's bytes as processes see them, or as they are on the medium; NULL: no such file;
 * borrowed until it changes. */
const uint8_t *env_sim_look(const struct env_sim *w, const char *path, size_t *size_bytes);
const uint8_t *env_sim_medium(const struct env_sim *w, const char *path, size_t *size_bytes);

#endif
