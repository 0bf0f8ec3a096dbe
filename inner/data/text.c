#include "inner/data/text.h"
#include <stdio.h>
#include <string.h>
#include "inner/data/shard.h"
#include "kernels/base/bytes.h"
#include "kernels/base/file.h"

enum {
    BLOCKS_AIM = 400, /* of each part, in a text of middle size: small blocks mix well, large ones
                         keep context */
    BLOCK_BYTES_MIN = 256,
    BLOCK_BYTES_MAX = 65536,
    PATH_BYTES = 4096
};

struct block {
    const struct source *source;
    uint64_t first, count; /* ids */
};
struct work {
    const struct text_options *o;
    struct arena *a;
    struct source *sources;
    size_t source_count;
    unsigned id_bytes; /* of a shard's ids: 2, or 4 where a source may have ids beyond 65,535 */
    struct block *blocks;
    uint64_t block_count, held; /* held: blocks of the held-out part */
    uint8_t *shard;             /* header and ids of the shard being filled */
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

/* Where the block that begins at `at` ends: behind the first blank line after `aim` bytes, else at
 * a line's end, else anywhere; never beyond 3 x aim, so that a text without line ends is cut too.
 */
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

/* First pass (blocks NULL) counts, second one fills. Ids have no lines: their blocks end anywhere.
 */
static uint64_t cut(const struct work *w, size_t aim, struct block *blocks)
{
    uint64_t count = 0;
    for (size_t t = 0; t < w->source_count; t++) {
        const struct source *s = &w->sources[t];
        for (uint64_t at = 0, end; at < s->count; at = end) {
            end = s->id_bytes == 1      ? block_end(s->data, s->count, at, aim)
                  : at + aim < s->count ? at + aim
                                        : s->count;
            if (blocks)
                blocks[count] = (struct block){s, at, end - at};
            count++;
        }
    }
    return count;
}

static enum err cut_blocks(struct work *w, uint64_t tokens)
{
    uint64_t aim = tokens / ((uint64_t)BLOCKS_AIM * (w->o->sites + 1));
    aim = aim < BLOCK_BYTES_MIN ? BLOCK_BYTES_MIN : aim > BLOCK_BYTES_MAX ? BLOCK_BYTES_MAX : aim;
    w->block_count = cut(w, aim, NULL);
    TRY_ALLOC(w->blocks = arena_array(w->a, w->block_count, sizeof *w->blocks));
    cut(w, aim, w->blocks);
    w->held = (uint64_t)(w->o->held_out * (double)w->block_count + 0.5);
    if (w->o->held_out > 0 && w->held == 0)
        w->held = 1;
    return ERR_OK;
}

/* Evenly spread: the k-th of `held` blocks is where i * held / count steps from k to k + 1. */
static bool is_held(const struct work *w, uint64_t i)
{
    return (i + 1) * w->held / w->block_count > i * w->held / w->block_count;
}

/* Calls go through blocks in order: the part of block i, -1 held out, else the site, dealt by
 * *turn. */
static int64_t part_of(const struct work *w, uint64_t i, uint64_t *turn)
{
    return is_held(w, i) ? -1 : (int64_t)((*turn)++ % w->o->sites);
}

/* ---- shards ---- */

static enum err shard_path(const struct work *w, int64_t part, uint32_t number,
                           char path[PATH_BYTES])
{
    int n = part < 0 ? snprintf(path, PATH_BYTES, "%s/eval-%04u.bin", w->o->out, number)
                     : snprintf(path, PATH_BYTES, "%s/train-%lld-%04u.bin", w->o->out,
                                (long long)part, number);
    return n < PATH_BYTES ? ERR_OK : err_set(ERR_INPUT, "%s: path too long", w->o->out);
}

static enum err shard_write(const struct work *w, int64_t part, struct text_part *report,
                            uint64_t tokens)
{
    char path[PATH_BYTES];
    struct bytes_writer head = bytes_writer(w->shard, SHARD_HEADER_BYTES);
    bytes_put_u32(&head, w->id_bytes == 2 ? SHARD_MAGIC_U16 : SHARD_MAGIC_U32);
    bytes_put_u32(&head, w->id_bytes == 2 ? SHARD_VERSION_U16 : SHARD_VERSION_U32);
    bytes_put_u32(&head, (uint32_t)tokens);
    struct file_part whole = {w->shard, SHARD_HEADER_BYTES + tokens * w->id_bytes};
    TRY(shard_path(w, part, report->shards, path));
    TRY(file_write(path, &whole, 1, 0644));
    report->shards++;
    report->tokens += tokens;
    return ERR_OK;
}

static enum err part_write(const struct work *w, int64_t part, struct text_part *report)
{
    uint64_t turn = 0, filled = 0;
    for (uint64_t i = 0; i < w->block_count; i++) {
        if (part_of(w, i, &turn) != part)
            continue;
        for (uint64_t j = 0; j < w->blocks[i].count; j++) {
            uint32_t id = source_id(w->blocks[i].source, w->blocks[i].first + j);
            uint8_t *at = w->shard + SHARD_HEADER_BYTES + filled++ * w->id_bytes;
            for (unsigned byte = 0; byte < w->id_bytes; byte++)
                at[byte] = (uint8_t)(id >> 8 * byte);
            if (filled < w->o->shard_tokens)
                continue;
            TRY(shard_write(w, part, report, filled));
            filled = 0;
        }
    }
    return filled ? shard_write(w, part, report, filled) : ERR_OK;
}

static enum err parts_write(struct work *w, struct text_report *report)
{
    if (w->held)
        TRY(part_write(w, -1, &report->eval));
    for (uint32_t site = 0; site < w->o->sites; site++)
        TRY(part_write(w, site, &report->train[site]));
    return ERR_OK;
}

static void part_remove(const struct work *w, int64_t part, const struct text_part *report)
{
    char path[PATH_BYTES];
    for (uint32_t i = 0; i < report->shards; i++)
        if (shard_path(w, part, i, path) || file_remove(path))
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

static enum err sources_open(struct work *w, const char *const *paths, struct text_report *report)
{
    for (size_t i = 0; i < w->source_count; i++) {
        struct source *s = &w->sources[i];
        TRY(source_open(s, paths[i], &w->o->source, w->a));
        report->tokens += s->count;
        report->largest_id =
            s->largest_id > report->largest_id ? s->largest_id : report->largest_id;
    }
    w->id_bytes = report->largest_id > UINT16_MAX ? 4 : 2;
    return ERR_OK;
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

/* Longest part, for the buffer; all parts, for the disk. */
static enum err check_lengths(const struct work *w, uint64_t *longest)
{
    uint64_t *tokens, turn = 0;
    TRY_ALLOC(tokens = arena_array(w->a, w->o->sites + 1, sizeof *tokens));
    for (uint64_t i = 0; i < w->block_count; i++)
        tokens[part_of(w, i, &turn) + 1] += w->blocks[i].count;
    for (uint32_t i = 0; i <= w->o->sites; i++) {
        *longest = tokens[i] > *longest ? tokens[i] : *longest;
        if (i > 0 || w->o->held_out > 0)
            TRY(check_length(w, (int64_t)i - 1, tokens[i]));
    }
    return ERR_OK;
}

static bool is_shard(const char *name)
{
    size_t n = strlen(name);
    return n > 4 && !strcmp(name + n - 4, ".bin") &&
           (!strncmp(name, "train-", 6) || !strncmp(name, "eval-", 5));
}

/* A longer set made before would leave shards behind that the same pattern matches. */
static enum err make_place(const struct work *w, uint64_t needed_bytes)
{
    char **names, path[PATH_BYTES];
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
        if (snprintf(path, sizeof path, "%s/%s", w->o->out, names[i]) >= PATH_BYTES)
            return err_set(ERR_INPUT, "%s: path too long", w->o->out);
        TRY(file_remove(path));
    }
    TRY(file_free_bytes(w->o->out, &free_bytes));
    if (free_bytes < needed_bytes)
        return err_set(ERR_FULL, "%s: the shards need %llu bytes, %llu are free", w->o->out,
                       (unsigned long long)needed_bytes, (unsigned long long)free_bytes);
    return ERR_OK;
}

static enum err prepare(struct work *w, const char *const *paths, struct text_report *report)
{
    uint64_t longest = 0;
    TRY(sources_open(w, paths, report));
    TRY(cut_blocks(w, report->tokens));
    report->blocks = w->block_count;
    TRY(check_lengths(w, &longest));
    TRY(make_place(w, report->tokens * w->id_bytes +
                          (uint64_t)SHARD_HEADER_BYTES * (w->o->sites + 1)));
    uint64_t tokens = longest < w->o->shard_tokens ? longest : w->o->shard_tokens;
    TRY_ALLOC(w->shard = arena_alloc(w->a, SHARD_HEADER_BYTES + tokens * w->id_bytes));
    enum err e = parts_write(w, report);
    return e ? undo(w, report, e) : ERR_OK;
}

enum err text_prepare(const char *const *paths, size_t path_count, const struct text_options *o,
                      struct arena *a, struct text_report *report)
{
    struct work w = {.o = o, .a = a, .source_count = path_count};
    ASSERT(o->sites >= 1 && o->sites <= TEXT_SITES_MAX && o->held_out >= 0 && o->held_out <= 0.5);
    ASSERT(o->shard_tokens > o->sequence && o->shard_tokens <= SHARD_TOKENS_MAX);
    *report = (struct text_report){0};
    if (!path_count)
        return err_set(ERR_INPUT, "no text is given");
    TRY_ALLOC(report->train = arena_array(a, o->sites, sizeof *report->train));
    TRY_ALLOC(w.sources = arena_array(a, path_count, sizeof *w.sources));
    enum err e = prepare(&w, paths, report);
    for (size_t i = 0; i < path_count; i++)
        source_close(&w.sources[i]);
    return e;
}
