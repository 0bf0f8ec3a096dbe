/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs through cuBLASLt, with fused epilogues; the only file that includes the library.
 * The library is column-major: row-major c (M,N) = a b is its c^T (N,M) = b^T a^T, so its A is our
 * b and its B our a, and a bias along N runs along its rows, as its epilogues want.
 *
 * The heuristic runs once per shape, types, epilogue and alignment and names up to CANDIDATES
 * algorithms whose workspace fits. While the device tunes (DEV_TUNING_NOW) each is measured on the
 * operands, and the record (choice.h) keeps the fastest; otherwise the recorded one is used, or the
 * heuristic's first. At most CUDA_PLANS_MAX plans are cached; a new one replaces the least recently
 * used, and a shape that returns gets the same algorithm. With one stream and one algorithm a GEMM
 * repeats bit for bit on the same GPU, library version and shape. The file has
 * no kernel; it is CUDA C so that dev_cuda.c is the only C file that needs CUDA's headers.
 */
#include "kernels/cuda/tile.cuh"
#include "kernels/scalar/fp8.h"
extern "C" {
#include "kernels/cuda/choice.h"
}
#include <cublasLt.h>
#include <stdio.h>
#include <math.h>
#include <stdlib.h>

enum { WORKSPACE_BYTES = 32 << 20, CANDIDATES = 8 }; /* 32 MiB: cuBLAS's own choice on Hopper */

struct key { /* all inputs of the choice of an algorithm; zeroed before it is filled, compared as
                bytes */
    size_t M, N, K, lda, ldb, ldc;
    int a_t, b_t, accumulate, in, out, a_form, b_form, epilogue;
    uint32_t a_align, b_align, c_align, bias_align, pre_align; /* the heuristic uses all of them */
};
struct plan {
    struct key key;
    uint64_t used; /* value of matmul.calls at the last use */
    bool none;     /* the library has no algorithm for this GEMM */
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c; /* the library's A, B, C = D */
    cublasLtMatmulAlgo_t algo;
};
struct matmul {
    cublasLtHandle_t library;
    cublasLtMatmulPreference_t preference;
    struct plan plans[CUDA_PLANS_MAX];
    size_t count;
    uint64_t calls;
    bool measured;   /* plans hold what this device measured, not yet what the record says */
    void *workspace; /* device memory, allocated by the first GEMM */
};

static enum err failed(const char *what, cublasStatus_t status)
{
    return err_set(ERR_INTERNAL, "cuBLASLt: %s failed: %s", what, cublasLtGetStatusName(status));
}

#define LT(call)                                                                                   \
    do {                                                                                           \
        cublasStatus_t status_ = (call);                                                           \
        if (status_ != CUBLAS_STATUS_SUCCESS)                                                      \
            return failed(#call, status_);                                                         \
    } while (0)

static enum err open_parts(struct matmul *m)
{
    uint64_t bytes = WORKSPACE_BYTES;
    uint32_t split = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    LT(cublasLtCreate(&m->library));
    LT(cublasLtMatmulPreferenceCreate(&m->preference));
    LT(cublasLtMatmulPreferenceSetAttribute(m->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                            &bytes, sizeof bytes));
    /* When the library splits K, it sums the parts in f32 and does not round each part to bf16. */
    LT(cublasLtMatmulPreferenceSetAttribute(
        m->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &split, sizeof split));
    return ERR_OK;
}

enum err cuda_matmul_open(struct matmul **out)
{
    struct matmul *m = (struct matmul *)calloc(1, sizeof *m);
    *out = NULL;
    if (!m)
        return err_set(ERR_MEMORY, "no memory for the plans of the matrix products");
    enum err e = open_parts(m);
    if (e)
        cuda_matmul_close(m);
    else
        *out = m;
    return e;
}

/* Submitted products do not need their plan any more. The library accepts NULL here. */
static void plan_close(struct plan *plan)
{
    cublasLtMatmulDescDestroy(plan->product);
    cublasLtMatrixLayoutDestroy(plan->a);
    cublasLtMatrixLayoutDestroy(plan->b);
    cublasLtMatrixLayoutDestroy(plan->c);
    memset(plan, 0, sizeof *plan);
}

void cuda_matmul_close(struct matmul *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->count; i++)
        plan_close(&m->plans[i]);
    if (m->preference)
        cublasLtMatmulPreferenceDestroy(m->preference);
    if (m->library)
        cublasLtDestroy(m->library);
    free(m);
}

void cuda_matmul_version(char *out, size_t size)
{
    size_t v = cublasLtGetVersion();
    snprintf(out, size, "cuBLASLt %zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
}

/* The largest power of two up to 256 that divides the address. */
static uint32_t alignment(const void *p)
{
    uintptr_t low = (uintptr_t)p & -(uintptr_t)p;
    return low == 0 || low > 256 ? 256 : (uint32_t)low;
}

static struct key key_of(const struct product *p)
{
    struct key k;
    memset(&k, 0, sizeof k);
    k.M = p->M, k.N = p->N, k.K = p->K, k.lda = p->lda, k.ldb = p->ldb, k.ldc = p->ldc;
    k.a_t = p->a_t, k.b_t = p->b_t, k.accumulate = p->accumulate;
    k.in = (int)p->in, k.out = (int)p->out, k.epilogue = (int)p->epilogue;
    k.a_form = p->a_form, k.b_form = p->b_form;
    k.a_align = alignment(p->a), k.b_align = alignment(p->b), k.c_align = alignment(p->c);
    k.bias_align = alignment(p->sums ? p->sums : p->bias), k.pre_align = alignment(p->pre);
    return k;
}

static cudaDataType_t data_type(enum dtype t)
{
    return t == DTYPE_F32 ? CUDA_R_32F : CUDA_R_16BF;
}

static cudaDataType_t operand_type(const struct product *p, int form)
{
    return form == FP8_NONE ? data_type(p->in) : form == FP8_E4M3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}

static cublasLtEpilogue_t epilogue(enum epilogue f)
{
    switch (f) {
    case EPILOGUE_BIAS:
        return CUBLASLT_EPILOGUE_BIAS;
    case EPILOGUE_BIAS_GELU:
        return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case EPILOGUE_DGELU:
        return CUBLASLT_EPILOGUE_DGELU;
    case EPILOGUE_COLUMN_SUMS:
        return CUBLASLT_EPILOGUE_BGRADB;
    case EPILOGUE_NONE:
        break;
    }
    return CUBLASLT_EPILOGUE_DEFAULT;
}

static bool has_bias(enum epilogue f) /* or its gradient: the same pointer */
{
    return f != EPILOGUE_NONE && f != EPILOGUE_DGELU;
}

static bool has_pre(enum epilogue f)
{
    return f == EPILOGUE_BIAS_GELU || f == EPILOGUE_DGELU;
}

static enum err set(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t what, const void *value,
                    size_t size)
{
    LT(cublasLtMatmulDescSetAttribute(d, what, value, size));
    return ERR_OK;
}

/* Sets the pointers of epilogue and scales, which change with each call; the algorithm does not
 * depend on them. */
static enum err point(const struct plan *plan, const struct product *p)
{
    const void *bias = p->sums ? p->sums : p->bias;
    if (has_bias(p->epilogue))
        TRY(set(plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    if (has_pre(p->epilogue))
        TRY(set(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &p->pre, sizeof p->pre));
    if (p->a_form)
        TRY(set(plan->product, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &p->b_scale,
                sizeof p->b_scale));
    if (p->a_form)
        TRY(set(plan->product, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &p->a_scale,
                sizeof p->a_scale));
    return ERR_OK;
}

/* GEMMs of f32 use f32, never TF32. */
static enum err describe(struct plan *plan, const struct product *p)
{
    cublasOperation_t a_op = p->b_t ? CUBLAS_OP_T : CUBLAS_OP_N,
                      b_op = p->a_t ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t e = epilogue(p->epilogue);
    int64_t aux_stride = (int64_t)p->ldc;
    int32_t bias_type = (int32_t)data_type(p->out);
    LT(cublasLtMatmulDescCreate(&plan->product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    TRY(set(plan->product, CUBLASLT_MATMUL_DESC_TRANSA, &a_op, sizeof a_op));
    TRY(set(plan->product, CUBLASLT_MATMUL_DESC_TRANSB, &b_op, sizeof b_op));
    TRY(set(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &e, sizeof e));
    if (has_bias(p->epilogue))
        TRY(set(plan->product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type, sizeof bias_type));
    if (has_pre(p->epilogue))
        TRY(set(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_stride,
                sizeof aux_stride));
    TRY(point(plan, p));
    size_t rows = p->b_t ? p->K : p->N, columns = p->b_t ? p->N : p->K;
    LT(cublasLtMatrixLayoutCreate(&plan->a, operand_type(p, p->b_form), rows, columns,
                                  (int64_t)p->ldb));
    rows = p->a_t ? p->M : p->K, columns = p->a_t ? p->K : p->M;
    LT(cublasLtMatrixLayoutCreate(&plan->b, operand_type(p, p->a_form), rows, columns,
                                  (int64_t)p->lda));
    LT(cublasLtMatrixLayoutCreate(&plan->c, data_type(p->out), p->N, p->M, (int64_t)p->ldc));
    return ERR_OK;
}

/* The algorithms that the library proposes, best first by its own estimate. Sets plan->none when
 * there is none; this is a result, not an error. */
static enum err propose(struct matmul *m, struct plan *plan,
                        cublasLtMatmulHeuristicResult_t found[CANDIDATES], int *count)
{
    const cublasLtMatmulPreferenceAttributes_t what[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint32_t bytes[] = {plan->key.b_align, plan->key.a_align, plan->key.c_align,
                              plan->key.c_align};
    int proposed = 0;
    *count = 0;
    for (int i = 0; i < 4; i++)
        LT(cublasLtMatmulPreferenceSetAttribute(m->preference, what[i], &bytes[i],
                                                sizeof bytes[i]));
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(m->library, plan->product, plan->a, plan->b, plan->c,
                                       plan->c, m->preference, CANDIDATES, found, &proposed);
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < proposed; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS)
            found[(*count)++] = found[i];
    plan->none = *count == 0;
    const struct key *k = &plan->key;
    if (!plan->none || k->epilogue != EPILOGUE_NONE)
        return ERR_OK;
    return err_set(ERR_INTERNAL,
                   "cuBLASLt has no algorithm for a product of %zu x %zu x %zu (operands %d, fp8 "
                   "forms %d and %d, result %d): %s",
                   k->M, k->N, k->K, k->in, k->a_form, k->b_form, k->out,
                   cublasLtGetStatusName(status));
}

static cublasStatus_t submit(struct cuda *c, const struct plan *plan, const struct product *p)
{
    struct matmul *m = c->matmul;
    const float one = 1, beta = p->accumulate ? 1 : 0;
    cuda_set_device(c);
    return cublasLtMatmul(m->library, plan->product, &one, p->b, plan->a, p->a, plan->b, &beta,
                          p->c, plan->c, p->c, plan->c, &plan->algo, m->workspace, WORKSPACE_BYTES,
                          (cudaStream_t)c->dev.stream);
}

struct trial {
    struct cuda *c;
    const struct plan *plan;
    const struct product *p;
    bool refused;
};

static void try_once(void *self)
{
    struct trial *t = (struct trial *)self;
    t->refused = t->refused || submit(t->c, t->plan, t->p) != CUBLAS_STATUS_SUCCESS;
}

static uint16_t name_of(const cublasLtMatmulAlgo_t *algo)
{
    uint32_t hash = choice_hash(algo, sizeof *algo);
    return (uint16_t)(hash ^ hash >> 16);
}

/* Results are discarded while the device tunes, also those that are added to. */
static size_t measure(struct cuda *c, struct plan *plan, const struct product *p,
                      const cublasLtMatmulHeuristicResult_t *found, size_t count)
{
    double ms[CANDIDATES];
    for (size_t i = 0; i < count; i++) {
        plan->algo = found[i].algo;
        struct trial t = {c, plan, p, false};
        ms[i] = cuda_ms(c, try_once, &t);
        if (t.refused)
            ms[i] = INFINITY;
    }
    size_t best = choice_fastest(ms, count);
    cuda_log(false, "product",
             "M=%zu N=%zu K=%zu a_t=%d b_t=%d epilogue=%d added=%d first_ms=%.4f kept=%zu ms=%.4f",
             p->M, p->N, p->K, p->a_t, p->b_t, (int)p->epilogue, p->accumulate, ms[0], best,
             ms[best]);
    return best;
}

/* plan->algo: the one that the record names, else the fastest if the device tunes, else the first.
 */
static void choose(struct cuda *c, struct plan *plan, const struct product *p,
                   const cublasLtMatmulHeuristicResult_t *found, size_t count)
{
    const struct choice_product shape = {CHOICE_ALGORITHM, cuda_matmul_shape(p)};
    int decided = c->dev.autotune ? choice_product_find(c->dev.chosen, shape) : -1;
    bool now = c->dev.autotune == DEV_TUNING_NOW && !c->graphs.capturing;
    size_t best = 0;
    while (decided >= 0 && best < count && name_of(&found[best].algo) != decided)
        best++;
    if (best == count) {
        cuda_log(true, "product",
                 "M=%zu N=%zu K=%zu why=\"the library no longer proposes the algorithm that was "
                 "recorded: the bits of this run differ from here on\"",
                 p->M, p->N, p->K);
        best = 0;
    }
    if (decided < 0 && now && count > 1) {
        best = measure(c, plan, p, found, count);
        if (!choice_product_keep(c->dev.chosen, sizeof c->dev.chosen, shape,
                                 name_of(&found[best].algo)))
            best = 0; /* what cannot be recorded cannot be resumed */
    }
    plan->algo = found[best].algo;
    c->matmul->measured |= now;
}

/* After tuning the plans follow the record, which may be another rank's by now. */
static void measured_drop(struct cuda *c)
{
    struct matmul *m = c->matmul;
    if (!m->measured || c->dev.autotune == DEV_TUNING_NOW)
        return;
    for (size_t i = 0; i < m->count; i++)
        plan_close(&m->plans[i]);
    m->count = 0;
    m->measured = false;
}

/* An unused plan, or the least recently used one, closed. */
static struct plan *plan_free(struct matmul *m)
{
    struct plan *oldest = &m->plans[0];
    if (m->count < CUDA_PLANS_MAX)
        return &m->plans[m->count++];
    for (size_t i = 1; i < m->count; i++)
        if (m->plans[i].used < oldest->used)
            oldest = &m->plans[i];
    plan_close(oldest);
    return oldest;
}

static enum err plan_make(struct cuda *c, struct plan *plan, const struct product *p)
{
    cublasLtMatmulHeuristicResult_t proposed[CANDIDATES];
    int count = 0;
    memset(proposed, 0, sizeof proposed); /* all bytes of an algorithm are part of its name */
    TRY(describe(plan, p));
    TRY(propose(c->matmul, plan, proposed, &count));
    if (!plan->none)
        choose(c, plan, p, proposed, (size_t)count);
    return ERR_OK;
}

/* The plan of this shape, made at its first use. */
static enum err find(struct cuda *c, const struct product *p, struct plan **found)
{
    struct matmul *m = c->matmul;
    struct key k = key_of(p);
    m->calls++;
    for (size_t i = 0; i < m->count; i++)
        if (memcmp(&m->plans[i].key, &k, sizeof k) == 0) {
            m->plans[i].used = m->calls;
            *found = &m->plans[i];
            return ERR_OK;
        }
    struct plan *plan = *found = plan_free(m);
    plan->key = k;
    plan->used = m->calls;
    enum err e = plan_make(c, plan, p);
    plan->none = plan->none || e; /* an older library may not have the epilogue */
    return p->epilogue == EPILOGUE_NONE ? e : ERR_OK;
}

uint32_t cuda_matmul_shape(const struct product *p)
{
    const struct key k = key_of(p);
    return choice_hash(&k, sizeof k);
}

/* GELU's auxiliary stride is a multiple of 8 and its pointer of 16 bytes. */
static bool allowed(const struct product *p)
{
    return !has_pre(p->epilogue) || (p->ldc % 8 == 0 && alignment(p->pre) >= 16);
}

static enum err run(struct cuda *c, const struct product *p, bool *done)
{
    struct matmul *m = c->matmul;
    struct plan *plan = NULL;
    if (!m->workspace)
        TRY(c->dev.ops->alloc(&c->dev, &m->workspace, WORKSPACE_BYTES));
    measured_drop(c);
    TRY(find(c, p, &plan));
    *done = !plan->none;
    if (plan->none)
        return ERR_OK;
    TRY(point(plan, p));
    cublasStatus_t status = submit(c, plan, p);
    if (p->epilogue != EPILOGUE_NONE &&
        (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)) {
        plan->none = true; /* the algorithm of the heuristic cannot run; nothing was launched */
        *done = false;
        return ERR_OK;
    }
    if (status != CUBLAS_STATUS_SUCCESS)
        return failed("cublasLtMatmul", status);
    c->submitted++;
    return ERR_OK;
}

bool cuda_matmul_run(struct cuda *c, const struct product *p)
{
    bool done = false;
    if (p->M == 0 || p->N == 0 || p->K == 0)
        return true;
    if (c->dev.failed || !allowed(p))
        return false;
    enum err e = run(c, p, &done);
    if (e)
        cuda_fail(c, e);
    return done;
}

void cuda_matmul_free(struct cuda *c)
{
    if (!c->matmul)
        return;
    c->dev.ops->free(&c->dev, c->matmul->workspace);
    cuda_matmul_close(c->matmul);
}
