/* SPDX-License-Identifier: Apache-2.0 */
/* The connections of a site as the server sees them: their counters, and the paths of what it is
 * sent. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "outer/link/grpc/server.h"

enum { LOOKS_LEAST = 64 };

enum err server_looks_open(struct link_server *s, unsigned sites)
{
    s->looks.count = sites ? sites : LOOKS_LEAST;
    s->looks.list = calloc(s->looks.count, sizeof *s->looks.list);
    return s->looks.list ? ERR_OK : err_set(ERR_MEMORY, "no memory for the aggregator's link");
}

void server_looks_close(struct link_server *s)
{
    link_watch_close(&s->looks.watch);
    free(s->looks.list);
}

void server_socket_read(const struct server_call *call)
{
    struct link_server *s = call->server;
    pthread_mutex_lock(&s->mutex);
    link_sockets_read(&s->sockets, call->socket);
    pthread_mutex_unlock(&s->mutex);
}

const char *server_site_of(const char *peer)
{
    const char *slash = strrchr(peer, '/');
    return slash && slash[1] ? slash + 1 : "-";
}

struct server_look *server_look_of(struct link_server *s, const char *peer)
{
    struct server_look *look = s->looks.list;
    for (unsigned i = 0; i < s->looks.used; i++)
        if (strcmp(s->looks.list[i].peer, peer) == 0)
            return &s->looks.list[i];
    if (s->looks.used < s->looks.count)
        look = &s->looks.list[s->looks.used++];
    *look = (struct server_look){0};
    snprintf(look->peer, sizeof look->peer, "%s", peer);
    return look;
}

void server_path_begin(struct server_call *call)
{
    struct link_server *s = call->server;
    const char *site = server_site_of(call->peer);
    if (!call->wants.paces || !call->known)
        return;
    pthread_mutex_lock(&s->mutex);
    struct link_path *p = &server_look_of(s, call->peer)->down;
    if (!p->path.now.streams)
        link_path_open(p, 0, call->wants.bbr);
    if (!p->running)
        link_sockets_read_all(&s->sockets, site);
    link_path_begin(p, &s->sockets, site, "down", site);
    call->c->streams = p->path.now.streams;
    pthread_mutex_unlock(&s->mutex);
    link_watch_wake(&s->looks.watch);
}

static bool path_look(void *server)
{
    struct link_server *s = server;
    bool more = false;
    pthread_mutex_lock(&s->mutex);
    for (unsigned i = 0; i < s->looks.used; i++)
        if (link_path_look(&s->looks.list[i].down, &s->sockets,
                           server_site_of(s->looks.list[i].peer)))
            more = true;
    pthread_mutex_unlock(&s->mutex);
    return more;
}

enum err server_looks_watch(struct link_server *s)
{
    return link_watch_open(&s->looks.watch, path_look, s);
}

void server_path_end(struct server_call *call)
{
    struct link_server *s = call->server;
    if (!call->c->streams)
        return;
    pthread_mutex_lock(&s->mutex);
    link_path_end(&server_look_of(s, call->peer)->down);
    pthread_mutex_unlock(&s->mutex);
}
