/* SPDX-License-Identifier: Apache-2.0 */
/* The live page of a site, its event files for TensorBoard, and what its service manager is told.
 */
#include <string.h>
#include "outer/run/job.h"
#include "outer/run/notify.h"

/* Without an aggregator a site is ready when it trains. */
static bool job_ready(void *self, char *why, size_t size)
{
    struct job *j = self;
    bool bound = atomic_load(&j->out->bound), ready = bound && !atomic_load(&j->health.uncertified);
    if (!ready)
        snprintf(why, size, "%s",
                 bound      ? "the site's certificate has expired, or is not valid"
                 : j->outer ? "the site has not made a step yet, or its aggregator is "
                              "unreachable"
                            : "the site has not made a step yet");
    return ready;
}

enum err job_page_open(struct job *j)
{
    const char **dir;
    if (!*j->run->o.site_http)
        return ERR_OK;
    TRY_ALLOC(dir = arena_array(&j->run->perm, 1, sizeof *dir));
    dir[0] = j->s->run_dir;
    return page_try(&j->out->page, &(struct page_options){.address = j->run->o.site_http,
                                                          .dirs = dir,
                                                          .dir_count = 1,
                                                          .ready = job_ready,
                                                          .self = j});
}

static void events_record(void *self, const char *line, size_t size)
{
    tfevents_record(self, line, size);
}

/* run.tensorboard: true, or a directory */
enum err job_events_open(struct job *j)
{
    const char *to = j->s->run_tensorboard;
    if (!*to || strcmp(to, "false") == 0)
        return ERR_OK;
    if (strcmp(to, "true") == 0)
        TRY_ALLOC(to = arena_printf(&j->run->perm, "%s/tensorboard", j->s->run_dir));
    TRY(tfevents_open(&j->out->events, to));
    j->out->record.told = events_record;
    j->out->record.self = &j->out->events;
    return ERR_OK;
}

void job_page_step(struct job *j)
{
    char text[128];
    const struct progress_line *l = &j->told.line;
    atomic_store(&j->out->bound, !j->told.unreachable);
    int n =
        snprintf(text, sizeof text, "step %lld of %lld", (long long)l->step, (long long)l->steps);
    if (l->rounds)
        snprintf(text + n, sizeof text - (size_t)n, ", %llu of %llu rounds",
                 (unsigned long long)l->round, (unsigned long long)l->rounds);
    notify_step(text);
}

void job_page_close(struct job *j)
{
    notify_stopping();
    page_close(&j->out->page);
    tfevents_close(&j->out->events);
}
