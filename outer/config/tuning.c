/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/config/tuning.h"
#include <math.h>
#include <stdio.h>
#include "kernels/base/log.h"

enum { TABLE_EVERY = 30, LARGE_EVERY = 500, MANY_SITES = 8 };
static const double TABLE_MU = 0.9, LARGE_LR = 0.7, RADIAL_SHARE = 0.3;

/* Linear interpolation through n points of ascending x; constant outside. */
static double between(const double *xs, const double *ys, size_t n, double x)
{
    size_t i = 1;
    if (x <= xs[0])
        return ys[0];
    while (i < n && xs[i] < x)
        i++;
    if (i == n)
        return ys[n - 1];
    return ys[i - 1] + (ys[i] - ys[i - 1]) * (x - xs[i - 1]) / (xs[i] - xs[i - 1]);
}

double tuning_table(unsigned sites, int64_t every)
{
    static const double log_sites[] = {0, 1, 2, 3}, lrs[] = {0.4, 0.6, 0.6, 0.8};
    double at_table = between(log_sites, lrs, 4, log2((double)sites));
    double large = fmax(at_table, LARGE_LR);
    const double log_every[] = {log(TABLE_EVERY), log(LARGE_EVERY)}, ends[] = {at_table, large};
    return between(log_every, ends, 2, log((double)every));
}

double tuning_rho(int64_t every)
{
    static const double log_every[] = {0, 4, 6, 8}, rho[] = {1, 0.98, 0.93, 0.73};
    return between(log_every, rho, 4, log2((double)every));
}

double tuning_effective(double lr, double mu, double rho)
{
    return lr * (1 + mu / (1 - mu * rho));
}

static bool has_momentum(const struct outer_settings *o)
{
    return outer_opt_row(o->outer_optimizer)->momentum;
}

/* A radial delta is as long as the deltas of the sites, the mean shorter by how far they point
 * apart. The table is for the mean; deltas of several rounds add up in the momentum. */
static double merge_share(const struct outer_settings *o)
{
    return o->outer_merge == MERGE_RADIAL && has_momentum(o) ? RADIAL_SHARE : 1;
}

/* The mean of the rate over the run, over outer.lr. */
static double mean_share(const struct outer_settings *o)
{
    const struct anneal a = {.kind = o->outer_lr_schedule, .end = o->outer_min_lr_ratio};
    return anneal_share(&a, 0.5);
}

enum outer_opt_kind tuning_optimizer(const struct outer_settings *o)
{
    return has_momentum(o) && codec_get(o->outer_codec)->momentum_in_residual ? OUTER_OPT_SGD
                                                                              : o->outer_optimizer;
}

struct tuning tuning_of(const struct outer_settings *o)
{
    struct tuning t = {.lr = o->outer_lr,
                       .from_table = o->outer_lr == 0,
                       .sites = o->outer_sites.count ? (unsigned)o->outer_sites.count : 1};
    t.mu = has_momentum(o) ? o->outer_momentum : 0;
    t.every = o->outer_sync_every *
              o->outer_nesterov_period; /* delayed Nesterov: one momentum step per cycle */
    t.rho = tuning_rho(t.every);
    int64_t tuned = t.every > TABLE_EVERY ? t.every : TABLE_EVERY;
    t.reference = merge_share(o) *
                  tuning_effective(tuning_table(t.sites, tuned), TABLE_MU, tuning_rho(tuned));
    /* Without momentum a step of the same size needs a larger rate; no rate above 1 is published.
     */
    double right = t.reference / tuning_effective(1, t.mu, t.rho);
    const struct outer_opt_row *row = outer_opt_row(o->outer_optimizer);
    t.own = row->rate > 0;
    /* A delta counts lr / (1 - mu) times with Nesterov's momentum, lr times when averaged. */
    t.share = row->interpolates ? 1 - t.mu : 1;
    t.right_lr = t.own ? round(1e6 * (double)row->rate) / 1e6
                       : fmin(OUTER_LR_MAX, round(100 * fmin(1, right) / t.share) / 100);
    if (row->fixed || t.from_table)
        t.lr = t.right_lr;
    t.effective = tuning_effective(t.share * mean_share(o) * t.lr, t.mu, t.rho);
    t.far = !t.own && t.effective > TUNING_GUARD * t.reference;
    t.twice = codec_get(o->outer_codec)->momentum_in_residual && t.mu > 0;
    return t;
}

struct tuning tuning_resolve(struct outer_settings *o)
{
    struct tuning t = tuning_of(o);
    o->outer_lr = t.lr;
    return t;
}

void tuning_text(const struct tuning *t, char *out, size_t size_bytes)
{
    if (t->own)
        snprintf(out, size_bytes, "%.4g, %s (of this outer.optimizer: %.4g)", t->lr,
                 t->from_table ? "the default" : "as set", t->right_lr);
    else
        snprintf(out, size_bytes,
                 "%.4g, %s (published for %u site%s, momentum %.4g, %lld steps: %.4g)", t->lr,
                 t->from_table ? "from the table" : "as set", t->sites, t->sites == 1 ? "" : "s",
                 t->mu, (long long)t->every, t->right_lr);
}

void tuning_warning(const struct tuning *t, char *out, size_t size_bytes)
{
    *out = 0;
    if (t->twice)
        snprintf(out, size_bytes,
                 "outer.momentum = %.4g with a codec whose residual acts as a momentum: "
                 "together they raise the loss by 10 %% or more; use the published outer.optimizer "
                 "= sgd with "
                 "outer.lr = 1 (docs/methods.md 1.7, 1.8)",
                 t->mu);
    else if (t->far)
        snprintf(
            out, size_bytes,
            "outer.lr = %.4g with momentum %.4g over %lld steps steps %.2f times as far as the "
            "published setting and costs loss; outer.lr = %.4g would be right (leave it out), or a "
            "larger outer.sync_every",
            t->lr, t->mu, (long long)t->every, t->effective / t->reference, t->right_lr);
}

/* Of the rates at 6 and at 20 steps, between them on a line over the logarithm. */
static double short_rate(int64_t every, double at_6, double at_20)
{
    const double log_every[] = {log(TUNING_LEAST_EVERY), log(TUNING_SHORT_EVERY)},
                 lrs[] = {at_6, at_20};
    return round(100 * between(log_every, lrs, 2, log((double)every))) / 100;
}

/* The outer step of rows outer-rounds and distance-left. */
static bool is_measured(const struct outer_settings *o)
{
    return o->outer_optimizer == OUTER_OPT_MOMENTUM && o->outer_merge == MERGE_MEAN;
}

static bool lamb_decoder(const struct settings *s)
{
    return s->train_optimizer == OPTIM_LAMB && s->data_objective == DATA_OBJECTIVE_CAUSAL;
}

/* Is this a run like those whose momentum grew? Rows outer-rounds, trust-layers, distance-sites: 50
 * to 500 rounds of 6 to 60 steps, two to eight sites, LAMB in Atoll's own trainer, no cooldown. */
static bool grows(const struct settings *s, const struct outer_settings *o, int64_t rounds)
{
    return rounds > TUNING_GROWTH_ROUNDS && o->outer_sync_every >= TUNING_LEAST_EVERY &&
           o->outer_sites.count > 1 && !o->outer_momentum_cooldown && lamb_decoder(s) &&
           !*s->model_tensors;
}

/* Two sites, 50 rounds of 60 and 150 of 20 steps (row outer-rounds): a falling rate ends lower. At
 * four sites it does not (row trust-layers); shorter rounds: not measured. */
static bool falls(const struct outer_settings *o)
{
    return o->outer_sync_every >= TUNING_SHORT_EVERY && o->outer_sites.count == 2;
}

/* Eight sites want 1 at 20 and at 60 steps (rows distance-sites, outer-sites). At 6 steps 0.35 is
 * for all sizes: best at .84 M parameters (row outer-large), where 0.42 equals the best constant
 * momentum and 0.5 is above it; at .22 M, where 0.42 and 0.5 end 0.6 to 1.5 % lower (rows
 * outer-rounds, outer-sites), it is below the constant one, too. One seed but at two sites. */
static double growth_rate(const struct outer_settings *o)
{
    bool many = o->outer_sync_every >= TUNING_SHORT_EVERY && o->outer_sites.count >= MANY_SITES;
    return falls(o) || many ? 1 : short_rate(o->outer_sync_every, 0.35, 0.7);
}

struct tuning_momentum tuning_momentum(const struct settings *s, const struct outer_settings *o,
                                       int64_t rounds)
{
    if (rounds < TUNING_LEAST_ROUNDS || !is_measured(o))
        return (struct tuning_momentum){.mu = o->outer_momentum};
    if (grows(s, o, rounds))
        return (struct tuning_momentum){.measured = true,
                                        .mu = TABLE_MU,
                                        .lr = growth_rate(o),
                                        .start = 0.3,
                                        .warmup = rounds / 3,
                                        .falls = falls(o)};
    if (rounds <= TUNING_FEW_ROUNDS)
        return (struct tuning_momentum){.measured = true, .mu = 0.6, .lr = 1};
    bool brief = o->outer_sync_every < TUNING_SHORT_EVERY;
    return (struct tuning_momentum){.measured = true,
                                    .mu = TABLE_MU,
                                    .lr = brief ? short_rate(o->outer_sync_every, 0.26, 0.5) : 0};
}

void tuning_momentum_text(const struct settings *s, const struct outer_settings *o, int64_t rounds,
                          char *out, size_t size_bytes)
{
    static const double BETWEEN = 0.75; /* of the two that were measured */
    const struct tuning_momentum best = tuning_momentum(s, o, rounds);
    const double mu = o->outer_momentum;
    *out = 0;
    if (!best.measured || o->outer_momentum_warmup)
        return;
    if (best.warmup)
        snprintf(
            out, size_bytes,
            "small models' runs of 50 to 500 rounds and 14 tokens a parameter ended up to 6 %% "
            "lower with a momentum that grows: "
            "outer.momentum_start = %.4g, outer.momentum = %.4g, outer.momentum_warmup = "
            "%lld, outer.lr = %.4g%s (docs/choosing.md 2)",
            best.start, best.mu, (long long)best.warmup, best.lr,
            best.falls ? ", outer.lr_schedule = linear" : "");
    else if (best.mu < BETWEEN && mu > BETWEEN)
        snprintf(out, size_bytes,
                 "%lld rounds of a fragment are few for outer.momentum = %.4g: with %.4g and "
                 "outer.lr = %.4g "
                 "runs of 15 and of 50 rounds ended as low or lower (docs/choosing.md 2)",
                 (long long)rounds, mu, best.mu, best.lr);
    else if (best.mu > BETWEEN && mu < BETWEEN)
        snprintf(out, size_bytes,
                 "%lld rounds of a fragment are enough for outer.momentum = %.4g, which ended 1 to "
                 "4 %% lower "
                 "than 0.6 at 150 and at 500 rounds (docs/choosing.md 2)",
                 (long long)rounds, best.mu);
    else if (best.mu > BETWEEN && best.lr > 0 &&
             mean_share(o) * o->outer_lr > TUNING_GUARD * best.lr)
        snprintf(
            out, size_bytes,
            "outer.lr = %.4g is high for rounds of %lld steps, where %.4g is near the best one "
            "measured: at 6 steps 0.26 ended 2 %% lower than 0.5 (docs/choosing.md 2)",
            o->outer_lr, (long long)o->outer_sync_every, best.lr);
}

bool tuning_unmixed(const struct outer_settings *o, int64_t rounds)
{
    bool overlaps = o->outer_overlap_steps > 0 && o->outer_overlap_steps < o->outer_sync_every;
    return overlaps && rounds > TUNING_FEW_ROUNDS && is_measured(o);
}

void tuning_overlap_text(const struct outer_settings *o, int64_t rounds, char *out,
                         size_t size_bytes)
{
    *out = 0;
    if (tuning_unmixed(o, rounds) && keys_mix(o) > 0)
        snprintf(
            out, size_bytes,
            "outer.update_alpha = %.4g mixes %lld rounds with local parameters: with 0 a run of "
            "150 rounds of 20 steps ended 7 %% lower (docs/choosing.md 4)",
            keys_mix(o), (long long)rounds);
}

bool tuning_trust_hidden(const struct settings *s)
{
    return lamb_decoder(s) && s->train_trust_layers == TRAIN_TRUST_LAYERS_ALL &&
           !s->train_trust_all;
}

static void log_advice(const char *text)
{
    char quoted[600];
    if (*text)
        log_event(LOG_INFO, "outer_lr", "advice=%s", log_quote(quoted, sizeof quoted, text));
}

void tuning_log(const struct tuning *t, const struct settings *s, const struct outer_settings *o,
                int64_t rounds)
{
    char text[512], quoted[600];
    log_event(LOG_INFO, "outer_lr",
              "value=%.4g source=%s %s=%.4g sites=%u steps=%lld momentum=%.4g", t->lr,
              !t->from_table ? "set"
              : t->own       ? "default"
                             : "table",
              t->own ? "default" : "published", t->right_lr, t->sites, (long long)t->every, t->mu);
    tuning_warning(t, text, sizeof text);
    if (*text)
        log_event(LOG_WARN, "outer_lr", "why=%s", log_quote(quoted, sizeof quoted, text));
    tuning_momentum_text(s, o, rounds, text, sizeof text);
    log_advice(text);
    tuning_overlap_text(o, rounds, text, sizeof text);
    log_advice(text);
}
