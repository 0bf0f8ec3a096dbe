/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SITE_REPAIR_H
#define SITE_REPAIR_H
/* What a site does when something is lost: its own damaged files are repaired (site_scrub.c), a
 * round is given up (site_step_back.c, docs/protocol.md 3.4), an aggregator gets its directory back
 * (site_supply.c). With the site's mutex locked, but for open, close and counts; calls release it.
 */
#include "outer/site/site.h"
#include "outer/store/scrub.h"

struct site_scrub;
/* *out stays NULL where it is off. Its thread runs from `begin` on, once the site has started. */
enum err site_scrub_open(struct site_scrub **out, struct site *s, struct arena *perm) MUST;
enum err site_scrub_begin(struct site *s) MUST;
void site_scrub_close(struct site *s);
/* By the thread that carries out a round, between its calls: what the scrub has asked for that
 * needs the device and `next` of the replica. */
void site_scrub_serve(struct site *s);
void site_scrub_counts(struct site *s, struct scrub_counts *out); /* any thread */

/* The aggregator, bound just now, has answered step_back to this state. ERR_DISAGREE: it must not.
 */
enum err site_step_back_asked(struct site *s, unsigned fragment,
                              const struct wire_fragment_state *shown) MUST;
/* Durable on return: the fragment has the state before, and the aggregator was told. */
enum err site_step_back(struct site_slot *l, unsigned fragment) MUST;
/* The training for a round whose contribution was withdrawn: values (host), and the rest of it into
 * *w. *found false: none was withdrawn. */
enum err site_withdrawn_load(struct site *s, unsigned fragment, uint64_t round, float *values,
                             struct site_submission *w, bool *found) MUST;
bool site_withdrawn(const struct site *s, unsigned fragment, uint64_t round);

/* After a hello to l->peer that was answered `supply`. Never ERR_OK: the hello is repeated until
 * the aggregator is back (ERR_LINK). l->download is lost. */
enum err site_supply(struct site_slot *l) MUST;

#endif
