/* State file, little-endian:
 *     8   "ATOLLCKP"          u32 version            u32 parts
 *     u64 step                u64 seed               32 model digest       u32 threads      u32
 * ranks u32 n, n bytes: device  u32 n, n bytes: settings per part: u32 n, n bytes: name, u64 size
 * in bytes the parts, back to back                        32 SHA-256 of everything before
 */
#include "inner/io/checkpoint.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "inner/config/config.h"
#include "kernels/base/bytes.h"
#include "kernels/base/log.h"

enum {
    PATH_BYTES = 4096,
    HEADER_FIXED_BYTES = 8 + 4 + 4 + 8 + 8 + 32 + 4 + 4 + 4 + 4,
    STEP_DIGITS = 8
};
static const char MAGIC[8] = {'A', 'T', 'O', 'L', 'L', 'C', 'K', 'P'};

static enum err path_of(char path[PATH_BYTES], const char *dir, uint64_t step, const char *file)
{
    int n = snprintf(path, PATH_BYTES, "%s/%0*llu%s%s", dir, STEP_DIGITS, (unsigned long long)step,
                     *file ? "/" : "", file);
    return n < PATH_BYTES ? ERR_OK : err_set(ERR_IO, "%s: path too long", dir);
}

static enum err current_path(char path[PATH_BYTES], const char *dir)
{
    int n = snprintf(path, PATH_BYTES, "%s/CURRENT", dir);
    return n < PATH_BYTES ? ERR_OK : err_set(ERR_IO, "%s: path too long", dir);
}

/* ---- directory
 * ---------------------------------------------------------------------------------------- */

static enum err current_write(const char *dir, uint64_t step)
{
    char path[PATH_BYTES], text[64];
    TRY(current_path(path, dir));
    int n = snprintf(text, sizeof text, "%0*llu", STEP_DIGITS, (unsigned long long)step);
    n += snprintf(text + n, sizeof text - (size_t)n, " %08x\n", digest_crc32c(0, text, (size_t)n));
    struct file_part part = {text, (size_t)n};
    return file_write(path, &part, 1, 0644);
}

/* *step: what CURRENT names, or UINT64_MAX when there is none or it is damaged: then every
 * checkpoint is a candidate. */
static enum err current_read(const char *dir, struct arena *a, uint64_t *step)
{
    char path[PATH_BYTES], expected[64];
    uint8_t *text;
    size_t size;
    *step = UINT64_MAX;
    TRY(current_path(path, dir));
    if (!file_exists(path))
        return ERR_OK;
    if (file_read(path, sizeof expected - 1, a, &text, &size) == ERR_OK) {
        size_t digits = strspn((char *)text, "0123456789"); /* file_read ends it with a zero */
        snprintf(expected, sizeof expected, "%.*s %08x\n", (int)digits, text,
                 digest_crc32c(0, text, digits));
        if (digits && digits < 20 && size == strlen(expected) && !memcmp(text, expected, size)) {
            *step = strtoull((char *)text, NULL, 10);
            return ERR_OK;
        }
    }
    log_event(LOG_WARN, "checkpoint_damaged", "file=%s action=\"taking the newest checkpoint\"",
              path);
    return ERR_OK;
}

static int newest_first(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The steps of all checkpoint directories, newest first; none when the directory does not exist. */
static enum err steps_list(const char *dir, struct arena *a, uint64_t **steps, size_t *count)
{
    char **names;
    size_t name_count = 0;
    *count = 0;
    *steps = NULL;
    if (!file_exists(dir))
        return ERR_OK;
    TRY(file_list(dir, a, &names, &name_count));
    TRY_ALLOC(*steps = arena_array(a, name_count + 1, sizeof **steps));
    for (size_t i = 0; i < name_count; i++) {
        size_t n = strlen(names[i]);
        if (n >= STEP_DIGITS && n < 20 && strspn(names[i], "0123456789") == n)
            (*steps)[(*count)++] = strtoull(names[i], NULL, 10);
    }
    qsort(*steps, *count, sizeof **steps, newest_first);
    return ERR_OK;
}

/* ---- save
 * --------------------------------------------------------------------------------------------- */

static void put_text(struct bytes_writer *w, const char *text)
{
    size_t n = strlen(text);
    bytes_put_u32(w, (uint32_t)n);
    bytes_put(w, text, n);
}

static enum err header_write(const struct checkpoint_meta *m, const struct checkpoint_part *parts,
                             size_t count, struct arena *a, struct file_part *header)
{
    size_t size = HEADER_FIXED_BYTES + strlen(m->device) + strlen(m->settings);
    ASSERT(count <= CHECKPOINT_PARTS_MAX && strlen(m->settings) <= CHECKPOINT_SETTINGS_MAX);
    for (size_t i = 0; i < count; i++) {
        ASSERT(strlen(parts[i].name) <= CHECKPOINT_NAME_MAX);
        size += 4 + strlen(parts[i].name) + 8;
    }
    void *data;
    TRY_ALLOC(data = arena_alloc(a, size));
    struct bytes_writer w = bytes_writer(data, size);
    bytes_put(&w, MAGIC, sizeof MAGIC);
    bytes_put_u32(&w, CHECKPOINT_VERSION);
    bytes_put_u32(&w, (uint32_t)count);
    bytes_put_u64(&w, m->step);
    bytes_put_u64(&w, m->seed);
    bytes_put(&w, m->model.bytes, sizeof m->model.bytes);
    bytes_put_u32(&w, m->threads);
    bytes_put_u32(&w, m->ranks);
    put_text(&w, m->device);
    put_text(&w, m->settings);
    for (size_t i = 0; i < count; i++) {
        put_text(&w, parts[i].name);
        bytes_put_u64(&w, parts[i].size_bytes);
    }
    ASSERT(!w.bad && bytes_size(&w) == size);
    *header = (struct file_part){data, size};
    return ERR_OK;
}

static enum err state_write(const char *path, const struct checkpoint_meta *m,
                            const struct checkpoint_part *parts, size_t count, struct arena *a)
{
    struct file_part *pieces;
    struct digest_stream stream;
    TRY_ALLOC(pieces = arena_array(a, count + 2, sizeof *pieces));
    TRY(header_write(m, parts, count, a, &pieces[0]));
    for (size_t i = 0; i < count; i++)
        pieces[i + 1] = (struct file_part){parts[i].data, parts[i].size_bytes};
    digest_open(&stream);
    for (size_t i = 0; i < count + 1; i++)
        digest_add(&stream, pieces[i].data, pieces[i].size_bytes);
    struct digest sum = digest_close(&stream);
    pieces[count + 1] = (struct file_part){sum.bytes, sizeof sum.bytes};
    return file_write(path, pieces, count + 2, 0644);
}

/* After the commit: failing to remove an old one costs room, not correctness. */
static void prune(const char *dir, uint64_t step, unsigned keep, struct arena *a)
{
    uint64_t *steps;
    size_t count;
    unsigned kept = 0;
    enum err e = steps_list(dir, a, &steps, &count);
    for (size_t i = 0; !e && i < count; i++) {
        char path[PATH_BYTES];
        if (steps[i] <= step && kept++ < keep)
            continue;
        e = path_of(path, dir, steps[i], "");
        e = e ? e : file_remove_tree(path);
    }
    char quoted[1024];
    if (e)
        log_event(LOG_WARN, "checkpoint_prune", "error=%s",
                  log_quote(quoted, sizeof quoted, err_message()));
}

static enum err save(const char *dir, const struct checkpoint_meta *meta,
                     const struct checkpoint_part *parts, size_t part_count, struct arena *a)
{
    char folder[PATH_BYTES], state[PATH_BYTES];
    TRY(path_of(folder, dir, meta->step, ""));
    TRY(path_of(state, dir, meta->step, "state"));
    TRY(file_mkdirs(folder));
    enum err e = state_write(state, meta, parts, part_count, a);
    if (!e)
        return current_write(dir, meta->step);
    if (!file_exists(state)) {
        char sentence[1024];
        snprintf(sentence, sizeof sentence, "%s", err_message());
        if (file_remove_tree(folder) == ERR_OK)
            err_set(e, "%s", sentence);
    }
    return e;
}

enum err checkpoint_save(const char *dir, const struct checkpoint_meta *meta,
                         const struct checkpoint_part *parts, size_t part_count, unsigned keep)
{
    struct arena a = arena_make(0);
    ASSERT(keep >= 1);
    enum err e = save(dir, meta, parts, part_count, &a);
    if (!e)
        prune(dir, meta->step, keep, &a);
    arena_free(&a);
    return e ? err_add(e, "checkpoint of step %llu: ", (unsigned long long)meta->step) : ERR_OK;
}

/* ---- read
 * --------------------------------------------------------------------------------------------- */

struct state { /* a parsed state file; names and settings in the arena, data in the mapping */
    struct file_map map;
    uint32_t version;
    struct checkpoint_meta meta;
    struct checkpoint_part *parts; /* data points into the mapping: read only */
    size_t part_count;
};

static enum err get_text(struct bytes_reader *r, size_t max, struct arena *a, char **text)
{
    uint32_t n = bytes_get_u32(r);
    const uint8_t *view = n <= max ? bytes_view(r, n) : NULL;
    r->bad |= !view && n;
    TRY_ALLOC(*text = arena_string(a, view ? (const char *)view : "", view ? n : 0));
    return ERR_OK;
}

static enum err parts_read(struct bytes_reader *r, struct arena *a, struct state *s)
{
    TRY_ALLOC(s->parts = arena_array(a, s->part_count + 1, sizeof *s->parts));
    for (size_t i = 0; i < s->part_count && !r->bad; i++) {
        char *name;
        TRY(get_text(r, CHECKPOINT_NAME_MAX, a, &name));
        s->parts[i] = (struct checkpoint_part){.name = name, .size_bytes = bytes_get_u64(r)};
    }
    for (size_t i = 0; i < s->part_count && !r->bad; i++)
        s->parts[i].data = (void *)(uintptr_t)bytes_view(r, s->parts[i].size_bytes);
    r->bad |= !bytes_done(r);
    return ERR_OK;
}

/* Called on bytes whose digest is right, so a misfit here is another program's file, not damage. */
static enum err state_parse(struct state *s, const char *path, struct arena *a)
{
    struct bytes_reader r = bytes_reader(s->map.data, s->map.size_bytes - sizeof(struct digest));
    char magic[8], *device, *settings;
    bytes_get(&r, magic, sizeof magic);
    s->version = bytes_get_u32(&r);
    if (memcmp(magic, MAGIC, sizeof magic))
        return err_set(ERR_MISMATCH, "%s: not a checkpoint of this program", path);
    if (s->version != CHECKPOINT_VERSION)
        return err_set(ERR_MISMATCH, "%s: checkpoint format %u; this program reads %u", path,
                       s->version, CHECKPOINT_VERSION);
    s->part_count = bytes_get_u32(&r);
    s->meta.step = bytes_get_u64(&r);
    s->meta.seed = bytes_get_u64(&r);
    bytes_get(&r, s->meta.model.bytes, sizeof s->meta.model.bytes);
    s->meta.threads = bytes_get_u32(&r);
    s->meta.ranks = bytes_get_u32(&r);
    TRY(get_text(&r, sizeof s->meta.device - 1, a, &device));
    TRY(get_text(&r, CHECKPOINT_SETTINGS_MAX, a, &settings));
    strcpy(s->meta.device, device);
    s->meta.settings = settings;
    r.bad |= s->part_count > CHECKPOINT_PARTS_MAX;
    if (!r.bad)
        TRY(parts_read(&r, a, s));
    return r.bad ? err_set(ERR_MISMATCH, "%s: not a checkpoint of this program", path) : ERR_OK;
}

static enum err state_open(struct state *s, const char *path, struct arena *a)
{
    struct digest stored, sum;
    *s = (struct state){0};
    TRY(file_map(&s->map, path));
    if (s->map.size_bytes < HEADER_FIXED_BYTES + sizeof stored)
        return err_set(ERR_CORRUPT, "%s: cut short to %zu bytes", path, s->map.size_bytes);
    size_t covered = s->map.size_bytes - sizeof stored;
    memcpy(stored.bytes, s->map.data + covered, sizeof stored.bytes);
    sum = digest_of(s->map.data, covered);
    if (!digest_equal(&sum, &stored))
        return err_set(ERR_CORRUPT, "%s: damaged: its SHA-256 is not the one stored at its end",
                       path);
    return state_parse(s, path, a);
}

/* Opens the newest intact one that CURRENT does not exclude (a newer one was never committed). */
static enum err newest_open(const char *dir, struct arena *a, struct state *s, bool *found)
{
    uint64_t *steps, current;
    size_t count;
    char path[PATH_BYTES], first[1024] = "";
    *found = false;
    TRY(current_read(dir, a, &current));
    TRY(steps_list(dir, a, &steps, &count));
    for (size_t i = 0; i < count; i++) {
        if (steps[i] > current)
            continue;
        TRY(path_of(path, dir, steps[i], "state"));
        if (steps[i] != current && !file_exists(path)) /* a save that never came that far */
            continue;
        enum err e = state_open(s, path, a);
        *found = e == ERR_OK;
        if (*found && current != UINT64_MAX && steps[i] != current)
            log_event(LOG_WARN, "checkpoint_older", "step=%llu lost=%llu dir=%s",
                      (unsigned long long)steps[i], (unsigned long long)current, dir);
        if (*found)
            return ERR_OK;
        file_unmap(&s->map);
        if (e != ERR_CORRUPT && e != ERR_INPUT)
            return e;
        char quoted[1024];
        log_event(LOG_WARN, "checkpoint_damaged", "error=%s action=\"trying the one before\"",
                  log_quote(quoted, sizeof quoted, err_message()));
        if (!*first)
            snprintf(first, sizeof first, "%s", err_message());
    }
    if (*first)
        return err_set(ERR_CORRUPT, "%s; no intact checkpoint is left in %s", first, dir);
    if (current != UINT64_MAX)
        return err_set(ERR_CORRUPT, "%s: CURRENT names step %llu, which is not there", dir,
                       (unsigned long long)current);
    return ERR_OK;
}

static const struct checkpoint_part *part_find(const struct checkpoint_part *parts, size_t count,
                                               const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(parts[i].name, name))
            return &parts[i];
    return NULL;
}

static enum err check_parts(const struct state *s, const struct checkpoint_part *parts,
                            size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct checkpoint_part *stored = part_find(s->parts, s->part_count, parts[i].name);
        if (!stored)
            return err_set(ERR_MISMATCH, "it lacks \"%s\"", parts[i].name);
        if (stored->size_bytes != parts[i].size_bytes)
            return err_set(ERR_MISMATCH, "\"%s\": %zu bytes here, %zu there", parts[i].name,
                           parts[i].size_bytes, stored->size_bytes);
    }
    for (size_t i = 0; i < s->part_count; i++)
        if (!part_find(parts, count, s->parts[i].name))
            return err_set(ERR_MISMATCH, "it also holds \"%s\"", s->parts[i].name);
    return ERR_OK;
}

static enum err check_same(const struct state *s, const struct checkpoint_meta *want,
                           const struct checkpoint_part *parts, size_t count, struct arena *a)
{
    char *difference;
    if (s->meta.seed != want->seed)
        return err_set(ERR_MISMATCH, "run.seed: %llu here, %llu there",
                       (unsigned long long)want->seed, (unsigned long long)s->meta.seed);
    TRY(config_difference(want->settings, s->meta.settings, a, &difference));
    if (*difference)
        return err_set(ERR_MISMATCH, "%s", difference);
    if (!digest_equal(&s->meta.model, &want->model))
        return err_set(
            ERR_MISMATCH,
            "same settings, but another table of tensors (another version of the program?)");
    return check_parts(s, parts, count);
}

static enum err load(const char *dir, const struct checkpoint_meta *want,
                     const struct checkpoint_part *parts, size_t count, struct arena *a,
                     struct state *s, bool *found)
{
    TRY(newest_open(dir, a, s, found));
    if (!*found)
        return ERR_OK;
    enum err e = check_same(s, want, parts, count, a);
    if (e)
        return err_add(e, "%s, step %llu: the checkpoint is of another run: ", dir,
                       (unsigned long long)s->meta.step);
    for (size_t i = 0; i < count; i++)
        if (parts[i].size_bytes)
            memcpy(parts[i].data, part_find(s->parts, s->part_count, parts[i].name)->data,
                   parts[i].size_bytes);
    return ERR_OK;
}

enum err checkpoint_load(const char *dir, const struct checkpoint_meta *want,
                         const struct checkpoint_part *parts, size_t part_count,
                         struct checkpoint_meta *got, bool *found)
{
    struct arena a = arena_make(0);
    struct state s = {0};
    enum err e = load(dir, want, parts, part_count, &a, &s, found);
    *got = s.meta;
    got->settings = NULL;
    file_unmap(&s.map);
    arena_free(&a);
    return e;
}

static enum err copy_parts(const struct state *s, struct arena *a)
{
    for (size_t i = 0; i < s->part_count; i++) {
        void *copy;
        TRY_ALLOC(copy = arena_alloc(a, s->parts[i].size_bytes + 1));
        memcpy(copy, s->parts[i].data, s->parts[i].size_bytes);
        s->parts[i].data = copy;
    }
    return ERR_OK;
}

enum err checkpoint_open(const char *dir, struct arena *a, struct checkpoint_meta *got,
                         struct checkpoint_part **parts, size_t *part_count)
{
    struct state s = {0};
    bool found;
    TRY(newest_open(dir, a, &s, &found));
    if (!found)
        return err_set(ERR_INPUT, "%s: holds no checkpoint", dir);
    enum err e = copy_parts(&s, a);
    file_unmap(&s.map);
    *got = s.meta;
    *parts = s.parts;
    *part_count = s.part_count;
    return e;
}
