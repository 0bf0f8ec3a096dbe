/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/indexed.h"
#include <string.h>
#include "kernels/base/bytes.h"

static const char MAGIC[9] = "MMIDIDX\0";

/* ---- reading ---- */

/* Sequences and documents may lie at odd bytes of the file. */
static uint64_t number_at(const uint8_t *p, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)p[i] << 8 * i;
    return value;
}

uint32_t indexed_length(const struct indexed *x, uint64_t sentence)
{
    return (uint32_t)number_at(x->lengths + 4 * sentence, 4);
}

uint64_t indexed_first(const struct indexed *x, uint64_t sentence)
{
    return number_at(x->pointers + 8 * sentence, 8) / x->id_bytes;
}

uint64_t indexed_document(const struct indexed *x, uint64_t document)
{
    return number_at(x->documents + 8 * document, 8);
}

static enum err check_header(struct indexed *x, const char *path, const uint8_t *data, size_t size)
{
    if (size < INDEXED_HEADER_BYTES)
        return err_set(ERR_INPUT, "%s: %zu bytes; an index begins with a header of %d", path, size,
                       INDEXED_HEADER_BYTES);
    if (memcmp(data, MAGIC, sizeof MAGIC))
        return err_set(ERR_INPUT,
                       "%s: not the index of a Megatron data set (it does not begin with MMIDIDX)",
                       path);
    uint64_t version = number_at(data + 9, 8);
    if (version != 1)
        return err_set(ERR_INPUT, "%s: index version %llu; this program reads version 1", path,
                       (unsigned long long)version);
    if (data[17] != INDEXED_UINT16 && data[17] != INDEXED_INT32)
        return err_set(ERR_INPUT,
                       "%s: ids of type %u; this program reads types 8 (uint16) and 4 (int32)",
                       path, data[17]);
    x->id_bytes = data[17] == INDEXED_UINT16 ? 2 : 4;
    x->sentences = number_at(data + 18, 8);
    x->documents_count = number_at(data + 26, 8) - 1;
    return ERR_OK;
}

static enum err check_index_size(const struct indexed *x, const char *path, size_t size)
{
    uint64_t most = size / 8, rest = size - INDEXED_HEADER_BYTES;
    bool counts = x->sentences > 0 && x->sentences <= most && x->documents_count < most;
    if (!counts)
        return err_set(ERR_INPUT,
                       "%s: the header promises %llu sequences and %llu document entries; the "
                       "file has %zu bytes",
                       path, (unsigned long long)x->sentences,
                       (unsigned long long)(x->documents_count + 1), size);
    uint64_t needed = 12 * x->sentences + 8 * (x->documents_count + 1);
    if (rest < needed)
        return err_set(ERR_INPUT, "%s: cut short: %llu bytes are missing; copy the file again",
                       path, (unsigned long long)(needed - rest));
    if (rest > needed)
        return err_set(ERR_INPUT,
                       "%s: %llu bytes after the document index (a data set with modes, which "
                       "holds more than text?)",
                       path, (unsigned long long)(rest - needed));
    return ERR_OK;
}

static enum err check_sentences(struct indexed *x, const char *path, uint64_t bin_bytes)
{
    for (uint64_t i = 0; i < x->sentences; i++) {
        uint32_t length = indexed_length(x, i);
        uint64_t pointer = number_at(x->pointers + 8 * i, 8);
        if (length == 0 || length > INT32_MAX)
            return err_set(ERR_INPUT, "%s: sequence %llu has %lld tokens", path,
                           (unsigned long long)i, (long long)(int32_t)length);
        if (pointer != x->tokens * x->id_bytes)
            return err_set(ERR_INPUT,
                           "%s: sequence %llu begins at byte %llu, but those before it end at %llu",
                           path, (unsigned long long)i, (unsigned long long)pointer,
                           (unsigned long long)(x->tokens * x->id_bytes));
        x->tokens += length;
    }
    if (x->tokens * x->id_bytes == bin_bytes)
        return ERR_OK;
    return err_set(ERR_INPUT,
                   "%s: its sequences have %llu bytes, the .bin next to it has %llu; copy both "
                   "files again",
                   path, (unsigned long long)(x->tokens * x->id_bytes),
                   (unsigned long long)bin_bytes);
}

static enum err check_documents(const struct indexed *x, const char *path)
{
    uint64_t before = 0;
    for (uint64_t d = 0; d <= x->documents_count; d++) {
        uint64_t first = indexed_document(x, d);
        if (first < before || first > x->sentences || (d == 0 && first))
            return err_set(ERR_INPUT,
                           "%s: document %llu begins with sequence %llu, the one before with %llu, "
                           "of %llu",
                           path, (unsigned long long)d, (unsigned long long)first,
                           (unsigned long long)before, (unsigned long long)x->sentences);
        before = first;
    }
    if (before != x->sentences)
        return err_set(ERR_INPUT, "%s: the documents have %llu sequences, the index %llu", path,
                       (unsigned long long)before, (unsigned long long)x->sentences);
    return ERR_OK;
}

enum err indexed_parse(struct indexed *x, const char *path, const uint8_t *data, size_t size_bytes,
                       uint64_t bin_bytes)
{
    *x = (struct indexed){0};
    TRY(check_header(x, path, data, size_bytes));
    TRY(check_index_size(x, path, size_bytes));
    x->lengths = data + INDEXED_HEADER_BYTES;
    x->pointers = x->lengths + 4 * x->sentences;
    x->documents = x->pointers + 8 * x->sentences;
    TRY(check_sentences(x, path, bin_bytes));
    return check_documents(x, path);
}

/* ---- writing ---- */

enum { PIECE_IDS = 4096 };

static enum err open_writer(struct indexed_writer *w, const char *stem)
{
    const char *path;
    TRY_ALLOC(path = arena_printf(&w->memory, "%s.bin", stem));
    TRY_ALLOC(w->index_path = arena_printf(&w->memory, "%s.idx", stem));
    return file_stream_open(&w->bin, path, &w->memory);
}

enum err indexed_open(struct indexed_writer *w, const char *stem, int64_t vocab)
{
    *w = (struct indexed_writer){.memory = arena_make(0), .vocab = vocab};
    w->id_bytes = vocab < INDEXED_UINT16_VOCAB ? 2 : 4;
    enum err e = open_writer(w, stem);
    if (e)
        indexed_abandon(w);
    return e;
}

/* At most PIECE_IDS. */
static enum err put_ids(struct indexed_writer *w, const int32_t *ids, size_t count)
{
    uint8_t bytes[PIECE_IDS * 4];
    struct bytes_writer b = bytes_writer(bytes, sizeof bytes);
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= w->vocab)
            return err_set(ERR_INPUT, "%s: id %d is not in the vocabulary of %lld", w->bin.path,
                           ids[i], (long long)w->vocab);
        if (w->id_bytes == 2)
            bytes_put_u16(&b, (uint16_t)ids[i]);
        else
            bytes_put_u32(&b, (uint32_t)ids[i]);
    }
    return file_stream_append(&w->bin, bytes, bytes_size(&b));
}

enum err indexed_sentence(struct indexed_writer *w, const int32_t *ids, size_t count)
{
    if (!count)
        return ERR_OK;
    if (count > INT32_MAX)
        return err_set(ERR_INPUT, "%s: a sentence of %zu tokens", w->bin.path, count);
    TRY_ALLOC(w->lengths = arena_grow(&w->memory, w->lengths, w->sentences, &w->lengths_room,
                                      sizeof *w->lengths));
    for (size_t at = 0; at < count; at += PIECE_IDS)
        TRY(put_ids(w, ids + at, count - at < PIECE_IDS ? count - at : PIECE_IDS));
    w->lengths[w->sentences++] = (int32_t)count;
    w->tokens += count;
    return ERR_OK;
}

enum err indexed_document_end(struct indexed_writer *w)
{
    uint64_t before = w->documents ? w->ends[w->documents - 1] : 0;
    if (w->sentences == before)
        return ERR_OK;
    TRY_ALLOC(w->ends =
                  arena_grow(&w->memory, w->ends, w->documents, &w->ends_room, sizeof *w->ends));
    w->ends[w->documents++] = w->sentences;
    return ERR_OK;
}

static enum err index_write(struct indexed_writer *w)
{
    size_t bytes = INDEXED_HEADER_BYTES + 12 * w->sentences + 8 * (w->documents + 1);
    uint8_t *index;
    TRY_ALLOC(index = arena_alloc(&w->memory, bytes));
    struct bytes_writer b = bytes_writer(index, bytes);
    bytes_put(&b, MAGIC, sizeof MAGIC);
    bytes_put_u64(&b, 1);
    bytes_put_u8(&b, w->id_bytes == 2 ? INDEXED_UINT16 : INDEXED_INT32);
    bytes_put_u64(&b, w->sentences);
    bytes_put_u64(&b, w->documents + 1);
    for (uint64_t i = 0; i < w->sentences; i++)
        bytes_put_u32(&b, (uint32_t)w->lengths[i]);
    for (uint64_t i = 0, at = 0; i < w->sentences; i++) {
        bytes_put_u64(&b, at);
        at += (uint64_t)w->lengths[i] * w->id_bytes;
    }
    bytes_put_u64(&b, 0);
    for (uint64_t i = 0; i < w->documents; i++)
        bytes_put_u64(&b, w->ends[i]);
    ASSERT(!b.bad && bytes_size(&b) == bytes);
    struct file_part whole = {index, bytes};
    return file_write(w->index_path, &whole, 1, 0644);
}

static enum err close_writer(struct indexed_writer *w)
{
    if (!w->sentences)
        return err_set(ERR_INPUT, "%s: no text: there is no sentence to write", w->bin.path);
    TRY(indexed_document_end(w));
    TRY(file_remove(w->index_path)); /* of an earlier .bin */
    TRY(file_stream_commit(&w->bin));
    return index_write(w);
}

enum err indexed_close(struct indexed_writer *w)
{
    enum err e = close_writer(w);
    indexed_abandon(w);
    return e;
}

void indexed_abandon(struct indexed_writer *w)
{
    file_stream_abandon(&w->bin);
    arena_free(&w->memory);
    *w = (struct indexed_writer){0};
}
