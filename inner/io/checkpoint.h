/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CHECKPOINT_H
#define CHECKPOINT_H
/* Durable checkpoints of one process's memory: named parts (slabs, residuals, counters), each a run
 * of bytes.
 *
 *     DIR/<step, 8 digits>/state    what checkpoint_meta says, names of the parts; the parts
 *     DIR/CURRENT                   the step; replaced last: the commit point of a save
 *
 * Both are records (kernels/base/record.h), each part a section.
 *
 * A crash, a full disk or a flipped bit never costs more than the newest checkpoint: a save leaves
 * the older ones alone until its own commit, and a load that finds a damaged file says so
 * (ERR_CORRUPT, with its path) and falls back to the one before it. Only the lead of a site calls
 * this; it blocks for as long as the disk takes.
 */
#include <stdbool.h>
#include "kernels/base/digest.h"
#include "kernels/base/file.h"

#define CHECKPOINT_PARTS_MAX    4096u
#define CHECKPOINT_NAME_MAX     255u
#define CHECKPOINT_SETTINGS_MAX 65536u

struct checkpoint_meta {
    uint64_t step;        /* inner steps done */
    int64_t steps;        /* read: train.steps of `settings`; 0: not there */
    uint64_t seed;        /* run.seed */
    struct digest model;  /* of the tensor table: names, shapes, offsets */
    const char *settings; /* config_canonical text of what a resumed run must share; "" for none */
    char device[1600];    /* "cpu oneDNN 2.6.3 avx512_core_amx": a run repeats bit for bit only with
                            the    same */
    uint32_t threads, ranks;
};
struct checkpoint_part {
    const char *name; /* unique in a checkpoint, at most CHECKPOINT_NAME_MAX bytes */
    void *data;       /* read by save, written by load; NULL: it comes in pieces */
    size_t size_bytes;
    bool optional; /* load: stays as it is where the stored one is missing or has another size */
};

/* Writes and commits, then removes all but the newest `keep` (>= 1) that verify, and what an
 * abandoned future left. ERR_FULL, ERR_IO: nothing changed, the former checkpoint is still the
 * current one.
 */
enum err checkpoint_save(const char *dir, const struct checkpoint_meta *meta,
                         const struct checkpoint_part *parts, size_t part_count,
                         unsigned keep) MUST;

/* The same in pieces: begin; the bytes of the parts whose data is NULL, in the order of the parts;
 * commit. `parts`, their data and *meta stay until then. An error comes out of commit, and what is
 * put meanwhile is dropped, so that ranks that take part in making the pieces need not know. */
struct checkpoint_writer;
enum err checkpoint_begin(struct checkpoint_writer **w, const char *dir,
                          const struct checkpoint_meta *meta, const struct checkpoint_part *parts,
                          size_t part_count) MUST;
void checkpoint_put(struct checkpoint_writer *w, const void *data, size_t bytes);
enum err checkpoint_commit(struct checkpoint_writer *w, unsigned keep) MUST; /* frees w */
void checkpoint_abandon(struct checkpoint_writer *w); /* instead of commit; NULL is fine */

/* The checkpoints of these steps (two at most) stay until the next call: another process reads
 * them. Any thread; of the directory that this process saves to. */
void checkpoint_hold(const uint64_t *steps, size_t count);

/* Fills the parts from the newest intact checkpoint. *found false: there is none and never was (a
 * fresh start). `want`: seed, model, settings must be equal but for
 * train.steps, which may change between two starts, as must names and sizes of the parts: else
 * ERR_MISMATCH with what differs, and nothing is written to the parts. `got`: what was stored,
 * settings NULL; comparing device, threads and ranks with this process's is the caller's (they
 * decide whether the future repeats bit for bit). ERR_CORRUPT: checkpoints exist and none is
 * intact. */
enum err checkpoint_load(const char *dir, const struct checkpoint_meta *want,
                         const struct checkpoint_part *parts, size_t part_count,
                         struct checkpoint_meta *got, bool *found) MUST;

/* Like load, and parts whose data is NULL can be read in pieces. *r NULL: there is none. */
struct checkpoint_reader;
enum err checkpoint_find(struct checkpoint_reader **r, const char *dir,
                         const struct checkpoint_meta *want, const struct checkpoint_part *parts,
                         size_t part_count, struct checkpoint_meta *got) MUST;
/* The newest of a step below `before`, of any run; UINT64_MAX: the newest intact one. Checks only
 * integrity. got->settings stays until checkpoint_close. ERR_INPUT: there is none; ERR_CORRUPT. */
enum err checkpoint_look(struct checkpoint_reader **r, const char *dir, uint64_t before,
                         struct checkpoint_meta *got) MUST;
size_t checkpoint_part_bytes(const struct checkpoint_reader *r, const char *name); /* 0: none */
enum err checkpoint_get(const struct checkpoint_reader *r, const char *name, size_t at, void *data,
                        size_t bytes) MUST;         /* of a part that is there */
void checkpoint_close(struct checkpoint_reader *r); /* NULL is fine */

/* Like load, but hands out all parts as they are, in memory of `a`, and checks only integrity: for
 * eval, export and tools. got->settings is in `a` too. */
enum err checkpoint_open(const char *dir, struct arena *a, struct checkpoint_meta *got,
                         struct checkpoint_part **parts, size_t *part_count) MUST;
/* One part of the newest intact checkpoint. *found false: there is no checkpoint, or it has no such
 * part of this size. The rest is read once, for its digests. */
enum err checkpoint_part_read(const char *dir, const char *name, void *data, size_t size_bytes,
                              bool *found) MUST;

#endif
