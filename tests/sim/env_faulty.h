/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENV_FAULTY_H
#define ENV_FAULTY_H
/* Simulated storage and clock with faults: the environment of outer/sim/env_sim.h on a simulated
 * disk (disk_sim.h) that outlives its process. A crash can strike at any operation of the disk.
 * From that moment the process is dead: nothing it still does has an effect, every call fails, and
 * it unwinds; then env_faulty_restart. Mutexes work in a dead process too, so that its threads can
 * end.
 */
#include "outer/sim/env_sim.h"
#include "tests/sim/disk_sim.h"

struct env_rot {           /* of a disk, over all its processes */
    unsigned broken_lives; /* processes that have met the broken disk */
    unsigned rots;         /* files that have rotted */
    uint64_t rotten;       /* the newest round whose state has rotted; 0: none */
    bool seals; /* those of masked rounds may rot, and no journal: no site knows of a seal
                   that both have lost */
    unsigned seals_rotten; /* of them, so far */
    double loses_journal;  /* sim_leaning.journal */
};
struct env_faulty {
    struct env_sim sim;   /* first; stop: raised at the crash, so that waits end */
    struct disk_sim disk; /* gives_way: of a site; never where code holds the link's lock */
    struct env_rot rot;
    const char *name;
    bool ends_in_start; /* soon after the next journal is made */
    /* After every whole file that has got its name, also in the last moment of a process. */
    void (*wrote)(void *self, struct env_faulty *w, const char *path, const uint8_t *data,
                  size_t n);
    void (*mapping)(void *self, const char *path); /* before a file is mapped; NULL: not needed */
    void *watch_self;
};

void env_faulty_open(struct env_faulty *w, struct clock_sim *c, const char *name, uint64_t seed);
void env_faulty_close(struct env_faulty *w); /* the disk goes */
void env_faulty_crash(struct env_faulty *w);
/* The process has ended. After a power loss, and by chance after any other end too, what was not
 * durable is lost, in part. */
void env_faulty_restart(struct env_faulty *w);
/* First of all in a process: env_files_found. */
enum err env_faulty_begin(struct env_faulty *w) MUST;
/* The file's bytes as processes see them, or as they are on the medium; NULL: no such file;
 * borrowed until it changes. */
const uint8_t *env_faulty_look(const struct env_faulty *w, const char *path, size_t *size_bytes);
const uint8_t *env_faulty_medium(const struct env_faulty *w, const char *path, size_t *size_bytes);

#endif
