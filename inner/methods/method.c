/* SPDX-License-Identifier: Apache-2.0 */
/* What a row of methods.c does at a place where it has nothing to do. */
#include "inner/methods/method.h"

void *method_keeps_nothing(void *state)
{
    (void)state;
    return NULL;
}

enum err method_resumes_nothing(void *state)
{
    (void)state;
    return ERR_OK;
}

bool method_changes_nothing(const void *state, int64_t steps)
{
    (void)state, (void)steps;
    return false;
}

void method_begins_nothing(void *state, int64_t steps)
{
    (void)state, (void)steps;
}

enum err method_reviews_nothing(void *state, int64_t steps)
{
    (void)state, (void)steps;
    return ERR_OK;
}

enum err method_keeps_past(const struct settings *before, const struct settings *s, const char *dir)
{
    (void)before, (void)s, (void)dir;
    return ERR_OK;
}
