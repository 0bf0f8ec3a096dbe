/* SPDX-License-Identifier: Apache-2.0 */
/* The ciphers give what their RFCs publish. What would break: every foreign implementation, and a
 * peer's key of low order, which makes a secret that all know. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "outer/masks/cipher.h"

static size_t hex(uint8_t *out, const char *text)
{
    size_t n = 0;
    for (unsigned v; sscanf(text, "%2x", &v) == 1; text += 2)
        out[n++] = (uint8_t)v;
    return n;
}

static void assert_hex(const uint8_t *data, const char *text)
{
    uint8_t wanted[128];
    size_t n = hex(wanted, text);
    assert_memory_equal(data, wanted, n);
}

/* RFC 7748, 5.2 and 6.1. */
static void test_x25519(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
         "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
         "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"},
        {"4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
         "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
         "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957"},
        {"5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
         "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
         "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"},
    };
    struct cipher_key own, shared;
    struct cipher_public other;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hex(own.bytes, cases[i][0]);
        hex(other.bytes, cases[i][1]);
        assert_int_equal(cipher_x25519(&shared, &own, &other), ERR_OK);
        assert_hex(shared.bytes, cases[i][2]);
    }
    assert_int_equal(cipher_x25519_public(&other, &own), ERR_OK);
    assert_hex(other.bytes, "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f");
}

/* RFC 7748, 5.2: after 1 and 1,000 iterations. */
static void test_x25519_iterated(void **state)
{
    (void)state;
    struct cipher_key k = {{9}}, out;
    struct cipher_public u = {{9}};
    for (int i = 1; i <= 1000; i++) {
        assert_int_equal(cipher_x25519(&out, &k, &u), ERR_OK);
        memcpy(u.bytes, k.bytes, sizeof u.bytes);
        k = out;
        if (i == 1)
            assert_hex(k.bytes, "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079");
    }
    assert_hex(k.bytes, "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51");
}

/* All encodings of the points of order 1, 2, 4 and 8. */
static void test_low_order(void **state)
{
    (void)state;
    static const char *const points[] = {
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    };
    struct cipher_key own = {{77, 7, 109}}, shared, zero = {{0}};
    struct cipher_public other;
    for (size_t i = 0; i < 2 * sizeof points / sizeof *points; i++) {
        hex(other.bytes, points[i / 2]);
        other.bytes[31] =
            (uint8_t)(other.bytes[31] | i % 2 << 7); /* the top bit is not looked at */
        memset(shared.bytes, 1, sizeof shared.bytes);
        assert_int_equal(cipher_x25519(&shared, &own, &other), ERR_DENIED);
        assert_non_null(strstr(err_message(), "x25519_low_order"));
        assert_memory_equal(shared.bytes, zero.bytes, sizeof zero.bytes);
    }
}

/* RFC 5869, A.1, A.2 and A.3. */
static void test_hkdf(void **state)
{
    (void)state;
    uint8_t ikm[80], salt[80], info[80], okm[82];
    struct cipher_key prk;
    memset(ikm, 0x0b, 22);
    for (unsigned i = 0; i < 80; i++) {
        salt[i] = (uint8_t)i;
        info[i] = (uint8_t)(0xf0 + i);
    }
    cipher_hkdf_extract(&prk, salt, 13, ikm, 22);
    assert_hex(prk.bytes, "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5");
    cipher_hkdf_expand(okm, 42, &prk, info, 10);
    assert_hex(okm,
               "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b8871858"
               "65");
    cipher_hkdf_extract(&prk, NULL, 0, ikm, 22);
    assert_hex(prk.bytes, "19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04");
    cipher_hkdf_expand(okm, 42, &prk, NULL, 0);
    assert_hex(okm,
               "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96"
               "c8");
    for (unsigned i = 0; i < 80; i++) {
        ikm[i] = (uint8_t)i;
        salt[i] = (uint8_t)(0x60 + i);
        info[i] = (uint8_t)(0xb0 + i);
    }
    cipher_hkdf_extract(&prk, salt, 80, ikm, 80);
    assert_hex(prk.bytes, "06a6b88c5853361a06104c9ceb35b45cef760014904671014a193f40c15fc244");
    cipher_hkdf_expand(okm, 82, &prk, info, 80);
    assert_hex(
        okm, "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271"
             "cb41c65e590e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87");
}

/* RFC 8439, 2.3.2 and A.1, 1 and 2; the stream in pieces, and entered at a later block. */
static void test_chacha20(void **state)
{
    (void)state;
    static const uint8_t nonce[12] = {0, 0, 0, 9, 0, 0, 0, 0x4a, 0, 0, 0, 0};
    struct cipher_key key, zero = {{0}};
    struct cipher_stream s = {0};
    uint8_t out[128], pieces[128];
    for (unsigned i = 0; i < 32; i++)
        key.bytes[i] = (uint8_t)i;
    assert_int_equal(cipher_stream_open_at(&s, &key, 1, nonce), ERR_OK);
    cipher_stream_read(&s, out, 64);
    cipher_stream_close(&s);
    assert_hex(out,
               "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4ed2826446079faa0914"
               "c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e");
    assert_int_equal(cipher_stream_open(&s, &zero, 0), ERR_OK);
    cipher_stream_read(&s, out, 128);
    cipher_stream_close(&s);
    assert_hex(out,
               "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7da41597c5157488d77"
               "24e03fb8d84a376a43b8f41518a11cc387b669b2ee6586");
    assert_hex(out + 64,
               "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed29b721769ce64e43d5"
               "7133b074d839d531ed1f28510afb45ace10a1f4b794d6f");
    assert_int_equal(cipher_stream_open(&s, &zero, 0), ERR_OK);
    for (size_t at = 0, n = 1; at < 128; at += n, n = 128 - at < n + 6 ? 128 - at : n + 6)
        cipher_stream_read(&s, pieces + at, n);
    cipher_stream_close(&s);
    assert_memory_equal(pieces, out, 128);
    assert_int_equal(cipher_stream_open(&s, &zero, 1), ERR_OK);
    cipher_stream_read(&s, pieces, 64);
    cipher_stream_close(&s);
    assert_memory_equal(pieces, out + 64, 64);
}

static void test_secrets_are_wiped(void **state)
{
    (void)state;
    uint8_t *p = cipher_secret_alloc(100), zero[100] = {0}, kept[32];
    assert_non_null(p);
    assert_memory_equal(p, zero, 100);
    cipher_secret_free(p, 100);
    memset(kept, 7, sizeof kept);
    cipher_wipe(kept, sizeof kept);
    assert_memory_equal(kept, zero, sizeof kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_x25519),    cmocka_unit_test(test_x25519_iterated),
        cmocka_unit_test(test_low_order), cmocka_unit_test(test_hkdf),
        cmocka_unit_test(test_chacha20),  cmocka_unit_test(test_secrets_are_wiped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
