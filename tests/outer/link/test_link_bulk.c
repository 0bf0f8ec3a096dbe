/* SPDX-License-Identifier: Apache-2.0 */
/* Payloads over several connections, paced, cut anywhere: what breaks here is a byte that is sent
 * twice or not at all, and a heartbeat that waits for a contribution. Bytes are counted at both
 * ends.
 */
#include <poll.h>
#include "tests/outer/link/link_craft.h"

enum { STREAMS = 4, RELAY_MAX = 2 * 16 + 1 };

static struct fake fake;

static struct wire_contribution contribution(const uint8_t *payload, size_t n)
{
    struct wire_contribution m = {
        .head = fake_head("a"), .fragment = 1, .round = 41, .payload_bytes = n, .weight = 1};
    m.payload = digest_of(payload, n);
    return m;
}

static struct link *dial(int port, unsigned streams, uint64_t rate_up, uint64_t rate_down)
{
    return fake_dial_as(
        port, (struct link_dial){.streams = streams, .rate_up = rate_up, .rate_down = rate_down});
}

static struct link_counters counters(struct link *l)
{
    struct link_counters c;
    l->ops->counters(l, &c);
    return c;
}

static void whole_over_several_connections(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, WIRE_CHUNK_BYTES, WIRE_CHUNK_BYTES + 1, 3 * WIRE_CHUNK_BYTES,
                                   FAKE_BYTES_MAX - 5};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i];
        int port = 0;
        memset(&fake, 0, sizeof fake);
        uint8_t *payload = fake_payload(n), *back = calloc(1, n);
        struct link_server *s = fake_serve(&fake, &port);
        struct link *l = dial(port, STREAMS, 0, 0);
        struct wire_contribution m = contribution(payload, n);
        struct wire_answer answer = {0};
        assert_int_equal(l->ops->contribute(l, &m, payload, &answer), ERR_OK);
        assert_int_equal(answer.outcome, ROUND_RECEIPT);
        assert_int_equal(fake.have, n);
        assert_memory_equal(fake.stored, payload, n);
        assert_int_equal(fake.offers, 1); /* the others joined */
        assert_int_equal(fake.finishes, 1);
        assert_int_equal(counters(l).payload_up, n);
        struct wire_fetch f = {.head = fake_head("a")};
        answer = (struct wire_answer){0};
        if (l->ops->fetch(l, &f, back, n, &answer) != ERR_OK)
            fail_msg("%s", err_message());
        assert_int_equal(answer.outcome, ROUND_NONE);
        assert_memory_equal(back, payload, n);
        assert_int_equal(counters(l).payload_down, n);
        f.round = 99;
        answer = (struct wire_answer){0};
        assert_int_equal(l->ops->fetch(l, &f, back, n, &answer), ERR_OK);
        assert_int_equal(answer.outcome, ROUND_GONE);
        l->ops->close(l);
        link_shutdown(s, 1000);
        assert_int_equal(fake.fetched, fake.fetches);
        free(payload);
        free(back);
    }
}

struct killing {
    struct link_server *server;
    pthread_barrier_t barrier;
};

static void *kill_in_mid_chunk(void *arg)
{
    struct killing *k = arg;
    pthread_barrier_wait(&k->barrier);
    pthread_barrier_wait(&k->barrier);
    link_shutdown(k->server, 0);
    return NULL;
}

/* The aggregator ends after each number of chunks; the next one, on what is stored, gets exactly
 * the rest. */
static void killed_anywhere(void **state)
{
    (void)state;
    size_t n = 11 * WIRE_CHUNK_BYTES + 77;
    uint8_t *payload = fake_payload(n);
    for (unsigned at = 0; at <= 10; at += 2) {
        int port = 0;
        memset(&fake, 0, sizeof fake);
        struct killing k = {.server = fake_serve(&fake, &port)};
        pthread_barrier_init(&k.barrier, NULL, 2);
        fake.pause = &k.barrier;
        fake.pause_at = at * WIRE_CHUNK_BYTES;
        pthread_t killer;
        assert_int_equal(pthread_create(&killer, NULL, kill_in_mid_chunk, &k), 0);
        struct link *l =
            dial(port, STREAMS, at == 4 ? 6 << 20 : 0, 0); /* paced: chunks of 3/4 of a block */
        struct wire_contribution m = contribution(payload, n);
        struct wire_answer answer = {0};
        enum err e = l->ops->contribute(l, &m, payload, &answer);
        pthread_join(killer, NULL);
        pthread_barrier_destroy(&k.barrier);
        assert_true(e == ERR_LINK || (e == ERR_OK && answer.outcome == ROUND_RECEIPT));
        uint64_t had = fake.have, sent = counters(l).payload_up;
        int again = port;
        struct link_server *s = fake_serve(&fake, &again);
        uint64_t until = clock_mono_ms() + FAKE_PATIENCE_MS;
        while ((e = l->ops->contribute(l, &m, payload, &answer)) == ERR_LINK &&
               clock_mono_ms() < until)
            usleep(20000);
        if (e != ERR_OK || answer.outcome != ROUND_RECEIPT)
            fail_msg("killed at %u: %s %s", at, err_message(), answer.text);
        assert_int_equal(counters(l).payload_up - sent, n - had); /* not a stored byte again */
        assert_memory_equal(fake.stored, payload, n);
        l->ops->close(l);
        link_shutdown(s, 1000);
    }
    free(payload);
}

/* ---- relays ---- */

struct relay { /* passes bytes both ways */
    int listener, port;
    atomic_bool end;
    int cut_after; /* connections from the second bulk one on end after this number of bytes to the
                      server; 0: never */
    uint64_t bytes_per_s; /* each way, all connections together, one queue; 0: as fast as it goes */
    uint64_t free_ns[2];
    size_t passed[RELAY_MAX];
    nfds_t count;
    pthread_t thread;
};

/* A piece may only be read when the link is free: what waits, waits in the sockets, as at a router
 * with a short queue. */
static bool link_free(struct relay *r, unsigned way)
{
    return !r->bytes_per_s || clock_mono_ns() >= r->free_ns[way];
}

static bool relay_pass(struct relay *r, struct pollfd *fds, nfds_t i)
{
    static char bytes[65536];
    unsigned way = i % 2;
    if (!link_free(r, way))
        return true;
    ssize_t n = recv(fds[i].fd, bytes, r->bytes_per_s ? 4096 : sizeof bytes, 0);
    if (n <= 0)
        return false;
    r->passed[i] += (size_t)n;
    if (r->bytes_per_s) { /* a busy machine may come late: up to a tenth of a second is made up for
                           */
        uint64_t late = clock_mono_ns() - 100000000;
        r->free_ns[way] = r->free_ns[way] > late ? r->free_ns[way] : late;
        r->free_ns[way] += (uint64_t)((double)n * 1e9 / (double)r->bytes_per_s);
    }
    if (way == 1 && i > 4 && r->cut_after && r->passed[i] > (size_t)r->cut_after)
        return false;
    return send(fds[way ? i + 1 : i - 1].fd, bytes, (size_t)n, MSG_NOSIGNAL) == n;
}

static void *relay_main(void *arg)
{
    struct relay *r = arg;
    struct pollfd fds[RELAY_MAX] = {{.fd = r->listener, .events = POLLIN}};
    unsigned first = 1;
    r->count = 1;
    while (!r->end) {
        poll(fds, r->count, 20);
        for (nfds_t k = 1; k < r->count;
             k++) { /* by turns, so that no connection comes first always */
            nfds_t i = 1 + (k - 1 + first) % (r->count - 1);
            if (fds[i].fd >= 0 && fds[i].revents & (POLLIN | POLLHUP | POLLERR) &&
                !relay_pass(r, fds, i)) {
                nfds_t other = i % 2 ? i + 1 : i - 1;
                close(fds[i].fd);
                close(fds[other].fd);
                fds[i].fd = fds[other].fd = -1;
            }
        }
        first++;
        if (r->bytes_per_s)
            usleep(1000);
        if (fds[0].revents & POLLIN && r->count + 2 <= RELAY_MAX) {
            fds[r->count++] =
                (struct pollfd){.fd = accept(r->listener, NULL, NULL), .events = POLLIN};
            fds[r->count++] = (struct pollfd){.fd = craft_connect(r->port), .events = POLLIN};
        }
    }
    for (nfds_t i = 0; i < r->count; i++)
        if (fds[i].fd >= 0)
            close(fds[i].fd);
    return NULL;
}

static int relay_start(struct relay *r)
{
    int port;
    r->listener = craft_listen(&port);
    assert_int_equal(pthread_create(&r->thread, NULL, relay_main, r), 0);
    return port;
}

static void relay_stop(struct relay *r)
{
    r->end = true;
    pthread_join(r->thread, NULL);
}

/* Connections die, all but the leading one: the payload arrives, and only what was under way on
 * them goes twice. */
static void connections_die(void **state)
{
    (void)state;
    size_t n = 15 * WIRE_CHUNK_BYTES;
    memset(&fake, 0, sizeof fake);
    struct relay r = {.cut_after = 2 * WIRE_CHUNK_BYTES};
    uint8_t *payload = fake_payload(n);
    struct link_server *s = fake_serve(&fake, &r.port);
    struct link *l = dial(relay_start(&r), STREAMS, 0, 0);
    struct wire_contribution m = contribution(payload, n);
    struct wire_hello_answer hello;
    struct wire_answer answer = {0};
    assert_int_equal(fake_say_hello(l, "a", &hello), ERR_OK); /* control is the first connection */
    if (l->ops->contribute(l, &m, payload, &answer) != ERR_OK)
        fail_msg("%s", err_message());
    assert_int_equal(answer.outcome, ROUND_RECEIPT);
    assert_memory_equal(fake.stored, payload, n);
    assert_in_range(counters(l).payload_up, n, n + 4 * STREAMS * WIRE_CHUNK_BYTES);
    l->ops->close(l);
    relay_stop(&r);
    link_shutdown(s, 1000);
    free(payload);
}

static void *cut_soon(void *relay)
{
    usleep(1200000);
    ((struct relay *)relay)->end = true;
    return NULL;
}

/* A download is cut for good; with the same answer it continues with what is missing, holes between
 * streams included. */
static void download_cut_and_resumed(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.have = FAKE_BYTES_MAX - 3;
    struct relay r = {.bytes_per_s = 6000000};
    uint8_t *whole = fake_payload(fake.have), *back = calloc(1, fake.have);
    memcpy(fake.stored, whole, fake.have);
    struct link_server *s = fake_serve(&fake, &r.port);
    struct wire_fetch m = {.head = fake_head("a")};
    struct wire_answer answer = {0};
    struct link *l = dial(relay_start(&r), STREAMS, 0, 1 << 20);
    pthread_t cutter;
    assert_int_equal(pthread_create(&cutter, NULL, cut_soon, &r), 0);
    enum err e = l->ops->fetch(l, &m, back, fake.have, &answer);
    pthread_join(cutter, NULL);
    relay_stop(&r);
    assert_int_equal(e, ERR_LINK);
    uint64_t had = blocks_sum(&answer.blocks);
    assert_int_equal(counters(l).payload_down, had);
    assert_in_range(had, 1, fake.have - 1);
    for (uint32_t b = 0; b < answer.blocks.count; b++)
        assert_memory_equal(back + blocks_start(&answer.blocks, b),
                            whole + blocks_start(&answer.blocks, b), answer.blocks.stored[b]);
    l->ops->close(l);
    l = dial(r.port, STREAMS, 0, 0);
    m.offset = answer.offset;
    if (l->ops->fetch(l, &m, back, fake.have, &answer) != ERR_OK)
        fail_msg("%s", err_message());
    assert_memory_equal(back, whole, fake.have);
    assert_int_equal(counters(l).payload_down, fake.have - had);
    l->ops->close(l);
    link_shutdown(s, 1000);
    free(whole);
    free(back);
}

/* ---- pace ---- */

static void bulk_is_paced(void **state)
{
    (void)state;
    size_t n = 2 << 20;
    int port = 0;
    memset(&fake, 0, sizeof fake);
    uint8_t *payload = fake_payload(n), *back = calloc(1, n);
    struct link_server *s = fake_serve(&fake, &port);
    struct link *l = dial(port, STREAMS, 4 << 20, 4 << 20);
    struct wire_contribution m = contribution(payload, n);
    struct wire_fetch f = {.head = fake_head("a")};
    struct wire_answer answer = {0};
    uint64_t start = clock_mono_ms();
    assert_int_equal(l->ops->contribute(l, &m, payload, &answer), ERR_OK);
    uint64_t up_ms = clock_mono_ms() - start;
    answer = (struct wire_answer){0};
    start = clock_mono_ms();
    assert_int_equal(l->ops->fetch(l, &f, back, n, &answer), ERR_OK);
    uint64_t down_ms = clock_mono_ms() - start;
    assert_memory_equal(back, payload, n);
    assert_in_range(up_ms, 350, 20000); /* 500, less what may go at once */
    assert_in_range(down_ms, 350, 20000);
    l->ops->close(l);
    link_shutdown(s, 1000);
    free(payload);
    free(back);
}

struct sending {
    struct link *l;
    const uint8_t *payload;
    size_t n;
    unsigned rounds; /* after the first */
    pthread_t thread;
    enum err e;
    atomic_bool done;
};

static void *send_main(void *arg)
{
    struct sending *x = arg;
    struct wire_contribution m = contribution(x->payload, x->n);
    m.round += x->rounds;
    struct wire_answer answer = {0};
    x->e = x->l->ops->contribute(x->l, &m, x->payload, &answer);
    x->done = true;
    return NULL;
}

/* What was sent while the aggregator had not yet answered the offer, then all of it; x->rounds
 * after the first. */
static uint64_t sent_before_answer(struct sending *x)
{
    uint64_t before = counters(x->l).payload_up;
    fake.have = 0;
    fake.blocks = (struct blocks){0};
    fake.offer_ms = 400;
    assert_int_equal(pthread_create(&x->thread, NULL, send_main, x), 0);
    usleep(200000);
    uint64_t early = counters(x->l).payload_up - before;
    pthread_join(x->thread, NULL);
    assert_int_equal(x->e, ERR_OK);
    assert_int_equal(counters(x->l).payload_up - before, x->n); /* none of it twice */
    assert_int_equal(fake.have, x->n);
    assert_memory_equal(fake.stored, x->payload, x->n);
    return early;
}

static void bytes_follow_the_offer(void **state)
{
    (void)state;
    int port = 0;
    memset(&fake, 0, sizeof fake);
    struct sending x = {.n = FAKE_BYTES_MAX - 5};
    uint8_t *payload = fake_payload(x.n);
    x.payload = payload;
    struct link_server *s = fake_serve(&fake, &port);
    x.l = dial(port, STREAMS, 0, 0);
    assert_int_equal(sent_before_answer(&x), 0); /* a restart may have left something there */
    x.rounds = 1;
    assert_true(sent_before_answer(&x) > 0);
    x.rounds = 2;
    fake.listed = "nobody";
    struct wire_contribution m = contribution(payload, x.n);
    struct wire_answer answer = {0};
    m.round += x.rounds;
    assert_int_equal(x.l->ops->contribute(x.l, &m, payload, &answer), ERR_OK);
    assert_int_equal(answer.outcome, ROUND_EXCLUDED);
    fake.listed = NULL;
    assert_int_equal(sent_before_answer(&x), 0); /* this round was offered before */
    x.l->ops->close(x.l);
    link_shutdown(s, 1000);
    free(payload);
}

/* How far a sender may go ahead of a reader that reads nothing: on a long link it is the receive
 * window that keeps the sender's own queue full. */
static void a_window_of_a_long_line(void **state)
{
    (void)state;
    int port = 0;
    pthread_barrier_t barrier;
    memset(&fake, 0, sizeof fake);
    pthread_barrier_init(&barrier, NULL, 2);
    struct sending x = {.n = FAKE_BYTES_MAX - 5};
    uint8_t *payload = fake_payload(x.n);
    x.payload = payload;
    struct link_server *s = fake_serve(&fake, &port);
    x.l = dial(port, 1, 0, 0);
    for (x.rounds = 0; x.rounds < 2; x.rounds++) { /* the first one lets windows grow */
        uint64_t sent = 0, before = counters(x.l).wire_up;
        fake.have = 0;
        fake.blocks = (struct blocks){0};
        fake.pause = x.rounds ? &barrier : NULL;
        assert_int_equal(pthread_create(&x.thread, NULL, send_main, &x), 0);
        if (x.rounds) {
            pthread_barrier_wait(&barrier);
            for (uint64_t was = UINT64_MAX; was != sent; usleep(200000)) {
                was = sent;
                sent = counters(x.l).wire_up - before;
            }
            pthread_barrier_wait(&barrier);
            if (sent < 12 << 20)
                fail_msg("stood still after %llu bytes", (unsigned long long)sent);
        }
        pthread_join(x.thread, NULL);
        assert_int_equal(x.e, ERR_OK);
        assert_memory_equal(fake.stored, payload, x.n);
    }
    pthread_barrier_destroy(&barrier);
    x.l->ops->close(x.l);
    link_shutdown(s, 1000);
    free(payload);
}

static void count_streams(void *self, const struct ledger_row *row)
{
    unsigned *streams = self;
    *streams += row->what == LEDGER_CONTRIBUTION && row->up.payload > 0;
}

/* Memory for 16 streams and 16 sites: no connection of one site takes what another site's
 * contribution would wait for. */
static void each_site_has_room_for_one(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    unsigned streams = 0;
    int port = 0;
    struct link_service service = fake_service(&fake);
    struct link_listen listen = {.address = "127.0.0.1:0",
                                 .sites = 16,
                                 .tls = fake_tls("ca.pem", "aggregator"),
                                 .keepalive_ms = FAKE_KEEPALIVE_MS,
                                 .book = count_streams,
                                 .book_self = &streams};
    struct link_server *s;
    size_t n = FAKE_BYTES_MAX - 5;
    uint8_t *payload = fake_payload(n);
    assert_int_equal(link_serve(&s, &listen, &service, &port), ERR_OK);
    struct link *l = dial(port, STREAMS, 0, 0);
    struct wire_contribution m = contribution(payload, n);
    struct wire_answer answer = {0};
    assert_int_equal(l->ops->contribute(l, &m, payload, &answer), ERR_OK);
    assert_int_equal(answer.outcome, ROUND_RECEIPT);
    assert_memory_equal(fake.stored, payload, n);
    l->ops->close(l);
    link_shutdown(s, 1000);
    assert_int_equal(streams, 1);
    free(payload);
}

/* 2 Mbit/s, three quarters of it given to bulk, full all the time: calls pass in between. */
static void control_is_never_starved(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    struct relay r = {.bytes_per_s = 250000};
    struct link_server *s = fake_serve(&fake, &r.port);
    struct sending x = {.n = 400000};
    uint8_t *payload = fake_payload(x.n);
    x.payload = payload;
    x.l = dial(relay_start(&r), STREAMS, 187500, 0);
    struct wire_hello_answer hello;
    assert_int_equal(fake_say_hello(x.l, "a", &hello), ERR_OK);
    assert_int_equal(pthread_create(&x.thread, NULL, send_main, &x), 0);
    uint64_t worst = 0; /* bytes that went while one call passed; all of them, where calls starve */
    unsigned calls = 0;
    while (!x.done) {
        uint64_t before = counters(x.l).payload_up;
        assert_int_equal(fake_say_hello(x.l, "a", &hello), ERR_OK);
        uint64_t went = counters(x.l).payload_up - before;
        worst = went > worst ? went : worst;
        calls += !x.done;
        usleep(20000);
    }
    pthread_join(x.thread, NULL);
    assert_int_equal(x.e, ERR_OK);
    if (calls < 5 || worst > x.n / 2)
        fail_msg("%u calls in between; %llu bytes went during one", calls,
                 (unsigned long long)worst);
    x.l->ops->close(x.l);
    relay_stop(&r);
    link_shutdown(s, 1000);
    free(payload);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_over_several_connections),
        cmocka_unit_test(killed_anywhere),
        cmocka_unit_test(connections_die),
        cmocka_unit_test(download_cut_and_resumed),
        cmocka_unit_test(bulk_is_paced),
        cmocka_unit_test(bytes_follow_the_offer),
        cmocka_unit_test(a_window_of_a_long_line),
        cmocka_unit_test(each_site_has_room_for_one),
        cmocka_unit_test(control_is_never_starved),
    };
    return cmocka_run_group_tests(tests, fake_prepare, scratch_close);
}
