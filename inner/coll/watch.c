/* Frames of one size, both ways: a beat, a good-bye, or "end". Rank 0 passes an end on to the
 * others. The thread is the only one that reads; whoever closes ends the thread first. */
#include "inner/coll/watch.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "kernels/base/digest.h"
#include "kernels/base/log.h"

/* A host that answers nothing: 4 s until the first question, then 6 questions a second apart. */
enum { SILENT_HOST_S = 10, ASK_AFTER_S = 4 };
enum { GREETING_MS = 2000, RETRY_MS = 50, LISTEN_TRIES = 200, BEATS = 24, DRAIN_MS = 2000 };
enum { KNOCKS_MAX = 256 }; /* who has not said yet which rank it is; more wait to be accepted */

enum kind { KIND_BEAT, KIND_BYE, KIND_END };
struct frame {
    uint8_t kind, exit_code;
    uint16_t rank; /* who ends */
    char why[252];
};
struct greeting {  /* rank 0 speaks first: whoever meets another program says nothing to it */
    char magic[8]; /* one of rank 0, another of the others: an echo is nobody of ours */
    struct digest job;
    uint32_t number; /* rank 0: of ranks; the others: which one */
};
struct knock { /* somebody at rank 0's port */
    int fd;    /* -1: free */
    int64_t until_ms;
    struct greeting said;
    size_t have; /* bytes of said */
};
struct line {
    int fd; /* -1: closed */
    int64_t heard_ms;
    struct frame in;
    size_t have; /* bytes of in */
};
struct watch {
    int rank, size, timeout_s;
    struct line *lines; /* rank 0: of each rank, [0] unused; the others: [0] */
    struct pollfd *polled;
    int wake[2];
    pthread_t thread;
    bool runs;
};

static int64_t now_ms(void) /* for deadlines: nothing computed depends on it */
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int line_count(const struct watch *w)
{
    return w->rank == 0 ? w->size : 1;
}

static void line_close(struct line *l)
{
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}

/* ---- meeting -----------------------------------------------------------------------------------
 */
static bool wait_for(int fd, short what, int64_t until_ms)
{
    struct pollfd p = {fd, what, 0};
    int n;
    do { /* again after a signal */
        int64_t left = until_ms - now_ms();
        n = poll(&p, 1, left > 0 ? (int)left : 0);
    } while (n < 0 && errno == EINTR);
    return n == 1;
}

static bool receive_all(int fd, void *to, size_t bytes, int64_t until_ms)
{
    size_t have = 0;
    while (have < bytes && wait_for(fd, POLLIN, until_ms)) {
        ssize_t n = recv(fd, (char *)to + have, bytes - have, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        have += n > 0 ? (size_t)n : 0;
    }
    return have == bytes;
}

static bool send_all(int fd, const void *from,
                     size_t bytes) /* few: the socket's buffer holds them */
{
    return send(fd, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}

static const char of_lead[8] = "atoll-0", of_others[8] = "atoll-n";

static struct greeting greeting_make(const char magic[8], const char *job, int number)
{
    struct greeting g = {.job = digest_of(job, strlen(job)), .number = (uint32_t)number};
    memcpy(g.magic, magic, sizeof g.magic);
    return g;
}

static bool greeting_fits(const struct greeting *g, const char magic[8],
                          const struct greeting *ours)
{
    return !memcmp(g->magic, magic, sizeof g->magic) && digest_equal(&g->job, &ours->job);
}

static void set_option(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value,
                     sizeof value); /* where it is refused: NCCL's deadline */
}

static void keep_alive(int fd)
{
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, ASK_AFTER_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, SILENT_HOST_S - ASK_AFTER_S);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, SILENT_HOST_S * 1000);
}

/* For IPv4 and, where the host has it, IPv6. */
static int listener_make(int port, int *error)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool both = fd >= 0;
    if (!both)
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (both)
        set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (fd >= 0 &&
        bind(fd, both ? (struct sockaddr *)&six : (struct sockaddr *)&four,
             both ? sizeof six : sizeof four) == 0 &&
        listen(fd, SOMAXCONN) == 0)
        return fd;
    *error = errno;
    if (fd >= 0)
        close(fd);
    return -1;
}

enum err watch_listen(int *listener, int *port)
{
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    int error = 0;
    *listener = -1;
    for (int i = 0; i < LISTEN_TRIES && *listener < 0;
         i++) { /* a former rank 0 may still be ending */
        *listener = listener_make(*port, &error);
        if (*listener < 0 && error != EADDRINUSE)
            break;
        if (*listener < 0)
            usleep(RETRY_MS * 1000);
    }
    if (*listener < 0)
        return err_set(ERR_LINK, "the ranks of this site cannot meet at port %d of this host: %s",
                       *port, strerror(error));
    if (getsockname(*listener, (struct sockaddr *)&own, &size) == 0)
        *port = ntohs(own.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&own)->sin6_port
                                                : ((struct sockaddr_in *)&own)->sin_port);
    return ERR_OK;
}

static void list_missing(const struct watch *w, char *out, size_t size)
{
    int n = 0;
    for (int r = 1; r < w->size && n >= 0 && (size_t)n < size; r++)
        if (w->lines[r].fd < 0)
            n += snprintf(out + n, size - (size_t)n, "%s%d", n ? ", " : "", r);
}

/* One of ours takes its place. */
static enum err seat(struct watch *w, const struct knock *k)
{
    uint32_t rank = k->said.number;
    bool known = rank > 0 && rank < (uint32_t)w->size;
    if (!known || w->lines[rank].fd >= 0) {
        close(k->fd);
        return err_set(ERR_CONFIG, "%s is rank %u of %d: see how the launcher numbers them",
                       known ? "a second process" : "a process", rank, w->size);
    }
    keep_alive(k->fd);
    w->lines[rank].fd = k->fd;
    return ERR_OK;
}

/* A stranger, who may say nothing or a byte at a time, keeps nobody else waiting. */
static enum err hear_knock(struct watch *w, struct knock *k, const struct greeting *ours)
{
    ssize_t n = recv(k->fd, (char *)&k->said + k->have, sizeof k->said - k->have, MSG_DONTWAIT);
    bool silent = n < 0 && (errno == EAGAIN || errno == EINTR);
    k->have += n > 0 ? (size_t)n : 0;
    if ((n > 0 || silent) && k->have < sizeof k->said && now_ms() < k->until_ms)
        return ERR_OK;
    enum err e = ERR_OK;
    if (k->have == sizeof k->said && greeting_fits(&k->said, of_others, ours))
        e = seat(w, k);
    else
        close(k->fd);
    k->fd = -1;
    return e;
}

static void accept_knock(struct knock *k, int listener, const struct greeting *ours)
{
    *k = (struct knock){.fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK),
                        .until_ms = now_ms() + GREETING_MS};
    if (k->fd >= 0 && !send_all(k->fd, ours, sizeof *ours)) {
        close(k->fd);
        k->fd = -1;
    }
}

/* What happens at the port until something has, or RETRY_MS are over. */
static enum err at_the_door(struct watch *w, int listener, struct knock knock[KNOCKS_MAX],
                            const struct greeting *ours)
{
    struct pollfd p[KNOCKS_MAX + 1];
    struct knock *free_one = NULL;
    for (int i = 0; i < KNOCKS_MAX; i++) {
        p[i] = (struct pollfd){knock[i].fd, POLLIN, 0}; /* poll ignores -1 */
        if (knock[i].fd < 0)
            free_one = &knock[i];
    }
    p[KNOCKS_MAX] = (struct pollfd){free_one ? listener : -1, POLLIN, 0};
    if (poll(p, KNOCKS_MAX + 1, RETRY_MS) < 0)
        return ERR_OK; /* a signal */
    for (int i = 0; i < KNOCKS_MAX; i++)
        if (knock[i].fd >= 0)
            TRY(hear_knock(w, &knock[i], ours));
    if (p[KNOCKS_MAX].revents)
        accept_knock(free_one, listener, ours);
    return ERR_OK;
}

static enum err left_early(const struct watch *w)
{
    char byte;
    for (int r = 1; r < w->size; r++) {
        ssize_t n =
            w->lines[r].fd < 0 ? 1 : recv(w->lines[r].fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return err_set(ERR_LINK, "rank %d of %d ended while the others were still coming", r,
                           w->size);
    }
    return ERR_OK;
}

static enum err all_come(struct watch *w, const struct watch_options *o,
                         struct knock knock[KNOCKS_MAX])
{
    const struct greeting ours = greeting_make(of_lead, o->job, w->size);
    int64_t until = now_ms() + (int64_t)o->timeout_s * 1000;
    for (int come = 0; come < w->size - 1;) {
        char missing[80] = "";
        TRY(at_the_door(w, o->listener, knock, &ours));
        TRY(left_early(w));
        come = 0;
        for (int r = 1; r < w->size; r++)
            come += w->lines[r].fd >= 0;
        list_missing(w, missing, sizeof missing);
        if (come < w->size - 1 && now_ms() > until)
            return err_set(ERR_LINK, "%d of %d ranks did not come to %s:%d within %d s: %s",
                           w->size - 1 - come, w->size, o->host, o->port, o->timeout_s, missing);
    }
    return ERR_OK;
}

static enum err gather_ranks(struct watch *w, const struct watch_options *o)
{
    struct knock knock[KNOCKS_MAX];
    for (int i = 0; i < KNOCKS_MAX; i++)
        knock[i].fd = -1;
    enum err e = all_come(w, o, knock);
    for (int i = 0; i < KNOCKS_MAX; i++)
        if (knock[i].fd >= 0)
            close(knock[i].fd);
    for (int r = 1; r < w->size && e == ERR_OK; r++)
        if (!send_all(w->lines[r].fd, o->shared, o->shared_bytes))
            e = err_set(ERR_LINK, "rank %d of %d is gone already", r, w->size);
    return e;
}

static int connect_to(const struct addrinfo *a)
{
    int error = 0, fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = sizeof error;
    if (fd < 0)
        return -1;
    if (connect(fd, a->ai_addr, a->ai_addrlen) && errno == EINPROGRESS &&
        wait_for(fd, POLLOUT, now_ms() + GREETING_MS))
        (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    struct sockaddr_storage peer;
    size = sizeof peer;
    if (!error && getpeername(fd, (struct sockaddr *)&peer, &size) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Rank 0 at the other end, or not yet: -1. */
static int meet(const struct addrinfo *found, const struct greeting *ours)
{
    struct greeting theirs;
    for (const struct addrinfo *a = found; a; a = a->ai_next) {
        int fd = connect_to(a);
        if (fd >= 0 && receive_all(fd, &theirs, sizeof theirs, now_ms() + GREETING_MS) &&
            greeting_fits(&theirs, of_lead, ours) && send_all(fd, ours, sizeof *ours))
            return fd;
        if (fd >= 0)
            close(fd);
    }
    return -1;
}

static enum err come(struct watch *w, const struct watch_options *o)
{
    const struct greeting ours = greeting_make(of_others, o->job, o->rank);
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    int64_t until = now_ms() + (int64_t)o->timeout_s * 1000;
    const char *why = "nobody of this job answers";
    char port[8];
    snprintf(port, sizeof port, "%d", o->port);
    while (w->lines[0].fd < 0) {
        struct addrinfo *found = NULL;
        int e = getaddrinfo(o->host, port, &hints, &found);
        why = e ? gai_strerror(e) : "nobody of this job answers";
        if (e) /* a container that does not know its own name */
            e = getaddrinfo("127.0.0.1", port, &hints, &found);
        w->lines[0].fd = e ? -1 : meet(found, &ours);
        if (found)
            freeaddrinfo(found);
        if (w->lines[0].fd < 0 && now_ms() > until)
            return err_set(ERR_LINK, "rank %d of %d did not find rank 0 at %s:%d within %d s: %s",
                           o->rank, o->size, o->host, o->port, o->timeout_s, why);
        if (w->lines[0].fd < 0)
            usleep(RETRY_MS * 1000);
    }
    keep_alive(w->lines[0].fd);
    if (!receive_all(w->lines[0].fd, o->shared, o->shared_bytes, until + GREETING_MS))
        return err_set(ERR_LINK, "rank %d of %d: rank 0 gave up waiting for the others, or is gone",
                       o->rank, o->size);
    return ERR_OK;
}

/* ---- watching ----------------------------------------------------------------------------------
 */
static void tell(const struct watch *w, const struct frame *f)
{
    for (int i = 0; i < line_count(w); i++)
        if (w->lines[i].fd >= 0)
            (void)send_all(w->lines[i].fd, f, sizeof *f);
}

/* State is on disk at every moment, so ending here and now loses nothing; the main thread may be in
 * a call of CUDA that never returns. */
static void end(struct watch *w, const struct frame *f)
{
    char quoted[600];
    log_event(LOG_ERROR, "rank_lost", "rank=%u ranks=%d reason=%s", f->rank, w->size,
              log_quote(quoted, sizeof quoted, f->why));
    if (w->rank == 0)
        tell(w, f);
    _exit(f->exit_code);
}

static void gone(struct watch *w, int line, const char *how)
{
    struct frame f = {
        .kind = KIND_END, .exit_code = (uint8_t)err_exit_code(ERR_LINK), .rank = (uint16_t)line};
    snprintf(f.why, sizeof f.why,
             "rank %d of %d %s; this site's job ends and may be started again: it goes on from its "
             "last checkpoint",
             line, w->size, how);
    end(w, &f);
}

static void take(struct watch *w, int line)
{
    struct line *l = &w->lines[line];
    if (l->in.kind == KIND_END) {
        l->in.why[sizeof l->in.why - 1] = 0;
        end(w, &l->in);
    }
    if (l->in.kind == KIND_BYE)
        line_close(l);
}

static void hear(struct watch *w, int line)
{
    struct line *l = &w->lines[line];
    ssize_t n = recv(l->fd, (char *)&l->in + l->have, sizeof l->in - l->have, MSG_DONTWAIT);
    if (n == 0)
        gone(w, line, "ended without a word: killed, or its log says why");
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        gone(w, line,
             errno == ETIMEDOUT ? "does not answer: its host or the network is down"
                                : "ended without a word: killed, or its log says why");
    if (n > 0) {
        l->heard_ms = now_ms();
        l->have = (l->have + (size_t)n) % sizeof l->in;
        if (l->have == 0)
            take(w, line);
    }
}

static void heard_now(struct watch *w)
{
    for (int i = 0; i < line_count(w); i++)
        w->lines[i].heard_ms = now_ms();
}

static void check_silence(struct watch *w)
{
    int64_t now = now_ms();
    for (int i = 0; i < line_count(w); i++)
        if (w->lines[i].fd >= 0 && now - w->lines[i].heard_ms > (int64_t)w->timeout_s * 1000)
            gone(w, i, "has been silent for too long: stopped, or its host is frozen");
}

static void *run(void *self)
{
    struct watch *w = self;
    const struct frame beat = {.kind = KIND_BEAT};
    int n = line_count(w), every_ms = w->timeout_s * 1000 / BEATS;
    int64_t due = now_ms();
    heard_now(w);
    for (;;) {
        for (int i = 0; i < n; i++)
            w->polled[i] = (struct pollfd){w->lines[i].fd, POLLIN, 0}; /* poll ignores -1 */
        w->polled[n] = (struct pollfd){w->wake[0], POLLIN, 0};
        int64_t left = due - now_ms();
        (void)poll(w->polled, (nfds_t)n + 1, left > 0 ? (int)left : 0);
        if (w->polled[n].revents)
            return NULL;
        for (int i = 0; i < n; i++)
            if (w->polled[i].revents)
                hear(w, i);
        if (now_ms() >= due) {
            if (now_ms() > due + every_ms) /* this process itself was stopped, others perhaps too:
                                              a suspended job goes on when it is resumed */
                heard_now(w);
            check_silence(w);
            tell(w, &beat);
            due = now_ms() + every_ms;
        }
    }
}

/* ---- open and close ----------------------------------------------------------------------------
 */
static enum err start(struct watch *w)
{
    sigset_t all, before;
    if (pipe2(w->wake, O_CLOEXEC))
        return err_set(ERR_INTERNAL, "pipe: %s", strerror(errno));
    sigfillset(&all); /* signals are the main thread's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    w->runs = pthread_create(&w->thread, NULL, run, w) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return w->runs ? ERR_OK : err_set(ERR_MEMORY, "no thread that watches the other ranks");
}

static void stop(struct watch *w)
{
    if (w->runs && write(w->wake[1], "", 1) == 1)
        pthread_join(w->thread, NULL);
    w->runs = false;
}

static void release(struct watch *w)
{
    stop(w);
    for (int i = 0; w->lines && i < line_count(w); i++)
        line_close(&w->lines[i]);
    for (int i = 0; i < 2; i++)
        if (w->wake[i] >= 0)
            close(w->wake[i]);
    free(w->lines);
    free(w->polled);
    free(w);
}

enum err watch_open(struct watch **w, const struct watch_options *o)
{
    struct watch *n = calloc(1, sizeof *n);
    enum err e = ERR_MEMORY;
    *w = NULL;
    if (n) {
        *n = (struct watch){
            .rank = o->rank, .size = o->size, .timeout_s = o->timeout_s, .wake = {-1, -1}};
        n->lines = calloc((size_t)line_count(n), sizeof *n->lines);
        n->polled = calloc((size_t)line_count(n) + 1, sizeof *n->polled);
    }
    if (n && n->lines && n->polled) {
        for (int i = 0; i < line_count(n); i++)
            n->lines[i].fd = -1;
        e = o->rank == 0 ? gather_ranks(n, o) : come(n, o);
    } else
        err_set(e, "no memory to watch the other ranks");
    if (o->rank == 0)
        close(o->listener);
    if (e == ERR_OK)
        e = start(n);
    if (e == ERR_OK)
        *w = n;
    else if (n)
        release(n);
    return e;
}

/* A socket closed with something unread would take back what was just sent. */
static void say_and_leave(struct watch *w, const struct frame *f)
{
    int64_t until = now_ms() + DRAIN_MS;
    stop(w);
    tell(w, f);
    for (int i = 0; i < line_count(w); i++)
        if (w->lines[i].fd >= 0)
            shutdown(w->lines[i].fd, SHUT_WR);
    for (int i = 0; i < line_count(w); i++) {
        char rest[512];
        while (w->lines[i].fd >= 0 && wait_for(w->lines[i].fd, POLLIN, until) &&
               recv(w->lines[i].fd, rest, sizeof rest, MSG_DONTWAIT) > 0)
            ;
    }
    release(w);
}

void watch_close(struct watch *w)
{
    if (w)
        say_and_leave(w, &(struct frame){.kind = KIND_BYE});
}

void watch_abort(struct watch *w, int exit_code, const char *why)
{
    if (!w)
        return;
    struct frame f = {.kind = KIND_END, .exit_code = (uint8_t)exit_code, .rank = (uint16_t)w->rank};
    snprintf(f.why, sizeof f.why, "%s", why);
    say_and_leave(w, &f);
}
