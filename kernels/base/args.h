/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ARGS_H
#define ARGS_H
/* The options of a subcommand: `--name value`, `--name=value`, flags, --help; and, where the
 * command takes a configuration, `--section.key value` passed on to config_load. Settings of the
 * configuration are not options: the key tables define them. One ERR_CONFIG lists all mistakes and
 * names the nearest option to an unknown one.
 *
 *     int64_t sites = 1; const char *out = NULL; bool force = false;
 *     const struct args_option options[] = {
 *         {"out", ARGS_TEXT, &out, .value = "DIR", .required = true, .help = "Where the shards
 * go."},
 *         {"sites", ARGS_INT, &sites, .min = 1, .max = 1024, .value = "N", .help = "Parts of the
 * training text."},
 *         {"force", ARGS_FLAG, &force, .help = "Replace shards that are there."},
 *     };
 *     struct args args = {.command = "data", .summary = "...", .example = "...",
 *                         .operands = "TEXT...", ARGS_OPTIONS(options)};
 *     TRY(args_parse(&args, argc, argv, &arena));
 *     if (args.help)
 *         return ERR_OK; // the help text is on stdout
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "kernels/base/arena.h"

enum args_kind { ARGS_FLAG, ARGS_TEXT, ARGS_INT, ARGS_REAL, ARGS_TEXTS, ARGS_SETTING };
enum args_form { ARGS_HELP_TEXT, ARGS_HELP_MAN, ARGS_HELP_WORDS }; /* of --help: args_forms.h */
struct args_texts { /* of an option that may be given several times */
    const char **items;
    size_t count;
};

struct args_option {
    const char *name; /* without the dashes */
    enum args_kind kind;
    void *target; /* bool, const char *, int64_t, double: holds the default, which --help prints;
                     TEXTS: struct args_texts, zeroed; SETTING: char[], "--section.key", which the
                     option is another name of */
    const char *value; /* name of the value in --help: "DIR"; NULL for flags */
    double min, max;   /* INT, REAL: inclusive; both 0: no limit */
    bool required;
    const char *help;   /* one sentence */
    const char *former; /* a name that it had, refused with the one that it has; NULL: none */
};
/* The options of a struct args, from an array. */
#define ARGS_OPTIONS(list) .options = (list), .count = sizeof(list) / sizeof *(list)
struct args {
    const char *command;  /* "data" */
    const char *summary;  /* one or two sentences */
    const char *example;  /* a command line that works */
    const char *operands; /* "TEXT..."; NULL: operands are an error */
    /* Finds the setting whose name is nearest to a word without a section, and the number of edits.
     * NULL: --section.key arguments are errors; else they are allowed. */
    void (*settings)(const char *word, char *name, size_t size, unsigned *edits);
    const struct args_option *options;
    size_t count;
    /* filled by args_parse, in its arena */
    bool help; /* --help was given and printed; the command returns at once */
    enum args_form form;
    char **operand; /* the operands, in order */
    int operand_count;
    char **setting; /* argv for config_load */
    int setting_count;
};

/* Prints a text on stdout in lines of at most the terminal's width, 100 columns where stdout is no
 * terminal. `column`: where the first line begins; further lines begin at `indent`. */
void args_print(const char *text, int column, int indent);

/* argv[0] is the subcommand's name and is skipped. */
enum err args_parse(struct args *a, int argc, char **argv, struct arena *arena) MUST;
/* "atoll train --config run.yaml", the command line for records, without passwords in addresses; ""
 * when out of memory. */
const char *args_line(struct arena *arena, int argc, char **argv);

#endif
