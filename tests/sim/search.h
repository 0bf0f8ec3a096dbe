/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SEARCH_H
#define SEARCH_H
/* Breadth-first search over states that are plain bytes: which were seen (by a 128-bit hash, so two
 * of 10^8 states are taken for one with a chance of 10^-23), which wait, and how each came about.
 * One search at a time; no memory for more states ends the program. One source file of a program
 * includes this. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/sim/mutants.h"

/* What was violated first; empty: nothing. */
static char why[256];

static inline void violate(const char *what)
{
    if (!*why)
        snprintf(why, sizeof why, "%s", what);
}

struct search_hash {
    uint64_t a, b;
};
struct search_node { /* how a state came about */
    uint32_t from;
    uint8_t act, who;
};
struct search {
    size_t bytes; /* of a state */
    struct search_node *queue;
    size_t queued, queue_room;
    uint8_t *waiting; /* the states from `waiting_from` on */
    size_t waiting_from, waiting_room;
    struct search_hash *seen;
    size_t seen_count, seen_room; /* a power of two */
};

static inline uint64_t search_mixed(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u; /* splitmix64 */
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static inline struct search_hash search_hash_of(const uint8_t *bytes, size_t size)
{
    struct search_hash h = {1, 2};
    for (size_t at = 0; at < size; at += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + at, size - at < 8 ? size - at : 8);
        h.a = search_mixed(h.a + word + 0x9e3779b97f4a7c15u);
        h.b = search_mixed(h.b ^ (word * 0xc2b2ae3d27d4eb4fu + at));
    }
    h.a += h.a == 0;
    return h;
}

static inline void *search_sure(void *p)
{
    if (!p) {
        printf("no memory for that many states\n");
        exit(2);
    }
    return p;
}

static inline bool search_put(struct search_hash *table, size_t room, struct search_hash h)
{
    size_t at = h.a & (room - 1);
    while (table[at].a && (table[at].a != h.a || table[at].b != h.b))
        at = (at + 1) & (room - 1);
    bool new = !table[at].a;
    table[at] = h;
    return new;
}

/* True: this state was not seen before. */
static inline bool search_see(struct search *s, const void *state)
{
    if (2 * s->seen_count >= s->seen_room) {
        size_t room = s->seen_room ? 2 * s->seen_room : 1 << 16;
        struct search_hash *table = search_sure(calloc(room, sizeof *table));
        for (size_t i = 0; i < s->seen_room; i++)
            if (s->seen[i].a)
                (void)search_put(table, room, s->seen[i]);
        free(s->seen);
        s->seen = table;
        s->seen_room = room;
    }
    bool new = search_put(s->seen, s->seen_room, search_hash_of(state, s->bytes));
    s->seen_count += new;
    return new;
}

static inline void search_add(struct search *s, const void *state, uint32_t from, unsigned act,
                              unsigned who)
{
    if (s->queued == s->queue_room) {
        s->queue_room = s->queue_room ? 2 * s->queue_room : 4096;
        s->queue = search_sure(realloc(s->queue, s->queue_room * sizeof *s->queue));
    }
    s->queue[s->queued] = (struct search_node){from, (uint8_t)act, (uint8_t)who};
    if (s->queued - s->waiting_from == s->waiting_room) {
        s->waiting_room = s->waiting_room ? 2 * s->waiting_room : 4096;
        s->waiting = search_sure(realloc(s->waiting, s->waiting_room * s->bytes));
    }
    memcpy(s->waiting + (s->queued++ - s->waiting_from) * s->bytes, state, s->bytes);
}

/* The state number `at`, which waits; those before it are needed no more. */
static inline void search_take(struct search *s, size_t at, void *state)
{
    memcpy(state, s->waiting + (at - s->waiting_from) * s->bytes, s->bytes);
    if (2 * (at - s->waiting_from) > s->waiting_room) {
        memmove(s->waiting, s->waiting + (at + 1 - s->waiting_from) * s->bytes,
                (s->queued - at - 1) * s->bytes);
        s->waiting_from = at + 1;
    }
}

/* The events that lead to state `at`, oldest first. names: of acts; those from `lonely` on are of
 * no site. */
static inline void search_trace(const struct search *s, uint32_t at, const char *const *names,
                                unsigned lonely)
{
    const struct search_node *n = &s->queue[at];
    if (n->from == at)
        return;
    search_trace(s, n->from, names, lonely);
    if (n->act < lonely)
        printf("  %s site %u\n", names[n->act], n->who);
    else
        printf("  %s\n", names[n->act]);
}

struct search_model {
    size_t bytes; /* of a state */
    const char *const *names;
    unsigned acts, site_acts; /* the first `site_acts` are of a site */
    unsigned sites;
    /* False: it cannot happen, or changes nothing. */
    bool (*act)(void *state, unsigned act, unsigned site);
    void (*check)(const void *state); /* of every state */
};

static inline void search_begin(struct search *s, size_t bytes)
{
    s->bytes = bytes;
    s->queued = s->seen_count = s->waiting_from = s->waiting_room = 0;
    free(s->waiting);
    s->waiting = NULL;
    if (s->seen)
        memset(s->seen, 0, s->seen_room * sizeof *s->seen);
}

/* All that can happen in one state, up to a violation. */
static inline void search_expand(struct search *s, const struct search_model *m, uint32_t at,
                                 const void *from, void *to)
{
    for (unsigned a = 0; a < m->acts; a++)
        for (unsigned i = 0; i < (a < m->site_acts ? m->sites : 1); i++) {
            memcpy(to, from, m->bytes);
            bool done = m->act(to, a, i);
            if (*why || (done && search_see(s, to)))
                search_add(s, to, at, a, i);
            if (*why)
                return;
        }
}

/* From one state on, at most `limit` states (0: all). False: a violation; the events that lead to
 * it are printed, under `name`. */
static inline bool search_run(struct search *s, const struct search_model *m, const char *name,
                              const void *first, size_t limit, size_t *states)
{
    void *from = search_sure(malloc(m->bytes)), *to = search_sure(malloc(m->bytes));
    uint32_t last = 0;
    search_begin(s, m->bytes);
    (void)search_see(s, first);
    search_add(s, first, 0, 0, 0);
    for (uint32_t at = 0; at < s->queued && !*why && (!limit || at < limit); at++) {
        search_take(s, at, from);
        last = at;
        m->check(from);
        if (!*why) {
            search_expand(s, m, at, from, to);
            last = (uint32_t)s->queued - 1;
        }
        *states = at + 1;
    }
    if (*why) {
        printf("FAILED (%s): %s, after\n", name, why);
        search_trace(s, last, m->names, m->site_acts);
    }
    free(from);
    free(to);
    return !*why;
}

static inline void search_end(struct search *s)
{
    free(s->queue);
    free(s->waiting);
    free(s->seen);
    *s = (struct search){0};
}

/* --all: 0, --states N, --mutant NAME; without them `suite`. */
static inline size_t search_limit(int argc, char **argv, size_t suite)
{
    size_t limit = suite;
    for (int i = 1; i < argc; i++) {
        bool value = i + 1 < argc;
        if (!strcmp(argv[i], "--all")) {
            limit = 0;
        } else if (!strcmp(argv[i], "--states") && value) {
            limit = (size_t)strtoull(argv[++i], NULL, 10);
        } else if (!strcmp(argv[i], "--mutant") && value && mutant_set(argv[i + 1])) {
            i++;
        } else {
            printf("unknown argument %s\n", argv[i]);
            exit(2);
        }
    }
    return limit;
}

#endif
