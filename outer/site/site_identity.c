/* Signatures at a site: its own under the headers of its contributions, and the aggregator's under
 * epochs and manifests, which it checks before it binds or adopts (docs/protocol.md 3.4, 6.1).
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/link/signed.h"
#include "outer/protocol/mutant.h"
#include "outer/site/site_own.h"

enum { PATH_BYTES = 32 };

/* Of one aggregator. Manifests of before a change of its key were signed with the former one. */
struct site_announced {
    struct wire_announcement newest;
    struct wire_announcement before; /* the last one with another key; empty: none */
    struct signer_key key, key_before;
    bool known, known_before;
};

/* ---- id/announced.N ---- */

static void announced_path(char out[PATH_BYTES], unsigned peer)
{
    snprintf(out, PATH_BYTES, "id/announced.%u", peer);
}

static const struct record_form announced_form = {.kind = "announce"};

static enum err announced_write(struct env *w, unsigned peer, const struct site_announced *a)
{
    char path[PATH_BYTES];
    struct file_part parts[] = {{a->newest.bytes, a->newest.size_bytes},
                                {a->before.bytes, a->before.size_bytes}};
    struct record_section sections[] = {{.parts = &parts[0], .part_count = 1},
                                        {.parts = &parts[1], .part_count = 1}};
    announced_path(path, peer);
    return store_write(w, path, &announced_form, sections, 2);
}

enum err site_identity_again(struct site *s, unsigned peer)
{
    return peer < site_peers(s) && s->announced && s->announced[peer].known
               ? announced_write(s->env, peer, &s->announced[peer])
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

/* A damaged one proves nothing; the next hello brings another. */
static enum err announced_read(struct env *w, unsigned peer, struct site_announced *a)
{
    char path[PATH_BYTES], quoted[512];
    struct arena scratch = arena_make(0);
    struct record r;
    announced_path(path, peer);
    *a = (struct site_announced){.known = false};
    enum err e = store_read(w, path, &announced_form, 2 * SIGNER_ANNOUNCEMENT_MAX, &r, &scratch);
    bool whole =
        e == ERR_OK && announcement_take(&r, 0, &a->newest) && announcement_take(&r, 1, &a->before);
    if (!whole)
        *a = (struct site_announced){.known = false};
    if (!whole && (e == ERR_OK || e == ERR_CORRUPT))
        log_event(LOG_WARN, "announcement_lost", "aggregator=%u why=%s", peer,
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
                        struct signer_key keys[2])
{
    struct site_announced a;
    struct signed_announcement read;
    unsigned count = 0;
    if (announced_read(w, aggregator, &a) == ERR_OK) {
        count += announcement_key(signer, run, &a.newest, &read, &keys[count]) == ERR_OK;
        count += announcement_key(signer, run, &a.before, &read, &keys[count]) == ERR_OK;
    }
    err_clear();
    return count;
}

uint64_t site_announced_epoch(struct env *w, unsigned aggregator)
{
    struct site_announced a;
    struct signed_announcement read = {.epoch = 0};
    if (announced_read(w, aggregator, &a) != ERR_OK ||
        signed_announcement_read(&read, &a.newest) != ERR_OK)
        read.epoch = 0;
    err_clear();
    return read.epoch;
}

enum err site_identity_open(struct site *s, struct arena *perm)
{
    struct signed_announcement read;
    if (!s->o.signer)
        return ERR_OK;
    TRY_ALLOC(s->announced = arena_array(perm, site_peers(s), sizeof *s->announced));
    for (unsigned p = 0; p < site_peers(s); p++) {
        struct site_announced *a = &s->announced[p];
        TRY(announced_read(s->env, p, a));
        a->known = announcement_key(s->o.signer, s->o.run, &a->newest, &read, &a->key) == ERR_OK;
        a->known_before =
            announcement_key(s->o.signer, s->o.run, &a->before, &read, &a->key_before) == ERR_OK;
    }
    err_clear();
    return ERR_OK;
}

/* ---- hello ---- */

enum err site_identity_show(struct site *s, unsigned peer, struct wire_hello *m)
{
    if (!s->o.signer)
        return ERR_OK;
    TRY(s->o.signer->ops->certificate(s->o.signer, m->identity, &m->identity_bytes));
    m->announcement = s->announced[peer].newest;
    for (unsigned f = peer; m->has_state && f < m->fragment_count; f += site_peers(s)) {
        struct manifest made;
        uint64_t round = m->fragments[f].round;
        if (round == 0 || outer_state_manifest(s->replica, f, round - 1, &made) != ERR_OK)
            continue; /* without it there is no proof, and nothing else is missing */
        m->fragments[f].proof = signed_manifest_proof(&made);
    }
    err_clear();
    return ERR_OK;
}

enum err site_identity_heard(struct site *s, unsigned peer, const struct wire_hello_answer *a)
{
    struct signed_announcement said;
    struct signer_key key;
    if (!s->o.signer)
        return ERR_OK;
    if (!a->announcement.size_bytes)
        return err_set(ERR_DENIED, "the aggregator does not sign its epoch: it runs an older "
                                   "version of the program");
    enum err e = announcement_key(s->o.signer, s->o.run, &a->announcement, &said, &key);
    if (e != ERR_OK)
        return err_add(ERR_DENIED, "the aggregator's announcement of its epoch: ");
    if (said.aggregator != peer || said.epoch != a->epoch || said.instance != a->instance)
        return err_set(ERR_DENIED, "the aggregator has signed another epoch than it says");
    struct site_announced *known = &s->announced[peer], next = *known;
    bool same = a->announcement.size_bytes == known->newest.size_bytes &&
                memcmp(a->announcement.bytes, known->newest.bytes, known->newest.size_bytes) == 0;
    if (same || a->epoch < s->peer[peer].epoch) /* bind refuses a lower one */
        return ERR_OK;
    if (known->known && memcmp(&known->key, &key, sizeof key) != 0) {
        next.before = known->newest;
        next.key_before = known->key;
        next.known_before = true;
    }
    next.newest = a->announcement;
    next.key = key;
    next.known = true;
    TRY(announced_write(s->env, peer, &next));
    *known = next;
    return ERR_OK;
}

/* ---- contributions and manifests ---- */

enum err site_identity_sign(struct site *s, struct wire_contribution *m)
{
    return s->o.signer ? signed_header_sign(s->o.signer, m) : ERR_OK;
}

void site_identity_key(const struct site *s, unsigned peer, struct signer_key *out)
{
    *out = s->announced ? s->announced[peer].key : (struct signer_key){0};
}

bool site_aggregator_key(struct site *s, unsigned aggregator, struct signer_key *out)
{
    site_lock(s);
    bool known = s->announced && s->announced[aggregator].known;
    site_identity_key(s, aggregator, out);
    site_unlock(s);
    return known;
}

bool site_identity_signed(const struct site *s, const struct manifest *m)
{
    if (!s->o.signer)
        return true;
    const struct site_announced *a = &s->announced[m->fragment % site_peers(s)];
    return a->known && signed_manifest_holds(s->o.signer, &a->key, m);
}

enum err site_identity_check(struct site *s, const struct manifest *m)
{
    unsigned peer = m->fragment % site_peers(s);
    const struct site_peer *bound = &s->peer[peer];
    if (!s->o.signer)
        return ERR_OK;
    if (!site_identity_signed(s, m))
        return err_set(ERR_DENIED,
                       "fragment %u round %" PRIu64
                       ": the manifest's signature is not by the aggregator's identity key",
                       m->fragment, m->round);
    bool other = m->instance != bound->instance && !MUTANT(INSTANCE_BELIEVED);
    if (m->epoch > bound->epoch || (m->epoch == bound->epoch && other))
        return err_set(ERR_DISAGREE,
                       "fragment %u round %" PRIu64 ": of epoch %" PRIu64 ", instance %" PRIx64
                       ", and this site is bound to epoch %" PRIu64 ", instance %" PRIx64,
                       m->fragment, m->round, m->epoch, m->instance, bound->epoch, bound->instance);
    return ERR_OK;
}
