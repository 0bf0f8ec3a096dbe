#ifndef ORGAN_H
#define ORGAN_H
/* What a round carries besides numbers. An organ is a folder below outer/organ, with an end at the
 * site and an end at the aggregator. The site and the aggregator call all organs of their list, in
 * the order of the list, at the places that the members describe; they know none by name. The
 * program makes the lists (outer/run/organs.c), in the order that the lists of that file have. No
 * organ calls another one: what two of them need belongs to the site, the aggregator or the store.
 *
 * Every member is set. An organ that has nothing to do at a place has an empty function there.
 * `self` is the organ's own state; it is opened before the site or the aggregator, and closed
 * after it.
 */
#include <stdbool.h>

struct aggregator;
struct manifest;
struct site_slot;

struct organ_adopted { /* a manifest that a site has adopted */
    const struct manifest *manifest;
    bool snapshot; /* its state came as bytes; else the round was committed here */
    bool sent;     /* this site's contribution to the round lies in the slot */
};
/* By the thread that carries out the slot's round, with the site's mutex locked. */
struct organ_site {
    const char *name;
    /* At the start, once per process: the states are loaded, the aggregators have answered. */
    void (*begin)(void *self, struct site_slot *l);
    /* After the commit point, before the contribution's files go. */
    void (*adopted)(void *self, struct site_slot *l, const struct organ_adopted *x);
};
struct organ_at_site {
    const struct organ_site *organ;
    void *self;
};

struct organ_aggregator {
    const char *name;
    /* `committed` reads or moves the contributions of the round, so they stay until it returns. */
    bool reads_spool;
    /* At the start: journal and states are read, the spool of former rounds is still there. */
    void (*begin)(void *self, struct aggregator *a);
    /* After the commit point of a round, without the aggregator's lock. moves: nothing else needs
     * the round's contributions any more. */
    void (*committed)(void *self, struct aggregator *a, const struct manifest *m, bool moves);
};
struct organ_at_aggregator {
    const struct organ_aggregator *organ;
    void *self;
};

enum { ORGANS_MAX = 8 };
struct organs_at_site {
    unsigned count;
    struct organ_at_site at[ORGANS_MAX];
};
struct organs_at_aggregator {
    unsigned count;
    struct organ_at_aggregator at[ORGANS_MAX];
};

#endif
