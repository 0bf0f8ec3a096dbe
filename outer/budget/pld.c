/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/budget/pld.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include "outer/budget/fft.h"
#include "outer/budget/pld_loss.h"

enum {
    GRID_PER_DEVIATION = 64, /* grid points of one step's standard deviation, tilted or not */
    POINTS_MIN = 1 << 16,    /* of the composed distribution's window */
    POINTS_MAX = 1 << 22,    /* memory: 24 bytes a point and setting */
    THETAS = 24              /* of each Chernoff bound */
};
static const double LEFT_OUT = 14;      /* see tail_set */
static const double LOOSER = 10;        /* see lambda_narrow */
static const double WRAPPED = 40;       /* -log of the mass outside the window */
static const double MASS_ERROR = 1e-12; /* of one step's masses, relative: quadrature, exp, log1p */

/* One direction of a composition, tilted by exp(lambda loss). */
struct composed {
    enum pld_direction direction;
    const struct sampled_steps *s;
    size_t settings;
    double steps;             /* of all settings */
    double tail;              /* standard deviations beyond which loss counts as infinite */
    double lambda, log_total; /* log E[exp(lambda loss)] of the discretised composition */
    double grid;
    bool coarse; /* the grid is coarser than wanted: too few points */
    int64_t low; /* index of the first point */
    size_t points;
    double *mass;    /* [points], tilted: true mass = mass exp(log_total - lambda loss) */
    double slack;    /* tilted mass that delta may miss above its window's top */
    double infinite; /* mass of infinite loss */
};

/* The outcomes left out of all steps together have a probability of exp(-LEFT_OUT) of a delta. */
static void tail_set(struct composed *c, double log_delta)
{
    c->tail = sqrt(2 * (LEFT_OUT + log(c->steps) - fmin(0, log_delta)));
}

/* Moments of the composition. */
static struct pld_moments moments_of(const struct composed *c, double lambda)
{
    struct pld_moments sum = {0};
    for (size_t i = 0; i < c->settings; i++) {
        struct pld_moments m = pld_loss_moments(c->direction, &c->s[i], lambda, c->tail);
        double t = (double)c->s[i].steps;
        sum.k += t * m.k;
        sum.mean += t * m.mean;
        sum.variance += t * m.variance;
    }
    return sum;
}

/* Largest lambda: above it the tilted loss of a sampled step does not grow any more. */
static double lambda_max(const struct composed *c)
{
    double least = INFINITY;
    for (size_t i = 0; i < c->settings; i++)
        least = fmin(least, c->s[i].noise);
    return 1000 * (1 + least);
}

/* Where a rare large loss takes over under the tilt, the tilted distribution is wide and its grid
 * coarse. A smaller lambda, at most LOOSER above the Chernoff bound, keeps it narrow. */
static double lambda_narrow(const struct composed *c, double lambda, double epsilon)
{
    const double enough = 4 * moments_of(c, 0).variance;
    struct pld_moments m = moments_of(c, lambda);
    const double limit = m.k - lambda * epsilon + LOOSER;
    double best = lambda, least = m.variance;
    while (least > enough && lambda > 1e-6) {
        lambda *= 0.9;
        m = moments_of(c, lambda);
        if (m.k - lambda * epsilon > limit)
            break;
        if (m.variance < least) {
            least = m.variance;
            best = lambda;
        }
    }
    return best;
}

/* lambda that minimises (K(lambda) + log(1/delta)) / lambda: lambda K' - K = log(1/delta). */
static double lambda_for_delta(const struct composed *c, double delta)
{
    double low = log(1e-4), high = log(lambda_max(c));
    for (int i = 0; i < 30; i++) {
        double middle = (low + high) / 2, lambda = exp(middle);
        struct pld_moments m = moments_of(c, lambda);
        if (lambda * m.mean - m.k < -log(delta))
            low = middle;
        else
            high = middle;
    }
    double lambda = exp(high);
    return lambda_narrow(c, lambda, (moments_of(c, lambda).k - log(delta)) / lambda);
}

/* lambda whose tilted mean is epsilon; 0 when the mean is larger anyway. */
static double lambda_for_epsilon(const struct composed *c, double epsilon)
{
    double low = 0, high = lambda_max(c);
    if (moments_of(c, 0).mean >= epsilon)
        return 0;
    for (int i = 0; i < 40; i++) {
        double middle = i < 20 ? sqrt(fmax(low, 1e-4) * high) : (low + high) / 2;
        if (moments_of(c, middle).mean < epsilon)
            low = middle;
        else
            high = middle;
    }
    return lambda_narrow(c, low, epsilon);
}

/* Parameters of Chernoff bounds: from those of rare losses of some units to those of a Gaussian. */
static double theta_first(double deviation)
{
    return fmin(0.25 / deviation, 0.1);
}

static double theta_last(double deviation)
{
    return 100 / deviation;
}

/* A bound on the loss that the tilted composition passes with probability exp(-WRAPPED): above for
 * sign 1, below for -1. */
static double window_end(const struct composed *c, const struct pld_moments *m, double sign)
{
    const double deviation = sqrt(m->variance);
    double best = INFINITY, theta = theta_first(deviation);
    for (; theta < fmin(theta_last(deviation), lambda_max(c)); theta *= 1.4) {
        double k = moments_of(c, c->lambda + sign * theta).k;
        best = fmin(best, (k - m->k + WRAPPED) / theta);
    }
    return sign * best;
}

/* Log of a Chernoff bound on the tilted mass at index `top` and above, from the atoms themselves.
 */
static double log_wrapped(const struct composed *c, const struct pld_atoms *atoms, double deviation,
                          int64_t top)
{
    double best = 0;
    for (double theta = theta_first(deviation); theta < theta_last(deviation); theta *= 1.4) {
        double log_mass = -theta * c->grid * (double)top;
        for (size_t k = 0; k < c->settings; k++) {
            const struct pld_atoms *a = &atoms[k];
            double highest = theta * c->grid * (double)a->atom[a->count - 1].index, sum = 0;
            for (size_t j = 0; j < a->count; j++)
                sum += a->atom[j].mass * exp(theta * c->grid * (double)a->atom[j].index - highest);
            log_mass += (double)c->s[k].steps * (highest + log(sum));
        }
        best = fmin(best, log_mass);
    }
    return best;
}

/* x = x^n, point by point; n > 0. */
static void raise_to(double *x, size_t points, int64_t n)
{
    for (size_t i = 0; i < points; i++) {
        double re = 1, im = 0, a = x[2 * i], b = x[2 * i + 1];
        for (int64_t left = n; left; left /= 2) {
            if (left & 1) {
                double t = re * a - im * b;
                im = re * b + im * a;
                re = t;
            }
            double t = a * a - b * b;
            b = 2 * a * b;
            a = t;
        }
        x[2 * i] = re;
        x[2 * i + 1] = im;
    }
}

static void multiply_by(double *x, const double *y, size_t points)
{
    for (size_t i = 0; i < points; i++) {
        double re = x[2 * i] * y[2 * i] - x[2 * i + 1] * y[2 * i + 1];
        x[2 * i + 1] = x[2 * i] * y[2 * i + 1] + x[2 * i + 1] * y[2 * i];
        x[2 * i] = re;
    }
}

static size_t cyclic(int64_t index, size_t points)
{
    return (size_t)index & (points - 1); /* points: a power of two */
}

/* Transforms of all settings' atoms, their powers and product, and back. *error: bound on the
 * 2-norm of what rounding adds. */
static enum err compose(struct composed *c, const struct pld_atoms *atoms, double *error,
                        struct arena *a)
{
    double *product, *one, *twiddle;
    const double relative = fft_error(log2((double)c->points)), unit = 4.5e-16;
    TRY_ALLOC(product = arena_array(a, 2 * c->points, sizeof *product));
    TRY_ALLOC(one = arena_array(a, 2 * c->points, sizeof *one));
    TRY_ALLOC(twiddle = arena_array(a, c->points, sizeof *twiddle));
    fft_twiddle(twiddle, c->points);
    for (size_t i = 0; i < c->points; i++)
        product[2 * i] = 1;
    *error = relative;
    for (size_t k = 0; k < c->settings; k++) {
        double squares = 0;
        memset(one, 0, 2 * c->points * sizeof *one);
        for (size_t j = 0; j < atoms[k].count; j++) {
            double mass = atoms[k].atom[j].mass;
            one[2 * cyclic(atoms[k].atom[j].index, c->points)] += mass;
        }
        for (size_t i = 0; i < c->points; i++)
            squares += one[2 * i] * one[2 * i];
        *error += (double)c->s[k].steps * (relative * sqrt(squares) + unit);
        fft_forward(one, c->points, twiddle);
        raise_to(one, c->points, c->s[k].steps);
        multiply_by(product, one, c->points);
    }
    fft_inverse(product, c->points, twiddle);
    TRY_ALLOC(c->mass = arena_array(a, c->points, sizeof *c->mass));
    for (size_t i = 0; i < c->points; i++)
        c->mass[i] = fmax(0, product[2 * cyclic(c->low + (int64_t)i, c->points)]);
    return ERR_OK;
}

/* Window and grid for c->lambda. */
static void window_make(struct composed *c, const struct pld_moments *m)
{
    double high = window_end(c, m, 1), low = window_end(c, m, -1);
    double deviation = sqrt(fmin(m->variance, moments_of(c, 0).variance) / c->steps);
    c->grid = fmin(deviation / GRID_PER_DEVIATION, (high - low) / POINTS_MIN);
    c->coarse = c->grid < (high - low) / (POINTS_MAX - 4);
    if (c->coarse)
        c->grid = (high - low) / (POINTS_MAX - 4);
    c->low = (int64_t)floor(low / c->grid);
    for (c->points = POINTS_MIN; (double)c->points < (high - low) / c->grid + 3; c->points *= 2)
        ;
}

/* Fills c from its settings, direction, tail and lambda. */
static enum err composed_make(struct composed *c, struct arena *a)
{
    struct pld_moments m = moments_of(c, c->lambda);
    struct pld_atoms *atoms;
    double error;
    window_make(c, &m);
    TRY_ALLOC(atoms = arena_array(a, c->settings, sizeof *atoms));
    for (size_t k = 0; k < c->settings; k++) {
        TRY(pld_loss_atoms(&atoms[k], c->direction, &c->s[k], c->lambda, c->grid, c->tail, a));
        c->log_total += (double)c->s[k].steps * atoms[k].log_total;
        c->infinite += (double)c->s[k].steps * atoms[k].infinite;
    }
    double deviation = sqrt(m.variance), wrapped;
    while ((wrapped = log_wrapped(c, atoms, deviation, c->low + (int64_t)c->points)) > -30 &&
           c->points < POINTS_MAX)
        c->points *= 2;
    TRY(compose(c, atoms, &error, a));
    /* Weights of the tilted masses in delta are at most exp(-lambda (loss - epsilon)). */
    double weights = 1 + 1 / (2 * c->lambda * c->grid); /* sum of their squares */
    c->slack = error * sqrt(fmin((double)c->points, weights)) + exp(wrapped);
    return ERR_OK;
}

/* Upper bound on delta from the sum of weighted tilted masses. */
static double delta_bound(const struct composed *c, double sum, double epsilon)
{
    double log_weight = c->log_total - c->lambda * epsilon + MASS_ERROR * c->steps;
    double delta = exp(log_weight + log(sum + c->slack)) + c->infinite;
    return fmin(1, delta);
}

static double composed_delta(const struct composed *c, double epsilon)
{
    double sum = 0;
    for (size_t i = c->points; i-- > 0;) {
        double above = c->grid * (double)(c->low + (int64_t)i) - epsilon;
        if (above <= 0)
            break;
        sum += c->mass[i] * -exp(-c->lambda * above) * expm1(-above);
    }
    return delta_bound(c, sum, epsilon);
}

/* Walks down the grid to the first point with too large a delta. Between two points delta is linear
 * in exp(epsilon), and what is added to it is convex. */
static double composed_epsilon(const struct composed *c, double delta)
{
    const double fall = exp(-c->lambda * c->grid), fall_q = exp(-(c->lambda + 1) * c->grid);
    double p = 0, q = 0, above = 0; /* sums of masses above, weighted for P and for Q */
    for (size_t i = c->points; i-- > 0;) {
        double epsilon = c->grid * (double)(c->low + (int64_t)i);
        p *= fall;
        q *= fall_q;
        double here = delta_bound(c, fmax(0, p - q), epsilon);
        if (here > delta) {
            if (i + 1 == c->points)
                return INFINITY;
            double share = (here - delta) / (here - above);
            return fmax(0, epsilon + log1p(share * expm1(c->grid)));
        }
        if (epsilon <= 0)
            return 0;
        p += c->mass[i];
        q += c->mass[i];
        above = here;
    }
    return fmax(0, c->grid * (double)c->low);
}

/* The settings that count, one direction. */
static struct composed composed_start(const struct sampled_steps *s, size_t settings,
                                      enum pld_direction d, struct sampled_steps *counted)
{
    struct composed c = {.direction = d, .s = counted};
    for (size_t i = 0; i < settings; i++)
        if (s[i].q > 0 && s[i].steps > 0) {
            counted[c.settings++] = s[i];
            c.steps += (double)s[i].steps;
        }
    return c;
}

/* One direction's delta of an epsilon; log_scale: log of a delta near it, for what is left out. */
static enum err direction_delta(double *delta, double *infinite, struct composed c, double epsilon,
                                double log_scale)
{
    struct arena a = arena_make(0);
    tail_set(&c, log_scale);
    c.lambda = lambda_for_epsilon(&c, epsilon);
    enum err e = composed_make(&c, &a);
    if (e == ERR_OK)
        *delta = composed_delta(&c, epsilon);
    *infinite = c.infinite;
    arena_free(&a);
    return e;
}

/* Where sampling is rare, the Chernoff bound may be far above delta, or what it leaves out may hold
 * all losses above epsilon: again, with what the last attempt says. Each is an upper bound. */
static enum err direction_delta_near(double *delta, struct composed c, double epsilon,
                                     double log_scale)
{
    *delta = 1;
    for (int i = 0; i < 4; i++) {
        double one, infinite;
        TRY(direction_delta(&one, &infinite, c, epsilon, log_scale));
        *delta = fmin(*delta, one);
        if (one < 1 && infinite <= 1e-5 * one)
            break;
        log_scale = one < 1 ? log(one) : log_scale - LEFT_OUT;
    }
    return ERR_OK;
}

/* One direction's epsilon of a delta. `near`: the epsilon at whose tilt to look for it; NAN: at the
 * tilt of the Chernoff bound. */
static enum err direction_epsilon(double *epsilon, bool *coarse, struct composed c, double delta,
                                  double near)
{
    struct arena a = arena_make(0);
    tail_set(&c, log(delta));
    c.lambda = isnan(near) ? lambda_for_delta(&c, delta) : lambda_for_epsilon(&c, near);
    enum err e = composed_make(&c, &a);
    if (e == ERR_OK)
        *epsilon = composed_epsilon(&c, delta);
    *coarse = c.coarse;
    arena_free(&a);
    return e;
}

enum err pld_delta(double *delta, const struct sampled_steps *s, size_t settings, double epsilon)
{
    *delta = 0;
    for (enum pld_direction d = 0; d < PLD_DIRECTIONS; d++) {
        struct sampled_steps counted[SAMPLED_SETTINGS_MAX];
        struct composed c = composed_start(s, settings, d, counted);
        double one;
        if (c.settings == 0)
            return ERR_OK;
        c.tail = INFINITY;
        c.lambda = lambda_for_epsilon(&c, epsilon);
        TRY(direction_delta_near(&one, c, epsilon,
                                 moments_of(&c, c.lambda).k - c.lambda * epsilon));
        *delta = fmax(*delta, one);
    }
    return ERR_OK;
}

enum err pld_epsilon(double *epsilon, const struct sampled_steps *s, size_t settings, double delta)
{
    *epsilon = 0;
    for (enum pld_direction d = 0; d < PLD_DIRECTIONS; d++) {
        struct sampled_steps counted[SAMPLED_SETTINGS_MAX];
        struct composed c = composed_start(s, settings, d, counted);
        double one, again;
        bool coarse;
        if (c.settings == 0)
            return ERR_OK;
        TRY(direction_epsilon(&one, &coarse, c, delta, NAN));
        if (coarse && isfinite(one)) { /* a smaller tilt: a narrower window, a finer grid */
            TRY(direction_epsilon(&again, &coarse, c, delta, one));
            one = fmin(one, again);
        }
        *epsilon = fmax(*epsilon, one);
    }
    return ERR_OK;
}
