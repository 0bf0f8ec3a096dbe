/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BANDED_SCALAR_H
#define BANDED_SCALAR_H
/* The matrix C of banded matrix factorisation (Choquette-Choo et al. 2023, 2306.08153): lower
 * triangular, Toeplitz, with `bands` diagonals c_0 = 1, c_1, ..: the first coefficients of
 * (1-x)^(-1/2), the square root of the prefix sum (Kalinin, Lampert 2024, 2405.13763). Both the
 * noise of a private step and its accountant are made of these.
 */
#include <math.h>
#include <stdint.h>

enum { BANDED_BANDS_MAX = 4096 };

/* Next coefficient of (1-x)^(-1/2), after c_(j-1). */
static inline double banded_next(double before, int64_t j)
{
    return before * (2 * (double)j - 1) / (2 * (double)j);
}

/* c[0..bands). */
static inline void banded_coefficients(double *c, int64_t bands)
{
    c[0] = 1;
    for (int64_t j = 1; j < bands; j++)
        c[j] = banded_next(c[j - 1], j);
}

/* Sum of the squares of the first `rows` coefficients. */
static inline double banded_squared(int64_t rows)
{
    double c = 1, sum = 1;
    for (int64_t j = 1; j < rows; j++) {
        c = banded_next(c, j);
        sum += c * c;
    }
    return sum;
}

/* |c|, the norm of a whole column of C: how far one participation of a unit moves the sums that
 * independent noise is added to. */
static inline double banded_column(int64_t bands)
{
    return sqrt(banded_squared(bands));
}

#endif
