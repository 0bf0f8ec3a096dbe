/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the table that `atoll doctor` prints. */
#include <stdarg.h>
#include <stdio.h>
#include "outer/run/preflight.h"

void preflight_say(struct preflight *p, enum preflight_verdict v, const char *what,
                   const char *format, ...)
{
    static const char *const names[PREFLIGHT_VERDICTS] = {"OK", "WARN", "FAIL"};
    va_list args;
    p->count[v]++;
    printf("%-5s %-13s ", names[v], what);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

void preflight_failed(struct preflight *p, const char *what, const char *action)
{
    preflight_say(p, PREFLIGHT_FAIL, what, "%s%s%s", err_message(), *action ? ": " : "", action);
    err_clear();
}
