/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SHARDS_H
#define SHARDS_H
/* Which rank of a site holds the outer state of a fragment: its theta, slabs, codes and residual,
 * in memory and on disk. The shards of an outer state are its fragments: each has files, a commit
 * point and digests of its own. So nothing that sites compare or store depends on the number of
 * ranks, and a site may start again with another number. Pure.
 */
#include "outer/diloco/fragment.h"

/* More would need more connections than an aggregator serves of one site. */
enum { SHARDS_RANKS_MAX = 16 };
struct shards {
    unsigned rank, ranks; /* ranks 0 or 1: rank 0 holds all fragments */
};
/* Of rank `rank`, where `ranks` of them hold fragments. */
static inline struct shards shards_of(unsigned rank, unsigned ranks)
{
    return (struct shards){rank, ranks};
}
static inline unsigned shards_holder(const struct shards *s, unsigned fragment)
{
    return s->ranks > 1 ? fragment % s->ranks : 0;
}
static inline bool shards_hold(const struct shards *s, unsigned fragment)
{
    return shards_holder(s, fragment) == s->rank;
}
/* Elements of the largest fragment that this rank holds; 0: it holds none. */
static inline size_t shards_largest(const struct shards *s, const struct fragments *f)
{
    size_t most = 0;
    for (unsigned p = 0; p < f->count; p++)
        if (shards_hold(s, p) && f->f[p].elements > most)
            most = f->f[p].elements;
    return most;
}

#endif
