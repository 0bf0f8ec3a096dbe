/* SPDX-License-Identifier: Apache-2.0 */
/* The table of launchers. */
#include "inner/coll/launch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct launch launchers[] = {
    /* first match wins */
    {"Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", LAUNCH_MPI, NULL, NULL},
    {"PMI", "PMI_SIZE", "PMI_SIZE", LAUNCH_MPI, NULL, NULL},
    {"PMIx", "PMIX_RANK", NULL, LAUNCH_MPI, NULL, NULL},
    {"torchrun", "WORLD_SIZE", "WORLD_SIZE", LAUNCH_ENVIRONMENT, "RANK", "LOCAL_RANK"},
    {"Slurm", "SLURM_NTASKS", "SLURM_NTASKS", LAUNCH_ENVIRONMENT, "SLURM_PROCID", "SLURM_LOCALID"},
    {"none", NULL, NULL, LAUNCH_SELF, NULL, NULL},
};

const struct launch *launch_find(bool mpi)
{
    const struct launch *l = launchers, *by_mpi = NULL;
    for (; l->marker; l++)
        if (getenv(l->marker)) {
            if (mpi || l->way != LAUNCH_MPI)
                return l;
            by_mpi = by_mpi ? by_mpi : l;
        }
    return by_mpi ? by_mpi : l;
}

long launch_size(const struct launch *l)
{
    const char *value = l->size_name ? getenv(l->size_name) : NULL;
    return l->way == LAUNCH_SELF ? 1 : value ? strtol(value, NULL, 10) : 0;
}

static enum err number(const char *name, long max, int *value)
{
    const char *text = getenv(name);
    char *end;
    if (!text)
        return err_set(ERR_CONFIG, "several ranks were launched, but %s is not set", name);
    long n = strtol(text, &end, 10);
    if (end == text || *end || n < 0 || n > max)
        return err_set(ERR_CONFIG, "%s is '%s', not a number from 0 to %ld", name, text, max);
    *value = (int)n;
    return ERR_OK;
}

static const char *variable(const char *name)
{
    const char *text = getenv(name);
    return text ? text : "";
}

/* The first of Slurm's list, "gpu[03-07,12],login" or "node1". */
static void first_host(char *out, size_t size, const char *list)
{
    size_t prefix = strcspn(list, "[,"), digits = 0;
    const char *number = "";
    if (list[prefix] == '[') {
        number = list + prefix + 1;
        digits = strcspn(number, "-,]");
    }
    snprintf(out, size, "%.*s%.*s", (int)prefix, list, (int)digits, number);
}

/* Under Slurm the step's first node has rank 0. The numbers of job and step give a port that other
 * jobs are unlikely to use, below 32768, where outgoing connections take none. */
static enum err rank0_address(struct launch_place *p)
{
    if (*variable("MASTER_ADDR") && *variable("MASTER_PORT")) {
        snprintf(p->host, sizeof p->host, "%s", variable("MASTER_ADDR"));
        return number("MASTER_PORT", 65535, &p->port);
    }
    if (!*variable("SLURM_STEP_NODELIST") || !*variable("SLURM_JOB_ID") ||
        *variable("MASTER_ADDR") || *variable("MASTER_PORT"))
        return err_set(ERR_CONFIG,
                       "several ranks were launched: set MASTER_ADDR and MASTER_PORT to "
                       "rank 0's host and a free port there");
    first_host(p->host, sizeof p->host, variable("SLURM_STEP_NODELIST"));
    p->port = 10000 + (int)((strtoul(variable("SLURM_JOB_ID"), NULL, 10) * 7 +
                             strtoul(variable("SLURM_STEP_ID"), NULL, 10)) %
                            20000);
    return ERR_OK;
}

enum err launch_place(const struct launch *l, struct launch_place *p)
{
    long size = launch_size(l);
    if (size < 1 || size > 1 << 20)
        return err_set(ERR_CONFIG, "%s is '%s', not a number of ranks", l->size_name,
                       variable(l->size_name));
    TRY(number(l->rank_name, size - 1, &p->rank));
    TRY(number(l->local_rank_name, size - 1, &p->local_rank));
    TRY(rank0_address(p));
    /* torchrun itself listens at MASTER_PORT: the ranks use another one, derived from it. */
    if (!strcmp(variable("TORCHELASTIC_USE_AGENT_STORE"), "True"))
        p->port = 10000 + p->port % 20000;
    snprintf(p->job, sizeof p->job, "%s %.40s %.40s %.20s %.20s", l->name,
             variable("TORCHELASTIC_RUN_ID"), variable("TORCHELASTIC_RESTART_COUNT"),
             variable("SLURM_JOB_ID"), variable("SLURM_STEP_ID"));
    return ERR_OK;
}
