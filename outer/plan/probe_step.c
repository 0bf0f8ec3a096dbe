/* SPDX-License-Identifier: Apache-2.0 */
/* atoll probe --step: the time of a step of the configured model on this machine, and what a round
 * costs apart from the link.
 */
#include "outer/plan/probe.h"
#include <math.h>
#include <stdio.h>
#include "inner/train/train.h"
#include "kernels/base/clock.h"
#include "kernels/base/file.h"
#include "outer/sim/round_bench.h"

enum { STEPS = 5 };

static enum err nothing_start(void *self, struct train *t)
{
    (void)self, (void)t;
    return ERR_OK;
}

static bool nothing_due(void *self, const struct train *t, int64_t step)
{
    (void)self, (void)t, (void)step;
    return false;
}

static enum err keep_time(void *self, struct train *t, const struct train_report *r)
{
    double *step_s = self;
    (void)t;
    *step_s = r->step == 1 || r->step_seconds < *step_s ? r->step_seconds : *step_s;
    return ERR_OK;
}

static enum err nothing_eval(void *self, struct train *t, const struct train_eval *e)
{
    (void)self, (void)t, (void)e;
    return ERR_OK;
}

static enum err nothing_saved(void *self, struct train *t)
{
    (void)self, (void)t;
    return ERR_OK;
}

/* Times at which each layer's gradients are complete, in one backward pass. */
struct layer_clock {
    const struct table *table;
    struct dev *dev;
    double last, *seconds; /* [layer + 1] */
};

static void layer_final(void *self, size_t from)
{
    struct layer_clock *k = self;
    size_t i = 0;
    if (dev_sync(k->dev) != ERR_OK) /* the step reports the error */
        return;
    double now = clock_mono_s();
    while (i + 1 < k->table->count && k->table->tensors[i + 1].offset <= from)
        i++;
    k->seconds[k->table->tensors[i].layer + 1] += now - k->last;
    k->last = now;
}

/* Backward time by layer, as plan.layers_ms. */
static enum err layer_times(struct run *r, struct measured *found, struct train *t)
{
    struct layer_clock k = {&t->table, t->dev, 0, NULL};
    const struct model_grad_hook ready = {&k, layer_final};
    size_t layers = (size_t)r->s.model_layers + 2;
    const char **items;
    struct model_loss loss;
    double forward_s;
    TRY_ALLOC(k.seconds = arena_array(&r->perm, layers, sizeof *k.seconds));
    TRY_ALLOC(items = arena_array(&r->perm, layers, sizeof *items));
    double begin = clock_mono_s();
    TRY(model_eval(t->model, t->data.batch, &loss));
    TRY(dev_sync(t->dev));
    forward_s = clock_mono_s() - begin;
    k.last = clock_mono_s() + forward_s; /* a step starts with the forward pass */
    TRY(model_step(t->model, t->data.batch, 1, &ready, &loss));
    for (size_t i = 0; i < layers; i++)
        TRY_ALLOC(items[i] = arena_printf(&r->perm, "%.4g", 1e3 * fmax(0, k.seconds[i])));
    found->times.plan_layers_ms = (struct config_list){items, layers};
    return ERR_OK;
}

/* Processing time of a round on this machine, without the link. */
static enum err measure_round(const struct run *r, struct measured *found, const struct dev *d,
                              const char *directory)
{
    enum { CONTRIBUTE = 4 }; /* what a further one costs follows from few */
    struct exchange_cost t;
    unsigned sites = (unsigned)r->o.outer_sites.count;
    struct round_bench b = {.exchange = &r->sync,
                            .table = &r->table,
                            .directory = directory,
                            .sites = sites < CONTRIBUTE ? sites : CONTRIBUTE,
                            .error_feedback_decay = (float)r->o.outer_error_feedback_decay,
                            .seed = (uint64_t)r->s.run_seed};
    const struct dev_options beside =
        run_beside(r, d, config_choice_name(device_kind_choices, r->s.device_kind));
    TRY(dev_open(&b.dev, &beside));
    enum err e = round_bench_measure(&b, &t);
    dev_close(b.dev);
    TRY(e);
    found->times.plan_encode_ns = 1e9 * t.encode_s;
    found->times.plan_apply_ns = 1e9 * t.apply_s;
    found->times.plan_accept_ns = 1e9 * t.accept_s;
    found->times.plan_commit_ns = 1e9 * t.commit_s;
    found->times.plan_sum_ns = 1e9 * t.sum_s;
    fprintf(stderr,
            "one round with %s, per value, storage included: encode %.3g ns, apply %.3g ns; at the "
            "aggregator accept %.3g ns and "
            "sum %.3g ns for each site, commit %.3g ns\n",
            config_choice_name(outer_codec_choices, r->o.outer_codec), 1e9 * t.encode_s,
            1e9 * t.apply_s, 1e9 * t.accept_s, 1e9 * t.sum_s, 1e9 * t.commit_s);
    return ERR_OK;
}

/* The fastest of a few real steps, in a temporary directory. */
enum err probe_step(struct run *r, struct measured *found)
{
    struct coll *coll = NULL;
    struct dev *d = NULL;
    char *dir;
    double step_s = 0;
    const struct train_hook hook = {&step_s,   nothing_start, nothing_start, nothing_due,
                                    keep_time, nothing_eval,  nothing_start, nothing_saved};
    static struct train train;
    r->s.train_steps = STEPS;
    r->s.train_eval_every = r->s.train_checkpoint_every = 0;
    TRY(probe_directory(r, &dir));
    enum err e = coll_open(&coll, config_choice_name(device_kind_choices, r->s.device_kind));
    if (e == ERR_OK)
        e = dev_open(&d,
                     &(struct dev_options){
                         .kind = config_choice_name(device_kind_choices, r->s.device_kind),
                         .model_type = config_choice_name(device_dtype_choices, r->s.device_dtype),
                         .threads = (int)r->s.device_threads,
                         .emulation = model_emulation(&r->s)});
    if (e == ERR_OK)
        e = train_open(&train, &(struct train_options){&r->s, d, coll, 0, dir}, &r->perm);
    if (e == ERR_OK)
        e = train_run(&train, &hook);
    if (e == ERR_OK)
        e = layer_times(r, found, &train);
    train_close(&train);
    if (e == ERR_OK)
        e = measure_round(r, found, d, dir);
    dev_close(d);
    coll_close(coll);
    found->times.plan_step_s = step_s;
    if (e == ERR_OK)
        fprintf(stderr, "step %.4g s, the fastest of %d\n", step_s, STEPS);
    if (e == ERR_OK)
        return file_remove_tree(dir);
    char why[512];
    snprintf(why, sizeof why, "%s", err_message());
    enum err tidied = file_remove_tree(dir);
    return err_set(e, "%s%s", why,
                   tidied == ERR_OK ? "" : "; the temporary directory could not be removed");
}
