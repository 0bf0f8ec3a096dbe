/* SPDX-License-Identifier: Apache-2.0 */
/* The heads, after the blocks. Tokens: plain, logits = x W^T at every position (GPT), or mlm,
 * logits = norm(act(x D^T + d)) W^T + b at the positions that have a target (BERT, Devlin et al.
 * 2019, 1810.04805). Sequences: pooled = tanh(x_0 P^T + p), or with model.pooler_norm norm(act(x_0
 * P^T + p)), of the first token of each sequence that has a label, or with model.pooling = mean of
 * the mean of its tokens; logits = pooled H^T + h; H is the head of pairs, or one head for each
 * task.
 *
 * The rows of both kinds are listed on the host, filled up with -1 to a multiple of BATCH_UNIT,
 * collected on the device, and the gradient is put back where they came from.
 */
#include "inner/model/model_own.h"
#include <stdio.h>
#include <string.h>

enum { SEQUENCE_TOKENS_MIN = 2 }; /* of a sequence with a label: [CLS] and [SEP] */

static size_t rounded_up(size_t n)
{
    return (n + BATCH_UNIT - 1) / BATCH_UNIT * BATCH_UNIT;
}

void head_configure(struct model *m, const struct model_options *o)
{
    const struct settings *s = o->settings;
    struct sequence_head *h = &m->sequence;
    m->token.mlm = s->model_head == MODEL_HEAD_MLM;
    m->token.act =
        s->model_activation == MODEL_ACTIVATION_GELU ? DEV_ACT_GELU_TANH : DEV_ACT_GELU_ERF;
    m->token.max = m->token.mlm ? rounded_up(o->tokens_max) : 0;
    heads_configure(m, o);
    if (!s->model_pooler)
        return;
    h->mean = s->model_pooling == MODEL_POOLING_MEAN;
    h->act = s->model_pooler_norm ? m->token.act : DEV_ACT_TANH;
    h->tasks = s->model_classes.count ? s->model_classes.count : 1;
    h->classes[0] = 2;
    for (size_t i = 0; i < s->model_classes.count; i++)
        h->classes[i] = (size_t)keys_classes(s, i);
    h->max = rounded_up(o->tokens_max / SEQUENCE_TOKENS_MIN) + h->tasks * BATCH_UNIT;
}

void head_find_offsets(const struct model *m, struct head_offsets *h)
{
    const struct table *t = m->table;
    h->unit = slab_range(t, (int)table_layers(m->settings));
    h->weight = table_offset(t, -1, "head.weight");
    h->weight = h->weight == NONE ? table_offset(t, -1, "wte.weight") : h->weight;
    h->bias = table_offset(t, -1, "mlm.bias");
    h->dense = linear_offsets_of(t, -1, "mlm.dense");
    h->norm = norm_offsets_of(t, -1, "mlm.norm");
    h->pooler = linear_offsets_of(t, -1, "pooler");
    h->pooler_norm = norm_offsets_of(t, -1, "pooler.norm");
    for (size_t i = 0; i < m->sequence.tasks; i++) {
        char module[TABLE_NAME_MAX];
        snprintf(module, sizeof module, "classes.%zu", i);
        h->classes[i] = linear_offsets_of(t, -1, module);
    }
    if (m->sequence.tasks && h->classes[0].weight == NONE)
        h->classes[0] = linear_offsets_of(t, -1, "pair");
    h->heads[0] = h->classes[0];
    for (size_t i = 1; i < m->several.count; i++) {
        char module[TABLE_NAME_MAX];
        snprintf(module, sizeof module, "classes.0.%zu", i);
        h->heads[i] = linear_offsets_of(t, -1, module);
    }
}

/* ---- memory ---- */
void head_reserve(struct layout *l, struct model *m)
{
    struct token_head *k = &m->token;
    struct sequence_head *h = &m->sequence;
    size_t logits = m->form.V * (m->token.mlm ? MODEL_LOGIT_ROWS : 1);
    if (m->token.mlm) {
        k->in = layout_reserve(l, k->max * m->form.C * l->value);
        k->pre = layout_reserve(l, k->max * m->form.E * l->value);
        k->norm = layout_norm(l, m, k->max, m->form.E);
        k->out = layout_reserve(l, k->max * m->form.E * l->value);
    }
    if (h->tasks) {
        h->in = layout_reserve(l, h->max * m->form.C * l->value);
        h->pre = layout_reserve(l, h->max * m->form.C * l->value);
        h->out = layout_reserve(l, h->max * m->form.C * l->value);
        h->norm = m->at.head.pooler_norm.gain != NONE ? layout_norm(l, m, h->max, m->form.C)
                                                      : (struct norm_saved){0};
        h->dx = m->form.train ? layout_reserve(l, h->max * m->form.C * l->value) : NULL;
        h->losses = layout_reserve(l, h->max * sizeof *h->losses);
    }
    heads_reserve(l, m);
    for (size_t i = 0; i < h->tasks; i++)
        logits =
            m->several.count * h->classes[i] > logits ? m->several.count * h->classes[i] : logits;
    m->token.logits = layout_reserve(l, logits * sizeof *m->token.logits);
}

void head_reserve_batch(struct layout *l, struct model *m)
{
    if (m->token.mlm) {
        m->token.rows = layout_reserve(l, m->token.max * sizeof *m->token.rows);
        m->token.targets = layout_reserve(l, m->token.max * sizeof *m->token.targets);
    }
    if (m->sequence.tasks) {
        m->sequence.rows = layout_reserve(l, m->sequence.max * sizeof *m->sequence.rows);
        m->sequence.targets = layout_reserve(l, m->sequence.max * sizeof *m->sequence.targets);
        heads_reserve_batch(l, m);
    }
    if (m->sequence.mean)
        m->sequence.lengths = layout_reserve(l, m->sequence.max * sizeof *m->sequence.lengths);
}

/* ---- the rows of a batch ---- */
struct rows_list { /* in the upload buffer */
    int32_t *rows, *targets;
    size_t count;
};

static struct rows_list rows_list(const struct model *m, const struct upload *u,
                                  const int32_t *rows, const int32_t *targets)
{
    return (struct rows_list){staged(m, u, rows), staged(m, u, targets), 0};
}

static void rows_add(struct rows_list *l, size_t row, int32_t target)
{
    l->rows[l->count] = (int32_t)row;
    l->targets[l->count++] = target;
}

static void rows_fill_up(struct rows_list *l)
{
    while (l->count % BATCH_UNIT) {
        l->rows[l->count] = -1;
        l->targets[l->count++] = -1;
    }
}

static int32_t sequence_length(const struct batch *b, size_t i)
{
    return b->cu_seqlens[i + 1] - b->cu_seqlens[i];
}

void head_stage(struct model *m, const struct batch *b, const struct upload *u, float grad_scale)
{
    struct sequence_head *h = &m->sequence;
    m->token.count = m->token.mlm ? 0 : batch_targets(b);
    if (m->token.mlm) {
        struct rows_list l = rows_list(m, u, m->token.rows, m->token.targets);
        for (size_t i = 0; i < b->tokens_count; i++)
            if (b->targets[i] >= 0)
                rows_add(&l, i, b->targets[i]);
        rows_fill_up(&l);
        ASSERT(l.count <= m->token.max);
        m->token.count = l.count;
    }
    if (!h->tasks)
        return;
    struct rows_list l = rows_list(m, u, h->rows, h->targets);
    int32_t *lengths = h->mean ? staged(m, u, h->lengths) : NULL;
    ASSERT(batch_labels(b) <= m->form.tokens_max / SEQUENCE_TOKENS_MIN);
    for (size_t task = 0; task < h->tasks; task++) {
        h->first[task] = l.count;
        for (size_t i = 0; i < b->sequences; i++) {
            ASSERT(b->tasks[i] >= 0 && (size_t)b->tasks[i] < h->tasks);
            ASSERT(b->labels[i] < (int32_t)h->classes[b->tasks[i]]);
            if (b->labels[i] < 0 || (size_t)b->tasks[i] != task)
                continue;
            if (lengths)
                lengths[l.count] = sequence_length(b, i);
            rows_add(&l, (size_t)b->cu_seqlens[i], b->labels[i]);
        }
        rows_fill_up(&l);
    }
    h->first[h->tasks] = l.count;
    heads_stage(m, b, u, grad_scale);
}

size_t head_key(const struct model *m, const struct batch *b, size_t i)
{
    uint32_t weight;
    memcpy(&weight, &b->sequence_weight, sizeof weight);
    size_t dropped = 0;
    if (i == 0)
        return m->token.mlm ? m->token.count : m->token.count > 0;
    for (size_t k = 0; k < m->several.count; k++)
        dropped |= (size_t)m->several.dropped[k] << k;
    if (i == HEAD_KEYS - 1)
        return dropped;
    return i == 1                      ? (m->sequence.tasks ? weight : 0)
           : i - 2 < m->sequence.tasks ? m->sequence.first[i - 1]
                                       : 0;
}

/* ---- forward ---- */
static struct norm_run head_norm(const struct model *m, size_t R)
{
    return (struct norm_run){m->at.head.norm, m->token.norm, R, m->form.E, DROPOUT_NONE};
}

static struct dev_linear dense_args(const struct model *m, size_t R)
{
    struct dev_linear a = linear_args(m, m->at.head.dense, m->token.in, R, m->form.C, m->form.E);
    a.act = m->token.act;
    a.pre = m->token.pre;
    return a;
}

static struct dev_linear pooler_args(const struct model *m, size_t S)
{
    struct dev_linear a =
        linear_args(m, m->at.head.pooler, m->sequence.in, S, m->form.C, m->form.C);
    a.act = m->sequence.act;
    a.pre = m->sequence.pre;
    return a;
}

static struct norm_run pooler_norm(const struct model *m, size_t S)
{
    return (struct norm_run){m->at.head.pooler_norm, m->sequence.norm, S, m->form.C, DROPOUT_NONE};
}

/* R rows of head_in, up to what the classifier reads. */
static void mlm_rows_fwd(struct model *m, size_t R, size_t T)
{
    struct dev *d = m->dev;
    const struct dev_rows rows = {.rows = m->token.rows, .R = R, .T = T, .C = m->form.C};
    struct dev_linear dense = dense_args(m, R);
    struct norm_run norm = head_norm(m, R);
    d->ops->rows_gather(d, m->token.in, m->live.head_in, &rows);
    d->ops->linear_fwd(d, m->token.norm.residual, &dense);
    block_norm_fwd(m, &norm, m->token.out, m->token.norm.residual, NULL);
    block_profile(m, PROFILE_CLASSIFIER);
}

static struct dev_rows pooled_rows(const struct model *m, size_t S, size_t T)
{
    const struct sequence_head *h = &m->sequence;
    return (struct dev_rows){
        .rows = h->rows, .lengths = h->lengths, .R = S, .T = T, .C = m->form.C};
}

static void pooler_rows_fwd(struct model *m, size_t S, size_t T)
{
    struct dev *d = m->dev;
    const struct dev_rows rows = pooled_rows(m, S, T);
    struct dev_linear pooler = pooler_args(m, S);
    d->ops->rows_gather(d, m->sequence.in, m->live.head_in, &rows);
    if (m->at.head.pooler_norm.gain == NONE) {
        d->ops->linear_fwd(d, m->sequence.out, &pooler);
    } else {
        struct norm_run norm = pooler_norm(m, S);
        d->ops->linear_fwd(d, m->sequence.norm.residual, &pooler);
        block_norm_fwd(m, &norm, m->sequence.out, m->sequence.norm.residual, NULL);
    }
    block_profile(m, PROFILE_CLASSIFIER);
}

void *head_dx(const struct model *m)
{
    return m->form.post || m->at.final_norm.gain != NONE ? m->live.dx : m->live.dresidual;
}

static void tokens_fwd(struct model *m, const struct head_pass *p)
{
    size_t T = p->batch->tokens_count, R = m->token.mlm ? m->token.count : T;
    void *dx = m->token.mlm ? other_gradient(m, head_dx(m)) : head_dx(m);
    if (m->token.mlm)
        mlm_rows_fwd(m, R, T);
    bool learns = m->at.head.weight != m->at.embed.wte || embed_learns(m);
    struct dev_classifier c = {.x = m->token.mlm ? m->token.out : m->live.head_in,
                               .w = block_weight(m, m->at.head.weight),
                               .bias = block_param(m, m->at.head.bias),
                               .targets = m->token.mlm ? m->token.targets : m->batch.targets,
                               .T = R,
                               .C = m->form.E,
                               .V = m->form.V,
                               .VP = m->form.VP,
                               .grad_scale = p->grad_scale,
                               .losses = m->live.losses,
                               .dx = p->gradients ? dx : NULL,
                               .dw =
                                   p->gradients && learns ? block_grad(m, m->at.head.weight) : NULL,
                               .dbias = p->gradients ? block_grad(m, m->at.head.bias) : NULL};
    m->dev->ops->classifier(m->dev, &c);
    m->dev->ops->sum_add(m->dev, p->loss + MODEL_LOSS_TOKEN, m->live.losses, R);
    block_profile(m, PROFILE_CLASSIFIER);
}

static void *sequence_row(const struct model *m, void *base, size_t row)
{
    return (char *)base + row * m->form.C * dtype_size(m->dev->model_type);
}

struct dev_classifier head_task_args(const struct model *m, const struct head_pass *p, size_t task,
                                     struct linear_offsets at)
{
    const struct sequence_head *h = &m->sequence;
    size_t first = h->first[task], rows = h->first[task + 1] - first;
    return (struct dev_classifier){.x = sequence_row(m, h->out, first),
                                   .w = block_weight(m, at.weight),
                                   .bias = block_param(m, at.bias),
                                   .targets = h->targets + first,
                                   .T = rows,
                                   .C = m->form.C,
                                   .V = h->classes[task],
                                   .VP = table_classes_padded(h->classes[task]),
                                   .grad_scale = p->grad_scale * p->batch->sequence_weight,
                                   .losses = h->losses + first,
                                   .dx = p->gradients ? sequence_row(m, h->dx, first) : NULL,
                                   .dw = p->gradients ? block_grad(m, at.weight) : NULL,
                                   .dbias = p->gradients ? block_grad(m, at.bias) : NULL};
}

static void task_fwd(struct model *m, const struct head_pass *p, size_t task)
{
    struct dev_classifier c = head_task_args(m, p, task, m->at.head.classes[task]);
    if (c.T)
        m->dev->ops->classifier(m->dev, &c);
}

static size_t sequence_rows(const struct model *m)
{
    return m->sequence.first[m->sequence.tasks];
}

void head_fwd(struct model *m, const struct head_pass *p)
{
    /* A model without a pooler has token targets or none at all: one path for it. */
    if (m->token.count || (!m->token.mlm && !m->sequence.tasks))
        tokens_fwd(m, p);
    if (!m->sequence.tasks || !sequence_rows(m))
        return;
    pooler_rows_fwd(m, sequence_rows(m), p->batch->tokens_count);
    if (m->several.count > 1) {
        heads_fwd(m, p);
    } else {
        for (size_t i = 0; i < m->sequence.tasks; i++)
            task_fwd(m, p, i);
        m->dev->ops->sum_add(m->dev, p->loss + MODEL_LOSS_SEQUENCE, m->sequence.losses,
                             sequence_rows(m));
    }
    block_profile(m, PROFILE_CLASSIFIER);
}

/* ---- backward ---- */
/* From the gradient of the pooler's output, m->sequence.dx, to that of its input, which is
 * returned: two buffers in turn. */
static void *pooler_bwd(struct model *m, size_t S)
{
    const struct sequence_head *h = &m->sequence;
    struct dev_linear pooler = pooler_args(m, S);
    const struct dev_activation a = {h->act, h->pre, S, m->form.C};
    void *dy = h->dx, *dx = h->out;
    if (m->at.head.pooler_norm.gain != NONE) {
        struct norm_run norm = pooler_norm(m, S);
        block_norm_bwd(m, &norm, h->out, h->dx, NULL);
        dy = h->out;
        dx = h->dx;
    }
    m->dev->ops->activation_bwd(m->dev, dy, block_grad(m, m->at.head.pooler.bias), &a);
    struct linear_gradient g = {{m->at.head.pooler.weight, NONE}, dx, dy, PROFILE_CLASSIFIER};
    linear_bwd(m, &pooler, &g);
    return dx;
}

/* From the gradient of the classifier's input to that of head_in, in head_dx. */
static void mlm_rows_bwd(struct model *m, size_t T)
{
    struct dev *d = m->dev;
    size_t R = m->token.count;
    void *to = head_dx(m), *from = other_gradient(m, to);
    const struct dev_rows rows = {.rows = m->token.rows, .R = R, .T = T, .C = m->form.C};
    if (R) {
        struct norm_run norm = head_norm(m, R);
        struct dev_linear dense = dense_args(m, R);
        const struct dev_activation a = {m->token.act, m->token.pre, R, m->form.E};
        block_norm_bwd(m, &norm, to, from, NULL);
        d->ops->activation_bwd(d, to, block_grad(m, m->at.head.dense.bias), &a);
        struct linear_gradient g = {{m->at.head.dense.weight, NONE}, from, to, PROFILE_CLASSIFIER};
        linear_bwd(m, &dense, &g);
    }
    d->ops->rows_scatter(d, to, from, &rows);
    block_profile(m, PROFILE_CLASSIFIER);
}

void head_bwd(struct model *m, const struct batch *b)
{
    size_t T = b->tokens_count, S = m->sequence.tasks ? sequence_rows(m) : 0;
    const struct sequence_head *h = &m->sequence;
    const void *dpooler_in = S ? pooler_bwd(m, S) : h->out;
    if (m->token.mlm)
        mlm_rows_bwd(m, T);
    struct dev_rows rows = pooled_rows(m, S, T);
    rows.add = m->token.mlm || m->token.count;
    if (!h->tasks)
        return;
    m->dev->ops->rows_scatter(m->dev, head_dx(m), dpooler_in, &rows);
    block_profile(m, PROFILE_CLASSIFIER);
}

/* ---- logits ---- */
static void put_number(struct model *m, int32_t *to, size_t n)
{
    const int32_t number = (int32_t)n;
    m->dev->ops->copy(m->dev, to, &number, sizeof number);
}

static void put_logits(struct model *m, const void *x, size_t R)
{
    struct dev_linear a = {.x = x,
                           .w = block_weight(m, m->at.head.weight),
                           .bias = block_param(m, m->at.head.bias),
                           .T = R,
                           .K = m->form.E,
                           .N = m->form.V};
    m->dev->ops->logits(m->dev, m->token.logits, &a);
}

size_t head_token_logits(struct model *m, const size_t *rows, size_t count, size_t T)
{
    int32_t list[MODEL_LOGIT_ROWS];
    size_t R = count > 1 ? MODEL_LOGIT_ROWS : 1; /* one shape, since plans are cached by it */
    ASSERT(count > 0 && count <= MODEL_LOGIT_ROWS);
    if (!m->token.mlm) {
        put_logits(
            m, (const char *)m->live.head_in + *rows * m->form.C * dtype_size(m->dev->model_type),
            1);
        return 1;
    }
    for (size_t i = 0; i < R; i++)
        list[i] = i < count ? (int32_t)rows[i] : -1;
    m->dev->ops->copy(m->dev, m->token.rows, list, R * sizeof *list);
    mlm_rows_fwd(m, R, T);
    put_logits(m, m->token.out, R);
    return count;
}

void head_class_logits(struct model *m, const struct batch *b, size_t sequence, size_t task)
{
    const struct sequence_head *h = &m->sequence;
    ASSERT(task < h->tasks);
    put_number(m, m->sequence.rows, (size_t)b->cu_seqlens[sequence]);
    if (h->mean)
        put_number(m, m->sequence.lengths, (size_t)sequence_length(b, sequence));
    pooler_rows_fwd(m, 1, b->tokens_count);
    for (size_t i = 0; i < m->several.count; i++) {
        struct linear_offsets at =
            m->several.count > 1 ? m->at.head.heads[i] : m->at.head.classes[task];
        struct dev_linear a = linear_args(m, at, h->out, 1, m->form.C, h->classes[task]);
        m->dev->ops->logits(m->dev, m->token.logits + i * h->classes[task], &a);
    }
}
