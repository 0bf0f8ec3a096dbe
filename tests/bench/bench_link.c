/* SPDX-License-Identifier: Apache-2.0 */
/* A contribution of 256 MiB over loopback mutual TLS through link_contribute, against a raw TLS
 * socket of the same OpenSSL, same cipher, same process: MB/s and CPU seconds per GiB of both ends
 * together.
 *
 * Floor: raw TLS copies into and out of the kernel and encrypts: 1.1-1.35 s/GiB. gRPC adds its
 * staging slices and framing (about 1.5x raw), we add one copy on the way in, CRC-32C at both ends
 * (2 x 0.1 s/GiB at 10 GB/s), and, where stored, a write.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "kernels/base/file.h"
#include "tests/bench/bench.h"
#include "tests/bench/raw_tls.h"

enum { BYTES = 256 << 20, PIECE = 1 << 20, REPEATS = 5 };
enum { RAW, RAW_STORED, DISCARDED, STORED, CASES }; /* odd: into a file */

static char root[64];
static volatile int spool = -1; /* a file while it stores */
static int upload;

static struct link_tls files(const char *name)
{
    static char paths[6][128];
    static unsigned turn;
    char *p[3];
    for (int i = 0; i < 3; i++)
        p[i] = paths[turn++ % 6];
    snprintf(p[0], sizeof paths[0], "%s/ca.pem", root);
    snprintf(p[1], sizeof paths[0], "%s/%s.pem", root, name);
    snprintf(p[2], sizeof paths[0], "%s/%s.key", root, name);
    return (struct link_tls){p[0], p[1], p[2]};
}

static enum err certificates(void)
{
    static const char *const hosts[] = {"127.0.0.1"};
    int64_t now = (int64_t)time(NULL);
    struct tls_validity v = {now - 60, now + 86400};
    struct tls_request r = {.directory = root,
                            .out = root,
                            .role = TLS_AGGREGATOR,
                            .name = "aggregator",
                            .hosts = hosts,
                            .host_count = 1,
                            .validity = {now - 60, now + 3600}};
    TRY(tls_authority(root, "bench", false, v));
    TRY(tls_issue(&r));
    r = (struct tls_request){.directory = root, .out = root, .name = "a", .validity = r.validity};
    return tls_issue(&r);
}

/* ---- a service that takes everything ---- */

static void take_offer(void *self, const char *peer, const struct wire_contribution *m,
                       struct wire_answer *answer, void **handle)
{
    (void)self;
    (void)peer;
    (void)m;
    answer->outcome = ROUND_RESUME;
    *handle = &upload;
}

static void take_chunk(void *self, void *handle, uint64_t offset, const uint8_t *data, size_t n,
                       struct wire_answer *answer)
{
    (void)self;
    (void)handle;
    if (spool >= 0 && pwrite(spool, data, n, (off_t)offset) != (ssize_t)n)
        answer->outcome = ROUND_FULL;
}

static void take_finish(void *self, void *handle, bool complete, struct wire_answer *answer)
{
    (void)self;
    (void)handle;
    answer->outcome = complete ? ROUND_RECEIPT : ROUND_INVALID;
}

static uint64_t no_work(void *self, bool *stop)
{
    (void)self;
    (void)stop;
    return UINT64_MAX;
}

static enum err contribute(struct link *l, const uint8_t *payload)
{
    struct wire_contribution m = {.payload_bytes = BYTES, .weight = 1};
    struct wire_answer answer;
    TRY(l->ops->contribute(l, &m, payload, &answer));
    return answer.outcome == ROUND_RECEIPT ? ERR_OK
                                           : err_set(ERR_PROTO, "outcome %d", answer.outcome);
}

/* ---- raw TLS ---- */

struct raw {
    SSL *site, *aggregator;
    int listener;
};

static void *raw_take(void *arg) /* reads all of every contribution, answers with one byte */
{
    struct raw *r = arg;
    struct link_tls t = files("aggregator");
    r->aggregator = raw_tls(&t, accept(r->listener, NULL, NULL), true);
    char *piece = malloc(PIECE);
    ASSERT(piece);
    size_t have = 0;
    for (int n; (n = SSL_read(r->aggregator, piece, PIECE)) > 0;) {
        if (spool >= 0)
            ASSERT(pwrite(spool, piece, (size_t)n, (off_t)have) == n);
        have += (size_t)n;
        if (have == BYTES && SSL_write(r->aggregator, "", 1) == 1)
            have = 0;
    }
    free(piece);
    return NULL;
}

static enum err raw_send(struct raw *r, const uint8_t *payload)
{
    char receipt;
    for (size_t at = 0; at < BYTES; at += PIECE)
        if (SSL_write(r->site, payload + at, PIECE) != PIECE)
            return err_set(ERR_LINK, "raw TLS broke");
    return SSL_read(r->site, &receipt, 1) == 1 ? ERR_OK : err_set(ERR_LINK, "raw TLS broke");
}

static void raw_open(struct raw *r, pthread_t *thread)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    r->listener = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT(bind(r->listener, (struct sockaddr *)&a, n) == 0 && listen(r->listener, 1) == 0);
    ASSERT(getsockname(r->listener, (struct sockaddr *)&a, &n) == 0);
    ASSERT(pthread_create(thread, NULL, raw_take, r) == 0);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT(connect(fd, (struct sockaddr *)&a, n) == 0);
    struct link_tls t = files("a");
    r->site = raw_tls(&t, fd, false);
}

/* ---- measuring ---- */

static double cpu_now(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static enum err once(int which, struct raw *raw, struct link *l, const uint8_t *payload)
{
    char path[96];
    snprintf(path, sizeof path, "%s/spool", root);
    spool = which % 2 ? open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    enum err e = which < DISCARDED ? raw_send(raw, payload) : contribute(l, payload);
    if (spool >= 0)
        close(spool);
    return e;
}

static void write_rows(const char *csv, const struct bench_times *seconds,
                       const struct bench_times *cpu)
{
    static const char *const names[CASES] = {"raw TLS", "raw TLS to a file", "contribution",
                                             "contribution to a file"};
    for (int i = 0; i < CASES;
         i++) { /* each contribution next to the raw socket that does the same with the bytes */
        int base = i % 2;
        double rate = BYTES / 1e6 / bench_median(&seconds[i]), cost = bench_median(&cpu[i]) * 4;
        double raw_rate = i == base ? 0 : BYTES / 1e6 / bench_median(&seconds[base]);
        double raw_cost =
            i == base ? 0 : bench_median(&cpu[base]) * 4; /* a quarter of a GiB each */
        const char *flags = "256 MiB both ends " BENCH_COMPILER;
        bench_write(csv, &(struct bench_row){"link", names[i], "MB/s", flags, rate, raw_rate});
        bench_write(csv, &(struct bench_row){"link", names[i], "CPU s/GiB", flags, cost, raw_cost});
    }
}

static enum err measure(struct raw *raw, struct link *l, const uint8_t *payload, const char *csv)
{
    struct bench_times seconds[CASES] = {0}, cpu[CASES] = {0};
    for (int r = 0; r <= REPEATS; r++)
        for (int i = 0; i < CASES; i++) {
            double start = bench_now(), before = cpu_now();
            TRY(once(i, raw, l, payload));
            if (r == 0)
                continue; /* warm: connected, windows grown */
            bench_add(&seconds[i], bench_now() - start);
            bench_add(&cpu[i], cpu_now() - before);
        }
    write_rows(csv, seconds, cpu);
    return ERR_OK;
}

/* What the ledger's layers add up to, next to what the kernel's counters say of the same sockets:
 * the ratio is the model's. */
static void take_row(void *sum, const struct ledger_row *row) /* a link books under its lock */
{
    ledger_add(sum, row);
}

static void write_framing(const char *csv, const struct ledger_row *sum)
{
    const char *flags = "12 x 256 MiB up " BENCH_COMPILER;
    double apart = 100 * ((double)ledger_sum(&sum->up) / (double)sum->up.socket - 1);
    bench_write(csv, &(struct bench_row){"link", "ledger: layers over the kernel's bytes", "%",
                                         flags, apart, 0});
}

static enum err run(const char *csv)
{
    struct link_service service = {.offer = take_offer,
                                   .chunk = take_chunk,
                                   .finish = take_finish,
                                   .work = no_work,
                                   .commit = link_service_no_commit};
    struct link_listen listen_at = {
        .address = "127.0.0.1:0", .sites = 1, .tls = files("aggregator")};
    struct link_server *s;
    struct link *l;
    struct raw raw;
    pthread_t thread;
    int port;
    char target[32];
    uint8_t *payload = malloc(BYTES);
    ASSERT(payload);
    for (size_t i = 0; i < BYTES; i++)
        payload[i] = (uint8_t)(i * 2654435761u >> 13);
    TRY(certificates());
    TRY(link_serve(&s, &listen_at, &service, &port));
    snprintf(target, sizeof target, "127.0.0.1:%d", port);
    struct ledger_row sum = {0};
    struct link_dial d = {.target = target, .tls = files("a"), .book = take_row, .book_self = &sum};
    TRY(link_open(&l, &d));
    raw_open(&raw, &thread);
    enum err e = measure(&raw, l, payload, csv);
    SSL_shutdown(raw.site);
    pthread_join(thread, NULL);
    l->ops->close(l);
    link_shutdown(s, 1000);
    if (e == ERR_OK)
        write_framing(csv, &sum);
    free(payload);
    return e;
}

int main(int argc, char **argv)
{
    const char *csv = bench_arguments(argc, argv);
    if (!csv)
        return 1;
    link_tune();
    strcpy(root, "/tmp/atoll-bench-XXXXXX");
    enum err e = mkdtemp(root) ? tls_force13() : ERR_IO;
    if (e == ERR_OK)
        e = run(csv);
    if (e != ERR_OK)
        fprintf(stderr, "%s\n", err_message());
    return file_remove_tree(root) == ERR_OK && e == ERR_OK ? 0 : 1;
}
