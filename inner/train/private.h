#ifndef PRIVATE_H
#define PRIVATE_H
/* What a private site keeps in its directory of checkpoints, and the keys of its steps.
 *
 *   privacy.key      32 random bytes, mode 0600, made once. Who has it can subtract the noise:
 *                    it never leaves the site, and is not the run's seed, which everybody knows
 *   privacy.charges  one line for each step that was charged, appended and synced before the step;
 *                    or for several, which this file lacks and a manifest of the run names
 *
 * The key of a step is SHA-256 of (site key, step, digest of the parameters, what is charged, the
 * device with its library, its threads and ranks, from which sums repeat bit for bit). The same
 * step, repeated after a crash, draws the same records and the same noise, releases the same sum
 * and is charged once. From other parameters, with other settings or on another device it draws
 * others, and is charged again.
 */
#include "inner/config/keys.h"
#include "kernels/base/chacha.h"
#include "kernels/base/digest.h"

struct private_site {
    uint8_t key[CHACHA_KEY_BYTES];
    const char *charges; /* path */
    struct digest *tags; /* (found) of the charges that private_open found */
    size_t found;
    int64_t charged; /* steps of the file */
};
/* Reads key and charges, or makes a key. `begun`: the run has steps behind it. ERR_INPUT: it has,
 * or has charges, and the key is missing: noise of another key would be charged to the same run.
 * ERR_CORRUPT: a charge that is not the last is damaged. A last line that a crash has cut is
 * removed: its step did not run. */
enum err private_open(struct private_site *p, const char *dir, bool begun, struct arena *perm) MUST;

/* A line of the file is "step=.. unit=.. sampling=.. records=.. expected=.. noise=.. clip=..", what
 * else differs from its default, and "tag=.. crc=..". */
struct private_charge {
    int64_t step; /* steps in front of it */
    struct digest tag;
    uint64_t records, expected; /* of the site; of a step on average: q = expected / records */
    double noise, clip;
    const char *unit, *sampling; /* names of enum privacy_unit, privacy_sampling */
    uint64_t unit_sequences;     /* most examples of a record in a step; default 1 */
    int64_t counted; /* 0: a step of this file. Else as many steps, not listed one by one: a
                        manifest names them, and these settings are assumed */
};
struct private_keys { /* of a step; secret */
    uint8_t sample[CHACHA_KEY_BYTES], noise[CHACHA_KEY_BYTES];
    struct digest tag; /* names the step and its parameters in the charge; says nothing else */
};
/* charge: without its tag. */
struct private_keys private_step_keys(const struct private_site *p,
                                      const struct private_charge *charge,
                                      const struct digest *parameters, const char *device);
/* Has private_open found a charge of this tag? */
bool private_charged(const struct private_site *p, const struct private_charge *c);
/* Durable on return. Nothing is written for a step that is charged already. */
enum err private_charge(struct private_site *p, const struct private_charge *c) MUST;
/* The run knows of `known` steps of this site. Those that the file lacks are charged in one line,
 * with the settings of `like`: the file is of an older copy of the directory. ERR_DISAGREE: more
 * than PRIVATE_COUNTED_MAX. */
enum { PRIVATE_COUNTED_MAX = 1000000000 };
enum err private_count(struct private_site *p, uint64_t known,
                       const struct private_charge *like) MUST;

/* Each charge of a file, in order; a last line that a crash has cut is left out. ERR_INPUT: no
 * file; ERR_CORRUPT names the line. */
typedef enum err private_visit(void *self, const struct private_charge *c);
enum err private_read(const char *path, private_visit *visit, void *self) MUST;

#endif
