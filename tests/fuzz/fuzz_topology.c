/* SPDX-License-Identifier: Apache-2.0 */
/* What the reader accepts is a network: every direction has a flow whose outages are apart. */
#include <string.h>
#include "outer/wan/topology.h"
#include "tests/fuzz/fuzz.h"

enum { MEMORY_BYTES = 64 << 20, TEXT_MAX = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct arena a = arena_make(MEMORY_BYTES);
    struct topology t;
    if (size_bytes <= TEXT_MAX &&
        topology_parse(&t, "fuzz", (const char *)data, size_bytes, NULL, &a) == ERR_OK)
        for (unsigned i = 0; i < t.places * t.places; i++) {
            const struct flow_settings *f = &t.flows[i];
            ASSERT(f->loss >= 0 && f->loss <= 1 && f->delay_ns >= 0 && f->jitter_ns >= 0);
            for (size_t k = 0; k < f->outage_count; k++)
                ASSERT(f->outages[k].from_ns < f->outages[k].until_ns &&
                       (k == 0 || f->outages[k - 1].until_ns <= f->outages[k].from_ns));
        }
    arena_free(&a);
    return 0;
}
