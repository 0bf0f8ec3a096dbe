/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/unpack.h"
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum { PIECE_BYTES = 1 << 20, GZIP_WINDOW = 15 + 16 };

enum unpack_kind unpack_kind(const uint8_t *data, size_t bytes)
{
    static const struct {
        const char *magic;
        size_t bytes;
        enum unpack_kind kind;
    } kinds[] = {{"\x1f\x8b", 2, UNPACK_GZIP},
                 {"\x28\xb5\x2f\xfd", 4, UNPACK_ZSTD},
                 {"BZh", 3, UNPACK_BZIP2},
                 {"\xfd"
                  "7zXZ",
                  5, UNPACK_XZ}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (bytes >= kinds[i].bytes && !memcmp(data, kinds[i].magic, kinds[i].bytes))
            return kinds[i].kind;
    return UNPACK_NONE;
}

struct unpacking {
    const char *path;
    const uint8_t *data;
    size_t bytes;
    const struct unpack_sink *sink;
    uint8_t *piece; /* PIECE_BYTES */
};

/* One piece at a time in and out: zlib counts in 32 bits. A member that ends is followed by the
 * next one, or by the end of the file. */
static enum err inflate_all(const struct unpacking *u, z_stream *z)
{
    int result = Z_OK;
    for (size_t at = 0; at < u->bytes || result == Z_OK;) {
        size_t piece = u->bytes - at < PIECE_BYTES ? u->bytes - at : PIECE_BYTES;
        z->next_in = (Bytef *)(uintptr_t)(u->data + at); /* zlib only reads it */
        z->avail_in = (uInt)piece;
        z->next_out = u->piece;
        z->avail_out = PIECE_BYTES;
        result = inflate(z, Z_NO_FLUSH);
        at += piece - z->avail_in;
        TRY(u->sink->take(u->sink->self, u->piece, PIECE_BYTES - z->avail_out));
        if (result == Z_STREAM_END && at < u->bytes && u->data[at] == 0x1f)
            result = inflateReset(z);
        else if (result == Z_STREAM_END)
            break; /* what follows is padding */
        if (result != Z_OK)
            return err_set(ERR_INPUT, "%s: gzip: %s after %zu of %zu bytes", u->path,
                           result == Z_BUF_ERROR ? "cut short" : "damaged", at, u->bytes);
    }
    return ERR_OK;
}

static enum err gzip_unpack(const struct unpacking *u)
{
    z_stream z = {0};
    if (inflateInit2(&z, GZIP_WINDOW) != Z_OK)
        return err_set(ERR_MEMORY, "no memory for unpacking %s", u->path);
    enum err e = inflate_all(u, &z);
    inflateEnd(&z);
    return e;
}

/* A frame's window, which the stream keeps, has 128 MiB at most (ZSTD_WINDOWLOG_LIMIT_DEFAULT). */
static enum err decompress_all(const struct unpacking *u, ZSTD_DStream *z)
{
    ZSTD_inBuffer in = {u->data, u->bytes, 0};
    size_t left = 1, written;
    do {
        ZSTD_outBuffer to = {u->piece, PIECE_BYTES, 0};
        left = ZSTD_decompressStream(z, &to, &in);
        if (ZSTD_isError(left))
            return err_set(ERR_INPUT, "%s: zstd: %s after %zu of %zu bytes", u->path,
                           ZSTD_getErrorName(left), in.pos, u->bytes);
        written = to.pos;
        TRY(u->sink->take(u->sink->self, u->piece, written));
    } while (in.pos < u->bytes || (left && written == PIECE_BYTES)); /* 0: the frame is whole */
    return left ? err_set(ERR_INPUT, "%s: zstd: cut short after %zu bytes", u->path, u->bytes)
                : ERR_OK;
}

static enum err zstd_unpack(const struct unpacking *u)
{
    ZSTD_DStream *z = ZSTD_createDStream();
    if (!z)
        return err_set(ERR_MEMORY, "no memory for unpacking %s", u->path);
    enum err e = decompress_all(u, z);
    ZSTD_freeDStream(z);
    return e;
}

enum err unpack(const char *path, const uint8_t *data, size_t bytes, const struct unpack_sink *sink)
{
    enum unpack_kind kind = unpack_kind(data, bytes);
    struct unpacking u = {path, data, bytes, sink, NULL};
    if (kind == UNPACK_NONE)
        return sink->take(sink->self, data, bytes);
    if (kind == UNPACK_BZIP2 || kind == UNPACK_XZ)
        return err_set(ERR_INPUT, "%s: compressed (%s); unpack it first", path,
                       kind == UNPACK_XZ ? "xz" : "bzip2");
    u.piece = malloc(PIECE_BYTES);
    if (!u.piece)
        return err_set(ERR_MEMORY, "no memory for unpacking %s", path);
    enum err e = kind == UNPACK_GZIP ? gzip_unpack(&u) : zstd_unpack(&u);
    free(u.piece);
    return e;
}
