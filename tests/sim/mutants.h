/* SPDX-License-Identifier: Apache-2.0 */
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

/* Arguments of a test of one module. TEST: this one alone (filter: cmocka_set_test_filter);
 * --mutant NAME: over the outer loop with that bug in it (tests/sim/mutants.sh). False: another
 * one, named. */
static inline bool mutant_arguments(int argc, char **argv, void (*filter)(const char *test))
{
    for (int i = 1; i < argc; i++) {
        if (*argv[i] != '-') {
            filter(argv[i]);
        } else if (strcmp(argv[i], "--mutant") != 0 || ++i == argc || !mutant_set(argv[i])) {
            printf("unknown argument %s\n", argv[i - (i == argc)]);
            return false;
        }
    }
    return true;
}

#endif
