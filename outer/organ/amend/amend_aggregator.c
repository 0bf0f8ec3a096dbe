/* SPDX-License-Identifier: Apache-2.0 */
/* Amendments of settings in mid-run (docs/protocol.md 3.17): journalled before they are
 * acknowledged, carried by each manifest from the next one on, in force after a border that no
 * site has passed without a manifest that carries them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/config/setting.h"
#include "outer/organ/amend/amend_own.h"
#include "outer/protocol/mutant.h"

_Static_assert((int)WIRE_SETTING_MAX == (int)AMENDMENT_TEXT_MAX, "an act names one amendment");
enum { RECORDS_OF_ONE = AMENDMENT_TEXT_MAX / (JOURNAL_NAME_MAX - 1) + 1 }; /* at most */

/* ---- what is in force ---- */

/* The schedule under the aggregator's list, which the replica may not have yet. */
static enum err schedule_now(const struct amend_aggregator *x, struct schedule *s)
{
    *s = x->a->replica->o.schedule;
    return x->list.count ? amend_schedule(x->settings, s, &x->list) : ERR_OK;
}

/* Of how a round is closed: in force when fragment 0 stands there. */
static enum err round_settings(struct amend_aggregator *x)
{
    struct arena scratch = arena_make(0);
    struct settings s;
    struct outer_settings o;
    uint64_t round = x->a->core.f[0].round;
    uint32_t count = amendments_in_force(&x->list, round);
    if (count == x->in_force)
        return ERR_OK;
    enum err e = amend_settings(&s, &o, x->settings, &x->list, round, &scratch);
    if (e == ERR_OK) {
        round_pace(&x->a->core, (uint64_t)llround(1e3 * o.outer_straggler_timeout_s),
                   (double)o.outer_overlap_steps / (double)o.outer_sync_every);
        x->in_force = count;
    }
    arena_free(&scratch);
    return e;
}

/* The replica's schedule is read without the lock while a round is committed. What waits here is of
 * no round up to that one. */
static enum err amend_work(void *self)
{
    struct amend_aggregator *x = self;
    if (!x->list.count || !aggregator_commit_idle(x->a))
        return ERR_OK;
    if (x->a->replica->amendments.count < x->list.count) {
        TRY(outer_state_amend(x->a->replica, &x->list));
        TRY(aggregator_reserve(x->a)); /* outer.codec: aggregates may be larger */
    }
    return round_settings(x);
}

/* ---- recovery ---- */

/* What the manifests carry: also in a directory that was made of the sites', whose states were not
 * loaded but adopted. */
static enum err amend_open(void *self, struct aggregator *a)
{
    struct amend_aggregator *x = self;
    x->a = a;
    TRY(outer_state_amendments_find(x->a->replica));
    x->list = x->a->replica->amendments;
    x->journalled = 0;
    x->in_force = UINT32_MAX;
    return ERR_OK;
}

static enum err record_damaged(const struct journal_record *r)
{
    return err_set(ERR_CORRUPT, "journal: amendment %" PRIu64 " does not follow the ones before it",
                   r->to);
}

static enum err amend_restore(void *self, const struct journal_record *r)
{
    struct amend_aggregator *x = self;
    struct amendment *one = &x->reading;
    size_t used = strlen(one->text), more = strlen(r->name);
    if (r->to != (uint64_t)x->journalled + 1 || used + more >= sizeof one->text || r->act > 1)
        return record_damaged(r);
    memcpy(one->text + used, r->name, more + 1);
    one->round = r->round;
    one->by = r->digest;
    if (!r->act)
        return ERR_OK;
    if (MUTANT(AMENDED_FORGOTTEN) && x->journalled == x->list.count) {
        *one = (struct amendment){.round = 0};
        return ERR_OK;
    }
    struct amendments known = {.count = 0}, *list = &x->list;
    if (x->journalled == list->count && list->count < AMENDMENTS_MAX)
        list->list[list->count++] = *one; /* no manifest carries it yet */
    if (x->journalled >= list->count)
        return record_damaged(r);
    known.count = 1;
    known.list[0] = list->list[x->journalled];
    bool same = amendments_agree(&known, &(const struct amendments){.count = 1, .list = {*one}});
    if (!same || !amendments_good(list))
        return record_damaged(r);
    x->journalled++;
    x->reading = (struct amendment){.round = 0};
    return ERR_OK;
}

static enum err amend_recovered(void *self)
{
    struct amend_aggregator *x = self;
    if (!x->a->start.journal_lost && x->journalled < x->a->replica->amendments.count)
        return err_set(ERR_CORRUPT,
                       "%s/%s: it has %" PRIu32 " amendments, and a manifest carries %" PRIu32
                       ": restored from an older copy?",
                       x->a->env->root, AGGREGATOR_JOURNAL, x->journalled,
                       x->a->replica->amendments.count);
    if (x->list.count && !x->settings)
        return err_set(ERR_UNSUPPORTED,
                       "settings of this run were amended, and this process knows no settings");
    x->journalled = x->list.count;
    return amend_work(x);
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

static size_t amend_records(void *self, struct journal_record *keep)
{
    const struct amend_aggregator *x = self;
    size_t n = 0;
    if (!keep)
        return (size_t)RECORDS_OF_ONE * x->list.count;
    for (uint32_t i = 0; i < x->list.count; i++)
        n += one_records(&x->list, i, keep + n);
    return n;
}

static void amend_manifest(void *self, struct manifest *m)
{
    const struct amend_aggregator *x = self;
    m->amendments = x->list;
}

/* ---- the first possible round ---- */

/* The first step at which the schedule differs under the longer list. Up to it a site does the same
 * whether it knows or not, where an amendment changes no more than when fragments are due. */
static enum err first_other(const struct amend_aggregator *x, const struct schedule *s,
                            const struct amendment *one, int64_t *step)
{
    struct amendments longer = x->list;
    struct schedule made = x->a->replica->o.schedule;
    int64_t border = schedule_step(s, 0, one->round - 1);
    amendments_add(&longer, one);
    TRY(amend_schedule(x->settings, &made, &longer));
    int64_t now = schedule_next(s, border), then = schedule_next(&made, border);
    *step = now < then ? now : then;
    return ERR_OK;
}

/* May a site that hears of it at step `known` have passed this border already? */
static bool late_known(const struct amend_aggregator *x, const struct schedule *s,
                       const struct amendment *one, int64_t known)
{
    int64_t other;
    if (schedule_step(s, 0, one->round - 1) >= known)
        return false;
    if (strncmp(one->text, "outer.every=", 12) != 0 || x->list.count == AMENDMENTS_MAX)
        return true;
    bool later = first_other(x, s, one, &other) != ERR_OK || other <= known;
    err_clear(); /* what is wrong with it is said by amend_check */
    return later;
}

/* The next manifest of fragment 0 that is not made yet carries it. A site has applied that round
 * before it trains after the step of its apply, or max_local_steps_offline steps later while it is
 * offline. */
static uint64_t first_possible(const struct amend_aggregator *x, const struct schedule *s,
                               const struct amendment *of)
{
    struct amendment one = *of;
    bool made = aggregator_commit_manifest(x->a, 0);
    uint64_t rounds = schedule_rounds(s, 0), carrier = x->a->core.f[0].round + made,
             first = carrier + 1;
    uint32_t n = x->list.count;
    if (carrier >= rounds)
        return rounds;
    int64_t known = schedule_apply(s, 0, carrier) + x->a->o->bounds.max_local_steps_offline;
    if (n && x->list.list[n - 1].round > first)
        first = x->list.list[n - 1].round;
    for (one.round = first; one.round < rounds && late_known(x, s, &one, known); one.round++) {
    }
    return one.round;
}

/* ---- acts ---- */

static const char *state_of(const struct amend_aggregator *x, const struct amendment *one)
{
    return x->a->core.f[0].round >= one->round ? "in_force" : "pending";
}

/* The newest first, from the one after `passed` on; the answer's offset: how many were passed when
 * there is no room for a further line. */
static void set_list(const struct amend_aggregator *x, uint64_t passed, struct wire_answer *answer)
{
    enum { LINE_MAX_BYTES = SETTING_SHOWN_MAX + 100 };
    struct aggregator_text t = {answer->text, 0, sizeof answer->text};
    uint32_t count = x->list.count;
    char hex[65], shown[SETTING_SHOWN_MAX];
    if (passed > count) {
        aggregator_say(answer, ROUND_INVALID, "there is no amendment after %" PRIu64 " of %" PRIu32,
                       passed, count);
        return;
    }
    if (!passed)
        aggregator_text_add(&t, "amendments=%" PRIu32 " left=%" PRIu32 " round=%" PRIu64 "\n",
                            count, AMENDMENTS_MAX - count, x->a->core.f[0].round);
    for (; passed < count && t.used + LINE_MAX_BYTES <= t.size; passed++) {
        const struct amendment *one = &x->list.list[count - 1 - passed];
        digest_hex(&one->by, hex);
        aggregator_text_add(&t, "number=%" PRIu64 " from_round=%" PRIu64 " state=%s by=%.16s %s\n",
                            count - passed, one->round, state_of(x, one), hex,
                            setting_shown(one->text, shown));
    }
    answer->offset = passed < count ? passed : 0;
    answer->outcome = ROUND_CURRENT;
}

static void set_say(const struct amend_aggregator *x, uint32_t number, struct wire_answer *answer)
{
    const struct amendment *one = &x->list.list[number - 1];
    uint32_t left = AMENDMENTS_MAX - x->list.count;
    char few[80] = "", shown[SETTING_SHOWN_MAX];
    if (left <= AMENDMENTS_FEW_LEFT)
        snprintf(few, sizeof few, "; a run has %d amendments at most, %" PRIu32 " are left",
                 AMENDMENTS_MAX, left);
    aggregator_say(answer, ROUND_CURRENT,
                   "amendment %" PRIu32 ": %s from round %" PRIu64 " on, %s%s", number,
                   setting_shown(one->text, shown), one->round,
                   x->a->core.f[0].round >= one->round ? "in force" : "pending", few);
}

/* The number of an entry that says the same already; 0: none does. An act that is repeated, by the
 * link or by a person, is one amendment. */
static uint32_t same_before(const struct amend_aggregator *x, const struct wire_operate *m)
{
    size_t key = strcspn(m->setting, "=");
    for (uint32_t i = x->list.count; i-- > 0;) {
        const struct amendment *one = &x->list.list[i];
        if (strncmp(one->text, m->setting, key + 1) != 0)
            continue;
        bool same = strcmp(one->text, m->setting) == 0;
        return same && (m->round == UINT64_MAX || m->round == one->round) ? i + 1 : 0;
    }
    return 0;
}

static bool any_charged(const struct amend_aggregator *x)
{
    struct manifest m;
    for (unsigned f = 0; f < x->a->core.fragments; f++) {
        for (unsigned i = 0; i < x->a->members.count; i++)
            if (x->a->core.f[f].entries[i].charged)
                return true;
        uint64_t round = x->a->core.f[f].round;
        if (round && outer_state_manifest(x->a->replica, f, round - 1, &m) == ERR_OK)
            for (uint32_t i = 0; i < m.site_count; i++)
                if (m.sites[i].charged)
                    return true;
    }
    return false;
}

/* As every replica will compute the longer list. */
static enum err made_check(const struct amend_aggregator *x, const struct schedule *s,
                           const struct amendment *one)
{
    struct amendments longer = x->list;
    struct schedule made = x->a->replica->o.schedule;
    TRY(amend_check(x->settings, s, &x->list, one));
    amendments_add(&longer, one);
    return amend_schedule(x->settings, &made, &longer);
}

static enum err amend_may(const struct amend_aggregator *x, struct amendment *one)
{
    struct schedule s;
    TRY(schedule_now(x, &s));
    one->round = first_possible(x, &s, one);
    return made_check(x, &s, one);
}

/* Why not here and now; ERR_OK: it may be. */
static enum err set_may(const struct amend_aggregator *x, const struct wire_operate *m,
                        const struct schedule *s, const struct amendment *one, uint64_t first)
{
    if (!x->settings)
        return err_set(ERR_CONFIG, "this aggregator knows no settings");
    if (x->a->o->place.count > 1)
        return err_set(ERR_CONFIG,
                       "a run with outer.aggregators = %u has no amendments: each of "
                       "them has a journal of its own",
                       x->a->o->place.count);
    if (first >= schedule_rounds(s, 0))
        return err_set(ERR_CONFIG, "the run has no round left to begin with");
    uint32_t count = x->list.count;
    bool early = m->round != UINT64_MAX && m->round < first;
    if (early && count && first == x->list.list[count - 1].round)
        return err_set(ERR_CONFIG,
                       "round %" PRIu64 " is before the border of amendment %" PRIu32
                       ", round %" PRIu64 ": amendments are in the order of their borders",
                       m->round, count, first);
    if (early)
        return err_set(ERR_CONFIG,
                       "round %" PRIu64 " is too near: sites may pass its border before a "
                       "manifest tells them. The first possible round is %" PRIu64,
                       m->round, first);
    if (strncmp(one->text, "train.steps=", 12) == 0 && any_charged(x))
        return err_set(ERR_CONFIG,
                       "train.steps: a site has a privacy budget, and its noise follows "
                       "from the steps that were planned at its start");
    if (m->version != (uint64_t)x->list.count + 1)
        return err_set(ERR_CONFIG,
                       "there are %" PRIu32 " amendments now: look at them (atoll operator set "
                       "--list), and call again",
                       x->list.count);
    return made_check(x, s, one);
}

static enum err amend_make(struct amend_aggregator *x, const char *author,
                           const struct amendment *one)
{
    struct journal_record r[RECORDS_OF_ONE];
    struct amendments longer = x->list;
    char quoted[2 * SETTING_SHOWN_MAX], shown[SETTING_SHOWN_MAX];
    amendments_add(&longer, one);
    size_t n = one_records(&longer, longer.count - 1, r);
    for (size_t i = 0; i < n && !MUTANT(AMENDED_UNRECORDED); i++)
        TRY(journal_append(&x->a->journal, &r[i])); /* the last one counts */
    x->list = longer;
    x->journalled = longer.count;
    log_event(LOG_WARN, "amendment",
              "number=%" PRIu32 " setting=%s from_round=%" PRIu64 " by=%s left=%" PRIu32,
              longer.count, log_quote(quoted, sizeof quoted, setting_shown(one->text, shown)),
              one->round, author, AMENDMENTS_MAX - longer.count);
    return amend_work(x);
}

enum { WARNING_MAX = 1024 };

/* To the operator, after what was answered, and to the log, as at a start. */
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

static enum err operate(struct amend_aggregator *x, const char *peer, const struct wire_operate *m,
                        struct wire_answer *answer)
{
    struct amendment one = {.by = digest_of(peer, strlen(peer))};
    struct schedule s;
    char warning[WARNING_MAX];
    uint32_t before;
    if (m->act == WIRE_SET_LIST) {
        set_list(x, m->to, answer);
        return ERR_OK;
    }
    TRY(schedule_now(x, &s));
    snprintf(one.text, sizeof one.text, "%s", m->setting);
    uint64_t first = first_possible(x, &s, &one);
    one.round = m->round == UINT64_MAX ? first : m->round;
    if ((before = same_before(x, m))) {
        set_say(x, before, answer);
        return ERR_OK;
    }
    enum err e = set_may(x, m, &s, &one, first);
    if (e == ERR_CONFIG || e == ERR_PROTO) {
        invalid(answer);
        return ERR_OK;
    }
    TRY(e);
    TRY(amend_warning(warning, sizeof warning, x->settings, &x->list, &one));
    TRY(amend_make(x, peer, &one));
    set_say(x, x->list.count, answer);
    warning_say(x->list.count, warning, answer);
    return ERR_OK;
}

static enum err amend_operate(void *self, const char *peer, const struct wire_operate *m,
                              struct wire_answer *answer)
{
    struct amend_aggregator *x = self;
    enum err e = operate(x, peer, m, answer);
    answer->round = x->list.count;
    return e;
}

static enum err every_amend(struct amend_aggregator *x, const struct replan_round *r,
                            const struct replan_plan *plan)
{
    struct amendment one = {.round = 0};
    char author[AGGREGATOR_TEXT_MAX], quoted[2 * AGGREGATOR_TEXT_MAX], shown[SETTING_SHOWN_MAX];
    snprintf(author, sizeof author, "atoll://%s/aggregator", x->a->o->run);
    one.by = digest_of(author, strlen(author));
    snprintf(one.text, sizeof one.text, "outer.every=%" PRId64, plan->every);
    enum err e = amend_may(x, &one);
    if (one.round >= schedule_rounds(&x->a->replica->schedule, 0)) { /* the run ends before */
        err_clear();
        return ERR_OK;
    }
    if (e == ERR_CONFIG || e == ERR_PROTO) {
        log_event(LOG_WARN, "replan", "setting=%s why=%s", setting_shown(one.text, shown),
                  log_quote(quoted, sizeof quoted, err_message()));
        err_clear();
        return ERR_OK;
    }
    TRY(e);
    log_event(LOG_WARN, "replan",
              "every=%" PRId64 " before=%" PRId64 " from_round=%" PRIu64
              " share=%.4f trained_s=%.3f waited_s=%.3f planned_waited_s=%.3f",
              plan->every, r->every, one.round, plan->share, r->trained_s, r->waited_s,
              plan->waited_s);
    TRY(amend_make(x, author, &one));
    struct aggregator_replanned told = {.number = x->list.count,
                                        .share = plan->share,
                                        .trained_s = r->trained_s,
                                        .waited_s = r->waited_s};
    if (x->a->o->tell.replanned)
        x->a->o->tell.replanned(x->a->o->tell.self, &told);
    return ERR_OK;
}

static enum err amend_sealed(void *self, unsigned fragment)
{
    struct amend_aggregator *x = self;
    struct replan_round r;
    struct replan_plan plan;
    bool wanted;
    TRY(amend_replan_sealed(x, fragment, &r, &plan, &wanted));
    return wanted ? every_amend(x, &r, &plan) : ERR_OK;
}

enum err amend_at_aggregator(struct organ_at_aggregator *out, const struct keys_base *settings,
                             struct arena *perm)
{
    static const struct organ_aggregator organ = {.name = "amend",
                                                  .kinds = 1u << JOURNAL_AMENDMENT,
                                                  .acts = 1u << WIRE_SET | 1u << WIRE_SET_LIST,
                                                  .reads_spool = false,
                                                  .open = amend_open,
                                                  .restore = amend_restore,
                                                  .recovered = amend_recovered,
                                                  .begin = organ_begin_nothing,
                                                  .records = amend_records,
                                                  .bound = organ_bound_nothing,
                                                  .work = amend_work,
                                                  .sealed = amend_sealed,
                                                  .manifest = amend_manifest,
                                                  .operate = amend_operate,
                                                  .committed = organ_committed_nothing};
    struct amend_aggregator *x;
    TRY_ALLOC(x = arena_alloc(perm, sizeof *x));
    x->settings = settings;
    *out = (struct organ_at_aggregator){&organ, x};
    return ERR_OK;
}
