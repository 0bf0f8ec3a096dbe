#ifndef BLOCKS_H
#define BLOCKS_H
/* What of a transfer has arrived. A payload is cut into at most BLOCKS_MAX blocks of whole chunks,
 * each filled from its start; so one length per block says exactly what is there, whichever of
 * several connections brought it, and a transfer that was cut goes on without a byte twice. The cut
 * follows from the payload's size alone, so both ends agree on it. Pure.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 256: at most 1/256 of a payload is one connection's business alone, and the lengths fit into a
 * small message. */
enum { BLOCKS_MAX = 256, BLOCKS_UNIT = 1 << 20 };

struct blocks {
    uint64_t total;              /* bytes of the payload */
    uint32_t count;              /* 0: of an empty payload, or not set */
    uint64_t stored[BLOCKS_MAX]; /* bytes, from the block's start */
};

void blocks_make(struct blocks *b, uint64_t total); /* nothing is there */
uint64_t blocks_start(const struct blocks *b, uint32_t k);
uint64_t blocks_bytes(const struct blocks *b, uint32_t k);
uint64_t blocks_sum(const struct blocks *b);      /* bytes that are there */
uint64_t blocks_first(const struct blocks *b);    /* first byte that is missing; total: none */
void blocks_fill(struct blocks *b, uint64_t end); /* all before `end` is there, besides what was */
/* Could a sender of ours have got to this state? */
bool blocks_valid(const struct blocks *b);

/* Bytes [offset, offset + n) came; they may go on over several blocks. NEW: counted. KNOWN: all of
 * it was there. GAP: it does not follow what is there, or is there in part; nothing is counted. */
enum blocks_fit { BLOCKS_NEW, BLOCKS_KNOWN, BLOCKS_GAP };
enum blocks_fit blocks_fits(const struct blocks *b, uint64_t offset, uint64_t n);
void blocks_add(struct blocks *b, uint64_t offset, uint64_t n); /* only what is NEW */
uint32_t blocks_at(const struct blocks *b, uint64_t offset);    /* the block of a byte */

#endif
