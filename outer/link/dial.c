/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/link/dial.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "kernels/base/file.h"
#include "kernels/base/clock.h"

enum { ANSWER_MAX = 8192, REASON_MAX = 80 };

/* ---- what proxy ---- */

static int hex_value(char c)
{
    return isdigit((unsigned char)c)    ? c - '0'
           : isxdigit((unsigned char)c) ? (c | 32) - 'a' + 10
                                        : -1;
}

/* Copies n characters, with %XX decoded. False: too long, or a wrong escape. */
static bool secret_copy(char out[DIAL_SECRET_MAX], const char *text, size_t n, bool escaped)
{
    size_t used = 0;
    for (size_t i = 0; i < n; used++) {
        bool escape = escaped && text[i] == '%';
        int high = escape && i + 2 < n ? hex_value(text[i + 1]) : -1;
        int low = high >= 0 ? hex_value(text[i + 2]) : -1;
        char c = escape ? (char)(high * 16 + low) : text[i];
        if (used == DIAL_SECRET_MAX - 1 || (escape && low < 0) || !c)
            return false;
        out[used] = c;
        i += escape ? 3 : 1;
    }
    out[used] = 0;
    return true;
}

/* user:password, n characters. RFC 1929 and the header allow no longer ones. */
static bool credentials_read(struct dial_proxy *p, const char *text, size_t n, bool escaped)
{
    const char *colon = memchr(text, ':', n);
    size_t user = colon ? (size_t)(colon - text) : n;
    return secret_copy(p->user, text, user, escaped) && *p->user &&
           (!colon || secret_copy(p->password, colon + 1, n - user - 1, escaped));
}

static enum err url_refused(void)
{
    return err_set(ERR_CONFIG, "site.proxy is not http://[user:password@]HOST:PORT or "
                               "socks5://[user:password@]HOST:PORT");
}

enum err dial_proxy_parse(struct dial_proxy *p, const char *url)
{
    static const struct {
        const char *scheme;
        enum dial_kind kind;
    } schemes[] = {{"http://", DIAL_CONNECT}, {"socks5://", DIAL_SOCKS5}};
    const char *scheme = NULL;
    *p = (struct dial_proxy){0};
    if (!url || !*url)
        return ERR_OK;
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes && !scheme; i++)
        if (strncmp(url, schemes[i].scheme, strlen(schemes[i].scheme)) == 0) {
            scheme = schemes[i].scheme;
            p->kind = schemes[i].kind;
        }
    if (!scheme)
        return url_refused();
    const char *rest = url + strlen(scheme), *at = strrchr(rest, '@'), *host = at ? at + 1 : rest;
    char target[DIAL_HOST_MAX + 8];
    size_t n = strcspn(host, "/"); /* one slash at the end is usual */
    snprintf(target, sizeof target, "%.*s", (int)n, host);
    if (n >= sizeof target || (host[n] && host[n + 1]) ||
        address_split(target, 1, p->host, p->port) != ERR_OK ||
        (at && !credentials_read(p, rest, (size_t)(at - rest), true)))
        return url_refused();
    snprintf(p->shown, sizeof p->shown, "%s%.*s", scheme, DIAL_HOST_MAX + 8, target);
    return ERR_OK;
}

enum err dial_proxy_credentials(struct dial_proxy *p, const char *path)
{
    char line[2 * DIAL_SECRET_MAX + 2] = "";
    struct stat st;
    if (!path || !*path)
        return ERR_OK;
    if (p->kind == DIAL_DIRECT)
        return err_set(ERR_CONFIG, "site.proxy_credentials without site.proxy");
    if (*p->user)
        return err_set(ERR_CONFIG,
                       "site.proxy has a user, and site.proxy_credentials is given too: "
                       "use one of them");
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        if (fd >= 0)
            close(fd);
        return err_set(ERR_INPUT, "site.proxy_credentials: %s: cannot be read (%s)", path,
                       fd < 0 ? strerror(errno) : "no regular file");
    }
    ssize_t n = read(fd, line, sizeof line - 1);
    close(fd);
    if (file_secret(path, &st, "the password") != ERR_OK)
        return err_add(ERR_DENIED, "site.proxy_credentials: ");
    line[n > 0 ? n : 0] = 0;
    bool good = credentials_read(p, line, strcspn(line, "\r\n"), false);
    explicit_bzero(line, sizeof line);
    return good ? ERR_OK
                : err_set(
                      ERR_INPUT,
                      "site.proxy_credentials: %s: wanted is one line, user:password, each of at "
                      "most %d bytes",
                      path, DIAL_SECRET_MAX - 1);
}

void dial_proxy_forget(struct dial_proxy *p)
{
    explicit_bzero(p, sizeof *p);
}

/* ---- one connection ---- */

struct dialogue {
    const struct dial_question *q;
    int fd;
    uint64_t end_ms;
    struct dial_bytes bytes;
};

/* True: ready; else errno says why not. */
static bool socket_wait(const struct dialogue *d, short events)
{
    for (;;) {
        struct pollfd p[2] = {{.fd = d->fd, .events = events},
                              {.fd = d->q->stop > 0 ? d->q->stop : -1, .events = POLLIN}};
        uint64_t now = clock_mono_ms();
        int n = now < d->end_ms ? poll(p, 2, (int)(d->end_ms - now)) : 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n > 0 && p[1].revents) {
            errno = ECANCELED;
            return false;
        }
        if (n == 0)
            errno = ETIMEDOUT;
        return n > 0;
    }
}

static bool send_all(struct dialogue *d, const void *data, size_t n)
{
    const uint8_t *at = data;
    while (n) {
        ssize_t took = send(d->fd, at, n, MSG_NOSIGNAL);
        if (took < 0 && errno == EAGAIN && socket_wait(d, POLLOUT))
            continue;
        if (took < 0 && errno != EINTR)
            return false;
        if (took > 0) {
            at += took;
            n -= (size_t)took;
            d->bytes.sent += (size_t)took;
        }
    }
    return true;
}

/* Not a byte more: what follows is the target's. */
static bool receive_all(struct dialogue *d, void *data, size_t n)
{
    uint8_t *at = data;
    while (n) {
        ssize_t got = recv(d->fd, at, n, 0);
        if (got == 0)
            errno = ECONNRESET;
        if (got < 0 && errno == EAGAIN && socket_wait(d, POLLIN))
            continue;
        if (got == 0 || (got < 0 && errno != EINTR))
            return false;
        if (got > 0) {
            at += got;
            n -= (size_t)got;
            d->bytes.received += (size_t)got;
        }
    }
    return true;
}

static bool socket_open(struct dialogue *d, const struct addrinfo *a)
{
    int failed = 0, one = 1;
    socklen_t n = sizeof failed;
    d->fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (d->fd < 0)
        return false;
    if (connect(d->fd, a->ai_addr, a->ai_addrlen) != 0) {
        if (errno != EINPROGRESS || !socket_wait(d, POLLOUT) ||
            getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &failed, &n) != 0)
            return false;
        errno = failed;
    }
    setsockopt(d->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return failed == 0;
}

/* The addresses of a name in turn; the last one's reason. */
static enum err socket_reach(struct dialogue *d, const char *what, const char *host,
                             const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int e = getaddrinfo(host, port, &hints, &found), why = 0;
    if (e != 0)
        return err_set(ERR_LINK, "%s: the name %s is not found (%s)", what, host, gai_strerror(e));
    bool open = false;
    for (const struct addrinfo *a = found; a && !open; a = a->ai_next) {
        open = socket_open(d, a);
        why = errno;
        if (!open && d->fd >= 0) {
            close(d->fd);
            d->fd = -1;
        }
    }
    freeaddrinfo(found);
    return open ? ERR_OK : err_set(ERR_LINK, "%s: %s", what, strerror(why));
}

/* ---- the proxies ---- */

static enum err proxy_broke(const struct dialogue *d, const char *when)
{
    int why = errno;
    return err_set(ERR_LINK, "proxy %s: %s %s", d->q->proxy->shown,
                   why == ETIMEDOUT    ? "no answer in time"
                   : why == ECONNRESET ? "it closed the connection"
                                       : strerror(why),
                   when);
}

static void base64(char *out, const char *text)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *t = (const uint8_t *)text;
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)t[i] << 16 | (i + 1 < n ? (uint32_t)t[i + 1] << 8 : 0) |
                     (i + 2 < n ? t[i + 2] : 0);
        for (unsigned k = 0; k < 4; k++)
            *out++ = i + k > n ? '=' : digits[v >> (18 - 6 * k) & 63];
    }
    *out = 0;
}

static bool request_send(struct dialogue *d)
{
    const struct dial_proxy *p = d->q->proxy;
    char pair[2 * DIAL_SECRET_MAX + 2] = "", coded[4 * DIAL_SECRET_MAX] = "", text[2560];
    if (*p->user) {
        snprintf(pair, sizeof pair, "%s:%s", p->user, p->password);
        base64(coded, pair);
    }
    int n = snprintf(text, sizeof text, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s%s%s\r\n",
                     d->q->target, d->q->target, *coded ? "Proxy-Authorization: Basic " : "", coded,
                     *coded ? "\r\n" : "");
    bool sent = send_all(d, text, (size_t)n);
    explicit_bzero(pair, sizeof pair);
    explicit_bzero(coded, sizeof coded);
    explicit_bzero(text, sizeof text);
    return sent;
}

/* The status line; the rest of the header is read and left alone. */
static enum err status_read(struct dialogue *d, char line[ANSWER_MAX])
{
    size_t used = 0, first = 0;
    while (used < 4 || memcmp(line + used - 4, "\r\n\r\n", 4) != 0) {
        if (used == ANSWER_MAX - 1)
            return err_set(ERR_LINK, "proxy %s: its answer has more than %d bytes of header",
                           d->q->proxy->shown, ANSWER_MAX);
        if (!receive_all(d, line + used, 1))
            return proxy_broke(d, "before its answer was complete");
        used++;
        if (used == 5 && memcmp(line, "HTTP/", 5) != 0)
            return err_set(ERR_LINK, "proxy %s: its answer is no HTTP; is it a proxy of this kind?",
                           d->q->proxy->shown);
        if (!first && line[used - 1] == '\n')
            first = used;
    }
    line[first] = 0;
    return ERR_OK;
}

static enum err http_refused(const struct dialogue *d, int status, const char *reason)
{
    const struct dial_proxy *p = d->q->proxy;
    char shown[REASON_MAX];
    size_t n = 0;
    for (; reason[n] && n + 1 < sizeof shown; n++)
        shown[n] = isprint((unsigned char)reason[n]) ? reason[n] : '.';
    while (n && (shown[n - 1] == '.' || shown[n - 1] == ' '))
        n--;
    shown[n] = 0;
    if (status == 407)
        return err_set(ERR_DENIED, "proxy %s answers 407 (%s): %s", p->shown, shown,
                       *p->user ? "it does not accept this user and password; correct "
                                  "site.proxy_credentials or site.proxy"
                                : "it wants a user and a password: give site.proxy_credentials");
    if (status == 502 || status == 503 || status == 504)
        return err_set(ERR_LINK, "proxy %s does not reach %s: it answers %d (%s)", p->shown,
                       d->q->target, status, shown);
    return err_set(status >= 400 && status < 500 && status != 408 && status != 429 ? ERR_DENIED
                                                                                   : ERR_LINK,
                   "proxy %s answers %d (%s) for %s: let it allow CONNECT to this host and port",
                   p->shown, status, shown, d->q->target);
}

static enum err http_ask(struct dialogue *d)
{
    char line[ANSWER_MAX];
    if (!request_send(d))
        return proxy_broke(d, "at the request");
    TRY(status_read(d, line));
    const char *blank = strchr(line, ' ');
    int status = blank ? atoi(blank) : 0;
    if (status >= 200 && status < 300)
        return ERR_OK;
    const char *reason = blank ? strchr(blank + 1, ' ') : NULL;
    return http_refused(d, status, reason ? reason + 1 : "");
}

static enum err socks_login(struct dialogue *d)
{
    const struct dial_proxy *p = d->q->proxy;
    uint8_t text[3 + 2 * DIAL_SECRET_MAX], answer[2];
    size_t user = strlen(p->user), password = strlen(p->password);
    text[0] = 1;
    text[1] = (uint8_t)user;
    memcpy(text + 2, p->user, user);
    text[2 + user] = (uint8_t)password;
    memcpy(text + 3 + user, p->password, password);
    bool sent = send_all(d, text, 3 + user + password);
    explicit_bzero(text, sizeof text);
    if (!sent || !receive_all(d, answer, 2))
        return proxy_broke(d, "at the login");
    return answer[1] == 0 ? ERR_OK
                          : err_set(ERR_DENIED,
                                    "proxy %s does not accept this user and password: correct "
                                    "site.proxy_credentials or site.proxy",
                                    p->shown);
}

static enum err socks_greet(struct dialogue *d)
{
    const struct dial_proxy *p = d->q->proxy;
    bool login = *p->user;
    uint8_t answer[2], hello[4] = {5, login ? 2 : 1, 0, 2};
    if (!send_all(d, hello, login ? 4 : 3) || !receive_all(d, answer, 2))
        return proxy_broke(d, "at the greeting");
    if (answer[0] != 5)
        return err_set(ERR_LINK, "proxy %s: its answer is no SOCKS5; is it a proxy of this kind?",
                       p->shown);
    if (answer[1] == 2 && login)
        return socks_login(d);
    return answer[1] == 0 ? ERR_OK
                          : err_set(ERR_DENIED, "proxy %s: %s", p->shown,
                                    login ? "it wants another kind of login than user and password"
                                          : "it wants a login: give site.proxy_credentials");
}

static size_t socks_address(uint8_t out[4 + DIAL_HOST_MAX + 2], const char *host, const char *port)
{
    size_t n = strlen(host), at = 4;
    unsigned number = (unsigned)atoi(port);
    out[0] = 5, out[1] = 1, out[2] = 0;
    if (inet_pton(AF_INET, host, out + 4) == 1) {
        out[3] = 1;
        at += 4;
    } else if (inet_pton(AF_INET6, host, out + 4) == 1) {
        out[3] = 4;
        at += 16;
    } else { /* the proxy looks the name up */
        out[3] = 3;
        out[4] = (uint8_t)n;
        memcpy(out + 5, host, n);
        at += 1 + n;
    }
    out[at++] = (uint8_t)(number >> 8);
    out[at++] = (uint8_t)number;
    return at;
}

static enum err socks_ask(struct dialogue *d)
{
    static const char *const replies[] = {"",
                                          "general failure",
                                          "its rules do not allow it",
                                          "network unreachable",
                                          "host unreachable",
                                          "connection refused",
                                          "time to live exceeded",
                                          "it does not support CONNECT",
                                          "it does not support this kind of address"};
    char host[DIAL_HOST_MAX], port[8];
    uint8_t request[4 + DIAL_HOST_MAX + 2], answer[4], rest[DIAL_HOST_MAX + 2];
    TRY(socks_greet(d));
    TRY(address_split(d->q->target, 1, host, port));
    if (!send_all(d, request, socks_address(request, host, port)) || !receive_all(d, answer, 4))
        return proxy_broke(d, "before its answer was complete");
    size_t reply = answer[1];
    if (answer[0] != 5 || reply >= sizeof replies / sizeof *replies)
        return err_set(ERR_LINK, "proxy %s: its answer is no SOCKS5 (%u %u)", d->q->proxy->shown,
                       answer[0], answer[1]);
    if (reply)
        return err_set(reply == 2 || reply == 7 || reply == 8 ? ERR_DENIED : ERR_LINK,
                       "proxy %s does not reach %s: %s", d->q->proxy->shown, d->q->target,
                       replies[reply]);
    size_t n = answer[3] == 1 ? 4 : answer[3] == 4 ? 16 : 0; /* the address that it binds */
    if (answer[3] == 3) {
        if (!receive_all(d, rest, 1))
            return proxy_broke(d, "before its answer was complete");
        n = rest[0];
    }
    return receive_all(d, rest, n + 2) ? ERR_OK : proxy_broke(d, "before its answer was complete");
}

enum err dial_connect(int *fd, const struct dial_question *q, struct dial_bytes *bytes)
{
    const struct dial_proxy *p = q->proxy;
    struct dialogue d = {.q = q, .fd = -1, .end_ms = clock_mono_ms() + q->timeout_ms};
    char host[DIAL_HOST_MAX], port[8], what[DIAL_HOST_MAX + 64];
    enum err e = address_split(q->target, 1, host, port);
    bool direct = !p || p->kind == DIAL_DIRECT;
    snprintf(what, sizeof what, "%s%s", direct ? "" : "proxy ", direct ? q->target : p->shown);
    if (e == ERR_OK)
        e = direct ? socket_reach(&d, what, host, port) : socket_reach(&d, what, p->host, p->port);
    if (e == ERR_OK && !direct)
        e = p->kind == DIAL_CONNECT ? http_ask(&d) : socks_ask(&d);
    if (e != ERR_OK && d.fd >= 0)
        close(d.fd);
    if (bytes)
        *bytes = d.bytes;
    *fd = e == ERR_OK ? d.fd : -1;
    return e;
}
