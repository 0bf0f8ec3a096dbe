/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/record/ledger_scan.h"
#include <stdlib.h>
#include <string.h>

enum { CONNECTION_SLACK = 4096 };

/* A row that is not there may have been in a process that was killed, or on a disk that was full.
 */
static bool has_gaps(const struct ledger_member *m)
{
    return m->lives.unfinished > 0 || m->lives.missing > 0;
}

/* ---- sums ---- */

static bool is_late(const struct ledger_member *m, const struct ledger_row *row)
{
    return row->round < ledger_rows_kept(m->folded.kept, m->folded.kept_count, row->fragment);
}

size_t ledger_sum_count(const struct ledger_member *m)
{
    return m->count + m->folded.sum_count;
}

struct ledger_sum ledger_sum_at(const struct ledger_member *m, size_t i)
{
    return i < m->count ? ledger_sum_of(&m->rows[i], is_late(m, &m->rows[i]))
                        : m->folded.sums[i - m->count];
}

uint64_t ledger_wrong(const struct ledger_member *m, const struct ledger_sum *s)
{
    return s->of.differ + (has_gaps(m) ? 0 : s->of.cut);
}

bool ledger_good(const struct ledger_member *m, const struct ledger_row *row)
{
    struct ledger_sum s = ledger_sum_of(row, is_late(m, row));
    return ledger_wrong(m, &s) == 0;
}

static void transfers_add(struct ledger_transfers *t, const struct ledger_member *m,
                          const struct ledger_sum *s)
{
#define X(name) t->name += s->of.name;
    LEDGER_COUNTS(X)
#undef X
    t->wrong += ledger_wrong(m, s);
}

/* ---- both ends ---- */

const struct ledger_row *ledger_row_of(const struct ledger_member *m, const struct ledger_row *row)
{
    return m->count ? bsearch(row, m->rows, m->count, sizeof *row, ledger_row_compare) : NULL;
}

bool ledger_ends_agree(const struct ledger_member *aggregator, const struct ledger_row *site_row)
{
    const struct ledger_row *other = ledger_row_of(aggregator, site_row);
    if (!ledger_transfer(site_row->what) || !site_row->done)
        return true;
    if (aggregator->aggregators > 1 &&
        site_row->fragment % aggregator->aggregators != aggregator->index)
        return true;
    if (!other ||
        !other->total) /* it knows the transfer from the round's prediction, or not at all */
        return site_row->total == 0 || has_gaps(aggregator) || is_late(aggregator, site_row);
    return other->total == site_row->total;
}

bool ledger_ends_unknown(const struct ledger_member *aggregator, const struct ledger_row *site_row)
{
    const struct ledger_row *other = ledger_row_of(aggregator, site_row);
    bool compared = ledger_transfer(site_row->what) && site_row->done && site_row->total > 0;
    bool theirs = aggregator->aggregators > 1 &&
                  site_row->fragment % aggregator->aggregators != aggregator->index;
    return compared && !theirs && (!other || !other->total) &&
           ledger_ends_agree(aggregator, site_row);
}

bool ledger_near(uint64_t layers, uint64_t socket, uint64_t other_way, uint64_t connections)
{
    uint64_t apart = layers > socket ? layers - socket : socket - layers;
    return apart <= socket / 100 + other_way / 10000 + connections * CONNECTION_SLACK;
}

/* ---- reading ---- */

static void add_up(struct ledger_member *m)
{
    struct ledger_row sum = {0};
    for (size_t i = 0; i < ledger_sum_count(m); i++) {
        struct ledger_sum s = ledger_sum_at(m, i);
        ledger_add(&sum, &s.row);
        m->connections += s.row.what == LEDGER_CONNECTION ? s.row.calls : 0;
        if (ledger_transfer(s.row.what))
            transfers_add(s.row.what == LEDGER_CONTRIBUTION ? &m->up : &m->down, m, &s);
    }
    m->up.layers = sum.up;
    m->down.layers = sum.down;
}

enum err ledger_read_on(struct disk *d, struct ledger_member *m, const char *directory,
                        const struct ledger_member *first, struct arena *a)
{
    const char *path;
    struct ledger_rows t = {.a = a};
    *m = (struct ledger_member){.directory = directory};
    TRY_ALLOC(path = arena_printf(a, "%s/%s", directory, LEDGER_FILE));
    TRY(ledger_scan(d, path, m, &t, &(uint64_t){0}));
    TRY(ledger_rows_predict(&t));
    ledger_lives_close(&m->lives);
    m->rows = t.rows;
    m->count = t.count;
    m->folded.sums = t.sums;
    m->folded.sum_count = t.sum_count;
    m->folded.kept = t.kept;
    m->folded.kept_count = t.kept_count;
    add_up(m);
    if (first && strcmp(first->run, m->run) != 0)
        return err_set(ERR_INPUT, "%s is of run %s, %s of run %s: give directories of one run",
                       directory, m->run, first->directory, first->run);
    return ERR_OK;
}

enum err ledger_read(struct ledger_member *m, const char *directory,
                     const struct ledger_member *first, struct arena *a)
{
    return ledger_read_on(disk_posix(), m, directory, first, a);
}
