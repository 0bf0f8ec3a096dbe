/* SPDX-License-Identifier: Apache-2.0 */
/* The table of tensors of one transformer, from the settings. */
#include "inner/model/table.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "inner/model/table_file.h"
#include "kernels/base/rng.h"

enum { TENSORS_OUTSIDE = 21, TENSORS_PER_LAYER = 12, TENSORS_PER_TASK = 2 };

static size_t padded(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

size_t table_span(const struct table *t, size_t i)
{
    size_t next = i + 1 < t->count ? t->tensors[i + 1].offset : t->elements;
    return next - t->tensors[i].offset;
}

size_t table_vocab_padded(const struct settings *s)
{
    return padded((size_t)s->model_vocab_size, TABLE_VOCAB_ALIGN);
}

size_t table_classes_padded(size_t classes)
{
    return padded(classes, TABLE_VOCAB_ALIGN);
}

size_t table_embed(const struct settings *s)
{
    return (size_t)(s->model_embedding_size ? s->model_embedding_size : s->model_d_model);
}

size_t table_layers(const struct settings *s)
{
    return s->model_share_layers ? 1 : (size_t)s->model_layers;
}

size_t table_mlp(const struct settings *s)
{
    if (s->model_d_ff)
        return (size_t)s->model_d_ff;
    size_t C = (size_t)s->model_d_model;
    /* Shazeer 2020: three matrices of 8/3 C have as many parameters as two of 4 C */
    return table_gated(s) ? padded((8 * C + 2) / 3, 64) : 4 * C;
}

bool table_gated(const struct settings *s)
{
    return s->model_activation == MODEL_ACTIVATION_SWIGLU ||
           s->model_activation == MODEL_ACTIVATION_GEGLU;
}

size_t table_kv_heads(const struct settings *s)
{
    return (size_t)(s->model_kv_heads ? s->model_kv_heads : s->model_heads);
}

struct builder { /* of a table */
    const struct settings *s;
    struct table *t;
    int layer; /* of the next tensor */
};

static bool in_layer(const struct builder *b)
{
    return b->layer >= 0 && b->layer < (int)table_layers(b->s);
}

/* A tensor named MODULE.PART, in a layer layers.N.MODULE.PART. */
static struct tensor *append(struct builder *b, const char *module, const char *part, int64_t rows,
                             int64_t columns)
{
    struct tensor *x = &b->t->tensors[b->t->count++];
    int n = in_layer(b)
                ? snprintf(x->name, sizeof x->name, "layers.%d.%s.%s", b->layer, module, part)
                : snprintf(x->name, sizeof x->name, "%s.%s", module, part);
    ASSERT(n > 0 && n < TABLE_NAME_MAX);
    x->shape[0] = rows;
    x->shape[1] = columns;
    x->layer = b->layer;
    x->offset = b->t->elements;
    x->count = (size_t)rows * (size_t)columns;
    b->t->parameters += x->count;
    b->t->elements += padded(x->count, TABLE_ALIGN);
    return x;
}

static void append_matrix(struct builder *b, const char *module, int64_t rows, int64_t columns,
                          double std)
{
    struct tensor *x = append(b, module, "weight", rows, columns);
    x->init = b->s->train_init == TRAIN_INIT_TRUNCATED ? TABLE_TRUNCATED : TABLE_NORMAL;
    x->std = (float)std;
    x->group = in_layer(b) ? TABLE_HIDDEN : TABLE_MATRIX;
}

/* A row for each id or class, and the padding rows. */
static void append_vocab(struct builder *b, const char *module, int64_t rows, size_t columns)
{
    append_matrix(b, module, rows, (int64_t)columns, 0.02);
    struct tensor *x = &b->t->tensors[b->t->count - 1];
    x->count = padded((size_t)rows, TABLE_VOCAB_ALIGN) * columns;
    b->t->elements = x->offset + padded(x->count, TABLE_ALIGN);
}

static void append_vector(struct builder *b, const char *module, const char *part, int64_t count,
                          enum table_init init)
{
    struct tensor *x = append(b, module, part, count, 1);
    x->init = init;
    x->group = TABLE_VECTOR;
}

static void append_norm(struct builder *b, const char *module, int64_t width)
{
    append_vector(b, module, "weight", width, TABLE_ONE);
    if (b->s->model_bias && b->s->model_norm == MODEL_NORM_LAYER)
        append_vector(b, module, "bias", width, TABLE_ZERO);
}

static void append_linear(struct builder *b, const char *module, int64_t out, int64_t in,
                          double std)
{
    append_matrix(b, module, out, in, std);
    if (b->s->model_bias)
        append_vector(b, module, "bias", out, TABLE_ZERO);
}

static void append_embedding(struct builder *b)
{
    const struct settings *s = b->s;
    int64_t E = (int64_t)table_embed(s);
    append_vocab(b, "wte", s->model_vocab_size, (size_t)E);
    if (s->model_positions == MODEL_POSITIONS_LEARNED)
        append_matrix(b, "wpe", s->model_max_seq_len, E, 0.02);
    if (s->model_token_types)
        append_matrix(b, "wtt", s->model_token_types, E, 0.02);
    if (s->model_embed_norm)
        append_norm(b, "embed.norm", E);
    if (E != s->model_d_model)
        append_linear(b, "embed.proj", s->model_d_model, E, 0.02);
}

/* ModernBERT's first block reads what the norm of the embeddings returns. */
static bool has_norm1(const struct settings *s, int layer)
{
    return s->model_norm_place != MODEL_NORM_NONE &&
           !(s->model_norm_place == MODEL_NORM_PRE && s->model_embed_norm && layer == 0 &&
             !s->model_share_layers);
}

/* Standard deviation 0.02. GPT-2 divides it, for matrices whose output is added to the residual
 * stream, by the root of the number of such additions, 2L (Radford et al. 2019, section 2.3): its
 * stream is the sum of them all. BERT's is normalised after each addition and needs no such
 * factor (Devlin et al. 2019 have 0.02 everywhere). */
static void append_layer(struct builder *b)
{
    const struct settings *s = b->s;
    bool post = s->model_norm_place == MODEL_NORM_POST,
         none = s->model_norm_place == MODEL_NORM_NONE;
    int64_t C = s->model_d_model, F = (int64_t)table_mlp(s), up = table_gated(s) ? 2 * F : F;
    int64_t KV = C / s->model_heads * (int64_t)table_kv_heads(s);
    double into_residual = post ? 0.02 : 0.02 / sqrt(2.0 * (double)s->model_layers);
    if (!post && has_norm1(s, b->layer))
        append_norm(b, "norm1", C);
    append_linear(b, "attn.qkv", C + 2 * KV, C, 0.02);
    append_linear(b, "attn.proj", C, C, into_residual);
    if (!none)
        append_norm(b, post ? "norm1" : "norm2", C);
    append_linear(b, "mlp.up", up, C, 0.02);
    append_linear(b, "mlp.down", C, F, into_residual);
    if (post)
        append_norm(b, "norm2", C);
}

static void append_head(struct builder *b)
{
    const struct settings *s = b->s;
    int64_t C = s->model_d_model, E = (int64_t)table_embed(s);
    if (!s->model_tie_embeddings)
        append_vocab(b, "head", s->model_vocab_size, (size_t)E);
    if (s->model_head != MODEL_HEAD_MLM)
        return;
    append_linear(b, "mlm.dense", E, C, 0.02);
    append_norm(b, "mlm.norm", E);
    append_vector(b, "mlm", "bias", s->model_vocab_size, TABLE_ZERO);
}

/* These have biases in every model, as in transformers. */
static void append_pooler(struct builder *b)
{
    const struct settings *s = b->s;
    size_t C = (size_t)s->model_d_model;
    append_matrix(b, "pooler", s->model_d_model, s->model_d_model, 0.02);
    if (s->model_bias || !s->model_pooler_norm)
        append_vector(b, "pooler", "bias", s->model_d_model, TABLE_ZERO);
    if (s->model_pooler_norm)
        append_norm(b, "pooler.norm", s->model_d_model);
    if (!s->model_classes.count) {
        append_vocab(b, "pair", 2, C);
        append_vector(b, "pair", "bias", 2, TABLE_ZERO);
    }
    for (size_t i = 0; i < s->model_classes.count; i++) {
        char module[TABLE_NAME_MAX];
        snprintf(module, sizeof module, "classes.%zu", i);
        append_vocab(b, module, keys_classes(s, i), C);
        append_vector(b, module, "bias", keys_classes(s, i), TABLE_ZERO);
    }
    for (int64_t i = 1; i < s->model_classifier_heads; i++) {
        char module[TABLE_NAME_MAX];
        snprintf(module, sizeof module, "classes.0.%lld", (long long)i);
        append_vocab(b, module, keys_classes(s, 0), C);
        append_vector(b, module, "bias", keys_classes(s, 0), TABLE_ZERO);
    }
}

enum err table_make(struct table *t, const struct settings *s, struct arena *perm)
{
    *t = (struct table){0};
    if (*s->model_tensors)
        return table_read(t, s->model_tensors, perm);
    size_t tensors_max =
        TENSORS_OUTSIDE + TENSORS_PER_LAYER * table_layers(s) +
        TENSORS_PER_TASK * (s->model_classes.count + (size_t)s->model_classifier_heads - 1);
    TRY_ALLOC(t->tensors = arena_array(perm, tensors_max, sizeof *t->tensors));
    struct builder b = {.s = s, .t = t, .layer = -1};
    append_embedding(&b);
    for (b.layer = 0; b.layer < (int)table_layers(s); b.layer++)
        append_layer(&b);
    if (s->model_norm_place == MODEL_NORM_PRE)
        append_norm(&b, "norm", s->model_d_model);
    append_head(&b);
    if (s->model_pooler)
        append_pooler(&b);
    ASSERT(t->count <= tensors_max);
    return ERR_OK;
}

enum err table_own(const struct settings *s)
{
    if (!*s->model_tensors)
        return ERR_OK;
    return err_set(ERR_UNSUPPORTED,
                   "model.tensors = %s: Atoll does not have this model; its sites are programs "
                   "with libatoll (docs/library.md)",
                   s->model_tensors);
}

struct opt_group table_group(const struct tensor *x)
{
    static const struct opt_group groups[] = {
#define X(NAME, lr, decay, trust) {lr, decay, 1, 1, trust, true, 0},
        TABLE_GROUPS(X)
#undef X
    };
    return groups[x->group];
}

const struct tensor *table_find(const struct table *t, const char *name)
{
    for (size_t i = 0; i < t->count; i++)
        if (!strcmp(t->tensors[i].name, name))
            return &t->tensors[i];
    return NULL;
}

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

size_t table_projections(const struct settings *s, const struct tensor *x,
                         size_t elements[TABLE_PROJECTIONS_MAX])
{
    size_t C = (size_t)s->model_d_model, KV = C / (size_t)s->model_heads * table_kv_heads(s);
    elements[0] = x->count;
    if (ends_in(x->name, ".attn.qkv.weight")) {
        ASSERT(x->count == (C + 2 * KV) * C);
        elements[0] = C * C;
        elements[1] = elements[2] = KV * C;
        return 3;
    }
    if (!table_gated(s) || !ends_in(x->name, ".mlp.up.weight"))
        return 1;
    elements[0] = elements[1] = x->count / 2;
    return 2;
}

struct digest table_digest(const struct table *t)
{
    struct digest_stream s;
    digest_open(&s);
    for (size_t i = 0; i < t->count; i++) {
        const struct tensor *x = &t->tensors[i];
        char line[160];
        int n = snprintf(line, sizeof line, "%s %lld %lld %zu %zu\n", x->name,
                         (long long)x->shape[0], (long long)x->shape[1], x->offset, x->count);
        digest_add(&s, line, (size_t)n);
    }
    return digest_close(&s);
}

/* Truncated at two standard deviations, as TensorFlow's truncated_normal: one of 22 is drawn again,
 * under an index that no element has. */
static float draw_normal(enum table_init init, uint64_t seed, uint64_t element)
{
    enum { ELEMENT_BITS = 48 };
    float x = rng_normal(seed, RNG_INIT, element);
    for (uint64_t draw = 1; init == TABLE_TRUNCATED && fabsf(x) > 2; draw++)
        x = rng_normal(seed, RNG_INIT, draw << ELEMENT_BITS | element);
    return x;
}

void table_init_range(const struct table *t, uint64_t seed, struct dev_range r, float *to)
{
    size_t end = r.offset + r.count;
    memset(to, 0, r.count * sizeof *to);
    for (size_t i = 0; i < t->count; i++) {
        const struct tensor *x = &t->tensors[i];
        size_t last = x->offset + (size_t)x->shape[0] * (size_t)x->shape[1];
        last = last < end ? last : end;
        for (size_t j = x->offset > r.offset ? x->offset : r.offset;
             j < last && x->init != TABLE_ZERO; j++)
            to[j - r.offset] = x->init == TABLE_ONE ? 1.0f : x->std * draw_normal(x->init, seed, j);
    }
}

void table_init(const struct table *t, uint64_t seed, float *slab)
{
    table_init_range(t, seed, (struct dev_range){0, t->elements}, slab);
}
