/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SENTENCE_H
#define SENTENCE_H
/* Text -> sentences. A sentence ends at a line's end, and after [.!?] where white space and then
 * an upper-case letter or a digit 0 to 9 follow. White space around a sentence is left out. An
 * abbreviation before a name ("Dr. Smith") ends one; a mark before a closing quotation
 * mark does not.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sentence {
    const uint8_t *text;
    size_t bytes; /* > 0 */
};

/* The next sentence at or after *at, which moves after it. false: there is none. */
bool sentence_next(const uint8_t *text, size_t bytes, size_t *at, struct sentence *s);

#endif
