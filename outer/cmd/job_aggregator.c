/* The aggregator of a site that is its own (site.aggregator = self): the aggregator of atoll serve,
 * in the directory aggregator/ of run.dir, called in this process. Two replicas, as on two
 * machines: the rounds, the files and what a kill leaves behind are those of a run of several
 * sites.
 */
#include <math.h>
#include "outer/cmd/job.h"
#include "outer/link/link_self.h"

static enum err begin(struct job *j)
{
    struct arena scratch = arena_make(0);
    float *slab = arena_array(&scratch, j->run.table.elements, sizeof *slab);
    enum err e = ERR_MEMORY;
    if (slab) {
        e = run_initial(&j->run, slab);
        e = e == ERR_OK ? outer_state_begin(&j->own.replica, slab) : e;
    }
    arena_free(&scratch);
    return e;
}

static enum err open_replica(struct job *j)
{
    struct job_aggregator *a = &j->own;
    struct outer_state_options o = run_outer_state(&j->run, false);
    const struct dev_options device = {
        .kind = "cpu", .model_type = "f32", .threads = (int)j->s.device_threads};
    o.remake = aggregator_remake;
    TRY(dev_open(&a->cpu, &device));
    TRY(outer_state_open(&a->replica, a->env, a->cpu, &o, &j->run.perm));
    return outer_state_begun(&a->replica) ? outer_state_load(&a->replica) : begin(j);
}

enum err job_aggregator_open(struct job *j)
{
    struct job_aggregator *a = &j->own;
    const struct outer_settings *k = &j->run.o;
    const struct aggregator_options o = {.run = j->s.run_name,
                                         .sites = k->outer_sites.items,
                                         .site_count = (unsigned)k->outer_sites.count,
                                         .canonical = j->run.identity,
                                         .strict = true,
                                         .norm_limit = (float)k->outer_norm_limit,
                                         .share_max = KEYS_SHARE_MAX,
                                         .weights = k->outer_weights,
                                         .straggler_ms =
                                             (uint64_t)llround(1e3 * k->outer_straggler_timeout_s)};
    const char *directory = arena_printf(&j->run.perm, "%s/aggregator", j->s.run_dir);
    TRY_ALLOC(directory);
    TRY(env_posix_open(&a->env, directory));
    TRY(aggregator_claim(a->env, j->run.identity, &j->run.sync.schedule));
    TRY(open_replica(j));
    TRY(aggregator_open(&a->aggregator, a->env, &a->replica, &o, &j->run.perm));
    const struct link_service service = aggregator_service(a->aggregator);
    return link_self_open(&j->link, a->env, &service, j->s.run_name, k->site_name);
}

void job_aggregator_close(struct job *j)
{
    struct job_aggregator *a = &j->own;
    if (a->aggregator)
        aggregator_close(a->aggregator);
    outer_state_close(&a->replica);
    dev_close(a->cpu);
    if (a->env)
        env_posix_close(a->env);
    *a = (struct job_aggregator){0};
}
