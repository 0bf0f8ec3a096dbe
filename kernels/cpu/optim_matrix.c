/* SPDX-License-Identifier: Apache-2.0 */
/* Passes of the inner optimizers over matrices (scalar/opt.h): divides each matrix into tiles of
 * rows among threads and calls the inner loops of rows.c, then adds the tiles up in order, so that
 * the bits do not depend on the number of threads. Error bounds: as in optim.c.
 */
#include "kernels/cpu/cpu.h"

static const struct rule {
    void (*prepare)(struct opt_scalars *k, const double sums[OPT_SUMS]);
    float (*line)(float before, float now, const struct opt_scalars *k);
    enum opt_how how;
    size_t first, sum, count; /* lines first .., sums sum .., both `count` */
} rules[OPT_MATRIX_REDUCES] = {
#define X(NAME, name, prepare, how, line, sum, count, writes)                                      \
    {prepare, opt_##name##_line, how, line, sum, count},
    OPT_MATRIX_REDUCE_LIST(X)
#undef X
};

static const struct {
    void (*prepare)(struct opt_scalars *k, const double sums[OPT_SUMS]);
    void (*cross)(float line[OPT_LINES]);
} updates[OPT_MATRIX_UPDATES] = {
#define X(NAME, name, prepare) {prepare, opt_##name##_cross},
    OPT_MATRIX_UPDATE_LIST(X)
#undef X
};

/* One matrix of a pass. */
struct pass {
    struct cpu *c;
    const struct dev_optim *a;
    const struct dev_matrix *x;
    struct opt_scalars k;
    size_t r; /* its range */
};

static bool is_stopped(const struct dev_optim *a)
{
    return a->gscale && *a->gscale != *a->gscale;
}

static struct pass pass_of(struct cpu *c, const struct dev_optim *a, size_t r,
                           void (*prepare)(struct opt_scalars *k, const double sums[OPT_SUMS]))
{
    struct pass p = {c, a, &a->matrix.list[r],
                     opt_of_range(a->k, a->groups[r], a->gscale ? *a->gscale : 1.0f), r};
    double sums[OPT_SUMS];
    for (size_t j = 0; j < OPT_SUMS; j++)
        sums[j] = a->sums[j * a->sums_stride + r];
    p.k.rows = (float)p.x->rows;
    p.k.columns = (float)p.x->columns;
    prepare(&p.k, sums);
    return p;
}

/* Value j of the matrix's lines, rows first, then columns. */
static float *line_at(const struct pass *p, size_t j)
{
    return p->a->matrix.lines + p->x->lines + j * (p->x->rows + p->x->columns);
}

/* Row i; where a method has no slab, the loops read p in its place and never write it. */
static struct rows_matrix row_at(const struct pass *p, size_t i)
{
    const struct dev_optim *a = p->a;
    size_t at = p->x->offset + i * p->x->columns;
    struct rows_matrix row = {.at = {.p = a->p + at,
                                     .m = (a->m ? a->m : a->p) + at,
                                     .v = (a->v ? a->v : a->p) + at,
                                     .g = a->g + at,
                                     .model = a->model ? (uint16_t *)a->model + at : NULL}};
    for (size_t j = 0; j < OPT_LINES; j++) {
        row.row[j] = line_at(p, j)[i];
        row.column[j] = line_at(p, j) + p->x->rows;
    }
    return row;
}

/* Partial results of term j: of rows, and of the columns of tile t. */
static float *row_partial(const struct pass *p, size_t j)
{
    return p->a->matrix.partial + p->x->partial + j * p->x->rows;
}

static float *column_partial(const struct pass *p, size_t j, size_t t)
{
    return p->a->matrix.partial + p->x->partial + OPT_LINES * p->x->rows +
           (j * dev_row_tiles(p->x) + t) * p->x->columns;
}

static void reduce_tile(const struct pass *p, enum opt_matrix_reduce rule, size_t t)
{
    const struct rule *u = &rules[rule];
    size_t begin = t * DEV_TILE_ROWS, end = begin + DEV_TILE_ROWS;
    end = end < p->x->rows ? end : p->x->rows;
    for (size_t j = 0; j < u->count && u->how != OPT_TOTAL; j++)
        memset(column_partial(p, j, t), 0, p->x->columns * sizeof(float));
    for (size_t i = begin; i < end; i++) {
        struct rows_matrix row = row_at(p, i);
        for (size_t j = 0; j < u->count && u->how != OPT_TOTAL; j++)
            row.into[j] = column_partial(p, j, t);
        struct opt_sums sums = p->c->rows->matrix_reduce(rule, &row, &p->k, p->x->columns);
        for (size_t j = 0; j < u->count; j++)
            row_partial(p, j)[i] = (float)sums.x[j];
    }
}

static float joined(enum opt_how how, float a, float b)
{
    return how != OPT_MAX ? a + b : a > b ? a : b;
}

/* Column i of all tiles. */
static float column_total(const struct pass *p, const struct rule *u, size_t j, size_t i)
{
    float total = 0;
    for (size_t t = 0; t < dev_row_tiles(p->x); t++)
        total = joined(u->how, total, column_partial(p, j, t)[i]);
    return total;
}

/* The lines, rows before columns. */
static void set_lines(const struct pass *p, const struct rule *u, size_t j)
{
    const struct dev_matrix *x = p->x;
    float *line = line_at(p, u->first + j), rows = p->k.rows, columns = p->k.columns;
    bool mean = u->how == OPT_MEAN;
    for (size_t i = 0; i < x->rows; i++) {
        float now = row_partial(p, j)[i];
        line[i] = u->line(line[i], mean ? now / columns : now, &p->k);
    }
#pragma omp parallel for num_threads(p->c->dev.threads)                                            \
    schedule(static) if (x->rows * x->columns > DEV_RUN)
    for (size_t i = 0; i < x->columns; i++) {
        float now = column_total(p, u, j, i);
        line[x->rows + i] = u->line(line[x->rows + i], mean ? now / rows : now, &p->k);
    }
}

static double sum_of(const struct pass *p, const struct rule *u, size_t j)
{
    const float *x = u->how == OPT_TOTAL ? row_partial(p, j) : line_at(p, u->first + j);
    double sum = 0;
    for (size_t i = 0; i < p->x->rows; i++)
        if (u->how != OPT_MAX)
            sum += (double)x[i];
        else
            sum = (double)x[i] > sum ? (double)x[i] : sum;
    return sum;
}

void cpu_matrix_reduce(struct dev *d, enum opt_matrix_reduce rule, const struct dev_optim *a)
{
    const struct rule *u = &rules[rule];
    for (size_t r = 0; r < a->n && !is_stopped(a); r++) {
        if (!opt_takes_part(&a->groups[r], a->kind))
            continue;
        struct pass p = pass_of(cpu_of(d), a, r, u->prepare);
        size_t tiles = dev_row_tiles(p.x);
#pragma omp parallel for num_threads(d->threads) schedule(static) if (tiles > 1)
        for (size_t t = 0; t < tiles; t++)
            reduce_tile(&p, rule, t);
        for (size_t j = 0; j < u->count; j++) {
            if (u->how != OPT_TOTAL)
                set_lines(&p, u, j);
            a->sums[(u->sum + j) * a->sums_stride + r] = sum_of(&p, u, j);
        }
    }
}

/* columns (OPT_LINES, columns): what an update gets of each column. */
static void cross_columns(const struct pass *p, enum opt_matrix_update rule, float *columns)
{
    size_t rows = p->x->rows, count = p->x->columns;
    for (size_t i = 0; i < count; i++) {
        float line[OPT_LINES] = {line_at(p, 0)[rows + i], line_at(p, 1)[rows + i]};
        updates[rule].cross(line);
        for (size_t j = 0; j < OPT_LINES; j++)
            columns[j * count + i] = line[j];
    }
}

static void update_matrix(const struct pass *p, enum opt_matrix_update rule, float *columns)
{
    cross_columns(p, rule, columns);
#pragma omp parallel for num_threads(p->c->dev.threads)                                            \
    schedule(static) if (p->x->rows > DEV_TILE_ROWS)
    for (size_t i = 0; i < p->x->rows; i++) {
        struct rows_matrix row = row_at(p, i);
        updates[rule].cross(row.row);
        for (size_t j = 0; j < OPT_LINES; j++)
            row.column[j] = columns + j * p->x->columns;
        p->c->rows->matrix_update(rule, &row, &p->k, p->x->columns);
    }
}

void cpu_matrix_update(struct dev *d, enum opt_matrix_update rule, const struct dev_optim *a)
{
    size_t most = 1;
    for (size_t r = 0; r < a->n; r++)
        most = a->matrix.list[r].columns > most ? a->matrix.list[r].columns : most;
    float *columns =
        is_stopped(a) ? NULL : cpu_scratch(cpu_of(d), 0, OPT_LINES * most * sizeof *columns);
    for (size_t r = 0; columns && r < a->n; r++) {
        struct pass p;
        if (!opt_takes_part(&a->groups[r], a->kind))
            continue;
        p = pass_of(cpu_of(d), a, r, updates[rule].prepare);
        update_matrix(&p, rule, columns);
    }
}
