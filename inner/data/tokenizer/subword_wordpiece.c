/* SPDX-License-Identifier: Apache-2.0 */
/* WordPiece: the longest token that the rest of the word begins with, again and again. */
#include "inner/data/tokenizer/subword.h"

static size_t points_of(const uint8_t *word, size_t bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += (word[i] & 0xc0) != 0x80;
    return count;
}

/* Length of the longest token from `node` on; 0: none. */
static size_t longest(const struct trie *t, uint32_t node, const uint8_t *s, size_t n, int32_t *id)
{
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        node = trie_step(t, node, s[i]);
        if (node == UINT32_MAX)
            break;
        if (t->ids[node] >= 0) {
            length = i + 1;
            *id = t->ids[node];
        }
    }
    return length;
}

enum err subword_wordpiece(const struct subword *w, const uint8_t *word, size_t bytes,
                           struct buffer_ids *out)
{
    size_t before = out->count, length = bytes;
    int32_t id = 0;
    if (points_of(word, bytes) > w->word_points_max)
        return buffer_ids_add(out, w->unknown);
    for (size_t at = 0; at < bytes && length; at += length) {
        uint32_t node = at ? w->inner_node : 0;
        length = node == UINT32_MAX ? 0 : longest(&w->trie, node, word + at, bytes - at, &id);
        TRY(buffer_ids_add(out, id));
    }
    if (length)
        return ERR_OK;
    out->count = before;
    return buffer_ids_add(out, w->unknown);
}
