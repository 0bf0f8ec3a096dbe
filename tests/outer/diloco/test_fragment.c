/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors go together. If this breaks, a parameter is synchronised twice or never. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "outer/diloco/fragment.h"
#include "tests/outer/toy.h"

static struct dev *cpu;

static enum err strided(struct fragments *f, const struct table *t, unsigned count, struct arena *a)
{
    return fragment_make(f, t, &(struct fragment_plan){.count = count}, a);
}

/* Every element of the slab, gaps included, lies in exactly one fragment; blocks of 256 stay whole.
 */
static void test_parts_cover_the_slab(void **state)
{
    (void)state;
    for (unsigned count = 1; count <= 7; count++) {
        struct tensor tensors[TOY_TENSORS_MAX];
        struct table t = toy_table(tensors, 5);
        struct arena a = arena_make(0);
        struct fragments f;
        unsigned char seen[8192] = {0};
        size_t parameters = 0;
        assert_int_equal(strided(&f, &t, count, &a), ERR_OK);
        assert_int_equal(f.count, count);
        for (unsigned p = 0; p < count; p++) {
            size_t elements = 0, end = 0;
            for (size_t i = 0; i < f.f[p].range_count; i++) {
                struct dev_range r = f.f[p].ranges[i];
                assert_true(i == 0 || r.offset > end); /* ascending, touching ones are one */
                assert_int_equal(r.offset % DEV_BLOCK, 0);
                for (size_t k = 0; k < r.count; k++)
                    seen[r.offset + k]++;
                elements += r.count;
                end = r.offset + r.count;
            }
            assert_int_equal(elements, f.f[p].elements);
            assert_int_equal(elements % DEV_BLOCK, 0);
            parameters += f.f[p].parameters;
        }
        assert_int_equal(parameters, t.parameters);
        for (size_t i = 0; i < t.elements; i++)
            assert_int_equal(seen[i], 1);
        arena_free(&a);
    }
}

/* A codec sees each tensor once, with its shape, where its values lie in the fragment. */
static void test_view_has_the_tensors(void **state)
{
    (void)state;
    struct tensor tensors[TOY_TENSORS_MAX];
    struct table t = toy_table(tensors, 5);
    struct arena a = arena_make(0);
    struct fragments f;
    static float slab[8192], part[8192];
    size_t seen = 0;
    assert_true(t.elements <= 8192);
    assert_int_equal(strided(&f, &t, 3, &a), ERR_OK);
    for (size_t i = 0; i < t.count; i++)
        for (size_t k = 0; k < t.tensors[i].count; k++)
            slab[t.tensors[i].offset + k] = (float)(i + 1);
    for (unsigned p = 0; p < 3; p++) {
        fragment_gather(cpu, part, slab, &f.f[p]);
        for (size_t r = 0; r < f.f[p].view.count; r++, seen++) {
            const struct tensor_range *x = &f.f[p].view.ranges[r];
            const struct tensor *is = &t.tensors[(size_t)part[x->first] - 1];
            assert_int_equal(x->count, is->count);
            assert_true(x->rows == is->shape[0] && x->columns == is->shape[1]);
            assert_int_equal(x->first % DEV_BLOCK, 0);
            for (size_t k = 0; k < x->count; k++)
                assert_true(part[x->first + k] == part[x->first]);
        }
    }
    assert_int_equal(seen, t.count);
    struct fragment_plan random = {.kind = FRAGMENT_RANDOM, .count = 3};
    assert_int_equal(fragment_make(&f, &t, &random, &a), ERR_OK);
    assert_int_equal(f.f[0].view.count, 0);
    arena_free(&a);
}

static unsigned home(const struct fragments *f, size_t offset)
{
    for (unsigned p = 0; p < f->count; p++)
        for (size_t i = 0; i < f->f[p].range_count; i++)
            if (offset >= f->f[p].ranges[i].offset &&
                offset < f->f[p].ranges[i].offset + f->f[p].ranges[i].count)
                return p;
    return f->count;
}

/* Block i in fragment i mod P (Streaming DiLoCo, strided), the big embedding where there is least.
 */
static void test_strided_and_balanced(void **state)
{
    (void)state;
    struct tensor tensors[TOY_TENSORS_MAX];
    struct table t = toy_table(tensors, 5);
    struct arena a = arena_make(0);
    struct fragments f;
    assert_int_equal(strided(&f, &t, 2, &a), ERR_OK);
    for (size_t i = 0; i < t.count; i++)
        if (t.tensors[i].layer >= 0 && t.tensors[i].layer < 5)
            assert_int_equal(home(&f, t.tensors[i].offset), t.tensors[i].layer % 2);
    /* Blocks: 3 and 2 of 768. wte 768 to the second; equal now, so wpe 256 to the first, the norms
     * 256 each after. */
    assert_int_equal(home(&f, 0), 1);
    assert_int_equal(home(&f, t.tensors[1].offset), 0);
    assert_int_equal(f.f[0].elements + f.f[1].elements, t.elements);
    assert_true(f.f[0].elements <= f.f[1].elements + 256 &&
                f.f[1].elements <= f.f[0].elements + 256);
    arena_free(&a);
}

/* Every kind of cut: each value in exactly one fragment of a state, and the moments cut the same
 * way. */
static void test_kinds(void **state)
{
    (void)state;
    static const struct fragment_slice slices[] = {{.first = -1, .last = 0, .at = 2},
                                                   {.first = 1, .last = 2, .at = 4},
                                                   {.first = 3, .last = 5, .at = 5}};
    for (int kind = FRAGMENT_STRIDED; kind <= FRAGMENT_SLICES; kind++) {
        struct tensor tensors[TOY_TENSORS_MAX];
        struct table t = toy_table(tensors, 5);
        struct arena a = arena_make(0);
        struct fragments f;
        unsigned char seen[FRAGMENT_STATES][8192] = {0};
        struct fragment_plan plan = {.kind = (enum fragment_kind)kind,
                                     .count = 3,
                                     .slices = slices,
                                     .seed = 7,
                                     .synchronised = {[FRAGMENT_SECOND] = true}};
        assert_int_equal(fragment_make(&f, &t, &plan, &a), ERR_OK);
        assert_int_equal(f.count, 6);
        assert_int_equal(f.parts, 3);
        for (unsigned p = 0; p < f.count; p++) {
            assert_int_equal(f.f[p].state, p < 3 ? FRAGMENT_PARAMETERS : FRAGMENT_SECOND);
            assert_int_equal(f.f[p].elements, f.f[p % 3].elements);
            for (size_t i = 0; i < f.f[p].range_count; i++) {
                struct dev_range r = f.f[p].ranges[i];
                assert_true(i == 0 ||
                            r.offset > f.f[p].ranges[i - 1].offset + f.f[p].ranges[i - 1].count);
                for (size_t k = 0; k < r.count; k++)
                    seen[f.f[p].state][r.offset + k]++;
            }
        }
        for (size_t i = 0; i < t.elements; i++)
            assert_true(seen[FRAGMENT_PARAMETERS][i] == 1 && seen[FRAGMENT_SECOND][i] == 1 &&
                        seen[FRAGMENT_FIRST][i] == 0);
        arena_free(&a);
    }
}

static void test_where_layers_go(void **state)
{
    (void)state;
    static const struct fragment_slice slices[] = {{.first = -1, .last = 0, .at = 2},
                                                   {.first = 1, .last = 2, .at = 4},
                                                   {.first = 3, .last = 5, .at = 5}};
    static const unsigned sequential[] = {0, 0, 1, 1, 2}; /* layer * 3 / 5 */
    static const unsigned sliced[] = {0, 1, 1, 2, 2};
    struct tensor tensors[TOY_TENSORS_MAX];
    struct table t = toy_table(tensors, 5);
    struct arena a = arena_make(0);
    struct fragments q, c;
    struct fragment_plan plan = {.kind = FRAGMENT_SEQUENTIAL, .count = 3};
    assert_int_equal(fragment_make(&q, &t, &plan, &a), ERR_OK);
    plan = (struct fragment_plan){.kind = FRAGMENT_SLICES, .count = 3, .slices = slices};
    assert_int_equal(fragment_make(&c, &t, &plan, &a), ERR_OK);
    for (size_t i = 0; i < t.count; i++) {
        int layer = t.tensors[i].layer;
        if (layer >= 0 && layer < 5)
            assert_int_equal(home(&q, t.tensors[i].offset), sequential[layer]);
        unsigned want = layer < 0 ? 0 : layer < 5 ? sliced[layer] : 2;
        assert_int_equal(home(&c, t.tensors[i].offset), want);
    }
    plan.count = 2; /* layers 3 and up belong to no fragment now */
    assert_int_equal(fragment_make(&c, &t, &plan, &a), ERR_CONFIG);
    assert_non_null(strstr(err_message(), "layer 3"));
    arena_free(&a);
}

/* Blocks of a random part are spread over the slab, and another seed draws others. */
static void test_random_is_random(void **state)
{
    (void)state;
    struct tensor tensors[TOY_TENSORS_MAX];
    struct table t = toy_table(tensors, 5);
    struct arena a = arena_make(0);
    struct fragments f, same, other;
    struct fragment_plan plan = {.kind = FRAGMENT_RANDOM, .count = 4, .seed = 1};
    size_t blocks = t.elements / DEV_BLOCK, moved = 0;
    assert_int_equal(fragment_make(&f, &t, &plan, &a), ERR_OK);
    assert_int_equal(fragment_make(&same, &t, &plan, &a), ERR_OK);
    plan.seed = 2;
    assert_int_equal(fragment_make(&other, &t, &plan, &a), ERR_OK);
    for (size_t i = 0; i < blocks; i++) {
        assert_int_equal(home(&f, i * DEV_BLOCK), home(&same, i * DEV_BLOCK));
        moved += home(&f, i * DEV_BLOCK) != home(&other, i * DEV_BLOCK);
    }
    assert_true(moved > blocks / 4); /* 3/4 expected */
    for (unsigned p = 0; p < 4; p++) {
        size_t share = f.f[p].elements / DEV_BLOCK;
        assert_true(share == blocks / 4 || share == blocks / 4 + 1);
        assert_true(f.f[p].range_count > 1);
    }
    arena_free(&a);
}

static void test_slice_parse(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "3",
                                      "3@",
                                      "@3",
                                      "3@0",
                                      "3@51",
                                      "5@1",
                                      "-1@1",
                                      "1-@1",
                                      "2-1@1",
                                      "1-2@3x",
                                      "final-0@1",
                                      "1 @2",
                                      "embedd@1",
                                      "1@+2",
                                      "1-2-3@4",
                                      "99999999999@1",
                                      "1@2+",
                                      "1@2+2",
                                      "1@5+2",
                                      "1@2+51",
                                      "1@2++5",
                                      "1@1+2+3+4+5+6+7+8+9+10+11+12+13+14+15+16+17"};
    struct fragment_slice s;
    assert_true(fragment_slice_parse(&s, "embed-3@5", 5, 50));
    assert_true(s.first == -1 && s.last == 3 && s.at == 5);
    assert_true(fragment_slice_parse(&s, "2@50", 5, 50));
    assert_true(s.first == 2 && s.last == 2 && s.at == 50);
    assert_true(fragment_slice_parse(&s, "4-final@1", 5, 50));
    assert_true(s.first == 4 && s.last == 5 && s.at == 1 && !s.more_count);
    assert_true(fragment_slice_parse(&s, "1-2@2+5+50", 5, 50));
    assert_true(s.at == 2 && s.more_count == 2 && s.more[0] == 5 && s.more[1] == 50);
    assert_true(fragment_slice_parse(&s, "1@1+2+3+4+5+6+7+8+9+10+11+12+13+14+15+16", 5, 50));
    assert_int_equal(s.more_count, PERIOD_MORE_MAX);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(fragment_slice_parse(&s, bad[i], 5, 50));
}

static void test_too_many_fragments(void **state)
{
    (void)state;
    struct tensor tensors[TOY_TENSORS_MAX];
    struct table t = toy_table(tensors, 2);
    struct arena a = arena_make(0);
    struct fragments f;
    assert_int_equal(strided(&f, &t, 6, &a), ERR_OK); /* 2 blocks, 4 tensors around them */
    assert_int_equal(strided(&f, &t, 7, &a), ERR_CONFIG);
    assert_non_null(strstr(err_message(), "outer.fragments = 7"));
    arena_free(&a);
}

static void test_gather_scatter(void **state)
{
    (void)state;
    struct tensor tensors[TOY_TENSORS_MAX];
    struct table t = toy_table(tensors, 5);
    struct arena a = arena_make(0);
    struct fragments f;
    float slab[8192], back[8192] = {0}, part[8192];
    assert_int_equal(strided(&f, &t, 3, &a), ERR_OK);
    for (size_t i = 0; i < t.elements; i++)
        slab[i] = (float)i / 64;
    for (unsigned p = 0; p < 3; p++) {
        fragment_gather(cpu, part, slab, &f.f[p]);
        assert_true(part[0] == slab[f.f[p].ranges[0].offset]);
        fragment_scatter(cpu, back, part, &f.f[p]);
    }
    assert_int_equal(dev_sync(cpu), ERR_OK);
    assert_memory_equal(slab, back, t.elements * sizeof *slab);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_cover_the_slab), cmocka_unit_test(test_view_has_the_tensors),
        cmocka_unit_test(test_strided_and_balanced), cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_where_layers_go),      cmocka_unit_test(test_random_is_random),
        cmocka_unit_test(test_slice_parse),          cmocka_unit_test(test_too_many_fragments),
        cmocka_unit_test(test_gather_scatter),
    };
    if (dev_open(&cpu, &(struct dev_options){.kind = "cpu", .model_type = "f32", .threads = 1}) !=
        ERR_OK)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    dev_close(cpu);
    return failed;
}
