#ifndef BATCH_H
#define BATCH_H
/* What one forward pass reads: sequences packed one behind the other, no padding anywhere. Host
 * memory, filled by an objective (or by a test), owned by the giver of the arena. One thread at a
 * time.
 */
#include <stddef.h>
#include <stdint.h>
#include "kernels/base/arena.h"

struct batch {
    int32_t *tokens;    /* (tokens_count) input ids, 0 .. vocab-1 */
    int32_t *targets;   /* (tokens_count) the id that follows; negative: no loss at this position */
    int32_t *positions; /* (tokens_count) 0, 1, .. within each sequence */
    int32_t *cu_seqlens; /* (sequences + 1) 0 .. tokens_count: sequence i is [cu_seqlens[i],
                            cu_seqlens[i+1]) */
    size_t tokens_count, sequences;
    size_t tokens_max, sequences_max; /* what was allocated */
};

/* Allocates for at most that many tokens and sequences; empty until filled. */
enum err batch_open(struct batch *b, struct arena *perm, size_t tokens_max,
                    size_t sequences_max) MUST;

void batch_clear(struct batch *b);
/* One more sequence of `length` tokens, with its positions; tokens and targets are the caller's to
 * fill, from the element that is returned on. */
size_t batch_append(struct batch *b, size_t length);
size_t batch_targets(const struct batch *b); /* positions that have a target */

#endif
