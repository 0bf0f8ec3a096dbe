/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/diloco/interval.h"

bool interval_over(const struct interval *i, uint64_t now_ms, uint64_t tokens)
{
    if (!i->length_ms)
        return false;
    return i->ended_tokens ? tokens >= i->ended_tokens : now_ms - i->began_ms >= i->length_ms;
}

int64_t interval_steps(const struct interval *i, uint64_t tokens, uint64_t batch)
{
    return tokens > i->began_tokens ? (int64_t)((tokens - i->began_tokens) / batch) : 0;
}
