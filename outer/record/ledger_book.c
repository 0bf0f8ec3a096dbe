/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/record/ledger_book.h"
#include <stdlib.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/record/ledger_fold.h"
#include "outer/record/ledger_lines.h"

enum {
    WRITE_S = 5, /* how long small calls, and transfers that broke off, may wait for their rows */
    WAITING_MAX = 256, /* rows that wait, with rounds of their own; further calls are of no round */
    FOLD_BYTES = 8 << 20, /* a smaller file is not folded */
    ROUND_NEAR = 1 /* calls about rounds farther from the newest one with payload are of no round */
};

/* Numbered, so that a reader sees a row that is there twice, or is not there. */
static void row_begin(struct ledger_book *b, const char *kind)
{
    jsonl_begin(&b->record, kind);
    jsonl_int(&b->record, "n", (int64_t)++b->written_rows);
}

/* The file has as much again as its last fold left, and at least FOLD_BYTES: its rows are folded,
 * so the whole time that folding takes grows with what is written. Nothing here stops a run: a file
 * that cannot be folded grows on. */
static void fold_when_due(struct ledger_book *b)
{
    if (!b->record.open && jsonl_reopen(&b->record, b->path) != ERR_OK)
        err_clear(); /* its rows are missing, and numbers say so */
    if (!b->record.open || b->record.bytes < b->fold_bytes)
        return;
    enum err e = ledger_fold(disk_posix(), b->path, b->keep);
    if (e != ERR_OK)
        log_event(LOG_WARN, "ledger_not_folded", "why=\"%s\"", err_message());
    err_clear();
    if (jsonl_reopen(&b->record, b->path) != ERR_OK)
        log_event(LOG_WARN, "ledger_closed", "why=\"%s\"", err_message());
    err_clear();
    uint64_t more = e == ERR_OK && b->record.bytes > b->least ? b->record.bytes : b->least;
    b->fold_bytes = b->record.bytes + more;
}

enum err ledger_book_open(struct ledger_book *b, const struct ledger_book_options *o,
                          struct arena *perm)
{
    struct ledger_life life = {.index = o->index, .aggregators = o->aggregators};
    *b = (struct ledger_book){.written = clock_mono_s()};
    pthread_mutex_init(&b->mutex, NULL);
    b->open = true;
    b->least = o->fold_bytes ? o->fold_bytes : FOLD_BYTES;
    b->keep = o->rounds > LEDGER_ROUNDS_WHOLE ? o->rounds : LEDGER_ROUNDS_WHOLE;
    b->fold_bytes = b->least;
    if (strcmp(o->replica, "aggregator") != 0)
        snprintf(b->site, sizeof b->site, "%s", o->replica);
    TRY_ALLOC(b->path = arena_printf(perm, "%s/%s", o->directory, LEDGER_FILE));
    TRY(jsonl_open(&b->record, b->path, perm));
    fold_when_due(b);
    snprintf(life.run, sizeof life.run, "%s", o->run);
    snprintf(life.replica, sizeof life.replica, "%s", o->replica);
    row_begin(b, "life");
    ledger_put_life(&b->record, &life);
    jsonl_end(&b->record);
    return ERR_OK;
}

static void write_rows(struct ledger_book *b)
{
    jsonl_hold(&b->record);
    for (size_t i = 0; i < b->count; i++) {
        bool socket = b->rows[i].what == LEDGER_SOCKET;
        row_begin(b, socket ? "socket" : "flow");
        (socket ? ledger_put_socket : ledger_put_flow)(&b->record, &b->rows[i]);
        jsonl_end(&b->record);
    }
    jsonl_release(&b->record);
    b->count = 0;
    b->written = clock_mono_s();
    fold_when_due(b);
}

/* Its row among those that wait, a new one where there is none; NULL: no memory. */
static struct ledger_row *row_of(struct ledger_book *b, const struct ledger_row *row)
{
    for (size_t i = 0; i < b->count; i++)
        if (ledger_same(&b->rows[i], row))
            return &b->rows[i];
    if (b->count == b->room) {
        size_t room = b->room ? 2 * b->room : 32;
        struct ledger_row *rows = realloc(b->rows, room * sizeof *rows);
        if (!rows)
            return NULL;
        b->rows = rows;
        b->room = room;
    }
    b->rows[b->count] = ledger_row_about(row);
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

/* Has the row a round of its own? A transfer that moved nothing is a call like any other; the size
 * that its offer claims does not count. */
static bool has_round(const struct ledger_book *b, const struct ledger_row *row)
{
    bool moved = row->done || row->up.payload || row->down.payload;
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
    if (!has_round(b, row))
        ledger_no_round(&named);
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
    ledger_put_predicted(&b->record, site, fragment, round, up, down);
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
