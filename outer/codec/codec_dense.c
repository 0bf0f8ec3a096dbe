/* SPDX-License-Identifier: Apache-2.0 */
/* Payloads of blocks of 256 values: codes, a bit per block, and the blocks that are not all zero.
 */
#include <string.h>
#include "outer/codec/codec_work.h"

/* ---- writing ---- */

struct codec_out codec_out_open(uint8_t *present, size_t block_bytes, size_t blocks)
{
    size_t bits = codec_present_bytes(blocks);
    memset(present, 0, bits);
    return (struct codec_out){
        .present = present, .end = present + bits, .block_bytes = block_bytes};
}

enum err codec_out_put(struct codec_work *w, struct codec_out *o, const void *dense, void *spare,
                       size_t blocks)
{
    const struct dev_ops *ops = w->d->ops;
    uint32_t *index = w->slots_host, here = 0;
    for (size_t b = 0; b < blocks; b++, o->block++) {
        index[here] = (uint32_t)b;
        here += w->present[b];
        o->present[o->block / 8] |= (uint8_t)(w->present[b] << o->block % 8);
    }
    size_t n = o->block_bytes;
    if (w->here) {
        ops->block_gather(w->d, o->end, dense, index, n, here);
    } else if (here == blocks) { /* the usual case */
        ops->copy(w->d, o->end, dense, here * n);
    } else if (here) {
        ops->copy(w->d, w->slots, index, here * sizeof *index);
        ops->block_gather(w->d, spare, dense, w->slots, n, here);
        ops->copy(w->d, o->end, spare, here * n);
    }
    o->end += here * n;
    return dev_sync(w->d);
}

/* The next piece: codes and which blocks are present -> host, blocks -> w->values, device. */
static enum err dense_piece_encode(struct codec_work *w, uint8_t *codes, float *residual,
                                   const float *z, const struct dev_encode *a)
{
    const struct dev_ops *ops = w->d->ops;
    size_t blocks = codec_blocks(a->count);
    uint8_t *made = w->here ? codes : w->codes, *said = w->here ? w->present : w->said;
    struct dev_encode piece = *a;
    piece.code = made;
    piece.present = said;
    ops->block_encode(w->d, w->values, residual, z, &piece);
    if (!w->here) {
        ops->copy(w->d, codes, made, blocks);
        ops->copy(w->d, w->present, said, blocks);
    }
    return dev_sync(w->d);
}

enum err codec_dense_encode(const struct codec *c, const struct codec_call *call, uint8_t *payload,
                            size_t *size_bytes, float *residual, const float *z)
{
    struct codec_work *w = call->work;
    const uint8_t *grid = call->grid;
    size_t count = call->count, blocks = codec_blocks(count);
    struct codec_out out = codec_out_open(payload + blocks, form_bytes(c->dense->form), blocks);
    for (size_t at = 0; at < count; at += w->piece) {
        size_t first = codec_blocks(at), n = count - at < w->piece ? count - at : w->piece;
        const struct dev_encode a = {
            .form = c->dense->form,
            .count = n,
            .seed = w->random_seed,
            .stream = w->random_stream,
            .first = first,
            .grid = c->summable ? codec_there(w, w->grid, grid + first, codec_blocks(n)) : NULL};
        TRY(dense_piece_encode(w, payload + first, residual + at, z + at, &a));
        TRY(codec_out_put(w, &out, w->values, w->stream, codec_blocks(n)));
    }
    *size_bytes = (size_t)(out.end - payload);
    return codec_finish(w, payload, grid, blocks);
}

size_t codec_block_bytes(const struct codec *c)
{
    return c->dense->form == DEV_FORMS ? DEV_BLOCK / 8 * codec_grid_bits(c, 1)
                                       : form_bytes(c->dense->form);
}

size_t codec_dense_max(const struct codec *c, size_t count)
{
    size_t blocks = codec_blocks(count);
    return blocks + codec_present_bytes(blocks) + blocks * codec_block_bytes(c);
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
    return codec_in_open(payload, payload + blocks, codec_block_bytes(c), blocks);
}

struct codec_taken codec_in_take(struct codec_work *w, struct codec_in *in, size_t blocks)
{
    const uint8_t *from = in->next;
    uint32_t here = 0;
    for (size_t b = 0; b < blocks; b++, in->block++)
        w->slots_host[b] = codec_is_present(in->present, in->block) ? here++ : DEV_ABSENT;
    in->next += here * in->block_bytes;
    return (struct codec_taken){codec_there(w, w->stream, from, here * in->block_bytes),
                                codec_there(w, w->slots, w->slots_host, blocks * sizeof *w->slots)};
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

size_t codec_present_count(const uint8_t *present, size_t first, size_t end)
{
    size_t n = 0, at = first / 8, bytes = codec_present_bytes(end);
    for (uint64_t eight; at + sizeof eight <= bytes; at += sizeof eight) {
        memcpy(&eight, present + at, sizeof eight);
        n += (size_t)__builtin_popcountll(eight);
    }
    for (; at < bytes; at++)
        n += (size_t)__builtin_popcount(present[at]);
    return n;
}

static enum err check_codes(const uint8_t *codes, size_t blocks)
{
    const uint8_t *bad = memchr(codes, 255, blocks);
    return bad ? err_set(ERR_PROTO, "encoded values: block %zu has block exponent 255",
                         (size_t)(bad - codes))
               : ERR_OK;
}

/* zero: the byte that stands for values of 0. */
static bool block_all_zero(const uint8_t *block, size_t n, uint8_t zero)
{
    return block[0] == zero && memcmp(block, block + 1, n - 1) == 0;
}

/* ---- how large a payload's values are ---- */

/* The values of a block that is sent, over its scale: of floats. */
static void block_values(enum dev_form form, float out[DEV_BLOCK], const uint8_t *block)
{
    if (form == DEV_F32) {
        memcpy(out, block, DEV_BLOCK * sizeof *out);
    } else if (form == DEV_BF16) {
        uint16_t halves[DEV_BLOCK];
        memcpy(halves, block, sizeof halves);
        for (size_t i = 0; i < DEV_BLOCK; i++)
            out[i] = float_of_bits((uint32_t)halves[i] << 16);
    } else {
        for (size_t i = 0; i < DEV_BLOCK; i++)
            out[i] = form_value(form, block[i], 1);
    }
}

static double block_scale(enum dev_form form, const uint8_t *block, uint8_t own, uint8_t grid)
{
    float scale = 1;
    if (form == DEV_E3M0)
        memcpy(&scale, block, sizeof scale);
    else if (form == DEV_E4M3 || form == DEV_E5M2 || form == DEV_E5M2_RANDOM)
        scale = form_fp8_scale(form, own);
    else if (form != DEV_F32 && form != DEV_BF16)
        scale = grid_step(form_step(form, grid));
    return (double)scale;
}

/* Of forms whose squares over the scale's are whole numbers: at most 256 * 127^2. E3M0 is scaled by
 * 2^14: level L stands for 2^(L-7). */
static uint32_t block_whole_squares(enum dev_form form, const uint8_t *block)
{
    static const uint16_t level[8] = {0, 1 << 2, 1 << 4, 1 << 6, 1 << 8, 1 << 10, 1 << 12, 1 << 14};
    int sum = 0;
    if (form == DEV_INT8)
        for (size_t i = 0; i < DEV_BLOCK; i++)
            sum += (block[i] - 127) * (block[i] - 127);
    else if (form == DEV_INT4)
        for (size_t i = 0; i < DEV_BLOCK / 2; i++) {
            int low = (block[i] & 15) - 7, high = (block[i] >> 4) - 7;
            sum += low * low + high * high;
        }
    else if (form == DEV_INT2)
        for (size_t i = 0; i < DEV_BLOCK / 4; i++)
            for (unsigned k = 0; k < 8; k += 2) {
                int value = (block[i] >> k & 3) - 1;
                sum += value * value;
            }
    else
        for (size_t i = 0; i < DEV_BLOCK / 2; i++) {
            uint8_t two = block[FORM_SCALE_BYTES + i];
            sum += level[two & FORM_LEVELS] + level[two >> 4 & FORM_LEVELS];
        }
    return (uint32_t)sum;
}

/* In f32, eight sums at a time: infinite from values of 2^64 on, and values below 2^-63 count as 0.
 */
static double dense_block_squares(enum dev_form form, const uint8_t *block, uint8_t own,
                                  uint8_t grid)
{
    enum { SUMS = 8 };
    float values[DEV_BLOCK], sums[SUMS] = {0};
    double sum = 0, scale = block_scale(form, block, own, grid);
    if (form == DEV_SIGN)
        return scale * scale * DEV_BLOCK;
    if (form == DEV_INT8 || form == DEV_INT4 || form == DEV_INT2)
        return scale * scale * block_whole_squares(form, block);
    if (form == DEV_E3M0)
        return scale * scale * 0x1p-14 * block_whole_squares(form, block);
    block_values(form, values, block);
    for (size_t i = 0; i < DEV_BLOCK; i += SUMS)
        for (size_t k = 0; k < SUMS; k++)
            sums[k] += values[i + k] * values[i + k];
    for (size_t k = 0; k < SUMS; k++)
        sum += (double)sums[k];
    return scale * scale * sum;
}

/* The least sum of 256 squares that has this block code. */
double codec_code_squares(uint8_t code)
{
    uint64_t bits = (uint64_t)(code + 1023 + 8 - 128) << 52;
    double sum;
    memcpy(&sum, &bits, sizeof sum);
    return code ? sum : 0;
}

static double dense_squares(enum dev_form form, const uint8_t *payload, const uint8_t *grid,
                            size_t blocks)
{
    const uint8_t *present = payload + blocks, *block = present + codec_present_bytes(blocks);
    double sum = 0;
    for (size_t b = 0; b < blocks; b++) {
        double sent = 0, claimed = codec_code_squares(payload[b]);
        if (codec_is_present(present, b)) {
            sent = dense_block_squares(form, block, payload[b], grid[b]);
            block += form_bytes(form);
        }
        sum += sent > claimed ? sent : claimed;
    }
    return sum;
}

enum err codec_dense_check_size(const struct codec *c, const uint8_t *payload, size_t size_bytes,
                                size_t count)
{
    size_t blocks = codec_blocks(count), head = blocks + codec_present_bytes(blocks), rest;
    if (size_bytes < head)
        return codec_check_size(size_bytes, head);
    TRY(check_codes(payload, blocks));
    TRY(codec_in_bytes(payload + blocks, codec_block_bytes(c), blocks, &rest));
    return codec_check_size(size_bytes, blocks + rest);
}

enum err codec_dense_check(const struct codec *c, const struct codec_call *call, double *squares,
                           const uint8_t *payload, size_t size_bytes)
{
    const struct codec_dense *d = c->dense;
    size_t blocks = codec_blocks(call->count), n = form_bytes(d->form);
    TRY(codec_dense_check_size(c, payload, size_bytes, call->count));
    const uint8_t *block = payload + blocks + codec_present_bytes(blocks);
    for (size_t b = 0; b < blocks; b++) {
        if (!codec_is_present(payload + blocks, b))
            continue;
        const char *wrong = d->form != DEV_SIGN && block_all_zero(block, n, form_nothing(d->form))
                                ? "an all-zero block is sent"
                                : d->wrong(block);
        if (wrong)
            return err_set(ERR_PROTO, "encoded values: %s, block %zu", wrong, b);
        block += n;
    }
    if (squares)
        *squares = dense_squares(d->form, payload, call->grid, blocks);
    return ERR_OK;
}
