/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the CPU device: instruction set, model type, threads, memory; and the list of the ops,
 * which are in their own files. No other file of the folder calls this one. */
#include "kernels/base/clock.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/exact.h"
#include "kernels/cpu/matmul.h"
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { BIG = 1 << 20 }; /* bytes from which several threads copy */

static void device_close(struct dev *d)
{
    struct cpu *c = cpu_of(d);
    matmul_close(c->matmul);
    free(c->scratch[0]);
    free(c->scratch[1]);
    free(c);
}

static enum err device_alloc(struct dev *d, void **p, size_t bytes)
{
    (void)d;
    *p = bytes > SIZE_MAX - 64 ? NULL : aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!*p)
        return err_set(ERR_MEMORY, "no %zu MiB of memory left", bytes >> 20);
    memset(*p, 0, bytes);
    return ERR_OK;
}

static void device_free(struct dev *d, void *p)
{
    (void)d;
    free(p);
}

/* calloc maps zero pages: an array takes memory when it is first written. */
static enum err device_host_alloc(struct dev *d, void **p, size_t bytes)
{
    (void)d;
    *p = calloc(1, bytes);
    return *p ? ERR_OK : err_set(ERR_MEMORY, "%zu bytes wanted, the machine has no more", bytes);
}

static void device_copy(struct dev *d, void *to, const void *from, size_t bytes)
{
    if (bytes < BIG) { /* even a team of one costs a system call */
        if (bytes)     /* else the pointers may be NULL */
            memcpy(to, from, bytes);
        return;
    }
#pragma omp parallel num_threads(d->threads)
    {
        int i = omp_get_thread_num(), n = omp_get_num_threads();
        size_t begin = cpu_part(bytes, i, n, 4096), end = cpu_part(bytes, i + 1, n, 4096);
        memcpy((char *)to + begin, (const char *)from + begin, end - begin);
    }
}

static void device_zero(struct dev *d, void *p, size_t bytes)
{
    if (bytes < BIG) {
        memset(p, 0, bytes);
        return;
    }
#pragma omp parallel num_threads(d->threads)
    {
        int i = omp_get_thread_num(), n = omp_get_num_threads();
        size_t begin = cpu_part(bytes, i, n, 4096), end = cpu_part(bytes, i + 1, n, 4096);
        memset((char *)p + begin, 0, end - begin);
    }
}

static enum err device_sync(struct dev *d)
{
    return d->failed ? err_set(d->failed, "%s", cpu_of(d)->message) : ERR_OK;
}

/* An op is done when it returns: an event is a time, for reports. */
static void device_event_record(struct dev *d, unsigned event)
{
    cpu_of(d)->event_s[event] = clock_mono_s();
}

static enum err device_event_wait(struct dev *d, unsigned event)
{
    (void)event;
    return device_sync(d);
}

static double device_event_seconds(struct dev *d, unsigned from, unsigned to)
{
    return cpu_of(d)->event_s[to] - cpu_of(d)->event_s[from];
}

static size_t device_memory_free(struct dev *d)
{
    (void)d;
    return 0;
}

static void device_graph_run(struct dev *d, const struct dev_graph *r)
{
    (void)d;
    r->run(r->self);
}

static const struct dev_ops plain_ops = {
#define X(name, arguments) .name = cpu_##name,
    DEV_OPS(X)
#undef X
        .close = device_close,
    .alloc = device_alloc,
    .free = device_free,
    .host_alloc = device_host_alloc,
    .host_free = device_free,
    .copy = device_copy,
    .copy_async = device_copy,
    .zero = device_zero,
    .sync = device_sync,
    .event_record = device_event_record,
    .event_wait = device_event_wait,
    .event_seconds = device_event_seconds,
    .memory_free = device_memory_free,
    .graph_run = device_graph_run,
};

/* What differs between levels. */
static const struct {
    const struct rows *rows;
    void (*exact)(struct dev_ops *ops); /* NULL: the plain ones */
} levels[LEVEL_COUNT] = {
#if defined(__x86_64__)
    {&rows_v2, NULL},
    {&rows_v3, cpu_exact_v3},
    {&rows_v4, cpu_exact_v4},
#else
    {&rows_plain, NULL},
#endif
};

/* The level named `isa`, or the best of this processor. LEVEL_COUNT: the processor has no such
 * level. */
static enum level level_choose(const char *isa)
{
    enum level level = level_best();
    while (isa && strcmp(levels[level].rows->isa, isa) != 0)
        if (level-- == LEVEL_PLAIN)
            return LEVEL_COUNT;
    return level;
}

/* "auto". AMX multiplies bf16 an order of magnitude faster than f32. The AVX512-BF16 dot product
 * alone runs at twice the f32 rate on AMD's Zen 4 (oneDNN 2.6.3, 4096x1536x512, 2 cores: 440
 * against 220 GFLOP/s) but at half of it on Intel's cores (109 against 210 per core). A measurement
 * at start would choose as well, but two starts of one run might then differ in type. */
static enum dtype type_auto(const struct cpu *c)
{
    const char *bf16 = matmul_bf16(c->matmul);
    if (strstr(bf16, "amx"))
        return DTYPE_BF16;
#if defined(__x86_64__)
    if (strstr(bf16, "avx512_core_bf16") && __builtin_cpu_is("amd"))
        return DTYPE_BF16;
#endif
    return DTYPE_F32;
}

static enum err type_choose(struct cpu *c, const char *name)
{
    if (!name || strcmp(name, "auto") == 0)
        c->dev.model_type = type_auto(c);
    else if (strcmp(name, "f32") == 0)
        c->dev.model_type = DTYPE_F32;
    else if (strcmp(name, "bf16") == 0)
        c->dev.model_type = DTYPE_BF16;
    else
        return err_set(ERR_CONFIG, "model type '%s' is none of f32, bf16, auto", name);
    return ERR_OK;
}

static enum err open_parts(struct cpu *c, const struct dev_options *o)
{
    enum level level = level_choose(o->isa);
    if (level == LEVEL_COUNT)
        return err_set(ERR_UNSUPPORTED, "this processor or build has no instruction set '%s'",
                       o->isa);
    c->rows = levels[level].rows;
    if (levels[level].exact)
        levels[level].exact(&c->ops);
    TRY(matmul_open(&c->matmul, c->dev.threads));
    TRY(type_choose(c, o->model_type));
    c->emulation = o->emulation;
    const char *bf16 = matmul_bf16(c->matmul);
    snprintf(c->dev.note, sizeof c->dev.note,
             "cpu isa=%s threads=%d type=%s gemm=\"%s\" bf16=\"%s\"", c->rows->isa, c->dev.threads,
             c->dev.model_type == DTYPE_F32 ? "f32" : "bf16", matmul_version(c->matmul),
             *bf16 ? bf16 : "widened to f32");
    return ERR_OK;
}

int dev_threads(void)
{
    cpu_set_t mask;
    int n = sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 1;
    return n < 1 ? 1 : n;
}

enum err cpu_open(struct dev **d, const struct dev_options *o)
{
    struct cpu *c = calloc(1, sizeof *c);
    *d = NULL;
    if (!c)
        return err_set(ERR_MEMORY, "no memory for the CPU device");
    c->ops = plain_ops;
    c->dev = (struct dev){.ops = &c->ops, .kind = "cpu", .host_memory = true};
    c->dev.threads = o->threads > 0 ? o->threads : dev_threads();
    enum err e = open_parts(c, o);
    if (e) {
        device_close(&c->dev);
        return e;
    }
    *d = &c->dev;
    return ERR_OK;
}
