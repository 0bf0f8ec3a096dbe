/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the outer loop's settings and the rules that need more than one key. */
#include "outer/config/keys.h"
#include "inner/optim/optim.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "inner/config/keys.h"
#include "kernels/base/number.h"
#include "outer/link/address.h"
#include "outer/link/link.h"
#include "outer/link/line.h"
#include "outer/link/loopback.h"

enum {
    ROSTER_BYTES_MAX = 32768 /* bytes of all names: every hello holds the roster and has room for
                                twice this size */
};

CHOICES_OUTER(CONFIG_CHOICES)
CHOICES_OUTER_NAMES(CONFIG_CHOICES)

static const struct config_key keys[] = {
#define X(...) CONFIG_ROW(struct outer_settings, __VA_ARGS__)
    KEYS_OUTER(X)
#undef X
};

static const struct config_elsewhere measured = {
    "plan", "what is measured is in a probe file; atoll probe --write FILE makes it, site.probe "
            "names it, and atoll plan and atoll sim take --probe FILE"};

struct config_table keys_outer(struct outer_settings *o)
{
    return (struct config_table){
        .keys = keys, .count = sizeof keys / sizeof keys[0], .values = o, .elsewhere = &measured};
}

enum err keys_difference(const char *ours, const char *theirs, struct arena *a, char **text)
{
    const struct config_table tables[] = {keys_inner(NULL), keys_outer(NULL)};
    return config_difference(tables, 2, ours, theirs, a, text);
}

/* Names the nearest multiples of p on both sides. */
static void check_every(struct config_rules *r, const struct outer_settings *o,
                        const struct settings *s)
{
    long long every = o->outer_sync_every, parts = o->outer_fragments,
              below = every / parts * parts;
    if (o->outer_partition == FRAGMENT_SLICES)
        return; /* outer.slices gives the steps */
    if (every % parts && below)
        config_broken(
            r,
            "outer.sync_every = %lld is not a multiple of outer.fragments = %lld; the nearest are "
            "%lld and %lld",
            every, parts, below, below + parts);
    else if (every % parts)
        config_broken(r,
                      "outer.sync_every = %lld is not a multiple of outer.fragments = %lld; the "
                      "least is %lld",
                      every, parts, parts);
    bool whole_blocks =
        o->outer_partition == FRAGMENT_STRIDED || o->outer_partition == FRAGMENT_SEQUENTIAL;
    if (whole_blocks && parts > s->model_layers)
        config_broken(
            r,
            "outer.fragments = %lld is more than model.layers = %lld; a fragment holds at least "
            "one layer",
            parts, (long long)s->model_layers);
}

static void check_overlap(struct config_rules *r, const struct outer_settings *o)
{
    long long tau = o->outer_overlap_steps, every = o->outer_sync_every;
    if (tau > every)
        config_broken(
            r,
            "outer.overlap_steps = %lld is more than outer.sync_every = %lld: a fragment has one "
            "round in flight; the most is %lld, "
            "or take outer.sync_every = %lld",
            tau, every, every,
            (tau + o->outer_fragments - 1) / o->outer_fragments * o->outer_fragments);
    if (o->outer_update_alpha < 0 && o->outer_update_alpha != -1)
        config_broken(
            r,
            "outer.update_alpha = %g is not a share; the nearest is 0, and -1 leaves it to atoll",
            o->outer_update_alpha);
    if (o->outer_eager && tau != every)
        config_broken(r,
                      "outer.eager needs the one-round delay, and outer.overlap_steps is %lld; the "
                      "nearest is outer.overlap_steps = %lld, "
                      "or outer.eager = false",
                      tau, every);
    if (o->outer_eager && o->outer_update_alpha > 0)
        config_broken(r,
                      "outer.eager needs outer.update_alpha = 0, and outer.update_alpha is %g; the "
                      "nearest is 0, "
                      "or outer.eager = false",
                      o->outer_update_alpha);
    if (o->outer_before_update && every == 1)
        config_broken(
            r,
            "outer.before_update needs a step between two rounds, and outer.sync_every is 1; the "
            "nearest is outer.sync_every = 2");
    else if (o->outer_before_update && (!tau || tau == every))
        config_broken(r,
                      "outer.before_update needs rounds in flight for 1 to %lld steps, and "
                      "outer.overlap_steps is %lld; the nearest is "
                      "%lld, or outer.before_update = false",
                      every - 1, tau, tau ? every - 1 : 1);
    if (!tau && o->outer_update_alpha >= 0)
        config_broken(r,
                      "outer.update_alpha = %g is for overlapped rounds, and outer.overlap_steps "
                      "is 0; the nearest "
                      "is outer.update_alpha = -1, "
                      "or outer.overlap_steps = %lld",
                      o->outer_update_alpha, every);
    if (tau && o->outer_update_alpha == 1)
        config_broken(
            r,
            "outer.update_alpha = 1 ignores the other sites' updates; the published value is 0.5");
}

double keys_mix(const struct outer_settings *o)
{
    if (o->outer_update_alpha >= 0)
        return o->outer_update_alpha;
    return o->outer_overlap_steps == o->outer_sync_every || o->outer_before_update ? 0 : 0.5;
}

bool keys_grow(const struct outer_settings *o, struct period_growth *g)
{
    int64_t *const parts[] = {&g->rounds, &g->factor, &g->most};
    *g = (struct period_growth){0};
    for (size_t i = 0; i < o->outer_interval_schedule.count && i < 3; i++) {
        char *end;
        *parts[i] = strtoll(o->outer_interval_schedule.items[i], &end, 10);
        if (end == o->outer_interval_schedule.items[i] || *end)
            return false;
    }
    if (!o->outer_interval_schedule.count)
        return true;
    return o->outer_interval_schedule.count == 3 && g->rounds >= 1 && g->rounds <= 1000000 &&
           g->factor >= 2 && g->factor <= 1000000 && g->most > o->outer_sync_every &&
           g->most <= 1000000;
}

static void check_grow(struct config_rules *r, const struct outer_settings *o,
                       const struct settings *s)
{
    struct period_growth g;
    long long every = o->outer_sync_every;
    if (!keys_grow(o, &g))
        config_broken(r,
                      "outer.interval_schedule is {rounds, factor, most} with rounds from 1, "
                      "factor from 2 and most from %lld (outer.sync_every = %lld) to 1000000, as "
                      "{rounds: 10, factor: 2, most: %lld}",
                      every + 1, every, 8 * every);
    if (!o->outer_interval_schedule.count)
        return;
    if (o->outer_overlap_steps == every)
        config_broken(
            r,
            "outer.interval_schedule with the one-round delay: a round has to be as long as the "
            "one "
            "before; the nearest is outer.overlap_steps = %lld, or no outer.interval_schedule",
            every - 1);
    if (o->outer_moment1_every || o->outer_moment2_every)
        config_broken(
            r,
            "outer.interval_schedule: moments are averaged at multiples of outer.sync_every; use "
            "outer.moment1_every = outer.moment2_every = 0, or no outer.interval_schedule");
    if (s->train_stages.count)
        config_broken(r, "outer.interval_schedule: the stages of train.stages end at multiples of "
                         "outer.sync_every; "
                         "leave one of the two out");
}

/* Rounds by time end at one step of all fragments, and only their steps are recorded. */
static void check_time(struct config_rules *r, const struct outer_settings *o,
                       const struct settings *s)
{
    const struct config_excluded rows[] = {
        {o->outer_sync_every < 2, "outer.sync_every", "the most steps of a round, at least 2"},
        {o->outer_fragments != 1 || o->outer_partition == FRAGMENT_SLICES, "outer.fragments", "1"},
        {o->outer_overlap_steps > 0, "outer.overlap_steps", "0"},
        {o->outer_interval_schedule.count > 0, "outer.interval_schedule", "[]"},
        {o->outer_moment1_every || o->outer_moment2_every, "outer.moment1_every and moment2_every",
         "0"},
        {o->outer_mode != OUTER_MODE_STRICT, "outer.mode", "strict: no site is late by its speed"},
        {s->train_compress != TRAIN_COMPRESS_NONE, "train.compress", "none"}};
    char every[48];
    snprintf(every, sizeof every, "outer.sync_interval_s = %g", o->outer_sync_interval_s);
    config_needs(r, every, rows, o->outer_sync_interval_s > 0 ? sizeof rows / sizeof *rows : 0,
                 "; or leave outer.sync_interval_s at 0");
}

/* Values are drawn out of the one fragment of all parameters; those of other rounds keep theta, the
 * momentum and the residual, but a shared scale, a sum and a cycle would be of all. */
/* A codec of which the aggregator forwards the sum alone, in some rounds of the parameters; NULL:
 * there is none. */
static const struct codec *sums_codec(const struct outer_settings *o)
{
    const struct codec *own = codec_get(o->outer_codec);
    const struct codec *full = codec_get(codec_full_precision(own->kind, o->outer_full_precision));
    return own->summable ? own : full->summable ? full : NULL;
}

static const char *sums_key(const struct outer_settings *o)
{
    return codec_get(o->outer_codec)->summable ? "outer.codec" : "outer.full_precision";
}

static void check_draw(struct config_rules *r, const struct outer_settings *o,
                       const struct settings *s)
{
    const struct config_excluded rows[] = {
        {o->outer_fragments != 1 || o->outer_partition == FRAGMENT_SLICES, "outer.fragments", "1"},
        {o->outer_overlap_steps == o->outer_sync_every, "outer.overlap_steps",
         "0: a round has to be applied before the next is sent"},
        {o->outer_moment1_every || o->outer_moment2_every, "outer.moment1_every and moment2_every",
         "0"},
        {sums_codec(o) != NULL, sums_key(o), "bf16: without scales that the sites share"},
        {o->outer_merge != MERGE_MEAN, "outer.merge", "mean: tensors are not whole"},
        {o->outer_nesterov_period > 1, "outer.nesterov_period", "1"},
        {o->outer_downlink_compression_from > 0 &&
             (size_t)o->outer_downlink_compression_from <= o->outer_sites.count,
         "outer.downlink_compression_from", "0"},
        {s->train_stages.count > 0, "train.stages", "[]"}};
    char draw[48];
    snprintf(draw, sizeof draw, "outer.sync_fraction = %g", o->outer_sync_fraction);
    config_needs(r, draw, rows, o->outer_sync_fraction < 1 ? sizeof rows / sizeof *rows : 0,
                 "; or leave outer.sync_fraction at 1");
}

/* Steps between two sends of a slice, at least. */
static int64_t shortest_gap(const struct outer_settings *o, const struct fragment_slice *slice)
{
    struct period p = {.every = o->outer_sync_every, .more_count = slice->more_count};
    for (unsigned i = 0; i < slice->more_count; i++)
        p.more[i] = slice->more[i] - slice->at;
    return period_shortest(&p);
}

/* A slice that is sent several times in a period: a round is applied before the next is sent. */
static void check_several(struct config_rules *r, const struct outer_settings *o,
                          const struct fragment_slice *slice, const char *text)
{
    long long gap = shortest_gap(o, slice), most = o->outer_before_update ? gap : gap - 1;
    if (!slice->more_count)
        return;
    if (o->outer_overlap_steps > most)
        config_broken(r,
                      "outer.slices: \"%.80s\" is sent again after %lld steps, and with "
                      "outer.overlap_steps = %lld the round before is then still in flight; the "
                      "nearest is outer.overlap_steps = %lld",
                      text, gap, (long long)o->outer_overlap_steps, most);
    if (o->outer_interval_schedule.count)
        config_broken(r,
                      "outer.slices: \"%.80s\" is sent several times in a period, and with "
                      "outer.interval_schedule periods differ; give one step, or leave "
                      "outer.interval_schedule out",
                      text);
}

/* Checks the form of each entry. fragment_make checks that the slices hold every layer once. */
static void check_slices(struct config_rules *r, const struct outer_settings *o,
                         const struct settings *s)
{
    const struct config_list *slices = &o->outer_slices;
    struct fragment_slice slice;
    bool listed = o->outer_partition == FRAGMENT_SLICES;
    if (!listed && slices->count)
        config_broken(
            r,
            "outer.slices is given, but outer.partition = %s; make it slices, or leave the list "
            "out",
            config_choice_name(outer_partition_choices, o->outer_partition));
    if (listed && (slices->count < 1 || slices->count > ROUND_FRAGMENTS_MAX))
        config_broken(
            r,
            "outer.slices has %zu entries; outer.partition = slices needs 1 to %d of the form "
            "FIRST-LAST@STEP",
            slices->count, ROUND_FRAGMENTS_MAX);
    if (listed && o->outer_fragments != 1 && (size_t)o->outer_fragments != slices->count)
        config_broken(
            r,
            "outer.fragments = %lld, but outer.slices has %zu entries; leave outer.fragments out",
            (long long)o->outer_fragments, slices->count);
    for (size_t i = 0; listed && i < slices->count; i++)
        if (fragment_slice_parse(&slice, slices->items[i], (int)s->model_layers,
                                 o->outer_sync_every))
            check_several(r, o, &slice, slices->items[i]);
        else
            config_broken(
                r,
                "outer.slices: \"%.80s\" is not FIRST-LAST@STEP with layers embed, 0..%lld, "
                "final and a step of "
                "1..%lld (outer.sync_every), or several as 2+5",
                slices->items[i], (long long)s->model_layers - 1, (long long)o->outer_sync_every);
}

/* A moment's rounds fall on steps that also exchange parameters, so that a restart finds both. */
static void check_moments(struct config_rules *r, const struct outer_settings *o,
                          const struct settings *s)
{
    const struct optim_method *method = optim_method_of(s);
    const struct {
        const char *name;
        long long every;
        bool kept;
    } moment[] = {{"first", o->outer_moment1_every, method->first},
                  {"second", o->outer_moment2_every, method->second}};
    long long base = o->outer_sync_every, parts = 1;
    for (size_t i = 0; i < 2; i++) {
        long long below = moment[i].every / base * base;
        parts += moment[i].every > 0;
        if (moment[i].every && !moment[i].kept)
            config_broken(r,
                          "outer.moment%zu_every = %lld: train.optimizer = %s keeps no %s moment "
                          "to average; use "
                          "0",
                          i + 1, moment[i].every, method->name, moment[i].name);
        if (below != moment[i].every)
            config_broken(
                r,
                "outer.moment%zu_every = %lld is not a multiple of outer.sync_every = %lld; the "
                "nearest are "
                "%lld and %lld",
                i + 1, moment[i].every, base, below, below + base);
    }
    if (o->outer_moment2_every &&
        (s->train_compress == TRAIN_COMPRESS_ONEBIT || s->train_compress == TRAIN_COMPRESS_ZEROONE))
        config_broken(r,
                      "outer.moment2_every = %lld with train.compress = %s, which freezes the "
                      "second moment: an average would change it; use outer.moment2_every = 0",
                      (long long)o->outer_moment2_every,
                      config_choice_name(train_compress_choices, s->train_compress));
    if (parts > 1 && s->train_zero_stage)
        config_broken(
            r, "train.zero_stage divides the moments among the ranks, and outer.moment1_every or "
               "moment2_every sends them "
               "whole from one; use train.zero_stage = 0");
    parts *= o->outer_partition != FRAGMENT_SLICES ? o->outer_fragments
                                                   : (long long)o->outer_slices.count;
    if (parts > ROUND_FRAGMENTS_MAX)
        config_broken(
            r,
            "%lld fragments of parameters and moments are more than %d; use fewer outer.fragments",
            parts, ROUND_FRAGMENTS_MAX);
}

/* A stage ends where a round ends, and every value is in one fragment with one clock. */
static void check_stages(struct config_rules *r, const struct outer_settings *o,
                         const struct settings *s)
{
    const struct config_excluded rows[] = {
        {o->outer_fragments != 1 || o->outer_partition == FRAGMENT_SLICES, "outer.fragments", "1"},
        {o->outer_overlap_steps > 0, "outer.overlap_steps", "0"},
        {o->outer_moment1_every || o->outer_moment2_every, "outer.moment1_every and moment2_every",
         "0"},
        {o->outer_downlink_compression_from > 0 &&
             (size_t)o->outer_downlink_compression_from <= o->outer_sites.count,
         "outer.downlink_compression_from", "0"},
        {o->outer_mode != OUTER_MODE_STRICT, "outer.mode", "strict"}};
    long long every = o->outer_sync_every, end = 0;
    config_needs(r, "train.stages with an outer loop", rows, sizeof rows / sizeof *rows,
                 ": all sites begin a stage with the same parameters");
    double share = 0;
    for (size_t i = 0; i + 1 < s->train_stages.count; i++) {
        share += keys_stage(s, i).share;
        end = llround(share * (double)s->train_steps);
        long long near = (end + every / 2) / every * every;
        near = near ? near : every;
        if (near >= s->train_steps && near > every)
            near -= every;
        if (end % every && near >= s->train_steps)
            config_broken(
                r,
                "train.stages: the stage \"%.40s\" ends after step %lld, which is no "
                "multiple of outer.sync_every = %lld; the nearest is outer.sync_every = %lld",
                s->train_stages.items[i], end, every, end);
        else if (end % every)
            config_broken(
                r,
                "train.stages: the stage \"%.40s\" ends after step %lld, which is no "
                "multiple of outer.sync_every = %lld; the nearest is %lld, with shares that "
                "add up to %.10g",
                s->train_stages.items[i], end, every, near, (double)near / (double)s->train_steps);
    }
}

/* The gathered codec of about as many bits. */
static enum codec_kind forwarded(enum codec_kind kind)
{
    if (kind == CODEC_FIXED)
        return CODEC_BF16;
    if (kind == CODEC_INT8)
        return CODEC_FP8_E4M3;
    return kind == CODEC_INT4 ? CODEC_E3M0 : CODEC_TOPK;
}

/* Between two sums of train.compress = zeroone the ranks of a site have different parameters. */
static void check_local_steps(struct config_rules *r, const struct outer_settings *o,
                              const struct settings *s)
{
    const struct config_excluded rows[] = {
        {o->outer_overlap_steps > 0, "outer.overlap_steps", "0"},
        {o->outer_sync_interval_s > 0, "outer.sync_interval_s", "0"},
        {o->outer_mode != OUTER_MODE_STRICT, "outer.mode", "strict"}};
    bool local = s->train_compress == TRAIN_COMPRESS_ZEROONE;
    config_needs(
        r, "train.compress = zeroone with several sites", rows,
        local ? sizeof rows / sizeof *rows : 0,
        ": a round must find the ranks' parameters equal, so its step must be known before; "
        "or use train.compress = onebit");
}

/* A merge that reads each contribution. */
static void check_merge(struct config_rules *r, const struct outer_settings *o)
{
    const char *merge = config_choice_name(merge_kind_choices, o->outer_merge);
    if (!merge_reads_each(o->outer_merge))
        return;
    if (sums_codec(o))
        config_broken(r,
                      "outer.merge = %s needs each site's contribution, and with %s = %s the "
                      "aggregator forwards only the sum; the nearest is %s = %s, or outer.merge = "
                      "mean",
                      merge, sums_key(o), sums_codec(o)->name, sums_key(o),
                      codec_get(forwarded(sums_codec(o)->kind))->name);
    if (o->outer_downlink_compression_from > 0 &&
        (size_t)o->outer_downlink_compression_from <= o->outer_sites.count)
        config_broken(r,
                      "outer.merge = %s needs each site's contribution, and from %lld sites on the "
                      "aggregator forwards one compressed sum; use "
                      "outer.downlink_compression_from = 0, or outer.merge = mean",
                      merge, (long long)o->outer_downlink_compression_from);
    if (o->outer_merge == MERGE_RADIAL && o->outer_partition == FRAGMENT_RANDOM)
        config_broken(r,
                      "outer.merge = %s works on whole tensors, and outer.partition = random cuts "
                      "them; the nearest is outer.partition = balanced, or outer.merge = mean",
                      merge);
    if (o->outer_eager)
        config_broken(r,
                      "outer.merge = %s with outer.eager: an eager start takes the other sites' "
                      "part out of the mean; use outer.eager = false, or outer.merge = mean",
                      merge);
}

/* A part of one site's contribution can be left out only where each contribution is forwarded. */
static void check_clip(struct config_rules *r, const struct outer_settings *o)
{
    if (!(o->outer_clip > 0))
        return;
    if (sums_codec(o))
        config_broken(r,
                      "outer.clip = %g needs each site's contribution, and with %s = %s the "
                      "aggregator forwards only the sum; the nearest is %s = %s, or outer.clip = 0",
                      o->outer_clip, sums_key(o), sums_codec(o)->name, sums_key(o),
                      codec_get(forwarded(sums_codec(o)->kind))->name);
    if (o->outer_merge == MERGE_CLIPPED || o->outer_merge == MERGE_EDIT)
        config_broken(r,
                      "outer.clip = %g with outer.merge = %s, which weighs by norms itself; use "
                      "outer.merge = mean, or outer.clip = 0",
                      o->outer_clip, config_choice_name(merge_kind_choices, o->outer_merge));
    if (o->outer_downlink_compression_from > 0 &&
        (size_t)o->outer_downlink_compression_from <= o->outer_sites.count)
        config_broken(r,
                      "outer.clip = %g needs each site's contribution, and from %lld sites on the "
                      "aggregator forwards one compressed sum; use "
                      "outer.downlink_compression_from = 0, or outer.clip = 0",
                      o->outer_clip, (long long)o->outer_downlink_compression_from);
    if (o->outer_eager)
        config_broken(
            r,
            "outer.clip = %g with outer.eager: an eager start takes the other sites' part "
            "out of the mean; use outer.eager = false, or outer.clip = 0",
            o->outer_clip);
}

/* ---- secure aggregation ---- */

enum { MASKED_SITES_MAX = 512 }; /* seal and signatures of a round are one message */

static unsigned threshold_of(const struct outer_settings *o)
{
    unsigned n = (unsigned)o->outer_sites.count, most = 2 * n / 3 + 1;
    if (o->privacy_threshold)
        return (unsigned)o->privacy_threshold;
    return o->outer_mode == OUTER_MODE_STRICT || most > n ? n : most;
}

/* How many sites a threshold of `t` among `n` withstands; negative: it is too small. */
static int colluding_of(unsigned n, unsigned t)
{
    int by_honest = (int)t - 2, by_once = 2 * (int)t - (int)n - 1;
    return by_honest < by_once ? by_honest : by_once;
}

struct round_masks keys_masks(const struct outer_settings *o)
{
    bool on = o->privacy_secure == PRIVACY_SECURE_SUM;
    int colluding = on ? colluding_of((unsigned)o->outer_sites.count, threshold_of(o)) : 0;
    return (struct round_masks){.on = on,
                                .two_sites = o->privacy_two_sites,
                                .colluding = colluding > 0 ? (unsigned)colluding : 0,
                                .threshold = on ? threshold_of(o) : 0};
}

static struct round_leave masks_leave(const struct outer_settings *o)
{
    const struct round_masks m = keys_masks(o);
    return round_leave(&m, (unsigned)o->outer_sites.count, o->outer_mode == OUTER_MODE_STRICT);
}

static void check_masked_sites(struct config_rules *r, const struct outer_settings *o)
{
    unsigned n = (unsigned)o->outer_sites.count, t = threshold_of(o);
    if (n == 2 && !o->privacy_two_sites)
        config_broken(r, "privacy.secure = sum with two sites hides nothing: each takes its own "
                         "values off the sum. Have a third site, or say so: privacy.two_sites = "
                         "true");
    else if (n < 2 || n > MASKED_SITES_MAX)
        config_broken(r, "privacy.secure = sum needs 3 to %d sites, and outer.sites has %u",
                      MASKED_SITES_MAX, n);
    else if (t > n || colluding_of(n, t) < 0)
        config_broken(r,
                      "privacy.threshold = %u of %u sites: at least %u, so that two honest sites "
                      "are in each sum and no round has two, and at most %u",
                      t, n, round_threshold(n, 0), n);
    else if (!o->privacy_two_sites && masks_leave(o).pairs)
        config_broken(
            r,
            "privacy.threshold = %u of %u sites opens sums of two sites when one is away, "
            "and each of the two then takes its own values off the sum. Give %u, or say "
            "so: privacy.two_sites = true",
            t, n, t + 1);
}

/* What would tell the aggregator something of one site, or needs one site's contribution. */
static void check_replan(struct config_rules *r, const struct outer_settings *o)
{
    if (o->outer_replan && o->outer_aggregators > 1)
        config_broken(r,
                      "outer.replan = true needs outer.aggregators = 1, not %lld: each of them "
                      "would amend by itself",
                      (long long)o->outer_aggregators);
    if (o->outer_replan &&
        (o->outer_interval_schedule.count || o->outer_slices.count || o->outer_sync_interval_s > 0))
        config_broken(r, "outer.replan = true amends outer.sync_every, which "
                         "outer.interval_schedule, outer.slices "
                         "and outer.sync_interval_s do not allow; leave it at false");
}

static void check_masked(struct config_rules *r, const struct outer_settings *o)
{
    const struct codec *c = codec_get(o->outer_codec);
    const struct config_excluded rows[] = {
        {!codec_words_bytes(c, DEV_BLOCK, 1), "outer.codec",
         "int8, int4, int2, sign or fixed: contributions have to add as integers, of all values"},
        {o->outer_moment1_every > 0 || o->outer_moment2_every > 0,
         "outer.moment1_every and moment2_every", "0: moments stay in the site"},
        {o->outer_merge != MERGE_MEAN, "outer.merge", "mean: others read each contribution"},
        {o->outer_clip > 0, "outer.clip", "0: no other process sees a site's norm"},
        {o->outer_weights != WEIGHTS_EQUAL, "outer.weights",
         "equal: other weights tell how much data a site has"},
        {o->outer_eager, "outer.eager", "false"},
        {o->outer_sync_fraction < 1, "outer.sync_fraction", "1"},
        {o->outer_residual_reset > 0, "outer.residual_reset", "0: residuals are not told"},
        {o->outer_aggregators > 1, "outer.aggregators", "1"},
    };
    if (o->privacy_secure != PRIVACY_SECURE_SUM || !o->outer_sites.count)
        return;
    check_masked_sites(r, o);
    config_needs(r, "privacy.secure = sum", rows, sizeof rows / sizeof *rows, "");
}

static void check_full_precision(struct config_rules *r, const struct outer_settings *o)
{
    bool moments = o->outer_moment1_every > 0 || o->outer_moment2_every > 0;
    if (moments &&
        codec_full_precision(o->outer_moments_codec, o->outer_full_precision) == CODEC_FIXED)
        config_broken(r,
                      "outer.full_precision = fixed with outer.moments_codec = %s: second moments "
                      "are smaller than its step of 2^-24; the nearest is outer.moments_codec = "
                      "bf16, or outer.full_precision = bf16",
                      codec_get(o->outer_moments_codec)->name);
}

/* A momentum that the rounds change. */
static void check_momentum(struct config_rules *r, const struct outer_settings *o, bool momentum)
{
    const struct {
        const char *rounds_key, *key;
        int64_t rounds;
        double value;
    } ways[] = {{"outer.momentum_warmup", "outer.momentum_start", o->outer_momentum_warmup,
                 o->outer_momentum_start},
                {"outer.momentum_cooldown", "outer.momentum_end", o->outer_momentum_cooldown,
                 o->outer_momentum_end}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (ways[i].rounds && !momentum)
            config_broken(r,
                          "%s = %lld: outer.optimizer = %s keeps no momentum; the nearest is "
                          "outer.optimizer = nesterov, or %s = 0",
                          ways[i].rounds_key, (long long)ways[i].rounds,
                          config_choice_name(outer_opt_kind_choices, o->outer_optimizer),
                          ways[i].rounds_key);
        if (!ways[i].rounds && ways[i].value > 0)
            config_broken(r, "%s = %g needs %s: the number of rounds; or leave it out", ways[i].key,
                          ways[i].value, ways[i].rounds_key);
    }
}

static void check_outer_optimizer(struct config_rules *r, const struct outer_settings *o)
{
    const char *name = config_choice_name(outer_opt_kind_choices, o->outer_optimizer);
    const struct outer_opt_row *row = outer_opt_row(o->outer_optimizer);
    if (o->outer_nesterov_period > 1 && !row->cycle)
        config_broken(r,
                      "outer.nesterov_period = %lld needs outer.optimizer = delayed_nesterov, not "
                      "%s; or leave it at 1",
                      (long long)o->outer_nesterov_period, name);
    const struct {
        const char *key;
        double value, fallback;
        bool used;
        const char *optimizer;
    } owned[] = {{"outer.beta2", o->outer_beta2, 0.99, row->squares, "adam"},
                 {"outer.eps", o->outer_eps, 0.001, row->squares, "adam"},
                 {"outer.interpolation", o->outer_interpolation, OUTER_INTERPOLATION,
                  row->interpolates, "primal"}};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        if (owned[i].value != owned[i].fallback && !owned[i].used)
            config_broken(r,
                          "%s = %g belongs to outer.optimizer = %s; outer.optimizer is %s: leave "
                          "it out",
                          owned[i].key, owned[i].value, owned[i].optimizer, name);
    if (o->outer_lr_schedule != ANNEAL_CONSTANT && row->fixed)
        config_broken(r,
                      "outer.lr_schedule = %s: outer.optimizer = %s has the rate %g in every "
                      "round; the nearest is outer.optimizer = sgd with outer.lr = %g, or "
                      "outer.lr_schedule = constant",
                      config_choice_name(anneal_kind_choices, o->outer_lr_schedule), name,
                      (double)row->rate, (double)row->rate);
    if (o->outer_lr_schedule == ANNEAL_CONSTANT && o->outer_min_lr_ratio != ANNEAL_END)
        config_broken(
            r,
            "outer.min_lr_ratio = %g belongs to outer.lr_schedule, which is constant; leave it "
            "out, or choose outer.lr_schedule = linear or cosine",
            o->outer_min_lr_ratio);
    if (o->outer_momentum_restart && !row->momentum)
        config_broken(r,
                      "outer.momentum_restart = %lld: outer.optimizer = %s keeps no momentum; the "
                      "nearest is outer.optimizer = nesterov, or outer.momentum_restart = 0",
                      (long long)o->outer_momentum_restart, name);
    check_momentum(r, o, row->momentum);
}

static void check_sites(struct config_rules *r, const struct config_list *sites)
{
    if (sites->count > ROUND_SITES_MAX) {
        config_broken(r, "outer.sites has %zu names, at most %d are possible", sites->count,
                      ROUND_SITES_MAX);
        return;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < sites->count; i++)
        bytes += strlen(sites->items[i]) + 1;
    if (bytes > ROSTER_BYTES_MAX)
        config_broken(
            r,
            "outer.sites: %zu bytes of names, at most %d are possible; %zu sites can have names "
            "of %zu bytes",
            bytes, ROSTER_BYTES_MAX, sites->count, ROSTER_BYTES_MAX / sites->count - 1);
    for (size_t i = 0; i < sites->count; i++) {
        if (!site_name_good(sites->items[i]))
            config_broken(r, "outer.sites: \"%.80s\": allowed are 1 to %d letters, digits, - and _",
                          sites->items[i], SITE_NAME_MAX);
        for (size_t k = 0; k < i; k++)
            if (strcmp(sites->items[i], sites->items[k]) == 0)
                config_broken(r, "outer.sites: \"%.80s\" is listed twice", sites->items[i]);
    }
}

static bool listed(const struct config_list *sites, const char *name)
{
    for (size_t i = 0; i < sites->count; i++)
        if (strcmp(sites->items[i], name) == 0)
            return true;
    return false;
}

/* Port 0 only for listening. */
static void check_address(struct config_rules *r, const char *key, const char *address, long least)
{
    char host[ADDRESS_HOST_MAX], port[ADDRESS_PORT_MAX];
    if (address_split(address, least, host, port) != ERR_OK)
        config_broken(r, "%s: %s", key, err_message());
}

bool keys_self(const struct outer_settings *o)
{
    return !strcmp(o->site_aggregator, "self");
}

bool keys_aggregator(const char *list, unsigned index, char *out, size_t size)
{
    for (; index; index--) {
        list += strcspn(list, ",");
        if (!*list++)
            return false;
    }
    size_t n = strcspn(list, ",");
    if (!n || n >= size)
        return false;
    memcpy(out, list, n);
    out[n] = 0;
    return true;
}

static void check_aggregators(struct config_rules *r, const struct outer_settings *o)
{
    char item[256];
    unsigned count = 1;
    for (const char *c = o->site_aggregator; *c; c++)
        count += *c == ',';
    if (o->outer_aggregators > o->outer_fragments)
        config_broken(
            r,
            "outer.aggregators = %lld is more than outer.fragments = %lld; each serves at least "
            "one",
            (long long)o->outer_aggregators, (long long)o->outer_fragments);
    if (o->serve_index >= o->outer_aggregators)
        config_broken(r,
                      "serve.index = %lld, but outer.aggregators = %lld; indices go from 0 to %lld",
                      (long long)o->serve_index, (long long)o->outer_aggregators,
                      (long long)o->outer_aggregators - 1);
    if (!*o->site_aggregator)
        return;
    if (keys_self(o)) {
        if (o->outer_sites.count > 1 || o->outer_aggregators > 1)
            config_broken(
                r,
                "site.aggregator = self is for a run of one site and one aggregator, "
                "outer.sites has %zu and outer.aggregators is %lld; give host:port of the "
                "aggregator that all sites dial",
                o->outer_sites.count, (long long)o->outer_aggregators);
        return;
    }
    if (count != (unsigned)o->outer_aggregators)
        config_broken(
            r, "site.aggregator names %u, outer.aggregators is %lld; give one address for each",
            count, (long long)o->outer_aggregators);
    for (unsigned i = 0; i < count; i++)
        if (keys_aggregator(o->site_aggregator, i, item, sizeof item))
            check_address(r, "site.aggregator", item, 1);
        else
            config_broken(r, "site.aggregator = \"%.80s\" is not host:port", o->site_aggregator);
}

/* outer.sites is what the run began with: whether an operator has added this site, the aggregator
 * knows. */
static void check_name(struct config_rules *r, const struct outer_settings *o)
{
    if (!*o->site_name || !o->outer_sites.count || listed(&o->outer_sites, o->site_name))
        return;
    if (!*o->site_aggregator || keys_self(o))
        config_broken(r, "site.name = \"%.80s\" is none of outer.sites", o->site_name);
    else if (!site_name_good(o->site_name))
        config_broken(r, "site.name = \"%.80s\": allowed are 1 to %d letters, digits, - and _",
                      o->site_name, SITE_NAME_MAX);
}

static void check_shards(struct config_rules *r, const struct outer_settings *o,
                         const struct settings *s)
{
    static const char use[] = "use lead";
    if (o->site_outer_state != SITE_OUTER_STATE_SHARDED)
        return;
    if (keys_self(o))
        config_broken(r,
                      "site.outer_state = sharded with site.aggregator = self: the aggregator is "
                      "in the lead's process, and other ranks cannot reach it; %s",
                      use);
    if (o->privacy_secure != PRIVACY_SECURE_OFF)
        config_broken(r,
                      "site.outer_state = sharded with privacy.secure: the keys of a site's "
                      "masks are the lead's alone; %s",
                      use);
    if (s->privacy_unit != PRIVACY_UNIT_NONE)
        config_broken(r,
                      "site.outer_state = sharded with privacy.unit: the lead compares its list of "
                      "charges with the manifests of all fragments; %s",
                      use);
    if (*o->run_archive && strcmp(o->run_archive, "off") != 0)
        config_broken(r,
                      "site.outer_state = sharded with run.archive at a site: one process "
                      "writes the archive; %s, or keep the archive at the aggregator",
                      use);
}

static void check_site(struct config_rules *r, const struct outer_settings *o,
                       const struct settings *s)
{
    double tokens = o->site_batch_scale * (double)s->train_batch_tokens;
    if (*o->site_aggregator && !o->outer_sites.count)
        config_broken(
            r, "outer.sites is empty, but site.aggregator is given; list the names of all sites "
               "of the run");
    if (*o->site_aggregator && s->train_modules > 1)
        config_broken(r,
                      "train.modules = %lld with site.aggregator = %.80s: a round reads parameters "
                      "that are whole on the lead; use train.modules = 1, or leave "
                      "site.aggregator empty",
                      (long long)s->train_modules, o->site_aggregator);
    check_aggregators(r, o);
    check_name(r, o);
    check_shards(r, o, s);
    /* the share must give whole sequences: rounding would change the weight of this site */
    double sequences = tokens / (double)s->train_seq_len;
    if (sequences < 0.5 || fabs(sequences - nearbyint(sequences)) > 1e-6)
        config_broken(r,
                      "site.batch_scale = %g of train.batch_tokens = %lld is not a multiple of "
                      "train.seq_len = "
                      "%lld",
                      o->site_batch_scale, (long long)s->train_batch_tokens,
                      (long long)s->train_seq_len);
}

static void check_rate(struct config_rules *r, const char *key, double rate)
{
    if (rate > 0 && rate < 0.01)
        config_broken(r, "%s = %g Mbit/s would never end; 0.01 is the least, 0 sets no limit", key,
                      rate);
}

/* ---- evaluation in a run ---- */

bool keys_named_file(const char *item, char name[SITE_NAME_MAX + 1], const char **file)
{
    size_t n = strcspn(item, "=");
    *file = item + n + (item[n] == '=');
    *name = 0;
    if (item[n] != '=' || n > SITE_NAME_MAX || !**file)
        return false;
    memcpy(name, item, n);
    name[n] = 0;
    return site_name_good(name);
}

static void check_named_files(struct config_rules *r, const char *key,
                              const struct config_list *list)
{
    char name[SITE_NAME_MAX + 1], other[SITE_NAME_MAX + 1];
    const char *file;
    if (list->count > KEYS_EVALS_MAX)
        config_broken(r, "%s has %zu entries, at most %d", key, list->count, KEYS_EVALS_MAX);
    for (size_t i = 0; i < list->count; i++) {
        if (!keys_named_file(list->items[i], name, &file)) {
            config_broken(
                r,
                "%s: \"%.80s\" is not NAME=FILE with a name of 1 to %d letters, digits, - "
                "and _",
                key, list->items[i], SITE_NAME_MAX);
            continue;
        }
        for (size_t k = 0; k < i; k++)
            if (keys_named_file(list->items[k], other, &file) && strcmp(name, other) == 0)
                config_broken(r, "%s: the name %s is given twice", key, name);
    }
}

static void check_shots(struct config_rules *r, const struct outer_settings *o)
{
    char name[SITE_NAME_MAX + 1], task[SITE_NAME_MAX + 1];
    const char *file;
    if (!o->eval_shots != !o->eval_shots_from.count)
        config_broken(r,
                      "eval.shots = %lld and eval.shots_from go together; eval.shots_from has "
                      "%zu files",
                      (long long)o->eval_shots, o->eval_shots_from.count);
    for (size_t i = 0; i < o->eval_shots_from.count; i++) {
        bool found = !keys_named_file(o->eval_shots_from.items[i], name, &file);
        for (size_t k = 0; k < o->eval_tasks.count; k++)
            found = found || (keys_named_file(o->eval_tasks.items[k], task, &file) &&
                              strcmp(name, task) == 0);
        if (!found)
            config_broken(r, "eval.shots_from: %s is none of eval.tasks", name);
    }
}

static void check_evaluation(struct config_rules *r, const struct outer_settings *o,
                             const struct settings *s)
{
    bool any = o->eval_tasks.count || o->eval_prompts.count;
    check_named_files(r, "eval.tasks", &o->eval_tasks);
    check_named_files(r, "eval.shots_from", &o->eval_shots_from);
    check_shots(r, o);
    if (o->eval_prompts.count > KEYS_EVALS_MAX)
        config_broken(r, "eval.prompts has %zu entries, at most %d", o->eval_prompts.count,
                      KEYS_EVALS_MAX);
    if (any && !s->model_causal)
        config_broken(r,
                      "eval.%s with model.causal = false: choices are scored, and prompts are "
                      "continued, by the likelihood of each next id, and an encoder has none; use "
                      "data.eval, whose masked tokens, pairs or labels are scored",
                      o->eval_tasks.count ? "tasks" : "probes");
    if (o->eval_every_rounds && !any)
        config_broken(r,
                      "eval.every_rounds = %lld, and there is nothing to evaluate: give "
                      "eval.tasks or eval.prompts",
                      (long long)o->eval_every_rounds);
    if (o->eval_prompts.count && o->privacy_secure == PRIVACY_SECURE_SUM &&
        s->privacy_unit == PRIVACY_UNIT_NONE)
        config_broken(r,
                      "eval.prompts with privacy.secure = sum and privacy.unit = none: the outer "
                      "parameters have no differential privacy, and a continuation could repeat "
                      "a site's text; leave eval.prompts out, or give privacy.unit");
}

/* A word that means on or off elsewhere would be taken for a directory of that name. */
static void check_archive(struct config_rules *r, const struct outer_settings *o)
{
    static const char *const words[] = {"", "true", "false", "yes", "no", "none"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(o->run_archive, words[i]) == 0)
            config_broken(
                r,
                "run.archive = \"%s\": give on, off, or a directory (./%s for one of that "
                "name)",
                words[i], words[i]);
    if (o->run_archive_states && strcmp(o->run_archive, "off") == 0)
        config_broken(r, "run.archive_states = %lld needs run.archive: on, or a directory",
                      (long long)o->run_archive_states);
}

/* What other runs have charged must outlive this run's directory. */
static void check_ledger(struct config_rules *r, const struct outer_settings *o,
                         const struct settings *s)
{
    const char *ledger = o->privacy_ledger, *run = s->run_dir;
    size_t n = strlen(run);
    if (!*ledger)
        return;
    while (n > 1 && run[n - 1] == '/')
        n--;
    if (strncmp(ledger, run, n) == 0 && (!ledger[n] || ledger[n] == '/'))
        config_broken(
            r,
            "privacy.ledger = %.200s lies in run.dir = %.200s: give a directory outside of "
            "every run.dir, one for all runs over the same people",
            ledger, run);
    if (s->privacy_unit == PRIVACY_UNIT_NONE)
        config_broken(r, "privacy.ledger with privacy.unit = none: nothing is charged; give "
                         "privacy.unit, such as owner, or leave privacy.ledger out");
}

/* The page asks for no identity: it may be reached from this machine alone. */
static void check_http(struct config_rules *r, const char *key, const char *address)
{
    if (*address && !loopback_address(address))
        config_broken(
            r,
            "%s = \"%.80s\" is no loopback address with a port: any reader who reaches the "
            "page sees it, so give 127.0.0.1:PORT; from elsewhere: atoll watch --aggregator "
            "HOST:PORT, or ssh -L",
            key, address);
}

void keys_outer_check(struct config_rules *r, const struct outer_settings *o,
                      const struct settings *s)
{
    check_every(r, o, s);
    check_overlap(r, o);
    check_grow(r, o, s);
    check_time(r, o, s);
    check_draw(r, o, s);
    check_slices(r, o, s);
    check_moments(r, o, s);
    check_merge(r, o);
    check_clip(r, o);
    check_masked(r, o);
    check_full_precision(r, o);
    check_outer_optimizer(r, o);
    check_replan(r, o);
    if (s->train_stages.count && o->outer_sites.count)
        check_stages(r, o, s);
    if (o->outer_sites.count)
        check_local_steps(r, o, s);
    check_sites(r, &o->outer_sites);
    check_site(r, o, s);
    check_archive(r, o);
    check_ledger(r, o, s);
    check_evaluation(r, o, s);
    if (o->outer_downlink_compression_from == 1)
        config_broken(r, "outer.downlink_compression_from = 1 would encode one site's contribution "
                         "twice; 2 is the "
                         "least, 0 never does");
    if (o->outer_grace_fraction > 0 && o->outer_mode == OUTER_MODE_STRICT)
        config_broken(
            r,
            "outer.grace_fraction = %g needs outer.mode = quorum: a strict round waits for all "
            "sites; or outer.grace_fraction = 0",
            o->outer_grace_fraction);
    if (o->outer_grace_fraction > 0 && !o->outer_overlap_steps)
        config_broken(r,
                      "outer.grace_fraction = %g is a share of the time that overlap hides, and "
                      "outer.overlap_steps is 0; the nearest is outer.overlap_steps = 1, or "
                      "outer.grace_fraction = 0 with outer.straggler_timeout_s",
                      o->outer_grace_fraction);
    check_rate(r, "site.rate_up", o->site_rate_up);
    check_rate(r, "site.rate_down", o->site_rate_down);
    if (o->outer_max_local_steps_offline && o->outer_mode == OUTER_MODE_STRICT)
        config_broken(
            r,
            "outer.max_local_steps_offline = %lld needs outer.mode = quorum; a strict site "
            "waits for its "
            "commit",
            (long long)o->outer_max_local_steps_offline);
    check_address(r, "serve.listen", o->serve_listen, 0);
    check_http(r, "serve.http", o->serve_http);
    check_http(r, "site.http", o->site_http);
    if (o->serve_receive_mib && o->serve_receive_mib < LINK_RECEIVE_MIB_MIN)
        config_broken(r,
                      "serve.receive_mib = %lld is not enough for two streams: at least %d, or 0",
                      (long long)o->serve_receive_mib, LINK_RECEIVE_MIB_MIN);
    if (!*o->serve_dir)
        config_broken(r, "serve.dir is empty; name the aggregator's directory");
}
