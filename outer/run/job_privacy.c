/* SPDX-License-Identifier: Apache-2.0 */
/* The privacy budget of a training process: noise for a claim, the claim in words, the cap. What is
 * charged lies in inner/privacy.charges (inner/train/private.h), and what a step costs is the
 * accountant's (outer/budget/budget.h). No message of an aggregator raises a cap: it can say that
 * more was charged, and nothing else.
 */
#include <inttypes.h>
#include <string.h>
#include "inner/data/owners.h"
#include "kernels/base/log.h"
#include "outer/budget/runs.h"
#include "outer/run/job.h"
#include "outer/record/version.h"
#include "outer/view/secure.h"

struct job_privacy { /* of use with privacy.unit; else train.given.budget is NULL */
    struct train_budget hooks;
    const char *path;             /* of the list of charges */
    struct budget spent;          /* as listed, and as this process has charged */
    struct private_charge charge; /* of each step of this run, but for step and tag */
    double delta, cap;            /* cap 0: none */
    int64_t left;                 /* further steps that the cap allows, of those planned */
    struct runs_shared shared;    /* by other runs of privacy.ledger */
    char earlier[560];            /* the same in words; "": no ledger */
    bool claimed;                 /* an epsilon can be claimed: */
    struct accountant claim;      /* of what is charged and all steps ahead, at the start */
    char sentence[BUDGET_SENTENCE_MAX];
};

static struct budget_plan plan_of(const struct job_privacy *p, int64_t steps)
{
    return (struct budget_plan){&p->charge, steps, p->delta};
}

/* Steps without a charge, of those that the configuration asks for. */
static int64_t steps_ahead(const struct job *j)
{
    int64_t from = j->train.step > j->privacy->spent.next ? j->train.step : j->privacy->spent.next;
    return j->s->train_steps > from ? j->s->train_steps - from : 0;
}

static enum err check_delta(const struct job *j)
{
    const struct private_charge *c = &j->privacy->charge;
    if (j->privacy->delta * (double)c->records <= 1)
        return ERR_OK;
    return err_set(ERR_CONFIG,
                   "privacy.delta = %g is above 1 / %" PRIu64 ", the number of records: a program "
                   "that publishes one record now and then would keep it; use privacy.delta = %.2g "
                   "or less",
                   j->privacy->delta, c->records, 0.1 / (double)c->records);
}

/* What is charged to the people of this site: by this run, and by those of the ledger before it. */
static enum err whole_make(struct budget *out, const struct job_privacy *p)
{
    *out = p->spent;
    if (!p->shared.runs)
        return ERR_OK;
    *out = p->shared.spent;
    for (size_t i = 0; i < p->spent.count; i++)
        TRY(budget_join(out, &p->spent.settings[i].charge, p->spent.settings[i].steps));
    return ERR_OK;
}

/* ---- the claim ---- */

/* A restart continues with the noise of the last charge, so that one claim is one setting. */
static enum err noise_kept(struct job *j, bool *kept)
{
    struct job_privacy *p = j->privacy;
    struct budget whole;
    struct accountant a;
    *kept = false;
    if (!p->spent.count)
        return ERR_OK;
    p->charge.noise = p->spent.settings[p->spent.last].charge.noise;
    const struct budget_plan plan = plan_of(p, steps_ahead(j));
    TRY(whole_make(&whole, p));
    TRY(budget_epsilon(&a, &whole, &plan));
    *kept = a.epsilon[a.holds] <= j->s->privacy_epsilon;
    return ERR_OK;
}

static enum err noise_for_claim(struct job *j)
{
    struct job_privacy *p = j->privacy;
    struct budget whole;
    bool kept;
    TRY(noise_kept(j, &kept));
    if (kept)
        return ERR_OK;
    if (steps_ahead(j) == 0) { /* no step will use it */
        p->charge.noise = p->charge.noise > 0 ? p->charge.noise : 1;
        return ERR_OK;
    }
    const struct budget_plan plan = plan_of(p, steps_ahead(j));
    TRY(whole_make(&whole, p));
    if (budget_noise(&p->charge.noise, &whole, &plan, j->s->privacy_epsilon) != ERR_OK)
        return err_add(ERR_CONFIG,
                       "privacy.epsilon = %g with %" PRId64 " steps, %" PRId64 " of them charged: ",
                       j->s->privacy_epsilon, p->spent.steps + plan.steps, p->spent.steps);
    return ERR_OK;
}

/* privacy.noise_multiplier and privacy.epsilon contradict each other: what would be possible. */
static enum err refuse_claim(struct job *j, double costs)
{
    struct job_privacy *p = j->privacy;
    struct budget whole;
    const struct budget_plan plan = plan_of(p, steps_ahead(j));
    char noise[64] = "";
    double needed;
    int64_t steps;
    TRY(whole_make(&whole, p));
    TRY(budget_left(&steps, &whole, &plan, j->s->privacy_epsilon));
    if (plan.steps && budget_noise(&needed, &whole, &plan, j->s->privacy_epsilon) == ERR_OK)
        snprintf(noise, sizeof noise, "privacy.noise_multiplier = %g, or ", needed);
    return err_set(ERR_CONFIG,
                   "privacy.epsilon = %g is not kept: %" PRId64 " charged steps and %" PRId64
                   " further ones with noise %g cost epsilon %.6g at delta %g; possible: %s"
                   "%" PRId64 " further steps instead (train.steps), or privacy.epsilon = %.4g",
                   j->s->privacy_epsilon, p->spent.steps, plan.steps, p->charge.noise, costs,
                   p->delta, noise, steps, costs * 1.0001);
}

static enum err claim_make(struct job *j)
{
    struct job_privacy *p = j->privacy;
    struct budget whole;
    TRY(check_delta(j));
    if (p->charge.noise == 0)
        TRY(noise_for_claim(j));
    const struct budget_plan plan = plan_of(p, steps_ahead(j));
    TRY(whole_make(&whole, p));
    TRY(budget_epsilon(&p->claim, &whole, &plan));
    double costs = p->claim.epsilon[p->claim.holds];
    if (j->s->privacy_epsilon > 0 && costs > j->s->privacy_epsilon)
        return refuse_claim(j, costs);
    budget_sentence(p->sentence, &p->claim, &whole, &plan);
    p->claimed = true;
    p->left = plan.steps;
    if (p->cap > 0 && costs > p->cap)
        TRY(budget_left(&p->left, &whole, &plan, p->cap));
    return ERR_OK;
}

static void claim_log(const struct job *j)
{
    const struct job_privacy *p = j->privacy;
    char quoted[BUDGET_SENTENCE_MAX + 64];
    log_event(LOG_INFO, "privacy", "noise=%g clip=%g charged=%" PRId64 " text=%s", p->charge.noise,
              p->charge.clip, p->spent.steps, log_quote(quoted, sizeof quoted, p->sentence));
    if (p->cap > 0 && p->left < steps_ahead(j))
        log_event(LOG_WARN, "privacy_cap",
                  "cap=%g steps_left=%" PRId64 " of=%" PRId64
                  " text=\"the cap ends this site before train.steps\"",
                  p->cap, p->left, steps_ahead(j));
}

static enum err claim_begin(struct job *j)
{
    struct job_privacy *p = j->privacy;
    const struct budget_plan plan = plan_of(p, steps_ahead(j));
    struct budget whole;
    TRY(whole_make(&whole, p));
    const char *why = budget_unclaimed(&whole, &plan);
    if (why && p->cap > 0)
        return err_set(ERR_CONFIG,
                       "privacy.%s = %g: no epsilon can be claimed for the steps of this site, "
                       "%s; leave privacy.epsilon and privacy.epsilon_max out, or begin a new run",
                       j->s->privacy_epsilon_max > 0 ? "epsilon_max" : "epsilon", p->cap, why);
    if (why)
        snprintf(p->sentence, sizeof p->sentence, "No epsilon is claimed for this site: %s.", why);
    else
        TRY(claim_make(j));
    claim_log(j);
    return ERR_OK;
}

/* ---- other runs over the same people (privacy.ledger) ---- */
/* The owners of all documents, where each shard says whose they are. */
static enum err owners_gather(struct job *j, struct runs_self *self)
{
    const struct shard_set *set = &j->train.data.loader->set;
    uint64_t count = 0;
    for (size_t i = 0; i < set->count; i++) {
        if (!set->shards[i].owners)
            return ERR_OK;
        count += set->shards[i].index.documents_count - 1;
    }
    TRY_ALLOC(self->owners = arena_array(&j->run->perm, count + 1, RUNS_OWNER_BYTES));
    for (size_t i = 0; i < set->count; i++)
        for (uint64_t d = 0; d + 1 < set->shards[i].index.documents_count; d++) {
            struct owner o = owners_at(set->shards[i].owners, d);
            memcpy(self->owners + self->owner_count++ * RUNS_OWNER_BYTES, o.id, sizeof o.id);
        }
    return ERR_OK;
}

static const char *seen_path(struct job *j)
{
    return arena_printf(&j->run->perm, "%s/privacy.ledger", j->train.given.checkpoint_dir);
}

/* What this run directory has seen of the ledger: a ledger that is shorter now has lost lines. */
static enum err seen_read(struct job *j, struct chained_at *at)
{
    const char *path = seen_path(j);
    uint8_t *data;
    size_t size;
    *at = (struct chained_at){.number = 0};
    TRY_ALLOC(path);
    if (!file_exists(path))
        return ERR_OK;
    TRY(file_read(path, sizeof *at, &j->run->perm, &data, &size));
    if (size != sizeof *at)
        return err_set(ERR_CORRUPT, "%s is damaged; restore it", path);
    memcpy(at, data, sizeof *at);
    return ERR_OK;
}

static enum err seen_write(struct job *j, const struct chained_at *at)
{
    const struct file_part part = {at, sizeof *at};
    const char *path = seen_path(j);
    TRY_ALLOC(path);
    return file_write(path, &part, 1, 0600);
}

static enum err shared_tell(struct job *j)
{
    struct job_privacy *p = j->privacy;
    const struct runs_shared *x = &p->shared;
    const struct budget_plan plan = plan_of(p, steps_ahead(j));
    struct accountant alone;
    char quoted[sizeof p->earlier + 64];
    if (!x->runs) {
        snprintf(p->earlier, sizeof p->earlier,
                 "The ledger of runs (privacy.ledger) has no other run over these people.");
        return ERR_OK;
    }
    if (!p->claimed) {
        snprintf(
            p->earlier, sizeof p->earlier,
            "The ledger has %u other runs over these people (%s); no epsilon can be claimed for "
            "all of them together.",
            x->runs, x->names);
    } else {
        TRY(budget_epsilon(&alone, &p->spent, &plan));
        snprintf(p->earlier, sizeof p->earlier,
                 "The ledger has %u other runs over these people (%s): with all its steps this run "
                 "alone costs epsilon %.6g, together they cost %.6g at delta %g.",
                 x->runs, x->names, alone.epsilon[alone.holds], p->claim.epsilon[p->claim.holds],
                 p->delta);
    }
    log_event(LOG_WARN, "privacy_ledger", "runs=%u text=%s", x->runs,
              log_quote(quoted, sizeof quoted, p->earlier));
    return ERR_OK;
}

static enum err shared_begin(struct job *j, struct runs *r, struct runs_self *self)
{
    struct job_privacy *p = j->privacy;
    TRY(runs_shared(&p->shared, r, self));
    TRY(claim_begin(j));
    TRY(shared_tell(j));
    TRY(runs_book(r, self, &p->spent, &p->charge, steps_ahead(j)));
    return seen_write(j, &r->list.last);
}

static enum err ledger_begin(struct job *j)
{
    struct runs_self self = {.id = train_private_id(&j->train),
                             .run = j->s->run_name,
                             .site = j->outer ? j->run->o.site_name : "alone"};
    struct runs r;
    struct chained_at seen;
    TRY(seen_read(j, &seen));
    TRY(owners_gather(j, &self));
    TRY(runs_open(&r, j->run->o.privacy_ledger, &seen, &j->run->perm));
    enum err e = shared_begin(j, &r, &self);
    runs_close(&r);
    return e;
}

static enum err begin(void *self, const struct private_charge *c, double *noise)
{
    struct job *j = self;
    struct job_privacy *p = j->privacy;
    p->charge = *c;
    p->charge.noise = *noise;
    p->delta = j->s->privacy_delta;
    p->cap = j->s->privacy_epsilon_max > 0 ? j->s->privacy_epsilon_max : j->s->privacy_epsilon;
    TRY(budget_read(&p->spent, p->path, NULL));
    TRY(*j->run->o.privacy_ledger ? ledger_begin(j) : claim_begin(j));
    *noise = p->charge.noise;
    return ERR_OK;
}

/* ---- the cap ---- */
static uint64_t known(void *self)
{
    struct job *j = self;
    return j->o->parts.site ? site_charged(j->o->parts.site) : 0;
}

/* Steps that manifests name and a list does not were charged at settings that an older copy of the
 * directory need not have: never at cheaper ones than it has or is given. */
static enum err dearest(void *self, struct private_charge *c, uint64_t missing)
{
    struct job *j = self;
    struct private_charge of = *c;
    int64_t steps = missing < SAMPLED_STEPS_MAX ? (int64_t)missing : SAMPLED_STEPS_MAX;
    TRY(budget_dearest(&of, &j->privacy->spent,
                       &(struct budget_plan){c, steps, j->privacy->delta}));
    of.step = c->step;
    *c = of;
    log_event(
        LOG_WARN, "privacy_missing",
        "steps=%" PRIu64 " noise=%g text=\"manifests of this run name steps that "
        "inner/privacy.charges does not name: this directory is an older copy. They are charged at "
        "the "
        "dearest setting of the list and of now; if another one was in force then, restore the "
        "newest copy\"",
        missing, c->noise);
    return ERR_OK;
}

static enum err refuse_step(struct job *j)
{
    struct job_privacy *p = j->privacy;
    struct budget whole;
    struct accountant spent, more;
    const struct budget_plan none = plan_of(p, 0), one = plan_of(p, 1);
    TRY(whole_make(&whole, p));
    TRY(budget_epsilon(&spent, &whole, &none));
    TRY(budget_epsilon(&more, &whole, &one));
    return err_set(
        ERR_BUDGET,
        "privacy.epsilon_max = %g: the %" PRId64 " charged steps cost epsilon %.6g at delta %g, "
        "one more would make it %.6g%s",
        p->cap, p->spent.steps, spent.epsilon[spent.holds], p->delta, more.epsilon[more.holds],
        j->outer ? "; this site ends its part of the run" : "");
}

/* The list has other steps than this process has charged, or more steps come than were planned:
 * some were repeated from other parameters or on another device. */
static enum err left_again(struct job *j, int64_t charged)
{
    struct job_privacy *p = j->privacy;
    struct budget whole;
    int64_t before = p->spent.steps;
    TRY(budget_read(&p->spent, p->path, NULL));
    TRY(whole_make(&whole, p));
    if (charged != before)
        log_event(LOG_WARN, "privacy_counted",
                  "charged=%" PRId64 " before=%" PRId64
                  " text=\"manifests of this run name more steps than inner/privacy.charges: the "
                  "difference is charged\"",
                  charged, before);
    const struct budget_plan plan = plan_of(p, j->s->train_steps - j->train.step);
    return p->cap > 0 ? budget_left(&p->left, &whole, &plan, p->cap) : ERR_OK;
}

static enum err may_charge(void *self, const struct private_charge *c, int64_t charged)
{
    struct job *j = self;
    struct job_privacy *p = j->privacy;
    bool capped = p->cap > 0;
    if ((capped && p->left == 0) || charged != p->spent.steps)
        TRY(left_again(j, charged));
    if (capped && p->left == 0)
        return refuse_step(j);
    p->left -= capped;
    return budget_add(&p->spent, c);
}

/* ---- secure aggregation ---- */

static bool secure_text(const struct job *j, char out[SECURE_SENTENCE_MAX])
{
    const struct outer_settings *o = &j->run->o;
    struct round_masks m = keys_masks(o);
    if (j->outer && m.on)
        secure_sentence(out, &m, (unsigned)o->outer_sites.count,
                        o->outer_mode == OUTER_MODE_STRICT);
    return j->outer && m.on;
}

static void secure_record(struct job *j)
{
    const struct outer_settings *o = &j->run->o;
    struct round_masks m = keys_masks(o);
    char text[SECURE_SENTENCE_MAX];
    struct jsonl *r = &j->out->record;
    if (!secure_text(j, text))
        return;
    jsonl_begin(r, "secure");
    jsonl_text(r, "text", text);
    jsonl_int(r, "sites", (int64_t)o->outer_sites.count);
    jsonl_int(r, "least",
              round_least((unsigned)o->outer_sites.count, o->outer_mode == OUTER_MODE_STRICT, &m));
    jsonl_int(r, "colluding", m.colluding);
    secure_leave(text, &m, (unsigned)o->outer_sites.count, o->outer_mode == OUTER_MODE_STRICT);
    jsonl_text(r, "leave", text);
    jsonl_end(r);
}

/* ---- of the job ---- */
enum err job_privacy_open(struct job *j)
{
    struct job_privacy *p;
    TRY_ALLOC(p = j->privacy = arena_alloc(&j->run->perm, sizeof *p));
    char text[SECURE_SENTENCE_MAX], quoted[SECURE_SENTENCE_MAX + 64];
    if (secure_text(j, text))
        log_event(LOG_INFO, "secure", "text=%s", log_quote(quoted, sizeof quoted, text));
    p->hooks = (struct train_budget){.self = j,
                                     .begin = begin,
                                     .program = version_line(),
                                     .known = known,
                                     .dearest = dearest,
                                     .may_charge = may_charge};
    TRY_ALLOC(p->path =
                  arena_printf(&j->run->perm, "%s/privacy.charges", j->train.given.checkpoint_dir));
    if (j->s->privacy_unit != PRIVACY_UNIT_NONE)
        train_charge_to(&j->train, &p->hooks);
    return ERR_OK;
}

void job_privacy_record(struct job *j)
{
    const struct job_privacy *p = j->privacy;
    struct jsonl *r = &j->out->record;
    secure_record(j);
    if (!j->train.given.budget)
        return;
    jsonl_begin(r, "privacy");
    jsonl_text(r, "text", p->sentence);
    if (*p->earlier)
        jsonl_text(r, "earlier", p->earlier);
    jsonl_text(r, "unit", p->charge.unit);
    jsonl_text(r, "sampling", p->charge.sampling);
    jsonl_int(r, "records", (int64_t)p->charge.records);
    jsonl_int(r, "expected", (int64_t)p->charge.expected);
    jsonl_real(r, "noise", p->charge.noise);
    jsonl_real(r, "clip", p->charge.clip);
    jsonl_int(r, "charged", p->spent.steps);
    jsonl_int(r, "steps_ahead", steps_ahead(j));
    if (p->claimed) {
        jsonl_real(r, "epsilon", p->claim.epsilon[p->claim.holds]);
        jsonl_real(r, "delta", p->delta);
        jsonl_text(r, "accountant", accountant_name[p->claim.holds]);
        jsonl_real(r, "unamplified", p->claim.unamplified);
    }
    if (p->cap > 0) {
        jsonl_real(r, "cap", p->cap);
        jsonl_int(r, "steps_left", p->left);
    }
    jsonl_end(r);
}
