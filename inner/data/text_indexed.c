/* SPDX-License-Identifier: Apache-2.0 */
/* Documents of ids, sentence by sentence, into Megatron's indexed data sets. */
#include "inner/data/text_own.h"

static enum err open_index(const struct work *w, struct text_out *out)
{
    char stem[TEXT_PATH_BYTES];
    if (out->is_open)
        return ERR_OK;
    TRY(text_stem(w, out->part, out->report->shards, stem));
    TRY(indexed_open(&out->index, stem, tokenizer_size(w->encoding.tokenizer)));
    out->is_open = true;
    return ERR_OK;
}

/* The shard counts from the first of its files on, so that an error removes all of them. */
static enum err close_index(const struct work *w, struct text_out *out)
{
    char stem[TEXT_PATH_BYTES];
    if (!out->is_open)
        return ERR_OK;
    out->is_open = false;
    TRY(text_stem(w, out->part, out->report->shards++, stem));
    TRY(indexed_close(&out->index));
    if (!w->o->source.owner)
        return ERR_OK;
    size_t count = out->owners.count / sizeof(struct owner);
    out->owners.count = 0;
    return owners_write(stem, (const struct owner *)(const void *)out->owners.data, count);
}

static enum err document_write(const struct work *w, struct text_out *out)
{
    size_t at = 0;
    TRY(open_index(w, out));
    for (size_t i = 0; i < out->lengths.count; i++) {
        size_t count = (size_t)out->lengths.ids[i];
        TRY(indexed_sentence(&out->index, out->ids.ids + at, count));
        at += count;
    }
    TRY(indexed_document_end(&out->index));
    if (w->o->source.owner)
        TRY(buffer_add(&out->owners, &out->owner, sizeof out->owner));
    out->report->tokens += at;
    out->report->documents++;
    out->report->sentences += out->lengths.count;
    out->report->single += out->lengths.count == 1;
    return out->index.tokens < w->o->shard_tokens ? ERR_OK : close_index(w, out);
}

static enum err document_end(const struct work *w, struct text_out *out)
{
    if (out->lengths.count >= (size_t)w->o->min_sentences)
        TRY(document_write(w, out));
    else
        out->report->left_out += out->lengths.count > 0;
    out->lengths.count = out->ids.count = 0;
    return ERR_OK;
}

static enum err sentence_add(struct text_out *out, const int32_t *ids, int32_t count)
{
    if (!count)
        return ERR_OK;
    TRY(buffer_ids_reserve(&out->ids, (size_t)count));
    memcpy(out->ids.ids + out->ids.count, ids, (size_t)count * sizeof *ids);
    out->ids.count += (size_t)count;
    return buffer_ids_add(&out->lengths, count);
}

/* A document that two neighbouring blocks of the part share stays one. */
static bool continues(const struct text_out *out, const struct block *b)
{
    const struct block *before = &out->before;
    return before->source == b->source && before->first + before->count == b->first;
}

enum err text_indexed_put(const struct work *w, struct text_out *out, const struct block *b,
                          const struct text_ids *x)
{
    size_t at = 0;
    if (!continues(out, b))
        TRY(document_end(w, out));
    for (size_t i = 0; i < x->marks.count; i++) {
        int32_t count = x->marks.ids[i];
        if (count == TEXT_DOCUMENT) {
            TRY(document_end(w, out));
            if (w->o->source.owner)
                out->owner = *text_owner(b);
            continue;
        }
        TRY(sentence_add(out, x->ids.ids + at, count));
        at += (size_t)count;
    }
    out->before = *b;
    return ERR_OK;
}

enum err text_indexed_close(const struct work *w, struct text_out *out, enum err e)
{
    e = e ? e : document_end(w, out);
    e = e ? e : close_index(w, out);
    indexed_abandon(&out->index);
    buffer_ids_free(&out->ids);
    buffer_ids_free(&out->lengths);
    buffer_free(&out->owners);
    return e;
}
