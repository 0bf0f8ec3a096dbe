/* SPDX-License-Identifier: Apache-2.0 */
/* Operations and bytes of a step, from the table of tensors. */
#include "inner/train/work.h"
#include <string.h>
#include "inner/optim/optim.h"

struct counts { /* of one step; e: bytes of the model type */
    double T, C, L, e, micros;
    double KV, F;           /* width of k and of v; hidden width of a gated MLP, else 0 */
    double R, E;            /* rows of the token head; width of the embeddings */
    double uses;            /* of the tensors of a layer: L where all layers share them */
    double norms;           /* channels of all norms */
    double seen;            /* tokens that a query sees at most, all layers together */
    bool causal, recompute; /* recompute: the backward computes each block but the last again */
};

static bool ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

static double uses_of(const struct counts *k, const struct tensor *x)
{
    return strncmp(x->name, "layers.", strlen("layers.")) ? 1 : k->uses;
}

/* Layers with a window: half of it to each side, and the token itself. */
static double seen_by_a_query(const struct settings *s, const struct work_step *w)
{
    double S = w->sequence > 0 ? w->sequence : (double)s->train_seq_len,
           near = (double)(s->model_sliding_window / 2 * 2 + 1), sum = 0;
    for (int64_t i = 0; i < s->model_layers; i++) {
        bool local = s->model_sliding_window &&
                     (!s->model_global_attn_every || i % s->model_global_attn_every);
        sum += local && near < S ? near : S;
    }
    return sum;
}

static struct counts count(const struct settings *s, const struct table *t,
                           const struct work_step *w)
{
    struct counts k = {.T = (double)w->tokens,
                       .C = (double)s->model_d_model,
                       .L = (double)s->model_layers,
                       .e = (double)dtype_size(w->type),
                       .micros = (double)w->tokens / (double)w->micro,
                       .causal = s->model_causal,
                       .recompute = s->train_activation_checkpointing == TRAIN_CHECKPOINTING_BLOCK};
    k.KV = k.C / (double)s->model_heads * (double)table_kv_heads(s);
    k.F = table_gated(s) ? (double)table_mlp(s) : 0;
    k.E = (double)table_embed(s);
    k.R = s->model_head == MODEL_HEAD_MLM && w->targets ? (double)w->targets : k.T;
    k.uses = s->model_share_layers ? k.L : 1;
    for (size_t i = 0; i < t->count; i++)
        if (strstr(t->tensors[i].name, "norm") && ends(t->tensors[i].name, ".weight"))
            k.norms += (double)t->tensors[i].shape[0] * uses_of(&k, &t->tensors[i]);
    k.seen = seen_by_a_query(s, w);
    return k;
}

/* GEMMs y = x w^T, with `backward` dx = dy w and dw += dy^T x in f32, of each tensor whose name
 * contains `part`. */
static struct work gemms(const struct counts *k, const struct table *t, const char *part,
                         bool backward)
{
    struct work sum = {0, 0};
    double times = k->recompute && !backward ? 2 - 1 / k->L : 1;
    for (size_t i = 0; i < t->count; i++) {
        const struct tensor *x = &t->tensors[i];
        if (!strstr(x->name, part) || !ends(x->name, ".weight"))
            continue;
        double N = (double)x->shape[0], K = (double)x->shape[1], weight = N * K * k->micros;
        double T = strncmp(x->name, "mlm.", 4) ? k->T : k->R, uses = uses_of(k, x) * times;
        sum.flop += uses * (backward ? 4 : 2) * T * N * K;
        sum.bytes += uses * (T * (N + K) * k->e + weight * k->e);
        if (backward)
            sum.bytes += uses * (T * K * k->e + 8 * weight);
    }
    return sum;
}

/* Two GEMMs of (S, HD) and (S, S) for each head forward, five backward; half of each when causal.
 */
static struct work attention(const struct counts *k, bool backward)
{
    double times = k->recompute && !backward ? 2 - 1 / k->L : 1,
           forward = (k->causal ? 2 : 4) * k->T * k->seen * k->C;
    return (struct work){times * forward * (backward ? 2.5 : 1),
                         times * k->T * (k->C + k->KV) * k->L * k->e * (backward ? 4 : 2)};
}

/* Rope: q and k in and out. A gate: gate, up in, act out; backward dact, gate, up in, both
 * gradients out. */
static struct work with_passes(struct work w, const struct counts *k, double values, bool backward)
{
    double times = k->recompute && !backward ? 2 - 1 / k->L : 1;
    w.bytes += times * values * k->T * k->L * k->e;
    return w;
}

/* Forward: x, residual in, sum, y out; backward: dy, dsum, sum in, dx out. */
static struct work norms(const struct counts *k, bool backward)
{
    double times = k->recompute && !backward ? 2 - 1 / k->L : 1;
    return (struct work){0, times * k->norms * 4 * k->T * k->e};
}

/* The dense layer of the mlm head, forward and backward, and the logits. Each logit is written and
 * read by the GEMM and the softmax, its gradient written once and read by two GEMMs. */
static struct work classifier(const struct counts *k, const struct settings *s,
                              const struct table *t)
{
    double logits = k->R * (double)table_vocab_padded(s);
    struct counts once = *k;
    once.recompute = false;
    struct work fwd = gemms(&once, t, "mlm.dense", false), bwd = gemms(&once, t, "mlm.dense", true);
    return (struct work){6 * logits * k->E + fwd.flop + bwd.flop,
                         logits * 5 * k->e + fwd.bytes + bwd.bytes};
}

/* The tables: rows in, sum out; backward dx in, and a row of each table in and out. Then ALBERT's
 * matrix. */
static struct work embedding(const struct counts *k, const struct table *t, bool backward)
{
    struct counts once = *k;
    once.recompute = false;
    struct work w = gemms(&once, t, "embed.proj", backward);
    w.bytes += backward ? k->T * k->E * (k->e + 16) : 3 * k->T * k->E * k->e;
    return w;
}

/* The gradient norm reads g; the optimizer's step is its method's. */
static struct work update(const struct settings *s, const struct table *t,
                          const struct work_step *w)
{
    double copy = w->type == DTYPE_BF16 ? 2 : 0, each = 4 + copy + optim_method_of(s)->bytes;
    double flop = optim_method_of(s)->flop ? optim_method_of(s)->flop(s, t) : 0;
    return (struct work){flop * w->update_share, each * (double)t->elements * w->update_share};
}

struct work work_of(const struct settings *s, const struct table *t, const struct work_step *w,
                    enum profile_class c)
{
    const struct counts k = count(s, t, w);
    switch (c) {
    case PROFILE_UPLOAD:
        return (struct work){0, 4 * (double)t->elements};
    case PROFILE_EMBED:
    case PROFILE_EMBED_BWD:
        return embedding(&k, t, c == PROFILE_EMBED_BWD);
    case PROFILE_NORM:
    case PROFILE_NORM_BWD:
        return norms(&k, c == PROFILE_NORM_BWD);
    case PROFILE_QKV:
    case PROFILE_QKV_BWD:
        return with_passes(gemms(&k, t, "attn.qkv", c == PROFILE_QKV_BWD), &k,
                           s->model_positions == MODEL_POSITIONS_ROPE ? 2 * (k.C + k.KV) : 0,
                           c == PROFILE_QKV_BWD);
    case PROFILE_ATTENTION:
    case PROFILE_ATTENTION_BWD:
        return attention(&k, c == PROFILE_ATTENTION_BWD);
    case PROFILE_PROJ:
    case PROFILE_PROJ_BWD:
        return gemms(&k, t, "attn.proj", c == PROFILE_PROJ_BWD);
    case PROFILE_MLP:
    case PROFILE_MLP_BWD:
        return with_passes(gemms(&k, t, "mlp.", c == PROFILE_MLP_BWD), &k,
                           (c == PROFILE_MLP_BWD ? 5 : 3) * k.F, c == PROFILE_MLP_BWD);
    case PROFILE_CLASSIFIER:
        return classifier(&k, s, t);
    case PROFILE_UPDATE:
        return update(s, t, w);
    case PROFILE_GAP:
    case PROFILE_REDUCE:
    case PROFILE_COUNT:
        break;
    }
    return (struct work){0, 0};
}

struct work_peak work_peak_h200(void)
{
    return (struct work_peak){989e12, 4.3e12};
}

double work_seconds(const struct work *w, const struct work_peak *p)
{
    double compute = p->flop > 0 ? w->flop / p->flop : 0,
           memory = p->bytes > 0 ? w->bytes / p->bytes : 0;
    return compute > memory ? compute : memory;
}
