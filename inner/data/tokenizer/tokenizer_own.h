/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOKENIZER_OWN_H
#define TOKENIZER_OWN_H
/* What the files of the tokenizer share. Which members of struct tokenizer each of them writes:
 *
 *   tokenizer.c: file, digest, serial, normal, split, model, names, roles
 *   tokenizer_read.c: kind, model, model_tokens, byte_level, prefix, mark, mark_bytes, added, names
 *   tokenizer_parts.c: normal, split, mark, mark_bytes, decoder
 *   tokenizer_vocab.c: kind, normal, split, tokens, special, size, decoder
 *   tokenizer_merges.c: text, digest
 *   tokenizer_added.c: begins
 *   tokenizer_decode.c: none
 *   tokens.c: tokens, special, size, added_count, names
 *   roles.c: added, roles
 *
 * All but tokenizer_decode.c take memory from arena.
 */
#include "inner/data/tokenizer/normal.h"
#include "inner/data/tokenizer/subword.h"
#include "inner/data/tokenizer/tokenizer.h"

enum {
    TOKENIZER_FILE_BYTES_MAX = 256 << 20,
    TOKENIZER_IDS_MAX = 1 << 24,
    TOKENIZER_TOKEN_BYTES_MAX = 4096 /* a token of the vocabulary, or an added one */
};

struct tokenizer_added { /* a token that is found before the text is split into words */
    const uint8_t *text; /* what is looked for: normalised if `normalised` */
    size_t bytes;
    int32_t id;
    bool single_word, lstrip, rstrip, normalised, special;
};
struct tokenizer_place {   /* where the search for added tokens is */
    size_t at, start, end; /* bytes: after the previous token; this token */
    size_t scan;           /* where the search continues */
};
struct tokenizer_range {
    uint32_t first, count;
};
/* Ids to text. BYTES, PIECES: of byte-level BPE and WordPiece. MARKS: marks become blanks, but not
 * those of the first token. PARTS: the file's list of steps. */
enum tokenizer_decode { DECODE_BYTES, DECODE_PIECES, DECODE_MARKS, DECODE_PARTS };
struct tokenizer_decoder {
    enum tokenizer_decode kind;
    bool replace;       /* PARTS: marks become blanks */
    bool byte_fallback; /* PARTS: <0x41> becomes the byte */
    size_t strip;       /* PARTS: blanks at the beginning that are left out */
};
struct tokenizer {
    struct arena arena;
    const char *file;
    const char
        *text; /* the tokenizer.json of a vocab.json with merges.txt; NULL: the file itself */
    struct digest digest;
    uint64_t serial; /* of this opening */
    enum tokenizer_kind kind;
    struct normal normal;
    struct split split;
    struct subword model;
    const char **tokens; /* (size), NULL: no such id */
    bool *special;       /* (size) */
    int32_t size;
    size_t model_tokens; /* of the vocabulary, without added ones */
    bool byte_level;     /* BPE: the characters of its tokens stand for bytes */
    const char *prefix;  /* WORDPIECE: what marks the inside of a word */
    const uint8_t *mark; /* UNIGRAM, BPE of characters: what stands for a blank */
    size_t mark_bytes;
    struct tokenizer_decoder decoder;
    struct tokenizer_added *added; /* sorted by kind and first byte, longest first */
    size_t added_count;
    struct tokenizer_range begins[2][256]; /* [normalised][first byte], into `added` */
    struct trie names;                     /* every token as the file writes it */
    int32_t roles[TOKENIZER_ROLE_COUNT];
};
struct tokenizer_scratch {
    struct normal_scratch normal;
    struct split_scratch split;
    struct subword_scratch model;
    struct pattern_match *match;
    uint64_t serial; /* of the tokenizer whose words the cache has */
};

enum err tokenizer_json_read(struct tokenizer *t, const char *what, const char *text,
                             size_t bytes) MUST;
enum err tokenizer_vocab_read(struct tokenizer *t, const char *text, size_t bytes) MUST;
/* The text of a vocab.json with merges.txt next to it. */
enum err tokenizer_merges_read(struct tokenizer *t, const char *text, size_t bytes) MUST;
/* After the model: its normaliser is applied to the texts of those that say so. */
enum err tokenizer_added_open(struct tokenizer *t) MUST;
/* The next added token that counts; NULL: none. `p` begins as zero: text[p->at, p->start) lies
 * before the token, and text[p->at, n) is left when there is none. */
const struct tokenizer_added *tokenizer_added_next(const struct tokenizer *t, bool normalised,
                                                   const uint8_t *s, size_t n,
                                                   struct tokenizer_place *p);
enum err tokenizer_token_add(struct tokenizer *t, int32_t id, const char *text, size_t bytes) MUST;
/* The byte that a character of a byte-level vocabulary stands for; -1: none. */
int tokenizer_byte(uint32_t point);
/* The bytes of a byte-level token; false: it has characters that stand for none. */
bool tokenizer_bytes(const char *token, size_t bytes, uint8_t *out, size_t *count);

#endif
