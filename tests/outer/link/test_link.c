/* SPDX-License-Identifier: Apache-2.0 */
/* The real link over loopback mTLS with a small aggregator: what breaks here is a site that hangs,
 * a contribution that is lost or altered, a poll that never comes back. Handshakes are in
 * test_link_tls.c.
 */
#include <grpc/grpc_security.h>
#include <poll.h>
#include "outer/link/grpc/link_call.h"
#include "tests/outer/link/link_craft.h"

static struct fake fake;

static struct wire_contribution contribution(const uint8_t *payload, size_t n)
{
    struct wire_contribution m = {.head = fake_head("a"),
                                  .fragment = 1,
                                  .codec = 2,
                                  .round = 41,
                                  .payload_bytes = n,
                                  .weight = 0.75f,
                                  .data_cursor = 1u << 20};
    m.payload = digest_of(payload, n);
    m.signature[63] = 9;
    return m;
}

static void every_call(void **state)
{
    (void)state;
    struct link *l;
    struct link_server *s = fake_pair(&fake, &l);
    struct wire_hello_answer hello;
    assert_int_equal(fake_say_hello(l, "a", &hello), ERR_OK);
    assert_int_equal(hello.outcome, ROUND_CURRENT);
    assert_true(hello.instance == 0xfedcba9876543210);
    assert_int_equal(hello.fragments[1].round, 41);
    assert_true(hello.fragments[1].sealed);
    assert_string_equal(fake.peer, "atoll://test/site/a");
    assert_string_equal(fake.config, "outer.every=50\n");

    struct wire_poll poll = {.head = fake_head("a"), .fragment = 1, .round = 41};
    struct wire_poll_answer polled;
    uint64_t before = clock_mono_ms();
    assert_int_equal(l->ops->poll(l, &poll, 300, &polled), ERR_OK);
    assert_int_equal(polled.answer.outcome, ROUND_PENDING);
    assert_string_equal(polled.answer.text, "waiting for b");
    assert_true(clock_mono_ms() - before >= 300 && clock_mono_ms() - before < 25000);

    struct wire_report report = {.head = fake_head("a"),
                                 .fragment = 1,
                                 .round = 42,
                                 .step = -1,
                                 .loss = 1.751,
                                 .tokens = 123456789012};
    struct wire_answer answer;
    assert_int_equal(l->ops->report(l, &report, &answer), ERR_OK);
    assert_int_equal(answer.outcome, ROUND_CURRENT);
    assert_true(fake.report.loss == 1.751 && fake.report.step == -1 &&
                fake.report.tokens == 123456789012);
    assert_int_equal(l->ops->poll(l, &poll, 5000, &polled),
                     ERR_OK); /* the report's work() committed */
    assert_int_equal(polled.answer.outcome, ROUND_COMMIT);
    assert_string_equal(polled.manifest.run, "test");
    assert_int_equal(polled.manifest.round, 41);

    struct wire_leave leave = {.head = fake_head("a"), .text = "done"};
    assert_int_equal(l->ops->leave(l, &leave, &answer), ERR_OK);
    assert_string_equal(fake.left, "done");
    l->ops->close(l);
    link_shutdown(s, 1000);
}

static void up_and_down(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    int port = 0;
    size_t n = 3 * WIRE_CHUNK_BYTES + 12345;
    uint8_t *payload = fake_payload(n), *back = calloc(1, n);
    struct link_server *s = fake_serve(&fake, &port);
    struct link *l = fake_dial(port, "ca.pem", "a");
    struct wire_contribution m = contribution(payload, n);
    struct wire_answer answer;
    assert_int_equal(l->ops->contribute(l, &m, payload, &answer), ERR_OK);
    assert_int_equal(answer.outcome, ROUND_RECEIPT);
    assert_int_equal(fake.have, n);
    assert_memory_equal(fake.stored, payload, n);
    assert_int_equal(fake.finishes, 1);
    assert_true(fake.offered.weight == 0.75f && fake.offered.signature[63] == 9);
    assert_true(digest_equal(&fake.offered.payload, &m.payload));

    struct wire_fetch f = {.head = fake_head("a"), .what = WIRE_SNAPSHOT, .round = 5};
    assert_int_equal(l->ops->fetch(l, &f, back, n, &answer), ERR_OK);
    assert_int_equal(answer.outcome, ROUND_NONE);
    assert_memory_equal(back, payload, n);
    memset(back, 0, n);
    answer = (struct wire_answer){0};
    f.offset = WIRE_CHUNK_BYTES + 7; /* only what is missing */
    assert_int_equal(l->ops->fetch(l, &f, back, n, &answer), ERR_OK);
    assert_int_equal(back[f.offset - 1], 0);
    assert_memory_equal(back + f.offset, payload + f.offset, n - f.offset);
    f.offset = 0;
    answer = (struct wire_answer){0};
    assert_int_equal(l->ops->fetch(l, &f, back, n - 1, &answer),
                     ERR_PROTO); /* not the size we know it has */
    f.round = 99;
    answer = (struct wire_answer){0};
    assert_int_equal(l->ops->fetch(l, &f, back, n, &answer), ERR_OK);
    assert_int_equal(answer.outcome, ROUND_GONE);

    struct link_counters c;
    l->ops->counters(l, &c);
    assert_int_equal(c.payload_up, n);
    assert_true(c.payload_down >= n + (n - WIRE_CHUNK_BYTES - 7));
    assert_true(c.messages_up > c.payload_up && c.messages_up < c.payload_up + 4000);
    if (c.wire_up <= c.messages_up ||
        c.wire_up > c.messages_up + c.messages_up / 4) /* a busy machine resends on loopback, too */
        fail_msg("%llu bytes of messages, %llu on the wire", (unsigned long long)c.messages_up,
                 (unsigned long long)c.wire_up);
    assert_true(c.wire_down > c.payload_down);
    l->ops->close(l);
    link_shutdown(s, 1000);
    assert_int_equal(fake.fetched, fake.fetches);
    free(payload);
    free(back);
}

struct killing {
    struct link_server *server;
    pthread_barrier_t barrier;
};

static void *kill_in_mid_chunk(void *arg)
{
    struct killing *k = arg;
    pthread_barrier_wait(&k->barrier); /* a chunk is being stored */
    pthread_barrier_wait(&k->barrier);
    link_shutdown(k->server, 0);
    return NULL;
}

/* The aggregator dies while chunks come; started again on what it had stored, it gets the rest and
 * only the rest. */
static void cut_and_resumed(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    int port = 0;
    size_t n = 7 * WIRE_CHUNK_BYTES + 1;
    uint8_t *payload = fake_payload(n);
    struct killing k = {.server = fake_serve(&fake, &port)};
    pthread_barrier_init(&k.barrier, NULL, 2);
    fake.pause = &k.barrier;
    fake.pause_at = 2 * WIRE_CHUNK_BYTES;
    pthread_t killer;
    assert_int_equal(pthread_create(&killer, NULL, kill_in_mid_chunk, &k), 0);
    struct link *l = fake_dial(port, "ca.pem", "a");
    struct wire_contribution m = contribution(payload, n);
    struct wire_answer answer;
    enum err e = l->ops->contribute(l, &m, payload, &answer);
    pthread_join(killer, NULL);
    pthread_barrier_destroy(&k.barrier);
    if (e == ERR_OK) /* the machine was fast enough to send all before the end: nothing to resume */
        assert_int_equal(answer.outcome, ROUND_RECEIPT);
    else
        assert_int_equal(e, ERR_LINK);
    assert_int_equal(fake.finishes, 1);
    uint64_t had = fake.have;
    assert_true(had >= 3 * WIRE_CHUNK_BYTES);

    int again = port;
    struct link_server *s = fake_serve(&fake, &again);
    assert_int_equal(again, port);
    uint64_t until = clock_mono_ms() + FAKE_PATIENCE_MS;
    while ((e = l->ops->contribute(l, &m, payload, &answer)) == ERR_LINK && clock_mono_ms() < until)
        usleep(20000);
    assert_int_equal(e, ERR_OK);
    assert_int_equal(answer.outcome, ROUND_RECEIPT);
    assert_int_equal(fake.resumed_at, had);
    assert_int_equal(fake.have, n);
    assert_memory_equal(fake.stored, payload, n);
    l->ops->close(l);
    link_shutdown(s, 1000);
    free(payload);
}

struct relay { /* passes bytes both ways until it is told to swallow them: TCP stays up, nothing
                  arrives */
    int listener, port;
    atomic_bool swallow, end;
    size_t most, passed; /* ends when it has passed so much; 0: no limit */
    pthread_t thread;
};

static void *relay_main(void *arg)
{
    struct relay *r = arg;
    struct pollfd fds[2 * 8 + 1] = {{.fd = r->listener, .events = POLLIN}};
    nfds_t count = 1;
    char bytes[65536];
    while (!r->end) {
        if (poll(fds, count, 50) <= 0)
            continue;
        for (nfds_t i = 1; i < count; i++) {
            if (!(fds[i].revents & POLLIN))
                continue;
            ssize_t n = recv(fds[i].fd, bytes, sizeof bytes, 0);
            nfds_t other = i % 2 ? i + 1 : i - 1;
            if (n > 0 && !r->swallow)
                send(fds[other].fd, bytes, (size_t)n, MSG_NOSIGNAL);
            if (n <= 0)
                fds[i].events = 0;
            r->passed += n > 0 ? (size_t)n : 0;
            if (r->most && r->passed > r->most) {
                /* What was passed arrives and is read, then the end: gRPC forgets the rest. */
                usleep(500000);
                shutdown(fds[other].fd, SHUT_WR);
                close(r->listener);
                usleep(300000);
                r->end = true;
                break;
            }
        }
        if (fds[0].revents & POLLIN && count + 2 <= sizeof fds / sizeof *fds) {
            fds[count++] = (struct pollfd){.fd = accept(r->listener, NULL, NULL), .events = POLLIN};
            fds[count++] = (struct pollfd){.fd = craft_connect(r->port), .events = POLLIN};
        }
    }
    for (nfds_t i = r->most ? 1 : 0; i < count; i++)
        close(fds[i].fd);
    return NULL;
}

/* A download through a link that ends somewhere in the middle, continues from where it stood. */
static void download_resumed(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.have = 7 * WIRE_CHUNK_BYTES + 3;
    uint8_t *whole = fake_payload(fake.have), *back = calloc(1, fake.have);
    memcpy(fake.stored, whole, fake.have);
    struct relay r = {.most = 5 * WIRE_CHUNK_BYTES};
    int port;
    struct link_server *s = fake_serve(&fake, &r.port);
    r.listener = craft_listen(&port);
    struct wire_fetch m = {.head = fake_head("a")};
    struct wire_answer answer = {0};
    struct link *l = fake_dial(port, "ca.pem", "a");
    assert_int_equal(pthread_create(&r.thread, NULL, relay_main, &r), 0);
    assert_int_equal(l->ops->fetch(l, &m, back, fake.have, &answer), ERR_LINK);
    pthread_join(r.thread, NULL);
    l->ops->close(l);
    assert_in_range(answer.offset, 1, fake.have - 1);
    assert_memory_equal(back, whole, answer.offset);
    m.offset = answer.offset;
    l = fake_dial(r.port, "ca.pem", "a");
    assert_int_equal(l->ops->fetch(l, &m, back, fake.have, &answer), ERR_OK);
    assert_memory_equal(back, whole, fake.have);
    struct link_counters c;
    l->ops->counters(l, &c);
    assert_int_equal(c.payload_down, fake.have - m.offset); /* nothing twice */
    l->ops->close(l);
    link_shutdown(s, 1000);
    assert_int_equal(fake.fetched, fake.fetches);
    free(whole);
    free(back);
}

static void refused_in_mid_stream(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    int port = 0;
    size_t n = 6 * WIRE_CHUNK_BYTES;
    uint8_t *payload = fake_payload(n);
    struct link_server *s = fake_serve(&fake, &port);
    struct link *l = fake_dial(port, "ca.pem", "a");
    struct wire_contribution m = contribution(payload, n);
    struct wire_answer answer;
    fake.fail_at = 2 * WIRE_CHUNK_BYTES;
    assert_int_equal(l->ops->contribute(l, &m, payload, &answer), ERR_OK);
    assert_int_equal(answer.outcome, ROUND_SUPERSEDED);
    assert_int_equal(fake.have, 2 * WIRE_CHUNK_BYTES);
    assert_int_equal(fake.broken, 1);
    assert_int_equal(fake.finishes, 1);
    m.payload_bytes = (uint64_t)1 << 63; /* refused by the service before a byte is sent */
    assert_int_equal(l->ops->contribute(l, &m, payload, &answer), ERR_OK);
    assert_int_equal(answer.outcome, ROUND_INVALID);
    assert_int_equal(fake.finishes, 1);
    l->ops->close(l);
    link_shutdown(s, 1000);
    free(payload);
}

/* ---- chunks that no site of ours would send: a call by hand ---- */

struct by_hand {
    grpc_completion_queue *cq;
    grpc_channel *channel;
    struct link_call *c;
    struct arena arena;
};

static void by_hand_open(struct by_hand *h, int port, uint64_t total)
{
    struct tls_pem pem;
    char target[32];
    struct link_tls files = fake_tls("ca.pem", "a");
    h->arena = arena_make(WIRE_DECODE_BYTES_MAX);
    assert_int_equal(link_core_open(&h->cq, true), ERR_OK);
    assert_int_equal(tls_load(&pem, &files), ERR_OK);
    snprintf(target, sizeof target, "127.0.0.1:%d", port);
    grpc_ssl_pem_key_cert_pair pair = {pem.key, pem.certificate};
    grpc_channel_credentials *credentials =
        grpc_ssl_credentials_create_ex(pem.ca, &pair, NULL, NULL);
    h->channel = grpc_channel_create(target, credentials, NULL);
    grpc_channel_credentials_release(credentials);
    tls_forget(&pem);
    h->c = link_call_open(
        h->channel, grpc_channel_register_call(h->channel, link_paths[LINK_CONTRIBUTE], NULL, NULL),
        h->cq, 5000, NULL);
    if (!total)
        return;
    struct wire_contribution m = {.head = fake_head("a"), .payload_bytes = total};
    struct wire_answer answer;
    uint8_t *data;
    size_t n;
    assert_int_equal(wire_encode(WIRE_UPLOAD, &m, &h->arena, &data, &n), ERR_OK);
    assert_true(link_call_send(h->c, link_buffer(data, n)));
    assert_int_equal(link_decode(link_call_recv(h->c), WIRE_ANSWER, &answer, &h->arena), ERR_OK);
    assert_int_equal(answer.outcome, ROUND_RESUME);
}

static void by_hand_close(struct by_hand *h)
{
    grpc_call_cancel(h->c->call, NULL);
    link_call_close(h->c);
    grpc_channel_destroy(h->channel);
    arena_free(&h->arena);
    link_core_close();
}

static enum round_outcome by_hand_chunk(struct by_hand *h, struct wire_chunk chunk,
                                        const uint8_t *data)
{
    struct wire_answer answer = {0};
    uint8_t message[WIRE_CHUNK_HEADER_MAX + 64];
    size_t n = wire_chunk_header(message, &chunk);
    assert_true(chunk.size_bytes <= 64);
    memcpy(message + n, data, chunk.size_bytes);
    link_call_send(h->c, link_buffer(message, n + chunk.size_bytes));
    if (chunk.offset + chunk.size_bytes == chunk.total)
        link_call_half_close(h->c);
    if (link_decode(link_call_recv(h->c), WIRE_ANSWER, &answer, &h->arena) != ERR_OK)
        fail_msg("%s", err_message());
    return answer.outcome;
}

static void damaged_chunks(void **state)
{
    (void)state;
    static const uint8_t data[64] = "sixty-four bytes of a contribution";
    uint32_t crc = digest_crc32c(0, data, 64);
    static const struct {
        uint64_t offset, total;
        bool damaged;
        enum round_outcome outcome;
    } cases[] = {
        {0, 128, true, ROUND_RESUME},   /* CRC */
        {64, 128, false, ROUND_RESUME}, /* a gap */
        {0, 192, false, ROUND_INVALID}, /* other size than offered */
    };
    int port = 0;
    memset(&fake, 0, sizeof fake);
    struct link_server *s = fake_serve(&fake, &port);
    struct by_hand h;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        by_hand_open(&h, port, 128);
        struct wire_chunk chunk = {cases[i].offset, cases[i].total, crc ^ cases[i].damaged, 64};
        assert_int_equal(by_hand_chunk(&h, chunk, data), cases[i].outcome);
        by_hand_close(&h);
        assert_int_equal(fake.have, 0);
    }
    by_hand_open(&h, port, 128); /* what is there already is ignored, then it continues */
    uint8_t twice[2 * (WIRE_CHUNK_HEADER_MAX + 64)];
    struct wire_chunk first = {0, 128, crc, 64};
    size_t n = wire_chunk_header(twice, &first);
    memcpy(twice + n, data, 64);
    assert_true(link_call_send(h.c, link_buffer(twice, n + 64)));
    assert_true(link_call_send(h.c, link_buffer(twice, n + 64)));
    assert_int_equal(by_hand_chunk(&h, (struct wire_chunk){64, 128, crc, 64}, data), ROUND_RECEIPT);
    by_hand_close(&h);
    assert_memory_equal(fake.stored + 64, data, 64);
    link_shutdown(s, 1000);
    assert_int_equal(fake.offers, 4);
    assert_int_equal(fake.finishes, 4);
    assert_int_equal(fake.broken, 3);
}

static grpc_status_code by_hand_first(int port, size_t n, uint8_t byte)
{
    struct by_hand h;
    by_hand_open(&h, port, 0);
    uint8_t *message = malloc(n);
    assert_non_null(message);
    memset(message, byte, n);
    link_call_send(h.c, link_buffer(message, n));
    free(message);
    assert_null(link_call_recv(h.c));
    link_call_wait(h.c, &h.c->status);
    grpc_status_code code = h.c->end.code;
    by_hand_close(&h);
    return code;
}

static void oversize_and_malformed(void **state)
{
    (void)state;
    int port = 0;
    memset(&fake, 0, sizeof fake);
    struct link_server *s = fake_serve(&fake, &port);
    assert_int_equal(by_hand_first(port, WIRE_MESSAGE_MAX + 1, 0), GRPC_STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(by_hand_first(port, WIRE_MESSAGE_MAX - 1, 0), GRPC_STATUS_INVALID_ARGUMENT);
    assert_int_equal(by_hand_first(port, 100, 0xff), GRPC_STATUS_INVALID_ARGUMENT);
    assert_int_equal(by_hand_first(port, 1025, 'x'), GRPC_STATUS_INVALID_ARGUMENT);
    assert_int_equal(fake.offers, 0);
    link_shutdown(s, 1000);
}

/* ---- service and shutdown ---- */

static void work_runs_at_its_time(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.work_every_ms = 50;
    int port = 0;
    uint64_t began = clock_mono_ms();
    struct link_server *s = fake_serve(&fake, &port);
    UNTIL(fake.works >= 4);
    assert_false(link_stopped(s));
    struct link *l = fake_dial(port, "ca.pem", "a");
    fake.stop = true;
    struct wire_hello_answer hello;
    assert_int_equal(fake_say_hello(l, "a", &hello), ERR_OK);
    UNTIL(link_stopped(s));
    l->ops->close(l);
    link_shutdown(s, 1000);
    assert_in_range(fake.works, 4, 10 + (clock_mono_ms() - began) / 50); /* and after each call */
}

struct poller {
    struct link *l;
    pthread_t thread;
    enum err e;
    enum round_outcome outcome;
    uint64_t ms;
    char text[256];
    atomic_bool back;
};

static void *poll_long(void *arg)
{
    struct poller *p = arg;
    struct wire_poll m = {.head = fake_head("a"), .round = 41};
    struct wire_poll_answer answer = {0};
    uint64_t before = clock_mono_ms();
    p->e = p->l->ops->poll(p->l, &m, 30000, &answer);
    p->ms = clock_mono_ms() - before;
    p->outcome = answer.answer.outcome;
    snprintf(p->text, sizeof p->text, "%s", err_message());
    p->back = true;
    return NULL;
}

static unsigned back(const struct poller *p, unsigned count)
{
    unsigned n = 0;
    for (unsigned i = 0; i < count; i++)
        n += p[i].back;
    return n;
}

static void a_held_poll_hears_of_the_commit(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    int port = 0;
    struct link_server *s = fake_serve(&fake, &port);
    struct poller p = {.l = fake_dial(port, "ca.pem", "a")};
    struct link *b = fake_dial(port, "ca.pem", "b");
    assert_int_equal(pthread_create(&p.thread, NULL, poll_long, &p), 0);
    UNTIL(fake.polls >= 1);
    usleep(300000);
    struct wire_report report = {.head = fake_head("b")};
    struct wire_answer answer;
    assert_int_equal(b->ops->report(b, &report, &answer), ERR_OK); /* its work() commits */
    pthread_join(p.thread, NULL);
    assert_int_equal(p.e, ERR_OK);
    assert_int_equal(p.outcome, ROUND_COMMIT);
    assert_true(p.ms >= 250 && p.ms < 25000); /* was ready to wait 30 s */
    p.l->ops->close(p.l);
    b->ops->close(b);
    link_shutdown(s, 1000);
}

static void held_polls_end_with_the_server(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    int port = 0;
    struct link_server *s = fake_serve(&fake, &port);
    static struct poller p[66];
    memset(p, 0, sizeof p);
    p[0].l = fake_dial(port, "ca.pem", "a");
    struct wire_hello_answer hello;
    assert_int_equal(fake_say_hello(p[0].l, "a", &hello), ERR_OK);
    usleep(100000); /* its call has ended at the other end, too */
    for (int i = 0; i < 66; i++) {
        p[i].l = p[0].l;
        assert_int_equal(pthread_create(&p[i].thread, NULL, poll_long, &p[i]), 0);
    }
    UNTIL(fake.polls >= 64 && back(p, 66) == 2);
    uint64_t before = clock_mono_ms();
    link_shutdown(s, FAKE_PATIENCE_MS);
    assert_true(clock_mono_ms() - before < 25000); /* not the grace, not the 30 s of the polls */
    int held = 0, refused = 0;
    for (int i = 0; i < 66; i++) {
        pthread_join(p[i].thread, NULL);
        held += p[i].e == ERR_OK;
        refused += p[i].e == ERR_LINK && strstr(p[i].text, "busy");
    }
    assert_int_equal(held, 64); /* no more than that for one site at once */
    assert_int_equal(refused, 2);
    p[0].l->ops->close(p[0].l);
}

/* ---- a link that is cut without a word ---- */

static void keepalive_notices_a_dead_link(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    struct relay r = {0};
    int port;
    struct link_server *s = fake_serve(&fake, &r.port);
    r.listener = craft_listen(&port);
    assert_int_equal(pthread_create(&r.thread, NULL, relay_main, &r), 0);
    struct poller p = {.l = fake_dial(port, "ca.pem", "a")};
    struct wire_hello_answer hello;
    assert_int_equal(fake_say_hello(p.l, "a", &hello), ERR_OK);
    assert_int_equal(pthread_create(&p.thread, NULL, poll_long, &p), 0);
    UNTIL(fake.polls >= 1);
    r.swallow = true;
    pthread_join(p.thread, NULL); /* asked to be held for 30 s */
    assert_int_equal(p.e, ERR_LINK);
    assert_true(p.ms < 25000);
    p.l->ops->close(p.l);
    link_shutdown(s, 3000); /* the server lets go of its end by itself, too */
    r.end = true;
    pthread_join(r.thread, NULL);
}

/* ---- addresses, and an aggregator that comes back ---- */

static void port_in_use(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    int port = 0;
    struct link_server *s = fake_serve(&fake, &port), *second = NULL;
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    struct link_service service = fake_service(&fake);
    struct link_listen l = {.address = address,
                            .tls = fake_tls("ca.pem", "aggregator"),
                            .keepalive_ms = FAKE_KEEPALIVE_MS};
    assert_int_equal(link_serve(&second, &l, &service, &port), ERR_BUSY);
    assert_says("in use");
    l.address = "192.0.2.1:7443"; /* of no machine: RFC 5737 */
    assert_int_equal(link_serve(&second, &l, &service, &port), ERR_CONFIG);
    assert_says("192.0.2.1");
    l.address = "nonsense";
    assert_int_equal(link_serve(&second, &l, &service, &port), ERR_CONFIG);
    link_shutdown(s, 1000);
}

static void away_and_back(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    int port = 0;
    struct link_server *s = fake_serve(&fake, &port);
    struct link *l = fake_dial(port, "ca.pem", "a");
    struct wire_hello_answer hello;
    assert_int_equal(fake_say_hello(l, "a", &hello), ERR_OK);
    link_shutdown(s, 0);
    uint64_t gone = clock_mono_ms();
    while (clock_mono_ms() - gone < 1000) { /* calls in between fail at once, with a sentence */
        uint64_t before = clock_mono_ms();
        assert_int_equal(fake_say_hello(l, "a", &hello), ERR_LINK);
        assert_true(clock_mono_ms() - before < 20000);
        assert_says("127.0.0.1");
        usleep(100000);
    }
    s = fake_serve(&fake, &port);
    uint64_t again = clock_mono_ms();
    enum err e;
    while ((e = fake_say_hello(l, "a", &hello)) == ERR_LINK &&
           clock_mono_ms() - again < FAKE_PATIENCE_MS)
        usleep(50000);
    assert_int_equal(e, ERR_OK);
    assert_true(clock_mono_ms() - again < 20000); /* no back-off of 30 s and more */
    l->ops->close(l);
    link_shutdown(s, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call),
        cmocka_unit_test(up_and_down),
        cmocka_unit_test(cut_and_resumed),
        cmocka_unit_test(download_resumed),
        cmocka_unit_test(refused_in_mid_stream),
        cmocka_unit_test(damaged_chunks),
        cmocka_unit_test(oversize_and_malformed),
        cmocka_unit_test(keepalive_notices_a_dead_link),
        cmocka_unit_test(work_runs_at_its_time),
        cmocka_unit_test(a_held_poll_hears_of_the_commit),
        cmocka_unit_test(held_polls_end_with_the_server),
        cmocka_unit_test(port_in_use),
        cmocka_unit_test(away_and_back),
    };
    return cmocka_run_group_tests(tests, fake_prepare, scratch_close);
}
