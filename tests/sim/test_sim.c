/* Seeded faults against the promise (docs/protocol.md 4). A failing seed prints the
 * line that repeats it.
 *
 *   test_sim                       the suite: a range, and the seeds that found something
 *   test_sim --seed N [--log]      one seed, with its log
 *   test_sim --from N --count M    a range
 *   test_mutants --mutant NAME     the same over the outer loop with that bug in it
 *   test_mutants --list            names them
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernels/base/log.h"
#include "outer/protocol/mutant.h"
#include "outer/sim/sim.h"
#include "tests/sim/sinks.h"

#ifdef __has_feature
#define FEATURE(name) __has_feature(name)
#else
#define FEATURE(name) 0
#endif
#ifdef SANITIZED
enum { SUITE_SEEDS = 100 }; /* ten times slower, most of it in switching stacks */
#else
enum { SUITE_SEEDS = 1000 };
#endif
enum { FAILURES_MAX = 20, SKIPPED = 77 };
/* Beyond the suite's range, and found something once. Faults are drawn as the run goes on: a seed
 * may meet another story by now. What they found in the protocol, not in the oracle, has a test of
 * its own. */
static const uint64_t found[] = {595,  715,  2063, 841,  1026,  2183,  2842,  2858,  3210,
                                 3690, 3988, 3992, 4210, 4262,  4643,  4901,  5063,  6128,
                                 6204, 7537, 7865, 9819, 10930, 14269, 18560, 12869, 1806};

static bool differs(struct sim_result *r, const char *what)
{
    snprintf(r->why, sizeof r->why, "strict mode: %s differs from the run without faults", what);
    return r->ok = false;
}

/* I1: the same SHA-256 as the run without faults, of every replica's everything. */
static bool compare(struct sim_options o, struct sim_result *r)
{
    struct sim_result calm;
    o.faults = false;
    sim_run_options(&o, &calm);
    if (!calm.ok) {
        *r = calm;
        return false;
    }
    if (!digest_equal(&calm.state, &r->state))
        return differs(r, "the outer state");
    for (unsigned i = 0; i < o.sites; i++)
        if (!digest_equal(&calm.residual[i], &r->residual[i]))
            return differs(r, "a residual");
    return true;
}

struct totals {
    uint64_t seeds, failed, calls, crashes, restarts, commits, snapshots, excluded, gap_ms, books,
        virtual_ms, residual_resets, damaged, aborted, clipped, compressed, residuals_lost,
        lies_refused, stopped, moved, postponed;
};

static bool run(uint64_t seed, struct totals *t)
{
    struct sim_options o = sim_draw(seed);
    struct sim_result r;
    sim_run_options(&o, &r);
    if (r.ok && o.strict && !r.residuals_lost && !o.every_ms)
        compare(o, &r);
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
        printf("FAILED test_sim --seed %" PRIu64 ": %s (%u sites, %u fragments, %s, %s)\n", seed,
               r.why, o.sites, o.fragments, codec_get(o.codec)->name,
               o.strict ? "strict" : "quorum");
    return r.ok;
}

#ifdef ATOLL_MUTANTS
enum mutant mutant;

static bool mutant_set(const char *name)
{
    static const char *const names[] = {
#define X(symbol, text) [MUTANT_##symbol] = #symbol,
        MUTANT_LIST(X)
#undef X
    };
    for (size_t i = 1; i < sizeof names / sizeof names[0]; i++)
        if (!name)
            printf("%s\n", names[i]);
        else if (!strcmp(names[i], name))
            mutant = (enum mutant)i;
    return mutant != MUTANT_NONE;
}
#else
static bool mutant_set(const char *name)
{
    (void)name;
    return false;
}
#endif

static uint64_t number(const char *s)
{
    return strtoull(s, NULL, 10);
}

int main(int argc, char **argv)
{
    uint64_t from = 1, count = SUITE_SEEDS, failures_max = FAILURES_MAX;
    bool suite = true;
    struct totals t = {0};
#if defined(__SANITIZE_THREAD__) || FEATURE(thread_sanitizer)
    printf("SKIPPED: one thread, and stacks that the thread sanitizer cannot follow\n");
    return SKIPPED;
#endif
    log_to(quiet, NULL);
    for (int i = 1; i < argc; i++) {
        bool value = i + 1 < argc;
        if (!strcmp(argv[i], "--seed") && value) {
            from = number(argv[++i]);
            count = 1;
            suite = false;
        } else if (!strcmp(argv[i], "--from") && value) {
            from = number(argv[++i]);
            suite = false;
        } else if (!strcmp(argv[i], "--count") && value) {
            count = number(argv[++i]);
        } else if (!strcmp(argv[i], "--list")) {
            return mutant_set(NULL);
        } else if (!strcmp(argv[i], "--mutant") && value && mutant_set(argv[i + 1])) {
            failures_max = 1;
            i++;
        } else if (!strcmp(argv[i], "--log")) {
            log_to(loud, NULL);
        } else {
            printf("unknown argument %s\n", argv[i]);
            return 2;
        }
    }
    clock_t begin = clock();
    for (size_t i = 0; suite && t.failed < failures_max && i < sizeof found / sizeof found[0]; i++)
        run(found[i], &t);
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
                  {"compressed", t.compressed},
                  {"residuals_lost", t.residuals_lost},
                  {"snapshots", t.snapshots},
                  {"excluded", t.excluded},
                  {"books", t.books},
                  {"longest_gap_s", t.gap_ms / 1000},
                  {"hours_simulated", t.virtual_ms / 3600000}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        printf("%s=%" PRIu64 " ", counts[i].name, counts[i].value);
    printf("seconds=%.1f\n", seconds);
    return t.failed ? 1 : 0;
}
