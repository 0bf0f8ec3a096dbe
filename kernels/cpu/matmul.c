/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products through oneDNN's C API; the macros below hide the differences between its major
 * versions. See matmul.h. A primitive is created once per shape and cached. Layouts are plain:
 * packed weights gained 3 % of a product (4096x2048x512, 2 cores of Zen 4: 452 against 439 GFLOP/s
 * in bf16) and cost a copy per step.
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

/* Shapes of a run: about 40; with attention over sequences of many lengths a few hundred. At most a
 * quarter of the slots is used, so searches are short. */
enum { SLOTS = 4 * MATMUL_KEPT_MAX };
enum { A, B, C, BIAS, SCRATCHPAD, OPERANDS };

struct shape { /* compared by memcmp: eight-byte members only, no padding */
    uint64_t M, N, K, lda, ldb, ldc;
    uint64_t a_t, b_t, accumulate, bias, in, out;
    uint64_t single; /* for one thread; several may run it, each with its own operands */
};

struct primitive {
    struct shape shape;
    dnnl_primitive_t run; /* NULL: the library has no such product, widen to f32 */
    uint64_t used;        /* value of matmul.calls at the last use */
    int threads;          /* sets of operands: 1, or all threads of the device */
    dnnl_memory_t memory[][OPERANDS];
};

struct matmul {
    dnnl_engine_t engine;
    dnnl_stream_t *streams; /* one per thread */
    int threads;
    char version[48], bf16[64];
    struct primitive *made[SLOTS]; /* by hash of the shape, open addressing */
    struct matmul_counts counts;
    uint64_t calls; /* of matmul_run; primitives used since the last call are not destroyed */
};

static enum err failed(dnnl_status_t status, const char *what)
{
    return err_set(status == dnnl_out_of_memory ? ERR_MEMORY : ERR_INTERNAL,
                   "oneDNN could not %s (status %d)", what, (int)status);
}

static void primitive_free(struct primitive *p)
{
    if (!p)
        return;
    if (p->run)
        dnnl_primitive_destroy(p->run);
    for (int t = 0; t < p->threads; t++)
        for (int i = 0; i < OPERANDS; i++)
            if (p->memory[t][i])
                dnnl_memory_destroy(p->memory[t][i]);
    free(p);
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
                              const layout md[SCRATCHPAD])
{
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t post;
    dnnl_primitive_attr_create(&attr);
    dnnl_post_ops_create(&post);
    if (s->accumulate)
        APPEND_SUM(post);
    dnnl_primitive_attr_set_post_ops(attr, post);
    if (s->single) /* the library's own scratchpad belongs to the thread that made the primitive */
        dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
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

static dnnl_status_t memory_make(struct matmul *m, struct primitive *p, const layout md[SCRATCHPAD],
                                 dnnl_primitive_desc_t pd)
{
    dnnl_status_t status = dnnl_success;
    for (int t = 0; t < p->threads; t++) {
        for (int i = 0; i < SCRATCHPAD && status == dnnl_success; i++)
            if (i != BIAS || p->shape.bias)
                status = dnnl_memory_create(&p->memory[t][i], LAYOUT(&md[i]), m->engine,
                                            DNNL_MEMORY_NONE);
        if (p->shape.single && status == dnnl_success)
            status =
                dnnl_memory_create(&p->memory[t][SCRATCHPAD],
                                   dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0),
                                   m->engine, DNNL_MEMORY_ALLOCATE);
    }
    return status;
}

/* run stays NULL where the library has no such product. name: the name of the implementation in the
 * library. */
static enum err primitive_fill(struct matmul *m, struct primitive *p, char name[64])
{
    const struct shape *s = &p->shape;
    layout md[SCRATCHPAD];
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t made[] = {layout_make(&md[A], s->M, s->K, s->lda, s->a_t, s->in),
                            layout_make(&md[B], s->K, s->N, s->ldb, s->b_t, s->in),
                            layout_make(&md[C], s->M, s->N, s->ldc, false, s->out),
                            layout_make(&md[BIAS], 1, s->N, s->N, false, DTYPE_F32)};
    for (int i = 0; i < SCRATCHPAD; i++)
        if (made[i] != dnnl_success)
            return failed(made[i], "describe a matrix");
    dnnl_status_t status = describe(m, &pd, s, md);
    const char *info = "";
    if (status == dnnl_success) {
        if (name &&
            dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &info) == dnnl_success)
            snprintf(name, 64, "%s", info);
        status = dnnl_primitive_create(&p->run, pd);
        if (status == dnnl_success)
            status = memory_make(m, p, md, pd);
        dnnl_primitive_desc_destroy(pd);
    } else if (status == dnnl_unimplemented && s->in == DTYPE_BF16) {
        status = dnnl_success;
    }
    for (int i = 0; i < SCRATCHPAD; i++)
        LAYOUT_FREE(&md[i]);
    return status == dnnl_success ? ERR_OK : failed(status, "make a matrix product");
}

/* oneDNN reads the thread count of the calling thread and fixes it in the primitive. */
static enum err primitive_make(struct matmul *m, struct primitive **out, const struct shape *s,
                               char *name)
{
    int sets = s->single ? m->threads : 1;
    struct primitive *p = *out = calloc(1, sizeof *p + (size_t)sets * sizeof *p->memory);
    if (!p)
        return err_set(ERR_MEMORY, "no memory for a matrix product");
    p->shape = *s;
    p->threads = sets;
    omp_set_num_threads(s->single ? 1 : m->threads);
    enum err e = primitive_fill(m, p, name);
    omp_set_num_threads(m->threads);
    if (e) {
        primitive_free(p);
        *out = NULL;
    }
    return e;
}

/* The bf16 implementation of the library on this processor: the one that it selects for a shape
 * that every implementation supports. */
static enum err probe_bf16(struct matmul *m)
{
    struct shape s = {64, 64, 64, 64, 64, 64, 0, 1, 0, 0, DTYPE_BF16, DTYPE_BF16, 0};
    struct primitive *p;
    enum err e = primitive_make(m, &p, &s, m->bf16);
    primitive_free(p);
    return e;
}

enum err matmul_open(struct matmul **out, int threads)
{
    struct matmul *m = *out = calloc(1, sizeof *m);
    if (!m)
        return err_set(ERR_MEMORY, "no memory for matrix products");
    m->threads = threads;
    m->streams = calloc((size_t)threads, sizeof *m->streams);
    if (!m->streams)
        return err_set(ERR_MEMORY, "no memory for matrix products");
    omp_set_num_threads(threads);
    dnnl_status_t status = dnnl_engine_create(&m->engine, dnnl_cpu, 0);
    for (int i = 0; i < threads && status == dnnl_success; i++)
        status = dnnl_stream_create(&m->streams[i], m->engine, dnnl_stream_default_flags);
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
    for (size_t i = 0; i < SLOTS; i++)
        primitive_free(m->made[i]);
    for (int i = 0; m->streams && i < m->threads; i++)
        if (m->streams[i])
            dnnl_stream_destroy(m->streams[i]);
    free(m->streams);
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

static struct shape shape_of(const struct product *p, bool single)
{
    return (struct shape){p->M,   p->N,   p->K,   p->lda,        p->ldb,
                          p->ldc, p->a_t, p->b_t, p->accumulate, p->bias != NULL,
                          p->in,  p->out, single};
}

struct matmul_counts matmul_counts(const struct matmul *m)
{
    return m->counts;
}

/* The slot where the search for a shape begins (FNV-1a over its members). */
static size_t home_of(const struct shape *s)
{
    uint64_t members[sizeof *s / sizeof(uint64_t)], hash = 14695981039346656037u;
    memcpy(members, s, sizeof *s);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        hash = (hash ^ members[i]) * 1099511628211u;
    return (size_t)(hash ^ hash >> 32) % SLOTS;
}

/* The slot of this shape in the hash table, or the free slot for it. */
static struct primitive **slot_of(struct matmul *m, const struct shape *s)
{
    size_t at = home_of(s);
    while (m->made[at] && memcmp(&m->made[at]->shape, s, sizeof *s) != 0)
        at = (at + 1) % SLOTS;
    return &m->made[at];
}

/* Destroys the primitive of a slot. A later primitive of the cluster moves into the hole unless its
 * home lies between the hole and its slot: otherwise its search would end at the hole (Knuth, vol.
 * 3, 6.4, algorithm R). */
static void slot_drop(struct matmul *m, size_t hole)
{
    primitive_free(m->made[hole]);
    m->made[hole] = NULL;
    m->counts.kept--;
    for (size_t next = (hole + 1) % SLOTS; m->made[next]; next = (next + 1) % SLOTS) {
        size_t home = home_of(&m->made[next]->shape);
        if ((next - home) % SLOTS < (next - hole) % SLOTS)
            continue;
        m->made[hole] = m->made[next];
        m->made[next] = NULL;
        hole = next;
    }
}

/* Destroys the least recently used primitive; false: all were used since the last matmul_run. Reads
 * all slots, about 10 us; creating a primitive takes about 1 ms. */
static bool oldest_drop(struct matmul *m)
{
    size_t oldest = SLOTS;
    for (size_t i = 0; i < SLOTS; i++)
        if (m->made[i] && (oldest == SLOTS || m->made[i]->used < m->made[oldest]->used))
            oldest = i;
    if (oldest == SLOTS || m->made[oldest]->used == m->calls)
        return false;
    slot_drop(m, oldest);
    return true;
}

/* *out NULL: the table is full and nothing may be destroyed. */
static enum err primitive_find(struct matmul *m, struct primitive **out, const struct shape *s)
{
    struct primitive **slot = slot_of(m, s);
    *out = NULL;
    if (!*slot) {
        if (m->counts.kept == MATMUL_KEPT_MAX && !oldest_drop(m))
            return ERR_OK;
        slot = slot_of(m, s); /* oldest_drop moves primitives */
        TRY(primitive_make(m, slot, s, NULL));
        m->counts.kept++;
        m->counts.made++;
    }
    (*slot)->used = m->calls;
    *out = *slot;
    return ERR_OK;
}

static enum err execute(struct matmul *m, struct primitive *p, int thread,
                        void *const data[SCRATCHPAD])
{
    static const int names[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS,
                                        DNNL_ARG_SCRATCHPAD};
    dnnl_exec_arg_t arguments[OPERANDS];
    dnnl_memory_t *memory = p->memory[thread];
    int count = 0;
    for (int i = 0; i < OPERANDS; i++) {
        if (!memory[i])
            continue;
        if (i != SCRATCHPAD)
            dnnl_memory_set_data_handle(memory[i], data[i]);
        arguments[count++] = (dnnl_exec_arg_t){names[i], memory[i]};
    }
    dnnl_status_t status = dnnl_primitive_execute(p->run, m->streams[thread], count, arguments);
    if (status == dnnl_success)
        status = dnnl_stream_wait(m->streams[thread]);
    return status == dnnl_success ? ERR_OK : failed(status, "multiply");
}

struct matrix { /* stride: elements of a row */
    void *x;
    enum dtype type;
    size_t stride;
};

static void convert_rows(struct cpu *c, struct matrix to, struct matrix from, size_t rows,
                         size_t columns)
{
#pragma omp parallel for num_threads(c->dev.threads)
    for (size_t r = 0; r < rows; r++)
        c->rows->convert((char *)to.x + r * to.stride * dtype_size(to.type), to.type,
                         (const char *)from.x + r * from.stride * dtype_size(from.type), from.type,
                         columns);
}

/* The library takes inputs as void *. */
static void *input(const void *p)
{
    return (void *)(uintptr_t)p;
}

/* Converts bf16 operands to f32 and multiplies those: correct on every processor, slow. */
static void run_widened(struct cpu *c, const struct product *p)
{
    size_t a_rows = p->a_t ? p->K : p->M, a_columns = p->a_t ? p->M : p->K;
    size_t b_rows = p->b_t ? p->N : p->K, b_columns = p->b_t ? p->K : p->N;
    size_t lda = dev_rows_apart(DTYPE_F32, a_columns), ldb = dev_rows_apart(DTYPE_F32, b_columns);
    size_t a_count = a_rows * lda, b_count = b_rows * ldb;
    size_t c_count = p->out == DTYPE_BF16 ? p->M * p->N : 0;
    float *a = cpu_scratch(c, 1, (a_count + b_count + c_count) * sizeof *a);
    if (!a)
        return;
    float *b = a + a_count, *result = b + b_count;
    convert_rows(c, (struct matrix){a, DTYPE_F32, lda},
                 (struct matrix){input(p->a), DTYPE_BF16, p->lda}, a_rows, a_columns);
    convert_rows(c, (struct matrix){b, DTYPE_F32, ldb},
                 (struct matrix){input(p->b), DTYPE_BF16, p->ldb}, b_rows, b_columns);
    struct product wide = *p;
    wide.a = a;
    wide.b = b;
    wide.lda = lda;
    wide.ldb = ldb;
    wide.in = wide.out = DTYPE_F32;
    if (p->out == DTYPE_BF16) {
        wide.c = result;
        wide.ldc = p->N;
    }
    matmul_library(c, &wide);
    if (p->out == DTYPE_BF16)
        convert_rows(c, (struct matrix){p->c, DTYPE_BF16, p->ldc},
                     (struct matrix){result, DTYPE_F32, p->N}, p->M, p->N);
}

void matmul_library(struct cpu *c, const struct product *p)
{
    struct matmul *m = c->matmul;
    struct shape s = shape_of(p, false);
    struct primitive *found = NULL;
    if (p->M == 0 || c->dev.failed)
        return;
    m->calls++;
    omp_set_num_threads(m->threads); /* the caller may be a thread that has not set it */
    enum err e = primitive_find(m, &found, &s);
    if (!e && !found->run)
        run_widened(c, p);
    else if (!e)
        e = execute(m, found, 0, (void *[]){input(p->a), input(p->b), p->c, input(p->bias)});
    if (e)
        cpu_fail(&c->dev, e);
}

struct primitive *matmul_single(struct cpu *c, const struct product *p)
{
    struct shape s = shape_of(p, true);
    struct primitive *found = NULL;
    enum err e = primitive_find(c->matmul, &found, &s);
    if (e)
        cpu_fail(&c->dev, e);
    return found && found->run ? found : NULL;
}

enum err matmul_single_run(struct cpu *c, struct primitive *p, int thread, const void *a,
                           const void *b, void *out)
{
    return execute(c->matmul, p, thread, (void *[]){input(a), input(b), out, NULL});
}
