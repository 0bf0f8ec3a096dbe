/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RDP_H
#define RDP_H
/* Renyi differential privacy (RDP) of the Poisson-sampled Gaussian mechanism (Mironov, Talwar,
 * Zhang 2019, 1908.10530, section 3.3), and the conversion to (epsilon, delta) of Canonne, Kamath,
 * Steinke 2020, 2004.00010, proposition 12 (Balle et al. 2020, 1905.09982, theorem 21). RDP of
 * several steps adds. Pure; any thread.
 */
#include <stddef.h>
#include "outer/budget/sampled.h"

/* Orders of the accountant: 2 to 64, 80, 96, 128, 192, 256, 512. */
enum { RDP_ORDERS = 69 };
extern const double rdp_orders[RDP_ORDERS];

/* RDP of one step at order alpha > 1; noise >= SAMPLED_NOISE_MIN. Relative error below 1e-10.
 * Integer orders: a finite sum. Others: the integral that the sum is, by the trapezoidal rule. */
double rdp_step(double q, double noise, double alpha);
/* out[i]: RDP of all steps of all settings at orders[i]. */
void rdp_compose(double *out, const double *orders, size_t count, const struct sampled_steps *s,
                 size_t settings);
/* Smallest epsilon over the orders, 0 or more; *order: the best order. */
double rdp_epsilon(const double *orders, const double *rdp, size_t count, double delta,
                   double *order);

#endif
