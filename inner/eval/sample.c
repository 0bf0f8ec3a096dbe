/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/eval/sample.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/rng.h"

enum { STEP = 64 }; /* the batch is filled up to a multiple of this many tokens */

static size_t filled(size_t count)
{
    return (count + STEP - 1) / STEP * STEP;
}

size_t sample_tokens(const struct settings *s)
{
    return filled((size_t)s->model_max_seq_len);
}

enum err sample_open(struct sample *x, struct model *m, const struct settings *s,
                     const struct sample_options *o, struct arena *perm)
{
    *x = (struct sample){.model = m,
                         .o = *o,
                         .context = o->context ? o->context : (size_t)s->model_max_seq_len,
                         .vocab = (size_t)s->model_vocab_size};
    ASSERT(model_tokens_max(m) >= filled(x->context));
    TRY_ALLOC(x->logits = arena_array(perm, x->vocab, sizeof *x->logits));
    TRY_ALLOC(x->order = arena_array(perm, x->vocab, sizeof *x->order));
    return batch_open(&x->batch, perm, filled(x->context), filled(x->context) / x->context + 2);
}

/* The filling is cut so that none of its sequences is longer than the context. */
static void fill(struct sample *x, const int32_t *ids, size_t count)
{
    struct batch *b = &x->batch;
    b->tokens_count = filled(count);
    b->sequences = 0;
    b->cu_seqlens[0] = 0;
    memset(b->tokens, 0, b->tokens_count * sizeof *b->tokens);
    memset(b->types, 0, b->tokens_count * sizeof *b->types);
    memcpy(b->tokens, ids, count * sizeof *ids);
    for (size_t at = 0, length = count; at < b->tokens_count;
         at += length, length = b->tokens_count - at) {
        length = length < x->context ? length : x->context;
        for (size_t i = 0; i < length; i++) {
            b->positions[at + i] = (int32_t)i;
            b->targets[at + i] = -1;
        }
        b->cu_seqlens[++b->sequences] = (int32_t)(at + length);
    }
}

/* Larger logit first, smaller id first among equals: a total order, so the result does not depend
 * on the sort. */
static int by_logit(const void *a, const void *b, void *logits)
{
    int64_t i = *(const int64_t *)a, j = *(const int64_t *)b;
    const float *l = logits;
    if (l[i] > l[j] || l[i] < l[j])
        return l[i] > l[j] ? -1 : 1;
    return i < j ? -1 : 1;
}

static void sort_ids(struct sample *x)
{
    for (size_t i = 0; i < x->vocab; i++)
        x->order[i] = (int64_t)i;
    qsort_r(x->order, x->vocab, sizeof *x->order, by_logit, x->logits);
}

int32_t sample_likely(struct sample *x, size_t k)
{
    ASSERT(k < x->vocab);
    sort_ids(x);
    return (int32_t)x->order[k];
}

int32_t sample_draw(struct sample *x, uint64_t n)
{
    size_t k = x->o.top_k && (size_t)x->o.top_k < x->vocab ? (size_t)x->o.top_k : x->vocab;
    sort_ids(x);
    if (x->o.temperature <= 0)
        return (int32_t)x->order[0];
    double best = (double)x->logits[x->order[0]], sum = 0, at;
    for (size_t i = 0; i < k; i++)
        sum += exp(((double)x->logits[x->order[i]] - best) / x->o.temperature);
    at = sum * rng_unit(x->o.seed, RNG_SAMPLE, n);
    for (size_t i = 0; i + 1 < k; i++) {
        at -= exp(((double)x->logits[x->order[i]] - best) / x->o.temperature);
        if (at < 0)
            return (int32_t)x->order[i];
    }
    return (int32_t)x->order[k - 1];
}

enum err sample_next(struct sample *x, const int32_t *ids, size_t count, uint64_t n, int32_t *id)
{
    size_t skip = count > x->context ? count - x->context : 0;
    fill(x, ids + skip, count - skip);
    TRY(model_logits(x->model, &x->batch, 0, x->logits));
    *id = sample_draw(x, n);
    return ERR_OK;
}

enum err sample_read(struct sample *x, const int32_t *ids, const int32_t *types, size_t count)
{
    if (count > x->context)
        return err_set(ERR_CONFIG, "%zu ids; model.max_seq_len = %zu", count, x->context);
    fill(x, ids, count);
    if (types)
        memcpy(x->batch.types, types, count * sizeof *types);
    return ERR_OK;
}

enum err sample_logits_at(struct sample *x, size_t position)
{
    return model_logits_at(x->model, &x->batch, position, x->logits);
}

enum err sample_class_logits(struct sample *x, size_t task, float *logits)
{
    return model_class_logits(x->model, &x->batch, 0, task, logits);
}
