/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a step that draws, clips or adds other noise than what is charged;
 * a charge that a crash loses; a training loss that leaves the site. */
#include "tests/inner/train/run.h"
#include "tests/inner/params.h"
#include <math.h>
#include <sys/stat.h>
#include "inner/data/lot.h"
#include "inner/data/owners.h"
#include "inner/model/clip.h"
#include "inner/train/noise.h"
#include "inner/train/private.h"
#include "kernels/base/log.h"

static struct arena arena;

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    err_clear();
    return 0;
}

#define TINY                                                                                       \
    "--model.vocab_size", "23", "--data.tokenizer", "external", "--model.layers", "1",             \
        "--model.heads", "2", "--model.d_model", "16", "--model.max_seq_len", "16",                \
        "--train.seq_len", "16", "--train.batch_tokens", "160", "--train.micro_batch_tokens",      \
        "32", "--train.warmup_steps", "2", "--train.checkpoint_every", "0", "--device.dtype",      \
        "f32", "--privacy.unit", "sequence", "--train.optimizer", "adamw",                         \
        "--privacy.noise_multiplier", "1"

static enum err open_run(struct run *r, const char *dir, const char *const *words)
{
    struct settings *s = setup_settings(&arena, words);
    struct config_rules rules = {.length = 0};
    keys_check(&rules, s);
    if (config_rules_report(&rules))
        fail_msg("%s", err_message());
    if (!s->data_eval.count) { /* the same text in another file */
        const char **items = arena_array(&arena, 1, sizeof *items);
        items[0] = arena_printf(&arena, "%s/held.bin", scratch_root);
        s->data_eval = (struct config_list){items, 1};
    }
    return run_open(r, s, dir, &arena);
}

static void begin(struct run *r, const char *dir, const char *const *words)
{
    if (open_run(r, dir, words))
        fail_msg("%s", err_message());
}

/* ---- a hook that records ---- */
struct seen {
    int steps, updates, refuse_at;
    int expected; /* units of a step; 0: 10 */
    double eval_first, eval_last;
    struct digest gradients[64];
    void (*check)(struct train *t); /* before each update */
};

static enum err seen_start(void *self, struct train *t)
{
    (void)self;
    (void)t;
    return ERR_OK;
}

static enum err seen_update(void *self, struct train *t)
{
    struct seen *s = self;
    s->gradients[t->step] = digest_of(model_grads(t->model), t->table.elements * sizeof(float));
    s->updates++;
    if (s->check)
        s->check(t);
    return s->refuse_at && t->step == s->refuse_at ? err_set(ERR_STOPPED, "refused") : ERR_OK;
}

static bool seen_due(void *self, const struct train *t, int64_t step)
{
    (void)self;
    (void)t;
    (void)step;
    return false;
}

static enum err seen_step(void *self, struct train *t, const struct train_report *r)
{
    struct seen *s = self;
    s->steps++;
    assert_true(r->hidden && isnan(r->loss));
    for (size_t i = 0; i < r->figures.count; i++)
        assert_true(isnan(r->figures.list[i].value));
    for (int i = STEP_LOSS; i <= STEP_LAST_LOSS; i++)
        assert_true(t->running.stats[i] == 0);
    assert_true(t->running.stats[STEP_TARGETS] == (s->expected ? s->expected : 10) &&
                t->running.stats[STEP_SEQUENCES] == 0);
    assert_true(t->running.stats[STEP_TOKENS] ==
                (double)t->settings->train_batch_tokens); /* not those drawn */
    return ERR_OK;
}

static enum err seen_eval(void *self, struct train *t, const struct train_eval *e)
{
    struct seen *s = self;
    s->eval_last = e->loss;
    if (t->step == 0)
        s->eval_first = e->loss;
    return ERR_OK;
}

static enum err seen_nothing(void *self, struct train *t)
{
    (void)self;
    (void)t;
    return ERR_OK;
}

static struct train_hook hook_of(struct seen *s)
{
    return (struct train_hook){s,         seen_start, seen_update,  seen_due,
                               seen_step, seen_eval,  seen_nothing, seen_nothing};
}

static void take_key(const char *from, const char *to)
{
    struct file_part part;
    uint8_t *bytes;
    assert_int_equal(file_read(arena_printf(&arena, "%s/%s/privacy.key", scratch_root, from), 32,
                               &arena, &bytes, &part.size_bytes),
                     ERR_OK);
    part.data = bytes;
    assert_int_equal(file_mkdirs(arena_printf(&arena, "%s/%s", scratch_root, to)), ERR_OK);
    assert_int_equal(
        file_write(arena_printf(&arena, "%s/%s/privacy.key", scratch_root, to), &part, 1, 0600),
        ERR_OK);
}

static const struct private_begun fresh_run = {.steps = false}, begun_run = {.steps = true};

static size_t file_lines(const char *path, char **text)
{
    uint8_t *data;
    size_t size, lines = 0;
    assert_int_equal(file_read(path, 1 << 20, &arena, &data, &size), ERR_OK);
    for (size_t i = 0; i < size; i++)
        lines += data[i] == '\n';
    *text = arena_string(&arena, (char *)data, size);
    return lines;
}

/* The head as it is once line `number` of the list `text` is stored. */
static void put_head(const char *name, const char *text, int number)
{
    char word[32], line[120], both[257];
    snprintf(word, sizeof word, "number=%d ", number);
    const char *at = strstr(text, word);
    assert_non_null(at);
    int n = snprintf(line, sizeof line, "%.*s", (int)(strstr(at, " crc=") - at), at);
    snprintf(line + n, sizeof line - (size_t)n, " crc=%08x", digest_crc32c(0, line, (size_t)n));
    snprintf(both, sizeof both, "%-127.119s\n%-127.119s\n", line, line);
    scratch_write(name, both, 256);
}

/* All of a step from which its sum follows, by the rule of private.h. */
static struct private_basis basis_of(const struct train *t, char device[600])
{
    struct digest_stream s;
    digest_open(&s);
    for (size_t i = 0; i < t->data.loader->set.count; i++) {
        const struct shard *x = &t->data.loader->set.shards[i];
        const struct file_map *maps[] = {&x->map, &x->index_map, &x->labels_map, &x->owners_map};
        for (size_t k = 0; k < sizeof maps / sizeof *maps; k++) {
            uint64_t size = maps[k]->size_bytes;
            digest_add(&s, &size, sizeof size);
            if (size)
                digest_add(&s, maps[k]->data, size);
        }
    }
    snprintf(device, 600, "%s ranks=%d program=", t->dev->note, t->coll->size);
    return (struct private_basis){
        .parameters = digest_of(model_params(t->model), t->table.elements * sizeof(float)),
        .records = digest_close(&s),
        .device = device};
}

/* ---- a step is what is charged ---- */
/* The sum of the step's records, found again from the key file, is what the gradient is, but for
 * noise of the charged size: one record more or less, or another weight, would show. */
static int several; /* units of more than one example that were checked */

static void check_step(struct train *t)
{
    const struct settings *s = t->settings;
    size_t elements = t->table.elements;
    struct private_site site;
    struct clip *clip;
    float *got = arena_array(&arena, elements, sizeof *got), *grads = model_grads(t->model);
    char device[600];
    const struct private_basis basis = basis_of(t, device);
    memcpy(got, grads, elements * sizeof *got);
    assert_int_equal(private_open(&site, t->given.checkpoint_dir, &begun_run, &arena), ERR_OK);
    struct units u;
    struct lot d;
    assert_int_equal(units_open(&u, t->data.loader, s->privacy_unit, &arena), ERR_OK);
    const struct private_charge step = {
        .step = t->step,
        .records = u.count,
        .expected = (uint64_t)keys_expected_units(s),
        .noise = s->privacy_noise_multiplier,
        .clip = s->privacy_clip,
        .unit = config_choice_name(privacy_unit_choices, s->privacy_unit),
        .unit_sequences = (uint64_t)keys_unit_sequences(s),
        .bands = 1,
        .sampling = "poisson"};
    const struct lot_sizes sizes = {step.records, step.expected, 1, 0};
    struct private_keys k = private_step_keys(&site, &step, &basis);
    assert_int_equal(site.count, t->step + 1); /* charged before it was drawn */
    assert_true(digest_equal(&site.lines[t->step].tag, &k.tag));
    size_t most = (size_t)keys_unit_sequences(s);
    uint64_t windows[4], units_seen = 0;
    const struct clip_options o = {
        PRIVACY_CLIPPING_PER_EXAMPLE, t->model, &t->table, 4, 4, 16, s->privacy_clip};
    assert_int_equal(clip_open(&clip, &o, &arena), ERR_OK);
    lot_begin(&d, &(struct lot_options){.how = PRIVACY_SAMPLING_POISSON,
                                        .sizes = sizes,
                                        .units = &u,
                                        .key = k.sample,
                                        .bin_key = k.sample});
    model_grads_zero(t->model);
    for (uint64_t unit; lot_next(&d, &unit); units_seen++) { /* one at a time */
        size_t first[2] = {0, lot_windows(&d, unit, most, windows)};
        objective_records(t->data.loader, (uint64_t)t->step, windows, first[1], t->data.batch);
        assert_int_equal(clip_accumulate(clip, t->data.batch, &(struct clip_cut){first, 1}, NULL),
                         ERR_OK);
        several += first[1] > 1;
    }
    double rest = 0, signal = 0, count = (double)t->table.parameters,
           sigma = s->privacy_noise_multiplier * s->privacy_clip;
    for (size_t i = 0; i < elements; i++) {
        rest += pow((double)got[i] - (double)grads[i], 2);
        signal += pow((double)grads[i], 2);
    }
    memcpy(grads, got, elements * sizeof *got);
    clip_close(clip);
    assert_true(signal > 0 || !units_seen);
    if (fabs(rest / (sigma * sigma * count) - 1) > 4 * sqrt(2 / count) + 0.01)
        fail_msg("step %lld: what is not signal has %.3f of the noise's square", (long long)t->step,
                 rest / (sigma * sigma * count));
}

static void a_step_is_what_is_charged(void **state)
{
    struct run r;
    struct seen s = {.check = check_step};
    struct train_hook h = hook_of(&s);
    (void)state;
    begin(&r, "charged",
          (const char *[]){TINY, "--train.steps", "12", "--privacy.noise_multiplier", "0.01",
                           "--privacy.clip", "0.5", NULL});
    if (train_run(&r.t, &h))
        fail_msg("%s", err_message());
    assert_int_equal(s.updates, 12);
    run_close(&r);
}

/* ---- documents ---- */
/* Squares, in documents of 2 to 81 ids, of 50 owners. */
static void write_documents(void)
{
    struct indexed_writer w = {0};
    struct owner owners[120];
    assert_int_equal(indexed_open(&w, scratch("documents"), 23), ERR_OK);
    for (int d = 0, id = 0; d < 120; d++) {
        int32_t ids[81];
        int count = 2 + d * d % 80;
        char name[8];
        int n = snprintf(name, sizeof name, "%d", d * d % 97 % 50);
        owners[d] = owners_name(name, (size_t)n);
        for (int i = 0; i < count; i++, id++)
            ids[i] = id * id % 23;
        assert_int_equal(indexed_sentence(&w, ids, (size_t)count), ERR_OK);
        assert_int_equal(indexed_document_end(&w), ERR_OK);
    }
    assert_int_equal(indexed_close(&w), ERR_OK);
    assert_int_equal(owners_write(scratch("documents"), owners, 120), ERR_OK);
}

/* The examples of a document or of an owner are clipped as one, at most unit_sequences of them;
 * both ways of clipping. */
static void check_unit(const char *unit, const char *way)
{
    const char *dir = arena_printf(&arena, "%s-%s", unit, way);
    struct run r;
    struct seen s = {.check = check_step, .expected = 8};
    struct train_hook h = hook_of(&s);
    char *text;
    several = 0;
    begin(&r, dir,
          (const char *[]){TINY,
                           "--train.steps",
                           "8",
                           "--privacy.noise_multiplier",
                           "0.01",
                           "--privacy.clip",
                           "0.5",
                           "--privacy.unit",
                           unit,
                           "--privacy.unit_sequences",
                           "3",
                           "--train.batch_tokens",
                           "384",
                           "--train.micro_batch_tokens",
                           "64",
                           "--privacy.clipping",
                           way,
                           "--data.train",
                           arena_printf(&arena, "%s/documents.bin", scratch_root),
                           NULL});
    if (train_run(&r.t, &h))
        fail_msg("%s", err_message());
    assert_int_equal(s.updates, 8);
    assert_true(several > 15);
    run_close(&r);
    assert_int_equal(
        file_lines(arena_printf(&arena, "%s/%s/privacy.charges", scratch_root, dir), &text), 8);
    assert_non_null(strstr(text, arena_printf(&arena, "unit=%s sampling=poisson records=", unit)));
    assert_non_null(strstr(text, " unit_sequences=3 tag="));
}

static void a_document_or_an_owner_is_one_record(void **state)
{
    (void)state;
    write_documents();
    check_unit("document", "ghost");
    check_unit("document", "per_example");
    check_unit("owner", "ghost");
    check_unit("owner", "per_example");
}

/* ---- pitfalls (tests/golden/privacy/README.md) ---- */
static int empty_lots, lots;

/* Counts the records of the step, found again from the key file. */
static void check_lot(struct train *t)
{
    struct private_site site;
    uint8_t bin_key[CHACHA_KEY_BYTES];
    char device[600];
    const struct private_basis basis = basis_of(t, device);
    struct private_charge c;
    struct units u;
    struct lot l;
    uint64_t unit;
    const float *grads = model_grads(t->model);
    double rest = 0, count = (double)t->table.parameters;
    assert_int_equal(private_open(&site, t->given.checkpoint_dir, &begun_run, &arena), ERR_OK);
    assert_int_equal(units_open(&u, t->data.loader, PRIVACY_UNIT_SEQUENCE, &arena), ERR_OK);
    assert_int_equal(private_charge_of(&c, t->settings, u.count), ERR_OK);
    c.step = t->step;
    struct private_keys k = private_step_keys(&site, &c, &basis);
    private_bin_key(&site, bin_key);
    lot_begin(&l, &(struct lot_options){.how = PRIVACY_SAMPLING_POISSON,
                                        .sizes = private_sizes(&c),
                                        .units = &u,
                                        .loader = t->data.loader,
                                        .index = (uint64_t)t->step,
                                        .key = k.sample,
                                        .bin_key = bin_key});
    lots++;
    if (lot_next(&l, &unit))
        return;
    empty_lots++;
    for (size_t i = 0; i < t->table.elements; i++)
        rest += pow((double)grads[i], 2);
    if (fabs(rest / count - 1) > 4 * sqrt(2 / count) + 0.01) /* z C = 1 */
        fail_msg("step %lld holds no record, and %.3f of the noise", (long long)t->step,
                 rest / count);
}

/* A step without a record ends as any other, and releases noise alone: that it were refused, or
 * took no noise, would tell that no record was there. */
static void a_step_without_records_is_noise(void **state)
{
    struct run r;
    struct seen s = {.expected = 1, .check = check_lot};
    struct train_hook h = hook_of(&s);
    (void)state;
    begin(&r, "empty",
          (const char *[]){TINY, "--train.batch_tokens", "16", "--train.micro_batch_tokens", "16",
                           "--train.steps", "24", NULL});
    empty_lots = lots = 0;
    if (train_run(&r.t, &h))
        fail_msg("%s", err_message());
    run_close(&r);
    assert_int_equal(lots, 24);
    print_message("%d of 24 steps without a record, expected 9\n", empty_lots);
    assert_true(empty_lots > 0 && empty_lots < 24);
}

/* The loss of held-out text leaves without a charge: protected text is no held-out text. */
static void protected_text_is_not_evaluated(void **state)
{
    struct run r;
    const char *path = arena_printf(&arena, "%s/text.bin", scratch_root);
    (void)state;
    assert_int_equal(open_run(&r, "eval", (const char *[]){TINY, "--data.eval", path, NULL}),
                     ERR_CONFIG);
    assert_non_null(strstr(err_message(), "text.bin, which data.train has too"));
    run_close(&r);
}

/* ---- crashes ---- */
static void a_repeated_step_is_the_same_release(void **state)
{
    struct run r;
    struct seen whole = {.steps = 0}, cut = {.refuse_at = 3}, rest = {.steps = 0};
    struct train_hook h[3] = {hook_of(&whole), hook_of(&cut), hook_of(&rest)};
    const char *const words[] = {TINY, "--train.steps", "6", "--train.checkpoint_every", "1", NULL};
    struct stat st;
    char *text, *again;
    (void)state;
    begin(&r, "crash", words);
    assert_int_equal(train_run(&r.t, &h[1]), ERR_STOPPED);
    assert_int_equal(r.t.step, 3);
    run_close(&r);
    const char *charges = arena_printf(&arena, "%s/crash/privacy.charges", scratch_root),
               *key = arena_printf(&arena, "%s/crash/privacy.key", scratch_root);
    assert_int_equal(file_lines(charges, &text), 4); /* the fourth step was charged, then lost */
    assert_int_equal(stat(key, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_non_null(strstr(text, "step=3 unit=sequence sampling=poisson records="));
    assert_non_null(strstr(text, " expected=10 noise=1 clip=1 tag="));
    /* A crash in the middle of an append: that charge was not made, and its step did not run. */
    scratch_write("crash/privacy.charges", (const uint8_t *)text, strlen(text) - 9);
    put_head("crash/privacy.charges.head", text, 3);
    begin(&r, "crash", words);
    if (train_run(&r.t, &h[2]))
        fail_msg("%s", err_message());
    run_close(&r);
    assert_int_equal(file_lines(charges, &again), 6);
    assert_memory_equal(again, text, strlen(text)); /* the repeated step has the same tag */
    assert_true(digest_equal(&rest.gradients[3], &cut.gradients[3]));
    /* The run without a crash, under the same key. */
    take_key("crash", "whole");
    begin(&r, "whole", words);
    assert_int_equal(train_run(&r.t, &h[0]), ERR_OK);
    run_close(&r);
    for (int i = 0; i < 6; i++)
        assert_true(
            digest_equal(&whole.gradients[i], i < 3 ? &cut.gradients[i] : &rest.gradients[i]));
}

/* ---- a list of charges that lost lines ---- */
static enum err run_on(const char *dir, const char *const *words, size_t *charges)
{
    struct run r;
    struct seen s = {.steps = 0};
    struct train_hook h = hook_of(&s);
    char *text;
    begin(&r, dir, words);
    enum err e = train_run(&r.t, &h);
    run_close(&r);
    *charges = file_lines(scratch(arena_printf(&arena, "%s/privacy.charges", dir)), &text);
    return e;
}

/* Emptied, cut at its end, or put back with its head to an earlier time: the site stops. The claim
 * that a shorter list would make is false. */
static void charges_that_are_missing_stop_the_site(void **state)
{
    const char *const first[] = {TINY, "--train.steps", "6", "--train.checkpoint_every", "2", NULL};
    const char *const more[] = {TINY, "--train.steps", "8", "--train.checkpoint_every", "2", NULL};
    const char *list, *head;
    size_t count;
    char *whole, *last, *line;
    (void)state;
    assert_int_equal(run_on("lost", first, &count), ERR_OK);
    assert_int_equal(count, 6);
    list = "lost/privacy.charges";
    head = "lost/privacy.charges.head";
    file_lines(scratch(list), &whole);
    file_lines(scratch(head), &last);
    scratch_write(list, "", 0);
    assert_int_equal(run_on("lost", more, &count), ERR_CORRUPT);
    assert_says("has 0 lines, and its file .head says that there were 6: the budget");
    put_head(
        head,
        "number=0 chain=0000000000000000000000000000000000000000000000000000000000000000 crc=", 0);
    assert_int_equal(run_on("lost", more, &count), ERR_CORRUPT);
    assert_says("the checkpoint says that there were 6");
    for (line = strstr(whole, " number=4 "); line[-1] != '\n';)
        line--;
    scratch_write(list, whole, (size_t)(line - whole)); /* three lines, and their head */
    put_head(head, whole, 3);
    assert_int_equal(run_on("lost", more, &count), ERR_CORRUPT);
    assert_says("the checkpoint says that there were 6");
    scratch_write(list, whole, strlen(whole));
    scratch_write(head, last, strlen(last));
    assert_int_equal(run_on("lost", more, &count), ERR_OK);
    assert_int_equal(count, 8);
}

/* Of a step that is done again with other records of the same number, another sum is released. */
static void other_records_are_another_release(void **state)
{
    const char *const words[] = {TINY, "--train.steps", "4", "--train.checkpoint_every", "2", NULL};
    uint8_t *text;
    size_t size, count;
    struct run r;
    struct seen cut = {.refuse_at = 3};
    struct train_hook h = hook_of(&cut);
    (void)state;
    begin(&r, "other", words);
    assert_int_equal(train_run(&r.t, &h), ERR_STOPPED); /* step 3 was charged */
    run_close(&r);
    assert_int_equal(file_remove_tree(scratch("same")), ERR_OK);
    assert_int_equal(file_read(scratch("text.bin"), 1 << 20, &arena, &text, &size), ERR_OK);
    text[SHARD_HEADER_BYTES + 200] ^= 1;
    scratch_write("text.bin", text, size);
    enum err e = run_on("other", words, &count);
    text[SHARD_HEADER_BYTES + 200] ^= 1;
    scratch_write("text.bin", text, size);
    assert_int_equal(e, ERR_OK);
    assert_int_equal(count,
                     cut.updates + 2); /* the step from which it continued is charged again */
}

/* ---- correlated noise ---- */
#define BANDED                                                                                     \
    TINY, "--privacy.mechanism", "banded", "--privacy.bands", "4", "--privacy.sampling", "balls",  \
        "--train.steps", "8", "--train.checkpoint_every", "2"

static size_t charges_of(const char *dir, char **text)
{
    return file_lines(arena_printf(&arena, "%s/%s/privacy.charges", scratch_root, dir), text);
}

/* The noise of a step is made of that of the steps before: after a crash it is the same, and so is
 * that of the steps after it. */
static void correlated_noise_survives_a_crash(void **state)
{
    struct run r;
    struct seen whole = {.steps = 0}, cut = {.refuse_at = 5}, rest = {.steps = 0};
    struct train_hook h[3] = {hook_of(&whole), hook_of(&cut), hook_of(&rest)};
    char *text;
    (void)state;
    begin(&r, "banded", (const char *[]){BANDED, NULL});
    assert_int_equal(train_run(&r.t, &h[0]), ERR_OK);
    run_close(&r);
    take_key("banded", "banded-cut");
    begin(&r, "banded-cut", (const char *[]){BANDED, NULL});
    assert_int_equal(train_run(&r.t, &h[1]), ERR_STOPPED);
    run_close(&r);
    assert_int_equal(charges_of("banded-cut", &text), 6);
    assert_non_null(strstr(text, " bands=4 bins=12 tag="));
    begin(&r, "banded-cut", (const char *[]){BANDED, NULL});
    assert_int_equal(r.t.step, 0);
    assert_int_equal(train_run(&r.t, &h[2]), ERR_OK);
    run_close(&r);
    assert_int_equal(charges_of("banded-cut", &text), 8);
    for (int i = 0; i < 8; i++)
        assert_true(
            digest_equal(&whole.gradients[i], i < 4 ? &cut.gradients[i] : &rest.gradients[i]));
    assert_true(digest_equal(&cut.gradients[4], &rest.gradients[4])); /* repeated */
}

/* Parameters that a round of several sites has changed: the steps after it are others than those
 * that a lost process has charged. They are charged again, with numbers and noise of their own. */
static enum err move_at_4(void *self, struct train *t, const struct train_report *r)
{
    if (t->step == 4) {
        model_params(t->model)[0] += 1.0f;
        model_params_changed(t->model);
    }
    return seen_step(self, t, r);
}

static float *step_5; /* its gradients */

static void keep_step_5(struct train *t)
{
    size_t bytes = t->table.elements * sizeof *step_5;
    if (t->step == 4)
        memcpy(step_5 = arena_alloc(&arena, bytes), model_grads(t->model), bytes);
}

static void a_step_from_other_parameters_is_another_charge(void **state)
{
    struct run r;
    float *kept[2];
    struct seen cut = {.refuse_at = 5, .check = keep_step_5}, rest = {.check = keep_step_5};
    struct train_hook h[2] = {hook_of(&cut), hook_of(&rest)};
    char *text;
    (void)state;
    begin(&r, "moved", (const char *[]){BANDED, "--train.checkpoint_every", "3", NULL});
    assert_int_equal(train_run(&r.t, &h[0]), ERR_STOPPED);
    run_close(&r);
    kept[0] = step_5;
    assert_int_equal(charges_of("moved", &text), 6); /* from step 3 on they are lost */
    h[1].step = move_at_4;
    begin(&r, "moved", (const char *[]){BANDED, "--train.checkpoint_every", "3", NULL});
    assert_int_equal(train_run(&r.t, &h[1]), ERR_OK);
    kept[1] = step_5;
    size_t elements = r.t.table.elements, parameters = r.t.table.parameters;
    run_close(&r);
    assert_int_equal(charges_of("moved", &text), 10); /* step 3 again, and 4 to 7 */
    struct private_site site;
    assert_int_equal(private_open(&site, scratch("moved"), &begun_run, &arena), ERR_OK);
    assert_int_equal(site.charged, 10);
    for (size_t i = 0; i < site.count; i++) {
        assert_true(site.lines[i].number == i && site.lines[i].chain == 0);
        for (size_t j = 0; j < i; j++) {
            uint8_t a[CHACHA_KEY_BYTES], b[CHACHA_KEY_BYTES];
            private_noise_key(&site, &site.lines[i], a);
            private_noise_key(&site, &site.lines[j], b);
            assert_true(memcmp(a, b, sizeof a) != 0);
            assert_false(digest_equal(&site.lines[i].tag, &site.lines[j].tag));
        }
    }
    /* One noise in both would leave the difference of two sums of ten records. */
    double apart = 0;
    for (size_t i = 0; i < elements; i++)
        apart += pow((double)kept[0][i] - (double)kept[1][i], 2);
    assert_true(apart > 2 * (double)parameters);
    for (int i = 3; i < 6; i++) /* other parameters, records and noise */
        assert_int_equal(digest_equal(&cut.gradients[i], &rest.gradients[i]), i == 3);
}

/* Equal tags after different histories: the noise before them differs, so must theirs. */
static void a_key_belongs_to_its_history(void **state)
{
    struct private_charge c = {.records = 100,
                               .expected = 10,
                               .noise = 1,
                               .clip = 1,
                               .unit_sequences = 1,
                               .bands = 4,
                               .bins = 10,
                               .unit = "sequence",
                               .sampling = "balls"};
    struct private_site site[2];
    uint8_t key[2][4][CHACHA_KEY_BYTES];
    (void)state;
    for (int k = 0; k < 2; k++) {
        const char *dir = k ? "history-b" : "history-a";
        if (k)
            take_key("history-a", dir);
        assert_int_equal(private_open(&site[k], scratch(dir), &fresh_run, &arena), ERR_OK);
        for (int i = 0; i < 4; i++) {
            c.step = i;
            c.tag = (struct digest){{(uint8_t)(10 + i)}};
            c.tag.bytes[1] = k && i == 1; /* line 1 differs */
            assert_int_equal(private_charge(&site[k], &c), ERR_OK);
            private_noise_key(&site[k], private_step(&site[k], (uint64_t)i), key[k][i]);
        }
    }
    assert_memory_equal(key[0][0], key[1][0], CHACHA_KEY_BYTES);
    for (int i = 1; i < 4; i++)
        assert_true(memcmp(key[0][i], key[1][i], CHACHA_KEY_BYTES) != 0);
    /* Steps that a manifest alone names have no tags: a new chain begins after them. Other
     * settings begin one, too. */
    assert_int_equal(private_count(&site[0], 9, &c), ERR_OK);
    c.tag.bytes[0] = 40;
    assert_int_equal(private_charge(&site[0], &c), ERR_OK);
    c.tag.bytes[0] = 41;
    assert_int_equal(private_charge(&site[0], &c), ERR_OK);
    assert_true(private_step(&site[0], 3)->chain == 0);
    assert_true(private_step(&site[0], 9)->chain == 9 && private_step(&site[0], 10)->chain == 9);
    c.noise = 2;
    c.tag.bytes[0] = 42;
    assert_int_equal(private_charge(&site[0], &c), ERR_OK);
    assert_true(private_step(&site[0], 11)->chain == 11);
    struct private_site read;
    assert_int_equal(private_open(&read, scratch("history-a"), &begun_run, &arena), ERR_OK);
    assert_int_equal(read.count, site[0].count);
    for (size_t i = 0; i < read.count; i++)
        assert_memory_equal(&read.lines[i], &site[0].lines[i], sizeof read.lines[i]);
    assert_true(digest_equal(&read.history, &site[0].history) && read.chain == site[0].chain);
}

/* ---- a cap ---- */
struct cap {
    int asked, most;
    int64_t last, charged;
    uint64_t known;
    double noise; /* that the budget sets; 0: as configured */
};

static enum err cap_begin(void *self, const struct private_charge *c, double *noise)
{
    struct cap *x = self;
    assert_true(c->expected == 10 && c->records > 10 && c->noise == *noise);
    *noise = x->noise > 0 ? x->noise : *noise;
    return ERR_OK;
}

static uint64_t cap_known(void *self)
{
    struct cap *x = self;
    return x->known;
}

/* Half of the noise: what the list does not have is charged as this says, not as the next step is.
 */
static enum err cap_dearest(void *self, struct private_charge *c, uint64_t missing)
{
    const struct cap *x = self;
    assert_int_equal(missing, x->known);
    c->noise /= 2;
    return ERR_OK;
}

static enum err cap_asked(void *self, const struct private_charge *c, int64_t charged)
{
    struct cap *x = self;
    x->charged = charged;
    assert_true(c->expected == 10 && c->noise == (x->noise > 0 ? x->noise : 1) &&
                !strcmp(c->unit, "sequence"));
    x->asked++;
    x->last = c->step;
    return x->asked > x->most ? err_set(ERR_BUDGET, "the cap ends at %d", x->most) : ERR_OK;
}

/* A step that is refused is not charged, reads nothing and leaves a checkpoint of the steps before.
 */
static void a_step_beyond_the_cap_does_not_run(void **state)
{
    struct run r;
    struct seen s = {.steps = 0}, more = {.steps = 0};
    struct train_hook h = hook_of(&s), again = hook_of(&more);
    struct cap cap = {.most = 4}, none = {.most = 0};
    const struct train_budget b = {&cap, cap_begin, "", cap_known, cap_dearest, cap_asked},
                              c = {&none, cap_begin, "", cap_known, cap_dearest, cap_asked};
    const char *const words[] = {TINY, "--train.steps", "6", NULL};
    char *text;
    (void)state;
    begin(&r, "cap", words);
    r.t.given.budget = &b;
    assert_int_equal(train_run(&r.t, &h), ERR_BUDGET);
    assert_non_null(strstr(err_message(), "the cap ends at 4; 4 of 6 steps are done and saved in"));
    assert_true(cap.asked == 5 && cap.last == 4 && s.updates == 4 && s.steps == 4);
    assert_int_equal(r.t.saved.step, 4);
    run_close(&r);
    assert_int_equal(file_lines(scratch("cap/privacy.charges"), &text), 4);
    begin(&r, "cap", words);
    r.t.given.budget = &c;
    assert_int_equal(train_run(&r.t, &again), ERR_BUDGET);
    assert_true(none.asked == 1 && none.last == 4 && more.updates == 0);
    run_close(&r);
}

/* A step that a crash repeats is paid for: the cap is not asked. */
static void a_repeated_step_is_not_asked_for(void **state)
{
    struct run r;
    struct seen cut = {.refuse_at = 3}, rest = {.steps = 0};
    struct train_hook h[2] = {hook_of(&cut), hook_of(&rest)};
    struct cap cap = {.most = 2};
    const struct train_budget b = {&cap, cap_begin, "", cap_known, cap_dearest, cap_asked};
    const char *const words[] = {TINY, "--train.steps", "6", "--train.checkpoint_every", "1", NULL};
    (void)state;
    begin(&r, "repeated", words);
    assert_int_equal(train_run(&r.t, &h[0]), ERR_STOPPED);
    run_close(&r);
    begin(&r, "repeated", words);
    r.t.given.budget = &b;
    assert_int_equal(train_run(&r.t, &h[1]), ERR_OK);
    assert_true(cap.asked == 2 && cap.last == 5 && rest.updates == 3);
    run_close(&r);
}

/* The noise that the budget sets is that of every step, and is what is charged. */
static void the_budget_sets_the_noise(void **state)
{
    struct run r;
    struct seen s = {.steps = 0};
    struct train_hook h = hook_of(&s);
    struct cap cap = {.most = 9, .noise = 2.5};
    const struct train_budget b = {&cap, cap_begin, "", cap_known, cap_dearest, cap_asked};
    char *text;
    (void)state;
    begin(&r, "set",
          (const char *[]){TINY, "--train.steps", "2", "--privacy.noise_multiplier", "0",
                           "--privacy.epsilon", "3", NULL});
    assert_int_equal(train_run(&r.t, &h), ERR_CONFIG); /* who knows no accountant knows no noise */
    r.t.given.budget = &b;
    assert_int_equal(train_run(&r.t, &h), ERR_OK);
    run_close(&r);
    assert_int_equal(file_lines(scratch("set/privacy.charges"), &text), 2);
    assert_non_null(strstr(text, " noise=2.5 clip=1 tag="));
}

static enum err add_up(void *self, const struct private_charge *c)
{
    int64_t *sums = self;
    sums[0] += c->counted ? c->counted : 1;
    sums[1] += c->counted;
    return ERR_OK;
}

/* A restored backup: the run knows of more steps than the file. The larger number counts, and the
 * cap is asked with it. */
static void steps_that_the_run_knows_of_are_charged(void **state)
{
    struct run r;
    struct seen s = {.steps = 0};
    struct train_hook h = hook_of(&s);
    struct cap cap = {.most = 9, .known = 25};
    const struct train_budget b = {&cap, cap_begin, "", cap_known, cap_dearest, cap_asked};
    const char *path = arena_printf(&arena, "%s/known/privacy.charges", scratch_root);
    int64_t sums[2] = {0, 0};
    char *text;
    (void)state;
    begin(&r, "known", (const char *[]){TINY, "--train.steps", "2", NULL});
    r.t.given.budget = &b;
    assert_int_equal(train_run(&r.t, &h), ERR_OK);
    assert_int_equal(cap.charged, 26);
    assert_int_equal(train_charged(&r.t), 27);
    run_close(&r);
    assert_int_equal(file_lines(path, &text), 3);
    assert_non_null(strstr(text, " noise=0.5 clip=1 counted=25 tag="));
    assert_int_equal(private_read(path, NULL, add_up, sums), ERR_OK);
    assert_true(sums[0] == 27 && sums[1] == 25);
    struct private_site p;
    assert_int_equal(
        private_open(&p, arena_printf(&arena, "%s/known", scratch_root), &begun_run, &arena),
        ERR_OK);
    assert_int_equal(p.charged, 27);
    const struct private_charge like = {
        .records = 9, .expected = 3, .noise = 1, .clip = 1, .unit = "owner", .sampling = "fixed"};
    assert_int_equal(private_count(&p, 27, &like), ERR_OK); /* nothing to add */
    assert_int_equal(private_count(&p, 28 + (uint64_t)PRIVATE_COUNTED_MAX, &like), ERR_DISAGREE);
    assert_non_null(strstr(err_message(), "not credible"));
    assert_int_equal(p.charged, 27);
    assert_int_equal(file_lines(path, &text), 3);
}

/* From other parameters, or with other settings, a step of the same number draws and adds something
 * else: with another noise multiplier a step that a crash repeats is another release, and charged.
 */
static void what_differs_has_other_keys(void **state)
{
    struct private_site p;
    struct digest one = {{1}}, two = {{2}};
    static const struct private_charge base = {.step = 5,
                                               .records = 100,
                                               .expected = 10,
                                               .noise = 1,
                                               .clip = 1,
                                               .unit = "sequence",
                                               .sampling = "poisson"};
    struct private_charge other[] = {base, base, base, base, base, base, base};
    other[0].step = 6;
    other[1].records = 101;
    other[2].expected = 11;
    other[3].noise = 2;
    other[4].clip = 0.5;
    other[5].unit = "owner";
    other[6].sampling = "fixed";
    (void)state;
    assert_int_equal(
        private_open(&p, arena_printf(&arena, "%s/keys", scratch_root), &fresh_run, &arena),
        ERR_OK);
    const struct private_basis here = {one, two, "cpu threads=1"},
                               parameters = {two, two, "cpu threads=1"},
                               records = {one, one, "cpu threads=1"},
                               device = {one, two, "cpu threads=2"};
    struct private_keys a = private_step_keys(&p, &base, &here),
                        b = private_step_keys(&p, &base, &parameters),
                        d = private_step_keys(&p, &base, &here),
                        e = private_step_keys(&p, &base, &device),
                        f = private_step_keys(&p, &base, &records);
    assert_memory_equal(&a, &d, sizeof a);
    assert_true(memcmp(a.sample, b.sample, 32) && memcmp(a.noise, b.noise, 32));
    assert_true(memcmp(a.sample, e.sample, 32) && memcmp(a.noise, e.noise, 32));
    assert_true(memcmp(a.sample, f.sample, 32) && memcmp(a.noise, f.noise, 32) &&
                !digest_equal(&a.tag, &f.tag));
    assert_true(memcmp(a.sample, a.noise, 32) && memcmp(a.noise, a.tag.bytes, 32));
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        struct private_keys c = private_step_keys(&p, &other[i], &here);
        assert_true(memcmp(a.sample, c.sample, 32) && memcmp(a.noise, c.noise, 32) &&
                    !digest_equal(&a.tag, &c.tag));
    }
}

static void what_is_missing_is_damage(void **state)
{
    struct private_site p;
    struct private_charge c = {.step = 1,
                               .tag = {{7}},
                               .records = 100,
                               .expected = 10,
                               .noise = 1,
                               .clip = 1,
                               .unit = "sequence",
                               .sampling = "poisson"};
    const char *dir = arena_printf(&arena, "%s/missing", scratch_root);
    char *text;
    (void)state;
    assert_int_equal(private_open(&p, dir, &fresh_run, &arena), ERR_OK);
    for (int i = 0; i < 3; i++) { /* a tag that is there at the start is not charged again */
        c.tag.bytes[0] = (uint8_t)(1 + i % 2);
        assert_int_equal(private_open(&p, dir, i > 0 ? &begun_run : &fresh_run, &arena), ERR_OK);
        assert_int_equal(private_charge(&p, &c), ERR_OK);
    }
    assert_int_equal(p.charged, 2);
    assert_int_equal(private_open(&p, dir, &begun_run, &arena), ERR_OK);
    assert_int_equal(p.charged, 2);
    assert_true(digest_equal(&p.lines[1].tag, &(struct digest){{2}}));
    assert_int_equal(file_lines(p.list.path, &text), 2);
    text[5] = '7'; /* of the first line */
    scratch_write("missing/privacy.charges", (const uint8_t *)text, strlen(text));
    assert_int_equal(private_open(&p, dir, &begun_run, &arena), ERR_CORRUPT);
    assert_non_null(strstr(err_message(), "line 1"));
    assert_int_equal(file_remove(scratch("missing/privacy.key")), ERR_OK);
    assert_int_equal(private_open(&p, dir, &fresh_run, &arena), ERR_INPUT);
    assert_non_null(strstr(err_message(), "privacy.key is missing"));
    const char *begun = arena_printf(&arena, "%s/begun", scratch_root);
    assert_int_equal(private_open(&p, begun, &begun_run, &arena), ERR_INPUT);
}

/* A key that others can read, or that all can guess, hides nothing. */
static void a_key_that_is_no_secret_is_refused(void **state)
{
    struct private_site p;
    const char *dir = arena_printf(&arena, "%s/open_key", scratch_root);
    const char *key = arena_printf(&arena, "%s/privacy.key", dir);
    static const uint8_t zeros[32];
    const struct file_part part = {zeros, sizeof zeros};
    (void)state;
    assert_int_equal(private_open(&p, dir, &fresh_run, &arena), ERR_OK);
    assert_int_equal(chmod(key, 0644), 0);
    assert_int_equal(private_open(&p, dir, &fresh_run, &arena), ERR_DENIED);
    assert_non_null(strstr(err_message(), "(mode 644): chmod 600"));
    assert_int_equal(chmod(key, 0640), 0);
    assert_int_equal(private_open(&p, dir, &fresh_run, &arena), ERR_DENIED);
    assert_int_equal(chmod(key, 0600), 0);
    assert_int_equal(private_open(&p, dir, &fresh_run, &arena), ERR_OK);
    assert_int_equal(file_write(key, &part, 1, 0600), ERR_OK);
    assert_int_equal(private_open(&p, dir, &fresh_run, &arena), ERR_CORRUPT);
    assert_non_null(strstr(err_message(), "zeros"));
}

/* ---- learning, and what leaves ---- */
static char lines[1 << 16];

static void keep_line(void *self, enum log_level level, const char *line)
{
    (void)self;
    (void)level;
    size_t used = strlen(lines);
    snprintf(lines + used, sizeof lines - used, "%s\n", line);
}

static void a_private_run_learns_and_logs_no_loss(void **state)
{
    struct run r;
    struct seen s = {.steps = 0};
    struct train_hook h = hook_of(&s);
    (void)state;
    begin(&r, "learns",
          (const char *[]){TINY, "--train.steps", "60", "--train.lr", "0.02",
                           "--privacy.noise_multiplier", "0.02", "--train.max_grad_norm", "0",
                           NULL});
    *lines = 0;
    log_to(keep_line, NULL);
    enum err e = train_run(&r.t, &h);
    log_to(NULL, NULL);
    if (e)
        fail_msg("%s", err_message());
    assert_int_equal(s.steps, 60);
    print_message("held-out loss from %.3f to %.3f\n", s.eval_first, s.eval_last);
    assert_true(s.eval_last < s.eval_first - 0.5);
    assert_non_null(strstr(lines, "ev="));
    assert_null(strstr(lines, "loss"));
    assert_null(strstr(lines, "targets"));
    run_close(&r);
}

/* ---- refusals ---- */
static void refused(const char *word, const char *const *words)
{
    struct settings *s = setup_settings(&arena, words);
    struct config_rules r = {.length = 0};
    keys_check(&r, s);
    if (config_rules_report(&r) != ERR_CONFIG || !strstr(err_message(), word))
        fail_msg("\"%s\" is not in \"%s\"", word, err_message());
}

static void what_does_not_go_with_it_is_refused(void **state)
{
    struct run r;
    (void)state;
    refused("train.batch_tokens = 160 is not a multiple of train.seq_len x privacy.unit_sequences "
            "= 16 x 3",
            (const char *[]){TINY, "--privacy.unit", "document", "--privacy.unit_sequences", "3",
                             NULL});
    refused("privacy.bands belongs to privacy.mechanism = banded",
            (const char *[]){TINY, "--privacy.bands", "4", NULL});
    refused("privacy.mechanism = banded with privacy.sampling = poisson",
            (const char *[]){TINY, "--privacy.mechanism", "banded", NULL});
    refused("privacy.sampling = cyclic belongs to privacy.mechanism = banded",
            (const char *[]){TINY, "--privacy.sampling", "cyclic", NULL});
    refused("train.grad_reduce_dtype = bf16",
            (const char *[]){TINY, "--train.grad_reduce_dtype", "bf16", NULL});
    refused("privacy.unit_sequences belongs to privacy.unit = document or owner",
            (const char *[]){TINY, "--privacy.unit_sequences", "3", NULL});
    refused("privacy.unit = owner with several tasks of model.classes",
            (const char *[]){TINY, "--privacy.unit", "owner", "--model.classes", "2,3", NULL});
    refused("give privacy.epsilon",
            (const char *[]){TINY, "--privacy.noise_multiplier", "0", NULL});
    refused("it hides nothing",
            (const char *[]){TINY, "--privacy.noise_multiplier", "0.001", NULL});
    refused("no epsilon can be claimed",
            (const char *[]){TINY, "--privacy.sampling", "fixed", "--privacy.epsilon", "3", NULL});
    refused("no epsilon can be claimed", (const char *[]){TINY, "--privacy.sampling", "fixed",
                                                          "--privacy.epsilon_max", "3", NULL});
    refused("nothing is hidden",
            (const char *[]){TINY, "--privacy.unit", "none", "--privacy.epsilon_max", "3", NULL});
    refused("device.kind = cuda", (const char *[]){TINY, "--device.kind", "cuda", NULL});
    refused("device.dtype = bf16", (const char *[]){TINY, "--device.dtype", "bf16", NULL});
    refused("train.standardization_weight",
            (const char *[]){TINY, "--train.standardization_weight", "1", NULL});
    refused("train.modules", (const char *[]){TINY, "--train.modules", "2", NULL});
    refused("train.compress", (const char *[]){TINY, "--train.compress", "sparse", NULL});
    refused("train.profile", (const char *[]){TINY, "--train.profile", "1", NULL});
    refused("train.layer_drop", (const char *[]){TINY, "--train.layer_drop", "0.5", NULL});
    refused("data.pairs = nsp",
            (const char *[]){TINY, "--data.pairs", "nsp", "--data.objective", "mlm", NULL});
    assert_int_equal(open_run(&r, "all",
                              (const char *[]){TINY, "--train.batch_tokens", "3200",
                                               "--train.micro_batch_tokens", "0", NULL}),
                     ERR_CONFIG);
    assert_non_null(strstr(err_message(), "a step may not hold all"));
    run_close(&r);
    assert_int_equal(open_run(&r, "plain",
                              (const char *[]){TINY, "--privacy.unit", "document",
                                               "--privacy.unit_sequences", "2", NULL}),
                     ERR_INPUT);
    assert_non_null(strstr(err_message(), "text.bin: no index next to this shard (.idx)"));
    run_close(&r);
    write_documents();
    assert_int_equal(
        open_run(&r, "micro",
                 (const char *[]){TINY, "--privacy.unit", "document", "--privacy.unit_sequences",
                                  "5", "--data.train",
                                  arena_printf(&arena, "%s/documents.bin", scratch_root), NULL}),
        ERR_CONFIG);
    assert_non_null(strstr(err_message(), "set train.micro_batch_tokens to 80 or more, or "
                                          "privacy.unit_sequences to 2 or less"));
    run_close(&r);
}

static int setup(void **state)
{
    uint8_t *data;
    size_t size;
    if (setup_squares(state) ||
        file_read(arena_printf(&arena, "%s/text.bin", scratch_root), 1 << 24, &arena, &data, &size))
        return -1;
    scratch_write("held.bin", data, size);
    return 0;
}

int main(void)
{
    arena = arena_make(0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_step_is_what_is_charged, reset),
        cmocka_unit_test_setup(a_document_or_an_owner_is_one_record, reset),
        cmocka_unit_test_setup(a_step_without_records_is_noise, reset),
        cmocka_unit_test_setup(protected_text_is_not_evaluated, reset),
        cmocka_unit_test_setup(a_repeated_step_is_the_same_release, reset),
        cmocka_unit_test_setup(charges_that_are_missing_stop_the_site, reset),
        cmocka_unit_test_setup(other_records_are_another_release, reset),
        cmocka_unit_test_setup(correlated_noise_survives_a_crash, reset),
        cmocka_unit_test_setup(a_step_from_other_parameters_is_another_charge, reset),
        cmocka_unit_test_setup(a_key_belongs_to_its_history, reset),
        cmocka_unit_test_setup(a_step_beyond_the_cap_does_not_run, reset),
        cmocka_unit_test_setup(a_repeated_step_is_not_asked_for, reset),
        cmocka_unit_test_setup(the_budget_sets_the_noise, reset),
        cmocka_unit_test_setup(steps_that_the_run_knows_of_are_charged, reset),
        cmocka_unit_test_setup(what_differs_has_other_keys, reset),
        cmocka_unit_test_setup(what_is_missing_is_damage, reset),
        cmocka_unit_test_setup(a_key_that_is_no_secret_is_refused, reset),
        cmocka_unit_test_setup(a_private_run_learns_and_logs_no_loss, reset),
        cmocka_unit_test_setup(what_does_not_go_with_it_is_refused, reset),
    };
    int failed = cmocka_run_group_tests(tests, setup, scratch_close);
    arena_free(&arena);
    return failed;
}
