/* SPDX-License-Identifier: Apache-2.0 */
/* The aggregator of a site that is its own (site.aggregator = self): the aggregator of atoll serve,
 * in the directory aggregator/ of run.dir, called in this process. Two replicas, as on two
 * machines: the rounds, the files and what a kill leaves are those of a run of several
 * sites.
 */
#include "outer/run/aggregator_parts.h"
#include "outer/run/job.h"
#include "outer/link/link_self.h"

enum err job_aggregator_open(void *self, struct link **link)
{
    struct job *j = self;
    struct job_aggregator *a = &j->o->own;
    struct aggregator_options o = aggregator_parts_options(j->run);
    const char *directory = arena_printf(&j->run->perm, "%s/aggregator", j->s->run_dir);
    TRY_ALLOC(directory);
    TRY(env_posix_open(&a->env, directory));
    TRY(aggregator_claim(a->env, j->run->identity, &j->run->sync.schedule));
    TRY(aggregator_parts_state(&a->replica, &a->cpu, a->env, j->run));
    TRY(organs_open_aggregator(&a->organs, j->run, a->env));
    o.organs = a->organs.aggregator;
    TRY(aggregator_open(&a->aggregator, a->env, &a->replica, &o, &j->run->perm));
    const struct link_service service = aggregator_service(a->aggregator);
    return link_self_open(link, a->env, &service, j->s->run_name, j->run->o.site_name);
}

void job_aggregator_close(struct job *j)
{
    struct job_aggregator *a = &j->o->own;
    if (a->aggregator)
        aggregator_close(a->aggregator);
    organs_close(&a->organs);
    outer_state_close(&a->replica);
    dev_close(a->cpu);
    if (a->env)
        env_posix_close(a->env);
    *a = (struct job_aggregator){0};
}
