/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SITE_RECORD_H
#define SITE_RECORD_H
/* What every site writes into metrics.jsonl of its directory (docs/metrics.md), with any trainer:
 * the beginning of a record of kind start, and one of kind round. The caller adds its own fields
 * and ends the record. */
#include "outer/config/run.h"
#include "outer/record/ledger_book.h"
#include "outer/site/exchange.h"

/* The ledger of run.dir, which is there; in `run`'s memory. */
enum err site_record_ledger(struct ledger_book *ledger, struct run *run) MUST;

struct site_facts {           /* of a process that starts */
    const struct settings *s; /* of this site's training */
    bool outer;               /* it has an aggregator */
    const char *device;
    int threads, ranks;
    size_t parameters;
    int64_t step;
};
void site_record_start(struct jsonl *r, const struct run *run, const struct site_facts *f);

struct site_progress { /* of the run: rounds of all fragments, steps */
    uint64_t rounds;
    int64_t steps;
    double compute_s; /* that the site trained since the round before */
};
/* Payload of the round, as the ledger has it; also into the ledger what was predicted. */
struct ledger_round site_record_round(struct jsonl *r, struct ledger_book *ledger,
                                      const struct exchange_round *x,
                                      const struct site_progress *p);
/* A step of a trainer that measures nothing else; next_sync: the step of the next round. */
void site_record_step(struct jsonl *r, const struct exchange_now *n, int64_t next_sync);
void site_record_notice(struct jsonl *r, const char *text);
void site_record_stop(struct jsonl *r, int64_t step, const char *reason);
struct site_final { /* a run of all steps */
    int64_t step;
    const struct counted_last *last; /* of all fragments; NULL: there is no aggregator */
    const char *outer;               /* SHA-256 of the outer state, in hexadecimal */
    const char *const (*own)[2];     /* [own_count] further names and texts */
    size_t own_count;
};
/* ERR_SHORT: counted_short says whose data is missing; it is recorded, too. */
enum err site_record_final(struct jsonl *r, const struct run *run, const struct site_final *f) MUST;
/* What a wait is for. The same news with another number ("unreachable for 3 s", "for 4 s") is
 * logged sparsely. */
struct site_notice {
    char text[128]; /* of the last one, up to its first digit */
    double said;    /* seconds */
};
bool site_notice_new(struct site_notice *n, const char *text);

#endif
