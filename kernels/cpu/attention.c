/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over packed sequences: one task per (sequence, head); backward, where the query heads
 * of a kv head add their gradients in order, one per (sequence, kv head). Tasks are independent, so
 * the bits do not depend on which thread runs which task.
 *
 * Two implementations of a task:
 * - attend.c, loops of our own in f32: f32 models, sequences shorter than BLOCK, and processors on
 *   which the library has no bf16 matrix products. Speed: the f32 peak of the processor.
 * - this file, matrix products of the library in bf16: twice the rate on Zen 4 and more with AMX.
 *   Forward: blocks of BLOCK queries against the keys they attend to. Backward: blocks of BLOCK
 *   keys against the queries that attend to them (dk and dv are then one product of each head, dq
 *   is summed over blocks). The head is copied first, padded to whole blocks: a few shapes then
 *   serve all lengths, and products of dense rows gain more than the copy costs (16 x 256 tokens, 8
 *   heads of 64, causal, one core of Zen 4, forward + backward: 38.7 ms with copies, 41.6 in place;
 *   own loops 44.8. Blocks of 32 or 128: 5 % slower).
 *
 * The other side of a product is a run of at most BLOCKS_MAX blocks, so scores stay in L2 and a
 * sequence of any length needs few shapes. A window takes the blocks within reach only. Where a
 * query attends to several runs of keys, forward joins their outputs by the log-sum-exp.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul.h"
#include <math.h>
#include <omp.h>

enum { BLOCK = 64, BLOCKS_MAX = 32 };
/* Backward, SCORES serves q k^T and dout v^T, DV serves p^T dout and ds^T q; FIRST overwrites the
 * sum, NEXT adds to it. OUT_RUN: output of one run of keys, f32. */
enum { SCORES, OUT, OUT_RUN, DV_FIRST, DV_NEXT, DQ_FIRST, DQ_NEXT, PRODUCTS };

struct products { /* by blocks of the long side, 1 .. BLOCKS_MAX */
    struct primitive *run[BLOCKS_MAX + 1][PRODUCTS];
};

struct tasks {
    struct cpu *c;
    const struct rows_attention *r;
    struct products *products; /* NULL: own loops only */
    char *buf;                 /* per thread */
    size_t bytes;
    bool backward;
};

static size_t length_of(const struct dev_attention *a, size_t s)
{
    return (size_t)(a->cu_seqlens_host[s + 1] - a->cu_seqlens_host[s]);
}

static size_t blocks_of(size_t length)
{
    return (length + BLOCK - 1) / BLOCK;
}

static bool by_library(size_t length)
{
    return length >= BLOCK;
}

struct span { /* blocks first .. end */
    size_t first, end;
};

static struct span span_of(size_t first, size_t end) /* of tokens */
{
    return (struct span){first / BLOCK, blocks_of(end)};
}

/* Key blocks to which the queries of block i attend. */
static struct span keys_seen(const struct dev_attention *a, size_t length, size_t i)
{
    size_t first = i * BLOCK, end = first + BLOCK, reach = dev_attention_reach(a);
    size_t last = a->causal ? end : end + reach;
    return span_of(first > reach ? first - reach : 0, last < length ? last : length);
}

/* Query blocks that attend to the keys of block j. */
static struct span queries_seeing(const struct dev_attention *a, size_t length, size_t j)
{
    size_t first = j * BLOCK, reach = dev_attention_reach(a), last = first + BLOCK + reach;
    size_t from = a->causal ? first : first > reach ? first - reach : 0;
    return span_of(from, last < length ? last : length);
}

/* Blocks of the run that begins at `first`. */
static size_t run_blocks(const struct span *s, size_t first)
{
    return s->end - first < BLOCKS_MAX ? s->end - first : BLOCKS_MAX;
}

/* ---- the library products, created before the tasks ---- */

/* The long side is n = BLOCK * blocks; copies of the head have rows of HD. */
static struct product product_of(int which, size_t blocks, size_t HD, bool backward)
{
    size_t n = BLOCK * blocks;
    struct product p = {.in = DTYPE_BF16, .out = DTYPE_F32, .lda = HD, .ldb = HD, .ldc = HD};
    if (which == SCORES) {
        p.M = backward ? n : BLOCK, p.N = backward ? BLOCK : n, p.K = HD;
        p.ldc = p.N, p.b_t = true;
    } else if (which == OUT || which == OUT_RUN) {
        p.M = BLOCK, p.N = HD, p.K = n, p.lda = n;
        p.out = which == OUT ? DTYPE_BF16 : DTYPE_F32;
    } else if (which == DV_FIRST || which == DV_NEXT) {
        p.M = BLOCK, p.N = HD, p.K = n, p.lda = BLOCK, p.a_t = true;
    } else {
        p.M = n, p.N = HD, p.K = BLOCK, p.lda = BLOCK;
    }
    p.accumulate = which == DV_NEXT || which == DQ_NEXT;
    return p;
}

/* Creates products `first` .. `last` of a run of `blocks`; false: the library has none. */
static bool products_make(struct tasks *t, size_t blocks, int first, int last)
{
    struct primitive **run = t->products->run[blocks];
    for (int i = first; i <= last; i++) {
        if (run[i])
            continue;
        struct product p = product_of(i, blocks, t->r->a->HD, t->backward);
        run[i] = matmul_single(t->c, &p);
        if (!run[i])
            return false;
    }
    return true;
}

/* Creates the products of all runs of a span; false: the library has none. */
static bool span_ready(struct tasks *t, struct span s)
{
    int out = s.end - s.first > BLOCKS_MAX ? OUT_RUN : OUT;
    for (size_t first = s.first; first < s.end; first += BLOCKS_MAX) {
        size_t blocks = run_blocks(&s, first);
        bool ready = products_make(t, blocks, SCORES, SCORES);
        ready = ready && (t->backward ? products_make(t, blocks, DV_FIRST, DQ_NEXT)
                                      : products_make(t, blocks, out, out));
        if (!ready)
            return false;
    }
    return true;
}

/* Creates all products that the sequences of the batch need; false: the library has none. */
static bool products_ready(struct tasks *t)
{
    const struct dev_attention *a = t->r->a;
    for (size_t s = 0; s < a->sequences; s++) {
        size_t length = length_of(a, s);
        for (size_t b = 0; by_library(length) && b < blocks_of(length); b++)
            if (!span_ready(t,
                            t->backward ? queries_seeing(a, length, b) : keys_seen(a, length, b)))
                return false;
    }
    return true;
}

/* ---- one task ---- */

struct head { /* one head of one sequence, in this thread's copies: rows of HD, blocks * BLOCK of
                 them; backward, one head after another with the same k and v */
    struct cpu *c;
    const struct rows_attention *r;
    struct primitive *(*run)[PRODUCTS]; /* by blocks */
    int thread;
    size_t length, blocks, HD;
    size_t C, stride; /* elements of a row of out, of qkv */
    size_t first;     /* token of the batch */
    uint16_t *q, *k, *v;
    uint16_t *out;     /* forward: one block */
    float *part, *sum; /* forward, (BLOCK, HD): output of one run of keys, of all runs so far */
    uint16_t *dout;    /* backward */
    struct rows_scores scores; /* s, p, and backward dp, ds, dot; lse of the head's first query */
    float *dq;                 /* backward: sum over key blocks */
    float *dk, *dv;            /* backward: sums over the heads that share them */
};

/* Number of scores of the largest product. */
static size_t side_of(size_t length)
{
    size_t blocks = blocks_of(length);
    return (blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX) * BLOCK * BLOCK;
}

static size_t head_bytes(size_t length, size_t HD, bool backward)
{
    size_t n = blocks_of(length) * BLOCK, side = side_of(length), rows = n * HD, block = BLOCK * HD;
    size_t forward_bytes = side * 6 + rows * 6 + block * 10;
    size_t backward_bytes = side * 12 + rows * 20 + n * 4;
    return (backward ? backward_bytes : forward_bytes) + 1024; /* roundings of cut() */
}

static void *cut(char **buf, size_t bytes)
{
    void *p = *buf;
    *buf += (bytes + 63) / 64 * 64;
    return p;
}

/* Copies rows with a row stride, padded with zeros to whole blocks. */
static void gather(uint16_t *to, const struct head *h, const void *base, size_t stride,
                   size_t column)
{
    size_t rows = h->blocks * BLOCK, HD = h->HD;
    const uint16_t *from = (const uint16_t *)base + h->first * stride + column;
    for (size_t i = 0; i < h->length; i++)
        memcpy(to + i * HD, from + i * stride, HD * sizeof *to);
    memset(to + h->length * HD, 0, (rows - h->length) * HD * sizeof *to);
}

/* Stores one block of out into the batch, from query i0 on. */
static void scatter(const struct head *h, size_t head, size_t i0)
{
    uint16_t *to = (uint16_t *)h->r->out + (h->first + i0) * h->C + head * h->HD;
    for (size_t i = 0; i < BLOCK && i0 + i < h->length; i++)
        memcpy(to + i * h->C, h->out + i * h->HD, h->HD * sizeof *to);
}

/* A gradient into the batch, rounded. */
static void scatter_sum(const struct head *h, size_t column, const float *from)
{
    uint16_t *to = (uint16_t *)h->r->dqkv + h->first * h->stride + column;
    for (size_t i = 0; i < h->length; i++)
        h->c->rows->convert(to + i * h->stride, DTYPE_BF16, from + i * h->HD, DTYPE_F32, h->HD);
}

/* Loads the keys and values of kv head `shared`; head_take loads the queries. */
static struct head head_make(const struct tasks *t, size_t sequence, size_t shared, int thread)
{
    const struct dev_attention *a = t->r->a;
    struct head h = {.c = t->c, .r = t->r, .run = t->products->run, .thread = thread};
    char *buf = t->buf + (size_t)thread * t->bytes;
    h.length = length_of(a, sequence);
    h.blocks = blocks_of(h.length);
    h.HD = a->HD;
    h.C = a->NH * a->HD;
    h.stride = (a->NH + 2 * a->KVH) * a->HD;
    h.first = (size_t)a->cu_seqlens_host[sequence];
    size_t side = side_of(h.length), rows = h.blocks * BLOCK * h.HD;
    h.q = cut(&buf, rows * sizeof *h.q);
    h.k = cut(&buf, rows * sizeof *h.k);
    h.v = cut(&buf, rows * sizeof *h.v);
    h.scores = (struct rows_scores){.length = h.length,
                                    .causal = a->causal,
                                    .scale = a->scale,
                                    .reach = dev_attention_reach(a)};
    h.scores.s = cut(&buf, side * sizeof(float));
    h.scores.p = cut(&buf, side * sizeof(uint16_t));
    if (t->backward) {
        h.dout = cut(&buf, rows * sizeof *h.dout);
        h.scores.dp = cut(&buf, side * sizeof(float));
        h.scores.ds = cut(&buf, side * sizeof(uint16_t));
        h.scores.dot = cut(&buf, h.length * sizeof(float));
        h.dq = cut(&buf, rows * sizeof *h.dq);
        h.dk = cut(&buf, rows * sizeof *h.dk);
        h.dv = cut(&buf, rows * sizeof *h.dv);
    } else {
        h.out = cut(&buf, BLOCK * h.HD * sizeof *h.out);
        h.part = cut(&buf, BLOCK * h.HD * sizeof *h.part);
        h.sum = cut(&buf, BLOCK * h.HD * sizeof *h.sum);
    }
    gather(h.k, &h, a->qkv, h.stride, h.C + shared * h.HD);
    gather(h.v, &h, a->qkv, h.stride, h.C + (a->KVH + shared) * h.HD);
    return h;
}

/* The queries of this head. */
static void head_take(struct head *h, size_t head)
{
    const struct dev_attention *a = h->r->a;
    gather(h->q, h, a->qkv, h->stride, head * h->HD);
    h->scores.lse = a->lse + head * a->T + h->first;
}

static enum err multiply(const struct head *h, size_t blocks, int which, const void *a,
                         const void *b, void *out)
{
    return matmul_single_run(h->c, h->run[blocks][which], h->thread, a, b, out);
}

/* Attention of the query block over `blocks` key blocks from `first` on. Writes h->out (which: OUT)
 * or h->part (OUT_RUN), and s->lse (BLOCK). */
static enum err run_fwd(const struct head *h, struct rows_scores *s, size_t first, size_t blocks,
                        int which)
{
    size_t key = first * BLOCK * h->HD;
    s->column0 = first * BLOCK;
    TRY(multiply(h, blocks, SCORES, h->q + s->row0 * h->HD, h->k + key, s->s));
    h->c->rows->scores_fwd(s, BLOCK, blocks * BLOCK);
    return multiply(h, blocks, which, s->p, h->v + key,
                    which == OUT ? (void *)h->out : (void *)h->part);
}

/* Joins h->sum and lse, of the runs so far, with h->part and of_run, of the next run: the weight of
 * each is its share of the sum of exponentials. lse -INFINITY: the query attends to no key. */
static void run_join(const struct head *h, float *lse, const float *of_run)
{
    for (size_t i = 0; i < BLOCK; i++) {
        float top = lse[i] > of_run[i] ? lse[i] : of_run[i];
        if (top == -INFINITY)
            continue;
        float old = expf(lse[i] - top), now = expf(of_run[i] - top), all = old + now;
        float *sum = h->sum + i * h->HD;
        const float *part = h->part + i * h->HD;
        for (size_t j = 0; j < h->HD; j++)
            sum[j] = sum[j] * (old / all) + part[j] * (now / all);
        lse[i] = top + logf(all);
    }
}

/* Attention of the query block over several runs of keys. */
static enum err runs_fwd(const struct head *h, struct rows_scores *s, const struct span *keys)
{
    float lse[BLOCK], of_run[BLOCK], *to = s->lse;
    memset(h->sum, 0, BLOCK * h->HD * sizeof *h->sum);
    for (size_t i = 0; i < BLOCK; i++)
        lse[i] = -INFINITY;
    s->lse = of_run;
    for (size_t first = keys->first; first < keys->end; first += BLOCKS_MAX) {
        for (size_t i = 0; i < BLOCK; i++)
            of_run[i] = -INFINITY;
        TRY(run_fwd(h, s, first, run_blocks(keys, first), OUT_RUN));
        run_join(h, lse, of_run);
    }
    h->c->rows->convert(h->out, DTYPE_BF16, h->sum, DTYPE_F32, BLOCK * h->HD);
    for (size_t i = 0; i < BLOCK && s->row0 + i < h->length; i++)
        to[i] = lse[i];
    return ERR_OK;
}

static enum err head_fwd(struct head *h, size_t head)
{
    head_take(h, head);
    for (size_t i = 0; i < h->blocks; i++) {
        struct rows_scores s = h->scores;
        struct span keys = keys_seen(h->r->a, h->length, i);
        s.row0 = i * BLOCK;
        s.lse += s.row0;
        if (keys.end - keys.first <= BLOCKS_MAX)
            TRY(run_fwd(h, &s, keys.first, keys.end - keys.first, OUT));
        else
            TRY(runs_fwd(h, &s, &keys));
        scatter(h, head, s.row0);
    }
    return ERR_OK;
}

/* Key block j against n query blocks from `from` on; first: overwrites dk and dv of the block. */
static enum err key_block(const struct head *h, size_t j, size_t from, size_t n, bool first)
{
    struct rows_scores s = h->scores;
    bool whole =
        s.reach == DEV_REACH_ALL; /* then key block 0 comes first and writes dq of all queries */
    size_t key = j * BLOCK * h->HD;
    int dv = first ? DV_FIRST : DV_NEXT, dq = whole && j == 0 ? DQ_FIRST : DQ_NEXT;
    s.column0 = j * BLOCK;
    s.row0 = from * BLOCK;
    s.lse += s.row0;
    s.dot += s.row0;
    const uint16_t *q = h->q + s.row0 * h->HD, *dout = h->dout + s.row0 * h->HD;
    TRY(multiply(h, n, SCORES, q, h->k + key, s.s));
    TRY(multiply(h, n, SCORES, dout, h->v + key, s.dp));
    h->c->rows->scores_bwd(&s, n * BLOCK, BLOCK);
    TRY(multiply(h, n, dv, s.p, dout, h->dv + key));
    TRY(multiply(h, n, dv, s.ds, q, h->dk + key));
    return multiply(h, n, dq, s.ds, h->k + key, h->dq + s.row0 * h->HD);
}

/* Writes dq of one head; adds its part of dk and dv. */
static enum err head_bwd(struct head *h, size_t head, bool first)
{
    const uint16_t *out = (const uint16_t *)h->r->out_in + h->first * h->C + head * h->HD;
    head_take(h, head);
    gather(h->dout, h, h->r->dout, h->C, head * h->HD);
    for (size_t i = 0; i < h->length; i++)
        h->scores.dot[i] = h->c->rows->dot(h->dout + i * h->HD, out + i * h->C, DTYPE_BF16, h->HD);
    if (h->scores.reach != DEV_REACH_ALL)
        memset(h->dq, 0, h->blocks * BLOCK * h->HD * sizeof *h->dq);
    for (size_t j = 0; j < h->blocks; j++) {
        struct span queries = queries_seeing(h->r->a, h->length, j);
        for (size_t from = queries.first; from < queries.end; from += BLOCKS_MAX)
            TRY(key_block(h, j, from, run_blocks(&queries, from), first && from == queries.first));
    }
    scatter_sum(h, head * h->HD, h->dq);
    return ERR_OK;
}

/* All query heads that share these keys and values. */
static enum err keys_bwd(struct head *h, size_t shared)
{
    const struct dev_attention *a = h->r->a;
    size_t group = a->NH / a->KVH;
    for (size_t i = 0; i < group; i++)
        TRY(head_bwd(h, shared * group + i, i == 0));
    scatter_sum(h, h->C + shared * h->HD, h->dk);
    scatter_sum(h, h->C + (a->KVH + shared) * h->HD, h->dv);
    return ERR_OK;
}

/* head: of queries (forward), of keys and values (backward). */
static enum err run_task(const struct tasks *t, size_t sequence, size_t head, int thread)
{
    const struct dev_attention *a = t->r->a;
    if (t->products && by_library(length_of(a, sequence))) {
        size_t shared = t->backward ? head : head / (a->NH / a->KVH);
        struct head h = head_make(t, sequence, shared, thread);
        return t->backward ? keys_bwd(&h, head) : head_fwd(&h, head);
    }
    float *buf = (float *)(void *)(t->buf + (size_t)thread * t->bytes);
    if (t->backward)
        t->c->rows->attention_bwd(t->r, sequence, head, buf);
    else
        t->c->rows->attention_fwd(t->r, sequence, head, buf);
    return ERR_OK;
}

/* Scratch bytes of one thread: for the longest sequence of either implementation. */
static size_t task_bytes(const struct tasks *t)
{
    const struct dev_attention *a = t->r->a;
    size_t most = 0;
    for (size_t s = 0; s < a->sequences; s++) {
        size_t length = length_of(a, s);
        size_t bytes = t->products && by_library(length)
                           ? head_bytes(length, a->HD, t->backward)
                           : t->c->rows->attention_floats(length, a->HD) * sizeof(float);
        most = bytes > most ? bytes : most;
    }
    return (most + 63) / 64 * 64;
}

static void run_tasks(struct cpu *c, const struct rows_attention *r)
{
    const struct dev_attention *a = r->a;
    struct products products = {0};
    struct tasks t = {.c = c, .r = r, .products = &products, .backward = r->dqkv != NULL};
    size_t heads = t.backward ? a->KVH : a->NH;
    ASSERT(a->cu_seqlens_host[0] == 0 && (size_t)a->cu_seqlens_host[a->sequences] == a->T);
    ASSERT(a->KVH && a->NH % a->KVH == 0);
    if (r->type != DTYPE_BF16 || !*matmul_bf16(c->matmul) || !products_ready(&t))
        t.products = NULL;
    t.bytes = task_bytes(&t);
    t.buf = cpu_scratch(c, 0, (size_t)c->dev.threads * t.bytes);
    if (!t.buf)
        return;
    enum err failed = ERR_OK;
#pragma omp parallel for num_threads(c->dev.threads) schedule(dynamic)
    for (size_t i = 0; i < a->sequences * heads; i++) {
        enum err e = run_task(&t, i / heads, i % heads, omp_get_thread_num());
        if (e)
#pragma omp atomic write
            failed = e;
    }
    if (failed)
        cpu_fail(&c->dev, err_set(failed, "a matrix product inside attention failed"));
}

/* out: |err| <= 1e-5 max|v| in f32 for scores below 30; in bf16 2^-8 max|v|, since probabilities
 * are rounded; lse: 1e-5 (1 + |lse|). */
void cpu_attention_fwd(struct dev *d, void *out, const struct dev_attention *a)
{
    struct rows_attention r = {.a = a, .type = d->model_type, .out = out};
    run_tasks(cpu_of(d), &r);
}

/* dqkv: |err| <= 1e-4 of its largest value in f32; in bf16 2^-6 of it, since out is read back
 * rounded. */
void cpu_attention_bwd(struct dev *d, void *dqkv, const void *dout, const void *out,
                       const struct dev_attention *a)
{
    struct rows_attention r = {
        .a = a, .type = d->model_type, .dqkv = dqkv, .dout = dout, .out_in = out};
    run_tasks(cpu_of(d), &r);
}

/* |err| <= 1e-6 of the sum of |q k| of the largest score: products and sums are f32 in either model
 * type. */
void cpu_attention_largest(struct dev *d, float *largest, const struct dev_attention *a)
{
    struct cpu *c = cpu_of(d);
    const struct rows_attention r = {.a = a, .type = d->model_type};
    struct tasks t = {.c = c, .r = &r};
    float top = *largest;
    t.bytes = task_bytes(&t);
    t.buf = cpu_scratch(c, 0, (size_t)c->dev.threads * t.bytes);
    if (!t.buf)
        return;
#pragma omp parallel for num_threads(c->dev.threads) schedule(dynamic) reduction(max : top)
    for (size_t i = 0; i < a->sequences * a->NH; i++) {
        void *buf = t.buf + (size_t)omp_get_thread_num() * t.bytes;
        float one = c->rows->attention_largest(&r, i / a->NH, i % a->NH, buf);
        top = one > top ? one : top;
    }
    *largest = top;
}
