/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/store/store.h"

static const char begun_path[] = "begun";

enum err store_write(struct env *w, const char *path, const struct record_form *f,
                     struct record_section *sections, size_t count)
{
    struct arena scratch = arena_make(0);
    struct file_part *parts;
    size_t n;
    enum err e = record_make(f, sections, count, &parts, &n, &scratch);
    if (e == ERR_OK)
        e = w->ops->write(w, path, parts, n);
    arena_free(&scratch);
    return e;
}

enum err store_read(struct env *w, const char *path, const struct record_form *f,
                    uint64_t sections_max, struct record *r, struct arena *a)
{
    uint8_t *data;
    size_t size;
    if (!w->ops->exists(w, path))
        return err_set(ERR_INPUT, "%s/%s: missing", w->root, path);
    enum err e = w->ops->read(w, path, RECORD_HEAD_MAX + sections_max, a, &data, &size);
    if (e == ERR_INPUT) /* too long, or no file */
        return err_set(ERR_CORRUPT, "%s/%s: damaged", w->root, path);
    TRY(e);
    e = record_open(r, f, path, data, size, a);
    return e == ERR_OK ? e : err_add(e, "%s/", w->root);
}

bool store_begun(struct env *w)
{
    return w->ops->exists(w, begun_path);
}

enum err store_begin_again(struct env *w)
{
    static const struct record_form form = {.kind = "begun"};
    return store_write(w, begun_path, &form, NULL, 0);
}

enum err store_begin(struct env *w)
{
    return store_begun(w) ? ERR_OK : store_begin_again(w);
}
