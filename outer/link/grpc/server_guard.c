/* SPDX-License-Identifier: Apache-2.0 */
/* The aggregator's guard thread: ends pending connections without a call and calls of revoked
 * certificates, checks the expiry of its own certificate, and periodically calls its own port over
 * a new connection, as a site does.
 */
#include <stdio.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/link/grpc/link_accept.h"
#include "outer/link/grpc/server.h"

enum {
    TICK_MS = 1000,
    CALL_TIMEOUT_MS = 10000,
    AGAIN_MS = 5000, /* delay after a failed call */
    FAILURES_MAX =
        3 /* consecutive failures after which sites are assumed not to reach this process either */
};

static bool guard_sleep(struct link_server *s)
{
    uint64_t wake = clock_mono_ms() + TICK_MS;
    pthread_mutex_lock(&s->mutex);
    int late = 0;
    while (!s->work.stopping && !late)
        late = clock_cond_wait(&s->changed, &s->mutex, wake);
    bool go = !s->work.stopping;
    pthread_mutex_unlock(&s->mutex);
    return go;
}

static void own_certificate_look(struct link_server *s)
{
    struct tls_facts f;
    uint64_t now = clock_mono_ms();
    if (now - s->guard.looked_ms < s->o.look_ms)
        return;
    s->guard.looked_ms = now;
    if (tls_facts(&f, s->o.certificate) == ERR_OK)
        tls_log_expiry(s->o.certificate, &f, clock_wall_s());
    else
        err_clear();
}

/* The address of the server's own port; for a wildcard address the loopback. */
static void own_target(const struct link_server *s, char target[256])
{
    const char *colon = strrchr(s->o.address, ':');
    int n = (int)(colon - s->o.address);
    bool any4 = strncmp(s->o.address, "0.0.0.0:", 8) == 0,
         any6 = strncmp(s->o.address, "[::]:", 5) == 0;
    if (any4 || any6)
        snprintf(target, 256, "%s:%u", any4 ? "127.0.0.1" : "[::1]", s->sockets.port);
    else
        snprintf(target, 256, "%.*s:%u", n, s->o.address, s->sockets.port);
}

static enum err self_call(struct link_server *s)
{
    char target[256], name[256];
    struct tls_facts f;
    TRY(tls_facts(&f, s->o.certificate));
    snprintf(name, sizeof name, "%.*s", (int)strcspn(f.hosts, " "), f.hosts);
    own_target(s, target);
    struct link_dial d = {.target = target, .server_name = name, .tls = s->o.files};
    return link_probe(&d, CALL_TIMEOUT_MS);
}

/* Calls its own port. Failures count only after one success: in some networks a process can never
 * reach its own address. */
static void self_look(struct link_server *s)
{
    char quoted[1024];
    enum err e = self_call(s);
    uint64_t now = clock_mono_ms();
    s->guard.next_ms = now + (e == ERR_OK ? s->o.self_ms : AGAIN_MS);
    if (e == ERR_OK) {
        if (!s->guard.armed && !accept_in_use())
            log_event(LOG_WARN, "accept",
                      "ok=0 why=\"this gRPC accepts connections by another call "
                      "than accept4: pending ones are not limited\"");
        s->guard.armed = true;
        s->guard.failures = 0;
        return;
    }
    bool own_fault = e == ERR_DENIED || tls_current(s->o.certificate, clock_wall_s()) != ERR_OK;
    if (!s->guard.armed || own_fault) {
        if (s->guard.failures++ == 0)
            log_event(LOG_WARN, "self_call", "ok=0 counted=0 why=%s",
                      log_quote(quoted, sizeof quoted, err_message()));
        s->guard.next_ms = now + s->o.self_ms;
        err_clear();
        return;
    }
    s->guard.failures++;
    log_event(LOG_ERROR, "self_call", "ok=0 failures=%u of=%d why=%s", s->guard.failures,
              FAILURES_MAX, log_quote(quoted, sizeof quoted, err_message()));
    err_clear();
    if (s->guard.failures >= FAILURES_MAX)
        atomic_store(&s->guard.silent, true);
}

static void limit_flush(struct link_server *s)
{
    pthread_mutex_lock(&s->mutex);
    log_limit_flush(&s->limit, clock_mono_ms());
    pthread_mutex_unlock(&s->mutex);
    link_core_log_flush();
}

void *server_guard_main(void *server)
{
    struct link_server *s = server;
    s->guard.looked_ms = clock_mono_ms(); /* the command checked it before link_serve */
    s->guard.next_ms = clock_mono_ms() + TICK_MS;
    while (guard_sleep(s)) {
        accept_sweep();
        server_revoked_end(s);
        limit_flush(s);
        own_certificate_look(s);
        if (s->o.self_ms && clock_mono_ms() >= s->guard.next_ms)
            self_look(s);
    }
    return NULL;
}
