/* SPDX-License-Identifier: Apache-2.0 */
#ifndef METHODS_H
#define METHODS_H
/* What training methods do between the passes of the loop: they copy layers, drop heads, keep
 * averages in checkpoints. A method is a file and a row of methods.c. The loop (inner/train) calls
 * all rows at fixed places, in the order of the rows, and knows none by name. All ranks call each
 * of these functions and decide alike. A loss is a row of inner/model/loss.h; which layers run and
 * learn is inner/model/depth.h.
 */
#include "inner/methods/method.h"

enum { METHODS_MAX = 8 };
struct methods {              /* of a rank */
    void *state[METHODS_MAX]; /* by rows; NULL: the settings do not ask for it */
};
enum err methods_open(struct methods *x, const struct method_parts *p, struct arena *perm) MUST;
enum err methods_resumed(struct methods *x) MUST;
bool methods_change(const struct methods *x, int64_t steps);
void methods_begin(struct methods *x, int64_t steps);
void methods_read(struct methods *x, int64_t steps, const double *stats, struct figures *f);
enum err methods_review(struct methods *x, int64_t steps) MUST;
enum err methods_lengthened(const struct settings *before, const struct settings *s,
                            const char *dir) MUST;

/* What a checkpoint holds of the methods that the settings ask for. */
struct method_kept {
    const char *name;
    void *data; /* NULL: methods_kept was called without methods */
    size_t bytes;
};
/* Returns the number of entries. x NULL: names and sizes alone, for a checkpoint of step 0. */
size_t methods_kept(const struct methods *x, const struct settings *s,
                    struct method_kept kept[METHODS_MAX]);

#endif
