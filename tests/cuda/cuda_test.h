/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDA_TEST_H
#define CUDA_TEST_H
/* The device under test, by what a test is linked with: a GPU (test_device.c), its kernels emulated
 * on this host (emulate.cc), or the host itself (test_host.c).
 */
#include <stdio.h>
#include "kernels/base/err.h"
#include "kernels/dev.h"

enum { CUDA_TEST_SKIP = 77 }; /* ctest's code for a skipped test */
/* ERR_UNSUPPORTED, with the reason, on a host without a GPU. */
enum err cuda_test_open(struct dev **d, const char *model_type) MUST;
/* With `attention` of dev_options; the other opens with "own". */
enum err cuda_test_open_attention(struct dev **d, const char *model_type,
                                  const char *attention) MUST;
/* With device.matmul_precision = fp8_hybrid. */
enum err cuda_test_open_fp8(struct dev **d, const char *model_type) MUST;

/* True: there is no such device, and the reason was printed. The test ends with CUDA_TEST_SKIP. */
static inline bool cuda_test_missing(const char *model_type)
{
    struct dev *d;
    enum err e = cuda_test_open(&d, model_type);
    if (e == ERR_OK)
        dev_close(d);
    else if (e == ERR_UNSUPPORTED)
        printf("SKIPPED: %s\n", err_message());
    return e == ERR_UNSUPPORTED;
}

#endif
