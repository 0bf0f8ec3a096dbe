/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PRIVACY_H
#define PRIVACY_H
/* Acts of `atoll privacy` that have files of their own. canaries puts random examples into a site's
 * training text, each with probability 1/2; audit guesses of each, from the trained model alone,
 * whether it was there (2305.08846). verify is there with the network alone, whose library verifies
 * signatures.
 */
#include "kernels/base/arena.h"

enum err privacy_canaries(int argc, char **argv, struct arena *arena) MUST;
enum err privacy_audit(int argc, char **argv, struct arena *arena) MUST;
enum err privacy_verify(int argc, char **argv, struct arena *arena) MUST;

#endif
