/* SPDX-License-Identifier: Apache-2.0 */
/* Passes of the inner optimizers over all matrices in one launch each: a thread block has a tile of
 * DEV_TILE_ROWS x DEV_TILE_COLUMNS elements, a thread one column of it. Tiles write what their rows
 * and columns add up to, and two small kernels add the tiles in order: the same bits in each run.
 * Element formulas: kernels/scalar/opt_*.h; error bounds: kernels/cpu/optim.c.
 */
#include "kernels/cuda/tile.cuh"

enum { THREADS = DEV_TILE_COLUMNS, WARPS = THREADS / WARP };

struct matrix_args {
    float *p, *m, *v;
    const float *g;
    uint16_t *model;
    const float *gscale;
    struct opt_scalars k;
    const struct opt_group *groups;
    const struct dev_matrix *matrices;
    size_t n;
    unsigned kind; /* of the ranges that take part */
    double *sums;  /* (OPT_SUMS, stride) */
    size_t stride;
    float *lines, *partial;
};

static __device__ __forceinline__ bool stopped(const struct matrix_args &a, size_t r)
{
    return (a.gscale && *a.gscale != *a.gscale) || !opt_takes_part(&a.groups[r], a.kind);
}

/* The matrix of a tile. */
static __device__ __forceinline__ size_t matrix_of(const struct matrix_args &a, size_t tile)
{
    size_t low = 0, high = a.n;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (a.matrices[middle].tile <= tile)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static __device__ __forceinline__ struct opt_scalars scalars_of(const struct matrix_args &a,
                                                                size_t r, double *sums)
{
    struct opt_scalars k = opt_of_range(a.k, a.groups[r], a.gscale ? *a.gscale : 1.0f);
    k.rows = (float)a.matrices[r].rows;
    k.columns = (float)a.matrices[r].columns;
#pragma unroll
    for (int j = 0; j < OPT_SUMS; j++)
        sums[j] = a.sums[j * a.stride + r];
    return k;
}

struct tile {          /* of a block */
    size_t begin, end; /* rows */
    size_t column;     /* of this thread */
    size_t rows_tile, columns_tile;
};

static __device__ __forceinline__ struct tile tile_at(const struct dev_matrix &x, size_t number)
{
    size_t across = (x.columns + DEV_TILE_COLUMNS - 1) / DEV_TILE_COLUMNS, t = number - x.tile;
    struct tile to;
    to.rows_tile = t / across;
    to.columns_tile = t % across;
    to.begin = to.rows_tile * DEV_TILE_ROWS;
    to.end = to.begin + DEV_TILE_ROWS < x.rows ? to.begin + DEV_TILE_ROWS : x.rows;
    to.column = to.columns_tile * DEV_TILE_COLUMNS + threadIdx.x;
    return to;
}

/* Value j of the matrix's lines, rows first, then columns. */
static __device__ __forceinline__ float *line_at(const struct matrix_args &a,
                                                 const struct dev_matrix &x, int j)
{
    return a.lines + x.lines + (size_t)j * (x.rows + x.columns);
}

/* Partial results of term j: of the rows of tiles in one column of tiles, and of the columns of
 * tiles in one row of them. */
static __device__ __forceinline__ float *row_partial(const struct matrix_args &a,
                                                     const struct dev_matrix &x, int j, size_t tile)
{
    size_t across = (x.columns + DEV_TILE_COLUMNS - 1) / DEV_TILE_COLUMNS;
    return a.partial + x.partial + ((size_t)j * across + tile) * x.rows;
}

static __device__ __forceinline__ float *
column_partial(const struct matrix_args &a, const struct dev_matrix &x, int j, size_t tile)
{
    size_t across = (x.columns + DEV_TILE_COLUMNS - 1) / DEV_TILE_COLUMNS,
           down = (x.rows + DEV_TILE_ROWS - 1) / DEV_TILE_ROWS;
    return a.partial + x.partial + OPT_LINES * across * x.rows +
           ((size_t)j * down + tile) * x.columns;
}

/* ---- the rows of opt.h, by number */
template <int RULE> struct reduce_rule;
template <int RULE> struct update_rule;
#define X(NAME, name, prepare_, how_, line_, sum_, count_, writes_)                                \
    template <> struct reduce_rule<OPT_MATRIX_REDUCE_##NAME> {                                     \
        enum { how = how_, first = line_, sum = sum_, count = count_, writes = writes_ };          \
        static __device__ __forceinline__ void prepare(struct opt_scalars *k, const double *sums)  \
        {                                                                                          \
            prepare_(k, sums);                                                                     \
        }                                                                                          \
        static __device__ __forceinline__ struct opt_terms terms(float p, float *m, float *v,      \
                                                                 float g,                          \
                                                                 const struct opt_cross *c,        \
                                                                 const struct opt_scalars *k)      \
        {                                                                                          \
            return opt_##name##_terms(p, m, v, g, c, k);                                           \
        }                                                                                          \
        static __device__ __forceinline__ float line(float before, float now,                      \
                                                     const struct opt_scalars *k)                  \
        {                                                                                          \
            return opt_##name##_line(before, now, k);                                              \
        }                                                                                          \
    };
OPT_MATRIX_REDUCE_LIST(X)
#undef X
#define X(NAME, name, prepare_)                                                                    \
    template <> struct update_rule<OPT_MATRIX_UPDATE_##NAME> {                                     \
        static __device__ __forceinline__ void prepare(struct opt_scalars *k, const double *sums)  \
        {                                                                                          \
            prepare_(k, sums);                                                                     \
        }                                                                                          \
        static __device__ __forceinline__ void cross(float line[OPT_LINES])                        \
        {                                                                                          \
            opt_##name##_cross(line);                                                              \
        }                                                                                          \
        static __device__ __forceinline__ float                                                    \
        move(float p, float m, float v, const struct opt_cross *c, const struct opt_scalars *k)    \
        {                                                                                          \
            return opt_##name##_move(p, m, v, c, k);                                               \
        }                                                                                          \
    };
OPT_MATRIX_UPDATE_LIST(X)
#undef X

template <int HOW> static __device__ __forceinline__ float joined(float a, float b)
{
    return HOW == OPT_MAX ? fmaxf(a, b) : a + b;
}

template <int HOW> static __device__ __forceinline__ float warp_joined(float x)
{
    return HOW == OPT_MAX ? warp_max(x) : warp_sum(x);
}

/* Terms are 0 or more with OPT_MAX, so 0 is neutral. */
template <int RULE> static __global__ void matrix_tiles(const struct matrix_args a)
{
    typedef struct reduce_rule<RULE> rule;
    __shared__ float held[rule::count][DEV_TILE_ROWS][WARPS];
    size_t r = matrix_of(a, blockIdx.x);
    if (stopped(a, r))
        return;
    const struct dev_matrix x = a.matrices[r];
    const struct tile t = tile_at(x, blockIdx.x);
    double sums[OPT_SUMS];
    struct opt_scalars k = scalars_of(a, r, sums);
    rule::prepare(&k, sums);
    bool inside = t.column < x.columns;
    struct opt_cross c = {{0, 0}, {0, 0}};
    float down[rule::count];
#pragma unroll
    for (int j = 0; j < OPT_LINES; j++)
        c.column[j] = inside ? line_at(a, x, j)[x.rows + t.column] : 0.0f;
#pragma unroll
    for (int j = 0; j < rule::count; j++)
        down[j] = 0;
    for (size_t i = t.begin; i < t.end; i++) {
        struct opt_terms term = {{0, 0, 0, 0}};
        size_t e = x.offset + i * x.columns + t.column;
#pragma unroll
        for (int j = 0; j < OPT_LINES; j++)
            c.row[j] = line_at(a, x, j)[i];
        if (inside) {
            float m = a.m ? a.m[e] : 0.0f, v = a.v ? a.v[e] : 0.0f;
            term = rule::terms(a.p[e], &m, &v, a.g[e], &c, &k);
            if (rule::writes & OPT_M)
                a.m[e] = m;
            if (rule::writes & OPT_V)
                a.v[e] = v;
        }
#pragma unroll
        for (int j = 0; j < rule::count; j++) {
            down[j] = joined<rule::how>(down[j], term.x[j]);
            float row = warp_joined<rule::how>(term.x[j]);
            if (threadIdx.x % WARP == 0)
                held[j][i - t.begin][threadIdx.x / WARP] = row;
        }
    }
#pragma unroll
    for (int j = 0; j < rule::count && (int)rule::how != OPT_TOTAL; j++)
        if (inside)
            column_partial(a, x, j, t.rows_tile)[t.column] = down[j];
    __syncthreads();
    size_t rows = t.end - t.begin;
    for (size_t i = threadIdx.x; i < rows * rule::count; i += THREADS) {
        int j = (int)(i / rows);
        float row = 0;
        for (int w = 0; w < WARPS; w++)
            row = joined<rule::how>(row, held[j][i % rows][w]);
        row_partial(a, x, j, t.columns_tile)[t.begin + i % rows] = row;
    }
}

/* A thread for each line; `blocks` for each matrix. */
template <int RULE> static __global__ void matrix_lines(const struct matrix_args a, unsigned blocks)
{
    typedef struct reduce_rule<RULE> rule;
    size_t r = blockIdx.x / blocks, i = (size_t)(blockIdx.x % blocks) * THREADS + threadIdx.x;
    const struct dev_matrix x = a.matrices[r];
    if (stopped(a, r) || i >= x.rows + x.columns)
        return;
    double sums[OPT_SUMS];
    struct opt_scalars k = scalars_of(a, r, sums);
    bool is_row = i < x.rows;
    size_t tiles = is_row ? (x.columns + DEV_TILE_COLUMNS - 1) / DEV_TILE_COLUMNS
                          : (x.rows + DEV_TILE_ROWS - 1) / DEV_TILE_ROWS;
#pragma unroll
    for (int j = 0; j < rule::count; j++) {
        float now = 0, *line = line_at(a, x, rule::first + j) + i;
        for (size_t t = 0; t < tiles; t++)
            now = joined<rule::how>(now, is_row ? row_partial(a, x, j, t)[i]
                                                : column_partial(a, x, j, t)[i - x.rows]);
        if ((int)rule::how == OPT_MEAN)
            now /= is_row ? k.columns : k.rows;
        *line = rule::line(*line, now, &k);
    }
}

/* A block for each matrix: over the lines of the rows, or over all partial sums of rows. */
template <int RULE> static __global__ void matrix_sums(const struct matrix_args a)
{
    typedef struct reduce_rule<RULE> rule;
    __shared__ double held[rule::count][WARP];
    size_t r = blockIdx.x;
    if (stopped(a, r))
        return;
    const struct dev_matrix x = a.matrices[r];
    size_t across = (x.columns + DEV_TILE_COLUMNS - 1) / DEV_TILE_COLUMNS,
           count = (int)rule::how == OPT_TOTAL ? x.rows * across : x.rows;
#pragma unroll
    for (int j = 0; j < rule::count; j++) {
        const float *from =
            (int)rule::how == OPT_TOTAL ? row_partial(a, x, j, 0) : line_at(a, x, rule::first + j);
        double sum = 0;
        float most = 0;
        for (size_t i = threadIdx.x; i < count; i += THREADS)
            if ((int)rule::how == OPT_MAX)
                most = fmaxf(most, from[i]);
            else
                sum += (double)from[i];
        if ((int)rule::how == OPT_MAX) { /* all but one thread of a warp count nothing */
            most = warp_max(most);
            if (threadIdx.x % WARP == 0)
                held[j][threadIdx.x / WARP] = (double)most;
            __syncthreads();
            for (int w = 0; w < WARPS; w++)
                sum = held[j][w] > sum ? held[j][w] : sum;
        } else {
            sum = block_sum(sum, held[j]);
        }
        if (threadIdx.x == 0)
            a.sums[(rule::sum + j) * a.stride + r] = sum;
    }
}

template <int RULE> static __global__ void matrix_move(const struct matrix_args a)
{
    typedef struct update_rule<RULE> rule;
    size_t r = matrix_of(a, blockIdx.x);
    if (stopped(a, r))
        return;
    const struct dev_matrix x = a.matrices[r];
    const struct tile t = tile_at(x, blockIdx.x);
    double sums[OPT_SUMS];
    struct opt_scalars k = scalars_of(a, r, sums);
    rule::prepare(&k, sums);
    if (t.column >= x.columns)
        return;
    struct opt_cross c;
#pragma unroll
    for (int j = 0; j < OPT_LINES; j++)
        c.column[j] = line_at(a, x, j)[x.rows + t.column];
    rule::cross(c.column);
    for (size_t i = t.begin; i < t.end; i++) {
        size_t e = x.offset + i * x.columns + t.column;
#pragma unroll
        for (int j = 0; j < OPT_LINES; j++)
            c.row[j] = line_at(a, x, j)[i];
        rule::cross(c.row);
        float p = rule::move(a.p[e], a.m ? a.m[e] : 0.0f, a.v ? a.v[e] : 0.0f, &c, &k);
        a.p[e] = p;
        if (a.model)
            a.model[e] = bf16_round(p);
    }
}

static struct matrix_args args_of(const struct dev_optim *a)
{
    struct matrix_args to = {};
    to.p = a->p, to.m = a->m, to.v = a->v, to.g = a->g;
    to.model = (uint16_t *)a->model;
    to.gscale = a->gscale;
    to.k = a->k;
    to.groups = a->groups;
    to.matrices = a->matrix.list;
    to.n = a->n;
    to.kind = a->kind;
    to.sums = a->sums;
    to.stride = a->sums_stride;
    to.lines = a->matrix.lines;
    to.partial = a->matrix.partial;
    return to;
}

template <int RULE> static void reduce(struct cuda *c, const struct dev_optim *a)
{
    const struct matrix_args args = args_of(a);
    unsigned blocks = blocks_for(a->matrix.longest, THREADS);
    LAUNCH(c, matrix_tiles<RULE>, blocks_for(a->matrix.tiles, 1), THREADS, 0, args);
    if ((int)reduce_rule<RULE>::how != OPT_TOTAL)
        LAUNCH(c, matrix_lines<RULE>, blocks_for(blocks * a->n, 1), THREADS, 0, args, blocks);
    LAUNCH(c, matrix_sums<RULE>, blocks_for(a->n, 1), THREADS, 0, args);
}

extern "C" void cuda_matrix_reduce(struct dev *d, enum opt_matrix_reduce rule,
                                   const struct dev_optim *a)
{
    if (!a->n)
        return;
    switch (rule) {
#define X(NAME, name, prepare, how, line, sum, count, writes)                                      \
    case OPT_MATRIX_REDUCE_##NAME:                                                                 \
        reduce<OPT_MATRIX_REDUCE_##NAME>(cuda_of(d), a);                                           \
        break;
        OPT_MATRIX_REDUCE_LIST(X)
#undef X
    case OPT_MATRIX_REDUCES:
        break;
    }
}

extern "C" void cuda_matrix_update(struct dev *d, enum opt_matrix_update rule,
                                   const struct dev_optim *a)
{
    if (!a->n)
        return;
    const struct matrix_args args = args_of(a);
    switch (rule) {
#define X(NAME, name, prepare)                                                                     \
    case OPT_MATRIX_UPDATE_##NAME:                                                                 \
        LAUNCH(cuda_of(d), matrix_move<OPT_MATRIX_UPDATE_##NAME>, blocks_for(a->matrix.tiles, 1),  \
               THREADS, 0, args);                                                                  \
        break;
        OPT_MATRIX_UPDATE_LIST(X)
#undef X
    case OPT_MATRIX_UPDATES:
        break;
    }
}
