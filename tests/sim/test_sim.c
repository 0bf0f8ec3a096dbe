/* SPDX-License-Identifier: Apache-2.0 */
/* Seeded faults against the promise (docs/protocol.md 4). A failing seed prints the
 * line that repeats it.
 *
 *   test_sim                       the suite's first half: 6,000 seeds, and those that found
 *                                  something; the second half: --from 6001 --count 6000
 *   test_sim --seed N [--log]      one seed, with its log
 *   test_sim --from N --seeds M    a campaign: M seeds from N on (--count: the same)
 *   test_sim --full ...            the same without small schedules
 *   test_sim --large ...           the same with up to 64 sites and up to 200 rounds
 *   test_sim --focus WORD[,WORD]   the same with copies of directories (copies), an operator's acts
 *                                  (operator), changes of the roster (roster), amendments (amend),
 *                                  a lying site (liar), eager starts (eager) or masked
 *                                  contributions (masks) in every seed that can have them; lean()
 *                                  has the other words
 *   test_sim --shrink N [--full, --large]   leaves out fault after fault while seed N still fails
 *                                  and prints the faults that remain, with their times
 *   test_mutants --mutant NAME     the same over the outer loop with that bug in it
 *   test_mutants --list            names them
 *
 * The last line sums up: "1026 seeds, 3120 crashes, 0 violations". Exit 1: a violation.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernels/base/log.h"
#include "tests/sim/sim.h"
#include "tests/sim/mutants.h"
#include "tests/sim/reference.h"
#include "tests/sim/sinks.h"

#ifdef __has_feature
#define FEATURE(name) __has_feature(name)
#else
#define FEATURE(name) 0
#endif
#ifdef SANITIZED
enum { SUITE_SEEDS = 100 }; /* ten times slower, most of it in switching stacks */
#else
enum { SUITE_SEEDS = 6000 };
#endif
enum { FAILURES_MAX = 20, SKIPPED = 77 };
enum {
    FULL_IN = 16
}; /* one of this number of seeds is drawn by sim_draw, the others by sim_draw_small */
/* First: beyond the suite's range, and found something once; or the seed that finds a mutant which
 * few do. Faults are drawn as the run continues: a seed may meet another story by now. What they
 * found in the protocol, not in the oracle, has a test of its own. */
static const uint64_t found[] = {595,  715,  2063, 841,  1026,  2183,  2842,  2858,  3210,
                                 3690, 3988, 3992, 4210, 4262,  4643,  4901,  5063,  6128,
                                 6204, 7537, 7865, 9819, 10930, 14269, 18560, 12869, 1806,
                                 216,  693,  71,   5960, 547,   2328,  4308,  8686,  45};

static bool differs(struct sim_result *r, const char *what, const char *with)
{
    snprintf(r->why, sizeof r->why, "strict mode: %s differs from %s", what, with);
    return r->ok = false;
}

static bool ends_compare(const struct sim_options *o, const struct sim_result *calm,
                         struct sim_result *r, const char *with)
{
    if (!digest_equal(&calm->state, &r->state))
        return differs(r, "the outer state", with);
    for (unsigned i = 0; i < o->sites; i++)
        if (!digest_equal(&calm->residual[i], &r->residual[i]))
            return differs(r, "a residual", with);
    return true;
}

/* Masks change no bit: the run without them, too, ends so. But its last round may have another
 * codec, since it tells what the residuals hold (docs/protocol.md 3.8). */
static bool compare_unmasked(struct sim_options o, struct sim_result *r)
{
    static struct sim_result plain;
    o.masked = false;
    sim_run_options(&o, &plain);
    bool same_acts = plain.repeats && r->repeats &&
                     !memcmp(plain.first, r->first, sizeof r->first) &&
                     digest_equal(&plain.amended, &r->amended);
    if (plain.ok && (plain.codecs != r->codecs || !same_acts))
        return true;
    r->compared_unmasked = true;
    if (!plain.ok) {
        *r = plain;
        return false;
    }
    return ends_compare(&o, &plain, r, "the run without masks");
}

/* I1: the same SHA-256 as the run without faults, of every replica's everything. An operator's acts
 * are input to both runs. */
static bool compare(struct sim_options o, struct sim_result *r)
{
    static struct sim_result calm;
    o.faults = false;
    o.second = o.copied = SIM_COPY_NONE;
    o.told = NULL;
    sim_run_options(&o, &calm);
    bool same_acts = calm.repeats && r->repeats && !memcmp(calm.first, r->first, sizeof r->first) &&
                     digest_equal(&calm.amended, &r->amended);
    if (calm.ok && !same_acts)
        return true;
    r->compared = true;
    if (!calm.ok) {
        *r = calm;
        return false;
    }
    if (!ends_compare(&o, &calm, r, "the run without faults"))
        return false;
    return !o.masked || compare_unmasked(o, r);
}

struct totals {
    uint64_t seeds, failed, calls, crashes, restarts, commits, snapshots, excluded, gap_ms, books,
        virtual_ms, residual_resets, damaged, aborted, clipped, compressed, residuals_lost,
        lies_refused, lies_accepted, stopped, moved, postponed, ordered, rolled_back, quarantined,
        copies, given_up, stepped_back, parted, amidst, judged, faults, compared, changes,
        changes_compared, amendments, amendments_compared, masked, unmasked_compared, sealed,
        unsealed, absent, sought, seals_lost, archived, gaps, scrubbed, mended;
};
static struct reference reference;
static enum { SIZE_MIXED, SIZE_FULL, SIZE_LARGE } size; /* of the schedules */
static const char *const size_names[] = {"", " --full", " --large"};
static const char *focus = "";

/* Is this word in the list? */
static bool focuses(const char *word)
{
    size_t n = strlen(word);
    for (const char *at = focus; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, word, n) && (!at[n] || at[n] == ','))
            return true;
    return false;
}

/* States that few schedules reach otherwise (tests/sim/mutants.csv says which bug needs which). */
static void lean(struct sim_options *o, uint64_t seed)
{
    if (focuses(
            "quorum")) { /* a round continues without one of its sites; few other things happen */
        o->strict = false;
        o->every_ms = 0;
        o->sites = o->masked ? 4 + seed % 2 : o->sites < 3 ? 3 : o->sites;
        o->delay = o->optimizer == OUTER_OPT_DELAYED ? 1 + o->sites : 1;
        o->colluding = 0;
        o->absent = o->late = o->damaged = o->lies = o->operates = false;
        o->joins = o->leaves = o->returns = false;
        o->second = o->copied = SIM_COPY_NONE;
    }
    if (focuses("strict")) {
        o->strict = true;
        o->late = o->absent = o->damaged = o->lies = false;
        o->max_local_steps_offline = 0;
        o->grace = 0;
    }
    if (focuses("away"))
        o->leaning.away = true;
    if (focuses("rot")) {
        o->leaning.rot = 0.9;
        o->leaning.seals = o->masked ? 0.1 : 0;
    }
    if (focuses("journal")) {
        o->leaning.journal = 0.8;
        o->leaning.seals = o->masked ? 0.1 : 0;
    }
    if (focuses("full"))
        o->leaning.full = 0.4;
    if (focuses("crash"))
        o->leaning.crash = 0.03;
    if (focuses("power")) {
        o->leaning.power = 0.7;
        o->damaged = !o->strict && o->sites > 2;
        o->steps += 6 * o->every;
    }
    if (focuses("silent") && o->leaves) {
        o->leaning.silent = true;
        o->returns = o->strict = true;
        o->late = o->absent = o->damaged = false;
        o->max_local_steps_offline = 0;
        o->grace = 0;
        o->keep = 1000; /* without a snapshot, as sim_draw.c has it */
        o->sites = o->sites < 3 ? 3 : o->sites;
        o->delay = o->optimizer == OUTER_OPT_DELAYED ? 1 + o->sites : 1;
        o->steps += 4 * o->every;
    }
    if (focuses("fragments")) {
        o->fragments = 4;
        o->steps = 4 * (3 + (int64_t)(seed % 4));
        o->every = o->overlap = 4; /* all of them are in flight */
        o->mix = 0;
        o->every_ms = 0;
        o->before_update = false;
        o->growth = (struct period_growth){0};
    }
}

static struct sim_options options_of(uint64_t seed)
{
    bool small = size == SIZE_MIXED && seed % FULL_IN != 0;
    struct sim_options o = size == SIZE_LARGE ? sim_draw_large(seed)
                           : small            ? sim_draw_small(seed)
                                              : sim_draw(seed);
    bool copies = focuses("copies"), acts = focuses("operator"), roster = focuses("roster"),
         amends = focuses("amend");
    if (roster) {
        o.sites += o.sites == 1;
        o.joins = seed % 4 != 1;
        o.leaves = seed % 4 != 0;
        o.damaged = false; /* two sites skip no round */
    }
    if (copies || acts || roster) {
        o.lies = o.absent = o.late = false;
        o.every_ms = roster ? o.every_ms : 0;
        o.operates = acts;
        o.joins = roster && o.joins;
        o.leaves = roster && o.leaves;
        o.second = o.copied = SIM_COPY_NONE;
    }
    if (amends) {
        o.amends = true;
        o.aborts = false; /* by an infinite rate, which an amendment replaces */
        o.lies = o.operates = false;
        o.second = o.copied = SIM_COPY_NONE;
        o.growth = seed % 4 ? (struct period_growth){0} : o.growth;
        o.every_ms = 0;
    }
    if (acts && !o.eager) { /* else nothing is rolled back */
        o.overlap = 0;
        o.mix = 0;
        o.grace = 0;
        o.before_update = false;
    }
    if (focuses("eager")) {
        o.overlap = o.every;
        o.mix = 0;
        o.eager = true;
        o.before_update = false;
        o.merge = MERGE_MEAN;
        o.clip = 0;
        o.edit_warmup = 0;
        o.growth = (struct period_growth){0};
        o.every_ms = 0;
    }
    if (copies && seed % 2)
        o.second = seed % 4 < 2 ? SIM_COPY_RESTORED : SIM_COPY_BOTH;
    if (copies && seed % 8 == 7) {
        o.split = true;
        o.strict = false;
        o.sites = o.sites < 3 ? 3 : o.sites;
    }
    if (copies && seed % 2 == 0)
        o.copied = seed % 4 < 2 ? SIM_COPY_RESTORED : SIM_COPY_BOTH;
    if (focuses("liar") && !o.strict && o.sites > 2) {
        o.lies = true;
        o.damaged = o.joins = o.leaves = false;
        o.second = o.copied = SIM_COPY_NONE;
    }
    bool masks = focuses("masks"), may = !*focus || amends || acts || roster || o.second;
    o.masked = masks || (o.masked && may);
    if (o.masked)
        sim_draw_masked(&o);
    lean(&o, seed);
    o.judge = reference_judge;
    o.judge_self = &reference;
    return o;
}

/* One seed, and the run without faults next to it where the two must be equal. */
static void try(const struct sim_options *o, struct sim_result *r)
{
    sim_run_options(o, r);
    bool repeats = o->strict && !o->every_ms && o->copied == SIM_COPY_NONE;
    if (r->ok && repeats && !r->residuals_lost && !r->seals_lost && !r->given_up && !r->parted &&
        !(o->second != SIM_COPY_NONE && r->snapshots))
        compare(*o, r);
}

static bool tells; /* each seed before it runs: an assertion says only what it is */

/* What the schedules did, as one number: two programs that draw and judge the same have the same.
 * FNV-1a, since a program here may have another digest_of (digest_fast.c). */
static uint64_t course;

static void course_add(const void *data, size_t n)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < n; i++)
        course = (course ^ at[i]) * 0x100000001b3u;
}

static void course_follow(const struct sim_options *o, const struct sim_result *r)
{
    const uint64_t counts[] = {r->ok,        r->virtual_ms, r->calls,    r->crashes,  r->restarts,
                               r->commits,   r->snapshots,  r->excluded, r->stopped,  r->moved,
                               r->postponed, r->aborted,    r->faults,   r->changes,  r->amendments,
                               r->sealed,    r->scrubbed,   r->mended,   r->archived, r->gaps,
                               r->compared,  r->judged,     r->absent,   r->clipped,  r->copies,
                               r->parted,    r->codecs,     r->amidst};
    course_add(counts, sizeof counts);
    course_add(r->operations, (o->sites + 1) * sizeof *r->operations);
    course_add(r->state.bytes, sizeof r->state.bytes);
    for (unsigned i = 0; i < o->sites; i++)
        course_add(r->residual[i].bytes, sizeof r->residual[i].bytes);
}

static bool run(uint64_t seed, struct totals *t)
{
    struct sim_options o = options_of(seed);
    static struct sim_result r;
    if (tells)
        printf("seed=%" PRIu64 "\n", seed);
    try(&o, &r);
    course_follow(&o, &r);
    t->lies_accepted += r.lies_accepted;
    t->ordered += r.ordered;
    t->rolled_back += r.rolled_back;
    t->quarantined += r.quarantined;
    t->copies += r.copies;
    t->given_up += r.given_up;
    t->stepped_back += r.stepped_back;
    t->parted += r.parted;
    t->amidst += r.amidst;
    t->judged += r.judged;
    t->faults += r.faults;
    t->compared += r.compared;
    t->changes += r.changes;
    t->changes_compared += r.compared && r.changes;
    t->amendments += r.amendments;
    t->amendments_compared += r.compared && r.amendments;
    t->masked += o.masked;
    t->unmasked_compared += r.compared_unmasked;
    t->sealed += r.sealed;
    t->unsealed += r.unsealed;
    t->absent += r.absent;
    t->sought += r.sought;
    t->seals_lost += r.seals_lost;
    t->archived += r.archived;
    t->gaps += r.gaps;
    t->scrubbed += r.scrubbed;
    t->mended += r.mended;
    t->seeds++;
    t->failed += !r.ok;
    t->calls += r.calls;
    t->crashes += r.crashes;
    t->restarts += r.restarts;
    t->commits += r.commits;
    t->snapshots += r.snapshots;
    t->excluded += r.excluded;
    t->residual_resets += r.residual_resets;
    t->damaged += r.damaged;
    t->aborted += r.aborted;
    t->clipped += r.clipped;
    t->lies_refused += r.lies_refused;
    t->compressed += r.compressed;
    t->residuals_lost += r.residuals_lost;
    t->stopped += r.stopped;
    t->moved += r.moved;
    t->postponed += r.postponed;
    t->books += r.books_checked;
    t->virtual_ms += r.virtual_ms;
    t->gap_ms = r.gap_ms > t->gap_ms ? r.gap_ms : t->gap_ms;
    if (!r.ok)
        printf("FAILED test_sim%s%s%s --seed %" PRIu64 " (number %" PRIu64
               "): %s (%u sites, %u fragments, %s, %s%s)\n",
               size_names[size], *focus ? " --focus " : "", focus, seed, t->seeds, r.why, o.sites,
               o.fragments, codec_get(o.codec)->name, o.strict ? "strict" : "quorum",
               o.masked ? ", masked" : "");
    if (!r.ok && (o.overlap || o.eager || o.max_local_steps_offline))
        printf("  every=%d overlap=%d mix=%g eager=%d before_update=%d offline=%d delay=%u\n",
               (int)o.every, (int)o.overlap, (double)o.mix, o.eager, o.before_update,
               (int)o.max_local_steps_offline, o.delay);
    if (!r.ok && o.masked)
        printf(
            "  colluding=%u joins=%d leaves=%d second=%d operates=%d aborts=%d late=%d absent=%d "
            "damaged=%d\n",
            o.colluding, o.joins, o.leaves, (int)o.second, o.operates, o.aborts, o.late, o.absent,
            o.damaged);
    return r.ok;
}

/* ---- shrinking ---- */

struct faults {
    uint8_t without[SIM_STRIKES_MAX];
    uint64_t count, kept; /* struck in the last run; of them not left out */
    bool prints;
};

static void fault_told(void *self, uint64_t now_ms, uint64_t fault, const char *what,
                       const char *who)
{
    struct faults *f = self;
    f->kept++;
    if (f->prints)
        printf("t=%" PRIu64 ".%03u fault=%" PRIu64 " %s: %s\n", now_ms / 1000,
               (unsigned)(now_ms % 1000), fault, who, what);
}

static bool still_fails(uint64_t seed, struct faults *f, struct sim_result *r)
{
    struct sim_options o = options_of(seed);
    o.without = f->without;
    o.told = fault_told;
    o.told_self = f;
    f->kept = 0;
    try(&o, r);
    f->count = r->faults < SIM_STRIKES_MAX ? r->faults : SIM_STRIKES_MAX;
    return !r->ok;
}

/* Without the faults [from, to): up to `from` the run stays as it was, so the last ones go first.
 */
static bool leave_out(uint64_t seed, struct faults *f, uint64_t from, uint64_t to,
                      struct sim_result *r)
{
    static uint8_t before[SIM_STRIKES_MAX];
    memcpy(before, f->without, sizeof before);
    memset(f->without + from, 1, to - from);
    if (still_fails(seed, f, r))
        return true;
    memcpy(f->without, before, sizeof before);
    return false;
}

static int shrink(uint64_t seed)
{
    static struct faults f;
    static struct sim_result r;
    memset(&f, 0, sizeof f);
    if (!still_fails(seed, &f, &r)) {
        printf("seed %" PRIu64 " does not fail\n", seed);
        return 2;
    }
    uint64_t all = f.kept, runs = 1;
    for (uint64_t n = f.count; n > 0; n /= 2) /* runs of n faults, from the end on */
        for (uint64_t to = f.count; to > 0; to = to > n ? to - n : 0) {
            uint64_t from = to > n ? to - n : 0;
            bool any = memchr(f.without + from, 0, to - from) != NULL;
            runs += any;
            if (any)
                (void)leave_out(seed, &f, from, to, &r);
        }
    f.prints = true;
    (void)still_fails(seed, &f, &r);
    printf("seed %" PRIu64 ": %" PRIu64 " of %" PRIu64 " faults left after %" PRIu64 " runs: %s\n",
           seed, f.kept, all, runs, r.why);
    return 1;
}

static uint64_t number(const char *s)
{
    return strtoull(s, NULL, 10);
}

int main(int argc, char **argv)
{
    uint64_t from = 1, count = SUITE_SEEDS, failures = 0;
    bool suite = true, shrinks = false;
    struct totals t = {0};
#if defined(__SANITIZE_THREAD__) || FEATURE(thread_sanitizer)
    printf("SKIPPED: one thread, and stacks that the thread sanitizer cannot follow\n");
    return SKIPPED;
#endif
    log_to(quiet, NULL);
    log_min(LOG_ERROR + 1); /* else each line is written and thrown away */
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        bool value = i + 1 < argc;
        if (!strcmp(argv[i], "--seed") && value) {
            from = number(argv[++i]);
            count = 1;
            suite = false;
        } else if (!strcmp(argv[i], "--from") && value) {
            from = number(argv[++i]);
            suite = false;
        } else if ((!strcmp(argv[i], "--count") || !strcmp(argv[i], "--seeds")) && value) {
            count = number(argv[++i]);
        } else if (!strcmp(argv[i], "--large")) {
            size = SIZE_LARGE;
            suite = false;
        } else if (!strcmp(argv[i], "--full")) {
            size = SIZE_FULL;
            suite = false;
        } else if (!strcmp(argv[i], "--failures") && value) {
            failures = number(argv[++i]);
        } else if (!strcmp(argv[i], "--focus") && value) {
            focus = argv[++i];
            suite = false;
        } else if (!strcmp(argv[i], "--shrink") && value) {
            shrinks = true;
            from = number(argv[++i]);
        } else if (!strcmp(argv[i], "--list")) {
            return mutant_set(NULL);
        } else if (!strcmp(argv[i], "--mutant") && value && mutant_set(argv[i + 1])) {
            failures = failures ? failures : 1;
            tells = true;
            i++;
        } else if (!strcmp(argv[i], "--log")) {
            log_to(loud, NULL);
            log_min(LOG_DEBUG);
        } else {
            printf("unknown argument %s\n", argv[i]);
            return 2;
        }
    }
    if (shrinks)
        return shrink(from);
    const uint64_t failures_max = failures ? failures : FAILURES_MAX;
    clock_t begin = clock();
    size = suite ? SIZE_FULL : size; /* those found came before there were small ones */
    for (size_t i = 0; suite && t.failed < failures_max && i < sizeof found / sizeof found[0];
         i++) {
        ASSERT(!options_of(found[i]).masked); /* a former seed keeps its course */
        run(found[i], &t);
    }
    size = suite ? SIZE_MIXED : size;
    for (uint64_t seed = from; seed < from + count && t.failed < failures_max; seed++)
        run(seed, &t);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {{"seeds", t.seeds},
                  {"failed", t.failed},
                  {"calls", t.calls},
                  {"crashes", t.crashes},
                  {"stopped", t.stopped},
                  {"restarts", t.restarts},
                  {"commits", t.commits},
                  {"postponed", t.postponed},
                  {"moved", t.moved},
                  {"residual_resets", t.residual_resets},
                  {"damaged", t.damaged},
                  {"aborted", t.aborted},
                  {"clipped", t.clipped},
                  {"lies_refused", t.lies_refused},
                  {"lies_accepted", t.lies_accepted},
                  {"ordered", t.ordered},
                  {"rolled_back", t.rolled_back},
                  {"quarantined", t.quarantined},
                  {"copies", t.copies},
                  {"given_up", t.given_up},
                  {"stepped_back", t.stepped_back},
                  {"parted", t.parted},
                  {"amidst", t.amidst},
                  {"judged", t.judged},
                  {"steps_judged", reference.steps},
                  {"faults", t.faults},
                  {"compared", t.compared},
                  {"changes", t.changes},
                  {"changes_compared", t.changes_compared},
                  {"amendments", t.amendments},
                  {"amendments_compared", t.amendments_compared},
                  {"masked", t.masked},
                  {"unmasked_compared", t.unmasked_compared},
                  {"sealed", t.sealed},
                  {"unsealed", t.unsealed},
                  {"absent", t.absent},
                  {"sought", t.sought},
                  {"seals_lost", t.seals_lost},
                  {"archived", t.archived},
                  {"gaps", t.gaps},
                  {"scrubbed", t.scrubbed},
                  {"mended", t.mended},
                  {"compressed", t.compressed},
                  {"residuals_lost", t.residuals_lost},
                  {"snapshots", t.snapshots},
                  {"excluded", t.excluded},
                  {"books", t.books},
                  {"longest_gap_s", t.gap_ms / 1000},
                  {"hours_simulated", t.virtual_ms / 3600000}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        printf("%s=%" PRIu64 " ", counts[i].name, counts[i].value);
    printf("seconds=%.1f seeds_per_second=%.1f\n", seconds,
           seconds > 0 ? (double)t.seeds / seconds : 0);
    printf("course=%016" PRIx64 "\n", course);
    printf("%" PRIu64 " seeds, %" PRIu64 " crashes, %" PRIu64 " violations\n", t.seeds, t.crashes,
           t.failed);
    return t.failed ? 1 : 0;
}
