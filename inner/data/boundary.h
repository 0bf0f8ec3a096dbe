/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOUNDARY_H
#define BOUNDARY_H
/* Where a long text may be cut: at a place where a tokenizer makes the same words of the two parts
 * as of the whole, so that the ids do not depend on where blocks end. What a word is differs with
 * the tokenizer (a run of blanks belongs to the word after it, a line end to the sign before it),
 * so the tokenizer is asked: the words of the text around a place, once in one piece and once in
 * two. Never within a character. One thread for each scratch.
 */
#include "inner/data/tokenizer/tokenizer.h"

/* The first such place at `from` or after it; `bytes`: there is none. 0 < from <= bytes. The text
 * begins where the whole text does, or with such a place: a token that takes the blanks around it
 * could else be asked for half of them. Tried are beginnings of white space, BOUNDARY_TRIES of
 * them, then any character. Valid UTF-8. */
enum { BOUNDARY_TRIES = 256, BOUNDARY_WINDOW_BYTES = 512 };
enum err boundary_words(const struct tokenizer *t, struct tokenizer_scratch *x, const uint8_t *text,
                        size_t bytes, size_t from, size_t *at) MUST;
/* The first end of a sentence (sentence.h) at `from` or after it; the text begins with one. */
size_t boundary_sentence(const uint8_t *text, size_t bytes, size_t from);
/* The same for bytes of any kind: not within a character of UTF-8. */
size_t boundary_character(const uint8_t *text, size_t bytes, size_t from);

#endif
