/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFFICER_H
#define OFFICER_H
/* The page of one site for a data-protection officer: what left the site, under which keys,
 * epsilon, audit, what it proves. Sentences and tables, to be printed and read without a script:
 * HTML, or text for a terminal.
 */
#include "kernels/base/arena.h"

/* Of a site's run directory. path NULL: as text on stdout; else HTML in that file, durable, atomic.
 * ERR_INPUT: no run directory of a site; ERR_CORRUPT: its list of charges is damaged. */
enum err officer_write(const char *path, const char *dir, struct arena *a) MUST;

#endif
