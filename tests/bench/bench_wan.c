/* SPDX-License-Identifier: Apache-2.0 */
/* How faithful the emulated network is: UDP packets from place to place, stamped by the sender, on
 * one machine with one clock. Delay (target: within 1 ms), rate (2 %), loss (within the binomial
 * spread), and the highest rate of packets at which nothing is missed.
 *
 *     build/tests/bench_wan [--csv tests/bench/results.csv]
 */
#include <arpa/inet.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "outer/wan/child.h"
#include "outer/wan/wan.h"
#include "tests/bench/bench.h"

enum {
    PORT = 5000,
    BATCH = 32,
    SAMPLES = 1 << 20,
    HEADERS = 28,
    LARGEST = 1472
}; /* IPv4 and UDP */

struct received {            /* shared with the receiver */
    uint64_t packets, bytes; /* IP */
    double first, last;      /* arrival */
    float delay[SAMPLES];    /* seconds */
};
struct load {
    const char *link; /* YAML of the section `link` */
    double packets_per_s, seconds;
    size_t payload;
};

static const char *csv;
static struct arena arena;
static struct received *got;

static struct sockaddr_in destination(const struct wan *w)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    char text[WAN_ADDRESS_MAX];
    wan_address(w, 0, 1, text);
    inet_pton(AF_INET, text, &a.sin_addr);
    return a;
}

/* The kernel's clock of arrivals, so that a receiver that waits for its core counts for nothing. */
static double wall_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double arrived(struct msghdr *m)
{
    struct timespec t = {0};
    struct cmsghdr *c = CMSG_FIRSTHDR(m);
    ASSERT(c && c->cmsg_type == SCM_TIMESTAMPNS);
    memcpy(&t, CMSG_DATA(c), sizeof t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- processes ---- */
static void batch_open(struct mmsghdr *m, struct iovec *parts, uint8_t (*data)[LARGEST],
                       size_t size)
{
    memset(m, 0, BATCH * sizeof *m);
    for (int i = 0; i < BATCH; i++) {
        parts[i] = (struct iovec){data[i], size};
        m[i].msg_hdr.msg_iov = &parts[i];
        m[i].msg_hdr.msg_iovlen = 1;
    }
}

static void receive(const struct wan *w)
{
    static uint8_t data[BATCH][LARGEST];
    struct sockaddr_in a = destination(w);
    struct mmsghdr m[BATCH];
    struct iovec parts[BATCH];
    uint8_t control[BATCH][CMSG_SPACE(sizeof(struct timespec))];
    int s = socket(AF_INET, SOCK_DGRAM, 0), room = 64 << 20, on = 1;
    setsockopt(s, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    setsockopt(s, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    ASSERT(bind(s, (struct sockaddr *)&a, sizeof a) == 0);
    batch_open(m, parts, data, LARGEST);
    for (int n;;) {
        for (int i = 0; i < BATCH; i++) {
            m[i].msg_hdr.msg_control = control[i];
            m[i].msg_hdr.msg_controllen = sizeof control[i];
        }
        n = recvmmsg(s, m, BATCH, MSG_WAITFORONE, NULL);
        for (int i = 0; i < n; i++) {
            double sent, now = arrived(&m[i].msg_hdr);
            memcpy(&sent, data[i], sizeof sent);
            if (got->packets == 0)
                got->first = now;
            if (got->packets < SAMPLES)
                got->delay[got->packets] = (float)(now - sent);
            got->packets++;
            got->bytes += m[i].msg_len + HEADERS;
            got->last = now;
        }
    }
}

/* As many as are due, a millisecond at a time: one packet per call is too slow for the fastest
 * rates. */
static uint64_t send_load(const struct wan *w, const struct load *l)
{
    static uint8_t data[BATCH][LARGEST];
    struct sockaddr_in a = destination(w);
    struct mmsghdr m[BATCH];
    struct iovec parts[BATCH];
    int s = socket(AF_INET, SOCK_DGRAM, 0), room = 64 << 20;
    uint64_t sent = 0, all = (uint64_t)(l->packets_per_s * l->seconds);
    setsockopt(s, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
    ASSERT(connect(s, (struct sockaddr *)&a, sizeof a) == 0);
    batch_open(m, parts, data, l->payload);
    prctl(PR_SET_TIMERSLACK, 1UL);
    double start = bench_now();
    while (sent < all) {
        uint64_t due = (uint64_t)((bench_now() - start) * l->packets_per_s) + 1;
        due = due < all ? due : all;
        while (sent < due) {
            unsigned n = due - sent < BATCH ? (unsigned)(due - sent) : BATCH;
            double now = wall_now();
            for (unsigned i = 0; i < n; i++)
                memcpy(data[i], &now, sizeof now);
            int done = sendmmsg(s, m, n, 0);
            if (done <= 0)
                return sent;
            sent += (uint64_t)done;
        }
        nanosleep(&(struct timespec){0, 200000}, NULL);
    }
    return sent;
}

static pid_t fork_at(const struct wan *w, unsigned place, const struct load *l)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* With the router only: what is measured is not who else wants the cores. */
    (void)!sched_setscheduler(0, SCHED_RR, &(struct sched_param){.sched_priority = 1});
    if (namespace_enter(wan_place(w, place)) != 0)
        _exit(1);
    if (place == 1)
        receive(w);
    _exit(send_load(w, l) == (uint64_t)(l->packets_per_s * l->seconds) ? 0 : 1);
}

struct outcome {
    struct flow_counters flow;
    uint64_t missed;
    bool sent; /* all of the load */
};

static struct outcome run(const struct load *l)
{
    struct topology t;
    struct wan w;
    int status = 1;
    struct outcome o = {0};
    char *text = arena_printf(&arena, "wan:\n  sites: [a, b]\nlink:\n%s", l->link);
    memset(got, 0, sizeof *got);
    if (!text || topology_parse(&t, "bench", text, strlen(text), NULL, &arena) != ERR_OK ||
        wan_open(&w, &t, WAN_PACKETS, &arena) != ERR_OK) {
        fprintf(stderr, "bench_wan: %s\n", err_message());
        exit(1);
    }
    pid_t receiver = fork_at(&w, 1, l);
    child_pause(200);
    pid_t sender = fork_at(&w, 0, l);
    waitpid(sender, &status, 0);
    child_pause(700);
    kill(receiver, SIGKILL);
    waitpid(receiver, NULL, 0);
    o = (struct outcome){w.counters[1], namespace_missed(&w.place[0]), status == 0};
    wan_close(&w);
    return o;
}

/* ---- what is measured ---- */
static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void row(const char *what, const char *unit, double value, double nominal)
{
    fprintf(stderr, "%-44s %12.5g %s\n", what, value, unit);
    bench_write(csv, &(struct bench_row){"wan", what, unit, BENCH_COMPILER, value, nominal});
}

static void delay(double ms)
{
    char link[64], what[96];
    snprintf(link, sizeof link, "  delay_ms: %g\n", ms);
    run(&(struct load){link, 500, 4, 64});
    size_t n = got->packets < SAMPLES ? got->packets : SAMPLES;
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)got->delay[i];
    qsort(got->delay, n, sizeof *got->delay, by_size);
    snprintf(what, sizeof what, "delay of %g ms: mean", ms);
    row(what, "ms", sum / (double)n * 1e3, ms);
    snprintf(what, sizeof what, "delay of %g ms: 99 %% within", ms);
    row(what, "ms", (double)got->delay[n * 99 / 100] * 1e3, ms);
}

/* Offered half as much again; what arrives between the first and the last packet counts. */
static void rate(double mbit)
{
    char link[96], what[96];
    snprintf(link, sizeof link, "  rate_mbit: %g\n  delay_ms: 10\n", mbit);
    run(&(struct load){link, mbit * 1.5e6 / 8 / 1500, 3, LARGEST});
    double bytes = (double)(got->bytes - 1500), seconds = got->last - got->first;
    snprintf(what, sizeof what, "rate of %g Mbit/s", mbit);
    row(what, "Mbit/s", bytes * 8e-6 / seconds, mbit);
}

static void loss(double percent)
{
    char link[96], what[96];
    snprintf(link, sizeof link, "  loss_percent: %g\n  delay_ms: 10\n", percent);
    struct outcome o = run(&(struct load){link, 25000, 8, 64});
    double n = (double)o.flow.packets, p = percent / 100, lost = n - (double)got->packets;
    snprintf(what, sizeof what, "loss of %g %% of %.0f packets", percent, n);
    row(what, "%", 100 * lost / n, percent);
    snprintf(what, sizeof what, "loss of %g %%: standard deviations off", percent);
    row(what, "sd", (lost - n * p) / sqrt(n * p * (1 - p)), 0);
}

/* The highest offered rate of which less than one in 10,000 is missing, in steps of an eighth. */
static void packets(size_t payload)
{
    double best = 0;
    char what[96];
    for (double offered = 40000; offered < 4e6; offered *= 1.125) {
        struct outcome o = run(&(struct load){"  delay_ms: 10\n", offered, 2, payload});
        double wanted = offered * 2;
        if (!o.sent || (double)o.missed > 1e-4 * wanted ||
            (double)o.flow.arrived < (1 - 1e-4) * wanted)
            break;
        best = (double)o.flow.arrived / (got->last - got->first);
    }
    snprintf(what, sizeof what, "packets of %zu bytes", payload + HEADERS);
    row(what, "packets/s", best, 0);
}

int main(int argc, char **argv)
{
    csv = bench_arguments(argc, argv);
    if (!csv)
        return 1;
    arena = arena_make(0);
    got = mmap(NULL, sizeof *got, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT(got != MAP_FAILED);
    delay(25);
    delay(50);
    delay(300);
    rate(10);
    rate(100);
    rate(1000);
    loss(0.1);
    loss(1);
    packets(64);
    packets(LARGEST);
    arena_free(&arena);
    return 0;
}
