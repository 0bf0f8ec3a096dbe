/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BATCH_H
#define BATCH_H
/* What one forward pass reads: sequences packed one after the other, no padding anywhere. Host
 * memory, filled by an objective (or by a test), owned by the giver of the arena. One thread at a
 * time.
 */
#include <stddef.h>
#include <stdint.h>
#include "kernels/base/arena.h"

enum { BATCH_UNIT = 64 }; /* tokens: GEMM plans are cached by shape */

struct batch_room { /* what was allocated */
    size_t tokens, sequences;
};
struct batch {
    int32_t *tokens;    /* (tokens_count) input ids, 0 .. vocab-1 */
    int32_t *targets;   /* (tokens_count) the id that follows; negative: no loss at this position */
    int32_t *positions; /* (tokens_count) 0, 1, .. within each sequence */
    int32_t *types;     /* (tokens_count) token type; 0 unless the objective has several */
    int32_t *cu_seqlens; /* (sequences + 1) 0 .. tokens_count: sequence i is [cu_seqlens[i],
                            cu_seqlens[i+1]) */
    int32_t *labels;     /* (sequences) class of the sequence or of its pair; negative: no loss */
    int32_t *tasks;      /* (sequences) number of the task that the label belongs to; 0 when one */
    /* (sequences) number of the example in the step of the site, the same in any rank and
     * micro-batch: what dropout is keyed by, with the step. */
    uint32_t *numbers;
    uint64_t step; /* steps before this one */
    uint32_t site; /* whose example this is: masks differ between sites */
    /* What the loss of a sequence counts, that of a token counting 1; batch_weigh sets it. */
    float sequence_weight;
    size_t tokens_count, sequences;
    size_t filled; /* tokens at the end, of tokens_count, that only fill the batch up */
    struct batch_room room;
};

/* Allocates for at most that many tokens and sequences; empty until filled. */
enum err batch_open(struct batch *b, struct arena *perm, size_t tokens_max,
                    size_t sequences_max) MUST;

void batch_clear(struct batch *b);
void batch_weigh(struct batch *b, float sequence_weight); /* before a step */
/* One more sequence of `length` tokens, with its positions, types 0 and no label; tokens and
 * targets are the caller's to fill, from the element that is returned on. */
size_t batch_append(struct batch *b, size_t length);
/* Appends sequence i of another batch, with all that belongs to it; step and site become those of
 * that batch. */
void batch_take(struct batch *b, const struct batch *from, size_t i);
/* Where sequences vary in length: fills tokens_count up to a multiple of BATCH_UNIT by one last
 * sequence of `id`, without target or label, so that few shapes of GEMM occur. Its positions are
 * all 0: it may be longer than model.max_seq_len. */
void batch_fill_up(struct batch *b, int32_t id);
size_t batch_targets(const struct batch *b); /* positions that have a target */
size_t batch_labels(const struct batch *b);  /* sequences that have a label */

#endif
