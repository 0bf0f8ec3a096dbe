/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MASKED_H
#define MASKED_H
/* Payloads of a summable codec as words of a ring (mask.h), and the sum of such words as the
 * aggregate that the codec makes of the plain payloads. Pure, on the host; at most `threads`
 * threads.
 *
 * The parts of the layout are those of codec_words (codec.h).
 *
 * Every block has all its words, whether it is sent or not: which blocks a site sends would tell
 * something of its data. A block that is not sent has integers 0, and the code that the payload
 * says. Codes are those of the payload, so the next grid is the plain one.
 */
#include "outer/codec/codec.h"
#include "outer/masks/mask.h"

/* ERR_CONFIG, by name: a codec whose contributions do not add, or that has no use of masks since
 * its words would be those of all values (csc); a width beyond 64 bits, or a vector beyond 2^38
 * bytes. count: of values, a multiple of 256, above 0; sites: the largest n, at most
 * CODEC_SITES_MAX. */
enum err masked_layout(struct mask_layout *l, const struct codec *c, size_t count,
                       unsigned sites) MUST;
/* words (l->size_bytes) of a payload with the layout's codec and count. The payload is checked
 * (codec.check). */
void masked_pack(uint8_t *words, const struct mask_layout *l, const struct codec *c,
                 const uint8_t *payload, int threads);
/* sum: of the words of n payloads, at most the layout's sites, without masks -> aggregate (room for
 * aggregate_max of n). codec.mean makes of it the mean and the grid of the plain aggregate, bit for
 * bit. The bytes are equal, too, but where integers of a block that is sent all add up to 0: such a
 * block is present in the plain aggregate alone. ERR_PROTO: sums that n payloads cannot have, so
 * that a site masked wrongly or masks are missing. */
enum err masked_aggregate(uint8_t *aggregate, size_t *size_bytes, const struct codec *c,
                          const struct mask_layout *l, const uint8_t *sum, unsigned n,
                          int threads) MUST;

#endif
