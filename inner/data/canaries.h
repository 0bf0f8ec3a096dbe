/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CANARIES_H
#define CANARIES_H
/* Canaries for an audit of differential privacy (2305.08846): random examples, each of which is put
 * into a site's training text with probability 1/2. Two sets of shards of the run's objective:
 *
 *     OUT/in-0000.*      those that were drawn: they go into data.train
 *     OUT/out-0000.*     the others
 *     OUT/data.json      the tokenizer of the training text
 *
 * Which set a canary is in is the secret of the audit, and so are its random numbers. One
 * canary is one example, one document and one owner, so it is one record with any privacy.unit.
 * Its ids are uniform, without special ids; its label is uniform.
 */
#include "inner/data/loader.h"

enum { CANARIES_MIN = 32, CANARIES_MAX = 1000000 };

struct canaries {
    struct loader in, out; /* open sets; window i is a canary */
};
/* Draws and writes `count` of them. ERR_CONFIG: the directory holds canaries already; ERR_INPUT:
 * the objective makes no single example of one. */
enum err canaries_write(const struct settings *s, const char *dir, uint64_t count,
                        struct arena *a) MUST;
/* ERR_INPUT: none there, or of another objective or length. Close it after an error, too. */
enum err canaries_open(struct canaries *c, const struct settings *s, const char *dir,
                       struct arena *a) MUST;
void canaries_close(struct canaries *c);

#endif
