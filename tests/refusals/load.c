/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of load, and of HTTP/2 itself: frames by hand, and floods during which the others are
 * served. */
#include "tests/outer/link/link_craft.h"
#include "tests/refusals/refusals.h"
#include "tests/refusals/scene.h"

enum {
    DATA = 0,
    HEADERS = 1,
    RST_STREAM = 3,
    PING = 6,
    GOAWAY = 7,
    CONTINUATION = 9,
    END_STREAM = 1,
    ACK = 1,
    END_HEADERS = 4,
    FRAME_MAX = 16384,
    PINGS = 10000,
    RESETS = 2000
};

/* ---- HTTP/2 by hand ---- */

struct raw {
    SSL_CTX *ctx;
    SSL *ssl;
    int fd;
};
struct block { /* headers, each a literal without an index */
    uint8_t data[1 << 17];
    size_t n;
};

static void raw_open(struct raw *r, const char *name)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
    r->ctx = craft_context(TLS_client_method(), TLS1_3_VERSION, TLS1_3_VERSION, name);
    r->ssl = SSL_new(r->ctx);
    r->fd = craft_connect(scene.port);
    struct timeval patience = {.tv_sec = 3};
    setsockopt(r->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    patience.tv_sec = 8; /* longer than a call may say nothing */
    setsockopt(r->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    SSL_set_fd(r->ssl, r->fd);
    SSL_set_alpn_protos(r->ssl, (const unsigned char *)"\2h2", 3);
    assert_int_equal(SSL_connect(r->ssl), 1);
    assert_true(SSL_write(r->ssl, preface, sizeof preface) >
                0); /* its last byte is a frame's, too */
}

static void raw_close(struct raw *r)
{
    SSL_free(r->ssl);
    close(r->fd);
    SSL_CTX_free(r->ctx);
}

static bool raw_frame(struct raw *r, uint8_t type, uint8_t flags, uint32_t stream, const void *data,
                      size_t n)
{
    uint8_t frame[9 + FRAME_MAX] = {(uint8_t)(n >> 16),
                                    (uint8_t)(n >> 8),
                                    (uint8_t)n,
                                    type,
                                    flags,
                                    (uint8_t)(stream >> 24),
                                    (uint8_t)(stream >> 16),
                                    (uint8_t)(stream >> 8),
                                    (uint8_t)stream};
    assert_true(n <= FRAME_MAX);
    if (n)
        memcpy(frame + 9, data, n);
    return SSL_write(r->ssl, frame, (int)(9 + n)) > 0;
}

static void put_length(struct block *b, size_t n) /* RFC 7541 5.1, prefix of 7 bits */
{
    if (n < 127) {
        b->data[b->n++] = (uint8_t)n;
        return;
    }
    b->data[b->n++] = 127;
    for (n -= 127; n >= 128; n >>= 7)
        b->data[b->n++] = (uint8_t)(n | 128);
    b->data[b->n++] = (uint8_t)n;
}

static void put_field(struct block *b, const char *name, const char *value)
{
    size_t n = strlen(name), v = strlen(value);
    assert_true(b->n + n + v + 16 < sizeof b->data);
    b->data[b->n++] = 0;
    put_length(b, n);
    memcpy(b->data + b->n, name, n);
    b->n += n;
    put_length(b, v);
    memcpy(b->data + b->n, value, v);
    b->n += v;
}

static void call_headers(struct block *b, const char *path)
{
    b->n = 0;
    put_field(b, ":method", "POST");
    put_field(b, ":scheme", "https");
    put_field(b, ":path", path);
    put_field(b, ":authority", "localhost");
    put_field(b, "te", "trailers");
    put_field(b, "content-type", "application/grpc");
}

static void send_headers(struct raw *r, uint32_t stream, const struct block *b)
{
    size_t at = b->n < FRAME_MAX ? b->n : FRAME_MAX;
    raw_frame(r, HEADERS, at == b->n ? END_HEADERS : 0, stream, b->data, at);
    while (at < b->n) {
        size_t n = b->n - at < FRAME_MAX ? b->n - at : FRAME_MAX;
        raw_frame(r, CONTINUATION, at + n == b->n ? END_HEADERS : 0, stream, b->data + at, n);
        at += n;
    }
}

static bool raw_read(struct raw *r, uint8_t *out, size_t n)
{
    for (size_t at = 0; at < n;) {
        int k = SSL_read(r->ssl, out + at, (int)(n - at));
        if (k <= 0)
            return false;
        at += (size_t)k;
    }
    return true;
}

/* The first grpc-status on a connection is a literal: core does not use Huffman's code for it. */
static const char *status_in(const uint8_t *data, size_t n)
{
    static const char name[] = "\13grpc-status";
    const uint8_t *at = memmem(data, n, name, sizeof name - 1);
    if (!at || at + sizeof name - 1 + 2 > data + n)
        return NULL;
    at += sizeof name - 1;
    int code = at[1] - '0';
    if (at[0] == 2)
        code = 10 * code + at[2] - '0';
    return scene_status((grpc_status_code)code);
}

/* What becomes of a call: its status, or the end of stream or connection. */
static const char *raw_end(struct raw *r)
{
    static uint8_t data[1 << 17];
    uint8_t head[9];
    for (;;) {
        if (!raw_read(r, head, sizeof head))
            return "connection";
        size_t n = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
        assert_true(n <= sizeof data);
        if (!raw_read(r, data, n) || head[3] == GOAWAY)
            return "connection";
        if (head[3] == PING && !(head[4] & ACK))
            raw_frame(r, PING, ACK, 0, data, n); /* else the server takes the link for dead */
        const char *status = head[3] == HEADERS ? status_in(data, n) : NULL;
        if (status)
            return status;
        if (head[3] == RST_STREAM)
            return "reset";
    }
}

/* ---- form ---- */

const char *metadata_oversize(void)
{
    static struct block b;
    static char large[65537];
    struct raw r;
    scene_here();
    memset(large, 'x', sizeof large - 1);
    raw_open(&r, "a");
    call_headers(&b, link_paths[LINK_HELLO]);
    put_field(&b, "large", large);
    send_headers(&r, 1, &b);
    raw_frame(&r, DATA, END_STREAM, 1, "\0\0\0\0", 5); /* an empty message */
    const char *text = raw_end(&r);
    raw_close(&r);
    return text;
}

/* A hello in one message whose first byte says that it is compressed. */
static const char *compressed(const char *encoding)
{
    static struct block b;
    static const uint8_t gzip[] = {1, 0,    0, 0, 23, 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0,
                                   3, 0x4b, 4, 0, 67, 0xbe, 0xb7, 0, 0, 0, 0, 0, 0, 0};
    struct raw r;
    scene_here();
    raw_open(&r, "a");
    call_headers(&b, link_paths[LINK_HELLO]);
    if (encoding)
        put_field(&b, "grpc-encoding", encoding);
    send_headers(&r, 1, &b);
    raw_frame(&r, DATA, END_STREAM, 1, gzip, sizeof gzip);
    const char *text = raw_end(&r);
    raw_close(&r);
    return text;
}

const char *gzip_message(void)
{
    return compressed("gzip");
}

const char *compressed_flag(void)
{
    return compressed(NULL);
}

/* ---- load ---- */

const char *ping_flood(void)
{
    static const uint8_t data[8] = "8 bytes";
    struct raw r;
    uint8_t head[9], rest[FRAME_MAX];
    bool alive = true;
    scene_here();
    raw_open(&r, "a");
    for (int i = 0; i < PINGS && alive; i++)
        alive = raw_frame(&r, PING, 0, 0, data, sizeof data);
    while (alive && raw_read(&r, head, sizeof head)) {
        size_t n = (size_t)head[1] << 8 | head[2];
        alive = n <= sizeof rest && raw_read(&r, rest, n) && head[3] != GOAWAY;
    }
    raw_close(&r);
    return alive ? "answered" : "connection";
}

const char *rst_flood(void)
{
    static const uint8_t cancel[4] = {0, 0, 0, 8};
    static struct block b;
    struct raw r;
    bool alive = true;
    scene_here();
    raw_open(&r, "a");
    call_headers(&b, link_paths[LINK_HELLO]);
    for (uint32_t i = 0; i < RESETS && alive; i++)
        alive = raw_frame(&r, HEADERS, END_HEADERS, 2 * i + 1, b.data, b.n) &&
                raw_frame(&r, RST_STREAM, 0, 2 * i + 1, cancel, sizeof cancel);
    scene_well();
    raw_close(&r);
    return "limited";
}

/* 64 calls of a site are held, no more. */
const char *stream_flood(void)
{
    enum { CALLS = 100, HELD = 64 };
    struct link_call *c[CALLS];
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
    struct hand h;
    uint8_t *data;
    unsigned refused = 0, ended = 0;
    size_t n;
    scene_here();
    struct wire_poll m = {.head = scene_head(scene_fresh(0)), .round = 1, .hold_ms = 30000};
    assert_int_equal(wire_encode(WIRE_POLL, &m, &a, &data, &n), ERR_OK);
    hand_open(&h, scene.port, "a");
    for (int i = 0; i < CALLS; i++) {
        c[i] = hand_call(&h, link_paths[LINK_POLL], 180000);
        link_call_send(c[i], link_buffer(data, n));
        link_call_half_close(c[i]);
    }
    for (int wait = 0; wait < 1200 && ended < CALLS - HELD; wait++) {
        usleep(100000);
        ended = 0;
        for (int i = 0; i < CALLS; i++)
            ended += link_call_done(c[i], &c[i]->status);
    }
    scene_well();
    for (int i = 0; i < CALLS; i++) {
        bool done = link_call_done(c[i], &c[i]->status);
        refused += done && c[i]->end.code == GRPC_STATUS_RESOURCE_EXHAUSTED;
        grpc_call_cancel(c[i]->call, NULL);
        link_call_close(c[i]);
    }
    hand_close(&h);
    arena_free(&a);
    assert_int_equal(refused, CALLS - HELD);
    return scene_status(GRPC_STATUS_RESOURCE_EXHAUSTED);
}

/* Polls one after the other, at most `most`: how many were answered before the first refusal. */
static unsigned answered(struct hand *h, const uint8_t *data, size_t n, unsigned most)
{
    for (unsigned i = 0; i < most; i++) {
        struct link_call *c = hand_call(h, link_paths[LINK_POLL], 180000);
        link_call_send(c, link_buffer(data, n));
        link_call_half_close(c);
        grpc_status_code code = hand_end(c, NULL);
        if (code == GRPC_STATUS_RESOURCE_EXHAUSTED)
            return i;
        assert_int_equal(code, GRPC_STATUS_OK);
    }
    return most;
}

/* At the default rate a site whose calls follow one another is never refused. */
const char *call_flood(void)
{
    enum { PER_S = 10, BURST = LINK_CALLS_BURST * PER_S, HONEST = 200, FLOOD = 5000 };
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
    struct hand h;
    uint8_t *data;
    size_t n;
    scene_here();
    for (int limited = 0; limited < 2; limited++) {
        if (limited)
            scene_open_rate(PER_S);
        struct wire_poll poll = {.head = scene_head(&scene.site[0])};
        struct wire_hello other = scene_hello(scene_fresh(1));
        assert_int_equal(wire_encode(WIRE_POLL, &poll, &a, &data, &n), ERR_OK);
        hand_open(&h, scene.port, "a");
        uint64_t begin = clock_mono_ms();
        unsigned got = answered(&h, data, n, limited ? FLOOD : HONEST);
        unsigned long long ms = clock_mono_ms() - begin;
        printf("call_flood: %u calls answered in %llu ms\n", got, ms);
        if (!limited) {
            assert_int_equal(got, HONEST);
        } else { /* the scene's own calls are counted too */
            assert_in_range(got, BURST / 2, BURST + ms * PER_S / 1000 + 1);
            assert_string_equal(scene_call("b", LINK_HELLO, &other), "answer current");
            usleep(3 * 1000000 / PER_S);
            assert_in_range(answered(&h, data, n, 1), 1, 1); /* and at its rate, again */
        }
        hand_close(&h);
    }
    arena_free(&a);
    return scene_status(GRPC_STATUS_RESOURCE_EXHAUSTED);
}

struct storm {
    struct hand h;
    pthread_t thread;
    const uint8_t *data;
    size_t n;
    _Atomic bool *over;
    unsigned hellos;
};

static void *storm_main(void *arg)
{
    struct storm *s = arg;
    while (!*s->over) {
        struct link_call *c = hand_call(&s->h, link_paths[LINK_HELLO], 20000);
        link_call_send(c, link_buffer(s->data, s->n));
        link_call_half_close(c);
        hand_end(c, NULL);
        s->hellos++;
    }
    return NULL;
}

const char *hello_storm(void)
{
    enum { THREADS = 8, HONEST = 20, LONGEST_MS = 8000 };
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
    struct storm s[THREADS];
    _Atomic bool over = false;
    unsigned hellos = 0;
    uint8_t *data;
    uint64_t longest = 0;
    size_t n;
    scene_here();
    struct wire_hello storm = scene_hello(scene_fresh(0)), honest = scene_hello(scene_fresh(1));
    assert_int_equal(wire_encode(WIRE_HELLO, &storm, &a, &data, &n), ERR_OK);
    for (int i = 0; i < THREADS; i++) {
        s[i] = (struct storm){.data = data, .n = n, .over = &over};
        hand_open(&s[i].h, scene.port, "a");
        assert_int_equal(pthread_create(&s[i].thread, NULL, storm_main, &s[i]), 0);
    }
    for (int i = 0; i < HONEST; i++) {
        uint64_t start = clock_mono_ms(), ms;
        assert_string_equal(scene_call("b", LINK_HELLO, &honest), "answer current");
        ms = clock_mono_ms() - start;
        longest = ms > longest ? ms : longest;
    }
    over = true;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(s[i].thread, NULL);
        hellos += s[i].hellos;
        hand_close(&s[i].h);
    }
    arena_free(&a);
    printf("hello_storm: %u hellos of one site; longest hello of another: %llu ms\n", hellos,
           (unsigned long long)longest);
    return longest < LONGEST_MS ? "limited" : "starved";
}
