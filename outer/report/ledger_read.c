#include "outer/report/ledger_read.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CONNECTION_SLACK = 4096 };

struct reading {
    struct ledger_member *m;
    const char *path;
    uint64_t line,
        row; /* row: the number of the last one of its process; 0: older files have none */
    size_t room;
    struct arena *a;
};

static enum err damaged(const struct reading *g, const char *what)
{
    if (!g->m->lives)
        return err_set(ERR_INPUT, "%s: it is no ledger of atoll", g->path);
    return err_set(ERR_CORRUPT, "%s, line %llu: %s; its sums would be wrong: restore the file",
                   g->path, (unsigned long long)g->line, what);
}

/* A whole number of bytes or calls; false: anything else. */
static bool count_take(const struct jsonl_row *row, const char *key, uint64_t *value)
{
    double number = jsonl_number(row, key);
    *value = number >= 0 && number <= 9007199254740992.0 ? (uint64_t)number
                                                         : 0; /* what a double holds exactly */
    return number >= 0 && number <= 9007199254740992.0 && number == floor(number);
}

static bool take_side(const struct jsonl_row *row, const char *direction, struct ledger_side *s)
{
    uint64_t *const to[] = {&s->payload, &s->grpc, &s->http2, &s->tls};
    static const char *const layer[] = {"", "_grpc", "_http2", "_tls"};
    bool good = true;
    for (int i = 0; i < 4; i++) {
        char key[16];
        snprintf(key, sizeof key, "%s%s", direction, layer[i]);
        good = count_take(row, key, to[i]) && good;
    }
    return good;
}

static bool take_name(char out[LEDGER_SITE_MAX], const struct jsonl_row *row, const char *key)
{
    const char *text = jsonl_string(row, key);
    if (!*text || strlen(text) >= LEDGER_SITE_MAX)
        return false;
    memcpy(out, text, strlen(text) + 1);
    return true;
}

static bool take_round(const struct jsonl_row *row, struct ledger_row *to)
{
    uint64_t fragment;
    to->round = LEDGER_NO_ROUND;
    if (!*jsonl_string(row, "round"))
        return true;
    if (!count_take(row, "round", &to->round) || !count_take(row, "fragment", &fragment) ||
        fragment > UINT32_MAX)
        return false;
    to->fragment = (uint32_t)fragment;
    return true;
}

static bool take_flow(const struct jsonl_row *row, struct ledger_row *to)
{
    uint64_t done = 0;
    bool good = ledger_find(jsonl_string(row, "what"), &to->what) && to->what != LEDGER_SOCKET &&
                take_name(to->site, row, "site") && take_round(row, to) &&
                count_take(row, "calls", &to->calls) && count_take(row, "broken", &to->broken) &&
                take_side(row, "up", &to->up) && take_side(row, "down", &to->down);
    if (good && ledger_transfer(to->what))
        good = count_take(row, "total", &to->total) && count_take(row, "done", &done) &&
               (to->round != LEDGER_NO_ROUND || (!to->total && !done));
    to->done = done != 0;
    return good;
}

static bool take_socket(const struct jsonl_row *row, struct ledger_row *to)
{
    to->what = LEDGER_SOCKET;
    to->round = LEDGER_NO_ROUND;
    return take_name(to->site, row, "site") && count_take(row, "up", &to->up.socket) &&
           count_take(row, "down", &to->down.socket) && count_take(row, "resent", &to->resent);
}

static enum err append(struct reading *g, const struct ledger_row *row)
{
    struct ledger_member *m = g->m;
    if (m->count == g->room) {
        size_t room = g->room ? 2 * g->room : 256;
        struct ledger_row *rows;
        TRY_ALLOC(rows = arena_array(g->a, room, sizeof *rows));
        if (m->count)
            memcpy(rows, m->rows, m->count * sizeof *rows);
        m->rows = rows;
        g->room = room;
    }
    m->rows[m->count++] = *row;
    return ERR_OK;
}

/* A prediction, of every site or of one: a row of each direction, joined after the sort. */
static enum err append_predicted(struct reading *g, const struct jsonl_row *row)
{
    struct ledger_row up = {.what = LEDGER_CONTRIBUTION}, down = {.what = LEDGER_AGGREGATE};
    if (!take_round(row, &up) || !take_round(row, &down) || up.round == LEDGER_NO_ROUND ||
        !count_take(row, "up", &up.predicted) || !count_take(row, "down", &down.predicted))
        return damaged(g, "a prediction without its numbers");
    if (*jsonl_string(row, "site") &&
        (!take_name(up.site, row, "site") || !take_name(down.site, row, "site")))
        return damaged(g, "a prediction of a site without a name");
    if (up.predicted)
        TRY(append(g, &up));
    return down.predicted ? append(g, &down) : ERR_OK;
}

/* Which of several aggregators; without these keys the only one. */
static bool take_index(const struct jsonl_row *row, struct ledger_member *m,
                       char name[LEDGER_SITE_MAX])
{
    uint64_t index = 0, of = 1;
    m->aggregator = !strcmp(name, "aggregator");
    if (!m->aggregator || !*jsonl_string(row, "aggregators"))
        return true;
    if (!count_take(row, "index", &index) || !count_take(row, "aggregators", &of) || index >= of)
        return false;
    m->index = index;
    m->aggregators = of;
    snprintf(name, LEDGER_SITE_MAX, "aggregator %" PRIu64, index);
    return true;
}

/* No directory has two processes at one time: the file, or each of its lines, is there twice. */
static bool begun_before(const struct ledger_member *m, double t)
{
    return m->lives && (t == m->begun || t == m->begun_last);
}

/* Rows of a process are numbered from 1. */
static enum err take_number(struct reading *g, const struct jsonl_row *row)
{
    uint64_t n;
    if (jsonl_is(row, "life"))
        g->row = 0;
    if (!*jsonl_string(row, "n") && !g->row)
        return ERR_OK;
    if (!count_take(row, "n", &n) || n == 0)
        return damaged(g, "a row without its number");
    if (n <= g->row)
        return damaged(g, "a row that was there before: rows are there twice");
    g->m->missing += n - g->row - 1;
    g->row = n;
    return ERR_OK;
}

static enum err take_life(struct reading *g, const struct jsonl_row *row)
{
    struct ledger_member *m = g->m;
    char run[LEDGER_SITE_MAX], name[LEDGER_SITE_MAX];
    double t = jsonl_number(row, "t");
    if (!take_name(run, row, "run") || !take_name(name, row, "replica") ||
        !take_index(row, m, name))
        return damaged(g, "a process without its run and name");
    if (m->lives && (strcmp(m->run, run) != 0 || strcmp(m->name, name) != 0))
        return err_set(
            ERR_INPUT,
            "%s, line %llu: %s of run %s, but the file began with %s of run %s: two ledgers in one",
            g->path, (unsigned long long)g->line, name, run, m->name, m->run);
    if (begun_before(m, t))
        return damaged(g, "a process that has begun already: rows are there twice");
    m->begun = m->lives ? m->begun : t;
    m->begun_last = t;
    memcpy(m->run, run, sizeof run);
    memcpy(m->name, name, sizeof name);
    m->unfinished += m->running;
    m->lives++;
    m->running = true;
    return ERR_OK;
}

static enum err take_row(struct reading *g, const struct jsonl_row *row)
{
    struct ledger_row to = {0};
    if (!g->m->lives && !jsonl_is(row, "life"))
        return damaged(g, "");
    if (jsonl_number(row, "v") != RECORD_VERSION)
        return err_set(ERR_INPUT, "%s, line %llu: not written by this version of atoll", g->path,
                       (unsigned long long)g->line);
    TRY(take_number(g, row));
    if (jsonl_is(row, "life"))
        return take_life(g, row);
    if (jsonl_is(row, "end")) {
        g->m->running = false;
        return ERR_OK;
    }
    if (jsonl_is(row, "predicted"))
        return append_predicted(g, row);
    if (jsonl_is(row, "flow"))
        return take_flow(row, &to) ? append(g, &to)
                                   : damaged(g, "a row of calls that is not whole");
    if (jsonl_is(row, "socket"))
        return take_socket(row, &to) ? append(g, &to)
                                     : damaged(g, "a row of sockets that is not whole");
    return damaged(g, "a row of no known kind");
}

/* ---- adding up ---- */

static int compare(const void *x, const void *y)
{
    const struct ledger_row *a = x, *b = y;
    int site = strcmp(a->site, b->site);
    if (a->what != b->what)
        return a->what < b->what ? -1 : 1;
    if (a->fragment != b->fragment)
        return a->fragment < b->fragment ? -1 : 1;
    if (a->round != b->round)
        return a->round < b->round ? -1 : 1;
    return site;
}

static bool rows_same(const struct ledger_row *a, const struct ledger_row *b)
{
    return compare(a, b) == 0;
}

static bool same_round(const struct ledger_row *a, const struct ledger_row *b)
{
    return a->what == b->what && a->fragment == b->fragment && a->round == b->round;
}

static void absent(struct ledger_member *m, const struct ledger_row *prediction)
{
    struct ledger_transfers *t = prediction->what == LEDGER_CONTRIBUTION ? &m->up : &m->down;
    t->absent++;
    t->absent_bytes += prediction->predicted;
}

/* One row for each key; predictions (no site: first among their round's) go into the transfers of
 * all sites. */
static void join(struct ledger_member *m)
{
    size_t n = 0;
    if (m->count)
        qsort(m->rows, m->count, sizeof *m->rows, compare);
    struct ledger_row prediction = {0};
    for (size_t i = 0; i < m->count; i++) {
        struct ledger_row row = m->rows[i];
        bool last = i + 1 == m->count || !same_round(&row, &m->rows[i + 1]);
        if (!*row.site) {
            prediction = row;
            if (last)
                absent(m, &row);
            continue;
        }
        if (!row.predicted && same_round(&prediction, &row))
            row.predicted = prediction.predicted;
        if (n && rows_same(&m->rows[n - 1], &row))
            ledger_add(&m->rows[n - 1], &row);
        else
            m->rows[n++] = row;
    }
    m->count = n;
}

static uint64_t payload_of(const struct ledger_row *row)
{
    return row->what == LEDGER_CONTRIBUTION ? row->up.payload : row->down.payload;
}

/* A row that is not there may have been in a process that was killed, or on a disk that was full.
 */
static bool has_gaps(const struct ledger_member *m)
{
    return m->unfinished > 0 || m->missing > 0;
}

bool ledger_good(const struct ledger_member *m, const struct ledger_row *row)
{
    if (!ledger_transfer(row->what))
        return true;
    if (row->predicted && row->total && row->predicted != row->total)
        return false;
    return !row->done || payload_of(row) >= row->total || has_gaps(m);
}

static void add_transfer(const struct ledger_member *m, const struct ledger_row *row,
                         struct ledger_transfers *t)
{
    uint64_t payload = payload_of(row);
    if (row->round == LEDGER_NO_ROUND) /* calls that moved nothing */
        return;
    t->wrong += !ledger_good(m, row);
    if (!row->calls) { /* a prediction of this site, and nothing of it booked */
        t->absent++;
        t->absent_bytes += row->predicted;
        return;
    }
    if (!row->done) {
        t->incomplete++;
        t->incomplete_bytes += payload;
        return;
    }
    t->transfers++;
    t->counted += payload;
    t->total += row->total;
    t->resent += payload > row->total ? payload - row->total : 0;
    t->lost += payload < row->total ? row->total - payload : 0;
    t->predicted += row->predicted;
    t->predicted_total += row->predicted ? row->total : 0;
    t->unpredicted += !row->predicted;
}

const struct ledger_row *ledger_row_of(const struct ledger_member *m, const struct ledger_row *row)
{
    return m->count ? bsearch(row, m->rows, m->count, sizeof *row, compare) : NULL;
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
        return site_row->total == 0 || has_gaps(aggregator);
    return other->total == site_row->total;
}

bool ledger_near(uint64_t layers, uint64_t socket, uint64_t other_way, uint64_t connections)
{
    uint64_t apart = layers > socket ? layers - socket : socket - layers;
    return apart <= socket / 100 + other_way / 10000 + connections * CONNECTION_SLACK;
}

/* ---- reading ---- */

static enum err check_end(struct reading *g)
{
    struct ledger_member *m = g->m;
    if (!m->lives)
        return err_set(ERR_INPUT, "%s: it is empty: nothing has been sent yet", g->path);
    m->unfinished += m->running;
    join(m);
    struct ledger_row sum = {0};
    for (size_t i = 0; i < m->count; i++) {
        const struct ledger_row *row = &m->rows[i];
        ledger_add(&sum, row);
        m->connections += row->what == LEDGER_CONNECTION ? row->calls : 0;
        if (ledger_transfer(row->what))
            add_transfer(m, row, row->what == LEDGER_CONTRIBUTION ? &m->up : &m->down);
    }
    m->up.layers = sum.up;
    m->down.layers = sum.down;
    return ERR_OK;
}

enum err ledger_read(struct ledger_member *m, const char *directory,
                     const struct ledger_member *first, struct arena *a)
{
    struct jsonl_reader reader;
    struct jsonl_row row;
    char *path;
    TRY_ALLOC(path = arena_printf(a, "%s/%s", directory, LEDGER_FILE));
    *m = (struct ledger_member){.directory = directory};
    struct reading g = {.m = m, .path = path, .a = a};
    if (!jsonl_reader_open(&reader, path))
        return err_set(ERR_INPUT,
                       "%s: there is no such file: give the run.dir of a site (atoll train with "
                       "site.aggregator) "
                       "or the serve.dir of an aggregator",
                       path);
    enum err e = ERR_OK;
    while (e == ERR_OK && jsonl_next(&reader, &row)) {
        g.line++;
        e = reader.skipped ? damaged(&g, "not a row") : take_row(&g, &row);
    }
    if (e == ERR_OK && reader.skipped) {
        g.line++;
        e = damaged(&g, "not a row");
    }
    jsonl_reader_close(&reader);
    if (e == ERR_OK)
        e = check_end(&g);
    if (e == ERR_OK && first && strcmp(first->run, m->run) != 0)
        e = err_set(ERR_INPUT, "%s is of run %s, %s of run %s: give directories of one run",
                    directory, m->run, first->directory, first->run);
    return e;
}
