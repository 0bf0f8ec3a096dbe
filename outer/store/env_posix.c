/* Storage and clock of the outer loop on a real machine: files under one locked root, the monotonic
 * clock. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "kernels/base/clock.h"
#include "kernels/base/digest.h"
#include "outer/store/env.h"

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

/* root/path; out has PATH_MAX bytes. */
static enum err real_path(const struct env *w, char *out, const char *path)
{
    const struct real *r = (const struct real *)w;
    if (snprintf(out, PATH_MAX, "%s/%s", r->root, path) >= PATH_MAX)
        return err_set(ERR_IO, "%s: path too long", path);
    return ERR_OK;
}

static enum err real_failed(const char *what, const char *path)
{
    int e = errno;
    enum err kind = e == ENOSPC || e == EDQUOT ? ERR_FULL : ERR_IO;
    return err_set(kind, "%s: cannot %s: %s", path, what, strerror(e));
}

/* The directory part of a path below the root; there always is one. */
static void real_parent(char *out, const char *full)
{
    size_t n = (size_t)(strrchr(full, '/') - full);
    memcpy(out, full, n);
    out[n] = 0;
}

static enum err real_make_parent(const char *full)
{
    char parent[PATH_MAX];
    real_parent(parent, full);
    return file_mkdirs(parent);
}

static enum err real_sync_parent(const char *full)
{
    char parent[PATH_MAX];
    real_parent(parent, full);
    return file_sync_dir(parent);
}

static enum err real_write(struct env *w, const char *path, const struct file_part *parts, size_t n)
{
    char full[PATH_MAX];
    TRY(real_path(w, full, path));
    TRY(real_make_parent(full));
    return file_write(full, parts, n, 0644);
}

static enum err real_read(struct env *w, const char *path, size_t max_bytes, struct arena *a,
                          uint8_t **data, size_t *size)
{
    char full[PATH_MAX];
    TRY(real_path(w, full, path));
    return file_read(full, max_bytes, a, data, size);
}

static enum err real_map(struct env *w, const char *path, struct file_map *m)
{
    char full[PATH_MAX];
    TRY(real_path(w, full, path));
    return file_map_checked(m, full);
}

static void real_unmap(struct env *w, struct file_map *m)
{
    (void)w;
    file_unmap(m);
}

static bool real_exists(struct env *w, const char *path)
{
    char full[PATH_MAX];
    return real_path(w, full, path) == ERR_OK && file_exists(full);
}

static enum err real_remove(struct env *w, const char *path)
{
    char full[PATH_MAX];
    TRY(real_path(w, full, path));
    return file_remove_tree(full);
}

static enum err real_list(struct env *w, const char *path, struct arena *a, char ***names,
                          size_t *count)
{
    char full[PATH_MAX];
    TRY(real_path(w, full, path));
    return file_list(full, a, names, count);
}

static enum err put_at(int fd, const char *path, uint64_t offset, const uint8_t *from, size_t n)
{
    while (n) {
        ssize_t put = pwrite(fd, from, n, (off_t)offset);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return real_failed("write", path);
        from += put;
        offset += (uint64_t)put;
        n -= (size_t)put;
    }
    return ERR_OK;
}

/* fdatasync covers the new length too. */
static enum err append_to(int fd, const char *full, const void *data, size_t n)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return real_failed("stat", full);
    TRY(put_at(fd, full, (uint64_t)st.st_size, data, n));
    return fdatasync(fd) == 0 ? ERR_OK : real_failed("sync", full);
}

static enum err real_append(struct env *w, const char *path, const void *data, size_t n)
{
    char full[PATH_MAX];
    TRY(real_path(w, full, path));
    int fd = open(full, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return real_failed("open", full);
    enum err e = append_to(fd, full, data, n);
    close(fd);
    return e;
}

static enum err real_truncate(struct env *w, const char *path, uint64_t size_bytes)
{
    char full[PATH_MAX];
    TRY(real_path(w, full, path));
    int fd = open(full, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return real_failed("open", full);
    enum err e = ERR_OK;
    if (ftruncate(fd, (off_t)size_bytes) != 0 || fsync(fd) != 0)
        e = real_failed("truncate", full);
    close(fd);
    return e;
}

/* Reserves the blocks without changing the length, so that the length says how much has arrived. A
 * file system without fallocate is asked for its free space instead. */
static enum err part_reserve(int fd, const char *full, uint64_t total, uint64_t have)
{
    if (total == have || fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)total) == 0)
        return ERR_OK;
    if (errno != EOPNOTSUPP)
        return real_failed("reserve space for", full);
    char parent[PATH_MAX];
    uint64_t free_bytes;
    real_parent(parent, full);
    TRY(file_free_bytes(parent, &free_bytes));
    if (free_bytes < total - have)
        return err_set(ERR_FULL, "%s: %llu bytes wanted, %llu free", full,
                       (unsigned long long)(total - have), (unsigned long long)free_bytes);
    return ERR_OK;
}

static enum err real_part_open(struct env *w, const char *path, uint64_t total, int *handle,
                               uint64_t *have)
{
    char full[PATH_MAX];
    struct stat st;
    TRY(real_path(w, full, path));
    TRY(real_make_parent(full));
    int fd = open(full, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return real_failed("open", full);
    enum err e = ERR_OK;
    if (fstat(fd, &st) != 0)
        e = real_failed("stat", full);
    else if ((uint64_t)st.st_size > total &&
             ftruncate(fd, 0) != 0) /* not a beginning of this payload */
        e = real_failed("truncate", full);
    if (e == ERR_OK) {
        *have = (uint64_t)st.st_size > total ? 0 : (uint64_t)st.st_size;
        e = part_reserve(fd, full, total, *have);
    }
    if (e != ERR_OK) {
        close(fd);
        return e;
    }
    *handle = fd;
    return ERR_OK;
}

static enum err real_part_write(struct env *w, int handle, uint64_t offset, const void *data,
                                size_t n)
{
    (void)w;
    return put_at(handle, "part file", offset, data, n);
}

static enum err real_part_close(struct env *w, int handle, const char *path, const char *final)
{
    char from[PATH_MAX], to[PATH_MAX];
    enum err e = ERR_OK;
    if (final) {
        e = real_path(w, from, path);
        if (e == ERR_OK)
            e = real_path(w, to, final);
        if (e == ERR_OK && fsync(handle) != 0)
            e = real_failed("sync", from);
    }
    close(handle);
    if (!final || e != ERR_OK)
        return e;
    TRY(real_make_parent(to));
    if (rename(from, to) != 0)
        return real_failed("rename", from);
    return real_sync_parent(to);
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

static void *thread_main(void *self)
{
    struct env_thread *t = self;
    t->run(t->self);
    return NULL;
}

/* Signals are for the thread that the program means. */
static enum err real_thread_start(struct env *w, struct env_thread **out, void (*run)(void *self),
                                  void *self)
{
    sigset_t all, before;
    (void)w;
    struct env_thread *t = malloc(sizeof *t);
    if (!t)
        return err_set(ERR_MEMORY, "no memory for a thread");
    *t = (struct env_thread){.run = run, .self = self};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&t->thread, NULL, thread_main, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
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
    .write = real_write,
    .read = real_read,
    .map = real_map,
    .unmap = real_unmap,
    .exists = real_exists,
    .remove = real_remove,
    .list = real_list,
    .append = real_append,
    .truncate = real_truncate,
    .part_open = real_part_open,
    .part_write = real_part_write,
    .part_close = real_part_close,
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

enum err env_posix_open(struct env **w, const char *root)
{
    *w = NULL;
    TRY(file_mkdirs(root));
    struct real *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(ERR_MEMORY, "%zu bytes wanted, the machine has no more", sizeof *r);
    enum err e = ERR_OK;
    if (!realpath(root,
                  r->root)) /* absolute: a later change of directory must not move the world */
        e = real_failed("resolve", root);
    else
        e = file_lock(&r->lock, r->root);
    if (e != ERR_OK) {
        free(r);
        return e;
    }
    r->env = (struct env){&real_ops, r->root};
    *w = &r->env;
    return ERR_OK;
}

void env_posix_close(struct env *w)
{
    struct real *r = (struct real *)w;
    if (!r)
        return;
    file_unlock(&r->lock);
    free(r);
}
