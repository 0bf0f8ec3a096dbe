/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include "inner/data/source.h"
#include "tests/fuzz/fuzz.h"

/* A file that `atoll data` is given: the first byte says with which options, the rest is the file.
 * What passes is whole: documents in order and within the text, ids that an int32 holds. */
static void check(const struct source *s, const struct source_options *o)
{
    uint64_t before = 0;
    ASSERT(s->count || s->document_count == 0);
    for (size_t i = 0; i < s->document_count; i++) {
        ASSERT(s->documents[i].start >= before && s->documents[i].start <= s->documents[i].end);
        ASSERT(s->documents[i].end <= s->count);
        before = s->documents[i].end;
    }
    ASSERT(!o->owner || !s->document_count || s->owners);
    for (uint64_t i = 0; i < s->count; i += 1 + s->count / 64)
        ASSERT(source_id(s, i) <= s->largest_id);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    static const char *const ids[] = {"npy", "uint16", "uint32"};
    struct source s;
    char path[64];
    if (!size_bytes)
        return 0;
    unsigned how = *data;
    struct source_options o = {.directory = "/tmp"};
    if (how % 8 < 3) {
        o.ids = ids[how % 8];
    } else {
        o.field = how & 8 ? "text" : NULL;
        o.owner = how & 16 ? "owner" : NULL;
        o.csv = how & 32;
        o.documents = how & 64 || o.owner;
        o.whole_files = how & 128;
    }
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data + 1, size_bytes - 1) != (ssize_t)(size_bytes - 1))
        return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (source_open(&s, path, &o) == ERR_OK)
        check(&s, &o);
    source_close(&s);
    close(fd);
    return 0;
}
