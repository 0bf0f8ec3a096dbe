/* SPDX-License-Identifier: Apache-2.0 */
/* Contributions on their way in: offered, arriving in chunks, verified, durable, journalled,
 * acknowledged. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_signs.h"
#include "outer/aggregator/aggregator_sums.h"
#include "outer/protocol/mutant.h"

enum { STREAMS_PER_FRAGMENT = 2, BUSY_RETRY_MS = 500 };

/* RECEIVING -> VERIFYING or SUPERSEDED; both end with the upload. */
enum upload_state {
    UPLOAD_RECEIVING,  /* chunks come; `storing` of them are being written, outside the lock */
    UPLOAD_VERIFYING,  /* all there: being verified and made durable, outside the lock */
    UPLOAD_SUPERSEDED, /* a newer stream took its place */
};
struct upload { /* one contribution on its way in */
    struct upload *next;
    unsigned site;
    enum upload_state state;
    struct intake in;
    unsigned storing; /* chunks that are being written; a superseded stream may have some */
    uint64_t offered_ms;
    uint64_t chunk_ms;         /* when its last chunk was stored, or it was opened */
    const struct codec *codec; /* of its round */
    uint8_t *grid;             /* of its round: the state's may change while it is verified */
    uint64_t masked_bytes;     /* of its round; 0: in the clear */
    double squares;            /* of its values: codec.check */
};
struct spool_site {
    unsigned streams; /* uploads that have not ended */
    struct aggregator_pace pace;
};
struct spool_held { /* a round that is over, and whose contributions the organs read */
    bool on, left;  /* left: by the last upload to it, so that it goes at the release */
    unsigned fragment;
    uint64_t round;
};
struct aggregator_spool {
    struct upload *uploads;
    uint64_t payload_bytes; /* arrived, since the start */
    struct spool_held held;
    struct spool_site site[ROUND_SITES_MAX];
};

enum err aggregator_spool_open(struct aggregator_spool **out, struct arena *perm)
{
    TRY_ALLOC(*out = arena_alloc(perm, sizeof **out));
    return ERR_OK;
}

void aggregator_spool_path(const char *site, unsigned fragment, uint64_t round,
                           const struct digest *payload, char out[AGGREGATOR_PATH_MAX])
{
    char hex[65];
    digest_hex(payload, hex);
    int n = snprintf(out, AGGREGATOR_PATH_MAX, "spool/%u/%" PRIu64 "/%s.%s", fragment, round, site,
                     hex);
    ASSERT(n < AGGREGATOR_PATH_MAX - 5); /* room for .part */
}

struct spool_check {
    const char *path;
    unsigned fragment;
    const struct codec *codec;
    const uint8_t *grid;
    uint64_t masked_bytes; /* 0: in the clear. Else the bytes of a ring: only their number can be
                              checked */
    struct digest payload;
};

/* Is a stored contribution what its digest says, and something that decodes? ERR_CORRUPT,
 * ERR_PROTO. Any thread. squares: as codec.check. */
static enum err spool_verify(const struct aggregator *a, const struct spool_check *s,
                             double *squares)
{
    struct file_map m;
    const struct fragment *f = &a->replica->fragments->f[s->fragment];
    struct codec_call call = {.grid = s->grid, .count = f->elements, .view = &f->view};
    TRY(a->env->ops->map(a->env, s->path, &m));
    struct digest d = digest_of(m.data, m.size_bytes);
    enum err e = digest_equal(&d, &s->payload) || MUTANT(BYTES_BELIEVED)
                     ? ERR_OK
                     : err_set(ERR_CORRUPT, "%s: not the bytes of its digest", s->path);
    if (e == ERR_OK && s->masked_bytes) {
        *squares = 0; /* the sum alone is readable */
        e = m.size_bytes == s->masked_bytes
                ? ERR_OK
                : err_set(ERR_PROTO, "%s: not the size of a masked contribution", s->path);
    } else if (e == ERR_OK) {
        e = s->codec->check(s->codec, &call, squares, m.data, m.size_bytes);
    }
    a->env->ops->unmap(a->env, &m);
    return e;
}

enum err aggregator_spool_found(struct aggregator *a, const struct journal_record *r,
                                double *squares)
{
    char path[AGGREGATOR_PATH_MAX], quoted[512];
    aggregator_spool_path(a->members.names[r->site], r->fragment, r->round, &r->digest, path);
    struct spool_check check = {path,
                                r->fragment,
                                codec_get(outer_state_codec(a->replica, r->fragment)),
                                a->replica->state[r->fragment].codes,
                                a->sums->masked_bytes(a, r->fragment),
                                r->digest};
    enum err e = spool_verify(a, &check, squares);
    if (e == ERR_OK)
        e = a->signs->header_kept(a, r, path);
    if (e == ERR_OK)
        return ERR_OK;
    log_event(LOG_WARN, "payload_lost", "fragment=%u round=%" PRIu64 " site=%s why=%s", r->fragment,
              r->round, a->members.names[r->site], log_quote(quoted, sizeof quoted, err_message()));
    TRY(a->env->ops->remove(a->env, path)); /* the next one must not meet it */
    return ERR_CORRUPT;
}

/* In the directory of a round in flight. */
static enum err parts_discard(struct aggregator *a, const char *directory)
{
    struct arena scratch = arena_make(0);
    char **names = NULL;
    size_t count = 0;
    enum err e = a->env->ops->list(a->env, directory, &scratch, &names, &count);
    for (size_t i = 0; e == ERR_OK && i < count; i++) {
        char path[2 * AGGREGATOR_PATH_MAX];
        const char *end = strrchr(names[i], '.');
        if (!end || (strcmp(end, INTAKE_PART) != 0 && strcmp(end, INTAKE_HAVE) != 0))
            continue;
        snprintf(path, sizeof path, "%s/%.250s", directory, names[i]);
        e = a->env->ops->remove(a->env, path);
    }
    arena_free(&scratch);
    return e;
}

enum err aggregator_spool_sweep(struct aggregator *a, bool ended)
{
    for (unsigned i = 0; i < a->core.fragments; i++) {
        struct arena scratch = arena_make(0);
        char path[AGGREGATOR_PATH_MAX], current[32], last[32], **names = NULL;
        size_t count = 0;
        enum err e = ERR_OK;
        snprintf(path, sizeof path, "spool/%u", i);
        snprintf(current, sizeof current, "%" PRIu64, a->core.f[i].round);
        snprintf(last, sizeof last, "%" PRIu64,
                 a->core.f[i].round - a->replica->o.compresses_downlink);
        if (a->env->ops->exists(a->env, path))
            e = a->env->ops->list(a->env, path, &scratch, &names, &count);
        for (size_t k = 0; e == ERR_OK && k < count; k++) {
            bool kept = strcmp(names[k], current) == 0 || strcmp(names[k], last) == 0;
            snprintf(path, sizeof path, "spool/%u/%.32s", i, names[k]);
            if (!kept)
                e = a->env->ops->remove(a->env, path);
            else if (!ended)
                e = parts_discard(a, path);
        }
        arena_free(&scratch);
        TRY(e);
    }
    return ERR_OK;
}

bool aggregator_spool_verifying(const struct aggregator *a, unsigned fragment, uint64_t round)
{
    for (const struct upload *up = a->part.spool->uploads; up; up = up->next)
        if (up->state == UPLOAD_VERIFYING && up->in.header.fragment == fragment &&
            up->in.header.round == round)
            return true;
    return false;
}

enum err aggregator_spool_remove(struct aggregator *a, unsigned fragment, uint64_t round)
{
    char path[AGGREGATOR_PATH_MAX];
    snprintf(path, sizeof path, "spool/%u/%" PRIu64, fragment, round);
    return a->env->ops->remove(a->env, path);
}

enum err aggregator_spool_drop(struct aggregator *a, unsigned fragment, uint64_t round)
{
    if (aggregator_spool_verifying(a, fragment, round))
        return ERR_OK; /* it renames a file there */
    return aggregator_spool_remove(a, fragment, round);
}

void aggregator_spool_hold(struct aggregator *a, unsigned fragment, uint64_t round)
{
    a->part.spool->held = (struct spool_held){.on = true, .fragment = fragment, .round = round};
}

enum err aggregator_spool_release(struct aggregator *a)
{
    const struct spool_held h = a->part.spool->held;
    a->part.spool->held = (struct spool_held){.on = false};
    return h.left ? aggregator_spool_drop(a, h.fragment, h.round) : ERR_OK;
}

/* Removes the rest of the spool of a round that is over: at once, or after the organs have read it.
 */
static enum err spool_left(struct aggregator *a, unsigned fragment, uint64_t round)
{
    struct spool_held *h = &a->part.spool->held;
    if (!h->on || h->fragment != fragment || h->round != round)
        return aggregator_spool_drop(a, fragment, round);
    h->left = true;
    return ERR_OK;
}

/* ---- what others ask ---- */

uint64_t aggregator_spool_bytes(const struct aggregator *a)
{
    return a->part.spool->payload_bytes;
}

unsigned aggregator_spool_streams(const struct aggregator *a, unsigned site)
{
    return a->part.spool->site[site].streams;
}

const struct aggregator_pace *aggregator_spool_pace(const struct aggregator *a, unsigned site)
{
    return &a->part.spool->site[site].pace;
}

bool aggregator_spool_sent(const struct aggregator *a, unsigned fragment, unsigned site,
                           struct aggregator_sent *out)
{
    const struct upload *up = a->part.spool->uploads;
    while (up && !(up->site == site && up->in.header.fragment == fragment &&
                   up->state != UPLOAD_SUPERSEDED))
        up = up->next;
    if (up)
        *out = (struct aggregator_sent){blocks_sum(&up->in.blocks), up->in.header.payload_bytes,
                                        aggregator_now(a) - up->chunk_ms};
    return up != NULL;
}

/* ---- answers ---- */

static void say_quarantine(const struct aggregator *a, const struct upload *up,
                           struct wire_answer *answer)
{
    answer->outcome = ROUND_EXCLUDED;
    aggregator_quarantine_text(a, up->site, answer->text);
}

/* ---- offer ---- */

/* Of a round of the schedule. */
static float weight_max(const struct aggregator *a, const struct wire_contribution *m)
{
    return weights_max(a->o->bounds.weights, a->o->bounds.share_max,
                       schedule_length(&a->replica->schedule, m->fragment, m->round),
                       a->o->bounds.max_local_steps_offline);
}

/* Rows that need no core: is the header something a site of this run may say? */
static bool header_good(const struct aggregator *a, const struct wire_contribution *m,
                        struct wire_answer *answer)
{
    if (m->fragment >= a->core.fragments || !aggregator_serves(a, m->fragment))
        aggregator_say(answer, ROUND_INVALID, "no fragment of this aggregator");
    else if (m->round >= aggregator_rounds(a, m->fragment))
        aggregator_say(answer, ROUND_INVALID, "beyond the last scheduled round");
    else if (digest_zero(&m->payload))
        aggregator_say(answer, ROUND_INVALID, "no payload digest");
    else if (!isfinite(m->weight) || m->weight <= 0)
        aggregator_say(answer, ROUND_INVALID, "weight is not a positive number");
    else if (m->weight > weight_max(a, m) && !MUTANT(WEIGHT_UNBOUNDED))
        aggregator_say(
            answer, ROUND_INVALID,
            "weight %g is beyond %g, the most that the configuration allows (site.batch_scale)",
            (double)m->weight, (double)weight_max(a, m));
    else if (m->round == a->replica->state[m->fragment].round &&
             m->codec != (uint32_t)outer_state_codec(a->replica, m->fragment))
        aggregator_say(
            answer, ROUND_MISMATCH,
            "codec: not the one that configuration and parent manifest say for this round");
    else if (a->sums->header(a, m))
        aggregator_say(answer, ROUND_INVALID, "%s", a->sums->header(a, m));
    else
        return true;
    return false;
}

static struct round_event contribution_event(const struct aggregator *a, enum round_event_kind kind,
                                             unsigned site, const struct wire_contribution *m,
                                             float norm)
{
    struct digest grid = outer_state_grid(a->replica, m->fragment);
    struct round_event e = aggregator_event(kind, site, &m->head);
    e.fragment = m->fragment;
    e.round = m->round;
    e.parent = m->parent;
    e.offer.payload = m->payload;
    e.offer.payload_bytes = m->payload_bytes;
    e.offer.payload_max = a->sums->payload_max(a, m->fragment);
    e.offer.weight = m->weight;
    e.offer.norm = norm;
    e.offer.data_cursor = m->data_cursor;
    e.offer.charged = m->charged;
    e.offer.residual_ratio = m->residual_ratio;
    e.offer.grid_differs = !digest_equal(&grid, &m->grid);
    return e;
}

static enum round_outcome step_event(struct aggregator *a, struct round_event e,
                                     struct wire_answer *answer)
{
    struct round_update u;
    aggregator_step(a, &e, &u);
    aggregator_say(answer, u.outcome, "%s", u.text ? u.text : "");
    answer->round = u.round;
    return u.outcome;
}

static enum round_outcome offer_step(struct aggregator *a, unsigned site,
                                     const struct wire_contribution *m, struct wire_answer *answer)
{
    return step_event(a, contribution_event(a, ROUND_OFFER, site, m, 0), answer);
}

/* One part file per site, fragment and round: parts of other bytes are removed. Only a site that
 * offers a second time, or did so before this process began, can have left one: listing the
 * directory for each of 1,000 sites would read 1,000,000 names a round. */
static enum err parts_clear(struct aggregator *a, const struct upload *up)
{
    struct arena scratch = arena_make(0);
    char directory[AGGREGATOR_PATH_MAX], mine[WIRE_NAME_MAX + 2], **names = NULL;
    size_t count = 0;
    enum err e = ERR_OK;
    snprintf(directory, sizeof directory, "spool/%u/%" PRIu64, up->in.header.fragment,
             up->in.header.round);
    snprintf(mine, sizeof mine, "%s.", a->members.names[up->site]); /* a name holds no dot */
    if (a->env->ops->exists(a->env, directory))
        e = a->env->ops->list(a->env, directory, &scratch, &names, &count);
    for (size_t i = 0; e == ERR_OK && i < count; i++) {
        char path[2 * AGGREGATOR_PATH_MAX];
        snprintf(path, sizeof path, "%s/%.250s", directory, names[i]);
        bool kept =
            !strcmp(path, up->in.part) || !strcmp(path, up->in.have) || !strcmp(path, up->in.final);
        if (strncmp(names[i], mine, strlen(mine)) == 0 && !kept)
            e = a->env->ops->remove(a->env, path);
    }
    arena_free(&scratch);
    return e;
}

static void upload_close(struct aggregator *a, struct upload *up)
{
    enum err e = intake_close(a->env, &up->in);
    if (e != ERR_OK)
        aggregator_halt(a, e);
}

static void upload_free(struct aggregator *a, struct upload *up)
{
    upload_close(a, up);
    for (struct upload **at = &a->part.spool->uploads; *at; at = &(*at)->next)
        if (*at == up) {
            *at = up->next;
            break;
        }
    a->part.spool->site[up->site].streams--;
    free(up->grid);
    free(up);
}

/* Is another thread working on the files that this contribution would open? Then the site tries
 * again later. */
static bool upload_busy(const struct aggregator *a, unsigned site,
                        const struct wire_contribution *m)
{
    for (const struct upload *up = a->part.spool->uploads; up; up = up->next)
        if (up->site == site && up->in.header.fragment == m->fragment &&
            up->in.header.round == m->round && (up->storing || up->state == UPLOAD_VERIFYING))
            return true;
    return false;
}

static void upload_to(struct upload *up, enum upload_state state)
{
    ASSERT(up->state == UPLOAD_RECEIVING);
    ASSERT(state != UPLOAD_RECEIVING);
    ASSERT(state != UPLOAD_VERIFYING || !up->storing);
    up->state = state;
}

static void uploads_supersede(struct aggregator *a, unsigned site, unsigned fragment)
{
    for (struct upload *up = a->part.spool->uploads; up; up = up->next)
        if (up->site == site && up->in.header.fragment == fragment &&
            up->state == UPLOAD_RECEIVING) {
            upload_to(up, UPLOAD_SUPERSEDED);
            if (!up->storing)        /* else of another round */
                upload_close(a, up); /* the newer stream writes the same file */
        }
}

static enum err upload_open(struct aggregator *a, unsigned site, const struct wire_contribution *m,
                            bool clear, struct upload **out)
{
    struct upload *up = *out = calloc(1, sizeof *up);
    if (!up)
        return err_set(ERR_MEMORY, "no memory for a contribution");
    uploads_supersede(a, site, m->fragment);
    up->site = site;
    up->offered_ms = up->chunk_ms = aggregator_now(a);
    aggregator_spool_path(a->members.names[site], m->fragment, m->round, &m->payload, up->in.final);
    intake_make(&up->in, m);
    up->next = a->part.spool->uploads;
    a->part.spool->uploads = up;
    a->part.spool->site[site].streams++;
    enum err e = clear ? parts_clear(a, up) : ERR_OK;
    if (e == ERR_OK &&
        a->env->ops->exists(
            a->env, up->in.final)) { /* durable since before a crash: only the record is missing */
        blocks_fill(&up->in.blocks, m->payload_bytes);
    } else if (e == ERR_OK) {
        e = intake_open_marked(a->env, &up->in);
    }
    if (e != ERR_OK) {
        upload_free(a, up);
        *out = NULL;
    }
    return e;
}

void aggregator_offer(void *self, const char *peer, const struct wire_contribution *m,
                      struct wire_answer *answer, void **upload)
{
    struct aggregator *a = self;
    struct upload *up;
    *upload = NULL;
    memset(answer, 0, sizeof *answer);
    int site =
        aggregator_caller(a, peer, ROLES_CONTRIBUTE, &m->head, &answer->outcome, answer->text);
    bool clear = true;
    if (site >= 0 && m->supply) {
        aggregator_say(answer, ROUND_REBIND, "this aggregator is rebuilt: say hello");
        return;
    }
    if (site >= 0 && !a->signs->header_signed(a, (unsigned)site, m)) {
        aggregator_say(answer, ROUND_INVALID,
                       "the header's signature is not by this site's identity key");
        aggregator_refused(a, site, peer, "contribute", answer->outcome, answer->text);
        return;
    }
    if (site >= 0 && header_good(a, m, answer)) {
        clear = a->core.f[m->fragment].entries[site].offered ||
                m->round == a->fragment[m->fragment].found_round;
        if (offer_step(a, (unsigned)site, m, answer) == ROUND_RECEIPT)
            return;
    }
    if (answer->outcome != ROUND_RESUME) {
        aggregator_refused(a, site, peer, "contribute", answer->outcome, answer->text);
        if (site >= 0 && answer->outcome == ROUND_INVALID)
            aggregator_strike(a, (unsigned)site, m, answer->text);
        return;
    }
    if (a->part.spool->site[site].streams >= STREAMS_PER_FRAGMENT * a->core.fragments) {
        aggregator_say(answer, ROUND_FULL, "too many open streams of this site");
        answer->retry_ms = AGGREGATOR_FULL_RETRY_MS;
        return;
    }
    if (upload_busy(a, (unsigned)site, m)) {
        aggregator_say(answer, ROUND_FULL,
                       "the bytes sent before are still being stored or verified");
        answer->retry_ms = BUSY_RETRY_MS;
        return;
    }
    enum err e = upload_open(a, (unsigned)site, m, clear, &up);
    if (e != ERR_OK) {
        aggregator_say_failed(a, e, answer);
    } else {
        answer->offset = blocks_first(&up->in.blocks);
        answer->blocks = up->in.blocks;
        *upload = up;
    }
}

/* ---- chunks ---- */

/* A stream outlives the check of its offer: its identity may have been revoked since. */
static bool upload_revoked(struct aggregator *a, const struct upload *up,
                           struct wire_answer *answer)
{
    char uri[3 * WIRE_NAME_MAX];
    snprintf(uri, sizeof uri, "atoll://%s/site/%s", a->o->run, a->members.names[up->site]);
    const char *why = aggregator_revoked(a, uri, &up->in.header.head.certificate);
    if (!why)
        return false;
    aggregator_say(answer, ROUND_EXCLUDED, "%s: %s", uri, why);
    aggregator_refused(a, (int)up->site, uri, "payload", answer->outcome, answer->text);
    return true;
}

/* May this chunk be stored? Asked again after the chunk is stored, because the round may have been
 * committed meanwhile. BLOCKS_NEW: it may. */
static enum blocks_fit chunk_fits(struct aggregator *a, const struct upload *up, uint64_t offset,
                                  size_t n, struct wire_answer *answer)
{
    memset(answer, 0, sizeof *answer);
    answer->round = a->core.f[up->in.header.fragment].round;
    answer->offset = offset;
    if (up->state == UPLOAD_SUPERSEDED) {
        aggregator_say(answer, ROUND_SUPERSEDED,
                       "a newer stream of this contribution took its place");
        return BLOCKS_GAP;
    }
    if (aggregator_quarantined(a, up->site)) {
        say_quarantine(a, up, answer);
        return BLOCKS_GAP;
    }
    if (upload_revoked(a, up, answer))
        return BLOCKS_GAP;
    if (answer->round !=
        up->in.header.round) { /* the quorum has sealed: the rest of the bytes is not needed */
        aggregator_say(answer, ROUND_BEHIND, "that round is committed");
        return BLOCKS_GAP;
    }
    return intake_fits(&up->in, offset, n, answer);
}

void aggregator_chunk(void *self, void *upload, uint64_t offset, const uint8_t *data, size_t n,
                      struct wire_answer *answer)
{
    struct upload *up = upload;
    (void)data;
    if (chunk_fits(self, up, offset, n, answer) != BLOCKS_NEW)
        return;
    answer->outcome = ROUND_PENDING;
    up->storing++;
}

enum err aggregator_store(void *self, void *upload, uint64_t offset, const uint8_t *data, size_t n)
{
    const struct aggregator *a = self;
    const struct upload *up = upload;
    return intake_store(a->env, &up->in, offset, data, n);
}

void aggregator_stored(void *self, void *upload, uint64_t offset, size_t n, enum err e,
                       struct wire_answer *answer)
{
    struct aggregator *a = self;
    struct upload *up = upload;
    ASSERT(up->storing > 0);
    up->storing--;
    if (e != ERR_OK) {
        memset(answer, 0, sizeof *answer);
        aggregator_say_failed(a, e, answer);
        return;
    }
    if (chunk_fits(a, up, offset, n, answer) !=
        BLOCKS_NEW) /* or another stream brought the same bytes meanwhile */
        return;
    blocks_add(&up->in.blocks, offset, n);
    a->part.spool->payload_bytes += n;
    aggregator_metrics_up(a, up->site, n);
    up->chunk_ms = aggregator_now(a);
    aggregator_heard(a, up->site);
}

/* ---- how large it is (docs/protocol.md 3.10) ---- */

static float upload_norm(const struct aggregator *a, const struct upload *up)
{
    size_t n = a->replica->fragments->f[up->in.header.fragment].elements;
    return bounds_norm(up->squares, n, up->in.header.weight);
}

/* The outer parameters are read only for a norm beyond what the last rounds allow by themselves. */
static enum err norm_check(struct aggregator *a, const struct upload *up)
{
    unsigned fragment = up->in.header.fragment;
    const struct bounds_history *h = &a->fragment[fragment].norms;
    float norm = upload_norm(a, up), theta_rms = 0, median = bounds_median(h);
    if (median > 0 && norm <= bounds_norm_max(h, a->o->bounds.norm_limit, 0))
        return ERR_OK;
    TRY(outer_state_rms(a->replica, fragment, &theta_rms));
    float most = bounds_norm_max(h, a->o->bounds.norm_limit, theta_rms);
    if (isfinite(norm) && norm <= most)
        return ERR_OK;
    return err_set(ERR_PROTO,
                   "site %s: norm %g (RMS of its values over its weight %g) is beyond %g: "
                   "outer.norm_limit %g, median of the last rounds %g, RMS of the parameters %g; "
                   "its training diverges: take a lower train.lr or outer.lr, or a larger limit",
                   a->members.names[up->site], (double)norm, (double)up->in.header.weight,
                   (double)most, (double)a->o->bounds.norm_limit, (double)median,
                   (double)theta_rms);
}

/* ---- finish ---- */

static enum err journal_accept(struct aggregator *a, const struct upload *up)
{
    const struct wire_contribution *m = &up->in.header;
    struct journal_record r = {.kind = JOURNAL_ACCEPT,
                               .fragment = m->fragment,
                               .site = up->site,
                               .round = m->round,
                               .digest = m->payload,
                               .payload_bytes = m->payload_bytes,
                               .incarnation = m->head.incarnation,
                               .data_cursor = m->data_cursor,
                               .charged = m->charged,
                               .weight = m->weight,
                               .residual_ratio = m->residual_ratio};
    return journal_append(&a->journal, &r);
}

/* The payload is verified and durable under its final name. Record first, then the core, then the
 * receipt. */
static void contribution_journal(struct aggregator *a, struct upload *up,
                                 struct wire_answer *answer)
{
    char missing[256];
    unsigned fragment = up->in.header.fragment;
    enum err e = MUTANT(RECEIPT_UNRECORDED) ? ERR_OK : journal_accept(a, up);
    if (e != ERR_OK) {
        aggregator_say_failed(a, e, answer);
        return;
    }
    struct round_event stored =
        contribution_event(a, ROUND_STORED, up->site, &up->in.header, upload_norm(a, up));
    enum round_outcome o = step_event(a, stored, answer);
    ASSERT(o == ROUND_RECEIPT); /* asked just before, and nothing came between */
    if (!fragment)
        a->part.spool->site[up->site].pace = (struct aggregator_pace){
            up->in.header.pace, up->in.header.round, aggregator_now(a) - up->offered_ms};
    unsigned count = aggregator_missing(a, fragment, missing, sizeof missing);
    log_event(LOG_DETAIL, "accept",
              "fragment=%u round=%" PRIu64 " site=%s bytes=%" PRIu64 " missing=%u%s%s", fragment,
              up->in.header.round, a->members.names[up->site], up->in.header.payload_bytes, count,
              count ? " waiting_for=" : "", missing);
}

/* Wrong bytes are removed before anything is promised; RESUME at 0 makes the site send them again.
 */
static void upload_refuse(struct aggregator *a, struct upload *up, struct wire_answer *answer)
{
    const char *path = up->in.handle < 0 ? up->in.final : up->in.part;
    upload_close(a, up);
    blocks_make(&up->in.blocks, up->in.header.payload_bytes);
    enum err e = a->env->ops->remove(a->env, up->in.have);
    if (e == ERR_OK)
        e = a->env->ops->remove(a->env, path);
    if (e != ERR_OK) {
        aggregator_say_failed(a, e, answer);
        return;
    }
    aggregator_say(answer, up->in.verdict == ERR_PROTO ? ROUND_INVALID : ROUND_RESUME, "%s",
                   up->in.why);
    aggregator_refused(a, (int)up->site, a->members.names[up->site], "payload", answer->outcome,
                       up->in.why);
    if (up->in.verdict == ERR_PROTO)
        aggregator_strike(a, up->site, &up->in.header, up->in.why);
}

static void contribution_finish(struct aggregator *a, struct upload *up, struct wire_answer *answer)
{
    bool wrong = up->in.verdict == ERR_CORRUPT || up->in.verdict == ERR_PROTO;
    if (up->in.verdict != ERR_OK && !wrong) {
        err_set(up->in.verdict, "%s", up->in.why);
        aggregator_say_failed(a, up->in.verdict, answer);
        return;
    }
    if (aggregator_quarantined(a, up->site)) {
        say_quarantine(a, up, answer);
        return;
    }
    if (upload_revoked(a, up, answer)) /* nothing is journalled; the file goes with its round */
        return;
    if (offer_step(a, up->site, &up->in.header, answer) != ROUND_RESUME)
        return; /* overtaken: committed meanwhile, or a newer process of the site was bound
                 */
    if (a->core.f[up->in.header.fragment].sealed) { /* by this very question: its deadline passed */
        aggregator_say(answer, ROUND_LATE, "sealed without this site: the manifest follows");
        return;
    }
    if (!wrong && !a->o->masks.on) {
        intake_verdict(&up->in, norm_check(a, up));
        wrong = up->in.verdict == ERR_PROTO;
    }
    if (wrong)
        upload_refuse(a, up, answer);
    else if (up->in.verdict != ERR_OK)
        aggregator_say_failed(a, up->in.verdict, answer);
    else
        contribution_journal(a, up, answer);
}

static uint8_t *grid_copy(const struct aggregator *a, unsigned fragment)
{
    size_t n = a->replica->fragments->f[fragment].elements / DEV_BLOCK;
    uint8_t *grid = malloc(n);
    if (grid)
        memcpy(grid, a->replica->state[fragment].codes, n);
    return grid;
}

void aggregator_finish(void *self, void *upload, bool complete, struct wire_answer *answer)
{
    struct aggregator *a = self;
    struct upload *up = upload;
    memset(answer, 0, sizeof *answer);
    answer->round = a->core.f[up->in.header.fragment].round;
    if (up->state == UPLOAD_SUPERSEDED)
        aggregator_say(answer, ROUND_SUPERSEDED,
                       "a newer stream of this contribution took its place");
    else if (aggregator_quarantined(a, up->site))
        say_quarantine(a, up, answer);
    else if (!complete || !intake_whole(&up->in))
        aggregator_say(answer, ROUND_RESUME, "not all bytes came");
    else if (!upload_revoked(a, up, answer) &&
             offer_step(a, up->site, &up->in.header, answer) == ROUND_RESUME) {
        up->codec = codec_get(outer_state_codec(a->replica, up->in.header.fragment));
        up->grid = grid_copy(a, up->in.header.fragment);
        up->masked_bytes = a->sums->masked_bytes(a, up->in.header.fragment);
        if (up->grid) {
            answer->outcome = ROUND_PENDING;
            upload_to(up, UPLOAD_VERIFYING);
            return;
        }
        aggregator_say(answer, ROUND_FULL, "no memory to verify it now");
        answer->retry_ms = BUSY_RETRY_MS;
    }
    answer->offset = blocks_first(&up->in.blocks);
    upload_free(a, up);
}

/* All bytes are in the part file (or, after a crash, under the final name). */
void aggregator_verify(void *self, void *upload)
{
    struct aggregator *a = self;
    struct upload *up = upload;
    const struct wire_contribution *m = &up->in.header;
    const char *path = up->in.handle < 0 ? up->in.final : up->in.part;
    struct spool_check check = {path,     m->fragment,      up->codec,
                                up->grid, up->masked_bytes, m->payload};
    enum err e = spool_verify(a, &check, &up->squares);
    if (e == ERR_OK)
        e = a->signs->header_keep(a, m, up->in.final);
    if (e == ERR_OK)
        e = intake_keep(a->env, &up->in, MUTANT(RECEIPT_UNSYNCED) ? NULL : up->in.final);
    intake_verdict(&up->in, e);
}

void aggregator_verified(void *self, void *upload, struct wire_answer *answer)
{
    struct aggregator *a = self;
    struct upload *up = upload;
    unsigned fragment = up->in.header.fragment;
    uint64_t round = up->in.header.round;
    memset(answer, 0, sizeof *answer);
    ASSERT(up->state == UPLOAD_VERIFYING);
    contribution_finish(a, up, answer);
    if (answer->outcome == ROUND_RESUME)
        answer->offset = blocks_first(&up->in.blocks);
    upload_free(a, up);
    if (round + a->replica->o.compresses_downlink <
        a->core.f[fragment].round) { /* over, while it was in there; or else at the next commit */
        enum err e = spool_left(a, fragment, round);
        if (e != ERR_OK)
            aggregator_halt(a, e);
    }
}

void aggregator_spool_close(struct aggregator *a)
{
    struct wire_answer ignored;
    while (a->part.spool->uploads)
        aggregator_finish(a, a->part.spool->uploads, false, &ignored);
}
