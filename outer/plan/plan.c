/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/plan/plan.h"
#include <math.h>
#include <string.h>
#include "outer/plan/plan_tables.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum {
    /* Round trips from the send of a contribution to its commit at the site: one for offer and
       data, one for the fetch. Receipt and poll pass while the aggregator commits. Not counted: a
       fragment's first round sends the data after the answer to the offer. */
    ROUND_TRIPS = 2,
    REPORT_TRIPS = 1 /* blocking rounds: the report, before training continues */
};

/* ---- one round ---- */

struct cost { /* of one round of one fragment */
    double exchange_s, up_s, down_s;
    struct schedule_bytes bytes;
    bool made;
};
/* Costs do not depend on H and tau, so a search computes them once for each division into
 * fragments. */
struct costs {
    const size_t *elements; /* [fragments] */
    struct cost of[ROUND_FRAGMENTS_MAX][CODEC_COUNT];
};

static struct cost cost_with(const struct plan_task *t, struct schedule_bytes b, size_t elements)
{
    double up = (double)b.up, down = (double)b.down;
    const struct exchange_cost *o = &t->outer;
    struct cost r = {.up_s = line_transfer_s(&t->link, up, true),
                     .down_s = line_transfer_s(&t->link, down, false),
                     .bytes = b,
                     .made = true};
    if (t->aggregator_bps > 0) {
        double in = t->sites * line_wire_bytes(up) * 8 / t->aggregator_bps,
               out = t->sites * line_wire_bytes(down) * 8 / t->aggregator_bps;
        r.up_s = in > r.up_s ? in : r.up_s;
        r.down_s = out > r.down_s ? out : r.down_s;
    }
    double own_s = (o->encode_s + o->accept_s + o->apply_s) * (double)elements;
    double commit_s = (o->commit_s + t->sites * o->sum_s) * (double)elements;
    commit_s = commit_s > t->link.rtt_s ? commit_s : t->link.rtt_s;
    r.exchange_s = r.up_s + r.down_s + ROUND_TRIPS * t->link.rtt_s + commit_s + own_s;
    return r;
}

static struct cost round_cost(const struct plan_task *t, const struct schedule *s,
                              enum codec_kind kind, size_t elements)
{
    return cost_with(t, schedule_bytes(s, kind, elements, t->sites), elements);
}

static struct cost *cost_of(struct costs *c, const struct plan_task *t, const struct schedule *s,
                            enum codec_kind kind, unsigned f)
{
    struct cost *cost = &c->of[f][kind];
    if (!cost->made)
        *cost = round_cost(t, s, kind, c->elements[f]);
    return cost;
}

/* Time that training waits in one round. */
static double exposed_s(const struct plan_task *t, const struct schedule *s, double exchange_s)
{
    if (s->overlap == 0)
        return exchange_s + REPORT_TRIPS * t->link.rtt_s;
    double hidden = (double)s->overlap * t->step_s;
    return exchange_s > hidden ? exchange_s - hidden : 0;
}

/* Time of the last round that exposed_s does not count. */
static double last_s(const struct plan_task *t, const struct schedule *s, const struct cost *c)
{
    return c->exchange_s - exposed_s(t, s, c->exchange_s);
}

struct sums { /* over rounds */
    double exposed_s, up_s, down_s;
    uint64_t up_bytes, down_bytes; /* payload of one site */
};

static void add_rounds(struct sums *sum, const struct plan_task *t, const struct schedule *s,
                       const struct cost *c, uint64_t rounds)
{
    sum->exposed_s += (double)rounds * exposed_s(t, s, c->exchange_s);
    sum->up_s += (double)rounds * c->up_s;
    sum->down_s += (double)rounds * c->down_s;
    sum->up_bytes += rounds * c->bytes.up;
    sum->down_bytes += rounds * c->bytes.down;
}

/* Rounds of stages differ in what they send. */
static void add_stages(struct sums *sum, const struct plan_task *t, const struct schedule *s,
                       const size_t *elements)
{
    for (unsigned f = 0; f < s->fragments; f++)
        for (uint64_t r = 0; r < schedule_rounds(s, f); r++) {
            struct cost c =
                cost_with(t, schedule_round_bytes(s, f, r, elements[f], t->sites), elements[f]);
            add_rounds(sum, t, s, &c, 1);
        }
}

/* The first rounds and the last are full-precision rounds: schedule_codec. */
static uint64_t full_precision_rounds(const struct schedule *s, unsigned f)
{
    uint64_t rounds = schedule_rounds(s, f), whole = s->full_precision_rounds + 1;
    return whole < rounds ? whole : rounds;
}

static double busy(const struct sums *s)
{
    return s->up_s > s->down_s ? s->up_s : s->down_s; /* full duplex */
}

static void predict_time(const struct plan_task *t, const struct schedule *s, struct costs *costs,
                         struct plan_result *r)
{
    struct sums regular = {0}, all = {0};
    double steps_s = (double)s->steps * t->step_s;
    r->exchange_s = 0;
    for (unsigned f = 0; f < s->fragments; f++) {
        uint64_t rounds = schedule_rounds(s, f), full = full_precision_rounds(s, f);
        enum codec_kind kind = s->period[f].codec, large = schedule_full_precision(s, f, 0);
        const struct cost *c = cost_of(costs, t, s, kind, f), *l = cost_of(costs, t, s, large, f);
        r->exchange_s = c->exchange_s > r->exchange_s ? c->exchange_s : r->exchange_s;
        add_rounds(&regular, t, s, c, rounds);
        if (!s->stages.count) {
            add_rounds(&all, t, s, c, rounds - full);
            add_rounds(&all, t, s, l, full);
        }
        if (s->overlap) /* nothing hides the exchange after the last step */
            all.exposed_s += last_s(t, s, l);
    }
    if (s->stages.count)
        add_stages(&all, t, s, costs->elements);
    double steady_s = steps_s + regular.exposed_s;
    r->exposed_s = regular.exposed_s / steps_s * (double)s->period[0].p.every * t->step_s;
    r->steady = steps_s / (steady_s > busy(&regular) ? steady_s : busy(&regular));
    r->total_s = steps_s + all.exposed_s > busy(&all) ? steps_s + all.exposed_s : busy(&all);
    r->utilisation = steps_s / r->total_s;
    r->up_bytes = all.up_bytes;
    r->down_bytes = all.down_bytes;
}

static void predict_loss(const struct plan_task *t, const struct schedule *s, struct plan_result *r)
{
    double every_high, codec_high, short_high, rounds = (double)schedule_rounds(s, 0);
    double tokens = t->parameters > 0 ? t->tokens / t->parameters : 0;
    struct plan_value parts[] = {plan_loss_sites(t->parameters, t->sites),
                                 plan_loss_every((double)s->period[0].p.every, &every_high),
                                 plan_loss_overlap((double)s->overlap),
                                 plan_loss_codec(s->period[0].codec, rounds, t->lamb, &codec_high),
                                 plan_loss_short(t->sites, rounds, tokens, &short_high)};
    double high[] = {parts[0].value, every_high, parts[2].value, codec_high, short_high};
    r->loss_low = r->loss_high = 0;
    r->extrapolated = false;
    for (size_t i = 0; i < COUNT(parts); i++) {
        r->loss_low += fmin(parts[i].value, high[i]);
        r->loss_high += fmax(parts[i].value, high[i]);
        r->extrapolated = r->extrapolated || parts[i].extrapolated;
    }
    r->loss_percent = (r->loss_low + r->loss_high) / 2;
}

static void predict(const struct plan_task *t, const struct schedule *s, struct costs *costs,
                    struct plan_result *r)
{
    ASSERT(t->step_s > 0 && t->link.up_bps > 0 && t->link.down_bps > 0 && t->link.streams > 0);
    predict_time(t, s, costs, r);
    predict_loss(t, s, r);
    double left = line_wire_bytes((double)r->up_bytes) + line_wire_bytes((double)r->down_bytes);
    r->cost = t->sites * left / 1e9 * t->price_gb;
    r->equal_s = r->total_s * plan_steps_factor(r->loss_percent);
}

void plan_predict(const struct plan_task *t, const struct schedule *s, const size_t *elements,
                  struct plan_result *r)
{
    struct costs costs = {.elements = elements};
    predict(t, s, &costs, r);
}

/* ---- prediction against measurement ---- */

static bool deviates(double got, double want)
{
    return fabs(got - want) > 0.05 && (got > want * PLAN_DEVIANT || got * PLAN_DEVIANT < want);
}

bool plan_left(struct plan_watch *w, double exchange_s, double predicted_s, double step_s,
               double planned_step_s)
{
    bool off = deviates(exchange_s, predicted_s) || deviates(step_s, planned_step_s);
    w->deviant = off ? w->deviant + 1 : 0;
    bool now = w->deviant >= PLAN_DEVIANT_MAX && !w->told;
    w->told = w->told || now;
    return now;
}

/* ---- the search ---- */

static const int64_t everies[] = {
    10, 15, 20, 25, 30, 40, 50, 60, 75, 100, 150, 200, 300, 400, 500, 750, PLAN_EVERY_MAX};
static const unsigned parts[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, ROUND_FRAGMENTS_MAX};
static const int64_t overlaps[] = {0, 1, 2, 3, 5, 8, PLAN_OVERLAP_MAX};

struct search {
    const struct plan_task *task;
    struct schedule like; /* steps, full-precision rounds */
    size_t elements[ROUND_FRAGMENTS_MAX];
    struct costs costs;
    double utilisation;
    double least[CODEC_COUNT]; /* best score, found by the first pass; the second pass chooses among
                                  near-equals */
    bool second;
    bool any_does; /* only whether some setting reaches the utilisation: ends with the first */
    struct plan_option best[CODEC_COUNT], nearest;
    bool found[CODEC_COUNT], any, done;
};

static bool published(int64_t every)
{
    return every == 30 || every == 50 || every == 100 || every == 200 || every == 500;
}

/* What is minimised, and what decides where it is equal. */
static double score(const struct plan_result *r, enum plan_rank rank)
{
    return rank == PLAN_RANK_COST ? r->cost : rank == PLAN_RANK_LOSS ? r->loss_percent : r->equal_s;
}

/* A loss known to 0.5 % gives the time-to-loss to 10 %: plan_steps_factor. */
static bool equal(double x, double least)
{
    return x <= least + 0.1 * fabs(least);
}

/* Of two options with equal scores: a published H, then the sooner of two that differ, then the
 * fewer bytes. */
static bool preferred(const struct plan_option *a, const struct plan_option *b)
{
    bool known = published(a->schedule.period[0].p.every);
    double x = a->result.equal_s, y = b->result.equal_s;
    if (known != published(b->schedule.period[0].p.every))
        return known;
    return fabs(x - y) > 0.1 * y ? x < y : a->result.up_bytes < b->result.up_bytes;
}

static void look(struct search *s, unsigned fragments, int64_t every, int64_t overlap,
                 enum codec_kind codec)
{
    struct plan_option o = {.schedule = schedule_streaming(s->like.steps, every, fragments,
                                                           s->like.full_precision_rounds, codec)};
    o.schedule.overlap = overlap;
    o.schedule.full_precision = s->like.full_precision;
    o.schedule.residual_reset = s->like.residual_reset;
    o.schedule.downlink_compression_from = s->like.downlink_compression_from;
    if (s->any_does)
        predict_time(s->task, &o.schedule, &s->costs, &o.result);
    else
        predict(s->task, &o.schedule, &s->costs, &o.result);
    if (!s->any || o.result.utilisation > s->nearest.result.utilisation)
        s->nearest = o;
    s->any = true;
    if (o.result.utilisation < s->utilisation)
        return;
    s->done = s->any_does;
    double now = score(&o.result, s->task->rank);
    if (!s->second)
        s->least[codec] = s->found[codec] && s->least[codec] < now ? s->least[codec] : now;
    else if (equal(now, s->least[codec]) &&
             (!s->best[codec].schedule.steps || preferred(&o, &s->best[codec])))
        s->best[codec] = o;
    s->found[codec] = true;
}

static void look_at_parts(struct search *s, unsigned fragments)
{
    for (size_t h = 0; h < COUNT(everies); h++) {
        int64_t every = (everies[h] + fragments - 1) / fragments * fragments;
        if (every > s->like.steps && h > 0)
            continue; /* longer than the run: one round at the end */
        for (size_t k = 0; k < COUNT(overlaps); k++)
            for (int c = 0; c < CODEC_COUNT; c++)
                if (overlaps[k] < every && !s->done)
                    look(s, fragments, every, overlaps[k], (enum codec_kind)c);
    }
}

static enum err search(struct search *s, const struct table *table, struct arena *scratch)
{
    int layers = 0;
    for (size_t i = 0; i < table->count; i++)
        layers = table->tensors[i].layer > layers ? table->tensors[i].layer : layers;
    for (size_t p = 0; p < COUNT(parts) && (parts[p] == 1 || parts[p] <= (unsigned)layers); p++) {
        struct fragment_plan plan = {
            .kind = FRAGMENT_STRIDED, .count = parts[p], .synchronised = {true}};
        struct fragments f;
        TRY(fragment_make(&f, table, &plan, scratch));
        fragment_sizes(s->elements, &f);
        s->costs = (struct costs){.elements = s->elements};
        look_at_parts(s, parts[p]);
    }
    return ERR_OK;
}

/* Options in the order of their scores: those as good as the least score, in that of bytes. */
static void fewer_bytes_first(struct plan_option *o, size_t count, enum plan_rank rank,
                              double least)
{
    for (size_t i = 1; i < count && equal(score(&o[i].result, rank), least); i++) {
        struct plan_option moved = o[i];
        size_t at = i;
        for (; at > 0 && moved.result.up_bytes < o[at - 1].result.up_bytes; at--)
            o[at] = o[at - 1];
        o[at] = moved;
    }
}

enum err plan_search(const struct plan_task *t, const struct plan_goal *goal,
                     struct plan_option out[PLAN_OPTIONS_MAX], size_t *count,
                     struct plan_option *nearest)
{
    struct arena scratch = arena_make(0);
    struct search s = {.task = t, .like = *goal->schedule, .utilisation = goal->utilisation};
    enum err e = search(&s, goal->table, &scratch);
    s.second = true;
    if (!e)
        e = search(&s, goal->table, &scratch);
    arena_free(&scratch);
    TRY(e);
    double least = INFINITY;
    *count = 0;
    *nearest = s.nearest;
    for (size_t c = 0; c < CODEC_COUNT; c++) {
        size_t at = *count;
        if (!s.found[c])
            continue;
        least = fmin(least, s.least[c]);
        for (; at > 0 && score(&s.best[c].result, t->rank) < score(&out[at - 1].result, t->rank);
             at--)
            out[at] = out[at - 1];
        out[at] = s.best[c];
        ++*count;
    }
    fewer_bytes_first(out, *count, t->rank, least);
    return ERR_OK;
}

/* ---- the nearest link ---- */

static enum err reaches(const struct plan_task *t, const struct schedule *like,
                        const struct table *table, double utilisation, bool *yes)
{
    struct arena scratch = arena_make(0);
    struct search s = {.task = t, .like = *like, .utilisation = utilisation, .any_does = true};
    enum err e = search(&s, table, &scratch);
    arena_free(&scratch);
    *yes = s.done;
    return e;
}

/* Bisection of one number between one that does not do and one that does, in the logarithm. */
static enum err bisect(struct plan_task *t, const struct schedule *like, const struct table *table,
                       double utilisation, bool rate)
{
    enum { HALVINGS = 18 }; /* of 30 at most: closer than the three digits that are printed */
    struct line given = t->link;
    double bad = 0, good = rate ? log(LINE_RATE_MAX / given.up_bps) : log(1e-9);
    for (int i = 0; i < HALVINGS; i++) {
        double middle = (bad + good) / 2, factor = exp(middle);
        bool yes;
        t->link = given;
        if (rate) {
            t->link.up_bps *= factor;
            t->link.down_bps *= factor;
        } else {
            t->link.rtt_s *= factor;
        }
        TRY(reaches(t, like, table, utilisation, &yes));
        if (yes)
            good = middle;
        else
            bad = middle;
    }
    t->link = given;
    if (rate) {
        t->link.up_bps *= exp(good);
        t->link.down_bps *= exp(good);
    } else {
        t->link.rtt_s *= exp(good);
    }
    return ERR_OK;
}

static void rates_of(struct plan_task *t, double up_bps, double down_bps)
{
    t->link.up_bps = up_bps;
    t->link.down_bps = down_bps;
}

enum err plan_nearest_link(const struct plan_task *t, const struct schedule *s,
                           const struct table *table, double utilisation, struct line *link,
                           enum plan_nearest *by)
{
    struct plan_task tried = *t;
    const double up = t->link.up_bps, down = t->link.down_bps, rtt_s = t->link.rtt_s;
    bool yes;
    tried.link.up.count = tried.link.down.count = 0; /* of another link nothing was measured */
    rates_of(&tried, LINE_RATE_MAX, LINE_RATE_MAX);
    TRY(reaches(&tried, s, table, utilisation, &yes));
    *by = yes ? PLAN_BY_RATE : PLAN_BY_NO_LINK;
    if (!yes) {
        tried.link.rtt_s = 0;
        TRY(reaches(&tried, s, table, utilisation, &yes));
        *by = yes ? PLAN_BY_BOTH : PLAN_BY_NO_LINK;
        rates_of(&tried, up, down);
        TRY(reaches(&tried, s, table, utilisation, &yes));
        *by = yes ? PLAN_BY_DELAY : *by;
    }
    tried.link.rtt_s = rtt_s;
    if (*by == PLAN_BY_BOTH) { /* the longest delay is for endless rates: half of it is possible */
        rates_of(&tried, LINE_RATE_MAX, LINE_RATE_MAX);
        TRY(bisect(&tried, s, table, utilisation, false));
        tried.link.rtt_s /= 2;
    }
    rates_of(&tried, up, down);
    if (*by != PLAN_BY_NO_LINK)
        TRY(bisect(&tried, s, table, utilisation, *by != PLAN_BY_DELAY));
    *link = tried.link;
    return ERR_OK;
}
