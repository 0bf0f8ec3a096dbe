/* SPDX-License-Identifier: Apache-2.0 */
/* What is signed: the bytes that docs/protocol.md 6.1 says, all of them, and nothing that was
 * changed holds. What would break: a foreign client's signatures, or one that covers less. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "outer/identity/signed.h"
#include "tests/sim/signer_sim.h"

enum { GOLDEN_BYTES = 222, CHARGED_BYTES = 8 };
static const char GOLDEN_HEADER[2][65] = {
    "b0b3002596bbb5f96f8a7ad9df293d1ef5fb026dfa5e4f44fa8f23dc2c2ed863",
    "41fe35c0dfc1c3b065c6581ef95fc0e682d51b0ed34a38670bab87bba6701a19"};
static struct signer_sim aggregator, site;

static struct wire_contribution offer(void)
{
    struct wire_contribution m = {
        .head = {.config = digest_of("config", 6),
                 .roster_version = 3,
                 .term = 1ull << 40,
                 .incarnation = 9,
                 .instance = UINT64_MAX,
                 .aggregator = 1},
        .fragment = 2,
        .codec = 4,
        .round = 41,
        .payload_bytes = 123456789,
        .data_cursor = 77,
        .max_local_steps_offline = 5,
        .parent = digest_of("parent", 6),
        .grid = digest_of("grid", 4),
        .payload = digest_of("payload", 7),
        .weight = 0.75f,
        .residual_ratio = 130,
        .transfer = 8,
        .stream = 1,
    };
    strcpy(m.head.run, "demo");
    strcpy(m.head.site, "b");
    return m;
}

/* The digest was computed by Python's struct.pack from the table of the page:
 *   b"atollSH1" + text(b"demo") + text(b"b") + sha("config") + pack("<IQQQI", 3, 2**40, 9, 2**64-1,
 * 1)
 *   + pack("<IQIQ", 2, 41, 4, 123456789) + sha("payload") + sha("parent") + sha("grid")
 *   + pack("<fQQB", 0.75, 77, 5, 130), text(s) = pack("<H", len(s)) + s, sha = SHA-256 of the name;
 * with a privacy budget b"atollSH2", and pack("<Q", 900) at the end.
 */
static void header_bytes(uint64_t charged)
{
    uint8_t bytes[SIGNED_HEADER_MAX];
    char hex[65];
    struct wire_contribution m = offer(), back;
    m.charged = charged;
    assert_int_equal(signed_header_sign(&site.signer, &m), ERR_OK);
    size_t n = signed_header_write(&m, bytes);
    assert_int_equal(n, GOLDEN_BYTES + (charged ? CHARGED_BYTES : 0) + SIGNER_BYTES);
    struct digest d = digest_of(bytes, n - SIGNER_BYTES);
    digest_hex(&d, hex);
    assert_string_equal(hex, GOLDEN_HEADER[charged > 0]);
    assert_int_equal(signed_header_read(&back, bytes, n), ERR_OK);
    uint8_t again[SIGNED_HEADER_MAX];
    assert_int_equal(signed_header_write(&back, again), n);
    assert_memory_equal(again, bytes, n);
    assert_int_equal(back.transfer | back.stream, 0); /* of a connection: not signed */
    assert_int_equal(back.charged, charged);
    for (size_t short_of = 1; short_of <= n; short_of++)
        assert_int_equal(signed_header_read(&back, bytes, n - short_of), ERR_PROTO);
}

static void test_header_bytes(void **state)
{
    (void)state;
    header_bytes(0);
    header_bytes(900);
}

/* Each byte that is signed counts. */
static void test_header_changed(void **state)
{
    (void)state;
    uint8_t bytes[SIGNED_HEADER_MAX];
    struct wire_contribution m = offer(), back;
    struct signer_key key;
    m.charged = 900;
    site.signer.ops->key(&site.signer, &key);
    assert_int_equal(signed_header_sign(&site.signer, &m), ERR_OK);
    assert_true(signed_header_holds(&site.signer, &key, &m));
    size_t n = signed_header_write(&m, bytes);
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= 1;
        bool holds = signed_header_read(&back, bytes, n) == ERR_OK &&
                     signed_header_holds(&site.signer, &key, &back);
        assert_false(holds);
        bytes[i] ^= 1;
    }
    struct signer_key other;
    aggregator.signer.ops->key(&aggregator.signer, &other);
    assert_false(signed_header_holds(&site.signer, &other, &m));
}

static void test_manifest(void **state)
{
    (void)state;
    static struct manifest m;
    struct signer_key key;
    aggregator.signer.ops->key(&aggregator.signer, &key);
    m = (struct manifest){.run = "demo",
                          .fragment = 2,
                          .round = 41,
                          .parent = digest_of("p", 1),
                          .term = 5,
                          .instance = 6,
                          .unix_ms = 7};
    assert_int_equal(signed_manifest_sign(&aggregator.signer, &m), ERR_OK);
    assert_true(signed_manifest_holds(&aggregator.signer, &key, &m));
    struct wire_fragment_state s = {
        .round = 42, .manifest = manifest_digest(&m), .proof = signed_manifest_proof(&m)};
    assert_true(signed_proof_holds(&aggregator.signer, &key, "demo", 2, &s));
    assert_false(signed_proof_holds(&aggregator.signer, &key, "demp", 2, &s));
    assert_false(signed_proof_holds(&aggregator.signer, &key, "demo", 3, &s));
#define CHANGED(what)                                                                              \
    do {                                                                                           \
        struct wire_fragment_state kept = s;                                                       \
        what;                                                                                      \
        assert_false(signed_proof_holds(&aggregator.signer, &key, "demo", 2, &s));                 \
        s = kept;                                                                                  \
    } while (0)
    CHANGED(s.round++);
    CHANGED(s.round = 0);
    CHANGED(s.manifest.bytes[31] ^= 1);
    CHANGED(s.proof.term++);
    CHANGED(s.proof.instance++);
    CHANGED(s.proof.unix_ms++);
    CHANGED(s.proof.signature[63] ^= 1);
    CHANGED(s.proof.there = false);
    struct manifest *body = &m;
    body->state_after.bytes[0] ^= 1;
    assert_false(signed_manifest_holds(&aggregator.signer, &key, &m));
    body->state_after.bytes[0] ^= 1;
    body->term++;
    assert_false(signed_manifest_holds(&aggregator.signer, &key, &m));
}

static void test_announcement(void **state)
{
    (void)state;
    static struct signed_announcement a, back;
    static struct wire_announcement out;
    struct signer_identity by;
    a = (struct signed_announcement){.run = "demo", .aggregator = 1, .term = 5, .instance = 6};
    assert_int_equal(signed_announcement_make(&aggregator.signer, &a, &out), ERR_OK);
    for (size_t i = 0; i < out.size_bytes; i++) {
        out.bytes[i] ^= 1;
        bool holds = signed_announcement_read(&back, &out) == ERR_OK &&
                     signed_announcement_check(&aggregator.signer, &back, "demo", &by) == ERR_OK;
        assert_false(holds);
        out.bytes[i] ^= 1;
    }
    size_t whole = out.size_bytes;
    for (out.size_bytes = 0; out.size_bytes < whole; out.size_bytes++)
        assert_int_equal(signed_announcement_read(&back, &out), ERR_PROTO);
    assert_int_equal(signed_announcement_read(&back, &out), ERR_OK);
    assert_int_equal(signed_announcement_check(&aggregator.signer, &back, "demo", &by), ERR_OK);
    assert_int_equal(back.term, 5);
    assert_int_equal(back.instance, 6);
    assert_int_equal(back.aggregator, 1);
    assert_int_equal(signed_announcement_check(&aggregator.signer, &back, "other", &by),
                     ERR_DENIED);
    assert_int_equal(signed_announcement_make(&site.signer, &a, &out), ERR_OK); /* a site's */
    assert_int_equal(signed_announcement_read(&back, &out), ERR_OK);
    assert_int_equal(signed_announcement_check(&aggregator.signer, &back, "demo", &by), ERR_DENIED);
}

int main(void)
{
    signer_sim_open(&aggregator, "demo", "aggregator", "aggregator");
    signer_sim_open(&site, "demo", "site", "b");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header_bytes),
        cmocka_unit_test(test_header_changed),
        cmocka_unit_test(test_manifest),
        cmocka_unit_test(test_announcement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
