/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include "inner/data/shard.h"
#include "inner/data/sidecar.h"
#include "inner/data/text_own.h"
#include "kernels/base/file.h"

/* Calls go through blocks in order: the part of block i, -1 held out, else the site, dealt by
 * *turn. */
static int64_t part_of(const struct work *w, uint64_t i, uint64_t *turn)
{
    if (w->blocks.deal.count)
        return w->blocks.list[i].part;
    return text_is_held(w, i) ? -1 : (int64_t)((*turn)++ % w->o->sites);
}

/* ---- shards ---- */

static enum err part_write(struct work *w, int64_t part, struct text_part *report)
{
    struct text_out out = {.part = part, .report = report};
    uint64_t turn = 0, count = 0;
    for (uint64_t i = 0; i < w->blocks.count; i++)
        if (part_of(w, i, &turn) == part)
            w->mine[count++] = w->blocks.list + i;
    if (text_is_indexed(w->o))
        return text_indexed_close(w, &out, text_blocks_put(w, &out, w->mine, count));
    if (w->encoding.tokenizer) {
        TRY(text_blocks_put(w, &out, w->mine, count));
    } else {
        for (uint64_t i = 0; i < count; i++)
            for (uint64_t j = 0; j < w->mine[i]->count; j++)
                TRY(text_put(w, &out, source_id(w->mine[i]->source, w->mine[i]->first + j)));
    }
    return out.filled ? text_shard_write(w, &out) : ERR_OK;
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
        "target; give more text, fewer sites or a shorter --seq-len",
        name, (unsigned long long)tokens, (unsigned long long)w->o->sequence);
}

/* With a tokenizer the tokens of a part are known when it is written. */
static enum err parts_check(const struct work *w, const struct text_report *report)
{
    if (w->blocks.held)
        TRY(check_length(w, -1, report->eval.tokens));
    for (uint32_t site = 0; site < w->o->sites; site++)
        TRY(check_length(w, site, report->train[site].tokens));
    return ERR_OK;
}

static enum err parts_write(struct work *w, struct text_report *report)
{
    if (w->blocks.held)
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
    return w->encoding.tokenizer ? parts_check(w, report) : ERR_OK;
}

static void part_remove(const struct work *w, int64_t part, const struct text_part *report)
{
    static const char *const suffixes[] = {".bin", ".idx", ".owners"};
    char path[TEXT_PATH_BYTES];
    for (uint32_t i = 0; i < 3 * report->shards; i++)
        if (text_shard_path(w, part, i / 3, suffixes[i % 3], path) || file_remove(path))
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
    for (uint64_t i = 0; i < w->blocks.count; i++)
        tokens[part_of(w, i, &turn) + 1] += w->blocks.list[i].count;
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

/* A longer set made before would leave further shards that the same pattern matches. */
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
    if (w->encoding.tokenizer)
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
    TRY(text_blocks_cut(w, report->tokens));
    if (w->o->source.owner)
        TRY(text_owners_deal(w, report));
    report->blocks = w->blocks.count;
    TRY(check_lengths(w, &longest));
    uint64_t needed = w->o->tokenizer ? report->tokens / 4 : report->tokens;
    TRY(make_place(w, needed * w->id_bytes + (uint64_t)SHARD_HEADER_BYTES * (w->o->sites + 1)));
    if (w->o->tokenizer)
        TRY(text_tokenizer_open(w, report));
    TRY_ALLOC(w->mine = arena_array(w->a, w->blocks.count, sizeof(struct block *)));
    if (!text_is_indexed(w->o))
        TRY_ALLOC(w->shard = arena_alloc(w->a, SHARD_HEADER_BYTES +
                                                   tokens_most(w, longest) * w->id_bytes));
    enum err e = parts_write(w, report);
    if (!e && w->encoding.tokenizer)
        e = text_tokenizer_copy(w);
    if (!e)
        e = directory_describe(w, report);
    return e ? undo(w, report, e) : ERR_OK;
}

enum err text_prepare(const char *const *paths, size_t path_count, const struct text_options *o,
                      struct arena *a, struct text_report *report)
{
    struct work w = {.o = o, .a = a, .encoding.start_id = -1};
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
    text_blocks_free(&w);
    return e;
}
