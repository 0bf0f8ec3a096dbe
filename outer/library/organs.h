#ifndef ORGANS_H
#define ORGANS_H
/* The organs of a process (outer/organ/organ.h): the one place that knows all of them by name.
 * Opened before the site or the aggregator, closed after it. */
#include "outer/config/run.h"
#include "outer/organ/archive/archive_parts.h"
#include "outer/organ/organ.h"

struct organs {
    struct archive_parts archive;
    struct organs_at_site site;             /* for site_options; empty at an aggregator */
    struct organs_at_aggregator aggregator; /* for aggregator_options; empty at a site */
};
/* own: the replica's directory. The start lines say what the organs will take of the disk. */
enum err organs_open_site(struct organs *o, struct run *r, struct env *own) MUST;
enum err organs_open_aggregator(struct organs *o, struct run *r, struct env *own) MUST;
void organs_close(struct organs *o);

#endif
