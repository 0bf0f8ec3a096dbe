/* Amendments of settings in mid-run (docs/protocol.md 3.17): journalled before they are
 * acknowledged, carried by each manifest from the next one on, in force behind a border that no
 * site has passed without a manifest that carries them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_state.h"
#include "outer/protocol/mutant.h"

/* ---- what is in force ---- */

/* The schedule under the aggregator's list, which the replica may not have yet. */
static enum err schedule_now(const struct aggregator *a, struct schedule *s)
{
    *s = a->replica->o.schedule;
    return a->amendments.count ? amend_schedule(a->o.settings, s, &a->amendments) : ERR_OK;
}

/* Of how a round is closed: in force when fragment 0 stands there. */
static enum err round_settings(struct aggregator *a)
{
    struct arena scratch = arena_make(0);
    struct settings s;
    struct outer_settings o;
    uint64_t round = a->core.f[0].round;
    uint32_t count = amendments_in_force(&a->amendments, round);
    if (count == a->in_force)
        return ERR_OK;
    enum err e = amend_settings(&s, &o, a->o.settings, &a->amendments, round, &scratch);
    if (e == ERR_OK) {
        a->core.straggler_ms = (uint64_t)llround(1e3 * o.outer_straggler_timeout_s);
        a->core.grace.overlap = (double)o.outer_overlap_steps / (double)o.outer_every;
        a->in_force = count;
    }
    arena_free(&scratch);
    return e;
}

/* The replica's schedule is read without the lock while a round is committed. What waits here is of
 * no round up to that one. */
enum err aggregator_amend_work(struct aggregator *a)
{
    if (!a->amendments.count || a->commit.stage != COMMIT_IDLE)
        return ERR_OK;
    if (a->replica->amendments.count < a->amendments.count) {
        TRY(outer_state_amend(a->replica, &a->amendments));
        TRY(aggregator_reserve(a)); /* outer.codec: aggregates may be larger */
    }
    return round_settings(a);
}

/* ---- recovery ---- */

/* What the manifests carry: also in a directory that was made of the sites', whose states were not
 * loaded but adopted. */
enum err aggregator_amend_open(struct aggregator *a)
{
    TRY(outer_state_amendments_find(a->replica));
    a->amendments = a->replica->amendments;
    a->amended = 0;
    a->in_force = UINT32_MAX;
    return ERR_OK;
}

static enum err record_damaged(const struct journal_record *r)
{
    return err_set(ERR_CORRUPT, "journal: amendment %" PRIu64 " does not follow the ones before it",
                   r->to);
}

enum err aggregator_amend_restore(struct aggregator *a, const struct journal_record *r)
{
    struct amendment *one = &a->amending;
    size_t used = strlen(one->text), more = strlen(r->name);
    if (r->to != (uint64_t)a->amended + 1 || used + more >= sizeof one->text || r->act > 1)
        return record_damaged(r);
    memcpy(one->text + used, r->name, more + 1);
    one->round = r->round;
    one->by = r->digest;
    if (!r->act)
        return ERR_OK;
    if (MUTANT(AMENDED_FORGOTTEN) && a->amended == a->amendments.count) {
        *one = (struct amendment){.round = 0};
        return ERR_OK;
    }
    struct amendments known = {.count = 0}, *list = &a->amendments;
    if (a->amended == list->count && list->count < AMENDMENTS_MAX)
        list->list[list->count++] = *one; /* no manifest carries it yet */
    if (a->amended >= list->count)
        return record_damaged(r);
    known.count = 1;
    known.list[0] = list->list[a->amended];
    bool same = amendments_agree(&known, &(const struct amendments){.count = 1, .list = {*one}});
    if (!same || !amendments_good(list))
        return record_damaged(r);
    a->amended++;
    a->amending = (struct amendment){.round = 0};
    return ERR_OK;
}

enum err aggregator_amend_recovered(struct aggregator *a)
{
    if (!a->journal_lost && a->amended < a->replica->amendments.count)
        return err_set(ERR_CORRUPT,
                       "%s/%s: it has %" PRIu32 " amendments, and a manifest carries %" PRIu32
                       ": restored from an older copy?",
                       a->env->root, AGGREGATOR_JOURNAL, a->amended, a->replica->amendments.count);
    if (a->amendments.count && !a->o.settings)
        return err_set(ERR_UNSUPPORTED,
                       "settings of this run were amended, and this process knows no settings");
    a->amended = a->amendments.count;
    return aggregator_amend_work(a);
}

/* The records of one; returns how many. */
static size_t one_records(const struct amendments *list, uint32_t i, struct journal_record *keep)
{
    const struct amendment *one = &list->list[i];
    size_t n = 0, size = strlen(one->text), part = JOURNAL_NAME_MAX - 1;
    for (size_t at = 0; at < size; at += part, n++) {
        keep[n] = (struct journal_record){.kind = JOURNAL_AMENDMENT,
                                          .round = one->round,
                                          .digest = one->by,
                                          .act = at + part >= size,
                                          .to = i + 1};
        snprintf(keep[n].name, sizeof keep[n].name, "%s", one->text + at);
    }
    return n;
}

size_t aggregator_amend_records(const struct aggregator *a, struct journal_record *keep)
{
    size_t n = 0;
    for (uint32_t i = 0; i < a->amendments.count; i++)
        n += one_records(&a->amendments, i, keep + n);
    return n;
}

/* ---- the first possible round ---- */

/* The first step at which the schedule differs under the longer list. Up to it a site does the same
 * whether it knows or not, where an amendment changes no more than when fragments are due. */
static enum err first_other(const struct aggregator *a, const struct schedule *s,
                            const struct amendment *one, int64_t *step)
{
    struct amendments longer = a->amendments;
    struct schedule made = a->replica->o.schedule;
    int64_t border = schedule_step(s, 0, one->round - 1);
    amendments_add(&longer, one);
    TRY(amend_schedule(a->o.settings, &made, &longer));
    int64_t now = schedule_next(s, border), then = schedule_next(&made, border);
    *step = now < then ? now : then;
    return ERR_OK;
}

/* May a site that knows of it from step `known` on be behind this border before? */
static bool late_known(const struct aggregator *a, const struct schedule *s,
                       const struct amendment *one, int64_t known)
{
    int64_t other;
    if (schedule_step(s, 0, one->round - 1) >= known)
        return false;
    if (strncmp(one->text, "outer.every=", 12) != 0 || a->amendments.count == AMENDMENTS_MAX)
        return true;
    bool later = first_other(a, s, one, &other) != ERR_OK || other <= known;
    err_clear(); /* what is wrong with it is said by amend_check */
    return later;
}

/* The next manifest of fragment 0 that is not made yet carries it. A site has applied that round
 * before it trains behind the step of its apply, or so many steps later while it is offline. */
static uint64_t first_possible(const struct aggregator *a, const struct schedule *s,
                               const struct amendment *of)
{
    struct amendment one = *of;
    const struct aggregator_commit *c = &a->commit;
    bool made = c->fragment == 0 && (c->stage == COMMIT_MAKING || c->stage == COMMIT_PASSING) &&
                c->manifest.round == a->core.f[0].round;
    uint64_t rounds = schedule_rounds(s, 0), carrier = a->core.f[0].round + made,
             first = carrier + 1;
    uint32_t n = a->amendments.count;
    if (carrier >= rounds)
        return rounds;
    int64_t known = schedule_apply(s, 0, carrier) + a->o.max_local_steps_offline;
    if (n && a->amendments.list[n - 1].round > first)
        first = a->amendments.list[n - 1].round;
    for (one.round = first; one.round < rounds && late_known(a, s, &one, known); one.round++) {
    }
    return one.round;
}

/* ---- acts ---- */

static const char *state_of(const struct aggregator *a, const struct amendment *one)
{
    return a->core.f[0].round >= one->round ? "in_force" : "pending";
}

/* The newest first, from the one behind `passed` on; the answer's offset: how many were passed when
 * there is no room for a further line. */
static void set_list(const struct aggregator *a, uint64_t passed, struct wire_answer *answer)
{
    enum { LINE_MAX_BYTES = AMENDMENT_TEXT_MAX + 100 };
    struct aggregator_text t = {answer->text, 0, sizeof answer->text};
    uint32_t count = a->amendments.count;
    char hex[65];
    if (passed > count) {
        aggregator_say(answer, ROUND_INVALID,
                       "there is no amendment behind %" PRIu64 " of %" PRIu32, passed, count);
        return;
    }
    if (!passed)
        aggregator_text_add(&t, "amendments=%" PRIu32 " left=%" PRIu32 " round=%" PRIu64 "\n",
                            count, AMENDMENTS_MAX - count, a->core.f[0].round);
    for (; passed < count && t.used + LINE_MAX_BYTES <= t.size; passed++) {
        const struct amendment *one = &a->amendments.list[count - 1 - passed];
        digest_hex(&one->by, hex);
        aggregator_text_add(&t, "number=%" PRIu64 " from_round=%" PRIu64 " state=%s by=%.16s %s\n",
                            count - passed, one->round, state_of(a, one), hex, one->text);
    }
    answer->offset = passed < count ? passed : 0;
    answer->outcome = ROUND_CURRENT;
}

static void set_say(const struct aggregator *a, uint32_t number, struct wire_answer *answer)
{
    const struct amendment *one = &a->amendments.list[number - 1];
    uint32_t left = AMENDMENTS_MAX - a->amendments.count;
    char few[80] = "";
    if (left <= AMENDMENTS_FEW_LEFT)
        snprintf(few, sizeof few, "; a run has %d amendments at most, %" PRIu32 " are left",
                 AMENDMENTS_MAX, left);
    aggregator_say(answer, ROUND_CURRENT,
                   "amendment %" PRIu32 ": %s from round %" PRIu64 " on, %s%s", number, one->text,
                   one->round, a->core.f[0].round >= one->round ? "in force" : "pending", few);
}

/* The number of an entry that says the same already; 0: none does. An act that is repeated, by the
 * link or by a person, is one amendment. */
static uint32_t same_before(const struct aggregator *a, const struct wire_operate *m)
{
    size_t key = strcspn(m->setting, "=");
    for (uint32_t i = a->amendments.count; i-- > 0;) {
        const struct amendment *one = &a->amendments.list[i];
        if (strncmp(one->text, m->setting, key + 1) != 0)
            continue;
        bool same = strcmp(one->text, m->setting) == 0;
        return same && (m->round == UINT64_MAX || m->round == one->round) ? i + 1 : 0;
    }
    return 0;
}

static bool any_charged(const struct aggregator *a)
{
    struct manifest m;
    for (unsigned f = 0; f < a->core.fragments; f++) {
        for (unsigned i = 0; i < a->o.site_count; i++)
            if (a->core.f[f].entries[i].charged)
                return true;
        uint64_t round = a->core.f[f].round;
        if (round && outer_state_manifest(a->replica, f, round - 1, &m) == ERR_OK)
            for (uint32_t i = 0; i < m.site_count; i++)
                if (m.sites[i].charged)
                    return true;
    }
    return false;
}

/* As every replica will compute the longer list. */
static enum err made_check(const struct aggregator *a, const struct schedule *s,
                           const struct amendment *one)
{
    struct amendments longer = a->amendments;
    struct schedule made = a->replica->o.schedule;
    TRY(amend_check(a->o.settings, s, &a->amendments, one));
    amendments_add(&longer, one);
    return amend_schedule(a->o.settings, &made, &longer);
}

enum err aggregator_amend_may(const struct aggregator *a, struct amendment *one)
{
    struct schedule s;
    TRY(schedule_now(a, &s));
    one->round = first_possible(a, &s, one);
    return made_check(a, &s, one);
}

/* Why not here and now; ERR_OK: it may be. */
static enum err set_may(const struct aggregator *a, const struct wire_operate *m,
                        const struct schedule *s, const struct amendment *one, uint64_t first)
{
    if (!a->o.settings)
        return err_set(ERR_CONFIG, "this aggregator knows no settings");
    if (a->o.count > 1)
        return err_set(ERR_CONFIG,
                       "a run with outer.aggregators = %u has no amendments: each of "
                       "them has a journal of its own",
                       a->o.count);
    if (first >= schedule_rounds(s, 0))
        return err_set(ERR_CONFIG, "the run has no round left to begin with");
    uint32_t count = a->amendments.count;
    bool early = m->round != UINT64_MAX && m->round < first;
    if (early && count && first == a->amendments.list[count - 1].round)
        return err_set(ERR_CONFIG,
                       "round %" PRIu64 " is before the border of amendment %" PRIu32
                       ", round %" PRIu64 ": amendments are in the order of their borders",
                       m->round, count, first);
    if (early)
        return err_set(ERR_CONFIG,
                       "round %" PRIu64 " is too near: sites may be behind its border before a "
                       "manifest tells them. The first possible round is %" PRIu64,
                       m->round, first);
    if (strncmp(one->text, "train.steps=", 12) == 0 && any_charged(a))
        return err_set(ERR_CONFIG,
                       "train.steps: a site has a privacy budget, and its noise follows "
                       "from the steps that were planned at its start");
    if (m->version != (uint64_t)a->amendments.count + 1)
        return err_set(ERR_CONFIG,
                       "there are %" PRIu32 " amendments now: look at them (atoll operator set "
                       "--list), and call again",
                       a->amendments.count);
    return made_check(a, s, one);
}

enum err aggregator_amend_make(struct aggregator *a, const char *author,
                               const struct amendment *one)
{
    struct journal_record r[AMENDMENT_TEXT_MAX / (JOURNAL_NAME_MAX - 1) + 1];
    struct amendments longer = a->amendments;
    char quoted[2 * AMENDMENT_TEXT_MAX];
    amendments_add(&longer, one);
    size_t n = one_records(&longer, longer.count - 1, r);
    for (size_t i = 0; i < n && !MUTANT(AMENDED_UNRECORDED); i++)
        TRY(journal_append(&a->journal, &r[i])); /* the last one counts */
    a->amendments = longer;
    a->amended = longer.count;
    log_event(LOG_WARN, "amendment",
              "number=%" PRIu32 " setting=%s from_round=%" PRIu64 " by=%s left=%" PRIu32,
              longer.count, log_quote(quoted, sizeof quoted, one->text), one->round, author,
              AMENDMENTS_MAX - longer.count);
    return aggregator_amend_work(a);
}

enum { WARNING_MAX = 1024 };

/* To the operator, behind what was answered, and to the log, as at a start. */
static void warning_say(uint32_t number, const char *warning, struct wire_answer *answer)
{
    char quoted[2 * WARNING_MAX];
    size_t used = strlen(answer->text);
    if (!*warning)
        return;
    snprintf(answer->text + used, sizeof answer->text - used, "\nWARNING: %s", warning);
    log_event(LOG_WARN, "amendment", "number=%" PRIu32 " why=%s", number,
              log_quote(quoted, sizeof quoted, warning));
}

static void invalid(struct wire_answer *answer)
{
    aggregator_say(answer, ROUND_INVALID, "%s", err_message());
    err_clear();
}

enum err aggregator_amend_operate(struct aggregator *a, const char *peer,
                                  const struct wire_operate *m, struct wire_answer *answer)
{
    struct amendment one = {.by = digest_of(peer, strlen(peer))};
    struct schedule s;
    char warning[WARNING_MAX];
    uint32_t before;
    if (m->act == WIRE_SET_LIST) {
        set_list(a, m->to, answer);
        return ERR_OK;
    }
    TRY(schedule_now(a, &s));
    snprintf(one.text, sizeof one.text, "%s", m->setting);
    uint64_t first = first_possible(a, &s, &one);
    one.round = m->round == UINT64_MAX ? first : m->round;
    if ((before = same_before(a, m))) {
        set_say(a, before, answer);
        return ERR_OK;
    }
    enum err e = set_may(a, m, &s, &one, first);
    if (e == ERR_CONFIG || e == ERR_PROTO) {
        invalid(answer);
        return ERR_OK;
    }
    TRY(e);
    TRY(amend_warning(warning, sizeof warning, a->o.settings, &a->amendments, &one));
    TRY(aggregator_amend_make(a, peer, &one));
    set_say(a, a->amendments.count, answer);
    warning_say(a->amendments.count, warning, answer);
    return ERR_OK;
}
