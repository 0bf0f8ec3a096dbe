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

size_t batch_losses(const struct batch *b)
{
    size_t count = 0;
    for (size_t i = 0; i < b->tokens_count; i++)
        count += b->targets[i] >= 0;
    return count;
}
