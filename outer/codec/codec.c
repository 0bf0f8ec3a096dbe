/* SPDX-License-Identifier: Apache-2.0 */
/* The table of codecs, and functions of its rows. */
#include "outer/codec/bits.h"
#include "outer/codec/codec_work.h"

static const struct codec *const codecs[CODEC_COUNT] = {
#define X(kind, name) [kind] = &name##_codec,
    CODEC_LIST(X)
#undef X
};

const struct codec *codec_get(enum codec_kind kind)
{
    return (unsigned)kind < CODEC_COUNT ? codecs[kind] : NULL;
}

enum codec_kind codec_full_precision(enum codec_kind kind, enum codec_kind full)
{
    ASSERT(codec_get(full)->full_precision);
    return codec_get(kind)->full_precision ? kind : full;
}

/* Eight blocks have whole bytes of their own: a code and a bit for each, then the present blocks.
 */
size_t codec_absent_bytes(const struct codec *c, size_t count)
{
    enum { EIGHT = 8 * DEV_BLOCK };
    if (!c->dense || c->payload_max != codec_dense_max)
        return 0;
    return codec_blocks(count) * ((c->payload_max(c, EIGHT) - 8 - 1) / 8);
}

size_t codec_absent_sum_bytes(const struct codec *c, size_t count, unsigned sites)
{
    enum { EIGHT = 8 * DEV_BLOCK };
    if (!c->dense || c->payload_max != codec_dense_max)
        return 0;
    if (!c->summable)
        return sites * codec_absent_bytes(c, count);
    size_t each = c->aggregate_max(c, EIGHT, sites) - 1 - 8 * codec_grid_code_bytes(sites);
    return codec_blocks(count) * (each / 8);
}

unsigned codec_words(const struct codec *c, size_t count, unsigned sites,
                     struct codec_words parts[CODEC_WORDS_PARTS])
{
    unsigned n = 0, each = bits_of(sites);
    if (!c->summable || !codec_absent_bytes(c, DEV_BLOCK))
        return 0;
    bool signs = c->dense->form == DEV_SIGN;
    parts[n++] = (struct codec_words){bits_of((uint64_t)sites * UINT8_MAX), count / DEV_BLOCK};
    if (signs)
        parts[n++] = (struct codec_words){each, count / DEV_BLOCK};
    parts[n++] = (struct codec_words){
        signs ? each : bits_of(2 * (uint64_t)sites * (uint64_t)c->q_max), count};
    return n;
}

size_t codec_words_bytes(const struct codec *c, size_t count, unsigned sites)
{
    struct codec_words parts[CODEC_WORDS_PARTS];
    size_t bytes = 0;
    for (unsigned i = 0, n = codec_words(c, count, sites, parts); i < n; i++) {
        size_t own = (parts[i].bits * parts[i].count + 7) / 8;
        bytes += (own + CODEC_WORDS_ALIGN - 1) / CODEC_WORDS_ALIGN * CODEC_WORDS_ALIGN;
    }
    return bytes;
}
