/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IDENTITY_H
#define IDENTITY_H
/* The identity of a run: the canonical text of all pinned settings, the digest of the tensor table
 * and the data format, one "section.key=value" per line. Two processes are replicas of one run when
 * their identities are equal. Every message carries the digest without train.steps. Hello carries
 * the text, so that a refusal names the differing keys. `atoll serve` and `atoll train` compute it
 * with identity_text() only.
 */
#include "inner/config/keys.h"
#include "outer/config/keys.h"

/* table: table_digest(). */
enum err identity_text(struct settings *s, struct outer_settings *o, const struct digest *table,
                       struct arena *a, char **text) MUST;
/* Digest of an identity text without its line of train.steps, which may grow between two starts;
 * hello compares train.steps separately. */
struct digest identity_digest(const char *text);
/* train.steps of an identity text; 0: no such line. */
int64_t identity_steps(const char *text);
/* Index of name in outer.sites; -1: not listed. */
int identity_site(const struct outer_settings *o, const char *name);

#endif
