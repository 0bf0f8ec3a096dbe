/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/eval/choices.h"
#include <stdio.h>
#include <string.h>
#include "inner/config/json.h"
#include "inner/config/textfile.h"
#include "inner/data/csv.h"
#include "inner/data/shard.h"
#include "inner/data/tokenizer/unicode.h"
#include "kernels/base/bytes.h"
#include "kernels/base/file.h"

enum {
    CSV_CHOICES = 4,
    CSV_FIELDS = CSV_CHOICES + 2,
    FILE_BYTES_MAX = 1 << 30,
    LINE_BYTES_MAX = 1 << 20,
    BIN_HEADER_BYTES = 1024,
    BIN_MAGIC = 20240522,
    BIN_VERSION = 1,
    BIN_EXAMPLE = 65535
};

/* ---- texts ---- */

static bool is_blank(uint32_t point)
{
    return (unicode_class(point) & UNICODE_SPACE) || (point >= 0x1c && point <= 0x1f);
}

/* As Python's strip(). */
static size_t blanks_before(const char *s, size_t n)
{
    size_t at = 0;
    for (uint32_t point; at < n;) {
        size_t bytes = unicode_read((const uint8_t *)s + at, n - at, &point);
        if (!bytes || !is_blank(point))
            break;
        at += bytes;
    }
    return at;
}

static size_t blanks_behind(const char *s, size_t n)
{
    size_t end = n;
    while (end) {
        size_t at = end - 1;
        uint32_t point;
        while (at && ((uint8_t)s[at] & 0xc0) == 0x80)
            at--;
        if (unicode_read((const uint8_t *)s + at, end - at, &point) != end - at || !is_blank(point))
            break;
        end = at;
    }
    return n - end;
}

static double characters(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((uint8_t)s[i] & 0xc0) != 0x80;
    return (double)count;
}

static enum err add_text(struct buffer *b, const char *text)
{
    return buffer_add(b, text, strlen(text));
}

/* As Python's capitalize(), but that a first letter outside of ASCII stays as it is. */
static enum err add_capitalised(struct buffer *b, const char *s, size_t n)
{
    for (size_t at = 0, bytes; at < n; at += bytes) {
        uint32_t point, lower[UNICODE_LOWER_MAX];
        uint8_t out[UNICODE_BYTES_MAX];
        bytes = unicode_read((const uint8_t *)s + at, n - at, &point);
        ASSERT(bytes); /* Jansson has checked it */
        if (at == 0) {
            uint32_t upper = point >= 'a' && point <= 'z' ? point - 32 : point;
            TRY(buffer_add(b, out, unicode_write(upper, out)));
            continue;
        }
        size_t count = unicode_lower(point, lower);
        for (size_t i = 0; i < count; i++)
            TRY(buffer_add(b, out, unicode_write(lower[i], out)));
    }
    return ERR_OK;
}

/* ---- HellaSwag's texts: lm_eval/tasks/hellaswag/utils.py, preprocess() ---- */

/* Replaces each `from`, from left to right. */
static void replace(struct buffer *b, const char *from, const char *to)
{
    size_t n = strlen(from), m = strlen(to), out = 0;
    ASSERT(m <= n);
    for (size_t at = 0; at < b->count;) {
        bool here = b->count - at >= n && memcmp(b->data + at, from, n) == 0;
        memmove(b->data + out, here ? (const uint8_t *)to : b->data + at, here ? m : 1);
        out += here ? m : 1;
        at += here ? n : 1;
    }
    b->count = out;
}

/* The regular expression \[.*?\], whose dot is no line break. */
static void remove_brackets(struct buffer *b)
{
    size_t out = 0;
    for (size_t at = 0; at < b->count;) {
        size_t end = at;
        while (b->data[at] == '[' && end < b->count && b->data[end] != ']' && b->data[end] != '\n')
            end++;
        if (b->data[at] == '[' && end < b->count && b->data[end] == ']')
            at = end + 1;
        else
            b->data[out++] = b->data[at++];
    }
    b->count = out;
}

static void preprocess(struct buffer *b)
{
    size_t before = blanks_before((char *)b->data, b->count);
    memmove(b->data, b->data + before, b->count - before);
    b->count -= before;
    b->count -= blanks_behind((char *)b->data, b->count);
    replace(b, " [title]", ". ");
    remove_brackets(b);
    replace(b, "  ", " ");
}

/* ---- a question in words ---- */

struct words {           /* of one line; everything in its arena */
    const char *subject; /* NULL: none */
    const char *prompt;
    const char *choice[CHOICES_MAX];
    size_t count, label;
};

static enum err keep(const struct buffer *b, struct arena *a, const char **to)
{
    TRY_ALLOC(*to = arena_string(a, (const char *)b->data, b->count));
    return ERR_OK;
}

/* The text of a key; a zero byte in it would cut it. */
static enum err text_of(const struct json *j, const char *key, const char **text)
{
    const struct json *item = json_find(j, key);
    *text = "";
    if (!item || item->kind != JSON_WORDS || strlen(item->text) != item->text_bytes)
        return err_set(ERR_INPUT, "\"%s\" is missing or no text", key);
    *text = item->text;
    return ERR_OK;
}

static enum err choices_of(const struct json *list, struct words *w)
{
    if (!list || list->kind != JSON_LIST || list->count < 2 || list->count > CHOICES_MAX)
        return err_set(ERR_INPUT, "its choices are no list of 2 to %d texts", CHOICES_MAX);
    for (w->count = 0; w->count < list->count; w->count++) {
        const struct json *item = &list->items[w->count];
        if (item->kind != JSON_WORDS || strlen(item->text) != item->text_bytes)
            return err_set(ERR_INPUT, "choice %zu is no text", w->count);
        w->choice[w->count] = item->text;
    }
    return ERR_OK;
}

/* A number, or digits; letters: A is 0. */
static enum err label_of(const struct json *j, const char *key, bool letters, struct words *w)
{
    const struct json *item = json_find(j, key);
    int64_t label = -1;
    if (item && item->kind == JSON_WHOLE)
        label = item->whole;
    else if (item && item->kind == JSON_WORDS && item->text_bytes == 1 && *item->text >= '0' &&
             *item->text <= '9')
        label = *item->text - '0';
    else if (letters && item && item->kind == JSON_WORDS && item->text_bytes == 1)
        label = *item->text - 'A';
    if (label < 0 || label >= (int64_t)w->count)
        return err_set(ERR_INPUT,
                       "\"%s\" names none of its %zu choices (a test split without answers?)", key,
                       w->count);
    w->label = (size_t)label;
    return ERR_OK;
}

static enum err read_hellaswag(const struct json *j, struct words *w, struct buffer *b,
                               struct arena *a)
{
    const char *activity, *first, *second;
    TRY(text_of(j, "activity_label", &activity));
    TRY(text_of(j, "ctx_a", &first));
    TRY(text_of(j, "ctx_b", &second));
    TRY(choices_of(json_find(j, "endings"), w));
    b->count = 0;
    TRY(add_text(b, activity));
    TRY(add_text(b, ": "));
    TRY(add_text(b, first));
    TRY(add_text(b, " "));
    TRY(add_capitalised(b, second, strlen(second)));
    preprocess(b);
    TRY(keep(b, a, &w->prompt));
    for (size_t i = 0; i < w->count; i++) {
        b->count = 0;
        TRY(add_text(b, w->choice[i]));
        preprocess(b);
        TRY(keep(b, a, &w->choice[i]));
    }
    return label_of(j, "label", false, w);
}

static enum err ask(struct words *w, const char *question, struct arena *a)
{
    TRY_ALLOC(w->prompt = arena_printf(a, "Question: %s\nAnswer:", question));
    return ERR_OK;
}

/* The label of answerKey among those of the choices. */
static enum err find_key(const struct json *j, const char *const labels[], struct words *w)
{
    const char *key;
    TRY(text_of(j, "answerKey", &key));
    for (w->label = 0; w->label < w->count; w->label++)
        if (strcmp(labels[w->label], key) == 0)
            return ERR_OK;
    return err_set(ERR_INPUT, "\"answerKey\": \"%.20s\" is the label of none of its choices", key);
}

/* {"stem": .., "choices": [{"text": .., "label": ..}, ..]} */
static enum err read_arc_ai2(const struct json *j, const struct json *question, struct words *w,
                             struct arena *a)
{
    const char *stem, *labels[CHOICES_MAX];
    const struct json *list = json_find(question, "choices");
    TRY(text_of(question, "stem", &stem));
    if (!list || list->kind != JSON_LIST || list->count < 2 || list->count > CHOICES_MAX)
        return err_set(ERR_INPUT, "its choices are no list of 2 to %d", CHOICES_MAX);
    for (w->count = 0; w->count < list->count; w->count++) {
        TRY(text_of(&list->items[w->count], "text", &w->choice[w->count]));
        TRY(text_of(&list->items[w->count], "label", &labels[w->count]));
    }
    TRY(ask(w, stem, a));
    return find_key(j, labels, w);
}

/* {"choices": {"text": [..], "label": [..]}} */
static enum err read_arc(const struct json *j, struct words *w, struct arena *a)
{
    const struct json *question = json_find(j, "question"), *choices = json_find(j, "choices"),
                      *list = choices ? json_find(choices, "label") : NULL;
    const char *labels[CHOICES_MAX], *text;
    if (question && question->kind == JSON_MAP)
        return read_arc_ai2(j, question, w, a);
    TRY(text_of(j, "question", &text));
    TRY(choices_of(choices ? json_find(choices, "text") : NULL, w));
    if (!list || list->kind != JSON_LIST || list->count != w->count)
        return err_set(ERR_INPUT, "its choices have no label each");
    for (size_t i = 0; i < w->count; i++)
        labels[i] = list->items[i].kind == JSON_WORDS ? list->items[i].text : "";
    TRY(ask(w, text, a));
    return find_key(j, labels, w);
}

static enum err add_lettered(struct words *w, const char *question, struct buffer *b,
                             struct arena *a)
{
    static const char letters[CHOICES_MAX][2] = {"A", "B", "C", "D", "E", "F", "G", "H", "I",
                                                 "J", "K", "L", "M", "N", "O", "P", "Q", "R",
                                                 "S", "T", "U", "V", "W", "X", "Y", "Z"};
    size_t n = strlen(question), before = blanks_before(question, n),
           behind = before < n ? blanks_behind(question, n) : 0;
    b->count = 0;
    TRY(buffer_add(b, question + before, n - before - behind));
    for (size_t i = 0; i < w->count; i++) {
        TRY(add_text(b, "\n"));
        TRY(add_text(b, letters[i]));
        TRY(add_text(b, ". "));
        TRY(add_text(b, w->choice[i]));
        w->choice[i] = letters[i];
    }
    TRY(add_text(b, "\nAnswer:"));
    return keep(b, a, &w->prompt);
}

static enum err read_mmlu(const struct json *j, struct words *w, struct buffer *b, struct arena *a)
{
    const char *question;
    TRY(text_of(j, "question", &question));
    TRY(choices_of(json_find(j, "choices"), w));
    if (json_find(j, "subject"))
        TRY(text_of(j, "subject", &w->subject));
    TRY(add_lettered(w, question, b, a));
    return label_of(j, "answer", true, w);
}

static enum err read_query(const struct json *j, struct words *w)
{
    TRY(text_of(j, "query", &w->prompt));
    TRY(choices_of(json_find(j, "choices"), w));
    return label_of(j, "gold", false, w);
}

static enum err read_words(const struct json *j, struct words *w, struct buffer *b, struct arena *a)
{
    *w = (struct words){0};
    if (j->kind == JSON_MAP && json_find(j, "endings"))
        return read_hellaswag(j, w, b, a);
    if (j->kind == JSON_MAP && json_find(j, "answerKey"))
        return read_arc(j, w, a);
    if (j->kind == JSON_MAP && json_find(j, "answer"))
        return read_mmlu(j, w, b, a);
    if (j->kind == JSON_MAP && json_find(j, "gold"))
        return read_query(j, w);
    return err_set(ERR_INPUT, "no question of HellaSwag (\"endings\"), ARC (\"answerKey\"), MMLU "
                              "(\"answer\"), and none with \"query\", \"choices\" and \"gold\"");
}

/* ---- worked examples ---- */

struct shots {
    struct arena arena;
    struct buffer list; /* struct words */
    size_t count;
};

struct reading { /* of one task */
    struct choices *c;
    const struct choices_options *o;
    const char *path; /* of the file that is being read */
    struct tokenizer_scratch *scratch;
    struct buffer_ids pair;
    struct buffer text, context;
    struct csv csv; /* its text, and the place in it */
    struct shots shots;
};

static void reading_close(struct reading *r)
{
    tokenizer_scratch_close(r->scratch);
    buffer_ids_free(&r->pair);
    buffer_free(&r->text);
    buffer_free(&r->context);
    buffer_free(&r->csv.scratch);
    buffer_free(&r->shots.list);
    arena_free(&r->shots.arena);
}

static bool same_subject(const struct words *a, const struct words *b)
{
    return !a->subject || (b->subject && strcmp(a->subject, b->subject) == 0);
}

/* "The following are multiple choice questions (with answers) about abstract algebra." */
static enum err add_description(struct buffer *b, const char *subject)
{
    TRY(add_text(b, "The following are multiple choice questions (with answers) about "));
    size_t at = b->count;
    TRY(add_text(b, subject));
    for (; at < b->count; at++)
        b->data[at] = b->data[at] == '_' ? ' ' : b->data[at];
    return add_text(b, ".\n\n");
}

static enum err make_context(struct reading *r, const struct words *w)
{
    size_t taken = 0;
    r->context.count = 0;
    if (w->subject)
        TRY(add_description(&r->context, w->subject));
    for (size_t i = 0; i < r->shots.count && taken < r->o->shots; i++) {
        const struct words *shot = (struct words *)(void *)r->shots.list.data + i;
        if (!same_subject(w, shot))
            continue;
        taken++;
        TRY(add_text(&r->context, shot->prompt));
        TRY(add_text(&r->context, " "));
        TRY(add_text(&r->context, shot->choice[shot->label]));
        TRY(add_text(&r->context, "\n\n"));
    }
    if (taken < r->o->shots)
        return err_set(ERR_INPUT,
                       "eval.shots = %zu worked examples of %s are wanted, and %s has %zu",
                       r->o->shots, w->subject ? w->subject : "the task",
                       r->o->shots_path ? r->o->shots_path : "no file in eval.shots_from", taken);
    return add_text(&r->context, w->prompt);
}

/* ---- ids ---- */

static enum err add_ids(struct reading *r, const char *text, size_t n, struct buffer_ids *out)
{
    if (r->o->tokenizer)
        return tokenizer_encode(r->o->tokenizer, r->scratch, text, n, out);
    for (size_t i = 0; i < n; i++)
        TRY(buffer_ids_add(out, (uint8_t)text[i]));
    return ERR_OK;
}

/* The arrays may have moved. */
static void point_at(struct choices *c)
{
    c->question = (struct choices_question *)(void *)c->questions.data;
    c->choice = (struct choices_choice *)(void *)c->list.data;
}

static enum err question_begin(struct choices *c, size_t label)
{
    const struct choices_question q = {
        .context = c->ids.count, .first = c->choice_count, .label = label};
    if (c->count == CHOICES_QUESTIONS_MAX)
        return err_set(ERR_INPUT, "more than %d questions", CHOICES_QUESTIONS_MAX);
    TRY(buffer_add(&c->questions, &q, sizeof q));
    point_at(c);
    c->count++;
    return ERR_OK;
}

static struct choices_question *last_question(struct choices *c)
{
    return &c->question[c->count - 1];
}

/* What was added to the ids since `at` is a choice. */
static enum err choice_end(struct choices *c, size_t at, double length)
{
    const struct choices_choice x = {at, c->ids.count - at, length};
    TRY(buffer_add(&c->list, &x, sizeof x));
    point_at(c);
    c->choice_count++;
    last_question(c)->count++;
    return ERR_OK;
}

static enum err add_choice(struct reading *r, size_t context_bytes, const char *choice)
{
    struct choices *c = r->c;
    size_t at = c->ids.count, context = last_question(c)->context_count, n = strlen(choice);
    r->text.count = 0;
    TRY(buffer_add(&r->text, r->context.data, r->context.count)); /* its blanks included */
    TRY(add_text(&r->text, " "));
    TRY(add_text(&r->text, choice));
    ASSERT(context_bytes <= r->context.count);
    r->pair.count = 0;
    TRY(add_ids(r, (char *)r->text.data, r->text.count, &r->pair));
    for (size_t i = context; i < r->pair.count; i++)
        TRY(buffer_ids_add(&c->ids, r->pair.ids[i]));
    if (r->pair.count <= context || n == 0)
        return err_set(ERR_INPUT, "choice %zu is empty", last_question(c)->count);
    return choice_end(c, at, characters(choice, n));
}

static enum err add_question(struct reading *r, const struct words *w)
{
    struct choices *c = r->c;
    TRY(make_context(r, w));
    size_t bytes = r->context.count - blanks_behind((char *)r->context.data, r->context.count);
    TRY(question_begin(c, w->label));
    TRY(add_ids(r, (char *)r->context.data, bytes, &c->ids));
    last_question(c)->context_count = c->ids.count - last_question(c)->context;
    if (!last_question(c)->context_count)
        return err_set(ERR_INPUT, "the text before the choices is empty");
    for (size_t i = 0; i < w->count; i++)
        TRY(add_choice(r, bytes, w->choice[i]));
    return ERR_OK;
}

static enum err check_ids(const struct choices *c, size_t from, int64_t vocab)
{
    for (size_t i = from; i < c->ids.count; i++)
        if (c->ids.ids[i] < 0 || c->ids.ids[i] >= vocab)
            return err_set(ERR_INPUT,
                           "id %d is beyond model.vocab_size = %lld; was the file made for another "
                           "tokenizer?",
                           c->ids.ids[i], (long long)vocab);
    return ERR_OK;
}

/* ---- texts of a file ---- */

/* One record of r->csv, which moves past it; w->count is 0 of a blank line. Texts in `a`. */
typedef enum err words_read(struct reading *r, struct words *w, struct arena *a);

static enum err read_json_line(struct reading *r, struct words *w, struct arena *a)
{
    struct csv *c = &r->csv;
    const char *line = c->text + c->at, *end = memchr(line, '\n', c->size_bytes - c->at);
    size_t n = end ? (size_t)(end - line) : c->size_bytes - c->at;
    struct json j;
    c->at += n + (end != NULL);
    c->line++;
    if (blanks_before(line, n) == n)
        return ERR_OK;
    if (n > LINE_BYTES_MAX)
        return err_set(ERR_INPUT, "longer than %d bytes", LINE_BYTES_MAX);
    TRY(json_read(&j, "line", line, n, a));
    return read_words(&j, w, &r->text, a);
}

/* abstract_algebra of .../abstract_algebra_test.csv */
static enum err read_subject(const char *path, struct words *w, struct arena *a)
{
    static const char *const ends[] = {"_test.csv", "_val.csv", "_dev.csv", "_train.csv"};
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t end = strlen(ends[i]);
        if (n > end && strcmp(name + n - end, ends[i]) == 0) {
            TRY_ALLOC(w->subject = arena_string(a, name, n - end));
            return ERR_OK;
        }
    }
    return err_set(ERR_INPUT, "a file of MMLU is named SUBJECT_test.csv, _val.csv or _dev.csv: the "
                              "prompt has the subject");
}

/* Hendrycks' files of MMLU: question, A, B, C, D, letter of the right one; no line of names. */
static enum err read_csv_record(struct reading *r, struct words *w, struct arena *a)
{
    const char *field[CSV_FIELDS], *answer;
    size_t count;
    TRY(csv_read(&r->csv, a, field, CSV_FIELDS, &count));
    if (!count)
        return ERR_OK;
    if (count != CSV_FIELDS)
        return err_set(ERR_INPUT,
                       "%zu fields, and a question, the choices A, B, C and D and the letter of "
                       "the right one are expected; a text with a comma is in quotes",
                       count);
    answer = field[CSV_FIELDS - 1];
    if (strlen(answer) != 1 || *answer < 'A' || *answer >= 'A' + CSV_CHOICES)
        return err_set(ERR_INPUT,
                       "the last field, \"%.20s\", is not A, B, C or D (a test split without "
                       "answers, or a line of names?)",
                       answer);
    w->label = (size_t)(*answer - 'A');
    for (w->count = 0; w->count < CSV_CHOICES; w->count++)
        w->choice[w->count] = field[1 + w->count];
    TRY(read_subject(r->path, w, a));
    return add_lettered(w, field[0], &r->text, a);
}

static enum err take_question(struct reading *r, words_read *read, bool *taken)
{
    struct arena a = arena_make(0);
    struct words w = {0};
    size_t from = r->c->ids.count;
    enum err e = read(r, &w, &a);
    *taken = w.count > 0;
    if (!e && *taken)
        e = add_question(r, &w);
    arena_free(&a);
    return e ? e : check_ids(r->c, from, r->o->vocab);
}

static enum err take_shot(struct reading *r, words_read *read, bool *taken)
{
    struct words w = {0};
    struct shots *s = &r->shots;
    if (s->count == CHOICES_QUESTIONS_MAX)
        return err_set(ERR_INPUT, "more than %d worked examples", CHOICES_QUESTIONS_MAX);
    TRY(read(r, &w, &s->arena));
    *taken = w.count > 0;
    s->count += *taken;
    return *taken ? buffer_add(&s->list, &w, sizeof w) : ERR_OK;
}
/* ---- .bin ---- */

static enum err bin_ids(struct choices *c, struct bytes_reader *r)
{
    uint16_t count = bytes_get_u16(r);
    if (!count)
        return err_set(ERR_INPUT, "no token ids where some belong");
    for (uint16_t i = 0; i < count && !r->bad; i++)
        TRY(buffer_ids_add(&c->ids, bytes_get_u16(r)));
    return ERR_OK;
}

static enum err bin_question(struct choices *c, struct bytes_reader *r)
{
    size_t from = bytes_left(r);
    uint16_t begin = bytes_get_u16(r), size = bytes_get_u16(r);
    (void)bytes_get_u16(r); /* its number */
    uint16_t label = bytes_get_u16(r), count = bytes_get_u16(r);
    if (begin != BIN_EXAMPLE || count < 2 || count > CHOICES_MAX || label >= count)
        return err_set(ERR_INPUT,
                       "it begins with %u, and has %u choices with number %u as the "
                       "right one; 65535, 2 to %d choices and one of them are expected",
                       begin, count, label, CHOICES_MAX);
    TRY(question_begin(c, label));
    TRY(bin_ids(c, r));
    last_question(c)->context_count = c->ids.count - last_question(c)->context;
    for (uint16_t i = 0; i < count; i++) {
        size_t at = c->ids.count;
        TRY(bin_ids(c, r));
        TRY(choice_end(c, at, (double)(c->ids.count - at)));
    }
    size_t has = from - bytes_left(r);
    if (r->bad || has != size)
        return err_set(ERR_INPUT, "it says %u bytes, and has %zu", size, has);
    return ERR_OK;
}

static enum err read_bin(struct reading *reading, const uint8_t *data, size_t size_bytes)
{
    struct choices *c = reading->c;
    const struct choices_options *o = reading->o;
    struct bytes_reader r = bytes_reader(data, size_bytes);
    uint32_t magic = bytes_get_u32(&r), version = bytes_get_u32(&r), count = bytes_get_u32(&r);
    if (size_bytes < BIN_HEADER_BYTES || magic != BIN_MAGIC || version != BIN_VERSION)
        return err_set(ERR_INPUT,
                       "%s: no evaluation file of llm.c: magic %u, version %u; %d, %d expected",
                       reading->path, magic, version, BIN_MAGIC, BIN_VERSION);
    if (o->shots)
        return err_set(ERR_CONFIG,
                       "eval.shots = %zu: the prompts of %s are made already; leave it out, or "
                       "give the task as JSON lines",
                       o->shots, reading->path);
    r = bytes_reader(data + BIN_HEADER_BYTES, size_bytes - BIN_HEADER_BYTES);
    if (o->questions && o->questions < count)
        count = (uint32_t)o->questions;
    for (uint32_t i = 0; i < count; i++) {
        size_t from = c->ids.count;
        enum err e = bin_question(c, &r);
        if (!e)
            e = check_ids(c, from, o->vocab);
        if (e)
            return err_add(e, "%s: question %u: ", reading->path, i);
    }
    return ERR_OK;
}

/* ---- files ---- */

static const struct format {
    const char *end;  /* of a file's name */
    words_read *read; /* NULL: it has ids, and no texts */
} formats[] = {{".bin", NULL}, {".csv", read_csv_record}, {"", read_json_line}};

static const struct format *format_of(const char *path)
{
    const struct format *f = formats;
    for (size_t n = strlen(path);; f++) {
        size_t end = strlen(f->end);
        if (n >= end && strcmp(path + n - end, f->end) == 0)
            return f;
    }
}

/* The first `most` records of a file. */
static enum err each_record(struct reading *r, const char *text, size_t size, words_read *read,
                            enum err (*take)(struct reading *r, words_read *read, bool *taken),
                            size_t most)
{
    struct csv *c = &r->csv;
    struct textfile t;
    TRY(textfile_open(&t, r->path, text, size, NULL));
    c->text = t.text;
    c->size_bytes = t.size_bytes;
    c->line = 1;
    c->at = 0;
    for (size_t taken = 0; c->at < c->size_bytes && taken < most;) {
        bool is = false;
        size_t line = c->line;
        enum err e = take(r, read, &is);
        if (e)
            return err_add(e, "%s: line %zu: ", r->path, line);
        taken += is;
    }
    return ERR_OK;
}

static enum err read_questions(struct reading *r, const char *text, size_t size)
{
    const struct choices_options *o = r->o;
    words_read *read = format_of(r->path)->read;
    if (!read)
        return read_bin(r, (const uint8_t *)text, size);
    if (o->ids)
        return err_set(
            ERR_CONFIG,
            "eval.tasks: %s has texts, and there is no tokenizer: put the tokenizer.json "
            "of the shards into the run's directory or theirs, or give llm.c's .bin",
            r->path);
    return each_record(r, text, size, read, take_question, o->questions ? o->questions : SIZE_MAX);
}

static enum err read_shots(struct reading *r, const char *text, size_t size)
{
    words_read *read = format_of(r->path)->read;
    if (!read)
        return err_set(ERR_INPUT, "%s: worked examples are JSON lines or MMLU's CSV", r->path);
    return each_record(r, text, size, read, take_shot, SIZE_MAX);
}

/* The file `path`, or those that match it. */
static enum err each_file(struct reading *r, const char *path,
                          enum err (*read)(struct reading *r, const char *text, size_t size))
{
    struct arena names = arena_make(0), scratch = arena_make(0);
    struct config_list files;
    enum err e = shard_files(&(struct config_list){&path, 1}, &names, &files);
    for (size_t i = 0; !e && i < files.count; i++) {
        uint8_t *data;
        size_t size;
        r->path = files.items[i];
        e = file_read(r->path, FILE_BYTES_MAX, &scratch, &data, &size);
        if (!e)
            e = read(r, (char *)data, size);
        arena_reset(&scratch);
    }
    arena_free(&scratch);
    arena_free(&names);
    return e;
}

static enum err reading_open(struct reading *r, struct choices *c, const struct choices_options *o)
{
    *r = (struct reading){.c = c, .o = o, .path = o->path, .shots = {.arena = arena_make(0)}};
    TRY(tokenizer_scratch_open(&r->scratch));
    return buffer_reserve(&r->text, 1); /* memmove of nothing wants memory */
}

enum err choices_parse(struct choices *c, const struct choices_options *o, const uint8_t *data,
                       size_t size_bytes)
{
    struct reading r;
    enum err e = reading_open(&r, c, o);
    if (!e)
        e = read_questions(&r, (const char *)data, size_bytes);
    reading_close(&r);
    return e;
}

static enum err read_task(struct choices *c, const struct choices_options *o)
{
    struct reading r;
    enum err e = reading_open(&r, c, o);
    if (!e && o->shots && o->shots_path)
        e = each_file(&r, o->shots_path, read_shots);
    if (!e)
        e = each_file(&r, o->path, read_questions);
    reading_close(&r);
    if (!e && !c->count)
        e = err_set(ERR_INPUT, "%s: it has no questions", o->path);
    return e;
}

enum err choices_open(struct choices *c, const struct choices_options *o)
{
    *c = (struct choices){.name = o->name, .path = o->path};
    enum err e = read_task(c, o);
    if (e) {
        choices_close(c);
        return e;
    }
    for (size_t i = 0; i < c->count; i++)
        c->chance += 1 / (double)c->question[i].count;
    c->chance /= (double)c->count;
    return ERR_OK;
}

void choices_close(struct choices *c)
{
    buffer_free(&c->questions);
    buffer_free(&c->list);
    buffer_ids_free(&c->ids);
    *c = (struct choices){0};
}
