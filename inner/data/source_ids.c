/* SPDX-License-Identifier: Apache-2.0 */
/* Token ids that another program made. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "inner/data/shard.h"
#include "inner/data/source_own.h"

static uint64_t wide_id(const struct source *s, uint64_t i)
{
    uint64_t id = 0;
    for (unsigned byte = 0; byte < s->id_bytes; byte++)
        id |= (uint64_t)s->data[i * s->id_bytes + byte] << 8 * byte;
    return id;
}

uint32_t source_id(const struct source *s, uint64_t i)
{
    return (uint32_t)wide_id(s, i);
}

/* Negative ids of signed kinds are large numbers here. */
static enum err check_ids(struct source *s, const char *path)
{
    for (uint64_t i = 0; i < s->count; i++) {
        uint64_t id = wide_id(s, i);
        if (id > INT32_MAX)
            return err_set(ERR_INPUT,
                           "%s: number %llu is negative or beyond %d: these are no token ids", path,
                           (unsigned long long)i, INT32_MAX);
        s->largest_id = (uint32_t)id > s->largest_id ? (uint32_t)id : s->largest_id;
    }
    return ERR_OK;
}

/* The product of "'shape': (4000,)". False: there is none, or no size_t holds it. */
static bool npy_shape(const char *header, uint64_t *count)
{
    const char *at = strstr(header, "'shape':");
    *count = 1;
    if (!at || *(at += strcspn(at, "(,}")) != '(')
        return false;
    for (at++; *at && *at != ')';) {
        char *end;
        if (*at < '0' || *at > '9')
            return false;
        unsigned long long n = strtoull(at, &end, 10);
        if (__builtin_mul_overflow(*count, (uint64_t)n, count))
            return false;
        at = end + strspn(end, ", ");
    }
    return *at == ')';
}

static enum err npy_check(const struct source *s, const char *path, const char *header,
                          size_t bytes)
{
    uint64_t count, needed;
    if (!npy_shape(header, &count) || __builtin_mul_overflow(count, (uint64_t)s->id_bytes, &needed))
        return err_set(ERR_INPUT, "%s: its header has no shape: %.100s", path, header);
    if (needed == bytes)
        return ERR_OK;
    return err_set(
        ERR_INPUT,
        "%s: %s: the header's shape promises %llu numbers of %u bytes, %zu bytes follow; "
        "copy or save the file again",
        path, bytes < needed ? "cut short" : "longer than its header says",
        (unsigned long long)count, s->id_bytes, bytes);
}

/* NumPy's format 1 to 3: magic, version, length of a Python dictionary in text, the dictionary, the
 * numbers. */
static enum err npy_open(struct source *s, const char *path)
{
    static const struct {
        const char *descr;
        unsigned bytes;
    } kinds[] = {{"'<u2'", 2}, {"'<i2'", 2}, {"'<u4'", 4},
                 {"'<i4'", 4}, {"'<u8'", 8}, {"'<i8'", 8}};
    const uint8_t *d = s->map.data;
    size_t size = s->map.size_bytes, head = 10;
    char text[1024] = "";
    if (size < 12 || memcmp(d, "\x93NUMPY", 6) || d[6] < 1 || d[6] > 3)
        return err_set(ERR_INPUT, "%s: not a NumPy array (.npy)", path);
    size_t length = d[8] | (size_t)d[9] << 8;
    if (d[6] > 1) {
        length |= (size_t)d[10] << 16 | (size_t)d[11] << 24;
        head = 12;
    }
    if (length >= sizeof text || length > size - head)
        return err_set(ERR_INPUT, "%s: cut short, or with a header of %zu bytes", path, length);
    memcpy(text, d + head, length);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        s->id_bytes = strstr(text, kinds[i].descr) ? kinds[i].bytes : s->id_bytes;
    if (!s->id_bytes)
        return err_set(ERR_INPUT,
                       "%s: its numbers are not uint16, int32, uint32, int64 or uint64: %.100s",
                       path, text);
    if (strstr(text, "'fortran_order': True"))
        return err_set(ERR_INPUT, "%s: in Fortran's order; save it with numpy.ascontiguousarray",
                       path);
    s->data = d + head + length;
    s->count = (size - head - length) / s->id_bytes;
    return npy_check(s, path, text, size - head - length);
}

static enum err raw_open(struct source *s, const char *path, unsigned id_bytes)
{
    uint32_t magic = 0;
    for (size_t i = 0; i < 4 && i < s->map.size_bytes; i++)
        magic |= (uint32_t)s->map.data[i] << 8 * i;
    if (magic == SHARD_MAGIC_U16 || magic == SHARD_MAGIC_U32)
        return err_set(ERR_INPUT, "%s: a token shard already; name it in data.train", path);
    if (s->map.size_bytes % id_bytes)
        return err_set(ERR_INPUT, "%s: %zu bytes are no whole number of ids of %u", path,
                       s->map.size_bytes, id_bytes);
    s->id_bytes = id_bytes;
    s->data = s->map.data;
    s->count = s->map.size_bytes / id_bytes;
    return ERR_OK;
}

enum err source_ids_open(struct source *s, const char *kind)
{
    const char *path = s->path;
    if (!strcmp(kind, "npy"))
        TRY(npy_open(s, path));
    else if (!strcmp(kind, "uint16") || !strcmp(kind, "uint32"))
        TRY(raw_open(s, path, kind[4] == '1' ? 2 : 4));
    else
        return err_set(ERR_CONFIG, "--tokens %.40s: npy, uint16 or uint32 expected", kind);
    if (!s->count)
        return err_set(ERR_INPUT, "%s: empty", path);
    return check_ids(s, path);
}
