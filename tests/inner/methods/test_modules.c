/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: modules with delayed gradients (train.pipeline = stale) that train
 * with other gradients than those of the loss of an earlier step at the parameters of that step.
 * The reference is a model of its own, whole and without a tied head, with the rule of Ouroboros
 * (1909.06695) written down a second time: module k of K has the gradient of K - 1 - k steps ago.
 */
#include "tests/inner/setup.h"
#include "tests/inner/params.h"
#include <math.h>
#include "inner/train/train.h"

enum { STEPS = 9, MODULES = 3 };
static struct arena arena;

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    err_clear();
    return 0;
}

#define TINY                                                                                       \
    "--model.vocab_size", "23", "--data.tokenizer", "external", "--model.heads", "2",              \
        "--model.d_model", "32", "--model.max_seq_len", "16", "--train.seq_len", "16",             \
        "--train.batch_tokens", "128", "--train.checkpoint_every", "0", "--train.optimizer",       \
        "adamw", "--train.weight_decay", "0", "--train.max_grad_norm", "0", "--device.dtype",      \
        "f32", "--train.steps", "9", "--train.eval_every", "2", "--train.eval_tokens", "64"

struct oracle {
    struct table table;
    struct model *m;
    struct batch batch;
    float *grads[STEPS]; /* slabs, of the loss of each step at the parameters of that step */
    float *params;       /* of the step before, as the training model has them */
    int64_t from;        /* the first step with delays */
    size_t first[MODULES];
    bool moves; /* the rate is not 0 */
    int checked;
};

static int64_t delay_of(const struct oracle *o, int layer, int layers)
{
    int64_t delay = MODULES - 1;
    for (size_t k = 1; k < MODULES && layer >= 0; k++)
        if (layer >= layers || layer >= (int)o->first[k])
            delay = (int64_t)(MODULES - 1 - k);
    return delay;
}

/* The reference's gradient of a tensor in a step, or NULL: nothing has come yet. */
static const float *grad_at(const struct oracle *o, const char *name, int64_t step, int64_t delay)
{
    int64_t of = step < o->from ? step : step - delay;
    if (step >= o->from && of < o->from)
        return NULL;
    return o->grads[of] + table_find(&o->table, name)->offset;
}

static void reference_step(struct oracle *o, struct train *t)
{
    struct model_loss loss;
    for (size_t i = 0; i < o->table.count; i++) {
        const struct tensor *x = &o->table.tensors[i],
                            *y = table_find(
                                &t->table, strcmp(x->name, "head.weight") ? x->name : "wte.weight");
        memcpy(model_params(o->m) + x->offset, model_params(t->model) + y->offset,
               x->count * sizeof(float));
    }
    objective_step(t->data.loader, (uint64_t)t->step, 0, t->data.loader->rank_sequences, &o->batch);
    o->batch.sequence_weight = 1;
    model_grads_zero(o->m);
    assert_int_equal(model_step(o->m, &o->batch, 1, NULL, &loss), ERR_OK);
    o->grads[t->step] = arena_array(&arena, o->table.elements, sizeof(float));
    memcpy(o->grads[t->step], model_grads(o->m), o->table.elements * sizeof(float));
}

static void same_values(const char *name, const float *got, const float *want, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (got[i] != (want ? want[i] : 0))
            fail_msg("%s[%zu]: %g, not %g", name, i, (double)got[i], (double)(want ? want[i] : 0));
}

/* The tied table: the head's gradient is fresh, that of the embedding delayed; one sum. */
static void same_tied(const struct oracle *o, const float *got, size_t count, int64_t step)
{
    const float *head = grad_at(o, "head.weight", step, 0),
                *embed = grad_at(o, "wte.weight", step, MODULES - 1);
    double most = 0, off = 0;
    for (size_t i = 0; i < count; i++) {
        double want = (double)head[i] + (embed ? (double)embed[i] : 0);
        most = fmax(most, fabs(want));
        off = fmax(off, fabs(want - (double)got[i]));
    }
    if (!(off <= 1e-6 * most))
        fail_msg("wte.weight in step %d: off by %g of %g", (int)step, off, most);
}

/* A tensor stays as it is until its first gradient comes, and the first step of AdamW is one of the
 * learning rate, whenever it is. */
static void check_move(const struct oracle *o, const struct train *t, const struct tensor *x)
{
    int64_t last = t->step - 1, missed = last - o->from,
            delay = delay_of(o, x->layer, (int)t->settings->model_layers);
    const float *now = model_params(t->model) + x->offset, *before = o->params + x->offset;
    double most = 0, lr = optim_lr(t->settings, last);
    for (size_t i = 0; i < x->count; i++)
        most = fmax(most, fabs((double)now[i] - (double)before[i]));
    if (!strcmp(x->name, "wte.weight"))
        return;
    if (!o->moves || (missed >= 0 && missed < delay))
        assert_true(most == 0);
    else if (missed == delay && o->from == 0)
        assert_true(fabs(most - lr) < 0.01 * lr);
}

static enum err check_update(void *self, struct train *t)
{
    struct oracle *o = self;
    const float *grads = model_grads(t->model);
    reference_step(o, t);
    for (size_t i = 0; i < t->table.count; i++) {
        const struct tensor *x = &t->table.tensors[i];
        int64_t delay = delay_of(o, x->layer, (int)t->settings->model_layers);
        if (!strcmp(x->name, "wte.weight"))
            same_tied(o, grads + x->offset, x->count, t->step);
        else
            same_values(x->name, grads + x->offset, grad_at(o, x->name, t->step, delay), x->count);
        if (t->step)
            check_move(o, t, x);
    }
    memcpy(o->params, model_params(t->model), t->table.elements * sizeof(float));
    o->checked++;
    return ERR_OK;
}

/* ---- a hook that does nothing else ---- */
static enum err quiet_start(void *self, struct train *t)
{
    (void)self, (void)t;
    return ERR_OK;
}

static bool quiet_due(void *self, const struct train *t, int64_t step)
{
    (void)self, (void)t, (void)step;
    return false;
}

static enum err quiet_step(void *self, struct train *t, const struct train_report *r)
{
    (void)self, (void)t, (void)r;
    return ERR_OK;
}

static enum err quiet_eval(void *self, struct train *t, const struct train_eval *e)
{
    (void)self, (void)t, (void)e;
    return ERR_OK;
}

static void open_oracle(struct oracle *o, struct dev *d, const char *const *words, size_t layers)
{
    struct settings *s = setup_settings(&arena, words);
    s->train_modules = 1;
    s->model_tie_embeddings = false;
    s->train_pipeline = TRAIN_PIPELINE_SEQUENTIAL;
    assert_int_equal(table_make(&o->table, s, &arena), ERR_OK);
    assert_int_equal(batch_open(&o->batch, &arena, 128, 8), ERR_OK);
    assert_int_equal(model_open(&o->m, d, &(struct model_options){s, &o->table, 128, true}, &arena),
                     ERR_OK);
    o->from = keys_warmup(s);
    o->moves = s->train_lr > 0;
    o->first[1] = layers == 3 ? 1 : 1 + layers / 6; /* a quarter, rounded; the rest but a quarter */
    o->first[2] = layers == 3 ? 2 : layers - o->first[1];
}

static void compare(const char *name, size_t layers, const char *const *words)
{
    struct oracle o = {0};
    struct train t;
    struct coll *c;
    struct dev *d = setup_device("f32", 2);
    struct settings *s = setup_settings(&arena, words);
    const char **text = arena_array(&arena, 1, sizeof *text);
    const struct train_hook hook = {&o,         quiet_start, check_update, quiet_due,
                                    quiet_step, quiet_eval,  quiet_start,  quiet_start};
    text[0] = arena_printf(&arena, "%s/text.bin", scratch_root);
    s->data_train = s->data_eval = (struct config_list){text, 1};
    assert_int_equal(coll_open(&c, "cpu"), ERR_OK);
    open_oracle(&o, d, words, layers);
    const char *dir = arena_printf(&arena, "%s/%s", scratch_root, name);
    if (train_open(&t, &(struct train_options){s, d, c, 0, dir}, &arena))
        fail_msg("%s", err_message());
    o.params = arena_array(&arena, t.table.elements, sizeof(float));
    if (train_run(&t, &hook))
        fail_msg("%s", err_message());
    assert_int_equal(o.checked, STEPS);
    train_close(&t);
    model_close(o.m);
    coll_close(c);
    dev_close(d);
}

#define STALE "--train.modules", "3", "--train.pipeline", "stale"
static void delayed(void **state)
{
    (void)state;
    compare("delayed", 3,
            (const char *[]){TINY, STALE, "--model.layers", "3", "--train.warmup_steps", "0",
                             "--train.lr", "0.01", NULL});
}

static void warm_up_has_no_delay(void **state)
{
    (void)state;
    compare("warm_up", 5,
            (const char *[]){TINY, STALE, "--model.layers", "5", "--train.warmup_steps", "3",
                             "--train.lr", "0.02", "--train.dropout", "0.1", NULL});
}

static void frozen(void **state)
{
    (void)state;
    compare("frozen", 4,
            (const char *[]){TINY, STALE, "--model.layers", "4", "--train.warmup_steps", "0",
                             "--train.lr", "0", NULL});
}

static void sequential(void **state)
{
    (void)state;
    compare("sequential", 4,
            (const char *[]){TINY, "--train.modules", "3", "--model.layers", "4",
                             "--train.warmup_steps", "9", "--train.lr", "0.01", NULL});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(delayed, reset),
        cmocka_unit_test_setup(warm_up_has_no_delay, reset),
        cmocka_unit_test_setup(frozen, reset),
        cmocka_unit_test_setup(sequential, reset),
    };
    arena = arena_make(0);
    int failed = cmocka_run_group_tests(tests, setup_squares, scratch_close);
    arena_free(&arena);
    return failed;
}
