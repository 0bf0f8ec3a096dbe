/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over packed sequences in bf16 with head dimensions up to 128 that are multiples of 8:
 * FlashAttention-2 (Dao 2023, 2307.08691) on mma.sync m16n8k16, f32 sums. Scores exist for one tile
 * at a time. Backward recomputes them from the log-sum-exp in two kernels, one that owns keys (dk,
 * dv) and one that owns queries (dq): 7 products of a tile instead of 5, but no atomics and no
 * second pass over partial sums, so gradients repeat bit for bit.
 *
 * Other types and head dimensions go to attention_plain.cu.
 *
 * Tiles in shared memory: rows of D bf16 values, in chunks of 16 bytes; chunk j of row r lies at
 * place j ^ (r mod 8), so that the eight rows of one ldmatrix matrix are in different banks.
 * Fragments of m16n8k16, lane = 4 g + t: A holds rows g, g+8 and columns 2t, 2t+1, 2t+8, 2t+9;
 * B rows 2t, 2t+1, 2t+8, 2t+9 of column g; C rows g, g+8, columns 2t, 2t+1.
 * |err| against attention_plain: 2^-7 of the largest value, since probabilities and ds enter the
 * products as bf16.
 */
#include "kernels/cuda/tile.cuh"

#ifndef CUDA_EMULATED
static __device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Four 8x8 matrices; lane l gives the address of row l % 8 of matrix l / 8. */
static __device__ __forceinline__ void ldmatrix(uint32_t *to, const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

static __device__ __forceinline__ void ldmatrix_transposed(uint32_t *to, const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

static __device__ __forceinline__ void mma(float *c, const uint32_t *a, const uint32_t *b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* 16 bytes to shared memory, zeros unless real. */
static __device__ __forceinline__ void copy_async(void *to, const void *from, bool real)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(to)), "l"(from), "r"(real ? 16 : 0)
                 : "memory");
}

static __device__ __forceinline__ void copy_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until at most `left` of the committed groups are under way. */
template <int left> static __device__ __forceinline__ void copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}
#endif

enum { TILE = 16 }; /* rows of one mma */

/* ---- tiles in shared memory ---- */
template <int D>
static __device__ __forceinline__ uint16_t *tile_at(uint16_t *tile, int row, int chunk)
{
    int place =
        D >= 64 ? chunk ^ (row & 7) : chunk ^ (row >> 1 & 3); /* D 32: two rows share 128 bytes */
    return tile + row * D + place * 8;
}

/* Rows first .. first + ROWS of x (row stride in elements) into a tile; zeros from `end` on and in
 * the columns that pad HD to D. */
template <int ROWS, int D, int THREADS>
static __device__ __forceinline__ void tile_load(uint16_t *tile, const uint16_t *x, size_t stride,
                                                 int first, int end, int HD)
{
    enum { CHUNKS = D / 8, EACH = ROWS * CHUNKS / THREADS };
    static_assert(ROWS * CHUNKS % THREADS == 0, "every thread loads the same number of chunks");
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int n = i * THREADS + (int)threadIdx.x, row = n / CHUNKS, chunk = n % CHUNKS;
        bool real = first + row < end && chunk * 8 < HD;
        const uint16_t *from = x + (real ? (size_t)(first + row) * stride + chunk * 8 : 0);
        copy_async(tile_at<D>(tile, row, chunk), from, real);
    }
}

/* A fragment: rows row .. row + 16, columns 16 k .. of a tile. */
template <int D>
static __device__ __forceinline__ void fragment_a(uint32_t *to, uint16_t *tile, int row, int k)
{
    int lane = threadIdx.x % WARP;
    ldmatrix(to, tile_at<D>(tile, row + lane % 16, 2 * k + lane / 16));
}

/* B fragments of two neighbouring n tiles, of the transpose: column n of B is row n of the tile. */
template <int D>
static __device__ __forceinline__ void fragment_rows(uint32_t *to, uint16_t *tile, int n, int k)
{
    int lane = threadIdx.x % WARP;
    ldmatrix(to, tile_at<D>(tile, n + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
}

/* B fragments of n tiles 2n and 2n + 1: row k of B is row k of the tile. */
template <int D>
static __device__ __forceinline__ void fragment_columns(uint32_t *to, uint16_t *tile, int k, int n)
{
    int lane = threadIdx.x % WARP;
    ldmatrix_transposed(to, tile_at<D>(tile, k + lane % 16, 2 * n + lane / 16));
}

/* c (16, 8 N) += a (16, D) b^T, b the first 8 N rows of a tile; fragments of a from registers. */
template <int D, int N>
static __device__ __forceinline__ void product_rows(float (*c)[4], const uint32_t (*a)[4],
                                                    uint16_t *b)
{
#pragma unroll
    for (int k = 0; k < D / 16; k++)
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t f[4];
            fragment_rows<D>(f, b, n * 8, k);
            mma(c[n], a[k], f);
            mma(c[n + 1], a[k], f + 2);
        }
}

/* The same with a's rows row .. row + 16 read from a tile: fewer registers, more shared memory
 * reads. */
template <int D, int N>
static __device__ __forceinline__ void product_tiles(float (*c)[4], uint16_t *a, int row,
                                                     uint16_t *b)
{
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t left[4];
        fragment_a<D>(left, a, row, k);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t f[4];
            fragment_rows<D>(f, b, n * 8, k);
            mma(c[n], left, f);
            mma(c[n + 1], left, f + 2);
        }
    }
}

/* c (16, D) += p (16, 8 N) b, p in accumulators, b the first 8 N rows of a tile. */
template <int D, int N>
static __device__ __forceinline__ void product_columns(float (*c)[4], const float (*p)[4],
                                                       uint16_t *b)
{
#pragma unroll
    for (int k = 0; k < N / 2; k++) {
        uint32_t a[4] = {pair(p[2 * k][0], p[2 * k][1]), pair(p[2 * k][2], p[2 * k][3]),
                         pair(p[2 * k + 1][0], p[2 * k + 1][1]),
                         pair(p[2 * k + 1][2], p[2 * k + 1][3])};
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t f[4];
            fragment_columns<D>(f, b, k * 16, n);
            mma(c[2 * n], a, f);
            mma(c[2 * n + 1], a, f + 2);
        }
    }
}

template <int N> static __device__ __forceinline__ void clear(float (*c)[4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
        c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
}

struct rows_out { /* rows first .. end of one head of a tensor; stride in elements */
    uint16_t *x;
    size_t stride;
    int first, end, HD;
};

/* Stores a warp's 16 rows of accumulators c as bf16, 16 bytes a lane, by way of its rows of `tile`,
 * which no other warp reads any more. */
template <int D>
static __device__ __forceinline__ void rows_store(const struct rows_out &to, uint16_t *tile,
                                                  int row, const float (*c)[4])
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
        *(uint32_t *)(tile_at<D>(tile, row + g, n) + 2 * t) = pair(c[n][0], c[n][1]);
        *(uint32_t *)(tile_at<D>(tile, row + g + 8, n) + 2 * t) = pair(c[n][2], c[n][3]);
    }
    __syncwarp();
    for (int i = lane; i < TILE * D / 8; i += WARP) {
        int r = i / (D / 8), chunk = i % (D / 8);
        if (to.first + row + r < to.end && chunk * 8 < to.HD)
            *(uint4 *)(to.x + (size_t)(to.first + row + r) * to.stride + chunk * 8) =
                *(const uint4 *)tile_at<D>(tile, row + r, chunk);
    }
}

/* ---- what a block works on ---- */
struct attention_args {
    const uint16_t *qkv, *dout;
    uint16_t *out, *dqkv;
    const int32_t *cu;
    float *lse;        /* (NH, T) */
    const float *dots; /* (NH, T): sum(dout out) */
    int sequences, T, HD, C, causal;
    int reach;               /* keys further from a query are hidden: dev_attention_reach */
    int group;               /* query heads that share keys and values */
    int keys, width;         /* columns of qkv where keys begin, between keys and values */
    int stride;              /* of qkv's rows; an int takes one register where addresses are made */
    float scale, scale_log2; /* scale / ln 2: scores in units of log 2 */
};
struct part {          /* of one sequence, one head */
    int first, length; /* tokens first .. first + length */
    int begin;         /* first row of this block's tile; >= length: nothing to do */
    int column;        /* of the head in (T, C) and in q */
    int shared;        /* of its keys in k, of its values in v */
    int head;
};

/* blockIdx.x runs over tiles first, sequences within: for causal queries the longest work comes
 * first. */
static __device__ __forceinline__ struct part part_of(const struct attention_args &a, int rows,
                                                      bool last_first)
{
    struct part p;
    int sequence = (int)(blockIdx.x % (unsigned)a.sequences),
        tiles = (int)(gridDim.x / (unsigned)a.sequences);
    int tile = (int)(blockIdx.x / (unsigned)a.sequences);
    p.first = a.cu[sequence];
    p.length = a.cu[sequence + 1] - p.first;
    p.begin = (last_first ? tiles - 1 - tile : tile) * rows;
    p.head = (int)blockIdx.y;
    p.column = p.head * a.HD;
    p.shared = p.head / a.group * a.HD;
    return p;
}

/* ---- forward ---- */
/* Scores of rows row, row + 8 (lane's) against keys from key0: hidden ones become -infinity. */
template <int N, bool WINDOW>
static __device__ __forceinline__ void mask(float (*s)[4], int row, int key0, int length,
                                            bool causal, int reach)
{
    int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int key = key0 + n * 8 + 2 * t + i % 2, behind = row + i / 2 * 8 - key;
            if (key >= length || (causal && behind < 0) ||
                (WINDOW && (behind > reach || -behind > reach)))
                s[n][i] = -INFINITY;
        }
}

/* Whether a key of key0 .. key0 + keys is hidden from a query of the warp's tile at `row0`. */
template <bool WINDOW>
static __device__ __forceinline__ bool masked(const struct attention_args &a, const struct part &p,
                                              int row0, int key0, int keys)
{
    bool far = WINDOW && (key0 + a.reach < row0 + TILE - 1 || key0 + keys - 1 > row0 + a.reach);
    return key0 + keys > p.length || (a.causal && key0 + keys > row0) || far;
}

/* Online softmax of one tile: s becomes probabilities relative to the new maximum, o is brought to
 * it. top, sum: of rows g and g + 8; sum is this lane's part. */
template <int N, int OUT>
static __device__ __forceinline__ void softmax_tile(float (*s)[4], float (*o)[4], float *top,
                                                    float *sum, float scale)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float high = top[h];
#pragma unroll
        for (int n = 0; n < N; n++)
            high = fmaxf(high, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
        high = fmaxf(high, __shfl_xor_sync(WARP_ALL, high, 1));
        high = fmaxf(high, __shfl_xor_sync(WARP_ALL, high, 2));
        float zero = high == -INFINITY ? 0.0f : high * scale; /* a row that sees no key yet */
        float shrink = exp2_hardware(top[h] * scale - zero);
        top[h] = high;
        sum[h] *= shrink;
#pragma unroll
        for (int n = 0; n < OUT; n++) {
            o[n][2 * h] *= shrink;
            o[n][2 * h + 1] *= shrink;
        }
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 2 * h; i < 2 * h + 2; i++) {
                s[n][i] = exp2_hardware(s[n][i] * scale - zero);
                sum[h] += s[n][i];
            }
    }
}

/* One more than the last key that the queries of this tile see. */
template <bool WINDOW>
static __device__ __forceinline__ int keys_end(const struct attention_args &a, const struct part &p,
                                               int rows)
{
    int end = a.causal ? p.begin + rows : WINDOW ? p.begin + rows + a.reach : p.length;
    return end < p.length ? end : p.length;
}

/* Where the tile of `each` begins that holds the first token within reach of p.begin. */
template <bool WINDOW>
static __device__ __forceinline__ int reach_begin(const struct attention_args &a,
                                                  const struct part &p, int each)
{
    return WINDOW && p.begin > a.reach ? (p.begin - a.reach) / each * each : 0;
}

/* Blocks of a forward kernel that a multiprocessor must hold; 0: the compiler chooses. Four blocks
 * of 128 threads have 128 registers a thread: the kernel for D = 64 takes 133, which leaves room
 * for three, and spills 12 bytes with the bound. */
static constexpr int fwd_blocks(int D, bool window)
{
    return D == 64 && !window ? 4 : 0;
}

template <int D, int WARPS, int KEYS, bool WINDOW>
static __global__ void __launch_bounds__(WARPS *WARP, fwd_blocks(D, WINDOW))
    attention_fwd(const struct attention_args a)
{
    enum { ROWS = WARPS * TILE, THREADS = WARPS * WARP, N = KEYS / 8, OUT = D / 8 };
    SHARED_BYTES(shared);
    uint16_t *q = (uint16_t *)shared, *k = q + ROWS * D,
             *v = k + 2 * KEYS * D; /* k, v: two stages */
    const struct part p = part_of(a, ROWS, a.causal);
    if (p.begin >= p.length)
        return;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP,
        row = p.begin + warp * TILE + lane / 4;
    size_t stride = (size_t)a.stride;
    const uint16_t *base = a.qkv + (size_t)p.first * stride;
    const uint16_t *keys = base + a.keys + p.shared;
    int begin = reach_begin<WINDOW>(a, p, KEYS), end = keys_end<WINDOW>(a, p, ROWS);
    tile_load<ROWS, D, THREADS>(q, base + p.column, stride, p.begin, p.length, a.HD);
    tile_load<KEYS, D, THREADS>(k, keys, stride, begin, p.length, a.HD);
    copy_commit();
    tile_load<KEYS, D, THREADS>(v, keys + a.width, stride, begin, p.length, a.HD);
    copy_commit();
    uint32_t qf[D / 16][4];
    float o[OUT][4], top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
    clear<OUT>(o);
    for (int key = begin, stage = 0; key < end; key += KEYS, stage ^= 1) {
        uint16_t *kt = k + stage * KEYS * D, *vt = v + stage * KEYS * D;
        copy_wait<1>(); /* this k, and q; v is under way */
        __syncthreads();
        if (key == begin)
#pragma unroll
            for (int i = 0; i < D / 16; i++)
                fragment_a<D>(qf[i], q, warp * TILE, i);
        float s[N][4];
        clear<N>(s);
        product_rows<D, N>(s, qf, kt);
        if (key + KEYS < end)
            tile_load<KEYS, D, THREADS>(k + (stage ^ 1) * KEYS * D, keys, stride, key + KEYS,
                                        p.length, a.HD);
        copy_commit();
        if (masked<WINDOW>(a, p, p.begin + warp * TILE, key, KEYS))
            mask<N, WINDOW>(s, row, key, p.length, a.causal, a.reach);
        softmax_tile<N, OUT>(s, o, top, sum, a.scale_log2);
        copy_wait<1>(); /* this v; the next k is under way */
        __syncthreads();
        product_columns<D, N>(o, s, vt);
        if (key + KEYS < end)
            tile_load<KEYS, D, THREADS>(v + (stage ^ 1) * KEYS * D, keys + a.width, stride,
                                        key + KEYS, p.length, a.HD);
        copy_commit();
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        sum[h] += __shfl_xor_sync(WARP_ALL, sum[h], 1);
        sum[h] += __shfl_xor_sync(WARP_ALL, sum[h], 2);
        if (lane % 4 == 0 && row + 8 * h < p.length)
            a.lse[(size_t)p.head * a.T + p.first + row + 8 * h] = top[h] * a.scale + logf(sum[h]);
        float inverse = sum[h] > 0 ? 1.0f / sum[h] : 0.0f; /* rows after the sequence */
#pragma unroll
        for (int n = 0; n < OUT; n++) {
            o[n][2 * h] *= inverse;
            o[n][2 * h + 1] *= inverse;
        }
    }
    /* q's rows of this warp were read by this warp alone, before the loop's barriers. */
    rows_store<D>({a.out + (size_t)p.first * a.C + p.column, (size_t)a.C, p.begin, p.length, a.HD},
                  q, warp * TILE, o);
}

/* ---- backward ---- */
/* A tile of queries with their gradients and statistics, of one head. */
struct queries {
    uint16_t *q, *dout;
    float *lse, *dots;
};

template <int QUERIES, int D, int THREADS>
static __device__ __forceinline__ void queries_load(const struct queries &to,
                                                    const struct attention_args &a,
                                                    const struct part &p, int head, int first)
{
    size_t column = (size_t)head * a.HD, statistics = (size_t)head * a.T + p.first;
    tile_load<QUERIES, D, THREADS>(to.q, a.qkv + (size_t)p.first * (size_t)a.stride + column,
                                   (size_t)a.stride, first, p.length, a.HD);
    tile_load<QUERIES, D, THREADS>(to.dout, a.dout + (size_t)p.first * a.C + column, a.C, first,
                                   p.length, a.HD);
    for (int i = threadIdx.x; i < QUERIES; i += THREADS) {
        bool real = first + i < p.length; /* +infinity: p = 0 */
        to.lse[i] = real ? a.lse[statistics + first + i] * LOG2E : INFINITY;
        to.dots[i] = real ? a.dots[statistics + first + i] : 0.0f;
    }
}

/* Blocks of a backward kernel that a multiprocessor must hold; 0: the compiler chooses. Three
 * blocks of 128 threads have 168 registers a thread. Without this bound the kernels for D = 64 take
 * 170 and 171 and the one of queries for D = 128 takes 173, which leaves room for two; with it
 * bwd_keys<64> spills 12 bytes, bwd_queries<128> 24. The one of keys for D = 128 takes 252. With a
 * window the bound would spill 96 bytes and more. */
static constexpr int bwd_blocks(int D, bool window, bool keys)
{
    return !window && (D == 64 || (D == 128 && !keys)) ? 3 : 0;
}

/* Keys own the block: rows of s are keys, columns queries. s^T = k q^T, dp^T = v dout^T,
 * dv += p^T dout, dk += ds^T q, ds = p (dp - dots). p.head numbers keys and values here; the
 * queries of all heads that share them come one head after another, as if they were one sequence
 * of tiles. */
template <int D, int WARPS, int QUERIES, bool WINDOW>
static __global__ void __launch_bounds__(WARPS *WARP, bwd_blocks(D, WINDOW, true))
    attention_bwd_keys(const struct attention_args a)
{
    enum { ROWS = WARPS * TILE, THREADS = WARPS * WARP, N = QUERIES / 8, OUT = D / 8 };
    SHARED_BYTES(shared);
    uint16_t *k = (uint16_t *)shared, *v = k + ROWS * D, *q = v + ROWS * D,
             *dout = q + 2 * QUERIES * D;
    float *lse = (float *)(dout + 2 * QUERIES * D), *dots = lse + 2 * QUERIES; /* two stages each */
    const struct part p = part_of(a, ROWS, false);
    if (p.begin >= p.length)
        return;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    int key = p.begin + warp * TILE + g;
    size_t stride = (size_t)a.stride;
    const uint16_t *base = a.qkv + (size_t)p.first * stride + p.column;
    /* Earlier queries and later ones see none of these keys. */
    int start = a.causal ? p.begin / QUERIES * QUERIES : reach_begin<WINDOW>(a, p, QUERIES);
    int stop = WINDOW && p.begin + ROWS + a.reach < p.length ? p.begin + ROWS + a.reach : p.length;
    float dk[OUT][4], dv[OUT][4];
    clear<OUT>(dk);
    clear<OUT>(dv);
    tile_load<ROWS, D, THREADS>(k, base + a.keys, stride, p.begin, p.length, a.HD);
    tile_load<ROWS, D, THREADS>(v, base + a.keys + a.width, stride, p.begin, p.length, a.HD);
    int head = p.head * a.group, heads_end = head + a.group, query = start;
    queries_load<QUERIES, D, THREADS>({q, dout, lse, dots}, a, p, head, query);
    copy_commit();
    for (int stage = 0; head < heads_end; stage ^= 1) {
        int other = stage ^ 1, next = query + QUERIES, next_head = head;
        if (next >= stop)
            next = start, next_head = head + 1;
        if (next_head < heads_end)
            queries_load<QUERIES, D, THREADS>({q + other * QUERIES * D, dout + other * QUERIES * D,
                                               lse + other * QUERIES, dots + other * QUERIES},
                                              a, p, next_head, next);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        uint16_t *qt = q + stage * QUERIES * D, *dt = dout + stage * QUERIES * D;
        float s[N][4], ds[N][4];
        clear<N>(s);
        clear<N>(ds);
        product_tiles<D, N>(s, k, warp * TILE, qt);
        product_tiles<D, N>(ds, v, warp * TILE, dt);
        int key0 = p.begin + warp * TILE;
        bool hidden =
            (a.causal && query < key0 + TILE) ||
            (WINDOW && (query + a.reach < key0 + TILE - 1 || query + QUERIES - 1 > key0 + a.reach));
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int column = n * 8 + 2 * t + i % 2, behind = query + column - (key + i / 2 * 8);
                float x = exp2_hardware(s[n][i] * a.scale_log2 - lse[stage * QUERIES + column]);
                if (hidden && ((a.causal && behind < 0) ||
                               (WINDOW && (behind > a.reach || -behind > a.reach))))
                    x = 0;
                s[n][i] = x;
                ds[n][i] = x * (ds[n][i] - dots[stage * QUERIES + column]);
            }
        product_columns<D, N>(dv, s, dt);
        product_columns<D, N>(dk, ds, qt);
        __syncthreads(); /* all warps have read this stage */
        query = next, head = next_head;
    }
    copy_wait<0>();
#pragma unroll
    for (int n = 0; n < OUT; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            dk[n][i] *= a.scale;
    /* k's and v's rows of this warp are read by this warp alone. */
    uint16_t *to = a.dqkv + (size_t)p.first * stride + p.column;
    rows_store<D>({to + a.keys, stride, p.begin, p.length, a.HD}, k, warp * TILE, dk);
    rows_store<D>({to + a.keys + a.width, stride, p.begin, p.length, a.HD}, v, warp * TILE, dv);
}

/* Queries own the block: dq += ds k. */
template <int D, int WARPS, int KEYS, bool WINDOW>
static __global__ void __launch_bounds__(WARPS *WARP, bwd_blocks(D, WINDOW, false))
    attention_bwd_queries(const struct attention_args a)
{
    enum { ROWS = WARPS * TILE, THREADS = WARPS * WARP, N = KEYS / 8, OUT = D / 8 };
    SHARED_BYTES(shared);
    uint16_t *q = (uint16_t *)shared, *dout = q + ROWS * D, *k = dout + ROWS * D,
             *v = k + 2 * KEYS * D;
    const struct part p = part_of(a, ROWS, a.causal);
    if (p.begin >= p.length)
        return;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP,
        row = p.begin + warp * TILE + lane / 4;
    size_t stride = (size_t)a.stride, statistics = (size_t)p.head * a.T + p.first;
    const uint16_t *base = a.qkv + (size_t)p.first * stride;
    const uint16_t *keys = base + a.keys + p.shared;
    int begin = reach_begin<WINDOW>(a, p, KEYS), end = keys_end<WINDOW>(a, p, ROWS);
    float dq[OUT][4], lse[2], dots[2];
    clear<OUT>(dq);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        bool real = row + 8 * h < p.length;
        lse[h] = real ? a.lse[statistics + row + 8 * h] * LOG2E : INFINITY;
        dots[h] = real ? a.dots[statistics + row + 8 * h] : 0.0f;
    }
    tile_load<ROWS, D, THREADS>(q, base + p.column, stride, p.begin, p.length, a.HD);
    tile_load<ROWS, D, THREADS>(dout, a.dout + (size_t)p.first * a.C + p.column, a.C, p.begin,
                                p.length, a.HD);
    for (int key = begin - KEYS, stage = 1; key < end; key += KEYS, stage ^= 1) {
        int next = key + KEYS, other = stage ^ 1;
        __syncthreads(); /* all warps have read the other stage */
        if (next < end) {
            tile_load<KEYS, D, THREADS>(k + other * KEYS * D, keys, stride, next, p.length, a.HD);
            tile_load<KEYS, D, THREADS>(v + other * KEYS * D, keys + a.width, stride, next,
                                        p.length, a.HD);
        }
        copy_commit();
        if (key < begin)
            continue; /* the first turn only loads */
        copy_wait<1>();
        __syncthreads();
        uint16_t *kt = k + stage * KEYS * D, *vt = v + stage * KEYS * D;
        float s[N][4], ds[N][4];
        clear<N>(s);
        clear<N>(ds);
        product_tiles<D, N>(s, q, warp * TILE, kt);
        product_tiles<D, N>(ds, dout, warp * TILE, vt);
        if (masked<WINDOW>(a, p, p.begin + warp * TILE, key, KEYS))
            mask<N, WINDOW>(s, row, key, p.length, a.causal, a.reach);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                ds[n][i] =
                    exp2_hardware(s[n][i] * a.scale_log2 - lse[i / 2]) * (ds[n][i] - dots[i / 2]);
        product_columns<D, N>(dq, ds, kt);
    }
    copy_wait<0>();
#pragma unroll
    for (int n = 0; n < OUT; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            dq[n][i] *= a.scale;
    rows_store<D>({a.dqkv + (size_t)p.first * stride + p.column, stride, p.begin, p.length, a.HD},
                  q, warp * TILE, dq);
}

/* ---- launch ---- */
static int longest(const struct dev_attention *a)
{
    int32_t most = 0;
    for (size_t s = 0; s < a->sequences; s++) {
        int32_t length = a->cu_seqlens_host[s + 1] - a->cu_seqlens_host[s];
        most = length > most ? length : most;
    }
    return most;
}

static struct attention_args args_of(const struct dev_attention *a)
{
    struct attention_args x = {};
    ASSERT(a->cu_seqlens_host[0] == 0 && (size_t)a->cu_seqlens_host[a->sequences] == a->T);
    x.qkv = (const uint16_t *)a->qkv;
    x.cu = a->cu_seqlens;
    x.lse = a->lse;
    x.sequences = (int)a->sequences, x.T = (int)a->T, x.HD = (int)a->HD, x.C = (int)(a->NH * a->HD);
    ASSERT(a->KVH && a->NH % a->KVH == 0);
    x.group = (int)(a->NH / a->KVH);
    x.keys = x.C, x.width = (int)(a->KVH * a->HD);
    x.stride = x.C + 2 * x.width;
    x.causal = a->causal;
    x.reach = (int)dev_attention_reach(a);
    x.scale = a->scale, x.scale_log2 = a->scale * LOG2E;
    return x;
}

/* Whether the kernels here take it. */
static bool tiled(const struct cuda *c, const struct dev_attention *a, const void *x, const void *y)
{
    return c->dev.model_type == DTYPE_BF16 && a->HD % 8 == 0 && a->HD <= 128 && aligned16(a->qkv) &&
           aligned16(x) && aligned16(y);
}

static dim3 grid_of(const struct dev_attention *a, int rows, size_t heads)
{
    return dim3(blocks_for(a->sequences * ((longest(a) + rows - 1) / rows), 1), (unsigned)heads);
}

template <int D, int WARPS, int KEYS, bool WINDOW>
static void fwd_launch(struct cuda *c, const struct dev_attention *a,
                       const struct attention_args &x)
{
    size_t bytes = (WARPS * TILE + 4 * KEYS) * D * sizeof(uint16_t);
    SHARED_ALLOW(c, (attention_fwd<D, WARPS, KEYS, WINDOW>), bytes);
    LAUNCH(c, (attention_fwd<D, WARPS, KEYS, WINDOW>), grid_of(a, WARPS * TILE, a->NH),
           WARPS * WARP, bytes, x);
}

template <int D, int WARPS, int COLUMNS, bool WINDOW>
static void bwd_launch(struct cuda *c, const struct dev_attention *a,
                       const struct attention_args &x)
{
    size_t bytes = (2 * WARPS * TILE + 4 * COLUMNS) * D * sizeof(uint16_t);
    size_t statistics = 4 * COLUMNS * sizeof(float);
    SHARED_ALLOW(c, (attention_bwd_keys<D, WARPS, COLUMNS, WINDOW>), bytes + statistics);
    SHARED_ALLOW(c, (attention_bwd_queries<D, WARPS, COLUMNS, WINDOW>), bytes);
    LAUNCH(c, (attention_bwd_keys<D, WARPS, COLUMNS, WINDOW>), grid_of(a, WARPS * TILE, a->KVH),
           WARPS * WARP, bytes + statistics, x);
    LAUNCH(c, (attention_bwd_queries<D, WARPS, COLUMNS, WINDOW>), grid_of(a, WARPS * TILE, a->NH),
           WARPS * WARP, bytes, x);
}

/* The kernels without a window are compiled without its checks, which cost registers. */
template <int D, int WARPS, int KEYS>
static void run_fwd(struct cuda *c, const struct dev_attention *a, const struct attention_args &x)
{
    if (a->window)
        fwd_launch<D, WARPS, KEYS, true>(c, a, x);
    else
        fwd_launch<D, WARPS, KEYS, false>(c, a, x);
}

template <int D, int WARPS, int COLUMNS>
static void run_bwd(struct cuda *c, const struct dev_attention *a, const struct attention_args &x)
{
    if (a->window)
        bwd_launch<D, WARPS, COLUMNS, true>(c, a, x);
    else
        bwd_launch<D, WARPS, COLUMNS, false>(c, a, x);
}

extern "C" void cuda_attention_own_fwd(struct cuda *c, void *out, const struct dev_attention *a)
{
    if (!a->T)
        return;
    if (!tiled(c, a, out, out)) {
        cuda_attention_plain_fwd(c, out, a);
        return;
    }
    struct attention_args x = args_of(a);
    x.out = (uint16_t *)out;
    if (a->HD <= 32)
        run_fwd<32, 4, 64>(c, a, x);
    else if (a->HD <= 64)
        run_fwd<64, 4, 64>(c, a, x);
    else
        run_fwd<128, 4, 64>(c, a, x);
}

extern "C" void cuda_attention_own_bwd(struct cuda *c, void *dqkv, const void *dout,
                                       const void *out, const struct dev_attention *a)
{
    float *dots = (float *)cuda_scratch(c, CUDA_SLOT_OP, a->NH * a->T * sizeof *dots);
    if (!dots || !a->T)
        return;
    cuda_attention_dots(c, dots, dout, out, a);
    if (!tiled(c, a, dqkv, dout)) {
        cuda_attention_plain_bwd(c, dqkv, dout, out, dots, a);
        return;
    }
    struct attention_args x = args_of(a);
    x.dqkv = (uint16_t *)dqkv;
    x.dout = (const uint16_t *)dout;
    x.dots = dots;
    if (a->HD <= 32)
        run_bwd<32, 4, 64>(c, a, x);
    else if (a->HD <= 64)
        run_bwd<64, 4, 64>(c, a, x);
    else
        run_bwd<128, 4, 32>(c, a, x);
}
