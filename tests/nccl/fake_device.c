/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU module whose GPUs are this host: the CPU's ops under the name that makes the program use
 * NCCL. */
#include "kernels/cuda/module.h"
#include <stdio.h>
#include <stdlib.h>

static const struct cuda_host *program;

static enum err open_device(struct dev **d, int index, const struct dev_options *o)
{
    const char *said = getenv("FAKE_GPUS");
    if (said && index >= atoi(said))
        return program->fail(ERR_UNSUPPORTED, "this GPU is not there");
    struct dev_options here = *o;
    here.kind = "cpu";
    enum err e = dev_open(d, &here);
    if (e == ERR_OK)
        (*d)->memory_bytes = (size_t)4 << 30;
    return e;
}

static void describe(char *out, size_t size)
{
    snprintf(out, size, "cuda.toolkit none: a stand-in for tests\n");
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
