/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/diloco/schedule.h"
#include "outer/protocol/mutant.h"

struct schedule schedule_streaming(int64_t steps, int64_t every, unsigned fragments,
                                   uint64_t full_precision_rounds, enum codec_kind codec)
{
    struct schedule s = {.steps = steps,
                         .fragments = fragments,
                         .full_precision_rounds = full_precision_rounds,
                         .full_precision = CODEC_BF16};
    ASSERT(fragments >= 1 && fragments <= ROUND_FRAGMENTS_MAX && every % fragments == 0);
    for (unsigned p = 0; p < fragments; p++)
        s.period[p] = (struct schedule_period){
            .p = {.every = every, .offset = p * (every / fragments)}, .codec = codec};
    return s;
}

static const struct period *fragment_period(const struct schedule *s, unsigned fragment)
{
    ASSERT(fragment < s->fragments);
    return &s->period[fragment].p;
}

/* ---- stretches of one period ---- */

/* Of a fragment: rounds first.. by `p`, whose steps count from `begin`. An amendment of
 * outer.sync_every begins the next one at its step: fragment 0 is due a period later, fragment i of
 * P has its place between. */
struct stretch {
    struct period p;
    uint64_t first;
    int64_t begin;
};

static struct stretch fragment_stretch_first(const struct schedule *s, unsigned fragment)
{
    return (struct stretch){.p = *fragment_period(s, fragment)};
}

/* Rounds of the periods up to the stretch's end. */
static uint64_t stretch_rounds(const struct stretch *x, int64_t step)
{
    return x->first + (step > x->begin ? period_rounds(&x->p, step - x->begin) : 0);
}

static void fragment_stretch_next(const struct schedule *s, unsigned fragment, struct stretch *x,
                                  const struct schedule_change *c)
{
    int64_t offset = fragment * (c->every / s->fragments);
    x->first = stretch_rounds(x, c->after);
    x->begin = c->after;
    x->p = (struct period){.every = c->every, .offset = fragment ? offset - c->every : 0};
}

/* The change that holds at this step; a change at a step is for the steps after it. */
static struct stretch stretch_at(const struct schedule *s, unsigned fragment, int64_t step)
{
    struct stretch x = fragment_stretch_first(s, fragment);
    for (unsigned i = 0; i < s->changes.count && s->changes.list[i].after < step; i++)
        if (s->changes.list[i].every)
            fragment_stretch_next(s, fragment, &x, &s->changes.list[i]);
    return x;
}

/* Of a round; rounds at last steps that are no period's end do not count. */
static struct stretch fragment_stretch(const struct schedule *s, unsigned fragment, uint64_t round)
{
    struct stretch x = fragment_stretch_first(s, fragment);
    for (unsigned i = 0; i < s->changes.count; i++) {
        if (!s->changes.list[i].every)
            continue;
        if (round < stretch_rounds(&x, s->changes.list[i].after))
            break;
        fragment_stretch_next(s, fragment, &x, &s->changes.list[i]);
    }
    return x;
}

/* Rounds of the periods by `step`; the step that ends one; does one end at this step? */
static uint64_t periods_by(const struct schedule *s, unsigned fragment, int64_t step)
{
    struct stretch x = stretch_at(s, fragment, step);
    return stretch_rounds(&x, step);
}

static int64_t periods_step(const struct schedule *s, unsigned fragment, uint64_t round)
{
    struct stretch x = fragment_stretch(s, fragment, round);
    return x.begin + period_step(&x.p, round - x.first);
}

static bool periods_end(const struct schedule *s, unsigned fragment, int64_t step)
{
    struct stretch x = stretch_at(s, fragment, step);
    return step > x.begin && period_ends(&x.p, step - x.begin);
}

/* Last steps in order: the former ones, then the present one. */
static int64_t end_at(const struct schedule *s, unsigned i)
{
    return i < s->ends.count ? s->ends.steps[i] : s->steps;
}

/* Rounds that end by `step`, at most s->steps. */
static uint64_t rounds_by(const struct schedule *s, unsigned fragment, int64_t step)
{
    uint64_t rounds = periods_by(s, fragment, step);
    for (unsigned i = 0; i <= s->ends.count && end_at(s, i) <= step; i++)
        rounds += !periods_end(s, fragment, end_at(s, i));
    return rounds;
}

/* Of the round's steps the step that ends it; *between: rounds before it at last steps that end no
 * period. */
static int64_t step_of(const struct schedule *s, unsigned fragment, uint64_t round,
                       uint64_t *between)
{
    *between = 0;
    ASSERT(round < schedule_rounds(s, fragment));
    for (unsigned i = 0; i <= s->ends.count; i++) {
        uint64_t until = periods_by(s, fragment, end_at(s, i)) + *between;
        if (round < until)
            break;
        if (periods_end(s, fragment, end_at(s, i)))
            continue;
        if (round == until)
            return end_at(s, i);
        ++*between;
    }
    return periods_step(s, fragment, round - *between);
}

int64_t schedule_step(const struct schedule *s, unsigned fragment, uint64_t round)
{
    uint64_t between;
    return step_of(s, fragment, round, &between);
}

int64_t schedule_length(const struct schedule *s, unsigned fragment, uint64_t round)
{
    uint64_t between;
    step_of(s, fragment, round, &between);
    struct stretch x = fragment_stretch(s, fragment, round - between);
    return period_length(&x.p, round - between - x.first);
}

uint64_t schedule_rounds(const struct schedule *s, unsigned fragment)
{
    return rounds_by(s, fragment, s->steps);
}

bool schedule_ends(const struct schedule *s, int64_t step)
{
    bool ends = false;
    for (unsigned i = 0; i <= s->ends.count; i++)
        ends = ends || step == end_at(s, i);
    return ends;
}

int64_t schedule_end_of(const struct schedule *s, int64_t step)
{
    unsigned i = 0, k = s->changes.count;
    while (i < s->ends.count && s->ends.steps[i] < step)
        i++;
    while (k && s->changes.list[k - 1].after >= step)
        k--;
    if (i < s->ends.count || !s->changes.count)
        return end_at(s, i);
    return k ? s->changes.list[k - 1].steps : s->changes.first_steps;
}

/* ---- amendments ---- */

bool schedule_end_add(struct schedule *s, int64_t former)
{
    struct schedule_former *e = &s->ends;
    if (e->count == SCHEDULE_ENDS_MAX || former <= (e->count ? e->steps[e->count - 1] : 0))
        return false;
    e->steps[e->count++] = former;
    return true;
}

void schedule_ends_set(struct schedule *s, const struct schedule_former *e)
{
    s->ends = e ? *e : (struct schedule_former){0};
    ASSERT(s->ends.count <= SCHEDULE_ENDS_MAX);
}

void schedule_amend(struct schedule *s, const struct schedule_change *c)
{
    ASSERT(s->changes.count < SCHEDULE_CHANGES_MAX);
    ASSERT(!s->changes.count || s->changes.list[s->changes.count - 1].after < c->after);
    if (!s->changes.count)
        s->changes.first_steps = s->steps;
    s->changes.list[s->changes.count++] = *c;
    s->steps = c->steps;
}

const struct schedule_change *schedule_changed(const struct schedule *s, unsigned fragment,
                                               uint64_t round)
{
    unsigned k = s->changes.count;
    int64_t step = k ? schedule_step(s, fragment, round) : 0;
    while (k && s->changes.list[k - 1].after >= step)
        k--;
    return k ? &s->changes.list[k - 1] : NULL;
}

bool schedule_last(const struct schedule *s, unsigned fragment, uint64_t round)
{
    return round < schedule_rounds(s, fragment) &&
           schedule_ends(s, schedule_step(s, fragment, round));
}

/* After the last round the sites hold the same parameters. */
bool schedule_draws(const struct schedule *s, unsigned fragment, uint64_t round)
{
    return s->draw.share > 0 && !schedule_last(s, fragment, round);
}

bool schedule_due(const struct schedule *s, int64_t step, unsigned fragment, uint64_t *round)
{
    if (step < 1 || step > s->steps)
        return false;
    if (!periods_end(s, fragment, step) && !schedule_ends(s, step))
        return false;
    *round = rounds_by(s, fragment, step) - 1;
    return true;
}

/* ---- overlap ---- */

bool schedule_delayed(const struct schedule *s, unsigned fragment)
{
    return s->overlap == fragment_period(s, fragment)->every;
}

bool schedule_eager(const struct schedule *s, unsigned fragment, uint64_t round)
{
    return s->eager && schedule_delayed(s, fragment) && !schedule_last(s, fragment, round);
}

uint64_t schedule_base(const struct schedule *s, unsigned fragment, uint64_t round)
{
    bool waits = schedule_delayed(s, fragment) && round;
    if (waits && round < schedule_rounds(s, fragment))
        waits = !schedule_last(s, fragment, round - 1);
    return waits ? round - 1 : round;
}

int64_t schedule_apply(const struct schedule *s, unsigned fragment, uint64_t round)
{
    const struct schedule_change *c = schedule_changed(s, fragment, round);
    int64_t sent = schedule_step(s, fragment, round),
            planned = sent + (c ? c->overlap : s->overlap);
    if (schedule_last(s, fragment, round))
        return sent; /* after the last step nothing hides an exchange */
    int64_t next = schedule_step(s, fragment, round + 1);
    return planned < next ? planned : next;
}

/* Rounds whose step is not after `step`; at(r) grows with r. */
static uint64_t rounds_until(const struct schedule *s, unsigned fragment, int64_t step,
                             int64_t (*at)(const struct schedule *s, unsigned fragment,
                                           uint64_t round))
{
    uint64_t low = 0, high = schedule_rounds(s, fragment);
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (at(s, fragment, middle) <= step)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint64_t schedule_sent(const struct schedule *s, unsigned fragment, int64_t step)
{
    return rounds_until(s, fragment, step, schedule_step);
}

uint64_t schedule_applied(const struct schedule *s, unsigned fragment, int64_t step)
{
    return rounds_until(s, fragment, step, schedule_apply);
}

bool schedule_flying(const struct schedule *s, unsigned fragment, int64_t step, uint64_t *round)
{
    uint64_t sent = schedule_sent(s, fragment, step);
    *round = sent - 1;
    return sent > schedule_applied(s, fragment, step + MUTANT(APPLIED_EARLY));
}

/* Most fly right after a send. The pattern repeats after the longest period (others divide
 * it); until all fragments fly it takes two of these. Where intervals grow, fewer fly later. */
unsigned schedule_flights(const struct schedule *changed)
{
    struct schedule first = *changed;
    const struct schedule *s = &first;
    unsigned most = 0;
    int64_t longest = 0;
    first.steps = first.changes.count ? first.changes.first_steps : first.steps;
    first.changes.count = 0;
    for (unsigned f = 0; f < s->fragments; f++)
        longest = s->period[f].p.every > longest ? s->period[f].p.every : longest;
    if (!s->overlap)
        return 0;
    for (int64_t step = schedule_next(s, 0); step && step <= 3 * longest;
         step = schedule_next(s, step)) {
        unsigned flying = 0;
        for (unsigned f = 0; f < s->fragments; f++)
            flying += schedule_sent(s, f, step) > schedule_applied(s, f, step);
        most = flying > most ? flying : most;
    }
    return most;
}

bool schedule_resets_residual(const struct schedule *s, uint8_t residual_ratio)
{
    return s->residual_reset && residual_ratio >= s->residual_reset;
}

bool schedule_discards(const struct schedule *s, float error_feedback_decay)
{
    return error_feedback_decay < 1 || s->residual_reset || s->clips;
}

/* A residual holds progress that the sites have made a second time since, from parameters without
 * it. A full-precision round applies all of it in one step; measured
 * on 0.8 M parameters, H = 20, two sites, held-out loss before and after: int2, 1.6 times the
 * delta: 2.527, 2.503; top-k, 11 times: 2.765, 3.588; SparseLoCo's settings, 13
 * times: 2.542, 3.735; top-k emptied at 4 times in the middle of a run: 2.78, 7.14. Hence the limit
 * of two: above it the last round is sent as any other round is, and a residual reset discards the
 * residual. Masked contributions do not say how much is left: then the limit is the codec's. */
enum { EMPTIED_MAX = 130 }; /* codec_residual_ratio(4, 1) */

/* A run of one period has rounds at its last step only: they need a slot too. */
unsigned schedule_slots(const struct schedule *s)
{
    unsigned flights = schedule_flights(s);
    return s->overlap && !flights ? 1 : flights;
}

/* Of the round, if it is no full-precision round. After the last round: that of the last round. */
static enum codec_kind codec_of(const struct schedule *s, unsigned fragment, uint64_t round)
{
    const struct schedule_period *p = &s->period[fragment];
    if (p->moments || !s->changes.count)
        return p->codec;
    const struct schedule_change *c = round < schedule_rounds(s, fragment)
                                          ? schedule_changed(s, fragment, round)
                                          : &s->changes.list[s->changes.count - 1];
    return c ? c->codec : p->codec;
}

static bool residual_emptied(const struct schedule *s, enum codec_kind codec,
                             uint8_t residual_ratio)
{
    bool untold = s->masked_sites > 0;
    return untold ? !codec_get(codec)->momentum_in_residual : residual_ratio < EMPTIED_MAX;
}

/* A full-precision round empties the residual. f32 stays f32: bf16 would only lose bits. */
enum codec_kind schedule_codec(const struct schedule *s, unsigned fragment, uint64_t round,
                               uint8_t residual_ratio)
{
    enum codec_kind codec = codec_of(s, fragment, round);
    bool last = schedule_last(s, fragment, round) && residual_emptied(s, codec, residual_ratio) &&
                !MUTANT(LAST_LOSSY);
    bool full =
        round < s->full_precision_rounds || last || schedule_resets_residual(s, residual_ratio);
    return full ? codec_full_precision(codec, s->full_precision) : codec;
}

enum codec_kind schedule_full_precision(const struct schedule *s, unsigned fragment, uint64_t round)
{
    return codec_full_precision(codec_of(s, fragment, round), s->full_precision);
}

static bool codec_is(const struct schedule *s, enum codec_kind used, enum codec_kind codec)
{
    return used == codec || codec_full_precision(used, s->full_precision) == codec;
}

bool schedule_uses(const struct schedule *s, enum codec_kind codec)
{
    bool uses = false;
    for (unsigned p = 0; p < s->fragments; p++)
        uses = uses || codec_is(s, s->period[p].codec, codec);
    for (unsigned k = 0; k < s->changes.count; k++)
        uses = uses || codec_is(s, s->changes.list[k].codec, codec);
    return uses;
}

int64_t schedule_next(const struct schedule *s, int64_t step)
{
    int64_t next = s->steps;
    if (step >= s->steps)
        return 0;
    for (unsigned p = 0; p < s->fragments; p++) {
        int64_t due = periods_step(s, p, periods_by(s, p, step));
        next = due < next ? due : next;
    }
    for (unsigned i = 0; i < s->ends.count; i++)
        next = s->ends.steps[i] > step && s->ends.steps[i] < next ? s->ends.steps[i] : next;
    return next;
}

int64_t schedule_reached(const struct schedule *s, const uint64_t *rounds)
{
    int64_t reached = 0, limit = s->steps;
    for (unsigned p = 0; p < s->fragments; p++) {
        int64_t last = rounds[p] ? schedule_step(s, p, rounds[p] - 1) : 0;
        reached = last > reached ? last : reached;
        if (rounds[p] < schedule_rounds(s, p)) {
            int64_t before = schedule_step(s, p, rounds[p]) - 1;
            limit = before < limit ? before : limit;
        }
    }
    return reached < limit ? reached : limit;
}

/* ---- bytes ---- */

bool schedule_compresses_downlink(const struct schedule *s, enum codec_kind codec,
                                  unsigned included)
{
    return s->downlink_compression_from && included >= s->downlink_compression_from &&
           !codec_get(codec)->summable;
}

bool schedule_compresses_any(const struct schedule *s, unsigned included)
{
    bool any = false;
    for (unsigned k = 0; k < CODEC_COUNT; k++)
        any = any || (schedule_uses(s, (enum codec_kind)k) &&
                      schedule_compresses_downlink(s, (enum codec_kind)k, included));
    return any;
}

unsigned schedule_payloads(const struct schedule *s, enum codec_kind codec, unsigned included)
{
    return schedule_compresses_downlink(s, codec, included) ? 1 : included;
}

unsigned schedule_payloads_max(const struct schedule *s, enum codec_kind codec, unsigned sites)
{
    return schedule_compresses_downlink(s, codec, sites) ? s->downlink_compression_from - 1 : sites;
}

struct schedule_bytes schedule_bytes(const struct schedule *s, enum codec_kind codec,
                                     size_t elements, unsigned sites)
{
    const struct codec *c = codec_get(codec);
    unsigned payloads = schedule_payloads(s, codec, sites);
    return (struct schedule_bytes){s->masked_sites ? codec_words_bytes(c, elements, s->masked_sites)
                                                   : c->payload_max(c, elements),
                                   c->aggregate_max(c, elements, payloads)};
}

/* Values of a fragment that take part in a round. */
static size_t fragment_values(const struct schedule *s, unsigned fragment, uint64_t round,
                              size_t elements)
{
    int64_t step = schedule_step(s, fragment, round);
    if (schedule_draws(s, fragment, round))
        return draw_values(&s->draw, elements);
    for (unsigned i = 0; i < s->stages.count; i++)
        if (step <= s->stages.list[i].end)
            return s->stages.list[i].values;
    return elements;
}

struct schedule_bytes schedule_round_bytes(const struct schedule *s, unsigned fragment,
                                           uint64_t round, size_t elements, unsigned sites)
{
    enum codec_kind kind = schedule_codec(s, fragment, round, 0);
    const struct codec *c = codec_get(kind);
    struct schedule_bytes b = schedule_bytes(s, kind, elements, sites);
    size_t absent = elements - fragment_values(s, fragment, round, elements);
    unsigned payloads = schedule_payloads(s, kind, sites);
    size_t unsent = s->masked_sites ? 0 : codec_absent_bytes(c, absent); /* masks hide it */
    return (struct schedule_bytes){b.up - unsent,
                                   b.down - codec_absent_sum_bytes(c, absent, payloads)};
}

static struct schedule_bytes all_bytes(const struct schedule *s, const size_t *elements,
                                       unsigned sites)
{
    struct schedule_bytes sum = {0};
    for (unsigned p = 0; p < s->fragments; p++)
        for (uint64_t t = 0; t < schedule_rounds(s, p); t++) {
            struct schedule_bytes b = schedule_round_bytes(s, p, t, elements[p], sites);
            sum.up += b.up;
            sum.down += b.down;
        }
    return sum;
}

uint64_t schedule_upload_bytes(const struct schedule *s, const size_t *elements)
{
    return all_bytes(s, elements, 1).up;
}

uint64_t schedule_download_bytes(const struct schedule *s, const size_t *elements, unsigned sites)
{
    return all_bytes(s, elements, sites).down;
}
