/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DIRECTORY_H
#define DIRECTORY_H
/* Which format a directory has, and which program wrote it: the text file FORMAT in it, three lines
 * (docs/formats.md 12). It is looked at before anything else there is compared, so that a directory
 * of another release is refused by its name and not for some setting.
 *
 * A directory without the file was written before releases named their format; its records say
 * their version. Not for tls.dir, whose files are PEM. Blocks for the disk; the caller holds the
 * directory's lock where it writes.
 */
#include "kernels/base/err.h"

/* X(KIND, what it is, its format, the oldest format that this program reads): the format of the
 * release before is read too. */
#define DIRECTORY_LIST(X)                                                                          \
    X(RUN, "run", 2, 2)                                                                            \
    X(SERVE, "serve", 2, 2)                                                                        \
    X(DATA, "data", 1, 1)
enum directory_kind {
#define X(kind, name, format, oldest) DIRECTORY_##kind,
    DIRECTORY_LIST(X)
#undef X
        DIRECTORY_ANY, /* for readers; not to claim */
};

/* ERR_UNSUPPORTED: of another format; ERR_CONFIG: of another kind; ERR_CORRUPT. A directory that
 * does not exist, or holds nothing, is none of them. Writes nothing. */
enum err directory_check(const char *dir, enum directory_kind kind) MUST;
/* The same, then says in FORMAT that this program writes there. */
enum err directory_claim(const char *dir, enum directory_kind kind) MUST;
const char *directory_formats(void); /* "run 2, serve 2, data 1", for --version */

#endif
