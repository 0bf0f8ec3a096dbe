/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SITE_PARTS_H
#define SITE_PARTS_H
/* What the lead rank of a site, and each other rank that holds fragments, opens to take part in a
 * run, with any trainer: connection, signing key, outer state, organs, site. site_parts.c alone
 * writes the struct. */
#include "outer/library/organs.h"
#include "outer/record/ledger_book.h"
#include "outer/site/exchange.h"

struct site_parts {
    struct dev *beside; /* second device for the outer arithmetic: of overlapped rounds, because a
                           device serves one thread at a time, and of a site on a GPU; or NULL */
    struct arena host;  /* outer state, in memory that the training device copies fast (pinned) */
    struct outer_state replica;
    struct link *link;
    struct signer *signer; /* of this site's identity; NULL: site.aggregator is self */
    struct organs organs;
    struct site *site;
    struct link_tls tls; /* of this site's certificate */
};
struct site_parts_options {
    struct run *run;
    struct env *env;                  /* owns the site's directory */
    struct dev *dev;                  /* the trainer's */
    const char *gpu;                  /* this rank's, "cuda:N"; "" on CPUs */
    struct shards shards;             /* of this rank; zeroed: it holds all */
    const struct site_process *joint; /* struct site_options */
    ledger_sink *book;                /* of every call's bytes */
    void *book_self;
    atomic_int *stop; /* struct site_options */
    void (*notice)(void *self, const char *text);
    /* site.aggregator = self: the link to an aggregator in this process; NULL: it is refused. */
    enum err (*own)(void *self, struct link **link);
    void *self; /* of these two */
};

/* A site that the run did not begin with: the aggregator knows whether an operator has added it.
 * ERR_CONFIG: it has no certificate either, so its name is a slip. */
enum err site_parts_name(struct run *r) MUST;
/* `p` is zeroed; close takes what is half open. */
enum err site_parts_open(struct site_parts *p, const struct site_parts_options *o) MUST;
void site_parts_close(struct site_parts *p);
/* What an exchange has of the configuration. */
struct exchange_rules site_parts_rules(const struct run *run);

#endif
