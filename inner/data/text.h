#ifndef TEXT_H
#define TEXT_H
/* Text or token ids -> llm.c token shards (shard.h), cut into a held-out part and one part per
 * site. Text has the byte vocabulary (ids 0-255). All tokens are kept, once, in exactly one part.
 * Text is cut into blocks at blank lines (a block is many documents, so that a window seldom mixes
 * unrelated ones), ids into blocks of equal length; every k-th block is held out, spread over the
 * whole text so that it is of one kind with the training text, and the others are dealt to the
 * sites in turn.
 *
 *     OUT/eval-0000.bin             held out: never in a training shard
 *     OUT/train-<site>-0000.bin     site 0, 1, ..; further numbers when a part is longer than one
 * shard
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "inner/data/source.h"

enum { TEXT_SITES_MAX = 1024 };

struct text_options {
    const char *out;       /* directory, made if missing */
    uint32_t sites;        /* 1 .. TEXT_SITES_MAX */
    double held_out;       /* share of the text, 0 .. 0.5 */
    uint64_t sequence;     /* no part may be shorter than one sequence and its target */
    uint64_t shard_tokens; /* longest shard, at most SHARD_TOKENS_MAX */
    struct source_options source;
    bool replace; /* remove the shards that are in `out`; false: their presence is an error */
};
struct text_part {
    uint64_t tokens;
    uint32_t shards;
};
struct text_report {
    uint64_t tokens, blocks;
    uint32_t largest_id;
    struct text_part eval, *train; /* train: one per site */
};

/* ERR_INPUT: a text is missing, empty, compressed, too short for its parts; ERR_FULL before or
 * while writing. After an error no shard of this call is left. */
enum err text_prepare(const char *const *paths, size_t path_count, const struct text_options *o,
                      struct arena *a, struct text_report *report) MUST;

#endif
