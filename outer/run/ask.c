/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/ask.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"

static enum err probe_name(const struct ask *p, const struct link_tls *files, char name[256])
{
    struct tls_facts f;
    TRY(tls_facts(&f, files->certificate));
    snprintf(name, 256, "%s", p->server_name ? p->server_name : "");
    if (!*name && f.server)
        snprintf(name, 256, "%.*s", (int)strcspn(f.hosts, " "), f.hosts);
    return ERR_OK;
}

enum err ask_dialled(const struct link_dial *d, uint32_t peer_ms, uint32_t call_ms,
                     struct tls_facts *aggregator, double *took_s)
{
    const struct tls_question q = {.files = &d->tls,
                                   .target = d->target,
                                   .server_name = d->server_name,
                                   .proxy = d->proxy,
                                   .timeout_ms = peer_ms};
    TRY(tls_peer(&q, aggregator));
    double begin_s = clock_mono_s();
    TRY(link_probe(d, call_ms));
    *took_s = clock_mono_s() - begin_s;
    return ERR_OK;
}

enum err ask_aggregator(const struct ask *p, struct tls_facts *aggregator, double *took_s,
                        struct arena *arena)
{
    struct dial_proxy proxy;
    struct link_tls files;
    char name[256];
    TRY_ALLOC(files.ca = arena_printf(arena, "%s/ca.pem", p->tls));
    TRY_ALLOC(files.certificate = arena_printf(arena, "%s/%s.pem", p->tls, p->name));
    TRY_ALLOC(files.key = arena_printf(arena, "%s/%s.key", p->tls, p->name));
    TRY(probe_name(p, &files, name));
    TRY(tls_usable(&files, clock_wall_s()));
    log_min(LOG_ERROR); /* the sentence says it */
    signal(SIGPIPE, SIG_IGN);
    TRY(dial_proxy_parse(&proxy, p->proxy_url));
    TRY(dial_proxy_credentials(&proxy, p->credentials));
    uint32_t timeout_ms = *proxy.shown ? 5000 + DIAL_TIMEOUT_MS : 5000;
    struct link_dial d = {.target = p->target, .server_name = name, .proxy = &proxy, .tls = files};
    TRY(tls_force13());
    TRY(ask_dialled(&d, timeout_ms, timeout_ms, aggregator, took_s));
    dial_proxy_forget(&proxy);
    return ERR_OK;
}
