/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cuda/fake_cudnn.h"
#include "tests/cuda/fake_cuda.h"
#include "kernels/cuda/cudnn.h"
#include "kernels/base/bf16.h"
#include <math.h>
#include <stdlib.h>

struct fake_cudnn fake_cudnn;

struct cudnn {
    int unused;
};
struct cudnn_plan {
    struct cudnn_shape s;
};

enum err cudnn_open(struct cudnn **l)
{
    *l = fake_cudnn.missing ? NULL : calloc(1, sizeof **l);
    return *l ? ERR_OK : err_set(ERR_UNSUPPORTED, "no cuDNN: none at all");
}

void cudnn_close(struct cudnn *l)
{
    free(l);
}

const char *cudnn_version(const struct cudnn *l)
{
    (void)l;
    return "0.0.0";
}

enum err cudnn_plan_make(struct cudnn_plan **p, struct cudnn *l, const struct cudnn_shape *s,
                         const char *gpu)
{
    (void)l, (void)gpu;
    *p = NULL;
    if (fake_cudnn.refuses)
        return err_set(ERR_UNSUPPORTED, "no attention for this shape");
    *p = calloc(1, sizeof **p);
    if (!*p)
        return err_set(ERR_MEMORY, "no memory");
    (*p)->s = *s;
    fake_cudnn.plans++;
    return ERR_OK;
}

void cudnn_plan_close(struct cudnn_plan *p)
{
    free(p);
}

size_t cudnn_plan_bytes(const struct cudnn_plan *p)
{
    (void)p;
    return fake_cudnn.bytes;
}

const char *cudnn_plan_name(const struct cudnn_plan *p)
{
    (void)p;
    return "fake";
}

/* One sequence: where its tokens begin in each tensor, in elements, and how its statistics lie. */
struct part {
    const struct cudnn_shape *s;
    const struct cudnn_memory *m;
    size_t length, qkv, out, stats, stats_token, stats_head, row, C;
};

static double at(const void *x, size_t i)
{
    return (double)bf16_float(((const uint16_t *)x)[i]);
}

static void put(void *x, size_t i, double v)
{
    ((uint16_t *)x)[i] = bf16_round((float)v);
}

static double dot(const void *x, size_t i, const void *y, size_t j, size_t n)
{
    double sum = 0;
    for (size_t c = 0; c < n; c++)
        sum += at(x, i + c) * at(y, j + c);
    return sum;
}

/* Where head `head` of q (part 0), k (1), v (2) begins at a token. */
static size_t place(const struct part *p, size_t token, int which, size_t head)
{
    const struct cudnn_shape *s = p->s;
    size_t first = which == 0 ? 0 : s->NH + (which == 2 ? s->KVH : 0),
           h = which == 0 ? head : head / (s->NH / s->KVH);
    return p->qkv + token * p->row + (first + h) * s->HD;
}

static double statistic(const struct part *p, size_t token, size_t head)
{
    return (double)p->m->statistics[p->stats + token * p->stats_token + head * p->stats_head];
}

static void forward(const struct part *p, size_t head)
{
    const struct cudnn_shape *s = p->s;
    const struct cudnn_memory *m = p->m;
    for (size_t i = 0; i < p->length; i++) {
        size_t end = s->causal ? i + 1 : p->length, to = p->out + i * p->C + head * s->HD;
        double out[128] = {0}, sum = 0;
        for (size_t j = 0; j < end; j++) {
            double e = exp((double)m->scale *
                           dot(m->qkv, place(p, i, 0, head), m->qkv, place(p, j, 1, head), s->HD));
            sum += e;
            for (size_t c = 0; c < s->HD; c++)
                out[c] += e * at(m->qkv, place(p, j, 2, head) + c);
        }
        for (size_t c = 0; c < s->HD; c++)
            put(m->out, to + c, out[c] / sum);
        m->statistics[p->stats + i * p->stats_token + head * p->stats_head] = (float)log(sum);
    }
}

static double *sums; /* gradients of q, k, v in float64, laid out as qkv */

static void backward(const struct part *p, size_t head)
{
    const struct cudnn_shape *s = p->s;
    const struct cudnn_memory *m = p->m;
    for (size_t i = 0; i < p->length; i++) {
        size_t o = p->out + i * p->C + head * s->HD, q = place(p, i, 0, head);
        double lse = statistic(p, i, head), both = dot(m->dout, o, m->out, o, s->HD);
        for (size_t j = 0; j < (s->causal ? i + 1 : p->length); j++) {
            size_t k = place(p, j, 1, head), v = place(p, j, 2, head);
            double e = exp((double)m->scale * dot(m->qkv, q, m->qkv, k, s->HD) - lse);
            double ds = e * (dot(m->dout, o, m->qkv, v, s->HD) - both) * (double)m->scale;
            for (size_t c = 0; c < s->HD; c++) {
                sums[q + c] += ds * at(m->qkv, k + c);
                sums[k + c] += ds * at(m->qkv, q + c);
                sums[v + c] += e * at(m->dout, o + c);
            }
        }
    }
}

static struct part part_of(const struct cudnn_shape *s, const struct cudnn_memory *m, size_t i)
{
    struct part p = {s, m, s->S, 0, 0, 0, 1, s->S, (s->NH + 2 * s->KVH) * s->HD, s->NH * s->HD};
    if (s->ragged) {
        const int32_t *from = m->offsets + i;
        p.length = (size_t)m->lengths[i];
        p.qkv = (size_t)from[0];
        p.out = (size_t)from[s->batch + 1];
        p.stats = (size_t)from[2 * (s->batch + 1)];
        p.stats_token = s->NH;
        p.stats_head = 1;
        ASSERT(p.length <= s->S && from[1] - from[0] == (int32_t)(p.length * p.row));
    } else {
        p.qkv = i * s->S * p.row;
        p.out = i * s->S * p.C;
        p.stats = i * s->S * s->NH;
    }
    return p;
}

/* Tokens that there are: ragged ones are rounded up in s->T. */
static size_t tokens(const struct cudnn_shape *s, const struct cudnn_memory *m)
{
    return s->ragged ? (size_t)m->offsets[2 * (s->batch + 1) + s->batch] / s->NH : s->T;
}

static void spoil(const struct cudnn_shape *s, const struct cudnn_memory *m)
{
    void *x = s->backward ? m->dqkv : m->out;
    if (fake_cudnn.wrong)
        put(x, 5, at(x, 5) + 1);
    if (fake_cudnn.naught)
        put(x, 5, (double)NAN);
    if (fake_cudnn.restless && s->backward)
        put(x, 5, at(x, 5) + 0.001 * (fake_cudnn.runs % 5));
}

struct call {
    struct cudnn_shape s;
    struct cudnn_memory m;
};

static void run(void *self)
{
    const struct call *call = self;
    const struct cudnn_shape *s = &call->s;
    size_t T = tokens(s, &call->m), n = T * (s->NH + 2 * s->KVH) * s->HD;
    sums = calloc(n + 1, sizeof *sums);
    ASSERT(sums && s->T >= T);
    for (size_t i = 0; i < s->batch; i++) {
        struct part p = part_of(s, &call->m, i);
        for (size_t head = 0; head < s->NH; head++)
            (s->backward ? backward : forward)(&p, head);
    }
    for (size_t i = 0; s->backward && i < n; i++)
        put(call->m.dqkv, i, sums[i]);
    free(sums);
    fake_cudnn.runs++;
    spoil(s, &call->m);
}

enum err cudnn_run(const struct cudnn_plan *plan, void *stream, const struct cudnn_memory *m)
{
    const struct call call = {plan->s, *m};
    fake_enqueue(stream, run, &call, sizeof call, fake_cudnn.us);
    return ERR_OK;
}
