/* One site, from a text to a loss, with the inner library alone: what `atoll train` does between
 * two exchanges, without ranks, checkpoints, privacy or a GPU. Read main() from its end upwards.
 *
 *     one_site TEXT DIRECTORY [--section.key value ...]
 *
 * writes token shards of TEXT to DIRECTORY, trains a model from scratch and prints the loss of each
 * step and the held-out loss behind the last one. The settings are those of `atoll train`
 * (docs/configuration.md), and so are the losses, to the last bit: ctest `example` compares them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "inner/coll/coll.h"
#include "inner/data/objective.h"
#include "inner/data/text.h"
#include "inner/eval/evaluate.h"
#include "inner/optim/optim.h"

struct site { /* everything that a step reads or writes */
    struct arena memory;
    struct settings settings;
    struct dev *dev;                 /* where arithmetic runs: kernels/dev.h */
    struct coll *coll;               /* sums over the ranks of a site: here one rank */
    struct loader train, held_out;   /* token shards, and the order of their examples */
    struct batch batch;              /* the examples of one micro-batch */
    size_t sequences;                /* examples of a micro-batch */
    struct table table;              /* names, shapes and places of all tensors in one slab */
    struct model *model;             /* parameters, gradients, activations */
    struct optim *optim;             /* moments, learning rate, clipping */
    struct evaluate_sums evaluation; /* of the held-out text */
};

/* ---- 1: text becomes token ids in shards, some of them held out ---- */

/* Without a tokenizer each byte of the text is one id. DIRECTORY/train-0-0000.bin is what this site
 * trains on, DIRECTORY/eval-0000.bin what nobody trains on. */
static enum err write_shards(struct site *x, const char *text, const char *directory)
{
    struct text_report report;
    const struct text_options o = {.out = directory,
                                   .sites = 1,
                                   .held_out = 0.05,
                                   .sequence = (uint64_t)x->settings.train_sequence,
                                   .shard_tokens = SHARD_TOKENS_MAX,
                                   .replace = true};
    TRY(text_prepare(&text, 1, &o, &x->memory, &report));
    printf("tokens train=%llu held_out=%llu\n", (unsigned long long)report.train[0].tokens,
           (unsigned long long)report.eval.tokens);
    return ERR_OK;
}

/* ---- 2: shards become an endless order of examples ---- */

static enum err open_loader(struct site *x, struct loader *l, const char *directory,
                            const char *files, size_t batch_tokens)
{
    const struct settings *s = &x->settings;
    const char *path = arena_printf(&x->memory, "%s/%s", directory, files);
    if (!path)
        return ERR_MEMORY;
    const struct loader_options o = {.seed = (uint64_t)s->run_seed,
                                     .ranks = 1,
                                     .sequence = (size_t)s->train_sequence,
                                     .batch_tokens = batch_tokens,
                                     .vocab = s->model_vocab,
                                     .objective = objective_of(s),
                                     .settings = s};
    return loader_open(l, &x->memory, &(struct config_list){&path, 1}, &o);
}

static enum err open_data(struct site *x, const char *directory)
{
    const struct settings *s = &x->settings;
    size_t step_tokens = (size_t)s->train_batch_tokens, micro = (size_t)s->train_micro_batch_tokens;
    size_t sequence = (size_t)s->train_sequence;
    TRY(open_loader(x, &x->train, directory, "train-0-*.bin", step_tokens));
    TRY(open_loader(x, &x->held_out, directory, "eval-*.bin", sequence));
    TRY(evaluate_open(&x->evaluation, s, (struct evaluate_rank){0, 1}, &x->memory));
    x->sequences = (micro ? micro : step_tokens) / sequence;
    return objective_batch_open(objective_of(s), &x->batch, &x->memory, x->sequences, sequence);
}

/* ---- 3: a model and its optimizer, from the seed ---- */

static enum err start_parameters(struct site *x)
{
    size_t bytes = x->table.elements * sizeof(float);
    struct dev_range all = {0, x->table.elements};
    float *start = malloc(bytes);
    if (!start)
        return err_set(ERR_MEMORY, "no memory for the parameters");
    table_init(&x->table, (uint64_t)x->settings.run_seed, start);
    x->dev->ops->copy(x->dev, model_gather(x->model, all), start, bytes);
    model_scatter(x->model, all, true);
    model_params_changed(x->model);
    free(start);
    return dev_sync(x->dev);
}

static enum err open_model(struct site *x)
{
    const struct settings *s = &x->settings;
    const struct dev_options device = {
        .kind = "cpu", .model_type = "f32", .threads = (int)s->device_threads};
    const struct model_options model = {s, &x->table, x->batch.tokens_max, true};
    TRY(dev_open(&x->dev, &device));
    TRY(coll_open(&x->coll, "cpu"));
    TRY(table_make(&x->table, s, &x->memory));
    TRY(model_open(&x->model, x->dev, &model, &x->memory));
    if (!(x->optim = arena_alloc(&x->memory, sizeof *x->optim)))
        return ERR_MEMORY;
    TRY(optim_open(x->optim, x->dev, x->coll, s, &x->table, &x->memory));
    return start_parameters(x);
}

/* ---- 4: one step ---- */

/* Forward and backward of the step's micro-batches add up gradients, and losses in the statistics:
 * sums over targets, which the optimizer divides by their number. */
static enum err accumulate(struct site *x, int64_t step, double *targets)
{
    for (size_t at = 0; at < x->train.rank_sequences; at += x->sequences) {
        objective_step(&x->train, (uint64_t)step, at, x->sequences, &x->batch);
        *targets += (double)objective_divisor(&x->train, &x->batch);
        TRY(model_accumulate(x->model, &x->batch, 1, NULL, x->optim->stats + STEP_LOSS));
    }
    return ERR_OK;
}

static enum err one_step(struct site *x, int64_t step, double *loss)
{
    double stats[STEP_STATS], targets = 0;
    const struct dev_ops *ops = x->dev->ops;
    model_grads_zero(x->model);
    ops->zero(x->dev, x->optim->stats, sizeof stats);
    TRY(accumulate(x, step, &targets));
    ops->copy(x->dev, x->optim->stats + STEP_TARGETS, &targets, sizeof targets);
    x->optim->together = true;
    TRY(optim_step(x->optim, x->model, step)); /* clip, rate of the step, moments, parameters */
    ops->copy(x->dev, stats, x->optim->stats, sizeof stats);
    TRY(dev_sync(x->dev));
    *loss = stats[STEP_LOSS] / stats[STEP_TARGETS];
    return isfinite(*loss) ? ERR_OK : err_set(ERR_DIVERGED, "step %lld", (long long)step);
}

/* ---- 5: the loss on text that was not trained on ---- */

static enum err evaluate(struct site *x, double *loss)
{
    uint64_t windows = evaluate_count(&x->held_out, x->settings.train_eval_tokens);
    TRY(evaluate_windows(x->model, &x->held_out, &x->batch, 0, windows, &x->evaluation));
    *loss = evaluate_loss(&x->evaluation);
    return ERR_OK;
}

static enum err run(struct site *x, const char *text, const char *directory)
{
    double loss;
    TRY(write_shards(x, text, directory));
    TRY(open_data(x, directory));
    TRY(open_model(x));
    for (int64_t step = 0; step < x->settings.train_steps; step++) {
        TRY(one_step(x, step, &loss));
        printf("step=%lld loss=%.9g\n", (long long)step + 1, loss);
    }
    TRY(evaluate(x, &loss));
    printf("held_out loss=%.9g\n", loss);
    return ERR_OK;
}

static void close_all(struct site *x)
{
    if (x->optim)
        optim_close(x->optim);
    model_close(x->model);
    loader_close(&x->train);
    loader_close(&x->held_out);
    coll_close(x->coll);
    dev_close(x->dev);
    arena_free(&x->memory);
}

int main(int argc, char **argv)
{
    static struct site x;
    struct config_rules broken = {0};
    if (argc < 3) {
        fprintf(stderr, "one_site TEXT DIRECTORY [--section.key value ...]\n");
        return err_exit_code(ERR_CONFIG);
    }
    x.memory = arena_make(0);
    const struct config_table keys = keys_inner(&x.settings);
    enum err e = config_load(&keys, 1, NULL, argc - 3, argv + 3, &x.memory);
    if (e == ERR_OK)
        keys_check(&broken, &x.settings);
    if (e == ERR_OK)
        e = config_rules_report(&broken);
    if (e == ERR_OK)
        e = run(&x, argv[1], argv[2]);
    if (e != ERR_OK)
        fprintf(stderr, "one_site: %s\n", err_message());
    close_all(&x);
    return err_exit_code(e);
}
