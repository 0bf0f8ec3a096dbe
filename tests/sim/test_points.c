/* Every storage operation of a short run, and every way in which it can fail: kill, power loss, EIO
 * once and for ever, ENOSPC, a short count; alone, and with a loss of power within a minute after
 * it. Three sites, three rounds, all sites in every round: whatever happens, the run must end with
 * the same SHA-256 of every replica as the run without faults, and at the end all of it must lie on
 * the media. While a disk gives nothing back at all, a site may be told that a round is gone and
 * take a snapshot, which costs its residual; in no other case. A failing point prints the line that
 * repeats it.
 *
 *   test_points                          the suite: a sample, spread over all points, for a time
 *   test_points --all                    all of them, 46,080: ten minutes of a core
 *   test_points --seconds N              a sample, for so long
 *   test_points --point RUN:NODE:AT:FAULT:POWER [--log]
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
enum { SUITE_SECONDS = 15, FAILURES_MAX = 20, SKIPPED = 77 };
static const char *const fault_names[] = {[DISK_NO_FAULT] = "none",
#define X(symbol, text) [DISK_FAULT_##symbol] = text,
                                          DISK_FAULTS(X)
#undef X
};

struct totals {
    uint64_t tried, struck, failed, snapshots, by_fault[DISK_FAULT_COUNT];
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
    t->struck += r.struck;
    t->by_fault[p->fault] += r.struck;
    t->snapshots += r.snapshots > 0;
    if (r.ok && r.snapshots && p->fault != DISK_FAULT_BROKEN)
        why = "a site took a snapshot: its residual is lost";
    t->failed += why != NULL;
    if (why)
        printf("FAILED test_points --point %u:%u:%" PRIu64 ":%d:%d: %s%s at operation %" PRIu64
               " of %s %u: %s\n",
               run, p->node, p->at, (int)p->fault, p->power, fault_names[p->fault],
               p->power ? ", then power loss" : "", p->at, p->node < SITES ? "site" : "aggregator",
               p->node < SITES ? p->node : 0, why);
}

/* Point k of a run: fault and power first, then the operation, then the node. */
static struct sim_point point_of(const struct sim_result *calm, uint64_t k)
{
    struct sim_point p = {.power = k % 2,
                          .fault = (enum disk_fault)(1 + k / 2 % (DISK_FAULT_COUNT - 1))};
    uint64_t at = k / 2 / (DISK_FAULT_COUNT - 1);
    while (at >= calm->operations[p.node])
        at -= calm->operations[p.node++];
    p.at = at + 1;
    return p;
}

static uint64_t points(const struct sim_result *calm)
{
    uint64_t n = 0;
    for (unsigned i = 0; i <= SITES; i++)
        n += calm->operations[i];
    return 2 * n * (DISK_FAULT_COUNT - 1);
}

static int one(const char *text, const struct sim_result *calm, struct totals *t)
{
    unsigned run, node, power;
    int fault;
    uint64_t at;
    if (sscanf(text, "%u:%u:%" SCNu64 ":%d:%u", &run, &node, &at, &fault, &power) != 5 ||
        run >= RUNS || node > SITES || fault < 1 || fault >= DISK_FAULT_COUNT) {
        printf("no point: %s\n", text);
        return 2;
    }
    struct sim_point p = {node, at, (enum disk_fault)fault, power != 0};
    point_run(run, &calm[run], &p, t);
    return t->failed ? 1 : 0;
}

static void sample(const struct sim_result *calm, double limit_s, uint64_t failures_max,
                   struct totals *t)
{
    uint64_t n[RUNS], k[RUNS] = {0}, most = 0;
    double begin = seconds();
    for (unsigned run = 0; run < RUNS; run++) {
        n[run] = points(&calm[run]);
        while (n[run] % STEP == 0)
            n[run]--;
        most = n[run] > most ? n[run] : most;
    }
    for (uint64_t i = 0; i < most && t->failed < failures_max; i++)
        for (unsigned run = 0; run < RUNS; run++) {
            if (i >= n[run] || (limit_s > 0 && seconds() - begin > limit_s))
                continue;
            struct sim_point p = point_of(&calm[run], k[run]);
            point_run(run, &calm[run], &p, t);
            k[run] = (k[run] + STEP) % n[run];
        }
}

int main(int argc, char **argv)
{
    static struct sim_result calm[RUNS];
    double limit_s = SUITE_SECONDS;
    uint64_t failures_max = FAILURES_MAX, all = 0;
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
        struct sim_options o = run_of(run);
        sim_run_options(&o, &calm[run]);
        all += points(&calm[run]);
        if (!calm[run].ok) {
            printf("FAILED without a fault: %s\n", calm[run].why);
            return 1;
        }
    }
    double begin = seconds();
    if (point)
        return one(point, calm, &t);
    sample(calm, limit_s, failures_max, &t);
    printf("points=%" PRIu64 " tried=%" PRIu64 " struck=%" PRIu64 " failed=%" PRIu64
           " snapshots=%" PRIu64,
           all, t.tried, t.struck, t.failed, t.snapshots);
    for (int f = 1; f < DISK_FAULT_COUNT; f++)
        printf(" \"%s\"=%" PRIu64, fault_names[f], t.by_fault[f]);
    printf(" seconds=%.1f\n", seconds() - begin);
    printf("%" PRIu64 " of %" PRIu64 " points, %" PRIu64 " violations\n", t.tried, all, t.failed);
    return t.failed ? 1 : 0;
}
