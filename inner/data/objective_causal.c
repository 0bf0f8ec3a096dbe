/* Causal windows (GPT): each of S ids has the id that follows as its target. */
#include "inner/data/objective.h"

static void append(const struct loader *l, uint64_t window, uint64_t example, struct batch *b)
{
    size_t at = batch_append(b, l->options.sequence);
    (void)example;
    loader_read(l, window, 0, b->tokens + at);
    loader_read(l, window, 1, b->targets + at);
}

const struct objective objective_causal = {.name = "causal", .append = append};
