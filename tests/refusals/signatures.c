/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of identities: who signed a header, a term, a manifest; and what an aggregator does that
 * is shown a signature of its own identity about what it does not have. */
#include "tests/outer/link/link_craft.h"
#include "tests/refusals/refusals.h"
#include "tests/refusals/scene.h"

const char *offered_ahead(void); /* calls.c */
const char *offered_term_higher(void);

/* ---- headers ---- */

/* Each place in turn must be refused; the last answer. */
const char *header_signature_bad(void)
{
    size_t n;
    const char *text = NULL;
    scene_here();
    struct scene_site *s = scene_fresh(0);
    uint8_t *payload = scene_payload(0, &n);
    scene.bare = true;
    for (int i = -1; i < SIGNER_BYTES + 13; i += i < 0 ? 1 : 13) { /* each is a connection */
        struct scene_stream stream;
        struct wire_contribution m = scene_offer(s, payload, n);
        assert_int_equal(signed_header_sign(s->signer, &m), ERR_OK);
        if (i < 0)
            m.weight = 0.5f; /* the signature is of another header */
        else if (i < SIGNER_BYTES)
            m.signature[i] ^= 1;
        else
            memset(m.signature, 0, sizeof m.signature);
        text = scene_begin(&stream, "a", &m);
        if (strcmp(text, "answer resume") == 0)
            scene_end(&stream, false);
        if (strcmp(text, "answer invalid") != 0)
            break;
    }
    scene.bare = false;
    free(payload);
    return text;
}

const char *header_signed_by_other(void)
{
    size_t n;
    struct scene_stream stream;
    scene_here();
    struct scene_site *s = scene_fresh(0);
    uint8_t *payload = scene_payload(0, &n);
    struct wire_contribution m = scene_offer(s, payload, n);
    assert_int_equal(signed_header_sign(scene.site[1].signer, &m), ERR_OK);
    scene.bare = true;
    const char *text = scene_begin(&stream, "a", &m);
    scene.bare = false;
    if (strcmp(text, "answer resume") == 0)
        scene_end(&stream, false);
    free(payload);
    return text;
}

/* ---- identities ---- */

static const char *hello_with(const uint8_t *identity, size_t n)
{
    struct wire_hello m = scene_hello(&scene.site[0]);
    assert_in_range(n, 0, sizeof m.identity);
    if (n)
        memcpy(m.identity, identity, n);
    m.identity_bytes = n;
    return scene_call("a", LINK_HELLO, &m);
}

const char *identity_missing(void)
{
    scene_here();
    return hello_with(NULL, 0);
}

const char *identity_of_other(void)
{
    uint8_t other[SIGNER_CERTIFICATE_MAX];
    size_t n;
    struct signer *b = scene.site[1].signer;
    scene_here();
    assert_int_equal(b->ops->certificate(b, other, &n), ERR_OK);
    return hello_with(other, n);
}

/* NAME.pem of the scratch directory, as DER. */
static const char *hello_with_file(const char *name)
{
    unsigned char der[SIGNER_CERTIFICATE_MAX], *at = der;
    FILE *f = fopen(scratch(name), "r");
    assert_non_null(f);
    X509 *x = PEM_read_X509(f, NULL, NULL, NULL);
    fclose(f);
    assert_non_null(x);
    int n = i2d_X509(x, &at);
    X509_free(x);
    assert_in_range(n, 1, sizeof der);
    return hello_with(der, (size_t)n);
}

/* Site a's identity of a directory of its own. */
static void issue_in(const char *directory, const char *authority, bool ed25519)
{
    int64_t now = clock_wall_s();
    char from[128], to[128];
    snprintf(from, sizeof from, "%s", scratch(authority));
    snprintf(to, sizeof to, "%s", scratch(directory));
    struct tls_request r = {.directory = from,
                            .out = to,
                            .role = TLS_SITE,
                            .name = "a",
                            .ed25519 = ed25519,
                            .validity = {now - 60, now + 86400}};
    assert_int_equal(tls_issue(&r), ERR_OK);
}

const char *identity_other_authority(void)
{
    char directory[128];
    int64_t now = clock_wall_s();
    scene_here();
    snprintf(directory, sizeof directory, "%s", scratch("foreign.dir"));
    assert_int_equal(
        tls_authority(directory, "test", false, (struct tls_validity){now - 60, now + 90 * 86400}),
        ERR_OK);
    issue_in("foreign.dir", "foreign.dir", false);
    return hello_with_file("foreign.dir/a.identity.pem");
}

const char *identity_is_tls(void)
{
    scene_here();
    issue_in("tls.dir", "", true); /* a key of the same kind */
    return hello_with_file("tls.dir/a.pem");
}

/* By the same authority; once the first one's certificate is revoked, it is taken, and then it is
 * the first one that is refused. */
const char *identity_second(void)
{
    char line[128], hex[65];
    struct tls_facts first;
    scene_here();
    issue_in("second.dir", "", false);
    const char *text = hello_with_file("second.dir/a.identity.pem");
    if (strcmp(text, "answer denied") != 0)
        return text;
    assert_int_equal(tls_facts(&first, scratch("a.identity.pem")), ERR_OK);
    digest_hex(&first.sha256, hex);
    snprintf(line, sizeof line, "sha256:%s\n", hex);
    scene_revoke(line);
    assert_string_equal(hello_with_file("second.dir/a.identity.pem"), "answer current");
    scene_revoke("");
    text = hello_with_file("a.identity.pem");
    assert_string_equal(text, "answer denied");
    assert_int_equal(tls_facts(&first, scratch("second.dir/a.identity.pem")), ERR_OK);
    digest_hex(&first.sha256, hex);
    snprintf(line, sizeof line, "sha256:%s\n", hex);
    scene_revoke(line); /* for the rows after this one */
    assert_string_equal(hello_with_file("a.identity.pem"), "answer current");
    return "answer denied";
}

/* ---- proofs ---- */

static void announce(struct wire_hello *m, struct signer *by, uint64_t term, uint64_t instance)
{
    struct signed_announcement a = {.run = "test", .term = term, .instance = instance};
    assert_int_equal(signed_announcement_make(by, &a, &m->announcement), ERR_OK);
    m->head.term = term;
}

/* A state after a manifest that `by` has signed. */
static void stand_on(struct wire_hello *m, struct signer *by, uint64_t round, uint64_t term)
{
    static struct manifest made;
    struct wire_fragment_state *f = &m->fragments[0];
    assert_int_equal(outer_state_manifest(&scene.replica, 0, 0, &made), ERR_OK);
    made.round = round - 1;
    made.term = term;
    made.state_after.bytes[0] ^= 1;
    assert_int_equal(signed_manifest_sign(by, &made), ERR_OK);
    f->round = round;
    f->manifest = manifest_digest(&made);
    f->proof = signed_manifest_proof(&made);
}

static const char *halts(const struct wire_hello *m)
{
    const char *text = scene_call("a", LINK_HELLO, m);
    if (strcmp(text, "answer lost_state") == 0)
        scene_halted();
    return text;
}

const char *term_higher_no_proof(void)
{
    scene_here();
    struct scene_site *s = scene_fresh(0);
    struct wire_hello m = scene_hello(s);
    m.head.term++;
    assert_string_equal(scene_call("a", LINK_HELLO, &m), "answer conflict");
    assert_string_equal(offered_term_higher(), "answer rebind"); /* to show it at hello */
    m = scene_hello(s);
    announce(&m, scene.site[1].signer, scene.term + 1, 7);
    assert_string_equal(scene_call("a", LINK_HELLO, &m), "answer conflict");
    announce(&m, scene.signer, scene.term + 1, 7);
    m.announcement.bytes[m.announcement.size_bytes - 1] ^= 1;
    return scene_call("a", LINK_HELLO, &m);
}

const char *term_higher_proof(void)
{
    scene_here();
    struct wire_hello m = scene_hello(scene_fresh(0));
    announce(&m, scene.signer, scene.term, scene.instance); /* its own proves nothing */
    assert_string_equal(scene_call("a", LINK_HELLO, &m), "answer current");
    announce(&m, scene.signer, scene.term + 1, 7);
    return halts(&m);
}

const char *term_instance_proof(void)
{
    scene_here();
    struct wire_hello m = scene_hello(scene_fresh(0));
    announce(&m, scene.signer, scene.term, scene.instance + 1);
    return halts(&m);
}

const char *ahead_no_proof(void)
{
    scene_here();
    struct scene_site *s = scene_fresh(0);
    struct wire_hello m = scene_hello(s);
    m.fragments[0].round++;
    assert_string_equal(scene_call("a", LINK_HELLO, &m), "answer conflict");
    stand_on(&m, s->signer, 2, scene.term);
    assert_string_equal(scene_call("a", LINK_HELLO, &m), "answer conflict");
    return offered_ahead();
}

const char *ahead_proof(void)
{
    scene_here();
    struct wire_hello m = scene_hello(scene_fresh(0));
    stand_on(&m, scene.signer, 2, scene.term);
    return halts(&m);
}

const char *history_proof(void)
{
    scene_here();
    struct wire_hello m = scene_hello(scene_fresh(0));
    stand_on(&m, scene.signer, 1, 0); /* of a term before ours: that site has to step back */
    assert_string_equal(scene_call("a", LINK_HELLO, &m), "answer conflict");
    stand_on(&m, scene.signer, 1, scene.term);
    return halts(&m);
}
