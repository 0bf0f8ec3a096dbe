#include "inner/data/unpack.h"
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

/* One piece at a time in and out: zlib counts in 32 bits. A member that ends is followed by the
 * next one, or by the end of the file. */
static enum err inflate_all(const char *path, z_stream *z, const uint8_t *data, size_t bytes,
                            struct buffer *out)
{
    int result = Z_OK;
    for (size_t at = 0; at < bytes || result == Z_OK;) {
        TRY(buffer_reserve(out, PIECE_BYTES));
        size_t piece = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        z->next_in = (Bytef *)(uintptr_t)(data + at); /* zlib only reads it */
        z->avail_in = (uInt)piece;
        z->next_out = out->data + out->count;
        z->avail_out = PIECE_BYTES;
        result = inflate(z, Z_NO_FLUSH);
        at += piece - z->avail_in;
        out->count += PIECE_BYTES - z->avail_out;
        if (result == Z_STREAM_END && at < bytes && data[at] == 0x1f)
            result = inflateReset(z);
        else if (result == Z_STREAM_END)
            break; /* what follows is padding */
        if (result != Z_OK)
            return err_set(ERR_INPUT, "%s: gzip: %s behind %zu of %zu bytes", path,
                           result == Z_BUF_ERROR ? "cut short" : "damaged", at, bytes);
    }
    return ERR_OK;
}

static enum err gzip_unpack(const char *path, const uint8_t *data, size_t bytes, struct buffer *out)
{
    z_stream z = {0};
    if (inflateInit2(&z, GZIP_WINDOW) != Z_OK)
        return err_set(ERR_MEMORY, "no memory for unpacking %s", path);
    enum err e = inflate_all(path, &z, data, bytes, out);
    inflateEnd(&z);
    return e;
}

static enum err decompress_all(const char *path, ZSTD_DStream *z, const uint8_t *data, size_t bytes,
                               struct buffer *out)
{
    ZSTD_inBuffer in = {data, bytes, 0};
    size_t left = 1, written;
    do {
        TRY(buffer_reserve(out, PIECE_BYTES));
        ZSTD_outBuffer to = {out->data + out->count, PIECE_BYTES, 0};
        left = ZSTD_decompressStream(z, &to, &in);
        if (ZSTD_isError(left))
            return err_set(ERR_INPUT, "%s: zstd: %s behind %zu of %zu bytes", path,
                           ZSTD_getErrorName(left), in.pos, bytes);
        written = to.pos;
        out->count += written;
    } while (in.pos < bytes || (left && written == PIECE_BYTES)); /* 0: the frame is whole */
    return left ? err_set(ERR_INPUT, "%s: zstd: cut short behind %zu bytes", path, bytes) : ERR_OK;
}

static enum err zstd_unpack(const char *path, const uint8_t *data, size_t bytes, struct buffer *out)
{
    ZSTD_DStream *z = ZSTD_createDStream();
    if (!z)
        return err_set(ERR_MEMORY, "no memory for unpacking %s", path);
    enum err e = decompress_all(path, z, data, bytes, out);
    ZSTD_freeDStream(z);
    return e;
}

enum err unpack_all(const char *path, const uint8_t *data, size_t bytes, struct buffer *out)
{
    switch (unpack_kind(data, bytes)) {
    case UNPACK_GZIP:
        return gzip_unpack(path, data, bytes, out);
    case UNPACK_ZSTD:
        return zstd_unpack(path, data, bytes, out);
    case UNPACK_BZIP2:
        return err_set(ERR_INPUT, "%s: compressed (bzip2); unpack it first", path);
    case UNPACK_XZ:
        return err_set(ERR_INPUT, "%s: compressed (xz); unpack it first", path);
    case UNPACK_NONE:
        break;
    }
    return buffer_add(out, data, bytes);
}
