/* SPDX-License-Identifier: Apache-2.0 */
/* One scripted round gives the bytes of another implementation (tests/golden/masks). What would
 * break: a site in another language, and rounds between two versions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "kernels/base/file.h"
#include "outer/codec/bits.h"
#include "tests/outer/masks/cast.h"

enum { SITES = 4, FRAGMENT = 1, CODES = 3, VALUES = 70 };
static struct arena arena;
static const char *values;

/* The bytes of a name, of this size. */
static void assert_golden(const char *name, const uint8_t *data, size_t n)
{
    char start[64];
    int length = snprintf(start, sizeof start, "%.40s ", name);
    const char *at = strncmp(values, start, (size_t)length) == 0 ? values : NULL;
    if (!at) {
        snprintf(start, sizeof start, "\n%.40s ", name);
        at = strstr(values, start);
        assert_non_null(at);
        at++;
    }
    at += length;
    assert_int_equal(strcspn(at, "\n"), 2 * n);
    for (size_t i = 0; i < n; i++) {
        unsigned v = 0;
        assert_int_equal(sscanf(at + 2 * i, "%2x", &v), 1);
        assert_int_equal(v, data[i]);
    }
}

static void assert_golden_of(const char *name, unsigned i, const uint8_t *data, size_t n)
{
    char full[32];
    snprintf(full, sizeof full, "%s.%u", name, i);
    assert_golden(full, data, n);
}

/* A signer that keeps what it signs, and finds every signature good: signatures are not compared.
 */
static uint8_t signed_bytes[1024];
static size_t signed_size;

static enum err keep_sign(struct signer *s, const void *data, size_t n,
                          uint8_t signature[SIGNER_BYTES])
{
    (void)s;
    assert_true(n <= sizeof signed_bytes);
    memcpy(signed_bytes, data, n);
    signed_size = n;
    memset(signature, 0, SIGNER_BYTES);
    return ERR_OK;
}

static bool keep_verify(struct signer *s, const struct signer_key *key, const void *data, size_t n,
                        const uint8_t signature[SIGNER_BYTES])
{
    (void)s, (void)key, (void)data, (void)n, (void)signature;
    return true;
}

static struct cipher_key named(const char *what, unsigned i)
{
    char text[32];
    struct cipher_key k;
    int n = snprintf(text, sizeof text, "%s %u", what, i);
    struct digest d = digest_of(text, (size_t)n);
    memcpy(k.bytes, d.bytes, sizeof k.bytes);
    return k;
}

static void words_of(uint8_t *words, const struct mask_layout *l, unsigned i)
{
    int64_t codes[CODES], q[VALUES];
    for (unsigned k = 0; k < CODES; k++)
        codes[k] = (i * 37 + k * 11) % 256;
    for (unsigned k = 0; k < VALUES; k++)
        q[k] = (int64_t)((i * 7919 + k * 104729) % 255) - 127;
    memset(words, 0, l->size_bytes);
    bits_pack(words, codes, CODES, l->part[0].bits);
    bits_pack(words + l->start[1], q, VALUES, l->part[1].bits);
}

static void test_golden(void **state)
{
    (void)state;
    static const uint64_t first[2];
    static const struct signer_ops ops = {.sign = keep_sign, .verify = keep_verify};
    struct signer signer = {&ops};
    const struct signer_key identity[SITES] = {{{0}}};
    const struct seal_context c = {.run = "golden",
                                   .config = digest_of("configuration", 13),
                                   .roster_version = 1,
                                   .sites = SITES,
                                   .members = cast_all(SITES),
                                   .identity = identity};
    const struct seal_announce a = {
        .fragment = FRAGMENT, .round = 5, .attempt = 2, .u = cast_all(SITES)};
    struct keys *keys[SITES] = {NULL};
    struct seal_site *site[SITES] = {NULL};
    struct keys_statement said[SITES];
    struct seal_aggregator r = {0};
    bool persist;
    for (unsigned i = 0; i < SITES; i++) {
        struct cipher_key own = named("own", i);
        struct set peers = cast_all(SITES);
        set_put(&peers, i, false);
        assert_int_equal(
            keys_open(&keys[i], &(struct keys_options){"golden", i, SITES, 2, c.config}), ERR_OK);
        assert_int_equal(keys_setup(keys[i], 1, &peers, &own, first), ERR_OK);
        assert_int_equal(keys_statement_own(keys[i], &signer, &said[i]), ERR_OK);
        assert_golden_of("statement", i, signed_bytes, signed_size);
        assert_int_equal(seal_site_open(&site[i], i, 2), ERR_OK);
    }
    for (unsigned i = 0; i < SITES; i++)
        for (unsigned j = 0; j < SITES; j++)
            if (i != j)
                assert_int_equal(keys_pair(keys[i], &signer, &identity[j], &said[j]), KEYS_ok);
    for (unsigned i = 0; i < SITES; i++)
        for (unsigned j = i + 1; j < SITES; j++) {
            char name[32];
            struct cipher_key s;
            keys_final(keys[i], FRAGMENT, j); /* some further than others */
            snprintf(name, sizeof name, "seed.%u.%u", i, j);
            assert_int_equal(keys_seed(keys[i], &s, FRAGMENT, j, 5, 2), KEYS_ok);
            assert_golden(name, s.bytes, sizeof s.bytes);
        }
    struct mask_part parts[] = {{mask_bits(SITES, 255), CODES}, {mask_bits(SITES, 127), VALUES}};
    struct mask_layout l;
    uint8_t y[SITES][192], sum[192] = {0};
    assert_int_equal(mask_layout_make(&l, parts, 2), ERR_OK);
    assert_int_equal(l.size_bytes, sizeof sum);
    assert_int_equal(seal_aggregator_announce(&r, &c, &a), SEAL_ok);
    for (unsigned i = 0; i < SITES; i++) {
        struct cipher_key b = named("b", i), seeds[SITES];
        struct mask_term terms[SITES];
        words_of(y[i], &l, i);
        assert_int_equal(seal_site_terms(site[i], keys[i], &a, &b, seeds, terms), SEAL_ok);
        assert_int_equal(mask_apply(y[i], &l, terms, SITES, 1), ERR_OK);
        assert_golden_of("y", i, y[i], l.size_bytes);
        struct digest d = digest_of(y[i], l.size_bytes);
        assert_int_equal(seal_site_contribute(site[i], &c, &a, &b, &d, &persist), SEAL_ok);
        if (i != 2)
            assert_int_equal(seal_aggregator_accept(&r, i, &d), SEAL_ok);
    }
    assert_int_equal(seal_aggregator_seal(&r, &c, &signer, 7), SEAL_ok);
    assert_golden("seal", signed_bytes, signed_size);
    for (unsigned i = 0; i < SITES; i++) {
        struct seal_signature x;
        struct seal_signed seal = cast_seal(&r);
        if (i == 2)
            continue;
        assert_int_equal(seal_site_sign(site[i], &c, &signer, &seal, &x, &persist), SEAL_ok);
        assert_golden_of("signed", i, signed_bytes, signed_size);
        assert_int_equal(seal_aggregator_signature(&r, &c, &signer, &x), SEAL_ok);
        mask_sum(sum, y[i], &l, 1);
    }
    for (unsigned i = 0; i < SITES; i++) {
        struct seal_seed seeds[SITES];
        struct seal_reveal v = {.seeds = seeds};
        struct seal_signed seal = cast_seal(&r);
        uint8_t bytes[256];
        if (i == 2)
            continue;
        assert_int_equal(
            seal_site_reveal(site[i], &c, &signer, keys[i], &seal, r.signatures, 3, &v, &persist),
            SEAL_ok);
        assert_true(seal_reveal_bytes(v.count) <= sizeof bytes);
        seal_reveal_write(&v, bytes);
        assert_golden_of("reveal", i, bytes, seal_reveal_bytes(v.count));
        assert_int_equal(seal_aggregator_reveal(&r, &v), SEAL_ok);
    }
    struct mask_term terms[16];
    assert_true(seal_aggregator_term_count(&r) <= 16);
    seal_aggregator_terms(&r, terms);
    assert_int_equal(mask_apply(sum, &l, terms, seal_aggregator_term_count(&r), 1), ERR_OK);
    assert_golden("sum", sum, sizeof sum);
    seal_aggregator_close(&r);
    for (unsigned i = 0; i < SITES; i++) {
        seal_site_close(site[i]);
        keys_close(keys[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden)};
    uint8_t *data;
    size_t n;
    arena = arena_make(0);
    ASSERT(file_read("tests/golden/masks/values.txt", 1 << 20, &arena, &data, &n) == ERR_OK);
    values = (const char *)data;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return failed;
}
