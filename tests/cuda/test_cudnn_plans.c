/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's attention without a GPU: our graphs are built, recognised by the library's heuristics for
 * the GPU we name, and compiled for it by NVRTC; only the launch is missing (driver.c stands in for
 * the driver). A wrong stride, type, order of operations or attribute shows as a graph that no
 * engine takes. That the numbers are right is test_cuda_ops' to say, on a GPU. Skips, saying why,
 * without libcudnn. --all: every shape that we train with instead of a few, and a table of engines.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include "kernels/cuda/cudnn.h"

enum { SKIP = 77, TOKENS = 32768, WIDTH = 1024 };
static struct cudnn *library;
static bool all, printing;

/* An H200, as cuDNN describes one: what cudaDeviceProp says, of which the kinds of memory matter.
 */
static const char gpu[] =
    "{\"deviceVer\":900,\"multiProcessorCount\":132,\"maxSharedMemoryPerBlockOptin\":232448,"
    "\"maxSharedMemoryPerBlock\":49152,\"reservedSharedMemoryPerBlock\":1024,"
    "\"maxRegistersPerSM\":65536,\"regsPerBlock\":65536,\"l2CacheSize\":52428800,"
    "\"totalGlobalMem\":150754820096,\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,"
    "\"warpSize\":32,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,"
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"pciDeviceId\":0,"
    "\"isTccDriver\":0,\"supportCoopLaunch\":1,\"driverVer\":13000,\"cudaDeviceId\":0,"
    "\"deviceName\":\"NVIDIA H200\"}";

static void say(const struct cudnn_shape *s, const char *what)
{
    printf("%-8s HD=%-3zu S=%-4zu heads=%zu/%zu causal=%d ragged=%d %s: %s\n",
           s->backward ? "backward" : "forward", s->HD, s->S, s->NH, s->KVH, s->causal, s->ragged,
           !s->backward    ? ""
           : s->repeatable ? "repeatable"
                           : "quick",
           what);
}

static void plan_exists(const struct cudnn_shape *s)
{
    struct cudnn_plan *p = NULL;
    if (cudnn_plan_make(&p, library, s, gpu)) {
        say(s, err_message());
        fail_msg("no plan");
    }
    size_t square = s->batch * s->NH * s->S * s->S * 2, bytes = cudnn_plan_bytes(p);
    if (printing)
        say(s, cudnn_plan_name(p));
    /* What makes a backward repeatable is that it stores the gradient of the scores. */
    assert_true(!s->backward ||
                (s->repeatable ? bytes >= square : bytes >= s->T * s->NH * s->HD * 4));
    assert_true(s->backward || bytes < 1 << 20);
    cudnn_plan_close(p);
}

/* All three plans of a layout. */
static void layout(size_t HD, size_t S, size_t group, bool causal, bool ragged)
{
    struct cudnn_shape s = {.batch = TOKENS / S,
                            .NH = WIDTH / HD,
                            .KVH = WIDTH / HD / group,
                            .HD = HD,
                            .S = S,
                            .T = TOKENS,
                            .causal = causal,
                            .ragged = ragged};
    plan_exists(&s);
    s.backward = true;
    plan_exists(&s);
    s.repeatable = true;
    plan_exists(&s);
}

static void plans_exist(void **state)
{
    (void)state;
    layout(64, 1024, 1, true, false);
    layout(128, 512, 4, true, true);
    for (size_t HD = 64; all && HD <= 128; HD *= 2)
        for (size_t S = 512; S <= 4096; S *= 2)
            for (int i = 0; i < 8; i++)
                layout(HD, S, i & 4 ? 4 : 1, i & 1, i & 2);
}

static void refused(struct cudnn_shape s, const char *word)
{
    struct cudnn_plan *p = NULL;
    assert_int_equal(cudnn_plan_make(&p, library, &s, gpu), ERR_UNSUPPORTED);
    assert_null(p);
    assert_non_null(strstr(err_message(), word));
}

static void impossible_is_refused(void **state)
{
    (void)state;
    const struct cudnn_shape fine = {.batch = 2, .NH = 2, .KVH = 2, .HD = 64, .S = 128, .T = 256};
    struct cudnn_shape s = fine;
    s.HD = 256;
    refused(s, "256");
    s = fine;
    s.HD = 20;
    refused(s, "20");
    s = fine;
    s.KVH = 0;
    refused(s, "heads");
    s = fine;
    s.T = (size_t)1 << 25;
    refused(s, "tokens");
}

static void gpu_is_unknown(void **state)
{
    (void)state;
    struct cudnn_plan *p = NULL;
    const struct cudnn_shape s = {.batch = 2, .NH = 2, .KVH = 2, .HD = 64, .S = 128, .T = 256};
    assert_int_equal(cudnn_plan_make(&p, library, &s, "{}"), ERR_UNSUPPORTED);
    assert_non_null(strstr(err_message(), "properties"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_exist),
        cmocka_unit_test(impossible_is_refused),
        cmocka_unit_test(gpu_is_unknown),
    };
    all = printing = argc > 1 && !strcmp(argv[1], "--all");
    if (cudnn_open(&library)) {
        printf("SKIPPED: %s\n", err_message());
        return SKIP;
    }
    printf("cuDNN %s\n", cudnn_version(library));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cudnn_close(library);
    return failed;
}
