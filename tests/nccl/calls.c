/* SPDX-License-Identifier: Apache-2.0 */
/* What test_calls.sh starts as each rank: one thing that goes wrong between the ranks of a site,
 * and what this rank then says.
 *
 *     calls CASE RANK SIZE PORT [SECONDS]     SECONDS: the patience of watch or collectives, 20
 *
 * On a machine with GPUs also next to the real modules.
 *
 * CASEs of the watch: stays (till it is ended), aborts, closes (one after the other), strangers
 * (twenty who talk nonsense to the port or say nothing, and stay), echo (says to rank 0 what it
 * says), other (of another job). Of NCCL: sums, late (the last
 * rank never comes to a sum), leaves (it is killed there), opens (local rank RANK; only opening).
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include "inner/coll/coll_nccl.h"
#include "inner/coll/watch.h"

static const char *what;
static int rank, size, port, seconds;

static bool is(const char *name)
{
    return !strcmp(what, name);
}

static bool last(void)
{
    return rank == size - 1;
}

static enum err ready(void) /* the script waits for this line */
{
    printf("rank %d is there\n", rank);
    return fflush(stdout) ? err_set(ERR_IO, "stdout") : ERR_OK;
}

static int knock(void)
{
    struct sockaddr_in to = {AF_INET, htons((uint16_t)port), {htonl(INADDR_LOOPBACK)}, {0}};
    for (int i = 0; i < 100; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
            return fd;
        close(fd);
        usleep(20000);
    }
    return -1;
}

static enum err strangers(void)
{
    char text[300] = "GET / HTTP/1.1";
    for (int i = 0; i < 20; i++) {
        int fd = knock();
        if (fd < 0 || (i == 0 && write(fd, text, sizeof text) != sizeof text))
            return err_set(ERR_IO, "no process listens");
    }
    TRY(ready());
    sleep(60);
    return ERR_OK;
}

static enum err echo(void)
{
    char text[300];
    int fd = knock();
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text);
    if (n <= 0 || write(fd, text, (size_t)n) != n)
        return err_set(ERR_IO, "no process listens");
    return read(fd, text, 1) == 0 ? ERR_OK : err_set(ERR_DISAGREE, "rank 0 took its own words");
}

static enum err after_meeting(struct watch *w)
{
    TRY(ready());
    if (is("stays"))
        sleep(60);
    if (is("aborts") && last()) {
        usleep(300000);
        watch_abort(w, 4, "its disk is full");
        return err_set(ERR_CONFIG, "its disk is full");
    }
    if (is("aborts"))
        sleep(60);
    if (is("closes"))
        usleep((unsigned)(rank * 200000));
    watch_close(w);
    return ERR_OK;
}

static enum err meet(struct watch **w, unsigned char id[COLL_NCCL_ID_BYTES])
{
    int listener = -1;
    if (rank == 0)
        TRY(watch_listen(&listener, &port));
    const struct watch_options o = {.rank = rank,
                                    .size = size,
                                    .host = "127.0.0.1",
                                    .port = port,
                                    .listener = listener,
                                    .job = is("other") ? "another" : "this",
                                    .shared = id,
                                    .shared_bytes = COLL_NCCL_ID_BYTES,
                                    .timeout_s = seconds};
    return watch_open(w, &o);
}

static enum err only_meet(void)
{
    unsigned char id[COLL_NCCL_ID_BYTES] = {(unsigned char)(rank == 0 ? 77 : 0)};
    struct watch *w;
    TRY(meet(&w, id));
    if (id[0] != 77)
        return err_set(ERR_PROTO, "rank 0's bytes did not arrive");
    return after_meeting(w);
}

/* ---- NCCL ---------------------------------------------------------------------------------------
 */
enum { COUNT = 100000 };

static enum err host_values(struct coll *c)
{
    double a[2] = {rank, 1};
    int32_t word = rank == 0 ? 5 : 0;
    TRY(c->ops->broadcast_host(c, &word, sizeof word, 0));
    TRY(c->ops->all_reduce_host(c, a, 2));
    return word == 5 && a[0] == size * (size - 1) / 2 && a[1] == size
               ? ERR_OK
               : err_set(ERR_DISAGREE, "%d, %g, %g", word, a[0], a[1]);
}

/* x: device memory, rank + i/64 in element i. */
static enum err sum_of(struct coll *c, struct dev *d, float *x)
{
    static float host[COUNT];
    for (int i = 0; i < COUNT; i++)
        host[i] = (float)rank + (float)(i % 64) / 64;
    d->ops->copy(d, x, host, sizeof host);
    TRY(dev_sync(d));
    TRY(c->ops->event_record(c));
    TRY(c->ops->event_wait(c)); /* a first step */
    TRY(ready());
    if (last() && is("leaves"))
        raise(SIGKILL);
    if (last() && is("late"))
        sleep((unsigned)seconds + 3);
    /* The first follows collectives of the legacy stream, the second the device's work alone. */
    TRY(c->ops->reduce_begin(c, x, DTYPE_F32, COUNT / 2));
    TRY(c->ops->reduce_begin(c, x + COUNT / 2, DTYPE_F32, COUNT - COUNT / 2));
    TRY(c->ops->progress(c));
    TRY(c->ops->reduce_wait(c));
    TRY(c->ops->event_record(c));
    TRY(c->ops->event_wait(c));
    d->ops->copy(d, host, x, sizeof host);
    TRY(dev_sync(d));
    for (int i = 0; i < COUNT; i++)
        if (host[i] != (float)(size * (size - 1) / 2) + (float)size * (float)(i % 64) / 64)
            return err_set(ERR_DISAGREE, "element %d of the sum is %g", i, (double)host[i]);
    return ERR_OK;
}

static enum err sums(struct coll *c)
{
    char gpu[32];
    struct dev *d;
    float *x;
    snprintf(gpu, sizeof gpu, "cuda:%d", c->local_rank);
    TRY(dev_open(&d, &(struct dev_options){.kind = gpu, .model_type = "f32", .threads = 1}));
    TRY(dev_alloc(d, (void **)&x, COUNT * sizeof *x));
    TRY(host_values(c));
    coll_follow(c, d);
    enum err e = sum_of(c, d, x);
    coll_follow(c, NULL);
    dev_free(d, x);
    dev_close(d);
    return e;
}

static enum err gpu(void)
{
    struct coll_nccl_options o = {
        .rank = rank, .size = size, .local_rank = rank, .timeout_s = seconds};
    const struct coll_nccl_module *m;
    coll_nccl_get *get;
    struct coll *c;
    struct watch *w;
    void *symbol;
    TRY(module_find(COLL_NCCL_FILE, COLL_NCCL_NAME, &symbol));
    memcpy(&get, &symbol, sizeof get);
    m = get(module_host());
    if (rank == 0)
        TRY(m->id(o.id));
    TRY(meet(&w, o.id));
    watch_close(w); /* NCCL alone is looked at */
    TRY(m->open(&c, &o));
    printf("rank %d has GPU %d\n", rank, c->local_rank);
    enum err e = is("opens") ? ERR_OK : sums(c);
    c->ops->close(c);
    return e;
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 4;
    what = argv[1];
    rank = atoi(argv[2]);
    size = atoi(argv[3]);
    port = atoi(argv[4]);
    seconds = argc > 5 ? atoi(argv[5]) : 20;
    bool nccl = is("sums") || is("late") || is("leaves") || is("opens");
    enum err e = is("strangers") ? strangers() : is("echo") ? echo() : nccl ? gpu() : only_meet();
    if (e)
        fprintf(stderr, "rank %d: %s: %s\n", rank, err_name(e), err_message());
    return err_exit_code(e);
}
