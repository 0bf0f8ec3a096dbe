/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SEAL_H
#define SEAL_H
/* The messages of one round of secure aggregation, as bytes, and the answers to them
 * (docs/privacy-methods.md). U: the sites that are announced for a round, and mask for each other.
 * S: the subset that is summed. A seal fixes S and what each of its sites sent. Decisions:
 * seal_site.h, seal_aggregator.h. Pure but for the signer that is passed in.
 *
 * Little-endian; a text is u16 length and its bytes; a set is ceil(sites / 8) bytes, site i being
 * bit i % 8 of byte i / 8.
 *   seal        "atollSQ1", run, configuration[32], u32 roster version, u32 sites, u64 term,
 *               u32 F, u64 t, u32 attempt, U, S, payload digest[32] of each site of S
 *               The aggregator signs these bytes. The seal's digest is their SHA-256.
 *   signature   u32 site, seal digest[32], signature[64] by the site's identity of
 *               "atollSX1", u32 site, seal digest[32]
 *   reveal      "atollSR1", u32 site, seal digest[32], b[32], u32 count, count times:
 *               u32 site of U without S, seed[32]; in the order of sites
 */
#include "outer/masks/keys.h"
#include "outer/masks/mask.h"
#include "outer/protocol/round.h"

/* X(name, text): the names of docs/refusals.md where it has them. ok and again are no refusals. */
#define SEAL_ANSWERS(X)                                                                            \
    X(ok, "done")                                                                                  \
    X(again, "the same as before: the same answer")                                                \
    X(malformed, "the message cannot be read, or has the wrong size")                              \
    X(other_run, "another run, configuration or roster")                                           \
    X(announce_too_small, "fewer sites are announced than a sum needs")                            \
    X(announce_without_me, "this site is not announced")                                           \
    X(announce_stranger, "a site is announced that the roster does not have")                      \
    X(announce_second, "another set was announced for this attempt before")                        \
    X(announce_two_sites, "with two sites each sees the other's values in the sum")                \
    X(contribute_twice, "other bytes for a round that this site has masked")                       \
    X(contribute_after_seal, "this site has signed a seal of this round")                          \
    X(contribute_after_abort, "the round was aborted")                                             \
    X(contribute_not_announced, "a contribution of a site that is not announced")                  \
    X(round_old, "the round is final, or the attempt is over")                                     \
    X(rounds_full, "too many rounds that are not final")                                           \
    X(round_unknown, "this site has contributed nothing to the round")                             \
    X(seal_forged, "the aggregator has not signed this seal")                                      \
    X(seal_second, "another seal of this round was signed")                                        \
    X(seal_after_abort, "the round was aborted")                                                   \
    X(seal_set_too_small, "fewer sites are sealed than a sum needs")                               \
    X(seal_without_me, "this site is not in the sealed set")                                       \
    X(seal_other_round, "a seal of another round than the one in flight")                          \
    X(seal_other_u, "another announced set than this site masked with")                            \
    X(seal_not_subset, "a sealed site was not announced")                                          \
    X(seal_other_payload, "another digest than this site's contribution has")                      \
    X(seal_signature_missing, "the signature of a sealed site is missing or does not hold")        \
    X(reveal_unsigned, "this site has signed no seal of the round")                                \
    X(reveal_twice, "this site has answered for another seal of the round")                        \
    X(reveal_after_abort, "the round was aborted")                                                 \
    X(reveal_other_sites, "seeds of other sites than those that are announced and not sealed")     \
    X(reveal_no_key, "the keys of the round are missing, or wiped")                                \
    X(not_ready, "this comes before its turn")                                                     \
    X(no_memory, "no memory")

enum seal_answer {
#define X(name, text) SEAL_##name,
    SEAL_ANSWERS(X)
#undef X
};
const char *seal_answer_name(enum seal_answer a); /* "seal_second" */
const char *seal_answer_text(enum seal_answer a);

/* What a process knows for itself about the sites of a round; never from the messages. */
struct seal_context {
    const char *run; /* KEYS_RUN_MAX at most */
    struct digest config;
    uint32_t roster_version;
    unsigned sites;                    /* indices, SET_MAX at most */
    struct set members;                /* of that version; n is their number */
    unsigned colluding;                /* c: sites that may work together with the aggregator */
    bool two_sites;                    /* allow n = 2, which hides nothing */
    const struct signer_key *identity; /* [sites], pinned */
    struct signer_key aggregator;      /* of the term */
};

/* ERR_CONFIG: n < 2, c > n - 2, or n = 2 without two_sites. */
enum err seal_context_check(const struct seal_context *c) MUST;

struct seal_announce {
    uint32_t fragment, attempt; /* attempts of a round count up from 0 */
    uint64_t round;
    struct set u;
};
struct seal {
    struct seal_announce of;
    uint64_t term; /* in which it was made; a restart does not change it */
    struct set s;
    struct digest payload[SET_MAX]; /* of the sites of S; the others zero */
};
enum {
    SEAL_BYTES_MAX = 8 + 2 + KEYS_RUN_MAX + 32 + 4 + 4 + 8 + 4 + 8 + 4 + SET_MAX / 4 + 32 * SET_MAX,
    SEAL_SIGNATURE_BYTES = 4 + 32 + SIGNER_BYTES,
    SEAL_STATEMENT_BYTES = 8 + 4 + 32
};
size_t seal_bytes(const struct seal_context *c, const struct set *s); /* of a seal of |S| sites */
/* Bytes written. */
size_t seal_write(const struct seal_context *c, const struct seal *s, uint8_t out[SEAL_BYTES_MAX]);
/* malformed, other_run. Checks form alone. */
enum seal_answer seal_read(const struct seal_context *c, struct seal *s, const uint8_t *data,
                           size_t n) MUST;

struct seal_signature {
    uint32_t site;
    struct digest seal;
    uint8_t signature[SIGNER_BYTES];
};
/* What a site signs: "atollSX1", u32 site, seal digest[32]. */
void seal_statement(uint8_t out[SEAL_STATEMENT_BYTES], uint32_t site, const struct digest *seal);
enum err seal_signature_make(struct seal_signature *out, struct signer *signer, uint32_t site,
                             const struct digest *seal) MUST;
bool seal_signature_holds(const struct seal_signature *s, struct signer *signer,
                          const struct signer_key *identity);
void seal_signature_write(const struct seal_signature *s, uint8_t out[SEAL_SIGNATURE_BYTES]);
enum seal_answer seal_signature_read(struct seal_signature *s, const uint8_t *data, size_t n) MUST;

struct seal_seed { /* s_ij of a site of U without S */
    uint32_t site;
    struct cipher_key seed;
};
struct seal_reveal {
    uint32_t site;
    struct digest seal;
    struct cipher_key b;
    uint32_t count;
    struct seal_seed *seeds; /* [count], the owner's; seal_reveal_read: room for SET_MAX */
};
size_t seal_reveal_bytes(uint32_t count);
void seal_reveal_write(const struct seal_reveal *r, uint8_t *out); /* seal_reveal_bytes of it */
/* The count is checked against the size before a seed is read. */
enum seal_answer seal_reveal_read(struct seal_reveal *r, const uint8_t *data, size_t n) MUST;

/* Sets: ceil(sites / 8) bytes. Read: false, and the reader is bad, where a site from `sites` on is
 * in it. */
struct bytes_writer;
struct bytes_reader;
void seal_set_write(struct bytes_writer *w, const struct set *s, unsigned sites);
bool seal_set_read(struct bytes_reader *r, struct set *s, unsigned sites) MUST;

#endif
