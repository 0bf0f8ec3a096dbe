/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/budget/pld_loss.h"
#include <math.h>
#include "outer/budget/gaussian.h"

enum {
    FINE = 1024, /* grid points of step 1 on each side of 0; beyond, the step is |index| / FINE: the
                    spread that discretisation adds stays 1e-3 of the loss */
    NODES = 6
};
static const double LOG_SQRT_2PI = 0.91893853320467274178;
/* Gauss-Legendre on -1..1. */
static const double gauss_node[NODES] = {-0.93246951420315202781, -0.66120938646626451366,
                                         -0.23861918608319690863, 0.23861918608319690863,
                                         0.66120938646626451366,  0.93246951420315202781};
static const double gauss_weight[NODES] = {0.17132449237917034504, 0.36076157304813860757,
                                           0.46791393457269104739, 0.46791393457269104739,
                                           0.36076157304813860757, 0.17132449237917034504};

/* log r(x). */
static double log_ratio(double q, double noise, double x)
{
    double y = (2 * x - 1) / (2 * noise * noise);
    if (q == 1)
        return y;
    return y < 30 ? log1p(q * expm1(y)) : y + log(q) + log1p((1 - q) / q * exp(-y));
}

/* x where log r(x) = l; -infinity where r is larger everywhere. */
static double log_ratio_inverse(double q, double noise, double l)
{
    double y = l;
    if (q < 1 && l < 30)
        y = expm1(l) <= -q ? -INFINITY : log1p(expm1(l) / q);
    else if (q < 1)
        y = l + log1p(-(1 - q) * exp(-l)) - log(q);
    return noise * noise * y + 0.5;
}

static double loss_of(enum pld_direction d, const struct sampled_steps *s, double x)
{
    double l = log_ratio(s->q, s->noise, x);
    return d == PLD_REMOVE ? l : -l;
}

/* log of the density of P. */
static double log_density(enum pld_direction d, const struct sampled_steps *s, double x)
{
    double z = x / s->noise;
    return -z * z / 2 - LOG_SQRT_2PI - log(s->noise) +
           (d == PLD_REMOVE ? log_ratio(s->q, s->noise, x) : 0);
}

/* The tilted P lies between the normal densities of mean 0 and of mean `far`. */
static double far_mean(enum pld_direction d, double lambda)
{
    return d == PLD_REMOVE ? lambda + 1 : -lambda;
}

struct pld_moments pld_loss_moments(enum pld_direction d, const struct sampled_steps *s,
                                    double lambda, double tail)
{
    const double far = far_mean(d, lambda), limit = tail * s->noise;
    double low = fmin(0, far) - 9 * s->noise, high = fmax(0, far) + 9 * s->noise;
    if (d == PLD_REMOVE)
        high = fmin(high, 1 + limit);
    else
        low = fmax(low, -limit);
    const double step = fmin(s->noise / 4, s->noise * s->noise / 2);
    double top = -INFINITY, sum = 0, first = 0, second = 0, origin = 0;
    for (double x = low; x <= high; x += step) {
        double loss = loss_of(d, s, x), w = log_density(d, s, x) + lambda * loss;
        if (w > top) { /* keep the largest weight at 1, the losses relative to its own */
            double shrink = exp(top - w), move = origin - loss;
            second = shrink * (second + 2 * move * first + move * move * sum);
            first = shrink * (first + move * sum);
            sum *= shrink;
            top = w;
            origin = loss;
        }
        double weight = exp(w - top);
        sum += weight;
        first += weight * (loss - origin);
        second += weight * (loss - origin) * (loss - origin);
    }
    double mean = first / sum;
    return (struct pld_moments){top + log(sum * step), origin + mean,
                                fmax(0, second / sum - mean * mean)};
}

struct discretiser {
    enum pld_direction d;
    const struct sampled_steps *s;
    double lambda, grid, reference;
    struct pld_atoms *out;
    size_t capacity;
    struct arena *arena;
};

static enum err atom_add(struct discretiser *z, int64_t index, double mass)
{
    struct pld_atoms *o = z->out;
    if (o->count && o->atom[o->count - 1].index == index) {
        o->atom[o->count - 1].mass += mass;
        return ERR_OK;
    }
    if (o->count == z->capacity) {
        struct pld_atom *more;
        size_t capacity = z->capacity ? 2 * z->capacity : 4096;
        TRY_ALLOC(more = arena_array(z->arena, capacity, sizeof *more));
        for (size_t i = 0; i < o->count; i++)
            more[i] = o->atom[i];
        o->atom = more;
        z->capacity = capacity;
    }
    o->atom[o->count++] = (struct pld_atom){index, mass};
    return ERR_OK;
}

/* Tilted weight of a mass whose logarithm is log_mass, at a grid point. */
static double tilted(const struct discretiser *z, double log_mass, int64_t index)
{
    return exp(log_mass + z->lambda * z->grid * (double)index - z->reference);
}

/* The mass of P between x0 and x1, whose losses lie between two grid points: share b of it to the
 * upper one, so that sums of mass and of mass * exp(-loss) stay as they are. b is an integral of a
 * term within 0..1: nothing cancels. */
static void bucket_integrate(const struct discretiser *z, double x0, double x1, int64_t lower,
                             int64_t upper, double *to_lower, double *to_upper)
{
    const double noise = z->s->noise, low = z->grid * (double)lower;
    const double span = expm1(-z->grid * (double)(upper - lower));
    const double panels = ceil((x1 - x0) / (fmin(noise / 2, noise * noise) / 2));
    const double half = (x1 - x0) / panels / 2;
    *to_lower = *to_upper = 0;
    for (double i = 0; i < panels; i++)
        for (int k = 0; k < NODES; k++) {
            double x = x0 + half * (2 * i + 1 + gauss_node[k]);
            double log_p = log_density(z->d, z->s, x) + log(half * gauss_weight[k]);
            double b = fmin(1, fmax(0, expm1(low - loss_of(z->d, z->s, x)) / span));
            *to_lower += (1 - b) * tilted(z, log_p, lower);
            *to_upper += b * tilted(z, log_p, upper);
        }
}

static int64_t grid_next(int64_t index)
{
    int64_t size = index < 0 ? -index : index;
    int64_t width = size / FINE > 1 ? size / FINE : 1;
    return index < 0 && index + width > 0 ? 0 : index + width;
}

/* x of a grid point's loss, within the limits. */
static double grid_x(const struct discretiser *z, int64_t index, double low, double high)
{
    double loss = z->grid * (double)index;
    double x = log_ratio_inverse(z->s->q, z->s->noise, z->d == PLD_REMOVE ? loss : -loss);
    return fmin(high, fmax(low, x));
}

/* Atoms of the losses of x in low..high, in rising order. */
static enum err atoms_between(struct discretiser *z, double low, double high)
{
    double a = loss_of(z->d, z->s, low), b = loss_of(z->d, z->s, high);
    int64_t index = (int64_t)floor(fmin(a, b) / z->grid), end = (int64_t)ceil(fmax(a, b) / z->grid);
    /* P-mass of the tail with the lowest losses: rounded up. Removed: at most that of N_0. */
    double x_lowest = z->d == PLD_REMOVE ? low : high;
    double tail = gaussian_log_tail(fabs(x_lowest) / z->s->noise);
    double carried = tilted(z, tail, grid_next(index));
    while (index < end) {
        int64_t next = grid_next(index);
        double x0 = grid_x(z, index, low, high), x1 = grid_x(z, next, low, high);
        double to_lower = 0, to_upper = 0;
        if (x0 != x1)
            bucket_integrate(z, fmin(x0, x1), fmax(x0, x1), index, next, &to_lower, &to_upper);
        TRY(atom_add(z, index, to_lower));
        TRY(atom_add(z, next, to_upper + carried));
        carried = 0;
        index = next;
    }
    return ERR_OK;
}

enum err pld_loss_atoms(struct pld_atoms *out, enum pld_direction d, const struct sampled_steps *s,
                        double lambda, double grid, double tail, struct arena *a)
{
    const double low = -tail * s->noise, high = tail * s->noise + (d == PLD_REMOVE ? 1 : 0);
    *out = (struct pld_atoms){0};
    struct discretiser z = {.d = d,
                            .s = s,
                            .lambda = lambda,
                            .grid = grid,
                            .reference = pld_loss_moments(d, s, lambda, tail).k,
                            .out = out,
                            .arena = a};
    TRY(atoms_between(&z, low, high));
    out->infinite = exp(gaussian_log_tail(tail)); /* removed: at most that of N_1 */
    double total = 0;
    for (size_t i = 0; i < out->count; i++)
        total += out->atom[i].mass;
    for (size_t i = 0; i < out->count; i++)
        out->atom[i].mass /= total;
    out->log_total = z.reference + log(total);
    return ERR_OK;
}
