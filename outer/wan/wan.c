/* SPDX-License-Identifier: Apache-2.0 */
/* Opens places, starts the process that moves the bytes, prints what it counted. */
#include "outer/wan/wan.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "outer/wan/relay.h"

enum { NETWORK = 10 << 24 | 77 << 16 };

static enum err places_open(struct wan *w)
{
    const struct topology *t = w->topology;
    struct namespace_setup setup = {
        .mtu = (unsigned)t->set.wan_mtu,
        .tcp_buffer_bytes = (unsigned long)t->set.wan_tcp_buffer_kib << 10,
        .congestion = t->set.wan_congestion,
        .slow_start_after_idle = t->set.wan_slow_start_after_idle,
    };
    for (unsigned i = 0; i < t->places; i++) {
        setup.address = NETWORK + i + 1;
        enum err e = namespace_open(&w->place[i], &setup);
        if (e != ERR_OK)
            return err_add(e, "wan: %s: ", t->place[i]);
    }
    return ERR_OK;
}

static void places_close(struct wan *w)
{
    for (unsigned i = 0; i < w->topology->places; i++)
        namespace_close(&w->place[i]);
}

static size_t counters_bytes(const struct topology *t)
{
    return (size_t)t->places * t->places * sizeof(struct flow_counters);
}

/* In the child, until it is asked to end. */
static void work(const struct wan *w, struct relay *relay)
{
    const struct topology *t = w->topology;
    static struct flow flows[EMULATOR_PLACES_MAX * EMULATOR_PLACES_MAX];
    struct emulator e = {.places = t->places, .mtu = (unsigned)t->set.wan_mtu, .flows = flows};
    for (unsigned i = 0; i < t->places * t->places; i++)
        flow_open(&flows[i], &t->flows[i], &w->counters[i]);
    for (unsigned i = 0; i < t->places; i++)
        e.tun[i] = w->place[i].tun;
    relay->flows = flows;
    if (!w->relay)
        emulator_run(&e);
    else if (relay_run(relay) != ERR_OK)
        fprintf(stderr, "wan: %s\n", err_message());
}

static enum err process_start(struct wan *w, struct relay *relay)
{
    pid_t parent = getpid();
    void *shared = mmap(NULL, counters_bytes(w->topology), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return err_set(ERR_MEMORY, "wan: no memory for counters");
    w->counters = shared;
    /* Until the child has its own handler, a request to end must wait, not meet ours. */
    sigset_t ours, held;
    sigemptyset(&held);
    sigaddset(&held, SIGTERM);
    sigprocmask(SIG_BLOCK, &held, &ours);
    pid_t pid = fork();
    if (pid != 0)
        sigprocmask(SIG_SETMASK, &ours, NULL);
    if (pid < 0)
        return err_set(ERR_IO, "wan: cannot start a process: %s", strerror(errno));
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() == parent)
            work(w, relay);
        _exit(0);
    }
    w->pid = pid;
    return ERR_OK;
}

static void warn(const struct topology *t, const char *why)
{
    bool chance = false;
    for (unsigned i = 0; i < t->places * t->places; i++)
        chance =
            chance || t->flows[i].loss > 0 || t->flows[i].duplicate > 0 || t->flows[i].reorder > 0;
    fprintf(stderr,
            "WARNING: %s%sa relay of TCP streams stands in for the emulated network: rate, delay, "
            "jitter "
            "and outages only.\n"
            "WARNING: NOT emulated: %sfull queues, TCP's behaviour on a long link. Good for tests, "
            "not for figures.\n",
            why, *why ? ";\nWARNING: " : "",
            chance ? "loss, duplication and reordering (which this topology asks for), " : "");
}

static enum err places_or_relay(struct wan *w, enum wan_mode mode)
{
    w->relay = mode == WAN_RELAY;
    if (w->relay) {
        warn(w->topology, "");
        return ERR_OK;
    }
    enum err e = places_open(w);
    if (e != ERR_UNSUPPORTED || mode != WAN_AUTO)
        return e;
    warn(w->topology, err_message());
    places_close(w);
    w->relay = true;
    return ERR_OK;
}

/* Before anything falls back to the relay, which would hide a mistyped name. */
static enum err congestion_check(const char *name)
{
    char offered[512];
    FILE *f = *name ? fopen("/proc/sys/net/ipv4/tcp_available_congestion_control", "re") : NULL;
    if (!f) /* the kernel's own is wanted; or it does not say what it has */
        return ERR_OK;
    size_t n = fread(offered, 1, sizeof offered - 1, f);
    fclose(f);
    offered[n] = 0;
    offered[strcspn(offered, "\n")] = 0;
    size_t length = strlen(name);
    for (const char *at = offered; *at; at += strspn(at, " ")) {
        size_t word = strcspn(at, " ");
        if (word == length && !strncmp(at, name, length))
            return ERR_OK;
        at += word;
    }
    return err_set(ERR_CONFIG,
                   "wan.congestion = %.40s: this kernel offers %s; leave it empty for the kernel's "
                   "own (a module is loaded with: modprobe tcp_%.40s)",
                   name, offered, name);
}

enum err wan_open(struct wan *w, const struct topology *t, enum wan_mode mode, struct arena *a)
{
    struct relay relay = {0};
    *w = (struct wan){0};
    TRY(congestion_check(t->set.wan_congestion));
    w->topology = t;
    enum err e = places_or_relay(w, mode);
    if (e == ERR_OK && w->relay)
        e = relay_open(&relay, t->places, &t->set.wan_ports, a);
    if (e == ERR_OK)
        e = process_start(w, &relay);
    relay_close(&relay); /* the process has its own */
    if (e != ERR_OK)
        wan_close(w);
    return e;
}

void wan_address(const struct wan *w, unsigned from, unsigned to, char out[WAN_ADDRESS_MAX])
{
    if (w->relay)
        snprintf(out, WAN_ADDRESS_MAX, "127.77.%u.%u", from == to ? 0 : from + 1, to + 1);
    else
        snprintf(out, WAN_ADDRESS_MAX, "10.77.0.%u", to + 1);
}

const struct namespace *wan_place(const struct wan *w, unsigned place)
{
    return w->relay ? NULL : &w->place[place];
}

enum err wan_check(struct wan *w)
{
    int status;
    if (waitpid(w->pid, &status, WNOHANG) == 0)
        return ERR_OK;
    w->pid = 0;
    return err_set(ERR_INTERNAL, "the process that emulates the network ended (status %d)", status);
}

static void print_flow(const struct flow_counters *c, const char *from, const char *to, FILE *out)
{
    if (!c->packets)
        return;
    fprintf(out, "  %-12s %-12s %10llu %10.1f %10llu %7llu %7llu %7llu %6llu %6llu %10.1f\n", from,
            to, (unsigned long long)c->packets, (double)c->bytes / 1e6,
            (unsigned long long)c->arrived,
            (unsigned long long)(c->dropped[FLOW_QUEUE] + c->dropped[FLOW_MEMORY]),
            (unsigned long long)c->dropped[FLOW_LOSS], (unsigned long long)c->dropped[FLOW_OUTAGE],
            (unsigned long long)c->duplicated, (unsigned long long)c->reordered,
            (double)c->queue_peak_bytes / 1e3);
}

void wan_print(const struct wan *w, FILE *out)
{
    const struct topology *t = w->topology;
    fprintf(
        out,
        "\nEmulated network %s, seed %lld\n  %-12s %-12s %10s %10s %10s %7s %7s %7s %6s %6s %10s\n",
        t->source, (long long)t->set.wan_seed, "from", "to", w->relay ? "pieces" : "packets", "MB",
        "arrived", "queue", "lost", "outage", "twice", "late", "queue kB");
    for (unsigned from = 0; from < t->places; from++)
        for (unsigned to = 0; to < t->places; to++)
            print_flow(&w->counters[from * t->places + to], t->place[from], t->place[to], out);
    for (unsigned i = 0; i < t->places && !w->relay; i++) {
        uint64_t missed = namespace_missed(&w->place[i]);
        if (missed)
            fprintf(out,
                    "  MISSED: %llu packets of %s: this machine was too slow, the figures above "
                    "are not those of the "
                    "topology\n",
                    (unsigned long long)missed, t->place[i]);
    }
}

void wan_close(struct wan *w)
{
    if (!w->topology)
        return;
    if (w->pid) {
        kill(w->pid, SIGTERM);
        while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    places_close(w);
    if (w->counters)
        munmap(w->counters, counters_bytes(w->topology));
    *w = (struct wan){0};
}
