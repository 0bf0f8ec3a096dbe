/* SPDX-License-Identifier: Apache-2.0 */
/* Under which keys a training process talks, on record: for those who have to know later what left
 * the site (atoll report --privacy). */
#include "outer/run/job.h"
#ifdef ATOLL_NET
#include <string.h>
#include "outer/identity/tls.h"

static void hex_of(char out[65], const uint8_t bytes[32])
{
    struct digest d;
    memcpy(d.bytes, bytes, sizeof d.bytes);
    digest_hex(&d, out);
}

enum err job_keys_record(struct job *j)
{
    struct tls_facts f;
    struct signer_key own, aggregator;
    uint8_t certificate[SIGNER_CERTIFICATE_MAX];
    size_t n;
    char hex[65];
    struct jsonl *r = &j->out->record;
    if (!j->o->parts.signer)
        return ERR_OK;
    TRY(tls_facts(&f, j->o->parts.tls.certificate));
    TRY(j->o->parts.signer->ops->certificate(j->o->parts.signer, certificate, &n));
    j->o->parts.signer->ops->key(j->o->parts.signer, &own);
    jsonl_begin(r, "keys");
    jsonl_text(r, "uri", f.uri);
    digest_hex(&f.sha256, hex);
    jsonl_text(r, "certificate", hex);
    jsonl_text(r, "serial", f.serial);
    jsonl_int(r, "until", f.until_unix);
    hex_of(hex, own.bytes);
    jsonl_text(r, "identity", hex);
    struct digest d = digest_of(certificate, n);
    digest_hex(&d, hex);
    jsonl_text(r, "identity_certificate", hex);
    bool known = site_aggregator_key(j->o->parts.site, 0, &aggregator);
    hex_of(hex, aggregator.bytes);
    jsonl_text(r, "aggregator_identity", known ? hex : "");
    jsonl_end(r);
    return ERR_OK;
}
#else
enum err job_keys_record(struct job *j)
{
    (void)j;
    return ERR_OK;
}
#endif
