/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/record/ledger_table.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "outer/record/jsonl.h"

const char *const ledger_by_name[LEDGER_BYS] = {"layer",    "site", "round",
                                                "fragment", "call", "hour"};

static void line_add(struct ledger_line *l, const struct ledger_member *m,
                     const struct ledger_sum *s)
{
    const struct ledger_row *row = &s->row;
    struct ledger_row sum = {.up = l->up.counted, .down = l->down.counted}, model = {0};
    struct ledger_flow *f = row->what == LEDGER_CONTRIBUTION ? &l->up : &l->down;
    ledger_add(&sum, row);
    l->up.counted = sum.up;
    l->down.counted = sum.down;
    l->calls += row->what < LEDGER_CONNECTION ? row->calls : 0;
    l->connections += row->what == LEDGER_CONNECTION ? row->calls : 0;
    l->broken += row->broken;
    l->resent_by_tcp += row->resent;
    l->wrong += ledger_wrong(m, s);
    f->predicted += s->of.predicted;
    f->total += s->of.total;
    model.up = f->model;
    ledger_add(&model, &(struct ledger_row){.up = s->model});
    f->model = model.up;
}

static int by_site(const void *x, const void *y)
{
    const struct ledger_row *a = x, *b = y;
    return strcmp(a->site, b->site);
}

/* Older rounds are one, and the first. */
static int by_round(const void *x, const void *y)
{
    const struct ledger_row *a = x, *b = y;
    bool older_a = a->round == LEDGER_OLDER, older_b = b->round == LEDGER_OLDER;
    if (older_a || older_b)
        return older_b - older_a;
    if (a->round != b->round)
        return a->round < b->round ? -1 : 1;
    return a->round == LEDGER_NO_ROUND ? 0
                                       : (a->fragment > b->fragment) - (a->fragment < b->fragment);
}

static int by_fragment(const void *x, const void *y)
{
    const struct ledger_row *a = x, *b = y;
    bool none_a = a->round == LEDGER_NO_ROUND, none_b = b->round == LEDGER_NO_ROUND;
    if (none_a || none_b)
        return none_a - none_b;
    return (a->fragment > b->fragment) - (a->fragment < b->fragment);
}

static int by_call(const void *x, const void *y)
{
    const struct ledger_row *a = x, *b = y;
    return (a->what > b->what) - (a->what < b->what);
}

static int by_hour(const void *x, const void *y)
{
    const struct ledger_sum *a = x, *b = y;
    if (a->row.t_ms != b->row.t_ms)
        return a->row.t_ms < b->row.t_ms ? -1 : 1;
    return (a->hours > b->hours) - (a->hours < b->hours);
}

static int by_nothing(const void *x, const void *y)
{
    (void)x;
    (void)y;
    return 0;
}

static int (*const order[LEDGER_BYS])(const void *, const void *) = {by_nothing,  by_site, by_round,
                                                                     by_fragment, by_call, by_hour};

static void label(char out[96], enum ledger_by by, const struct ledger_member *m,
                  const struct ledger_sum *s)
{
    const struct ledger_row *row = &s->row;
    bool none = row->round == LEDGER_NO_ROUND;
    if (by == LEDGER_BY_LAYER)
        snprintf(out, 96, "%s", m->name);
    else if (by == LEDGER_BY_SITE)
        snprintf(out, 96, "%s", row->site);
    else if (by == LEDGER_BY_CALL)
        snprintf(out, 96, "%s", ledger_name(row->what));
    else if (by == LEDGER_BY_HOUR)
        jsonl_date(out, 96, s->hours == 1 ? "%Y-%m-%d %H:00" : "%Y-%m-%d",
                   1e-3 * (double)row->t_ms);
    else if (none)
        snprintf(out, 96, "no round");
    else if (by == LEDGER_BY_ROUND && row->round == LEDGER_OLDER)
        snprintf(out, 96, "older rounds");
    else if (by == LEDGER_BY_ROUND)
        snprintf(out, 96, "%" PRIu64 " fragment %" PRIu32, row->round, row->fragment);
    else
        snprintf(out, 96, "%" PRIu32, row->fragment);
}

enum err ledger_lines_make(const struct ledger_member *m, enum ledger_by by, struct arena *a,
                           struct ledger_line **lines, size_t *count)
{
    struct ledger_sum *sums;
    size_t all = ledger_sum_count(m), n = 0;
    TRY_ALLOC(sums = arena_array(a, all + 1, sizeof *sums));
    TRY_ALLOC(*lines = arena_array(a, all + 1, sizeof **lines));
    *count = 0;
    for (size_t i = 0; i < all; i++) {
        sums[n] = ledger_sum_at(m, i);
        n += *sums[n].row.site != 0;
    }
    if (n)
        qsort(sums, n, sizeof *sums, order[by]);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || order[by](&sums[i - 1], &sums[i]) != 0) {
            struct ledger_line *fresh = &(*lines)[(*count)++];
            *fresh = (struct ledger_line){0};
            label(fresh->label, by, m, &sums[i]);
        }
        line_add(&(*lines)[*count - 1], m, &sums[i]);
    }
    return ERR_OK;
}
