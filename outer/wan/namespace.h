/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NAMESPACE_H
#define NAMESPACE_H
/* A place of the emulated network on this machine: a network namespace of its own with one TUN
 * device, made without root where the kernel allows it (then inside a user namespace, with the same
 * user). What its programs send, over any protocol, comes out of the file descriptor `tun` as IP
 * packets, and what is written there arrives. Linux only. The namespace lives as long as its
 * descriptors or a process in it.
 */
#include <stdbool.h>
#include <stdint.h>
#include "kernels/base/err.h"

struct namespace
{ /* file descriptors, close-on-exec; 0: not open */
    int tun;
    int net, user; /* to enter it; user 0: made as root, none needed */
    int counters;  /* its /proc/net/dev */
};
struct namespace_setup {
    uint32_t address; /* IPv4, host order; its /24 is reached through the TUN */
    unsigned mtu;
    unsigned long
        tcp_buffer_bytes;   /* largest send and receive buffer of a connection; 0: the kernel's */
    const char *congestion; /* "bbr", "cubic"; "": the kernel's */
    bool slow_start_after_idle;
};

/* ERR_UNSUPPORTED says what this machine refuses. */
enum err namespace_open(struct namespace *n, const struct namespace_setup *setup) MUST;
/* Moves the calling process, which must have one thread only: between fork and exec. 0, or errno.
 */
int namespace_enter(const struct namespace *n);
/* Packets that the kernel dropped because the emulator did not read them in time. */
uint64_t namespace_missed(const struct namespace *n);
void namespace_close(struct namespace *n); /* accepts a zeroed one */

#endif
