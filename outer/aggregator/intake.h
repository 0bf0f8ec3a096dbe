/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INTAKE_H
#define INTAKE_H
/* A file that a site uploads: its part file, which of its bytes are stored, and its final name. Two
 * services receive uploads: aggregator_spool.c takes contributions, supply.c takes the parts of a
 * lost directory. They decide who may send what, and what follows once all bytes are stored.
 * Threads: intake_store, intake_keep and intake_verdict run without the lock of the
 * service (link.h: store, verify), all else under it.
 */
#include "outer/wire/blocks.h"
#include "outer/wire/wire.h"
#include "outer/store/env.h"

#define INTAKE_PART ".part" /* of a file that is arriving */
#define INTAKE_HAVE ".have" /* which of its bytes have arrived */
enum { INTAKE_PATH_MAX = 256 };

struct intake {
    struct wire_contribution header; /* payload and payload_bytes: as announced */
    struct blocks blocks;
    int handle;       /* of the part file; -1: closed */
    int marks;        /* `blocks` as a file, 8 bytes for each block; -1: in memory alone */
    enum err verdict; /* result of the verification, and its sentence */
    char why[WIRE_TEXT_MAX];
    char part[INTAKE_PATH_MAX], have[INTAKE_PATH_MAX], final[INTAKE_PATH_MAX];
};

/* Nothing has arrived, and no file is open. `final` is set. */
void intake_make(struct intake *in, const struct wire_contribution *m);
/* Opens the part file without marks. Another offer of the same bytes continues after the stored
 * bytes.
 */
enum err intake_open(struct env *env, struct intake *in, const struct wire_contribution *m) MUST;
/* Opens the part file and its marks, which say what an earlier stream has left in the part file.
 * After a kill the marks are right, because the bytes are written before them. After a power cut
 * the marks may be wrong; then the digest of the bytes is wrong. Marks that blocks_valid refuses
 * count as none. */
enum err intake_open_marked(struct env *env, struct intake *in) MUST;
enum err intake_close(struct env *env, struct intake *in) MUST; /* what is open */
/* The part file gets its final name, durable; final NULL: it is only closed. */
enum err intake_keep(struct env *env, struct intake *in, const char *final) MUST;
/* May this chunk be stored? BLOCKS_GAP: the answer has the offset to resume at. */
enum blocks_fit intake_fits(const struct intake *in, uint64_t offset, size_t n,
                            struct wire_answer *answer);
/* Writes the bytes, then the marks of their blocks. */
enum err intake_store(struct env *env, const struct intake *in, uint64_t offset,
                      const uint8_t *data, size_t n) MUST;
bool intake_whole(const struct intake *in); /* all bytes are stored */
void intake_verdict(struct intake *in, enum err e);

#endif
