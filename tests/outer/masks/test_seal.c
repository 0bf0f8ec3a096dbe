/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds of secure aggregation: the masked sum is the plain sum, bit for bit, for every set of
 * sites that drop out and when; and every refusal by its name. What would break: a sum that is
 * wrong, or one site's values in the open. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "outer/codec/bits.h"
#include "outer/view/secure.h"
#include "tests/outer/masks/cast.h"

enum { WORDS = 70, Q = 127 };
static struct cast cast;
static struct mask_layout layout;

static int64_t value_of(unsigned site, uint64_t round, size_t i)
{
    return (int64_t)rng_below(cast.seed + round, RNG_TEST, site * 1000 + i, 2 * Q + 1) - Q;
}

/* y of each site of U, for round `a`; and its b. */
struct sent {
    uint8_t words[CAST_MAX][256];
    struct cipher_key b[CAST_MAX];
    struct digest digest[CAST_MAX];
};

static void mask_all(struct sent *s, const struct seal_announce *a)
{
    struct mask_part part = {mask_bits(cast.n, Q), WORDS};
    assert_int_equal(mask_layout_make(&layout, &part, 1), ERR_OK);
    assert_true(layout.size_bytes <= sizeof s->words[0]);
    memset(s, 0, sizeof *s);
    for (unsigned i = 0; i < cast.n; i++) {
        int64_t q[WORDS];
        if (!set_has(&a->u, i))
            continue;
        for (size_t k = 0; k < WORDS; k++)
            q[k] = value_of(i, a->round, k);
        s->b[i] = cast_secret(cast.seed, "b", i + 100 * a->round + 10000 * a->attempt);
        bits_pack(s->words[i], q, WORDS, layout.part[0].bits);
        cast_mask(&cast, i, a, &s->b[i], s->words[i], &layout);
        s->digest[i] = digest_of(s->words[i], layout.size_bytes);
    }
}

static void assert_sum(const struct seal_aggregator *r, const struct sent *s)
{
    uint8_t sum[256] = {0};
    int64_t q[WORDS];
    size_t n = seal_aggregator_term_count(r);
    struct mask_term *terms = calloc(n, sizeof *terms);
    for (unsigned i = 0; i < cast.n; i++)
        if (set_has(&r->seal.s, i))
            mask_sum(sum, s->words[i], &layout, 1);
    seal_aggregator_terms(r, terms);
    assert_int_equal(mask_apply(sum, &layout, terms, n, 1), ERR_OK);
    bits_unpack(q, sum, WORDS, layout.part[0].bits);
    for (size_t k = 0; k < WORDS; k++) {
        int64_t plain = 0;
        for (unsigned i = 0; i < cast.n; i++)
            plain += set_has(&r->seal.s, i) ? value_of(i, r->of.round, k) : 0;
        assert_int_equal(q[k], plain);
    }
    free(terms);
}

/* ---- one round, step by step; each is one site's part ---- */

static void contribute(struct seal_aggregator *r, const struct sent *s, unsigned i)
{
    bool persist;
    assert_int_equal(seal_site_announced(cast.site[i], &cast.context, &r->of), SEAL_ok);
    assert_int_equal(seal_site_contribute(cast.site[i], &cast.context, &r->of, &s->b[i],
                                          &s->digest[i], &persist),
                     SEAL_ok);
    assert_true(persist);
    assert_int_equal(seal_aggregator_accept(r, i, &s->digest[i]), SEAL_ok);
}

static void sign(struct seal_aggregator *r, unsigned i)
{
    struct seal_signature x;
    struct seal_signed seal = cast_seal(r);
    bool persist;
    enum seal_answer answer =
        seal_site_sign(cast.site[i], &cast.context, &cast.signer[i].signer, &seal, &x, &persist);
    assert_true(answer == SEAL_ok || answer == SEAL_again);
    assert_int_equal(persist, answer == SEAL_ok);
    assert_int_equal(seal_aggregator_signature(r, &cast.context, &cast.signer[0].signer, &x),
                     SEAL_ok);
}

static enum seal_answer reveal(const struct seal_aggregator *r, unsigned i, struct seal_reveal *out)
{
    struct seal_signed seal = cast_seal(r);
    bool persist;
    return seal_site_reveal(cast.site[i], &cast.context, &cast.signer[i].signer, cast.keys[i],
                            &seal, r->signatures, set_count(&r->seal.s), out, &persist);
}

static void reveal_to(struct seal_aggregator *r, unsigned i)
{
    struct seal_seed seeds[CAST_MAX], back[SET_MAX];
    struct seal_reveal v = {.seeds = seeds}, w = {.seeds = back};
    uint8_t *bytes;
    assert_int_equal(reveal(r, i, &v), SEAL_ok);
    size_t n = seal_reveal_bytes(v.count);
    assert_non_null(bytes = malloc(n));
    seal_reveal_write(&v, bytes);
    assert_int_equal(seal_reveal_read(&w, bytes, n), SEAL_ok);
    free(bytes);
    assert_int_equal(seal_aggregator_reveal(r, &w), SEAL_ok);
}

static void whole_round(unsigned n, uint64_t t, struct set u, struct set s)
{
    struct seal_aggregator r = {0};
    struct seal_announce a = {.round = t, .u = u};
    static struct sent sent;
    mask_all(&sent, &a);
    assert_int_equal(seal_aggregator_announce(&r, &cast.context, &a), SEAL_ok);
    for (unsigned i = 0; i < n; i++)
        if (set_has(&s, i))
            contribute(&r, &sent, i);
    assert_int_equal(seal_aggregator_seal(&r, &cast.context, &cast.aggregator.signer, 3), SEAL_ok);
    for (unsigned i = 0; i < n; i++)
        if (set_has(&s, i))
            sign(&r, i);
    assert_true(seal_aggregator_signed(&r));
    for (unsigned i = 0; i < n; i++)
        if (set_has(&s, i))
            reveal_to(&r, i);
    assert_true(seal_aggregator_revealed(&r));
    assert_sum(&r, &sent);
    seal_aggregator_close(&r);
    for (unsigned i = 0; i < n; i++) {
        seal_site_final(cast.site[i], 0, t);
        keys_final(cast.keys[i], 0, t);
    }
}

/* n = 2 to 64: all sites; then the least set that may be summed, of all sites and of those
 * announced without one. */
static void test_sums(void **state)
{
    (void)state;
    for (unsigned n = 2; n <= CAST_MAX; n++) {
        unsigned c = n > 2 ? n / 3 : 0, tau = round_threshold(n, c);
        cast_open(&cast, n, c, 1, 100 + n);
        assert_int_equal(seal_context_check(&cast.context), ERR_OK);
        whole_round(n, 0, cast_all(n), cast_all(n));
        struct set least = {0}, u = cast_all(n);
        for (unsigned i = 0; i < tau; i++)
            set_put(&least, (i * 7 + 3) % n, true);
        for (unsigned i = 0; set_count(&least) < tau; i++) /* n a multiple of 7 */
            set_put(&least, i, true);
        whole_round(n, 1, u, least);
        for (unsigned i = 0; i < n && tau < n; i++)
            if (!set_has(&least, i)) {
                set_put(&u, i, false);
                break;
            }
        whole_round(n, 2, u, least);
        cast_close(&cast);
    }
}

/* ---- all patterns of dropping out ---- */

enum drop { BEFORE_SENDING, AFTER_SENDING, BEFORE_SIGNING, BEFORE_REVEALING, NEVER, DROPS };

/* Who is in S does its part up to where it drops out; then all of S are back, in a new process that
 * has what was stored. Returns false: too few for a seal. */
static bool pattern_run(const struct sent *sent, const struct seal_announce *a,
                        const enum drop *drop)
{
    struct seal_aggregator r = {0};
    bool early = true;
    assert_int_equal(seal_aggregator_announce(&r, &cast.context, a), SEAL_ok);
    for (unsigned i = 0; i < cast.n; i++)
        if (drop[i] > AFTER_SENDING)
            contribute(&r, sent, i);
    enum seal_answer answer = seal_aggregator_seal(&r, &cast.context, &cast.aggregator.signer, 3);
    for (unsigned i = 0; i < cast.n; i++)
        if (drop[i] == AFTER_SENDING) /* late: after the seal */
            assert_int_equal(seal_aggregator_accept(&r, i, &sent->digest[i]),
                             answer == SEAL_ok ? SEAL_contribute_after_seal : SEAL_ok);
    if (answer != SEAL_ok) {
        assert_int_equal(answer, SEAL_seal_set_too_small);
        seal_aggregator_close(&r);
        return false;
    }
    for (unsigned i = 0; i < cast.n; i++)
        if (drop[i] > BEFORE_SIGNING)
            sign(&r, i);
    for (unsigned i = 0; i < cast.n; i++)
        early = early && drop[i] != BEFORE_SIGNING;
    assert_int_equal(seal_aggregator_signed(&r), early);
    for (unsigned i = 0; i < cast.n; i++)
        if (drop[i] == BEFORE_SIGNING)
            sign(&r, i);
    for (unsigned i = 0; i < cast.n; i++)
        if (drop[i] == BEFORE_SIGNING || drop[i] == NEVER)
            reveal_to(&r, i);
    for (unsigned i = 0; i < cast.n; i++)
        early = early && drop[i] != BEFORE_REVEALING;
    assert_true(early ? seal_aggregator_revealed(&r) : true);
    for (unsigned i = 0; i < cast.n; i++)
        if (drop[i] == BEFORE_REVEALING) {
            assert_false(seal_aggregator_revealed(&r));
            reveal_to(&r, i);
        }
    assert_true(seal_aggregator_revealed(&r));
    assert_sum(&r, sent);
    seal_aggregator_close(&r);
    return true;
}

static void test_drop_outs(void **state)
{
    (void)state;
    for (unsigned n = 2; n <= 6; n++) {
        unsigned patterns = 1, sums = 0, wanted = 0;
        struct seal_announce a = {.u = cast_all(n)};
        static struct sent sent;
        cast_open(&cast, n, n > 3 ? 1 : 0, 1, 200 + n);
        mask_all(&sent, &a);
        for (unsigned i = 0; i < n; i++)
            patterns *= DROPS;
        for (unsigned p = 0; p < patterns; p++) {
            enum drop drop[6];
            unsigned left = p, in = 0;
            for (unsigned i = 0; i < n; i++, left /= DROPS) {
                drop[i] = left % DROPS;
                in += drop[i] > AFTER_SENDING;
            }
            wanted += in >= round_threshold(n, cast.context.colluding);
            cast_sites_close(&cast);
            cast_sites_open(&cast);
            sums += pattern_run(&sent, &a, drop);
        }
        assert_int_equal(sums, wanted);
        assert_true(sums > 0 && sums < patterns);
        cast_close(&cast);
    }
}

/* ---- refusals ---- */

static struct seal_aggregator aggregator;
static struct sent sent;
static const struct seal_announce all_five = {.round = 4, .u = {{31}}};

/* Five sites, c = 1: tau = 4. All have contributed to round 4. */
static int open_five(void **state)
{
    (void)state;
    cast_open(&cast, 5, 1, 2, 300);
    mask_all(&sent, &all_five);
    memset(&aggregator, 0, sizeof aggregator);
    assert_int_equal(seal_aggregator_announce(&aggregator, &cast.context, &all_five), SEAL_ok);
    for (unsigned i = 0; i < 5; i++)
        contribute(&aggregator, &sent, i);
    return 0;
}

static int close_five(void **state)
{
    (void)state;
    seal_aggregator_close(&aggregator);
    cast_close(&cast);
    return 0;
}

static void seal_five(void)
{
    assert_int_equal(seal_aggregator_seal(&aggregator, &cast.context, &cast.aggregator.signer, 3),
                     SEAL_ok);
}

/* What site 0 answers to a seal that the aggregator has signed. */
static enum seal_answer sign_this(const struct seal *s)
{
    uint8_t bytes[SEAL_BYTES_MAX], signature[SIGNER_BYTES];
    size_t n = seal_write(&cast.context, s, bytes);
    struct seal_signature x;
    bool persist = true;
    assert_int_equal(cast.aggregator.signer.ops->sign(&cast.aggregator.signer, bytes, n, signature),
                     ERR_OK);
    enum seal_answer answer =
        seal_site_sign(cast.site[0], &cast.context, &cast.signer[0].signer,
                       &(struct seal_signed){bytes, n, signature}, &x, &persist);
    assert_int_equal(persist, answer == SEAL_ok);
    return answer;
}

static void assert_named(enum seal_answer a, enum seal_answer wanted, const char *name)
{
    assert_int_equal(a, wanted);
    assert_string_equal(seal_answer_name(a), name);
}

static void test_seals_refused(void **state)
{
    (void)state;
    seal_five();
    struct seal good = aggregator.seal, bad = good;
    set_put(&bad.s, 0, false);
    assert_named(sign_this(&bad), SEAL_seal_without_me, "seal_without_me");
    bad = good;
    set_put(&bad.s, 3, false);
    set_put(&bad.s, 4, false);
    assert_named(sign_this(&bad), SEAL_seal_set_too_small, "seal_set_too_small");
    bad = good;
    set_put(&bad.of.u, 4, false);
    set_put(&bad.s, 4, false);
    assert_named(sign_this(&bad), SEAL_seal_other_u, "seal_other_u");
    bad = good;
    bad.payload[0].bytes[5] ^= 1;
    assert_named(sign_this(&bad), SEAL_seal_other_payload, "seal_other_payload");
    bad = good;
    bad.of.attempt = 1;
    assert_int_equal(sign_this(&bad), SEAL_round_old);
    bad = good;
    bad.of.round = 5;
    assert_int_equal(sign_this(&bad), SEAL_round_unknown);
    bad = good;
    bad.of.fragment = 1;
    assert_int_equal(sign_this(&bad), SEAL_round_unknown);
    bad.of.fragment = 2;
    assert_int_equal(sign_this(&bad), SEAL_malformed);
    assert_int_equal(sign_this(&good), SEAL_ok);
    assert_int_equal(sign_this(&good), SEAL_again);
    bad = good;
    bad.term++;
    assert_named(sign_this(&bad), SEAL_seal_second, "seal_second");
    assert_int_equal(seal_site_abort(cast.site[0], 0, 4), SEAL_ok);
    assert_int_equal(seal_site_abort(cast.site[0], 0, 4), SEAL_again);
    assert_named(sign_this(&good), SEAL_seal_after_abort, "seal_after_abort");
    seal_site_final(cast.site[0], 0, 4);
    assert_int_equal(sign_this(&good), SEAL_round_old);
    assert_int_equal(seal_site_abort(cast.site[0], 0, 4), SEAL_round_old);
}

static void test_seal_not_subset(void **state)
{
    (void)state;
    bool persist;
    struct seal_announce four = {.round = 5, .u = {{15}}};
    struct digest d = digest_of("y", 1);
    assert_int_equal(
        seal_site_contribute(cast.site[0], &cast.context, &four, &sent.b[0], &d, &persist),
        SEAL_ok);
    struct seal s = {.of = four, .s = {{31}}};
    s.payload[0] = d;
    assert_named(sign_this(&s), SEAL_seal_not_subset, "seal_not_subset");
    s.s = four.u;
    assert_int_equal(sign_this(&s), SEAL_ok);
}

/* Form, run and signature of a seal: every byte counts. */
static void test_seal_bytes(void **state)
{
    (void)state;
    seal_five();
    struct seal back;
    struct seal_signature x;
    bool persist;
    uint8_t bytes[2048];
    assert_true(aggregator.size_bytes < sizeof bytes - 1);
    memcpy(bytes, aggregator.bytes, aggregator.size_bytes);
    assert_int_equal(seal_read(&cast.context, &back, bytes, aggregator.size_bytes), SEAL_ok);
    assert_memory_equal(&back, &aggregator.seal, sizeof back);
    for (size_t n = 0; n < aggregator.size_bytes; n++)
        assert_int_equal(seal_read(&cast.context, &back, bytes, n), SEAL_malformed);
    assert_int_equal(seal_read(&cast.context, &back, bytes, aggregator.size_bytes + 1),
                     SEAL_malformed);
    for (size_t i = 0; i < aggregator.size_bytes; i++) {
        bytes[i] ^= 0x20;
        enum seal_answer answer = seal_site_sign(
            cast.site[0], &cast.context, &cast.signer[0].signer,
            &(struct seal_signed){bytes, aggregator.size_bytes, aggregator.signature}, &x,
            &persist);
        assert_true(answer == SEAL_malformed || answer == SEAL_other_run ||
                    answer == SEAL_seal_forged);
        assert_false(persist);
        bytes[i] ^= 0x20;
    }
    struct seal_context other = cast.context;
    other.run = "else";
    assert_int_equal(seal_read(&other, &back, bytes, aggregator.size_bytes), SEAL_other_run);
    other = cast.context;
    other.roster_version = 2;
    assert_int_equal(seal_read(&other, &back, bytes, aggregator.size_bytes), SEAL_other_run);
    other = cast.context; /* signed, but by a site */
    struct seal_signed forged = cast_seal(&aggregator);
    uint8_t signature[SIGNER_BYTES];
    forged.signature = signature;
    assert_int_equal(cast.signer[1].signer.ops->sign(&cast.signer[1].signer, forged.bytes,
                                                     forged.size_bytes, signature),
                     ERR_OK);
    assert_named(
        seal_site_sign(cast.site[0], &cast.context, &cast.signer[0].signer, &forged, &x, &persist),
        SEAL_seal_forged, "seal_forged");
}

static void test_announced_refused(void **state)
{
    (void)state;
    const struct seal_site *s = cast.site[0];
    struct seal_context *c = &cast.context;
    struct seal_announce a = {.round = 5, .u = {{31}}};
    bool persist;
    assert_int_equal(seal_site_announced(s, c, &a), SEAL_ok);
    a.u.word[0] = 30;
    assert_named(seal_site_announced(s, c, &a), SEAL_announce_without_me, "announce_without_me");
    a.u.word[0] = 7;
    assert_named(seal_site_announced(s, c, &a), SEAL_announce_too_small, "announce_too_small");
    a.u.word[0] = 63;
    assert_named(seal_site_announced(s, c, &a), SEAL_announce_stranger, "announce_stranger");
    a.u.word[0] = 31;
    a.fragment = 2;
    assert_int_equal(seal_site_announced(s, c, &a), SEAL_malformed);
    a = all_five;
    assert_int_equal(seal_site_announced(s, c, &a), SEAL_again);
    a.u.word[0] = 15;
    assert_named(seal_site_announced(s, c, &a), SEAL_announce_second, "announce_second");
    a.attempt = 1; /* a later attempt may have another set */
    struct digest d = digest_of("y", 1), e = digest_of("z", 1);
    assert_int_equal(seal_site_contribute(cast.site[0], c, &a, &sent.b[1], &d, &persist), SEAL_ok);
    assert_true(persist);
    assert_int_equal(seal_site_contribute(cast.site[0], c, &a, &sent.b[1], &d, &persist),
                     SEAL_again);
    assert_false(persist);
    assert_named(seal_site_contribute(cast.site[0], c, &a, &sent.b[1], &e, &persist),
                 SEAL_contribute_twice, "contribute_twice");
    assert_int_equal(seal_site_announced(s, c, &all_five), SEAL_round_old);
    seal_five();
    assert_int_equal(sign_this(&aggregator.seal), SEAL_round_old); /* of the former attempt */
    struct seal next = {.of = a, .s = a.u};
    next.payload[0] = d;
    assert_int_equal(sign_this(&next), SEAL_ok);
    a.attempt = 2;
    assert_named(seal_site_announced(s, c, &a), SEAL_contribute_after_seal,
                 "contribute_after_seal");
    assert_int_equal(seal_site_abort(cast.site[0], 0, 4), SEAL_ok);
    assert_named(seal_site_announced(s, c, &a), SEAL_contribute_after_abort,
                 "contribute_after_abort");
    assert_int_equal(seal_site_abort(cast.site[0], 0, 6), SEAL_ok); /* before it has masked */
    a = (struct seal_announce){.round = 6, .u = {{31}}};
    assert_int_equal(seal_site_announced(s, c, &a), SEAL_contribute_after_abort);
    seal_site_final(cast.site[0], 0, 9);
    assert_named(seal_site_announced(s, c, &a), SEAL_round_old, "round_old");
    for (uint64_t t = 10; t < 10 + SEAL_ROUNDS_MAX; t++) {
        a.round = t;
        assert_int_equal(seal_site_contribute(cast.site[0], c, &a, &sent.b[1], &d, &persist),
                         SEAL_ok);
    }
    a.round++;
    assert_named(seal_site_announced(s, c, &a), SEAL_rounds_full, "rounds_full");
    assert_int_equal(seal_site_abort(cast.site[0], 0, a.round), SEAL_rounds_full);
    a.fragment = 1; /* another fragment has room of its own */
    assert_int_equal(seal_site_announced(s, c, &a), SEAL_ok);
}

/* However many rounds are aborted: the oldest are forgotten, and refused. */
static void test_rounds_aborted(void **state)
{
    (void)state;
    struct seal_context *c = &cast.context;
    struct seal_site *s = cast.site[0];
    struct digest d = digest_of("a payload", 9);
    struct cipher_key b = {{1}};
    struct seal_announce a = {.u = {{31}}};
    const uint64_t from = 10, end = from + 3 * SEAL_ROUNDS_MAX;
    bool persist;
    seal_site_final(s, 0, from - 1);
    for (a.round = from; a.round < end; a.round++) {
        assert_int_equal(seal_site_contribute(s, c, &a, &b, &d, &persist), SEAL_ok);
        assert_true(persist);
        assert_int_equal(seal_site_abort(s, 0, a.round), SEAL_ok);
    }
    for (uint64_t t = from; t < end; t++) {
        bool kept = t >= end - SEAL_ROUNDS_MAX;
        a.round = t;
        assert_int_equal(seal_site_announced(s, c, &a),
                         kept ? SEAL_contribute_after_abort : SEAL_round_old);
        assert_int_equal(seal_site_abort(s, 0, t), kept ? SEAL_again : SEAL_round_old);
    }
    a.round = end;
    assert_int_equal(seal_site_announced(s, c, &a), SEAL_ok);
}

static void test_reveals_refused(void **state)
{
    (void)state;
    struct seal_seed seeds[8];
    struct seal_reveal v = {.seeds = seeds};
    struct seal_signature kept;
    bool persist;
    seal_five();
    assert_named(reveal(&aggregator, 0, &v), SEAL_reveal_unsigned, "reveal_unsigned");
    for (unsigned i = 0; i < 4; i++)
        sign(&aggregator, i);
    assert_named(reveal(&aggregator, 0, &v), SEAL_seal_signature_missing, "seal_signature_missing");
    aggregator.signatures[4] = aggregator.signatures[3]; /* one twice */
    assert_int_equal(reveal(&aggregator, 0, &v), SEAL_seal_signature_missing);
    assert_int_equal(seal_signature_make(&aggregator.signatures[4], &cast.signer[3].signer, 4,
                                         &aggregator.digest), /* by another site's key */
                     ERR_OK);
    assert_int_equal(reveal(&aggregator, 0, &v), SEAL_seal_signature_missing);
    struct digest d = digest_of("another seal", 12);
    assert_int_equal(seal_signature_make(&aggregator.signatures[4], &cast.signer[4].signer, 4, &d),
                     ERR_OK);
    assert_int_equal(reveal(&aggregator, 0, &v), SEAL_seal_signature_missing);
    sign(&aggregator, 4);
    kept = aggregator.signatures[2];
    aggregator.signatures[2].site = 77;
    assert_int_equal(reveal(&aggregator, 0, &v), SEAL_seal_signature_missing);
    aggregator.signatures[2] = kept;
    struct seal_signed s = cast_seal(&aggregator);
    assert_int_equal(seal_site_reveal(cast.site[0], &cast.context, &cast.signer[0].signer,
                                      cast.keys[0], &s, aggregator.signatures, 4, &v, &persist),
                     SEAL_seal_signature_missing);
    /* Another seal, signed by the aggregator: before the answer and after it. */
    struct seal other = aggregator.seal;
    other.term = 9;
    uint8_t bytes[SEAL_BYTES_MAX], signature[SIGNER_BYTES];
    size_t n = seal_write(&cast.context, &other, bytes);
    assert_int_equal(cast.aggregator.signer.ops->sign(&cast.aggregator.signer, bytes, n, signature),
                     ERR_OK);
    struct seal_signed second = {bytes, n, signature};
    assert_int_equal(seal_site_reveal(cast.site[0], &cast.context, &cast.signer[0].signer,
                                      cast.keys[0], &second, aggregator.signatures, 5, &v,
                                      &persist),
                     SEAL_seal_second);
    assert_int_equal(reveal(&aggregator, 0, &v), SEAL_ok);
    assert_memory_equal(v.b.bytes, sent.b[0].bytes, 32);
    assert_int_equal(v.count, 0);
    assert_int_equal(reveal(&aggregator, 0, &v), SEAL_again);
    assert_named(seal_site_reveal(cast.site[0], &cast.context, &cast.signer[0].signer, cast.keys[0],
                                  &second, aggregator.signatures, 5, &v, &persist),
                 SEAL_reveal_twice, "reveal_twice");
    assert_int_equal(seal_site_abort(cast.site[0], 0, 4), SEAL_ok);
    assert_named(reveal(&aggregator, 0, &v), SEAL_reveal_after_abort, "reveal_after_abort");
    assert_int_equal(reveal(&aggregator, 1, &v), SEAL_ok);
    keys_final(cast.keys[2], 0, 4); /* out of order: no seed of a round that is final */
    assert_int_equal(reveal(&aggregator, 2, &v), SEAL_ok); /* no site is absent: none needed */
}

/* Site 4 is absent: its pair seeds are revealed, and only they. */
static void test_reveal_of_absent(void **state)
{
    (void)state;
    struct seal_seed seeds[8];
    struct seal_reveal v = {.seeds = seeds};
    struct cipher_key wanted;
    set_put(&aggregator.accepted, 4, false);
    seal_five();
    for (unsigned i = 0; i < 4; i++)
        sign(&aggregator, i);
    assert_int_equal(reveal(&aggregator, 1, &v), SEAL_ok);
    assert_int_equal(v.count, 1);
    assert_int_equal(v.seeds[0].site, 4);
    assert_int_equal(keys_seed(cast.keys[4], &wanted, 0, 1, 4, 0), KEYS_ok);
    assert_memory_equal(v.seeds[0].seed.bytes, wanted.bytes, 32);
    assert_int_equal(seal_aggregator_reveal(&aggregator, &v), SEAL_ok);
    assert_int_equal(seal_aggregator_reveal(&aggregator, &v), SEAL_again);
    v.site = 2;
    v.seeds[0].site = 3; /* a seed between two sites of S */
    assert_named(seal_aggregator_reveal(&aggregator, &v), SEAL_reveal_other_sites,
                 "reveal_other_sites");
    v.count = 0;
    assert_int_equal(seal_aggregator_reveal(&aggregator, &v), SEAL_reveal_other_sites);
    v.site = 4;
    assert_int_equal(seal_aggregator_reveal(&aggregator, &v), SEAL_round_unknown);
    keys_final(cast.keys[3], 0, 4);
    assert_named(reveal(&aggregator, 3, &v), SEAL_reveal_no_key, "reveal_no_key");
}

static void test_reveal_bytes(void **state)
{
    (void)state;
    struct seal_seed seeds[3] = {{1, {{1}}}, {5, {{2}}}, {9, {{3}}}}, back[SET_MAX];
    struct seal_reveal v = {7, digest_of("seal", 4), {{8}}, 3, seeds}, w = {.seeds = back};
    uint8_t bytes[512];
    size_t n = seal_reveal_bytes(3);
    seal_reveal_write(&v, bytes);
    assert_int_equal(seal_reveal_read(&w, bytes, n), SEAL_ok);
    assert_memory_equal(back, seeds, sizeof seeds);
    for (size_t k = 0; k < n + 20; k++)
        if (k != n)
            assert_int_equal(seal_reveal_read(&w, bytes, k), SEAL_malformed);
    bytes[79] = 1; /* 2^24 seeds in a short message */
    assert_int_equal(seal_reveal_read(&w, bytes, n), SEAL_malformed);
    bytes[79] = 0;
    bytes[80 + 36] = 1; /* the first site twice */
    assert_int_equal(seal_reveal_read(&w, bytes, n), SEAL_malformed);
    struct seal_signature s = {.site = 3, .seal = v.seal}, t;
    uint8_t short_bytes[SEAL_SIGNATURE_BYTES];
    seal_signature_write(&s, short_bytes);
    assert_int_equal(seal_signature_read(&t, short_bytes, sizeof short_bytes), SEAL_ok);
    assert_memory_equal(&s, &t, sizeof s);
    assert_int_equal(seal_signature_read(&t, short_bytes, sizeof short_bytes - 1), SEAL_malformed);
}

/* The aggregator refuses too, and continues from its journal with the same seal. */
static void test_aggregator(void **state)
{
    (void)state;
    struct seal_aggregator again = {0};
    struct seal_signature x;
    struct digest d = digest_of("other", 5);
    assert_int_equal(seal_aggregator_accept(&aggregator, 2, &sent.digest[2]), SEAL_again);
    assert_int_equal(seal_aggregator_accept(&aggregator, 2, &d), SEAL_contribute_twice);
    assert_int_equal(seal_aggregator_accept(&aggregator, 5, &d), SEAL_contribute_not_announced);
    assert_int_equal(seal_signature_make(&x, &cast.signer[0].signer, 0, &d), ERR_OK);
    assert_int_equal(
        seal_aggregator_signature(&aggregator, &cast.context, &cast.signer[0].signer, &x),
        SEAL_not_ready);
    seal_five();
    assert_int_equal(seal_aggregator_seal(&aggregator, &cast.context, &cast.aggregator.signer, 4),
                     SEAL_seal_second);
    assert_int_equal(
        seal_aggregator_signature(&aggregator, &cast.context, &cast.signer[0].signer, &x),
        SEAL_seal_second);
    assert_int_equal(seal_signature_make(&x, &cast.signer[1].signer, 0, &aggregator.digest),
                     ERR_OK);
    assert_int_equal(
        seal_aggregator_signature(&aggregator, &cast.context, &cast.signer[0].signer, &x),
        SEAL_seal_signature_missing);
    sign(&aggregator, 0); /* and the aggregator is killed */
    assert_int_equal(seal_aggregator_restore(&again, &cast.context, aggregator.bytes,
                                             aggregator.size_bytes, aggregator.signature),
                     SEAL_ok);
    for (unsigned i = 0; i < 5; i++)
        sign(&again, i);
    for (unsigned i = 0; i < 5; i++)
        reveal_to(&again, i);
    assert_sum(&again, &sent);
    seal_aggregator_abort(&again);
    assert_false(seal_aggregator_revealed(&again));
    assert_int_equal(seal_aggregator_seal(&again, &cast.context, &cast.aggregator.signer, 4),
                     SEAL_seal_after_abort);
    seal_aggregator_close(&again);
    assert_int_equal(seal_aggregator_restore(&again, &cast.context, aggregator.bytes,
                                             aggregator.size_bytes - 1, aggregator.signature),
                     SEAL_malformed);
    seal_aggregator_close(&again);
}

/* What was stored says the same after a restart, at every stage; damage is seen. */
static void test_stored(void **state)
{
    (void)state;
    seal_five();
    for (unsigned i = 1; i < 5; i++)
        sign(&aggregator, i);
    for (int stage = 0; stage < 5; stage++) {
        struct arena a = arena_make(0);
        struct file_part *parts;
        size_t count, n = 0;
        struct seal_site *back = NULL;
        if (stage == 1)
            sign(&aggregator, 0);
        if (stage == 2)
            reveal_to(&aggregator, 0);
        if (stage == 3)
            assert_int_equal(seal_site_abort(cast.site[0], 0, 4), SEAL_ok);
        if (stage == 4)
            seal_site_final(cast.site[0], 0, 4);
        assert_int_equal(seal_site_parts(cast.site[0], &parts, &count, &a), ERR_OK);
        uint8_t *data = calloc(1, 1 << 20);
        for (size_t i = 0; i < count; n += parts[i++].size_bytes)
            memcpy(data + n, parts[i].data, parts[i].size_bytes);
        for (size_t i = 0; i < n; i += 101) {
            data[i] ^= 1;
            assert_int_equal(seal_site_open(&back, 0, 2), ERR_OK);
            assert_true(seal_site_read(back, "f", data, n) != ERR_OK);
            seal_site_close(back);
            back = NULL;
            data[i] ^= 1;
        }
        assert_int_equal(seal_site_open(&back, 1, 2), ERR_OK);
        assert_int_equal(seal_site_read(back, "f", data, n), ERR_MISMATCH);
        seal_site_close(back);
        back = NULL;
        assert_int_equal(seal_site_open(&back, 0, 2), ERR_OK);
        assert_int_equal(seal_site_read(back, "f", data, n), ERR_OK);
        seal_site_close(cast.site[0]);
        cast.site[0] = back;
        struct seal_announce later = all_five;
        later.attempt = 1;
        static const enum seal_answer wanted[] = {SEAL_ok, SEAL_contribute_after_seal,
                                                  SEAL_contribute_after_seal,
                                                  SEAL_contribute_after_abort, SEAL_round_old};
        assert_int_equal(seal_site_announced(back, &cast.context, &later), wanted[stage]);
        bool found = false; /* b is in the file until it is not needed */
        for (size_t i = 0; i + 32 <= n && !found; i++)
            found = memcmp(data + i, sent.b[0].bytes, 32) == 0;
        assert_int_equal(found, stage < 3);
        free(data);
        arena_free(&a);
    }
}

static void test_thresholds(void **state)
{
    (void)state;
    assert_int_equal(round_threshold(8, 2), 6);
    assert_int_equal(round_threshold(9, 3), 7);
    assert_int_equal(round_threshold(4, 0), 3);
    for (unsigned n = 3; n <= SET_MAX; n++) {
        assert_int_equal(round_threshold(n, n - 2), n);
        for (unsigned c = 0; c <= n - 2; c += 1 + n / 9) {
            unsigned tau = round_threshold(n, c);
            assert_true(tau >= c + 2 && 2 * tau > n + c && tau <= n);
            assert_true(tau == c + 2 || 2 * (tau - 1) <= n + c); /* and no more than that */
        }
    }
    struct seal_context c = {.run = "r", .sites = 5, .members = {{31}}, .colluding = 3};
    assert_int_equal(seal_context_check(&c), ERR_OK);
    c.colluding = 4;
    assert_int_equal(seal_context_check(&c), ERR_CONFIG);
}

/* Two sites: refused unless forced; at a site too. */
static void test_two_sites(void **state)
{
    (void)state;
    struct seal_aggregator r = {0};
    cast_open(&cast, 2, 0, 1, 400);
    struct seal_announce a = {.u = {{3}}};
    assert_int_equal(seal_context_check(&cast.context), ERR_OK);
    assert_int_equal(seal_site_announced(cast.site[0], &cast.context, &a), SEAL_ok);
    cast.context.two_sites = false;
    assert_int_equal(seal_context_check(&cast.context), ERR_CONFIG);
    assert_named(seal_site_announced(cast.site[0], &cast.context, &a), SEAL_announce_two_sites,
                 "announce_two_sites");
    assert_int_equal(seal_aggregator_announce(&r, &cast.context, &a), SEAL_announce_two_sites);
    cast_close(&cast);
    struct seal_context one = {.run = "r", .sites = 1, .members = {{1}}, .two_sites = true};
    assert_int_equal(seal_context_check(&one), ERR_CONFIG);
}

/* ---- who may leave ---- */
/* n, strict, T as privacy.threshold, two_sites; then what a group of hospitals is told. By hand, of
 * the two rules of docs/privacy-methods.md: sums of at least T, and two honest sites in each. */
static void test_leavers(void **state)
{
    static const struct {
        unsigned n, colluding, threshold;
        bool strict, two;
        struct round_leave wanted;
    } row[] = {
        {3, 1, 3, true, false, {3, 0, 3, 0, false}},  /* the default of three */
        {3, 1, 3, false, false, {3, 0, 3, 0, false}}, /* quorum of three, 2 * 3 / 3 + 1 */
        {3, 0, 2, false, false, {2, 1, 3, 0, true}},  /* refused: pairs */
        {3, 0, 2, false, true, {2, 1, 2, 1, true}},   {4, 2, 4, true, false, {4, 0, 4, 0, false}},
        {4, 1, 3, false, false, {3, 1, 3, 1, false}}, {5, 2, 4, false, false, {4, 1, 4, 1, false}},
        {8, 3, 6, false, false, {6, 2, 7, 1, false}}, {2, 0, 2, true, true, {2, 0, 2, 0, false}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const struct round_masks m = {true, row[i].two, row[i].colluding, row[i].threshold};
        struct round_leave l = round_leave(&m, row[i].n, row[i].strict), w = row[i].wanted;
        if (l.least != w.least || l.away != w.away || l.roster != w.roster ||
            l.remove != w.remove || l.pairs != w.pairs)
            fail_msg("row %zu: least %u away %u roster %u remove %u pairs %d", i, l.least, l.away,
                     l.roster, l.remove, l.pairs);
    }
    const struct round_masks off = {.on = false};
    for (unsigned n = 1; n <= 9; n++) {
        struct round_leave q = round_leave(&off, n, false), s = round_leave(&off, n, true);
        assert_true(2 * q.least > n && 2 * (q.least - 1) <= n && q.away == n - q.least);
        assert_true(s.least == n && s.away == 0 && s.remove == n - 1 && !s.pairs);
    }
    char text[SECURE_LEAVE_MAX];
    const struct round_masks three = {true, false, 1, 3};
    secure_leave(text, &three, 3, true);
    assert_non_null(strstr(text, "3 sites, sums of at least 3: none may be away while rounds "
                                 "continue, and none may leave for good"));
    secure_leave(text, &(struct round_masks){true, true, 0, 2}, 3, false);
    assert_non_null(strstr(text, "1 of them may be away"));
    assert_non_null(strstr(text, "a sum of two sites shows each of them the other's"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_drop_outs),
        cmocka_unit_test(test_thresholds),
        cmocka_unit_test(test_leavers),
        cmocka_unit_test(test_two_sites),
        cmocka_unit_test_setup_teardown(test_seals_refused, open_five, close_five),
        cmocka_unit_test_setup_teardown(test_seal_not_subset, open_five, close_five),
        cmocka_unit_test_setup_teardown(test_seal_bytes, open_five, close_five),
        cmocka_unit_test_setup_teardown(test_announced_refused, open_five, close_five),
        cmocka_unit_test_setup_teardown(test_rounds_aborted, open_five, close_five),
        cmocka_unit_test_setup_teardown(test_reveals_refused, open_five, close_five),
        cmocka_unit_test_setup_teardown(test_reveal_of_absent, open_five, close_five),
        cmocka_unit_test_setup_teardown(test_reveal_bytes, open_five, close_five),
        cmocka_unit_test_setup_teardown(test_aggregator, open_five, close_five),
        cmocka_unit_test_setup_teardown(test_stored, open_five, close_five),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
