/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/objective.h"

const struct objective *objective_of(const struct settings *s)
{
    static const struct objective *const all[] = {
#define X(NAME, name, causal) [DATA_OBJECTIVE_##NAME] = &objective_##name,
        OBJECTIVE_LIST(X)
#undef X
    };
    return all[s->data_objective];
}

const struct objective *objective_trained(const struct settings *s)
{
    bool whole = s->privacy_unit == PRIVACY_UNIT_NONE || s->privacy_unit == PRIVACY_UNIT_SEQUENCE;
    return s->data_objective != DATA_OBJECTIVE_CAUSAL || whole ? objective_of(s)
                                                               : &objective_documents;
}

size_t objective_tokens_max(const struct objective *o, size_t tokens)
{
    return o->varies ? (tokens + BATCH_UNIT - 1) / BATCH_UNIT * BATCH_UNIT : tokens;
}

enum err objective_batch_open(const struct objective *o, struct batch *b, struct arena *perm,
                              size_t sequences, size_t sequence)
{
    return batch_open(b, perm, objective_tokens_max(o, sequences * sequence),
                      sequences + o->varies);
}

/* ---- a step ---- */

/* Once for each step: the micro-batches of a step share its deal. */
static void deal_step(struct loader *l, uint64_t step)
{
    const struct objective *o = l->options.objective;
    struct loader_deal *d = l->deal;
    if (!d || d->next == step + 1)
        return;
    uint64_t first = loader_place(l, step);
    for (size_t i = 0; i < l->options.ranks * l->rank_sequences; i++)
        d->lengths[i] = (uint32_t)o->length(l, loader_order(l, first + i), first + i);
    deal_snake(d->order, d->lengths, l->options.ranks, l->rank_sequences, d->keys);
    d->next = step + 1;
}

void objective_step(struct loader *l, uint64_t step, size_t first, size_t count, struct batch *b)
{
    const struct objective *o = l->options.objective;
    ASSERT(first <= l->rank_sequences && count <= l->rank_sequences - first);
    deal_step(l, step);
    batch_clear(b);
    b->step = step;
    b->site = l->options.site;
    for (size_t i = 0; i < count; i++) {
        size_t at = l->options.rank * l->rank_sequences + first + i;
        uint32_t number = l->deal ? l->deal->order[at] : (uint32_t)at;
        uint64_t place = loader_place(l, step) + number;
        o->append(l, loader_order(l, place), place, b);
        b->numbers[b->sequences - 1] = l->dealt.first + number;
    }
    if (o->varies)
        batch_fill_up(b, loader_filler(l));
}

void objective_records(struct loader *l, uint64_t step, const uint64_t *windows, size_t count,
                       struct batch *b)
{
    const struct objective *o = l->options.objective;
    batch_clear(b);
    b->step = step;
    b->site = l->options.site;
    for (size_t i = 0; i < count; i++) {
        ASSERT(windows[i] < l->windows);
        o->append(l, windows[i], step * l->windows + windows[i], b); /* of epoch `step` */
        b->numbers[b->sequences - 1] = (uint32_t)windows[i];
    }
    if (o->varies)
        batch_fill_up(b, loader_filler(l));
}

void objective_counts(const struct loader *l, uint64_t step, struct target_counts *c)
{
    uint64_t first = loader_place(l, step);
    *c = (struct target_counts){0};
    for (uint64_t i = 0; i < l->options.ranks * l->rank_sequences; i++)
        l->options.objective->count(l, loader_order(l, first + i), first + i, c);
}

double objective_sequence_weight(const struct loader *l, uint64_t step)
{
    struct target_counts c;
    if (!l->token_targets || !l->sequence_targets)
        return 1;
    objective_counts(l, step, &c);
    return c.token && c.sequence ? (double)c.token / (double)c.sequence : 1;
}

size_t objective_divisor(const struct loader *l, const struct batch *b)
{
    return l->token_targets ? batch_targets(b) : batch_labels(b);
}

/* ---- evaluation ---- */

void objective_windows(const struct loader *l, uint64_t first, size_t count, struct batch *b)
{
    const struct objective *o = l->options.objective;
    ASSERT(first <= l->windows && count <= l->windows - first);
    batch_clear(b);
    for (size_t i = 0; i < count; i++)
        o->append(l, first + i, first + i, b);
    if (o->varies)
        batch_fill_up(b, loader_filler(l));
}
