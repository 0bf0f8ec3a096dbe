/* atoll export: a trained model as a model of Hugging Face; atoll import: the other way, as step 0
 * of a run. */
#include <stdio.h>
#include <string.h>
#include "inner/data/shard.h"
#include "inner/io/hf_config.h"
#include "inner/io/names.h"
#include "inner/io/portable.h"
#include "inner/model/depth.h"
#include "inner/train/train.h"
#include "kernels/base/log.h"
#include "outer/cmd/cmd.h"
#include "outer/run/process.h"
#include "outer/run/load.h"

struct export
{
    const char *out, *tokenizer;
    const struct load_options *of; /* of->from: NULL: run.dir */
    bool bf16, checkpoint;
    double part_gb;
    int64_t task;
};

/* Where `atoll data` left the tokenizer: beside the shards. */
static enum err tokenizer_dir(const struct settings *s, struct arena *a, const char **dir)
{
    const char *shards = s->data_train.count ? s->data_train.items[0] : NULL;
    if (!shards)
        return ERR_OK;
    const char *path = shard_item_path(shards);
    const char *slash = strrchr(path, '/');
    TRY_ALLOC(*dir = slash ? arena_string(a, path, (size_t)(slash - path)) : ".");
    return ERR_OK;
}

/* From --tokenizer; else from the directory of the model, where atoll import left it, from run.dir
 * or from that of the shards. */
static enum err copy_tokenizer(const struct load *l, const struct export *x, struct arena *a)
{
    enum { PLACES = 3 };
    const char *places[PLACES] = {x->of->from, l->run.s.run_dir, NULL};
    char *copied;
    TRY(tokenizer_dir(&l->run.s, a, &places[PLACES - 1]));
    if (x->tokenizer)
        places[0] = x->tokenizer;
    TRY(names_copy_tokenizer(places[0], x->out, a, &copied));
    if (x->tokenizer && !*copied)
        return err_set(ERR_INPUT, "%s has no file of a tokenizer", x->tokenizer);
    size_t i = 0;
    while (!*copied && ++i < PLACES)
        TRY(names_copy_tokenizer(places[i], x->out, a, &copied));
    if (*copied)
        printf("%s: %s from %s\n", x->out, copied, places[i]);
    return ERR_OK;
}

/* Parameters, moments and all else that a run needs to go on with the same bits. */
static enum err export_checkpoint(struct load *l, const struct export *x)
{
    struct arena *a = &l->run.perm;
    const char *end = l->checkpoints ? strrchr(l->checkpoints, '/') : NULL;
    char initial[65], *run_dir;
    struct portable p = {.initial = initial};
    if (x->bf16 || x->task)
        return err_set(ERR_CONFIG, "--checkpoint writes every bit: leave --bf16 and --task out");
    if (!l->checkpoints)
        return err_set(ERR_CONFIG,
                       "%s is an outer state, without moments of an inner optimizer; name the run "
                       "directory of a site with --from",
                       l->source);
    TRY_ALLOC(run_dir = arena_printf(a, "%.*s", end ? (int)(end - l->checkpoints) : 1,
                                     end ? l->checkpoints : "."));
    TRY(run_imported(run_dir, a, initial));
    TRY(checkpoint_open(l->checkpoints, a, &p.meta, &p.parts, &p.count));
    TRY(portable_write(&l->run.s, &l->run.table, &p, (uint64_t)(1e9 * x->part_gb), x->out));
    printf("%s: model, config.json and optimizer.safetensors, step %llu of %s\nNext: atoll import "
           "--checkpoint %s --config FILE --run.dir DIR; atoll train goes on from there\n",
           x->out, (unsigned long long)p.meta.step, l->checkpoints, x->out);
    char *frag;
    TRY_ALLOC(frag = arena_printf(a, "%s/frag", run_dir));
    if (file_exists(frag))
        printf("Not in it: the outer state (%s: outer parameters, outer momentum, residual), which "
               "belongs to the rounds of the run. Import into %s itself while it is there; a run "
               "that begins from these files (--model) begins with an outer momentum of 0.\n",
               frag, run_dir);
    return copy_tokenizer(l, x, a);
}

static enum err export_model(struct load *l, void *self)
{
    const struct export *x = self;
    if (x->checkpoint)
        return export_checkpoint(l, x);
    const struct names_options o = {
        .bf16 = x->bf16, .part_bytes = (uint64_t)(1e9 * x->part_gb), .task = (size_t)x->task};
    int layers = depth_layers_after(&l->run.s, l->finished);
    if (layers < l->run.s.model_layers)
        return err_set(ERR_CONFIG,
                       "%s has %d of %lld layers: train.stages adds the others later; export it "
                       "then",
                       l->source, layers, (long long)l->run.s.model_layers);
    TRY(names_export(&l->run.s, &l->run.table, l->params, &o, x->out));
    printf("%s: safetensors and config.json, %zu parameters from %s\n", x->out,
           l->run.table.parameters, l->source);
    return copy_tokenizer(l, x, &l->run.perm);
}

enum err cmd_export(int argc, char **argv)
{
    struct load_options from = {0};
    struct export x = {.of = &from, .part_gb = NAMES_PART_BYTES / 1e9};
    const struct args_option options[] = {
        LOAD_ROWS(&from),
        {"out", ARGS_TEXT, &x.out, .value = "DIR", .required = true,
         .help = "Directory for the safetensors files and config.json."},
        {"checkpoint", ARGS_FLAG, &x.checkpoint,
         .help = "Also moments, counters and settings (optimizer.safetensors): atoll import "
                 "--checkpoint makes the same checkpoint of it again, bit for bit."},
        {"bf16", ARGS_FLAG, &x.bf16, .help = "Half the size, parameters rounded to bfloat16."},
        {"part-gb", ARGS_REAL, &x.part_gb, .value = "GB",
         .help = "Largest file in 1e9 bytes (5); more is written as several files and an index."},
        {"tokenizer", ARGS_TEXT, &x.tokenizer, .value = "DIR",
         .help = "Folder whose vocab.txt, tokenizer.json, .. are copied beside; else the "
                 "directory of the model (--from), run.dir, or that of the first shards of "
                 "data.train."},
        {"task", ARGS_INT, &x.task, .value = "N", .max = 15,
         .help = "With several tasks (model.classes): whose head is written; 0 is the first."},
    };
    struct args args = {.command = "export",
                        .summary = "Writes a trained model as transformers reads it "
                                   "(AutoModel.from_pretrained): GPT-2, "
                                   "Llama, BERT, ALBERT or ModernBERT, whichever the settings "
                                   "describe.",
                        .example = "atoll export --config run.yaml --run.dir run/a --out gpt2",
                        .settings = run_nearest_setting,
                        .options = options,
                        .count = sizeof options / sizeof *options};
    return load_run(&args, argc, argv, &from, export_model, &x);
}

struct import {
    struct run run;
    const char *config, *file, *write_config, *checkpoint;
    struct args_texts ignored;
};

/* The model section of a configuration, from the model's config.json. */
static enum err import_config(const struct import *i, struct arena *a)
{
    struct hf_config c;
    char *path, *text;
    TRY(names_config(i->file, a, &path));
    TRY(hf_read_ignoring(&c, path, &i->ignored, a));
    TRY(hf_yaml(&c, a, &text));
    if (file_exists(i->write_config))
        return err_set(ERR_CONFIG, "%s exists; name another file, or remove it first",
                       i->write_config);
    struct file_part part = {text, strlen(text)};
    TRY(file_write(i->write_config, &part, 1, 0644));
    printf("%s: the model of %s\nNext: add data, train and outer to it, then\n  atoll import "
           "--config %s --run.dir DIR "
           "--model %s\n",
           i->write_config, path, i->write_config, i->file);
    return ERR_OK;
}

/* Where `atoll sample` and `atoll export` look for it. */
static enum err keep_tokenizer(const struct run *r, const char *described, struct arena *a)
{
    const char *slash = strrchr(described, '/'), *from = ".";
    char *copied;
    if (slash)
        TRY_ALLOC(from = arena_string(a, described, (size_t)(slash - described)));
    TRY(names_copy_tokenizer(from, r->s.run_dir, a, &copied));
    if (*copied)
        printf("%s: %s from %s\n", r->s.run_dir, copied, from);
    return ERR_OK;
}

static enum err import_checkpoint(struct import *i, const struct args *args)
{
    struct run *r = &i->run;
    struct portable p;
    char *dir;
    TRY(run_open(r, &(struct run_source){RUN_MODEL, .config = i->config, .args = args}));
    TRY_ALLOC(dir = arena_printf(&r->perm, "%s/inner", r->s.run_dir));
    TRY(portable_read(&p, &r->s, &r->table, i->checkpoint, &r->perm));
    TRY(run_import_checkpoint(r, &p, dir));
    printf("%s: step %llu, from %s\n", dir, (unsigned long long)p.meta.step, i->checkpoint);
    char *copied;
    return names_copy_tokenizer(i->checkpoint, r->s.run_dir, &r->perm, &copied);
}

static enum err import_model(struct import *i, const struct args *args)
{
    struct run *r = &i->run;
    float *slab;
    char *dir, *described;
    struct names_heads heads;
    TRY(run_open(r, &(struct run_source){RUN_MODEL, .config = i->config, .args = args}));
    if (r->s.train_stages.count)
        return err_set(ERR_CONFIG, "train.stages begins with few layers and overwrites the others; "
                                   "leave it out to start from trained parameters");
    TRY_ALLOC(slab = arena_array(&r->perm, r->table.elements, sizeof *slab));
    TRY_ALLOC(dir = arena_printf(&r->perm, "%s/inner", r->s.run_dir));
    TRY(names_config(i->file, &r->perm, &described));
    if (!file_exists(described))
        log_event(LOG_WARN, "import",
                  "why=\"there is no %s: heads, activation, epsilon and positions are taken from "
                  "the configuration, unchecked\"",
                  described);
    TRY(names_import_heads(&r->s, &r->table, slab,
                           &(struct names_source){i->file, &r->perm, &i->ignored}, &heads));
    if (*heads.seeded)
        log_event(LOG_WARN, "import",
                  "heads=\"%s\" why=\"%s lacks them: they start from run.seed = %lld\"",
                  heads.seeded, i->file, (long long)r->s.run_seed);
    if (*heads.left)
        log_event(LOG_WARN, "import",
                  "heads=\"%s\" why=\"%s has them and this model does not (model.head, "
                  "model.pooler, model.classes): left out\"",
                  heads.left, i->file);
    TRY(run_import(r, slab, dir));
    printf("%s: step 0 of a run, %zu parameters from %s\n", dir, r->table.parameters, i->file);
    return keep_tokenizer(r, described, &r->perm);
}

static enum err import_any(struct import *i, const struct args *args)
{
    if (!i->file == !i->checkpoint)
        return err_set(ERR_CONFIG, "import takes one of --model PATH and --checkpoint DIR");
    if (i->checkpoint && i->write_config)
        return err_set(ERR_CONFIG, "--write-config goes with --model");
    return i->checkpoint     ? import_checkpoint(i, args)
           : i->write_config ? import_config(i, &i->run.perm)
                             : import_model(i, args);
}

enum err cmd_import(int argc, char **argv)
{
    struct import i = {0};
    const struct args_option options[] = {
        {"config", ARGS_TEXT, &i.config, .value = "FILE",
         .help = "Configuration of the run that will start from it."},
        {"checkpoint", ARGS_TEXT, &i.checkpoint, .value = "DIR",
         .help = "Instead of --model: a folder of atoll export --checkpoint, from which the run "
                 "goes on at its step."},
        {"model", ARGS_TEXT, &i.file, .value = "PATH",
         .help =
             "A folder, a model.safetensors or a model.safetensors.index.json with the names of "
             "GPT-2, Llama, BERT, ALBERT or ModernBERT."},
        {"write-config", ARGS_TEXT, &i.write_config, .value = "FILE",
         .help =
             "Only writes the model section that its config.json describes, and imports nothing."},
        {"ignore-field", ARGS_TEXTS, &i.ignored, .value = "NAME",
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
                        .options = options,
                        .count = sizeof options / sizeof *options};
    process_files_private();
    enum err e = args_parse(&args, argc, argv, &i.run.perm);
    if (!e && !args.help)
        e = import_any(&i, &args);
    run_close(&i.run);
    return e;
}
