#ifndef PLAN_TABLES_H
#define PLAN_TABLES_H
/* What was published about the price of local steps, as numbers to interpolate in. Pure. Between
 * the points: linear in the logarithm of parameters, sites and H. Beyond them the nearest edge
 * counts (sites: the last slope goes on), and the answer says so.
 */
#include "outer/codec/codec.h"

struct plan_value {
    double value;
    bool extrapolated; /* outside of what was measured */
};

/* Loss over data-parallel training at equal tokens, H = 30, in percent: C4, AdamW inside, 20 tokens
 * per parameter (2503.09799, table of the measured losses; at 4 and 10 G parameters nobody tried 8
 * sites). */
struct plan_value plan_loss_sites(double parameters, double sites);
/* What another H than 30 adds, in percent. Its shape over H is ft-diloco's sweep (51 M parameters,
 * 2 sites: +2.8, 4.7, 6.3, 7.4, 9.4 % at H = 25, 50, 100, 200, 500). Its size is Streaming DiLoCo's
 * (2501.18512, table 5: 35 M to 1 G parameters lose 0.7 % from H = 30 to 100, without a trend).
 * `high`: ft-diloco's own size, 4.3 times that. */
struct plan_value plan_loss_every(double every, double *high);
/* What tau steps of overlap add, in percent: up to 10 cost less than 0.2 (2501.18512). */
struct plan_value plan_loss_overlap(double tau);
/* What a codec adds, in percent: e3m0 nothing (2501.18512, table 5), int4 0.09 (2604.21428), int2
 * 0.23, top-k 0.5 (our own small models, docs/results.md); f32, bf16, fp8 and int8 nothing. Another
 * codec: 0.5, as extrapolated. */
struct plan_value plan_loss_codec(enum codec_kind codec);
/* Steps that make up for a loss that is `percent` higher, as a factor: at 20 tokens per parameter
 * loss falls as N^-0.0985 (2503.09799, joint fit), and compute is N^2. */
double plan_steps_factor(double percent);

#endif
