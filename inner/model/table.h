/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TABLE_H
#define TABLE_H
/* The one table of tensors: name, shape, initialisation, group, layer, and the offset into every
 * flat slab (parameters, gradients, each moment, outer state). All-reduce, checkpoint, delta,
 * digest are loops over ranges. Every tensor starts at a multiple of 256 elements, so that blocks
 * of 256 never cross tensors; the gaps are zero in every slab and stay zero. Pure data: no device,
 * no I/O.
 *
 * Order and names, N = 0 .. layers-1 (model.share_layers: 0); biases only with model.bias, except
 * where they are marked (b), and none on an RMS norm. E: model.embedding_size, or C.
 *
 *   wte.weight (V, E)
 *   wpe.weight (context, E)                          model.positions = learned
 *   wtt.weight (types, E)                            model.token_types > 0
 *   embed.norm.weight .bias (E)                      model.embed_norm
 *   embed.proj.weight (C, E) .bias                   E is not C
 *   layers.N.norm1.weight .bias (C)
 *   layers.N.attn.qkv.weight (C + 2 KVH HD, C) .bias    rows of q, then k, then v
 *   layers.N.attn.proj.weight (C, C) .bias
 *   layers.N.norm2.weight .bias (C)
 *   layers.N.mlp.up.weight (F, C) .bias              gated: (2F, C), rows of gate, then up
 *   layers.N.mlp.down.weight (C, F) .bias
 *   norm.weight .bias (C)
 *   head.weight (V, E)                               model.tie_embeddings = false; else wte.weight
 *   mlm.dense.weight (E, C) .bias                    model.head = mlm
 *   mlm.norm.weight .bias (E)
 *   mlm.bias (V) (b)
 *   pooler.weight (C, C) .bias (b)                   model.pooler; pooler_norm: .bias without (b)
 *   pooler.norm.weight .bias (C)                     model.pooler_norm
 *   pair.weight (2, C) .bias (b)                     model.classes is empty
 *   classes.T.weight (classes, C) .bias (b)          for each task T of model.classes
 *   classes.0.H.weight (classes, C) .bias (b)        H = 1 .. model.classifier_heads - 1
 *
 * model.norm_place = post: norm1 stands after attn.proj, norm2 after mlp.down, and there is no
 * norm.weight; none: none of the three. So the backward pass runs through the table from its end.
 * pre with model.embed_norm: the first layer has no norm1, unless the layers are shared.
 *
 * The rows of wte, head, pair and classes are padded to a multiple of 64 for the GEMMs; the padding
 * rows belong to the tensor's range, are zero like the gaps, and get no gradient.
 */
#include "kernels/dev.h"
#include "inner/config/keys.h"

enum {
    TABLE_NAME_MAX = 128,
    TABLE_RANK_MAX = 2,
    TABLE_ALIGN = 256,
    TABLE_VOCAB_ALIGN = 64,
    TABLE_PROJECTIONS_MAX = 3
};
enum table_init { TABLE_NORMAL, TABLE_TRUNCATED, TABLE_ZERO, TABLE_ONE };

/* Optimizer groups of tensors: X(NAME, learning rate and weight decay relative to the settings',
 * trust ratio). A head with its own learning rate is a row here. */
#define TABLE_GROUPS(X)                                                                            \
    X(HIDDEN, 1, 1, true)  /* matrices of the layers */                                            \
    X(MATRIX, 1, 1, true)  /* other matrices: embeddings, heads */                                 \
    X(VECTOR, 1, 0, false) /* biases, norms */
enum table_group {
#define X(NAME, lr, decay, trust) TABLE_##NAME,
    TABLE_GROUPS(X)
#undef X
        TABLE_GROUP_COUNT
};

struct tensor {
    char name[TABLE_NAME_MAX];     /* "layers.3.attn.qkv.weight" */
    int64_t shape[TABLE_RANK_MAX]; /* without padding; (out, in) for matrices, (n, 1) for vectors */
    size_t offset, count;          /* elements; offset a multiple of 256; count with the padding */
    enum table_init init;
    float std; /* before it is truncated; GPT-2: 0.02, projections 0.02/sqrt(2L) */
    enum table_group group;
    int layer; /* 0..L-1; -1 embeddings, L final norm and head */
};
struct table {
    struct tensor *tensors;
    size_t count;
    size_t elements;   /* of one slab, gaps included, a multiple of 256 */
    size_t parameters; /* without gaps and padding */
};

/* With model.tensors the table of that file (table_file.h). */
enum err table_make(struct table *t, const struct settings *s, struct arena *perm) MUST;
/* ERR_UNSUPPORTED with model.tensors, whose model no part of Atoll can run. */
enum err table_own(const struct settings *s) MUST;
/* Of a tensor that always learns, without bias correction. */
struct opt_group table_group(const struct tensor *x);
const struct tensor *table_find(const struct table *t, const char *name); /* NULL: no such tensor */
size_t table_span(const struct table *t,
                  size_t i); /* elements of tensor i, the gap after it included */
size_t table_vocab_padded(const struct settings *s);
size_t table_classes_padded(size_t classes);
size_t table_embed(const struct settings *s);  /* width of the embeddings */
size_t table_layers(const struct settings *s); /* layers with tensors of their own */
size_t table_mlp(const struct settings *s);    /* hidden width: model.d_ff, or the default for 0 */
bool table_gated(const struct settings *s);    /* swiglu: mlp.up has twice as many rows */
size_t table_kv_heads(const struct settings *s); /* model.kv_heads, or model.heads */
/* Elements of the matrices that lie below each other in a tensor: of q, k, v, or of gate, up. Their
 * number; 1: the tensor is one. */
size_t table_projections(const struct settings *s, const struct tensor *x,
                         size_t elements[TABLE_PROJECTIONS_MAX]);
/* Digest of names, shapes, offsets: the same digest means the same slab layout. */
struct digest table_digest(const struct table *t);
/* Fills a host slab with the initial parameters: a function of the seed and the element alone. */
void table_init(const struct table *t, uint64_t seed, float *slab);
/* The same of a range alone: to[0] is element r.offset. */
void table_init_range(const struct table *t, uint64_t seed, struct dev_range r, float *to);

#endif
