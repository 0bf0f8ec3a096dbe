/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ACTS_H
#define ACTS_H
/* Commands of a command: atoll COMMAND ACT. */
#include "kernels/base/args_forms.h"
#include "outer/config/run.h"

struct cmd_act {
    const char *name, *summary;
    enum err (*run)(int argc, char **argv, struct arena *arena); /* argv[0] is the act's name */
};
struct cmd_acts {
    const char *command;        /* "cert" */
    const char *head, *example; /* of the list at --help */
    const struct cmd_act *acts;
    size_t count;
};
/* The act that argv[1] names; NULL: none of this name. */
const struct cmd_act *cmd_act_find(const struct cmd_acts *c, const char *name);
void cmd_acts_help(const struct cmd_acts *c, enum args_form form); /* as --help prints it */
/* The same below the help of a command that has options of its own, too. */
void cmd_acts_more(const struct cmd_acts *c, enum args_form form);
/* Runs it, or prints the list at --help. ERR_CONFIG: there is no such act; names them. */
enum err cmd_acts_run(const struct cmd_acts *c, int argc, char **argv, struct arena *arena) MUST;
/* The option --format of a command that prints figures; format: a const char *, "text" before;
 * holds: what the object has, "; of .." or "". */
#define FORMAT_ROW(format, holds)                                                                  \
    {                                                                                              \
        "format", ARGS_TEXT, (format), .value = "text|json", .help = "json: one object" holds ".", \
                                       .former = "json"                                            \
    }
/* A command on a run dials with the certificates of tls.dir. */
#define TLS_ROW                                                                                    \
    {                                                                                              \
        "tls", ARGS_SETTING, (char[]){"--tls.dir"},                                                \
            .value = "DIR", .help = "Directory of the certificates: tls.dir."                      \
    }
enum err cmd_help_key(const char *key) MUST;              /* prints what a key means */
enum err cmd_format(const char *format, bool *json) MUST; /* ERR_CONFIG: neither of them */
/* A command on a run: opens the run that `source` names (its args are set), acts, and closes it.
 * The run's arena is good during the act. Nothing at --help. */
enum err cmd_run(const struct args *args, struct run_source *source,
                 enum err (*act)(struct run *r, void *self), void *self) MUST;

#endif
