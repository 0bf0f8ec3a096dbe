/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/base/err.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "kernels/base/plain.h"

enum { ERR_SENTENCE_MAX = 8192 }; /* a configuration reports all its errors at once */
static _Thread_local char sentence[ERR_SENTENCE_MAX];

struct err_entry {
    const char *name, *text, *action;
    int exit_code;
};
static const struct err_entry entries[] = {
#define X(number, name, text, exit, action) [number] = {#name, text, action, exit},
    ERR_LIST(X)
#undef X
};

static const struct err_entry *err_entry(enum err e)
{
    ASSERT((size_t)e < sizeof entries / sizeof *entries);
    return &entries[e];
}

enum err err_set(enum err e, const char *format, ...)
{
    char next[ERR_SENTENCE_MAX]; /* an argument may be err_message() itself */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(next, sizeof next, format, arguments);
    va_end(arguments);
    plain_make(next, true); /* it may quote a file or a peer */
    memcpy(sentence, next, sizeof sentence);
    return e;
}

enum err err_add(enum err e, const char *format, ...)
{
    char next[ERR_SENTENCE_MAX];
    va_list arguments;
    va_start(arguments, format);
    int used = vsnprintf(next, sizeof next, format, arguments);
    va_end(arguments);
    plain_make(next, true);
    if (used >= 0 && used < ERR_SENTENCE_MAX)
        snprintf(next + used, sizeof next - (size_t)used, "%s", sentence);
    memcpy(sentence, next, sizeof sentence);
    return e;
}

const char *err_message(void)
{
    return sentence;
}

void err_clear(void)
{
    sentence[0] = 0;
}

const char *err_name(enum err e)
{
    return err_entry(e)->name;
}

const char *err_text(enum err e)
{
    return err_entry(e)->text;
}

const char *err_action(enum err e)
{
    return err_entry(e)->action;
}

int err_exit_code(enum err e)
{
    return err_entry(e)->exit_code;
}

noreturn void err_bug(const char *file, int line, const char *expression)
{
    fprintf(stderr,
            "%s:%d: this must hold: %s\n  what it means: %s (%s)\n  what to do: %s\n  exit code: "
            "%d\n",
            file, line, expression, err_text(ERR_INTERNAL), err_name(ERR_INTERNAL),
            err_action(ERR_INTERNAL), err_exit_code(ERR_INTERNAL));
    fflush(stderr);
    _exit(err_exit_code(ERR_INTERNAL)); /* no exit handlers: the state is not to be trusted */
}
