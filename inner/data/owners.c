/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/owners.h"
#include <stdlib.h>
#include <string.h>
#include "kernels/base/bytes.h"
#include "kernels/base/digest.h"
#include "kernels/base/file.h"

enum { HEADER_BYTES = 16 };
static const char MAGIC[] = "ATOWNERS";

struct owner owners_name(const char *name, size_t bytes)
{
    struct owner o;
    struct digest d = digest_of(name, bytes);
    memcpy(o.id, d.bytes, sizeof o.id);
    return o;
}

int owners_compare(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct owner));
}

struct owner owners_at(const uint8_t *owners, uint64_t document)
{
    struct owner o;
    memcpy(o.id, owners + document * sizeof o.id, sizeof o.id);
    return o;
}

enum err owners_parse(const uint8_t **owners, const char *path, const uint8_t *data,
                      size_t size_bytes, uint64_t documents)
{
    struct bytes_reader r = bytes_reader(data, size_bytes);
    const uint8_t *magic = bytes_view(&r, 8);
    uint64_t count = bytes_get_u64(&r);
    if (r.bad || memcmp(magic, MAGIC, 8))
        return err_set(ERR_INPUT, "%s: not a list of owners", path);
    if (count != documents || (size_bytes - HEADER_BYTES) / OWNERS_ID_BYTES != count ||
        (size_bytes - HEADER_BYTES) % OWNERS_ID_BYTES)
        return err_set(ERR_INPUT,
                       "%s: the header promises %llu owners in %zu bytes; the data set next to it "
                       "has %llu documents",
                       path, (unsigned long long)count, size_bytes, (unsigned long long)documents);
    *owners = data + HEADER_BYTES;
    return ERR_OK;
}

enum err owners_write(const char *stem, const struct owner *owners, uint64_t documents)
{
    uint8_t head[HEADER_BYTES];
    char *path;
    struct arena a = arena_make(0);
    struct bytes_writer w = bytes_writer(head, sizeof head);
    bytes_put(&w, MAGIC, 8);
    bytes_put_u64(&w, documents);
    const struct file_part parts[] = {{head, sizeof head}, {owners, documents * sizeof *owners}};
    path = arena_printf(&a, "%s.owners", stem);
    enum err e = path ? file_write(path, parts, 2, 0644) : ERR_MEMORY;
    arena_free(&a);
    return e;
}

/* ---- parts ---- */
enum err owners_deal(struct owners_deal *d, struct owner *all, uint64_t count, double held_out,
                     uint32_t sites, struct arena *a)
{
    uint64_t turn = 0;
    *d = (struct owners_deal){.owners = all};
    qsort(all, count, sizeof *all, owners_compare);
    for (uint64_t i = 0; i < count; i++)
        if (!d->count || owners_compare(&all[i], &all[d->count - 1]))
            all[d->count++] = all[i];
    d->held = (uint64_t)(held_out * (double)d->count + 0.5);
    if (held_out > 0 && d->held == 0)
        d->held = 1;
    TRY_ALLOC(d->parts = arena_array(a, d->count, sizeof *d->parts));
    for (uint64_t i = 0; i < d->count; i++) {
        bool held = (i + 1) * d->held / d->count > i * d->held / d->count;
        d->parts[i] = held ? -1 : (int64_t)(turn++ % sites);
    }
    return ERR_OK;
}

int64_t owners_part(const struct owners_deal *d, const struct owner *owner)
{
    const struct owner *found =
        bsearch(owner, d->owners, d->count, sizeof *d->owners, owners_compare);
    ASSERT(found);
    return d->parts[found - d->owners];
}
