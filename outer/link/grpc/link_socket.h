#ifndef LINK_SOCKET_H
#define LINK_SOCKET_H
/* What the kernel knows about sockets that gRPC owns and does not show: their byte counters. They
 * are found among this process's file descriptors by their port, and counted once a call of this
 * end has named their peer: two links of one process are told apart unless they go to the same
 * address and port. Bytes that TCP sent again count once; they are told apart. The caller's lock
 * guards it.
 */
#include "outer/link/ledger.h"

enum { LINK_PEER_MAX = 80 };

struct link_socket {
    uint64_t cookie; /* the kernel's name of it */
    int fd;
    bool there, told;                /* found at the last scan; its connection is booked */
    char peer[LINK_PEER_MAX];        /* as gRPC writes it: ipv4:127.0.0.1:4711 */
    char site[LEDGER_SITE_MAX];      /* whose calls it carries; "": not known yet, not counted */
    uint64_t sent, received, resent; /* when last read */
    uint64_t booked_sent, booked_received, booked_resent;
    bool own;                   /* of this process to itself: not booked */
    uint64_t spoke_ms, idle_ms; /* last time of a call; silence not booked yet */
};
struct link_sockets {
    uint16_t port;
    bool listening;             /* the aggregator's end: what it receives goes up */
    uint64_t certificate_bytes; /* of this process's own certificate: for the model of handshakes */
    uint64_t keepalive_ms;      /* for the model of idle connections */
    struct link_socket *list;
    unsigned count, room;
    unsigned
        *at; /* by descriptor: its place in the list + 1; 0: not one of ours, as far as known */
    unsigned at_room;
    uint64_t scanned_ns, scan_ns; /* when, and how long that took */
    uint64_t up, down; /* sum over all sockets ever seen; what one sent after it was last read is
                          lost with it */
};

/* Of any socket: the kernel's name, 0: it is none. */
uint64_t link_socket_cookie(int fd);
/* The other end of a TCP socket: gRPC's spelling, and the address alone. */
void link_socket_peer(int fd, char peer[LINK_PEER_MAX], char source[LINK_PEER_MAX]);

void link_sockets_close(struct link_sockets *s);
void link_sockets_scan(struct link_sockets *s); /* finds new ones, reads all */
/* A site's end: scans when fewer than `expected` sockets are known, else reads the known ones (a
 * few system calls). */
void link_sockets_look(struct link_sockets *s, unsigned expected);
/* The aggregator's end, with thousands of sockets: reads the socket of this cookie (0: none). Scans
 * all of them when the last scan took less than a twentieth of the time since then. */
void link_sockets_refresh(struct link_sockets *s, uint64_t cookie);
void link_sockets_read(struct link_sockets *s, uint64_t cookie);
/* Bytes that came on this connection, as it was last read; 0: not found. */
uint64_t link_sockets_received(const struct link_sockets *s, uint64_t cookie);
/* The connections with this peer are this site's (a site's end: its own, any name). Its name, for
 * the functions above; 0: not found. */
uint64_t link_sockets_own(struct link_sockets *s, const char *peer, const char *site);
/* The connection is this process's own: nothing of it is booked. */
void link_sockets_own_call(struct link_sockets *s, uint64_t cookie);
/* Connections of this site that were there at the last scan. */
unsigned link_sockets_of(const struct link_sockets *s, const char *site);
void link_sockets_end(const struct link_sockets *s, uint64_t cookie); /* this connection */
/* A call begins or ends on the connections of this site (NULL: on any). after_silence: none was
 * under way before. */
void link_sockets_spoke(struct link_sockets *s, const char *site, uint64_t now_ms,
                        bool after_silence);
/* What was not booked yet, row by row, a site's own rows without a name; false: no more. */
bool link_sockets_next(struct link_sockets *s, struct ledger_row *row);

#endif
