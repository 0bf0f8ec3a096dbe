/* SPDX-License-Identifier: Apache-2.0 */
/* Masked text (BERT, ALBERT, ModernBERT): [CLS] A [SEP] (B [SEP]), some ids hidden, which are the
 * targets; with data.pairs whether B follows A is the sequence's.
 */
#include <stdlib.h>
#include <string.h>
#include "inner/data/mlm.h"
#include "inner/data/objective.h"
#include "inner/data/words.h"
#include "kernels/base/rng.h"

struct masked {
    struct mlm m;
    struct batch scratch; /* of one example: its targets are counted there */
};

/* ---- open ---- */

static enum err check_specials(const struct loader *l)
{
    static const enum sidecar_special needed[] = {SIDECAR_CLS, SIDECAR_SEP, SIDECAR_MASK};
    if (!l->directory)
        return err_set(ERR_INPUT,
                       "%s: no data.json next to it; data.objective = mlm needs the ids of [CLS], "
                       "[SEP] and [MASK], which atoll data writes there",
                       l->set.shards[0].path);
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (l->sidecar.special[needed[i]] < 0)
            return err_set(ERR_INPUT,
                           "%s/data.json: the tokenizer has no special id \"%s\", which "
                           "data.objective = mlm needs; make the shards with a tokenizer that "
                           "has [CLS], [SEP] and [MASK]",
                           l->directory, sidecar_special_name(needed[i]));
    return ERR_OK;
}

static enum err open_flags(struct mlm *m, struct arena *perm)
{
    const struct loader *l = m->l;
    const struct sidecar *s = &l->sidecar;
    uint8_t *continues = NULL;
    if (m->mask != DATA_MASK_TOKEN) {
        TRY(words_read(s, l->directory, perm, &continues));
        if (!continues)
            return err_set(ERR_INPUT,
                           "%s/data.json: no \"word_start\" says which ids begin a word; "
                           "data.mask = %s needs it",
                           l->directory, config_choice_name(data_mask_choices, m->mask));
    }
    TRY_ALLOC(m->flags = arena_alloc(perm, (size_t)l->options.vocab));
    for (int64_t id = 0; id < s->vocab; id++) {
        bool special = sidecar_is_special(s, (int32_t)id);
        m->flags[id] = (uint8_t)((special ? MLM_SPECIAL : 0) |
                                 (continues && continues[id] ? MLM_CONTINUES : 0));
        if (special)
            m->specials[m->specials_count++] = (int32_t)id;
    }
    return ERR_OK;
}

static enum err masked_open(struct loader *l, struct arena *perm)
{
    const struct settings *s = l->options.settings;
    struct masked *x;
    TRY(check_specials(l));
    TRY_ALLOC(x = arena_alloc(perm, sizeof *x));
    size_t around = s->data_pairs == DATA_PAIRS_NONE ? 2 : 3;
    ASSERT(l->options.sequence >= around + 2); /* keys_check has refused less */
    x->m = (struct mlm){.l = l,
                        .mask = s->data_mask,
                        .pairs = s->data_pairs,
                        .rate = s->data_mlm_probability,
                        .short_share = s->data_short_seq_prob,
                        .room = l->options.sequence - around};
    TRY(batch_open(&x->scratch, perm, l->options.sequence, 1));
    TRY(open_flags(&x->m, perm));
    TRY(mlm_cut(&x->m, perm));
    l->windows = x->m.chunk_count;
    l->token_targets = true;
    l->sequence_targets = s->data_pairs != DATA_PAIRS_NONE;
    l->own = x;
    return ERR_OK;
}

/* ---- examples ---- */

static size_t plan_length(const struct mlm_plan *p)
{
    return p->label < 0 ? 2 + (size_t)p->a.tokens : 3 + (size_t)p->a.tokens + p->b.tokens;
}

static size_t masked_length(const struct loader *l, uint64_t window, uint64_t example)
{
    const struct masked *x = l->own;
    struct mlm_plan p;
    mlm_plan(&x->m, window, example, &p);
    return plan_length(&p);
}

static size_t put_span(const struct loader *l, const struct mlm_span *s, int32_t *ids)
{
    shard_read(&l->set.shards[s->shard], s->token, s->tokens, ids);
    ids[s->tokens] = l->sidecar.special[SIDECAR_SEP];
    return s->tokens + 1;
}

static void masked_append(const struct loader *l, uint64_t window, uint64_t example,
                          struct batch *b)
{
    const struct masked *x = l->own;
    struct mlm_plan p;
    mlm_plan(&x->m, window, example, &p);
    size_t n = plan_length(&p), at = batch_append(b, n), end = at;
    b->tokens[end++] = l->sidecar.special[SIDECAR_CLS];
    end += put_span(l, &p.a, b->tokens + end);
    if (p.label >= 0) {
        size_t from = end;
        end += put_span(l, &p.b, b->tokens + end);
        while (from < end)
            b->types[from++] = 1;
        b->labels[b->sequences - 1] = p.label;
    }
    struct mlm_draws d = mlm_draws(l, RNG_MASK, window, example);
    mlm_mask(&x->m, &d, b->tokens + at, b->targets + at, n);
}

static void masked_count(const struct loader *l, uint64_t window, uint64_t example,
                         struct target_counts *c)
{
    struct masked *x = l->own;
    batch_clear(&x->scratch);
    masked_append(l, window, example, &x->scratch);
    c->token += batch_targets(&x->scratch);
    c->sequence += batch_labels(&x->scratch);
}

static void masked_origin(const struct loader *l, uint64_t window, size_t *shard, uint64_t *token)
{
    const struct masked *x = l->own;
    *shard = x->m.chunks[window].shard;
    *token = x->m.chunks[window].token;
}

const struct objective objective_mlm = {.name = "mlm",
                                        .varies = true,
                                        .open = masked_open,
                                        .length = masked_length,
                                        .append = masked_append,
                                        .count = masked_count,
                                        .origin = masked_origin};
