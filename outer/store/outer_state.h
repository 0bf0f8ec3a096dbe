#ifndef OUTER_STATE_H
#define OUTER_STATE_H
/* The outer state as every member (each site, the aggregator) holds it, per fragment: theta,
 * what the optimizer keeps, block codes (the next grid), round, manifest and state digest; a site's
 * also the residual, and the aggregator's where it re-encodes. outer_state_apply is the outer step,
 * the same bits on every replica. Files (docs/protocol.md 2), relative to the world's root, F a
 * number:
 *
 *   frag/F/<round>/state      theta, momentum, gathered, codes, residual, forgotten; digests
 *   frag/F/<round>/MANIFEST   that made this state: of round <round> - 1
 *   frag/F/<round>/aggregate  what it was made from; the manifest holds its digest
 *   frag/F/CURRENT            names a round and a manifest; its rename is the one commit point
 *
 * The arithmetic may be a GPU's: the same bits, a fragment at a time (staging.h). The state is host
 * memory: outer_state_memory(), all taken at open; outer_state_load, and reading a kept state,
 * take one fragment's state file for the time of the call. One thread. State digests are of
 * little-endian values; so is the machine.
 */
#include "outer/codec/codec.h"
#include "outer/diloco/fragment.h"
#include "outer/protocol/manifest.h"
#include "outer/diloco/outer_opt.h"
#include "outer/diloco/schedule.h"
#include "outer/diloco/staging.h"
#include "outer/store/env.h"

enum {
    MEMBER_STATES_MIN = 2
}; /* states of a fragment that are kept whatever happens: the present
      one and the one it came from, a round or a snapshot before */

struct outer_state_fragment {
    uint64_t round;
    struct digest manifest;             /* that made it; zero at round 0 */
    uint8_t backlog;                    /* manifest_backlog of it */
    struct digest digest;               /* SHA-256 of theta, momentum, gathered, codes */
    float *theta, *momentum, *gathered; /* host, elements each; NULL where the optimizer has none */
    void *codec_state; /* of encode (codec.state_bytes); NULL: none. Memory only: a codec whose
                          state must survive a restart needs a part of the state file */
    uint8_t *codes;    /* elements / 256: mean block code of the last round */
    float *residual;   /* a site's; the aggregator's where it re-encodes */
    double *forgotten; /* of who forgets only */
};
struct outer_state;
struct outer_state_options {
    const struct fragments *fragments;
    struct schedule schedule;
    struct outer_opt outer;
    bool residuals; /* a site */
    bool reencodes; /* the aggregator, and a round may be re-encoded: a residual of its own */
    bool forgets;   /* a site with schedule_forgets(); the aggregator: outer_state_aggregates */
    /* Who re-encodes: the spare's residual and forgotten of the round of this manifest once more,
     * from its contributions, m->state being what it began at. Any error: what that round lost is
     * given up. */
    enum err (*remake)(void *self, struct outer_state *m, unsigned fragment,
                       const struct manifest *manifest);
    void *remake_self;
    uint64_t keep; /* manifests and aggregates kept per fragment (outer.history_rounds); less than 2
                      counts as 2 */
};
struct outer_state {
    struct env *env;
    struct dev *dev; /* arithmetic of the exact set */
    struct outer_state_options o;
    const struct fragments *fragments;   /* o.fragments */
    struct schedule schedule;            /* o.schedule */
    struct outer_state_fragment *state;  /* [fragments] current */
    struct outer_state_fragment buffers; /* of the spare, all there are */
    struct outer_state_fragment spare;   /* next state while it is being made: largest fragment */
    float *mean; /* device, largest fragment: mean delta; scratch outside outer_state_apply */
    /* A site keeps its states from this round on: outer_state_prune. */
    uint64_t pruned[ROUND_FRAGMENTS_MAX];
    struct codec_work *work;
    uint64_t residuals_lost; /* the aggregator's, with states that were damaged: outer_state_load */
    struct staging staging;  /* the fragment in flight, on a device that has memory of its own */
};

/* Options of the aggregator of so many sites: what re-encoding needs. */
void outer_state_aggregates(struct outer_state_options *o, unsigned sites);
/* What outer_state_open takes. here: its device works in the host's memory. */
struct outer_memory outer_state_memory(const struct outer_state_options *o, bool here);
/* All state lies in perm's memory, whatever the device; dev_arena() makes copies of it fast. */
enum err outer_state_open(struct outer_state *m, struct env *w, struct dev *d,
                          const struct outer_state_options *o, struct arena *perm) MUST;
void outer_state_close(struct outer_state *m); /* a zeroed or partly opened member is fine */
/* True when the directory holds a state for every fragment. */
bool outer_state_found(const struct outer_state *m);
enum err outer_state_begin(struct outer_state *m, const float *initial_slab)
    MUST; /* round 0 from the initial parameters, durable */
/* CURRENT of every fragment, verified. A state that does not verify: the aggregator makes it again
 * from the one before and the aggregate, without what re-encoding that round lost where `remake`
 * does not find it (residuals_lost); a site goes back to the one it came from and catches up again.
 * Else ERR_CORRUPT names the file. ERR_MISMATCH: an intact one, made with other settings; they are
 * named. */
enum err outer_state_load(struct outer_state *m) MUST;
enum err outer_state_load_fragment(struct outer_state *m,
                                   unsigned fragment) MUST; /* the same, of one */
/* A kept earlier state's theta (elements values; for the replay after a restart). ERR_INPUT: not
 * kept; ERR_CORRUPT. */
enum err outer_state_load_theta(struct outer_state *m, unsigned fragment, uint64_t round,
                                float *theta) MUST;
/* Codec of round state.round, the same on every member: a function of the configuration and the
 * state's manifest. */
enum codec_kind outer_state_codec(const struct outer_state *m, unsigned fragment);
/* Digest of the grid that round state.round is encoded on; what contributions and manifests carry.
 */
struct digest outer_state_grid(const struct outer_state *m, unsigned fragment);
/* Decodes the aggregate of round state.round, steps into the spare; fills state_before,
 * state_after, grid and the aggregate's digest and size when `made` is set (the aggregator),
 * compares them when not: ERR_DISAGREE when states differ, ERR_PROTO when the aggregate is not what
 * the manifest says. ERR_DIVERGED: the next state would not be finite; it is never committed. The
 * spare's residual and forgotten are left alone; the aggregator's are downlink.h's. */
enum err outer_state_apply(struct outer_state *m, unsigned fragment, struct manifest *manifest,
                           bool made, const uint8_t *aggregate, size_t aggregate_bytes) MUST;
/* In place of outer_state_apply for a round that is aborted: the spare is the current state, one
 * round further. made: fills the manifest (the aggregator); else ERR_DISAGREE where it was made
 * from another state. outer_state_commit follows, without an aggregate. */
enum err outer_state_abort(struct outer_state *m, unsigned fragment, struct manifest *manifest,
                           bool made) MUST;
/* Root mean square of the fragment's outer parameters. */
enum err outer_state_rms(struct outer_state *m, unsigned fragment, float *rms) MUST;
/* The mean of a kept round, decoded once more, to m->mean; the spare's codes are its grid,
 * *manifest is its manifest. ERR_INPUT: not kept, or the round was aborted; ERR_CORRUPT. */
enum err outer_state_mean(struct outer_state *m, unsigned fragment, uint64_t round,
                          struct manifest *manifest) MUST;
/* A checked payload's values -> values (count, device). */
enum err outer_state_decode(struct outer_state *m, unsigned fragment, enum codec_kind kind,
                            float *values, const struct codec_payload *payload,
                            const uint8_t *grid) MUST;
/* For the codec's ops on this fragment's values, on this grid. */
struct codec_call outer_state_call(const struct outer_state *m, unsigned fragment,
                                   const uint8_t *grid);
/* theta = what the outer step would make of the current state were m->mean the round's mean.
 * Nothing else changes but the spare. */
enum err outer_state_ahead(struct outer_state *m, unsigned fragment, float *theta) MUST;
/* The commit point: writes the spare as state round + 1 with manifest, aggregate (kept for
 * catch-up) and, where there are such, the new residual and forgotten (already put into the spare),
 * then CURRENT; then it is the current state. */
enum err outer_state_commit(struct outer_state *m, unsigned fragment,
                            const struct manifest *manifest, const uint8_t *aggregate,
                            size_t aggregate_bytes) MUST;
/* Sites: states before `oldest_round` are no longer needed by any inner checkpoint (the last two
 * stay). Without it a site keeps all of them; the aggregator keeps two by itself. */
enum err outer_state_prune(struct outer_state *m, unsigned fragment, uint64_t oldest_round) MUST;
enum err outer_state_manifest(struct outer_state *m, unsigned fragment, uint64_t round,
                              struct manifest *out) MUST; /* kept ones; ERR_INPUT */
/* Not copied; the caller unmaps. */
enum err outer_state_aggregate(struct outer_state *m, unsigned fragment, uint64_t round,
                               struct file_map *map) MUST;
/* One made of pieces for the round in flight: durable, and mapped for outer_state_apply.
 * outer_state_commit then takes NULL for it. It may be larger than memory. */
enum err outer_state_aggregate_put(struct outer_state *m, unsigned fragment,
                                   const struct file_part *parts, size_t n,
                                   struct file_map *map) MUST;
/* Snapshot for a joiner: theta, momentum, gathered, codes; the size follows from the configuration,
 * the digest of the bytes is the state digest. */
size_t outer_state_snapshot_bytes(const struct outer_state *m, unsigned fragment);
size_t outer_state_state_bytes(const struct outer_state *m,
                               unsigned fragment); /* with what is its own */
enum err outer_state_snapshot_write(const struct outer_state *m, unsigned fragment,
                                    uint8_t *out) MUST;
/* Becomes the current state, durable. own: residual and forgotten are what the caller put into the
 * spare; otherwise they start at zero, and what the site held is lost. ERR_PROTO: not the bytes of
 * manifest->state_after. */
enum err outer_state_snapshot_adopt(struct outer_state *m, unsigned fragment,
                                    const struct manifest *manifest, const uint8_t *data,
                                    size_t size_bytes, bool own) MUST;
struct digest outer_state_digest(const struct outer_state *m,
                                 bool residual); /* over all fragments: the run's final word */

#endif
