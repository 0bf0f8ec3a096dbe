/* SPDX-License-Identifier: Apache-2.0 */
/* The aggregator's own encoding, compared with the same in float64. If these break, sites that many
 * sites join lose a part of what they trained, or a restarted aggregator commits other bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>
#include "kernels/base/file.h"
#include "kernels/base/log.h"
#include "kernels/base/rng.h"
#include "outer/aggregator/aggregator.h"
#include "outer/store/downlink.h"
#include "tests/outer/toy.h"

enum { SITES = 4, FROM = 3, ELEMENTS_MAX = 8192, BYTES_MAX = 1 << 17, SEED = 5 };

static struct dev *cpu;
static struct tensor tensors[TOY_TENSORS_MAX];
static struct table table;
static struct arena arena;
static struct fragments fragments;
static struct schedule schedule;
static char root[64];
static float initial[ELEMENTS_MAX];
static char *roster[SITES] = {"a", "b", "c", "d"};

struct node {
    struct env *env;
    struct outer_state replica;
    struct arena arena;
};

static void node_open(struct node *n, const char *name, bool site)
{
    struct outer_state_options o = {.fragments = &fragments,
                                    .schedule = schedule,
                                    .residuals = site,
                                    .keep = 3,
                                    .remake = aggregator_remake,
                                    .remake_self = roster};
    char path[128];
    *n = (struct node){.arena = arena_make(0)};
    assert_int_equal(outer_opt_make(&o.outer, OUTER_OPT_MOMENTUM, 0.7f, 0.9f), ERR_OK);
    if (!site)
        outer_state_aggregates(&o, SITES);
    snprintf(path, sizeof path, "%s/%s", root, name);
    assert_int_equal(env_posix_open(&n->env, path), ERR_OK);
    assert_int_equal(outer_state_open(&n->replica, n->env, cpu, &o, &n->arena), ERR_OK);
}

static void node_close(struct node *n)
{
    outer_state_close(&n->replica);
    env_posix_close(n->env);
    arena_free(&n->arena);
}

static void nodes(struct node *a, struct node *s, const char *name, enum codec_kind codec,
                  uint8_t residual_reset)
{
    char path[64];
    schedule = schedule_streaming(1000, 10, 1, 1, codec);
    schedule.downlink_compression_from = FROM;
    schedule.residual_reset = residual_reset;
    snprintf(path, sizeof path, "%s-a", name);
    node_open(a, path, false);
    snprintf(path, sizeof path, "%s-s", name);
    node_open(s, path, true);
    assert_int_equal(outer_state_begin(&a->replica, initial), ERR_OK);
    assert_int_equal(outer_state_begin(&s->replica, initial), ERR_OK);
}

struct made {
    struct manifest manifest;
    struct codec_payload payloads[SITES];
    uint8_t aggregate[BYTES_MAX];
    size_t bytes;
    double sum[ELEMENTS_MAX]; /* of what the contributions decode to */
};

/* Contributions of the first `included` sites; deltas of scales that differ by block and site. */
static void contribute(struct made *r, struct outer_state *m, unsigned included)
{
    static float z[ELEMENTS_MAX], left[ELEMENTS_MAX];
    const struct outer_state_fragment *s = &m->state[0];
    const struct codec *c = codec_get(outer_state_codec(m, 0));
    size_t n = fragments.f[0].elements;
    memset(r->sum, 0, sizeof r->sum);
    r->manifest = (struct manifest){.run = "t",
                                    .round = s->round,
                                    .parent = s->manifest,
                                    .codec = c->kind,
                                    .site_count = SITES};
    for (unsigned i = 0; i < SITES; i++) {
        uint8_t *payload = arena_alloc(&arena, c->payload_max(c, n));
        assert_non_null(payload);
        for (size_t k = 0; k < n; k++)
            z[k] = ldexpf((float)rng_below(SEED + i, RNG_TEST, s->round << 20 | k, 2001) - 900,
                          -20 - (int)(k / DEV_BLOCK % 5));
        r->payloads[i].data = payload;
        codec_seed(m->work, SEED, i, 0, s->round);
        assert_int_equal(
            c->encode(c, &(struct codec_call){.work = m->work, .grid = s->codes, .count = n},
                      payload, &r->payloads[i].size_bytes, left, z),
            ERR_OK);
        r->manifest.sites[i] = (struct manifest_entry){.site = i};
        if (i >= included)
            continue;
        for (size_t k = 0; k < n; k++)
            r->sum[k] += (double)z[k] - (double)left[k];
        r->manifest.sites[i] =
            (struct manifest_entry){.site = i,
                                    .included = true,
                                    .weight = 1,
                                    .payload = digest_of(payload, r->payloads[i].size_bytes),
                                    .payload_bytes = r->payloads[i].size_bytes};
    }
}

/* What aggregator_commit.c does with it. */
static void aggregate(struct made *r, struct outer_state *m, unsigned included)
{
    const struct codec *c = codec_get(outer_state_codec(m, 0));
    size_t n = fragments.f[0].elements;
    assert_true(c->aggregate_max(c, n, schedule_payloads(&schedule, c->kind, included)) <=
                BYTES_MAX);
    outer_state_own_keep(m, 0);
    if (schedule_compresses_downlink(&schedule, c->kind, included))
        assert_int_equal(downlink_sum(m, 0, r->aggregate, &r->bytes,
                                      &(struct downlink_input){r->payloads, included}, &arena),
                         ERR_OK);
    else
        assert_int_equal(c->aggregate(c, &(struct codec_call){.work = m->work, .count = n},
                                      r->aggregate, &r->bytes, r->payloads, included),
                         ERR_OK);
    assert_true(r->bytes <=
                c->aggregate_max(c, n, schedule_payloads(&schedule, c->kind, included)));
}

static void commit(struct made *r, struct outer_state *m, bool made)
{
    assert_int_equal(made ? outer_state_apply(m, &r->manifest, r->aggregate, r->bytes)
                          : outer_state_replay(m, &r->manifest, r->aggregate, r->bytes),
                     ERR_OK);
    if (made)
        assert_int_equal(downlink_residual_ratio(m, 0, &r->manifest, &r->manifest.residual_ratio),
                         ERR_OK);
    else
        memset(m->next.residual, 0, fragments.f[0].elements * sizeof(float));
    assert_int_equal(outer_state_commit(m, 0, &r->manifest, r->aggregate, r->bytes), ERR_OK);
}

/* What one payload alone says: after the size, 8 bytes. */
static void passed_on(const struct made *r, struct outer_state *m, float *out)
{
    const struct codec *c = codec_get((enum codec_kind)r->manifest.codec);
    assert_int_equal(c->check(c, &(struct codec_call){.count = fragments.f[0].elements}, NULL,
                              r->aggregate + 8, r->bytes - 8),
                     ERR_OK);
    assert_int_equal(c->decode(c,
                               &(struct codec_call){.work = m->work,
                                                    .grid = m->state[0].codes,
                                                    .count = fragments.f[0].elements},
                               out, r->aggregate + 8, r->bytes - 8),
                     ERR_OK);
}

/* DiLoCo's step and the residual in float64, six rounds, all sites; the aggregator restarts before
 * each. Over the run: all that was included = all that was passed on + the residual. */
static void beside_float64(enum codec_kind codec)
{
    static struct made r;
    static double theta[ELEMENTS_MAX], momentum[ELEMENTS_MAX], residual[ELEMENTS_MAX],
        all[ELEMENTS_MAX];
    static float sent[ELEMENTS_MAX], start[ELEMENTS_MAX];
    struct node a, s;
    char name[64];
    const char *codec_name = codec_get(codec)->name;
    double lost = 0;
    nodes(&a, &s, codec_name, codec, 0);
    snprintf(name, sizeof name, "%s-a", codec_name);
    fragment_gather(cpu, start, initial, &fragments.f[0]);
    size_t n = fragments.f[0].elements;
    memset(momentum, 0, sizeof momentum);
    memset(residual, 0, sizeof residual);
    memset(all, 0, sizeof all);
    for (size_t k = 0; k < n; k++)
        theta[k] = (double)start[k];
    for (uint64_t t = 0; t < 6; t++) {
        node_close(&a);
        node_open(&a, name, false);
        assert_int_equal(outer_state_load(&a.replica), ERR_OK);
        contribute(&r, &a.replica, SITES);
        aggregate(&r, &a.replica, SITES);
        passed_on(&r, &a.replica, sent);
        commit(&r, &a.replica, true);
        commit(&r, &s.replica, false);
        assert_true(digest_equal(&a.replica.state[0].digest, &s.replica.state[0].digest));
        for (size_t k = 0; k < n; k++) {
            residual[k] += r.sum[k] - (double)sent[k];
            all[k] += r.sum[k] - (double)sent[k];
            assert_true(fabs(residual[k] - (double)a.replica.state[0].residual[k]) < 1e-8);
            momentum[k] = 0.9 * momentum[k] + (double)sent[k] / SITES;
            theta[k] -= 0.7 * (0.9 * momentum[k] + (double)sent[k] / SITES);
            assert_true(fabs(theta[k] - (double)s.replica.state[0].theta[k]) < 1e-6);
            lost += fabs(residual[k]);
        }
    }
    for (size_t k = 0; k < n; k++)
        assert_true(fabs(all[k] - (double)a.replica.state[0].residual[k]) < 1e-8);
    assert_true((lost > 0) == (codec != CODEC_F32)); /* so there was something to keep */
    node_close(&a);
    node_close(&s);
}

static void test_beside_float64(void **state)
{
    (void)state;
    static const enum codec_kind codecs[] = {CODEC_F32,      CODEC_BF16,     CODEC_E3M0,
                                             CODEC_FP8_E4M3, CODEC_FP8_E5M2, CODEC_FP8_SR,
                                             CODEC_TOPK};
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++)
        beside_float64(codecs[i]);
}

/* A full-precision round leaves the grid that relaying it leaves, not that of the larger sum. */
static void test_grid_is_as_relayed(void **state)
{
    (void)state;
    static struct made r;
    static float mean[ELEMENTS_MAX];
    static uint8_t relayed[BYTES_MAX], codes[ELEMENTS_MAX / DEV_BLOCK];
    struct node a, s;
    size_t n = fragments.f[0].elements, size;
    nodes(&a, &s, "grid", CODEC_INT4, 0);
    contribute(&r, &a.replica, SITES);
    const struct codec *c = codec_get(CODEC_BF16);
    assert_int_equal(r.manifest.codec, c->kind);
    assert_int_equal(c->aggregate(c, &(struct codec_call){.work = a.replica.work, .count = n},
                                  relayed, &size, r.payloads, SITES),
                     ERR_OK);
    assert_int_equal(c->mean(c,
                             &(struct codec_call){.work = a.replica.work,
                                                  .grid = a.replica.state[0].codes,
                                                  .count = n},
                             mean, codes, &(struct codec_aggregate){relayed, size, SITES, SITES}),
                     ERR_OK);
    aggregate(&r, &a.replica, SITES);
    assert_true(r.bytes < size / 3);
    commit(&r, &a.replica, true);
    assert_memory_equal(a.replica.state[0].codes, codes, n / DEV_BLOCK);
    node_close(&a);
    node_close(&s);
}

/* Again from the same state: the same bytes (ERR_FULL, a crash before the commit), random bits
 * included; a round of too few sites is passed on and leaves the residual as it is. */
static void test_again_and_too_few(void **state)
{
    (void)state;
    static struct made r;
    static uint8_t first[BYTES_MAX];
    static float kept[ELEMENTS_MAX];
    struct node a, s;
    size_t n = fragments.f[0].elements;
    nodes(&a, &s, "again", CODEC_FP8_SR, 0);
    for (int t = 0; t < 2; t++) {
        contribute(&r, &a.replica, SITES);
        aggregate(&r, &a.replica, SITES);
        memcpy(first, r.aggregate, r.bytes);
        memcpy(kept, a.replica.next.residual, n * sizeof *kept);
        aggregate(&r, &a.replica, SITES);
        assert_memory_equal(first, r.aggregate, r.bytes);
        assert_memory_equal(kept, a.replica.next.residual, n * sizeof *kept);
        commit(&r, &a.replica, true);
    }
    assert_true(r.manifest.residual_ratio > 0 &&
                a.replica.state[0].residual_ratio == r.manifest.residual_ratio);
    contribute(&r, &a.replica, FROM - 1);
    aggregate(&r, &a.replica, FROM - 1);
    assert_int_equal(r.bytes, 8 * (FROM - 1) + r.payloads[0].size_bytes + r.payloads[1].size_bytes);
    commit(&r, &a.replica, true);
    assert_memory_equal(kept, a.replica.state[0].residual, n * sizeof *kept);
    node_close(&a);
    node_close(&s);
}

/* After too large a backlog, the aggregator's too, the next round is whole and what waited is
 * discarded, and booked. */
static void test_backs_off(void **state)
{
    (void)state;
    static struct made r;
    static float kept[ELEMENTS_MAX];
    struct node a, s;
    size_t n = fragments.f[0].elements;
    nodes(&a, &s, "back", CODEC_TOPK, 120); /* half octaves of the ratio: 1/16 */
    for (int t = 0; t < 2; t++) {
        contribute(&r, &a.replica, SITES);
        aggregate(&r, &a.replica, SITES);
        commit(&r, &a.replica, true);
    }
    memcpy(kept, a.replica.state[0].residual, n * sizeof *kept);
    assert_int_equal(outer_state_codec(&a.replica, 0),
                     CODEC_BF16); /* the sites said nothing: backlog 0 */
    contribute(&r, &a.replica, SITES);
    aggregate(&r, &a.replica, SITES);
    commit(&r, &a.replica, true);
    for (size_t k = 0; k < n; k++) {
        assert_true(a.replica.state[0].discarded[k] == (double)kept[k]);
        assert_true(fabs((double)a.replica.state[0].residual[k]) <= fabs(r.sum[k]) / 256);
    }
    node_close(&a);
    node_close(&s);
}

/* Where aggregator_spool.c leaves it; `part` of its bytes. */
static void spool(const struct made *r, struct node *a, unsigned site, size_t part)
{
    char path[160], hex[65];
    digest_hex(&r->manifest.sites[site].payload, hex);
    snprintf(path, sizeof path, "spool/0/%u/%s.%s", (unsigned)r->manifest.round, roster[site], hex);
    assert_int_equal(
        a->env->ops->write(a->env, path, &(struct file_part){r->payloads[site].data, part}, 1),
        ERR_OK);
}

static void damage_last_byte(const char *file)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", root, file);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    int last = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    assert_int_equal(fputc(last ^ 1, f), last ^ 1);
    fclose(f);
}

/* The state of a re-encoded round is rebuilt, its residual from the contributions of the round;
 * where one of these is gone or damaged the residual is lost, which is said. */
static void damaged_state(const char *name, uint8_t residual_reset, bool kept, bool whole)
{
    static struct made r;
    static float residual[ELEMENTS_MAX];
    static double discarded[ELEMENTS_MAX];
    struct node a, s;
    char path[64];
    size_t n = fragments.f[0].elements;
    nodes(&a, &s, name, CODEC_TOPK, residual_reset);
    for (int t = 0; t < 3; t++) {
        contribute(&r, &a.replica, SITES);
        for (unsigned i = 0; kept && t == 2 && i < SITES; i++)
            spool(&r, &a, i, r.payloads[i].size_bytes - (!whole && i == 2));
        aggregate(&r, &a.replica, SITES);
        commit(&r, &a.replica, true);
    }
    struct digest before = outer_state_digest(&a.replica, false);
    memcpy(residual, a.replica.state[0].residual, n * sizeof *residual);
    if (residual_reset)
        memcpy(discarded, a.replica.state[0].discarded, n * sizeof *discarded);
    snprintf(path, sizeof path, "%s-a/frag/0/3/state", name); /* its own parts come last */
    damage_last_byte(path);
    node_close(&a);
    snprintf(path, sizeof path, "%s-a", name);
    node_open(&a, path, false);
    assert_int_equal(outer_state_load(&a.replica), ERR_OK);
    struct digest after = outer_state_digest(&a.replica, false);
    assert_true(digest_equal(&before, &after));
    assert_int_equal(a.replica.residuals_lost, kept && whole ? 0 : 1);
    if (!kept || !whole)
        memset(residual, 0, sizeof residual);
    assert_memory_equal(a.replica.state[0].residual, residual, n * sizeof *residual);
    if (residual_reset && whole)
        assert_memory_equal(a.replica.state[0].discarded, discarded, n * sizeof *discarded);
    node_close(&a);
    node_close(&s);
}

static void test_damaged_state(void **state)
{
    (void)state;
    damaged_state("made-again", 0, true, true);
    damaged_state("backed-off", 120, true, true); /* the last round forgot: test_backs_off */
    damaged_state("gone", 0, false, true);
    damaged_state("short", 0, true, false);
}

static int setup(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/test_reencode.XXXXXX");
    assert_non_null(mkdtemp(root));
    arena = arena_make(0);
    table = toy_table(tensors, 3);
    assert_true(table.elements <= ELEMENTS_MAX);
    assert_int_equal(fragment_make(&fragments, &table, &(struct fragment_plan){.count = 1}, &arena),
                     ERR_OK);
    for (size_t i = 0; i < table.elements; i++)
        initial[i] =
            toy_used(&table, i) ? (float)((int)rng_below(1, RNG_TEST, i, 129) - 64) / 64 : 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_free(&arena);
    return file_remove_tree(root) != ERR_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_beside_float64),    cmocka_unit_test(test_grid_is_as_relayed),
        cmocka_unit_test(test_again_and_too_few), cmocka_unit_test(test_backs_off),
        cmocka_unit_test(test_damaged_state),
    };
    log_min(LOG_ERROR);
    if (dev_open(&cpu, &(struct dev_options){.kind = "cpu", .model_type = "f32", .threads = 1}) !=
        ERR_OK)
        return 1;
    int failed = cmocka_run_group_tests(tests, setup, teardown);
    dev_close(cpu);
    return failed;
}
