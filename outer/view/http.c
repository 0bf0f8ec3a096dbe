/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/view/http.h"
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "kernels/base/log.h"
#include "outer/link/address.h"
#include "outer/link/loopback.h"
#ifdef HAVE_CIVETWEB
#include <civetweb.h>
#endif

#ifdef HAVE_CIVETWEB
enum { WRITE_BYTES = 64 << 10 };

struct http {
    struct mg_context *context;
    struct http_options o;
};

bool http_there(void)
{
    return true;
}

static const char head_format[] =
    "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
    "Connection: close\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src "
    "'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n%s\r\n";

static void reply(struct mg_connection *c, int status, const char *type, const char *text,
                  size_t size, bool body)
{
    const char *name = status == 200   ? "OK"
                       : status == 403 ? "Forbidden"
                       : status == 404 ? "Not Found"
                       : status == 405 ? "Method Not Allowed"
                                       : "Service Unavailable";
    mg_printf(c, head_format, status, name, type, size,
              status == 405 ? "Allow: GET, HEAD\r\n" : "");
    /* The time limit of civetweb is one of a call: a slow reader has it for each part. */
    for (size_t at = 0; body && at < size;) {
        size_t part = size - at < WRITE_BYTES ? size - at : WRITE_BYTES;
        if (mg_write(c, text + at, part) != (int)part)
            return;
        at += part;
    }
}

static void refuse(struct mg_connection *c, int status, const char *sentence)
{
    reply(c, status, "text/plain; charset=utf-8", sentence, strlen(sentence), true);
}

/* Host without its port. */
static bool host_is_loopback(const char *host)
{
    const char *end = host ? strrchr(host, ':') : NULL;
    if (!host)
        return false;
    if (end && strchr(end, ']')) /* "[::1]" without a port */
        end = NULL;
    return loopback_host(host, end ? (size_t)(end - host) : strlen(host));
}

static void route_serve(const struct http *h, const struct http_route *r, struct mg_connection *c,
                        bool body)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out)
        __fsetlocking(out, FSETLOCKING_BYCALLER); /* one thread has it; locks were a quarter */
    int status = out ? r->write(h->o.self, out) : 503;
    bool bad = out && ferror(out);
    bad = !out || fclose(out) != 0 || bad;
    if (bad)
        refuse(c, 503, "no memory for the answer\n");
    else
        reply(c, status, r->type, text, size, body);
    free(text);
}

static int request_serve(struct mg_connection *c, void *self)
{
    const struct http *h = self;
    const struct mg_request_info *i = mg_get_request_info(c);
    bool head = strcmp(i->request_method, "HEAD") == 0;
    if (!h->o.anywhere && !host_is_loopback(mg_get_header(c, "Host"))) {
        refuse(c, 403, "The Host of the request is no loopback address.\n");
        return 1;
    }
    if (!head && strcmp(i->request_method, "GET") != 0) {
        refuse(c, 405, "GET and HEAD alone.\n");
        return 1;
    }
    for (size_t k = 0; k < h->o.count; k++)
        if (i->local_uri && strcmp(i->local_uri, h->o.routes[k].path) == 0) {
            route_serve(h, &h->o.routes[k], c, !head);
            return 1;
        }
    refuse(c, 404, "There is no such page.\n");
    return 1;
}

/* Its messages hold what a peer sent. */
static int message_take(const struct mg_connection *c, const char *message)
{
    char quoted[256];
    (void)c;
    log_event(LOG_DEBUG, "http", "text=%s", log_quote(quoted, sizeof quoted, message));
    return 1;
}

/* civetweb's form of the address: "localhost" is 127.0.0.1 to it. */
static enum err port_text(const struct http_options *o, char *out, size_t size)
{
    char host[ADDRESS_HOST_MAX], port[ADDRESS_PORT_MAX];
    ASSERT(o->anywhere || loopback_address(o->address));
    TRY(address_split(o->address, 0, host, port));
    bool name = strcasecmp(host, "localhost") == 0, six = strchr(host, ':');
    snprintf(out, size, "%s%s%s:%s", six ? "[" : "", name ? "127.0.0.1" : host, six ? "]" : "",
             port);
    return ERR_OK;
}

enum err http_open(struct http **out, const struct http_options *o, char url[HTTP_URL_MAX])
{
    char port[ADDRESS_HOST_MAX + ADDRESS_PORT_MAX + 4], timeout[16], threads[16], largest[16];
    const struct mg_callbacks callbacks = {.log_message = message_take};
    struct mg_server_port there[1];
    TRY(port_text(o, port, sizeof port));
    snprintf(timeout, sizeof timeout, "%d", HTTP_TIMEOUT_MS);
    snprintf(threads, sizeof threads, "%d", HTTP_THREADS);
    snprintf(largest, sizeof largest, "%d", HTTP_REQUEST_MAX);
    const char *options[] = {"listening_ports",
                             port,
                             "num_threads",
                             threads,
                             "listen_backlog",
                             "1000",
                             "request_timeout_ms",
                             timeout,
                             "max_request_size",
                             largest,
                             "enable_keep_alive",
                             "no",
                             NULL};
    struct http *h = calloc(1, sizeof *h);
    if (!h)
        return err_set(ERR_MEMORY, "no memory for the page");
    h->o = *o;
    mg_init_library(0);
    h->context = mg_start(&callbacks, h, options);
    if (!h->context) {
        mg_exit_library();
        free(h);
        return err_set(ERR_BUSY,
                       "the page cannot be served at %s: the port is in use, or needs root; give "
                       "another one, or port 0",
                       o->address);
    }
    mg_set_request_handler(h->context, "/", request_serve, h);
    there[0].port = 0;
    if (mg_get_server_ports(h->context, 1, there) < 1)
        there[0].port = 0;
    snprintf(url, HTTP_URL_MAX, "http://%.*s:%d/", (int)(strrchr(port, ':') - port), port,
             there[0].port);
    *out = h;
    return ERR_OK;
}

void http_close(struct http *h)
{
    if (!h)
        return;
    mg_stop(h->context);
    mg_exit_library();
    free(h);
}

#else
bool http_there(void)
{
    return false;
}

enum err http_open(struct http **out, const struct http_options *o, char url[HTTP_URL_MAX])
{
    (void)out, (void)url;
    return err_set(ERR_UNSUPPORTED,
                   "the page cannot be served at %s: this build is without civetweb "
                   "(libcivetweb-dev); leave serve.http and site.http empty, or build with it",
                   o->address);
}

void http_close(struct http *h)
{
    ASSERT(!h);
}
#endif
