#include <stdio.h>
#include <string.h>
#include "inner/data/boundary.h"
#include "inner/data/shard.h"
#include "inner/data/sidecar.h"
#include "inner/data/text_own.h"
#include "kernels/base/bytes.h"
#include "kernels/base/file.h"

enum {
    BLOCKS_AIM = 400, /* of each part, in a text of middle size: small blocks mix well, large ones
                         keep context */
    BLOCK_BYTES_MIN = 256,
    BLOCK_BYTES_MAX = 65536,
    DOCUMENTS_FEW = 8 /* of each part: with fewer, documents are cut too */
};

/* ---- blocks ---- */

/* Length of a run of line ends at `at`: "\n", "\r\n". */
static size_t newlines(const uint8_t *s, size_t n, size_t at)
{
    size_t end = at;
    while (end < n && (s[end] == '\n' || (s[end] == '\r' && end + 1 < n && s[end + 1] == '\n')))
        end++;
    return end - at;
}

/* Where the block that begins at `at` should end: behind the first blank line after `aim` bytes,
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

/* The first document that ends at `at` or behind it. */
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

/* Within a document, in front of white space rather than behind it. */
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
    enum err e = boundary_words(w->words, x, text, d.end - first, at - first, &place);
    *cut = first + place;
    return e ? err_add(e, "%s: byte %llu: ", s->path, (unsigned long long)at + 1) : ERR_OK;
}

enum err text_cut(const struct work *w, struct tokenizer_scratch *x, const struct source *s,
                  uint64_t from, uint64_t at, uint64_t *cut)
{
    *cut = at;
    if (at >= s->count)
        return ERR_OK;
    if (!w->words) {
        *cut = boundary_character(s->data, s->count, at);
        return ERR_OK;
    }
    size_t i = text_document(s, at + 1);
    if (i < s->document_count && s->documents[i].start < at)
        return cut_document(w, x, s, s->documents[i], from, at, cut);
    return ERR_OK;
}

/* Ids have no lines: their blocks end anywhere. */
static enum err source_cut(const struct work *w, const struct source *s, uint64_t at, size_t aim,
                           uint64_t *end)
{
    if (s->id_bytes > 1) {
        *end = at + aim < s->count ? at + aim : s->count;
        return ERR_OK;
    }
    if (!w->whole_documents)
        return text_cut(w, w->scratch ? w->scratch[0] : NULL, s, at,
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
            TRY(buffer_add(&w->cut, &b, sizeof b));
        }
    }
    w->blocks = (struct block *)(void *)w->cut.data;
    w->block_count = w->cut.count / sizeof *w->blocks;
    return ERR_OK;
}

/* A block has one document then, and goes where its owner goes. */
static enum err deal_owners(struct work *w, struct text_report *report)
{
    struct owner *all;
    uint64_t count = 0;
    TRY_ALLOC(all = arena_array(w->a, w->document_count, sizeof *all));
    for (size_t t = 0; t < w->source_count; t++)
        for (size_t i = 0; i < w->sources[t].document_count; i++)
            all[count++] = w->sources[t].owners[i];
    TRY(owners_deal(&w->deal, all, count, w->o->held_out, w->o->sites, w->a));
    report->owners = w->deal.count;
    for (uint64_t i = 0; i < w->block_count; i++) {
        struct block *b = &w->blocks[i];
        b->part = owners_part(&w->deal, text_owner(b));
    }
    w->held = w->deal.held;
    return ERR_OK;
}

const struct owner *text_owner(const struct block *b)
{
    return &b->source->owners[text_document(b->source, b->first + 1)];
}

static enum err cut_blocks(struct work *w, uint64_t tokens)
{
    uint64_t aim = tokens / ((uint64_t)BLOCKS_AIM * (w->o->sites + 1));
    aim = aim < BLOCK_BYTES_MIN ? BLOCK_BYTES_MIN : aim > BLOCK_BYTES_MAX ? BLOCK_BYTES_MAX : aim;
    w->whole_documents = w->o->documents || w->o->source.owner ||
                         w->document_count >= (uint64_t)DOCUMENTS_FEW * (w->o->sites + 1);
    TRY(cut(w, aim));
    w->held = (uint64_t)(w->o->held_out * (double)w->block_count + 0.5);
    if (w->o->held_out > 0 && w->held == 0)
        w->held = 1;
    return ERR_OK;
}

/* Evenly spread: the k-th of `held` blocks is where i * held / count steps from k to k + 1. */
bool text_is_held(const struct work *w, uint64_t i)
{
    if (w->deal.count)
        return w->blocks[i].part < 0;
    return (i + 1) * w->held / w->block_count > i * w->held / w->block_count;
}

/* Calls go through blocks in order: the part of block i, -1 held out, else the site, dealt by
 * *turn. */
static int64_t part_of(const struct work *w, uint64_t i, uint64_t *turn)
{
    if (w->deal.count)
        return w->blocks[i].part;
    return text_is_held(w, i) ? -1 : (int64_t)((*turn)++ % w->o->sites);
}

/* ---- shards ---- */

enum { SUFFIX_BYTES = 7 };

enum err text_stem(const struct work *w, int64_t part, uint32_t number, char stem[TEXT_PATH_BYTES])
{
    int n = part < 0 ? snprintf(stem, TEXT_PATH_BYTES, "%s/eval-%04u", w->o->out, number)
                     : snprintf(stem, TEXT_PATH_BYTES, "%s/train-%lld-%04u", w->o->out,
                                (long long)part, number);
    if (n < TEXT_PATH_BYTES - SUFFIX_BYTES)
        return ERR_OK;
    return err_set(ERR_INPUT, "%s: path too long", w->o->out);
}

static enum err shard_path(const struct work *w, int64_t part, uint32_t number, const char *suffix,
                           char path[TEXT_PATH_BYTES])
{
    TRY(text_stem(w, part, number, path));
    ASSERT(strlen(suffix) <= SUFFIX_BYTES);
    memcpy(path + strlen(path), suffix, strlen(suffix) + 1);
    return ERR_OK;
}

static enum err shard_write(const struct work *w, struct text_out *out)
{
    char path[TEXT_PATH_BYTES];
    struct bytes_writer head = bytes_writer(w->shard, SHARD_HEADER_BYTES);
    bytes_put_u32(&head, w->id_bytes == 2 ? SHARD_MAGIC_U16 : SHARD_MAGIC_U32);
    bytes_put_u32(&head, w->id_bytes == 2 ? SHARD_VERSION_U16 : SHARD_VERSION_U32);
    bytes_put_u32(&head, (uint32_t)out->filled);
    struct file_part whole = {w->shard, SHARD_HEADER_BYTES + out->filled * w->id_bytes};
    TRY(shard_path(w, out->part, out->report->shards, ".bin", path));
    TRY(file_write(path, &whole, 1, 0644));
    out->report->shards++;
    out->report->tokens += out->filled;
    out->filled = 0;
    return ERR_OK;
}

enum err text_put(const struct work *w, struct text_out *out, uint32_t id)
{
    uint8_t *at = w->shard + SHARD_HEADER_BYTES + out->filled++ * w->id_bytes;
    for (unsigned byte = 0; byte < w->id_bytes; byte++)
        at[byte] = (uint8_t)(id >> 8 * byte);
    return out->filled < w->o->shard_tokens ? ERR_OK : shard_write(w, out);
}

static enum err part_write(struct work *w, int64_t part, struct text_part *report)
{
    struct text_out out = {.part = part, .report = report};
    uint64_t turn = 0, count = 0;
    for (uint64_t i = 0; i < w->block_count; i++)
        if (part_of(w, i, &turn) == part)
            w->mine[count++] = &w->blocks[i];
    if (text_is_indexed(w->o))
        return text_indexed_close(w, &out, text_blocks_put(w, &out, w->mine, count));
    if (w->tokenizer) {
        TRY(text_blocks_put(w, &out, w->mine, count));
    } else {
        for (uint64_t i = 0; i < count; i++)
            for (uint64_t j = 0; j < w->mine[i]->count; j++)
                TRY(text_put(w, &out, source_id(w->mine[i]->source, w->mine[i]->first + j)));
    }
    return out.filled ? shard_write(w, &out) : ERR_OK;
}

static enum err check_length(const struct work *w, int64_t part, uint64_t tokens)
{
    char name[32];
    snprintf(name, sizeof name, part < 0 ? "the held-out part" : "the part of site %lld",
             (long long)part);
    if (tokens > w->o->sequence)
        return ERR_OK;
    return err_set(
        ERR_INPUT,
        "the text is too short: %s would have %llu tokens, less than one sequence of %llu and its "
        "target; give more text, fewer sites or a shorter --sequence",
        name, (unsigned long long)tokens, (unsigned long long)w->o->sequence);
}

/* With a tokenizer the tokens of a part are known when it is written. */
static enum err parts_check(const struct work *w, const struct text_report *report)
{
    if (w->held)
        TRY(check_length(w, -1, report->eval.tokens));
    for (uint32_t site = 0; site < w->o->sites; site++)
        TRY(check_length(w, site, report->train[site].tokens));
    return ERR_OK;
}

static enum err parts_write(struct work *w, struct text_report *report)
{
    if (w->held)
        TRY(part_write(w, -1, &report->eval));
    struct text_part all = report->eval;
    for (uint32_t site = 0; site < w->o->sites; site++) {
        struct text_part *p = &report->train[site];
        TRY(part_write(w, site, p));
        all.tokens += p->tokens;
        all.documents += p->documents;
    }
    report->tokens = all.tokens;
    if (text_is_indexed(w->o))
        report->documents = all.documents;
    return w->tokenizer ? parts_check(w, report) : ERR_OK;
}

static void part_remove(const struct work *w, int64_t part, const struct text_part *report)
{
    static const char *const suffixes[] = {".bin", ".idx", ".owners"};
    char path[TEXT_PATH_BYTES];
    for (uint32_t i = 0; i < 3 * report->shards; i++)
        if (shard_path(w, part, i / 3, suffixes[i % 3], path) || file_remove(path))
            return;
}

/* A part of a set would train without a word about what is missing. The error being reported stays
 * the first one. */
static enum err undo(const struct work *w, const struct text_report *report, enum err e)
{
    char sentence[1024];
    snprintf(sentence, sizeof sentence, "%s", err_message());
    part_remove(w, -1, &report->eval);
    for (uint32_t site = 0; site < w->o->sites; site++)
        part_remove(w, site, &report->train[site]);
    return err_set(e, "%s", sentence);
}

/* ---- before anything is written ---- */

static enum err sources_open(struct work *w, char **paths, const bool *listed,
                             struct text_report *report)
{
    struct source_options o = w->o->source;
    o.documents = w->o->tokenizer != NULL;
    o.directory = w->o->out;
    for (size_t i = 0; i < w->source_count; i++) {
        struct source *s = &w->sources[i];
        o.whole_files = w->o->source.whole_files || listed[i];
        TRY(source_open(s, paths[i], &o));
        report->tokens += s->count;
        w->document_count += s->document_count;
        report->largest_id =
            s->largest_id > report->largest_id ? s->largest_id : report->largest_id;
    }
    w->largest_id = report->largest_id;
    w->id_bytes = report->largest_id > UINT16_MAX ? 4 : 2;
    report->documents = w->document_count;
    return ERR_OK;
}

/* Longest part, for the buffer; all parts, for the disk. */
static enum err check_lengths(const struct work *w, uint64_t *longest)
{
    uint64_t *tokens, turn = 0;
    TRY_ALLOC(tokens = arena_array(w->a, w->o->sites + 1, sizeof *tokens));
    for (uint64_t i = 0; i < w->block_count; i++)
        tokens[part_of(w, i, &turn) + 1] += w->blocks[i].count;
    for (uint32_t i = 0; i <= w->o->sites; i++) {
        *longest = tokens[i] > *longest ? tokens[i] : *longest;
        if (!w->o->tokenizer && (i > 0 || w->o->held_out > 0))
            TRY(check_length(w, (int64_t)i - 1, tokens[i]));
    }
    return ERR_OK;
}

static bool is_shard(const char *name)
{
    const char *suffix = strrchr(name, '.');
    return suffix &&
           (!strcmp(suffix, ".bin") || !strcmp(suffix, ".idx") || !strcmp(suffix, ".labels") ||
            !strcmp(suffix, ".owners")) &&
           (!strncmp(name, "train-", 6) || !strncmp(name, "eval-", 5));
}

/* A longer set made before would leave shards behind that the same pattern matches. */
static enum err make_place(const struct work *w, uint64_t needed_bytes)
{
    char **names, path[TEXT_PATH_BYTES];
    size_t count;
    uint64_t free_bytes;
    TRY(file_mkdirs(w->o->out));
    TRY(file_list(w->o->out, w->a, &names, &count));
    for (size_t i = 0; i < count; i++) {
        if (!is_shard(names[i]))
            continue;
        if (!w->o->replace)
            return err_set(
                ERR_INPUT,
                "%s/%s: shards are already there; take another directory, or --force to replace "
                "them",
                w->o->out, names[i]);
        if (snprintf(path, sizeof path, "%s/%s", w->o->out, names[i]) >= TEXT_PATH_BYTES)
            return err_set(ERR_INPUT, "%s: path too long", w->o->out);
        TRY(file_remove(path));
    }
    TRY(file_free_bytes(w->o->out, &free_bytes));
    if (free_bytes < needed_bytes)
        return err_set(ERR_FULL, "%s: the shards need %llu bytes, %llu are free", w->o->out,
                       (unsigned long long)needed_bytes, (unsigned long long)free_bytes);
    return ERR_OK;
}

/* data.json: which tokenizer made the ids. */
static enum err directory_describe(const struct work *w, struct text_report *report)
{
    struct sidecar s = sidecar_none();
    s.kind = w->o->source.ids ? "" : "bytes";
    s.vocab = w->o->source.ids ? (int64_t)w->largest_id + 1 : 256;
    s.tokens = report->tokens;
    if (w->tokenizer)
        text_tokenizer_describe(w, &s, report);
    return sidecar_write(&s, w->o->out);
}

/* With a tokenizer the bytes of the text bound the tokens: no character has more than 18 of them,
 * and it has three bytes. Memory that is not written is not taken. */
static uint64_t tokens_most(const struct work *w, uint64_t longest)
{
    uint64_t most = w->o->tokenizer ? 8 * longest + 1024 : longest;
    return most < w->o->shard_tokens ? most : w->o->shard_tokens;
}

static enum err prepare(struct work *w, char **paths, const bool *listed,
                        struct text_report *report)
{
    uint64_t longest = 0;
    TRY(sources_open(w, paths, listed, report));
    w->text_bytes = report->tokens;
    if (w->o->tokenizer)
        TRY(text_words_open(w));
    TRY(cut_blocks(w, report->tokens));
    if (w->o->source.owner)
        TRY(deal_owners(w, report));
    report->blocks = w->block_count;
    TRY(check_lengths(w, &longest));
    uint64_t needed = w->o->tokenizer ? report->tokens / 4 : report->tokens;
    TRY(make_place(w, needed * w->id_bytes + (uint64_t)SHARD_HEADER_BYTES * (w->o->sites + 1)));
    if (w->o->tokenizer)
        TRY(text_tokenizer_open(w, report));
    TRY_ALLOC(w->mine = arena_array(w->a, w->block_count, sizeof(struct block *)));
    if (!text_is_indexed(w->o))
        TRY_ALLOC(w->shard = arena_alloc(w->a, SHARD_HEADER_BYTES +
                                                   tokens_most(w, longest) * w->id_bytes));
    enum err e = parts_write(w, report);
    if (!e && w->tokenizer)
        e = text_tokenizer_copy(w);
    if (!e)
        e = directory_describe(w, report);
    return e ? undo(w, report, e) : ERR_OK;
}

enum err text_prepare(const char *const *paths, size_t path_count, const struct text_options *o,
                      struct arena *a, struct text_report *report)
{
    struct work w = {.o = o, .a = a, .start_id = -1};
    char **files;
    bool *listed;
    ASSERT(o->sites >= 1 && o->sites <= TEXT_SITES_MAX && o->held_out >= 0 && o->held_out <= 0.5);
    ASSERT(o->shard_tokens > o->sequence && o->shard_tokens <= SHARD_TOKENS_MAX);
    ASSERT(!text_is_indexed(o) || o->tokenizer);
    ASSERT(!o->source.owner || text_is_indexed(o));
    *report = (struct text_report){0};
    if (!path_count)
        return err_set(ERR_INPUT, "no text is given");
    TRY(source_list(paths, path_count, a, &files, &listed, &w.source_count));
    TRY_ALLOC(report->train = arena_array(a, o->sites, sizeof *report->train));
    TRY_ALLOC(w.sources = arena_array(a, w.source_count, sizeof *w.sources));
    enum err e = prepare(&w, files, listed, report);
    text_tokenizer_close(&w);
    for (size_t i = 0; i < w.source_count; i++)
        source_close(&w.sources[i]);
    buffer_free(&w.cut);
    return e;
}
