/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of calls: who may say what, about which run, term, process and round. */
#include "tests/outer/link/link_craft.h"
#include "tests/refusals/refusals.h"
#include "tests/refusals/scene.h"

/* ---- authorisation ---- */

/* A whole contribution of site a, with this certificate. */
static const char *contributes_as(const char *certificate)
{
    size_t n;
    struct scene_site *s = scene_fresh(0);
    uint8_t *payload = scene_payload(0, &n);
    struct wire_contribution m = scene_offer(s, payload, n);
    const char *text = scene_contribute(certificate, &m, payload, n);
    free(payload);
    return text;
}

const char *contribute_as_other(void)
{
    scene_here();
    return contributes_as("b");
}

const char *site_calls_operator_rpc(void)
{
    scene_here();
    struct wire_operate m = {.act = WIRE_QUARANTINE, .site = "b"};
    return scene_call("a", LINK_OPERATE, &m);
}

const char *metrics_of_other(void)
{
    scene_here();
    struct wire_operate m = {.act = WIRE_METRICS, .site = "a"};
    assert_string_equal(scene_call("a", LINK_OPERATE, &m), "answer current"); /* its own */
    strcpy(m.site, "b");
    return scene_call("a", LINK_OPERATE, &m);
}

const char *observer_contributes(void)
{
    scene_here();
    craft(&(struct craft){"x", "ca", "URI:atoll://test/observer/a", "clientAuth", -60, 3600});
    return contributes_as("x");
}

const char *operator_contributes(void)
{
    scene_here();
    return contributes_as("operator");
}

const char *aggregator_cert_as_site(void)
{
    scene_here();
    return contributes_as("aggregator");
}

const char *delisted_between_rpcs(void)
{
    scene_here();
    struct scene_site *s = scene_fresh(0);
    struct wire_hello m = scene_hello(s);
    struct hand h;
    hand_open(&h, scene.port, "a");
    assert_string_equal(scene_call_on(&h, LINK_HELLO, &m), "answer current");
    scene_revoke("atoll://test/site/a\n");
    const char *text = scene_call_on(&h, LINK_HELLO, &m);
    hand_close(&h);
    return text;
}

/* FetchRequest.what with a number that is nothing; the encoder would not write it. */
const char *fetch_of_spool(void)
{
    scene_here();
    struct wire_fetch m = {.head = scene_head(scene_fresh(0)), .what = WIRE_SNAPSHOT, .round = 1};
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
    grpc_byte_buffer *bb;
    struct hand h;
    uint8_t *data, *at;
    size_t n;
    assert_int_equal(wire_encode(WIRE_FETCH, &m, &a, &data, &n), ERR_OK);
    static const uint8_t snapshot[] = {2 << 3, WIRE_SNAPSHOT};
    assert_non_null(at = memmem(data, n, snapshot, sizeof snapshot));
    at[1] = 2;
    hand_open(&h, scene.port, "a");
    struct link_call *c = hand_call(&h, link_paths[LINK_FETCH], 5000);
    link_call_send(c, link_buffer(data, n));
    link_call_half_close(c);
    const char *text = scene_status(hand_end(c, &bb));
    assert_null(bb);
    hand_close(&h);
    arena_free(&a);
    return text;
}

const char *unknown_rpc(void)
{
    struct hand h;
    scene_here();
    hand_open(&h, scene.port, "a");
    struct link_call *c = hand_call(&h, "/atoll.Control/Nothing", 5000);
    const char *text = scene_status(hand_end(c, NULL));
    hand_close(&h);
    return text;
}

/* ---- lineage ---- */

/* An offer of site a that is right but for one thing. */
static const char *offer_but(void (*change)(struct wire_contribution *))
{
    struct scene_stream s;
    size_t n;
    scene_here();
    struct scene_site *a = scene_fresh(0);
    uint8_t *payload = scene_payload(0, &n);
    struct wire_contribution m = scene_offer(a, payload, n);
    assert_string_equal(scene_begin(&s, "a", &m), "answer resume"); /* the good one is taken */
    scene_end(&s, true);
    change(&m);
    const char *text = scene_begin(&s, "a", &m);
    if (strcmp(text, "answer resume") == 0)
        scene_end(&s, true);
    free(payload);
    return text;
}

#define OFFER_BUT(name, change)                                                                    \
    const char *name(void);                                                                        \
    static void name##_change(struct wire_contribution *m)                                         \
    {                                                                                              \
        change;                                                                                    \
    }                                                                                              \
    const char *name(void)                                                                         \
    {                                                                                              \
        return offer_but(name##_change);                                                           \
    }

OFFER_BUT(wrong_run, m->head.run[0] = 'x')
OFFER_BUT(wrong_config, m->head.config.bytes[7] ^= 1)
OFFER_BUT(wrong_roster, m->head.roster_version++)
OFFER_BUT(term_lower, m->head.term--)
OFFER_BUT(other_instance, m->head.instance++)
OFFER_BUT(old_incarnation, m->head.incarnation--)
OFFER_BUT(offered_ahead, m->round++)
OFFER_BUT(offered_term_higher, m->head.term++)
OFFER_BUT(wrong_parent, m->parent.bytes[31] ^= 1)
OFFER_BUT(other_fragment, m->fragment = 1)
OFFER_BUT(length_2_64, m->payload_bytes = UINT64_MAX)

const char *wrong_major(void)
{
    scene_here();
    struct wire_hello m = scene_hello(&scene.site[0]);
    m.major++;
    return scene_call("a", LINK_HELLO, &m);
}

/* What was committed as round 0, byte for byte as it may have been recorded. */
const char *round_replayed(void)
{
    size_t n;
    scene_here();
    struct scene_site *s = scene_fresh(0);
    uint8_t *payload = scene_payload(0, &n);
    struct wire_contribution m = scene_offer(s, payload, n);
    m.round = 0;
    m.codec = CODEC_BF16;
    m.parent = (struct digest){{0}};
    const char *text = scene_contribute("a", &m, payload, n);
    free(payload);
    return text;
}

/* Site c's contribution is accepted; then the same process, and a later one, bring other bytes. */
const char *round_other_digest(void)
{
    size_t n;
    scene_here();
    struct scene_site *s = scene_fresh(2);
    uint8_t *payload = scene_payload(2, &n);
    struct wire_contribution m = scene_offer(s, payload, n);
    assert_string_equal(scene_contribute("c", &m, payload, n), "answer receipt");
    free(payload);
    payload = scene_payload(1, &n);
    m = scene_offer(s, payload, n);
    const char *text = scene_contribute("c", &m, payload, n);
    m = scene_offer(scene_fresh(2), payload, n);
    if (strcmp(text, "answer conflict") == 0)
        text = scene_contribute("c", &m, payload, n);
    free(payload);
    return text;
}
