/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/base/arena.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first block is small, and each further one twice as large up to ARENA_BLOCK_BYTES: most
 * arenas hold one small file for a short time, and zeroing a large block costs more than reading
 * the file. */
enum { ARENA_ALIGN = 64, ARENA_BLOCK_BYTES = 64 * 1024, ARENA_FIRST_BYTES = 4096 };

struct arena_block {
    struct arena_block *next;
    char *at; /* aligned; all bytes after it are still zero from calloc */
    size_t left_bytes, bytes;
};

struct arena arena_make(size_t cap_bytes)
{
    return (struct arena){.cap_bytes = cap_bytes};
}

struct arena arena_make_from(struct arena_source source)
{
    return (struct arena){.source = source};
}

/* calloc, so that the kernel maps the pages of a large slab at first use only. */
static struct arena_block *block_make(const struct arena_source *s, size_t bytes)
{
    size_t overhead = sizeof(struct arena_block) + ARENA_ALIGN;
    if (bytes > SIZE_MAX - overhead)
        return NULL;
    struct arena_block *b =
        s->take ? s->take(s->self, bytes + overhead) : calloc(1, bytes + overhead);
    if (!b)
        return NULL;
    uintptr_t start = (uintptr_t)(b + 1);
    b->at = (char *)(b + 1) + (-start & (ARENA_ALIGN - 1));
    b->left_bytes = b->bytes = bytes;
    return b;
}

/* A block with room for bytes. A large request gets its own block, listed after the newest block,
 * whose free rest stays usable. */
static struct arena_block *block_with_room(struct arena *a, size_t bytes)
{
    if (a->blocks && a->blocks->left_bytes >= bytes)
        return a->blocks;
    size_t usual = a->blocks ? 2 * a->blocks->bytes : 0;
    usual = usual < ARENA_FIRST_BYTES ? ARENA_FIRST_BYTES : usual;
    usual = usual > ARENA_BLOCK_BYTES ? ARENA_BLOCK_BYTES : usual;
    bool own = bytes > usual / 4;
    struct arena_block *b = block_make(&a->source, own ? bytes : usual);
    if (!b)
        return NULL;
    struct arena_block **place = own && a->blocks ? &a->blocks->next : &a->blocks;
    b->next = *place;
    *place = b;
    return b;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    ASSERT(!a->sealed);
    size_t rounded = (bytes ? bytes + ARENA_ALIGN - 1 : ARENA_ALIGN) & ~(size_t)(ARENA_ALIGN - 1);
    size_t used = a->used_bytes + rounded;
    if (rounded < bytes || used < rounded || (a->cap_bytes && used > a->cap_bytes)) {
        err_set(ERR_MEMORY, "%zu bytes wanted, %zu in use, limit %zu", bytes, a->used_bytes,
                a->cap_bytes);
        return NULL;
    }
    struct arena_block *b = block_with_room(a, rounded);
    if (!b && !a->source.take)
        err_set(ERR_MEMORY, "%zu bytes wanted, the machine has no more", bytes);
    if (!b)
        return NULL;
    void *p = b->at;
    b->at += rounded;
    b->left_bytes -= rounded;
    a->used_bytes = used;
    return p;
}

void *arena_array(struct arena *a, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        err_set(ERR_MEMORY, "%zu elements of %zu bytes wanted", count, size);
        return NULL;
    }
    return arena_alloc(a, bytes);
}

void *arena_grow(struct arena *a, void *array, size_t count, size_t *room, size_t size)
{
    enum { FIRST = 64 };
    if (count < *room)
        return array;
    size_t more = *room ? 2 * *room : FIRST;
    void *to = arena_array(a, more, size);
    if (!to)
        return NULL;
    if (count)
        memcpy(to, array, count * size);
    *room = more;
    return to;
}

char *arena_string(struct arena *a, const char *s, size_t n)
{
    char *copy = n < SIZE_MAX ? arena_alloc(a, n + 1) : NULL;
    if (copy && n)
        memcpy(copy, s, n);
    return copy;
}

char *arena_printf(struct arena *a, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    ASSERT(length >= 0);
    char *s = arena_alloc(a, (size_t)length + 1);
    if (!s)
        return NULL;
    va_start(arguments, format);
    vsnprintf(s, (size_t)length + 1, format, arguments);
    va_end(arguments);
    return s;
}

void arena_seal(struct arena *a)
{
    a->sealed = 1;
}

void arena_reset(struct arena *a)
{
    while (a->blocks) {
        struct arena_block *b = a->blocks;
        a->blocks = b->next;
        if (a->source.give)
            a->source.give(a->source.self, b);
        else
            free(b);
    }
    a->used_bytes = 0;
    a->sealed = 0;
}

void arena_free(struct arena *a)
{
    arena_reset(a);
    *a = (struct arena){0};
}
