/* SPDX-License-Identifier: Apache-2.0 */
/* The page for a data-protection officer: what left a site, when, to whom, under which keys, and
 * what is promised for the people in its data. From the site's run directory alone. */
#include "outer/view/officer.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "outer/record/ledger_read.h"
#include "outer/view/page_files.h"
#include "outer/view/progress.h"
#include "outer/view/sheet.h"
#include "outer/view/spent.h"
#include "outer/site/site_masks.h"

enum { SHOWN_ROUNDS = 400, TEXT_MAX = 700 };

struct sent_round {
    double t, fragment, round, included, sites, up;
};
struct told { /* metrics.jsonl */
    char run[64], site[64], aggregator[160], version[48], commit[48];
    char claim[TEXT_MAX], secure[TEXT_MAX], leave[TEXT_MAX];
    char earlier[TEXT_MAX]; /* runs over the same owners, of privacy.ledger */
    char uri[200], certificate[65], serial[64], identity[65], identity_certificate[65],
        aggregator_identity[65];
    double until, first_t, last_t, parameters;
    unsigned starts;
    uint64_t evaluations;
    struct sent_round *rounds;
    size_t count, room;
    bool private; /* a claim is on record, or why there is none */
};
struct audited { /* the last line of audit.jsonl */
    bool there;
    double t, canaries, guesses, correct, delta, confidence, bound, claim;
};
struct officer {
    const char *dir;
    struct told told;
    struct spent spent;
    bool charged; /* `spent` is there */
    char spent_why[300];
    struct audited audit;
    struct ledger_member ledger;
    bool booked;
    char ledger_why[300];
    struct site_peer_key *peers;
    size_t peer_count;
};

/* ---- reading ---- */
static void text_take(char *out, size_t size, const struct jsonl_row *row, const char *key)
{
    snprintf(out, size, "%s", jsonl_string(row, key));
}

static void start_take(struct told *t, const struct jsonl_row *row)
{
    t->starts++;
    text_take(t->run, sizeof t->run, row, "run");
    text_take(t->site, sizeof t->site, row, "site");
    text_take(t->aggregator, sizeof t->aggregator, row, "aggregator");
    text_take(t->version, sizeof t->version, row, "version");
    text_take(t->commit, sizeof t->commit, row, "commit");
    t->parameters = jsonl_number(row, "parameters");
    t->private = false;
    t->secure[0] = t->leave[0] = t->earlier[0] = 0;
}

static void keys_take(struct told *t, const struct jsonl_row *row)
{
    text_take(t->uri, sizeof t->uri, row, "uri");
    text_take(t->certificate, sizeof t->certificate, row, "certificate");
    text_take(t->serial, sizeof t->serial, row, "serial");
    text_take(t->identity, sizeof t->identity, row, "identity");
    text_take(t->identity_certificate, sizeof t->identity_certificate, row, "identity_certificate");
    if (*jsonl_string(row, "aggregator_identity"))
        text_take(t->aggregator_identity, sizeof t->aggregator_identity, row,
                  "aggregator_identity");
    t->until = jsonl_number(row, "until");
}

/* A round that a restart repeats from its own record moves nothing. */
static enum err round_take(struct told *t, const struct jsonl_row *row)
{
    if (jsonl_number(row, "replayed") != 0)
        return ERR_OK;
    if (t->count == t->room) {
        size_t room = 2 * t->room + 64;
        struct sent_round *rounds = realloc(t->rounds, room * sizeof *rounds);
        if (!rounds)
            return ERR_MEMORY;
        t->rounds = rounds;
        t->room = room;
    }
    t->rounds[t->count++] = (struct sent_round){
        jsonl_number(row, "t"),        jsonl_number(row, "fragment"), jsonl_number(row, "round"),
        jsonl_number(row, "included"), jsonl_number(row, "sites"),    jsonl_number(row, "up")};
    return ERR_OK;
}

static enum err told_read(struct told *t, const char *dir, struct arena *a)
{
    struct jsonl_reader reader;
    struct jsonl_row row;
    enum err e = ERR_OK;
    const char *path;
    TRY_ALLOC(path = arena_printf(a, "%s/%s", dir, RECORD_FILE));
    if (!jsonl_reader_open(&reader, path))
        return err_set(ERR_INPUT, "%s is not there: %s is no run.dir of a site", path, dir);
    while (e == ERR_OK && jsonl_next(&reader, &row)) {
        double at = jsonl_number(&row, "t");
        t->first_t = t->first_t > 0 ? t->first_t : at;
        t->last_t = at;
        if (jsonl_is(&row, "start"))
            start_take(t, &row);
        else if (jsonl_is(&row, "keys"))
            keys_take(t, &row);
        else if (jsonl_is(&row, "round"))
            e = round_take(t, &row);
        else if (jsonl_is(&row, "secure")) {
            text_take(t->secure, sizeof t->secure, &row, "text");
            text_take(t->leave, sizeof t->leave, &row, "leave");
        } else if (jsonl_is(&row, "eval"))
            t->evaluations++;
        if (!jsonl_is(&row, "privacy"))
            continue;
        t->private = true;
        text_take(t->claim, sizeof t->claim, &row, "text");
        text_take(t->earlier, sizeof t->earlier, &row, "earlier");
    }
    jsonl_reader_close(&reader);
    if (e == ERR_OK && !t->starts)
        return err_set(ERR_INPUT, "%s holds no start of a site", path);
    return e;
}

static void audit_read(struct audited *x, const char *dir, struct arena *a)
{
    struct jsonl_reader reader;
    struct jsonl_row row;
    const char *path = arena_printf(a, "%s/%s", dir, AUDIT_FILE);
    if (!path || !jsonl_reader_open(&reader, path))
        return;
    while (jsonl_next(&reader, &row))
        if (jsonl_is(&row, "audit"))
            *x = (struct audited){true,
                                  jsonl_number(&row, "t"),
                                  jsonl_number(&row, "canaries"),
                                  jsonl_number(&row, "guesses"),
                                  jsonl_number(&row, "correct"),
                                  jsonl_number(&row, "delta"),
                                  jsonl_number(&row, "confidence"),
                                  jsonl_number(&row, "epsilon_at_least"),
                                  jsonl_number(&row, "claim")};
    jsonl_reader_close(&reader);
}

static enum err officer_read(struct officer *o, const char *dir, struct arena *a)
{
    *o = (struct officer){.dir = dir};
    TRY(told_read(&o->told, dir, a));
    enum err e = spent_read(&o->spent, dir, &(struct spent_options){.delta = 0, .cap = 0}, a);
    o->charged = e == ERR_OK;
    if (e != ERR_OK && e != ERR_INPUT)
        return e; /* a damaged list of charges is no page */
    audit_read(&o->audit, dir, a);
    e = ledger_read(&o->ledger, dir, NULL, a);
    o->booked = e == ERR_OK;
    if (e != ERR_OK)
        snprintf(o->ledger_why, sizeof o->ledger_why, "%s", err_message());
    TRY(site_peer_keys(&o->peers, &o->peer_count, dir, a));
    err_clear();
    return ERR_OK;
}

/* ---- writing ---- */
static const char *site_name(const struct told *t)
{
    return *t->site ? t->site : "alone";
}

static void write_period(struct sheet *s, const struct officer *o)
{
    const struct told *t = &o->told;
    char first[SPENT_TIME_MAX], last[SPENT_TIME_MAX];
    sheet_line(s,
               "Site %s, run %s. From %s to %s, %u start%s of the program (version %s, commit %s).",
               site_name(t), t->run, spent_time(first, t->first_t), spent_time(last, t->last_t),
               t->starts, t->starts == 1 ? "" : "s", t->version, t->commit);
    sheet_line(s, "This page is made of the site's own directory, %s, and of nothing else.",
               o->dir);
}

/* Whom the unit of the charges stands for. */
static const struct {
    const char *unit, *whom, *records;
} whom[] = {
    {"owner", "one person in the data", "all records of one person, by the list of owners"},
    {"document", "one document in the data", "one document; a person may have several"},
    {"sequence", "one training example", "one training example; a person may have many"},
};

static size_t whom_of(const struct spent *x)
{
    const struct budget_plan none = spent_plan(x);
    const char *unit = budget_unit(&x->budget, &none);
    for (size_t i = 0; i < sizeof whom / sizeof *whom; i++)
        if (strcmp(whom[i].unit, unit) == 0)
            return i;
    return sizeof whom / sizeof *whom - 1;
}

static bool claimed(const struct officer *o)
{
    return o->charged && !o->spent.unclaimed;
}

/* For a lay reader: what the two numbers mean. */
static void write_bound(struct sheet *s, const struct spent *x)
{
    double epsilon = x->account.epsilon[x->account.holds];
    bool person = strcmp(whom[whom_of(x)].unit, "owner") == 0;
    sheet_line(s,
               "%s is bounded by epsilon = %.6g at delta = %g. What a reader concludes from "
               "all that left this site, with any knowledge of the world, would have been at most "
               "%.4g times as likely, or as unlikely, without them, but for a probability of "
               "about %g.",
               person ? "What the records of one person (one patient's reports) can change"
                      : "What one record can change",
               epsilon, x->delta, exp(epsilon), x->delta);
    if (!person)
        sheet_line(
            s,
            "Nothing is promised for a person as a whole: the unit is %s. For k records of a "
            "person the bound is up to k times as large.",
            whom[whom_of(x)].records);
    if (x->cap > 0)
        sheet_line(s,
                   epsilon <= x->cap ? "That is within the cap of this site, %g."
                                     : "THAT IS ABOVE THE CAP of this site, %g.",
                   x->cap);
}

static void write_verdict(struct sheet *s, const struct officer *o)
{
    const struct spent *x = &o->spent;
    sheet_heading(s, "In short");
    if (!o->charged)
        sheet_line(s, "Nothing is promised for the people in the data: privacy.unit is none.");
    else if (x->unclaimed)
        sheet_line(s, "Nothing can be promised for the people in the data: %s.", x->unclaimed);
    else
        write_bound(s, x);
    if (!*o->told.aggregator)
        sheet_line(s, "The site trained alone: nothing went over a link.");
    else
        sheet_line(s, *o->told.secure
                          ? "The aggregator and the other sites see sums over several sites, and "
                            "no contribution of this site by itself."
                          : "The aggregator sees each contribution of this site by itself: secure "
                            "aggregation is off.");
    if (*o->told.earlier)
        sheet_line(s, "%s", o->told.earlier);
    else if (o->charged)
        sheet_line(s, "Whether the same people were in an earlier run is not on record here "
                      "(privacy.ledger is not set). Epsilons of several runs add up: atoll "
                      "privacy ledger DIR.. of all of them computes the sum.");
}

static void write_epsilon(struct sheet *s, const struct officer *o)
{
    const struct spent *x = &o->spent;
    char heading[120];
    snprintf(heading, sizeof heading, "What is promised for %s",
             o->charged ? whom[whom_of(x)].whom : "one person in the data");
    sheet_heading(s, heading);
    if (!o->charged) {
        sheet_line(s,
                   "Nothing: privacy.unit is none. What the model tells of single records is not "
                   "bounded.");
        return;
    }
    const struct budget_plan none = spent_plan(x);
    if (o->told.private)
        sheet_line(s, "Claim at the last start: %s", o->told.claim);
    if (x->unclaimed) {
        sheet_line(s, "No epsilon can be claimed for the charged steps: %s.", x->unclaimed);
    } else {
        char sentence[BUDGET_SENTENCE_MAX];
        budget_sentence(sentence, &x->account, &x->budget, &none);
        sheet_line(s, "Charged until now: %s", sentence);
    }
    static const char *const head[] = {"unit", "sampling", "q",      "noise",
                                       "clip", "steps",    "counted"};
    sheet_table(s, head, 7, 2);
    for (size_t i = 0; i < x->budget.count; i++) {
        const struct budget_setting *g = &x->budget.settings[i];
        const struct private_charge *c = &g->charge;
        sheet_cell(s, "%s", c->unit);
        sheet_cell(s, "%s", c->sampling);
        sheet_cell(s, "%.6g", (double)c->expected / (double)c->records);
        sheet_cell(s, "%.6g", c->noise);
        sheet_cell(s, "%.6g", c->clip);
        sheet_cell(s, "%" PRId64, g->steps);
        sheet_cell(s, "%" PRId64, g->counted);
    }
    sheet_table_end(s);
    if (x->cap > 0)
        sheet_line(s,
                   "Cap of this site: epsilon %g. Left: %s%" PRId64 " further steps of the newest "
                   "setting.",
                   x->cap, x->left_more ? "more than " : "", x->left);
    else
        sheet_line(s, "This site has no cap: nothing but the end of the run stops it.");
    sheet_line(s,
               "Held-out records (data.eval) are outside of this promise: their loss was computed "
               "%" PRIu64 " times, which is charged nothing.",
               o->told.evaluations);
}

static void write_leaver(struct sheet *s, const struct told *t)
{
    if (!*t->aggregator || !*t->secure)
        return;
    sheet_heading(s, "If a site leaves");
    sheet_line(s, "%s.",
               *t->leave ? t->leave
                         : "Not on record: the program of this run was older than this page");
    sheet_line(s, "What a site has contributed stays in the model. The bound above holds for it "
                  "after it has left, too.");
}

static void write_audit(struct sheet *s, const struct officer *o)
{
    const struct audited *x = &o->audit;
    char at[SPENT_TIME_MAX];
    sheet_heading(s, "Audit");
    if (!x->there) {
        sheet_line(s, "No audit is on record (atoll privacy audit). The claim rests on the program "
                      "and on the proofs that docs/privacy-methods.md cites.");
        return;
    }
    sheet_line(s,
               "%s: of %.0f random examples, of which each was trained on with probability 1/2, "
               "%.0f of %.0f guesses were right. Epsilon is at least %.4g at delta %g, with "
               "confidence %g (2305.08846).",
               spent_time(at, x->t), x->canaries, x->correct, x->guesses, x->bound, x->delta,
               x->confidence);
    if (x->claim > 0)
        sheet_line(s,
                   x->bound > x->claim
                       ? "That is above the claimed epsilon %.4g: the claim is refuted. Stop the "
                         "run."
                       : "That does not contradict the claimed epsilon %.4g. It does not prove "
                         "it.",
                   x->claim);
}

/* ---- what left ---- */
static const struct {
    enum ledger_what what;
    const char *says;
} calls[] = {
    {LEDGER_CONTRIBUTION, "change of the model since the last round, over all records of the site"},
    {LEDGER_HELLO, "names, settings that all sites share, public keys, digests of states"},
    {LEDGER_POLL, "which round is asked for"},
    {LEDGER_REPORT, "digest of the state, step, tokens/s; the training loss: "},
    {LEDGER_MASK, "public keys, signatures, and keys of masks once a sum is sealed"},
    {LEDGER_LEAVE, "that the site ends, and why"},
    {LEDGER_AGGREGATE, "nothing: it fetches the sum"},
    {LEDGER_SNAPSHOT, "nothing: it fetches the model"},
    {LEDGER_CONNECTION, "certificates"},
};

/* With either switch a report has no loss: it is a sum over records without noise. */
static const char *loss_words(const struct told *t)
{
    return t->private || *t->secure ? "not sent" : "sent";
}

static void write_calls(struct sheet *s, const struct ledger_member *m, const struct told *t)
{
    static const char *const head[] = {"call", "what it says of the site", "calls", "bytes up",
                                       "bytes down"};
    sheet_table(s, head, 5, 2);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct ledger_row sum = {.what = calls[i].what};
        char up[32], down[32];
        for (size_t k = 0; k < ledger_sum_count(m); k++) {
            struct ledger_sum part = ledger_sum_at(m, k);
            if (part.row.what == calls[i].what)
                ledger_add(&sum, &part.row);
        }
        if (!sum.calls)
            continue;
        sheet_cell(s, "%s", ledger_name(calls[i].what));
        sheet_cell(s, "%s%s", calls[i].says, calls[i].what == LEDGER_REPORT ? loss_words(t) : "");
        sheet_cell(s, "%" PRIu64, sum.calls);
        sheet_cell(s, "%s", sheet_digits(up, (double)ledger_sum(&sum.up)));
        sheet_cell(s, "%s", sheet_digits(down, (double)ledger_sum(&sum.down)));
    }
    sheet_table_end(s);
}

static void write_rounds(struct sheet *s, const struct told *t)
{
    static const char *const head[] = {"round", "fragment", "when", "sites in the sum",
                                       "payload bytes"};
    size_t skipped = t->count > SHOWN_ROUNDS ? t->count - SHOWN_ROUNDS : 0;
    if (skipped)
        sheet_line(s, "The last %d of %zu rounds; metrics.jsonl has all of them.", SHOWN_ROUNDS,
                   t->count);
    sheet_table(s, head, 5, 3);
    for (size_t i = skipped; i < t->count; i++) {
        const struct sent_round *r = &t->rounds[i];
        char at[SPENT_TIME_MAX], up[32];
        sheet_cell(s, "%.0f", r->round);
        sheet_cell(s, "%.0f", r->fragment);
        sheet_cell(s, "%s", spent_time(at, r->t));
        sheet_cell(s, "%.0f of %.0f", r->included, r->sites);
        sheet_cell(s, "%s", sheet_digits(up, r->up));
    }
    sheet_table_end(s);
}

static void write_left(struct sheet *s, const struct officer *o)
{
    const struct told *t = &o->told;
    double bytes = 0;
    char up[32];
    for (size_t i = 0; i < t->count; i++)
        bytes += t->rounds[i].up;
    sheet_heading(s, "What left the site");
    if (!*t->aggregator) {
        sheet_line(s, "Nothing over a link: the site trained alone. The model lies in %s/inner.",
                   o->dir);
        return;
    }
    progress_bytes(up, sizeof up, bytes);
    sheet_line(s,
               "%zu contributions with %s of payload, to the aggregator at %s. No text, no label "
               "and no token of a record is in any message; what a contribution tells of records "
               "is what this page is about.",
               t->count, up, t->aggregator);
    if (*t->secure)
        sheet_line(s, "%s", t->secure);
    else
        sheet_line(s, "Secure aggregation is off: the aggregator sees each contribution of this "
                      "site by itself.");
    if (o->booked)
        write_calls(s, &o->ledger, t);
    else
        sheet_line(s, "The ledger of the link cannot be read: %s", o->ledger_why);
    if (t->count)
        write_rounds(s, t);
}

/* ---- keys ---- */
static void key_row(struct sheet *s, const char *whose, const char *what, const char *value)
{
    sheet_cell(s, "%s", whose);
    sheet_cell(s, "%s", what);
    sheet_cell(s, "%s", *value ? value : "not on record");
}

static void write_keys(struct sheet *s, const struct officer *o)
{
    static const char *const head[] = {"whose", "what", "value"};
    const struct told *t = &o->told;
    char until[SPENT_TIME_MAX], hex[65];
    if (!*t->aggregator)
        return;
    sheet_heading(s, "Under which keys");
    sheet_line(s, "Each connection is TLS 1.3, and both ends show certificates of the run's "
                  "authority. The site signs each contribution with its identity key, and adopts "
                  "no sum without the aggregator's signature.");
    sheet_table(s, head, 3, 3);
    key_row(s, site_name(t), "name in its certificates", t->uri);
    key_row(s, site_name(t), "TLS certificate, SHA-256", t->certificate);
    key_row(s, site_name(t), "its serial number", t->serial);
    key_row(s, site_name(t), "valid until", t->until > 0 ? spent_time(until, t->until) : "");
    key_row(s, site_name(t), "identity key, Ed25519", t->identity);
    key_row(s, site_name(t), "identity certificate, SHA-256", t->identity_certificate);
    key_row(s, "aggregator", "identity key, Ed25519", t->aggregator_identity);
    for (size_t i = 0; i < o->peer_count; i++) {
        struct digest d;
        memcpy(d.bytes, o->peers[i].key.bytes, sizeof d.bytes);
        digest_hex(&d, hex);
        key_row(s, o->peers[i].name, "identity key, Ed25519: its masks", hex);
    }
    sheet_table_end(s);
}

/* ---- what it proves ---- */
static void write_proofs(struct sheet *s, const struct officer *o)
{
    bool charged = claimed(o);
    sheet_heading(s, "What this proves");
    if (charged)
        sheet_item(s,
                   "Every step was on the list of charges, on the disk, before it read a record. "
                   "Lines are numbered and chained by digests, and checkpoints hold number and "
                   "digest: a line that is changed, moved or missing is found at the next start "
                   "and by this page. A run that continues without its list is refused.");
    if (charged)
        sheet_item(s, "The epsilon is an upper bound that the accountant computes from the list, "
                      "for the sampling and the noise that ran: both are implemented in this "
                      "program, and tested.");
    if (o->booked)
        sheet_item(s, "Every byte over the link is counted by call, and the sum is compared with "
                      "the kernel's counters (atoll ledger).");
    if (o->peer_count)
        sheet_item(s, "Contributions were masked: the aggregator saw sums of sites alone "
                      "(docs/privacy-methods.md, secure aggregation).");
    sheet_item(s, "Nothing apart from this: it is a record of the site's own program.");
    sheet_heading(s, "What it does not prove");
    sheet_item(s, "That the program is the published one: compare version and commit, "
                  "above, with the source that the site's administrators have built.");
    sheet_item(s, "That a whole site is hidden: that this site took part is known to all, and what "
                  "all its records have in common is what the model learns.");
    if (charged && strcmp(whom[whom_of(&o->spent)].unit, "owner") != 0)
        sheet_item(s, "Anything about a person with several records: the unit is one record, and "
                      "for k records epsilon is up to k times as large, at a larger delta. "
                      "privacy.unit = owner takes all records of a person as one.");
    sheet_item(s,
               "Anything about a person whose data lie at several sites: their epsilons add up.");
    sheet_item(s, "That settings were chosen without looking at these records, and that data.eval "
                  "holds no protected text: evaluations of it are not charged.");
    if (charged && !*o->told.earlier)
        sheet_item(s, "Anything about earlier or later runs over the same people: their epsilons "
                      "add up.");
    if (charged)
        sheet_item(s, "Anything against a reader of inner/privacy.key, who can subtract the noise, "
                      "or of the time that a step took.");
}

/* False: no memory. */
static bool page_write(FILE *out, const struct officer *o, enum officer_form form)
{
    struct sheet s;
    char title[200];
    snprintf(title, sizeof title, "Privacy of site %s in run %s", site_name(&o->told), o->told.run);
    if (form == OFFICER_JSON)
        sheet_begin_json(&s, out, title);
    else
        sheet_begin(&s, out, title, form == OFFICER_HTML ? page_css : NULL, page_css_size);
    write_verdict(&s, o);
    write_period(&s, o);
    write_epsilon(&s, o);
    write_leaver(&s, &o->told);
    write_audit(&s, o);
    write_left(&s, o);
    write_keys(&s, o);
    write_proofs(&s, o);
    sheet_end(&s);
    return !s.bad;
}

enum err officer_write(const char *path, enum officer_form form, const char *dir, struct arena *a)
{
    struct officer o;
    char *text = NULL;
    size_t size = 0;
    bool file = strcmp(path, "-") != 0;
    enum err e = officer_read(&o, dir, a);
    FILE *out = e == ERR_OK ? open_memstream(&text, &size) : NULL;
    if (e == ERR_OK && !out)
        e = err_set(ERR_MEMORY, "no memory for the page");
    if (out) {
        bool bad = !page_write(out, &o, form);
        bad = ferror(out) || bad;
        bad = fclose(out) != 0 || bad;
        e = bad    ? err_set(ERR_MEMORY, "no memory for the page")
            : file ? file_write(path, &(struct file_part){text, size}, 1, 0644)
                   : ERR_OK;
        if (e == ERR_OK && !file)
            fputs(text, stdout);
    }
    free(text);
    free(o.told.rounds);
    return e;
}
