/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INTERVAL_H
#define INTERVAL_H
/* When a round by time ends at one site (A-EDiT, 2412.07210): after the first step at which
 * outer.sync_interval_s seconds have passed since the round before was applied here. The site then
 * sends what it has, so sites make different numbers of steps. The tokens of the site by the end of
 * the round (its data cursor) are stored with the contribution and in the manifest. A site that
 * repeats the steps of such a round ends it at these tokens and reads no clock, so it repeats the
 * same bits. Pure.
 */
#include <stdbool.h>
#include <stdint.h>

struct interval {
    uint64_t length_ms; /* 0: rounds end by their steps alone */
    uint64_t began_ms;
    uint64_t began_tokens; /* the site's tokens when the round before was sent */
    uint64_t ended_tokens; /* recorded: its tokens at the end of this round; 0: the clock decides */
};

bool interval_over(const struct interval *i, uint64_t now_ms, uint64_t tokens);
/* Steps that the site has made in the round, of `batch` tokens each. */
int64_t interval_steps(const struct interval *i, uint64_t tokens, uint64_t batch);

#endif
