/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ARGS_FORMS_H
#define ARGS_FORMS_H
/* What --help prints: text for a terminal, or with --help=man a manual page (roff, man(7)) and with
 * --help=words one line for each word that may follow, "WORD<TAB>meaning", for the completion of a
 * shell (deploy/completions). All come from the same tables.
 */
#include <stddef.h>
#include "kernels/base/args.h"

/* --help, -h, --help=man, --help=words; false: another word, and `form` is as it was. */
bool args_form_read(const char *word, enum args_form *form);

struct args_row { /* a command or an act in a list of them, or an option */
    const char *name, *meaning;
};
struct args_page {       /* of a program or a command that has commands of its own */
    const char *name;    /* "" of the program, "cert" */
    const char *summary; /* the first sentence names it */
    const char *heading; /* of the rows: "COMMANDS" */
    const char *example; /* NULL: none */
};
void args_man_begin(const struct args_page *p);
void args_man_section(const char *name); /* a further one, below args_print_man */
void args_man_row(const struct args_row *r);
void args_man_end(const struct args_page *p);
void args_words_row(const struct args_row *r);

/* One command with options. */
void args_print_man(const struct args *a);
void args_print_words(const struct args *a);
/* " Default: 3.", " Required." or "". */
void args_default_text(const struct args_option *o, char *out, size_t size);

#endif
