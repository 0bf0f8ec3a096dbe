/* Chooses the collectives: the table of launchers. */
#include "inner/coll/coll_nccl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum way { WAY_SELF, WAY_MPI, WAY_ENVIRONMENT };
struct launcher {
    const char *name, *mark; /* the variable that betrays it */
    const char *size;        /* the variable with the number of ranks; NULL: ask MPI */
    enum way way;
    const char *rank, *local_rank; /* variables, where the environment is all there is */
};
static const struct launcher launchers[] = {
    /* first match wins */
    {"Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", WAY_MPI, NULL, NULL},
    {"PMI", "PMI_SIZE", "PMI_SIZE", WAY_MPI, NULL, NULL},
    {"PMIx", "PMIX_RANK", NULL, WAY_MPI, NULL, NULL},
    {"torchrun", "WORLD_SIZE", "WORLD_SIZE", WAY_ENVIRONMENT, "RANK", "LOCAL_RANK"},
    {"Slurm", "SLURM_NTASKS", "SLURM_NTASKS", WAY_ENVIRONMENT, "SLURM_PROCID", "SLURM_LOCALID"},
    {"none", NULL, NULL, WAY_SELF, NULL, NULL},
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

/* ---- GPUs: NCCL does the sums; MPI or the launcher's environment says who is rank 0 -------------
 */
enum { JOIN_SECONDS = 120 };

static enum err nccl_module(const struct coll_nccl_module **m)
{
    void *symbol;
    coll_nccl_get *get;
    TRY(module_find(COLL_NCCL_FILE, COLL_NCCL_NAME, &symbol));
    memcpy(&get, &symbol, sizeof get); /* C has no cast from object to function pointers */
    *m = get(module_host());
    if ((*m)->coll_bytes != sizeof(struct coll))
        return err_set(ERR_UNSUPPORTED, "%s is of another build of this program", COLL_NCCL_FILE);
    return ERR_OK;
}

/* The environment's number; ERR_CONFIG names the variable that is missing. */
static enum err number(const char *name, int *value)
{
    const char *text = getenv(name);
    if (!text)
        return err_set(ERR_CONFIG, "several ranks were launched, but %s is not set", name);
    *value = (int)strtol(text, NULL, 10);
    return ERR_OK;
}

/* Always set by us: one inherited from a shell would join this job to another. No thread runs yet.
 */
static enum err say_address(void)
{
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    const char *taken = getenv("TORCHELASTIC_USE_AGENT_STORE");
    char address[320], ours[16];
    if (!host || !port)
        return err_set(ERR_CONFIG,
                       "several ranks were launched: set MASTER_ADDR and MASTER_PORT to "
                       "rank 0's host and a free port there");
    /* torchrun itself listens on the port that it tells its workers. Another that all ranks come to: below 32768, where no
     * outgoing connection takes it. */
    if (taken && strcmp(taken, "True") == 0) {
        snprintf(ours, sizeof ours, "%ld", 10000 + strtol(port, NULL, 10) % 20000);
        port = ours;
    }
    snprintf(address, sizeof address, "%s:%s", host, port);
    return setenv("NCCL_COMM_ID", address, 1) ? err_set(ERR_MEMORY, "no memory for the environment")
                                              : ERR_OK;
}

static enum err nccl_by_environment(struct coll **c, const struct launcher *l)
{
    const struct coll_nccl_module *m;
    struct coll_nccl_options o = {.size = (int)launched(l), .timeout_s = JOIN_SECONDS};
    TRY(number(l->rank, &o.rank));
    TRY(number(l->local_rank, &o.local_rank));
    TRY(say_address());
    TRY(nccl_module(&m));
    return m->open(c, &o);
}

static struct coll *bootstrap; /* MPI, open as long as the NCCL ranks that it brought together */

static enum err nccl_by_mpi(struct coll **c, const struct launcher *l)
{
    const struct coll_nccl_module *m;
    TRY(open_mpi(&bootstrap, l));
    struct coll_nccl_options o = {.rank = bootstrap->rank,
                                  .size = bootstrap->size,
                                  .local_rank = bootstrap->local_rank,
                                  .id_given = true,
                                  .timeout_s = JOIN_SECONDS};
    if (o.size == 1)
        return coll_self_open(c);
    TRY(nccl_module(&m));
    if (o.rank == 0)
        TRY(m->id(o.id));
    TRY(bootstrap->ops->broadcast_host(bootstrap, o.id, sizeof o.id));
    return m->open(c, &o);
}

static enum err open_gpu(struct coll **c, const struct launcher *l)
{
    if (launched(l) == 1)
        TRY(coll_self_open(c));
    else if (l->way == WAY_MPI)
        TRY(nccl_by_mpi(c, l));
    else
        TRY(nccl_by_environment(c, l));
    (*c)->found = l->name;
    return ERR_OK;
}

enum err coll_open(struct coll **c, const char *device_kind)
{
    const struct launcher *l = find();
    *c = NULL;
    if (strcmp(device_kind, "cuda") == 0)
        return open_gpu(c, l);
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

/* NCCL's buffers (2.28 to 2.30): a channel's connection has 512 KiB for LL, 120 x 640 x 8 x 8 bytes for
 * LL128 and 4 MiB for Simple. At most 24 channels on NVLink, one connection of the ring and two of
 * the tree in each; with a switch that adds (NVLS) twice 8 steps of 128 KiB for each channel and
 * GPU of the host; the code of its kernels on top. */
size_t coll_memory_bytes(const char *device_kind, int ranks)
{
    enum { CHANNELS = 24, CONNECTIONS = 3, CODE = 128 << 20, HOST_GPUS = 8 };
    const size_t connection = (512 << 10) + 120 * 640 * 8 * 8 + (4 << 20), nvls = 2 * 8 * (128 << 10);
    if (ranks == 1 || !strcmp(device_kind, "cpu"))
        return 0;
    size_t gpus = (size_t)(ranks < HOST_GPUS ? ranks : HOST_GPUS);
    return CHANNELS * (CONNECTIONS * connection + gpus * nvls) + CODE;
}

void coll_close(struct coll *c)
{
    if (c)
        c->ops->close(c);
    if (bootstrap)
        bootstrap->ops->close(bootstrap);
    bootstrap = NULL;
}

void coll_abort(struct coll *c, int exit_code)
{
    if (c)
        c->ops->abort(c, exit_code);
}
