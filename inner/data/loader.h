/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOADER_H
#define LOADER_H
/* The order of the examples of a set of token shards; an objective (objective.h) cuts the text into
 * examples and makes batches of them. Which examples a rank sees at a step is a pure function of
 * (seed, site, rank, step): there is no position to save, and any step may be asked for at any
 * time.
 *
 * With data.weights each item of data.train is a source with an order of its own, and mixture.h
 * says which source a place of the site's order draws from; without weights all files are one.
 * In an epoch each example comes exactly once, in an order drawn by a keyed permutation that is
 * computed, not stored. The order belongs to the site, and the ranks of a step cut it into disjoint
 * parts: the same examples make up a step with any number of ranks. With examples of one length
 * a rank has a run of the order; with varying lengths the ranks are dealt equal numbers of tokens
 * (deal.h). With own_shards a rank reads its own files alone and draws from them as a site of one
 * rank with a seed of its own: what it sees depends on the number of ranks. Reads of the text are
 * const and may come from several threads; objective_step keeps the deal of its step, and belongs
 * to one.
 */
#include "inner/config/keys.h"
#include "inner/data/batch.h"
#include "inner/data/deal.h"
#include "inner/data/mixture.h"
#include "inner/data/shard.h"
#include "inner/data/sidecar.h"

struct loader;
struct target_counts {
    uint64_t token, sequence;
};

struct objective {
    const char *name;
    bool varies; /* its sequences vary in length, up to options.sequence; else all have that */
    /* Once, the shards being open: sets l->windows, which targets there may be, and l->own. */
    enum err (*open)(struct loader *l, struct arena *perm);
    /* Tokens of an example. window: its number within the epoch. example: its number in the site's
     * endless order (in evaluation the window's), which says the epoch. */
    size_t (*length)(const struct loader *l, uint64_t window, uint64_t example);
    /* Adds it to the batch as one sequence. */
    void (*append)(const struct loader *l, uint64_t window, uint64_t example, struct batch *b);
    /* Adds its number of targets. */
    void (*count)(const struct loader *l, uint64_t window, uint64_t example,
                  struct target_counts *c);
    /* Where its text is, the same in each epoch: the first id, or one before it in the same
     * document where the epoch decides where it begins. */
    void (*origin)(const struct loader *l, uint64_t window, size_t *shard, uint64_t *token);
};
struct loader_options {
    uint64_t seed; /* run.seed */
    uint32_t site; /* number of this site in the run; 0 for a site alone */
    uint32_t rank, ranks;
    size_t sequence;     /* S, tokens of one sequence */
    size_t batch_tokens; /* tokens of one step of the whole site: a multiple of sequence x ranks */
    int64_t vocab;
    bool mixed;      /* by data.weights: of the training text */
    bool own_shards; /* data.shards = own: the ranks share the files out among themselves */
    const struct objective *objective; /* what the text becomes */
    const struct settings *settings;   /* data.*; the causal objective needs none: NULL */
};
/* data.weights in mid-run, for the steps after `step`; a list by steps. One with another number of
 * weights than data.train has items is not for this loader. */
struct loader_changes {
    size_t count;
    struct loader_change {
        int64_t step;
        size_t count;
        double weights[MIXTURE_SOURCES_MAX];
    } list[MIXTURE_CHANGES_MAX];
};
struct loader_dealt {  /* own_shards; else zeroed */
    uint32_t first;    /* number of this rank's first sequence among those of the site's step */
    const char *files; /* of each rank, as text */
};
struct loader {
    struct loader_options options;
    struct shard_set set;
    struct loader_dealt dealt;
    struct sidecar sidecar;               /* of the first shard's directory */
    const char *directory;                /* where it lies; NULL: there is none */
    const char *unknown;                  /* a directory without one; NULL: all have one */
    uint64_t *window_first;               /* (shards + 1) examples before each shard; or NULL */
    uint64_t windows;                     /* examples of one epoch, > 0 */
    size_t rank_sequences;                /* of one rank in one step */
    bool token_targets, sequence_targets; /* may a batch have any? */
    struct loader_deal *deal; /* examples vary in length and there are several ranks; else NULL */
    struct mixture *mixture;  /* options.mixed; else NULL */
    const struct loader_changes *changes; /* NULL: none */
    void *own;                            /* the objective's */
};

/* ERR_INPUT: a shard or its sidecar is unusable, or the objective cannot use this text.
 * ERR_MISMATCH: the shards were made with another tokenizer than data.tokenizer_sha256 says. */
enum err loader_open(struct loader *l, struct arena *perm, const struct config_list *paths,
                     const struct loader_options *o) MUST;
void loader_close(struct loader *l);
/* Another options.seed from here on: what is drawn of an example, and the order. */
void loader_seed(struct loader *l, uint64_t seed);

/* Where the examples of a step begin in the site's endless order. */
uint64_t loader_place(const struct loader *l, uint64_t step);
/* With a mixture: the phase of a step, and the way back (mixture_resume). Nothing without one. */
const struct mixture_phase *loader_phase(const struct loader *l, uint64_t step);
enum err loader_resume(struct loader *l, uint64_t step, const struct mixture_phase *stored,
                       bool *changed) MUST;
/* Other changes after this step: the list is borrowed. */
enum err loader_change(struct loader *l, uint64_t step, const struct loader_changes *c) MUST;
/* The window at a place of the site's endless order. */
uint64_t loader_order(const struct loader *l, uint64_t place);
/* The same order for `count` numbers: each comes once in `count` places. */
uint64_t loader_order_of(const struct loader *l, uint64_t count, uint64_t place);
uint64_t loader_epoch(const struct loader *l, uint64_t place);
/* The shard of a window, by window_first. */
size_t loader_shard(const struct loader *l, uint64_t window);
/* ERR_INPUT: two sets, such as training and held-out text, of different tokenizers. */
enum err loader_same_tokenizer(const struct loader *a, const struct loader *b) MUST;
enum err loader_directory(const char *path, struct arena *perm, const char **directory) MUST;
/* Shortens two texts until both fit: the longer one first, then the second before the first. */
void loader_fit(uint32_t *a, uint32_t *b, size_t room);
int32_t loader_filler(const struct loader *l); /* id that fills batches up */

#endif
