/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/io/family.h"
#include <string.h>

const struct family *const families[] = {
#define X(name) &family_##name,
    FAMILIES(X) NULL
#undef X
};

const struct family *family_by_type(const char *type)
{
    for (size_t i = 0; families[i]; i++)
        if (!strcmp(families[i]->type, type))
            return families[i];
    return NULL;
}

enum err family_of(const struct settings *s, const struct family **f)
{
    struct arena a = arena_make(0);
    const char *why = "";
    enum err e = ERR_OK;
    *f = NULL;
    for (size_t i = 0; families[i] && !*f && why; i++) {
        const char *lacks = families[i]->lacks(s);
        if (!lacks)
            *f = families[i];
        else if (families[i]->title)
            why = arena_printf(&a, "%s%s%s (%s)", why, *why ? ", nor " : "", families[i]->title,
                               lacks);
    }
    if (!*f)
        e = why ? err_set(ERR_UNSUPPORTED, "no family of Hugging Face fits this model: not %s", why)
                : ERR_MEMORY;
    arena_free(&a);
    return e;
}

const char *family_architecture(const struct family *f, const struct settings *s)
{
    unsigned heads = s->model_head == MODEL_HEAD_MLM || !f->encoder ? FAMILY_TOKENS : 0;
    if (s->model_classes.count)
        heads = FAMILY_CLASSES;
    else if (s->model_pooler)
        heads |= FAMILY_PAIR;
    for (size_t i = 0; f->architectures[i].name; i++)
        if (f->architectures[i].heads == heads)
            return f->architectures[i].name;
    for (size_t i = 0; f->architectures[i].name; i++)
        if (!(f->architectures[i].heads & ~(unsigned)FAMILY_POOLER))
            return f->architectures[i].name; /* the bare model */
    return f->architectures[0].name;
}
