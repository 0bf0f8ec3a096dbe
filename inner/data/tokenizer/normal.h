/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NORMAL_H
#define NORMAL_H
/* Normalisers: what is done to a text before it is split. A list of operations, applied in order,
 * each equal to the one of that name in Hugging Face's tokenizers. The list does not change after
 * it was made; every thread has its own scratch.
 */
#include "inner/data/tokenizer/pattern.h"
#include "inner/data/tokenizer/unicode.h"

enum { NORMAL_OPS_MAX = 16 };
enum normal_kind {
    NORMAL_BERT,
    NORMAL_FORM,
    NORMAL_STRIP_ACCENTS,
    NORMAL_LOWER,
    NORMAL_REPLACE,
    NORMAL_PREPEND,
    NORMAL_STRIP,
    NORMAL_CHARSMAP
};
struct normal_charsmap {          /* normal_charsmap.c writes it */
    const uint8_t *units, *texts; /* double array of uint32, strings ended by zero */
    size_t unit_count, text_bytes;
    const uint8_t *ascii[128]; /* replacement of an ASCII character, or NULL */
};
struct normal_op {
    enum normal_kind kind;
    enum unicode_form form;            /* FORM */
    bool clean, chinese, strip, lower; /* BERT */
    struct pattern *pattern;           /* REPLACE: by a pattern, else by `from` */
    const uint8_t *from, *to;          /* REPLACE; PREPEND has `to` alone */
    size_t from_bytes, to_bytes;       /* REPLACE, PREPEND */
    bool left, right;                  /* STRIP: white space at this end */
    struct normal_charsmap charsmap;   /* CHARSMAP */
};
struct normal {
    struct normal_op ops[NORMAL_OPS_MAX];
    size_t count;
};
struct normal_scratch {
    struct buffer text[2];
    struct unicode_points points;
    struct pattern_match *match; /* borrowed */
};

/* Takes valid UTF-8. The result lies in the scratch, or is `s` itself where there is nothing to do;
 * it is valid until the next call. */
enum err normal_apply(const struct normal *l, struct normal_scratch *scratch, const uint8_t *s,
                      size_t n, const uint8_t **out, size_t *out_bytes) MUST;
void normal_scratch_free(struct normal_scratch *scratch);
void normal_close(struct normal *l);
/* SentencePiece's compiled table of replacements; it is borrowed. ERR_INPUT: its sizes contradict
 * each other. */
enum err normal_charsmap_open(struct normal_op *op, const uint8_t *table, size_t bytes) MUST;
/* The same operation for the text of one operation's list. */
enum err normal_charsmap_apply(const struct normal_op *op, const uint8_t *s, size_t n,
                               struct buffer *out) MUST;

#endif
