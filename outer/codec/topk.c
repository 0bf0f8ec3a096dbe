/* SPDX-License-Identifier: Apache-2.0 */
/* topk: the 1/64 of the values with the largest magnitude, chunk by chunk of 4096: 64 of them
 * (SparseLoCo, 2508.15706, docs/methods.md 2.5), equal magnitudes by lowest index. One
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
 * grid stays what it was. An all-zero chunk costs 9 bits.
 *
 * The magnitudes are Lloyd's: the means above and below the middle between them, rounded to 3 bits
 * after the binary point, and at most twice the smallest of their group. So a magnitude is between
 * half of the sent value and 2^15 times it (else the group sends 0), and the residual is exact: no
 * larger than z or than the sent value, and a multiple of z's last place. Gathered. */
#include <string.h>
#include "kernels/scalar/chunks.h"
#include "outer/codec/codec_work.h"

enum {
    CHUNK = DEV_CHUNK,
    SHARE = DEV_CHUNK_SHARE,
    RICE = 5,
    CODE_BITS = 9,
    LESS_BITS = 4,
    WORDS = 11 /* of 64 bits: 651 bits of a chunk */
};
_Static_assert(CHUNK_CODES == 1 << CODE_BITS && CHUNK_NO_LOWER == (1 << LESS_BITS) - 1,
               "the codes fill their bits");

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
static uint64_t bits_look(const struct bits_in *b)
{
    uint64_t word = 0;
    size_t byte = b->at / 8;
    if (byte + sizeof word <= b->size_bytes)
        memcpy(&word, b->data + byte, sizeof word);
    else if (byte < b->size_bytes)
        memcpy(&word, b->data + byte, b->size_bytes - byte);
    return word >> b->at % 8;
}

static uint32_t bits_take(struct bits_in *b, unsigned n)
{
    uint32_t value = (uint32_t)(bits_look(b) & ((1u << n) - 1));
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
        run = (size_t)__builtin_ctzll(~bits_look(b) | 1ull << RUN);
        ones += run;
        b->at += run;
    }
    b->at++;
    size_t index = next + (ones << RICE) + bits_take(b, RICE);
    return index < n ? index : n;
}

/* ---- a chunk ---- */

static void chunk_write(struct bits_out *out, const struct dev_chunk *c, size_t n)
{
    size_t k = n / SHARE;
    *out = (struct bits_out){.at = 0};
    put(out, c->upper, CODE_BITS);
    if (!c->upper)
        return;
    put(out, c->less, LESS_BITS);
    for (size_t i = 0; i < k; i++)
        put(out, c->value[i] / CHUNK, 2);
    for (size_t i = 0, next = 0; i < k; i++) {
        put_gap(out, (uint32_t)(c->value[i] % CHUNK - next));
        next = c->value[i] % CHUNK + 1u;
    }
}

/* NULL, or the text of an error. */
static const char *chunk_read(struct dev_chunk *c, struct bits_in *in, size_t n)
{
    size_t k = n / SHARE;
    c->upper = (uint16_t)bits_take(in, CODE_BITS);
    if (!c->upper)
        return NULL;
    c->less = (uint16_t)bits_take(in, LESS_BITS);
    if (c->less != CHUNK_NO_LOWER && 2 * c->less >= c->upper)
        return "a magnitude out of range";
    for (size_t i = 0; i < k; i++) {
        uint32_t two = bits_take(in, 2);
        if (two == 2 && c->less == CHUNK_NO_LOWER)
            return "-0";
        c->value[i] = (uint16_t)(two * CHUNK);
    }
    for (size_t i = 0, next = 0; i < k; i++) {
        size_t at = take_index(in, next, n);
        if (at == n)
            return "an index beyond the end";
        c->value[i] = (uint16_t)(c->value[i] + at);
        next = at + 1;
    }
    return NULL;
}

/* ---- the codec ---- */

static size_t topk_chunk_size(size_t at, size_t count)
{
    return count - at < CHUNK ? count - at : CHUNK;
}

static size_t chunk_bits(size_t n)
{
    size_t k = n / SHARE;
    return CODE_BITS + LESS_BITS + 8 * k + (n - k) / 32;
}

static size_t topk_payload_max(const struct codec *c, size_t count)
{
    (void)c;
    size_t rest = count % CHUNK;
    size_t bits = count / CHUNK * chunk_bits(CHUNK) + (rest ? chunk_bits(rest) : 0);
    return (bits + 7) / 8;
}

/* Chunk after chunk into one stream; `fill` bits wait in `last`. */
struct stream {
    uint8_t *end;
    uint64_t last;
    unsigned fill; /* < 8 */
};

static void topk_stream_put(struct stream *s, const struct bits_out *b)
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

/* The next piece: chunks on the device -> bits at the end of the stream. */
static enum err piece_put(struct codec_work *w, struct stream *s, const struct dev_chunk *chunks,
                          size_t at, size_t n, size_t count)
{
    size_t all = (n + CHUNK - 1) / CHUNK, size = (all * sizeof *chunks + 7) / 8 * 8;
    const struct dev_chunk *seen = (const void *)codec_seen(w, chunks, all * sizeof *chunks);
    struct bits_out *made =
        (struct bits_out *)(void *)(w->bytes + size); /* 228 of 256 bytes of a chunk */
    TRY(dev_sync(w->d));
    for (size_t i = 0; i < all; i++)
        if (seen[i].upper == DEV_CHUNK_BAD)
            return err_set(ERR_DIVERGED, "delta not finite in block %zu of %zu",
                           codec_blocks(at + i * CHUNK + seen[i].value[0]), codec_blocks(count));
#pragma omp parallel for num_threads(w->d->threads) schedule(static)
    for (size_t i = 0; i < all; i++)
        chunk_write(&made[i], &seen[i], topk_chunk_size(i * CHUNK, n));
    for (size_t i = 0; i < all; i++)
        topk_stream_put(s, &made[i]);
    return ERR_OK;
}

static enum err topk_encode(const struct codec *c, const struct codec_call *call, uint8_t *payload,
                            size_t *size_bytes, float *residual, const float *z)
{
    (void)c;
    struct codec_work *w = call->work;
    size_t count = call->count;
    struct stream s = {.end = payload};
    ASSERT(w->piece % CHUNK == 0);
    for (size_t at = 0; at < count; at += w->piece) {
        size_t n = count - at < w->piece ? count - at : w->piece;
        w->d->ops->chunk_topk(w->d, w->values, residual + at, z + at, n);
        TRY(piece_put(w, &s, w->values, at, n, count));
    }
    if (s.fill)
        *s.end++ = (uint8_t)s.last;
    *size_bytes = (size_t)(s.end - payload);
    return ERR_OK;
}

/* Sum of squares of what a chunk says. */
static double chunk_squares(const struct dev_chunk *chunk, size_t n)
{
    double sum = 0;
    for (size_t i = 0; chunk->upper && i < n / SHARE; i++) {
        double value = (double)chunk_value(chunk->value[i] / CHUNK, chunk->upper, chunk->less);
        sum += value * value;
    }
    return sum;
}

static enum err topk_check(const struct codec *c, const struct codec_call *call, double *squares,
                           const uint8_t *payload, size_t size_bytes)
{
    (void)c;
    size_t count = call->count;
    struct bits_in in = {.data = payload, .size_bytes = size_bytes};
    double sum = 0;
    for (size_t at = 0; at < count; at += CHUNK) {
        struct dev_chunk chunk;
        const char *wrong = chunk_read(&chunk, &in, topk_chunk_size(at, count));
        if (!wrong && in.at > size_bytes * 8)
            wrong = "the stream ends";
        if (wrong)
            return err_set(ERR_PROTO, "encoded values: %s, chunk %zu", wrong, at / CHUNK);
        sum += chunk_squares(&chunk, topk_chunk_size(at, count));
    }
    if (squares)
        *squares = sum;
    TRY(codec_check_size(size_bytes, (in.at + 7) / 8));
    return in.at % 8 && payload[in.at / 8] >> in.at % 8
               ? err_set(ERR_PROTO, "encoded values: bits after the last index")
               : ERR_OK;
}

/* Adds what the next n values' bits say to z. */
static void topk_values_add(struct codec_work *w, float *z, struct bits_in *in, size_t n)
{
    struct dev_chunk *chunks = (struct dev_chunk *)(void *)w->bytes;
    size_t all = (n + CHUNK - 1) / CHUNK;
    for (size_t i = 0; i < all; i++) {
        const char *wrong = chunk_read(&chunks[i], in, topk_chunk_size(i * CHUNK, n));
        ASSERT(!wrong); /* checked before */
    }
    w->d->ops->chunk_add(w->d, z, codec_there(w, w->stream, chunks, all * sizeof *chunks), n);
}

/* The sum of n payloads in site order, of one piece. */
static void sum_piece(struct codec_work *w, float *z, struct bits_in *in, unsigned n, size_t values)
{
    w->d->ops->zero(w->d, z, values * sizeof *z);
    for (unsigned i = 0; i < n; i++)
        topk_values_add(w, z, &in[i], values);
}

static enum err topk_mean(const struct codec *c, const struct codec_call *call, float *out,
                          uint8_t *next_grid, const struct codec_aggregate *a)
{
    struct codec_work *w = call->work;
    struct codec_payload payloads[CODEC_SITES_MAX];
    struct bits_in in[CODEC_SITES_MAX];
    size_t count = call->count;
    TRY(codec_check_mean(a->n, a->weight_sum));
    TRY(codec_gather_list(c, call, a, payloads));
    for (unsigned i = 0; i < a->n; i++)
        in[i] = (struct bits_in){.data = payloads[i].data, .size_bytes = payloads[i].size_bytes};
    for (size_t at = 0; at < count; at += w->piece) {
        size_t values = count - at < w->piece ? count - at : w->piece;
        sum_piece(w, out + at, in, a->n, values);
        w->d->ops->div_scalar(w->d, out + at, a->weight_sum, values);
    }
    memmove(next_grid, call->grid, codec_blocks(count));
    return dev_sync(w->d);
}

static enum err topk_decode(const struct codec *c, const struct codec_call *call, float *z,
                            const uint8_t *payload, size_t size_bytes)
{
    (void)c;
    struct codec_work *w = call->work;
    size_t count = call->count;
    struct bits_in in = {.data = payload, .size_bytes = size_bytes};
    for (size_t at = 0; at < count; at += w->piece)
        sum_piece(w, z + at, &in, 1, count - at < w->piece ? count - at : w->piece);
    return dev_sync(w->d);
}

const struct codec topk_codec = {
    .name = "topk",
    .kind = CODEC_TOPK,
    .momentum_in_residual = true,
    .state_bytes = codec_no_state,
    .payload_max = topk_payload_max,
    .aggregate_max = codec_gather_max,
    .encode = topk_encode,
    .check = topk_check,
    .aggregate = codec_gather_aggregate,
    .mean = topk_mean,
    .decode = topk_decode,
};
