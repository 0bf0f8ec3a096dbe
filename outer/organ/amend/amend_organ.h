/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AMEND_ORGAN_H
#define AMEND_ORGAN_H
/* Amendments of settings in mid-run (docs/protocol.md 3.17) as an organ: an operator's or those of
 * outer.replan. The aggregator journals them, each manifest carries the whole list, and the
 * schedule of every replica follows. What a list makes of the settings: outer/config/amend.h. */
#include "outer/organ/organ.h"
#include "outer/protocol/amendments.h"

struct arena;
struct keys_base;
struct site;

/* settings: outlive the aggregator; NULL: there can be no amendments. */
enum err amend_at_aggregator(struct organ_at_aggregator *out, const struct keys_base *settings,
                             struct arena *perm) MUST;
struct organ_at_site amend_at_site(void);
/* What the manifests that the site has adopted so far carry. Any thread. */
void amend_site_list(struct site *s, struct amendments *list);
/* What another process of the site knows; shorter than the known list: nothing changes. */
enum err amend_site_take(struct site *s, const struct amendments *list) MUST;

#endif
