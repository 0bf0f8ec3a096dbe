/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/tokenizer/subword.h"

enum err subword_open(struct subword *w)
{
    w->unknown = -1;
    for (size_t i = 0; i < 256; i++)
        w->byte_ids[i] = w->fallback_ids[i] = -1;
    return trie_open(&w->trie);
}

void subword_close(struct subword *w)
{
    trie_close(&w->trie);
    free(w->merges);
    free(w->scores);
    *w = (struct subword){0};
}

enum err subword_scratch_open(struct subword_scratch *x)
{
    *x = (struct subword_scratch){0};
    return cache_open(&x->cache);
}

void subword_scratch_close(struct subword_scratch *x)
{
    cache_close(&x->cache);
    free(x->symbols);
    free(x->heap);
    free(x->nodes);
    *x = (struct subword_scratch){0};
}

static enum err model_encode(const struct subword *w, struct subword_scratch *x,
                             const uint8_t *word, size_t bytes, struct buffer_ids *out)
{
    if (w->kind == SUBWORD_WORDPIECE)
        return subword_wordpiece(w, word, bytes, out);
    return w->kind == SUBWORD_BPE ? subword_bpe(w, x, word, bytes, out)
                                  : subword_unigram(w, x, word, bytes, out);
}

enum err subword_encode(const struct subword *w, struct subword_scratch *x, const uint8_t *word,
                        size_t bytes, struct buffer_ids *out)
{
    if (bytes > CACHE_WORD_BYTES_MAX)
        return model_encode(w, x, word, bytes, out);
    uint64_t hash = cache_hash(word, bytes);
    const struct cache_entry *e = cache_find(&x->cache, hash, word, bytes);
    if (e) {
        TRY(buffer_ids_reserve(out, e->id_count));
        for (size_t i = 0; i < e->id_count; i++)
            out->ids[out->count++] = x->cache.ids.ids[e->ids + i];
        return ERR_OK;
    }
    size_t before = out->count;
    TRY(model_encode(w, x, word, bytes, out));
    /* NULL: there are no ids so far, and this word has none. */
    const int32_t *added = out->ids ? out->ids + before : NULL;
    return cache_add(&x->cache, hash, word, bytes, added, out->count - before);
}
