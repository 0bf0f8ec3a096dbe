/* SPDX-License-Identifier: Apache-2.0 */
/* Causal windows (GPT): S + 1 consecutive ids of one shard, S inputs, each with its successor as
 * target. Windows start at multiples of S, so neighbours share one id and every id but the last few
 * of a shard is trained on.
 */
#include "inner/data/objective.h"

static enum err causal_open(struct loader *l, struct arena *perm)
{
    TRY_ALLOC(l->window_first = arena_array(perm, l->set.count + 1, sizeof *l->window_first));
    for (size_t i = 0; i < l->set.count; i++) {
        uint64_t windows = (l->set.shards[i].count - 1) / l->options.sequence;
        l->window_first[i + 1] = l->window_first[i] + windows;
    }
    l->windows = l->window_first[l->set.count];
    if (l->windows == 0)
        return err_set(ERR_INPUT,
                       "%s%s: %llu tokens, less than one sequence of train.seq_len = %zu and its "
                       "target; take more "
                       "text or a shorter sequence",
                       l->set.shards[0].path, l->set.count > 1 ? " and the shards with it" : "",
                       (unsigned long long)l->set.tokens, l->options.sequence);
    l->token_targets = true;
    return ERR_OK;
}

static size_t causal_length(const struct loader *l, uint64_t window, uint64_t example)
{
    (void)window;
    (void)example;
    return l->options.sequence;
}

/* Ids from .. from + S - 1 of the S + 1 of a window, from 0 or 1. */
static void read_window(const struct loader *l, uint64_t window, size_t from, int32_t *ids)
{
    size_t S = l->options.sequence, i = loader_shard(l, window);
    shard_read(&l->set.shards[i], (window - l->window_first[i]) * S + from, S, ids);
}

static void causal_append(const struct loader *l, uint64_t window, uint64_t example,
                          struct batch *b)
{
    size_t at = batch_append(b, l->options.sequence);
    (void)example;
    read_window(l, window, 0, b->tokens + at);
    read_window(l, window, 1, b->targets + at);
}

static void causal_count(const struct loader *l, uint64_t window, uint64_t example,
                         struct target_counts *c)
{
    c->token += causal_length(l, window, example);
}

static void causal_origin(const struct loader *l, uint64_t window, size_t *shard, uint64_t *token)
{
    *shard = loader_shard(l, window);
    *token = (window - l->window_first[*shard]) * l->options.sequence;
}

const struct objective objective_causal = {.name = "causal",
                                           .open = causal_open,
                                           .length = causal_length,
                                           .append = causal_append,
                                           .count = causal_count,
                                           .origin = causal_origin};
