/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/store/leaves.h"
#include <string.h>

const char *leaves_array_name(const struct outer_state *m, enum leaves_array array)
{
    return array == LEAVES_THETA   ? "theta"
           : array == LEAVES_CODES ? "codes"
                                   : outer_opt_row(m->o.outer.kind)->slab[array - LEAVES_SLAB];
}

const void *leaves_bytes(const struct outer_state_fragment *s, enum leaves_array array,
                         size_t elements, size_t *before, size_t *each)
{
    const void *arrays[LEAVES_ARRAYS] = {[LEAVES_THETA] = s->theta, [LEAVES_CODES] = s->codes};
    size_t at = 0;
    for (unsigned i = 0; i < OUTER_SLABS; i++)
        arrays[LEAVES_SLAB + i] = s->slab[i];
    for (unsigned i = 0; i < (unsigned)array; i++)
        at += arrays[i] ? elements * sizeof(float) : 0;
    *before = at;
    *each = array == LEAVES_CODES ? 1 : sizeof(float);
    return arrays[array];
}

/* From `at` to `end`, in pieces of at most `most`. out NULL: counted. */
static size_t range_leaves(enum leaves_array array, size_t at, size_t end, size_t most,
                           struct leaf *out)
{
    size_t n = 0;
    for (; at < end; at += most, n++)
        if (out)
            out[n] = (struct leaf){array, at, end - at < most ? end - at : most};
    return n;
}

/* Of one array: the tensors with the gaps after them. */
static size_t tensor_leaves(const struct fragment *f, enum leaves_array array, struct leaf *out)
{
    const struct tensor_range *ranges = f->view.ranges;
    size_t tensors = f->view.count, n = 0;
    for (size_t i = 0; i < tensors; i++) {
        size_t end = i + 1 < tensors ? ranges[i + 1].first : f->elements;
        n += range_leaves(array, ranges[i].first, end, STATE_LEAF, out ? out + n : NULL);
    }
    return n;
}

static size_t leaves_make(const struct outer_state *m, unsigned fragment, struct leaf *out)
{
    const struct fragment *f = &m->fragments->f[fragment];
    bool digest = m->o.digest == STATE_DIGEST_LEAVES, tensors = f->view.count && !digest;
    size_t n = 0, before, each, codes = f->elements / DEV_BLOCK;
    for (unsigned i = 0; i < LEAVES_CODES; i++) {
        enum leaves_array a = (enum leaves_array)i;
        struct leaf *to = out ? out + n : NULL;
        if (leaves_bytes(&m->state[fragment], a, f->elements, &before, &each))
            n +=
                tensors ? tensor_leaves(f, a, to) : range_leaves(a, 0, f->elements, STATE_LEAF, to);
    }
    return n + range_leaves(LEAVES_CODES, 0, codes, digest ? STATE_LEAF / DEV_BLOCK : codes,
                            out ? out + n : NULL);
}

size_t leaves_count(const struct outer_state *m, unsigned fragment)
{
    return leaves_make(m, fragment, NULL);
}

void leaves_list(const struct outer_state *m, unsigned fragment, struct leaf *out)
{
    leaves_make(m, fragment, out);
}

enum err leaves_digests(const struct outer_state *m, unsigned fragment,
                        const struct outer_state_fragment *s, struct digest *digests,
                        struct arena *scratch)
{
    size_t n = leaves_count(m, fragment), before, each;
    struct leaf *list;
    if (s->leaf) { /* hashed already, with the state */
        memcpy(digests, s->leaf, n * sizeof *digests);
        return ERR_OK;
    }
    TRY_ALLOC(list = arena_array(scratch, n, sizeof *list));
    leaves_list(m, fragment, list);
    size_t elements = m->fragments->f[fragment].elements;
#pragma omp parallel for num_threads(m->dev->threads) schedule(dynamic) private(before, each)
    for (size_t i = 0; i < n; i++) {
        const uint8_t *bytes = leaves_bytes(s, list[i].array, elements, &before, &each);
        digests[i] = digest_of(bytes + list[i].first * each, list[i].count * each);
    }
    return ERR_OK;
}
