/* SPDX-License-Identifier: Apache-2.0 */
/* Work buffers of the codecs, and what all of them do with block codes. Knows no codec. */
#include <math.h>
#include <stdlib.h>
#include "kernels/base/rng.h"
#include "outer/codec/codec_work.h"

size_t codec_no_state(const struct tensor_view *view, size_t count)
{
    (void)view, (void)count;
    return 0;
}

/* On a CPU a piece and its blocks (1 MiB each) stay in the caches, and the cores meet seldom
 * enough at the end of an op: 2^14 was a third slower. On a GPU a launch must be worth it. */
enum {
    PIECE_CPU = 1 << 18,
    PIECE_GPU = 1 << 24,
    PIECE_LEAST = 4096
}; /* the last: of top-k's chunks */

static size_t work_piece(size_t largest, bool host_memory)
{
    size_t most = host_memory ? PIECE_CPU : PIECE_GPU;
    size_t least = (largest + PIECE_LEAST - 1) / PIECE_LEAST * PIECE_LEAST;
    return least < most ? least : most;
}

static size_t work_piece_bytes(size_t n)
{
    return n * 8 + 9 * codec_blocks(n) + 4;
}

/* Room for the sixteenth of a piece that top-k's chunks take, and for 2^16 values. */
static size_t bytes_room(size_t n)
{
    size_t most = n < 1 << 16 ? n : 1 << 16;
    return most * sizeof(float) > n / 16 ? most * sizeof(float) : n / 16;
}

size_t codec_device_bytes(size_t largest)
{
    return work_piece_bytes(work_piece(largest, false));
}

size_t codec_host_bytes(size_t largest, bool here)
{
    size_t n = work_piece(largest, here);
    return bytes_room(n) + 7 * codec_blocks(n) + (here ? work_piece_bytes(n) : 0);
}

static enum err work_alloc(struct codec_work *w)
{
    size_t n = w->piece, blocks = codec_blocks(n);
    struct {
        void **p;
        size_t bytes;
    } buffers[] = {
        {&w->values, n * sizeof(float)},
        {(void **)&w->stream, n * sizeof(float)},
        {(void **)&w->grid, blocks},
        {(void **)&w->codes, blocks},
        {(void **)&w->said, blocks},
        {(void **)&w->slots, blocks * sizeof *w->slots},
        {(void **)&w->signs, blocks * sizeof *w->signs},
        {(void **)&w->over, sizeof *w->over},
    };
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        TRY(dev_alloc(w->d, buffers[i].p, buffers[i].bytes));
    w->present = malloc(blocks);
    w->slots_host = malloc(blocks * sizeof *w->slots_host);
    w->signs_host = malloc(blocks * sizeof *w->signs_host);
    if (!w->present || !w->slots_host || !w->signs_host)
        return err_set(ERR_MEMORY, "codec: %zu bytes wanted", blocks * 7);
    return w->d->ops->host_alloc(w->d, (void **)&w->bytes, bytes_room(n));
}

enum err codec_open(struct codec_work **w, struct dev *d)
{
    return codec_open_for(w, d, PIECE_GPU);
}

enum err codec_open_for(struct codec_work **w, struct dev *d, size_t largest)
{
    *w = calloc(1, sizeof **w);
    if (!*w)
        return err_set(ERR_MEMORY, "codec: %zu bytes wanted", sizeof **w);
    (*w)->d = d;
    (*w)->here = d->host_memory;
    (*w)->piece = work_piece(largest, d->host_memory);
    enum err e = work_alloc(*w);
    if (e != ERR_OK) {
        codec_close(*w);
        *w = NULL;
    }
    return e;
}

void codec_seed(struct codec_work *w, uint64_t seed, unsigned site, unsigned fragment,
                uint64_t round)
{
    ASSERT(site < CODEC_SITES_MAX && fragment < 1 << 14);
    w->random_seed = seed;
    w->random_stream = RNG_CODEC | (uint64_t)site << 8 | (uint64_t)fragment << 18 | round << 32;
}

void codec_close(struct codec_work *w)
{
    if (!w)
        return;
    void *buffers[] = {w->values, w->stream, w->grid,  w->codes,
                       w->said,   w->slots,  w->signs, w->over};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        dev_free(w->d, buffers[i]);
    free(w->present);
    free(w->slots_host);
    free(w->signs_host);
    if (w->bytes)
        w->d->ops->host_free(w->d, w->bytes);
    free(w);
}

struct dev *codec_device(const struct codec_work *w)
{
    return w->d;
}

uint8_t codec_residual_ratio(double residual, double delta)
{
    double ratio = delta > 0 ? residual / delta : residual > 0 ? INFINITY : 0;
    uint8_t code = grid_code(256 * ratio); /* which divides by 256 */
    return code == GRID_CODE_BAD ? CODEC_RATIO_MAX : residual > 0 && code == 0 ? 1 : code;
}

/* Of the device, where the host can read them. */
static const float *floats_seen(struct codec_work *w, const float *x, size_t count)
{
    return (const float *)(const void *)codec_seen(w, x, count * sizeof *x);
}

/* The code that nine in ten of the blocks that hold anything do not exceed. */
static unsigned usual_code(const uint8_t *codes, size_t blocks)
{
    size_t with[256] = {0}, all = 0, seen = 0;
    unsigned code = 1;
    for (size_t b = 0; b < blocks; b++)
        with[codes[b]]++;
    all = blocks - with[0];
    if (!all)
        return 255;
    while (seen += with[code], seen <= (all - 1) * 9 / 10)
        code++;
    return code;
}

/* The value that makes up 15/16 of its block's sum of squares; DEV_BLOCK: there is none. */
static size_t value_dominant(const float *z)
{
    double sum = 0, most = 0;
    size_t at = 0;
    for (size_t i = 0; i < DEV_BLOCK; i++) {
        double square = (double)z[i] * (double)z[i];
        sum += square;
        at = square > most ? i : at;
        most = square > most ? square : most;
    }
    return most * 16 > sum * 15 ? at : DEV_BLOCK;
}

size_t codec_spike(struct codec_work *w, const uint8_t *codes, const float *z, size_t count,
                   float *value)
{
    /* 4096 times the usual RMS alone in 256 values: 256 times as block RMS, 16 codes (half
     * octaves). */
    unsigned limit = usual_code(codes, codec_blocks(count)) + 16;
    for (size_t b = 0; b < codec_blocks(count); b++) {
        if (codes[b] <= limit)
            continue;
        const float *block = floats_seen(w, z + b * DEV_BLOCK, DEV_BLOCK);
        size_t i = value_dominant(block);
        if (i == DEV_BLOCK)
            continue;
        *value = block[i];
        return b * DEV_BLOCK + i;
    }
    return count;
}

void codec_residual_decay(float *residual, double *discarded, float beta, size_t count)
{
    if (beta == 1.0f)
        return;
    for (size_t i = 0; i < count; i++) {
        float kept = beta * residual[i];
        if (discarded)
            discarded[i] += (double)residual[i] - (double)kept;
        residual[i] = kept;
    }
}

/* Block codes of one piece of z -> host. */
static void put_codes(struct codec_work *w, uint8_t *codes, const float *z, size_t n)
{
    w->d->ops->block_code(w->d, w->codes, z, n);
    w->d->ops->copy(w->d, codes, w->codes, codec_blocks(n));
}

enum err codec_codes(struct codec_work *w, uint8_t *codes, const float *z, size_t count)
{
    for (size_t at = 0; at < count; at += w->piece)
        put_codes(w, codes + codec_blocks(at), z + at,
                  count - at < w->piece ? count - at : w->piece);
    return dev_sync(w->d);
}

const uint8_t *codec_seen(struct codec_work *w, const void *bytes, size_t size_bytes)
{
    if (w->here)
        return bytes;
    w->d->ops->copy(w->d, w->bytes, bytes, size_bytes);
    return w->bytes;
}

const void *codec_there(struct codec_work *w, void *there, const void *bytes, size_t size_bytes)
{
    if (w->here)
        return bytes;
    w->d->ops->copy(w->d, there, bytes, size_bytes);
    return there;
}

enum err codec_finish(struct codec_work *w, uint8_t *codes, const uint8_t *grid, size_t blocks)
{
    TRY(dev_sync(w->d));
    for (size_t b = 0; b < blocks; b++) {
        if (codes[b] == 255)
            return err_set(ERR_DIVERGED, "delta not finite in block %zu of %zu", b, blocks);
        if (codes[b] == 0)
            codes[b] = grid[b];
    }
    return ERR_OK;
}

enum err codec_check_size(size_t size_bytes, size_t want)
{
    if (size_bytes != want)
        return err_set(ERR_PROTO, "encoded values: %zu bytes, %zu expected", size_bytes, want);
    return ERR_OK;
}

enum err codec_check_mean(unsigned n, float weight_sum)
{
    if (n < 1 || n > CODEC_SITES_MAX)
        return err_set(ERR_PROTO, "aggregate: %u contributions, 1 to %d expected", n,
                       CODEC_SITES_MAX);
    if (!(weight_sum > 0) || !isfinite(weight_sum))
        return err_set(ERR_PROTO, "aggregate: sum of weights is %g", (double)weight_sum);
    return ERR_OK;
}

uint8_t codec_mean_code(uint32_t sum, unsigned n)
{
    return (uint8_t)((sum + n / 2) / n);
}

/* The sums of the runs of a piece are in w->values; the pieces are whole runs but for the last. */
enum err codec_squares(struct codec_work *w, double *sum, const float *a, const float *b,
                       size_t count)
{
    double *runs = w->values;
    *sum = 0;
    ASSERT(w->piece % DEV_RUN == 0 || count <= w->piece);
    for (size_t at = 0; at < count; at += w->piece) {
        size_t n = count - at < w->piece ? count - at : w->piece, k = (n + DEV_RUN - 1) / DEV_RUN;
        w->d->ops->sumsq_diff(w->d, runs, a + at, b ? b + at : NULL, n);
        const double *made = (const double *)(const void *)codec_seen(w, runs, k * sizeof *runs);
        TRY(dev_sync(w->d));
        for (size_t i = 0; i < k; i++)
            *sum += made[i];
    }
    return ERR_OK;
}

enum err codec_adds_up(const struct codec *c, const struct codec_call *call, bool *yes,
                       const float *sent, const float *kept, const float *z)
{
    struct codec_work *w = call->work;
    uint32_t apart = 0;
    w->d->ops->zero(w->d, w->over, sizeof apart);
    w->d->ops->check_residual(
        w->d, w->over,
        &(struct dev_residual_check){
            .sent = sent, .residual = kept, .z = z, .tolerance = c->slack, .count = call->count});
    w->d->ops->copy(w->d, &apart, w->over, sizeof apart);
    *yes = !apart;
    return dev_sync(w->d);
}

const float *codec_sample(struct codec_work *w, const float *x, size_t stride, size_t count)
{
    ASSERT(count <= w->piece);
    w->d->ops->copy_strided(w->d, w->values, x, stride, count);
    return floats_seen(w, w->values, count);
}

unsigned codec_grid_bits(const struct codec *c, unsigned n)
{
    uint64_t largest = 2 * (uint64_t)n * (unsigned)c->q_max;
    unsigned bits = 0;
    while (largest >> bits)
        bits++;
    return bits;
}
