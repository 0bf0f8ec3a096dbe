/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SUBWORD_H
#define SUBWORD_H
/* Models: from a word to ids. One is chosen when a tokenizer is read; nothing changes afterwards,
 * and every thread has its own scratch.
 */
#include "inner/data/tokenizer/cache.h"
#include "inner/data/tokenizer/trie.h"

enum subword_kind { SUBWORD_WORDPIECE, SUBWORD_BPE, SUBWORD_UNIGRAM };
struct subword_merge { /* hash table entry */
    uint64_t pair;     /* (left id << 32 | right id) + 1; 0: free */
    uint32_t rank;     /* lower ones first */
    int32_t id;        /* of the merged token */
};
struct subword {
    enum subword_kind kind;
    struct trie trie;       /* tokens as bytes of text */
    int32_t unknown;        /* id, -1: characters without a token are left out (BPE) */
    bool fuse_unknown;      /* BPE, UNIGRAM: neighbours become one */
    uint32_t inner_node;    /* WORDPIECE: where the trie holds what continues a word */
    size_t word_points_max; /* WORDPIECE: a longer word is unknown */
    bool points; /* BPE: a word begins as its characters, each a token of the trie; else as bytes */
    int32_t byte_ids[256];     /* BPE of bytes, -1: not there */
    bool byte_fallback;        /* BPE, UNIGRAM: what has no token becomes the tokens of its bytes */
    int32_t fallback_ids[256]; /* of <0x00> to <0xFF>, -1: not there */
    struct subword_merge *merges;
    size_t merge_mask;  /* entries - 1, a power of two */
    bool whole_first;   /* BPE ignore_merges: a word that is a token is not merged from bytes */
    double *scores;     /* UNIGRAM, of each id */
    double score_least; /* UNIGRAM */
};
struct subword_node { /* UNIGRAM: the best path that ends here */
    double score;
    size_t start; /* SIZE_MAX: none ends here */
    int32_t id;
};
struct subword_symbol {            /* BPE */
    int32_t id;                    /* -1: merged into the one before */
    uint32_t before, behind, rank; /* rank of the merge with the one after; UINT32_MAX: none */
};
struct subword_scratch {
    struct cache cache;
    struct subword_symbol *symbols;
    uint64_t *heap; /* rank << 32 | symbol */
    size_t symbol_room, heap_count, heap_room;
    struct subword_node *nodes;
    size_t node_room;
};

enum err subword_open(struct subword *w) MUST; /* of a kind, without tokens */
void subword_close(struct subword *w);         /* a zeroed one is fine */
enum err subword_scratch_open(struct subword_scratch *x) MUST;
void subword_scratch_close(struct subword_scratch *x);
enum err subword_merges_open(struct subword *w, size_t count) MUST; /* room for `count` */
/* A pair that is there gets the new rank. */
void subword_merge_add(struct subword *w, int32_t left, int32_t right, uint32_t rank, int32_t id);
const struct subword_merge *subword_merge_find(const struct subword *w, int32_t left,
                                               int32_t right); /* NULL: none */

/* Appends the ids of a word of valid UTF-8. */
enum err subword_encode(const struct subword *w, struct subword_scratch *x, const uint8_t *word,
                        size_t bytes, struct buffer_ids *out) MUST;
/* Appends the tokens of the bytes; *done false: one has none, and nothing is appended. */
enum err subword_fallback(const struct subword *w, const uint8_t *s, size_t n,
                          struct buffer_ids *out, bool *done) MUST;
/* The three models, without the cache. */
enum err subword_wordpiece(const struct subword *w, const uint8_t *word, size_t bytes,
                           struct buffer_ids *out) MUST;
enum err subword_bpe(const struct subword *w, struct subword_scratch *x, const uint8_t *word,
                     size_t bytes, struct buffer_ids *out) MUST;
enum err subword_unigram(const struct subword *w, struct subword_scratch *x, const uint8_t *word,
                         size_t bytes, struct buffer_ids *out) MUST;

#endif
