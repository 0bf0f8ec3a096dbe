/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OBSERVE_H
#define OBSERVE_H
/* A run seen from afar: the records of its aggregator over the link, with an observer's or an
 * operator's certificate (docs/protocol.md 3.13). One thread. */
#include "kernels/base/args.h"
#include "outer/record/jsonl.h"

struct observe_options {
    const char *aggregator, *tls, *name, *server_name;
};
struct observe; /* opaque */

/* Rows of a command's option table; o: struct observe_options. */
#define OBSERVE_ROWS(o)                                                                            \
    {"aggregator", ARGS_TEXT, &(o)->aggregator, .value = "HOST:PORT",                              \
     .help = "Instead of directories: the aggregator of the run, over mutual TLS."},               \
        {"tls", ARGS_TEXT, &(o)->tls, .value = "DIR", .help = "Directory of the certificates."},   \
        {"certificate",                                                                            \
         ARGS_TEXT,                                                                                \
         &(o)->name,                                                                               \
         .value = "NAME",                                                                          \
         .help = "The certificate to show, NAME.pem: an observer's or an operator's.",             \
         .former = "name"},                                                                        \
    {                                                                                              \
        "aggregator-name", ARGS_TEXT, &(o)->server_name,                                           \
            .value = "NAME",                                                                       \
            .help = "DNS name in the aggregator's certificate, when it is not "                    \
                    "HOST."                                                                        \
    }
#define OBSERVE_DEFAULTS                                                                           \
    {                                                                                              \
        .tls = "tls", .name = "observer"                                                           \
    }

/* Connects at the first call. ERR_UNSUPPORTED: a build without the network. */
enum err observe_open(struct observe **out, const struct observe_options *o) MUST;
/* For a command that takes directories (`count` of them) or --aggregator: one of both is given; the
 * aggregator is opened, else *out is NULL. */
enum err observe_choose(struct observe **out, const struct observe_options *o, size_t count,
                        const char *command) MUST;
/* All records that are there since the last call; row: of each. */
enum err observe_read(struct observe *o, enum err (*row)(void *self, const struct jsonl_row *row),
                      void *self) MUST;
void observe_close(struct observe *o); /* accepts NULL */

#endif
