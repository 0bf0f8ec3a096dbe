/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/mlm.h"
#include "kernels/base/rng.h"

/* ---- draws ---- */

struct mlm_draws mlm_draws(const struct loader *l, uint64_t stream, uint64_t window,
                           uint64_t example)
{
    uint64_t epoch = loader_epoch(l, example), site = l->options.site;
    ASSERT(epoch < UINT64_C(1) << 40 && window < UINT64_C(1) << 56);
    return (struct mlm_draws){.key = rng_u64(l->options.seed, stream, site << 40 | epoch),
                              .stream = stream | window << 8};
}

uint32_t mlm_draw(struct mlm_draws *d)
{
    if (!d->left) {
        rng_block(d->key, d->stream, d->index++, d->block);
        d->left = 4;
    }
    return d->block[--d->left];
}

uint64_t mlm_draw_below(struct mlm_draws *d, uint64_t n)
{
    __extension__ typedef unsigned __int128 wide;
    if (n <= UINT64_C(1) << 20)
        return mlm_draw(d) * n >> 32;
    uint64_t high = mlm_draw(d);
    return (uint64_t)((wide)(high << 32 | mlm_draw(d)) * n >> 64);
}

bool mlm_draw_hits(struct mlm_draws *d, double share)
{
    return (double)mlm_draw(d) < share * 4294967296.0;
}

/* ---- cutting the text ---- */

struct cutter {
    struct mlm *m;
    uint32_t shard;
    bool fill; /* else it counts */
};

static void emit(struct cutter *c, struct mlm_chunk chunk)
{
    chunk.shard = c->shard;
    if (c->fill)
        c->m->chunks[c->m->chunk_count] = chunk;
    c->m->chunk_count++;
}

static void emit_tokens(struct cutter *c, uint64_t token, uint64_t tokens)
{
    if (tokens)
        emit(c, (struct mlm_chunk){.token = token, .tokens = (uint32_t)tokens});
}

/* Without documents: runs of as many tokens as fit. */
static void cut_stream(struct cutter *c, const struct shard *s)
{
    size_t room = c->m->room;
    for (uint64_t at = 0; at < s->count; at += room)
        emit_tokens(c, at, s->count - at < room ? s->count - at : room);
}

/* Whole sentences while they fit; a longer one is cut. */
static void cut_document(struct cutter *c, const struct indexed *x, uint64_t first, uint64_t end)
{
    size_t room = c->m->room;
    uint64_t begin = first < end ? indexed_first(x, first) : 0, at = begin;
    for (uint64_t i = first; i < end; i++) {
        uint64_t behind = at + indexed_length(x, i);
        if (behind - begin > room) {
            emit_tokens(c, begin, at - begin);
            begin = at;
        }
        for (; behind - begin > room; begin += room)
            emit_tokens(c, begin, room);
        at = behind;
    }
    emit_tokens(c, begin, at - begin);
}

/* Sentences until they fill an example, two at least; the last one of a document begins one
 * sentence earlier rather than have one alone. What is too long is cut when the example is made. */
static void cut_pairs(struct cutter *c, const struct indexed *x, uint64_t document, uint64_t first,
                      uint64_t end)
{
    for (uint64_t i = first, j; i < end; i = j) {
        uint64_t tokens = 0;
        i -= i + 1 == end;
        for (j = i; j < end && (tokens < c->m->room || j - i < 2); j++)
            tokens += indexed_length(x, j);
        emit(c, (struct mlm_chunk){.token = indexed_first(x, i),
                                   .sentence = i,
                                   .sentences = (uint32_t)(j - i),
                                   .tokens = tokens < UINT32_MAX ? (uint32_t)tokens : UINT32_MAX,
                                   .document = document});
    }
}

static enum err cut_indexed(struct cutter *c, const struct shard *s)
{
    const struct indexed *x = &s->index;
    for (uint64_t d = 0; d < x->documents_count; d++) {
        uint64_t first = indexed_document(x, d), end = indexed_document(x, d + 1);
        if (c->m->pairs == DATA_PAIRS_NONE) {
            cut_document(c, x, first, end);
            continue;
        }
        if (end - first < 2)
            return err_set(ERR_INPUT,
                           "%s: document %llu has %llu sentence%s; data.pairs = %s needs two or "
                           "more in each: atoll data --min-sentences 2 leaves such documents out",
                           s->path, (unsigned long long)d, (unsigned long long)(end - first),
                           end - first == 1 ? "" : "s",
                           config_choice_name(data_pairs_choices, c->m->pairs));
        cut_pairs(c, x, c->m->document_first[c->shard] + d, first, end);
    }
    return ERR_OK;
}

static enum err cut_all(struct mlm *m, bool fill)
{
    m->chunk_count = 0;
    for (size_t i = 0; i < m->l->set.count; i++) {
        const struct shard *s = &m->l->set.shards[i];
        struct cutter c = {m, (uint32_t)i, fill};
        if (!s->indexed && m->pairs != DATA_PAIRS_NONE)
            return err_set(ERR_INPUT,
                           "%s: data.pairs = %s needs documents and their sentences; this shard "
                           "has none (a .idx next to it): atoll data --split-sentences makes them",
                           s->path, config_choice_name(data_pairs_choices, m->pairs));
        if (s->indexed)
            TRY(cut_indexed(&c, s));
        else
            cut_stream(&c, s);
        m->document_first[i + 1] = m->document_first[i] + s->index.documents_count;
    }
    return ERR_OK;
}

enum err mlm_cut(struct mlm *m, struct arena *perm)
{
    size_t shards = m->l->set.count;
    TRY_ALLOC(m->document_first = arena_array(perm, shards + 1, sizeof *m->document_first));
    TRY(cut_all(m, false));
    if (m->pairs == DATA_PAIRS_NSP && m->document_first[shards] < 2)
        return err_set(ERR_INPUT, "%s: one document; data.pairs = nsp takes text of another one",
                       m->l->set.shards[0].path);
    TRY_ALLOC(m->chunks = arena_array(perm, m->chunk_count, sizeof *m->chunks));
    return cut_all(m, true);
}

/* ---- the plan of an example ---- */

/* Text of an example: all the room, or less for a share of them, so that short inputs are known,
 * too. */
static size_t target_length(const struct mlm *m, struct mlm_draws *d)
{
    bool is_short = mlm_draw_hits(d, m->short_share);
    return is_short ? 2 + (size_t)mlm_draw_below(d, m->room - 1) : m->room;
}

static struct mlm_span span_of(const struct indexed *x, uint32_t shard, uint64_t first,
                               uint64_t end)
{
    uint64_t from = indexed_first(x, first),
             to = indexed_first(x, end - 1) + indexed_length(x, end - 1);
    uint64_t tokens = to - from < UINT32_MAX ? to - from : UINT32_MAX;
    return (struct mlm_span){shard, (uint32_t)tokens, from};
}

static void plan_single(const struct mlm_chunk *c, size_t target, struct mlm_draws *d,
                        struct mlm_plan *p)
{
    uint64_t skip = c->tokens > target ? mlm_draw_below(d, c->tokens - target + 1) : 0;
    uint32_t tokens = c->tokens > target ? (uint32_t)target : c->tokens;
    *p = (struct mlm_plan){.a = {c->shard, tokens, c->token + skip}, .label = -1};
}

/* Sentences of another document of this site, from a random one on. */
static struct mlm_span random_span(const struct mlm *m, uint64_t document, size_t target,
                                   struct mlm_draws *d)
{
    size_t shards = m->l->set.count;
    uint64_t other = mlm_draw_below(d, m->document_first[shards] - 1);
    uint32_t shard = 0;
    other += other >= document;
    while (m->document_first[shard + 1] <= other)
        shard++;
    const struct indexed *x = &m->l->set.shards[shard].index;
    uint64_t within = other - m->document_first[shard], end = indexed_document(x, within + 1);
    uint64_t first = indexed_document(x, within), tokens = 0, j;
    first += mlm_draw_below(d, end - first);
    for (j = first; j < end && (j == first || tokens < target); j++)
        tokens += indexed_length(x, j);
    return span_of(x, shard, first, j);
}

static void shorten(struct mlm_span *s, uint32_t tokens, struct mlm_draws *d)
{
    if (s->tokens > tokens)
        s->token += mlm_draw_below(d, (uint64_t)s->tokens - tokens + 1);
    s->tokens = tokens;
}

static void plan_pair(const struct mlm *m, const struct mlm_chunk *c, size_t target,
                      struct mlm_draws *d, struct mlm_plan *p)
{
    const struct indexed *x = &m->l->set.shards[c->shard].index;
    uint64_t first = c->sentence, end = c->sentence + c->sentences;
    if (target < m->room) {
        uint64_t tokens = 0, i = first + mlm_draw_below(d, c->sentences - 1), j;
        for (j = i; j < end && (tokens < target || j - i < 2); j++)
            tokens += indexed_length(x, j);
        first = i;
        end = j;
    }
    uint64_t middle = first + 1 + mlm_draw_below(d, end - first - 1);
    bool changed = mlm_draw_hits(d, 0.5);
    *p = (struct mlm_plan){.a = span_of(x, c->shard, first, middle),
                           .b = span_of(x, c->shard, middle, end),
                           .label = changed};
    if (changed && m->pairs == DATA_PAIRS_NSP) {
        p->b = random_span(m, c->document, target > p->a.tokens ? target - p->a.tokens : 1, d);
    } else if (changed) {
        struct mlm_span a = p->a;
        p->a = p->b;
        p->b = a;
    }
    uint32_t a = p->a.tokens, b = p->b.tokens;
    loader_fit(&a, &b, m->room);
    shorten(&p->a, a, d);
    shorten(&p->b, b, d);
}

void mlm_plan(const struct mlm *m, uint64_t window, uint64_t example, struct mlm_plan *p)
{
    const struct mlm_chunk *c = &m->chunks[window];
    struct mlm_draws d = mlm_draws(m->l, RNG_EXAMPLE, window, example);
    size_t target = target_length(m, &d);
    if (m->pairs == DATA_PAIRS_NONE)
        plan_single(c, target, &d, p);
    else
        plan_pair(m, c, target, &d, p);
}
