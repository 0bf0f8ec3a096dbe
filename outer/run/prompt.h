/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROMPT_H
#define PROMPT_H
/* The ids of a prompt, for a model of given settings. They lie in the arena. Pure but for that. */
#include "inner/config/keys.h"
#include "inner/data/tokenizer/tokenizer.h"
#include "kernels/base/arena.h"

struct prompt { /* borrowed */
    const char *text;
    const char *ids;     /* instead of the text: "1, 2, 3"; NULL: none */
    struct tokenizer *t; /* NULL: bytes, or ids */
    int64_t room;        /* ids that the caller will put after them */
};
/* ERR_CONFIG: it is empty, an id is none of the vocabulary, or a text needs a tokenizer that is not
 * there. */
enum err prompt_read(const struct prompt *p, const struct settings *s, struct arena *a,
                     int32_t **ids, size_t *count) MUST;
/* [CLS] ids [SEP]; count grows by two. */
enum err prompt_enclose(const struct tokenizer *t, const int32_t *ids, size_t *count,
                        struct arena *a, int32_t **enclosed) MUST;
/* text: "0,0,1", a token type for each of `count` ids; NULL: *types NULL. */
enum err prompt_types(const char *text, const struct settings *s, size_t count, struct arena *a,
                      int32_t **types) MUST;

#endif
