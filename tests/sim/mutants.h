#ifndef MUTANTS_H
#define MUTANTS_H
/* The mutant of a program that is built with ATOLL_MUTANTS, chosen by name; in others there is
 * none. One source file of a program includes this. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "outer/protocol/mutant.h"

#ifdef ATOLL_MUTANTS
enum mutant mutant;

/* NULL: prints all names. True: one is set. */
static inline bool mutant_set(const char *name)
{
    static const char *const names[] = {
#define X(symbol, text) [MUTANT_##symbol] = #symbol,
        MUTANT_LIST(X)
#undef X
    };
    for (size_t i = 1; i < sizeof names / sizeof names[0]; i++)
        if (!name)
            printf("%s\n", names[i]);
        else if (!strcmp(names[i], name))
            mutant = (enum mutant)i;
    return mutant != MUTANT_NONE;
}
#else
static inline bool mutant_set(const char *name)
{
    (void)name;
    return false;
}
#endif

#endif
