/* SPDX-License-Identifier: Apache-2.0 */
/* The mutant of a program that is built with ATOLL_WITHOUT, from the environment:
 * kernels/base/mutant.h.
 */
#include "kernels/base/mutant.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum method_mutant method_mutant;

static const char *const names[] = {
#define X(name, text) [WITHOUT_##name] = #name,
    METHOD_MUTANT_LIST(X)
#undef X
};

__attribute__((constructor)) static void choose(void)
{
    const char *wanted = getenv("ATOLL_MUTANT");
    if (!wanted || !*wanted)
        return;
    for (size_t i = 1; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], wanted) == 0)
            method_mutant = (enum method_mutant)i;
    if (method_mutant == METHOD_WHOLE) {
        fprintf(stderr, "ATOLL_MUTANT=%s is none of METHOD_MUTANT_LIST\n", wanted);
        exit(4);
    }
}
