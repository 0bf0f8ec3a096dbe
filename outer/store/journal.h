/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JOURNAL_H
#define JOURNAL_H
/* The aggregator's memory across restarts: an append-only file of promises and decisions. A record
 * is length u32 | CRC-32C u32 | sequence u64 | SHA-256 of the record before | kind u8 | body
 * little-endian; length counts the body, the CRC covers everything but itself. An append is durable
 * before it returns, and only then may its effect be seen.
 *
 * The first record is the head: version, and how many bytes were written with it, at once. Because
 * every append was durable before the next one began, only the last record after those bytes can be
 * torn: it is cut off. Any other bad record is damage, and the reader halts.
 *
 * Bounded: when the file is longer than JOURNAL_BYTES_MAX, a commit rewrites it with the records
 * that are still needed; the sequence and the chain of digests continue through the rewrite. Not
 * thread-safe.
 */
#include "kernels/base/digest.h"
#include "outer/store/env.h"

enum {
    JOURNAL_VERSION = 2,
    JOURNAL_BYTES_MAX = 4 << 20,
    JOURNAL_NAME_MAX = 64, /* with NUL */
    JOURNAL_BODY_MAX = 128 /* less than two records are long: a torn tail is one */
};

enum journal_kind { /* on disk: never renumber */
                    JOURNAL_ACCEPT =
                        1, /* a site's contribution is durable: a receipt was or will be given */
                    JOURNAL_SEAL = 2,   /* secure aggregation: the set of the round is fixed, by the
                                           seal   with this digest; sites may have seen it */
                    JOURNAL_COMMIT = 3, /* the commit point of a round was passed */
                    JOURNAL_ABORT = 4,  /* reserved */
                    JOURNAL_ROSTER = 5, /* `act` 0: what follows is in force for `fragment` from
                                           `round` on. Else a change, by `digest`: of `site`, whose
                                           name is `name`, made version `to`, `fragment` indices are
                                           given; `to` 0: before the last two versions */
                    JOURNAL_QUARANTINE = 6, /* `round` 1: of `site`; 0: its end */
                    JOURNAL_OPERATOR = 7,   /* `act` by `digest`, about `round`, `site` */
                    JOURNAL_HEAD = 8,       /* the journal's own */
                    JOURNAL_TERM = 9,       /* an aggregator's process began: `round` is its term */
                    JOURNAL_AMENDMENT = 10  /* number `to` from 1, by `digest`, from `round` on:
                                               `name` is the next part of its text, the last one
                                               where `act` is 1 */
};

struct journal_record {
    enum journal_kind kind;
    uint32_t fragment, site; /* site: ACCEPT, QUARANTINE, OPERATOR, ROSTER */
    uint64_t round;
    struct digest digest;        /* ACCEPT: payload; SEAL: seal; COMMIT: manifest; OPERATOR, ROSTER:
                                    SHA-256 of the operator's URI */
    uint8_t act;                 /* OPERATOR: enum wire_act; ROSTER: enum manifest_act; AMENDMENT */
    uint64_t to;                 /* OPERATOR: state to roll back to; ROSTER: version; AMENDMENT */
    char name[JOURNAL_NAME_MAX]; /* ROSTER, AMENDMENT */
    /* ACCEPT */
    uint64_t payload_bytes, incarnation, data_cursor, charged;
    float weight;
    uint8_t residual_ratio;
};

struct journal {
    struct env *env;
    const char *path;              /* borrowed */
    uint64_t size_bytes, sequence; /* of the next record */
    struct digest last;            /* of the last record; zero at the beginning */
    uint64_t whole_bytes;          /* that were written at once: none of them can be torn */
    uint64_t cut_bytes;            /* torn tail that open removed */
    bool found;                    /* by open; else it made an empty one */
    bool spoiled;                  /* an append failed: what follows goes into a copy */
};

typedef enum err journal_visit(void *self, const struct journal_record *r);

/* Reads every record in order, and copies them to a new file: the one that was found may hold what
 * no disk has. Makes an empty journal where there is none: whether that is damage, the caller
 * knows. ERR_CORRUPT: damaged, or of a kind this program does not know; ERR_MISMATCH: of
 * another version. */
enum err journal_open(struct journal *j, struct env *w, const char *path, journal_visit *visit,
                      void *self) MUST;
/* Durable on return. ERR_FULL: the record does not count, and the next append first copies the
 * journal to a new file; any other error is final. */
enum err journal_append(struct journal *j, const struct journal_record *r) MUST;
/* The bytes of a journal's file, read while another process appends to it. False: not a chain of
 * whole records to its end; the last record may be incomplete while it is written.
 */
bool journal_intact(const uint8_t *data, size_t size_bytes) MUST;
/* Longer than bytes_max? 0: JOURNAL_BYTES_MAX. */
bool journal_long(const struct journal *j, uint64_t bytes_max);
/* Replaces the file, atomically, by these records. */
enum err journal_rewrite(struct journal *j, const struct journal_record *keep, size_t count) MUST;

#endif
