/* atoll export: a trained model as a Hugging Face GPT-2 or Llama; atoll import: the other way, as
 * step 0 of a run. */
#include <stdio.h>
#include <string.h>
#include "inner/io/names.h"
#include "inner/train/train.h"
#include "outer/cmd/cmd.h"
#include "outer/cmd/load.h"

struct export
{
    const char *out;
    bool bf16;
};

static enum err export(struct load *l, void *self) {
    const struct export *x = self;
    TRY(names_export(&l->run.s, &l->run.table, l->params, x->bf16, x->out));
    printf("%s/model.safetensors, %s/config.json: %zu parameters from %s\n", x->out, x->out,
           l->run.table.parameters, l->source);
    return ERR_OK;
}

enum err cmd_export(int argc, char **argv)
{
    struct load_options from = {0};
    struct export x = {0};
    const struct args_option options[] = {
        LOAD_ROWS(&from),
        {.name = "out",
         .kind = ARGS_TEXT,
         .target = &x.out,
         .value = "DIR",
         .required = true,
         .help = "Directory for model.safetensors and config.json."},
        {.name = "bf16",
         .kind = ARGS_FLAG,
         .target = &x.bf16,
         .help = "Half the size, parameters rounded to bfloat16."},
    };
    struct args args = {.command = "export",
                        .summary = "Writes a trained model as transformers reads it "
                                   "(AutoModelForCausalLM.from_pretrained):\n"
                                   "a GPT-2 or a Llama.",
                        .example = "atoll export --config run.yaml --run.dir run/a --out gpt2",
                        .settings = true,
                        .options = options,
                        .count = sizeof options / sizeof *options};
    return load_run(&args, argc, argv, &from, export, &x);
}

struct import {
    struct run run;
    const char *config, *file;
};

static enum err import(struct import *i, const struct args *args)
{
    struct run *r = &i->run;
    float *slab;
    char *dir;
    TRY(run_open(r, &(struct run_source){RUN_MODEL, .config = i->config, .args = args}));
    TRY_ALLOC(slab = arena_array(&r->perm, r->table.elements, sizeof *slab));
    TRY_ALLOC(dir = arena_printf(&r->perm, "%s/inner", r->s.run_dir));
    TRY(names_import(&r->s, &r->table, slab, i->file));
    TRY(train_begin_from(&r->s, &r->table, slab, dir, &r->perm));
    printf("%s: step 0 of a run, %zu parameters from %s\n", dir, r->table.parameters, i->file);
    return ERR_OK;
}

enum err cmd_import(int argc, char **argv)
{
    struct import i = {0};
    const struct args_option options[] = {
        {.name = "config",
         .kind = ARGS_TEXT,
         .target = &i.config,
         .value = "FILE",
         .help = "Configuration of the run that will start from it."},
        {.name = "model",
         .kind = ARGS_TEXT,
         .target = &i.file,
         .value = "FILE",
         .required = true,
         .help = "A model.safetensors with GPT-2's or Llama's names."},
    };
    struct args args = {
        .command = "import",
        .summary =
            "Makes a Hugging Face GPT-2 or Llama the initial parameters of a run: `atoll train` "
            "with the\n"
            "same configuration starts from it. Every site of a run imports the same file. "
            "Shapes are\n"
            "compared; model.heads, rope_theta and norm_eps are not in the file: take them "
            "from its\n"
            "config.json.",
        .example = "atoll import --config run.yaml --run.dir run/a --model gpt2/model.safetensors",
        .settings = true,
        .options = options,
        .count = sizeof options / sizeof *options};
    enum err e = args_parse(&args, argc, argv, &i.run.perm);
    if (!e && !args.help)
        e = import(&i, &args);
    run_close(&i.run);
    return e;
}
