/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORGAN_H
#define ORGAN_H
/* What a round carries besides numbers. An organ is a folder below outer/organ, with an end at the
 * site and an end at the aggregator. The site and the aggregator call all organs of their list, in
 * the order of the list, at the places that the members describe; they know none by name. The
 * program makes the lists and gives them their order (outer/library/organs.c). No organ calls
 * another one: what two of them need belongs to the site, the aggregator or the store.
 *
 * Every member is set. An organ that has nothing to do at a place has an empty function there.
 * `self` is the organ's own state; it is opened before the site or the aggregator, and closed
 * after it.
 */
#include <stdbool.h>
#include <stddef.h>
#include "kernels/base/err.h"

struct aggregator;
struct journal_record;
struct manifest;
struct site;
struct site_slot;
struct wire_answer;
struct wire_hello_answer;
struct wire_operate;

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
    /* An aggregator has answered a hello, and the site is bound to it. An error ends the site. */
    enum err (*heard)(void *self, struct site *s, unsigned peer, const struct wire_hello_answer *a);
    /* S6: the next manifest of the fragment's chain, from the aggregator, before anything of it
     * counts. An error refuses it. */
    enum err (*check)(void *self, struct site_slot *l, const struct manifest *m);
    /* After the commit point, before the contribution's files go. */
    enum err (*adopted)(void *self, struct site_slot *l, const struct organ_adopted *x);
};
struct organ_at_site {
    const struct organ_site *organ;
    void *self;
};

/* Under the aggregator's lock, but for `committed`. */
struct organ_aggregator {
    const char *name;
    unsigned kinds; /* of journal records that are the organ's: bits 1 << enum journal_kind */
    unsigned acts;  /* of an operator that the organ answers: bits 1 << enum wire_act */
    /* `committed` reads or moves the contributions of the round, so they stay until it returns. */
    bool reads_spool;
    /* At the start: the states are loaded, the journal is not read yet. Then each record of
     * `kinds`, in order. Then the journal is read. Then, when the commits of the journal and the
     * states agree, and the spool of former rounds is still there. */
    enum err (*open)(void *self, struct aggregator *a);
    enum err (*restore)(void *self, const struct journal_record *r);
    enum err (*recovered)(void *self);
    void (*begin)(void *self, struct aggregator *a);
    /* When the journal is written again: the organ's records, at most as many as it counted with
     * `keep` NULL. Returns how many. */
    size_t (*records)(void *self, struct journal_record *keep);
    /* A site's hello has bound it: what it is told besides. */
    void (*bound)(void *self, unsigned site, struct wire_hello_answer *answer);
    /* In each work(), no commit being in flight or one being under way. */
    enum err (*work)(void *self);
    /* The round in flight of the fragment is sealed, and its manifest is not made yet. May be
     * called again for the same round. */
    enum err (*sealed)(void *self, unsigned fragment);
    /* The organ's section of a manifest that is being made. */
    void (*manifest)(void *self, struct manifest *m);
    /* An act of `acts`; the caller may. */
    enum err (*operate)(void *self, const char *peer, const struct wire_operate *m,
                        struct wire_answer *answer);
    /* After the commit point of a round, without the aggregator's lock. moves: nothing else needs
     * the round's contributions any more. */
    void (*committed)(void *self, struct aggregator *a, const struct manifest *m, bool moves);
};
struct organ_at_aggregator {
    const struct organ_aggregator *organ;
    void *self;
};

/* For places where an organ has nothing to do. */
void organ_site_begin_nothing(void *self, struct site_slot *l);
enum err organ_site_heard_nothing(void *self, struct site *s, unsigned peer,
                                  const struct wire_hello_answer *a);
enum err organ_site_check_nothing(void *self, struct site_slot *l, const struct manifest *m);
enum err organ_open_nothing(void *self, struct aggregator *a);
enum err organ_restore_nothing(void *self, const struct journal_record *r);
enum err organ_recovered_nothing(void *self);
void organ_begin_nothing(void *self, struct aggregator *a);
size_t organ_records_nothing(void *self, struct journal_record *keep);
void organ_bound_nothing(void *self, unsigned site, struct wire_hello_answer *answer);
enum err organ_work_nothing(void *self);
enum err organ_sealed_nothing(void *self, unsigned fragment);
void organ_manifest_nothing(void *self, struct manifest *m);
enum err organ_operate_nothing(void *self, const char *peer, const struct wire_operate *m,
                               struct wire_answer *answer);
void organ_committed_nothing(void *self, struct aggregator *a, const struct manifest *m,
                             bool moves);

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
