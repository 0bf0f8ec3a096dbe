/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/io/checkpoint.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "inner/config/keys.h"
#include "inner/io/checkpoint_state.h"
#include "kernels/base/log.h"

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

/* Could a restart continue from this one? ERR_CORRUPT: no, a folder without a whole state is none;
 * any other error: it is not known. */
static enum err verify(const char *path)
{
    struct arena a = arena_make(0);
    struct state s = {.fd = -1};
    if (verified_known(path))
        return ERR_OK;
    if (!file_exists(path))
        return err_set(ERR_CORRUPT, "%s: missing", path);
    enum err e = state_open(&s, path, &a);
    if (e == ERR_OK)
        verified_note(path);
    state_close(&s);
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
        log_event(LOG_WARN, "checkpoint_prune", "why=%s",
                  log_quote(quoted, sizeof quoted, err_message()));
}

/* All in its own arena. */
struct checkpoint_writer {
    struct arena arena;
    struct state_writer state;
    char dir[PATH_BYTES], folder[PATH_BYTES], path[PATH_BYTES];
    uint64_t step;
    enum err error; /* the first, with what it said */
    char sentence[1024];
};

static enum err writer_open(struct checkpoint_writer *w, const struct checkpoint_meta *meta,
                            const struct checkpoint_part *parts, size_t part_count)
{
    TRY(path_of(w->folder, w->dir, meta->step, ""));
    TRY(path_of(w->path, w->dir, meta->step, "state"));
    TRY(file_mkdirs(w->folder));
    return state_create(&w->state, w->path, meta, parts, part_count, &w->arena);
}

static void writer_failed(struct checkpoint_writer *w, enum err e)
{
    if (!e || w->error)
        return;
    w->error = e;
    snprintf(w->sentence, sizeof w->sentence, "%s", err_message());
}

enum err checkpoint_begin(struct checkpoint_writer **out, const char *dir,
                          const struct checkpoint_meta *meta, const struct checkpoint_part *parts,
                          size_t part_count)
{
    struct arena a = arena_make(0);
    struct checkpoint_writer *w = *out = arena_alloc(&a, sizeof *w);
    if (!w || strlen(dir) >= sizeof w->dir) {
        arena_free(&a);
        *out = NULL;
        return w ? err_set(ERR_IO, "%s: path too long", dir) : ERR_MEMORY;
    }
    *w = (struct checkpoint_writer){.arena = a, .step = meta->step};
    strcpy(w->dir, dir);
    writer_failed(w, writer_open(w, meta, parts, part_count));
    return ERR_OK;
}

void checkpoint_put(struct checkpoint_writer *w, const void *data, size_t bytes)
{
    if (bytes && !w->error)
        writer_failed(w, state_put(&w->state, data, bytes));
}

/* Closes the file; a folder without one is no checkpoint. */
static void writer_drop(struct checkpoint_writer *w)
{
    state_abandon(&w->state);
    if (!*w->folder || file_exists(w->path))
        return;
    enum err e = file_remove_tree(w->folder);
    (void)e; /* the next save removes it */
}

static enum err writer_commit(struct checkpoint_writer *w)
{
    if (!w->error)
        writer_failed(w, state_commit(&w->state, &w->arena));
    if (!w->error) {
        verified_note(w->path);
        return current_write(w->dir, w->step, &w->arena);
    }
    writer_drop(w);
    return err_set(w->error, "%s", w->sentence);
}

static void writer_free(struct checkpoint_writer *w)
{
    struct arena a = w->arena; /* in which w lies */
    arena_free(&a);
}

enum err checkpoint_commit(struct checkpoint_writer *w, unsigned keep)
{
    uint64_t step = w->step;
    ASSERT(keep >= 1);
    enum err e = writer_commit(w);
    if (!e)
        prune(w->dir, step, keep, &w->arena);
    writer_free(w);
    return e ? err_add(e, "checkpoint of step %llu: ", (unsigned long long)step) : ERR_OK;
}

void checkpoint_abandon(struct checkpoint_writer *w)
{
    if (!w)
        return;
    writer_drop(w);
    writer_free(w);
}

enum err checkpoint_save(const char *dir, const struct checkpoint_meta *meta,
                         const struct checkpoint_part *parts, size_t part_count, unsigned keep)
{
    struct checkpoint_writer *w;
    TRY(checkpoint_begin(&w, dir, meta, parts, part_count));
    return checkpoint_commit(w, keep);
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
        if (e != ERR_CORRUPT && e != ERR_INPUT)
            return e;
        char quoted[1024];
        log_event(LOG_WARN, "checkpoint_damaged", "why=%s action=\"trying the one before\"",
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

/* Opens the newest of a step below `before`; where it is damaged, none in its place. */
static enum err older_open(const char *dir, uint64_t before, struct arena *a, struct state *s,
                           bool *found)
{
    uint64_t *steps;
    size_t count;
    char path[PATH_BYTES];
    *found = false;
    TRY(steps_list(dir, a, &steps, &count));
    for (size_t i = 0; i < count && !*found; i++) {
        TRY(path_of(path, dir, steps[i], "state"));
        *found = steps[i] < before && file_exists(path); /* a save may not have come that far */
    }
    return *found ? state_open(s, path, a) : ERR_OK;
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
            return err_set(ERR_MISMATCH, "\"%s\" is missing", parts[i].name);
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
    const struct config_table keys = keys_inner(NULL);
    char *difference, *ours, *theirs;
    if (s->meta.seed != want->seed)
        return err_set(ERR_MISMATCH, "run.seed: %llu here, %llu there",
                       (unsigned long long)want->seed, (unsigned long long)s->meta.seed);
    TRY(config_without(want->settings, "train.steps", a, &ours));
    TRY(config_without(s->meta.settings, "train.steps", a, &theirs));
    TRY(config_difference(&keys, 1, ours, theirs, a, &difference));
    if (*difference)
        return err_set(ERR_MISMATCH, "%s", difference);
    if (!digest_equal(&s->meta.model, &want->model))
        return err_set(
            ERR_MISMATCH,
            "same settings, but another table of tensors (another version of the program?)");
    return check_parts(s, parts, count);
}

/* What lies in memory; the rest is read by checkpoint_get. */
static enum err load_parts(const struct state *s, const struct checkpoint_part *parts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t at = state_find(s, parts[i].name);
        if (parts[i].data && at < s->part_count && s->parts[at].size_bytes == parts[i].size_bytes)
            TRY(state_read(s, at, 0, parts[i].data, parts[i].size_bytes));
    }
    return ERR_OK;
}

struct checkpoint_reader {
    struct arena arena; /* in which it lies */
    struct state state;
};

static enum err reader_open(struct checkpoint_reader **r, const char *dir, uint64_t before,
                            bool *found)
{
    struct arena a = arena_make(0);
    struct checkpoint_reader *x = *r = arena_alloc(&a, sizeof *x);
    TRY_ALLOC(x);
    *x = (struct checkpoint_reader){.arena = a, .state.fd = -1};
    enum err e = before == UINT64_MAX ? newest_open(dir, &x->arena, &x->state, found)
                                      : older_open(dir, before, &x->arena, &x->state, found);
    if (e || !*found) {
        checkpoint_close(x);
        *r = NULL;
    }
    return e;
}

void checkpoint_close(struct checkpoint_reader *r)
{
    if (!r)
        return;
    struct arena a = r->arena;
    state_close(&r->state);
    arena_free(&a);
}

static enum err find_parts(const struct state *s, const struct checkpoint_meta *want,
                           const struct checkpoint_part *parts, size_t count, struct arena *a)
{
    TRY(check_same(s, want, parts, count, a));
    return load_parts(s, parts, count);
}

enum err checkpoint_find(struct checkpoint_reader **r, const char *dir,
                         const struct checkpoint_meta *want, const struct checkpoint_part *parts,
                         size_t part_count, struct checkpoint_meta *got)
{
    bool found;
    *got = (struct checkpoint_meta){0};
    TRY(reader_open(r, dir, UINT64_MAX, &found));
    if (!found)
        return ERR_OK;
    struct state *s = &(*r)->state;
    enum err e = find_parts(s, want, parts, part_count, &(*r)->arena);
    *got = s->meta;
    got->steps = got->settings ? config_integer(got->settings, "train.steps") : 0;
    got->settings = NULL;
    if (!e)
        return ERR_OK;
    e = err_add(e, "%s, step %llu: the checkpoint is of another run: ", dir,
                (unsigned long long)got->step);
    checkpoint_close(*r);
    *r = NULL;
    return e;
}

enum err checkpoint_load(const char *dir, const struct checkpoint_meta *want,
                         const struct checkpoint_part *parts, size_t part_count,
                         struct checkpoint_meta *got, bool *found)
{
    struct checkpoint_reader *r = NULL;
    enum err e = checkpoint_find(&r, dir, want, parts, part_count, got);
    *found = r != NULL;
    checkpoint_close(r);
    return e;
}

enum err checkpoint_look(struct checkpoint_reader **r, const char *dir, uint64_t before,
                         struct checkpoint_meta *got)
{
    bool found;
    TRY(reader_open(r, dir, before, &found));
    if (!found && before != UINT64_MAX)
        return err_set(ERR_INPUT, "%s: holds no checkpoint before step %llu", dir,
                       (unsigned long long)before);
    if (!found)
        return err_set(ERR_INPUT, "%s: holds no checkpoint", dir);
    *got = (*r)->state.meta;
    return ERR_OK;
}

size_t checkpoint_part_bytes(const struct checkpoint_reader *r, const char *name)
{
    size_t part = state_find(&r->state, name);
    return part < r->state.part_count ? r->state.parts[part].size_bytes : 0;
}

enum err checkpoint_get(const struct checkpoint_reader *r, const char *name, size_t at, void *data,
                        size_t bytes)
{
    size_t part = state_find(&r->state, name);
    ASSERT(part < r->state.part_count);
    return state_read(&r->state, part, at, data, bytes);
}

static enum err read_parts(const struct state *s, struct arena *a)
{
    for (size_t i = 0; i < s->part_count; i++) {
        TRY_ALLOC(s->parts[i].data = arena_alloc(a, s->parts[i].size_bytes + 1));
        TRY(state_read(s, i, 0, s->parts[i].data, s->parts[i].size_bytes));
    }
    return ERR_OK;
}

enum err checkpoint_open(const char *dir, struct arena *a, struct checkpoint_meta *got,
                         struct checkpoint_part **parts, size_t *part_count)
{
    struct state s = {.fd = -1};
    bool found;
    TRY(newest_open(dir, a, &s, &found));
    if (!found)
        return err_set(ERR_INPUT, "%s: holds no checkpoint", dir);
    enum err e = read_parts(&s, a);
    state_close(&s);
    *got = s.meta;
    *parts = s.parts;
    *part_count = s.part_count;
    return e;
}

enum err checkpoint_part_read(const char *dir, const char *name, void *data, size_t size_bytes,
                              bool *found)
{
    struct arena a = arena_make(0);
    struct state s = {.fd = -1};
    enum err e = file_exists(dir) ? newest_open(dir, &a, &s, found) : ERR_OK;
    size_t part = e == ERR_OK ? state_find(&s, name) : 0;
    *found = part < s.part_count && s.parts[part].size_bytes == size_bytes;
    if (*found)
        e = state_read(&s, part, 0, data, size_bytes);
    state_close(&s);
    arena_free(&a);
    return e;
}
