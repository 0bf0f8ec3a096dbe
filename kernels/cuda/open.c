/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the CUDA device from its parts, lists its ops, and is the module's entry. No other file of
 * the folder calls this one. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/host.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void device_close(struct dev *d)
{
    struct cuda *c = cuda_of(d);
    cuda_gpu_drain(c);
    cuda_matmul_free(c);
    cuda_attention_close(c);
    cuda_gpu_close(c);
    free(c);
}

static const struct dev_ops ops = {
#define X(name, arguments) .name = cuda_##name,
    DEV_OPS(X)
#undef X
        .close = device_close,
    .alloc = cuda_dev_alloc,
    .free = cuda_dev_free,
    .host_alloc = cuda_dev_host_alloc,
    .host_free = cuda_dev_host_free,
    .copy = cuda_dev_copy,
    .zero = cuda_dev_zero,
    .copy_async = cuda_dev_copy_async,
    .sync = cuda_dev_sync,
    .event_record = cuda_dev_event_record,
    .event_wait = cuda_dev_event_wait,
    .event_seconds = cuda_dev_event_seconds,
    .memory_free = cuda_dev_memory_free,
    .graph_run = cuda_dev_graph_run,
};

static enum err type_choose(struct cuda *c, const char *name)
{
    c->dev.model_type = DTYPE_BF16; /* "auto": every supported GPU multiplies bf16 faster */
    if (name && strcmp(name, "f32") == 0)
        c->dev.model_type = DTYPE_F32;
    else if (name && strcmp(name, "bf16") && strcmp(name, "auto"))
        return err_set(ERR_CONFIG, "model type '%s' is none of f32, bf16, auto", name);
    return ERR_OK;
}

/* After what dev_cuda.c says of the GPU. */
static void note_libraries(struct cuda *c)
{
    char library[40], attention[40];
    size_t used = strlen(c->dev.note);
    cuda_matmul_version(library, sizeof library);
    cuda_attention_version(c, attention, sizeof attention);
    snprintf(c->dev.note + used, sizeof c->dev.note - used, " gemm=\"%s\" attention=%s", library,
             attention);
}

static enum err open_parts(struct cuda *c, const struct dev_options *o)
{
    TRY(type_choose(c, o->model_type));
    TRY(cuda_gpu_open(c, o));
    TRY(cuda_matmul_open(&c->matmul));
    TRY(cuda_attention_open(c, o->low_priority ? "own" : o->attention));
    note_libraries(c);
    return ERR_OK;
}

static enum err open_device(struct dev **d, int index, const struct dev_options *o)
{
    struct cuda *c = calloc(1, sizeof *c);
    *d = NULL;
    if (!c)
        return err_set(ERR_MEMORY, "no memory for the CUDA device");
    c->dev = (struct dev){.ops = &ops, .kind = "cuda", .threads = o->threads > 0 ? o->threads : 1};
    c->index = index;
    c->dev.graphs = o->graphs;
    enum err e = open_parts(c, o);
    if (e) {
        device_close(&c->dev);
        return e;
    }
    *d = &c->dev;
    return ERR_OK;
}

__attribute__((visibility("default"))) const struct cuda_module *
atoll_cuda_module(const struct cuda_host *host);

const struct cuda_module *atoll_cuda_module(const struct cuda_host *host)
{
    static const struct cuda_module module = {CUDA_INTERFACE, CUDA_DEV_BYTES, open_device,
                                              cuda_describe};
    host_set(host);
    return &module;
}
