/* SPDX-License-Identifier: Apache-2.0 */
/* Pair keys. What would break: masks that do not cancel, a key that the aggregator put in place of
 * a site's, keys of past rounds that can be derived once more, a restart that loses them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "kernels/base/file.h"
#include "tests/outer/masks/cast.h"

static struct cast cast;

static int open_three(void **state)
{
    (void)state;
    cast_open(&cast, 3, 1, 2, 11);
    return 0;
}

static int close_three(void **state)
{
    (void)state;
    cast_close(&cast);
    return 0;
}

static struct cipher_key seed_of(unsigned i, unsigned j, unsigned f, uint64_t t, uint32_t a)
{
    struct cipher_key s;
    assert_int_equal(keys_seed(cast.keys[i], &s, f, j, t, a), KEYS_ok);
    return s;
}

static bool same(struct cipher_key a, struct cipher_key b)
{
    return memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}

/* Both sites have it, and every argument makes another one. */
static void test_seeds(void **state)
{
    (void)state;
    struct cipher_key s = seed_of(0, 2, 1, 7, 0);
    assert_true(same(s, seed_of(2, 0, 1, 7, 0)));
    assert_false(same(s, seed_of(0, 1, 1, 7, 0)));
    assert_false(same(s, seed_of(0, 2, 0, 7, 0)));
    assert_false(same(s, seed_of(0, 2, 1, 8, 0)));
    assert_false(same(s, seed_of(0, 2, 1, 7, 1)));
    assert_int_equal(keys_seed(cast.keys[0], &s, 0, 0, 7, 0), KEYS_pair_missing);
    assert_int_equal(keys_seed(cast.keys[0], &s, 0, 3, 7, 0), KEYS_pair_missing);
    assert_int_equal(keys_seed(cast.keys[0], &s, 0, 1, KEYS_AHEAD_MAX + 1, 0), KEYS_pair_too_far);
}

/* One site is told of finality round by round, one at once, one not yet: the seeds agree. What is
 * final is gone. */
static void test_ratchet(void **state)
{
    (void)state;
    struct cipher_key later = seed_of(0, 1, 0, 10, 3), gone;
    for (uint64_t t = 0; t < 5; t++)
        keys_final(cast.keys[0], 0, t);
    keys_final(cast.keys[1], 0, 4);
    assert_true(same(later, seed_of(0, 1, 0, 10, 3)));
    assert_true(same(later, seed_of(1, 0, 0, 10, 3)));
    assert_true(same(seed_of(0, 2, 0, 5, 0), seed_of(2, 0, 0, 5, 0)));
    assert_int_equal(keys_seed(cast.keys[0], &gone, 0, 1, 4, 0), KEYS_pair_ratcheted);
    assert_true(same(seed_of(0, 1, 1, 4, 0), seed_of(1, 0, 1, 4, 0))); /* the other fragment's */
    keys_final(cast.keys[0], 0, 2);                                    /* older: nothing */
    assert_true(same(later, seed_of(0, 1, 0, 10, 3)));
    keys_final(cast.keys[0], 1, KEYS_AHEAD_MAX + 100); /* absent for long */
    keys_final(cast.keys[1], 1, KEYS_AHEAD_MAX + 100);
    assert_true(
        same(seed_of(0, 1, 1, KEYS_AHEAD_MAX + 101, 0), seed_of(1, 0, 1, KEYS_AHEAD_MAX + 101, 0)));
}

/* Site 1 in a setup with sites 0 and 2, and what it is told. */
static void test_substituted(void **state)
{
    (void)state;
    static const uint64_t first[2] = {0, 0};
    struct keys *k[3] = {NULL, NULL, NULL};
    struct keys_statement said[3];
    for (unsigned i = 0; i < 3; i++) {
        struct set peers = cast_all(3);
        struct cipher_key own = cast_secret(12, "own", i);
        set_put(&peers, i, false);
        assert_int_equal(keys_open(&k[i], &(struct keys_options){"cast", i, 3, 2, {{1}}}), ERR_OK);
        assert_int_equal(keys_setup(k[i], 1, &peers, &own, first), ERR_OK);
        assert_int_equal(keys_statement_own(k[i], &cast.signer[i].signer, &said[i]), ERR_OK);
    }
    struct signer *v = &cast.signer[1].signer;
    struct keys_statement forged = said[0];
    forged.key.bytes[3] ^= 1; /* another key under site 0's signature */
    assert_int_equal(keys_pair(k[1], v, &cast.identity[0], &forged), KEYS_pair_key_substituted);
    forged = said[2]; /* site 2's key as site 0's */
    forged.site = 0;
    assert_int_equal(keys_pair(k[1], v, &cast.identity[0], &forged), KEYS_pair_key_substituted);
    forged = said[0]; /* of another run */
    struct keys *other = NULL;
    struct set peers = cast_all(3);
    set_put(&peers, 0, false);
    struct cipher_key own = cast_secret(12, "own", 0), second = cast_secret(12, "own", 9);
    assert_int_equal(keys_open(&other, &(struct keys_options){"other", 0, 3, 2, {{1}}}), ERR_OK);
    assert_int_equal(keys_setup(other, 1, &peers, &own, first), ERR_OK);
    assert_int_equal(keys_statement_own(other, &cast.signer[0].signer, &forged), ERR_OK);
    assert_memory_equal(forged.key.bytes, said[0].key.bytes, 32);
    assert_int_equal(keys_pair(k[1], v, &cast.identity[0], &forged), KEYS_pair_key_substituted);
    keys_close(other);
    forged = said[0];
    forged.setup = 2;
    assert_int_equal(keys_pair(k[1], v, &cast.identity[0], &forged), KEYS_pair_other_setup);
    forged = said[0];
    forged.site = 3;
    assert_int_equal(keys_pair(k[1], v, &cast.identity[0], &forged), KEYS_pair_unknown_site);
    forged.site = 1;
    assert_int_equal(keys_pair(k[1], v, &cast.identity[1], &forged), KEYS_pair_unknown_site);
    assert_false(keys_has(k[1], 0));
    assert_int_equal(keys_pair(k[1], v, &cast.identity[0], &said[0]), KEYS_ok);
    assert_int_equal(keys_pair(k[1], v, &cast.identity[0], &said[0]), KEYS_ok); /* once more */
    /* A second key in one setup, which site 0 has signed as well. */
    struct keys *twice = NULL;
    assert_int_equal(keys_open(&twice, &(struct keys_options){"cast", 0, 3, 2, {{1}}}), ERR_OK);
    assert_int_equal(keys_setup(twice, 1, &peers, &second, first), ERR_OK);
    assert_int_equal(keys_statement_own(twice, &cast.signer[0].signer, &forged), ERR_OK);
    assert_int_equal(keys_pair(k[1], v, &cast.identity[0], &forged), KEYS_pair_key_substituted);
    keys_close(twice);
    assert_false(keys_complete(k[1]));
    assert_int_equal(keys_pair(k[1], v, &cast.identity[2], &said[2]), KEYS_ok);
    assert_true(keys_complete(k[1]));
    for (unsigned i = 0; i < 3; i++)
        keys_close(k[i]);
}

static enum err sign_point(struct keys_statement *s, const char *run)
{
    uint8_t bytes[8 + 2 + 4 + 4 + 4 + 32] = "atollSK1";
    size_t n = strlen(run);
    bytes[8] = (uint8_t)n;
    memcpy(bytes + 10, run, n);
    memcpy(bytes + 10 + n, &s->setup, 4);
    memcpy(bytes + 14 + n, &s->site, 4);
    memcpy(bytes + 18 + n, s->key.bytes, 32);
    return cast.signer[s->site].signer.ops->sign(&cast.signer[s->site].signer, bytes, 50 + n,
                                                 s->signature);
}

/* A site that works with the aggregator signs a point of low order: refused anyway. The bytes
 * are put together here, as the page has them. */
static void test_low_order(void **state)
{
    (void)state;
    static const uint64_t first[2] = {0, 0};
    struct keys *k = NULL;
    struct set peers = {{1}};
    struct cipher_key own = cast_secret(13, "own", 1), s;
    struct keys_statement point = {.setup = 1, .site = 0, .key = {{1}}}, good = point;
    assert_int_equal(keys_open(&k, &(struct keys_options){"cast", 1, 3, 2, {{1}}}), ERR_OK);
    assert_int_equal(keys_setup(k, 1, &peers, &own, first), ERR_OK);
    assert_int_equal(sign_point(&point, "cast"), ERR_OK);
    assert_int_equal(keys_pair(k, &cast.signer[1].signer, &cast.identity[0], &point),
                     KEYS_x25519_low_order);
    assert_string_equal(keys_answer_name(KEYS_x25519_low_order), "x25519_low_order");
    assert_false(keys_complete(k));
    assert_int_equal(keys_seed(k, &s, 0, 0, 0, 0), KEYS_pair_missing);
    good.key.bytes[0] = 9;
    assert_int_equal(sign_point(&good, "cast"), ERR_OK);
    assert_int_equal(keys_pair(k, &cast.signer[1].signer, &cast.identity[0], &good), KEYS_ok);
    keys_close(k);
}

static uint8_t *stored(const struct keys *k, size_t *n)
{
    struct arena a = arena_make(0);
    struct file_part *parts;
    size_t count;
    uint8_t *data = NULL;
    *n = 0;
    assert_int_equal(keys_parts(k, &parts, &count, &a), ERR_OK);
    for (size_t i = 0; i < count; i++) {
        data = realloc(data, *n + parts[i].size_bytes);
        memcpy(data + *n, parts[i].data, parts[i].size_bytes);
        *n += parts[i].size_bytes;
    }
    arena_free(&a);
    return data;
}

static bool holds(const uint8_t *data, size_t n, struct cipher_key k)
{
    for (size_t i = 0; i + sizeof k.bytes <= n; i++)
        if (memcmp(data + i, k.bytes, sizeof k.bytes) == 0)
            return true;
    return false;
}

/* A site that joins: new keys with it alone. The X25519 keys are in no file once all pairs exist.
 */
static void test_joining(void **state)
{
    (void)state;
    const uint64_t first[2] = {20, 0};
    struct cast four;
    cast_open(&four, 4, 1, 2, 14);
    struct cipher_key before = seed_of(0, 1, 0, 25, 0), s[2];
    struct keys_statement said[4];
    struct keys *late = NULL;
    struct cipher_key own[4];
    for (unsigned i = 0; i < 3; i++) {
        struct set peer = {{8}};
        own[i] = cast_secret(15, "own", i);
        keys_final(four.keys[i], 0, 18);
        assert_int_equal(keys_seed(four.keys[i], &s[0], 0, (i + 1) % 3, 25, 0), KEYS_ok);
        assert_int_equal(keys_setup(four.keys[i], 2, &peer, &own[i], first), ERR_OK);
        assert_int_equal(keys_seed(four.keys[i], &s[1], 0, (i + 1) % 3, 25, 0), KEYS_ok);
        assert_true(same(s[0], s[1]));
        assert_int_equal(keys_seed(four.keys[i], &s[0], 0, 3, 25, 0), KEYS_pair_missing);
        assert_int_equal(keys_statement_own(four.keys[i], &four.signer[i].signer, &said[i]),
                         ERR_OK);
        size_t n;
        uint8_t *file = stored(four.keys[i], &n);
        assert_true(holds(file, n, own[i]));
        free(file);
    }
    struct set three = {{7}};
    own[3] = cast_secret(15, "own", 3);
    assert_int_equal(keys_open(&late, &(struct keys_options){"cast", 3, 4, 2, four.context.config}),
                     ERR_OK);
    assert_int_equal(keys_setup(late, 2, &three, &own[3], first), ERR_OK);
    assert_int_equal(keys_statement_own(late, &four.signer[3].signer, &said[3]), ERR_OK);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(
            keys_pair(four.keys[i], &four.signer[i].signer, &four.identity[3], &said[3]), KEYS_ok);
        assert_int_equal(keys_pair(late, &four.signer[3].signer, &four.identity[i], &said[i]),
                         KEYS_ok);
        assert_int_equal(keys_seed(four.keys[i], &s[0], 0, 3, 25, 0), KEYS_ok);
        assert_int_equal(keys_seed(late, &s[1], 0, i, 25, 0), KEYS_ok);
        assert_true(same(s[0], s[1]));
        assert_int_equal(keys_seed(late, &s[1], 0, i, 19, 0), KEYS_pair_ratcheted);
        size_t n;
        uint8_t *file = stored(four.keys[i], &n);
        assert_true(keys_complete(four.keys[i]));
        assert_false(holds(file, n, own[i]));
        free(file);
    }
    assert_false(same(before, s[0]));
    assert_true(keys_has(four.keys[0], 3));
    keys_forget(four.keys[0], 3); /* removed again */
    assert_false(keys_has(four.keys[0], 3));
    keys_close(late);
    cast_close(&four);
}

/* On disk and back in the middle of a setup: the same statement, the same pairs. Every flipped byte
 * is damage. */
static void test_file(void **state)
{
    (void)state;
    char path[] = "/tmp/atoll-keys-XXXXXX", file[64];
    struct arena a = arena_make(0);
    struct keys *k = NULL;
    struct file_part *parts;
    size_t count, n;
    uint8_t *data;
    struct stat st;
    assert_non_null(mkdtemp(path));
    snprintf(file, sizeof file, "%s/keys", path);
    keys_final(cast.keys[0], 1, 3);
    assert_int_equal(keys_parts(cast.keys[0], &parts, &count, &a), ERR_OK);
    assert_int_equal(file_write(file, parts, count, KEYS_FILE_MODE), ERR_OK);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(file_read(file, 1 << 20, &a, &data, &n), ERR_OK);
    struct keys_options o = {"cast", 0, 3, 2, cast.context.config};
    assert_int_equal(keys_open(&k, &o), ERR_OK);
    for (size_t i = 0; i < n; i += 7) {
        data[i] ^= 0x40;
        enum err e = keys_read(k, file, data, n);
        assert_true(e == ERR_CORRUPT || (e == ERR_MISMATCH && i < 12)); /* the version's bytes */
        data[i] ^= 0x40;
    }
    assert_int_equal(keys_read(k, file, data, n - 1), ERR_CORRUPT);
    assert_int_equal(keys_read(k, file, data, n), ERR_OK);
    assert_true(keys_complete(k));
    struct cipher_key s;
    assert_int_equal(keys_seed(k, &s, 1, 2, 9, 1), KEYS_ok);
    assert_true(same(s, seed_of(2, 0, 1, 9, 1)));
    assert_int_equal(keys_seed(k, &s, 1, 2, 3, 1), KEYS_pair_ratcheted);
    struct keys_statement one, two;
    assert_int_equal(keys_statement_own(k, &cast.signer[0].signer, &one), ERR_OK);
    assert_int_equal(keys_statement_own(cast.keys[0], &cast.signer[0].signer, &two), ERR_OK);
    assert_memory_equal(&one, &two, sizeof one);
    keys_close(k);
    struct keys_options others[] = {o, o, o, o, o};
    others[0].run = "else";
    others[1].site = 1;
    others[2].sites = 4;
    others[3].fragments = 1;
    others[4].config.bytes[0] ^= 1;
    for (int i = 0; i < 5; i++) {
        k = NULL;
        assert_int_equal(keys_open(&k, &others[i]), ERR_OK);
        assert_int_equal(keys_read(k, file, data, n), ERR_MISMATCH);
        keys_close(k);
    }
    arena_free(&a);
    assert_int_equal(file_remove_tree(path), ERR_OK);
}

static void test_statement_bytes(void **state)
{
    (void)state;
    struct keys_statement s, back;
    uint8_t bytes[KEYS_STATEMENT_BYTES + 1] = {0};
    assert_int_equal(keys_statement_own(cast.keys[2], &cast.signer[2].signer, &s), ERR_OK);
    keys_statement_write(&s, bytes);
    assert_int_equal(keys_statement_read(&back, bytes, KEYS_STATEMENT_BYTES), ERR_OK);
    assert_memory_equal(&back, &s, sizeof s);
    assert_int_equal(keys_statement_read(&back, bytes, KEYS_STATEMENT_BYTES - 1), ERR_PROTO);
    assert_int_equal(keys_statement_read(&back, bytes, KEYS_STATEMENT_BYTES + 1), ERR_PROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_seeds, open_three, close_three),
        cmocka_unit_test_setup_teardown(test_ratchet, open_three, close_three),
        cmocka_unit_test_setup_teardown(test_substituted, open_three, close_three),
        cmocka_unit_test_setup_teardown(test_low_order, open_three, close_three),
        cmocka_unit_test_setup_teardown(test_joining, open_three, close_three),
        cmocka_unit_test_setup_teardown(test_file, open_three, close_three),
        cmocka_unit_test_setup_teardown(test_statement_bytes, open_three, close_three),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
