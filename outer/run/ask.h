/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ASK_H
#define ASK_H
/* Does an aggregator answer, over TLS, with a certificate of the run? One connection for the
 * certificate and one for a call; blocking, one thread.
 */
#include "outer/identity/tls.h"
#include "kernels/base/arena.h"

struct ask {                 /* borrowed */
    const char *target;      /* HOST:PORT */
    const char *tls, *name;  /* directory, NAME of the certificate to show */
    const char *server_name; /* NULL: the host, or the first host of that certificate, where it is
                                a server's: next to the aggregator, where a probe dials the
                                loopback, none of its names is the address */
    const char *proxy_url, *credentials; /* as site.proxy, site.proxy_credentials; NULL: none */
};
/* aggregator: its certificate; took_s: of connection and call. Errors of tls_usable, tls_peer,
 * link_probe. */
enum err ask_aggregator(const struct ask *q, struct tls_facts *aggregator, double *took_s,
                        struct arena *a) MUST;

/* The same of an aggregator that `d` dials: peer_ms for its certificate, call_ms for the call.
 * Errors of tls_peer, link_probe. */
enum err ask_dialled(const struct link_dial *d, uint32_t peer_ms, uint32_t call_ms,
                     struct tls_facts *aggregator, double *took_s) MUST;

#endif
