/* SPDX-License-Identifier: Apache-2.0 */
/* The module's own err_set and err_bug: they call the program's. Hidden, so that neither side
 * resolves to the other by accident. */
#include "kernels/cuda/host.h"
#include "kernels/cuda/cuda.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const struct cuda_host *host;
static _Thread_local char sentence[512];

void host_set(const struct cuda_host *h)
{
    host = h;
}

enum err err_set(enum err e, const char *format, ...)
{
    va_list a;
    va_start(a, format);
    vsnprintf(sentence, sizeof sentence, format, a);
    va_end(a);
    return host->fail(e, sentence);
}

const char *err_message(void)
{
    return sentence;
}

void cuda_log(bool warning, const char *event, const char *format, ...)
{
    char text[640];
    va_list a;
    va_start(a, format);
    vsnprintf(text, sizeof text, format, a);
    va_end(a);
    host->log(warning, event, text);
}

void err_bug(const char *file, int line, const char *expression)
{
    host->bug(file, line, expression);
    abort();
}
