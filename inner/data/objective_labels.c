/* SPDX-License-Identifier: Apache-2.0 */
/* Labelled documents (fine-tuning): [CLS] text [SEP], or [CLS] text [SEP] text_b [SEP]; the target
 * is the class of the sequence. A set of shards with a name is a task of its own, by its place
 * among the names of data.train.
 */
#include <string.h>
#include "inner/data/labels.h"
#include "inner/data/objective.h"

struct labelled {
    uint32_t *tasks; /* (shards) */
};
struct pair { /* of one document: tokens that are kept of one or two texts */
    uint64_t first[2];
    uint32_t tokens[2];
    size_t texts;
};

/* ---- open ---- */

static enum err check_specials(const struct loader *l)
{
    if (!l->directory)
        return err_set(
            ERR_INPUT,
            "%s: no data.json next to it; data.objective = labels needs the ids of [CLS] "
            "and [SEP] and the names of the classes",
            l->set.shards[0].path);
    for (int i = SIDECAR_CLS; i <= SIDECAR_SEP; i++)
        if (l->sidecar.special[i] < 0)
            return err_set(ERR_INPUT,
                           "%s/data.json: the tokenizer has no special id \"%s\", which "
                           "data.objective = labels needs; make the shards with a tokenizer that "
                           "has [CLS] and [SEP]",
                           l->directory, sidecar_special_name((enum sidecar_special)i));
    return ERR_OK;
}

static enum err check_documents(const struct shard *s, size_t classes)
{
    for (uint64_t d = 0; d < s->index.documents_count; d++) {
        uint64_t texts = indexed_document(&s->index, d + 1) - indexed_document(&s->index, d);
        int32_t class = labels_at(s->labels, d);
        if (texts < 1 || texts > 2)
            return err_set(ERR_INPUT, "%s: document %llu has %llu texts; 1 or 2 are expected",
                           s->path, (unsigned long long)d, (unsigned long long)texts);
        if ((size_t) class >= classes)
            return err_set(ERR_INPUT, "%s: document %llu has class %d; data.json names %zu",
                           s->path, (unsigned long long)d, class, classes);
    }
    return ERR_OK;
}

/* data.classes: the names of all tasks' classes, in order; of a named task "task=class". */
static enum err check_classes(const struct loader *l, const struct shard *s,
                              const struct sidecar *c)
{
    const struct config_list *wanted = &l->options.settings->data_classes;
    size_t prefix = strlen(s->set), seen = 0;
    for (size_t i = 0; i < wanted->count; i++) {
        const char *name = wanted->items[i];
        if (prefix && (strncmp(name, s->set, prefix) != 0 || name[prefix] != '='))
            continue;
        name += prefix ? prefix + 1 : 0;
        if (seen >= c->classes_count || strcmp(name, c->classes[seen].name) != 0)
            return err_set(
                ERR_MISMATCH, "%s: class %zu is \"%s\" in its data.json and \"%s\" in data.classes",
                s->path, seen, seen < c->classes_count ? c->classes[seen].name : "(none)", name);
        seen++;
    }
    if (wanted->count && seen && seen != c->classes_count)
        return err_set(ERR_MISMATCH, "%s: its data.json names %zu classes, data.classes %zu",
                       s->path, c->classes_count, seen);
    return ERR_OK;
}

static enum err task_of(const struct loader *l, const struct shard *s, struct arena *perm,
                        uint32_t *task)
{
    struct shard_group *groups;
    size_t count;
    *task = 0;
    TRY(shard_groups(&l->options.settings->data_train, perm, &groups, &count));
    for (size_t i = 0; i < count; i++)
        if (!strcmp(groups[i].name, s->set)) {
            *task = (uint32_t)i;
            return ERR_OK;
        }
    return count < 2 ? ERR_OK
                     : err_set(ERR_INPUT, "%s: \"%s\" is not the name of a task of data.train",
                               s->path, s->set);
}

/* model.classes, where the model has heads for classes. */
static enum err check_head(const struct loader *l, const struct shard *s, const struct sidecar *c,
                           uint32_t task)
{
    const struct settings *x = l->options.settings;
    if (!x->model_classes.count)
        return ERR_OK;
    if (task >= x->model_classes.count)
        return err_set(ERR_CONFIG, "data.train names more tasks than the %zu of model.classes",
                       x->model_classes.count);
    if ((size_t)keys_classes(x, task) == c->classes_count)
        return ERR_OK;
    return err_set(ERR_CONFIG, "%s: its data.json names %zu classes, model.classes %lld", s->path,
                   c->classes_count, (long long)keys_classes(x, task));
}

static enum err open_shard(struct loader *l, size_t i, uint32_t *task, struct arena *perm)
{
    const struct shard *s = &l->set.shards[i];
    struct sidecar c;
    const char *directory;
    bool found;
    if (!s->labels)
        return err_set(ERR_INPUT,
                       "%s: no labels next to it (.labels); atoll data --labels makes such shards",
                       s->path);
    TRY(loader_directory(s->path, perm, &directory));
    TRY(sidecar_read(&c, directory, perm, &found));
    if (found && c.classes_count < 2)
        return err_set(ERR_INPUT,
                       "%s/data.json: %zu class%s; a task needs two or more, whose names "
                       "atoll data --labels writes there",
                       directory, c.classes_count, c.classes_count == 1 ? "" : "es");
    TRY(check_documents(s, c.classes_count));
    TRY(check_classes(l, s, &c));
    TRY(task_of(l, s, perm, task));
    return check_head(l, s, &c, *task);
}

static enum err labelled_open(struct loader *l, struct arena *perm)
{
    struct labelled *x;
    TRY(check_specials(l));
    TRY_ALLOC(x = arena_alloc(perm, sizeof *x));
    TRY_ALLOC(x->tasks = arena_array(perm, l->set.count, sizeof *x->tasks));
    TRY_ALLOC(l->window_first = arena_array(perm, l->set.count + 1, sizeof *l->window_first));
    for (size_t i = 0; i < l->set.count; i++) {
        TRY(open_shard(l, i, &x->tasks[i], perm));
        l->window_first[i + 1] = l->window_first[i] + l->set.shards[i].index.documents_count;
    }
    l->windows = l->window_first[l->set.count];
    l->sequence_targets = true;
    l->own = x;
    return ERR_OK;
}

/* ---- examples ---- */

/* The texts' beginnings; the longer text loses its end first. */
static struct pair pair_of(const struct loader *l, uint64_t window, const struct shard **shard,
                           uint64_t *document)
{
    size_t i = loader_shard(l, window);
    const struct shard *s = &l->set.shards[i];
    uint64_t d = window - l->window_first[i], first = indexed_document(&s->index, d);
    struct pair p = {.texts = (size_t)(indexed_document(&s->index, d + 1) - first)};
    size_t room = l->options.sequence - 1 - p.texts;
    for (size_t t = 0; t < p.texts; t++) {
        p.first[t] = indexed_first(&s->index, first + t);
        p.tokens[t] = indexed_length(&s->index, first + t);
    }
    loader_fit(&p.tokens[0], &p.tokens[1], room);
    *shard = s;
    *document = d;
    return p;
}

static size_t pair_length(const struct pair *p)
{
    return 1 + p->texts + p->tokens[0] + p->tokens[1];
}

static size_t labelled_length(const struct loader *l, uint64_t window, uint64_t example)
{
    const struct shard *s;
    uint64_t document;
    (void)example;
    struct pair p = pair_of(l, window, &s, &document);
    return pair_length(&p);
}

static void labelled_append(const struct loader *l, uint64_t window, uint64_t example,
                            struct batch *b)
{
    const struct labelled *x = l->own;
    const struct shard *s;
    uint64_t document;
    (void)example;
    struct pair p = pair_of(l, window, &s, &document);
    size_t n = pair_length(&p), at = batch_append(b, n), end = at;
    b->tokens[end++] = l->sidecar.special[SIDECAR_CLS];
    for (size_t t = 0; t < p.texts; t++) {
        shard_read(s, p.first[t], p.tokens[t], b->tokens + end);
        b->tokens[end + p.tokens[t]] = l->sidecar.special[SIDECAR_SEP];
        for (size_t i = 0; i <= p.tokens[t]; i++)
            b->types[end + i] = (int32_t)t;
        end += p.tokens[t] + 1;
    }
    for (size_t i = at; i < end; i++)
        b->targets[i] = -1;
    b->labels[b->sequences - 1] = labels_at(s->labels, document);
    b->tasks[b->sequences - 1] = (int32_t)x->tasks[s - l->set.shards];
}

static void labelled_count(const struct loader *l, uint64_t window, uint64_t example,
                           struct target_counts *c)
{
    (void)l;
    (void)window;
    (void)example;
    c->sequence++;
}

static void labelled_origin(const struct loader *l, uint64_t window, size_t *shard, uint64_t *token)
{
    *shard = loader_shard(l, window);
    const struct indexed *x = &l->set.shards[*shard].index;
    *token = indexed_first(x, indexed_document(x, window - l->window_first[*shard]));
}

const struct objective objective_labels = {.name = "labels",
                                           .varies = true,
                                           .open = labelled_open,
                                           .length = labelled_length,
                                           .append = labelled_append,
                                           .count = labelled_count,
                                           .origin = labelled_origin};
