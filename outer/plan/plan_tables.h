/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAN_TABLES_H
#define PLAN_TABLES_H
/* What was published about the price of local steps, as numbers to interpolate in. Pure. Between
 * the points: linear in the logarithm of parameters, sites and H. Beyond them the nearest edge
 * counts (sites: the last slope continues), and the answer says so.
 */
#include "outer/codec/codec.h"

struct plan_value {
    double value;
    bool extrapolated; /* outside of what was measured */
};

/* Loss over data-parallel training at equal tokens, H = 30, in percent: C4, AdamW inside, 20 tokens
 * per parameter (2503.09799, table of the measured losses; at 4 and 10 G parameters 8 was not tried
 * sites). */
struct plan_value plan_loss_sites(double parameters, double sites);
/* What another H than 30 adds, in percent. Its shape over H is ft-diloco's sweep (51 M parameters,
 * 2 sites: +2.8, 4.7, 6.3, 7.4, 9.4 % at H = 25, 50, 100, 200, 500). Its size is Streaming DiLoCo's
 * (2501.18512, table 5: 35 M to 1 G parameters lose 0.7 % from H = 30 to 100, without a trend).
 * `high`: ft-diloco's own size, 4.3 times that. */
struct plan_value plan_loss_every(double every, double *high);
/* What tau steps of overlap add, in percent: up to 10 cost less than 0.2 (2501.18512). */
struct plan_value plan_loss_overlap(double tau);
/* What a codec adds over f32, in percent; `high`: the worst that was measured. Dense codecs: e3m0,
 * fp8, int8, int4, int2 within docs/results.md 5 (int4 0.09: 2604.21428). topk, sign and csc with
 * the outer SGD that suits them: docs/results.md 5.2, 5.3; csc at 80 rounds, high with all of the
 * residual kept (docs/methods.md 2.7). topk depends on the inner optimizer and
 * on how many rounds the residual has: with AdamW 5.6, 3.4, 0.9 and 0.6 % in 15, 20, 80 and 160
 * rounds, with LAMB 3.3 to 15.5 %. */
struct plan_value plan_loss_codec(enum codec_kind codec, double rounds, bool lamb, double *high);
/* What a run of few rounds adds, in percent: sites that exchange seldom have not yet gained what a
 * larger synchronous batch gains. The gain is 6 to 9 % of loss for each doubling of the sites; the
 * share that is not reached is R0 / (R0 + rounds), with R0 = 6 at 2 tokens for each parameter, more
 * with fewer (tests/bench/loss.csv: 3 to 20 rounds, 0.06 and 2 tokens for each parameter).
 * Published runs have hundreds of rounds. tokens: of all sites together; 0: not known, nothing is
 * added. */
struct plan_value plan_loss_short(double sites, double rounds, double tokens_per_parameter,
                                  double *high);
/* Steps that make up for a loss that is `percent` higher, as a factor: at 20 tokens per parameter
 * loss falls as N^-0.0985 (2503.09799, joint fit), and compute is N^2. */
double plan_steps_factor(double percent);

#endif
