/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FIGURES_H
#define FIGURES_H
/* Named numbers of a step or of an evaluation, in the order in which records list them. Methods,
 * losses and scores add their figures; displays and records list all of them. Pure.
 */
#include <stdbool.h>
#include <stddef.h>
#include "kernels/base/err.h"

enum { FIGURES_MAX = 8 };
struct figure {
    const char *name; /* as in records */
    double value;
    bool whole; /* an integer */
};
struct figures {
    struct figure list[FIGURES_MAX];
    size_t count;
};
static inline void figures_add(struct figures *f, const char *name, double value)
{
    ASSERT(f->count < FIGURES_MAX);
    f->list[f->count++] = (struct figure){name, value, false};
}
static inline void figures_count(struct figures *f, const char *name, size_t value)
{
    figures_add(f, name, (double)value);
    f->list[f->count - 1].whole = true;
}

#endif
