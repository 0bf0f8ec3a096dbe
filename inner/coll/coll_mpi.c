/* CPU ranks over MPI, on one host or many; the only file that includes mpi.h. MPI's own error
 * handler stays: a failed call ends the job, which is what a site does when it loses a rank.
 */
#include "inner/coll/coll.h"
#include <mpi.h>

enum { COUNT_MAX = 1 << 30 }; /* MPI counts are int */

struct coll_mpi {
    struct coll coll; /* first */
    MPI_Comm world;
};

static MPI_Comm world(struct coll *c)
{
    return ((struct coll_mpi *)c)->world;
}

static int chunk(size_t left)
{
    return left < COUNT_MAX ? (int)left : COUNT_MAX;
}

static enum err sum(struct coll *c, float *x, size_t count)
{
    for (size_t at = 0; at < count; at += COUNT_MAX)
        MPI_Allreduce(MPI_IN_PLACE, x + at, chunk(count - at), MPI_FLOAT, MPI_SUM, world(c));
    return ERR_OK;
}

static enum err sum_host(struct coll *c, double *x, size_t count)
{
    for (size_t at = 0; at < count; at += COUNT_MAX)
        MPI_Allreduce(MPI_IN_PLACE, x + at, chunk(count - at), MPI_DOUBLE, MPI_SUM, world(c));
    return ERR_OK;
}

static enum err broadcast(struct coll *c, void *x, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += COUNT_MAX)
        MPI_Bcast((char *)x + at, chunk(bytes - at), MPI_BYTE, 0, world(c));
    return ERR_OK;
}

static enum err barrier(struct coll *c)
{
    MPI_Barrier(world(c));
    return ERR_OK;
}

static void close_mpi(struct coll *c)
{
    (void)c;
    MPI_Finalize();
}

static void abort_mpi(struct coll *c, int exit_code)
{
    MPI_Abort(world(c), exit_code);
}

static int local_rank(void)
{
    MPI_Comm host;
    int rank;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &rank);
    MPI_Comm_free(&host);
    return rank;
}

enum err coll_mpi_open(struct coll **c)
{
    static const struct coll_ops ops = {sum,     sum_host,  broadcast, broadcast,
                                        barrier, close_mpi, abort_mpi};
    static struct coll_mpi mpi; /* MPI itself can be opened once per process */
    int given;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &given) != MPI_SUCCESS)
        return err_set(ERR_UNSUPPORTED,
                       "MPI_Init failed: start the ranks with mpirun of the same MPI");
    mpi.coll = (struct coll){.ops = &ops, .local_rank = local_rank(), .kind = "mpi"};
    mpi.world = MPI_COMM_WORLD;
    MPI_Comm_rank(mpi.world, &mpi.coll.rank);
    MPI_Comm_size(mpi.world, &mpi.coll.size);
    *c = &mpi.coll;
    return ERR_OK;
}
