/* SPDX-License-Identifier: Apache-2.0 */
#ifndef REPLAY_OWN_H
#define REPLAY_OWN_H
/* What the files of replay share: replay_read.c reads and compares what archives have, replay.c
 * makes rounds again, replay_bisect.c finds the first one that differs.
 */
#include "outer/organ/archive/replay.h"

enum { REPLAY_TEXT_MAX = 512 };

struct replay {
    struct outer_state *m;
    const struct replay_options *o;
    struct replay_result *r;
    unsigned fragment;
    bool residual_unknown; /* the aggregator's, of a compressed downlink */
    bool quiet;            /* nothing is told */
    struct manifest *now, *other;
};
struct replay_where { /* of a finding */
    enum replay_kind kind;
    const char *what, *site, *file;
    uint64_t round, last;
    const struct replay_place *place;
};
/* Iterates over the files of one name: of each directory the archive's file, then the one that the
 * replica itself keeps. Zeroed: over all directories. */
struct replay_file {
    size_t at, end; /* the next place to look at, and one after the last; end 0: all */
    char path[ARCHIVE_PATH_MAX];
    enum err e; /* of reading the file; err_message() says why */
    struct file_map map;
    struct arena arena;            /* for what is read of this file */
    struct outer_state_file state; /* replay_file_state */
};
#define REPLAY_ARCHIVED UINT64_MAX /* as kept_round: only archives have such a file */
struct replay_inputs {             /* of a round */
    struct file_map map[ROUND_SITES_MAX];
    struct codec_payload payload[ROUND_SITES_MAX];
    unsigned count, missing, damaged;
    char site[ARCHIVE_NAME_MAX], file[ARCHIVE_PATH_MAX]; /* the first damaged one */
    char absent[REPLAY_TEXT_MAX];                        /* names of those that are missing */
};

/* ---- replay_read.c ---- */
/* file NULL: none. */
void replay_found(struct replay *p, enum replay_kind kind, const char *what, uint64_t round,
                  const char *file, const char *format, ...) __attribute__((format(printf, 6, 7)));
void replay_found_at(struct replay *p, const struct replay_where *w, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
struct replay_place replay_place_of(const struct replay *p, enum leaves_array array, size_t first,
                                    size_t count);
struct replay_file replay_file_of(size_t source); /* of one directory alone */
/* The next file of a round by this name: mapped, read errors in f->e; kept_round is its number
 * where the replica keeps it. False: there is no more, and nothing is mapped. */
bool replay_file_next(const struct replay *p, struct replay_file *f, const char *name,
                      uint64_t round, uint64_t kept_round);
bool replay_file_find(const struct replay *p, struct replay_file *f, const char *name,
                      uint64_t round, uint64_t kept_round); /* the same, not mapped */
bool replay_file_is(const struct replay_file *f, const struct digest *d, uint64_t size_bytes);
/* The next file that is state `round`. Damaged files before it are told as findings. */
bool replay_file_state(struct replay *p, struct replay_file *f, uint64_t round);
void replay_file_close(struct replay_file *f);
uint64_t replay_rounds(const struct replay *p);
/* How many rounds a source has archived, and the number of its newest kept state. False: it has not
 * both. */
bool replay_rounds_of(const struct replay *p, size_t source, uint64_t *archived, uint64_t *kept);
/* The next file that is the manifest of the round. Damaged files before it are told as findings. */
bool replay_file_manifest(struct replay *p, struct replay_file *f, uint64_t round,
                          struct manifest *out);
/* What two manifests of one round do not share, in words. */
void replay_manifests_compare(const struct replay *p, const struct manifest *x,
                              const struct manifest *y, char out[REPLAY_TEXT_MAX],
                              const char **site);
/* The manifest of a round, of the directories that have it: one that follows the chain first. */
bool replay_manifest_take(struct replay *p, uint64_t round);
/* Every kept state of this number compared with the present one, which was recomputed. */
void replay_states_compare(struct replay *p);
/* The first kept state from `round` on; false: none up to `end`. */
bool replay_state_next(struct replay *p, uint64_t round, uint64_t end);
/* The newest kept state up to `round`, or the start of the run. False: there is none. */
bool replay_start(struct replay *p, uint64_t round);

/* ---- replay.c ---- */
/* The first value that two contributions of a site do not share, on the present grid. */
bool replay_payloads_differ(struct replay *p, enum codec_kind kind, const struct codec_payload *x,
                            const struct codec_payload *y, struct replay_place *place);
/* One state further. Any error: it stays, and what is wrong has been told. ERR_MEMORY and the like
 * end the replay. */
enum err replay_round(struct replay *p, uint64_t round, struct replay_inputs *in) MUST;
enum err replay_fragment(struct replay *p, struct replay_inputs *in, bool *whole) MUST;
/* What replay_run and replay_bisect work with. */
enum err replay_with(struct outer_state *m, const struct replay_options *o, struct replay_result *r,
                     enum err (*work)(struct replay *p, struct replay_inputs *in)) MUST;

#endif
