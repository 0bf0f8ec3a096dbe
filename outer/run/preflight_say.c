/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the table that `atoll doctor` prints. */
#include <stdarg.h>
#include <stdio.h>
#include "outer/run/preflight.h"

void preflight_begin(struct preflight *p)
{
    if (!p->o.json)
        return;
    p->w = (struct json_write){.out = stdout};
    json_object(&p->w, NULL);
    json_array(&p->w, "checks");
}

void preflight_end(struct preflight *p)
{
    if (!p->o.json)
        return;
    json_end(&p->w);
    json_int(&p->w, "failed", p->count[PREFLIGHT_FAIL]);
    json_int(&p->w, "warnings", p->count[PREFLIGHT_WARN]);
    json_close(&p->w);
}

static void row_json(struct json_write *w, const char *verdict, const char *what, const char *text)
{
    json_object(w, NULL);
    json_text(w, "verdict", verdict);
    json_text(w, "check", what);
    json_text(w, "text", text);
    json_end(w);
}

void preflight_say(struct preflight *p, enum preflight_verdict v, const char *what,
                   const char *format, ...)
{
    static const char *const names[PREFLIGHT_VERDICTS] = {"OK", "WARN", "FAIL"};
    char text[4096];
    va_list args;
    p->count[v]++;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (p->o.json)
        row_json(&p->w, names[v], what, text);
    else
        printf("%-5s %-13s %s\n", names[v], what, text);
    fflush(stdout);
}

void preflight_failed(struct preflight *p, const char *what, const char *action)
{
    preflight_say(p, PREFLIGHT_FAIL, what, "%s%s%s", err_message(), *action ? ": " : "", action);
    err_clear();
}
