/* Which tensors go together. If this breaks, a parameter is synchronised twice or never. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "outer/fragment.h"
#include "tests/outer/toy.h"

static struct dev *cpu;

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
        assert_int_equal(fragment_make(&f, &t, count, &a), ERR_OK);
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
    assert_int_equal(fragment_make(&f, &t, 2, &a), ERR_OK);
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

static void test_too_many_fragments(void **state)
{
    (void)state;
    struct tensor tensors[TOY_TENSORS_MAX];
    struct table t = toy_table(tensors, 2);
    struct arena a = arena_make(0);
    struct fragments f;
    assert_int_equal(fragment_make(&f, &t, 6, &a), ERR_OK); /* 2 blocks, 4 tensors around them */
    assert_int_equal(fragment_make(&f, &t, 7, &a), ERR_CONFIG);
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
    assert_int_equal(fragment_make(&f, &t, 3, &a), ERR_OK);
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
        cmocka_unit_test(test_parts_cover_the_slab),
        cmocka_unit_test(test_strided_and_balanced),
        cmocka_unit_test(test_too_many_fragments),
        cmocka_unit_test(test_gather_scatter),
    };
    if (dev_open(&cpu, &(struct dev_options){.kind = "cpu", .model_type = "f32", .threads = 1}) !=
        ERR_OK)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    dev_close(cpu);
    return failed;
}
