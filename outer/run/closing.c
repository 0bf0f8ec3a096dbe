/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/closing.h"
#include <stdbool.h>
#include <stdio.h>
#include "kernels/base/durable.h"

static bool silent;
static bool output_failed; /* standard output, not a file of a run: nothing was stored */

void closing_silence(void)
{
    silent = true;
}

/* What, why, what to do, and the code: on stderr, for a person and a service manager. */
void closing_message(const char *command, enum err e)
{
    if (e == ERR_OK || silent)
        return;
    const char *sentence = err_message();
    fprintf(stderr, "atoll %s: %s\n  what it means: %s (%s)\n  what to do: %s\n  exit code: %d\n",
            command, *sentence ? sentence : err_text(e), err_text(e), err_name(e),
            output_failed ? "give the same command again, with room for its output" : err_action(e),
            err_exit_code(e));
    silent = true;
}

enum err closing_flush(enum err e)
{
    bool arrived = fflush(stdout) == 0 && !ferror(stdout);
    if (e != ERR_OK || arrived)
        return e;
    output_failed = true;
    return durable_failed("write", "standard output", ERR_IO);
}
