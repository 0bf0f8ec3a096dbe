/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SITE_MARKS_H
#define SITE_MARKS_H
/* What a restart has to be told of an inner checkpoint in addition to its step
 * (docs/protocol.md 3.7): one that was written in a wait, from before the rounds of its step, and
 * one with rounds postponed beyond it. In id/marks of the site's directory, for the newest
 * checkpoints of that kind; all others have none. A mark names its checkpoint by step and by a
 * digest of the parameters: so a restart knows whether the checkpoint that it loads is the marked
 * one.
 */
#include "outer/protocol/round.h"
#include "outer/store/env.h"

struct site_mark {
    uint64_t step;
    struct digest parameters;
    bool before;                             /* as of struct stepper_event */
    uint64_t postponed[ROUND_FRAGMENTS_MAX]; /* the same */
};
enum { SITE_MARKS_MAX = 16 };
struct site_marks {
    uint32_t count;
    struct site_mark mark[SITE_MARKS_MAX]; /* oldest first */
};

/* No file: none. ERR_CORRUPT, ERR_MISMATCH, ERR_IO, ERR_MEMORY. */
enum err site_marks_read(struct site_marks *m, struct env *env) MUST;
/* Durable on return; the oldest one makes room. */
enum err site_marks_add(struct env *env, const struct site_mark *mark) MUST;
/* That of the checkpoint of this step with these parameters; NULL: it has none. */
const struct site_mark *site_marks_find(const struct site_marks *m, uint64_t step,
                                        const struct digest *parameters);
bool site_marks_step(const struct site_marks *m, uint64_t step); /* is there one of this step? */

#endif
