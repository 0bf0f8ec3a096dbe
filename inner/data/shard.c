/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/shard.h"
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "inner/data/labels.h"
#include "inner/data/owners.h"
#include "kernels/base/bytes.h"

enum { SCAN_TOKENS = 65536 }; /* ids looked at between two comparisons with the vocabulary */

/* ---- one shard ---- */

static enum err check_kind(struct shard *s, const char *path, uint32_t magic, uint32_t version)
{
    if (magic != SHARD_MAGIC_U16 && magic != SHARD_MAGIC_U32)
        return err_set(
            ERR_INPUT,
            "%s: not a token shard (magic %u; %d or %d expected, or a Megatron .idx next to it); "
            "atoll data makes shards from text",
            path, magic, SHARD_MAGIC_U16, SHARD_MAGIC_U32);
    uint32_t expected = magic == SHARD_MAGIC_U16 ? SHARD_VERSION_U16 : SHARD_VERSION_U32;
    if (version != expected)
        return err_set(ERR_INPUT,
                       "%s: shard version %u; with magic %u this program reads version %u", path,
                       version, magic, expected);
    s->id_bytes = magic == SHARD_MAGIC_U16 ? 2 : 4;
    return ERR_OK;
}

static enum err check_size(const struct shard *s, const char *path, size_t size_bytes)
{
    uint64_t there = (size_bytes - SHARD_HEADER_BYTES) / s->id_bytes,
             rest = (size_bytes - SHARD_HEADER_BYTES) % s->id_bytes;
    if (there < s->count)
        return err_set(
            ERR_INPUT,
            "%s: cut short: the header promises %llu tokens, %llu are missing; copy the file again",
            path, (unsigned long long)s->count, (unsigned long long)(s->count - there));
    if (there > s->count || rest)
        return err_set(ERR_INPUT, "%s: %llu bytes after the %llu tokens that the header promises",
                       path, (unsigned long long)((there - s->count) * s->id_bytes + rest),
                       (unsigned long long)s->count);
    return ERR_OK;
}

enum err shard_parse(struct shard *s, const char *path, const uint8_t *data, size_t size_bytes)
{
    *s = (struct shard){.path = path};
    if (size_bytes < SHARD_HEADER_BYTES)
        return err_set(ERR_INPUT, "%s: %zu bytes; a token shard begins with a header of %d", path,
                       size_bytes, SHARD_HEADER_BYTES);
    struct bytes_reader r = bytes_reader(data, SHARD_HEADER_BYTES);
    uint32_t magic = bytes_get_u32(&r), version = bytes_get_u32(&r), count = bytes_get_u32(&r);
    TRY(check_kind(s, path, magic, version));
    if (count == 0 || count > SHARD_TOKENS_MAX)
        return err_set(ERR_INPUT, "%s: the header promises %u tokens; allowed is 1 to %u", path,
                       count, SHARD_TOKENS_MAX);
    s->count = count;
    s->ids = data + SHARD_HEADER_BYTES;
    return check_size(s, path, size_bytes);
}

enum err shard_parse_indexed(struct shard *s, const char *path, const struct file_map *bin,
                             const struct file_map *index)
{
    char name[4096];
    *s = (struct shard){.path = path, .indexed = true};
    snprintf(name, sizeof name, "%.*s.idx", (int)(strlen(path) - 4), path);
    TRY(indexed_parse(&s->index, name, index->data, index->size_bytes, bin->size_bytes));
    s->ids = bin->data;
    s->id_bytes = s->index.id_bytes;
    s->count = s->index.tokens;
    return ERR_OK;
}

static inline uint32_t id_at(const struct shard *s, uint64_t i)
{
    const uint8_t *p = s->ids + i * s->id_bytes;
    uint32_t low = (uint32_t)p[0] | (uint32_t)p[1] << 8;
    return s->id_bytes == 2 ? low : low | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint32_t largest_id(const struct shard *s, uint64_t first, uint64_t end)
{
    uint32_t largest = 0;
    for (uint64_t i = first; i < end; i++) {
        uint32_t id = id_at(s, i);
        largest = id > largest ? id : largest;
    }
    return largest;
}

enum err shard_check_ids(const struct shard *s, int64_t vocab)
{
    if (s->id_bytes == 2 && vocab > UINT16_MAX)
        return ERR_OK;
    for (uint64_t first = 0; first < s->count; first += SCAN_TOKENS) {
        uint64_t end = first + SCAN_TOKENS < s->count ? first + SCAN_TOKENS : s->count, i = first;
        if ((int64_t)largest_id(s, first, end) < vocab)
            continue;
        while ((int64_t)id_at(s, i) < vocab)
            i++;
        return err_set(ERR_INPUT,
                       "%s: token %llu has id %u, beyond model.vocab_size = %lld; was the shard "
                       "made for another "
                       "tokenizer?",
                       s->path, (unsigned long long)i, id_at(s, i), (long long)vocab);
    }
    return ERR_OK;
}

void shard_read(const struct shard *s, uint64_t first, size_t count, int32_t *ids)
{
    ASSERT(first <= s->count && count <= s->count - first);
    for (size_t i = 0; i < count; i++)
        ids[i] = (int32_t)id_at(s, first + i);
}

/* ---- names of sets ---- */

static bool is_pattern(const char *path)
{
    return strpbrk(path, "*?[") != NULL;
}

/* A file, or a pattern that a file matches. */
static bool is_there(const char *path)
{
    glob_t found = {0};
    if (file_exists(path))
        return true;
    bool matched = is_pattern(path) && glob(path, 0, NULL, &found) == 0;
    globfree(&found);
    return matched;
}

size_t shard_name_length(const char *item)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    size_t n = strspn(item, allowed);
    return n > 0 && item[n] == '=' ? n : 0;
}

/* The path of an item; *length gets the length of the name before it. year=2020/a.bin is a
 * path where such a file is. */
static const char *path_of(const char *item, size_t *length)
{
    size_t n = shard_name_length(item);
    *length = n && !is_there(item) ? n : 0;
    return *length ? item + n + 1 : item;
}

/* Adds to the message what an item was taken for. */
static enum err item_error(enum err e, const char *item, const char *path)
{
    return path == item ? e
                        : err_add(e,
                                  "%s: \"%.*s\" is taken for the name of a set (if it belongs "
                                  "to the path: ./%s): ",
                                  item, (int)(path - item) - 1, item, item);
}

const char *shard_item_path(const char *item)
{
    size_t length;
    return path_of(item, &length);
}

static enum err group_add(struct shard_group *g, const char *path, struct arena *a, size_t most)
{
    if (!g->paths.items)
        TRY_ALLOC(g->paths.items = arena_array(a, most, sizeof *g->paths.items));
    g->paths.items[g->paths.count++] = path;
    return ERR_OK;
}

enum err shard_groups(const struct config_list *list, struct arena *a, struct shard_group **groups,
                      size_t *count)
{
    struct shard_group *all;
    *count = 0;
    TRY_ALLOC(all = arena_array(a, list->count + 1, sizeof *all));
    for (size_t i = 0; i < list->count; i++) {
        size_t length, g = 0;
        char *name;
        const char *path = path_of(list->items[i], &length);
        TRY_ALLOC(name = arena_string(a, list->items[i], length));
        while (g < *count && strcmp(all[g].name, name) != 0)
            g++;
        all[g].name = name;
        *count += g == *count;
        TRY(group_add(&all[g], path, a, list->count));
    }
    *groups = all;
    return ERR_OK;
}

enum err shard_items_plain(struct config_list *list, struct arena *a)
{
    const char **items;
    TRY_ALLOC(items = arena_array(a, list->count + 1, sizeof *items));
    for (size_t i = 0; i < list->count; i++) {
        items[i] = list->items[i];
        if (shard_name_length(items[i]))
            TRY_ALLOC(items[i] = arena_printf(a, "./%s", items[i]));
    }
    list->items = items;
    return ERR_OK;
}

/* ---- a set ---- */

/* NAME.bin -> NAME + extension; NULL in *other: there is no such file. */
static enum err beside(const char *path, const char *extension, struct arena *perm, char **other)
{
    size_t n = strlen(path);
    *other = NULL;
    if (n <= 4 || strcmp(path + n - 4, ".bin") != 0)
        return ERR_OK;
    TRY_ALLOC(*other = arena_printf(perm, "%.*s%s", (int)(n - 4), path, extension));
    *other = file_exists(*other) ? *other : NULL;
    return ERR_OK;
}

static enum err open_labels(struct shard *s, const char *path, struct arena *perm)
{
    char *labels;
    TRY(beside(path, ".labels", perm, &labels));
    if (!labels)
        return ERR_OK;
    TRY(file_map(&s->labels_map, labels));
    return labels_parse(&s->labels, labels, s->labels_map.data, s->labels_map.size_bytes,
                        s->index.documents_count);
}

static enum err open_owners(struct shard *s, const char *path, struct arena *perm)
{
    char *owners;
    TRY(beside(path, ".owners", perm, &owners));
    if (!owners)
        return ERR_OK;
    TRY(file_map(&s->owners_map, owners));
    return owners_parse(&s->owners, owners, s->owners_map.data, s->owners_map.size_bytes,
                        s->index.documents_count);
}

/* The shard keeps its mappings even if it is unusable, so that closing unmaps them. */
static enum err open_shard(struct shard *s, struct arena *perm, const char *path)
{
    struct file_map map, index = {0};
    char *index_path;
    TRY(beside(path, ".idx", perm, &index_path));
    TRY(file_map(&map, path));
    enum err e = index_path ? file_map(&index, index_path) : ERR_OK;
    if (!e)
        e = index_path ? shard_parse_indexed(s, path, &map, &index)
                       : shard_parse(s, path, map.data, map.size_bytes);
    s->map = map;
    s->index_map = index;
    if (e || !index_path)
        return e;
    TRY(open_labels(s, path, perm));
    return open_owners(s, path, perm);
}

/* There is room for it. The shard joins the set even if it is unusable, so that closing
 * unmaps it. */
static enum err set_add(struct shard_set *set, struct arena *perm, const char *path, int64_t vocab)
{
    struct shard *s = &set->shards[set->count];
    char *name;
    TRY_ALLOC(name = arena_string(perm, path, strlen(path)));
    set->count++;
    TRY(open_shard(s, perm, name));
    set->tokens += s->count;
    return shard_check_ids(s, vocab);
}

static enum err file_add(struct config_list *files, struct arena *a, size_t *room, const char *name)
{
    const char **items;
    if (files->count == SHARD_FILES_MAX)
        return err_set(ERR_INPUT, "more than %u shards in one set", SHARD_FILES_MAX);
    TRY_ALLOC(items = arena_grow(a, files->items, files->count, room, sizeof *items));
    files->items = items;
    files->items[files->count++] = name;
    return ERR_OK;
}

/* What a pattern matches, each after the name of the item; what is a file is no pattern. */
static enum err files_match(struct config_list *files, struct arena *a, size_t *room,
                            const char *item)
{
    size_t length;
    const char *path = path_of(item, &length);
    glob_t found = {0};
    if (!is_pattern(path) || file_exists(path))
        return file_add(files, a, room, item);
    int failed = glob(path, 0, NULL, &found);
    enum err e = ERR_OK;
    if (failed)
        e = err_set(ERR_INPUT,
                    failed == GLOB_NOMATCH ? "%s: no file matches" : "%s: cannot be searched",
                    path);
    for (size_t i = 0; !e && i < found.gl_pathc; i++) {
        char *name = arena_printf(a, "%.*s%s", (int)(path - item), item, found.gl_pathv[i]);
        e = name ? file_add(files, a, room, name) : ERR_MEMORY;
    }
    globfree(&found);
    return e ? item_error(e, item, path) : ERR_OK;
}

enum err shard_files(const struct config_list *list, struct arena *a, struct config_list *files)
{
    size_t room = 0;
    *files = (struct config_list){0};
    for (size_t i = 0; i < list->count; i++)
        TRY(files_match(files, a, &room, list->items[i]));
    return ERR_OK;
}

struct entry { /* a file of a list, by what it is and not by its path */
    dev_t device;
    ino_t inode;
    size_t at;
};

static int entry_compare(const void *x, const void *y)
{
    const struct entry *a = x, *b = y;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    if (a->inode != b->inode)
        return a->inode < b->inode ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}

/* The files that exist, sorted so that the same ones are neighbours. */
static enum err entries_of(const struct config_list *files, struct arena *a, struct entry **entries,
                           size_t *count)
{
    struct stat st;
    size_t length;
    *count = 0;
    TRY_ALLOC(*entries = arena_array(a, files->count + 1, sizeof **entries));
    for (size_t i = 0; i < files->count; i++)
        if (stat(path_of(files->items[i], &length), &st) == 0)
            (*entries)[(*count)++] = (struct entry){st.st_dev, st.st_ino, i};
    qsort(*entries, *count, sizeof **entries, entry_compare);
    return ERR_OK;
}

static bool same_set(const char *a, const char *b)
{
    size_t n, m;
    path_of(a, &n);
    path_of(b, &m);
    return n == m && memcmp(a, b, n) == 0;
}

enum err shard_files_once(struct config_list *files, struct arena *a, const char **twice,
                          size_t *left_out)
{
    struct entry *e;
    size_t count, kept = 0;
    bool *out;
    *left_out = 0;
    *twice = NULL;
    TRY(entries_of(files, a, &e, &count));
    TRY_ALLOC(out = arena_array(a, files->count + 1, sizeof *out));
    for (size_t i = 0, first = 0; i < count; i++) {
        if (e[i].device != e[first].device || e[i].inode != e[first].inode)
            first = i;
        for (size_t k = first; k < i && !out[e[i].at]; k++)
            out[e[i].at] = same_set(files->items[e[k].at], files->items[e[i].at]);
    }
    for (size_t i = 0; i < files->count; i++) {
        if (!out[i]) {
            files->items[kept++] = files->items[i];
            continue;
        }
        *twice = *twice ? *twice : files->items[i];
        ++*left_out;
    }
    files->count = kept;
    return ERR_OK;
}

enum err shard_files_common(const struct config_list *a, const struct config_list *b,
                            struct arena *scratch, const char **common, size_t *count)
{
    struct entry *x, *y;
    size_t n, m;
    *common = NULL;
    *count = 0;
    TRY(entries_of(a, scratch, &x, &n));
    TRY(entries_of(b, scratch, &y, &m));
    for (size_t i = 0, k = 0; i < n; i++) {
        while (k < m && (y[k].device < x[i].device ||
                         (y[k].device == x[i].device && y[k].inode < x[i].inode)))
            k++;
        if (k == m || y[k].device != x[i].device || y[k].inode != x[i].inode)
            continue;
        *common = *common ? *common : a->items[x[i].at];
        ++*count;
    }
    return ERR_OK;
}

struct config_list shard_dealt(const struct config_list *files, uint32_t rank, uint32_t ranks,
                               const char **items)
{
    struct config_list own = {items, 0};
    for (size_t i = rank; i < files->count; i += ranks)
        items[own.count++] = files->items[i];
    return own;
}

static enum err set_fill(struct shard_set *set, struct arena *perm, const struct config_list *paths,
                         int64_t vocab)
{
    struct config_list files;
    if (!paths->count)
        return err_set(
            ERR_INPUT,
            "no token shards are listed; make them with atoll data and name them in data.train and "
            "data.eval");
    TRY(shard_files(paths, perm, &files));
    TRY_ALLOC(set->shards = arena_array(perm, files.count, sizeof *set->shards));
    for (size_t i = 0; i < files.count; i++) {
        size_t length;
        const char *path = path_of(files.items[i], &length);
        char *name;
        TRY_ALLOC(name = arena_string(perm, files.items[i], length));
        enum err e = set_add(set, perm, path, vocab);
        if (e)
            return file_exists(path) ? e : item_error(e, files.items[i], path);
        set->shards[i].set = name;
    }
    return ERR_OK;
}

enum err shard_set_open(struct shard_set *set, struct arena *perm, const struct config_list *paths,
                        int64_t vocab)
{
    *set = (struct shard_set){0};
    enum err e = set_fill(set, perm, paths, vocab);
    if (e)
        shard_set_close(set);
    return e;
}

void shard_set_close(struct shard_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        file_unmap(&set->shards[i].map);
        file_unmap(&set->shards[i].index_map);
        file_unmap(&set->shards[i].labels_map);
        file_unmap(&set->shards[i].owners_map);
    }
    *set = (struct shard_set){0};
}
