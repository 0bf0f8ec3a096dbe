/* SPDX-License-Identifier: Apache-2.0 */
/* Storage and clock of the outer loop on a real machine: files under one locked root, the monotonic
 * clock. */
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernels/base/clock.h"
#include "kernels/base/digest.h"
#include "kernels/base/signals.h"
#include "outer/store/env_files.h"

struct real {
    struct env env; /* first */
    struct file_lock lock;
    char root[PATH_MAX];
};

static uint64_t real_now_ms(struct env *w)
{
    (void)w;
    return clock_mono_ms();
}

static uint64_t real_unix_ms(struct env *w)
{
    (void)w;
    return clock_wall_ms();
}

static void real_sleep_ms(struct env *w, uint64_t ms)
{
    (void)w;
    struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    nanosleep(
        &t, NULL); /* a signal may end it early: callers look at their stop flag and sleep again */
}

static void real_random(struct env *w, void *out, size_t n)
{
    (void)w;
    digest_random(out, n);
}

static enum err real_map(struct env *w, const char *path, struct file_map *m)
{
    char full[PATH_MAX];
    TRY(env_files_path(w, full, path));
    return file_map_checked(m, full);
}

static void real_unmap(struct env *w, struct file_map *m)
{
    (void)w;
    file_unmap(m);
}

static enum err real_owned(struct env *w)
{
    const struct real *r = (const struct real *)w;
    return file_lock_check(&r->lock, r->root);
}

/* ---- threads ---- */

struct env_thread {
    pthread_t thread;
    void (*run)(void *self);
    void *self;
};

static void *posix_thread_main(void *self)
{
    struct env_thread *t = self;
    t->run(t->self);
    return NULL;
}

/* Signals are for the thread that the program means. */
static enum err real_thread_start(struct env *w, struct env_thread **out, void (*run)(void *self),
                                  void *self)
{
    sigset_t before;
    (void)w;
    struct env_thread *t = malloc(sizeof *t);
    if (!t)
        return err_set(ERR_MEMORY, "no memory for a thread");
    *t = (struct env_thread){.run = run, .self = self};
    signals_block(&before);
    int failed = pthread_create(&t->thread, NULL, posix_thread_main, t);
    signals_restore(&before);
    if (failed) {
        free(t);
        return err_set(ERR_MEMORY, "cannot start a thread: %s", strerror(failed));
    }
    *out = t;
    return ERR_OK;
}

static void real_thread_join(struct env *w, struct env_thread *t)
{
    (void)w;
    pthread_join(t->thread, NULL);
    free(t);
}

struct env_mutex {
    pthread_mutex_t mutex;
    pthread_cond_t woken;
};

static enum err real_mutex_open(struct env *w, struct env_mutex **out)
{
    (void)w;
    struct env_mutex *g = malloc(sizeof *g);
    if (!g)
        return err_set(ERR_MEMORY, "no memory for a lock");
    pthread_mutex_init(&g->mutex, NULL);
    clock_cond_init(&g->woken);
    *out = g;
    return ERR_OK;
}

static void real_mutex_close(struct env *w, struct env_mutex *g)
{
    (void)w;
    if (!g)
        return;
    pthread_cond_destroy(&g->woken);
    pthread_mutex_destroy(&g->mutex);
    free(g);
}

static void real_lock(struct env *w, struct env_mutex *g)
{
    (void)w;
    pthread_mutex_lock(&g->mutex);
}

static void real_unlock(struct env *w, struct env_mutex *g)
{
    (void)w;
    pthread_mutex_unlock(&g->mutex);
}

static void real_wait(struct env *w, struct env_mutex *g, uint64_t ms)
{
    (void)w;
    clock_cond_wait(&g->woken, &g->mutex, clock_mono_ms() + ms);
}

static void real_signal(struct env *w, struct env_mutex *g)
{
    (void)w;
    pthread_cond_broadcast(&g->woken);
}

static const struct env_ops real_ops = {
    .now_ms = real_now_ms,
    .unix_ms = real_unix_ms,
    .sleep_ms = real_sleep_ms,
    .random = real_random,
    .write = env_files_write,
    .read = env_files_read,
    .map = real_map,
    .unmap = real_unmap,
    .exists = env_files_exists,
    .remove = env_files_remove,
    .forget = env_files_forget,
    .list = env_files_list,
    .append = env_files_append,
    .part_open = env_files_part_open,
    .part_write = env_files_part_write,
    .part_close = env_files_part_close,
    .owned = real_owned,
    .thread_start = real_thread_start,
    .thread_join = real_thread_join,
    .mutex_open = real_mutex_open,
    .mutex_close = real_mutex_close,
    .lock = real_lock,
    .unlock = real_unlock,
    .wait = real_wait,
    .signal = real_signal,
};

static enum err open_root(struct env **w, const char *root, bool locks)
{
    *w = NULL;
    TRY(file_mkdirs(root));
    struct real *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(ERR_MEMORY, "%zu bytes wanted, the machine has no more", sizeof *r);
    r->lock = (struct file_lock){-1, -1, false};
    enum err e = ERR_OK;
    if (!realpath(root,
                  r->root)) /* absolute: a later change of directory must not move the world */
        e = durable_failed("resolve", root, ERR_IO);
    else
        e = locks ? file_lock(&r->lock, r->root) : file_lock_join(&r->lock, r->root);
    r->env = (struct env){&real_ops, r->root, disk_posix()};
    if (e == ERR_OK)
        e = env_files_found(&r->env);
    if (e != ERR_OK) {
        file_unlock(&r->lock);
        free(r);
        return e;
    }
    *w = &r->env;
    return ERR_OK;
}

enum err env_posix_open(struct env **w, const char *root)
{
    return open_root(w, root, true);
}

enum err env_posix_join(struct env **w, const char *root)
{
    return open_root(w, root, false);
}

void env_posix_close(struct env *w)
{
    struct real *r = (struct real *)w;
    if (!r)
        return;
    file_unlock(&r->lock);
    free(r);
}
