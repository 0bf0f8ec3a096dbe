/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MATMUL_H
#define MATMUL_H
/* Matrix products through oneDNN, versions 2 and 3; only matmul.c includes the library.
 * c (M,N) = or += op(a) (M,K) op(b) (K,N) + bias (N), row-major with row strides in elements.
 * Operands f32 or bf16 (both the same), result either; sums are f32. Repeats bit for bit at a fixed
 * thread count, processor and library version. |err| <= 2 sqrt(K) 2^-24 sum|a b| per element, plus
 * the result's rounding: 2^-9 relative when c is bf16.
 */
#include "kernels/base/err.h"
#include "kernels/dev.h"

struct matmul;
struct cpu;

struct product {
    const void *a, *b;
    void *c;
    const float *bias; /* NULL: none; not with accumulate */
    size_t M, N, K;
    size_t lda, ldb, ldc; /* row strides as stored: a is (M,K), or (K,M) when a_t */
    bool a_t, b_t;
    bool accumulate; /* c is f32 and added to */
    bool gradient;   /* a is one: matmul_narrow may have another form for it */
    enum dtype in, out;
};

enum err matmul_open(struct matmul **m, int threads) MUST;
void matmul_close(struct matmul *m);                /* NULL is fine */
const char *matmul_version(const struct matmul *m); /* "oneDNN 2.6.3" */
const char *matmul_bf16(const struct matmul *m); /* the library's implementation; "" without one */
/* The library's primitives: `kept` now, `made` since open. At most MATMUL_KEPT_MAX are kept; a new
 * one then replaces the least recently used. */
enum { MATMUL_KEPT_MAX = 1024 };
struct matmul_counts {
    size_t kept;
    uint64_t made;
};
struct matmul_counts matmul_counts(const struct matmul *m);
/* A failure is kept in the device. In narrow arithmetic where the device emulates it. */
void matmul_run(struct cpu *c, const struct product *p);
/* The same, never emulated. */
void matmul_library(struct cpu *c, const struct product *p);

/* Matrix products for one thread inside a parallel region: created before the region (pointers and
 * bias are ignored), run in it by up to dev->threads threads at a time. NULL: the library has no
 * such product, or MATMUL_KEPT_MAX were used since the last matmul_run. Valid until the next
 * matmul_run. */
struct primitive;
struct primitive *matmul_single(struct cpu *c, const struct product *p);
enum err matmul_single_run(struct cpu *c, struct primitive *p, int thread, const void *a,
                           const void *b, void *out) MUST;

#endif
