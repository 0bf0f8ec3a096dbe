/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of durable files. First byte, odd: the head's digest is made right first, so that
 * fields and sections are reached. What is accepted must be what the writer writes, byte for byte.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/record_sample.h"

static void write_again(struct sample *s, const struct record *r, const uint8_t *data, size_t size,
                        struct arena *a)
{
    struct record_form form = {"test", sample_fields, s};
    struct record_section *sections = arena_array(a, r->section_count + 1, sizeof *sections);
    struct file_part *from = arena_array(a, r->section_count + 1, sizeof *from), *parts;
    size_t count, at = 0;
    ASSERT(sections && from);
    for (size_t i = 0; i < r->section_count; i++) {
        from[i] = (struct file_part){r->sections[i].data, r->sections[i].size_bytes};
        sections[i] = (struct record_section){&from[i], 1, r->sections[i].digest};
        (void)!record_intact(r, i);
        if (digest_zero(&r->sections[i].digest)) /* the writer takes it for unknown */
            return;
    }
    ASSERT(record_make(&form, sections, r->section_count, &parts, &count, a) == ERR_OK);
    for (size_t i = 0; i < count; at += parts[i++].size_bytes)
        if (parts[i].size_bytes)
            ASSERT(at + parts[i].size_bytes <= size &&
                   !memcmp(parts[i].data, data + at, parts[i].size_bytes));
    ASSERT(at == size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct arena a = arena_make(16 << 20);
    struct sample s = {0};
    struct record_form form = {"test", sample_fields, &s};
    struct record r;
    if (size_bytes < 1)
        return 0;
    size_t size = size_bytes - 1;
    uint8_t *copy = malloc(size + !size); /* of the exact size, for sanitizers */
    ASSERT(copy);
    memcpy(copy, data + 1, size);
    if (data[0] & 1)
        fuzz_record_head(copy, size);
    if (record_open(&r, &form, "fuzz", copy, size, &a) == ERR_OK)
        write_again(&s, &r, copy, size, &a);
    arena_free(&a);
    free(copy);
    return 0;
}
