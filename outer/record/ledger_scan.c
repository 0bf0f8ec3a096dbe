/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/record/ledger_scan.h"
#include <inttypes.h>
#include <string.h>
#include "kernels/base/durable.h"
#include "outer/record/ledger_lines.h"

struct reading {
    struct ledger_member *m;
    struct ledger_rows *t;
    const char *path;
    uint64_t line;
    uint64_t row;  /* the number of the last one of its process; 0: older files have none */
    uint64_t left; /* rows of a fold that must follow */
    uint64_t then; /* after them: `row` */
};

static enum err damaged(const struct reading *g, const char *what)
{
    if (!g->m->lives.count)
        return err_set(ERR_INPUT, "%s: it is no ledger of atoll", g->path);
    return err_set(ERR_CORRUPT, "%s, line %llu: %s; its sums would be wrong: restore the file",
                   g->path, (unsigned long long)g->line, what);
}

/* ---- processes ---- */

/* No directory has two processes at one time: the file, or each of its lines, is there twice. */
static bool begun_before(const struct ledger_member *m, double t)
{
    return m->lives.count && (t == m->lives.begun || t == m->lives.begun_last);
}

/* Rows of a process are numbered from 1, and so are those of a fold, which says how many it has. */
static enum err take_number(struct reading *g, const struct jsonl_row *row)
{
    uint64_t n;
    if (jsonl_is(row, "life") && !g->left)
        g->row = 0;
    if (!*jsonl_string(row, "n") && !g->row)
        return ERR_OK;
    if (!ledger_take_count(row, "n", &n) || n == 0)
        return damaged(g, "a row without its number");
    if (n <= g->row)
        return damaged(g, "a row that was there before: rows are there twice");
    g->m->lives.missing += n - g->row - 1;
    g->row = n;
    return ERR_OK;
}

static void name_of(char name[LEDGER_SITE_MAX], const struct ledger_life *life)
{
    snprintf(name, LEDGER_SITE_MAX, "%s", life->replica);
    if (life->aggregators && !strcmp(life->replica, "aggregator"))
        snprintf(name, LEDGER_SITE_MAX, "aggregator %" PRIu64, life->index);
}

/* The processes up to a fold, in place of their own lines. */
static enum err take_folded(struct reading *g, const struct jsonl_row *row,
                            struct ledger_life *life)
{
    struct ledger_member *m = g->m;
    if (m->lives.count)
        return damaged(g, "sums that do not begin the file: rows are there twice");
    if (!ledger_take_folded(row, life) || g->row != 1)
        return damaged(g, "sums without their number");
    m->lives.begun = life->begun;
    m->lives.missing = life->missing;
    m->lives.count = (unsigned)life->lives;
    m->lives.unfinished = (unsigned)life->unfinished;
    m->lives.running = life->running;
    g->left = life->rows; /* with this one */
    g->then = life->row;
    return ERR_OK;
}

static enum err take_life(struct reading *g, const struct jsonl_row *row)
{
    struct ledger_member *m = g->m;
    struct ledger_life life;
    char name[LEDGER_SITE_MAX];
    double t = jsonl_number(row, "t");
    if (!ledger_take_life(row, &life))
        return damaged(g, "a process without its run and name");
    name_of(name, &life);
    if (m->lives.count && (strcmp(m->run, life.run) != 0 || strcmp(m->name, name) != 0))
        return err_set(
            ERR_INPUT,
            "%s, line %llu: %s of run %s, but the file began with %s of run %s: two ledgers in one",
            g->path, (unsigned long long)g->line, name, life.run, m->name, m->run);
    bool folded = jsonl_number(row, "v") == LEDGER_FOLDED_VERSION;
    if (!folded && begun_before(m, t))
        return damaged(g, "a process that has begun already: rows are there twice");
    if (folded)
        TRY(take_folded(g, row, &life));
    else {
        m->lives.begun = m->lives.count ? m->lives.begun : t;
        m->lives.unfinished += m->lives.running;
        m->lives.count++;
        m->lives.running = true;
    }
    m->lives.begun_last = t;
    memcpy(m->run, life.run, sizeof m->run);
    memcpy(m->name, name, sizeof m->name);
    m->aggregator = !strcmp(life.replica, "aggregator");
    m->index = m->aggregator ? life.index : 0;
    m->aggregators = m->aggregator ? life.aggregators : 0;
    return ERR_OK;
}

static enum err take_end(struct reading *g, const struct jsonl_row *row)
{
    (void)row;
    g->m->lives.running = false;
    return ERR_OK;
}

/* ---- rows ---- */

static enum err append(struct reading *g, struct ledger_row *row)
{
    row->line = g->line;
    return ledger_rows_add(g->t, row);
}

/* A prediction, of every site or of one: a row of each direction, joined after the sort. */
static enum err take_predicted(struct reading *g, const struct jsonl_row *row)
{
    struct ledger_row up, down;
    if (!ledger_take_predicted(row, &up, &down))
        return damaged(g, "a prediction without its numbers and name");
    if (up.predicted)
        TRY(append(g, &up));
    return down.predicted ? append(g, &down) : ERR_OK;
}

static enum err take_flow(struct reading *g, const struct jsonl_row *row)
{
    struct ledger_row to = {0};
    return ledger_take_flow(row, &to) ? append(g, &to)
                                      : damaged(g, "a row of calls that is not whole");
}

static enum err take_socket(struct reading *g, const struct jsonl_row *row)
{
    struct ledger_row to = {0};
    return ledger_take_socket(row, &to) ? append(g, &to)
                                        : damaged(g, "a row of sockets that is not whole");
}

static enum err take_sum(struct reading *g, const struct jsonl_row *row)
{
    struct ledger_sum sum;
    return g->left && ledger_take_sum(row, &sum) ? ledger_rows_add_sum(g->t, &sum)
                                                 : damaged(g, "a sum that is not whole");
}

static enum err take_kept(struct reading *g, const struct jsonl_row *row)
{
    struct ledger_row kept;
    return g->left && ledger_take_round(row, &kept) && kept.round != LEDGER_NO_ROUND
               ? ledger_rows_keep(g->t, kept.fragment, kept.round)
               : damaged(g, "a fragment's first round that is not whole");
}

static const struct {
    const char *name;
    enum err (*take)(struct reading *g, const struct jsonl_row *row);
} kinds[] = {{"life", take_life}, {"end", take_end},       {"predicted", take_predicted},
             {"flow", take_flow}, {"socket", take_socket}, {"sum", take_sum},
             {"kept", take_kept}};

static enum err take_row(struct reading *g, const struct jsonl_row *row)
{
    double version = jsonl_number(row, "v");
    bool folded = version == LEDGER_FOLDED_VERSION, life = jsonl_is(row, "life");
    if (!g->m->lives.count && !life)
        return damaged(g, "");
    if (version != RECORD_VERSION && !folded)
        return err_set(ERR_INPUT, "%s, line %llu: not written by this version of atoll", g->path,
                       (unsigned long long)g->line);
    if (g->left ? !folded : folded && !life)
        return damaged(g, g->left ? "a row of its sums is not there" : "a sum by itself");
    TRY(take_number(g, row));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (jsonl_is(row, kinds[i].name)) {
            TRY(kinds[i].take(g, row));
            if (g->left && --g->left == 0)
                g->row = g->then;
            return ERR_OK;
        }
    return damaged(g, "a row of no known kind");
}

/* ---- lines ---- */

static enum err take_line(struct reading *g, char *line)
{
    struct jsonl_row row;
    g->line++;
    return jsonl_parse(&row, line) ? take_row(g, &row) : damaged(g, "not a row");
}

/* The whole lines among n bytes of text; *used: how many bytes these are. */
static enum err take_lines(struct reading *g, char *text, size_t n, size_t *used)
{
    char *at = text, *end;
    while ((end = memchr(at, '\n', n - (size_t)(at - text)))) {
        *end = 0;
        TRY(take_line(g, at));
        at = end + 1;
    }
    *used = (size_t)(at - text);
    return ERR_OK;
}

static enum err take_file(struct reading *g, struct disk *d, int fd, size_t size, char *text)
{
    size_t have = 0, used;
    for (size_t at = 0; at < size;) {
        size_t n = size - at < RECORD_LINE_MAX - have ? size - at : RECORD_LINE_MAX - have;
        if (n == 0) {
            g->line++;
            return damaged(g, "not a row");
        }
        TRY(durable_read_at(d, fd, g->path, (uint8_t *)text + have, n, at));
        at += n;
        have += n;
        TRY(take_lines(g, text, have, &used));
        have -= used;
        memmove(text, text + used, have);
    }
    return ERR_OK;
}

void ledger_lives_close(struct ledger_lives *l)
{
    l->unfinished += l->running;
}

enum err ledger_scan(struct disk *d, const char *path, struct ledger_member *m,
                     struct ledger_rows *t, uint64_t *last)
{
    struct reading g = {.m = m, .t = t, .path = path};
    char *text;
    int fd;
    size_t size;
    TRY_ALLOC(text = arena_alloc(t->a, RECORD_LINE_MAX));
    if (durable_open(d, path, &fd, &size) != ERR_OK)
        return err_set(ERR_INPUT,
                       "%s: there is no such file: give the run.dir of a site (atoll train with "
                       "site.aggregator) "
                       "or the serve.dir of an aggregator",
                       path);
    enum err e = take_file(&g, d, fd, size, text);
    d->ops->close(d, fd);
    TRY(e);
    if (!m->lives.count)
        return err_set(ERR_INPUT, "%s: it is empty: nothing has been sent yet", path);
    if (g.left)
        return damaged(&g, "the file ends within its sums");
    *last = g.row;
    return ledger_rows_end(t);
}
