/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a parameter is stepped by two ranks or by none, a shard is read at
 * another rank's place, a tensor is cut where its optimizer needs it whole, the bytes that are
 * planned are not those that are sent. */
#include "tests/inner/setup.h"
#include "inner/coll/units.h"
#include "kernels/base/rng.h"

static struct arena arena;

enum { UNITS_MAX = 12, PIECES_MAX = 64 };
struct shape {
    size_t units, pieces;
    struct dev_range unit[UNITS_MAX];
    struct unit_piece piece[PIECES_MAX];
};

/* Appends a unit of tensors of these lengths, each at a multiple of 256. */
static void unit_add(struct shape *s, size_t grain, const size_t *lengths, size_t n)
{
    struct dev_range *u = &s->unit[s->units++];
    u->offset = s->pieces ? s->piece[s->pieces - 1].offset + s->piece[s->pieces - 1].count : 0;
    u->count = 0;
    for (size_t i = 0; i < n; i++) {
        size_t span = (lengths[i] + 255) / 256 * 256;
        s->piece[s->pieces++] =
            (struct unit_piece){u->offset + u->count, span, grain ? grain : span};
        u->count += span;
    }
}

static struct unit_map map_of(const struct shape *s, int ranks)
{
    struct unit_map m;
    const struct unit_cut c = {s->unit, s->units, s->piece, s->pieces, ranks};
    assert_int_equal(unit_map_make(&m, &c, &arena), ERR_OK);
    return m;
}

/* What a rank holds of a range, and the place of each of its elements. */
static void check_own(const struct unit_map *m, int rank, struct dev_range r)
{
    for (size_t u = 0; u < m->count; u++) {
        size_t from, count = 0, first = 0;
        struct dev_range own = unit_own(m, u, rank, r, &from);
        for (size_t at = r.offset; at < r.offset + r.count; at++) {
            struct unit_place x = unit_place_of(m, at);
            if (x.rank != rank || x.unit != u)
                continue;
            if (count == 0)
                first = at;
            assert_int_equal(x.at - own.offset, at - from);
            count++;
        }
        assert_int_equal(own.count, count);
        assert_true(count == 0 || from == first);
    }
}

/* Every element has one place, shards have no gaps, and cuts lie where pieces allow them. */
static void check_map(const struct shape *s, int ranks)
{
    struct unit_map m = map_of(s, ranks);
    size_t elements = s->unit[s->units - 1].offset + s->unit[s->units - 1].count, total = 0;
    assert_int_equal(m.elements, elements);
    assert_int_equal(m.count, s->units);
    for (int r = 0; r < ranks; r++) {
        size_t at = 0;
        for (size_t u = 0; u < m.count; u++) {
            struct dev_range part = unit_part(&m, u, r), unit = unit_range(&m, u);
            assert_int_equal(unit_base(&m, u, r), at);
            assert_true(part.offset >= unit.offset &&
                        part.offset + part.count <= unit.offset + unit.count);
            assert_int_equal(part.offset,
                             r ? unit_part(&m, u, r - 1).offset + unit_part(&m, u, r - 1).count
                               : unit.offset);
            at += part.count;
        }
        assert_int_equal(unit_shard(&m, r), at);
        assert_true(at <= unit_shard_most(&m));
        total += at;
    }
    assert_int_equal(total, elements);
    for (size_t i = 0; i < s->pieces; i++)
        for (int r = 1; r < ranks; r++) {
            const struct unit_piece *p = &s->piece[i];
            size_t cut = unit_cuts(&m, unit_of(&m, p->offset))[r];
            if (cut > p->offset && cut < p->offset + p->count)
                assert_int_equal((cut - p->offset) % p->grain, 0);
        }
    for (size_t at = 0; at < elements; at += 128) { /* the place of an element, and back */
        struct unit_place x = unit_place_of(&m, at);
        struct dev_range part = unit_part(&m, x.unit, x.rank);
        assert_true(at >= part.offset && at < part.offset + part.count);
        assert_int_equal(x.at, unit_base(&m, x.unit, x.rank) + at - part.offset);
    }
}

static void every_element_has_one_place(void **state)
{
    static const size_t primes[] = {7919, 104729, 31, 2}, ones[] = {1},
                        layer[] = {65536, 256, 1000}, large[] = {1 << 20};
    static const size_t grains[] = {256, 16384, 0};
    (void)state;
    for (int k = 0; k < 3; k++) {
        struct shape s = {0};
        unit_add(&s, grains[k], large, 1);
        unit_add(&s, grains[k], primes, 4);
        unit_add(&s, grains[k], ones, 1); /* a unit of one value */
        unit_add(&s, grains[k], layer, 3);
        unit_add(&s, grains[k], NULL, 0);         /* a table without a head */
        for (int ranks = 1; ranks <= 40; ranks++) /* more than the small units have blocks */
            check_map(&s, ranks);
    }
}

static size_t draw(uint64_t i, size_t below)
{
    return (size_t)(rng_unit(7, RNG_TEST, i) * (double)below);
}

/* Units of tensors of drawn sizes, cut finely or not at all: what one unit gives too few another
 * makes up for, however much that is. Ranges within a unit, around it, and across parts. */
static void drawn_units(void **state)
{
    uint64_t n = 0;
    (void)state;
    for (int k = 0; k < 300; k++) {
        struct shape s = {0};
        for (int u = 0; u < 8; u++) {
            size_t lengths[5], count = 1 + draw(n++, 5);
            for (size_t i = 0; i < count; i++)
                lengths[i] = 1 + draw(n++, i % 2 ? 600 : 9000);
            unit_add(&s, draw(n++, 2) ? 256 : 0, lengths, count);
        }
        int ranks = 2 + (int)draw(n++, 8);
        check_map(&s, ranks);
        struct unit_map m = map_of(&s, ranks);
        for (int r = 0; k % 20 == 0 && r < ranks; r++) {
            size_t at = draw(n++, m.elements), to = at + draw(n++, m.elements - at) + 1;
            check_own(&m, r, (struct dev_range){at, to - at});
            check_own(&m, r, unit_range(&m, 3));
            check_own(&m, r, unit_part(&m, 2, r));
        }
    }
}

/* Cuts are as even as the grain allows, and never inside a piece that is whole. */
static void parts_are_even(void **state)
{
    static const size_t layer[] = {100000, 300000, 5000};
    struct shape fine = {0}, whole = {0};
    (void)state;
    unit_add(&fine, 256, layer, 3);
    unit_add(&whole, 0, layer, 3);
    for (int ranks = 1; ranks <= 17; ranks++) {
        struct unit_map m = map_of(&fine, ranks);
        for (int r = 0; r < ranks; r++) {
            size_t part = unit_part(&m, 0, r).count, even = m.elements / (size_t)ranks;
            assert_true(part + 256 >= even && part <= even + 256);
        }
        m = map_of(&whole, ranks);
        for (int r = 1; r < ranks; r++) {
            size_t cut = unit_cuts(&m, 0)[r];
            assert_true(cut == 0 || cut == whole.piece[1].offset || cut == whole.piece[2].offset ||
                        cut == m.elements);
        }
    }
    struct unit_map two = map_of(&whole, 2); /* the second tensor is nearly all: rank 1 has it */
    assert_int_equal(unit_cuts(&two, 0)[1], whole.piece[1].offset);
    static const size_t turned[] = {5000, 300000, 100000};
    struct shape other = {0};
    unit_add(&other, 0, turned, 3);
    two = map_of(&other, 2); /* the middle lies in its second half: the cut is after it */
    assert_int_equal(unit_cuts(&two, 0)[1], other.piece[2].offset);
}

/* Tensors of one size, which two ranks cannot halve: what a rank has too much of one layer it has
 * too little of the next. */
static void units_make_up_for_each_other(void **state)
{
    static const size_t layer[] = {30000, 30000, 30000}, grains[] = {0, 16384};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct shape s = {0};
        for (int u = 0; u < 8; u++)
            unit_add(&s, grains[k], layer, 3);
        for (int ranks = 2; ranks <= 6; ranks++) {
            struct unit_map m = map_of(&s, ranks);
            for (int r = 0; r < ranks; r++) {
                size_t fair = m.elements / (size_t)ranks, own = unit_shard(&m, r);
                assert_true(own <= fair + 30208 && fair <= own + 30208);
            }
        }
    }
}

/* All that one rank sends is received by another. */
static void bytes_are_those_of_the_parts(void **state)
{
    static const size_t a[] = {3000, 70000}, b[] = {256};
    struct shape s = {0};
    (void)state;
    unit_add(&s, 256, a, 2);
    unit_add(&s, 256, b, 1);
    for (int ranks = 1; ranks <= 9; ranks++) {
        struct unit_map m = map_of(&s, ranks);
        size_t gathered = 0, scattered = 0;
        for (int r = 0; r < ranks; r++) {
            gathered += unit_gather_up(&m, r);
            scattered += unit_scatter_up(&m, r);
            assert_int_equal(unit_scatter_up(&m, r), m.elements - unit_shard(&m, r));
        }
        assert_int_equal(gathered, (size_t)(ranks - 1) * m.elements);
        assert_int_equal(scattered, (size_t)(ranks - 1) * m.elements);
    }
    struct unit_map one = map_of(&s, 1);
    assert_int_equal(unit_shard(&one, 0), one.elements);
    assert_int_equal(unit_most(&one), unit_range(&one, 0).count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_has_one_place),
        cmocka_unit_test(drawn_units),
        cmocka_unit_test(parts_are_even),
        cmocka_unit_test(units_make_up_for_each_other),
        cmocka_unit_test(bytes_are_those_of_the_parts),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return failed;
}
