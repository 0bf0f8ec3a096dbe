#ifndef PLAIN_H
#define PLAIN_H
/* Text for a terminal or a log: control characters could move the cursor, hide a line, or make one
 * up. */
#include <stdbool.h>
#include <stddef.h>

/* Bytes of the control character at the start of text: C0, DEL, or C1 in UTF-8 (2 bytes). 0: none.
 */
size_t plain_control(const char *text);
/* Replaces each control character by question marks; lines: newlines and tabs stay. */
void plain_make(char *text, bool lines);

#endif
