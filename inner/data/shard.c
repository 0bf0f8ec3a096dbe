#include "inner/data/shard.h"
#include <glob.h>
#include <string.h>
#include "kernels/base/bytes.h"

enum { SCAN_TOKENS = 65536 }; /* ids looked at between two comparisons with the vocabulary */

/* ---- one shard ---- */

static enum err check_kind(struct shard *s, const char *path, uint32_t magic, uint32_t version)
{
    if (magic != SHARD_MAGIC_U16 && magic != SHARD_MAGIC_U32)
        return err_set(
            ERR_INPUT,
            "%s: not a token shard (magic %u; %d or %d expected); atoll data makes shards from "
            "text",
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
        return err_set(ERR_INPUT, "%s: %llu bytes behind the %llu tokens that the header promises",
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
        return err_set(
            ERR_INPUT,
            "%s: token %llu has id %u, beyond model.vocab = %lld; was the shard made for another "
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

/* ---- a set ---- */

static enum err set_grow(struct shard_set *set, struct arena *perm, size_t more)
{
    struct shard *shards;
    if (set->count + more > SHARD_FILES_MAX)
        return err_set(ERR_INPUT, "more than %u shards in one set", SHARD_FILES_MAX);
    TRY_ALLOC(shards = arena_array(perm, set->count + more, sizeof *shards));
    if (set->count)
        memcpy(shards, set->shards, set->count * sizeof *shards);
    set->shards = shards;
    return ERR_OK;
}

/* Room for it was made by set_grow. The shard joins the set even if it is unusable, so that closing
 * unmaps it. */
static enum err set_add(struct shard_set *set, struct arena *perm, const char *path, int64_t vocab)
{
    struct shard *s = &set->shards[set->count];
    struct file_map map;
    char *name;
    TRY_ALLOC(name = arena_string(perm, path, strlen(path)));
    TRY(file_map(&map, path));
    enum err e = shard_parse(s, name, map.data, map.size_bytes);
    s->map = map;
    set->count++;
    set->tokens += s->count;
    return e ? e : shard_check_ids(s, vocab);
}

static enum err set_add_glob(struct shard_set *set, struct arena *perm, const char *pattern,
                             int64_t vocab)
{
    glob_t found = {0};
    int failed = glob(pattern, 0, NULL, &found);
    enum err e = ERR_OK;
    if (failed == GLOB_NOMATCH)
        e = err_set(ERR_INPUT, "%s: no file matches", pattern);
    else if (failed)
        e = err_set(ERR_INPUT, "%s: cannot be searched", pattern);
    else
        e = set_grow(set, perm, found.gl_pathc);
    for (size_t i = 0; !e && i < found.gl_pathc; i++)
        e = set_add(set, perm, found.gl_pathv[i], vocab);
    globfree(&found);
    return e;
}

static enum err set_fill(struct shard_set *set, struct arena *perm, const struct config_list *paths,
                         int64_t vocab)
{
    if (!paths->count)
        return err_set(
            ERR_INPUT,
            "no token shards are listed; make them with atoll data and name them in data.train and "
            "data.eval");
    for (size_t i = 0; i < paths->count; i++) {
        if (strpbrk(paths->items[i], "*?[")) {
            TRY(set_add_glob(set, perm, paths->items[i], vocab));
        } else {
            TRY(set_grow(set, perm, 1));
            TRY(set_add(set, perm, paths->items[i], vocab));
        }
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
    for (size_t i = 0; i < set->count; i++)
        file_unmap(&set->shards[i].map);
    *set = (struct shard_set){0};
}
