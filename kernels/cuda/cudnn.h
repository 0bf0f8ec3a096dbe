#ifndef CUDNN_H
#define CUDNN_H
/* Attention by cuDNN, through its C backend API: the library, found at run time, and plans, each
 * the compiled graph of one shape's forward or backward. cudnn.c is the only file that includes
 * cuDNN's headers; where a build does not have them, cudnn_none.c takes its place and cudnn_open()
 * says so.
 *
 * What is here needs no GPU except cudnn_run(): given the properties of a GPU as JSON, plans are
 * made and judged on any machine (tests/cuda/cudnn_plans.c). One thread at a time uses a plan.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "kernels/base/err.h"

struct cudnn; /* the library: one for each struct cuda */
struct cudnn_plan;

/* Tokens as dev_attention has them: rows of qkv are q (NH HD) | k (KVH HD) | v (KVH HD), rows of
 * out NH HD, bf16. `ragged`: `batch` sequences of at most S tokens, back to back; else exactly S
 * each. Statistics (log-sum-exp, natural, f32) are the library's: (batch,NH,S), ragged (T,NH). */
struct cudnn_shape {
    size_t batch, NH, KVH, HD, S;
    size_t T; /* ragged: tokens in all; else batch S */
    bool causal, ragged;
    bool backward;
    bool repeatable; /* backward: the algorithm whose sums have a fixed order, which stores
                        (batch,NH,S,S) bf16; the other adds to dq as tiles are done. The forward
                        always repeats */
};

/* Device memory; the backward reads out and statistics, the forward writes them. */
struct cudnn_memory {
    const void *qkv, *dout;
    void *out, *dqkv;
    float *statistics;
    const int32_t *lengths; /* ragged: (batch) */
    const int32_t *offsets; /* ragged: 3 x (batch + 1): elements in front of each sequence in qkv,
                               in out, in statistics */
    void *workspace;
    float scale;
};

/* ERR_UNSUPPORTED: why there is none; the sentence names the file or the version. */
enum err cudnn_open(struct cudnn **l) MUST;
void cudnn_close(struct cudnn *l);                /* NULL is fine; after its plans */
const char *cudnn_version(const struct cudnn *l); /* "9.19.0" */

/* gpu: NULL: the calling thread's; else its properties as cuDNN writes them, JSON, and the plan
 * cannot run. ERR_UNSUPPORTED: the library has no plan for the shape; the sentence says what it
 * said. */
enum err cudnn_plan_make(struct cudnn_plan **p, struct cudnn *l, const struct cudnn_shape *s,
                         const char *gpu) MUST;
void cudnn_plan_close(struct cudnn_plan *p);             /* NULL is fine */
size_t cudnn_plan_bytes(const struct cudnn_plan *p);     /* of workspace */
const char *cudnn_plan_name(const struct cudnn_plan *p); /* "engine=6 workspace_mib=48", for logs */
enum err cudnn_run(const struct cudnn_plan *p, void *stream, const struct cudnn_memory *m) MUST;

#endif
