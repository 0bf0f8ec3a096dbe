/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/loader_text.h"
#include <stdlib.h>
#include <string.h>
#include "kernels/base/bytes.h"

enum { FIRST_IDS = 64 };

static void text_add(struct digest_stream *d, const char *text)
{
    digest_add(d, text, strlen(text) + 1);
}

/* Classes and owners come from other files than the text: others may have the same size. */
static void beside_add(struct digest_stream *d, const struct file_map *m)
{
    if (m->size_bytes)
        digest_add(d, m->data, m->size_bytes);
}

static void shard_add(struct digest_stream *d, const struct shard *s)
{
    int32_t ids[FIRST_IDS] = {0};
    uint8_t bytes[8 * 5 + 4 * FIRST_IDS];
    const char *slash = strrchr(s->path, '/');
    size_t count = s->count < FIRST_IDS ? (size_t)s->count : FIRST_IDS;
    struct bytes_writer w = bytes_writer(bytes, sizeof bytes);
    shard_read(s, 0, count, ids);
    bytes_put_u64(&w, s->count);
    bytes_put_u64(&w, s->map.size_bytes);
    bytes_put_u64(&w, s->index_map.size_bytes);
    bytes_put_u64(&w, s->labels_map.size_bytes);
    bytes_put_u64(&w, s->owners_map.size_bytes);
    for (size_t i = 0; i < FIRST_IDS; i++)
        bytes_put_u32(&w, (uint32_t)ids[i]);
    text_add(d, s->set);
    text_add(d, slash ? slash + 1 : s->path);
    digest_add(d, bytes, sizeof bytes);
    beside_add(d, &s->labels_map);
    beside_add(d, &s->owners_map);
}

static struct digest list_digest(const struct settings *s)
{
    struct digest_stream d;
    digest_open(&d);
    for (size_t i = 0; s && i < s->data_train.count; i++)
        text_add(&d, s->data_train.items[i]);
    return digest_close(&d);
}

struct loader_text loader_text(const struct loader *l)
{
    struct loader_text t = {
        .files = l->set.count, .tokens = l->set.tokens, .list = list_digest(l->options.settings)};
    struct digest_stream d;
    digest_open(&d);
    for (size_t i = 0; i < l->set.count; i++)
        shard_add(&d, &l->set.shards[i]);
    t.shards = digest_close(&d);
    return t;
}

enum loader_text_change loader_text_compare(const struct loader_text *was,
                                            const struct loader_text *is)
{
    if (!was->files || digest_equal(&was->shards, &is->shards))
        return LOADER_TEXT_SAME;
    return digest_equal(&was->list, &is->list) ? LOADER_TEXT_FILES : LOADER_TEXT_LIST;
}
