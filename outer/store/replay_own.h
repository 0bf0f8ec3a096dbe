#ifndef REPLAY_OWN_H
#define REPLAY_OWN_H
/* What the files of replay share: replay_read.c reads and compares what archives have, replay.c
 * makes rounds again, replay_bisect.c finds the first one that differs.
 */
#include "outer/store/replay.h"

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
struct replay_inputs { /* of a round */
    struct file_map map[ROUND_SITES_MAX];
    struct codec_payload payload[ROUND_SITES_MAX];
    unsigned count, missing, damaged;
    char site[ARCHIVE_NAME_MAX], file[ARCHIVE_PATH_MAX]; /* the first damaged one */
    char absent[REPLAY_TEXT_MAX];                        /* names of those that are missing */
};

/* ---- replay_read.c ---- */
void replay_found(struct replay *p, const struct replay_where *w, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
struct replay_place replay_place_of(const struct replay *p, enum leaves_array array, size_t first,
                                    size_t count);
/* False: it is not there. ERR_CORRUPT and the like: it is, and cannot be read. */
bool replay_open(const char *path, struct file_map *map, enum err *e);
/* Where the file of a round may lie in a directory: the archive, and what the replica keeps. kind
 * 0, 1; false: there is no such place. */
bool replay_path(const struct replay *p, size_t source, unsigned kind, uint64_t round,
                 uint64_t kept_round, const char *file, char out[ARCHIVE_PATH_MAX]);
uint64_t replay_rounds(const struct replay *p);
/* How many rounds a source has archived, and the number of its newest kept state. False: it has not
 * both. */
bool replay_rounds_of(const struct replay *p, size_t source, uint64_t *archived, uint64_t *kept);
/* *there false: no such file. An error: damaged, and found. */
enum err replay_manifest(struct replay *p, const char *path, uint64_t round, struct manifest *out,
                         bool *there) MUST;
/* What two manifests of one round do not share, in words. */
void replay_manifests_compare(const struct replay *p, const struct manifest *x,
                              const struct manifest *y, char out[REPLAY_TEXT_MAX],
                              const char **site);
/* The manifest of a round, of the directories that have it: one that follows the chain first. */
bool replay_manifest_take(struct replay *p, uint64_t round);
/* The state of a file. False: not there, or damaged, which is found; `map` is the caller's to
 * unmap. */
bool replay_state_open(struct replay *p, const char *path, uint64_t round, struct file_map *map,
                       struct outer_state_file *f, struct arena *a);
/* Every kept state of this number beside the present one, which was made again. */
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
