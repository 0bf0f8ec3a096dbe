/* What must hold in every run (docs/protocol.md 4), from the outside: messages as
 * they pass, files as they lie on the simulated disks.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/sim/sim_own.h"

enum { FIXED_BITS = 100 };

/* Exact, or a violation: the toy's values lie between 2^-70 and 2^20. */
static sim_fixed fixed(struct sim *s, double x)
{
    int e;
    int64_t mantissa = (int64_t)ldexp(frexp(x, &e), 53);
    int shift = e - 53 + FIXED_BITS;
    if (mantissa == 0)
        return 0;
    if (shift >= 0 && shift < 70)
        return (sim_fixed)mantissa * ((sim_fixed)1 << shift);
    if (shift < 0 && shift > -53 && !(mantissa & (((int64_t)1 << -shift) - 1)))
        return mantissa / ((int64_t)1 << -shift);
    sim_violate(s, "a value of %g is outside of what the books can hold", x);
    return 0;
}

static const struct codec *codec_at(const struct sim *s, unsigned f, uint64_t round)
{
    const struct manifest *parent = &s->commits[f][round - (round > 0)].manifest;
    return codec_get(
        schedule_codec(&s->schedule, f, round, round ? manifest_residual_ratio(parent) : 0));
}

/* A record's bytes before its sections (kernels/base/record.h). */
static size_t head_bytes(const uint8_t *record)
{
    struct bytes_reader r = bytes_reader(record + 16, 8);
    return bytes_get_u64(&r);
}

/* Values of a payload on a grid, in the simulator's own memory. */
static float *decoded(struct sim *s, unsigned f, uint64_t round, struct codec_payload payload,
                      const uint8_t *grid, struct arena *a)
{
    const struct codec *c = codec_at(s, f, round);
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
    const uint8_t *kept = base < round ? env_sim_look(&n->env, path, &size) : NULL;
    return kept ? (const float *)(const void *)(kept + head_bytes(kept))
                : n->replica.state[f].theta;
}

/* z - residual before = the weighted delta, and what is sent + what is kept = z (I3). */
static void book_trained(struct sim_node *n, unsigned f, uint64_t round, const uint8_t *data,
                         size_t size)
{
    struct sim *s = n->sim;
    const struct outer_state_fragment *state = &n->replica.state[f];
    struct arena a = arena_make(0);
    bool discards = schedule_discards(&s->schedule, s->o.error_feedback_decay);
    float kept;
    double lost;
    size_t count = s->fragments.f[f].elements;
    size_t own = count * (sizeof kept + (discards ? sizeof lost : 0)) + head_bytes(data);
    size_t payload = size > own ? size - own : 0;
    data += head_bytes(data);
    const float *residual = (const float *)(const void *)(data + payload);
    const double *discarded = (const double *)(const void *)(residual + count);
    float *sent = decoded(s, f, round, (struct codec_payload){data, payload}, state->codes, &a);
    const float *base = base_of(n, f, round), *local = n->sent + s->first[f];
    for (size_t i = 0; i < count && !s->clock.halted; i++) {
        memcpy(&kept, &residual[i], sizeof kept);
        sim_fixed trained = fixed(s, sent[i]) + fixed(s, kept) - fixed(s, state->residual[i]);
        if (discards) {
            memcpy(&lost, &discarded[i], sizeof lost);
            trained += fixed(s, lost) - fixed(s, state->discarded[i]);
        }
        double delta = (double)n->weight * ((double)base[i] - (double)local[i]);
        if (fabs(ldexp((double)trained, -FIXED_BITS) - delta) > 1e-6)
            sim_violate(s, "site %s round %" PRIu64 " element %zu: trained %g, booked %g", n->name,
                        round, i, delta, ldexp((double)trained, -FIXED_BITS));
        n->trained[s->first[f] + i] += trained;
        n->booked[s->first[f] + i] = trained;
    }
    arena_free(&a);
}

void sim_wrote(void *self, struct env_sim *w, const char *path, const uint8_t *data, size_t n)
{
    struct sim_node *node = self;
    unsigned f;
    uint64_t round;
    (void)w;
    if (sscanf(path, "outbox/%u/%20" SCNu64, &f, &round) != 2)
        return;
    if (node->made[f][round])
        sim_violate(node->sim, "site %s made a second contribution to fragment %u round %" PRIu64,
                    node->name, f, round);
    else
        book_trained(node, f, round, data, n);
    node->made[f][round] = true;
}

/* The round of a fragment's contribution that was made last, while it lies in the outbox. */
static bool in_outbox(const struct sim_node *n, unsigned f, uint64_t *round)
{
    char path[64];
    size_t size;
    for (*round = SIM_ROUNDS_MAX; (*round)-- > 0 && !n->made[f][*round];)
        ;
    snprintf(path, sizeof path, "outbox/%u/%" PRIu64, f, *round);
    return *round < SIM_ROUNDS_MAX && env_sim_look(&n->env, path, &size);
}

/* A contribution that went with the power was never stored, and is not booked: its site makes
 * another one, or none. */
void sim_site_restart(struct sim_node *n)
{
    struct sim *s = n->sim;
    bool there[SIM_FRAGMENTS_MAX];
    uint64_t round;
    for (unsigned f = 0; f < s->o.fragments; f++)
        there[f] = in_outbox(n, f, &round);
    env_sim_restart(&n->env);
    for (unsigned f = 0; f < s->o.fragments; f++) {
        if (!there[f] || in_outbox(n, f, &round))
            continue;
        if (n->payload[f][round].data)
            sim_violate(s, "site %s has lost what it sent to fragment %u round %" PRIu64, n->name,
                        f, round);
        for (size_t i = 0; i < s->fragments.f[f].elements; i++)
            n->trained[s->first[f] + i] -= n->booked[s->first[f] + i];
        n->made[f][round] = false;
    }
}

/* ---- messages ---- */

static struct sim_node *node_of(struct sim *s, const struct wire_head *h)
{
    unsigned i = 0;
    while (i < s->o.sites && strcmp(s->names[i], h->site))
        i++;
    ASSERT(i < s->o.sites);
    return &s->node[i];
}

static void saw_hello(void *self, const struct wire_hello *m, const struct wire_hello_answer *a)
{
    struct sim *s = self;
    struct sim_node *n = node_of(s, &m->head);
    if (a->outcome == ROUND_DIVERGED)
        sim_violate(s, "site %s has another state than the aggregator", n->name);
    if ((a->outcome == ROUND_CURRENT || a->outcome == ROUND_BEHIND || a->outcome == ROUND_JOIN) &&
        a->epoch > n->hello_epoch)
        n->hello_epoch = a->epoch;
}

/* I7, and bytes before words. */
static void saw_offered(void *self, const struct wire_contribution *m, const uint8_t *payload)
{
    struct sim *s = self;
    struct sim_node *n = node_of(s, &m->head);
    struct codec_payload *first = &n->payload[m->fragment][m->round];
    char path[64];
    size_t size;
    snprintf(path, sizeof path, "outbox/%u/%" PRIu64, m->fragment, m->round);
    if (n->liar)
        return;
    const uint8_t *stored = env_sim_medium(&n->env, path, &size);
    if (!stored || size < head_bytes(stored) + m->payload_bytes ||
        memcmp(stored + head_bytes(stored), payload, m->payload_bytes))
        sim_violate(s, "site %s sends what it has not stored", n->name);
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
}

/* I6: a receipt promises the payload and its record. */
static void saw_answered(void *self, const struct wire_contribution *m, const struct wire_answer *a)
{
    struct sim *s = self;
    char path[256], hex[65];
    size_t size;
    if (a->outcome != ROUND_RECEIPT)
        return;
    digest_hex(&m->payload, hex);
    snprintf(path, sizeof path, "spool/%u/%" PRIu64 "/%s.%s", m->fragment, m->round, m->head.site,
             hex);
    const uint8_t *spool = env_sim_medium(&s->disk, path, &size);
    struct digest d = digest_of(spool, size);
    if (!spool || !digest_equal(&d, &m->payload))
        sim_violate(s, "a receipt for %s without a durable payload", path);
    const uint8_t *journal = env_sim_medium(&s->disk, "journal", &size);
    if (!journal || !memmem(journal, size, m->payload.bytes, sizeof m->payload.bytes))
        sim_violate(s, "a receipt for %s without a durable record", path);
}

static void saw_fetching(void *self, const struct wire_fetch *m)
{
    struct sim *s = self;
    if (m->what != WIRE_SNAPSHOT)
        return;
    s->r->snapshots++;
    node_of(s, &m->head)->void_books = true;
}

/* ---- commits ---- */

/* I4: the aggregate is the sum of what the sites first sent, each once, by the codec's own sum and
 * by integers. */
static void check_sum(struct sim *s, unsigned f, struct sim_commit *c)
{
    const struct manifest *m = &c->manifest;
    const struct codec *codec = codec_at(s, f, m->round);
    size_t n = s->fragments.f[f].elements;
    struct codec_payload payloads[SIM_SITES_MAX];
    struct arena a = arena_make(0);
    unsigned k = 0;
    for (unsigned i = 0; i < m->site_count; i++)
        if (m->sites[i].included)
            payloads[k++] = s->node[i].payload[f][m->round];
    if (schedule_compresses_downlink(&s->schedule, codec->kind, k))
        return; /* one payload: book_included holds it against the sum */
    uint8_t *sum = arena_alloc(&a, codec->aggregate_max(codec, n, k));
    size_t size;
    ASSERT(sum);
    if (codec->aggregate(codec, &(struct codec_call){.work = s->work, .count = n}, sum, &size,
                         payloads, k) != ERR_OK ||
        size != m->aggregate_bytes || memcmp(sum, c->aggregate, size))
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
    return fixed(s, residual) + fixed(s, lost);
}

/* What was included + what the aggregator held before = what it passes on + what it holds now: both
 * from its disk, before and after. A state that was damaged before anybody looked holds less: what
 * its round's encoding had lost (docs/protocol.md 3.9), in whatever round that was. */
static void book_included(struct sim *s, unsigned f, const struct manifest *m,
                          const struct sim_state *before, const struct sim_state *after)
{
    const uint8_t *grid = before->grid;
    unsigned payloads =
        schedule_payloads(&s->schedule, (enum codec_kind)m->codec, manifest_included(m));
    struct arena a = arena_make(0);
    size_t n = s->fragments.f[f].elements;
    const struct codec *c = codec_at(s, f, m->round);
    sim_fixed *sum = arena_array(&a, n, sizeof *sum);
    float *mean = arena_array(&a, n, sizeof *mean);
    uint8_t *next = arena_alloc(&a, n / DEV_BLOCK);
    ASSERT(sum && mean && next);
    for (unsigned k = 0; k < m->site_count; k++) {
        struct sim_node *node = &s->node[k];
        if (!m->sites[k].included)
            continue;
        float *values = decoded(s, f, m->round, node->payload[f][m->round], grid, &a);
        float factor = m->scaled ? m->sites[k].factor : 1;
        s->r->clipped += factor != 1;
        for (size_t i = 0; i < n; i++) {
            sim_fixed v = fixed(s, factor * values[i]);
            node->included[s->first[f] + i] += v;
            sum[i] += v;
        }
    }
    float weights[ROUND_SITES_MAX], factors[ROUND_SITES_MAX];
    struct merge_input in = {.aggregate = {s->commits[f][m->round].aggregate, m->aggregate_bytes,
                                           payloads, manifest_weight(m)},
                             .weights = weights,
                             .factors = manifest_factors(m, factors) ? factors : NULL,
                             .values = arena_array(&a, n, sizeof(float))};
    manifest_weights(m, weights);
    ASSERT(in.values);
    if (merge_apply(MERGE_MEAN, c, &(struct codec_call){.work = s->work, .grid = grid, .count = n},
                    mean, next, &in) != ERR_OK)
        sim_violate(s, "fragment %u round %" PRIu64 ": the aggregate does not decode", f, m->round);
    bool whole = s->r->residuals_lost == s->lost_seen;
    for (size_t i = 0; whole && i < n && !s->clock.halted; i++) {
        sum[i] += held(s, before, i) - held(s, after, i);
        double exact = ldexp((double)sum[i], -FIXED_BITS), got = (double)mean[i];
        double tolerance = c->summable ? 0 : 1e-6; /* gathered: f32 additions in site order */
        float once = (float)((float)exact / manifest_weight(m)); /* one rounding, of the division */
        if (fabs(got - (double)once) > tolerance)
            sim_violate(s, "fragment %u round %" PRIu64 " element %zu: mean %g, exactly %g", f,
                        m->round, i, got, (double)once);
    }
    arena_free(&a);
}

static void check_manifest(struct sim *s, unsigned f, const struct manifest *m)
{
    uint64_t t = m->round;
    struct digest parent = t ? manifest_digest(&s->commits[f][t - 1].manifest) : (struct digest){0};
    if (!digest_equal(&parent, &m->parent)) /* I5 */
        sim_violate(s, "fragment %u round %" PRIu64 ": other parent", f, t);
    bool aborted = manifest_aborted(m);
    unsigned took_part = aborted ? 0 : manifest_included(m);
    for (unsigned i = 0; aborted && i < m->site_count; i++)
        took_part += m->sites[i].reason == ROUND_ABORTED;
    if (took_part < (s->o.strict ? s->o.sites : s->o.sites / 2 + 1))
        sim_violate(s, "fragment %u round %" PRIu64 ": %u of %u sites", f, t, took_part,
                    s->o.sites);
    for (unsigned i = 0; i < m->site_count; i++) {
        const struct sim_node *n = &s->node[i];
        bool included = m->sites[i].included;
        s->r->excluded += !included && !aborted;
        if (!included && m->sites[i].reason != ROUND_ABORTED)
            continue;
        const struct codec_payload *sent = &n->payload[f][t];
        struct digest d = sent->data ? digest_of(sent->data, sent->size_bytes) : (struct digest){0};
        if (!digest_equal(&d, &m->sites[i].payload))
            sim_violate(s,
                        "fragment %u round %" PRIu64 ": site %s took part with bytes it never sent",
                        f, t, n->name);
        if (included && n->hello_epoch < m->epoch) /* docs/protocol.md 3.3 */
            sim_violate(
                s, "fragment %u round %" PRIu64 ": site %s counted without hello in epoch %" PRIu64,
                f, t, n->name, m->epoch);
    }
}

/* Bytes of a file of frag/f/round/ on the aggregator's disk. */
static const uint8_t *kept(struct sim *s, unsigned f, uint64_t round, const char *name,
                           size_t *size)
{
    char path[64];
    snprintf(path, sizeof path, "frag/%u/%" PRIu64 "/%s", f, round, name);
    const uint8_t *data = env_sim_look(&s->disk, path, size);
    if (!data)
        sim_violate(s, "%s is gone", path);
    return data;
}

/* The aggregate of a round that was applied. */
static bool aggregate_take(struct sim *s, unsigned f, struct sim_commit *c)
{
    size_t size;
    const uint8_t *aggregate = kept(s, f, c->manifest.round + 1, "aggregate", &size);
    if (!aggregate)
        return false;
    c->aggregate = arena_alloc(&s->arena, size);
    ASSERT(c->aggregate);
    memcpy(c->aggregate, aggregate, size);
    return true;
}

/* An aborted round has no aggregate, and changes neither the state nor what the aggregator holds
 * (docs/protocol.md 3.10). */
static void check_abort(struct sim *s, unsigned f, const struct manifest *m,
                        const uint8_t *const state[2], const struct sim_state at[2])
{
    size_t n = s->fragments.f[f].elements, size;
    char path[64];
    const uint8_t *shared[2];
    bool whole = s->r->residuals_lost == s->lost_seen;
    snprintf(path, sizeof path, "frag/%u/%" PRIu64 "/aggregate", f, m->round + 1);
    if (env_sim_look(&s->disk, path, &size))
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

static void check_commit(struct sim *s, unsigned f, struct sim_commit *c,
                         const uint8_t *const state[2], const struct sim_state at[2])
{
    const struct manifest *m = &c->manifest;
    bool aborted = manifest_aborted(m);
    check_manifest(s, f, m);
    if (aborted != sim_aborts(s, f, m->round))
        sim_violate(s, "fragment %u round %" PRIu64 ": %s", f, m->round,
                    aborted ? "aborted without a cause" : "applied, but not finite");
    if (aborted && !s->clock.halted)
        check_abort(s, f, m, state, at);
    if (aborted || s->clock.halted || !aggregate_take(s, f, c))
        return;
    check_sum(s, f, c);
    if (!s->clock.halted)
        book_included(s, f, m, &at[0], &at[1]);
}

/* What a commit is made of lies on the medium before anybody is told. */
static void check_durable(struct sim *s, unsigned f, uint64_t round)
{
    static const char *const names[] = {"%u/%" PRIu64 "/state", "%u/%" PRIu64 "/MANIFEST",
                                        "%u/CURRENT"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[64] = "frag/";
        size_t size, there;
        snprintf(path + 5, sizeof path - 5, names[i], f, round);
        const uint8_t *seen = env_sim_look(&s->disk, path, &size),
                      *medium = env_sim_medium(&s->disk, path, &there);
        if (!seen || !medium || size != there || memcmp(seen, medium, size))
            sim_violate(s, "%s: committed and not durable", path);
    }
}

static void commit_seen(struct sim *s, unsigned f)
{
    uint64_t t = s->committed[f];
    struct sim_commit *c = &s->commits[f][t];
    size_t size, state_size[2];
    const uint8_t *manifest = kept(s, f, t + 1, "MANIFEST", &size);
    const uint8_t *state[2] = {kept(s, f, t, "state", &state_size[0]),
                               kept(s, f, t + 1, "state", &state_size[1])};
    if (!manifest || !state[0] || !state[1])
        return;
    const struct sim_state at[2] = {state_of(s, f, state[0], state_size[0]),
                                    state_of(s, f, state[1], state_size[1])};
    if (!manifest_decode(&c->manifest, manifest + head_bytes(manifest),
                         size - head_bytes(manifest))) {
        sim_violate(s, "fragment %u round %" PRIu64 ": the manifest does not decode", f, t);
        return;
    }
    if (!s->disk.disk.dead && s->replica.state[f].round == t + 1)
        check_durable(s, f, t + 1);
    s->committed[f]++;
    s->r->commits++;
    s->r->compressed += schedule_compresses_downlink(
        &s->schedule, (enum codec_kind)c->manifest.codec, manifest_included(&c->manifest));
    s->r->residual_resets += c->manifest.codec != schedule_codec(&s->schedule, f, t, 0);
    check_commit(s, f, c, state, at);
    uint64_t since = s->clock.now_ms - s->progress_ms;
    if (s->clock.now_ms > s->calm_ms && since > s->r->gap_ms)
        s->r->gap_ms = since;
    s->progress_ms = s->clock.now_ms;
}

static void saw_work(void *self)
{
    struct sim *s = self;
    for (unsigned f = 0; s->server.up && f < s->o.fragments; f++)
        while (s->committed[f] < s->replica.state[f].round && !s->clock.halted)
            commit_seen(s, f);
    if (s->server.up)
        s->lost_seen = s->r->residuals_lost;
}

void sim_watch(struct sim *s)
{
    s->watch = (struct link_sim_watch){.self = s,
                                       .hello = saw_hello,
                                       .offered = saw_offered,
                                       .answered = saw_answered,
                                       .fetching = saw_fetching,
                                       .worked = saw_work};
}

/* ---- the end ---- */

/* A replica as its disk holds it. */
static bool disk_load(struct sim *s, struct env_sim *w, bool site, struct outer_state *m,
                      struct arena *a)
{
    struct outer_state_options o = sim_member_options(s, site);
    w->disk.faults = NULL;
    w->disk.plan = (struct disk_plan){0};
    w->disk.broken = false;
    disk_sim_restart(&w->disk, true); /* all that a run ends with is durable */
    enum err e = outer_state_open(m, &w->env, s->cpu, &o, a);
    if (e == ERR_OK)
        e = outer_state_load(m);
    if (e != ERR_OK)
        sim_violate(s, "the disk of %s does not load: %s", w->name, err_message());
    return e == ERR_OK;
}

static enum err replay(struct outer_state *m, unsigned f, struct sim_commit *c)
{
    bool aborted = manifest_aborted(&c->manifest);
    TRY(aborted ? outer_state_abort(m, f, &c->manifest, false)
                : outer_state_apply(m, f, &c->manifest, false, c->aggregate,
                                    c->manifest.aggregate_bytes));
    return outer_state_commit(m, f, &c->manifest, c->aggregate, c->manifest.aggregate_bytes);
}

/* I2: the manifests and aggregates alone lead to the same state. */
static void check_replay(struct sim *s)
{
    struct outer_state_options o = sim_member_options(s, false);
    o.compresses_downlink = o.discards =
        false; /* the manifests know nothing of the aggregator's residual */
    struct env_sim w;
    struct outer_state m;
    struct arena a = arena_make(0);
    env_sim_open(&w, &s->clock, "replay", 1);
    enum err e = outer_state_open(&m, &w.env, s->cpu, &o, &a);
    if (e == ERR_OK)
        e = outer_state_begin(&m, s->initial);
    for (unsigned f = 0; f < s->o.fragments; f++)
        for (uint64_t t = 0; e == ERR_OK && t < s->committed[f]; t++)
            e = replay(&m, f, &s->commits[f][t]);
    struct digest d = outer_state_digest(&m, false);
    if (e != ERR_OK || !digest_equal(&d, &s->r->state))
        sim_violate(s, "the replay of the manifests leads elsewhere (%s)",
                    e == ERR_OK ? "digest" : err_message());
    outer_state_close(&m);
    env_sim_close(&w);
    arena_free(&a);
}

/* I3: trained = included + residual + discarded, element by element, as integers. */
static void check_books(struct sim_node *n, const struct outer_state *m)
{
    struct sim *s = n->sim;
    if (n->void_books)
        return;
    for (unsigned f = 0; f < s->o.fragments; f++)
        for (size_t i = 0; i < s->fragments.f[f].elements && !s->clock.halted; i++) {
            sim_fixed left = n->trained[s->first[f] + i] - n->included[s->first[f] + i] -
                             fixed(s, m->state[f].residual[i]);
            if (m->state[f].discarded)
                left -= fixed(s, m->state[f].discarded[i]);
            if (left)
                sim_violate(s,
                            "site %s fragment %u element %zu: trained - included - residual - "
                            "discarded = %g",
                            n->name, f, i, ldexp((double)left, -FIXED_BITS));
        }
    s->r->books_checked++;
}

void sim_check_end(struct sim *s)
{
    struct arena a = arena_make(0);
    struct outer_state m;
    if (disk_load(s, &s->disk, false, &m, &a))
        s->r->state = outer_state_digest(&m, false);
    outer_state_close(&m);
    for (unsigned f = 0; f < s->o.fragments; f++)
        if (s->committed[f] != schedule_rounds(&s->schedule, f))
            sim_violate(s, "fragment %u ended after %" PRIu64 " rounds", f, s->committed[f]);
    for (unsigned i = 0; i < s->o.sites && !s->clock.halted; i++) {
        if (s->node[i].liar || !disk_load(s, &s->node[i].env, true, &m, &a))
            continue;
        struct digest d = outer_state_digest(&m, false);
        s->r->residual[i] = outer_state_digest(&m, true);
        if (!digest_equal(&d, &s->r->state))
            sim_violate(s, "site %s ends with another state than the aggregator", s->names[i]);
        check_books(&s->node[i], &m);
        outer_state_close(&m);
    }
    if (!s->clock.halted)
        check_replay(s);
    arena_free(&a);
}
