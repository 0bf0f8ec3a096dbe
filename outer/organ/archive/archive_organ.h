/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ARCHIVE_ORGAN_H
#define ARCHIVE_ORGAN_H
/* The archive (outer/organ/archive/archive.h) as an organ: every committed round goes into it,
 * before the round's contributions are removed. The caller owns the archive. */
#include "outer/organ/organ.h"
#include "outer/organ/archive/archive.h"

/* A site archives manifests and its own contributions. */
struct organ_at_site archive_at_site(struct archive *archive);
/* An aggregator archives manifests and all included contributions, from the spool. */
struct organ_at_aggregator archive_at_aggregator(struct archive *archive);

#endif
