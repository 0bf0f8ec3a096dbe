/* SPDX-License-Identifier: Apache-2.0 */
/* atoll export: a trained model as a model of Hugging Face; atoll import: the other way, as step 0
 * of a run (outer/run/export.h). */
#include <stdio.h>
#include <string.h>
#include "inner/io/names.h"
#include "outer/cmd/cmd.h"
#include "outer/run/export.h"
#include "outer/run/process.h"

struct export_wish {
    struct export_options o;
    const struct load_options *of; /* of->from: NULL: run.dir */
    bool checkpoint;
};

static void print_copied(const char *to, const struct copied_files *c)
{
    if (*c->files)
        printf("%s: %s from %s\n", to, c->files, c->from);
}

static void print_checkpoint(const struct load *l, const char *out,
                             const struct export_checkpoint *c)
{
    printf("%s: model, config.json and optimizer.safetensors, step %llu of %s\nNext: atoll import "
           "--checkpoint %s --config FILE --run.dir DIR; atoll train continues from there\n",
           out, (unsigned long long)c->step, l->checkpoints, out);
    if (c->outer)
        printf("Not in it: the outer state (%s/frag: outer parameters, outer momentum, residual), "
               "which "
               "belongs to the rounds of the run. Import into %s itself while it is there; a run "
               "that begins from these files (--model) begins with an outer momentum of 0.\n",
               c->run_dir, c->run_dir);
}

static enum err export_any(struct load *l, void *self)
{
    struct export_wish *x = self;
    struct export_checkpoint c;
    struct copied_files copied;
    x->o.from = x->of->from;
    if (x->checkpoint) {
        TRY(export_checkpoint(l, &x->o, &c));
        print_checkpoint(l, x->o.out, &c);
    } else {
        TRY(export_model(l, &x->o));
        printf("%s: safetensors and config.json, %zu parameters from %s\n", x->o.out,
               l->run.table.parameters, l->source);
    }
    TRY(export_tokenizer(l, &x->o, &copied));
    print_copied(x->o.out, &copied);
    return ERR_OK;
}

enum err cmd_export(int argc, char **argv, struct arena *arena)
{
    struct load_options from = {0};
    struct export_wish x = {.of = &from, .o.part_gb = NAMES_PART_BYTES / 1e9};
    const struct args_option options[] = {
        LOAD_ROWS(&from),
        {"out", ARGS_TEXT, &x.o.out, .value = "DIR", .required = true,
         .help = "Directory for the safetensors files and config.json."},
        {"checkpoint", ARGS_FLAG, &x.checkpoint,
         .help = "Also moments, counters and settings (optimizer.safetensors): atoll import "
                 "--checkpoint makes the same checkpoint of it again, bit for bit."},
        {"bf16", ARGS_FLAG, &x.o.bf16, .help = "Half the size, parameters rounded to bfloat16."},
        {"part-gb", ARGS_REAL, &x.o.part_gb, .value = "GB",
         .help = "Largest file in 1e9 bytes (5); more is written as several files and an index."},
        {"tokenizer", ARGS_TEXT, &x.o.tokenizer, .value = "DIR",
         .help = "Folder whose vocab.txt, tokenizer.json, .. are copied into it; else the "
                 "directory of the model (--from), run.dir, or that of the first shards of "
                 "data.train."},
        {"task", ARGS_INT, &x.o.task, .value = "N", .max = 15,
         .help = "With several tasks (model.classes): whose head is written; 0 is the first."},
    };
    struct args args = {.command = "export",
                        .summary = "Writes a trained model as transformers reads it "
                                   "(AutoModel.from_pretrained): GPT-2, "
                                   "Llama, BERT, ALBERT or ModernBERT, as the settings "
                                   "say.",
                        .example = "atoll export --config run.yaml --run.dir run/a --out gpt2",
                        .settings = run_nearest_setting,
                        ARGS_OPTIONS(options)};
    TRY(args_parse(&args, argc, argv, arena));
    if (x.checkpoint && from.mean > 1)
        return err_set(ERR_CONFIG, "--checkpoint takes no --mean: moments are of one step");
    return load_run(&args, &from, export_any, &x);
}

struct import {
    struct run run;
    struct import_source m;
    const char *config, *write_config, *checkpoint;
};

static enum err config_write(struct import *i)
{
    char *described;
    TRY(import_config(&i->m, i->write_config, &described, &i->run.perm));
    if (strcmp(i->write_config, "-") == 0)
        return ERR_OK;
    printf("%s: the model of %s\nNext: add data, train and outer to it, then\n  atoll import "
           "--config %s --run.dir DIR "
           "--model %s\n",
           i->write_config, described, i->write_config, i->m.model);
    return ERR_OK;
}

static enum err checkpoint_import(struct import *i, const struct args *args)
{
    struct run *r = &i->run;
    uint64_t step;
    char *dir, *copied;
    TRY(run_open(r, &(struct run_source){RUN_MODEL, .config = i->config, .args = args}));
    TRY(import_checkpoint(r, i->checkpoint, &step, &dir));
    printf("%s: step %llu, from %s\n", dir, (unsigned long long)step, i->checkpoint);
    return names_copy_tokenizer(i->checkpoint, r->s.run_dir, &r->perm, &copied);
}

static enum err model_import(struct import *i, const struct args *args)
{
    struct run *r = &i->run;
    struct copied_files copied;
    char *dir, *described;
    TRY(run_open(r, &(struct run_source){RUN_MODEL, .config = i->config, .args = args}));
    TRY(import_model(r, &i->m, &dir, &described));
    printf("%s: step 0 of a run, %zu parameters from %s\n", dir, r->table.parameters, i->m.model);
    TRY(import_tokenizer(r, described, &copied));
    print_copied(r->s.run_dir, &copied);
    return ERR_OK;
}

static enum err import_any(struct import *i, const struct args *args)
{
    if (!i->m.model == !i->checkpoint)
        return err_set(ERR_CONFIG, "import takes one of --model PATH and --checkpoint DIR");
    if (i->checkpoint && i->write_config)
        return err_set(ERR_CONFIG, "--write-config goes with --model");
    return i->checkpoint     ? checkpoint_import(i, args)
           : i->write_config ? config_write(i)
                             : model_import(i, args);
}

enum err cmd_import(int argc, char **argv, struct arena *arena)
{
    struct args_texts ignored = {0};
    struct import i = {.m.ignored = &ignored};
    const struct args_option options[] = {
        {"config", ARGS_TEXT, &i.config, .value = "FILE",
         .help = "Configuration of the run that will start from it."},
        {"checkpoint", ARGS_TEXT, &i.checkpoint, .value = "DIR",
         .help = "Instead of --model: a folder of atoll export --checkpoint, from which the run "
                 "continues at its step."},
        {"model", ARGS_TEXT, &i.m.model, .value = "PATH",
         .help =
             "A folder, a model.safetensors or a model.safetensors.index.json with the names of "
             "GPT-2, Llama, BERT, ALBERT or ModernBERT."},
        {"write-config", ARGS_TEXT, &i.write_config, .value = "FILE",
         .help =
             "Only writes the model section that its config.json describes, and imports nothing; - "
             "is standard output."},
        {"ignore-field", ARGS_TEXTS, &ignored, .value = "NAME",
         .help = "A field of config.json that this program does not know and that changes nothing "
                 "of what the model computes; may be given several times."},
    };
    struct args args = {.command = "import",
                        .summary =
                            "Makes a model of Hugging Face (GPT-2, Llama, BERT, ALBERT, "
                            "ModernBERT) the initial parameters of a run: `atoll train` with the "
                            "same configuration starts from it. Every site of a run imports "
                            "the same files. config.json "
                            "must describe the model of the configuration; --write-config "
                            "derives the configuration.",
                        .example = "atoll import --config run.yaml --run.dir run/a --model gpt2",
                        .settings = run_nearest_setting,
                        ARGS_OPTIONS(options)};
    process_files_private();
    TRY(args_parse(&args, argc, argv, arena));
    enum err e = args.help ? ERR_OK : import_any(&i, &args);
    run_close(&i.run);
    return e;
}
