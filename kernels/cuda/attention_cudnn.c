/* SPDX-License-Identifier: Apache-2.0 */
/* The ops attention_fwd and attention_bwd: our own kernels or cuDNN's, as device.attention says and
 * choice.h records. `auto` measures both at the first use of a shape, on its data, and keeps the
 * faster of those that repeat bit for bit: cuDNN's forward does, its quick backward does not, so
 * there `auto` tries the backward that stores the gradient of the scores. `cudnn` takes the quick
 * one.
 *
 * Forward and backward choose apart: the log-sum-exp between them is always ours (NH, T), which
 * costs one pass over T values per head in addition to a cuDNN kernel.
 *
 * In CUDA graphs: the first run of a sequence is op by op, so plans are made and decisions taken
 * there; cuDNN's launches are recorded like ours.
 */
#include "kernels/cuda/choice.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/cudnn.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLANS_MAX = 64, ALIGN = 256, DENSE_UNIT = 128, COMPARE_MAX = 256 };
enum mode { MODE_OWN, MODE_AUTO, MODE_CUDNN };

struct plan {
    struct cudnn_shape shape;
    struct cudnn_plan *plan; /* NULL: the library has none */
};
struct attention {
    enum mode mode;
    struct cudnn *library;
    struct plan plans[PLANS_MAX];
    size_t count;
};

/* ---- open ---- */
static enum err mode_of(enum mode *mode, const char *name)
{
    *mode = MODE_AUTO;
    if (name && !strcmp(name, "own"))
        *mode = MODE_OWN;
    else if (name && !strcmp(name, "cudnn"))
        *mode = MODE_CUDNN;
    else if (name && strcmp(name, "auto"))
        return err_set(ERR_CONFIG, "attention '%s' is none of auto, own, cudnn", name);
    return ERR_OK;
}

static enum err library_open(struct cuda *c, struct attention *t)
{
    if (t->mode == MODE_CUDNN && c->dev.model_type != DTYPE_BF16)
        return err_set(ERR_UNSUPPORTED,
                       "device.attention = cudnn needs device.dtype = bf16; use auto or own");
    if (t->mode == MODE_OWN || c->dev.model_type != DTYPE_BF16 || cudnn_open(&t->library) == ERR_OK)
        return ERR_OK;
    if (t->mode == MODE_AUTO) {
        cuda_log(false, "attention", "kept=own why=\"%s\"", err_message());
        return ERR_OK;
    }
    char why[256];
    snprintf(why, sizeof why, "%s", err_message());
    return err_set(ERR_UNSUPPORTED,
                   "device.attention = cudnn: %s; install cuDNN 9 or use auto or own", why);
}

enum err cuda_attention_open(struct cuda *c, const char *mode)
{
    struct attention *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(ERR_MEMORY, "no memory for the plans of attention");
    c->attention = t;
    TRY(mode_of(&t->mode, mode));
    TRY(library_open(c, t));
    if (t->mode == MODE_CUDNN)
        cuda_log(
            true, "attention",
            "kept=cudnn repeats=no why=\"its backward adds in the order in "
            "which blocks finish: a resumed run has other bits than one that was not stopped\"");
    if (t->mode == MODE_AUTO && c->dev.model_type == DTYPE_BF16)
        c->dev.autotune = DEV_TUNING_KEPT;
    return ERR_OK;
}

void cuda_attention_close(struct cuda *c)
{
    struct attention *t = c->attention;
    if (!t)
        return;
    for (size_t i = 0; i < t->count; i++)
        cudnn_plan_close(t->plans[i].plan);
    cudnn_close(t->library);
    free(t);
    c->attention = NULL;
}

/* "own", "auto:cuDNN-9.19.0", "cuDNN-9.19.0" */
void cuda_attention_version(const struct cuda *c, char *out, size_t size)
{
    const struct attention *t = c->attention;
    if (!t->library)
        snprintf(out, size, "own");
    else
        snprintf(out, size, "%scuDNN-%s", t->mode == MODE_AUTO ? "auto:" : "",
                 cudnn_version(t->library));
}

/* ---- shapes and plans ---- */
static size_t power(size_t least, size_t x)
{
    while (least < x)
        least *= 2;
    return least;
}

/* Whole and equal sequences are a dense tensor. Others are ragged: longest, number and tokens are
 * rounded up, so that every batch does not have a plan of its own. */
static struct cudnn_shape shape_of(const struct dev_attention *a, bool backward, bool repeatable)
{
    struct cudnn_shape s;
    int32_t longest = 0, shortest = INT32_MAX;
    memset(&s, 0, sizeof s); /* compared as bytes */
    for (size_t i = 0; i < a->sequences; i++) {
        int32_t length = a->cu_seqlens_host[i + 1] - a->cu_seqlens_host[i];
        longest = length > longest ? length : longest;
        shortest = length < shortest ? length : shortest;
    }
    s.ragged = longest != shortest || longest % DENSE_UNIT;
    s.batch = s.ragged ? power(1, a->sequences) : a->sequences;
    s.S = s.ragged ? power(DENSE_UNIT, (size_t)longest) : (size_t)longest;
    s.T = s.ragged ? power(1, a->T) : a->T;
    s.NH = a->NH, s.KVH = a->KVH, s.HD = a->HD;
    s.causal = a->causal;
    s.backward = backward;
    s.repeatable = repeatable;
    return s;
}

static struct choice_shape key_of(const struct cudnn_shape *s)
{
    return (struct choice_shape){s->HD, s->NH, s->KVH, s->S, s->causal, s->ragged};
}

/* NULL: the library has none, the sentence is err_message()'s the first time; or the table is full.
 */
static struct cudnn_plan *plan_of(struct cuda *c, const struct cudnn_shape *s)
{
    struct attention *t = c->attention;
    for (size_t i = 0; i < t->count; i++)
        if (!memcmp(&t->plans[i].shape, s, sizeof *s))
            return t->plans[i].plan;
    if (t->count == PLANS_MAX)
        return NULL;
    struct plan *p = &t->plans[t->count++];
    p->shape = *s;
    cuda_set_device(c);
    if (cudnn_plan_make(&p->plan, t->library, s, NULL) && t->mode == MODE_AUTO)
        cuda_log(false, "attention", "kept=own why=\"%s\"", err_message());
    return p->plan;
}

/* ---- one pass ---- */
/* A pass over one batch; forward: dqkv and dout are NULL. */
struct pass {
    struct cuda *c;
    const struct dev_attention *a;
    struct cudnn_shape shape;
    struct cudnn_plan *plan;
    void *out, *dqkv;
    const void *dout;
    float *lse; /* forward: written here */
};

static void run_own(void *self)
{
    const struct pass *p = self;
    struct dev_attention a = *p->a;
    a.lse = p->lse;
    if (p->dqkv)
        cuda_attention_own_bwd(p->c, p->dqkv, p->dout, p->out, &a);
    else
        cuda_attention_own_fwd(p->c, p->out, &a);
}

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static void run_cudnn(void *self)
{
    const struct pass *p = self;
    const struct cudnn_shape *s = &p->shape;
    size_t statistics = aligned(p->a->T * p->a->NH * sizeof(float)),
           lengths = aligned(s->batch * sizeof(int32_t)),
           offsets = aligned(3 * (s->batch + 1) * sizeof(int32_t)), S = s->ragged ? 0 : s->S;
    char *base = cuda_scratch(p->c, CUDA_SLOT_OP,
                              statistics + lengths + offsets + cudnn_plan_bytes(p->plan));
    if (!base)
        return;
    struct cudnn_memory m = {.qkv = p->a->qkv,
                             .dout = p->dout,
                             .out = p->out,
                             .dqkv = p->dqkv,
                             .statistics = (float *)(void *)base,
                             .lengths = (int32_t *)(void *)(base + statistics),
                             .offsets = (int32_t *)(void *)(base + statistics + lengths),
                             .workspace = base + statistics + lengths + offsets,
                             .scale = p->a->scale};
    if (s->ragged)
        cuda_attention_tables(p->c, (int32_t *)(uintptr_t)m.lengths,
                              (int32_t *)(uintptr_t)m.offsets, p->a, s->batch);
    if (s->backward)
        cuda_attention_statistics(p->c, m.statistics, p->lse, p->a, S, true);
    if (cudnn_run(p->plan, p->c->dev.stream, &m)) {
        cuda_fail(p->c, ERR_INTERNAL);
        return;
    }
    if (!s->backward)
        cuda_attention_statistics(p->c, p->lse, m.statistics, p->a, S, false);
}

/* ---- measuring ---- */
/* Largest difference over largest value of a part of (rows, stride). */
static double difference(struct cuda *c, const struct cuda_compare *a)
{
    float host[2 * COMPARE_MAX], most[2] = {0, 0};
    float *partial = cuda_scratch(c, CUDA_SLOT_OP, sizeof host);
    if (!partial)
        return INFINITY;
    int count = cuda_attention_difference(c, partial, a);
    ASSERT(count <= COMPARE_MAX);
    c->dev.ops->copy(&c->dev, host, partial, 2 * (size_t)count * sizeof *host);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < 2; k++)
            most[k] = fmaxf(most[k], host[2 * i + k]);
    return most[1] > 0 ? (double)most[0] / (double)most[1] : INFINITY; /* all zero: no test */
}

static double out_difference(struct cuda *c, const struct dev_attention *a, const void *x,
                             const void *y)
{
    size_t width = a->NH * a->HD;
    return difference(c, &(struct cuda_compare){x, y, DTYPE_BF16, a->T, width, 0, width});
}

/* Of dq, dk, dv the worst: their sizes differ. */
static double dqkv_difference(struct cuda *c, const struct dev_attention *a, const void *x,
                              const void *y)
{
    size_t q = a->NH * a->HD, k = a->KVH * a->HD, stride = q + 2 * k;
    const struct cuda_compare dq = {x, y, DTYPE_BF16, a->T, stride, 0, q},
                              dk = {x, y, DTYPE_BF16, a->T, stride, q, k},
                              dv = {x, y, DTYPE_BF16, a->T, stride, q + k, k};
    return fmax(difference(c, &dq), fmax(difference(c, &dk), difference(c, &dv)));
}

/* Runs both kernels and compares. The results of cuDNN are in scratch memory that attention does
 * not use. */
static void try_forward(struct pass ours, struct choice_trial *t)
{
    const struct dev_attention *a = ours.a;
    struct pass theirs = ours;
    size_t out = aligned(a->T * a->NH * a->HD * 2), lse = a->T * a->NH * sizeof(float);
    char *room = cuda_scratch(ours.c, CUDA_SLOT_LOGITS, out + lse);
    if (!room)
        return;
    theirs.out = room;
    theirs.lse = (float *)(void *)(room + out);
    t->own_ms = cuda_ms(ours.c, run_own, &ours);
    t->cudnn_ms = cuda_ms(ours.c, run_cudnn, &theirs);
    const struct cuda_compare lses = {ours.lse, theirs.lse, DTYPE_F32, 1, 0, 0, a->T * a->NH};
    t->difference =
        fmax(out_difference(ours.c, a, ours.out, theirs.out), difference(ours.c, &lses));
    t->repeats = true; /* no sums across blocks, so nothing to compare */
}

static void try_backward(struct pass ours, struct choice_trial *t)
{
    const struct dev_attention *a = ours.a;
    struct pass theirs = ours;
    theirs.dqkv = cuda_scratch(ours.c, CUDA_SLOT_LOGITS, a->T * (a->NH + 2 * a->KVH) * a->HD * 2);
    if (!theirs.dqkv)
        return;
    t->cudnn_ms = cuda_ms(ours.c, run_cudnn, &theirs);
    run_cudnn(
        &(struct pass){ours.c, a, ours.shape, ours.plan, ours.out, ours.dqkv, ours.dout, ours.lse});
    t->repeats = dqkv_difference(ours.c, a, ours.dqkv, theirs.dqkv) == 0;
    t->own_ms = cuda_ms(ours.c, run_own, &ours);
    t->difference = dqkv_difference(ours.c, a, ours.dqkv, theirs.dqkv);
}

/* Both are within 2^-7 (backward 2^-6) of the largest true value; a wrong result differs by the
 * order of 1. */
static enum choice measure(const struct pass *p)
{
    struct choice_trial t = {.difference = INFINITY, .bound = p->dqkv ? 0.04 : 0.02};
    if (p->dqkv)
        try_backward(*p, &t);
    else
        try_forward(*p, &t);
    enum choice kept = choice_of(&t);
    bool wrong = !(t.difference <= t.bound) || !t.repeats;
    cuda_log(wrong, "attention",
             "pass=%s head=%zu heads=%zu/%zu sequence=%zu causal=%d ragged=%d own_ms=%.3f "
             "cudnn_ms=%.3f apart=%.2g repeats=%d kept=%s %s%s",
             p->dqkv ? "backward" : "forward", p->shape.HD, p->shape.NH, p->shape.KVH, p->shape.S,
             p->shape.causal, p->shape.ragged, t.own_ms, t.cudnn_ms, t.difference, t.repeats,
             kept == CHOICE_CUDNN ? "cudnn" : "own", cudnn_plan_name(p->plan),
             wrong ? " why=\"cuDNN's results differ: not used\"" : "");
    return kept;
}

/* ---- the ops ---- */
static bool aligned16(const void *p)
{
    return ((uintptr_t)p & 15) == 0;
}

/* The configuration names cuDNN: another kernel must not replace it silently. */
static void refuse(struct cuda *c)
{
    char why[256];
    snprintf(why, sizeof why, "%s", err_message());
    cuda_fail(c, err_set(ERR_UNSUPPORTED, "device.attention = cudnn: %s; use auto or own", why));
}

/* The plan of cuDNN for this shape; NULL: use our kernel. */
static struct cudnn_plan *candidate(struct pass *p, const void *x, const void *y)
{
    const struct attention *t = p->c->attention;
    bool own = t->mode == MODE_OWN || !t->library || p->c->dev.failed;
    own |= p->a->window != 0; /* the library's graph here has no window */
    if (p->a->T * (p->a->NH + 2 * p->a->KVH) * p->a->HD > INT32_MAX)
        own = true; /* the library's offsets of sequences are 32 bits */
    if (own || !aligned16(p->a->qkv) || !aligned16(x) || !aligned16(y))
        return NULL;
    p->shape = shape_of(p->a, p->dqkv != NULL, p->dqkv && t->mode == MODE_AUTO);
    p->plan = plan_of(p->c, &p->shape);
    if (!p->plan && t->mode == MODE_CUDNN)
        refuse(p->c);
    if (p->plan && cudnn_plan_bytes(p->plan) > DEV_ATTENTION_CUDA && t->mode == MODE_AUTO)
        return NULL; /* more than the memory plan counts */
    return p->plan;
}

static enum choice decide(struct pass *p)
{
    struct cuda *c = p->c;
    if (c->attention->mode == MODE_CUDNN)
        return CHOICE_CUDNN;
    struct choice_shape key = key_of(&p->shape);
    enum choice was = choice_find(c->dev.chosen, &key, p->dqkv != NULL);
    if (was != CHOICE_NONE || c->graphs.capturing)
        return was;
    enum choice now = measure(p);
    return choice_keep(c->dev.chosen, sizeof c->dev.chosen, &key, p->dqkv != NULL, now)
               ? now
               : CHOICE_OWN; /* what cannot be recorded cannot be resumed */
}

static void run(struct pass *p, const void *x, const void *y)
{
    if (!p->a->T)
        return;
    bool failed = p->c->dev.failed != ERR_OK,
         cudnn = candidate(p, x, y) && decide(p) == CHOICE_CUDNN;
    if (!failed && p->c->dev.failed)
        return; /* refused, or measuring failed */
    if (cudnn)
        run_cudnn(p);
    else
        run_own(p);
}

void cuda_attention_fwd(struct dev *d, void *out, const struct dev_attention *a)
{
    run(&(struct pass){.c = cuda_of(d), .a = a, .out = out, .lse = a->lse}, out, out);
}

void cuda_attention_bwd(struct dev *d, void *dqkv, const void *dout, const void *out,
                        const struct dev_attention *a)
{
    struct pass p = {.c = cuda_of(d),
                     .a = a,
                     .out = (void *)(uintptr_t)out, /* read */
                     .dqkv = dqkv,
                     .dout = dout,
                     .lse = a->lse};
    run(&p, dqkv, dout);
}
