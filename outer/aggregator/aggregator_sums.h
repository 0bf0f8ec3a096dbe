/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGGREGATOR_SUMS_H
#define AGGREGATOR_SUMS_H
/* How contributions become the aggregate of their round: in the clear (aggregator_clear.c), or
 * masked, as secure aggregation has it (aggregator_masks.c). aggregator.c chooses one by
 * privacy.secure; the rest of the aggregator asks at the stages of an upload and of a commit, and
 * knows neither by name. Every member is set. Under the lock of the service, but for `sum`. */
#include "outer/aggregator/aggregator_state.h"

struct aggregate { /* of the round that is being closed */
    struct arena arena;
    uint8_t *made;       /* in memory: as long as the model, however many the sites are */
    struct file_map map; /* or in its file already: a gathered one is as long as all
                            contributions together */
    const uint8_t *data;
    size_t size_bytes;
};
struct aggregator_sums {
    enum err (*open)(void **kept, struct arena *perm); /* kept: a->part.sums */
    void (*close)(struct aggregator *a);
    /* A start: the core is made. Then a SEAL record of the round in flight; or, with a lost
     * journal, the seal that is found on disk. Then all is read. */
    enum err (*read)(struct aggregator *a, struct arena *perm);
    enum err (*restore)(struct aggregator *a, const struct journal_record *r);
    enum err (*again)(struct aggregator *a);
    enum err (*recovered)(struct aggregator *a);
    /* For a rewrite of the journal: the records of the fragment's round in flight, at most one.
     * Returns how many. */
    size_t (*records)(const struct aggregator *a, unsigned fragment, struct journal_record *keep);
    void (*hello)(struct aggregator *a, unsigned site, const struct wire_hello *m);
    /* What a poll of this site asks it for, and what goes with it. */
    void (*poll)(const struct aggregator *a, unsigned fragment, unsigned site,
                 struct wire_poll_answer *out);
    /* A step of secure aggregation by this site, for the round in flight. */
    void (*mask)(struct aggregator *a, unsigned site, const struct wire_mask *m,
                 struct wire_mask_answer *answer);
    /* An upload to the round in flight: its most bytes; the bytes of a masked one, of which nothing
     * else can be checked, 0: in the clear; why its header is refused, NULL: it is not. */
    uint64_t (*payload_max)(const struct aggregator *a, unsigned fragment);
    uint64_t (*masked_bytes)(const struct aggregator *a, unsigned fragment);
    const char *(*header)(const struct aggregator *a, const struct wire_contribution *m);
    /* What sites owe to a round in addition to contributions; *missing: which sites. NULL: nothing,
     * and *missing is left. */
    const char *(*missing)(const struct aggregator *a, unsigned fragment, struct set *missing);
    /* Of a sealed fragment: may the commit begin? */
    enum err (*ready)(struct aggregator *a, unsigned fragment, bool *ready);
    /* Without the lock. The contributions in site order. ERR_DIVERGED: the round cannot be applied.
     */
    enum err (*sum)(struct aggregator *a, unsigned fragment, const struct codec_payload *payloads,
                    unsigned count, struct aggregate *out);
    void (*over)(struct aggregator *a, unsigned fragment); /* committed: secrets are wiped */
    enum err (*committed)(struct aggregator *a, const struct manifest *m); /* and journalled */
    /* Changes of the roster: a site was added; the added site that rounds of the newest roster are
     * announced without, -1: none; a site that has not all that the next change needs, NULL: none.
     */
    enum err (*added)(struct aggregator *a);
    int (*apart)(const struct aggregator *a);
    const char *(*unpaired)(const struct aggregator *a);
};
extern const struct aggregator_sums aggregator_sums_clear;

#endif
