/* Amendments in the training of a site: each step has the settings that are in force for it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/run/job.h"

/* Each site has sources of its own: what does not fit them changes nothing here. */
static void weights_tell(struct job *j, const struct amendments *list)
{
    size_t have = j->train.loader.mixture ? j->train.loader.mixture->count : 0, k = 0;
    char text[160], quoted[2 * AMENDMENT_TEXT_MAX];
    for (uint32_t i = 0; i < list->count; i++) {
        bool weights = strncmp(list->list[i].text, "data.weights=", 13) == 0;
        size_t count = weights ? j->mixture.list[k++].count : have;
        if (count == have || i < j->amendments.count)
            continue;
        snprintf(text, sizeof text,
                 "amendment %" PRIu32 " has %zu weights, and this site's mixture %zu sources "
                 "(data.train with data.weights): it keeps its weights",
                 i + 1, count, have);
        log_event(LOG_WARN, "mixture", "setting=%s text=\"%s\"",
                  log_quote(quoted, sizeof quoted, list->list[i].text), text);
        if (j->coll->rank == 0)
            job_tell_event(j, text);
    }
}

enum err job_amended(void *self, const struct amendments *list, struct schedule *s)
{
    struct job *j = self;
    struct schedule made;
    if (!j->amendments.count)
        j->base = j->run.sync.schedule;
    made = j->base;
    made.end_count = s->end_count;
    for (unsigned i = 0; i < s->end_count; i++)
        made.ends[i] = s->ends[i];
    TRY(amend_schedule(&j->run.base, &made, list));
    TRY(amend_data(&j->mixture, &j->run.base, &made, list));
    *s = j->run.sync.schedule = made;
    weights_tell(j, list);
    j->amendments = *list;
    j->in_force = UINT32_MAX;
    return loader_change(&j->train.loader, (uint64_t)j->train.step, &j->mixture);
}

enum err job_amend_step(struct job *j, int64_t step)
{
    const struct schedule *x = &j->run.sync.schedule;
    struct arena scratch = arena_make(0);
    if (!j->amendments.count)
        return ERR_OK;
    uint32_t count = amendments_in_force(&j->amendments, schedule_sent(x, 0, step));
    if (count == j->in_force)
        return ERR_OK;
    enum err e = amend_train(&j->s, &j->run.base, x, &j->amendments, step, &scratch);
    arena_free(&scratch);
    j->in_force = e == ERR_OK ? count : j->in_force;
    return e;
}
