/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BLOCKS_H
#define BLOCKS_H
/* The received part of a transfer. A payload is divided into at most BLOCKS_MAX blocks of whole
 * chunks. Each block fills from its start, so one length per block records exactly which bytes are
 * stored, from any connection. An interrupted transfer resumes without sending a byte twice. The
 * division depends only on the payload's size, so both ends agree on it. Pure.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 256: one connection holds at most 1/256 of a payload, and the lengths fit into a small message.
 */
enum { BLOCKS_MAX = 256, BLOCKS_UNIT = 1 << 20 };

struct blocks {
    uint64_t total;              /* bytes of the payload */
    uint32_t count;              /* 0: an empty payload, or not set */
    uint64_t stored[BLOCKS_MAX]; /* bytes, from the block's start */
};

void blocks_make(struct blocks *b, uint64_t total); /* no byte stored */
uint64_t blocks_start(const struct blocks *b, uint32_t k);
uint64_t blocks_bytes(const struct blocks *b, uint32_t k);
uint64_t blocks_sum(const struct blocks *b);      /* stored bytes */
uint64_t blocks_first(const struct blocks *b);    /* first missing byte; `total`: none is missing */
void blocks_fill(struct blocks *b, uint64_t end); /* marks all bytes before `end` as stored */
/* True: this state can result from blocks_add and blocks_fill; checks a peer's state. */
bool blocks_valid(const struct blocks *b);

/* Compares bytes [offset, offset + n), which may span several blocks, with the stored ones. NEW:
 * they continue the stored bytes. KNOWN: all are stored. GAP: they do not continue the stored
 * bytes, or are stored in part. */
enum blocks_fit { BLOCKS_NEW, BLOCKS_KNOWN, BLOCKS_GAP };
enum blocks_fit blocks_fits(const struct blocks *b, uint64_t offset, uint64_t n);
void blocks_add(struct blocks *b, uint64_t offset, uint64_t n); /* the bytes must be NEW */
uint32_t blocks_at(const struct blocks *b,
                   uint64_t offset); /* index of the block that holds the byte */

#endif
