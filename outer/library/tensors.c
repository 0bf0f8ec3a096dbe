/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/library/tensors.h"
#include <stdio.h>
#include <string.h>
#include "kernels/base/bf16.h"

/* ---- the list ---- */

static size_t elements_of(const struct atoll_tensor *x)
{
    size_t n = 1;
    for (int32_t i = 0; i < x->dims; i++)
        n *= (size_t)x->shape[i];
    return n;
}

static size_t elements_in_table(const struct tensor *x)
{
    return (size_t)x->shape[0] * (size_t)x->shape[1];
}

static bool shape_good(const struct atoll_tensor *x)
{
    if (x->dims < 0 || x->dims > ATOLL_DIMS_MAX)
        return false;
    for (int32_t i = 0; i < x->dims; i++)
        if (x->shape[i] < 1 || x->shape[i] > INT32_MAX)
            return false;
    return x->dtype == ATOLL_F32 || x->dtype == ATOLL_BF16;
}

static const char *shape_text(const struct atoll_tensor *x, char *out, size_t size)
{
    size_t used = 0;
    out[0] = 0;
    for (int32_t i = 0; i < x->dims && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%lld", i ? ", " : "",
                                 (long long)x->shape[i]);
    return out;
}

/* Two dimensions are compared as such; others by the number of elements, as (n, 1) is a vector. */
static bool same_shape(const struct atoll_tensor *x, const struct tensor *y)
{
    bool matrix = x->dims == 2 && y->shape[1] > 1;
    return matrix ? x->shape[0] == y->shape[0] && x->shape[1] == y->shape[1]
                  : elements_of(x) == elements_in_table(y);
}

static enum err check_one(const struct tensors *t, size_t i)
{
    const struct atoll_tensor *x = &t->list[i];
    const struct tensor *y = &t->table->tensors[i];
    char shape[200];
    if (!x->name || !shape_good(x))
        return err_set(ERR_CONFIG,
                       "tensor %zu of the trainer: no name, or not of 0 to %d dimensions of at "
                       "least 1 each in f32 or bf16",
                       i, ATOLL_DIMS_MAX);
    if (!x->data && !(t->read && t->write))
        return err_set(ERR_CONFIG, "tensor %zu (%.80s) has no data, and read or write is NULL", i,
                       x->name);
    if (strcmp(x->name, y->name) == 0 && same_shape(x, y))
        return ERR_OK;
    return err_set(ERR_MISMATCH,
                   "tensor %zu of the trainer is %.80s (%s), of the run %s (%lld, %lld): the "
                   "trainer's tensors must be those that model.* of the configuration describes, "
                   "in that order (docs/library.md)",
                   i, x->name, shape_text(x, shape, sizeof shape), y->name, (long long)y->shape[0],
                   (long long)y->shape[1]);
}

enum err tensors_check(const struct tensors *t, size_t count)
{
    size_t both = count < t->table->count ? count : t->table->count;
    for (size_t i = 0; i < both; i++)
        TRY(check_one(t, i));
    if (count == t->table->count)
        return ERR_OK;
    return err_set(ERR_MISMATCH,
                   "the trainer has %zu tensors, the run %zu (%s %.80s): the trainer's tensors "
                   "must be those that model.* of the configuration describes (docs/library.md)",
                   count, t->table->count, count < t->table->count ? "missing:" : "too many:",
                   count < t->table->count ? t->table->tensors[count].name
                   : t->list[both].name    ? t->list[both].name
                                           : "");
}

/* ---- values ---- */

static enum err failed(const struct tensors *t, size_t i, const char *what)
{
    return err_set(ERR_IO, "the trainer could not %s tensor %zu (%.80s)", what, i, t->list[i].name);
}

static enum err read_one(const struct tensors *t, size_t i, size_t first, size_t count, float *out)
{
    const struct atoll_tensor *x = &t->list[i];
    if (!x->data)
        return t->read(t->self, i, first, count, out) ? failed(t, i, "read") : ERR_OK;
    if (x->dtype == ATOLL_F32)
        memcpy(out, (const float *)x->data + first, count * sizeof *out);
    for (size_t k = 0; x->dtype == ATOLL_BF16 && k < count; k++)
        out[k] = bf16_float(((const uint16_t *)x->data)[first + k]);
    return ERR_OK;
}

static enum err write_one(const struct tensors *t, size_t i, size_t first, size_t count,
                          const float *values)
{
    const struct atoll_tensor *x = &t->list[i];
    if (!x->data)
        return t->write(t->self, i, first, count, values) ? failed(t, i, "write") : ERR_OK;
    if (x->dtype == ATOLL_F32)
        memcpy((float *)x->data + first, values, count * sizeof *values);
    for (size_t k = 0; x->dtype == ATOLL_BF16 && k < count; k++)
        ((uint16_t *)x->data)[first + k] = bf16_round(values[k]);
    return ERR_OK;
}

/* The first tensor that ends after this place of the slab, which may lie in a gap before it. */
static size_t tensor_at(const struct table *t, size_t at)
{
    size_t low = 0, high = t->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct tensor *x = &t->tensors[middle];
        if (x->offset + elements_in_table(x) <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The part of elements at .. end that is of tensor i: in the tensor, and how much. */
struct part {
    size_t first, count;
};
static struct part part_of(const struct tensor *x, size_t at, size_t end)
{
    size_t begin = x->offset > at ? x->offset : at, stop = x->offset + elements_in_table(x);
    stop = stop < end ? stop : end;
    return (struct part){begin - x->offset, stop > begin ? stop - begin : 0};
}

enum err tensors_read(const struct tensors *t, size_t at, size_t count, float *out)
{
    size_t end = at + count;
    memset(out, 0, count * sizeof *out);
    for (size_t i = tensor_at(t->table, at); i < t->table->count; i++) {
        const struct tensor *x = &t->table->tensors[i];
        const struct part p = part_of(x, at, end);
        if (!p.count)
            break;
        TRY(read_one(t, i, p.first, p.count, out + (x->offset + p.first - at)));
    }
    return ERR_OK;
}

enum err tensors_write(const struct tensors *t, size_t at, size_t count, const float *values)
{
    size_t end = at + count;
    for (size_t i = tensor_at(t->table, at); i < t->table->count; i++) {
        const struct tensor *x = &t->table->tensors[i];
        const struct part p = part_of(x, at, end);
        if (!p.count)
            break;
        TRY(write_one(t, i, p.first, p.count, values + (x->offset + p.first - at)));
    }
    return ERR_OK;
}

enum err tensors_gather(const struct tensors *t, const struct dev_range *ranges, size_t n,
                        float *out)
{
    for (size_t i = 0; i < n; i++) {
        TRY(tensors_read(t, ranges[i].offset, ranges[i].count, out));
        out += ranges[i].count;
    }
    return ERR_OK;
}

static enum err mix_piece(const struct tensors *t, struct dev *d, struct dev_range r,
                          const float *in, const struct dev_lerp *b)
{
    const struct dev_range all = {0, r.count};
    if (b->alpha == 0)
        return tensors_write(t, r.offset, r.count, in);
    TRY(tensors_read(t, r.offset, r.count, t->piece));
    d->ops->lerp_ranges(d, t->piece, in, &(struct dev_lerp){&all, 1, b->alpha, b->positive});
    TRY(dev_sync(d));
    return tensors_write(t, r.offset, r.count, t->piece);
}

enum err tensors_mix(const struct tensors *t, struct dev *d, const float *in,
                     const struct dev_lerp *b)
{
    for (size_t i = 0; i < b->n; i++) {
        struct dev_range r = b->ranges[i];
        for (size_t end = r.offset + r.count; r.offset < end; r.offset += r.count) {
            size_t left = end - r.offset;
            r.count = left < TENSORS_PIECE ? left : TENSORS_PIECE;
            TRY(mix_piece(t, d, r, in, b));
            in += r.count;
        }
    }
    return ERR_OK;
}
