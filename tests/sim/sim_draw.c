/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration of a seed. Each choice has a number of its own, so that a new one changes no
 * other. */
#include "tests/sim/sim.h"
#include "kernels/base/rng.h"

/* Merges that weigh the contributions by their norms; bound: some rounds meet it. */
static void shares_draw(struct sim_options *o, uint64_t which, uint64_t bound)
{
    if (which > 1)
        return;
    o->merge = which ? MERGE_EDIT : MERGE_CLIPPED;
    o->clip = 0;
    o->edit_warmup = 1 + (uint32_t)bound;
    o->edit_norm = bound % 2 ? 0.25f : 0;
}

/* Two in 64 seeds have a copy of the aggregator's directory, two one of a site's. */
static void copies_draw(struct sim_options *o, uint64_t which)
{
    static const enum sim_copy kinds[] = {SIM_COPY_RESTORED, SIM_COPY_BOTH};
    if (which > 3 || o->lies || o->absent || o->late || o->operates || o->every_ms)
        return;
    if (which < 2)
        o->second = kinds[which];
    else
        o->copied = kinds[which - 2];
}

/* Three in 16 seeds have changes of the roster, as far as they have nothing else of its own. */
static void roster_draw(struct sim_options *o, uint64_t which, bool again)
{
    enum { KEEP_ALL = 1000 };
    bool other = o->lies || o->damaged || o->operates || o->absent || o->late ||
                 o->second != SIM_COPY_NONE || o->copied != SIM_COPY_NONE;
    if (which > 2 || other || o->sites < 2)
        return;
    o->joins = which != 1;
    o->leaves = which != 0;
    o->returns = o->leaves && again;
    if (o->returns && o->strict) /* without a snapshot, the return follows from the acts alone */
        o->keep = KEEP_ALL;
}

/* Three sites at any time; what adds as integers, and tells nothing of one site; no copy of a site,
 * which would sign twice, and no liar, who would have to mask. */
void sim_draw_masked(struct sim_options *o)
{
    enum { SUMMABLE, COLLUDING, FEWER, SEALS, SCRUBS, SCRUB_RATE }; /* SEALS: sim.c */
    enum { CODECS = 5 };
#define DRAW(what, n) rng_below(o->seed, RNG_TEST, 300 + what, n)
    static const enum codec_kind codecs[CODECS] = {CODEC_INT4, CODEC_INT2, CODEC_INT8, CODEC_FIXED,
                                                   CODEC_SIGN};
    /* Of three sites none can leave: some of the runs ask for it. */
    unsigned least = 3u + o->joins + (o->leaves && DRAW(FEWER, 4));
    enum codec_kind codec = codecs[DRAW(SUMMABLE, CODECS)];
    bool fits = false;
    for (unsigned i = 0; i < CODECS; i++)
        fits = fits || o->codec == codecs[i];
    o->masked = o->equal = o->full_fixed = true;
    if (o->sites < least) {
        o->sites = least;
        o->delay = o->optimizer == OUTER_OPT_DELAYED ? 1 + o->sites : 1;
    }
    o->codec = fits ? o->codec : codec;
    o->merge = MERGE_MEAN;
    o->clip = o->edit_norm = o->residual_reset = 0;
    o->edit_warmup = o->downlink_compression_from = 0;
    o->eager = o->lies = false;
    o->copied = SIM_COPY_NONE;
    o->colluding = (unsigned)DRAW(COLLUDING, o->sites - o->joins - 1);
    uint64_t scrubs = DRAW(SCRUBS, 4);
    o->scrub_every_ms = scrubs ? 0 : 300 + DRAW(SCRUB_RATE, 9000);
    o->scrub_bytes_per_s = o->scrub_every_ms % 2 ? 1000 + o->scrub_every_ms : 1 << 20;
#undef DRAW
}

struct most { /* that a seed draws */
    unsigned sites;
    uint64_t rounds_from, rounds, four_fragments_in;
    bool more; /* commits during other calls, short journals */
};

static struct sim_options draw(uint64_t seed, const struct most *most)
{
    enum {
        SITES,
        FRAGMENTS,
        EVERY,
        ROUNDS,
        TAIL,
        CODEC,
        FEEDBACK,
        STRICT,
        KEEP,
        LATE,
        ABSENT,
        RESIDUAL_RESET,
        OPTIMIZER,
        DAMAGED,
        OVERLAP,
        MIX,
        DOWNLINK,
        EAGER,
        BEFORE_UPDATE,
        OFFLINE,
        LIES,
        OFFLINE_STEPS,
        ABORTS,
        MERGE,
        ANNEAL,
        RESTART,
        GROW,
        GROW_ROUNDS,
        TIMED,
        GRACE,
        CLIP,
        SHARES,
        EDIT,
        OPERATE,
        COPIES,
        BESIDE,
        JOURNAL,
        WIDE,
        FULL_PRECISION,
        ROSTER,
        RETURNS = 60,
        WARMUP,
        COOLDOWN,
        ADAM,       /* in place of Nesterov: the other seeds have what they had */
        PRIMAL,     /* the same */
        MASKED = 43 /* not in the seeds that found something before: tests/sim/test_sim.c */
    };
    enum { MASKED_IN = 10, MASKED_IS = 6, ARCHIVES = 44, ARCHIVES_IN = 14, ARCHIVES_IS = 5 };
#define DRAW(what, n) rng_below(seed, RNG_TEST, what, n)
    static const float feedbacks[] = {1, 1, 0.5f}, residual_resets[] = {0, 0, 0.25f, 2},
                       mixes[] = {0.5f, 0.5f, 0};
    static const float clips[] = {0, 0.5f, 1, 1.25f};
    static const unsigned downlink[] = {0, 2, 3};
    static const uint64_t journals[] = {0, 1, 1500}; /* 1: rewritten at each commit */
    static const enum outer_opt_kind optimizers[] = {OUTER_OPT_MOMENTUM, OUTER_OPT_MOMENTUM,
                                                     OUTER_OPT_SGD, OUTER_OPT_DELAYED};
    struct sim_options o = {.seed = seed, .faults = true};
    o.sites = 1 + (unsigned)DRAW(SITES, most->sites);
    o.fragments = DRAW(FRAGMENTS, most->four_fragments_in) ? 1 : 4;
    o.every = o.fragments == 4 ? 4 : 2 + (int64_t)DRAW(EVERY, 4);
    o.steps = o.every * (int64_t)(most->rounds_from + DRAW(ROUNDS, most->rounds)) +
              (int64_t)DRAW(TAIL, 3);
    /* The draws of fixed came last: the other seeds have the codecs that they had. */
    o.codec = DRAW(WIDE, CODEC_COUNT) ? (enum codec_kind)DRAW(CODEC, CODEC_FIXED) : CODEC_FIXED;
    o.full_fixed = DRAW(FULL_PRECISION, 8) == 0;
    o.error_feedback_decay = feedbacks[DRAW(FEEDBACK, 3)];
    o.residual_reset = residual_resets[DRAW(RESIDUAL_RESET, 4)];
    o.optimizer = optimizers[DRAW(OPTIMIZER, 4)];
    if (o.optimizer == OUTER_OPT_MOMENTUM && DRAW(ADAM, 4) == 0)
        o.optimizer = OUTER_OPT_ADAM;
    if (o.optimizer == OUTER_OPT_MOMENTUM && DRAW(PRIMAL, 4) == 0)
        o.optimizer = OUTER_OPT_PRIMAL;
    o.delay = o.optimizer == OUTER_OPT_DELAYED ? 1 + o.sites : 1;
    o.strict = DRAW(STRICT, 2);
    o.overlap =
        (int64_t)DRAW(OVERLAP, 2 * (uint64_t)o.every + 1); /* half of them: none, or the delay */
    o.overlap = o.overlap <= o.every ? o.overlap : o.overlap % 3 ? 0 : o.every;
    o.mix = o.overlap == o.every ? 0 : mixes[DRAW(MIX, 3)];
    o.eager = o.overlap == o.every && DRAW(EAGER, 2);
    o.keep = 2 + DRAW(KEEP, 3);
    o.downlink_compression_from = downlink[DRAW(DOWNLINK, 3)];
    o.before_update = o.overlap > 0 && o.overlap < o.every && DRAW(BEFORE_UPDATE, 2);
    if (!o.strict && DRAW(OFFLINE, 4))
        o.max_local_steps_offline = 1 + (int64_t)DRAW(OFFLINE_STEPS, 2 * (uint64_t)o.every);
    o.late = !o.strict && DRAW(LATE, 2);
    o.absent = !o.strict && DRAW(ABSENT, 2);
    o.damaged = !o.strict && o.sites > 2 && DRAW(DAMAGED, 3) == 0;
    o.lies = !o.strict && o.sites > 2 && !o.damaged && DRAW(LIES, 3) == 0;
    o.aborts = DRAW(ABORTS, 4) == 0;
    enum codec_kind full = o.full_fixed ? CODEC_FIXED : CODEC_BF16;
    bool forwards = !codec_get(o.codec)->summable &&
                    !codec_get(codec_full_precision(o.codec, full))->summable &&
                    !o.downlink_compression_from && !o.eager;
    if (forwards && DRAW(MERGE, 2))
        o.merge = MERGE_RADIAL;
    else if (forwards && DRAW(CLIP, 4)) /* below 1: in every round a site is scaled */
        o.clip = clips[DRAW(CLIP, 4)];
    shares_draw(&o, forwards ? DRAW(SHARES, 8) : 8, DRAW(EDIT, 4));
    o.anneal = (struct anneal){.kind = (enum anneal_kind)DRAW(ANNEAL, 3),
                               .end = 0.25,
                               .restart = DRAW(RESTART, 3),
                               .warmup = DRAW(WARMUP, 4),
                               .cooldown = DRAW(COOLDOWN, 4),
                               .momentum_start = 0.25f,
                               .momentum_end = 0.5f};
    if (o.overlap < o.every && DRAW(GROW, 3) == 0)
        o.growth = (struct period_growth){1 + (int64_t)DRAW(GROW_ROUNDS, 3), 2, o.every * 3};
    bool timed = o.strict && !o.overlap && o.fragments == 1 && !o.growth.rounds;
    o.every_ms = timed && DRAW(TIMED, 2) ? 100 + DRAW(TIMED, 1500) : 0;
    o.grace = !o.strict && o.overlap && DRAW(GRACE, 2) ? 0.5 : 0;
    o.operates = DRAW(OPERATE, 8) == 0;
    copies_draw(&o, DRAW(COPIES, 64));
    o.beside = most->more && DRAW(BESIDE, 2);
    o.journal_bytes_max = most->more ? journals[DRAW(JOURNAL, 3)] : 0;
    roster_draw(&o, DRAW(ROSTER, 16), DRAW(RETURNS, 2));
    o.masked = DRAW(MASKED, MASKED_IN) == MASKED_IS;
    o.archives = DRAW(ARCHIVES, ARCHIVES_IN) == ARCHIVES_IS;
#undef DRAW
    return o;
}

struct sim_options sim_draw(uint64_t seed)
{
    const struct most most = {SIM_FEW_SITES, 2, 7, 2, false};
    return draw(seed, &most);
}

struct sim_options sim_draw_small(uint64_t seed)
{
    const struct most most = {3, 3, 3, 8, true};
    struct sim_options o = draw(seed, &most);
    o.small = true;
    return o;
}

/* Many sites and few rounds, few sites and many rounds; one in eight has many of both. */
struct sim_options sim_draw_large(uint64_t seed)
{
    struct sim_options o = sim_draw(seed);
    uint64_t which = rng_below(seed, RNG_TEST, 200, 8);
    bool many = which < 4, far = which >= 3 && which != 7;
    if (o.fragments == 4)
        o.every = 4;
    if (many || which == 7)
        o.sites = 6 + (unsigned)rng_below(seed, RNG_TEST, 201, SIM_SITES_MAX - 5);
    if (far || which == 7)
        o.steps = o.every * (9 + (int64_t)rng_below(seed, RNG_TEST, 202, 191));
    o.growth = (struct period_growth){0};
    o.beside = rng_below(seed, RNG_TEST, 203, 2);
    o.delay = o.optimizer == OUTER_OPT_DELAYED ? 1 + o.sites % 7 : 1;
    return o;
}
