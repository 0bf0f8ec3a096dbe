/* SPDX-License-Identifier: Apache-2.0 */
/* A private site (privacy.unit): the batch of a step is sampled, each record's gradient clipped,
 * and noise added to their sum, before the optimizer sees it (DP-SGD, Abadi et al. 2016,
 * 1607.00133, Algorithm 1). All that follows is post-processing. The step is charged, durably,
 * before its records are read.
 *
 * Several ranks sample as one site: each draws the same units and clips every `ranks`-th of them,
 * the sums are added, and the lead adds noise once and sends the result to the others. The lead
 * alone holds the site's key and its charges.
 *
 * The sum is divided by the expected number of records, a public number, never by the number drawn.
 * Losses of training, targets and the size of the batch stay here: they are sums over records
 * without noise. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "inner/data/lot.h"
#include "inner/model/clip.h"
#include "inner/train/noise.h"
#include "inner/train/private.h"
#include "inner/train/train_parallel.h"
#include "kernels/base/gauss.h"
#include "kernels/base/log.h"

struct train_private {
    struct clip *clip;
    struct private_site site;
    struct noise_scale noise;
    struct noise_chain chain; /* banded: of the lead */
    struct private_drawn {    /* the step that was charged last; secret */
        struct private_keys keys;
        uint8_t bin_key[CHACHA_KEY_BYTES];
        uint64_t number; /* among the steps of the site */
    } drawn;
    struct arena arena;
    struct grad_reduce reduce;
    struct units units;
    struct chained_at stored;     /* of the checkpoint */
    struct digest records;        /* of the text: at the lead */
    struct private_charge charge; /* of each step, but for its step and tag */
    struct lot_sizes sizes;
    size_t most; /* examples of a unit in a step */
    /* A micro-batch: its windows (micro_sequences), and where its units begin among them. */
    uint64_t *windows;
    size_t *first;    /* (micro_sequences + 1) */
    uint64_t *chosen; /* (most) of the unit that was drawn last */
    size_t chosen_count;
};

static struct train_private *private_of(const struct train *t)
{
    return t->division.state;
}

/* ---- open ---- */
/* What `clip` is opened with, but for the model and the norm. */
static struct clip_options private_clip_options(const struct settings *s, int ranks)
{
    return (struct clip_options){.how = s->privacy_clipping,
                                 .sequences_max =
                                     train_micro_batch_tokens(s, ranks) / (size_t)s->train_seq_len,
                                 .record_max = (size_t)keys_unit_sequences(s),
                                 .sequence = (size_t)s->train_seq_len};
}

static const char *unit_name(const struct train *t)
{
    return config_choice_name(privacy_unit_choices, t->settings->privacy_unit);
}

static enum err check_site(const struct train *t)
{
    const struct settings *s = t->settings;
    long long most = keys_unit_sequences(s);
    if (!t->dev->host_memory || t->dev->model_type != DTYPE_F32)
        return err_set(ERR_CONFIG, "privacy.unit needs f32 on the CPU: set device.kind = cpu and "
                                   "device.dtype = f32");
    if ((size_t)most > t->data.micro_sequences)
        return err_set(ERR_CONFIG,
                       "privacy.unit_sequences = %lld: the examples of a %s are clipped together, "
                       "and a micro-batch holds %zu; set train.micro_batch_tokens to %lld or more, "
                       "or privacy.unit_sequences to %zu or less",
                       most, unit_name(t), t->data.micro_sequences,
                       most * (long long)s->train_seq_len, t->data.micro_sequences);
    return ERR_OK;
}

/* The loss of held-out text leaves the site without a charge. */
static enum err check_eval(const struct train *t)
{
    for (size_t i = 0; i < t->data.held_out.set.count; i++)
        for (size_t k = 0; k < t->data.loader->set.count; k++) {
            struct stat a, b;
            const char *path = t->data.held_out.set.shards[i].path;
            if (stat(path, &a) != 0 || stat(t->data.loader->set.shards[k].path, &b) != 0 ||
                a.st_dev != b.st_dev || a.st_ino != b.st_ino)
                continue;
            return err_set(ERR_CONFIG,
                           "data.eval has %s, which data.train has too: the loss of evaluations is "
                           "not charged; name text outside of the protected data",
                           path);
        }
    return ERR_OK;
}

static void map_add(struct digest_stream *s, const struct file_map *m)
{
    const uint64_t size = m->size_bytes;
    digest_add(s, &size, sizeof size);
    if (size)
        digest_add(s, m->data, m->size_bytes);
}

/* All from which the records follow: another text of the same size is another release. */
static struct digest records_digest(const struct shard_set *set)
{
    struct digest_stream s;
    digest_open(&s);
    for (size_t i = 0; i < set->count; i++) {
        map_add(&s, &set->shards[i].map);
        map_add(&s, &set->shards[i].index_map);
        map_add(&s, &set->shards[i].labels_map);
        map_add(&s, &set->shards[i].owners_map);
    }
    return digest_close(&s);
}

static enum err open_units(struct train *t, struct arena *perm)
{
    const struct settings *s = t->settings;
    struct train_private *p = private_of(t);
    TRY(units_open(&p->units, t->data.loader, s->privacy_unit, perm));
    TRY(private_charge_of(&p->charge, s, p->units.count));
    p->sizes = private_sizes(&p->charge);
    return ERR_OK;
}

static enum err open_private(struct train *t, struct train_division *d, struct arena *perm)
{
    const struct settings *s = t->settings;
    struct train_private *p;
    TRY(check_site(t));
    TRY(check_eval(t));
    TRY_ALLOC(d->state = p = arena_alloc(perm, sizeof *p));
    d->reduce = &p->reduce;
    p->arena = arena_make(0);
    p->most = (size_t)keys_unit_sequences(s);
    TRY_ALLOC(p->windows = arena_array(perm, t->data.micro_sequences, sizeof *p->windows));
    TRY_ALLOC(p->first = arena_array(perm, t->data.micro_sequences + 1, sizeof *p->first));
    TRY_ALLOC(p->chosen = arena_array(perm, p->most, sizeof *p->chosen));
    TRY(open_units(t, perm));
    if (t->coll->rank == 0)
        p->records = records_digest(&t->data.loader->set);
    if (t->coll->rank == 0 && p->sizes.bands > 1)
        TRY(noise_chain_open(&p->chain, &t->table, p->sizes.bands, perm));
    p->reduce = (struct grad_reduce){.coll = t->coll,
                                     .dev = t->dev,
                                     .reducer = reducer_of(s),
                                     .grads = model_grads(t->model),
                                     .elements = t->table.elements};
    struct clip_options o = private_clip_options(s, t->coll->size);
    o.model = t->model;
    o.table = &t->table;
    o.norm = s->privacy_clip;
    return clip_open(&p->clip, &o, perm);
}

static void close_private(struct train *t)
{
    struct train_private *p = private_of(t);
    if (!p)
        return;
    clip_close(p->clip);
    arena_free(&p->arena);
}

enum err train_records(uint64_t *records, const struct settings *s, uint32_t data_site)
{
    const struct loader_options o = train_loader_options(s, data_site, 0, 1);
    struct arena a = arena_make(0);
    struct loader l = {.windows = 0};
    struct units units = {.count = 0};
    enum err e = loader_open(&l, &a, &s->data_train, &o);
    if (e == ERR_OK)
        e = units_open(&units, &l, s->privacy_unit, &a);
    *records = units.count;
    loader_close(&l);
    arena_free(&a);
    return e;
}

struct chained_at *train_charges_at(struct train *t)
{
    return t->division.how->secret ? &private_of(t)->stored : NULL;
}

struct digest train_private_id(const struct train *t)
{
    return private_run_id(&private_of(t)->site);
}

uint64_t train_charged(const struct train *t)
{
    return t->division.how->secret ? (uint64_t)private_of(t)->site.charged : 0;
}

/* ---- charges ---- */
static enum err set_multiplier(struct train *t)
{
    struct private_charge *c = &private_of(t)->charge;
    double noise = c->noise;
    c->step = t->step;
    if (t->given.budget)
        TRY(t->given.budget->begin(t->given.budget->self, c, &noise));
    c->noise = noise;
    if (noise > 0)
        return ERR_OK;
    return err_set(ERR_CONFIG, "privacy.noise_multiplier is 0: give the noise multiplier");
}

static enum err set_noise(struct train *t)
{
    struct train_private *p = private_of(t);
    TRY(t->coll->ops->broadcast_host(t->coll, &p->charge.noise, sizeof p->charge.noise, 0));
    p->noise = noise_scale_of(p->charge.noise, t->settings->privacy_clip, t->table.parameters,
                              p->sizes.bands);
    if (p->noise.sigma <= GAUSS_SIGMA_MAX)
        return ERR_OK;
    return err_set(ERR_CONFIG,
                   "a noise multiplier of %g is too large for %zu parameters; use a smaller "
                   "privacy.noise_multiplier, or a larger privacy.epsilon",
                   p->charge.noise, t->table.parameters);
}

static enum err open_lead(struct train *t)
{
    struct train_private *p = private_of(t);
    const struct private_begun begun = {t->step > 0, p->stored};
    TRY(private_open(&p->site, t->given.checkpoint_dir, &begun, &p->arena));
    p->stored = p->site.list.last;
    return set_multiplier(t);
}

static enum err resumed(struct train *t)
{
    TRY(train_share_error(t, t->coll->rank == 0 ? open_lead(t) : ERR_OK));
    return set_noise(t);
}

/* ---- a step ---- */
/* Fills p->windows and p->first with the next units of this rank that fit a micro-batch. Returns
 * their number. A unit that does not fit stays in p->chosen. */
static size_t next_units(struct train *t, struct lot *d)
{
    struct train_private *p = private_of(t);
    size_t units = 0, at = 0;
    for (uint64_t unit; p->chosen_count || lot_next(d, &unit);) {
        if (!p->chosen_count && unit % (uint64_t)t->coll->size != (uint64_t)t->coll->rank)
            continue;
        if (!p->chosen_count)
            p->chosen_count = lot_windows(d, unit, p->most, p->chosen);
        if (p->chosen_count > t->data.micro_sequences - at)
            break;
        memcpy(p->windows + at, p->chosen, p->chosen_count * sizeof *p->windows);
        at += p->chosen_count;
        p->chosen_count = 0;
        p->first[++units] = at;
    }
    return units;
}

static enum err clip_all(struct train *t)
{
    struct train_private *p = private_of(t);
    struct lot d;
    lot_begin(&d, &(struct lot_options){.how = t->settings->privacy_sampling,
                                        .sizes = p->sizes,
                                        .units = &p->units,
                                        .loader = t->data.loader,
                                        .index = p->drawn.number,
                                        .key = p->drawn.keys.sample,
                                        .bin_key = p->drawn.bin_key});
    for (struct clip_cut cut = {p->first, 0}; (cut.records = next_units(t, &d)) > 0;) {
        objective_records(t->data.loader, (uint64_t)t->step, p->windows, p->first[cut.records],
                          t->data.batch);
        TRY(clip_accumulate(p->clip, t->data.batch, &cut, NULL));
    }
    return ERR_OK;
}

/* From which sums repeat bit for bit: another number of ranks adds in another order. */
enum { DEVICE_MAX = 600 };
static void describe_device(const struct train *t, char text[DEVICE_MAX])
{
    snprintf(text, DEVICE_MAX, "%s ranks=%d program=%s", t->dev->note, t->coll->size,
             t->given.budget ? t->given.budget->program : "");
}

/* Steps of which manifests know and the list does not. */
static enum err count_missing(struct train *t, const struct private_charge *next)
{
    const struct train_budget *b = t->given.budget;
    struct private_site *site = &private_of(t)->site;
    struct private_charge like = *next;
    uint64_t missing, known = b->known(b->self);
    TRY(private_missing(&missing, site, known));
    if (!missing)
        return ERR_OK;
    TRY(b->dearest(b->self, &like, missing));
    return private_count(site, known, &like);
}

static enum err charge_lead(struct train *t)
{
    struct train_private *p = private_of(t);
    const struct train_budget *b = t->given.budget;
    struct private_charge c = p->charge;
    char device[DEVICE_MAX];
    const struct dev_range all = slab_all(&t->table);
    const struct private_basis basis = {
        .parameters = digest_of(model_gather(t->model, all), t->table.elements * sizeof(float)),
        .records = p->records,
        .device = device};
    model_scatter(t->model, all, false);
    c.step = t->step;
    describe_device(t, device);
    struct private_drawn *d = &p->drawn;
    d->keys = private_step_keys(&p->site, &c, &basis);
    private_bin_key(&p->site, d->bin_key);
    c.tag = d->keys.tag;
    const struct private_line *line = private_charged(&p->site, &c.tag);
    if (!line && b) {
        TRY(count_missing(t, &c));
        TRY(b->may_charge(b->self, &c, p->site.charged));
    }
    d->number = line ? line->number : (uint64_t)p->site.charged;
    TRY(private_charge(&p->site, &c));
    p->stored = p->site.list.last;
    return ERR_OK;
}

static enum err charge(struct train *t)
{
    struct private_drawn *d = &private_of(t)->drawn;
    TRY(train_share_error(t, t->coll->rank == 0 ? charge_lead(t) : ERR_OK));
    return t->coll->ops->broadcast_host(t->coll, d, sizeof *d, 0);
}

/* This rank's clipped sum. */
static enum err backward(struct train *t, struct step_targets *targets)
{
    bool lead = t->coll->rank == 0;
    grad_reduce_begin(t->division.reduce);
    TRY(clip_all(t));
    targets->divisor = lead ? (size_t)private_of(t)->sizes.expected : 0;
    targets->tokens = lead ? (size_t)t->settings->train_batch_tokens : 0;
    return ERR_OK;
}

/* ---- noise ---- */
static void chain_step(struct train *t, float *slab)
{
    struct train_private *p = private_of(t);
    uint8_t key[CHACHA_KEY_BYTES];
    private_noise_key(&p->site, private_step(&p->site, p->chain.next), key);
    noise_chain_step(&p->chain, slab, &p->noise, key, t->dev->threads);
}

/* After a restart, and where a step is repeated, the noise of the steps before it is recomputed. */
static void add_correlated(struct train *t, float *grads)
{
    struct train_private *p = private_of(t);
    struct noise_chain *x = &p->chain;
    uint64_t number = p->drawn.number, chain = private_step(&p->site, number)->chain;
    if (x->begin != chain || x->next > number)
        noise_chain_begin(x, chain);
    if (number > x->next + x->bands)
        log_event(LOG_INFO, "noise", "steps=%llu text=\"recomputed: later noise follows from it\"",
                  (unsigned long long)(number - x->next));
    while (x->next < number)
        chain_step(t, NULL);
    chain_step(t, grads);
}

/* The noise depends on the sum to its last bit, so one rank adds it for all. */
static enum err reduce(struct train *t)
{
    struct train_private *p = private_of(t);
    float *grads = model_grads(t->model);
    TRY(grad_reduce_wait(t->division.reduce));
    if (t->coll->rank == 0 && p->sizes.bands > 1)
        add_correlated(t, grads);
    else if (t->coll->rank == 0)
        noise_add(grads, &t->table, &p->noise, p->drawn.keys.noise, t->dev->threads);
    TRY(t->coll->ops->broadcast(t->coll, grads, t->table.elements * sizeof *grads, 0));
    if (weights_units(model_weights(t->model)))
        weights_take_grads(model_weights(t->model));
    return ERR_OK;
}

static void plan_private(struct train_memory *m, const struct train_sizes *p)
{
    const struct clip_options o = private_clip_options(p->settings, p->ranks);
    m->clipping = clip_plan(p->settings, p->table, &o) +
                  noise_chain_bytes(p->table->elements, (uint64_t)keys_bands(p->settings));
}

const struct train_parallel parallel_private = {.check = parallel_any_ranks,
                                                .batch_ranks = parallel_all_ranks,
                                                .plan = plan_private,
                                                .secret = true,
                                                .open = open_private,
                                                .close = close_private,
                                                .charge = charge,
                                                .backward = backward,
                                                .reduce = reduce,
                                                .gather = parallel_nothing,
                                                .resumed = resumed,
                                                .earlier = parallel_no_earlier,
                                                .lengthened = method_keeps_past};
