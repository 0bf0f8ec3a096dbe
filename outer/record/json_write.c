/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/record/json_write.h"
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include "kernels/base/err.h"

/* The document on standard output: a writer ends with the function that has it, also at an error.
 */
static struct json_write document;

static void follow(const struct json_write *w)
{
    if (w->out == stdout)
        document = *w;
}

/* Length of the UTF-8 sequence at p; 0: there is none. */
static size_t utf8_length(const unsigned char *p)
{
    size_t n = p[0] < 0x80                   ? 1
               : p[0] >= 0xc2 && p[0] < 0xe0 ? 2
               : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
               : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
                                             : 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

static void string_write(FILE *out, const char *text, bool html)
{
    fputc('"', out);
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        size_t n = utf8_length(p);
        if (*p == '"' || *p == '\\')
            fprintf(out, "\\%c", *p);
        else if (*p < 32 || (html && *p == '<'))
            fprintf(out, "\\u%04x", *p);
        else if (n)
            fwrite(p, 1, n, out);
        else
            fputs("\xef\xbf\xbd", out);
        p += n ? n : 1;
    }
    fputc('"', out);
}

static void item_begin(struct json_write *w, const char *key)
{
    if (w->depth && w->any[w->depth - 1])
        fputc(',', w->out);
    if (w->depth)
        w->any[w->depth - 1] = true;
    follow(w);
    if (!key)
        return;
    string_write(w->out, key, w->html);
    fputc(':', w->out);
}

static void nest(struct json_write *w, const char *key, char open, char close)
{
    ASSERT(w->depth < JSON_WRITE_DEPTH_MAX);
    item_begin(w, key);
    fputc(open, w->out);
    w->any[w->depth] = false;
    w->close[w->depth++] = close;
    follow(w);
}

void json_object(struct json_write *w, const char *key)
{
    nest(w, key, '{', '}');
}

void json_array(struct json_write *w, const char *key)
{
    nest(w, key, '[', ']');
}

void json_end(struct json_write *w)
{
    ASSERT(w->depth > 0);
    fputc(w->close[--w->depth], w->out);
    follow(w);
}

void json_close(struct json_write *w)
{
    while (w->depth)
        json_end(w);
    fputc('\n', w->out);
}

void json_int(struct json_write *w, const char *key, int64_t value)
{
    item_begin(w, key);
    fprintf(w->out, "%" PRId64, value);
}

void json_real(struct json_write *w, const char *key, double value)
{
    item_begin(w, key);
    if (isfinite(value))
        fprintf(w->out, "%.*g", w->digits ? w->digits : 15, value);
    else
        fputs("null", w->out);
}

void json_bool(struct json_write *w, const char *key, bool value)
{
    item_begin(w, key);
    fputs(value ? "true" : "false", w->out);
}

void json_text(struct json_write *w, const char *key, const char *value)
{
    item_begin(w, key);
    string_write(w->out, value, w->html);
}

void json_fail(const char *name, const char *message, int exit_code)
{
    struct json_write *w = &document;
    if (w->out && !w->depth)
        return;
    w->out = stdout;
    if (!w->depth)
        json_object(w, NULL);
    while (w->depth > 1)
        json_end(w);
    json_object(w, "error");
    json_text(w, "name", name);
    json_text(w, "message", message);
    json_int(w, "exit_code", exit_code);
    json_close(w);
}
