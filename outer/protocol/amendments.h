/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AMENDMENTS_H
#define AMENDMENTS_H
/* Settings that an operator, or the aggregator itself, has changed in mid-run (docs/protocol.md
 * 3.17). The list only grows; each entry has the round of fragment 0 from which on it is in force,
 * and no entry is of an earlier round than the one before it. So the settings of a round follow
 * from the configuration and a list, and later rounds do not change them: outer/config/amend.h.
 * Each manifest carries the whole list, pending amendments too. Pure.
 */
#include "kernels/base/bytes.h"
#include "kernels/base/digest.h"

enum {
    AMENDMENTS_MAX = 64,
    AMENDMENTS_FEW_LEFT = 8, /* an operator is warned */
    AMENDMENT_TEXT_MAX = 224 /* with NUL */
};
struct amendment {
    char text[AMENDMENT_TEXT_MAX]; /* "outer.every=200" */
    uint64_t round;                /* of fragment 0: the first one under it */
    struct digest by;              /* SHA-256 of the author's URI: an operator, the aggregator */
};
struct amendments {
    uint32_t count;
    struct amendment list[AMENDMENTS_MAX];
};
enum { AMENDMENTS_BYTES_MAX = 4 + AMENDMENTS_MAX * (2 + AMENDMENT_TEXT_MAX + 8 + 32) };

/* "section.key=value", printable, both parts there; a known author; rounds in order. */
bool amendments_good(const struct amendments *a);
/* May this text be one's? */
bool amendments_text(const char *text);
/* One more, which amendments_good takes and for which there is room. */
void amendments_add(struct amendments *a, const struct amendment *one);
/* Does the longer list of the two begin with the shorter one? */
bool amendments_agree(const struct amendments *a, const struct amendments *b);
/* How many entries, the first ones, are in force for this round of fragment 0. */
uint32_t amendments_in_force(const struct amendments *a, uint64_t round);
/* Canonical bytes. */
void amendments_put(struct bytes_writer *w, const struct amendments *a);
void amendments_get(struct bytes_reader *r, struct amendments *a); /* r->bad: not canonical */

#endif
