/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OUTER_STATE_OWN_H
#define OUTER_STATE_OWN_H
/* What the files of the outer state share. Which file writes what of struct outer_state:
 *
 *   outer_state.c         all members at open; schedule, amendments; state[] at round 0; digest and
 *                         leaf of the state that it is given
 *   outer_state_files.c   the arrays of the state that it is given to read into; pruned
 *   outer_state_step.c    next, mean, staging; state[] from next at a commit, and its squares
 *   outer_state_repair.c  residuals_lost; residual of next; state[] and next by calls of the two
 *                         files above
 *
 * Outside: downlink.c writes residual and discarded residual of next, and uses next.theta and mean
 * before the step. A site writes residual and discarded residual of next before a commit, and uses
 * mean between rounds.
 */
#include "outer/store/outer_state.h"

enum { SHARED_MAX = OUTER_STATE_SHARED_MAX, OWN_MAX = 2, PARTS_MAX = SHARED_MAX + OWN_MAX };
enum { PATH_BYTES = 96 };
#define SQUARES_UNKNOWN (-1.0)

/* ---- outer_state.c ---- */
size_t outer_state_elements(const struct outer_state *m, unsigned fragment);
/* The outer optimizer of the fragment as configured. Moments are averaged, with any optimizer of
 * the parameters (DES-LOC). */
const struct outer_opt *outer_state_configured(const struct outer_state_options *o,
                                               unsigned fragment);
enum err outer_state_arrays_alloc(struct outer_state_fragment *s,
                                  const struct outer_state_options *o,
                                  const struct outer_opt *outer, size_t elements,
                                  struct arena *perm) MUST;
/* `next` takes the shape of a fragment's state: parts that the fragment does not have are NULL. */
struct outer_state_fragment *outer_state_next(struct outer_state *m, unsigned fragment);
/* theta, slabs, codes: what all replicas share. Returns how many. */
size_t outer_state_shared_parts(const struct outer_state_fragment *s, size_t elements,
                                struct file_part out[SHARED_MAX]);
/* residual, discarded residual: a replica's own. Returns how many. */
size_t outer_state_own_parts(const struct outer_state_fragment *s, size_t elements,
                             struct file_part out[OWN_MAX]);
size_t outer_state_parts_bytes(const struct file_part *parts, size_t n);
/* bytes: all parts, one after the other; NULL: zeros. */
void outer_state_parts_fill(const struct file_part *to, size_t n, const uint8_t *bytes);

/* digest and leaf of s, from its arrays. */
void outer_state_sum(const struct outer_state *m, unsigned fragment,
                     struct outer_state_fragment *s);
/* Do the arrays of s still have its digest? */
bool outer_state_unchanged(const struct outer_state *m, unsigned fragment,
                           const struct outer_state_fragment *s);
struct state_cut outer_state_cut(const struct outer_state *m, unsigned fragment);

/* ---- outer_state_files.c ---- */
struct outer_state_current { /* frag/F/CURRENT */
    uint32_t fragment;
    uint64_t round;
    struct digest manifest;
};
void outer_state_path(char out[PATH_BYTES], unsigned fragment, uint64_t round, const char *file);
/* ERR_CORRUPT. Names the whole path; what to do is the runbook's, "Damaged file". */
enum err outer_state_damaged(const struct outer_state *m, const char *path);
enum err outer_state_write(struct outer_state *m, unsigned fragment,
                           const struct outer_state_fragment *s) MUST;
/* Reads state `round` into s, whose pointers say which parts there are. ERR_INPUT: not kept. */
enum err outer_state_read(struct outer_state *m, unsigned fragment, uint64_t round,
                          struct outer_state_fragment *s) MUST;
/* Residual and discarded residual of a file whose shared parts are damaged, into `next`. */
enum err outer_state_own_read(struct outer_state *m, unsigned fragment, uint64_t round) MUST;
enum err outer_state_manifest_write(struct outer_state *m, const struct manifest *manifest) MUST;
enum err outer_state_current_write(struct outer_state *m, unsigned fragment,
                                   const struct outer_state_fragment *s) MUST;
enum err outer_state_current_read(struct outer_state *m, unsigned fragment,
                                  struct outer_state_current *out) MUST;
/* CURRENT is lost. What it named is the newest state, or the one before it if a crash kept the
 * newest from being committed: nothing was promised of that one, so the run may continue from
 * either. Never an older one: where the newest does not verify, a person decides. */
enum err outer_state_current_find(struct outer_state *m, unsigned fragment,
                                  struct outer_state_current *out) MUST;
/* The newest round before `before` that has this file. ERR_INPUT: none. */
enum err outer_state_newest(struct outer_state *m, unsigned fragment, const char *file,
                            uint64_t before, uint64_t *round) MUST;
/* A file of a round; "": its directory. */
enum err outer_state_drop(struct outer_state *m, unsigned fragment, uint64_t round,
                          const char *file) MUST;
/* Directories of rounds older than all that is kept go whole; in younger ones only the big state
 * may go. Two states always stay: the present one, and the one it came from. */
enum err outer_state_prune_before(struct outer_state *m, unsigned fragment, uint64_t now,
                                  uint64_t oldest_state) MUST;

/* ---- outer_state_step.c ---- */
/* outer_state_replay from state s, which need not be the current one. */
enum err outer_state_replay_from(struct outer_state *m, const struct outer_state_fragment *s,
                                 const struct manifest *manifest,
                                 const struct codec_payload *bytes) MUST;
/* `next` is the state after this manifest's round: it gets the manifest's digest. */
void outer_state_next_name(struct outer_state *m, const struct manifest *manifest);
/* CURRENT names `next`: the commit point. Its arrays become those of the current state. */
enum err outer_state_next_pass(struct outer_state *m, unsigned fragment) MUST;

#endif
