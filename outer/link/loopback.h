/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOOPBACK_H
#define LOOPBACK_H
/* Which addresses only this machine reaches. Pure. */
#include <stdbool.h>
#include <stddef.h>

/* The first n bytes: 127.0.0.0/8 as four numbers, "localhost" in any case, or "[::1]";
 * nothing that begins or ends with one of them. */
bool loopback_host(const char *host, size_t n);
/* Such a host with a port from 0 to 65535. */
bool loopback_address(const char *address);

#endif
