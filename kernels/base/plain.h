/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIN_H
#define PLAIN_H
/* Text for a terminal or a log: control characters could move the cursor, hide a line, or make one
 * up. */
#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character at the start of text, 1 to 4; 1 where it is no UTF-8; 0 at the end. */
size_t plain_length(const char *text);
/* Bytes of the control character at the start of text: C0, DEL, C1 (2 bytes), or one byte that is
 * no UTF-8, which a terminal may take for C1. 0: none. */
size_t plain_control(const char *text);
/* Replaces each control character by question marks; lines: newlines and tabs stay. */
void plain_make(char *text, bool lines);

#endif
