/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAN_LAYERS_H
#define PLAN_LAYERS_H
/* `atoll plan layers`: DreamDDP's layer-wise schedule (dreamddp.h) for a run's layers. A period
 * of outer.sync_every steps has as many slots as fit, at most one for each layer; a slice that is
 * sent at the end of a slot hides under the next one's backward passes. Slots of one step are
 * filled in: with outer.before_update an exchange of one step replaces no update; one of several
 * steps replaces the updates before the last, and more of them would cost progress.
 */
#include "outer/config/run.h"
#include "outer/plan/plan_settings.h"

struct plan_layers {
    struct fragment_slice slice[ROUND_FRAGMENTS_MAX];
    unsigned count;
    int64_t span;  /* steps of a slot: what outer.overlap_steps may be */
    unsigned more; /* exchanges that fill-in adds to a period; with span 1 only */
    double wait_s; /* what a period's exchanges still keep training waiting */
};

#define PLAN_LAYERS_WAIT 0.05 /* of a period: a line is too slow for one that waits longer */

/* plan.layers_ms and the link must be given: ERR_CONFIG otherwise, and when their number is not the
 * model's layers + 2 or the model has more than the fragments there may be. */
enum err plan_layers_make(struct plan_layers *out, struct run *p, const struct line *link) MUST;
/* The shortest multiple of outer.sync_every, up to PLAN_EVERY_MAX, whose period waits for less than
 * that; 0: none. */
enum err plan_layers_every(int64_t *every, struct run *p, const struct line *link) MUST;
/* What `atoll plan layers` says on standard output, as text or as one JSON object. */
enum err plan_layers_print(struct run *p, const struct plan_layers *l, const struct line *link,
                           bool json) MUST;
enum { PLAN_LAYERS_TEXT = 160 };
/* "embed-3@5+8": as outer.slices lists it. */
void plan_layers_text(const struct fragment_slice *s, int layers, char *out, size_t size_bytes);

#endif
