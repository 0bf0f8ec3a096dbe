/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NEAREST_H
#define NEAREST_H
/* Edit distance, to name the nearest existing word in messages about a mistyped one. */
#include <stdbool.h>

/* Edits (insert, delete, replace, swap of neighbours) from a to b. Words are cut after 96 bytes. */
unsigned nearest_edits(const char *a, const char *b);
/* Is a word that many edits away still likely to be meant? */
bool nearest_enough(const char *word, unsigned edits);

#endif
