/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPERATE_H
#define OPERATE_H
/* The calls of `atoll operator` to the aggregators of a run. Blocking; one thread; the caller has
 * SIGPIPE ignored.
 */
#include "outer/link/link.h"

struct operate {      /* borrowed */
    const char *name; /* of the act, for messages: "roster add" */
    enum wire_act act;
    const char *targets; /* HOST:PORT; of the acts of a roster also several, with commas */
    const char *tls, *certificate, *server_name; /* directory, NAME of NAME.pem; NULL: the host */
    const char *site;                            /* NULL: none, or all */
    const char *key, *value;                     /* WIRE_SET */
    bool list;                                   /* WIRE_SET: only what was amended */
    int64_t fragment, to, at_round;              /* at_round -1: the first possible one */
    int64_t wait_s; /* an abort or a rollback is asked for again so long */
    struct dial_proxy proxy;
};
bool operate_roster(enum wire_act act);
/* Prints each answer, as text or as one JSON object. The last error, when all were asked.
 * ERR_DENIED, ERR_FULL, ERR_CONFIG: the aggregator refuses; ERR_DEADLINE: no round to close came
 * within wait_s; else of the link or of the certificate's files. */
enum err operate_all(const struct operate *o, bool json, struct arena *a) MUST;

#endif
