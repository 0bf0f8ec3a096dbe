/* topk: the 1/64 of the values with the largest magnitude, chunk by chunk of 4096: 64 of them
 * (SparseLoCo, 2508.15706, in the form of field.md 2.4), equal magnitudes by lowest index. One
 * stream of bits, low bits first, filled up to a byte with zeros. A chunk of n values, n a multiple
 * of 256 and at most 4096, k = n/64:
 * - 9 bits: code of the upper magnitude, (8 + code % 8) * 2^(code/8 - 47); 0: nothing of this chunk
 *   is sent, and that is all of it;
 * - 4 bits: the lower one's code is twice so much less; 15: there is none, 0 is sent for its
 * values;
 * - k times two bits, in order of index: level (1: upper) and sign (2);
 * - k gaps g = index - index before - 1, Rice code: g/32 ones, a zero, the 5 low bits.
 * That is 13 + 8k + sum of g/32 bits, at most 13 + 8k + (n - k)/32: 651 for 4096 values, 0.159 bits
 * per value, and 621, 0.152, where indices are spread evenly (7.5 bits each). No block codes: the
 * grid stays what it was. A chunk without anything to say costs 9 bits.
 *
 * The magnitudes are Lloyd's: the means above and below the middle between them, rounded to 3 bits
 * behind the point, and at most twice the smallest of their group. So magnitudes lie between half
 * of what is sent and 2^15 of it (else the group sends 0), and the residual is exact: no larger
 * than z, or than what is sent, and a multiple of z's last place. Relayed. */
#include <string.h>
#include "kernels/scalar/bf16.h"
#include "outer/codec/codec_work.h"

enum {
    CHUNK = 4096,
    SHARE = 64,
    K_MAX = CHUNK / SHARE,
    RICE = 5,
    ROUNDS = 6,
    CODE_BITS = 9,
    CODES = 1 << CODE_BITS,
    LESS_BITS = 4,
    NO_LOWER = (1 << LESS_BITS) - 1,
    WORDS = 11 /* of 64 bits: 651 bits of a chunk */
};
#define INFINITE   0x7f800000u
#define NOT_FINITE UINT32_MAX
#define CODE_SHIFT ((127u - 44) << 3) /* the exponent of code 0 is -44 */

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

/* A float's upper bits but the sign, rounded or cut to 3 of the mantissa. */
static int32_t code_of(double size, bool nearest)
{
    uint32_t bits = float_bits((float)size);
    return (int32_t)((bits + (nearest ? 1u << 19 : 0)) >> 20) - (int32_t)CODE_SHIFT;
}

static float code_value(int32_t code)
{
    return float_of_bits(((uint32_t)code + CODE_SHIFT) << 20);
}

/* 0 where there is no code, or the group is too wide for an exact residual. */
static int32_t group_code(const struct group *g)
{
    if (!g->count)
        return 0;
    double most = 2 * g->smallest;
    int32_t code = code_of(g->sum / g->count, true);
    code = code < CODES ? code : CODES - 1;
    if (code > 0 && (double)code_value(code) > most)
        code = code_of(most, false);
    return code > 0 && g->largest <= 0x1p15 * (double)code_value(code) ? code : 0;
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

/* ---- bits ---- */

struct bits_out {
    uint64_t word[WORDS];
    unsigned at;
};

static void put(struct bits_out *b, uint64_t value, unsigned n) /* n <= 32 */
{
    unsigned shift = b->at % 64;
    b->word[b->at / 64] |= value << shift;
    if (shift + n > 64)
        b->word[b->at / 64 + 1] |= value >> (64 - shift);
    b->at += n;
}

struct bits_in {
    const uint8_t *data;
    size_t size_bytes, at;
};

/* 57 bits from here on at least; past the end they are zeros, and `at` says so. */
static uint64_t look(const struct bits_in *b)
{
    uint64_t word = 0;
    size_t byte = b->at / 8;
    if (byte + sizeof word <= b->size_bytes)
        memcpy(&word, b->data + byte, sizeof word);
    else if (byte < b->size_bytes)
        memcpy(&word, b->data + byte, b->size_bytes - byte);
    return word >> b->at % 8;
}

static uint32_t take(struct bits_in *b, unsigned n)
{
    uint32_t value = (uint32_t)(look(b) & ((1u << n) - 1));
    b->at += n;
    return value;
}

static void put_gap(struct bits_out *b, uint32_t gap)
{
    for (uint32_t ones = gap >> RICE, n; ones; ones -= n) {
        n = ones < 32 ? ones : 32;
        put(b, (1ull << n) - 1, n);
    }
    put(b, (gap & 31) << 1, 1 + RICE); /* the zero, then the low bits */
}

/* The next index, n where the stream is none. */
static size_t take_index(struct bits_in *b, size_t next, size_t n)
{
    enum { RUN = 48 };
    size_t ones = 0, run = RUN;
    while (run == RUN && ones <= CHUNK / 32) {
        run = (size_t)__builtin_ctzll(~look(b) | 1ull << RUN);
        ones += run;
        b->at += run;
    }
    b->at++;
    size_t index = next + (ones << RICE) + take(b, RICE);
    return index < n ? index : n;
}

/* ---- a chunk ---- */

struct chunk { /* what its bits say */
    float level[2];
    uint8_t two[K_MAX]; /* level and sign */
    uint16_t index[K_MAX];
    size_t k; /* 0: nothing is sent */
};

/* residual: z before, what is not sent after. What is not finite is larger than the rest: then
 * out->at is NOT_FINITE, and out->word[0] says where one is. */
static void chunk_encode(struct bits_out *out, float *residual, size_t n)
{
    uint16_t index[K_MAX];
    float size[K_MAX];
    int32_t code[2];
    size_t k = n / SHARE;
    *out = (struct bits_out){.at = 0};
    largest(index, residual, n, k);
    for (size_t i = 0; i < k; i++) {
        size[i] = float_of_bits((uint32_t)magnitude(residual[index[i]]));
        if (float_bits(size[i]) >= INFINITE) {
            *out = (struct bits_out){.word = {index[i]}, .at = NOT_FINITE};
            return;
        }
    }
    double bound = parting(size, k);
    for (int l = 0; l < 2; l++) {
        struct group g = group_of(size, k, bound, l == 1);
        code[l] = group_code(&g);
    }
    put(out, (uint64_t)code[1], CODE_BITS);
    if (!code[1])
        return;
    int32_t less = (code[1] - code[0] + 1) / 2; /* rounds the lower one down */
    bool lower = code[0] > 0 && code[0] <= code[1] && less < NO_LOWER && 2 * less < code[1];
    put(out, lower ? (uint64_t)less : NO_LOWER, LESS_BITS);
    float level[2] = {lower ? code_value(code[1] - 2 * less) : 0, code_value(code[1])};
    for (size_t i = 0; i < k; i++) {
        int l = (double)size[i] >= bound;
        float *r = &residual[index[i]];
        bool minus = level[l] > 0 && float_bits(*r) >> 31;
        put(out, (uint64_t)(l | minus << 1), 2);
        *r -= minus ? -level[l] : level[l];
    }
    for (size_t i = 0; i < k; i++)
        put_gap(out, index[i] - (i ? index[i - 1] + 1u : 0));
}

/* NULL, or what is wrong with it. */
static const char *chunk_read(struct chunk *c, struct bits_in *in, size_t n)
{
    int32_t upper = (int32_t)take(in, CODE_BITS);
    c->k = 0;
    if (!upper)
        return NULL;
    int32_t less = (int32_t)take(in, LESS_BITS);
    if (less != NO_LOWER && 2 * less >= upper)
        return "a magnitude out of range";
    c->k = n / SHARE;
    c->level[0] = less == NO_LOWER ? 0 : code_value(upper - 2 * less);
    c->level[1] = code_value(upper);
    for (size_t i = 0; i < c->k; i++) {
        c->two[i] = (uint8_t)take(in, 2);
        if (c->two[i] == 2 && less == NO_LOWER)
            return "-0";
    }
    for (size_t i = 0, next = 0; i < c->k; i++) {
        size_t at = take_index(in, next, n);
        if (at == n)
            return "an index beyond the end";
        c->index[i] = (uint16_t)at;
        next = at + 1;
    }
    return NULL;
}

/* ---- the codec ---- */

static size_t chunk_size(size_t at, size_t count)
{
    return count - at < CHUNK ? count - at : CHUNK;
}

static size_t payload_max(const struct codec *c, size_t count)
{
    (void)c;
    size_t bits = 0;
    for (size_t at = 0; at < count; at += CHUNK) {
        size_t n = chunk_size(at, count), k = n / SHARE;
        bits += CODE_BITS + LESS_BITS + 8 * k + (n - k) / 32;
    }
    return (bits + 7) / 8;
}

/* Chunk after chunk into one stream; `fill` bits wait in `last`. */
struct stream {
    uint8_t *end;
    uint64_t last;
    unsigned fill; /* < 8 */
};

static void stream_put(struct stream *s, const struct bits_out *b)
{
    for (unsigned at = 0; at < b->at; at += 32) {
        unsigned n = b->at - at < 32 ? b->at - at : 32;
        s->last |= (b->word[at / 64] >> at % 64 & 0xffffffffu) << s->fill;
        for (s->fill += n; s->fill >= 8; s->fill -= 8) {
            *s->end++ = (uint8_t)s->last;
            s->last >>= 8;
        }
    }
}

static enum err encode(const struct codec *c, struct codec_work *w, uint8_t *payload,
                       size_t *size_bytes, float *residual, const float *z, const uint8_t *grid,
                       size_t count)
{
    (void)c, (void)grid;
    struct stream s = {.end = payload};
    struct bits_out *made =
        (struct bits_out *)(void *)w->bytes; /* 128 of the 16384 bytes of a chunk */
    ASSERT(w->piece % CHUNK == 0);
    for (size_t at = 0; at < count; at += w->piece) {
        size_t n = count - at < w->piece ? count - at : w->piece;
        float *here = w->here ? residual + at : w->host;
        if (here != z + at)
            w->d->ops->copy(w->d, here, z + at, n * sizeof *z);
        TRY(dev_sync(w->d));
#pragma omp parallel for num_threads(w->d->threads) schedule(static)
        for (size_t i = 0; i < n; i += CHUNK)
            chunk_encode(&made[i / CHUNK], here + i, chunk_size(i, n));
        for (size_t i = 0; i < n; i += CHUNK) {
            const struct bits_out *b = &made[i / CHUNK];
            if (b->at == NOT_FINITE)
                return err_set(ERR_DIVERGED, "delta not finite in block %zu of %zu",
                               codec_blocks(at + i + (size_t)b->word[0]), codec_blocks(count));
            stream_put(&s, b);
        }
        if (here != residual + at)
            w->d->ops->copy(w->d, residual + at, here, n * sizeof *z);
    }
    if (s.fill)
        *s.end++ = (uint8_t)s.last;
    *size_bytes = (size_t)(s.end - payload);
    return dev_sync(w->d);
}

static enum err check(const struct codec *c, const uint8_t *payload, size_t size_bytes,
                      size_t count)
{
    (void)c;
    struct bits_in in = {.data = payload, .size_bytes = size_bytes};
    for (size_t at = 0; at < count; at += CHUNK) {
        struct chunk chunk;
        const char *wrong = chunk_read(&chunk, &in, chunk_size(at, count));
        if (!wrong && in.at > size_bytes * 8)
            wrong = "the stream ends";
        if (wrong)
            return err_set(ERR_PROTO, "encoded values: %s, chunk %zu", wrong, at / CHUNK);
    }
    TRY(codec_check_size(size_bytes, (in.at + 7) / 8));
    return in.at % 8 && payload[in.at / 8] >> in.at % 8
               ? err_set(ERR_PROTO, "encoded values: bits behind the last index")
               : ERR_OK;
}

/* Adds what the next n values' bits say to z, host. */
static void add_values(float *z, struct bits_in *in, size_t n)
{
    for (size_t at = 0; at < n; at += CHUNK) {
        struct chunk c;
        const char *wrong = chunk_read(&c, in, chunk_size(at, n));
        ASSERT(!wrong); /* checked before */
        for (size_t i = 0; i < c.k; i++) {
            float v = c.level[c.two[i] & 1];
            z[at + c.index[i]] += c.two[i] >> 1 ? -v : v;
        }
    }
}

/* The sum of n payloads in site order, of one piece -> device. */
static enum err sum_piece(struct codec_work *w, float *z, struct bits_in *in, unsigned n,
                          size_t values)
{
    float *here = w->here ? z : w->host;
    TRY(dev_sync(w->d)); /* w->host may still be on its way */
    memset(here, 0, values * sizeof *z);
    for (unsigned i = 0; i < n; i++)
        add_values(here, &in[i], values);
    if (!w->here)
        w->d->ops->copy(w->d, z, here, values * sizeof *z);
    return ERR_OK;
}

static enum err mean(const struct codec *c, struct codec_work *w, float *out, uint8_t *next_grid,
                     const uint8_t *aggregate, size_t size_bytes, unsigned n, float weight_sum,
                     const uint8_t *grid, size_t count)
{
    struct codec_payload payloads[CODEC_SITES_MAX];
    struct bits_in in[CODEC_SITES_MAX];
    TRY(codec_check_mean(n, weight_sum));
    TRY(codec_relay_list(c, aggregate, size_bytes, n, count, payloads));
    for (unsigned i = 0; i < n; i++)
        in[i] = (struct bits_in){.data = payloads[i].data, .size_bytes = payloads[i].size_bytes};
    for (size_t at = 0; at < count; at += w->piece) {
        size_t values = count - at < w->piece ? count - at : w->piece;
        TRY(sum_piece(w, out + at, in, n, values));
        w->d->ops->divide(w->d, out + at, weight_sum, values);
    }
    memmove(next_grid, grid, codec_blocks(count));
    return dev_sync(w->d);
}

static enum err decode(const struct codec *c, struct codec_work *w, float *z,
                       const uint8_t *payload, size_t size_bytes, const uint8_t *grid, size_t count)
{
    (void)c, (void)grid;
    struct bits_in in = {.data = payload, .size_bytes = size_bytes};
    for (size_t at = 0; at < count; at += w->piece)
        TRY(sum_piece(w, z + at, &in, 1, count - at < w->piece ? count - at : w->piece));
    return dev_sync(w->d);
}

const struct codec topk_codec = {
    .name = "topk",
    .kind = CODEC_TOPK,
    .payload_max = payload_max,
    .aggregate_max = codec_relay_max,
    .encode = encode,
    .check = check,
    .aggregate = codec_relay_aggregate,
    .mean = mean,
    .decode = decode,
};
