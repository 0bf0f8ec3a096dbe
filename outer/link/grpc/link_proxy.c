/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/link/grpc/link_proxy.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "kernels/base/log.h"
#include "outer/link/forward.h"
#include "outer/link/link.h"

enum {
    CONNECTIONS_MAX = 4 * (LINK_STREAMS_MAX + 1), /* the former ones may still be ending */
    HALF_MS = 2000,                               /* gRPC has given up a connection: so do we */
    BACKLOG = 64
};

struct proxied {     /* a connection to the proxy */
    uint64_t cookie; /* 0: a free entry */
    struct dial_bytes bytes;
};
struct link_proxy {
    char address[64], *target;
    struct dial_proxy proxy;
    struct forward_listener listener;
    struct forward *forward;
    pthread_t thread;
    bool runs;
    pthread_mutex_t mutex; /* guards the rest */
    struct proxied open[CONNECTIONS_MAX];
    enum err failed;
    char why[512];
};

static bool own_process(void *self, int fd, const char *source)
{
    struct ucred c;
    socklen_t n = sizeof c;
    (void)self, (void)source;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n) == 0 && c.pid == getpid())
        return true;
    log_event(LOG_WARN, "proxy_stranger", "pid=%d", (int)c.pid);
    return false;
}

static struct proxied *entry_of(struct link_proxy *p, uint64_t cookie) /* under the mutex */
{
    for (int i = 0; i < CONNECTIONS_MAX; i++)
        if (p->open[i].cookie == cookie)
            return &p->open[i];
    return NULL;
}

static enum err proxied_dial(void *self, unsigned listener, int stop, struct forward_dialled *out)
{
    struct link_proxy *p = self;
    struct dial_question q = {
        .target = p->target, .proxy = &p->proxy, .timeout_ms = DIAL_TIMEOUT_MS, .stop = stop};
    struct dial_bytes bytes;
    (void)listener;
    enum err e = dial_connect(&out->fd, &q, &bytes);
    pthread_mutex_lock(&p->mutex);
    p->failed = e;
    snprintf(p->why, sizeof p->why, "%s", e == ERR_OK ? "" : err_message());
    struct proxied *entry = e == ERR_OK ? entry_of(p, 0) : NULL;
    if (entry) /* as many as the forwarder has connections */
        *entry = (struct proxied){link_socket_cookie(out->fd), bytes};
    out->user = entry;
    pthread_mutex_unlock(&p->mutex);
    return e;
}

static void proxied_ended(void *self, const struct forward_end *end)
{
    struct link_proxy *p = self;
    struct proxied *entry = end->user;
    if (!entry)
        return;
    pthread_mutex_lock(&p->mutex);
    *entry = (struct proxied){0};
    pthread_mutex_unlock(&p->mutex);
}

static void *proxy_main(void *self)
{
    struct link_proxy *p = self;
    forward_run(p->forward);
    return NULL;
}

/* A listening Unix socket with a name that cannot be guessed. */
static enum err listener_open(struct link_proxy *p)
{
    static const char scheme[] = "unix-abstract:"; /* gRPC's */
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    uint64_t name[2];
    if (getrandom(name, sizeof name, 0) != sizeof name)
        return err_set(ERR_IO, "no random numbers: %s", strerror(errno));
    int n = snprintf(p->address, sizeof p->address, "%satoll-%016llx%016llx", scheme,
                     (unsigned long long)name[0], (unsigned long long)name[1]) -
            (int)strlen(scheme);
    memcpy(a.sun_path + 1, p->address + strlen(scheme), (size_t)n); /* abstract: after a zero */
    p->listener.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    socklen_t size = (socklen_t)(sizeof a.sun_family + 1 + (size_t)n);
    if (p->listener.fd < 0 || bind(p->listener.fd, (struct sockaddr *)&a, size) != 0 ||
        listen(p->listener.fd, BACKLOG) != 0)
        return err_set(ERR_IO, "no Unix socket: %s", strerror(errno));
    return ERR_OK;
}

static enum err forwarder_start(struct link_proxy *p)
{
    const struct forward_options o = {.self = p,
                                      .listeners = &p->listener,
                                      .listener_count = 1,
                                      .connections_max = CONNECTIONS_MAX,
                                      .dialers = LINK_STREAMS_MAX + 1,
                                      .half_ms = HALF_MS,
                                      .accepts = own_process,
                                      .dial = proxied_dial,
                                      .ended = proxied_ended};
    TRY(listener_open(p));
    TRY(forward_open(&p->forward, &o));
    p->runs = pthread_create(&p->thread, NULL, proxy_main, p) == 0;
    return p->runs ? ERR_OK : err_set(ERR_MEMORY, "no thread for the proxy's connections");
}

enum err link_proxy_open(struct link_proxy **out, const char *target,
                         const struct dial_proxy *proxy)
{
    struct link_proxy *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(ERR_MEMORY, "no memory for a proxy");
    pthread_mutex_init(&p->mutex, NULL);
    p->listener.fd = -1;
    p->proxy = *proxy;
    p->target = strdup(target);
    enum err e = p->target ? forwarder_start(p) : err_set(ERR_MEMORY, "no memory for a proxy");
    if (e != ERR_OK) {
        link_proxy_close(p);
        return e;
    }
    *out = p;
    return ERR_OK;
}

const char *link_proxy_address(const struct link_proxy *p)
{
    return p->address;
}

bool link_proxy_failed(struct link_proxy *p, char *text, size_t size, enum err *e)
{
    pthread_mutex_lock(&p->mutex);
    *e = p->failed;
    snprintf(text, size, "%s", p->why);
    pthread_mutex_unlock(&p->mutex);
    return *e != ERR_OK;
}

bool link_proxy_owns(void *self, uint64_t cookie, struct dial_bytes *dialogue)
{
    struct link_proxy *p = self;
    pthread_mutex_lock(&p->mutex);
    struct proxied *entry = cookie ? entry_of(p, cookie) : NULL;
    if (entry)
        *dialogue = entry->bytes;
    pthread_mutex_unlock(&p->mutex);
    return entry != NULL;
}

void link_proxy_close(struct link_proxy *p)
{
    if (!p)
        return;
    if (p->runs) {
        forward_stop(p->forward);
        pthread_join(p->thread, NULL);
    }
    forward_close(p->forward);
    if (p->listener.fd >= 0)
        close(p->listener.fd);
    pthread_mutex_destroy(&p->mutex);
    dial_proxy_forget(&p->proxy);
    free(p->target);
    free(p);
}
