/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/tasks.h"
#include <string.h>
#include "kernels/base/file.h"
#include "outer/run/load.h"

static const char *shots_of(const struct outer_settings *o, const char *task)
{
    char name[SITE_NAME_MAX + 1];
    const char *file;
    for (size_t i = 0; i < o->eval_shots_from.count; i++)
        if (keys_named_file(o->eval_shots_from.items[i], name, &file) && strcmp(name, task) == 0)
            return file;
    return NULL;
}

static enum err task_open(struct tasks *x, const struct settings *s, const struct outer_settings *o,
                          const char *item, struct arena *perm)
{
    char name[SITE_NAME_MAX + 1];
    bool bytes = s->data_tokenizer == DATA_TOKENIZER_BYTES;
    struct choices_options options = {.questions = (size_t)o->eval_questions,
                                      .shots = (size_t)o->eval_shots,
                                      .vocab = s->model_vocab_size,
                                      .tokenizer = x->tokenizer,
                                      .ids = !bytes && !x->tokenizer};
    ASSERT(keys_named_file(item, name, &options.path)); /* keys_outer_check */
    options.shots_path = shots_of(o, name);
    if (!options.shots_path)
        options.shots = 0;
    TRY_ALLOC(options.name = arena_string(perm, name, strlen(name)));
    enum err e = choices_open(&x->task[x->count], &options);
    if (e && file_exists(item))
        return err_add(e, "eval.tasks: %s has no name: NAME=%s; \"%s\" was taken for one: ", item,
                       item, name);
    x->count += !e;
    return e;
}

enum err tasks_open(struct tasks *x, const struct settings *s, const struct outer_settings *o,
                    struct arena *perm)
{
    *x = (struct tasks){.count = 0};
    if ((o->eval_tasks.count || o->eval_prompts.count) && s->data_tokenizer != DATA_TOKENIZER_BYTES)
        TRY(load_tokenizer(s, NULL, &x->tokenizer));
    for (size_t i = 0; i < o->eval_tasks.count; i++)
        TRY(task_open(x, s, o, o->eval_tasks.items[i], perm));
    return ERR_OK;
}

void tasks_close(struct tasks *x)
{
    for (size_t i = 0; i < x->count; i++)
        choices_close(&x->task[i]);
    tokenizer_close(x->tokenizer);
    *x = (struct tasks){.count = 0};
}
