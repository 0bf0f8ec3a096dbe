/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEXT_H
#define TEXT_H
/* Text or token ids -> llm.c token shards (shard.h) or indexed data sets (indexed.h), cut into a
 * held-out part and one part per site. Text becomes the ids of a tokenizer, or of the byte
 * vocabulary (ids 0-255). All of it is kept, once, in exactly one part. Text is cut into blocks at
 * blank lines (a block is many documents, so that a window seldom mixes unrelated ones), ids into
 * blocks of equal length; every k-th block is held out, spread over the whole text so that it is of
 * one kind with the training text, and the others are dealt to the sites in turn.
 *
 *     OUT/eval-0000.bin             held out: never in a training shard
 *     OUT/train-<site>-0000.bin     site 0, 1, ..; further numbers when a part is longer than one
 * shard
 *     OUT/data.json                 which tokenizer, its digest, special ids, counts (sidecar.h)
 *     OUT/tokenizer.json            or vocab.txt: the tokenizer's own file, and
 * tokenizer_config.json
 *
 * With a tokenizer a document (source.h) begins with the tokenizer's bos, eos or sep token, the
 * first that it has. Documents stay whole unless there are few of them. The shards do not depend on
 * the number of threads. In an indexed data set each .bin has its .idx, a document stays in one
 * file, and no marker stands before it: the index has its border. Its sequences are sentences
 * (sentence.h), or it is one sequence. Where the lines name owners, all documents of an owner go to
 * one part, a document is never cut, and each .idx has its .owners (owners.h).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "inner/data/labels.h"
#include "inner/data/source.h"

enum { TEXT_SITES_MAX = 1024 };

struct text_options {
    const char *out;       /* directory, made if missing */
    uint32_t sites;        /* 1 .. TEXT_SITES_MAX */
    double held_out;       /* share of the text, 0 .. 0.5 */
    uint64_t sequence;     /* no part may be shorter than one sequence and its target */
    uint64_t shard_tokens; /* longest shard, at most SHARD_TOKENS_MAX */
    struct source_options source;
    const char *tokenizer; /* file or directory (tokenizer.h); with `learn`: "wordpiece" or "bpe";
                              NULL: bytes, or ids as they are */
    uint64_t learn;        /* tokens of a vocabulary learned from what no part holds out; 0: none */
    bool cased;            /* learned WordPiece: capitals and accents are kept */
    /* called now and then; NULL: never */
    void (*progress)(void *self, const char *what, uint64_t done_bytes, uint64_t all_bytes);
    void *progress_self;
    bool documents;        /* with a tokenizer: indexed data sets; a document is one sequence */
    bool split_sentences;  /* with a tokenizer: indexed data sets; documents of sentences */
    int64_t min_sentences; /* a document of fewer is left out; only with split_sentences */
    bool owners;           /* text_labels_prepare: lines owner<TAB>label<TAB>text[<TAB>text_b] */
    struct columns_names columns; /* text_labels_prepare: of CSV */
    bool replace; /* remove the shards that are in `out`; false: their presence is an error */
};
struct text_part {
    uint64_t tokens;
    uint32_t shards;
    /* of indexed data sets; `single`: documents of one sentence; left_out: documents */
    uint64_t documents, sentences, single, left_out;
};
struct text_report {
    uint64_t tokens, blocks, documents;
    uint32_t largest_id;
    int32_t vocab;                 /* size of the tokenizer; 0: none */
    char sha256[65];               /* of its file */
    uint64_t owners;               /* with source.owner */
    bool masks;                    /* it has [CLS], [SEP] and [MASK] */
    struct text_part eval, *train; /* train: one per site */
};

/* ERR_INPUT: a text is missing, empty, compressed, too short for its parts; ERR_FULL before or
 * while writing. After an error no shard of this call is left. */
enum err text_prepare(const char *const *paths, size_t path_count, const struct text_options *o,
                      struct arena *a, struct text_report *report) MUST;
/* Lines `label<TAB>text[<TAB>text_b]` -> shards with labels (labels.h). Of the options it reads
 * out, sites, held_out, tokenizer, owners, columns, source.csv, replace; the tokenizer's file is
 * copied to `out`. classes_of: a directory whose data.json has the classes; NULL: the labels that
 * occur. */
enum err text_labels_prepare(const char *const *paths, size_t path_count,
                             const struct text_options *o, const char *classes_of, struct arena *a,
                             struct labels_report *report) MUST;

#endif
