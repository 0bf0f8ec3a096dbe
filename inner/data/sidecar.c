/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/sidecar.h"
#include <string.h>
#include "inner/config/json.h"
#include "kernels/base/digest.h"
#include "kernels/base/file.h"

enum { SIDECAR_BYTES_MAX = 64 << 20 };
static const char FILE_NAME[] = "data.json";
static const char *const special_names[SIDECAR_SPECIALS] = {"cls", "sep", "mask", "pad", "unk"};

const char *sidecar_special_name(enum sidecar_special i)
{
    return special_names[i];
}

struct sidecar sidecar_none(void)
{
    struct sidecar s = {.tokenizer = "", .kind = "", .sha256 = "", .word_start = ""};
    for (int i = 0; i < SIDECAR_SPECIALS; i++)
        s.special[i] = -1;
    return s;
}

/* ---- reading ---- */

static enum err read_text(const struct json *j, const char *path, const char *key, const char **out)
{
    const struct json *x = json_find(j, key);
    if (!x)
        return ERR_OK;
    if (x->kind != JSON_WORDS || strlen(x->text) != x->text_bytes)
        return err_set(ERR_INPUT, "%s: \"%s\" is not a text", path, key);
    *out = x->text;
    return ERR_OK;
}

/* Left as it is where the key is missing or null. */
static enum err read_whole(const struct json *j, const char *path, const char *key, int64_t most,
                           int64_t *out)
{
    const struct json *x = json_find(j, key);
    if (!x || x->kind == JSON_NOTHING)
        return ERR_OK;
    if (x->kind != JSON_WHOLE || x->whole < 0 || x->whole > most)
        return err_set(ERR_INPUT, "%s: \"%s\" is not a whole number from 0 to %lld", path, key,
                       (long long)most);
    *out = x->whole;
    return ERR_OK;
}

static enum err read_specials(struct sidecar *s, const struct json *j, const char *path)
{
    const struct json *special = json_find(j, "special");
    for (int i = 0; special && i < SIDECAR_SPECIALS; i++) {
        int64_t id = -1;
        TRY(read_whole(special, path, special_names[i], s->vocab - 1, &id));
        s->special[i] = (int32_t)id;
    }
    return ERR_OK;
}

static enum err read_classes(struct sidecar *s, const struct json *j, const char *path,
                             struct arena *a)
{
    const struct json *list = json_find(j, "classes");
    struct sidecar_class *classes;
    if (!list)
        return ERR_OK;
    if (list->kind != JSON_LIST || list->count > SIDECAR_CLASSES_MAX)
        return err_set(ERR_INPUT, "%s: \"classes\" is not a list of at most %d", path,
                       SIDECAR_CLASSES_MAX);
    TRY_ALLOC(classes = arena_array(a, list->count, sizeof *classes));
    for (size_t i = 0; i < list->count; i++) {
        int64_t count = 0;
        TRY(read_text(&list->items[i], path, "name", &classes[i].name));
        TRY(read_whole(&list->items[i], path, "count", INT64_MAX, &count));
        if (!classes[i].name || !*classes[i].name)
            return err_set(ERR_INPUT, "%s: class %zu has no name", path, i);
        classes[i].count = (uint64_t)count;
    }
    s->classes = classes;
    s->classes_count = list->count;
    return ERR_OK;
}

static enum err read_sidecar(struct sidecar *s, const char *path, struct arena *a)
{
    struct json j;
    int64_t tokens = 0, documents = 0;
    TRY(json_read_file(&j, path, SIDECAR_BYTES_MAX, a));
    TRY(read_text(&j, path, "tokenizer", &s->tokenizer));
    TRY(read_text(&j, path, "kind", &s->kind));
    TRY(read_text(&j, path, "sha256", &s->sha256));
    TRY(read_text(&j, path, "word_start", &s->word_start));
    TRY(read_whole(&j, path, "vocab", INT32_MAX, &s->vocab));
    TRY(read_whole(&j, path, "tokens", INT64_MAX, &tokens));
    TRY(read_whole(&j, path, "documents", INT64_MAX, &documents));
    s->tokens = (uint64_t)tokens;
    s->documents = (uint64_t)documents;
    if (s->vocab < 2)
        return err_set(ERR_INPUT, "%s: \"vocab\" is missing or less than 2", path);
    if (*s->sha256 && !digest_is_hex(s->sha256))
        return err_set(ERR_INPUT, "%s: \"sha256\" is not 64 hexadecimal characters", path);
    if (strchr(s->tokenizer, '/'))
        return err_set(ERR_INPUT, "%s: \"tokenizer\" is not the name of a file next to it", path);
    TRY(read_specials(s, &j, path));
    return read_classes(s, &j, path, a);
}

enum err sidecar_read(struct sidecar *s, const char *directory, struct arena *a, bool *found)
{
    const char *path;
    *s = sidecar_none();
    TRY_ALLOC(path = arena_printf(a, "%s/%s", directory, FILE_NAME));
    *found = file_exists(path);
    return *found ? read_sidecar(s, path, a) : ERR_OK;
}

/* ---- writing ---- */

/* *text + ,"key": "value"; nothing without a value. */
static enum err add_text(char **text, const char *key, const char *value, struct arena *a)
{
    char *quoted;
    if (!*value)
        return ERR_OK;
    TRY_ALLOC(quoted = json_quoted(value, a));
    TRY_ALLOC(*text = arena_printf(a, "%s,\n \"%s\": %s", *text, key, quoted));
    return ERR_OK;
}

static enum err add_specials(char **text, const struct sidecar *s, struct arena *a)
{
    const char *comma = "";
    TRY_ALLOC(*text = arena_printf(a, "%s,\n \"special\": {", *text));
    for (int i = 0; i < SIDECAR_SPECIALS; i++) {
        if (s->special[i] < 0)
            continue;
        TRY_ALLOC(*text = arena_printf(a, "%s%s\"%s\": %d", *text, comma, special_names[i],
                                       s->special[i]));
        comma = ", ";
    }
    TRY_ALLOC(*text = arena_printf(a, "%s}", *text));
    return ERR_OK;
}

/* A class for each line. Their texts are made apart: one text that grew by each class would be
 * copied as many times. */
static enum err write_classes(struct file_stream *f, const struct sidecar *s, struct arena *a)
{
    static const char begin[] = ",\n \"classes\": [", end[] = "]";
    char *line, *quoted;
    if (!s->classes_count)
        return ERR_OK;
    TRY(file_stream_append(f, begin, strlen(begin)));
    for (size_t i = 0; i < s->classes_count; i++) {
        TRY_ALLOC(quoted = json_quoted(s->classes[i].name, a));
        TRY_ALLOC(line = arena_printf(a, "%s\n  {\"name\": %s, \"count\": %llu}", i ? "," : "",
                                      quoted, (unsigned long long)s->classes[i].count));
        TRY(file_stream_append(f, line, strlen(line)));
    }
    return file_stream_append(f, end, strlen(end));
}

static enum err write_sidecar(struct file_stream *f, const struct sidecar *s, const char *directory,
                              struct arena *a)
{
    static const char end[] = "\n}\n";
    char *text, *path;
    TRY_ALLOC(text = arena_printf(a, "{\"vocab\": %lld", (long long)s->vocab));
    TRY(add_text(&text, "tokenizer", s->tokenizer, a));
    TRY(add_text(&text, "kind", s->kind, a));
    TRY(add_text(&text, "sha256", s->sha256, a));
    TRY(add_text(&text, "word_start", s->word_start, a));
    TRY(add_specials(&text, s, a));
    TRY_ALLOC(text = arena_printf(a, "%s,\n \"tokens\": %llu, \"documents\": %llu", text,
                                  (unsigned long long)s->tokens, (unsigned long long)s->documents));
    TRY_ALLOC(path = arena_printf(a, "%s/%s", directory, FILE_NAME));
    TRY(file_stream_open(f, path, a));
    TRY(file_stream_append(f, text, strlen(text)));
    TRY(write_classes(f, s, a));
    TRY(file_stream_append(f, end, strlen(end)));
    return file_stream_commit(f);
}

enum err sidecar_write(const struct sidecar *s, const char *directory)
{
    struct arena a = arena_make(0);
    struct file_stream f = {0};
    enum err e = write_sidecar(&f, s, directory, &a);
    file_stream_abandon(&f);
    arena_free(&a);
    return e;
}

/* ---- comparing ---- */

bool sidecar_same_tokenizer(const struct sidecar *a, const struct sidecar *b)
{
    return !strcmp(a->sha256, b->sha256) && a->vocab == b->vocab &&
           !memcmp(a->special, b->special, sizeof a->special);
}

bool sidecar_is_special(const struct sidecar *s, int32_t id)
{
    bool special = false;
    for (int i = 0; i < SIDECAR_SPECIALS; i++)
        special |= s->special[i] == id;
    return special;
}
