/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: what we call Muon is not the published one, a shard of the state is
 * not the state, matrices keep a second moment. Oracle: tests/golden/muon (NumPy in float64), on
 * this host and with the GPU's kernels emulated. `test_muon vectors SEED [muloco]` prints the
 * parameters after ten steps, for tests/reproduce/reference/muon.py. */
#include "tests/cuda/cuda_test.h"
#include "tests/inner/golden.h"
#include "tests/inner/setup.h"
#include <math.h>
#include "inner/optim/optim.h"

enum { TENSORS = 8, STEPS = 10, TARGETS = 3, WIDTH = 8 };
#define MUON                                                                                       \
    "--model.d_model", "8", "--model.heads", "1", "--train.optimizer", "muon", "--train.lr",       \
        "0.02", "--train.adamw_lr", "0.3", "--train.warmup_steps", "3", "--train.lr_schedule",     \
        "none", "--train.max_grad_norm", "0.5", "--train.steps", "10"

static const struct {
    const char *name, *full;
    int64_t shape[2];
    enum table_group group;
    float gradient;
} rows[TENSORS] = {
    {"embedding", "wte.weight", {5, 8}, TABLE_MATRIX, 1},
    {"wide", "layers.0.mlp.down.weight", {24, 40}, TABLE_HIDDEN, 1},
    {"tall", "layers.0.mlp.up.weight", {40, 24}, TABLE_HIDDEN, 1},
    {"zero", "layers.0.attn.proj.weight", {16, 16}, TABLE_HIDDEN, 0},
    {"vector", "layers.0.norm1.weight", {7, 1}, TABLE_VECTOR, 1},
    {"one", "layers.0.one.weight", {1, 1}, TABLE_HIDDEN, 1},
    {"scalar", "layers.0.norm2.weight", {1, 1}, TABLE_VECTOR, 1},
    {"qkv", "layers.0.attn.qkv.weight", {3 * WIDTH, WIDTH}, TABLE_HIDDEN, 1},
};

#define MULOCO MUON, "--train.muon_scale", "spectral", "--train.muon_coefficients", "per_iteration"

static struct arena arena;
static uint64_t seed; /* of the golden vectors: 0 */

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    err_clear();
    return 0;
}

static struct table make_table(void)
{
    struct table t = {.tensors = arena_array(&arena, TENSORS, sizeof *t.tensors)};
    for (; t.count < TENSORS; t.count++) {
        struct tensor *x = &t.tensors[t.count];
        *x = (struct tensor){.shape = {rows[t.count].shape[0], rows[t.count].shape[1]},
                             .offset = t.elements,
                             .group = rows[t.count].group};
        strcpy(x->name, rows[t.count].full);
        x->count = (size_t)(x->shape[0] * x->shape[1]);
        t.elements += (x->count + TABLE_ALIGN - 1) / TABLE_ALIGN * TABLE_ALIGN;
    }
    return t;
}

/* As in make.py. */
static float noise(uint64_t stream, uint64_t element)
{
    uint64_t z = (element + ((stream + (seed << 20)) << 32) + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (float)(z >> 40) / 8388608.0f - 1.0f;
}

struct machine;
static void own_of(const struct machine *k, float *to, const float *slab);

/* A slab of them; step -1: parameters, else that step's gradients. */
static float *noise_slab(const struct table *t, int step)
{
    float *slab = arena_array(&arena, t->elements, sizeof *slab);
    for (size_t k = 0; k < t->count; k++)
        for (size_t i = 0; i < t->tensors[k].count; i++)
            slab[t->tensors[k].offset + i] =
                (step < 0 ? 1 : rows[k].gradient) * noise(k + 1000 * (uint64_t)(step + 1), i);
    return slab;
}

/* One rank, or one of two that have shards but share nothing else here. */
struct machine {
    struct dev *d;
    struct coll part;
    struct optim o;
    struct table t;
    struct optim_slabs x;
};

/* What a machine holds of a slab, in the order of its shard. */
static void own_of(const struct machine *k, float *to, const float *slab)
{
    const struct optim_parts *p = &k->o.parts;
    for (size_t i = 0; i < p->count; i++)
        memcpy(to + p->ranges[i].offset, slab + p->at[i], p->ranges[i].count * sizeof *to);
}

static enum err sum_nothing(struct coll *c, double *x, size_t count)
{
    (void)c, (void)x, (void)count;
    return ERR_OK;
}

static const struct coll_ops no_sums = {.all_reduce = sum_nothing};

static void begin(struct machine *k, const char *type, const char *const *words, int rank, int size)
{
    *k = (struct machine){.t = make_table()};
    struct settings *s = setup_settings(&arena, words);
    assert_int_equal(cuda_test_open(&k->d, type), ERR_OK);
    k->part = (struct coll){.ops = &no_sums, .rank = rank, .size = size};
    if (optim_open(&k->o, k->d, &k->part, s, &k->t, &arena))
        fail_msg("%s", err_message());
    size_t bytes = k->t.elements * sizeof(float);
    assert_int_equal(dev_alloc(k->d, (void **)&k->x.params, bytes), ERR_OK);
    assert_int_equal(dev_alloc(k->d, (void **)&k->x.grads, bytes), ERR_OK);
    assert_int_equal(dev_alloc(k->d, (void **)&k->x.copy, bytes / 2), ERR_OK);
    float *own = arena_alloc(&arena, bytes);
    own_of(k, own, noise_slab(&k->t, -1));
    k->d->ops->copy(k->d, k->x.params, own, bytes);
}

static void end(struct machine *k)
{
    dev_free(k->d, k->x.params);
    dev_free(k->d, k->x.grads);
    dev_free(k->d, k->x.copy);
    optim_close(&k->o);
    dev_close(k->d);
}

static void go(struct machine *k, int step)
{
    double stats[STEP_STATS] = {[STEP_TARGETS] = TARGETS};
    float *own = arena_array(&arena, k->t.elements, sizeof *own);
    own_of(k, own, noise_slab(&k->t, step));
    k->d->ops->copy(k->d, k->x.grads, own, k->t.elements * sizeof(float));
    k->d->ops->copy(k->d, k->o.buffers.stats, stats, sizeof stats);
    if (optim_step_slabs(&k->o, &k->x, step))
        fail_msg("%s", err_message());
}

static float *params(struct machine *k)
{
    size_t bytes = k->t.elements * sizeof(float);
    float *p = arena_alloc(&arena, bytes);
    k->d->ops->copy(k->d, p, k->x.params, bytes);
    assert_int_equal(dev_sync(k->d), ERR_OK);
    return p;
}

/* The change since the start against the oracle's: its error is at most this share of the largest
 * element, but for the rounding of parameters near 1 in each step. */
static void compare(struct machine *k, const char *step, double bound)
{
    const float *p = params(k);
    for (size_t i = 0; i < TENSORS; i++) {
        size_t count;
        const struct tensor *x = &k->t.tensors[i];
        const double *want = golden_values(
            &arena, "tests/golden/muon", arena_printf(&arena, "%s%s", rows[i].name, step), &count);
        double worst = 0, largest = 0;
        assert_int_equal(count, x->count);
        for (size_t j = 0; j < count; j++) {
            double moved = fabs(want[j] - (double)noise(i, j)),
                   off = fabs((double)p[x->offset + j] - want[j]);
            largest = moved > largest ? moved : largest;
            worst = off > worst ? off : worst;
        }
        if (!(worst <= bound * largest + 4e-7))
            fail_msg("%s after step %s: %.3g off where the change is %.3g", rows[i].name, step,
                     worst, largest);
    }
}

static void check_vectors(const char *const *words, const char *suffix)
{
    static const struct {
        const char *type;
        double bound;
    } types[] = {{"f32", 1e-6}, {"bf16", 0.05}};
    for (size_t i = 0; i < 2; i++) {
        struct machine k;
        begin(&k, types[i].type, words, 0, 1);
        for (int step = 0; step < STEPS; step++) {
            go(&k, step);
            if (step == 0)
                compare(&k, arena_printf(&arena, "1%s", suffix), types[i].bound);
        }
        compare(&k, arena_printf(&arena, "%d%s", STEPS, suffix), types[i].bound);
        end(&k);
    }
}

static void follows_the_paper(void **state)
{
    (void)state;
    check_vectors((const char *[]){MUON, NULL}, "");
}

/* Its scale, and its coefficients for each iteration. */
static void follows_muloco(void **state)
{
    (void)state;
    check_vectors((const char *[]){MULOCO, NULL}, "m");
}

/* Two ranks' shards, each of whole tensors, are what one rank computes, bit for bit. */
static void shards_are_the_whole(void **state)
{
    struct machine whole, part[2];
    (void)state;
    begin(&whole, "f32", (const char *[]){MUON, "--train.max_grad_norm=0", NULL}, 0, 1);
    for (int r = 0; r < 2; r++)
        begin(&part[r], "f32",
              (const char *[]){MUON, "--train.max_grad_norm=0", "--train.zero_stage", "1", NULL}, r,
              2);
    for (int step = 0; step < STEPS; step++) {
        go(&whole, step);
        go(&part[0], step);
        go(&part[1], step);
    }
    const float *all = params(&whole);
    float *want = arena_array(&arena, whole.t.elements, sizeof *want);
    size_t count = 0;
    for (int r = 0; r < 2; r++) {
        const struct optim *o = &part[r].o;
        assert_true(o->shard.count > 0);
        own_of(&part[r], want, all);
        for (size_t i = 0; i < o->parts.count; i++)
            assert_memory_equal(params(&part[r]) + o->parts.ranges[i].offset,
                                want + o->parts.ranges[i].offset,
                                o->parts.ranges[i].count * sizeof *all);
        count += o->shard.count;
    }
    assert_int_equal(count, whole.t.elements);
    end(&whole);
    end(&part[0]);
    end(&part[1]);
}

static unsigned products, gathers;
static void (*matmul)(struct dev *d, const struct dev_matmul *a);

static void count_matmul(struct dev *d, const struct dev_matmul *a)
{
    products++;
    matmul(d, a);
}

static const size_t *gathered;

/* Of this rank's share nothing changes; the other's stays a gradient here. */
static enum err gather_nothing(struct coll *c, void *x, size_t size, const size_t *offsets)
{
    (void)c, (void)x;
    assert_int_equal(size, sizeof(float));
    gathered = offsets;
    gathers++;
    return ERR_OK;
}

/* Without shards of the state two ranks compute each product once, and a rank's matrices have the
 * bits of one rank that computes all. */
static void ranks_share_the_products_out(void **state)
{
    struct machine whole, part[2];
    unsigned all, of_ranks[2];
    (void)state;
    begin(&whole, "f32", (const char *[]){MUON, NULL}, 0, 1);
    struct dev_ops counted = *whole.d->ops;
    matmul = counted.matmul;
    counted.matmul = count_matmul;
    whole.d->ops = &counted;
    products = 0;
    go(&whole, 0);
    all = products;
    const float *right = params(&whole);
    for (int r = 0; r < 2; r++) {
        begin(&part[r], "f32", (const char *[]){MUON, NULL}, r, 2);
        struct coll_ops ops = {.all_reduce = sum_nothing, .all_gather = gather_nothing};
        part[r].part.ops = &ops;
        part[r].d->ops = &counted;
        products = gathers = 0;
        go(&part[r], 0);
        of_ranks[r] = products;
        assert_int_equal(gathers, 1);
        assert_int_equal(gathered[0], 0);
        assert_int_equal(gathered[2], whole.t.elements);
        size_t begin_at = gathered[r], end_at = gathered[r + 1];
        assert_true(begin_at < end_at);
        assert_memory_equal(params(&part[r]) + begin_at, right + begin_at,
                            (end_at - begin_at) * sizeof *right);
        for (size_t i = 0; i < TENSORS; i++) /* what is no matrix is everywhere */
            if (rows[i].group != TABLE_HIDDEN)
                assert_memory_equal(params(&part[r]) + whole.t.tensors[i].offset,
                                    right + whole.t.tensors[i].offset,
                                    whole.t.tensors[i].count * sizeof *right);
        end(&part[r]);
    }
    assert_true(of_ranks[0] > 0 && of_ranks[1] > 0);
    assert_int_equal(of_ranks[0] + of_ranks[1], all);
    end(&whole);
}

/* A gradient that is not finite changes nothing; a layer that does not learn keeps its bits. */
static void nothing_changes(void **state)
{
    struct machine k;
    (void)state;
    begin(&k, "f32", (const char *[]){MUON, NULL}, 0, 1);
    go(&k, 0);
    const float *before = params(&k);
    float *grads = noise_slab(&k.t, 1);
    double stats[STEP_STATS] = {[STEP_TARGETS] = TARGETS};
    grads[k.t.tensors[2].offset] = NAN;
    k.d->ops->copy(k.d, k.x.grads, grads, k.t.elements * sizeof *grads);
    k.d->ops->copy(k.d, k.o.buffers.stats, stats, sizeof stats);
    assert_int_equal(optim_step_slabs(&k.o, &k.x, 1), ERR_OK);
    assert_memory_equal(params(&k), before, k.t.elements * sizeof *before);
    go(&k, 1);
    end(&k);
}

/* One slab of momentum, second moments of the others only: embedding, vector, scalar. */
static void matrices_keep_one_moment(void **state)
{
    const struct settings *s = setup_settings(&arena, (const char *[]){MUON, NULL});
    struct table t = make_table();
    (void)state;
    size_t bytes;
    assert_int_equal(optim_plan(&bytes, s, &t, 1), ERR_OK);
    assert_int_equal(bytes, (t.elements + 3 * TABLE_ALIGN) * sizeof(float));
    assert_false(optim_method_of(s)->second);
}

static int print_vectors(const char *of, bool muloco)
{
    struct machine k;
    seed = strtoull(of, NULL, 10);
    begin(&k, "f32", muloco ? (const char *[]){MULOCO, NULL} : (const char *[]){MUON, NULL}, 0, 1);
    for (int step = 0; step < STEPS; step++)
        go(&k, step);
    const float *p = params(&k);
    const struct optim_method *m = k.o.method;
    for (size_t i = 0; i < TENSORS; i++) {
        printf("%s", rows[i].name);
        for (size_t j = 0; j < k.t.tensors[i].count; j++)
            printf(" %.9g", (double)p[k.t.tensors[i].offset + j]);
        printf("\n");
    }
    printf("moments %d\n", m->first + m->second + (m->more(&k.t.tensors[1]) > 0));
    end(&k);
    return 0;
}

int main(int argc, char **argv)
{
    if (cuda_test_missing("f32"))
        return CUDA_TEST_SKIP;
    if ((argc == 3 || argc == 4) && !strcmp(argv[1], "vectors"))
        return print_vectors(argv[2], argc == 4);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(follows_the_paper, reset),
        cmocka_unit_test_setup(follows_muloco, reset),
        cmocka_unit_test_setup(shards_are_the_whole, reset),
        cmocka_unit_test_setup(ranks_share_the_products_out, reset),
        cmocka_unit_test_setup(nothing_changes, reset),
        cmocka_unit_test_setup(matrices_keep_one_moment, reset),
    };
    return cmocka_run_group_tests_name("muon", tests, NULL, NULL);
}
