#include "outer/sim/env_sim.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/rng.h"

enum { SECTOR_BYTES = 512 };

struct env_sim_file {
    struct env_sim_file *next;
    char *path;
    size_t length; /* of path */
    uint8_t *data;
    size_t size_bytes, room;
    bool synced;
    int handle; /* of an open part; 0: none */
};

static struct env_sim *sim(struct env *w)
{
    return (struct env_sim *)w;
}

static struct env_sim_file *find(const struct env_sim *s, const char *path)
{
    size_t n = strlen(path);
    for (struct env_sim_file *f = s->files; f; f = f->next)
        if (f->length == n && !memcmp(f->path, path, n))
            return f;
    return NULL;
}

static struct env_sim_file *find_handle(const struct env_sim *s, int handle)
{
    for (struct env_sim_file *f = s->files; f; f = f->next)
        if (f->handle == handle)
            return f;
    return NULL;
}

static void name(struct env_sim_file *f, const char *path)
{
    f->length = strlen(path);
    f->path = realloc(f->path, f->length + 1);
    ASSERT(f->path);
    memcpy(f->path, path, f->length + 1);
}

static struct env_sim_file *make(struct env_sim *s, const char *path)
{
    struct env_sim_file *f = find(s, path);
    if (f)
        return f;
    f = calloc(1, sizeof *f);
    ASSERT(f);
    name(f, path);
    f->next = s->files;
    f->synced = true;
    s->files = f;
    return f;
}

static void drop(struct env_sim *s, struct env_sim_file *f)
{
    struct env_sim_file **at = &s->files;
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    free(f->path);
    free(f->data);
    free(f);
}

/* Room doubles where a file grows: a journal is appended to in every round of a long run. */
static void resize(struct env_sim_file *f, size_t size)
{
    if (!f->data || size > f->room) {
        f->room = size < 2 * f->size_bytes ? 2 * f->size_bytes : size + !size;
        f->data = realloc(f->data, f->room);
        ASSERT(f->data);
    }
    if (size > f->size_bytes)
        memset(f->data + f->size_bytes, 0, size - f->size_bytes);
    f->size_bytes = size;
}

/* Are the first n bytes of path that file, or a directory above it? */
static bool under(const struct env_sim_file *f, const char *path, size_t n)
{
    return f->length >= n && (f->path[n] == 0 || f->path[n] == '/') && !memcmp(f->path, path, n);
}

void env_sim_crash(struct env_sim *s)
{
    s->dead = true;
    s->stop = 1;
}

/* What a changing operation meets. do_it: whether its effect takes place; the result is what the
 * caller hears. */
struct fate {
    enum err e;
    bool do_it;
};

static struct fate meet(struct env_sim *s, bool takes_space)
{
    const struct env_sim_faults *f = s->faults;
    struct fate fate = {ERR_OK, true};
    if (!s->dead && f && s->gives_way && sim_chance(s->clock, f->slow))
        sim_sleep(s->clock, s->clock->now_ms + sim_below(s->clock, 500), NULL);
    if (s->dead)
        return (struct fate){err_set(ERR_IO, "%s: dead", s->name), false};
    if (!f)
        return fate;
    if (sim_chance(s->clock, f->crash)) {
        env_sim_crash(s);
        return (struct fate){err_set(ERR_IO, "%s: crash", s->name), sim_chance(s->clock, 0.5)};
    }
    if (sim_chance(s->clock, f->eio))
        return (struct fate){err_set(ERR_IO, "%s: EIO", s->name), sim_chance(s->clock, 0.5)};
    uint64_t now = s->clock->now_ms;
    if (takes_space && now >= f->full_from_ms && now < f->full_until_ms)
        return (struct fate){err_set(ERR_FULL, "%s: ENOSPC", s->name), false};
    return fate;
}

static uint64_t sim_now_ms(struct env *w)
{
    return sim(w)->clock->now_ms;
}

static uint64_t sim_unix_ms(struct env *w)
{
    return 1700000000000 + sim(w)->clock->now_ms;
}

static void sim_sleep_ms(struct env *w, uint64_t ms)
{
    if (!sim(w)->dead)
        sim_sleep(sim(w)->clock, sim(w)->clock->now_ms + ms, w);
}

static void sim_random(struct env *w, void *out, size_t n)
{
    uint8_t *to = out;
    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)rng_u32(sim(w)->random_seed, RNG_SIM, sim(w)->random_drawn++);
}

static enum err sim_write(struct env *w, const char *path, const struct file_part *parts, size_t n)
{
    struct env_sim *s = sim(w);
    struct fate fate = meet(s, true);
    if (!fate.do_it)
        return fate.e;
    struct env_sim_file *f = make(s, path);
    size_t size = 0, at = 0;
    for (size_t i = 0; i < n; i++)
        size += parts[i].size_bytes;
    resize(f, size);
    for (size_t i = 0; i < n; at += parts[i++].size_bytes)
        if (parts[i].size_bytes)
            memcpy(f->data + at, parts[i].data, parts[i].size_bytes);
    f->synced = true;
    if (s->wrote)
        s->wrote(s->watch_self, s, path, f->data, f->size_bytes);
    return fate.e;
}

static enum err readable(const struct env_sim *s, const char *path, const struct env_sim_file **f)
{
    *f = find(s, path);
    if (s->dead)
        return err_set(ERR_IO, "%s: dead", s->name);
    return *f ? ERR_OK : err_set(ERR_INPUT, "%s: no such file", path);
}

static enum err sim_read(struct env *w, const char *path, size_t max_bytes, struct arena *a,
                         uint8_t **data, size_t *size)
{
    const struct env_sim_file *f;
    TRY(readable(sim(w), path, &f));
    if (f->size_bytes > max_bytes)
        return err_set(ERR_INPUT, "%s: %zu bytes, at most %zu expected", path, f->size_bytes,
                       max_bytes);
    TRY_ALLOC(*data = arena_alloc(a, f->size_bytes + 1));
    memcpy(*data, f->data, f->size_bytes);
    *size = f->size_bytes;
    return ERR_OK;
}

/* A copy, so that reading past the end or after unmap shows under a sanitizer. */
static enum err sim_map(struct env *w, const char *path, struct file_map *m)
{
    struct env_sim *s = sim(w);
    const struct env_sim_file *f;
    if (s->mapping)
        s->mapping(s->watch_self, path);
    TRY(readable(s, path, &f));
    uint8_t *copy = malloc(f->size_bytes ? f->size_bytes : 1);
    TRY_ALLOC(copy);
    memcpy(copy, f->data, f->size_bytes);
    *m = (struct file_map){copy, f->size_bytes};
    return ERR_OK;
}

static void sim_unmap(struct env *w, struct file_map *m)
{
    (void)w;
    free((void *)(uintptr_t)m->data);
    *m = (struct file_map){NULL, 0};
}

static bool sim_exists(struct env *w, const char *path)
{
    if (sim(w)->dead)
        return false;
    size_t n = strlen(path);
    for (const struct env_sim_file *f = sim(w)->files; f; f = f->next)
        if (under(f, path, n))
            return true;
    return false;
}

/* A tree goes file by file: a crash leaves some of them. */
static enum err sim_remove(struct env *w, const char *path)
{
    struct env_sim *s = sim(w);
    struct fate fate = meet(s, false);
    size_t n = strlen(path);
    for (struct env_sim_file *f = s->files, *next; fate.do_it && f; f = next) {
        next = f->next;
        if (under(f, path, n) && !(s->dead && sim_chance(s->clock, 0.5)))
            drop(s, f);
    }
    return fate.e;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum err sim_list(struct env *w, const char *path, struct arena *a, char ***names,
                         size_t *count)
{
    struct env_sim *s = sim(w);
    size_t most = 0, n = strlen(path);
    if (s->dead)
        return err_set(ERR_IO, "%s: dead", s->name);
    if (!sim_exists(w, path))
        return err_set(ERR_INPUT, "%s: no such directory", path);
    for (const struct env_sim_file *f = s->files; f; f = f->next)
        most++;
    TRY_ALLOC(*names = arena_array(a, most + 1, sizeof **names));
    *count = 0;
    for (const struct env_sim_file *f = s->files; f; f = f->next) {
        if (!under(f, path, n) || !f->path[n])
            continue;
        const char *name = f->path + n + 1;
        size_t length = strcspn(name, "/"), i = 0;
        while (i < *count && (strlen((*names)[i]) != length || strncmp((*names)[i], name, length)))
            i++;
        if (i == *count)
            TRY_ALLOC((*names)[(*count)++] = arena_string(a, name, length));
    }
    qsort(*names, *count, sizeof **names, by_name);
    return ERR_OK;
}

/* Torn: a beginning of it, and behind that perhaps the length without the bytes. */
static enum err sim_append(struct env *w, const char *path, const void *data, size_t n)
{
    struct env_sim *s = sim(w);
    struct fate fate = meet(s, true);
    if (!fate.do_it)
        return fate.e;
    struct env_sim_file *f = find(s, path);
    if (!f)
        return err_set(ERR_IO, "%s: no such file", path);
    size_t old = f->size_bytes, good = s->dead ? sim_below(s->clock, n + 1) : n;
    bool longer = s->dead && sim_chance(s->clock, 0.3);
    resize(f, old + (longer ? n : good));
    memcpy(f->data + old, data, good);
    return fate.e;
}

static enum err sim_truncate(struct env *w, const char *path, uint64_t size_bytes)
{
    struct env_sim *s = sim(w);
    struct fate fate = meet(s, false);
    struct env_sim_file *f = find(s, path);
    if (fate.do_it && f)
        resize(f, size_bytes);
    return fate.e;
}

static enum err sim_part_open(struct env *w, const char *path, uint64_t total, int *handle,
                              uint64_t *have)
{
    struct env_sim *s = sim(w);
    struct fate fate = meet(s, true);
    if (!fate.do_it || fate.e != ERR_OK)
        return fate.e;
    static int handles; /* never used twice */
    struct env_sim_file *f = find(s, path);
    if (!f) {
        f = make(s, path);
        f->synced = false;
    }
    if (f->size_bytes > total)
        resize(f, 0);
    *have = f->size_bytes;
    *handle = f->handle = ++handles;
    return ERR_OK;
}

static enum err sim_part_write(struct env *w, int handle, uint64_t offset, const void *data,
                               size_t n)
{
    struct env_sim *s = sim(w);
    struct fate fate = meet(s, false);
    struct env_sim_file *f = find_handle(s, handle);
    if (!fate.do_it || !f)
        return fate.e;
    if (f->size_bytes < offset + n)
        resize(f, offset + n);
    memcpy(f->data + offset, data, n);
    f->synced = false;
    return fate.e;
}

static enum err sim_part_close(struct env *w, int handle, const char *path, const char *final)
{
    struct env_sim *s = sim(w);
    struct env_sim_file *f = find_handle(s, handle);
    (void)path;
    if (f)
        f->handle = 0;
    if (!final || !f)
        return s->dead ? err_set(ERR_IO, "%s: dead", s->name) : ERR_OK;
    struct fate fate = meet(s, false);
    if (!fate.do_it)
        return fate.e;
    f->synced = true;
    struct env_sim_file *old = find(s, final);
    if (old && old != f)
        drop(s, old);
    name(f, final);
    return fate.e;
}

/* Each directory of the simulation has one process at a time. */
static enum err sim_owned(struct env *w)
{
    return sim(w)->dead ? err_set(ERR_IO, "%s: dead", sim(w)->name) : ERR_OK;
}

/* ---- threads ---- */

struct env_thread {
    void (*run)(void *self);
    void *self;
    struct clock_sim *clock;
    bool ended;
};
struct env_mutex {
    bool held;
    char woken; /* its address: what those inside wait for; held's: those outside */
};

static void thread_main(void *self)
{
    struct env_thread *t = self;
    t->run(t->self);
    t->ended = true;
    sim_kick(t->clock, t);
}

static enum err sim_thread_start(struct env *w, struct env_thread **out, void (*run)(void *self),
                                 void *self)
{
    struct env_thread *t = arena_alloc(&sim(w)->threads, sizeof *t);
    TRY_ALLOC(t);
    *t = (struct env_thread){.run = run, .self = self, .clock = sim(w)->clock};
    sim_start(sim(w)->clock, thread_main, t);
    *out = t;
    return ERR_OK;
}

static void sim_thread_join(struct env *w, struct env_thread *t)
{
    while (!t->ended)
        sim_sleep(sim(w)->clock, UINT64_MAX, t);
}

static enum err sim_mutex_open(struct env *w, struct env_mutex **out)
{
    struct env_mutex *g = arena_alloc(&sim(w)->threads, sizeof *g);
    TRY_ALLOC(g);
    *g = (struct env_mutex){0};
    *out = g;
    return ERR_OK;
}

static void sim_mutex_close(struct env *w, struct env_mutex *g)
{
    (void)w;
    ASSERT(!g || !g->held);
}

static void sim_lock(struct env *w, struct env_mutex *g)
{
    while (g->held)
        sim_sleep(sim(w)->clock, UINT64_MAX, &g->held);
    g->held = true;
}

static void sim_unlock(struct env *w, struct env_mutex *g)
{
    ASSERT(g->held);
    g->held = false;
    sim_kick(sim(w)->clock, &g->held);
}

static void sim_wait(struct env *w, struct env_mutex *g, uint64_t ms)
{
    struct clock_sim *c = sim(w)->clock;
    uint64_t until = ms < UINT64_MAX - c->now_ms ? c->now_ms + ms : UINT64_MAX;
    sim_unlock(w, g);
    sim_sleep(c, until, &g->woken);
    sim_lock(w, g);
}

static void sim_signal(struct env *w, struct env_mutex *g)
{
    sim_kick(sim(w)->clock, &g->woken);
}

static const struct env_ops ops = {
    .now_ms = sim_now_ms,
    .unix_ms = sim_unix_ms,
    .sleep_ms = sim_sleep_ms,
    .random = sim_random,
    .write = sim_write,
    .read = sim_read,
    .map = sim_map,
    .unmap = sim_unmap,
    .exists = sim_exists,
    .remove = sim_remove,
    .list = sim_list,
    .append = sim_append,
    .truncate = sim_truncate,
    .part_open = sim_part_open,
    .part_write = sim_part_write,
    .part_close = sim_part_close,
    .owned = sim_owned,
    .thread_start = sim_thread_start,
    .thread_join = sim_thread_join,
    .mutex_open = sim_mutex_open,
    .mutex_close = sim_mutex_close,
    .lock = sim_lock,
    .unlock = sim_unlock,
    .wait = sim_wait,
    .signal = sim_signal,
};

void env_sim_open(struct env_sim *w, struct clock_sim *c, const char *name, uint64_t seed)
{
    *w = (struct env_sim){.env = {&ops, "sim"},
                          .clock = c,
                          .name = name,
                          .random_seed = seed,
                          .threads = arena_make(0)};
}

void env_sim_close(struct env_sim *w)
{
    while (w->files)
        drop(w, w->files);
    arena_free(&w->threads);
}

/* Unsynced pieces: any length up to what was written, any sector of it perhaps never written. */
static void lose(struct env_sim *w, struct env_sim_file *f)
{
    if (f->size_bytes && sim_chance(w->clock, 0.7))
        resize(f, sim_below(w->clock, f->size_bytes + 1));
    for (size_t at = 0; at < f->size_bytes; at += SECTOR_BYTES)
        if (sim_chance(w->clock, 0.1))
            memset(f->data + at, 0,
                   f->size_bytes - at < SECTOR_BYTES ? f->size_bytes - at : SECTOR_BYTES);
}

/* The newest state of fragment 0; NULL: the first one. */
static struct env_sim_file *current_state(const struct env_sim *w)
{
    struct env_sim_file *newest = NULL;
    uint64_t round, most = 0;
    for (struct env_sim_file *f = w->files; f; f = f->next) {
        int end = 0;
        if (sscanf(f->path, "frag/0/%20" SCNu64 "/state%n", &round, &end) != 1 || !end ||
            f->path[end] || round <= most)
            continue;
        most = round;
        newest = f;
    }
    return newest;
}

/* Only what the protocol can have again: a contribution in the spool, the newest state of a
 * fragment, and what a directory that has begun finds again. The state that a site has gone back to
 * is not damaged before it has caught up. */
static void rot(struct env_sim *w)
{
    static const char *const found_again[] = {"frag/0/CURRENT", "journal"};
    struct env_sim_file *victim = NULL;
    uint64_t what = sim_below(w->clock, 4);
    if (what == 0)
        victim = current_state(w);
    else if (what == 1)
        victim = find(w, "begun") ? find(w, found_again[sim_below(w->clock, 2)]) : NULL;
    else
        for (struct env_sim_file *f = w->files; f; f = f->next)
            victim = under(f, "spool", 5) && f->size_bytes ? f : victim;
    if (!victim)
        return;
    if (what == 1 || what == 3)
        drop(w, victim);
    else
        victim->data[sim_below(w->clock, victim->size_bytes)] ^=
            (uint8_t)(1u << sim_below(w->clock, 8));
}

void env_sim_restart(struct env_sim *w)
{
    for (struct env_sim_file *f = w->files; f; f = f->next) {
        f->handle = 0;
        if (!f->synced)
            lose(w, f);
    }
    if (w->faults && sim_chance(w->clock, w->faults->rot))
        rot(w);
    w->dead = false;
    w->stop = 0;
}

const uint8_t *env_sim_look(const struct env_sim *w, const char *path, size_t *size_bytes)
{
    const struct env_sim_file *f = find(w, path);
    *size_bytes = f ? f->size_bytes : 0;
    return f ? f->data : NULL;
}
