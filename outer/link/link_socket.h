#ifndef LINK_SOCKET_H
#define LINK_SOCKET_H
/* What the kernel knows about sockets that gRPC owns and does not show: their byte counters. They are found among this
 * process's file descriptors by the port they are connected to, so two links of one process to one port count both.
 */
#include <stdbool.h>
#include <stdint.h>

enum { LINK_SOCKETS_MAX = 16 };

struct link_sockets {
    uint16_t port;
    struct {
        uint64_t cookie, up, down; /* the kernel's name of the socket; its counters when last seen */
    } seen[LINK_SOCKETS_MAX];
    unsigned next;
    uint64_t up, down; /* sum over all sockets ever seen; what one sent after its last sample is lost with it */
};

void link_sockets_sample(struct link_sockets *s);

#endif
