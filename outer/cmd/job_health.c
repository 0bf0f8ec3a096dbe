/* The record of a site's health, once a minute: cheap enough for the thread that trains. */
#include <math.h>
#include "kernels/base/clock.h"
#include "outer/cmd/job.h"
#include "outer/link/tls.h"
#include "outer/report/health.h"

static double certificate_days(struct job *j)
{
#ifdef ATOLL_NET
    int64_t days;
    if (j->tls.ca && tls_check(&j->tls, j->s.run_name, TLS_SITE, j->run.o.site_name, clock_wall_s(),
                               &days) == ERR_OK)
        return (double)days;
    err_clear();
#endif
    (void)j;
    return NAN;
}

void job_health(struct job *j)
{
    if (health_due(&j->health_s, clock_mono_s()))
        health_record(&j->record, j->s.run_dir, certificate_days(j), 0);
}
