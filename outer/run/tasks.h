/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TASKS_H
#define TASKS_H
/* eval.tasks of a configuration, read: for atoll eval and for evaluations in a run. */
#include "inner/eval/choices.h"
#include "outer/config/keys.h"
#include "inner/config/keys.h"

struct tasks {
    struct choices task[KEYS_EVALS_MAX];
    size_t count;
    struct tokenizer *tokenizer; /* NULL: bytes or ids */
};

/* ERR_INPUT names a file and its line. */
enum err tasks_open(struct tasks *x, const struct settings *s, const struct outer_settings *o,
                    struct arena *perm) MUST;
void tasks_close(struct tasks *x); /* a zeroed or partly opened one is fine */

#endif
