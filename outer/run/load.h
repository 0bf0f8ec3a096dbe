/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOAD_H
#define LOAD_H
/* Loads a trained model for eval, sample and export: configuration, parameters, device. --from
 * (default: run.dir) may name
 * - a site's run directory, or its inner/: the newest intact inner checkpoint;
 * - an aggregator's directory: the outer parameters of all fragments. It must not be running, nor
 *   be one of several that share the fragments.
 * Any other directory: ERR_INPUT. The configuration must describe the same model: ERR_MISMATCH.
 *
 * --mean N: of the newest N of them, the mean of the parameters in f32 (latest weight averaging,
 * 2209.14981), of an aggregator by fragments. Rounds that an operator took back are among them.
 * ERR_INPUT: the directory keeps fewer; ERR_CORRUPT: one of them is damaged.
 */
#include "inner/data/tokenizer/tokenizer.h"
#include "inner/model/model.h"
#include "kernels/base/args.h"
#include "outer/config/run.h"

struct load_options { /* targets of the options that these commands share */
    const char *config, *from;
    int64_t mean; /* states; 0 and 1: the newest alone */
};
/* The rows for a command's option table. */
#define LOAD_ROWS(o)                                                                               \
    {"config", ARGS_TEXT, &(o)->config, .value = "FILE",                                           \
     .help = "Configuration of the run; without it the one that the directory recorded at its "    \
             "last start."},                                                                       \
        {"from", ARGS_TEXT, &(o)->from, .value = "DIR",                                            \
         .help = "A site's run directory (default: run.dir), or an aggregator's."},                \
    {                                                                                              \
        "mean", ARGS_INT, &(o)->mean,                                                              \
            .value = "N", .max = 1e6,                                                              \
            .help = "Mean of the parameters of the newest N states that the directory keeps: "     \
                    "rounds of an aggregator (serve.keep_states), checkpoints of a site "          \
                    "(train.checkpoint_keep). Without it: the newest alone."                       \
    }

struct load {
    struct run run;          /* load.c alone writes it */
    struct arena *perm;      /* of the run, for what a command takes until its end */
    float *params;           /* host slab */
    int64_t states;          /* whose mean the parameters are; 1: the newest alone */
    char source[320];        /* name of the loaded state, for messages */
    const char *checkpoints; /* directory of the inner checkpoint; NULL: outer state was loaded */
    int64_t step;            /* inner steps done; -1: unknown (outer state) */
    int64_t finished;        /* finished steps of the parameters, for train.stages */
    struct dev *dev;         /* after load_model */
    struct model *model;     /* evaluation model with these parameters */
};

enum err load_model(struct load *l, size_t tokens_max) MUST;
void load_put(struct load *l); /* params -> the model */
/* Opens the run that the parsed arguments name, calls `work`, closes it. With --help: nothing. */
enum err load_run(const struct args *args, const struct load_options *o,
                  enum err (*work)(struct load *l, void *self), void *self) MUST;
/* The tokenizer of the run: of `path`, else of the run directory, else of the directory of the
 * first data.train or data.eval. *t NULL: there is none. The caller closes it. */
enum err load_tokenizer(const struct settings *s, const char *path, struct tokenizer **t) MUST;

#endif
