/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/record/feed.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "outer/record/json_write.h"

enum { SCAN_BYTES = 512 << 10, CHUNK_MIN_BYTES = 16 << 10, SKIPPED_MAX = 160 };

/* What leaves of records that are older than the tail. */
enum feed_old {
    FEED_ALL,  /* each one */
    FEED_LAST, /* the last one of a chunk, of each site */
    FEED_SUM   /* their sum, as a record of kind skipped */
};

/* What leaves. Numbers are sent as they are written, texts as texts. */
static const struct feed_kind {
    const char *kind;
    enum feed_old old;
    const char *numbers, *texts;
} kinds[] = {
    {"start", FEED_ALL, "t sites rounds committed parameters steps index aggregators",
     "run role site_names"},
    {"round", FEED_SUM, "t fragment round included sites waited_ms up down momentum_norm", ""},
    {"site", FEED_LAST, "t fragment round step loss tokens_per_second tokens up_total down_total",
     "site"},
    {"state", FEED_LAST, "t waited", "site text"},
    {"health", FEED_LAST, "t certificate_days disk_free_bytes clock_offset_s clock_error_s epoch",
     ""},
    {"roster", FEED_ALL, "t version sites indices", "act site"},
    {"amendment", FEED_ALL, "t number from_round rounds steps share trained_s waited_s", "setting"},
    {"stop", FEED_ALL, "t", "reason"},
    {"final", FEED_ALL, "t", "short"},
};

#define FEED_START (&kinds[0])

/* A piece that is being made. */
struct piece {
    char *text;
    size_t size, used;
    double t, rounds, up, down; /* of the rounds that are left out, and not yet said */
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

static bool piece_add(struct piece *p, const char *line, size_t n, size_t spare)
{
    bool good = p->used + n + spare < p->size;
    if (good)
        memcpy(p->text + p->used, line, n + 1);
    p->used += good ? n : 0;
    return good;
}

/* False: there is no room for it in this piece. A line that no piece has room for is left out. */
static bool line_add(struct piece *p, const struct jsonl_row *row, const struct feed_kind *k)
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
        if (*jsonl_string(row, word))
            json_real(&w, word, jsonl_number(row, word));
    for (const char *at = k->texts; word_next(&at, word);) {
        char cut[1024];
        snprintf(cut, sizeof cut, "%s", jsonl_string(row, word));
        json_text(&w, word, cut);
    }
    json_close(&w);
    bool good = fclose(out) == 0 && (piece_add(p, line, n, SKIPPED_MAX) || !p->used);
    free(line);
    return good;
}

static void rounds_skip(struct piece *p, const struct jsonl_row *row)
{
    p->t = jsonl_number(row, "t");
    p->rounds++;
    p->up += fmax(0, jsonl_number(row, "up"));
    p->down += fmax(0, jsonl_number(row, "down"));
}

/* Every line leaves room for this one. */
static void skipped_add(struct piece *p)
{
    char line[SKIPPED_MAX];
    if (p->rounds == 0)
        return;
    int n = snprintf(line, sizeof line,
                     "{\"kind\":\"skipped\",\"t\":%.3f,\"rounds\":%.0f,\"up\":%.0f,"
                     "\"down\":%.0f}\n",
                     p->t, p->rounds, p->up, p->down);
    ASSERT(n > 0 && n < SKIPPED_MAX);
    bool added = piece_add(p, line, (size_t)n, 0);
    ASSERT(added);
    p->rounds = p->up = p->down = 0;
}

/* Where the last record of this kind and site in the chunk is noted; NULL: too many sites, each
 * record is sent. */
static struct feed_last *last_of(struct feed *f, const struct feed_kind *k, const char *site)
{
    for (unsigned i = 0; i < f->last_count; i++)
        if (f->last[i].kind == k && strcmp(f->last[i].site, site) == 0)
            return &f->last[i];
    if (f->last_count == FEED_LAST_MAX)
        return NULL;
    struct feed_last *l = &f->last[f->last_count++];
    l->kind = k;
    snprintf(l->site, sizeof l->site, "%s", site);
    return l;
}

/* The next record that starts before `end`. */
static bool row_before(struct feed *f, long end, struct jsonl_row *row, const struct feed_kind **k)
{
    while (f->reader.at < end && jsonl_next(&f->reader, row))
        if ((*k = kind_of(row)))
            return true;
    return false;
}

static void chunk_look(struct feed *f, long end)
{
    const struct feed_kind *k;
    struct jsonl_row row;
    f->last_count = 0;
    while (row_before(f, end, &row, &k)) {
        struct feed_last *l =
            k->old == FEED_LAST ? last_of(f, k, jsonl_string(&row, "site")) : NULL;
        if (l)
            l->end = f->reader.at;
    }
}

/* The chunk from *next on, thinned. False: the piece is full, or nothing was read. A start sets the
 * count of rounds: what was skipped before it is said before it. */
static bool chunk_thin(struct feed *f, long end, struct piece *p, uint64_t *next)
{
    const struct feed_kind *k;
    struct jsonl_row row;
    uint64_t begin = *next;
    f->reader.at = (long)*next;
    chunk_look(f, end);
    f->reader.at = (long)*next;
    while (row_before(f, end, &row, &k)) {
        const struct feed_last *l =
            k->old == FEED_LAST ? last_of(f, k, jsonl_string(&row, "site")) : NULL;
        bool sent = k->old == FEED_ALL || (k->old == FEED_LAST && (!l || l->end == f->reader.at));
        if (k->old == FEED_SUM)
            rounds_skip(p, &row);
        if (k == FEED_START)
            skipped_add(p);
        if (sent && !line_add(p, &row, k)) {
            skipped_add(p);
            return false;
        }
        *next = (uint64_t)f->reader.at;
    }
    skipped_add(p);
    *next = (uint64_t)f->reader.at;
    return *next > begin; /* not: a line has no end yet */
}

static long chunk_end(long at, long old)
{
    long stride = old / FEED_CHUNKS;
    stride = stride < CHUNK_MIN_BYTES ? CHUNK_MIN_BYTES : stride > SCAN_BYTES ? SCAN_BYTES : stride;
    long end = (at / stride + 1) * stride;
    return end < old ? end : old;
}

static void tail_add(struct feed *f, struct piece *p, uint64_t *next)
{
    struct jsonl_row row;
    f->reader.at = (long)*next;
    while (jsonl_next(&f->reader, &row)) {
        const struct feed_kind *k = kind_of(&row);
        if (k && !line_add(p, &row, k))
            break;
        *next = (uint64_t)f->reader.at;
    }
}

enum err feed_piece(struct feed *f, const char *path, uint64_t at, char *text, size_t size,
                    uint64_t *next)
{
    struct piece p = {.text = text, .size = size};
    bool room = true;
    long end;
    *text = 0;
    *next = at;
    if (!f->reader.file && !jsonl_reader_open(&f->reader, path))
        return ERR_OK; /* not yet */
    if (fseek(f->reader.file, 0, SEEK_END) != 0 || (end = ftell(f->reader.file)) < 0 ||
        at > (uint64_t)end)
        return err_set(ERR_INPUT, "the records end before byte %" PRIu64 ": begin again", at);
    long old = end - FEED_BYTES;
    while (room && (long)*next < old && *next < at + SCAN_BYTES)
        room = chunk_thin(f, chunk_end((long)*next, old), &p, next);
    if (room && (long)*next >= old)
        tail_add(f, &p, next);
    return ERR_OK;
}

void feed_close(struct feed *f)
{
    jsonl_reader_close(&f->reader);
}
