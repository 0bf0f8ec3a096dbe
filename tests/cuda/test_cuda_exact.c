/* SPDX-License-Identifier: Apache-2.0 */
/* The exact set of the CUDA backend against the CPU's, by memcmp: random values of every size,
 * denormals, the largest floats, ties and their neighbours, counts and addresses that are no
 * multiple of 16 bytes. If one bit differs, members of a run disagree about the outer state. Not
 * finite: only what the ops promise (a code of 255, no contribution); the payload of a NaN is the
 * processor's affair.
 */
#include "tests/kernels/check.h"
#include "tests/cuda/cuda_test.h"
#include "kernels/scalar/forms.h"

enum { BLOCKS = 41, COUNT = BLOCKS * DEV_BLOCK, ODD = COUNT - 3, ARRAYS = 4, ROUNDS = 6 };
static struct dev *gpu, cpu = {.threads = 1};
static float values[ARRAYS][COUNT];
static int32_t integers[COUNT];
static uint8_t codes[BLOCKS];
static uint32_t slots[BLOCKS];

static float special(uint32_t r)
{
    static const uint32_t bits[] = {0,           0x80000000u, 1,           0x80000001u, 0x007fffffu,
                                    0x00800000u, 0x7f7fffffu, 0xff7fffffu, 0x7f7f0000u, 0x7f7f8000u,
                                    0x3f808000u, 0x3f818000u, 0x4b7fffffu, 0x4b800000u, 0xcb800000u,
                                    0x4b000000u, 0x3f000000u, 0x3effffffu};
    return float_of_bits(bits[r % (sizeof bits / sizeof *bits)]);
}

/* round 0: any finite bits; 1: denormals; 2: huge; 3: halves and their neighbours; 4: special; 5: a
 * mixture. */
static float draw(int round, uint64_t i)
{
    uint32_t r[4], kind = (uint32_t)round;
    rng_block(11 + (uint64_t)round, RNG_TEST, i, r);
    kind = round == 5 ? r[2] % 5 : kind;
    uint32_t bits = r[0];
    if (kind == 1)
        bits &= 0x807fffffu;
    if (kind == 2)
        bits = (bits & 0x807fffffu) | (0xf0u + r[1] % 15) << 23;
    if (kind == 3) {
        float half = (float)((int)(r[0] % 1000) - 500) * 0.5f * ldexpf(1, (int)(r[1] % 9) - 4);
        bits = float_bits(half) + r[3] % 3 - 1;
    }
    if (kind == 4)
        return special(r[1]);
    return (bits & 0x7f800000u) == 0x7f800000u ? 1.0f : float_of_bits(bits);
}

static void draw_all(int round)
{
    for (size_t k = 0; k < ARRAYS; k++)
        for (size_t i = 0; i < COUNT; i++)
            values[k][i] = draw(round, k * COUNT + i);
    for (size_t i = 0; i < COUNT; i++)
        integers[i] = (int32_t)rng_below(12, RNG_TEST, i + (uint64_t)round * COUNT, 65025) - 32512;
    for (size_t i = 0; i < BLOCKS; i++) {
        codes[i] = (uint8_t)(round % 2 ? 98 + rng_below(13, RNG_TEST, i, 60)
                                       : rng_below(13, RNG_TEST, i, 255));
        slots[i] = i % 5 == 2 ? DEV_ABSENT : (uint32_t)(i * 7 % BLOCKS);
    }
    codes[0] = 0;
    codes[1] = 1;
    codes[2] = 254;
    for (size_t i = 0; i < DEV_BLOCK;
         i++) { /* zeros, on a grid and not; one value; zeros but for one -0 */
        values[0][i] = values[0][3 * DEV_BLOCK + i] = 0;
        values[0][4 * DEV_BLOCK + i] = i == 200 ? values[0][i] : 0;
        values[0][5 * DEV_BLOCK + i] = i == 17 ? -0.0f : 0;
    }
}

static void *to_gpu(const void *x, size_t bytes)
{
    void *p = room(gpu, bytes + 64);
    gpu->ops->copy(gpu, p, x, bytes);
    return p;
}

static void same(const char *what, int round, const void *on_gpu, const void *want, size_t bytes)
{
    uint8_t *got = arena_alloc(&check_host, bytes + 1);
    gpu->ops->copy(gpu, got, on_gpu, bytes);
    assert_int_equal(dev_sync(gpu), ERR_OK);
    for (size_t i = 0; i < bytes; i++)
        if (got[i] != ((const uint8_t *)want)[i])
            fail_msg("%s, round %d: byte %zu of %zu is %02x, the CPU says %02x", what, round, i,
                     bytes, got[i], ((const uint8_t *)want)[i]);
}

static float *copy_of(const float *x)
{
    float *y = arena_alloc(&check_host, COUNT * sizeof *y);
    memcpy(y, x, COUNT * sizeof *y);
    return y;
}

static void elements(int round)
{
    float *z = copy_of(values[2]), *gz = to_gpu(z, COUNT * 4);
    cpu_outer_delta(&cpu, z,
                    &(struct dev_delta){.outer = values[0],
                                        .local = values[1],
                                        .residual = z,
                                        .weight = 0.3f,
                                        .count = ODD}); /* z aliases residual */
    gpu->ops->outer_delta(gpu, gz,
                          &(struct dev_delta){.outer = to_gpu(values[0], COUNT * 4),
                                              .local = to_gpu(values[1], COUNT * 4),
                                              .residual = gz,
                                              .weight = 0.3f,
                                              .count = ODD});
    for (size_t i = 0; i < COUNT; i++)
        if (!isfinite(z[i])) /* infinity minus infinity: a NaN of the processor's kind */
            z[i] = 0;
    float *host = arena_alloc(&check_host, COUNT * 4);
    gpu->ops->copy(gpu, host, gz, COUNT * 4);
    for (size_t i = 0; i < COUNT; i++)
        host[i] = isfinite(host[i]) ? host[i] : 0;
    assert_memory_equal(host, z, COUNT * 4);
    float *acc = copy_of(values[3]), *gacc = to_gpu(acc, COUNT * 4);
    cpu_axpy(&cpu, acc + 1, values[0], 0.37f, ODD - 1); /* no multiple of 16 bytes */
    gpu->ops->axpy(gpu, gacc + 1, to_gpu(values[0], COUNT * 4), 0.37f, ODD - 1);
    same("axpy", round, gacc, acc, COUNT * 4);
    cpu_div_scalar(&cpu, acc, 3.0f, COUNT);
    gpu->ops->div_scalar(gpu, gacc, 3.0f, COUNT);
    same("div_scalar", round, gacc, acc, COUNT * 4);
}

/* Every optimizer, at every place in a cycle: middle, first, last, both. */
static void outer(int round)
{
    for (unsigned kind = 0; kind < OUTER_OPT_KINDS; kind++) {
        float *x[4], *g[4];
        /* Stay finite: 0.9 and 0.7 of less than 2^126. Slab 1 may be a mean of squares. */
        for (int i = 0; i < 4; i++) {
            x[i] = copy_of(values[i]);
            for (size_t k = 0; k < COUNT; k++)
                x[i][k] = i == 2 ? fabsf(0.125f * x[i][k]) : 0.125f * x[i][k];
            g[i] = to_gpu(x[i], COUNT * 4);
        }
        for (int k = 0; k < 4; k++) {
            const struct outer_scalars scalars = {0.7f,  0.9f,  1 / 3.0f, k % 2, k / 2,
                                                  0.99f, 0.01f, 0.8f,     1};
            cpu_outer_step(&cpu, kind,
                           &(struct dev_outer_step){x[0], {x[1], x[2]}, x[3], scalars, ODD});
            gpu->ops->outer_step(gpu, kind,
                                 &(struct dev_outer_step){g[0], {g[1], g[2]}, g[3], scalars, ODD});
            same("theta", round, g[0], x[0], COUNT * 4);
            same("slab 0", round, g[1], x[1], COUNT * 4);
            same("slab 1", round, g[2], x[2], COUNT * 4);
        }
    }
}

/* Each form there and back; in place or not, at an address that is no multiple of 16 or at one. */
static void encode_form(enum dev_form form, int round, size_t shift, uint8_t *out, uint8_t *code)
{
    size_t bytes = BLOCKS * form_bytes(form), n = COUNT - DEV_BLOCK, at = shift ? 1 : 0;
    bool in_place = round % 2;
    uint8_t present[BLOCKS] = {0};
    float *z = copy_of(values[0]), *kept = in_place ? z : copy_of(values[1]);
    float *gz = to_gpu(z, COUNT * 4), *gkept = in_place ? gz : to_gpu(kept, COUNT * 4);
    uint8_t *gout = room(gpu, bytes), *gcode = room(gpu, BLOCKS), *gpresent = room(gpu, BLOCKS);
    const struct dev_encode a = {.form = form,
                                 .count = shift ? n : COUNT,
                                 .grid = codes,
                                 .seed = 3,
                                 .stream = 5,
                                 .first = (size_t)round << 31,
                                 .code = code,
                                 .present = present};
    struct dev_encode g = a;
    g.grid = to_gpu(codes, BLOCKS);
    memset(out, 0, bytes);
    memset(code, 0, BLOCKS);
    cpu_block_encode(&cpu, out, kept + at, z + at, &a);
    g.code = gcode;
    g.present = gpresent;
    gpu->ops->block_encode(gpu, gout, gkept + at, gz + at, &g);
    same("encoded", round * 100 + (int)form, gout, out, bytes);
    same("code", round, gcode, code, BLOCKS);
    same("present", round * 100 + (int)form, gpresent, present, BLOCKS);
    same("residual", round * 100 + (int)form, gkept, kept, COUNT * 4);
    assert_true(shift || (!present[0] && !present[3] && code[5] == 0));
}

static void decode_form(enum dev_form form, int round, const uint8_t *in, const uint8_t *own)
{
    static const unsigned bits[DEV_FORMS] = {0, 0, 8, 4, 2, 1};
    bool sums = form >= DEV_INT8 && form <= DEV_SIGN;
    uint16_t signs[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++)
        signs[i] = i % 4 > 0; /* of none: 1 is too much */
    for (int k = 0; k < 4; k++) {
        uint32_t over = 0, *gover = to_gpu(&over, 4);
        float *z = copy_of(values[2]), *gz = to_gpu(z, COUNT * 4);
        for (size_t i = 0; i < COUNT; i++) /* so that sums are finite */
            z[i] *= 0.25f;
        gpu->ops->copy(gpu, gz, z, COUNT * 4);
        const struct dev_decode a = {
            form,  COUNT, slots,          sums ? codes : own, bits[form], (int)form_q_max(form),
            signs, &over, k % 2 && !sums, k < 2 ? 1.0f : 3.7f};
        struct dev_decode g = a;
        g.slot = to_gpu(slots, sizeof slots);
        g.code = to_gpu(a.code, BLOCKS);
        g.signs = to_gpu(signs, sizeof signs);
        g.overflow = gover;
        cpu_block_decode(&cpu, z, in, &a);
        gpu->ops->block_decode(gpu, gz, to_gpu(in, BLOCKS * form_bytes(form)), &g);
        same("decoded", round * 100 + (int)form, gz, z, COUNT * 4);
        same("over", round * 100 + (int)form, gover, &over, 4);
        assert_true(form == DEV_SIGN || !over);
    }
}

static void forms(int round)
{
    static uint8_t out[COUNT * 4];
    uint8_t code[BLOCKS];
    for (int form = 0; form < DEV_FORMS; form++) {
        encode_form((enum dev_form)form, round, 1, out, code);
        encode_form((enum dev_form)form, round, 0, out, code);
        decode_form((enum dev_form)form, round, out, code);
        check_done(gpu);
    }
}

/* Blocks of every size that occurs. */
static void blocks_are_gathered(void **state)
{
    (void)state;
    uint32_t index[BLOCKS];
    draw_all(0);
    for (size_t i = 0; i < BLOCKS; i++)
        index[i] = (uint32_t)(i * 3 % BLOCKS);
    for (int form = 0; form < DEV_FORMS; form++)
        for (size_t n = 0; n < BLOCKS; n += 13) {
            size_t bytes = form_bytes((enum dev_form)form);
            uint8_t *out = arena_alloc(&check_host, n * bytes + 1),
                    *gout = room(gpu, n * bytes + 1);
            cpu_block_gather(&cpu, out, (const uint8_t *)values[0], index, bytes, n);
            gpu->ops->block_gather(gpu, gout, to_gpu(values[0], COUNT * 4),
                                   to_gpu(index, sizeof index), bytes, n);
            same("gathered", form, gout, out, n * bytes);
        }
    check_done(gpu);
}

/* What a chunk's largest are when many are equal, all are, or none is anything. */
static void draw_chunks(int round)
{
    draw_all(round % ROUNDS);
    for (size_t i = 0; i < COUNT && round >= ROUNDS; i++) {
        uint32_t r = rng_u32(40 + (uint64_t)round, RNG_TEST, i);
        float ties = (float)(int)(r % 9) - 4, rare = r % 100 ? 0 : 1 + (float)(r / 100 % 3);
        float normal = rng_normal(41, RNG_TEST, i);
        values[0][i] = round == 6   ? ties
                       : round == 7 ? -0.5f
                       : round == 8 ? 0
                       : round == 9 ? rare
                                    : normal;
    }
}

static void chunks_are_equal(void **state)
{
    (void)state;
    enum { CHUNKS = (COUNT + DEV_CHUNK - 1) / DEV_CHUNK, MORE = 11 };
    static const size_t counts[] = {COUNT, DEV_CHUNK, DEV_BLOCK, DEV_CHUNK + 5 * DEV_BLOCK};
    static struct dev_chunk made[CHUNKS];
    double norms[CHUNKS];
    for (int round = 0; round < MORE; round++)
        for (size_t k = 0; k < 4; k++) {
            size_t n = counts[k], at = round % 2 && k, chunks = (n + DEV_CHUNK - 1) / DEV_CHUNK;
            draw_chunks(round);
            float *z = copy_of(values[0]), *kept = k % 2 ? z : copy_of(values[1]);
            float *gz = to_gpu(z, COUNT * 4), *gkept = k % 2 ? gz : to_gpu(kept, COUNT * 4);
            double *gnorms = room(gpu, chunks * sizeof *gnorms);
            memset(made, 0, sizeof made);
            struct dev_chunk *gmade = room(gpu, chunks * sizeof *gmade);
            cpu_chunk_l1(&cpu, norms, z + at, n);
            gpu->ops->chunk_l1(gpu, gnorms, gz + at, n);
            same("norms", round, gnorms, norms, chunks * sizeof *norms);
            cpu_chunk_topk(&cpu, made, kept + at, z + at, n);
            gpu->ops->chunk_topk(gpu, gmade, gkept + at, gz + at, n);
            same("largest", round, gmade, made, chunks * sizeof *made);
            same("what the largest leave", round, gkept, kept, COUNT * 4);
            assert_true(round != 10 || made[0].upper > 0);
            assert_true(round != 8 || made[0].upper == 0);
            float *sum = copy_of(values[3]), *gsum = to_gpu(sum, COUNT * 4);
            cpu_chunk_add(&cpu, sum + at, made, n);
            gpu->ops->chunk_add(gpu, gsum + at, gmade, n);
            same("chunks added", round, gsum, sum, COUNT * 4);
            check_done(gpu);
        }
}

/* The first that is not finite is named by both, with any neighbours. */
static void chunks_that_are_not_finite(void **state)
{
    (void)state;
    struct dev_chunk made[3];
    for (size_t at = 5; at < DEV_CHUNK; at += 1021) {
        draw_chunks(10);
        memset(made, 0, sizeof made);
        values[0][at] = at % 2 ? NAN : -INFINITY;
        values[0][DEV_CHUNK + at] = INFINITY;
        values[0][DEV_CHUNK - 1] = -NAN;
        float *gz = to_gpu(values[0], COUNT * 4);
        struct dev_chunk *gmade = room(gpu, sizeof made);
        cpu_chunk_topk(&cpu, made, values[0], values[0], COUNT);
        gpu->ops->chunk_topk(gpu, gmade, gz, gz, COUNT);
        same("refused", (int)at, gmade, made, sizeof made);
        assert_int_equal(made[0].upper, DEV_CHUNK_BAD);
        assert_int_equal(made[0].value[0], at);
        assert_int_equal(made[1].upper, DEV_CHUNK_BAD);
        assert_true(made[2].upper != DEV_CHUNK_BAD);
        check_done(gpu);
    }
}

/* A block with a value that is not finite, anywhere, is 255 on both. */
static void not_finite(void **state)
{
    (void)state;
    uint8_t code[BLOCKS], *gcode = room(gpu, BLOCKS);
    draw_all(3);
    for (size_t i = 0; i < BLOCKS; i++)
        values[0][i * DEV_BLOCK + i * 6] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
    cpu_block_code(&cpu, code, values[0], COUNT);
    gpu->ops->block_code(gpu, gcode, to_gpu(values[0], COUNT * 4), COUNT);
    same("block_code", 0, gcode, code, BLOCKS);
    assert_int_equal(code[7], 255);
    check_done(gpu);
}

static void bf16(int round)
{
    static uint16_t h[COUNT];
    float *z = copy_of(values[0]), *gz = to_gpu(z, COUNT * 4);
    uint16_t *gh = to_gpu(h, sizeof h);
    cpu_round_bf16(&cpu, h, z, z, ODD);
    gpu->ops->round_bf16(gpu, gh, gz, gz, ODD);
    same("h", round, gh, h, ODD * 2);
    same("residual of bf16", round, gz, z, COUNT * 4);
    cpu_bf16_to_f32(&cpu, z, h, ODD);
    gpu->ops->bf16_to_f32(gpu, gz, gh, ODD);
    same("widened", round, gz, z, COUNT * 4);
    const struct dev_random r = {7, (uint64_t)round, 8 * ((size_t)1 << 33)};
    cpu_round_stochastic(&cpu, h, values[0], &r, ODD);
    gpu->ops->round_stochastic(gpu, gh, to_gpu(values[0], COUNT * 4), &r, ODD);
    same("stochastic", round, gh, h, ODD * 2);
    for (int k = 0; k < 8; k++) {
        const struct dev_narrow narrow = {6, 9, k > 3, 7, (uint64_t)round, (size_t)k % 4, NULL};
        z = copy_of(values[0]), gz = to_gpu(z, COUNT * 4);
        cpu_round_narrow(&cpu, z, h, &narrow, ODD);
        gpu->ops->round_narrow(gpu, gz, gh, &narrow, ODD);
        same("few bits", round, gz, z, COUNT * 4);
        same("bf16 of few bits", round, gh, h, ODD * 2);
    }
}

static void on_all_rounds(void (*check)(int round))
{
    for (int round = 0; round < ROUNDS; round++) {
        draw_all(round);
        check(round);
        check_done(gpu);
    }
}

static void elements_are_equal(void **state)
{
    (void)state;
    on_all_rounds(elements);
}

static void outer_step_is_equal(void **state)
{
    (void)state;
    on_all_rounds(outer);
}

static void forms_are_equal(void **state)
{
    (void)state;
    on_all_rounds(forms);
}

/* Ranges with a tail, one of several runs, one value; with and without errors and a mask. */
static void signs_are_equal(void **state)
{
    enum { N = DEV_RUN + 4 * DEV_BLOCK, RANGES = 3 };
    static const struct dev_range ranges[RANGES] = {
        {0, 1}, {DEV_BLOCK, DEV_RUN + 301}, {DEV_RUN + 3 * DEV_BLOCK, 77}};
    static float x[N], error[N], mask[N], out[N];
    static uint8_t bits[3][N / 8];
    static struct dev_sign_sum sums[RANGES * 2];
    float scales[3][RANGES], stop = 1;
    (void)state;
    for (size_t i = 0; i < N; i++) {
        x[i] = i % 11 ? rng_normal(14, RNG_TEST, i) : 0;
        error[i] = i % 11 ? rng_normal(15, RNG_TEST, i) : 0;
        mask[i] = rng_normal(16, RNG_TEST, i) > 0 ? 1 : 0;
    }
    const struct dev_range *granges = to_gpu(ranges, sizeof ranges);
    for (int how = 0; how < 3; how++) {
        struct dev_sign_encode e = {.x = x,
                                    .error = how ? error : NULL,
                                    .mask = how == 2 ? mask : NULL,
                                    .stop = &stop,
                                    .ranges = ranges,
                                    .n = RANGES,
                                    .longest = DEV_RUN + 301,
                                    .scales = scales[how],
                                    .sums = sums},
                               g = e;
        uint8_t *gbits = to_gpu(bits[how], N / 8);
        g.x = to_gpu(x, sizeof x), g.stop = to_gpu(&stop, sizeof stop), g.ranges = granges;
        g.error = how ? to_gpu(error, sizeof error) : NULL;
        g.mask = how == 2 ? to_gpu(mask, sizeof mask) : NULL;
        g.scales = to_gpu(scales[how], sizeof scales[how]), g.sums = to_gpu(sums, sizeof sums);
        cpu_sign_encode(&cpu, bits[how], &e);
        gpu->ops->sign_encode(gpu, gbits, &g);
        same("signs", how, gbits, bits[how], N / 8);
        same("scales of signs", how, g.scales, scales[how], sizeof scales[how]);
        if (how)
            same("errors of signs", how, g.error, error, sizeof error);
    }
    struct dev_sign_decode v = {.mask = mask,
                                .stop = &stop,
                                .ranges = ranges,
                                .n = RANGES,
                                .longest = DEV_RUN + 301,
                                .parts = 3,
                                .bits = bits[0],
                                .bits_stride = N / 8,
                                .scales = scales[0],
                                .scales_stride = RANGES},
                           g = v;
    float *gout = to_gpu(out, sizeof out);
    g.mask = to_gpu(mask, sizeof mask), g.stop = to_gpu(&stop, sizeof stop), g.ranges = granges;
    g.bits = to_gpu(bits, sizeof bits), g.scales = to_gpu(scales, sizeof scales);
    cpu_sign_decode(&cpu, out, &v);
    gpu->ops->sign_decode(gpu, gout, &g);
    same("mean of signs", 0, gout, out, sizeof out);
    for (size_t i = 0; i < N; i++)
        x[i] *= x[i], error[i] *= error[i];
    struct dev_moments k = {.v = x, .fresh = error, .eps = 1e-6f, .ranges = ranges, .n = RANGES};
    float most[RANGES], *gmost = to_gpu(most, sizeof most);
    cpu_range_moments(&cpu, most, &k);
    k.v = to_gpu(x, sizeof x), k.fresh = to_gpu(error, sizeof error), k.ranges = granges;
    gpu->ops->range_moments(gpu, gmost, &k);
    same("largest ratios", 0, gmost, most, sizeof most);
    stop = NAN;
    memset(out, 0, sizeof out);
    g.stop = to_gpu(&stop, sizeof stop);
    gout = to_gpu(out, sizeof out);
    gpu->ops->sign_decode(gpu, gout, &g);
    same("a stopped mean", 0, gout, out, sizeof out);
    check_done(gpu);
}

static void bf16_is_equal(void **state)
{
    (void)state;
    on_all_rounds(bf16);
}

/* Streams of every width; sums of them, integers and signs, that are as they should be and not. */
static void streams_are_equal(void **state)
{
    (void)state;
    static uint8_t stream[COUNT / 8 * 18];
    static int32_t back[COUNT];
    static uint16_t signs[BLOCKS];
    draw_all(0);
    for (unsigned bits = 1; bits <= 18; bits++) {
        int32_t bias = 1 << (bits - 1);
        size_t bytes = COUNT / 8 * bits;
        for (size_t i = 0; i < COUNT; i++)
            integers[i] = (int32_t)(rng_u32(bits, RNG_TEST, i) & ((1u << bits) - 1)) - bias;
        int32_t *gq = to_gpu(integers, sizeof integers);
        uint8_t *gstream = room(gpu, bytes);
        uint32_t *gslots = to_gpu(slots, sizeof slots);
        cpu_pack(&cpu, stream, integers, bias, bits, COUNT);
        gpu->ops->pack(gpu, gstream, gq, bias, bits, COUNT);
        same("packed", (int)bits, gstream, stream, bytes);
        for (int add = 0; add < 2; add++) {
            cpu_unpack(&cpu, back, stream,
                       &(struct dev_unpack){
                           .slot = slots, .bias = bias, .bits = bits, .add = add, .count = COUNT});
            gpu->ops->unpack(
                gpu, gq, gstream,
                &(struct dev_unpack){
                    .slot = gslots, .bias = bias, .bits = bits, .add = add, .count = COUNT});
            same("unpacked", (int)bits, gq, back, sizeof back);
        }
        for (int k = 0; k < 4; k++) { /* integers, signs; too large, or not */
            uint32_t over = 0, *gover = to_gpu(&over, 4);
            float *z = copy_of(values[0]), *gz = to_gpu(z, COUNT * 4);
            for (size_t i = 0; i < BLOCKS; i++)
                signs[i] = (uint16_t)((1u << (bits < 16 ? bits : 16)) - 1 - (k == 1));
            const struct dev_decode a = {.form = k % 2 ? DEV_SIGN
                                                 : k   ? DEV_INT2
                                                       : DEV_INT4,
                                         .count = COUNT,
                                         .slot = slots,
                                         .code = codes,
                                         .bits = bits,
                                         .bias = k < 2 ? bias - 1 : bias,
                                         .signs = signs,
                                         .overflow = &over,
                                         .divisor = 3};
            struct dev_decode g = a;
            g.slot = gslots;
            g.code = to_gpu(codes, BLOCKS);
            g.signs = to_gpu(signs, sizeof signs);
            g.overflow = gover;
            cpu_block_decode(&cpu, z, stream, &a);
            gpu->ops->block_decode(gpu, gz, gstream, &g);
            same("sums", (int)bits, gz, z, COUNT * 4);
            same("over", (int)bits * 10 + k, gover, &over, 4);
            assert_true((over == 1) == (k == 0 || (k == 1 && bits < 14) || (k == 3 && bits > 16)) ||
                        bits > 13);
        }
        check_done(gpu);
    }
}

/* Sums over runs: of huge and of tiny values, in counts that end within a run. */
static void squares_are_equal(void **state)
{
    (void)state;
    enum { N = 2 * DEV_RUN + 3 * DEV_BLOCK };
    static const size_t counts[] = {DEV_BLOCK, DEV_RUN, DEV_RUN + DEV_BLOCK, N};
    static float x[N], y[N];
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < N; i++) {
            x[i] = draw(round, i);
            y[i] = i % 5 ? draw(round, i + N) : x[i];
        }
        float *gx = to_gpu(x, sizeof x), *gy = to_gpu(y, sizeof y);
        double *gsums = room(gpu, 3 * sizeof *gsums);
        for (size_t k = 0; k < 2 * sizeof counts / sizeof *counts; k++) {
            double sums[3] = {0};
            size_t n = counts[k / 2], runs = (n + DEV_RUN - 1) / DEV_RUN;
            cpu_sumsq_diff(&cpu, sums, x, k % 2 ? y : NULL, n);
            gpu->ops->sumsq_diff(gpu, gsums, gx, k % 2 ? gy : NULL, n);
            same("sumsq_diff", round, gsums, sums, runs * sizeof *sums);
        }
        check_done(gpu);
    }
}

/* One value that is off, or not finite, at any place: seen by both; what is not off by neither. */
static void apart_is_equal(void **state)
{
    (void)state;
    draw_all(3);
    for (size_t i = 0; i < COUNT; i++)
        values[2][i] = values[0][i] + values[1][i];
    for (size_t at = 0; at <= ODD; at += 523) {
        float *gsent = to_gpu(values[0], COUNT * 4), *gkept = to_gpu(values[1], COUNT * 4);
        for (int k = 0; k < 3; k++) {
            float was = values[2][at];
            uint32_t apart = 0, *gapart = to_gpu(&apart, 4);
            values[2][at] = k == 0 ? nextafterf(was, 1e9f) : k == 1 ? NAN : was;
            cpu_check_residual(&cpu, &apart,
                               &(struct dev_residual_check){.sent = values[0],
                                                            .residual = values[1],
                                                            .z = values[2],
                                                            .tolerance = 0,
                                                            .count = ODD});
            gpu->ops->check_residual(gpu, gapart,
                                     &(struct dev_residual_check){.sent = gsent,
                                                                  .residual = gkept,
                                                                  .z = to_gpu(values[2], COUNT * 4),
                                                                  .tolerance = 0,
                                                                  .count = ODD});
            assert_int_equal(apart, k < 2 && at < ODD);
            same("check_residual", k, gapart, &apart, 4);
            values[2][at] = was;
        }
        check_done(gpu);
    }
}

static void samples_are_equal(void **state)
{
    (void)state;
    draw_all(0);
    float *out = copy_of(values[0]), *gout = to_gpu(out, COUNT * 4);
    cpu_copy_strided(&cpu, out, values[1], 41, 255);
    gpu->ops->copy_strided(gpu, gout, to_gpu(values[1], COUNT * 4), 41, 255);
    same("copy_strided", 0, gout, out, COUNT * 4);
    check_done(gpu);
}

/* Wide ranges and odd ones, and more than one launch takes. */
static void ranges_are_equal(void **state)
{
    (void)state;
    enum { N = 70 };
    struct dev_range ranges[N];
    for (int round = 0; round < ROUNDS; round++) {
        size_t last = COUNT / N - 8, total = 0;
        for (size_t i = 0; i < N; total += ranges[i++].count)
            ranges[i] = (struct dev_range){.offset = i * (COUNT / N) + (round % 2 ? 0 : i % 3),
                                           .count = round % 2 ? last / 4 * 4 : 1 + i % last};
        draw_all(round);
        float *out = copy_of(values[3]), *gout = to_gpu(out, COUNT * 4);
        cpu_gather_ranges(&cpu, out, values[0], ranges, N);
        gpu->ops->gather_ranges(gpu, gout, to_gpu(values[0], COUNT * 4), ranges, N);
        same("gather_ranges", round, gout, out, COUNT * 4);
        for (int k = 0; k < 4; k++) {
            struct dev_lerp b = {ranges, N, k < 2 ? 0 : 0.3f, k % 2};
            float *slab = copy_of(values[0]), *gslab = to_gpu(slab, COUNT * 4);
            cpu_lerp_ranges(&cpu, slab, values[1], &b);
            gpu->ops->lerp_ranges(gpu, gslab, to_gpu(values[1], COUNT * 4), &b);
            same("lerp_ranges", round, gslab, slab, COUNT * 4);
        }
        check_done(gpu);
        assert_true(total < COUNT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_are_equal), cmocka_unit_test(outer_step_is_equal),
        cmocka_unit_test(forms_are_equal),    cmocka_unit_test(bf16_is_equal),
        cmocka_unit_test(signs_are_equal),    cmocka_unit_test(streams_are_equal),
        cmocka_unit_test(not_finite),         cmocka_unit_test(squares_are_equal),
        cmocka_unit_test(apart_is_equal),     cmocka_unit_test(samples_are_equal),
        cmocka_unit_test(ranges_are_equal),   cmocka_unit_test(blocks_are_gathered),
        cmocka_unit_test(chunks_are_equal),   cmocka_unit_test(chunks_that_are_not_finite),
    };
    if (cuda_test_open(&gpu, "f32") == ERR_UNSUPPORTED) {
        printf("SKIPPED: %s\n", err_message());
        return CUDA_TEST_SKIP;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    dev_close(gpu);
    return failed;
}
