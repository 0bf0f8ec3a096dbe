/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/codec/bits.h"
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are little-endian limbs");
typedef unsigned __int128 wide;

static uint64_t low_bits(unsigned bits)
{
    return bits == BITS_MAX ? UINT64_MAX : (1ull << bits) - 1;
}

void bits_pack(uint8_t *words, const int64_t *q, size_t count, unsigned bits)
{
    uint64_t keep = low_bits(bits);
    wide held = 0;
    unsigned have = 0;
    for (size_t i = 0; i < count; i++) {
        held |= (wide)((uint64_t)q[i] & keep) << have;
        have += bits;
        if (have >= BITS_MAX) {
            uint64_t limb = (uint64_t)held;
            memcpy(words, &limb, sizeof limb);
            words += sizeof limb;
            held >>= BITS_MAX;
            have -= BITS_MAX;
        }
    }
    uint64_t limb = (uint64_t)held;
    if (have)
        memcpy(words, &limb, sizeof limb);
}

void bits_unpack(int64_t *q, const uint8_t *words, size_t count, unsigned bits)
{
    uint64_t keep = low_bits(bits), sign = 1ull << (bits - 1);
    wide held = 0;
    unsigned have = 0;
    for (size_t i = 0; i < count; i++) {
        if (have < bits) {
            uint64_t limb;
            memcpy(&limb, words, sizeof limb);
            words += sizeof limb;
            held |= (wide)limb << have;
            have += BITS_MAX;
        }
        uint64_t word = (uint64_t)held & keep;
        q[i] = (int64_t)((word ^ sign) - sign);
        held >>= bits;
        have -= bits;
    }
}
