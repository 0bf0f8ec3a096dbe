/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a site's health, once a minute, and when the clocks are compared first: cheap
 * enough for the thread that trains. */
#include <math.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/run/job.h"
#include "outer/identity/tls.h"
#include "outer/record/health.h"

static const double CLOCK_WARN_S = 2;

static double certificate_days(struct job *j)
{
#ifdef ATOLL_NET
    if (j->o->parts.tls.ca) {
        int64_t days = tls_days(&j->o->parts.tls, j->s->run_name, TLS_SITE, j->run->o.site_name,
                                clock_wall_s());
        atomic_store(&j->health.uncertified, days < 0);
        return (double)days;
    }
#endif
    (void)j;
    return NAN;
}

/* What the site's clock is off by; said when it becomes too much. */
static double clock_check(struct job *j)
{
    double off_s = j->o->parts.site ? site_clock_s(j->o->parts.site) : NAN;
    bool wrong = fabs(off_s) > CLOCK_WARN_S;
    if (wrong && !j->health.clock_wrong)
        log_event(LOG_WARN, "clock",
                  "offset_s=%.2f text=\"this clock is %.0f s %s the aggregator's: set both by NTP; "
                  "certificates are judged by it\"",
                  off_s, fabs(off_s), off_s < 0 ? "behind" : "ahead of");
    j->health.clock_wrong = wrong;
    return off_s;
}

void job_health(struct job *j)
{
    double off_s = clock_check(j);
    bool first = isfinite(off_s) && !j->health.clock_known;
    if (!health_due(&j->health.health_s, clock_mono_s()) && !first)
        return;
    j->health.clock_known = isfinite(off_s);
    health_record(&j->out->record, &(struct health){.dir = j->s->run_dir,
                                                    .certificate_days = certificate_days(j),
                                                    .clock_s = off_s});
}
