/* A private site (privacy.unit): the batch of a step is sampled, each record's gradient clipped,
 * and noise added to their sum, before the optimizer sees it (DP-SGD, Abadi et al. 2016,
 * 1607.00133, Algorithm 1). All that follows is post-processing. The step is charged, durably,
 * before its records are read.
 *
 * The sum is divided by the expected number of records, a public number, never by the number drawn.
 * Losses of training, targets and the size of the batch stay here: they are sums over records
 * without noise. */
#include <stdlib.h>
#include "inner/data/poisson.h"
#include "inner/train/noise.h"
#include "inner/train/private.h"
#include "inner/train/train_parallel.h"
#include "kernels/base/gauss.h"

struct train_private {
    struct clip *clip;
    struct private_site site;
    double multiplier; /* privacy.noise, or what the budget says */
    struct noise_scale noise;
    struct private_keys keys; /* of the step that was charged last */
    struct arena arena;
    uint64_t expected; /* records of a step, on average */
    uint64_t *windows; /* (micro_sequences) of a micro-batch */
};

/* The records of a step, one after the other. */
struct record_source {
    const struct loader *loader;
    struct poisson poisson;
    uint64_t next, end; /* fixed: places in the order of a run without privacy */
    bool fixed;
};

static struct record_source records_of(const struct train *t, const struct private_keys *k)
{
    const struct train_private *p = t->private;
    struct record_source r = {.loader = &t->loader,
                              .fixed = t->settings->privacy_sampling == PRIVACY_SAMPLING_FIXED,
                              .next = (uint64_t)t->step * p->expected,
                              .end = (uint64_t)(t->step + 1) * p->expected};
    if (!r.fixed)
        r.poisson = poisson_begin(k->sample, t->loader.windows, p->expected);
    return r;
}

static bool next_record(struct record_source *r, uint64_t *window)
{
    if (!r->fixed)
        return poisson_next(&r->poisson, window);
    if (r->next == r->end)
        return false;
    *window = loader_order(r->loader, r->next++);
    return true;
}

/* ---- open ---- */
struct clip_options private_clip_options(const struct settings *s, int ranks)
{
    return (struct clip_options){.how = s->privacy_clipping,
                                 .sequences_max =
                                     train_micro_batch_tokens(s, ranks) / (size_t)s->train_sequence,
                                 .record_max = 1,
                                 .sequence = (size_t)s->train_sequence};
}

static enum err check_site(const struct train *t)
{
    const struct settings *s = t->settings;
    uint64_t expected = (uint64_t)(s->train_batch_tokens / s->train_sequence);
    if (t->coll->size > 1)
        return err_set(ERR_CONFIG,
                       "privacy.unit = %s with %d ranks: noise is added on one rank; start one "
                       "rank, with all cores, or set privacy.unit = none",
                       config_choice_name(privacy_unit_choices, s->privacy_unit), t->coll->size);
    if (!t->dev->host_memory || t->dev->model_type != DTYPE_F32)
        return err_set(ERR_CONFIG, "privacy.unit needs f32 on the CPU: set device.kind = cpu and "
                                   "device.dtype = f32");
    if (expected >= t->loader.windows)
        return err_set(ERR_CONFIG,
                       "train.batch_tokens = %lld has %llu records of train.sequence = %lld a "
                       "step, and data.train holds %llu in all: a step may not hold everybody; "
                       "take a smaller batch or more text",
                       (long long)s->train_batch_tokens, (unsigned long long)expected,
                       (long long)s->train_sequence, (unsigned long long)t->loader.windows);
    return ERR_OK;
}

static enum err open_private(struct train *t, struct arena *perm)
{
    const struct settings *s = t->settings;
    struct train_private *p;
    TRY(check_site(t));
    TRY_ALLOC(p = t->private = arena_alloc(perm, sizeof *p));
    TRY_ALLOC(p->windows = arena_array(perm, t->micro_sequences, sizeof *p->windows));
    p->arena = arena_make(0);
    p->expected = (uint64_t)(s->train_batch_tokens / s->train_sequence);
    struct clip_options o = private_clip_options(s, t->coll->size);
    o.model = t->model;
    o.table = &t->table;
    o.norm = s->privacy_clip;
    return clip_open(&p->clip, &o, perm);
}

static void close_private(struct train *t)
{
    if (!t->private)
        return;
    clip_close(t->private->clip);
    arena_free(&t->private->arena);
}

uint64_t train_charged(const struct train *t)
{
    return t->private ? (uint64_t)t->private->site.charged : 0;
}

/* ---- charges ---- */
static struct private_charge charge_of(const struct train *t)
{
    const struct settings *s = t->settings;
    return (struct private_charge){
        .step = t->step,
        .records = t->loader.windows,
        .expected = t->private->expected,
        .noise = t->private->multiplier,
        .clip = s->privacy_clip,
        .unit = config_choice_name(privacy_unit_choices, s->privacy_unit),
        .sampling = config_choice_name(privacy_sampling_choices, s->privacy_sampling)};
}

static enum err set_noise(struct train *t)
{
    struct train_private *p = t->private;
    p->multiplier = t->settings->privacy_noise;
    const struct private_charge c = charge_of(t);
    if (t->budget)
        TRY(t->budget->begin(t->budget->self, &c, &p->multiplier));
    if (!(p->multiplier > 0))
        return err_set(ERR_CONFIG, "privacy.noise is 0: give the noise multiplier");
    p->noise = noise_scale_of(p->multiplier, t->settings->privacy_clip, t->table.parameters);
    if (p->noise.sigma <= GAUSS_SIGMA_MAX)
        return ERR_OK;
    return err_set(ERR_CONFIG,
                   "a noise multiplier of %g is too large for %zu parameters; use a smaller "
                   "privacy.noise, or a larger privacy.epsilon",
                   p->multiplier, t->table.parameters);
}

static enum err resumed(struct train *t)
{
    TRY(private_open(&t->private->site, t->checkpoint_dir, t->step > 0, &t->private->arena));
    return set_noise(t);
}

/* ---- a step ---- */
static enum err clip_all(struct train *t, struct record_source *r)
{
    struct train_private *p = t->private;
    for (;;) {
        size_t count = 0;
        while (count < t->micro_sequences && next_record(r, &p->windows[count]))
            count++;
        if (!count)
            return ERR_OK;
        objective_records(&t->loader, (uint64_t)t->step, p->windows, count, &t->batch);
        TRY(clip_accumulate(p->clip, &t->batch, NULL, NULL));
    }
}

static enum err charge(struct train *t)
{
    struct train_private *p = t->private;
    const struct train_budget *b = t->budget;
    struct digest parameters = digest_of(model_params(t->model), t->table.elements * sizeof(float));
    struct private_charge c = charge_of(t);
    p->keys = private_step_keys(&p->site, &c, &parameters, t->dev->note);
    c.tag = p->keys.tag;
    if (private_charged(&p->site, &c))
        return ERR_OK;
    if (b) {
        TRY(private_count(&p->site, b->known(b->self), &c));
        TRY(b->may_charge(b->self, &c, p->site.charged));
    }
    return private_charge(&p->site, &c);
}

static enum err backward(struct train *t, struct step_targets *targets)
{
    struct train_private *p = t->private;
    struct record_source records = records_of(t, &p->keys);
    TRY(clip_all(t, &records));
    noise_add(model_grads(t->model), &t->table, &p->noise, p->keys.noise, t->dev->threads);
    targets->divisor = (size_t)p->expected;
    targets->tokens = (size_t)t->settings->train_batch_tokens;
    return ERR_OK;
}

const struct train_parallel parallel_private = {.open = open_private,
                                                .close = close_private,
                                                .charge = charge,
                                                .backward = backward,
                                                .reduce = parallel_nothing,
                                                .gather = parallel_nothing,
                                                .resumed = resumed};
