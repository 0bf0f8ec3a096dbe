#ifndef UNPACK_H
#define UNPACK_H
/* Compressed files: gzip (several members too) and zstd (several frames too). Only unpack.c
 * includes zlib and libzstd. */
#include "inner/data/tokenizer/buffer.h"

enum unpack_kind { UNPACK_NONE, UNPACK_GZIP, UNPACK_ZSTD, UNPACK_BZIP2, UNPACK_XZ };

enum unpack_kind unpack_kind(const uint8_t *data, size_t bytes);
/* Appends the contents. ERR_INPUT: damaged, cut short, or of a kind that has to be unpacked first;
 * `path` begins the message. */
enum err unpack_all(const char *path, const uint8_t *data, size_t bytes, struct buffer *out) MUST;

#endif
