/* SPDX-License-Identifier: Apache-2.0 */
/* A message as it comes from a peer. First byte: which kind, or a chunk's header. What is accepted
 * is written again within the largest size of its kind, reads as the same, and is written as the
 * same bytes; what a chunk's header says lies inside the message and inside the transfer. */
#include <stdlib.h>
#include <string.h>
#include "outer/wire/wire.h"
#include "tests/fuzz/fuzz.h"

union any {
#define X(kind, type, largest) struct type of_##kind;
    WIRE_LIST(X)
#undef X
};

static void message_read(enum wire_kind kind, const uint8_t *data, size_t n)
{
    static union any first, again;
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX), b = arena_make(WIRE_DECODE_BYTES_MAX),
                 out = arena_make(0);
    uint8_t *bytes, *twice;
    size_t size, size_twice;
    if (wire_decode(kind, &first, data, n, &a) == ERR_OK) {
        ASSERT(wire_encode(kind, &first, &out, &bytes, &size) == ERR_OK);
        ASSERT(size <= wire_largest(kind));
        ASSERT(wire_decode(kind, &again, bytes, size, &b) == ERR_OK);
        ASSERT(wire_encode(kind, &again, &out, &twice, &size_twice) == ERR_OK);
        ASSERT(size == size_twice && memcmp(bytes, twice, size) == 0);
    }
    arena_free(&a);
    arena_free(&b);
    arena_free(&out);
}

static void chunk_read(const uint8_t *data, size_t n)
{
    struct wire_chunk c, again;
    size_t data_at, data_again;
    if (wire_chunk_parse(&c, data, n, n, &data_at) != ERR_OK)
        return;
    ASSERT(data_at <= n && c.size_bytes == n - data_at && c.size_bytes <= WIRE_CHUNK_BYTES);
    ASSERT(c.offset <= c.total && c.size_bytes <= c.total - c.offset);
    if (!c.size_bytes)
        return;
    uint8_t head[WIRE_CHUNK_HEADER_MAX];
    size_t head_bytes = wire_chunk_header(head, &c);
    ASSERT(wire_chunk_parse(&again, head, head_bytes, head_bytes + c.size_bytes, &data_again) ==
           ERR_OK);
    ASSERT(data_again == head_bytes && again.offset == c.offset && again.total == c.total &&
           again.crc32c == c.crc32c && again.size_bytes == c.size_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    if (!size_bytes)
        return 0;
    uint8_t *message = malloc(size_bytes - 1 + (size_bytes == 1)); /* exact, for sanitizers */
    ASSERT(message);
    memcpy(message, data + 1, size_bytes - 1);
    unsigned kind = data[0] % (WIRE_KINDS + 1);
    if (kind < WIRE_KINDS)
        message_read((enum wire_kind)kind, message, size_bytes - 1);
    else
        chunk_read(message, size_bytes - 1);
    free(message);
    return 0;
}
