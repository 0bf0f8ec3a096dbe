/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WAN_H
#define WAN_H
/* An emulated network on this machine, opened from a topology: namespaces and a router process for
 * IP packets or, where the machine refuses those, a relay process for TCP streams on loopback
 * (rate, delay, jitter, outages only). Linux only. Processes enter a place between fork and exec
 * (child.h does it); several may.
 */
#include <stdio.h>
#include "outer/record/json_write.h"
#include "outer/wan/emulator.h"
#include "outer/wan/namespace.h"
#include "outer/wan/topology.h"

enum wan_mode { WAN_AUTO, WAN_PACKETS, WAN_RELAY };

struct wan {
    const struct topology *topology; /* borrowed */
    bool relay;                      /* streams, not packets */
    struct namespace place[EMULATOR_PLACES_MAX];
    struct flow_counters *counters; /* [from * places + to], shared with the process */
    int pid;                        /* of the router or relay */
};

/* ERR_CONFIG: a congestion control that the kernel has not. PACKETS: ERR_UNSUPPORTED says what this
 * machine refuses. AUTO: then the relay, and stderr says so, loudly. `a` holds what lives as long
 * as the network. */
enum err wan_open(struct wan *w, const struct topology *t, enum wan_mode mode,
                  struct arena *a) MUST;
/* Where programs at `from` reach `to` ("10.77.0.2"); from = to: what it binds itself. */
enum { WAN_ADDRESS_MAX = 16 };
void wan_address(const struct wan *w, unsigned from, unsigned to, char out[WAN_ADDRESS_MAX]);
/* The namespace of a place; NULL: processes stay here (relay). */
const struct namespace *wan_place(const struct wan *w, unsigned place);
/* ERR_INTERNAL: the router or relay is gone. */
enum err wan_check(struct wan *w) MUST;
/* A table of all directions that carried something, and what was missed. */
void wan_print(const struct wan *w, FILE *out);
/* The same, appended to a file for atoll report (wan_record.c). */
enum err wan_record(const struct wan *w, const char *path, struct arena *a) MUST;
void wan_json(const struct wan *w, struct json_write *out); /* the same, as a member "network" */
void wan_close(struct wan *w);                              /* accepts a zeroed one */

#endif
