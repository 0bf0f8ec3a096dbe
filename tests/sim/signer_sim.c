/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/signer_sim.h"
#include <stdio.h>
#include <string.h>

static struct signer_key key_of(const char *uri, size_t n)
{
    struct digest d = digest_of(uri, n);
    struct signer_key key;
    memcpy(key.bytes, d.bytes, sizeof key.bytes);
    return key;
}

static void sign_with(const struct signer_key *key, const void *data, size_t n,
                      uint8_t signature[SIGNER_BYTES])
{
    struct digest_stream s;
    digest_open(&s);
    digest_add(&s, key->bytes, sizeof key->bytes);
    digest_add(&s, data, n);
    struct digest d = digest_close(&s);
    memcpy(signature, d.bytes, sizeof d.bytes);
    memcpy(signature + sizeof d.bytes, d.bytes, sizeof d.bytes);
}

static void sim_key(struct signer *self, struct signer_key *out)
{
    const char *uri = ((struct signer_sim *)self)->uri;
    *out = key_of(uri, strlen(uri));
}

static enum err sim_certificate(struct signer *self, uint8_t out[SIGNER_CERTIFICATE_MAX], size_t *n)
{
    const char *uri = ((struct signer_sim *)self)->uri;
    *n = strlen(uri);
    memcpy(out, uri, *n);
    return ERR_OK;
}

static enum err sim_sign(struct signer *self, const void *data, size_t n,
                         uint8_t signature[SIGNER_BYTES])
{
    struct signer_key key;
    sim_key(self, &key);
    sign_with(&key, data, n, signature);
    return ERR_OK;
}

static enum err sim_certified(struct signer *self, const uint8_t *certificate, size_t n,
                              const char *uri, struct signer_identity *out)
{
    (void)self;
    size_t length = strlen(uri);
    bool later = n == length + 2 && certificate[length] == '#';
    if ((n != length && !later) || memcmp(certificate, uri, length) != 0)
        return err_set(ERR_DENIED, "not the identity certificate of %s", uri);
    *out =
        (struct signer_identity){key_of((const char *)certificate, n), digest_of(certificate, n)};
    return ERR_OK;
}

static bool sim_verify(struct signer *self, const struct signer_key *key, const void *data,
                       size_t n, const uint8_t signature[SIGNER_BYTES])
{
    uint8_t wanted[SIGNER_BYTES];
    (void)self;
    sign_with(key, data, n, wanted);
    return memcmp(wanted, signature, sizeof wanted) == 0;
}

static void sim_close(struct signer *self)
{
    (void)self;
}

static const struct signer_ops ops = {sim_key,       sim_certificate, sim_sign,
                                      sim_certified, sim_verify,      sim_close};

void signer_sim_open(struct signer_sim *s, const char *run, const char *role, const char *name)
{
    *s = (struct signer_sim){.signer = {&ops}};
    int n = snprintf(s->uri, sizeof s->uri, "atoll://%s/%s/%s", run, role, name);
    ASSERT(n > 0 && (size_t)n < sizeof s->uri);
}
