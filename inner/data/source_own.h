/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SOURCE_OWN_H
#define SOURCE_OWN_H
/* What the files of `source` share. */
#include "inner/data/source.h"

/* The map is open. */
enum err source_text_open(struct source *s, const struct source_options *o) MUST;
enum err source_ids_open(struct source *s, const char *kind) MUST;

#endif
