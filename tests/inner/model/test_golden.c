/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: our GPT-2 is not GPT-2, our Llama not Llama, AdamW and LAMB are not
 * the published ones, and what we export means something else elsewhere. Oracle: tests/golden/gpt
 * and llama (transformers and torch in float64). */
#include "tests/cuda/cuda_test.h"
#include "tests/inner/params.h"
#include "tests/inner/golden.h"
#include "tests/inner/setup.h"
#include <math.h>
#include "inner/io/names.h"
#include "inner/optim/optim.h"
#include "inner/io/safetensors.h"
#include "inner/eval/sample.h"

static const struct golden {
    const char *dir, *words[20];
} gpt2 = {"tests/golden/gpt", {"--model.heads", "2"}},
  llama = {"tests/golden/llama",
           {"--model.heads",      "4",      "--model.kv_heads",       "2",
            "--model.norm",       "rms",    "--model.norm_eps",       "1e-3",
            "--model.positions",  "rope",   "--model.rope_theta",     "100",
            "--model.activation", "swiglu", "--model.d_ff",           "40",
            "--model.bias",       "false",  "--model.tie_embeddings", "false"}},
  *golden;
static struct arena arena;

static int reset(const struct golden *g)
{
    golden = g;
    arena_reset(&arena);
    err_clear();
    return 0;
}

static int take_gpt2(void **state)
{
    (void)state;
    return reset(&gpt2);
}

static int take_llama(void **state)
{
    (void)state;
    return reset(&llama);
}

static const char *path_of(const char *name)
{
    return arena_printf(&arena, "%s/%s.safetensors", golden->dir, name);
}

static double *values(const char *name, size_t expected)
{
    size_t count;
    double *x = golden_values(&arena, golden->dir, name, &count);
    assert_non_null(x);
    assert_int_equal(count, expected);
    return x;
}

enum { V = 48, T = 12, B = 3, STEPS = 10 };

static void fill_batch(struct batch *b, int step)
{
    double *tokens = values(arena_printf(&arena, "tokens%d", step), B * T);
    double *targets = values(arena_printf(&arena, "targets%d", step), B * T);
    if (!b->tokens)
        assert_int_equal(batch_open(b, &arena, B * T, B), ERR_OK);
    b->tokens_count = B * T;
    b->sequences = B;
    for (int i = 0; i < B * T; i++) {
        b->tokens[i] = (int32_t)tokens[i];
        b->targets[i] = (int32_t)targets[i];
        b->positions[i] = i % T;
        b->cu_seqlens[i / T + 1] = (i / T + 1) * T;
    }
}

struct gpt {
    struct settings *s;
    struct table t;
    struct dev *d;
    struct model *m;
    struct batch b;
};

static void build(struct gpt *g, const char *optimizer)
{
    *g = (struct gpt){0};
    const char *words[64] = {"--model.vocab_size",   "48",       "--model.d_model",       "16",
                             "--model.layers",       "2",        "--model.max_seq_len",   "12",
                             "--data.tokenizer",     "external", "--train.steps",         "10",
                             "--train.lr",           "0.01",     "--train.warmup_steps",  "3",
                             "--train.min_lr_ratio", "0.1",      "--train.max_grad_norm", "0.3",
                             "--train.weight_decay", "0.1",      "--train.beta1",         "0.9",
                             "--train.beta2",        "0.95",     "--train.eps",           "1e-6",
                             "--train.optimizer",    optimizer};
    size_t n = 0;
    while (words[n])
        n++;
    memcpy(words + n, golden->words, sizeof golden->words);
    g->s = setup_settings(&arena, words);
    assert_int_equal(table_make(&g->t, g->s, &arena), ERR_OK);
    assert_int_equal(cuda_test_open(&g->d, "f32"), ERR_OK);
    assert_int_equal(
        model_open(&g->m, g->d, &(struct model_options){g->s, &g->t, B * T, true}, &arena), ERR_OK);
    float *params = arena_array(&arena, g->t.elements, sizeof *params);
    if (names_import(g->s, &g->t, params, path_of("model")))
        fail_msg("%s", err_message());
    g->d->ops->copy(g->d, model_params(g->m), params, g->t.elements * sizeof *params);
    model_params_changed(g->m);
    fill_batch(&g->b, 0);
}

/* A slab of the device, on the host. */
static const float *here(const struct gpt *g, const float *slab)
{
    float *copy = arena_array(&arena, g->t.elements, sizeof *copy);
    g->d->ops->copy(g->d, copy, slab, g->t.elements * sizeof *copy);
    assert_int_equal(dev_sync(g->d), ERR_OK);
    return copy;
}

static void drop(struct gpt *g)
{
    model_close(g->m);
    dev_close(g->d);
}

static void losses_and_logits(void **state)
{
    (void)state;
    struct gpt g;
    float logits[V];
    double sum, want = 0, *losses = values("losses", B * T), *last = values("logits", B * V);
    size_t count;
    build(&g, "adamw");
    assert_int_equal(setup_eval(g.m, &g.b, &sum, &count), ERR_OK);
    for (int i = 0; i < B * T; i++)
        want += losses[i];
    assert_true(fabs(sum - want) < 1e-6 * want);
    for (size_t i = 0; i < B; i++) {
        assert_int_equal(model_logits(g.m, &g.b, i, logits), ERR_OK);
        for (size_t v = 0; v < V; v++)
            if (!(fabs((double)logits[v] - last[i * V + v]) < 2e-6))
                fail_msg("logit %zu is %.9g, not %.9g", v, (double)logits[v], last[i * V + v]);
    }
    drop(&g);
}

/* Largest distance of a tensor from what it should be, in units of its root mean square. */
static void compare(const struct table *t, const float *got, const float *want, double bound)
{
    for (size_t i = 0; i < t->count; i++) {
        const struct tensor *x = &t->tensors[i];
        double square = 0, worst = 0;
        for (size_t j = x->offset; j < x->offset + x->count; j++) {
            square += (double)want[j] * (double)want[j] / (double)x->count;
            worst = fmax(worst, fabs((double)got[j] - (double)want[j]));
        }
        if (!(worst <= bound * sqrt(square)))
            fail_msg("%s: off by %.3g, root mean square %.3g", x->name, worst, sqrt(square));
    }
}

static void gradients_of_every_tensor(void **state)
{
    (void)state;
    struct gpt g;
    double sum;
    size_t count;
    build(&g, "adamw");
    float *want = arena_array(&arena, g.t.elements, sizeof *want);
    assert_int_equal(names_import(g.s, &g.t, want, path_of("gradients")), ERR_OK);
    assert_int_equal(setup_step(g.m, &g.b, 1.0f / (B * T), NULL, &sum, &count), ERR_OK);
    compare(&g.t, here(&g, model_grads(g.m)), want, 1e-5);
    drop(&g);
}

/* Ten steps; the parameters at the end are within what f32 loses in ten updates of 0.01. */
static void trains_like(const char *optimizer)
{
    struct gpt g;
    struct optim o;
    double *losses = values(arena_printf(&arena, "%s_losses", optimizer), STEPS);
    double *norms = values(arena_printf(&arena, "%s_norms", optimizer), STEPS), sum, square;
    size_t count;
    build(&g, optimizer);
    float *want = arena_array(&arena, g.t.elements, sizeof *want);
    struct coll *alone;
    assert_int_equal(coll_self_open(&alone), ERR_OK);
    assert_int_equal(optim_open(&o, g.d, alone, g.s, &g.t, &arena), ERR_OK);
    for (int step = 0; step < STEPS; step++) {
        fill_batch(&g.b, step);
        model_grads_zero(g.m);
        assert_int_equal(setup_step(g.m, &g.b, 1, NULL, &sum, &count), ERR_OK);
        const double stats[STEP_STATS] = {[STEP_LOSS] = sum, [STEP_TARGETS] = (double)count};
        g.d->ops->copy(g.d, o.buffers.stats, stats, sizeof stats);
        assert_int_equal(optim_step(&o, g.m, step), ERR_OK);
        g.d->ops->copy(g.d, &square, o.buffers.stats + STEP_SQUARE, sizeof square);
        assert_int_equal(dev_sync(g.d), ERR_OK);
        if (fabs(sum / (B * T) - losses[step]) > 2e-6 * losses[step])
            fail_msg("%s step %d: loss %.9f, should be %.9f", optimizer, step, sum / (B * T),
                     losses[step]);
        assert_true(fabs(sqrt(square) / (B * T) - norms[step]) < 1e-5 * norms[step]);
    }
    assert_int_equal(names_import(g.s, &g.t, want, path_of(optimizer)), ERR_OK);
    compare(&g.t, here(&g, model_params(g.m)), want, 5e-4);
    optim_close(&o);
    drop(&g);
}

static void adamw_is_torchs(void **state)
{
    (void)state;
    trains_like("adamw");
}

static void lamb_is_the_papers(void **state)
{
    (void)state;
    trains_like("lamb");
}

static const struct names_options whole = {.part_bytes = NAMES_PART_BYTES};

/* ---- names ---- */
static void export_is_what_was_imported(void **state)
{
    (void)state;
    struct gpt g;
    struct safetensors ours, theirs;
    build(&g, "adamw");
    assert_int_equal(names_export(g.s, &g.t, here(&g, model_params(g.m)), &whole, scratch("hf")),
                     ERR_OK);
    assert_int_equal(safetensors_open(&ours, &arena, scratch("hf/model.safetensors")), ERR_OK);
    assert_int_equal(safetensors_open(&theirs, &arena, path_of("model")), ERR_OK);
    assert_int_equal(ours.count, theirs.count);
    for (size_t i = 0; i < theirs.count; i++) {
        const struct safetensors_tensor *x = &theirs.tensors[i],
                                        *y = safetensors_find(&ours, x->name);
        assert_non_null(y);
        assert_int_equal(x->size_bytes, y->size_bytes);
        assert_memory_equal(x->shape, y->shape, x->rank * sizeof *x->shape);
        assert_memory_equal(x->data, y->data, x->size_bytes);
    }
    safetensors_close(&ours);
    safetensors_close(&theirs);
    drop(&g);
}

/* Several files and their index hold what one file holds, and the older kind goes. */
static void parts_are_the_whole(void **state)
{
    (void)state;
    struct gpt g;
    const struct names_options small = {.part_bytes = 3000}, *both[] = {&whole, &small, &whole};
    build(&g, "adamw");
    const float *params = here(&g, model_params(g.m));
    float *slab = arena_array(&arena, g.t.elements, sizeof *slab);
    const char *one = arena_printf(&arena, "%s", scratch("parts/model.safetensors")),
               *index = arena_printf(&arena, "%s", scratch("parts/model.safetensors.index.json"));
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(names_export(g.s, &g.t, params, both[i], scratch("parts")), ERR_OK);
        assert_int_equal(file_exists(one), both[i] == &whole);
        assert_int_equal(file_exists(index), both[i] == &small);
        memset(slab, 0, g.t.elements * sizeof *slab);
        assert_int_equal(names_import(g.s, &g.t, slab, scratch("parts")), ERR_OK);
        for (size_t k = 0; k < g.t.count; k++) {
            const struct tensor *x = &g.t.tensors[k];
            assert_memory_equal(slab + x->offset, params + x->offset,
                                (size_t)(x->shape[0] * x->shape[1]) * sizeof *slab);
        }
    }
    drop(&g);
}

/* A part that is missing, cut or holds other tensors than the index says is refused by its name. */
static void parts_that_do_not_fit_the_index_are_refused(void **state)
{
    (void)state;
    static const char index[] = "{\"weight_map\": {\"a\": \"one.safetensors\", \"b\": \"%s\"%s}}";
    static const struct {
        const char *second, *more, *says;
    } cases[] = {
        {"none.safetensors", "", "none.safetensors"},
        {"one.safetensors", "", "no tensor b, which the index says"},
        {"../two.safetensors", "", "does not name a file next to it"},
        {"/two.safetensors", "", "does not name a file next to it"},
        {"two.safetensors", ", \"c\": \"two.safetensors\"", "no tensor c"},
        {"three.safetensors", "", "d is in it, but not in the index"},
    };
    const float value = 1;
    const struct safetensors_tensor x[] = {{"a", SAFETENSORS_F32, 1, {1}, &value, 4},
                                           {"b", SAFETENSORS_F32, 1, {1}, &value, 4},
                                           {"d", SAFETENSORS_F32, 1, {1}, &value, 4}};
    struct safetensors s;
    assert_int_equal(safetensors_write(scratch("one.safetensors"), x, 1, NULL), ERR_OK);
    assert_int_equal(safetensors_write(scratch("two.safetensors"), x + 1, 1, NULL), ERR_OK);
    assert_int_equal(safetensors_write(scratch("three.safetensors"), x + 1, 2, NULL), ERR_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = arena_printf(&arena, index, cases[i].second, cases[i].more);
        const char *path = scratch_write("x.index.json", text, strlen(text));
        assert_int_equal(safetensors_open(&s, &arena, path), ERR_INPUT);
        assert_says(cases[i].says);
    }
    char *good = arena_printf(&arena, index, "two.safetensors", "");
    assert_int_equal(
        safetensors_open(&s, &arena, scratch_write("x.index.json", good, strlen(good))), ERR_OK);
    assert_int_equal(s.count, 2);
    safetensors_close(&s);
}

/* A finite half: clang has _Float16 on new processors alone. */
static float f16(uint16_t bits)
{
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    float x =
        ldexpf((float)(exponent ? mantissa + 1024 : mantissa), (exponent ? exponent : 1) - 25);
    return bits >> 15 ? -x : x;
}

/* binary16 against its definition; every value of the model is a different bit pattern. */
static void half_precision_files_are_read(void **state)
{
    (void)state;
    struct gpt g;
    struct safetensors file;
    build(&g, "adamw");
    const float *params = here(&g, model_params(g.m));
    float *slab = arena_array(&arena, g.t.elements, sizeof *slab);
    assert_int_equal(names_export(g.s, &g.t, params, &whole, scratch("half")), ERR_OK);
    assert_int_equal(safetensors_open(&file, &arena, scratch("half/model.safetensors")), ERR_OK);
    struct safetensors_tensor *half = arena_array(&arena, file.count, sizeof *half);
    for (size_t i = 0, bits = 0; i < file.count; i++) {
        size_t count = file.tensors[i].size_bytes / 4;
        uint16_t *data = arena_array(&arena, count, 2);
        for (size_t k = 0; k < count; k++, bits += 7)
            data[k] = (uint16_t)(bits % 0x7c00 | (bits & 1) << 15);
        half[i] = file.tensors[i];
        half[i].dtype = SAFETENSORS_F16;
        half[i].data = data;
        half[i].size_bytes = 2 * count;
    }
    const char *path = arena_printf(&arena, "%s", scratch("half/model.safetensors"));
    size_t count = file.count;
    safetensors_close(&file);
    assert_int_equal(safetensors_write(path, half, count, NULL), ERR_OK);
    assert_int_equal(names_import(g.s, &g.t, slab, path), ERR_OK);
    const struct tensor *norm = table_find(&g.t, "norm.weight"),
                        *wte = table_find(&g.t, "wte.weight");
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < half[i].size_bytes / 2; k++) {
            const struct tensor *ours =
                strstr(half[i].name, "wte") || strstr(half[i].name, "embed_tokens") ? wte
                : strstr(half[i].name, "ln_f.weight") || !strcmp(half[i].name, "model.norm.weight")
                    ? norm
                    : NULL;
            if (ours)
                assert_true(slab[ours->offset + k] == f16(((const uint16_t *)half[i].data)[k]));
        }
    ((uint16_t *)(uintptr_t)half[0].data)[3] = 0x7c00;
    assert_int_equal(safetensors_write(path, half, count, NULL), ERR_OK);
    assert_int_equal(names_import(g.s, &g.t, slab, path), ERR_INPUT);
    assert_says("not finite, at 3");
    drop(&g);
}

static void save_text(const char *path, const char *text)
{
    struct file_part part = {text, strlen(text)};
    assert_int_equal(file_write(path, &part, 1, 0644), ERR_OK);
}

/* Shapes show neither the number of heads nor eps nor rope's theta; config.json does. */
static void a_config_of_other_settings_is_refused(void **state)
{
    (void)state;
    struct gpt g;
    build(&g, "adamw");
    const float *params = here(&g, model_params(g.m));
    float *slab = arena_array(&arena, g.t.elements, sizeof *slab);
    const char *file = arena_printf(&arena, "%s", scratch("hf2/model.safetensors"));
    const char *config = arena_printf(&arena, "%s", scratch("hf2/config.json"));
    assert_int_equal(names_export(g.s, &g.t, params, &whole, scratch("hf2")), ERR_OK);
    assert_int_equal(names_import(g.s, &g.t, slab, file), ERR_OK);
    g.s->model_norm_eps *= 10;
    assert_int_equal(names_import(g.s, &g.t, slab, file), ERR_MISMATCH);
    assert_says("model.norm_eps");
    g.s->model_norm_eps /= 10;
    g.s->model_rope_theta *= 2;
    assert_int_equal(names_import(g.s, &g.t, slab, file), golden == &llama ? ERR_MISMATCH : ERR_OK);
    g.s->model_rope_theta /= 2;
    save_text(config, "heads: 4");
    assert_int_equal(names_import(g.s, &g.t, slab, file), ERR_INPUT);
    drop(&g);
}

static void a_file_of_another_model_is_refused(void **state)
{
    (void)state;
    struct gpt g;
    build(&g, "adamw");
    float *slab = arena_array(&arena, g.t.elements * 4, sizeof *slab);
    g.s->model_layers = 3;
    assert_int_equal(table_make(&g.t, g.s, &arena), ERR_OK);
    assert_int_equal(names_import(g.s, &g.t, slab, path_of("model")), ERR_MISMATCH);
    assert_says("transformer.h.2.ln_1.weight");
    g.s->model_layers = 1; /* the file's second is not dropped in silence */
    assert_int_equal(table_make(&g.t, g.s, &arena), ERR_OK);
    assert_int_equal(names_import(g.s, &g.t, slab, path_of("model")), ERR_MISMATCH);
    assert_says("no place for transformer.h.1.");
    g.s->model_layers = 2;
    g.s->model_d_ff = 32;
    assert_int_equal(table_make(&g.t, g.s, &arena), ERR_OK);
    assert_int_equal(names_import(g.s, &g.t, slab, path_of("model")), ERR_MISMATCH);
    assert_says("c_fc");
    g.s->model_norm = MODEL_NORM_RMS;
    assert_int_equal(names_import(g.s, &g.t, slab, path_of("model")), ERR_UNSUPPORTED);
    drop(&g);
}

static void a_llama_of_other_settings_is_refused(void **state)
{
    (void)state;
    struct gpt g;
    build(&g, "adamw");
    float *slab = arena_array(&arena, g.t.elements * 2, sizeof *slab);
    g.s->model_tie_embeddings = true; /* the file's head is no embedding */
    assert_int_equal(table_make(&g.t, g.s, &arena), ERR_OK);
    assert_int_equal(names_import(g.s, &g.t, slab, path_of("model")), ERR_MISMATCH);
    assert_says("model.tie_embeddings = false");
    g.s->model_kv_heads = 4;
    assert_int_equal(table_make(&g.t, g.s, &arena), ERR_OK);
    assert_int_equal(names_import(g.s, &g.t, slab, path_of("model")), ERR_MISMATCH);
    assert_says("model.layers.0.self_attn.k_proj.weight");
    g.s->model_kv_heads = 2;
    g.s->model_bias = true;
    assert_int_equal(table_make(&g.t, g.s, &arena), ERR_OK);
    assert_int_equal(names_import(g.s, &g.t, slab, path_of("model")), ERR_MISMATCH);
    assert_says("q_proj.bias");
    g.s->model_norm = MODEL_NORM_LAYER;
    assert_int_equal(names_import(g.s, &g.t, slab, path_of("model")), ERR_UNSUPPORTED);
    assert_says("model.positions");
    assert_says("model.norm = layer");
    drop(&g);
}

/* ---- sampling ---- */
static void draws_follow_the_distribution(void **state)
{
    (void)state;
    enum { DRAWS = 20000 };
    struct gpt g;
    struct sample x;
    struct model *m;
    double want[V], sum = 0;
    int seen[V] = {0};
    build(&g, "adamw");
    assert_int_equal(
        model_open(&m, g.d, &(struct model_options){g.s, &g.t, sample_tokens(g.s), false}, &arena),
        ERR_OK);
    struct sample_options o = {.temperature = 2.0, .top_k = 5, .seed = 11};
    assert_int_equal(sample_open(&x, m, g.s, &o, &arena), ERR_OK);
    for (int v = 0; v < V; v++)
        x.logits[v] = (float)((v * 29) % V) / 8.0f;
    for (int v = 0; v < V; v++) {
        want[v] = x.logits[v] >= 43.0f / 8.0f ? exp((double)x.logits[v] / 2.0) : 0;
        sum += want[v];
    }
    for (uint64_t n = 0; n < DRAWS; n++)
        seen[sample_draw(&x, n)]++;
    for (int v = 0; v < V; v++) { /* five standard deviations */
        double p = want[v] / sum;
        assert_true(fabs(seen[v] - p * DRAWS) <= 5 * sqrt(p * (1 - p) * DRAWS));
    }
    model_close(m);
    drop(&g);
}

/* The filling after the text must not show: temperature 0 gives the largest of the golden logits.
 */
static void greedy_takes_the_largest_logit(void **state)
{
    (void)state;
    struct gpt g;
    struct sample x;
    struct model *m;
    double *last = values("logits", B * V);
    build(&g, "adamw");
    assert_int_equal(
        model_open(&m, g.d, &(struct model_options){g.s, &g.t, sample_tokens(g.s), false}, &arena),
        ERR_OK);
    g.d->ops->copy(g.d, model_params(m), model_params(g.m), g.t.elements * sizeof(float));
    struct sample_options o = {.temperature = 0};
    assert_int_equal(sample_open(&x, m, g.s, &o, &arena), ERR_OK);
    for (int i = 0; i < B; i++) {
        int32_t id;
        int best = 0;
        assert_int_equal(sample_next(&x, g.b.tokens + i * T, T, 0, &id), ERR_OK);
        for (int v = 0; v < V; v++)
            best = last[i * V + v] > last[i * V + best] ? v : best;
        assert_int_equal(id, best);
        for (int v = 0; v < V; v++)
            assert_true(fabs((double)x.logits[v] - last[i * V + v]) < 2e-6);
    }
    model_close(m);
    drop(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name, model) {#name " " #model, name, take_##model, NULL, NULL}
        T(losses_and_logits, gpt2),
        T(losses_and_logits, llama),
        T(gradients_of_every_tensor, gpt2),
        T(gradients_of_every_tensor, llama),
        T(adamw_is_torchs, gpt2),
        T(adamw_is_torchs, llama),
        T(lamb_is_the_papers, gpt2),
        T(export_is_what_was_imported, gpt2),
        T(export_is_what_was_imported, llama),
        T(a_file_of_another_model_is_refused, gpt2),
        T(parts_are_the_whole, gpt2),
        T(parts_are_the_whole, llama),
        T(parts_that_do_not_fit_the_index_are_refused, gpt2),
        T(half_precision_files_are_read, gpt2),
        T(half_precision_files_are_read, llama),
        T(a_config_of_other_settings_is_refused, gpt2),
        T(a_config_of_other_settings_is_refused, llama),
        T(a_llama_of_other_settings_is_refused, llama),
        T(draws_follow_the_distribution, gpt2),
        T(greedy_takes_the_largest_logit, gpt2),
        T(greedy_takes_the_largest_logit, llama),
#undef T
    };
    if (cuda_test_missing("f32"))
        return CUDA_TEST_SKIP;
    int failed = cmocka_run_group_tests(tests, scratch_open, scratch_close);
    arena_free(&arena);
    return failed;
}
