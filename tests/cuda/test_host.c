/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_test_open() of tests that are about no device: this host, two threads. */
#include "tests/cuda/cuda_test.h"

enum err cuda_test_open(struct dev **d, const char *model_type)
{
    struct dev_options o = {.kind = "cpu", .model_type = model_type, .threads = 2};
    return dev_open(d, &o);
}
