/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ROSTER_ORGAN_H
#define ROSTER_ORGAN_H
/* Changes of the roster in mid-run (docs/protocol.md 3.6) as an organ: an operator adds and removes
 * sites, each manifest names the sites of its round, and every site checks that they follow from
 * those of the round before. Which sites a round has is the site's and the aggregator's own
 * knowledge (outer/site/site_members.c, outer/aggregator/aggregator_members.c). */
#include "outer/organ/organ.h"

struct arena;

enum err roster_at_aggregator(struct organ_at_aggregator *out, struct arena *perm) MUST;
struct organ_at_site roster_at_site(void);

#endif
