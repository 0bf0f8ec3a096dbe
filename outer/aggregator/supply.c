/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/aggregator/supply.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/aggregator/intake.h"
#include "outer/config/identity.h"
#include "outer/identity/revocation.h"
#include "outer/identity/signed.h"
#include "outer/protocol/majority.h"
#include "outer/protocol/mutant.h"
#include "outer/protocol/roles.h"
#include "outer/protocol/site_name.h"

enum {
    FILE_BYTES_MAX = 1 << 16, /* id/site, id/announced.N */
    MINOR_SUPPLY = 2,
    AGAIN_MS = 1000,
    DISK_FULL_MS = 5000,
    SAY_MS = 10000
};
const char SUPPLY_DIRECTORY[] = "supply";

struct supply_part {
    struct supply_part *next;
    unsigned site;
    enum wire_supply supply;
    unsigned fragment;
    uint64_t round;
    struct digest here; /* of the stored bytes, which the site need not send again. Zero: none */
    struct intake *in; /* the upload; what has arrived stays if its stream ends early. NULL: none */
    bool streams;      /* a stream brings it, or its bytes are being verified */
};
struct supply_site {
    char name[WIRE_NAME_MAX];
    bool has_state, complete;
    bool announced;                      /* by an aggregator of this run, with this key */
    struct signer_key key;               /* of the last one that the site has accepted */
    uint64_t round[ROUND_FRAGMENTS_MAX]; /* its states, as its hello says */
};
struct supply {
    struct supply_options o;
    struct outer_state_options state; /* o.state */
    struct env *env;
    struct digest config;
    struct revocation *revocation;
    struct supply_site *site; /* [ROUND_SITES_MAX] that have said hello */
    unsigned site_count;
    struct supply_part *parts;
    struct manifest *newest;     /* of the highest roster version */
    bool known;                  /* newest is */
    uint64_t enough_ms, said_ms; /* since when more than half are here; 0: they are not */
    bool stop;
    struct log_limit limit; /* one refusal of each peer, then now and then */
};

void supply_path(char out[SUPPLY_PATH_MAX], const char *site, enum wire_supply kind,
                 unsigned fragment, uint64_t round)
{
    static const char *const ends[] = {[WIRE_SUPPLY_MANIFEST] = "manifest",
                                       [WIRE_SUPPLY_AGGREGATE] = "aggregate",
                                       [WIRE_SUPPLY_STATE] = "state"};
    int n = snprintf(out, SUPPLY_PATH_MAX, "%s/%s/", SUPPLY_DIRECTORY, site);
    char *at = out + n;
    size_t left = SUPPLY_PATH_MAX - (size_t)n;
    ASSERT(kind > WIRE_SUPPLY_NONE && kind <= WIRE_SUPPLY_LAST);
    if (kind == WIRE_SUPPLY_SEEN)
        snprintf(at, left, "run/id/site");
    else if (kind == WIRE_SUPPLY_ANNOUNCED)
        snprintf(at, left, "run/id/announced.%u", fragment);
    else
        snprintf(at, left, "parts/%u.%" PRIu64 ".%s", fragment, round, ends[kind]);
}

/* ---- who may ---- */

static bool supply_known(void *self, const char *peer)
{
    const struct supply *s = self;
    return roles_of(peer, s->o.run) == ROLES_SITE;
}

static const char *supply_revoked(void *self, const char *peer, const struct wire_certificate *c)
{
    const struct supply *s = self;
    return s->revocation ? revocation_why(s->revocation, peer, c) : NULL;
}

static __attribute__((format(printf, 4, 5))) void supply_say(enum round_outcome *outcome,
                                                             char text[WIRE_TEXT_MAX],
                                                             enum round_outcome value,
                                                             const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(text, WIRE_TEXT_MAX, format, list);
    va_end(list);
    *outcome = value;
}

/* The refusals that need names. */
static bool head_holds(const struct supply *s, const char *peer, const struct wire_head *head,
                       enum round_outcome *outcome, char text[WIRE_TEXT_MAX])
{
    char expected[3 * WIRE_NAME_MAX];
    const char *revoked = supply_revoked((void *)(uintptr_t)s, peer, &head->certificate);
    snprintf(expected, sizeof expected, "atoll://%s/site/%s", s->o.run, head->site);
    if (roles_of(peer, s->o.run) != ROLES_SITE || strcmp(peer, expected) != 0)
        supply_say(outcome, text, ROUND_DENIED, "the certificate says %s, this call needs %s",
                   peer && *peer ? peer : "nothing", expected);
    else if (!site_name_good(head->site))
        supply_say(outcome, text, ROUND_INVALID, "no name of a site");
    else if (revoked)
        supply_say(outcome, text, ROUND_EXCLUDED, "%s: %s", peer, revoked);
    else if (strcmp(head->run, s->o.run) != 0)
        supply_say(outcome, text, ROUND_MISMATCH, "run.name: %s here, %s there", s->o.run,
                   head->run);
    else if (head->aggregator != s->o.index)
        supply_say(outcome, text, ROUND_MISMATCH, "this is aggregator %u, the call is for %" PRIu32,
                   s->o.index, head->aggregator);
    else
        return true;
    return false;
}

static struct supply_site *site_find(struct supply *s, const char *name)
{
    for (unsigned i = 0; i < s->site_count; i++)
        if (strcmp(s->site[i].name, name) == 0)
            return &s->site[i];
    return NULL;
}

/* ---- enough? ---- */

static unsigned roster_size(const struct supply *s)
{
    return s->known ? s->newest->site_count : s->o.site_count;
}

static const char *roster_name(const struct supply *s, unsigned i)
{
    return s->known ? manifest_name(s->newest, s->o.sites, s->newest->sites[i].site)
                    : s->o.sites[i];
}

/* missing: names of the sites that have not sent all. Returns how many have. */
static unsigned sites_here(struct supply *s, bool *all, char *missing, size_t size)
{
    unsigned here = 0;
    size_t used = 0;
    *all = true;
    *missing = 0;
    for (unsigned i = 0; i < roster_size(s); i++) {
        const struct supply_site *site = site_find(s, roster_name(s, i));
        here += site && site->complete;
        if (site && site->complete)
            continue;
        *all = *all && site && !site->has_state;
        if (used < size)
            used +=
                (size_t)snprintf(missing + used, size - used, "%s%s%s", used ? "," : "",
                                 roster_name(s, i), site && !site->has_state ? "(no_state)" : "");
    }
    return here;
}

static uint64_t supply_now(const struct supply *s)
{
    return s->env->ops->now_ms(s->env);
}

static uint64_t supply_work(void *self, bool *stop)
{
    struct supply *s = self;
    char missing[512];
    bool all;
    unsigned here = sites_here(s, &all, missing, sizeof missing), n = roster_size(s);
    uint64_t now = supply_now(s);
    bool enough = majority_has(here, n) || MUTANT_HALF(HALF_SUPPLIED, here, n), over;
    s->enough_ms = !enough ? 0 : s->enough_ms ? s->enough_ms : now;
    over = enough && !s->o.strict && now - s->enough_ms >= s->o.straggler_ms;
    *stop = s->stop = enough && (all || over);
    if (*stop || now - s->said_ms >= SAY_MS) {
        log_event(LOG_INFO, "supply", "sites=%u of=%u%s%s", here, n, *missing ? " missing=" : "",
                  missing);
        s->said_ms = now;
    }
    return now + AGAIN_MS;
}

bool supply_enough(const struct supply *s)
{
    return s->stop;
}

const char *supply_site(const struct supply *s, unsigned number)
{
    for (unsigned i = 0; i < s->site_count; i++)
        if (s->site[i].complete && number-- == 0)
            return s->site[i].name;
    return NULL;
}

/* ---- hello ---- */

static bool supply_config(const struct supply *s, const struct wire_hello *m,
                          struct wire_hello_answer *answer)
{
    const char *theirs = m->config ? m->config : "";
    struct digest d = identity_digest(theirs);
    struct arena scratch = arena_make(4 * WIRE_CONFIG_MAX);
    char *difference = NULL;
    bool equal =
        m->major == WIRE_MAJOR && digest_equal(&d, &s->config) && digest_equal(&d, &m->head.config);
    if (m->major != WIRE_MAJOR)
        supply_say(&answer->outcome, answer->text, ROUND_MISMATCH,
                   "protocol version: %d here, %" PRIu32 " there", WIRE_MAJOR, m->major);
    else if (!equal && keys_difference(theirs, s->o.canonical, &scratch, &difference) == ERR_OK)
        supply_say(&answer->outcome, answer->text, ROUND_MISMATCH, "%.1900s", difference);
    else if (!equal)
        supply_say(&answer->outcome, answer->text, ROUND_MISMATCH, "the configuration differs");
    arena_free(&scratch);
    return equal;
}

static bool supply_identity(const struct supply *s, const char *peer, const struct wire_hello *m,
                            struct wire_hello_answer *answer)
{
    struct signer_identity seen = {.certificate = {{0}}};
    enum err e = s->o.signer ? s->o.signer->ops->certified(s->o.signer, m->identity,
                                                           m->identity_bytes, peer, &seen)
                             : ERR_OK;
    const struct wire_certificate c = {.sha256 = seen.certificate};
    const char *revoked =
        e == ERR_OK && s->o.signer && s->revocation ? revocation_why(s->revocation, "", &c) : NULL;
    if (e == ERR_OK && !revoked)
        return true;
    supply_say(&answer->outcome, answer->text, ROUND_DENIED, "%s",
               revoked ? revoked : err_message());
    return false;
}

static void announcement_look(const struct supply *s, struct supply_site *site,
                              const struct wire_hello *m)
{
    struct signed_announcement a;
    struct signer_identity by;
    site->announced = s->o.signer && m->announcement.size_bytes &&
                      signed_announcement_read(&a, &m->announcement) == ERR_OK &&
                      signed_announcement_check(s->o.signer, &a, s->o.run, &by) == ERR_OK;
    if (site->announced)
        site->key = by.key;
    err_clear();
}

/* A site that says other states than before has trained on: what it sends now counts. */
static struct supply_site *supplier_take(struct supply *s, const struct wire_hello *m)
{
    struct supply_site *site = site_find(s, m->head.site);
    if (!site && s->site_count == ROUND_SITES_MAX)
        return NULL;
    if (!site) {
        site = &s->site[s->site_count++];
        snprintf(site->name, sizeof site->name, "%s", m->head.site);
    }
    announcement_look(s, site, m);
    site->complete = site->complete && m->has_state;
    site->has_state = m->has_state;
    for (unsigned f = 0; m->has_state && f < m->fragment_count; f++) {
        if (m->fragments[f].elsewhere)
            continue;
        site->complete = site->complete && site->round[f] == m->fragments[f].round;
        site->round[f] = m->fragments[f].round;
    }
    return site;
}

static void supply_refused(struct supply *s, const char *peer,
                           const struct wire_hello_answer *answer)
{
    char quoted[1024], from[256];
    unsigned repeats;
    const char *name = round_outcome_name(answer->outcome);
    peer = peer ? peer : "";
    if (log_limit_pass(&s->limit, name, peer, 1, supply_now(s), &repeats))
        log_event(LOG_WARN, "refused", "call=hello peer=%s answer=%s repeats=%u why=%s",
                  log_quote(from, sizeof from, peer), name, repeats,
                  log_quote(quoted, sizeof quoted, answer->text));
}

static void supply_hello(void *self, const char *peer, const struct wire_hello *m,
                         struct wire_hello_answer *answer)
{
    struct supply *s = self;
    memset(answer, 0, sizeof *answer);
    answer->minor = WIRE_MINOR;
    bool held = head_holds(s, peer, &m->head, &answer->outcome, answer->text) &&
                supply_config(s, m, answer) && supply_identity(s, peer, m, answer);
    if (held && m->has_state && m->fragment_count != s->o.state->fragments->count) {
        supply_say(&answer->outcome, answer->text, ROUND_INVALID, "other number of fragments");
        held = false;
    }
    struct supply_site *site = held ? supplier_take(s, m) : NULL;
    if (held && (!site || site->complete || !site->has_state))
        supply_say(&answer->outcome, answer->text, ROUND_FULL,
                   "the aggregator is rebuilt from the sites, and waits for others");
    else if (held && m->minor < MINOR_SUPPLY)
        supply_say(&answer->outcome, answer->text, ROUND_FULL,
                   "the aggregator is rebuilt from the sites, and this site's program is too old "
                   "to send its states: give its directory (atoll serve --rebuild)");
    else if (held)
        supply_say(&answer->outcome, answer->text, ROUND_SUPPLY,
                   "the aggregator is rebuilt from the sites: send what you have");
    if (!held || (answer->outcome == ROUND_FULL && m->minor < MINOR_SUPPLY))
        supply_refused(s, peer, answer);
}

/* ---- parts ---- */

/* The largest aggregate of a round: of any codec of the run, where it may have been amended of any
 * that there is; of as many sites as there are; or the state that a rollback brings back. */
static uint64_t aggregate_bytes_max(const struct supply *s, unsigned fragment)
{
    const struct outer_state_options *o = s->o.state;
    unsigned sites = s->site_count > roster_size(s) ? s->site_count : roster_size(s);
    uint64_t most = outer_state_shared_bytes(o, fragment);
    for (unsigned k = 0; k < CODEC_COUNT; k++) {
        const struct codec *c = codec_get((enum codec_kind)k);
        unsigned payloads = schedule_payloads_max(&o->schedule, c->kind, sites);
        if (!o->amend && !schedule_uses(&o->schedule, c->kind))
            continue;
        uint64_t bytes = c->aggregate_max(c, o->fragments->f[fragment].elements, payloads);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* May the site send this part, of this size? */
static bool part_fits(const struct supply *s, const struct supply_site *site,
                      const struct wire_contribution *m)
{
    const struct outer_state_options *o = s->o.state;
    unsigned f = m->fragment, count = s->o.count ? s->o.count : 1;
    bool own = f < o->fragments->count && f % count == s->o.index;
    uint64_t state = own ? site->round[f] : 0;
    bool history = own && m->round < state && m->round + o->keep >= state;
    switch (m->supply) {
    case WIRE_SUPPLY_NONE:
        break;
    case WIRE_SUPPLY_MANIFEST:
        return history && m->payload_bytes <= MANIFEST_BYTES_MAX;
    case WIRE_SUPPLY_AGGREGATE:
        return history && m->payload_bytes <= aggregate_bytes_max(s, f);
    case WIRE_SUPPLY_STATE:
        return own && state && m->round == state &&
               m->payload_bytes == outer_state_shared_bytes(o, f);
    case WIRE_SUPPLY_ANNOUNCED:
    case WIRE_SUPPLY_SEEN:
        return f == s->o.index && m->payload_bytes <= FILE_BYTES_MAX;
    }
    return false;
}

/* The part that is offered; a new one is added to the list. NULL: no memory. */
static struct supply_part *supplied_part_find(struct supply *s, unsigned site,
                                              const struct wire_contribution *m)
{
    struct supply_part *p = s->parts;
    while (p && (p->site != site || p->supply != m->supply || p->fragment != m->fragment ||
                 p->round != m->round))
        p = p->next;
    if (p || !(p = calloc(1, sizeof *p)))
        return p;
    *p = (struct supply_part){s->parts, site, m->supply, m->fragment, m->round, {{0}}, NULL, false};
    return s->parts = p;
}

static void part_drop(struct supply *s, struct supply_part *p)
{
    if (p->in && intake_close(s->env, p->in) != ERR_OK)
        err_clear();
    free(p->in);
    p->in = NULL;
    p->streams = false;
}

static enum err part_reach(struct supply *s, struct supply_part *p,
                           const struct wire_contribution *m)
{
    if (p && p->in && !digest_equal(&p->in->header.payload, &m->payload))
        part_drop(s, p);
    bool begins = p && !p->in;
    if (!p || (begins && !(p->in = calloc(1, sizeof *p->in))))
        return err_set(ERR_MEMORY, "no memory for a part of a supply");
    if (begins) {
        supply_path(p->in->final, s->site[p->site].name, m->supply, m->fragment, m->round);
        intake_make(p->in, m);
        TRY(s->env->ops->remove(s->env, p->in->part)); /* of other bytes */
    }
    return intake_open(s->env, p->in, m);
}

static void say_disk(enum err e, struct wire_answer *answer)
{
    log_event(LOG_ERROR, e == ERR_FULL ? "disk_full" : "supply_failed", "why=\"%s\"",
              err_message());
    supply_say(&answer->outcome, answer->text, ROUND_FULL, "%s", err_message());
    answer->retry_ms = DISK_FULL_MS;
}

/* The last part of a site: it has sent all. */
static void part_here(struct supply_site *site, enum wire_supply supply)
{
    if (supply != WIRE_SUPPLY_SEEN || site->complete)
        return;
    site->complete = true;
    log_event(LOG_INFO, "supplied", "site=%s", site->name);
}

static void supply_offer(void *self, const char *peer, const struct wire_contribution *m,
                         struct wire_answer *answer, void **upload)
{
    struct supply *s = self;
    *upload = NULL;
    memset(answer, 0, sizeof *answer);
    if (!head_holds(s, peer, &m->head, &answer->outcome, answer->text))
        return;
    struct supply_site *site = site_find(s, m->head.site);
    if (!m->supply || !site || !site->has_state) {
        supply_say(&answer->outcome, answer->text, ROUND_REBIND,
                   "the aggregator is rebuilt from the sites: say hello");
        return;
    }
    if (!part_fits(s, site, m)) {
        supply_say(&answer->outcome, answer->text, ROUND_INVALID,
                   "part %d of fragment %u, number %" PRIu64 ", of %" PRIu64
                   " bytes: not what the hello and the configuration say",
                   (int)m->supply, m->fragment, m->round, m->payload_bytes);
        return;
    }
    unsigned index = (unsigned)(site - s->site);
    struct supply_part *p = supplied_part_find(s, index, m);
    if (p && !digest_zero(&p->here) && digest_equal(&p->here, &m->payload)) {
        part_here(site, m->supply);
        answer->outcome = ROUND_RECEIPT;
        return;
    }
    if (p && p->streams) {
        supply_say(&answer->outcome, answer->text, ROUND_FULL, "these bytes are on their way");
        answer->retry_ms = AGAIN_MS;
        return;
    }
    enum err e = part_reach(s, p, m);
    if (e != ERR_OK) {
        if (p)
            part_drop(s, p);
        say_disk(e, answer);
        return;
    }
    answer->outcome = ROUND_RESUME;
    answer->offset = blocks_first(&p->in->blocks);
    answer->blocks = p->in->blocks;
    p->streams = true;
    *upload = p;
}

static void supply_chunk(void *self, void *upload, uint64_t offset, const uint8_t *data, size_t n,
                         struct wire_answer *answer)
{
    struct intake *in = ((struct supply_part *)upload)->in;
    (void)self, (void)data;
    memset(answer, 0, sizeof *answer);
    if (intake_fits(in, offset, n, answer) == BLOCKS_NEW)
        answer->outcome = ROUND_PENDING;
}

static enum err supply_store(void *self, void *upload, uint64_t offset, const uint8_t *data,
                             size_t n)
{
    const struct supply *s = self;
    const struct supply_part *p = upload;
    return intake_store(s->env, p->in, offset, data, n);
}

static void supply_stored(void *self, void *upload, uint64_t offset, size_t n, enum err e,
                          struct wire_answer *answer)
{
    struct intake *in = ((struct supply_part *)upload)->in;
    (void)self;
    memset(answer, 0, sizeof *answer);
    if (e != ERR_OK)
        say_disk(e, answer);
    else if (blocks_fits(&in->blocks, offset, n) == BLOCKS_NEW) /* else two streams brought it */
        blocks_add(&in->blocks, offset, n);
}

static void supply_finish(void *self, void *upload, bool complete, struct wire_answer *answer)
{
    struct supply *s = self;
    struct supply_part *p = upload;
    memset(answer, 0, sizeof *answer);
    if (complete && intake_whole(p->in)) {
        answer->outcome = ROUND_PENDING;
        return;
    }
    supply_say(&answer->outcome, answer->text, ROUND_RESUME, "not all bytes came");
    answer->offset = blocks_first(&p->in->blocks);
    p->streams = false;
    if (intake_close(s->env, p->in) != ERR_OK)
        part_drop(s, p);
}

static void supply_verify(void *self, void *upload)
{
    struct supply *s = self;
    struct intake *in = ((struct supply_part *)upload)->in;
    struct file_map map;
    enum err e = s->env->ops->map(s->env, in->part, &map);
    if (e == ERR_OK) {
        struct digest d = digest_of(map.data, map.size_bytes);
        s->env->ops->unmap(s->env, &map);
        e = digest_equal(&d, &in->header.payload)
                ? intake_keep(s->env, in, in->final)
                : err_set(ERR_CORRUPT, "not the bytes of their digest");
    }
    intake_verdict(in, e);
}

/* By this aggregator, or by the one before it. A manifest that no key is known for yet may be true,
 * and does not say which sites there are: one site could make all others wait for sites that do not
 * exist. */
static bool roster_signed(const struct supply *s, const struct supply_site *site,
                          const struct manifest *m)
{
    struct signer_key own;
    if (!s->o.signer)
        return true;
    s->o.signer->ops->key(s->o.signer, &own);
    return signed_manifest_holds(s->o.signer, &own, m) ||
           (site->announced && signed_manifest_holds(s->o.signer, &site->key, m));
}

/* Which sites there are follows from the newest roster. What else the manifest is worth is checked
 * when the directory is made. */
static void supplied_manifest_look(struct supply *s, const struct supply_site *site,
                                   const char *path)
{
    struct file_map map;
    struct manifest *m = calloc(1, sizeof *m);
    if (!m || s->env->ops->map(s->env, path, &map) != ERR_OK) {
        free(m);
        err_clear();
        return;
    }
    if (manifest_decode(m, map.data, map.size_bytes) && m->roster_version > 1 &&
        (!s->known || m->roster_version > s->newest->roster_version) &&
        m->initial == s->o.site_count && roster_signed(s, site, m)) {
        *s->newest = *m;
        s->known = true;
    }
    s->env->ops->unmap(s->env, &map);
    free(m);
}

static void supply_verified(void *self, void *upload, struct wire_answer *answer)
{
    struct supply *s = self;
    struct supply_part *p = upload;
    struct supply_site *site = &s->site[p->site];
    enum err verdict = p->in->verdict;
    memset(answer, 0, sizeof *answer);
    if (verdict == ERR_OK) {
        answer->outcome = ROUND_RECEIPT;
        if (p->supply == WIRE_SUPPLY_MANIFEST)
            supplied_manifest_look(s, site, p->in->final);
        p->here = p->in->header.payload;
        part_here(site, p->supply);
    } else if (verdict == ERR_CORRUPT) {
        supply_say(&answer->outcome, answer->text, ROUND_RESUME, "%s", p->in->why);
    } else {
        err_set(verdict, "%s", p->in->why);
        say_disk(verdict, answer);
    }
    part_drop(s, p);
}

/* ---- other calls ---- */

/* The answer to a site's call about a round: the site has to say hello. */
static void say_rebind(const struct supply *s, const char *peer, const struct wire_head *head,
                       struct wire_answer *answer)
{
    memset(answer, 0, sizeof *answer);
    if (head_holds(s, peer, head, &answer->outcome, answer->text))
        answer->outcome = ROUND_REBIND;
}

static void supply_poll(void *self, const char *peer, const struct wire_poll *m,
                        struct wire_poll_answer *answer)
{
    answer->wants = WIRE_MASK_NONE;
    manifest_clear(&answer->manifest);
    say_rebind(self, peer, &m->head, &answer->answer);
}

static void supply_fetch(void *self, const char *peer, const struct wire_fetch *m,
                         struct link_content *out, struct wire_answer *answer)
{
    memset(out, 0, sizeof *out);
    say_rebind(self, peer, &m->head, answer);
}

static void supply_fetched(void *self, void *source)
{
    (void)self, (void)source;
}

static void supply_report(void *self, const char *peer, const struct wire_report *m,
                          struct wire_answer *answer)
{
    say_rebind(self, peer, &m->head, answer);
}

static void supply_leave(void *self, const char *peer, const struct wire_leave *m,
                         struct wire_answer *answer)
{
    say_rebind(self, peer, &m->head, answer);
}

static void supply_mask(void *self, const char *peer, const struct wire_mask *m,
                        struct wire_mask_answer *answer)
{
    answer->body_bytes = 0;
    answer->number = 0;
    say_rebind(self, peer, &m->head, &answer->answer);
}

static void supply_operate(void *self, const char *peer, const struct wire_operate *m,
                           struct wire_answer *answer)
{
    struct supply *s = self;
    char missing[512];
    bool all;
    memset(answer, 0, sizeof *answer);
    unsigned here = sites_here(s, &all, missing, sizeof missing);
    if (roles_of(peer, s->o.run) != ROLES_OPERATOR)
        supply_say(&answer->outcome, answer->text, ROUND_DENIED, "not an operator's certificate");
    else
        supply_say(&answer->outcome, answer->text,
                   m->act == WIRE_STATUS ? ROUND_CURRENT : ROUND_INVALID,
                   "the aggregator is rebuilt from the sites: %u of %u have sent their states%s%s",
                   here, roster_size(s), *missing ? "; missing: " : "", missing);
}

struct link_service supply_service(struct supply *s)
{
    return (struct link_service){
        .self = s,
        .known = supply_known,
        .revoked = supply_revoked,
        .hello = supply_hello,
        .offer = supply_offer,
        .chunk = supply_chunk,
        .store = supply_store,
        .stored = supply_stored,
        .finish = supply_finish,
        .verify = supply_verify,
        .verified = supply_verified,
        .poll = supply_poll,
        .fetch = supply_fetch,
        .fetched = supply_fetched,
        .report = supply_report,
        .leave = supply_leave,
        .mask = supply_mask,
        .operate = supply_operate,
        .work = supply_work,
        .commit = link_service_no_commit,
    };
}

enum err supply_open(struct supply **out, struct env *env, const struct supply_options *o,
                     struct arena *perm)
{
    struct supply *s;
    *out = NULL;
    TRY_ALLOC(s = arena_alloc(perm, sizeof *s));
    *s = (struct supply){
        .o = *o, .state = *o->state, .env = env, .config = identity_digest(o->canonical)};
    s->o.state = &s->state;
    TRY_ALLOC(s->site = arena_array(perm, ROUND_SITES_MAX, sizeof *s->site));
    TRY_ALLOC(s->newest = arena_alloc(perm, sizeof *s->newest));
    s->limit.count = LOG_LIMIT_KEYS_MIN + o->site_count;
    TRY_ALLOC(s->limit.keys = arena_array(perm, s->limit.count, sizeof *s->limit.keys));
    TRY(env->ops->remove(env, SUPPLY_DIRECTORY));
    if (o->revoked_path)
        TRY(revocation_open(&s->revocation, o->revoked_path, o->revoked_copy));
    *out = s;
    return ERR_OK;
}

void supply_close(struct supply *s)
{
    if (!s)
        return;
    for (struct supply_part *p = s->parts, *next; p; p = next) {
        next = p->next;
        part_drop(s, p);
        free(p);
    }
    revocation_close(s->revocation);
}
