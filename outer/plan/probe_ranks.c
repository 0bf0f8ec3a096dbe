/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/plan/probe.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "inner/train/train.h"
#include "kernels/base/clock.h"
#include "kernels/base/file.h"
#include "kernels/base/log.h"
#include "outer/plan/plan_settings.h"
#include "outer/plan/site_settings.h"

enum {
    REPEATS = 12,
    REPEATS_MIN = 2,
    REPEATS_MAX = 2000,
    PRODUCTS = 4,
    WARM_STEPS = 6,
    STEPS = 12,
    WIDTHS_MAX = 8,
    SHAPE_LAYERS = 2
};
static const double PRODUCT_S = 0.3; /* of repetitions */

struct ranks_probe {
    struct run *run;
    struct coll *coll;
    struct dev *dev;
    struct ranks_times times[RANKS_OP_COUNT];
    double tflops[PRODUCTS], memory_gbs, watts, overlap;
    struct site_point points[SITE_MODEL_POINTS_MAX];
    unsigned count;
    char *directory;
    double seconds; /* of repetitions of a collective */
};

static const char *const product_names[PRODUCTS] = {"qkv", "proj", "mlp", "logits"};

enum err probe_directory(struct run *p, char **path)
{
    const char *slash = strrchr(p->s.run_dir, '/');
    int n = slash ? (int)(slash - p->s.run_dir) + 1 : 0;
    TRY_ALLOC(*path = arena_printf(&p->perm, "%.*s.atoll-probe-XXXXXX", n, p->s.run_dir));
    if (mkdtemp(*path))
        return ERR_OK;
    return err_set(ERR_IO, "%s: cannot be made: %s; probe measures the disk of run.dir", *path,
                   strerror(errno));
}

static void say(const struct ranks_probe *q, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void say(const struct ranks_probe *q, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (q->coll->rank == 0)
        vfprintf(stderr, format, args);
    va_end(args);
}

/* The largest over the ranks: a step is as slow as its slowest rank. */
static enum err slowest(struct ranks_probe *q, double *x)
{
    double all[64] = {0};
    int n = q->coll->size < 64 ? q->coll->size : 64;
    if (q->coll->rank < n)
        all[q->coll->rank] = *x;
    TRY(q->coll->ops->all_reduce_host(q->coll, all, 64));
    for (int i = 0; i < n; i++)
        *x = fmax(*x, all[i]);
    return ERR_OK;
}

static enum err open_device(struct ranks_probe *q)
{
    const struct settings *s = &q->run->s;
    const char *kind = config_choice_name(device_kind_choices, s->device_kind);
    char gpu[32];
    snprintf(gpu, sizeof gpu, "cuda:%d", q->coll->local_rank);
    TRY(dev_open(&q->dev, &(struct dev_options){.kind = s->device_kind == DEVICE_CPU ? kind : gpu,
                                                .model_type = config_choice_name(
                                                    device_dtype_choices, s->device_dtype),
                                                .threads = (int)s->device_threads,
                                                .emulation = model_emulation(s)}));
    coll_follow(q->coll, q->dev);
    return ERR_OK;
}

/* ---- collectives ---- */

static enum err collective(struct ranks_probe *q, enum ranks_op op, float *x, size_t count,
                           size_t *first)
{
    const struct coll_ops *o = q->coll->ops;
    size_t n = (size_t)q->coll->size;
    for (size_t r = 0; r <= n; r++)
        first[r] = count * r / n;
    const struct coll_parts parts = {x, x + first[q->coll->rank], DTYPE_F32, first};
    uint64_t ticket = 0;
    if (op == RANKS_ALL_REDUCE)
        TRY(o->reduce_begin(q->coll, x, DTYPE_F32, count));
    else if (op == RANKS_ALL_GATHER)
        TRY(o->all_gather_begin(q->coll, &parts, &ticket));
    else
        TRY(o->reduce_scatter_begin(q->coll, &parts, &ticket));
    TRY(ticket ? o->ticket_wait(q->coll, ticket) : o->reduce_wait(q->coll));
    TRY(o->event_record(q->coll));
    return o->event_wait(q->coll);
}

/* The fastest of several: the rest is other work of the machine. The first connects the ranks. All
 * ranks see the same times, so all stop alike. */
static enum err fastest(struct ranks_probe *q, enum ranks_op op, float *x, size_t count,
                        size_t *first, double *best)
{
    double spent = 0;
    *best = INFINITY;
    for (int i = 0; i <= REPEATS_MIN || (spent < q->seconds && i < REPEATS_MAX); i++) {
        TRY(q->coll->ops->barrier(q->coll));
        double begin = clock_mono_s();
        TRY(collective(q, op, x, count, first));
        double seconds = clock_mono_s() - begin;
        TRY(slowest(q, &seconds));
        *best = i ? fmin(*best, seconds) : *best;
        spent += seconds;
    }
    return ERR_OK;
}

static enum err measure_collective(struct ranks_probe *q, enum ranks_op op, float *x, size_t *first)
{
    struct ranks_times *t = &q->times[op];
    for (; t->count < RANKS_LINK_TIMES; t->count++)
        TRY(fastest(q, op, x, (size_t)ranks_link_bytes(t->count) / sizeof *x, first,
                    &t->seconds[t->count]));
    /* Fewer bytes take no longer: what does was disturbed. */
    for (unsigned i = t->count - 1; i-- > 0;)
        t->seconds[i] = fmin(t->seconds[i], t->seconds[i + 1]);
    return ERR_OK;
}

/* The prediction of all-reduces of the sizes between the measured ones; whole KiB, so that the
 * parts of ranks are aligned as theirs are. */
static enum err check_collective(struct ranks_probe *q, const struct ranks_fit *f, float *x,
                                 size_t *first)
{
    struct ranks_link l = {.ranks = q->coll->size,
                           .algorithm = q->run->measured.ranks.plan_algorithm};
    double worst = 0, second = 0, sum = 0, at = 0, seconds; /* second: the worst but one */
    l.times[RANKS_ALL_REDUCE] = q->times[RANKS_ALL_REDUCE];
    l.fit[RANKS_ALL_REDUCE] = *f;
    for (unsigned i = 0; i + 1 < RANKS_LINK_TIMES; i++) {
        size_t count = (size_t)(M_SQRT2 * ranks_link_bytes(i)) / 1024 * 1024 / sizeof *x;
        TRY(fastest(q, RANKS_ALL_REDUCE, x, count, first, &seconds));
        double off = fabs(
            ranks_link_seconds(&l, RANKS_ALL_REDUCE, q->coll->size, (double)(count * sizeof *x)) /
                seconds -
            1);
        sum += off;
        second = fmax(second, fmin(off, worst));
        if (off > worst) {
            worst = off;
            at = (double)(count * sizeof *x) / 1024;
        }
    }
    say(q,
        "all-reduces of 5 KiB to 45 MiB, between the measured sizes: predicted within %.1f %%, in "
        "the mean %.1f %%; the worst at %.0f KiB, the others within %.1f %%\n",
        100 * worst, 100 * sum / (RANKS_LINK_TIMES - 1), at, 100 * second);
    return ERR_OK;
}

static enum err measure_collectives(struct ranks_probe *q)
{
    static const char *const names[] = {"all-reduce", "all-gather", "sums to owners"};
    float *x = NULL;
    size_t *first;
    if (q->coll->size == 1)
        return ERR_OK;
    TRY_ALLOC(first = arena_array(&q->run->perm, (size_t)q->coll->size + 1, sizeof *first));
    TRY(dev_alloc(q->dev, (void **)&x, (size_t)ranks_link_bytes(RANKS_LINK_TIMES - 1)));
    enum err e = ERR_OK;
    for (enum ranks_op op = 0; e == ERR_OK && op < RANKS_OP_COUNT; op++) {
        e = measure_collective(q, op, x, first);
        if (e)
            break;
        struct ranks_fit f =
            ranks_link_fit(op, q->run->measured.ranks.plan_algorithm, q->coll->size, &q->times[op]);
        say(q,
            "%-14s over %d ranks: alpha %.3g us, beta %.3g GB/s a hop; the formula is at most "
            "%.0f %% off from 4 KiB to 64 MiB\n",
            names[op], q->coll->size, 1e6 * f.alpha_s, f.beta_s > 0 ? 1e-9 / f.beta_s : 0,
            100 * f.worst);
        if (op == RANKS_ALL_REDUCE)
            e = check_collective(q, &f, x, first);
    }
    dev_free(q->dev, x);
    return e;
}

/* ---- products and memory ---- */

static void product_shape(const struct settings *s, int i, size_t *N, size_t *K)
{
    size_t C = (size_t)s->model_d_model, heads = (size_t)s->model_heads;
    *K = i == 3 ? table_embed(s) : C;
    *N = i == 0   ? C + 2 * C / heads * table_kv_heads(s)
         : i == 1 ? C
         : i == 2 ? table_mlp(s) * (table_gated(s) ? 2 : 1)
                  : table_vocab_padded(s);
}

static enum err measure_product(struct ranks_probe *q, int i, char *memory, size_t of[3])
{
    size_t N, K, T = train_micro_batch_tokens(&q->run->s, q->coll->size);
    product_shape(&q->run->s, i, &N, &K);
    struct dev_linear a = {memory, memory + of[0], NULL, T, K, N, DEV_ACT_NONE, NULL};
    double best = INFINITY, begin = clock_mono_s(), now = begin;
    for (int n = 0; n < 3 || now - begin < PRODUCT_S; n++) {
        double start = clock_mono_s();
        q->dev->ops->linear_fwd(q->dev, memory + of[0] + of[1], &a);
        TRY(dev_sync(q->dev));
        now = clock_mono_s();
        best = n ? fmin(best, now - start) : best;
    }
    TRY(slowest(q, &best));
    q->tflops[i] = 2e-12 * (double)T * (double)N * (double)K / best;
    say(q, "product %-7s %zu x %zu x %zu: %.4g TFLOP/s\n", product_names[i], T, K, N, q->tflops[i]);
    return ERR_OK;
}

static enum err measure_memory(struct ranks_probe *q, char *memory, size_t bytes)
{
    double best = INFINITY;
    for (int i = 0; i < REPEATS; i++) {
        double start = clock_mono_s();
        q->dev->ops->copy(q->dev, memory, memory + bytes / 2, bytes / 2);
        TRY(dev_sync(q->dev));
        double seconds = clock_mono_s() - start;
        best = i ? fmin(best, seconds) : best;
    }
    TRY(slowest(q, &best));
    q->memory_gbs = 1e-9 * (double)bytes / best;
    say(q, "memory  %.4g GB/s, read and written\n", q->memory_gbs);
    return ERR_OK;
}

/* Random numbers of 0.13 to 0.5 with random signs, as bf16 and as f32: a GPU multiplies zeros with
 * less power, and faster, than numbers. */
static enum err fill_random(struct ranks_probe *q, char *memory, size_t bytes)
{
    enum { WORDS = 1 << 18 };
    uint16_t *words;
    uint32_t state = 1;
    TRY_ALLOC(words = arena_array(&q->run->perm, WORDS, sizeof *words));
    for (size_t i = 0; i < WORDS; i++) {
        state = state * 1664525u + 1013904223u;
        words[i] = (uint16_t)((state >> 16 & 0x80ff) | 0x3e00);
    }
    for (size_t at = 0; at < bytes; at += WORDS * sizeof *words) {
        size_t left = bytes - at, n = WORDS * sizeof *words;
        q->dev->ops->copy(q->dev, memory + at, words, left < n ? left : n);
    }
    return dev_sync(q->dev);
}

static enum err measure_products(struct ranks_probe *q)
{
    enum { LEAST = 128 << 20 };
    size_t of[3] = {0}, T = train_micro_batch_tokens(&q->run->s, q->coll->size), N, K;
    char *memory;
    for (int i = 0; i < PRODUCTS; i++) {
        product_shape(&q->run->s, i, &N, &K);
        size_t need[3] = {T * K * 4, N * K * 4, T * N * 4};
        for (int k = 0; k < 3; k++)
            of[k] = need[k] > of[k] ? need[k] : of[k];
    }
    size_t bytes = of[0] + of[1] + of[2];
    bytes = bytes < LEAST ? LEAST : bytes;
    TRY(dev_alloc(q->dev, (void **)&memory, bytes));
    enum err e = fill_random(q, memory, bytes);
    for (int i = 0; e == ERR_OK && i < PRODUCTS; i++)
        e = measure_product(q, i, memory, of);
    if (e == ERR_OK)
        e = measure_memory(q, memory, bytes);
    dev_free(q->dev, memory);
    return e;
}

/* ---- energy ---- */

/* Joules that the processor's packages have counted; negative: not readable. */
static double rapl_joules(void)
{
    double sum = -1;
    DIR *d = opendir("/sys/class/powercap");
    const struct dirent *entry;
    while (d && (entry = readdir(d))) {
        const char *colon = strchr(entry->d_name, ':');
        char path[320];
        double uj;
        if (!colon || strncmp(entry->d_name, "intel-rapl:", 11) || strchr(colon + 1, ':'))
            continue; /* packages only: their parts are counted in them */
        snprintf(path, sizeof path, "/sys/class/powercap/%s/energy_uj", entry->d_name);
        FILE *f = fopen(path, "r");
        if (f && fscanf(f, "%lf", &uj) == 1)
            sum = (sum < 0 ? 0 : sum) + 1e-6 * uj;
        if (f)
            fclose(f);
    }
    if (d)
        closedir(d);
    return sum;
}

/* ---- the classes of a step ---- */

struct timed_step {
    double all_s, seconds[PROFILE_COUNT];
};
struct step_watch { /* of one calibrated model */
    struct train_class last[PROFILE_COUNT];
    struct timed_step steps[STEPS];
    unsigned count;
    double exposed_s; /* the least of all steps: no rank waits for another */
    double wall_s, processor_s, share;
};

/* The share of a processor that this process got since the last step, which other programs took
 * the rest of; 1 where it has several threads, or a GPU's. */
static double share_of(struct step_watch *w, const struct train *t)
{
    double wall_s = clock_mono_s(), processor_s = clock_processor_s(),
           share = (processor_s - w->processor_s) / (wall_s - w->wall_s);
    w->wall_s = wall_s;
    w->processor_s = processor_s;
    return t->dev->host_memory && t->dev->threads == 1 ? fmin(1, share) : 1;
}

/* The profile has the steps before this one. */
static enum err watch_step(void *self, struct train *t, const struct train_report *r)
{
    struct step_watch *w = self;
    struct train_class now[PROFILE_COUNT];
    unsigned steps = train_profiled(t, now);
    double share = w->share;
    (void)r;
    w->share = share_of(w, t);
    if (steps <= w->count || steps > STEPS)
        return ERR_OK;
    struct timed_step *x = &w->steps[w->count];
    for (int c = 0; c < PROFILE_COUNT; c++) {
        x->seconds[c] = share * (now[c].seconds - w->last[c].seconds);
        x->all_s += c == PROFILE_REDUCE ? 0 : x->seconds[c];
    }
    double exposed_s = now[PROFILE_REDUCE].seconds - w->last[PROFILE_REDUCE].seconds;
    w->exposed_s = w->count ? fmin(w->exposed_s, exposed_s) : exposed_s;
    memcpy(w->last, now, sizeof now);
    w->count = steps;
    return ERR_OK;
}

static int by_time(const void *a, const void *b)
{
    double x = ((const struct timed_step *)a)->all_s, y = ((const struct timed_step *)b)->all_s;
    return (x > y) - (x < y);
}

/* The median of processor times; the fastest where the time is what passed. */
static const struct timed_step *chosen_step(struct step_watch *w, const struct dev *d)
{
    qsort(w->steps, w->count, sizeof *w->steps, by_time);
    return &w->steps[d->host_memory && d->threads == 1 ? w->count / 2 : 0];
}

static enum err quiet(void *self, struct train *t)
{
    (void)self, (void)t;
    return ERR_OK;
}

static bool never(void *self, const struct train *t, int64_t step)
{
    (void)self, (void)t, (void)step;
    return false;
}

static enum err no_eval(void *self, struct train *t, const struct train_eval *e)
{
    (void)self, (void)t, (void)e;
    return ERR_OK;
}

/* The model `s` at another width, with heads of the same size and few layers. */
static enum err model_of(struct settings *s, int64_t width)
{
    struct config_rules rules = {0};
    int64_t C = s->model_d_model, heads = s->model_heads;
    if (width != C) {
        s->model_heads = heads * width / C ? heads * width / C : 1;
        s->model_kv_heads = s->model_kv_heads == heads ? s->model_heads : s->model_kv_heads ? 1 : 0;
        s->model_d_ff = s->model_d_ff * width / C / 64 * 64;
        s->model_layers = s->model_layers < SHAPE_LAYERS ? s->model_layers : SHAPE_LAYERS;
        s->model_d_model = width;
    }
    keys_check(&rules, s);
    enum err e = config_rules_report(&rules);
    if (!e)
        return ERR_OK;
    char why[512];
    snprintf(why, sizeof why, "%s", err_message());
    return err_set(e, "no model of width %lld: %s\ngive other widths with --widths",
                   (long long)width, why);
}

/* One micro-batch of a rank in each step, without checkpoints and evaluations. */
static struct settings one_batch(const struct ranks_probe *q)
{
    struct settings s = q->run->s;
    s.train_batch_tokens = (int64_t)train_micro_batch_tokens(&s, q->coll->size) * q->coll->size;
    s.train_micro_batch_tokens = 0;
    s.train_steps = WARM_STEPS + STEPS + 1;
    s.train_warmup_steps = 1;
    s.train_profile = STEPS;
    s.train_eval_every = s.train_checkpoint_every = 0;
    s.run_init_from = "";
    return s;
}

static void take_points(struct ranks_probe *q, struct step_watch *w, const struct settings *s,
                        const struct table *t)
{
    const struct timed_step *x = chosen_step(w, q->dev);
    const struct work_step step = {.tokens = (size_t)s->train_batch_tokens / (size_t)q->coll->size,
                                   .micro = (size_t)s->train_batch_tokens / (size_t)q->coll->size,
                                   .type = q->dev->model_type};
    for (enum profile_class c = 0; c < PROFILE_COUNT; c++) {
        struct work work = c == PROFILE_GAP ? site_model_work(s, t, &step, c) : w->last[c].work;
        if (c != PROFILE_REDUCE && x->seconds[c] > 0 && work.flop + work.bytes > 0 &&
            q->count < SITE_MODEL_POINTS_MAX)
            q->points[q->count++] = (struct site_point){c, (double)s->model_d_model, work.flop,
                                                        work.bytes, x->seconds[c]};
    }
}

static enum err calibrate(struct ranks_probe *q, int64_t width, double *exposed_s)
{
    static struct train train;
    struct step_watch w = {0};
    const struct train_hook hook = {&w, quiet, quiet, never, watch_step, no_eval, quiet, quiet};
    struct settings s = one_batch(q);
    char *dir;
    TRY(model_of(&s, width));
    TRY_ALLOC(dir = arena_printf(&q->run->perm, "%s/%lld", q->directory, (long long)width));
    dev_close(q->dev); /* a device numbers its events once: a new one for each model */
    q->dev = NULL;
    TRY(open_device(q));
    enum err e =
        train_open(&train, &(struct train_options){&s, q->dev, q->coll, 0, dir}, &q->run->perm);
    if (e == ERR_OK)
        e = train_run(&train, &hook);
    if (e == ERR_OK)
        take_points(q, &w, &s, &train.table);
    train_close(&train);
    TRY(e);
    *exposed_s = w.exposed_s;
    say(q, "width %lld, %lld layers, %lld tokens a rank: %.4g s, %s of %u steps\n",
        (long long)width, (long long)s.model_layers,
        (long long)s.train_batch_tokens / q->coll->size, chosen_step(&w, q->dev)->all_s,
        q->dev->host_memory && q->dev->threads == 1 ? "the median of the processor times"
                                                    : "the fastest",
        w.count);
    return ERR_OK;
}

static enum err widths_of(const struct ranks_probe *q, const char *text, int64_t width[],
                          unsigned *count)
{
    int64_t C = q->run->s.model_d_model;
    *count = 0;
    if (!text) {
        width[(*count)++] = C;
        width[(*count)++] = C / 2;
        width[(*count)++] = 2 * C;
        return ERR_OK;
    }
    for (const char *at = text; *count < WIDTHS_MAX;) {
        char *end;
        width[(*count)++] = strtoll(at, &end, 10);
        if (end == at || (*end && *end != ',') || width[*count - 1] < 1)
            break;
        if (!*end)
            return ERR_OK;
        at = end + 1;
    }
    return err_set(ERR_CONFIG, "--widths \"%.60s\": give up to %d widths, such as 64,128,256", text,
                   WIDTHS_MAX);
}

/* What of its speed a sum keeps under the backward pass, from a step's exposed time. */
static enum err fit_overlap(struct ranks_probe *q, double exposed_s)
{
    struct site_machine m = {.peak = {0}, .utilisation = 1, .type = q->dev->model_type};
    struct settings s = one_batch(q);
    m.link.ranks = q->coll->size;
    m.link.algorithm = q->run->measured.ranks.plan_algorithm;
    for (enum ranks_op op = 0; op < RANKS_OP_COUNT; op++) {
        m.link.times[op] = q->times[op];
        m.link.fit[op] = ranks_link_fit(op, m.link.algorithm, m.link.ranks, &q->times[op]);
    }
    for (int i = 0; i < PRODUCTS; i++)
        m.peak.flop = fmax(m.peak.flop, 1e12 * q->tflops[i]);
    m.peak.bytes = 1e9 * q->memory_gbs;
    m.count = q->count;
    memcpy(m.points, q->points, sizeof m.points);
    TRY(slowest(q, &exposed_s));
    q->overlap = 100 * site_model_overlap(&s, &q->run->table, &m, q->coll->size, exposed_s);
    say(q,
        "sums of a step that the backward pass does not hide: %.4g ms; they keep %.3g %% of "
        "their speed under it\n",
        1e3 * exposed_s, q->overlap);
    return ERR_OK;
}

static enum err calibrate_all(struct ranks_probe *q, const char *text)
{
    int64_t width[WIDTHS_MAX];
    unsigned count;
    double configured = -1, exposed_s;
    TRY(widths_of(q, text, width, &count));
    double joules = rapl_joules(), begin = clock_mono_s();
    for (unsigned i = 0; i < count; i++) {
        TRY(calibrate(q, width[i], &exposed_s));
        configured = width[i] == q->run->s.model_d_model ? exposed_s : configured;
    }
    double after = rapl_joules(), seconds = clock_mono_s() - begin;
    if (joules >= 0 && after > joules) /* the ranks of other machines have their own counters */
        q->watts = (after - joules) / seconds / q->coll->size;
    return q->coll->size > 1 && configured >= 0 ? fit_overlap(q, configured) : ERR_OK;
}

static enum err share_directory(struct ranks_probe *q)
{
    char path[4096] = "";
    enum err e = ERR_OK;
    if (q->coll->rank == 0 && (e = probe_directory(q->run, &q->directory)) == ERR_OK)
        snprintf(path, sizeof path, "%s", q->directory);
    TRY(q->coll->ops->broadcast_host(q->coll, path, sizeof path, 0));
    TRY(e);
    TRY_ALLOC(q->directory = arena_printf(&q->run->perm, "%s", path));
    return *path ? ERR_OK : err_set(ERR_IO, "rank 0 could not make a directory next to run.dir");
}

static enum err measure_classes(struct ranks_probe *q, const char *widths)
{
    if (!q->run->s.data_train.count) {
        say(q,
            "data.train is not given: the classes of a step are not measured, and plans take "
            "%g of the roofline\n",
            SITE_MODEL_UTILISATION);
        return ERR_OK;
    }
    TRY(share_directory(q));
    char why[512];
    enum err e = calibrate_all(q, widths);
    snprintf(why, sizeof why, "%s", e ? err_message() : "");
    if (e == ERR_OK)
        TRY(q->coll->ops->barrier(q->coll));
    enum err tidied = q->coll->rank == 0 ? file_remove_tree(q->directory) : ERR_OK;
    return e ? err_set(e, "%s", why) : tidied;
}

/* ---- what was found ---- */

static enum err list_of(struct config_list *list, const double *x, unsigned count, struct arena *a)
{
    *list = (struct config_list){.count = count};
    TRY_ALLOC(list->items = arena_array(a, count + 1, sizeof *list->items));
    for (unsigned i = 0; i < count; i++)
        TRY_ALLOC(list->items[i] = arena_printf(a, "%.4g", x[i]));
    return ERR_OK;
}

static enum err found_fill(const struct ranks_probe *q, struct measured *found)
{
    struct measured_ranks *m = &found->ranks;
    struct arena *a = &q->run->perm;
    struct config_list *const times[] = {[RANKS_ALL_REDUCE] = &m->plan_all_reduce_s,
                                         [RANKS_ALL_GATHER] = &m->plan_all_gather_s,
                                         [RANKS_REDUCE_SCATTER] = &m->plan_reduce_scatter_s};
    if (q->coll->size > 1) {
        m->plan_ranks = q->coll->size;
        m->plan_overlap = q->overlap;
    }
    for (enum ranks_op op = 0; op < RANKS_OP_COUNT; op++)
        TRY(list_of(times[op], q->times[op].seconds, q->times[op].count, a));
    TRY(list_of(&m->plan_products_tflops, q->tflops, PRODUCTS, a));
    m->plan_memory_gbs = q->memory_gbs;
    m->plan_rapl_watts = q->watts;
    TRY_ALLOC(m->plan_rates.items = arena_array(a, q->count + 1, sizeof *m->plan_rates.items));
    for (unsigned i = 0; i < q->count; i++) {
        char *text;
        TRY(site_settings_point_text(&text, &q->points[i], a));
        m->plan_rates.items[m->plan_rates.count++] = text;
    }
    return ERR_OK;
}

static enum err measure(struct ranks_probe *q, struct measured *found, const char *widths)
{
    TRY(open_device(q));
    if (q->coll->size == 1)
        say(q, "one rank: no collectives to measure; start several with mpirun or "
               "deploy/ranks.sh\n");
    TRY(measure_collectives(q));
    TRY(measure_products(q));
    TRY(measure_classes(q, widths));
    return q->coll->rank == 0 ? found_fill(q, found) : ERR_OK;
}

enum err probe_ranks(struct run *p, struct measured *found, const char *widths, double seconds)
{
    struct ranks_probe q = {.run = p, .overlap = 100, .seconds = seconds};
    TRY(coll_open(&q.coll, config_choice_name(device_kind_choices, p->s.device_kind)));
    enum err e = measure(&q, found, widths);
    if (e && q.coll->size > 1) {
        fprintf(stderr, "atoll probe, rank %d: %s\n", q.coll->rank, err_message());
        coll_abort(q.coll, err_exit_code(e));
    }
    dev_close(q.dev);
    coll_close(q.coll);
    return e;
}
