/* topk: the 1/64 of the values with the largest magnitude, chunk by chunk of 4096: 64 of them
 * (SparseLoCo, 2508.15706, in the form of field.md 2.4), equal magnitudes by lowest index. Per
 * block 5 bytes and per chunk 4: count/64 rounded (count * 5/256 + chunks * 4) + count/256 bytes of
 * codes, 100 bytes for 4096 values, 0.195 bits per value.
 *
 * A chunk of n values, n a multiple of 256 and at most 4096, k = n/64:
 * - lo, hi: two magnitudes, bf16;
 * - k times two bits, in order of index: level (1: hi) and sign (2), from the low bits up: k/4
 * bytes;
 * - n/64 bytes of gaps g = index - index before - 1, Rice code: g/32 ones, a zero, the 5 low bits;
 *   zeros fill up. k codes take at most 6k + (n - k)/32 bits, less than 8k: the size is fixed, so a
 *   payload of another size is refused unread.
 * lo and hi are Lloyd's: the means above and below the middle between them, cut to bf16 and to
 * twice the smallest of their group. So magnitudes lie between half of what is sent and 2^15 of it
 * (else the group sends 0), and the residual is exact: no larger than what z's last place can
 * count. Relayed. */
#include <string.h>
#include "kernels/scalar/bf16.h"
#include "outer/codec/codec_work.h"

enum { CHUNK = 4096, SHARE = 64, K_MAX = CHUNK / SHARE, RICE = 5, ROUNDS = 6, LEVEL_BYTES = 4 };
#define INFINITE 0x7f800000

static int32_t magnitude(float z)
{
    return (int32_t)(float_bits(z) & 0x7fffffffu); /* orders as the floats do; NaN above infinity */
}

static size_t count_from(const int32_t *size, size_t n, int32_t bound)
{
    int32_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += size[i] >= bound;
    return (size_t)count;
}

/* A bound with at least k at or above it: the smallest of k maxima over disjoint groups. */
static int32_t low_bound(const int32_t *size, size_t n, size_t k)
{
    int32_t most[K_MAX] = {0}, least = INT32_MAX;
    for (size_t i = 0; i < n; i += k)
        for (size_t j = 0; j < k; j++)
            most[j] = size[i + j] > most[j] ? size[i + j] : most[j];
    for (size_t j = 0; j < k; j++)
        least = most[j] < least ? most[j] : least;
    return least;
}

/* The k-th largest of n: the largest bound with k at or above it. */
static int32_t kth_largest(const int32_t *size, size_t n, size_t k, int32_t low)
{
    int64_t high = (int64_t)INT32_MAX + 1, at = low; /* count_from(at) >= k > count_from(high) */
    while (high - at > 1) {
        int64_t middle = (at + high) / 2;
        if (count_from(size, n, (int32_t)middle) >= k)
            at = middle;
        else
            high = middle;
    }
    return (int32_t)at;
}

/* Indices of the k largest, ascending. */
static void largest(uint16_t *index, const float *z, size_t n, size_t k)
{
    int32_t size[CHUNK], some[CHUNK];
    uint16_t where[CHUNK];
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        size[i] = magnitude(z[i]);
    int32_t low = low_bound(size, n, k);
    for (size_t i = 0; i < n; i++) { /* without a branch: one in ten is kept */
        where[kept] = (uint16_t)i;
        some[kept] = size[i];
        kept += size[i] >= low;
    }
    int32_t bound = kth_largest(some, kept, k, low);
    size_t equal = k - count_from(some, kept, bound + (bound < INT32_MAX)), got = 0;
    for (size_t i = 0; i < kept && got < k; i++) {
        bool take = some[i] > bound || (some[i] == bound && equal);
        equal -= take && some[i] == bound;
        index[got] = where[i];
        got += take;
    }
    ASSERT(got == k);
}

struct group {
    double sum, smallest, largest;
    unsigned count;
};

/* The entries at or above the bound, or those below it. */
static struct group group_of(const float *size, size_t k, double bound, bool above)
{
    struct group g = {.smallest = 0};
    for (size_t i = 0; i < k; i++) {
        double x = (double)size[i];
        if ((x >= bound) != above)
            continue;
        g.smallest = g.count && g.smallest < x ? g.smallest : x;
        g.largest = g.largest > x ? g.largest : x;
        g.sum += x;
        g.count++;
    }
    return g;
}

/* bf16 towards zero; 0 where the group is too wide for an exact residual. */
static uint16_t level_of(const struct group *g)
{
    if (!g->count)
        return 0;
    double mean = g->sum / g->count, most = 2 * g->smallest;
    uint16_t cut = (uint16_t)(float_bits((float)(mean < most ? mean : most)) >> 16);
    bool fits = cut < INFINITE >> 16 && g->largest <= 0x1p15 * (double)bf16_float(cut);
    return fits ? cut : 0;
}

/* Where Lloyd's iteration parts the magnitudes after a fixed number of rounds. */
static double parting(const float *size, size_t k)
{
    struct group all = group_of(size, k, 0, true);
    double bound = (all.smallest + all.largest) / 2;
    for (int i = 0; i < ROUNDS; i++) {
        struct group below = group_of(size, k, bound, false),
                     above = group_of(size, k, bound, true);
        if (!below.count || !above.count)
            break;
        bound = (below.sum / below.count + above.sum / above.count) / 2;
    }
    return bound;
}

struct bits { /* little-endian within a stream of `size` bits */
    uint8_t *out;
    const uint8_t *in;
    size_t at, size;
};

static void put(struct bits *b, uint32_t value, unsigned n)
{
    for (unsigned i = 0; i < n; i++, b->at++)
        b->out[b->at / 8] |= (uint8_t)((value >> i & 1) << b->at % 8);
}

/* Past the end: zeros, and `at` says so. */
static uint32_t take(struct bits *b, unsigned n)
{
    uint32_t value = 0;
    for (unsigned i = 0; i < n; i++, b->at++)
        value |= b->at < b->size ? (uint32_t)(b->in[b->at / 8] >> b->at % 8 & 1) << i : 0;
    return value;
}

static void put_index(struct bits *b, uint32_t gap)
{
    for (uint32_t i = 0; i < gap >> RICE; i++)
        put(b, 1, 1);
    put(b, (gap & 31) << 1, 1 + RICE); /* the zero, then the low bits */
}

static void encode(uint8_t *out, const uint8_t *codes, float *z, size_t n)
{
    (void)codes;
    uint16_t index[K_MAX], levels[2];
    float size[K_MAX];
    size_t k = n / SHARE, next = 0;
    largest(index, z, n, k);
    for (size_t i = 0; i < k; i++)
        size[i] = float_of_bits((uint32_t)magnitude(z[index[i]]));
    double bound = parting(size, k);
    for (int l = 0; l < 2; l++) {
        struct group g = group_of(size, k, bound, l == 1);
        levels[l] = level_of(&g);
    }
    memset(out, 0, LEVEL_BYTES + k / 4 + k);
    memcpy(out, levels, LEVEL_BYTES);
    struct bits b = {.out = out + LEVEL_BYTES + k / 4};
    for (size_t i = 0; i < k; i++) {
        int l = (double)size[i] >= bound;
        bool minus = levels[l] && float_bits(z[index[i]]) >> 31;
        float v = bf16_float(levels[l]);
        out[LEVEL_BYTES + i / 4] |= (uint8_t)((l | minus << 1) << i % 4 * 2);
        z[index[i]] -= minus ? -v : v;
        put_index(&b, index[i] - (uint32_t)next);
        next = index[i] + 1u;
    }
}

/* The next index, n where the stream is none. */
static size_t take_index(struct bits *b, size_t next, size_t n)
{
    size_t gap = 0;
    while (gap < n && take(b, 1))
        gap += 32;
    gap += take(b, RICE);
    return next + gap < n && b->at <= b->size ? next + gap : n;
}

static const char *wrong(const uint8_t *in, size_t n)
{
    uint16_t levels[2];
    size_t k = n / SHARE, next = 0;
    struct bits b = {.in = in + LEVEL_BYTES + k / 4, .size = k * 8};
    memcpy(levels, in, LEVEL_BYTES);
    if (levels[0] >= INFINITE >> 16 || levels[1] >= INFINITE >> 16)
        return "a magnitude out of range";
    if (levels[1] && levels[0] > levels[1])
        return "magnitudes out of order";
    for (size_t i = 0; i < k; i++) {
        unsigned two = in[LEVEL_BYTES + i / 4] >> i % 4 * 2 & 3;
        if (two >> 1 && !levels[two & 1])
            return "-0";
        next = take_index(&b, next, n) + 1;
        if (next > n)
            return "an index beyond the end";
    }
    while (b.at < b.size)
        if (take(&b, 1))
            return "bits behind the last index";
    return NULL;
}

static void decode(float *z, const uint8_t *codes, const uint8_t *in, size_t n)
{
    (void)codes;
    uint16_t levels[2];
    size_t k = n / SHARE, next = 0;
    struct bits b = {.in = in + LEVEL_BYTES + k / 4, .size = k * 8};
    memcpy(levels, in, LEVEL_BYTES);
    memset(z, 0, n * sizeof *z);
    for (size_t i = 0; i < k; i++) {
        unsigned two = in[LEVEL_BYTES + i / 4] >> i % 4 * 2 & 3;
        float v = bf16_float(levels[two & 1]);
        size_t at = take_index(&b, next, n);
        ASSERT(at < n); /* checked before */
        z[at] = two >> 1 ? -v : v;
        next = at + 1;
    }
}

const struct codec_host topk_codec = {
    .c = {.name = "topk",
          .kind = CODEC_TOPK,
          .adds = false,
          .q_max = 0,
          .payload_bytes = codec_host_payload_bytes,
          .aggregate_bytes = codec_relay_bytes,
          .encode = codec_host_encode,
          .check = codec_host_check,
          .aggregate = codec_relay,
          .mean = codec_host_mean,
          .decode = codec_host_decode},
    .chunk = CHUNK,
    .block_bytes = DEV_BLOCK / SHARE + DEV_BLOCK / SHARE / 4,
    .chunk_bytes = LEVEL_BYTES,
    .encode = encode,
    .wrong = wrong,
    .decode = decode,
};
