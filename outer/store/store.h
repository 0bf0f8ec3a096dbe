/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STORE_H
#define STORE_H
/* Records (kernels/base/record.h) as files of an environment, and the one record that says that a
 * directory has begun: written last at its first start. From then on a missing file is damage,
 * never a beginning (docs/protocol.md 2).
 */
#include "kernels/base/record.h"
#include "outer/store/env.h"

/* Durable and atomic. A section's digest is computed where it is zero. */
enum err store_write(struct env *w, const char *path, const struct record_form *f,
                     struct record_section *sections, size_t count) MUST;
/* Fields and sections, in memory of `a`; the sections' digests are the caller's to check
 * (record_intact, record_take). sections_max: bytes; a longer file is damaged, and is not read.
 * ERR_INPUT: missing; ERR_CORRUPT; ERR_MISMATCH: of another version. */
enum err store_read(struct env *w, const char *path, const struct record_form *f,
                    uint64_t sections_max, struct record *r, struct arena *a) MUST;
bool store_begun(struct env *w);
enum err store_begin(struct env *w) MUST;       /* nothing when it has begun */
enum err store_begin_again(struct env *w) MUST; /* the record is damaged */

#endif
