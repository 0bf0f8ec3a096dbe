/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WORDS_H
#define WORDS_H
/* Which ids continue a word and which start one, from the pieces of text in the tokenizer's file
 * and the sidecar's rule. For masks of whole words; training needs nothing else of a tokenizer.
 */
#include "inner/data/sidecar.h"

/* continues: (s->vocab), 1 where the id continues the word of the id before it; NULL where the
 * sidecar names no rule. Reads the tokenizer of `directory`: tokenizer.json of Hugging Face, or a
 * list with one piece a line. */
enum err words_read(const struct sidecar *s, const char *directory, struct arena *perm,
                    uint8_t **continues) MUST;

#endif
