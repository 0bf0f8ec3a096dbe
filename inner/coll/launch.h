/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LAUNCH_H
#define LAUNCH_H
/* The launcher's environment: the number of ranks of this site, the rank of this process, the
 * address of rank 0. Never how to train.
 */
#include <stdbool.h>
#include <stddef.h>
#include "kernels/base/err.h"

enum launch_way { LAUNCH_SELF, LAUNCH_MPI, LAUNCH_ENVIRONMENT };
struct launch {
    const char *name, *marker; /* the launcher; the variable that identifies it */
    const char *size_name;     /* variable with the number of ranks; NULL: ask MPI */
    enum launch_way way;
    const char *rank_name, *local_rank_name; /* variables, for LAUNCH_ENVIRONMENT */
};
struct launch_place { /* of one rank */
    int rank, local_rank;
    char host[256]; /* rank 0's */
    int port;       /* there */
    char job[128];  /* the same in all ranks of this job, different in other jobs */
};

/* Never NULL. mpi: this build can use MPI. If not, other launchers' variables have precedence over
 * MPI's: srun sets PMIx's in addition to its own. */
const struct launch *launch_find(bool mpi);
long launch_size(const struct launch *l); /* 0: only MPI knows */
/* LAUNCH_ENVIRONMENT only. ERR_CONFIG names the variable that is missing or no number. */
enum err launch_place(const struct launch *l, struct launch_place *p) MUST;

#endif
