/* SPDX-License-Identifier: Apache-2.0 */
/* The outer state: the step against float64, the same bits on every replica, and files whose damage
 * always shows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "kernels/base/log.h"
#include "kernels/base/rng.h"
#include "outer/store/outer_state.h"
#include "tests/outer/toy.h"
#include "tests/sim/mutants.h"
#include "tests/scratch_place.h"

enum { SITES = 3, FRAGMENTS = 2, ELEMENTS_MAX = 8192 };

static struct dev *cpu;
static struct tensor tensors[TOY_TENSORS_MAX];
static struct table table;
static struct arena arena;
static struct fragments fragments;
static char root[64];
static float initial[ELEMENTS_MAX];
static enum outer_opt_kind optimizer = OUTER_OPT_MOMENTUM; /* of what options() says */
static struct anneal annealing;                            /* the same */
static enum state_digest rule;                             /* the same */

struct node {
    struct env *env;
    struct outer_state replica;
    struct arena arena;
    char path[128];
};

static struct outer_state_options options(bool site)
{
    struct outer_state_options o = {
        .fragments = &fragments, .digest = rule, .residuals = site, .discards = site, .keep = 3};
    o.schedule = schedule_streaming(1000, 10, FRAGMENTS, 1, CODEC_INT8);
    assert_int_equal(outer_opt_make(&o.outer, optimizer, 0.7f, 0.9f), ERR_OK);
    if (outer_opt_row(o.outer.kind)->cycle)
        o.outer.delay = 3;
    o.outer.anneal = annealing;
    return o;
}

static void node_open(struct node *n, const char *name, bool site)
{
    struct outer_state_options o = options(site);
    *n = (struct node){.arena = arena_make(0)};
    snprintf(n->path, sizeof n->path, "%s/%d/%s", root, (int)optimizer, name);
    assert_int_equal(env_posix_open(&n->env, n->path), ERR_OK);
    assert_int_equal(outer_state_open(&n->replica, n->env, cpu, &o, &n->arena), ERR_OK);
}

static void node_close(struct node *n)
{
    outer_state_close(&n->replica);
    env_posix_close(n->env);
    arena_free(&n->arena);
}

static void node_again(struct node *n, const char *name, bool site)
{
    node_close(n);
    node_open(n, name, site);
}

/* The contributions of one round, encoded on the replica's grid; z is a multiple of 2^-20 below 1.
 */
struct made {
    struct manifest manifest;
    uint8_t *aggregate;
    size_t bytes;
    double mean[ELEMENTS_MAX]; /* exact: what the aggregate decodes to */
};

static void round_make(struct made *out, struct outer_state *m, unsigned f, uint64_t seed)
{
    const struct outer_state_fragment *s = &m->state[f];
    const struct codec *c = codec_get(outer_state_codec(m, f));
    size_t n = fragments.f[f].elements;
    struct codec_payload payloads[SITES];
    float z[ELEMENTS_MAX], residual[ELEMENTS_MAX];
    out->manifest = (struct manifest){.run = "t",
                                      .fragment = f,
                                      .round = s->round,
                                      .parent = s->manifest,
                                      .codec = c->kind,
                                      .site_count = SITES};
    memset(out->mean, 0, sizeof out->mean);
    for (unsigned i = 0; i < SITES; i++) {
        for (size_t k = 0; k < n; k++)
            z[k] = (float)((int)rng_below(seed + i, RNG_TEST, k, 2001) - 1000) / (1 << 20);
        uint8_t *payload = arena_alloc(&arena, c->payload_max(c, n));
        payloads[i].data = payload;
        assert_int_equal(
            c->encode(c, &(struct codec_call){.work = m->work, .grid = s->codes, .count = n},
                      payload, &payloads[i].size_bytes, residual, z),
            ERR_OK);
        for (size_t k = 0; k < n; k++)
            out->mean[k] += (double)z[k] - residual[k];
        out->manifest.sites[i] =
            (struct manifest_entry){.site = i,
                                    .included = true,
                                    .weight = 1,
                                    .payload = digest_of(payload, payloads[i].size_bytes),
                                    .payload_bytes = payloads[i].size_bytes};
    }
    for (size_t k = 0; k < n; k++)
        out->mean[k] /= SITES;
    out->aggregate = arena_alloc(&arena, c->aggregate_max(c, n, SITES));
    assert_int_equal(c->aggregate(c, &(struct codec_call){.work = m->work, .count = n},
                                  out->aggregate, &out->bytes, payloads, SITES),
                     ERR_OK);
}

static void round_commit(struct outer_state *m, unsigned f, struct made *r, bool made)
{
    size_t n = fragments.f[f].elements;
    assert_int_equal(made ? outer_state_apply(m, &r->manifest, r->aggregate, r->bytes)
                          : outer_state_replay(m, &r->manifest, r->aggregate, r->bytes),
                     ERR_OK);
    for (size_t k = 0; m->o.residuals && k < n; k++) {
        m->next.residual[k] = (float)k / 64 + (float)r->manifest.round;
        m->next.discarded[k] = (double)k / 128;
    }
    assert_int_equal(outer_state_commit(m, f, &r->manifest, r->aggregate, r->bytes), ERR_OK);
}

static int setup(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "%s/test_member.XXXXXX", scratch_place());
    assert_non_null(mkdtemp(root));
    arena = arena_make(0);
    table = toy_table(tensors, 3);
    assert_true(table.elements <= ELEMENTS_MAX);
    assert_int_equal(
        fragment_make(&fragments, &table, &(struct fragment_plan){.count = FRAGMENTS}, &arena),
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

/* DiLoCo's outer step in float64 and five rounds of the real one, aggregator and site. */
static void follow_float64(const char *aggregator, const char *site)
{
    static double theta[ELEMENTS_MAX], momentum[ELEMENTS_MAX];
    static struct made r;
    struct node a, s;
    float start[ELEMENTS_MAX];
    node_open(&a, aggregator, false);
    node_open(&s, site, true);
    assert_int_equal(outer_state_begin(&a.replica, initial), ERR_OK);
    assert_int_equal(outer_state_begin(&s.replica, initial), ERR_OK);
    fragment_gather(cpu, start, initial, &fragments.f[1]);
    size_t n = fragments.f[1].elements;
    for (size_t k = 0; k < n; k++) {
        theta[k] = start[k];
        momentum[k] = 0;
    }
    for (uint64_t t = 0; t < 5; t++) {
        round_make(&r, &a.replica, 1, 100 * t);
        round_commit(&a.replica, 1, &r, true);
        round_commit(&s.replica, 1, &r, false);
        double lr = 0.7, mu = 0.9; /* linear over 1000 steps; round t ends at step 15 + 10 t */
        if (annealing.kind == ANNEAL_LINEAR)
            lr *= 1 - (1 - annealing.end) * (15 + 10 * (double)t) / 1000;
        if (t < annealing.warmup)
            mu = 0.5 + (0.9 - 0.5) * (double)t / (double)annealing.warmup;
        bool restarts = annealing.restart && t % annealing.restart == 0;
        for (size_t k = 0; k < n; k++) {
            momentum[k] = (restarts ? 0 : mu * momentum[k]) + r.mean[k];
            theta[k] -= lr * (r.mean[k] + mu * momentum[k]);
            assert_true(fabs(theta[k] - a.replica.state[1].theta[k]) < 1e-6);
            assert_true(fabs(momentum[k] - a.replica.state[1].slab[0][k]) < 1e-8);
        }
        assert_true(digest_equal(&a.replica.state[1].digest, &s.replica.state[1].digest));
        assert_int_equal(a.replica.state[1].round, t + 1);
    }
    assert_int_equal(a.replica.state[0].round, 0);
    struct digest da = outer_state_digest(&a.replica, false),
                  ds = outer_state_digest(&s.replica, false);
    struct digest own = outer_state_digest(&s.replica, true);
    assert_true(digest_equal(&da, &ds));
    assert_false(digest_equal(&ds, &own));
    node_close(&a);
    node_close(&s);
}

static void test_step_is_nesterov(void **state)
{
    (void)state;
    follow_float64("a", "s");
}

static void test_step_is_annealed_and_restarted(void **state)
{
    (void)state;
    annealing = (struct anneal){.kind = ANNEAL_LINEAR, .end = 0.25, .restart = 2};
    follow_float64("annealed", "annealed_s");
    annealing = (struct anneal){.warmup = 3, .momentum_start = 0.5};
    follow_float64("warmed", "warmed_s");
    annealing.restart = 2;
    follow_float64("warmed_restarted", "warmed_restarted_s");
    annealing = (struct anneal){0};
}

/* A mean that f32 cannot hold makes no state, at the aggregator and at a site; the state before is
 * what it was, and the round can be aborted. */
static void test_nothing_infinite_is_applied(void **state)
{
    (void)state;
    static struct made r;
    struct node a, s;
    node_open(&a, "an", false);
    node_open(&s, "sn", true);
    assert_int_equal(outer_state_begin(&a.replica, initial), ERR_OK);
    assert_int_equal(outer_state_begin(&s.replica, initial), ERR_OK);
    struct digest before = outer_state_digest(&a.replica, false);
    round_make(&r, &a.replica, 0, 7);
    for (unsigned i = 0; i < SITES; i++)
        r.manifest.sites[i].weight = 0x1p-149f;
    assert_int_equal(outer_state_apply(&a.replica, &r.manifest, r.aggregate, r.bytes),
                     ERR_DIVERGED);
    assert_int_equal(outer_state_replay(&s.replica, &r.manifest, r.aggregate, r.bytes),
                     ERR_DIVERGED);
    for (unsigned i = 0; i < SITES; i++)
        r.manifest.sites[i].weight = 3e38f;
    assert_int_equal(outer_state_apply(&a.replica, &r.manifest, r.aggregate, r.bytes),
                     ERR_DIVERGED);
    for (unsigned i = 0; i < SITES; i++)
        r.manifest.sites[i].included = false;
    r.manifest.aggregate = (struct digest){0};
    r.manifest.aggregate_bytes = 0;
    assert_int_equal(outer_state_abort(&a.replica, &r.manifest), ERR_OK);
    assert_int_equal(outer_state_commit(&a.replica, 0, &r.manifest, NULL, 0), ERR_OK);
    r.manifest.state_after.bytes[0] ^= 1;
    assert_int_equal(outer_state_replay(&s.replica, &r.manifest, NULL, 0), ERR_DISAGREE);
    r.manifest.state_after.bytes[0] ^= 1;
    assert_int_equal(outer_state_replay(&s.replica, &r.manifest, NULL, 0), ERR_OK);
    memset(s.replica.next.residual, 0, fragments.f[0].elements * sizeof(float));
    memset(s.replica.next.discarded, 0, fragments.f[0].elements * sizeof(double));
    assert_int_equal(outer_state_commit(&s.replica, 0, &r.manifest, NULL, 0), ERR_OK);
    assert_int_equal(a.replica.state[0].round, 1);
    node_again(&a, "an", false);
    assert_int_equal(outer_state_load(&a.replica), ERR_OK);
    struct digest da = outer_state_digest(&a.replica, false),
                  ds = outer_state_digest(&s.replica, false);
    assert_true(digest_equal(&da, &before) && digest_equal(&ds, &before));
    assert_int_equal(a.replica.state[0].round, 1);
    assert_int_equal(outer_state_mean(&a.replica, 0, 0, &r.manifest), ERR_INPUT);
    node_close(&a);
    node_close(&s);
}

/* A site refuses an aggregate that is not the manifest's, and sees a state that is not. */
static void test_apply_compares(void **state)
{
    (void)state;
    static struct made r;
    struct node a, s;
    node_open(&a, "ac", false);
    node_open(&s, "sc", true);
    assert_int_equal(outer_state_begin(&a.replica, initial), ERR_OK);
    assert_int_equal(outer_state_begin(&s.replica, initial), ERR_OK);
    round_make(&r, &a.replica, 0, 7);
    round_commit(&a.replica, 0, &r, true);
    r.aggregate[r.bytes / 2] ^= 1;
    assert_int_equal(outer_state_replay(&s.replica, &r.manifest, r.aggregate, r.bytes), ERR_PROTO);
    r.aggregate[r.bytes / 2] ^= 1;
    struct manifest other = r.manifest;
    other.state_after.bytes[0] ^= 1;
    assert_int_equal(outer_state_replay(&s.replica, &other, r.aggregate, r.bytes), ERR_DISAGREE);
    s.replica.state[0].theta[3] +=
        1; /* a flipped bit in memory shows at the next round at the latest */
    assert_int_equal(outer_state_replay(&s.replica, &r.manifest, r.aggregate, r.bytes),
                     ERR_DISAGREE);
    assert_int_equal(outer_state_load(&s.replica), ERR_OK);
    assert_int_equal(outer_state_replay(&s.replica, &r.manifest, r.aggregate, r.bytes), ERR_OK);
    node_close(&a);
    node_close(&s);
}

static void test_load_is_what_was_saved(void **state)
{
    (void)state;
    static struct made r;
    struct node s;
    float theta[ELEMENTS_MAX], kept[ELEMENTS_MAX];
    struct manifest m;
    struct file_map aggregate;
    node_open(&s, "l", true);
    assert_false(outer_state_begun(&s.replica));
    assert_int_equal(outer_state_begin(&s.replica, initial), ERR_OK);
    assert_true(outer_state_begun(&s.replica));
    for (uint64_t t = 0; t < 4; t++) {
        if (t == 2)
            memcpy(theta, s.replica.state[0].theta, fragments.f[0].elements * sizeof *theta);
        round_make(&r, &s.replica, 0, t);
        round_commit(&s.replica, 0, &r, true);
    }
    struct digest before = outer_state_digest(&s.replica, true);
    node_again(&s, "l", true);
    assert_int_equal(outer_state_load(&s.replica), ERR_OK);
    struct digest after = outer_state_digest(&s.replica, true);
    assert_true(digest_equal(&before, &after));
    assert_int_equal(s.replica.state[0].round, 4);
    struct digest manifest = manifest_digest(&r.manifest);
    assert_true(digest_equal(&s.replica.state[0].manifest, &manifest));
    /* Replay: all states are still there until they are pruned. */
    assert_int_equal(outer_state_load_theta(&s.replica, 0, 2, kept), ERR_OK);
    assert_memory_equal(theta, kept, fragments.f[0].elements * sizeof *theta);
    assert_int_equal(outer_state_load_theta(&s.replica, 0, 9, kept), ERR_INPUT);
    assert_int_equal(outer_state_manifest(&s.replica, 0, 3, &m), ERR_OK);
    assert_int_equal(outer_state_aggregate(&s.replica, 0, 3, &aggregate), ERR_OK);
    assert_int_equal(aggregate.size_bytes, r.bytes);
    assert_memory_equal(aggregate.data, r.aggregate, r.bytes);
    s.replica.env->ops->unmap(s.replica.env, &aggregate);
    node_close(&s);
}

static bool there(const struct node *n, unsigned round, const char *file)
{
    char path[256];
    snprintf(path, sizeof path, "%s/frag/0/%u/%s", n->path, round, file);
    return file_exists(path);
}

/* Aggregator: two states, keep = 3 manifests and aggregates. Site: all states until the checkpoints
 * let go of them. */
static void test_retention(void **state)
{
    (void)state;
    static struct made r;
    struct node a, s;
    struct manifest m;
    node_open(&a, "ra", false);
    node_open(&s, "rs", true);
    assert_int_equal(outer_state_begin(&a.replica, initial), ERR_OK);
    assert_int_equal(outer_state_begin(&s.replica, initial), ERR_OK);
    for (uint64_t t = 0; t < 6; t++) {
        round_make(&r, &a.replica, 0, t);
        round_commit(&a.replica, 0, &r, true);
        round_commit(&s.replica, 0, &r, false);
    }
    for (unsigned round = 0; round <= 6; round++) {
        assert_int_equal(there(&a, round, "state"), round >= 5);
        assert_int_equal(there(&a, round, "aggregate"), round >= 4);
        assert_int_equal(there(&a, round, "MANIFEST"), round >= 4);
        assert_true(there(&s, round, "state"));
        assert_int_equal(there(&s, round, "aggregate"), round >= 4);
    }
    assert_int_equal(outer_state_manifest(&a.replica, 0, 3, &m),
                     ERR_OK); /* of round 3, that made state 4 */
    assert_int_equal(outer_state_manifest(&a.replica, 0, 2, &m), ERR_INPUT);
    assert_int_equal(outer_state_prune(&s.replica, 0, 3), ERR_OK);
    for (unsigned round = 0; round <= 6; round++)
        assert_int_equal(there(&s, round, "state"), round >= 3);
    assert_int_equal(outer_state_prune(&s.replica, 0, 6), ERR_OK);
    assert_true(there(&s, 5, "state")); /* never less than two */
    assert_false(there(&s, 4, "state"));
    node_close(&a);
    node_close(&s);
}

static size_t file_get(const struct node *n, const char *name, uint8_t *out, size_t most)
{
    char path[256];
    snprintf(path, sizeof path, "%s/frag/0/%s", n->path, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t size = fread(out, 1, most, f);
    fclose(f);
    return size;
}

static void file_put(const struct node *n, const char *name, const uint8_t *data, size_t size)
{
    char path[256];
    snprintf(path, sizeof path, "%s/frag/0/%s", n->path, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

/* Damage to any byte of any file is either refused or made good; never is a damaged byte used. */
static void test_damage_shows(void **state)
{
    (void)state;
    static struct made r;
    static uint8_t good[1 << 20];
    struct node s;
    struct manifest m;
    struct file_map aggregate;
    node_open(&s, "d", true);
    assert_int_equal(outer_state_begin(&s.replica, initial), ERR_OK);
    for (uint64_t t = 0; t < 2; t++) {
        round_make(&r, &s.replica, 0, t);
        round_commit(&s.replica, 0, &r, true);
    }
    size_t n = file_get(&s, "CURRENT", good, sizeof good);
    for (size_t i = 0; i < n; i++) { /* found again, and written again */
        static uint8_t again[4096];
        good[i] ^= 1;
        file_put(&s, "CURRENT", good, n);
        good[i] ^= 1;
        assert_int_equal(outer_state_load(&s.replica), ERR_OK);
        assert_int_equal(s.replica.state[0].round, 2);
        assert_int_equal(file_get(&s, "CURRENT", again, sizeof again), n);
        assert_memory_equal(again, good, n);
    }
    n = file_get(&s, "2/MANIFEST", good, sizeof good);
    for (size_t i = 0; i < n; i++) {
        good[i] ^= 0x20;
        file_put(&s, "2/MANIFEST", good, n);
        good[i] ^= 0x20;
        assert_int_equal(outer_state_manifest(&s.replica, 0, 1, &m), ERR_CORRUPT);
    }
    file_put(&s, "2/MANIFEST", good, n);
    n = file_get(&s, "2/aggregate", good, sizeof good);
    for (size_t i = 0; i < n; i += 53) {
        good[i] ^= 0x80;
        file_put(&s, "2/aggregate", good, n);
        good[i] ^= 0x80;
        assert_int_equal(outer_state_aggregate(&s.replica, 0, 1, &aggregate), ERR_CORRUPT);
    }
    file_put(&s, "2/aggregate", good, n);
    n = file_get(&s, "2/state", good, sizeof good);
    for (size_t i = 0; i < n; i += i < 200 ? 1 : 101) {
        good[i] ^= 4;
        file_put(&s, "2/state", good, n);
        good[i] ^= 4;
        assert_int_equal(outer_state_load(&s.replica),
                         ERR_OK); /* one state back, as after an absence */
        assert_int_equal(s.replica.state[0].round, 1);
    }
    file_put(&s, "2/state", good, n - 1);
    assert_int_equal(outer_state_load(&s.replica), ERR_OK);
    assert_int_equal(s.replica.state[0].round, 1);
    file_put(&s, "2/state", good, n);
    assert_int_equal(outer_state_load(&s.replica), ERR_OK);
    assert_int_equal(s.replica.state[0].round, 2);
    node_close(&s);
}

/* The aggregator makes a damaged state again from the one before and the aggregate: the same bits.
 */
static void test_aggregator_repairs(void **state)
{
    (void)state;
    static struct made r;
    static uint8_t good[1 << 20], again[1 << 20];
    struct node a;
    node_open(&a, "rep", false);
    assert_int_equal(outer_state_begin(&a.replica, initial), ERR_OK);
    for (uint64_t t = 0; t < 3; t++) {
        round_make(&r, &a.replica, 0, t);
        round_commit(&a.replica, 0, &r, true);
    }
    struct digest before = outer_state_digest(&a.replica, false);
    size_t n = file_get(&a, "3/state", good, sizeof good);
    good[n / 2] ^= 1;
    file_put(&a, "3/state", good, n);
    good[n / 2] ^= 1;
    node_again(&a, "rep", false);
    assert_int_equal(outer_state_load(&a.replica), ERR_OK);
    struct digest after = outer_state_digest(&a.replica, false);
    assert_true(digest_equal(&before, &after));
    assert_int_equal(file_get(&a, "3/state", again, sizeof again), n);
    assert_memory_equal(good, again, n);
    good[n / 2] ^= 1; /* both damaged: nothing is made up */
    file_put(&a, "3/state", good, n);
    size_t k = file_get(&a, "2/state", again, sizeof again);
    again[k / 2] ^= 1;
    file_put(&a, "2/state", again, k);
    assert_int_equal(outer_state_load(&a.replica), ERR_CORRUPT);
    node_close(&a);
}

/* Loads a site's directory with one thing set otherwise. */
static enum err loaded_with(const char *path, enum outer_opt_kind kind, bool residuals,
                            bool discards)
{
    struct node n = {.arena = arena_make(0)};
    struct outer_state_options o = options(true);
    o.residuals = residuals;
    o.discards = discards;
    assert_int_equal(outer_opt_make(&o.outer, kind, 0.7f, 0.9f), ERR_OK);
    assert_int_equal(env_posix_open(&n.env, path), ERR_OK);
    assert_int_equal(outer_state_open(&n.replica, n.env, cpu, &o, &n.arena), ERR_OK);
    enum err e = outer_state_load(&n.replica);
    node_close(&n);
    return e;
}

/* The bytes of fragment 0's state `round`, and the file with the byte `at` from its end changed. */
static uint8_t *state_spoil(struct node *n, uint64_t round, size_t at, size_t *size_bytes)
{
    char path[96];
    struct file_map m;
    snprintf(path, sizeof path, "frag/0/%d/state", (int)round);
    assert_int_equal(n->env->ops->map(n->env, path, &m), ERR_OK);
    *size_bytes = m.size_bytes;
    uint8_t *good = arena_alloc(&arena, m.size_bytes), *bad = arena_alloc(&arena, m.size_bytes);
    memcpy(good, m.data, m.size_bytes);
    memcpy(bad, m.data, m.size_bytes);
    n->env->ops->unmap(n->env, &m);
    bad[*size_bytes - at] ^= 16;
    assert_int_equal(n->env->ops->write(n->env, path, &(struct file_part){bad, *size_bytes}, 1),
                     ERR_OK);
    return good;
}

static bool state_is(struct node *n, uint64_t round, const uint8_t *good, size_t size_bytes)
{
    char path[96];
    struct file_map m;
    snprintf(path, sizeof path, "frag/0/%d/state", (int)round);
    assert_int_equal(n->env->ops->map(n->env, path, &m), ERR_OK);
    bool same = m.size_bytes == size_bytes && !memcmp(m.data, good, size_bytes);
    n->env->ops->unmap(n->env, &m);
    return same;
}

/* What the scrub finds in a running replica: kept states are rebuilt byte for byte, or stay as
 * they are; the replica continues as if nothing had been. */
static void test_running_repairs(void **state)
{
    static struct made r;
    (void)state;
    for (int site = 0; site < 2; site++) {
        struct node n, calm;
        size_t size, elements = fragments.f[0].elements, own = site ? 12 * elements : 0;
        const char *const names[][2] = {{"ra", "rc"}, {"rs", "rt"}};
        node_open(&n, names[site][0], site);
        node_open(&calm, names[site][1], site);
        n.replica.o.states = calm.replica.o.states = 9;
        n.replica.o.keep = calm.replica.o.keep = 9;
        assert_int_equal(outer_state_begin(&n.replica, initial), ERR_OK);
        assert_int_equal(outer_state_begin(&calm.replica, initial), ERR_OK);
        for (uint64_t t = 0; t < 5; t++) {
            round_make(&r, &n.replica, 0, 7 * t);
            round_commit(&n.replica, 0, &r, true);
            round_commit(&calm.replica, 0, &r, false);
            for (uint64_t round = 1; round <= t + 1; round++) {
                for (size_t at = own + 1; at < own + 8 * elements; at += 5 * elements / 3) {
                    uint8_t *good = state_spoil(&n, round, at, &size);
                    assert_false(state_is(&n, round, good, size));
                    assert_int_equal(outer_state_repair(&n.replica, 0, round), ERR_OK);
                    assert_true(state_is(&n, round, good, size));
                }
                if (!site)
                    continue;
                /* the residual of an earlier state is not a function of the rounds */
                uint8_t *good = state_spoil(&n, round, own / 2, &size);
                enum err e = outer_state_repair(&n.replica, 0, round);
                assert_int_equal(e, round == t + 1 ? ERR_OK : ERR_CORRUPT);
                assert_int_equal(state_is(&n, round, good, size), round == t + 1);
                char path[96];
                snprintf(path, sizeof path, "frag/0/%d/state", (int)round);
                assert_int_equal(n.env->ops->write(n.env, path, &(struct file_part){good, size}, 1),
                                 ERR_OK);
            }
            assert_int_equal(outer_state_repair(&n.replica, 0, 0), ERR_INPUT);
        }
        struct digest a = outer_state_digest(&n.replica, true),
                      b = outer_state_digest(&calm.replica, true);
        assert_true(digest_equal(&a, &b));
        for (uint64_t round = 0; round < 5; round++) {
            struct manifest m;
            struct digest d, wanted;
            assert_int_equal(outer_state_manifest(&n.replica, 0, round, &m), ERR_OK);
            assert_int_equal(outer_state_manifest_digest(&n.replica, 0, round, &wanted), ERR_OK);
            d = manifest_digest(&m);
            assert_true(digest_equal(&d, &wanted));
        }
        /* memory that has changed is not written */
        uint8_t *good = state_spoil(&n, 5, own + 1, &size);
        n.replica.state[0].theta[3] += 1;
        assert_int_equal(outer_state_repair(&n.replica, 0, 5), ERR_CORRUPT);
        assert_non_null(strstr(err_message(), "has changed in memory too"));
        assert_false(state_is(&n, 5, good, size));
        node_close(&n);
        node_close(&calm);
    }
}

/* Commits a round without contributions: rolled back to `to`, or aborted. */
static void act_commit(struct node *a, struct node *s, struct made *r, bool rolls_back, uint64_t to)
{
    struct file_map map = {0};
    size_t elements = fragments.f[0].elements;
    round_make(r, &a->replica, 0, 1);
    for (unsigned i = 0; i < SITES; i++)
        r->manifest.sites[i] = (struct manifest_entry){.site = i};
    r->manifest.ordered_by.bytes[0] = 1;
    if (rolls_back)
        assert_int_equal(outer_state_roll_back(&a->replica, 0, &r->manifest, to), ERR_OK);
    else
        assert_int_equal(outer_state_abort(&a->replica, &r->manifest), ERR_OK);
    assert_int_equal(outer_state_commit(&a->replica, 0, &r->manifest, NULL, 0), ERR_OK);
    if (rolls_back) {
        assert_int_equal(outer_state_aggregate(&a->replica, 0, r->manifest.round, &map), ERR_OK);
        uint8_t *wrong = arena_alloc(&arena, map.size_bytes);
        memcpy(wrong, map.data, map.size_bytes);
        wrong[map.size_bytes / 2] ^= 1;
        assert_int_equal(outer_state_replay(&s->replica, &r->manifest, wrong, map.size_bytes),
                         ERR_PROTO);
    }
    assert_int_equal(outer_state_replay(&s->replica, &r->manifest, map.data, map.size_bytes),
                     ERR_OK);
    memset(s->replica.next.residual, 0, elements * sizeof(float));
    memset(s->replica.next.discarded, 0, elements * sizeof(double));
    assert_int_equal(outer_state_commit(&s->replica, 0, &r->manifest, map.data, map.size_bytes),
                     ERR_OK);
    a->env->ops->unmap(a->env, &map);
}

/* A replica replays rounds without a step too. Their states are rebuilt byte for byte: at a load,
 * and while the replica is at a later round. */
static void test_rounds_without_a_step(void **state)
{
    static struct made r;
    struct node a, s;
    size_t size;
    (void)state;
    node_open(&a, "wa", false);
    node_open(&s, "ws", true);
    a.replica.o.states = a.replica.o.keep = s.replica.o.keep = 9;
    assert_int_equal(outer_state_begin(&a.replica, initial), ERR_OK);
    assert_int_equal(outer_state_begin(&s.replica, initial), ERR_OK);
    for (uint64_t t = 0; t < 6; t++) {
        if (t == 3 || t == 4) {
            act_commit(&a, &s, &r, t == 3, 1);
        } else {
            round_make(&r, &a.replica, 0, 7 * t);
            round_commit(&a.replica, 0, &r, true);
            round_commit(&s.replica, 0, &r, false);
        }
        assert_true(digest_equal(&a.replica.state[0].digest, &s.replica.state[0].digest));
        for (uint64_t round = 1; round <= t + 1; round++) {
            uint8_t *good = state_spoil(&a, round, 9, &size);
            assert_int_equal(outer_state_repair(&a.replica, 0, round), ERR_OK);
            assert_true(state_is(&a, round, good, size));
        }
        struct digest d = a.replica.state[0].digest;
        state_spoil(&a, t + 1, 9, &size);
        node_again(&a, "wa", false);
        a.replica.o.states = a.replica.o.keep = 9;
        assert_int_equal(outer_state_load(&a.replica), ERR_OK);
        assert_true(digest_equal(&a.replica.state[0].digest, &d));
    }
    node_close(&a);
    node_close(&s);
}

/* Made with other settings is not damaged; damaged names the whole path and what to do. */
static void test_other_settings(void **state)
{
    (void)state;
    static struct made r;
    static const enum outer_opt_kind others[] = {OUTER_OPT_SGD, OUTER_OPT_DELAYED};
    static uint8_t good[1 << 20];
    struct node s;
    char path[128];
    node_open(&s, "os", true);
    assert_int_equal(outer_state_begin(&s.replica, initial), ERR_OK);
    round_make(&r, &s.replica, 0, 1);
    round_commit(&s.replica, 0, &r, true);
    size_t n = file_get(&s, "1/state", good, sizeof good);
    memcpy(path, s.path, sizeof path);
    node_close(&s);
    assert_int_equal(loaded_with(path, OUTER_OPT_MOMENTUM, true, true), ERR_OK);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(loaded_with(path, others[i], true, true), ERR_MISMATCH);
        assert_non_null(strstr(err_message(), "/os/frag/0/1/state: made with"));
        assert_non_null(strstr(err_message(), "outer.optimizer"));
    }
    assert_int_equal(loaded_with(path, OUTER_OPT_MOMENTUM, true, false), ERR_MISMATCH);
    assert_non_null(strstr(err_message(), "outer.residual_reset"));
    assert_int_equal(loaded_with(path, OUTER_OPT_MOMENTUM, false, false), ERR_MISMATCH);
    assert_non_null(strstr(err_message(), "by a site"));
    good[12] ^= 1; /* a header that only claims other parts is damaged: one state back */
    file_put(&s, "1/state", good, n);
    assert_int_equal(loaded_with(path, OUTER_OPT_MOMENTUM, true, true), ERR_OK);
    file_put(&s, "CURRENT", (const uint8_t *)"round 1\nmanifest 00", 19);
    assert_int_equal(loaded_with(path, OUTER_OPT_MOMENTUM, true, true), ERR_MISMATCH);
    assert_non_null(strstr(err_message(), "/os/frag/0/CURRENT: state of version 1; this program "
                                          "reads version 2: start a new run directory"));
    file_put(&s, "CURRENT", good, 0);
    file_put(&s, "1/MANIFEST", good, n);
    assert_int_equal(loaded_with(path, OUTER_OPT_MOMENTUM, true, true), ERR_CORRUPT);
    assert_non_null(strstr(err_message(), "/os/frag/0/1/MANIFEST: damaged; move the site's run"));
    assert_ptr_equal(strstr(err_message(), path), err_message());
}

static void file_lose(const struct node *n, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/frag/0/%s", n->path, name);
    assert_int_equal(file_remove(path), ERR_OK);
}

static void node_fill(struct node *n, const char *name, bool site, unsigned rounds)
{
    static struct made r;
    node_open(n, name, site);
    assert_int_equal(outer_state_begin(&n->replica, initial), ERR_OK);
    for (uint64_t t = 0; t < rounds; t++) {
        round_make(&r, &n->replica, 0, t);
        round_commit(&n->replica, 0, &r, true);
    }
}

/* A lost CURRENT: the newest state continues, residual and all; never the first one, never an older
 * one. */
static void test_current_is_found_again(void **state)
{
    (void)state;
    static uint8_t good[4096], again[4096];
    for (unsigned site = 0; site < 2; site++) {
        struct node s;
        node_fill(&s, site ? "cs" : "ca", site, 3);
        struct digest before = outer_state_digest(&s.replica, true);
        size_t n = file_get(&s, "CURRENT", good, sizeof good);
        file_lose(&s, "CURRENT");
        node_again(&s, site ? "cs" : "ca", site);
        assert_true(outer_state_begun(&s.replica)); /* without the record: there is a round 3 */
        assert_int_equal(outer_state_load(&s.replica), ERR_OK);
        assert_int_equal(s.replica.state[0].round, 3);
        struct digest after = outer_state_digest(&s.replica, true);
        assert_true(digest_equal(&before, &after));
        assert_int_equal(file_get(&s, "CURRENT", again, sizeof again), n);
        assert_memory_equal(good, again, n);
        /* killed between manifest and state of round 3's commit, and CURRENT lost */
        file_lose(&s, "CURRENT");
        file_lose(&s, "3/state");
        assert_int_equal(outer_state_load(&s.replica), ERR_OK);
        assert_int_equal(s.replica.state[0].round, site ? 2 : 3); /* an aggregator repeats it */
        node_again(&s, site ? "cs" : "ca", site);
        assert_int_equal(outer_state_load(&s.replica), ERR_OK);
        assert_int_equal(s.replica.state[0].round, site ? 2 : 3);
        node_close(&s);
    }
}

static void manifest_put(struct node *n, const char *path, const struct manifest *m)
{
    static uint8_t bytes[MANIFEST_BYTES_MAX];
    static const struct record_form form = {.kind = "manifest"};
    struct file_part part = {bytes, manifest_encode(m, bytes)};
    struct record_section section = {.parts = &part, .part_count = 1};
    assert_int_equal(store_write(n->env, path, &form, &section, 1), ERR_OK);
}

static void test_what_does_not_verify_is_not_current(void **state)
{
    (void)state;
    struct node a;
    static struct manifest m;
    node_fill(&a, "nv", false, 3);
    assert_int_equal(outer_state_manifest(&a.replica, 0, 2, &m), ERR_OK);
    m.parent.bytes[0] ^= 1; /* of another history */
    manifest_put(&a, "frag/0/3/MANIFEST", &m);
    file_lose(&a, "CURRENT");
    assert_int_equal(outer_state_load(&a.replica), ERR_CORRUPT);
    assert_non_null(strstr(err_message(), "/nv/frag/0/3/MANIFEST: damaged"));
    static uint8_t bytes[1 << 20], parent[1 << 16];
    size_t n = file_get(&a, "3/state", bytes, sizeof bytes), k;
    k = file_get(&a, "2/MANIFEST", parent, sizeof parent);
    bytes[n / 2] ^= 1; /* the state cannot be rebuilt from that one, either */
    file_put(&a, "3/state", bytes, n);
    file_lose(&a, "2/MANIFEST");
    assert_int_equal(outer_state_load(&a.replica), ERR_CORRUPT);
    assert_non_null(strstr(err_message(), "/nv/frag/0/3/MANIFEST: damaged"));
    bytes[n / 2] ^= 1;
    file_put(&a, "3/state", bytes, n);
    file_put(&a, "2/MANIFEST", parent, k);
    file_lose(&a, "3/MANIFEST"); /* round 2 verifies, but a state 3 was made */
    assert_int_equal(outer_state_load(&a.replica), ERR_CORRUPT);
    assert_non_null(strstr(err_message(), "/nv/frag/0/3/MANIFEST: damaged"));
    node_close(&a);
}

static void test_a_directory_begins_once(void **state)
{
    (void)state;
    struct node a;
    node_open(&a, "once", false);
    assert_false(outer_state_begun(&a.replica));
    assert_int_equal(outer_state_begin(&a.replica, initial), ERR_OK);
    file_lose(&a, "CURRENT"); /* a first start that was killed: it begins again */
    assert_false(outer_state_begun(&a.replica));
    assert_int_equal(outer_state_begin(&a.replica, initial), ERR_OK);
    assert_true(outer_state_begun(&a.replica));
    assert_int_equal(store_begin(a.env), ERR_OK);
    assert_int_equal(a.env->ops->remove(a.env, "frag"), ERR_OK);
    assert_true(outer_state_begun(&a.replica));
    assert_int_equal(outer_state_load(&a.replica), ERR_CORRUPT);
    assert_non_null(strstr(err_message(), "/once/frag/0/CURRENT: damaged"));
    node_close(&a);
}

/* The directory was moved away, and its name is another one's: nothing is committed there. */
static void test_a_moved_directory_is_not_committed_to(void **state)
{
    (void)state;
    static struct made r;
    struct node a;
    char moved[160], current[160];
    node_fill(&a, "mv", false, 1);
    snprintf(moved, sizeof moved, "%s.moved", a.path);
    assert_int_equal(rename(a.path, moved), 0);
    round_make(&r, &a.replica, 0, 1);
    assert_int_equal(outer_state_apply(&a.replica, &r.manifest, r.aggregate, r.bytes), ERR_OK);
    assert_int_equal(outer_state_commit(&a.replica, 0, &r.manifest, r.aggregate, r.bytes),
                     ERR_BUSY);
    snprintf(current, sizeof current, "%s/frag/0/CURRENT", a.path);
    assert_false(file_exists(current));
    assert_int_equal(a.replica.state[0].round, 1);
    node_close(&a);
}

static void test_snapshot(void **state)
{
    (void)state;
    static struct made r;
    struct node a, s;
    node_open(&a, "sa", false);
    node_open(&s, "ss", true);
    assert_int_equal(outer_state_begin(&a.replica, initial), ERR_OK);
    assert_int_equal(outer_state_begin(&s.replica, initial), ERR_OK);
    for (uint64_t t = 0; t < 3; t++) {
        round_make(&r, &a.replica, 0, t);
        round_commit(&a.replica, 0, &r, true);
    }
    size_t n = outer_state_snapshot_bytes(&a.replica, 0);
    uint8_t *bytes = arena_alloc(&arena, n);
    assert_int_equal(outer_state_snapshot_write(&a.replica, 0, bytes), ERR_OK);
    bytes[n / 3] ^= 1;
    assert_int_equal(outer_state_snapshot_adopt(&s.replica, &r.manifest, bytes, n, false),
                     ERR_PROTO);
    assert_int_equal(s.replica.state[0].round, 0);
    bytes[n / 3] ^= 1;
    s.replica.next.residual[5] = 3;
    assert_int_equal(outer_state_snapshot_adopt(&s.replica, &r.manifest, bytes, n, false), ERR_OK);
    assert_int_equal(s.replica.state[0].round, 3);
    assert_true(s.replica.state[0].residual[5] == 0);
    node_again(&s, "ss", true);
    assert_int_equal(outer_state_load(&s.replica), ERR_OK);
    assert_true(digest_equal(&s.replica.state[0].digest, &a.replica.state[0].digest));
    round_make(&r, &a.replica, 0, 9); /* and it continues from there */
    round_commit(&a.replica, 0, &r, true);
    round_commit(&s.replica, 0, &r, false);
    assert_true(digest_equal(&s.replica.state[0].digest, &a.replica.state[0].digest));
    node_close(&a);
    node_close(&s);
}

/* A snapshot comes from no state of the round before: the one it replaced stays, and a restart that
 * finds the snapshot damaged goes back to that. */
static void test_damage_after_a_snapshot(void **state)
{
    (void)state;
    static struct made r;
    static uint8_t bad[1 << 20];
    struct node a, s;
    node_open(&a, "da", false);
    node_open(&s, "ds", true);
    assert_int_equal(outer_state_begin(&a.replica, initial), ERR_OK);
    assert_int_equal(outer_state_begin(&s.replica, initial), ERR_OK);
    for (uint64_t t = 0; t < 6; t++) {
        round_make(&r, &a.replica, 0, t);
        round_commit(&a.replica, 0, &r, true);
        if (t == 0)
            round_commit(&s.replica, 0, &r, false);
    }
    size_t n = outer_state_snapshot_bytes(&a.replica, 0);
    uint8_t *bytes = arena_alloc(&arena, n);
    assert_int_equal(outer_state_snapshot_write(&a.replica, 0, bytes), ERR_OK);
    assert_int_equal(outer_state_prune(&s.replica, 0, 1), ERR_OK);
    assert_int_equal(outer_state_snapshot_adopt(&s.replica, &r.manifest, bytes, n, false), ERR_OK);
    assert_int_equal(outer_state_prune(&s.replica, 0, 6), ERR_OK);
    assert_true(there(&s, 1, "state"));
    assert_false(there(&s, 0, "state"));
    for (uint64_t at = 6; at < 8;
         at++) { /* twice: the damaged file does not count as one of the two */
        char name[16];
        snprintf(name, sizeof name, "%u/state", (unsigned)at);
        size_t size = file_get(&s, name, bad, sizeof bad);
        bad[size / 2] ^= 1;
        file_put(&s, name, bad, size);
        node_again(&s, "ds", true);
        assert_int_equal(outer_state_load(&s.replica), ERR_OK);
        assert_int_equal(s.replica.state[0].round, 1);
        round_make(&r, &a.replica, 0, at); /* the others continue */
        round_commit(&a.replica, 0, &r, true);
        assert_int_equal(outer_state_snapshot_write(&a.replica, 0, bytes), ERR_OK);
        assert_int_equal(outer_state_snapshot_adopt(&s.replica, &r.manifest, bytes, n, false),
                         ERR_OK);
        assert_int_equal(outer_state_prune(&s.replica, 0, at + 1), ERR_OK);
        assert_int_equal(s.replica.state[0].round, at + 1);
    }
    file_put(&s, "8/state", bad, 100);
    file_put(&s, "1/state", bad, 100);
    assert_int_equal(outer_state_load(&s.replica), ERR_CORRUPT);
    assert_non_null(strstr(err_message(), "/state: damaged; move the site's run"));
    node_close(&a);
    node_close(&s);
}

/* What comes from the arena: the codec's pieces do not. */
static size_t arena_bytes(const struct outer_state_options *o)
{
    size_t most = 0;
    for (unsigned f = 0; f < o->fragments->count; f++)
        most = o->fragments->f[f].elements > most ? o->fragments->f[f].elements : most;
    return outer_state_memory(o, true).host - codec_host_bytes(most, true);
}

static void test_memory_is_what_is_said(void **state)
{
    (void)state;
    struct node s;
    struct outer_state_options o = options(true);
    node_open(&s, "mem", true);
    size_t said = arena_bytes(&o);
    assert_true(s.arena.used_bytes >= said &&
                s.arena.used_bytes < said + 4096); /* rounding to 64 bytes, the table */
    node_close(&s);
}

/* Every slab of an optimizer is state like any other: under the digest, in the file, in the
 * snapshot. */
static void slabs_are_state(void **state, enum outer_opt_kind kind)
{
    static struct made r;
    struct node a, s;
    optimizer = kind;
    test_load_is_what_was_saved(state);
    test_aggregator_repairs(state);
    test_snapshot(state);
    test_memory_is_what_is_said(state);
    node_open(&a, "da", false);
    node_open(&s, "ds", true);
    assert_int_equal(outer_state_begin(&a.replica, initial), ERR_OK);
    assert_int_equal(outer_state_begin(&s.replica, initial), ERR_OK);
    for (uint64_t t = 0; t < 4; t++) { /* restarted in the middle of each cycle */
        round_make(&r, &a.replica, 0, t);
        round_commit(&a.replica, 0, &r, true);
        round_commit(&s.replica, 0, &r, false);
        node_again(&s, "ds", true);
        assert_int_equal(outer_state_load(&s.replica), ERR_OK);
    }
    round_make(&r, &a.replica, 0, 4);
    round_commit(&a.replica, 0, &r, true);
    s.replica.state[0].slab[1][7] += 1;
    assert_int_equal(outer_state_replay(&s.replica, &r.manifest, r.aggregate, r.bytes),
                     ERR_DISAGREE);
    node_close(&a);
    node_close(&s);
    optimizer = OUTER_OPT_MOMENTUM;
}

static void test_delayed(void **state)
{
    slabs_are_state(state, OUTER_OPT_DELAYED);
}

/* And its squares begin at eps^2. */
static void test_adam(void **state)
{
    struct node a;
    slabs_are_state(state, OUTER_OPT_ADAM);
    optimizer = OUTER_OPT_ADAM;
    node_open(&a, "begin", false);
    assert_int_equal(outer_state_begin(&a.replica, initial), ERR_OK);
    node_again(&a, "begin", false);
    assert_int_equal(outer_state_load(&a.replica), ERR_OK);
    for (size_t k = 0; k < fragments.f[1].elements; k++) {
        assert_true(a.replica.state[1].slab[0][k] == 0);
        assert_true(a.replica.state[1].slab[1][k] == 1e-3f * 1e-3f);
    }
    node_close(&a);
    optimizer = OUTER_OPT_MOMENTUM;
}

/* A fragment of a moment next to one of parameters: begins at zero, is averaged with any outer
 * optimizer, keeps no momentum, and shares the spare with the other. */
static void test_moments_are_averaged(void **state)
{
    (void)state;
    static double theta[ELEMENTS_MAX];
    static struct made r;
    struct node a, s;
    fragments.f[1].state = FRAGMENT_SECOND;
    optimizer = OUTER_OPT_DELAYED;
    node_open(&a, "ma", false);
    node_open(&s, "ms", true);
    assert_int_equal(outer_state_begin(&a.replica, initial), ERR_OK);
    assert_int_equal(outer_state_begin(&s.replica, initial), ERR_OK);
    size_t n = fragments.f[1].elements;
    memset(theta, 0, sizeof theta);
    assert_null(a.replica.state[1].slab[0]);
    assert_non_null(a.replica.state[0].slab[1]);
    assert_int_equal(outer_state_snapshot_bytes(&a.replica, 1), n * sizeof(float) + n / 256);
    for (uint64_t t = 0; t < 4; t++) {
        for (unsigned f = 0; f < 2; f++) {
            round_make(&r, &a.replica, f, 10 * t + f);
            round_commit(&a.replica, f, &r, true);
            round_commit(&s.replica, f, &r, false);
        }
        for (size_t k = 0; k < n; k++) {
            theta[k] -= r.mean[k];
            assert_true(fabs(theta[k] - a.replica.state[1].theta[k]) < 1e-6);
        }
        node_again(&s, "ms", true);
        assert_int_equal(outer_state_load(&s.replica), ERR_OK);
    }
    struct digest da = outer_state_digest(&a.replica, false),
                  ds = outer_state_digest(&s.replica, false);
    assert_true(digest_equal(&da, &ds));
    struct outer_state_options o = options(true);
    size_t said = arena_bytes(&o);
    assert_true(s.arena.used_bytes >= said && s.arena.used_bytes < said + 4096);
    node_close(&a);
    node_close(&s);
    optimizer = OUTER_OPT_MOMENTUM;
    fragments.f[1].state = FRAGMENT_PARAMETERS;
}

/* TEST, --mutant NAME: tests/sim/mutants.h */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step_is_nesterov),
        cmocka_unit_test(test_step_is_annealed_and_restarted),
        cmocka_unit_test(test_nothing_infinite_is_applied),
        cmocka_unit_test(test_apply_compares),
        cmocka_unit_test(test_load_is_what_was_saved),
        cmocka_unit_test(test_retention),
        cmocka_unit_test(test_damage_shows),
        cmocka_unit_test(test_aggregator_repairs),
        cmocka_unit_test(test_running_repairs),
        cmocka_unit_test(test_rounds_without_a_step),
        cmocka_unit_test(test_other_settings),
        cmocka_unit_test(test_current_is_found_again),
        cmocka_unit_test(test_what_does_not_verify_is_not_current),
        cmocka_unit_test(test_a_directory_begins_once),
        cmocka_unit_test(test_a_moved_directory_is_not_committed_to),
        cmocka_unit_test(test_snapshot),
        cmocka_unit_test(test_damage_after_a_snapshot),
        cmocka_unit_test(test_memory_is_what_is_said),
        cmocka_unit_test(test_delayed),
        cmocka_unit_test(test_adam),
        cmocka_unit_test(test_moments_are_averaged),
    };
    if (!mutant_arguments(argc, argv, cmocka_set_test_filter))
        return 2;
    log_min(LOG_ERROR); /* damage is reported hundreds of times */
    if (dev_open(&cpu, &(struct dev_options){.kind = "cpu", .model_type = "f32", .threads = 1}) !=
        ERR_OK)
        return 1;
    int failed = cmocka_run_group_tests_name("whole", tests, setup, teardown);
    rule = STATE_DIGEST_LEAVES;
    failed += cmocka_run_group_tests_name("leaves", tests, setup, teardown);
    dev_close(cpu);
    return failed;
}
