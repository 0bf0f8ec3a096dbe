/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/base/bytes.h"
#include <string.h>

struct bytes_reader bytes_reader(const void *data, size_t size_bytes)
{
    const uint8_t *start = data;
    return (struct bytes_reader){.at = start, .end = start ? start + size_bytes : NULL};
}

const uint8_t *bytes_view(struct bytes_reader *r, size_t n)
{
    if (r->bad || n > (size_t)(r->end - r->at)) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *view = r->at;
    if (n)
        r->at += n;
    return view;
}

void bytes_get(struct bytes_reader *r, void *out, size_t n)
{
    const uint8_t *from = bytes_view(r, n);
    if (n && from)
        memcpy(out, from, n);
    else if (n)
        memset(out, 0, n);
}

static uint64_t get_little(struct bytes_reader *r, size_t n)
{
    const uint8_t *from = bytes_view(r, n);
    uint64_t v = 0;
    for (size_t i = 0; from && i < n; i++)
        v |= (uint64_t)from[i] << 8 * i;
    return v;
}

uint8_t bytes_get_u8(struct bytes_reader *r)
{
    return (uint8_t)get_little(r, 1);
}

uint16_t bytes_get_u16(struct bytes_reader *r)
{
    return (uint16_t)get_little(r, 2);
}

uint32_t bytes_get_u32(struct bytes_reader *r)
{
    return (uint32_t)get_little(r, 4);
}

uint64_t bytes_get_u64(struct bytes_reader *r)
{
    return get_little(r, 8);
}

float bytes_get_f32(struct bytes_reader *r)
{
    uint32_t bits = bytes_get_u32(r);
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

size_t bytes_left(const struct bytes_reader *r)
{
    return (size_t)(r->end - r->at);
}

bool bytes_done(const struct bytes_reader *r)
{
    return !r->bad && r->at == r->end;
}

struct bytes_writer bytes_writer(void *data, size_t capacity_bytes)
{
    uint8_t *start = data;
    return (struct bytes_writer){
        .start = start, .at = start, .end = start ? start + capacity_bytes : NULL};
}

void bytes_put(struct bytes_writer *w, const void *data, size_t n)
{
    if (w->bad || n > (size_t)(w->end - w->at)) {
        w->bad = true;
        return;
    }
    if (n) {
        memcpy(w->at, data, n);
        w->at += n;
    }
}

static void put_little(struct bytes_writer *w, uint64_t v, size_t n)
{
    uint8_t b[8];
    for (size_t i = 0; i < n; i++)
        b[i] = (uint8_t)(v >> 8 * i);
    bytes_put(w, b, n);
}

void bytes_put_u8(struct bytes_writer *w, uint8_t v)
{
    put_little(w, v, 1);
}

void bytes_put_u16(struct bytes_writer *w, uint16_t v)
{
    put_little(w, v, 2);
}

void bytes_put_u32(struct bytes_writer *w, uint32_t v)
{
    put_little(w, v, 4);
}

void bytes_put_u64(struct bytes_writer *w, uint64_t v)
{
    put_little(w, v, 8);
}

void bytes_put_f32(struct bytes_writer *w, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    bytes_put_u32(w, bits);
}

size_t bytes_size(const struct bytes_writer *w)
{
    return (size_t)(w->at - w->start);
}
