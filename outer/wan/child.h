/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CHILD_H
#define CHILD_H
/* Processes that a command starts and answers for: demo, wan. One owner, one thread. */
#include <stdbool.h>
#include <sys/types.h>
#include "kernels/base/err.h"

struct namespace;
struct child {
    const char *name, *log; /* borrowed; log NULL: it shares our output */
    pid_t pid;              /* 0: not running */
    int status;             /* exit code, 128 + signal; once it has ended */
};
struct child_command {
    const char *name, *log;
    const char *program;           /* found in PATH; NULL: this program itself */
    char *const *argv;             /* from argv[0], NULL-terminated */
    const struct namespace *where; /* NULL: here */
};

/* In a process group of its own, so that what it starts ends with it. Input is /dev/null when there
 * is a log. A program that cannot be started ends with 127; one whose starter dies gets SIGTERM. */
enum err child_start(struct child *c, const struct child_command *command) MUST;
bool child_running(struct child *c); /* afterwards c->status */
/* Asks all to stop, then insists; none outlives this call. */
void child_end(struct child *children, unsigned count);
/* The error for one that has ended badly; the last lines of its log go to stderr. */
enum err child_failed(const struct child *c);
void child_pause(long ms);

#endif
