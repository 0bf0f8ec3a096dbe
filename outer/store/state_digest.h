/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STATE_DIGEST_H
#define STATE_DIGEST_H
/* How the digest of a fragment's state is made of its bytes: outer.state_digest, docs/formats.md 4.
 * The rule belongs to the run: every replica has the same, from the first round to the last.
 *
 *   whole    SHA-256 of theta, the slabs and the codes, one after the other: on one core
 *   leaves   SHA-256 of the digests of the leaves. A leaf is STATE_LEAF consecutive values of one
 *            array, or the codes of as many values. Leaves are hashed on many threads, and a state
 *            file has a section for each of them.
 *
 * Pure. The parts of a state are arrays with something for each of the fragment's `elements`
 * values: 4 or 8 bytes, or a byte for each 256.
 */
#include "kernels/base/arena.h"
#include "kernels/base/record.h"

#define STATE_DIGEST_LIST(X) X(STATE_DIGEST_WHOLE, whole) X(STATE_DIGEST_LEAVES, leaves)
#define X(name, text)        name,
enum state_digest { STATE_DIGEST_LIST(X) };
#undef X

enum { STATE_LEAF = 1 << 16 };

struct state_cut { /* how all parts of a fragment are cut and hashed */
    enum state_digest rule;
    size_t elements;
    int threads;
};
/* Leaves of `parts` arrays; 0: they are hashed as a whole. */
size_t state_leaves(enum state_digest rule, size_t elements, size_t parts);
/* What the digest is made of: the bytes, or the leaves' digests, which are kept in `leaf`
 * ([state_leaves], or NULL) too. */
void state_digest_add(struct digest_stream *d, const struct state_cut *c,
                      const struct file_part *parts, size_t n, struct digest *leaf);
/* Sections of a file with `parts` arrays: one for all of them, or one for each leaf. */
size_t state_section_count(const struct state_cut *c, size_t parts);
/* list: [state_section_count], without digests. Their parts are in memory of `a`, the data is
 * borrowed. */
enum err state_sections(struct record_section *list, const struct state_cut *c,
                        const struct file_part *parts, size_t n, struct arena *a) MUST;
/* The state digest that the sections of a file say, whether or not their bytes match. */
struct digest state_digest_said(enum state_digest rule, const struct record_view *sections,
                                size_t count);

#endif
