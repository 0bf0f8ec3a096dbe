/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPT_CAME_H
#define OPT_CAME_H
/* CAME (Luo et al. 2023, 2307.02047): the second moment of a matrix as means of its rows R and
 * columns C (Adafactor), and a second such pair, Rs and Cs, of the distance between direction and
 * moment: where it is large the step is small. No bias correction. A vector is a matrix of one row,
 * so that C is its whole second moment and R / mean(R) = 1; its step is not divided by Rs, Cs.
 * Lines: value 0 is R or C, value 1 is Rs or Cs. Part of opt.h. */

/* The published e1 and e2. */
#define OPT_CAME_SQUARE 1e-30f
#define OPT_CAME_DOUBT  1e-16f

/* A moving mean. With a decay of 0 the sum could round to 0 where `now`, which has e1 or e2, is
 * not. */
SCALAR float opt_came_line(float before, float now, float rest)
{
    return rest < 1 ? before + rest * (now - before) : now;
}

/* (R_i / mean(R))^-1/2 C_j^-1/2, in this order: R_i C_j could underflow. */
SCALAR float opt_came_factor(const struct opt_cross *c, int j, const struct opt_scalars *k)
{
    return 1.0f / SCALAR_SQRT(c->row[j] / k->mean[j]) / SCALAR_SQRT(c->column[j]);
}

SCALAR struct opt_terms opt_came_square_terms(float p, float *m, float *v, float g,
                                              const struct opt_cross *c,
                                              const struct opt_scalars *k)
{
    (void)p, (void)m, (void)v, (void)c;
    g *= k->gscale;
    struct opt_terms t = {{g * g + OPT_CAME_SQUARE, 0, 0, 0}};
    return t;
}

SCALAR float opt_came_square_line(float before, float now, const struct opt_scalars *k)
{
    return opt_came_line(before, now, k->rest2);
}

SCALAR void opt_came_mean(struct opt_scalars *k, const double sums[OPT_SUMS])
{
    k->mean[0] = (float)(sums[0] / k->rows);
}

/* The square of the direction. */
SCALAR struct opt_terms opt_came_size_terms(float p, float *m, float *v, float g,
                                            const struct opt_cross *c, const struct opt_scalars *k)
{
    (void)p, (void)m, (void)v;
    float u = g * k->gscale * opt_came_factor(c, 0, k);
    struct opt_terms t = {{u * u, 0, 0, 0}};
    return t;
}

SCALAR float opt_came_size_line(float before, float now, const struct opt_scalars *k)
{
    (void)now, (void)k;
    return before;
}

/* step[1]: what the direction is multiplied by, so that its root mean square is at most
 * update_clip. */
SCALAR void opt_came_limit(struct opt_scalars *k, const double sums[OPT_SUMS])
{
    opt_came_mean(k, sums);
    float size = (float)SCALAR_SQRT64(sums[1] / ((double)k->rows * (double)k->columns));
    k->step[1] = size > k->update_clip ? k->update_clip / size : 1.0f;
}

SCALAR struct opt_terms opt_came_doubt_terms(float p, float *m, float *v, float g,
                                             const struct opt_cross *c, const struct opt_scalars *k)
{
    (void)p, (void)v;
    float u = g * k->gscale * opt_came_factor(c, 0, k) * k->step[1];
    *m += k->rest1 * (u - *m);
    struct opt_terms t = {{(u - *m) * (u - *m) + OPT_CAME_DOUBT, 0, 0, 0}};
    return t;
}

SCALAR float opt_came_doubt_line(float before, float now, const struct opt_scalars *k)
{
    return opt_came_line(before, now, k->rest3);
}

SCALAR void opt_came_prepare(struct opt_scalars *k, const double sums[OPT_SUMS])
{
    k->mean[1] = (float)(sums[2] / k->rows);
}

SCALAR void opt_came_cross(float line[OPT_LINES])
{
    (void)line;
}

/* p -= lr weight_decay p; p -= lr m F(Rs, Cs) */
SCALAR float opt_came_move(float p, float m, float v, const struct opt_cross *c,
                           const struct opt_scalars *k)
{
    (void)v;
    float factor = opt_came_factor(c, 1, k);
    factor = k->rows > 1 && !WITHOUT(CAME_DOUBT) ? factor : 1.0f;
    p -= k->lr * k->weight_decay * p;
    return p - k->lr * (m * factor);
}

#endif
