/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a gradient is summed twice or never, two ranks begin sums in
 * different orders and wait for ever, a rank updates parameters from sums that went elsewhere. */
#include "tests/inner/setup.h"
#include <math.h>
#include "inner/coll/reduce.h"
#include "inner/optim/optim.h"

enum { ELEMENTS = 1000, STARTS_MAX = 64, EVERYBODY = -1 };
static struct arena arena;
static struct {
    size_t from[STARTS_MAX], count[STARTS_MAX];
    int owner[STARTS_MAX];
    size_t starts, progressed, finished, refuse;
    const struct unit_map *map;
    enum dtype type;
} seen;
static uint16_t memory[1000]; /* of the bf16 reducer */
static float grads[ELEMENTS];

static enum err start(struct coll *c, void *x, enum dtype type, size_t count)
{
    (void)c;
    assert_int_equal(type, DTYPE_F32);
    if (seen.starts == seen.refuse)
        return err_set(ERR_LINK, "refused");
    assert_true(seen.starts < STARTS_MAX && count > 0);
    seen.from[seen.starts] = (size_t)((float *)x - grads);
    seen.count[seen.starts] = count;
    seen.owner[seen.starts++] = EVERYBODY;
    return ERR_OK;
}

static enum err progress(struct coll *c)
{
    (void)c;
    seen.progressed++;
    return ERR_OK;
}

static enum err finish(struct coll *c)
{
    (void)c;
    seen.finished++;
    return ERR_OK;
}

static float shard[ELEMENTS];

static enum err scatter(struct coll *c, const struct coll_parts *p, uint64_t *ticket)
{
    if (seen.starts == seen.refuse)
        return err_set(ERR_LINK, "refused");
    const struct unit_map *m = seen.map;
    size_t unit = unit_of(m, p->first[0]);
    assert_memory_equal(p->first, unit_cuts(m, unit), 5 * sizeof *p->first);
    assert_true(p->first[c->size] > p->first[0]); /* an empty unit is not sent */
    assert_int_equal(p->type, seen.type);
    if (p->type == DTYPE_F32) { /* the sum goes to its place in the shard, */
        assert_ptr_equal(p->whole, grads + p->first[0]);
        assert_ptr_equal(p->part, shard + unit_base(m, unit, c->rank));
    } else { /* or stays where it was packed */
        assert_ptr_equal(p->whole, memory + p->first[0]);
        assert_ptr_equal(p->part, memory + p->first[c->rank]);
    }
    for (int r = c->size; r-- > 0;) {
        assert_true(seen.starts < STARTS_MAX);
        seen.from[seen.starts] = p->first[r];
        seen.count[seen.starts] = p->first[r + 1] - p->first[r];
        seen.owner[seen.starts] = r;
        seen.starts += p->first[r + 1] > p->first[r];
    }
    *ticket = 1;
    return ERR_OK;
}

static const struct coll_ops ops = {.reduce_begin = start,
                                    .reduce_scatter_begin = scatter,
                                    .progress = progress,
                                    .reduce_wait = finish};

/* Units that end at these elements, four ranks; rank 1 has nothing of the first. */
static struct grad_units units_of(const size_t *ends, size_t n)
{
    static struct unit_map map;
    size_t *cuts = arena_array(&arena, 5 * n, sizeof *cuts);
    for (size_t u = 0; u < n; u++)
        for (size_t r = 0; r < 5; r++) {
            size_t begin = u ? ends[u - 1] : 0;
            cuts[5 * u + r] = begin + (ends[u] - begin) * (u == 0 && r == 1 ? 2 : r) / 4;
        }
    assert_int_equal(unit_map_of_cuts(&map, cuts, n, 4, &arena), ERR_OK);
    seen.map = &map;
    return (struct grad_units){.map = &map, .shard = shard};
}

static struct grad_reduce begin(int ranks, size_t bucket, struct grad_units *units)
{
    static struct coll coll;
    coll = (struct coll){.ops = &ops, .size = ranks};
    memset(&seen, 0, sizeof seen);
    seen.refuse = STARTS_MAX;
    seen.type = DTYPE_F32;
    seen.map = units ? units->map : NULL;
    struct grad_reduce r = {.coll = &coll,
                            .reducer = &reducer_f32,
                            .grads = grads,
                            .elements = ELEMENTS,
                            .bucket = bucket,
                            .units = units};
    grad_reduce_begin(&r);
    return r;
}

/* Each element once, each by its owner. */
static void check_cover(const struct unit_map *m)
{
    int times[ELEMENTS] = {0};
    for (size_t s = 0; s < seen.starts; s++)
        for (size_t i = seen.from[s]; i < seen.from[s] + seen.count[s]; i++) {
            times[i]++;
            assert_true(!m || unit_place_of(m, i).rank == seen.owner[s]);
        }
    for (size_t i = 0; i < ELEMENTS; i++)
        assert_int_equal(times[i], 1);
}

static const size_t steps[] = {990, 900, 890, 880, 500, 500, 499, 0};

static void walk(struct grad_reduce *r)
{
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        grad_reduce_ready(r, steps[i]);
    assert_int_equal(grad_reduce_wait(r), ERR_OK);
    assert_int_equal(seen.finished, r->coll->size > 1);
}

static void pieces_of_a_bucket_and_more(void **state)
{
    (void)state;
    struct grad_reduce r = begin(2, 100, NULL);
    walk(&r);
    check_cover(NULL);
    assert_int_equal(seen.starts, 3); /* 900, 500, 0: 499 waits for more */
    assert_int_equal(seen.from[0], 900);
    assert_int_equal(seen.from[1], 500);
    assert_int_equal(seen.progressed, 8);
    for (size_t i = 0; i < seen.starts; i++)
        assert_int_equal(seen.owner[i], EVERYBODY);
}

static void no_buckets_one_sum_at_the_end(void **state)
{
    (void)state;
    struct grad_reduce r = begin(2, 0, NULL);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        grad_reduce_ready(&r, steps[i]);
    assert_int_equal(seen.starts, 0);
    assert_int_equal(grad_reduce_wait(&r), ERR_OK);
    assert_int_equal(seen.starts, 1);
    check_cover(NULL);
}

/* What does not learn is sent by no rank; what does, once, with any bucket and any owners. */
static void frozen_parts_are_not_sent(void **state)
{
    (void)state;
    static const struct dev_range ranges[] = {{100, 250}, {600, 50}, {880, 120}};
    static const size_t ends[] = {100, 350, 600, 650, 880, ELEMENTS};
    struct grad_units units = units_of(ends, 6);
    struct dev *d = setup_device("f32", 1);
    const size_t buckets[] = {0, 100, 1000};
    for (int k = 0; k < 6; k++) {
        struct grad_reduce r = begin(k % 2 ? 4 : 2, buckets[k / 2], k % 2 ? &units : NULL);
        size_t sent = 0;
        r.dev = d;
        r.ranges = ranges;
        r.range_count = 3;
        for (size_t i = 0; i < ELEMENTS; i++)
            shard[i] = 1;
        grad_reduce_begin(&r);
        for (size_t i = 0; i < ELEMENTS; i++) /* what is not sent is no gradient of a last step */
            assert_true(shard[i] == (k % 2 && i < unit_shard(units.map, 0) ? 0.0f : 1.0f));
        walk(&r);
        for (size_t s = 0; s < seen.starts; s++) {
            size_t in = 0;
            for (int i = 0; i < 3; i++)
                in += seen.from[s] >= ranges[i].offset &&
                      seen.from[s] + seen.count[s] <= ranges[i].offset + ranges[i].count;
            assert_int_equal(in, 1);
            sent += seen.count[s];
        }
        assert_int_equal(sent, 250 + 50 + 120);
    }
    dev_close(d);
}

static void parts_go_to_their_owners(void **state)
{
    (void)state;
    static const size_t ends[] = {333, 890, 900, ELEMENTS};
    struct grad_units units = units_of(ends, 4);
    struct grad_reduce r = begin(4, 100, &units);
    grad_reduce_ready(&r, 950);
    assert_int_equal(seen.starts, 0); /* not all of the last unit is final */
    grad_reduce_ready(&r, 900);
    assert_int_equal(seen.starts, 4);
    grad_reduce_ready(&r, 334);
    assert_int_equal(seen.starts, 8);
    grad_reduce_ready(&r, 0);
    assert_int_equal(grad_reduce_wait(&r), ERR_OK);
    assert_int_equal(seen.finished, 1);
    check_cover(units.map);
    for (size_t i = 1; i < seen.starts; i++) /* from the end, as the backward goes */
        assert_true(seen.from[i] < seen.from[i - 1]);
}

/* Each rank's sums are put where its parts are, also of an empty unit's neighbours. */
static void every_rank_has_its_part(void **state)
{
    (void)state;
    static const size_t ends[] = {333, 333, 900, ELEMENTS};
    struct grad_units units = units_of(ends, 4);
    for (int rank = 0; rank < 4; rank++) {
        struct grad_reduce r = begin(4, 100, &units);
        r.coll->rank = rank;
        walk(&r);
        check_cover(units.map);
    }
}

/* In bf16 the sum of a part, once it is there, becomes the f32 gradients of the shard. */
static void sums_in_bf16_reach_the_shard(void **state)
{
    (void)state;
    static const size_t ends[] = {333, 900, ELEMENTS};
    struct grad_units units = units_of(ends, 3);
    struct dev *d = setup_device("f32", 1);
    for (int rank = 0; rank < 4; rank++) {
        struct grad_reduce r = begin(4, 100, &units);
        r.coll->rank = rank;
        r.dev = d, r.reducer = &reducer_bf16, r.memory = memory;
        seen.type = DTYPE_BF16;
        for (size_t i = 0; i < ELEMENTS; i++) {
            grads[i] = (float)(i % 128);
            shard[i] = -1;
        }
        walk(&r);
        check_cover(units.map);
        for (size_t i = 0; i < ELEMENTS; i++) {
            struct unit_place at = unit_place_of(units.map, i);
            if (at.rank == rank)
                assert_true(shard[at.at] == (float)(i % 128));
        }
        for (size_t i = unit_shard(units.map, rank); i < ELEMENTS; i++)
            assert_true(shard[i] == -1);
    }
    dev_close(d);
}

/* A step whose gradients stay on their rank sends nothing, and the next step is a new one. */
static void local_steps_send_nothing(void **state)
{
    (void)state;
    struct grad_reduce r = begin(2, 100, NULL);
    r.local = true;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        grad_reduce_ready(&r, steps[i]);
    assert_int_equal(grad_reduce_wait(&r), ERR_OK);
    assert_int_equal(seen.starts, 0);
    r.local = false;
    r.error = ERR_LINK; /* of a step that failed */
    grad_reduce_begin(&r);
    walk(&r);
    check_cover(NULL);
}

/* Kim et al. 2024 (2402.02447): B buckets, each of norm clip / sqrt(B) at most; below it no bit
 * changes, and a second clip changes none. */
static void buckets_are_clipped_alone(void **state)
{
    (void)state;
    enum { BUCKET = 300, BUCKETS = 4 };
    float before[ELEMENTS], once[ELEMENTS], factor;
    double norms[2] = {0, 1};
    struct dev *d = setup_device("f32", 1);
    for (size_t i = 0; i < ELEMENTS; i++)
        before[i] = grads[i] = rng_normal(3, 4, i) * (i >= 700 ? 0.01f : 5.0f);
    static const size_t ends[] = {333, 900, ELEMENTS};
    struct grad_units units = units_of(ends, 3);
    struct grad_reduce shared =
        begin(4, BUCKET, &units); /* and the units begin as they are clipped */
    const struct grad_clip clip = {.norm = 0.5f, .targets = 64, .norms = norms, .factor = &factor};
    shared.dev = d, shared.clip = clip;
    grad_reduce_ready(&shared, 650);
    assert_int_equal(seen.starts, 4);
    grad_reduce_ready(&shared, 0);
    assert_int_equal(grad_reduce_wait(&shared), ERR_OK);
    check_cover(units.map);
    memcpy(grads, before, sizeof before);
    for (int ranks = 2; ranks > 0; ranks--) {
        struct grad_reduce r = begin(ranks, BUCKET, NULL);
        r.dev = d, r.clip = clip;
        if (ranks == 1) /* clips, and sums nothing: the reducer's memory is not there */
            r.reducer = &reducer_bf16, r.memory = NULL;
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
            grad_reduce_ready(&r, steps[i]);
        assert_int_equal(grad_reduce_wait(&r), ERR_OK);
        assert_int_equal(seen.starts, ranks == 2 ? BUCKETS : 0);
        if (ranks == 2) {
            check_cover(NULL);
            memcpy(once, grads, sizeof once);
        }
    }
    for (size_t b = 0; b < BUCKETS; b++) {
        size_t to = ELEMENTS - b * BUCKET, from = to > BUCKET ? to - BUCKET : 0;
        double norm = 0, most = 0.5 / sqrt(BUCKETS) * 64;
        for (size_t i = from; i < to; i++)
            norm += (double)before[i] * (double)before[i];
        norm = sqrt(norm);
        for (size_t i = from; i < to; i++) {
            double want = (double)before[i] * (norm > most ? most / norm : 1);
            assert_true(fabs((double)once[i] - want) <= 1e-6 * fabs(want));
            assert_true(fabs((double)(grads[i] - once[i])) <= 2e-7 * fabs(want));
        }
        assert_true(b > 0 || memcmp(once + from, before + from, (to - from) * 4) == 0);
    }
    dev_close(d);
}

static void one_rank_sums_nothing(void **state)
{
    (void)state;
    struct grad_reduce r = begin(1, 100, NULL);
    walk(&r);
    assert_int_equal(seen.starts, 0);
}

static void a_failure_comes_out_at_the_end(void **state)
{
    (void)state;
    struct grad_reduce r = begin(2, 100, NULL);
    seen.refuse = 1;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        grad_reduce_ready(&r, steps[i]);
    assert_int_equal(grad_reduce_wait(&r), ERR_LINK);
    assert_says("refused");
    assert_int_equal(seen.finished, 0);
}

/* A cut inside a tensor: a multiple of DEV_RUN after the begin of what has a trust ratio. */
static void check_cut(const struct settings *s, const struct tensor *x, size_t at)
{
    size_t elements[TABLE_PROJECTIONS_MAX] = {x->count}, n = 1, offset = x->offset;
    if (s->train_trust_per == TRAIN_TRUST_PER_PROJECTION)
        n = table_projections(s, x, elements);
    for (size_t i = 0; i < n; offset += elements[i++])
        if (offset <= at && at < offset + elements[i])
            assert_int_equal((at - offset) % DEV_RUN, 0);
    assert_int_equal(offset, x->offset + x->count);
}

/* Parts of a unit are near equal, and cut inside tensors only at multiples of DEV_RUN; the state is
 * shared out likewise. */
static void parts_of(const char *trust_per, const char *kv_heads, const char *activation)
{
    struct table t;
    struct settings *s = setup_settings(
        &arena,
        (const char *[]){"--model.d_model", "240", "--model.layers", "3", "--model.heads", "4",
                         "--model.kv_heads", kv_heads, "--model.activation", activation,
                         "--train.trust_per", trust_per, "--train.zero_stage", "1", NULL});
    assert_int_equal(table_make(&t, s, &arena), ERR_OK);
    for (int ranks = 1; ranks <= 40; ranks++) {
        struct unit_map m;
        assert_int_equal(optim_units(&m, s, &t, ranks, &arena), ERR_OK);
        assert_int_equal(m.elements, t.elements);
        assert_int_equal(m.count, 5); /* embeddings, three layers, the last norm */
        for (size_t u = 0; u < m.count; u++)
            for (int r = 1; r < ranks; r++) {
                struct dev_range unit = unit_range(&m, u);
                size_t at = unit_cuts(&m, u)[r],
                       even = unit.offset + unit.count * (size_t)r / (size_t)ranks;
                assert_true(at <= even + 2 * DEV_RUN && even <= at + 2 * DEV_RUN + TABLE_ALIGN);
                for (size_t i = 0; i < t.count; i++)
                    check_cut(s, &t.tensors[i], at);
            }
        size_t most, fair = 8 * t.elements / (size_t)ranks;
        assert_int_equal(optim_plan(&most, s, &t, ranks), ERR_OK);
        assert_true(most >= fair / 8 * 8 && most <= fair + 8 * 2 * DEV_RUN);
        assert_int_equal(most, 8 * unit_shard_most(&m));
    }
}

static void parts_of_the_slab(void **state)
{
    (void)state;
    parts_of("tensor", "4", "gelu");
    parts_of("projection", "4", "gelu");
    parts_of("projection", "2", "swiglu");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_a_bucket_and_more),
        cmocka_unit_test(no_buckets_one_sum_at_the_end),
        cmocka_unit_test(frozen_parts_are_not_sent),
        cmocka_unit_test(parts_go_to_their_owners),
        cmocka_unit_test(every_rank_has_its_part),
        cmocka_unit_test(sums_in_bf16_reach_the_shard),
        cmocka_unit_test(local_steps_send_nothing),
        cmocka_unit_test(buckets_are_clipped_alone),
        cmocka_unit_test(one_rank_sums_nothing),
        cmocka_unit_test(a_failure_comes_out_at_the_end),
        cmocka_unit_test(parts_of_the_slab),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return failed;
}
