/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JSON_WRITE_H
#define JSON_WRITE_H
/* Nested JSON into a FILE. key NULL: an item of an array, or the document itself. Numbers that are
 * not finite become null. Bytes that are no UTF-8 become U+FFFD. Errors: ferror. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { JSON_WRITE_DEPTH_MAX = 16 };
struct json_write {
    FILE *out;
    bool html;  /* inside a page's script: no "<" in a text, so that none ends the script */
    int digits; /* of a real number; 0: 15 */
    unsigned depth;
    bool any[JSON_WRITE_DEPTH_MAX];
    char close[JSON_WRITE_DEPTH_MAX];
};

void json_object(struct json_write *w, const char *key);
void json_array(struct json_write *w, const char *key);
void json_end(struct json_write *w);   /* of the innermost object or array */
void json_close(struct json_write *w); /* of all that are open; ends the line of text */
void json_int(struct json_write *w, const char *key, int64_t value);
void json_real(struct json_write *w, const char *key, double value);
void json_bool(struct json_write *w, const char *key, bool value);
void json_text(struct json_write *w, const char *key, const char *value);
/* After an error: ends the document that is open on standard output, of any writer, with a
 * member "error"; where none was begun it is one of that member alone. A whole document stays as it
 * is: the error is its verdict. */
void json_fail(const char *name, const char *message, int exit_code);

#endif
