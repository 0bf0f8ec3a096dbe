/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SAFETENSORS_H
#define SAFETENSORS_H
/* safetensors files: writer and strict reader. Layout (little-endian): uint64 N, N bytes of JSON,
 * data; the JSON maps names to {"dtype", "shape", "data_offsets": [begin, end]}, offsets counting
 * from the end of the JSON. The writer sorts by dtype size (largest first), then name, and pads the
 * header with blanks to 8, as the reference does. The reader maps the file and refuses what the
 * format forbids: duplicate names, gaps, overlaps, ranges that do not match dtype and shape, bytes
 * after the last tensor.
 */
#include "inner/config/json.h"
#include "kernels/base/file.h"

#define SAFETENSORS_HEADER_MAX  100000000u
#define SAFETENSORS_TENSORS_MAX 131072u /* a header or an index; reading it takes about 300 MB */
enum { SAFETENSORS_RANK_MAX = 8 };

/* X(name, bytes of one element) */
#define SAFETENSORS_DTYPES(X) X(F32, 4) X(BF16, 2) X(F16, 2) X(I64, 8) X(I32, 4) X(U8, 1) X(BOOL, 1)
enum safetensors_dtype {
#define X(name, size) SAFETENSORS_##name,
    SAFETENSORS_DTYPES(X)
#undef X
};

struct safetensors_tensor {
    const char *name;
    enum safetensors_dtype dtype;
    unsigned rank; /* dimensions; 0 is a scalar */
    uint64_t shape[SAFETENSORS_RANK_MAX];
    const void *data; /* row-major; when read: in the mapping, not aligned to more than 1 byte */
    size_t size_bytes;
};
struct safetensors {
    struct file_map *maps; /* of every file */
    size_t map_count;
    struct safetensors_tensor *tensors; /* in the order of their data */
    size_t count;
    const struct json *metadata; /* a map of texts; NULL: none. Of several files, the last one's */
};

/* Durable and atomic. `metadata` is pairs of key, value, NULL at the end ({"format", "pt", NULL});
 * NULL: none. size_bytes of a tensor must be product(shape) x dtype size. */
enum err safetensors_write(const char *path, const struct safetensors_tensor *tensors, size_t count,
                           const char *const *metadata) MUST;
/* One file; or all files that a *.index.json names, which must lie next to it and hold exactly the
 * tensors that it says. Names, table in `a`; data borrowed from the mappings until
 * safetensors_close. ERR_INPUT says what is wrong. */
enum err safetensors_open(struct safetensors *s, struct arena *a, const char *path) MUST;
void safetensors_close(struct safetensors *s);
/* The same on bytes in memory (fuzz target); `path` is for messages. */
enum err safetensors_parse(struct safetensors *s, struct arena *a, const char *path,
                           const uint8_t *data, size_t size_bytes) MUST;
/* NULL when there is none of that name. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *s, const char *name);
/* A text of __metadata__; NULL: there is none of that key. */
const char *safetensors_metadata(const struct safetensors *s, const char *key);

struct safetensors_place {
    const char *tensor, *file; /* the file's name, without a folder */
};
/* The index of tensors that lie in several files, as transformers reads it. Durable. */
enum err safetensors_write_index(const char *path, const struct safetensors_place *places,
                                 size_t count, uint64_t total_bytes) MUST;

#endif
