/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this fails: an aggregator that is rebuilt takes parts of any size, of any round,
 * from any caller, or bytes that are not those of their digest; or it begins with fewer than half
 * of the sites. Drives the service as the link would, on real files.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/aggregator/supply.h"
#include "outer/config/identity.h"
#include "tests/outer/toy.h"
#include "tests/sim/mutants.h"
#include "tests/scratch_place.h"

enum { N = 3, P = 2, ROUND = 5, KEEP = 3 };
static const char *const names[N] = {"a", "b", "c"};
static const char canonical[] = "outer.every=4\nouter.fragments=2\n";

static struct {
    char root[64];
    struct table table;
    struct fragments fragments;
    struct outer_state_options state;
    struct supply_options o;
    struct arena perm;
    struct env *env;
    struct supply *supply;
    struct link_service s;
} t;

static void no_log(void *self, enum log_level level, const char *line)
{
    (void)self, (void)level, (void)line;
}

static void begin(bool strict, uint64_t straggler_ms)
{
    snprintf(t.root, sizeof t.root, "%s/atoll_test_supply_XXXXXX", scratch_place());
    assert_non_null(mkdtemp(t.root));
    t.perm = arena_make(0);
    assert_int_equal(env_posix_open(&t.env, t.root), ERR_OK);
    t.o = (struct supply_options){.run = "test",
                                  .sites = names,
                                  .site_count = N,
                                  .canonical = canonical,
                                  .strict = strict,
                                  .straggler_ms = straggler_ms,
                                  .state = &t.state};
    assert_int_equal(supply_open(&t.supply, t.env, &t.o, &t.perm), ERR_OK);
    t.s = supply_service(t.supply);
}

static void end(void)
{
    char command[128];
    supply_close(t.supply);
    env_posix_close(t.env);
    arena_free(&t.perm);
    snprintf(command, sizeof command, "rm -rf %s", t.root);
    assert_int_equal(system(command), 0);
}

static const char *uri(const char *name)
{
    static char out[128];
    snprintf(out, sizeof out, "atoll://test/site/%s", name);
    return out;
}

static struct wire_head head(const char *name)
{
    struct wire_head h = {.term = 3, .config = identity_digest(canonical)};
    snprintf(h.run, sizeof h.run, "test");
    snprintf(h.site, sizeof h.site, "%s", name);
    return h;
}

static struct wire_hello_answer hello_as(const char *peer, const char *name, bool has_state,
                                         uint32_t minor)
{
    static struct wire_hello_answer answer;
    static struct wire_hello m;
    m = (struct wire_hello){.head = head(name),
                            .major = WIRE_MAJOR,
                            .minor = minor,
                            .config = canonical,
                            .has_state = has_state,
                            .fragment_count = has_state ? P : 0};
    m.fragments[0].round = ROUND;
    t.s.hello(t.s.self, peer, &m, &answer);
    return answer;
}

static enum round_outcome hello(const char *name, bool has_state)
{
    return hello_as(uri(name), name, has_state, WIRE_MINOR).outcome;
}

static struct wire_contribution part(const char *name, enum wire_supply kind, unsigned fragment,
                                     uint64_t round, const uint8_t *data, size_t n)
{
    return (struct wire_contribution){.head = head(name),
                                      .supply = kind,
                                      .fragment = fragment,
                                      .round = round,
                                      .payload_bytes = n,
                                      .payload = digest_of(data, data ? n : 0)};
}

static struct wire_answer offer(const char *peer, const struct wire_contribution *m, void **upload)
{
    static struct wire_answer answer;
    t.s.offer(t.s.self, peer, m, &answer, upload);
    assert_int_equal(answer.outcome == ROUND_RESUME, *upload != NULL);
    return answer;
}

static enum round_outcome offered(const char *name, enum wire_supply kind, unsigned fragment,
                                  uint64_t round, size_t n)
{
    struct wire_contribution m = part(name, kind, fragment, round, NULL, n);
    struct wire_answer a;
    void *upload;
    enum round_outcome o = offer(uri(name), &m, &upload).outcome;
    if (upload)
        link_service_finish(&t.s, upload, false, &a);
    return o;
}

/* Bytes [from, to), then the end of the stream. */
static enum round_outcome send(const struct wire_contribution *m, const uint8_t *data, size_t from,
                               size_t to, bool complete)
{
    struct wire_answer a;
    void *upload;
    a = offer(uri(m->head.site), m, &upload);
    if (!upload)
        return a.outcome;
    assert_int_equal(a.offset, from);
    link_service_chunk(&t.s, upload, from, data + from, to - from, &a);
    assert_int_equal(a.outcome, ROUND_NONE);
    link_service_finish(&t.s, upload, complete, &a);
    return a.outcome;
}

static enum round_outcome all_sent(const char *name)
{
    static const uint8_t seen[] = "id/site";
    struct wire_contribution m = part(name, WIRE_SUPPLY_SEEN, 0, 0, seen, sizeof seen);
    return send(&m, seen, 0, sizeof seen, true);
}

static bool stops(void)
{
    bool stop = false;
    (void)t.s.work(t.s.self, &stop);
    assert_int_equal(stop, supply_enough(t.supply));
    return stop;
}

static bool lies(const char *path)
{
    return t.env->ops->exists(t.env, path);
}

/* ---- tests ---- */

static void only_sites_of_the_run(void **state)
{
    (void)state;
    begin(true, 0);
    assert_int_equal(hello_as("atoll://test/operator/a", "a", true, WIRE_MINOR).outcome,
                     ROUND_DENIED);
    assert_int_equal(hello_as("atoll://other/site/a", "a", true, WIRE_MINOR).outcome, ROUND_DENIED);
    assert_int_equal(hello_as(uri("b"), "a", true, WIRE_MINOR).outcome, ROUND_DENIED);
    assert_int_equal(hello_as(NULL, "a", true, WIRE_MINOR).outcome, ROUND_DENIED);
    assert_int_equal(hello_as(uri("a"), "a", true, 1).outcome,
                     ROUND_FULL);               /* too old to know how */
    assert_true(t.s.known(t.s.self, uri("z"))); /* an operator may have added it */
    assert_false(t.s.known(t.s.self, "atoll://test/operator/a"));
    assert_int_equal(offered("a", WIRE_SUPPLY_SEEN, 0, 0, 10), ROUND_RESUME);
    assert_int_equal(offered("b", WIRE_SUPPLY_SEEN, 0, 0, 10), ROUND_REBIND); /* no hello yet */
    struct wire_contribution m = part("a", WIRE_SUPPLY_SEEN, 0, 0, NULL, 10);
    void *upload;
    assert_int_equal(offer(uri("b"), &m, &upload).outcome, ROUND_DENIED);
    assert_int_equal(offered("a", WIRE_SUPPLY_NONE, 0, ROUND, 10),
                     ROUND_REBIND); /* a contribution */
    end();
}

static void sizes_and_rounds(void **state)
{
    (void)state;
    begin(true, 0);
    size_t bytes = outer_state_shared_bytes(&t.state, 0);
    assert_int_equal(hello("a", true), ROUND_SUPPLY);
    assert_int_equal(offered("a", WIRE_SUPPLY_STATE, 0, ROUND, bytes), ROUND_RESUME);
    assert_int_equal(offered("a", WIRE_SUPPLY_STATE, 0, ROUND, bytes - 1), ROUND_INVALID);
    assert_int_equal(offered("a", WIRE_SUPPLY_STATE, 0, ROUND, bytes + 1), ROUND_INVALID);
    assert_int_equal(offered("a", WIRE_SUPPLY_STATE, 0, ROUND - 1, bytes), ROUND_INVALID);
    assert_int_equal(offered("a", WIRE_SUPPLY_STATE, 1, 0, bytes), ROUND_INVALID); /* round 0 */
    assert_int_equal(offered("a", WIRE_SUPPLY_STATE, P, ROUND, bytes), ROUND_INVALID);
    assert_int_equal(offered("a", WIRE_SUPPLY_MANIFEST, 0, ROUND - 1, MANIFEST_BYTES_MAX),
                     ROUND_RESUME);
    assert_int_equal(offered("a", WIRE_SUPPLY_MANIFEST, 0, ROUND - 1, MANIFEST_BYTES_MAX + 1),
                     ROUND_INVALID);
    assert_int_equal(offered("a", WIRE_SUPPLY_MANIFEST, 0, ROUND, 100), ROUND_INVALID);
    assert_int_equal(offered("a", WIRE_SUPPLY_MANIFEST, 0, ROUND - KEEP, 100), ROUND_RESUME);
    assert_int_equal(offered("a", WIRE_SUPPLY_MANIFEST, 0, ROUND - KEEP - 1, 100), ROUND_INVALID);
    assert_int_equal(offered("a", WIRE_SUPPLY_AGGREGATE, 0, ROUND - 1, 100), ROUND_RESUME);
    assert_int_equal(offered("a", WIRE_SUPPLY_AGGREGATE, 0, ROUND - 1, (size_t)1 << 40),
                     ROUND_INVALID);
    assert_int_equal(offered("a", WIRE_SUPPLY_SEEN, 0, 0, 1 << 16), ROUND_RESUME);
    assert_int_equal(offered("a", WIRE_SUPPLY_SEEN, 0, 0, (1 << 16) + 1), ROUND_INVALID);
    assert_int_equal(offered("a", WIRE_SUPPLY_ANNOUNCED, 1, 0, 100),
                     ROUND_INVALID); /* of another */
    end();
}

static void bytes_of_their_digest(void **state)
{
    (void)state;
    static uint8_t data[3000], other[3000];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 7);
    begin(true, 0);
    assert_int_equal(hello("a", true), ROUND_SUPPLY);
    struct wire_contribution m = part("a", WIRE_SUPPLY_MANIFEST, 0, ROUND - 1, data, sizeof data);
    assert_int_equal(send(&m, other, 0, sizeof other, true), ROUND_RESUME);
    assert_false(lies("supply/a/parts/0.4.manifest"));
    assert_int_equal(send(&m, data, 0, 1000, false), ROUND_RESUME);    /* cut off */
    assert_int_equal(send(&m, data, 1000, 2000, false), ROUND_RESUME); /* continues from there */
    assert_int_equal(send(&m, data, 2000, 3000, true), ROUND_RECEIPT);
    assert_true(lies("supply/a/parts/0.4.manifest"));
    void *upload;
    assert_int_equal(offer(uri("a"), &m, &upload).outcome, ROUND_RECEIPT); /* not a second time */
    uint8_t *back;
    size_t n;
    assert_int_equal(
        t.env->ops->read(t.env, "supply/a/parts/0.4.manifest", 4000, &t.perm, &back, &n), ERR_OK);
    assert_int_equal(n, sizeof data);
    assert_memory_equal(back, data, n);
    end();
}

/* The bytes are verified without the service's lock: no other offer of the part may touch them. */
static void offers_while_bytes_are_verified(void **state)
{
    (void)state;
    static uint8_t data[3000], other[3000] = {1};
    struct wire_answer a;
    void *upload, *second;
    begin(true, 0);
    assert_int_equal(hello("a", true), ROUND_SUPPLY);
    struct wire_contribution m = part("a", WIRE_SUPPLY_MANIFEST, 0, ROUND - 1, data, sizeof data),
                             n = part("a", WIRE_SUPPLY_MANIFEST, 0, ROUND - 1, other, sizeof other);
    assert_int_equal(offer(uri("a"), &m, &upload).outcome, ROUND_RESUME);
    assert_int_equal(offer(uri("a"), &n, &second).outcome, ROUND_FULL);
    link_service_chunk(&t.s, upload, 0, data, sizeof data, &a);
    t.s.finish(t.s.self, upload, true, &a);
    assert_int_equal(a.outcome, ROUND_PENDING);
    assert_int_equal(offer(uri("a"), &n, &second).outcome, ROUND_FULL);
    t.s.verify(t.s.self, upload);
    assert_int_equal(offer(uri("a"), &n, &second).outcome, ROUND_FULL);
    t.s.verified(t.s.self, upload, &a);
    assert_int_equal(a.outcome, ROUND_RECEIPT);
    assert_int_equal(send(&n, other, 0, sizeof other, true), ROUND_RECEIPT);
    assert_int_equal(offer(uri("a"), &n, &second).outcome, ROUND_RECEIPT);
    assert_int_equal(offer(uri("a"), &m, &second).outcome, ROUND_RESUME); /* replaced */
    t.s.finish(t.s.self, second, false, &a);
    end();
}

static void more_than_half(void **state)
{
    (void)state;
    begin(true, 0);
    assert_false(stops());
    assert_int_equal(hello("a", true), ROUND_SUPPLY);
    assert_int_equal(all_sent("a"), ROUND_RECEIPT);
    assert_int_equal(hello("a", true), ROUND_FULL); /* it waits */
    assert_false(stops());
    assert_int_equal(hello("c", false), ROUND_FULL); /* a lost disk: heard, and not one of two */
    assert_false(stops());
    assert_int_equal(hello("b", true), ROUND_SUPPLY);
    assert_false(stops());
    assert_int_equal(all_sent("b"), ROUND_RECEIPT);
    assert_true(stops());
    assert_string_equal(supply_site(t.supply, 0), "a");
    assert_string_equal(supply_site(t.supply, 1), "b");
    assert_null(supply_site(t.supply, 2));
    end();

    for (unsigned of = 2; of <= 3; of++) { /* one of two, of three: all are heard, it has a state */
        begin(true, 0);
        t.o.site_count = of;
        supply_close(t.supply);
        assert_int_equal(supply_open(&t.supply, t.env, &t.o, &t.perm), ERR_OK);
        t.s = supply_service(t.supply);
        (void)hello("a", true);
        assert_int_equal(all_sent("a"), ROUND_RECEIPT);
        for (unsigned i = 1; i < of; i++)
            assert_int_equal(hello(names[i], false), ROUND_FULL);
        assert_false(stops());
        end();
    }

    begin(true, 0); /* strict: every site that is in the roster */
    for (int i = 0; i < 2; i++) {
        (void)hello(names[i], true);
        (void)all_sent(names[i]);
    }
    assert_false(stops());
    assert_int_equal(hello("c", true), ROUND_SUPPLY);
    assert_false(stops());
    (void)all_sent("c");
    assert_true(stops());
    end();

    begin(false, 1000000); /* quorum: the others within the timeout */
    for (int i = 0; i < 2; i++) {
        (void)hello(names[i], true);
        (void)all_sent(names[i]);
    }
    assert_false(stops());
    end();
    begin(false, 0);
    for (int i = 0; i < 2; i++) {
        assert_false(stops());
        (void)hello(names[i], true);
        (void)all_sent(names[i]);
    }
    assert_true(stops());
    end();
}

/* One to nine sites in quorum mode, the deadline over at once: the server stops with the site that
 * makes them more than half. */
static void a_majority_of_n(void **state)
{
    (void)state;
    static const char *const nine[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    static const unsigned majority[] = {1, 1, 2, 2, 3, 3, 4, 4, 5, 5};
    for (unsigned n = 1; n <= 9; n++) {
        begin(false, 0);
        supply_close(t.supply);
        t.o.sites = nine;
        t.o.site_count = n;
        assert_int_equal(supply_open(&t.supply, t.env, &t.o, &t.perm), ERR_OK);
        t.s = supply_service(t.supply);
        for (unsigned i = 0; i < majority[n]; i++) {
            assert_false(stops());
            (void)hello(nine[i], true);
            assert_int_equal(all_sent(nine[i]), ROUND_RECEIPT);
        }
        assert_true(stops());
        end();
    }
}

static void other_calls(void **state)
{
    (void)state;
    begin(true, 0);
    struct wire_poll p = {.head = head("a")};
    static struct wire_poll_answer pa;
    struct wire_report r = {.head = head("a")};
    struct wire_operate o = {.act = WIRE_STATUS}, abort = {.act = WIRE_ABORT};
    struct wire_answer a;
    t.s.poll(t.s.self, uri("a"), &p, &pa);
    assert_int_equal(pa.answer.outcome, ROUND_REBIND);
    t.s.report(t.s.self, uri("a"), &r, &a);
    assert_int_equal(a.outcome, ROUND_REBIND);
    t.s.report(t.s.self, uri("b"), &r, &a);
    assert_int_equal(a.outcome, ROUND_DENIED);
    t.s.operate(t.s.self, "atoll://test/operator/op", &o, &a);
    assert_int_equal(a.outcome, ROUND_CURRENT);
    assert_non_null(strstr(a.text, "0 of 3 have sent their states; missing: a,b,c"));
    t.s.operate(t.s.self, "atoll://test/operator/op", &abort, &a);
    assert_int_equal(a.outcome, ROUND_INVALID);
    t.s.operate(t.s.self, uri("a"), &o, &a);
    assert_int_equal(a.outcome, ROUND_DENIED);
    end();
}

static int setup(void **state)
{
    (void)state;
    static struct arena forever;
    log_to(no_log, NULL);
    forever = arena_make(0);
    static struct tensor tensors[TOY_TENSORS_MAX];
    t.table = toy_table(tensors, 4);
    if (fragment_make(&t.fragments, &t.table, &(struct fragment_plan){.count = P}, &forever) !=
        ERR_OK)
        return 1;
    t.state = (struct outer_state_options){.fragments = &t.fragments,
                                           .schedule = schedule_streaming(40, 4, P, 1, CODEC_INT8),
                                           .keep = KEEP};
    return outer_opt_make(&t.state.outer, OUTER_OPT_MOMENTUM, 0.7f, 0.9f) != ERR_OK;
}

/* --mutant NAME: over the outer loop with that bug in it (tests/sim/mutants.sh). */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_sites_of_the_run), cmocka_unit_test(sizes_and_rounds),
        cmocka_unit_test(bytes_of_their_digest), cmocka_unit_test(offers_while_bytes_are_verified),
        cmocka_unit_test(more_than_half),        cmocka_unit_test(a_majority_of_n),
        cmocka_unit_test(other_calls),
    };
    if (!mutant_arguments(argc, argv, cmocka_set_test_filter))
        return 2;
    return cmocka_run_group_tests(tests, setup, NULL);
}
