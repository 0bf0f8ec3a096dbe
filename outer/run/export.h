/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXPORT_H
#define EXPORT_H
/* A trained model as a model of Hugging Face (inner/io/names.h, portable.h), and one of these as
 * the start of a run. Texts that are returned lie in the run's arena.
 */
#include "outer/run/load.h"

struct export_options {    /* borrowed */
    const char *out;       /* directory */
    const char *tokenizer; /* directory of the tokenizer's files; NULL: looked for */
    const char *from;      /* directory of the model; NULL: run.dir */
    bool bf16;
    double part_gb; /* largest file, in 1e9 bytes */
    int64_t task;   /* of several: whose head is written */
};
struct export_checkpoint {
    uint64_t step;
    const char *run_dir; /* of the checkpoint */
    bool outer;          /* it has outer state, which is not written */
};
struct copied_files {  /* of a tokenizer */
    const char *files; /* "": none */
    const char *from;
};
/* ERR_CONFIG: not all layers are there yet. */
enum err export_model(struct load *l, const struct export_options *o) MUST;
/* Parameters, moments and all else that a run needs to continue with the same bits. ERR_CONFIG: the
 * options leave bits out, or the source is an outer state. */
enum err export_checkpoint(struct load *l, const struct export_options *o,
                           struct export_checkpoint *out) MUST;
/* From o->tokenizer; else from the directory of the model, where import left it, from run.dir or
 * from that of the shards. ERR_INPUT: o->tokenizer has none. */
enum err export_tokenizer(struct load *l, const struct export_options *o,
                          struct copied_files *c) MUST;

struct import_source {                /* borrowed */
    const char *model;                /* folder, model.safetensors or its index */
    const struct args_texts *ignored; /* fields of config.json that change nothing */
};
/* The model section of a configuration, from the model's config.json, in a new file. described:
 * that config.json. */
enum err import_config(const struct import_source *m, const char *write, char **described,
                       struct arena *a) MUST;
/* Step 0 of an opened run, in `dir`. Warns of heads that are missing on one side. */
enum err import_model(struct run *r, const struct import_source *m, char **dir,
                      char **described) MUST;
/* The folder of an exported checkpoint becomes the run's newest one, in `dir`. */
enum err import_checkpoint(struct run *r, const char *from, uint64_t *step, char **dir) MUST;
/* The tokenizer next to `described`, to where sample and export look for it. */
enum err import_tokenizer(struct run *r, const char *described, struct copied_files *c) MUST;

#endif
