/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/crash.h"
#include <execinfo.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include "kernels/base/signals.h"
#include "outer/record/version.h"

enum { FRAMES = 48, STACK_BYTES = 65536 };
#define CRASH(number) {number, #number},
static const struct {
    int number;
    const char *name;
} crashes[] = {SIGNALS_OF_CRASH(CRASH)};

static void put(const char *text)
{
    size_t n = strlen(text);
    while (n) {
        ssize_t did = write(STDERR_FILENO, text, n);
        if (did <= 0)
            return;
        text += did;
        n -= (size_t)did;
    }
}

/* The handler is gone by now (SA_RESETHAND), so the signal ends the process when it is raised. */
static void crashed(int number)
{
    void *frames[FRAMES];
    const char *name = "a signal";
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        if (crashes[i].number == number)
            name = crashes[i].name;
    put("atoll crashed: ");
    put(name);
    put(", ");
    put(version_line());
    put("\n  what it means: ");
    put(number == SIGBUS ? "a file in use became shorter, its disk fails, or a bug"
                         : "a bug, or memory that is broken");
    put("; what was stored is whole\n"
        "  what to do: start it again, and report these lines; addr2line -fe PROGRAM +ADDRESS "
        "names the line\n");
    backtrace_symbols_fd(frames, backtrace(frames, FRAMES), STDERR_FILENO);
    raise(number);
}

void crash_report(void)
{
    bool sanitized = false; /* a sanitizer has a report of its own */
#ifdef SANITIZED
    sanitized = true;
#endif
    static char stack[STACK_BYTES];
    void *frame;
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction a = {.sa_handler = crashed, .sa_flags = (int)(SA_RESETHAND | SA_ONSTACK)};
    if (sanitized)
        return;
    backtrace(&frame, 1);    /* loads its library, which allocates */
    sigaltstack(&own, NULL); /* of the main thread: its stack may have overflowed */
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        sigaction(crashes[i].number, &a, NULL);
}
