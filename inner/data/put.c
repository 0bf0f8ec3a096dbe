/* SPDX-License-Identifier: Apache-2.0 */
/* Ids into the files of token shards. */
#include <stdio.h>
#include <string.h>
#include "inner/data/shard.h"
#include "inner/data/text_own.h"
#include "kernels/base/bytes.h"
#include "kernels/base/file.h"

enum { SUFFIX_BYTES = 7 };

enum err text_stem(const struct work *w, int64_t part, uint32_t number, char stem[TEXT_PATH_BYTES])
{
    int n = part < 0 ? snprintf(stem, TEXT_PATH_BYTES, "%s/eval-%04u", w->o->out, number)
                     : snprintf(stem, TEXT_PATH_BYTES, "%s/train-%lld-%04u", w->o->out,
                                (long long)part, number);
    if (n < TEXT_PATH_BYTES - SUFFIX_BYTES)
        return ERR_OK;
    return err_set(ERR_INPUT, "%s: path too long", w->o->out);
}

enum err text_shard_path(const struct work *w, int64_t part, uint32_t number, const char *suffix,
                         char path[TEXT_PATH_BYTES])
{
    TRY(text_stem(w, part, number, path));
    ASSERT(strlen(suffix) <= SUFFIX_BYTES);
    memcpy(path + strlen(path), suffix, strlen(suffix) + 1);
    return ERR_OK;
}

enum err text_shard_write(const struct work *w, struct text_out *out)
{
    char path[TEXT_PATH_BYTES];
    struct bytes_writer head = bytes_writer(w->shard, SHARD_HEADER_BYTES);
    bytes_put_u32(&head, w->id_bytes == 2 ? SHARD_MAGIC_U16 : SHARD_MAGIC_U32);
    bytes_put_u32(&head, w->id_bytes == 2 ? SHARD_VERSION_U16 : SHARD_VERSION_U32);
    bytes_put_u32(&head, (uint32_t)out->filled);
    struct file_part whole = {w->shard, SHARD_HEADER_BYTES + out->filled * w->id_bytes};
    TRY(text_shard_path(w, out->part, out->report->shards, ".bin", path));
    TRY(file_write(path, &whole, 1, 0644));
    out->report->shards++;
    out->report->tokens += out->filled;
    out->filled = 0;
    return ERR_OK;
}

enum err text_put(const struct work *w, struct text_out *out, uint32_t id)
{
    uint8_t *at = w->shard + SHARD_HEADER_BYTES + out->filled++ * w->id_bytes;
    for (unsigned byte = 0; byte < w->id_bytes; byte++)
        at[byte] = (uint8_t)(id >> 8 * byte);
    return out->filled < w->o->shard_tokens ? ERR_OK : text_shard_write(w, out);
}
