#ifndef SCHEDULE_H
#define SCHEDULE_H
/* Which step sends which round of which fragment: a function of the configuration alone, so that
 * every site does the same and a run repeats; and with which codec, a function of the configuration
 * and of the round's parent manifest. Fragment p is due after step s when s
 * > p*H/P and (s - p*H/P) mod H = 0 (Streaming DiLoCo's offsets), and every fragment once more
 * after the last step.
 */
#include "outer/codec/codec.h"
#include "outer/keys.h"
#include "inner/keys.h"

struct schedule {
    int64_t steps, every;
    unsigned fragments;
    uint64_t whole_rounds;
    enum codec_kind codec;
    uint8_t back_off; /* a backlog of this and more makes the next round whole; 0: never */
};

struct schedule schedule_make(const struct settings *s, const struct outer_settings *o);
/* Is fragment due after `step` finished steps (1..steps)? Sets the round (from 0) it is. */
bool schedule_due(const struct schedule *s, int64_t step, unsigned fragment, uint64_t *round);
uint64_t schedule_rounds(const struct schedule *s, unsigned fragment); /* in the whole run */
int64_t schedule_step(const struct schedule *s, unsigned fragment,
                      uint64_t round); /* step that ends it */
/* backlog: manifest_backlog of the parent manifest; 0 in round 0. Members: member_codec. */
enum codec_kind schedule_codec(const struct schedule *s, unsigned fragment, uint64_t round,
                               uint8_t backlog);
int64_t schedule_next(const struct schedule *s,
                      int64_t step); /* next step > step with any fragment due; 0: none */
/* Where a trainer may go on whose outer state (rounds[fragments] applied) is ahead of its own
 * steps: the latest step that skips no round still to be sent. */
int64_t schedule_reached(const struct schedule *s, const uint64_t *rounds);
/* Payload bytes of one site in the whole run, all `sites` in every round: the prediction that is
 * printed beside what was counted; rounds that a backlog makes whole come on top. elements[fragments].
 */
uint64_t schedule_upload_bytes(const struct schedule *s, const size_t *elements);
uint64_t schedule_download_bytes(const struct schedule *s, const size_t *elements, unsigned sites);

#endif
