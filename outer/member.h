#ifndef MEMBER_H
#define MEMBER_H
/* The outer state as every member (each site, the aggregator) holds it, per fragment: theta, momentum, block codes
 * (the next grid), round, manifest and state digest; a site's also the residual. member_apply is the outer step, the same bits on
 * every member. The files of protocol section 2: frag/F/<round>/ and frag/F/CURRENT, one commit point.
 */
#include "outer/codec/codec.h"
#include "outer/fragment.h"
#include "outer/manifest.h"
#include "outer/nesterov.h"
#include "outer/schedule.h"
#include "outer/world.h"

struct member_state {
    uint64_t round;
    struct digest manifest;  /* that made it; zero at round 0 */
    struct digest digest;    /* SHA-256 of theta, momentum, codes */
    float *theta, *momentum; /* host, elements each; momentum NULL for plain averaging */
    uint8_t *codes;          /* elements / 256: mean block code of the last round */
    float *residual;         /* site only */
    double *forgotten;       /* unused unless outer.feedback < 1: NULL */
};
struct member {
    struct world *world;
    struct dev *cpu;                   /* host arithmetic of the exact set */
    const struct fragments *fragments;
    struct schedule schedule;
    struct nesterov outer;
    bool residuals;
    uint64_t keep;                     /* states and aggregates kept per fragment */
    struct member_state *state;        /* [fragments] current */
    struct member_state spare;         /* next state while it is being made: largest fragment */
    struct codec_work *work;
};

enum err member_open(struct member *m, struct world *w, struct dev *cpu, const struct fragments *f,
                     const struct schedule *s, const struct nesterov *o, bool residuals, uint64_t keep,
                     struct arena *perm) MUST;
/* True when the directory holds a state for every fragment. */
bool member_found(const struct member *m);
enum err member_begin(struct member *m, const float *initial_slab) MUST;   /* round 0 from the initial parameters, durable */
enum err member_load(struct member *m) MUST;                               /* CURRENT of every fragment, verified */
/* A kept earlier state's theta and residual (replay after a restart from an older inner checkpoint). ERR_INPUT: not kept. */
enum err member_load_round(struct member *m, unsigned fragment, uint64_t round, struct member_state *out) MUST;
/* Decodes the aggregate of round state.round, steps into the spare; fills state_before/after digests when `made` is
 * given (the aggregator), compares them when it is not (sites): ERR_STATE when they differ. */
enum err member_apply(struct member *m, unsigned fragment, struct manifest *manifest, bool made,
                      const uint8_t *aggregate, size_t aggregate_bytes) MUST;
/* The commit point: writes the spare as state round + 1 with manifest, aggregate (kept for catch-up) and, at a
 * site, the new residual (already put into spare.residual), then CURRENT; then it is the current state. */
enum err member_commit(struct member *m, unsigned fragment, const struct manifest *manifest,
                       const uint8_t *aggregate, size_t aggregate_bytes) MUST;
enum err member_manifest(struct member *m, unsigned fragment, uint64_t round, struct manifest *out) MUST; /* kept ones; ERR_INPUT */
enum err member_aggregate(struct member *m, unsigned fragment, uint64_t round, struct arena *a, uint8_t **data,
                          size_t *size_bytes) MUST;
/* Snapshot for a joiner: bytes whose size follows from the configuration. */
size_t member_snapshot_bytes(const struct member *m, unsigned fragment);
enum err member_snapshot_write(const struct member *m, unsigned fragment, uint8_t *out) MUST;
enum err member_snapshot_adopt(struct member *m, unsigned fragment, const struct manifest *manifest,
                               const uint8_t *data, size_t size_bytes) MUST; /* residual becomes zero; durable */
/* The grid of the round in flight: what its contributions and its manifest name. */
static inline struct digest member_grid(const struct member *m, unsigned fragment)
{
    return digest_of(m->state[fragment].codes, m->fragments->f[fragment].elements / DEV_BLOCK);
}
struct digest member_digest(const struct member *m, bool residual); /* over all fragments: the run's final word */

#endif
