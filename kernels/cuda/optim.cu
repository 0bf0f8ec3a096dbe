/* SPDX-License-Identifier: Apache-2.0 */
/* Passes of the inner optimizers over all tensors in one launch each: a table maps each thread
 * block to a chunk of a tensor. Element formulas: kernels/scalar/opt_*.h, one kernel for each row
 * of opt.h; error bounds: kernels/cpu/optim.c. Bytes per parameter with a bf16 copy: AdamW reads p,
 * m, v, g and writes p, m, v, copy: 30. LAMB's first pass reads p, m, v, g and writes m, v (24),
 * its second reads p, m, v and writes p, copy (18).
 */
#include "kernels/cuda/launch.cuh"
#include <stdlib.h>

enum { CHUNK = DEV_RUN };

struct chunk {
    size_t offset, second; /* second: where v has it */
    uint32_t count, range;
};

struct optim_args {
    float *p, *m, *v;
    const float *g;
    uint16_t *model;
    const float *gscale;
    struct opt_scalars k;
    const struct chunk *chunks;
    const struct opt_group *groups;
    const uint32_t *first;    /* (ranges + 1): a range's chunks are first[r] .. first[r + 1] */
    struct opt_sums *partial; /* of each chunk */
    double *sums;             /* (OPT_SUMS, stride) of the ranges, or NULL */
    size_t stride;
    unsigned kind;
    bool wide; /* the slabs are 16-byte aligned */
};

/* True in every thread: clip_scale forbids the update, or the range takes no part. */
static __device__ __forceinline__ bool stopped(const struct optim_args &a, uint32_t range)
{
    return (a.gscale && *a.gscale != *a.gscale) || !opt_takes_part(&a.groups[range], a.kind);
}

static __device__ __forceinline__ struct opt_scalars scalars_of(const struct optim_args &a,
                                                                const struct chunk &chunk)
{
    return opt_of_range(a.k, a.groups[chunk.range], a.gscale ? *a.gscale : 1.0f);
}

static __device__ __forceinline__ void sums_of(double *to, const struct optim_args &a,
                                               uint32_t range)
{
#pragma unroll
    for (int j = 0; j < OPT_SUMS; j++)
        to[j] = a.sums ? a.sums[j * a.stride + range] : 0;
}

/* Of four elements. */
struct place {
    size_t i, end;
    ptrdiff_t second; /* of v, from the place in the other slabs */
    bool wide;
};

/* Where this thread begins in a chunk. */
static __device__ __forceinline__ struct place place_in(const struct optim_args &a,
                                                        const struct chunk &chunk)
{
    return {chunk.offset + threadIdx.x * 4, chunk.offset + chunk.count,
            (ptrdiff_t)chunk.second - (ptrdiff_t)chunk.offset,
            a.wide && chunk.offset % 4 == 0 && chunk.second % 4 == 0};
}

/* Four elements; a slab that the optimizer does not keep reads as 0. */
struct elements {
    four p, m, v, g;
};

static __device__ __forceinline__ struct elements get_elements(const struct optim_args &a,
                                                               const struct place &at)
{
    const four none = {{0, 0, 0, 0}};
    size_t i = at.i, end = at.end;
    bool wide = at.wide;
    return {get4(a.p, i, end, wide), a.m ? get4(a.m, i, end, wide) : none,
            a.v ? get4(a.v + at.second, i, end, wide) : none, get4(a.g, i, end, wide)};
}

static __device__ __forceinline__ void put_moments(const struct optim_args &a,
                                                   const struct place &at, unsigned writes,
                                                   const struct elements &x)
{
    if (writes & OPT_M)
        put4(a.m, at.i, at.end, at.wide, x.m);
    if (writes & OPT_V)
        put4(a.v + at.second, at.i, at.end, at.wide, x.v);
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

/* ---- the rows of opt.h, by number */
template <int RULE> struct reduce_rule;
template <int RULE> struct update_rule;
#define X(NAME, name, prepare_, first_, count_, writes_)                                           \
    template <> struct reduce_rule<OPT_REDUCE_##NAME> {                                            \
        enum { first = first_, count = count_, writes = writes_ };                                 \
        static __device__ __forceinline__ void prepare(struct opt_scalars *k, const double *sums)  \
        {                                                                                          \
            prepare_(k, sums);                                                                     \
        }                                                                                          \
        static __device__ __forceinline__ struct opt_terms                                         \
        element(float p, float *m, float *v, float g, const struct opt_scalars *k)                 \
        {                                                                                          \
            return opt_##name##_reduce(p, m, v, g, k);                                             \
        }                                                                                          \
    };
OPT_REDUCE_LIST(X)
#undef X
#define X(NAME, name, prepare_, writes_)                                                           \
    template <> struct update_rule<OPT_UPDATE_##NAME> {                                            \
        enum { writes = writes_ };                                                                 \
        static __device__ __forceinline__ void prepare(struct opt_scalars *k, const double *sums)  \
        {                                                                                          \
            prepare_(k, sums);                                                                     \
        }                                                                                          \
        static __device__ __forceinline__ void element(float *p, float *m, float *v, float g,      \
                                                       const struct opt_scalars *k)                \
        {                                                                                          \
            opt_##name##_update(p, m, v, g, k);                                                    \
        }                                                                                          \
    };
OPT_UPDATE_LIST(X)
#undef X

/* Floats within a thread (at most 64 values), doubles across: 1e-5 relative. */
template <int RULE> static __global__ void range_reduce(const struct optim_args a)
{
    typedef struct reduce_rule<RULE> rule;
    __shared__ double held[OPT_SUMS][WARP];
    const struct chunk chunk = a.chunks[blockIdx.x];
    if (stopped(a, chunk.range))
        return;
    struct opt_scalars scalars = scalars_of(a, chunk);
    double before[OPT_SUMS];
    float sums[OPT_SUMS] = {0, 0, 0, 0};
    sums_of(before, a, chunk.range);
    rule::prepare(&scalars, before);
    for (struct place at = place_in(a, chunk); at.i < at.end; at.i += THREADS * 4) {
        struct elements x = get_elements(a, at);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            struct opt_terms t = rule::element(x.p.x[k], &x.m.x[k], &x.v.x[k], x.g.x[k], &scalars);
#pragma unroll
            for (int j = 0; j < rule::count; j++)
                sums[j] += at.i + k < at.end ? t.x[j] : 0.0f;
        }
        put_moments(a, at, rule::writes, x);
    }
#pragma unroll
    for (int j = 0; j < rule::count; j++) {
        double sum = block_sum((double)sums[j], held[j]);
        if (threadIdx.x == 0)
            a.partial[blockIdx.x].x[j] = sum;
    }
}

/* A block for each range: its chunks' sums in a fixed order. */
template <int RULE> static __global__ void range_sums(const struct optim_args a)
{
    typedef struct reduce_rule<RULE> rule;
    __shared__ double held[OPT_SUMS][WARP];
    if (stopped(a, blockIdx.x))
        return;
    uint32_t first = a.first[blockIdx.x], end = a.first[blockIdx.x + 1];
#pragma unroll
    for (int j = 0; j < rule::count; j++) {
        double sum = 0;
        for (uint32_t i = first + threadIdx.x; i < end; i += THREADS)
            sum += a.partial[i].x[j];
        sum = block_sum(sum, held[j]);
        if (threadIdx.x == 0)
            a.sums[(rule::first + j) * a.stride + blockIdx.x] = sum;
    }
}

/* Runs the last chunks first: the reduce pass left them in the L2 cache. */
template <int RULE> static __global__ void range_update(const struct optim_args a)
{
    typedef struct update_rule<RULE> rule;
    const struct chunk chunk = a.chunks[gridDim.x - 1 - blockIdx.x];
    if (stopped(a, chunk.range))
        return;
    struct opt_scalars scalars = scalars_of(a, chunk);
    double sums[OPT_SUMS];
    sums_of(sums, a, chunk.range);
    rule::prepare(&scalars, sums);
    for (struct place at = place_in(a, chunk); at.i < at.end; at.i += THREADS * 4) {
        struct elements x = get_elements(a, at);
#pragma unroll
        for (int k = 0; k < 4; k++)
            rule::element(&x.p.x[k], &x.m.x[k], &x.v.x[k], x.g.x[k], &scalars);
        put_moments(a, at, rule::writes, x);
        put4(a.p, at.i, at.end, at.wide, x.p);
        if (a.model)
            put_model(a.model, at.i, at.end, at.wide, x.p);
    }
}

/* ---- the table: chunks | first | partial, in one piece of device memory */
struct table {
    size_t chunks, chunk_bytes, first_bytes, partial_bytes;
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
    t.partial_bytes = t.chunks * sizeof(struct opt_sums);
    return t;
}

/* A range, and where v has it. */
struct placed {
    struct dev_range range;
    size_t second;
};

static struct placed placed_of(const struct dev_optim *a, size_t r)
{
    return {a->ranges[r], a->second ? a->second[r] : a->ranges[r].offset};
}

static void table_fill(struct chunk *chunks, uint32_t *first, const struct placed *ranges, size_t n)
{
    uint32_t at = 0;
    for (size_t r = 0; r < n; r++) {
        const struct dev_range range = ranges[r].range;
        first[r] = at;
        for (size_t k = 0; k < range.count; k += CHUNK) {
            size_t left = range.count - k, count = CHUNK;
            count = left < count ? left : count;
            chunks[at++] = {range.offset + k, ranges[r].second + k, (uint32_t)count, (uint32_t)r};
        }
    }
    first[n] = at;
}

/* Whether the device holds the table of these ranges. */
static bool table_held(const struct cuda *c, const struct dev_optim *a)
{
    const struct placed *kept = (const struct placed *)c->table.host;
    bool same = kept && c->table.bytes == a->n * sizeof *kept;
    for (size_t r = 0; same && r < a->n; r++) {
        const struct placed now = placed_of(a, r);
        same = memcmp(&kept[r], &now, sizeof now) == 0;
    }
    return same;
}

/* Uploads the table unless the device still holds the same ranges from the last call, as in every
 * step but the first.
 */
static bool table_upload(struct cuda *c, const struct table *t, const struct dev_optim *a)
{
    size_t bytes = t->chunk_bytes + t->first_bytes, kept_bytes = a->n * sizeof(struct placed);
    if (table_held(c, a))
        return true;
    char *host = (char *)calloc(1, bytes);
    struct placed *kept = (struct placed *)malloc(kept_bytes + 1);
    if (!host || !kept) {
        free(host);
        free(kept);
        cuda_fail(c, err_set(ERR_MEMORY, "no memory for the table of %zu chunks", t->chunks));
        return false;
    }
    for (size_t r = 0; r < a->n; r++)
        kept[r] = placed_of(a, r);
    table_fill((struct chunk *)host, (uint32_t *)(host + t->chunk_bytes), kept, a->n);
    c->dev.ops->copy(&c->dev, c->memory.scratch[CUDA_SLOT_TABLE], host, bytes);
    (void)c->dev.ops->sync(
        &c->dev); /* the host copy may be freed afterwards; happens once per run */
    free(host);
    free(c->table.host);
    c->table.host = kept;
    c->table.bytes = kept_bytes;
    return true;
}

/* False: nothing to do, or a failure that is recorded in the device. */
static bool args_make(struct cuda *c, struct optim_args *to, const struct dev_optim *a,
                      size_t *chunks)
{
    struct table t = table_size(a->ranges, a->n);
    size_t bytes = t.chunk_bytes + t.first_bytes + t.partial_bytes;
    char *base = t.chunks ? (char *)cuda_scratch(c, CUDA_SLOT_TABLE, bytes) : NULL;
    if (!base || !table_upload(c, &t, a))
        return false;
    *chunks = t.chunks;
    *to = {};
    to->p = a->p, to->m = a->m, to->v = a->v, to->g = a->g;
    to->model = (uint16_t *)a->model;
    to->gscale = a->gscale;
    to->k = a->k;
    to->chunks = (const struct chunk *)base;
    to->groups = a->groups;
    to->first = (const uint32_t *)(base + t.chunk_bytes);
    to->partial = (struct opt_sums *)(base + t.chunk_bytes + t.first_bytes);
    to->sums = a->sums;
    to->stride = a->sums_stride;
    to->kind = a->kind;
    to->wide = aligned16(a->p) && aligned16(a->m) && aligned16(a->v) && aligned16(a->g) &&
               aligned16(a->model);
    return true;
}

extern "C" void cuda_range_reduce(struct dev *d, enum opt_reduce rule, const struct dev_optim *a)
{
    struct optim_args args;
    size_t chunks;
    if (!args_make(cuda_of(d), &args, a, &chunks))
        return;
    switch (rule) {
#define X(NAME, name, prepare, first, count, writes)                                               \
    case OPT_REDUCE_##NAME:                                                                        \
        LAUNCH(cuda_of(d), range_reduce<OPT_REDUCE_##NAME>, blocks_for(chunks, 1), THREADS, 0,     \
               args);                                                                              \
        LAUNCH(cuda_of(d), range_sums<OPT_REDUCE_##NAME>, blocks_for(a->n, 1), THREADS, 0, args);  \
        break;
        OPT_REDUCE_LIST(X)
#undef X
    case OPT_REDUCES:
        break;
    }
}

extern "C" void cuda_range_update(struct dev *d, enum opt_update rule, const struct dev_optim *a)
{
    struct optim_args args;
    size_t chunks;
    if (!args_make(cuda_of(d), &args, a, &chunks))
        return;
    switch (rule) {
#define X(NAME, name, prepare, writes)                                                             \
    case OPT_UPDATE_##NAME:                                                                        \
        LAUNCH(cuda_of(d), range_update<OPT_UPDATE_##NAME>, blocks_for(chunks, 1), THREADS, 0,     \
               args);                                                                              \
        break;
        OPT_UPDATE_LIST(X)
#undef X
    case OPT_UPDATES:
        break;
    }
}

/* ---- Muon */
template <typename T> struct muon_input_args {
    T *x;
    const float *m, *g, *gscale;
    struct opt_scalars k;
    const double *square;
    size_t count;
};

template <typename T> static __global__ void muon_input(const struct muon_input_args<T> a)
{
    size_t i = thread_index();
    struct opt_scalars k = a.k;
    if (i >= a.count)
        return;
    k.gscale = a.gscale ? *a.gscale : 1.0f;
    float u = opt_muon_inverse(*a.square) * opt_muon_direction(a.m[i], a.g[i], &k);
    store<T, 1>(a.x + i, &u);
}

extern "C" void cuda_muon_input(struct dev *d, void *x, const struct dev_optim *a, size_t r)
{
    struct cuda *c = cuda_of(d);
    const struct dev_range range = a->ranges[r];
    if (!range.count)
        return;
#define RUN(type, vec)                                                                             \
    do {                                                                                           \
        const struct muon_input_args<type> args = {                                                \
            (type *)x, a->m + range.offset, a->g + range.offset, a->gscale, a->k, a->sums + r,     \
                range.count                                                                        \
        };                                                                                         \
        LAUNCH(c, muon_input<type>, blocks_for(range.count, THREADS), THREADS, 0, args);           \
    } while (0)
    BY_TYPE(c, false, RUN);
#undef RUN
}

template <typename T>
static __global__ void muon_polynomial(T *s, const T *x, struct opt_polynomial p, size_t n)
{
    size_t i = thread_index();
    if (i >= n * n)
        return;
    float first, square;
    load<T, 1>(&first, x + i);
    load<T, 1>(&square, s + i);
    square = opt_muon_polynomial(p, first, square, i % (n + 1) == 0);
    store<T, 1>(s + i, &square);
}

extern "C" void cuda_muon_polynomial(struct dev *d, void *s, const void *x,
                                     const struct opt_polynomial *p, size_t n)
{
    struct cuda *c = cuda_of(d);
#define RUN(type, vec)                                                                             \
    LAUNCH(c, muon_polynomial<type>, blocks_for(n *n, THREADS), THREADS, 0, (type *)s,             \
           (const type *)x, *p, n)
    BY_TYPE(c, false, RUN);
#undef RUN
}

/* A block for each range. */
static __global__ void moments(float *largest, const struct dev_moments a)
{
    __shared__ float held[THREADS];
    const struct dev_range range = a.ranges[blockIdx.x];
    float most = 0;
    for (size_t i = threadIdx.x; i < range.count; i += THREADS) {
        size_t at = range.offset + i;
        most = fmaxf(most, (sqrtf(a.v[at]) + a.eps) / (sqrtf(a.fresh[at]) + a.eps));
    }
    held[threadIdx.x] = most;
    for (unsigned half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            held[threadIdx.x] = fmaxf(held[threadIdx.x], held[threadIdx.x + half]);
    }
    if (threadIdx.x == 0)
        largest[blockIdx.x] = held[0];
}

extern "C" void cuda_range_moments(struct dev *d, float *largest, const struct dev_moments *a)
{
    if (a->n)
        LAUNCH(cuda_of(d), moments, blocks_for(a->n, 1), THREADS, 0, largest, *a);
}
