/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEXT_OWN_H
#define TEXT_OWN_H
/* What the files of `text` share. */
#include "inner/data/indexed.h"
#include "inner/data/sidecar.h"
#include "inner/data/text.h"
#include "inner/data/tokenizer/tokenizer.h"

enum { TEXT_PATH_BYTES = 4096, TEXT_DOCUMENT = -1 };
/* Of a longer block, one piece after the other becomes ids. What cannot be cut (a document that is
 * one sequence, a sentence, a text without a word's end) is held in memory, so it has a limit. */
enum { TEXT_PIECE_BYTES = 1 << 20, TEXT_WHOLE_BYTES_MAX = 1 << 26 };

struct block {
    const struct source *source;
    uint64_t first, count; /* ids, or bytes of text */
    int64_t part;          /* with owners: of its one document */
};
struct text_blocks { /* the cut text; cut.c writes it */
    bool whole_documents;
    struct owners_deal deal; /* with owners */
    struct buffer buffer;    /* of struct block */
    struct block *list;
    uint64_t count, held; /* held: blocks of the held-out part */
};
struct text_encoding { /* what makes ids; text_tokens.c writes it */
    struct tokenizer *tokenizer;
    struct tokenizer *base;             /* with `learn`: what finds the words to learn from */
    const struct tokenizer *words;      /* one of the two; NULL: bytes or ids */
    struct tokenizer_scratch **scratch; /* one for each thread */
    int threads;
    int32_t start_id; /* before each document; -1: none */
    uint64_t done_bytes;
};
struct work {
    const struct text_options *o;
    struct arena *a;
    struct source *sources;
    size_t source_count;
    uint64_t document_count, text_bytes;
    uint32_t largest_id;
    unsigned id_bytes; /* of a shard's ids: 2, or 4 where a source may have ids beyond 65,535 */
    struct text_blocks blocks;
    const struct block **mine; /* blocks of the part being written */
    uint8_t *shard;            /* header and ids of the shard being filled */
    struct text_encoding encoding;
};
struct text_out { /* the shard being filled */
    int64_t part;
    struct text_part *report;
    uint64_t filled;
    /* An indexed data set: */
    struct indexed_writer index;
    bool is_open;                   /* `index` */
    struct buffer_ids ids, lengths; /* of the document that is read; of its sentences */
    struct block before;            /* source NULL: none */
    struct owner owner;             /* with owners: of the document that is read */
    struct buffer owners;           /* of the documents of the shard */
};
struct text_ids { /* of a block */
    struct buffer_ids ids;
    struct buffer_ids marks; /* of an indexed data set: TEXT_DOCUMENT before each document, and
                                the ids of each sentence */
};

static inline bool text_is_indexed(const struct text_options *o)
{
    return o->documents || o->split_sentences;
}

/* File of a part, without its suffix; with it. */
enum err text_stem(const struct work *w, int64_t part, uint32_t number,
                   char stem[TEXT_PATH_BYTES]) MUST;
enum err text_shard_path(const struct work *w, int64_t part, uint32_t number, const char *suffix,
                         char path[TEXT_PATH_BYTES]) MUST;
/* The sentences of a block. */
enum err text_indexed_put(const struct work *w, struct text_out *out, const struct block *b,
                          const struct text_ids *x) MUST;
/* e: the error so far. Frees everything, after an error too. */
enum err text_indexed_close(const struct work *w, struct text_out *out, enum err e) MUST;

/* Writes the shard that is being filled, and begins the next. */
enum err text_shard_write(const struct work *w, struct text_out *out) MUST;
/* The one way of an id into a shard. */
enum err text_put(const struct work *w, struct text_out *out, uint32_t id) MUST;
size_t text_document(const struct source *s, uint64_t at);
const struct owner *text_owner(const struct block *b); /* with owners: of its document */
bool text_is_held(const struct work *w, uint64_t i);

/* What finds words, before the text is cut. */
enum err text_words_open(struct work *w) MUST;
/* The tokenizer of the options, which is learned first if they say so. */
enum err text_tokenizer_open(struct work *w, struct text_report *report) MUST;
/* The blocks of all sources, how many are held out, and whole documents or not. */
enum err text_blocks_cut(struct work *w, uint64_t tokens) MUST;
void text_blocks_free(struct work *w); /* a zeroed one is fine */
enum err text_owners_deal(struct work *w, struct text_report *report) MUST; /* with owners */
/* A place at `at` or after it that cuts no word, sentence or character; at most the end of the
 * source. `from`: such a place before it. */
enum err text_cut(const struct work *w, struct tokenizer_scratch *x, const struct source *s,
                  uint64_t from, uint64_t at, uint64_t *cut) MUST;
void text_tokenizer_close(struct work *w);
/* Its file, and what names its special tokens, next to the shards. */
enum err text_tokenizer_copy(const struct work *w) MUST;
/* The digest of its file is stored in the report. */
void text_tokenizer_describe(const struct work *w, struct sidecar *s, struct text_report *report);
enum err text_blocks_put(struct work *w, struct text_out *out, const struct block **blocks,
                         uint64_t count) MUST;

#endif
