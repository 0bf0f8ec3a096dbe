/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/link/grpc/link_path.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "kernels/base/signals.h"
#include "outer/link/tcp.h"

static const char BBR[] = "bbr";

/* What a new connection will have; "": unknown. */
static void congestion_try(char name[16], bool bbr)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t n = 15;
    memset(name, 0, 16);
    if (fd < 0)
        return;
    if (bbr) /* refused where tcp_allowed_congestion_control does not list it */
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, BBR, sizeof BBR - 1);
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &n) != 0)
        *name = 0;
    close(fd);
}

void link_path_open(struct link_path *p, unsigned fixed, bool bbr)
{
    struct tcp_settings host;
    struct path_facts f = {0};
    *p = (struct link_path){.bbr = bbr && !fixed};
    tcp_read(&host, "/proc/sys/net/ipv4");
    congestion_try(f.congestion, p->bbr);
    f.buffer_bytes = host.send_bytes < host.receive_bytes ? host.send_bytes : host.receive_bytes;
    path_open(&p->path, &f, fixed);
}

static void sockets_set(struct link_path *p, struct link_sockets *s, const char *site)
{
    const struct path_choice *c = &p->path.now;
    struct link_setting set = {p->bbr ? BBR : NULL, c->pace, p->path.fixed ? 0 : c->streams};
    link_sockets_set(s, site, &set);
}

static void learn(struct link_path *p, struct link_sockets *s, const char *site)
{
    struct link_rates r;
    link_sockets_rates(s, site, &r);
    if (*r.congestion)
        path_congestion(&p->path, r.congestion);
    if (!p->begun || !r.sent || p->end_ns <= p->begin_ns)
        return;
    path_learn(&p->path, &(struct path_sample){.bytes = (double)r.sent,
                                               .seconds = 1e-9 * (double)(p->end_ns - p->begin_ns),
                                               .rate = p->most,
                                               .rtt_s = r.rtt_s,
                                               .loss = (double)r.resent / (double)r.sent,
                                               .streams = r.streams ? r.streams : 1});
}

/* Between the requests of one download there may be none for a round trip. */
static bool goes_on(const struct link_path *p, const struct link_sockets *s, const char *site)
{
    static const double PAUSES = 4;
    struct link_rates r;
    link_sockets_rates(s, site, &r);
    return p->begun && r.rtt_s > 0 &&
           1e-9 * (double)(clock_mono_ns() - p->ended_ns) < PAUSES * r.rtt_s;
}

void link_path_begin(struct link_path *p, struct link_sockets *s, const char *site,
                     const char *direction, const char *peer)
{
    char text[192], quoted[256];
    if (p->running++)
        return;
    if (goes_on(p, s, site)) {
        p->drains = true;
        return;
    }
    sockets_set(p, s, site);
    learn(p, s, site);
    link_sockets_mark(s, site);
    p->most = p->since_bytes = 0;
    p->end_bytes = 0;
    p->begun = p->drains = true;
    p->begin_ns = p->end_ns = p->since_ns = clock_mono_ns();
    sockets_set(p, s, site);
    const struct path_choice *now = &p->path.now;
    if (p->told.streams == now->streams && p->told.reason == now->reason)
        return;
    p->told = *now;
    path_text(&p->path, text, sizeof text);
    log_event(LOG_INFO, "path", "direction=%s peer=%s streams=%u rtt_ms=%.1f loss=%.5f why=%s",
              direction, peer, now->streams, 1e3 * p->path.facts.rtt_s, p->path.facts.loss,
              log_quote(quoted, sizeof quoted, text));
}

/* Over a round trip and more: the kernel's rates of several sockets are of different moments. */
static void rate_look(struct link_path *p, const struct link_rates *r)
{
    enum { BULK_BYTES = 65536 };
    static const double SHORTEST_S = 0.05;
    uint64_t now = clock_mono_ns();
    double seconds = 1e-9 * (double)(now - p->since_ns);
    if (r->sent >= p->end_bytes + BULK_BYTES) {
        p->end_bytes = r->sent;
        p->end_ns = now;
    }
    if (seconds < SHORTEST_S || seconds < r->rtt_s)
        return;
    double rate = (r->delivered - p->since_bytes) / seconds;
    p->most = rate > p->most ? rate : p->most;
    p->since_ns = now;
    p->since_bytes = r->delivered;
}

bool link_path_look(struct link_path *p, struct link_sockets *s, const char *site)
{
    struct link_rates r;
    if (!p->drains || p->path.fixed)
        return false;
    link_sockets_read_all(s, site);
    sockets_set(p, s, site); /* connections that are new */
    link_sockets_rates(s, site, &r);
    rate_look(p, &r);
    p->drains = p->running || r.busy;
    return p->drains;
}

void link_path_end(struct link_path *p)
{
    p->running -= p->running > 0;
    p->ended_ns = clock_mono_ns();
}

/* ---- the thread that looks ---- */

enum { LOOK_MS = 20 };

static void *watch_main(void *arg)
{
    struct link_watch *w = arg;
    bool more = false;
    pthread_mutex_lock(&w->mutex);
    while (!w->stop) {
        if (more)
            clock_cond_wait(&w->cond, &w->mutex, clock_mono_ms() + LOOK_MS);
        else if (!w->due)
            pthread_cond_wait(&w->cond, &w->mutex);
        if (w->stop)
            break;
        w->due = false;
        pthread_mutex_unlock(&w->mutex);
        more = w->look(w->self);
        pthread_mutex_lock(&w->mutex);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

enum err link_watch_open(struct link_watch *w, bool (*look)(void *self), void *self)
{
    sigset_t before;
    *w = (struct link_watch){.look = look, .self = self};
    clock_cond_init(&w->cond);
    pthread_mutex_init(&w->mutex, NULL);
    signals_block(&before);
    w->runs = pthread_create(&w->thread, NULL, watch_main, w) == 0;
    signals_restore(&before);
    return w->runs ? ERR_OK : err_set(ERR_MEMORY, "no thread for the link");
}

void link_watch_wake(struct link_watch *w)
{
    if (!w->runs)
        return;
    pthread_mutex_lock(&w->mutex);
    w->due = true;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->mutex);
}

void link_watch_close(struct link_watch *w)
{
    if (!w->runs)
        return;
    pthread_mutex_lock(&w->mutex);
    w->stop = true;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
    pthread_mutex_destroy(&w->mutex);
    pthread_cond_destroy(&w->cond);
    w->runs = false;
}
