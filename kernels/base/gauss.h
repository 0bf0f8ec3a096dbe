/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GAUSS_H
#define GAUSS_H
/* The discrete Gaussian: integers x with probability proportional to exp(-x^2 / (2 sigma^2)),
 * sampled exactly, without floating point (Canonne, Kamath, Steinke 2020, 2004.00010, Algorithms 1
 * to 3). A rounded float Gaussian would leak in its low bits (Mironov 2012). Its privacy is that of
 * the continuous one on integers (Theorem 4 there). The time of a sample depends on its value.
 */
#include "kernels/base/chacha.h"

/* Limit of sigma, from the widest product in the sampler: |x| < 2^36 has to fit 128 bits with
 * sigma^2. Values beyond 2^36 have a probability below e^-1000 at this sigma; they are drawn again.
 */
enum { GAUSS_SIGMA_MAX = 1 << 27 };
/* 1 <= sigma <= GAUSS_SIGMA_MAX. */
int64_t gauss_sample(struct chacha *c, uint64_t sigma);

#endif
