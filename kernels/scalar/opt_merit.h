/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPT_MERIT_H
#define OPT_MERIT_H
/* MERIT (Luo et al. 2025, 2508.20577): Adam's direction u without bias correction, and a trust
 * ratio of largest magnitudes instead of Euclidean norms, for each element the largest of its
 * row's, its column's and its tensor's. Part of opt.h. */

SCALAR float opt_merit_direction(float p, float m, float v, const struct opt_scalars *k)
{
    return m / (SCALAR_SQRT(v) + k->eps) + k->weight_decay * p;
}

SCALAR float opt_magnitude(float x)
{
    return x < 0 ? -x : x;
}

/* Values 0 and 1 of lines: largest |p| and |u|. */
SCALAR struct opt_terms opt_merit_terms(float p, float *m, float *v, float g,
                                        const struct opt_cross *c, const struct opt_scalars *k)
{
    (void)c;
    opt_adam_moments(m, v, g, k);
    struct opt_terms t = {
        {opt_magnitude(p), opt_magnitude(opt_merit_direction(p, *m, *v, k)), 0, 0}};
    return t;
}

SCALAR float opt_merit_line(float before, float now, const struct opt_scalars *k)
{
    (void)before, (void)k;
    return now;
}

/* The tensor's ratio. */
SCALAR void opt_merit_prepare(struct opt_scalars *k, const double sums[OPT_SUMS])
{
    k->step[0] = sums[0] > 0 && sums[1] > 0 ? (float)(sums[0] / sums[1]) : 1.0f;
}

SCALAR float opt_lesser(float a, float b)
{
    return a < b ? a : b;
}

/* A line's two maxima become their ratio and the lesser of them. */
SCALAR void opt_merit_cross(float line[OPT_LINES])
{
    float least = opt_lesser(line[0], line[1]);
    line[0] /= line[1];
    line[1] = least;
}

/* p -= lr clip(T u, -1, 1); T = 1 where one of the four maxima is 0. A vector has the tensor's. All
 * values are computed and then chosen, so that compilers vectorise. */
SCALAR float opt_merit_move(float p, float m, float v, const struct opt_cross *c,
                            const struct opt_scalars *k)
{
    float row = c->row[0], column = c->column[0], whole = k->step[0],
          most = row > column ? row : column, least = opt_lesser(c->row[1], c->column[1]);
    most = most > whole && !WITHOUT(MERIT_RATIO) ? most : whole;
    most = least > 0 ? most : 1.0f;
    float step = (k->rows > 1 ? most : whole) * opt_merit_direction(p, m, v, k);
    step = step > 1.0f ? 1.0f : step;
    step = step < -1.0f ? -1.0f : step;
    return p - k->lr * step;
}

#endif
