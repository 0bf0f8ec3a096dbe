/* SPDX-License-Identifier: Apache-2.0 */
/* What the aggregator signs (its term, its manifests) and what it checks: the identity of each
 * site, the headers of their contributions, and proofs that its own files are old
 * (docs/protocol.md 3.4, 6.1).
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_identity.h"
#include "outer/identity/signed.h"

struct pin { /* the key that the site of this name signs with */
    char name[WIRE_NAME_MAX];
    struct signer_identity identity; /* the certificate that was seen last */
};
struct aggregator_identity { /* a->part.signs */
    struct wire_announcement announcement;
    uint32_t count;
    struct pin pins[ROUND_SITES_MAX]; /* in the order in which they were seen */
};

static struct aggregator_identity *identity_of(const struct aggregator *a)
{
    return a->part.signs;
}

static enum err identity_open(void **kept, struct arena *perm)
{
    TRY_ALLOC(*kept = arena_alloc(perm, sizeof(struct aggregator_identity)));
    return ERR_OK;
}

/* ---- pinned keys ---- */

static struct pin *pin_of(const struct aggregator *a, unsigned site)
{
    struct aggregator_identity *identity = identity_of(a);
    for (uint32_t i = 0; i < identity->count; i++)
        if (strcmp(identity->pins[i].name, a->members.names[site]) == 0)
            return &identity->pins[i];
    return NULL;
}

static bool identity_key(const struct aggregator *a, unsigned site, struct signer_key *out)
{
    const struct pin *p = pin_of(a, site);
    *out = p ? p->identity.key : (struct signer_key){0};
    return p != NULL;
}

static void pins_fields(struct record_cursor *c, void *self)
{
    struct aggregator_identity *identity = self;
    record_u32(c, &identity->count);
    if (identity->count > ROUND_SITES_MAX)
        identity->count = 0; /* what follows is then more than the record has fields */
    for (uint32_t i = 0; i < identity->count; i++) {
        struct pin *p = &identity->pins[i];
        const char *name = p->name;
        struct digest key;
        memcpy(key.bytes, p->identity.key.bytes, sizeof key.bytes);
        record_text(c, &name, WIRE_NAME_MAX - 1);
        record_digest(c, &key);
        record_digest(c, &p->identity.certificate);
        if (!record_reading(c))
            continue;
        snprintf(p->name, sizeof p->name, "%s", name ? name : "");
        memcpy(p->identity.key.bytes, key.bytes, sizeof key.bytes);
    }
}

static enum err pins_write(struct aggregator *a)
{
    struct record_form form = {"pins", pins_fields, identity_of(a)};
    return store_write(a->env, AGGREGATOR_IDENTITIES, &form, NULL, 0);
}

/* Without the file, keys are pinned as they are seen: certificates still say whose they are. */
static enum err pins_read(struct aggregator *a)
{
    struct arena scratch = arena_make(0);
    struct record_form form = {"pins", pins_fields, identity_of(a)};
    struct record r;
    char quoted[512];
    enum err e = store_read(a->env, AGGREGATOR_IDENTITIES, &form, 0, &r, &scratch);
    arena_free(&scratch);
    if (e == ERR_CORRUPT || (e == ERR_INPUT && a->start.begun))
        log_event(LOG_WARN, "identities_lost", "action=\"keys are pinned as seen first\" why=%s",
                  log_quote(quoted, sizeof quoted, err_message()));
    if (e == ERR_CORRUPT)
        identity_of(a)->count = 0;
    return e == ERR_CORRUPT || e == ERR_INPUT ? ERR_OK : e;
}

/* ---- a site's identity, at hello ---- */

static bool hello_refuse(struct wire_hello_answer *answer, const char *why)
{
    answer->outcome = ROUND_DENIED;
    snprintf(answer->text, sizeof answer->text, "%s", why);
    return false;
}

static bool certificate_revoked(struct aggregator *a, const struct digest *sha256)
{
    const struct wire_certificate c = {.sha256 = *sha256};
    return aggregator_revoked(a, "", &c) != NULL;
}

/* Durable before it counts. A full disk: the site says hello again. */
static bool pin_put(struct aggregator *a, unsigned site, const struct signer_identity *seen,
                    struct wire_hello_answer *answer)
{
    struct aggregator_identity *identity = identity_of(a);
    struct wire_answer failed = {.outcome = ROUND_NONE};
    struct pin *p = pin_of(a, site), before;
    uint32_t count = identity->count;
    if (!p && count == ROUND_SITES_MAX)
        return hello_refuse(answer, "as many identity keys are pinned as there may be");
    if (!p)
        p = &identity->pins[identity->count++];
    before = *p;
    snprintf(p->name, sizeof p->name, "%s", a->members.names[site]);
    p->identity = *seen;
    enum err e = pins_write(a);
    if (e == ERR_OK) {
        log_event(LOG_INFO, "identity_pinned", "site=%s", a->members.names[site]);
        return true;
    }
    *p = before;
    identity->count = count;
    aggregator_say_failed(a, e, &failed);
    answer->outcome = failed.outcome;
    snprintf(answer->text, sizeof answer->text, "%s", failed.text);
    return false;
}

static bool hello_identify(struct aggregator *a, unsigned site, const struct wire_hello *m,
                           struct wire_hello_answer *answer)
{
    struct signer *s = a->o->signer;
    struct signer_identity seen;
    char uri[3 * WIRE_NAME_MAX];
    snprintf(uri, sizeof uri, "atoll://%s/site/%s", a->o->run, a->members.names[site]);
    if (!m->identity_bytes)
        return hello_refuse(answer,
                            "the site shows no identity certificate, and headers are signed: "
                            "atoll cert renew makes one");
    if (s->ops->certified(s, m->identity, m->identity_bytes, uri, &seen) != ERR_OK)
        return hello_refuse(answer, err_message());
    if (certificate_revoked(a, &seen.certificate))
        return hello_refuse(answer, "the site's identity certificate is revoked: atoll cert renew "
                                    "--revoke makes another key");
    const struct pin *p = pin_of(a, site);
    bool same = p && memcmp(&p->identity.key, &seen.key, sizeof seen.key) == 0;
    if (p && !same && !certificate_revoked(a, &p->identity.certificate))
        return hello_refuse(answer,
                            "another identity key than this site's first one: use that one, or "
                            "revoke its certificate (atoll cert revoke NAME.identity.pem)");
    if (same && digest_equal(&p->identity.certificate, &seen.certificate))
        return true;
    return pin_put(a, site, &seen, answer);
}

/* ---- headers ---- */

static bool header_signed(const struct aggregator *a, unsigned site,
                          const struct wire_contribution *m)
{
    const struct pin *p = pin_of(a, site);
    if (!p) /* it has not said hello: so it is told */
        return !a->core.s[site].bound;
    return signed_header_holds(a->o->signer, &p->identity.key, m);
}

static void header_path(char out[2 * AGGREGATOR_PATH_MAX], const char *payload_path)
{
    snprintf(out, 2 * AGGREGATOR_PATH_MAX, "%.250s.header", payload_path);
}

static enum err header_keep(struct aggregator *a, const struct wire_contribution *m,
                            const char *payload_path)
{
    uint8_t bytes[SIGNED_HEADER_MAX];
    char path[2 * AGGREGATOR_PATH_MAX];
    struct file_part part = {bytes, signed_header_write(m, bytes)};
    header_path(path, payload_path);
    return a->env->ops->write(a->env, path, &part, 1);
}

/* Is it the header of this record? */
static bool header_fits(const struct wire_contribution *m, const struct journal_record *r,
                        const char *site)
{
    return strcmp(m->head.site, site) == 0 && m->fragment == r->fragment && m->round == r->round &&
           digest_equal(&m->payload, &r->digest) && m->payload_bytes == r->payload_bytes &&
           m->head.incarnation == r->incarnation && m->data_cursor == r->data_cursor &&
           m->charged == r->charged && m->residual_ratio == r->residual_ratio &&
           memcmp(&m->weight, &r->weight, sizeof m->weight) == 0;
}

static enum err header_kept(struct aggregator *a, const struct journal_record *r,
                            const char *payload_path)
{
    struct arena scratch = arena_make(0);
    struct wire_contribution m;
    char path[2 * AGGREGATOR_PATH_MAX];
    uint8_t *data;
    size_t n;
    const struct pin *p = pin_of(a, r->site);
    header_path(path, payload_path);
    enum err e = a->env->ops->exists(a->env, path) ? ERR_OK : ERR_INPUT;
    if (e == ERR_OK)
        e = a->env->ops->read(a->env, path, SIGNED_HEADER_MAX, &scratch, &data, &n);
    if (e == ERR_OK)
        e = signed_header_read(&m, data, n);
    bool holds = e == ERR_OK && header_fits(&m, r, a->members.names[r->site]) &&
                 (!p || signed_header_holds(a->o->signer, &p->identity.key, &m));
    arena_free(&scratch);
    return holds ? ERR_OK : err_set(ERR_CORRUPT, "%s: no header that its site has signed", path);
}

/* ---- manifests and the term ---- */

static enum err manifest_sign(struct aggregator *a, struct manifest *m)
{
    struct signer_key own;
    a->o->signer->ops->key(a->o->signer, &own);
    return signed_manifest_holds(a->o->signer, &own, m) ? ERR_OK
                                                        : signed_manifest_sign(a->o->signer, m);
}

static enum err announcement_make(struct aggregator *a)
{
    struct signed_announcement s = {
        .aggregator = a->o->place.index, .term = a->start.term, .instance = a->start.instance};
    snprintf(s.run, sizeof s.run, "%s", a->o->run);
    return signed_announcement_make(a->o->signer, &s, &identity_of(a)->announcement);
}

/* Made at the first hello, and again when the certificate was renewed: after a change of the
 * authority, sites that start would not accept the former announcement. */
static void announcement_get(struct aggregator *a, struct wire_announcement *out)
{
    struct signed_announcement s;
    uint8_t certificate[SIGNER_CERTIFICATE_MAX];
    size_t n;
    bool same = signed_announcement_read(&s, &identity_of(a)->announcement) == ERR_OK &&
                a->o->signer->ops->certificate(a->o->signer, certificate, &n) == ERR_OK &&
                n == s.certificate_bytes && memcmp(certificate, s.certificate, n) == 0;
    if (!same && announcement_make(a) != ERR_OK)
        aggregator_halt(a, ERR_INTERNAL);
    *out = identity_of(a)->announcement;
}

/* ---- proofs ---- */

/* With our own key, or with that of the announcement that the site shows: the aggregator may have
 * got another one since. */
static bool round_proved(struct aggregator *a, const struct wire_hello *m, unsigned fragment,
                         const struct signer_identity *shown)
{
    struct signer *s = a->o->signer;
    const struct wire_fragment_state *state = &m->fragments[fragment];
    struct signer_key own;
    s->ops->key(s, &own);
    return signed_proof_holds(s, &own, a->o->run, fragment, state) ||
           (shown && signed_proof_holds(s, &shown->key, a->o->run, fragment, state));
}

/* The term of our own manifest of this round. False: it is not here. */
static bool manifest_term(struct aggregator *a, unsigned fragment,
                          const struct wire_fragment_state *state, uint64_t *term)
{
    struct manifest ours;
    bool there = state->round > 0 &&
                 outer_state_manifest(a->replica, fragment, state->round - 1, &ours) == ERR_OK;
    *term = there ? ours.term : 0;
    return there;
}

static void hello_proofs(struct aggregator *a, const struct wire_hello *m, struct round_event *e)
{
    struct signed_announcement shown;
    struct signer_identity by;
    const struct round_fragment *f = &a->core.f[e->fragment];
    const struct wire_fragment_state *state = &m->fragments[e->fragment];
    bool read = m->announcement.size_bytes &&
                signed_announcement_read(&shown, &m->announcement) == ERR_OK &&
                shown.aggregator == a->o->place.index;
    bool later = read && (shown.term > a->start.term ||
                          (shown.term == a->start.term && shown.instance != a->start.instance));
    const struct digest ours = state->round < f->round && e->past.kept ? e->past.parent : f->parent;
    bool claims = m->has_state && (state->round >= f->round || e->past.kept) &&
                  !digest_equal(&state->manifest, &ours);
    uint64_t term;
    if (!later && !claims) /* nearly always: no certificate is verified */
        return;
    bool holds = read && signed_announcement_check(a->o->signer, &shown, a->o->run, &by) == ERR_OK;
    e->proves.term = later && holds;
    e->proves.round = claims && round_proved(a, m, e->fragment, holds ? &by : NULL);
    bool both = e->proves.round && manifest_term(a, e->fragment, state, &term);
    e->proves.later = both && state->proof.term >= term;
    e->proves.older = both && state->proof.term < term;
    err_clear();
}

const struct aggregator_signs aggregator_signs_identity = {.open = identity_open,
                                                           .read = pins_read,
                                                           .again = pins_write,
                                                           .sign = manifest_sign,
                                                           .identify = hello_identify,
                                                           .proofs = hello_proofs,
                                                           .announcement = announcement_get,
                                                           .header_signed = header_signed,
                                                           .header_keep = header_keep,
                                                           .header_kept = header_kept,
                                                           .key = identity_key};
