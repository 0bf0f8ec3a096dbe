/* SPDX-License-Identifier: Apache-2.0 */
#ifndef METHOD_H
#define METHOD_H
/* Interface of an inner optimizer: the state that it keeps, and its step as a
 * sequence of passes over ranges of the slabs. One file each, optim_NAME in inner/optim/NAME.c; the
 * list is OPTIM_LIST in kernels/scalar/opt.h, where the formulas are, too; list.c finds a row. No
 * method calls list.c: each gets its row by argument or in struct optim.
 */
#include "inner/coll/coll.h"
#include "inner/model/model.h"

struct optim;
struct optim_part;
struct optim_method {
    const char *name;
    bool first, second; /* keeps a first, a second moment of each element: what outer.moment1_every
                           and outer.moment2_every average */
    size_t (*more)(const struct tensor *x); /* further floats of a tensor; NULL: none */
    bool whole;       /* works on whole tensors only: shards end between tensors */
    bool projections; /* treats the projections of a tensor one by one, with any train.trust_per */
    bool sums;        /* the step depends on sums over each tensor */
    bool hidden;   /* is for the layers' matrices alone (`beside.c`), with any train.trust_layers */
    bool matrices; /* needs values of rows and columns: further state, or of the step alone */
    double bytes;  /* of memory that a step moves for each parameter, without the bf16 copy */
    /* NULL: none. Floating-point operations of a step's matrix products; bytes of device memory
     * that a step works in; what differs from the settings in a step's use of a part. */
    double (*flop)(const struct settings *s, const struct table *t);
    size_t (*workspace)(const struct optim_method *m, const struct settings *s,
                        const struct table *t, enum dtype type);
    void (*group)(const struct optim *o, const struct optim_part *x, struct opt_group *group);
    /* One step by a->g times *a->gscale, the mean gradient, clipped. All ranks call. */
    enum err (*step)(struct optim *o, const struct dev_optim *a);
};

#define X(VALUE, name) extern const struct optim_method optim_##name;
OPTIM_LIST(X)
#undef X

/* Elements of the parts of a tensor, which have a trust ratio each; their number. m: the method
 * that `s` names. */
size_t optim_parts(const struct optim_method *m, const struct settings *s, const struct tensor *x,
                   size_t elements[TABLE_PROJECTIONS_MAX]);
/* The passes of a step; the ranks' sums are added up where they share the state out. */
enum err optim_reduce(struct optim *o, enum opt_reduce rule, const struct dev_optim *a) MUST;
enum err optim_update(struct optim *o, enum opt_update rule, const struct dev_optim *a) MUST;
/* AdamW where a method is for the layers' matrices alone: the step of embeddings, heads,
 * biases and norms, at train.adamw_lr times the rate (`beside.c`). */
enum { OPTIM_BESIDE = 1 }; /* opt_group.kind of these tensors */
bool optim_beside(const struct optim *o, const struct tensor *x); /* whether x is one */
/* `group` of a method: sets kind and rate of these tensors. */
void optim_beside_group(const struct optim *o, const struct optim_part *x, struct opt_group *group);
enum err optim_beside_update(struct optim *o, const struct dev_optim *a) MUST;
/* Of methods with `matrices`; whole tensors, so the ranks add nothing up. */
void optim_matrix_reduce(struct optim *o, enum opt_matrix_reduce rule, const struct dev_optim *a);
enum err optim_matrix_update(struct optim *o, enum opt_matrix_update rule,
                             const struct dev_optim *a) MUST;
/* `more` of methods that keep the values of rows and columns. */
size_t optim_lines(const struct tensor *x);

#endif
