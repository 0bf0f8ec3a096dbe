/* SPDX-License-Identifier: Apache-2.0 */
/* Loop: deliver what is due, sleep until the next packet is due or one comes, read. Packets lie in
 * slots of one size; a binary heap of (due, order) says which is next. */
#include "outer/wan/emulator.h"
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "kernels/base/clock.h"
#include "kernels/base/err.h"

enum {
    BATCH = 64,
    PIECE = 256
}; /* packets read in one turn; slots taken from the machine at once */
static const size_t MEMORY_MAX = (size_t)1 << 30; /* packets under way */

struct packet {          /* a slot; the bytes follow */
    struct packet *next; /* free list */
    unsigned references; /* duplicates share it */
    unsigned size_bytes, from, to;
    uint8_t data[];
};
struct entry {
    int64_t due_ns;
    uint64_t order; /* equal times: first come, first served */
    struct packet *packet;
};
struct router {
    struct emulator *e;
    struct entry *heap;
    size_t count, capacity;
    uint64_t order;
    struct packet *free;
    size_t slot_bytes, taken_bytes;
    uint64_t start_ns;
};

static volatile sig_atomic_t ended;

static void on_signal(int number)
{
    ended = number;
}

static int64_t now_ns(const struct router *r)
{
    return (int64_t)(clock_mono_ns() - r->start_ns);
}

/* ---- slots ---- */
static bool more_slots(struct router *r)
{
    size_t bytes = PIECE * r->slot_bytes;
    uint8_t *block = r->taken_bytes + bytes > MEMORY_MAX ? NULL : malloc(bytes);
    if (!block)
        return false;
    r->taken_bytes += bytes;
    for (size_t i = 0; i < PIECE; i++) {
        struct packet *p = (struct packet *)(void *)(block + i * r->slot_bytes);
        p->next = r->free;
        r->free = p;
    }
    return true;
}

static void let_go(struct router *r, struct packet *p)
{
    if (--p->references == 0) {
        p->next = r->free;
        r->free = p;
    }
}

/* ---- heap ---- */
static bool before(const struct entry *a, const struct entry *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

static bool push(struct router *r, int64_t due_ns, struct packet *p)
{
    if (r->count == r->capacity) {
        size_t larger = r->capacity ? 2 * r->capacity : 4096;
        struct entry *heap = realloc(r->heap, larger * sizeof *heap);
        if (!heap)
            return false;
        r->heap = heap;
        r->capacity = larger;
    }
    struct entry new = {due_ns, r->order++, p};
    size_t at = r->count++;
    for (; at > 0 && before(&new, &r->heap[(at - 1) / 2]); at = (at - 1) / 2)
        r->heap[at] = r->heap[(at - 1) / 2];
    r->heap[at] = new;
    p->references++;
    return true;
}

static struct packet *pop(struct router *r)
{
    struct packet *p = r->heap[0].packet;
    struct entry last = r->heap[--r->count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < r->count; at = child) {
        if (child + 1 < r->count && before(&r->heap[child + 1], &r->heap[child]))
            child++;
        if (!before(&r->heap[child], &last))
            break;
        r->heap[at] = r->heap[child];
    }
    r->heap[at] = last;
    return p;
}

/* ---- packets ---- */
/* Index of the place it goes to; IPv4 only, no multicast: anything else is chatter of the kernel.
 */
static bool destination(const struct router *r, const struct packet *p, unsigned *to)
{
    if (p->size_bytes < 20 || p->data[0] >> 4 != 4 || p->data[16] >= 224)
        return false;
    *to = (unsigned)p->data[19] - 1;
    return *to < r->e->places && *to != p->from;
}

static void offer(struct router *r, struct packet *p)
{
    if (!destination(r, p, &p->to))
        return;
    struct flow *f = &r->e->flows[p->from * r->e->places + p->to];
    struct flow_answer a = flow_offer(f, now_ns(r), p->size_bytes);
    for (unsigned i = 0; i < a.copies; i++)
        if (!push(r, a.due_ns, p))
            f->count->dropped[FLOW_MEMORY]++;
}

static void deliver(struct router *r)
{
    int64_t now = now_ns(r);
    while (r->count && r->heap[0].due_ns <= now) {
        struct packet *p = pop(r);
        struct flow_counters *c = r->e->flows[p->from * r->e->places + p->to].count;
        ssize_t n;
        while ((n = write(r->e->tun[p->to], p->data, p->size_bytes)) < 0 && errno == EINTR)
            ;
        if (n == (ssize_t)p->size_bytes) {
            c->arrived++;
            c->arrived_bytes += p->size_bytes;
        } else {
            c->dropped[FLOW_MEMORY]++;
        }
        let_go(r, p);
    }
}

/* Without a slot packets stay in the device's own queue, which drops and counts what it cannot
 * hold. */
static void packets_take(struct router *r, unsigned from)
{
    for (int i = 0; i < BATCH && (r->free || more_slots(r)); i++) {
        struct packet *p = r->free;
        ssize_t n = read(r->e->tun[from], p->data, r->e->mtu);
        if (n <= 0)
            return;
        r->free = p->next;
        p->references = 1;
        p->size_bytes = (unsigned)n;
        p->from = from;
        offer(r, p);
        let_go(r, p);
    }
}

static void turn(struct router *r, struct pollfd *polls, const sigset_t *mask)
{
    struct timespec t = {1, 0};
    deliver(r);
    if (r->count) {
        int64_t wait = r->heap[0].due_ns - now_ns(r);
        wait = wait < 0 ? 0 : wait > 1000000000 ? 1000000000 : wait;
        t = (struct timespec){wait / 1000000000, wait % 1000000000};
    }
    if (ppoll(polls, r->e->places, &t, mask) <= 0)
        return;
    for (unsigned i = 0; i < r->e->places; i++)
        if (polls[i].revents)
            packets_take(r, i);
}

void emulator_run(struct emulator *e)
{
    struct router r = {.e = e, .slot_bytes = (sizeof(struct packet) + e->mtu + 63) / 64 * 64};
    struct pollfd polls[EMULATOR_PLACES_MAX];
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t blocked, mask;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigprocmask(SIG_BLOCK, &blocked, &mask); /* but for the time in ppoll: none is lost */
    sigdelset(&mask, SIGTERM);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGINT, SIG_IGN);
    prctl(PR_SET_TIMERSLACK, 1UL);
    /* Where allowed, with the highest priority: lateness is infidelity. */
    if (sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 10}) != 0)
        (void)!setpriority(PRIO_PROCESS, 0, -10);
    r.start_ns = clock_mono_ns();
    for (unsigned i = 0; i < e->places; i++)
        polls[i] = (struct pollfd){.fd = e->tun[i], .events = POLLIN};
    while (!ended)
        turn(&r, polls, &mask);
}
