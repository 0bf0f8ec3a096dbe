/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PRIVATE_H
#define PRIVATE_H
/* What a private site keeps in its directory of checkpoints, and the keys of its steps.
 *
 *   privacy.key      32 random bytes, mode 0600, made once. Who has it can subtract the noise:
 *                    it never leaves the site, and is not the run's seed, which is no secret
 *   privacy.charges  one line for each step that was charged, appended and synced before the step;
 *                    or for several, which this file has not and a manifest of the run names. Lines
 *                    are numbered and chained (kernels/base/chained.h), and a checkpoint holds the
 *                    position of its time: a list that lost lines is damage, never a smaller claim
 *
 * The key of a step is SHA-256 of (site key, step, digest of the parameters, what is charged, the
 * records of the site, and what computes: the program, the device with its library, its threads and
 * ranks; from all of which sums repeat bit for bit). The same
 * step, repeated after a crash, draws the same records and the same noise, releases the same sum
 * and is charged once. From other parameters, with other settings or on another device it draws
 * others, and is charged again.
 *
 * Correlated noise (privacy.mechanism = banded) of a step is made of that of the steps before, so
 * it has to be recomputed from what is on the disk. Its key is SHA-256 of (site key, history): the
 * digest of the tags of all lines up to that of the step. A key never serves two sums: a tag names
 * the parameters and all from which the sum of its step follows, so equal histories have equal sums
 * and equal noise before them, and what is released is the same. That holds in a copy of the
 * directory that was restored from a backup, too. What is charged with other settings, or what a
 * manifest alone names, begins a new chain: later noise is not correlated with earlier noise.
 */
#include "inner/data/lot.h"
#include "kernels/base/chained.h"

/* A line of the file is "step=.. unit=.. sampling=.. records=.. expected=.. noise=.. clip=..", what
 * else differs from its default, "tag=..", and what chained.h adds. */
struct private_charge {
    int64_t step; /* steps before it */
    struct digest tag;
    uint64_t records, expected; /* of the site; of a step on average: q = expected / records */
    double noise, clip;
    const char *unit, *sampling; /* names of enum privacy_unit, privacy_sampling */
    uint64_t unit_sequences;     /* most examples of a record in a step; default 1 */
    uint64_t bands;              /* of correlated noise; default 1: independent */
    uint64_t bins;               /* inner/data/lot.h; default 0 */
    int64_t counted; /* 0: a step of this file. Else as many steps, not listed one by one: a
                        manifest names them, and these settings are assumed */
};
/* As every step of these settings makes it, but for its step and tag, at a site of `records`
 * records. noise: privacy.noise_multiplier. ERR_CONFIG: its lots cannot be drawn. */
enum err private_charge_of(struct private_charge *c, const struct settings *s,
                           uint64_t records) MUST;
enum privacy_sampling private_sampling(const struct private_charge *c);
struct lot_sizes private_sizes(const struct private_charge *c);
struct private_line {           /* a charged step */
    struct digest tag, history; /* history: of the tags of all lines up to this one */
    uint64_t number;            /* charged steps before it */
    uint64_t chain; /* number of the first step whose noise its own is correlated with */
};
struct private_site {
    uint8_t key[CHACHA_KEY_BYTES];
    struct chained list;        /* of charges */
    struct private_line *lines; /* of `perm` */
    size_t count, room;
    struct arena *perm;
    int64_t charged;            /* steps of the file */
    uint64_t chain;             /* of the next step, if its settings are those of `last` */
    struct digest history;      /* of the newest line */
    struct private_charge last; /* the newest line */
};
/* Reads key and charges, or makes a key. perm: for the life of the site; the lines grow there.
 * ERR_INPUT: the run has begun, or has charges, and the key is missing: noise of another key would
 * be charged to the same run. ERR_CORRUPT: a charge is damaged or missing. ERR_DENIED: others can
 * read the key. A last line that a crash has cut is removed: its step did not run. */
struct private_begun {
    bool steps;             /* the run has made steps */
    struct chained_at list; /* the position that its checkpoint holds; number 0: none */
};
enum err private_open(struct private_site *p, const char *dir, const struct private_begun *begun,
                      struct arena *perm) MUST;
/* But for step, tag and `counted`. */
bool private_same(const struct private_charge *a, const struct private_charge *b);

struct private_keys {                                          /* of a step; secret */
    uint8_t sample[CHACHA_KEY_BYTES], noise[CHACHA_KEY_BYTES]; /* noise: independent */
    struct digest tag; /* names the step and its parameters in the charge; says nothing else */
};
/* From which a step's sum follows. */
struct private_basis {
    struct digest parameters, records; /* records: of all text, documents, owners and labels */
    const char *device;                /* with library, threads, ranks and program */
};
/* charge: without its tag. */
struct private_keys private_step_keys(const struct private_site *p,
                                      const struct private_charge *charge,
                                      const struct private_basis *basis);
/* The charge of this tag; NULL: none. Valid until the next one is made. */
const struct private_line *private_charged(const struct private_site *p, const struct digest *tag);
/* The line of step `number`, which is listed. */
const struct private_line *private_step(const struct private_site *p, uint64_t number);
/* The key of a line's correlated noise. */
void private_noise_key(const struct private_site *p, const struct private_line *line,
                       uint8_t key[CHACHA_KEY_BYTES]);
/* A key of the site that is the same for all steps: of the bins of its records. */
void private_bin_key(const struct private_site *p, uint8_t key[CHACHA_KEY_BYTES]);
/* Names the run directory, and says nothing of its key. */
struct digest private_run_id(const struct private_site *p);
/* Durable on return. Nothing is written for a step that is charged already. */
enum err private_charge(struct private_site *p, const struct private_charge *c) MUST;
/* The run knows of `known` steps of this site. Those that the file does not have are charged in one
 * line, with the settings of `like`, which are to be the dearest that the site can have had: the
 * directory is an older copy. ERR_DISAGREE: more than PRIVATE_COUNTED_MAX. */
enum { PRIVATE_COUNTED_MAX = 1000000000 };
enum err private_missing(uint64_t *missing, const struct private_site *p, uint64_t known) MUST;
enum err private_count(struct private_site *p, uint64_t known,
                       const struct private_charge *like) MUST;

/* A charge as text, and back; false: it is none. */
void private_print(char text[CHAINED_TEXT_MAX], const struct private_charge *c);
bool private_parse(const char *text, size_t n, struct private_charge *c);
/* Each charge of a file, in order; a last line that a crash has cut is left out. ERR_INPUT: no
 * file; ERR_CORRUPT names the line. */
#define PRIVATE_PART "charges" /* of a checkpoint: struct chained_at */
typedef enum err private_visit(void *self, const struct private_charge *c);
/* known: a position that the list must have, of the checkpoint; NULL: none. */
enum err private_read(const char *path, const struct chained_at *known, private_visit *visit,
                      void *self) MUST;
/* The position that the newest checkpoint in DIR holds; number 0: none. */
enum err private_known(const char *dir, struct chained_at *known) MUST;

#endif
