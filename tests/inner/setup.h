/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SETUP_H
#define SETUP_H
/* What tests of the model and of training start from: settings, a device, parameters, packed
 * batches. */
#include "tests/inner/scratch.h"
#include "inner/data/shard.h"
#include "inner/model/model.h"
#include "kernels/base/bytes.h"
#include "kernels/base/rng.h"

/* Settings with the defaults, changed by words "--model.d_model", "16", ..., NULL. In memory of
 * `a`.
 */
static inline struct settings *setup_settings(struct arena *a, const char *const *words)
{
    struct settings *s = arena_alloc(a, sizeof *s);
    char *argv[64];
    int argc = 0;
    for (; words[argc]; argc++)
        argv[argc] = arena_string(a, words[argc], strlen(words[argc]));
    struct config_table t = keys_inner(s);
    if (config_load(&t, 1, NULL, argc, argv, a))
        fail_msg("%s", err_message());
    return s;
}

/* "text.bin" in the scratch directory. */
static inline void setup_shard(const uint16_t *ids, size_t count)
{
    size_t size = SHARD_HEADER_BYTES + 2 * count;
    uint8_t *data = calloc(1, size);
    assert_non_null(data);
    struct bytes_writer w = bytes_writer(data, size);
    bytes_put_u32(&w, SHARD_MAGIC_U16);
    bytes_put_u32(&w, SHARD_VERSION_U16);
    bytes_put_u32(&w, (uint32_t)count);
    w.at = data + SHARD_HEADER_BYTES;
    for (size_t i = 0; i < count; i++)
        bytes_put_u16(&w, ids[i]);
    scratch_write("text.bin", data, size);
    free(data);
}

/* Squares modulo 23: few ids follow each one. */
static inline int setup_squares(void **state)
{
    static uint16_t ids[2000];
    for (unsigned i = 0; i < 2000; i++)
        ids[i] = (uint16_t)(i * i % 23);
    if (scratch_open(state))
        return -1;
    setup_shard(ids, 2000);
    return 0;
}

static inline struct dev *setup_device(const char *type, int threads)
{
    struct dev *d;
    struct dev_options o = {.kind = "cpu", .model_type = type, .threads = threads};
    if (dev_open(&d, &o))
        fail_msg("%s", err_message());
    return d;
}

/* Random parameters everywhere, so that no term of a gradient vanishes; gains around 1, padding
 * zero. */
static inline void setup_random(const struct table *t, float *slab, double scale)
{
    memset(slab, 0, t->elements * sizeof *slab);
    for (size_t i = 0; i < t->count; i++) {
        const struct tensor *x = &t->tensors[i];
        for (size_t j = 0; j < (size_t)(x->shape[0] * x->shape[1]); j++)
            slab[x->offset + j] = (x->init == TABLE_ONE ? 1.0f : 0.0f) +
                                  (float)scale * rng_normal(5, RNG_TEST, x->offset + j);
    }
}

/* Sequences of these lengths, 0 at the end, ids from a seed; every seventh position has no target.
 */
static inline void setup_batch(struct batch *b, struct arena *a, const int *lengths, int64_t vocab,
                               uint64_t seed)
{
    size_t T = 0, n = 0;
    for (; lengths[n]; n++)
        T += (size_t)lengths[n];
    assert_int_equal(batch_open(b, a, T, n), ERR_OK);
    b->tokens_count = T;
    b->sequences = n;
    for (size_t i = 0, at = 0; i < n; i++)
        for (int p = 0; p < lengths[i]; p++, at++) {
            b->cu_seqlens[i + 1] = (int32_t)at + 1;
            b->positions[at] = p;
            b->tokens[at] = (int32_t)rng_below(seed, RNG_TEST, 2 * at, (uint64_t)vocab);
            b->targets[at] =
                at % 7 == 6 ? -1 : (int32_t)rng_below(seed, RNG_TEST, 2 * at + 1, (uint64_t)vocab);
        }
}

/* model_step and model_eval where only tokens have losses. */
static inline enum err setup_step(struct model *m, const struct batch *b, float grad_scale,
                                  const struct model_grad_hook *hook, double *sum, size_t *count)
{
    struct model_loss loss = {0};
    enum err e = model_step(m, b, grad_scale, hook, &loss);
    *sum = loss.sum[MODEL_LOSS_TOKEN];
    *count = loss.count[MODEL_LOSS_TOKEN];
    return e;
}

static inline enum err setup_eval(struct model *m, const struct batch *b, double *sum,
                                  size_t *count)
{
    struct model_loss loss = {0};
    enum err e = model_eval(m, b, &loss);
    *sum = loss.sum[MODEL_LOSS_TOKEN];
    *count = loss.count[MODEL_LOSS_TOKEN];
    return e;
}

#endif
