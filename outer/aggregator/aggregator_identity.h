/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGGREGATOR_IDENTITY_H
#define AGGREGATOR_IDENTITY_H
/* The aggregator signs with the identity of a->o->signer, and checks the identities of sites. */
#include "outer/aggregator/aggregator_signs.h"

extern const struct aggregator_signs aggregator_signs_identity;

#endif
