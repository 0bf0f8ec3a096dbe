/* The connections of a site as the server sees them: their counters, and the paths of what it is
 * sent. */
#include <stdio.h>
#include <string.h>
#include "outer/link/grpc/link_server.h"

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
    struct server_look *look = s->looks;
    for (unsigned i = 0; i < s->look_used; i++)
        if (strcmp(s->looks[i].peer, peer) == 0)
            return &s->looks[i];
    if (s->look_used < s->look_count)
        look = &s->looks[s->look_used++];
    *look = (struct server_look){0};
    snprintf(look->peer, sizeof look->peer, "%s", peer);
    return look;
}

void server_path_begin(struct server_call *call)
{
    struct link_server *s = call->server;
    const char *site = server_site_of(call->peer);
    if (!call->paces || !call->known)
        return;
    pthread_mutex_lock(&s->mutex);
    struct link_path *p = &server_look_of(s, call->peer)->down;
    if (!p->path.now.streams)
        link_path_open(p, 0, call->bbr);
    if (!p->running)
        link_sockets_read_all(&s->sockets, site);
    link_path_begin(p, &s->sockets, site, "down", site);
    call->c->streams = p->path.now.streams;
    pthread_mutex_unlock(&s->mutex);
    link_watch_wake(&s->watch);
}

bool server_path_look(void *server)
{
    struct link_server *s = server;
    bool more = false;
    pthread_mutex_lock(&s->mutex);
    for (unsigned i = 0; i < s->look_used; i++)
        if (link_path_look(&s->looks[i].down, &s->sockets, server_site_of(s->looks[i].peer)))
            more = true;
    pthread_mutex_unlock(&s->mutex);
    return more;
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
