/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a published encoder is loaded as another model, or transformers
 * cannot load what was exported. Oracle: tests/golden/families, names, shapes and config.json as
 * transformers saves them; that the functions are equal, deploy/check-export.py shows. */
#include "tests/inner/setup.h"
#include "inner/io/hf_config.h"
#include "inner/io/names.h"
#include "inner/io/portable.h"
#include "inner/io/safetensors.h"

static struct arena arena;
static const struct names_options whole = {.part_bytes = NAMES_PART_BYTES};

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    err_clear();
    return 0;
}

#define SMALL "--model.vocab_size=70", "--model.d_model=16", "--model.heads=2", "--model.d_ff=24"
#define ENCODER                                                                                    \
    SMALL, "--model.max_seq_len=12", "--model.causal=false", "--model.embed_norm=true",            \
        "--model.bias=true", "--model.positions=learned", "--model.norm=layer"
#define BERT                                                                                       \
    ENCODER, "--model.layers=2", "--model.norm_place=post", "--model.token_types=2",               \
        "--model.norm_eps=1e-12", "--model.activation=gelu_erf"
#define ALBERT                                                                                     \
    ENCODER, "--model.layers=2", "--model.norm_place=post", "--model.token_types=2",               \
        "--model.norm_eps=1e-12", "--model.activation=gelu", "--model.share_layers=true",          \
        "--model.embedding_size=8"
#define MODERN                                                                                     \
    SMALL, "--model.max_seq_len=12", "--model.causal=false", "--model.embed_norm=true",            \
        "--model.bias=false", "--model.positions=rope", "--model.rope_theta=160000",               \
        "--model.layers=4", "--model.activation=geglu", "--model.sliding_window=6",                \
        "--model.global_attn_every=3"
#define PRETRAINING "--model.head=mlm", "--model.pooler=true"
#define MASKED      "--model.head=mlm"
#define CLASSES     "--model.pooler=true", "--model.classes=3"

static const struct variant {
    const char *name, *words[24];
} variants[] = {
    {"bert_pretraining", {BERT, PRETRAINING}},
    {"bert_masked", {BERT, MASKED}},
    {"bert_classes", {BERT, CLASSES}},
    {"albert_pretraining", {ALBERT, PRETRAINING}},
    {"albert_masked", {ALBERT, MASKED}},
    {"albert_classes", {ALBERT, CLASSES}},
    {"modernbert_masked", {MODERN, MASKED}},
    {"modernbert_classes", {MODERN, CLASSES, "--model.pooler_norm=true"}},
    {"modernbert_mean", {MODERN, CLASSES, "--model.pooler_norm=true", "--model.pooling=mean"}},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

struct built {
    struct settings *s;
    struct table t;
    float *slab;
};

static struct settings *settings(const char *const *words, const char *more)
{
    struct settings *s = arena_alloc(&arena, sizeof *s);
    char *argv[32];
    int argc = 0;
    for (; words[argc]; argc++)
        argv[argc] = arena_string(&arena, words[argc], strlen(words[argc]));
    if (more)
        argv[argc++] = arena_string(&arena, more, strlen(more));
    struct config_table t = keys_inner(s);
    if (config_load(&t, 1, NULL, argc, argv, &arena))
        fail_msg("%s", err_message());
    return s;
}

/* Every parameter another value; zeros elsewhere. */
static struct built build(const char *const *words, const char *more)
{
    struct built b = {.s = settings(words, more)};
    assert_int_equal(table_make(&b.t, b.s, &arena), ERR_OK);
    b.slab = arena_array(&arena, b.t.elements, sizeof *b.slab);
    memset(b.slab, 0, b.t.elements * sizeof *b.slab);
    for (size_t i = 0, n = 1; i < b.t.count; i++) {
        const struct tensor *x = &b.t.tensors[i];
        for (int64_t k = 0; k < x->shape[0] * x->shape[1]; k++, n++)
            b.slab[x->offset + (size_t)k] = (float)n;
    }
    return b;
}

static void export(const struct built *b, const struct names_options *o, const char *name)
{
    if (names_export(b->s, &b->t, b->slab, o, scratch(name)))
        fail_msg("%s", err_message());
}

static const char *golden(const char *name, const char *end)
{
    return arena_printf(&arena, "tests/golden/families/%s%s", name, end);
}

static int by_name(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* "name rows columns" for each tensor, sorted. */
static char *listing(const char *path)
{
    struct safetensors file;
    char *text = arena_printf(&arena, "%s", "");
    if (safetensors_open(&file, &arena, path))
        fail_msg("%s", err_message());
    qsort(file.tensors, file.count, sizeof *file.tensors, by_name);
    for (size_t i = 0; i < file.count; i++) {
        text = arena_printf(&arena, "%s%s", text, file.tensors[i].name);
        for (unsigned k = 0; k < file.tensors[i].rank; k++)
            text =
                arena_printf(&arena, "%s %llu", text, (unsigned long long)file.tensors[i].shape[k]);
        text = arena_printf(&arena, "%s\n", text);
    }
    safetensors_close(&file);
    return text;
}

static void exported_tensors_are_those_of_transformers(void **state)
{
    (void)state;
    for (size_t i = 0; i < VARIANTS; i++) {
        struct built b = build(variants[i].words, NULL);
        uint8_t *want;
        size_t size;
        export(&b, &whole, variants[i].name);
        const char *file = arena_printf(&arena, "%s/model.safetensors", variants[i].name);
        assert_int_equal(file_read(golden(variants[i].name, ".txt"), 1 << 20, &arena, &want, &size),
                         ERR_OK);
        char *text = arena_string(&arena, (char *)want, size);
        assert_string_equal(listing(scratch(file)), text);
    }
}

/* config.json of transformers and our own, both next to these settings; and what comes back is what
 * was written, in one file and in several. */
static void a_model_comes_back(void **state)
{
    (void)state;
    static const struct names_options small = {.part_bytes = 1500}, *both[] = {&whole, &small};
    struct hf_config c;
    for (size_t i = 0; i < VARIANTS; i++)
        for (size_t k = 0; k < 2; k++) {
            struct built b = build(variants[i].words, NULL);
            float *slab = arena_array(&arena, b.t.elements, sizeof *slab);
            const char *name = arena_printf(&arena, "again_%s", variants[i].name);
            if (hf_read(&c, golden(variants[i].name, ".json"), &arena) || hf_check(&c, b.s, &arena))
                fail_msg("%s: %s", variants[i].name, err_message());
            export(&b, both[k], name);
            if (names_import(b.s, &b.t, slab, scratch(name)))
                fail_msg("%s: %s", variants[i].name, err_message());
            assert_memory_equal(slab, b.slab, b.t.elements * sizeof *slab);
        }
}

/* What checkpoints of any family and any optimizer may hold: slabs whose gaps are not 0, counters,
 * floats of another layout. */
static void checkpoint_comes_back(const char *const *words, const char *more, const char *name)
{
    struct built b = build(words, more);
    size_t bytes = b.t.elements * sizeof(float);
    float *m = arena_array(&arena, b.t.elements, sizeof *m),
          *v = arena_array(&arena, b.t.elements, sizeof *v), loose[100];
    uint64_t tokens = 4096;
    for (size_t i = 0; i < b.t.elements; i++) {
        m[i] = -b.slab[i] / 64;
        v[i] = (float)i / 4; /* gaps and padding too */
    }
    for (size_t i = 0; i < 100; i++)
        loose[i] = (float)i;
    struct checkpoint_part parts[] = {{.name = "params", .data = b.slab, .size_bytes = bytes},
                                      {.name = "m", .data = m, .size_bytes = bytes},
                                      {.name = "v", .data = v, .size_bytes = bytes},
                                      {.name = "more", .data = loose, .size_bytes = sizeof loose},
                                      {.name = "tokens", .data = &tokens, .size_bytes = 8}};
    enum { PARTS = sizeof parts / sizeof *parts };
    const struct portable out = {.meta = {.step = 32,
                                          .seed = UINT64_MAX,
                                          .model = table_digest(&b.t),
                                          .settings = "a=\"b\\\"\nc=2\n",
                                          .device = "cpu",
                                          .threads = 3,
                                          .ranks = 2},
                                 .parts = parts,
                                 .count = PARTS,
                                 .initial = ""};
    struct portable in;
    if (portable_write(b.s, &b.t, &out, 3000, scratch(name)) ||
        portable_read(&in, b.s, &b.t, scratch(name), &arena))
        fail_msg("%s: %s", name, err_message());
    assert_int_equal(in.count, PARTS);
    for (size_t i = 0; i < PARTS; i++) {
        assert_string_equal(in.parts[i].name, parts[i].name);
        assert_int_equal(in.parts[i].size_bytes, parts[i].size_bytes);
        assert_memory_equal(in.parts[i].data, parts[i].data, parts[i].size_bytes);
    }
    assert_string_equal(in.meta.settings, out.meta.settings);
    assert_string_equal(in.meta.device, "cpu");
    assert_true(in.meta.seed == UINT64_MAX && in.meta.step == 32);
    assert_true(in.meta.threads == 3 && in.meta.ranks == 2);
}

static void checkpoints_come_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < VARIANTS; i++)
        checkpoint_comes_back(variants[i].words, NULL,
                              arena_printf(&arena, "checkpoint_%s", variants[i].name));
    checkpoint_comes_back(variants[2].words, "--model.classes=3,2", "checkpoint_tasks");
}

static const struct safetensors_tensor *tensor_of(const struct safetensors *f, const char *name)
{
    const struct safetensors_tensor *x = safetensors_find(f, name);
    if (!x)
        fail_msg("no %s", name);
    return x;
}

static float value_of(const struct safetensors_tensor *x, size_t i)
{
    float f;
    memcpy(&f, (const char *)x->data + 4 * i, 4);
    return f;
}

/* Rows of query, key, value of the fused projection. */
static void query_key_value_are_apart(void **state)
{
    (void)state;
    static const char *const parts[] = {"query", "key", "value"};
    struct built b = build(variants[0].words, NULL);
    struct safetensors f;
    export(&b, &whole, "qkv");
    assert_int_equal(safetensors_open(&f, &arena, scratch("qkv/model.safetensors")), ERR_OK);
    const struct tensor *w = table_find(&b.t, "layers.1.attn.qkv.weight"),
                        *bias = table_find(&b.t, "layers.1.attn.qkv.bias");
    for (size_t i = 0; i < 3; i++) {
        const char *at = arena_printf(&arena, "bert.encoder.layer.1.attention.self.%s", parts[i]);
        const char *weight = arena_printf(&arena, "%s.weight", at),
                   *theirs = arena_printf(&arena, "%s.bias", at);
        for (size_t k = 0; k < (size_t)256; k++)
            assert_true(value_of(tensor_of(&f, weight), k) == b.slab[w->offset + 256 * i + k]);
        for (size_t k = 0; k < 16; k++)
            assert_true(value_of(tensor_of(&f, theirs), k) == b.slab[bias->offset + 16 * i + k]);
    }
    safetensors_close(&f);
}

/* Writes model.safetensors of `from` into `to`, with names changed by `rename` (NULL: dropped), and
 * `more` tensors. */
struct rewrite {
    const char *from, *to;
    const char *(*rename)(const char *name);
    const struct safetensors_tensor *more;
    size_t more_count;
};

static void rewrite(const struct rewrite *r)
{
    struct safetensors f;
    size_t count = 0;
    const char *from = arena_printf(&arena, "%s/model.safetensors", r->from);
    const char *to = arena_printf(&arena, "%s/model.safetensors", r->to);
    assert_int_equal(safetensors_open(&f, &arena, scratch(from)), ERR_OK);
    struct safetensors_tensor *x = arena_array(&arena, f.count + r->more_count, sizeof *x);
    for (size_t i = 0; i < f.count; i++) {
        x[count] = f.tensors[i];
        x[count].name = r->rename ? r->rename(f.tensors[i].name) : f.tensors[i].name;
        count += x[count].name != NULL;
    }
    for (size_t i = 0; i < r->more_count; i++)
        x[count++] = r->more[i];
    assert_int_equal(file_mkdirs(scratch(r->to)), ERR_OK);
    assert_int_equal(safetensors_write(scratch(to), x, count, NULL), ERR_OK);
    safetensors_close(&f);
}

static const char *replaced(const char *name, const char *old, const char *new)
{
    const char *at = strstr(name, old);
    return at ? arena_printf(&arena, "%.*s%s%s", (int)(at - name), name, new, at + strlen(old))
              : name;
}

/* Files converted from TensorFlow: gamma, beta, the bias at its second name, ids of the positions.
 */
static const char *older(const char *name)
{
    name = replaced(name, "LayerNorm.weight", "LayerNorm.gamma");
    name = replaced(name, "LayerNorm.bias", "LayerNorm.beta");
    name = replaced(name, "layer_norm.weight", "layer_norm.gamma");
    name = replaced(name, "cls.predictions.bias", "cls.predictions.decoder.bias");
    return strncmp(name, "bert.", 5) ? name : name + 5;
}

static void older_names_are_read(void **state)
{
    (void)state;
    static const int64_t ids[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    const struct safetensors_tensor more = {
        "bert.embeddings.position_ids", SAFETENSORS_I64, 2, {1, 12}, ids, sizeof ids};
    struct built b = build(variants[0].words, NULL);
    float *slab = arena_array(&arena, b.t.elements, sizeof *slab);
    export(&b, &whole, "new");
    rewrite(&(struct rewrite){"new", "old", older, &more, 1});
    if (names_import(b.s, &b.t, slab, scratch("old")))
        fail_msg("%s", err_message());
    assert_memory_equal(slab, b.slab, b.t.elements * sizeof *slab);
}

static void two_names_for_one_tensor_must_agree(void **state)
{
    (void)state;
    static float bias[70];
    struct built b = build(variants[0].words, NULL);
    const struct tensor *ours = table_find(&b.t, "mlm.bias");
    const struct safetensors_tensor more = {
        "cls.predictions.decoder.bias", SAFETENSORS_F32, 1, {70}, bias, sizeof bias};
    float *slab = arena_array(&arena, b.t.elements, sizeof *slab);
    memcpy(bias, b.slab + ours->offset, sizeof bias);
    export(&b, &whole, "one");
    rewrite(&(struct rewrite){"one", "two", NULL, &more, 1});
    assert_int_equal(names_import(b.s, &b.t, slab, scratch("two")), ERR_OK);
    bias[69] += 1;
    rewrite(&(struct rewrite){"one", "two", NULL, &more, 1});
    assert_int_equal(names_import(b.s, &b.t, slab, scratch("two")), ERR_MISMATCH);
    assert_says("cls.predictions.decoder.bias");
}

static enum err import_as(const char *name, const struct built *b, float *slab,
                          struct names_heads *heads)
{
    return names_import_heads(b->s, &b->t, slab,
                              &(struct names_source){scratch(name), &arena, NULL}, heads);
}

static void tensor_is(const struct built *b, const float *slab, const char *name,
                      const float *wanted)
{
    const struct tensor *x = table_find(&b->t, name);
    assert_non_null(x);
    assert_memory_equal(slab + x->offset, wanted + x->offset, x->count * sizeof *slab);
}

/* From masked pre-training to classes: the pooler is taken, the classes start from the seed, the
 * other heads are named. */
static void heads_of_one_side_only_are_named(void **state)
{
    (void)state;
    struct names_heads heads;
    struct built from = build(variants[0].words, NULL), to = build(variants[2].words, NULL);
    float *slab = arena_array(&arena, to.t.elements, sizeof *slab),
          *fresh = arena_array(&arena, to.t.elements, sizeof *slab);
    export(&from, &whole, "pre");
    if (import_as("pre", &to, slab, &heads))
        fail_msg("%s", err_message());
    assert_string_equal(heads.seeded, "classes.0");
    assert_string_equal(heads.left, "mlm, pair");
    table_init(&to.t, (uint64_t)to.s->run_seed, fresh);
    tensor_is(&to, slab, "classes.0.weight", fresh);
    tensor_is(&to, slab, "classes.0.bias", fresh);
    const struct tensor *pooler = table_find(&to.t, "pooler.weight"),
                        *theirs = table_find(&from.t, "pooler.weight");
    assert_memory_equal(slab + pooler->offset, from.slab + theirs->offset, 256 * sizeof *slab);
    /* And the file of classes for masked training. */
    float *back = arena_array(&arena, from.t.elements, sizeof *back);
    export(&to, &whole, "cls");
    if (import_as("cls", &from, back, &heads))
        fail_msg("%s", err_message());
    assert_string_equal(heads.seeded, "mlm, pair");
    assert_string_equal(heads.left, "classes.0");
    if (import_as("pre", &from, back, &heads))
        fail_msg("%s", err_message());
    assert_string_equal(heads.seeded, "");
    assert_string_equal(heads.left, "");
}

/* ModernBERT's head of the tokens is what its classes begin with. */
static void a_head_becomes_the_pooler(void **state)
{
    (void)state;
    struct names_heads heads;
    struct built from = build(variants[6].words, NULL), to = build(variants[7].words, NULL);
    float *slab = arena_array(&arena, to.t.elements, sizeof *slab);
    export(&from, &whole, "modern");
    if (import_as("modern", &to, slab, &heads))
        fail_msg("%s", err_message());
    assert_string_equal(heads.seeded, "classes.0");
    const struct tensor *dense = table_find(&from.t, "mlm.dense.weight"),
                        *pooler = table_find(&to.t, "pooler.weight");
    assert_memory_equal(slab + pooler->offset, from.slab + dense->offset, 256 * sizeof *slab);
    assert_string_equal(heads.left, "mlm"); /* decoder.bias */
    export(&to, &whole, "modern");
    assert_int_equal(import_as("modern", &to, slab, &heads), ERR_OK);
    assert_string_equal(heads.left, "");
    assert_string_equal(heads.seeded, "");
}

/* Several tasks: theirs has one head, which is the chosen one. */
static void one_task_is_written(void **state)
{
    (void)state;
    static const struct names_options second = {.part_bytes = NAMES_PART_BYTES, .task = 1},
                                      third = {.part_bytes = NAMES_PART_BYTES, .task = 2};
    static const char *const words[] = {BERT, "--model.pooler=true", "--model.classes=2,5", NULL};
    struct names_heads heads;
    struct built b = build(words, NULL), one = build(variants[2].words, "--model.classes=5");
    float *slab = arena_array(&arena, b.t.elements, sizeof *slab);
    export(&b, &second, "tasks");
    assert_int_equal(import_as("tasks", &one, slab, &heads), ERR_OK);
    const struct tensor *x = table_find(&one.t, "classes.0.weight"),
                        *y = table_find(&b.t, "classes.1.weight");
    assert_memory_equal(slab + x->offset, b.slab + y->offset, 80 * sizeof *slab);
    assert_int_equal(names_export(b.s, &b.t, b.slab, &third, scratch("tasks")), ERR_CONFIG);
    assert_says("model.classes has 2");
}

static void config_has(const char *dir, const char *words)
{
    uint8_t *text;
    size_t bytes;
    assert_int_equal(file_read(scratch(arena_printf(&arena, "%s/config.json", dir)), 1 << 20,
                               &arena, &text, &bytes),
                     ERR_OK);
    if (!strstr(arena_string(&arena, (const char *)text, bytes), words))
        fail_msg("no %s in %s", words, (const char *)text);
}

/* A 0 that stands for another number is written as that number. */
static void config_has_no_defaults_of_ours(void **state)
{
    (void)state;
    struct built b = build(variants[0].words, "--model.d_ff=0");
    export(&b, &whole, "defaults");
    config_has("defaults", "\"intermediate_size\": 64,");
    b = build(variants[0].words, "--model.token_types=0");
    export(&b, &whole, "defaults");
    config_has("defaults", "\"type_vocab_size\": 1,");
}

/* The names of the chosen task's classes: tasks in the order of data.train, not that of
 * data.classes; LABEL_0, .. where it has not all of them. */
static void classes_of_a_task_keep_their_names(void **state)
{
    (void)state;
    static const struct names_options second = {.part_bytes = NAMES_PART_BYTES, .task = 1};
    static const char *const words[] = {BERT, "--model.pooler=true", "--model.classes=2,3", NULL},
                             *train[] = {"x=a.bin", "xy=b.bin", "x=c.bin"},
                             *classes[] = {"xy=u", "xy=v", "xy=w", "x=no", "x=yes"};
    struct built b = build(words, NULL);
    b.s->data_train = (struct config_list){train, 3};
    b.s->data_classes = (struct config_list){classes, 5};
    export(&b, &whole, "named");
    config_has("named", "\"id2label\": {\"0\": \"no\", \"1\": \"yes\"}");
    export(&b, &second, "named");
    config_has("named", "\"label2id\": {\"u\": 0, \"v\": 1, \"w\": 2}");
    b.s->data_classes.count = 2;
    export(&b, &second, "named");
    config_has("named", "\"id2label\": {\"0\": \"LABEL_0\", \"1\": \"LABEL_1\"");
}

/* ModernBERT without windows, and with windows alone, which transformers does not have. */
static void global_layers_of_modernbert(void **state)
{
    (void)state;
    struct hf_config c;
    struct built b = build(variants[6].words, NULL);
    b.s->model_sliding_window = b.s->model_global_attn_every = 0;
    export(&b, &whole, "global");
    config_has("global", "\"layer_types\": [\"full_attention\", \"full_attention\"");
    if (hf_read(&c, scratch("global/config.json"), &arena) || hf_check(&c, b.s, &arena))
        fail_msg("%s", err_message());
    for (size_t i = 0; i < c.count; i++)
        assert_string_not_equal(c.settings[i].key, "model.global_attn_every");
    b.s->model_sliding_window = 6;
    assert_int_equal(names_export(b.s, &b.t, b.slab, &whole, scratch("global")), ERR_UNSUPPORTED);
    assert_says("ModernBERT (model.sliding_window without global_attn_every > 1)");
}

static const char *without_dense(const char *name)
{
    return strcmp(name, "cls.predictions.transform.dense.weight") ? name : NULL;
}

static void half_a_head_is_refused(void **state)
{
    (void)state;
    struct built b = build(variants[0].words, NULL);
    float *slab = arena_array(&arena, b.t.elements, sizeof *slab);
    export(&b, &whole, "full");
    rewrite(&(struct rewrite){"full", "half", without_dense, NULL, 0});
    assert_int_equal(names_import(b.s, &b.t, slab, scratch("half")), ERR_MISMATCH);
    assert_says("no tensor cls.predictions.transform.dense.weight");
}

/* No biases, no token types: zeros stand for them, and come back as nothing. */
static void what_a_model_lacks_is_written_as_zeros(void **state)
{
    (void)state;
    static const char *const words[] = {BERT, MASKED, "--model.token_types=0", "--model.bias=false",
                                        NULL};
    struct built b = build(words, NULL), with = build(variants[1].words, "--model.token_types=1");
    struct safetensors f;
    float *slab = arena_array(&arena, b.t.elements, sizeof *slab);
    export(&b, &whole, "zeros");
    assert_int_equal(safetensors_open(&f, &arena, scratch("zeros/model.safetensors")), ERR_OK);
    const struct safetensors_tensor *x =
        tensor_of(&f, "bert.embeddings.token_type_embeddings.weight");
    assert_true(x->shape[0] == 1 && x->shape[1] == 16 && value_of(x, 3) == 0);
    assert_true(value_of(tensor_of(&f, "cls.predictions.transform.dense.bias"), 5) == 0);
    safetensors_close(&f);
    assert_int_equal(file_remove(scratch("zeros/config.json")), ERR_OK); /* it says 1 type */
    if (names_import(b.s, &b.t, slab, scratch("zeros")))
        fail_msg("%s", err_message());
    assert_memory_equal(slab, b.slab, b.t.elements * sizeof *slab);
    export(&with, &whole, "zeros");
    assert_int_equal(file_remove(scratch("zeros/config.json")), ERR_OK);
    assert_int_equal(names_import(b.s, &b.t, slab, scratch("zeros")), ERR_MISMATCH);
    assert_says("model.token_types = 0");
}

static void models_of_no_family_are_told_why(void **state)
{
    (void)state;
    static const struct {
        const char *more, *says;
    } cases[] = {
        {"--model.norm_place=none", "BERT (model.norm_place is not post)"},
        {"--model.embed_norm=false", "ALBERT (model.embed_norm = false)"},
        {"--model.embedding_size=8", "BERT (model.embedding_size is not model.d_model)"},
        {"--model.share_layers=true", "ALBERT (model.embedding_size is model.d_model)"},
        {"--model.causal=true", "BERT (model.causal = true)"},
        {"--model.norm=rms", "ModernBERT (model.norm is not layer)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct built b = build(variants[1].words, cases[i].more);
        assert_int_equal(names_export(b.s, &b.t, b.slab, &whole, scratch("none")), ERR_UNSUPPORTED);
        assert_says(cases[i].says);
        assert_says("GPT-2 (model.");
    }
}

static void tokenizer_files_are_copied(void **state)
{
    (void)state;
    char *copied;
    uint8_t *text;
    size_t size;
    assert_int_equal(file_mkdirs(scratch("from")), ERR_OK);
    assert_int_equal(file_mkdirs(scratch("to")), ERR_OK);
    scratch_write("from/vocab.txt", "[PAD]\n", 6);
    scratch_write("from/other.txt", "x", 1);
    assert_int_equal(names_copy_tokenizer(scratch("from"), scratch("to"), &arena, &copied), ERR_OK);
    assert_string_equal(copied, "vocab.txt");
    assert_int_equal(file_read(scratch("to/vocab.txt"), 100, &arena, &text, &size), ERR_OK);
    assert_true(size == 6 && !memcmp(text, "[PAD]\n", 6));
    assert_false(file_exists(scratch("to/other.txt")));
    assert_int_equal(names_copy_tokenizer(NULL, scratch("to"), &arena, &copied), ERR_OK);
    assert_string_equal(copied, "");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, reset)
    const struct CMUnitTest tests[] = {
        T(exported_tensors_are_those_of_transformers),
        T(a_model_comes_back),
        T(checkpoints_come_back),
        T(query_key_value_are_apart),
        T(older_names_are_read),
        T(two_names_for_one_tensor_must_agree),
        T(heads_of_one_side_only_are_named),
        T(a_head_becomes_the_pooler),
        T(one_task_is_written),
        T(config_has_no_defaults_of_ours),
        T(classes_of_a_task_keep_their_names),
        T(global_layers_of_modernbert),
        T(half_a_head_is_refused),
        T(what_a_model_lacks_is_written_as_zeros),
        T(models_of_no_family_are_told_why),
        T(tokenizer_files_are_copied),
    };
    int failed = cmocka_run_group_tests(tests, scratch_open, scratch_close);
    arena_free(&arena);
    return failed;
}
