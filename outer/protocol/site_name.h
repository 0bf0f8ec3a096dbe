/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SITE_NAME_H
#define SITE_NAME_H
/* The form of a site's name: it becomes a part of file names and of certificates' URIs. */
#include <stdbool.h>
#include <string.h>

enum { SITE_NAME_MAX = 63 };

/* 1 to SITE_NAME_MAX letters, digits, - and _. */
static inline bool site_name_good(const char *name)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    size_t n = strlen(name);
    return n >= 1 && n <= SITE_NAME_MAX && !name[strspn(name, allowed)];
}

#endif
