/* AdamW and LAMB over all tensors in one launch for each pass: a table of chunks says which run of
 * which tensor a block takes. Element formulas and error bounds: kernels/scalar/adam.h,
 * kernels/cpu/ops.c. Bytes per parameter with a bf16 copy: AdamW reads p, m, v, g and writes p, m,
 * v, copy: 30. LAMB must know a tensor's norms before it may change it: the first pass reads p, m,
 * v, g and writes m, v (24), the second makes the update again from m and v (18): 42.
 */
#include "kernels/cuda/tile.cuh"
#include "kernels/scalar/adam.h"
#include <stdlib.h>

enum { THREADS = 256, CHUNK = DEV_RUN };

struct chunk {
    size_t offset;
    uint32_t count, range;
    uint32_t decay, padding;
};
struct norms { /* sums of squares of p and of the update, over one chunk */
    double p2, u2;
};

struct adam_args {
    float *p, *m, *v;
    const float *g;
    uint16_t *model;
    const float *gscale;
    struct adam_scalars scalars;
    float lr, trust_min, trust_max;
    const struct chunk *chunks;
    const uint32_t *first; /* (ranges + 1): a range's chunks are first[r] .. first[r + 1] */
    struct norms *norms;   /* per chunk */
    struct norms *sums;    /* per range */
    bool wide;             /* the slabs are 16-byte aligned */
};

static __device__ __forceinline__ struct adam_scalars scalars_of(const struct adam_args &a,
                                                                 const struct chunk &k)
{
    struct adam_scalars s = a.scalars;
    s.weight_decay = k.decay ? s.weight_decay : 0.0f;
    s.gscale = a.gscale ? *a.gscale : 1.0f;
    return s;
}

/* The same in every thread: clip_scale has said that nothing may change. */
static __device__ __forceinline__ bool stopped(const struct adam_args &a)
{
    return a.gscale && *a.gscale != *a.gscale;
}

static __device__ __forceinline__ void put_model(uint16_t *model, size_t i, size_t end, bool wide,
                                                 const four &p)
{
    uint16_t h[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
        h[k] = bf16_round(p.x[k]);
    if (wide && i + 4 <= end) {
        *(ushort4 *)(model + i) = make_ushort4(h[0], h[1], h[2], h[3]);
    } else {
        for (int k = 0; k < 4 && i + k < end; k++)
            model[i + k] = h[k];
    }
}

static __global__ void adamw(const struct adam_args a)
{
    if (stopped(a))
        return;
    const struct chunk chunk = a.chunks[blockIdx.x];
    const struct adam_scalars s = scalars_of(a, chunk);
    bool wide = a.wide && chunk.offset % 4 == 0;
    size_t end = chunk.offset + chunk.count;
    for (size_t i = chunk.offset + threadIdx.x * 4; i < end; i += THREADS * 4) {
        four p = get4(a.p, i, end, wide), m = get4(a.m, i, end, wide);
        four v = get4(a.v, i, end, wide), g = get4(a.g, i, end, wide);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            adam_moments(&m.x[k], &v.x[k], g.x[k], &s);
            p.x[k] -= a.lr * adam_update(&m.x[k], &v.x[k], p.x[k], &s);
        }
        put4(a.m, i, end, wide, m);
        put4(a.v, i, end, wide, v);
        put4(a.p, i, end, wide, p);
        if (a.model)
            put_model(a.model, i, end, wide, p);
    }
}

/* Floats within a thread (at most 64 values), doubles across: 1e-5 relative. */
static __global__ void lamb_moments(const struct adam_args a)
{
    __shared__ double held[2][WARP];
    if (stopped(a))
        return;
    const struct chunk chunk = a.chunks[blockIdx.x];
    const struct adam_scalars s = scalars_of(a, chunk);
    bool wide = a.wide && chunk.offset % 4 == 0;
    size_t end = chunk.offset + chunk.count;
    float p2 = 0, u2 = 0;
    for (size_t i = chunk.offset + threadIdx.x * 4; i < end; i += THREADS * 4) {
        four p = get4(a.p, i, end, wide), m = get4(a.m, i, end, wide);
        four v = get4(a.v, i, end, wide), g = get4(a.g, i, end, wide);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            adam_moments(&m.x[k], &v.x[k], g.x[k], &s);
            float u = i + k < end ? adam_update(&m.x[k], &v.x[k], p.x[k], &s) : 0.0f;
            p2 += p.x[k] * p.x[k];
            u2 += u * u;
        }
        put4(a.m, i, end, wide, m);
        put4(a.v, i, end, wide, v);
    }
    double p_sum = block_sum((double)p2, held[0]), u_sum = block_sum((double)u2, held[1]);
    if (threadIdx.x == 0)
        a.norms[blockIdx.x] = {p_sum, u_sum};
}

/* A block for each range: its chunks' norms in a fixed order. */
static __global__ void lamb_sums(const struct adam_args a)
{
    __shared__ double held[2][WARP];
    uint32_t first = a.first[blockIdx.x], end = a.first[blockIdx.x + 1];
    double p2 = 0, u2 = 0;
    for (uint32_t i = first + threadIdx.x; i < end; i += THREADS) {
        p2 += a.norms[i].p2;
        u2 += a.norms[i].u2;
    }
    p2 = block_sum(p2, held[0]);
    u2 = block_sum(u2, held[1]);
    if (threadIdx.x == 0)
        a.sums[blockIdx.x] = {p2, u2};
}

/* lr times ||p|| / ||u|| within its bounds; lr for exempt ranges and where either norm is 0. */
static __device__ __forceinline__ float lamb_step(const struct adam_args &a,
                                                  const struct chunk &chunk)
{
    struct norms sum = a.sums[chunk.range];
    if (!chunk.decay || !(sum.p2 > 0) || !(sum.u2 > 0))
        return a.lr;
    float ratio = (float)sqrt(sum.p2 / sum.u2);
    ratio = ratio < a.trust_min ? a.trust_min : ratio;
    return a.lr * (ratio > a.trust_max ? a.trust_max : ratio);
}

/* Last chunks first: the first pass left them in the L2 cache. */
static __global__ void lamb_apply(const struct adam_args a)
{
    if (stopped(a))
        return;
    const struct chunk chunk = a.chunks[gridDim.x - 1 - blockIdx.x];
    const struct adam_scalars s = scalars_of(a, chunk);
    bool wide = a.wide && chunk.offset % 4 == 0;
    float step = lamb_step(a, chunk);
    size_t end = chunk.offset + chunk.count;
    for (size_t i = chunk.offset + threadIdx.x * 4; i < end; i += THREADS * 4) {
        four p = get4(a.p, i, end, wide), m = get4(a.m, i, end, wide), v = get4(a.v, i, end, wide);
#pragma unroll
        for (int k = 0; k < 4; k++)
            p.x[k] -= step * adam_update(&m.x[k], &v.x[k], p.x[k], &s);
        put4(a.p, i, end, wide, p);
        if (a.model)
            put_model(a.model, i, end, wide, p);
    }
}

/* ---- the table: chunks | first | norms | sums, in one piece of device memory
 * --------------------- */
struct table {
    size_t chunks, chunk_bytes, first_bytes, norm_bytes, sum_bytes;
};

static size_t up16(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

static struct table table_size(const struct dev_range *ranges, size_t n)
{
    struct table t = {};
    for (size_t r = 0; r < n; r++)
        t.chunks += (ranges[r].count + CHUNK - 1) / CHUNK;
    t.chunk_bytes = up16(t.chunks * sizeof(struct chunk));
    t.first_bytes = up16((n + 1) * sizeof(uint32_t));
    t.norm_bytes = t.chunks * sizeof(struct norms);
    t.sum_bytes = n * sizeof(struct norms);
    return t;
}

static void table_fill(struct chunk *chunks, uint32_t *first, const struct dev_range *ranges,
                       size_t n)
{
    uint32_t at = 0;
    for (size_t r = 0; r < n; r++) {
        first[r] = at;
        for (size_t k = 0; k < ranges[r].count; k += CHUNK) {
            size_t left = ranges[r].count - k, count = CHUNK;
            count = left < count ? left : count;
            chunks[at++] = {ranges[r].offset + k, (uint32_t)count, (uint32_t)r, ranges[r].decay, 0};
        }
    }
    first[n] = at;
}

/* Uploads the table unless the same ranges lie there from the last call (they do, step after step).
 */
static bool table_upload(struct cuda *c, const struct table *t, const struct dev_range *ranges,
                         size_t n)
{
    size_t bytes = t->chunk_bytes + t->first_bytes, range_bytes = n * sizeof *ranges;
    if (c->table_host && c->table_bytes == range_bytes &&
        memcmp(c->table_host, ranges, range_bytes) == 0)
        return true;
    char *host = (char *)calloc(1, bytes);
    void *kept = malloc(range_bytes + 1);
    if (!host || !kept) {
        free(host);
        free(kept);
        cuda_fail(c, err_set(ERR_MEMORY, "no memory for the table of %zu chunks", t->chunks));
        return false;
    }
    table_fill((struct chunk *)host, (uint32_t *)(host + t->chunk_bytes), ranges, n);
    c->dev.ops->copy(&c->dev, c->scratch[CUDA_SLOT_TABLE], host, bytes);
    (void)c->dev.ops->sync(&c->dev); /* host may go; once per run */
    free(host);
    free(c->table_host);
    c->table_host = memcpy(kept, ranges, range_bytes);
    c->table_bytes = range_bytes;
    return true;
}

/* False: nothing to do, or a failure that the device keeps. */
static bool adam_args_make(struct cuda *c, struct adam_args *to, const struct dev_adam *a,
                           const struct dev_range *ranges, size_t n, size_t *chunks)
{
    struct table t = table_size(ranges, n);
    char *base =
        t.chunks ? (char *)cuda_scratch(c, CUDA_SLOT_TABLE,
                                        t.chunk_bytes + t.first_bytes + t.norm_bytes + t.sum_bytes)
                 : NULL;
    if (!base || !table_upload(c, &t, ranges, n))
        return false;
    *chunks = t.chunks;
    *to = {};
    to->p = a->p, to->m = a->m, to->v = a->v, to->g = a->g;
    to->model = (uint16_t *)a->model;
    to->gscale = a->gscale;
    to->scalars = {a->beta1,        a->beta2,        a->eps, 1.0f / a->bias1,
                   1.0f / a->bias2, a->weight_decay, 1};
    to->lr = a->lr, to->trust_min = a->trust_min, to->trust_max = a->trust_max;
    to->chunks = (const struct chunk *)base;
    to->first = (const uint32_t *)(base + t.chunk_bytes);
    to->norms = (struct norms *)(base + t.chunk_bytes + t.first_bytes);
    to->sums = (struct norms *)(base + t.chunk_bytes + t.first_bytes + t.norm_bytes);
    to->wide = aligned16(a->p) && aligned16(a->m) && aligned16(a->v) && aligned16(a->g) &&
               aligned16(a->model);
    return true;
}

extern "C" void cuda_adamw(struct dev *d, const struct dev_adam *a, const struct dev_range *ranges,
                           size_t n)
{
    struct adam_args args;
    size_t chunks;
    if (adam_args_make(cuda_of(d), &args, a, ranges, n, &chunks))
        LAUNCH(cuda_of(d), adamw, blocks_for(chunks, 1), THREADS, 0, args);
}

extern "C" void cuda_lamb(struct dev *d, const struct dev_adam *a, const struct dev_range *ranges,
                          size_t n)
{
    struct adam_args args;
    size_t chunks;
    if (!adam_args_make(cuda_of(d), &args, a, ranges, n, &chunks))
        return;
    LAUNCH(cuda_of(d), lamb_moments, blocks_for(chunks, 1), THREADS, 0, args);
    LAUNCH(cuda_of(d), lamb_sums, blocks_for(n, 1), THREADS, 0, args);
    LAUNCH(cuda_of(d), lamb_apply, blocks_for(chunks, 1), THREADS, 0, args);
}

extern "C" void cuda_lamb_norms(struct dev *d, double *norms, const struct dev_adam *a,
                                const struct dev_range *ranges, size_t n)
{
    struct adam_args args;
    size_t chunks;
    if (!adam_args_make(cuda_of(d), &args, a, ranges, n, &chunks))
        return;
    args.sums = (struct norms *)norms;
    LAUNCH(cuda_of(d), lamb_moments, blocks_for(chunks, 1), THREADS, 0, args);
    LAUNCH(cuda_of(d), lamb_sums, blocks_for(n, 1), THREADS, 0, args);
}

extern "C" void cuda_lamb_apply(struct dev *d, const double *norms, const struct dev_adam *a,
                                const struct dev_range *ranges, size_t n)
{
    struct adam_args args;
    size_t chunks;
    if (!adam_args_make(cuda_of(d), &args, a, ranges, n, &chunks))
        return;
    args.sums = (struct norms *)(uintptr_t)norms;
    LAUNCH(cuda_of(d), lamb_apply, blocks_for(chunks, 1), THREADS, 0, args);
}
