/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/link/client_hello.h"
#include <string.h>

enum {
    RECORD_HANDSHAKE = 22,
    CLIENT_HELLO = 1,
    RECORD_MAX = 1 << 14,
    SERVER_NAME = 0,
    PROTOCOLS = 16,
    VERSIONS = 43,
    TLS13 = 0x0304
};

struct span { /* bytes that are left of a field */
    const uint8_t *at;
    size_t left;
};

/* The next number of `bytes` bytes; false: the field is too short. */
static bool number(struct span *s, unsigned bytes, size_t *value)
{
    if (s->left < bytes)
        return false;
    *value = 0;
    for (unsigned i = 0; i < bytes; i++)
        *value = *value << 8 | s->at[i];
    s->at += bytes;
    s->left -= bytes;
    return true;
}

/* A field whose size stands before it, in `bytes` bytes. */
static bool field(struct span *s, unsigned bytes, struct span *out)
{
    size_t n;
    if (!number(s, bytes, &n) || n > s->left)
        return false;
    *out = (struct span){s->at, n};
    s->at += n;
    s->left -= n;
    return true;
}

/* One host name, printable. */
static bool name_read(struct client_hello *h, struct span s)
{
    struct span list, name;
    size_t kind;
    if (!field(&s, 2, &list) || !number(&list, 1, &kind) || kind != 0 || !field(&list, 2, &name) ||
        name.left >= sizeof h->name || list.left || *h->name)
        return false;
    for (size_t i = 0; i < name.left; i++)
        if (name.at[i] <= ' ' || name.at[i] >= 0x7f)
            return false;
    memcpy(h->name, name.at, name.left);
    h->name[name.left] = 0;
    return true;
}

static bool protocols_read(struct client_hello *h, struct span s)
{
    struct span list, one;
    if (!field(&s, 2, &list))
        return false;
    while (list.left) {
        if (!field(&list, 1, &one))
            return false;
        h->h2 = h->h2 || (one.left == 2 && memcmp(one.at, "h2", 2) == 0);
    }
    return true;
}

static bool versions_read(struct client_hello *h, struct span s)
{
    struct span list;
    size_t version;
    if (!field(&s, 1, &list))
        return false;
    while (list.left) {
        if (!number(&list, 2, &version))
            return false;
        h->tls13 = h->tls13 || version == TLS13;
    }
    return true;
}

static bool extensions_read(struct client_hello *h, struct span s)
{
    while (s.left) {
        size_t kind;
        struct span body;
        if (!number(&s, 2, &kind) || !field(&s, 2, &body) ||
            (kind == SERVER_NAME && !name_read(h, body)) ||
            (kind == PROTOCOLS && !protocols_read(h, body)) ||
            (kind == VERSIONS && !versions_read(h, body)))
            return false;
    }
    return true;
}

/* version, random, session, cipher suites, compression, extensions */
static bool body_read(struct client_hello *h, struct span s)
{
    struct span skipped, extensions;
    if (s.left < 34)
        return false;
    s.at += 34;
    s.left -= 34;
    return field(&s, 1, &skipped) && field(&s, 2, &skipped) && field(&s, 1, &skipped) &&
           field(&s, 2, &extensions) && !s.left && extensions_read(h, extensions);
}

enum client_hello_state client_hello_read(struct client_hello *h, const uint8_t *data, size_t n)
{
    struct span s = {data, n}, record, body;
    size_t kind, version, size;
    memset(h, 0, sizeof *h);
    if ((n >= 1 && data[0] != RECORD_HANDSHAKE) || (n >= 2 && data[1] != 3))
        return CLIENT_HELLO_WRONG;
    if (!number(&s, 1, &kind) || !number(&s, 2, &version))
        return CLIENT_HELLO_SHORT;
    struct span header = s;
    if (!number(&header, 2, &size))
        return CLIENT_HELLO_SHORT;
    if (size > RECORD_MAX || size < 4)
        return CLIENT_HELLO_WRONG;
    if (n >= 6 && data[5] != CLIENT_HELLO)
        return CLIENT_HELLO_WRONG;
    if (!field(&s, 2, &record))
        return CLIENT_HELLO_SHORT;
    bool good = number(&record, 1, &kind) && kind == CLIENT_HELLO && field(&record, 3, &body) &&
                !record.left && body_read(h, body);
    return good ? CLIENT_HELLO_WHOLE : CLIENT_HELLO_WRONG;
}
