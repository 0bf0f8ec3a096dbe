/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/record/ledger_rows.h"
#include <stdlib.h>
#include <string.h>
#include "outer/wire/wire.h"

enum { HOUR_MS = 3600000, DAY_MS = 24 * HOUR_MS, ROOM = 256 };

/* ---- arrays ---- */

static enum err grow(void **items, size_t count, size_t *room, size_t size, struct arena *a)
{
    size_t wanted = *room ? 2 * *room : ROOM;
    void *more;
    TRY_ALLOC(more = arena_array(a, wanted, size));
    if (count)
        memcpy(more, *items, count * size);
    *items = more;
    *room = wanted;
    return ERR_OK;
}

/* ---- order ---- */

static int order(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int round_compare(const struct ledger_row *a, const struct ledger_row *b)
{
    if (a->what != b->what)
        return a->what < b->what ? -1 : 1;
    if (a->fragment != b->fragment)
        return a->fragment < b->fragment ? -1 : 1;
    return order(a->round, b->round);
}

int ledger_row_compare(const void *x, const void *y)
{
    const struct ledger_row *a = x, *b = y;
    int c = round_compare(a, b);
    c = c ? c : strcmp(a->site, b->site);
    if (c || a->round != LEDGER_NO_ROUND)
        return c;
    return order(a->t_ms / HOUR_MS, b->t_ms / HOUR_MS);
}

/* Of two sizes of one transfer the later line's counts. */
static int by_line(const void *x, const void *y)
{
    const struct ledger_row *a = x, *b = y;
    int c = ledger_row_compare(a, b);
    return c ? c : order(a->line, b->line);
}

static int by_sum(const void *x, const void *y)
{
    const struct ledger_sum *a = x, *b = y;
    int c = round_compare(&a->row, &b->row);
    c = c ? c : strcmp(a->row.site, b->row.site);
    c = c ? c : order(a->row.t_ms, b->row.t_ms);
    return c ? c : order(a->hours, b->hours);
}

/* ---- sums ---- */

static uint64_t payload_of(const struct ledger_row *row)
{
    return row->what == LEDGER_CONTRIBUTION ? row->up.payload : row->down.payload;
}

static void complete_count(struct ledger_counts *c, const struct ledger_row *row)
{
    uint64_t payload = payload_of(row);
    c->transfers = 1;
    c->counted = payload;
    c->total = row->total;
    c->resent = payload > row->total ? payload - row->total : 0;
    c->lost = payload < row->total ? row->total - payload : 0;
    c->predicted = row->predicted;
    c->predicted_total = row->predicted ? row->total : 0;
    c->unpredicted = !row->predicted;
}

static void transfer_count(struct ledger_sum *s, const struct ledger_row *row, bool late)
{
    struct ledger_counts *c = &s->of;
    c->differ = row->predicted && row->total && row->predicted != row->total;
    c->cut = !c->differ && row->done && payload_of(row) < row->total && !late;
    s->differ_round = c->differ ? row->round : 0;
    s->cut_round = c->cut ? row->round : 0;
    if (!row->calls) { /* a prediction, and nothing booked */
        c->absent = 1;
        c->absent_bytes = row->predicted;
    } else if (!row->done) {
        c->incomplete = 1;
        c->incomplete_bytes = payload_of(row);
    } else {
        complete_count(c, row);
        s->model = ledger_predict(row->total, WIRE_CHUNK_BYTES);
    }
}

struct ledger_sum ledger_sum_of(const struct ledger_row *row, bool late)
{
    struct ledger_sum s = {.row = *row, .hours = 1};
    s.row.total = s.row.predicted = 0;
    s.row.done = false;
    s.row.t_ms = row->t_ms / HOUR_MS * HOUR_MS;
    if (ledger_transfer(row->what) && row->round != LEDGER_NO_ROUND)
        transfer_count(&s, row, late);
    return s;
}

static uint64_t first_round(uint64_t count, uint64_t round, uint64_t more, uint64_t other)
{
    if (!count || !more)
        return count ? round : other;
    return round < other ? round : other;
}

static void sum_add(struct ledger_sum *to, const struct ledger_sum *s)
{
    struct ledger_row model = {.up = to->model}, other = {.up = s->model};
    to->differ_round = first_round(to->of.differ, to->differ_round, s->of.differ, s->differ_round);
    to->cut_round = first_round(to->of.cut, to->cut_round, s->of.cut, s->cut_round);
    ledger_add(&to->row, &s->row);
    ledger_add(&model, &other);
    to->model = model.up;
#define X(name) to->of.name += s->of.name;
    LEDGER_COUNTS(X)
#undef X
}

static void sums_join(struct ledger_rows *t)
{
    size_t n = 0;
    if (t->sum_count)
        qsort(t->sums, t->sum_count, sizeof *t->sums, by_sum);
    for (size_t i = 0; i < t->sum_count; i++)
        if (n && by_sum(&t->sums[n - 1], &t->sums[i]) == 0)
            sum_add(&t->sums[n - 1], &t->sums[i]);
        else
            t->sums[n++] = t->sums[i];
    t->sum_count = n;
}

enum err ledger_rows_add_sum(struct ledger_rows *t, const struct ledger_sum *sum)
{
    if (t->sum_count == t->sum_room) {
        sums_join(t);
        if (t->sum_count >= t->sum_room / 2)
            TRY(grow((void **)&t->sums, t->sum_count, &t->sum_room, sizeof *t->sums, t->a));
    }
    if (sum->row.t_ms > t->newest_ms)
        t->newest_ms = sum->row.t_ms;
    t->sums[t->sum_count++] = *sum;
    return ERR_OK;
}

/* Hours of days that ended long ago become those days. */
static void sums_by_day(struct ledger_rows *t)
{
    for (size_t i = 0; i < t->sum_count; i++) {
        struct ledger_sum *s = &t->sums[i];
        uint64_t day = s->row.t_ms / DAY_MS * DAY_MS;
        if (day + DAY_MS + (uint64_t)LEDGER_HOURS_WHOLE * HOUR_MS > t->newest_ms)
            continue;
        s->row.t_ms = day;
        s->hours = 24;
    }
    sums_join(t);
}

/* ---- which rounds are older ---- */

static struct ledger_kept *kept_of(struct ledger_kept *kept, size_t count, uint32_t fragment)
{
    for (size_t i = 0; i < count; i++)
        if (kept[i].fragment == fragment)
            return &kept[i];
    return NULL;
}

uint64_t ledger_rows_kept(const struct ledger_kept *kept, size_t count, uint32_t fragment)
{
    for (size_t i = 0; i < count; i++)
        if (kept[i].fragment == fragment)
            return kept[i].round;
    return 0;
}

enum err ledger_rows_keep(struct ledger_rows *t, uint32_t fragment, uint64_t round)
{
    struct ledger_kept *k = kept_of(t->kept, t->kept_count, fragment);
    if (!k) {
        if (t->kept_count == t->kept_room)
            TRY(grow((void **)&t->kept, t->kept_count, &t->kept_room, sizeof *t->kept, t->a));
        k = &t->kept[t->kept_count++];
        *k = (struct ledger_kept){.fragment = fragment};
    }
    if (round > k->round)
        k->round = round;
    return ERR_OK;
}

/* The newest round of each fragment is that of a contribution or aggregate that was complete, or
 * was predicted from a manifest: a peer may name any other. */
static enum err keep_newest(struct ledger_rows *t)
{
    for (size_t i = 0; i < t->count; i++) {
        const struct ledger_row *row = &t->rows[i];
        bool known = row->what == LEDGER_CONTRIBUTION || row->what == LEDGER_AGGREGATE;
        known = known && row->round != LEDGER_NO_ROUND && (row->done || row->predicted);
        if (known && row->round >= t->keep)
            TRY(ledger_rows_keep(t, row->fragment, row->round + 1 - t->keep));
    }
    return ERR_OK;
}

/* ---- rows ---- */

static void rows_join(struct ledger_rows *t)
{
    size_t n = 0;
    if (t->count)
        qsort(t->rows, t->count, sizeof *t->rows, by_line);
    for (size_t i = 0; i < t->count; i++)
        if (n && ledger_row_compare(&t->rows[n - 1], &t->rows[i]) == 0)
            ledger_add(&t->rows[n - 1], &t->rows[i]);
        else
            t->rows[n++] = t->rows[i];
    t->count = n;
}

/* Is the prediction of all sites, before it among the rows, that of this row's round? */
static void predict_row(struct ledger_row *row, const struct ledger_row *prediction)
{
    if (!row->predicted && prediction && round_compare(prediction, row) == 0)
        row->predicted = prediction->predicted;
}

static enum err row_fold(struct ledger_rows *t, const struct ledger_row *row, bool late)
{
    struct ledger_sum s = ledger_sum_of(row, late);
    if (row->round != LEDGER_NO_ROUND)
        s.row.round = LEDGER_OLDER;
    return ledger_rows_add_sum(t, &s);
}

/* Rows of older rounds, and of none, become sums. before: rounds that were folded before. */
static enum err rows_fold(struct ledger_rows *t, const struct ledger_kept *before, size_t count)
{
    const struct ledger_row *prediction = NULL;
    struct ledger_row all;
    size_t n = 0;
    for (size_t i = 0; i < t->count; i++) {
        struct ledger_row row = t->rows[i];
        bool none = row.round == LEDGER_NO_ROUND;
        if (!none && row.round >= ledger_rows_kept(t->kept, t->kept_count, row.fragment)) {
            t->rows[n++] = row;
            continue;
        }
        bool alone = i + 1 == t->count || round_compare(&row, &t->rows[i + 1]) != 0;
        if (!*row.site) {
            all = row;
            prediction = &all;
            if (!alone)
                continue;
        } else
            predict_row(&row, prediction);
        TRY(row_fold(t, &row, !none && row.round < ledger_rows_kept(before, count, row.fragment)));
    }
    t->count = n;
    return ERR_OK;
}

static enum err rows_settle(struct ledger_rows *t)
{
    struct ledger_kept *before = NULL;
    size_t count = t->kept_count;
    rows_join(t);
    if (!t->keep)
        return ERR_OK;
    if (count) {
        TRY_ALLOC(before = malloc(count * sizeof *before));
        memcpy(before, t->kept, count * sizeof *before);
    }
    enum err e = keep_newest(t);
    if (e == ERR_OK)
        e = rows_fold(t, before, count);
    free(before);
    return e;
}

enum err ledger_rows_add(struct ledger_rows *t, const struct ledger_row *row)
{
    if (t->count == t->room) {
        TRY(rows_settle(t));
        if (t->count >= t->room / 2)
            TRY(grow((void **)&t->rows, t->count, &t->room, sizeof *t->rows, t->a));
    }
    if (row->t_ms > t->newest_ms)
        t->newest_ms = row->t_ms;
    t->rows[t->count++] = *row;
    return ERR_OK;
}

enum err ledger_rows_end(struct ledger_rows *t)
{
    TRY(rows_settle(t));
    sums_join(t);
    if (t->keep)
        sums_by_day(t);
    return ERR_OK;
}

enum err ledger_rows_predict(struct ledger_rows *t)
{
    const struct ledger_row *prediction = NULL;
    struct ledger_row all;
    size_t n = 0;
    for (size_t i = 0; i < t->count; i++) {
        struct ledger_row row = t->rows[i];
        if (*row.site) {
            predict_row(&row, prediction);
            t->rows[n++] = row;
            continue;
        }
        all = row;
        prediction = &all;
        if (i + 1 == t->count || round_compare(&row, &t->rows[i + 1]) != 0)
            TRY(row_fold(t, &row, false));
    }
    t->count = n;
    sums_join(t);
    return ERR_OK;
}
