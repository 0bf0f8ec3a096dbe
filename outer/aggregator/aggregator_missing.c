/* SPDX-License-Identifier: Apache-2.0 */
/* Which sites the round in flight waits for, and their names for an answer's text. */
#include <stdio.h>
#include "outer/aggregator/aggregator_sums.h"

enum { NAMED_MAX = 16 }; /* names of missing sites in one sentence */

struct set aggregator_missing_of(const struct aggregator *a, unsigned fragment, const char **owes)
{
    const struct round_fragment *f = &a->core.f[fragment];
    struct set missing = set_without(&f->members, &f->counted);
    *owes = a->sums->missing(a, fragment, &missing);
    *owes = *owes ? *owes : "contribution";
    return missing;
}

unsigned aggregator_missing(const struct aggregator *a, unsigned fragment, char *out,
                            size_t size_bytes)
{
    const char *owes;
    struct set missing = aggregator_missing_of(a, fragment, &owes);
    size_t used = 0;
    *out = 0;
    unsigned named = 0, count = set_count(&missing);
    for (unsigned i = 0; i < a->members.count && used + 1 < size_bytes; i++) {
        if (!set_has(&missing, i))
            continue;
        if (named++ == NAMED_MAX) {
            snprintf(out + used, size_bytes - used, ",+%u", count - NAMED_MAX);
            break;
        }
        int n =
            snprintf(out + used, size_bytes - used, "%s%s", used ? "," : "", a->members.names[i]);
        used = n < 0 || used + (size_t)n >= size_bytes ? size_bytes - 1 : used + (size_t)n;
    }
    return count;
}
