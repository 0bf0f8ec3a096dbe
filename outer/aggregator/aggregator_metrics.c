/* SPDX-License-Identifier: Apache-2.0 */
/* Counters by site, and who may read them (docs/protocol.md 3.13). They begin with the process. No
 * loss is among them: it is computed from a site's data. */
#include <inttypes.h>
#include <string.h>
#include "outer/aggregator/aggregator_state.h"
#include "outer/config/identity.h"
#include "outer/protocol/roles.h"

struct site_metrics {                  /* of a site, since this process began */
    uint64_t rounds, included;         /* committed with it in the roster; its work was in */
    uint64_t payload_up, payload_down; /* bytes that arrived; bytes that it asked for */
    uint32_t refused[ROUND_OUTCOMES];  /* its calls, by their answers */
};
struct aggregator_metrics {
    struct site_metrics site[ROUND_SITES_MAX];
};

enum err aggregator_metrics_open(struct aggregator_metrics **out, struct arena *perm)
{
    TRY_ALLOC(*out = arena_alloc(perm, sizeof **out));
    return ERR_OK;
}

void aggregator_metrics_up(struct aggregator *a, unsigned site, uint64_t bytes)
{
    a->part.metrics->site[site].payload_up += bytes;
}

void aggregator_metrics_down(struct aggregator *a, unsigned site, uint64_t bytes)
{
    a->part.metrics->site[site].payload_down += bytes;
}

/* The site whose certificate this is; -1: a certificate of no site of the run. */
static int metrics_site_of(const struct aggregator *a, const char *peer)
{
    return roles_of(peer, a->o->run) == ROLES_SITE ? aggregator_site(a, strrchr(peer, '/') + 1)
                                                   : -1;
}

void aggregator_metrics_refused(struct aggregator *a, int site, const char *peer,
                                enum round_outcome outcome)
{
    int of = site < 0 ? metrics_site_of(a, peer) : site;
    ASSERT((unsigned)outcome < ROUND_OUTCOMES);
    if (of >= 0 && outcome != ROUND_REBIND) /* says hello next: a restart of this process */
        a->part.metrics->site[of].refused[outcome]++;
}

void aggregator_metrics_commit(struct aggregator *a, const struct manifest *m)
{
    for (unsigned i = 0; !manifest_aborted(m) && i < m->site_count; i++) {
        struct site_metrics *of = &a->part.metrics->site[m->sites[i].site];
        of->rounds++;
        of->included += m->sites[i].included;
    }
}

/* clock: with the wall clock, which atoll doctor compares with the site's. */
static void metrics_line(const struct aggregator *a, unsigned site, bool clock,
                         struct aggregator_text *t)
{
    const struct aggregator_site *s = &a->site[site];
    const struct site_metrics *of = &a->part.metrics->site[site];
    aggregator_text_add(t, "site=%s state=%s", a->members.names[site],
                        aggregator_site_state(a, site));
    if (s->status.heard_ms)
        aggregator_text_add(t, " heard_s=%" PRIu64,
                            (aggregator_now(a) - s->status.heard_ms) / 1000);
    aggregator_text_add(t, " rounds=%" PRIu64 "/%" PRIu64, of->included, of->rounds);
    if (of->rounds)
        aggregator_text_add(t, " included=%.3f", (double)of->included / (double)of->rounds);
    aggregator_text_add(t, " payload_up=%" PRIu64 " payload_down=%" PRIu64, of->payload_up,
                        of->payload_down);
    if (s->status.tokens)
        aggregator_text_add(t, " step=%" PRId64 " tokens=%" PRIu64 " tokens_per_s=%.0f",
                            s->status.step, s->status.tokens, s->status.tokens_per_second);
    for (unsigned i = 0; i < ROUND_OUTCOMES; i++)
        if (of->refused[i])
            aggregator_text_add(t, " refused.%s=%" PRIu32,
                                round_outcome_name((enum round_outcome)i), of->refused[i]);
    if (clock)
        aggregator_text_add(t, " clock_ms=%" PRIu64, a->env->ops->unix_ms(a->env));
    aggregator_text_add(t, "\n");
}

/* Lines that fit into the answer, from site `at` on. Returns the next site; 0: none is left. */
static unsigned metrics_lines(const struct aggregator *a, unsigned at, struct aggregator_text *t)
{
    for (; at < a->members.count; at++) {
        char line[WIRE_TEXT_MAX];
        struct aggregator_text one = {line, 0, sizeof line};
        metrics_line(a, at, false, &one);
        if (t->used && t->used + one.used >= t->size)
            return at;
        aggregator_text_add(t, "%s", line);
    }
    return 0;
}

void aggregator_metrics_operate(struct aggregator *a, const char *peer,
                                const struct wire_operate *m, struct wire_answer *answer)
{
    struct aggregator_text t = {answer->text, 0, sizeof answer->text};
    int self = metrics_site_of(a, peer);
    bool as_site = roles_of(peer, a->o->run) == ROLES_SITE;
    int site = as_site && !*m->site ? self : aggregator_site(a, m->site);
    if (as_site && (self < 0 || site != self))
        aggregator_say(answer, ROUND_DENIED,
                       "%s may read its own metrics alone; those of all sites need an operator's "
                       "or an observer's certificate",
                       peer);
    else if (site < 0 && *m->site)
        aggregator_say(answer, ROUND_INVALID, "%s is not one of outer.sites", m->site);
    else if (m->to >= a->members.count)
        aggregator_say(answer, ROUND_INVALID, "there is no site %" PRIu64 " of %u", m->to,
                       a->members.count);
    else {
        answer->outcome = ROUND_CURRENT;
        if (site >= 0) {
            metrics_line(a, (unsigned)site, as_site, &t);
            return;
        }
        if (!m->to)
            aggregator_text_add(&t, "counted_s=%" PRIu64 " term=%" PRIu64 "\n",
                                (aggregator_now(a) - a->start.opened_ms) / 1000, a->start.term);
        answer->offset = metrics_lines(a, (unsigned)m->to, &t);
    }
}
