/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENV_MEMORY_H
#define ENV_MEMORY_H
/* A directory in memory for fuzz targets: files by path, nothing can fail, nothing is lost, no
 * clock, one thread. Fast enough for thousands of recoveries a second. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "outer/store/env.h"

enum { MEMORY_FILES_MAX = 64, MEMORY_PATH_MAX = 256 };

struct memory_file {
    char path[MEMORY_PATH_MAX]; /* "": free */
    uint8_t *data;
    size_t size_bytes;
};
struct env_memory {
    struct env env; /* first */
    struct memory_file files[MEMORY_FILES_MAX];
    uint64_t drawn;
};

static inline struct memory_file *memory_find(struct env *w, const char *path)
{
    struct env_memory *m = (struct env_memory *)w;
    for (unsigned i = 0; i < MEMORY_FILES_MAX; i++)
        if (strcmp(m->files[i].path, path) == 0)
            return &m->files[i];
    return NULL;
}

static inline void memory_put(struct env *w, const char *path, const void *data, size_t n)
{
    struct memory_file *f = memory_find(w, path);
    if (!f) {
        f = memory_find(w, "");
        ASSERT(f && strlen(path) < MEMORY_PATH_MAX);
        strcpy(f->path, path);
    }
    uint8_t *copy = malloc(n + 1); /* a zero byte follows, as file_read has it */
    ASSERT(copy);
    if (n)
        memcpy(copy, data, n);
    copy[n] = 0;
    free(f->data);
    f->data = copy;
    f->size_bytes = n;
}

static inline void memory_drop(struct memory_file *f)
{
    free(f->data);
    *f = (struct memory_file){.path = ""};
}

static inline uint64_t memory_now_ms(struct env *w)
{
    (void)w;
    return 0;
}

static inline void memory_sleep_ms(struct env *w, uint64_t ms)
{
    (void)w, (void)ms;
}

static inline void memory_random(struct env *w, void *out, size_t n)
{
    memset(out, (int)(1 + ((struct env_memory *)w)->drawn++ % 255), n);
}

static inline enum err memory_write(struct env *w, const char *path, const struct file_part *parts,
                                    size_t n)
{
    size_t size = 0, at = 0;
    for (size_t i = 0; i < n; i++)
        size += parts[i].size_bytes;
    uint8_t *all = malloc(size + 1);
    ASSERT(all);
    for (size_t i = 0; i < n; at += parts[i++].size_bytes)
        if (parts[i].size_bytes)
            memcpy(all + at, parts[i].data, parts[i].size_bytes);
    memory_put(w, path, all, size);
    free(all);
    return ERR_OK;
}

static inline enum err memory_map(struct env *w, const char *path, struct file_map *m)
{
    struct memory_file *f = memory_find(w, path);
    *m = (struct file_map){0};
    if (!f || !*path)
        return err_set(ERR_INPUT, "%s: missing", path);
    uint8_t *copy = malloc(f->size_bytes + !f->size_bytes); /* of the exact size, for sanitizers */
    ASSERT(copy);
    memcpy(copy, f->data, f->size_bytes);
    *m = (struct file_map){copy, f->size_bytes};
    return ERR_OK;
}

static inline void memory_unmap(struct env *w, struct file_map *m)
{
    (void)w;
    free((void *)(uintptr_t)m->data);
    *m = (struct file_map){0};
}

static inline enum err memory_read(struct env *w, const char *path, size_t max_bytes,
                                   struct arena *a, uint8_t **data, size_t *size)
{
    struct memory_file *f = memory_find(w, path);
    if (!f || !*path)
        return err_set(ERR_INPUT, "%s: missing", path);
    if (f->size_bytes > max_bytes)
        return err_set(ERR_INPUT, "%s: longer than %zu bytes", path, max_bytes);
    TRY_ALLOC(*data = arena_alloc(a, f->size_bytes + 1));
    memcpy(*data, f->data, f->size_bytes + 1);
    *size = f->size_bytes;
    return ERR_OK;
}

static inline bool memory_below(const char *path, const char *directory)
{
    size_t n = strlen(directory);
    return strncmp(path, directory, n) == 0 && path[n] == '/';
}

static inline bool memory_exists(struct env *w, const char *path)
{
    struct env_memory *m = (struct env_memory *)w;
    for (unsigned i = 0; i < MEMORY_FILES_MAX; i++)
        if (*m->files[i].path &&
            (strcmp(m->files[i].path, path) == 0 || memory_below(m->files[i].path, path)))
            return true;
    return false;
}

static inline enum err memory_remove(struct env *w, const char *path)
{
    struct env_memory *m = (struct env_memory *)w;
    for (unsigned i = 0; i < MEMORY_FILES_MAX; i++)
        if (*m->files[i].path &&
            (strcmp(m->files[i].path, path) == 0 || memory_below(m->files[i].path, path)))
            memory_drop(&m->files[i]);
    return ERR_OK;
}

static inline enum err memory_list(struct env *w, const char *path, struct arena *a, char ***names,
                                   size_t *count)
{
    struct env_memory *m = (struct env_memory *)w;
    *count = 0;
    TRY_ALLOC(*names = arena_array(a, MEMORY_FILES_MAX, sizeof **names));
    for (unsigned i = 0; i < MEMORY_FILES_MAX; i++) {
        const char *p = m->files[i].path;
        if (!*p || !memory_below(p, path))
            continue;
        const char *name = p + strlen(path) + 1;
        size_t n = strcspn(name, "/"), k = 0;
        while (k < *count && (strncmp((*names)[k], name, n) != 0 || (*names)[k][n]))
            k++;
        if (k == *count)
            TRY_ALLOC((*names)[(*count)++] = arena_string(a, name, n));
    }
    return ERR_OK;
}

static inline enum err memory_append(struct env *w, const char *path, const void *data, size_t n)
{
    struct memory_file *f = memory_find(w, path);
    if (!f || !*path)
        return err_set(ERR_INPUT, "%s: missing", path);
    struct file_part parts[] = {{f->data, f->size_bytes}, {data, n}};
    return memory_write(w, path, parts, 2);
}

static inline enum err memory_owned(struct env *w)
{
    (void)w;
    return ERR_OK;
}

/* The handle is the file's place. */
static inline enum err memory_part_open(struct env *w, const char *path, uint64_t total,
                                        int *handle, uint64_t *have)
{
    struct memory_file *f = memory_find(w, path);
    if (!f || f->size_bytes > total)
        memory_put(w, path, NULL, 0);
    f = memory_find(w, path);
    *handle = (int)(f - ((struct env_memory *)w)->files);
    *have = f->size_bytes;
    return ERR_OK;
}

static inline enum err memory_part_write(struct env *w, int handle, uint64_t offset,
                                         const void *data, size_t n)
{
    struct memory_file *f = &((struct env_memory *)w)->files[handle];
    size_t size = f->size_bytes > offset + n ? f->size_bytes : (size_t)offset + n;
    uint8_t *all = calloc(1, size + 1);
    ASSERT(all);
    memcpy(all, f->data, f->size_bytes);
    memcpy(all + offset, data, n);
    free(f->data);
    f->data = all;
    f->size_bytes = size;
    return ERR_OK;
}

static inline enum err memory_part_close(struct env *w, int handle, const char *path,
                                         const char *final)
{
    struct memory_file *f = &((struct env_memory *)w)->files[handle], *old;
    (void)path;
    if (!final)
        return ERR_OK;
    old = memory_find(w, final);
    if (old)
        memory_drop(old);
    ASSERT(strlen(final) < MEMORY_PATH_MAX);
    strcpy(f->path, final);
    return ERR_OK;
}

static inline enum err memory_mutex_open(struct env *w, struct env_mutex **g)
{
    (void)w;
    *g = NULL;
    return ERR_OK;
}

static inline void memory_lock(struct env *w, struct env_mutex *g)
{
    (void)w, (void)g;
}

static const struct env_ops memory_ops = {.now_ms = memory_now_ms,
                                          .unix_ms = memory_now_ms,
                                          .sleep_ms = memory_sleep_ms,
                                          .random = memory_random,
                                          .write = memory_write,
                                          .read = memory_read,
                                          .map = memory_map,
                                          .unmap = memory_unmap,
                                          .exists = memory_exists,
                                          .remove = memory_remove,
                                          .list = memory_list,
                                          .append = memory_append,
                                          .owned = memory_owned,
                                          .part_open = memory_part_open,
                                          .part_write = memory_part_write,
                                          .part_close = memory_part_close,
                                          .mutex_open = memory_mutex_open,
                                          .mutex_close = memory_lock,
                                          .lock = memory_lock,
                                          .unlock = memory_lock};

static inline void memory_open(struct env_memory *m)
{
    *m = (struct env_memory){.env = {.ops = &memory_ops, .root = "memory"}};
}

static inline void memory_close(struct env_memory *m)
{
    for (unsigned i = 0; i < MEMORY_FILES_MAX; i++)
        memory_drop(&m->files[i]);
}

static inline void memory_copy(struct env_memory *to, const struct env_memory *from)
{
    memory_open(to);
    for (unsigned i = 0; i < MEMORY_FILES_MAX; i++)
        if (*from->files[i].path)
            memory_put(&to->env, from->files[i].path, from->files[i].data,
                       from->files[i].size_bytes);
}

#endif
