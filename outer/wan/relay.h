/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RELAY_H
#define RELAY_H
/* What stands in for the emulator where namespaces or TUN devices are refused: carries TCP streams
 * between loopback addresses with the rate, delay, jitter and outages of the flow (an outage is a
 * pause). Not emulated: loss, duplication, reordering, the queue's drops, TCP's behaviour on a long
 * line, connecting time. Good for tests of logic, never for figures. Place i binds 127.77.0.(i+1);
 * from place i, place k is reached at 127.77.(i+1).(k+1), on the listed ports only.
 */
#include "inner/config/config.h"
#include "outer/link/forward.h"
#include "outer/wan/flow.h"

struct relay {
    unsigned places;
    struct flow *flows;     /* [from * places + to] */
    struct relay_place *at; /* [count] of each listener */
    struct forward_listener *listeners;
    size_t count;
};

/* ERR_BUSY: another process has one of the ports; ERR_CONFIG: not a port number. */
enum err relay_open(struct relay *r, unsigned places, const struct config_list *ports,
                    struct arena *a) MUST;
/* Until SIGTERM, as emulator_run. */
enum err relay_run(struct relay *r) MUST;
void relay_close(struct relay *r); /* the listeners; accepts a zeroed one */

#endif
