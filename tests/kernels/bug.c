/* SPDX-License-Identifier: Apache-2.0 */
/* Ends as a failed assertion does: a condition that does not hold, or an allocation from a sealed
 * arena. */
#include <string.h>
#include "kernels/base/arena.h"

int main(int argc, char **argv)
{
    struct arena a = arena_make(0);
    void *p = arena_alloc(&a, 8);
    if (argc > 1 && strcmp(argv[1], "sealed") == 0) {
        arena_seal(&a);
        p = arena_alloc(&a, 8);
    }
    ASSERT(!p);
    return 0;
}
