/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ARCHIVE_H
#define ARCHIVE_H
/* What a replica keeps of every committed round so that the round can be recomputed (run.archive,
 * outer/cmd/cmd_replay.c). The aggregator keeps all contributions that a round included, a site its
 * own. No part of the run: what cannot be written is a gap that the archive names, with a warning,
 * and never an error of the replica. Files, relative to the archive; F is the fragment, t a round:
 *
 *   HEAD              record: run, replica, configuration digest, former values of train.steps
 *   config.yaml       the settings, as atoll replay reads them
 *   F/t/NAME.payload  the bytes that site NAME sent
 *   F/t/aggregate     instead, where the contributions are masked: their sum
 *   F/t/leaves        record: digests of the pieces of state t + 1 (leaves.h)
 *   F/t/MANIFEST      record: the manifest, written last. A round without it is not archived
 *   F/t/state         record: state t, where rounds before it are missing, after a rollback, of a
 *                     start that is no function of run.seed, and every run.archive_states rounds
 *   gaps              one line a gap: fragment, first round, last round, why
 *
 * Called by the thread that has just committed the round, between the commit point and the time
 * when the contribution's other copy goes. A contribution that is needed no more moves here; it is
 * not copied. A kill in between loses nothing: archive_begin asks for what is missing.
 */
#include "outer/store/leaves.h"

enum { ARCHIVE_NAME_MAX = 64, ARCHIVE_PATH_MAX = 512 };
#define ARCHIVE_OFF "off"
#define ARCHIVE_ON  "on"

struct archive_head { /* of HEAD */
    const char *run, *replica;
    bool aggregator;
    uint32_t index, aggregators; /* of an aggregator: fragments f with f % aggregators == index */
    bool masked;
    struct digest config;
    uint32_t end_count;
    uint64_t ends[SCHEDULE_ENDS_MAX];
};
struct archive_options {
    struct archive_head head; /* texts are borrowed; ends are the replica's schedule's */
    const char *settings;     /* for config.yaml */
    bool imported;            /* the start is no function of run.seed */
    uint64_t states_every;    /* run.archive_states; 0: none */
    enum err (*free_bytes)(const char *path, uint64_t *bytes); /* NULL: not known */
};
/* Of a round that is kept: where one contribution is. */
struct archive_payload {
    const char *site;
    const char *path;    /* in the owner's environment; or NULL */
    bool moves;          /* it is needed there no more */
    const uint8_t *data; /* or here */
    size_t size_bytes;
};
struct archive; /* opaque */

/* dir: relative to w's root, or "" */
enum err archive_open(struct archive **a, struct env *w, const char *dir,
                      const struct archive_options *o, struct arena *perm) MUST;
/* With the state loaded, before the first round. Finds where the archive ends. again: a round that
 * was committed and not archived; calls archive_round with what is still there of it. */
struct archive_again {
    void (*round)(void *self, const struct manifest *manifest);
    void *self;
};
void archive_begin(struct archive *a, struct env *owner, struct outer_state *m,
                   const struct archive_again *again);
/* The replica has committed this round; its state is m->state[fragment], or of a later round.
 * aggregate: of a masked round or NULL. */
void archive_round(struct archive *a, const struct manifest *manifest,
                   const struct archive_payload *payloads, size_t count,
                   const struct file_part *aggregate);
/* The same of a masked round: its contributions say nothing without the masks, and in the clear
 * none leaves its site; so the sum is kept. */
void archive_masked(struct archive *a, const struct manifest *manifest);
/* Bytes that the archive has taken since it was opened. */
uint64_t archive_bytes(const struct archive *a);

/* ---- for a reader ---- */
void archive_path(char out[ARCHIVE_PATH_MAX], const char *dir, unsigned fragment, uint64_t round,
                  const char *file);
void archive_payload_name(char out[ARCHIVE_NAME_MAX + 16], const char *site);
enum err archive_head_read(struct archive_head *h, const char *dir, struct arena *a) MUST;
/* ERR_CORRUPT: damaged. */
enum err archive_manifest_read(struct manifest *m, const char *path, const void *data,
                               size_t size_bytes, struct arena *a) MUST;
enum err archive_leaves_read(struct digest *digests, size_t count, const char *path,
                             const void *data, size_t size_bytes, struct arena *a) MUST;

/* ---- prediction ---- */
struct archive_size {
    uint64_t rounds;                 /* of all fragments */
    uint64_t round_bytes, run_bytes; /* the mean of a round; all rounds. At most: values that do not
                                        change are not sent */
};
/* o: of the replica. sites: of the run. */
struct archive_size archive_size(const struct outer_state_options *o, unsigned sites,
                                 bool aggregator, uint64_t states_every);

#endif
