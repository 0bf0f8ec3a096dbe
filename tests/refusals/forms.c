/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of size and form: headers, chunks and payloads that no encoder of ours makes, under digests
 * that hold. */
#include "tests/refusals/refusals.h"
#include "tests/refusals/scene.h"

enum { PLACE = 1 << 16 };

/* ---- payloads ---- */

/* Site b's contribution is accepted as it is; site a's is changed first. */
static const char *payload_but(enum codec_kind codec, void (*change)(uint8_t *payload, size_t *n))
{
    size_t n;
    scene_here();
    scene_open(codec);
    uint8_t *payload = scene_payload(1, &n);
    struct scene_site *s = scene_fresh(1);
    struct wire_contribution m = scene_offer(s, payload, n);
    assert_string_equal(scene_contribute("b", &m, payload, n), "answer receipt");
    free(payload);
    s = scene_fresh(0);
    payload = scene_payload(0, &n);
    assert_in_range(n, 1, PLACE - 64);
    payload = realloc(payload, PLACE);
    assert_non_null(payload);
    memset(payload + n, 0, PLACE - n);
    change(payload, &n);
    m = scene_offer(s, payload, n);
    const char *text = scene_contribute("a", &m, payload, n);
    free(payload);
    return text;
}

static uint8_t *first_block(uint8_t *payload)
{
    size_t blocks = scene.replica.fragments->f[0].elements / DEV_BLOCK;
    return payload + blocks + (blocks + 7) / 8;
}

static void longer(uint8_t *payload, size_t *n)
{
    (void)payload;
    *n += 1;
}

static void shorter(uint8_t *payload, size_t *n)
{
    (void)payload;
    *n -= 1;
}

static void behind(uint8_t *payload, size_t *n)
{
    memcpy(payload + *n, first_block(payload), 64);
    *n += 64;
}

static void scale_to_nan(uint8_t *payload, size_t *n)
{
    static const uint8_t nan[4] = {0, 0, 0xc0, 0x7f};
    (void)n;
    memcpy(first_block(payload), nan, sizeof nan);
}

static void scale_to_negative(uint8_t *payload, size_t *n)
{
    (void)n;
    first_block(payload)[3] |= 0x80;
}

static void integer_to_eight(uint8_t *payload, size_t *n)
{
    (void)n;
    first_block(payload)[0] = 0xff; /* two values of 8, and Q is 7 */
}

/* The gaps of a chunk of 4096 begin at bit 13 + 2 * 64; each one of these bits stands for 32. */
static void gaps_to_ones(uint8_t *payload, size_t *n)
{
    assert_in_range(*n, 51, PLACE);
    memset(payload + 18, 0xff, 32);
}

const char *length_plus_one(void)
{
    return payload_but(CODEC_INT4, longer);
}

const char *length_minus_one(void)
{
    return payload_but(CODEC_INT4, shorter);
}

const char *trailing_bytes(void)
{
    return payload_but(CODEC_INT4, behind);
}

const char *scale_nan(void)
{
    return payload_but(CODEC_E3M0, scale_to_nan);
}

const char *scale_negative(void)
{
    return payload_but(CODEC_E3M0, scale_to_negative);
}

const char *integer_above_q(void)
{
    return payload_but(CODEC_INT4, integer_to_eight);
}

const char *index_range(void)
{
    return payload_but(CODEC_TOPK, gaps_to_ones);
}

/* Three refused ones, each by another process of the site; then a good one. */
const char *quarantined(void)
{
    enum { STRIKES = 3 };
    size_t n;
    scene_here();
    scene_open_strikes(STRIKES);
    uint8_t *payload = scene_payload(0, &n);
    integer_to_eight(payload, &n);
    for (int i = 0; i < STRIKES; i++) {
        struct wire_contribution m = scene_offer(scene_fresh(0), payload, n);
        assert_string_equal(scene_contribute("a", &m, payload, n), "answer invalid");
    }
    free(payload);
    payload = scene_payload(0, &n);
    struct wire_contribution m = scene_offer(&scene.site[0], payload, n);
    const char *text = scene_contribute("a", &m, payload, n);
    free(payload);
    return text;
}

/* ---- headers ---- */

/* An offer with a field more, which a reader would ignore. */
const char *header_oversize(void)
{
    size_t n, size;
    scene_here();
    uint8_t *payload = scene_payload(0, &n), *data;
    struct wire_contribution m = scene_offer(scene_fresh(0), payload, n);
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
    struct hand h;
    assert_int_equal(wire_encode(WIRE_UPLOAD, &m, &a, &data, &size), ERR_OK);
    uint8_t *message = calloc(1, size + 3 + 1024);
    static const uint8_t field15[] = {15 << 3 | 2, 0x80, 0x08}; /* 1024 bytes follow */
    assert_non_null(message);
    memcpy(message, data, size);
    memcpy(message + size, field15, sizeof field15);
    hand_open(&h, scene.port, "a");
    struct link_call *c = hand_call(&h, link_paths[LINK_CONTRIBUTE], 5000);
    link_call_send(c, link_buffer(message, size + sizeof field15 + 1024));
    link_call_half_close(c);
    const char *text = scene_status(hand_end(c, NULL));
    hand_close(&h);
    arena_free(&a);
    free(message);
    free(payload);
    return text;
}

/* ---- chunks ---- */

/* Opens a stream of site a, whose payload is *payload; free it. */
static void stream_open(struct scene_stream *s, uint8_t **payload, size_t *n)
{
    scene_here();
    *payload = scene_payload(0, n);
    assert_in_range(*n, 128, PLACE);
    struct wire_contribution m = scene_offer(scene_fresh(0), *payload, *n);
    assert_string_equal(scene_begin(s, "a", &m), "answer resume");
}

static void part(struct scene_stream *s, const uint8_t *payload, size_t n, uint64_t from,
                 uint32_t size, uint32_t wrong)
{
    struct wire_chunk chunk = {from, n, digest_crc32c(0, payload + from, size) ^ wrong, size};
    scene_chunk(s, &chunk, payload + from);
}

const char *chunk_gap(void)
{
    struct scene_stream s;
    uint8_t *payload;
    size_t n;
    stream_open(&s, &payload, &n);
    part(&s, payload, n, 64, 32, 0);
    free(payload);
    return scene_end(&s, false);
}

const char *chunk_overlap(void)
{
    struct scene_stream s;
    uint8_t *payload;
    size_t n;
    stream_open(&s, &payload, &n);
    part(&s, payload, n, 0, 64, 0);
    part(&s, payload, n, 32, 64, 0);
    free(payload);
    return scene_end(&s, false);
}

const char *chunk_crc(void)
{
    struct scene_stream s;
    uint8_t *payload;
    size_t n;
    stream_open(&s, &payload, &n);
    part(&s, payload, n, 0, 64, 1);
    free(payload);
    return scene_end(&s, false);
}

/* The encoder would not write it: fields 3 to 5 by hand. */
const char *chunk_oversize(void)
{
    enum { SIZE = WIRE_CHUNK_BYTES + 1, HEAD = 13 };
    struct scene_stream s;
    uint8_t *payload, *message = calloc(1, HEAD + SIZE);
    size_t n;
    stream_open(&s, &payload, &n);
    assert_non_null(message);
    static const uint8_t total[] = {3 << 3, 0x81, 0x80, 0x40},
                         size[] = {5 << 3 | 2, 0x81, 0x80, 0x40};
    uint32_t crc = digest_crc32c(0, message, SIZE);
    memcpy(message, total, sizeof total);
    message[4] = 4 << 3 | 5;
    memcpy(message + 5, &crc, sizeof crc);
    memcpy(message + 9, size, sizeof size);
    link_call_send(s.c, link_buffer(message, HEAD + SIZE));
    free(message);
    free(payload);
    return scene_end(&s, false);
}

const char *digest_wrong(void)
{
    size_t n;
    scene_here();
    uint8_t *payload = scene_payload(0, &n);
    struct wire_contribution m = scene_offer(scene_fresh(0), payload, n);
    m.payload.bytes[0] ^= 1;
    const char *text = scene_contribute("a", &m, payload, n);
    free(payload);
    return text;
}
