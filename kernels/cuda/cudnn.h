/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDNN_H
#define CUDNN_H
/* Attention by cuDNN through its C backend API. The library is loaded at run time; a plan is the
 * compiled graph of one shape's forward or backward pass. Only cudnn.c includes cuDNN's headers. A
 * build without them uses cudnn_none.c, whose cudnn_open() returns ERR_UNSUPPORTED.
 *
 * Only cudnn_run() needs a GPU: with the properties of a GPU as JSON, any machine can make and test
 * plans (tests/cuda/test_cudnn_plans.c). One thread at a time uses a plan.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "kernels/base/err.h"

struct cudnn; /* the library: one for each struct cuda */
struct cudnn_plan;

/* Layout of dev_attention: rows of qkv are q (NH HD) | k (KVH HD) | v (KVH HD), rows of
 * out NH HD, bf16. `ragged`: `batch` sequences of at most S tokens, back to back; else exactly S
 * each. Statistics (natural log-sum-exp, f32) have the library's layout: (batch,NH,S), ragged
 * (T,NH). */
struct cudnn_shape {
    size_t batch, NH, KVH, HD, S;
    size_t T; /* ragged: number of tokens; else batch S */
    bool causal, ragged;
    bool backward;
    bool repeatable; /* backward: true: the algorithm with a fixed summation order, which stores
                        (batch,NH,S,S) bf16; false: tiles are added to dq as they finish. The
                        forward pass is always repeatable */
};

/* Device memory; the backward reads out and statistics, the forward writes them. */
struct cudnn_memory {
    const void *qkv, *dout;
    void *out, *dqkv;
    float *statistics;
    const int32_t *lengths; /* ragged: (batch) */
    const int32_t *offsets; /* ragged: 3 x (batch + 1): elements before each sequence in qkv, out
                               and statistics */
    void *workspace;
    float scale;
};

/* ERR_UNSUPPORTED: no usable library; the message names the file or the version. */
enum err cudnn_open(struct cudnn **l) MUST;
void cudnn_close(struct cudnn *l);                /* NULL is fine; after its plans */
const char *cudnn_version(const struct cudnn *l); /* "9.19.0" */

/* gpu: NULL: the calling thread's GPU; else a GPU's properties in cuDNN's JSON, and the plan cannot
 * run. ERR_UNSUPPORTED: the library has no plan for the shape; the message holds the library's
 * reason. */
enum err cudnn_plan_make(struct cudnn_plan **p, struct cudnn *l, const struct cudnn_shape *s,
                         const char *gpu) MUST;
void cudnn_plan_close(struct cudnn_plan *p);             /* NULL is fine */
size_t cudnn_plan_bytes(const struct cudnn_plan *p);     /* of workspace */
const char *cudnn_plan_name(const struct cudnn_plan *p); /* "engine=6 workspace_mib=48", for logs */
enum err cudnn_run(const struct cudnn_plan *p, void *stream, const struct cudnn_memory *m) MUST;

#endif
