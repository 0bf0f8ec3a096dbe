/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/record/ledger_fold.h"
#include <math.h>
#include <string.h>
#include "kernels/base/durable.h"
#include "outer/record/ledger_lines.h"
#include "outer/record/ledger_scan.h"

enum { PIECE_BYTES = 1 << 20, MODE = 0644 };

struct folding { /* the new file, in pieces */
    struct arena a;
    struct jsonl line;
    struct file_part *parts;
    size_t count, room, used; /* used: of the last piece */
    uint64_t n;               /* of the last row */
    enum err e;
};

static enum err piece_add(struct folding *f)
{
    if (f->count == f->room) {
        size_t room = f->room ? 2 * f->room : 16;
        struct file_part *parts;
        TRY_ALLOC(parts = arena_array(&f->a, room, sizeof *parts));
        if (f->count)
            memcpy(parts, f->parts, f->count * sizeof *parts);
        f->parts = parts;
        f->room = room;
    }
    void *piece;
    TRY_ALLOC(piece = arena_alloc(&f->a, PIECE_BYTES));
    f->parts[f->count++] = (struct file_part){.data = piece};
    return ERR_OK;
}

/* A line of the new file; it is shorter than a piece. */
static void line_told(void *self, const char *line, size_t size)
{
    struct folding *f = self;
    struct file_part *last = f->count ? &f->parts[f->count - 1] : NULL;
    if (f->e == ERR_OK && (!last || last->size_bytes + size + 1 > PIECE_BYTES)) {
        f->e = piece_add(f);
        last = &f->parts[f->count - 1];
    }
    if (f->e != ERR_OK)
        return;
    char *to = (char *)(uintptr_t)last->data + last->size_bytes;
    memcpy(to, line, size);
    to[size] = '\n';
    last->size_bytes += size + 1;
}

static void row_begin(struct folding *f, const char *kind, uint64_t t_ms)
{
    jsonl_begin_at(&f->line, LEDGER_FOLDED_VERSION, kind, t_ms);
    jsonl_int(&f->line, "n", (int64_t)++f->n);
}

static uint64_t milliseconds(double s)
{
    return s > 0 && s < 1e11 ? (uint64_t)llround(1e3 * s) : 0;
}

/* Is there more of it than a prediction? */
static bool is_booked(const struct ledger_row *row)
{
    return row->calls || row->broken || row->total || row->done || ledger_sum(&row->up) ||
           ledger_sum(&row->down);
}

static uint64_t rows_of(const struct ledger_row *row)
{
    return (is_booked(row) ? 1U : 0U) + (row->predicted ? 1U : 0U);
}

static void put_processes(struct folding *f, const struct ledger_member *m,
                          const struct ledger_rows *t, uint64_t last)
{
    struct ledger_life life = {.index = m->index,
                               .aggregators = m->aggregators,
                               .rows = 1 + t->kept_count + t->sum_count,
                               .row = last,
                               .lives = m->lives.count,
                               .unfinished = m->lives.unfinished,
                               .running = m->lives.running,
                               .missing = m->lives.missing,
                               .begun = isfinite(m->lives.begun) ? m->lives.begun : 0};
    memcpy(life.run, m->run, sizeof life.run);
    snprintf(life.replica, sizeof life.replica, "%s", m->aggregator ? "aggregator" : m->name);
    for (size_t i = 0; i < t->count; i++)
        life.rows += rows_of(&t->rows[i]);
    row_begin(f, "life", milliseconds(m->lives.begun_last));
    ledger_put_life(&f->line, &life);
    jsonl_end(&f->line);
}

/* What it has counted, and what was predicted of it. */
static void put_row(struct folding *f, const struct ledger_row *row)
{
    bool up = row->what == LEDGER_CONTRIBUTION;
    if (is_booked(row)) {
        row_begin(f, "flow", row->t_ms);
        ledger_put_flow(&f->line, row);
        jsonl_end(&f->line);
    }
    if (row->predicted) {
        row_begin(f, "predicted", row->t_ms);
        ledger_put_predicted(&f->line, row->site, row->fragment, row->round,
                             up ? row->predicted : 0, up ? 0 : row->predicted);
        jsonl_end(&f->line);
    }
}

static void put_all(struct folding *f, const struct ledger_member *m, const struct ledger_rows *t,
                    uint64_t last)
{
    put_processes(f, m, t, last);
    for (size_t i = 0; i < t->kept_count; i++) {
        row_begin(f, "kept", 0);
        ledger_put_round(&f->line, t->kept[i].fragment, t->kept[i].round);
        jsonl_end(&f->line);
    }
    for (size_t i = 0; i < t->sum_count; i++) {
        row_begin(f, "sum", t->sums[i].row.t_ms);
        ledger_put_sum(&f->line, &t->sums[i]);
        jsonl_end(&f->line);
    }
    for (size_t i = 0; i < t->count; i++)
        put_row(f, &t->rows[i]);
}

/* A reader takes what a double holds exactly. */
static enum err check_numbers(const char *path, const struct ledger_member *m,
                              const struct ledger_rows *t)
{
    bool fits = m->lives.missing <= LEDGER_NUMBER_MAX;
    for (size_t i = 0; i < t->sum_count; i++)
        fits = fits && ledger_sum_fits(&t->sums[i]);
    for (size_t i = 0; i < t->count; i++) {
        struct ledger_sum s = ledger_sum_of(&t->rows[i], false);
        fits = fits && ledger_sum_fits(&s);
    }
    return fits ? ERR_OK
                : err_set(ERR_CORRUPT, "%s: its sums are no bytes that a link moved", path);
}

enum err ledger_fold(struct disk *d, const char *path, uint64_t keep)
{
    struct folding f = {.a = arena_make(0)};
    struct ledger_member m = {0};
    struct ledger_rows t = {.a = &f.a, .keep = keep ? keep : LEDGER_ROUNDS_WHOLE};
    uint64_t last;
    enum err e = ledger_scan(d, path, &m, &t, &last);
    if (e == ERR_OK)
        e = check_numbers(path, &m, &t);
    if (e == ERR_OK)
        e = jsonl_open_told(&f.line, line_told, &f, &f.a);
    if (e == ERR_OK) {
        put_all(&f, &m, &t, last);
        e = f.e;
    }
    if (e == ERR_OK)
        e = durable_write(d, path, f.parts, f.count, MODE);
    jsonl_close(&f.line);
    arena_free(&f.a);
    return e;
}
