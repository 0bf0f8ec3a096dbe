#include "inner/data/objective.h"

const struct objective *objective_of(const struct settings *s)
{
    (void)s; /* one so far: there is no key */
    return &objective_causal;
}

void objective_step(const struct loader *l, uint64_t step, size_t first, size_t count,
                    struct batch *b)
{
    uint64_t place = loader_place(l, step, first);
    ASSERT(first <= l->rank_sequences && count <= l->rank_sequences - first);
    batch_clear(b);
    for (size_t i = 0; i < count; i++)
        l->options.objective->append(l, loader_order(l, place + i), place + i, b);
}

void objective_windows(const struct loader *l, uint64_t first, size_t count, struct batch *b)
{
    ASSERT(first <= l->windows && count <= l->windows - first);
    batch_clear(b);
    for (size_t i = 0; i < count; i++)
        l->options.objective->append(l, first + i, first + i, b);
}
