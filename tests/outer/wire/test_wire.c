/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes from unknown peers: what one side writes the other reads, and nothing that is cut, bent or
 * too large gets through or reads past its end. Damaged messages come from fixed seeds, so a
 * failure repeats.
 */
#include <math.h>
#include <stdio.h>
#include "kernels/base/rng.h"
#include "outer/wire/wire.h"
#include "tests/inner/scratch.h"

static struct arena arena;

static int fresh(void **state)
{
    (void)state;
    arena = arena_make(WIRE_DECODE_BYTES_MAX);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

union any {
#define X(kind, type, largest) struct type kind;
    WIRE_LIST(X)
#undef X
};
static struct digest name(const char *s)
{
    return digest_of(s, strlen(s));
}

static struct wire_head head(void)
{
    struct wire_head h = {.config = name("config"),
                          .roster_version = 3,
                          .term = 1ull << 40,
                          .incarnation = 9,
                          .instance = UINT64_MAX};
    memset(h.run, 'r', sizeof h.run - 1); /* as long as it may be */
    strcpy(h.site, "a-Ü");                /* UTF-8 */
    return h;
}

static void fill(enum wire_kind kind, union any *m)
{
    static char config[WIRE_CONFIG_MAX];
    memset(config, 'k', sizeof config - 1);
    memset(m, 0, sizeof *m);
    struct wire_answer answer = {.outcome = ROUND_RESUME,
                                 .text = "why: \"quoted\"\n",
                                 .offset = 1ull << 50,
                                 .blocks = {.count = BLOCKS_MAX, .stored = {1 << 20, 0, 77}},
                                 .round = 41,
                                 .final = 40,
                                 .clock_ms = 1ull << 41,
                                 .retry_ms = 1500};
    if (kind == WIRE_HELLO) {
        m->HELLO = (struct wire_hello){.head = head(),
                                       .major = 1,
                                       .minor = 7,
                                       .config = config,
                                       .has_state = true,
                                       .fragment_count = ROUND_FRAGMENTS_MAX,
                                       .identity_bytes = SIGNER_CERTIFICATE_MAX,
                                       .announcement.size_bytes = SIGNER_ANNOUNCEMENT_MAX};
        memset(m->HELLO.identity, 'i', sizeof m->HELLO.identity);
        memset(m->HELLO.announcement.bytes, 'e', sizeof m->HELLO.announcement.bytes);
        for (unsigned i = 0; i < ROUND_FRAGMENTS_MAX; i++)
            m->HELLO.fragments[i] =
                (struct wire_fragment_state){i,
                                             name("s"),
                                             name("m"),
                                             name("a"),
                                             i % 2,
                                             7 * i,
                                             {i % 3 > 0, i % 3, i % 3, i % 3, {0}},
                                             i * 3,
                                             i % 2 == 1,
                                             i % 5 == 1};
    } else if (kind == WIRE_HELLO_ANSWER) {
        m->HELLO_ANSWER = (struct wire_hello_answer){ROUND_MISMATCH,
                                                     "outer.sync_every: 20 here, 50 there",
                                                     1,
                                                     2,
                                                     3,
                                                     4,
                                                     1,
                                                     {{.round = 41,
                                                       .state = name("s"),
                                                       .manifest = name("m"),
                                                       .accepted = name("a"),
                                                       .sealed = true,
                                                       .first = 42}},
                                                     2,
                                                     {400, 1ll << 40},
                                                     ROUND_SITES_MAX - 1,
                                                     ROUND_SITES_MAX,
                                                     {{1, 2, 3}, 3}};
    } else if (kind == WIRE_POLL) {
        m->POLL = (struct wire_poll){head(), 63, 41, 30000};
    } else if (kind == WIRE_POLL_ANSWER) {
        m->POLL_ANSWER.answer = answer;
        m->POLL_ANSWER.answer.outcome = ROUND_COMMIT;
        m->POLL_ANSWER.manifest =
            (struct manifest){.run = "demo", .round = 41, .parent = name("p"), .site_count = 1};
    } else if (kind == WIRE_REPORT) {
        m->REPORT = (struct wire_report){head(), 1, 42, name("s"), -5, 1.751, 1e5, 6, 7, 8};
    } else if (kind == WIRE_LEAVE) {
        m->LEAVE = (struct wire_leave){head(), "Ctrl-C"};
    } else if (kind == WIRE_OPERATE) {
        m->OPERATE = (struct wire_operate){.act = WIRE_ROLLBACK,
                                           .site = "c",
                                           .fragment = 63,
                                           .round = 1ull << 40,
                                           .to = 1ull << 39,
                                           .version = 1ull << 38};
    } else if (kind == WIRE_UPLOAD) {
        m->UPLOAD = (struct wire_contribution){head(),
                                               1,
                                               2,
                                               41,
                                               256u << 20,
                                               5,
                                               6,
                                               name("p"),
                                               name("g"),
                                               name("y"),
                                               0.75f,
                                               130,
                                               1ull << 35,
                                               1ull << 33,
                                               15,
                                               {1},
                                               {8.5, 0.25, 0.5},
                                               WIRE_SUPPLY_STATE};
    } else if (kind == WIRE_FETCH) {
        m->FETCH =
            (struct wire_fetch){head(), WIRE_SNAPSHOT, 1, 41, 12345678901, 1ull << 35, 16384};
    } else {
        m->ANSWER = answer;
    }
}

/* A commit of as many sites as a run may have goes through a poll's answer. */
static void a_manifest_of_all_sites(void **state)
{
    (void)state;
    static union any m, back;
    uint8_t *data;
    size_t n;
    fill(WIRE_POLL_ANSWER, &m);
    struct manifest *full = &m.POLL_ANSWER.manifest;
    memset(full->run, 'r', sizeof full->run - 1);
    memset(m.POLL_ANSWER.answer.text, 't', sizeof m.POLL_ANSWER.answer.text - 1);
    full->aggregate = name("aggregate");
    full->aggregate_bytes = UINT64_MAX;
    full->site_count = ROUND_SITES_MAX;
    full->roster_version = UINT32_MAX;
    full->change = (struct manifest_change){MANIFEST_ADD, ROUND_SITES_MAX - 1, name("operator")};
    full->added = MANIFEST_ADDED_MAX;
    full->initial = ROUND_SITES_MAX - MANIFEST_ADDED_MAX;
    for (unsigned i = 0; i < MANIFEST_ADDED_MAX; i++)
        snprintf(full->names[i], sizeof full->names[i], "%063u", i);
    for (uint32_t i = 0; i < ROUND_SITES_MAX; i++)
        full->sites[i] = (struct manifest_entry){.site = i,
                                                 .included = true,
                                                 .payload = name("payload"),
                                                 .payload_bytes = UINT64_MAX,
                                                 .weight = 1,
                                                 .norm = 1,
                                                 .data_cursor = UINT64_MAX,
                                                 .residual_ratio = 254,
                                                 .charged = UINT64_MAX};
    assert_int_equal(wire_encode(WIRE_POLL_ANSWER, &m, &arena, &data, &n), ERR_OK);
    assert_true(n <= wire_largest(WIRE_POLL_ANSWER));
    assert_int_equal(wire_decode(WIRE_POLL_ANSWER, &back, data, n, &arena), ERR_OK);
    assert_int_equal(manifest_included(&back.POLL_ANSWER.manifest), ROUND_SITES_MAX);
}

static void round_trips(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < WIRE_KINDS; kind++) {
        static union any m, back;
        uint8_t *data;
        size_t n;
        fill(kind, &m);
        memset(&back, 0xee, sizeof back);
        assert_int_equal(wire_encode(kind, &m, &arena, &data, &n), ERR_OK);
        assert_true(n <= wire_largest(kind));
        if (wire_decode(kind, &back, data, n, &arena) != ERR_OK)
            fail_msg("kind %u: %s", kind, err_message());
        if (kind == WIRE_HELLO) {
            assert_string_equal(back.HELLO.config, m.HELLO.config);
            back.HELLO.config = m.HELLO.config;
        }
        uint8_t *again;
        size_t n_again;
        assert_int_equal(wire_encode(kind, &back, &arena, &again, &n_again), ERR_OK);
        assert_int_equal(n_again, n);
        assert_memory_equal(again, data, n);
        arena_reset(&arena);
    }
    static union any m, back;
    uint8_t *data;
    size_t n;
    fill(WIRE_UPLOAD, &m); /* field by field once, so that two swapped ones cannot cancel out */
    assert_int_equal(wire_encode(WIRE_UPLOAD, &m, &arena, &data, &n), ERR_OK);
    assert_int_equal(wire_decode(WIRE_UPLOAD, &back, data, n, &arena), ERR_OK);
    assert_memory_equal(&back.UPLOAD.payload, &m.UPLOAD.payload, 32);
    assert_memory_equal(&back.UPLOAD.parent, &m.UPLOAD.parent, 32);
    assert_memory_equal(&back.UPLOAD.grid, &m.UPLOAD.grid, 32);
    assert_true(back.UPLOAD.head.term == 1ull << 40 && back.UPLOAD.head.incarnation == 9 &&
                back.UPLOAD.weight == 0.75f);
    assert_int_equal(back.UPLOAD.residual_ratio, 130);
    assert_true(back.UPLOAD.charged == 1ull << 35);
    assert_true(back.UPLOAD.data_cursor == 5 && back.UPLOAD.max_local_steps_offline == 6 &&
                back.UPLOAD.payload_bytes == 256u << 20);
    assert_true(back.UPLOAD.transfer == 1ull << 33 && back.UPLOAD.stream == 15);
    assert_memory_equal(&back.UPLOAD.pace, &m.UPLOAD.pace, sizeof m.UPLOAD.pace);
    const double bad[] = {NAN, INFINITY, -1}; /* nothing follows from it */
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        m.UPLOAD.pace.waited_s = bad[i];
        assert_int_equal(wire_encode(WIRE_UPLOAD, &m, &arena, &data, &n), ERR_OK);
        assert_int_equal(wire_decode(WIRE_UPLOAD, &back, data, n, &arena), ERR_OK);
        assert_memory_equal(&back.UPLOAD.pace, &(struct wire_pace){0}, sizeof m.UPLOAD.pace);
    }
    fill(WIRE_ANSWER, &m);
    assert_int_equal(wire_encode(WIRE_ANSWER, &m, &arena, &data, &n), ERR_OK);
    assert_int_equal(wire_decode(WIRE_ANSWER, &back, data, n, &arena), ERR_OK);
    assert_memory_equal(&back.ANSWER.blocks, &m.ANSWER.blocks, sizeof m.ANSWER.blocks);
    fill(WIRE_FETCH, &m);
    assert_int_equal(wire_encode(WIRE_FETCH, &m, &arena, &data, &n), ERR_OK);
    assert_int_equal(wire_decode(WIRE_FETCH, &back, data, n, &arena), ERR_OK);
    assert_true(back.FETCH.offset == 12345678901 && back.FETCH.size_bytes == 1ull << 35 &&
                back.FETCH.chunk_bytes == 16384);
}

/* Every prefix either fails or is a valid message of fewer fields; none reads past its end (a copy
 * of exact size: ASan). */
static void cut_at_every_byte(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < WIRE_KINDS; kind++) {
        static union any m, back;
        uint8_t *data;
        size_t n, refused = 0;
        fill(kind, &m);
        if (kind == WIRE_HELLO)
            m.HELLO.config = "outer.every=50\n";
        assert_int_equal(wire_encode(kind, &m, &arena, &data, &n), ERR_OK);
        for (size_t cut = 0; cut < n; cut++) {
            struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
            uint8_t *exact = malloc(cut ? cut : 1);
            assert_non_null(exact);
            memcpy(exact, data, cut);
            refused += wire_decode(kind, &back, exact, cut, &a) != ERR_OK;
            free(exact);
            arena_free(&a);
        }
        assert_true(refused > n / 2);
        arena_reset(&arena);
    }
}

/* All that is accepted can be encoded: no length, count or enumeration slipped through. */
static void bent(void **state)
{
    (void)state;
    unsigned accepted = 0;
    for (uint64_t seed = 0; seed < 20000; seed++) {
        static union any m, back;
        unsigned kind = (unsigned)(seed % WIRE_KINDS);
        uint8_t *data, *again;
        size_t n, n_again;
        fill(kind, &m);
        if (kind == WIRE_HELLO)
            m.HELLO.config = "outer.every=50\n";
        assert_int_equal(wire_encode(kind, &m, &arena, &data, &n), ERR_OK);
        for (unsigned i = 0; i <= rng_below(seed, RNG_TEST, 0, 4); i++)
            data[rng_below(seed, RNG_TEST, 1 + i, n)] = (uint8_t)rng_u32(seed, RNG_TEST, 10 + i);
        if (wire_decode(kind, &back, data, n, &arena) == ERR_OK) {
            accepted++;
            assert_int_equal(wire_encode(kind, &back, &arena, &again, &n_again), ERR_OK);
        } else {
            assert_true(*err_message());
        }
        assert_true(arena.used_bytes <= WIRE_DECODE_BYTES_MAX);
        arena_reset(&arena);
    }
    assert_in_range(accepted, 100, 19900);
}

/* ---- by hand: one field each ---- */

static size_t field(uint8_t *p, unsigned number, const void *data, size_t n)
{
    size_t at = 0;
    p[at++] = (uint8_t)(number << 3 | 2);
    for (size_t v = n;; v >>= 7) {
        p[at++] = (uint8_t)(v >= 128 ? (v & 127) | 128 : v);
        if (v < 128)
            break;
    }
    memcpy(p + at, data, n);
    return at + n;
}

static enum err answer_with(unsigned number, const void *data, size_t n)
{
    uint8_t p[4096];
    struct wire_answer m;
    enum err e = wire_decode(WIRE_ANSWER, &m, p, field(p, number, data, n), &arena);
    arena_reset(&arena);
    return e;
}

static void texts(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        enum err e;
    } cases[] = {
        {"plain", 5, ERR_OK},
        {"", 0, ERR_OK},
        {"\xc3\x9c\xe2\x82\xac\xf0\x9f\x98\x80", 9, ERR_OK},
        {"a\0b", 3, ERR_PROTO},
        {"\0", 1, ERR_PROTO},
        {"\xff", 1, ERR_PROTO},
        {"\x80", 1, ERR_PROTO},
        {"\xc0\x80", 2, ERR_PROTO}, /* an overlong NUL */
        {"\xc1\xbf", 2, ERR_PROTO},
        {"\xe0\x9f\xbf", 3, ERR_PROTO},
        {"\xed\xa0\x80", 3, ERR_PROTO}, /* a surrogate */
        {"\xf0\x8f\xbf\xbf", 4, ERR_PROTO},
        {"\xf4\x90\x80\x80", 4, ERR_PROTO},
        {"\xf5\x80\x80\x80", 4, ERR_PROTO},
        {"\xe2\x82", 2, ERR_PROTO},
        {"\xe2\x82z", 3, ERR_PROTO},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (answer_with(2, cases[i].bytes, cases[i].n) != cases[i].e)
            fail_msg("case %zu", i);
    static char text[WIRE_TEXT_MAX + 1];
    memset(text, 't', sizeof text);
    assert_int_equal(answer_with(2, text, WIRE_TEXT_MAX - 1), ERR_OK);
    assert_int_equal(answer_with(2, text, WIRE_TEXT_MAX), ERR_PROTO);
}

static void limits(void **state)
{
    (void)state;
    struct wire_answer answer;
    const uint8_t last[] = {1 << 3, ROUND_GONE}, unknown[] = {1 << 3, ROUND_GONE + 1};
    assert_int_equal(wire_decode(WIRE_ANSWER, &answer, last, 2, &arena), ERR_OK);
    assert_int_equal(wire_decode(WIRE_ANSWER, &answer, unknown, 2, &arena), ERR_PROTO);
    assert_says("outcome 21");

    uint8_t p[8192], inner[256], zeros[64] = {0};
    struct wire_hello hello;
    size_t n = field(p, 1, "", 0); /* an empty head */
    assert_int_equal(wire_decode(WIRE_HELLO, &hello, p, 0, &arena), ERR_PROTO);
    assert_says("no head");
    assert_int_equal(wire_decode(WIRE_HELLO, &hello, p, n, &arena), ERR_OK);
    for (unsigned i = 0; i < ROUND_FRAGMENTS_MAX; i++)
        n += field(p + n, 6, "", 0);
    assert_int_equal(wire_decode(WIRE_HELLO, &hello, p, n, &arena), ERR_OK);
    n += field(p + n, 6, "", 0);
    assert_int_equal(wire_decode(WIRE_HELLO, &hello, p, n, &arena), ERR_PROTO);
    assert_says("65 fragments");

    n = field(p, 1, inner, field(inner, 3, zeros, 31));
    assert_int_equal(wire_decode(WIRE_HELLO, &hello, p, n, &arena), ERR_PROTO);
    assert_says("31 bytes");
    n = field(p, 1, inner, field(inner, 3, zeros, 33));
    assert_int_equal(wire_decode(WIRE_HELLO, &hello, p, n, &arena), ERR_PROTO);
    n = field(
        p, 1, inner,
        field(inner, 2, "sixty-four bytes of a name that is one too long for a site, sure", 64));
    assert_int_equal(wire_decode(WIRE_HELLO, &hello, p, n, &arena), ERR_PROTO);
    assert_says("at most 63");

    struct wire_poll poll; /* a fragment is used as an index */
    n = field(p, 1, "", 0);
    p[n] = 2 << 3, p[n + 1] = ROUND_FRAGMENTS_MAX;
    assert_int_equal(wire_decode(WIRE_POLL, &poll, p, n + 2, &arena), ERR_PROTO);
    p[n + 1] = ROUND_FRAGMENTS_MAX - 1;
    assert_int_equal(wire_decode(WIRE_POLL, &poll, p, n + 2, &arena), ERR_OK);

    static uint8_t many[131072 + 1]; /* 64 Ki empty unknown fields: their bookkeeping must not take
                                        what it likes */
    for (size_t i = 0; i + 1 < sizeof many; i += 2)
        many[i] = 15 << 3 | 2;
    assert_int_equal(wire_decode(WIRE_HELLO, &hello, many, 131072, &arena), ERR_PROTO);
    assert_true(arena.used_bytes <= WIRE_DECODE_BYTES_MAX);
    assert_int_equal(wire_decode(WIRE_HELLO, &hello, many, sizeof many, &arena), ERR_PROTO);
    assert_says("at most 131072");
}

static void weights(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -1};
    for (int i = 0; i < 3; i++) {
        struct wire_contribution m = {.weight = bad[i]}, back;
        uint8_t *data;
        size_t n;
        assert_int_equal(wire_encode(WIRE_UPLOAD, &m, &arena, &data, &n), ERR_OK);
        assert_int_equal(wire_decode(WIRE_UPLOAD, &back, data, n, &arena), ERR_PROTO);
    }
}

/* ---- chunks ---- */

static void chunks(void **state)
{
    (void)state;
    static const struct wire_chunk cases[] = {
        {0, 1, 0, 1},
        {0, 64, 0xe3069283, 64},
        {5ull << 40, 6ull << 40, 1, WIRE_CHUNK_BYTES},
        {127, 128, 255, 1},
        {UINT64_MAX - 1, UINT64_MAX, UINT32_MAX, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t head_bytes[WIRE_CHUNK_HEADER_MAX + 8];
        struct wire_chunk back;
        size_t at, n = wire_chunk_header(head_bytes, &cases[i]);
        assert_true(n <= WIRE_CHUNK_HEADER_MAX);
        assert_int_equal(wire_chunk_parse(&back, head_bytes, n, n + cases[i].size_bytes, &at),
                         ERR_OK);
        assert_memory_equal(&back, &cases[i], sizeof back);
        assert_int_equal(at, n);
        assert_int_equal(wire_chunk_parse(&back, head_bytes, n, n + cases[i].size_bytes + 1, &at),
                         ERR_PROTO);
        assert_int_equal(wire_chunk_parse(&back, head_bytes, n, n + cases[i].size_bytes - 1, &at),
                         ERR_PROTO);
        for (size_t cut = 0; cut < n; cut++) {
            uint8_t *exact = malloc(cut ? cut : 1);
            assert_non_null(exact);
            memcpy(exact, head_bytes, cut);
            assert_int_equal(wire_chunk_parse(&back, exact, cut, n + cases[i].size_bytes, &at),
                             ERR_PROTO);
            free(exact);
        }
    }
}

static enum err parse(const char *bytes, size_t n, size_t data_bytes)
{
    struct wire_chunk c;
    size_t at;
    return wire_chunk_parse(&c, (const uint8_t *)bytes, n, n + data_bytes, &at);
}

static void chunk_headers_refused(void **state)
{
    (void)state;
    assert_int_equal(parse("\x10\x02\x18\x04\x2a\x02", 6, 2), ERR_OK);
    assert_int_equal(parse("\x18\x04\x10\x02\x2a\x02", 6, 2), ERR_PROTO);         /* out of order */
    assert_int_equal(parse("\x10\x02\x10\x02\x18\x04\x2a\x02", 8, 2), ERR_PROTO); /* twice */
    assert_int_equal(parse("\x10\x03\x18\x04\x2a\x02", 6, 2), ERR_PROTO);         /* past the end */
    assert_int_equal(parse("\x10\x05\x18\x04\x2a\x02", 6, 2), ERR_PROTO);
    assert_int_equal(parse("\x18\x04\x2a\x00", 4, 0), ERR_PROTO); /* empty: would never end */
    assert_int_equal(parse("\x0a\x02\x2a\x02", 4, 2), ERR_PROTO);
    assert_int_equal(parse("\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02\x2a\x02", 13, 2),
                     ERR_PROTO); /* 65 bits */
    assert_int_equal(parse("\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x2a\x02", 13, 2), ERR_OK);
    assert_int_equal(parse("\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x18\xff\xff\xff\xff\xff"
                           "\xff\xff\xff\xff\x01\x2a\x02",
                           24, 2),
                     ERR_PROTO); /* offset + size overflows */
    assert_int_equal(parse("\x18\x81\x80\x40\x2a\x81\x80\x40", 8, WIRE_CHUNK_BYTES + 1),
                     ERR_PROTO); /* 1 MiB + 1 */
}

/* The hand-made header and protobuf agree: an Upload with chunk fields is no offer, and is read as
 * one message. */
static void chunk_is_protobuf(void **state)
{
    (void)state;
    uint8_t message[WIRE_CHUNK_HEADER_MAX + 64] = {0};
    struct wire_chunk c = {3, 1000, 77, 64};
    struct wire_contribution m;
    size_t n = wire_chunk_header(message, &c);
    assert_int_equal(wire_decode(WIRE_UPLOAD, &m, message, n + 64, &arena), ERR_PROTO);
    assert_says("must be its offer");
    assert_int_equal(wire_decode(WIRE_UPLOAD, &m, message, n + 63, &arena), ERR_PROTO);
    assert_says("malformed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_manifest_of_all_sites, fresh, drop),
        cmocka_unit_test_setup_teardown(round_trips, fresh, drop),
        cmocka_unit_test_setup_teardown(cut_at_every_byte, fresh, drop),
        cmocka_unit_test_setup_teardown(bent, fresh, drop),
        cmocka_unit_test_setup_teardown(texts, fresh, drop),
        cmocka_unit_test_setup_teardown(limits, fresh, drop),
        cmocka_unit_test_setup_teardown(weights, fresh, drop),
        cmocka_unit_test(chunks),
        cmocka_unit_test(chunk_headers_refused),
        cmocka_unit_test_setup_teardown(chunk_is_protobuf, fresh, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
