/* Chooses the collectives: the table of launchers. */
#include "inner/coll/coll.h"
#include <stdlib.h>
#include <string.h>

enum way { WAY_SELF, WAY_MPI, WAY_ENVIRONMENT };
struct launcher {
    const char *name, *mark; /* the variable that betrays it */
    const char *size;        /* the variable with the number of ranks; NULL: ask MPI */
    enum way way;
};
static const struct launcher launchers[] = {
    /* first match wins */
    {"Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", WAY_MPI},
    {"PMI", "PMI_SIZE", "PMI_SIZE", WAY_MPI},
    {"PMIx", "PMIX_RANK", NULL, WAY_MPI},
    {"torchrun", "WORLD_SIZE", "WORLD_SIZE", WAY_ENVIRONMENT},
    {"Slurm", "SLURM_NTASKS", "SLURM_NTASKS", WAY_ENVIRONMENT},
    {"none", NULL, NULL, WAY_SELF},
};

static const struct launcher *find(void)
{
    const struct launcher *l = launchers;
    while (l->mark && !getenv(l->mark))
        l++;
    return l;
}

/* 0: only MPI knows. */
static long launched(const struct launcher *l)
{
    const char *value = l->size ? getenv(l->size) : NULL;
    return l->way == WAY_SELF ? 1 : value ? strtol(value, NULL, 10) : 0;
}

static enum err open_mpi(struct coll **c, const struct launcher *l)
{
#ifdef HAVE_MPI
    (void)l;
    return coll_mpi_open(c);
#else
    if (launched(l) == 1)
        return coll_self_open(c);
    return err_set(ERR_UNSUPPORTED,
                   "%ld ranks were launched (%s, seen by %s) and this build has no MPI: build "
                   "with -DMPI=ON, or start one rank",
                   launched(l), l->name, l->mark);
#endif
}

enum err coll_open(struct coll **c, const char *device_kind)
{
    const struct launcher *l = find();
    *c = NULL;
    if (strcmp(device_kind, "cpu"))
        return err_set(ERR_UNSUPPORTED, "this build has no collectives for device.kind = %s",
                       device_kind);
    if (l->way == WAY_ENVIRONMENT && launched(l) != 1)
        return err_set(
            ERR_UNSUPPORTED,
            "%ld ranks were launched by %s (seen by %s); CPU ranks need MPI: use mpirun, "
            "or srun --mpi=pmix",
            launched(l), l->name, l->mark);
    if (l->way == WAY_MPI)
        TRY(open_mpi(c, l));
    else
        TRY(coll_self_open(c));
    (*c)->found = l->name;
    return ERR_OK;
}

void coll_close(struct coll *c)
{
    if (c)
        c->ops->close(c);
}

void coll_abort(struct coll *c, int exit_code)
{
    if (c)
        c->ops->abort(c, exit_code);
}
