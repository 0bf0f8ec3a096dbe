/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold in every run (docs/protocol.md 4), from the outside: messages as
 * they pass, files as they lie on the simulated disks.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "tests/sim/sim_own.h"

enum { FIXED_BITS = 100 };

/* Exact, or a violation: the toy's values lie between 2^-70 and 2^20. From the bits: frexp and
 * ldexp took a tenth of a run. */
sim_fixed sim_fixed_of(struct sim *s, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int e = (int)(bits >> 52 & 0x7ff), shift = e - 1075 + FIXED_BITS;
    int64_t mantissa = (int64_t)((bits & ((1ull << 52) - 1)) | 1ull << 52);
    if (!(bits << 1))
        return 0;
    mantissa = bits >> 63 ? -mantissa : mantissa;
    if (shift >= 0 && shift < 70)
        return (sim_fixed)mantissa * ((sim_fixed)1 << shift);
    if (shift < 0 && shift > -53 && !(mantissa & (((int64_t)1 << -shift) - 1)))
        return mantissa / ((int64_t)1 << -shift);
    sim_violate(s, "a value of %g is outside of what the books can hold", x);
    return 0;
}

static const struct codec *codec_at(const struct sim_aggregator *history, unsigned f,
                                    uint64_t round)
{
    uint8_t ratio = round ? manifest_residual_ratio(&history->commits[f][round - 1]->manifest) : 0;
    return codec_get(schedule_codec(&history->sim->schedule, f, round, ratio));
}

/* A record's bytes before its sections (kernels/base/record.h). */
static size_t head_bytes(const uint8_t *record)
{
    struct bytes_reader r = bytes_reader(record + 16, 8);
    return bytes_get_u64(&r);
}

static uint32_t sections_of(const uint8_t *record)
{
    struct bytes_reader r = bytes_reader(record + 12, 4);
    return bytes_get_u32(&r);
}

static float *decoded(struct sim *s, const struct codec *c, unsigned f, uint64_t round,
                      struct codec_payload payload, const uint8_t *grid, struct arena *a)
{
    size_t n = s->fragments.f[f].elements;
    float *values = arena_array(a, n, sizeof *values);
    ASSERT(values);
    if (c->check(c, &(struct codec_call){.count = n}, NULL, payload.data, payload.size_bytes) !=
            ERR_OK ||
        c->decode(c, &(struct codec_call){.work = s->work, .grid = grid, .count = n}, values,
                  payload.data, payload.size_bytes) != ERR_OK)
        sim_violate(s, "a payload of round %" PRIu64 " does not decode", round);
    return values;
}

float *sim_decoded(struct sim *s, const struct sim_aggregator *history, unsigned f, uint64_t round,
                   struct codec_payload payload, const uint8_t *grid, struct arena *a)
{
    return decoded(s, codec_at(history, f, round), f, round, payload, grid, a);
}

/* ---- the outbox: what a site trained ---- */

/* Theta that the round's delta is taken against, as the site's disk or memory has it. */
static const float *base_of(struct sim_node *n, unsigned f, uint64_t round)
{
    uint64_t base = schedule_base(&n->sim->schedule, f, round);
    char path[64];
    size_t size;
    if (n->sim->schedule.eager) /* what its trainer really began at */
        return n->base + n->sim->first[f];
    snprintf(path, sizeof path, "frag/%u/%" PRIu64 "/state", f, base);
    const uint8_t *kept = base < round ? env_faulty_look(&n->env, path, &size) : NULL;
    return kept ? (const float *)(const void *)(kept + head_bytes(kept))
                : n->replica.state[f].theta;
}

/* z - residual before = the weighted delta, and what is sent + what is kept = z (I3). */
static void book_trained(struct sim_node *n, unsigned f, uint64_t round, const uint8_t *data,
                         size_t size)
{
    struct sim *s = n->sim;
    const struct outer_state_fragment *state = &n->replica.state[f];
    const struct sim_made *before = sim_made_newest(n, f, round);
    struct sim_made *made = sim_made_add(n, f, round, &state->manifest, false);
    struct arena a = arena_make(0);
    bool discards = schedule_discards(&s->schedule, s->o.error_feedback_decay);
    float kept;
    double lost;
    size_t count = s->fragments.f[f].elements;
    struct sim_box box = {.masked = {NULL, 0}};
    /* Without masks it is of a round that is over, and must never be sent. */
    unsigned sections = sections_of(data) - (sim_box_read(data, size, &box) ? 2 : 0);
    size_t charged = sections > 2 ? 8 : 0; /* of a site with a privacy budget */
    size_t own = count * (sizeof kept + (discards ? sizeof lost : 0)) + charged +
                 box.masked.size_bytes + box.made.size_bytes + head_bytes(data);
    size_t payload = size > own ? size - own : 0;
    data += head_bytes(data);
    const float *residual = (const float *)(const void *)(data + payload);
    const double *discarded = (const double *)(const void *)(residual + count);
    const struct codec *c =
        codec_get(schedule_codec(&s->schedule, f, round, state->residual_ratio));
    float *sent = decoded(s, c, f, round, (struct codec_payload){data, payload}, state->codes, &a);
    const float *base = base_of(n, f, round), *local = n->sent + s->first[f];
    for (size_t i = 0; i < count && !s->clock.halted; i++) {
        memcpy(&kept, &residual[i], sizeof kept);
        sim_fixed trained =
            sim_fixed_of(s, sent[i]) + sim_fixed_of(s, kept) - sim_fixed_of(s, state->residual[i]);
        if (discards) {
            memcpy(&lost, &discarded[i], sizeof lost);
            trained += sim_fixed_of(s, lost) - sim_fixed_of(s, state->discarded[i]);
        }
        double delta = (double)n->weight * ((double)base[i] - (double)local[i]);
        if (!before && !(s->schedule.eager && n->given_up) &&
            fabs(ldexp((double)trained, -FIXED_BITS) - delta) > 1e-6)
            sim_violate(s, "site %s round %" PRIu64 " element %zu: trained %g, booked %g", n->name,
                        round, i, delta, ldexp((double)trained, -FIXED_BITS));
        n->trained[s->first[f] + i] += before ? 0 : trained;
        made->trained[i] = trained;
    }
    if (before)
        sim_made_compare(n, before, made);
    arena_free(&a);
}

/* Only a site that has given up a round makes a second contribution, for another parent. */
static bool may_make(const struct sim_node *n, unsigned f, uint64_t round)
{
    const struct sim *s = n->sim;
    bool two = s->o.second != SIM_COPY_NONE && !s->o.strict;
    return !sim_made_newest(n, f, round) ||
           (two && !sim_made(n, f, round, &n->replica.state[f].manifest));
}

void sim_wrote(void *self, struct env_faulty *w, const char *path, const uint8_t *data, size_t n)
{
    struct sim_node *node = self;
    unsigned f;
    uint64_t round;
    char last;
    (void)w;
    /* the last file before a round is given up */
    if (*path == 'f' && sscanf(path, "final/%u", &f) == 1)
        sim_copies_given_up(node, f);
    if (*path == 'f' && sscanf(path, "frag/%u/%20" SCNu64 "/stat%c", &f, &round, &last) == 3 &&
        round)
        sim_made_carried(node, f, round - 1, data, n);
    if (*path != 'o' || sscanf(path, "outbox/%u/%20" SCNu64, &f, &round) != 2)
        return;
    if (!may_make(node, f, round))
        sim_violate(node->sim, "site %s made a second contribution to fragment %u round %" PRIu64,
                    node->name, f, round);
    else
        book_trained(node, f, round, data, n);
}

/* A fragment's contribution that was made last, while it lies in the outbox; else NULL. */
static struct sim_made *in_outbox(const struct sim_node *n, unsigned f)
{
    struct sim_made *m = n->made;
    char path[64];
    size_t size;
    while (m && (m->fragment != f || m->carried || m->lost))
        m = m->next;
    if (!m)
        return NULL;
    snprintf(path, sizeof path, "outbox/%u/%" PRIu64, f, m->round);
    const uint8_t *file = env_faulty_look(&n->env, path, &size);
    return file && memmem(file, head_bytes(file), m->parent.bytes, sizeof m->parent.bytes) ? m
                                                                                           : NULL;
}

/* A contribution that went with the power was never stored, and is not booked: its site makes
 * another one, or none. */
void sim_site_restart(struct sim_node *n)
{
    struct sim *s = n->sim;
    struct sim_made *there[SIM_FRAGMENTS_MAX];
    for (unsigned f = 0; f < s->o.fragments; f++)
        there[f] = in_outbox(n, f);
    env_faulty_restart(&n->env);
    for (unsigned f = 0; f < s->o.fragments; f++) {
        struct sim_made *m = there[f];
        if (!m || in_outbox(n, f) == m)
            continue;
        if (n->payload[f][m->round].data &&
            digest_equal(&n->payload_parent[f][m->round], &m->parent))
            sim_violate(s, "site %s has lost what it sent to fragment %u round %" PRIu64, n->name,
                        f, m->round);
        m->lost = true;
        for (size_t i = 0; !sim_made_newest(n, f, m->round) && i < s->fragments.f[f].elements; i++)
            n->trained[s->first[f] + i] -= m->trained[i];
    }
}

/* ---- messages ---- */

static void saw_hello(void *self, void *site, const struct wire_hello *m,
                      const struct wire_hello_answer *a)
{
    struct sim_aggregator *at = self;
    struct sim *s = at->sim;
    struct sim_node *n = site;
    (void)m;
    if (a->outcome == ROUND_DIVERGED)
        sim_violate(s, "site %s has another state than the aggregator", n->name);
    s->r->stepped_back += a->outcome == ROUND_STEP_BACK;
    bool bound = a->outcome == ROUND_CURRENT || a->outcome == ROUND_BEHIND ||
                 a->outcome == ROUND_JOIN || a->outcome == ROUND_STEP_BACK;
    if (bound && a->term > n->hello_term[at->index])
        n->hello_term[at->index] = a->term;
}

static void offer_keep(struct sim_node *n, struct codec_payload payload, struct sim_said said)
{
    struct sim_offer *o = arena_alloc(&n->sim->arena, sizeof *o);
    ASSERT(o);
    *o = (struct sim_offer){n->offers, digest_of(payload.data, payload.size_bytes), payload, said};
    n->offers = o;
}

static struct sim_said said_in(const struct wire_contribution *m)
{
    return (struct sim_said){m->data_cursor, m->charged, m->residual_ratio};
}

/* A lying site offers what it likes; what of it may be accepted is found again by its digest. */
static void liar_offered(struct sim_node *n, const struct wire_contribution *m,
                         const uint8_t *payload)
{
    enum { LARGEST = 1 << 20 };
    if (m->payload_bytes > LARGEST)
        return;
    uint8_t *copy = arena_alloc(&n->sim->arena, m->payload_bytes);
    ASSERT(copy);
    memcpy(copy, payload, m->payload_bytes);
    offer_keep(n, (struct codec_payload){copy, m->payload_bytes}, said_in(m));
}

/* The file of the outbox has these bytes. */
static bool stored_so(const struct sim *s, const uint8_t *file, size_t size,
                      const struct wire_contribution *m, const uint8_t *payload,
                      struct sim_box *box)
{
    struct codec_payload sent;
    if (!file)
        return false;
    size_t head = head_bytes(file);
    if (s->o.masked && !sim_box_read(file, size, box))
        return false;
    sent = s->o.masked ? box->masked : (struct codec_payload){file + head, size - head};
    return sent.size_bytes >= m->payload_bytes && !memcmp(sent.data, payload, m->payload_bytes);
}

/* I7, and bytes before words. */
static void saw_offered(void *self, void *site, const struct wire_contribution *m,
                        const uint8_t *payload)
{
    struct sim *s = ((struct sim_aggregator *)self)->sim;
    struct sim_node *n = site;
    struct sim_box box = {.masked = {NULL, 0}};
    char path[64];
    size_t size;
    snprintf(path, sizeof path, "outbox/%u/%" PRIu64, m->fragment, m->round);
    if (n->liar) {
        liar_offered(n, m, payload);
        return;
    }
    const uint8_t *stored = env_faulty_medium(&n->env, path, &size);
    if (!stored_so(s, stored, size, m, payload, &box)) {
        sim_violate(s, "site %s sends what it has not stored", n->name);
        return;
    }
    struct codec_payload *first = &n->payload[m->fragment][m->round];
    struct digest *parent = &n->payload_parent[m->fragment][m->round];
    if (first->data && !digest_equal(parent, &m->parent) &&
        sim_made(n, m->fragment, m->round, &m->parent)) {
        offer_keep(n, *first, n->said[m->fragment][m->round]);
        *first = (struct codec_payload){NULL, 0};
    }
    if (first->data &&
        (first->size_bytes != m->payload_bytes || memcmp(first->data, payload, m->payload_bytes)))
        sim_violate(s, "site %s sends other bytes for fragment %u round %" PRIu64, n->name,
                    m->fragment, m->round);
    if (first->data)
        return;
    uint8_t *copy = arena_alloc(&s->arena, m->payload_bytes);
    ASSERT(copy);
    memcpy(copy, payload, m->payload_bytes);
    *first = (struct codec_payload){copy, m->payload_bytes};
    *parent = m->parent;
    n->said[m->fragment][m->round] = said_in(m);
    if (s->o.masked)
        sim_masks_sent(n, m, &box);
}

/* I6: a receipt promises the payload and its record. */
static void saw_answered(void *self, void *site, const struct wire_contribution *m,
                         const struct wire_answer *a)
{
    struct sim_aggregator *at = self;
    struct sim *s = at->sim;
    char path[256], hex[65];
    size_t size;
    if (a->outcome != ROUND_RECEIPT)
        return;
    digest_hex(&m->payload, hex);
    snprintf(path, sizeof path, "spool/%u/%" PRIu64 "/%s.%s", m->fragment, m->round, m->head.site,
             hex);
    const uint8_t *spool = env_faulty_medium(&at->env, path, &size);
    struct digest d = digest_of(spool, size);
    if (!spool || !digest_equal(&d, &m->payload))
        sim_violate(s, "a receipt for %s without a durable payload", path);
    const uint8_t *journal = env_faulty_medium(&at->env, "journal", &size);
    if (!journal || !memmem(journal, size, m->payload.bytes, sizeof m->payload.bytes))
        sim_violate(s, "a receipt for %s without a durable record", path);
    if (s->o.split)
        sim_copies_receipt(at, site, m->fragment, m->round);
    if (s->o.leaning.silent)
        sim_roster_receipt(site, m->fragment, m->round);
    if (s->o.masked)
        sim_masks_seek(at, site, m->fragment, m->round);
}

static void saw_fetching(void *self, void *site, const struct wire_fetch *m)
{
    struct sim *s = ((struct sim_aggregator *)self)->sim;
    struct sim_node *n = site;
    if (m->what != WIRE_SNAPSHOT)
        return;
    s->r->snapshots++;
    n->void_books = true;
    if (s->o.strict && m->round > n->env.rot.rotten)
        n->env.rot.rotten = m->round; /* the state before it is not here: damaged, the site is as
                                     one whose disk is lost, and I1 does not hold */
}

/* ---- commits ---- */

static bool said_so(const struct manifest_entry *e, const struct sim_said *x)
{
    return e->data_cursor == x->data_cursor && e->charged == x->charged &&
           e->residual_ratio == x->residual_ratio;
}

/* What a site offered with these bytes. entry: with what it says next to them, too, since copies of
 * a site may send the same bytes and have charged another number of steps; NULL: the first one. */
static struct sim_offer sent_first(const struct sim *s, unsigned site, unsigned f, uint64_t round,
                                   const struct digest *payload, const struct manifest_entry *entry)
{
    for (const struct sim_offer *o = s->node[site].offers; o; o = o->next)
        if (digest_equal(&o->digest, payload) && (!entry || said_so(entry, &o->said)))
            return *o;
    for (unsigned i = 0; i < s->nodes; i++) {
        const struct sim_node *n = &s->node[i];
        const struct codec_payload *sent = &n->payload[f][round];
        if (n->index != site || !sent->data || (entry && !said_so(entry, &n->said[f][round])))
            continue;
        struct digest d = digest_of(sent->data, sent->size_bytes);
        if (digest_equal(&d, payload))
            return (struct sim_offer){.digest = d,
                                      .payload = s->o.masked ? n->plain[f][round] : *sent,
                                      .said = n->said[f][round]};
    }
    return (struct sim_offer){.payload = {NULL, 0}};
}

struct codec_payload sim_sent(const struct sim *s, unsigned site, unsigned f, uint64_t round,
                              const struct digest *payload)
{
    return sent_first(s, site, f, round, payload, NULL).payload;
}

static uint64_t hello_term(const struct sim_aggregator *at, unsigned site)
{
    const struct sim *s = at->sim;
    uint64_t most = 0;
    for (unsigned i = 0; i < s->nodes; i++)
        if (s->node[i].index == site && s->node[i].hello_term[at->index] > most)
            most = s->node[i].hello_term[at->index];
    return most;
}

/* A block whose masked integers add up to 0 is not in the aggregate; what it decodes to is the
 * same. */
static bool sums_same(struct sim *s, const struct codec *codec, size_t n,
                      const struct sim_commit *c, struct codec_payload sum)
{
    const struct manifest *m = &c->manifest;
    const struct codec_payload both[2] = {sum, {c->aggregate, m->aggregate_bytes}};
    struct arena a = arena_make(0);
    float *mean[2];
    uint8_t *grid[2];
    bool same = true;
    for (unsigned i = 0; i < 2; i++) {
        const struct codec_aggregate in = {both[i].data, both[i].size_bytes, manifest_included(m),
                                           manifest_weight(m)};
        mean[i] = arena_array(&a, n, sizeof *mean[i]);
        grid[i] = arena_alloc(&a, n / DEV_BLOCK);
        ASSERT(mean[i] && grid[i]);
        same =
            same &&
            codec->mean(codec, &(struct codec_call){.work = s->work, .grid = c->grid, .count = n},
                        mean[i], grid[i], &in) == ERR_OK;
    }
    same = same && !memcmp(mean[0], mean[1], n * sizeof *mean[0]) &&
           !memcmp(grid[0], grid[1], n / DEV_BLOCK);
    arena_free(&a);
    return same;
}

/* I4: the aggregate is the sum of what the sites first sent, each once, by the codec's own sum and
 * by integers. */
static void check_sum(struct sim_aggregator *at, unsigned f, struct sim_commit *c)
{
    struct sim *s = at->sim;
    const struct manifest *m = &c->manifest;
    const struct codec *codec = codec_at(at, f, m->round);
    size_t n = s->fragments.f[f].elements;
    struct codec_payload payloads[SIM_SITES_MAX];
    struct arena a = arena_make(0);
    unsigned k = 0;
    for (unsigned i = 0; i < m->site_count; i++)
        if (m->sites[i].included)
            payloads[k++] = sim_sent(s, m->sites[i].site, f, m->round, &m->sites[i].payload);
    if (schedule_compresses_downlink(&s->schedule, codec->kind, k))
        return; /* one payload: book_included holds it against the sum */
    uint8_t *sum = arena_alloc(&a, codec->aggregate_max(codec, n, k));
    size_t size;
    ASSERT(sum);
    if (codec->aggregate(codec, &(struct codec_call){.work = s->work, .count = n}, sum, &size,
                         payloads, k) != ERR_OK ||
        ((size != m->aggregate_bytes || memcmp(sum, c->aggregate, size)) &&
         !(s->o.masked && sums_same(s, codec, n, c, (struct codec_payload){sum, size}))))
        sim_violate(
            s, "fragment %u round %" PRIu64 ": the aggregate is not the sum of the contributions",
            f, m->round);
    arena_free(&a);
}

/* A state on the aggregator's disk: the grid of the next round, then what is the aggregator's own.
 */
struct sim_state {
    const uint8_t *grid;
    const float *residual;   /* NULL: no downlink compression */
    const double *discarded; /* NULL: it discards nothing */
};

static struct sim_state state_of(const struct sim *s, unsigned f, const uint8_t *data, size_t size)
{
    struct outer_state_options o = sim_member_options(s, false);
    size_t n = s->fragments.f[f].elements;
    const uint8_t *end = data + size, *discarded = end - o.discards * n * sizeof(double);
    const uint8_t *residual = discarded - o.compresses_downlink * n * sizeof(float);
    return (struct sim_state){residual - n / DEV_BLOCK,
                              o.compresses_downlink ? (const float *)(const void *)residual : NULL,
                              o.discards ? (const double *)(const void *)discarded : NULL};
}

/* What the aggregator held of element i: its residual, and what it has discarded. */
static sim_fixed held(struct sim *s, const struct sim_state *at, size_t i)
{
    float residual = 0;
    double lost = 0;
    if (at->residual)
        memcpy(&residual, &at->residual[i], sizeof residual);
    if (at->discarded)
        memcpy(&lost, &at->discarded[i], sizeof lost);
    return sim_fixed_of(s, residual) + sim_fixed_of(s, lost);
}

/* Theta, and what the optimizer keeps: the arrays of a state, one after the other, before its
 * grid.
 */
static void arrays_of(const struct sim *s, unsigned f, const struct sim_state *at,
                      const float *arrays[1 + OUTER_SLABS])
{
    size_t n = s->fragments.f[f].elements;
    unsigned count = 1 + outer_opt_slabs(&s->outer);
    for (unsigned k = 0; k < count; k++)
        arrays[k] = (const float *)(const void *)(at->grid - (count - k) * n * sizeof(float));
}

/* The independent implementation looks at the same round. */
static void judge(struct sim_aggregator *at, unsigned f, const struct sim_state *before,
                  const struct sim_state *after, const float *const *sent, const float *passed)
{
    struct sim *s = at->sim;
    uint64_t round = at->committed[f] - 1;
    const float *was[3] = {NULL}, *is[3] = {NULL};
    unsigned members[SIM_SITES_MAX];
    arrays_of(s, f, before, was);
    arrays_of(s, f, after, is);
    int64_t step = schedule_step(&s->schedule, f, round);
    int64_t end = schedule_end_of(&s->schedule, step);
    const struct schedule_change *changed = schedule_changed(&s->schedule, f, round);
    const struct sim_judged c = {.o = &s->o,
                                 .fragment = f,
                                 .round = round,
                                 .rounds = schedule_rounds(&s->schedule, f),
                                 .before = round ? &at->commits[f][round - 1]->manifest : NULL,
                                 .manifest = &at->commits[f][round]->manifest,
                                 .members = members,
                                 .member_count = sim_roster_members(s, f, round, members),
                                 .count = s->fragments.f[f].elements,
                                 .progress = (double)step / (double)end,
                                 .left = end - step,
                                 .length = schedule_length(&s->schedule, f, round),
                                 .lr = changed ? changed->lr : s->outer.lr,
                                 .codec = sim_amend_codec(s, step),
                                 .tensors = s->fragments.f[f].view.ranges,
                                 .tensor_count = s->fragments.f[f].view.count,
                                 .sent = sent,
                                 .passed = passed,
                                 .theta = (const float *const[]){was[0], is[0]},
                                 .momentum = (const float *const[]){was[1], is[1]},
                                 .second = (const float *const[]){was[2], is[2]}};
    const char *why = s->o.judge(s->o.judge_self, &c);
    s->r->judged++;
    if (why)
        sim_violate(s, "fragment %u round %" PRIu64 ": the reference says: %s", f, round, why);
}

/* What was included + what the aggregator held before = what it passes on + what it holds now: both
 * from its disk, before and after. A state that was damaged before this check holds less: what
 * its round's encoding had lost (docs/protocol.md 3.9), in any round. */
static void book_included(struct sim_aggregator *at, unsigned f, const struct manifest *m,
                          const struct sim_state *before, const struct sim_state *after)
{
    struct sim *s = at->sim;
    const uint8_t *grid = before->grid;
    enum codec_kind kind = (enum codec_kind)m->codec;
    unsigned payloads = schedule_payloads(&s->schedule, kind, manifest_included(m));
    bool compressed = schedule_compresses_downlink(&s->schedule, kind, manifest_included(m));
    struct arena a = arena_make(0);
    size_t n = s->fragments.f[f].elements;
    const struct codec *c = codec_at(at, f, m->round);
    sim_fixed *sum = arena_array(&a, n, sizeof *sum);
    float *mean = arena_array(&a, n, sizeof *mean);
    const float *sent[SIM_SITES_MAX] = {NULL};
    uint8_t *next = arena_alloc(&a, n / DEV_BLOCK);
    ASSERT(sum && mean && next);
    for (unsigned k = 0; k < m->site_count; k++) {
        unsigned site = m->sites[k].site;
        struct sim_node *node = &s->node[site];
        if (!m->sites[k].included)
            continue;
        float *values = decoded(s, c, f, m->round,
                                sim_sent(s, site, f, m->round, &m->sites[k].payload), grid, &a);
        float factor = m->scaled ? m->sites[k].factor : 1;
        s->r->clipped += factor != 1;
        sent[k] = values;
        for (size_t i = 0; i < n; i++) {
            sim_fixed v = sim_fixed_of(s, factor * values[i]);
            node->included[s->first[f] + i] += v;
            sum[i] += v;
        }
    }
    float weights[ROUND_SITES_MAX], factors[ROUND_SITES_MAX];
    struct merge_input in = {.aggregate = {at->commits[f][m->round]->aggregate, m->aggregate_bytes,
                                           payloads, manifest_weight(m)},
                             .weights = weights,
                             .factors = manifest_factors(m, factors) ? factors : NULL,
                             .values = arena_array(&a, n, sizeof(float))};
    manifest_weights(m, weights);
    ASSERT(in.values);
    if (merge_apply(MERGE_MEAN, c, &(struct codec_call){.work = s->work, .grid = grid, .count = n},
                    mean, next, &in) != ERR_OK)
        sim_violate(s, "fragment %u round %" PRIu64 ": the aggregate does not decode", f, m->round);
    bool whole = at->residuals_lost == at->lost_seen;
    for (size_t i = 0; whole && i < n && !s->clock.halted; i++) {
        sum[i] += held(s, before, i) - held(s, after, i);
        double exact = ldexp((double)sum[i], -FIXED_BITS), got = (double)mean[i];
        double tolerance = c->summable ? 0 : 1e-6; /* gathered: f32 additions in site order */
        /* One rounding, of the division. f32 has the other codecs' sums. */
        float once = c->kind == CODEC_FIXED ? (float)(exact / (double)manifest_weight(m))
                                            : (float)exact / manifest_weight(m);
        if (fabs(got - (double)once) > tolerance)
            sim_violate(s, "fragment %u round %" PRIu64 " element %zu: mean %g, exactly %g", f,
                        m->round, i, got, (double)once);
    }
    if (whole && s->o.judge && !s->clock.halted)
        judge(at, f, before, after, sent, compressed ? mean : NULL);
    arena_free(&a);
}

static void check_manifest(struct sim_aggregator *at, unsigned f, const struct manifest *m)
{
    struct sim *s = at->sim;
    uint64_t t = m->round;
    struct digest parent =
        t ? manifest_digest(&at->commits[f][t - 1]->manifest) : (struct digest){0};
    if (!digest_equal(&parent, &m->parent)) /* I5 */
        sim_violate(s, "fragment %u round %" PRIu64 ": other parent", f, t);
    bool aborted = manifest_aborted(m);
    unsigned took_part = aborted ? 0 : manifest_included(m), members[SIM_SITES_MAX], n;
    sim_roster_saw(s, m);
    sim_amend_saw(s, m);
    n = sim_roster_members(s, f, t, members);
    if (m->site_count != n && !s->clock.halted)
        sim_violate(s, "fragment %u round %" PRIu64 ": %u entries of %u sites", f, t, m->site_count,
                    n);
    if (s->clock.halted)
        return;
    for (unsigned i = 0; aborted && i < m->site_count; i++)
        took_part += m->sites[i].reason == ROUND_ABORTED;
    bool ordered = !digest_zero(&m->ordered_by);
    bool unsealed = s->o.masked && aborted; /* its seal is lost: check_cause */
    if (!ordered && !unsealed && took_part < (s->o.strict ? n : sim_masks_least(s, n)))
        sim_violate(s, "fragment %u round %" PRIu64 ": %u of %u sites", f, t, took_part, n);
    for (unsigned i = 0; i < m->site_count; i++) {
        bool included = m->sites[i].included;
        unsigned site = m->sites[i].site;
        if (site != members[i]) {
            sim_violate(s, "fragment %u round %" PRIu64 ": entry %u is of site %u", f, t, i, site);
            return;
        }
        s->r->excluded += !included && !aborted;
        if (!included && m->sites[i].reason != ROUND_ABORTED)
            continue;
        const struct digest *payload = &m->sites[i].payload;
        if (!sent_first(s, site, f, t, payload, NULL).payload.data)
            sim_violate(s,
                        "fragment %u round %" PRIu64 ": site %s took part with bytes it never sent",
                        f, t, s->names[site]);
        else if (included && !s->node[site].liar &&
                 !sent_first(s, site, f, t, payload, &m->sites[i]).payload.data)
            sim_violate(s,
                        "fragment %u round %" PRIu64 ": the entry of site %s is not what it said",
                        f, t, s->names[site]);
        if (included && hello_term(at, site) < m->term) /* docs/protocol.md 3.3 */
            sim_violate(
                s, "fragment %u round %" PRIu64 ": site %s counted without hello in term %" PRIu64,
                f, t, s->names[site], m->term);
    }
}

/* Bytes of a file of frag/f/round/ on the aggregator's disk. */
static const uint8_t *kept(struct sim_aggregator *at, unsigned f, uint64_t round, const char *name,
                           size_t *size)
{
    char path[64];
    snprintf(path, sizeof path, "frag/%u/%" PRIu64 "/%s", f, round, name);
    const uint8_t *data = env_faulty_look(&at->env, path, size);
    if (!data)
        sim_violate(at->sim, "%s is gone", path);
    return data;
}

/* The aggregate of a round that was applied. */
static bool aggregate_take(struct sim_aggregator *at, unsigned f, struct sim_commit *c)
{
    size_t size;
    const uint8_t *aggregate = kept(at, f, c->manifest.round + 1, "aggregate", &size);
    if (!aggregate)
        return false;
    c->aggregate = arena_alloc(&at->sim->arena, size);
    ASSERT(c->aggregate);
    memcpy(c->aggregate, aggregate, size);
    return true;
}

/* An aborted round has no aggregate, and changes neither the state nor what the aggregator holds
 * (docs/protocol.md 3.10). */
static void check_abort(struct sim_aggregator *a, unsigned f, const struct manifest *m,
                        const uint8_t *const state[2], const struct sim_state at[2])
{
    struct sim *s = a->sim;
    size_t n = s->fragments.f[f].elements, size;
    char path[64];
    const uint8_t *shared[2];
    bool whole = a->residuals_lost == a->lost_seen;
    snprintf(path, sizeof path, "frag/%u/%" PRIu64 "/aggregate", f, m->round + 1);
    if (env_faulty_look(&a->env, path, &size))
        sim_violate(s, "%s: of an aborted round", path);
    for (int k = 0; k < 2; k++)
        shared[k] = state[k] + head_bytes(state[k]);
    size = (size_t)(at[0].grid + n / DEV_BLOCK - shared[0]);
    if (size != (size_t)(at[1].grid + n / DEV_BLOCK - shared[1]) ||
        memcmp(shared[0], shared[1], size))
        sim_violate(s, "fragment %u round %" PRIu64 ": aborted, but the state is another", f,
                    m->round);
    for (size_t i = 0; whole && i < n && !s->clock.halted; i++)
        if (held(s, &at[0], i) != held(s, &at[1], i))
            sim_violate(s,
                        "fragment %u round %" PRIu64
                        " element %zu: aborted, but the aggregator holds something else",
                        f, m->round, i);
    s->r->aborted++;
}

/* May this round be aborted, and must it be? */
static void check_cause(const struct sim_aggregator *a, unsigned f, const struct manifest *m)
{
    struct sim *s = a->sim;
    bool aborted = manifest_aborted(m), ordered = !digest_zero(&m->ordered_by);
    bool fails = sim_aborts(s, f, m->round), anomalous = s->o.merge == MERGE_EDIT;
    bool lost = s->o.masked && a->env.rot.seals_rotten > 0;
    if (aborted && !ordered && !fails && lost)
        s->r->seals_lost++;
    else if (aborted && !ordered && !fails && !anomalous)
        sim_violate(s, "fragment %u round %" PRIu64 ": aborted without a cause", f, m->round);
    if (!aborted && fails)
        sim_violate(s, "fragment %u round %" PRIu64 ": applied, but not finite", f, m->round);
    if (m->rolled_back && (!ordered || m->rolled_to > m->round))
        sim_violate(s, "fragment %u round %" PRIu64 ": rolled back to %" PRIu64, f, m->round,
                    m->rolled_to);
    if (!ordered || s->clock.halted)
        return;
    s->r->ordered++;
    s->r->rolled_back += m->rolled_back;
    if (!sim_operator_orders(s, f, m->round))
        sim_violate(s, "fragment %u round %" PRIu64 ": an operator's act that was not ordered", f,
                    m->round);
}

/* The work of a round that is closed goes back into the residual of each site. In strict mode each
 * site has made its contribution, whenever it heard of the act, or its values were damaged. An act
 * that met a full disk may have missed its round: then the two runs may differ. */
static void acts_repeat(struct sim *s, struct sim_aggregator *a)
{
    for (unsigned f = 0; s->o.operates && f < s->o.fragments; f++)
        for (uint64_t t = 0; t < a->committed[f]; t++) {
            const struct manifest *m = &a->commits[f][t]->manifest;
            bool ordered = !digest_zero(&m->ordered_by);
            s->ordered_late |= ordered != sim_operator_orders(s, f, t);
            for (unsigned i = 0; ordered && i < m->site_count; i++) {
                const struct sim_node *n = &s->node[m->sites[i].site];
                bool made = sim_made_newest(n, f, t) != NULL;
                s->ordered_late |= !made;
                if (!made && s->o.strict && !s->o.damaged && !n->void_books)
                    sim_violate(s,
                                "site %s fragment %u round %" PRIu64
                                ": closed by an operator, and its steps are in no book",
                                n->name, f, t);
            }
        }
}

/* A round that is rolled back has the state that it names (docs/protocol.md 3.13). What the sites
 * carried over is given up: without a book of it, theirs end. */
static void check_rollback(struct sim_aggregator *a, unsigned f, struct sim_commit *c)
{
    struct sim *s = a->sim;
    const struct manifest *m = &c->manifest;
    const struct digest *then = m->rolled_to
                                    ? &a->commits[f][m->rolled_to - 1]->manifest.state_after
                                    : &a->commits[f][0]->manifest.state_before;
    if (!digest_equal(then, &m->state_after))
        sim_violate(s, "fragment %u round %" PRIu64 ": rolled back to something else", f, m->round);
    if (!schedule_discards(&s->schedule, s->o.error_feedback_decay))
        for (unsigned i = 0; i < s->nodes; i++)
            s->node[i].void_books = true;
    (void)aggregate_take(a, f, c);
}

/* What a merge that weighs by norms leaves out is in no book, unless sites keep one for another
 * reason. */
static void books_end(struct sim *s, const struct manifest *m)
{
    if (!m->scaled || schedule_discards(&s->schedule, s->o.error_feedback_decay))
        return;
    for (unsigned i = 0; i < s->nodes; i++) {
        const struct manifest_entry *e = manifest_site(m, s->node[i].index);
        s->node[i].void_books |= e && e->factor != 1;
    }
}

static void check_commit(struct sim_aggregator *a, unsigned f, struct sim_commit *c,
                         const uint8_t *const state[2], const struct sim_state at[2])
{
    struct sim *s = a->sim;
    const struct manifest *m = &c->manifest;
    bool aborted = manifest_aborted(m);
    size_t codes = s->fragments.f[f].elements / DEV_BLOCK;
    c->grid = arena_alloc(&s->arena, codes);
    ASSERT(c->grid);
    memcpy(c->grid, at[0].grid, codes);
    check_manifest(a, f, m);
    check_cause(a, f, m);
    books_end(s, m);
    if (s->o.masked && !s->clock.halted)
        sim_masks_committed(a, f, m);
    if (m->rolled_back)
        check_rollback(a, f, c);
    else if (aborted && !s->clock.halted)
        check_abort(a, f, m, state, at);
    if (aborted || s->clock.halted || !aggregate_take(a, f, c))
        return;
    check_sum(a, f, c);
    if (!s->clock.halted)
        book_included(a, f, m, &at[0], &at[1]);
}

/* What a commit is made of is on the medium before a site is told. */
static void check_durable(struct sim_aggregator *a, unsigned f, uint64_t round)
{
    static const char *const names[] = {"%u/%" PRIu64 "/state", "%u/%" PRIu64 "/MANIFEST",
                                        "%u/CURRENT"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[64] = "frag/";
        size_t size, there;
        snprintf(path + 5, sizeof path - 5, names[i], f, round);
        const uint8_t *seen = env_faulty_look(&a->env, path, &size),
                      *medium = env_faulty_medium(&a->env, path, &there);
        if (!seen || !medium || size != there || memcmp(seen, medium, size))
            sim_violate(a->sim, "%s: committed and not durable", path);
    }
}

static void commit_seen(struct sim_aggregator *a, unsigned f)
{
    struct sim *s = a->sim;
    uint64_t t = a->committed[f];
    struct sim_commit *c = a->commits[f][t] = arena_alloc(&s->arena, sizeof *c);
    size_t size, state_size[2];
    ASSERT(c);
    const uint8_t *manifest = kept(a, f, t + 1, "MANIFEST", &size);
    const uint8_t *state[2] = {kept(a, f, t, "state", &state_size[0]),
                               kept(a, f, t + 1, "state", &state_size[1])};
    if (!manifest || !state[0] || !state[1])
        return;
    const struct sim_state at[2] = {state_of(s, f, state[0], state_size[0]),
                                    state_of(s, f, state[1], state_size[1])};
    if (!manifest_decode(&c->manifest, manifest + head_bytes(manifest),
                         size - head_bytes(manifest))) {
        sim_violate(s, "fragment %u round %" PRIu64 ": the manifest does not decode", f, t);
        return;
    }
    if (!a->env.disk.dead && a->replica.state[f].round == t + 1)
        check_durable(a, f, t + 1);
    a->committed[f]++;
    s->r->commits++;
    s->r->compressed += schedule_compresses_downlink(
        &s->schedule, (enum codec_kind)c->manifest.codec, manifest_included(&c->manifest));
    s->r->codecs += (c->manifest.codec + 1) * (1 + f + SIM_FRAGMENTS_MAX * t) * 0x9e3779b97f4a7c15u;
    s->r->residual_resets += c->manifest.codec != schedule_codec(&s->schedule, f, t, 0);
    check_commit(a, f, c, state, at);
    uint64_t since = s->clock.now_ms - s->progress_ms;
    if (s->clock.now_ms > s->calm_ms && since > s->r->gap_ms)
        s->r->gap_ms = since;
    s->progress_ms = s->clock.now_ms;
}

static void saw_work(void *watcher)
{
    struct sim_aggregator *a = ((struct link_sim_watch *)watcher)->self;
    struct sim *s = a->sim;
    for (unsigned f = 0; a->server.up && f < s->o.fragments; f++)
        while (a->committed[f] < a->replica.state[f].round && !s->clock.halted)
            commit_seen(a, f);
    for (unsigned f = 0; a->server.up && f < s->o.fragments; f++)
        if (aggregator_final(a->process, f) > a->final[f])
            a->final[f] = aggregator_final(a->process, f);
    if (a->server.up)
        a->lost_seen = a->residuals_lost;
    if (a->server.up && s->roster.lost) {
        sim_roster_lost(a);
        s->roster.lost = false;
    }
    if (a->server.up && !s->clock.halted)
        sim_operator_acts(a);
    if (a->server.up && !s->clock.halted)
        sim_roster_acts(a);
    if (a->server.up && !s->clock.halted)
        sim_amend_acts(a);
}

void sim_watch(struct sim_aggregator *a)
{
    a->watch = (struct link_sim_watch){.self = a,
                                       .hello = saw_hello,
                                       .offered = saw_offered,
                                       .answered = saw_answered,
                                       .fetching = saw_fetching,
                                       .masking = sim_masks_masking,
                                       .masked = sim_masks_masked};
    a->server.worked = saw_work;
    a->server.watcher = &a->watch;
}

/* ---- the end ---- */

bool sim_disk_load(struct sim *s, struct env_faulty *w, bool site, struct outer_state *m,
                   struct arena *a)
{
    struct outer_state_options o = sim_member_options(s, site);
    w->disk.faults = NULL;
    w->disk.plan = (struct disk_plan){0};
    w->disk.broken = w->disk.full = false;
    disk_sim_restart(&w->disk, true); /* all that a run ends with is durable */
    enum err e = outer_state_open(m, &w->sim.env, s->cpu, &o, a);
    if (e == ERR_OK)
        e = outer_state_load(m);
    if (e != ERR_OK)
        sim_violate(s, "the disk of %s does not load: %s", w->name, err_message());
    return e == ERR_OK;
}

static enum err replay(struct outer_state *m, unsigned f, struct sim_commit *c)
{
    TRY(outer_state_amend(m, &c->manifest.amendments));
    TRY(outer_state_replay(m, &c->manifest, c->aggregate, c->manifest.aggregate_bytes));
    return outer_state_commit(m, f, &c->manifest, c->aggregate, c->manifest.aggregate_bytes);
}

void sim_check_replay(struct sim_aggregator *at, const struct digest *state)
{
    struct sim *s = at->sim;
    struct outer_state_options o = sim_member_options(s, false);
    o.compresses_downlink = o.discards =
        false; /* the manifests know nothing of the aggregator's residual */
    struct env_faulty w;
    struct outer_state m;
    struct arena a = arena_make(0);
    env_faulty_open(&w, &s->clock, "replay", 1);
    enum err e = outer_state_open(&m, &w.sim.env, s->cpu, &o, &a);
    if (e == ERR_OK)
        e = outer_state_begin(&m, s->initial);
    for (unsigned f = 0; f < s->o.fragments; f++)
        for (uint64_t t = 0; e == ERR_OK && t < at->committed[f]; t++)
            e = replay(&m, f, at->commits[f][t]);
    struct digest d = outer_state_digest(&m, false);
    if (e != ERR_OK || !digest_equal(&d, state))
        sim_violate(s, "the replay of the manifests leads elsewhere (%s)",
                    e == ERR_OK ? "digest" : err_message());
    outer_state_close(&m);
    env_faulty_close(&w);
    arena_free(&a);
}

/* Element by element, as integers. What a merge that weighs by norms cuts off is rounded where it
 * is booked (docs/protocol.md 3.10: factors of outer.clip are powers of two). */
void sim_check_books(struct sim_node *n, const struct outer_state *m, const sim_fixed *included)
{
    struct sim *s = n->sim;
    bool rounded = s->o.merge == MERGE_EDIT || s->o.merge == MERGE_CLIPPED;
    sim_fixed least = rounded ? (sim_fixed)1 << (FIXED_BITS - 30) : 0;
    if (n->void_books)
        return;
    for (unsigned f = 0; f < s->o.fragments; f++)
        for (size_t i = 0; i < s->fragments.f[f].elements && !s->clock.halted; i++) {
            sim_fixed left = n->trained[s->first[f] + i] - included[s->first[f] + i] -
                             sim_fixed_of(s, m->state[f].residual[i]);
            if (m->state[f].discarded)
                left -= sim_fixed_of(s, m->state[f].discarded[i]);
            if (left > least || -left > least)
                sim_violate(s,
                            "site %s fragment %u element %zu: trained - included - residual - "
                            "discarded = %g",
                            n->name, f, i, ldexp((double)left, -FIXED_BITS));
        }
    s->r->books_checked++;
}

/* A site that was removed may not have heard of the last rounds that it was in: its books are those
 * of the state that it has. */
static void check_left(struct sim_node *n, struct arena *a)
{
    struct sim *s = n->sim;
    struct sim_aggregator *at = &s->aggregator[0];
    sim_fixed *included = arena_array(a, s->table.elements, sizeof *included);
    struct outer_state m;
    size_t size;
    ASSERT(included);
    if (!env_faulty_look(&n->env, "begun", &size) || !sim_disk_load(s, &n->env, true, &m, a))
        return;
    for (unsigned f = 0; f < s->o.fragments; f++) {
        (void)sim_made_included(n, at, f, m.state[f].round, included);
        sim_made_count(n, at, f, m.state[f].round);
    }
    sim_check_books(n, &m, included);
    outer_state_close(&m);
}

/* What the archive has of a round is whole, since the manifest is written last: its contributions
 * are those that the committed manifest names. */
static void check_archived(struct sim_aggregator *at, unsigned f, uint64_t t)
{
    struct sim *s = at->sim;
    const struct manifest *m = &at->commits[f][t]->manifest;
    char path[160];
    size_t size;
    snprintf(path, sizeof path, "archive/%u/%" PRIu64 "/MANIFEST", f, t);
    const uint8_t *data = env_faulty_look(&at->env, path, &size);
    s->r->gaps += !data;
    s->r->archived += data != NULL;
    if (!data)
        return;
    struct digest d = digest_of(data + head_bytes(data), size - head_bytes(data)), want;
    uint8_t *bytes = arena_alloc(&s->arena, MANIFEST_BYTES_MAX);
    ASSERT(bytes);
    want = digest_of(bytes, manifest_encode(m, bytes));
    if (!digest_equal(&d, &want))
        sim_violate(s, "%s: another manifest than was committed", path);
    for (uint32_t i = 0; i < m->site_count && !s->o.masked; i++) {
        if (!m->sites[i].included)
            continue;
        snprintf(path, sizeof path, "archive/%u/%" PRIu64 "/%.64s.payload", f, t,
                 manifest_name(m, s->names, m->sites[i].site));
        data = env_faulty_look(&at->env, path, &size);
        d = data ? digest_of(data, size) : (struct digest){0};
        if (!digest_equal(&d, &m->sites[i].payload) && !at->env.rot.rots)
            sim_violate(s, "%s: %s", path, data ? "other bytes than were accepted" : "missing");
    }
}

static void check_archive(struct sim *s, struct sim_aggregator *at)
{
    if (!s->o.archives || sim_parted(s))
        return;
    for (unsigned f = 0; f < s->o.fragments; f++)
        for (uint64_t t = 0; t < at->committed[f] && !s->clock.halted; t++)
            check_archived(at, f, t);
    bool excused = at->env.disk.failed || at->env.rot.rots || s->o.memory.at;
    if (s->r->gaps && !excused)
        sim_violate(s, "%" PRIu64 " committed rounds are not archived", s->r->gaps);
}

void sim_check_end(struct sim *s)
{
    struct arena a = arena_make(0);
    struct outer_state m;
    struct sim_aggregator *at = &s->aggregator[0];
    if (sim_disk_load(s, &at->env, false, &m, &a))
        s->r->state = outer_state_digest(&m, false);
    outer_state_close(&m);
    for (unsigned f = 0; f < s->o.fragments; f++)
        if (at->committed[f] != schedule_rounds(&s->schedule, f))
            sim_violate(s, "fragment %u ended after %" PRIu64 " rounds", f, at->committed[f]);
    for (unsigned i = 0; i < s->o.sites && !s->clock.halted; i++) {
        struct sim_node *n = &s->node[i];
        if (sim_roster_left(n))
            check_left(n, &a);
        if (n->liar || sim_roster_left(n) || sim_roster_never(n) ||
            !sim_disk_load(s, &n->env, true, &m, &a))
            continue;
        struct digest d = outer_state_digest(&m, false);
        s->r->residual[i] = outer_state_digest(&m, true);
        if (!digest_equal(&d, &s->r->state))
            sim_violate(s, "site %s ends with another state than the aggregator", s->names[i]);
        for (unsigned f = 0; f < s->o.fragments && sim_roster_back(n); f++)
            sim_made_count(n, at, f, m.state[f].round);
        sim_check_books(n, &m, n->included);
        outer_state_close(&m);
    }
    acts_repeat(s, at);
    if (!s->clock.halted)
        sim_check_replay(at, &s->r->state);
    if (s->o.masked && !s->clock.halted)
        sim_masks_end(s);
    check_archive(s, at);
    arena_free(&a);
}
