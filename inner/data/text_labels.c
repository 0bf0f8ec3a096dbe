/* SPDX-License-Identifier: Apache-2.0 */
/* Labelled lines -> shards of ids with labels: what `labels` does with the tokenizer of `text`. */
#include <string.h>
#include "inner/data/text_own.h"

struct encoder {
    const struct work *w;
    struct buffer_ids ids;
};

static enum err encode(void *self, const char *text, size_t bytes, struct arena *a, int32_t **ids,
                       size_t *count)
{
    struct encoder *x = self;
    x->ids.count = 0;
    TRY(tokenizer_encode(x->w->encoding.tokenizer, x->w->encoding.scratch[0], text, bytes,
                         &x->ids));
    *count = x->ids.count;
    if (!*count)
        return ERR_OK;
    TRY_ALLOC(*ids = arena_array(a, *count, sizeof **ids));
    memcpy(*ids, x->ids.ids, *count * sizeof **ids);
    return ERR_OK;
}

/* The classes of DIR/data.json, in their order. */
static enum err read_classes(const char *dir, struct labels_options *o, struct arena *a)
{
    struct sidecar s;
    const char **names;
    bool found;
    TRY(sidecar_read(&s, dir, a, &found));
    if (!found || s.classes_count < 2)
        return err_set(ERR_INPUT,
                       "%s/data.json: no classes there; name a directory that atoll "
                       "data --labels has made",
                       dir);
    TRY_ALLOC(names = arena_array(a, s.classes_count, sizeof *names));
    for (size_t i = 0; i < s.classes_count; i++)
        names[i] = s.classes[i].name;
    o->classes = names;
    o->classes_count = s.classes_count;
    return ERR_OK;
}

/* What every example begins and ends with. */
static enum err check_specials(const struct work *w)
{
    static const enum tokenizer_role needed[] = {TOKENIZER_CLS, TOKENIZER_SEP};
    int32_t id;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        TRY(tokenizer_need(w->encoding.tokenizer, needed[i], &id));
    return ERR_OK;
}

static enum err prepare(struct work *w, const char *const *paths, size_t path_count,
                        const char *classes_of, struct labels_report *report)
{
    struct text_report *described;
    struct encoder x = {.w = w};
    struct labels_options o = {.out = w->o->out,
                               .sites = w->o->sites,
                               .held_out = w->o->held_out,
                               .of = sidecar_none(),
                               .encoder = {&x, encode},
                               .owners = w->o->owners,
                               .csv = w->o->source.csv,
                               .columns = w->o->columns,
                               .replace = w->o->replace};
    TRY_ALLOC(described = arena_alloc(w->a, sizeof *described));
    if (classes_of)
        TRY(read_classes(classes_of, &o, w->a));
    TRY(text_words_open(w));
    TRY(text_tokenizer_open(w, described));
    TRY(check_specials(w));
    text_tokenizer_describe(w, &o.of, described);
    enum err e = labels_prepare(paths, path_count, &o, w->a, report);
    buffer_ids_free(&x.ids);
    return e ? e : text_tokenizer_copy(w);
}

enum err text_labels_prepare(const char *const *paths, size_t path_count,
                             const struct text_options *o, const char *classes_of, struct arena *a,
                             struct labels_report *report)
{
    struct work w = {.o = o, .a = a, .encoding.start_id = -1};
    enum err e = prepare(&w, paths, path_count, classes_of, report);
    text_tokenizer_close(&w);
    return e;
}
