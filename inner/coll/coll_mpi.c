/* SPDX-License-Identifier: Apache-2.0 */
/* CPU ranks over MPI, on one host or many; the only file that includes mpi.h. MPI's own error
 * handler stays: a failed call ends the job, which is what a site does when it loses a rank.
 */
#include "inner/coll/coll.h"
#include "kernels/base/bf16.h"
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT_MAX = 1 << 30 }; /* MPI counts are int */
enum { QUEUE_MAX = 1024 };

enum job_kind { JOB_SUM, JOB_GATHER, JOB_SCATTER };
struct job { /* running or queued */
    enum job_kind kind;
    void *x;
    enum dtype type;
    int count;               /* JOB_SUM */
    struct coll_parts parts; /* the others */
};
struct coll_mpi {
    struct coll coll; /* first */
    MPI_Comm comm;
    struct job queue[QUEUE_MAX]; /* [head] is running; a ring */
    size_t head, queued;
    uint64_t begun; /* jobs so far: the ticket of the newest */
    MPI_Request running;
    MPI_Comm between;      /* messages of gathers and scatters */
    MPI_Request *messages; /* (2 ranks) of the one that runs */
    int messages_count;
    char *received; /* JOB_SCATTER: this rank's part from each other rank */
    size_t received_bytes;
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

/* ---- asynchronous collectives ----
 * One at a time: ten MPI_Iallreduce of 5 MB at once took 0.3-0.9 s on two busy cores where one of
 * 50 MB took 0.1 s (Open MPI 4.1.4): concurrent sums delay each other. Gathers and scatters of
 * parts are messages between each two ranks: what is sent is what must be, and sums have one order
 * (MPI_Ireduce_scatter of Open MPI 4.1 and 5.0 reduces all to one rank first). */
static MPI_Datatype type_of(enum dtype type)
{
    return type == DTYPE_F32 ? MPI_FLOAT : MPI_UINT16_T;
}

static void run_sum(struct coll_mpi *m, const struct job *s)
{
    MPI_Op op = s->type == DTYPE_F32 ? MPI_SUM : m->sum_bf16;
    MPI_Iallreduce(MPI_IN_PLACE, s->x, s->count, type_of(s->type), op, m->comm, &m->running);
}

static int part_count(const struct coll_parts *p, int rank)
{
    size_t count = p->first[rank + 1] - p->first[rank];
    ASSERT(count <= COUNT_MAX);
    return (int)count;
}

static char *part_at(const struct coll_parts *p, int rank)
{
    return (char *)p->whole + (p->first[rank] - p->first[0]) * dtype_size(p->type);
}

/* Where rank r's values for this rank's part arrive. */
static char *received_at(const struct coll_mpi *m, const struct coll_parts *p, int rank)
{
    int slot = rank < m->coll.rank ? rank : rank - 1;
    return m->received + (size_t)slot * (size_t)part_count(p, m->coll.rank) * dtype_size(p->type);
}

static void receive(struct coll_mpi *m, enum dtype type, void *to, int count, int from)
{
    if (count)
        MPI_Irecv(to, count, type_of(type), from, 0, m->between, &m->messages[m->messages_count++]);
}

static void send_part(struct coll_mpi *m, enum dtype type, const void *x, int count, int to)
{
    if (count)
        MPI_Isend(x, count, type_of(type), to, 0, m->between, &m->messages[m->messages_count++]);
}

static void run_gather(struct coll_mpi *m, const struct coll_parts *p)
{
    int rank = m->coll.rank, mine = part_count(p, rank);
    for (int r = 0; r < m->coll.size; r++)
        if (r != rank)
            receive(m, p->type, part_at(p, r), part_count(p, r), r);
    for (int k = 1; k < m->coll.size; k++)
        send_part(m, p->type, p->part, mine, (rank + k) % m->coll.size);
    if (mine && part_at(p, rank) != (char *)p->part)
        memcpy(part_at(p, rank), p->part, (size_t)mine * dtype_size(p->type));
}

static void run_scatter(struct coll_mpi *m, const struct coll_parts *p)
{
    int rank = m->coll.rank, mine = part_count(p, rank);
    for (int r = 0; r < m->coll.size; r++)
        if (r != rank)
            receive(m, p->type, received_at(m, p, r), mine, r);
    for (int k = 1; k < m->coll.size; k++) {
        int to = (rank + k) % m->coll.size;
        send_part(m, p->type, part_at(p, to), part_count(p, to), to);
    }
}

enum { ADDED = 1024 }; /* values at a time */

/* sum (count) += x, or = x. */
static void add_values(float *sum, const void *x, enum dtype type, size_t count, bool first)
{
    const float *f = x;
    const uint16_t *h = x;
    for (size_t i = 0; i < count; i++) {
        float value = type == DTYPE_F32 ? f[i] : bf16_float(h[i]);
        sum[i] = first ? value : sum[i] + value;
    }
}

static void put_values(void *to, enum dtype type, const float *sum, size_t count)
{
    if (type == DTYPE_F32)
        memcpy(to, sum, count * sizeof *sum);
    for (size_t i = 0; type != DTYPE_F32 && i < count; i++)
        ((uint16_t *)to)[i] = bf16_round(sum[i]);
}

/* This rank's part becomes the sum, in the order of the ranks. */
static void add_parts(const struct coll_mpi *m, const struct coll_parts *p)
{
    int rank = m->coll.rank;
    size_t count = (size_t)part_count(p, rank), size = dtype_size(p->type);
    for (size_t at = 0; at < count; at += ADDED) {
        float sum[ADDED];
        size_t n = count - at < ADDED ? count - at : ADDED;
        for (int r = 0; r < m->coll.size; r++) {
            const char *x = r == rank ? part_at(p, rank) : received_at(m, p, r);
            add_values(sum, x + at * size, p->type, n, r == 0);
        }
        put_values((char *)p->part + at * size, p->type, sum, n);
    }
}

static void run_head(struct coll_mpi *m)
{
    const struct job *j = &m->queue[m->head];
    m->messages_count = 0;
    if (j->kind == JOB_SUM)
        run_sum(m, j);
    else if (j->kind == JOB_GATHER)
        run_gather(m, &j->parts);
    else
        run_scatter(m, &j->parts);
}

static void add_bf16(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const uint16_t *a = in;
    uint16_t *b = inout;
    (void)type;
    for (int i = 0; i < *count; i++)
        b[i] = bf16_round(bf16_float(a[i]) + bf16_float(b[i]));
}

/* The running job is done. */
static void next(struct coll_mpi *m)
{
    const struct job *j = &m->queue[m->head];
    if (j->kind == JOB_SCATTER)
        add_parts(m, &j->parts);
    m->head = (m->head + 1) % QUEUE_MAX;
    if (--m->queued)
        run_head(m);
}

static bool head_is_done(struct coll_mpi *m, bool wait)
{
    int done = 1, n = m->messages_count;
    bool sum = m->queue[m->head].kind == JOB_SUM;
    if (wait && sum)
        MPI_Wait(&m->running, MPI_STATUS_IGNORE);
    else if (wait)
        MPI_Waitall(n, m->messages, MPI_STATUSES_IGNORE);
    else if (sum)
        MPI_Test(&m->running, &done, MPI_STATUS_IGNORE);
    else
        MPI_Testall(n, m->messages, &done, MPI_STATUSES_IGNORE);
    return done;
}

static enum err progress(struct coll *c)
{
    struct coll_mpi *m = (struct coll_mpi *)c;
    for (int tag = 0, sent; tag < COLL_TAGS; tag++)
        if (m->sending[tag] != MPI_REQUEST_NULL)
            MPI_Test(&m->sending[tag], &sent, MPI_STATUS_IGNORE);
    while (m->queued && head_is_done(m, false))
        next(m);
    return ERR_OK;
}

static enum err ticket_wait(struct coll *c, uint64_t ticket)
{
    struct coll_mpi *m = (struct coll_mpi *)c;
    while (m->queued && m->begun - m->queued < ticket) {
        (void)head_is_done(m, true);
        next(m);
    }
    return ERR_OK;
}

static enum err reduce_wait(struct coll *c)
{
    return ticket_wait(c, ((struct coll_mpi *)c)->begun);
}

static enum err begin_job(struct coll_mpi *m, const struct job *j)
{
    if (m->queued == QUEUE_MAX)
        TRY(reduce_wait(&m->coll));
    m->queue[(m->head + m->queued++) % QUEUE_MAX] = *j;
    m->begun++;
    if (m->queued == 1)
        run_head(m);
    return ERR_OK;
}

static enum err reduce_begin(struct coll *c, void *x, enum dtype type, size_t count)
{
    struct coll_mpi *m = (struct coll_mpi *)c;
    for (size_t at = 0; at < count; at += COUNT_MAX)
        TRY(begin_job(m, &(struct job){.kind = JOB_SUM,
                                       .x = (char *)x + at * dtype_size(type),
                                       .type = type,
                                       .count = chunk(count - at)}));
    return ERR_OK;
}

static enum err all_gather_begin(struct coll *c, const struct coll_parts *p, uint64_t *ticket)
{
    struct coll_mpi *m = (struct coll_mpi *)c;
    TRY(begin_job(m, &(struct job){.kind = JOB_GATHER, .parts = *p}));
    *ticket = m->begun;
    return ERR_OK;
}

/* Room for the largest part so far. What runs keeps its room, so this waits for it. */
static enum err receive_room(struct coll_mpi *m, const struct coll_parts *p)
{
    size_t bytes =
        (size_t)(m->coll.size - 1) * (size_t)part_count(p, m->coll.rank) * dtype_size(p->type);
    if (bytes <= m->received_bytes)
        return ERR_OK;
    TRY(reduce_wait(&m->coll));
    free(m->received);
    m->received_bytes = 0;
    m->received = malloc(bytes);
    if (!m->received)
        return err_set(ERR_MEMORY, "no memory for %zu bytes of the other ranks' gradients", bytes);
    m->received_bytes = bytes;
    return ERR_OK;
}

static enum err reduce_scatter_begin(struct coll *c, const struct coll_parts *p, uint64_t *ticket)
{
    struct coll_mpi *m = (struct coll_mpi *)c;
    TRY(receive_room(m, p));
    TRY(begin_job(m, &(struct job){.kind = JOB_SCATTER, .parts = *p}));
    *ticket = m->begun;
    return ERR_OK;
}

/* A rank that waits inside MPI begins nothing that is queued here, and others may wait for that: so
 * blocking calls come after all that has begun. */
static enum err all_gather(struct coll *c, void *x, size_t unit_bytes, const size_t *first)
{
    TRY(reduce_wait(c));
    for (int r = 0; r < c->size; r++)
        for (size_t at = first[r] * unit_bytes, end = first[r + 1] * unit_bytes; at < end;
             at += COUNT_MAX)
            MPI_Bcast((char *)x + at, chunk(end - at), MPI_BYTE, r, comm_of(c));
    return ERR_OK;
}

/* In W - 1 rounds: in round k this rank sends to the rank k after it. */
static enum err all_to_all(struct coll *c, void *to, const void *from, size_t unit_bytes,
                           const size_t *first)
{
    size_t mine = (first[c->rank + 1] - first[c->rank]) * unit_bytes;
    TRY(reduce_wait(c));
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
    TRY(reduce_wait(c));
    for (size_t at = 0; at < count; at += COUNT_MAX)
        MPI_Allreduce(MPI_IN_PLACE, x + at, chunk(count - at), MPI_DOUBLE, MPI_SUM, comm_of(c));
    return ERR_OK;
}

static enum err broadcast(struct coll *c, void *x, size_t bytes, int from)
{
    TRY(reduce_wait(c));
    for (size_t at = 0; at < bytes; at += COUNT_MAX)
        MPI_Bcast((char *)x + at, chunk(bytes - at), MPI_BYTE, from, comm_of(c));
    return ERR_OK;
}

static enum err nothing(struct coll *c) /* every other call is synchronous */
{
    (void)c;
    return ERR_OK;
}

static enum err barrier(struct coll *c)
{
    TRY(reduce_wait(c));
    MPI_Barrier(comm_of(c));
    return ERR_OK;
}

static void close_mpi(struct coll *c)
{
    struct coll_mpi *m = (struct coll_mpi *)c;
    MPI_Op_free(&m->sum_bf16);
    MPI_Comm_free(&m->between);
    free(m->messages);
    free(m->received);
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
                                        .all_gather_begin = all_gather_begin,
                                        .reduce_scatter_begin = reduce_scatter_begin,
                                        .ticket_wait = ticket_wait,
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
    MPI_Comm_dup(mpi.comm, &mpi.between);
    TRY_ALLOC(mpi.messages = malloc(2 * (size_t)mpi.coll.size * sizeof *mpi.messages));
    *c = &mpi.coll;
    return ERR_OK;
}
