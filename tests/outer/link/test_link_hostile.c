/* SPDX-License-Identifier: Apache-2.0 */
/* Certificate holders that misbehave: calls that do not exist, calls that say nothing,
 * contributions that bring nothing. What breaks here is an honest site that is not served next to
 * them.
 */
#include <sys/resource.h>
#include "outer/link/grpc/link_accept.h"
#include "tests/outer/link/link_craft.h"
#include "tests/outer/link/link_hand.h"

enum { FEW_DESCRIPTORS = 128, UPLOADS_MAX = 256 };

static struct fake fake;

/* Receives and drops one message. False: no more. */
static bool hand_message(struct link_call *c)
{
    grpc_byte_buffer *bb = link_call_recv(c);
    if (bb)
        grpc_byte_buffer_destroy(bb);
    return bb;
}

static void descriptors_limit(rlim_t most, struct rlimit *before)
{
    struct rlimit l;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, before), 0);
    l = *before;
    l.rlim_cur = most;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &l), 0);
}

static char logged[1 << 16];

static void log_keep(void *self, enum log_level level, const char *line)
{
    (void)self, (void)level;
    size_t n = strlen(logged);
    snprintf(logged + n, sizeof logged - n, "%s\n", line);
}

static unsigned occurrences(const char *text)
{
    unsigned n = 0;
    for (const char *p = logged; (p = strstr(p, text)); p++)
        n++;
    return n;
}

static uint8_t *large;
enum { LARGE_BYTES = 256 << 20 }; /* more than all windows and buffers between the two ends */

static void fetch_large(void *self, const char *peer, const struct wire_fetch *m,
                        struct link_content *out, struct wire_answer *answer)
{
    (void)peer, (void)m;
    *out = (struct link_content){.data = large, .size_bytes = LARGE_BYTES, .source = self};
    answer->outcome = ROUND_NONE;
}

/* ---- a revoked certificate ---- */

static void serial_take(char out[64], const char *name)
{
    char file[96];
    struct tls_facts f;
    snprintf(file, sizeof file, "%s.pem", name);
    assert_int_equal(tls_facts(&f, scratch(file)), ERR_OK);
    snprintf(out, 64, "%s", f.serial);
}

/* Calls that are open when their certificate is revoked end within seconds, in any wait,
 * and the next ones are refused; another certificate of the same name is served. */
static void open_calls_of_a_revoked_certificate_end(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    int port = 0;
    char serial[64];
    struct hand h;
    struct link_service service = fake_service(&fake);
    struct link_listen listen = {.address = "127.0.0.1:0",
                                 .sites = 5,
                                 .tls = fake_tls("ca.pem", "aggregator"),
                                 .keepalive_ms = FAKE_KEEPALIVE_MS};
    struct link_server *s;
    service.fetch = fetch_large; /* it cannot end before it is read */
    large = calloc(1, LARGE_BYTES);
    assert_non_null(large);
    assert_int_equal(link_serve(&s, &listen, &service, &port), ERR_OK);
    hand_open(&h, port, "b");
    serial_take(serial, "b");
    struct link_call *calls[3];
    for (unsigned i = 0; i < 3; i++) { /* a stream, a download, a held poll */
        struct wire_contribution offer = {
            .head = fake_head("b"), .payload_bytes = FAKE_BYTES_MAX, .weight = 1};
        struct wire_fetch fetch = {.head = fake_head("b"), .what = WIRE_SNAPSHOT};
        struct wire_poll poll = {.head = fake_head("b"), .hold_ms = 60000};
        const struct {
            const char *path;
            enum wire_kind kind;
            const void *m;
        } all[] = {{link_paths[LINK_CONTRIBUTE], WIRE_UPLOAD, &offer},
                   {link_paths[LINK_FETCH], WIRE_FETCH, &fetch},
                   {link_paths[LINK_POLL], WIRE_POLL, &poll}};
        struct arena a = arena_make(0);
        uint8_t *data;
        size_t n;
        assert_int_equal(wire_encode(all[i].kind, all[i].m, &a, &data, &n), ERR_OK);
        calls[i] = hand_call(&h, all[i].path, 60000);
        assert_true(link_call_send(calls[i], link_buffer(data, n)));
        arena_free(&a);
    }
    sleep(2); /* the server looks at them, and nothing is revoked */
    for (unsigned i = 0; i < 3; i++)
        assert_false(link_call_done(calls[i], &calls[i]->status));
    logged[0] = 0;
    log_to(log_keep, NULL);
    uint64_t start = clock_mono_ms();
    atomic_store(&fake.serial, serial);
    UNTIL(occurrences("ev=call_ended") == 3);
    for (unsigned i = 0; i < 3; i++) {
        while (hand_message(calls[i]))
            ;
        link_call_wait(calls[i], &calls[i]->status);
        if (calls[i]->end.code != GRPC_STATUS_PERMISSION_DENIED)
            fail_msg("call %u: status %d", i, (int)calls[i]->end.code);
        link_call_close(calls[i]);
    }
    log_to(NULL, NULL);
    assert_in_range(clock_mono_ms() - start, 0, 40000); /* not their 60 s */
    assert_int_equal(hand_end(hand_call(&h, link_paths[LINK_POLL], 5000), NULL),
                     GRPC_STATUS_PERMISSION_DENIED);
    hand_close(&h);
    struct link *l = fake_dial(port, "ca.pem", "b");
    struct wire_hello_answer hello;
    assert_int_equal(fake_say_hello(l, "b", &hello), ERR_DENIED);
    assert_says("this certificate is revoked");
    fake_issue(TLS_SITE, "b"); /* the same name, another key */
    assert_int_equal(fake_say_hello(l, "b", &hello), ERR_OK);
    l->ops->close(l);
    atomic_store(&fake.serial, NULL);
    link_shutdown(s, 1000);
    free(large);
}

static const char *report_serial;

/* The first call of the old certificate: it is replaced and revoked. */
static void report_and_revoke(void *self, const char *peer, const struct wire_report *m,
                              struct wire_answer *answer)
{
    struct fake *f = self;
    bool old = strcasecmp(m->head.certificate.serial, report_serial) == 0;
    (void)peer;
    if (old)
        fake_issue(TLS_SITE, "b"); /* the same name, another key */
    atomic_store(&f->serial, report_serial);
    answer->outcome = old ? ROUND_EXCLUDED : ROUND_CURRENT;
}

/* The certificate is replaced and revoked between the admission of a call and its answer: the site
 * connects again with the new one. At an answer EXCLUDED it would end. */
static void a_certificate_revoked_within_a_call_is_replaced(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    int port = 0;
    char serial[64];
    struct wire_report m = {.head = fake_head("b")};
    struct wire_answer answer;
    struct link_service service = fake_service(&fake);
    service.report = report_and_revoke;
    struct link_listen listen = {.address = "127.0.0.1:0",
                                 .sites = 2,
                                 .tls = fake_tls("ca.pem", "aggregator"),
                                 .keepalive_ms = FAKE_KEEPALIVE_MS};
    struct link_server *s;
    assert_int_equal(link_serve(&s, &listen, &service, &port), ERR_OK);
    serial_take(serial, "b");
    report_serial = serial;
    struct link *l = fake_dial(port, "ca.pem", "b");
    assert_int_equal(l->ops->report(l, &m, &answer), ERR_LINK);
    assert_says("this certificate is revoked");
    assert_int_equal(l->ops->report(l, &m, &answer), ERR_OK);
    assert_int_equal(answer.outcome, ROUND_CURRENT);
    l->ops->close(l);
    atomic_store(&fake.serial, NULL);
    link_shutdown(s, 1000);
}

/* ---- methods ---- */

static void unknown_methods_are_answered(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    int port = 0;
    struct rlimit before;
    struct link_server *s = fake_serve(&fake, &port);
    descriptors_limit(FEW_DESCRIPTORS, &before);
    for (int i = 0; i < 300; i++) { /* each on a connection of its own */
        struct hand h;
        hand_open(&h, port, "b");
        struct link_call *c = hand_call(&h, i % 2 ? "/atoll.Control/Nothing" : "/x.Y/Z", 5000);
        grpc_status_code code = hand_end(c, NULL);
        if (code != GRPC_STATUS_UNIMPLEMENTED)
            fail_msg("call %d: status %d", i, (int)code);
        hand_close(&h);
    }
    struct link *l = fake_dial(port, "ca.pem", "a");
    struct wire_hello_answer hello;
    assert_int_equal(fake_say_hello(l, "a", &hello), ERR_OK);
    l->ops->close(l);
    setrlimit(RLIMIT_NOFILE, &before);
    link_shutdown(s, 1000);
}

static void health_is_served(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    int port = 0;
    struct link_server *s = fake_serve(&fake, &port);
    struct hand h;
    uint8_t answer[8];
    grpc_byte_buffer *bb = NULL;
    hand_open(&h, port, "a");
    struct link_call *c = hand_call(&h, LINK_HEALTH_PATH, 5000);
    assert_true(link_call_send(c, link_buffer((const uint8_t *)"", 0)));
    assert_true(link_call_half_close(c));
    assert_int_equal(hand_end(c, &bb), GRPC_STATUS_OK);
    assert_non_null(bb);
    assert_int_equal(link_copy(bb, 0, answer, sizeof answer), 2);
    assert_memory_equal(answer, "\x08\x01", 2); /* status: SERVING */
    grpc_byte_buffer_destroy(bb);
    hand_close(&h);
    char target[32];
    snprintf(target, sizeof target, "127.0.0.1:%d", port);
    struct link_dial d = {.target = target, .tls = fake_tls("ca.pem", "aggregator")};
    for (int i = 0; i < 50; i++)
        if (link_probe(&d, 5000) != ERR_OK)
            fail_msg("probe %d: %s", i, err_message());
    link_shutdown(s, 1000);
    assert_int_equal(link_probe(&d, 5000), ERR_LINK);
}

/* ---- the listener ---- */

/* As core's does when accept() fails: nothing listens any more, and the process does not know. */
static void listener_end(int port)
{
    for (int fd = 3; fd < 1024; fd++) {
        struct sockaddr_in6 a;
        socklen_t n = sizeof a, size = sizeof(int);
        int listens = 0;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens &&
            getsockname(fd, (struct sockaddr *)&a, &n) == 0 && ntohs(a.sin6_port) == port)
            assert_int_equal(shutdown(fd, SHUT_RDWR), 0);
    }
}

/* A connection that brings no call ends; a server that does not reach itself any more says so. */
static void the_server_looks_after_itself(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    int port = 0;
    char byte;
    struct link_service service = fake_service(&fake);
    struct link_listen listen = {.address = "127.0.0.1:0",
                                 .sites = 2,
                                 .tls = fake_tls("ca.pem", "aggregator"),
                                 .keepalive_ms = FAKE_KEEPALIVE_MS,
                                 .self_call_ms = 500};
    struct link_server *s;
    assert_int_equal(link_serve(&s, &listen, &service, &port), ERR_OK);
    int bare = craft_connect(port);
    struct timeval patience = {.tv_sec = 100};
    setsockopt(bare, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    uint64_t start = clock_mono_ms();
    ssize_t n;
    while ((n = recv(bare, &byte, 1, 0)) == 1) /* an alert may come before the end */
        ;
    assert_int_equal(n, 0);
    assert_in_range(clock_mono_ms() - start, 8000, 90000);
    close(bare);
    assert_true(accept_in_use());
    UNTIL(!accept_pending((uint16_t)port)); /* its own calls come and go */
    assert_false(link_silent(s));
    listener_end(port);
    UNTIL(link_silent(s));
    link_shutdown(s, 1000);
}

/* ---- silence ---- */

static void a_call_has_to_say_something(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    int port = 0;
    struct link_server *s = fake_serve(&fake, &port);
    struct hand h;
    hand_open(&h, port, "b");
    struct link_call *c[LINK_METHODS];
    uint64_t start = clock_mono_ms();
    for (int i = 0; i < LINK_METHODS; i++)
        c[i] = hand_call(&h, link_paths[i], 20000);
    for (int i = 0; i < LINK_METHODS; i++)
        assert_int_not_equal(hand_end(c[i], NULL), GRPC_STATUS_DEADLINE_EXCEEDED);
    assert_in_range(clock_mono_ms() - start, 4000, 19000); /* not their 20 s */
    hand_close(&h);
    link_shutdown(s, 1000);
}

static bool only_a(void *self, const char *peer)
{
    (void)self;
    return strcmp(peer, "atoll://test/site/a") == 0;
}

/* 64 silent calls of each of two sites that are not in the roster: together they get 32. */
static void unknown_peers_get_few_calls(void **state)
{
    (void)state;
    enum { CALLS = 64 };
    memset(&fake, 0, sizeof fake);
    int port = 0;
    struct link_service service = fake_service(&fake);
    service.known = only_a;
    struct link_listen listen = {.address = "127.0.0.1:0",
                                 .sites = 1,
                                 .tls = fake_tls("ca.pem", "aggregator"),
                                 .keepalive_ms = FAKE_KEEPALIVE_MS};
    struct link_server *s;
    assert_int_equal(link_serve(&s, &listen, &service, &port), ERR_OK);
    struct hand h[2];
    struct link_call *c[2 * CALLS];
    hand_open(&h[0], port, "b");
    hand_open(&h[1], port, "c");
    for (int i = 0; i < 2 * CALLS; i++)
        c[i] = hand_call(&h[i % 2], link_paths[LINK_POLL], 20000);
    unsigned refused = 0;
    for (int i = 0; i < 2 * CALLS; i++)
        refused += hand_end(c[i], NULL) == GRPC_STATUS_RESOURCE_EXHAUSTED;
    assert_int_equal(refused, 2 * CALLS - 32);
    hand_close(&h[0]);
    hand_close(&h[1]);
    link_shutdown(s, 1000);
}

/* ---- contributions that bring nothing ---- */

struct upload {
    uint64_t have, total;
};
static struct upload uploads[UPLOADS_MAX];
static _Atomic unsigned uploads_count, receipts;

static void keep_offer(void *self, const char *peer, const struct wire_contribution *m,
                       struct wire_answer *answer, void **upload)
{
    (void)self, (void)peer;
    assert_true(uploads_count < UPLOADS_MAX);
    struct upload *u = &uploads[uploads_count++];
    *u = (struct upload){.total = m->payload_bytes};
    answer->outcome = ROUND_RESUME;
    *upload = u;
}

static void keep_chunk(void *self, void *upload, uint64_t offset, const uint8_t *data, size_t n,
                       struct wire_answer *answer)
{
    (void)self, (void)offset, (void)data, (void)answer;
    ((struct upload *)upload)->have += n;
}

static void keep_finish(void *self, void *upload, bool complete, struct wire_answer *answer)
{
    (void)self;
    struct upload *u = upload;
    bool all = complete && u->have == u->total;
    receipts += all;
    answer->outcome = all ? ROUND_RECEIPT : ROUND_RESUME;
}

static struct link_server *serve_keeping(unsigned sites, uint64_t receive_bytes, int *port)
{
    memset(&fake, 0, sizeof fake);
    uploads_count = receipts = 0;
    struct link_service service = fake_service(&fake);
    service.offer = keep_offer;
    service.chunk = keep_chunk;
    service.finish = keep_finish;
    struct link_listen listen = {.address = "127.0.0.1:0",
                                 .sites = sites,
                                 .tls = fake_tls("ca.pem", "aggregator"),
                                 .keepalive_ms = FAKE_KEEPALIVE_MS,
                                 .receive_bytes = receive_bytes};
    struct link_server *s;
    *port = 0;
    assert_int_equal(link_serve(&s, &listen, &service, port), ERR_OK);
    return s;
}

/* The leading stream of a contribution: the offer, and no byte after it. */
static struct link_call *silent_lead(struct hand *h, const char *site, uint32_t fragment)
{
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
    struct wire_contribution m = {
        .head = fake_head(site), .fragment = fragment, .round = 41, .payload_bytes = 1 << 20};
    uint8_t *data;
    size_t n;
    struct link_call *c = hand_call(h, link_paths[LINK_CONTRIBUTE], 60000);
    assert_int_equal(wire_encode(WIRE_UPLOAD, &m, &a, &data, &n), ERR_OK);
    assert_true(link_call_send(c, link_buffer(data, n)));
    arena_free(&a);
    return c;
}

static void silent_end(struct link_call *c)
{
    grpc_call_cancel(c->call, NULL);
    link_call_close(c);
}

struct honest {
    int port;
    const char *site;
    uint32_t fragment;
    pthread_t thread;
    struct link *l;
    uint64_t ms;
    enum err e;
    enum round_outcome outcome;
};

static const uint8_t payload[300000];

static void *honest_main(void *arg)
{
    struct honest *x = arg;
    struct wire_contribution m = {.head = fake_head(x->site),
                                  .fragment = x->fragment,
                                  .round = 41,
                                  .payload_bytes = sizeof payload,
                                  .weight = 1};
    m.payload = digest_of(payload, sizeof payload);
    struct wire_answer answer = {0};
    uint64_t start = clock_mono_ms();
    x->e = x->l->ops->contribute(x->l, &m, payload, &answer);
    x->outcome = answer.outcome;
    x->ms = clock_mono_ms() - start;
    return NULL;
}

static void honest_start(struct honest *x)
{
    x->l = fake_dial(x->port, "ca.pem", x->site);
    assert_int_equal(pthread_create(&x->thread, NULL, honest_main, x), 0);
}

static void honest_wait(struct honest *x)
{
    pthread_join(x->thread, NULL);
    assert_int_equal(x->e, ERR_OK);
    assert_int_equal(x->outcome, ROUND_RECEIPT);
    x->l->ops->close(x->l);
}

/* Five sites, sixteen slots, four fragments. Two sites open as many leading streams as they can:
 * the other three sites hold a majority, and theirs all arrive at once. */
static void silent_sites_leave_room(void **state)
{
    (void)state;
    enum { STREAMS = 16, HONEST = 3, FRAGMENTS = 4 };
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    int port;
    struct link_server *s = serve_keeping(5, 0, &port);
    struct hand h[2];
    struct link_call *silent[2 * STREAMS];
    logged[0] = 0;
    log_to(log_keep, NULL);
    for (unsigned i = 0; i < 2; i++) {
        hand_open(&h[i], port, names[HONEST + i]);
        for (uint32_t k = 0; k < STREAMS; k++)
            silent[i * STREAMS + k] = silent_lead(&h[i], names[HONEST + i], k);
    }
    usleep(300000); /* they have what they can get */
    struct honest x[HONEST * FRAGMENTS];
    for (unsigned i = 0; i < HONEST * FRAGMENTS; i++) {
        x[i] = (struct honest){.port = port, .site = names[i / 4], .fragment = i % 4};
        honest_start(&x[i]);
    }
    for (unsigned i = 0; i < HONEST * FRAGMENTS; i++)
        honest_wait(&x[i]);
    log_to(NULL, NULL);
    assert_int_equal(occurrences("ev=receive_slot"),
                     0); /* no stream had to be found silent first */
    assert_int_equal(receipts, HONEST * FRAGMENTS);
    for (unsigned i = 0; i < 2 * STREAMS; i++)
        silent_end(silent[i]);
    hand_close(&h[0]);
    hand_close(&h[1]);
    link_shutdown(s, 1000);
}

/* Two slots, both held by silent streams: two other sites are received when it has shown that these
 * bring nothing. It is logged once, with the name of the site. */
static void silence_costs_the_slot(void **state)
{
    (void)state;
    int port;
    struct link_server *s = serve_keeping(5, (uint64_t)LINK_RECEIVE_MIB_MIN << 20, &port);
    struct hand h[2];
    logged[0] = 0;
    log_to(log_keep, NULL);
    hand_open(&h[0], port, "d");
    hand_open(&h[1], port, "e");
    struct link_call *silent[] = {silent_lead(&h[0], "d", 0), silent_lead(&h[1], "e", 0)};
    usleep(300000);
    struct honest x[] = {{.port = port, .site = "a"}, {.port = port, .site = "b"}};
    honest_start(&x[0]);
    honest_start(&x[1]);
    honest_wait(&x[0]);
    honest_wait(&x[1]);
    assert_in_range(x[0].ms < x[1].ms ? x[0].ms : x[1].ms, 3000, FAKE_PATIENCE_MS);
    usleep(1200000); /* no stream waits any more: a silent one that is left may stay */
    bool cut[2] = {false, false};
    unsigned lost = 0;
    for (unsigned i = 0; i < 2; i++) {
        grpc_byte_buffer *bb = link_call_recv(silent[i]); /* the answer to the offer */
        assert_non_null(bb);
        grpc_byte_buffer_destroy(bb);
    }
    for (unsigned wait = 0;
         wait < FAKE_PATIENCE_MS / 100 && (!lost || lost < occurrences("ev=receive_slot"));
         wait++) {
        usleep(100000); /* the status is on its way */
        for (unsigned i = 0; i < 2; i++)
            if (!cut[i] && link_call_done(silent[i], &silent[i]->status)) {
                cut[i] = true;
                lost++;
                assert_int_equal(hand_end(silent[i], NULL), GRPC_STATUS_RESOURCE_EXHAUSTED);
            }
    }
    for (unsigned i = 0; i < 2; i++)
        if (!cut[i])
            silent_end(silent[i]);
    log_to(NULL, NULL);
    assert_in_range(lost, 1, 2);
    assert_int_equal(occurrences("ev=receive_slot"), lost);
    hand_close(&h[0]);
    hand_close(&h[1]);
    link_shutdown(s, 1000);
}

/* While no other stream waits, a slow link keeps its slot. */
static void silence_alone_costs_nothing(void **state)
{
    (void)state;
    int port;
    struct link_server *s = serve_keeping(5, (uint64_t)LINK_RECEIVE_MIB_MIN << 20, &port);
    struct hand h;
    hand_open(&h, port, "d");
    struct link_call *silent = silent_lead(&h, "d", 0);
    grpc_byte_buffer *bb = link_call_recv(silent);
    assert_non_null(bb);
    grpc_byte_buffer_destroy(bb);
    assert_true(link_call_recv_start(silent));
    assert_false(link_call_wait_until(silent, &silent->recv, clock_mono_ms() + 7500));
    silent_end(silent);
    hand_close(&h);
    link_shutdown(s, 1000);
}

/* The newer leading stream of a site and fragment takes the place of the older at once. */
static void superseded_streams_free_their_slot(void **state)
{
    (void)state;
    int port;
    struct link_server *s = serve_keeping(2, (uint64_t)LINK_RECEIVE_MIB_MIN << 20, &port);
    struct hand h;
    hand_open(&h, port, "a");
    struct link_call *older = silent_lead(&h, "a", 3);
    usleep(200000);
    struct honest x = {.port = port, .site = "a", .fragment = 3};
    honest_start(&x);
    honest_wait(&x);
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
    struct wire_answer answer[2];
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(link_decode(link_call_recv(older), WIRE_ANSWER, &answer[i], &a), ERR_OK);
    assert_int_equal(answer[0].outcome, ROUND_RESUME);
    assert_int_equal(answer[1].outcome, ROUND_SUPERSEDED);
    assert_int_equal(hand_end(older, NULL), GRPC_STATUS_OK);
    arena_free(&a);
    hand_close(&h);
    link_shutdown(s, 1000);
}

/* A download whose reader stops reading is ended, and what it held is given back. */
static void a_download_that_stands_still_is_cut(void **state)
{
    (void)state;
    struct link_service service = fake_service(&fake);
    struct link_listen listen = {.address = "127.0.0.1:0",
                                 .sites = 5,
                                 .tls = fake_tls("ca.pem", "aggregator"),
                                 .keepalive_ms = FAKE_KEEPALIVE_MS};
    struct arena a = arena_make(WIRE_DECODE_BYTES_MAX);
    struct wire_fetch m = {.head = fake_head("a")};
    struct link_server *s;
    struct hand h;
    uint8_t *data;
    size_t n;
    int port = 0;
    memset(&fake, 0, sizeof fake);
    large = calloc(1, LARGE_BYTES);
    assert_non_null(large);
    service.fetch = fetch_large;
    assert_int_equal(link_serve(&s, &listen, &service, &port), ERR_OK);
    hand_open(&h, port, "a");
    uint64_t start = clock_mono_ms();
    struct link_call *c = hand_call(&h, link_paths[LINK_FETCH], 2 * FAKE_PATIENCE_MS);
    assert_int_equal(wire_encode(WIRE_FETCH, &m, &a, &data, &n), ERR_OK);
    assert_true(link_call_send(c, link_buffer(data, n)));
    assert_true(link_call_half_close(c));
    grpc_byte_buffer *bb = link_call_recv(c); /* the answer, and nothing after it */
    assert_non_null(bb);
    grpc_byte_buffer_destroy(bb);
    UNTIL(fake.fetched == 1);
    assert_true(clock_mono_ms() - start >= 14000);
    silent_end(c);
    hand_close(&h);
    arena_free(&a);
    link_shutdown(s, 1000);
    free(large);
}

static int prepare(void **state)
{
    if (fake_prepare(state) != 0)
        return -1;
    fake_issue(TLS_SITE, "c");
    fake_issue(TLS_SITE, "d");
    fake_issue(TLS_SITE, "e");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_calls_of_a_revoked_certificate_end),
        cmocka_unit_test(a_certificate_revoked_within_a_call_is_replaced),
        cmocka_unit_test(unknown_methods_are_answered),
        cmocka_unit_test(health_is_served),
        cmocka_unit_test(the_server_looks_after_itself),
        cmocka_unit_test(a_call_has_to_say_something),
        cmocka_unit_test(unknown_peers_get_few_calls),
        cmocka_unit_test(silent_sites_leave_room),
        cmocka_unit_test(silence_costs_the_slot),
        cmocka_unit_test(silence_alone_costs_nothing),
        cmocka_unit_test(superseded_streams_free_their_slot),
        cmocka_unit_test(a_download_that_stands_still_is_cut),
    };
    return cmocka_run_group_tests(tests, prepare, scratch_close);
}
