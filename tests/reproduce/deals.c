/* SPDX-License-Identifier: Apache-2.0 */
/* The deal of examples to ranks, for the row `dealing`. Settings of atoll as arguments, and from
 * the environment's launcher the ranks.
 *
 *     deals lengths STEPS --data.train SHARDS --section.key value ...
 * Eight ranks in turn: of each step a line with the lengths of its examples, a line with the order
 * in which the ranks get them, and a line with the real tokens of each rank's batch.
 *
 *     mpirun -n 2 deals time STEPS --data.train ...
 * Training steps (batch, forward, backward, sum over the ranks, update), each dealt and undealt in
 * turn. Rank 0 prints one JSON object: medians in seconds, of the step, and of the processor time
 * that its slowest rank needs for batch, forward and backward; the mean of (max - min) / mean
 * tokens.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "inner/coll/reduce.h"
#include "tests/inner/params.h"
#include "inner/data/objective.h"
#include "inner/optim/optim.h"
#include "tests/bench/bench.h"

enum { RANKS = 8, WARM_STEPS = 3 };

struct deals {
    struct arena a;
    struct settings s;
    struct table t;
    struct dev *d;
    struct coll *c;
    struct model *m;
    struct optim o;
    struct grad_reduce reduce;
    struct batch b;
    long steps;
};

static enum err open_loader(struct deals *x, struct loader *l, unsigned rank, unsigned ranks)
{
    const struct loader_options o = {.seed = (uint64_t)x->s.run_seed,
                                     .rank = rank,
                                     .ranks = ranks,
                                     .sequence = (size_t)x->s.train_seq_len,
                                     .batch_tokens = (size_t)x->s.train_batch_tokens,
                                     .vocab = x->s.model_vocab_size,
                                     .objective = objective_of(&x->s),
                                     .settings = &x->s};
    if (!o.objective->varies)
        return err_set(ERR_CONFIG, "data.objective = mlm or labels: only there lengths vary");
    TRY(loader_open(l, &x->a, &x->s.data_train, &o));
    return objective_batch_open(o.objective, &x->b, &x->a, l->rank_sequences,
                                (size_t)x->s.train_seq_len);
}

/* Without what fills the batch up. */
static int real_tokens(const struct loader *l, const struct batch *b)
{
    return b->cu_seqlens[l->rank_sequences];
}

static enum err print_lengths(struct deals *x)
{
    static struct loader l[RANKS];
    for (unsigned r = 0; r < RANKS; r++)
        TRY(open_loader(x, &l[r], r, RANKS));
    size_t each = l[0].rank_sequences, n = RANKS * each;
    for (uint64_t step = 0; step < (uint64_t)x->steps; step++) {
        int tokens[RANKS];
        for (unsigned r = 0; r < RANKS; r++) {
            objective_step(&l[r], step, 0, each, &x->b);
            tokens[r] = real_tokens(&l[r], &x->b);
        }
        for (size_t i = 0; i < n; i++)
            printf("%u%c", l[0].deal->lengths[i], i + 1 < n ? ' ' : '\n');
        for (size_t i = 0; i < n; i++)
            printf("%u%c", l[0].deal->order[i], i + 1 < n ? ' ' : '\n');
        for (unsigned r = 0; r < RANKS; r++)
            printf("%d%c", tokens[r], r + 1 < RANKS ? ' ' : '\n');
    }
    return ERR_OK;
}

/* ---- time ---- */

static enum err open_model(struct deals *x, size_t tokens_max)
{
    TRY(table_make(&x->t, &x->s, &x->a));
    TRY(dev_open(&x->d, &(struct dev_options){.kind = "cpu", .model_type = "f32", .threads = 1}));
    TRY(model_open(&x->m, x->d, &(struct model_options){&x->s, &x->t, tokens_max, true}, &x->a));
    TRY(optim_open(&x->o, x->d, x->c, &x->s, &x->t, &x->a));
    table_init(&x->t, 1, model_params(x->m));
    model_params_changed(x->m);
    x->reduce = (struct grad_reduce){.coll = x->c,
                                     .dev = x->d,
                                     .reducer = reducer_of(&x->s),
                                     .grads = model_grads(x->m),
                                     .elements = x->t.elements,
                                     .bucket = (size_t)(x->s.train_bucket_mb * 1048576 / 4)};
    return ERR_OK;
}

static double processor_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* One step. seconds: until all ranks have ended it, and the processor time that this rank needed
 * for its batch, forward and backward. */
static enum err one_step(struct deals *x, struct loader *l, uint64_t step, double seconds[2])
{
    struct model_loss loss;
    TRY(x->c->ops->barrier(x->c));
    double start = bench_now(), busy = processor_now();
    objective_step(l, step, 0, l->rank_sequences, &x->b);
    model_grads_zero(x->m);
    grad_reduce_begin(&x->reduce);
    TRY(model_step(x->m, &x->b, 1, NULL, &loss));
    seconds[1] = processor_now() - busy;
    grad_reduce_ready(&x->reduce, 0);
    TRY(grad_reduce_wait(&x->reduce));
    const double stats[STEP_STATS] = {[STEP_LOSS] = loss.sum[MODEL_LOSS_TOKEN],
                                      [STEP_TARGETS] = (double)loss.count[MODEL_LOSS_TOKEN]};
    x->d->ops->copy(x->d, x->o.buffers.stats, stats, sizeof stats);
    TRY(optim_step(&x->o, x->m, (int64_t)step));
    TRY(x->c->ops->barrier(x->c));
    seconds[0] = bench_now() - start;
    return ERR_OK;
}

struct side { /* of dealt, or of undealt steps */
    struct bench_times clock, processor;
    double spread;
};

/* Adds the step that was just made: the processor time of the slowest rank, and (max - min) / mean
 * of the ranks' tokens. */
static enum err add(struct deals *x, const struct loader *l, const double seconds[2],
                    struct side *s)
{
    double of[2 * RANKS] = {0}, least = 1e30, most = 0, all = 0, slowest = 0;
    int n = x->c->size;
    of[x->c->rank] = real_tokens(l, &x->b);
    of[n + x->c->rank] = seconds[1];
    TRY(x->c->ops->all_reduce_host(x->c, of, 2 * (size_t)n));
    for (int r = 0; r < n; r++) {
        least = of[r] < least ? of[r] : least;
        most = of[r] > most ? of[r] : most;
        all += of[r];
        slowest = of[n + r] > slowest ? of[n + r] : slowest;
    }
    bench_add(&s->clock, seconds[0]);
    bench_add(&s->processor, slowest);
    s->spread += (most - least) * n / all / (double)x->steps;
    return ERR_OK;
}

static enum err time_steps(struct deals *x)
{
    struct loader l;
    static struct side side[2];
    double seconds[2];
    TRY(coll_open(&x->c, "cpu"));
    if (x->c->size < 2 || x->c->size > RANKS || x->steps > BENCH_REPEATS_MAX)
        return err_set(ERR_CONFIG, "2 to %d ranks, at most %d steps", RANKS, BENCH_REPEATS_MAX);
    TRY(open_loader(x, &l, (unsigned)x->c->rank, (unsigned)x->c->size));
    TRY(open_model(x, x->b.room.tokens));
    struct loader_deal *deal = l.deal;
    for (long i = -WARM_STEPS; i < x->steps; i++)
        for (int undealt = 0; undealt < 2; undealt++) {
            uint64_t step = (uint64_t)(i + WARM_STEPS);
            l.deal = undealt ? NULL : deal;
            TRY(one_step(x, &l, step, seconds));
            if (i < 0)
                continue;
            TRY(add(x, &l, seconds, &side[undealt]));
        }
    static const char *const names[2] = {"dealt", "undealt"};
    for (int i = 0; i < 2 && x->c->rank == 0; i++)
        printf("%s\"%s\": %.6f, \"processor_%s\": %.6f, \"spread_%s\": %.5f%s", i ? ", " : "{",
               names[i], bench_median(&side[i].clock), names[i], bench_median(&side[i].processor),
               names[i], side[i].spread, i ? "}\n" : "");
    return ERR_OK;
}

static enum err run(struct deals *x, int argc, char **argv)
{
    struct config_table t = keys_inner(&x->s);
    x->steps = strtol(argv[2], NULL, 10);
    TRY(config_load(&t, 1, NULL, argc - 3, argv + 3, &x->a));
    return strcmp(argv[1], "time") ? print_lengths(x) : time_steps(x);
}

int main(int argc, char **argv)
{
    static struct deals x;
    if (argc < 4 || (strcmp(argv[1], "time") && strcmp(argv[1], "lengths"))) {
        fprintf(stderr, "usage: deals lengths|time STEPS --section.key value ...\n");
        return 2;
    }
    enum err e = run(&x, argc, argv);
    if (e) {
        fprintf(stderr, "deals: %s\n", err_message());
        coll_abort(x.c, err_exit_code(e));
    }
    coll_close(x.c);
    return err_exit_code(e);
}
