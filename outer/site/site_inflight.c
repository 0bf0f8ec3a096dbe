/* Rounds beside training: a lane is a thread that does for one fragment what site_round does. Its
 * mailbox is guarded by site->post; everything else it touches, by site->mutex (site_own.h).
 */
#include <stdio.h>
#include <string.h>
#include "outer/site/site_own.h"
#include "outer/protocol/mutant.h"

enum { LOOK_MS = 500 }; /* how often a waiting caller passes on what the lanes say */

static void in(struct site *s)
{
    s->env->ops->lock(s->env, s->post);
}

static void out(struct site *s)
{
    s->env->ops->unlock(s->env, s->post);
}

/* ---- on the lane ---- */

/* Inside the gate. What the caller is told beside theta. */
static void describe(struct site_lane *l, bool replayed, uint64_t begun_ms)
{
    struct site *s = l->site;
    const struct site_sending *w = &l->sending;
    struct manifest m;
    l->landing = (struct site_landed){.times = l->times,
                                      .replayed = replayed,
                                      .reached = s->replica->state[w->fragment].round,
                                      .flight_ms = (double)(s->env->ops->now_ms(s->env) - begun_ms),
                                      .sat_out = l->sat_out,
                                      .metrics = metrics_read(&s->metrics[w->fragment], w->round)};
    if (outer_state_manifest(s->replica, w->fragment, w->round, &m) == ERR_OK) {
        l->landing.included = manifest_included(&m);
        l->landing.up_bytes = site_sent_bytes(s, &m);
        l->landing.down_bytes = m.aggregate_bytes;
    }
}

static void land(struct site_lane *l, enum err e)
{
    struct site *s = l->site;
    in(s);
    l->e = e;
    snprintf(l->why, sizeof l->why, "%s", e == ERR_OK ? "" : err_message());
    l->stored = l->stored || e == ERR_OK;
    l->landed = true;
    s->env->ops->signal(s->env, s->post);
    out(s);
}

/* The caller has theta and trains on: what goes wrong now it hears at its next step. */
static void failed_late(struct site *s, enum err e)
{
    in(s);
    if (s->failed == ERR_OK && e != ERR_STOPPED) {
        s->failed = e;
        snprintf(s->why, sizeof s->why, "%s", err_message());
    }
    out(s);
}

static void fly(struct site_lane *l)
{
    struct site *s = l->site;
    const struct site_sending *w = &l->sending;
    s->env->ops->lock(s->env, s->mutex);
    uint64_t begun_ms = s->env->ops->now_ms(s->env);
    bool replayed = s->replica->state[w->fragment].round > w->round;
    bool last = w->round + 1 == schedule_rounds(&s->replica->schedule, w->fragment);
    enum err e = site_round_on(l, w, l->local);
    if (e == ERR_OK)
        describe(l, replayed, begun_ms);
    /* The aggregator's run ends when all have told of the last round, and this process ends when it
     * has landed. A wish to stop is the trainer's to obey. */
    if (e == ERR_OK && last) {
        e = site_report_on(l, w);
        e = e == ERR_STOPPED ? ERR_OK : e;
    }
    land(l, e);
    if (e == ERR_OK && !last && !replayed) /* what is on record was told before the restart */
        e = site_report_on(l, w);
    s->env->ops->unlock(s->env, s->mutex);
    if (e != ERR_OK)
        failed_late(s, e);
}

static void lane_run(void *self)
{
    struct site_lane *l = self;
    struct site *s = l->site;
    in(s);
    while (!s->closing) {
        if (!l->flying) {
            s->env->ops->wait(s->env, s->post, UINT32_MAX);
            continue;
        }
        out(s);
        fly(l);
        in(s);
        l->flying = false;
        s->env->ops->signal(s->env, s->post);
    }
    out(s);
}

void site_lane_stored(struct site_lane *l)
{
    struct site *s = l->site;
    if (!l->thread)
        return;
    in(s);
    l->stored = true;
    s->env->ops->signal(s->env, s->post);
    out(s);
}

void site_lane_away(struct site_lane *l, bool away)
{
    struct site *s = l->site;
    if (!l->thread)
        return;
    in(s);
    l->away = away;
    out(s);
}

void site_lane_notice(struct site_lane *l, const char *text)
{
    struct site *s = l->site;
    in(s);
    snprintf(s->notice, sizeof s->notice, "%s", text);
    out(s);
}

/* ---- the caller ---- */

/* Inside post; the callback is called outside. */
static void pass_on(struct site *s)
{
    char text[SITE_TEXT_MAX];
    memcpy(text, s->notice, sizeof text);
    s->notice[0] = 0;
    if (!*text || !s->o.notice)
        return;
    out(s);
    s->o.notice(s->o.notice_self, text);
    in(s);
}

static void look(struct site *s)
{
    s->env->ops->wait(s->env, s->post, LOOK_MS);
    pass_on(s);
}

/* Inside post: the lane on which the fragment's round flies or has landed. */
static struct site_lane *lane_of(struct site *s, unsigned fragment)
{
    for (unsigned i = 0; i < s->lanes; i++)
        if (s->lane[i].lent && s->lane[i].sending.fragment == fragment)
            return &s->lane[i];
    return NULL;
}

static struct site_lane *lane_free(struct site *s)
{
    for (unsigned i = 0; i < s->lanes; i++)
        if (!s->lane[i].lent && !s->lane[i].flying)
            return &s->lane[i];
    return NULL;
}

static enum err failed(struct site *s)
{
    if (s->failed != ERR_OK)
        return err_set(s->failed, "%s", s->why);
    for (unsigned i = 0; i < s->lanes; i++) {
        const struct site_lane *l = &s->lane[i];
        if (l->lent && l->landed && l->e != ERR_OK && l->e != ERR_STOPPED)
            return err_set(l->e, "%s", l->why);
    }
    return ERR_OK;
}

enum err site_failed(struct site *s)
{
    in(s);
    pass_on(s);
    enum err e = failed(s);
    out(s);
    return e;
}

enum err site_lend(struct site *s, unsigned fragment, float **local)
{
    struct site_lane *l;
    in(s);
    ASSERT(!lane_of(s, fragment)); /* at most one round of a fragment is in flight */
    while (!(l = lane_free(s)))
        look(s); /* there is one lane for each round in flight: this one only has to report yet */
    l->lent = true;
    l->landed = l->stored = l->away = false;
    l->sending = (struct site_sending){.fragment = fragment};
    *local = l->local;
    out(s);
    return ERR_OK;
}

void site_send(struct site *s, const struct site_sending *w)
{
    in(s);
    struct site_lane *l = lane_of(s, w->fragment);
    ASSERT(l && !l->flying && !l->landed);
    l->sending = *w;
    l->flying = true;
    s->env->ops->signal(s->env, s->post);
    out(s);
}

static bool all_stored(struct site *s)
{
    for (unsigned i = 0; i < s->lanes; i++)
        if (s->lane[i].flying && !s->lane[i].stored && !s->lane[i].landed)
            return false;
    return true;
}

enum err site_stored(struct site *s)
{
    if (!s->lanes)
        return ERR_OK;
    in(s);
    while (!MUTANT(SAVED_UNSTORED) && !all_stored(s))
        look(s);
    enum err e = failed(s);
    out(s);
    return e;
}

enum err site_eager(struct site *s, unsigned fragment, const float **start)
{
    in(s);
    const struct site_lane *l = lane_of(s, fragment);
    ASSERT(l && l->ahead);
    while (!l->stored && !l->landed)
        look(s);
    enum err e = l->stored ? ERR_OK : err_set(l->e, "%s", l->why);
    *start = l->ahead;
    out(s);
    return e;
}

bool site_is_away(struct site *s, unsigned fragment)
{
    in(s);
    const struct site_lane *l = lane_of(s, fragment);
    bool away = l && !l->landed && l->away;
    out(s);
    return away;
}

/* Inside post. */
static enum err await(struct site *s, const struct site_lane *l)
{
    ASSERT(l);
    while (!l->landed)
        look(s);
    return l->e == ERR_OK ? ERR_OK : err_set(l->e, "%s", l->why);
}

enum err site_await(struct site *s, unsigned fragment)
{
    in(s);
    enum err e = await(s, lane_of(s, fragment));
    out(s);
    return e;
}

enum err site_collect(struct site *s, unsigned fragment, const float **theta,
                      struct site_landed *landed)
{
    in(s);
    struct site_lane *l = lane_of(s, fragment);
    enum err e = await(s, l);
    l->lent = false;
    *theta = l->local;
    *landed = l->landing;
    out(s);
    return e;
}

/* ---- open and close ---- */

/* A round that is applied late flies longer, while others leave. */
unsigned site_lanes_count(const struct schedule *s, int64_t max_local_steps_offline)
{
    struct schedule late = *s;
    late.overlap += s->overlap ? max_local_steps_offline : 0;
    return schedule_lanes(&late);
}

static enum err local_alloc(struct site_lane *l, size_t elements, struct arena *perm)
{
    struct dev *d = l->site->replica->dev;
    if (!d->host_memory)
        return dev_alloc(d, (void **)&l->local, elements * sizeof *l->local);
    TRY_ALLOC(l->local = arena_array(perm, elements, sizeof *l->local));
    return ERR_OK;
}

enum err site_lanes_open(struct site *s, struct arena *perm)
{
    const struct outer_state_options *o = &s->replica->o;
    unsigned lanes = site_lanes_count(&o->schedule, s->o.max_local_steps_offline);
    size_t elements = 0;
    if (!lanes)
        return ERR_OK;
    for (unsigned f = 0; f < o->fragments->count; f++)
        if (o->fragments->f[f].elements > elements)
            elements = o->fragments->f[f].elements;
    TRY(s->env->ops->mutex_open(s->env, &s->post));
    TRY_ALLOC(s->lane = arena_array(perm, lanes, sizeof *s->lane));
    for (; s->lanes < lanes; s->lanes++) {
        struct site_lane *l = &s->lane[s->lanes];
        TRY(site_lane_make(l, s, perm));
        TRY(local_alloc(l, elements, perm));
        if (o->schedule.eager)
            TRY_ALLOC(l->ahead = arena_array(perm, elements, sizeof *l->ahead));
        TRY(s->env->ops->thread_start(s->env, &l->thread, lane_run, l));
    }
    return ERR_OK;
}

/* A lane that has landed may still be telling the aggregator so, and of a last round nobody else
 * does. */
void site_lanes_settle(struct site *s)
{
    if (!s->post || s->closing)
        return;
    in(s);
    for (unsigned i = 0; i < s->lanes; i++)
        while (s->lane[i].flying && s->lane[i].landed)
            look(s);
    out(s);
}

void site_lanes_free(struct site *s)
{
    struct dev *d = s->replica->dev;
    unsigned lanes = site_lanes_count(&s->replica->schedule, s->o.max_local_steps_offline);
    for (unsigned i = 0; i < lanes && s->lane && !d->host_memory; i++) {
        dev_free(d, s->lane[i].local);
        s->lane[i].local = NULL;
    }
}

void site_lanes_end(struct site *s)
{
    if (!s->post || s->closing)
        return;
    in(s);
    s->closing = true;
    s->env->ops->signal(s->env, s->post);
    out(s);
    for (unsigned i = 0; i < s->lanes; i++)
        s->env->ops->thread_join(s->env, s->lane[i].thread);
}
