/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIGNER_H
#define SIGNER_H
/* The seam of signatures: an identity key, Ed25519, and the certificates of other identities.
 * Implementations: tls_signer.c (files of tls.dir, OpenSSL) and tests/sim/signer_sim.c. Which bytes
 * are signed: signed.h. A process that has no signer (a site that is its own aggregator, tests)
 * neither signs nor checks.
 *
 * An identity certificate names one URI, atoll://run/role/name, as the TLS certificate of the same
 * process does; it can never be used for TLS, nor a TLS certificate as an identity. Any thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "kernels/base/digest.h"
#include "kernels/base/err.h"

enum {
    SIGNER_BYTES = 64, /* of a signature */
    SIGNER_CERTIFICATE_MAX = 4096,
    SIGNER_ANNOUNCEMENT_MAX = SIGNER_CERTIFICATE_MAX + 256 /* signed.h */
};
struct signer_key { /* public */
    uint8_t bytes[32];
};
struct signer_identity { /* of a certificate that was verified */
    struct signer_key key;
    struct digest certificate; /* SHA-256 of its DER bytes */
};

struct signer;
struct signer_ops {
    void (*key)(struct signer *s, struct signer_key *out); /* its own */
    /* Its own certificate, DER; certificates of intermediate authorities may follow. Files that
     * were replaced are read again. */
    enum err (*certificate)(struct signer *s, uint8_t out[SIGNER_CERTIFICATE_MAX], size_t *n) MUST;
    enum err (*sign)(struct signer *s, const void *data, size_t n,
                     uint8_t signature[SIGNER_BYTES]) MUST;
    /* Is this the identity certificate of `uri`, by an authority of this run, valid now?
     * ERR_DENIED: the text says what does not hold. */
    enum err (*certified)(struct signer *s, const uint8_t *certificate, size_t n, const char *uri,
                          struct signer_identity *out) MUST;
    bool (*verify)(struct signer *s, const struct signer_key *key, const void *data, size_t n,
                   const uint8_t signature[SIGNER_BYTES]);
    void (*close)(struct signer *s);
};
struct signer {
    const struct signer_ops *ops;
};

#endif
