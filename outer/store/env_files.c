/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/store/env_files.h"
#include <limits.h>
#include <string.h>

enum { MODE = 0644 };

enum err env_files_path(const struct env *w, char *out, const char *path)
{
    size_t root = strlen(w->root), name = strlen(path);
    if (root + 1 + name >= PATH_MAX)
        return err_set(ERR_IO, "%s: path too long", path);
    memcpy(out, w->root, root);
    out[root] = '/';
    memcpy(out + root + 1, path, name + 1);
    return ERR_OK;
}

enum err env_files_found(struct env *w)
{
    return durable_found(w->disk, w->root);
}

enum err env_files_write(struct env *w, const char *path, const struct file_part *parts, size_t n)
{
    char full[PATH_MAX];
    TRY(env_files_path(w, full, path));
    TRY(durable_make_parent(w->disk, full));
    return durable_write(w->disk, full, parts, n, MODE);
}

enum err env_files_read(struct env *w, const char *path, size_t max_bytes, struct arena *a,
                        uint8_t **data, size_t *size)
{
    char full[PATH_MAX];
    TRY(env_files_path(w, full, path));
    return durable_read(w->disk, full, max_bytes, a, data, size);
}

bool env_files_exists(struct env *w, const char *path)
{
    char full[PATH_MAX];
    return env_files_path(w, full, path) == ERR_OK &&
           w->disk->ops->kind(w->disk, full) != DISK_MISSING;
}

enum err env_files_remove(struct env *w, const char *path)
{
    char full[PATH_MAX];
    TRY(env_files_path(w, full, path));
    return durable_remove_tree(w->disk, full);
}

enum err env_files_forget(struct env *w, const char *path)
{
    char full[PATH_MAX];
    TRY(env_files_path(w, full, path));
    return durable_forget_tree(w->disk, full);
}

enum err env_files_list(struct env *w, const char *path, struct arena *a, char ***names,
                        size_t *count)
{
    char full[PATH_MAX];
    TRY(env_files_path(w, full, path));
    return durable_list(w->disk, full, a, names, count);
}

enum err env_files_append(struct env *w, const char *path, const void *data, size_t n)
{
    char full[PATH_MAX];
    TRY(env_files_path(w, full, path));
    return durable_append(w->disk, full, data, n);
}

enum err env_files_part_open(struct env *w, const char *path, uint64_t total, int *handle,
                             uint64_t *have)
{
    char full[PATH_MAX];
    TRY(env_files_path(w, full, path));
    return durable_part_open(w->disk, full, total, handle, have);
}

enum err env_files_part_write(struct env *w, int handle, uint64_t offset, const void *data,
                              size_t n)
{
    return durable_write_at(w->disk, handle, "part file", data, n, offset);
}

enum err env_files_part_close(struct env *w, int handle, const char *path, const char *final)
{
    char from[PATH_MAX], to[PATH_MAX];
    enum err e = env_files_path(w, from, path);
    if (e == ERR_OK && final)
        e = env_files_path(w, to, final);
    enum err closed = durable_part_close(w->disk, handle, from, e == ERR_OK && final ? to : NULL);
    return e == ERR_OK ? closed : e;
}
