/* Operations and bytes of a step, from the table of tensors. */
#include "inner/train/work.h"
#include <string.h>
#include "inner/optim/optim.h"

struct counts { /* of one step; e: bytes of the model type */
    double T, C, S, L, e, micros;
    double KV, F; /* width of k and of v; hidden width of a gated MLP, else 0 */
    double norms;
    bool causal, recompute; /* recompute: the backward computes each block but the last again */
};

static bool ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

static struct counts count(const struct settings *s, const struct table *t,
                           const struct work_step *w)
{
    struct counts k = {.T = (double)w->tokens,
                       .C = (double)s->model_width,
                       .S = (double)s->train_sequence,
                       .L = (double)s->model_layers,
                       .e = (double)dtype_size(w->type),
                       .micros = (double)w->tokens / (double)w->micro,
                       .causal = s->model_causal,
                       .recompute = s->train_activation_checkpointing == TRAIN_CHECKPOINTING_BLOCK};
    k.KV = k.C / (double)s->model_heads * (double)table_kv_heads(s);
    k.F = table_gated(s) ? (double)table_mlp(s) : 0;
    for (size_t i = 0; i < t->count; i++)
        k.norms += strstr(t->tensors[i].name, "norm") && ends(t->tensors[i].name, ".weight");
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
        sum.flop += times * (backward ? 4 : 2) * k->T * N * K;
        sum.bytes += times * (k->T * (N + K) * k->e + weight * k->e);
        if (backward)
            sum.bytes += k->T * K * k->e + 8 * weight;
    }
    return sum;
}

/* Two GEMMs of (S, HD) and (S, S) for each head forward, five backward; half of each when causal.
 */
static struct work attention(const struct counts *k, bool backward)
{
    double times = k->recompute && !backward ? 2 - 1 / k->L : 1,
           forward = (k->causal ? 2 : 4) * k->T * k->S * k->C * k->L;
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
    return (struct work){0, times * k->norms * 4 * k->T * k->C * k->e};
}

/* Each logit is written and read as f32 by the GEMM and the softmax, its gradient written once
 * and read by two GEMMs. */
static struct work classifier(const struct counts *k, const struct settings *s)
{
    double logits = k->T * (double)table_vocab_padded(s);
    return (struct work){6 * logits * k->C, logits * (4 + 4 + 3 * k->e)};
}

/* The gradient norm reads g; the optimizer's step moves the bytes of its method. */
static struct work update(const struct settings *s, const struct table *t,
                          const struct work_step *w)
{
    double copy = w->type == DTYPE_BF16 ? 2 : 0, each = 4 + copy + optim_method_of(s)->bytes;
    return (struct work){0, each * (double)t->elements * w->update_share};
}

struct work work_of(const struct settings *s, const struct table *t, const struct work_step *w,
                    enum profile_class c)
{
    const struct counts k = count(s, t, w);
    switch (c) {
    case PROFILE_UPLOAD:
        return (struct work){0, 4 * (double)t->elements};
    case PROFILE_EMBED:
        return (struct work){0, 3 * k.T * k.C * k.e};
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
        return classifier(&k, s);
    case PROFILE_EMBED_BWD: /* dx in, and a row of each table in and out */
        return (struct work){0, k.T * k.C * (k.e + 16)};
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
