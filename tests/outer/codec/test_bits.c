/* SPDX-License-Identifier: Apache-2.0 */
/* Words in a bit stream. What would break: the payloads and sums of fixed, and every masked vector.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "kernels/base/rng.h"
#include "outer/codec/bits.h"

static int64_t random_word(uint64_t seed, uint64_t i, unsigned bits)
{
    uint64_t r = rng_u64(seed, RNG_TEST, i) << (64 - bits);
    return (int64_t)r >> (64 - bits);
}

static uint64_t bits_at(const uint8_t *words, size_t at, unsigned bits)
{
    uint64_t v = 0;
    for (unsigned k = 0; k < bits; k++)
        v |= (uint64_t)(words[(at + k) / 8] >> (at + k) % 8 & 1) << k;
    return v;
}

static uint64_t keep(unsigned bits)
{
    return bits == 64 ? UINT64_MAX : (1ull << bits) - 1;
}

/* Every width: packed where the page says, and back, whole and in pieces. */
static void test_pack(void **state)
{
    (void)state;
    enum { COUNT = 64 * 3 + 17 };
    for (unsigned bits = 1; bits <= 64; bits++) {
        int64_t q[COUNT], back[COUNT];
        uint8_t words[COUNT * 8 + 64] = {0}, pieces[COUNT * 8 + 64] = {0};
        for (size_t i = 0; i < COUNT; i++)
            q[i] = random_word(bits, i, bits);
        bits_pack(words, q, COUNT, bits);
        for (size_t i = 0; i < COUNT; i++)
            assert_int_equal(bits_at(words, i * bits, bits), (uint64_t)q[i] & keep(bits));
        bits_unpack(back, words, COUNT, bits);
        assert_memory_equal(back, q, sizeof q);
        bits_pack(pieces, q, 128, bits);
        bits_pack(pieces + 128 / 8 * bits, q + 128, COUNT - 128, bits);
        assert_memory_equal(pieces, words, sizeof words);
        bits_unpack(back, words + 128 / 8 * bits, COUNT - 128, bits);
        assert_memory_equal(back, q + 128, (COUNT - 128) * sizeof *q);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pack)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
