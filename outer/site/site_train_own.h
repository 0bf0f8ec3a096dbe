#ifndef SITE_TRAIN_OWN_H
#define SITE_TRAIN_OWN_H
/* What site_train.c (rounds that training waits for, start, moves) and site_train_overlap.c (rounds
 * beside training) share.
 */
#include "outer/site/site_train.h"

bool site_train_lead(const struct site_train *s);
double site_train_now(void); /* seconds */
/* Every rank learns how the lead fared before anybody waits for data. */
enum err site_train_agree(const struct site_train *s, enum err mine) MUST;
/* The local values of a fragment, out of the slab it is part of: to the device's memory; to the
 * replica's. */
void site_train_collect(struct site_train *s, struct train *t, float *out, unsigned f);
enum err site_train_gather(struct site_train *s, struct train *t, float *out, unsigned f) MUST;
/* Where the lead's replica is given a fragment, and leaves theta: s->fragment, or the host's. */
float *site_train_handed(const struct site_train *s);
/* The lead's theta (the replica's memory, or the host's) -> s->fragment of every rank -> the slab:
 * local = alpha * local + (1 - alpha) * theta. */
enum err site_train_take(struct site_train *s, struct train *t, unsigned f, const float *theta,
                         float alpha) MUST;
double site_train_weight(const struct site_train *s, const struct train *t, unsigned f,
                         uint64_t round);
/* The lead tells of a round: what its manifest says is set, what was counted is filled in here. */
void site_train_tell(struct site_train *s, struct site_train_round *r);

/* site_train_overlap.c. Is the flight of this fragment, if there is one, to be applied by step
 * `at`? */
bool site_overlap_lands(const struct site_train *s, int64_t at, unsigned f);
/* All that is applied and sent after this step, on every rank. ERR_STOPPED:
 * asked to while waiting; then either nothing was changed, or it is the last step. */
enum err site_overlap_step(struct site_train *s, struct train *t,
                           const struct train_report *report) MUST;
/* Before the update of step t->step + 1, with outer.before_update: all that is applied at that
 * step. ERR_STOPPED: nothing was changed. */
enum err site_overlap_update(struct site_train *s, struct train *t) MUST;
/* After a checkpoint was loaded: what was in flight when it was written flies again. */
enum err site_overlap_resume(struct site_train *s, struct train *t) MUST;
enum err site_overlap_clear(struct site_train *s) MUST; /* lands all, takes none */
/* A checkpoint of this step is about to be written before the step's rounds were applied; normally
 * it is afterwards. Kept beside it, so that a restart knows. */
enum err site_overlap_mark(struct site_train *s, struct train *t) MUST;
enum err site_overlap_marked(struct site_train *s, struct train *t, bool *before) MUST;

#endif
