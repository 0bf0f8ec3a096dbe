/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RECORD_SAMPLE_H
#define RECORD_SAMPLE_H
/* A record with every sort of field, for the fuzz target and the unit test. */
#include "kernels/base/record.h"

enum { SAMPLE_NAME_MAX = 63, SAMPLE_LIST_MAX = 64 };

struct sample {
    uint8_t u8;
    bool yes;
    uint32_t u32;
    uint64_t u64;
    float f32;
    struct digest digest;
    const char *name;
    uint32_t count;
    const char **list; /* [count] */
};

static void sample_fields(struct record_cursor *c, void *self)
{
    struct sample *s = self;
    record_u8(c, &s->u8);
    record_bool(c, &s->yes);
    record_u32(c, &s->u32);
    record_u64(c, &s->u64);
    record_f32(c, &s->f32);
    record_digest(c, &s->digest);
    record_text(c, &s->name, SAMPLE_NAME_MAX);
    record_u32(c, &s->count);
    if (record_reading(c)) {
        s->count = s->count <= SAMPLE_LIST_MAX ? s->count : 0;
        s->list = record_alloc(c, s->count + 1u, sizeof *s->list);
        s->count = s->list ? s->count : 0;
    }
    for (uint32_t i = 0; i < s->count; i++)
        record_text(c, &s->list[i], SAMPLE_NAME_MAX);
}

#endif
