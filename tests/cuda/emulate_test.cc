/* SPDX-License-Identifier: Apache-2.0 */
/* What a test of the ops links beside the emulated device: cuda_test_open() of it, the module's log
 * and errors, which are the test's own. */
#include <stdarg.h>
#include <stdio.h>
#include "kernels/cuda/tile.cuh"
extern "C" {
#include "kernels/cuda/host.h"
#include "kernels/cuda/module.h"
#include "tests/cuda/cuda_test.h"
#include "tests/cuda/fake_cudnn.h"

static char log_line[640];

void cuda_log(bool, const char *, const char *format, ...)
{
    va_list a;
    va_start(a, format);
    vsnprintf(log_line, sizeof log_line, format, a);
    va_end(a);
}

const char *emulate_log(void)
{
    static char last[sizeof log_line];
    memcpy(last, log_line, sizeof last);
    log_line[0] = 0;
    return last;
}

void host_set(const struct cuda_host *) /* the module's errors are this program's */
{
}

const struct cuda_module *atoll_cuda_module(const struct cuda_host *host);

static enum err emulated_open(struct dev **d, const char *model_type, const char *attention,
                              enum dev_fp8 fp8)
{
    struct dev_options o = {};
    o.kind = "cuda";
    o.model_type = model_type;
    o.graphs = true;
    o.attention = attention;
    o.emulation.fp8 = fp8;
    enum err e = atoll_cuda_module(NULL)->open(d, 0, &o);
    if (!e)
        (*d)->kind = "emulated";
    return e;
}

enum err cuda_test_open_attention(struct dev **d, const char *model_type, const char *attention)
{
    return emulated_open(d, model_type, attention, DEV_FP8_NONE);
}

enum err cuda_test_open_fp8(struct dev **d, const char *model_type)
{
    return emulated_open(d, model_type, "own", DEV_FP8_HYBRID);
}

enum err cuda_test_open(struct dev **d, const char *model_type)
{
    return cuda_test_open_attention(d, model_type, "own");
}
}
