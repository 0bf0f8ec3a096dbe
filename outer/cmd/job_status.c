/* SIGUSR2 at a site: one line that says where it stands. A thread waits for the signal, since the
 * training thread may stand in a collective or wait for the aggregator.
 */
#include <math.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include "kernels/base/log.h"
#include "outer/cmd/job.h"
#include "outer/link/tls.h"

static sigset_t status_signal(void)
{
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGUSR2);
    return s;
}

void job_status_block(void)
{
    sigset_t s = status_signal();
    pthread_sigmask(SIG_BLOCK, &s, NULL);
}

static size_t link_text(struct job *j, const struct progress_line *l, char *out, size_t size)
{
    uint64_t due = site_train_rounds(&j->run.sync.schedule, l->step);
    size_t n = (size_t)snprintf(out, size,
                                ", %llu of %llu rounds committed, %llu in flight; "
                                "aggregator %s",
                                (unsigned long long)l->round, (unsigned long long)l->rounds,
                                (unsigned long long)(due > l->round ? due - l->round : 0),
                                j->unreachable ? "unreachable" : "reachable");
    int64_t days;
    if (!j->tls.ca)
        return n;
    if (tls_check(&j->tls, j->s.run_name, TLS_SITE, j->run.o.site_name, (int64_t)time(NULL),
                  &days) == ERR_OK)
        n += (size_t)snprintf(out + n, size - n, "; certificate valid for %lld days",
                              (long long)days);
    else
        n += (size_t)snprintf(out + n, size - n, "; certificate: %.200s", err_message());
    return n;
}

void job_status_text(struct job *j, char *out, size_t size)
{
    struct progress_line l;
    double state_s;
    progress_look(&j->progress, 0, &l, &state_s);
    size_t n = (size_t)snprintf(out, size, "site %s of run %s: step %lld of %lld", l.site,
                                j->s.run_name, (long long)l.step, (long long)j->s.train_steps);
    if (isfinite(l.loss))
        n += (size_t)snprintf(out + n, size - n, ", loss %.4f", l.loss);
    n += (size_t)snprintf(out + n, size - n, ", %s", l.state[0] ? l.state : "training");
    if (l.state[0])
        n += (size_t)snprintf(out + n, size - n, " (said %.0f s ago)", state_s);
    if (j->outer)
        link_text(j, &l, out + n, size - n);
}

static void *status_main(void *self)
{
    struct job *j = self;
    sigset_t s = status_signal();
    for (int number; sigwait(&s, &number) == 0 && !atomic_load(&j->status_stop);) {
        char text[1024], quoted[1200];
        job_status_text(j, text, sizeof text);
        progress_say(&j->progress, text);
        log_event(LOG_INFO, "status", "text=%s", log_quote(quoted, sizeof quoted, text));
    }
    return NULL;
}

void job_status_start(struct job *j)
{
    j->status_runs = pthread_create(&j->status, NULL, status_main, j) == 0;
}

void job_status_end(struct job *j)
{
    if (!j->status_runs)
        return;
    atomic_store(&j->status_stop, true);
    pthread_kill(j->status, SIGUSR2);
    pthread_join(j->status, NULL);
    j->status_runs = false;
}
