/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_test_open() on a GPU, through the module, as the program does. */
#include "tests/cuda/cuda_test.h"

enum err cuda_test_open_attention(struct dev **d, const char *model_type, const char *attention)
{
    return dev_open(
        d, &(struct dev_options){.kind = "cuda", .model_type = model_type, .attention = attention});
}

enum err cuda_test_open_fp8(struct dev **d, const char *model_type)
{
    return dev_open(d, &(struct dev_options){.kind = "cuda",
                                             .model_type = model_type,
                                             .attention = "own",
                                             .emulation = {.fp8 = DEV_FP8_HYBRID}});
}

enum err cuda_test_open(struct dev **d, const char *model_type)
{
    return cuda_test_open_attention(d, model_type, "own");
}
