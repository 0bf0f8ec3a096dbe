/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PRIVACY_KEYS_H
#define PRIVACY_KEYS_H
/* The pair keys of a site for secure aggregation (docs/privacy-methods.md): one X25519 key in each
 * setup, a key k_ij with each other site and fragment, and its ratchet. No file access, no clock:
 * the caller draws the random bytes, and stores keys_parts() under id/ with mode 0600.
 *
 *   k_ij = HKDF-SHA256(ikm X25519(a_i, A_j), salt run, info "atoll/pair" | u32 F | u32 min(i, j) |
 *          u32 max(i, j))                                                             32 bytes
 *   s_ij = HKDF-Expand(k_ij, "mask" | u64 t | u32 attempt | configuration digest)      32 bytes
 *   next = HKDF-Expand(k_ij, "ratchet" | u64 t)                                        32 bytes
 *
 * A setup has the number of a roster version; each change of the roster that brings a site is one.
 * A statement says which public key a site has in a setup, signed by its identity key. The signed
 * bytes: "atollSK1", run (u16 length and text), u32 setup, u32 site, key[32].
 *
 * Order on disk, all the caller's: keys_setup, then store, then send the statement: a site never
 * has two keys in one setup. keys_pair wipes the X25519 key with the last pair, then store: until
 * then a copy of the file can make all pair keys again. keys_final, then store. A file that is
 * replaced may stay on the medium; use an encrypted one where that matters.
 *
 * Memory: sites * fragments * 32 bytes of secrets. One thread at a time.
 */
#include <stdbool.h>
#include "kernels/base/record.h"
#include "outer/protocol/signer.h"
#include "outer/masks/cipher.h"
#include "outer/protocol/site_set.h"

enum {
    KEYS_FRAGMENTS_MAX = 64,
    KEYS_RUN_MAX = 63,
    KEYS_AHEAD_MAX = 4096, /* rounds from the last final one to a seed */
    KEYS_STATEMENT_BYTES = 4 + 4 + CIPHER_KEY_BYTES + SIGNER_BYTES,
    KEYS_FILE_MODE = 0600
};

/* X(name, text): names as docs/refusals.md has them. */
#define KEYS_ANSWERS(X)                                                                            \
    X(ok, "done")                                                                                  \
    X(x25519_low_order, "the public key is a point of low order")                                  \
    X(pair_key_substituted, "no identity of that site has signed this key, or it is a second one") \
    X(pair_other_setup, "a key of another setup")                                                  \
    X(pair_unknown_site, "the site is not in this setup")                                          \
    X(pair_missing, "there is no key with that site")                                              \
    X(pair_ratcheted, "the keys of that round are wiped: it is final")                             \
    X(pair_too_far, "the round is too far from the last final one")                                \
    X(pair_no_memory, "no memory")

enum keys_answer {
#define X(name, text) KEYS_##name,
    KEYS_ANSWERS(X)
#undef X
};
const char *keys_answer_name(enum keys_answer a); /* "pair_key_substituted" */
const char *keys_answer_text(enum keys_answer a);

struct keys_statement {
    uint32_t setup, site;
    struct cipher_public key;
    uint8_t signature[SIGNER_BYTES];
};
void keys_statement_write(const struct keys_statement *s, uint8_t out[KEYS_STATEMENT_BYTES]);
enum err keys_statement_read(struct keys_statement *s, const uint8_t *data, size_t n) MUST;

/* Is it signed by this identity, and no point of low order? For who makes no pair with it. */
enum keys_answer keys_statement_check(const char *run, struct signer *signer,
                                      const struct signer_key *identity,
                                      const struct keys_statement *s) MUST;

struct keys; /* opaque: secrets */
struct keys_options {
    const char *run;
    unsigned site, sites, fragments; /* sites: indices, SET_MAX at most */
    struct digest config;            /* of the run */
};
enum err keys_open(struct keys **k, const struct keys_options *o) MUST;
void keys_close(struct keys *k); /* wipes; NULL is fine */

/* A setup with these sites, of which `site` itself is left out. own: 32 random bytes, copied.
 * first[fragments]: the round that the new pairs begin with. number is above all before; pairs that
 * exist stay, except with sites of `peers`. An unfinished setup before it ends: its sites that are
 * in no pair have to be in `peers`. */
enum err keys_setup(struct keys *k, uint32_t number, const struct set *peers,
                    const struct cipher_key *own, const uint64_t *first) MUST;
uint32_t keys_setup_number(const struct keys *k); /* 0: none yet */
/* Its own, of the newest setup; also after the X25519 key is wiped. */
enum err keys_statement_own(const struct keys *k, struct signer *signer,
                            struct keys_statement *out) MUST;
/* identity: as pinned in this site's own roster. OK once more for the same key. */
enum keys_answer keys_pair(struct keys *k, struct signer *signer, const struct signer_key *identity,
                           const struct keys_statement *s) MUST;
bool keys_complete(const struct keys *k); /* a setup was made, and its X25519 key is wiped */
bool keys_has(const struct keys *k, unsigned site);
uint32_t keys_setup_of(const struct keys *k, unsigned site); /* that made the pair; 0: none */
/* Of a site that was removed: wiped, and with the last one that a setup waited for the X25519 key.
 */
void keys_forget(struct keys *k, unsigned site);

/* s_ij. The rounds before it need not be final: the key of the round is derived on the way. */
enum keys_answer keys_seed(const struct keys *k, struct cipher_key *seed, unsigned fragment,
                           unsigned site, uint64_t round, uint32_t attempt) MUST;
/* The round is final: the keys of it and of those before are wiped. In every site, whether it was
 * in the round or not. */
void keys_final(struct keys *k, unsigned fragment, uint64_t round);

/* A record (record.h) of kind "maskkeys": parts in `a` and in k, until k changes. */
enum err keys_parts(const struct keys *k, struct file_part **parts, size_t *count,
                    struct arena *a) MUST;
/* Into an opened k. ERR_MISMATCH: of another run, site, configuration or size; ERR_CORRUPT. The
 * caller wipes the bytes. */
enum err keys_read(struct keys *k, const char *path, const void *data, size_t n) MUST;

#endif
