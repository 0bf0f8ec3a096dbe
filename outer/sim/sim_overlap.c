/* The toy trainer's rounds beside training: what site_train_overlap.c does, with one rank and
 * arrays instead of a model. The site's lanes and the schedule are the real ones.
 */
#include <string.h>
#include "outer/sim/sim_own.h"

static size_t bytes_of(const struct sim *s, unsigned f)
{
    return s->fragments.f[f].elements * sizeof(float);
}

static bool lands(const struct sim_node *n, unsigned f)
{
    return n->flight[f] && schedule_apply(&n->sim->schedule, f, n->flight[f] - 1) <= n->step;
}

/* n->part: theta. */
static void mix(struct sim_node *n, unsigned f, float alpha, const float *local)
{
    struct sim *s = n->sim;
    float beta = 1 - alpha;
    for (size_t i = 0; alpha > 0 && i < s->fragments.f[f].elements; i++)
        n->part[i] = alpha * local[i] + beta * n->part[i];
    fragment_scatter(s->cpu, n->slab, n->part, &s->fragments.f[f]);
    memcpy(n->began + s->first[f], n->part, bytes_of(s, f));
}

/* local: what the fragment was before this step's applies; NULL: what it is now. */
static enum err apply(struct sim_node *n, unsigned f, float alpha, const float *local)
{
    struct sim *s = n->sim;
    const float *theta;
    struct site_landed landed;
    TRY(site_collect(n->site, f, &theta, &landed));
    if (!local) {
        fragment_gather(s->cpu, n->gathered, n->slab, &s->fragments.f[f]);
        local = n->gathered;
    }
    memcpy(n->part, theta, bytes_of(s, f));
    mix(n, f, landed.sat_out ? 0 : alpha, local);
    n->flight[f] = 0;
    n->have[f] = landed.reached;
    return ERR_OK;
}

/* Eager updates: where the site goes on from while the round is under way. */
static enum err go_ahead(struct sim_node *n, unsigned f)
{
    const float *start;
    TRY(site_eager(n->site, f, &start));
    memcpy(n->part, start, bytes_of(n->sim, f));
    mix(n, f, 0, NULL);
    return ERR_OK;
}

static enum err send(struct sim_node *n, unsigned f, uint64_t round, bool ahead, bool again)
{
    struct sim *s = n->sim;
    float *local;
    TRY(site_lend(n->site, f, &local));
    if (!again) {
        memcpy(local, n->gathered, bytes_of(s, f));
        memcpy(n->sent + s->first[f], local, bytes_of(s, f));
    }
    site_send(n->site, &(struct site_sending){.fragment = f,
                                              .round = round,
                                              .base = schedule_base(&s->schedule, f, round),
                                              .weight = n->weight,
                                              .data_cursor = (uint64_t)n->step * 100,
                                              .ahead = ahead,
                                              .again = again,
                                              .step = n->step,
                                              .loss = 1,
                                              .tokens_per_second = 1,
                                              .tokens = (uint64_t)n->step * 100});
    n->flight[f] = round + 1;
    return ERR_OK;
}

static enum err leave(struct sim_node *n, unsigned f, uint64_t round)
{
    struct sim *s = n->sim;
    bool first = schedule_delayed(&s->schedule, f), eager = schedule_eager(&s->schedule, f, round);
    bool ahead = s->schedule.eager && first && lands(n, f);
    memcpy(n->base + s->first[f], n->began + s->first[f], bytes_of(s, f));
    fragment_gather(s->cpu, n->gathered, n->slab, &s->fragments.f[f]);
    sim_damage(n, n->gathered);
    if (first && lands(n, f)) {
        TRY(apply(n, f, s->o.mix, n->gathered));
    } else if (first && round == 0 && !eager) {
        TRY(site_theta(n->site, f, 0, n->part));
        mix(n, f, s->o.mix, n->gathered);
    }
    TRY(send(n, f, round, ahead, false));
    if (eager)
        return go_ahead(n, f);
    return schedule_apply(&s->schedule, f, round) == n->step ? apply(n, f, 0, NULL) : ERR_OK;
}

enum err sim_overlap_due(struct sim_node *n)
{
    struct sim *s = n->sim;
    uint64_t round;
    TRY(site_failed(n->site));
    for (unsigned f = 0; f < s->o.fragments; f++) {
        bool first =
            schedule_delayed(&s->schedule, f) && schedule_due(&s->schedule, n->step, f, &round);
        if (lands(n, f) && !first)
            TRY(apply(n, f, s->o.mix, NULL));
    }
    for (unsigned f = 0; f < s->o.fragments; f++)
        if (schedule_due(&s->schedule, n->step, f, &round))
            TRY(leave(n, f, round));
    return ERR_OK;
}

enum err sim_overlap_resume(struct sim_node *n)
{
    struct sim *s = n->sim;
    for (unsigned f = 0; f < s->o.fragments; f++) {
        uint64_t round;
        n->flight[f] = 0;
        if (schedule_flying(&s->schedule, f, n->step, &round))
            TRY(send(n, f, round, false, true));
    }
    return ERR_OK;
}

enum err sim_overlap_clear(struct sim_node *n)
{
    const float *theta;
    struct site_landed landed;
    for (unsigned f = 0; f < n->sim->o.fragments; f++) {
        if (!n->flight[f])
            continue;
        TRY(site_collect(n->site, f, &theta, &landed));
        n->have[f] = landed.reached;
        n->flight[f] = 0;
    }
    return ERR_OK;
}
