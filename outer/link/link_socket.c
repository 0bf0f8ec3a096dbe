#include "outer/link/link_socket.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* getsockopt and its like change nothing: that core may close or reuse the descriptor meanwhile
 * does no harm. */
static bool address_of(int fd, bool remote,
                       struct sockaddr_in6 *a) /* IPv4's has family and port at the same place */
{
    socklen_t n = sizeof *a;
    int e = remote ? getpeername(fd, (struct sockaddr *)a, &n)
                   : getsockname(fd, (struct sockaddr *)a, &n);
    return e == 0 && (a->sin6_family == AF_INET || a->sin6_family == AF_INET6);
}

/* gRPC's spelling: ipv4:1.2.3.4:5, ipv6:%5B::1%5D:5; IPv4 inside IPv6 as IPv4. */
static void peer_text(char out[LINK_PEER_MAX], const struct sockaddr_in6 *a)
{
    char text[INET6_ADDRSTRLEN] = "";
    const void *v4 = &((const struct sockaddr_in *)(const void *)a)->sin_addr;
    if (a->sin6_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a->sin6_addr))
        v4 = a->sin6_addr.s6_addr + 12;
    else if (a->sin6_family == AF_INET6)
        v4 = NULL;
    inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? v4 : &a->sin6_addr, text, sizeof text);
    snprintf(out, LINK_PEER_MAX, v4 ? "ipv4:%s:%u" : "ipv6:%%5B%s%%5D:%u", text,
             ntohs(a->sin6_port));
}

static uint64_t cookie_of(int fd)
{
    uint64_t cookie = 0;
    socklen_t n = sizeof cookie;
    return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &n) == 0 ? cookie : 0;
}

static void read_one(struct link_sockets *s, struct link_socket *k)
{
    struct tcp_info info = {0};
    socklen_t n = sizeof info;
    if (cookie_of(k->fd) != k->cookie || getsockopt(k->fd, IPPROTO_TCP, TCP_INFO, &info, &n) != 0)
        return;
    uint64_t sent = info.tcpi_bytes_sent - info.tcpi_bytes_retrans,
             received = info.tcpi_bytes_received;
    s->up += s->listening ? received - k->received : sent - k->sent;
    s->down += s->listening ? sent - k->sent : received - k->received;
    k->sent = sent;
    k->received = received;
    k->resent = info.tcpi_bytes_retrans;
}

static void add(struct link_sockets *s, int fd, uint64_t cookie, const struct sockaddr_in6 *peer)
{
    if (s->count == s->room) {
        unsigned room = s->room ? 2 * s->room : 8;
        struct link_socket *list = realloc(s->list, room * sizeof *list);
        if (!list)
            return; /* not counted: the ledger will show it */
        s->list = list;
        s->room = room;
    }
    struct link_socket *k = &s->list[s->count++];
    *k = (struct link_socket){.cookie = cookie, .fd = fd, .there = true};
    peer_text(k->peer, peer);
}

static void look(struct link_sockets *s, int fd)
{
    struct sockaddr_in6 here, peer;
    uint64_t cookie;
    if (!address_of(fd, true, &peer) || !address_of(fd, false, &here) ||
        ntohs(s->listening ? here.sin6_port : peer.sin6_port) != s->port ||
        !(cookie = cookie_of(fd)))
        return;
    for (unsigned i = 0; i < s->count; i++)
        if (s->list[i].cookie == cookie) {
            s->list[i].fd = fd;
            s->list[i].there = true;
            return;
        }
    add(s, fd, cookie, &peer);
}

static void read_all(struct link_sockets *s)
{
    for (unsigned i = 0; i < s->count; i++)
        read_one(s, &s->list[i]);
}

void link_sockets_scan(struct link_sockets *s)
{
    DIR *d = opendir("/proc/self/fd");
    if (!d)
        return;
    for (unsigned i = 0; i < s->count; i++)
        s->list[i].there = false;
    for (struct dirent *entry; (entry = readdir(d));)
        if (atoi(entry->d_name) > 2)
            look(s, atoi(entry->d_name));
    closedir(d);
    read_all(s);
}

static unsigned there(const struct link_sockets *s)
{
    unsigned n = 0;
    for (unsigned i = 0; i < s->count; i++)
        n += s->list[i].there;
    return n;
}

void link_sockets_look(struct link_sockets *s, unsigned expected)
{
    if (there(s) < expected)
        link_sockets_scan(s);
    else
        read_all(s);
}

static struct link_socket *find_peer(struct link_sockets *s, const char *peer)
{
    for (unsigned i = 0; i < s->count; i++)
        if (s->list[i].there && strcmp(s->list[i].peer, peer) == 0)
            return &s->list[i];
    return NULL;
}

void link_sockets_own(struct link_sockets *s, const char *peer, const char *site)
{
    if (!find_peer(s, peer))
        link_sockets_scan(s);
    struct link_socket *k = find_peer(s, peer);
    if (k && !*k->site)
        snprintf(k->site, sizeof k->site, "%s", site);
}

void link_sockets_spoke(struct link_sockets *s, const char *site, uint64_t now_ms,
                        bool after_silence)
{
    for (unsigned i = 0; i < s->count; i++) {
        struct link_socket *k = &s->list[i];
        if (!k->there || (site && strcmp(k->site, site) != 0))
            continue;
        if (after_silence && k->spoke_ms && now_ms - k->spoke_ms >= s->keepalive_ms)
            k->idle_ms += now_ms - k->spoke_ms;
        k->spoke_ms = now_ms;
    }
}

static void row_begin(const struct link_sockets *s, const struct link_socket *k,
                      enum ledger_what what, struct ledger_row *row)
{
    *row = (struct ledger_row){.what = what, .round = LEDGER_NO_ROUND};
    if (s->listening)
        snprintf(row->site, sizeof row->site, "%s", *k->site ? k->site : "-");
}

static bool row_make(const struct link_sockets *s, struct link_socket *k, struct ledger_row *row)
{
    if (s->listening && !*k->site && k->there) /* whose it is, its first call will say */
        return false;
    if (!k->told) {
        row_begin(s, k, LEDGER_CONNECTION, row);
        ledger_connection(row, s->certificate_bytes);
        k->told = true;
        return true;
    }
    if (k->idle_ms) {
        row_begin(s, k, LEDGER_CONNECTION, row);
        ledger_idle(row, k->idle_ms, s->keepalive_ms);
        k->idle_ms = 0;
        return true;
    }
    uint64_t sent = k->sent - k->booked_sent, received = k->received - k->booked_received;
    if (!sent && !received)
        return false;
    row_begin(s, k, LEDGER_SOCKET, row);
    row->up.socket = s->listening ? received : sent;
    row->down.socket = s->listening ? sent : received;
    row->resent = k->resent - k->booked_resent;
    k->booked_sent = k->sent;
    k->booked_received = k->received;
    k->booked_resent = k->resent;
    return true;
}

bool link_sockets_next(struct link_sockets *s, struct ledger_row *row)
{
    for (unsigned i = 0; i < s->count;) {
        if (row_make(s, &s->list[i], row))
            return true;
        if (s->list[i].there)
            i++;
        else /* closed, and all of it booked */
            s->list[i] = s->list[--s->count];
    }
    return false;
}

void link_sockets_close(struct link_sockets *s)
{
    free(s->list);
    s->list = NULL;
    s->count = s->room = 0;
}
