/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if the core is wrong: a contribution counted twice, a round closed by a minority, two
 * histories. Stories with their answers lie in tests/golden/round; random orders of events are
 * checked against the rule that a round's set never depends on the order in which it came. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/rng.h"
#include "outer/protocol/round.h"
#include "tests/sim/mutants.h"

static const char *const stories[] = {"first",    "strict",    "quorum",  "restart", "identity",
                                      "standing", "fragments", "aborted", "grace",   "quarantine",
                                      "proof",    "step_back", "masked"};
static struct round core;
static struct arena memory;

static struct grace_rule rule;
static struct round_masks masks;
static unsigned room;

static void core_init(unsigned sites, unsigned fragments, bool strict, uint64_t straggler_ms,
                      uint64_t term)
{
    arena_free(&memory);
    memory = arena_make(0);
    const struct round_options o = {.sites = sites,
                                    .fragments = fragments,
                                    .strict = strict,
                                    .straggler_ms = straggler_ms,
                                    .term = term,
                                    .grace = rule,
                                    .masks = masks,
                                    .room = room};
    assert_int_equal(round_init(&core, &o, &memory), ERR_OK);
}

struct words { /* key=value words of one line; views into the line */
    char *key[32], *value[32];
    size_t count;
};

static struct words words_of(char *line)
{
    struct words w = {.count = 0};
    for (char *at = strtok(line, " \n"); at && w.count < 32; at = strtok(NULL, " \n")) {
        char *equals = strchr(at, '=');
        assert_non_null(equals);
        *equals = 0;
        w.key[w.count] = at;
        w.value[w.count++] = equals + 1;
    }
    return w;
}

static const char *word(struct words *w, const char *key, const char *otherwise)
{
    for (size_t i = 0; i < w->count; i++)
        if (w->key[i] && strcmp(w->key[i], key) == 0) {
            w->key[i] = NULL; /* used: a mistyped key is left over */
            return w->value[i];
        }
    return otherwise;
}

static uint64_t number(struct words *w, const char *key, uint64_t otherwise)
{
    const char *s = word(w, key, NULL);
    return s ? strtoull(s, NULL, 10) : otherwise;
}

static struct digest named(struct words *w, const char *key, struct digest otherwise)
{
    const char *s = word(w, key, NULL);
    return s ? digest_of(s, strlen(s)) : otherwise;
}

static void none_left(const struct words *w)
{
    for (size_t i = 0; i < w->count; i++)
        if (w->key[i])
            fail_msg("unknown key %s", w->key[i]);
}

static enum round_event_kind kind_of(const char *name)
{
    for (int k = ROUND_HELLO; k <= ROUND_TICK; k++)
        if (strcmp(round_event_name((enum round_event_kind)k), name) == 0)
            return (enum round_event_kind)k;
    fail_msg("unknown event %s", name);
    return ROUND_TICK;
}

static void story_run(struct words w)
{
    uint64_t sites = number(&w, "sites", 0), fragments = number(&w, "fragments", 1);
    bool strict = strcmp(word(&w, "mode", "strict"), "strict") == 0;
    uint64_t straggler = number(&w, "straggler", 0), term = number(&w, "term", 0);
    rule = (struct grace_rule){(double)number(&w, "grace", 0) / 100,
                               (double)number(&w, "overlap", 0) / 100};
    int colluding = (int)number(&w, "masks_against", UINT64_MAX);
    masks = (struct round_masks){.on = colluding >= 0,
                                 .colluding = colluding > 0 ? (unsigned)colluding : 0};
    none_left(&w);
    core_init((unsigned)sites, (unsigned)fragments, strict, straggler, term);
    struct digest initial = digest_of("initial", 7);
    for (unsigned i = 0; i < fragments; i++)
        round_place(&core, i, 0, &(struct digest){0}, &initial);
}

static void story_place(struct words w)
{
    unsigned fragment = (unsigned)number(&w, "fragment", 0);
    uint64_t round = number(&w, "round", 0);
    struct digest manifest = named(&w, "manifest", (struct digest){0}),
                  state = named(&w, "state", manifest);
    none_left(&w);
    round_place(&core, fragment, round, &manifest, &state);
}

/* A seal of the round in flight was announced: "pin set=13" of sites 0, 2 and 3. */
static void story_pin(struct words w)
{
    unsigned fragment = (unsigned)number(&w, "fragment", 0);
    struct set s = {.word = {number(&w, "set", 0)}};
    none_left(&w);
    round_pin(&core, fragment, &s);
}

/* What an orderly site would say now, changed by the words. */
static struct round_event story_event(uint64_t now_ms, enum round_event_kind kind, struct words w)
{
    struct round_event e = {.kind = kind,
                            .now_ms = now_ms,
                            .site = (unsigned)number(&w, "site", 0),
                            .fragment = (unsigned)number(&w, "fragment", 0),
                            .offer.weight = 1.0f};
    const struct round_fragment *f = &core.f[e.fragment];
    char payload[16], next[32];
    snprintf(payload, sizeof payload, "p%u", e.site);
    e.incarnation = number(&w, "incarnation", 1);
    e.instance = number(&w, "instance", 1);
    e.term = number(&w, "term", core.term);
    e.round = number(&w, "round", f->round + (kind == ROUND_COMMITTED));
    e.aborted = number(&w, "aborted", 0);
    snprintf(next, sizeof next, "state%llu", (unsigned long long)e.round);
    struct digest after = digest_of(next, strlen(next));
    e.parent = named(&w, "manifest", kind == ROUND_COMMITTED ? after : f->parent);
    e.state = named(&w, "state", kind == ROUND_COMMITTED && !e.aborted ? after : f->state);
    e.offer.payload = named(&w, "payload", digest_of(payload, strlen(payload)));
    e.offer.payload_bytes = number(&w, "bytes", 100);
    e.offer.payload_max = 100;
    e.hello.has_state = number(&w, "has_state", 1);
    e.offer.grid_differs = number(&w, "grid_differs", 0);
    e.proves.term = number(&w, "proves_term", 0);
    e.proves.round = number(&w, "proves_round", 0);
    e.proves.later = number(&w, "proves_later", 0);
    e.proves.older = number(&w, "proves_older", 0);
    e.past.kept = number(&w, "kept", 0);
    e.past.parent = named(&w, "our_manifest", e.past.parent);
    e.past.state = named(&w, "our_state", e.past.state);
    none_left(&w);
    return e;
}

/* "> 100 offer site=0" -> the line the core answers with. */
static void story_step(char *line, char *out, size_t size)
{
    char kind[32], values[1024];
    unsigned long long now_ms;
    int used = 0;
    assert_int_equal(sscanf(line, "> %llu %31s%n", &now_ms, kind, &used), 2);
    struct round_event e = story_event(now_ms, kind_of(kind), words_of(line + used));
    struct round_update u;
    round_step(&core, &e, &u);
    round_trace(&e, &u, values, sizeof values);
    snprintf(out, size, "< t=%llu ev=%s %s\n", now_ms, kind, values);
}

static void story_line(char *line, char *out, size_t size)
{
    *out = 0;
    if (strncmp(line, "run ", 4) == 0)
        story_run(words_of(line + 4));
    else if (strncmp(line, "place ", 6) == 0)
        story_place(words_of(line + 6));
    else if (strncmp(line, "pin ", 4) == 0)
        story_pin(words_of(line + 4));
    else if (*line == '>')
        story_step(line, out, size);
    else
        assert_true(*line == '#');
}

static void story_check(void **state)
{
    char path[256], line[1024], kept[1024], expected[1024], out[1200];
    snprintf(path, sizeof path, "tests/golden/round/%s.trace", (const char *)*state);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    unsigned answers = 0;
    while (fgets(line, sizeof line, f)) {
        strcpy(kept, line);
        story_line(line, out, sizeof out);
        if (!*out)
            continue;
        if (!fgets(expected, sizeof expected, f) || strcmp(expected, out) != 0)
            fail_msg("%s\n%sexpected %sgot      %s", path, kept, expected, out);
        answers++;
    }
    fclose(f);
    masks = (struct round_masks){.on = false};
    assert_true(answers > 0);
}

static void story_write(const char *name)
{
    char path[256], temporary[300], line[1024], kept[1024], out[1200];
    snprintf(path, sizeof path, "tests/golden/round/%s.trace", name);
    snprintf(temporary, sizeof temporary, "%s.new", path);
    FILE *f = fopen(path, "r"), *to = fopen(temporary, "w");
    assert_true(f && to);
    while (fgets(line, sizeof line, f)) {
        if (*line == '<')
            continue;
        strcpy(kept, line);
        story_line(line, out, sizeof out);
        fprintf(to, "%s%s", kept, out);
    }
    fclose(f);
    fclose(to);
    assert_int_equal(rename(temporary, path), 0);
}

/* ---- final ---- */

static uint64_t final_after(enum round_event_kind kind, unsigned site, uint64_t round,
                            const char *state)
{
    struct digest d = digest_of(state, strlen(state)), m3 = digest_of("m3", 2);
    struct round_event e = {.kind = kind, .site = site, .incarnation = 1, .instance = 1};
    struct round_update u;
    e.term = core.term;
    e.round = round;
    e.hello.has_state = true;
    e.parent = m3;
    e.state = d;
    round_step(&core, &e, &u);
    return u.final;
}

/* More than half of the roster's sites, each with our digest, in hellos or reports; a restart
 * begins at none and finds it again from hellos. */
static void final_counts(void **state)
{
    (void)state;
    struct digest m3 = digest_of("m3", 2), s3 = digest_of("s3", 2);
    for (unsigned start = 0; start < 2; start++) {
        core_init(4, 1, false, 1000, 5 + start);
        round_place(&core, 0, 3, &m3, &s3);
        assert_int_equal(final_after(ROUND_HELLO, 0, 3, "s3"), 0);
        assert_int_equal(final_after(ROUND_HELLO, 0, 3, "s3"), 0);    /* the same site */
        assert_int_equal(final_after(ROUND_HELLO, 1, 3, "other"), 0); /* another state */
        for (unsigned k = 1; k < 4; k++) {
            struct round_event bind = {.kind = ROUND_BIND, .site = k, .incarnation = 1};
            struct round_update u;
            bind.instance = 1;
            bind.term = core.term;
            round_step(&core, &bind, &u);
        }
        assert_int_equal(final_after(ROUND_REPORT, 1, 3, "s3"), 0); /* half is not more than half */
        assert_int_equal(final_after(ROUND_REPORT, 2, 3, "s3"), 3);
        assert_int_equal(final_after(ROUND_POLL, 3, 3, "s3"), 3); /* told to all */
    }
}

/* ---- random orders ---- */
enum { SITES = 5, EVENTS = 600 };
static uint64_t seed = 1;

struct random {
    uint64_t index;
};

static uint64_t below(struct random *r, uint64_t n)
{
    return rng_u64(seed, 7, r->index++) % n;
}

static struct digest payload_of(unsigned site, unsigned fragment, uint64_t round)
{
    unsigned v[3] = {site, fragment, (unsigned)round};
    return digest_of(v, sizeof v);
}

/* Any event a network may deliver: duplicated, late, of an old round, of the present one. */
static struct round_event any_event(struct random *r, uint64_t now_ms)
{
    static const enum round_event_kind kinds[] = {ROUND_BIND,   ROUND_OFFER, ROUND_STORED,
                                                  ROUND_STORED, ROUND_POLL,  ROUND_REPORT,
                                                  ROUND_TICK,   ROUND_LEAVE};
    struct round_event e = {.kind = kinds[below(r, 8)],
                            .now_ms = now_ms,
                            .site = (unsigned)below(r, SITES),
                            .fragment = (unsigned)below(r, core.fragments),
                            .incarnation = 1,
                            .instance = 1,
                            .term = core.term,
                            .offer.payload_bytes = 100,
                            .offer.payload_max = 100,
                            .hello.has_state = true};
    const struct round_fragment *f = &core.f[e.fragment];
    uint64_t back = below(r, 3);
    e.round = f->round >= back ? f->round - back : 0;
    e.parent = f->parent;
    e.state = f->state;
    e.offer.payload = payload_of(e.site, e.fragment, e.round);
    return e;
}

static void commit(const struct round_update *u, uint64_t now_ms)
{
    struct round_event e = {.kind = ROUND_COMMITTED,
                            .now_ms = now_ms,
                            .fragment = u->seal_fragment,
                            .round = core.f[u->seal_fragment].round + 1};
    struct round_update after;
    e.parent = e.state = digest_of(&e.round, sizeof e.round);
    round_step(&core, &e, &after);
    assert_int_equal(core.f[e.fragment].round, e.round);
    assert_false(after.seal &&
                 after.seal_fragment == e.fragment); /* an empty round is never ready */
}

/* One random run: every accept of (site, fragment, round) happens once; every sealed set is exactly
 * what was accepted before; strict: all of them, quorum: a majority of the configured ones. Returns
 * rounds committed. */
static unsigned any_run(bool strict, unsigned fragments)
{
    static uint64_t accepted[ROUND_FRAGMENTS_MAX];
    struct random r = {0};
    struct digest initial = digest_of("initial", 7);
    unsigned rounds = 0;
    uint64_t now_ms = 0;
    memset(accepted, 0, sizeof accepted);
    core_init(SITES, fragments, strict, 50, 1);
    for (unsigned i = 0; i < fragments; i++)
        round_place(&core, i, 0, &(struct digest){0}, &initial);
    for (unsigned n = 0; n < EVENTS * fragments; n++) {
        struct round_event e = any_event(&r, now_ms += below(&r, 20));
        struct round_update u;
        round_step(&core, &e, &u);
        if (u.accept) {
            assert_int_equal(u.outcome, ROUND_RECEIPT);
            assert_int_equal(e.round, core.f[e.fragment].round);
            assert_false(accepted[e.fragment] >> e.site & 1);
            accepted[e.fragment] |= 1ull << e.site;
        }
        if (u.seal) {
            assert_int_equal(u.seal_set.word[0], accepted[u.seal_fragment]);
            unsigned count = set_count(&u.seal_set);
            assert_true(strict ? count == SITES : count >= SITES / 2 + 1);
            for (unsigned i = 0; i < SITES; i++)
                if (set_has(&u.seal_set, i)) {
                    struct digest p = payload_of(i, u.seal_fragment, core.f[u.seal_fragment].round);
                    assert_true(digest_equal(&core.f[u.seal_fragment].entries[i].payload, &p));
                }
            accepted[u.seal_fragment] = 0;
            commit(&u, now_ms);
            rounds++;
        }
    }
    return rounds;
}

static void random_orders_count_once(void **state)
{
    (void)state;
    unsigned rounds = 0;
    for (uint64_t s = 1; s <= 200; s++) {
        seed = s;
        rounds += any_run(s & 1, s & 2 ? 4 : 1);
    }
    assert_true(rounds > 2000); /* the runs did get somewhere */
}

/* The same contributions in every order of 4 sites: the same set, digests and weights. */
static void the_set_is_independent_of_order(void **state)
{
    (void)state;
    enum { N = 4 };
    for (unsigned code = 0; code < 256; code++) {
        unsigned order[N] = {code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6 & 3}, seen = 0;
        for (unsigned i = 0; i < N; i++)
            seen |= 1u << order[i];
        core_init(N, 1, true, 0, 1);
        struct round_update u = {0};
        for (unsigned i = 0; i < 2 * N;
             i++) { /* each twice, when the order names a site twice even more often */
            struct round_event e = {.kind = ROUND_BIND,
                                    .site = order[i % N],
                                    .term = 1,
                                    .offer.payload_bytes = 8,
                                    .now_ms = i,
                                    .offer.weight = 1.0f / (float)(1 + order[i % N])};
            struct round_update ignored;
            round_step(&core, &e, &ignored);
            e.kind = ROUND_STORED;
            e.offer.payload = payload_of(e.site, 0, 0);
            round_step(&core, &e, &ignored);
            if (ignored.seal)
                u = ignored;
        }
        assert_int_equal(u.seal, seen == 15);
        for (unsigned i = 0; u.seal && i < N; i++) {
            struct digest p = payload_of(i, 0, 0);
            assert_true(digest_equal(&core.f[0].entries[i].payload, &p));
            assert_true(core.f[0].entries[i].weight == 1.0f / (float)(1 + i));
        }
    }
}

/* Two processes of a site: each binds the fragments that it holds. The other one may still take a
 * commit of the term before. */
static void each_process_binds_its_fragments(void **state)
{
    (void)state;
    struct round_update u;
    struct round_event e = {.kind = ROUND_BIND, .term = 1, .incarnation = 1, .hello.elsewhere = 2};
    core_init(2, 2, true, 0, 1);
    core.f[0].entries[0].accepted = core.f[1].entries[0].accepted = true; /* before a restart */
    round_step(&core, &e, &u);
    assert_true(set_has(&core.f[0].counted, 0));
    assert_false(set_has(&core.f[1].counted, 0));
    e.hello.elsewhere = 1;
    round_step(&core, &e, &u);
    assert_true(set_has(&core.f[0].counted, 0) && set_has(&core.f[1].counted, 0));
}

/* As many sites as there may be: the set is all of them, the trace writes it as one number, and a
 * majority of them that reports another state halts. Every word of the set is crossed. */
static void a_thousand_sites(void **state)
{
    (void)state;
    enum { N = ROUND_SITES_MAX };
    struct round_update u = {0};
    struct round_event e = {
        .term = 1, .offer.weight = 1, .offer.payload_bytes = 8, .offer.payload_max = 8};
    char line[1024];
    core_init(N, 2, true, 0, 1);
    for (unsigned i = 0; i < N; i++) {
        assert_false(u.seal);
        e.site = N - 1 - i;
        e.kind = ROUND_BIND;
        round_step(&core, &e, &u);
        e.kind = ROUND_STORED;
        e.offer.payload = payload_of(e.site, 0, 0);
        round_step(&core, &e, &u);
        assert_true(u.accept);
        assert_int_equal(core.f[0].count, i + 1);
    }
    assert_true(u.seal);
    assert_int_equal(set_count(&u.seal_set), N);
    round_trace(&e, &u, line, sizeof line);
    const char *set = strstr(line, " set=0x");
    assert_non_null(set);
    assert_int_equal(strspn(set + 7, "f"), N / 4);
    e = (struct round_event){.kind = ROUND_COMMITTED, .round = 1};
    e.parent = e.state = digest_of("one", 3);
    round_step(&core, &e, &u);
    assert_int_equal(core.f[0].count + set_count(&core.f[0].counted), 0);
    e = (struct round_event){
        .kind = ROUND_REPORT, .round = 1, .term = 1, .state = digest_of("two", 3)};
    for (unsigned i = 0; i <= N / 2; i++) {
        assert_false(u.halt);
        e.site = 2 * i % N;
        round_step(&core, &e, &u);
        e.site += 1; /* odd ones never: the even ones are half, and no majority */
    }
    assert_false(u.halt);
    e.site = 1;
    round_step(&core, &e, &u);
    assert_true(u.halt);
}

/* ---- a roster that changes ---- */

static struct round_update bind(unsigned site)
{
    struct round_update u;
    struct round_event e = {.kind = ROUND_BIND, .site = site, .incarnation = 1, .instance = 5};
    e.term = core.term;
    round_step(&core, &e, &u);
    return u;
}

/* A contribution to the round in flight, from offer to receipt. */
static struct round_update give(unsigned site, unsigned fragment)
{
    struct round_update u;
    const struct round_fragment *f = &core.f[fragment];
    struct round_event e = {.kind = ROUND_OFFER,
                            .site = site,
                            .fragment = fragment,
                            .incarnation = 1,
                            .instance = 5,
                            .term = core.term,
                            .round = f->round,
                            .parent = f->parent,
                            .offer.payload = payload_of(site, fragment, f->round),
                            .offer.payload_bytes = 8,
                            .offer.payload_max = 8,
                            .offer.weight = 1};
    round_step(&core, &e, &u);
    if (u.outcome != ROUND_RESUME)
        return u;
    e.kind = ROUND_STORED;
    round_step(&core, &e, &u);
    return u;
}

static void committed(unsigned fragment)
{
    struct round_update u;
    struct round_event e = {.kind = ROUND_COMMITTED, .fragment = fragment};
    e.round = core.f[fragment].round + 1;
    e.parent = e.state = digest_of(&e.round, sizeof e.round);
    round_step(&core, &e, &u);
}

static void reported(unsigned site, unsigned fragment)
{
    struct round_update u;
    struct round_event e = {.kind = ROUND_REPORT,
                            .site = site,
                            .fragment = fragment,
                            .incarnation = 1,
                            .instance = 5,
                            .term = core.term,
                            .round = core.f[fragment].round,
                            .state = core.f[fragment].state};
    round_step(&core, &e, &u);
    assert_int_equal(u.outcome, ROUND_CURRENT);
}

/* The round in flight keeps its sites; from the first round of the change on, sets and majorities
 * are the new roster's; and the next change has to wait until this one is final. */
static void a_roster_that_changes(void **state)
{
    (void)state;
    unsigned waits = 9;
    room = 4;
    core_init(2, 2, true, 0, 1);
    room = 0;
    assert_true(round_roster_final(&core, &waits));
    for (unsigned i = 0; i < 2; i++)
        bind(i);
    assert_true(give(0, 0).accept);
    round_roster(&core, 2, true, (uint64_t[ROUND_FRAGMENTS_MAX]){1, 2});
    bind(2);
    assert_int_equal(core.sites, 3);
    assert_int_equal(give(2, 0).outcome, ROUND_EARLY);
    assert_true(give(1, 0).seal); /* of two sites: the third is not in this round */
    committed(0);
    assert_int_equal(core.f[0].n, 3);
    assert_int_equal(core.f[1].n, 2);
    assert_false(give(0, 0).seal);
    assert_false(give(1, 0).seal);
    struct round_update u = give(2, 0);
    assert_true(u.seal && u.seal_fragment == 0);
    assert_int_equal(set_count(&u.seal_set), 3);
    committed(0);
    assert_false(round_roster_final(&core, &waits)); /* fragment 0: no site has reported it */
    assert_int_equal(waits, 0);
    reported(0, 0);
    assert_false(round_roster_final(&core, &waits)); /* one of three is no majority */
    reported(2, 0);
    assert_false(round_roster_final(&core, &waits));
    assert_int_equal(waits, 1); /* begins with round 2, and is in round 0 */
    for (unsigned round = 0; round < 3; round++) {
        assert_false(give(0, 1).seal);
        assert_int_equal(give(1, 1).seal, round < 2);
        if (round == 2)
            assert_true(give(2, 1).seal);
        committed(1);
    }
    reported(0, 1);
    reported(1, 1);
    assert_true(round_roster_final(&core, &waits));
    /* A site leaves: the round in flight still waits for it, the one after does not. */
    round_roster(&core, 0, false, (uint64_t[ROUND_FRAGMENTS_MAX]){3, 4});
    assert_int_equal(core.sites, 3);
    assert_false(give(1, 0).seal);
    assert_false(give(2, 0).seal);
    assert_true(give(0, 0).seal);
    committed(0);
    assert_int_equal(core.f[0].n, 2);
    assert_int_equal(give(0, 0).outcome, ROUND_EARLY);
    assert_false(give(1, 0).seal);
    u = give(2, 0);
    assert_true(u.seal);
    assert_int_equal(set_count(&u.seal_set), 2);
    assert_false(set_has(&u.seal_set, 0));
}

/* In quorum mode the majority is that of the round's roster. */
static void a_majority_of_the_rounds_roster(void **state)
{
    (void)state;
    struct round_update u;
    struct round_event tick = {.kind = ROUND_TICK, .now_ms = 5000};
    room = 6;
    core_init(3, 1, false, 1000, 1);
    room = 0;
    for (unsigned i = 0; i < 3; i++)
        bind(i);
    for (unsigned i = 3; i < 6; i++) {
        round_roster(&core, i, true, (uint64_t[ROUND_FRAGMENTS_MAX]){1});
        bind(i);
    }
    assert_true(give(0, 0).accept);
    assert_true(give(1, 0).accept);
    round_step(&core, &tick, &u); /* two of three, although there are six by now */
    assert_true(u.seal);
    committed(0);
    assert_int_equal(core.f[0].quorum, 4);
    for (unsigned i = 0; i < 3; i++)
        assert_true(give(i, 0).accept);
    tick.now_ms = 20000;
    round_step(&core, &tick, &u);
    assert_false(u.seal); /* half of six is no majority */
    assert_true(give(5, 0).accept);
    tick.now_ms = 40000;
    round_step(&core, &tick, &u);
    assert_true(core.f[0].sealed);
}

/* --mutant NAME: the tests without stories, over the outer loop with that bug in it
 * (tests/sim/mutants.sh). */
int main(int argc, char **argv)
{
    enum { N = sizeof stories / sizeof *stories };
    if (argc > 1 && strcmp(argv[1], "--write") == 0) {
        for (size_t i = 0; i < N; i++)
            story_write(stories[i]);
        return 0;
    }
    struct CMUnitTest tests[N + 7];
    for (size_t i = 0; i < N; i++)
        tests[i] =
            (struct CMUnitTest){stories[i], story_check, NULL, NULL, (void *)(uintptr_t)stories[i]};
    tests[N] = (struct CMUnitTest)cmocka_unit_test(random_orders_count_once);
    tests[N + 1] = (struct CMUnitTest)cmocka_unit_test(the_set_is_independent_of_order);
    tests[N + 2] = (struct CMUnitTest)cmocka_unit_test(a_thousand_sites);
    tests[N + 3] = (struct CMUnitTest)cmocka_unit_test(a_roster_that_changes);
    tests[N + 4] = (struct CMUnitTest)cmocka_unit_test(a_majority_of_the_rounds_roster);
    tests[N + 5] = (struct CMUnitTest)cmocka_unit_test(final_counts);
    tests[N + 6] = (struct CMUnitTest)cmocka_unit_test(each_process_binds_its_fragments);
    if (argc > 2 && strcmp(argv[1], "--mutant") == 0) {
        if (!mutant_set(argv[2]))
            return 2;
        cmocka_set_test_filter("*_*"); /* a story is one word, and needs its file */
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
