/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIGNER_SIM_H
#define SIGNER_SIM_H
/* A signer without cryptography, for simulations: a certificate is the URI and
 * after it '#' and the number of a later key, a key the certificate's SHA-256, a signature the
 * SHA-256 of key and data, twice. Every process could make every signature; none in a simulation
 * does who must not. */
#include "outer/protocol/signer.h"

enum { SIGNER_SIM_URI_MAX = 192 };
struct signer_sim {
    struct signer signer;
    char uri[SIGNER_SIM_URI_MAX]; /* and '#' and a digit: the certificate */
};
void signer_sim_open(struct signer_sim *s, const char *run, const char *role, const char *name);

#endif
