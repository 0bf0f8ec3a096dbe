#include "inner/data/batch.h"

enum err batch_open(struct batch *b, struct arena *perm, size_t tokens_max, size_t sequences_max)
{
    *b = (struct batch){.tokens_max = tokens_max, .sequences_max = sequences_max};
    TRY_ALLOC(b->tokens = arena_array(perm, tokens_max, sizeof *b->tokens));
    TRY_ALLOC(b->targets = arena_array(perm, tokens_max, sizeof *b->targets));
    TRY_ALLOC(b->positions = arena_array(perm, tokens_max, sizeof *b->positions));
    TRY_ALLOC(b->cu_seqlens = arena_array(perm, sequences_max + 1, sizeof *b->cu_seqlens));
    return ERR_OK;
}

void batch_clear(struct batch *b)
{
    b->tokens_count = b->sequences = 0;
    b->cu_seqlens[0] = 0;
}

size_t batch_append(struct batch *b, size_t length)
{
    size_t at = b->tokens_count;
    ASSERT(b->tokens_max - at >= length && b->sequences < b->sequences_max);
    for (size_t p = 0; p < length; p++)
        b->positions[at + p] = (int32_t)p;
    b->tokens_count += length;
    b->cu_seqlens[++b->sequences] = (int32_t)b->tokens_count;
    return at;
}

size_t batch_targets(const struct batch *b)
{
    size_t count = 0;
    for (size_t i = 0; i < b->tokens_count; i++)
        count += b->targets[i] >= 0;
    return count;
}
