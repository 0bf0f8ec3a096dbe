/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOADER_TEXT_H
#define LOADER_TEXT_H
/* What a loader's text is, short enough for a checkpoint: the order of the examples follows from
 * the files, so other files at a restart are another order. Files that came, went, were renamed,
 * or that have other sizes, first ids, labels or owners are noticed; ids in the middle that differ
 * are not. Part `text` of a checkpoint, 80 bytes.
 */
#include "inner/data/loader.h"

struct loader_text {
    uint64_t files, tokens;
    struct digest list;   /* of the items of data.train, as they are written */
    struct digest shards; /* of each file's name without its directory, size, first ids, labels and
                             owners */
};

struct loader_text loader_text(const struct loader *l);

enum loader_text_change { LOADER_TEXT_SAME, LOADER_TEXT_LIST, LOADER_TEXT_FILES };
/* LIST: other files by another list; FILES: by the same one. files 0: not known, which is the same
 * as anything. */
enum loader_text_change loader_text_compare(const struct loader_text *was,
                                            const struct loader_text *is);

#endif
