/* Amendments in the training of a site: each step has the settings that are in force for it. */
#include "outer/cmd/job.h"

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
    *s = j->run.sync.schedule = made;
    j->amendments = *list;
    j->in_force = UINT32_MAX;
    return ERR_OK;
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
