/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/link/loopback.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool number_good(const char *text, long most)
{
    char *end;
    long value = strtol(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && value <= most;
}

bool loopback_host(const char *host, size_t n)
{
    char text[32];
    unsigned part[4];
    int used = 0;
    if (n >= sizeof text)
        return false;
    snprintf(text, sizeof text, "%.*s", (int)n, host);
    if (strcasecmp(text, "localhost") == 0 || strcmp(text, "[::1]") == 0)
        return true;
    if (text[strspn(text, "0123456789.")]) /* sscanf passes over blanks and signs */
        return false;
    if (sscanf(text, "%3u.%3u.%3u.%3u%n", &part[0], &part[1], &part[2], &part[3], &used) != 4)
        return false;
    return !text[used] && part[0] == 127 && part[1] < 256 && part[2] < 256 && part[3] < 256;
}

bool loopback_address(const char *address)
{
    const char *colon = strrchr(address, ':');
    return colon && loopback_host(address, (size_t)(colon - address)) &&
           number_good(colon + 1, 65535);
}
