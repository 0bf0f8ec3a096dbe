/* SPDX-License-Identifier: Apache-2.0 */
/* The state digest of leaves (outer.state_digest): its definition, written here once more; the same
 * at every number of threads; files that say which leaf is damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "kernels/base/log.h"
#include "kernels/base/rng.h"
#include "outer/store/leaves.h"
#include "outer/store/outer_state.h"
#include "tests/outer/toy.h"

enum {
    VALUES = 65536, /* of a leaf */
    LAST = 1024,    /* of the last one of each array */
    COUNT = 3 * VALUES + LAST,
    ROUNDS = 2
};

static struct dev *cpu[2]; /* of one thread, and of four */
static struct tensor tensors[TOY_TENSORS_MAX];
static struct table table;
static struct fragments fragments;
static struct arena arena;
static char root[64];
static float *initial;

struct node {
    struct env *env;
    struct outer_state m;
    struct arena arena;
};

static struct outer_state_options options(bool site, enum outer_opt_kind kind,
                                          enum state_digest rule)
{
    struct outer_state_options o = {.fragments = &fragments,
                                    .digest = rule,
                                    .residuals = site,
                                    .discards = site,
                                    .states = 8,
                                    .keep = 8};
    o.schedule = schedule_streaming(1000, 10, 1, 1, CODEC_F32);
    assert_int_equal(outer_opt_make(&o.outer, kind, 0.7f, 0.9f), ERR_OK);
    return o;
}

static void node_open(struct node *n, const char *name, struct dev *d,
                      const struct outer_state_options *o)
{
    char path[128];
    *n = (struct node){.arena = arena_make(0)};
    snprintf(path, sizeof path, "%s/%s", root, name);
    assert_int_equal(env_posix_open(&n->env, path), ERR_OK);
    assert_int_equal(outer_state_open(&n->m, n->env, d, o, &n->arena), ERR_OK);
}

static void node_close(struct node *n)
{
    outer_state_close(&n->m);
    env_posix_close(n->env);
    arena_free(&n->arena);
}

/* One round of a single f32 contribution. */
static void round_commit(struct node *n, uint64_t seed, struct manifest *man, uint8_t **aggregate,
                         size_t *bytes)
{
    struct outer_state *m = &n->m;
    const struct outer_state_fragment *s = &m->state[0];
    const struct codec *c = codec_get(CODEC_F32);
    float *z = arena_array(&arena, COUNT, sizeof *z), *lost = arena_array(&arena, COUNT, 4);
    uint8_t *payload = arena_alloc(&arena, c->payload_max(c, COUNT));
    struct codec_payload one = {.data = payload};
    for (size_t i = 0; i < COUNT; i++)
        z[i] = (float)((int)rng_below(seed, RNG_TEST, i, 2001) - 1000) / (1 << 20);
    struct codec_call call = {.work = m->work, .grid = s->codes, .count = COUNT};
    assert_int_equal(c->encode(c, &call, payload, &one.size_bytes, lost, z), ERR_OK);
    *aggregate = arena_alloc(&arena, c->aggregate_max(c, COUNT, 1));
    assert_int_equal(c->aggregate(c, &call, *aggregate, bytes, &one, 1), ERR_OK);
    *man = (struct manifest){
        .run = "t", .round = s->round, .parent = s->manifest, .codec = CODEC_F32, .site_count = 1};
    man->sites[0] = (struct manifest_entry){.included = true,
                                            .weight = 1,
                                            .payload = digest_of(payload, one.size_bytes),
                                            .payload_bytes = one.size_bytes};
    assert_int_equal(outer_state_apply(m, man, *aggregate, *bytes), ERR_OK);
    for (size_t i = 0; m->o.residuals && i < COUNT; i++) {
        m->next.residual[i] = (float)i;
        m->next.discarded[i] = (double)i / 3;
    }
    assert_int_equal(outer_state_commit(m, 0, man, *aggregate, *bytes), ERR_OK);
}

/* The definition (docs/formats.md 4), from the bytes of a snapshot. */
static struct digest expected(const uint8_t *bytes, size_t arrays)
{
    static const size_t leaf[] = {VALUES, VALUES, VALUES, LAST};
    struct digest_stream d;
    digest_open(&d);
    for (size_t a = 0; a <= arrays; a++) { /* the codes come last */
        for (size_t i = 0; i < 4; i++) {
            size_t n = a < arrays ? 4 * leaf[i] : leaf[i] / 256;
            struct digest one = digest_of(bytes, n);
            digest_add(&d, one.bytes, sizeof one.bytes);
            bytes += n;
        }
    }
    return digest_close(&d);
}

static void the_digest_is_that_of_the_leaves(void **state)
{
    (void)state;
    static const enum outer_opt_kind kinds[] = {OUTER_OPT_AVERAGE, OUTER_OPT_MOMENTUM,
                                                OUTER_OPT_ADAM};
    for (size_t k = 0; k < 3; k++) {
        for (size_t t = 0; t < 2; t++) {
            struct outer_state_options o = options(t, kinds[k], STATE_DIGEST_LEAVES);
            struct manifest man;
            struct node n;
            uint8_t *aggregate, *snapshot;
            size_t bytes;
            char name[16];
            snprintf(name, sizeof name, "d%zu%zu", k, t);
            node_open(&n, name, cpu[t], &o);
            assert_int_equal(outer_state_begin(&n.m, initial), ERR_OK);
            snapshot = arena_alloc(&arena, outer_state_snapshot_bytes(&n.m, 0));
            for (uint64_t r = 0; r <= ROUNDS; r++) {
                if (r)
                    round_commit(&n, r, &man, &aggregate, &bytes);
                assert_int_equal(outer_state_snapshot_write(&n.m, 0, snapshot), ERR_OK);
                struct digest want = expected(snapshot, 1 + k), all;
                assert_true(digest_equal(&want, &n.m.state[0].digest));
                all = digest_of(want.bytes, sizeof want.bytes);
                want = outer_state_digest(&n.m, false);
                assert_true(digest_equal(&want, &all));
                assert_int_equal(outer_state_leaves(&o, 0), 4 * (2 + k));
            }
            node_close(&n);
        }
    }
}

/* The archive's leaves are those of the digest. */
static void an_archive_has_the_same_leaves(void **state)
{
    (void)state;
    struct outer_state_options o = options(false, OUTER_OPT_MOMENTUM, STATE_DIGEST_LEAVES);
    struct node n;
    node_open(&n, "archive", cpu[1], &o);
    assert_int_equal(outer_state_begin(&n.m, initial), ERR_OK);
    size_t count = leaves_count(&n.m, 0);
    struct digest *d = arena_array(&arena, count, sizeof *d);
    assert_int_equal(count, outer_state_leaves(&o, 0));
    assert_int_equal(leaves_digests(&n.m, 0, &n.m.state[0], d, &arena), ERR_OK);
    assert_memory_equal(d, n.m.state[0].leaf, count * sizeof *d);
    struct leaf *list = arena_array(&arena, count, sizeof *list);
    leaves_list(&n.m, 0, list);
    for (size_t i = 0; i < count; i++) { /* and their places are those of the digest */
        size_t before, each;
        const uint8_t *bytes = leaves_bytes(&n.m.state[0], list[i].array, COUNT, &before, &each);
        struct digest one = digest_of(bytes + list[i].first * each, list[i].count * each);
        assert_true(digest_equal(&one, &d[i]));
    }
    node_close(&n);
}

static void flip(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_CUR), 0);
    assert_int_equal(fputc(c ^ 4, f), c ^ 4);
    assert_int_equal(fclose(f), 0);
}

/* A file of this state, written again from memory, has the digests of its bytes. */
static void is_written_intact(struct node *n)
{
    struct arena a = arena_make(0);
    struct outer_state_file f;
    uint8_t *data;
    size_t size;
    assert_int_equal(outer_state_keep(&n->m, 0, n->env, "kept"), ERR_OK);
    assert_int_equal(n->env->ops->read(n->env, "kept", 1 << 30, &a, &data, &size), ERR_OK);
    assert_int_equal(outer_state_file_open(&f, &n->m, 0, "kept", data, size, &a), ERR_OK);
    assert_true(f.intact && digest_equal(&f.digest, &n->m.state[0].digest));
    arena_free(&a);
}

/* A state that comes from a file is written as well as one that a round made. */
static void a_state_that_was_read_is_written(void **state)
{
    (void)state;
    struct outer_state_options o = options(false, OUTER_OPT_MOMENTUM, STATE_DIGEST_LEAVES);
    struct arena a = arena_make(0);
    struct outer_state_file f;
    struct manifest man;
    struct node n;
    uint8_t *aggregate, *data;
    size_t bytes, size;
    node_open(&n, "read", cpu[1], &o);
    assert_int_equal(outer_state_begin(&n.m, initial), ERR_OK);
    round_commit(&n, 3, &man, &aggregate, &bytes);
    is_written_intact(&n);
    node_close(&n);
    node_open(&n, "read", cpu[0], &o);
    assert_int_equal(outer_state_load(&n.m), ERR_OK);
    is_written_intact(&n);
    assert_int_equal(n.env->ops->read(n.env, "frag/0/0/state", 1 << 30, &a, &data, &size), ERR_OK);
    assert_int_equal(outer_state_file_open(&f, &n.m, 0, "state", data, size, &a), ERR_OK);
    outer_state_file_take(&n.m, 0, &f);
    is_written_intact(&n);
    arena_free(&a);
    node_close(&n);
}

/* A byte of each part of a site's file: theta's first leaf, momentum's last, the codes, the
 * residual, the discarded residual. Each is noticed; each is repaired from what is in memory. */
static void damage_of_any_leaf_shows(void **state)
{
    (void)state;
    struct outer_state_options o = options(true, OUTER_OPT_MOMENTUM, STATE_DIGEST_LEAVES);
    struct manifest man;
    struct node n;
    uint8_t *aggregate;
    size_t bytes;
    char path[160];
    node_open(&n, "damage", cpu[1], &o);
    assert_int_equal(outer_state_begin(&n.m, initial), ERR_OK);
    round_commit(&n, 7, &man, &aggregate, &bytes);
    snprintf(path, sizeof path, "%s/damage/frag/0/1/state", root);
    const long discarded = -8L * COUNT, residual = discarded - 4L * COUNT,
               codes = residual - COUNT / 256, momentum = codes - 4L * COUNT,
               theta = momentum - 4L * COUNT;
    const long at[] = {
        theta,    theta + 4L * VALUES, momentum - 1, codes - 1, codes, codes + VALUES / 256,
        residual, discarded - 1,       discarded,    -1};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        flip(path, at[i]);
        struct arena a = arena_make(0);
        struct outer_state_file f;
        uint8_t *data;
        size_t size;
        assert_int_equal(n.env->ops->read(n.env, "frag/0/1/state", 1 << 30, &a, &data, &size),
                         ERR_OK);
        assert_int_equal(outer_state_file_open(&f, &n.m, 0, "state", data, size, &a), ERR_OK);
        assert_int_equal(f.intact, at[i] >= residual);
        assert_int_equal(f.own_intact, at[i] < residual);
        arena_free(&a);
        assert_int_equal(outer_state_repair(&n.m, 0, 1), ERR_OK);
    }
    node_close(&n);
    node_open(&n, "damage", cpu[0], &o);
    assert_int_equal(outer_state_load(&n.m), ERR_OK);
    assert_true(digest_equal(&n.m.state[0].digest, &man.state_after));
    node_close(&n);
}

/* A directory keeps the rule that it began with. */
static void another_rule_is_named(void **state)
{
    (void)state;
    for (unsigned first = 0; first < 2; first++) {
        struct outer_state_options o = options(first, OUTER_OPT_MOMENTUM, (enum state_digest)first);
        struct node n;
        const char *name = first ? "rule1" : "rule0";
        node_open(&n, name, cpu[0], &o);
        assert_int_equal(outer_state_begin(&n.m, initial), ERR_OK);
        node_close(&n);
        o.digest = (enum state_digest) !first;
        node_open(&n, name, cpu[0], &o);
        assert_int_equal(outer_state_load(&n.m), ERR_MISMATCH);
        assert_non_null(strstr(err_message(), "outer.state_digest"));
        node_close(&n);
    }
}

/* A rollback's aggregate is a state: its bytes have the aggregate's digest, its leaves the state's.
 */
static void a_rollback_is_replayed(void **state)
{
    (void)state;
    struct outer_state_options o = options(false, OUTER_OPT_MOMENTUM, STATE_DIGEST_LEAVES);
    struct node a, b;
    struct manifest man;
    uint8_t *aggregate;
    size_t bytes;
    node_open(&a, "back-a", cpu[1], &o);
    node_open(&b, "back-b", cpu[0], &o);
    assert_int_equal(outer_state_begin(&a.m, initial), ERR_OK);
    assert_int_equal(outer_state_begin(&b.m, initial), ERR_OK);
    for (uint64_t r = 0; r < ROUNDS; r++) {
        round_commit(&a, r, &man, &aggregate, &bytes);
        assert_int_equal(outer_state_replay(&b.m, &man, aggregate, bytes), ERR_OK);
        assert_int_equal(outer_state_commit(&b.m, 0, &man, aggregate, bytes), ERR_OK);
    }
    struct manifest back = {.run = "t",
                            .round = ROUNDS,
                            .parent = a.m.state[0].manifest,
                            .codec = CODEC_F32,
                            .site_count = 1,
                            .ordered_by = digest_of("operator", 8)};
    back.sites[0] = (struct manifest_entry){.site = 0};
    assert_int_equal(outer_state_roll_back(&a.m, 0, &back, 1), ERR_OK);
    assert_int_equal(outer_state_commit(&a.m, 0, &back, NULL, 0), ERR_OK);
    assert_false(digest_equal(&back.aggregate, &back.state_after));
    struct file_map map;
    assert_int_equal(outer_state_aggregate(&a.m, 0, ROUNDS, &map), ERR_OK);
    uint8_t *wrong = arena_alloc(&arena, map.size_bytes);
    memcpy(wrong, map.data, map.size_bytes);
    wrong[map.size_bytes - 1] ^= 1;
    assert_int_equal(outer_state_replay(&b.m, &back, wrong, map.size_bytes), ERR_PROTO);
    struct manifest other = back; /* it names other bytes than those of its state */
    other.aggregate.bytes[0] ^= 1;
    assert_int_equal(outer_state_replay(&b.m, &other, map.data, map.size_bytes), ERR_PROTO);
    assert_int_equal(outer_state_replay(&b.m, &back, map.data, map.size_bytes), ERR_OK);
    assert_int_equal(outer_state_commit(&b.m, 0, &back, map.data, map.size_bytes), ERR_OK);
    a.env->ops->unmap(a.env, &map);
    struct digest x = outer_state_digest(&a.m, false), y = outer_state_digest(&b.m, false);
    assert_true(digest_equal(&x, &y));
    node_close(&a);
    node_close(&b);
}

static int setup(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/test_state_digest.XXXXXX");
    assert_non_null(mkdtemp(root));
    arena = arena_make(0);
    table = (struct table){.tensors = tensors};
    toy_add(&table, "wte", 100001, -1);
    toy_add(&table, "weight", COUNT - 100096 - 300, 0);
    toy_add(&table, "bias", 20, 0);
    assert_int_equal(table.elements, COUNT);
    assert_int_equal(fragment_make(&fragments, &table, &(struct fragment_plan){.count = 1}, &arena),
                     ERR_OK);
    initial = arena_array(&arena, COUNT, sizeof *initial);
    for (size_t i = 0; i < COUNT; i++)
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
        cmocka_unit_test(the_digest_is_that_of_the_leaves),
        cmocka_unit_test(an_archive_has_the_same_leaves),
        cmocka_unit_test(a_state_that_was_read_is_written),
        cmocka_unit_test(damage_of_any_leaf_shows),
        cmocka_unit_test(another_rule_is_named),
        cmocka_unit_test(a_rollback_is_replayed),
    };
    log_min(LOG_ERROR);
    for (int i = 0; i < 2; i++)
        if (dev_open(&cpu[i], &(struct dev_options){.kind = "cpu",
                                                    .model_type = "f32",
                                                    .threads = i ? 4 : 1}) != ERR_OK)
            return 1;
    int failed = cmocka_run_group_tests(tests, setup, teardown);
    dev_close(cpu[0]);
    dev_close(cpu[1]);
    return failed;
}
