/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORGANS_H
#define ORGANS_H
/* The organs of a process (outer/organ/organ.h): the one place that knows all of them by name.
 * Opened before the site or the aggregator, closed after it. */
#include "outer/config/run.h"
#include "outer/organ/archive/archive_parts.h"
#include "outer/organ/organ.h"
#include "inner/coll/coll.h"

struct organs {
    struct archive_parts archive;
    struct organs_at_site site;             /* for site_options; empty at an aggregator */
    struct organs_at_aggregator aggregator; /* for aggregator_options; empty at a site */
};
/* own: the replica's directory. The start lines say what the organs will take of the disk. */
enum err organs_open_site(struct organs *o, struct run *r, struct env *own) MUST;
enum err organs_open_aggregator(struct organs *o, struct run *r, struct env *own) MUST;
void organs_close(struct organs *o);
/* For an exchange: *s becomes the schedule that the newest manifests of the lead imply, with the
 * former values of train.steps that it has; without amendments it stays. configured: that of the
 * configuration. site: the lead's, NULL on other ranks. Every rank calls it. */
enum err organs_reschedule(const struct run *r, const struct schedule *configured,
                           struct site *site, struct coll *c, struct schedule *s,
                           uint32_t *version) MUST;

#endif
