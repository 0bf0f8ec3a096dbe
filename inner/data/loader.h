#ifndef LOADER_H
#define LOADER_H
/* Batches from a set of token shards. Which window of the text a rank sees at a step is a pure
 * function of (seed, site, rank, step): there is no position to save, and any step may be asked for
 * at any time.
 *
 * A window is S + 1 consecutive ids of one shard (S inputs, each with its successor as target);
 * windows start at multiples of S, so neighbours share one id and every id but the last few of a
 * shard is trained on. In an epoch each window comes exactly once, in an order drawn by a keyed
 * permutation that is computed, not stored. The order belongs to the site, and the ranks of a step
 * cut it into disjoint runs: the same windows make up a step whatever the number of ranks. Reads
 * are const and may come from several threads.
 */
#include "inner/data/batch.h"
#include "inner/data/shard.h"

struct loader_options {
    uint64_t seed; /* run.seed */
    uint32_t site; /* number of this site in the run; 0 for a site alone */
    uint32_t rank, ranks;
    size_t sequence;     /* S, tokens of one sequence */
    size_t batch_tokens; /* tokens of one step of the whole site: a multiple of sequence x ranks */
    int64_t vocab;
};
struct loader {
    struct loader_options options;
    struct shard_set set;
    uint64_t *window_first; /* (shards + 1) windows in front of each shard */
    uint64_t windows;       /* sequences of one epoch, > 0 */
    size_t rank_sequences;  /* of one rank in one step */
};

/* ERR_INPUT: a shard is unusable, or the whole set is shorter than one sequence. */
enum err loader_open(struct loader *l, struct arena *perm, const struct config_list *paths,
                     const struct loader_options *o) MUST;
void loader_close(struct loader *l);

/* This rank's sequences first .. first + count - 1 of a step, first + count <= rank_sequences: a
 * micro-batch. */
void loader_step(const struct loader *l, uint64_t step, size_t first, size_t count,
                 struct batch *b);
/* Windows first .. first + count - 1 in the order of storage, first + count <= windows: held-out
 * text. */
void loader_windows(const struct loader *l, uint64_t first, size_t count, struct batch *b);
/* The window at a place of the site's endless order (place / windows is the epoch). */
uint64_t loader_order(const struct loader *l, uint64_t place);

#endif
