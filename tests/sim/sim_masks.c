/* SPDX-License-Identifier: Apache-2.0 */
/* Secure aggregation (docs/privacy-methods.md) as it looks from outside: which messages a site
 * sends and is shown, and what lies on the disks. The bytes of seals, signatures and answers are
 * read here once more, from that page. In every run, with all other faults in it:
 *   - a site sends one payload for a round, with masks of its own and of pairs that it never used
 *     before; all sites of a round mask for the same set; nothing leaves before it is stored
 *   - a site signs one seal of a round, and what all sites answer for is one seal: of the threshold
 *     at least, of payloads that were sent, signed by all of its sites before
 *   - of no site both its own mask and a mask of a pair are told
 *   - a site says nothing of a round that is over for it
 *   - no file of the aggregator holds a site's values, before masks
 *   - a commit includes the sites of that seal, after all of them have answered
 *   - keys of final rounds are wiped
 * Not in the schedules: copies of a site's directory, and sites that have lost their keys or the
 * record of what they have signed. The first signs twice, the others wait for an operator.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "outer/codec/bits.h"
#include "outer/masks/masked.h"
#include "outer/masks/seal.h"
#include "tests/sim/sim_own.h"

enum { SIGNATURE_BYTES = 4 + 32 + SIGNER_BYTES, REVEAL_HEAD_BYTES = 8 + 4 + 32 + 32 + 4 };
enum { SEED_BYTES = 4 + 32, WINDOW_BYTES = 24, WINDOW_DISTINCT = 12, WINDOWS_MAX = 4 };

struct sim_mask { /* of a contribution that was sent */
    struct sim_mask *next;
    struct digest pairs, own; /* of the sum of the pair masks; of the key of its own mask */
    unsigned site, fragment;
    uint64_t round;
};
struct sim_seal { /* that sites were shown */
    struct sim_seal *next;
    struct digest digest;
    const uint8_t *bytes;
    size_t size_bytes;
    struct set u, s;
};
struct sim_masked_round {
    bool any; /* a site has sent its contribution: u and codec are known */
    struct set u;
    const struct codec *codec;
    struct sim_seal *seals;
    struct digest signed_by[SIM_SITES_MAX]; /* zero: nothing */
    struct digest answered;                 /* the one seal that is answered for; zero: none */
    struct set revealed, own, pairs;        /* sites that have answered; whose own mask, of whom a
                                               pair's is told */
};

static struct sim_masked_round *round_of(struct sim *s, unsigned f, uint64_t round)
{
    struct sim_masked_round **r = &s->masked[f][round];
    if (!*r)
        *r = arena_alloc(&s->arena, sizeof **r);
    ASSERT(*r);
    return *r;
}

static bool sets_equal(const struct set *a, const struct set *b)
{
    return set_within(a, b) && set_within(b, a);
}

/* docs/privacy-methods.md, Threshold */
static unsigned threshold(const struct sim *s, unsigned n)
{
    unsigned c = s->o.colluding, once = (n + c) / 2 + 1;
    return c + 2 > once ? c + 2 : once;
}

unsigned sim_masks_least(const struct sim *s, unsigned n)
{
    return s->o.masked ? threshold(s, n) : n / 2 + 1;
}

/* ---- a contribution ---- */

/* The sections of a contribution's file, those of the masked bytes last: how they were made ends
 * with the key of its own mask. */
bool sim_box_read(const uint8_t *file, size_t size, struct sim_box *b)
{
    struct arena a = arena_make(0);
    size_t head = size < RECORD_START ? 0 : record_head_bytes(file, size), at = head;
    struct record r = {.section_count = 0};
    struct codec_payload found[5];
    bool whole = head && head <= size && record_head_sections(file, head, size, &r, &a) &&
                 (r.section_count == 4 || r.section_count == 5);
    for (size_t i = 0; whole && i < r.section_count; i++) {
        found[i] = (struct codec_payload){file + at, r.sections[i].size_bytes};
        at += found[i].size_bytes;
        whole = at <= size;
    }
    if (whole)
        *b = (struct sim_box){.payload = found[0],
                              .masked = found[r.section_count - 2],
                              .made = found[r.section_count - 1]};
    arena_free(&a);
    return whole;
}

struct words { /* of a contribution, before masks */
    struct mask_layout l;
    uint8_t *words;
};

static enum err words_of(const struct sim_node *n, unsigned f, uint64_t round, struct words *w,
                         struct arena *a)
{
    struct sim *s = n->sim;
    const struct sim_masked_round *r = round_of(s, f, round);
    TRY(masked_layout(&w->l, r->codec, s->fragments.f[f].elements, set_count(&r->u)));
    TRY_ALLOC(w->words = arena_alloc(a, w->l.size_bytes));
    masked_pack(w->words, &w->l, r->codec, n->plain[f][round].data, 1);
    return ERR_OK;
}

/* masked - words - own mask, of every word. */
static enum err pairs_of(const struct words *w, const uint8_t *masked, const struct cipher_key *own,
                         struct digest *out, bool *zero, struct arena *a)
{
    struct digest_stream d;
    const struct mask_layout *l = &w->l;
    uint8_t *rest = arena_alloc(a, l->size_bytes);
    const struct mask_term term = {.seed = own, .minus = true};
    TRY_ALLOC(rest);
    memcpy(rest, masked, l->size_bytes);
    TRY(mask_apply(rest, l, &term, 1, 1));
    *zero = true;
    digest_open(&d);
    for (unsigned p = 0; p < l->parts; p++) {
        size_t n = l->part[p].count;
        int64_t *with = arena_array(a, n, sizeof *with), *without = arena_array(a, n, sizeof *with);
        ASSERT(with && without);
        bits_unpack(with, rest + l->start[p], n, l->part[p].bits);
        bits_unpack(without, w->words + l->start[p], n, l->part[p].bits);
        for (size_t i = 0; i < n; i++) {
            uint64_t word = ((uint64_t)with[i] - (uint64_t)without[i]) << (64 - l->part[p].bits);
            *zero = *zero && !word;
            digest_add(&d, &word, sizeof word);
        }
    }
    *out = digest_close(&d);
    return ERR_OK;
}

static void mask_keep(struct sim_node *n, const struct wire_contribution *m, struct sim_mask *mask)
{
    struct sim *s = n->sim;
    for (const struct sim_mask *old = s->masks; old; old = old->next)
        if (digest_equal(&old->pairs, &mask->pairs) || digest_equal(&old->own, &mask->own))
            sim_violate(s,
                        "site %s masks fragment %u round %" PRIu64
                        " as site %u masked fragment %u round %" PRIu64,
                        n->name, m->fragment, m->round, old->site, old->fragment, old->round);
    mask->next = s->masks;
    s->masks = mask;
}

/* Its record of the round is on the medium, with these bytes. */
static void decided(struct sim_node *n, const struct digest *d, const char *what)
{
    size_t size;
    const uint8_t *file = env_faulty_medium(&n->env, "id/maskseals", &size);
    if (!file || !memmem(file, size, d->bytes, sizeof d->bytes))
        sim_violate(n->sim, "site %s %s before it has stored that", n->name, what);
}

/* All sites of a round mask for the same ones. */
static void announced_take(struct sim_node *n, const struct wire_contribution *m,
                           const struct set *u)
{
    struct sim *s = n->sim;
    struct sim_masked_round *r = round_of(s, m->fragment, m->round);
    if (r->any && !sets_equal(&r->u, u))
        sim_violate(s, "fragment %u round %" PRIu64 ": site %s masks for other sites than before",
                    m->fragment, m->round, n->name);
    r->any = true;
    r->u = *u;
    r->codec = codec_get(m->codec);
}

/* What it was before the masks is kept for the other checks. */
void sim_masks_sent(struct sim_node *n, const struct wire_contribution *m, const struct sim_box *b)
{
    struct sim *s = n->sim;
    struct sim_mask *mask = arena_alloc(&s->arena, sizeof *mask);
    uint8_t *copy = arena_alloc(&s->arena, b->payload.size_bytes);
    struct arena a = arena_make(0);
    struct seal_announce of;
    struct cipher_key own;
    struct words w;
    bool zero = false;
    ASSERT(mask && copy && b->made.size_bytes == 8 + sizeof of + sizeof of.u + sizeof own);
    memcpy(copy, b->payload.data, b->payload.size_bytes);
    n->plain[m->fragment][m->round] = (struct codec_payload){copy, b->payload.size_bytes};
    memcpy(&of, b->made.data + 8, sizeof of); /* after two numbers of the roster */
    memcpy(&own, b->made.data + 8 + sizeof of + sizeof of.u, sizeof own); /* the roster between */
    *mask = (struct sim_mask){.own = digest_of(&own, sizeof own),
                              .site = n->index,
                              .fragment = m->fragment,
                              .round = m->round};
    announced_take(n, m, &of.u);
    if (words_of(n, m->fragment, m->round, &w, &a) != ERR_OK ||
        w.l.size_bytes != b->masked.size_bytes)
        sim_violate(s, "site %s: what it sends has not the size of %u sites' words", n->name,
                    set_count(&of.u));
    else if (pairs_of(&w, b->masked.data, &own, &mask->pairs, &zero, &a) != ERR_OK || zero)
        sim_violate(s, "site %s sends without the masks of pairs", n->name);
    else
        mask_keep(n, m, mask);
    decided(n, &m->payload, "sends a contribution");
    arena_free(&a);
}

/* ---- nothing of it at the aggregator ---- */

struct windows { /* bytes of one site that must be nowhere */
    struct sim_aggregator *at;
    const uint8_t *bytes[WINDOWS_MAX];
    unsigned count;
    char found[256];
};

static void windows_add(struct windows *w, const uint8_t *data, size_t size)
{
    for (size_t at = 0; w->count < WINDOWS_MAX && at + WINDOW_BYTES <= size; at += WINDOW_BYTES) {
        struct set seen = {0};
        for (size_t i = 0; i < WINDOW_BYTES; i++)
            set_put(&seen, data[at + i], true);
        if (set_count(&seen) >= WINDOW_DISTINCT) {
            w->bytes[w->count++] = data + at;
            at += size / 3;
        }
    }
}

static void windows_see(void *self, const char *path)
{
    struct windows *w = self;
    size_t size;
    const uint8_t *file = disk_sim_look(&w->at->env.disk, path, &size);
    for (unsigned i = 0; i < w->count; i++)
        if (memmem(file, size, w->bytes[i], WINDOW_BYTES))
            snprintf(w->found, sizeof w->found, "%s", path);
}

/* Codes of blocks are in every aggregate; only what is after them is one site's. */
void sim_masks_seek(struct sim_aggregator *at, const struct sim_node *n, unsigned f, uint64_t round)
{
    struct sim *s = at->sim;
    struct codec_payload plain = n->plain[f][round];
    struct windows w = {.at = at};
    struct arena a = arena_make(0);
    struct words before;
    size_t codes = s->fragments.f[f].elements / DEV_BLOCK;
    if (!plain.data)
        return;
    windows_add(&w, plain.data + codes, plain.size_bytes - codes);
    w.count = w.count > WINDOWS_MAX / 2 ? WINDOWS_MAX / 2 : w.count;
    if (words_of(n, f, round, &before, &a) == ERR_OK) {
        size_t from = before.l.start[before.l.parts - 1];
        windows_add(&w, before.words + from, before.l.size_bytes - from);
    }
    disk_sim_each(&at->env.disk, windows_see, &w);
    s->r->sought += w.count;
    if (*w.found)
        sim_violate(s, "%s holds values of site %s, fragment %u round %" PRIu64 ", without masks",
                    w.found, n->name, f, round);
    arena_free(&a);
}

/* ---- seals ---- */

static struct sim_seal *seal_find(const struct sim_masked_round *r, const struct digest *d)
{
    struct sim_seal *x = r->seals;
    while (x && !digest_equal(&x->digest, d))
        x = x->next;
    return x;
}

static void set_take(struct bytes_reader *b, struct set *out, unsigned sites)
{
    const uint8_t *bits = bytes_view(b, (sites + 7) / 8);
    for (unsigned i = 0; !b->bad && i < sites; i++)
        set_put(out, i, bits[i / 8] >> i % 8 & 1);
}

/* A seal's bytes. False: not one of this run's, of this round. */
static bool seal_bytes_read(const struct sim *s, struct sim_seal *x, const struct wire_mask *m,
                            struct digest payload[SIM_SITES_MAX])
{
    struct bytes_reader b = bytes_reader(x->bytes, x->size_bytes);
    const struct digest config = digest_of(s->canonical, strlen(s->canonical));
    const uint8_t *magic = bytes_view(&b, 8);
    bool good = !b.bad && !memcmp(magic, "atollSQ1", 8);
    size_t name = bytes_get_u16(&b);
    const uint8_t *run = bytes_view(&b, name);
    good = good && !b.bad && name == 3 && !memcmp(run, "sim", 3);
    const uint8_t *digest = bytes_view(&b, 32);
    good = good && !b.bad && !memcmp(digest, config.bytes, 32);
    (void)bytes_get_u32(&b); /* version of the roster */
    unsigned sites = bytes_get_u32(&b);
    (void)bytes_get_u64(&b); /* term */
    uint32_t fragment = bytes_get_u32(&b);
    uint64_t round = bytes_get_u64(&b);
    (void)bytes_get_u32(&b); /* attempt */
    good = good && !b.bad && sites <= s->o.sites && fragment == m->fragment && round == m->round;
    if (!good)
        return false;
    set_take(&b, &x->u, sites);
    set_take(&b, &x->s, sites);
    for (unsigned i = 0; i < sites; i++)
        if (set_has(&x->s, i))
            bytes_get(&b, payload[i].bytes, sizeof payload[i].bytes);
    return !b.bad && !bytes_left(&b);
}

/* Before a site sees it: its file, and the record with its digest. */
static void seal_durable(struct sim_aggregator *at, const struct sim_seal *x,
                         const struct wire_mask *m)
{
    char path[64];
    size_t size, journal_size;
    snprintf(path, sizeof path, "spool/%u/%" PRIu64 "/seal", m->fragment, m->round);
    const uint8_t *file = env_faulty_medium(&at->env, path, &size),
                  *journal = env_faulty_medium(&at->env, "journal", &journal_size);
    if (!file || !memmem(file, size, x->bytes, x->size_bytes))
        sim_violate(at->sim, "%s: a site is shown a seal that is not durable", path);
    if (!journal || !memmem(journal, journal_size, x->digest.bytes, sizeof x->digest.bytes))
        sim_violate(at->sim, "%s: a site is shown a seal without a durable record", path);
}

static void seal_check(struct sim_aggregator *at, struct sim_seal *x, const struct wire_mask *m)
{
    struct sim *s = at->sim;
    struct sim_masked_round *r = round_of(s, m->fragment, m->round);
    struct digest payload[SIM_SITES_MAX];
    unsigned members[SIM_SITES_MAX], n = sim_roster_members(s, m->fragment, m->round, members);
    if (!seal_bytes_read(s, x, m, payload)) {
        sim_violate(s, "fragment %u round %" PRIu64 ": a seal that is not one", m->fragment,
                    m->round);
        return;
    }
    if (r->seals && !sim_parted(s))
        sim_violate(s, "fragment %u round %" PRIu64 ": a second seal is shown", m->fragment,
                    m->round);
    if (!sets_equal(&x->u, &r->u) || !set_within(&x->s, &x->u) ||
        set_count(&x->s) < (s->o.strict ? n : threshold(s, n)))
        sim_violate(s, "fragment %u round %" PRIu64 ": a seal of %u of %u sites", m->fragment,
                    m->round, set_count(&x->s), set_count(&x->u));
    for (unsigned i = 0; i < s->o.sites; i++)
        if (set_has(&x->s, i) && !sim_sent(s, i, m->fragment, m->round, &payload[i]).data)
            sim_violate(s,
                        "fragment %u round %" PRIu64 ": site %u is sealed with bytes it never sent",
                        m->fragment, m->round, i);
    x->next = r->seals;
    r->seals = x;
    s->r->sealed++;
}

/* What is sealed and not committed is a moment: without this few processes end in it. */
static void killed(struct sim *s, struct env_faulty *w, const struct wire_mask *m)
{
    bool seal = m->step == WIRE_MASK_SIGN || m->step == WIRE_MASK_REVEAL;
    if (!w->disk.dead && (seal || !(s->o.leaning.seals > 0)) &&
        sim_strikes(&s->clock, s->mask_kills, "kill, in a step of secure aggregation", w->name))
        env_faulty_crash(w);
}

void sim_masks_masked(void *self, void *site, const struct wire_mask *m,
                      const struct wire_mask_answer *a)
{
    struct sim_aggregator *at = self;
    struct sim *s = at->sim;
    (void)site;
    killed(s, &at->env, m);
    if (m->step != WIRE_MASK_SIGN || m->body_bytes || a->answer.outcome != ROUND_NONE)
        return;
    if (a->body_bytes <= SIGNER_BYTES) {
        sim_violate(s, "fragment %u round %" PRIu64 ": no seal", m->fragment, m->round);
        return;
    }
    size_t size = a->body_bytes - SIGNER_BYTES;
    struct digest d = digest_of(a->body, size);
    struct sim_seal *x = seal_find(round_of(s, m->fragment, m->round), &d);
    if (!x) {
        x = arena_alloc(&s->arena, sizeof *x);
        uint8_t *copy = arena_alloc(&s->arena, size);
        ASSERT(x && copy);
        memcpy(copy, a->body, size);
        *x = (struct sim_seal){.digest = d, .bytes = copy, .size_bytes = size};
        seal_check(at, x, m);
    }
    if (!s->clock.halted)
        seal_durable(at, x, m);
}

/* ---- what a site says of a seal ---- */

static void saw_signature(struct sim_node *n, const struct wire_mask *m)
{
    struct sim *s = n->sim;
    struct sim_masked_round *r = round_of(s, m->fragment, m->round);
    struct bytes_reader b = bytes_reader(m->body, m->body_bytes);
    struct digest d, *own = &r->signed_by[n->index];
    uint32_t site = bytes_get_u32(&b);
    bytes_get(&b, d.bytes, sizeof d.bytes);
    if (b.bad || m->body_bytes != SIGNATURE_BYTES || site != n->index) {
        sim_violate(s, "site %s: a signature that is not one", n->name);
        return;
    }
    if (!seal_find(r, &d))
        sim_violate(s, "site %s signs what it was not shown", n->name);
    if (!digest_zero(own) && !digest_equal(own, &d))
        sim_violate(s, "site %s signs two seals of fragment %u round %" PRIu64, n->name,
                    m->fragment, m->round);
    *own = d;
    for (unsigned i = 0; !sim_parted(s) && i < s->o.sites; i++)
        if (!digest_zero(&r->signed_by[i]) && !digest_equal(&r->signed_by[i], &d))
            sim_violate(s, "sites %u and %s sign two seals of fragment %u round %" PRIu64, i,
                        n->name, m->fragment, m->round);
    decided(n, &d, "signs a seal");
}

/* Seal and signatures are kept, so that a person can prove later what left the site. */
static void evidence(struct sim_node *n, const struct sim_seal *x, const struct wire_mask *m)
{
    char path[64];
    size_t size;
    snprintf(path, sizeof path, "seals/%u/%" PRIu64, m->fragment, m->round);
    const uint8_t *file = env_faulty_medium(&n->env, path, &size);
    if (!file || !memmem(file, size, x->bytes, x->size_bytes))
        sim_violate(n->sim, "site %s answers for a seal without %s", n->name, path);
}

static void saw_reveal(struct sim_node *n, const struct wire_mask *m)
{
    struct sim *s = n->sim;
    struct sim_masked_round *r = round_of(s, m->fragment, m->round);
    struct bytes_reader b = bytes_reader(m->body, m->body_bytes);
    struct digest d;
    const uint8_t *magic = bytes_view(&b, 8);
    uint32_t site = bytes_get_u32(&b);
    bytes_get(&b, d.bytes, sizeof d.bytes);
    (void)bytes_view(&b, 32); /* its own mask's key */
    uint32_t count = bytes_get_u32(&b);
    if (b.bad || memcmp(magic, "atollSR1", 8) != 0 || site != n->index ||
        m->body_bytes != REVEAL_HEAD_BYTES + (size_t)count * SEED_BYTES) {
        sim_violate(s, "site %s: an answer that is not one", n->name);
        return;
    }
    const struct sim_seal *x = seal_find(r, &d);
    if (!x || !digest_equal(&r->signed_by[n->index], &d) || !set_has(&x->s, n->index)) {
        sim_violate(s, "site %s answers for a seal that it has not signed", n->name);
        return;
    }
    if (!digest_zero(&r->answered) && !digest_equal(&r->answered, &d))
        sim_violate(s, "fragment %u round %" PRIu64 ": two seals are answered for", m->fragment,
                    m->round);
    for (unsigned i = 0; i < s->o.sites; i++)
        if (set_has(&x->s, i) && !digest_equal(&r->signed_by[i], &d))
            sim_violate(s, "site %s answers for a seal that site %u has not signed", n->name, i);
    r->answered = d;
    set_put(&r->revealed, n->index, true);
    set_put(&r->own, n->index, true);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t other = bytes_get_u32(&b);
        (void)bytes_view(&b, 32);
        if (other >= s->o.sites || !set_has(&x->u, other) || set_has(&x->s, other))
            sim_violate(s, "site %s tells its mask with site %" PRIu32, n->name, other);
        else
            set_put(&r->pairs, other, true);
    }
    for (unsigned i = 0; i < s->o.sites; i++)
        if (set_has(&r->own, i) && set_has(&r->pairs, i))
            sim_violate(s, "fragment %u round %" PRIu64 ": both masks of site %u are told",
                        m->fragment, m->round, i);
    decided(n, &d, "answers for a seal");
    evidence(n, x, m);
}

void sim_masks_masking(void *self, void *site, const struct wire_mask *m)
{
    struct sim_node *n = site;
    (void)self;
    killed(n->sim, &n->env, m);
    if (!m->body_bytes || (m->step != WIRE_MASK_SIGN && m->step != WIRE_MASK_REVEAL))
        return;
    if (n->replica.state[m->fragment].round != m->round)
        sim_violate(n->sim, "site %s speaks of fragment %u round %" PRIu64 ", which is over for it",
                    n->name, m->fragment, m->round);
    else if (m->step == WIRE_MASK_SIGN)
        saw_signature(n, m);
    else
        saw_reveal(n, m);
}

/* ---- commits, and the end ---- */

void sim_masks_committed(struct sim_aggregator *at, unsigned f, const struct manifest *m)
{
    struct sim *s = at->sim;
    struct sim_masked_round *r = round_of(s, f, m->round);
    struct set included = {0}, members = {0};
    for (unsigned i = 0; i < m->site_count; i++) {
        set_put(&members, m->sites[i].site, true);
        set_put(&included, m->sites[i].site, m->sites[i].included);
    }
    for (unsigned i = 0; i < s->nodes; i++)
        sim_masks_seek(at, &s->node[i], f, m->round);
    if (manifest_aborted(m)) {
        s->r->unsealed += r->seals != NULL;
        return;
    }
    const struct sim_seal *x = seal_find(r, &r->answered);
    if (!x || !sets_equal(&x->s, &included) || !set_within(&included, &r->revealed))
        sim_violate(s, "fragment %u round %" PRIu64 ": included are others than have answered", f,
                    m->round);
    else if (!sets_equal(&members, &x->u) && !sim_roster_waits(s, &members, &x->u))
        sim_violate(s, "fragment %u round %" PRIu64 ": the sealed roster is another", f, m->round);
    s->r->absent += set_count(&r->pairs);
}

/* Rounds of the pair keys on a site's disk: section 2 of the record, [sites][fragments]; in section
 * 1 36 bytes a site begin with the number of its setup, 0: no pair. */
static void wiped_check(struct sim_node *n, const uint64_t *final)
{
    struct sim *s = n->sim;
    struct arena a = arena_make(0);
    struct record r = {.section_count = 0};
    size_t size, head = 0;
    const uint8_t *file = env_faulty_look(&n->env, "id/maskkeys", &size);
    head = file && size >= RECORD_START ? record_head_bytes(file, size) : 0;
    if (head && record_head_sections(file, head, size, &r, &a) && r.section_count == 3) {
        const uint8_t *pairs = file + head + r.sections[0].size_bytes;
        const uint8_t *rounds = pairs + r.sections[1].size_bytes;
        for (unsigned i = 0; i < s->o.sites; i++)
            for (unsigned f = 0; f < s->o.fragments; f++) {
                uint32_t setup;
                uint64_t round;
                memcpy(&setup, pairs + (size_t)36 * i, sizeof setup);
                memcpy(&round, rounds + 8 * ((size_t)i * s->o.fragments + f), sizeof round);
                if (setup && round < final[f])
                    sim_violate(s,
                                "site %s ends with a key of fragment %u round %" PRIu64
                                ", and rounds before %" PRIu64 " are final",
                                n->name, f, round, final[f]);
            }
    }
    arena_free(&a);
}

/* A round that includes sites ends those before it, at every site that has adopted it. */
void sim_masks_end(struct sim *s)
{
    struct sim_aggregator *at = &s->aggregator[0];
    uint64_t final[SIM_FRAGMENTS_MAX] = {0};
    for (unsigned f = 0; f < s->o.fragments; f++)
        for (uint64_t t = 0; t < at->committed[f]; t++)
            if (!manifest_aborted(&at->commits[f][t]->manifest))
                final[f] = t;
    for (unsigned i = 0; i < s->o.sites && !s->clock.halted; i++)
        if (!sim_roster_left(&s->node[i]) && !sim_roster_never(&s->node[i]))
            wiped_check(&s->node[i], final);
}
