#include "outer/sim/env_sim.h"
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/rng.h"
#include "outer/store/env_files.h"

enum {
    START_OPERATIONS = 8, /* from a new journal to the epoch in it */
    BROKEN_LIVES = 3 /* then a person puts another disk in, with a copy of what is on the old */
};
static const char root[] = "sim", KEYS_PATH[] = "id/maskkeys";

static struct env_sim *sim(struct env *w)
{
    return (struct env_sim *)w;
}

static void died(void *self)
{
    struct env_sim *s = self;
    s->stop = 1;
}

void env_sim_crash(struct env_sim *s)
{
    s->disk.dead = true;
    died(s);
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
    if (!sim(w)->disk.dead)
        sim_sleep(sim(w)->clock, sim(w)->clock->now_ms + ms, w);
}

static void sim_random(struct env *w, void *out, size_t n)
{
    uint8_t *to = out;
    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)rng_u32(sim(w)->random_seed, RNG_SIM, sim(w)->random_drawn++);
}

static void full_path(char out[PATH_MAX], const char *path)
{
    size_t name = strlen(path);
    ASSERT(sizeof root + name < PATH_MAX);
    memcpy(out, root, sizeof root - 1);
    out[sizeof root - 1] = '/';
    memcpy(out + sizeof root, path, name + 1);
}

static enum err sim_write(struct env *w, const char *path, const struct file_part *parts, size_t n)
{
    struct env_sim *s = sim(w);
    char full[PATH_MAX];
    size_t size;
    full_path(full, path);
    if (s->disk.faults && s->disk.faults->keys_full > 0 && !strcmp(path, KEYS_PATH) &&
        !s->disk.dead &&
        sim_strikes(s->clock, s->disk.faults->keys_full, "no space for the keys", s->name))
        return err_set(ERR_FULL, "%s: no space", full);
    uint64_t before = disk_sim_inode(&s->disk, full);
    enum err e = env_files_write(w, path, parts, n);
    bool begins = s->disk.faults && s->disk.faults->power > 0 && !strncmp(path, "eager/", 6);
    if (begins && sim_strikes(s->clock, 0.4, "it will end after an eager start", s->name))
        s->disk.ends_at = s->disk.operations + 1 + sim_below(s->clock, START_OPERATIONS);
    if (s->ends_in_start && !strcmp(path, "journal")) {
        s->ends_in_start = false;
        s->disk.ends_at = s->disk.operations + 1 + sim_below(s->clock, START_OPERATIONS);
    }
    uint64_t after = disk_sim_inode(&s->disk, full);
    if (s->wrote && after && after != before) {
        const uint8_t *data = disk_sim_look(&s->disk, full, &size);
        unsigned process = s->clock->process;
        s->clock->process = 0;
        s->wrote(s->watch_self, s, path, data, size);
        s->clock->process = process;
    }
    return e;
}

static enum err map_at(struct disk *d, int fd, const char *path, size_t size, struct file_map *m)
{
    uint8_t *copy = malloc(size ? size : 1);
    TRY_ALLOC(copy);
    enum err e = durable_read_at(d, fd, path, copy, size, 0);
    if (e != ERR_OK)
        free(copy);
    else
        *m = (struct file_map){copy, size};
    return e;
}

/* A copy, so that reading past the end or after unmap shows under a sanitizer. */
static enum err sim_map(struct env *w, const char *path, struct file_map *m)
{
    struct env_sim *s = sim(w);
    char full[PATH_MAX];
    size_t size;
    int fd;
    *m = (struct file_map){0};
    if (s->mapping)
        s->mapping(s->watch_self, path);
    full_path(full, path);
    TRY(durable_open(w->disk, full, &fd, &size));
    enum err e = map_at(w->disk, fd, full, size, m);
    w->disk->ops->close(w->disk, fd);
    return e;
}

static void sim_unmap(struct env *w, struct file_map *m)
{
    (void)w;
    free((void *)(uintptr_t)m->data);
    *m = (struct file_map){NULL, 0};
}

/* Each directory of the simulation has one process at a time. */
static enum err sim_owned(struct env *w)
{
    return sim(w)->disk.dead ? err_set(ERR_IO, "%s: dead", sim(w)->name) : ERR_OK;
}

/* ---- threads ---- */

struct env_thread {
    void (*run)(void *self);
    void *self;
    struct clock_sim *clock;
    unsigned process;
    bool ended;
};
struct env_mutex {
    bool held;
    char woken; /* its address: what those inside wait for; held's: those outside */
};

static void thread_main(void *self)
{
    struct env_thread *t = self;
    t->clock->process = t->process;
    t->run(t->self);
    t->ended = true;
    sim_kick(t->clock, t);
}

static enum err sim_thread_start(struct env *w, struct env_thread **out, void (*run)(void *self),
                                 void *self)
{
    struct env_thread *t = arena_alloc(&sim(w)->threads, sizeof *t);
    TRY_ALLOC(t);
    *t = (struct env_thread){
        .run = run, .self = self, .clock = sim(w)->clock, .process = sim(w)->clock->process};
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
    .read = env_files_read,
    .map = sim_map,
    .unmap = sim_unmap,
    .exists = env_files_exists,
    .remove = env_files_remove,
    .forget = env_files_forget,
    .list = env_files_list,
    .append = env_files_append,
    .part_open = env_files_part_open,
    .part_write = env_files_part_write,
    .part_close = env_files_part_close,
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
    *w = (struct env_sim){.clock = c, .name = name, .random_seed = seed, .threads = arena_make(0)};
    disk_sim_open(&w->disk, c, name, root);
    w->disk.died = died;
    w->disk.died_self = w;
    w->env = (struct env){&ops, root, &w->disk.disk};
}

void env_sim_close(struct env_sim *w)
{
    disk_sim_close(&w->disk);
    arena_free(&w->threads);
}

enum err env_sim_begin(struct env_sim *w)
{
    return env_files_found(&w->env);
}

/* ---- rot ---- */

enum { VICTIM_MAX = 300 };
static const double SEAL_ROTS = 0.5;
struct victim { /* found on the disk */
    char path[VICTIM_MAX];
    uint64_t round;
    bool seal; /* wanted: the seal of a round, or a contribution */
};

static bool in_spool(const char *path)
{
    return !strncmp(path, "sim/spool/", 10);
}

static bool is_seal(const char *path)
{
    const char *name = strrchr(path, '/');
    return name && strcmp(name, "/seal") == 0;
}

static void see_spool(void *self, const char *path)
{
    struct victim *v = self;
    if (in_spool(path) && is_seal(path) == v->seal && strcmp(path, v->path) > 0)
        snprintf(v->path, sizeof v->path, "%s", path);
}

/* The newest state of fragment 0, but for the first one. */
static void see_state(void *self, const char *path)
{
    struct victim *v = self;
    uint64_t round;
    int end = 0;
    if (sscanf(path, "sim/frag/0/%20" SCNu64 "/state%n", &round, &end) != 1 || !end || path[end] ||
        round <= v->round)
        return;
    v->round = round;
    snprintf(v->path, sizeof v->path, "%s", path);
}

/* Only what the protocol can have again: a contribution in the spool, the newest state of a
 * fragment, and what a directory that has begun finds again; or can do without: the seal of a
 * round, which is aborted then. The state that a site has gone back to is not damaged before it has
 * caught up: each state that rots is of a later round than the last. CURRENT and the newest state
 * are not both damaged: a later round may have been begun, and then nothing tells which of the
 * states that are left was committed.
 */
static void rot(struct env_sim *w)
{
    static const char *const found_again[] = {"sim/frag/0/CURRENT", "sim/journal"};
    struct victim v = {.round = 0}, newest = {.round = 0};
    uint64_t what = sim_below(w->clock, 4), how = sim_below(w->clock, 3);
    size_t size;
    disk_sim_each(&w->disk, see_state, &newest);
    bool mended = newest.round > w->rotten; /* there is a newer one than the last that has rotted */
    if (what == 0) {
        if (!mended || !disk_sim_inode(&w->disk, "sim/frag/0/CURRENT"))
            return;
        v = newest;
        w->rotten = v.round;
    }
    v.seal = what > 1 && w->seals && sim_chance(w->clock, SEAL_ROTS);
    if (what > 1) {
        disk_sim_each(&w->disk, see_spool, &v);
    } else if (what == 1 && disk_sim_inode(&w->disk, "sim/begun")) {
        bool journal = !w->seals && sim_below(w->clock, 2);
        if (journal || mended || !w->rotten)
            snprintf(v.path, sizeof v.path, "%s", found_again[journal]);
    }
    if (!*v.path || !disk_sim_look(&w->disk, v.path, &size) || !size)
        return;
    w->seals_rotten += v.seal;
    w->rots++;
    bool whole = what == 1; /* a damaged journal is for a person, a missing one is not */
    if (whole || what == 3)
        disk_sim_lose(&w->disk, v.path);
    else if (how == 0)
        disk_sim_spoil(&w->disk, v.path);
    else
        disk_sim_flip(&w->disk, v.path, sim_below(w->clock, 8 * size));
}

static void journal_lose(struct env_sim *w)
{
    if (w->seals || !disk_sim_inode(&w->disk, "sim/begun") ||
        !disk_sim_inode(&w->disk, "sim/journal") ||
        !sim_strikes(w->clock, w->loses_journal, "the journal is lost", w->name))
        return;
    disk_sim_lose(&w->disk, "sim/journal");
    w->rots++;
    w->ends_in_start = sim_strikes(w->clock, 0.5, "it will end in its start", w->name);
}

void env_sim_restart(struct env_sim *w)
{
    bool power =
        w->disk.power || (w->disk.faults && sim_strikes(w->clock, 0.5, "power is lost", w->name));
    if (w->disk.broken && ++w->broken_lives >= BROKEN_LIVES) {
        w->disk.broken = false;
        power = true;
    }
    disk_sim_restart(&w->disk, power);
    if (w->disk.faults &&
        sim_strikes(w->clock, w->disk.faults->rot, "a file rots, if there is one", w->name))
        rot(w);
    if (w->disk.faults && w->loses_journal > 0)
        journal_lose(w);
    w->stop = 0;
}

const uint8_t *env_sim_look(const struct env_sim *w, const char *path, size_t *size_bytes)
{
    char full[PATH_MAX];
    full_path(full, path);
    return disk_sim_look(&w->disk, full, size_bytes);
}

const uint8_t *env_sim_medium(const struct env_sim *w, const char *path, size_t *size_bytes)
{
    char full[PATH_MAX];
    full_path(full, path);
    return disk_sim_medium(&w->disk, full, size_bytes);
}
