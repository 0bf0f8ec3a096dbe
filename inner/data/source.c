/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/stat.h>
#include "inner/data/source_own.h"

enum err source_open(struct source *s, const char *path, const struct source_options *o)
{
    *s = (struct source){.path = path,
                         .unpacked = spill_make(o->directory),
                         .lines = spill_make(o->directory),
                         .places = spill_make(o->directory),
                         .names = spill_make(o->directory)};
    ASSERT(!o->raw || !o->documents);
    if (o->field && o->ids)
        return err_set(ERR_CONFIG, "--field is for text and --tokens for ids; give one of them");
    TRY(file_map(&s->map, path));
    return o->ids ? source_ids_open(s, o->ids) : source_text_open(s, o);
}

void source_close(struct source *s)
{
    file_unmap(&s->map);
    spill_close(&s->unpacked);
    spill_close(&s->lines);
    spill_close(&s->places);
    spill_close(&s->names);
    *s = (struct source){0};
}

/* ---- directories ---- */

struct listing {
    struct arena *a;
    char **paths;
    bool *listed;
    size_t count, room;
};

static enum err listing_add(struct listing *l, char *path, bool listed)
{
    if (l->count == l->room) {
        size_t room = 2 * l->room + 64;
        char **paths = arena_array(l->a, room, sizeof *paths);
        bool *flags = arena_array(l->a, room, sizeof *flags);
        TRY_ALLOC(paths && flags);
        if (l->count) {
            memcpy(paths, l->paths, l->count * sizeof *paths);
            memcpy(flags, l->listed, l->count * sizeof *flags);
        }
        l->paths = paths;
        l->listed = flags;
        l->room = room;
    }
    l->paths[l->count] = path;
    l->listed[l->count++] = listed;
    return ERR_OK;
}

static enum err listing_walk(struct listing *l, char *path, bool listed, unsigned depth)
{
    enum { DEPTH_MAX = 64 };
    struct stat s;
    char **names, *below;
    size_t count;
    if (stat(path, &s) || !S_ISDIR(s.st_mode)) /* a missing file is named when it is opened */
        return listing_add(l, path, listed);
    if (depth == DEPTH_MAX)
        return err_set(ERR_INPUT, "%s: more than %d directories deep", path, DEPTH_MAX);
    TRY(file_list(path, l->a, &names, &count));
    for (size_t i = 0; i < count; i++) {
        if (names[i][0] == '.')
            continue;
        TRY_ALLOC(below = arena_printf(l->a, "%s/%s", path, names[i]));
        TRY(listing_walk(l, below, true, depth + 1));
    }
    return ERR_OK;
}

enum err source_list(const char *const *operands, size_t count, struct arena *a, char ***paths,
                     bool **listed, size_t *path_count)
{
    struct listing l = {.a = a};
    char *path;
    for (size_t i = 0; i < count; i++) {
        TRY_ALLOC(path = arena_string(a, operands[i], strlen(operands[i])));
        size_t before = l.count;
        TRY(listing_walk(&l, path, false, 0));
        if (l.count == before)
            return err_set(ERR_INPUT, "%s: no file in the directory", path);
    }
    *paths = l.paths;
    *listed = l.listed;
    *path_count = l.count;
    return ERR_OK;
}
