/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PATTERN_H
#define PATTERN_H
/* Regular expressions over valid UTF-8 (PCRE2 with UTF and UCP, compiled to machine code where that
 * works). `\s` is the property White_Space, as in the other tokenizers. Only pattern.c includes
 * PCRE2. A pattern does not change after pattern_open: any number of threads, one match each.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "kernels/base/arena.h"

struct pattern;
struct pattern_match; /* scratch of one thread */
struct pattern_span {
    bool found;
    size_t start, end;
};

/* ERR_INPUT: no regular expression. */
enum err pattern_open(struct pattern **p, const char *text, size_t text_bytes) MUST;
void pattern_close(struct pattern *p);
enum err pattern_match_open(struct pattern_match **m) MUST;
void pattern_match_close(struct pattern_match *m);
/* The first match at or after `at`; span->found false: there is none, and the span is empty at n.
 * ERR_INPUT: the pattern needs more steps or memory than PCRE2 allows. */
enum err pattern_next(const struct pattern *p, struct pattern_match *m, const uint8_t *text,
                      size_t n, size_t at, struct pattern_span *span) MUST;

#endif
