/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SITE_SET_H
#define SITE_SET_H
/* A set of sites: a bit per index in the roster. A plain value, 128 bytes, all zero is empty. */
#include <stdbool.h>
#include <stdint.h>

enum { SET_MAX = 1024, SET_WORDS = SET_MAX / 64 };

struct set {
    uint64_t word[SET_WORDS];
};

static inline bool set_has(const struct set *s, unsigned i)
{
    return s->word[i / 64] >> i % 64 & 1;
}

static inline void set_put(struct set *s, unsigned i, bool in)
{
    uint64_t bit = 1ull << i % 64;
    s->word[i / 64] = in ? s->word[i / 64] | bit : s->word[i / 64] & ~bit;
}

static inline struct set set_without(const struct set *a, const struct set *b) /* a without b */
{
    struct set s;
    for (unsigned w = 0; w < SET_WORDS; w++)
        s.word[w] = a->word[w] & ~b->word[w];
    return s;
}

static inline bool set_within(const struct set *a, const struct set *b)
{
    uint64_t beyond = 0;
    for (unsigned w = 0; w < SET_WORDS; w++)
        beyond |= a->word[w] & ~b->word[w];
    return !beyond;
}

static inline unsigned set_count(const struct set *s)
{
    unsigned n = 0;
    for (unsigned w = 0; w < SET_WORDS; w++)
        n += (unsigned)__builtin_popcountll(s->word[w]);
    return n;
}

#endif
