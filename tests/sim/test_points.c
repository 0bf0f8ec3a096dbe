/* SPDX-License-Identifier: Apache-2.0 */
/* Every storage operation of a short run, and every way in which it can fail: kill, power loss, EIO
 * once and for ever, ENOSPC once and for ever, a short count; alone, and with a loss of power
 * within a minute after it. And every pair of a node's first 60 operations: the process ends at the
 * first one, by a kill or with the power, and the second one, after the restart, fails in one of
 * these ways. Three sites, three rounds, all sites in every round, with masks and without: in any
 * case the run must end with the same SHA-256 of every replica as the run without faults, and
 * at the end all of it must lie on the media. In a masked run no mask is used twice, no site signs
 * a second seal of a round (tests/sim/sim_masks.c), and the run without faults ends as without
 * masks. While a disk gives nothing back at all, a site may be told that a round is gone and take a
 * snapshot, which costs its residual; in no other case. A failing point prints the line that
 * repeats it.
 *
 *   test_points                          the suite: a sample, spread over all points, for a time
 *   test_points --all                    all single faults
 *   test_points --pairs                  all pairs
 *   test_points --seconds N              a sample of both, for so long
 *   test_points --point RUN:NODE:AT:FAULT:POWER[:AT:FAULT] [--log]
 *
 * The last line sums up: "2600 of 46080 points, 0 violations". Exit 1: a violation.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/log.h"
#include "tests/sim/mutants.h"
#include "tests/sim/short_run.h"
#include "tests/sim/sinks.h"

#ifdef __has_feature
#define FEATURE(name) __has_feature(name)
#else
#define FEATURE(name) 0
#endif
enum { SUITE_SECONDS = 14, FAILURES_MAX = 20, SKIPPED = 77 };
enum { PAIRED = 60, FAULTS = DISK_FAULT_COUNT - 1, FIRST_FAULTS = 2 };
static const char *const fault_names[] = {[DISK_NO_FAULT] = "none",
#define X(symbol, text) [DISK_FAULT_##symbol] = text,
                                          DISK_FAULTS(X)
#undef X
};

struct totals {
    uint64_t tried, masked, struck, failed, snapshots, by_fault[DISK_FAULT_COUNT];
};

static void point_run(unsigned run, const struct sim_result *calm, const struct sim_point *p,
                      struct totals *t)
{
    struct sim_options o = run_of(run);
    struct sim_result r;
    o.point = *p;
    sim_run_options(&o, &r);
    const char *why = r.ok && !r.snapshots ? differs(calm, &r) : r.ok ? NULL : r.why;
    t->tried++;
    t->masked += o.masked;
    t->struck += r.struck;
    t->by_fault[p->then_at ? p->then : p->fault] += r.struck;
    t->snapshots += r.snapshots > 0;
    bool unreadable = p->fault == DISK_FAULT_BROKEN || p->then == DISK_FAULT_BROKEN;
    if (r.ok && r.snapshots && !unreadable)
        why = "a site took a snapshot: its residual is lost";
    t->failed += why != NULL;
    if (!why)
        return;
    printf("FAILED test_points --point %u:%u:%" PRIu64 ":%d:%d:%" PRIu64
           ":%d: %s%s at operation %" PRIu64 " of %s %u",
           run, p->node, p->at, (int)p->fault, p->power, p->then_at, (int)p->then,
           fault_names[p->fault], p->power ? ", then power loss" : "", p->at,
           p->node < SITES ? "site" : "aggregator", p->node < SITES ? p->node : 0);
    if (p->then_at)
        printf(", %s at operation %" PRIu64 " after the restart", fault_names[p->then], p->then_at);
    printf(": %s\n", why);
}

/* Points of a run, by number. */
struct points {
    uint64_t (*count)(const struct sim_result *calm);
    struct sim_point (*of)(const struct sim_result *calm, uint64_t k);
};

/* Fault and power first, then the operation, then the node. */
static struct sim_point single_of(const struct sim_result *calm, uint64_t k)
{
    struct sim_point p = {.power = k % 2, .fault = (enum disk_fault)(1 + k / 2 % FAULTS)};
    uint64_t at = k / 2 / FAULTS;
    while (at >= calm->operations[p.node])
        at -= calm->operations[p.node++];
    p.at = at + 1;
    return p;
}

static uint64_t singles(const struct sim_result *calm)
{
    uint64_t n = 0;
    for (unsigned i = 0; i <= SITES; i++)
        n += calm->operations[i];
    return 2 * n * FAULTS;
}

/* The second fault first, then the first one, then the node, then the operations. */
static struct sim_point pair_of(const struct sim_result *calm, uint64_t k)
{
    struct sim_point p = {.then = (enum disk_fault)(1 + k % FAULTS)};
    (void)calm;
    k /= FAULTS;
    p.fault = k % FIRST_FAULTS ? DISK_FAULT_POWER : DISK_FAULT_CRASH;
    k /= FIRST_FAULTS;
    p.node = (unsigned)(k % (SITES + 1));
    k /= SITES + 1;
    for (p.at = 1; k >= PAIRED - p.at; p.at++)
        k -= PAIRED - p.at;
    p.then_at = k + 1;
    return p;
}

static uint64_t pairs(const struct sim_result *calm)
{
    (void)calm;
    return (uint64_t)(SITES + 1) * PAIRED * (PAIRED - 1) / 2 * FIRST_FAULTS * FAULTS;
}

static const struct points kinds[] = {{singles, single_of}, {pairs, pair_of}};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static int one(const char *text, const struct sim_result *calm, struct totals *t)
{
    unsigned run, node, power;
    int fault, then = 0;
    uint64_t at, then_at = 0;
    int values = sscanf(text, "%u:%u:%" SCNu64 ":%d:%u:%" SCNu64 ":%d", &run, &node, &at, &fault,
                        &power, &then_at, &then);
    if ((values != 5 && values != 7) || run >= RUNS || node > SITES || fault < 1 ||
        fault > FAULTS || then < 0 || then > FAULTS || (then_at && !then)) {
        printf("no point: %s\n", text);
        return 2;
    }
    struct sim_point p = {node,       at,      (enum disk_fault)fault,
                          power != 0, then_at, (enum disk_fault)then};
    point_run(run, &calm[run], &p, t);
    return t->failed ? 1 : 0;
}

static void sample(const struct points *kind, const struct sim_result *calm, double limit_s,
                   uint64_t failures_max, struct totals *t)
{
    uint64_t n[RUNS], k[RUNS] = {0}, most = 0;
    double begin = seconds();
    for (unsigned run = 0; run < RUNS; run++) {
        n[run] = kind->count(&calm[run]);
        most = n[run] > most ? n[run] : most;
    }
    for (uint64_t i = 0; i < most && t->failed < failures_max; i++)
        for (unsigned run = 0; run < RUNS; run++) {
            if (i >= n[run] || (limit_s > 0 && seconds() - begin > limit_s))
                continue;
            struct sim_point p = kind->of(&calm[run], k[run]);
            point_run(run, &calm[run], &p, t);
            k[run] = (k[run] + (n[run] % STEP ? STEP : STEP + 2)) % n[run];
        }
}

/* NULL: the run without faults ends, and a masked one as the same run without masks. */
static const char *calm_run(unsigned run, struct sim_result *calm)
{
    static struct sim_result plain;
    struct sim_options o = run_of(run);
    sim_run_options(&o, calm);
    if (!calm->ok || !o.masked)
        return calm->ok ? NULL : calm->why;
    o.masked = false;
    sim_run_options(&o, &plain);
    return plain.ok ? differs(&plain, calm) : plain.why;
}

int main(int argc, char **argv)
{
    static struct sim_result calm[RUNS];
    double limit_s = SUITE_SECONDS;
    uint64_t failures_max = FAILURES_MAX, all = 0;
    unsigned kind = KINDS; /* that many: a sample of each */
    const char *point = NULL;
    struct totals t = {0};
#if defined(__SANITIZE_THREAD__) || FEATURE(thread_sanitizer)
    printf("SKIPPED: one thread, and stacks that the thread sanitizer cannot follow\n");
    return SKIPPED;
#endif
    setvbuf(stdout, NULL, _IOLBF, 0);
    log_to(quiet, NULL);
    for (int i = 1; i < argc; i++) {
        bool value = i + 1 < argc;
        if (!strcmp(argv[i], "--all")) {
            limit_s = 0;
            kind = 0;
        } else if (!strcmp(argv[i], "--pairs")) {
            limit_s = 0;
            kind = 1;
        } else if (!strcmp(argv[i], "--seconds") && value) {
            limit_s = strtod(argv[++i], NULL);
        } else if (!strcmp(argv[i], "--point") && value) {
            point = argv[++i];
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
    for (unsigned run = 0; run < RUNS; run++) {
        const char *why = calm_run(run, &calm[run]);
        for (unsigned k = 0; k < KINDS; k++)
            all += kind == k || kind == KINDS ? kinds[k].count(&calm[run]) : 0;
        if (why) {
            printf("FAILED without a fault: %s\n", why);
            return 1;
        }
    }
    double begin = seconds();
    if (point)
        return one(point, calm, &t);
    for (unsigned k = 0; k < KINDS; k++)
        if (kind == k || kind == KINDS)
            sample(&kinds[k], calm, kind == k ? limit_s : limit_s / KINDS, failures_max, &t);
    printf("points=%" PRIu64 " tried=%" PRIu64 " masked=%" PRIu64 " struck=%" PRIu64
           " failed=%" PRIu64 " snapshots=%" PRIu64,
           all, t.tried, t.masked, t.struck, t.failed, t.snapshots);
    for (int f = 1; f < DISK_FAULT_COUNT; f++)
        printf(" \"%s\"=%" PRIu64, fault_names[f], t.by_fault[f]);
    printf(" seconds=%.1f\n", seconds() - begin);
    printf("%" PRIu64 " of %" PRIu64 " points, %" PRIu64 " violations\n", t.tried, all, t.failed);
    return t.failed ? 1 : 0;
}
