/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures at a site: its own under the headers of its contributions, and the aggregator's under
 * terms and manifests, which it checks before it binds or adopts (docs/protocol.md 3.4, 6.1).
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/bytes.h"
#include "kernels/base/log.h"
#include "outer/identity/signed.h"
#include "outer/protocol/mutant.h"
#include "outer/site/site_identity.h"
#include "outer/site/site_own.h"

enum { PATH_BYTES = 32, SECTIONS = SITE_KEYS_MAX + 1, SINCE_BYTES = 8 * SITE_KEYS_MAX };

/* Of one aggregator: for each key that it has had, the last announcement with it, newest first; an
 * empty one ends the list. Manifests of before a change of its key were signed with a former one,
 * and atoll replay checks them long afterwards. Of more than SITE_KEYS_MAX keys the oldest one is
 * dropped. */
struct site_announced {
    struct wire_announcement last[SITE_KEYS_MAX];
    uint64_t since[SITE_KEYS_MAX]; /* the first of the terms up to that of last[i], without a gap,
                                      that were announced with this key; 0: not on record */
};

/* ---- id/announced.N ---- */

struct announced_place { /* of the lead, or of another rank that holds fragments */
    unsigned peer, rank; /* rank 0: the lead */
};

static void announced_path(char out[PATH_BYTES], const struct announced_place *at)
{
    if (at->rank)
        snprintf(out, PATH_BYTES, "id/rank.%u.announced.%u", at->rank, at->peer);
    else
        snprintf(out, PATH_BYTES, "id/announced.%u", at->peer);
}

static struct announced_place announced_place(const struct site *s, unsigned peer)
{
    return (struct announced_place){peer, site_joint(s) ? s->replica->o.shards.rank : 0};
}

static const struct record_form announced_form = {.kind = "announce"};

static enum err announced_write(struct env *w, const struct announced_place *at,
                                const struct site_announced *a)
{
    char path[PATH_BYTES];
    uint8_t since[SINCE_BYTES];
    struct bytes_writer out = bytes_writer(since, sizeof since);
    struct file_part parts[SECTIONS];
    struct record_section sections[SECTIONS] = {0};
    for (unsigned i = 0; i < SITE_KEYS_MAX; i++) {
        parts[i] = (struct file_part){a->last[i].bytes, a->last[i].size_bytes};
        bytes_put_u64(&out, a->since[i]);
    }
    parts[SITE_KEYS_MAX] = (struct file_part){since, sizeof since};
    for (unsigned i = 0; i < SECTIONS; i++)
        sections[i] = (struct record_section){.parts = &parts[i], .part_count = 1};
    announced_path(path, at);
    return store_write(w, path, &announced_form, sections, SECTIONS);
}

enum err site_identity_again(struct site *s, unsigned peer)
{
    const struct announced_place at = announced_place(s, peer);
    return peer < site_peers(s) && s->peer[peer].signs
               ? announced_write(s->env, &at, &s->announced[peer])
               : err_set(ERR_CORRUPT, "the next hello brings another");
}

static bool announcement_take(const struct record *r, size_t section, struct wire_announcement *to)
{
    size_t n = r->section_count > section ? r->sections[section].size_bytes : 0;
    if (n > sizeof to->bytes || !record_intact(r, section))
        return false;
    memcpy(to->bytes, r->sections[section].data, n);
    to->size_bytes = n;
    return true;
}

/* Of a file of two announcements, as former versions wrote it, no first term is known. */
static bool announcements_take(const struct record *r, struct site_announced *a)
{
    bool spans = r->section_count == SECTIONS;
    size_t count = spans ? SITE_KEYS_MAX : r->section_count;
    if (count < 1 || count > SITE_KEYS_MAX ||
        (spans && (r->sections[SITE_KEYS_MAX].size_bytes != SINCE_BYTES ||
                   !record_intact(r, SITE_KEYS_MAX))))
        return false;
    for (size_t i = 0; i < count; i++)
        if (!announcement_take(r, i, &a->last[i]))
            return false;
    if (spans) {
        struct bytes_reader in = bytes_reader(r->sections[SITE_KEYS_MAX].data, SINCE_BYTES);
        for (unsigned i = 0; i < SITE_KEYS_MAX; i++)
            a->since[i] = bytes_get_u64(&in);
    }
    return true;
}

/* A damaged one proves nothing; the next hello brings another. */
static enum err announced_file_read(struct env *w, const struct announced_place *at,
                                    struct site_announced *a)
{
    char path[PATH_BYTES], quoted[512];
    struct arena scratch = arena_make(0);
    struct record r;
    announced_path(path, at);
    *a = (struct site_announced){.since = {0}};
    enum err e = store_read(w, path, &announced_form,
                            SITE_KEYS_MAX * SIGNER_ANNOUNCEMENT_MAX + SINCE_BYTES, &r, &scratch);
    bool whole = e == ERR_OK && announcements_take(&r, a);
    if (!whole)
        *a = (struct site_announced){.since = {0}};
    if (!whole && (e == ERR_OK || e == ERR_CORRUPT))
        log_event(LOG_WARN, "announcement_lost", "aggregator=%u why=%s", at->peer,
                  log_quote(quoted, sizeof quoted, err_message()));
    arena_free(&scratch);
    return e == ERR_CORRUPT || e == ERR_INPUT ? ERR_OK : e;
}

/* The key of an announcement whose certificate and signature hold. */
static enum err announcement_key(struct signer *s, const char *run,
                                 const struct wire_announcement *from,
                                 struct signed_announcement *a, struct signer_key *key)
{
    struct signer_identity by;
    TRY(signed_announcement_read(a, from));
    TRY(signed_announcement_check(s, a, run, &by));
    *key = by.key;
    return ERR_OK;
}

unsigned site_seen_keys(struct env *w, unsigned aggregator, const char *run, struct signer *signer,
                        struct site_seen_key keys[SITE_KEYS_MAX])
{
    struct site_announced a;
    struct signed_announcement read;
    unsigned count = 0;
    enum err e = announced_file_read(w, &(struct announced_place){aggregator, 0}, &a);
    for (unsigned i = 0; e == ERR_OK && i < SITE_KEYS_MAX && a.last[i].size_bytes; i++) {
        struct site_seen_key *k = &keys[count];
        if (announcement_key(signer, run, &a.last[i], &read, &k->key) != ERR_OK)
            continue;
        k->last = read.term;
        k->first = a.since[i] && a.since[i] < read.term ? a.since[i] : read.term;
        count++;
    }
    err_clear();
    return count;
}

uint64_t site_announced_term(struct env *w, unsigned aggregator)
{
    struct site_announced a;
    struct signed_announcement read = {.term = 0};
    if (announced_file_read(w, &(struct announced_place){aggregator, 0}, &a) != ERR_OK ||
        signed_announcement_read(&read, &a.last[0]) != ERR_OK)
        read.term = 0;
    err_clear();
    return read.term;
}

enum err site_identity_open(struct site *s, struct arena *perm)
{
    struct signed_announcement read;
    if (!s->o->signer)
        return ERR_OK;
    TRY_ALLOC(s->announced = arena_array(perm, site_peers(s), sizeof *s->announced));
    for (unsigned p = 0; p < site_peers(s); p++) {
        struct site_announced *a = &s->announced[p];
        const struct announced_place at = announced_place(s, p);
        TRY(announced_file_read(s->env, &at, a));
        s->peer[p].signs = announcement_key(s->o->signer, s->o->run, &a->last[0], &read,
                                            &s->peer[p].key) == ERR_OK;
    }
    err_clear();
    return ERR_OK;
}

/* ---- hello ---- */

enum err site_identity_show(struct site *s, unsigned peer, struct wire_hello *m)
{
    if (!s->o->signer)
        return ERR_OK;
    TRY(s->o->signer->ops->certificate(s->o->signer, m->identity, &m->identity_bytes));
    m->announcement = s->announced[peer].last[0];
    for (unsigned f = peer; m->has_state && f < m->fragment_count; f += site_peers(s)) {
        struct manifest made;
        uint64_t round = m->fragments[f].round;
        if (round == 0 || m->fragments[f].elsewhere ||
            outer_state_manifest(s->replica, f, round - 1, &made) != ERR_OK)
            continue; /* without it there is no proof, and nothing else is missing */
        m->fragments[f].proof = signed_manifest_proof(&made);
    }
    err_clear();
    return ERR_OK;
}

/* One more announcement: the last one of its key, or the first one of another key. */
static void announced_add(struct site_announced *a, const struct site_peer *before,
                          const struct wire_announcement *newest, const struct signer_key *key,
                          uint64_t term)
{
    struct signed_announcement last;
    bool held = before->signs && memcmp(&before->key, key, sizeof *key) == 0;
    bool spans =
        held && signed_announcement_read(&last, &a->last[0]) == ERR_OK && term - last.term <= 1;
    if (!held && a->last[0].size_bytes) {
        memmove(&a->last[1], &a->last[0], sizeof a->last - sizeof a->last[0]);
        memmove(&a->since[1], &a->since[0], sizeof a->since - sizeof a->since[0]);
    }
    if (!spans || !a->since[0])
        a->since[0] = term;
    a->last[0] = *newest;
}

enum err site_identity_heard(struct site *s, unsigned peer, const struct wire_hello_answer *a)
{
    struct signed_announcement said;
    struct signer_key key;
    if (!s->o->signer)
        return ERR_OK;
    if (!a->announcement.size_bytes)
        return err_set(ERR_DENIED, "the aggregator does not sign its term: it runs an older "
                                   "version of the program");
    enum err e = announcement_key(s->o->signer, s->o->run, &a->announcement, &said, &key);
    if (e != ERR_OK)
        return err_add(ERR_DENIED, "the aggregator's announcement of its term: ");
    if (said.aggregator != peer || said.term != a->term || said.instance != a->instance)
        return err_set(ERR_DENIED, "the aggregator has signed another term than it says");
    struct site_announced *known = &s->announced[peer], next = *known;
    const struct wire_announcement *last = &known->last[0];
    bool same = a->announcement.size_bytes == last->size_bytes &&
                memcmp(a->announcement.bytes, last->bytes, last->size_bytes) == 0;
    if (same || a->term < s->peer[peer].term) /* bind refuses a lower one */
        return ERR_OK;
    announced_add(&next, &s->peer[peer], &a->announcement, &key, a->term);
    const struct announced_place at = announced_place(s, peer);
    TRY(announced_write(s->env, &at, &next));
    *known = next;
    s->peer[peer].signs = true;
    s->peer[peer].key = key;
    return ERR_OK;
}

/* ---- contributions and manifests ---- */

enum err site_identity_sign(struct site *s, struct wire_contribution *m)
{
    return s->o->signer ? signed_header_sign(s->o->signer, m) : ERR_OK;
}

bool site_identity_signed(const struct site *s, const struct manifest *m)
{
    if (!s->o->signer)
        return true;
    const struct site_peer *p = &s->peer[m->fragment % site_peers(s)];
    return p->signs && signed_manifest_holds(s->o->signer, &p->key, m);
}

enum err site_identity_check(struct site *s, const struct manifest *m)
{
    unsigned peer = m->fragment % site_peers(s);
    const struct site_peer *bound = &s->peer[peer];
    if (!s->o->signer)
        return ERR_OK;
    if (!site_identity_signed(s, m))
        return err_set(ERR_DENIED,
                       "fragment %u round %" PRIu64
                       ": the manifest's signature is not by the aggregator's identity key",
                       m->fragment, m->round);
    bool other = m->instance != bound->instance && !MUTANT(INSTANCE_BELIEVED);
    if (m->term > bound->term || (m->term == bound->term && other))
        return err_set(ERR_DISAGREE,
                       "fragment %u round %" PRIu64 ": of term %" PRIu64 ", instance %" PRIx64
                       ", and this site is bound to term %" PRIu64 ", instance %" PRIx64,
                       m->fragment, m->round, m->term, m->instance, bound->term, bound->instance);
    return ERR_OK;
}
