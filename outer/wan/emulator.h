/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EMULATOR_H
#define EMULATOR_H
/* The router of the emulated network: takes IP packets out of every place's TUN, asks the flow of
 * that direction, and writes them into the other TUN when they are due. One thread, one process,
 * which does nothing else. Destination i is the address whose last byte is i + 1.
 */
#include "outer/wan/flow.h"

enum { EMULATOR_PLACES_MAX = 65 }; /* 64 sites and an aggregator */

struct emulator {
    unsigned places;
    int tun[EMULATOR_PLACES_MAX]; /* non-blocking */
    unsigned mtu;
    struct flow *flows; /* [from * places + to] */
};

/* Until SIGTERM. Time 0 of the flows is its start. Installs its signal handlers; a Ctrl-C is for
 * those who started it. */
void emulator_run(struct emulator *e);

#endif
