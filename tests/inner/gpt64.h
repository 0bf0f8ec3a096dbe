/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPT64_H
#define GPT64_H
/* The oracle: the same network once more, plainly, in float64, one loop per line of the papers and
 * sharing nothing with the model but its table of names. Written from Radford et al. 2019 (GPT-2),
 * Ba et al. 2016 (LayerNorm), Zhang & Sennrich 2019 (RMSNorm), Hendrycks & Gimpel 2016 (GELU, both
 * forms), Su et al. 2021 (rotary positions, as complex numbers; the pairs of Llama's weights in
 * Hugging Face's files), Shazeer 2020 (SwiGLU), Ainslie et al. 2023 (grouped queries), Devlin et
 * al. 2019 (BERT), Lan et al. 2020 (ALBERT), Warner et al. 2024 (ModernBERT).
 */
#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "inner/model/depth.h"
#include "inner/model/model.h"
#include "kernels/base/rng.h"

struct gpt64 {
    const struct settings *s;
    const struct table *t;
    const double *p; /* slab in double */
    size_t C, F, NH, KVH, T, E;
};

static inline const double *gpt64_find(const struct gpt64 *g, int layer, const char *name)
{
    char full[2 * TABLE_NAME_MAX];
    if (layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "layers.%d.%s", layer, name);
    const struct tensor *x = table_find(g->t, full);
    return x ? g->p + x->offset : NULL;
}

/* layers.N.NAME.weight and .bias of rows of C; without a weight y = x. */
static inline void gpt64_norm(const struct gpt64 *g, double *y, const double *x, int layer,
                              const char *name, size_t C)
{
    char weight[TABLE_NAME_MAX], offset[TABLE_NAME_MAX];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(offset, sizeof offset, "%s.bias", name);
    const double *gain = gpt64_find(g, layer, weight), *bias = gpt64_find(g, layer, offset);
    for (size_t t = 0; t < g->T; t++, x += C, y += C) {
        double mean = 0, square = 0;
        for (size_t c = 0; c < C && gain && g->s->model_norm == MODEL_NORM_LAYER; c++)
            mean += x[c] / (double)C;
        for (size_t c = 0; c < C; c++)
            square += (x[c] - mean) * (x[c] - mean) / (double)C;
        for (size_t c = 0; c < C; c++)
            y[c] = gain ? (x[c] - mean) / sqrt(square + g->s->model_norm_eps) * gain[c] +
                              (bias ? bias[c] : 0)
                        : x[c];
    }
}

static inline void gpt64_linear(const struct gpt64 *g, double *y, const double *x, const double *w,
                                const double *bias, size_t K, size_t N)
{
    for (size_t t = 0; t < g->T; t++)
        for (size_t n = 0; n < N; n++) {
            double sum = bias ? bias[n] : 0;
            for (size_t k = 0; k < K; k++)
                sum += x[t * K + k] * w[n * K + k];
            y[t * N + n] = sum;
        }
}

static inline double gpt64_gelu(const struct gpt64 *g, double x)
{
    if (g->s->model_activation != MODEL_ACTIVATION_GELU)
        return 0.5 * x * (1 + erf(x / sqrt(2.0)));
    return 0.5 * x * (1 + tanh(sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

/* silu or GELU of the first half of a row times the second. */
static inline double gpt64_gate(const struct gpt64 *g, const double *row, size_t i, size_t F)
{
    if (g->s->model_activation == MODEL_ACTIVATION_GEGLU)
        return gpt64_gelu(g, row[i]) * row[F + i];
    return row[i] / (1 + exp(-row[i])) * row[F + i];
}

static inline bool gpt64_local(const struct gpt64 *g, int l)
{
    const struct settings *s = g->s;
    return s->model_sliding_window &&
           (!s->model_global_attn_every || l % s->model_global_attn_every);
}

/* Training only: the mask, value by value, from its definition. place: 1 after the embeddings,
 * 2 + 2 l and 3 + 2 l after attention and MLP of layer l. */
static inline void gpt64_drop(const struct gpt64 *g, double *x, unsigned place, size_t C,
                              const struct batch *b)
{
    uint32_t below = (uint32_t)(g->s->train_dropout * 65536 + 0.5), words[4];
    uint64_t seed = (uint64_t)g->s->run_seed ^ (uint64_t)b->site << 53;
    for (size_t i = 0; i < b->sequences && below; i++)
        for (size_t t = (size_t)b->cu_seqlens[i]; t < (size_t)b->cu_seqlens[i + 1]; t++)
            for (size_t c = 0; c < C; c++) {
                uint64_t row =
                    b->numbers[i] * (uint64_t)g->s->train_seq_len + (t - (size_t)b->cu_seqlens[i]);
                rng_block(seed, RNG_DROPOUT | b->step << 32,
                          row << 32 | (uint64_t)place << 16 | c / 8, words);
                bool cut = (words[c % 8 / 2] >> (c % 2 ? 16 : 0) & 0xffff) < below;
                x[t * C + c] *= cut ? 0 : 65536.0 / (65536 - below);
            }
}

/* The first heads of each row of qkv. */
static inline void gpt64_turn(const struct gpt64 *g, double *qkv, int l, const struct batch *b)
{
    size_t HD = g->C / g->NH, row = g->C + 2 * g->KVH * HD;
    double theta = gpt64_local(g, l) ? g->s->model_rope_theta_local : g->s->model_rope_theta;
    for (size_t t = 0; t < g->T; t++)
        for (size_t head = 0; head < g->NH + g->KVH; head++)
            for (size_t i = 0; i < HD / 2; i++) {
                double *x = qkv + t * row + head * HD + i;
                double angle = b->positions[t] / pow(theta, 2.0 * (double)i / (double)HD);
                double complex z = (x[0] + x[HD / 2] * I) * cexp(I * angle);
                x[0] = creal(z);
                x[HD / 2] = cimag(z);
            }
}

/* Query t of one head, which sees [begin, last). */
static inline void gpt64_attend(const struct gpt64 *g, double *out, const double *qkv, size_t head,
                                size_t t, size_t begin, size_t last)
{
    size_t HD = g->C / g->NH;
    size_t row = g->C + 2 * g->KVH * HD, shared = head / (g->NH / g->KVH);
    const double *q = qkv + t * row + head * HD, *k = qkv + g->C + shared * HD,
                 *v = k + g->KVH * HD;
    double *score = calloc(last, sizeof *score), sum = 0;
    for (size_t u = begin; u < last; u++) {
        double dot = 0;
        for (size_t i = 0; i < HD; i++)
            dot += q[i] * k[u * row + i];
        sum += score[u] = exp(dot / sqrt((double)HD));
    }
    for (size_t i = 0; i < HD; i++) {
        out[t * g->C + head * HD + i] = 0;
        for (size_t u = begin; u < last; u++)
            out[t * g->C + head * HD + i] += score[u] / sum * v[u * row + i];
    }
    free(score);
}

static inline void gpt64_attention(const struct gpt64 *g, double *out, const double *qkv, int l,
                                   const struct batch *b)
{
    size_t reach = gpt64_local(g, l) ? (size_t)g->s->model_sliding_window / 2 : g->T;
    for (size_t i = 0; i < b->sequences; i++)
        for (size_t t = (size_t)b->cu_seqlens[i]; t < (size_t)b->cu_seqlens[i + 1]; t++)
            for (size_t head = 0; head < g->NH; head++) {
                size_t begin = (size_t)b->cu_seqlens[i], last = (size_t)b->cu_seqlens[i + 1];
                begin = t > begin + reach ? t - reach : begin;
                last = last > t + reach + 1 ? t + reach + 1 : last;
                gpt64_attend(g, out, qkv, head, t, begin, g->s->model_causal ? t + 1 : last);
            }
}

static inline void gpt64_add(const struct gpt64 *g, double *x, const double *y)
{
    for (size_t i = 0; i < g->T * g->C; i++)
        x[i] += y[i];
}

/* out = proj(attention(qkv(h))); h is overwritten. */
static inline void gpt64_attention_sublayer(const struct gpt64 *g, int l, double *out, double *h,
                                            double *wide, const struct batch *b)
{
    size_t C = g->C, row = C + 2 * g->KVH * (C / g->NH);
    int at = g->s->model_share_layers ? 0 : l;
#define P(name) gpt64_find(g, at, name)
    gpt64_linear(g, wide, h, P("attn.qkv.weight"), P("attn.qkv.bias"), C, row);
    if (g->s->model_positions == MODEL_POSITIONS_ROPE)
        gpt64_turn(g, wide, l, b);
    gpt64_attention(g, h, wide, l, b);
    gpt64_linear(g, out, h, P("attn.proj.weight"), P("attn.proj.bias"), C, C);
}

static inline void gpt64_mlp(const struct gpt64 *g, int l, double *out, const double *h,
                             double *wide)
{
    size_t C = g->C, F = g->F;
    int at = g->s->model_share_layers ? 0 : l;
    bool gated = table_gated(g->s);
    gpt64_linear(g, wide, h, P("mlp.up.weight"), P("mlp.up.bias"), C, gated ? 2 * F : F);
    for (size_t t = 0; t < g->T; t++) /* rows of 2F close up to rows of F */
        for (size_t i = 0; i < F; i++)
            wide[t * F + i] =
                gated ? gpt64_gate(g, wide + t * 2 * F, i, F) : gpt64_gelu(g, wide[t * F + i]);
    gpt64_linear(g, out, wide, P("mlp.down.weight"), P("mlp.down.bias"), F, C);
#undef P
}

/* Layer dropping: 1 / p of a layer that runs, 0.1 being what is left of theta (rate 10, step 7). */
static inline void gpt64_scale(const struct gpt64 *g, double *x, int l, const struct batch *b)
{
    double keep = 1 - g->s->train_layer_drop, theta;
    theta = keep + (1 - keep) * exp(-g->s->train_layer_drop_rate * (double)b->step);
    for (size_t i = 0; i < g->T * g->C; i++)
        x[i] /= 1 - (double)l / (double)g->s->model_layers * (1 - theta);
}

/* train.standardization_weight: half of mean^2 + variance - log variance - 1 of each channel of a
 * branch's input, times the targets; below 1e-5 the tangent of the logarithm. Of layers that learn.
 */
static inline double gpt64_standard(const struct gpt64 *g, const double *x, const struct batch *b)
{
    double sum = 0, T = (double)g->T;
    for (size_t c = 0; c < g->C && g->s->train_standardization_weight > 0; c++) {
        double mean = 0, v = 0;
        for (size_t t = 0; t < g->T; t++)
            mean += x[t * g->C + c] / T;
        for (size_t t = 0; t < g->T; t++)
            v += (x[t * g->C + c] - mean) * (x[t * g->C + c] - mean) / T;
        double ln = v > 1e-5 ? log(v) : log(1e-5) + (v - 1e-5) / 1e-5;
        sum += (mean * mean + v - ln - 1) / 2;
    }
    return g->s->train_standardization_weight *
           (double)(batch_targets(b) ? batch_targets(b) : batch_labels(b)) * sum;
}

static inline double gpt64_layer(const struct gpt64 *g, int l, double *x, double *h, double *wide,
                                 double *out, const struct batch *b)
{
    double standard = gpt64_standard(g, x, b);
    bool post = g->s->model_norm_place == MODEL_NORM_POST;
    int at = g->s->model_share_layers ? 0 : l;
    gpt64_norm(g, h, x, at, post ? "none" : "norm1", g->C);
    gpt64_attention_sublayer(g, l, out, h, wide, b);
    gpt64_drop(g, out, 2 + 2 * (unsigned)l, g->C, b);
    gpt64_scale(g, out, l, b);
    gpt64_add(g, x, out);
    if (post)
        gpt64_norm(g, x, x, at, "norm1", g->C);
    standard += gpt64_standard(g, x, b);
    gpt64_norm(g, h, x, at, post ? "none" : "norm2", g->C);
    gpt64_mlp(g, l, out, h, wide);
    gpt64_drop(g, out, 3 + 2 * (unsigned)l, g->C, b);
    gpt64_scale(g, out, l, b);
    gpt64_add(g, x, out);
    if (post)
        gpt64_norm(g, x, x, at, "norm2", g->C);
    return standard;
}

/* x (T, C) from the ids; e (T, E). */
static inline void gpt64_embed(const struct gpt64 *g, double *x, double *e, const struct batch *b)
{
    const double *wte = gpt64_find(g, -1, "wte.weight"), *wpe = gpt64_find(g, -1, "wpe.weight"),
                 *wtt = gpt64_find(g, -1, "wtt.weight");
    size_t E = g->E;
    for (size_t i = 0; i < g->T; i++)
        for (size_t c = 0; c < E; c++)
            e[i * E + c] = wte[(size_t)b->tokens[i] * E + c] +
                           (wpe ? wpe[(size_t)b->positions[i] * E + c] : 0) +
                           (wtt ? wtt[(size_t)b->types[i] * E + c] : 0);
    gpt64_norm(g, e, e, -1, "embed.norm", E);
    gpt64_drop(g, e, 1, E, b);
    const double *proj = gpt64_find(g, -1, "embed.proj.weight");
    if (proj)
        gpt64_linear(g, x, e, proj, gpt64_find(g, -1, "embed.proj.bias"), E, g->C);
    else
        memcpy(x, e, g->T * E * sizeof *x);
}

/* -log softmax of one row of logits. */
static inline double gpt64_xent(const double *logits, size_t count, size_t target)
{
    double sum = 0;
    for (size_t v = 0; v < count; v++)
        sum += exp(logits[v]);
    return log(sum) - logits[target];
}

/* The logits of the tokens l (T, V) from x (T, C). */
static inline void gpt64_token_head(const struct gpt64 *g, double *l, const double *x)
{
    const double *wte = gpt64_find(g, -1, "wte.weight"), *head = gpt64_find(g, -1, "head.weight"),
                 *dense = gpt64_find(g, -1, "mlm.dense.weight");
    double *e = calloc(g->T * g->E, 8);
    if (dense) {
        gpt64_linear(g, e, x, dense, gpt64_find(g, -1, "mlm.dense.bias"), g->C, g->E);
        for (size_t i = 0; i < g->T * g->E; i++)
            e[i] = gpt64_gelu(g, e[i]);
        gpt64_norm(g, e, e, -1, "mlm.norm", g->E);
    }
    gpt64_linear(g, l, dense ? e : x, head ? head : wte, gpt64_find(g, -1, "mlm.bias"), g->E,
                 (size_t)g->s->model_vocab_size);
    free(e);
}

/* The loss of the sequence whose rows are x (rows, C). */
static inline double gpt64_sequence_loss(const struct gpt64 *g, const double *x, size_t rows,
                                         int task, size_t label)
{
    struct gpt64 one = *g;
    char weight[TABLE_NAME_MAX] = "pair.weight", bias[TABLE_NAME_MAX] = "pair.bias";
    size_t classes = 2;
    one.T = 1;
    if (g->s->model_classes.count) {
        snprintf(weight, sizeof weight, "classes.%d.weight", task);
        snprintf(bias, sizeof bias, "classes.%d.bias", task);
        classes = (size_t)keys_classes(g->s, (size_t)task);
    }
    double *pooled = calloc(g->C, 8), *l = calloc(classes, 8), *in = calloc(g->C, 8), loss;
    for (size_t i = 0; i < (g->s->model_pooling == MODEL_POOLING_MEAN ? rows : 1); i++)
        for (size_t c = 0; c < g->C; c++)
            in[c] = (in[c] * (double)i + x[i * g->C + c]) / (double)(i + 1);
    gpt64_linear(&one, pooled, in, gpt64_find(g, -1, "pooler.weight"),
                 gpt64_find(g, -1, "pooler.bias"), g->C, g->C);
    for (size_t c = 0; c < g->C; c++)
        pooled[c] = g->s->model_pooler_norm ? gpt64_gelu(g, pooled[c]) : tanh(pooled[c]);
    if (g->s->model_pooler_norm)
        gpt64_norm(&one, pooled, pooled, -1, "pooler.norm", g->C);
    gpt64_linear(&one, l, pooled, gpt64_find(g, -1, weight), gpt64_find(g, -1, bias), g->C,
                 classes);
    loss = gpt64_xent(l, classes, label) / (double)g->s->model_classifier_heads;
    for (int64_t i = 1; i < g->s->model_classifier_heads; i++) {
        snprintf(weight, sizeof weight, "classes.0.%d.weight", (int)i);
        snprintf(bias, sizeof bias, "classes.0.%d.bias", (int)i);
        gpt64_linear(&one, l, pooled, gpt64_find(g, -1, weight), gpt64_find(g, -1, bias), g->C,
                     classes);
        loss += gpt64_xent(l, classes, label) / (double)g->s->model_classifier_heads;
    }
    free(pooled), free(l), free(in);
    return loss;
}

/* The sum of |cosine| of two heads' weights of a class, over pairs and classes, weighted. */
static inline double gpt64_orthogonal(const struct gpt64 *g, const struct batch *b)
{
    const double *w[16];
    int n = (int)g->s->model_classifier_heads;
    double sum = 0;
    for (int i = 0; i < n && n > 1; i++) {
        char name[TABLE_NAME_MAX] = "classes.0.weight";
        if (i)
            snprintf(name, sizeof name, "classes.0.%d.weight", i);
        w[i] = gpt64_find(g, -1, name);
        for (int j = 0; j < i; j++)
            for (int64_t k = 0; k < keys_classes(g->s, 0); k++) {
                double dot = 0, p = 0, q = 0;
                for (size_t c = (size_t)k * g->C; c < ((size_t)k + 1) * g->C; c++) {
                    dot += w[i][c] * w[j][c];
                    p += w[i][c] * w[i][c];
                    q += w[j][c] * w[j][c];
                }
                sum += fabs(dot) / sqrt(p * q);
            }
    }
    return g->s->train_heads_orthogonal * (double)batch_labels(b) * (double)b->sequence_weight *
           sum;
}

/* Sum of losses over targets >= 0 and over labels >= 0; logits (T, V) too when wanted. */
static inline double gpt64_loss(const struct settings *s, const struct table *t, const double *p,
                                const struct batch *b, double *logits)
{
    struct gpt64 g = {.s = s,
                      .t = t,
                      .p = p,
                      .C = (size_t)s->model_d_model,
                      .F = table_mlp(s),
                      .NH = (size_t)s->model_heads,
                      .KVH = table_kv_heads(s),
                      .T = b->tokens_count,
                      .E = s->model_embedding_size ? (size_t)s->model_embedding_size
                                                   : (size_t)s->model_d_model};
    size_t V = (size_t)s->model_vocab_size, wide_max = 2 * g.F > 3 * g.C ? 2 * g.F : 3 * g.C;
    double *x = calloc(g.T * g.C, 8), *h = calloc(g.T * g.C, 8), *out = calloc(g.T * g.C, 8);
    double *wide = calloc(g.T * wide_max, 8), *l = calloc(g.T * V, 8), loss = 0;
    double *e = calloc(g.T * g.E, 8);
    gpt64_embed(&g, x, e, b);
    for (int i = 0; i < s->model_layers; i++)
        if (depth_runs(s, b->step, (size_t)i))
            loss += gpt64_layer(&g, i, x, h, wide, out, b) * depth_learns(s, b->step, i);
    gpt64_norm(&g, h, x, -1, "norm", g.C);
    gpt64_token_head(&g, l, h);
    for (size_t i = 0; i < g.T; i++)
        if (b->targets[i] >= 0)
            loss += gpt64_xent(l + i * V, V, (size_t)b->targets[i]);
    for (size_t i = 0; i < b->sequences && s->model_pooler; i++)
        if (b->labels[i] >= 0)
            loss += gpt64_sequence_loss(&g, h + (size_t)b->cu_seqlens[i] * g.C,
                                        (size_t)(b->cu_seqlens[i + 1] - b->cu_seqlens[i]),
                                        b->tasks[i], (size_t)b->labels[i]);
    loss += s->model_pooler ? gpt64_orthogonal(&g, b) : 0;
    if (logits)
        memcpy(logits, l, g.T * V * sizeof *l);
    free(x), free(h), free(out), free(wide), free(l), free(e);
    return loss;
}

#endif
