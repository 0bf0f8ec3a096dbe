/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OWNERS_H
#define OWNERS_H
/* Whose text a document is: a patient, an account. NAME.owners next to NAME.bin and NAME.idx
 * (indexed.h) has the owner of each document:
 *
 *     8 bytes     "ATOWNERS"
 *     uint64 n    documents
 *     16 n bytes  of each document: the first 16 bytes of SHA-256 of the owner's name
 *
 * Two preparations agree on an owner without a list of names. The digest hides no name from those
 * who can guess it: the file stays with the text.
 */
#include <stdint.h>
#include "kernels/base/arena.h"

enum { OWNERS_ID_BYTES = 16 };
struct owner {
    uint8_t id[OWNERS_ID_BYTES];
};
struct owner owners_name(const char *name, size_t bytes);
int owners_compare(const void *a, const void *b); /* of struct owner, for qsort */

/* Checks NAME.owners in memory: *owners gets the ids of its documents. ERR_INPUT names `path`. */
enum err owners_parse(const uint8_t **owners, const char *path, const uint8_t *data,
                      size_t size_bytes, uint64_t documents) MUST;
struct owner owners_at(const uint8_t *owners, uint64_t document);
/* STEM.owners, durable. */
enum err owners_write(const char *stem, const struct owner *owners, uint64_t documents) MUST;

/* Owners as a whole go to one part: the k-th of `count` in the order of their ids to -1, held out,
 * or to a site. Spread evenly, and a function of the names alone. */
struct owners_deal {
    struct owner *owners; /* (count) sorted, each once */
    int64_t *parts;       /* (count) */
    uint64_t count, held;
};
/* `all`: sorted in place, duplicates are dropped. held_out: the share of the owners, at least one
 * if it is above 0. */
enum err owners_deal(struct owners_deal *d, struct owner *all, uint64_t count, double held_out,
                     uint32_t sites, struct arena *a) MUST;
int64_t owners_part(const struct owners_deal *d, const struct owner *owner);

#endif
