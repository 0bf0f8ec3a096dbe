/* Secure aggregation at the aggregator (docs/privacy.md, "Secure aggregation"): it passes on the
 * sites' public keys, fixes and signs the seal of a round, passes on the signatures, and takes the
 * revealed masks off the sum of the masked contributions. It learns that sum and no site's part of
 * it.
 *
 * A seal is a file of its round's spool, and then a SEAL record of the journal with its digest;
 * only then a site sees it. After a restart the same seal goes on, and the core is told its set
 * (round_pin). What sites sign and reveal is kept in memory alone: they answer again. All of it
 * under the lock of the service, but for aggregator_masks_sum.
 *
 * A setup is what makes pair keys: the first one of all sites, and one for each site that is added.
 * It has the number of the roster's version, which is durable (the file `setup`), since sites that
 * come to it at different times must come to the same one; and the next one begins once all sites
 * have said that they have the pairs of this one, which is durable, too. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/bytes.h"
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_state.h"
#include "outer/privacy/masked.h"
#include "outer/privacy/seal_aggregator.h"
#include "outer/protocol/mutant.h"

struct masks_site { /* what the aggregator passes on */
    uint8_t certificate[SIGNER_CERTIFICATE_MAX];
    size_t certificate_bytes; /* 0: no hello since the start */
    bool stated;
    uint8_t statement[KEYS_STATEMENT_BYTES];
};
struct masks_setup {        /* the file */
    uint32_t number, added; /* added: the site that it is for; of the first one: not used */
    uint32_t fragments, sites;
    uint64_t first[ROUND_FRAGMENTS_MAX]; /* rounds that its pairs begin with */
    uint32_t *paired; /* [room] the newest setup of which each site has all pairs */
};
struct aggregator_masks {
    struct masks_setup setup;
    struct masks_site *site;      /* [sites of the core's room] */
    struct seal_aggregator *seal; /* [fragments] */
    bool *lost;                   /* [fragments]: the seal was announced, and is no longer stored */
    uint64_t *asked;              /* [fragments]: rounds before it were asked about by a site */
    struct signer_key *identity;  /* [room], of a context */
};

/* ---- the setup ---- */

static void setup_fields(struct record_cursor *c, void *self)
{
    struct masks_setup *m = self;
    uint32_t room = m->sites, fragments = m->fragments;
    record_u32(c, &m->number);
    record_u32(c, &m->added);
    record_u32(c, &m->fragments);
    record_u32(c, &m->sites);
    m->fragments = m->fragments < fragments ? m->fragments : fragments; /* then it is no record */
    m->sites = m->sites < room ? m->sites : room;
    for (uint32_t i = 0; i < m->fragments; i++)
        record_u64(c, &m->first[i]);
    for (uint32_t i = 0; i < m->sites; i++)
        record_u32(c, &m->paired[i]);
}

static void setup_first(struct aggregator *a)
{
    struct masks_setup *m = &a->masks->setup;
    *m = (struct masks_setup){
        .number = 1, .fragments = a->core.fragments, .sites = a->core.room, .paired = m->paired};
    memset(m->paired, 0, m->sites * sizeof *m->paired);
}

/* Lost: the sites say again what they have. */
static enum err setup_read(struct aggregator *a)
{
    struct masks_setup *m = &a->masks->setup;
    struct arena scratch = arena_make(0);
    struct record_form form = {"setup", setup_fields, m};
    struct record r;
    setup_first(a);
    enum err e = store_read(a->env, AGGREGATOR_SETUP, &form, 0, &r, &scratch);
    arena_free(&scratch);
    m->sites = a->core.room; /* the sites may have become more */
    if (e == ERR_INPUT || e == ERR_CORRUPT)
        setup_first(a);
    if (e == ERR_CORRUPT)
        log_event(LOG_WARN, "setup_lost", "file=%s", AGGREGATOR_SETUP);
    return e == ERR_INPUT || e == ERR_CORRUPT ? ERR_OK : e;
}

static enum err setup_write(struct aggregator *a)
{
    struct record_form form = {"setup", setup_fields, &a->masks->setup};
    return store_write(a->env, AGGREGATOR_SETUP, &form, NULL, 0);
}

/* The newest change of the roster added a site: its setup, if it is not the present one. What the
 * journal has is enough to find it again. */
static enum err setup_follow(struct aggregator *a)
{
    struct masks_setup *m = &a->masks->setup;
    if (a->roster.change.act != MANIFEST_ADD || a->roster.version <= m->number)
        return ERR_OK;
    m->number = a->roster.version;
    m->added = a->roster.change.site;
    for (unsigned f = 0; f < a->core.fragments; f++)
        m->first[f] = a->core.f[f].first;
    return setup_write(a);
}

/* Is this site's key in the newest setup known? */
static bool stated_now(const struct aggregator *a, unsigned site)
{
    const struct masks_site *s = &a->masks->site[site];
    struct keys_statement x;
    return s->stated && s->certificate_bytes &&
           keys_statement_read(&x, s->statement, sizeof s->statement) == ERR_OK &&
           x.setup == a->masks->setup.number;
}

/* Sites of all rounds in flight. */
static struct set served(const struct aggregator *a)
{
    struct set sites = {0};
    for (unsigned i = 0; i < a->o.site_count; i++)
        set_put(&sites, i, aggregator_roster_serves(a, i));
    return sites;
}

/* Sites that this setup makes a pair of `site` with. */
static struct set partners(const struct aggregator *a, unsigned site)
{
    const struct masks_setup *m = &a->masks->setup;
    struct set others = served(a);
    bool all = m->number < 2 || m->added == site;
    for (unsigned i = 0; i < a->o.site_count; i++)
        set_put(&others, i, set_has(&others, i) && i != site && (all || i == m->added));
    return others;
}

static bool any_unpaired(const struct aggregator *a, const struct set *sites)
{
    for (unsigned i = 0; i < a->o.site_count; i++)
        if (set_has(sites, i) && a->masks->setup.paired[i] < a->masks->setup.number)
            return true;
    return false;
}

/* Has the site to state its key, or can it find all others'? */
static bool setup_wants(const struct aggregator *a, unsigned site)
{
    struct set others = partners(a, site);
    if (a->masks->setup.paired[site] >= a->masks->setup.number)
        return !stated_now(a, site) && any_unpaired(a, &others);
    if (!stated_now(a, site))
        return set_count(&others);
    for (unsigned i = 0; i < a->o.site_count; i++)
        if (set_has(&others, i) && !stated_now(a, i))
            return false;
    return true;
}

const char *aggregator_masks_unpaired(const struct aggregator *a)
{
    for (unsigned i = 0; a->masks && i < a->o.site_count && !MUTANT(ADDED_UNPAIRED); i++) {
        struct set others = partners(a, i);
        if (set_has(&a->roster.members, i) && set_count(&others) &&
            a->masks->setup.paired[i] < a->masks->setup.number)
            return a->names[i];
    }
    return NULL;
}

unsigned aggregator_masks_least(const struct aggregator *a)
{
    unsigned two = a->o.masks.two_sites ? 2 : 3, honest = a->o.masks.colluding + 2;
    return !a->masks ? 0 : honest > two ? honest : two;
}

enum err aggregator_masks_added(struct aggregator *a)
{
    return a->masks ? setup_follow(a) : ERR_OK;
}

bool aggregator_masks(const struct aggregator *a)
{
    return a->masks != NULL;
}

enum err aggregator_masks_open(struct aggregator *a, struct arena *perm)
{
    if (!a->o.masks.on)
        return ERR_OK;
    ASSERT(a->o.signer);
    unsigned room = a->core.room, fragments = a->core.fragments;
    struct aggregator_masks *m = arena_alloc(perm, sizeof *m);
    TRY_ALLOC(m);
    TRY_ALLOC(m->site = arena_array(perm, room, sizeof *m->site));
    TRY_ALLOC(m->identity = arena_array(perm, room, sizeof *m->identity));
    TRY_ALLOC(m->seal = arena_array(perm, fragments, sizeof *m->seal));
    TRY_ALLOC(m->lost = arena_array(perm, fragments, sizeof *m->lost));
    TRY_ALLOC(m->asked = arena_array(perm, fragments, sizeof *m->asked));
    TRY_ALLOC(m->setup.paired = arena_array(perm, room, sizeof *m->setup.paired));
    a->masks = m;
    return setup_read(a);
}

void aggregator_masks_close(struct aggregator *a)
{
    for (unsigned i = 0; a->masks && i < a->core.fragments; i++)
        seal_aggregator_close(&a->masks->seal[i]);
    a->masks = NULL;
}

/* ---- what the aggregator knows of a round ---- */

static const struct roster *round_roster_of(const struct aggregator *a, unsigned fragment)
{
    const struct round_fragment *f = &a->core.f[fragment];
    return f->round < f->first ? &a->former : &a->roster;
}

static struct seal_context context_of(const struct aggregator *a, unsigned fragment)
{
    const struct roster *roster = round_roster_of(a, fragment);
    struct seal_context c = {.run = a->o.run,
                             .config = a->config,
                             .roster_version = roster->version,
                             .sites = roster->count,
                             .members = a->core.f[fragment].members,
                             .colluding = a->o.masks.colluding,
                             .two_sites = a->o.masks.two_sites,
                             .identity = a->masks->identity};
    for (unsigned i = 0; i < roster->count; i++)
        aggregator_identity_key(a, i, &a->masks->identity[i]);
    a->o.signer->ops->key(a->o.signer, &c.aggregator);
    return c;
}

enum err aggregator_masks_layout(const struct aggregator *a, unsigned fragment,
                                 struct mask_layout *l)
{
    const struct codec *c = codec_get(outer_state_codec(a->replica, fragment));
    return masked_layout(l, c, a->replica->fragments->f[fragment].elements, a->core.f[fragment].n);
}

uint64_t aggregator_masks_payload_bytes(const struct aggregator *a, unsigned fragment)
{
    struct mask_layout l;
    return aggregator_masks_layout(a, fragment, &l) == ERR_OK ? l.size_bytes : 0;
}

const char *aggregator_masks_header(const struct aggregator *a, const struct wire_contribution *m)
{
    if (m->round != a->replica->state[m->fragment].round)
        return NULL; /* answered by its round */
    if (m->weight != 1)
        return "with privacy.secure every contribution has weight 1: it would tell how much data a "
               "site has";
    if (m->residual_ratio)
        return "with privacy.secure a header says nothing of the residual";
    if (m->payload_bytes != aggregator_masks_payload_bytes(a, m->fragment))
        return "not the size of a masked contribution to this round";
    return NULL;
}

/* ---- the seal ---- */

static void seal_path(const struct aggregator *a, unsigned fragment, char out[AGGREGATOR_PATH_MAX])
{
    snprintf(out, AGGREGATOR_PATH_MAX, "spool/%u/%" PRIu64 "/seal", fragment,
             a->core.f[fragment].round);
}

static const struct record_form seal_form = {.kind = "seal"};

static enum err refused(const char *what, enum seal_answer answer)
{
    return answer == SEAL_no_memory
               ? err_set(ERR_MEMORY, "no memory for %s", what)
               : err_set(ERR_INTERNAL, "%s: %s", what, seal_answer_text(answer));
}

/* Of the contributions of the sealed set. */
static enum err seal_make(struct aggregator *a, unsigned fragment)
{
    const struct round_fragment *f = &a->core.f[fragment];
    struct seal_aggregator *s = &a->masks->seal[fragment];
    struct seal_context c = context_of(a, fragment);
    struct seal_announce of = {.fragment = fragment, .round = f->round, .u = f->members};
    seal_aggregator_close(s);
    enum seal_answer answer = seal_aggregator_announce(s, &c, &of);
    for (unsigned i = 0; answer == SEAL_ok && i < a->o.site_count; i++)
        if (set_has(&a->fragment[fragment].seal_set, i))
            answer = seal_aggregator_accept(s, i, &f->entries[i].payload);
    if (answer == SEAL_ok)
        answer = seal_aggregator_seal(s, &c, a->o.signer, a->epoch);
    if (answer == SEAL_ok)
        return ERR_OK;
    seal_aggregator_close(s);
    return refused("the seal of a round", answer);
}

static struct journal_record seal_record(const struct aggregator *a, unsigned fragment)
{
    return (struct journal_record){.kind = JOURNAL_SEAL,
                                   .fragment = fragment,
                                   .round = a->core.f[fragment].round,
                                   .digest = a->masks->seal[fragment].digest};
}

/* Durable before a site sees it. */
static enum err seal_store(struct aggregator *a, unsigned fragment)
{
    const struct seal_aggregator *s = &a->masks->seal[fragment];
    char path[AGGREGATOR_PATH_MAX];
    struct file_part parts[] = {{s->bytes, s->size_bytes}, {s->signature, SIGNER_BYTES}};
    struct record_section sections[] = {{.parts = &parts[0], .part_count = 1},
                                        {.parts = &parts[1], .part_count = 1}};
    seal_path(a, fragment, path);
    TRY(store_write(a->env, path, &seal_form, sections, 2));
    if (MUTANT(SEAL_UNRECORDED))
        return ERR_OK;
    struct journal_record r = seal_record(a, fragment);
    return journal_append(&a->journal, &r);
}

static bool sealed_now(const struct aggregator *a, unsigned fragment)
{
    const struct seal_aggregator *s = &a->masks->seal[fragment];
    return s->stage == SEAL_SEALED && s->of.round == a->core.f[fragment].round;
}

size_t aggregator_masks_record(const struct aggregator *a, unsigned fragment,
                               struct journal_record *keep)
{
    if (!a->masks || !sealed_now(a, fragment))
        return 0;
    *keep = seal_record(a, fragment);
    return 1;
}

enum err aggregator_masks_ready(struct aggregator *a, unsigned fragment, bool *ready)
{
    const struct aggregator_fragment *f = &a->fragment[fragment];
    *ready = true;
    if (!a->masks || f->ordered || !set_count(&f->seal_set))
        return ERR_OK;
    *ready = false;
    if (!sealed_now(a, fragment)) {
        TRY(seal_make(a, fragment));
        enum err e = seal_store(a, fragment);
        if (e != ERR_OK) {
            seal_aggregator_close(&a->masks->seal[fragment]);
            return e;
        }
        if (!MUTANT(SEAL_OPEN))
            round_pin(&a->core, fragment, &f->seal_set);
        log_event(LOG_DETAIL, "seal", "fragment=%u round=%" PRIu64 " sites=%u/%u", fragment,
                  a->core.f[fragment].round, set_count(&f->seal_set), a->core.f[fragment].n);
    }
    *ready = seal_aggregator_revealed(&a->masks->seal[fragment]);
    return ERR_OK;
}

void aggregator_masks_over(struct aggregator *a, unsigned fragment)
{
    if (a->masks)
        seal_aggregator_close(&a->masks->seal[fragment]);
}

/* ---- recovery ---- */

/* ERR_INPUT: there is none. digest: of the journal; NULL: of any. */
static enum err seal_load(struct aggregator *a, unsigned fragment, const struct digest *digest)
{
    struct arena scratch = arena_make(0);
    struct seal_context c = context_of(a, fragment);
    struct seal_aggregator *to = &a->masks->seal[fragment];
    struct record f;
    char path[AGGREGATOR_PATH_MAX];
    enum seal_answer answer = SEAL_malformed;
    seal_path(a, fragment, path);
    enum err e = store_read(a->env, path, &seal_form, SEAL_BYTES_MAX + SIGNER_BYTES, &f, &scratch);
    bool whole = e == ERR_OK && f.section_count == 2 && record_intact(&f, 0) &&
                 record_intact(&f, 1) && f.sections[1].size_bytes == SIGNER_BYTES;
    if (whole)
        answer = seal_aggregator_restore(to, &c, f.sections[0].data, f.sections[0].size_bytes,
                                         f.sections[1].data);
    arena_free(&scratch);
    if (e != ERR_OK && e != ERR_CORRUPT)
        return e;
    bool same = answer == SEAL_ok && (!digest || digest_equal(&to->digest, digest));
    return same ? ERR_OK : err_set(ERR_CORRUPT, "%s: damaged", path);
}

/* Another seal would be refused by each site that has signed the first one: the round is aborted.
 */
static enum err seal_take(struct aggregator *a, unsigned fragment, enum err e)
{
    struct aggregator_masks *m = a->masks;
    char quoted[512];
    if (e == ERR_OK && MUTANT(SEAL_ANEW)) {
        seal_aggregator_close(&m->seal[fragment]);
    } else if (e == ERR_OK && !MUTANT(SEAL_OPEN)) {
        round_pin(&a->core, fragment, &m->seal[fragment].seal.s);
    }
    if (e == ERR_OK)
        return ERR_OK;
    if (e != ERR_CORRUPT && e != ERR_INPUT)
        return e;
    log_event(LOG_ERROR, "seal_lost", "fragment=%u round=%" PRIu64 " action=abort why=%s", fragment,
              a->core.f[fragment].round, log_quote(quoted, sizeof quoted, err_message()));
    seal_aggregator_close(&m->seal[fragment]);
    m->lost[fragment] = true;
    return ERR_OK;
}

enum err aggregator_masks_restore(struct aggregator *a, const struct journal_record *r)
{
    if (!a->masks)
        return err_set(ERR_MISMATCH, "the journal has a seal, and privacy.secure is off");
    return seal_take(a, r->fragment, seal_load(a, r->fragment, &r->digest));
}

/* A seal that has no record was not shown, and may be shown as well as another one. */
enum err aggregator_masks_again(struct aggregator *a)
{
    for (unsigned i = 0; a->masks && i < a->core.fragments && !MUTANT(SEAL_FORGOTTEN); i++) {
        enum err e = aggregator_serves(a, i) ? seal_load(a, i, NULL) : ERR_INPUT;
        if (e != ERR_INPUT)
            TRY(seal_take(a, i, e));
    }
    err_clear();
    return ERR_OK;
}

enum err aggregator_masks_recovered(struct aggregator *a)
{
    if (a->masks)
        TRY(setup_follow(a));
    for (unsigned i = 0; a->masks && i < a->core.fragments; i++) {
        if (!a->masks->lost[i])
            continue;
        struct round_event e = {.kind = ROUND_CLOSE, .fragment = i, .round = a->core.f[i].round};
        struct round_update u;
        aggregator_step(a, &e, &u);
        a->masks->lost[i] = false;
    }
    return ERR_OK;
}

bool aggregator_masks_asked(const struct aggregator *a, unsigned fragment)
{
    return a->masks && a->masks->asked[fragment] > a->core.f[fragment].round;
}

/* ---- what a site is asked for ---- */

enum wire_mask_step aggregator_masks_wants(const struct aggregator *a, unsigned fragment,
                                           unsigned site)
{
    const struct seal_aggregator *s = a->masks ? &a->masks->seal[fragment] : NULL;
    if (s && !MUTANT(PAIR_UNASKED) && setup_wants(a, site))
        return WIRE_MASK_SETUP;
    if (!s || !sealed_now(a, fragment) || !set_has(&s->seal.s, site))
        return WIRE_MASK_NONE;
    if (!set_has(&s->have_signature, site))
        return WIRE_MASK_SIGN;
    return seal_aggregator_signed(s) && !set_has(&s->have_reveal, site) ? WIRE_MASK_REVEAL
                                                                        : WIRE_MASK_NONE;
}

const char *aggregator_masks_missing(const struct aggregator *a, unsigned fragment,
                                     struct set *missing)
{
    const struct seal_aggregator *s = a->masks ? &a->masks->seal[fragment] : NULL;
    if (!s || !sealed_now(a, fragment))
        return NULL;
    bool all = seal_aggregator_signed(s);
    *missing = set_without(&s->seal.s, all ? &s->have_reveal : &s->have_signature);
    return all ? "mask" : "signature";
}

/* ---- the steps ---- */

void aggregator_masks_hello(struct aggregator *a, unsigned site, const struct wire_hello *m)
{
    if (!a->masks || site >= a->core.room)
        return;
    struct masks_site *s = &a->masks->site[site];
    memcpy(s->certificate, m->identity, m->identity_bytes);
    s->certificate_bytes = m->identity_bytes;
}

static void refuse(struct wire_mask_answer *answer, const char *text)
{
    aggregator_say(&answer->answer, ROUND_INVALID, "%s", text);
}

/* u32 indices, set of the sites of all rounds in flight, u32 the added one, u32 fragments, u64
 * first round of its pairs in each; then as many of these sites from `first` on as there is room
 * for. */
static void setup_list(const struct aggregator *a, uint32_t first, struct wire_mask_answer *answer)
{
    struct bytes_writer w = bytes_writer(answer->body, sizeof answer->body);
    unsigned sites = a->o.site_count;
    bytes_put_u32(&w, sites);
    const struct set in = served(a);
    seal_set_write(&w, &in, sites);
    bytes_put_u32(&w, a->masks->setup.added);
    bytes_put_u32(&w, a->core.fragments);
    for (unsigned f = 0; f < a->core.fragments; f++)
        bytes_put_u64(&w, MUTANT(SETUP_FIRST) ? a->core.f[f].first : a->masks->setup.first[f]);
    answer->answer.outcome = ROUND_NONE;
    answer->number = MUTANT(SETUP_VERSION) ? a->roster.version : a->masks->setup.number;
    for (uint32_t i = first; i < sites; i++) {
        const struct masks_site *s = &a->masks->site[i];
        size_t name = strlen(a->o.sites[i]);
        if (!set_has(&in, i) || !s->stated || !s->certificate_bytes)
            continue;
        if (bytes_size(&w) + 4 + 1 + name + 4 + s->certificate_bytes + KEYS_STATEMENT_BYTES >
            sizeof answer->body) {
            answer->answer.offset = i;
            break;
        }
        bytes_put_u32(&w, i);
        bytes_put_u8(&w, (uint8_t)name);
        bytes_put(&w, a->o.sites[i], name);
        bytes_put_u32(&w, (uint32_t)s->certificate_bytes);
        bytes_put(&w, s->certificate, s->certificate_bytes);
        bytes_put(&w, s->statement, KEYS_STATEMENT_BYTES);
    }
    ASSERT(!w.bad);
    answer->body_bytes = bytes_size(&w);
}

/* False: answered. */
static bool paired_take(struct aggregator *a, unsigned site, const struct wire_mask *m,
                        struct wire_mask_answer *answer)
{
    struct masks_setup *u = &a->masks->setup;
    uint32_t before = u->paired[site];
    if (m->round <= before || m->round > u->number)
        return true;
    u->paired[site] = (uint32_t)m->round;
    enum err e = setup_write(a);
    if (e == ERR_OK)
        return true;
    u->paired[site] = before;
    aggregator_say_failed(a, e, &answer->answer);
    return false;
}

static void step_setup(struct aggregator *a, unsigned site, const struct wire_mask *m,
                       struct wire_mask_answer *answer)
{
    struct keys_statement s;
    struct masks_site *to = &a->masks->site[site];
    if (m->body_bytes) {
        if (keys_statement_read(&s, m->body, m->body_bytes) != ERR_OK || s.site != site) {
            refuse(answer, "no statement of this site's public key");
            return;
        }
        memcpy(to->statement, m->body, sizeof to->statement);
        to->stated = true;
    }
    if (paired_take(a, site, m, answer))
        setup_list(a, m->first, answer);
}

static void step_announce(struct aggregator *a, const struct wire_mask *m,
                          struct wire_mask_answer *answer)
{
    struct bytes_writer w = bytes_writer(answer->body, sizeof answer->body);
    if (m->round != a->core.f[m->fragment].round) {
        aggregator_say(&answer->answer, ROUND_BEHIND, "not the round in flight");
        return;
    }
    const struct roster *roster = round_roster_of(a, m->fragment);
    a->masks->asked[m->fragment] = m->round + 1;
    bytes_put_u32(&w, roster->version);
    bytes_put_u32(&w, roster->count);
    seal_set_write(&w, &a->core.f[m->fragment].members, roster->count);
    answer->answer.outcome = ROUND_NONE;
    answer->body_bytes = bytes_size(&w);
}

/* The seal of this round, or why there is none to answer. */
static struct seal_aggregator *step_seal(struct aggregator *a, const struct wire_mask *m,
                                         struct wire_mask_answer *answer)
{
    bool now = m->round == a->core.f[m->fragment].round;
    if (now && sealed_now(a, m->fragment))
        return &a->masks->seal[m->fragment];
    aggregator_say(&answer->answer, now ? ROUND_PENDING : ROUND_BEHIND,
                   now ? "not sealed yet" : "not the round in flight");
    return NULL;
}

static void answer_seal(struct wire_mask_answer *answer, enum seal_answer said)
{
    answer->answer.outcome = said == SEAL_ok || said == SEAL_again ? ROUND_NONE
                             : said == SEAL_not_ready              ? ROUND_PENDING
                             : said == SEAL_no_memory              ? ROUND_FULL
                                                                   : ROUND_INVALID;
    snprintf(answer->answer.text, sizeof answer->answer.text, "%s: %s", seal_answer_name(said),
             seal_answer_text(said));
}

/* What a site needs for a step: the seal; or seal and signatures, once all are there. Bytes
 * written; 0: not yet. */
static size_t step_body(const struct seal_aggregator *s, enum wire_mask_step step, uint8_t *out,
                        size_t size)
{
    struct bytes_writer w = bytes_writer(out, size);
    uint8_t one[SEAL_SIGNATURE_BYTES];
    if (step == WIRE_MASK_REVEAL && !seal_aggregator_signed(s))
        return 0;
    if (step == WIRE_MASK_REVEAL)
        bytes_put_u32(&w, (uint32_t)s->size_bytes);
    bytes_put(&w, s->bytes, s->size_bytes);
    bytes_put(&w, s->signature, SIGNER_BYTES);
    for (unsigned i = 0; step == WIRE_MASK_REVEAL && i < set_count(&s->seal.s); i++) {
        seal_signature_write(&s->signatures[i], one);
        bytes_put(&w, one, sizeof one);
    }
    ASSERT(!w.bad);
    return bytes_size(&w);
}

size_t aggregator_masks_body(const struct aggregator *a, unsigned fragment,
                             enum wire_mask_step step, uint8_t *out, size_t size)
{
    return step == WIRE_MASK_NONE ? 0 : step_body(&a->masks->seal[fragment], step, out, size);
}

static void answer_body(const struct seal_aggregator *s, enum wire_mask_step step,
                        struct wire_mask_answer *answer)
{
    answer->body_bytes = step_body(s, step, answer->body, sizeof answer->body);
    answer->answer.outcome = ROUND_NONE;
    if (!answer->body_bytes)
        aggregator_say(&answer->answer, ROUND_PENDING, "not signed by all sites yet");
}

static void step_sign(struct aggregator *a, const struct wire_mask *m,
                      struct wire_mask_answer *answer, unsigned site)
{
    struct seal_aggregator *s = step_seal(a, m, answer);
    struct seal_context c = context_of(a, m->fragment);
    struct seal_signature x;
    if (!s)
        return;
    if (!m->body_bytes) {
        answer_body(s, WIRE_MASK_SIGN, answer);
        return;
    }
    enum seal_answer said = seal_signature_read(&x, m->body, m->body_bytes);
    if (said == SEAL_ok)
        said = x.site == site ? seal_aggregator_signature(s, &c, a->o.signer, &x) : SEAL_malformed;
    answer_seal(answer, said);
}

static void step_reveal(struct aggregator *a, const struct wire_mask *m,
                        struct wire_mask_answer *answer, unsigned site)
{
    struct seal_aggregator *s = step_seal(a, m, answer);
    struct seal_seed seeds[SET_MAX];
    struct seal_reveal v = {.seeds = seeds};
    if (s && !m->body_bytes) {
        answer_body(s, WIRE_MASK_REVEAL, answer);
    } else if (s) {
        enum seal_answer said = seal_reveal_read(&v, m->body, m->body_bytes);
        if (said == SEAL_ok)
            said = v.site == site ? seal_aggregator_reveal(s, &v) : SEAL_malformed;
        answer_seal(answer, said);
    }
    cipher_wipe(seeds, sizeof seeds);
    cipher_wipe(&v, sizeof v);
}

void aggregator_mask(void *self, const char *peer, const struct wire_mask *m,
                     struct wire_mask_answer *answer)
{
    struct aggregator *a = self;
    struct round_event e = {.kind = ROUND_FETCH, .fragment = m->fragment, .round = m->round};
    int site = aggregator_call_step(a, peer, &m->head, ROLES_MASK, &e, &answer->answer);
    answer->body_bytes = 0;
    answer->number = 0;
    if (site < 0 || answer->answer.outcome != ROUND_NONE)
        return;
    if (!a->masks)
        refuse(answer, "this run has no secure aggregation (privacy.secure = off)");
    else if (m->step == WIRE_MASK_SETUP)
        step_setup(a, (unsigned)site, m, answer);
    else if (m->step == WIRE_MASK_ANNOUNCE)
        step_announce(a, m, answer);
    else if (m->step == WIRE_MASK_SIGN)
        step_sign(a, m, answer, (unsigned)site);
    else if (m->step == WIRE_MASK_REVEAL)
        step_reveal(a, m, answer, (unsigned)site);
    else
        refuse(answer, "no step of secure aggregation");
    if (answer->answer.outcome == ROUND_INVALID)
        aggregator_refused(a, site, peer, roles_call_name(ROLES_MASK), ROUND_INVALID,
                           answer->answer.text);
}

/* ---- the sum ---- */

/* Without the lock: seal and seeds do not change once all have revealed. */
enum err aggregator_masks_sum(struct aggregator *a, unsigned fragment,
                              const struct codec_payload *payloads, unsigned count,
                              struct masks_sum *out, struct arena *scratch)
{
    const struct codec *c = codec_get(outer_state_codec(a->replica, fragment));
    const struct seal_aggregator *s = &a->masks->seal[fragment];
    int threads = a->replica->dev->threads;
    struct mask_layout l;
    ASSERT(seal_aggregator_revealed(s) && count == set_count(&s->seal.s));
    TRY(aggregator_masks_layout(a, fragment, &l));
    uint8_t *words = arena_alloc(scratch, l.size_bytes);
    size_t terms_count = seal_aggregator_term_count(s);
    struct mask_term *terms = arena_array(scratch, terms_count, sizeof *terms);
    TRY_ALLOC(words && terms ? words : NULL);
    for (unsigned i = 0; i < count; i++) {
        ASSERT(payloads[i].size_bytes == l.size_bytes);
        mask_sum(words, payloads[i].data, &l, threads);
    }
    seal_aggregator_terms(s, terms);
    TRY(mask_apply(words, &l, terms, terms_count, threads));
    enum err e = masked_aggregate(out->data, &out->size_bytes, c, &l, words, count, threads);
    return e == ERR_PROTO ? err_set(ERR_DIVERGED, "the sum of the masked contributions is none of "
                                                  "integers in range: a site masks wrongly, and "
                                                  "nobody can say which")
                          : e;
}
