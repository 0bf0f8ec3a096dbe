/* SPDX-License-Identifier: Apache-2.0 */
/* The text of progress rows: numbers, fitting to a width, log lines as sentences, the pace. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "outer/view/progress.h"

double progress_smooth(double before, double value)
{
    return isfinite(before) ? before + 0.1 * (value - before) : value;
}

void progress_bytes(char *out, size_t size, double bytes)
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB"};
    size_t i = 0;
    while (bytes >= 999.5 && i + 1 < sizeof unit / sizeof *unit) {
        bytes /= 1000;
        i++;
    }
    snprintf(out, size, i == 0 || bytes >= 99.95 ? "%.0f %s" : "%.1f %s", bytes, unit[i]);
}

void progress_duration(char *out, size_t size, double seconds)
{
    if (!(seconds >= 0) || seconds > 1e8) {
        snprintf(out, size, "-");
        return;
    }
    enum { DAYS_FROM_H = 100 };
    long s = lround(seconds);
    if (s >= DAYS_FROM_H * 3600L)
        snprintf(out, size, "%ld d %ld h", s / 86400, s / 3600 % 24);
    else if (s >= 3600)
        snprintf(out, size, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, size, "%ld:%02ld", s / 60, s % 60);
}

/* ---- a row ---- */
/* In the order of the row. */
enum part {
    PART_STATE,
    PART_DETAIL, /* of the state: what follows its first colon */
    PART_STEP,
    PART_LOSS,
    PART_ROUNDS,
    PART_SYNC,
    PART_ETA,
    PART_RATE,
    PART_UP,
    PART_DOWN,
    PART_PREDICTED,
    PARTS
};
/* What is left out first where the width is short. The state stays. */
static const enum part spare[] = {PART_PREDICTED, PART_DETAIL, PART_DOWN,   PART_UP,   PART_RATE,
                                  PART_SYNC,      PART_ETA,    PART_ROUNDS, PART_LOSS, PART_STEP};

struct parts {
    char text[PARTS][320];
};

/* The number that follows `word`, moved by `seconds` but not below 0: "for 43 s", "in 3.0 s". */
static bool move_number(char *text, size_t size, const char *word, double seconds)
{
    char *at = strstr(text, word), *end, after[320];
    if (!at)
        return false;
    at += strlen(word);
    double value = strtod(at, &end);
    if (end == at || strncmp(end, " s", 2) != 0)
        return false;
    bool fraction = memchr(at, '.', (size_t)(end - at)) != NULL;
    snprintf(after, sizeof after, "%s", end);
    snprintf(at, size - (size_t)(at - text), fraction ? "%.1f%s" : "%.0f%s",
             fmax(0, fraction ? value + seconds : floor(value + seconds)), after);
    return true;
}

/* The state with its times as of now, and after its first ": " the detail. */
static void state_text(struct parts *p, const char *state, double since_s)
{
    char *text = p->text[PART_STATE];
    size_t size = sizeof p->text[PART_STATE];
    snprintf(text, size, "%s", state);
    bool timed = move_number(text, size, " for ", since_s);
    timed = move_number(text, size, " in ", -since_s) || timed;
    char *colon = strstr(text, ": ");
    if (colon) {
        snprintf(p->text[PART_DETAIL], sizeof p->text[PART_DETAIL], "%s", colon + 2);
        *colon = 0;
    }
    size_t used = strlen(text);
    if (*text && !timed && since_s >= 1 && strncmp(text, "waiting", 7) == 0)
        snprintf(text + used, size - used, ", %.0f s", floor(since_s));
}

static void eta_text(char *out, size_t size, const struct progress_line *l,
                     const struct progress_layout *o)
{
    enum { HELD_UP_S = 3 };
    char eta[32];
    bool held = l->state[0] && o->state_s >= HELD_UP_S;
    /* Between two steps the time runs; in a wait what is left to do does not get less. */
    progress_duration(eta, sizeof eta, held ? l->eta_seconds : fmax(0, l->eta_seconds - o->row_s));
    if (l->eta_seconds >= 0)
        snprintf(out, size, held ? "ETA %s + wait" : "ETA %s", eta);
}

static void predicted_text(char *out, size_t size, const struct progress_line *l)
{
    char up[32], down[32];
    if (!l->predicted_up && !l->predicted_down)
        return;
    progress_bytes(up, sizeof up, (double)l->predicted_up);
    progress_bytes(down, sizeof down, (double)l->predicted_down);
    if (l->bytes_up == l->predicted_up && l->bytes_down == l->predicted_down)
        snprintf(out, size, "as predicted");
    else
        snprintf(out, size, "predicted %s and %s", up, down);
}

static void parts_make(struct parts *p, const struct progress_line *l,
                       const struct progress_layout *o)
{
    enum { SIZE = sizeof p->text[0] };
    char bytes[32];
    *p = (struct parts){0};
    state_text(p, l->state, o->state_s);
    snprintf(p->text[PART_STEP], SIZE, "step %lld/%lld", (long long)l->step, (long long)l->steps);
    if (isfinite(l->loss))
        snprintf(p->text[PART_LOSS], SIZE, "loss %.4f", l->loss);
    if (isfinite(l->tokens_per_second))
        snprintf(p->text[PART_RATE], SIZE,
                 l->tokens_per_second < 9999.5 ? "%.0f tok/s" : "%.1fk tok/s",
                 l->tokens_per_second / (l->tokens_per_second < 9999.5 ? 1 : 1000));
    eta_text(p->text[PART_ETA], SIZE, l, o);
    if (!l->rounds)
        return;
    snprintf(p->text[PART_ROUNDS], SIZE, "%llu/%llu rounds", (unsigned long long)l->round,
             (unsigned long long)l->rounds);
    if (!l->state[0] && l->sync_seconds >= 0)
        snprintf(p->text[PART_SYNC], SIZE, "next sync %.1f s", fmax(0, l->sync_seconds - o->row_s));
    progress_bytes(bytes, sizeof bytes, (double)l->bytes_up);
    snprintf(p->text[PART_UP], SIZE, "up %s", bytes);
    progress_bytes(bytes, sizeof bytes, (double)l->bytes_down);
    snprintf(p->text[PART_DOWN], SIZE, "down %s", bytes);
    predicted_text(p->text[PART_PREDICTED], SIZE, l);
}

static int separator(enum part part)
{
    return part == PART_DETAIL || part == PART_PREDICTED ? 2 : 3; /* ": ", ", ", " | " */
}

static int columns_of(const struct parts *p)
{
    int n = 0;
    for (int i = 0; i < PARTS; i++)
        if (p->text[i][0])
            n += separator((enum part)i) + (int)strlen(p->text[i]);
    return n;
}

static void cut(char *text, int columns)
{
    if (columns >= 4 && (int)strlen(text) > columns)
        memcpy(text + columns - 3, "...", 4);
    else if (columns >= 0 && (int)strlen(text) > columns)
        text[columns] = 0;
}

/* Leaves out, in the order of `spare`, what does not fit into `columns`. The detail of a state is
 * cut to what is left before it goes. */
static void parts_fit(struct parts *p, int columns)
{
    enum { DETAIL_MIN = 16 };
    for (size_t i = 0; i < sizeof spare / sizeof *spare && columns_of(p) > columns; i++) {
        char *text = p->text[spare[i]];
        int left = (int)strlen(text) - (columns_of(p) - columns);
        if (spare[i] == PART_DETAIL && left >= DETAIL_MIN)
            cut(text, left);
        else
            *text = 0;
    }
    if (columns_of(p) > columns)
        cut(p->text[PART_STATE], columns - separator(PART_STATE));
}

void progress_format(struct progress_row *out, const struct progress_line *l,
                     const struct progress_layout *o)
{
    struct parts p;
    *out = (struct progress_row){0};
    parts_make(&p, l, o);
    out->name = snprintf(out->text, sizeof out->text, "%-*s", o->name_width, l->site);
    if (o->width > 0)
        parts_fit(&p, o->width - out->name);
    size_t used = (size_t)out->name;
    for (int i = 0; i < PARTS; i++) {
        if (p.text[i][0] && used < sizeof out->text)
            used += (size_t)snprintf(out->text + used, sizeof out->text - used, "%s%s",
                                     i == PART_DETAIL      ? ": "
                                     : i == PART_PREDICTED ? ", "
                                                           : " | ",
                                     p.text[i]);
        if (i == PART_STATE)
            out->state = (int)used;
    }
}

/* ---- log lines ---- */
/* Copies the next " key=value" of a logfmt line, unquoted; false at the end. */
static bool field_next(const char **at, char key[48], char value[512])
{
    const char *p = *at + strspn(*at, " ");
    size_t n = strcspn(p, "= "), used = 0;
    if (!*p || p[n] != '=')
        return false;
    snprintf(key, 48, "%.*s", (int)(n < 47 ? n : 47), p);
    p += n + 1;
    bool quoted = *p == '"';
    for (p += quoted; *p && *p != (quoted ? '"' : ' '); p++) {
        if (quoted && *p == '\\' && p[1])
            p++;
        if (used + 1 < 512)
            value[used++] = *p == '\n' ? ' ' : *p;
    }
    value[used] = 0;
    *at = p + (quoted && *p == '"');
    return true;
}

/* text and why are sentences; do says what the reader should do. */
static bool is_sentence(const char *key)
{
    return !strcmp(key, "text") || !strcmp(key, "why");
}

void progress_sentence(char *out, size_t size, const char *line, const char *time)
{
    char key[48], value[512], event[64] = "", sentence[512] = "", action[512] = "", rest[512] = "";
    const char *level = "";
    size_t used = 0;
    for (const char *at = line; field_next(&at, key, value);) {
        if (!strcmp(key, "level"))
            level = !strcmp(value, "error") ? "ERROR " : !strcmp(value, "warn") ? "warning: " : "";
        else if (!strcmp(key, "ev"))
            snprintf(event, sizeof event, "%.63s", value);
        else if (is_sentence(key))
            snprintf(sentence, sizeof sentence, "%s", value);
        else if (!strcmp(key, "do"))
            snprintf(action, sizeof action, "; do: %.500s", value);
        else if (*event && used < sizeof rest) /* before the event: the prefix, known here */
            used += (size_t)snprintf(rest + used, sizeof rest - used, "%s%s %s", used ? ", " : "",
                                     key, value);
    }
    for (char *p = event; *p; p++)
        *p = *p == '_' ? ' ' : *p;
    if (!*event) /* not ours */
        snprintf(out, size, "%s %s", time, line);
    else if (*sentence)
        snprintf(out, size, "%s %s%s%s", time, level, sentence, action);
    else
        snprintf(out, size, "%s %s%s%s%s%s", time, level, event, *rest ? ": " : "", rest, action);
}

/* ---- the pace ---- */
void progress_pace_step(struct progress_pace *p, int64_t step, int64_t every, double now_s)
{
    if (p->first_s == 0 || step < p->last) {
        *p = (struct progress_pace){now_s, now_s, now_s, step, step, step, {0}, 0};
        return;
    }
    p->last = step;
    p->last_s = now_s;
    if (step - p->mark < every || step == p->mark)
        return;
    p->intervals[p->count++ % PROGRESS_PACES] = (now_s - p->mark_s) / (double)(step - p->mark);
    p->mark = step;
    p->mark_s = now_s;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double progress_pace_eta(const struct progress_pace *p, int64_t steps)
{
    double sorted[PROGRESS_PACES];
    unsigned n = p->count < PROGRESS_PACES ? p->count : PROGRESS_PACES;
    if (p->last == p->first)
        return -1;
    double seconds = (p->last_s - p->first_s) / (double)(p->last - p->first);
    if (n) {
        memcpy(sorted, p->intervals, n * sizeof *sorted);
        qsort(sorted, n, sizeof *sorted, ascending);
        seconds = sorted[n / 2];
        if (n % 2 == 0)
            seconds = (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    }
    return seconds * (double)(steps - p->last);
}
