/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HUB_H
#define HUB_H
/* Forwards TLS connections to an aggregator, for sites that can reach only this machine. It has no
 * key and opens nothing: it reads the first message of a connection, which is in the clear, and
 * forwards what is TLS 1.3 with HTTP/2 for the aggregator's name. The loop is forward.h's. */
#include <stdint.h>
#include "kernels/base/arena.h"

struct hub_options {
    const char *listen, *to, *names, *allow, *proxy_url, *credentials; /* cmd_relay.c says what */
    int64_t connections, of_source;
    double idle_s;
};
/* Until SIGTERM or SIGINT. One in a process. */
enum err hub_run(const struct hub_options *o, struct arena *a) MUST;

#endif
