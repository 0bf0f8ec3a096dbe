/* Payloads of blocks of 256 values: codes, a bit per block, and the blocks that say something. */
#include <string.h>
#include "outer/codec/codec_work.h"

static const struct codec_dense *dense_of(const struct codec *c)
{
    return (const struct codec_dense *)c; /* c is its first member */
}

/* ---- writing ---- */

struct codec_out codec_out_open(uint8_t *present, size_t block_bytes, size_t blocks)
{
    size_t bits = codec_present_bytes(blocks);
    memset(present, 0, bits);
    return (struct codec_out){
        .present = present, .end = present + bits, .block_bytes = block_bytes};
}

void codec_out_put(struct codec_out *o, int threads, const uint8_t *dense, const uint8_t *present,
                   size_t blocks)
{
    size_t n = o->block_bytes;
    uint8_t *end = o->end;
    if (!memchr(present, 0, blocks)) { /* the usual case */
#pragma omp parallel for num_threads(threads) schedule(static)
        for (size_t b = 0; b < blocks; b++)
            memcpy(end + b * n, dense + b * n, n);
        o->end += blocks * n;
    } else {
        for (size_t b = 0; b < blocks; b++)
            if (present[b]) {
                memcpy(o->end, dense + b * n, n);
                o->end += n;
            }
    }
    for (size_t b = 0; b < blocks; b++, o->block++)
        o->present[o->block / 8] |= (uint8_t)(present[b] << o->block % 8);
}

/* Every byte the first, and that one `nothing`. */
static bool says_nothing(const uint8_t *block, size_t n, int nothing)
{
    return block[0] == nothing && memcmp(block, block + 1, n - 1) == 0;
}

enum err codec_dense_encode(const struct codec *c, struct codec_work *w, uint8_t *payload,
                            size_t *size_bytes, float *residual, const float *z,
                            const uint8_t *grid, size_t count)
{
    const struct codec_dense *d = dense_of(c);
    size_t blocks = codec_blocks(count), n = d->block_bytes;
    struct codec_out out = codec_out_open(payload + blocks, n, blocks);
    for (size_t at = 0; at < count; at += w->piece) {
        size_t first = codec_blocks(at), values = count - at < w->piece ? count - at : w->piece;
        struct codec_piece p = {residual + at,   z + at, grid + first,
                                payload + first, first,  values};
        codec_put_codes(w, payload + first, z + at, values);
        const uint8_t *made = d->encode_piece(c, w, &p);
        TRY(dev_sync(w->d));
        if (d->nothing != NOTHING_NONE) {
#pragma omp parallel for num_threads(w->d->threads) schedule(static)
            for (size_t b = 0; b < codec_blocks(values); b++)
                w->present[b] = !says_nothing(made + b * n, n, d->nothing);
        }
        codec_out_put(&out, w->d->threads, made, w->present, codec_blocks(values));
    }
    *size_bytes = (size_t)(out.end - payload);
    return codec_finish(w, payload, grid, blocks);
}

size_t codec_dense_max(const struct codec *c, size_t count)
{
    size_t blocks = codec_blocks(count);
    return blocks + codec_present_bytes(blocks) + blocks * dense_of(c)->block_bytes;
}

/* ---- reading ---- */

struct codec_in codec_in_open(const uint8_t *codes, const uint8_t *present, size_t block_bytes,
                              size_t blocks)
{
    return (struct codec_in){codes, present, present + codec_present_bytes(blocks), 0, block_bytes};
}

struct codec_in codec_dense_in(const struct codec *c, const uint8_t *payload, size_t count)
{
    size_t blocks = codec_blocks(count);
    return codec_in_open(payload, payload + blocks, dense_of(c)->block_bytes, blocks);
}

struct codec_run codec_in_run(struct codec_in *in, size_t most_blocks)
{
    bool here = codec_is_present(in->present, in->block);
    struct codec_run r = {in->codes + in->block, here ? in->next : NULL, 0};
    while (r.blocks < most_blocks && codec_is_present(in->present, in->block) == here) {
        r.blocks++;
        in->block++;
    }
    in->next += here ? r.blocks * in->block_bytes : 0;
    return r;
}

enum err codec_in_bytes(const uint8_t *present, size_t block_bytes, size_t blocks,
                        size_t *size_bytes)
{
    size_t here = 0, bits = codec_present_bytes(blocks);
    for (size_t b = 0; b < blocks; b++)
        here += codec_is_present(present, b);
    for (size_t b = blocks; b < bits * 8; b++)
        if (codec_is_present(present, b))
            return err_set(ERR_PROTO, "encoded values: a bit for block %zu of %zu", b, blocks);
    *size_bytes = bits + here * block_bytes;
    return ERR_OK;
}

static enum err check_codes(const uint8_t *codes, size_t blocks)
{
    const uint8_t *bad = memchr(codes, 255, blocks);
    return bad ? err_set(ERR_PROTO, "encoded values: block %zu has code 255", (size_t)(bad - codes))
               : ERR_OK;
}

enum err codec_dense_check(const struct codec *c, const uint8_t *payload, size_t size_bytes,
                           size_t count)
{
    const struct codec_dense *d = dense_of(c);
    size_t blocks = codec_blocks(count), head = blocks + codec_present_bytes(blocks), rest;
    if (size_bytes < head)
        return codec_check_size(size_bytes, head);
    TRY(check_codes(payload, blocks));
    TRY(codec_in_bytes(payload + blocks, d->block_bytes, blocks, &rest));
    TRY(codec_check_size(size_bytes, blocks + rest));
    struct codec_in in = codec_dense_in(c, payload, count);
    while (in.block < blocks) {
        size_t first = in.block;
        struct codec_run run = codec_in_run(&in, blocks - first);
        for (size_t b = 0; run.bytes && b < run.blocks; b++) {
            const uint8_t *block = run.bytes + b * d->block_bytes;
            const char *wrong = says_nothing(block, d->block_bytes, d->nothing)
                                    ? "a block that says nothing"
                                    : d->wrong(block);
            if (wrong)
                return err_set(ERR_PROTO, "encoded values: %s, block %zu", wrong, first + b);
        }
    }
    return ERR_OK;
}
