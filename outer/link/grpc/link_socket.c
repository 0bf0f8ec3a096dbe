/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/link/grpc/link_socket.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <linux/tcp.h>
#include <math.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "kernels/base/clock.h"
#include "outer/link/line.h"

/* These calls only read, so it is harmless when core closes or reuses the descriptor meanwhile. */
static bool
address_of(int fd, bool remote,
           struct sockaddr_in6 *a) /* family and port have the same offset in sockaddr_in */
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

uint64_t link_socket_cookie(int fd)
{
    uint64_t cookie = 0;
    socklen_t n = sizeof cookie;
    return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &n) == 0 ? cookie : 0;
}

void link_socket_peer(int fd, char peer[LINK_PEER_MAX], char source[LINK_PEER_MAX])
{
    struct sockaddr_in6 a;
    peer[0] = source[0] = 0;
    if (!address_of(fd, true, &a))
        return;
    peer_text(peer, &a);
    snprintf(source, LINK_PEER_MAX, "%s", peer);
    source[strlen(source) - strlen(strrchr(source, ':'))] = 0;
}

static void count(struct link_sockets *s, uint64_t sent, uint64_t received)
{
    s->up += s->listening ? received : sent;
    s->down += s->listening ? sent : received;
}

/* Bytes handed to the kernel, those that wait in the socket among them: a peer that has all of them
 * may close the connection before the next reading. */
static uint64_t written(const struct link_socket *k)
{
    return k->sent + k->queued;
}

static uint64_t grown(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0;
}

static void read_one(struct link_sockets *s, struct link_socket *k)
{
    struct tcp_info info = {0};
    socklen_t n = sizeof info;
    if (link_socket_cookie(k->fd) != k->cookie ||
        getsockopt(k->fd, IPPROTO_TCP, TCP_INFO, &info, &n) != 0)
        return;
    uint64_t written_before = written(k), received_before = k->received;
    k->sent = info.tcpi_bytes_sent - info.tcpi_bytes_retrans;
    k->queued = info.tcpi_notsent_bytes;
    k->received = info.tcpi_bytes_received;
    if (*k->site)
        count(s, grown(written(k), written_before), grown(k->received, received_before));
    k->resent = info.tcpi_bytes_retrans;
    k->busy = info.tcpi_unacked > 0;
    k->rtt_s = 1e-6 * info.tcpi_min_rtt;
    k->cwnd_bytes = (double)info.tcpi_snd_cwnd * info.tcpi_snd_mss;
    k->delivered += (double)(info.tcpi_delivered - k->delivered_packets) * info.tcpi_snd_mss;
    k->delivered_packets = info.tcpi_delivered;
}

/* The descriptor's entry in s->at; NULL: no memory. */
static unsigned *at_of(struct link_sockets *s, int fd)
{
    if ((unsigned)fd >= s->at_room) {
        unsigned room = (unsigned)fd + 64;
        unsigned *at = realloc(s->at, room * sizeof *at);
        if (!at)
            return NULL;
        memset(at + s->at_room, 0, (room - s->at_room) * sizeof *at);
        s->at = at;
        s->at_room = room;
    }
    return &s->at[fd];
}

static void add(struct link_sockets *s, int fd, uint64_t cookie, const struct sockaddr_in6 *peer,
                const struct dial_bytes *dialogue)
{
    unsigned *at = at_of(s, fd);
    if (!at)
        return; /* not counted: the ledger's totals then differ */
    if (s->count == s->room) {
        unsigned room = s->room ? 2 * s->room : 8;
        struct link_socket *list = realloc(s->list, room * sizeof *list);
        if (!list)
            return;
        s->list = list;
        s->room = room;
    }
    struct link_socket *k = &s->list[s->count++];
    *k = (struct link_socket){.cookie = cookie, .fd = fd, .there = true};
    if (dialogue)
        k->dialogue = *dialogue;
    else
        peer_text(k->peer, peer);
    *at = s->count;
}

/* Reads the counters of a known socket: one system call. */
static void look(struct link_sockets *s, int fd)
{
    struct sockaddr_in6 here, peer;
    uint64_t cookie = link_socket_cookie(fd);
    unsigned at = (unsigned)fd < s->at_room ? s->at[fd] : 0;
    if (!cookie)
        return;
    struct dial_bytes dialogue;
    if (at && s->list[at - 1].cookie == cookie)
        s->list[at - 1].there = true;
    else if (s->owns) {
        if (s->owns(s->owns_self, cookie, &dialogue))
            add(s, fd, cookie, NULL, &dialogue);
    } else if (address_of(fd, true, &peer) && address_of(fd, false, &here) &&
               ntohs(s->listening ? here.sin6_port : peer.sin6_port) == s->port)
        add(s, fd, cookie, &peer, NULL);
}

/* The descriptor may have been reused: the index is moved only where it still points to the entry.
 */
static void move(struct link_sockets *s, unsigned from, unsigned to)
{
    unsigned *at = &s->at[s->list[from - 1].fd];
    *at = *at == from ? to : *at;
}

static void drop(struct link_sockets *s, unsigned i)
{
    move(s, i + 1, 0);
    if (i + 1 < s->count)
        move(s, s->count, i + 1);
    s->list[i] = s->list[--s->count];
}

static void read_all(struct link_sockets *s)
{
    for (unsigned i = 0; i < s->count; i++)
        read_one(s, &s->list[i]);
}

void link_sockets_scan(struct link_sockets *s)
{
    uint64_t begin = clock_mono_ns();
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
    s->scanned_ns = clock_mono_ns();
    s->scan_ns = s->scanned_ns - begin;
}

void link_sockets_read(struct link_sockets *s, uint64_t cookie)
{
    for (unsigned i = 0; cookie && i < s->count; i++)
        if (s->list[i].cookie == cookie)
            read_one(s, &s->list[i]);
}

uint64_t link_sockets_received(const struct link_sockets *s, uint64_t cookie)
{
    for (unsigned i = 0; cookie && i < s->count; i++)
        if (s->list[i].cookie == cookie)
            return s->list[i].received;
    return 0;
}

uint64_t link_sockets_sent(const struct link_sockets *s, uint64_t cookie)
{
    for (unsigned i = 0; cookie && i < s->count; i++)
        if (s->list[i].cookie == cookie)
            return s->list[i].sent;
    return 0;
}

void link_sockets_refresh(struct link_sockets *s, uint64_t cookie)
{
    enum {
        SHARE = 20,
        LONGEST_NS = 20000000
    }; /* an interrupted scan's duration is not representative */
    uint64_t took = s->scan_ns < LONGEST_NS ? s->scan_ns : LONGEST_NS;
    if (clock_mono_ns() - s->scanned_ns >= SHARE * took)
        link_sockets_scan(s);
    else
        link_sockets_read(s, cookie);
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

/* Returns the last cookie; the aggregator's end has one connection per peer. */
static uint64_t own(struct link_sockets *s, const char *peer, const char *site)
{
    uint64_t cookie = 0;
    for (unsigned i = 0; i < s->count; i++) {
        struct link_socket *k = &s->list[i];
        if (!s->owns && strcmp(k->peer, peer) != 0)
            continue;
        cookie = k->there || !cookie ? k->cookie : cookie;
        if (*k->site)
            continue;
        snprintf(k->site, sizeof k->site, "%s", site);
        count(s, written(k), k->received);
    }
    return cookie;
}

uint64_t link_sockets_own(struct link_sockets *s, const char *peer, const char *site)
{
    uint64_t cookie = own(s, peer, site);
    if (cookie)
        return cookie;
    link_sockets_scan(s);
    return own(s, peer, site);
}

void link_sockets_own_call(struct link_sockets *s, uint64_t cookie)
{
    for (unsigned i = 0; cookie && i < s->count; i++)
        if (s->list[i].cookie == cookie)
            s->list[i].own = true;
}

unsigned link_sockets_of(const struct link_sockets *s, const char *site)
{
    unsigned n = 0;
    for (unsigned i = 0; i < s->count; i++)
        n += s->list[i].there && strcmp(s->list[i].site, site) == 0;
    return n;
}

void link_sockets_end(const struct link_sockets *s, uint64_t cookie)
{
    for (unsigned i = 0; cookie && i < s->count; i++)
        if (s->list[i].cookie == cookie && link_socket_cookie(s->list[i].fd) == cookie)
            shutdown(s->list[i].fd, SHUT_RDWR);
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

/* ---- congestion control and pace ---- */

static bool of_site(const struct link_socket *k, const char *site)
{
    return k->there && (!site || strcmp(k->site, site) == 0);
}

void link_sockets_read_all(struct link_sockets *s, const char *site)
{
    for (unsigned i = 0; i < s->count; i++)
        if (of_site(&s->list[i], site))
            read_one(s, &s->list[i]);
}

static void pace_set(struct link_socket *k, double pace)
{
    uint64_t bytes_per_s = pace > 0 ? (uint64_t)pace : UINT64_MAX;
    if (k->pace != pace)
        setsockopt(k->fd, SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_per_s, sizeof bytes_per_s);
    k->pace = pace;
}

/* Bytes that may wait in the socket; 0: as many as its buffer holds. */
static void unsent_set(struct link_socket *k, double bytes)
{
    int most = (int)bytes;
    if (k->unsent != bytes)
        setsockopt(k->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most, sizeof most);
    k->unsent = bytes;
}

static void congestion_set(struct link_socket *k, const char *congestion)
{
    socklen_t n = sizeof k->congestion - 1;
    if (*k->congestion)
        return;
    if (congestion)
        setsockopt(k->fd, IPPROTO_TCP, TCP_CONGESTION, congestion, (socklen_t)strlen(congestion));
    if (getsockopt(k->fd, IPPROTO_TCP, TCP_CONGESTION, k->congestion, &n) != 0)
        *k->congestion = 0;
}

static bool sends(const struct link_socket *k)
{
    return k->busy || k->queued > 0;
}

/* What its congestion window allows, bytes per second. */
static double window_of(const struct link_socket *k)
{
    return k->rtt_s > 0 ? k->cwnd_bytes / k->rtt_s : LINE_RATE_MAX / 8;
}

/* What the windows allow, bytes per second: of the connections that send now, and of all. */
struct windows {
    double sending, all;
};

static struct windows windows_of(const struct link_sockets *s, const char *site)
{
    struct windows w = {0};
    for (unsigned i = 0; i < s->count; i++) {
        if (!of_site(&s->list[i], site))
            continue;
        double window = window_of(&s->list[i]);
        w.all += window;
        w.sending += sends(&s->list[i]) ? window : 0;
    }
    return w;
}

/* A share in proportion to its window. The kernel takes a larger pace into account at the next
 * acknowledgement, so the first one begins with all of it. */
static double share_of(const struct link_socket *k, const struct link_setting *set,
                       const struct windows *w)
{
    double of = sends(k) ? w->sending : w->all;
    bool all = set->streams < 2 || w->sending <= 0;
    return all ? set->pace : set->pace * window_of(k) / of;
}

/* The descriptor is still this connection, but for the moment between the check and the call; then
 * the options of another connection of this process would be set. */
static void set_one(struct link_socket *k, const struct link_setting *set, const struct windows *w)
{
    static const double UNSENT_S = 0.05, UNSENT_LEAST = 128 << 10, UNSENT_MOST = 1 << 20;
    if (link_socket_cookie(k->fd) != k->cookie)
        return;
    congestion_set(k, set->congestion);
    if (!set->streams)
        return;
    double pace = share_of(k, set, w);
    double rate = pace > 0 ? fmin(pace, window_of(k)) : window_of(k);
    pace_set(k, pace);
    unsent_set(k, set->streams == 1 ? 0 : fmin(fmax(UNSENT_S * rate, UNSENT_LEAST), UNSENT_MOST));
}

void link_sockets_set(struct link_sockets *s, const char *site, const struct link_setting *set)
{
    struct windows w = windows_of(s, site);
    for (unsigned i = 0; i < s->count; i++)
        if (of_site(&s->list[i], site))
            set_one(&s->list[i], set, &w);
}

void link_sockets_mark(struct link_sockets *s, const char *site)
{
    for (unsigned i = 0; i < s->count; i++)
        if (of_site(&s->list[i], site)) {
            s->list[i].marked_sent = s->list[i].sent;
            s->list[i].marked_resent = s->list[i].resent;
            s->list[i].marked_delivered = s->list[i].delivered;
        }
}

void link_sockets_rates(const struct link_sockets *s, const char *site, struct link_rates *out)
{
    enum { BULK_BYTES = 65536 };
    *out = (struct link_rates){0};
    for (unsigned i = 0; i < s->count; i++) {
        const struct link_socket *k = &s->list[i];
        uint64_t sent = k->sent - k->marked_sent;
        if (!of_site(k, site))
            continue;
        if (*k->congestion)
            memcpy(out->congestion, k->congestion, sizeof out->congestion);
        out->delivered += k->delivered - k->marked_delivered;
        if (sent < BULK_BYTES)
            continue;
        out->streams++;
        out->sent += sent;
        out->resent += k->resent - k->marked_resent;
        out->busy = out->busy || k->busy;
        if (k->rtt_s > 0 && (out->rtt_s <= 0 || k->rtt_s < out->rtt_s))
            out->rtt_s = k->rtt_s;
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
    if (k->own)
        return false;
    if (!*k->site && (k->there || !s->listening)) /* site unknown until its first call */
        return false;
    if (!k->told) {
        row_begin(s, k, LEDGER_CONNECTION, row);
        ledger_connection(row, s->certificate_bytes);
        row->up.tls += k->dialogue.sent; /* before the handshake, with the proxy */
        row->down.tls += k->dialogue.received;
        k->told = true;
        return true;
    }
    if (k->idle_ms) {
        row_begin(s, k, LEDGER_CONNECTION, row);
        ledger_idle(row, k->idle_ms, s->keepalive_ms);
        k->idle_ms = 0;
        return true;
    }
    uint64_t sent = grown(written(k), k->booked_sent), received = k->received - k->booked_received;
    if (!sent && !received)
        return false;
    row_begin(s, k, LEDGER_SOCKET, row);
    row->up.socket = s->listening ? received : sent;
    row->down.socket = s->listening ? sent : received;
    row->resent = k->resent - k->booked_resent;
    k->booked_sent += sent;
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
        else /* closed, and all its rows were returned */
            drop(s, i);
    }
    return false;
}

void link_sockets_close(struct link_sockets *s)
{
    free(s->list);
    free(s->at);
    *s = (struct link_sockets){0};
}
