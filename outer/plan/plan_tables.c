/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/plan/plan_tables.h"
#include <math.h>
#include <stddef.h>

/* Index of the interval that holds x, and how far into it x lies: 0 to 1 inside. */
static size_t interval(const double *points, size_t count, double x, double *share)
{
    size_t i = 0;
    while (i + 2 < count && x > points[i + 1])
        i++;
    *share = log(x / points[i]) / log(points[i + 1] / points[i]);
    return i;
}

static double between(double a, double b, double share)
{
    return a + (b - a) * share;
}

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

enum { SIZES = 8, SITES = 4 };
static const double sites_measured[SITES] = {1, 2, 4, 8};

/* One table of size x sites; a share of sites above 1 continues with the last slope. */
static double table_at(const double *row0, const double *row1, double size_share, double sites)
{
    double share;
    size_t i = interval(sites_measured, SITES, sites, &share);
    return between(between(row0[i], row1[i], size_share),
                   between(row0[i + 1], row1[i + 1], size_share), share);
}

struct plan_value plan_loss_sites(double parameters, double sites)
{
    static const double sizes[SIZES] = {35e6, 90e6, 180e6, 335e6, 550e6, 1.3e9, 2.4e9, 10e9};
    static const double loss[SIZES][SITES] = {
        {-0.1, 0.7, 2.0, 3.9},  {-0.1, 0.5, 1.5, 3.1},     {-0.2, 0.3, 1.1, 2.3},
        {-0.3, 0.1, 0.9, 2.0},  {-0.3, 0.2, 0.7, 1.7},     {-0.4, 0.2, 0.5, 1.3},
        {-0.4, -0.1, 0.3, 1.1}, {-0.19, -0.19, 0.29, 1.1}, /* 8 sites: not measured, the value
                                                              at 2.4 G */
    };
    double share, size = clamp(parameters, sizes[0], sizes[SIZES - 1]);
    size_t i = interval(sizes, SIZES, size, &share);
    bool outside = parameters < sizes[0] || parameters > sizes[SIZES - 1] || sites > 8 ||
                   (parameters > 2.4e9 && sites > 4);
    return (struct plan_value){table_at(loss[i], loss[i + 1], share, sites), outside};
}

struct plan_value plan_loss_every(double every, double *high)
{
    enum { POINTS = 5 };
    static const double points[POINTS] = {25, 50, 100, 200, 500};
    static const double sweep[POINTS] = {2.8, 4.7, 6.3, 7.4, 9.4};
    static const double streaming = 0.7; /* percent, H = 30 to 100 */
    double share;
    size_t i = interval(points, POINTS, 30, &share);
    double at30 = between(sweep[i], sweep[i + 1], share);
    i = interval(points, POINTS, clamp(every, points[0], 4 * points[POINTS - 1]), &share);
    *high = between(sweep[i], sweep[i + 1], share) - at30;
    return (struct plan_value){*high * streaming / (sweep[2] - at30),
                               every < points[0] || every > points[POINTS - 1]};
}

struct plan_value plan_loss_overlap(double tau)
{
    return (struct plan_value){0.02 * tau, tau > 10};
}

struct plan_value plan_loss_codec(enum codec_kind codec, double rounds, bool lamb, double *high)
{
    static const struct {
        enum codec_kind codec;
        double low, high;
    } rows[] = {{CODEC_F32, 0, 0},        {CODEC_BF16, 0, 0.1},     {CODEC_INT8, 0, 0.1},
                {CODEC_FP8_E4M3, 0, 0.1}, {CODEC_FP8_E5M2, 0, 0.1}, {CODEC_E3M0, 0, 0.2},
                {CODEC_INT4, 0.09, 0.5},  {CODEC_INT2, 0.23, 0.4},  {CODEC_SIGN, 0.4, 1.3},
                {CODEC_CSC, 1, 21}};
    enum { TOPK_LAMB_HIGH = 16 };
    static const double topk_low = 0.5, topk_rounds = 85;
    if (codec == CODEC_TOPK) {
        *high = lamb ? TOPK_LAMB_HIGH : topk_low + topk_rounds / rounds;
        return (struct plan_value){topk_low, false};
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].codec == codec) {
            *high = rows[i].high;
            return (struct plan_value){rows[i].low, false};
        }
    *high = 1;
    return (struct plan_value){0, true};
}

struct plan_value plan_loss_short(double sites, double rounds, double tokens_per_parameter,
                                  double *high)
{
    static const double gain_low = 6, gain_high = 9, half_rounds = 6, spread_low = 0.4,
                        spread_high = 1.7;
    if (tokens_per_parameter <= 0 || sites <= 1) {
        *high = 0;
        return (struct plan_value){0, false};
    }
    double half = half_rounds * pow(2 / tokens_per_parameter, 0.45), doublings = log2(sites);
    double low = spread_low * half, most = spread_high * half;
    *high = gain_high * doublings * most / (most + rounds);
    return (struct plan_value){gain_low * doublings * low / (low + rounds), *high > 1};
}

double plan_steps_factor(double percent)
{
    return pow(1 + percent / 100, 2 / 0.0985);
}
