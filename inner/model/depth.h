#ifndef DEPTH_H
#define DEPTH_H
/* Which layers run at a step, and by what their branches are multiplied: a pure function of the
 * settings and the step, the same on all ranks and at all sites.
 *
 * Progressive layer dropping (Zhang & He 2020, 2010.13369), with l from 0 and t the finished steps:
 *   theta(t) = (1 - keep) exp(-rate t) + keep,  p_l = 1 - l / L (1 - theta(t)).
 * Layer l runs with probability p_l, and then the outputs of its attention and MLP are divided by
 * p_l. Layer 0 always runs.
 */
#include "inner/config/keys.h"

double depth_keep(const struct settings *s, uint64_t step, size_t layer); /* p_l */
bool depth_runs(const struct settings *s, uint64_t step, size_t layer);   /* the gate */
/* Whether the parameters of that layer learn at a step; `layer` as in struct tensor. Those of a
 * layer that is left out keep their values, moments and number of updates. */
bool depth_learns(const struct settings *s, uint64_t step, int layer);
float depth_scale(const struct settings *s, uint64_t step, size_t layer); /* 1 / p_l */
bool depth_drops(const struct settings *s);                               /* ever */

#endif
