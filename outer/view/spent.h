/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SPENT_H
#define SPENT_H
/* What a site has spent of its privacy budget, of its run directory: inner/privacy.charges, and
 * delta and cap as its record says them (metrics.jsonl, kind privacy). Reads only, also while the
 * site trains. It takes some seconds (accountant.h).
 */
#include "outer/budget/budget.h"
#include "outer/record/json_write.h"
#include "outer/record/jsonl.h"

struct spent_options { /* 0: as recorded */
    double delta, cap;
};
struct spent {
    const char *charges;    /* path */
    char run[64], site[64]; /* "": no record */
    struct budget budget;
    const char *unclaimed;     /* why no epsilon can be claimed; NULL: it can */
    struct accountant account; /* of all charges; 0 when unclaimed */
    double delta, cap;         /* cap 0: none */
    bool promised;             /* the record has a promise of record-level privacy */
    int64_t left;              /* with a cap: further steps of the newest setting; at most... */
    bool left_more;            /* ...SPENT_LEFT_MAX: there are more */
};
#define AUDIT_FILE                                                                                 \
    "audit.jsonl" /* in run.dir: what atoll privacy audit found (docs/metrics.md)                  \
                   */
enum { SPENT_LEFT_MAX = 1 << 16 };

/* ERR_INPUT: no list of charges in dir, and nothing that says that there was one; ERR_CORRUPT: it
 * is missing, has lost lines or is older than the checkpoint; names file and line. */
enum err spent_read(struct spent *s, const char *dir, const struct spent_options *o,
                    struct arena *a) MUST;
/* Delta of all charges that is meant: the budget's plan without further steps. */
struct budget_plan spent_plan(const struct spent *s);
void spent_print(const struct spent *s);
void spent_print_json(const struct spent *s); /* one object */
/* "2026-11-28 12:00:00 UTC" of Unix seconds; 0: "-". */
enum { SPENT_TIME_MAX = 40 };
const char *spent_time(char out[SPENT_TIME_MAX], double t);
/* One line for each method of the accountant. */
void spent_print_methods(const struct accountant *a);
void spent_methods_json(struct json_write *w, const struct accountant *a); /* as members */
/* Several directories: what an owner has spent whose records are in all of them. */
enum err spent_sum_print(const char *const *dirs, size_t count, const struct spent_options *o,
                         bool json, struct arena *arena) MUST;

#endif
