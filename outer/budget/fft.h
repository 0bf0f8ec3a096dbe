/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FFT_H
#define FFT_H
/* Complex discrete Fourier transform of a power of two, in double precision, for convolutions of
 * probability distributions. Radix 2, in place, one thread. Interleaved: x[2 i] real, x[2 i + 1]
 * imaginary. Error in the 2-norm, relative: at most fft_error(log2 n) (Higham 2002, Accuracy and
 * Stability, theorem 24.2, with twiddle factors good to one unit in the last place).
 */
#include <stddef.h>

/* twiddle: n doubles, filled for transforms of n values. */
void fft_twiddle(double *twiddle, size_t n);
/* X_k = sum_j x_j exp(-2 pi i j k / n). */
void fft_forward(double *x, size_t n, const double *twiddle);
/* x_j = (1/n) sum_k X_k exp(2 pi i j k / n). */
void fft_inverse(double *x, size_t n, const double *twiddle);
double fft_error(double log2_n);

#endif
