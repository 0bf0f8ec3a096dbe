/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/protocol/roles.h"
#include <stdio.h>
#include <string.h>
#include "kernels/base/err.h"

enum { URI_MAX = 256 };

static const struct {
    const char *name;
    unsigned who; /* bits */
} calls[ROLES_CALLS_COUNT] = {
#define X(value, name, who) [value] = {#name, who},
    ROLES_CALLS(X)
#undef X
};

enum roles_role roles_of(const char *peer, const char *run)
{
    static const char *const names[] = {
#define X(value, name) [value] = #name,
        ROLES_LIST(X)
#undef X
    };
    char prefix[URI_MAX];
    for (unsigned i = 0; peer && i < ROLES_OTHER; i++) {
        int n = snprintf(prefix, sizeof prefix, "atoll://%s/%s/", run, names[i]);
        bool named = n > 0 && n < URI_MAX && strncmp(peer, prefix, (size_t)n) == 0;
        if (named && peer[n] && !strchr(peer + n, '/'))
            return (enum roles_role)i;
    }
    return ROLES_OTHER;
}

bool roles_may(enum roles_role role, enum roles_call call)
{
    ASSERT(role < ROLES_COUNT && call < ROLES_CALLS_COUNT);
    return calls[call].who >> role & 1;
}

const char *roles_call_name(enum roles_call call)
{
    ASSERT(call < ROLES_CALLS_COUNT);
    return calls[call].name;
}
