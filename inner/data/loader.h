#ifndef LOADER_H
#define LOADER_H
/* Windows of a set of token shards; an objective (objective.h) makes batches of them. Which window
 * of the text a rank sees at a step is a pure function of (seed, site, rank, step): there is no
 * position to save, and any step may be asked for at any time.
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

struct objective;
struct loader_options {
    uint64_t seed; /* run.seed */
    uint32_t site; /* number of this site in the run; 0 for a site alone */
    uint32_t rank, ranks;
    size_t sequence;     /* S, tokens of one sequence */
    size_t batch_tokens; /* tokens of one step of the whole site: a multiple of sequence x ranks */
    int64_t vocab;
    const struct objective *objective; /* what the windows become */
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

/* The window at a place of the site's endless order (place / windows is the epoch). */
uint64_t loader_order(const struct loader *l, uint64_t place);
/* The place of one of this rank's sequences of a step, 0 .. rank_sequences - 1. */
uint64_t loader_place(const struct loader *l, uint64_t step, size_t sequence);
/* Ids from .. from + S - 1 of the S + 1 of a window, from 0 or 1. */
void loader_read(const struct loader *l, uint64_t window, size_t from, int32_t *ids);

#endif
