/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOKENIZER_READ_H
#define TOKENIZER_READ_H
/* The readers of tokenizer.json, vocab.txt and the files next to them. `what` begins messages. */
#include "inner/config/json.h"
#include "inner/data/tokenizer/tokenizer_own.h"

/* tokens.c */
bool tokenizer_json_flag(const struct json *j, const char *key, bool fallback);
const char *tokenizer_json_text(const struct json *j, const char *key); /* NULL: no text there */

enum err tokenizer_wordpiece_open(struct tokenizer *t, const char *what, const char *unknown,
                                  const char *prefix, size_t points_max) MUST;
/* There is room for it in t->added. Text, length and id of `a` are set here. */
enum err tokenizer_added_add(struct tokenizer *t, const char *content, int32_t id,
                             struct tokenizer_added a) MUST;
enum err tokenizer_name_add(struct tokenizer *t, struct trie *to, const void *text, size_t bytes,
                            int32_t id) MUST;
/* Room for ids up to `size`. */
enum err tokenizer_tokens_grow(struct tokenizer *t, int32_t size) MUST;
enum err tokenizer_normal_read(struct tokenizer *t, const char *what, const struct json *j) MUST;
enum err tokenizer_split_read(struct tokenizer *t, const char *what, const struct json *j) MUST;
/* Does a ByteLevel belong to the pre-tokenizer? Then the characters of BPE's tokens are bytes. */
bool tokenizer_split_is_bytes(const struct json *j);
/* After the pre-tokenizer, whose mark for a blank counts first. */
enum err tokenizer_decoder_read(struct tokenizer *t, const struct json *j) MUST;
/* From special_tokens_map.json or tokenizer_config.json next to the file, else by their usual
 * texts.
 */
enum err tokenizer_roles_read(struct tokenizer *t, struct arena *scratch) MUST;
/* The tokens of the roles become added tokens, which a tokenizer.json lists. */
enum err tokenizer_specials_add(struct tokenizer *t) MUST;
/* The map of a file that lies next to the vocabulary; nothing where there is none. */
enum err tokenizer_side_read(const struct tokenizer *t, const char *name, struct arena *a,
                             struct json *j) MUST;

#endif
