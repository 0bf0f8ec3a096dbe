/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt as its documentation describes it, for matmul_cuda.c when it is emulated: column-major
 * D = op(A) op(B) + beta C with epilogues, by plain loops in double. Strict about what the library
 * leaves to its caller: sizes, strides, alignments that the heuristic was told, device pointers.
 *
 * Operands in fp8 as the documentation restricts them before Blackwell: A transposed, B not, not
 * both E5M2, scales in device memory, K, the rows of D and all strides and addresses multiples of
 * 16 bytes.
 *
 * It has no fused product for an odd number of rows of D, and one where that number is divisible by
 * 14 fails only when it is called, so that tests see all ways through products.c.
 */
#include "tests/cuda/include/cublasLt.h"
#include "tests/cuda/fake_lt.h"
#include <math.h>
#include <string.h>
#include <vector>
#include "kernels/cuda/tile.cuh"
#include "kernels/scalar/fp8.h"
#include "tests/cuda/emulate_memory.h"

struct lt_handle {
    int unused;
};
struct lt_desc {
    cublasOperation_t a, b;
    cublasLtEpilogue_t epilogue;
    const void *bias;
    void *aux;
    int64_t aux_ld;
    int32_t bias_type;
    const float *a_scale, *b_scale;
};
struct lt_layout {
    cudaDataType_t type;
    size_t rows, cols, ld;
};
struct lt_preference {
    uint64_t workspace;
    uint32_t align[4]; /* A, B, C, D */
};
/* What the heuristic promised for. */
struct lt_algo {
    uint32_t align[4], bias_align, aux_align;
    uint32_t epilogue, seal, number, unused;
    uint64_t workspace, shape;
};
static_assert(sizeof(lt_algo) <= sizeof(cublasLtMatmulAlgo_t), "it fits");
enum { SEAL = 0x6c74, WORKSPACE = 4096 };

static void must(bool good, const char *what)
{
    if (!good)
        emulate_die(what);
}

static bool is_fp8(cudaDataType_t t)
{
    return t == CUDA_R_8F_E4M3 || t == CUDA_R_8F_E5M2;
}

static size_t type_bytes(cudaDataType_t t)
{
    return is_fp8(t) ? 1 : t == CUDA_R_32F ? 4 : 2;
}

static double read(const void *x, cudaDataType_t type, size_t i)
{
    if (is_fp8(type))
        return (double)fp8_value(((const uint8_t *)x)[i],
                                 type == CUDA_R_8F_E4M3 ? FP8_E4M3 : FP8_E5M2);
    return type == CUDA_R_32F ? (double)((const float *)x)[i]
                              : (double)bf16_float(((const uint16_t *)x)[i]);
}

static void write(void *x, cudaDataType_t type, size_t i, double value)
{
    if (type == CUDA_R_32F)
        ((float *)x)[i] = (float)value;
    else
        ((uint16_t *)x)[i] = bf16_round((float)value);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double t = tanh(0.79788456080286536 * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.79788456080286536 * (1 + 3 * 0.044715 * x * x);
}

static bool has_bias(cublasLtEpilogue_t e)
{
    return e == CUBLASLT_EPILOGUE_BIAS || e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

static bool has_aux(cublasLtEpilogue_t e)
{
    return e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || e == CUBLASLT_EPILOGUE_DGELU;
}

static bool has_sums(cublasLtEpilogue_t e)
{
    return e == CUBLASLT_EPILOGUE_BGRADB;
}

/* One product, with its own copies of everything. */
struct lt_call {
    lt_desc d;
    lt_layout a, b, to;
    const void *pa, *pb;
    void *p;
    double beta;
    size_t K;
    bool odd; /* an algorithm of odd number adds in f32: other bits */
};

static double at(const void *x, const lt_layout &l, cublasOperation_t op, size_t i, size_t j)
{
    return read(x, l.type, op == CUBLAS_OP_N ? i + j * l.ld : j + i * l.ld);
}

static void finish(const lt_call &c, size_t i, size_t j, double sum)
{
    size_t here = i + j * c.to.ld, aux = i + j * (size_t)c.d.aux_ld;
    cudaDataType_t type = c.to.type;
    if (is_fp8(c.a.type))
        sum *= (double)*c.d.a_scale * (double)*c.d.b_scale;
    if (c.beta != 0)
        sum += c.beta * read(c.p, type, here);
    if (has_bias(c.d.epilogue))
        sum += read(c.d.bias, (cudaDataType_t)c.d.bias_type, i);
    if (c.d.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
        write(c.d.aux, type, aux, sum);
        sum = gelu(read(c.d.aux, type, aux));
    }
    if (c.d.epilogue == CUBLASLT_EPILOGUE_DGELU)
        sum *= gelu_slope(read(c.d.aux, type, aux));
    write(c.p, type, here, sum);
}

static void inside(const void *p, const lt_layout &l)
{
    must(fake_where(p) == FAKE_DEVICE, "cuBLASLt: a matrix is not in device memory");
    fake_at(p, ((l.cols - 1) * l.ld + l.rows) * type_bytes(l.type));
}

static void run(void *self)
{
    const lt_call &c = *(const lt_call *)self;
    size_t M = c.to.rows, N = c.to.cols;
    inside(c.pa, c.a);
    inside(c.pb, c.b);
    inside(c.p, c.to);
    for (size_t j = 0; j < N; j++)
        for (size_t i = 0; i < M; i++) {
            double sum = 0;
            for (size_t k = 0; k < c.K; k++) {
                sum += at(c.pa, c.a, c.d.a, i, k) * at(c.pb, c.b, c.d.b, k, j);
                sum = c.odd ? (double)(float)sum : sum;
            }
            finish(c, i, j, sum);
        }
    for (size_t j = 0; c.d.epilogue == CUBLASLT_EPILOGUE_BGRADB && j < N; j++) {
        double sum = 0;
        for (size_t k = 0; k < c.K; k++)
            sum += at(c.pb, c.b, c.d.b, k, j);
        write((void *)(uintptr_t)c.d.bias, (cudaDataType_t)c.d.bias_type, j, sum);
    }
}

static uint64_t shape_of(const lt_desc *d, const lt_layout *a, const lt_layout *b,
                         const lt_layout *to)
{
    const uint64_t words[] = {
        (uint64_t)d->a,    (uint64_t)d->b, a->rows,  a->cols,  a->ld,  b->rows,
        b->cols,           b->ld,          to->rows, to->cols, to->ld, (uint64_t)a->type,
        (uint64_t)to->type};
    uint64_t hash = 1;
    for (uint64_t w : words)
        hash = (hash ^ w) * 0x100000001b3u;
    return hash;
}

static uint32_t alignment(const void *p)
{
    uintptr_t low = (uintptr_t)p & -(uintptr_t)p;
    return !low || low > 256 ? 256 : (uint32_t)low;
}

static void aligned(const void *p, uint32_t to, const char *what)
{
    must((uintptr_t)p % to == 0, what);
}

static void check_fp8(const lt_desc *d, const lt_layout *a, const lt_layout *b, const lt_layout *to)
{
    size_t each = type_bytes(to->type);
    must(is_fp8(a->type) && is_fp8(b->type), "cuBLASLt: one operand alone is fp8");
    must(a->type == CUDA_R_8F_E4M3 || b->type == CUDA_R_8F_E4M3, "cuBLASLt: both are E5M2");
    must(d->a == CUBLAS_OP_T && d->b == CUBLAS_OP_N, "cuBLASLt: fp8 is not in the TN layout");
    must(a->rows % 16 == 0 && to->rows % 16 == 0, "cuBLASLt: fp8 with K or rows not of 16");
    must(a->ld % 16 == 0 && b->ld % 16 == 0 && to->ld * each % 16 == 0,
         "cuBLASLt: fp8 with a stride not of 16 bytes");
    must(d->epilogue == CUBLASLT_EPILOGUE_DEFAULT, "cuBLASLt: fp8 with an epilogue");
    aligned(d->a_scale, 16, "cuBLASLt: the scale of A is not aligned");
    aligned(d->b_scale, 16, "cuBLASLt: the scale of B is not aligned");
    must(fake_where(d->a_scale) == FAKE_DEVICE && fake_where(d->b_scale) == FAKE_DEVICE,
         "cuBLASLt: fp8 without scales in device memory");
}

/* The shapes fit each other, and the epilogue is described as the documentation asks. */
static void check(const lt_desc *d, const lt_layout *a, const lt_layout *b, const lt_layout *to)
{
    bool n = d->a == CUBLAS_OP_N, m = d->b == CUBLAS_OP_N;
    must((n ? a->rows : a->cols) == to->rows, "cuBLASLt: rows of A and D differ");
    must((m ? b->cols : b->rows) == to->cols, "cuBLASLt: columns of B and D differ");
    must((n ? a->cols : a->rows) == (m ? b->rows : b->cols), "cuBLASLt: K of A and B differ");
    must(a->ld >= a->rows && b->ld >= b->rows && to->ld >= to->rows, "cuBLASLt: a stride is short");
    if (is_fp8(a->type) || is_fp8(b->type))
        check_fp8(d, a, b, to);
    else
        must(a->type == b->type, "cuBLASLt: A and B are of different types");
    if (has_bias(d->epilogue) || has_sums(d->epilogue)) {
        must(d->bias && fake_where(d->bias) == FAKE_DEVICE, "cuBLASLt: no bias");
        must(d->bias_type == (int32_t)to->type, "cuBLASLt: the bias is not of the result's type");
    }
    if (has_aux(d->epilogue)) {
        must(d->aux && fake_where(d->aux) == FAKE_DEVICE, "cuBLASLt: no auxiliary matrix");
        aligned(d->aux, 16, "cuBLASLt: the auxiliary matrix is not aligned");
        must(d->aux_ld % 8 == 0 && (size_t)d->aux_ld >= to->rows,
             "cuBLASLt: the auxiliary stride is no multiple of 8, or short");
    }
}

extern "C" {
struct fake_lt fake_lt;

size_t cublasLtGetVersion(void)
{
    return 130000;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "another";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
    *h = new lt_handle();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    delete h;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t,
                                        cudaDataType_t)
{
    fake_lt.held++;
    *d = new lt_desc{CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, NULL, NULL, 0, -1,
                     NULL,        NULL};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    fake_lt.held -= d != NULL;
    delete d;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t size)
{
    struct {
        int what;
        void *to;
        size_t size;
    } all[] = {{CUBLASLT_MATMUL_DESC_TRANSA, &d->a, 4},
               {CUBLASLT_MATMUL_DESC_TRANSB, &d->b, 4},
               {CUBLASLT_MATMUL_DESC_EPILOGUE, &d->epilogue, 4},
               {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &d->bias, 8},
               {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &d->aux, 8},
               {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &d->aux_ld, 8},
               {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &d->a_scale, 8},
               {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &d->b_scale, 8},
               {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &d->bias_type, 4}};
    for (auto &one : all)
        if (one.what == (int)what) {
            must(size == one.size, "cuBLASLt: an attribute of another size");
            memcpy(one.to, value, size);
            return CUBLAS_STATUS_SUCCESS;
        }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    fake_lt.held++;
    *l = new lt_layout{type, (size_t)rows, (size_t)cols, (size_t)ld};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    fake_lt.held -= l != NULL;
    delete l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    *p = new lt_preference{0, {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    delete p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t size)
{
    if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
        must(size == 8, "cuBLASLt: an attribute of another size");
        memcpy(&p->workspace, value, size);
    } else {
        must(size == 4, "cuBLASLt: an attribute of another size");
        if (what >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
            memcpy(&p->align[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, size);
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t to,
                                              cublasLtMatmulPreference_t p, int wanted,
                                              cublasLtMatmulHeuristicResult_t *found, int *count)
{
    *count = 0;
    fake_lt.asked++;
    check(d, a, b, to);
    must(memcmp(c, to, sizeof *c) == 0, "cuBLASLt: C and D differ");
    if ((d->epilogue != CUBLASLT_EPILOGUE_DEFAULT && to->rows % 2) || p->workspace < WORKSPACE)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    lt_algo algo = {{p->align[0], p->align[1], p->align[2], p->align[3]},
                    alignment(d->bias),
                    alignment(d->aux),
                    (uint32_t)d->epilogue,
                    SEAL,
                    0,
                    0,
                    WORKSPACE,
                    shape_of(d, a, b, to)};
    int offered = fake_lt.offered ? fake_lt.offered : 1;
    for (; *count < wanted && *count < offered; ++*count) {
        found[*count] = {};
        algo.number = (uint32_t)*count;
        memcpy(&found[*count].algo, &algo, sizeof algo);
        found[*count].workspaceSize = WORKSPACE;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                              cublasLtMatrixLayout_t, void *to, cublasLtMatrixLayout_t lto,
                              const cublasLtMatmulAlgo_t *chosen, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    lt_algo algo;
    memcpy(&algo, chosen, sizeof algo);
    bool slope = d->epilogue == CUBLASLT_EPILOGUE_DGELU;
    must(algo.number < FAKE_LT_ALGORITHMS, "cuBLASLt: no algorithm");
    if ((d->epilogue != CUBLASLT_EPILOGUE_DEFAULT && lto->rows % 14 == 0) ||
        fake_lt.broken[algo.number])
        return CUBLAS_STATUS_NOT_SUPPORTED;
    fake_lt.runs[algo.number]++;
    fake_lt.fused += slope;
    check(d, la, lb, lto);
    must(algo.seal == SEAL && algo.shape == shape_of(d, la, lb, lto) &&
             algo.epilogue == (uint32_t)d->epilogue,
         "cuBLASLt: the algorithm is not of this product");
    aligned(a, algo.align[0], "cuBLASLt: A is less aligned than the heuristic was told");
    aligned(b, algo.align[1], "cuBLASLt: B is less aligned than the heuristic was told");
    aligned(c, algo.align[2], "cuBLASLt: C is less aligned than the heuristic was told");
    aligned(to, algo.align[3], "cuBLASLt: D is less aligned than the heuristic was told");
    for (const void *p : {a, b, c, (const void *)to})
        if (is_fp8(la->type))
            aligned(p, 16, "cuBLASLt: fp8 with an address not of 16 bytes");
    if (has_bias(d->epilogue) || has_sums(d->epilogue))
        aligned(d->bias, algo.bias_align, "cuBLASLt: the bias is less aligned than before");
    if (has_aux(d->epilogue))
        aligned(d->aux, algo.aux_align, "cuBLASLt: the auxiliary matrix is less aligned");
    must(*(const float *)alpha == 1, "cuBLASLt: alpha is not 1");
    must(workspace_bytes >= algo.workspace && fake_where(workspace) == FAKE_DEVICE,
         "cuBLASLt: no workspace");
    aligned(workspace, 256, "cuBLASLt: the workspace is not aligned");
    const lt_call call = {*d,
                          *la,
                          *lb,
                          *lto,
                          a,
                          b,
                          to,
                          *(const float *)beta,
                          d->a == CUBLAS_OP_N ? la->cols : la->rows,
                          algo.number % 2 == 1};
    fake_enqueue(stream, run, &call, sizeof call,
                 fake_lt.us[algo.number] + (slope ? fake_lt.fused_us : 0));
    return CUBLAS_STATUS_SUCCESS;
}
}
