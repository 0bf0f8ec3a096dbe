/* SPDX-License-Identifier: Apache-2.0 */
/* Text to ids, on all threads: blocks are encoded in groups and put into the shard in their order.
 */
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include "inner/data/sentence.h"
#include "inner/data/text_own.h"
#include "inner/data/tokenizer/learn.h"

enum { GROUP_BLOCKS = 256, GROUP_BYTES = 1 << 24, MESSAGE_BYTES = 400, FILE_BYTES_MAX = 1 << 28 };

/* ---- the documents of a block ---- */

struct cursor {
    const struct block *block;
    size_t next; /* document */
};
struct span { /* a document, or the part of it that lies in the block */
    const uint8_t *text;
    size_t bytes;
    bool begins;
};

static struct cursor cursor_at(const struct block *b)
{
    return (struct cursor){b, text_document(b->source, b->first + 1)};
}

static bool span_next(struct cursor *c, struct span *span)
{
    const struct source *s = c->block->source;
    uint64_t first = c->block->first, last = first + c->block->count;
    if (c->next >= s->document_count || s->documents[c->next].start >= last)
        return false;
    struct source_document d = s->documents[c->next++];
    uint64_t start = d.start > first ? d.start : first, end = d.end < last ? d.end : last;
    *span = (struct span){s->data + start, end - start, d.start >= first};
    return true;
}

/* The next piece of a block, which is the block itself unless that is long. *done: its bytes that
 * earlier pieces had. */
static enum err piece_next(const struct work *w, struct tokenizer_scratch *x, const struct block *b,
                           uint64_t *done, struct block *piece)
{
    uint64_t first = b->first + *done, last = b->first + b->count, end = last;
    if (!w->o->documents && last - first > TEXT_PIECE_BYTES)
        TRY(text_cut(w, x, b->source, first, first + TEXT_PIECE_BYTES, &end));
    end = end < last ? end : last;
    *piece = (struct block){b->source, first, end - first, b->part};
    *done += end - first;
    return ERR_OK;
}

static enum err whole_check(const struct block *b, const uint8_t *text, size_t bytes)
{
    return bytes <= TEXT_WHOLE_BYTES_MAX
               ? ERR_OK
               : err_set(
                     ERR_INPUT,
                     "%s: byte %llu: %zu bytes that must stay together (a document of one "
                     "sequence, a sentence, or a text without an end of a word); at most %d are "
                     "taken",
                     b->source->path, (unsigned long long)(text - b->source->data) + 1, bytes,
                     TEXT_WHOLE_BYTES_MAX);
}

/* Places of messages are those of the file, or of the texts that were taken from it. */
static enum err text_encode(const struct work *w, struct tokenizer_scratch *x,
                            const struct block *b, const uint8_t *text, size_t bytes,
                            struct buffer_ids *ids)
{
    TRY(whole_check(b, text, bytes));
    enum err e = tokenizer_encode(w->encoding.tokenizer, x, text, bytes, ids);
    return e ? err_add(e, "%s: from byte %llu on: ", b->source->path,
                       (unsigned long long)(text - b->source->data) + 1)
             : ERR_OK;
}

/* ---- groups of blocks ---- */

struct group {
    struct block pieces[GROUP_BLOCKS];
    int count;
    struct text_ids ids[GROUP_BLOCKS];
    enum err error;
    char message[MESSAGE_BYTES]; /* an error's sentence belongs to the thread that found it */
};

/* One sequence of an index. */
static enum err sentence_encode(const struct work *w, struct tokenizer_scratch *x,
                                const struct block *b, const uint8_t *text, size_t bytes,
                                struct text_ids *out)
{
    size_t before = out->ids.count;
    TRY(text_encode(w, x, b, text, bytes, &out->ids));
    return buffer_ids_add(&out->marks, (int32_t)(out->ids.count - before));
}

static enum err sentences_encode(const struct work *w, struct tokenizer_scratch *x,
                                 const struct block *b, const struct span *span,
                                 struct text_ids *out)
{
    struct sentence s;
    size_t at = 0;
    if (span->begins)
        TRY(buffer_ids_add(&out->marks, TEXT_DOCUMENT));
    if (!w->o->split_sentences)
        return sentence_encode(w, x, b, span->text, span->bytes, out);
    while (sentence_next(span->text, span->bytes, &at, &s))
        TRY(sentence_encode(w, x, b, s.text, s.bytes, out));
    return ERR_OK;
}

static enum err block_encode(const struct work *w, struct tokenizer_scratch *x,
                             const struct block *b, struct text_ids *out)
{
    struct buffer_ids *ids = &out->ids;
    struct cursor c = cursor_at(b);
    struct span span;
    ids->count = out->marks.count = 0;
    while (span_next(&c, &span)) {
        if (text_is_indexed(w->o)) {
            TRY(sentences_encode(w, x, b, &span, out));
            continue;
        }
        if (span.begins && w->encoding.start_id >= 0)
            TRY(buffer_ids_add(ids, w->encoding.start_id));
        TRY(text_encode(w, x, b, span.text, span.bytes, ids));
    }
    return ERR_OK;
}

static void error_keep(enum err *error, char message[MESSAGE_BYTES], enum err e)
{
#pragma omp critical(text_error)
    if (e && !*error) {
        *error = e;
        snprintf(message, MESSAGE_BYTES, "%s", err_message());
    }
}

static enum err group_encode(const struct work *w, struct group *g)
{
#pragma omp parallel for schedule(dynamic) num_threads(w->encoding.threads)
    for (int i = 0; i < g->count; i++)
        error_keep(
            &g->error, g->message,
            block_encode(w, w->encoding.scratch[omp_get_thread_num()], &g->pieces[i], &g->ids[i]));
    return g->error ? err_set(g->error, "%s", g->message) : ERR_OK;
}

static enum err group_put(struct work *w, struct text_out *out, const struct group *g)
{
    for (int i = 0; i < g->count; i++) {
        const struct buffer_ids *ids = &g->ids[i].ids;
        if (text_is_indexed(w->o))
            TRY(text_indexed_put(w, out, &g->pieces[i], &g->ids[i]));
        for (size_t j = 0; !text_is_indexed(w->o) && j < ids->count; j++)
            TRY(text_put(w, out, (uint32_t)ids->ids[j]));
        w->encoding.done_bytes += g->pieces[i].count;
    }
    if (w->o->progress)
        w->o->progress(w->o->progress_self, "encode", w->encoding.done_bytes, w->text_bytes);
    return ERR_OK;
}

/* A group ends where it has enough to do, so that the ids of few pieces are in memory. */
static enum err groups_put(struct work *w, struct text_out *out, struct group *g,
                           const struct block **blocks, uint64_t count)
{
    uint64_t at = 0, done = 0, bytes = 0;
    while (at < count) {
        TRY(piece_next(w, w->encoding.scratch[0], blocks[at], &done, &g->pieces[g->count]));
        bytes += g->pieces[g->count++].count;
        if (done == blocks[at]->count) {
            at++;
            done = 0;
        }
        if (g->count < GROUP_BLOCKS && bytes < GROUP_BYTES && at < count)
            continue;
        TRY(group_encode(w, g));
        TRY(group_put(w, out, g));
        g->count = 0;
        bytes = 0;
    }
    return ERR_OK;
}

enum err text_blocks_put(struct work *w, struct text_out *out, const struct block **blocks,
                         uint64_t count)
{
    struct group *g = calloc(1, sizeof *g);
    enum err e = g ? groups_put(w, out, g, blocks, count)
                   : err_set(ERR_MEMORY, "no memory for blocks of text");
    for (int i = 0; g && i < GROUP_BLOCKS; i++) {
        buffer_ids_free(&g->ids[i].ids);
        buffer_ids_free(&g->ids[i].marks);
    }
    free(g);
    return e;
}

/* ---- learning ---- */

struct lesson {
    struct tally *words; /* one set for each thread */
    enum err error;
    char message[MESSAGE_BYTES];
};

static enum err word_count(void *self, const uint8_t *word, size_t bytes)
{
    return tally_add(self, word, bytes, 1);
}

static enum err piece_count_words(const struct work *w, struct tokenizer_scratch *x,
                                  struct tally *words, const struct block *b)
{
    struct cursor c = cursor_at(b);
    struct split_sink sink = {word_count, words};
    struct span span;
    while (span_next(&c, &span)) {
        TRY(whole_check(b, span.text, span.bytes));
        TRY(tokenizer_words(w->encoding.base, x, span.text, span.bytes, &sink));
    }
    return ERR_OK;
}

static enum err block_count_words(const struct work *w, struct tokenizer_scratch *x,
                                  struct tally *words, const struct block *b)
{
    struct block piece;
    for (uint64_t done = 0; done < b->count;) {
        TRY(piece_next(w, x, b, &done, &piece));
        TRY(piece_count_words(w, x, words, &piece));
    }
    return ERR_OK;
}

/* Blocks that are held out teach nothing. */
static enum err words_count(struct work *w, struct lesson *l)
{
    uint64_t done = 0;
    for (uint64_t at = 0; at < w->blocks.count; at += GROUP_BLOCKS) {
        uint64_t end = w->blocks.count - at < GROUP_BLOCKS ? w->blocks.count : at + GROUP_BLOCKS;
#pragma omp parallel for schedule(dynamic) num_threads(w->encoding.threads)
        for (uint64_t i = at; i < end; i++)
            if (!text_is_held(w, i))
                error_keep(&l->error, l->message,
                           block_count_words(w, w->encoding.scratch[omp_get_thread_num()],
                                             &l->words[omp_get_thread_num()], &w->blocks.list[i]));
        if (l->error)
            return err_set(l->error, "%s", l->message);
        for (uint64_t i = at; i < end; i++)
            done += w->blocks.list[i].count;
        if (w->o->progress)
            w->o->progress(w->o->progress_self, "count words", done, w->text_bytes);
    }
    for (int i = 1; i < w->encoding.threads; i++)
        TRY(tally_merge(&l->words[0], &l->words[i]));
    tally_sort(&l->words[0]);
    return ERR_OK;
}

static enum err learn_from(struct work *w, struct lesson *l, const struct learn_options *o)
{
    TRY_ALLOC(l->words = arena_array(w->a, (size_t)w->encoding.threads, sizeof *l->words));
    for (int i = 0; i < w->encoding.threads; i++)
        TRY(tally_open(&l->words[i]));
    TRY(words_count(w, l));
    return learn_write(&l->words[0], o, w->o->out);
}

static enum err learn_options(const struct work *w, struct learn_options *o)
{
    *o = (struct learn_options){.kind = TOKENIZER_WORDPIECE,
                                .size = w->o->learn,
                                .alphabet_max = 1000,
                                .lower = !w->o->cased};
    if (!strcmp(w->o->tokenizer, "bpe"))
        o->kind = TOKENIZER_BPE;
    else if (strcmp(w->o->tokenizer, "wordpiece"))
        return err_set(ERR_CONFIG, "--learn: --tokenizer %.60s: wordpiece or bpe expected",
                       w->o->tokenizer);
    return ERR_OK;
}

static enum err learn(struct work *w)
{
    struct learn_options o;
    struct lesson l = {0};
    TRY(learn_options(w, &o));
    enum err e = learn_from(w, &l, &o);
    for (int i = 0; l.words && i < w->encoding.threads; i++)
        tally_close(&l.words[i]);
    return e;
}

/* ---- the tokenizer ---- */

static enum err scratch_open(struct work *w)
{
    w->encoding.threads = omp_get_max_threads();
    TRY_ALLOC(w->encoding.scratch = arena_array(w->a, (size_t)w->encoding.threads,
                                                sizeof(struct tokenizer_scratch *)));
    for (int i = 0; i < w->encoding.threads; i++)
        TRY(tokenizer_scratch_open(&w->encoding.scratch[i]));
    return ERR_OK;
}

enum err text_words_open(struct work *w)
{
    struct learn_options o;
    TRY(scratch_open(w));
    if (!w->o->learn) {
        TRY(tokenizer_open(&w->encoding.tokenizer, w->o->tokenizer));
        w->encoding.words = w->encoding.tokenizer;
        return ERR_OK;
    }
    TRY(learn_options(w, &o));
    TRY(learn_words_open(&w->encoding.base, &o));
    w->encoding.words = w->encoding.base;
    return ERR_OK;
}

enum err text_tokenizer_open(struct work *w, struct text_report *report)
{
    static const enum tokenizer_role starts[] = {TOKENIZER_BOS, TOKENIZER_EOS, TOKENIZER_SEP};
    if (w->o->learn) {
        TRY(learn(w));
        TRY(tokenizer_open(&w->encoding.tokenizer, w->o->out));
    }
    for (int i = 2; i >= 0; i--)
        if (tokenizer_special(w->encoding.tokenizer, starts[i]) >= 0)
            w->encoding.start_id = tokenizer_special(w->encoding.tokenizer, starts[i]);
    report->vocab = tokenizer_size(w->encoding.tokenizer);
    report->largest_id = w->largest_id = (uint32_t)report->vocab - 1;
    w->id_bytes = report->vocab > UINT16_MAX + 1 ? 4 : 2;
    return ERR_OK;
}

void text_tokenizer_close(struct work *w)
{
    tokenizer_close(w->encoding.tokenizer);
    tokenizer_close(w->encoding.base);
    for (int i = 0; w->encoding.scratch && i < w->encoding.threads; i++)
        tokenizer_scratch_close(w->encoding.scratch[i]);
}

static const char *copy_name(const struct work *w)
{
    const char *file = tokenizer_file(w->encoding.tokenizer);
    size_t length = strlen(file);
    return length > 4 && !strcmp(file + length - 4, ".txt") ? "vocab.txt" : "tokenizer.json";
}

void text_tokenizer_describe(const struct work *w, struct sidecar *s, struct text_report *report)
{
    static const char *const kinds[] = {[TOKENIZER_WORDPIECE] = "wordpiece",
                                        [TOKENIZER_BPE] = "bpe",
                                        [TOKENIZER_UNIGRAM] = "unigram"};
    static const enum tokenizer_role roles[] = {[SIDECAR_CLS] = TOKENIZER_CLS,
                                                [SIDECAR_SEP] = TOKENIZER_SEP,
                                                [SIDECAR_MASK] = TOKENIZER_MASK,
                                                [SIDECAR_PAD] = TOKENIZER_PAD,
                                                [SIDECAR_UNK] = TOKENIZER_UNK};
    struct digest d = tokenizer_digest(w->encoding.tokenizer);
    digest_hex(&d, report->sha256);
    s->tokenizer = copy_name(w);
    s->kind = kinds[tokenizer_kind(w->encoding.tokenizer)];
    s->sha256 = report->sha256;
    s->vocab = tokenizer_size(w->encoding.tokenizer);
    s->word_start = tokenizer_word_start(w->encoding.tokenizer);
    s->documents = report->documents;
    for (int i = 0; i < SIDECAR_SPECIALS; i++)
        s->special[i] = tokenizer_special(w->encoding.tokenizer, roles[i]);
    report->masks = s->special[SIDECAR_CLS] >= 0 && s->special[SIDECAR_SEP] >= 0 &&
                    s->special[SIDECAR_MASK] >= 0;
}

static enum err text_write(const struct work *w, const char *text, const char *name)
{
    char *to;
    TRY_ALLOC(to = arena_printf(w->a, "%s/%s", w->o->out, name));
    return file_write(to, &(struct file_part){text, strlen(text)}, 1, 0644);
}

static enum err file_copy(const struct work *w, const char *from, const char *name)
{
    char *to;
    uint8_t *text;
    struct file_part part;
    TRY_ALLOC(to = arena_printf(w->a, "%s/%s", w->o->out, name));
    if (!file_exists(from))
        return ERR_OK;
    TRY(file_read(from, FILE_BYTES_MAX, w->a, &text, &part.size_bytes));
    part.data = text;
    return file_write(to, &part, 1, 0644);
}

enum err text_tokenizer_copy(const struct work *w)
{
    static const char *const beside[] = {"tokenizer_config.json", "special_tokens_map.json"};
    const char *file = tokenizer_file(w->encoding.tokenizer), *slash = strrchr(file, '/');
    char *path;
    if (w->o->learn)
        return ERR_OK;
    if (tokenizer_text(w->encoding.tokenizer))
        TRY(text_write(w, tokenizer_text(w->encoding.tokenizer), copy_name(w)));
    else
        TRY(file_copy(w, file, copy_name(w)));
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        TRY_ALLOC(path = arena_printf(w->a, "%.*s%s", slash ? (int)(slash - file) + 1 : 0, file,
                                      beside[i]));
        TRY(file_copy(w, path, beside[i]));
    }
    return ERR_OK;
}
