/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RUNS_H
#define RUNS_H
/* What earlier and other runs have charged to the same owners: privacy.ledger, one directory for a
 * site and its data, outside of each run.dir.
 *
 *   list, list.head  a chained list (kernels/base/chained.h): the format; for each start of a run
 * whose it is, and for each setting the steps that the run has charged and those with which its
 * configuration ends key              32 random bytes, mode 0600: owners are stored as keyed
 * digests sets/DIGEST      sorted keyed digests of a run's owners, 16 bytes each, named by their
 * SHA-256
 *
 * Two runs share people where their sets of owners have one in common. Where one of them has no
 * list of owners, they do where the site's name is the same, with any shards. A run that was
 * not ended counts with the steps of its configuration, until it is started again. The directory is
 * locked from runs_open to runs_close: starts of two runs see each other. Blocks on the disk.
 */
#include "kernels/base/file.h"
#include "outer/budget/budget.h"

enum { RUNS_NAME_MAX = 64, RUNS_OWNER_BYTES = 16 };
struct runs_self {
    struct digest id; /* of the run directory: the same at each start, not zero */
    const char *run, *site;
    uint8_t *owners; /* (owner_count) ids, changed in place; NULL: not known */
    uint64_t owner_count;
};
struct runs {
    const char *dir;
    struct file_lock lock;
    struct chained list;
    uint8_t key[32];
    struct digest set; /* of self's owners; zero: none */
    struct arena *perm;
    struct runs_entry *entries;
    size_t count, room;
};
struct runs_shared { /* by other runs, to owners of this one */
    unsigned runs;
    struct budget spent;
    char names[200]; /* of the runs */
};
/* known: a position that this run directory has seen in the ledger; number 0: none. ERR_INPUT: the
 * ledger is lost; ERR_CORRUPT: it lost lines, key or sets; ERR_BUSY: another process holds it for
 * longer than some seconds; ERR_DENIED: others can read its key. */
enum err runs_open(struct runs *r, const char *dir, const struct chained_at *known,
                   struct arena *perm) MUST;
enum err runs_shared(struct runs_shared *out, struct runs *r, struct runs_self *self) MUST;
/* A start of `self`: b as charged, and `ahead` further steps of `next`. Durable on return. */
enum err runs_book(struct runs *r, const struct runs_self *self, const struct budget *b,
                   const struct private_charge *next, int64_t ahead) MUST;
void runs_close(struct runs *r); /* one that is not open is fine */

#endif
