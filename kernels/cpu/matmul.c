/* Matrix products through oneDNN's C API, both major versions behind the macros below; see
 * matmul.h. A primitive is made once per shape and kept. Layouts are plain: packing the weights
 * gained 3 % of a product (4096x2048x512, 2 cores of Zen 4: 452 against 439 GFLOP/s in bf16) and
 * costs a copy per step.
 */
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/cpu.h"
#include <dnnl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t layout;
#define LAYOUT_MAKE(md, dims, type, strides)                                                       \
    dnnl_memory_desc_create_with_strides(md, 2, dims, type, strides)
#define LAYOUT_FREE(md) dnnl_memory_desc_destroy(*(md))
#define LAYOUT(md)      (*(md))
#define APPEND_SUM(po)  dnnl_post_ops_append_sum(po, 1.0f, 0, dnnl_f32)
#else
typedef dnnl_memory_desc_t layout;
#define LAYOUT_MAKE(md, dims, type, strides)                                                       \
    dnnl_memory_desc_init_by_strides(md, 2, dims, type, strides)
#define LAYOUT_FREE(md) ((void)(md))
#define LAYOUT(md)      (md)
#define APPEND_SUM(po)  dnnl_post_ops_append_sum(po, 1.0f)
#endif

enum { PRIMITIVES_MAX = 512 }; /* shapes of a run: some 40; the oldest goes when they are more */
enum { A, B, C, BIAS, OPERANDS };

struct shape { /* compared by memcmp: eight-byte members only, no padding */
    uint64_t M, N, K, lda, ldb, ldc;
    uint64_t a_t, b_t, accumulate, bias, in, out;
};

struct primitive {
    struct shape shape;
    dnnl_primitive_t run; /* NULL: the library has no such product, widen to f32 */
    dnnl_memory_t memory[OPERANDS];
};

struct matmul {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    int threads;
    char version[48], bf16[64];
    struct primitive made[PRIMITIVES_MAX];
    size_t count, oldest;
};

static enum err failed(dnnl_status_t status, const char *what)
{
    return err_set(status == dnnl_out_of_memory ? ERR_MEMORY : ERR_INTERNAL,
                   "oneDNN could not %s (status %d)", what, (int)status);
}

static void primitive_free(struct primitive *p)
{
    if (p->run)
        dnnl_primitive_destroy(p->run);
    for (int i = 0; i < OPERANDS; i++)
        if (p->memory[i])
            dnnl_memory_destroy(p->memory[i]);
    *p = (struct primitive){0};
}

static dnnl_status_t layout_make(layout *md, uint64_t rows, uint64_t columns, uint64_t stride,
                                 bool transposed, uint64_t type)
{
    dnnl_dims_t dims = {(dnnl_dim_t)rows, (dnnl_dim_t)columns};
    dnnl_dims_t strides = {transposed ? 1 : (dnnl_dim_t)stride,
                           transposed ? (dnnl_dim_t)stride : 1};
    return LAYOUT_MAKE(md, dims, type == DTYPE_BF16 ? dnnl_bf16 : dnnl_f32, strides);
}

static dnnl_status_t describe(struct matmul *m, dnnl_primitive_desc_t *pd, const struct shape *s,
                              const layout md[OPERANDS])
{
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t post;
    dnnl_primitive_attr_create(&attr);
    dnnl_post_ops_create(&post);
    if (s->accumulate)
        APPEND_SUM(post);
    dnnl_primitive_attr_set_post_ops(attr, post);
    dnnl_post_ops_destroy(post);
#if DNNL_VERSION_MAJOR >= 3
#if DNNL_VERSION_MAJOR > 3 || DNNL_VERSION_MINOR >= 4
    dnnl_primitive_attr_set_deterministic(attr, 1);
#endif
    dnnl_status_t status = dnnl_matmul_primitive_desc_create(
        pd, m->engine, md[A], md[B], s->bias ? md[BIAS] : NULL, md[C], attr);
#else
    dnnl_matmul_desc_t desc;
    dnnl_status_t status =
        dnnl_matmul_desc_init(&desc, &md[A], &md[B], s->bias ? &md[BIAS] : NULL, &md[C]);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(pd, &desc, attr, m->engine, NULL);
#endif
    dnnl_primitive_attr_destroy(attr);
    return status;
}

static dnnl_status_t primitive_finish(struct matmul *m, struct primitive *p,
                                      const layout md[OPERANDS], dnnl_primitive_desc_t pd)
{
    dnnl_status_t status = dnnl_primitive_create(&p->run, pd);
    for (int i = 0; i < OPERANDS && status == dnnl_success; i++)
        if (i != BIAS || p->shape.bias)
            status = dnnl_memory_create(&p->memory[i], LAYOUT(&md[i]), m->engine, DNNL_MEMORY_NONE);
    return status;
}

/* run stays NULL where the library says it has no such product. */
static enum err primitive_make(struct matmul *m, struct primitive *p, const struct shape *s,
                               char *name)
{
    layout md[OPERANDS];
    dnnl_primitive_desc_t pd = NULL;
    p->shape = *s;
    dnnl_status_t made[] = {layout_make(&md[A], s->M, s->K, s->lda, s->a_t, s->in),
                            layout_make(&md[B], s->K, s->N, s->ldb, s->b_t, s->in),
                            layout_make(&md[C], s->M, s->N, s->ldc, false, s->out),
                            layout_make(&md[BIAS], 1, s->N, s->N, false, DTYPE_F32)};
    for (int i = 0; i < OPERANDS; i++)
        if (made[i] != dnnl_success)
            return failed(made[i], "describe a matrix");
    dnnl_status_t status = describe(m, &pd, s, md);
    const char *info = "";
    if (status == dnnl_success) {
        if (name &&
            dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &info) == dnnl_success)
            snprintf(name, 64, "%s", info);
        status = primitive_finish(m, p, md, pd);
        dnnl_primitive_desc_destroy(pd);
    } else if (status == dnnl_unimplemented && s->in == DTYPE_BF16) {
        status = dnnl_success;
    }
    for (int i = 0; i < OPERANDS; i++)
        LAYOUT_FREE(&md[i]);
    return status == dnnl_success ? ERR_OK : failed(status, "make a matrix product");
}

/* Which bf16 product the library has here: asked once with a shape that every implementation takes.
 */
static enum err probe_bf16(struct matmul *m)
{
    struct shape s = {64, 64, 64, 64, 64, 64, 0, 1, 0, 0, DTYPE_BF16, DTYPE_BF16};
    struct primitive p = {0};
    enum err e = primitive_make(m, &p, &s, m->bf16);
    primitive_free(&p);
    return e;
}

enum err matmul_open(struct matmul **out, int threads)
{
    struct matmul *m = *out = calloc(1, sizeof *m);
    if (!m)
        return err_set(ERR_MEMORY, "no memory for matrix products");
    m->threads = threads;
    omp_set_num_threads(threads);
    dnnl_status_t status = dnnl_engine_create(&m->engine, dnnl_cpu, 0);
    if (status == dnnl_success)
        status = dnnl_stream_create(&m->stream, m->engine, dnnl_stream_default_flags);
    if (status != dnnl_success)
        return failed(status, "start");
    const dnnl_version_t *v = dnnl_version();
    snprintf(m->version, sizeof m->version, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    return probe_bf16(m);
}

void matmul_close(struct matmul *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->count; i++)
        primitive_free(&m->made[i]);
    if (m->stream)
        dnnl_stream_destroy(m->stream);
    if (m->engine)
        dnnl_engine_destroy(m->engine);
    free(m);
}

const char *matmul_version(const struct matmul *m)
{
    return m->version;
}

const char *matmul_bf16(const struct matmul *m)
{
    return m->bf16;
}

static enum err primitive_find(struct matmul *m, struct primitive **out, const struct shape *s)
{
    for (size_t i = 0; i < m->count; i++)
        if (memcmp(&m->made[i].shape, s, sizeof *s) == 0) {
            *out = &m->made[i];
            return ERR_OK;
        }
    size_t at = m->count;
    if (at == PRIMITIVES_MAX) {
        at = m->oldest;
        m->oldest = (m->oldest + 1) % PRIMITIVES_MAX;
        primitive_free(&m->made[at]);
    } else {
        m->count++;
    }
    *out = &m->made[at];
    return primitive_make(m, *out, s, NULL);
}

static enum err execute(struct matmul *m, struct primitive *p, const struct product *x)
{
    void *data[OPERANDS] = {(void *)(uintptr_t)x->a, (void *)(uintptr_t)x->b, x->c,
                            (void *)(uintptr_t)x->bias};
    static const int names[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                        DNNL_ARG_BIAS};
    dnnl_exec_arg_t arguments[OPERANDS];
    int count = 0;
    for (int i = 0; i < OPERANDS; i++) {
        if (!p->memory[i])
            continue;
        dnnl_memory_set_data_handle(p->memory[i], data[i]);
        arguments[count++] = (dnnl_exec_arg_t){names[i], p->memory[i]};
    }
    dnnl_status_t status = dnnl_primitive_execute(p->run, m->stream, count, arguments);
    if (status == dnnl_success)
        status = dnnl_stream_wait(m->stream);
    return status == dnnl_success ? ERR_OK : failed(status, "multiply");
}

static void convert_rows(struct cpu *c, void *to, enum dtype to_type, size_t to_stride,
                         const void *from, enum dtype from_type, size_t from_stride, size_t rows,
                         size_t columns)
{
#pragma omp parallel for num_threads(c->dev.threads)
    for (size_t r = 0; r < rows; r++)
        c->rows->convert((char *)to + r * to_stride * dtype_size(to_type), to_type,
                         (const char *)from + r * from_stride * dtype_size(from_type), from_type,
                         columns);
}

/* The same product on f32 copies: correct everywhere, slow. */
static void run_widened(struct cpu *c, const struct product *p)
{
    size_t a_rows = p->a_t ? p->K : p->M, a_columns = p->a_t ? p->M : p->K;
    size_t b_rows = p->b_t ? p->N : p->K, b_columns = p->b_t ? p->K : p->N;
    size_t a_count = a_rows * a_columns, b_count = b_rows * b_columns;
    size_t c_count = p->out == DTYPE_BF16 ? p->M * p->N : 0;
    float *a = cpu_scratch(c, 1, (a_count + b_count + c_count) * sizeof *a);
    if (!a)
        return;
    float *b = a + a_count, *result = b + b_count;
    convert_rows(c, a, DTYPE_F32, a_columns, p->a, DTYPE_BF16, p->lda, a_rows, a_columns);
    convert_rows(c, b, DTYPE_F32, b_columns, p->b, DTYPE_BF16, p->ldb, b_rows, b_columns);
    struct product wide = *p;
    wide.a = a;
    wide.b = b;
    wide.lda = a_columns;
    wide.ldb = b_columns;
    wide.in = wide.out = DTYPE_F32;
    if (p->out == DTYPE_BF16) {
        wide.c = result;
        wide.ldc = p->N;
    }
    matmul_run(c, &wide);
    if (p->out == DTYPE_BF16)
        convert_rows(c, p->c, DTYPE_BF16, p->ldc, result, DTYPE_F32, p->N, p->M, p->N);
}

void matmul_run(struct cpu *c, const struct product *p)
{
    struct matmul *m = c->matmul;
    struct shape s = {p->M,   p->N,   p->K,          p->lda,          p->ldb, p->ldc,
                      p->a_t, p->b_t, p->accumulate, p->bias != NULL, p->in,  p->out};
    struct primitive *found = NULL;
    if (p->M == 0 || c->dev.failed)
        return;
    omp_set_num_threads(m->threads); /* per calling thread, and baked into what is made here */
    enum err e = primitive_find(m, &found, &s);
    if (!e && !found->run)
        run_widened(c, p);
    else if (!e)
        e = execute(m, found, p);
    if (e)
        cpu_fail(&c->dev, e);
}
