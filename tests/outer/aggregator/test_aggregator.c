/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if the aggregator is wrong: a receipt without bytes, a contribution added twice, a
 * restart that ends elsewhere. Drives the service as the link would, on real files, with encoded
 * contributions; a "crash" drops everything in memory and opens the directory again. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_state.h"
#include "outer/organ/roster/roster_organ.h"
#include "tests/outer/toy_replica.h"
#include "tests/sim/mutants.h"
#include "tests/scratch_place.h"

enum { N = 3, P = 2 };
static const char *const names[N + 1] = {"a", "b", "c", "d"}; /* d: added by an operator */
static const char canonical[] = "outer.every=4\nouter.fragments=2\n";

static struct {
    char root[64], revoked[80];
    struct dev *cpu;
    struct codec_work *work;
    struct table table;
    struct fragments fragments;
    struct schedule schedule;
    float *slab;
    struct arena forever, perm;
    struct env *env;
    struct outer_state replica;
    struct aggregator *a;
    struct link_service s;
    bool strict, held; /* held: no call of work(), until that of stages() */
    uint64_t straggler_ms, history_rounds, states;
    double share_max;
    float clip;
    unsigned strikes_max, room;
    const char *canonical;
} t;

/* A site as the aggregator sees it. */
struct fake {
    unsigned index;
    uint64_t incarnation, instance, term;
    float weight; /* 0: one more than its index */
    uint32_t roster;
};
static struct fake site[N + 1];

static void no_log(void *self, enum log_level level, const char *line);
static int fresh(void **state);
static void lose(const char *path);

/* The next fsync of a file whose name ends so fails, once, as on a full disk. */
static const char *fail_sync;
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

static bool sync_fails(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = fail_sync ? readlink(link, path, sizeof path - 1) : -1;
    if (n < 0 || (size_t)n < strlen(fail_sync))
        return false;
    path[n] = 0;
    if (strcmp(path + n - strlen(fail_sync), fail_sync) != 0)
        return false;
    fail_sync = NULL;
    errno = ENOSPC;
    return true;
}

int __wrap_fsync(int fd)
{
    return sync_fails(fd) ? -1 : __real_fsync(fd);
}

int __wrap_fdatasync(int fd)
{
    return sync_fails(fd) ? -1 : __real_fdatasync(fd);
}

/* ---- opening ---- */

static enum err try_open(void)
{
    t.perm = arena_make(0);
    assert_int_equal(env_posix_open(&t.env, t.root), ERR_OK);
    struct outer_state_options mo = {.fragments = &t.fragments,
                                     .schedule = t.schedule,
                                     .keep = t.history_rounds,
                                     .states = t.states};
    assert_int_equal(toy_replica(&t.replica, t.env, t.cpu, mo, t.slab, &t.perm), ERR_OK);
    struct aggregator_options o = {.run = "test",
                                   .sites = {.names = names, .count = N, .room = t.room},
                                   .canonical = t.canonical,
                                   .strict = t.strict,
                                   .straggler_ms = t.straggler_ms,
                                   .bounds = {.norm_limit = 1000,
                                              .clip = t.clip,
                                              .strikes_max = t.strikes_max,
                                              .share_max = t.share_max},
                                   .files = {.revoked_path = t.revoked}};
    assert_int_equal(roster_at_aggregator(&o.organs.at[o.organs.count++], &t.perm), ERR_OK);
    enum err e = aggregator_open(&t.a, t.env, &t.replica, &o, &t.perm);
    if (e == ERR_OK)
        t.s = aggregator_service(t.a);
    return e;
}

static void shut(void)
{
    aggregator_close(t.a);
    t.a = NULL;
    outer_state_close(&t.replica);
    env_posix_close(t.env);
    t.env = NULL;
    arena_free(&t.perm);
}

static void crash(void)
{
    shut();
    assert_int_equal(try_open(), ERR_OK);
}

static void begin(bool strict)
{
    t.strict = strict;
    t.straggler_ms = strict ? 0 : 300; /* fsyncs of a busy disk must fit */
    t.history_rounds = 3;
    t.states = 0;
    t.held = false;
    t.share_max = 100;
    t.clip = 0;
    t.strikes_max = t.room = 0;
    t.canonical = canonical;
    for (unsigned i = 0; i <= N; i++)
        site[i] = (struct fake){i, 1, 100 + i, 0, 0, 1};
    assert_int_equal(try_open(), ERR_OK);
}

static uint64_t work(void)
{
    bool stop = false;
    if (t.held)
        return 0;
    uint64_t wake = link_service_work(&t.s, &stop);
    assert_int_equal(stop, aggregator_failed(t.a) != ERR_OK);
    return wake;
}

/* ---- what a site says ---- */

static const char *uri(unsigned i)
{
    static char text[4][64];
    static unsigned turn;
    char *out = text[turn++ % 4];
    snprintf(out, 64, "atoll://test/site/%s", names[i]);
    return out;
}

static struct wire_head head(const struct fake *f)
{
    struct wire_head h = {.roster_version = f->roster,
                          .term = f->term,
                          .incarnation = f->incarnation,
                          .instance = f->instance,
                          .config = digest_of(canonical, strlen(canonical))};
    strcpy(h.run, "test");
    strcpy(h.site, names[f->index]);
    return h;
}

static struct wire_hello_answer hello(struct fake *f, bool has_state)
{
    static struct wire_hello_answer answer;
    struct wire_hello m = {.head = head(f),
                           .major = WIRE_MAJOR,
                           .config = canonical,
                           .has_state = has_state,
                           .fragment_count = has_state ? P : 0};
    for (unsigned i = 0; i < P; i++) /* an orderly site stands where we stand */
        m.fragments[i] = (struct wire_fragment_state){.round = t.replica.state[i].round,
                                                      .state = t.replica.state[i].digest,
                                                      .manifest = t.replica.state[i].manifest};
    t.s.hello(t.s.self, uri(f->index), &m, &answer);
    if (answer.term) {
        f->term = answer.term;
        f->roster = answer.roster_version;
    }
    work();
    return answer;
}

/* Of a process that holds one fragment: of the others it says nothing but that. */
static struct wire_hello_answer hello_of(struct fake *f, unsigned held)
{
    static struct wire_hello_answer answer;
    struct wire_hello m = {.head = head(f),
                           .major = WIRE_MAJOR,
                           .minor = WIRE_MINOR,
                           .config = canonical,
                           .has_state = true,
                           .fragment_count = P};
    for (unsigned i = 0; i < P; i++)
        m.fragments[i].elsewhere = i != held;
    m.fragments[held] = (struct wire_fragment_state){.round = t.replica.state[held].round,
                                                     .state = t.replica.state[held].digest,
                                                     .manifest = t.replica.state[held].manifest};
    t.s.hello(t.s.self, uri(f->index), &m, &answer);
    f->term = answer.term;
    return answer;
}

static void hello_all(void)
{
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(hello(&site[i], true).outcome, ROUND_CURRENT);
}

/* z of this site, fragment, round: exact numbers k/64 that differ everywhere. */
static uint8_t *payload_of(unsigned i, unsigned fragment, size_t *n)
{
    return toy_payload(&t.replica, t.work, fragment, i, n);
}

static struct wire_contribution header(const struct fake *f, unsigned fragment,
                                       const uint8_t *payload, size_t n)
{
    const struct outer_state_fragment *s = &t.replica.state[fragment];
    return (struct wire_contribution){.head = head(f),
                                      .fragment = fragment,
                                      .round = s->round,
                                      .payload_bytes = n,
                                      .codec = (uint32_t)outer_state_codec(&t.replica, fragment),
                                      .data_cursor = 1000 * s->round + f->index,
                                      .parent = s->manifest,
                                      .grid = outer_state_grid(&t.replica, fragment),
                                      .payload = digest_of(payload, n),
                                      .weight = f->weight > 0 ? f->weight : 1.0f + (float)f->index};
}

static struct wire_answer offer(const struct fake *f, const struct wire_contribution *m,
                                void **upload)
{
    struct wire_answer answer;
    t.s.offer(t.s.self, uri(f->index), m, &answer, upload);
    return answer;
}

static struct wire_answer chunk(void *upload, const uint8_t *payload, uint64_t from, uint64_t to)
{
    struct wire_answer answer;
    link_service_chunk(&t.s, upload, from, payload + from, to - from, &answer);
    return answer;
}

static struct wire_answer finish(void *upload, bool complete)
{
    struct wire_answer answer;
    link_service_finish(&t.s, upload, complete, &answer);
    return answer;
}

/* The whole contribution in chunks of `step` bytes. */
static enum round_outcome contribute_steps(struct fake *f, unsigned fragment, size_t step)
{
    size_t n;
    void *upload;
    uint8_t *payload = payload_of(f->index, fragment, &n);
    struct wire_contribution m = header(f, fragment, payload, n);
    struct wire_answer answer = offer(f, &m, &upload);
    if (answer.outcome == ROUND_RESUME) {
        for (uint64_t at = answer.offset; at < n; at = at + step < n ? at + step : n)
            assert_int_equal(chunk(upload, payload, at, at + step < n ? at + step : n).outcome,
                             ROUND_NONE);
        answer = finish(upload, true);
    }
    free(payload);
    work();
    return answer.outcome;
}

static enum round_outcome contribute(struct fake *f, unsigned fragment)
{
    return contribute_steps(f, fragment, 1 << 20);
}

static struct wire_poll_answer poll_round(const struct fake *f, unsigned fragment, uint64_t round)
{
    static struct wire_poll_answer answer;
    struct wire_poll m = {.head = head(f), .fragment = fragment, .round = round};
    t.s.poll(t.s.self, uri(f->index), &m, &answer);
    return answer;
}

static enum round_outcome report(const struct fake *f, unsigned fragment)
{
    struct wire_answer answer;
    struct wire_report m = {.head = head(f),
                            .fragment = fragment,
                            .round = t.replica.state[fragment].round,
                            .state = t.replica.state[fragment].digest,
                            .step = 7,
                            .loss = 2.5};
    t.s.report(t.s.self, uri(f->index), &m, &answer);
    work();
    return answer.outcome;
}

/* ---- whole runs ---- */

static void round_all(unsigned fragment)
{
    uint64_t round = t.replica.state[fragment].round;
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(contribute(&site[i], fragment), ROUND_RECEIPT);
    assert_int_equal(t.replica.state[fragment].round, round + 1);
}

static struct digest quiet_run(void)
{
    begin(true);
    hello_all();
    for (unsigned p = 0; p < P; p++)
        while (t.replica.state[p].round < schedule_rounds(&t.schedule, p))
            round_all(p);
    assert_false(aggregator_done(t.a));
    for (unsigned i = 0; i < N - 1; i++)
        for (unsigned p = 0; p < P; p++)
            assert_int_equal(report(&site[i], p), ROUND_CURRENT);
    crash(); /* two have told, the third was down: its hello says that it has the last state */
    assert_false(aggregator_done(t.a));
    assert_int_equal(hello(&site[N - 1], true).outcome, ROUND_CURRENT);
    assert_true(aggregator_done(t.a));
    struct digest d = outer_state_digest(&t.replica, false);
    crash(); /* the sites are gone, and will not report again */
    assert_true(aggregator_done(t.a));
    shut();
    return d;
}

/* Each fragment ends in another term, and the last of a site's reports comes after the restart
 * that forgot the others. */
static void finished_across_restarts(void **state)
{
    (void)state;
    begin(true);
    for (unsigned p = 0; p < P; p++) {
        crash();
        hello_all();
        while (t.replica.state[p].round < schedule_rounds(&t.schedule, p))
            round_all(p);
        for (unsigned i = 0; i < N; i++)
            assert_int_equal(report(&site[i], p), ROUND_CURRENT);
    }
    assert_true(aggregator_done(t.a));
    crash(); /* the sites are gone, and will not report again */
    assert_true(aggregator_done(t.a));
    shut();
}

static int fresh(void **state)
{
    (void)state;
    if (t.env)
        shut(); /* a test that failed half-way */
    umount(t.root);
    unlink(t.revoked);
    return file_remove_tree(t.root) != ERR_OK;
}

/* Everything twice, in another order, cut streams, a crash after every step: the same bytes at the
 * end. */
static void a_disturbed_run_ends_with_the_same_bytes(void **state)
{
    struct digest quiet = quiet_run();
    unsigned crashes = 0;
    fresh(state);
    begin(true);
    for (unsigned p = P; p-- > 0;)
        for (uint64_t round = 0; round < schedule_rounds(&t.schedule, p); round++)
            for (unsigned k = 0; k < N; k++) {
                struct fake *f = &site[(k * 2 + round) % N];
                size_t n;
                void *upload;
                uint8_t *payload = payload_of(f->index, p, &n);
                hello_all();
                struct wire_contribution m = header(f, p, payload, n);
                assert_int_equal(offer(f, &m, &upload).outcome, ROUND_RESUME);
                assert_int_equal(chunk(upload, payload, 0, n / 3).outcome, ROUND_NONE);
                if (k == 1) {
                    crash(), crashes++; /* in mid-stream */
                    assert_int_equal(poll_round(f, p, round).answer.outcome, ROUND_REBIND);
                    f->incarnation++; /* the site went down as well */
                    hello_all();
                } else {
                    finish(upload, false);
                }
                m = header(f, p, payload, n);
                struct wire_answer again = offer(f, &m, &upload);
                assert_int_equal(again.outcome, ROUND_RESUME);
                assert_int_equal(again.offset, n / 3);
                assert_int_equal(chunk(upload, payload, n / 3, n).outcome, ROUND_NONE);
                assert_int_equal(finish(upload, true).outcome, ROUND_RECEIPT);
                if (k == 2 &&
                    p == 1) { /* after the last ACCEPT, before the commit: hello of all brings it */
                    crash(), crashes++;
                    assert_int_equal(t.replica.state[p].round, round);
                    hello_all();
                }
                work();
                if (k < 2) {
                    struct wire_answer twice = offer(f, &m, &upload);
                    assert_int_equal(twice.outcome,
                                     m.head.term == f->term ? ROUND_RECEIPT : ROUND_REBIND);
                }
                free(payload);
            }
    assert_true(crashes > 5);
    crash();
    struct digest d = outer_state_digest(&t.replica, false);
    assert_memory_equal(&d, &quiet, sizeof d);
    shut();
}

/* The sum, computed here in double from the decoded contributions, and DiLoCo's step on it. */
static void the_outer_step_is_the_weighted_mean(void **state)
{
    (void)state;
    begin(true);
    hello_all();
    size_t count = t.fragments.f[0].elements, n;
    double *mean = calloc(count, sizeof *mean);
    float *z = malloc(count * sizeof *z), *before = malloc(count * sizeof *before);
    memcpy(before, t.replica.state[0].theta, count * sizeof *before);
    const struct codec *c = codec_get(schedule_codec(&t.schedule, 0, 0, 0));
    for (unsigned i = 0; i < N;
         i++) { /* contributions are weighted already: sum of z over sum of weights */
        uint8_t *payload = payload_of(i, 0, &n);
        assert_int_equal(c->decode(c,
                                   &(struct codec_call){.work = t.work,
                                                        .grid = t.replica.state[0].codes,
                                                        .count = count},
                                   z, payload, n),
                         ERR_OK);
        for (size_t k = 0; k < count; k++)
            mean[k] += (double)z[k] / (1.0 + 2.0 + 3.0);
        free(payload);
    }
    round_all(0);
    for (size_t k = 0; k < count; k++) /* the first Nesterov step from zero momentum */
        assert_float_equal(t.replica.state[0].theta[k],
                           (float)((double)before[k] - 0.7 * 1.9 * mean[k]), 1e-6f);
    free(mean);
    free(z);
    free(before);
    shut();
}

/* ---- streams ---- */

static void a_newer_stream_supersedes_the_older(void **state)
{
    (void)state;
    size_t n;
    void *first, *second;
    begin(true);
    hello_all();
    uint8_t *payload = payload_of(0, 0, &n);
    struct wire_contribution m = header(&site[0], 0, payload, n);
    assert_int_equal(offer(&site[0], &m, &first).outcome, ROUND_RESUME);
    assert_int_equal(chunk(first, payload, 0, 100).outcome, ROUND_NONE);
    struct wire_answer answer = offer(&site[0], &m, &second);
    assert_int_equal(answer.offset, 100);
    assert_int_equal(chunk(first, payload, 100, 200).outcome, ROUND_SUPERSEDED);
    assert_int_equal(finish(first, true).outcome, ROUND_SUPERSEDED);
    answer = chunk(second, payload, 150, 200); /* a gap */
    assert_int_equal(answer.outcome, ROUND_RESUME);
    assert_int_equal(answer.offset, 100);
    assert_int_equal(chunk(second, payload, 50, 200).outcome, ROUND_RESUME); /* an overlap */
    assert_int_equal(finish(second, true).outcome, ROUND_RESUME); /* not complete at all */
    assert_int_equal(contribute(&site[0], 0), ROUND_RECEIPT);
    free(payload);
    shut();
}

static void bad_headers_store_nothing(void **state)
{
    (void)state;
    size_t n;
    void *upload;
    begin(true);
    hello_all();
    uint8_t *payload = payload_of(0, 0, &n);
    struct wire_contribution good = header(&site[0], 0, payload, n), m = good;
#define REFUSED(change, expected)                                                                  \
    m = good;                                                                                      \
    change;                                                                                        \
    assert_int_equal(offer(&site[0], &m, &upload).outcome, expected);                              \
    assert_null(upload)
    REFUSED(m.payload_bytes++, ROUND_INVALID);
    REFUSED(m.payload_bytes = 0, ROUND_INVALID);
    REFUSED(m.payload_bytes = UINT64_MAX, ROUND_INVALID);
    REFUSED(m.fragment = P, ROUND_INVALID);
    REFUSED(m.round = 1u << 30, ROUND_INVALID);
    REFUSED(m.round = 1; m.codec = CODEC_INT4, ROUND_CONFLICT);
    REFUSED(m.codec = CODEC_F32, ROUND_MISMATCH);
    REFUSED(memset(&m.payload, 0, sizeof m.payload), ROUND_INVALID); /* nothing could verify it */
    REFUSED(m.weight = NAN, ROUND_INVALID);
    REFUSED(m.weight = 0, ROUND_INVALID);
    REFUSED(m.weight = -1, ROUND_INVALID);
    REFUSED(m.weight = FLT_MAX, ROUND_INVALID);
    REFUSED(m.weight = 201, ROUND_INVALID); /* two periods of a site with a share of 100 */
    REFUSED(m.grid.bytes[0] ^= 1, ROUND_MISMATCH);
    REFUSED(m.parent.bytes[0] ^= 1, ROUND_CONFLICT);
    REFUSED(m.head.config.bytes[0] ^= 1, ROUND_MISMATCH);
    REFUSED(m.head.run[0] = 'x', ROUND_MISMATCH);
    REFUSED(m.head.site[0] = 'b', ROUND_DENIED);
    REFUSED(m.head.term = 0, ROUND_REBIND);
    REFUSED(m.head.term++, ROUND_REBIND);
    REFUSED(m.head.incarnation = 0, ROUND_SUPERSEDED);
    REFUSED(m.head.instance++, ROUND_CONFLICT);
    REFUSED(m.head.roster_version = 2, ROUND_MISMATCH);
#undef REFUSED
    assert_false(t.env->ops->exists(t.env, "spool/0/0"));
    free(payload);
    shut();
}

static void bad_payloads_are_never_accepted(void **state)
{
    (void)state;
    size_t n;
    void *upload;
    begin(true);
    hello_all();
    uint8_t *payload = payload_of(0, 0, &n);
    struct wire_contribution m = header(&site[0], 0, payload, n);
    assert_int_equal(offer(&site[0], &m, &upload).outcome, ROUND_RESUME);
    payload[n / 2] ^= 1; /* damaged on the way */
    chunk(upload, payload, 0, n);
    struct wire_answer answer = finish(upload, true);
    assert_int_equal(answer.outcome, ROUND_RESUME);
    assert_int_equal(answer.offset, 0);
    payload[n / 2] ^= 1;
    memset(payload + n - 2, 0xff, 2); /* a bf16 NaN, under a digest that holds */
    m = header(&site[0], 0, payload, n);
    assert_int_equal(offer(&site[0], &m, &upload).outcome,
                     ROUND_CONFLICT); /* other bytes by the same process */
    site[0].incarnation++;
    assert_int_equal(hello(&site[0], true).outcome, ROUND_CURRENT);
    m = header(&site[0], 0, payload, n);
    answer = offer(&site[0], &m, &upload);
    assert_int_equal(answer.outcome, ROUND_RESUME);
    assert_int_equal(answer.offset, 0);
    chunk(upload, payload, 0, n);
    assert_int_equal(finish(upload, true).outcome, ROUND_INVALID);
    site[0].incarnation++;
    assert_int_equal(hello(&site[0], true).outcome, ROUND_CURRENT);
    assert_int_equal(contribute_steps(&site[0], 0, 77), ROUND_RECEIPT);
    free(payload);
    shut();
}

/* ---- one site's word ---- */

/* A well-formed contribution of this value everywhere, of which every `claim`-th block code is
 * 254. */
static struct wire_answer contribute_value(struct fake *f, unsigned fragment, float value,
                                           unsigned claim)
{
    size_t count = t.fragments.f[fragment].elements, n;
    const struct codec *c = codec_get(outer_state_codec(&t.replica, fragment));
    float *z = malloc(count * sizeof *z);
    uint8_t *payload = malloc(c->payload_max(c, count));
    void *upload;
    for (size_t k = 0; k < count; k++)
        z[k] = value;
    assert_int_equal(c->encode(c,
                               &(struct codec_call){.work = t.work,
                                                    .grid = t.replica.state[fragment].codes,
                                                    .count = count},
                               payload, &n, z, z),
                     ERR_OK);
    for (size_t b = 0; claim && b < count / DEV_BLOCK; b += claim)
        payload[b] = 254;
    struct wire_contribution m = header(f, fragment, payload, n);
    struct wire_answer answer = offer(f, &m, &upload);
    if (answer.outcome == ROUND_RESUME) {
        chunk(upload, payload, answer.offset, n);
        answer = finish(upload, true);
    }
    free(z);
    free(payload);
    work();
    return answer;
}

static void truncate_file(const char *path)
{
    char full[300];
    snprintf(full, sizeof full, "%s/%s", t.root, path);
    assert_int_equal(truncate(full, 100), 0);
}

/* The next process of the site, which may offer other bytes. */
static void started_again(struct fake *f)
{
    f->incarnation++;
    assert_int_equal(hello(f, true).outcome, ROUND_CURRENT);
}

static void refused_norm(struct fake *f, float value, unsigned claim)
{
    struct wire_answer answer = contribute_value(f, 0, value, claim);
    assert_int_equal(answer.outcome, ROUND_INVALID);
    assert_non_null(strstr(answer.text, "norm"));
    assert_non_null(strstr(answer.text, "take a lower train.lr or outer.lr"));
    assert_non_null(strstr(answer.text, names[f->index]));
    assert_int_equal(aggregator_failed(t.a), ERR_OK);
    started_again(f);
}

/* Values that every replica can decode and none can add, a scale of no replica, and after a few
 * rounds what is far from what the sites send. In strict mode the round waits; no process halts. */
static void norms_out_of_bounds_are_refused(void **state)
{
    (void)state;
    begin(true);
    hello_all();
    refused_norm(&site[0], 3.3e38f, 0);
    refused_norm(&site[0], 1e6f, 0);
    refused_norm(&site[0], 0.25f, 3);
    assert_int_equal(contribute(&site[1], 0), ROUND_RECEIPT);
    assert_int_equal(contribute(&site[2], 0), ROUND_RECEIPT);
    assert_int_equal(t.replica.state[0].round, 0);
    assert_int_equal(contribute(&site[0], 0), ROUND_RECEIPT);
    assert_int_equal(t.replica.state[0].round, 1);
    round_all(0);
    refused_norm(&site[2], 0.25f, 1); /* codes of int4: a step that makes all others zero */
    crash();                          /* the history is in the manifests */
    hello_all();
    refused_norm(&site[2], 0.25f, 1);
    round_all(0);
    struct wire_poll_answer p = poll_round(&site[0], 0, 2);
    for (unsigned i = 0; i < N; i++)
        assert_in_range((int)(1000 * p.manifest.sites[i].norm * (1 + (float)i)), 200, 600);
    shut();
}

/* In the full-precision round, whose contributions are forwarded: the sum takes a sixteenth of the
 * loud one, the manifest says so, a restart finds the same bytes. */
static void a_loud_contribution_is_clipped(void **state)
{
    (void)state;
    size_t count = t.fragments.f[0].elements, n;
    begin(true);
    t.clip = 2;
    crash();
    hello_all();
    double *mean = calloc(count, sizeof *mean);
    float *z = malloc(count * sizeof *z), *before = malloc(count * sizeof *before);
    memcpy(before, t.replica.state[0].theta, count * sizeof *before);
    const struct codec *c = codec_get(schedule_codec(&t.schedule, 0, 0, 0));
    const struct codec_call call = {
        .work = t.work, .grid = t.replica.state[0].codes, .count = count};
    for (unsigned i = 0; i < 2; i++) {
        uint8_t *payload = payload_of(i, 0, &n);
        assert_int_equal(c->decode(c, &call, z, payload, n), ERR_OK);
        for (size_t k = 0; k < count; k++)
            mean[k] += (double)z[k] / (1.0 + 2.0 + 3.0);
        free(payload);
    }
    for (size_t k = 0; k < count; k++) /* a norm of 8 next to 0.44 and 0.22: at most 2 * 0.44 */
        mean[k] += 24.0 / 16 / 6;
    assert_int_equal(contribute(&site[0], 0), ROUND_RECEIPT);
    assert_int_equal(contribute(&site[1], 0), ROUND_RECEIPT);
    assert_int_equal(contribute_value(&site[2], 0, 24, 0).outcome, ROUND_RECEIPT);
    struct wire_poll_answer p = poll_round(&site[0], 0, 0);
    assert_int_equal(p.answer.outcome, ROUND_COMMIT);
    assert_true(p.manifest.scaled);
    assert_true(p.manifest.sites[0].factor == 1 && p.manifest.sites[1].factor == 1);
    assert_true(p.manifest.sites[2].factor == 0x1p-4f);
    for (size_t k = 0; k < count; k++)
        assert_float_equal(t.replica.state[0].theta[k],
                           (float)((double)before[k] - 0.7 * 1.9 * mean[k]), 1e-6f);
    struct digest after = t.replica.state[0].digest;
    truncate_file("frag/0/1/state"); /* rebuilt from the state before and the manifest */
    crash();
    assert_true(digest_equal(&after, &t.replica.state[0].digest));
    free(mean);
    free(z);
    free(before);
    shut();
}

/* ---- quarantine ---- */

static struct wire_answer operate(const char *who, enum wire_act act, const char *name,
                                  uint64_t round)
{
    struct wire_operate m = {.act = act, .round = round};
    struct wire_answer answer;
    strcpy(m.site, name);
    t.s.operate(t.s.self, who, &m, &answer);
    work();
    return answer;
}
static const char boss[] = "atoll://test/operator/boss";

static enum round_outcome lied(struct fake *f)
{
    enum round_outcome o = contribute_value(f, 0, 3.3e38f, 0).outcome;
    f->incarnation++;
    (void)hello(f, true);
    return o;
}

static void contribute_two(void)
{
    uint64_t round = t.replica.state[0].round;
    assert_int_equal(contribute(&site[0], 0), ROUND_RECEIPT);
    assert_int_equal(t.replica.state[0].round, round);
    assert_int_equal(contribute(&site[1], 0), ROUND_RECEIPT);
}

/* Another call failed at the disk, and the process has not ended yet: a site that calls now comes
 * again. Answered `none` it would end. */
static void a_failed_aggregator_answers_full(void **state)
{
    (void)state;
    begin(true);
    (void)!err_set(ERR_IO, "the disk is broken");
    aggregator_halt(t.a, ERR_IO);
    struct wire_hello_answer a = hello(&site[0], true);
    assert_int_equal(a.outcome, ROUND_FULL);
    assert_string_equal(a.text, "the disk is broken");
    shut();
}

/* Three refusals in a row and no call of the site is served, also after a restart, also when the
 * journal is lost; the others' rounds do not wait for it, and say why it is not there. */
static void three_refusals_are_a_quarantine(void **state)
{
    (void)state;
    begin(false);
    t.straggler_ms = 3600000;
    t.strikes_max = 3;
    crash();
    hello_all();
    for (unsigned i = 0; i < 2; i++) /* two, and one that counts: not in a row */
        assert_int_equal(lied(&site[2]), ROUND_INVALID);
    round_all(0);
    assert_int_equal(t.replica.state[0].round, 1);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(lied(&site[2]), ROUND_INVALID);
    struct wire_hello_answer a = hello(&site[2], true);
    assert_int_equal(a.outcome, ROUND_EXCLUDED);
    assert_non_null(strstr(a.text, "operator readmit c"));
    assert_int_equal(contribute(&site[2], 0), ROUND_EXCLUDED);
    assert_int_equal(report(&site[2], 0), ROUND_EXCLUDED);
    assert_int_equal(poll_round(&site[2], 0, 0).answer.outcome, ROUND_EXCLUDED);
    contribute_two();
    assert_int_equal(t.replica.state[0].round, 2);
    struct wire_poll_answer p = poll_round(&site[0], 0, 1);
    assert_false(p.manifest.sites[2].included);
    assert_int_equal(p.manifest.sites[2].reason, ROUND_EXCLUDED);
    crash();
    assert_int_equal(hello(&site[2], true).outcome, ROUND_EXCLUDED);
    t.env->ops->remove(t.env, "journal");
    crash();
    assert_int_equal(hello(&site[2], true).outcome, ROUND_EXCLUDED);
    assert_int_equal(operate(boss, WIRE_READMIT, "c", 0).outcome, ROUND_CURRENT);
    hello_all();
    contribute_two();
    assert_int_equal(t.replica.state[0].round, 2); /* it is waited for again */
    assert_int_equal(contribute(&site[2], 0), ROUND_RECEIPT);
    assert_int_equal(t.replica.state[0].round, 3);
    crash();
    hello_all();
    shut();
}

/* A stream that was open when its site's quarantine began stores nothing more. */
static void a_quarantine_cuts_open_streams(void **state)
{
    (void)state;
    void *upload;
    size_t n;
    begin(false);
    t.straggler_ms = 3600000;
    t.strikes_max = 1;
    crash();
    hello_all();
    uint8_t *payload = payload_of(2, 1, &n);
    struct wire_contribution m = header(&site[2], 1, payload, n);
    assert_int_equal(offer(&site[2], &m, &upload).outcome, ROUND_RESUME);
    assert_int_equal(chunk(upload, payload, 0, n / 2).outcome, ROUND_NONE);
    assert_int_equal(lied(&site[2]), ROUND_INVALID);
    assert_int_equal(chunk(upload, payload, n / 2, n).outcome, ROUND_EXCLUDED);
    finish(upload, false);
    free(payload);
    shut();
}

/* In strict mode the round waits, and what is to be done is in the log. */
static void strict_mode_waits_for_a_quarantined_site(void **state)
{
    (void)state;
    begin(true);
    t.strikes_max = 3;
    crash();
    hello_all();
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(lied(&site[2]), ROUND_INVALID);
    contribute_two();
    assert_int_equal(t.replica.state[0].round, 0);
    assert_int_equal(aggregator_failed(t.a), ERR_OK);
    assert_int_equal(operate(boss, WIRE_READMIT, "c", 0).outcome, ROUND_CURRENT);
    assert_int_equal(hello(&site[2], true).outcome, ROUND_CURRENT);
    assert_int_equal(contribute(&site[2], 0), ROUND_RECEIPT);
    assert_int_equal(t.replica.state[0].round, 1);
    shut();
}

/* Accepted, but so loud that a quarter of it and less counts. */
static void three_clipped_rounds_are_a_quarantine(void **state)
{
    (void)state;
    begin(false);
    t.straggler_ms = 3600000;
    t.strikes_max = 3;
    t.clip = 2;
    t.schedule.full_precision_rounds = 4;
    crash();
    hello_all();
    for (uint64_t round = 0; round < 3; round++) {
        assert_int_equal(contribute(&site[0], 0), ROUND_RECEIPT);
        assert_int_equal(contribute(&site[1], 0), ROUND_RECEIPT);
        assert_int_equal(contribute_value(&site[2], 0, 24, 0).outcome, ROUND_RECEIPT);
        assert_int_equal(t.replica.state[0].round, round + 1);
    }
    assert_int_equal(hello(&site[2], true).outcome, ROUND_EXCLUDED);
    t.schedule.full_precision_rounds = 1;
    shut();
}

/* ---- an operator ---- */

/* Every role at every call, through the service itself. */
static void processes_of_a_site_say_hello_for_their_fragments(void **state)
{
    (void)state;
    begin(true);
    hello_all();
    round_all(0);
    for (unsigned i = 0; i < P; i++)
        assert_int_equal(hello_of(&site[0], i).outcome, ROUND_CURRENT);
    struct wire_hello m = {
        .head = head(&site[0]), .major = WIRE_MAJOR, .config = canonical, .fragment_count = P + 1};
    struct wire_hello_answer answer;
    t.s.hello(t.s.self, uri(0), &m, &answer);
    assert_int_equal(answer.outcome, ROUND_INVALID);
}

static void each_call_is_authorised(void **state)
{
    (void)state;
    static const char *const others[] = {"atoll://test/aggregator/aggregator",
                                         "atoll://other/operator/boss", "atoll://test/observer/x",
                                         ""};
    begin(true);
    hello_all();
    for (int act = WIRE_STATUS; act <= WIRE_ROSTER_REMOVE; act++) {
        for (unsigned i = 0; i < 4; i++)
            assert_int_equal(operate(others[i], (enum wire_act)act, "a", 0).outcome, ROUND_DENIED);
        assert_int_equal(operate(uri(0), (enum wire_act)act, "a", 0).outcome, ROUND_DENIED);
        assert_int_not_equal(operate(boss, (enum wire_act)act, "a", 0).outcome, ROUND_DENIED);
        assert_int_equal(operate(boss, WIRE_READMIT, "a", 0).outcome, ROUND_CURRENT);
    }
    struct wire_hello hm = {.head = head(&site[0])};
    static struct wire_hello_answer ha;
    struct wire_poll pm = {.head = head(&site[0])};
    static struct wire_poll_answer pa;
    struct wire_report rm = {.head = head(&site[0])};
    struct wire_leave lm = {.head = head(&site[0])};
    struct wire_fetch fm = {.head = head(&site[0])};
    struct wire_contribution cm = {.head = head(&site[0])};
    struct link_content content;
    struct wire_answer answer;
    void *upload;
    for (unsigned i = 0; i < 5; i++) {
        const char *who = i < 4 ? others[i] : boss;
        t.s.hello(t.s.self, who, &hm, &ha);
        assert_int_equal(ha.outcome, ROUND_DENIED);
        t.s.poll(t.s.self, who, &pm, &pa);
        assert_int_equal(pa.answer.outcome, ROUND_DENIED);
        t.s.report(t.s.self, who, &rm, &answer);
        assert_int_equal(answer.outcome, ROUND_DENIED);
        t.s.leave(t.s.self, who, &lm, &answer);
        assert_int_equal(answer.outcome, ROUND_DENIED);
        t.s.fetch(t.s.self, who, &fm, &content, &answer);
        assert_int_equal(answer.outcome, ROUND_DENIED);
        t.s.offer(t.s.self, who, &cm, &answer, &upload);
        assert_int_equal(answer.outcome, ROUND_DENIED);
    }
    shut();
}

/* The round in flight is closed with no site in it, once, also when the aggregator dies between the
 * record and the commit; the manifest names who wanted it. */
static void an_operator_aborts_a_round(void **state)
{
    (void)state;
    begin(true);
    hello_all();
    struct digest before = t.replica.state[0].digest, by = digest_of(boss, strlen(boss));
    assert_int_equal(operate(boss, WIRE_ABORT, "", 0).outcome, ROUND_FULL); /* nothing is in */
    assert_int_equal(contribute(&site[0], 0), ROUND_RECEIPT);
    assert_int_equal(operate(boss, WIRE_ABORT, "", 1).outcome, ROUND_INVALID); /* not begun */
    struct wire_answer answer = operate(boss, WIRE_ABORT, "", 0);
    assert_int_equal(answer.outcome, ROUND_CURRENT);
    assert_int_equal(t.replica.state[0].round, 1);
    assert_true(digest_equal(&before, &t.replica.state[0].digest));
    assert_int_equal(operate(boss, WIRE_ABORT, "", 0).outcome, ROUND_BEHIND); /* repeated */
    struct wire_poll_answer p = poll_round(&site[1], 0, 0);
    assert_true(manifest_aborted(&p.manifest));
    assert_true(digest_equal(&p.manifest.ordered_by, &by));
    assert_int_equal(p.manifest.sites[0].reason, ROUND_ABORTED);
    assert_int_equal(p.manifest.sites[1].reason, ROUND_NONE);
    assert_int_equal(contribute(&site[1], 0), ROUND_RECEIPT);
    struct wire_operate m = {.act = WIRE_ABORT, .round = 1};
    t.s.operate(t.s.self, boss, &m, &answer); /* and no work() after it */
    assert_int_equal(answer.outcome, ROUND_CURRENT);
    assert_int_equal(t.replica.state[0].round, 1);
    crash();
    work();
    assert_int_equal(t.replica.state[0].round, 2);
    assert_int_equal(t.a->core.f[0].aborts,
                     2); /* in a row: a restart does not begin to count again */
    hello_all();
    p = poll_round(&site[1], 0, 1);
    assert_true(digest_equal(&p.manifest.ordered_by, &by));
    assert_int_equal(p.manifest.sites[1].reason, ROUND_ABORTED);
    round_all(0);
    assert_int_equal(t.replica.state[0].round, 3);
    assert_false(digest_equal(&before, &t.replica.state[0].digest));
    crash(); /* the records of acts that are carried out are read again */
    assert_int_equal(t.replica.state[0].round, 3);
    assert_int_equal(t.a->core.f[0].aborts, 0);
    shut();
}

static enum round_outcome roll_back(uint64_t round, uint64_t to)
{
    struct wire_operate m = {.act = WIRE_ROLLBACK, .round = round, .to = to};
    struct wire_answer answer;
    t.s.operate(t.s.self, boss, &m, &answer);
    return answer.outcome;
}

/* A new round whose state is an earlier one: its number goes up, its bytes can be fetched, also
 * after a restart between record and commit, and after its state file was damaged. */
static void an_operator_rolls_back(void **state)
{
    (void)state;
    struct digest kept[5];
    begin(true);
    t.states = 3;
    crash();
    hello_all();
    for (unsigned round = 0; round < 4; round++) {
        kept[round] = t.replica.state[0].digest;
        if (round < 3)
            round_all(0);
    }
    assert_int_equal(roll_back(3, 2), ROUND_FULL); /* nothing is in */
    assert_int_equal(contribute(&site[0], 0), ROUND_RECEIPT);
    assert_int_equal(roll_back(3, 3), ROUND_INVALID);
    assert_int_equal(roll_back(3, 0), ROUND_GONE); /* three states are kept: 1, 2, 3 */
    assert_int_equal(roll_back(2, 1), ROUND_BEHIND);
    assert_int_equal(roll_back(3, 1), ROUND_CURRENT);
    assert_int_equal(roll_back(3, 1), ROUND_CURRENT); /* once more, before it is carried out */
    assert_int_equal(roll_back(3, 2), ROUND_FULL);    /* another act: it would not be done */
    struct wire_operate abort = {.act = WIRE_ABORT, .round = 3};
    struct wire_answer refused;
    t.s.operate(t.s.self, boss, &abort, &refused);
    assert_int_equal(refused.outcome, ROUND_FULL);
    crash();
    work();
    assert_int_equal(t.replica.state[0].round, 4);
    assert_true(digest_equal(&t.replica.state[0].digest, &kept[1]));
    hello_all();
    assert_int_equal(roll_back(3, 1), ROUND_BEHIND);
    struct wire_poll_answer p = poll_round(&site[1], 0, 3);
    assert_int_equal(p.answer.outcome, ROUND_COMMIT);
    assert_true(p.manifest.rolled_back && p.manifest.rolled_to == 1);
    assert_int_equal(p.manifest.sites[0].reason, ROUND_ABORTED);
    struct link_content content;
    struct wire_answer answer;
    struct wire_fetch m = {.head = head(&site[1]), .what = WIRE_AGGREGATE, .round = 3};
    t.s.fetch(t.s.self, uri(1), &m, &content, &answer);
    assert_int_equal(answer.outcome, ROUND_NONE);
    struct digest d = digest_of(content.data, content.size_bytes);
    assert_true(digest_equal(&d, &kept[1]));
    t.s.fetched(t.s.self, content.source);
    truncate_file("frag/0/4/state");
    crash();
    assert_true(digest_equal(&t.replica.state[0].digest, &kept[1]));
    hello_all();
    round_all(0);
    assert_int_equal(t.replica.state[0].round, 5);
    shut();
}

static void an_operator_keeps_a_site_out(void **state)
{
    (void)state;
    begin(false);
    t.straggler_ms = 3600000;
    crash();
    hello_all();
    assert_int_equal(operate(boss, WIRE_QUARANTINE, "x", 0).outcome, ROUND_INVALID);
    for (unsigned twice = 0; twice < 2; twice++)
        assert_int_equal(operate(boss, WIRE_QUARANTINE, "c", 0).outcome, ROUND_CURRENT);
    assert_int_equal(hello(&site[2], true).outcome, ROUND_EXCLUDED);
    contribute_two();
    assert_int_equal(t.replica.state[0].round, 1);
    struct wire_answer answer = operate(boss, WIRE_STATUS, "", 0);
    assert_int_equal(answer.outcome, ROUND_CURRENT);
    assert_int_equal(answer.round, 1);
    assert_non_null(strstr(answer.text, "fragment=0 round=1 of=5"));
    assert_non_null(strstr(answer.text, "site=c state=quarantine"));
    assert_non_null(strstr(answer.text, "site=a state=bound"));
    crash();
    assert_int_equal(hello(&site[2], true).outcome, ROUND_EXCLUDED);
    assert_int_equal(operate(boss, WIRE_READMIT, "c", 0).outcome, ROUND_CURRENT);
    hello_all();
    round_all(0);
    shut();
}

/* ---- the roster ---- */

static struct wire_answer roster(enum wire_act act, const char *name, uint64_t version)
{
    struct wire_operate m = {.act = act, .version = version};
    struct wire_answer answer;
    snprintf(m.site, sizeof m.site, "%s", name);
    t.s.operate(t.s.self, boss, &m, &answer);
    work();
    return answer;
}

static void roster_refused(enum round_outcome outcome, const char *words, enum wire_act act,
                           const char *name, uint64_t version)
{
    struct wire_answer answer = roster(act, name, version);
    assert_int_equal(answer.outcome, outcome);
    if (!strstr(answer.text, words))
        fail_msg("\"%s\" does not say \"%s\"", answer.text, words);
}

/* One round of a fragment, of these sites, as the roster has them: no site is missing, no other one
 * is waited for. */
static void round_of(unsigned fragment, const char *who)
{
    uint64_t round = t.replica.state[fragment].round;
    for (const char *c = who; *c; c++)
        assert_int_equal(hello(&site[*c - 'a'], true).outcome, ROUND_CURRENT);
    for (const char *c = who; *c; c++) {
        assert_int_equal(t.replica.state[fragment].round, round);
        enum round_outcome o = contribute(&site[*c - 'a'], fragment);
        assert_int_equal(o, ROUND_RECEIPT);
    }
    assert_int_equal(t.replica.state[fragment].round, round + 1);
    for (const char *c = who; *c; c++)
        (void)hello(&site[*c - 'a'], true); /* as good as a report */
}

static void same_roster(const struct roster *a, const struct roster *b)
{
    assert_int_equal(a->version, b->version);
    assert_int_equal(a->count, b->count);
    assert_memory_equal(&a->members, &b->members, sizeof a->members);
    assert_int_equal(a->change.act, b->change.act);
    assert_int_equal(a->change.site, b->change.site);
    assert_true(digest_equal(&a->change.by, &b->change.by));
}

/* Everything in memory is gone; before that the journal's older records, as after a long run. */
static void roster_restarts(bool compacts)
{
    struct journal_record keep[64];
    size_t n = 0;
    keep[n++] = (struct journal_record){.kind = JOURNAL_TERM, .round = t.a->start.term};
    n += aggregator_organs_records(t.a, keep + n);
    if (compacts)
        assert_int_equal(journal_rewrite(&t.a->journal, keep, n), ERR_OK);
    struct roster before = t.a->members.roster, former = t.a->members.former;
    struct set flying[P] = {t.a->core.f[0].members, t.a->core.f[1].members};
    crash();
    same_roster(&t.a->members.roster, &before);
    assert_memory_equal(&flying[0], &t.a->core.f[0].members, sizeof flying[0]);
    assert_memory_equal(&flying[1], &t.a->core.f[1].members, sizeof flying[1]);
    if (memcmp(&flying[0], &before.members, sizeof flying[0]) != 0) /* else nothing asks for it */
        same_roster(&t.a->members.former, &former);
}

/* A strict run of a, b, c takes in d and loses b, across restarts at every step. */
static void a_site_joins_and_one_leaves(void **state)
{
    for (int compacts = 0; compacts < 2; compacts++) {
        assert_int_equal(fresh(state), 0);
        begin(true);
        t.room = 8;
        crash();
        hello_all();
        assert_int_equal(hello(&site[3], false).outcome, ROUND_EXCLUDED);
        roster_refused(ROUND_INVALID, "1 to 63 letters", WIRE_ROSTER_ADD, "../d", 2);
        roster_refused(ROUND_INVALID, "1 to 63 letters", WIRE_ROSTER_ADD, "", 2);
        roster_refused(ROUND_INVALID, "in the roster already", WIRE_ROSTER_ADD, "a", 2);
        roster_refused(ROUND_INVALID, "not in the roster", WIRE_ROSTER_REMOVE, "x", 2);
        roster_refused(ROUND_INVALID, "version 1 now", WIRE_ROSTER_ADD, "d", 3);
        struct wire_answer answer = roster(WIRE_ROSTER_ADD, "d", 2);
        assert_int_equal(answer.outcome, ROUND_CURRENT);
        assert_int_equal(answer.round, 2);
        assert_non_null(strstr(answer.text, "fragment 1 from round 1 on"));
        assert_int_equal(roster(WIRE_ROSTER_ADD, "d", 2).outcome, ROUND_CURRENT); /* repeated */
        roster_refused(ROUND_PENDING, "one change at a time", WIRE_ROSTER_REMOVE, "b", 3);
        assert_int_equal(contribute(&site[1], 0), ROUND_REBIND); /* it has version 1: hello tells */
        roster_restarts(compacts);
        struct wire_hello_answer h = hello(&site[3], false);
        assert_int_equal(h.outcome, ROUND_JOIN);
        assert_int_equal(h.site, 3);
        assert_int_equal(h.sites, 4);
        assert_int_equal(h.fragments[0].first, 1);
        assert_int_equal(h.fragments[1].first, 1);
        assert_int_equal(hello(&site[0], true).fragments[0].first, 0);
        assert_int_equal(contribute(&site[3], 0), ROUND_EARLY);
        round_of(0, "abc");
        round_of(1, "abc");
        struct wire_poll_answer p = poll_round(&site[0], 0, 0);
        assert_int_equal(p.manifest.roster_version, 1);
        assert_int_equal(p.manifest.site_count, 3);
        roster_restarts(compacts);
        roster_refused(ROUND_PENDING, "(d added) is not final", WIRE_ROSTER_REMOVE, "b", 3);
        round_of(0, "abcd");
        p = poll_round(&site[0], 0, 1);
        assert_int_equal(p.manifest.roster_version, 2);
        assert_int_equal(p.manifest.site_count, 4);
        assert_int_equal(p.manifest.change.act, MANIFEST_ADD);
        assert_string_equal(p.manifest.names[0], "d");
        round_of(1, "dcba");
        answer = roster(WIRE_ROSTER_LIST, "", 0);
        assert_non_null(strstr(answer.text, "version=2 sites=4 quorum=4 state=final"));
        assert_non_null(strstr(answer.text, "site=d index=3 in"));
        assert_int_equal(roster(WIRE_ROSTER_REMOVE, "b", 3).outcome, ROUND_CURRENT);
        roster_restarts(compacts);
        round_of(0, "abcd"); /* the round in flight still has it, and fragment 1's */
        round_of(1, "abcd");
        h = hello(&site[1], true);
        assert_int_equal(h.outcome, ROUND_EXCLUDED);
        assert_non_null(strstr(h.text, "removed from the roster by an operator"));
        assert_int_equal(contribute(&site[1], 0), ROUND_EXCLUDED);
        assert_int_equal(poll_round(&site[1], 0, 2).answer.outcome, ROUND_EXCLUDED);
        roster_restarts(compacts);
        round_of(0, "acd");
        p = poll_round(&site[0], 0, 3);
        assert_int_equal(p.manifest.site_count, 3);
        assert_int_equal(p.manifest.sites[1].site, 2); /* indices stay */
        round_of(1, "acd");
        /* In the last round: a site that is added now would have none. */
        roster_refused(ROUND_INVALID, "no round left", WIRE_ROSTER_ADD, "b", 4);
        shut();
    }
}

/* The journal is gone: the newest manifests tell the roster. An act that no round was committed
 * under is lost with it, and one that only one fragment has reached is taken up by the other. */
static void a_roster_outlives_the_journal(void **state)
{
    (void)state;
    begin(true);
    t.room = 8;
    crash();
    hello_all();
    assert_int_equal(roster(WIRE_ROSTER_ADD, "d", 2).outcome, ROUND_CURRENT);
    round_of(0, "abc");
    lose("journal");
    crash();
    assert_int_equal(t.a->members.roster.version, 1); /* lost: the operator says it again */
    assert_int_equal(hello(&site[3], false).outcome, ROUND_EXCLUDED);
    hello_all();
    assert_int_equal(roster(WIRE_ROSTER_ADD, "d", 2).outcome, ROUND_CURRENT);
    round_of(0, "abc");
    round_of(0, "abcd");
    for (unsigned times = 0; times < 2; times++) {
        lose("journal");
        crash();
        assert_int_equal(t.a->members.roster.version, 2);
        assert_int_equal(t.a->core.f[1].n, 4);
        assert_int_equal(hello(&site[3], true).site, 3);
    }
    crash(); /* and it is in the new journal */
    assert_int_equal(t.a->members.roster.version, 2);
    round_of(1, "abcd");
    assert_int_equal(poll_round(&site[0], 1, 0).manifest.roster_version, 2);
    /* An older journal than the manifests: a person copied files back. */
    struct journal j;
    struct journal_record r = {.kind = JOURNAL_TERM, .round = 40};
    lose("journal");
    assert_int_equal(journal_open(&j, t.env, "journal", NULL, NULL), ERR_OK);
    assert_int_equal(journal_append(&j, &r), ERR_OK);
    shut();
    assert_int_equal(try_open(), ERR_CORRUPT);
    assert_non_null(strstr(err_message(), "restored from an older copy?"));
    shut();
}

/* Its organ would have read it; without it, the settings of later rounds would be others. */
static void a_record_of_no_organ_is_refused(void **state)
{
    const struct journal_record r = {
        .kind = JOURNAL_AMENDMENT, .round = 9, .act = 1, .to = 1, .name = "outer.lr=0.5"};
    (void)state;
    begin(false);
    assert_int_equal(journal_append(&t.a->journal, &r), ERR_OK);
    shut();
    assert_int_equal(try_open(), ERR_UNSUPPORTED);
    assert_non_null(strstr(err_message(), "a record of kind 10"));
    shut();
}

/* What no run has room for. */
static void a_roster_has_bounds(void **state)
{
    (void)state;
    begin(false);
    t.room = N;
    t.straggler_ms = 3600000;
    crash();
    hello_all();
    roster_refused(ROUND_INVALID, "the roster is full", WIRE_ROSTER_ADD, "d", 2);
    assert_int_equal(roster(WIRE_ROSTER_REMOVE, "a", 2).outcome, ROUND_CURRENT);
    for (unsigned f = 0; f < P; f++)
        for (unsigned round = 0; round < 2; round++)
            round_of(f, round ? "bc" : "abc");
    assert_int_equal(roster(WIRE_ROSTER_REMOVE, "c", 3).outcome, ROUND_CURRENT);
    for (unsigned f = 0; f < P; f++)
        for (unsigned round = 0; round < 2; round++)
            round_of(f, round ? "b" : "bc");
    roster_refused(ROUND_INVALID, "b is the last site", WIRE_ROSTER_REMOVE, "b", 4);
    roster_refused(ROUND_INVALID, "a is not in the roster", WIRE_ROSTER_REMOVE, "a", 4);
    shut();
}

/* Two weights whose sum is infinite, where nothing bounds weights: the round is committed with
 * no site in it, as often as it happens, also across restarts, and the run continues. */
static void a_round_that_cannot_be_applied_is_aborted(void **state)
{
    (void)state;
    begin(true);
    t.share_max = 0;
    crash();
    hello_all();
    struct digest before = t.replica.state[0].digest;
    for (uint64_t round = 0; round < 2; round++) {
        site[0].weight = site[1].weight = FLT_MAX;
        round_all(0);
        struct wire_poll_answer p = poll_round(&site[0], 0, round);
        assert_int_equal(p.answer.outcome, ROUND_COMMIT);
        assert_true(manifest_aborted(&p.manifest));
        for (unsigned i = 0; i < N; i++) {
            assert_int_equal(p.manifest.sites[i].reason, ROUND_ABORTED);
            assert_true(p.manifest.sites[i].payload_bytes > 0);
        }
        assert_true(digest_equal(&before, &p.manifest.state_after));
        assert_true(digest_equal(&before, &t.replica.state[0].digest));
        assert_false(t.env->ops->exists(t.env, round ? "spool/0/1" : "spool/0/0"));
        assert_false(
            t.env->ops->exists(t.env, round ? "frag/0/2/aggregate" : "frag/0/1/aggregate"));
        assert_int_equal(report(&site[2], 0), ROUND_CURRENT);
        crash();
        assert_int_equal(t.replica.state[0].round, round + 1);
        hello_all();
    }
    truncate_file("frag/0/2/state"); /* rebuilt from the state before and the manifest */
    crash();
    assert_true(digest_equal(&before, &t.replica.state[0].digest));
    assert_int_equal(t.replica.state[0].round, 2);
    hello_all();
    site[0].weight = site[1].weight = 0;
    round_all(0);
    assert_false(digest_equal(&before, &t.replica.state[0].digest));
    shut();
}

/* ---- what is said ---- */

static char heard_log[1 << 14];
static uint64_t later_ms;
static const struct env_ops *real_ops;

static void log_hear(void *self, enum log_level level, const char *line)
{
    (void)self, (void)level;
    strncat(heard_log, line, sizeof heard_log - strlen(heard_log) - 2);
    strcat(heard_log, "\n");
}

static uint64_t now_later(struct env *w)
{
    return real_ops->now_ms(w) + later_ms;
}

/* Until t.env->ops is real_ops again. */
static void clock_put_later(uint64_t ms)
{
    static struct env_ops ops;
    real_ops = t.env->ops;
    ops = *real_ops;
    ops.now_ms = now_later;
    t.env->ops = &ops;
    later_ms = ms;
}

/* In strict mode: who is waited for, since when, how much of its bytes came, and who holds streams
 * meanwhile. */
static void the_log_says_who_is_waited_for(void **state)
{
    (void)state;
    size_t n;
    void *upload;
    begin(true);
    hello_all();
    assert_int_equal(contribute(&site[0], 0), ROUND_RECEIPT);
    uint8_t *payload = payload_of(2, 0, &n);
    struct wire_contribution m = header(&site[2], 0, payload, n);
    assert_int_equal(offer(&site[2], &m, &upload).outcome, ROUND_RESUME);
    assert_int_equal(chunk(upload, payload, 0, 100).outcome, ROUND_NONE);
    clock_put_later(12000);
    *heard_log = 0;
    log_to(log_hear, NULL);
    work();
    char sent[64];
    snprintf(sent, sizeof sent, "sent=100/%zu idle_s=12", n);
    assert_non_null(strstr(heard_log, "ev=waiting fragment=0 round=0 since_s=12 missing=b"));
    assert_non_null(strstr(heard_log, "missing=c"));
    assert_non_null(strstr(heard_log, sent));
    assert_non_null(strstr(heard_log, "ev=receiving streams=c:1"));
    assert_null(strstr(heard_log, "missing=a"));
    *heard_log = 0;
    work(); /* not again before twice the time */
    assert_string_equal(heard_log, "");
    for (int i = 0; i < 3; i++) { /* one limiter for refusals of any kind */
        struct wire_contribution bad = {.head = head(&site[1]), .weight = -1};
        void *none;
        assert_int_equal(offer(&site[1], &bad, &none).outcome, ROUND_INVALID);
        hello(&site[1], true);
        if (i == 1)
            later_ms += 31000;
    }
    const char *first = strstr(heard_log, "ev=refused"), *second = first;
    assert_non_null(first);
    second = strstr(first + 1, "ev=refused");
    assert_non_null(second);
    assert_non_null(strstr(second, "repeats=1"));
    assert_null(strstr(second + 1, "ev=refused"));
    log_to(no_log, NULL);
    t.env->ops = real_ops;
    finish(upload, false);
    free(payload);
    shut();
}

static void lines_count(void *self, enum log_level level, const char *line)
{
    (void)level, (void)line;
    ++*(unsigned *)self;
}

/* A member repeats what alarms, an operator quarantines and readmits: a few lines of each caller,
 * event and answer, not one of each call. */
static void alarms_and_acts_are_limited(void **state)
{
    (void)state;
    enum { CALLS = 300 };
    unsigned lines = 0;
    size_t n;
    void *upload;
    begin(true);
    hello_all();
    uint8_t *payload = payload_of(0, 0, &n);
    const struct wire_contribution good = header(&site[0], 0, payload, n);
    log_to(lines_count, &lines);
    for (unsigned i = 0; i < CALLS; i++) {
        struct wire_contribution parent = good, grid = good, process = good;
        parent.parent.bytes[0] ^= 1;
        grid.grid.bytes[0] ^= 1;
        process.head.instance += 1 + i;
        assert_int_equal(offer(&site[0], &parent, &upload).outcome, ROUND_CONFLICT);
        assert_int_equal(offer(&site[0], &grid, &upload).outcome, ROUND_MISMATCH);
        assert_int_equal(offer(&site[0], &process, &upload).outcome, ROUND_CONFLICT);
        assert_int_equal(operate(boss, WIRE_QUARANTINE, "c", 0).outcome, ROUND_CURRENT);
        assert_int_equal(operate(boss, WIRE_READMIT, "c", 0).outcome, ROUND_CURRENT);
    }
    log_to(no_log, NULL);
    assert_in_range(lines, 8, 60); /* of 1500 calls */
    free(payload);
    shut();
}

/* The end waits for the last reports: the log names the sites that it waits for, and what to do. */
static void the_log_says_whose_report_is_missing(void **state)
{
    (void)state;
    begin(true);
    hello_all();
    for (unsigned p = 0; p < P; p++)
        while (t.replica.state[p].round < schedule_rounds(&t.schedule, p))
            round_all(p);
    for (unsigned i = 0; i < N - 1; i++)
        for (unsigned p = 0; p < P; p++)
            assert_int_equal(report(&site[i], p), ROUND_CURRENT);
    assert_false(aggregator_done(t.a));
    clock_put_later(12000);
    *heard_log = 0;
    log_to(log_hear, NULL);
    work();
    assert_non_null(strstr(heard_log, "ev=waiting since_s=12 missing=c owes=report"));
    assert_non_null(strstr(heard_log, "start it again"));
    assert_null(strstr(heard_log, "missing=a"));
    *heard_log = 0;
    work(); /* not again before twice the time */
    assert_string_equal(heard_log, "");
    for (unsigned p = 0; p < P; p++)
        assert_int_equal(report(&site[N - 1], p), ROUND_CURRENT);
    assert_true(aggregator_done(t.a));
    later_ms += 60000;
    *heard_log = 0;
    work();
    assert_string_equal(heard_log, "");
    log_to(no_log, NULL);
    t.env->ops = real_ops;
    shut();
}

/* ---- who may ---- */

static enum round_outcome hello_as(const char *peer, const char *name, const char *config,
                                   char text[WIRE_TEXT_MAX])
{
    struct wire_hello m = {.head = head(&site[0]), .major = WIRE_MAJOR, .config = config};
    struct wire_hello_answer answer;
    m.head.config = digest_of(config, strlen(config));
    snprintf(m.head.site, sizeof m.head.site, "%s", name);
    t.s.hello(t.s.self, peer, &m, &answer);
    memcpy(text, answer.text, WIRE_TEXT_MAX);
    return answer.outcome;
}

static void take_back(const char *text)
{
    struct file_part part = {text, strlen(text)};
    assert_int_equal(file_write(t.revoked, &part, 1, 0644), ERR_OK);
}

static void only_the_named_site_is_served(void **state)
{
    (void)state;
    char text[WIRE_TEXT_MAX];
    begin(true);
    assert_int_equal(hello_as("atoll://test/site/a", "a", canonical, text), ROUND_JOIN);
    assert_int_equal(hello_as("atoll://test/site/b", "a", canonical, text), ROUND_DENIED);
    assert_int_equal(hello_as("atoll://other/site/a", "a", canonical, text), ROUND_DENIED);
    assert_int_equal(hello_as("atoll://test/operator/a", "a", canonical, text), ROUND_DENIED);
    assert_int_equal(hello_as("", "a", canonical, text), ROUND_DENIED);
    assert_int_equal(hello_as(NULL, "a", canonical, text), ROUND_DENIED);
    assert_int_equal(hello_as("atoll://test/site/d", "d", canonical, text), ROUND_EXCLUDED);
    assert_int_equal(
        hello_as("atoll://test/site/a", "a", "outer.every=5\nouter.fragments=2\n", text),
        ROUND_MISMATCH);
    assert_non_null(strstr(text, "outer.sync_every: 5 here, 4 there"));
    assert_null(strstr(text, "fragments"));
    take_back("# taken back\natoll://test/site/b\n \tatoll://test/site/a  # laptop lost\r\n");
    assert_int_equal(hello_as("atoll://test/site/a", "a", canonical, text), ROUND_EXCLUDED);
    assert_int_equal(contribute(&site[0], 0),
                     ROUND_EXCLUDED); /* at the next call, not the next connection */
    take_back("atoll://test/site/b\n");
    assert_int_equal(hello_as("atoll://test/site/a", "a", canonical, text), ROUND_JOIN);
    shut();
}

/* A certificate holder that is refused again and again, with changing reasons, writes a few lines
 * in half a minute, and its calls are counted; what another one is refused for is logged anyway. */
static void refusals_are_logged_for_each_caller_and_few(void **state)
{
    (void)state;
    char text[WIRE_TEXT_MAX];
    begin(true);
    hello_all();
    *heard_log = 0;
    log_to(log_hear, NULL);
    for (int i = 0; i < 1000; i++) {
        hello_as("atoll://test/site/x", i % 2 ? "a" : "x", canonical, text); /* denied, excluded */
        struct wire_poll_answer answer;
        struct wire_poll m = {.head = head(&site[1])};
        t.s.poll(t.s.self, "atoll://test/site/y", &m, &answer);
    }
    log_to(no_log, NULL);
    unsigned lines = 0;
    for (const char *at = heard_log; (at = strstr(at, "ev=refused")); at++)
        lines++;
    assert_int_equal(lines, 3);
    assert_non_null(strstr(heard_log, "peer=atoll://test/site/x answer=denied"));
    assert_non_null(strstr(heard_log, "peer=atoll://test/site/x answer=excluded"));
    assert_non_null(strstr(heard_log, "call=poll peer=atoll://test/site/y answer=denied"));
    shut();
}

static void take_back_certificate(const struct digest *sha256)
{
    char hex[65], line[100];
    digest_hex(sha256, hex);
    snprintf(line, sizeof line, "sha256:%s\n", hex);
    take_back(line);
}

/* A stolen key is withdrawn while its stream is open: between two chunks, before the end, and while
 * the payload is verified. Nothing of it counts. The same name continues with another key. */
static void a_revoked_stream_counts_nowhere(void **state)
{
    (void)state;
    static const struct digest nobody;
    const struct wire_certificate stolen = {.sha256 = digest_of("stolen", 6)},
                                  renewed = {.sha256 = digest_of("renewed", 7)};
    struct wire_answer answer;
    size_t n;
    void *upload;
    begin(true);
    hello_all();
    uint8_t *payload = payload_of(0, 0, &n);
    struct wire_contribution m = header(&site[0], 0, payload, n);
    m.head.certificate = stolen;
    assert_int_equal(offer(&site[0], &m, &upload).outcome, ROUND_RESUME);
    assert_int_equal(chunk(upload, payload, 0, n / 2).outcome, ROUND_NONE);
    take_back_certificate(&stolen.sha256);
    assert_int_equal(chunk(upload, payload, n / 2, n).outcome, ROUND_EXCLUDED);
    finish(upload, false);
    assert_int_equal(offer(&site[0], &m, &upload).outcome, ROUND_EXCLUDED);

    take_back_certificate(&nobody);
    assert_int_equal(offer(&site[0], &m, &upload).outcome, ROUND_RESUME);
    assert_int_equal(chunk(upload, payload, n / 2, n).outcome, ROUND_NONE);
    take_back_certificate(&stolen.sha256);
    assert_int_equal(finish(upload, true).outcome, ROUND_EXCLUDED);

    take_back_certificate(&nobody);
    assert_int_equal(offer(&site[0], &m, &upload).outcome, ROUND_RESUME); /* all bytes are there */
    t.s.finish(t.s.self, upload, true, &answer);
    assert_int_equal(answer.outcome, ROUND_PENDING);
    t.s.verify(t.s.self, upload);
    take_back_certificate(&stolen.sha256);
    t.s.verified(t.s.self, upload, &answer);
    assert_int_equal(answer.outcome, ROUND_EXCLUDED);
    if (!strstr(answer.text, "a new one of the same name is accepted"))
        fail_msg("%s", answer.text);

    assert_int_equal(contribute(&site[1], 0), ROUND_RECEIPT);
    assert_int_equal(contribute(&site[2], 0), ROUND_RECEIPT);
    assert_int_equal(t.replica.state[0].round, 0); /* nothing came from site a */
    m.head.certificate = renewed;
    assert_int_equal(offer(&site[0], &m, &upload).outcome, ROUND_RESUME);
    assert_int_equal(finish(upload, true).outcome, ROUND_RECEIPT);
    work();
    assert_int_equal(t.replica.state[0].round, 1);
    free(payload);
    shut();
}

static void a_second_process_of_a_site_is_refused(void **state)
{
    (void)state;
    begin(true);
    hello_all();
    struct fake clone = site[1];
    clone.instance++;
    assert_int_equal(hello(&clone, true).outcome, ROUND_CONFLICT);
    clone.incarnation++;
    assert_int_equal(hello(&clone, true).outcome, ROUND_CURRENT);
    assert_int_equal(hello(&site[1], true).outcome, ROUND_SUPERSEDED);
    assert_int_equal(contribute(&site[1], 0), ROUND_SUPERSEDED);
    assert_int_equal(contribute(&clone, 0), ROUND_RECEIPT);
    shut();
}

/* ---- recovery ---- */

static void spool_file(unsigned i, unsigned fragment, char path[300])
{
    size_t n;
    char hex[65];
    uint8_t *payload = payload_of(i, fragment, &n);
    struct digest d = digest_of(payload, n);
    digest_hex(&d, hex);
    snprintf(path, 300, "spool/%u/%llu/%s.%s", fragment,
             (unsigned long long)t.replica.state[fragment].round, names[i], hex);
    free(payload);
}

static void an_accept_counts_again_only_after_hello(void **state)
{
    (void)state;
    begin(true);
    hello_all();
    assert_int_equal(contribute(&site[0], 0), ROUND_RECEIPT);
    assert_int_equal(contribute(&site[1], 0), ROUND_RECEIPT);
    crash();
    assert_int_equal(hello(&site[2], true).outcome, ROUND_CURRENT);
    assert_int_equal(contribute(&site[2], 0), ROUND_RECEIPT);
    assert_int_equal(t.replica.state[0].round, 0); /* a and b have not said hello */
    struct wire_hello_answer answer = hello(&site[0], true);
    assert_false(digest_zero(&answer.fragments[0].accepted));
    assert_true(digest_zero(&answer.fragments[1].accepted));
    assert_int_equal(t.replica.state[0].round, 0);
    assert_int_equal(hello(&site[1], true).outcome, ROUND_CURRENT);
    assert_int_equal(t.replica.state[0].round, 1); /* no byte was sent again */
    shut();
}

static void a_durable_payload_without_record_is_taken_up(void **state)
{
    (void)state;
    begin(true);
    hello_all();
    assert_int_equal(contribute(&site[0], 0), ROUND_RECEIPT);
    assert_int_equal(t.env->ops->remove(t.env, "journal"),
                     ERR_OK); /* as if it had died before ACCEPT */
    crash();
    struct wire_hello_answer answer = hello(&site[0], true);
    assert_true(digest_zero(&answer.fragments[0].accepted));
    size_t n;
    void *upload;
    uint8_t *payload = payload_of(0, 0, &n);
    struct wire_contribution m = header(&site[0], 0, payload, n);
    struct wire_answer offered = offer(&site[0], &m, &upload);
    assert_int_equal(offered.outcome, ROUND_RESUME);
    assert_int_equal(offered.offset, n); /* not a byte is wanted */
    assert_int_equal(finish(upload, true).outcome, ROUND_RECEIPT);
    crash();
    answer = hello(&site[0], true);
    assert_memory_equal(&answer.fragments[0].accepted, &m.payload, sizeof m.payload);
    free(payload);
    shut();
}

/* Gone or damaged between receipt and commit, or at a restart: asked for again, and the aggregator
 * continues. */
static void a_lost_payload_is_asked_for_again(void **state)
{
    (void)state;
    char path[300];
    struct file_part junk = {"junk", 4};
    begin(true);
    hello_all();
    for (uint64_t i = 0; i < 4; i++) {
        bool damaged = i & 1, restart = i & 2;
        assert_int_equal(contribute(&site[0], 0), ROUND_RECEIPT);
        assert_int_equal(contribute(&site[1], 0), ROUND_RECEIPT);
        spool_file(0, 0, path);
        assert_true(t.env->ops->exists(t.env, path));
        if (damaged)
            assert_int_equal(t.env->ops->write(t.env, path, &junk, 1), ERR_OK);
        else
            assert_int_equal(t.env->ops->remove(t.env, path), ERR_OK);
        if (restart) {
            crash();
            hello_all();
        }
        assert_int_equal(contribute(&site[2], 0), ROUND_RECEIPT);
        assert_int_equal(aggregator_failed(t.a), ERR_OK);
        assert_int_equal(t.replica.state[0].round, i);
        assert_false(t.env->ops->exists(t.env, path));
        if (!restart)
            assert_int_equal(poll_round(&site[0], 0, i).answer.outcome, ROUND_REBIND);
        assert_int_equal(poll_round(&site[1], 0, i).answer.outcome, ROUND_PENDING);
        struct wire_hello_answer answer = hello(&site[0], true);
        assert_true(digest_zero(&answer.fragments[0].accepted));
        assert_int_equal(contribute(&site[0], 0), ROUND_RECEIPT);
        assert_int_equal(t.replica.state[0].round, i + 1);
    }
    crash(); /* both ACCEPT records of the last round are read again */
    assert_int_equal(t.replica.state[0].round, 4);
    shut();
}

/* In quorum mode the round waits for the site once more. */
static void a_quorum_waits_again_for_a_lost_payload(void **state)
{
    (void)state;
    char path[300];
    begin(false);
    t.straggler_ms = 3600000; /* no deadline in between, however slow the disk is */
    crash();
    hello_all();
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(contribute(&site[i], 0), ROUND_RECEIPT);
    spool_file(0, 0, path);
    assert_int_equal(t.env->ops->remove(t.env, path), ERR_OK);
    assert_int_equal(contribute(&site[2], 0), ROUND_RECEIPT);
    assert_int_equal(t.replica.state[0].round, 0);
    assert_int_equal(hello(&site[0], true).outcome, ROUND_CURRENT);
    assert_int_equal(contribute(&site[0], 0), ROUND_RECEIPT);
    assert_int_equal(t.replica.state[0].round, 1);
    shut();
}

/* frag/0 as it was a round ago, the journal as it is: a person copied files back. */
static void an_older_copy_of_the_state_halts(void **state)
{
    (void)state;
    char command[300];
    begin(true);
    hello_all();
    snprintf(command, sizeof command, "cp -r %s/frag %s/kept && rm -r %s/kept/1", t.root, t.root,
             t.root);
    assert_int_equal(system(command), 0);
    round_all(0);
    shut();
    snprintf(command, sizeof command, "rm -r %s/frag/0 && mv %s/kept/0 %s/frag/0", t.root, t.root,
             t.root);
    assert_int_equal(system(command), 0);
    assert_int_equal(try_open(), ERR_CORRUPT);
    assert_non_null(strstr(err_message(), "restored from an older copy"));
    shut();
}

static void another_runs_directory_is_refused(void **state)
{
    (void)state;
    begin(true);
    shut();
    t.canonical = "outer.every=4\nouter.fragments=8\n";
    assert_int_equal(try_open(), ERR_MISMATCH);
    assert_non_null(strstr(err_message(), "outer.fragments: 8 here, 2 there"));
    shut();
}

static void terms_rise_and_the_spool_is_swept(void **state)
{
    (void)state;
    begin(true);
    hello_all();
    uint64_t first = site[0].term;
    round_all(0);
    assert_false(t.env->ops->exists(t.env, "spool/0/0"));
    struct file_part junk = {"junk", 4};
    assert_int_equal(t.env->ops->write(t.env, "spool/0/0/a.old", &junk, 1), ERR_OK);
    crash();
    assert_false(t.env->ops->exists(t.env, "spool/0/0"));
    hello_all();
    assert_int_equal(site[0].term, first + 1);
    shut();
}

static void lose(const char *path)
{
    assert_true(t.env->ops->exists(t.env, path));
    assert_int_equal(t.env->ops->remove(t.env, path), ERR_OK);
}

/* Absence is never a beginning: rounds and terms continue, with any file gone. */
static void what_is_lost_begins_nothing_anew(void **state)
{
    (void)state;
    static const char *const lost[] = {"frag/0/CURRENT", "epoch", "journal", "begun"};
    begin(true);
    hello_all();
    round_all(0);
    for (uint64_t i = 0; i < sizeof lost / sizeof *lost; i++) {
        uint64_t before = site[0].term;
        lose(lost[i]);
        crash();
        assert_int_equal(t.replica.state[0].round, 1 + i);
        assert_true(t.env->ops->exists(t.env, lost[i]));
        hello_all(); /* each site is current, and takes the term */
        assert_int_equal(site[0].term, before + 1);
        round_all(0);
        assert_int_equal(t.replica.state[0].round, 2 + i);
    }
    shut();
}

/* Starts without a commit are in the journal alone. */
static void a_damaged_term_is_counted_on(void **state)
{
    (void)state;
    struct file_part junk = {"7 00000000000000ff\n", 19};
    begin(true);
    for (int i = 0; i < 3; i++)
        crash();
    hello_all();
    uint64_t before = site[0].term;
    assert_int_equal(before, 4);
    assert_int_equal(t.env->ops->write(t.env, "epoch", &junk, 1), ERR_OK);
    crash();
    hello_all();
    assert_int_equal(site[0].term, before + 1);
    shut();
}

static void term_and_journal_lost_is_for_a_person(void **state)
{
    (void)state;
    begin(true);
    hello_all();
    round_all(0);
    lose("epoch");
    lose("journal");
    shut();
    assert_int_equal(try_open(), ERR_CORRUPT);
    assert_non_null(strstr(err_message(), "/epoch and journal: both missing or damaged"));
    assert_int_equal(err_exit_code(ERR_CORRUPT), 1);
    assert_int_equal(t.replica.state[0].round, 1);
    shut();
}

/* A first start that was killed anywhere is a first start again. */
static void a_first_start_that_was_killed_begins_again(void **state)
{
    (void)state;
    static const char *const unwritten[] = {"begun", "epoch", "journal", "frag/1/CURRENT"};
    begin(true);
    for (size_t i = 0; i < sizeof unwritten / sizeof *unwritten; i++) {
        for (size_t k = 0; k <= i; k++)
            lose(unwritten[k]);
        crash();
        hello_all();
        assert_int_equal(site[0].term, i == 0 ? 2 : i == 1 ? 3 : 1);
        for (unsigned k = 0; k < N; k++)
            site[k].term = 0;
    }
    hello_all();
    round_all(0);
    shut();
}

/* ---- polls, fetches ---- */

static struct wire_answer fetch(const struct fake *f, enum wire_what what, uint64_t round,
                                uint64_t offset, const uint8_t **data, size_t *n, void **source)
{
    struct wire_answer answer;
    struct wire_fetch m = {.head = head(f), .what = what, .round = round, .offset = offset};
    struct link_content c = {0};
    t.s.fetch(t.s.self, uri(f->index), &m, &c, &answer);
    *data = c.data;
    *n = c.size_bytes;
    *source = c.source;
    return answer;
}

/* Readers that hold a snapshot each while rounds continue: a third one waits until one of them lets
 * go. */
static void snapshots_that_are_held_are_limited(void **state)
{
    (void)state;
    const uint8_t *data;
    size_t n;
    void *source[3];
    begin(true);
    hello_all();
    for (uint64_t round = 1; round <= 2; round++) {
        round_all(0);
        assert_int_equal(
            fetch(&site[0], WIRE_SNAPSHOT, round, 0, &data, &n, &source[round - 1]).outcome,
            ROUND_NONE);
    }
    assert_int_equal(fetch(&site[1], WIRE_SNAPSHOT, 2, 0, &data, &n, &source[2]).outcome,
                     ROUND_NONE); /* shares the second */
    t.s.fetched(t.s.self, source[2]);
    round_all(0);
    struct wire_answer full = fetch(&site[1], WIRE_SNAPSHOT, 3, 0, &data, &n, &source[2]);
    assert_int_equal(full.outcome, ROUND_FULL);
    assert_true(full.retry_ms > 0);
    t.s.fetched(t.s.self, source[0]);
    assert_int_equal(fetch(&site[1], WIRE_SNAPSHOT, 3, 0, &data, &n, &source[2]).outcome,
                     ROUND_NONE);
    t.s.fetched(t.s.self, source[1]);
    t.s.fetched(t.s.self, source[2]);
    shut();
}

static void commits_are_told_and_fetched(void **state)
{
    (void)state;
    const uint8_t *data, *same;
    size_t n;
    void *source, *second;
    begin(true);
    hello_all();
    assert_int_equal(contribute(&site[1], 0), ROUND_RECEIPT);
    struct wire_poll_answer p = poll_round(&site[1], 0, 0);
    assert_int_equal(p.answer.outcome, ROUND_PENDING);
    assert_string_equal(p.answer.text, "a,c");
    assert_int_equal(fetch(&site[1], WIRE_AGGREGATE, 0, 0, &data, &n, &source).outcome, ROUND_GONE);
    assert_int_equal(contribute(&site[0], 0), ROUND_RECEIPT);
    assert_int_equal(contribute(&site[2], 0), ROUND_RECEIPT);
    p = poll_round(&site[1], 0, 0);
    assert_int_equal(p.answer.outcome, ROUND_COMMIT);
    assert_int_equal(manifest_included(&p.manifest), N);
    assert_float_equal(manifest_weight(&p.manifest), 6, 0);
    assert_int_equal(p.manifest.sites[2].data_cursor, 2);
    struct digest d = manifest_digest(&p.manifest);
    assert_memory_equal(&d, &t.replica.state[0].manifest, sizeof d);
    assert_int_equal(fetch(&site[1], WIRE_AGGREGATE, 0, 0, &data, &n, &source).outcome, ROUND_NONE);
    assert_int_equal(n, p.manifest.aggregate_bytes);
    d = digest_of(data, n);
    assert_memory_equal(&d, &p.manifest.aggregate, sizeof d);
    assert_int_equal(fetch(&site[0], WIRE_AGGREGATE, 0, n, &same, &n, &second).outcome, ROUND_NONE);
    assert_ptr_equal(data, same); /* one copy, two readers */
    t.s.fetched(t.s.self, source);
    t.s.fetched(t.s.self, second);
    assert_int_equal(fetch(&site[0], WIRE_AGGREGATE, 0, n + 1, &same, &n, &second).outcome,
                     ROUND_INVALID);
    assert_int_equal(fetch(&site[0], WIRE_SNAPSHOT, 1, 0, &data, &n, &source).outcome, ROUND_NONE);
    assert_int_equal(n, outer_state_snapshot_bytes(&t.replica, 0));
    d = digest_of(data, n);
    assert_memory_equal(&d, &p.manifest.state_after, sizeof d);
    round_all(0); /* the snapshot that is being read stays whole; the next reader gets it, later
                     ones do not */
    assert_memory_equal(&d, &p.manifest.state_after, sizeof d);
    t.s.fetched(t.s.self, source);
    assert_int_equal(fetch(&site[0], WIRE_SNAPSHOT, 1, 0, &data, &n, &source).outcome, ROUND_GONE);
    round_all(0);
    round_all(0);
    assert_int_equal(poll_round(&site[0], 0, 3).answer.outcome, ROUND_COMMIT);
    assert_int_equal(fetch(&site[0], WIRE_AGGREGATE, 0, 0, &data, &n, &source).outcome,
                     ROUND_GONE); /* older than 3 */
    shut();
}

static void a_site_that_was_away_catches_up(void **state)
{
    (void)state;
    begin(true);
    hello_all();
    struct wire_hello m = {.head = head(&site[0]),
                           .major = WIRE_MAJOR,
                           .config = canonical,
                           .has_state = true,
                           .fragment_count = P};
    struct wire_hello_answer answer;
    for (unsigned i = 0; i < P; i++)
        m.fragments[i].state = t.replica.state[i].digest;
    round_all(0);
    t.s.hello(t.s.self, uri(0), &m, &answer);
    assert_int_equal(answer.outcome, ROUND_BEHIND);
    assert_int_equal(answer.fragments[0].round, 1);
    assert_int_equal(answer.fragments[1].round, 0);
    m.fragments[0].state.bytes[0] ^= 1; /* it began from other parameters */
    t.s.hello(t.s.self, uri(0), &m, &answer);
    assert_int_equal(answer.outcome, ROUND_MISMATCH);
    m.fragments[0].state.bytes[0] ^= 1;
    m.fragments[0].manifest.bytes[0] ^= 1;
    t.s.hello(t.s.self, uri(0), &m, &answer);
    assert_int_equal(answer.outcome, ROUND_CONFLICT);
    m.fragments[0] = (struct wire_fragment_state){.round = 2};
    t.s.hello(t.s.self, uri(0), &m, &answer);
    assert_int_equal(answer.outcome, ROUND_CONFLICT);
    shut();
}

static void wait_until(uint64_t wake_ms)
{
    while (t.env->ops->now_ms(t.env) < wake_ms)
        usleep(1000);
}

/* Who may read which counters, and that they count: three rounds with a and b, one of them with c,
 * and one call of c that is refused. */
static void metrics_count_and_are_authorised(void **state)
{
    (void)state;
    static const char watcher[] = "atoll://test/observer/x";
    begin(false);
    hello_all();
    for (uint64_t round = 0; round < 3; round++) {
        assert_int_equal(contribute(&site[0], 0), ROUND_RECEIPT);
        if (round == 0)
            assert_int_equal(contribute(&site[2], 0), ROUND_RECEIPT);
        assert_int_equal(contribute(&site[1], 0), ROUND_RECEIPT);
        if (round)
            wait_until(work()); /* for c, in vain */
        work();
        assert_int_equal(t.replica.state[0].round, round + 1);
    }
    struct wire_answer all = operate(watcher, WIRE_METRICS, "", 0);
    assert_int_equal(all.outcome, ROUND_CURRENT);
    assert_int_equal(all.offset, 0);
    assert_non_null(strstr(all.text, "site=a state=bound heard_s="));
    assert_non_null(strstr(all.text, " rounds=3/3 included=1.000 payload_up="));
    assert_non_null(strstr(all.text, " rounds=1/3 included=0.333 payload_up="));
    assert_null(strstr(all.text, "refused"));
    assert_string_equal(operate(boss, WIRE_METRICS, "", 0).text, all.text);
    assert_int_equal(operate(uri(2), WIRE_METRICS, "a", 0).outcome, ROUND_DENIED);
    struct wire_answer own = operate(uri(2), WIRE_METRICS, "", 0);
    assert_int_equal(own.outcome, ROUND_CURRENT);
    assert_int_equal(strncmp(own.text, "site=c ", 7), 0);
    /* Its own line ends with the aggregator's clock, for atoll doctor; no other line does. */
    char *clock = strstr(own.text, " clock_ms=");
    assert_non_null(clock);
    assert_true(strtoull(clock + strlen(" clock_ms="), NULL, 10) > 0);
    strcpy(clock, "\n");
    assert_non_null(strstr(own.text, " refused.denied=1\n"));
    assert_null(strstr(own.text, "site=a"));
    assert_string_equal(operate(boss, WIRE_METRICS, "c", 0).text, own.text);
    assert_int_equal(operate(watcher, WIRE_METRICS, "nobody", 0).outcome, ROUND_INVALID);
    assert_int_equal(operate("atoll://test/site/nobody", WIRE_METRICS, "", 0).outcome,
                     ROUND_DENIED);
    assert_int_equal(operate("atoll://other/observer/x", WIRE_METRICS, "", 0).outcome,
                     ROUND_DENIED);
    assert_int_equal(operate(uri(2), WIRE_RECORDS, "", 0).outcome, ROUND_DENIED);
    assert_int_equal(operate(watcher, WIRE_STATUS, "", 0).outcome, ROUND_DENIED);
    assert_non_null(strstr(operate(watcher, WIRE_RECORDS, "", 0).text, "keeps no records"));
    struct wire_operate m = {.act = WIRE_METRICS, .to = 1};
    struct wire_answer rest;
    t.s.operate(t.s.self, watcher, &m, &rest);
    assert_null(strstr(rest.text, "site=a"));
    assert_non_null(strstr(rest.text, "site=b"));
    m.to = 3;
    t.s.operate(t.s.self, watcher, &m, &rest);
    assert_int_equal(rest.outcome, ROUND_INVALID);
    shut();
}

static void a_quorum_goes_on_at_the_deadline(void **state)
{
    (void)state;
    begin(false);
    hello_all();
    assert_int_equal(contribute(&site[0], 0), ROUND_RECEIPT);
    assert_int_equal(contribute(&site[2], 0), ROUND_RECEIPT);
    assert_int_equal(t.replica.state[0].round, 0);
    size_t n;
    void *upload;
    uint8_t *payload = payload_of(1, 0, &n);
    struct wire_contribution m = header(&site[1], 0, payload, n);
    assert_int_equal(offer(&site[1], &m, &upload).outcome, ROUND_RESUME);
    wait_until(work());
    work();
    assert_int_equal(t.replica.state[0].round, 1);
    assert_int_equal(chunk(upload, payload, 0, 50).outcome,
                     ROUND_BEHIND); /* the rest of the bytes is spared */
    finish(upload, false);
    assert_int_equal(offer(&site[1], &m, &upload).outcome, ROUND_BEHIND);
    struct wire_poll_answer p = poll_round(&site[1], 0, 0);
    assert_int_equal(manifest_included(&p.manifest), 2);
    assert_false(p.manifest.sites[1].included);
    assert_true(p.manifest.sites[0].included && p.manifest.sites[2].included);
    free(payload);
    shut();
}

/* The quorum's commit comes while a contribution is being verified, or written: its files stay
 * until it is out of there, it counts nowhere, and the round's directory goes anyway. */
static int part_inode(const char *name, ino_t *inode)
{
    char path[400];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", t.root, name);
    int found = stat(path, &st);
    *inode = found == 0 ? st.st_ino : 0;
    return found;
}

/* Half of a contribution has arrived. -> where the site would continue after a restart */
static uint64_t half_arrived(bool killed)
{
    size_t n;
    void *upload;
    char ended[100];
    begin(true);
    hello_all();
    uint8_t *payload = payload_of(0, 0, &n);
    struct wire_contribution m = header(&site[0], 0, payload, n);
    assert_int_equal(offer(&site[0], &m, &upload).outcome, ROUND_RESUME);
    assert_int_equal(chunk(upload, payload, 0, n / 2).outcome, ROUND_NONE);
    finish(upload, false);
    shut();
    snprintf(ended, sizeof ended, "%s/ended", t.root);
    if (killed)
        assert_int_equal(unlink(ended), 0);
    assert_int_equal(try_open(), ERR_OK);
    assert_false(file_exists(ended));
    hello_all();
    m = header(&site[0], 0, payload, n);
    struct wire_answer answer = offer(&site[0], &m, &upload);
    assert_int_equal(answer.outcome, ROUND_RESUME);
    assert_int_equal(chunk(upload, payload, answer.offset, n).outcome, ROUND_NONE);
    assert_int_equal(finish(upload, true).outcome, ROUND_RECEIPT);
    free(payload);
    shut();
    assert_int_equal(file_remove_tree(t.root), ERR_OK);
    return answer.offset;
}

/* What arrived in part before a kill may be in memory alone, marked clean by an fsync that failed:
 * it is asked for again. After an orderly end the site continues where it was. */
static void parts_are_believed_after_an_orderly_end_only(void **state)
{
    (void)state;
    assert_true(half_arrived(false) > 0);
    assert_int_equal(half_arrived(true), 0);
}

/* For the same reason every start continues in a new file of the journal, with the same records. */
static void the_journal_is_copied_at_each_start(void **state)
{
    (void)state;
    ino_t before, after;
    begin(true);
    hello_all();
    assert_int_equal(contribute(&site[0], 0), ROUND_RECEIPT);
    assert_int_equal(part_inode("journal", &before), 0);
    crash();
    assert_int_equal(part_inode("journal", &after), 0);
    assert_int_not_equal(before, after);
    hello_all();
    assert_int_equal(contribute(&site[0], 0), ROUND_RECEIPT); /* known: nothing is sent */
    shut();
}

/* No space at the fsync: the file that it left is never used again. */
static void a_full_disk_at_the_fsync(void **state)
{
    (void)state;
    ino_t before, after;
    begin(true);
    hello_all();
    fail_sync = ".part";
    assert_int_equal(contribute(&site[0], 0), ROUND_FULL);
    assert_null(fail_sync);
    assert_int_equal(contribute(&site[0], 0), ROUND_RECEIPT);
    assert_int_equal(part_inode("journal", &before), 0);
    fail_sync = "journal";
    assert_int_equal(contribute(&site[1], 0), ROUND_FULL);
    assert_int_equal(contribute(&site[1], 0), ROUND_RECEIPT);
    assert_int_equal(part_inode("journal", &after), 0);
    assert_int_not_equal(before, after);
    assert_int_equal(contribute(&site[2], 0), ROUND_RECEIPT);
    assert_int_equal(t.replica.state[0].round, 1);
    crash();
    assert_int_equal(t.replica.state[0].round, 1);
    shut();
}

static void a_commit_while_one_is_verified(void **state)
{
    (void)state;
    struct wire_answer answer;
    size_t n;
    void *upload, *other;
    begin(false);
    hello_all();
    uint8_t *payload = payload_of(1, 0, &n);
    struct wire_contribution m = header(&site[1], 0, payload, n);
    assert_int_equal(offer(&site[1], &m, &upload).outcome, ROUND_RESUME);
    assert_int_equal(chunk(upload, payload, 0, n).outcome, ROUND_NONE);
    t.s.finish(t.s.self, upload, true, &answer);
    assert_int_equal(answer.outcome, ROUND_PENDING);
    answer = offer(&site[1], &m,
                   &other); /* its connection broke: not while a thread is inside the file */
    assert_int_equal(answer.outcome, ROUND_FULL);
    assert_in_range(answer.retry_ms, 1, 1000);
    assert_int_equal(contribute(&site[0], 0), ROUND_RECEIPT);
    assert_int_equal(contribute(&site[2], 0), ROUND_RECEIPT);
    wait_until(work());
    work();
    assert_int_equal(t.replica.state[0].round, 1);
    assert_true(t.env->ops->exists(t.env, "spool/0/0"));
    t.s.verify(t.s.self, upload);
    t.s.verified(t.s.self, upload, &answer);
    assert_int_equal(answer.outcome, ROUND_BEHIND);
    assert_false(t.env->ops->exists(t.env, "spool/0/0"));
    assert_int_equal(aggregator_failed(t.a), ERR_OK);
    struct wire_poll_answer p = poll_round(&site[1], 0, 0);
    assert_false(p.manifest.sites[1].included);
    free(payload);
    shut();
}

/* ---- while a round is committed ---- */

/* work() and commit() in turns, as the link calls them: from the place `from` to the place `to`. */
enum { SEALED, BEGUN, MADE, PASSING, PASSED, SWITCHED, CLEARED, ENDED };

static void stages(unsigned from, unsigned to)
{
    bool stop;
    for (; from < to; from++)
        if (from % 2)
            assert_true(t.s.commit(t.s.self));
        else
            t.s.work(t.s.self, &stop);
    if (to == ENDED)
        assert_false(t.s.commit(t.s.self));
}

/* Round `round` of fragment 0 has all contributions, and its commit came as far as `place`. */
static void begin_commit(unsigned place)
{
    t.held = true;
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(contribute(&site[i], 0), ROUND_RECEIPT);
    stages(SEALED, place);
}

static void end_commit(unsigned place)
{
    stages(place, ENDED);
    t.held = false;
}

static struct digest snapshot_of(struct fake *f, uint64_t round)
{
    const uint8_t *data;
    size_t n;
    void *source;
    assert_int_equal(fetch(f, WIRE_SNAPSHOT, round, 0, &data, &n, &source).outcome, ROUND_NONE);
    struct digest d = digest_of(data, n);
    t.s.fetched(t.s.self, source);
    return d;
}

static void a_kill_anywhere_in_a_commit(void **state)
{
    struct digest want = {0};
    for (unsigned place = SEALED; place <= ENDED; place++) {
        fresh(state);
        begin(true);
        hello_all();
        begin_commit(place);
        t.held = false;
        crash();
        hello_all();
        work();
        assert_int_equal(t.replica.state[0].round, 1);
        assert_false(t.env->ops->exists(t.env, "spool/0/0"));
        struct digest d = t.replica.state[0].digest;
        want = place ? want : d;
        assert_memory_equal(&d, &want, sizeof d);
        round_all(0);
        shut();
    }
}

/* Sites see the state before until the next one is in force, and never half of it. */
static void calls_while_a_round_is_committed(void **state)
{
    const uint8_t *data;
    size_t n;
    void *source;
    for (unsigned place = BEGUN; place <= PASSED; place++) {
        fresh(state);
        begin(true);
        hello_all();
        struct digest before = t.replica.state[0].digest;
        begin_commit(place);
        assert_int_equal(hello(&site[1], true).outcome, ROUND_CURRENT);
        assert_int_equal(poll_round(&site[0], 0, 0).answer.outcome, ROUND_PENDING);
        assert_int_equal(report(&site[2], 0), ROUND_CURRENT);
        assert_int_equal(contribute(&site[2], 1), ROUND_RECEIPT); /* to the other fragment */
        if (place < PASSING) {
            struct digest d = snapshot_of(&site[1], 0);
            assert_memory_equal(&d, &before, sizeof d);
        } else {
            struct wire_answer full = fetch(&site[1], WIRE_SNAPSHOT, 0, 0, &data, &n, &source);
            assert_int_equal(full.outcome, ROUND_FULL);
            assert_true(full.retry_ms > 0);
        }
        end_commit(place);
        struct digest after = t.replica.state[0].digest, d = snapshot_of(&site[1], 1);
        assert_memory_equal(&d, &after, sizeof d);
        assert_int_equal(poll_round(&site[0], 0, 0).answer.outcome, ROUND_COMMIT);
        assert_int_equal(contribute(&site[0], 1), ROUND_RECEIPT);
        assert_int_equal(contribute(&site[1], 1), ROUND_RECEIPT);
        assert_int_equal(t.replica.state[1].round, 1);
        round_all(0);
        shut();
    }
}

/* Taken until the commit point, answered `full` from there on; what is answered is what happens. */
static void an_act_while_a_round_is_committed(void **state)
{
    const struct digest by = digest_of(boss, strlen(boss));
    for (unsigned place = BEGUN; place <= PASSED; place++) {
        fresh(state);
        begin(true);
        hello_all();
        struct digest before = t.replica.state[0].digest;
        begin_commit(place);
        struct wire_answer answer = operate(boss, WIRE_ABORT, "", 0);
        assert_int_equal(answer.outcome, place < PASSING ? ROUND_CURRENT : ROUND_FULL);
        t.held = false;
        work();
        assert_int_equal(t.replica.state[0].round, 1);
        struct wire_poll_answer p = poll_round(&site[0], 0, 0);
        assert_int_equal(p.answer.outcome, ROUND_COMMIT);
        assert_int_equal(manifest_aborted(&p.manifest), place < PASSING);
        assert_int_equal(digest_equal(&p.manifest.ordered_by, &by), place < PASSING);
        assert_int_equal(digest_equal(&before, &t.replica.state[0].digest), place < PASSING);
        assert_int_equal(operate(boss, WIRE_ABORT, "", 0).outcome, ROUND_BEHIND);
        round_all(0);
        crash();
        assert_int_equal(t.replica.state[0].round, 2);
        shut();
    }
}

/* What is no longer stored is not needed either. */
static void an_act_while_a_payload_turns_out_lost(void **state)
{
    (void)state;
    size_t n;
    char path[256];
    begin(true);
    hello_all();
    uint8_t *payload = payload_of(1, 0, &n);
    struct digest d = digest_of(payload, n);
    char hex[65];
    digest_hex(&d, hex);
    snprintf(path, sizeof path, "spool/0/0/b.%s", hex);
    begin_commit(BEGUN);
    assert_true(t.env->ops->exists(t.env, path));
    assert_int_equal(t.env->ops->remove(t.env, path), ERR_OK);
    stages(BEGUN, MADE);
    assert_int_equal(operate(boss, WIRE_ABORT, "", 0).outcome, ROUND_CURRENT);
    t.held = false;
    work();
    assert_int_equal(t.replica.state[0].round, 1);
    struct wire_poll_answer p = poll_round(&site[0], 0, 0);
    assert_true(manifest_aborted(&p.manifest));
    round_all(0);
    free(payload);
    shut();
}

static void a_rollback_while_a_round_is_committed(void **state)
{
    (void)state;
    begin(true);
    hello_all();
    round_all(0);
    struct digest kept = t.replica.state[0].digest;
    round_all(0);
    begin_commit(MADE);
    assert_int_equal(roll_back(2, 1), ROUND_CURRENT);
    t.held = false;
    work();
    assert_int_equal(t.replica.state[0].round, 3);
    assert_memory_equal(&t.replica.state[0].digest, &kept, sizeof kept);
    assert_true(poll_round(&site[0], 0, 2).manifest.rolled_back);
    shut();
}

/* What was accepted of a site before it was kept out stays in its round. */
static void a_quarantine_while_a_round_is_committed(void **state)
{
    for (unsigned place = BEGUN; place <= PASSED; place++) {
        fresh(state);
        begin(true);
        hello_all();
        begin_commit(place);
        assert_int_equal(operate(boss, WIRE_QUARANTINE, "b", 0).outcome, ROUND_CURRENT);
        end_commit(place);
        struct wire_poll_answer p = poll_round(&site[0], 0, 0);
        assert_int_equal(manifest_included(&p.manifest), N);
        assert_int_equal(hello(&site[1], true).outcome, ROUND_EXCLUDED);
        shut();
    }
}

/* The disk is full while the next state is written, and where CURRENT is: the old one stays, and
 * the commit is tried again. */
static void a_full_disk_in_a_commit(void **state)
{
    static const char *const files[] = {"state.tmp", "CURRENT.tmp"};
    for (unsigned i = 0; i < 2; i++) {
        fresh(state);
        begin(true);
        hello_all();
        assert_int_equal(t.env->ops->remove(t.env, "reserve"), ERR_OK);
        begin_commit(i ? PASSING : BEGUN);
        fail_sync = files[i];
        stages(i ? PASSING : BEGUN, (i ? PASSED : MADE) + 1);
        assert_null(fail_sync);
        assert_int_equal(aggregator_failed(t.a), ERR_OK);
        assert_int_equal(t.replica.state[0].round, 0);
        t.held = false;
        assert_int_equal(hello(&site[1], true).outcome, ROUND_CURRENT);
        wait_until(work());
        work();
        assert_int_equal(t.replica.state[0].round, 1);
        assert_int_equal(poll_round(&site[0], 0, 0).answer.outcome, ROUND_COMMIT);
        round_all(0);
        shut();
    }
}

/* The deadline passes while the last contribution is being verified, and no thread has looked at
 * the clock since: the round is sealed by the question whether it may still come. */
static void a_deadline_while_one_is_verified(void **state)
{
    (void)state;
    struct wire_answer answer;
    size_t n;
    void *upload;
    begin(false);
    t.straggler_ms = 60000;
    crash();
    clock_put_later(0);
    hello_all();
    uint8_t *payload = payload_of(1, 0, &n);
    struct wire_contribution m = header(&site[1], 0, payload, n);
    assert_int_equal(offer(&site[1], &m, &upload).outcome, ROUND_RESUME);
    assert_int_equal(chunk(upload, payload, 0, n).outcome, ROUND_NONE);
    assert_int_equal(contribute(&site[0], 0), ROUND_RECEIPT);
    assert_int_equal(contribute(&site[2], 0), ROUND_RECEIPT);
    t.s.finish(t.s.self, upload, true, &answer);
    assert_int_equal(answer.outcome, ROUND_PENDING);
    t.s.verify(t.s.self, upload);
    later_ms = 90000;
    t.s.verified(t.s.self, upload, &answer);
    assert_int_equal(answer.outcome, ROUND_LATE);
    work();
    assert_int_equal(t.replica.state[0].round, 1);
    struct wire_poll_answer p = poll_round(&site[1], 0, 0);
    assert_false(p.manifest.sites[1].included);
    assert_int_equal(aggregator_failed(t.a), ERR_OK);
    later_ms = 0;
    free(payload);
    shut();
}

static void a_commit_while_one_is_written(void **state)
{
    (void)state;
    struct wire_answer answer;
    size_t n;
    void *upload, *next;
    begin(false);
    hello_all();
    uint8_t *payload = payload_of(1, 0, &n);
    struct wire_contribution m = header(&site[1], 0, payload, n);
    assert_int_equal(offer(&site[1], &m, &upload).outcome, ROUND_RESUME);
    t.s.chunk(t.s.self, upload, 0, payload, n, &answer);
    assert_int_equal(answer.outcome, ROUND_PENDING);
    assert_int_equal(contribute(&site[0], 0), ROUND_RECEIPT);
    assert_int_equal(contribute(&site[2], 0), ROUND_RECEIPT);
    wait_until(work());
    work();
    assert_int_equal(t.replica.state[0].round, 1);
    size_t next_bytes;
    uint8_t *next_payload = payload_of(1, 0, &next_bytes);
    m = header(&site[1], 0, next_payload, next_bytes); /* of the next round: another file */
    assert_int_equal(offer(&site[1], &m, &next).outcome, ROUND_RESUME);
    enum err e = t.s.store(t.s.self, upload, 0, payload, n);
    t.s.stored(t.s.self, upload, 0, n, e, &answer);
    assert_int_equal(answer.outcome, ROUND_SUPERSEDED);
    finish(upload, false);
    finish(next, false);
    assert_int_equal(contribute(&site[1], 0), ROUND_RECEIPT);
    assert_int_equal(aggregator_failed(t.a), ERR_OK);
    free(next_payload);
    free(payload);
    shut();
}

/* ---- disk full ---- */

static void fill_but(const char *path, size_t leave)
{
    uint64_t left;
    char block[4096] = {1};
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    while (file_free_bytes(t.root, &left) == ERR_OK && left >= leave + sizeof block &&
           fwrite(block, sizeof block, 1, f))
        fflush(f);
    fclose(f);
}

static void a_full_disk_refuses_then_goes_on(void **state)
{
    (void)state;
    char filler[100];
    assert_int_equal(file_mkdirs(t.root), ERR_OK);
    if (mount("tmpfs", t.root, "tmpfs", 0, "size=4m") != 0) {
        print_message("SKIPPED: a full disk needs the right to mount a tmpfs (%s)\n",
                      strerror(errno));
        skip();
    }
    snprintf(filler, sizeof filler, "%s/filler", t.root);
    begin(true);
    hello_all();
    /* no room for a payload: said before a byte is sent, and the site may come again */
    size_t n;
    void *upload;
    uint8_t *payload = payload_of(0, 0, &n);
    fill_but(filler, 0);
    struct wire_contribution m = header(&site[0], 0, payload, n);
    struct wire_answer answer = offer(&site[0], &m, &upload);
    assert_int_equal(answer.outcome, ROUND_FULL);
    assert_true(answer.retry_ms > 0);
    assert_int_equal(aggregator_failed(t.a), ERR_OK);
    unlink(filler);
    for (unsigned i = 0; i < N - 1; i++)
        assert_int_equal(contribute(&site[i], 0), ROUND_RECEIPT);
    free(payload);
    payload = payload_of(2, 0, &n);
    m = header(&site[2], 0, payload, n);
    assert_int_equal(offer(&site[2], &m, &upload).outcome, ROUND_RESUME);
    chunk(upload, payload, 0, n);
    fill_but(filler, 8192); /* the ACCEPT fits, the state does not: the reserve does */
    assert_int_equal(finish(upload, true).outcome, ROUND_RECEIPT);
    assert_true(t.env->ops->exists(t.env, "reserve"));
    work();
    assert_int_equal(aggregator_failed(t.a), ERR_OK);
    assert_int_equal(t.replica.state[0].round, 1);
    /* and without any reserve the round stalls, and ends when there is room */
    unlink(filler);
    for (unsigned i = 0; i < N - 1; i++)
        assert_int_equal(contribute(&site[i], 0), ROUND_RECEIPT);
    free(payload);
    payload = payload_of(2, 0, &n);
    m = header(&site[2], 0, payload, n);
    assert_int_equal(offer(&site[2], &m, &upload).outcome, ROUND_RESUME);
    chunk(upload, payload, 0, n);
    assert_int_equal(t.env->ops->remove(t.env, "reserve"), ERR_OK);
    fill_but(filler, 8192);
    assert_int_equal(finish(upload, true).outcome, ROUND_RECEIPT);
    uint64_t wake_ms = work();
    assert_int_equal(t.replica.state[0].round, 1);
    assert_int_equal(aggregator_failed(t.a), ERR_OK);
    assert_in_range(wake_ms - t.env->ops->now_ms(t.env), 1, 10000);
    unlink(filler);
    crash(); /* sooner than the retry: the journal knows all three */
    hello_all();
    assert_int_equal(t.replica.state[0].round, 2);
    free(payload);
    /* a site that has told of the last state leaves: not before that is on record */
    for (unsigned p = 0; p < P; p++)
        while (t.replica.state[p].round < schedule_rounds(&t.schedule, p))
            round_all(p);
    fill_but(filler, 0);
    assert_int_equal(report(&site[0], 0), ROUND_CURRENT);
    assert_int_equal(report(&site[0], 1), ROUND_FULL);
    assert_int_equal(hello(&site[1], true).outcome, ROUND_FULL);
    unlink(filler);
    assert_int_equal(aggregator_failed(t.a), ERR_OK);
    assert_int_equal(report(&site[0], 1), ROUND_CURRENT);
    for (unsigned i = 1; i < N; i++)
        assert_int_equal(hello(&site[i], true).outcome, ROUND_CURRENT);
    crash();
    assert_true(aggregator_done(t.a));
    shut();
    assert_int_equal(umount(t.root), 0);
}

/* ---- frame ---- */

static void no_log(void *self, enum log_level level, const char *line)
{
    (void)self;
    if (level == LOG_DEBUG || getenv("VERBOSE"))
        fprintf(stderr, "%s\n", line);
}

static int open_all(void **state)
{
    (void)state;
    static struct tensor tensors[TOY_TENSORS_MAX];
    log_to(no_log, NULL);
    snprintf(t.root, sizeof t.root, "%s/test_aggregator.%d", scratch_place(), (int)getpid());
    snprintf(t.revoked, sizeof t.revoked, "%s.revoked", t.root);
    t.forever = arena_make(0);
    t.table = toy_table(tensors, 4);
    t.slab = toy_slab(&t.table, &t.forever);
    t.schedule = schedule_streaming(20, 4, P, 1, CODEC_INT4);
    return !t.slab || toy_device(&t.cpu, &t.work) != ERR_OK ||
           fragment_make(&t.fragments, &t.table, &(struct fragment_plan){.count = P}, &t.forever) !=
               ERR_OK;
}

static int close_all(void **state)
{
    int failed = fresh(state);
    codec_close(t.work);
    dev_close(t.cpu);
    arena_free(&t.forever);
    return failed;
}

/* TEST, --mutant NAME: tests/sim/mutants.h */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_disturbed_run_ends_with_the_same_bytes, fresh),
        cmocka_unit_test_setup(finished_across_restarts, fresh),
        cmocka_unit_test_setup(the_outer_step_is_the_weighted_mean, fresh),
        cmocka_unit_test_setup(a_newer_stream_supersedes_the_older, fresh),
        cmocka_unit_test_setup(a_failed_aggregator_answers_full, fresh),
        cmocka_unit_test_setup(bad_headers_store_nothing, fresh),
        cmocka_unit_test_setup(bad_payloads_are_never_accepted, fresh),
        cmocka_unit_test_setup(a_loud_contribution_is_clipped, fresh),
        cmocka_unit_test_setup(norms_out_of_bounds_are_refused, fresh),
        cmocka_unit_test_setup(alarms_and_acts_are_limited, fresh),
        cmocka_unit_test_setup(three_refusals_are_a_quarantine, fresh),
        cmocka_unit_test_setup(processes_of_a_site_say_hello_for_their_fragments, fresh),
        cmocka_unit_test_setup(each_call_is_authorised, fresh),
        cmocka_unit_test_setup(metrics_count_and_are_authorised, fresh),
        cmocka_unit_test_setup(an_operator_aborts_a_round, fresh),
        cmocka_unit_test_setup(an_operator_rolls_back, fresh),
        cmocka_unit_test_setup(an_operator_keeps_a_site_out, fresh),
        cmocka_unit_test_setup(a_site_joins_and_one_leaves, fresh),
        cmocka_unit_test_setup(a_roster_outlives_the_journal, fresh),
        cmocka_unit_test_setup(a_record_of_no_organ_is_refused, fresh),
        cmocka_unit_test_setup(a_roster_has_bounds, fresh),
        cmocka_unit_test_setup(a_quarantine_cuts_open_streams, fresh),
        cmocka_unit_test_setup(strict_mode_waits_for_a_quarantined_site, fresh),
        cmocka_unit_test_setup(three_clipped_rounds_are_a_quarantine, fresh),
        cmocka_unit_test_setup(a_round_that_cannot_be_applied_is_aborted, fresh),
        cmocka_unit_test_setup(the_log_says_who_is_waited_for, fresh),
        cmocka_unit_test_setup(the_log_says_whose_report_is_missing, fresh),
        cmocka_unit_test_setup(only_the_named_site_is_served, fresh),
        cmocka_unit_test_setup(refusals_are_logged_for_each_caller_and_few, fresh),
        cmocka_unit_test_setup(a_revoked_stream_counts_nowhere, fresh),
        cmocka_unit_test_setup(a_second_process_of_a_site_is_refused, fresh),
        cmocka_unit_test_setup(an_accept_counts_again_only_after_hello, fresh),
        cmocka_unit_test_setup(a_durable_payload_without_record_is_taken_up, fresh),
        cmocka_unit_test_setup(a_lost_payload_is_asked_for_again, fresh),
        cmocka_unit_test_setup(a_quorum_waits_again_for_a_lost_payload, fresh),
        cmocka_unit_test_setup(an_older_copy_of_the_state_halts, fresh),
        cmocka_unit_test_setup(another_runs_directory_is_refused, fresh),
        cmocka_unit_test_setup(terms_rise_and_the_spool_is_swept, fresh),
        cmocka_unit_test_setup(what_is_lost_begins_nothing_anew, fresh),
        cmocka_unit_test_setup(a_damaged_term_is_counted_on, fresh),
        cmocka_unit_test_setup(term_and_journal_lost_is_for_a_person, fresh),
        cmocka_unit_test_setup(a_first_start_that_was_killed_begins_again, fresh),
        cmocka_unit_test_setup(snapshots_that_are_held_are_limited, fresh),
        cmocka_unit_test_setup(commits_are_told_and_fetched, fresh),
        cmocka_unit_test_setup(a_site_that_was_away_catches_up, fresh),
        cmocka_unit_test_setup(a_quorum_goes_on_at_the_deadline, fresh),
        cmocka_unit_test_setup(a_full_disk_at_the_fsync, fresh),
        cmocka_unit_test_setup(the_journal_is_copied_at_each_start, fresh),
        cmocka_unit_test_setup(parts_are_believed_after_an_orderly_end_only, fresh),
        cmocka_unit_test_setup(a_kill_anywhere_in_a_commit, fresh),
        cmocka_unit_test_setup(calls_while_a_round_is_committed, fresh),
        cmocka_unit_test_setup(an_act_while_a_round_is_committed, fresh),
        cmocka_unit_test_setup(an_act_while_a_payload_turns_out_lost, fresh),
        cmocka_unit_test_setup(a_rollback_while_a_round_is_committed, fresh),
        cmocka_unit_test_setup(a_quarantine_while_a_round_is_committed, fresh),
        cmocka_unit_test_setup(a_full_disk_in_a_commit, fresh),
        cmocka_unit_test_setup(a_commit_while_one_is_verified, fresh),
        cmocka_unit_test_setup(a_deadline_while_one_is_verified, fresh),
        cmocka_unit_test_setup(a_commit_while_one_is_written, fresh),
        cmocka_unit_test_setup(a_full_disk_refuses_then_goes_on, fresh),
    };
    if (!mutant_arguments(argc, argv, cmocka_set_test_filter))
        return 2;
    return cmocka_run_group_tests(tests, open_all, close_all);
}
