/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LINK_SOCKET_H
#define LINK_SOCKET_H
/* The kernel's byte counters of gRPC's sockets, which gRPC does not expose. A socket is found among
 * this process's file descriptors by its port. It is counted once a call has named its peer, so two
 * links of one process are distinguished unless they use the same address and port. Retransmitted
 * bytes count once and are also reported separately; bytes that wait in the socket count as sent.
 * The caller's lock guards the struct.
 */
#include "outer/link/dial.h"
#include "outer/link/ledger.h"

enum { LINK_PEER_MAX = 80 };

struct link_socket {
    uint64_t cookie; /* the kernel's socket cookie */
    int fd;
    bool there, told;                /* found at the last scan; its connection has its ledger row */
    char peer[LINK_PEER_MAX];        /* as gRPC writes it: ipv4:127.0.0.1:4711 */
    char site[LEDGER_SITE_MAX];      /* site of its calls; "": not known yet, not counted */
    uint64_t sent, received, resent; /* when last read */
    uint64_t booked_sent, booked_received, booked_resent;
    struct dial_bytes dialogue; /* with a proxy: of the connection's row */
    bool own;                   /* connection of this process to itself: no ledger rows */
    uint64_t spoke_ms, idle_ms; /* time of the last call; idle time not yet in a row */
    char congestion[16];        /* after the last link_sockets_set; "": not set */
    double pace, unsent;        /* of the last link_sockets_set */
    double rtt_s, cwnd_bytes;   /* the shortest round trip; the congestion window */
    bool busy;                  /* bytes are in flight */
    uint32_t queued;            /* bytes that wait in the socket to be sent */
    double delivered;           /* bytes, a few more than `sent` of them */
    uint32_t delivered_packets; /* the kernel's counter when last read */
    uint64_t marked_sent, marked_resent;
    double marked_delivered;
};
struct link_rates {        /* of several sockets, at their last readings */
    bool busy;             /* one of them has bytes in flight */
    double rtt_s;          /* shortest round trip; 0: unknown */
    uint64_t sent, resent; /* since link_sockets_mark */
    double delivered;      /* bytes that have arrived since then, in any order */
    unsigned streams;      /* number of sockets that carried bulk since then */
    char congestion[16];   /* of one of them; "": not set */
};
struct link_setting {       /* of several sockets */
    const char *congestion; /* NULL: as it is; what the kernel refuses stays */
    double pace;            /* of all together, bytes per second; 0: none */
    unsigned streams;       /* that carry a transfer; 0: pace and buffers stay as they are */
};
struct link_sockets {
    uint16_t port;
    /* With a proxy, in place of the port: is this socket a connection of the link? NULL: no proxy.
     * Then gRPC does not know these sockets, and all of them are the link's own. */
    bool (*owns)(void *self, uint64_t cookie, struct dial_bytes *dialogue);
    void *owns_self;
    bool listening;             /* the aggregator's end: received bytes go up */
    uint64_t certificate_bytes; /* of this process's own certificate: for the model of handshakes */
    uint64_t keepalive_ms;      /* for the model of idle connections */
    struct link_socket *list;
    unsigned count, room;
    unsigned *at; /* by descriptor: index in the list + 1; 0: not a known socket */
    unsigned at_room;
    uint64_t scanned_ns, scan_ns; /* time and duration of the last scan */
    uint64_t up, down; /* sum over all sockets so far, without bytes sent between a socket's last
                          reading and its close */
};

/* The kernel's cookie of a socket; 0: fd is no socket. */
uint64_t link_socket_cookie(int fd);
/* The other end of a TCP socket: gRPC's spelling, and the address alone. */
void link_socket_peer(int fd, char peer[LINK_PEER_MAX], char source[LINK_PEER_MAX]);

void link_sockets_close(struct link_sockets *s);
void link_sockets_scan(struct link_sockets *s); /* finds new sockets, reads all counters */
/* A site's end: scans when fewer than `expected` sockets are known, else reads the known sockets (a
 * few system calls). */
void link_sockets_look(struct link_sockets *s, unsigned expected);
/* The aggregator's end, with thousands of sockets: reads the socket of this cookie (0: none). Scans
 * all of them when the last scan took less than a twentieth of the time since then. */
void link_sockets_refresh(struct link_sockets *s, uint64_t cookie);
void link_sockets_read(struct link_sockets *s, uint64_t cookie);
void link_sockets_read_all(struct link_sockets *s, const char *site); /* of this site */
/* Bytes received on this connection at its last reading; 0: not found. */
uint64_t link_sockets_received(const struct link_sockets *s, uint64_t cookie);
uint64_t link_sockets_sent(const struct link_sockets *s, uint64_t cookie); /* the same, sent */
/* Assigns the connections with this peer to a site (at a site's end: itself, any name). Returns the
 * cookie; 0: not found. */
uint64_t link_sockets_own(struct link_sockets *s, const char *peer, const char *site);
/* Marks a connection of this process to itself: it gets no ledger rows. */
void link_sockets_own_call(struct link_sockets *s, uint64_t cookie);
/* Number of this site's connections at the last scan. */
unsigned link_sockets_of(const struct link_sockets *s, const char *site);
void link_sockets_end(const struct link_sockets *s, uint64_t cookie); /* this connection */
/* Records that a call begins or ends on this site's connections (NULL: on all). after_silence: no
 * call was running before. */
void link_sockets_spoke(struct link_sockets *s, const char *site, uint64_t now_ms,
                        bool after_silence);
/* Sets this site's connections (NULL: all), from their last readings. Of several, the pace of each
 * is its share (path_level), and few bytes wait in its socket: what waits there no other connection
 * can take. Cheap where nothing changes. */
void link_sockets_set(struct link_sockets *s, const char *site, const struct link_setting *set);
void link_sockets_mark(struct link_sockets *s, const char *site);
void link_sockets_rates(const struct link_sockets *s, const char *site, struct link_rates *out);
/* Returns the next pending ledger row; rows at a site's end have no name. False: no more. */
bool link_sockets_next(struct link_sockets *s, struct ledger_row *row);

#endif
