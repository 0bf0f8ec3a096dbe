/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LEAVES_H
#define LEAVES_H
/* Digests of the pieces of a fragment's state: the leaves by which a difference gets a place. With
 * outer.state_digest leaves these are the leaves of the state digest (state_digest.h). Else a leaf
 * is at most STATE_LEAF values of one array (theta, a slab of the outer optimizer) of one tensor,
 * or all block codes; a fragment without whole tensors (outer.partition random) is cut as one. The
 * state digest of the manifest stays what decides; leaves only say where. Pure.
 */
#include "outer/store/outer_state.h"

enum leaves_array {
    LEAVES_THETA,
    LEAVES_SLAB,
    LEAVES_CODES = LEAVES_SLAB + OUTER_SLABS,
    LEAVES_ARRAYS
};

struct leaf {
    enum leaves_array array;
    size_t first, count; /* in the fragment: values, or codes */
};
const char *leaves_array_name(const struct outer_state *m, enum leaves_array array);
size_t leaves_count(const struct outer_state *m, unsigned fragment);
/* out: [leaves_count] */
void leaves_list(const struct outer_state *m, unsigned fragment, struct leaf *out);
/* Of a state of this fragment; digests: [leaves_count] */
enum err leaves_digests(const struct outer_state *m, unsigned fragment,
                        const struct outer_state_fragment *s, struct digest *digests,
                        struct arena *scratch) MUST;
/* The array's bytes in a state, and their offset in a snapshot. NULL: the
 * fragment has no such array. */
const void *leaves_bytes(const struct outer_state_fragment *s, enum leaves_array array,
                         size_t elements, size_t *before, size_t *each);

#endif
