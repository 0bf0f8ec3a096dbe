/* SPDX-License-Identifier: Apache-2.0 */
/* The trace of a seed is the same wherever it runs: the SHA-256 of every log line, every fault with
 * its virtual time, and the end of the run. Each seed runs twice, with another one in between; a
 * difference is something that the program takes from outside the simulation, such as memory that
 * was not set. Builds of other compilers and optimisation levels are compared by trace.sh.
 *
 *   test_trace                    the suite: a few seeds
 *   test_trace --from N --count M
 *
 * The last line but one is the trace of all seeds: "trace=SHA-256"; the last one sums up: "40
 * seeds, 0 violations". Exit 1: a seed has two traces.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/digest.h"
#include "kernels/base/log.h"
#include "tests/sim/sim.h"

#ifdef __has_feature
#define FEATURE(name) __has_feature(name)
#else
#define FEATURE(name) 0
#endif
enum { SUITE_SEEDS = 40, SKIPPED = 77 };

struct trace {
    struct digest_stream stream;
    uint64_t lines, faults;
};

static void line_add(void *self, enum log_level level, const char *line)
{
    struct trace *t = self;
    uint8_t which = (uint8_t)level;
    digest_add(&t->stream, &which, 1);
    digest_add(&t->stream, line, strlen(line) + 1);
    t->lines++;
}

static void fault_add(void *self, uint64_t now_ms, uint64_t fault, const char *what,
                      const char *who)
{
    struct trace *t = self;
    digest_add(&t->stream, &now_ms, sizeof now_ms);
    digest_add(&t->stream, &fault, sizeof fault);
    digest_add(&t->stream, what, strlen(what) + 1);
    digest_add(&t->stream, who, strlen(who) + 1);
    t->faults++;
}

static void end_add(struct trace *t, const struct sim_result *r)
{
    const uint64_t counts[] = {r->virtual_ms, r->calls,     r->crashes, r->restarts,
                               r->commits,    r->snapshots, r->moved,   r->postponed,
                               r->aborted,    r->faults,    r->ok};
    digest_add(&t->stream, counts, sizeof counts);
    digest_add(&t->stream, &r->state, sizeof r->state);
    digest_add(&t->stream, r->residual, sizeof r->residual);
    digest_add(&t->stream, r->operations, sizeof r->operations);
}

static struct digest trace_of(uint64_t seed, struct trace *t)
{
    static struct sim_result r;
    struct sim_options o = sim_draw(seed);
    if (o.masked)
        sim_draw_masked(&o);
    digest_open(&t->stream);
    log_to(line_add, t);
    o.told = fault_add;
    o.told_self = t;
    sim_run_options(&o, &r);
    end_add(t, &r);
    return digest_close(&t->stream);
}

int main(int argc, char **argv)
{
    uint64_t from = 1, count = SUITE_SEEDS, failed = 0;
    struct trace t = {.lines = 0};
    struct digest_stream all;
    char hex[65];
#if defined(__SANITIZE_THREAD__) || FEATURE(thread_sanitizer)
    printf("SKIPPED: one thread, and stacks that the thread sanitizer cannot follow\n");
    return SKIPPED;
#endif
    for (int i = 1; i < argc; i++) {
        bool value = i + 1 < argc;
        if (!strcmp(argv[i], "--from") && value) {
            from = strtoull(argv[++i], NULL, 10);
        } else if (!strcmp(argv[i], "--count") && value) {
            count = strtoull(argv[++i], NULL, 10);
        } else {
            printf("unknown argument %s\n", argv[i]);
            return 2;
        }
    }
    log_min(LOG_DEBUG);
    digest_open(&all);
    for (uint64_t seed = from; seed < from + count; seed++) {
        struct digest first = trace_of(seed, &t);
        (void)trace_of(seed + 1, &t);
        struct digest second = trace_of(seed, &t);
        digest_add(&all, &first, sizeof first);
        if (!digest_equal(&first, &second)) {
            failed++;
            printf("FAILED test_trace --from %" PRIu64 " --count 1: two traces\n", seed);
        }
    }
    struct digest d = digest_close(&all);
    digest_hex(&d, hex);
    printf("lines=%" PRIu64 " faults=%" PRIu64 " failed=%" PRIu64 "\n", t.lines, t.faults, failed);
    printf("trace=%s\n", hex);
    printf("%" PRIu64 " seeds, %" PRIu64 " violations\n", count, failed);
    return failed ? 1 : 0;
}
