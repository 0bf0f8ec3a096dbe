/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGGREGATOR_SCRUB_H
#define AGGREGATOR_SCRUB_H
/* The scrub of the aggregator's directory: repairs damaged files. */
#include "outer/aggregator/aggregator.h"
#include "outer/store/scrub.h"

struct aggregator_scrub;
/* *out stays NULL where it is off; set before the scrub's thread begins. */
enum err aggregator_scrub_open(struct aggregator_scrub **out, struct aggregator *a,
                               struct arena *perm) MUST;
void aggregator_scrub_close(struct aggregator_scrub *r);
/* By work(), under the lock: what the scrub has asked for is done, or begun in the place of a
 * commit, no commit being in flight. */
void aggregator_scrub_work(struct aggregator *a);
/* Any thread; true: the scrub waits for the next work(). */
bool aggregator_scrub_counts(const struct aggregator *a, struct scrub_counts *out);

#endif
