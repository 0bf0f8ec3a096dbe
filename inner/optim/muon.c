/* SPDX-License-Identifier: Apache-2.0 */
/* Muon (Jordan et al. 2024) for the matrices of the layers, AdamW for all other tensors. Formulas:
 * kernels/scalar/opt_muon.h. The update of a matrix (rows, columns) is scaled by .2 sqrt(max(rows,
 * columns)), which gives it the root mean square of AdamW's, so that both share one learning rate
 * and one weight decay (Moonlight: Liu et al. 2025, 2502.16982); or, with train.muon_scale =
 * spectral, by sqrt(rows / columns). q, k, v and gate, up are matrices of their own. Matrices keep
 * the momentum only; the second moment of the other tensors is the further state.
 *
 * Ranks that hold all of the state share out the matrices, too: each makes those of its share
 * orthogonal and gathers the others', in the place of the gradients. */
#include <math.h>
#include "inner/optim/optim.h"
#include "kernels/base/mutant.h"

enum { ITERATIONS = 5 };
_Static_assert(ITERATIONS % 2 == 1, "the last product writes to the gradient");

/* same: singular values from .01 .. 1 come to .68 .. 1.14 (Jordan et al.). per_iteration: MuLoCo
 * (2505.23725). */
static const struct opt_polynomial polynomials[][ITERATIONS] = {
    [TRAIN_MUON_COEFFICIENTS_SAME] = {{3.4445f, -4.7750f, 2.0315f},
                                      {3.4445f, -4.7750f, 2.0315f},
                                      {3.4445f, -4.7750f, 2.0315f},
                                      {3.4445f, -4.7750f, 2.0315f},
                                      {3.4445f, -4.7750f, 2.0315f}},
    [TRAIN_MUON_COEFFICIENTS_PER_ITERATION] = {{4.0848f, -6.8946f, 2.9270f},
                                               {3.9505f, -6.3029f, 2.6377f},
                                               {3.7418f, -5.5913f, 2.3037f},
                                               {2.8769f, -3.1427f, 1.2046f},
                                               {2.8366f, -3.0525f, 1.2012f}},
};

struct matrix {
    size_t rows, columns;
};

static struct matrix matrix_of(const struct tensor *x, size_t elements)
{
    size_t columns = (size_t)x->shape[1];
    return (struct matrix){elements / columns, columns};
}

static size_t shorter(struct matrix x)
{
    return x.rows < x.columns ? x.rows : x.columns;
}

static size_t longer(struct matrix x)
{
    return x.rows < x.columns ? x.columns : x.rows;
}

/* Calls visit for every matrix of the layers. */
static void each_matrix(const struct settings *s, const struct table *t,
                        void (*visit)(void *self, struct matrix x), void *self)
{
    size_t elements[TABLE_PROJECTIONS_MAX];
    for (size_t i = 0; i < t->count; i++)
        for (size_t k = 0, n = table_projections(s, &t->tensors[i], elements);
             t->tensors[i].group == TABLE_HIDDEN && k < n; k++)
            visit(self, matrix_of(&t->tensors[i], elements[k]));
}

/* ---- memory and work ---- */
/* Elements of the workspace: a matrix, and two squares of its shorter side. */
struct room {
    size_t matrix, square;
};

static void make_room(void *self, struct matrix x)
{
    struct room *room = self;
    size_t elements = x.rows * x.columns, square = shorter(x) * shorter(x);
    room->matrix = elements > room->matrix ? elements : room->matrix;
    room->square = square > room->square ? square : room->square;
}

static struct room room_of(const struct settings *s, const struct table *t)
{
    enum { APART = 128 }; /* elements: 256 bytes of bf16 */
    struct room room = {0};
    each_matrix(s, t, make_room, &room);
    room.matrix = (room.matrix + APART - 1) / APART * APART;
    room.square = (room.square + APART - 1) / APART * APART;
    return room;
}

static size_t workspace(const struct optim_method *m, const struct settings *s,
                        const struct table *t, enum dtype type)
{
    (void)m;
    struct room room = room_of(s, t);
    return (room.matrix + 2 * room.square) * dtype_size(type);
}

static void add_flop(void *self, struct matrix x)
{
    double a = (double)shorter(x), b = (double)longer(x);
    *(double *)self += ITERATIONS * (4 * a * a * b + 2 * a * a * a);
}

static double flop(const struct settings *s, const struct table *t)
{
    double sum = 0;
    each_matrix(s, t, add_flop, &sum);
    return sum;
}

static size_t more(const struct tensor *x)
{
    return x->group == TABLE_HIDDEN ? 0 : (x->count + TABLE_ALIGN - 1) / TABLE_ALIGN * TABLE_ALIGN;
}

/* ---- step ---- */
static float scale_of(const struct settings *s, struct matrix x)
{
    return s->train_muon_scale == TRAIN_MUON_SCALE_SPECTRAL
               ? sqrtf((float)x.rows / (float)x.columns)
               : 0.2f * sqrtf((float)longer(x));
}

/* The scale multiplies the rate; the decay, which it is not meant for, is divided by it. */
static void group(const struct optim *o, const struct optim_part *x, struct opt_group *group)
{
    optim_beside_group(o, x, group);
    if (group->kind == OPTIM_BESIDE)
        return;
    float scale = scale_of(o->settings, matrix_of(x->tensor, x->count));
    group->lr *= scale;
    group->decay /= scale;
}

/* s = x x^T of its shorter side. */
static void square_of(struct dev *d, void *s, const void *x, struct matrix size)
{
    bool tall = size.rows > size.columns;
    size_t n = shorter(size);
    d->ops->matmul(d, &(struct dev_matmul){.a = x,
                                           .b = x,
                                           .c = s,
                                           .out = d->model_type,
                                           .M = n,
                                           .N = n,
                                           .K = longer(size),
                                           .a_t = tall,
                                           .b_t = !tall});
}

/* to = s x, or x s where s is of the columns. */
static void apply(struct dev *d, void *to, enum dtype type, const void *s, const void *x,
                  struct matrix size)
{
    bool tall = size.rows > size.columns;
    d->ops->matmul(d, &(struct dev_matmul){.a = tall ? x : s,
                                           .b = tall ? s : x,
                                           .c = to,
                                           .out = type,
                                           .M = size.rows,
                                           .N = size.columns,
                                           .K = shorter(size)});
}

/* The orthogonal matrix of range r replaces its gradient, whose place holds every second x. */
static void orthogonalise(struct optim *o, const struct dev_optim *a, size_t r)
{
    struct dev *d = o->dev;
    size_t size = dtype_size(d->model_type), n;
    const struct optim_part *part = &o->parts.list[r];
    struct matrix matrix = matrix_of(part->tensor, part->count);
    struct room room = room_of(o->settings, o->table);
    float *gradient = a->g + a->ranges[r].offset;
    char *first = o->buffers.workspace, *square = first + room.matrix * size,
         *polynomial = square + room.square * size;
    const struct opt_polynomial *p = polynomials[o->settings->train_muon_coefficients];
    void *x[2] = {first, gradient};
    n = shorter(matrix);
    if (WITHOUT(MUON_ORTHOGONAL))
        return;
    d->ops->muon_input(d, first, a, r);
    for (int i = 0; i < ITERATIONS; i++) {
        bool last = i + 1 == ITERATIONS;
        square_of(d, square, x[i % 2], matrix);
        square_of(d, polynomial, square, (struct matrix){n, n});
        d->ops->muon_polynomial(d, polynomial, square, &p[i], n);
        apply(d, x[(i + 1) % 2], last ? DTYPE_F32 : d->model_type, polynomial, x[i % 2], matrix);
    }
}

/* Whether this rank computes the products of range r. */
static bool is_mine(const struct optim *o, size_t r)
{
    size_t offset = o->parts.list[r].offset;
    int rank = o->coll->rank;
    return !o->shard.work || (offset >= o->shard.work[rank] && offset < o->shard.work[rank + 1]);
}

static enum err step(struct optim *o, const struct dev_optim *a)
{
    struct dev_optim matrices = *a, others = *a;
    matrices.second = others.second = o->parts.more_at;
    matrices.k.beta1 = (float)o->settings->train_momentum;
    others.v = o->state[OPTIM_MORE].shard;
    o->dev->ops->range_reduce(o->dev, OPT_REDUCE_MUON, &matrices); /* a range is a whole matrix */
    for (size_t r = 0; r < a->n; r++)
        if (opt_takes_part(&o->buffers.groups_host[r], matrices.kind) && is_mine(o, r))
            orthogonalise(o, &matrices, r);
    if (o->shard.work)
        TRY(o->coll->ops->all_gather(o->coll, a->g, sizeof *a->g, o->shard.work));
    TRY(optim_update(o, OPT_UPDATE_MUON, &matrices));
    return optim_beside_update(o, &others);
}

/* Reads m, g, writes m; reads m, g, writes x; reads p, g, writes p. Products apart. */
const struct optim_method optim_muon = {.name = "muon",
                                        .first = true,
                                        .more = more,
                                        .whole = true,
                                        .projections = true,
                                        .sums = true,
                                        .hidden = true,
                                        .bytes = 36,
                                        .flop = flop,
                                        .workspace = workspace,
                                        .group = group,
                                        .step = step};
