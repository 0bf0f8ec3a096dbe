/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this fails: exactly half of the sites decide, so that the two halves of a cut run
 * commit two histories; or a majority is not believed, and a run stands still. One to nine sites;
 * `majority` below is written out, and no formula. Each user of outer/protocol/majority.h is
 * counted with: here those of the protocol core; a site's in test_site.c, the supply's in
 * test_supply.c, --rebuild's in tests/e2e/rebuild.sh.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include "outer/protocol/majority.h"
#include "outer/protocol/round.h"
#include "tests/sim/mutants.h"

enum { N_MAX = 9, STRAGGLER_MS = 1000 };
static const unsigned majority[N_MAX + 1] = {1, 1, 2, 2, 3, 3, 4, 4, 5, 5};
/* docs/privacy-methods.md, Threshold: of n sites, `colluding` of which may work with the
 * aggregator. */
static const unsigned threshold[3][N_MAX + 1] = {
    {2, 2, 2, 2, 3, 3, 4, 4, 5, 5}, {3, 3, 3, 3, 3, 4, 4, 5, 5, 6}, {4, 4, 4, 4, 4, 4, 5, 5, 6, 6}};
static struct round core;
static struct arena memory;

static void core_init(unsigned sites, bool strict)
{
    arena_free(&memory);
    memory = arena_make(0);
    const struct round_options o = {.sites = sites,
                                    .fragments = 1,
                                    .strict = strict,
                                    .straggler_ms = STRAGGLER_MS,
                                    .term = 1,
                                    .room = sites + 1};
    assert_int_equal(round_init(&core, &o, &memory), ERR_OK);
    round_place(&core, 0, 0, &(struct digest){0}, &(struct digest){0});
}

static struct round_update step(enum round_event_kind kind, unsigned site, uint64_t now_ms)
{
    struct round_update u;
    struct round_event e = {.kind = kind,
                            .site = site,
                            .term = 1,
                            .round = core.f[0].round,
                            .parent = core.f[0].parent,
                            .state = core.f[0].state,
                            .offer.payload = digest_of(&site, sizeof site),
                            .offer.payload_bytes = 8,
                            .offer.payload_max = 8,
                            .offer.weight = 1,
                            .now_ms = now_ms};
    round_step(&core, &e, &u);
    return u;
}

/* A round with contributions of all sites that it has. */
static void committed(void)
{
    for (unsigned i = 0; i < core.sites; i++)
        (void)step(ROUND_STORED, i, 0);
    assert_true(core.f[0].sealed);
    struct round_update u;
    struct round_event e = {.kind = ROUND_COMMITTED, .round = core.f[0].round + 1};
    e.parent = e.state = digest_of(&e.round, sizeof e.round);
    round_step(&core, &e, &u);
}

static void the_rule(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= N_MAX; n++)
        for (unsigned have = 0; have <= n; have++) {
            assert_int_equal(majority_has(have, n), have >= majority[n]);
            assert_true(have < majority[n] || n - have < majority[n]); /* never two at once */
        }
    for (unsigned n = 1; n <= N_MAX; n++) {
        const struct round_masks none = {.on = false};
        assert_int_equal(majority_of(n), majority[n]);
        assert_int_equal(round_least(n, false, &none), majority[n]);
        assert_int_equal(round_least(n, true, &none), n);
        for (unsigned c = 0; c < 3; c++) {
            const struct round_masks masks = {.on = true, .colluding = c};
            unsigned least = threshold[c][n] < n ? threshold[c][n] : n;
            assert_int_equal(round_threshold(n, c), threshold[c][n]);
            assert_int_equal(round_least(n, false, &masks), least);
            assert_int_equal(round_least(n, true, &masks), n);
        }
    }
}

/* The deadline has passed: a quorum round is sealed by the site that makes the majority, a strict
 * one by the last. */
static void a_seal(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= N_MAX; n++)
        for (unsigned strict = 0; strict < 2; strict++) {
            core_init(n, strict);
            for (unsigned i = 0; i < n; i++)
                (void)step(ROUND_BIND, i, 0);
            for (unsigned i = 0; i < (strict ? n : majority[n]); i++) {
                assert_false(core.f[0].sealed);
                (void)step(ROUND_STORED, i, 0);
                (void)step(ROUND_TICK, 0, 2 * STRAGGLER_MS);
            }
            assert_true(core.f[0].sealed);
        }
}

/* A state is final once a majority has reported it (docs/protocol.md A13). */
static void a_final_state(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= N_MAX; n++) {
        core_init(n, true);
        for (unsigned i = 0; i < n; i++)
            (void)step(ROUND_BIND, i, 0);
        committed();
        for (unsigned i = 0; i < n; i++) {
            assert_int_equal(core.f[0].final, i >= majority[n]);
            assert_int_equal(step(ROUND_REPORT, i, 0).outcome, ROUND_CURRENT);
        }
        assert_int_equal(core.f[0].final, 1);
    }
}

/* n: sites after the change. The next change has to wait for a majority of them. */
static void a_change_of_the_roster(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= N_MAX; n++)
        for (unsigned added = n > 1 ? 0 : 1; added < 2; added++) {
            unsigned before = n > 1 && added ? n - 1 : n + 1, waits;
            bool adds = before < n;
            core_init(before, true);
            round_roster(&core, adds ? before : n, adds, (uint64_t[ROUND_FRAGMENTS_MAX]){1});
            for (unsigned i = 0; i < (adds ? n : before); i++)
                (void)step(ROUND_BIND, i, 0);
            committed();
            committed();
            for (unsigned i = 0; i < n; i++) {
                assert_int_equal(round_roster_final(&core, &waits), i >= majority[n]);
                (void)step(ROUND_REPORT, i, 0);
            }
            assert_true(round_roster_final(&core, &waits));
        }
}

/* A majority that reports another state, and agrees on it, stops the aggregator. */
static void a_halt(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= N_MAX; n++) {
        core_init(n, true);
        for (unsigned i = 0; i < n; i++)
            (void)step(ROUND_BIND, i, 0);
        committed();
        for (unsigned i = 0; i < n; i++) {
            struct round_update u;
            struct round_event e = {
                .kind = ROUND_REPORT, .site = i, .term = 1, .round = core.f[0].round};
            e.state = digest_of("another", 7);
            round_step(&core, &e, &u);
            assert_int_equal(u.halt, i + 1 >= majority[n]);
        }
    }
}

/* --mutant NAME: over the outer loop with that bug in it (tests/sim/mutants.sh). */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rule),      cmocka_unit_test(a_seal),
        cmocka_unit_test(a_final_state), cmocka_unit_test(a_change_of_the_roster),
        cmocka_unit_test(a_halt),
    };
    if (!mutant_arguments(argc, argv, cmocka_set_test_filter))
        return 2;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&memory);
    return failed;
}
