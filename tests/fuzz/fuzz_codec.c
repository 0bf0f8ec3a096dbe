/* SPDX-License-Identifier: Apache-2.0 */
/* Every codec's decoder, on its own payload and on an aggregate, both from a peer. First byte: the
 * codec. Second: the sites of the aggregate. The rest: the bytes, for 512 values. */
#include <math.h>
#include "outer/codec/codec.h"
#include "tests/fuzz/fuzz.h"

enum { COUNT = 512, SITES_MAX = 5 };

static struct codec_work *open_once(void)
{
    static struct dev *d;
    static struct codec_work *w;
    struct dev_options o = {.kind = "cpu", .model_type = "f32", .threads = 1};
    if (!w) {
        ASSERT(dev_open(&d, &o) == ERR_OK);
        ASSERT(codec_open(&w, d) == ERR_OK);
    }
    return w;
}

static void all_finite(const float *x)
{
    for (size_t i = 0; i < COUNT; i++)
        ASSERT(isfinite(x[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    static const uint8_t grid[COUNT / DEV_BLOCK] = {120, 0};
    static float values[COUNT];
    uint8_t next[COUNT / DEV_BLOCK];
    if (size_bytes < 2)
        return 0;
    const struct codec *c = codec_get((enum codec_kind)(data[0] % CODEC_COUNT));
    struct codec_work *w = open_once();
    unsigned n = 1 + data[1] % SITES_MAX;
    const uint8_t *bytes = data + 2;
    if (c->check(c, &(struct codec_call){.count = COUNT}, NULL, bytes, size_bytes - 2) == ERR_OK) {
        ASSERT(c->decode(c, &(struct codec_call){.work = w, .grid = grid, .count = COUNT}, values,
                         bytes, size_bytes - 2) == ERR_OK);
        all_finite(values);
    }
    if (c->mean(c, &(struct codec_call){.work = w, .grid = grid, .count = COUNT}, values, next,
                &(struct codec_aggregate){bytes, size_bytes - 2, n, 1}) == ERR_OK) {
        if (c->summable ||
            n == 1) /* the sum of relayed ones may overflow: the member refuses it then */
            all_finite(values);
        for (size_t b = 0; b < COUNT / DEV_BLOCK; b++)
            ASSERT(next[b] != 255);
    }
    return 0;
}
