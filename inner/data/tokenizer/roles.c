/* SPDX-License-Identifier: Apache-2.0 */
/* The roles of special tokens, and the files next to a vocabulary that name them. */
#include <string.h>
#include "inner/data/tokenizer/tokenizer_read.h"
#include "kernels/base/file.h"

enum { SIDE_FILE_BYTES_MAX = 16 << 20 };

static const char *const role_keys[] = {
#define X(role, key, a, b, c) [TOKENIZER_##role] = key,
    TOKENIZER_ROLES(X)
#undef X
};
static const char *const role_texts[][3] = {
#define X(role, key, a, b, c) [TOKENIZER_##role] = {a, b, c},
    TOKENIZER_ROLES(X)
#undef X
};

enum err tokenizer_side_read(const struct tokenizer *t, const char *name, struct arena *a,
                             struct json *j)
{
    const char *slash = strrchr(t->file, '/');
    int folder = slash ? (int)(slash - t->file) : 1;
    char *path;
    *j = (struct json){0};
    TRY_ALLOC(path = arena_printf(a, "%.*s/%s", folder, slash ? t->file : ".", name));
    return file_exists(path) ? json_read_file(j, path, SIDE_FILE_BYTES_MAX, a) : ERR_OK;
}

/* "[CLS]", or {"content": "[CLS]", ..}. */
static void roles_take(struct tokenizer *t, const struct json *j)
{
    for (int role = 0; role < TOKENIZER_ROLE_COUNT; role++) {
        const struct json *item = json_find(j, role_keys[role]);
        const char *text = item && item->kind == JSON_WORDS ? item->text
                           : item                           ? tokenizer_json_text(item, "content")
                                                            : NULL;
        if (text && t->roles[role] < 0)
            t->roles[role] = tokenizer_id(t, text);
    }
}

enum err tokenizer_roles_read(struct tokenizer *t, struct arena *scratch)
{
    static const char *const names[] = {"special_tokens_map.json", "tokenizer_config.json"};
    struct json j;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        TRY(tokenizer_side_read(t, names[i], scratch, &j));
        roles_take(t, &j);
    }
    for (int role = 0; role < TOKENIZER_ROLE_COUNT; role++)
        for (int i = 0; i < 3 && t->roles[role] < 0; i++)
            t->roles[role] = tokenizer_id(t, role_texts[role][i]);
    if (t->roles[TOKENIZER_UNK] < 0)
        t->roles[TOKENIZER_UNK] = t->model.unknown;
    return ERR_OK;
}

enum err tokenizer_specials_add(struct tokenizer *t)
{
    TRY_ALLOC(t->added = arena_array(&t->arena, TOKENIZER_ROLE_COUNT, sizeof *t->added));
    for (int role = 0; role < TOKENIZER_ROLE_COUNT; role++)
        if (t->roles[role] >= 0 && !t->special[t->roles[role]])
            TRY(tokenizer_added_add(t, t->tokens[t->roles[role]], t->roles[role],
                                    (struct tokenizer_added){.special = true}));
    return ERR_OK;
}
