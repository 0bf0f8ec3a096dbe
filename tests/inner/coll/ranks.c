/* SPDX-License-Identifier: Apache-2.0 */
/* What test_ranks.sh starts, alone and several times: a short training run of this rank, or the
 * comparison of two. On CPUs, or with ATOLL_TEST_DEVICE=cuda on GPUs.
 *
 *     ranks train DIR HOW [--KEY VALUE ..]    6 steps; HOW: whole; stop: the last rank asks for it
 *                                             in step 3; nan: it breaks its parameters after it;
 *                                             ahead, late: whole and stop as on a GPU, where a step
 *                                             is read when the next one's gradients are there;
 *                                             cap: a private site may charge three steps
 *                                             bytes: AdamW with shared-out state; what each step
 *                                             sends is what the map of units says
 *                                             memory: planned and largest bytes of each rank
 *                                             record: also writes what an independent reference
 *                                             needs (below)
 *     ranks batch FILE                        one start for many runs: each line of it is
 *                                             OUTPUT DIR HOW [--KEY VALUE ..], what `train` would
 *                                             print goes to OUTPUT
 *     ranks private DIR [--KEY VALUE ..]      the sum of the clipped records of a step over the
 *                                             ranks, next to that of one process
 *     ranks parts DTYPE                       gathers and scatters of parts, equal and unequal, in
 *                                             place and not: values, tickets, bytes that are sent
 *     ranks sum DTYPE                         JSON: log2 of the root mean square error of the
 *                                             gradients' sum over the ranks, over that of the sum
 *     ranks compare DIR DIR [BOUND]           first moments of two checkpoints: equal within BOUND
 *                                             (1e-5) of their norm
 *     ranks same DIR DIR                      parameters and moments: the same bits
 */
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "inner/coll/reduce.h"
#include "tests/inner/coll/ranks_parts.h"
#include "tests/inner/params.h"
#include "inner/train/memory_left.h"
#include "inner/train/train_parallel.h"
#include "kernels/base/bf16.h"
#include "kernels/base/rng.h"
#include "kernels/base/bytes.h"
#include "kernels/base/log.h"

/* Ranks that wait in Open MPI call this without end; half of the processor time of a test was this
 * call. Now and then it sleeps. */
int sched_yield(void)
{
    static _Thread_local unsigned calls;
    if (++calls % 8)
        return (int)syscall(SYS_sched_yield);
    return nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static atomic_int stop;
static const char *mishap = "", *folder;

static bool on_gpu(void)
{
    const char *said = getenv("ATOLL_TEST_DEVICE");
    return said && !strcmp(said, "cuda");
}

static enum err make_shard(const char *path)
{
    enum { TOKENS = 4000 };
    static uint8_t data[SHARD_HEADER_BYTES + 2 * TOKENS];
    struct bytes_writer w = bytes_writer(data, sizeof data);
    struct file_part part = {data, sizeof data};
    bytes_put_u32(&w, SHARD_MAGIC_U16);
    bytes_put_u32(&w, SHARD_VERSION_U16);
    bytes_put_u32(&w, TOKENS);
    w.at = data + SHARD_HEADER_BYTES;
    for (unsigned i = 0; i < TOKENS; i++)
        bytes_put_u16(&w, (uint16_t)(i * i * 5 / 3 % 31));
    return file_write(path, &part, 1, 0644);
}

static enum err configure(struct settings *s, const char *shard, int extra, char **extras,
                          struct arena *a)
{
    enum { BASE = 28, EXTRA_MAX = 40 };
    char *words[BASE + EXTRA_MAX] = {"--model.vocab_size",
                                     "31",
                                     "--data.tokenizer",
                                     "external",
                                     "--model.layers",
                                     "2",
                                     "--model.heads",
                                     "2",
                                     "--model.d_model",
                                     "32",
                                     "--model.max_seq_len",
                                     "16",
                                     "--train.seq_len",
                                     "16",
                                     "--train.batch_tokens",
                                     "384",
                                     "--train.micro_batch_tokens",
                                     "64",
                                     "--train.steps",
                                     "6",
                                     "--train.warmup_steps",
                                     "0",
                                     "--device.dtype",
                                     "f32",
                                     "--train.eval_tokens",
                                     "480",
                                     "--model.d_ff",
                                     "1024"}; /* several DEV_RUNs */
    struct config_table t = keys_inner(s);
    const char **items;
    if (extra > EXTRA_MAX || words[BASE - 1] == NULL || words[BASE])
        return err_set(ERR_CONFIG, "the list of settings and its length do not agree");
    memcpy(words + BASE, extras, (size_t)extra * sizeof *words);
    TRY(config_load(&t, 1, NULL, BASE + extra, words, a));
    TRY_ALLOC(items = arena_array(a, 1, sizeof *items));
    items[0] = shard;
    s->data_train = (struct config_list){items, 1};
    if (s->privacy_unit == PRIVACY_UNIT_NONE)
        s->data_eval = s->data_train;
    return ERR_OK;
}

/* ---- HOW = record: in DIR, numbers in the order of the slab, f32 -------------------------------
 *     tensors          offset, count, weight decay (1 or 0), trust ratio (1 or 0), name; first
 * line: elements of the slab, ranks steps            targets of all ranks, learning rate, payload
 * bytes of rank 0 params           rank 0: before the first step, then after each grads.RANK
 * of each step, as the optimizer gets them: sums over targets */
static enum err append(struct train *t, const char *name, const float *slab)
{
    char path[4096];
    size_t elements = t->table.elements;
    float *host = malloc(elements * sizeof *host);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "ab");
    if (!f || !host)
        return err_set(ERR_IO, "%s: not written", path);
    t->dev->ops->copy(t->dev, host, slab, elements * sizeof *host);
    TRY(dev_sync(t->dev));
    bool good = fwrite(host, sizeof *host, elements, f) == elements;
    free(host);
    return fclose(f) == 0 && good ? ERR_OK : err_set(ERR_IO, "%s: not written", path);
}

static enum err append_line(const char *name, const char *line)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "a");
    bool good = f && fputs(line, f) >= 0;
    return f && fclose(f) == 0 && good ? ERR_OK : err_set(ERR_IO, "%s: not written", path);
}

static enum err record_tensors(struct train *t)
{
    char line[200];
    snprintf(line, sizeof line, "%zu %d\n", t->table.elements, t->coll->size);
    TRY(append_line("tensors", line));
    for (size_t i = 0; i < t->table.count; i++) {
        const struct tensor *x = &t->table.tensors[i];
        const struct opt_group group = table_group(x);
        snprintf(line, sizeof line, "%zu %zu %g %d %s\n", x->offset, x->count, (double)group.decay,
                 group.trust, x->name);
        TRY(append_line("tensors", line));
    }
    return ERR_OK;
}

static enum err on_start(void *self, struct train *t)
{
    (void)self;
    if (strcmp(mishap, "record") != 0 || t->coll->rank)
        return ERR_OK;
    TRY(record_tensors(t));
    return append(t, "params", model_params(t->model));
}

static enum err on_update(void *self, struct train *t)
{
    char name[40];
    (void)self;
    snprintf(name, sizeof name, "grads.%d", t->coll->rank);
    return strcmp(mishap, "record") ? ERR_OK : append(t, name, model_grads(t->model));
}

static enum err record_step(struct train *t, const struct train_report *r)
{
    char line[100];
    snprintf(line, sizeof line, "%.0f %.9g %.0f\n", t->running.stats[STEP_TARGETS], (double)r->lr,
             r->inner_up);
    TRY(append_line("steps", line));
    return append(t, "params", model_params(t->model));
}

static bool on_due(void *self, const struct train *t, int64_t step)
{
    (void)self, (void)t, (void)step;
    return !strcmp(mishap, "nan");
}

/* Bytes of the vectors of this rank, in f32. */
static double vector_bytes(const struct train *t, const struct unit_map *m)
{
    double bytes = 0;
    for (size_t i = 0; i < t->table.count; i++)
        for (size_t at = 0; at < table_span(&t->table, i); at += TABLE_ALIGN)
            if (t->table.tensors[i].group == TABLE_VECTOR &&
                unit_place_of(m, t->table.tensors[i].offset + at).rank == t->coll->rank)
                bytes += TABLE_ALIGN * sizeof(float);
    return bytes;
}

/* With AdamW, without dropped layers and no evaluation since the last update: the gradients once to
 * their owners, from stage 2 on in each micro-batch; the parameters once to all in the model type,
 * at stage 3 each layer but the last once more; the vectors in f32 where the whole f32 parameters
 * are not there; the statistics. One micro-batch at stage 3. */
static enum err check_bytes(const struct train *t, double up)
{
    const struct unit_map *m = weights_units(model_weights(t->model));
    int stage = (int)t->settings->train_zero_stage, rank = t->coll->rank;
    const size_t size = dtype_size(t->dev->model_type), L = (size_t)t->settings->model_layers,
                 sequences = t->data.loader->rank_sequences, each = t->data.micro_sequences;
    size_t sum = t->settings->train_grad_reduce_dtype == TRAIN_GRAD_REDUCE_BF16 ? 2 : 4,
           scatters = stage < 2 ? 1 : (sequences + each - 1) / each,
           gathers = unit_gather_up(m, rank);
    for (size_t layer = 0; stage == 3 && layer + 1 < L; layer++)
        gathers += (size_t)(t->coll->size - 1) * unit_part(m, 1 + layer, rank).count;
    double W = t->coll->size;
    double want = (double)(sum * scatters * unit_scatter_up(m, rank)) + (double)(size * gathers) +
                  (size == 2 || stage == 3 ? (W - 1) * vector_bytes(t, m) : 0) +
                  2 * (W - 1) / W * STEP_STATS * sizeof(double);
    return fabs(up - want) < 1e-6
               ? ERR_OK
               : err_set(ERR_DISAGREE, "a step sends %.1f bytes, and not %.1f", up, want);
}

static enum err on_step(void *self, struct train *t, const struct train_report *r)
{
    (void)self;
    if (!strcmp(mishap, "bytes") && r->step > 1)
        TRY(check_bytes(t, r->inner_up));
    bool last = t->coll->rank == t->coll->size - 1;
    if (last && r->step == 2 && (!strcmp(mishap, "stop") || !strcmp(mishap, "late")))
        stop = 1;
    if (last && r->step == 3 && !strcmp(mishap, "nan"))
        t->dev->ops->copy(
            t->dev, model_params(t->model) + table_find(&t->table, "layers.1.norm1.weight")->offset,
            &(float){NAN}, sizeof(float));
    return strcmp(mishap, "record") || t->coll->rank ? ERR_OK : record_step(t, r);
}

static enum err on_eval(void *self, struct train *t, const struct train_eval *e)
{
    (void)self;
    if (t->coll->rank == 0)
        printf("eval step %lld tokens %zu loss %.5f\n", (long long)e->step, e->tokens, e->loss);
    return ERR_OK;
}

static enum err on_saved(void *self, struct train *t) /* and saving */
{
    (void)self, (void)t;
    return ERR_OK;
}

/* ---- private ---- */
/* The clipped sum of a step, before its noise. */
static enum err clipped_sum(struct train *t, float *sum)
{
    struct step_targets targets = {0};
    size_t elements = t->table.elements;
    model_grads_zero(t->model);
    TRY(t->division.how->charge(t));
    TRY(t->division.how->backward(t, &targets));
    TRY(grad_reduce_wait(t->division.reduce));
    t->dev->ops->copy(t->dev, sum, model_grads(t->model), elements * sizeof *sum);
    return dev_sync(t->dev);
}

/* The lead draws the same records by itself: a site of one rank with the keys of the others. */
static enum err clipped_alone(struct train *t, float *sum)
{
    struct coll all = *t->coll, *c = t->coll;
    struct step_targets targets = {0};
    c->size = 1;
    model_grads_zero(t->model);
    enum err e = t->division.how->backward(t, &targets);
    *c = all;
    t->dev->ops->copy(t->dev, sum, model_grads(t->model), t->table.elements * sizeof *sum);
    return e ? e : dev_sync(t->dev);
}

static enum err private_sums(struct train *t, struct arena *a)
{
    size_t elements = t->table.elements;
    float *all, *alone;
    double off = 0, size = 0;
    TRY_ALLOC(all = arena_array(a, elements, sizeof *all));
    TRY_ALLOC(alone = arena_array(a, elements, sizeof *alone));
    TRY(train_resume(t));
    TRY(clipped_sum(t, all));
    if (t->coll->rank)
        return ERR_OK;
    TRY(clipped_alone(t, alone));
    for (size_t i = 0; i < elements; i++) {
        off += pow((double)all[i] - (double)alone[i], 2);
        size += pow((double)alone[i], 2);
    }
    printf("clipped sums differ by %.3g of their norm %.3g\n", sqrt(off / size), sqrt(size));
    return size > 0 && sqrt(off) <= 1e-6 * sqrt(size) ? ERR_OK
                                                      : err_set(ERR_DISAGREE, "the sums differ");
}

/* ---- train ---- */
/* HOW = cap: the lead may charge three steps. */
static enum err cap_begin(void *self, const struct private_charge *c, double *noise)
{
    (void)self, (void)c, (void)noise;
    return ERR_OK;
}

static uint64_t cap_known(void *self)
{
    (void)self;
    return 0;
}

static enum err cap_dearest(void *self, struct private_charge *c, uint64_t missing)
{
    (void)self, (void)c, (void)missing;
    return ERR_OK;
}

static enum err cap_asked(void *self, const struct private_charge *c, int64_t charged)
{
    (void)self, (void)c;
    return charged < 3 ? ERR_OK : err_set(ERR_BUDGET, "three steps are charged");
}

static enum err open_train(struct train *t, struct dev **d, struct coll *c, const char *dir,
                           int extra, char **extras, struct arena *a)
{
    static struct settings s;
    s = (struct settings){0};
    char *shard, *inner, *gpu;
    TRY_ALLOC(gpu = arena_printf(a, "cuda:%d", c->local_rank));
    const char *type = getenv("ATOLL_TEST_TYPE");
    struct dev_options o = {
        .kind = on_gpu() ? gpu : "cpu", .model_type = type ? type : "f32", .threads = 1};
    TRY_ALLOC(shard = arena_printf(a, "%s/text.bin", dir));
    TRY_ALLOC(inner = arena_printf(a, "%s/inner", dir));
    if (c->rank == 0) {
        TRY(file_mkdirs(dir));
        TRY(make_shard(shard));
    }
    TRY(c->ops->barrier(c));
    TRY(configure(&s, shard, extra, extras, a));
    TRY(dev_open(d, &o));
    return train_open(t, &(struct train_options){&s, *d, c, 0, inner}, a);
}

/* One line of each rank: how it ended, and the digest of its parameters. */
static enum err train(struct coll *c, const char *dir, int extra, char **extras, struct arena *a)
{
    static struct train t;
    const struct train_hook hook = {NULL,    on_start, on_update, on_due,
                                    on_step, on_eval,  on_saved,  on_saved};
    static const struct train_budget cap = {NULL, cap_begin, "", cap_known, cap_dearest, cap_asked};
    struct dev *d;
    char hex[65];
    size_t before = memory_peak();
    TRY(open_train(&t, &d, c, dir, extra, extras, a));
    t.given.stop = &stop;
    t.given.budget = !strcmp(mishap, "cap") ? &cap : NULL;
    t.running.ahead = !strcmp(mishap, "ahead") || !strcmp(mishap, "late");
    enum err e = strcmp(mishap, "private") ? train_run(&t, &hook) : private_sums(&t, a);
    if (e && e != ERR_STOPPED && e != ERR_DIVERGED &&
        e != ERR_BUDGET) /* of this rank alone: ends the job */
        return e;
    if (!strcmp(mishap, "memory")) {
        printf("rank %d of %d: MiB planned %.1f peak %.1f before %.1f\n", c->rank, c->size,
               (double)t.memory.total / (1 << 20), (double)memory_peak() / (1 << 20),
               (double)before / (1 << 20));
        return ERR_OK;
    }
    float *params;
    TRY_ALLOC(params = arena_array(a, t.table.elements, sizeof *params));
    const struct dev_range all = slab_all(&t.table);
    d->ops->copy(d, params, model_gather(t.model, all), t.table.elements * sizeof *params);
    model_scatter(t.model, all, false);
    TRY(dev_sync(d));
    struct digest digest = digest_of(params, t.table.elements * sizeof *params);
    digest_hex(&digest, hex);
    printf("rank %d of %d: %s after step %lld, %s\n", c->rank, c->size, err_name(e),
           (long long)t.step, hex);
    train_close(&t);
    dev_close(d);
    return ERR_OK;
}

/* ---- batch ---- */
/* One line of the file, as in a process of its own. */
static enum err batch_line(struct coll *c, char *line)
{
    enum { WORDS_MAX = 64 };
    struct arena a = arena_make(0);
    char *words[WORDS_MAX], *rest = NULL;
    int n = 0;
    for (char *w = strtok_r(line, " \n", &rest); w; w = strtok_r(NULL, " \n", &rest)) {
        if (n == WORDS_MAX)
            return err_set(ERR_CONFIG, "more than %d words in a line", WORDS_MAX);
        words[n++] = w;
    }
    if (n < 3 || !freopen(words[0], "a", stdout))
        return err_set(ERR_IO, "%s: not opened", n < 3 ? "a line" : words[0]);
    stop = 0;
    folder = words[1], mishap = words[2];
    enum err e = train(c, words[1], n - 3, words + 3, &a);
    arena_free(&a);
    if (e)
        fprintf(stderr, "ranks: in the run of %s:\n", words[0]);
    return fflush(stdout) == 0 ? e : err_set(ERR_IO, "%s: not written", words[0]);
}

static enum err batch(struct coll *c, const char *path)
{
    char line[4096];
    FILE *f = fopen(path, "r");
    enum err e = f ? ERR_OK : err_set(ERR_IO, "%s: not opened", path);
    while (!e && fgets(line, sizeof line, f))
        e = batch_line(c, line);
    if (f)
        fclose(f);
    return e;
}

/* ---- sum ---- */
enum { SUMS = 1 << 16 };

/* A product of two normals with the bits of bf16. */
static float term(int rank, size_t i)
{
    uint64_t at = (uint64_t)rank * SUMS + i;
    return bf16_float(bf16_round(rng_normal(1, RNG_TEST, at) * rng_normal(2, RNG_TEST, at)));
}

/* The sum that a training step makes of its gradients, in train.grad_reduce_dtype = name. */
static enum err sum(struct coll *c, const char *name)
{
    struct dev *d;
    float *grads, *host = malloc(SUMS * sizeof *host);
    struct settings s = {.train_grad_reduce_dtype =
                             strcmp(name, "bf16") ? TRAIN_GRAD_REDUCE_F32 : TRAIN_GRAD_REDUCE_BF16};
    struct grad_reduce r = {.coll = c, .reducer = reducer_of(&s), .elements = SUMS};
    double wrong = 0, all = 0;
    TRY_ALLOC(host);
    TRY(dev_open(&d, &(struct dev_options){.kind = "cpu", .model_type = "f32", .threads = 1}));
    TRY(dev_alloc(d, (void **)&grads, SUMS * sizeof *grads));
    TRY(dev_alloc(d, &r.memory, r.reducer->bytes(SUMS)));
    r.dev = d, r.grads = grads;
    for (size_t i = 0; i < SUMS; i++)
        host[i] = term(c->rank, i);
    d->ops->copy(d, grads, host, SUMS * sizeof *host);
    grad_reduce_begin(&r);
    TRY(grad_reduce_wait(&r));
    d->ops->copy(d, host, grads, SUMS * sizeof *host);
    TRY(dev_sync(d));
    for (size_t i = 0; i < SUMS; i++) {
        double exact = 0;
        for (int k = 0; k < c->size; k++)
            exact += (double)term(k, i);
        wrong += ((double)host[i] - exact) * ((double)host[i] - exact), all += exact * exact;
    }
    if (c->rank == 0)
        printf("{\"ranks\": %d, \"error\": %.4f}\n", c->size, log2(sqrt(wrong / all)));
    free(host);
    dev_free(d, grads);
    dev_free(d, r.memory);
    dev_close(d);
    return ERR_OK;
}

static enum err slab(const char *dir, const char *name, struct arena *a, const float **x,
                     size_t *count)
{
    struct checkpoint_meta meta;
    struct checkpoint_part *parts;
    size_t n;
    TRY(checkpoint_open(arena_printf(a, "%s/inner", dir), a, &meta, &parts, &n));
    for (size_t i = 0; i < n; i++)
        if (!strcmp(parts[i].name, name)) {
            *x = parts[i].data;
            *count = parts[i].size_bytes / sizeof **x;
            return ERR_OK;
        }
    return err_set(ERR_INPUT, "%s: no %s", dir, name);
}

static enum err compare(const char *one, const char *two, double bound, struct arena *a)
{
    const float *m[2];
    size_t count[2];
    double off = 0, size = 0;
    TRY(slab(one, "m", a, &m[0], &count[0]));
    TRY(slab(two, "m", a, &m[1], &count[1]));
    for (size_t i = 0; i < count[0] && count[0] == count[1]; i++) {
        off += pow((double)m[0][i] - (double)m[1][i], 2);
        size += pow((double)m[0][i], 2);
    }
    printf("first moments differ by %.3g of their norm\n", sqrt(off / size));
    return size > 0 && sqrt(off) <= bound * sqrt(size) ? ERR_OK
                                                       : err_set(ERR_DISAGREE, "the runs differ");
}

/* Parameters, first moment, and the second or what is kept in its place. */
static enum err same(const char *one, const char *two, struct arena *a)
{
    const char *names[] = {"params", "m", "v"};
    const float *x[2];
    size_t count[2];
    if (slab(one, "v", a, &x[0], &count[0]))
        names[2] = "more";
    for (int i = 0; i < 3; i++) {
        TRY(slab(one, names[i], a, &x[0], &count[0]));
        TRY(slab(two, names[i], a, &x[1], &count[1]));
        if (count[0] != count[1] || memcmp(x[0], x[1], count[0] * sizeof *x[0]))
            return err_set(ERR_DISAGREE, "%s and %s: other %s", one, two, names[i]);
    }
    return ERR_OK;
}

int main(int argc, char **argv)
{
    struct arena a = arena_make(0);
    struct coll *c = NULL;
    enum err e = ERR_CONFIG;
    log_min(LOG_WARN);
    if (argc > 3 && !strcmp(argv[1], "compare"))
        e = compare(argv[2], argv[3], argc > 4 ? strtod(argv[4], NULL) : 1e-5, &a);
    else if (argc > 3 && !strcmp(argv[1], "same"))
        e = same(argv[2], argv[3], &a);
    else if (argc == 3 && !strcmp(argv[1], "sum")) {
        e = coll_open(&c, "cpu");
        if (!e)
            e = sum(c, argv[2]);
    } else if (argc == 3 && !strcmp(argv[1], "parts")) {
        e = coll_open(&c, on_gpu() ? "cuda" : "cpu");
        if (!e)
            e = ranks_parts(c, on_gpu() ? arena_printf(&a, "cuda:%d", c->local_rank) : "cpu",
                            argv[2]);
    } else if (argc == 3 && !strcmp(argv[1], "batch")) {
        e = coll_open(&c, on_gpu() ? "cuda" : "cpu");
        if (!e)
            e = batch(c, argv[2]);
    } else if (argc > 3 && !strcmp(argv[1], "train")) {
        mishap = argv[3];
        folder = argv[2];
        e = coll_open(&c, on_gpu() ? "cuda" : "cpu");
        if (!e)
            e = train(c, argv[2], argc - 4, argv + 4, &a);
    } else if (argc > 2 && !strcmp(argv[1], "private")) {
        mishap = argv[1];
        e = coll_open(&c, "cpu");
        if (!e)
            e = train(c, argv[2], argc - 3, argv + 3, &a);
    }
    if (e) {
        fprintf(stderr, "ranks: %s\n", err_message());
        coll_abort(c, 1);
    }
    coll_close(c);
    arena_free(&a);
    return e != ERR_OK;
}
