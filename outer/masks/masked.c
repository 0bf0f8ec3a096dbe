/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/masks/masked.h"
#include <string.h>
#include "outer/codec/bits.h"
#include "outer/codec/codec_work.h"

/* A group of blocks at a time: its codes are a multiple of 64 words, which fill whole 8 bytes. */
enum { GROUP = 64, CODE_MAX = 255 };

static bool signs(const struct codec *c)
{
    return c->dense->form == DEV_SIGN;
}

enum err masked_layout(struct mask_layout *l, const struct codec *c, size_t count, unsigned sites)
{
    struct codec_words words[CODEC_WORDS_PARTS];
    struct mask_part parts[CODEC_WORDS_PARTS];
    unsigned n;
    ASSERT(count > 0 && count % DEV_BLOCK == 0 && sites >= 1 && sites <= CODEC_SITES_MAX);
    if (!c->summable)
        return err_set(ERR_CONFIG,
                       "contributions in %s do not add up, so they cannot be masked; use int8, "
                       "int4, int2, sign or fixed",
                       c->name);
    if (!codec_absent_bytes(c, DEV_BLOCK))
        return err_set(ERR_CONFIG,
                       "masked, a contribution in %s has a word for each value that it leaves out; "
                       "use int4, which sends these values",
                       c->name);
    n = codec_words(c, count, sites, words);
    for (unsigned i = 0; i < n; i++)
        parts[i] = (struct mask_part){words[i].bits, words[i].count};
    TRY(mask_layout_make(l, parts, n));
    ASSERT(l->size_bytes == codec_words_bytes(c, count, sites));
    return ERR_OK;
}

/* ---- packing ---- */

/* Words from number `first` of a part on. */
static uint8_t *words_at(uint8_t *words, const struct mask_layout *l, unsigned part, size_t first)
{
    return words + l->start[part] + first / 8 * l->part[part].bits;
}

struct group { /* of blocks */
    size_t first, blocks;
};

static void pack_bytes(uint8_t *words, const struct mask_layout *l, unsigned part,
                       const struct group *g, const uint8_t *bytes)
{
    int64_t q[GROUP];
    for (size_t b = 0; b < g->blocks; b++)
        q[b] = bytes[b];
    bits_pack(words_at(words, l, part, g->first), q, g->blocks, l->part[part].bits);
}

/* One group; in: at its first block. */
static void group_pack(uint8_t *words, const struct mask_layout *l, const struct codec *c,
                       struct codec_in *in, const struct group *g)
{
    unsigned last = l->parts - 1, bits = signs(c) ? 1 : codec_grid_bits(c, 1);
    int64_t bias = signs(c) ? 0 : c->q_max, keep = (int64_t)((1ull << bits) - 1);
    uint8_t sent[GROUP];
    for (size_t b = 0; b < g->blocks; b++) {
        int64_t q[DEV_BLOCK] = {0};
        sent[b] = codec_is_present(in->present, in->block++);
        if (sent[b]) {
            bits_unpack(q, in->next, DEV_BLOCK, bits);
            in->next += in->block_bytes;
            for (size_t i = 0; i < DEV_BLOCK; i++)
                q[i] = (q[i] & keep) - bias;
        }
        bits_pack(words_at(words, l, last, (g->first + b) * DEV_BLOCK), q, DEV_BLOCK,
                  l->part[last].bits);
    }
    pack_bytes(words, l, 0, g, in->codes + g->first);
    if (signs(c))
        pack_bytes(words, l, 1, g, sent);
}

/* The blocks of one thread: whole groups. */
static struct group thread_share(size_t blocks, int thread, int threads)
{
    size_t groups = (blocks + GROUP - 1) / GROUP, n = (size_t)threads, t = (size_t)thread;
    size_t first = groups * t / n * GROUP, end = groups * (t + 1) / n * GROUP;
    first = first < blocks ? first : blocks;
    end = end < blocks ? end : blocks;
    return (struct group){first, end - first};
}

static struct group group_of(const struct group *share, size_t at)
{
    size_t left = share->blocks - at;
    return (struct group){share->first + at, left < GROUP ? left : GROUP};
}

void masked_pack(uint8_t *words, const struct mask_layout *l, const struct codec *c,
                 const uint8_t *payload, int threads)
{
    size_t blocks = l->part[0].count;
    ASSERT(threads >= 1 && l->part[l->parts - 1].count == blocks * DEV_BLOCK);
    for (unsigned p = 0; p < l->parts; p++) /* after the last word of each part */
        memset(words + (p + 1 < l->parts ? l->start[p + 1] : l->size_bytes) - MASK_ALIGN, 0,
               MASK_ALIGN);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        struct group share = thread_share(blocks, t, threads);
        struct codec_in in = codec_dense_in(c, payload, blocks * DEV_BLOCK);
        in.next += codec_present_count(in.present, 0, share.first) * in.block_bytes;
        in.block = share.first;
        for (size_t at = 0; at < share.blocks; at += GROUP) {
            struct group g = group_of(&share, at);
            group_pack(words, l, c, &in, &g);
        }
    }
}

/* ---- sums ---- */

/* Unsigned words of a group; false: one is above `most`. */
static bool sums_read(int64_t *q, const uint8_t *words, size_t count, unsigned bits, int64_t most)
{
    int64_t keep = (int64_t)((1ull << bits) - 1), over = 0;
    bits_unpack(q, words, count, bits);
    for (size_t i = 0; i < count; i++) {
        q[i] &= keep;
        over |= most - q[i];
    }
    return over >= 0;
}

/* Sums of a block -> its bytes in an aggregate of n. present: of sign, in how many payloads it is;
 * else written: is an integer not 0? false: a sum that n payloads cannot have. */
static bool block_sum(uint8_t *to, const struct codec *c, const uint8_t *words, unsigned bits,
                      unsigned n, int64_t *present)
{
    int64_t q[DEV_BLOCK], bias = (int64_t)n * c->q_max, over = 0, any = 0;
    if (signs(c)) {
        bool good = sums_read(q, words, DEV_BLOCK, bits, *present);
        bits_pack(to, q, DEV_BLOCK, bits_of(n));
        return good;
    }
    bits_unpack(q, words, DEV_BLOCK, bits);
    for (size_t i = 0; i < DEV_BLOCK; i++) {
        any |= q[i];
        over |= (bias - q[i]) | (bias + q[i]);
        q[i] += bias;
    }
    *present = any != 0;
    bits_pack(to, q, DEV_BLOCK, codec_grid_bits(c, n));
    return over >= 0;
}

struct target {              /* of an aggregate */
    uint8_t *codes, *counts; /* counts: of sign, in how many payloads a block is; else NULL */
    struct codec_out out;    /* end: room for all blocks */
    size_t code_bytes;       /* of a sum of codes */
    unsigned n;
};

static void sums_put(uint8_t *to, const int64_t *q, size_t count, size_t each)
{
    for (size_t b = 0; b < count; b++)
        for (size_t k = 0; k < each; k++)
            *to++ = (uint8_t)(q[b] >> 8 * k);
}

/* One group: its blocks to the places that they have when all blocks are there. Returns the number
 * of the block that no n payloads make, or SIZE_MAX. */
static size_t group_sum(const struct target *t, const struct codec *c, const struct mask_layout *l,
                        const uint8_t *sum, const struct group *g)
{
    unsigned last = l->parts - 1;
    int64_t codes[GROUP], present[GROUP] = {0};
    bool good = sums_read(codes, sum + l->start[0] + g->first / 8 * l->part[0].bits, g->blocks,
                          l->part[0].bits, (int64_t)t->n * (CODE_MAX - 1));
    if (t->counts)
        good = sums_read(present, sum + l->start[1] + g->first / 8 * l->part[1].bits, g->blocks,
                         l->part[1].bits, t->n) &&
               good;
    for (size_t b = 0; b < g->blocks; b++) {
        size_t block = g->first + b, words = block * DEV_BLOCK / 8 * l->part[last].bits;
        good = block_sum(t->out.end + block * t->out.block_bytes, c, sum + l->start[last] + words,
                         l->part[last].bits, t->n, &present[b]) &&
               good;
        t->out.present[block / 8] |= (uint8_t)((present[b] != 0) << block % 8);
    }
    sums_put(t->codes + g->first * t->code_bytes, codes, g->blocks, t->code_bytes);
    if (t->counts)
        sums_put(t->counts + g->first * t->code_bytes, present, g->blocks, t->code_bytes);
    return good ? SIZE_MAX : g->first;
}

/* Leaves out the blocks that are not present. */
static void blocks_close(struct codec_out *o, size_t blocks)
{
    const uint8_t *made = o->end;
    for (size_t b = 0; b < blocks; b++, made += o->block_bytes)
        if (codec_is_present(o->present, b)) {
            if (made != o->end)
                memmove(o->end, made, o->block_bytes);
            o->end += o->block_bytes;
        }
}

enum err masked_aggregate(uint8_t *aggregate, size_t *size_bytes, const struct codec *c,
                          const struct mask_layout *l, const uint8_t *sum, unsigned n, int threads)
{
    size_t blocks = l->part[0].count, each = codec_grid_code_bytes(n), bad = SIZE_MAX;
    unsigned bits = signs(c) ? bits_of(n) : codec_grid_bits(c, n);
    uint8_t *counts = signs(c) ? aggregate + blocks * each : NULL;
    struct target to = {.codes = aggregate, .counts = counts, .code_bytes = each, .n = n};
    ASSERT(threads >= 1 && n >= 1 && n <= CODEC_SITES_MAX);
    ASSERT(l->part[l->parts - 1].count == blocks * DEV_BLOCK);
    to.out =
        codec_out_open(aggregate + blocks * each * (counts ? 2 : 1), DEV_BLOCK / 8 * bits, blocks);
#pragma omp parallel for num_threads(threads) if (threads > 1) reduction(min : bad)
    for (int t = 0; t < threads; t++) {
        struct group share = thread_share(blocks, t, threads);
        for (size_t at = 0; at < share.blocks; at += GROUP) {
            struct group g = group_of(&share, at);
            size_t wrong = group_sum(&to, c, l, sum, &g);
            bad = wrong < bad ? wrong : bad;
        }
    }
    if (bad != SIZE_MAX)
        return err_set(ERR_PROTO,
                       "masked contributions: sums at block %zu that %u contributions cannot have; "
                       "a site masked with other keys, or sent other integers",
                       bad, n);
    blocks_close(&to.out, blocks);
    *size_bytes = (size_t)(to.out.end - aggregate);
    return ERR_OK;
}
