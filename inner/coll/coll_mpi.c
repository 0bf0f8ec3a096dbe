/* CPU ranks over MPI, on one host or many; the only file that includes mpi.h. MPI's own error
 * handler stays: a failed call ends the job, which is what a site does when it loses a rank.
 */
#include "inner/coll/coll.h"
#include "kernels/base/bf16.h"
#include <mpi.h>

enum { COUNT_MAX = 1 << 30 }; /* MPI counts are int */
enum { QUEUE_MAX = 1024 };

struct sum { /* running or queued */
    void *x;
    enum dtype type;
    int count, root;
};
struct coll_mpi {
    struct coll coll; /* first */
    MPI_Comm comm;
    struct sum queue[QUEUE_MAX]; /* [head] is running; a ring */
    size_t head, queued;
    MPI_Request running;
    MPI_Request sending[COLL_TAGS]; /* point to point; MPI_REQUEST_NULL: none */
    MPI_Op sum_bf16;                /* MPI has no such type: 16-bit words with a sum of our own */
};

static MPI_Comm comm_of(struct coll *c)
{
    return ((struct coll_mpi *)c)->comm;
}

static int chunk(size_t left)
{
    return left < COUNT_MAX ? (int)left : COUNT_MAX;
}

/* ---- asynchronous sums ----
 * One at a time: ten MPI_Iallreduce of 5 MB at once took 0.3-0.9 s on two busy cores where one of
 * 50 MB took 0.1 s (Open MPI 4.1.4): concurrent sums delay each other. */
static void run_head(struct coll_mpi *m)
{
    const struct sum *s = &m->queue[m->head];
    bool mine = s->root == m->coll.rank;
    MPI_Datatype type = s->type == DTYPE_F32 ? MPI_FLOAT : MPI_UINT16_T;
    MPI_Op op = s->type == DTYPE_F32 ? MPI_SUM : m->sum_bf16;
    if (s->root == COLL_ALL)
        MPI_Iallreduce(MPI_IN_PLACE, s->x, s->count, type, op, m->comm, &m->running);
    else
        MPI_Ireduce(mine ? MPI_IN_PLACE : s->x, mine ? s->x : NULL, s->count, type, op, s->root,
                    m->comm, &m->running);
}

static void add_bf16(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const uint16_t *a = in;
    uint16_t *b = inout;
    (void)type;
    for (int i = 0; i < *count; i++)
        b[i] = bf16_round(bf16_float(a[i]) + bf16_float(b[i]));
}

static void next(struct coll_mpi *m)
{
    m->head = (m->head + 1) % QUEUE_MAX;
    if (--m->queued)
        run_head(m);
}

static enum err progress(struct coll *c)
{
    struct coll_mpi *m = (struct coll_mpi *)c;
    int done = m->queued > 0;
    for (int tag = 0, sent; tag < COLL_TAGS; tag++)
        if (m->sending[tag] != MPI_REQUEST_NULL)
            MPI_Test(&m->sending[tag], &sent, MPI_STATUS_IGNORE);
    while (done && m->queued) {
        MPI_Test(&m->running, &done, MPI_STATUS_IGNORE);
        if (done)
            next(m);
    }
    return ERR_OK;
}

static enum err reduce_wait(struct coll *c)
{
    struct coll_mpi *m = (struct coll_mpi *)c;
    while (m->queued) {
        MPI_Wait(&m->running, MPI_STATUS_IGNORE);
        next(m);
    }
    return ERR_OK;
}

static enum err reduce_begin(struct coll *c, void *x, enum dtype type, size_t count, int root)
{
    struct coll_mpi *m = (struct coll_mpi *)c;
    for (size_t at = 0; at < count; at += COUNT_MAX) {
        if (m->queued == QUEUE_MAX)
            TRY(reduce_wait(c));
        m->queue[(m->head + m->queued++) % QUEUE_MAX] =
            (struct sum){(char *)x + at * dtype_size(type), type, chunk(count - at), root};
        if (m->queued == 1)
            run_head(m);
    }
    return ERR_OK;
}

static enum err all_gather(struct coll *c, void *x, size_t unit_bytes, const size_t *first)
{
    for (int r = 0; r < c->size; r++)
        for (size_t at = first[r] * unit_bytes, end = first[r + 1] * unit_bytes; at < end;
             at += COUNT_MAX)
            MPI_Bcast((char *)x + at, chunk(end - at), MPI_BYTE, r, comm_of(c));
    return ERR_OK;
}

/* In W - 1 rounds: in round k this rank sends to the rank k behind it. */
static enum err all_to_all(struct coll *c, void *to, const void *from, size_t unit_bytes,
                           const size_t *first)
{
    size_t mine = (first[c->rank + 1] - first[c->rank]) * unit_bytes;
    for (int k = 0; k < c->size; k++) {
        int target = (c->rank + k) % c->size, source = (c->rank - k + c->size) % c->size;
        const char *out = (const char *)from + first[target] * unit_bytes;
        char *in = (char *)to + (size_t)source * mine;
        size_t out_bytes = (first[target + 1] - first[target]) * unit_bytes;
        for (size_t at = 0; at < out_bytes || at < mine; at += COUNT_MAX)
            MPI_Sendrecv(out + at, at < out_bytes ? chunk(out_bytes - at) : 0, MPI_BYTE, target, 0,
                         in + at, at < mine ? chunk(mine - at) : 0, MPI_BYTE, source, 0, comm_of(c),
                         MPI_STATUS_IGNORE);
    }
    return ERR_OK;
}

static enum err send_begin(struct coll *c, const void *x, size_t bytes, int to, int tag)
{
    struct coll_mpi *m = (struct coll_mpi *)c;
    ASSERT(tag >= 0 && tag < COLL_TAGS);
    ASSERT(bytes <= COUNT_MAX && m->sending[tag] == MPI_REQUEST_NULL);
    MPI_Isend(x, (int)bytes, MPI_BYTE, to, tag, m->comm, &m->sending[tag]);
    return ERR_OK;
}

static enum err send_wait(struct coll *c, int tag)
{
    MPI_Wait(&((struct coll_mpi *)c)->sending[tag], MPI_STATUS_IGNORE);
    return ERR_OK;
}

static enum err recv_bytes(struct coll *c, void *x, size_t bytes, int from, int tag)
{
    ASSERT(bytes <= COUNT_MAX);
    MPI_Recv(x, (int)bytes, MPI_BYTE, from, tag, comm_of(c), MPI_STATUS_IGNORE);
    return ERR_OK;
}

static enum err all_reduce_host(struct coll *c, double *x, size_t count)
{
    for (size_t at = 0; at < count; at += COUNT_MAX)
        MPI_Allreduce(MPI_IN_PLACE, x + at, chunk(count - at), MPI_DOUBLE, MPI_SUM, comm_of(c));
    return ERR_OK;
}

static enum err broadcast(struct coll *c, void *x, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += COUNT_MAX)
        MPI_Bcast((char *)x + at, chunk(bytes - at), MPI_BYTE, 0, comm_of(c));
    return ERR_OK;
}

static enum err nothing(struct coll *c) /* every other call is synchronous */
{
    (void)c;
    return ERR_OK;
}

static enum err barrier(struct coll *c)
{
    MPI_Barrier(comm_of(c));
    return ERR_OK;
}

static void close_mpi(struct coll *c)
{
    MPI_Op_free(&((struct coll_mpi *)c)->sum_bf16);
    MPI_Finalize();
}

static void abort_mpi(struct coll *c, int exit_code)
{
    MPI_Abort(comm_of(c), exit_code);
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
    static const struct coll_ops ops = {.reduce_begin = reduce_begin,
                                        .progress = progress,
                                        .reduce_wait = reduce_wait,
                                        .all_gather = all_gather,
                                        .all_to_all = all_to_all,
                                        .send_begin = send_begin,
                                        .send_wait = send_wait,
                                        .recv = recv_bytes,
                                        .all_reduce =
                                            all_reduce_host, /* the device's memory is the host's */
                                        .event_record = nothing,
                                        .event_wait = nothing,
                                        .all_reduce_host = all_reduce_host,
                                        .broadcast = broadcast,
                                        .broadcast_host = broadcast,
                                        .barrier = barrier,
                                        .close = close_mpi,
                                        .abort = abort_mpi};
    static struct coll_mpi mpi; /* MPI itself can be opened once per process */
    int given;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &given) != MPI_SUCCESS)
        return err_set(ERR_UNSUPPORTED,
                       "MPI_Init failed: start the ranks with mpirun of the same MPI");
    mpi.coll = (struct coll){.ops = &ops, .local_rank = local_rank(), .kind = "mpi"};
    mpi.comm = MPI_COMM_WORLD;
    for (int tag = 0; tag < COLL_TAGS; tag++)
        mpi.sending[tag] = MPI_REQUEST_NULL;
    MPI_Op_create(add_bf16, 1, &mpi.sum_bf16);
    MPI_Comm_rank(mpi.comm, &mpi.coll.rank);
    MPI_Comm_size(mpi.comm, &mpi.coll.size);
    *c = &mpi.coll;
    return ERR_OK;
}
