/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BUFFER_H
#define BUFFER_H
/* Growing arrays of bytes and of token ids. A zeroed one is empty; the owner frees it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/err.h"

struct buffer {
    uint8_t *data;
    size_t count, room; /* bytes */
};
struct buffer_ids {
    int32_t *ids;
    size_t count, room;
};

static inline enum err buffer_grow(void **data, size_t *room, size_t needed, size_t size)
{
    size_t more = needed + needed / 2 + 64;
    void *moved = more < SIZE_MAX / size ? realloc(*data, more * size) : NULL;
    if (!moved)
        return err_set(ERR_MEMORY, "no memory for %zu values of %zu bytes", more, size);
    *data = moved;
    *room = more;
    return ERR_OK;
}

/* Room for `more` bytes after the ones that are there. */
static inline enum err MUST buffer_reserve(struct buffer *b, size_t more)
{
    void *data = b->data;
    if (b->room - b->count >= more)
        return ERR_OK;
    TRY(buffer_grow(&data, &b->room, b->count + more, 1));
    b->data = data;
    return ERR_OK;
}

static inline enum err MUST buffer_add(struct buffer *b, const void *bytes, size_t count)
{
    TRY(buffer_reserve(b, count));
    if (count)
        memcpy(b->data + b->count, bytes, count);
    b->count += count;
    return ERR_OK;
}

static inline enum err MUST buffer_ids_reserve(struct buffer_ids *b, size_t more)
{
    void *data = b->ids;
    if (b->room - b->count >= more)
        return ERR_OK;
    TRY(buffer_grow(&data, &b->room, b->count + more, sizeof *b->ids));
    b->ids = data;
    return ERR_OK;
}

static inline enum err MUST buffer_ids_add(struct buffer_ids *b, int32_t id)
{
    TRY(buffer_ids_reserve(b, 1));
    b->ids[b->count++] = id;
    return ERR_OK;
}

static inline void buffer_free(struct buffer *b)
{
    free(b->data);
    *b = (struct buffer){0};
}

static inline void buffer_ids_free(struct buffer_ids *b)
{
    free(b->ids);
    *b = (struct buffer_ids){0};
}

#endif
