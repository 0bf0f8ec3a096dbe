/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of secure aggregation: a real site, over the real link, whose aggregator lies; then an
 * aggregator whose sites lie. What breaks here: a site signs or reveals what gives its values away,
 * or a lie ends it. */
#include "kernels/base/bytes.h"
#include "outer/identity/tls.h"
#include "tests/outer/link/link_craft.h"
#include "tests/refusals/masked_scene.h"
#include "tests/refusals/refusals.h"

/* ---- what a lie is made with ---- */

static struct seal_context context; /* of the present round */

static void context_now(void)
{
    context = masked_context();
}

static bool asks(const struct wire_mask *m, enum wire_mask_step step)
{
    return m->step == step && !m->body_bytes;
}

/* The seal of a SIGN's answer. */
static void seal_take(const struct wire_mask_answer *answer, struct seal *s)
{
    assert_in_range(answer->body_bytes, SIGNER_BYTES + 1, sizeof answer->body);
    assert_int_equal(seal_read(&context, s, answer->body, answer->body_bytes - SIGNER_BYTES),
                     SEAL_ok);
}

static size_t seal_put(uint8_t *to, const struct seal *s, struct signer *by)
{
    size_t n = seal_write(&context, s, to);
    assert_int_equal(by->ops->sign(by, to, n, to + n), ERR_OK);
    return n;
}

static void seal_give(struct wire_mask_answer *answer, const struct seal *s, struct signer *by)
{
    answer->answer.outcome = ROUND_NONE;
    answer->body_bytes = seal_put(answer->body, s, by) + SIGNER_BYTES;
}

static struct set set_of(const char *sites)
{
    struct set s = {0};
    for (; *sites; sites++)
        set_put(&s, (unsigned)(*sites - 'a'), true);
    return s;
}

/* A round in which site a is told something else at a step, until it has refused that twice: it
 * lives and has asked again. Then it is told the truth, and the round is committed with what it
 * sent. signs, reveals: what it may have said meanwhile. */
static const char *round_lies(const struct masked_lie *lie, unsigned signs, unsigned reveals)
{
    static char text[80];
    masked_open(3, NULL);
    context_now();
    masked_lies(lie);
    masked_let();
    snprintf(text, sizeof text, "%s", masked_refusal(2));
    assert_int_equal(masked_signed(), signs);
    assert_int_equal(masked_revealed(), reveals);
    masked_lies(NULL);
    masked_well();
    return text;
}

/* ---- other seals ---- */

static void (*seal_bend)(struct seal *s); /* of the lie that is told */
static char seal_signer = '-';

static void seal_bent(const struct wire_mask *m, struct wire_mask_answer *answer)
{
    struct seal s;
    if (!asks(m, WIRE_MASK_SIGN) || answer->answer.outcome != ROUND_NONE)
        return;
    seal_take(answer, &s);
    seal_bend(&s);
    seal_give(answer, &s, masked_signer(seal_signer));
}

static const char *seal_lies(void (*bend)(struct seal *), char signer)
{
    static const struct masked_lie lie = {.masks = seal_bent};
    seal_bend = bend;
    seal_signer = signer;
    return round_lies(&lie, 0, 0);
}

static void set_small(struct seal *s)
{
    s->s = set_of("ab");
}

const char *seal_set_too_small(void)
{
    return seal_lies(set_small, '-');
}

static void set_without_me(struct seal *s)
{
    s->s = set_of("bc");
}

const char *seal_without_me(void)
{
    return seal_lies(set_without_me, '-');
}

static void u_other(struct seal *s)
{
    s->of.u = s->s = set_of("ab");
}

const char *seal_other_u(void)
{
    return seal_lies(u_other, '-');
}

static void payload_other(struct seal *s)
{
    s->payload[0].bytes[5] ^= 1;
}

const char *seal_other_payload(void)
{
    return seal_lies(payload_other, '-');
}

static void seal_same(struct seal *s)
{
    (void)s;
}

const char *seal_forged(void)
{
    return seal_lies(seal_same, 'b');
}

static void round_other(struct seal *s)
{
    s->of.round++;
}

const char *seal_other_round(void)
{
    return seal_lies(round_other, '-');
}

static void attempt_other(struct seal *s)
{
    s->of.attempt++;
}

const char *seal_other_attempt(void)
{
    return seal_lies(attempt_other, '-');
}

/* Another configuration; then one byte less. */
static void other_run(const struct wire_mask *m, struct wire_mask_answer *answer)
{
    if (asks(m, WIRE_MASK_SIGN) && answer->answer.outcome == ROUND_NONE)
        answer->body[8 + 2 + 4 + 3] ^= 1;
}

const char *seal_other_run(void)
{
    static const struct masked_lie lie = {.masks = other_run};
    return round_lies(&lie, 0, 0);
}

static void cut(const struct wire_mask *m, struct wire_mask_answer *answer)
{
    static unsigned left;
    if (m->body_bytes || (m->step != WIRE_MASK_SIGN && m->step != WIRE_MASK_REVEAL))
        return;
    left = (left + 37) % 150;
    answer->body_bytes = left < answer->body_bytes ? left : 0;
}

const char *seal_malformed(void)
{
    static const struct masked_lie lie = {.masks = cut};
    return round_lies(&lie, 0, 0);
}

/* ---- a second seal, signatures ---- */

static void sign_again(const struct wire_poll *m, struct wire_poll_answer *answer)
{
    (void)m;
    if (answer->answer.outcome == ROUND_PENDING && masked_signed())
        answer->wants = WIRE_MASK_SIGN;
}

/* The same seal in a later term. */
static void second_to_sign(const struct wire_mask *m, struct wire_mask_answer *answer)
{
    struct seal s;
    if (!asks(m, WIRE_MASK_SIGN) || answer->answer.outcome != ROUND_NONE || !masked_signed())
        return;
    seal_take(answer, &s);
    s.term++;
    seal_give(answer, &s, masked_signer('-'));
}

/* To REVEAL: u32 size, seal, signature, the sites' signatures. */
static void reveal_give(struct wire_mask_answer *answer, const struct seal *s,
                        const struct seal_signature *signatures, unsigned count)
{
    struct bytes_writer w = bytes_writer(answer->body, sizeof answer->body);
    uint8_t bytes[SEAL_BYTES_MAX + SIGNER_BYTES], one[SEAL_SIGNATURE_BYTES];
    size_t n = seal_put(bytes, s, masked_signer('-'));
    bytes_put_u32(&w, (uint32_t)n);
    bytes_put(&w, bytes, n + SIGNER_BYTES);
    for (unsigned i = 0; i < count; i++) {
        seal_signature_write(&signatures[i], one);
        bytes_put(&w, one, sizeof one);
    }
    answer->answer.outcome = ROUND_NONE;
    answer->body_bytes = bytes_size(&w);
}

/* What lies in it. */
static unsigned reveal_take(const struct wire_mask_answer *answer, struct seal *s,
                            struct seal_signature signatures[3])
{
    struct bytes_reader r = bytes_reader(answer->body, answer->body_bytes);
    size_t n = bytes_get_u32(&r);
    const uint8_t *seal = bytes_view(&r, n);
    assert_non_null(bytes_view(&r, SIGNER_BYTES));
    assert_int_equal(seal_read(&context, s, seal, n), SEAL_ok);
    unsigned count = 0;
    while (bytes_left(&r) && count < 3)
        assert_int_equal(seal_signature_read(&signatures[count++],
                                             bytes_view(&r, SEAL_SIGNATURE_BYTES),
                                             SEAL_SIGNATURE_BYTES),
                         SEAL_ok);
    return count;
}

static void second_to_reveal(const struct wire_mask *m, struct wire_mask_answer *answer)
{
    struct seal s;
    struct seal_signature x[3];
    if (!asks(m, WIRE_MASK_REVEAL) || answer->answer.outcome != ROUND_NONE)
        return;
    unsigned count = reveal_take(answer, &s, x);
    s.term++;
    reveal_give(answer, &s, x, count);
}

/* To be signed, when the first one is; then to be answered for. */
const char *seal_second(void)
{
    static const struct masked_lie sign = {.masks = second_to_sign, .polls = sign_again},
                                   reveal = {.masks = second_to_reveal};
    assert_string_equal(round_lies(&sign, 1, 0), "waits seal_second");
    return round_lies(&reveal, 1, 0);
}

static unsigned signatures_lie; /* which */

static void signatures_bent(const struct wire_mask *m, struct wire_mask_answer *answer)
{
    struct seal s;
    struct seal_signature x[3];
    if (!asks(m, WIRE_MASK_REVEAL) || answer->answer.outcome != ROUND_NONE)
        return;
    unsigned count = reveal_take(answer, &s, x);
    if (signatures_lie == 0)
        count = 2; /* without c's */
    else if (signatures_lie == 1)
        x[2] = x[1];
    else if (signatures_lie == 2) /* b signs for c */
        assert_int_equal(seal_signature_make(&x[2], masked_signer('b'), 2, &x[1].seal), ERR_OK);
    else /* c signs another seal */
        x[2].seal.bytes[0] ^= 1;
    reveal_give(answer, &s, x, count);
}

const char *seal_signature_missing(void)
{
    static const struct masked_lie lie = {.masks = signatures_bent};
    const char *text = "";
    for (signatures_lie = 0; signatures_lie < 4; signatures_lie++) {
        text = round_lies(&lie, 1, 0);
        if (strcmp(text, "waits seal_signature_missing") != 0)
            break;
    }
    return text;
}

/* ---- reveals ---- */

static bool reveal_held(char site, const struct wire_mask *m)
{
    return site == 'a' && m->step == WIRE_MASK_REVEAL && m->body_bytes;
}

/* Once site a has answered for the seal, it is asked about another one. */
static void second_once_revealed(const struct wire_mask *m, struct wire_mask_answer *answer)
{
    if (masked_revealed())
        second_to_reveal(m, answer);
}

const char *reveal_twice(void)
{
    static const struct masked_lie lie = {.holds = reveal_held, .masks = second_once_revealed};
    return round_lies(&lie, 1, 1);
}

static bool sign_held(char site, const struct wire_mask *m)
{
    return site == 'a' && m->step == WIRE_MASK_SIGN;
}

static void reveal_wanted(const struct wire_poll *m, struct wire_poll_answer *answer)
{
    (void)m;
    if (answer->answer.outcome == ROUND_PENDING && answer->wants == WIRE_MASK_SIGN)
        answer->wants = WIRE_MASK_REVEAL;
}

/* The seal as site a would be asked to sign it, signed by the others. */
static void seal_by_others(const struct wire_mask *m, struct wire_mask_answer *answer)
{
    struct wire_mask ask = *m;
    struct seal s;
    struct seal_signature x[2];
    uint8_t bytes[SEAL_BYTES_MAX];
    if (!asks(m, WIRE_MASK_REVEAL))
        return;
    ask.step = WIRE_MASK_SIGN;
    masked_ask('a', &ask, answer);
    if (answer->answer.outcome != ROUND_NONE)
        return;
    seal_take(answer, &s);
    struct digest d = digest_of(bytes, seal_write(&context, &s, bytes));
    assert_int_equal(seal_signature_make(&x[0], masked_signer('b'), 1, &d), ERR_OK);
    assert_int_equal(seal_signature_make(&x[1], masked_signer('c'), 2, &d), ERR_OK);
    reveal_give(answer, &s, x, 2);
}

const char *reveal_unsigned(void)
{
    static const struct masked_lie lie = {
        .holds = sign_held, .masks = seal_by_others, .polls = reveal_wanted};
    return round_lies(&lie, 0, 0);
}

/* ---- after an abort ---- */

/* The seal of the aborted round, and all its signatures; c's never reached the aggregator. */
static struct {
    struct seal seal;
    struct seal_signature signatures[3];
    struct set have;
    uint64_t round;
    enum wire_mask_step wants;
} aborted;

static bool c_held(char site, const struct wire_mask *m)
{
    unsigned at = (unsigned)(site - 'a');
    if (m->step != WIRE_MASK_SIGN || !m->body_bytes)
        return false;
    if (seal_signature_read(&aborted.signatures[at], m->body, m->body_bytes) == SEAL_ok)
        set_put(&aborted.have, at, true);
    return site == 'c';
}

static void seal_noted(const struct wire_mask *m, struct wire_mask_answer *answer)
{
    if (asks(m, WIRE_MASK_SIGN) && answer->answer.outcome == ROUND_NONE)
        seal_take(answer, &aborted.seal);
}

static void abort_hidden(const struct wire_poll *m, struct wire_poll_answer *answer)
{
    if (m->round != aborted.round || answer->answer.outcome != ROUND_COMMIT)
        return;
    answer->answer.outcome = ROUND_PENDING;
    answer->wants = aborted.wants;
}

static void aborted_asked(const struct wire_mask *m, struct wire_mask_answer *answer)
{
    if (asks(m, WIRE_MASK_REVEAL))
        reveal_give(answer, &aborted.seal, aborted.signatures, 3);
    else if (asks(m, WIRE_MASK_SIGN))
        seal_give(answer, &aborted.seal, masked_signer('-'));
}

/* An operator aborts a round that site a has signed. Site a writes that down, and ends before it
 * has committed it; when it comes back, the abort is kept from it. */
static const char *asked_after_abort(enum wire_mask_step wants)
{
    static const struct masked_lie wait = {.holds = c_held, .masks = seal_noted},
                                   lie = {.masks = aborted_asked, .polls = abort_hidden};
    static char text[80];
    masked_open(3, NULL);
    context_now();
    memset(&aborted, 0, sizeof aborted);
    aborted.round = masked_round();
    aborted.wants = wants;
    masked_lies(&wait);
    masked_let();
    for (int i = 0; i < 60000 && set_count(&aborted.have) < 3; i++)
        usleep(2000);
    assert_int_equal(set_count(&aborted.have), 3);
    masked_commit_fails();
    assert_int_equal(masked_operate(WIRE_ABORT, ""), ROUND_CURRENT);
    masked_site_ends('a');
    masked_lies(&lie);
    masked_site_starts('a');
    snprintf(text, sizeof text, "%s", masked_refusal(2));
    assert_int_equal(masked_signed() + masked_revealed(), 0);
    masked_lies(NULL);
    masked_let(); /* its work is in the next round */
    masked_well();
    return text;
}

const char *reveal_after_abort(void)
{
    return asked_after_abort(WIRE_MASK_REVEAL);
}

const char *seal_after_abort(void)
{
    return asked_after_abort(WIRE_MASK_SIGN);
}

/* ---- the same lies in the body of a poll's answer ---- */

static const char *polled(const char *(*row)(void))
{
    masked_polled(true);
    const char *text = row();
    masked_polled(false);
    return text;
}
#define POLLED(name, row)                                                                          \
    const char *name(void)                                                                         \
    {                                                                                              \
        return polled(row);                                                                        \
    }
POLLED(poll_seal_too_small, seal_set_too_small)
POLLED(poll_seal_other_u, seal_other_u)
POLLED(poll_seal_other_payload, seal_other_payload)
POLLED(poll_seal_other_round, seal_other_round)
POLLED(poll_seal_malformed, seal_malformed)
POLLED(poll_seal_forged, seal_forged)
POLLED(poll_seal_second, seal_second)
POLLED(poll_signature_missing, seal_signature_missing)
POLLED(poll_reveal_twice, reveal_twice)
POLLED(poll_seal_after_abort, seal_after_abort)
POLLED(poll_reveal_after_abort, reveal_after_abort)

/* Announce is for the site to ask. */
static void announce_wanted(const struct wire_poll *m, struct wire_poll_answer *answer)
{
    (void)m;
    if (answer->answer.outcome == ROUND_PENDING)
        answer->wants = WIRE_MASK_ANNOUNCE;
}

const char *poll_step_unasked(void)
{
    static const struct masked_lie lie = {.polls = announce_wanted};
    return round_lies(&lie, 0, 0);
}

/* ---- public keys ---- */

/* The entry of a site in the list of keys: where it begins, its certificate, its statement. */
struct entry {
    uint8_t *at, *name, *certificate, *statement;
    size_t certificate_bytes, bytes;
};

static bool entry_find(struct wire_mask_answer *answer, uint32_t site, struct entry *e)
{
    struct bytes_reader r = bytes_reader(answer->body, answer->body_bytes);
    uint32_t sites = bytes_get_u32(&r);
    (void)bytes_view(&r, (sites + 7) / 8);
    (void)bytes_get_u32(&r); /* the site that the setup is for */
    uint32_t fragments = bytes_get_u32(&r);
    (void)bytes_view(&r, 8 * (size_t)fragments);
    while (bytes_left(&r)) {
        size_t from = answer->body_bytes - bytes_left(&r);
        uint32_t its = bytes_get_u32(&r);
        size_t name = bytes_get_u8(&r);
        (void)bytes_view(&r, name);
        size_t n = bytes_get_u32(&r);
        (void)bytes_view(&r, n + KEYS_STATEMENT_BYTES);
        assert_false(r.bad);
        *e = (struct entry){.at = answer->body + from,
                            .name = answer->body + from + 5,
                            .certificate = answer->body + from + 5 + name + 4,
                            .statement = answer->body + from + 5 + name + 4 + n,
                            .certificate_bytes = n,
                            .bytes = answer->body_bytes - from - bytes_left(&r)};
        if (its == site)
            return true;
    }
    return false;
}

static void entry_drop(struct wire_mask_answer *answer, const struct entry *e)
{
    uint8_t *behind = e->at + e->bytes;
    memmove(e->at, behind, (size_t)(answer->body + answer->body_bytes - behind));
    answer->body_bytes -= e->bytes;
}

/* What this identity says is the site's key. */
static void state_sign(struct keys_statement *s, const uint8_t key[CIPHER_KEY_BYTES],
                       struct signer *by)
{
    uint8_t bytes[128];
    struct bytes_writer w = bytes_writer(bytes, sizeof bytes);
    memcpy(s->key.bytes, key, CIPHER_KEY_BYTES);
    bytes_put(&w, "atollSK1", 8);
    bytes_put_u16(&w, 4);
    bytes_put(&w, "test", 4);
    bytes_put_u32(&w, s->setup);
    bytes_put_u32(&w, s->site);
    bytes_put(&w, s->key.bytes, CIPHER_KEY_BYTES);
    assert_int_equal(by->ops->sign(by, bytes, bytes_size(&w), s->signature), ERR_OK);
}

static void state_key(const struct entry *e, const uint8_t key[CIPHER_KEY_BYTES], struct signer *by)
{
    struct keys_statement s;
    assert_int_equal(keys_statement_read(&s, e->statement, KEYS_STATEMENT_BYTES), ERR_OK);
    state_sign(&s, key, by);
    keys_statement_write(&s, e->statement);
}

static bool keys_listed(const struct wire_mask *m, const struct wire_mask_answer *answer)
{
    return m->step == WIRE_MASK_SETUP && answer->answer.outcome == ROUND_NONE;
}

/* A new run whose first list of keys lies to site a; `times` refusals, then the truth. */
static const char *keys_lie(const struct masked_lie *lie, unsigned times)
{
    static char text[80];
    masked_open(3, lie);
    masked_let();
    snprintf(text, sizeof text, "%s", masked_refusal(times));
    assert_int_equal(masked_signed() + masked_revealed(), 0);
    masked_lies(NULL);
    masked_well();
    return text;
}

/* b works together with the aggregator: points of order 1, 2, 4 and 8, and larger than the prime.
 */
static void low_order(const struct wire_mask *m, struct wire_mask_answer *answer)
{
    static const uint8_t points[][CIPHER_KEY_BYTES] = {
        {0},
        {1},
        {0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3,
         0xfa, 0xf1, 0x9f, 0xc4, 0x6a, 0xda, 0x09, 0x8d, 0xeb, 0x9c, 0x32,
         0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00},
        {0x5f, 0x9c, 0x95, 0xbc, 0xa3, 0x50, 0x8c, 0x24, 0xb1, 0xd0, 0xb1,
         0x55, 0x9c, 0x83, 0xef, 0x5b, 0x04, 0x44, 0x5c, 0xc4, 0x58, 0x1c,
         0x8e, 0x86, 0xd8, 0x22, 0x4e, 0xdd, 0xd0, 0x9f, 0x11, 0x57},
        {0xec, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
         0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
         0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
    };
    static unsigned next;
    struct entry e;
    if (keys_listed(m, answer) && entry_find(answer, 1, &e))
        state_key(&e, points[next++ % 5], masked_signer('b'));
}

const char *x25519_low_order(void)
{
    static const struct masked_lie lie = {.masks = low_order};
    return keys_lie(&lie, 5);
}

/* The aggregator's own key for b's, signed by itself, and by c. */
static void substituted(const struct wire_mask *m, struct wire_mask_answer *answer)
{
    static const uint8_t own[CIPHER_KEY_BYTES] = {9, 7};
    static unsigned next;
    struct entry e;
    if (keys_listed(m, answer) && entry_find(answer, 1, &e))
        state_key(&e, own, masked_signer(next++ % 2 ? '-' : 'c'));
}

/* b's own key, then another one that b has signed; c's is kept back meanwhile. */
static void second_key(const struct wire_mask *m, struct wire_mask_answer *answer)
{
    static const uint8_t other[CIPHER_KEY_BYTES] = {9, 7};
    static unsigned shown;
    struct entry e;
    if (!keys_listed(m, answer))
        return;
    if (entry_find(answer, 2, &e))
        entry_drop(answer, &e);
    if (entry_find(answer, 1, &e) && m->body_bytes && shown++) /* it has begun its setup */
        state_key(&e, other, masked_signer('b'));
}

const char *pair_key_substituted(void)
{
    static const struct masked_lie lie = {.masks = substituted}, second = {.masks = second_key};
    assert_string_equal(keys_lie(&lie, 4), "waits pair_key_substituted");
    return keys_lie(&second, 2);
}

/* c's name, and the aggregator's own certificate, for b's. */
static void identity_wrong(const struct wire_mask *m, struct wire_mask_answer *answer)
{
    static unsigned next;
    struct entry b;
    uint8_t own[SIGNER_CERTIFICATE_MAX];
    size_t n;
    if (!keys_listed(m, answer) || !entry_find(answer, 1, &b))
        return;
    struct signer *aggregator = masked_signer('-');
    assert_int_equal(aggregator->ops->certificate(aggregator, own, &n), ERR_OK);
    if (next++ % 2)
        *b.name = 'c';
    else
        memcpy(b.certificate, own, n < b.certificate_bytes ? n : b.certificate_bytes);
}

const char *pair_identity_wrong(void)
{
    static const struct masked_lie lie = {.masks = identity_wrong};
    return keys_lie(&lie, 4);
}

/* Cut somewhere. */
static void list_wrong(const struct wire_mask *m, struct wire_mask_answer *answer)
{
    static size_t cut_at;
    if (!keys_listed(m, answer))
        return;
    cut_at += 61;
    if (answer->body_bytes > 20)
        answer->body_bytes -= 1 + cut_at % (answer->body_bytes - 1);
}

/* There is always a page more. */
static void list_endless(const struct wire_mask *m, struct wire_mask_answer *answer)
{
    if (keys_listed(m, answer))
        answer->answer.offset = 1;
}

const char *pair_list_malformed(void)
{
    static const struct masked_lie lie = {.masks = list_wrong}, endless = {.masks = list_endless};
    masked_open(3, &endless);
    masked_let();
    masked_well();
    return keys_lie(&lie, 8);
}

/* ---- the sites of a round ---- */

/* Sites a, b, c of four: an operator has removed d, and from now on the aggregator says which sites
 * a round has. */
static void four_open(void)
{
    masked_open(4, NULL);
    if (masked_round())
        return;
    masked_let();
    masked_well();
    assert_int_equal(masked_operate(WIRE_ROSTER_REMOVE, "d"), ROUND_CURRENT);
    masked_let(); /* the round in flight still has d, which ends after it */
    masked_well();
    masked_site_ends('d');
    masked_let();
    masked_well();
    assert_int_equal(masked_version(), 2);
}

static struct announced {
    uint32_t version;
    const char *u;
    unsigned cut;
} announced[2]; /* in turn */

static void announce_bent(const struct wire_mask *m, struct wire_mask_answer *answer)
{
    static unsigned next;
    const struct announced *as = &announced[next++ % 2];
    if (m->step != WIRE_MASK_ANNOUNCE || answer->answer.outcome != ROUND_NONE)
        return;
    struct bytes_writer w = bytes_writer(answer->body, sizeof answer->body);
    struct set u = set_of(as->u);
    bytes_put_u32(&w, as->version);
    bytes_put_u32(&w, 4);
    seal_set_write(&w, &u, 4); /* the roster, too */
    seal_set_write(&w, &u, 4);
    answer->body_bytes = bytes_size(&w) - as->cut;
}

static const char *announce_lies(struct announced one, struct announced other)
{
    static const struct masked_lie lie = {.masks = announce_bent};
    static char text[80];
    four_open();
    announced[0] = one;
    announced[1] = other;
    masked_lies(&lie);
    masked_let();
    snprintf(text, sizeof text, "%s", masked_refusal(4));
    assert_int_equal(masked_signed() + masked_revealed(), 0);
    masked_lies(NULL);
    masked_well();
    return text;
}

/* Two sites; then the same, as if an operator had removed c. */
const char *announce_too_small(void)
{
    return announce_lies((struct announced){2, "ab", 0}, (struct announced){3, "ab", 0});
}

const char *announce_without_me(void)
{
    return announce_lies((struct announced){2, "bc", 0}, (struct announced){3, "bcd", 0});
}

/* The removed one; then a roster that no operator can have made since. */
const char *announce_stranger(void)
{
    return announce_lies((struct announced){2, "abcd", 0}, (struct announced){9, "abc", 0});
}

const char *announce_malformed(void)
{
    return announce_lies((struct announced){2, "abc", 1}, (struct announced){2, "abc", 7});
}

static void set_beyond(struct seal *s)
{
    set_put(&s->s, 3, true);
}

const char *seal_not_subset(void)
{
    static const struct masked_lie lie = {.masks = seal_bent};
    static char text[80];
    four_open();
    context_now();
    context.roster_version = 2;
    context.members = set_of("abc");
    seal_bend = set_beyond;
    seal_signer = '-';
    masked_lies(&lie);
    masked_let();
    snprintf(text, sizeof text, "%s", masked_refusal(2));
    assert_int_equal(masked_signed() + masked_revealed(), 0);
    masked_lies(NULL);
    masked_well();
    return text;
}

/* ---- what sites say ---- */

static const char *mask_as(const char *certificate, const struct wire_mask *m)
{
    struct hand h;
    scene_here();
    hand_open(&h, masked_port(), certificate);
    const char *text = scene_call_on(&h, LINK_MASK, m);
    hand_close(&h);
    return text;
}

static const char *keys_asked_by(const char *certificate)
{
    masked_open(3, NULL);
    struct wire_mask m = {.head = masked_head('a'), .step = WIRE_MASK_SETUP};
    assert_string_equal(mask_as("a", &m), "answer none"); /* a itself may */
    return mask_as(certificate, &m);
}

const char *mask_by_operator(void)
{
    return keys_asked_by("operator");
}

const char *mask_by_observer(void)
{
    scene_here();
    craft(&(struct craft){"x", "ca", "URI:atoll://test/observer/a", "clientAuth", -60, 3600});
    return keys_asked_by("x");
}

const char *mask_as_other(void)
{
    return keys_asked_by("b");
}

const char *mask_by_removed(void)
{
    four_open();
    struct wire_mask m = {.head = masked_head('a'), .step = WIRE_MASK_SETUP};
    strcpy(m.head.site, "d");
    return mask_as("d", &m);
}

const char *mask_without_secure(void)
{
    scene_here();
    struct wire_mask m = {.head = scene_head(scene_fresh(0)), .step = WIRE_MASK_SETUP};
    return scene_call("a", LINK_MASK, &m);
}

/* After a round, so that the aggregator has a's public key of the roster: another one. */
static const char *key_says(const uint8_t key[CIPHER_KEY_BYTES], char signer)
{
    uint8_t bytes[KEYS_STATEMENT_BYTES];
    struct keys_statement s = {.setup = 1, .site = 0};
    masked_open(3, NULL);
    if (!masked_round())
        masked_let();
    masked_well();
    state_sign(&s, key, masked_signer(signer));
    keys_statement_write(&s, bytes);
    struct wire_mask m = {.head = masked_head('a'),
                          .step = WIRE_MASK_SETUP,
                          .body = bytes,
                          .body_bytes = sizeof bytes};
    const char *text = mask_as("a", &m);
    masked_let();
    masked_well();
    return text;
}

static const uint8_t other_key[CIPHER_KEY_BYTES] = {9, 7};

const char *key_second(void)
{
    return key_says(other_key, 'a');
}

const char *key_signed_by_other(void)
{
    return key_says(other_key, 'b');
}

const char *key_of_low_order(void)
{
    static const uint8_t one[CIPHER_KEY_BYTES] = {1};
    return key_says(one, 'a');
}

/* Site a is kept from a step of the round; then the test says something in its place. */
static struct digest seal_digest;
static enum wire_mask_step held_step;
static atomic_bool held;

static bool a_held(char site, const struct wire_mask *m)
{
    struct seal_signature x;
    if (site == 'c' && m->step == WIRE_MASK_SIGN && m->body_bytes &&
        seal_signature_read(&x, m->body, m->body_bytes) == SEAL_ok)
        seal_digest = x.seal;
    bool holds = site == 'a' && asks(m, held_step);
    if (holds && seal_digest.bytes[0] + seal_digest.bytes[1])
        atomic_store(&held, true);
    return holds;
}

static struct wire_mask held_at(enum wire_mask_step step)
{
    static const struct masked_lie lie = {.holds = a_held};
    masked_open(3, NULL);
    context_now();
    memset(&seal_digest, 0, sizeof seal_digest);
    atomic_store(&held, false);
    held_step = step;
    masked_lies(&lie);
    masked_let();
    for (int i = 0; i < 60000 && !held; i++)
        usleep(2000);
    assert_true(held);
    return (struct wire_mask){.head = masked_head('a'), .step = step, .round = masked_round()};
}

static const char *released(const char *text)
{
    static char kept[80];
    snprintf(kept, sizeof kept, "%s", text);
    masked_lies(NULL);
    masked_well();
    return kept;
}

static const char *sign_says(struct wire_mask *m, uint32_t site, struct signer *by,
                             const struct digest *seal)
{
    static uint8_t bytes[SEAL_SIGNATURE_BYTES];
    struct seal_signature x;
    assert_int_equal(seal_signature_make(&x, by, site, seal), ERR_OK);
    seal_signature_write(&x, bytes);
    m->body = bytes;
    m->body_bytes = sizeof bytes;
    return mask_as("a", m);
}

const char *sign_other_seal(void)
{
    struct wire_mask m = held_at(WIRE_MASK_SIGN);
    struct digest other = digest_of("another", 7);
    return released(sign_says(&m, 0, masked_signer('a'), &other));
}

/* b's signature; then one of b's in a's name. */
const char *sign_by_other(void)
{
    struct wire_mask m = held_at(WIRE_MASK_SIGN);
    const char *text = sign_says(&m, 1, masked_signer('b'), &seal_digest);
    if (strcmp(text, "answer invalid") == 0)
        text = sign_says(&m, 0, masked_signer('b'), &seal_digest);
    return released(text);
}

static const char *reveal_says(struct wire_mask *m, uint32_t site, const struct digest *seal,
                               uint32_t count)
{
    static uint8_t bytes[256];
    struct seal_seed seeds[2] = {{.site = 1}, {.site = 2}};
    struct seal_reveal v = {.site = site, .seal = *seal, .count = count, .seeds = seeds};
    seal_reveal_write(&v, bytes);
    m->step = WIRE_MASK_REVEAL;
    m->body = bytes;
    m->body_bytes = seal_reveal_bytes(count);
    return mask_as("a", m);
}

const char *reveal_other_seal(void)
{
    struct wire_mask m = held_at(WIRE_MASK_REVEAL);
    struct digest other = digest_of("another", 7);
    return released(reveal_says(&m, 0, &other, 0));
}

/* Before site a has signed. */
const char *reveal_too_early(void)
{
    struct wire_mask m = held_at(WIRE_MASK_SIGN);
    return released(reveal_says(&m, 0, &seal_digest, 0));
}

/* In b's name; seeds of sites that are in the sum. */
const char *reveal_by_other(void)
{
    struct wire_mask m = held_at(WIRE_MASK_REVEAL);
    return released(reveal_says(&m, 1, &seal_digest, 0));
}

const char *reveal_other_sites(void)
{
    struct wire_mask m = held_at(WIRE_MASK_REVEAL);
    return released(reveal_says(&m, 0, &seal_digest, 2));
}

const char *mask_old_round(void)
{
    struct wire_mask m = held_at(WIRE_MASK_SIGN);
    m.round--;
    return released(sign_says(&m, 0, masked_signer('a'), &seal_digest));
}

/* ---- form ---- */

/* The bytes of a call with the largest body, changed in one place. */
static const char *mask_bytes(void (*change)(uint8_t *data, size_t *n))
{
    static uint8_t body[WIRE_MASK_REQUEST_MAX], bytes[2 * WIRE_MASK_REQUEST_MAX];
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
    struct hand h;
    uint8_t *data;
    size_t n;
    scene_here();
    masked_open(3, NULL);
    struct wire_mask m = {.head = masked_head('a'),
                          .step = WIRE_MASK_REVEAL,
                          .body = body,
                          .body_bytes = sizeof body};
    assert_int_equal(wire_encode(WIRE_MASK, &m, &a, &data, &n), ERR_OK);
    memcpy(bytes, data, n);
    change(bytes, &n);
    hand_open(&h, masked_port(), "a");
    struct link_call *c = hand_call(&h, link_paths[LINK_MASK], 5000);
    link_call_send(c, link_buffer(bytes, n));
    link_call_half_close(c);
    const char *text = scene_status(hand_end(c, NULL));
    hand_close(&h);
    arena_free(&a);
    return text;
}

static const uint8_t full_body[] = {0x80, 0xf0, 0x01}; /* its length, 30,720, in the message */

/* The body lies last. */
static void body_longer(uint8_t *data, size_t *n)
{
    uint8_t *at = data + *n - WIRE_MASK_REQUEST_MAX - sizeof full_body;
    assert_memory_equal(at, full_body, sizeof full_body);
    at[0]++;
    data[(*n)++] = 0;
}

const char *mask_body_oversize(void)
{
    return mask_bytes(body_longer);
}

static void message_longer(uint8_t *data, size_t *n)
{
    (void)data;
    *n = 2 * WIRE_MASK_REQUEST_MAX;
}

const char *mask_message_oversize(void)
{
    return mask_bytes(message_longer);
}

static void step_later(uint8_t *data, size_t *n)
{
    static const uint8_t reveal[] = {2 << 3, WIRE_MASK_REVEAL};
    uint8_t *at = memmem(data, *n, reveal, sizeof reveal);
    assert_non_null(at);
    at[1] = WIRE_MASK_LAST + 1;
}

const char *mask_step_unknown(void)
{
    return mask_bytes(step_later);
}

/* ---- contributions ---- */

static const char *offered(struct wire_contribution m)
{
    struct scene_stream s;
    scene_here();
    int own = scene.port;
    assert_int_equal(signed_header_sign(masked_signer('a'), &m), ERR_OK);
    scene.port = masked_port();
    scene.bare = true;
    const char *text = scene_begin(&s, "a", &m);
    if (strcmp(text, "answer resume") == 0)
        scene_end(&s, true);
    scene.port = own;
    scene.bare = false;
    return text;
}

/* The payload as it would be sent in the clear; one byte more than the masked one; and with a
 * weight, or a residual, of its own. */
const char *masked_header(void)
{
    masked_open(3, NULL);
    struct wire_contribution m = masked_offer(), wrong[4] = {m, m, m, m};
    const char *text = "";
    wrong[0].payload_bytes = masked_clear_bytes();
    wrong[1].payload_bytes++;
    wrong[2].weight = 2;
    wrong[3].residual_ratio = 3;
    for (unsigned i = 0; i < 4; i++) {
        text = offered(wrong[i]);
        if (strcmp(text, "answer invalid") != 0)
            return text;
    }
    masked_let();
    masked_well();
    return text;
}
