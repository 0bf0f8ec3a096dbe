/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/masks/mask.h"
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are little-endian limbs");

enum {
    LIMB_BITS = 64,
    PIECE_BYTES = 32 << 10, /* of key stream at a time: with the words it fits the first cache */
    OPEN_MAX = 64           /* key streams that a thread has open at a time */
};
typedef unsigned __int128 wide;

/* ---- the ring ---- */

unsigned mask_bits(unsigned sites, uint64_t q)
{
    wide values = 2 * (wide)sites * q + 1;
    unsigned bits = 0;
    ASSERT(sites > 0 && q > 0);
    while (bits < LIMB_BITS + 1 && (wide)1 << bits < values)
        bits++;
    return bits <= MASK_BITS_MAX ? bits : 0;
}

/* ---- layout ---- */

static size_t words_bytes(const struct mask_part *p)
{
    return (size_t)(((wide)p->count * p->bits + 7) / 8);
}

enum err mask_layout_make(struct mask_layout *l, const struct mask_part *parts, unsigned count)
{
    *l = (struct mask_layout){.parts = count};
    if (count == 0 || count > MASK_PARTS_MAX)
        return err_set(ERR_CONFIG, "%u parts of a masked vector: 1 to %d", count, MASK_PARTS_MAX);
    for (unsigned i = 0; i < count; i++) {
        const struct mask_part *p = &parts[i];
        if (p->bits == 0 || p->bits > MASK_BITS_MAX || p->count == 0 ||
            p->count > CIPHER_STREAM_MAX)
            return err_set(ERR_CONFIG, "part %u of a masked vector: %zu words of %u bits: 1 to %d",
                           i, p->count, p->bits, MASK_BITS_MAX);
        l->part[i] = *p;
        l->start[i] = l->size_bytes;
        l->size_bytes += (words_bytes(p) + MASK_ALIGN - 1) / MASK_ALIGN * MASK_ALIGN;
        if (l->size_bytes > CIPHER_STREAM_MAX)
            return err_set(ERR_CONFIG, "a masked vector of more than 2^38 bytes: more fragments");
    }
    return ERR_OK;
}

static size_t part_end(const struct mask_layout *l, unsigned part)
{
    return part + 1 < l->parts ? l->start[part + 1] : l->size_bytes;
}

/* The byte that a part ends in keeps its used low bits. */
static void padding_clear(uint8_t *words, const struct mask_layout *l, unsigned part)
{
    size_t end = l->start[part] + words_bytes(&l->part[part]);
    unsigned used = (unsigned)((wide)l->part[part].count * l->part[part].bits % 8);
    if (used)
        words[end - 1] = (uint8_t)(words[end - 1] & ((1u << used) - 1));
    memset(words + end, 0, part_end(l, part) - end);
}

bool mask_padding_holds(const struct mask_layout *l, const uint8_t *words)
{
    uint8_t any = 0;
    for (unsigned i = 0; i < l->parts; i++) {
        size_t end = l->start[i] + words_bytes(&l->part[i]);
        unsigned used = (unsigned)((wide)l->part[i].count * l->part[i].bits % 8);
        if (used)
            any = (uint8_t)(any | words[end - 1] >> used);
        for (; end < part_end(l, i); end++)
            any = (uint8_t)(any | words[end]);
    }
    return any == 0;
}

/* ---- adding words of b bits ---- */

/* Limb k of every b limbs has its words' top bits at the same places: 64 words fill b limbs. */
struct tops {
    uint64_t limb[LIMB_BITS];
    unsigned bits;
};

static struct tops tops_of(unsigned bits)
{
    struct tops t = {.bits = bits};
    for (unsigned word = 0; word < LIMB_BITS; word++) {
        unsigned at = word * bits + bits - 1;
        t.limb[at / LIMB_BITS] |= 1ull << at % LIMB_BITS;
    }
    return t;
}

/* What is handled at a time: whole groups of b limbs, and whole blocks of the key stream. */
static size_t piece_bytes(unsigned bits)
{
    size_t group = 64 * (size_t)bits;
    return group > PIECE_BYTES ? group : PIECE_BYTES / group * group;
}

/* One limb: x + y with the carry of the limb before. The carry does not leave a word, whose top
 * bits are out: it continues where a word continues in the next limb. */
static inline uint64_t limb_add(uint64_t x, uint64_t y, uint64_t top, uint64_t *carry)
{
    uint64_t sum, low = (x & ~top) + *carry;
    *carry = low < *carry;
    *carry += (uint64_t)__builtin_add_overflow(low, y & ~top, &sum);
    return sum ^ ((x ^ y) & top);
}

static inline uint64_t limb_subtract(uint64_t x, uint64_t y, uint64_t top, uint64_t *borrow)
{
    uint64_t rest, high = x | top, less = high - *borrow;
    *borrow = less > high;
    *borrow += (uint64_t)__builtin_sub_overflow(less, y & ~top, &rest);
    return rest ^ ((x ^ ~y) & top);
}

/* n: a multiple of 64 bytes, from the beginning of a group on. */
static void words_add(uint8_t *to, const uint8_t *from, size_t n, const struct tops *t, bool minus)
{
    size_t limbs = n / sizeof(uint64_t);
    for (size_t at = 0; at < limbs; at += t->bits) {
        size_t group = limbs - at < t->bits ? limbs - at : t->bits;
        uint64_t carry = 0;
        for (size_t k = 0; k < group; k++) {
            uint64_t x, y;
            memcpy(&x, to + 8 * (at + k), 8);
            memcpy(&y, from + 8 * (at + k), 8);
            x = minus ? limb_subtract(x, y, t->limb[k], &carry)
                      : limb_add(x, y, t->limb[k], &carry);
            memcpy(to + 8 * (at + k), &x, 8);
        }
    }
}

void mask_sum(uint8_t *sum, const uint8_t *words, const struct mask_layout *l, int threads)
{
    for (unsigned p = 0; p < l->parts; p++) {
        struct tops t = tops_of(l->part[p].bits);
        size_t step = piece_bytes(t.bits), size = part_end(l, p) - l->start[p];
        ptrdiff_t pieces = (ptrdiff_t)((size + step - 1) / step);
#pragma omp parallel for num_threads(threads) if (threads > 1)
        for (ptrdiff_t i = 0; i < pieces; i++) {
            size_t at = (size_t)i * step, n = size - at < step ? size - at : step;
            words_add(sum + l->start[p] + at, words + l->start[p] + at, n, &t, false);
        }
    }
}

/* ---- masks ---- */

/* The pieces [from, to) of a part, a piece at a time, so that its words stay in the cache while all
 * masks pass. */
static enum err part_mask(uint8_t *words, size_t start, size_t size, const struct tops *t,
                          const struct mask_term *terms, size_t count, uint8_t *stream)
{
    struct cipher_stream open[OPEN_MAX] = {{0}};
    size_t step = piece_bytes(t->bits);
    enum err e = ERR_OK;
    for (size_t i = 0; i < count && e == ERR_OK; i++)
        e = cipher_stream_open(&open[i], terms[i].seed, (uint32_t)(start / CIPHER_BLOCK_BYTES));
    for (size_t at = 0; at < size && e == ERR_OK; at += step)
        for (size_t i = 0; i < count; i++) {
            size_t n = size - at < step ? size - at : step;
            cipher_stream_read(&open[i], stream, n);
            words_add(words + start + at, stream, n, t, terms[i].minus);
        }
    for (size_t i = 0; i < count; i++)
        cipher_stream_close(&open[i]);
    return e;
}

/* Each thread has the same number of pieces, one run of them. */
static enum err part_apply(uint8_t *words, const struct mask_layout *l, unsigned part,
                           const struct mask_term *terms, size_t count, int threads)
{
    struct tops t = tops_of(l->part[part].bits);
    size_t step = piece_bytes(t.bits), size = part_end(l, part) - l->start[part];
    size_t pieces = (size + step - 1) / step;
    size_t share = (pieces + (size_t)threads - 1) / (size_t)threads * step;
    enum err failed = ERR_OK;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int k = 0; k < threads; k++) {
        size_t from = (size_t)k * share;
        uint8_t stream[PIECE_BYTES];
        if (from >= size)
            continue;
        enum err e = part_mask(words, l->start[part] + from,
                               size - from < share ? size - from : share, &t, terms, count, stream);
        cipher_wipe(stream, sizeof stream);
        if (e != ERR_OK) {
#pragma omp critical(mask_failed)
            failed = e;
        }
    }
    padding_clear(words, l, part);
    return failed == ERR_OK ? ERR_OK : err_set(failed, "no memory for the key streams of masks");
}

enum err mask_apply(uint8_t *words, const struct mask_layout *l, const struct mask_term *terms,
                    size_t count, int threads)
{
    ASSERT(threads >= 1);
    for (unsigned p = 0; p < l->parts; p++)
        for (size_t first = 0; first < count; first += OPEN_MAX) {
            size_t n = count - first < OPEN_MAX ? count - first : OPEN_MAX;
            TRY(part_apply(words, l, p, terms + first, n, threads));
        }
    return ERR_OK;
}
