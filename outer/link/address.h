/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADDRESS_H
#define ADDRESS_H
/* HOST:PORT as a person writes it, for dialing and for listening. An IPv6 address needs brackets:
 * without them its end is not known. Pure: looks no name up.
 */
#include "kernels/base/err.h"

enum { ADDRESS_HOST_MAX = 256, ADDRESS_PORT_MAX = 8 };

/* HOST:PORT or [IPV6]:PORT, the port from `least` to 65535; host: without the brackets. ERR_CONFIG:
 * it is neither; the message says how to write an IPv6 address, where the brackets are missing. */
enum err address_split(const char *text, long least, char host[ADDRESS_HOST_MAX],
                       char port[ADDRESS_PORT_MAX]) MUST;

#endif
