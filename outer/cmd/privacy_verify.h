/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PRIVACY_VERIFY_H
#define PRIVACY_VERIFY_H
/* An act of `atoll privacy`; with the network alone, whose library verifies signatures. */
#include "kernels/base/arena.h"
#include "kernels/base/err.h"

enum err privacy_verify(int argc, char **argv, struct arena *arena) MUST;

#endif
