/* SPDX-License-Identifier: Apache-2.0 */
#ifndef REFUSALS_H
#define REFUSALS_H
/* Everything that must be refused, by name: what comes, and what it gets. One row a name; the
 * program test_refusals does each row over the real link (TLS, gRPC, the real aggregator) and
 * compares what came back; docs/refusals.md is this table as a page.
 *
 *   X(group, name, answer, what)                  done by `const char *NAME(void)` of this folder,
 *                                                 which returns the answer
 *   OTHER(group, name, answer, what, file, test)  done by that test of that file
 *   SILENT(group, name, what, why)                cannot be said on this wire
 *   LATER(group, name, what, needs)               not built: what it needs first
 *
 * Answers: "connection": no call gets through, the connection is ended or the handshake refused.
 * "status S": gRPC's status, no service code saw the call. "answer A": an outcome of the protocol
 * (docs/protocol.md 3.2). "site E": what the site makes of it (enum err). "waits R": the site
 * logs the refusal R, signs and reveals nothing, and asks again. "limited": the others are served
 * meanwhile.
 */
#define REFUSALS(X, OTHER, SILENT, LATER)                                                          \
    X(HANDSHAKE, tls10, "connection", "a client of TLS 1.0")                                       \
    X(HANDSHAKE, tls11, "connection", "a client of TLS 1.1")                                       \
    X(HANDSHAKE, tls12_client, "connection", "a client of TLS 1.2")                                \
    X(HANDSHAKE, tls12_server_to_site, "site LINK", "an aggregator of TLS 1.2")                    \
    X(HANDSHAKE, aes128_only, "connection", "a client that has AES-128 only")                      \
    X(HANDSHAKE, plaintext_h2c, "connection", "HTTP/2 without TLS")                                \
    X(HANDSHAKE, http1, "connection", "TLS with the protocol http/1.1")                            \
    X(HANDSHAKE, no_alpn, "connection", "TLS without a protocol name")                             \
    X(HANDSHAKE, no_client_cert, "connection", "a client without a certificate")                   \
    X(HANDSHAKE, client_expired, "connection", "a site's certificate of yesterday")                \
    X(HANDSHAKE, client_not_yet_valid, "connection", "a site's certificate of tomorrow")           \
    X(HANDSHAKE, server_expired, "site DENIED", "an aggregator's certificate of yesterday")        \
    X(HANDSHAKE, wrong_ca_client, "connection", "a site's certificate of another authority")       \
    X(HANDSHAKE, wrong_ca_server, "site DENIED", "an aggregator's one of another authority")       \
    X(HANDSHAKE, public_root_server, "site DENIED",                                                \
      "an aggregator's certificate of an authority that the system trusts")                        \
    X(HANDSHAKE, self_signed, "connection", "a site's certificate signed with its own key")        \
    X(HANDSHAKE, server_name_wrong, "site DENIED", "an aggregator's certificate of another host")  \
    X(HANDSHAKE, cn_only, "status PERMISSION_DENIED", "the identity in the subject alone")         \
    X(HANDSHAKE, two_uri_sans, "status PERMISSION_DENIED", "two identities")                       \
    X(HANDSHAKE, san_other_run, "answer denied", "the identity of another run")                    \
    X(HANDSHAKE, san_unknown_role, "answer denied", "a role that does not exist")                  \
    X(HANDSHAKE, san_unknown_site, "answer excluded", "a site that is not in the roster")          \
    X(HANDSHAKE, san_embedded_nul, "status PERMISSION_DENIED", "a zero byte in the identity")      \
    X(HANDSHAKE, san_percent_encoded, "answer denied", "an escaped letter in the identity")        \
    X(HANDSHAKE, san_case_or_slash, "answer denied",                                               \
      "another case, a slash more, in any part of the identity")                                   \
    X(HANDSHAKE, san_too_long, "status PERMISSION_DENIED", "an identity of 4,000 bytes")           \
    X(HANDSHAKE, eku_wrong, "connection", "a site's certificate for servers only")                 \
    X(HANDSHAKE, identity_as_leaf, "connection", "a site's identity certificate")                  \
    X(HANDSHAKE, ca_as_leaf, "connection", "the authority's own certificate")                      \
    X(HANDSHAKE, rsa1024_or_sha1, "connection", "keys of 1,024 bits; a signature with SHA-1")      \
    X(HANDSHAKE, crl_revoked, "status PERMISSION_DENIED", "a revoked identity")                    \
    X(HANDSHAKE, ticket_resumed, "connection", "an earlier session, resumed without certificate")  \
    X(HANDSHAKE, early_data, "connection", "a call in the first packet of the handshake")          \
    X(HANDSHAKE, old_root_after_roll, "connection",                                                \
      "a certificate of the former authority, once it is replaced in a running aggregator")        \
    X(AUTHORISATION, contribute_as_other, "answer denied", "a contribution in another's name")     \
    X(AUTHORISATION, site_calls_operator_rpc, "answer denied",                                     \
      "a quarantine of site b, asked for by site a")                                               \
    X(AUTHORISATION, observer_contributes, "answer denied", "a contribution by an observer")       \
    X(AUTHORISATION, operator_contributes, "answer denied", "a contribution by an operator")       \
    X(AUTHORISATION, aggregator_cert_as_site, "answer denied",                                     \
      "a contribution with the aggregator's certificate")                                          \
    X(AUTHORISATION, delisted_between_rpcs, "status PERMISSION_DENIED",                            \
      "the next call on the same connection, once the identity is revoked")                        \
    X(AUTHORISATION, quarantined, "answer excluded", "a contribution by a site in quarantine")     \
    X(AUTHORISATION, fetch_of_spool, "status INVALID_ARGUMENT",                                    \
      "a download of another thing than an aggregate or a snapshot")                               \
    X(AUTHORISATION, metrics_of_other, "answer denied", "another site's metrics")                  \
    X(AUTHORISATION, unknown_rpc, "status UNIMPLEMENTED",                                          \
      "a call of a method that does not exist")                                                    \
    X(LINEAGE, wrong_run, "answer mismatch", "another run's name in the header")                   \
    X(LINEAGE, wrong_config, "answer mismatch", "another digest of the settings")                  \
    X(LINEAGE, wrong_roster, "answer mismatch", "a later version of the roster")                   \
    X(LINEAGE, wrong_major, "answer mismatch", "another major version of the protocol")            \
    X(LINEAGE, term_lower, "answer rebind", "an earlier term")                                     \
    X(LINEAGE, term_higher_no_proof, "answer conflict",                                            \
      "a later term, without proof, or announced by a site")                                       \
    X(LINEAGE, term_higher_proof, "answer lost_state",                                             \
      "a later term that another process of the aggregator has signed: this one halts")            \
    X(LINEAGE, term_instance_proof, "answer lost_state",                                           \
      "the same term of another process, signed: this one halts")                                  \
    X(LINEAGE, other_instance, "answer conflict", "the same start of a site, another process")     \
    X(LINEAGE, old_incarnation, "answer superseded", "an earlier process of the site")             \
    X(LINEAGE, round_replayed, "answer behind", "the bytes of a committed round")                  \
    X(LINEAGE, round_other_digest, "answer conflict", "other bytes for an accepted round")         \
    X(LINEAGE, ahead_no_proof, "answer conflict",                                                  \
      "a later round, without proof, or signed by a site")                                         \
    X(LINEAGE, ahead_proof, "answer lost_state",                                                   \
      "a later round whose manifest the aggregator's identity has signed: this one halts")         \
    X(LINEAGE, history_proof, "answer lost_state",                                                 \
      "another manifest of the same round, of a later term, signed: this one halts")               \
    X(LINEAGE, wrong_parent, "answer conflict", "the present round of another history")            \
    X(LINEAGE, other_fragment, "answer invalid", "a fragment that the run does not have")          \
    X(LINEAGE, header_signature_bad, "answer invalid",                                             \
      "a header whose signature does not hold, any byte of it, or none")                           \
    X(LINEAGE, header_signed_by_other, "answer invalid", "a header that another site signed")      \
    X(LINEAGE, identity_missing, "answer denied", "a hello without an identity")                   \
    X(LINEAGE, identity_of_other, "answer denied", "the identity certificate of another site")     \
    X(LINEAGE, identity_other_authority, "answer denied",                                          \
      "an identity certificate of another authority")                                              \
    X(LINEAGE, identity_is_tls, "answer denied", "the site's TLS certificate as its identity")     \
    X(LINEAGE, identity_second, "answer denied",                                                   \
      "another certified identity key for a site that has one")                                    \
    X(FORM, header_oversize, "status INVALID_ARGUMENT", "a header of more than 1 KiB")             \
    X(FORM, metadata_oversize, "status RESOURCE_EXHAUSTED", "HTTP headers of 64 KiB")              \
    X(FORM, length_plus_one, "answer invalid", "a payload one byte longer than its content")       \
    X(FORM, length_minus_one, "answer invalid", "a payload one byte shorter")                      \
    X(FORM, length_2_64, "answer invalid", "a payload of 2^64 - 1 bytes, in words")                \
    X(FORM, chunk_oversize, "answer invalid", "a chunk of 1 MiB and a byte")                       \
    X(FORM, chunk_gap, "answer resume", "a chunk that leaves some bytes out")                      \
    X(FORM, chunk_overlap, "answer resume", "a chunk that begins before what is stored")           \
    X(FORM, chunk_crc, "answer resume", "a chunk whose checksum does not hold")                    \
    X(FORM, digest_wrong, "answer resume", "a payload whose digest does not hold")                 \
    X(FORM, gzip_message, "status UNIMPLEMENTED", "a compressed message")                          \
    X(FORM, compressed_flag, "status INVALID_ARGUMENT",                                            \
      "a message marked as compressed, without a name")                                            \
    X(FORM, scale_nan, "answer invalid", "a scale that is no number")                              \
    X(FORM, scale_negative, "answer invalid", "a negative scale")                                  \
    X(FORM, integer_above_q, "answer invalid", "an integer above Q")                               \
    X(FORM, index_range, "answer invalid", "an index past the end")                                \
    SILENT(FORM, index_unsorted, "indices out of order",                                           \
           "indices travel as distances, which are never negative")                                \
    X(FORM, trailing_bytes, "answer invalid", "bytes after the last block")                        \
    X(LOAD, ping_flood, "connection", "10,000 pings")                                              \
    X(LOAD, stream_flood, "status RESOURCE_EXHAUSTED", "100 held calls of one site")               \
    X(LOAD, call_flood, "status RESOURCE_EXHAUSTED",                                               \
      "calls of one site without a pause, beyond its rate")                                        \
    X(LOAD, rst_flood, "limited", "2,000 calls, each reset at once")                               \
    OTHER(LOAD, slow_loris, "status CANCELLED", "calls that say nothing",                          \
          "tests/outer/link/test_link_hostile.c", a_call_has_to_say_something)                     \
    X(LOAD, hello_storm, "limited", "hellos without a pause, from eight connections")              \
    OTHER(SITE, manifest_signature_bad, "site DENIED", "a manifest whose signature does not hold", \
          "tests/outer/site/test_site.c", test_what_is_not_signed_is_not_adopted)                  \
    OTHER(SITE, announcement_bad, "site DENIED",                                                   \
          "a term that is not signed, or by a site, or another than the answer says",              \
          "tests/outer/site/test_site.c", test_an_term_that_is_not_signed)                         \
    OTHER(SITE, manifest_term_lower, "not adopted", "a manifest of an earlier term",               \
          "tests/outer/site/test_site.c", test_a_commit_of_an_older_term_is_not_adopted)           \
    OTHER(SITE, manifest_omits_me_strict, "site DISAGREE", "a manifest without this site",         \
          "tests/outer/site/test_site.c", test_spoiled_manifests)                                  \
    OTHER(SITE, manifest_alters_my_digest, "site DISAGREE",                                        \
          "a manifest with another digest of this site's payload", "tests/outer/site/test_site.c", \
          test_spoiled_manifests)                                                                  \
    OTHER(SITE, aggregate_digest_wrong, "site PROTO", "an aggregate whose digest does not hold",   \
          "tests/outer/site/test_site.c", test_spoiled_aggregate_is_fetched_again)                 \
    OTHER(SITE, shard_wrong, "site PROTO", "a snapshot whose digest does not hold",                \
          "tests/outer/store/test_outer_state.c", test_snapshot)                                   \
    X(SITE, aggregator_role_wrong, "site DENIED",                                                  \
      "a site's certificate at the aggregator's address")                                          \
    X(SUMS, seal_second, "waits seal_second",                                                      \
      "a second seal of a round, to sign or to answer for")                                        \
    X(SUMS, seal_set_too_small, "waits seal_set_too_small", "a seal of too few sites")             \
    X(SUMS, seal_without_me, "waits seal_without_me", "a seal without this site")                  \
    X(SUMS, seal_not_subset, "waits seal_not_subset", "a seal with a site that was not announced") \
    X(SUMS, seal_other_u, "waits seal_other_u", "a seal of another announced set")                 \
    X(SUMS, seal_other_payload, "waits seal_other_payload",                                        \
      "a seal with another digest of this site's bytes")                                           \
    X(SUMS, seal_other_round, "waits seal_other_round",                                            \
      "a seal of another round than the one in flight")                                            \
    X(SUMS, seal_other_attempt, "waits round_old", "a seal of another attempt")                    \
    X(SUMS, seal_other_run, "waits other_run", "a seal of another run")                            \
    X(SUMS, seal_malformed, "waits malformed", "a seal, or seal and signatures, cut anywhere")     \
    X(SUMS, seal_forged, "waits seal_forged", "a seal that a site has signed")                     \
    X(SUMS, seal_signature_missing, "waits seal_signature_missing",                                \
      "a seal that a site did not sign, or another one in its place")                              \
    X(SUMS, seal_after_abort, "waits seal_after_abort", "a request to sign an aborted round")      \
    X(SUMS, reveal_unsigned, "waits reveal_unsigned",                                              \
      "a request to reveal for a seal that this site did not sign")                                \
    X(SUMS, reveal_twice, "waits reveal_twice",                                                    \
      "a request to reveal for another seal, once it has revealed")                                \
    X(SUMS, reveal_after_abort, "waits reveal_after_abort",                                        \
      "a request to reveal an aborted round")                                                      \
    X(SUMS, poll_seal_too_small, "waits seal_set_too_small",                                       \
      "in a poll's answer: a seal of too few sites")                                               \
    X(SUMS, poll_seal_other_u, "waits seal_other_u",                                               \
      "in a poll's answer: a seal of another announced set")                                       \
    X(SUMS, poll_seal_other_payload, "waits seal_other_payload",                                   \
      "in a poll's answer: a seal with another digest of this site's bytes")                       \
    X(SUMS, poll_seal_other_round, "waits seal_other_round",                                       \
      "in a poll's answer: a seal of another round than the one in flight")                        \
    X(SUMS, poll_seal_malformed, "waits malformed",                                                \
      "in a poll's answer: a seal, or seal and signatures, cut anywhere")                          \
    X(SUMS, poll_seal_forged, "waits seal_forged",                                                 \
      "in a poll's answer: a seal that a site has signed")                                         \
    X(SUMS, poll_seal_second, "waits seal_second",                                                 \
      "in a poll's answer: a second seal of a round, to sign or to answer for")                    \
    X(SUMS, poll_signature_missing, "waits seal_signature_missing",                                \
      "in a poll's answer: a seal that a site did not sign, or another one in its place")          \
    X(SUMS, poll_reveal_twice, "waits reveal_twice",                                               \
      "in a poll's answer: another seal, once this site has revealed")                             \
    X(SUMS, poll_seal_after_abort, "waits seal_after_abort",                                       \
      "in a poll's answer: the seal of an aborted round")                                          \
    X(SUMS, poll_reveal_after_abort, "waits reveal_after_abort",                                   \
      "in a poll's answer: seal and signatures of an aborted round")                               \
    X(SUMS, poll_step_unasked, "waits malformed",                                                  \
      "a poll's answer that wants a step which no poll asks for")                                  \
    X(SUMS, announce_too_small, "waits announce_too_small", "a round of too few sites")            \
    X(SUMS, announce_without_me, "waits announce_without_me", "a round without this site")         \
    X(SUMS, announce_stranger, "waits announce_stranger",                                          \
      "a round with a removed site, or of a roster that does not follow")                          \
    X(SUMS, announce_malformed, "waits malformed", "the sites of a round, cut or too long")        \
    X(SUMS, x25519_low_order, "waits x25519_low_order",                                            \
      "public keys of low order, signed by their site")                                            \
    X(SUMS, pair_key_substituted, "waits pair_key_substituted",                                    \
      "a public key that its site did not sign; a second one that it did")                         \
    X(SUMS, pair_identity_wrong, "waits identity",                                                 \
      "a public key with another site's certificate or name")                                      \
    X(SUMS, pair_list_malformed, "waits malformed",                                                \
      "a list of public keys that is cut anywhere, or never ends")                                 \
    X(SUMS, mask_by_operator, "answer denied", "a step by an operator")                            \
    X(SUMS, mask_by_observer, "answer denied", "a step by an observer")                            \
    X(SUMS, mask_as_other, "answer denied", "a step in another site's name")                       \
    X(SUMS, mask_by_removed, "answer excluded", "a step by a removed site")                        \
    X(SUMS, mask_without_secure, "answer invalid", "a step in a run without secure aggregation")   \
    X(SUMS, mask_old_round, "answer behind", "a step of a round that is over")                     \
    X(SUMS, key_second, "answer denied", "a second public key of a site for the same roster")      \
    X(SUMS, key_signed_by_other, "answer invalid", "a public key that another site has signed")    \
    X(SUMS, key_of_low_order, "answer invalid", "a public key of low order")                       \
    X(SUMS, sign_other_seal, "answer invalid", "a signature under another seal")                   \
    X(SUMS, sign_by_other, "answer invalid", "another site's signature")                           \
    X(SUMS, reveal_too_early, "answer pending", "a mask before all sites have signed")             \
    X(SUMS, reveal_other_seal, "answer invalid", "a mask for another seal")                        \
    X(SUMS, reveal_by_other, "answer invalid", "another site's mask")                              \
    X(SUMS, reveal_other_sites, "answer invalid", "seeds of sites that are in the sum")            \
    X(SUMS, masked_header, "answer invalid",                                                       \
      "a contribution in the clear; of another size; with a weight or a residual")                 \
    X(SUMS, mask_body_oversize, "status INVALID_ARGUMENT", "a body of 30,721 bytes")               \
    X(SUMS, mask_message_oversize, "status INVALID_ARGUMENT", "a message of 60 KiB")               \
    X(SUMS, mask_step_unknown, "status INVALID_ARGUMENT", "a step that does not exist")

/* The page's sections. */
#define REFUSAL_GROUPS(X)                                                                          \
    X(HANDSHAKE, "Handshake and identity")                                                         \
    X(AUTHORISATION, "Authorisation")                                                              \
    X(LINEAGE, "Lineage and replay")                                                               \
    X(FORM, "Size and form")                                                                       \
    X(LOAD, "Load")                                                                                \
    X(SITE, "At the site")                                                                         \
    X(SUMS, "Secure aggregation")

#define REFUSAL_RUN(group, name, answer, what) const char *name(void);
#define REFUSAL_NONE(...)
REFUSALS(REFUSAL_RUN, REFUSAL_NONE, REFUSAL_NONE, REFUSAL_NONE)
#undef REFUSAL_RUN
#undef REFUSAL_NONE

#endif
