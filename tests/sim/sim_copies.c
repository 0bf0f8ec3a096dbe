/* SPDX-License-Identifier: Apache-2.0 */
/* Copied directories: a backup of the aggregator's started instead of the original or next to it,
 * and the same of a site's. docs/protocol.md 3.4 and 7: processes of such a run may end and wait
 * for a person; a site that has to give up a round does not. Until then, and in every process:
 *   - no site adopts a state that is not of a committed history, manifest by manifest
 *   - no history counts a site's work of a round twice, nor bytes that no process of the site made
 *   - histories that differ in a round do not both continue: the next round of both would need two
 *     majorities, and no site stands on both; one of them at most is final, and no final round is
 *     given up
 *   - what a site has trained for a round is in the books of the history that it ends with
 *   - in strict mode there is one history: the same contributions make the same manifests
 *   - every history replays, and the books of the sites that follow it close
 */
#include <inttypes.h>
#include <string.h>
#include "outer/protocol/majority.h"
#include "tests/sim/sim_own.h"

enum { STARTED_MS = 60000, BOTH_MS = 60000, TURN_MS = 8000 };

static uint64_t later(struct sim *s, uint64_t within_ms)
{
    uint64_t at = s->clock.now_ms + sim_below(&s->clock, within_ms);
    sim_sleep(&s->clock, at, NULL);
    return at;
}

/* ---- the aggregator's ---- */

static void second_copy(struct sim *s)
{
    struct sim_aggregator *from = &s->aggregator[0], *to = &s->aggregator[1];
    sim_aggregator_make(s, 1);
    disk_sim_copy(&to->env.disk, &from->env.disk);
    to->env.rot.seals_rotten = from->env.rot.seals_rotten;
    memcpy(to->commits, from->commits, sizeof to->commits);
    memcpy(to->committed, from->committed, sizeof to->committed);
    for (unsigned i = 0; i < s->nodes; i++) /* terms before the copy are of both */
        s->node[i].hello_term[1] = s->node[i].hello_term[0];
}

static void all_to(struct sim *s, struct sim_aggregator *a)
{
    for (unsigned i = 0; i < s->nodes; i++)
        s->node[i].route = &a->server;
}

static void aggregator_end(struct sim_aggregator *a)
{
    a->over = true;
    env_faulty_crash(&a->env);
    sim_kick(&a->sim->clock, &a->env);
}

/* A round that has its majority is copied, so that both processes may commit it: the copy without
 * the site that stays. */
void sim_copies_receipt(struct sim_aggregator *at, struct sim_node *n, unsigned f, uint64_t round)
{
    struct sim *s = at->sim;
    if (at->index || s->stays || s->finished || round < at->committed[f])
        return;
    if (s->receipts[f].round != round)
        s->receipts[f].sites = (struct set){0};
    s->receipts[f].round = round;
    set_put(&s->receipts[f].sites, n->index, true);
    if (!majority_has(set_count(&s->receipts[f].sites), s->o.sites) ||
        !sim_chance(&s->clock, 0.3) ||
        !sim_strikes(&s->clock, 1, "its directory is copied", "aggregator"))
        return;
    s->stays = n;
    s->r->copies++;
    second_copy(s);
    all_to(s, &s->aggregator[1]);
    n->route = &s->aggregator[0].server;
    sim_start(&s->clock, sim_aggregator_task, &s->aggregator[1]);
}

static void split_task(void *self)
{
    enum { LOOK_MS = 1000, STAYS_MS = 25000 };
    struct sim *s = self;
    while (!s->stays && !s->finished)
        sim_sleep(&s->clock, s->clock.now_ms + LOOK_MS, NULL);
    if (s->finished)
        return;
    sim_sleep(&s->clock, s->clock.now_ms + STAYS_MS, NULL);
    later(s, STARTED_MS);
    aggregator_end(&s->aggregator[0]);
    all_to(s, &s->aggregator[1]);
}

static void second_task(void *self)
{
    struct sim *s = self;
    later(s, s->calm_ms);
    if (s->finished || !sim_strikes(&s->clock, 1, "its directory is copied", "aggregator"))
        return;
    second_copy(s);
    later(s, STARTED_MS);
    if (s->finished)
        return;
    bool both = s->o.second == SIM_COPY_BOTH;
    s->r->copies++;
    if (!both) {
        aggregator_end(&s->aggregator[0]);
        all_to(s, &s->aggregator[1]);
    }
    sim_start(&s->clock, sim_aggregator_task, &s->aggregator[1]);
    if (!both)
        return;
    for (uint64_t end = s->clock.now_ms + BOTH_MS; s->clock.now_ms < end && !s->finished;) {
        later(s, TURN_MS);
        s->node[sim_below(&s->clock, s->nodes)].route =
            &s->aggregator[sim_below(&s->clock, SIM_AGGREGATORS_MAX)].server;
    }
    unsigned stays = (unsigned)sim_below(&s->clock, SIM_AGGREGATORS_MAX);
    aggregator_end(&s->aggregator[!stays]);
    all_to(s, &s->aggregator[stays]);
}

/* ---- a site's ---- */

static void books_copy(struct sim *s, struct sim_node *to, const struct sim_node *from)
{
    size_t bytes = s->table.elements * sizeof(sim_fixed);
    memcpy(to->trained, from->trained, bytes);
    to->made = from->made;
    to->offers = from->offers;
    memcpy(to->payload, from->payload, sizeof to->payload);
    memcpy(to->payload_parent, from->payload_parent, sizeof to->payload_parent);
    memcpy(to->hello_term, from->hello_term, sizeof to->hello_term);
    to->void_books = from->void_books;
    to->step_ms = from->step_ms;
    to->checkpoint_every = from->checkpoint_every;
    to->net = from->net;
    to->lives = 1000; /* where trainers do not repeat, this one does not either */
}

static void site_copied_task(void *self)
{
    struct sim *s = self;
    later(s, s->calm_ms);
    struct sim_node *from = &s->node[sim_below(&s->clock, s->o.sites)];
    if (s->finished || !sim_strikes(&s->clock, 1, "its directory is copied", from->name))
        return;
    if (sim_node_make(s, s->o.sites, from->index) != ERR_OK) {
        sim_violate(s, "no memory for a copied directory");
        return;
    }
    struct sim_node *to = &s->node[s->o.sites];
    s->nodes = s->o.sites + 1;
    to->done = true; /* until it is started */
    disk_sim_copy(&to->env.disk, &from->env.disk);
    books_copy(s, to, from);
    later(s, STARTED_MS);
    if (s->finished)
        return;
    s->r->copies++;
    to->done = false;
    if (s->o.copied == SIM_COPY_RESTORED)
        sim_node_end(from);
    sim_start(&s->clock, sim_site_task, to);
    if (s->o.copied == SIM_COPY_RESTORED)
        return;
    later(s, BOTH_MS);
    if (!s->finished)
        sim_node_end(sim_chance(&s->clock, 0.5) ? from : to);
}

void sim_copies_start(struct sim *s)
{
    if (s->o.second != SIM_COPY_NONE)
        sim_start(&s->clock, s->o.split ? split_task : second_task, s);
    if (s->o.copied != SIM_COPY_NONE)
        sim_start(&s->clock, site_copied_task, s);
}

/* ---- what must hold at the end ---- */

static bool same(const struct sim_commit *a, const struct sim_commit *b)
{
    if (a == b)
        return true;
    struct digest da = manifest_digest(&a->manifest), db = manifest_digest(&b->manifest);
    return digest_equal(&da, &db);
}

/* Of a state whose round is final, in the history that it is of, nothing is taken back. */
void sim_copies_given_up(struct sim_node *n, unsigned f)
{
    struct sim *s = n->sim;
    const struct outer_state_fragment *state = &n->replica.state[f];
    n->given_up = true;
    for (unsigned i = 0; i < SIM_AGGREGATORS_MAX; i++) {
        const struct sim_aggregator *a = &s->aggregator[i];
        if (!a->there || a->committed[f] < state->round || a->final[f] < state->round)
            continue;
        struct digest d = manifest_digest(&a->commits[f][state->round - 1]->manifest);
        if (digest_equal(&d, &state->manifest))
            sim_violate(s, "site %s gives up fragment %u round %" PRIu64 ", which is final",
                        n->name, f, state->round - 1);
    }
}

/* Histories that differ end within the round in which they differ, and one of them is not final. */
static void check_histories(struct sim *s, unsigned f)
{
    struct sim_aggregator *a = &s->aggregator[0], *b = &s->aggregator[1];
    uint64_t both = a->committed[f] < b->committed[f] ? a->committed[f] : b->committed[f];
    for (uint64_t t = 0; t < both && !s->clock.halted; t++) {
        if (same(a->commits[f][t], b->commits[f][t]))
            continue;
        if (s->o.strict)
            sim_violate(s, "strict mode: fragment %u round %" PRIu64 " was committed in two ways",
                        f, t);
        if (a->final[f] > t && b->final[f] > t)
            sim_violate(s, "fragment %u round %" PRIu64 " is final in two ways", f, t);
        if (t + 1 < both)
            sim_violate(s,
                        "fragment %u: two histories since round %" PRIu64
                        ", and both continued to %" PRIu64,
                        f, t, both);
        return;
    }
}

/* The history whose manifest this directory stands on. */
static struct sim_aggregator *history_of(struct sim *s, unsigned f, const struct outer_state *m)
{
    const struct outer_state_fragment *state = &m->state[f];
    for (unsigned i = 0; i < SIM_AGGREGATORS_MAX; i++) {
        struct sim_aggregator *a = &s->aggregator[i];
        if (!a->there || a->committed[f] < state->round)
            continue;
        struct sim_commit *c = state->round ? a->commits[f][state->round - 1] : NULL;
        struct digest d = c ? manifest_digest(&c->manifest) : state->manifest;
        if (digest_equal(&d, &state->manifest) &&
            (!c || digest_equal(&c->manifest.state_after, &state->digest)))
            return a;
    }
    return NULL;
}

static void check_directory(struct sim_node *n, struct arena *a)
{
    struct sim *s = n->sim;
    struct outer_state m;
    sim_fixed *included = arena_array(a, s->table.elements, sizeof *included);
    bool own = !n->void_books;
    ASSERT(included);
    if (!sim_disk_load(s, &n->env, true, &m, a))
        return;
    for (unsigned f = 0; f < s->o.fragments && !s->clock.halted; f++) {
        struct sim_aggregator *history = history_of(s, f, &m);
        if (!history) {
            sim_violate(s, "site %s%s fragment %u stands at %" PRIu64 " of no history", n->name,
                        n->copy ? " (copy)" : "", f, m.state[f].round);
            break;
        }
        own = own && sim_made_included(n, history, f, m.state[f].round, included);
        sim_made_count(n, history, f, m.state[f].round);
    }
    if (own && !s->clock.halted)
        sim_check_books(n, &m, included);
    if (!n->over && !n->gave_up) { /* it has taken part to the end: for I1 */
        s->r->state = outer_state_digest(&m, false);
        s->r->residual[n->index] = outer_state_digest(&m, true);
    }
    outer_state_close(&m);
}

/* A directory whose first process was ended while it began is no state yet. */
static bool began(const struct env_faulty *w)
{
    size_t size;
    return env_faulty_look(w, "begun", &size) != NULL;
}

/* A process that is ended at its commit point leaves a state that no site has seen: it would be
 * told at the next start. */
static void check_aggregator(struct sim_aggregator *at, struct arena *a)
{
    struct sim *s = at->sim;
    struct outer_state m;
    bool seen = true;
    if (!sim_disk_load(s, &at->env, false, &m, a))
        return;
    for (unsigned f = 0; f < s->o.fragments; f++) {
        if (m.state[f].round < at->committed[f])
            sim_violate(s, "aggregator %u has lost the commit of fragment %u round %" PRIu64,
                        at->index, f, at->committed[f] - 1);
        seen = seen && m.state[f].round == at->committed[f];
    }
    struct digest d = outer_state_digest(&m, false);
    if (seen)
        sim_check_replay(at, &d);
    outer_state_close(&m);
}

void sim_copies_check_end(struct sim *s)
{
    struct arena a = arena_make(0);
    for (unsigned i = 0; i < s->nodes && !s->clock.halted; i++)
        if (!s->node[i].liar && began(&s->node[i].env))
            check_directory(&s->node[i], &a);
    for (unsigned i = 0; i < SIM_AGGREGATORS_MAX && !s->clock.halted; i++)
        if (s->aggregator[i].there && began(&s->aggregator[i].env))
            check_aggregator(&s->aggregator[i], &a);
    for (unsigned f = 0; s->aggregator[1].there && f < s->o.fragments; f++)
        check_histories(s, f);
    arena_free(&a);
}
