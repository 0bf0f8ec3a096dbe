#ifndef ENV_FAULTS_H
#define ENV_FAULTS_H
/* How processes of the simulated environment (outer/sim/env_sim.h) end and begin, and what rots on
 * its disk meanwhile. */
#include "outer/sim/env_sim.h"

struct env_rot {           /* of a disk, over all its processes; zeroed before */
    unsigned broken_lives; /* processes that have met the broken disk */
    unsigned rots;         /* files that have rotted */
    uint64_t rotten;       /* the newest round whose state has rotted; 0: none */
    bool seals;            /* those of masked rounds may rot, and no journal: nobody knows of a seal
                              that both have lost */
    unsigned seals_rotten; /* of them, so far */
    double loses_journal;  /* sim_leaning.journal */
};

void env_sim_crash(struct env_sim *w);
/* The process has ended. After a power loss, and by chance after any other end too, what was not
 * durable is lost, in part. */
void env_sim_restart(struct env_sim *w, struct env_rot *r);
/* First of all in a process: env_files_found. */
enum err env_sim_begin(struct env_sim *w) MUST;
/* The file's bytes as processes see them, or as they are on the medium; NULL: no such file;
 * borrowed until it changes. */
const uint8_t *env_sim_look(const struct env_sim *w, const char *path, size_t *size_bytes);
const uint8_t *env_sim_medium(const struct env_sim *w, const char *path, size_t *size_bytes);

#endif
