/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU module whose GPUs are this host: the CPU's ops under the name that makes the program use
 * NCCL. */
#include "kernels/cuda/module.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct cuda_host *program;

/* A stream of the stand-in that NCCL's module has, if the program opened it: the CPU's work is done
 * when a call returns, so that only its order among the streams matters. */
static void *stream_of_module(void)
{
    void *(*get)(void);
    char path[4096];
    Dl_info here; /* the other module is in the same folder */
    if (!dladdr((const void *)&program, &here))
        return NULL;
    snprintf(path, sizeof path, "%.*slibatoll_nccl.so",
             (int)(strrchr(here.dli_fname, '/') - here.dli_fname + 1), here.dli_fname);
    void *module = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    void *symbol = module ? dlsym(module, "fake_stream") : NULL;
    memcpy(&get, &symbol, sizeof get);
    return get ? get() : NULL;
}

static enum err open_device(struct dev **d, int index, const struct dev_options *o)
{
    const char *said = getenv("FAKE_GPUS");
    if (said && index >= atoi(said))
        return program->fail(ERR_UNSUPPORTED, "this GPU is not there");
    struct dev_options here = *o;
    here.kind = "cpu";
    enum err e = dev_open(d, &here);
    if (e == ERR_OK)
        (*d)->memory_bytes = (size_t)4 << 30, (*d)->stream = stream_of_module();
    return e;
}

static void describe(cuda_fact *fact, void *self)
{
    fact(self, "cuda.toolkit", true, "none: a stand-in for tests");
}

__attribute__((visibility("default"))) const struct cuda_module *
atoll_cuda_module(const struct cuda_host *host);

const struct cuda_module *atoll_cuda_module(const struct cuda_host *host)
{
    static const struct cuda_module module = {CUDA_INTERFACE, CUDA_DEV_BYTES, open_device,
                                              describe};
    program = host;
    return &module;
}
