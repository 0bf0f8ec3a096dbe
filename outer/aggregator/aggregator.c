/* Opening and recovery, the work between calls, and what the outside may see. */
#include "outer/aggregator/aggregator.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_identity.h"
#include "outer/aggregator/aggregator_masks.h"
#include "outer/aggregator/aggregator_scrub.h"
#include "outer/aggregator/aggregator_state.h"
#include "outer/config/identity.h"
#include "outer/protocol/mutant.h"

enum { ALARMS_MAX = 2 }; /* lines of one caller, kind and answer in a window of the limiter */

uint64_t aggregator_now(const struct aggregator *a)
{
    return a->env->ops->now_ms(a->env);
}

bool aggregator_serves(const struct aggregator *a, unsigned fragment)
{
    return a->o->count <= 1 || fragment % a->o->count == a->o->index;
}

uint64_t aggregator_rounds(const struct aggregator *a, unsigned fragment)
{
    return aggregator_serves(a, fragment) ? schedule_rounds(&a->replica->schedule, fragment) : 0;
}

void aggregator_halt(struct aggregator *a, enum err e)
{
    if (a->failed != ERR_OK)
        return;
    char quoted[AGGREGATOR_TEXT_MAX];
    a->failed = e;
    snprintf(a->why, sizeof a->why, "%s", err_message());
    log_event(LOG_ERROR, "halt", "error=%s why=%s", err_name(e),
              log_quote(quoted, sizeof quoted, a->why));
}

/* For good: a start refuses the directory until a person removes the file. */
static void stale_halt(struct aggregator *a, const char *why)
{
    char text[AGGREGATOR_TEXT_MAX];
    snprintf(text, sizeof text, "%s", why);
    struct file_part part = {text, strlen(text)};
    if (a->env->ops->write(a->env, AGGREGATOR_STALE, &part, 1) != ERR_OK)
        log_event(LOG_WARN, "stale", "text=\"not marked: the disk fails\"");
    aggregator_halt(a, err_set(ERR_STALE, "%s", text));
}

static enum err stale_check(const struct aggregator *a)
{
    if (!a->env->ops->exists(a->env, AGGREGATOR_STALE))
        return ERR_OK;
    return err_set(ERR_STALE,
                   "%s/%s: a site has proved that this directory is old, or a copy; serve the "
                   "newest one, or make it again from the sites' (--rebuild, with an empty "
                   "serve.dir). Where this one is the right one after all, remove that file",
                   a->env->root, AGGREGATOR_STALE);
}

/* ---- the core ---- */

/* An alarm is one of a caller, a kind of event and an answer: a site may repeat it at each call. */
static bool alarm_passes(struct aggregator *a, const struct round_event *e,
                         const struct round_update *u, unsigned *repeats)
{
    char what[80];
    snprintf(what, sizeof what, "%s %s", round_event_name(e->kind), round_outcome_name(u->outcome));
    const char *who = e->site < a->members.count ? a->members.names[e->site] : "";
    return log_limit_pass(&a->limit, what, who, ALARMS_MAX, e->now_ms, repeats);
}

static void step_log(struct aggregator *a, const struct round_event *e,
                     const struct round_update *u)
{
    char values[1024];
    unsigned repeats = 0;
    enum log_level level = u->halt ? LOG_ERROR : u->alarm ? LOG_WARN : LOG_DEBUG;
    if (!log_wanted(level) || (level == LOG_WARN && !alarm_passes(a, e, u, &repeats)))
        return;
    round_trace(e, u, values, sizeof values);
    if (repeats)
        log_event(level, round_event_name(e->kind), "%s repeats=%u", values, repeats);
    else
        log_event(level, round_event_name(e->kind), "%s", values);
}

void aggregator_step(struct aggregator *a, struct round_event *e, struct round_update *u)
{
    e->now_ms = aggregator_now(a);
    round_step(&a->core, e, u);
    if (e->kind != ROUND_TICK || u->seal)
        step_log(a, e, u);
    if (u->seal) {
        a->fragment[u->seal_fragment].sealed = true;
        a->fragment[u->seal_fragment].seal_set = u->seal_set;
    }
    a->wake_ms = u->wake_ms;
    for (unsigned i = 0; i < a->core.fragments; i++)
        if (a->fragment[i].first_ms == UINT64_MAX &&
            (a->core.f[i].count || a->fragment[i].asked > a->core.f[i].round)) {
            aggregator_notice_begin(a, i, e->now_ms);
        }
    if (u->halt && u->outcome == ROUND_LOST_STATE)
        stale_halt(a, u->text);
    else if (u->halt)
        aggregator_halt(a, err_set(ERR_DISAGREE,
                                   "more than half of the sites agree on another state than ours"));
}

/* ---- what others see ---- */

bool aggregator_last_committed(const struct aggregator *a)
{
    for (unsigned i = 0; i < a->core.fragments; i++)
        if (a->core.f[i].round < aggregator_rounds(a, i))
            return false;
    return true;
}

bool aggregator_owes_report(const struct aggregator *a, unsigned site)
{
    return set_has(&a->core.members, site) && !a->site[site].finished &&
           !a->site[site].status.left && !aggregator_quarantined(a, site);
}

static bool all_done(const struct aggregator *a)
{
    if (!aggregator_last_committed(a))
        return false;
    for (unsigned i = 0; i < a->members.count; i++)
        if (aggregator_owes_report(a, i))
            return false;
    return true;
}

/* Has it said so, since this process began, of every fragment? */
static bool has_last(const struct aggregator *a, unsigned site)
{
    bool has = aggregator_last_committed(a);
    for (unsigned i = 0; i < a->core.fragments; i++)
        has = has && (!aggregator_serves(a, i) || a->core.f[i].adopted[site] == a->core.f[i].round);
    return has;
}

enum err aggregator_finished(struct aggregator *a, unsigned site)
{
    struct file_part lines[2 * ROUND_SITES_MAX];
    size_t n = 0;
    if (a->site[site].finished || !has_last(a, site))
        return ERR_OK;
    for (unsigned i = 0; i < a->members.count; i++)
        if (a->site[i].finished || i == site) {
            lines[n++] = (struct file_part){a->members.names[i], strlen(a->members.names[i])};
            lines[n++] = (struct file_part){"\n", 1};
        }
    TRY(a->env->ops->write(a->env, AGGREGATOR_FINISHED, lines, n));
    a->site[site].finished = true;
    return ERR_OK;
}

void aggregator_heard(struct aggregator *a, unsigned site)
{
    uint64_t now_ms = aggregator_now(a), before_ms = a->site[site].status.heard_ms;
    a->site[site].silent_ms = now_ms - (before_ms ? before_ms : a->start.opened_ms);
    a->site[site].status.heard_ms = now_ms;
    set_put(&a->touched, site, true);
}

/* Since when some round waits for this site. */
static uint64_t missing_since(const struct aggregator *a, unsigned site)
{
    uint64_t since = UINT64_MAX;
    for (unsigned i = 0; i < a->shown.status.fragments; i++)
        if (set_has(&a->shown.waiting[i].missing, site) && a->shown.waiting[i].first_ms < since)
            since = a->shown.waiting[i].first_ms;
    return since == UINT64_MAX ? 0 : since;
}

/* Only the sites that were heard of: after every call, so its cost must not grow with their number.
 */
static void show_sites(struct aggregator *a)
{
    for (unsigned w = 0; w < SET_WORDS; w++)
        for (; a->touched.word[w]; a->touched.word[w] &= a->touched.word[w] - 1) {
            unsigned i = 64 * w + (unsigned)__builtin_ctzll(a->touched.word[w]);
            struct aggregator_site_status *to = &a->shown.status.site[i];
            bool before = to->bound;
            a->site[i].status.bound = a->core.s[i].bound;
            a->site[i].status.quarantined = aggregator_quarantined(a, i);
            a->site[i].status.removed = !aggregator_serves_site(a, i);
            a->site[i].status.name = a->members.names[i];
            *to = a->site[i].status;
            a->shown.status.bound += (unsigned)to->bound - (unsigned)before;
        }
}

static void show(struct aggregator *a)
{
    pthread_mutex_lock(&a->mutex);
    struct aggregator_status *s = &a->shown.status;
    const char *owes;
    s->sites = a->members.count;
    s->fragments = a->core.fragments;
    show_sites(a);
    for (unsigned i = 0; i < a->core.fragments; i++) {
        a->shown.waiting[i].first_ms = a->fragment[i].first_ms;
        a->shown.waiting[i].missing = aggregator_missing_of(a, i, &owes);
        s->round[i] = a->core.f[i].round;
        s->rounds[i] = aggregator_rounds(a, i);
    }
    s->epoch = a->start.epoch;
    s->payload_up = a->payload_up;
    s->payload_down = a->payload_down;
    s->done = all_done(a);
    s->failed = a->failed;
    memcpy(s->why, a->why, sizeof s->why);
    pthread_mutex_unlock(&a->mutex);
}

void aggregator_status(const struct aggregator *a, struct aggregator_status *out)
{
    pthread_mutex_t *mutex = (pthread_mutex_t *)(uintptr_t)&a->mutex;
    pthread_mutex_lock(mutex);
    *out = a->shown.status;
    for (unsigned i = 0; i < out->sites; i++)
        out->site[i].missing_ms = missing_since(a, i);
    pthread_mutex_unlock(mutex);
}

uint64_t aggregator_final(const struct aggregator *a, unsigned fragment)
{
    return a->core.f[fragment].final;
}

bool aggregator_done(const struct aggregator *a)
{
    pthread_mutex_t *mutex = (pthread_mutex_t *)(uintptr_t)&a->mutex;
    pthread_mutex_lock(mutex);
    bool done = a->shown.status.done;
    pthread_mutex_unlock(mutex);
    return done;
}

enum err aggregator_failed(const struct aggregator *a)
{
    pthread_mutex_t *mutex = (pthread_mutex_t *)(uintptr_t)&a->mutex;
    pthread_mutex_lock(mutex);
    enum err e = a->shown.status.failed;
    if (e != ERR_OK)
        err_set(e, "%s", a->shown.status.why);
    pthread_mutex_unlock(mutex);
    return e;
}

/* ---- work ---- */

/* Begins to commit what is sealed and not waiting for space, one at a time; returns when to try
 * again what is. */
static uint64_t commit_pending(struct aggregator *a, uint64_t now_ms)
{
    uint64_t wake_ms = UINT64_MAX;
    for (unsigned i = 0; i < a->core.fragments && a->failed == ERR_OK; i++) {
        struct aggregator_fragment *f = &a->fragment[i];
        bool ready = true;
        if (!f->sealed)
            continue;
        if (now_ms >= f->retry_ms && a->commit.stage == COMMIT_IDLE) {
            enum err e = aggregator_masks_ready(a, i, &ready);
            if (e == ERR_OK && ready)
                e = aggregator_organs_sealed(a, i);
            if (e != ERR_OK)
                aggregator_commit_later(a, i, e);
            else if (ready)
                aggregator_commit_begin(a, i);
        }
        if (ready && f->retry_ms < wake_ms)
            wake_ms = f->retry_ms;
    }
    return wake_ms;
}

static bool any_sealed(const struct aggregator *a, uint64_t now_ms)
{
    for (unsigned i = 0; i < a->core.fragments; i++)
        if (a->fragment[i].sealed && now_ms >= a->fragment[i].retry_ms)
            return true;
    return false;
}

static uint64_t aggregator_work(void *self, bool *stop)
{
    struct aggregator *a = self;
    uint64_t wake_ms, now_ms;
    enum err e = aggregator_commit_next(a);
    if (e != ERR_OK)
        aggregator_halt(a, e);
    do { /* one seal a tick */
        struct round_event tick = {.kind = ROUND_TICK};
        struct round_update u;
        now_ms = aggregator_now(a);
        aggregator_step(a, &tick, &u);
    } while (a->failed == ERR_OK && !any_sealed(a, now_ms) && a->wake_ms <= now_ms);
    e = aggregator_organs_work(a);
    if (e != ERR_OK)
        aggregator_halt(a, e);
    aggregator_scrub_work(a);
    wake_ms = commit_pending(a, now_ms);
    uint64_t notice_ms = aggregator_notice(a, now_ms);
    log_limit_flush(&a->limit, now_ms);
    wake_ms = a->wake_ms < wake_ms ? a->wake_ms : wake_ms;
    wake_ms = notice_ms < wake_ms ? notice_ms : wake_ms;
    show(a);
    *stop = a->failed != ERR_OK;
    return wake_ms;
}

struct link_service aggregator_service(struct aggregator *a)
{
    return (struct link_service){
        .self = a,
        .known = aggregator_known,
        .revoked = aggregator_revoked,
        .hello = aggregator_hello,
        .offer = aggregator_offer,
        .chunk = aggregator_chunk,
        .store = aggregator_store,
        .stored = aggregator_stored,
        .finish = aggregator_finish,
        .verify = aggregator_verify,
        .verified = aggregator_verified,
        .poll = aggregator_poll,
        .fetch = aggregator_fetch,
        .fetched = aggregator_fetched,
        .report = aggregator_report,
        .leave = aggregator_leave,
        .mask = aggregator_mask,
        .operate = aggregator_operate,
        .work = aggregator_work,
        .commit = aggregator_commit_outside,
    };
}

/* ---- recovery ---- */

/* An ACCEPT of the round in flight counts when its payload is here and holds; else the site will
 * send it again. */
static void recover_accept(struct aggregator *a, const struct journal_record *r)
{
    double squares;
    size_t elements = a->replica->fragments->f[r->fragment].elements;
    enum err e = aggregator_spool_found(a, r, &squares);
    if (e == ERR_CORRUPT)
        return;
    if (e != ERR_OK) {
        aggregator_halt(a, e);
        return;
    }
    struct round_event event = {.kind = ROUND_RESTORED,
                                .site = r->site,
                                .fragment = r->fragment,
                                .round = r->round,
                                .payload = r->digest,
                                .payload_bytes = r->payload_bytes,
                                .weight = r->weight,
                                .norm = bounds_norm(squares, elements, r->weight),
                                .incarnation = r->incarnation,
                                .data_cursor = r->data_cursor,
                                .charged = r->charged,
                                .residual_ratio = MUTANT(RATIO_FORGOTTEN) ? 0 : r->residual_ratio};
    struct round_update u;
    aggregator_step(a, &event, &u);
}

struct journal_head { /* where a process that ended in order has left the journal */
    uint64_t number;  /* of the next record */
    struct digest last;
};

struct recovery { /* reading the journal */
    struct aggregator *a;
    uint64_t epoch;            /* the highest there; 0: none */
    struct journal_head ended; /* of the file `ended`; number 0: it does not say */
};

/* Of the records that this file reads; an organ reads the others. */
enum {
    OWN_KINDS = 1u << JOURNAL_ACCEPT | 1u << JOURNAL_SEAL | 1u << JOURNAL_COMMIT |
                1u << JOURNAL_QUARANTINE | 1u << JOURNAL_OPERATOR | 1u << JOURNAL_EPOCH
};

static enum err recover_record(void *self, const struct journal_record *r)
{
    struct recovery *v = self;
    struct aggregator *a = v->a;
    if (!(OWN_KINDS & 1u << r->kind))
        return aggregator_organs_restore(a, r);
    if (r->kind == JOURNAL_EPOCH) {
        v->epoch = r->round > v->epoch ? r->round : v->epoch;
        return ERR_OK;
    }
    if (r->fragment >= a->core.fragments ||
        ((r->kind == JOURNAL_ACCEPT || r->kind == JOURNAL_QUARANTINE ||
          r->kind == JOURNAL_OPERATOR) &&
         r->site >= a->members.count))
        return err_set(ERR_CORRUPT,
                       "journal: names fragment %u, site %u, which this run does not have",
                       r->fragment, r->site);
    const struct round_fragment *f = &a->core.f[r->fragment];
    if (r->kind == JOURNAL_QUARANTINE) {
        aggregator_quarantine_restore(a, r);
    } else if (r->kind == JOURNAL_OPERATOR) {
        aggregator_order_restore(a, r);
    } else if (r->kind == JOURNAL_COMMIT) {
        if (r->round >= f->round)
            return err_set(ERR_CORRUPT,
                           "frag/%u is at round %" PRIu64 ", but round %" PRIu64
                           " was committed: restored from an older copy?",
                           r->fragment, f->round, r->round);
        a->fragment[r->fragment].committed = r->round + 1;
    } else if (r->round == f->round && r->kind == JOURNAL_SEAL) {
        return aggregator_masks_restore(a, r);
    } else if (r->round == f->round && r->kind == JOURNAL_ACCEPT) {
        recover_accept(a, r);
    }
    return ERR_OK;
}

/* ---- epoch ---- */

struct epoch { /* the file */
    uint64_t number, instance;
};

static void epoch_fields(struct record_cursor *c, void *self)
{
    struct epoch *e = self;
    record_u64(c, &e->number);
    record_u64(c, &e->instance);
}

static enum err epoch_write(struct env *w, struct epoch e)
{
    struct record_form form = {"epoch", epoch_fields, &e};
    return store_write(w, AGGREGATOR_EPOCH, &form, NULL, 0);
}

enum err aggregator_epoch_write(struct env *w, uint64_t epoch)
{
    return epoch_write(w, (struct epoch){.number = epoch});
}

static enum err epoch_again(struct aggregator *a)
{
    return epoch_write(a->env, (struct epoch){a->start.epoch, a->start.instance});
}

enum err aggregator_file_again(struct aggregator *a, const char *path)
{
    if (strcmp(path, AGGREGATOR_JOURNAL) == 0)
        return aggregator_journal_again(a);
    if (strcmp(path, AGGREGATOR_EPOCH) == 0)
        return epoch_again(a);
    if (strcmp(path, AGGREGATOR_IDENTITIES) == 0)
        return aggregator_identities_again(a);
    return store_begin_again(a->env);
}

/* The highest epoch of the manifests that made the present states. */
static enum err epoch_of_manifests(const struct aggregator *a, uint64_t *epoch)
{
    struct manifest m;
    for (unsigned i = 0; i < a->core.fragments; i++) {
        if (a->replica->state[i].round == 0)
            continue;
        enum err e = outer_state_manifest(a->replica, i, a->replica->state[i].round - 1, &m);
        if (e != ERR_OK && e != ERR_INPUT && e != ERR_CORRUPT)
            return e;
        if (e == ERR_OK && m.epoch > *epoch)
            *epoch = m.epoch;
    }
    return ERR_OK;
}

/* The highest epoch on record; journalled: the journal's. Each start writes it there as well, so
 * that the file can be lost; not both, since an epoch may have passed without a commit. */
static enum err epoch_find(struct aggregator *a, uint64_t journalled, uint64_t *epoch)
{
    struct arena scratch = arena_make(0);
    struct epoch found = {0};
    struct record_form form = {"epoch", epoch_fields, &found};
    struct record r;
    char quoted[512];
    enum err e = store_read(a->env, AGGREGATOR_EPOCH, &form, 0, &r, &scratch);
    arena_free(&scratch);
    *epoch = journalled;
    if (e == ERR_OK)
        *epoch = found.number > journalled ? found.number : journalled;
    if (e == ERR_OK && found.number + 1 < journalled) /* one behind: killed between the two */
        log_event(LOG_WARN, "epoch_older",
                  "file=%s/%s epoch=%" PRIu64 " journal=%" PRIu64
                  " why=\"an older copy; the journal's is taken\"",
                  a->env->root, AGGREGATOR_EPOCH, found.number, journalled);
    else if (e != ERR_INPUT && e != ERR_CORRUPT)
        return e;
    if (e == ERR_OK || (e == ERR_INPUT && !a->start.begun))
        return ERR_OK;
    if (!journalled)
        return err_set(ERR_CORRUPT,
                       "%s/%s and %s: both missing or damaged; sites would refuse an epoch that "
                       "they have seen. Restore one of the files; see runbook",
                       a->env->root, AGGREGATOR_EPOCH, AGGREGATOR_JOURNAL);
    log_event(LOG_WARN, "epoch_lost", "journal=%" PRIu64 " why=%s", journalled,
              log_quote(quoted, sizeof quoted, err_message()));
    return epoch_of_manifests(a, epoch);
}

/* ---- a journal that lost its end ---- */

static void ended_fields(struct record_cursor *c, void *self)
{
    struct journal_head *h = self;
    record_u64(c, &h->number);
    record_digest(c, &h->last);
}

static enum err ended_write(struct aggregator *a)
{
    struct journal_head h = {a->journal.sequence, a->journal.last};
    struct record_form form = {"ended", ended_fields, &h};
    return store_write(a->env, AGGREGATOR_ENDED, &form, NULL, 0);
}

/* Empty, of a former program, or damaged: it says nothing of the journal. */
static enum err ended_read(struct aggregator *a, struct journal_head *h)
{
    struct arena scratch = arena_make(0);
    struct record_form form = {"ended", ended_fields, h};
    struct record r;
    enum err e = store_read(a->env, AGGREGATOR_ENDED, &form, 0, &r, &scratch);
    arena_free(&scratch);
    if (e != ERR_OK)
        *h = (struct journal_head){0};
    if (e != ERR_INPUT && e != ERR_CORRUPT && e != ERR_MISMATCH)
        return e;
    err_clear();
    return ERR_OK;
}

/* The journal's own chain does not show that its newest records are gone: what else tells of them.
 * Contributions are sent again, and commits are in the states; acts of an operator are lost. */
static void journal_age(struct aggregator *a, const struct recovery *v, uint64_t epoch)
{
    char why[160] = "";
    const struct journal *j = &a->journal;
    bool counted = v->ended.number > 0;
    if (counted && v->ended.number > j->sequence)
        snprintf(why, sizeof why, "records %" PRIu64 " to %" PRIu64 " are missing", j->sequence,
                 v->ended.number - 1);
    else if (counted && (v->ended.number < j->sequence || !digest_equal(&v->ended.last, &j->last)))
        snprintf(why, sizeof why, "not the journal that the process before has left");
    else if (epoch > v->epoch)
        snprintf(why, sizeof why,
                 "it ends in epoch %" PRIu64 ", and the last start was epoch %" PRIu64, v->epoch,
                 epoch);
    for (unsigned i = 0; !*why && i < a->core.fragments; i++)
        if (aggregator_serves(a, i) && a->core.f[i].round > a->fragment[i].committed + 1)
            snprintf(why, sizeof why,
                     "it ends before round %" PRIu64 " of fragment %u, and round %" PRIu64
                     " is committed",
                     a->fragment[i].committed, i, a->core.f[i].round - 1);
    if (*why && j->found && !a->start.journal_lost)
        log_event(LOG_ERROR, "journal_older",
                  "file=%s/%s why=\"%s: an older copy, or cut\" what=\"acts of an operator since "
                  "then are lost: look at atoll operator status, roster list, set --list, and make "
                  "them again\"",
                  a->env->root, AGGREGATOR_JOURNAL, why);
}

/* Each start is an epoch of its own: the highest on record + 1 and a random instance, durable
 * before the first answer. */
static enum err recover_epoch(struct aggregator *a, const struct recovery *v)
{
    uint64_t before;
    TRY(epoch_find(a, v->epoch, &before));
    journal_age(a, v, before);
    a->start.epoch = before + (before == 0 || !MUTANT(EPOCH_KEPT));
    a->core.epoch = a->start.epoch;
    a->env->ops->random(a->env, &a->start.instance, sizeof a->start.instance);
    struct journal_record r = {.kind = JOURNAL_EPOCH, .round = a->start.epoch};
    TRY(a->start.journal_lost ? aggregator_journal_again(a) : journal_append(&a->journal, &r));
    return epoch_again(a);
}

/* A crash between the commit point and its record. */
static enum err recover_commits(struct aggregator *a)
{
    for (unsigned i = 0; i < a->core.fragments; i++) {
        const struct round_fragment *f = &a->core.f[i];
        if (f->round == 0 || a->fragment[i].committed == f->round)
            continue;
        struct journal_record r = {
            .kind = JOURNAL_COMMIT, .fragment = i, .round = f->round - 1, .digest = f->parent};
        TRY(journal_append(&a->journal, &r));
        a->fragment[i].committed = f->round;
    }
    return ERR_OK;
}

static enum err recover_finished(struct aggregator *a)
{
    struct arena scratch = arena_make(0);
    uint8_t *text;
    size_t n;
    if (!aggregator_last_committed(a) || !a->env->ops->exists(a->env, AGGREGATOR_FINISHED))
        return ERR_OK;
    enum err e = a->env->ops->read(a->env, AGGREGATOR_FINISHED, ROUND_SITES_MAX * WIRE_NAME_MAX,
                                   &scratch, &text, &n);
    char *rest, *name = e == ERR_OK ? strtok_r((char *)text, "\n", &rest) : NULL;
    for (; name; name = strtok_r(NULL, "\n", &rest))
        for (unsigned i = 0; i < a->members.count; i++)
            a->site[i].finished |= strcmp(a->members.names[i], name) == 0;
    arena_free(&scratch);
    return e;
}

/* As far as manifests are kept: outer.history_rounds. */
static unsigned aborts_in_a_row(const struct aggregator *a, unsigned fragment)
{
    unsigned aborts = 0;
    struct manifest m;
    for (uint64_t t = a->replica->state[fragment].round; t > 0; t--, aborts++)
        if (outer_state_manifest(a->replica, fragment, t - 1, &m) != ERR_OK || !manifest_empty(&m))
            break;
    err_clear();
    return aborts;
}

/* Of the rounds that are kept, from the oldest one that is there: none is missing in between. */
static void manifests_look(const struct aggregator *a, unsigned fragment)
{
    uint64_t round = a->replica->state[fragment].round, keep = a->replica->o.keep;
    struct manifest m;
    bool begun = false;
    for (uint64_t t = round > keep ? round - keep : 0; t < round; t++) {
        enum err e = outer_state_manifest(a->replica, fragment, t, &m);
        begun |= e == ERR_OK;
        if (begun && e == ERR_INPUT)
            log_event(
                LOG_WARN, "manifests_missing",
                "dir=%s/frag fragment=%u why=\"the manifest of round %" PRIu64
                " is not there, and those of its neighbours are\" what=\"copy frag/%u/%" PRIu64
                " of a site; a site that lags takes a snapshot instead, and loses its "
                "residual\"",
                a->env->root, fragment, t, fragment, t + 1);
    }
    err_clear();
}

/* The norms of the last rounds, and how many were aborted in a row, from their manifests: as if
 * there had been no restart. */
static void recover_history(struct aggregator *a, unsigned fragment)
{
    uint64_t round = a->replica->state[fragment].round;
    uint64_t most = a->replica->o.keep < BOUNDS_ROUNDS ? a->replica->o.keep : BOUNDS_ROUNDS;
    uint64_t kept = round < most ? round : most;
    struct manifest m;
    a->fragment[fragment].norms.rounds = (unsigned)most;
    for (uint64_t t = round - kept; t < round; t++)
        if (outer_state_manifest(a->replica, fragment, t, &m) == ERR_OK)
            bounds_add(&a->fragment[fragment].norms, &m);
    manifests_look(a, fragment);
    a->core.f[fragment].aborts = aborts_in_a_row(a, fragment) % MASKED_ABORTS_MAX;
}

static enum err recover_core(struct aggregator *a, struct arena *perm)
{
    const struct outer_state *m = a->replica;
    const struct round_options o = {.sites = a->members.count,
                                    .room = a->o->room,
                                    .fragments = m->fragments->count,
                                    .strict = a->o->strict,
                                    .straggler_ms = a->o->straggler_ms,
                                    .grace = a->o->grace,
                                    .masks = a->o->masks,
                                    .epoch = a->start.epoch};
    float theta_rms;
    TRY(round_init(&a->core, &o, perm));
    for (unsigned i = 0; i < a->core.fragments; i++) {
        round_place(&a->core, i, m->state[i].round, &m->state[i].manifest, &m->state[i].digest);
        recover_history(a, i);
        TRY(outer_state_rms(a->replica, i, &theta_rms)); /* found here, known from then on */
        a->start.begun |= m->state[i].round > 0;
        a->fragment[i].first_ms = UINT64_MAX;
        a->fragment[i].found_round = m->state[i].round;
        if (m->state[i].round && !aggregator_serves(a, i))
            return err_set(ERR_CONFIG,
                           "serve.dir holds rounds of fragment %u, which aggregator %u of %u does "
                           "not serve: give "
                           "each aggregator its own directory, and always the same serve.index",
                           i, a->o->index, a->o->count);
    }
    return ERR_OK;
}

/* A lost journal costs no round: commits are in the states, and a site keeps what was
 * accepted until its commit, and sends it again. What the manifests tell is written at once, with
 * the epoch: a journal without one is of a start that ended before that, and counts as lost. */
static enum err recover_journal(struct aggregator *a, struct recovery *v)
{
    TRY(journal_open(&a->journal, a->env, AGGREGATOR_JOURNAL, recover_record, v));
    if (a->journal.cut_bytes)
        log_event(LOG_WARN, "journal_cut", "bytes=%" PRIu64, a->journal.cut_bytes);
    bool part = a->journal.found && !v->epoch && !MUTANT(JOURNAL_PART);
    a->start.journal_lost = a->start.begun && (part || !a->journal.found);
    if (a->start.journal_lost)
        log_event(LOG_WARN, "journal_lost",
                  "action=\"sites are asked again for the rounds in flight\"");
    return ERR_OK;
}

/* What no record tells any more: once it is known which sites there are. */
static enum err recover_lost(struct aggregator *a)
{
    TRY(aggregator_masks_again(a));
    return aggregator_quarantine_again(a);
}

static enum err recover(struct aggregator *a, struct arena *perm)
{
    struct recovery v = {.a = a};
    TRY(aggregator_claim(a->env, a->o->canonical, NULL));
    TRY(stale_check(a));
    a->start.begun = store_begun(a->env);
    bool ended = a->env->ops->exists(a->env, AGGREGATOR_ENDED);
    if (ended)
        TRY(ended_read(a, &v.ended));
    TRY(a->env->ops->remove(a->env, AGGREGATOR_ENDED));
    TRY(recover_core(a, perm));
    TRY(aggregator_organs_open(a));
    TRY(aggregator_claim_again(a));
    TRY(aggregator_identity_open(a, perm));
    TRY(aggregator_masks_open(a, perm));
    TRY(recover_journal(a, &v));
    TRY(aggregator_organs_recovered(a));
    if (a->start.journal_lost)
        TRY(recover_lost(a));
    TRY(recover_epoch(a, &v));
    TRY(recover_commits(a));
    TRY(recover_finished(a));
    aggregator_organs_begin(a);
    TRY(aggregator_spool_sweep(a, ended));
    TRY(aggregator_masks_recovered(a));
    TRY(aggregator_reserve(a));
    return store_begin(a->env); /* last */
}

enum err aggregator_open(struct aggregator **out, struct env *w, struct outer_state *m,
                         const struct aggregator_options *o, struct arena *perm)
{
    ASSERT(o->site_count >= 1 && o->site_count <= ROUND_SITES_MAX);
    ASSERT(m->fragments->count >= 1 && m->fragments->count <= ROUND_FRAGMENTS_MAX);
    *out = NULL;
    struct aggregator *a = arena_alloc(perm, sizeof *a);
    TRY_ALLOC(a);
    a->env = w;
    a->replica = m;
    struct aggregator_options *kept = arena_alloc(perm, sizeof *kept);
    TRY_ALLOC(kept);
    *kept = *o;
    a->o = kept;
    a->start.opened_ms = aggregator_now(a);
    a->config = identity_digest(o->canonical);
    aggregator_members_begin(a);
    a->limit.count = LOG_LIMIT_KEYS_MIN + 16 * o->site_count;
    TRY_ALLOC(a->limit.keys = arena_array(perm, a->limit.count, sizeof *a->limit.keys));
    for (unsigned i = 0; i < o->site_count; i++) {
        a->site[i].status.loss = a->site[i].status.tokens_per_second = NAN;
        set_put(&a->touched, i, true);
    }
    TRY(recover(a, perm));
    if (a->failed != ERR_OK)
        return a->failed;
    if (o->revoked_path)
        TRY(revocation_open(&a->revocation, o->revoked_path, o->revoked_copy));
    pthread_mutex_init(&a->mutex, NULL);
    show(a);
    log_event(LOG_INFO, "aggregator",
              "run=%s epoch=%" PRIu64 " mode=%s sites=%u fragments=%u quorum=%u", o->run,
              a->start.epoch, o->strict ? "strict" : "quorum",
              set_count(&a->members.roster.members), a->core.fragments, a->core.quorum);
    if (a->members.roster.version > 1)
        log_event(LOG_INFO, "roster", "version=%u sites=%u", a->members.roster.version,
                  set_count(&a->members.roster.members));
    *out = a;
    return aggregator_scrub_open(a, perm);
}

void aggregator_close(struct aggregator *a)
{
    if (!a)
        return;
    struct wire_answer ignored;
    aggregator_scrub_close(a);
    while (a->uploads)
        aggregator_finish(a, a->uploads, false, &ignored);
    while (a->sources) {
        a->sources->readers = 1;
        aggregator_fetched(a, a->sources);
    }
    aggregator_commit_close(a);
    aggregator_masks_close(a);
    /* Without it the next start only asks for more bytes again. */
    if (a->failed == ERR_OK && ended_write(a) != ERR_OK)
        err_clear();
    revocation_close(a->revocation);
    pthread_mutex_destroy(&a->mutex);
}
