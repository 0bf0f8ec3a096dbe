/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a device by name and forwards memory and sync; callers call ops through dev->ops. */
#include "kernels/dev.h"
#include <stdlib.h>
#include <string.h>
#include "kernels/cuda/module.h"

/* "cuda" or "cuda:N"; the module comes from libatoll_cuda.so. */
static enum err open_cuda(struct dev **d, const struct dev_options *o)
{
    const struct cuda_module *m;
    char *end = NULL;
    long index = o->kind[4] ? strtol(o->kind + 5, &end, 10) : 0;
    if (end && (*end || end == o->kind + 5 || index < 0 || index > 1023))
        return err_set(ERR_CONFIG, "device '%s': the GPU's number is 0 to 1023", o->kind);
    TRY(module_cuda(&m));
    return m->open(d, (int)index, o);
}

enum err dev_open(struct dev **d, const struct dev_options *o)
{
    *d = NULL;
    if (!o->kind || strcmp(o->kind, "cpu") == 0)
        return cpu_open(d, o);
    if (strcmp(o->kind, "cuda") == 0 || strncmp(o->kind, "cuda:", 5) == 0)
        return open_cuda(d, o);
    return err_set(ERR_CONFIG, "device '%s' is none of cpu, cuda", o->kind);
}

void dev_close(struct dev *d)
{
    if (d)
        d->ops->close(d);
}

enum err dev_alloc(struct dev *d, void **p, size_t bytes)
{
    *p = NULL;
    return bytes ? d->ops->alloc(d, p, bytes) : ERR_OK;
}

void dev_free(struct dev *d, void *p)
{
    if (p)
        d->ops->free(d, p);
}

static void *host_take(void *self, size_t bytes)
{
    struct dev *d = self;
    void *p;
    return d->ops->host_alloc(d, &p, bytes) == ERR_OK ? p : NULL;
}

static void host_give(void *self, void *block)
{
    struct dev *d = self;
    d->ops->host_free(d, block);
}

struct arena dev_arena(struct dev *d)
{
    return arena_make_from((struct arena_source){host_take, host_give, d});
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Bytes of log-sum-exp or sum(dout out) for each head and token. With cuDNN at most both and, by
 * choice of device.attention, a bf16 of each score, or dq in f32 and dk, dv of every query head in
 * bf16. */
static size_t attention_bytes(const struct dev_shape *s)
{
    size_t rows = s->NH * s->T * sizeof(float), square = rows / 2 * s->S,
           all_heads = s->T * s->C * 2 * 2;
    if (s->type != DTYPE_BF16 || !s->attention || !strcmp(s->attention, "own"))
        return rows;
    if (!strcmp(s->attention, "cudnn"))
        return 2 * rows + s->T * s->C * sizeof(float) + all_heads;
    return 2 * rows +
           (square + rows <= DEV_ATTENTION_CUDA ? square + all_heads : 0); /* more is not taken */
}

/* Ops of a GPU run one after the other and share one allocation of the largest size: sums of
 * attention for each head and token; sorted tokens for the gradient of the embedding (rows.cu,
 * sort_keys); partial sums of norms (on each of 192 multiprocessors blocks of 640 threads together,
 * 32 at least and 8 columns for each, or three blocks of long rows), of biases
 * (8 x 256 columns on each) and of token types (one for each 256 rows). The optimizer table is 40
 * bytes for each DEV_RUN and tensor. */
static size_t cuda_ops_bytes(const struct dev_shape *s)
{
    enum { PROCESSORS = 192, SORT_TILE = 1024 };
    size_t most = larger(attention_bytes(s), 2 * s->N * sizeof(float));
    if (s->train) {
        most = larger(most, (4 * s->T + 256 * (s->T / SORT_TILE + 1)) * sizeof(int32_t));
        size_t columns = s->C < 256 ? 20 * s->C : 640 * 8; /* of all blocks on one */
        most = larger(most, PROCESSORS * 2 * larger(columns, 3 * s->C) * sizeof(float));
        most = larger(most, (PROCESSORS * 8 * 256 + s->N) * sizeof(float));
        most = larger(most, (s->T / 256 + 1) * DEV_TYPES_MAX * s->C * sizeof(float));
    }
    return most + (s->train ? s->elements / DEV_RUN * 40 : 0) + ((size_t)2 << 20);
}

/* Both operands of the largest product of the model, rounded, each in `bytes` for a value: forward,
 * gradient of the input, of the weights. The classifier's are of a chunk. A GPU's are padded. */
static size_t narrow_bytes(const struct dev_shape *s, size_t bytes, size_t rows, size_t width)
{
    enum { PADDED = 16, HEAD_BYTES = 4 << 10 };
    size_t sides[] = {s->T, s->C, s->N, rows, s->C, width}, most = 0;
    if (!s->emulation.fp8 && !s->emulation.accumulator)
        return 0;
    for (int i = 0; i < 6 && bytes == 1; i++)
        sides[i] = (sides[i] + PADDED - 1) / PADDED * PADDED;
    for (const size_t *x = sides; x < sides + 6; x += 3)
        for (int i = 0; i < 3; i++)
            most = larger(most, x[i] * (x[(i + 1) % 3] + x[(i + 2) % 3]));
    return most * bytes + HEAD_BYTES;
}

struct dev_workspace dev_workspace(const char *kind, const struct dev_shape *s)
{
    enum { LIBRARY_BYTES = 32 << 20, CODE_BYTES = 256 << 20, CPU_OPS_BYTES = 4 << 20 };
    size_t width = dev_logit_width(s->V, s->VP), row = s->VP * sizeof(float), half = s->VP * 2;
    size_t rows = dev_logit_rows(DEV_LOGITS_CUDA, s->T, row),
           more = s->train && s->type == DTYPE_BF16 ? dev_logit_rows(DEV_LOGITS_CUDA, s->T, half)
                                                    : rows; /* in bf16, with gradients */
    if (!strcmp(kind, "cuda"))
        return (struct dev_workspace){.logits = larger(rows * row, more * half),
                                      .gemm = LIBRARY_BYTES + narrow_bytes(s, 1, more, s->VP),
                                      .ops = cuda_ops_bytes(s),
                                      .code = CODE_BYTES};
    size_t of_logit = sizeof(float) + (s->train && s->type == DTYPE_BF16 ? dtype_size(s->type) : 0);
    rows = dev_logit_rows(DEV_LOGITS_CPU, s->T, width * sizeof(float));
    return (struct dev_workspace){.logits = rows * dev_rows_apart(s->type, width) * of_logit,
                                  .gemm = narrow_bytes(s, sizeof(float), rows, width),
                                  .ops = CPU_OPS_BYTES};
}

void dev_matrices_add(struct dev_matrices *all, struct dev_matrix *x)
{
    size_t rows = dev_row_tiles(x), columns = dev_column_tiles(x), both = x->rows + x->columns;
    x->lines = all->lines;
    x->partial = all->partial;
    x->tile = all->tiles;
    all->lines += OPT_LINES * both;
    all->partial += OPT_LINES * (x->rows * columns + x->columns * rows);
    all->tiles += rows * columns;
    all->longest = both > all->longest ? both : all->longest;
}

unsigned dev_events(struct dev *d, unsigned count)
{
    unsigned first = d->events;
    ASSERT(count <= DEV_EVENTS_MAX - first);
    d->events += count;
    return first;
}

enum err dev_sync(struct dev *d)
{
    return d->ops->sync(d);
}
