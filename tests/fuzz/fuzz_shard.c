/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/shard.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct shard s;
    int32_t last;
    if (shard_parse(&s, "fuzz.bin", data, size_bytes) == ERR_OK &&
        shard_check_ids(&s, 256) == ERR_OK)
        shard_read(&s, s.count - 1, 1, &last);
    return 0;
}
