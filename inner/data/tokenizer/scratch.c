/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread works in while it encodes. */
#include <stdlib.h>
#include "inner/data/tokenizer/tokenizer_own.h"

void tokenizer_scratch_close(struct tokenizer_scratch *x)
{
    if (!x)
        return;
    normal_scratch_free(&x->normal);
    split_scratch_free(&x->split);
    subword_scratch_close(&x->model);
    pattern_match_close(x->match);
    free(x);
}

enum err tokenizer_scratch_open(struct tokenizer_scratch **x)
{
    enum err e;
    *x = calloc(1, sizeof **x);
    e = *x ? pattern_match_open(&(*x)->match) : err_set(ERR_MEMORY, "no memory for a tokenizer");
    if (!e)
        e = subword_scratch_open(&(*x)->model);
    if (e) {
        tokenizer_scratch_close(*x);
        *x = NULL;
        return e;
    }
    (*x)->normal.match = (*x)->split.match = (*x)->match;
    return ERR_OK;
}
