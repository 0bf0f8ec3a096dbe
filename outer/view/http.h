/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HTTP_H
#define HTTP_H
/* A small HTTP server for the live page and for scrapers: GET of a few fixed paths. It asks for no
 * identity, so the page listens at the machine's loopback and nowhere else; routes that any reader
 * may have (`anywhere`) listen at any address. What a path answers is written into memory first, so
 * a slow or hostile reader holds one of HTTP_THREADS threads and nothing else: for HTTP_TIMEOUT_MS
 * without a whole request, and as long without taking a part of the answer. On the loopback a
 * request whose Host is no loopback is refused: it comes from a page of another site that has bent
 * its own name to 127.0.0.1. Only http.c includes civetweb; a build without it answers
 * ERR_UNSUPPORTED.
 */
#include <stdbool.h>
#include <stdio.h>
#include "kernels/base/err.h"

enum { HTTP_THREADS = 64, HTTP_TIMEOUT_MS = 1000, HTTP_REQUEST_MAX = 4096, HTTP_URL_MAX = 320 };

struct http_route {
    const char *path, *type; /* "/metrics"; Content-Type */
    /* Returns the status: 200, 503, ... In a thread of the server. */
    int (*write)(void *self, FILE *out);
};
struct http; /* opaque */

struct http_options {
    const char *address; /* host:port, port 0 picks one; without `anywhere` loopback_address() */
    bool anywhere;
    const struct http_route *routes; /* they and self must live until http_close */
    size_t count;
    void *self;
};

/* url: where it is. ERR_BUSY: the port is in use. ERR_UNSUPPORTED: this build is without civetweb.
 */
enum err http_open(struct http **h, const struct http_options *o, char url[HTTP_URL_MAX]) MUST;
void http_close(struct http *h); /* accepts NULL; returns when no thread runs */
bool http_there(void);           /* this build has it */

#endif
