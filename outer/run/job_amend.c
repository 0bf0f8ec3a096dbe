/* SPDX-License-Identifier: Apache-2.0 */
/* Amendments in the training of a site: each step has the settings that are in force for it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/config/amend.h"
#include "outer/config/setting.h"
#include "outer/organ/amend/amend_organ.h"
#include "outer/run/job.h"

struct job_amend {
    struct schedule base;          /* of the configuration; run.sync has the amended one */
    struct amendments list;        /* that this site knows; the same on every rank */
    struct loader_changes mixture; /* of the list */
    uint32_t in_force;             /* of the list: j->s is of these; UINT32_MAX: not known */
};

enum err job_amend_open(struct job *j)
{
    TRY_ALLOC(j->amend = arena_alloc(&j->run->perm, sizeof *j->amend));
    j->amend->base = j->run->sync.schedule;
    enum err e = j->o->parts.site ? outer_state_amendments_find(&j->o->parts.replica) : ERR_OK;
    TRY(exchange_agree(&j->o->exchange, e));
    return exchange_reschedule(&j->o->exchange);
}

/* Each site has sources of its own: what does not fit them changes nothing here. known: of the
 * list, before. */
static void weights_tell(struct job *j, uint32_t known)
{
    const struct amendments *list = &j->amend->list;
    size_t have = j->train.data.loader->mixture ? j->train.data.loader->mixture->count : 0, k = 0;
    char text[160], quoted[2 * SETTING_SHOWN_MAX], shown[SETTING_SHOWN_MAX];
    for (uint32_t i = 0; i < list->count; i++) {
        bool weights = strncmp(list->list[i].text, "data.weights=", 13) == 0;
        size_t count = weights ? j->amend->mixture.list[k++].count : have;
        if (count == have || i < known)
            continue;
        snprintf(text, sizeof text,
                 "amendment %" PRIu32 " has %zu weights, and this site's mixture %zu sources "
                 "(data.train with data.weights): it keeps its weights",
                 i + 1, count, have);
        log_event(LOG_WARN, "mixture", "setting=%s text=\"%s\"",
                  log_quote(quoted, sizeof quoted, setting_shown(list->list[i].text, shown)), text);
        if (j->coll->rank == 0)
            job_tell_event(j, text);
    }
}

static enum err list_take(struct job *j, uint32_t known, struct schedule *s)
{
    struct job_amend *x = j->amend;
    TRY(amend_reschedule(&j->run->base, &x->base, &x->list, s));
    TRY(amend_data(&x->mixture, &j->run->base, s, &x->list));
    j->run->sync.schedule = *s;
    weights_tell(j, known);
    x->in_force = UINT32_MAX;
    return loader_change(j->train.data.loader, (uint64_t)j->train.step, &x->mixture);
}

enum err job_rescheduled(void *self, struct schedule *s, uint32_t *version)
{
    struct job *j = self;
    struct job_amend *x = j->amend;
    uint32_t known = x->list.count;
    int from;
    if (j->o->parts.site)
        amend_site_list(j->o->parts.site, &x->list);
    TRY(job_longest_list(j, x->list.count, &from));
    TRY(j->coll->ops->broadcast_host(j->coll, &x->list, sizeof x->list, from));
    if (j->o->parts.site)
        TRY(amend_site_take(j->o->parts.site, &x->list));
    *version = x->list.count;
    if (!x->list.count)
        return ERR_OK;
    return exchange_agree(&j->o->exchange, list_take(j, known, s));
}

enum err job_amend_step(struct job *j, int64_t step)
{
    struct job_amend *x = j->amend;
    const struct schedule *made = &j->run->sync.schedule;
    struct arena scratch = arena_make(0);
    if (!x || !x->list.count)
        return ERR_OK;
    uint32_t count = amendments_in_force(&x->list, schedule_sent(made, 0, step));
    if (count == x->in_force)
        return ERR_OK;
    enum err e = amend_train(j->s, &j->run->base, made, &x->list, step, &scratch);
    arena_free(&scratch);
    x->in_force = e == ERR_OK ? count : x->in_force;
    return e;
}
