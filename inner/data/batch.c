/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/batch.h"
#include <string.h>

enum err batch_open(struct batch *b, struct arena *perm, size_t tokens_max, size_t sequences_max)
{
    *b = (struct batch){.room = {tokens_max, sequences_max}, .sequence_weight = 1};
    TRY_ALLOC(b->tokens = arena_array(perm, tokens_max, sizeof *b->tokens));
    TRY_ALLOC(b->targets = arena_array(perm, tokens_max, sizeof *b->targets));
    TRY_ALLOC(b->positions = arena_array(perm, tokens_max, sizeof *b->positions));
    TRY_ALLOC(b->types = arena_array(perm, tokens_max, sizeof *b->types));
    TRY_ALLOC(b->cu_seqlens = arena_array(perm, sequences_max + 1, sizeof *b->cu_seqlens));
    TRY_ALLOC(b->labels = arena_array(perm, sequences_max, sizeof *b->labels));
    TRY_ALLOC(b->tasks = arena_array(perm, sequences_max, sizeof *b->tasks));
    TRY_ALLOC(b->numbers = arena_array(perm, sequences_max, sizeof *b->numbers));
    for (size_t i = 0; i < sequences_max; i++)
        b->labels[i] = -1;
    return ERR_OK;
}

void batch_weigh(struct batch *b, float sequence_weight)
{
    b->sequence_weight = sequence_weight;
}

void batch_clear(struct batch *b)
{
    b->tokens_count = b->sequences = 0;
    b->step = b->site = 0;
    b->filled = 0;
    b->cu_seqlens[0] = 0;
}

size_t batch_append(struct batch *b, size_t length)
{
    size_t at = b->tokens_count;
    ASSERT(b->room.tokens - at >= length && b->sequences < b->room.sequences);
    for (size_t p = 0; p < length; p++)
        b->positions[at + p] = (int32_t)p;
    memset(b->types + at, 0, length * sizeof *b->types);
    b->labels[b->sequences] = -1;
    b->tasks[b->sequences] = 0;
    b->numbers[b->sequences] = 0;
    b->tokens_count += length;
    b->cu_seqlens[++b->sequences] = (int32_t)b->tokens_count;
    return at;
}

void batch_take(struct batch *b, const struct batch *from, size_t i)
{
    size_t first = (size_t)from->cu_seqlens[i], length = (size_t)from->cu_seqlens[i + 1] - first,
           at = batch_append(b, length), last = b->sequences - 1;
    memcpy(b->tokens + at, from->tokens + first, length * sizeof *b->tokens);
    memcpy(b->targets + at, from->targets + first, length * sizeof *b->targets);
    memcpy(b->types + at, from->types + first, length * sizeof *b->types);
    b->labels[last] = from->labels[i];
    b->tasks[last] = from->tasks[i];
    b->numbers[last] = from->numbers[i];
    b->step = from->step;
    b->site = from->site;
}

void batch_fill_up(struct batch *b, int32_t id)
{
    size_t rest = b->tokens_count % BATCH_UNIT;
    if (!rest)
        return;
    b->filled = BATCH_UNIT - rest;
    for (size_t at = batch_append(b, b->filled); at < b->tokens_count; at++) {
        b->tokens[at] = id;
        b->targets[at] = -1;
        b->positions[at] = 0;
    }
}

size_t batch_targets(const struct batch *b)
{
    size_t count = 0;
    for (size_t i = 0; i < b->tokens_count; i++)
        count += b->targets[i] >= 0;
    return count;
}

size_t batch_labels(const struct batch *b)
{
    size_t count = 0;
    for (size_t i = 0; i < b->sequences; i++)
        count += b->labels[i] >= 0;
    return count;
}
