/* SPDX-License-Identifier: Apache-2.0 */
/* Where a text is cut into blocks, and which of them are held out. */
#include "inner/data/boundary.h"
#include "inner/data/text_own.h"

enum {
    BLOCKS_AIM = 400, /* of each part, in a text of middle size: small blocks mix well, large ones
                         keep context */
    BLOCK_BYTES_MIN = 256,
    BLOCK_BYTES_MAX = 65536,
    DOCUMENTS_FEW = 8 /* of each part: with fewer, documents are cut too */
};

/* Length of a run of line ends at `at`: "\n", "\r\n". */
static size_t newlines(const uint8_t *s, size_t n, size_t at)
{
    size_t end = at;
    while (end < n && (s[end] == '\n' || (s[end] == '\r' && end + 1 < n && s[end + 1] == '\n')))
        end++;
    return end - at;
}

/* Where the block that begins at `at` should end: after the first blank line after `aim` bytes,
 * else at a line's end, else anywhere; never beyond 3 x aim, so that a text without line ends is
 * cut too. */
static size_t block_end(const uint8_t *s, size_t n, size_t at, size_t aim)
{
    size_t last = n - at <= 3 * aim ? n : at + 3 * aim, line = 0;
    if (n - at <= aim)
        return n;
    for (size_t i = at + aim - 1; i < last; i++) {
        if (s[i] != '\n')
            continue;
        if (i + 1 == last || newlines(s, n, i + 1))
            return i + 1 + newlines(s, n, i + 1);
        line = line ? line : i + 1;
    }
    return line ? line : last;
}

/* The first document that ends at `at` or after it. */
size_t text_document(const struct source *s, uint64_t at)
{
    size_t low = 0, high = s->document_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->documents[middle].end < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Within a document, before white space, not after it. */
static enum err cut_document(const struct work *w, struct tokenizer_scratch *x,
                             const struct source *s, struct source_document d, uint64_t from,
                             uint64_t at, uint64_t *cut)
{
    uint64_t first = from > d.start ? from : d.start;
    const uint8_t *text = s->data + first;
    size_t place;
    if (w->o->split_sentences) {
        *cut = first + boundary_sentence(text, d.end - first, at - first);
        return ERR_OK;
    }
    while (at > first + 1 && (s->data[at - 1] == '\n' || s->data[at - 1] == '\r'))
        at--;
    enum err e = boundary_words(w->encoding.words, x, text, d.end - first, at - first, &place);
    *cut = first + place;
    return e ? err_add(e, "%s: byte %llu: ", s->path, (unsigned long long)at + 1) : ERR_OK;
}

enum err text_cut(const struct work *w, struct tokenizer_scratch *x, const struct source *s,
                  uint64_t from, uint64_t at, uint64_t *cut)
{
    *cut = at;
    if (at >= s->count)
        return ERR_OK;
    if (!w->encoding.words) {
        *cut = boundary_character(s->data, s->count, at);
        return ERR_OK;
    }
    size_t i = text_document(s, at + 1);
    if (i < s->document_count && s->documents[i].start < at)
        return cut_document(w, x, s, s->documents[i], from, at, cut);
    return ERR_OK;
}

const struct owner *text_owner(const struct block *b)
{
    return &b->source->owners[text_document(b->source, b->first + 1)];
}

/* Evenly spread: the k-th of `held` blocks is where i * held / count steps from k to k + 1. */
bool text_is_held(const struct work *w, uint64_t i)
{
    if (w->blocks.deal.count)
        return w->blocks.list[i].part < 0;
    return (i + 1) * w->blocks.held / w->blocks.count > i * w->blocks.held / w->blocks.count;
}

/* Ids have no lines: their blocks end anywhere. */
static enum err source_cut(const struct work *w, const struct source *s, uint64_t at, size_t aim,
                           uint64_t *end)
{
    if (s->id_bytes > 1) {
        *end = at + aim < s->count ? at + aim : s->count;
        return ERR_OK;
    }
    if (!w->blocks.whole_documents)
        return text_cut(w, w->encoding.scratch ? w->encoding.scratch[0] : NULL, s, at,
                        block_end(s->data, s->count, at, aim), end);
    size_t next = text_document(s, at + (s->owners ? 1 : aim)) + 1;
    *end = next < s->document_count ? s->documents[next].start : s->count;
    return ERR_OK;
}

static enum err cut(struct work *w, size_t aim)
{
    for (size_t t = 0; t < w->source_count; t++) {
        const struct source *s = &w->sources[t];
        for (uint64_t at = 0, end; at < s->count; at = end) {
            TRY(source_cut(w, s, at, aim, &end));
            const struct block b = {s, at, end - at, -1};
            TRY(buffer_add(&w->blocks.buffer, &b, sizeof b));
        }
    }
    w->blocks.list = (struct block *)(void *)w->blocks.buffer.data;
    w->blocks.count = w->blocks.buffer.count / sizeof *w->blocks.list;
    return ERR_OK;
}

/* A block has one document then, and goes where its owner goes. */
enum err text_owners_deal(struct work *w, struct text_report *report)
{
    struct owner *all;
    uint64_t count = 0;
    TRY_ALLOC(all = arena_array(w->a, w->document_count, sizeof *all));
    for (size_t t = 0; t < w->source_count; t++)
        for (size_t i = 0; i < w->sources[t].document_count; i++)
            all[count++] = w->sources[t].owners[i];
    TRY(owners_deal(&w->blocks.deal, all, count, w->o->held_out, w->o->sites, w->a));
    report->owners = w->blocks.deal.count;
    for (uint64_t i = 0; i < w->blocks.count; i++) {
        struct block *b = &w->blocks.list[i];
        b->part = owners_part(&w->blocks.deal, text_owner(b));
    }
    w->blocks.held = w->blocks.deal.held;
    return ERR_OK;
}

enum err text_blocks_cut(struct work *w, uint64_t tokens)
{
    uint64_t aim = tokens / ((uint64_t)BLOCKS_AIM * (w->o->sites + 1));
    aim = aim < BLOCK_BYTES_MIN ? BLOCK_BYTES_MIN : aim > BLOCK_BYTES_MAX ? BLOCK_BYTES_MAX : aim;
    w->blocks.whole_documents = w->o->documents || w->o->source.owner ||
                                w->document_count >= (uint64_t)DOCUMENTS_FEW * (w->o->sites + 1);
    TRY(cut(w, aim));
    w->blocks.held = (uint64_t)(w->o->held_out * (double)w->blocks.count + 0.5);
    if (w->o->held_out > 0 && w->blocks.held == 0)
        w->blocks.held = 1;
    return ERR_OK;
}

void text_blocks_free(struct work *w)
{
    buffer_free(&w->blocks.buffer);
}
