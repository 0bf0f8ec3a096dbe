/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KEY_FORMS_H
#define KEY_FORMS_H
/* The keys of a configuration for programs: a JSON schema (draft 2020-12) for editors, and words
 * for the completion of a shell. docs/configuration.md, for people, is run_reference
 * (outer/config/run.h).
 */
#include <stdio.h>
#include "kernels/base/arena.h"

/* To `out`. Errors of the file: ferror. */
enum err key_schema_print(FILE *out, struct arena *scratch) MUST;
/* "--section.key=<TAB>meaning" a line, on standard output. */
enum err key_words_print(struct arena *scratch) MUST;

#endif
