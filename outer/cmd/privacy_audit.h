/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PRIVACY_AUDIT_H
#define PRIVACY_AUDIT_H
/* An audit of differential privacy in one training run (2305.08846): `atoll privacy canaries` puts
 * random examples into a site's training text, each with probability 1/2; `atoll privacy audit`
 * guesses of each, from the trained model alone, whether it was there.
 */
#include "kernels/base/arena.h"

enum err privacy_canaries(int argc, char **argv, struct arena *arena) MUST;
enum err privacy_audit(int argc, char **argv, struct arena *arena) MUST;

#endif
