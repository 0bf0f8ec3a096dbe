/* Passes of the inner optimizers (scalar/opt.h): divides ranges into chunks among threads and calls
 * the inner loops of rows.c. |err| of an update <= 1e-6 (|p| + lr (|u| + 1)) with u the direction;
 * with a trust ratio <= 1e-5 of the same, because its norms have relative error 1e-5.
 */
#include "kernels/cpu/cpu.h"
#include <omp.h>

enum { CHUNK = DEV_RUN }; /* elements: 64 KiB of f32. Sums are made per chunk and added in order */

static bool is_stopped(const struct dev_optim *a)
{
    return a->gscale && *a->gscale != *a->gscale;
}

static struct opt_scalars scalars_of(const struct dev_optim *a, size_t r)
{
    return opt_of_range(a->k, a->groups[r], a->gscale ? *a->gscale : 1.0f);
}

static size_t chunks_of(const struct dev_range *range)
{
    return (range->count + CHUNK - 1) / CHUNK;
}

/* Chunk c of a range; returns its length. Where a method lacks a slab, the loops read p in its
 * place and never write it. */
static size_t chunk_at(struct rows_optim *to, const struct dev_optim *a,
                       const struct dev_range *range, size_t c)
{
    size_t i = range->offset + c * CHUNK;
    *to = (struct rows_optim){.p = a->p + i,
                              .m = (a->m ? a->m : a->p) + i,
                              .v = (a->v ? a->v : a->p) + i,
                              .g = a->g + i,
                              .model = a->model ? (uint16_t *)a->model + i : NULL};
    return c + 1 < chunks_of(range) ? CHUNK : range->count - c * CHUNK;
}

static const struct {
    void (*prepare)(struct opt_scalars *k, const double sums[OPT_SUMS]);
    size_t first, count;
} reduces[OPT_REDUCES] = {
#define X(NAME, name, prepare, first, count, writes) {prepare, first, count},
    OPT_REDUCE_LIST(X)
#undef X
};

static void (*const update_prepares[OPT_UPDATES])(struct opt_scalars *k,
                                                  const double sums[OPT_SUMS]) = {
#define X(NAME, name, prepare, writes) prepare,
    OPT_UPDATE_LIST(X)
#undef X
};

static void sums_of(double out[OPT_SUMS], const struct dev_optim *a, size_t r)
{
    for (size_t j = 0; j < OPT_SUMS; j++)
        out[j] = a->sums ? a->sums[j * a->sums_stride + r] : 0;
}

/* The sums of range r by this rule, chunk by chunk in order. */
static void reduce_range(struct cpu *c, enum opt_reduce rule, const struct dev_optim *a, size_t r,
                         struct opt_sums *partial)
{
    struct opt_scalars k = scalars_of(a, r);
    size_t chunks = chunks_of(&a->ranges[r]);
    double sums[OPT_SUMS];
    sums_of(sums, a, r);
    reduces[rule].prepare(&k, sums);
#pragma omp parallel for num_threads(c->dev.threads) schedule(static) if (chunks > 1)
    for (size_t i = 0; i < chunks; i++) {
        struct rows_optim run;
        size_t count = chunk_at(&run, a, &a->ranges[r], i);
        partial[i] = c->rows->range_reduce(rule, &run, &k, count);
    }
    for (size_t j = 0; j < reduces[rule].count; j++) {
        double sum = 0;
        for (size_t i = 0; i < chunks; i++)
            sum += partial[i].x[j];
        a->sums[(reduces[rule].first + j) * a->sums_stride + r] = sum;
    }
}

void cpu_range_reduce(struct dev *d, enum opt_reduce rule, const struct dev_optim *a)
{
    struct cpu *c = cpu_of(d);
    size_t longest = 0;
    for (size_t r = 0; r < a->n; r++)
        longest = a->ranges[r].count > longest ? a->ranges[r].count : longest;
    struct opt_sums *partial =
        is_stopped(a) ? NULL : cpu_scratch(c, 0, (longest / CHUNK + 1) * sizeof *partial);
    for (size_t r = 0; partial && r < a->n; r++)
        if (a->groups[r].active)
            reduce_range(c, rule, a, r, partial);
}

/* Each thread runs backwards over its part, so that what a reduce left in its cache is read first.
 */
static void update_range(struct cpu *c, enum opt_update rule, const struct dev_optim *a, size_t r)
{
    struct opt_scalars k = scalars_of(a, r);
    size_t chunks = chunks_of(&a->ranges[r]);
    double sums[OPT_SUMS];
    sums_of(sums, a, r);
    update_prepares[rule](&k, sums);
#pragma omp parallel num_threads(c->dev.threads) if (chunks > 1)
    {
        int t = omp_get_thread_num(), n = omp_get_num_threads();
        size_t begin = cpu_part(chunks, t, n, 1), i = cpu_part(chunks, t + 1, n, 1);
        while (i-- > begin) {
            struct rows_optim run;
            size_t count = chunk_at(&run, a, &a->ranges[r], i);
            c->rows->range_update(rule, &run, &k, count);
        }
    }
}

void cpu_range_update(struct dev *d, enum opt_update rule, const struct dev_optim *a)
{
    for (size_t r = a->n; r-- > 0 && !is_stopped(a);)
        if (a->groups[r].active)
            update_range(cpu_of(d), rule, a, r);
}
