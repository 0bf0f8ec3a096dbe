/* SPDX-License-Identifier: Apache-2.0 */
/* How long one exchange takes over an emulated network, as a multiple of what the line needs: bytes
 * / rate + one round trip. A contribution up (until its receipt) and an aggregate down through the
 * real link as a user gets it (site.streams: auto), a raw TCP stream of the same size, the same
 * through TLS, and with --python an all-reduce of PyTorch's gloo between two ranks, which also
 * carries every byte once each way. All hold their connections open, and take turns, so each comes
 * after a pause, as exchanges do in training.
 *
 *     build/tests/bench_exchange                  (from the repository; writes
 * tests/bench/results.csv)
 *
 * Without options: 1 Gbit/s, 100 ms, without loss and with 0.1 %, each with the kernel's default
 * BBR, with cubic where the link may ask for BBR, and with cubic where it may not; there also with
 * 1, 2, 4, 8 and 16 connections. What takes more than DROP times the fastest link is not
 * repeated. It ends with what is promised, and what was measured.
 *
 * Rates count IP packets with their headers: 1500-byte packets carry 1448 bytes of a TCP stream,
 * so 1.036 x bytes / rate is the least.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "kernels/base/file.h"
#include "kernels/base/args.h"
#include "outer/wan/child.h"
#include "outer/wan/wan.h"
#include "tests/bench/bench.h"
#include "tests/bench/raw_tls.h"

enum { SITE, AGGREGATOR, RAW_PORT = 5001, GLOO_PORT, RAW_TLS_PORT, LINK_PORT = 7443 };
enum { PIECE = 1 << 20 }; /* of a raw stream, at once */
enum { DROP = 3 };
static const struct condition {
    double rate_mbit, rtt_ms, loss_percent;
} conditions[] = {{1000, 100, 0}, {1000, 100, 0.1}, {100, 50, 0}, {100, 50, 0.1}};
enum { CONDITIONS = sizeof conditions / sizeof *conditions, CONDITIONS_PROMISED = 2 };
static const struct setting {
    const char *congestion;
    bool keep; /* the link does not ask for BBR */
} settings[] = {{"bbr", false}, {"cubic", false}, {"cubic", true}};
enum { SETTINGS = sizeof settings / sizeof *settings };

enum kind { LINK, RAW, RAW_TLS, GLOO };
enum { UP, DOWN, WAYS };
enum { FIXED_COUNT = 5, PARTICIPANTS_MAX = 4 + FIXED_COUNT };
static const unsigned fixed[FIXED_COUNT] = {1, 2, 4, 8, 16};

struct bench {
    const char *csv, *congestion, *python;
    int64_t buffer_kib, mib, repeats, streams;
    bool slow_start, keep;
    size_t bytes;
    uint8_t *payload;
    struct wan wan;
    struct arena arena;
    double worst; /* largest measured over promised */
};
struct worker { /* a process at the site that exchanges whenever it is told */
    int tell, hear;
    pid_t pid;
};
struct participant { /* what takes a turn: a pair of processes */
    enum kind kind;
    unsigned streams; /* of a link; 0: auto */
    unsigned port;
    pid_t server;
    struct worker worker;
    struct bench_times times[WAYS];
    double first[WAYS];
    bool dropped;
};

static char root[64];

/* ---- the link ---- */
static struct bench *serving; /* in the aggregator's process */

static void take_offer(void *self, const char *peer, const struct wire_contribution *m,
                       struct wire_answer *answer, void **handle)
{
    (void)peer;
    (void)m;
    answer->outcome = ROUND_RESUME;
    *handle = self;
}

static void take_chunk(void *self, void *handle, uint64_t offset, const uint8_t *data, size_t n,
                       struct wire_answer *answer)
{
    (void)self;
    (void)handle;
    (void)data;
    answer->outcome = offset + n > serving->bytes ? ROUND_INVALID : ROUND_NONE;
}

static void take_finish(void *self, void *handle, bool complete, struct wire_answer *answer)
{
    (void)self;
    (void)handle;
    answer->outcome = complete ? ROUND_RECEIPT : ROUND_INVALID;
}

static void give(void *self, const char *peer, const struct wire_fetch *m, struct link_content *out,
                 struct wire_answer *answer)
{
    (void)peer;
    (void)m;
    out->data = serving->payload;
    out->size_bytes = serving->bytes;
    out->source = self;
    answer->outcome = ROUND_NONE;
}

static void given(void *self, void *source)
{
    (void)self;
    (void)source;
}

static void take_report(void *self, const char *peer, const struct wire_report *m,
                        struct wire_answer *answer)
{
    (void)self, (void)peer, (void)m;
    answer->outcome = ROUND_NONE;
}

static uint64_t no_work(void *self, bool *stop)
{
    (void)self;
    (void)stop;
    return UINT64_MAX;
}

static struct link_tls files(struct bench *b, const char *name)
{
    return (struct link_tls){arena_printf(&b->arena, "%s/ca.pem", root),
                             arena_printf(&b->arena, "%s/%s.pem", root, name),
                             arena_printf(&b->arena, "%s/%s.key", root, name)};
}

static enum err link_aggregator(struct bench *b, const char *address, unsigned port)
{
    struct link_service service = {.self = b,
                                   .offer = take_offer,
                                   .chunk = take_chunk,
                                   .finish = take_finish,
                                   .fetch = give,
                                   .fetched = given,
                                   .report = take_report,
                                   .work = no_work,
                                   .commit = link_service_no_commit};
    struct link_listen at = {.address = arena_printf(&b->arena, "%s:%u", address, port),
                             .sites = 1,
                             .tls = files(b, "aggregator")};
    struct link_server *s;
    int bound;
    serving = b;
    link_tune();
    TRY(link_serve(&s, &at, &service, &bound));
    for (;;)
        pause();
}

static enum err link_exchange(struct bench *b, struct link *l, int which)
{
    static uint64_t round;
    struct wire_answer answer = {0};
    if (which == DOWN) {
        struct wire_fetch f = {.what = WIRE_AGGREGATE};
        return l->ops->fetch(l, &f, b->payload, b->bytes, &answer);
    }
    struct wire_contribution m = {.payload_bytes = b->bytes, .weight = 1, .round = round++};
    TRY(l->ops->contribute(l, &m, b->payload, &answer));
    return answer.outcome == ROUND_RECEIPT ? ERR_OK
                                           : err_set(ERR_PROTO, "outcome %d", answer.outcome);
}

/* Serves requests: a byte says which way, the seconds come back; negative: it failed. */
static enum err link_site(struct bench *b, const char *address, const struct participant *p,
                          int hear, int tell)
{
    struct link_dial d = {.target = arena_printf(&b->arena, "%s:%u", address, p->port),
                          .tls = files(b, "a"),
                          .server_name = "localhost",
                          .streams = p->streams,
                          .automatic = p->streams == 0,
                          .bbr = !b->keep};
    struct link *l;
    unsigned char which;
    link_tune();
    TRY(link_open(&l, &d));
    TRY(l->ops->report(l, &(struct wire_report){0}, &(struct wire_answer){0}));
    while (read(hear, &which, 1) == 1) {
        double start = bench_now();
        enum err e = link_exchange(b, l, which);
        double took = e == ERR_OK ? bench_now() - start : -1;
        if (e != ERR_OK)
            fprintf(stderr, "bench_exchange: %s: %s\n", which == UP ? "contribution" : "aggregate",
                    err_message());
        if (write(tell, &took, sizeof took) != (ssize_t)sizeof took)
            break;
    }
    l->ops->close(l);
    return ERR_OK;
}

/* ---- raw TCP, and TLS on it ---- */
struct raw {
    int socket;
    SSL *tls; /* NULL: plain */
};

static ssize_t raw_write(struct raw *r, const uint8_t *data, size_t n)
{
    n = n < PIECE ? n : PIECE;
    return r->tls ? SSL_write(r->tls, data, (int)n) : write(r->socket, data, n);
}

static ssize_t raw_read(struct raw *r, void *data, size_t n)
{
    n = n < PIECE ? n : PIECE;
    return r->tls ? SSL_read(r->tls, data, (int)n) : read(r->socket, data, n);
}

static struct sockaddr_in raw_address(const char *address, int which)
{
    uint16_t port = which == RAW ? RAW_PORT : RAW_TLS_PORT;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, address, &a.sin_addr);
    return a;
}

static void raw_begin(struct bench *b, struct raw *r, int which, unsigned place)
{
    struct link_tls t = files(b, place == SITE ? "a" : "aggregator");
    if (which == RAW_TLS)
        r->tls = raw_tls(&t, r->socket, place == AGGREGATOR);
}

static enum err raw_aggregator(struct bench *b, const char *address, int which)
{
    struct sockaddr_in a = raw_address(address, which);
    struct raw r = {0};
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&a, sizeof a) != 0 || listen(listener, 1) != 0)
        return err_set(ERR_IO, "cannot listen");
    r.socket = accept(listener, NULL, NULL);
    raw_begin(b, &r, which, AGGREGATOR);
    size_t have = 0;
    for (ssize_t n; (n = raw_read(&r, b->payload, b->bytes - have)) > 0;) {
        have += (size_t)n;
        if (have == b->bytes && raw_write(&r, b->payload, 1) == 1)
            have = 0;
    }
    return ERR_OK;
}

static double raw_exchange(struct bench *b, struct raw *r)
{
    char receipt;
    double start = bench_now();
    for (size_t at = 0; at < b->bytes;) {
        ssize_t n = raw_write(r, b->payload + at, b->bytes - at);
        if (n <= 0)
            return -1;
        at += (size_t)n;
    }
    return raw_read(r, &receipt, 1) == 1 ? bench_now() - start : -1;
}

static enum err raw_site(struct bench *b, const char *address, int which, int hear, int tell)
{
    struct sockaddr_in a = raw_address(address, which);
    struct raw r = {.socket = socket(AF_INET, SOCK_STREAM, 0)};
    unsigned char byte;
    if (connect(r.socket, (struct sockaddr *)&a, sizeof a) != 0)
        return err_set(ERR_LINK, "cannot connect");
    raw_begin(b, &r, which, SITE);
    while (read(hear, &byte, 1) == 1) {
        double took = raw_exchange(b, &r);
        if (write(tell, &took, sizeof took) != (ssize_t)sizeof took)
            break;
    }
    return ERR_OK;
}

/* ---- processes ---- */
/* In a child at that place; gloo becomes python3. */
static enum err become(struct bench *b, const struct participant *p, unsigned place, int hear,
                       int tell)
{
    char address[WAN_ADDRESS_MAX], bytes[32], port[16];
    wan_address(&b->wan, place, AGGREGATOR, address);
    if (p->kind == RAW || p->kind == RAW_TLS)
        return place == SITE ? raw_site(b, address, p->kind, hear, tell)
                             : raw_aggregator(b, address, p->kind);
    if (p->kind == LINK)
        return place == SITE ? link_site(b, address, p, hear, tell)
                             : link_aggregator(b, address, p->port);
    snprintf(bytes, sizeof bytes, "%zu", b->bytes);
    snprintf(port, sizeof port, "%d", GLOO_PORT);
    if (hear >= 0 && (dup2(hear, 0) < 0 || dup2(tell, 1) < 0))
        return err_set(ERR_IO, "no pipe for python3");
    setenv("GLOO_SOCKET_IFNAME", "wan0", 1);
    execlp(b->python, b->python, "tests/bench/exchange_gloo.py", place == SITE ? "1" : "0", address,
           port, bytes, NULL);
    return err_set(ERR_UNSUPPORTED, "cannot start %s", b->python);
}

static pid_t fork_at(struct bench *b, const struct participant *p, unsigned place, int hear,
                     int tell)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    enum err e =
        namespace_enter(wan_place(&b->wan, place)) ? ERR_IO : become(b, p, place, hear, tell);
    if (e != ERR_OK)
        fprintf(stderr, "bench_exchange: %s\n", err_message());
    _exit(e != ERR_OK);
}

static void worker_open(struct bench *b, struct participant *p)
{
    int down[2], up[2];
    ASSERT(pipe2(down, O_CLOEXEC) == 0 && pipe2(up, O_CLOEXEC) == 0);
    p->worker.pid = fork_at(b, p, SITE, down[0], up[1]);
    close(down[0]);
    close(up[1]);
    p->worker.tell = down[1];
    p->worker.hear = up[0];
}

static double worker_run(struct worker *w, int which)
{
    unsigned char byte = (unsigned char)which;
    double took;
    if (write(w->tell, &byte, 1) != 1 || read(w->hear, &took, sizeof took) != (ssize_t)sizeof took)
        return -1;
    return took;
}

/* ---- measuring ---- */
static double ideal(const struct bench *b, const struct condition *c)
{
    return (double)b->bytes * 8 / (c->rate_mbit * 1e6) + c->rtt_ms / 1e3;
}

static const char *name_of(const struct participant *p, int way)
{
    static const char *const names[] = {
        [RAW] = "raw TCP", [RAW_TLS] = "raw TLS", [GLOO] = "gloo all-reduce"};
    return p->kind != LINK ? names[p->kind] : way == UP ? "contribution" : "aggregate";
}

static void report(struct bench *b, const struct condition *c, const struct participant *p, int way)
{
    const struct bench_times *t = &p->times[way];
    char what[96], flags[200], streams[32] = "";
    const char *moments[] = {"", " first"};
    double load;
    if (p->kind == LINK && p->streams)
        snprintf(streams, sizeof streams, " streams=%u", p->streams);
    else if (p->kind == LINK)
        snprintf(streams, sizeof streams, " streams=auto%s", b->keep ? " congestion=kernel" : "");
    if (getloadavg(&load, 1) != 1)
        load = NAN;
    snprintf(flags, sizeof flags, "%zu MiB%s %s buffers %lld KiB%s worst of %zu: %.3f load %.1f",
             b->bytes >> 20, streams, *b->congestion ? b->congestion : "default",
             (long long)b->buffer_kib, b->slow_start ? "" : " no slow start after idle", t->count,
             bench_worst(t), load);
    for (int i = 0; i < 2; i++) {
        snprintf(what, sizeof what, "%s%s %g Mbit/s %g ms loss %g %%", name_of(p, way), moments[i],
                 c->rate_mbit, c->rtt_ms, c->loss_percent);
        bench_write(b->csv, &(struct bench_row){"exchange", what, "s", flags,
                                                i ? p->first[way] : bench_median(t), ideal(b, c)});
    }
}

/* ---- what is promised ---- */

static void promise(struct bench *b, const char *what, double measured, double of, double most,
                    const char *against)
{
    b->worst = fmax(b->worst, measured / of / most);
    printf("  %s: %.3f s, %.3f of %s (promised: at most %.2f)%s\n", what, measured, measured / of,
           against, most, measured <= most * of ? "" : "  MISSED");
}

/* With BBR: 1.06 of the line's time, and with loss 1.06 of raw TLS. Without: 1.1 of the best fixed
 * number. */
static void promises(struct bench *b, const struct condition *c, const struct participant *p,
                     unsigned count)
{
    double tls = INFINITY;
    for (unsigned i = 0; i < count; i++)
        if (p[i].kind == RAW_TLS)
            tls = bench_median(&p[i].times[UP]);
    printf("%g Mbit/s, %g ms, loss %g %%, %s%s, %zu MiB; floor (bytes / rate + round trip) %.3f s",
           c->rate_mbit, c->rtt_ms, c->loss_percent, *b->congestion ? b->congestion : "default",
           b->keep ? ", BBR not asked for" : "", b->bytes >> 20, ideal(b, c));
    printf(isfinite(tls) ? ", raw TLS %.3f s\n" : "\n", tls);
    for (int way = 0; way < WAYS; way++) {
        double best = INFINITY, measured = bench_median(&p[0].times[way]);
        for (unsigned i = 1; i < count; i++)
            if (p[i].kind == LINK && p[i].times[way].count)
                best = fmin(best, bench_median(&p[i].times[way]));
        if (!b->keep && c->loss_percent <= 0)
            promise(b, name_of(p, way), measured, ideal(b, c), 1.06, "the floor");
        else if (!b->keep && !strncmp(b->congestion, "bbr", 3))
            promise(b, name_of(p, way), measured, tls, 1.06, "raw TLS");
        else if (isfinite(best))
            promise(b, name_of(p, way), measured, best, 1.1, "the best fixed number");
        else
            printf("  %s: %.3f s, %.3f of the floor\n", name_of(p, way), measured,
                   measured / ideal(b, c));
    }
    fflush(stdout);
}

/* ---- taking turns ---- */

static void turn(struct bench *b, const struct condition *c, struct participant *p, bool first)
{
    for (int way = 0; way < (p->kind == LINK ? WAYS : 1); way++) {
        double took = worker_run(&p->worker, way);
        if (first)
            p->first[way] = took;
        else if (took > 0)
            bench_add(&p->times[way], took);
        if (took > 0)
            fprintf(stderr, "%-16s %2u %8.3f s  %.3f of the line\n", name_of(p, way), p->streams,
                    took, took / ideal(b, c));
    }
}

/* After the first turn and each later one. */
static void slow_drop(struct participant *p, unsigned count)
{
    double best = INFINITY;
    for (int pass = 0; pass < 2; pass++)
        for (unsigned i = 0; i < count; i++) {
            const struct bench_times *t = p[i].times;
            double took = t[UP].count ? bench_median(&t[UP]) : p[i].first[UP];
            if (p[i].kind == LINK)
                took += t[DOWN].count ? bench_median(&t[DOWN]) : p[i].first[DOWN];
            if (p[i].dropped)
                continue;
            if (pass == 0 && p[i].kind == LINK)
                best = fmin(best, took);
            else if (pass == 1 && i > 0 && t[UP].count)
                p[i].dropped = (p[i].kind == LINK ? took : 2 * took) > DROP * best;
        }
}

/* With cubic and loss, a raw stream of this size takes minutes; it runs where b->bytes is smaller.
 */
static unsigned participants_make(struct bench *b, const struct condition *c,
                                  struct participant p[PARTICIPANTS_MAX])
{
    bool raw = b->keep || c->loss_percent <= 0 || strncmp(b->congestion, "cubic", 5) != 0;
    unsigned n = 0;
    p[n++] = (struct participant){.kind = LINK, .streams = (unsigned)b->streams};
    if (raw)
        p[n++] = (struct participant){.kind = RAW};
    if (raw)
        p[n++] = (struct participant){.kind = RAW_TLS};
    if (*b->python)
        p[n++] = (struct participant){.kind = GLOO};
    for (unsigned i = 0; i < FIXED_COUNT && b->keep; i++)
        p[n++] = (struct participant){.kind = LINK, .streams = fixed[i]};
    for (unsigned i = 0; i < n; i++)
        p[i].port = LINK_PORT + i;
    return n;
}

static void participant_close(struct participant *p)
{
    kill(p->server, SIGKILL);
    kill(p->worker.pid, SIGKILL);
    close(p->worker.tell);
    close(p->worker.hear);
    waitpid(p->server, NULL, 0);
    waitpid(p->worker.pid, NULL, 0);
}

static void take_turns(struct bench *b, const struct condition *c)
{
    struct participant p[PARTICIPANTS_MAX];
    unsigned count = participants_make(b, c, p);
    for (unsigned i = 0; i < count; i++)
        p[i].server = fork_at(b, &p[i], AGGREGATOR, -1, -1);
    child_pause(500);
    for (unsigned i = 0; i < count; i++)
        worker_open(b, &p[i]);
    for (int r = 0; r <= b->repeats; r++) {
        for (unsigned i = 0; i < count; i++)
            if (!p[i].dropped)
                turn(b, c, &p[i], r == 0);
        slow_drop(p, count);
    }
    for (unsigned i = 0; i < count; i++)
        for (int way = 0; way < (p[i].kind == LINK ? WAYS : 1); way++) {
            if (p[i].times[way].count)
                report(b, c, &p[i], way);
            else
                fprintf(stderr, "SKIPPED: %s did not run\n", name_of(&p[i], way));
        }
    promises(b, c, p, count);
    for (unsigned i = 0; i < count; i++)
        participant_close(&p[i]);
}

static enum err condition_run(struct bench *b, const struct condition *c)
{
    struct topology t;
    char *text = arena_printf(
        &b->arena,
        "wan:\n  sites: [a, aggregator]\n  tcp_buffer_kib: %lld\n  congestion: '%s'\n"
        "  slow_start_after_idle: %s\nlink:\n  rate_mbit: %g\n  delay_ms: %g\n  loss_percent: %g\n",
        (long long)b->buffer_kib, b->congestion, b->slow_start ? "true" : "false", c->rate_mbit,
        c->rtt_ms / 2, c->loss_percent);
    TRY_ALLOC(text);
    /* Without BBR, loss makes an exchange take minutes. */
    b->bytes = (size_t)b->mib << (b->keep && c->loss_percent > 0 ? 18 : 20);
    TRY(topology_parse(&t, "bench", text, strlen(text), NULL, &b->arena));
    fprintf(stderr, "\n%g Mbit/s, %g ms, loss %g %%, %s: the line needs %.3f s\n", c->rate_mbit,
            c->rtt_ms, c->loss_percent, b->congestion, ideal(b, c));
    TRY(wan_open(&b->wan, &t, WAN_PACKETS, &b->arena));
    take_turns(b, c);
    wan_print(&b->wan, stderr);
    wan_close(&b->wan);
    return ERR_OK;
}

static enum err certificates(void)
{
    static const char *const hosts[] = {"localhost"};
    int64_t now = (int64_t)time(NULL);
    struct tls_validity v = {now - 60, now + 86400};
    struct tls_request r = {.directory = root,
                            .out = root,
                            .role = TLS_AGGREGATOR,
                            .name = "aggregator",
                            .hosts = hosts,
                            .host_count = 1,
                            .validity = v};
    TRY(tls_force13());
    TRY(tls_authority(root, "bench", false, v));
    TRY(tls_issue(&r));
    r = (struct tls_request){.directory = root, .out = root, .name = "a", .validity = v};
    return tls_issue(&r);
}

/* All settings, or that of the options. */
static enum err settings_run(struct bench *b, const struct condition *c)
{
    if (*b->congestion)
        return condition_run(b, c);
    for (int i = 0; i < SETTINGS; i++) {
        b->congestion = settings[i].congestion;
        b->keep = settings[i].keep;
        TRY(condition_run(b, c));
    }
    b->congestion = "";
    return ERR_OK;
}

static enum err run(struct bench *b, int64_t only)
{
    size_t bytes = (size_t)b->mib << 20;
    TRY_ALLOC(b->payload = malloc(bytes));
    for (size_t i = 0; i < bytes; i++)
        b->payload[i] = (uint8_t)(i * 2654435761u >> 13);
    TRY(certificates());
    for (int64_t i = 0; i < CONDITIONS; i++)
        if (only < 0 ? i < CONDITIONS_PROMISED : only == i)
            TRY(settings_run(b, &conditions[i]));
    printf("%s\n", b->worst <= 1 ? "all promises are kept" : "a promise is MISSED");
    return ERR_OK;
}

int main(int argc, char **argv)
{
    struct bench b = {.csv = "tests/bench/results.csv",
                      .congestion = "",
                      .python = "",
                      .buffer_kib = 65536,
                      .mib = 64,
                      .repeats = 9,
                      .streams = 0,
                      .arena = arena_make(0)};
    int64_t only = -1;
    const struct args_option options[] = {
        {.name = "csv",
         .kind = ARGS_TEXT,
         .target = &b.csv,
         .value = "FILE",
         .help = "Append rows there; empty: on stdout."},
        {.name = "condition",
         .kind = ARGS_INT,
         .target = &only,
         .value = "N",
         .min = -1,
         .max = CONDITIONS - 1,
         .help = "0: 1 Gbit/s 100 ms; 1: with 0.1 % loss; 2: 100 Mbit/s 50 ms; 3: with 0.1 % loss; "
                 "-1: 0 and 1."},
        {.name = "congestion",
         .kind = ARGS_TEXT,
         .target = &b.congestion,
         .value = "NAME",
         .help = "cubic or bbr, in place of both."},
        {.name = "buffer-kib",
         .kind = ARGS_INT,
         .target = &b.buffer_kib,
         .value = "N",
         .min = 0,
         .max = 2e6,
         .help = "Largest TCP buffers; 0: the kernel's."},
        {.name = "slow-start",
         .kind = ARGS_FLAG,
         .target = &b.slow_start,
         .help = "Keep TCP's slow start after a pause."},
        {.name = "streams",
         .kind = ARGS_INT,
         .target = &b.streams,
         .value = "N",
         .min = 0,
         .max = 16,
         .help = "Connections of the link for bulk data; 0: auto."},
        {.name = "keep",
         .kind = ARGS_FLAG,
         .target = &b.keep,
         .help = "With --congestion: the link does not ask for BBR; also fixed numbers."},
        {.name = "mib",
         .kind = ARGS_INT,
         .target = &b.mib,
         .value = "N",
         .min = 1,
         .max = 2048,
         .help = "Size of an exchange."},
        {.name = "repeats",
         .kind = ARGS_INT,
         .target = &b.repeats,
         .value = "N",
         .min = 1,
         .max = 100,
         .help = "Exchanges after the first."},
        {.name = "python",
         .kind = ARGS_TEXT,
         .target = &b.python,
         .value = "PROGRAM",
         .help = "A python3 that has torch: also gloo."},
    };
    struct args args = {.command = "bench_exchange",
                        .summary = "Exchange time over an emulated network.",
                        .example = "build/tests/bench_exchange --condition 2",
                        .options = options,
                        .count = sizeof options / sizeof *options};
    signal(SIGPIPE, SIG_IGN);
    enum err e = args_parse(&args, argc, argv, &b.arena);
    strcpy(root, "/tmp/atoll-bench-XXXXXX");
    if (e == ERR_OK && !args.help)
        e = mkdtemp(root) ? run(&b, only) : ERR_IO;
    if (e != ERR_OK)
        fprintf(stderr, "bench_exchange: %s\n", err_message());
    wan_close(&b.wan);
    (void)!file_remove_tree(root);
    free(b.payload);
    arena_free(&b.arena);
    return e != ERR_OK;
}
