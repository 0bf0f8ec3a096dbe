/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/closing.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/durable.h"
#include "outer/record/json_write.h"

static bool silent;
static bool json;
static bool output_failed; /* standard output, not a file of a run: nothing was stored */

void closing_silence(void)
{
    silent = true;
}

void closing_json(void)
{
    json = true;
}

static const char *sentence_of(enum err e)
{
    return *err_message() ? err_message() : err_text(e);
}

/* A sentence may begin with the command, "operator set: .."; then its name is there once. */
static bool names_command(const char *command, const char *sentence)
{
    size_t n = strlen(command);
    return strncmp(sentence, command, n) == 0 && sentence[n] && strchr(": ", sentence[n]);
}

/* What it means and what to do in general, where that adds to the sentence: not to one that says
 * which word or file is wrong or what this build has not got, and not to one line after Ctrl-C. */
static void advice(enum err e)
{
    if (e == ERR_CONFIG || e == ERR_INPUT || e == ERR_UNSUPPORTED)
        return;
    if (e == ERR_STOPPED) {
        fprintf(stderr, " (exit code: %d)\n", err_exit_code(e));
        return;
    }
    fprintf(stderr, "  what it means: %s (%s)\n  what to do: %s\n  exit code: %d\n", err_text(e),
            err_name(e),
            output_failed ? "give the same command again, with room for its output" : err_action(e),
            err_exit_code(e));
}

/* On stderr, for a person and a service manager. */
void closing_message(const char *command, enum err e)
{
    if (e == ERR_OK || silent)
        return;
    const char *sentence = sentence_of(e);
    if (names_command(command, sentence))
        fprintf(stderr, "atoll %s", sentence);
    else
        fprintf(stderr, "atoll %s: %s", command, sentence);
    fputs(e == ERR_STOPPED ? "" : "\n", stderr);
    advice(e);
    silent = true;
}

enum err closing_flush(enum err e)
{
    if (e != ERR_OK && json)
        json_fail(err_name(e), sentence_of(e), err_exit_code(e));
    bool arrived = fflush(stdout) == 0 && !ferror(stdout);
    if (e != ERR_OK || arrived)
        return e;
    output_failed = true;
    return durable_failed("write", "standard output", ERR_IO);
}
