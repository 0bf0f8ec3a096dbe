/* SPDX-License-Identifier: Apache-2.0 */
#ifndef REVOCATION_H
#define REVOCATION_H
/* The list of what an aggregator refuses: a text, one entry per line, # starts a comment.
 *   atoll://run/role/name   the name, with any certificate
 *   sha256:HEX              one certificate, by the SHA-256 of its DER bytes (64 digits)
 *   serial:HEX              all certificates of this serial number
 * `atoll cert revoke` adds entries. A running aggregator reads the list again when it changes. The
 * list fails closed: while it cannot be read, every caller is refused, also when it is missing
 * after that; a list that is missing after it was read stays in force. A copy in the aggregator's
 * own directory keeps it in force across restarts.
 */
#include "outer/wire/wire.h"

enum { REVOCATION_BYTES_MAX = 256 << 10, REVOCATION_ENTRY_MAX = 256 };

struct revocation; /* opaque */

/* path: the list, which may be missing. copy: file that keeps the last list that was read, written
 * at each change; NULL: none. ERR_MEMORY. */
enum err revocation_open(struct revocation **r, const char *path, const char *copy) MUST;
void revocation_close(struct revocation *r); /* accepts NULL */
/* Why this caller is refused, in a few words (a constant); NULL: it is not. Any thread; reads the
 * list when it has changed. c: zeros when the caller showed no certificate. */
const char *revocation_why(struct revocation *r, const char *uri, const struct wire_certificate *c);

/* Writes an entry in its one form (digits in lower case, without colons); out may be text. False:
 * this is none. */
bool revocation_entry(char out[REVOCATION_ENTRY_MAX], const char *text);
/* directory/revoked.txt. entry: as revocation_entry writes it. note: the comment after the entry;
 * NULL: nothing. */
enum err revocation_listed(const char *directory, const char *entry, bool *listed) MUST;
enum err revocation_add(const char *directory, const char *entry, const char *note,
                        bool *was_there) MUST;

#endif
