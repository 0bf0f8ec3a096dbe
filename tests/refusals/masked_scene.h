/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MASKED_SCENE_H
#define MASKED_SCENE_H
/* A run with secure aggregation, for the rows of sums: the real aggregator at the real link,
 * with an operator's certificate next to it, and real sites with real files, each in a thread of
 * its own, all in this process. A lie stands between the aggregator and the link: what it changes
 * is what a lying aggregator says to site a, or what a site has said that it keeps back. It is
 * called under the lock of the service; everything else here by the test's thread.
 *
 * Sites make a round when the test lets them. Their clocks jump: what a site waits for 2 s costs
 * 0.1 s. */
#include "outer/aggregator/aggregator.h"
#include "outer/masks/seal.h"
#include "outer/site/site.h"
#include "tests/refusals/scene.h"

enum { MASKED_SITES_MAX = 4 };

struct masked_lie {
    /* True: the call goes no further, and is answered `pending`. */
    bool (*holds)(char site, const struct wire_mask *m);
    /* Answers to site a, which may be replaced. */
    void (*masks)(const struct wire_mask *m, struct wire_mask_answer *answer);
    void (*polls)(const struct wire_poll *m, struct wire_poll_answer *answer);
};

/* A run of `sites` sites, at a round without contributions; a run of that size stays as it is.
 * lie: from the first word on, which makes it another run. */
void masked_open(unsigned sites, const struct masked_lie *lie);
void masked_close(void);
/* From now on; NULL: the truth. What site a has said and refused is counted from here. */
void masked_lies(const struct masked_lie *lie);
/* Lies about seals and signatures are told in the body of a poll's answer alone, and Mask has the
 * truth; else polls have no body. */
void masked_polled(bool on);
void masked_let(void); /* all sites make one round more */
/* Until site a has refused something `times` times: "waits NAME" of the last one. "nothing": it
 * has not, in time; "ended": its process would have. */
const char *masked_refusal(unsigned times);
/* The round that the sites were let make is committed with all of them, and all have its state. */
void masked_well(void);
/* What site a has signed and revealed since the lie began: different bodies. */
unsigned masked_signed(void), masked_revealed(void);

/* Of the aggregator, for a call of its own in a lie. */
void masked_ask(char site, const struct wire_mask *m, struct wire_mask_answer *answer);
struct wire_head masked_head(char site); /* of the site's process */
struct signer *masked_signer(char site); /* '-': the aggregator's */
struct seal_context masked_context(void);
int masked_port(void);
uint64_t masked_round(void); /* in flight, when no call runs */
enum round_outcome masked_operate(enum wire_act act, const char *site);
void masked_site_ends(char site); /* waits until its thread has ended by itself */
void masked_site_stops(char site);
void masked_site_starts(char site); /* after that, with the same directory */
/* The next commit of site a fails after what it has decided for the round, and ends it. */
void masked_commit_fails(void);
uint64_t masked_version(void);               /* of the roster */
struct wire_contribution masked_offer(void); /* site a's to the present round, unsigned */
uint64_t masked_clear_bytes(void);           /* of its payload without masks */

#endif
