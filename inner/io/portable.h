/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PORTABLE_H
#define PORTABLE_H
/* A checkpoint (checkpoint.h) as safetensors, and back with the same bytes:
 *
 *     DIR/model.safetensors, config.json    the parameters, as names_export writes them (F32)
 *     DIR/optimizer.safetensors             everything else:
 *         NAME.exp_avg, NAME.exp_avg_sq       slabs "m" and "v" of the optimizer; NAME as in the
 * model atoll.NAME.SLAB                     a tensor that the model of Hugging Face has no place
 *                                             for, such as the head of a second task
 *         atoll.rest.SLAB                     other elements that are not 0
 *         atoll.part.PART                     any other part of the checkpoint
 *       its metadata: step, seed, settings, names and SHA-256 of the parts, .. (strings)
 *
 * A file that another program changed is refused: the digests say so. For other people's weights
 * there is names_import.
 */
#include "inner/io/checkpoint.h"
#include "inner/model/table.h"

struct portable {
    struct checkpoint_meta meta;
    struct checkpoint_part *parts;
    size_t count;
    const char *initial; /* run.initial of the run's identity; "": none */
};
/* ERR_UNSUPPORTED: the model is of no family of Hugging Face. `bytes_max` of a file of the model.
 */
enum err portable_write(const struct settings *s, const struct table *t, const struct portable *p,
                        uint64_t bytes_max, const char *dir) MUST;
/* Everything lies in `a`. ERR_MISMATCH: the files are of another model than the settings describe.
 * ERR_INPUT: the bytes are not those that were written. */
enum err portable_read(struct portable *p, const struct settings *s, const struct table *t,
                       const char *dir, struct arena *a) MUST;

#endif
