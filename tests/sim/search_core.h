/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SEARCH_CORE_H
#define SEARCH_CORE_H
/* The protocol core (outer/protocol/round.h) inside a searched state: three sites, two rounds of
 * one fragment, whose aggregator may end at any time. A state holds the core as plain bytes;
 * core_load makes it `live` and core_keep takes it back. One source file of a program includes
 * this. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "outer/protocol/round.h"
#include "tests/sim/search.h"

enum { SITES = 3, ROUNDS = 2, STRAGGLER_MS = 10 };

struct core {
    struct round_fragment fragment; /* without its pointers */
    struct round_entry entries[SITES];
    uint64_t adopted[SITES];
    struct round_site bound[SITES];
};

static struct round live; /* the core of the state under way */
static struct round_entry entries[SITES];
static struct round_site bound[SITES];
static uint64_t adopted[SITES];

static inline struct set everybody(void)
{
    struct set all = {0};
    for (unsigned i = 0; i < SITES; i++)
        set_put(&all, i, true);
    return all;
}

static inline unsigned least(bool strict)
{
    return strict ? SITES : SITES / 2 + 1;
}

static inline void core_load(const struct core *c, uint64_t term, bool strict)
{
    memset(&live, 0, sizeof live);
    live.sites = live.room = SITES;
    live.fragments = 1;
    live.members = everybody();
    live.quorum = least(strict);
    live.strict = strict;
    live.straggler_ms = STRAGGLER_MS;
    live.term = term;
    live.s = bound;
    live.f[0] = c->fragment;
    live.f[0].entries = entries;
    live.f[0].adopted = adopted;
    memcpy(entries, c->entries, sizeof entries);
    memcpy(adopted, c->adopted, sizeof adopted);
    memcpy(bound, c->bound, sizeof bound);
}

static inline void core_keep(struct core *c)
{
    c->fragment = live.f[0];
    c->fragment.entries = NULL;
    c->fragment.adopted = NULL;
    memcpy(c->entries, entries, sizeof entries);
    memcpy(c->adopted, adopted, sizeof adopted);
    memcpy(c->bound, bound, sizeof bound);
}

/* That of a new process at the state before `round`, live. */
static inline void core_begin(struct core *c, uint64_t term, bool strict, uint64_t round,
                              const struct digest *manifest, const struct digest *state)
{
    memset(c, 0, sizeof *c);
    c->fragment.deadline_ms = UINT64_MAX;
    c->fragment.members = everybody();
    c->fragment.n = SITES;
    c->fragment.quorum = least(strict);
    core_load(c, term, strict);
    round_place(&live, 0, round, manifest, state);
}

/* late: the deadline has passed. No site lies, so none is refused, halted or in conflict. */
static inline void core_step(struct round_event *e, bool late, struct round_update *u)
{
    e->now_ms = late ? STRAGGLER_MS : 0;
    round_step(&live, e, u);
    if (u->halt)
        violate("the aggregator halts, and no site lies");
    if (u->outcome == ROUND_CONFLICT || u->outcome == ROUND_DIVERGED ||
        u->outcome == ROUND_MISMATCH || u->outcome == ROUND_JOIN)
        violate("a site is refused, and no site lies");
}

/* The deadline can pass: it runs. */
static inline bool core_waits(void)
{
    return !live.strict && live.f[0].deadline_ms != UINT64_MAX;
}

#endif
