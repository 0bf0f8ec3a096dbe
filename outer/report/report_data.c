#include "outer/report/report_data.h"
#include <math.h>
#include <string.h>

const char *const report_time_name[REPORT_TIMES] = {"compute", "encode", "store", "send",
                                                    "wait",    "fetch",  "apply"};

const char *const report_gauge_name[REPORT_GAUGES] = {"gain", "rho", "agreement", "residual_ratio"};

/* Room for one more item in a growing array of the arena. */
static enum err room(void **items, size_t count, size_t *capacity, size_t size, struct arena *a)
{
    if (count < *capacity)
        return ERR_OK;
    size_t larger = *capacity ? 2 * *capacity : 64;
    void *next;
    TRY_ALLOC(next = arena_array(a, larger, size));
    if (count)
        memcpy(next, *items, count * size);
    *items = next;
    *capacity = larger;
    return ERR_OK;
}

/* Points ascend in x; a repeated step goes back and overwrites what was after it. */
static enum err add_point(struct report_points *p, double x, double y, struct arena *a)
{
    while (p->count && p->x[p->count - 1] >= x)
        p->count--;
    size_t capacity = p->capacity;
    TRY(room((void **)&p->x, p->count, &capacity, sizeof *p->x, a));
    TRY(room((void **)&p->y, p->count, &p->capacity, sizeof *p->y, a));
    p->x[p->count] = x;
    p->y[p->count++] = y;
    return ERR_OK;
}

static enum err add_event(struct report_run *r, double t, const char *text, struct arena *a)
{
    TRY(room((void **)&r->events, r->event_count, &r->event_capacity, sizeof *r->events, a));
    struct report_event *e = &r->events[r->event_count++];
    e->t = t;
    snprintf(e->text, sizeof e->text, "%s", text);
    return ERR_OK;
}

static double number_or(const struct jsonl_row *row, const char *key, double fallback)
{
    double value = jsonl_number(row, key);
    return isfinite(value) ? value : fallback;
}

static enum err add_round(struct report_run *r, const struct jsonl_row *row, struct arena *a)
{
    struct report_round n = {.step = jsonl_number(row, "step"),
                             .fragment = jsonl_number(row, "fragment"),
                             .round = jsonl_number(row, "round"),
                             .included = jsonl_number(row, "included"),
                             .sites = jsonl_number(row, "sites"),
                             .up = number_or(row, "up", 0),
                             .up_predicted = number_or(row, "up_predicted", 0),
                             .down = number_or(row, "down", 0),
                             .down_predicted = number_or(row, "down_predicted", 0),
                             .wire_up = number_or(row, "wire_up", 0),
                             .wire_down = number_or(row, "wire_down", 0),
                             .hidden_ms = number_or(row, "hidden_ms", 0),
                             .exposed_ms = number_or(row, "exposed_ms", 0),
                             .replayed = jsonl_number(row, "replayed") > 0};
    for (int i = 0; i < REPORT_TIMES; i++) {
        char key[32];
        snprintf(key, sizeof key, "%s_ms", report_time_name[i]);
        n.ms[i] = number_or(row, key, 0);
    }
    for (int i = 0; i < REPORT_GAUGES; i++)
        n.metrics[i] = jsonl_number(row, report_gauge_name[i]);
    if (n.replayed) /* its exchange is on record from before the restart */
        return ERR_OK;
    while (
        r->round_count && r->rounds[r->round_count - 1].step >= n.step &&
        (r->rounds[r->round_count - 1].step > n.step ||
         (r->rounds[r->round_count - 1].fragment == n.fragment && /* overlapped ones end here too */
          r->rounds[r->round_count - 1].round >= n.round)))
        r->round_count--;
    TRY(room((void **)&r->rounds, r->round_count, &r->round_capacity, sizeof *r->rounds, a));
    r->rounds[r->round_count++] = n;
    return ERR_OK;
}

static enum err keep(const char **to, const struct jsonl_row *row, const char *key, struct arena *a)
{
    const char *text = jsonl_string(row, key);
    TRY_ALLOC(*to = arena_string(a, text, strlen(text)));
    return ERR_OK;
}

static enum err take_start(struct report_run *r, const struct jsonl_row *row, struct arena *a)
{
    char text[160];
    double step = number_or(row, "step", 0);
    snprintf(text, sizeof text, step > 0 || r->starts ? "started again at step %.0f" : "started",
             step);
    TRY(add_event(r, jsonl_number(row, "t"), text, a));
    r->starts++;
    r->parameters = number_or(row, "parameters", 0);
    r->steps = number_or(row, "steps", 0);
    r->ranks = number_or(row, "ranks", 1);
    r->threads = number_or(row, "threads", 0);
    r->alone = !*jsonl_string(row, "aggregator");
    if (!r->alone && *jsonl_string(row, "site"))
        snprintf(r->name, sizeof r->name, "site %s", jsonl_string(row, "site"));
    TRY(keep(&r->run, row, "run", a));
    TRY(keep(&r->config, row, "config", a));
    TRY(keep(&r->version, row, "version", a));
    TRY(keep(&r->commit, row, "commit", a));
    TRY(keep(&r->compiler, row, "compiler", a));
    TRY(keep(&r->device, row, "device", a));
    return keep(&r->command, row, "command", a);
}

static enum err take_final(struct report_run *r, const struct jsonl_row *row, struct arena *a)
{
    static const char *const key[] = {"parameters", "momentum", "residual", "outer"};
    for (int i = 0; i < 4; i++)
        snprintf(r->digest[i], sizeof r->digest[i], "%.64s", jsonl_string(row, key[i]));
    r->finished = true;
    return add_event(r, jsonl_number(row, "t"), "all steps done", a);
}

static enum err take(struct report_run *r, const struct jsonl_row *row, struct arena *a)
{
    char text[160];
    double step = jsonl_number(row, "step");
    if (jsonl_is(row, "start"))
        return take_start(r, row, a);
    if (jsonl_is(row, "step")) {
        r->tokens = number_or(row, "tokens", r->tokens);
        double speed = number_or(row, "tokens_per_second", 0);
        r->tokens_per_second += (speed - r->tokens_per_second) / (double)(r->loss.count + 1);
        return add_point(&r->loss, step, jsonl_number(row, "loss"), a);
    }
    if (jsonl_is(row, "round"))
        return add_round(r, row, a);
    if (jsonl_is(row, "eval"))
        return add_point(&r->held_out, step, jsonl_number(row, "loss"), a);
    if (jsonl_is(row, "final"))
        return take_final(r, row, a);
    if (jsonl_is(row, "stop")) {
        snprintf(text, sizeof text, "stopped at step %.0f: %.100s", step,
                 jsonl_string(row, "reason"));
        return add_event(r, jsonl_number(row, "t"), text, a);
    }
    if (jsonl_is(row, "notice"))
        return add_event(r, jsonl_number(row, "t"), jsonl_string(row, "text"), a);
    return ERR_OK; /* of a later version: what it means is not ours to guess */
}

/* A page without the ledger's table is better than none: it says why. */
static enum err read_ledger(struct report_run *r, const char *dir, struct arena *a)
{
    enum err e = ledger_read(&r->ledger, dir, NULL, a);
    if (e == ERR_OK || e == ERR_MEMORY)
        return e;
    snprintf(r->ledger_why, sizeof r->ledger_why, "%s", err_message());
    r->ledger = (struct ledger_member){0};
    err_clear();
    return ERR_OK;
}

enum err report_data_read(struct report_run *r, const char *dir, struct arena *a)
{
    *r = (struct report_run){.dir = dir,
                             .run = "",
                             .config = "",
                             .version = "",
                             .commit = "",
                             .compiler = "",
                             .device = "",
                             .command = ""};
    char *path;
    TRY_ALLOC(path = arena_printf(a, "%s/%s", dir, RECORD_FILE));
    size_t length = strlen(dir);
    while (length > 1 && dir[length - 1] == '/')
        length--;
    size_t start = length;
    while (start > 0 && dir[start - 1] != '/')
        start--;
    snprintf(r->name, sizeof r->name, "%.*s", (int)(length - start), dir + start);
    struct jsonl_reader reader;
    struct jsonl_row row;
    if (!jsonl_reader_open(&reader, path))
        return err_set(ERR_INPUT, "%s: there is no such file: give the run.dir of an `atoll train`",
                       path);
    enum err e = ERR_OK;
    while (e == ERR_OK && jsonl_next(&reader, &row)) {
        double t = jsonl_number(&row, "t");
        if (r->first_t == 0)
            r->first_t = t;
        r->last_t = t;
        e = take(r, &row, a);
    }
    r->skipped = reader.skipped;
    jsonl_reader_close(&reader);
    if (e == ERR_OK && !r->alone)
        e = read_ledger(r, dir, a);
    if (e == ERR_OK && r->starts == 0)
        return err_set(ERR_INPUT, "%s: it holds no record of a run", path);
    return e;
}

/* Training stood still for `exposed`; its parts are as those of the whole exchange. */
struct report_cost report_cost(const struct report_run *r)
{
    enum { COMPUTE, ENCODE, STORE, SEND, WAIT, FETCH, APPLY };
    struct report_cost c = {.share = {NAN, NAN, NAN, NAN, NAN}};
    double ms[REPORT_TIMES] = {0}, exchange = 0, exposed = 0;
    for (size_t i = 0; i < r->round_count; i++) {
        for (int k = 0; k < REPORT_TIMES; k++)
            ms[k] += r->rounds[i].ms[k];
        exposed += r->rounds[i].exposed_ms;
        c.hidden_s += 1e-3 * r->rounds[i].hidden_ms;
    }
    for (int k = ENCODE; k < REPORT_TIMES; k++)
        exchange += ms[k];
    double all = ms[COMPUTE] + exposed, scale = exchange > 0 ? exposed / exchange / all : 0;
    if (!r->round_count || !(all > 0))
        return c;
    c.share[REPORT_COMPUTING] = ms[COMPUTE] / all;
    c.share[REPORT_SENDING] = ms[SEND] * scale;
    c.share[REPORT_WAITING] = ms[WAIT] * scale;
    c.share[REPORT_RECEIVING] = ms[FETCH] * scale;
    c.share[REPORT_REST] = (ms[ENCODE] + ms[STORE] + ms[APPLY]) * scale;
    c.round_s = 1e-3 * exchange / (double)r->round_count;
    c.step_s = 1e-3 * ms[COMPUTE] / r->rounds[r->round_count - 1].step;
    return c;
}
