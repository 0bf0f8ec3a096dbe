/* SPDX-License-Identifier: Apache-2.0 */
/* A start: what the directory says of the rounds before it. Reads states, journal, term and spool,
 * in the order of aggregator_recover, and continues from there (docs/protocol.md 3.5). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_signs.h"
#include "outer/aggregator/aggregator_sums.h"
#include "outer/config/identity.h"
#include "outer/protocol/mutant.h"

static enum err stale_check(const struct aggregator *a)
{
    if (!a->env->ops->exists(a->env, AGGREGATOR_STALE))
        return ERR_OK;
    return err_set(ERR_STALE,
                   "%s/%s: a site has proved that this directory is old, or a copy; serve the "
                   "newest one, or rebuild it from those of the sites (--rebuild, with an empty "
                   "serve.dir). If this one is the right one, remove that file",
                   a->env->root, AGGREGATOR_STALE);
}

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
    struct round_event event = {
        .kind = ROUND_RESTORED,
        .site = r->site,
        .fragment = r->fragment,
        .round = r->round,
        .incarnation = r->incarnation,
        .offer = {.payload = r->digest,
                  .payload_bytes = r->payload_bytes,
                  .weight = r->weight,
                  .norm = bounds_norm(squares, elements, r->weight),
                  .data_cursor = r->data_cursor,
                  .charged = r->charged,
                  .residual_ratio = MUTANT(RATIO_FORGOTTEN) ? 0 : r->residual_ratio}};
    struct round_update u;
    aggregator_step(a, &event, &u);
}

struct recovery { /* reading the journal */
    struct aggregator *a;
    uint64_t term;             /* the highest there; 0: none */
    struct journal_head ended; /* of the file `ended`; number 0: it does not say */
};

/* Of the records that this file reads; an organ reads the others. */
enum {
    OWN_KINDS = 1u << JOURNAL_ACCEPT | 1u << JOURNAL_SEAL | 1u << JOURNAL_COMMIT |
                1u << JOURNAL_QUARANTINE | 1u << JOURNAL_OPERATOR | 1u << JOURNAL_TERM
};

static enum err recover_record(void *self, const struct journal_record *r)
{
    struct recovery *v = self;
    struct aggregator *a = v->a;
    if (!(OWN_KINDS & 1u << r->kind))
        return aggregator_organs_restore(a, r);
    if (r->kind == JOURNAL_TERM) {
        v->term = r->round > v->term ? r->round : v->term;
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
        return a->sums->restore(a, r);
    } else if (r->round == f->round && r->kind == JOURNAL_ACCEPT) {
        recover_accept(a, r);
    }
    return ERR_OK;
}

/* The highest term of the manifests that made the present states. */
static enum err term_of_manifests(const struct aggregator *a, uint64_t *term)
{
    struct manifest m;
    for (unsigned i = 0; i < a->core.fragments; i++) {
        if (a->replica->state[i].round == 0)
            continue;
        enum err e = outer_state_manifest(a->replica, i, a->replica->state[i].round - 1, &m);
        if (e != ERR_OK && e != ERR_INPUT && e != ERR_CORRUPT)
            return e;
        if (e == ERR_OK && m.term > *term)
            *term = m.term;
    }
    return ERR_OK;
}

/* The highest term on record; journalled: the journal's. Each start writes it there as well, so
 * that the file can be lost; not both, since a term may have passed without a commit. */
static enum err term_find(struct aggregator *a, uint64_t journalled, uint64_t *term)
{
    uint64_t number;
    char quoted[512];
    enum err e = aggregator_term_read(a, &number);
    *term = journalled;
    if (e == ERR_OK)
        *term = number > journalled ? number : journalled;
    if (e == ERR_OK && number + 1 < journalled) /* one less: killed between the two */
        log_event(LOG_WARN, "term_older",
                  "file=%s/%s term=%" PRIu64 " journal=%" PRIu64
                  " why=\"an older copy; the journal's is taken\"",
                  a->env->root, AGGREGATOR_TERM, number, journalled);
    else if (e != ERR_INPUT && e != ERR_CORRUPT)
        return e;
    if (e == ERR_OK || (e == ERR_INPUT && !a->start.begun))
        return ERR_OK;
    if (!journalled)
        return err_set(ERR_CORRUPT,
                       "%s/%s and %s: both missing or damaged; sites would refuse a term that "
                       "they have seen. Restore one of the files; see runbook",
                       a->env->root, AGGREGATOR_TERM, AGGREGATOR_JOURNAL);
    log_event(LOG_WARN, "term_lost", "journal=%" PRIu64 " why=%s", journalled,
              log_quote(quoted, sizeof quoted, err_message()));
    return term_of_manifests(a, term);
}

/* The journal's own chain does not show that its newest records are gone: what else tells of them.
 * Contributions are sent again, and commits are in the states; acts of an operator are lost. */
static void journal_age(struct aggregator *a, const struct recovery *v, uint64_t term)
{
    char why[160] = "";
    const struct journal *j = &a->journal;
    bool counted = v->ended.number > 0;
    if (counted && v->ended.number > j->sequence)
        snprintf(why, sizeof why, "records %" PRIu64 " to %" PRIu64 " are missing", j->sequence,
                 v->ended.number - 1);
    else if (counted && (v->ended.number < j->sequence || !digest_equal(&v->ended.last, &j->last)))
        snprintf(why, sizeof why, "not the journal that the process before has left");
    else if (term > v->term)
        snprintf(why, sizeof why,
                 "it ends in term %" PRIu64 ", and the last start was term %" PRIu64, v->term,
                 term);
    for (unsigned i = 0; !*why && i < a->core.fragments; i++)
        if (aggregator_serves(a, i) && a->core.f[i].round > a->fragment[i].committed + 1)
            snprintf(why, sizeof why,
                     "it ends before round %" PRIu64 " of fragment %u, and round %" PRIu64
                     " is committed",
                     a->fragment[i].committed, i, a->core.f[i].round - 1);
    if (*why && j->found && !a->start.journal_lost)
        log_event(LOG_ERROR, "journal_older",
                  "file=%s/%s why=\"%s: an older copy, or cut\" do=\"acts of an operator since "
                  "then are lost: look at atoll operator status, roster list, set --list, and make "
                  "them again\"",
                  a->env->root, AGGREGATOR_JOURNAL, why);
}

/* Each start is a term of its own: the highest on record + 1 and a random instance, durable
 * before the first answer. */
static enum err recover_term(struct aggregator *a, const struct recovery *v)
{
    uint64_t before;
    TRY(term_find(a, v->term, &before));
    journal_age(a, v, before);
    a->start.term = before + (before == 0 || !MUTANT(TERM_KEPT));
    round_term(&a->core, a->start.term);
    a->env->ops->random(a->env, &a->start.instance, sizeof a->start.instance);
    struct journal_record r = {.kind = JOURNAL_TERM, .round = a->start.term};
    TRY(a->start.journal_lost ? aggregator_journal_again(a) : journal_append(&a->journal, &r));
    return aggregator_term_again(a);
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
    round_aborts(&a->core, fragment, aborts_in_a_row(a, fragment) % AGGREGATOR_ABORTS_MAX);
}

static enum err recover_core(struct aggregator *a, struct arena *perm)
{
    const struct outer_state *m = a->replica;
    const struct round_options o = {.sites = a->members.count,
                                    .room = a->o->sites.room,
                                    .fragments = m->fragments->count,
                                    .strict = a->o->strict,
                                    .straggler_ms = a->o->straggler_ms,
                                    .grace = a->o->grace,
                                    .masks = a->o->masks,
                                    .term = a->start.term};
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
                           i, a->o->place.index, a->o->place.count);
    }
    return ERR_OK;
}

/* A lost journal costs no round: commits are in the states, and a site keeps its accepted
 * contributions until their commit, and sends them again. The contents of the manifests are written
 * at once, with the term: a journal without one is of a start that ended before that, and counts
 * as lost. */
static enum err recover_journal(struct aggregator *a, struct recovery *v)
{
    TRY(journal_open(&a->journal, a->env, AGGREGATOR_JOURNAL, recover_record, v));
    if (a->journal.cut_bytes)
        log_event(LOG_WARN, "journal_cut", "bytes=%" PRIu64, a->journal.cut_bytes);
    bool part = a->journal.found && !v->term && !MUTANT(JOURNAL_PART);
    a->start.journal_lost = a->start.begun && (part || !a->journal.found);
    if (a->start.journal_lost)
        log_event(LOG_WARN, "journal_lost",
                  "action=\"sites are asked again for the rounds in flight\"");
    return ERR_OK;
}

/* What no record tells any more: once it is known which sites there are. */
static enum err recover_lost(struct aggregator *a)
{
    TRY(a->sums->again(a));
    return aggregator_quarantine_again(a);
}

enum err aggregator_recover(struct aggregator *a, struct arena *perm)
{
    struct recovery v = {.a = a};
    a->start.opened_ms = aggregator_now(a);
    a->start.config = identity_digest(a->o->canonical);
    TRY(aggregator_claim(a->env, a->o->canonical, NULL));
    TRY(stale_check(a));
    a->start.begun = store_begun(a->env);
    bool ended = a->env->ops->exists(a->env, AGGREGATOR_ENDED);
    if (ended)
        TRY(aggregator_ended_read(a, &v.ended));
    TRY(a->env->ops->remove(a->env, AGGREGATOR_ENDED));
    TRY(recover_core(a, perm));
    TRY(aggregator_organs_open(a));
    TRY(aggregator_claim_again(a));
    TRY(a->signs->read(a));
    TRY(a->sums->read(a, perm));
    TRY(recover_journal(a, &v));
    TRY(aggregator_organs_recovered(a));
    if (a->start.journal_lost)
        TRY(recover_lost(a));
    TRY(recover_term(a, &v));
    TRY(recover_commits(a));
    TRY(aggregator_finished_read(a));
    aggregator_organs_begin(a);
    TRY(aggregator_spool_sweep(a, ended));
    TRY(a->sums->recovered(a));
    TRY(aggregator_reserve(a));
    return store_begin(a->env); /* last */
}
