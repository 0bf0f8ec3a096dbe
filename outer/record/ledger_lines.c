/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/record/ledger_lines.h"
#include <math.h>
#include <string.h>

enum { PROCESSES_MAX = 1 << 30 };

/* ---- writing ---- */

void ledger_put_round(struct jsonl *r, uint32_t fragment, uint64_t round)
{
    if (round == LEDGER_NO_ROUND)
        return;
    jsonl_int(r, "fragment", fragment);
    jsonl_int(r, "round", (int64_t)round);
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

void ledger_put_flow(struct jsonl *r, const struct ledger_row *row)
{
    jsonl_text(r, "what", ledger_name(row->what));
    jsonl_text(r, "site", row->site);
    ledger_put_round(r, row->fragment, row->round);
    jsonl_int(r, "calls", (int64_t)row->calls);
    jsonl_int(r, "broken", (int64_t)row->broken);
    if (ledger_transfer(row->what)) {
        jsonl_int(r, "total", (int64_t)row->total);
        jsonl_int(r, "done", row->done);
    }
    put_side(r, &row->up, "up");
    put_side(r, &row->down, "down");
}

void ledger_put_socket(struct jsonl *r, const struct ledger_row *row)
{
    jsonl_text(r, "site", row->site);
    jsonl_int(r, "up", (int64_t)row->up.socket);
    jsonl_int(r, "down", (int64_t)row->down.socket);
    jsonl_int(r, "resent", (int64_t)row->resent);
}

void ledger_put_predicted(struct jsonl *r, const char *site, uint32_t fragment, uint64_t round,
                          uint64_t up, uint64_t down)
{
    if (*site)
        jsonl_text(r, "site", site);
    ledger_put_round(r, fragment, round);
    jsonl_int(r, "up", (int64_t)up);
    jsonl_int(r, "down", (int64_t)down);
}

void ledger_put_life(struct jsonl *r, const struct ledger_life *life)
{
    jsonl_text(r, "run", life->run);
    jsonl_text(r, "replica", life->replica);
    if (life->aggregators > 1) {
        jsonl_int(r, "index", (int64_t)life->index);
        jsonl_int(r, "aggregators", (int64_t)life->aggregators);
    }
    if (!life->rows)
        return;
    const struct {
        const char *key;
        uint64_t value;
    } folded[] = {{"rows", life->rows},       {"row", life->row},
                  {"lives", life->lives},     {"unfinished", life->unfinished},
                  {"running", life->running}, {"missing", life->missing}};
    for (size_t i = 0; i < sizeof folded / sizeof *folded; i++)
        jsonl_int(r, folded[i].key, (int64_t)folded[i].value);
    jsonl_time(r, "begun", life->begun);
}

/* The numbers of a sum, and those of its transfers; one that is 0 is not written. */
#define SUM_NUMBERS(X)                                                                             \
    X("calls", row.calls)                                                                          \
    X("broken", row.broken)                                                                        \
    X("resent_by_tcp", row.resent)                                                                 \
    X("up", row.up.payload)                                                                        \
    X("up_grpc", row.up.grpc)                                                                      \
    X("up_http2", row.up.http2)                                                                    \
    X("up_tls", row.up.tls)                                                                        \
    X("up_socket", row.up.socket)                                                                  \
    X("down", row.down.payload)                                                                    \
    X("down_grpc", row.down.grpc)                                                                  \
    X("down_http2", row.down.http2)                                                                \
    X("down_tls", row.down.tls)                                                                    \
    X("down_socket", row.down.socket)                                                              \
    X("differ_round", differ_round)                                                                \
    X("cut_round", cut_round)                                                                      \
    X("model_grpc", model.grpc)                                                                    \
    X("model_http2", model.http2)                                                                  \
    X("model_tls", model.tls)
static const struct {
    const char *key;
    size_t at;
} numbers[] = {
#define X(key, member) {key, offsetof(struct ledger_sum, member)},
    SUM_NUMBERS(X)
#undef X
#define X(name) {#name, offsetof(struct ledger_sum, of.name)},
        LEDGER_COUNTS(X)
#undef X
};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static uint64_t number_of(const struct ledger_sum *sum, int i)
{
    uint64_t value;
    memcpy(&value, (const char *)sum + numbers[i].at, sizeof value);
    return value;
}

bool ledger_sum_fits(const struct ledger_sum *sum)
{
    for (int i = 0; i < NUMBERS; i++)
        if (number_of(sum, i) > LEDGER_NUMBER_MAX)
            return false;
    return true;
}

void ledger_put_sum(struct jsonl *r, const struct ledger_sum *sum)
{
    jsonl_text(r, "what", ledger_name(sum->row.what));
    if (*sum->row.site)
        jsonl_text(r, "site", sum->row.site);
    if (sum->row.round != LEDGER_NO_ROUND)
        jsonl_int(r, "fragment", sum->row.fragment);
    jsonl_int(r, "hours", (int64_t)sum->hours);
    for (int i = 0; i < NUMBERS; i++) {
        uint64_t value = number_of(sum, i);
        if (value)
            jsonl_int(r, numbers[i].key, (int64_t)value);
    }
}

/* ---- reading ---- */

/* A whole number of bytes or calls; false: anything else. */
bool ledger_take_count(const struct jsonl_row *row, const char *key, uint64_t *value)
{
    double number = jsonl_number(row, key);
    bool fits = number >= 0 && number <= (double)LEDGER_NUMBER_MAX;
    *value = fits ? (uint64_t)number : 0;
    return fits && number == floor(number);
}

static bool take_small(const struct jsonl_row *row, const char *key, uint32_t *value)
{
    uint64_t number;
    bool good = ledger_take_count(row, key, &number) && number <= UINT32_MAX;
    *value = good ? (uint32_t)number : 0;
    return good;
}

static bool take_side(const struct jsonl_row *row, const char *direction, struct ledger_side *s)
{
    uint64_t *const to[] = {&s->payload, &s->grpc, &s->http2, &s->tls};
    static const char *const layer[] = {"", "_grpc", "_http2", "_tls"};
    bool good = true;
    for (int i = 0; i < 4; i++) {
        char key[16];
        snprintf(key, sizeof key, "%s%s", direction, layer[i]);
        good = ledger_take_count(row, key, to[i]) && good;
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

/* Any time is one: a ledger's sums need none. */
static uint64_t time_ms(const struct jsonl_row *row)
{
    double s = jsonl_number(row, "t");
    return s > 0 && s < 1e11 ? (uint64_t)llround(1e3 * s) : 0;
}

bool ledger_take_round(const struct jsonl_row *row, struct ledger_row *to)
{
    to->round = LEDGER_NO_ROUND;
    to->t_ms = time_ms(row);
    if (!*jsonl_string(row, "round"))
        return true;
    return ledger_take_count(row, "round", &to->round) &&
           take_small(row, "fragment", &to->fragment);
}

bool ledger_take_flow(const struct jsonl_row *row, struct ledger_row *to)
{
    uint64_t done = 0;
    bool good = ledger_find(jsonl_string(row, "what"), &to->what) && to->what != LEDGER_SOCKET &&
                take_name(to->site, row, "site") && ledger_take_round(row, to) &&
                ledger_take_count(row, "calls", &to->calls) &&
                ledger_take_count(row, "broken", &to->broken) && take_side(row, "up", &to->up) &&
                take_side(row, "down", &to->down);
    if (good && ledger_transfer(to->what))
        good = ledger_take_count(row, "total", &to->total) &&
               ledger_take_count(row, "done", &done) &&
               (to->round != LEDGER_NO_ROUND || (!to->total && !done));
    to->done = done != 0;
    return good;
}

bool ledger_take_socket(const struct jsonl_row *row, struct ledger_row *to)
{
    to->what = LEDGER_SOCKET;
    to->round = LEDGER_NO_ROUND;
    to->t_ms = time_ms(row);
    return take_name(to->site, row, "site") && ledger_take_count(row, "up", &to->up.socket) &&
           ledger_take_count(row, "down", &to->down.socket) &&
           ledger_take_count(row, "resent", &to->resent);
}

bool ledger_take_predicted(const struct jsonl_row *row, struct ledger_row *up,
                           struct ledger_row *down)
{
    *up = (struct ledger_row){.what = LEDGER_CONTRIBUTION};
    *down = (struct ledger_row){.what = LEDGER_AGGREGATE};
    if (!ledger_take_round(row, up) || !ledger_take_round(row, down) ||
        up->round == LEDGER_NO_ROUND || !ledger_take_count(row, "up", &up->predicted) ||
        !ledger_take_count(row, "down", &down->predicted))
        return false;
    return !*jsonl_string(row, "site") ||
           (take_name(up->site, row, "site") && take_name(down->site, row, "site"));
}

bool ledger_take_life(const struct jsonl_row *row, struct ledger_life *life)
{
    *life = (struct ledger_life){0};
    if (!take_name(life->run, row, "run") || !take_name(life->replica, row, "replica"))
        return false;
    if (!*jsonl_string(row, "aggregators"))
        return true;
    return ledger_take_count(row, "index", &life->index) &&
           ledger_take_count(row, "aggregators", &life->aggregators) &&
           life->index < life->aggregators;
}

bool ledger_take_folded(const struct jsonl_row *row, struct ledger_life *life)
{
    life->begun = jsonl_number(row, "begun");
    return ledger_take_count(row, "rows", &life->rows) && life->rows > 0 &&
           ledger_take_count(row, "row", &life->row) &&
           ledger_take_count(row, "lives", &life->lives) && life->lives > 0 &&
           life->lives <= PROCESSES_MAX &&
           ledger_take_count(row, "unfinished", &life->unfinished) &&
           ledger_take_count(row, "running", &life->running) && life->running <= 1 &&
           life->unfinished + life->running <= life->lives &&
           ledger_take_count(row, "missing", &life->missing) && isfinite(life->begun);
}

bool ledger_take_sum(const struct jsonl_row *row, struct ledger_sum *sum)
{
    *sum = (struct ledger_sum){.row = {.round = LEDGER_NO_ROUND, .t_ms = time_ms(row)}};
    bool older = *jsonl_string(row, "fragment"), site = *jsonl_string(row, "site");
    if (!ledger_find(jsonl_string(row, "what"), &sum->row.what) ||
        (site && !take_name(sum->row.site, row, "site")) ||
        (older && !take_small(row, "fragment", &sum->row.fragment)) ||
        !ledger_take_count(row, "hours", &sum->hours) || (sum->hours != 1 && sum->hours != 24))
        return false;
    sum->row.round = older ? LEDGER_OLDER : LEDGER_NO_ROUND;
    for (int i = 0; i < NUMBERS; i++) {
        uint64_t value = 0;
        if (*jsonl_string(row, numbers[i].key) && !ledger_take_count(row, numbers[i].key, &value))
            return false;
        memcpy((char *)sum + numbers[i].at, &value, sizeof value);
    }
    sum->model.payload = sum->of.total;
    return sum->of.unpredicted <= sum->of.transfers;
}
