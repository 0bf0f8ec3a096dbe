/* SPDX-License-Identifier: Apache-2.0 */
/* What an `atoll train` process will take, before it takes any: the table that a dry run prints,
 * and what does not fit is refused, with settings that would. */
#include <stdio.h>
#include <string.h>
#include "inner/train/memory_left.h"
#include "kernels/base/log.h"
#include "outer/run/job.h"

static double mib(size_t bytes)
{
    return (double)bytes / (1 << 20);
}

static bool trains_on_gpu(const struct job *j)
{
    return j->s->device_kind != DEVICE_CPU;
}

bool job_outer_on_gpu(const struct job *j)
{
    return trains_on_gpu(j) && j->run->o.outer_device != OUTER_DEVICE_CPU;
}

/* Has the outer parameters to be looked at between rounds? */
static bool looks(const struct job *j, const struct sync_config *x)
{
    int64_t look = j->s->train_eval_every;
    if (j->run->o.eval_every_rounds)
        return true;
    return look && (x->fragments.count > 1 || x->schedule.draw.share > 0 ||
                    look % j->run->o.outer_sync_every || j->run->o.outer_overlap_steps);
}

struct exchange_options job_exchange(struct job *j, const struct run *run)
{
    struct site_parts *p = &j->o->parts;
    bool holds = p->site != NULL;
    return (struct exchange_options){.rules = site_parts_rules(run),
                                     .shards = job_shards(j, run),
                                     .site = p->site,
                                     .replica = holds ? &p->replica : NULL,
                                     .link = p->link,
                                     .coll = j->coll,
                                     .beside = !trains_on_gpu(j) || job_outer_on_gpu(j),
                                     .env = j->out->env,
                                     .stop = j->stopping ? &j->stopping->stop : NULL,
                                     .rounded = job_tell_round,
                                     .rescheduled = job_rescheduled,
                                     .self = j};
}

bool job_looks(const struct job *j)
{
    return looks(j, &j->run->sync);
}

/* What the outer loop takes at this rank with the synchronisation of `run`. */
static struct outer_memory memory_of(struct job *j, const struct run *run, const struct table *t)
{
    struct exchange_options e = job_exchange(j, run);
    struct outer_state_options o = run_site_state(run, &e.shards);
    struct outer_memory all = exchange_memory(&e, !trains_on_gpu(j));
    if (looks(j, &run->sync))
        all.host += t->elements * sizeof(float);
    if (!shards_largest(&e.shards, &run->sync.fragments))
        return all;
    bool here = !job_outer_on_gpu(j);
    struct outer_memory replica = outer_state_memory(&o, here);
    struct outer_memory site = site_memory(&o, (unsigned)j->run->o.outer_sites.count,
                                           j->run->o.outer_max_local_steps_offline, here);
    if (keys_self(&run->o)) {
        struct outer_state_options own = run_outer_state(run, false);
        all.host += outer_state_memory(&own, true).host;
    }
    all.device += replica.device + site.device;
    all.host += replica.host + site.host;
    return all;
}

struct outer_memory job_outer_memory(struct job *j, const struct table *t)
{
    return memory_of(j, j->run, t);
}

/* The fewest fragments with which the outer loop takes no more of this kind; 0: none do. */
static unsigned fitting(struct job *j, const struct table *t, bool device, size_t bytes)
{
    struct run other = *j->run;
    struct arena scratch = arena_make(0);
    unsigned found = 0;
    if (other.o.outer_partition == FRAGMENT_SLICES)
        return 0;
    while (!found && ++other.o.outer_fragments <= ROUND_FRAGMENTS_MAX) {
        if (sync_config_make(&other.sync, &other.s, &other.o, t, &scratch) != ERR_OK)
            continue;
        struct outer_memory m = memory_of(j, &other, t);
        found = (device ? m.device : m.host) <= bytes ? (unsigned)other.o.outer_fragments : 0;
    }
    arena_free(&scratch);
    return found;
}

/* `have` of what is left of it after the training's share. */
static enum err refuse(struct job *j, const struct table *t, bool device, size_t need, size_t have)
{
    const char *what = device ? "GPU memory" : trains_on_gpu(j) ? "pinned host memory" : "memory";
    unsigned fragments = fitting(j, t, device, have);
    struct memory_left left;
    char where[5000] = "";
    memory_left(&left, NULL);
    if (!device && left.limit)
        snprintf(where, sizeof where, " (%.4095s)", left.path);
    if (fragments)
        return err_set(ERR_MEMORY,
                       "the outer loop needs %zu MiB of %s, %zu MiB are left next to the "
                       "training%s: outer.fragments = %u would fit",
                       need >> 20, what, have >> 20, where, fragments);
    return err_set(
        ERR_MEMORY,
        "the outer loop needs %zu MiB of %s, %zu MiB are left next to the training%s: %s",
        need >> 20, what, have >> 20, where,
        device ? "outer.device = cpu takes less of it, as does a smaller train.micro_batch_tokens"
               : "use a machine with more, or a smaller model.d_model or model.layers");
}

enum err job_reserve(struct job *j)
{
    struct table t;
    TRY(table_make(&t, j->s, &j->run->perm));
    struct outer_memory m = job_outer_memory(j, &t);
    struct train_memory inner = train_plan(j->s, &t, j->dev->model_type, j->coll->size);
    TRY(inner.failed);
    size_t host = train_memory_left(), here = trains_on_gpu(j) ? 0 : inner.total;
    bool holds = job_holds(j);
    log_event(LOG_INFO, "outer_memory", "device_mib=%.1f pinned_mib=%.1f host_mib=%.1f",
              mib(m.device), trains_on_gpu(j) ? mib(m.host) : 0.0,
              trains_on_gpu(j) ? 0.0 : mib(m.host));
    if (holds && here <= host && m.host > host - here) /* more than that the training says itself */
        return refuse(j, &t, false, m.host, host - here);
    if (!m.device)
        return ERR_OK;
    size_t have = j->dev->memory_bytes, left = have > inner.total ? have - inner.total : 0;
    if (m.device >= have || (m.device > left && fitting(j, &t, true, left)))
        return refuse(j, &t, true, m.device, left);
    j->dev->memory_bytes -= m.device;
    return ERR_OK;
}

static void row(struct json_write *w, const char *name, const char *what, size_t bytes)
{
    if (w)
        json_int(w, name, (int64_t)bytes);
    else
        printf("#   %-36s %8.1f MiB\n", what, mib(bytes));
}

void job_print_memory(struct job *j, const struct table *t, struct json_write *w)
{
    struct train_memory m = train_plan(j->s, t, j->dev->model_type, j->coll->size);
    if (w) {
        json_int(w, "parameters", (int64_t)t->parameters);
        json_object(w, "memory_bytes");
    } else {
        printf("\n# Memory of one rank, %zu parameters in %zu tensors:\n", t->parameters, t->count);
    }
    struct train_memory_row rows[TRAIN_MEMORY_ROWS];
    train_memory_rows(&m, rows);
    for (int i = 0; i < TRAIN_MEMORY_ROWS; i++)
        if (rows[i].bytes)
            row(w, rows[i].name, rows[i].what, rows[i].bytes);
    if (w)
        json_end(w);
    if (!j->outer)
        return;
    struct outer_memory o = job_outer_memory(j, t);
    if (w)
        json_object(w, "outer_memory_bytes");
    else
        printf("# In addition, for the outer loop at the lead:\n");
    if (trains_on_gpu(j)) {
        row(w, "device", job_outer_on_gpu(j) ? "GPU memory: the fragment in flight" : "GPU memory",
            o.device);
        row(w, "pinned", "pinned host memory: outer state", o.host);
    } else {
        row(w, "host", "outer state, and a fragment's buffers", o.host);
    }
    if (w)
        json_end(w);
}

/* Outer states on disk, at most: those that a restart from the oldest kept checkpoint repeats. */
static uint64_t states_kept(const struct job *j)
{
    int64_t span = j->s->train_checkpoint_every * (j->s->train_checkpoint_keep + 1);
    return (uint64_t)(span / j->run->o.outer_sync_every) + 2;
}

struct job_prediction job_predict(const struct job *j)
{
    const struct schedule *x = &j->run->sync.schedule;
    size_t elements[ROUND_FRAGMENTS_MAX], all = 0;
    fragment_sizes(elements, &j->run->sync.fragments);
    for (unsigned f = 0; f < j->run->sync.fragments.count; f++)
        all += elements[f];
    unsigned sites = (unsigned)j->run->o.outer_sites.count;
    return (struct job_prediction){.rounds = exchange_rounds(x, j->s->train_steps),
                                   .up_bytes = schedule_upload_bytes(x, elements),
                                   .down_bytes = schedule_download_bytes(x, elements, sites),
                                   .disk_bytes = states_kept(j) * all * 12};
}
