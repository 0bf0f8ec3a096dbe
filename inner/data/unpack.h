/* SPDX-License-Identifier: Apache-2.0 */
#ifndef UNPACK_H
#define UNPACK_H
/* Compressed files: gzip (several members too) and zstd (several frames too). Only unpack.c
 * includes zlib and libzstd. */
#include <stddef.h>
#include <stdint.h>
#include "kernels/base/err.h"

enum unpack_kind { UNPACK_NONE, UNPACK_GZIP, UNPACK_ZSTD, UNPACK_BZIP2, UNPACK_XZ };

enum unpack_kind unpack_kind(const uint8_t *data, size_t bytes);
struct unpack_sink { /* gets the contents in pieces; they are borrowed for the call */
    enum err (*take)(void *self, const void *piece, size_t bytes);
    void *self;
};
/* Memory does not grow with the contents. ERR_INPUT: damaged, cut short, or of a kind that has to
 * be unpacked first; `path` begins the message. Of UNPACK_NONE the data is the contents. */
enum err unpack(const char *path, const uint8_t *data, size_t bytes,
                const struct unpack_sink *sink) MUST;

#endif
