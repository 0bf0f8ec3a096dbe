/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TALLY_H
#define TALLY_H
/* How often each word occurs: what a vocabulary is learned from. One set for a thread; the sets are
 * then added up. The sorted result depends neither on the order nor on the number of sets.
 */
#include "inner/data/tokenizer/buffer.h"

struct tally_entry {
    uint64_t hash; /* 0: free */
    uint64_t count;
    size_t at; /* bytes into `text` */
    uint32_t bytes;
};
struct tally {
    struct tally_entry *entries; /* open addressing; after tally_sort: [count], in order of bytes */
    struct buffer text;
    size_t count, mask;
};

enum err tally_open(struct tally *w) MUST;
void tally_close(struct tally *w); /* a zeroed one is fine */
enum err tally_add(struct tally *w, const uint8_t *word, size_t bytes, uint64_t times) MUST;
enum err tally_merge(struct tally *into, const struct tally *from) MUST;
void tally_sort(struct tally *w); /* nothing can be added afterwards */

#endif
