/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's attention as operation graphs: softmax(scale q k^T) v and its gradient built of GEMMs,
 * pointwise operations and reductions. The library recognises the whole graph and runs one kernel
 * (two or three in the backward pass). Layouts and order of operations follow NVIDIA's
 * cudnn-frontend, because the library matches fixed graph patterns.
 *
 * Packed sequences of equal length are a dense (batch, heads, S, HD) tensor with the strides of our
 * rows and no padding mask. For unequal lengths every tensor has a table with the offset of each
 * sequence, and the lengths mask the rows after each sequence.
 */
#include "kernels/cuda/cudnn.h"
#include <cudnn_graph.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 9.10.2: from 9.10.0 masked scores may be -infinity and grouped heads may be ragged; 9.10.0 and .1
 * compute a wrong backward pass (source: cudnn-frontend). */
enum { VERSION_LEAST = 91002 };

#define FUNCTIONS(X)                                                                               \
    X(cudnnGetVersion)                                                                             \
    X(cudnnGetLastErrorString)                                                                     \
    X(cudnnGetErrorString)                                                                         \
    X(cudnnCreate)                                                                                 \
    X(cudnnDestroy)                                                                                \
    X(cudnnSetStream)                                                                              \
    X(cudnnBackendCreateDescriptor)                                                                \
    X(cudnnBackendDestroyDescriptor)                                                               \
    X(cudnnBackendFinalize)                                                                        \
    X(cudnnBackendSetAttribute)                                                                    \
    X(cudnnBackendGetAttribute)                                                                    \
    X(cudnnBackendExecute)

struct cudnn {
#define X(name) __typeof__(&name) name;
    FUNCTIONS(X)
#undef X
    void *file;
    cudnnHandle_t handle; /* handle of the first plan's GPU; NULL: none yet */
    char version[24];
};

/* Unique ids of the caller's tensors; the graph's own tensors have ids from FREE on. */
enum name {
    Q = 1,
    K,
    V,
    O,
    STATS,
    DO,
    DQ,
    DK,
    DV,
    SCALE,
    HIDDEN,
    ONE,
    LENGTH_Q,
    LENGTH_KV,
    AT_QKV,
    AT_O,
    AT_STATS,
    SUMS,
    DQ_SUM,
    DK_ALL,
    DV_ALL,
    FREE
};
enum { DESCRIPTORS_MAX = 160, OPERATIONS_MAX = 40, CONFIGS_MAX = 16, BYTES_ALIGN = 256 };

typedef cudnnBackendDescriptor_t descriptor;

struct tensor {
    descriptor d;
    int64_t dim[4], stride[4];
};

/* A graph under construction. After the first failure all further calls do nothing. */
struct graph {
    struct cudnn *l;
    const struct cudnn_shape *s;
    descriptor all[DESCRIPTORS_MAX], operations[OPERATIONS_MAX];
    int count, operation_count;
    int64_t next; /* unique id */
    struct tensor length_q, length_kv, at_qkv, at_out, at_stats;
    bool failed;
    char why[256];
};

struct extra { /* our memory after the library's workspace */
    int64_t uid;
    size_t at;
};
struct cudnn_plan {
    struct cudnn *l;
    struct cudnn_shape shape;
    struct graph graph;
    descriptor plan;
    struct extra extras[4];
    size_t extra_count, extra_bytes, extras_at;
    char name[96];
};

/* ---- descriptors ---- */
static void give_up(struct graph *g, const char *what, cudnnStatus_t status)
{
    char said[200] = "";
    if (g->failed)
        return;
    g->failed = true;
    g->l->cudnnGetLastErrorString(said, sizeof said);
    snprintf(g->why, sizeof g->why, "%s: %s%s%s", what, g->l->cudnnGetErrorString(status),
             *said ? ": " : "", said);
}

static descriptor make(struct graph *g, cudnnBackendDescriptorType_t type)
{
    descriptor d = NULL;
    ASSERT(g->count < DESCRIPTORS_MAX);
    if (g->failed)
        return NULL;
    cudnnStatus_t s = g->l->cudnnBackendCreateDescriptor(type, &d);
    if (s != CUDNN_STATUS_SUCCESS)
        give_up(g, "a descriptor", s);
    else
        g->all[g->count++] = d;
    return d;
}

static void set(struct graph *g, descriptor d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (g->failed)
        return;
    cudnnStatus_t s = g->l->cudnnBackendSetAttribute(d, name, type, count, values);
    char what[40];
    snprintf(what, sizeof what, "attribute %d", (int)name);
    if (s != CUDNN_STATUS_SUCCESS)
        give_up(g, what, s);
}

static void set_descriptor(struct graph *g, descriptor d, cudnnBackendAttributeName_t name,
                           descriptor value)
{
    set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static bool finish(struct graph *g, descriptor d, const char *what)
{
    if (g->failed)
        return false;
    cudnnStatus_t s = g->l->cudnnBackendFinalize(d);
    if (s != CUDNN_STATUS_SUCCESS)
        give_up(g, what, s);
    return !g->failed;
}

static void operation(struct graph *g, descriptor d, const char *what)
{
    ASSERT(g->operation_count < OPERATIONS_MAX);
    finish(g, d, what);
    g->operations[g->operation_count++] = d;
}

/* ---- tensors ---- */
struct tensor_kind {
    int64_t uid; /* 0: the next free one */
    cudnnDataType_t type;
    bool inner;    /* intermediate result, never in memory */
    bool by_value; /* a scalar in host memory */
    descriptor ragged;
};

static struct tensor tensor(struct graph *g, const int64_t dim[4], const int64_t stride[4],
                            struct tensor_kind k)
{
    struct tensor t = {.d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR)};
    int64_t uid = k.uid ? k.uid : g->next++,
            align = k.by_value || k.type != CUDNN_DATA_BFLOAT16 ? 4 : 16;
    memcpy(t.dim, dim, sizeof t.dim);
    memcpy(t.stride, stride, sizeof t.stride);
    set(g, t.d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    set(g, t.d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &k.type);
    set(g, t.d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    set(g, t.d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    set(g, t.d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    set(g, t.d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &k.inner);
    set(g, t.d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &k.by_value);
    if (k.ragged)
        set_descriptor(g, t.d, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, k.ragged);
    finish(g, t.d, "a tensor");
    return t;
}

/* An intermediate result with the shape of x, not stored in memory. */
static struct tensor inner(struct graph *g, const struct tensor *x, cudnnDataType_t type)
{
    return tensor(g, x->dim, x->stride, (struct tensor_kind){.type = type, .inner = true});
}

static struct tensor number(struct graph *g, enum name uid)
{
    static const int64_t one[4] = {1, 1, 1, 1};
    return tensor(g, one, one,
                  (struct tensor_kind){.uid = uid, .type = CUDNN_DATA_FLOAT, .by_value = true});
}

static struct tensor table(struct graph *g, enum name uid, size_t rows)
{
    const int64_t dim[4] = {(int64_t)rows, 1, 1, 1}, one[4] = {1, 1, 1, 1};
    return tensor(g, dim, one, (struct tensor_kind){.uid = uid, .type = CUDNN_DATA_INT32});
}

/* Lengths and offsets of the sequences; absent when all lengths are equal. */
static void tables(struct graph *g)
{
    size_t batch = g->s->batch;
    if (!g->s->ragged)
        return;
    g->length_q = table(g, LENGTH_Q, batch);
    g->length_kv = table(g, LENGTH_KV, batch);
    g->at_qkv = table(g, AT_QKV, batch + 1);
    g->at_out = table(g, AT_O, batch + 1);
    g->at_stats = table(g, AT_STATS, batch + 1);
}

/* (batch, heads, S, HD), or with the last two dimensions exchanged: `heads` heads from rows of
 * `row` elements. */
static struct tensor heads(struct graph *g, enum name uid, size_t count, size_t row, bool turned)
{
    const struct cudnn_shape *s = g->s;
    const int64_t S = (int64_t)s->S, HD = (int64_t)s->HD, r = (int64_t)row;
    const int64_t dim[4] = {(int64_t)s->batch, (int64_t)count, turned ? HD : S, turned ? S : HD},
                  stride[4] = {S * r, HD, turned ? 1 : r, turned ? r : 1};
    bool wide = row != s->NH * s->HD; /* rows of qkv, not of out */
    return tensor(g, dim, stride,
                  (struct tensor_kind){.uid = uid,
                                       .type = CUDNN_DATA_BFLOAT16,
                                       .ragged = wide ? g->at_qkv.d : g->at_out.d});
}

static size_t qkv_row(const struct cudnn_shape *s)
{
    return (s->NH + 2 * s->KVH) * s->HD;
}

/* (batch, NH, S, 1) f32, contiguous or (T, NH). */
static struct tensor rows(struct graph *g, int64_t uid, bool virtual)
{
    const struct cudnn_shape *s = g->s;
    const int64_t NH = (int64_t)s->NH, S = (int64_t)s->S, dim[4] = {(int64_t)s->batch, NH, S, 1},
                  dense[4] = {NH * S, S, 1, 1}, packed[4] = {NH * S, 1, NH, 1};
    bool ragged = s->ragged && !virtual;
    return tensor(g, dim, ragged ? packed : dense,
                  (struct tensor_kind){.uid = uid,
                                       .type = CUDNN_DATA_FLOAT,
                                       .inner = virtual,
                                       .ragged = ragged ? g->at_stats.d : NULL});
}

/* (batch, NH, S, S), or its transpose in the GEMM's input type. */
static struct tensor scores(struct graph *g, bool turned)
{
    const struct cudnn_shape *s = g->s;
    const int64_t NH = (int64_t)s->NH, S = (int64_t)s->S, dim[4] = {(int64_t)s->batch, NH, S, S},
                  stride[4] = {NH * S * S, S * S, turned ? 1 : S, turned ? S : 1};
    return tensor(g, dim, stride,
                  (struct tensor_kind){.type = turned ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT,
                                       .inner = true});
}

/* ---- operations ---- */
/* y = mode(x, b, t); b and t may be NULL. axis is GEN_INDEX's. */
struct pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t math;
    const struct tensor *y, *x, *b, *t;
    int64_t axis;
};

static void pointwise(struct graph *g, const struct pointwise p)
{
    descriptor what = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &p.mode);
    set(g, what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &p.math);
    if (p.mode == CUDNN_POINTWISE_GEN_INDEX)
        set(g, what, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &p.axis);
    finish(g, what, "a pointwise operation");
    descriptor d = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p.x->d);
    if (p.b)
        set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p.b->d);
    if (p.t)
        set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p.t->d);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, p.y->d);
    operation(g, d, "a pointwise operation");
}

/* A pointwise operation in f32 with a new result of x's shape. */
static struct tensor map(struct graph *g, cudnnPointwiseMode_t mode, const struct tensor *x,
                         const struct tensor *b)
{
    struct tensor y = inner(g, x, CUDNN_DATA_FLOAT);
    pointwise(g,
              (struct pointwise){.mode = mode, .math = CUDNN_DATA_FLOAT, .y = &y, .x = x, .b = b});
    return y;
}

static void reduce(struct graph *g, cudnnReduceTensorOp_t how, const struct tensor *y,
                   const struct tensor *x)
{
    cudnnDataType_t math = CUDNN_DATA_FLOAT;
    descriptor what = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(g, what, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &math);
    set(g, what, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how);
    finish(g, what, "a reduction");
    descriptor d = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, what);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x->d);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y->d);
    operation(g, d, "a reduction");
}

/* c = a b over the last two dimensions. Three characters for M, N, K: 'q' or 'k' for the length of
 * queries or keys, else ' '. */
static void product(struct graph *g, const struct tensor *c, const struct tensor *a,
                    const struct tensor *b, const char *lengths)
{
    static const cudnnBackendAttributeName_t at[3] = {
        CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC,
        CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC,
        CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC};
    cudnnDataType_t math = CUDNN_DATA_FLOAT;
    descriptor what = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(g, what, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &math);
    finish(g, what, "a product");
    descriptor d = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a->d);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b->d);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c->d);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_MATMUL_DESC, what);
    for (int i = 0; i < 3 && g->s->ragged; i++)
        if (lengths[i] != ' ')
            set_descriptor(g, d, at[i], lengths[i] == 'q' ? g->length_q.d : g->length_kv.d);
    operation(g, d, "a product");
}

static void reshape(struct graph *g, const struct tensor *y, const struct tensor *x)
{
    descriptor d = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x->d);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y->d);
    operation(g, d, "a transpose");
}

/* ---- masks ---- */
static struct tensor index_of(struct graph *g, const struct tensor *x, int64_t axis,
                              cudnnDataType_t math)
{
    struct tensor i = inner(g, x, CUDNN_DATA_INT32);
    pointwise(g,
              (struct pointwise){
                  .mode = CUDNN_POINTWISE_GEN_INDEX, .math = math, .y = &i, .x = x, .axis = axis});
    return i;
}

static struct tensor compare(struct graph *g, cudnnPointwiseMode_t mode, const struct tensor *a,
                             const struct tensor *b)
{
    struct tensor y = inner(g, a, CUDNN_DATA_BOOLEAN);
    pointwise(
        g, (struct pointwise){.mode = mode, .math = CUDNN_DATA_BOOLEAN, .y = &y, .x = a, .b = b});
    return y;
}

/* x where `seen`, minus infinity elsewhere. */
static struct tensor hide(struct graph *g, const struct tensor *x, const struct tensor *seen)
{
    struct tensor hidden = number(g, HIDDEN), y = inner(g, x, CUDNN_DATA_FLOAT);
    pointwise(g, (struct pointwise){.mode = CUDNN_POINTWISE_BINARY_SELECT,
                                    .math = CUDNN_DATA_FLOAT,
                                    .y = &y,
                                    .x = x,
                                    .b = &hidden,
                                    .t = seen});
    return y;
}

static struct tensor hide_padding(struct graph *g, const struct tensor *x)
{
    if (!g->s->ragged)
        return *x;
    struct tensor row = index_of(g, x, 2, CUDNN_DATA_INT32),
                  column = index_of(g, x, 3, CUDNN_DATA_INT32);
    struct tensor a = compare(g, CUDNN_POINTWISE_CMP_LT, &row, &g->length_q);
    struct tensor b = compare(g, CUDNN_POINTWISE_CMP_LT, &column, &g->length_kv);
    struct tensor both = compare(g, CUDNN_POINTWISE_LOGICAL_AND, &a, &b);
    return hide(g, x, &both);
}

static struct tensor hide_future(struct graph *g, const struct tensor *x)
{
    if (!g->s->causal)
        return *x;
    struct tensor row = index_of(g, x, 2, CUDNN_DATA_FLOAT),
                  column = index_of(g, x, 3, CUDNN_DATA_FLOAT);
    struct tensor seen = compare(g, CUDNN_POINTWISE_CMP_GE, &row, &column);
    return hide(g, x, &seen);
}

/* ---- the two graphs ---- */
static struct tensor scaled_scores(struct graph *g, const struct tensor *q, const struct tensor *k)
{
    struct tensor s = scores(g, false), scale = number(g, SCALE);
    product(g, &s, q, k, "qk ");
    return map(g, CUDNN_POINTWISE_MUL, &s, &scale);
}

static void forward(struct graph *g)
{
    const struct cudnn_shape *s = g->s;
    size_t row = qkv_row(s);
    struct tensor q = heads(g, Q, s->NH, row, false), k = heads(g, K, s->KVH, row, true),
                  v = heads(g, V, s->KVH, row, false), o = heads(g, O, s->NH, s->NH * s->HD, false);
    struct tensor x = scaled_scores(g, &q, &k);
    x = hide_padding(g, &x);
    x = hide_future(g, &x);
    struct tensor top = rows(g, 0, true), sum = rows(g, 0, true), stats = rows(g, STATS, false);
    reduce(g, CUDNN_REDUCE_TENSOR_MAX, &top, &x);
    struct tensor below = map(g, CUDNN_POINTWISE_SUB, &x, &top);
    struct tensor e = map(g, CUDNN_POINTWISE_EXP, &below, NULL);
    reduce(g, CUDNN_REDUCE_TENSOR_ADD, &sum, &e);
    struct tensor log = map(g, CUDNN_POINTWISE_LOG, &sum, NULL);
    pointwise(g, (struct pointwise){.mode = CUDNN_POINTWISE_ADD,
                                    .math = CUDNN_DATA_FLOAT,
                                    .y = &stats,
                                    .x = &top,
                                    .b = &log});
    struct tensor p = inner(g, &e, CUDNN_DATA_BFLOAT16);
    pointwise(
        g, (struct pointwise){
               .mode = CUDNN_POINTWISE_DIV, .math = CUDNN_DATA_FLOAT, .y = &p, .x = &e, .b = &sum});
    product(g, &o, &p, &v, "q k");
}

/* Memory after the workspace for a tensor that the graph writes and reads again. */
static void extra(struct cudnn_plan *p, enum name uid, size_t bytes)
{
    p->extras[p->extra_count++] = (struct extra){uid, p->extra_bytes};
    p->extra_bytes += (bytes + BYTES_ALIGN - 1) / BYTES_ALIGN * BYTES_ALIGN;
}

/* sum(dout out) of each row; stored in memory, because three operations read it. */
static struct tensor row_sums(struct cudnn_plan *p, const struct tensor *dout,
                              const struct tensor *o)
{
    struct graph *g = &p->graph;
    const struct cudnn_shape *s = g->s;
    struct tensor one = number(g, ONE), sum = rows(g, 0, true), kept = rows(g, SUMS, false);
    const int64_t NH = (int64_t)s->NH, S = (int64_t)s->S, HD = (int64_t)s->HD,
                  stride[4] = {NH * S * HD, S * HD, HD, 1};
    struct tensor both =
        tensor(g, o->dim, stride, (struct tensor_kind){.type = CUDNN_DATA_FLOAT, .inner = true});
    pointwise(
        g,
        (struct pointwise){
            .mode = CUDNN_POINTWISE_MUL, .math = CUDNN_DATA_FLOAT, .y = &both, .x = dout, .b = o});
    reduce(g, CUDNN_REDUCE_TENSOR_ADD, &sum, &both);
    pointwise(g, (struct pointwise){.mode = CUDNN_POINTWISE_MUL,
                                    .math = CUDNN_DATA_FLOAT,
                                    .y = &kept,
                                    .x = &sum,
                                    .b = &one});
    extra(p, SUMS, s->T * s->NH * sizeof(float));
    return kept;
}

/* to (batch, KVH, S, HD) = p^T x. Grouped heads: first the part of every query head, then the sum
 * over the group. */
static void keys_product(struct cudnn_plan *plan, enum name to, enum name all,
                         const struct tensor *p, const struct tensor *x)
{
    struct graph *g = &plan->graph;
    const struct cudnn_shape *s = g->s;
    struct tensor turned = scores(g, true), y = heads(g, to, s->KVH, qkv_row(s), false);
    reshape(g, &turned, p);
    if (s->NH == s->KVH) {
        product(g, &y, &turned, x, "k q");
        return;
    }
    const int64_t NH = (int64_t)s->NH, S = (int64_t)s->S, HD = (int64_t)s->HD,
                  group = NH / (int64_t)s->KVH, row = (int64_t)qkv_row(s) * group,
                  dim[4] = {(int64_t)s->batch, NH, S, HD}, dense[4] = {NH * S * HD, S * HD, HD, 1},
                  packed[4] = {S * row, HD, row, 1};
    struct tensor parts = tensor(g, dim, s->ragged ? packed : dense,
                                 (struct tensor_kind){.uid = s->ragged ? all : 0,
                                                      .type = CUDNN_DATA_BFLOAT16,
                                                      .inner = !s->ragged,
                                                      .ragged = s->ragged ? g->at_qkv.d : NULL});
    if (s->ragged)
        extra(plan, all, s->T * (size_t)row * sizeof(float));
    product(g, &parts, &turned, x, "k q");
    reduce(g, CUDNN_REDUCE_TENSOR_ADD, &y, &parts);
}

/* dq = ds k. The fast algorithm adds tiles of dq in f32 as they finish; the repeatable one stores
 * ds.
 */
static void queries_product(struct cudnn_plan *p, const struct tensor *ds, const struct tensor *k)
{
    struct graph *g = &p->graph;
    const struct cudnn_shape *s = g->s;
    size_t row = qkv_row(s);
    struct tensor dq = heads(g, DQ, s->NH, row, false);
    const int64_t dim[4] = {k->dim[0], k->dim[1], k->dim[3], k->dim[2]},
                  stride[4] = {k->stride[0], k->stride[1], k->stride[3], k->stride[2]};
    struct tensor keys = tensor(
        g, dim, stride,
        (struct tensor_kind){.type = CUDNN_DATA_BFLOAT16, .inner = true, .ragged = g->at_qkv.d});
    reshape(g, &keys, k);
    if (s->repeatable) {
        product(g, &dq, ds, &keys, "q k");
        return;
    }
    const int64_t NH = (int64_t)s->NH, S = (int64_t)s->S, HD = (int64_t)s->HD,
                  dense[4] = {NH * S * HD, S * HD, HD, 1};
    struct tensor sum = tensor(
        g, dq.dim, s->ragged ? dq.stride : dense,
        (struct tensor_kind){.uid = DQ_SUM, .type = CUDNN_DATA_FLOAT, .ragged = g->at_qkv.d});
    extra(p, DQ_SUM, s->T * (s->ragged ? row : s->NH * s->HD) * sizeof(float));
    product(g, &sum, ds, &keys, "q k");
    pointwise(g,
              (struct pointwise){
                  .mode = CUDNN_POINTWISE_IDENTITY, .math = CUDNN_DATA_FLOAT, .y = &dq, .x = &sum});
}

static void backward(struct cudnn_plan *p)
{
    struct graph *g = &p->graph;
    const struct cudnn_shape *s = g->s;
    size_t row = qkv_row(s), C = s->NH * s->HD;
    struct tensor q = heads(g, Q, s->NH, row, false), k = heads(g, K, s->KVH, row, true),
                  v = heads(g, V, s->KVH, row, true), o = heads(g, O, s->NH, C, false),
                  dout = heads(g, DO, s->NH, C, false), stats = rows(g, STATS, false),
                  scale = number(g, SCALE);
    struct tensor sums = row_sums(p, &dout, &o);
    struct tensor x = scaled_scores(g, &q, &k);
    x = hide_padding(g, &x);
    x = map(g, CUDNN_POINTWISE_SUB, &x, &stats);
    x = hide_future(g, &x);
    struct tensor probability = map(g, CUDNN_POINTWISE_EXP, &x, NULL);
    keys_product(p, DV, DV_ALL, &probability, &dout);
    struct tensor dp = scores(g, false);
    product(g, &dp, &dout, &v, "qk ");
    struct tensor ds = map(g, CUDNN_POINTWISE_SUB, &dp, &sums);
    ds = map(g, CUDNN_POINTWISE_MUL, &ds, &probability);
    ds = map(g, CUDNN_POINTWISE_MUL, &ds, &scale);
    keys_product(p, DK, DK_ALL, &ds, &q);
    queries_product(p, &ds, &k);
}

/* ---- plans ---- */
static descriptor graph_finish(struct graph *g)
{
    descriptor d = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->operation_count,
        g->operations);
    if (g->l->handle)
        set(g, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->l->handle);
    finish(g, d, "the graph");
    return d;
}

/* Properties of a GPU that this machine does not have; NULL: the handle's GPU is used. */
static descriptor properties(struct graph *g, const char *gpu)
{
    if (!gpu)
        return NULL;
    descriptor d = make(g, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(gpu),
        gpu);
    finish(g, d, "the GPU's properties");
    return d;
}

/* Fills the configurations that the library proposes, best first; returns their number. */
static int64_t propose(struct graph *g, descriptor graph, descriptor gpu,
                       descriptor configs[CONFIGS_MAX])
{
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t count = 0;
    descriptor d = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_descriptor(g, d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(g, d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (gpu)
        set_descriptor(g, d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, gpu);
    if (!finish(g, d, "the heuristic"))
        return 0;
    for (int i = 0; i < CONFIGS_MAX; i++)
        configs[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (g->failed)
        return 0;
    cudnnStatus_t s =
        g->l->cudnnBackendGetAttribute(d, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS_MAX, &count, configs);
    if (s != CUDNN_STATUS_SUCCESS)
        give_up(g, "the heuristic's results", s);
    return g->failed ? 0 : count < CONFIGS_MAX ? count : CONFIGS_MAX;
}

/* A configuration's engine and workspace, for logs. */
static void describe(struct cudnn_plan *p, descriptor config, int64_t workspace)
{
    struct graph *g = &p->graph;
    struct cudnn *l = g->l;
    descriptor engine = make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    int64_t index = -1, count = 0;
    l->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                1, &count, &engine);
    l->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count,
                                &index);
    snprintf(p->name, sizeof p->name, "engine=%lld workspace_mib=%lld", (long long)index,
             (long long)workspace >> 20);
}

static size_t aligned(size_t bytes)
{
    return (bytes + BYTES_ALIGN - 1) / BYTES_ALIGN * BYTES_ALIGN;
}

/* False: the library proposed the configuration but cannot compile it. */
static bool compile(struct cudnn_plan *p, descriptor config, descriptor gpu)
{
    struct graph *g = &p->graph;
    struct cudnn *l = g->l;
    int64_t count = 0, bytes = 0;
    descriptor d = make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set_descriptor(g, d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (gpu)
        set_descriptor(g, d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, gpu);
    else
        set(g, d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &l->handle);
    if (!finish(g, d, "a plan") ||
        l->cudnnBackendGetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                    1, &count, &bytes) != CUDNN_STATUS_SUCCESS)
        return false;
    p->plan = d;
    p->extras_at = aligned((size_t)bytes);
    describe(p, config, bytes);
    return true;
}

/* The first proposal that compiles. */
static enum err choose(struct cudnn_plan *p, const char *gpu)
{
    struct graph *g = &p->graph;
    descriptor configs[CONFIGS_MAX], graph = graph_finish(g), device = properties(g, gpu);
    int64_t count = propose(g, graph, device, configs);
    for (int64_t i = 0; i < count; i++) {
        if (compile(p, configs[i], device))
            return ERR_OK;
        g->failed = false; /* the next one may compile; the message of the first stays */
    }
    return err_set(ERR_UNSUPPORTED, "cuDNN %s has no attention for this shape: %s", g->l->version,
                   *g->why ? g->why : "its heuristics propose nothing");
}

static bool possible(const struct cudnn_shape *s)
{
    return s->batch && s->KVH && s->NH % s->KVH == 0 && s->HD % 8 == 0 && s->HD <= 128 &&
           s->S > 1 && s->T * qkv_row(s) < (size_t)1 << 31; /* offsets are int32 */
}

static enum err handle_open(struct cudnn *l)
{
    if (l->handle)
        return ERR_OK;
    cudnnStatus_t status = l->cudnnCreate(&l->handle);
    if (status == CUDNN_STATUS_SUCCESS)
        return ERR_OK;
    l->handle = NULL;
    return err_set(ERR_UNSUPPORTED, "cuDNN %s cannot use this GPU: %s", l->version,
                   l->cudnnGetErrorString(status));
}

enum err cudnn_plan_make(struct cudnn_plan **out, struct cudnn *l, const struct cudnn_shape *s,
                         const char *gpu)
{
    *out = NULL;
    if (!possible(s))
        return err_set(ERR_UNSUPPORTED,
                       "cuDNN's attention takes head dimensions that are multiples of 8 up to 128, "
                       "whole groups of heads and 2^31 elements; this is head dimension %zu, %zu "
                       "heads in groups for %zu, %zu tokens",
                       s->HD, s->NH, s->KVH, s->T);
    if (!gpu)
        TRY(handle_open(l));
    struct cudnn_plan *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(ERR_MEMORY, "no memory for a plan of cuDNN's attention");
    p->l = l;
    p->shape = *s;
    p->graph = (struct graph){.l = l, .s = &p->shape, .next = FREE};
    tables(&p->graph);
    if (s->backward)
        backward(p);
    else
        forward(&p->graph);
    enum err e = choose(p, gpu);
    if (e) {
        cudnn_plan_close(p);
        return e;
    }
    *out = p;
    return ERR_OK;
}

void cudnn_plan_close(struct cudnn_plan *p)
{
    if (!p)
        return;
    for (int i = p->graph.count - 1; i >= 0; i--)
        p->l->cudnnBackendDestroyDescriptor(p->graph.all[i]);
    free(p);
}

size_t cudnn_plan_bytes(const struct cudnn_plan *p)
{
    return p->extras_at + p->extra_bytes;
}

const char *cudnn_plan_name(const struct cudnn_plan *p)
{
    return p->name;
}

/* ---- running ---- */
enum { POINTERS_MAX = 24 };
struct pointers {
    int64_t uid[POINTERS_MAX];
    void *at[POINTERS_MAX];
    int64_t count;
};

static void point(struct pointers *p, int64_t uid, const void *at)
{
    ASSERT(p->count < POINTERS_MAX);
    p->uid[p->count] = uid;
    p->at[p->count++] = (void *)(uintptr_t)at;
}

/* q, k and v, or their gradients, in rows of qkv. */
static void point_qkv(struct pointers *p, const struct cudnn_shape *s, enum name first,
                      const void *qkv)
{
    const uint16_t *x = qkv;
    point(p, first, x);
    point(p, first + 1, x + s->NH * s->HD);
    point(p, first + 2, x + (s->NH + s->KVH) * s->HD);
}

static void point_all(struct pointers *to, const struct cudnn_plan *p, const struct cudnn_memory *m)
{
    static const float hidden = -INFINITY, one = 1;
    const struct cudnn_shape *s = &p->shape;
    point_qkv(to, s, Q, m->qkv);
    point(to, O, m->out);
    point(to, STATS, m->statistics);
    point(to, SCALE, &m->scale);
    if (s->causal || s->ragged)
        point(to, HIDDEN, &hidden);
    if (s->ragged) {
        point(to, LENGTH_Q, m->lengths);
        point(to, LENGTH_KV, m->lengths);
        point(to, AT_QKV, m->offsets);
        point(to, AT_O, m->offsets + (s->batch + 1));
        point(to, AT_STATS, m->offsets + 2 * (s->batch + 1));
    }
    if (s->backward) {
        point(to, ONE, &one);
        point(to, DO, m->dout);
        point_qkv(to, s, DQ, m->dqkv);
    }
    for (size_t i = 0; i < p->extra_count; i++)
        point(to, p->extras[i].uid, (char *)m->workspace + p->extras_at + p->extras[i].at);
}

enum err cudnn_run(const struct cudnn_plan *p, void *stream, const struct cudnn_memory *m)
{
    struct cudnn *l = p->l;
    struct pointers to = {.count = 0};
    struct graph pack = {.l = l}; /* to record the first failure */
    cudnnStatus_t status = l->cudnnSetStream(l->handle, stream);
    point_all(&to, p, m);
    descriptor d = make(&pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(&pack, d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, to.count, to.uid);
    set(&pack, d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, to.count, to.at);
    set(&pack, d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &m->workspace);
    finish(&pack, d, "the arguments");
    if (!pack.failed && status == CUDNN_STATUS_SUCCESS)
        status = l->cudnnBackendExecute(l->handle, p->plan, d);
    if (d)
        l->cudnnBackendDestroyDescriptor(d);
    if (!pack.failed && status == CUDNN_STATUS_SUCCESS)
        return ERR_OK;
    return err_set(ERR_INTERNAL, "cuDNN's attention: %s",
                   pack.failed ? pack.why : l->cudnnGetErrorString(status));
}

/* ---- the library ---- */
static enum err functions_find(struct cudnn *l)
{
    struct {
        const char *name;
        void *at;
    } wanted[] = {
#define X(name) {#name, &l->name},
        FUNCTIONS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *found = dlsym(l->file, wanted[i].name);
        if (!found)
            return err_set(ERR_UNSUPPORTED, "libcudnn.so.9 has no %s", wanted[i].name);
        memcpy(wanted[i].at, &found, sizeof found);
    }
    return ERR_OK;
}

static enum err open_parts(struct cudnn *l)
{
    l->file = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (!l->file)
        return err_set(ERR_UNSUPPORTED, "no cuDNN: %s", dlerror());
    TRY(functions_find(l));
    size_t v = l->cudnnGetVersion();
    snprintf(l->version, sizeof l->version, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
    if (v < VERSION_LEAST)
        return err_set(ERR_UNSUPPORTED, "cuDNN %s is older than %d.%d.%d", l->version,
                       VERSION_LEAST / 10000, VERSION_LEAST / 100 % 100, VERSION_LEAST % 100);
    return ERR_OK;
}

enum err cudnn_open(struct cudnn **out)
{
    struct cudnn *l = calloc(1, sizeof *l);
    *out = NULL;
    if (!l)
        return err_set(ERR_MEMORY, "no memory for cuDNN");
    enum err e = open_parts(l);
    if (e)
        cudnn_close(l);
    else
        *out = l;
    return e;
}

/* Does not dlclose the library: its registrations with the driver must stay. */
void cudnn_close(struct cudnn *l)
{
    if (l && l->handle)
        l->cudnnDestroy(l->handle);
    free(l);
}

const char *cudnn_version(const struct cudnn *l)
{
    return l->version;
}
