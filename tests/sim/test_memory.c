/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of the aggregator and of each site fails once; or from it on all of them fail,
 * over restarts, for a minute. The runs are the short strict ones of test_points.c, with masks
 * and without: in every case each must end with the same SHA-256 of every replica as the run in
 * which no allocation fails; a process may continue or end with ERR_MEMORY, and is started again.
 *
 * The files of the outer loop that allocate in the simulator are compiled once more with this
 * program's calloc and malloc (CMakeLists.txt).
 *
 *   test_memory                 the suite: all of them, or as many as fit into a time
 *   test_memory --all           all of them
 *   test_memory --seconds N     a sample, for so long
 *   test_memory --point RUN:NODE:AT:LASTING [--log]
 *
 * The last line sums up: "1200 of 5600 points, 0 violations". Exit 1: a violation.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/log.h"
#include "tests/sim/short_run.h"
#include "tests/sim/sinks.h"

#ifdef __has_feature
#define FEATURE(name) __has_feature(name)
#else
#define FEATURE(name) 0
#endif
enum { SUITE_SECONDS = 18, FAILURES_MAX = 20, SKIPPED = 77 };

void *test_memory_calloc(size_t count, size_t size);
void *test_memory_malloc(size_t size);
void *test_memory_secret(size_t size, const char *file, int line);

void *test_memory_calloc(size_t count, size_t size)
{
    return sim_memory_fails() ? NULL : calloc(count, size);
}

void *test_memory_malloc(size_t size)
{
    return sim_memory_fails() ? NULL : malloc(size);
}

/* Of OpenSSL, for secrets; it is freed by OpenSSL, which takes memory of calloc, too. */
void *test_memory_secret(size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    return test_memory_calloc(1, size);
}

struct totals {
    uint64_t tried, masked, struck, failed, restarts, once, lasting;
};

static void point_run(unsigned run, const struct sim_result *calm, const struct sim_memory *m,
                      struct totals *t)
{
    static struct sim_result r;
    struct sim_options o = run_of(run);
    o.memory = *m;
    sim_run_options(&o, &r);
    const char *why = r.ok ? differs(calm, &r) : r.why;
    if (!why && r.snapshots)
        why = "a site took a snapshot: its residual is lost";
    t->tried++;
    t->masked += o.masked;
    t->struck += r.struck;
    t->restarts += r.restarts;
    t->once += !m->lasting;
    t->lasting += m->lasting;
    t->failed += why != NULL;
    if (why)
        printf("FAILED test_memory --point %u:%u:%" PRIu64 ":%d: allocation %" PRIu64
               "%s of %s %u: %s\n",
               run, m->node, m->at, m->lasting, m->at, m->lasting ? " and all after it" : "",
               m->node < SITES ? "site" : "aggregator", m->node < SITES ? m->node : 0, why);
}

static uint64_t points(const struct sim_result *calm)
{
    uint64_t n = 0;
    for (unsigned i = 0; i <= SITES; i++)
        n += calm->allocations[i];
    return 2 * n;
}

static struct sim_memory point_of(const struct sim_result *calm, uint64_t k)
{
    struct sim_memory m = {.lasting = k % 2};
    k /= 2;
    while (k >= calm->allocations[m.node])
        k -= calm->allocations[m.node++];
    m.at = k + 1;
    return m;
}

static void sample(unsigned run, const struct sim_result *calm, double limit_s, struct totals *t)
{
    uint64_t n = points(calm), step = n % STEP ? STEP : STEP + 2;
    double begin = seconds();
    for (uint64_t i = 0, k = 0; i < n && t->failed < FAILURES_MAX; i++, k = (k + step) % n) {
        if (limit_s > 0 && seconds() - begin > limit_s / RUNS)
            return;
        struct sim_memory m = point_of(calm, k);
        point_run(run, calm, &m, t);
    }
}

int main(int argc, char **argv)
{
    static struct sim_result calm[RUNS];
    double limit_s = SUITE_SECONDS, begin;
    const char *point = NULL;
    struct totals t = {0};
    uint64_t all = 0;
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
        if (!calm[run].ok || !points(&calm[run])) {
            printf("FAILED without a fault: %s\n",
                   calm[run].ok ? "no allocation is counted" : calm[run].why);
            return 1;
        }
    }
    begin = seconds();
    struct sim_memory m;
    unsigned run = 0, lasting = 0;
    if (point && (sscanf(point, "%u:%u:%" SCNu64 ":%u", &run, &m.node, &m.at, &lasting) != 4 ||
                  run >= RUNS || m.node > SITES)) {
        printf("no point: %s\n", point);
        return 2;
    }
    m.lasting = lasting;
    if (point)
        point_run(run, &calm[run], &m, &t);
    for (unsigned k = 0; !point && k < RUNS; k++)
        sample(k, &calm[k], limit_s, &t);
    printf("points=%" PRIu64 " tried=%" PRIu64 " masked=%" PRIu64 " struck=%" PRIu64
           " failed=%" PRIu64 " restarts=%" PRIu64 " once=%" PRIu64 " lasting=%" PRIu64
           " seconds=%.1f\n",
           all, t.tried, t.masked, t.struck, t.failed, t.restarts, t.once, t.lasting,
           seconds() - begin);
    printf("%" PRIu64 " of %" PRIu64 " points, %" PRIu64 " violations\n", t.tried, all, t.failed);
    return t.failed ? 1 : 0;
}
