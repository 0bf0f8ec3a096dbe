/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/plan/site_model.h"
#include <math.h>
#include <string.h>
#include "inner/coll/reduce.h"
#include "inner/optim/compress.h"
#include "kernels/base/mutant.h"

/* ---- computation ---- */

struct work site_model_work(const struct settings *s, const struct table *t,
                            const struct work_step *w, enum profile_class c)
{
    if (c == PROFILE_GAP)
        return (struct work){0, 4 * sizeof(int32_t) * (double)w->tokens};
    return work_of(s, t, w, c);
}

static double utilisation_at(const struct site_machine *m, const struct site_point *p)
{
    const struct work w = {p->flop, p->bytes};
    return p->seconds > 0 ? work_seconds(&w, &m->peak) / p->seconds : 0;
}

double site_model_utilisation(const struct site_machine *m, enum profile_class c, double width)
{
    if (WITHOUT(CLASS_UTILISATION))
        return 1;
    double below = 0, above = INFINITY, low = 0, high = 0; /* nearest widths, their utilisation */
    for (unsigned i = 0; i < m->count; i++) {
        const struct site_point *p = &m->points[i];
        double u = utilisation_at(m, p);
        if (p->class != c || !(u > 0))
            continue;
        if (p->width <= width && p->width >= below) {
            below = p->width;
            low = u;
        }
        if (p->width >= width && p->width <= above) {
            above = p->width;
            high = u;
        }
    }
    if (low == 0 || high == 0)
        return low > 0 ? low : high > 0 ? high : m->utilisation;
    if (above <= below)
        return low;
    return exp(log(low) + log(width / below) / log(above / below) * log(high / low));
}

static double class_s(const struct settings *s, const struct table *t, const struct work_step *w,
                      const struct site_machine *m, enum profile_class c)
{
    struct work work = site_model_work(s, t, w, c);
    return work_seconds(&work, &m->peak) / site_model_utilisation(m, c, (double)s->model_d_model);
}

static bool in_backward(enum profile_class c)
{
    return c >= PROFILE_CLASSIFIER && c <= PROFILE_EMBED_BWD;
}

static struct work_step rank_step(const struct settings *s, const struct site_machine *m, int ranks)
{
    size_t micro = train_micro_batch_tokens(s, ranks);
    return (struct work_step){.tokens = micro,
                              .micro = micro,
                              .type = m->type,
                              .update_share = s->train_zero_stage ? 1.0 / ranks : 1};
}

struct site_compute site_model_compute(const struct settings *s, const struct table *t,
                                       const struct site_machine *m, int ranks)
{
    const struct work_step w = rank_step(s, m, ranks);
    struct site_compute r = {0};
    struct settings plain = *s;
    plain.train_activation_checkpointing = TRAIN_CHECKPOINTING_NONE;
    for (enum profile_class c = 0; c < PROFILE_REDUCE; c++) {
        double seconds = c == PROFILE_UPLOAD ? 0 : class_s(s, t, &w, m, c);
        r.all_s += seconds;
        r.head_s += c == PROFILE_CLASSIFIER ? seconds : 0;
        r.embed_s += c == PROFILE_EMBED_BWD ? seconds : 0;
        r.layers_s += in_backward(c) ? seconds : 0;
        r.flop += work_of(&plain, t, &w, c).flop;
    }
    r.layers_s -= r.head_s + r.embed_s;
    return r;
}

/* ---- sums under the backward pass ---- */

struct queue { /* of collectives, one at a time */
    double now_s, left_s, sums_s, bytes;
};

static void queue_advance(struct queue *q, double to_s, double speed)
{
    q->left_s = fmax(0, q->left_s - speed * (to_s - q->now_s));
    q->now_s = to_s;
}

/* When the gradients of tensor i are final, from the begin of the backward pass. */
static double final_s(const struct settings *s, const struct site_compute *b,
                      const struct tensor *x)
{
    double L = (double)s->model_layers;
    if (x->layer < 0 || (s->model_share_layers && x->layer < L))
        return b->head_s + b->layers_s + b->embed_s;
    return b->head_s + b->layers_s * (L - fmin(L, x->layer)) / L;
}

/* Whether a sum begins when tensor i is final: of units with its first, else of buckets. */
static bool begins(const struct settings *s, const struct table *t, size_t i, size_t begun)
{
    double bucket = s->train_bucket_mb * (1 << 20) / sizeof(float);
    if (i == 0)
        return true;
    if (s->train_zero_stage)
        return t->tensors[i - 1].layer != t->tensors[i].layer;
    return bucket > 0 && (double)(begun - t->tensors[i].offset) >= bucket;
}

/* As grad_reduce_ready() of inner/coll/reduce.c begins them. */
static void queue_sums(struct queue *q, const struct settings *s, const struct table *t,
                       const struct site_machine *m, const struct site_compute *b, int ranks)
{
    enum ranks_op op = s->train_zero_stage ? RANKS_REDUCE_SCATTER : RANKS_ALL_REDUCE;
    double size = (double)dtype_size(reducer_of(s)->type);
    size_t begun = t->elements;
    for (size_t i = t->count; i-- > 0;) {
        const struct tensor *x = &t->tensors[i];
        queue_advance(q, fmax(q->now_s, final_s(s, b, x)), m->overlap);
        if (!begins(s, t, i, begun))
            continue;
        double bytes = size * (double)(begun - (i ? x->offset : 0));
        double seconds = ranks_link_seconds(&m->link, op, ranks, bytes);
        q->left_s += seconds;
        q->sums_s += seconds;
        q->bytes += bytes;
        begun = x->offset;
    }
}

/* ---- compressed sums ---- */

/* Share of the run's steps for which this holds. */
static double share_of(const struct settings *s, bool (*holds)(const struct settings *, int64_t))
{
    enum { SAMPLES = 1000 };
    int64_t steps = s->train_steps, each = steps > SAMPLES ? steps / SAMPLES : 1, n = 0, held = 0;
    for (int64_t i = 0; i < steps; i += each, n++)
        held += holds(s, i);
    return n ? (double)held / (double)n : 1;
}

/* One bit of each value to its owner and from there to all (inner/coll/squeeze.h), and some seven
 * passes over the slab in f32. */
static double compressed_s(const struct table *t, const struct site_machine *m, int ranks)
{
    enum { PASSES = 7 };
    double bits = (double)t->elements / 8, slab = sizeof(float) * (double)t->elements;
    double passes = m->peak.bytes > 0 ? PASSES * slab / m->peak.bytes : 0;
    return 2 * ranks_link_seconds(&m->link, RANKS_ALL_GATHER, ranks, bits) + passes;
}

/* ---- a step ---- */

/* Seconds of a step in which parameters are collected and nothing else runs. From stage 3 on
 * each micro-batch collects them in its forward, and again in its backward, next to its
 * computation. */
static double collected_s(const struct settings *s, const struct table *t,
                          const struct site_machine *m, const struct site_step *x, int ranks)
{
    double once = ranks_link_seconds(&m->link, RANKS_ALL_GATHER, ranks,
                                     (double)dtype_size(m->type) * (double)t->elements);
    if (s->train_zero_stage < 3)
        return once;
    return x->accumulate * fmax(0, 2 * once - m->overlap * x->micro_s);
}

void site_model_step_of(struct site_step *out, const struct site_compute *b,
                        const struct settings *s, const struct table *t,
                        const struct site_machine *m, int ranks)
{
    const struct work_step w = rank_step(s, m, ranks);
    struct queue q = {0};
    double of_rank = (double)s->train_batch_tokens / ranks;
    *out = (struct site_step){.micro_s = b->all_s,
                              .accumulate = (int)ceil(of_rank / (double)w.micro),
                              .memory = train_plan(s, t, m->type, ranks)};
    out->update_s = class_s(s, t, &w, m, PROFILE_UPDATE) + class_s(s, t, &w, m, PROFILE_UPLOAD);
    if (ranks > 1) {
        queue_sums(&q, s, t, m, b, ranks);
        out->update_s += ranks_link_seconds(&m->link, RANKS_ALL_REDUCE, ranks, RANKS_LINK_FIRST);
    }
    if (ranks > 1 && s->train_zero_stage)
        out->gather_s = collected_s(s, t, m, out, ranks);
    double full = ranks > 1 ? share_of(s, compress_sums) : 1, /* means of the run's steps */
        compressed = 1 - full - (ranks > 1 ? share_of(s, compress_rests) : 0);
    if (full < 1)
        out->gather_s += compressed * compressed_s(t, m, ranks);
    if (s->train_zero_stage > 1) { /* in each micro-batch */
        q.sums_s *= out->accumulate;
        q.bytes *= out->accumulate;
        q.left_s *= out->accumulate;
    }
    out->sums_s = full * q.sums_s;
    out->sum_bytes = full * q.bytes + compressed * (double)t->elements / 8;
    out->exposed_s = WITHOUT(EXPOSED_SUMS) ? 0 : full * q.left_s;
    out->step_s =
        of_rank / (double)w.micro * b->all_s + out->update_s + out->exposed_s + out->gather_s;
    out->tokens_s = (double)s->train_batch_tokens / out->step_s;
    out->mfu =
        m->peak.flop > 0 ? b->flop / (double)w.micro * out->tokens_s / (ranks * m->peak.flop) : 0;
    out->fits = WITHOUT(MEMORY_LIMIT) || m->memory_bytes <= 0 ||
                (double)out->memory.total <= SITE_MODEL_MEMORY * m->memory_bytes;
}

void site_model_step(struct site_step *out, const struct settings *s, const struct table *t,
                     const struct site_machine *m, int ranks)
{
    const struct site_compute b = site_model_compute(s, t, m, ranks);
    site_model_step_of(out, &b, s, t, m, ranks);
}

int site_model_accumulate(const struct site_step *s)
{
    double exposed = s->exposed_s + s->gather_s,
           micros = (exposed / SITE_MODEL_EXPOSED - exposed - s->update_s) / s->micro_s;
    return micros <= 1 ? 1 : micros > 1e6 ? 1000000 : (int)ceil(micros - 1e-9);
}

double site_model_overlap(const struct settings *s, const struct table *t,
                          const struct site_machine *m, int ranks, double exposed_s)
{
    enum { HALVINGS = 30 };
    struct site_machine tried = *m;
    struct site_step step;
    double low = 0, high = 1; /* the exposed time falls with the overlap */
    for (int i = 0; i < HALVINGS; i++) {
        tried.overlap = (low + high) / 2;
        site_model_step(&step, s, t, &tried, ranks);
        if (step.exposed_s > exposed_s)
            low = tried.overlap;
        else
            high = tried.overlap;
    }
    return (low + high) / 2;
}
