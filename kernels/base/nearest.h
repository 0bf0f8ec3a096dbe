#ifndef NEAREST_H
#define NEAREST_H
/* For messages about a mistyped word: how far is it from the words that exist? */

/* Edits (insert, delete, replace, swap of neighbours) from a to b. Words are cut after 96 bytes. */
unsigned nearest_edits(const char *a, const char *b);

#endif
