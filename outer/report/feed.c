#include "outer/report/feed.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "outer/report/json_write.h"

/* What leaves. Numbers are sent as they are written, texts as texts. */
static const struct feed_kind {
    const char *kind, *numbers, *texts;
} kinds[] = {
    {"start", "t sites rounds committed parameters steps index aggregators", "run role site_names"},
    {"round", "t fragment round included sites waited_ms up down momentum_norm", ""},
    {"site", "t fragment round step loss tokens_per_second tokens up_total down_total", "site"},
    {"state", "t waited", "site text"},
    {"health", "t certificate_days disk_free_bytes clock_offset_s clock_error_s epoch", ""},
    {"roster", "t version sites indices", "act site"},
    {"stop", "t", "reason"},
    {"final", "t", "short"},
};

static const struct feed_kind *kind_of(const struct jsonl_row *row)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (jsonl_is(row, kinds[i].kind))
            return &kinds[i];
    return NULL;
}

/* The words of a list, one after the other; false: none is left. */
static bool word_next(const char **list, char word[32])
{
    size_t n = strcspn(*list, " ");
    if (!n)
        return false;
    snprintf(word, 32, "%.*s", (int)n, *list);
    *list += n + ((*list)[n] == ' ');
    return true;
}

/* One line; false: no room. committed: instead of the row's, if it is a number. */
static bool line_write(const struct jsonl_row *row, const struct feed_kind *k, double committed,
                       char *text, size_t size, size_t *used)
{
    char word[32], *line = NULL;
    size_t n;
    FILE *out = open_memstream(&line, &n);
    if (!out)
        return false;
    struct json_write w = {.out = out};
    json_object(&w, NULL);
    json_text(&w, "kind", k->kind);
    for (const char *at = k->numbers; word_next(&at, word);)
        if (isfinite(committed) && strcmp(word, "committed") == 0)
            json_real(&w, word, committed);
        else if (*jsonl_string(row, word))
            json_real(&w, word, jsonl_number(row, word));
    for (const char *at = k->texts; word_next(&at, word);) {
        char cut[1024];
        snprintf(cut, sizeof cut, "%s", jsonl_string(row, word));
        json_text(&w, word, cut);
    }
    json_end(&w);
    fputc('\n', out);
    bool good = fclose(out) == 0 && *used + n < size;
    if (good)
        memcpy(text + *used, line, n + 1);
    *used += good ? n : 0;
    free(line);
    return good;
}

/* Where the tail begins: the last start, if it is within FEED_BYTES of the end; else a whole line
 * there. And the start record, with the rounds committed before the tail. */
static bool feed_begin(struct feed *f, char *text, size_t size, size_t *used, uint64_t *next)
{
    struct jsonl_row row;
    double committed = 0;
    bool started = false;
    long end, from;
    char start[1024] = "";
    if (fseek(f->reader.file, 0, SEEK_END) != 0 || (end = ftell(f->reader.file)) < 0)
        return false;
    from = end > FEED_BYTES ? end - FEED_BYTES : 0;
    f->reader.at = 0;
    while (jsonl_next(&f->reader, &row)) {
        if (started && f->reader.at > from) /* the line before was the last one that is skipped */
            break;
        if (jsonl_is(&row, "start")) {
            committed = jsonl_number(&row, "committed");
            size_t n = 0;
            started = line_write(&row, &kinds[0], NAN, start, sizeof start, &n);
        }
        committed += jsonl_is(&row, "round");
        *next = (uint64_t)f->reader.at;
    }
    if (!started || !jsonl_parse(&row, start))
        return started;
    return line_write(&row, &kinds[0], committed, text, size, used);
}

enum err feed_piece(struct feed *f, const char *path, uint64_t at, char *text, size_t size,
                    uint64_t *next)
{
    struct jsonl_row row;
    size_t used = 0;
    *text = 0;
    *next = at;
    if (!f->reader.file && !jsonl_reader_open(&f->reader, path))
        return ERR_OK; /* not yet */
    if (at == 0) {
        (void)feed_begin(f, text, size, &used, next);
        return ERR_OK;
    }
    if (fseek(f->reader.file, 0, SEEK_END) != 0 || at > (uint64_t)ftell(f->reader.file))
        return err_set(ERR_INPUT, "the records end before byte %" PRIu64 ": begin again", at);
    f->reader.at = (long)at;
    while (jsonl_next(&f->reader, &row)) {
        const struct feed_kind *k = kind_of(&row);
        if (k && !line_write(&row, k, NAN, text, size, &used))
            break;
        *next = (uint64_t)f->reader.at;
    }
    return ERR_OK;
}

void feed_close(struct feed *f)
{
    jsonl_reader_close(&f->reader);
}
