/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/io/safetensors.h"
#include "tests/fuzz/fuzz.h"

enum { MEMORY_BYTES = 64 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct arena a = arena_make(MEMORY_BYTES);
    struct safetensors s;
    volatile uint8_t sum = 0;
    if (safetensors_parse(&s, &a, "fuzz.safetensors", data, size_bytes) == ERR_OK)
        for (size_t i = 0; i < s.count; i++)
            for (size_t j = 0; j < s.tensors[i].size_bytes; j++) /* all of it must be inside */
                sum = (uint8_t)(sum + ((const uint8_t *)s.tensors[i].data)[j]);
    arena_free(&a);
    return 0;
}
