/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SPLIT_H
#define SPLIT_H
/* Pre-tokenizers: how a normalised text falls into the words that a model turns into ids. A list of
 * splits, each applied to the pieces of the one before, each equal to the one of that name in
 * Hugging Face's tokenizers.
 */
#include "inner/data/tokenizer/pattern.h"
#include "inner/data/tokenizer/unicode.h"

enum { SPLIT_OPS_MAX = 8 };
enum split_kind { SPLIT_BERT, SPLIT_SPACE, SPLIT_PATTERN, SPLIT_PREFIX, SPLIT_META };
enum split_behaviour {
    SPLIT_ISOLATED,
    SPLIT_REMOVED,
    SPLIT_PREVIOUS,
    SPLIT_NEXT,
    SPLIT_CONTIGUOUS
};
enum split_prepend { SPLIT_ALWAYS, SPLIT_FIRST, SPLIT_NEVER };
enum split_known { SPLIT_UNKNOWN, SPLIT_GPT2, SPLIT_LLAMA3 }; /* patterns with a fast path */

struct split_op {
    enum split_kind kind;
    struct pattern *pattern;        /* PATTERN */
    enum split_known known;         /* PATTERN: ASCII words are found without PCRE2 */
    enum split_behaviour behaviour; /* PATTERN: what becomes of a match */
    bool invert;                    /* PATTERN: what is between matches counts as match */
    enum split_prepend prepend;     /* META */
    bool whole;                     /* META: the piece stays one word */
    const uint8_t *mark;            /* META: what replaces a blank */
    size_t mark_bytes;              /* META */
};
struct split {
    struct split_op ops[SPLIT_OPS_MAX];
    size_t count;
};
struct split_scratch {
    struct buffer text[SPLIT_OPS_MAX];
    struct pattern_match *match; /* borrowed */
};
struct split_sink { /* gets the words in order; they are borrowed for the call */
    enum err (*word)(void *self, const uint8_t *word, size_t bytes);
    void *self;
};

extern const char split_gpt2_pattern[], split_llama3_pattern[];

/* A pattern that equals a known one gets its fast path. */
enum err split_pattern_open(struct split_op *op, const char *pattern, size_t bytes) MUST;
/* Valid UTF-8; an empty list hands on the piece as a whole. first: the piece begins where the whole
 * text begins. */
enum err split_apply(const struct split *l, struct split_scratch *scratch, const uint8_t *s,
                     size_t n, bool first, const struct split_sink *sink) MUST;
void split_scratch_free(struct split_scratch *scratch);
void split_close(struct split *l);

#endif
