/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/record/jsonl.h"
#include <time.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "kernels/base/clock.h"
#include "kernels/base/disk.h"
#include "kernels/base/log.h"

/* Cuts a last line that has no newline: its process died while writing it. */
static enum err cut_torn_line(int fd, const char *path, uint64_t *bytes)
{
    char block[4096];
    off_t size = lseek(fd, 0, SEEK_END), keep = size;
    while (keep > 0) {
        size_t n = keep < (off_t)sizeof block ? (size_t)keep : sizeof block;
        if (pread(fd, block, n, keep - (off_t)n) != (ssize_t)n)
            return err_set(ERR_IO, "%s: cannot read its end: %s", path, strerror(errno));
        const char *last = memrchr(block, '\n', n);
        keep = last ? keep - (off_t)n + (last - block) + 1 : keep - (off_t)n;
        if (last)
            break;
    }
    if (keep != size && ftruncate(fd, keep) != 0)
        return err_set(ERR_IO, "%s: cannot cut its torn last line: %s", path, strerror(errno));
    *bytes = (uint64_t)keep;
    return ERR_OK;
}

enum err jsonl_open(struct jsonl *r, const char *path, struct arena *perm)
{
    *r = (struct jsonl){0};
    TRY_ALLOC(r->line = arena_alloc(perm, RECORD_LINE_MAX));
    return jsonl_reopen(r, path);
}

enum err jsonl_open_told(struct jsonl *r, void (*told)(void *self, const char *line, size_t size),
                         void *self, struct arena *perm)
{
    *r = (struct jsonl){.fd = -1, .told = told, .self = self};
    TRY_ALLOC(r->line = arena_alloc(perm, RECORD_LINE_MAX));
    r->open = true;
    return ERR_OK;
}

enum err jsonl_reopen(struct jsonl *r, const char *path)
{
    jsonl_close(r);
    r->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (r->fd < 0)
        return err_set(ERR_IO, "%s: cannot open it for the run's records: %s", path,
                       strerror(errno));
    r->open = true;
    return cut_torn_line(r->fd, path, &r->bytes);
}

void jsonl_close(struct jsonl *r)
{
    if (r->open && r->fd >= 0)
        close(r->fd);
    r->open = false;
}

static void line_append(struct jsonl *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void line_append(struct jsonl *r, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(r->line + r->used, RECORD_LINE_MAX - r->used, format, arguments);
    va_end(arguments);
    if (n < 0 || r->used + (size_t)n + 1 >= RECORD_LINE_MAX)
        r->bad = true;
    else
        r->used += (size_t)n;
}

void jsonl_begin(struct jsonl *r, const char *kind)
{
    jsonl_begin_at(r, RECORD_VERSION, kind, clock_wall_ms());
}

void jsonl_begin_at(struct jsonl *r, unsigned version, const char *kind, uint64_t t_ms)
{
    if (!r->open)
        return;
    r->used = r->held ? r->used : 0;
    r->begun = r->used;
    r->bad = false;
    line_append(r, "{\"v\":%u,\"kind\":\"%s\",\"t\":%" PRIu64 ".%03" PRIu64, version, kind,
                t_ms / 1000, t_ms % 1000);
}

void jsonl_time(struct jsonl *r, const char *key, double unix_s)
{
    if (r->open)
        line_append(r, ",\"%s\":%.3f", key, unix_s);
}

void jsonl_int(struct jsonl *r, const char *key, int64_t value)
{
    if (r->open)
        line_append(r, ",\"%s\":%" PRId64, key, value);
}

void jsonl_real(struct jsonl *r, const char *key, double value)
{
    if (!r->open)
        return;
    if (isfinite(value))
        line_append(r, ",\"%s\":%.9g", key, value);
    else
        line_append(r, ",\"%s\":null", key);
}

void jsonl_text(struct jsonl *r, const char *key, const char *value)
{
    if (!r->open)
        return;
    line_append(r, ",\"%s\":\"", key);
    for (const char *p = value; *p && !r->bad; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\')
            line_append(r, "\\%c", c);
        else if (c < 32)
            line_append(r, "\\u%04x", c);
        else
            line_append(r, "%c", c);
    }
    line_append(r, "\"");
}

static void write_out(struct jsonl *r)
{
    static bool said; /* one process writes few record files, all into one directory */
    size_t n = r->used;
    r->used = 0;
    if (n == 0 || r->fd < 0)
        return;
    off_t before = lseek(r->fd, 0, SEEK_END);
    ssize_t written = write(r->fd, r->line, n);
    r->bytes = (uint64_t)before + (written == (ssize_t)n ? n : 0);
    if (written == (ssize_t)n)
        return;
    if (written >= 0)
        errno = ENOSPC; /* a part of the line had room */
    if (!said)
        log_event(LOG_WARN, "record_dropped", "why=\"%s\"", strerror(errno));
    said = true;
    if (ftruncate(r->fd, before) != 0) /* a half-written line is cut at the next open */
        return;
}

void jsonl_end(struct jsonl *r)
{
    if (!r->open)
        return;
    line_append(r, "}\n");
    if (r->bad) {
        log_event(LOG_WARN, "record_dropped", "why=too_long");
        r->used = r->begun;
        return;
    }
    if (r->told)
        r->told(r->self, r->line + r->begun, r->used - r->begun - 1);
    if (!r->held || r->used > RECORD_LINE_MAX / 2)
        write_out(r);
}

void jsonl_hold(struct jsonl *r)
{
    r->held = true;
    r->used = 0;
}

void jsonl_release(struct jsonl *r)
{
    r->held = false;
    if (r->open)
        write_out(r);
}

bool jsonl_reader_open(struct jsonl_reader *r, const char *path)
{
    *r = (struct jsonl_reader){0};
    struct disk *d = disk_posix();
    int fd = d->ops->open(d, path, O_RDONLY | O_NONBLOCK, 0); /* a pipe would wait for a writer */
    if (fd >= 0 && d->ops->regular(d, fd))
        r->file = fdopen(fd, "r");
    if (fd >= 0 && !r->file)
        close(fd);
    return r->file != NULL;
}

void jsonl_reader_close(struct jsonl_reader *r)
{
    if (r->file)
        fclose(r->file);
    free(r->line);
    *r = (struct jsonl_reader){0};
}

bool jsonl_next(struct jsonl_reader *r, struct jsonl_row *row)
{
    while (r->file && fseek(r->file, r->at, SEEK_SET) == 0) {
        ssize_t n = getline(&r->line, &r->capacity, r->file);
        if (n <= 0 || r->line[n - 1] != '\n') {
            clearerr(r->file);
            return false; /* the end, or a line being written */
        }
        r->at += n;
        if (jsonl_parse(row, r->line))
            return true;
        r->skipped++;
    }
    return false;
}

static char *skip_blank(char *p)
{
    while (*p == ' ' || *p == '\t')
        p++;
    return p;
}

/* p is after an opening quote: unescapes in place, ends the string, returns the place after
 * the closing quote or NULL. */
static char *take_string(char *p)
{
    char *to = p;
    for (; *p && *p != '"'; p++) {
        if (*p != '\\') {
            *to++ = *p;
            continue;
        }
        p++;
        char escaped = *p;
        if (escaped == 'u') { /* only control characters are written this way */
            char hex[5] = {0};
            for (int i = 0; i < 4; i++)
                if (!(hex[i] = *++p))
                    return NULL;
            *to++ = (char)strtol(hex, NULL, 16);
        } else if (escaped) {
            *to++ = escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped;
        } else {
            return NULL;
        }
    }
    if (*p != '"')
        return NULL;
    *to = 0;
    return p + 1;
}

bool jsonl_parse(struct jsonl_row *row, char *line)
{
    row->count = 0;
    char *p = skip_blank(line);
    if (*p++ != '{')
        return false;
    for (;;) {
        p = skip_blank(p);
        if (*p++ != '"' || row->count == RECORD_FIELDS_MAX)
            return false;
        row->key[row->count] = p;
        if (!(p = take_string(p)))
            return false;
        p = skip_blank(p);
        if (*p++ != ':')
            return false;
        p = skip_blank(p);
        char *end;
        if (*p == '"') {
            row->value[row->count] = ++p;
            if (!(end = take_string(p)))
                return false;
        } else {
            row->value[row->count] = p;
            end = p + strcspn(p, ",} \t\n");
            if (end == p || *p == '{' || *p == '[')
                return false;
        }
        row->count++;
        char *next = skip_blank(end);
        char separator = *next;
        *end = 0;
        if (separator == '}')
            return true;
        if (separator != ',')
            return false;
        p = next + 1;
    }
}

const char *jsonl_string(const struct jsonl_row *row, const char *key)
{
    for (size_t i = 0; i < row->count; i++)
        if (strcmp(row->key[i], key) == 0)
            return row->value[i];
    return "";
}

double jsonl_number(const struct jsonl_row *row, const char *key)
{
    const char *text = jsonl_string(row, key);
    char *end;
    double value = strtod(text, &end);
    return end == text || *end ? NAN : value;
}

int64_t jsonl_whole(double number)
{
    const double most = 9007199254740992.0;
    return isnan(number) ? 0 : (int64_t)fmax(-most, fmin(number, most));
}

void jsonl_date(char *out, size_t size, const char *format, double unix_s)
{
    time_t t = jsonl_whole(unix_s);
    struct tm parts;
    if (!(unix_s > 0 && unix_s < 1e11) || !gmtime_r(&t, &parts) ||
        !strftime(out, size, format, &parts))
        *out = 0;
}

bool jsonl_is(const struct jsonl_row *row, const char *kind)
{
    return strcmp(jsonl_string(row, "kind"), kind) == 0;
}
