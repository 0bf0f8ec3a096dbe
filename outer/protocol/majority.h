/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MAJORITY_H
#define MAJORITY_H
/* More than half of n sites: any two such sets have a site in common, so that two of them never
 * decide differently. The only place of this rule; tests/outer/protocol/test_majorities.c counts
 * with each of its users, and tests/structure/majorities.sh finds a second copy.
 */
#include <stdbool.h>

static inline unsigned majority_of(unsigned n)
{
    return n / 2 + 1;
}

static inline bool majority_has(unsigned have, unsigned n)
{
    return have >= majority_of(n);
}

#endif
