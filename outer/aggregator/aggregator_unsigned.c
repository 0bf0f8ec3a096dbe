/* SPDX-License-Identifier: Apache-2.0 */
/* A run without identities, as between simulated sites: nothing is signed, and nothing is checked.
 */
#include "outer/aggregator/aggregator_signs.h"

static enum err unsigned_open(void **kept, struct arena *perm)
{
    (void)kept, (void)perm;
    return ERR_OK;
}

static enum err unsigned_nothing(struct aggregator *a)
{
    (void)a;
    return ERR_OK;
}

static enum err unsigned_sign(struct aggregator *a, struct manifest *m)
{
    (void)a, (void)m;
    return ERR_OK;
}

static bool unsigned_identify(struct aggregator *a, unsigned site, const struct wire_hello *m,
                              struct wire_hello_answer *answer)
{
    (void)a, (void)site, (void)m, (void)answer;
    return true;
}

static void unsigned_proofs(struct aggregator *a, const struct wire_hello *m, struct round_event *e)
{
    (void)a, (void)m, (void)e;
}

static void unsigned_announcement(struct aggregator *a, struct wire_announcement *out)
{
    (void)a, (void)out;
}

static bool unsigned_header_signed(const struct aggregator *a, unsigned site,
                                   const struct wire_contribution *m)
{
    (void)a, (void)site, (void)m;
    return true;
}

static enum err unsigned_header_keep(struct aggregator *a, const struct wire_contribution *m,
                                     const char *payload_path)
{
    (void)a, (void)m, (void)payload_path;
    return ERR_OK;
}

static enum err unsigned_header_kept(struct aggregator *a, const struct journal_record *r,
                                     const char *payload_path)
{
    (void)a, (void)r, (void)payload_path;
    return ERR_OK;
}

static bool unsigned_key(const struct aggregator *a, unsigned site, struct signer_key *out)
{
    (void)a, (void)site;
    *out = (struct signer_key){0};
    return false;
}

const struct aggregator_signs aggregator_signs_nothing = {.open = unsigned_open,
                                                          .read = unsigned_nothing,
                                                          .again = unsigned_nothing,
                                                          .sign = unsigned_sign,
                                                          .identify = unsigned_identify,
                                                          .proofs = unsigned_proofs,
                                                          .announcement = unsigned_announcement,
                                                          .header_signed = unsigned_header_signed,
                                                          .header_keep = unsigned_header_keep,
                                                          .header_kept = unsigned_header_kept,
                                                          .key = unsigned_key};
