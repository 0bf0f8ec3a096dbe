/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MANIFEST_H
#define MANIFEST_H
/* The record that commits a round. The body is canonical bytes, digested and chained by `parent`;
 * in strict mode it is a pure function of the contributions, so a round committed again has the
 * same digest. The envelope (term, instance, time, later the signature) is sent with it, outside
 * the digest. At most MANIFEST_BYTES_MAX: MANIFEST_ENTRY_BYTES for each site, the names of the
 * sites that an operator has added, the amendments, and less than 2 KiB.
 *
 * The entries are the sites of the roster of this round, and no others, ascending by index. From
 * the second version of the roster on each manifest says what made the version and which names
 * the added sites have (docs/protocol.md 3.6), so that one manifest tells the whole roster.
 *
 * A manifest that includes no site aborts its round (docs/protocol.md 3.10): state t + 1 equals
 * state t, there is no aggregate, and every site adds its contribution to its residual again.
 */
#include "kernels/base/bytes.h"
#include "outer/protocol/amendments.h"
#include "outer/protocol/round.h"

enum {
    MANIFEST_NAME_MAX = 64,
    MANIFEST_ENTRY_BYTES = 87, /* of one site */
    MANIFEST_ADDED_MAX = 256,  /* sites that the run did not begin with */
    MANIFEST_BYTES_MAX = 2048 + MANIFEST_ENTRY_BYTES * ROUND_SITES_MAX +
                         (2 + MANIFEST_NAME_MAX) * MANIFEST_ADDED_MAX + AMENDMENTS_BYTES_MAX
};

enum manifest_act { MANIFEST_ADD = 1, MANIFEST_REMOVE = 2 }; /* in the body: never renumber */
struct manifest_change { /* of the roster, by one site: it made the version */
    uint8_t act;         /* enum manifest_act; 0: none, version 1 */
    uint32_t site;
    struct digest by; /* SHA-256 of the operator's URI */
};

struct manifest_track {   /* of a site's L2 norms, this round's among them: shares.h */
    float mean, variance; /* moving */
    uint32_t rounds;      /* that are in them; 0: none, and the others are 0 */
};
struct manifest_entry {
    uint32_t site;
    bool included;
    uint8_t reason;         /* left out: ROUND_LATE, ROUND_ABORTED; absent: ROUND_NONE, or
                               ROUND_EXCLUDED in quarantine */
    struct digest payload;  /* zero when absent */
    uint64_t payload_bytes; /* 0 when absent */
    float weight;
    float norm;             /* bounds_norm of its values; 0 when absent */
    uint64_t data_cursor;   /* tokens of this site so far */
    uint8_t residual_ratio; /* codec_residual_ratio of its contribution; 0 when absent */
    /* Steps of its privacy budget by its last contribution that a manifest names; 0: it has none.
     * When it is absent, those of the manifest before. */
    uint64_t charged;
    /* Of its values in the sum, where the manifest is `scaled`. Not included: 1; 0 where the round
     * was aborted and the contribution is not given back (shares_edit). */
    float factor;
    struct manifest_track track; /* where the manifest `tracks` */
};
struct manifest {
    char run[MANIFEST_NAME_MAX];
    struct digest config;
    uint32_t roster_version;
    uint32_t fragment;
    uint64_t round;       /* state round -> round + 1 */
    struct digest parent; /* previous manifest's body digest; zero in round 0 */
    struct digest state_before, state_after;
    uint32_t codec;     /* enum codec_kind */
    struct digest grid; /* of the exponents used */
    struct digest aggregate;
    uint64_t aggregate_bytes;
    uint8_t residual_ratio; /* codec_residual_ratio of the aggregator's residual (downlink.h) */
    uint32_t site_count;
    bool scaled; /* factors are in force, and one at least is not 1 (outer.clip, outer.merge); else
                    every contribution counts as it was sent */
    struct digest
        ordered_by;   /* aborted by an operator's act: SHA-256 of the operator's URI; else zero */
    bool rolled_back; /* and state_after is that of state rolled_to. The aggregate is that state:
                         the bytes of a snapshot */
    uint64_t rolled_to;
    bool tracks;                   /* outer.merge edit: it has moving values of the norms */
    struct manifest_change change; /* roster_version > 1 */
    uint32_t initial, added; /* the same: sites that the run began with (outer.sites), and sites
                                that came later, whose index is initial + k */
    /* envelope */
    uint64_t term, instance, unix_ms;
    uint8_t signature[64]; /* place of the aggregator's signature; zero until identities sign */
    /* Made so far, pending ones too. [site_count], [added]; the last members, so that clearing the
     * others leaves them out. */
    struct amendments amendments;
    struct manifest_entry sites[ROUND_SITES_MAX];
    char names[MANIFEST_ADDED_MAX][MANIFEST_NAME_MAX];
};

/* All but the sites and the amendments, of which there are none then. */
void manifest_clear(struct manifest *m);
size_t manifest_encode(const struct manifest *m,
                       uint8_t out[MANIFEST_BYTES_MAX]); /* bytes written */
bool manifest_decode(struct manifest *m, const uint8_t *data,
                     size_t size_bytes);                 /* false: malformed or not canonical */
struct digest manifest_digest(const struct manifest *m); /* of the body */
/* Of a site; NULL: it is not in the roster of the round. */
const struct manifest_entry *manifest_site(const struct manifest *m, uint32_t site);
/* Its name; first: outer.sites. Good as long as the manifest. */
const char *manifest_name(const struct manifest *m, const char *const *first, uint32_t site);
float manifest_weight(const struct manifest *m); /* sum over included, site order, f32 */
/* Of the sites included, in site order. */
void manifest_weights(const struct manifest *m, float weights[ROUND_SITES_MAX]);
/* The same of their factors; false: all are 1. */
bool manifest_factors(const struct manifest *m, float factors[ROUND_SITES_MAX]);
unsigned manifest_included(const struct manifest *m);
bool manifest_aborted(const struct manifest *m); /* no site is included */
bool manifest_empty(const struct manifest *m);   /* nor rolled back: there is no aggregate */
/* The largest of the included sites' and the aggregator's. */
uint8_t manifest_residual_ratio(const struct manifest *m);

#endif
