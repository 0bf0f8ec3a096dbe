/* SPDX-License-Identifier: Apache-2.0 */
/* What the reader accepts is complete: each entry has a key, a line and a value. */
#include "inner/config/config_yaml.h"
#include "tests/fuzz/fuzz.h"

enum { MEMORY_BYTES = 64 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct arena a = arena_make(MEMORY_BYTES);
    struct config_entries entries = {0};
    struct config_errors errors = {.a = &a, .path = "fuzz.yaml"};
    if (size_bytes <= CONFIG_FILE_MAX &&
        config_yaml((const char *)data, size_bytes, &a, &entries, &errors) == ERR_OK &&
        !errors.count)
        for (size_t i = 0; i < entries.count; i++)
            ASSERT(entries.items[i].key && entries.items[i].line > 0 &&
                   (entries.items[i].list || entries.items[i].values.count == 1));
    arena_free(&a);
    return 0;
}
