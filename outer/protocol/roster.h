/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ROSTER_H
#define ROSTER_H
/* Which sites a run has, and how that changes: by one site at a time, each change making a version
 * (docs/protocol.md 3.6). Version 1 is outer.sites. An index belongs to one name for ever: a site
 * that is removed keeps its index, and has it again when it is added again. Pure; the names are
 * the owner's.
 */
#include "outer/protocol/manifest.h"

struct roster {
    uint32_t version;              /* from 1 */
    uint32_t initial, count;       /* sites of outer.sites; indices given so far */
    struct set members;            /* of this version */
    struct manifest_change change; /* that made it; version 1: none */
};

void roster_begin(struct roster *r, unsigned initial);
/* One more version. The site is a member (REMOVE), or is none and has an index up to `count`. */
void roster_change(struct roster *r, const struct manifest_change *c);
/* The roster of a manifest's round. initial: of version 1, where the manifest does not say it. */
void roster_of(struct roster *r, unsigned initial, const struct manifest *m);
/* Version, change and numbers into a manifest; its entries and the names are the caller's. */
void roster_put(const struct roster *r, struct manifest *m);
/* Is the roster of the manifest this one, or this one with one change that the manifest names? */
bool roster_follows(const struct roster *r, const struct manifest *m);

#endif
