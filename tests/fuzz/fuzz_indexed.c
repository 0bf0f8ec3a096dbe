/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/indexed.h"
#include "inner/data/labels.h"
#include "inner/data/owners.h"
#include "tests/fuzz/fuzz.h"

/* Every number of an index that passes is looked at; the .bin has as many bytes as it says. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct indexed x;
    const uint8_t *labels, *owners;
    uint64_t tokens = 0;
    enum err e = labels_parse(&labels, "fuzz.labels", data, size_bytes,
                              size_bytes < 16 ? 0 : (size_bytes - 16) / 4);
    e = owners_parse(&owners, "fuzz.owners", data, size_bytes,
                     size_bytes < 16 ? 0 : (size_bytes - 16) / OWNERS_ID_BYTES);
    if (!e && size_bytes > 16)
        owners_at(owners, (size_bytes - 16) / OWNERS_ID_BYTES - 1);
    for (uint64_t bin_bytes = 38; bin_bytes <= 76; bin_bytes += 38) {
        e = indexed_parse(&x, "fuzz.idx", data, size_bytes, bin_bytes);
        if (e)
            continue;
        for (uint64_t i = 0; i < x.sentences; i++)
            tokens += indexed_length(&x, i) + (indexed_first(&x, i) > x.tokens);
        ASSERT(tokens == x.tokens);
        for (uint64_t d = 0; d <= x.documents_count; d++)
            ASSERT(indexed_document(&x, d) <= x.sentences);
        tokens = 0;
    }
    return 0;
}
