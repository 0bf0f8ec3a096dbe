/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/budget/fft.h"
#include <float.h>
#include <math.h>

void fft_twiddle(double *twiddle, size_t n)
{
    for (size_t k = 0; k < n / 2; k++) {
        double angle = -2 * M_PI * (double)k / (double)n;
        twiddle[2 * k] = cos(angle);
        twiddle[2 * k + 1] = sin(angle);
    }
}

static void fft_swap(double *x, size_t i, size_t j)
{
    double re = x[2 * i], im = x[2 * i + 1];
    x[2 * i] = x[2 * j];
    x[2 * i + 1] = x[2 * j + 1];
    x[2 * j] = re;
    x[2 * j + 1] = im;
}

static void fft_bit_reverse(double *x, size_t n)
{
    for (size_t i = 1, j = 0; i < n; i++) {
        size_t bit = n / 2;
        for (; j & bit; bit /= 2)
            j ^= bit;
        j ^= bit;
        if (i < j)
            fft_swap(x, i, j);
    }
}

/* sign: 1 forward, -1 inverse without its factor. */
static void fft_butterflies(double *x, size_t n, const double *twiddle, double sign)
{
    fft_bit_reverse(x, n);
    for (size_t half = 1; half < n; half *= 2)
        for (size_t start = 0; start < n; start += 2 * half)
            for (size_t k = 0; k < half; k++) {
                const double *w = &twiddle[2 * k * (n / 2 / half)];
                double *a = &x[2 * (start + k)], *b = a + 2 * half;
                double re = b[0] * w[0] - sign * b[1] * w[1];
                double im = sign * b[0] * w[1] + b[1] * w[0];
                b[0] = a[0] - re;
                b[1] = a[1] - im;
                a[0] += re;
                a[1] += im;
            }
}

void fft_forward(double *x, size_t n, const double *twiddle)
{
    fft_butterflies(x, n, twiddle, 1);
}

void fft_inverse(double *x, size_t n, const double *twiddle)
{
    fft_butterflies(x, n, twiddle, -1);
    for (size_t i = 0; i < 2 * n; i++)
        x[i] /= (double)n;
}

double fft_error(double log2_n)
{
    const double unit = DBL_EPSILON / 2;
    return log2_n * (unit + 4 * unit * (M_SQRT2 + unit)) * 1.01 + unit;
}
