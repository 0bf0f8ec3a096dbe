/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCHEDULE_H
#define SCHEDULE_H
/* Which step sends which round of which fragment: a function of the configuration alone, so that
 * every site does the same and a run repeats; and with which codec, a function of the configuration
 * and of the round's parent manifest. A fragment is due at the steps of its period (period.h), and
 * every fragment once more after the last step. Streaming DiLoCo (2501.18512) has one period H for
 * all and offset p*H/P; listed slices (DreamDDP) have offsets of their own, moments (DES-LOC) their
 * own period. With overlap the commit of a round is put into the
 * local parameters `overlap` steps after its send. train.steps may grow between two starts: a
 * former last step stays a step after which every fragment is due, with all that holds for a last
 * round, so that nothing that was sent, stored or committed changes its meaning. schedule_step,
 * schedule_rounds and schedule_last alone know the send steps; all other functions are made from
 * these.
 */
#include "outer/codec/codec.h"
#include "outer/diloco/draw.h"
#include "outer/diloco/period.h"
#include "outer/protocol/round.h"

struct schedule_period {
    struct period p;
    enum codec_kind codec; /* before an amendment; schedule_codec is that of a round */
    bool moments;          /* outer.moments_codec: no amendment changes it */
};
enum { SCHEDULE_ENDS_MAX = 16, SCHEDULE_STAGES_MAX = 32, SCHEDULE_CHANGES_MAX = 64 };
/* Former values of train.steps, ascending, all below the present one; schedule.c writes it. */
struct schedule_former {
    unsigned count; /* times that it has grown */
    int64_t steps[SCHEDULE_ENDS_MAX];
};
struct schedule_change { /* by an amendment: all of these values, for the steps after `after` */
    int64_t after;
    int64_t every; /* outer.sync_every, of all fragments, where it is another one from here on; else
                      0 */
    int64_t steps; /* train.steps */
    float lr;      /* of outer_opt */
    enum codec_kind codec; /* outer.codec */
    int64_t overlap;       /* outer.overlap_steps, 0 or the one-round delay as before the change */
};
struct schedule_changes { /* schedule.c writes it */
    unsigned count;
    struct schedule_change list[SCHEDULE_CHANGES_MAX]; /* ascending by `after` */
    int64_t first_steps;                               /* with changes: train.steps before them */
};
struct schedule_stages { /* of train.stages; stages.c writes it */
    unsigned count;      /* 0: all values take part in all rounds */
    struct schedule_stage {
        int64_t end;   /* step */
        size_t values; /* that take part in its rounds; the others are not sent */
    } list[SCHEDULE_STAGES_MAX];
};
struct schedule {
    int64_t steps; /* the last step, as it is known now */
    struct schedule_former ends;
    int64_t
        overlap; /* tau, 0..every: steps between send and apply; 0: training waits. every: the
                    one-round delay, where a round is sent before the one before it is applied */
    bool eager;  /* with the one-round delay: a site continues from its own estimate of the round it
                    sends */
    unsigned fragments;
    uint64_t full_precision_rounds;
    enum codec_kind full_precision; /* codec of full-precision rounds: bf16, or fixed */
    uint8_t residual_reset; /* residual ratio from which on the next round resets it; 0: never */
    unsigned masked_sites;  /* sites of secure aggregation; 0: contributions are in the clear */
    bool clips;             /* outer.clip: a part of a contribution may be discarded */
    unsigned downlink_compression_from; /* sites, 2 or more; 0: never. See
                                           schedule_compresses_downlink */
    struct draw draw;                   /* one fragment; in all rounds but the last */
    struct schedule_stages stages;
    struct schedule_changes changes;
    struct schedule_period period[ROUND_FRAGMENTS_MAX];
};

/* One more former value of train.steps. False: it is not above the one before, or one too many. */
bool schedule_end_add(struct schedule *s, int64_t former);
void schedule_ends_set(struct schedule *s, const struct schedule_former *e); /* NULL: none */
/* One more change, after a later step than the one before. With an `every` the periods are those
 * of schedule_streaming. */
void schedule_amend(struct schedule *s, const struct schedule_change *c);
/* The change in force at the round; NULL: none is. */
const struct schedule_change *schedule_changed(const struct schedule *s, unsigned fragment,
                                               uint64_t round);
/* All fragments alike, offsets p*every/fragments: every is a multiple of fragments. */
struct schedule schedule_streaming(int64_t steps, int64_t every, unsigned fragments,
                                   uint64_t full_precision_rounds, enum codec_kind codec);
/* Of the round, if it is a full-precision round. */
enum codec_kind schedule_full_precision(const struct schedule *s, unsigned fragment,
                                        uint64_t round);
bool schedule_uses(const struct schedule *s, enum codec_kind codec); /* in any round */
/* Is fragment due after `step` finished steps (1..steps)? Sets the round (from 0) it is. */
bool schedule_due(const struct schedule *s, int64_t step, unsigned fragment, uint64_t *round);
uint64_t schedule_rounds(const struct schedule *s, unsigned fragment); /* in the whole run */
int64_t schedule_step(const struct schedule *s, unsigned fragment,
                      uint64_t round); /* step that ends it */
/* Steps of a full round: between two sends of the period that the round ends in. */
int64_t schedule_length(const struct schedule *s, unsigned fragment, uint64_t round);
/* Is this step the last one, or was it before train.steps grew? */
bool schedule_ends(const struct schedule *s, int64_t step);
/* The same of the step that ends the round: nothing hides its exchange. */
bool schedule_last(const struct schedule *s, unsigned fragment, uint64_t round);
/* Does the round exchange a drawn share of the values (draw.h)? */
bool schedule_draws(const struct schedule *s, unsigned fragment, uint64_t round);
/* The last step that the run had when this step was trained: of the former ones the first that is
 * not before it, else train.steps. */
int64_t schedule_end_of(const struct schedule *s, int64_t step);
/* After this residual ratio a round is sent in full precision, without the residual, which is
 * discarded. */
bool schedule_resets_residual(const struct schedule *s, uint8_t residual_ratio);
/* May residuals be discarded, so that a site books them (outer_state_options.discards)? */
bool schedule_discards(const struct schedule *s, float error_feedback_decay);
/* Step after which the commit of the round is put into the local parameters: `overlap` steps after
 * its send, but not after the fragment's next send; a round at the last step is waited for there.
 */
int64_t schedule_apply(const struct schedule *s, unsigned fragment, uint64_t round);
/* Rounds of a fragment that are sent, that are applied, by the end of `step`. The rounds between
 * the two are in flight: at most one. */
uint64_t schedule_sent(const struct schedule *s, unsigned fragment, int64_t step);
uint64_t schedule_applied(const struct schedule *s, unsigned fragment, int64_t step);
bool schedule_flying(const struct schedule *s, unsigned fragment, int64_t step, uint64_t *round);
bool schedule_delayed(const struct schedule *s, unsigned fragment); /* the one-round delay */
/* Does a site continue from an eager start when it has sent this round (site_eager.c)? */
bool schedule_eager(const struct schedule *s, unsigned fragment, uint64_t round);
/* The state whose theta the local parameters were last mixed with when this round is sent: delta is
 * taken against it. */
uint64_t schedule_base(const struct schedule *s, unsigned fragment, uint64_t round);
/* Most rounds in flight after a step, by the configuration: without changes. */
unsigned schedule_flights(const struct schedule *s);
/* In-flight slots: schedule_flights, with overlap at least one. */
unsigned schedule_slots(const struct schedule *s);
/* residual_ratio: manifest_residual_ratio of the parent manifest; 0 in round 0. Replicas call
 * outer_state_codec. */
enum codec_kind schedule_codec(const struct schedule *s, unsigned fragment, uint64_t round,
                               uint8_t residual_ratio);
int64_t schedule_next(const struct schedule *s,
                      int64_t step); /* next step > step with any fragment due; 0: none */
/* Where a trainer may continue whose outer state (rounds[fragments] applied) is ahead of its own
 * steps: the latest step that skips no round still to be sent. */
int64_t schedule_reached(const struct schedule *s, const uint64_t *rounds);
/* Does the aggregator compress the downlink of this round (downlink.h)? Else it sends the list of
 * payloads of a gathered codec. */
bool schedule_compresses_downlink(const struct schedule *s, enum codec_kind codec,
                                  unsigned included);
bool schedule_compresses_any(const struct schedule *s, unsigned included); /* of any round */
/* Payloads in the aggregate of a round, the n of codec.h; _max: of any round with this number of
 * configured sites. */
unsigned schedule_payloads(const struct schedule *s, enum codec_kind codec, unsigned included);
unsigned schedule_payloads_max(const struct schedule *s, enum codec_kind codec, unsigned sites);
/* Payload bytes of one round at one site: its contribution, and the aggregate of `sites`
 * contributions. Upper bounds: values that do not change are not sent. The manifest has the bytes
 * of a committed round. */
struct schedule_bytes {
    uint64_t up, down;
};
struct schedule_bytes schedule_bytes(const struct schedule *s, enum codec_kind codec,
                                     size_t elements, unsigned sites);
/* The same of a round, which may be of a stage where a part of the values takes no part. */
struct schedule_bytes schedule_round_bytes(const struct schedule *s, unsigned fragment,
                                           uint64_t round, size_t elements, unsigned sites);
/* Payload bytes of one site in the whole run, all `sites` in every round, at most; the
 * full-precision rounds of residual resets are not counted. elements[fragments]. */
uint64_t schedule_upload_bytes(const struct schedule *s, const size_t *elements);
uint64_t schedule_download_bytes(const struct schedule *s, const size_t *elements, unsigned sites);

#endif
