#ifndef GPT64_H
#define GPT64_H
/* The oracle: the same network once more, plainly, in float64, one loop per line of the papers and
 * sharing nothing with the model but its table of names. Written from Radford et al. 2019 (GPT-2),
 * Ba et al. 2016 (LayerNorm), Zhang & Sennrich 2019 (RMSNorm), Hendrycks & Gimpel 2016 (GELU, both
 * forms), Su et al. 2021 (rotary positions, as complex numbers; the pairs of Llama's weights in
 * Hugging Face's files), Shazeer 2020 (SwiGLU), Ainslie et al. 2023 (grouped queries).
 */
#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "inner/model/model.h"

struct gpt64 {
    const struct settings *s;
    const struct table *t;
    const double *p; /* slab in double */
    size_t C, F, NH, KVH, T;
};

static inline const double *gpt64_find(const struct gpt64 *g, int layer, const char *name)
{
    char full[TABLE_NAME_MAX];
    if (layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "layers.%d.%s", layer, name);
    const struct tensor *x = table_find(g->t, full);
    return x ? g->p + x->offset : NULL;
}

static inline void gpt64_norm(const struct gpt64 *g, double *y, const double *x, const double *gain,
                              const double *bias)
{
    for (size_t t = 0; t < g->T; t++, x += g->C, y += g->C) {
        double mean = 0, square = 0;
        for (size_t c = 0; c < g->C && g->s->model_norm == MODEL_NORM_LAYER; c++)
            mean += x[c] / (double)g->C;
        for (size_t c = 0; c < g->C; c++)
            square += (x[c] - mean) * (x[c] - mean) / (double)g->C;
        for (size_t c = 0; c < g->C; c++)
            y[c] = (x[c] - mean) / sqrt(square + g->s->model_norm_eps) * gain[c] +
                   (bias ? bias[c] : 0);
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
    if (g->s->model_activation == MODEL_ACTIVATION_GELU_ERF)
        return 0.5 * x * (1 + erf(x / sqrt(2.0)));
    return 0.5 * x * (1 + tanh(sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

/* silu of the first half of a row times the second. */
static inline double gpt64_gate(const double *row, size_t i, size_t F)
{
    return row[i] / (1 + exp(-row[i])) * row[F + i];
}

/* The first heads of each row of qkv. */
static inline void gpt64_turn(const struct gpt64 *g, double *qkv, size_t row, const struct batch *b)
{
    size_t HD = g->C / g->NH;
    for (size_t t = 0; t < g->T; t++)
        for (size_t head = 0; head < g->NH + g->KVH; head++)
            for (size_t i = 0; i < HD / 2; i++) {
                double *x = qkv + t * row + head * HD + i;
                double angle =
                    b->positions[t] / pow(g->s->model_rope_theta, 2.0 * (double)i / (double)HD);
                double complex z = (x[0] + x[HD / 2] * I) * cexp(I * angle);
                x[0] = creal(z);
                x[HD / 2] = cimag(z);
            }
}

/* Query t of one head; its sequence is [begin, end). */
static inline void gpt64_attend(const struct gpt64 *g, double *out, const double *qkv, size_t head,
                                size_t t, size_t begin, size_t end)
{
    size_t HD = g->C / g->NH, last = g->s->model_causal ? t + 1 : end;
    size_t row = g->C + 2 * g->KVH * HD, shared = head / (g->NH / g->KVH);
    const double *q = qkv + t * row + head * HD, *k = qkv + g->C + shared * HD,
                 *v = k + g->KVH * HD;
    double *score = calloc(end, sizeof *score), sum = 0;
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

static inline void gpt64_attention(const struct gpt64 *g, double *out, const double *qkv,
                                   const struct batch *b)
{
    for (size_t i = 0; i < b->sequences; i++)
        for (int32_t t = b->cu_seqlens[i]; t < b->cu_seqlens[i + 1]; t++)
            for (size_t head = 0; head < g->NH; head++)
                gpt64_attend(g, out, qkv, head, (size_t)t, (size_t)b->cu_seqlens[i],
                             (size_t)b->cu_seqlens[i + 1]);
}

static inline void gpt64_add(const struct gpt64 *g, double *x, const double *y)
{
    for (size_t i = 0; i < g->T * g->C; i++)
        x[i] += y[i];
}

static inline void gpt64_layer(const struct gpt64 *g, int l, double *x, double *h, double *wide,
                               double *out, const struct batch *b)
{
    size_t C = g->C, F = g->F, row = C + 2 * g->KVH * (C / g->NH);
    bool gated = g->s->model_activation == MODEL_ACTIVATION_SWIGLU;
#define P(name) gpt64_find(g, l, name)
    gpt64_norm(g, h, x, P("norm1.weight"), P("norm1.bias"));
    gpt64_linear(g, wide, h, P("attn.qkv.weight"), P("attn.qkv.bias"), C, row);
    if (g->s->model_positions == MODEL_POSITIONS_ROPE)
        gpt64_turn(g, wide, row, b);
    gpt64_attention(g, h, wide, b);
    gpt64_linear(g, out, h, P("attn.proj.weight"), P("attn.proj.bias"), C, C);
    gpt64_add(g, x, out);
    gpt64_norm(g, h, x, P("norm2.weight"), P("norm2.bias"));
    gpt64_linear(g, wide, h, P("mlp.up.weight"), P("mlp.up.bias"), C, gated ? 2 * F : F);
    for (size_t t = 0; t < g->T; t++) /* rows of 2F close up to rows of F */
        for (size_t i = 0; i < F; i++)
            wide[t * F + i] =
                gated ? gpt64_gate(wide + t * 2 * F, i, F) : gpt64_gelu(g, wide[t * F + i]);
    gpt64_linear(g, out, wide, P("mlp.down.weight"), P("mlp.down.bias"), F, C);
#undef P
    gpt64_add(g, x, out);
}

/* Sum of losses over targets >= 0; logits (T, V) too when wanted. */
static inline double gpt64_loss(const struct settings *s, const struct table *t, const double *p,
                                const struct batch *b, double *logits)
{
    struct gpt64 g = {
        s, t, p, (size_t)s->model_width, table_mlp(s), (size_t)s->model_heads, 0, b->tokens_count};
    g.KVH = s->model_kv_heads ? (size_t)s->model_kv_heads : g.NH;
    size_t V = (size_t)s->model_vocab, wide_max = 2 * g.F > 3 * g.C ? 2 * g.F : 3 * g.C;
    double *x = calloc(g.T * g.C, 8), *h = calloc(g.T * g.C, 8), *out = calloc(g.T * g.C, 8);
    double *wide = calloc(g.T * wide_max, 8), *l = calloc(g.T * V, 8), loss = 0;
    const double *wte = gpt64_find(&g, -1, "wte.weight"), *wpe = gpt64_find(&g, -1, "wpe.weight");
    const double *head = s->model_tied ? wte : gpt64_find(&g, -1, "head.weight");
    for (size_t i = 0; i < g.T; i++)
        for (size_t c = 0; c < g.C; c++)
            x[i * g.C + c] =
                wte[(size_t)b->tokens[i] * g.C + c] + (s->model_positions == MODEL_POSITIONS_LEARNED
                                                           ? wpe[(size_t)b->positions[i] * g.C + c]
                                                           : 0);
    for (int i = 0; i < s->model_layers; i++)
        gpt64_layer(&g, i, x, h, wide, out, b);
    gpt64_norm(&g, h, x, gpt64_find(&g, -1, "norm.weight"), gpt64_find(&g, -1, "norm.bias"));
    gpt64_linear(&g, l, h, head, NULL, g.C, V);
    for (size_t i = 0; i < g.T; i++) {
        double sum = 0;
        for (size_t v = 0; v < V; v++)
            sum += exp(l[i * V + v]);
        if (b->targets[i] >= 0)
            loss += log(sum) - l[i * V + (size_t)b->targets[i]];
    }
    if (logits)
        memcpy(logits, l, g.T * V * sizeof *l);
    free(x), free(h), free(out), free(wide), free(l);
    return loss;
}

#endif
