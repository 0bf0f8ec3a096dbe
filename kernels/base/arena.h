/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ARENA_H
#define ARENA_H
/* Memory that is allocated piece by piece and freed all at once. An arena is a growing list of
 * blocks from calloc. A cap limits the memory that a peer's bytes can allocate. `struct arena
 * *perm` holds data that lives as long as its owner; a scratch arena is made with arena_make() and
 * freed at return. Not thread-safe: one owner each. arena_source replaces calloc: dev_arena().
 */
#include <stddef.h>
#include "kernels/base/err.h"

struct arena_source { /* allocator of zeroed blocks; take NULL: calloc and free */
    void *(*take)(void *self, size_t bytes); /* NULL: out of memory, err_set done */
    void (*give)(void *self, void *block);
    void *self;
};
struct arena {
    struct arena_block *blocks; /* newest first */
    size_t used_bytes;          /* sum of all allocations */
    size_t cap_bytes;           /* 0: no limit */
    int sealed;                 /* arena_seal(): a later allocation is a bug */
    struct arena_source source;
};

struct arena arena_make(size_t cap_bytes); /* allocates nothing yet */
struct arena arena_make_from(struct arena_source source);
/* Zeroed, 64-byte aligned; NULL only when the cap or the machine's memory is exhausted (err_set
 * done). */
void *arena_alloc(struct arena *a, size_t bytes) MUST;
void *arena_array(struct arena *a, size_t count, size_t size) MUST; /* checks the product */
/* An array with room for one element more than `count`: the same one, or a copy of twice the room,
 * the old one staying in the arena. *room 0: none yet. NULL: no memory, and nothing has changed. */
void *arena_grow(struct arena *a, void *array, size_t count, size_t *room, size_t size) MUST;
char *arena_string(struct arena *a, const char *s, size_t n) MUST; /* copy of n bytes, terminated */
char *arena_printf(struct arena *a, const char *format, ...)
    __attribute__((format(printf, 2, 3))) MUST;
void arena_seal(struct arena *a);
void arena_reset(struct arena *a); /* frees all, stays usable */
void arena_free(struct arena *a);  /* accepts a zeroed or freed arena */

/* TRY_ALLOC(p = arena_alloc(..)) returns ERR_MEMORY from the function when p is NULL. */
#define TRY_ALLOC(expression)                                                                      \
    do {                                                                                           \
        if (!(expression))                                                                         \
            return ERR_MEMORY;                                                                     \
    } while (0)

#endif
