/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BYTES_H
#define BYTES_H
/* One bounded cursor for reading and one for writing little-endian records. After the first overrun
 * every further read returns 0 and `bad` stays set, so a parser lists the record's fields and
 * checks once at the end.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes_reader {
    const uint8_t *at, *end;
    bool bad;
};
struct bytes_writer {
    uint8_t *start, *at, *end;
    bool bad; /* an overrun occurred */
};

struct bytes_reader bytes_reader(const void *data, size_t size_bytes);
uint8_t bytes_get_u8(struct bytes_reader *r);
uint16_t bytes_get_u16(struct bytes_reader *r);
uint32_t bytes_get_u32(struct bytes_reader *r);
uint64_t bytes_get_u64(struct bytes_reader *r);
float bytes_get_f32(struct bytes_reader *r);
/* Copies n bytes to out; on overrun zeroes out. */
void bytes_get(struct bytes_reader *r, void *out, size_t n);
/* A view of the next n bytes, or NULL and bad. Borrowed from the input. */
const uint8_t *bytes_view(struct bytes_reader *r, size_t n);
size_t bytes_left(const struct bytes_reader *r);
bool bytes_done(const struct bytes_reader
                    *r); /* all bytes read without an overrun; trailing bytes are an error */

struct bytes_writer bytes_writer(void *data, size_t capacity_bytes);
void bytes_put_u8(struct bytes_writer *w, uint8_t v);
void bytes_put_u16(struct bytes_writer *w, uint16_t v);
void bytes_put_u32(struct bytes_writer *w, uint32_t v);
void bytes_put_u64(struct bytes_writer *w, uint64_t v);
void bytes_put_f32(struct bytes_writer *w, float v);
void bytes_put(struct bytes_writer *w, const void *data, size_t n);
size_t bytes_size(const struct bytes_writer *w);

#endif
