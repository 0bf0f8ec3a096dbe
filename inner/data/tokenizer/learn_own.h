/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LEARN_OWN_H
#define LEARN_OWN_H
/* What the files of learning share: tokens, and words as sequences of them. */
#include "inner/data/tokenizer/learn.h"
#include "inner/data/tokenizer/trie.h"

struct learn_token { /* bytes into `text`: with "##" where WordPiece has it, raw bytes for BPE */
    size_t at;
    uint32_t bytes;
};
struct learn_word {
    size_t first;   /* into `symbols` */
    uint32_t count; /* symbols */
    uint64_t times;
};
struct learn_pair { /* hash table entry */
    uint64_t key;   /* (left << 32 | right) + 1; 0: free */
    int64_t times;
    uint32_t *words; /* indices of words that have had it, some of them twice */
    uint32_t word_count, word_room;
    uint32_t round; /* merge in which it was last put into the heap, + 1 */
};
struct learn_candidate { /* heap entry */
    int64_t times;
    uint64_t key;
};
struct learn_pairs { /* learn.c writes it */
    struct learn_pair *list;
    size_t count, mask;
};
struct learn_heap { /* learn.c writes it */
    struct learn_candidate *list;
    size_t count, room;
};
struct learn {
    const struct learn_options *o;
    struct trie names;
    struct buffer text;
    struct learn_token *tokens;
    size_t token_count, token_room, special_count;
    struct learn_word *words;
    size_t word_count;
    int32_t *symbols;
    struct learn_pairs pairs;
    struct learn_heap heap;
    struct buffer_ids merges; /* left, right, left, right, .. */
};

/* Specials and alphabet become tokens, words become symbols. */
enum err learn_alphabet(struct learn *l, const struct tally *w) MUST;
/* *id: of a token of that name, which is made if it is not there. */
enum err learn_token(struct learn *l, const uint8_t *name, size_t bytes, int32_t *id) MUST;
enum err learn_files_write(const struct learn *l, const char *directory) MUST;
/* How a token stands in the files. */
enum err learn_token_text(const struct learn *l, int32_t id, struct buffer *out) MUST;

#endif
