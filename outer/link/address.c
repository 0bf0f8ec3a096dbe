/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/link/address.h"
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool port_good(const char *port, long least)
{
    size_t n = strlen(port);
    long value = n >= 1 && n <= 5 && strspn(port, "0123456789") == n ? atol(port) : -1;
    return value >= least && value <= 65535;
}

/* The first n bytes, with a scope ("fe80::1%eth0") or without. */
static bool is_ipv6(const char *text, size_t n)
{
    char copy[INET6_ADDRSTRLEN + 1];
    struct in6_addr address;
    const char *scope = memchr(text, '%', n);
    if (scope)
        n = scope + 1 < text + n ? (size_t)(scope - text) : 0;
    if (!n || n >= sizeof copy)
        return false;
    snprintf(copy, sizeof copy, "%.*s", (int)n, text);
    return inet_pton(AF_INET6, copy, &address) == 1;
}

static bool host_good(const char *host, size_t n, bool bracket)
{
    bool good = n > 0 && n < ADDRESS_HOST_MAX &&
                (bracket ? is_ipv6(host + 1, n - 2) : !memchr(host, ':', n));
    for (size_t i = 0; i < n; i++) /* a host goes into a request line */
        good = good && (unsigned char)host[i] > ' ' && host[i] != 0x7f &&
               (bracket || !strchr("[]/@", host[i]));
    return good;
}

enum err address_split(const char *text, long least, char host[ADDRESS_HOST_MAX],
                       char port[ADDRESS_PORT_MAX])
{
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    bool bracket = n >= 2 && text[0] == '[' && text[n - 1] == ']';
    if (n && !bracket && port_good(colon + 1, least) && is_ipv6(text, n))
        return err_set(ERR_CONFIG,
                       "\"%.80s\": an IPv6 address needs brackets before its port; write [%.*s]%s",
                       text, (int)n, text, colon);
    if (!n || !port_good(colon + 1, least) || !host_good(text, n, bracket))
        return err_set(ERR_CONFIG, "\"%.200s\" is no address: host:port, or [IPv6 address]:port",
                       text);
    snprintf(host, ADDRESS_HOST_MAX, "%.*s", (int)(bracket ? n - 2 : n), text + bracket);
    snprintf(port, ADDRESS_PORT_MAX, "%.7s", colon + 1);
    return ERR_OK;
}
