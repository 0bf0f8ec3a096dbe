/* SPDX-License-Identifier: Apache-2.0 */
/* One datacenter, from text to loss: what `atoll train` does without a run, in the order in which
 * it happens. Read it from main() on, with the headers at hand; it takes about an hour.
 *
 *     one_site TEXT OUT [--section.key value ...]
 *
 * TEXT is any text file. OUT receives the token shards, and at the end the model as transformers
 * loads it. The settings are those of docs/configuration.md. The program uses kernels/ and inner/
 * alone: one process, no other site, no link, no checkpoint. Its losses and its final parameters
 * are bit for bit those of `atoll train` with the same settings (tests/e2e/text_to_loss.sh).
 */
#include <stdio.h>
#include <string.h>
#include "inner/coll/coll.h"
#include "inner/data/objective.h"
#include "inner/data/text.h"
#include "inner/io/names.h"
#include "inner/model/model.h"
#include "inner/optim/optim.h"

struct walk {
    struct settings s;    /* the values of all keys */
    struct dev *dev;      /* where the arithmetic runs (kernels/dev.h) */
    struct coll *coll;    /* the ranks of this site: one */
    struct loader loader; /* which examples a step has, in which order */
    struct loader held_out;
    struct batch batch;  /* sequences packed one after the other, and their targets */
    struct table table;  /* names, shapes and offsets of the tensors in one slab */
    struct model *model; /* parameters, gradients, activations: on the device */
    struct optim optim;  /* moments of the optimizer, its schedule of rates */
    struct arena perm;   /* memory that lives as long as the walk */
};

/* ---- 1. Settings: a table of keys gets its defaults, then this text, then the command line. ----
 */
static const char walk_settings[] = "model: {vocab_size: 256, layers: 4, heads: 4, d_model: 128}\n"
                                    "train: {steps: 200, seq_len: 128, batch_tokens: 2048, "
                                    "optimizer: lamb, lr: 0.01, warmup_steps: 20}\n";

static enum err walk_configure(struct walk *w, int argc, char **argv)
{
    struct config_table keys = keys_inner(&w->s);
    struct config_rules rules = {.length = 0};
    const struct config_text text = {
        .name = "one_site.c", .text = walk_settings, .size_bytes = sizeof walk_settings - 1};
    TRY(config_load_text(&keys, 1, &text, argc, argv, &w->perm));
    keys_check(&rules, &w->s);
    return config_rules_report(&rules);
}

/* ---- 2. Text becomes token ids in files: training shards, and a held-out one. ---- */
static enum err walk_prepare_text(struct walk *w, const char *text, const char *out)
{
    const struct text_options o = {.out = out,
                                   .sites = 1,
                                   .held_out = 0.05,
                                   .sequence = (uint64_t)w->s.train_seq_len,
                                   .shard_tokens = 100000000,
                                   .replace = true};
    struct text_report r;
    TRY(text_prepare(&text, 1, &o, &w->perm, &r));
    printf("text: %llu tokens, %llu of them held out\n", (unsigned long long)r.tokens,
           (unsigned long long)r.eval.tokens);
    return ERR_OK;
}

/* The shards of a pattern in OUT. Which examples step t reads is a function of (seed, t) alone, so
 * nothing of the loader has to be saved. */
static enum err walk_open_shards(struct walk *w, struct loader *l, const char *out,
                                 const char *pattern, size_t batch_tokens)
{
    const char *path;
    TRY_ALLOC(path = arena_printf(&w->perm, "%s/%s", out, pattern));
    const struct config_list files = {&path, 1};
    const struct loader_options o = {.seed = (uint64_t)w->s.run_seed,
                                     .ranks = 1,
                                     .sequence = (size_t)w->s.train_seq_len,
                                     .batch_tokens = batch_tokens,
                                     .vocab = w->s.model_vocab_size,
                                     .objective = objective_trained(&w->s),
                                     .settings = &w->s};
    return loader_open(l, &w->perm, &files, &o);
}

static enum err walk_open_data(struct walk *w, const char *out)
{
    size_t sequence = (size_t)w->s.train_seq_len, all = (size_t)w->s.train_batch_tokens;
    TRY(walk_open_shards(w, &w->loader, out, "train-0-*.bin", all));
    TRY(walk_open_shards(w, &w->held_out, out, "eval-*.bin", sequence));
    return objective_batch_open(w->loader.options.objective, &w->batch, &w->perm,
                                w->loader.rank_sequences, sequence);
}

/* ---- 3. The table of tensors follows from the settings, and the model from the table. ---- */
static enum err walk_open_model(struct walk *w)
{
    const struct dev_options device = {.kind = "cpu", .model_type = "f32", .threads = 1};
    TRY(dev_open(&w->dev, &device));
    TRY(coll_open(&w->coll, "cpu"));
    TRY(table_make(&w->table, &w->s, &w->perm));
    const struct model_options o = {&w->s, &w->table, w->batch.room.tokens, .train = true};
    TRY(model_open(&w->model, w->dev, &o, &w->perm));
    TRY(optim_open(&w->optim, w->dev, w->coll, &w->s, &w->table, &w->perm));
    /* Every element is drawn from (seed, number of the element), in any order. */
    float *params = model_gather(w->model, slab_all(&w->table));
    table_init(&w->table, (uint64_t)w->s.run_seed, params);
    model_scatter(w->model, slab_all(&w->table), true);
    model_params_changed(w->model);
    printf("model: %zu parameters in %zu tensors\n", w->table.parameters, w->table.count);
    return ERR_OK;
}

/* ---- 4. A step: batch, forward and backward, update. ---- */
static enum err walk_step(struct walk *w, int64_t step, double *loss)
{
    double *stats = w->optim.buffers.stats; /* on a CPU: memory of this process */
    model_grads_zero(w->model);
    memset(stats, 0, STEP_STATS * sizeof *stats);
    objective_step(&w->loader, (uint64_t)step, 0, w->loader.rank_sequences, &w->batch);
    w->batch.sequence_weight = 1;
    /* Gradients and losses are sums over the targets. The optimizer divides by their number, so
     * that a step may be cut into several batches, and shared among ranks. */
    TRY(model_accumulate(w->model, &w->batch, 1, NULL, stats + STEP_LOSS));
    stats[STEP_TARGETS] = (double)objective_divisor(&w->loader, &w->batch);
    TRY(optim_step(&w->optim, w->model, step));
    TRY(dev_sync(w->dev));
    *loss = stats[STEP_LOSS + MODEL_LOSS_TOKEN] / stats[STEP_TARGETS];
    return ERR_OK;
}

static enum err walk_train(struct walk *w)
{
    for (int64_t step = 0; step < w->s.train_steps; step++) {
        double loss;
        TRY(walk_step(w, step, &loss));
        printf("step %lld loss %.9g lr %.3g\n", (long long)step + 1, loss, optim_lr(&w->s, step));
    }
    return ERR_OK;
}

/* ---- 5. What was learned: the loss of text that no step has read; the model in a file. ---- */
static enum err walk_evaluate(struct walk *w)
{
    double sum = 0, targets = 0;
    uint64_t most = w->loader.rank_sequences, end = w->held_out.windows;
    for (uint64_t at = 0; at < end; at += most) {
        struct model_loss loss;
        objective_windows(&w->held_out, at, (size_t)(end - at < most ? end - at : most), &w->batch);
        TRY(model_eval(w->model, &w->batch, &loss));
        sum += loss.sum[MODEL_LOSS_TOKEN];
        targets += (double)loss.count[MODEL_LOSS_TOKEN];
    }
    printf("held-out loss %.9g nats per token, over %.0f tokens\n", sum / targets, targets);
    return ERR_OK;
}

static enum err walk_export(struct walk *w, const char *out)
{
    const struct names_options o = {.part_bytes = NAMES_PART_BYTES};
    const float *params = model_gather(w->model, slab_all(&w->table));
    TRY(names_export(&w->s, &w->table, params, &o, out));
    model_scatter(w->model, slab_all(&w->table), false);
    printf("%s/model.safetensors and config.json: for transformers\n", out);
    return ERR_OK;
}

static enum err walk(struct walk *w, const char *text, const char *out)
{
    TRY(walk_prepare_text(w, text, out));
    TRY(walk_open_data(w, out));
    TRY(walk_open_model(w));
    TRY(walk_train(w));
    TRY(walk_evaluate(w));
    return walk_export(w, out);
}

static void walk_close(struct walk *w)
{
    if (w->optim.dev)
        optim_close(&w->optim);
    model_close(w->model);
    coll_close(w->coll);
    dev_close(w->dev);
    loader_close(&w->held_out);
    loader_close(&w->loader);
    arena_free(&w->perm);
}

int main(int argc, char **argv)
{
    static struct walk w;
    if (argc < 3 || *argv[1] == '-' || *argv[2] == '-') {
        fprintf(stderr, "usage: one_site TEXT OUT [--section.key value ...]\n");
        return err_exit_code(ERR_CONFIG);
    }
    enum err e = walk_configure(&w, argc - 3, argv + 3);
    if (e == ERR_OK)
        e = walk(&w, argv[1], argv[2]);
    if (e != ERR_OK)
        fprintf(stderr, "one_site: %s\n", err_message());
    walk_close(&w);
    return e == ERR_OK ? 0 : err_exit_code(e);
}
