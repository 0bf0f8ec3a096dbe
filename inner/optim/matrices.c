/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges as matrices: rows, columns, and the memory of passes over them. */
#include "inner/optim/optim.h"

/* Without the padding rows of a tensor, which no gradient reaches. A vector is one row. */
static struct dev_matrix matrix_of(const struct optim_part *x)
{
    size_t rows = (size_t)x->tensor->shape[0], columns = (size_t)x->tensor->shape[1];
    struct dev_matrix m = {.offset = x->offset, .rows = rows, .columns = columns};
    if (x->count < x->tensor->count) /* a projection */
        m.rows = x->count / columns;
    if (columns == 1) {
        m.rows = 1;
        m.columns = rows;
    }
    return m;
}

size_t optim_lines(const struct tensor *x)
{
    struct dev_matrices all = {.lines = 0};
    struct dev_matrix m = matrix_of(&(struct optim_part){x, x->offset, x->count});
    dev_matrices_add(&all, &m);
    return all.lines;
}

static size_t list_bytes(size_t parts)
{
    enum { APART = 256 };
    return (parts * sizeof(struct dev_matrix) + APART - 1) / APART * APART;
}

/* The list, partial sums, and the lines where they are no state. Of all ranks' tensors: a rank has
 * room to spare. */
size_t optim_matrices_bytes(const struct optim_method *m, const struct settings *s,
                            const struct table *t, enum dtype type)
{
    (void)type;
    struct dev_matrices all = {.lines = 0};
    size_t parts = 0;
    for (size_t i = 0; i < t->count; i++) {
        const struct tensor *x = &t->tensors[i];
        size_t elements[TABLE_PROJECTIONS_MAX], n = optim_parts(m, s, x, elements);
        for (size_t k = 0; k < n; k++, parts++) {
            struct dev_matrix matrix = matrix_of(&(struct optim_part){x, x->offset, elements[k]});
            dev_matrices_add(&all, &matrix);
        }
    }
    size_t lines = m->more ? 0 : all.lines;
    return list_bytes(parts) + (all.partial + lines) * sizeof(float);
}

enum err optim_matrices_open(struct optim *o, struct arena *scratch)
{
    struct optim_matrices *x = &o->matrices;
    struct dev_matrix *host;
    TRY_ALLOC(host = arena_array(scratch, o->parts.count + 1, sizeof *host));
    for (size_t i = 0; i < o->parts.count; i++) {
        if (o->parts.ranges[i].count) /* else it is another rank's, and empty here */
            host[i] = matrix_of(&o->parts.list[i]);
        host[i].offset = o->parts.ranges[i].offset;
        dev_matrices_add(&x->all, &host[i]);
    }
    x->list = o->buffers.workspace;
    x->partial = (float *)(void *)((char *)o->buffers.workspace + list_bytes(o->parts.count));
    x->lines = o->method->more ? o->state[OPTIM_MORE].shard : x->partial + x->all.partial;
    o->dev->ops->copy(o->dev, x->list, host, o->parts.count * sizeof *host);
    return ERR_OK;
}

void optim_matrix_reduce(struct optim *o, enum opt_matrix_reduce rule, const struct dev_optim *a)
{
    o->dev->ops->matrix_reduce(o->dev, rule, a);
}

enum err optim_matrix_update(struct optim *o, enum opt_matrix_update rule,
                             const struct dev_optim *a)
{
    o->dev->ops->matrix_update(o->dev, rule, a);
    return ERR_OK;
}
