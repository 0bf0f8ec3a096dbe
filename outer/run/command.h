/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COMMAND_H
#define COMMAND_H
/* A command of the operator (run.after_checkpoint, data.fetch) as a process of its own, during the
 * training: /bin/sh -c, in its own process group, with no open file of this process but its log.
 * What it works on is said by variables of its environment alone, so that no file name is ever part
 * of the command's text. It inherits the environment (credentials of a cloud), without the
 * variables ATOLL_.. and those of the service manager. posix_spawn() starts it: fork() would stop
 * the training while the tables of its memory are copied. One thread at a time.
 */
#include <stdbool.h>
#include <sys/types.h>
#include "kernels/base/arena.h"

enum { COMMAND_SET_MAX = 16 };
struct command_options {
    const char *text;
    char *set[COMMAND_SET_MAX]; /* "NAME=VALUE", by command_set(); NULL after the last */
    const char *log;            /* its output is appended here */
};
struct command {
    pid_t pid;  /* 0: none runs */
    int status; /* of the one that ended: exit code, or 128 + signal */
};
enum err command_set(struct command_options *o, struct arena *a, const char *format, ...)
    __attribute__((format(printf, 3, 4))) MUST;
enum err command_start(struct command *c, const struct command_options *o) MUST;
bool command_running(struct command *c);
/* To it and what it started. */
void command_signal(const struct command *c, int number);
/* The last line of its output, for a message; "" if there is none. */
void command_said(const char *log, char *line, size_t size);

#endif
