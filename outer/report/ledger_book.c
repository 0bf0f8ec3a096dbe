#include "outer/report/ledger_book.h"
#include <stdlib.h>
#include <string.h>
#include "kernels/base/clock.h"

enum {
    WRITE_S = 5, /* how long small calls, and transfers that broke off, may wait for their rows */
    WAITING_MAX = 256, /* rows that wait, with rounds of their own; further calls are of no round */
    ROUND_NEAR = 1 /* calls about rounds farther from the newest one with payload are of no round */
};

/* Numbered, so that a reader sees a row that is there twice, or is not there. */
static void row_begin(struct ledger_book *b, const char *kind)
{
    jsonl_begin(&b->record, kind);
    jsonl_int(&b->record, "n", (int64_t)++b->written_rows);
}

enum err ledger_book_open(struct ledger_book *b, const struct ledger_book_options *o,
                          struct arena *perm)
{
    const char *path;
    *b = (struct ledger_book){.written = clock_mono_s()};
    pthread_mutex_init(&b->mutex, NULL);
    b->open = true;
    if (strcmp(o->replica, "aggregator") != 0)
        snprintf(b->site, sizeof b->site, "%s", o->replica);
    TRY_ALLOC(path = arena_printf(perm, "%s/%s", o->directory, LEDGER_FILE));
    TRY(jsonl_open(&b->record, path, perm));
    row_begin(b, "life");
    jsonl_text(&b->record, "run", o->run);
    jsonl_text(&b->record, "replica", o->replica);
    if (o->aggregators > 1) {
        jsonl_int(&b->record, "index", o->index);
        jsonl_int(&b->record, "aggregators", o->aggregators);
    }
    jsonl_end(&b->record);
    return ERR_OK;
}

static void put_side(struct jsonl *r, const struct ledger_side *s, const char *direction)
{
    const struct {
        const char *layer;
        uint64_t bytes;
    } layers[] = {{"", s->payload}, {"_grpc", s->grpc}, {"_http2", s->http2}, {"_tls", s->tls}};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        char key[16];
        snprintf(key, sizeof key, "%s%s", direction, layers[i].layer);
        jsonl_int(r, key, (int64_t)layers[i].bytes);
    }
}

static void put_round(struct jsonl *r, uint32_t fragment, uint64_t round)
{
    if (round == LEDGER_NO_ROUND)
        return;
    jsonl_int(r, "fragment", fragment);
    jsonl_int(r, "round", (int64_t)round);
}

static void put_flow(struct ledger_book *b, const struct ledger_row *row)
{
    struct jsonl *r = &b->record;
    row_begin(b, "flow");
    jsonl_text(r, "what", ledger_name(row->what));
    jsonl_text(r, "site", row->site);
    put_round(r, row->fragment, row->round);
    jsonl_int(r, "calls", (int64_t)row->calls);
    jsonl_int(r, "broken", (int64_t)row->broken);
    if (ledger_transfer(row->what)) {
        jsonl_int(r, "total", (int64_t)row->total);
        jsonl_int(r, "done", row->done);
    }
    put_side(r, &row->up, "up");
    put_side(r, &row->down, "down");
    jsonl_end(r);
}

static void put_socket(struct ledger_book *b, const struct ledger_row *row)
{
    struct jsonl *r = &b->record;
    row_begin(b, "socket");
    jsonl_text(r, "site", row->site);
    jsonl_int(r, "up", (int64_t)row->up.socket);
    jsonl_int(r, "down", (int64_t)row->down.socket);
    jsonl_int(r, "resent", (int64_t)row->resent);
    jsonl_end(r);
}

static void write_rows(struct ledger_book *b)
{
    jsonl_hold(&b->record);
    for (size_t i = 0; i < b->count; i++)
        if (b->rows[i].what == LEDGER_SOCKET)
            put_socket(b, &b->rows[i]);
        else
            put_flow(b, &b->rows[i]);
    jsonl_release(&b->record);
    b->count = 0;
    b->written = clock_mono_s();
}

static bool rows_same(const struct ledger_row *a, const struct ledger_row *b)
{
    return a->what == b->what && a->fragment == b->fragment && a->round == b->round &&
           strcmp(a->site, b->site) == 0;
}

/* Its row among those that wait, a new one where there is none; NULL: no memory. */
static struct ledger_row *row_of(struct ledger_book *b, const struct ledger_row *row)
{
    for (size_t i = 0; i < b->count; i++)
        if (rows_same(&b->rows[i], row))
            return &b->rows[i];
    if (b->count == b->room) {
        size_t room = b->room ? 2 * b->room : 32;
        struct ledger_row *rows = realloc(b->rows, room * sizeof *rows);
        if (!rows)
            return NULL;
        b->rows = rows;
        b->room = room;
    }
    b->rows[b->count] =
        (struct ledger_row){.what = row->what, .fragment = row->fragment, .round = row->round};
    memcpy(b->rows[b->count].site, row->site, sizeof row->site);
    return &b->rows[b->count++];
}

static struct ledger_round *round_of(struct ledger_book *b, uint32_t fragment, uint64_t round)
{
    size_t kept = b->round_count < LEDGER_ROUNDS_KEPT ? b->round_count : LEDGER_ROUNDS_KEPT;
    for (size_t i = 0; i < kept; i++)
        if (b->rounds[i].fragment == fragment && b->rounds[i].round == round)
            return &b->rounds[i];
    return NULL;
}

/* A peer may name any round: only payload that moved says that one is there. */
static bool round_near(const struct ledger_book *b, uint32_t fragment, uint64_t round)
{
    size_t kept = b->round_count < LEDGER_ROUNDS_KEPT ? b->round_count : LEDGER_ROUNDS_KEPT;
    uint64_t newest = LEDGER_NO_ROUND;
    for (size_t i = 0; i < kept; i++)
        if (b->rounds[i].fragment == fragment &&
            (newest == LEDGER_NO_ROUND || b->rounds[i].round > newest))
            newest = b->rounds[i].round;
    if (newest == LEDGER_NO_ROUND || round == LEDGER_NO_ROUND)
        return false;
    return (round > newest ? round - newest : newest - round) <= ROUND_NEAR;
}

/* Has the row a round of its own? A transfer that moved nothing is a call like any other. */
static bool has_round(const struct ledger_book *b, const struct ledger_row *row)
{
    bool moved = row->done || row->total || row->up.payload || row->down.payload;
    if (ledger_transfer(row->what) && moved)
        return true;
    return b->count < WAITING_MAX && round_near(b, row->fragment, row->round);
}

static void round_add(struct ledger_book *b, const struct ledger_row *row)
{
    struct ledger_round *r = round_of(b, row->fragment, row->round);
    if (!r) {
        r = &b->rounds[b->round_count++ % LEDGER_ROUNDS_KEPT];
        *r = (struct ledger_round){.fragment = row->fragment, .round = row->round};
    }
    r->up += row->up.payload;
    r->down += row->down.payload;
}

struct ledger_round ledger_book_round(struct ledger_book *b, uint32_t fragment, uint64_t round)
{
    struct ledger_round found = {.fragment = fragment, .round = round};
    pthread_mutex_lock(&b->mutex);
    const struct ledger_round *r = round_of(b, fragment, round);
    if (r)
        found = *r;
    pthread_mutex_unlock(&b->mutex);
    return found;
}

void ledger_book_add(void *book, const struct ledger_row *row)
{
    struct ledger_book *b = book;
    struct ledger_row named = *row;
    pthread_mutex_lock(&b->mutex);
    if (!*named.site)
        memcpy(named.site, b->site, sizeof named.site);
    if (!has_round(b, row)) {
        named.fragment = 0;
        named.round = LEDGER_NO_ROUND;
    }
    struct ledger_row *to = row_of(b, &named);
    if (to)
        ledger_add(to, &named);
    if (ledger_transfer(row->what) && (row->up.payload || row->down.payload))
        round_add(b, row);
    /* A peer may break off transfers as often as it likes: they are added up. */
    bool done = ledger_transfer(row->what) && row->done;
    if (done || b->count >= 2 * WAITING_MAX || clock_mono_s() - b->written > WRITE_S)
        write_rows(b);
    pthread_mutex_unlock(&b->mutex);
}

void ledger_book_predict(struct ledger_book *b, const char *site, uint32_t fragment, uint64_t round,
                         uint64_t up, uint64_t down)
{
    pthread_mutex_lock(&b->mutex);
    row_begin(b, "predicted");
    if (*site)
        jsonl_text(&b->record, "site", site);
    put_round(&b->record, fragment, round);
    jsonl_int(&b->record, "up", (int64_t)up);
    jsonl_int(&b->record, "down", (int64_t)down);
    jsonl_end(&b->record);
    pthread_mutex_unlock(&b->mutex);
}

void ledger_book_close(struct ledger_book *b)
{
    if (!b->open)
        return;
    pthread_mutex_lock(&b->mutex);
    write_rows(b);
    row_begin(b, "end");
    jsonl_end(&b->record);
    jsonl_close(&b->record);
    pthread_mutex_unlock(&b->mutex);
    pthread_mutex_destroy(&b->mutex);
    free(b->rows);
    *b = (struct ledger_book){0};
}
