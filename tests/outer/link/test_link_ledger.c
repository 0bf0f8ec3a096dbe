/* SPDX-License-Identifier: Apache-2.0 */
/* What the real link books, held against the payload and against the kernel: contributions and
 * downloads of several sizes over loopback mTLS. Payload must be equal to the byte at both ends;
 * all layers together within 1 % of the socket counters, in which bytes that TCP sent again count
 * once. Broken, the ledger would be wrong by a layer, unseen.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>
#include "outer/link/grpc/link_call.h"
#include "outer/link/grpc/link_socket.h"
#include "tests/outer/link/link_fake.h"

static struct fake fake;

struct sums { /* a sink that adds up */
    pthread_mutex_t mutex;
    struct ledger_row what[LEDGER_WHATS];
    struct ledger_row all;
    char site[LEDGER_SITE_MAX];
};

static void sum_up(void *self, const struct ledger_row *row)
{
    struct sums *s = self;
    pthread_mutex_lock(&s->mutex);
    ledger_add(&s->what[row->what], row);
    ledger_add(&s->all, row);
    memcpy(s->site, row->site, sizeof s->site);
    pthread_mutex_unlock(&s->mutex);
}

static struct link *dial(int port, unsigned streams, struct sums *s)
{
    return fake_dial_as(port,
                        (struct link_dial){.streams = streams, .book = sum_up, .book_self = s});
}

static void send_up(struct link *l, const uint8_t *payload, size_t n)
{
    struct wire_contribution m = {.head = fake_head("a"),
                                  .fragment = 1,
                                  .round = 41,
                                  .payload_bytes = n,
                                  .weight = 1,
                                  .payload = digest_of(payload, n)};
    struct wire_answer answer = {0};
    fake.have = 0;
    if (l->ops->contribute(l, &m, payload, &answer) != ERR_OK)
        fail_msg("%s", err_message());
    assert_int_equal(answer.outcome, ROUND_RECEIPT);
}

static void fetch_down(struct link *l, const uint8_t *payload, uint8_t *back, size_t n)
{
    struct wire_fetch f = {
        .head = fake_head("a"), .what = WIRE_AGGREGATE, .fragment = 1, .round = 41};
    struct wire_answer answer = {0};
    if (l->ops->fetch(l, &f, back, n, &answer) != ERR_OK)
        fail_msg("%s", err_message());
    assert_memory_equal(back, payload, n);
}

static void within_one_percent(const char *who, const struct ledger_side *s)
{
    double layers = (double)ledger_sum(s), socket = (double)s->socket;
    if (layers > 1.01 * socket || layers < 0.99 * socket)
        fail_msg("%s: layers %.0f, the kernel %.0f: %+.3f %% (payload %llu, grpc %llu, http2 %llu, "
                 "tls %llu)",
                 who, layers, socket, 100 * (layers / socket - 1), (unsigned long long)s->payload,
                 (unsigned long long)s->grpc, (unsigned long long)s->http2,
                 (unsigned long long)s->tls);
}

/* What the server still had to send when its calls ended is read at a later one, as the run
 * continues. */
static void read_all(struct link *l, struct sums *s)
{
    struct wire_hello_answer hello;
    bool all = false;
    for (int i = 0; i < 3000 && !all; i++) {
        usleep(10000);
        assert_int_equal(fake_say_hello(l, "a", &hello), ERR_OK);
        pthread_mutex_lock(&s->mutex);
        all = s->all.down.socket > s->all.down.payload;
        pthread_mutex_unlock(&s->mutex);
    }
    assert_true(all);
}

/* Each size alone, so that the errors of two cannot cancel; more up than down, so that the
 * directions cannot either. */
static void add_up(unsigned streams)
{
    static const size_t sizes[] = {700000, WIRE_CHUNK_BYTES, 3 * WIRE_CHUNK_BYTES + 12345,
                                   FAKE_BYTES_MAX};
    uint8_t *payload = fake_payload(FAKE_BYTES_MAX), *back = malloc(FAKE_BYTES_MAX);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct sums site = {.mutex = PTHREAD_MUTEX_INITIALIZER},
                    server = {.mutex = PTHREAD_MUTEX_INITIALIZER};
        int port = 0;
        memset(&fake, 0, sizeof fake);
        fake.book = sum_up;
        fake.book_self = &server;
        struct link_server *s = fake_serve(&fake, &port);
        struct link *l = dial(port, streams, &site);
        struct wire_hello_answer hello;
        assert_int_equal(fake_say_hello(l, "a", &hello), ERR_OK);
        for (int k = 0; k < 3; k++)
            send_up(l, payload, sizes[i]);
        for (int k = 0; k < 2; k++)
            fetch_down(l, payload, back, sizes[i]);
        read_all(l, &server);
        l->ops->close(l);
        link_shutdown(s, 1000);
        const struct ledger_row *up = &site.what[LEDGER_CONTRIBUTION],
                                *down = &site.what[LEDGER_AGGREGATE];
        assert_int_equal(up->up.payload, 3 * sizes[i]);
        assert_int_equal(down->down.payload, 2 * sizes[i]);
        assert_true(up->total == sizes[i] && down->total == sizes[i] && up->done && down->done);
        assert_true(!up->broken && !down->broken);
        assert_int_equal(server.what[LEDGER_CONTRIBUTION].up.payload, 3 * sizes[i]);
        assert_int_equal(server.what[LEDGER_AGGREGATE].down.payload, 2 * sizes[i]);
        assert_int_equal(server.what[LEDGER_CONTRIBUTION].up.grpc, up->up.grpc);
        assert_int_equal(server.what[LEDGER_AGGREGATE].down.grpc, down->down.grpc);
        assert_string_equal(server.site, "a");
        within_one_percent("site, up", &site.all.up);
        within_one_percent("site, down", &site.all.down);
        within_one_percent("aggregator, up", &server.all.up);
        within_one_percent("aggregator, down", &server.all.down);
    }
    free(payload);
    free(back);
}

static void layers_add_up_to_the_kernels_bytes(void **state)
{
    (void)state;
    add_up(1);
}

static void so_they_do_over_several_connections(void **state)
{
    (void)state;
    add_up(4);
}

/* The chunks' own bytes are exactly those of the wire format, wherever a length gets longer. */
static void predicted_headers_are_the_wires(void **state)
{
    (void)state;
    static const uint64_t totals[] = {
        1, 127, 128, 16383, 16384, 1 << 20, (1 << 20) + 1, 5 << 20, UINT64_C(3) << 32};
    for (size_t i = 0; i < sizeof totals / sizeof *totals; i++) {
        uint64_t grpc = 0;
        uint32_t chunk_bytes = totals[i] >> 32 ? 1 << 30 : WIRE_CHUNK_BYTES;
        for (uint64_t at = 0; at < totals[i]; at += chunk_bytes) {
            uint8_t head[WIRE_CHUNK_HEADER_MAX];
            uint64_t left = totals[i] - at, size = left < chunk_bytes ? left : chunk_bytes;
            struct wire_chunk chunk = {
                at, totals[i], 1, (uint32_t)(size < WIRE_CHUNK_BYTES ? size : WIRE_CHUNK_BYTES)};
            grpc += wire_chunk_header(head, &chunk) + 5;
            if (size > WIRE_CHUNK_BYTES) /* the longer length that the wire's chunks never have */
                grpc += 2;
        }
        struct ledger_side s = ledger_predict(totals[i], chunk_bytes);
        assert_int_equal(s.payload, totals[i]);
        assert_int_equal(s.grpc, grpc);
    }
}

/* Rows of a contribution that was cut say so, and the bytes of both attempts are there. */
static void a_cut_contribution_is_booked_twice(void **state)
{
    (void)state;
    size_t n = 5 * WIRE_CHUNK_BYTES;
    uint8_t *payload = fake_payload(n);
    struct sums site = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    int port = 0;
    memset(&fake, 0, sizeof fake);
    struct link_server *s = fake_serve(&fake, &port);
    struct link *l = dial(port, 1, &site);
    struct wire_contribution m = {.head = fake_head("a"),
                                  .fragment = 1,
                                  .round = 41,
                                  .payload_bytes = n,
                                  .weight = 1,
                                  .payload = digest_of(payload, n)};
    struct wire_answer answer = {0};
    fake.fail_at = 2 * WIRE_CHUNK_BYTES;
    assert_int_equal(l->ops->contribute(l, &m, payload, &answer), ERR_OK);
    assert_int_equal(answer.outcome, ROUND_SUPERSEDED);
    uint64_t first = site.what[LEDGER_CONTRIBUTION].up.payload;
    assert_true(first >= 2 * WIRE_CHUNK_BYTES && first <= n);
    assert_false(site.what[LEDGER_CONTRIBUTION].done);
    fake.fail_at = 0;
    assert_int_equal(l->ops->contribute(l, &m, payload, &answer), ERR_OK);
    assert_int_equal(answer.outcome, ROUND_RECEIPT);
    assert_true(site.what[LEDGER_CONTRIBUTION].done);
    assert_int_equal(site.what[LEDGER_CONTRIBUTION].up.payload, first + 3 * WIRE_CHUNK_BYTES);
    l->ops->close(l);
    link_shutdown(s, 1000);
    free(payload);
}

/* A dial without an answer costs calls, no bytes. */
static void nobody_there_costs_nothing(void **state)
{
    (void)state;
    struct sums site = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    struct wire_hello_answer hello;
    int port = 0;
    memset(&fake, 0, sizeof fake);
    link_shutdown(fake_serve(&fake, &port), 0); /* a port that is free now */
    struct link *l = dial(port, 1, &site);
    assert_int_equal(fake_say_hello(l, "a", &hello), ERR_LINK);
    l->ops->close(l);
    assert_int_equal(site.what[LEDGER_HELLO].calls, 1);
    assert_int_equal(site.what[LEDGER_HELLO].broken, 1);
    assert_int_equal(ledger_sum(&site.all.up) + ledger_sum(&site.all.down), 0);
}

/* Two aggregators on the same port of different machines: each link counts its own connections. */
static void links_are_told_apart(void **state)
{
    (void)state;
    static struct fake other;
    struct sums first = {.mutex = PTHREAD_MUTEX_INITIALIZER},
                second = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    struct link_server *there;
    struct link *far = NULL;
    char address[32];
    int port = 0;
    memset(&fake, 0, sizeof fake);
    struct link_server *here = fake_serve(&fake, &port);
    snprintf(address, sizeof address, "127.0.0.2:%d", port);
    struct link_service service = fake_service(&other);
    struct link_listen listen_at = {.address = address, .tls = fake_tls("ca.pem", "aggregator")};
    if (link_serve(&there, &listen_at, &service, &port) != ERR_OK)
        fail_msg("%s", err_message());
    struct link_dial d = {.target = address,
                          .server_name = "localhost",
                          .tls = fake_tls("ca.pem", "a"),
                          .book = sum_up,
                          .book_self = &second};
    assert_int_equal(link_open(&far, &d), ERR_OK);
    struct link *l = dial(port, 1, &first);
    size_t n = WIRE_CHUNK_BYTES;
    uint8_t *payload = fake_payload(n);
    struct wire_hello_answer hello;
    assert_int_equal(fake_say_hello(far, "a", &hello), ERR_OK);
    send_up(l, payload, n);
    for (int i = 0; i < 2; i++) /* sees the other's sockets; and would count them */
        assert_int_equal(fake_say_hello(far, "a", &hello), ERR_OK);
    l->ops->close(l);
    far->ops->close(far);
    link_shutdown(there, 1000);
    link_shutdown(here, 1000);
    assert_true(first.all.up.socket > n);
    assert_true(second.all.up.socket > 1000 && second.all.up.socket < 20000);
    free(payload);
}

/* A peer may take the last bytes and close the connection before the counters are read again. So
 * bytes that still wait in the socket when they are read count. */
static void bytes_that_wait_in_the_socket_count(void **state)
{
    (void)state;
    static char bytes[1 << 16];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int listening = socket(AF_INET, SOCK_STREAM, 0), out = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listening, (struct sockaddr *)&at, n), 0);
    assert_int_equal(listen(listening, 1), 0);
    assert_int_equal(getsockname(listening, (struct sockaddr *)&at, &n), 0);
    assert_int_equal(connect(out, (struct sockaddr *)&at, n), 0);
    int in = accept(listening, NULL, NULL);
    assert_true(in >= 0);

    struct sums seen = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    struct link_sockets sockets = {.port = ntohs(at.sin_port)};
    char peer[LINK_PEER_MAX], source[LINK_PEER_MAX];
    link_socket_peer(out, peer, source);
    assert_true(link_sockets_own(&sockets, peer, "a") != 0);
    uint64_t handed = 0;
    for (ssize_t k; (k = send(out, bytes, sizeof bytes, MSG_DONTWAIT)) > 0;)
        handed += (uint64_t)k;
    link_sockets_scan(&sockets);
    assert_true(sockets.list[0].queued > 0); /* else this shows nothing */
    assert_int_equal(sockets.up, handed);
    for (uint64_t read = 0; read < handed;) {
        ssize_t k = recv(in, bytes, sizeof bytes, 0);
        assert_true(k > 0);
        read += (uint64_t)k;
    }
    close(in);
    close(listening);
    close(out);
    struct ledger_row row;
    while (link_sockets_next(&sockets, &row))
        sum_up(&seen, &row);
    link_sockets_scan(&sockets);
    while (link_sockets_next(&sockets, &row))
        sum_up(&seen, &row);
    assert_int_equal(seen.all.up.socket, handed);
    assert_int_equal(sockets.count, 0);
    link_sockets_close(&sockets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(predicted_headers_are_the_wires),
        cmocka_unit_test(layers_add_up_to_the_kernels_bytes),
        cmocka_unit_test(so_they_do_over_several_connections),
        cmocka_unit_test(a_cut_contribution_is_booked_twice),
        cmocka_unit_test(nobody_there_costs_nothing),
        cmocka_unit_test(links_are_told_apart),
        cmocka_unit_test(bytes_that_wait_in_the_socket_count),
    };
    return cmocka_run_group_tests(tests, fake_prepare, scratch_close);
}
