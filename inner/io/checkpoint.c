/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/io/checkpoint.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "inner/config/config.h"
#include "kernels/base/log.h"
#include "kernels/base/record.h"

enum { PATH_BYTES = 4096, STEP_DIGITS = 8 };

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

/* ---- directory ---- */

static void current_fields(struct record_cursor *c, void *self)
{
    record_u64(c, self);
}

static enum err current_write(const char *dir, uint64_t step, struct arena *a)
{
    char path[PATH_BYTES];
    struct record_form form = {"inner", current_fields, &step};
    struct file_part *parts;
    size_t count;
    TRY(current_path(path, dir));
    TRY(record_make(&form, NULL, 0, &parts, &count, a));
    return file_write(path, parts, count, 0644);
}

/* *step: what CURRENT names, or UINT64_MAX when there is none or it is damaged: then every
 * checkpoint is a candidate. */
static enum err current_read(const char *dir, struct arena *a, uint64_t *step)
{
    char path[PATH_BYTES];
    uint8_t *data;
    size_t size;
    uint64_t named = 0;
    struct record_form form = {"inner", current_fields, &named};
    struct record r;
    *step = UINT64_MAX;
    TRY(current_path(path, dir));
    if (!file_exists(path))
        return ERR_OK;
    if (file_read(path, RECORD_HEAD_MAX, a, &data, &size) == ERR_OK &&
        record_open(&r, &form, path, data, size, a) == ERR_OK) {
        *step = named;
        return ERR_OK;
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

/* ---- save ---- */

/* A state file that is written or read. Its sections are the parts. Read: names and settings lie in
 * the arena, the parts' data in the mapping. */
struct state {
    struct file_map map;
    struct checkpoint_meta meta;
    struct checkpoint_part *parts;
    size_t part_count;
    struct record record;
};

static void state_fields(struct record_cursor *c, void *self)
{
    struct state *s = self;
    struct checkpoint_meta *m = &s->meta;
    const char *device = m->device;
    uint32_t count = (uint32_t)s->part_count;
    record_u64(c, &m->step);
    record_u64(c, &m->seed);
    record_digest(c, &m->model);
    record_u32(c, &m->threads);
    record_u32(c, &m->ranks);
    record_text(c, &device, sizeof m->device - 1);
    record_text(c, &m->settings, CHECKPOINT_SETTINGS_MAX);
    record_u32(c, &count);
    if (record_reading(c)) {
        strcpy(m->device, device);
        count = count <= CHECKPOINT_PARTS_MAX ? count : 0;
        s->parts = record_alloc(c, (size_t)count + 1, sizeof *s->parts);
        s->part_count = s->parts ? count : 0;
    }
    for (size_t i = 0; i < s->part_count; i++)
        record_text(c, &s->parts[i].name, CHECKPOINT_NAME_MAX);
}

static enum err state_write(const char *path, const struct checkpoint_meta *m,
                            const struct checkpoint_part *parts, size_t count, struct arena *a)
{
    struct state s = {.meta = *m, .parts = (struct checkpoint_part *)(uintptr_t)parts};
    struct record_form form = {"training", state_fields, &s};
    struct record_section *sections;
    struct file_part *values, *pieces;
    size_t n;
    s.part_count = count;
    TRY_ALLOC(sections = arena_array(a, count + 1, sizeof *sections));
    TRY_ALLOC(values = arena_array(a, count + 1, sizeof *values));
    for (size_t i = 0; i < count; i++) {
        values[i] = (struct file_part){parts[i].data, parts[i].size_bytes};
        sections[i] = (struct record_section){.parts = &values[i], .part_count = 1};
    }
    TRY(record_make(&form, sections, count, &pieces, &n, a));
    return file_write(path, pieces, n, 0644);
}

static enum err state_open(struct state *s, const char *path, struct arena *a)
{
    struct record_form form = {"training", state_fields, s};
    *s = (struct state){0};
    TRY(file_map_checked(&s->map, path));
    TRY(record_open(&s->record, &form, path, s->map.data, s->map.size_bytes, a));
    if (s->record.section_count != s->part_count)
        return err_set(ERR_CORRUPT, "%s: damaged", path);
    for (size_t i = 0; i < s->part_count; i++) {
        const struct record_view *v = &s->record.sections[i];
        if (!record_intact(&s->record, i))
            return err_set(ERR_CORRUPT, "%s: damaged: \"%s\" has not the SHA-256 stored for it",
                           path, s->parts[i].name);
        s->parts[i].data = (void *)(uintptr_t)v->data;
        s->parts[i].size_bytes = v->size_bytes;
    }
    return ERR_OK;
}

/* Which file was found whole by this process: each one is read through once, not at every save. */
struct verified {
    dev_t device;
    ino_t inode;
    struct timespec changed;
};
enum { VERIFIED_MAX = 16 };
static struct verified verified[VERIFIED_MAX];
static unsigned verified_next;

static bool verified_of(const char *path, struct verified *out)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return false;
    *out = (struct verified){st.st_dev, st.st_ino, st.st_ctim};
    return true;
}

static void verified_note(const char *path)
{
    if (verified_of(path, &verified[verified_next]))
        verified_next = (verified_next + 1) % VERIFIED_MAX;
}

static bool verified_known(const char *path)
{
    struct verified v;
    if (!verified_of(path, &v))
        return false;
    for (unsigned i = 0; i < VERIFIED_MAX; i++)
        if (verified[i].inode == v.inode && verified[i].device == v.device &&
            verified[i].changed.tv_sec == v.changed.tv_sec &&
            verified[i].changed.tv_nsec == v.changed.tv_nsec)
            return true;
    return false;
}

/* Could a restart go on from this one? ERR_CORRUPT: no, a folder without a whole state is none; any
 * other error: nobody knows. */
static enum err verify(const char *path)
{
    struct arena a = arena_make(0);
    struct state s = {0};
    if (verified_known(path))
        return ERR_OK;
    if (!file_exists(path))
        return err_set(ERR_CORRUPT, "%s: missing", path);
    enum err e = state_open(&s, path, &a);
    if (e == ERR_OK)
        verified_note(path);
    file_unmap(&s.map);
    arena_free(&a);
    return e;
}

enum { HELD_MAX = 2 };
static struct {
    pthread_mutex_t mutex;
    uint64_t steps[HELD_MAX];
    size_t count;
} held = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void checkpoint_hold(const uint64_t *steps, size_t count)
{
    ASSERT(count <= HELD_MAX);
    pthread_mutex_lock(&held.mutex);
    for (size_t i = 0; i < count; i++)
        held.steps[i] = steps[i];
    held.count = count;
    pthread_mutex_unlock(&held.mutex);
}

static bool is_held(uint64_t step)
{
    bool any = false;
    pthread_mutex_lock(&held.mutex);
    for (size_t i = 0; i < held.count; i++)
        any |= held.steps[i] == step;
    pthread_mutex_unlock(&held.mutex);
    return any;
}

/* What does not verify goes, and takes the place of none that does. */
static enum err prune_one(const char *dir, uint64_t step, bool wanted, unsigned *kept)
{
    char path[PATH_BYTES];
    TRY(path_of(path, dir, step, "state"));
    enum err e = wanted ? verify(path) : ERR_CORRUPT;
    *kept += e == ERR_OK;
    if (e != ERR_CORRUPT)
        return ERR_OK;
    TRY(path_of(path, dir, step, ""));
    return file_remove_tree(path);
}

/* After the commit: failing to remove an old one costs room, not correctness. */
static void prune(const char *dir, uint64_t step, unsigned keep, struct arena *a)
{
    uint64_t *steps;
    size_t count;
    unsigned kept = 0;
    enum err e = steps_list(dir, a, &steps, &count);
    for (size_t i = 0; !e && i < count; i++)
        if ((steps[i] <= step && kept < keep) || !is_held(steps[i]))
            e = prune_one(dir, steps[i], steps[i] <= step && kept < keep, &kept);
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
        verified_note(state);
    if (!e)
        return current_write(dir, meta->step, a);
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

/* ---- read ---- */

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
        if (*found)
            verified_note(path);
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
        if (parts[i].optional)
            continue;
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
    char *difference, *ours, *theirs;
    if (s->meta.seed != want->seed)
        return err_set(ERR_MISMATCH, "run.seed: %llu here, %llu there",
                       (unsigned long long)want->seed, (unsigned long long)s->meta.seed);
    TRY(config_without(want->settings, "train.steps", a, &ours));
    TRY(config_without(s->meta.settings, "train.steps", a, &theirs));
    TRY(config_difference(ours, theirs, a, &difference));
    if (*difference)
        return err_set(ERR_MISMATCH, "%s", difference);
    if (!digest_equal(&s->meta.model, &want->model))
        return err_set(
            ERR_MISMATCH,
            "same settings, but another table of tensors (another version of the program?)");
    return check_parts(s, parts, count);
}

static enum err load_parts(const struct state *s, const struct checkpoint_meta *want,
                           const struct checkpoint_part *parts, size_t count, struct arena *a)
{
    TRY(check_same(s, want, parts, count, a));
    for (size_t i = 0; i < count; i++) {
        const struct checkpoint_part *stored = part_find(s->parts, s->part_count, parts[i].name);
        if (parts[i].size_bytes && stored && stored->size_bytes == parts[i].size_bytes)
            memcpy(parts[i].data, stored->data, parts[i].size_bytes);
    }
    return ERR_OK;
}

enum err checkpoint_load(const char *dir, const struct checkpoint_meta *want,
                         const struct checkpoint_part *parts, size_t part_count,
                         struct checkpoint_meta *got, bool *found)
{
    struct arena a = arena_make(0);
    struct state s = {0};
    enum err e = newest_open(dir, &a, &s, found);
    if (!e && *found && (e = load_parts(&s, want, parts, part_count, &a)))
        e = err_add(e, "%s, step %llu: the checkpoint is of another run: ", dir,
                    (unsigned long long)s.meta.step);
    *got = s.meta;
    got->steps = got->settings ? config_integer(got->settings, "train.steps") : 0;
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

enum err checkpoint_part_read(const char *dir, const char *name, void *data, size_t size_bytes,
                              bool *found)
{
    struct arena a = arena_make(0);
    struct state s = {0};
    enum err e = file_exists(dir) ? newest_open(dir, &a, &s, found) : ERR_OK;
    const struct checkpoint_part *part =
        e == ERR_OK ? part_find(s.parts, s.part_count, name) : NULL;
    *found = part && part->size_bytes == size_bytes;
    if (*found)
        memcpy(data, part->data, size_bytes);
    file_unmap(&s.map);
    arena_free(&a);
    return e;
}
