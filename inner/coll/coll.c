/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the collectives, by launcher and device. */
#include "inner/coll/coll_nccl.h"
#include "inner/coll/launch.h"
#include "inner/coll/watch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef HAVE_MPI
static const bool has_mpi = true;
#else
static const bool has_mpi = false;
#endif

#ifdef HAVE_MPI
/* Processes that another MPI's mpiexec started are each alone for this one. */
static enum err same_mpi(struct coll **c, const struct launch *l)
{
    long launched = launch_size(l);
    int size = (*c)->size;
    if (launched <= 0 || launched == size)
        return ERR_OK;
    (*c)->ops->close(*c);
    *c = NULL;
    return err_set(ERR_UNSUPPORTED,
                   "%ld launched, %d in MPI: %s = %ld is of another MPI's launcher than this "
                   "program's MPI; start the ranks with the mpirun of the MPI that `ldd` shows for "
                   "this program, or unset %s for one rank",
                   launched, size, l->size_name, launched, l->size_name);
}
#endif

static enum err open_mpi(struct coll **c, const struct launch *l)
{
#ifdef HAVE_MPI
    TRY(coll_mpi_open(c));
    return same_mpi(c, l);
#else
    if (launch_size(l) == 1)
        return coll_self_open(c);
    return err_set(ERR_UNSUPPORTED,
                   "%ld ranks were launched (%s, seen by %s) and this build has no MPI: build "
                   "with -DMPI=ON, or start one rank",
                   launch_size(l), l->name, l->marker);
#endif
}

/* ---- GPUs: NCCL; MPI or the launcher's environment gives the address of rank 0 ---- */
enum { RANK_TIMEOUT_S = 120 }; /* until a rank has connected; until a silent rank counts as lost */

static struct coll *bootstrap; /* MPI; open as long as NCCL */
static struct watch *watch;

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

static enum err place_by_mpi(struct launch_place *p, int *listener)
{
    p->rank = bootstrap->rank;
    p->local_rank = bootstrap->local_rank;
    if (p->rank == 0) {
        const char *said = getenv("MASTER_ADDR");
        if (said || gethostname(p->host, sizeof p->host - 1))
            snprintf(p->host, sizeof p->host, "%s", said ? said : "127.0.0.1");
        snprintf(p->job, sizeof p->job, "mpi %ld", (long)getpid());
        TRY(watch_listen(listener, &p->port));
    }
    TRY(bootstrap->ops->broadcast_host(bootstrap, p->host, sizeof p->host, 0));
    TRY(bootstrap->ops->broadcast_host(bootstrap, &p->port, sizeof p->port, 0));
    return bootstrap->ops->broadcast_host(bootstrap, p->job, sizeof p->job, 0);
}

static enum err find_place(struct launch_place *p, const struct launch *l, int *listener)
{
    if (l->way == LAUNCH_MPI)
        return place_by_mpi(p, listener);
    TRY(launch_place(l, p));
    return p->rank == 0 ? watch_listen(listener, &p->port) : ERR_OK;
}

/* The ranks connect to rank 0's port and receive NCCL's id there. NCCL_COMM_ID is not used: such an
 * id holds no random number, so two jobs could mix, and a missing rank would not be named. */
static enum err open_nccl(struct coll **c, const struct launch *l, int ranks)
{
    const struct coll_nccl_module *m;
    struct launch_place p = {0};
    struct coll_nccl_options o = {.size = ranks, .timeout_s = RANK_TIMEOUT_S};
    int listener = -1;
    TRY(nccl_module(&m));
    TRY(find_place(&p, l, &listener));
    o.rank = p.rank;
    o.local_rank = p.local_rank;
    unsetenv("NCCL_COMM_ID"); /* from a shell: another job's. No thread runs yet */
    if (o.rank == 0)
        TRY(m->id(o.id));
    const struct watch_options rendezvous = {.rank = o.rank,
                                             .size = o.size,
                                             .host = p.host,
                                             .port = p.port,
                                             .listener = listener,
                                             .job = p.job,
                                             .shared = o.id,
                                             .shared_bytes = sizeof o.id,
                                             .timeout_s = RANK_TIMEOUT_S};
    TRY(watch_open(&watch, &rendezvous));
    return m->open(c, &o);
}

static enum err open_gpu(struct coll **c, const struct launch *l)
{
    int ranks = (int)launch_size(l);
    if (l->way == LAUNCH_MPI) {
        TRY(open_mpi(&bootstrap, l));
        ranks = bootstrap->size;
    }
    return ranks == 1 ? coll_self_open(c) : open_nccl(c, l, ranks);
}

static enum err open_cpu(struct coll **c, const struct launch *l)
{
    if (l->way == LAUNCH_ENVIRONMENT && launch_size(l) != 1)
        return err_set(
            ERR_UNSUPPORTED,
            "%s = %ld says that %s starts %ld ranks, and CPU ranks need MPI: use mpirun, or "
            "srun --mpi=pmix; if it is left over and this process is alone, unset %s",
            l->marker, launch_size(l), l->name, launch_size(l), l->marker);
    return l->way == LAUNCH_MPI ? open_mpi(c, l) : coll_self_open(c);
}

enum err coll_open(struct coll **c, const char *device_kind)
{
    bool gpu = strcmp(device_kind, "cuda") == 0;
    const struct launch *l = launch_find(!gpu || has_mpi);
    *c = NULL;
    enum err e = gpu ? open_gpu(c, l) : open_cpu(c, l);
    if (e == ERR_OK) {
        (*c)->found = l->name;
        coll_count(*c);
    } else { /* the others wait for this rank */
        watch_abort(watch, err_exit_code(e), err_message());
        watch = NULL;
    }
    return e;
}

/* NCCL's buffers (2.28 to 2.30): a channel's connection has 512 KiB for LL, 120 x 640 x 8 x 8 bytes
 * for LL128 and 4 MiB for Simple. At most 24 channels on NVLink, one connection of the ring and two
 * of the tree in each; with a switch that adds (NVLS) twice 8 steps of 128 KiB for each channel and
 * GPU of the host; the code of its kernels on top. */
size_t coll_memory_bytes(const char *device_kind, int ranks, size_t sum_bytes)
{
    enum { CHANNELS = 24, CONNECTIONS = 3, CODE = 128 << 20, HOST_GPUS = 8 };
    const size_t connection = (512 << 10) + 120 * 640 * 8 * 8 + (4 << 20),
                 nvls = 2 * 8 * (128 << 10);
    if (ranks == 1)
        return 0;
    if (!strcmp(device_kind, "cpu"))
        return sum_bytes; /* MPI's copy of the sum that runs */
    size_t gpus = (size_t)(ranks < HOST_GPUS ? ranks : HOST_GPUS);
    return CHANNELS * (CONNECTIONS * connection + gpus * nvls) + CODE;
}

enum err coll_alloc(struct coll *c, struct dev *d, void **p, size_t bytes)
{
    *p = NULL;
    if (!bytes)
        return ERR_OK;
    return c->ops->alloc ? c->ops->alloc(c, d, p, bytes) : dev_alloc(d, p, bytes);
}

void coll_follow(struct coll *c, const struct dev *d)
{
    if (c->ops->follow)
        c->ops->follow(c, d);
}

void coll_free(struct coll *c, struct dev *d, void *p)
{
    if (p && c->ops->free)
        c->ops->free(c, d, p);
    else
        dev_free(d, p);
}

void coll_close(struct coll *c)
{
    if (c)
        c->ops->close(c);
    watch_close(watch);
    watch = NULL;
    if (bootstrap)
        bootstrap->ops->close(bootstrap);
    bootstrap = NULL;
}

void coll_abort(struct coll *c, int exit_code)
{
    watch_abort(watch, exit_code, err_message());
    watch = NULL;
    if (c)
        c->ops->abort(c, exit_code);
}
