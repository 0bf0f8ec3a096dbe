#ifndef LAUNCH_H
#define LAUNCH_H
/* What the launcher's environment says: how many ranks this site has, which of them this process
 * is, where rank 0 can be met. Launcher's facts only, never how to train.
 */
#include <stdbool.h>
#include <stddef.h>
#include "kernels/base/err.h"

enum launch_way { LAUNCH_SELF, LAUNCH_MPI, LAUNCH_ENVIRONMENT };
struct launch {
    const char *name, *mark; /* the launcher; the variable that betrays it */
    const char *size_name;   /* variable with the number of ranks; NULL: ask MPI */
    enum launch_way way;
    const char *rank_name, *local_rank_name; /* variables, where the environment is all there is */
};
struct launch_place { /* of one rank */
    int rank, local_rank;
    char host[256]; /* rank 0's */
    int port;       /* there */
    char job[128];  /* what this job's ranks call it, and no other's at the same port */
};

/* Never NULL. mpi: this process can ask MPI. If not, what else a launcher said counts first: srun
 * sets PMIx's variables beside its own. */
const struct launch *launch_find(bool mpi);
long launch_size(const struct launch *l); /* 0: only MPI knows */
/* LAUNCH_ENVIRONMENT only. ERR_CONFIG names the variable that is missing or no number. */
enum err launch_place(const struct launch *l, struct launch_place *p) MUST;

#endif
