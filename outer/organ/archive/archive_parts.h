/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ARCHIVE_PARTS_H
#define ARCHIVE_PARTS_H
/* run.archive of a process: opens the archive, and says before the run how many bytes it will take.
 */
#include "outer/config/run.h"
#include "outer/organ/archive/archive.h"

struct archive_parts {
    struct archive *archive; /* NULL: off */
    struct env *env;         /* of a directory that run.archive names; else NULL */
};
bool archive_parts_on(const struct outer_settings *o);
/* own: the replica's directory. name: of the site; NULL: the aggregator. The start line has the
 * prediction. */
enum err archive_parts_open(struct archive_parts *p, struct run *r, struct env *own,
                            const char *name) MUST;
void archive_parts_close(struct archive_parts *p);
struct archive_size archive_parts_size(const struct run *r, bool aggregator);

#endif
