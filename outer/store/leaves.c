/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/store/leaves.h"

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

/* Of one array: the tensors with the gaps after them, or all values as one. out NULL: counted. */
static size_t array_leaves(const struct fragment *f, enum leaves_array array, struct leaf *out)
{
    const struct tensor_range whole = {.count = f->elements};
    const struct tensor_range *ranges = f->view.count ? f->view.ranges : &whole;
    size_t tensors = f->view.count ? f->view.count : 1, n = 0;
    for (size_t i = 0; i < tensors; i++) {
        size_t end = i + 1 < tensors ? ranges[i + 1].first : f->elements;
        for (size_t at = ranges[i].first; at < end; at += LEAVES_ELEMENTS, n++)
            if (out)
                out[n] = (struct leaf){
                    array, at, end - at < LEAVES_ELEMENTS ? end - at : (size_t)LEAVES_ELEMENTS};
    }
    return n;
}

static size_t leaves_make(const struct outer_state *m, unsigned fragment, struct leaf *out)
{
    const struct fragment *f = &m->fragments->f[fragment];
    size_t n = 0, before, each;
    for (unsigned a = 0; a < LEAVES_CODES; a++)
        if (leaves_bytes(&m->state[fragment], (enum leaves_array)a, f->elements, &before, &each))
            n += array_leaves(f, (enum leaves_array)a, out ? out + n : NULL);
    if (out)
        out[n] = (struct leaf){LEAVES_CODES, 0, f->elements / DEV_BLOCK};
    return n + 1;
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
    TRY_ALLOC(list = arena_array(scratch, n, sizeof *list));
    leaves_list(m, fragment, list);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *bytes =
            leaves_bytes(s, list[i].array, m->fragments->f[fragment].elements, &before, &each);
        digests[i] = digest_of(bytes + list[i].first * each, list[i].count * each);
    }
    return ERR_OK;
}
