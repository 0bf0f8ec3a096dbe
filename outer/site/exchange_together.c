/* SPDX-License-Identifier: Apache-2.0 */
/* Waits of a site of several ranks. A thread of each rank that holds fragments waits for the
 * aggregator; meanwhile the ranks add up which of them still wait, and whether one is asked to
 * stop.
 */
#include <stdio.h>
#include "outer/site/exchange.h"
#include "outer/site/site_own.h"

enum { TOGETHER_LOOK_MS = 200 }; /* how soon the ranks hear of a stop request */

struct together { /* of one rank */
    struct env *env;
    struct env_mutex *mutex;
    struct env_thread *thread;
    struct exchange_call call;
    bool ended; /* with the mutex locked, as is what follows */
    enum err e;
    char why[SITE_TEXT_MAX];
};

static void together_main(void *self)
{
    struct together *w = self;
    enum err e = w->call.run(w->call.self);
    w->env->ops->lock(w->env, w->mutex);
    w->e = e;
    snprintf(w->why, sizeof w->why, "%s", e == ERR_OK ? "" : err_message());
    w->ended = true;
    w->env->ops->signal(w->env, w->mutex);
    w->env->ops->unlock(w->env, w->mutex);
}

static enum err together_begin(struct together *w)
{
    TRY(w->env->ops->mutex_open(w->env, &w->mutex));
    return w->env->ops->thread_start(w->env, &w->thread, together_main, w);
}

static bool together_runs(struct together *w)
{
    if (!w->thread)
        return false;
    w->env->ops->lock(w->env, w->mutex);
    if (!w->ended)
        w->env->ops->wait(w->env, w->mutex, TOGETHER_LOOK_MS);
    bool runs = !w->ended;
    w->env->ops->unlock(w->env, w->mutex);
    return runs;
}

/* Until no rank waits; from then on every rank is asked to stop, if one was. */
static enum err together_wait(const struct exchange *s, struct together *w)
{
    double now[2]; /* ranks that wait, that are asked to stop */
    do {
        now[0] = together_runs(w);
        now[1] = atomic_load(s->o.stop) != 0;
        TRY(s->o.coll->ops->all_reduce_host(s->o.coll, now, 2));
        if (now[1] > 0)
            atomic_store(s->o.stop, 1);
    } while (now[0] > 0);
    return ERR_OK;
}

static enum err together_end(struct together *w, enum err waited)
{
    if (w->thread)
        w->env->ops->thread_join(w->env, w->thread);
    if (w->mutex)
        w->env->ops->mutex_close(w->env, w->mutex);
    if (waited != ERR_OK || w->e == ERR_OK)
        return waited;
    return err_set(w->e, "%s", w->why);
}

enum err exchange_together(const struct exchange *s, const struct exchange_call *call)
{
    struct together w = {.env = s->o.env, .call = *call};
    if (s->o.coll->size <= 1 || !s->o.stop)
        return call->run ? call->run(call->self) : ERR_OK;
    enum err begun = s->o.site && call->run ? together_begin(&w) : ERR_OK;
    enum err waited = together_wait(s, &w); /* also where this rank has no thread */
    if (waited != ERR_OK)
        atomic_store(s->o.stop, 1);
    return together_end(&w, begun != ERR_OK ? begun : waited);
}
