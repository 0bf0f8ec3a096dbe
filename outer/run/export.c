/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/export.h"
#include <stdio.h>
#include <string.h>
#include "inner/data/shard.h"
#include "inner/io/hf_config.h"
#include "inner/io/names.h"
#include "inner/io/portable.h"
#include "inner/model/depth.h"
#include "inner/train/train.h"
#include "kernels/base/file.h"
#include "kernels/base/log.h"

/* Where `atoll data` left the tokenizer: next to the shards. */
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

enum err export_tokenizer(struct load *l, const struct export_options *o, struct copied_files *c)
{
    enum { PLACES = 3 };
    const char *places[PLACES] = {o->from, l->run.s.run_dir, NULL};
    struct arena *a = l->perm;
    char *copied;
    TRY(tokenizer_dir(&l->run.s, a, &places[PLACES - 1]));
    if (o->tokenizer)
        places[0] = o->tokenizer;
    TRY(names_copy_tokenizer(places[0], o->out, a, &copied));
    if (o->tokenizer && !*copied)
        return err_set(ERR_INPUT, "%s has no file of a tokenizer", o->tokenizer);
    size_t i = 0;
    while (!*copied && ++i < PLACES)
        TRY(names_copy_tokenizer(places[i], o->out, a, &copied));
    *c = (struct copied_files){copied, *copied ? places[i] : NULL};
    return ERR_OK;
}

enum err export_checkpoint(struct load *l, const struct export_options *o,
                           struct export_checkpoint *out)
{
    struct arena *a = l->perm;
    const char *end = l->checkpoints ? strrchr(l->checkpoints, '/') : NULL;
    char initial[65], *run_dir, *frag;
    struct portable p = {.initial = initial};
    if (o->bf16 || o->task)
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
    TRY(portable_write(&l->run.s, &l->run.table, &p, (uint64_t)(1e9 * o->part_gb), o->out));
    TRY_ALLOC(frag = arena_printf(a, "%s/frag", run_dir));
    *out = (struct export_checkpoint){p.meta.step, run_dir, file_exists(frag)};
    return ERR_OK;
}

enum err export_model(struct load *l, const struct export_options *o)
{
    const struct names_options n = {
        .bf16 = o->bf16, .part_bytes = (uint64_t)(1e9 * o->part_gb), .task = (size_t)o->task};
    int layers = depth_layers_after(&l->run.s, l->finished);
    if (layers < l->run.s.model_layers)
        return err_set(ERR_CONFIG,
                       "%s has %d of %lld layers: train.stages adds the others later; export it "
                       "then",
                       l->source, layers, (long long)l->run.s.model_layers);
    return names_export(&l->run.s, &l->run.table, l->params, &n, o->out);
}

/* ---- the other way ---- */

enum err import_config(const struct import_source *m, const char *write, char **described,
                       struct arena *a)
{
    struct hf_config c;
    char *text;
    TRY(names_config(m->model, a, described));
    TRY(hf_read_ignoring(&c, *described, m->ignored, a));
    TRY(hf_yaml(&c, a, &text));
    if (file_exists(write))
        return err_set(ERR_CONFIG, "%s exists; name another file, or remove it first", write);
    if (strcmp(write, "-") == 0)
        return fputs(text, stdout) < 0 ? err_set(ERR_IO, "standard output: cannot write") : ERR_OK;
    return file_write(write, &(struct file_part){text, strlen(text)}, 1, 0644);
}

static void warn_heads(const struct run *r, const struct names_heads *heads, const char *file)
{
    if (*heads->seeded)
        log_event(LOG_WARN, "import",
                  "heads=\"%s\" why=\"%s has none of them: they start from run.seed = %lld\"",
                  heads->seeded, file, (long long)r->s.run_seed);
    if (*heads->left)
        log_event(LOG_WARN, "import",
                  "heads=\"%s\" why=\"%s has them and this model does not (model.head, "
                  "model.pooler, model.classes): left out\"",
                  heads->left, file);
}

enum err import_model(struct run *r, const struct import_source *m, char **dir, char **described)
{
    float *slab;
    struct names_heads heads;
    if (r->s.train_stages.count)
        return err_set(ERR_CONFIG, "train.stages begins with few layers and overwrites the others; "
                                   "leave it out to start from trained parameters");
    TRY_ALLOC(slab = arena_array(&r->perm, r->table.elements, sizeof *slab));
    TRY_ALLOC(*dir = arena_printf(&r->perm, "%s/inner", r->s.run_dir));
    TRY(names_config(m->model, &r->perm, described));
    if (!file_exists(*described))
        log_event(LOG_WARN, "import",
                  "why=\"there is no %s: heads, activation, epsilon and positions are taken from "
                  "the configuration, unchecked\"",
                  *described);
    TRY(names_import_heads(&r->s, &r->table, slab,
                           &(struct names_source){m->model, &r->perm, m->ignored}, &heads));
    warn_heads(r, &heads, m->model);
    return run_import(r, slab, *dir);
}

enum err import_checkpoint(struct run *r, const char *from, uint64_t *step, char **dir)
{
    struct portable p;
    TRY_ALLOC(*dir = arena_printf(&r->perm, "%s/inner", r->s.run_dir));
    TRY(portable_read(&p, &r->s, &r->table, from, &r->perm));
    *step = p.meta.step;
    return run_import_checkpoint(r, &p, *dir);
}

enum err import_tokenizer(struct run *r, const char *described, struct copied_files *c)
{
    const char *slash = strrchr(described, '/'), *from = ".";
    char *copied;
    if (slash)
        TRY_ALLOC(from = arena_string(&r->perm, described, (size_t)(slash - described)));
    TRY(names_copy_tokenizer(from, r->s.run_dir, &r->perm, &copied));
    *c = (struct copied_files){copied, from};
    return ERR_OK;
}
