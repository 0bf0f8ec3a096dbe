/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PREFLIGHT_H
#define PREFLIGHT_H
/* atoll doctor --config: what would stop or spoil a run is said before it starts. One line for each
 * check: OK, WARN or FAIL, what was looked at, what was found, what to do. preflight.c looks at
 * this machine, preflight_link.c at certificates and at the aggregator. Nothing is changed but a
 * file that is written and removed, and the lock of run.dir, which is taken and released.
 */
#include <stdint.h>
#include "outer/record/json_write.h"
#include "outer/run/job.h"

struct preflight_options {
    const char *config, *site;
    bool serve; /* for atoll serve; else for atoll train */
    int64_t ranks;
    bool json; /* one object in place of the lines */
};
enum preflight_verdict { PREFLIGHT_OK, PREFLIGHT_WARN, PREFLIGHT_FAIL, PREFLIGHT_VERDICTS };
struct preflight {
    struct preflight_options o;
    struct job j; /* as atoll train has it, as far as it is opened here */
    unsigned count[PREFLIGHT_VERDICTS];
    struct json_write w; /* of json */
    double run_s;        /* predicted length of the run; 0: unknown (plan.step_s) */
    uint64_t round_up;   /* payload of this site's largest contribution */
};

/* ERR_WARNED: there are warnings; ERR_UNREADY: something failed. */
enum err preflight_run(const struct preflight_options *o, const struct args *args) MUST;

void preflight_begin(struct preflight *p); /* of the rows */
void preflight_end(struct preflight *p);
void preflight_say(struct preflight *p, enum preflight_verdict v, const char *what,
                   const char *format, ...) __attribute__((format(printf, 4, 5)));
/* FAIL with this thread's message and what to do. */
void preflight_failed(struct preflight *p, const char *what, const char *action);
void preflight_certificates(struct preflight *p);
void preflight_link(struct preflight *p);   /* a site's */
void preflight_listen(struct preflight *p); /* the aggregator's */

#endif
