/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFFICER_H
#define OFFICER_H
/* The page of one site for a data-protection officer: what left the site, under which keys,
 * epsilon, audit, what it proves. Sentences and tables, to be printed and read without a script:
 * HTML, text for a terminal, or JSON.
 */
#include "kernels/base/arena.h"

enum officer_form { OFFICER_HTML, OFFICER_TEXT, OFFICER_JSON };
/* Of a site's run directory, in that file, durable, atomic; path "-": on stdout.
 * ERR_INPUT: no run directory of a site; ERR_CORRUPT: its list of charges is damaged. */
enum err officer_write(const char *path, enum officer_form form, const char *dir,
                       struct arena *a) MUST;

#endif
