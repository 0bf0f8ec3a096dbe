/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MLM_H
#define MLM_H
/* The masked objective's own: how the text is cut into examples (mlm.c) and how an example is
 * masked (mlm_mask.c). An example is [CLS] A [SEP], or [CLS] A [SEP] B [SEP] with a pair task, of
 * one document. The text is cut once, at open; what varies with the epoch is drawn: where a short
 * example begins, where A ends, whether B is another document's (NSP, Devlin et al. 2019) or comes
 * first (SOP, Lan et al. 2020), and the masks.
 */
#include "inner/config/keys.h"
#include "inner/data/loader.h"

struct mlm_chunk {
    uint64_t token, sentence; /* its first ones, within the shard */
    uint64_t document;        /* within the set; only with pairs */
    uint32_t tokens, sentences, shard;
};
enum { MLM_SPECIAL = 1, MLM_CONTINUES = 2 };
struct mlm {
    const struct loader *l;
    enum data_mask mask;
    enum data_pairs pairs;
    double rate, short_share;
    size_t room; /* tokens of text in one example */
    struct mlm_chunk *chunks;
    uint64_t chunk_count;
    uint64_t *document_first; /* (shards + 1) documents before each shard */
    uint8_t *flags;           /* (model.vocab_size) of each id: MLM_SPECIAL, MLM_CONTINUES */
    int32_t specials[SIDECAR_SPECIALS]; /* ascending */
    size_t specials_count;
};

/* Draws of one example: words of Philox, one after the other. */
struct mlm_draws {
    uint64_t key, stream, index;
    uint32_t block[4];
    unsigned left;
};
struct mlm_draws mlm_draws(const struct loader *l, uint64_t stream, uint64_t window,
                           uint64_t example);
uint32_t mlm_draw(struct mlm_draws *d);
uint64_t mlm_draw_below(struct mlm_draws *d, uint64_t n); /* n > 0; bias below 2^-12 */
bool mlm_draw_hits(struct mlm_draws *d, double share);

struct mlm_span {
    uint32_t shard, tokens;
    uint64_t token;
};
struct mlm_plan {         /* of one example */
    struct mlm_span a, b; /* b.tokens 0: no pair */
    int32_t label;        /* 1: B is another document's, or comes first; -1: no pair */
};

/* Cuts the text. ERR_INPUT: no documents, or one of less than two sentences, with pairs. */
enum err mlm_cut(struct mlm *m, struct arena *perm) MUST;
void mlm_plan(const struct mlm *m, uint64_t window, uint64_t example, struct mlm_plan *p);
/* Masks a sequence of n ids: targets become -1, or the id that was there. Returns how many. */
size_t mlm_mask(const struct mlm *m, struct mlm_draws *d, int32_t *ids, int32_t *targets, size_t n);

#endif
