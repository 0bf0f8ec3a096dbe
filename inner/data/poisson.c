/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/poisson.h"
#include "kernels/base/err.h"

struct poisson poisson_begin(const uint8_t key[CHACHA_KEY_BYTES], uint64_t records,
                             uint64_t expected)
{
    __extension__ typedef unsigned __int128 wide;
    ASSERT(expected > 0 && expected < records);
    return (struct poisson){.draws = chacha_stream(key, 0),
                            .records = records,
                            .limit = (uint64_t)(((wide)expected << 64) / records)};
}

bool poisson_coin(struct poisson *p)
{
    return chacha_bits(&p->draws, 64) < p->limit;
}

bool poisson_next(struct poisson *p, uint64_t *record)
{
    while (p->next < p->records) {
        *record = p->next++;
        if (poisson_coin(p))
            return true;
    }
    return false;
}
