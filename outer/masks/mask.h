/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MASK_H
#define MASK_H
/* Masks of secure aggregation (docs/privacy-methods.md): integers in the ring Z_2^b, words of b
 * bits, and what is added to them. Exact; the same bytes on every machine and with every number of
 * threads.
 *
 * Ring. A site's integers lie in [-Q, Q]; n sites add to [-nQ, nQ]. b = ceil(log2(2nQ + 1)), so nQ
 * < 2^(b-1) and the sum is the word that is read as a signed number. b is 1 to 64.
 *
 * Layout. A vector has parts (block codes, integers) of a width each. Words lie in a bit stream
 * from the low bit of each byte on: word i of a part has its bits i * b to (i + 1) * b - 1. Every
 * part begins at a multiple of 64 bytes; what is between two parts is zero. PRG(s) is the ChaCha20
 * key stream of s, cut in the same way: the word of a mask is at the place of the word that it
 * masks. codec/bits.h packs words.
 *
 * Words of any width are added without unpacking: the top bits of all words are taken out, the rest
 * is one long addition, whose carries cannot leave a word, and the top bits are added by XOR.
 */
#include <stdbool.h>
#include "outer/masks/cipher.h"

enum { MASK_BITS_MAX = 64, MASK_PARTS_MAX = 8, MASK_ALIGN = CIPHER_BLOCK_BYTES };

/* b for `sites` contributions of integers in [-q, q]; 0: more than 64 bits. sites, q > 0. */
unsigned mask_bits(unsigned sites, uint64_t q);

struct mask_part {
    unsigned bits; /* b */
    size_t count;  /* words */
};
struct mask_layout {
    struct mask_part part[MASK_PARTS_MAX];
    size_t start[MASK_PARTS_MAX]; /* bytes, a multiple of 64 */
    unsigned parts;
    size_t size_bytes; /* a multiple of 64: so long is the vector, on the wire too */
};
/* ERR_CONFIG: no part, too many, a width outside 1 to 64, no word, or more than 2^38 bytes. */
enum err mask_layout_make(struct mask_layout *l, const struct mask_part *parts,
                          unsigned count) MUST;
/* What a receiver checks besides the size: nothing but zeros between the parts. */
bool mask_padding_holds(const struct mask_layout *l, const uint8_t *words);

struct mask_term { /* a mask, and whether it is subtracted */
    const struct cipher_key *seed;
    bool minus;
};
/* words += or -= PRG(seed) for each term, by at most `threads` threads. On an error words hold
 * nothing of use. */
enum err mask_apply(uint8_t *words, const struct mask_layout *l, const struct mask_term *terms,
                    size_t count, int threads) MUST;
/* sum += words, both of the layout: zeros between the parts stay zeros. */
void mask_sum(uint8_t *sum, const uint8_t *words, const struct mask_layout *l, int threads);

#endif
