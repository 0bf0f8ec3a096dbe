/* SPDX-License-Identifier: Apache-2.0 */
/* Clipping with two passes over a micro-batch instead of one for each record (ghost clipping: Lee &
 * Kifer 2021, 2009.03106; Li et al. 2022, 2110.05679; Bu et al. 2022, 2205.10683).
 *
 * First pass: forward and backward without gradients of parameters; each op that would add one adds
 * the square of each record's own to that record's norm. Second pass: the loss of each record has
 * its factor as a weight, and what the ops add is the clipped sum.
 *
 * A record of several sequences needs no more than that their rows follow each other in each op:
 * the rows of a record are taken together, and the squares are those of the sum over its sequences,
 * with all cross terms.
 *
 * The passes are the model's; the ops that touch parameters are replaced while they run (struct
 * ghost begins with the device's table of ops). Parameters, by how their squares are found:
 *   matrix of a linear layer  |dY^T X|^2 of a record of n tokens. Either the product itself, in one
 *                             matrix of scratch memory for all records, or as the sum over pairs of
 *                             tokens of <dy_s, dy_t> <x_s, x_t>, which is cheaper for n below
 *                             N K / (N + K).
 *   matrix that several       the sum of its uses, of each record, in a slab of its own: layers of
 *   layers share              model.share_layers
 *   bias, gain                in such a slab too: they are small
 *   embedding tables          the rows of dx of one id are added, then squared
 *   table that is the head    |A + B|^2 = |A|^2 + 2 <A, B> + |B|^2 with A from the head, B from the
 *   as well                   embedding; of A the rows of the record's own ids are kept for <A, B>
 */
#include "inner/model/clip_own.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct ghost {
    struct dev_ops ops; /* first: while a pass runs, dev->ops points to it */
    const struct dev_ops *real;
    struct clip *clip;
    const struct batch *batch; /* of the running pass */
    bool weighted;             /* the second pass */
    double *squares;           /* (sequences_max) of the records */
    float *factors;            /* (sequences_max) of the records */
    struct clip_cut cut;       /* of `batch` */
    size_t *own_first;         /* (sequences_max + 1): the cut of the second pass */
    int32_t *record_at;        /* (tokens) record of a row of the batch; -1: filling */
    uint64_t *order;           /* (tokens of a record) scratch of the tables: key << 32 | row */
    float *matrix;             /* scratch: the largest matrix */
    size_t pairs_rows;
    float *pairs[2]; /* (pairs_rows, pairs_rows) products of rows */
    float *kept;     /* (sequences_max, kept_count) gradients that are kept by record */
    size_t kept_count;
    ptrdiff_t *kept_at; /* (table.count) of a tensor in a record's row; NONE: it is not kept */
    bool tied;
    float *head_rows; /* (tokens, E) tied: row of A of each token's id */
};

static struct ghost *ghost_of(const struct dev *d)
{
    return (struct ghost *)(uintptr_t)d->ops;
}

/* ---- which parameter, which record ---- */
static bool is_vector(const struct tensor *x)
{
    return x->shape[1] == 1;
}

static bool ghost_keeps(const struct settings *s, const struct tensor *x)
{
    return is_vector(x) || (s->model_share_layers && x->layer == 0);
}

/* In a record's row. A classifier adds to a bias as many values as it computes columns, of which
 * those beyond the classes are 0; the slab has a gap for them. */
static size_t ghost_room(const struct tensor *x)
{
    return dev_logit_width(x->count, SIZE_MAX);
}

static const struct tensor *ghost_tensor(const struct ghost *g, const float *gradient)
{
    const struct table *t = g->clip->o.table;
    size_t low = 0, high = t->count, at = (size_t)(gradient - g->clip->m->weights->grads);
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (t->tensors[middle].offset <= at)
            low = middle;
        else
            high = middle;
    }
    ASSERT(t->tensors[low].offset == at);
    return &t->tensors[low];
}

/* Where the gradient of a record goes; NULL: it is not kept. */
static float *ghost_kept(const struct ghost *g, const float *gradient, int32_t record)
{
    if (!gradient || record < 0)
        return NULL;
    ptrdiff_t at = g->kept_at[ghost_tensor(g, gradient) - g->clip->o.table->tensors];
    return at == NONE ? NULL : g->kept + (size_t)record * g->kept_count + at;
}

/* Rows that belong to one record, of an op's T rows. Heads run on rows collected from the batch. */
struct span {
    size_t first, count;
    int32_t record; /* -1: rows that fill up */
};

/* The head of a task has the rows of that task alone, the pooler those of all tasks. */
static const int32_t *ghost_sequence_rows(const struct model *m, const float *gradient)
{
    for (size_t i = 1; i < m->sequence.tasks; i++)
        if (gradient == block_grad(m, m->at.head.classes[i].weight))
            return m->sequence.rows + m->sequence.first[i];
    return m->sequence.rows;
}

static const int32_t *ghost_rows(const struct ghost *g, const float *gradient)
{
    static const char *const token[] = {"mlm.", "head.", "wte."}, *const sequence[] = {"pooler.",
                                                                                       "pair.",
                                                                                       "classes."};
    const struct model *m = g->clip->m;
    const char *name = ghost_tensor(g, gradient)->name;
    for (size_t i = 0; i < 3; i++) {
        if (!strncmp(name, token[i], strlen(token[i])))
            return m->token.mlm ? m->token.rows : NULL;
        if (!strncmp(name, sequence[i], strlen(sequence[i])))
            return ghost_sequence_rows(m, gradient);
    }
    return NULL;
}

static int32_t ghost_record(const struct ghost *g, const int32_t *rows, size_t row)
{
    if (!rows)
        return g->record_at[row];
    return rows[row] < 0 ? -1 : g->record_at[rows[row]];
}

/* The next span; begins with one that is all 0. rows: which rows of the batch the op has; NULL:
 * all. */
static bool next_span(const struct ghost *g, const int32_t *rows, size_t T, struct span *s)
{
    s->first += s->count;
    if (s->first == T)
        return false;
    s->record = ghost_record(g, rows, s->first);
    s->count = 1;
    while (s->first + s->count < T && ghost_record(g, rows, s->first + s->count) == s->record)
        s->count++;
    return true;
}

static void add_square(struct ghost *g, int32_t record, const float *x, size_t count)
{
    double square;
    g->real->sumsq(g->clip->dev, &square, x, count);
    g->squares[record] += square;
}

static const float *rows_from(const void *x, size_t row, size_t width)
{
    return x ? (const float *)x + row * width : NULL;
}

static float *rows_to(void *x, size_t row, size_t width)
{
    return x ? (float *)x + row * width : NULL;
}

/* ---- linear layers ---- */
static bool pairs_are_cheaper(size_t T, size_t K, size_t N)
{
    return (double)T * (double)(K + N) < (double)K * (double)N;
}

/* (T, T): the products of the rows of x (T, width). */
static void pair_products(const struct ghost *g, float *to, const void *x, size_t T, size_t width)
{
    const struct dev_linear a = {.x = x, .w = x, .T = T, .K = width, .N = T};
    g->real->logits(g->clip->dev, to, &a);
}

static double pairs_square(const struct ghost *g, const struct dev_linear *a, const void *dy)
{
    double sum = 0;
    ASSERT(a->T <= g->pairs_rows);
    pair_products(g, g->pairs[0], a->x, a->T, a->K);
    pair_products(g, g->pairs[1], dy, a->T, a->N);
    for (size_t i = 0; i < a->T; i++) {
        const float *x = g->pairs[0] + i * a->T, *y = g->pairs[1] + i * a->T;
        double row = (double)x[i] * (double)y[i];
        for (size_t j = 0; j < i; j++)
            row += 2 * (double)x[j] * (double)y[j];
        sum += row;
    }
    return sum;
}

/* One record; its gradients go to kept memory, or become squares. */
static void linear_record(struct ghost *g, const struct dev_linear *a,
                          const struct dev_linear_grad *all, struct dev_linear_grad *own,
                          int32_t record)
{
    struct dev *d = g->clip->dev;
    own->dbias = ghost_kept(g, all->dbias, record);
    own->pre_dbias = ghost_kept(g, all->pre_dbias, record);
    own->dw = ghost_kept(g, all->dw, record);
    bool kept = own->dw || record < 0, pairs = !kept && pairs_are_cheaper(a->T, a->K, a->N);
    if (!kept && !pairs) {
        own->dw = g->matrix;
        g->real->zero(d, own->dw, a->N * a->K * sizeof *own->dw);
    }
    g->real->linear_bwd(d, a, own);
    if (pairs)
        g->squares[record] += pairs_square(g, a, own->dy);
    else if (!kept)
        add_square(g, record, own->dw, a->N * a->K);
}

static void ghost_linear_bwd(struct dev *d, const struct dev_linear *a,
                             const struct dev_linear_grad *all)
{
    struct ghost *g = ghost_of(d);
    const int32_t *rows = ghost_rows(g, all->dw);
    for (struct span s = {0}; next_span(g, rows, a->T, &s);) {
        struct dev_linear one = *a;
        struct dev_linear_grad own = *all;
        one.T = s.count;
        one.x = rows_from(a->x, s.first, a->K);
        own.dy = rows_from(all->dy, s.first, a->N);
        own.dx = rows_to(all->dx, s.first, a->K);
        own.pre = rows_from(all->pre, s.first, a->K);
        linear_record(g, &one, all, &own, s.record);
    }
}

/* ---- biases and gains ---- */
static void ghost_activation_bwd(struct dev *d, void *dy, float *dbias,
                                 const struct dev_activation *a)
{
    struct ghost *g = ghost_of(d);
    if (!dbias) {
        g->real->activation_bwd(d, dy, NULL, a);
        return;
    }
    const int32_t *rows = ghost_rows(g, dbias);
    for (struct span s = {0}; next_span(g, rows, a->T, &s);) {
        struct dev_activation one = *a;
        one.T = s.count;
        one.pre = rows_from(a->pre, s.first, a->N);
        g->real->activation_bwd(d, rows_to(dy, s.first, a->N), ghost_kept(g, dbias, s.record),
                                &one);
    }
}

static void ghost_norm_bwd(struct dev *d, const struct dev_norm_args *a,
                           const struct dev_norm_grad *all)
{
    struct ghost *g = ghost_of(d);
    if (!all->dgain) {
        g->real->norm_bwd(d, a, all);
        return;
    }
    const int32_t *rows = ghost_rows(g, all->dgain);
    for (struct span s = {0}; next_span(g, rows, a->T, &s);) {
        struct dev_norm_args one = *a;
        struct dev_norm_grad own = *all;
        struct dev_dropout branch;
        one.T = s.count;
        one.sum = rows_to(a->sum, s.first, a->C);
        one.mean = rows_to(a->mean, s.first, 1);
        one.rstd = rows_to(a->rstd, s.first, 1);
        if (a->branch) {
            branch = *a->branch;
            branch.keys = branch.keys ? branch.keys + s.first : NULL;
            one.branch = &branch;
        }
        own.dy = rows_from(all->dy, s.first, a->C);
        own.dsum = rows_from(all->dsum, s.first, a->C);
        own.dx = rows_to(all->dx, s.first, a->C);
        own.dbranch = rows_to(all->dbranch, s.first, a->C);
        own.dgain = ghost_kept(g, all->dgain, s.record);
        own.dbias = ghost_kept(g, all->dbias, s.record);
        g->real->norm_bwd(d, &one, &own);
    }
}

/* ---- heads ---- */
/* What a row's loss counts in this pass. */
static float classifier_weight(const struct ghost *g, const float *dw, int32_t record)
{
    const struct model *m = g->clip->m;
    if (record < 0)
        return 0;
    bool of_tokens = dw == block_grad(m, m->at.head.weight);
    return (of_tokens ? clip_token_weight : clip_label_weight)(g->clip, (size_t)record) *
           (g->weighted ? g->factors[record] : 1);
}

/* Rows of A, the gradient of the head in g->matrix, of the ids of a record. */
static void keep_head_rows(struct ghost *g, int32_t record, size_t C)
{
    const struct batch *b = g->batch;
    const size_t *first = g->cut.first + record;
    for (int32_t t = b->cu_seqlens[first[0]]; t < b->cu_seqlens[first[1]]; t++)
        memcpy(g->head_rows + (size_t)t * C, g->matrix + (size_t)b->tokens[t] * C,
               C * sizeof *g->head_rows);
}

static void classifier_record(struct ghost *g, struct dev_classifier *one, int32_t record)
{
    struct dev *d = g->clip->dev;
    const float *dw = one->dw;
    if (g->weighted || record < 0) {
        if (record < 0)
            one->dw = one->dbias = NULL;
        g->real->classifier(d, one);
        return;
    }
    one->dw = g->matrix;
    one->dbias = ghost_kept(g, one->dbias, record);
    g->real->zero(d, g->matrix, one->VP * one->C * sizeof *g->matrix);
    g->real->classifier(d, one);
    add_square(g, record, g->matrix, one->VP * one->C);
    if (g->tied && dw == block_grad(g->clip->m, g->clip->m->at.embed.wte))
        keep_head_rows(g, record, one->C);
}

static void ghost_classifier(struct dev *d, const struct dev_classifier *a)
{
    struct ghost *g = ghost_of(d);
    ASSERT(a->dx && a->dw);
    const int32_t *rows = ghost_rows(g, a->dw);
    for (struct span s = {0}; next_span(g, rows, a->T, &s);) {
        struct dev_classifier one = *a;
        one.T = s.count;
        one.x = rows_from(a->x, s.first, a->C);
        one.targets = a->targets + s.first;
        one.losses = a->losses + s.first;
        one.dx = rows_to(a->dx, s.first, a->C);
        one.grad_scale = a->grad_scale * classifier_weight(g, a->dw, s.record);
        classifier_record(g, &one, s.record);
    }
}

/* ---- embedding tables ---- */
static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double dot(const float *a, const float *b, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Square of the sum of rows of dx (.., C), whose numbers are in the low half of `rows`. */
static double rows_square(const uint64_t *rows, size_t count, const float *dx, size_t C)
{
    const float *first = dx + (size_t)(uint32_t)rows[0] * C;
    double square = 0;
    if (count == 1)
        return dot(first, first, C);
    for (size_t c = 0; c < C; c++) {
        double sum = 0;
        for (size_t i = 0; i < count; i++)
            sum += (double)dx[(size_t)(uint32_t)rows[i] * C + c];
        square += sum * sum;
    }
    return square;
}

/* Square of the gradient of a table: rows of dx (count, C) with one key are added first. */
static double table_square(struct ghost *g, const int32_t *keys, const float *dx, size_t count,
                           size_t C)
{
    double square = 0;
    for (size_t i = 0; i < count; i++)
        g->order[i] = (uint64_t)(uint32_t)keys[i] << 32 | i;
    qsort(g->order, count, sizeof *g->order, compare_u64);
    for (size_t from = 0, to; from < count; from = to) {
        for (to = from + 1; to < count && g->order[to] >> 32 == g->order[from] >> 32;)
            to++;
        square += rows_square(g->order + from, to - from, dx, C);
    }
    return square;
}

static void ghost_embed_bwd(struct dev *d, const struct dev_embed *a,
                            const struct dev_embed_grad *all)
{
    struct ghost *g = ghost_of(d);
    for (struct span s = {0}; next_span(g, NULL, a->T, &s);) {
        const float *dx = rows_from(all->dx, s.first, a->C);
        if (s.record < 0)
            continue;
        double square = table_square(g, a->tokens + s.first, dx, s.count, a->C);
        if (g->tied)
            square += 2 * dot(g->head_rows + s.first * a->C, dx, s.count * a->C);
        if (all->dwpe)
            square += table_square(g, a->positions + s.first, dx, s.count, a->C);
        if (all->dwtt)
            square += table_square(g, a->types + s.first, dx, s.count, a->C);
        g->squares[s.record] += square;
    }
}

/* ---- the two passes ---- */
static void number_records(struct ghost *g, const struct batch *b)
{
    for (size_t t = 0; t < b->tokens_count; t++)
        g->record_at[t] = -1;
    for (size_t r = 0; r < g->cut.records; r++)
        for (int32_t t = b->cu_seqlens[g->cut.first[r]]; t < b->cu_seqlens[g->cut.first[r + 1]];
             t++)
            g->record_at[t] = (int32_t)r;
}

static enum err ghost_pass(struct ghost *g, const struct batch *b, bool weighted)
{
    struct clip *c = g->clip;
    struct batch one = *b;
    g->ops = *g->real;
    g->ops.classifier = ghost_classifier;
    if (!weighted) {
        g->ops.linear_bwd = ghost_linear_bwd;
        g->ops.activation_bwd = ghost_activation_bwd;
        g->ops.norm_bwd = ghost_norm_bwd;
        g->ops.embed_bwd = ghost_embed_bwd;
    }
    batch_weigh(&one, 1);
    g->batch = &one;
    g->weighted = weighted;
    number_records(g, b);
    c->dev->ops = &g->ops;
    enum err e = model_accumulate(c->m, &one, 1, NULL, c->loss);
    c->dev->ops = g->real;
    g->batch = NULL;
    return e;
}

static enum err ghost_norms(struct ghost *g, const struct batch *b)
{
    struct clip *c = g->clip;
    size_t records = c->cut.records;
    g->cut = c->cut;
    memset(g->squares, 0, records * sizeof *g->squares);
    g->real->zero(c->dev, g->kept, records * g->kept_count * sizeof *g->kept);
    if (g->tied) /* a record without targets has no A */
        g->real->zero(c->dev, g->head_rows, b->tokens_count * c->m->form.E * sizeof *g->head_rows);
    TRY(ghost_pass(g, b, false));
    for (size_t i = 0; i < records; i++) {
        add_square(g, (int32_t)i, g->kept + i * g->kept_count, g->kept_count);
        c->norms[i] = sqrt(fmax(g->squares[i], 0)); /* rounding of 2 <A, B> may end below 0 */
        if (!isfinite(g->squares[i]))
            c->norms[i] = INFINITY; /* fmax drops a NaN */
    }
    return ERR_OK;
}

/* Records of factor 0 are left out of the batch: 0 times a value that is not finite is none. */
enum err clip_ghost(struct clip *c, const struct batch *b)
{
    struct ghost *g = c->ghost;
    size_t count = 0;
    TRY(ghost_norms(g, b));
    batch_clear(&c->own);
    for (size_t r = 0; r < c->cut.records; r++) {
        double factor = clip_factor(c, c->norms[r]);
        if (factor <= 0)
            continue;
        for (size_t i = c->cut.first[r]; i < c->cut.first[r + 1]; i++)
            batch_take(&c->own, b, i);
        g->factors[count] = (float)factor;
        c->targets[count] = c->targets[r];
        c->labels[count] = c->labels[r];
        g->own_first[++count] = c->own.sequences;
    }
    g->cut = (struct clip_cut){g->own_first, count};
    return count ? ghost_pass(g, &c->own, true) : ERR_OK;
}

/* ---- memory ---- */
struct ghost_sizes { /* elements */
    size_t kept, matrix, rows, pairs_rows;
};

/* No product of rows is made for more rows than pairs_are_cheaper allows. */
static size_t most_pairs(const struct table *t, size_t rows)
{
    size_t most = 0;
    for (size_t i = 0; i < t->count; i++) {
        size_t N = (size_t)t->tensors[i].shape[0], K = (size_t)t->tensors[i].shape[1],
               T = N * K / (N + K) + 1;
        most = T > most ? T : most;
    }
    return most < rows ? most : rows;
}

static struct ghost_sizes sizes_of(const struct settings *s, const struct table *t,
                                   const struct clip_options *o)
{
    struct ghost_sizes z = {.pairs_rows = most_pairs(t, o->record_max * o->sequence)};
    for (size_t i = 0; i < t->count; i++) {
        const struct tensor *x = &t->tensors[i];
        if (ghost_keeps(s, x))
            z.kept += ghost_room(x);
        else if (x->count > z.matrix)
            z.matrix = x->count;
    }
    z.rows = s->model_tie_embeddings ? table_embed(s) : 0;
    return z;
}

size_t clip_ghost_plan(const struct settings *s, const struct table *t,
                       const struct clip_options *o)
{
    struct ghost_sizes z = sizes_of(s, t, o);
    return sizeof(float) * (o->sequences_max * z.kept + z.matrix +
                            (o->sequences_max * o->sequence + BATCH_UNIT) * z.rows +
                            2 * z.pairs_rows * z.pairs_rows);
}

static void place_kept(struct ghost *g)
{
    const struct table *t = g->clip->o.table;
    for (size_t i = 0; i < t->count; i++) {
        g->kept_at[i] = NONE;
        if (!ghost_keeps(g->clip->m->settings, &t->tensors[i]))
            continue;
        g->kept_at[i] = (ptrdiff_t)g->kept_count;
        g->kept_count += ghost_room(&t->tensors[i]);
    }
}

enum err clip_ghost_open(struct clip *c, struct arena *perm)
{
    const struct settings *s = c->m->settings;
    struct ghost_sizes z = sizes_of(s, c->o.table, &c->o);
    size_t R = c->o.sequences_max, S = c->o.sequence, T = R * S + BATCH_UNIT;
    struct ghost *g;
    TRY_ALLOC(g = c->ghost = arena_alloc(perm, sizeof *g));
    g->clip = c;
    g->real = c->dev->ops;
    g->tied = s->model_tie_embeddings;
    g->pairs_rows = z.pairs_rows;
    TRY_ALLOC(g->squares = arena_array(perm, R, sizeof *g->squares));
    TRY_ALLOC(g->factors = arena_array(perm, R, sizeof *g->factors));
    TRY_ALLOC(g->record_at = arena_array(perm, T, sizeof *g->record_at));
    TRY_ALLOC(g->own_first = arena_array(perm, R + 1, sizeof *g->own_first));
    TRY_ALLOC(g->order = arena_array(perm, c->o.record_max * S, sizeof *g->order));
    TRY_ALLOC(g->kept_at = arena_array(perm, c->o.table->count, sizeof *g->kept_at));
    place_kept(g);
    TRY(dev_alloc(c->dev, (void **)&g->kept, R * z.kept * sizeof *g->kept));
    TRY(dev_alloc(c->dev, (void **)&g->matrix, z.matrix * sizeof *g->matrix));
    TRY(dev_alloc(c->dev, (void **)&g->head_rows, T * z.rows * sizeof *g->head_rows));
    for (int i = 0; i < 2; i++)
        TRY(dev_alloc(c->dev, (void **)&g->pairs[i],
                      z.pairs_rows * z.pairs_rows * sizeof *g->pairs[i]));
    return ERR_OK;
}

void clip_ghost_close(struct clip *c)
{
    struct ghost *g = c->ghost;
    if (!g)
        return;
    dev_free(c->dev, g->kept);
    dev_free(c->dev, g->matrix);
    dev_free(c->dev, g->head_rows);
    dev_free(c->dev, g->pairs[0]);
    dev_free(c->dev, g->pairs[1]);
    c->ghost = NULL;
}
