#ifndef TEXT_H
#define TEXT_H
/* Plain text -> llm.c token shards of the byte vocabulary (ids 0-255, uint16), cut into a held-out
 * part and one part per site. All bytes of the text are kept, once, in exactly one part. The text
 * is cut into blocks at blank lines (a block is many documents, so that a window seldom mixes
 * strangers); every k-th block is held out, spread over the whole text so that it is of one kind
 * with the training text, and the others are dealt to the sites in turn.
 *
 *     OUT/eval-0000.bin             held out: never in a training shard
 *     OUT/train-<site>-0000.bin     site 0, 1, ..; further numbers when a part is longer than one
 * shard
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "kernels/base/arena.h"

enum { TEXT_SITES_MAX = 1024 };

struct text_options {
    const char *out;       /* directory, made if missing */
    uint32_t sites;        /* 1 .. TEXT_SITES_MAX */
    double held_out;       /* share of the text, 0 .. 0.5 */
    uint64_t sequence;     /* no part may be shorter than one sequence and its target */
    uint64_t shard_tokens; /* longest shard, at most SHARD_TOKENS_MAX */
    bool replace; /* remove the shards that are in `out`; false: their presence is an error */
};
struct text_part {
    uint64_t tokens;
    uint32_t shards;
};
struct text_report {
    uint64_t text_bytes, blocks;
    struct text_part eval, *train; /* train: one per site */
};

/* ERR_INPUT: a text is missing, empty, compressed, too short for its parts; ERR_FULL before or
 * while writing. After an error no shard of this call is left. */
enum err text_prepare(const char *const *paths, size_t path_count, const struct text_options *o,
                      struct arena *a, struct text_report *report) MUST;

#endif
