/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NAMES_H
#define NAMES_H
/* Our slab as a model of Hugging Face (model.safetensors and config.json that transformers loads),
 * and back. The families are tables: family.h. q, k, v, and gate, up may be tensors of their own
 * there; GPT-2's matrices are transposed; a family that always has biases gets zeros for those that
 * a model does not have, which is the same function. The padding of the vocabulary is cut; a tied
 * head is not written.
 */
#include <stdint.h>
#include "inner/model/table.h"
#include "kernels/base/args.h"

struct names_options {
    bool bf16;           /* half the size, rounded to nearest even */
    uint64_t part_bytes; /* tensors of more bytes than this in all are written as several files and
                            an index */
    size_t task;         /* of model.classes: the head that is written, since theirs have one */
};
/* The size from which on transformers writes several files. */
#define NAMES_PART_BYTES 5000000000u
/* Writes DIR/model.safetensors, or DIR/model-00001-of-0000N.safetensors and their index, and
 * DIR/config.json, all durable. */
enum err names_export(const struct settings *s, const struct table *t, const float *slab,
                      const struct names_options *o, const char *dir) MUST;
/* Where a tensor of their file lies in one of ours: its rows are rows first .. first + rows, its
 * columns ours. */
struct names_place {
    const char *ours, *theirs; /* theirs with the family's prefix */
    size_t first, rows;
    bool transposed; /* (columns, rows) there */
};
/* Of every tensor that an exported file has, in memory of `a`. ERR_UNSUPPORTED: the model is of no
 * family. */
enum err names_places(const struct settings *s, const struct table *t, struct arena *a,
                      struct names_place **places, size_t *count) MUST;
/* Copies the files of a tokenizer that `from` has (vocab.txt, tokenizer.json, ..; NULL: none) into
 * `dir`. `copied`: their names, "vocab.txt, tokenizer.json", in `a`. */
enum err names_copy_tokenizer(const char *from, const char *dir, struct arena *a,
                              char **copied) MUST;
/* The file to read where `path` is a folder: its model.safetensors, which need not exist, or the
 * index of several files if that one is missing; else the path itself. */
enum err names_file(const char *path, struct arena *a, char **file) MUST;
/* Where the config.json of this file or folder is, if there is one. */
enum err names_config(const char *path, struct arena *a, char **config) MUST;
/* Fills the host slab from `path`: a safetensors file, the index of several, or a folder with one
 * of these. F32, BF16 or F16, with or without the family's prefix ("transformer.", "model.",
 * "bert.", ..). ERR_MISMATCH names the tensor whose shape differs, or that this model has no place
 * for; a bias that this model does not have must be zero, and the head of a tied model the
 * embedding. A config.json next to the file must describe the model of these settings
 * (hf_config.h); without one this is not checked. */
enum err names_import(const struct settings *s, const struct table *t, float *slab,
                      const char *path) MUST;
/* The same for encoders, and says which heads only one side has: names of ours, "mlm, pooler",
 * empty: none. `seeded`: the file does not have them, they have the initial parameters of run.seed.
 * `left`: the model does not have them, the file's are not read. The texts live in the arena. */
struct names_source {
    const char *path;
    struct arena *arena;
    const struct args_texts *ignored; /* fields of config.json (hf_read_ignoring); NULL: none */
};
struct names_heads {
    char *seeded, *left;
};
enum err names_import_heads(const struct settings *s, const struct table *t, float *slab,
                            const struct names_source *from, struct names_heads *heads) MUST;

#endif
