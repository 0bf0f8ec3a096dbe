/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/sim/env_sim.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/rng.h"
#include "outer/store/env_files.h"

const char env_sim_root[] = "sim";

static struct env_sim *sim(struct env *w)
{
    return (struct env_sim *)w;
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
    TRY(env_files_write(w, path, parts, n));
    if (sim(w)->wrote)
        sim(w)->wrote(sim(w)->watch_self, path);
    return ERR_OK;
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
    char full[PATH_MAX];
    size_t size;
    int fd;
    *m = (struct file_map){0};
    TRY(env_files_path(w, full, path));
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

static enum err sim_owned(struct env *w)
{
    (void)w;
    return ERR_OK;
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

const struct env_ops env_sim_ops = {
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

void env_sim_open(struct env_sim *w, struct clock_sim *c, struct disk *d, uint64_t seed)
{
    *w = (struct env_sim){.env = {&env_sim_ops, env_sim_root, d},
                          .clock = c,
                          .random_seed = seed,
                          .threads = arena_make(0)};
}

void env_sim_close(struct env_sim *w)
{
    arena_free(&w->threads);
}
