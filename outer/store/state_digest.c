/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/store/state_digest.h"
#include <string.h>

static size_t pieces_each(size_t elements)
{
    return (elements + STATE_LEAF - 1) / STATE_LEAF;
}

size_t state_leaves(enum state_digest rule, size_t elements, size_t parts)
{
    return rule == STATE_DIGEST_LEAVES ? parts * pieces_each(elements) : 0;
}

/* Leaf i of a part. */
static struct file_part leaf_of(const struct file_part *part, size_t elements, size_t i)
{
    /* 4 or 8 bytes a value, or a byte for each 256: without a rest */
    size_t blocks = elements / 256, most = STATE_LEAF / 256 * (part->size_bytes / blocks);
    size_t first = i * most, left = part->size_bytes - first;
    return (struct file_part){(const uint8_t *)part->data + first, left < most ? left : most};
}

static void leaves_add(struct digest_stream *d, const struct state_cut *c,
                       const struct file_part *part, struct digest *leaf)
{
    enum { BATCH = 64 };
    struct digest batch[BATCH];
    size_t count = pieces_each(c->elements);
    for (size_t from = 0; from < count; from += BATCH) {
        size_t n = count - from < BATCH ? count - from : (size_t)BATCH;
#pragma omp parallel for num_threads(c->threads) schedule(dynamic) if (n > 1)
        for (size_t i = 0; i < n; i++) {
            struct file_part piece = leaf_of(part, c->elements, from + i);
            batch[i] = digest_of(piece.data, piece.size_bytes);
        }
        digest_add(d, batch, n * sizeof *batch);
        if (leaf)
            memcpy(leaf + from, batch, n * sizeof *batch);
    }
}

void state_digest_add(struct digest_stream *d, const struct state_cut *c,
                      const struct file_part *parts, size_t n, struct digest *leaf)
{
    for (size_t i = 0; i < n; i++) {
        if (c->rule == STATE_DIGEST_LEAVES)
            leaves_add(d, c, &parts[i], leaf ? leaf + i * pieces_each(c->elements) : NULL);
        else
            digest_add(d, parts[i].data, parts[i].size_bytes);
    }
}

size_t state_section_count(const struct state_cut *c, size_t parts)
{
    return c->rule == STATE_DIGEST_LEAVES ? state_leaves(c->rule, c->elements, parts) : 1;
}

enum err state_sections(struct record_section *list, const struct state_cut *c,
                        const struct file_part *parts, size_t n, struct arena *a)
{
    bool leaves = c->rule == STATE_DIGEST_LEAVES;
    size_t count = leaves ? state_section_count(c, n) : n, each = pieces_each(c->elements);
    struct file_part *pieces;
    TRY_ALLOC(pieces = arena_array(a, count + 1, sizeof *pieces));
    for (size_t i = 0; i < count; i++) {
        pieces[i] = leaves ? leaf_of(&parts[i / each], c->elements, i % each) : parts[i];
        if (leaves)
            list[i] = (struct record_section){.parts = &pieces[i], .part_count = 1};
    }
    if (!leaves)
        list[0] = (struct record_section){.parts = pieces, .part_count = n};
    return ERR_OK;
}

struct digest state_digest_said(enum state_digest rule, const struct record_view *sections,
                                size_t count)
{
    struct digest_stream d;
    if (rule == STATE_DIGEST_WHOLE)
        return sections[0].digest;
    digest_open(&d);
    for (size_t i = 0; i < count; i++)
        digest_add(&d, &sections[i].digest, sizeof sections[i].digest);
    return digest_close(&d);
}
