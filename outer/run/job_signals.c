/* SPDX-License-Identifier: Apache-2.0 */
/* Signals of a training process: those of stop_signals() ask it to stop, SIGUSR2 asks where it
 * stands. All threads block them but one, which waits for them: no handler interrupts a
 * computation. oneDNN's generated code keeps data below the stack pointer, where the frame of a
 * handler overwrites it ("free(): invalid pointer" in one of six stops).
 */
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/run/job.h"
#include "outer/run/stop_signals.h"
#include "outer/site/site_repair.h"
#include "outer/identity/tls.h"

static size_t link_text(struct job *j, const struct progress_line *l, char *out, size_t size)
{
    uint64_t due = exchange_rounds(&j->run->sync.schedule, l->step);
    size_t n = (size_t)snprintf(out, size,
                                ", %llu of %llu rounds committed, %llu in flight; "
                                "aggregator %s",
                                (unsigned long long)l->round, (unsigned long long)l->rounds,
                                (unsigned long long)(due > l->round ? due - l->round : 0),
                                j->told.unreachable ? "unreachable" : "reachable");
#ifdef ATOLL_NET
    int64_t days;
    if (!j->o->parts.tls.ca)
        return n;
    if (tls_check(&j->o->parts.tls, j->s->run_name, TLS_SITE, j->run->o.site_name, clock_wall_s(),
                  &days) == ERR_OK)
        n += (size_t)snprintf(out + n, size - n, "; certificate valid for %lld days",
                              (long long)days);
    else
        n += (size_t)snprintf(out + n, size - n, "; certificate: %.200s", err_message());
#endif
    return n;
}

static void status_text(struct job *j, char *out, size_t size)
{
    struct progress_line l;
    double state_s;
    progress_look(&j->out->progress, 0, &l, &state_s);
    size_t n = (size_t)snprintf(out, size, "site %s of run %s: step %lld of %lld", l.site,
                                j->s->run_name, (long long)l.step, (long long)j->s->train_steps);
    if (isfinite(l.loss))
        n += (size_t)snprintf(out + n, size - n, ", loss %.4f", l.loss);
    n += (size_t)snprintf(out + n, size - n, ", %s", l.state[0] ? l.state : "training");
    if (l.state[0])
        n += (size_t)snprintf(out + n, size - n, " (said %.0f s ago)", state_s);
    if (j->outer)
        link_text(j, &l, out + n, size - n);
}

static void status_say(struct job *j)
{
    char text[1024], quoted[1200];
    status_text(j, text, sizeof text);
    progress_say(&j->out->progress, text);
    log_event(LOG_INFO, "status", "text=%s", log_quote(quoted, sizeof quoted, text));
    struct scrub_counts scrub = {0};
    if (j->o->parts.site)
        site_scrub_counts(j->o->parts.site, &scrub);
    if (!scrub.files)
        return;
    scrub_text(text, sizeof text, &scrub, j->out->env->ops->now_ms(j->out->env));
    progress_say(&j->out->progress, text);
    log_event(LOG_INFO, "status", "text=%s", log_quote(quoted, sizeof quoted, text + 2));
}

/* First: finish the step, store, leave. Second: kill -9 is safe here, so is an end at once. */
static void stop_ask(struct job *j, int number)
{
    bool launcher = j->coll && j->coll->size > 1 && number == SIGTERM;
    bool again = j->stopping->signals.asked;
    if (!atomic_load(&j->stopping->stoppable)) /* nothing is trained yet */
        _exit(128 + number);
    if (j->coll->rank == 0)
        progress_interrupt(
            again ? "atoll: ended at once; the steps since the last checkpoint will be repeated"
            : launcher
                ? "atoll: received SIGTERM from the launcher (Ctrl-C, or a lost rank, which it "
                  "names): finishing this step, then saving and leaving"
                : "atoll: finishing this step, then saving and leaving; once more ends at once",
            again);
    if (again) {
        hooks_kill(&j->hooks);
        _exit(128 + number);
    }
    j->stopping->signals.asked = true;
    j->stopping->stop = 1;
}

static sigset_t waited_signals(void)
{
    sigset_t s;
    stop_signals(&s);
    sigaddset(&s, SIGUSR2);
    return s;
}

static void *signals_main(void *self)
{
    struct job *j = self;
    sigset_t s = waited_signals();
    for (int number; sigwait(&s, &number) == 0 && !atomic_load(&j->stopping->signals.end);) {
        if (number != SIGUSR2)
            stop_ask(j, number);
        else if (atomic_load(&j->stopping->status_ready))
            status_say(j);
    }
    return NULL;
}

void job_signals_open(struct job *j)
{
    sigset_t s = waited_signals();
    signal(SIGPIPE,
           SIG_IGN); /* the reader of our lines has gone: log.txt has them, training continues */
    pthread_sigmask(SIG_BLOCK, &s, &j->stopping->signals.before);
    j->stopping->signals.runs =
        pthread_create(&j->stopping->signals.thread, NULL, signals_main, j) == 0;
    if (!j->stopping->signals.runs)
        pthread_sigmask(SIG_SETMASK, &j->stopping->signals.before,
                        NULL); /* a signal ends the process, which is safe */
}

void job_signals_close(struct job *j)
{
    if (!j->stopping->signals.runs)
        return;
    atomic_store(&j->stopping->signals.end, true);
    pthread_kill(j->stopping->signals.thread, SIGUSR2);
    pthread_join(j->stopping->signals.thread, NULL);
    j->stopping->signals.runs = false;
    pthread_sigmask(SIG_SETMASK, &j->stopping->signals.before,
                    NULL); /* all is stored: a signal may end the process */
}
