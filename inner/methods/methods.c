/* SPDX-License-Identifier: Apache-2.0 */
/* The one place that lists the methods. */
#include "inner/methods/methods.h"
#include "inner/methods/growth.h"
#include "inner/methods/heads.h"

static const struct method *const rows[] = {&method_growth, &method_heads};
enum { ROWS = sizeof rows / sizeof *rows };
_Static_assert((size_t)ROWS <= (size_t)METHODS_MAX, "struct methods has a state for each row");

enum err methods_open(struct methods *x, const struct method_parts *p, struct arena *perm)
{
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i]->asked(p->settings))
            TRY(rows[i]->open(&x->state[i], p, perm));
    return ERR_OK;
}

enum err methods_resumed(struct methods *x)
{
    for (size_t i = 0; i < ROWS; i++)
        if (x->state[i])
            TRY(rows[i]->resumed(x->state[i]));
    return ERR_OK;
}

bool methods_change(const struct methods *x, int64_t steps)
{
    bool any = false;
    for (size_t i = 0; i < ROWS; i++)
        any |= x->state[i] && rows[i]->changes(x->state[i], steps);
    return any;
}

void methods_begin(struct methods *x, int64_t steps)
{
    for (size_t i = 0; i < ROWS; i++)
        if (x->state[i])
            rows[i]->begin(x->state[i], steps);
}

void methods_read(struct methods *x, int64_t steps, const double *stats, struct figures *f)
{
    for (size_t i = 0; i < ROWS; i++)
        if (x->state[i])
            rows[i]->read(x->state[i], steps, stats, f);
}

enum err methods_review(struct methods *x, int64_t steps)
{
    for (size_t i = 0; i < ROWS; i++)
        if (x->state[i])
            TRY(rows[i]->review(x->state[i], steps));
    return ERR_OK;
}

enum err methods_lengthened(const struct settings *before, const struct settings *s,
                            const char *dir)
{
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i]->asked(s))
            TRY(rows[i]->lengthened(before, s, dir));
    return ERR_OK;
}

size_t methods_kept(const struct methods *x, const struct settings *s,
                    struct method_kept kept[METHODS_MAX])
{
    size_t count = 0;
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i]->bytes && rows[i]->asked(s))
            kept[count++] = (struct method_kept){
                rows[i]->name, x ? rows[i]->kept(x->state[i]) : NULL, rows[i]->bytes};
    return count;
}
