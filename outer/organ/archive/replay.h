/* SPDX-License-Identifier: Apache-2.0 */
#ifndef REPLAY_H
#define REPLAY_H
/* The committed rounds of a run, recomputed in memory from archives (archive.h) of any subset of
 * its replicas: decoded, merged, outer step, each digest compared with the manifest's. Reads only,
 * also while the run continues. What differs, is damaged or is missing is told with its place; then
 * the fragment continues from the next state that is kept. Whose signature a
 * manifest has to carry the caller says, who knows keys.
 */
#include "outer/organ/archive/archive.h"

struct replay_source {   /* a directory */
    const char *path;    /* as the caller has named it */
    const char *archive; /* the archive; NULL: there is none */
    const char *frag;    /* states and manifests that the replica itself keeps; NULL: none */
    struct archive_head head;
};
enum replay_kind {
    REPLAY_DAMAGED, /* a file is not what its own digest, or the manifest, says */
    REPLAY_DIFFERS, /* two records, or a record and what was recomputed */
    REPLAY_MISSING  /* so that rounds cannot be recomputed */
};
struct replay_place { /* in a state or contribution */
    bool known;
    const char *array; /* theta, codes, or the name of a slab */
    char tensor[TABLE_NAME_MAX];
    size_t first, last; /* values of the tensor; last: one after */
};
struct replay_finding { /* texts are borrowed during the call */
    enum replay_kind kind;
    const char *what; /* contribution, manifest, state, aggregate, rounds */
    unsigned fragment;
    uint64_t round, last;           /* rounds: first and last one */
    const char *site, *file, *text; /* "": none */
    struct replay_place place;
};
enum replay_signature {
    REPLAY_UNCHECKED,   /* no key of the aggregator of this fragment is known */
    REPLAY_KEY_UNKNOWN, /* by none of the known keys; which key it had in this term is not known */
    REPLAY_SIGNED,
    REPLAY_UNSIGNED /* not by the key that the aggregator had in this term */
};
struct replay_options {
    const struct replay_source *sources;
    size_t count;
    const char *const *sites; /* outer.sites */
    const struct table *table;
    bool placed; /* the replica is at the start of the run, made of run.seed; else state 0 is a
                    file of the archives */
    uint64_t from, to; /* rounds of each fragment, to: one after */
    enum replay_signature (*signature)(void *self, const struct manifest *m); /* NULL: unchecked */
    void (*found)(void *self, const struct replay_finding *f);
    void *self;
};
struct replay_result {
    uint64_t rounds;       /* on record in from..to, all fragments */
    uint64_t made;         /* of them: recomputed from the contributions, same digests */
    uint64_t by_aggregate; /* by the kept aggregate: masked contributions, or some are missing */
    uint64_t signatures;   /* of them: the aggregator's signature was checked and holds */
    uint64_t keys_unknown; /* of them: it was not checked, some keys are known, and not this one */
    uint64_t states;       /* kept states that were compared */
    uint64_t looks;        /* bisect: manifests read */
    uint64_t bytes;        /* of contributions and aggregates read */
    unsigned damaged, differs, missing;
    bool whole; /* to the newest round of all fragments: `outer` is the run's */
    struct digest outer;
};

/* m: opened without an environment, as the aggregator's, at the start of the run
 * (outer_state_place). */
enum err replay_run(struct outer_state *m, const struct replay_options *o,
                    struct replay_result *r) MUST;

/* The first round of each fragment in which two directories differ, by binary search over the state
 * digests of their manifests; then what differs in it: a site's contribution, with the first value,
 * or the state alone. One directory: the first kept state that is not the manifest's, and the
 * rounds since the kept state before it, recomputed; no round where all are. */
enum err replay_bisect(struct outer_state *m, const struct replay_options *o,
                       struct replay_result *r) MUST;

#endif
