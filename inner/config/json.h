/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JSON_H
#define JSON_H
/* JSON texts as a tree in an arena: headers of safetensors, config.json, lines of JSON. Jansson
 * parses; only json.c includes it. Keys are unique (a duplicate is an error), texts are UTF-8,
 * nesting is at most JSON_DEPTH_MAX levels. A text has at most JSON_VALUES_MAX values; they are
 * counted before memory is taken. An integer that 64 bits do not hold is a DECIMAL.
 */
#include <stdbool.h>
#include <stdint.h>
#include "kernels/base/arena.h"

enum { JSON_DEPTH_MAX = 16, JSON_VALUES_MAX = 1 << 22 };
enum json_kind {
    JSON_NOTHING,
    JSON_FLAG,
    JSON_WHOLE,
    JSON_DECIMAL,
    JSON_WORDS,
    JSON_LIST,
    JSON_MAP
};
struct json {
    enum json_kind kind;
    const char *key;    /* in a map; else NULL */
    const char *text;   /* WORDS */
    size_t text_bytes;  /* without the zero after it */
    double number;      /* FLAG (0, 1), WHOLE, DECIMAL */
    int64_t whole;      /* WHOLE */
    struct json *items; /* LIST, MAP: [count], a map's in the order of the text */
    size_t count;
};

/* `what` begins the message: "x.json", "x.safetensors: header". ERR_INPUT says where the text is
 * not JSON. */
enum err json_read(struct json *out, const char *what, const char *text, size_t size_bytes,
                   struct arena *a) MUST;
/* The same with another limit of values. */
enum err json_read_most(struct json *out, const char *what, const char *text, size_t size_bytes,
                        size_t values_max, struct arena *a) MUST;
/* A whole file of at most max_bytes, whose root is a map. */
enum err json_read_file(struct json *out, const char *path, size_t max_bytes, struct arena *a) MUST;
/* NULL: j is no map, or has no such key. */
const struct json *json_find(const struct json *j, const char *key);
/* The text in quotes, escaped. NULL: no memory, or it is not UTF-8 (err_set done). */
char *json_quoted(const char *text, struct arena *a) MUST;

#endif
